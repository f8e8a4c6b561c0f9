//! A small writer of SVG: shapes with classes, coloured by the style that a page or a file brings.

use super::inert;
use std::fmt::{Display, Write as _};

/// A drawing in a box of its own. Colours are classes: `s0` to `s7` for series, `ink`, `faint`, `grid`, `good`, `bad`,
/// `doubt`, `ground`; further `soft` (a third of the ink), `shade1` to `shade5` (light to dark), `thin`, `thick`, `dashed`, and of text `small`, `strong`,
/// `middle`, `end`. Lines and paths are stroked, everything else is filled.
pub struct Svg {
    body: String,
    width: f64,
    /// Lower edge of the box; a picture that grows downwards moves it.
    pub height: f64,
}

impl Svg {
    /// A box of that many units; a page shows 760 wide ones at their own size.
    pub fn new(width: f64, height: f64) -> Svg {
        Svg {
            body: String::new(),
            width,
            height,
        }
    }

    /// Text on a baseline.
    pub fn text(&mut self, (x, y): (f64, f64), class: &str, text: impl Display) {
        let (x, y, text) = (At(x), At(y), inert(&text.to_string()));
        let _ = write!(
            self.body,
            "<text x=\"{x}\" y=\"{y}\" class=\"{class}\">{text}</text>"
        );
    }

    /// A straight line.
    pub fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), class: &str) {
        let [x1, y1, x2, y2] = [x1, y1, x2, y2].map(At);
        let _ = write!(
            self.body,
            "<line x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\" class=\"{class}\"/>"
        );
    }

    /// A rectangle by its upper left corner and its extent.
    pub(crate) fn rect(&mut self, corner: (f64, f64), extent: (f64, f64), class: &str) {
        self.titled_rect(corner, extent, class, "");
    }

    /// The same, with words for who points at it.
    pub(crate) fn titled_rect(
        &mut self,
        (x, y): (f64, f64),
        (width, height): (f64, f64),
        class: &str,
        title: &str,
    ) {
        let [x, y, width, height] = [x, y, width.max(0.0), height.max(0.0)].map(At);
        let _ = write!(
            self.body,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" class=\"{class}\""
        );
        self.close("rect", title);
    }

    /// A dot, with words for who points at it.
    pub fn dot(&mut self, (x, y): (f64, f64), radius: f64, class: &str, title: &str) {
        let [x, y, radius] = [x, y, radius].map(At);
        let _ = write!(
            self.body,
            "<circle cx=\"{x}\" cy=\"{y}\" r=\"{radius}\" class=\"{class}\""
        );
        self.close("circle", title);
    }

    /// A path of SVG's own commands.
    pub fn path(&mut self, commands: &str, class: &str) {
        let _ = write!(self.body, "<path d=\"{commands}\" class=\"{class}\"/>");
    }

    fn close(&mut self, element: &str, title: &str) {
        let _ = match title {
            "" => self.body.write_str("/>"),
            title => write!(self.body, "><title>{}</title></{element}>", inert(title)),
        };
    }

    /// The whole element, with its text for readers who cannot see it.
    pub fn finish(self, title: &str, description: &str) -> String {
        let (width, height, body) = (At(self.width), At(self.height), self.body);
        let (title, description) = (inert(title), inert(description));
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\"><title>{title}</title><desc>{description}</desc>{body}</svg>"
        )
    }
}

/// A coordinate, to a tenth: what a screen can show.
pub(super) struct At(pub f64);

impl Display for At {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tenths = (self.0 * 10.0).round() as i64;
        match tenths % 10 {
            0 => write!(f, "{}", tenths / 10),
            _ => write!(f, "{}", tenths as f64 / 10.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_text() {
        let mut svg = Svg::new(10.0, 10.0);
        svg.text((1.0, 2.04), "ink", "</text><script>&\u{1b}\u{202e}");
        svg.dot((1.0, 2.0), 3.0, "s0", "\"'");
        let whole = svg.finish("<t>", "<d>");
        assert!(whole.contains("<text x=\"1\" y=\"2\" class=\"ink\">&lt;/text&gt;&lt;script&gt;&amp;\\u{1b}\\u{202e}</text>"), "{whole}");
        assert!(whole.contains("<title>&quot;&#39;</title>"), "{whole}");
        assert!(whole.contains("<title>&lt;t&gt;</title><desc>&lt;d&gt;</desc>"));
    }

    #[test]
    fn coordinates_are_short() {
        for (value, text) in [
            (1.0, "1"),
            (-0.04, "0"),
            (0.05, "0.1"),
            (-2.26, "-2.3"),
            (760.0, "760"),
        ] {
            assert_eq!(At(value).to_string(), text);
        }
    }
}

//! Colours of pages and pictures.

use std::fmt::Write as _;

/// Name, in a light scheme, in a dark one. Each differs from its ground by 4.5 to 1 at least (WCAG 2.2, 1.4.3).
const PALETTE: [(&str, &str, &str); 17] = [
    ("ground", "#ffffff", "#15181c"),
    ("raised", "#f3f5f7", "#1f242a"),
    ("ink", "#1b1f24", "#e8ebee"),
    ("faint", "#5b6570", "#a0a9b3"),
    ("grid", "#d5dae0", "#353c44"),
    ("good", "#1b7f4b", "#63c995"),
    ("bad", "#b3261e", "#f28b82"),
    ("doubt", "#806000", "#dcb94a"),
    ("s0", "#0b62a8", "#6cb2f0"),
    ("s1", "#c2470a", "#f59a5c"),
    ("s2", "#1b7f4b", "#63c995"),
    ("s3", "#8a3fa0", "#cf94e3"),
    ("s4", "#806000", "#dcb94a"),
    ("s5", "#0f7c86", "#58c6d0"),
    ("s6", "#b3275f", "#f283ae"),
    ("s7", "#58616b", "#a9b3bd"),
    ("link", "#0b62a8", "#6cb2f0"),
];

/// The classes of pictures; colours follow the variables of the page.
pub(super) fn of_pictures() -> String {
    let mut css = String::from(
        "svg{font:13px system-ui,sans-serif}svg text{stroke:none}svg line,svg path{fill:none;stroke-width:1.6}\
        svg .grid{stroke-width:1}svg .thin{stroke-width:1.1}svg .thick{stroke-width:3}svg .dashed{stroke-dasharray:5 4}\
        svg .d1{stroke-dasharray:7 3}svg .d2{stroke-dasharray:2 2}svg .d3{stroke-dasharray:9 3 2 3}svg .d4{stroke-dasharray:4 4}\
        svg .small{font-size:11.5px}svg .strong{font-weight:600}svg .middle{text-anchor:middle}svg .end{text-anchor:end}\
        svg .soft{opacity:.34}svg .mark{stroke-width:1.3}svg .m0{stroke-width:5;stroke-linecap:round}",
    );
    for (name, _, _) in PALETTE {
        let _ = write!(
            css,
            "svg .{name}{{fill:var(--{name})}}svg line.{name},svg path.{name}{{fill:none;stroke:var(--{name})}}svg .area.{name}{{fill:var(--{name});stroke:none}}"
        );
    }
    for shade in 1..=5 {
        let _ = write!(
            css,
            "svg .shade{shade}{{fill:var(--s0);fill-opacity:{:.2}}}",
            0.2 * f64::from(shade)
        );
    }
    css
}

/// The variables of a page: light, dark where the reader's system is, and light on paper.
pub(super) fn variables() -> String {
    let list = |pick: fn(&(&'static str, &'static str, &'static str)) -> &'static str| {
        PALETTE.iter().fold(String::new(), |mut out, colour| {
            let _ = write!(out, "--{}:{};", colour.0, pick(colour));
            out
        })
    };
    format!(
        ":root{{color-scheme:light dark;{}}}@media screen and (prefers-color-scheme:dark){{:root{{{}}}}}",
        list(|colour| colour.1),
        list(|colour| colour.2)
    )
}

/// The classes of pictures in the colours of a light page, for a file that stands alone: many viewers
/// know no variables.
pub(super) fn of_files() -> String {
    PALETTE.iter().fold(of_pictures(), |css, (name, light, _)| {
        css.replace(&format!("var(--{name})"), light)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Relative luminance (WCAG 2.2).
    fn luminance(colour: &str) -> f64 {
        let part = |at: usize| {
            let value = u8::from_str_radix(&colour[at..at + 2], 16).unwrap();
            let share = f64::from(value) / 255.0;
            match share <= 0.04045 {
                true => share / 12.92,
                false => ((share + 0.055) / 1.055).powf(2.4),
            }
        };
        0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5)
    }

    #[test]
    fn everything_that_is_read_stands_out() {
        for (name, light, dark) in PALETTE {
            if ["ground", "raised", "grid"].contains(&name) {
                continue;
            }
            for (colour, ground) in [(light, PALETTE[0].1), (dark, PALETTE[0].2)] {
                let (a, b) = (luminance(colour), luminance(ground));
                let contrast = (a.max(b) + 0.05) / (a.min(b) + 0.05);
                assert!(
                    contrast >= 4.5,
                    "{name} {colour} on {ground}: {contrast:.2}"
                );
            }
        }
    }

    #[test]
    fn a_file_needs_no_variables() {
        assert!(!of_files().contains("var("));
    }
}

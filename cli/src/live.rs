//! The live view: drawn in place on a terminal, a line a second elsewhere. Always on stderr, so
//! that stdout carries the result alone.

use engine::progress::{Event, Watcher};
use model::Warning;
use report::live::Live;
pub use report::live::LivePicture;
use report::words::escape_sentence;
use report::{Ink, Style};
use std::io::{IsTerminal, Stderr, Write};
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Between two drawings: smooth to the eye, cheap for a slow terminal.
const REDRAW: Duration = Duration::from_millis(100);
/// Prose wider than this is hard to read.
const WIDEST_PROSE: u16 = 100;

/// What may be written to standard output, by what it is connected to.
pub fn stdout_style() -> Style {
    static STYLE: OnceLock<Style> = OnceLock::new();
    *STYLE.get_or_init(|| Style {
        width: stdout_width().min(WIDEST_PROSE),
        ..style_of(&std::io::stdout())
    })
}

/// Columns of a table on standard output: those that COLUMNS says, or else of the terminal.
pub fn stdout_width() -> u16 {
    let columns = std::env::var("COLUMNS").ok();
    let columns = columns.and_then(|columns| columns.parse().ok());
    columns
        .unwrap_or_else(|| style_of(&std::io::stdout()).width)
        .max(40)
}

/// Shows what goes on. What was drawn is gone when this is dropped, however the command ends; the
/// cursor is never hidden, so that even a killed process leaves a terminal to work with.
pub struct View<P: LivePicture = Live, W: Write = Stderr> {
    picture: P,
    out: W,
    mode: Mode,
    style: fn() -> Screen,
    /// Widths of the lines on the screen.
    drawn: Vec<usize>,
    drawn_at: Option<Instant>,
}

/// How the view shows itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Quiet,
    InPlace,
    Lines,
}

/// A terminal; it may have another size at the next drawing.
#[derive(Clone, Copy)]
struct Screen {
    style: Style,
    height: u16,
}

impl<P: LivePicture> View<P> {
    /// On standard error: in place if that is a terminal that can move its cursor, else in lines; not
    /// at all if `quiet`.
    pub fn new(picture: P, quiet: bool) -> View<P> {
        let err = std::io::stderr();
        let mode = match (quiet, err.is_terminal() && !dumb()) {
            (true, _) => Mode::Quiet,
            (_, true) => Mode::InPlace,
            (_, false) => Mode::Lines,
        };
        View::over(picture, err, mode, || {
            let err = std::io::stderr();
            Screen {
                style: style_of(&err),
                height: terminal_size::terminal_size_of(&err).map_or(24, |(_, h)| h.0),
            }
        })
    }
}

impl<P: LivePicture, W: Write> View<P, W> {
    fn over(picture: P, out: W, mode: Mode, style: fn() -> Screen) -> View<P, W> {
        View {
            picture,
            out,
            mode,
            style,
            drawn: Vec::new(),
            drawn_at: None,
        }
    }

    /// Writes a line that stays.
    pub fn report(&mut self, line: &str) {
        let line = format!("{line}\n");
        match self.mode {
            Mode::Quiet => {}
            Mode::InPlace => self.draw(&line),
            Mode::Lines => self.write(&line),
        }
    }

    /// Changes the picture by hand, and shows it.
    pub fn update(&mut self, what: impl FnOnce(&mut P)) {
        what(&mut self.picture);
        self.show(true);
    }

    /// Draws what is new, if it is time (`now`: in any case).
    fn show(&mut self, now: bool) {
        let lines = self.picture.plain();
        match self.mode {
            Mode::Quiet => {}
            Mode::Lines => self.write(&lines.iter().map(|l| format!("{l}\n")).collect::<String>()),
            Mode::InPlace => {
                if now || self.drawn_at.is_none_or(|at| at.elapsed() >= REDRAW) {
                    self.draw("");
                }
            }
        }
    }

    /// Replaces the picture on the screen by `above`, which stays, and the present picture.
    fn draw(&mut self, above: &str) {
        let screen = (self.style)();
        let bare = Style {
            colour: false,
            ..screen.style
        };
        // The last rows, if it does not fit; one row is left for the cursor.
        let room = usize::from(screen.height).saturating_sub(1).max(1);
        let mut lines = self.picture.frame(screen.style);
        let skipped = lines.len().saturating_sub(room);
        lines.drain(..skipped);
        let widths = self.picture.frame(bare);
        let widths = widths.iter().skip(skipped).map(|l| l.chars().count());

        let mut text = self.erasing(screen.style.width);
        text.push_str(above);
        for line in &lines {
            text.push_str(line);
            text.push('\n');
        }
        self.drawn = widths.collect();
        self.drawn_at = Some(Instant::now());
        self.write(&text);
    }

    /// The sequence that takes the drawn lines away. A screen that became narrower since has broken
    /// them over several rows. The first row is cleared by itself: some terminals (tmux) take clearing
    /// from the very first row as clearing the screen, and keep what was there in what can be scrolled to.
    fn erasing(&self, width: u16) -> String {
        let width = usize::from(width.max(1));
        let rows: usize = self.drawn.iter().map(|w| w.div_ceil(width).max(1)).sum();
        match rows {
            0 => String::new(),
            rows => format!("\x1b[{rows}A\r\x1b[K\n\x1b[J\x1b[1A"),
        }
    }

    fn warn(&mut self, warning: &Warning) {
        let line = format!("! {}", escape_sentence(&warning.what));
        match self.mode {
            Mode::InPlace => self.report(&(self.style)().style.paint(Ink::Yellow, &line)),
            Mode::Lines | Mode::Quiet => self.report(&line),
        }
    }

    /// A view that cannot be written (a closed pipe) must not end a measurement.
    fn write(&mut self, text: &str) {
        let written = self.out.write_all(text.as_bytes());
        if written.and_then(|()| self.out.flush()).is_err() {
            self.mode = Mode::Quiet;
        }
    }
}

impl<P: LivePicture, W: Write> Watcher for View<P, W> {
    fn event(&mut self, event: &Event<'_>) {
        self.picture.event(event);
        match event {
            Event::Hosts { .. } | Event::Traced { .. } => {}
            Event::Warning { warning } => self.warn(warning),
            Event::Sample { .. } => self.show(false),
            _ => self.show(true),
        }
    }
}

impl<P: LivePicture, W: Write> Drop for View<P, W> {
    fn drop(&mut self) {
        if self.mode == Mode::InPlace {
            let erasing = self.erasing((self.style)().style.width);
            self.write(&erasing);
        }
    }
}

/// What the reader behind a stream can see: colour only on a terminal (https://no-color.org), block
/// characters only where the locale says UTF-8.
fn style_of(stream: &(impl IsTerminal + AsFd)) -> Style {
    let terminal = stream.is_terminal();
    Style {
        width: terminal_size::terminal_size_of(stream)
            .map_or(Style::PLAIN.width, |(width, _)| width.0),
        colour: terminal && !dumb() && !is_set("NO_COLOR"),
        unicode: terminal && utf8_locale(),
    }
}

fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| !value.is_empty())
}

fn dumb() -> bool {
    std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb")
}

/// The first of these that is set decides (locale(7)).
fn utf8_locale() -> bool {
    let value = ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .find(|name| is_set(name))
        .and_then(|name| std::env::var(name).ok())
        .unwrap_or_default()
        .to_ascii_uppercase();
    value.contains("UTF-8") || value.contains("UTF8")
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Bytes, Direction, Nanos, Sample, Side, Spec, StreamSample};

    fn spec() -> Spec {
        Spec::default()
    }

    fn screen(width: u16) -> Screen {
        Screen {
            style: Style {
                width,
                colour: false,
                unicode: false,
            },
            height: 24,
        }
    }

    fn play(view: &mut View<Live, &mut Vec<u8>>) {
        view.event(&Event::LegStarted {
            index: 0,
            direction: Direction::Up,
        });
        for s in 0..3 {
            let bytes = Bytes(125_000_000 * s);
            view.event(&Event::Sample {
                index: 0,
                side: Side::Local,
                sample: &Sample {
                    at: Nanos::from_secs(s),
                    bytes,
                    streams: vec![StreamSample {
                        bytes,
                        ..StreamSample::default()
                    }],
                    ..Sample::default()
                },
            });
        }
        view.event(&Event::Warning {
            warning: &Warning {
                what: "slow\x1b[2J".to_owned(),
                meaning: String::new(),
                remedy: String::new(),
            },
        });
    }

    /// What stays on a screen that obeys just the sequences that the view uses.
    fn shown(written: &[u8]) -> Vec<String> {
        let text = std::str::from_utf8(written).unwrap();
        let mut rows: Vec<String> = vec![String::new()];
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            if let Some(sequence) = rest.strip_prefix("\x1b[") {
                let end = sequence.find(|c: char| c.is_ascii_alphabetic()).unwrap();
                match &sequence[end..=end] {
                    "A" => {
                        let up: usize = sequence[..end].parse().unwrap();
                        assert!(up < rows.len(), "moves above the first row");
                        // All rows below are cleared next, so they may go at once.
                        rows.truncate(rows.len() - up);
                        rows.last_mut().unwrap().clear();
                    }
                    "J" | "K" => {}
                    other => panic!("unexpected sequence {other}"),
                }
                rest = &sequence[end + 1..];
                continue;
            }
            match c {
                '\n' => rows.push(String::new()),
                '\r' => {}
                c => rows.last_mut().unwrap().push(c),
            }
            rest = &rest[c.len_utf8()..];
        }
        rows.retain(|row| !row.is_empty());
        rows
    }

    #[test]
    fn lines_carry_no_escape_sequence() {
        let mut out = Vec::new();
        play(&mut View::over(
            Live::new(&spec()),
            &mut out,
            Mode::Lines,
            || screen(80),
        ));
        let text = String::from_utf8(out).unwrap();
        assert!(!text.contains('\x1b'), "{text:?}");
        assert_eq!(text.lines().count(), 4, "{text}");
        assert!(text.contains("1.00 Gbit/s"), "{text}");
        assert!(text.ends_with("! slow\\u{1b}[2J\n"), "{text}");
    }

    #[test]
    fn the_picture_is_gone_at_the_end_and_doubts_stay() {
        let mut out = Vec::new();
        {
            let mut view = View::over(Live::new(&spec()), &mut out, Mode::InPlace, || screen(80));
            play(&mut view);
            let shown = shown(view.out);
            assert_eq!(shown[0], "! slow\\u{1b}[2J");
            assert!(shown[1].starts_with("up    1.00 Gbit/s"), "{shown:?}");
        }
        assert_eq!(shown(&out), ["! slow\\u{1b}[2J"]);
    }

    #[test]
    fn quiet_is_quiet() {
        let mut out = Vec::new();
        play(&mut View::over(
            Live::new(&spec()),
            &mut out,
            Mode::Quiet,
            || screen(80),
        ));
        assert!(out.is_empty());
    }

    #[test]
    fn a_screen_made_narrower_is_still_cleaned() {
        let mut out = Vec::new();
        let mut view = View::over(Live::new(&spec()), &mut out, Mode::InPlace, || screen(80));
        view.drawn = vec![80, 35, 80];
        assert_eq!(view.erasing(80), "\x1b[3A\r\x1b[K\n\x1b[J\x1b[1A");
        assert_eq!(view.erasing(40), "\x1b[5A\r\x1b[K\n\x1b[J\x1b[1A");
        view.drawn.clear();
        assert_eq!(view.erasing(40), "");
    }

    #[test]
    fn a_closed_pipe_only_silences_the_view() {
        struct Closed;
        impl Write for Closed {
            fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
                Err(std::io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let mut view = View::over(Live::new(&spec()), Closed, Mode::Lines, || screen(80));
        view.event(&Event::Waiting {
            what: "for a reader",
        });
        assert_eq!(view.mode, Mode::Quiet);
    }
}

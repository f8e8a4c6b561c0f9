//! The ladder of a request between client and server: time runs down, and each side has a rail.

use super::latency::short;
use crate::csv::Table;
use crate::page::{Picture, Svg};
use crate::words::escape;
use model::Nanos;
use model::request::{Call, Step, View};

/// Width of the whole picture, in its own units.
const WIDTH: f64 = 760.0;
/// Where the rails begin.
const TOP: f64 = 64.0;
/// Height of the time of the longest request: this much for each row of text, between these bounds.
const ROW: f64 = 15.0;
const SHORTEST: f64 = 180.0;
const TALLEST: f64 = 560.0;
/// A pause of less than this part of the longest request is not written beside its rail.
const SMALL: f64 = 0.015;

/// A request, and what it is called above its ladder.
pub struct Ladder<'a> {
    /// What makes it differ from those beside it.
    pub title: String,
    /// The request.
    pub call: &'a Call,
}

/// Draws requests side by side, on one scale of time.
pub fn picture(id: &str, title: &str, ladders: &[Ladder<'_>]) -> Picture {
    let longest = ladders.iter().map(|l| l.call.parts.total());
    let longest = longest.max().unwrap_or_default().max(Nanos(1));
    let rows = ladders
        .iter()
        .map(|l| l.call.steps.len())
        .max()
        .unwrap_or(0);
    let height = (rows as f64 * 2.0 * ROW).clamp(SHORTEST, TALLEST);
    let width = WIDTH / ladders.len().max(1) as f64;
    let mut svg = Svg::new(WIDTH, TOP + height + 70.0);
    let mut table = Table::default();
    table.row(&HEADER.map(str::to_owned));
    for (n, ladder) in ladders.iter().enumerate() {
        let place = Place {
            left: width * n as f64,
            width,
            height,
            longest,
        };
        place.draw(ladder, &mut svg);
        rows_of(ladder, &mut table);
    }
    let alternative: Vec<String> = ladders.iter().map(alternative).collect();
    let alternative = alternative.join(" ");
    Picture::still(
        id,
        title,
        "Time runs down. Each stroke is what left without a pause, from the one who sent it to the other; beside a rail stands what it waited for before.",
        alternative,
        svg,
        table.text,
    )
}

/// A segment or several on their way: when the first left and the last, and how long the way is.
struct Stroke {
    leaves: Nanos,
    took: Nanos,
    way: Nanos,
}

/// When a step left its sender, by where it was seen; times since the first byte of the call left the client.
fn stroke(call: &Call, step: &Step) -> Stroke {
    let parts = &call.parts;
    let way = if step.call { parts.forward } else { parts.back };
    // How far it had come when it was seen, and how far the first byte of the call had.
    let behind = |step_is_call: bool, way: Nanos| match call.view {
        View::Client | View::BothEnds if !step_is_call => way,
        View::Server if step_is_call => way,
        View::Between => Nanos(way.0 / 2),
        _ => Nanos(0),
    };
    let begun = behind(true, parts.forward);
    Stroke {
        leaves: (step.at + begun).since(behind(step.call, way)),
        took: step.took,
        way,
    }
}

/// Where one ladder is drawn.
struct Place {
    left: f64,
    width: f64,
    height: f64,
    longest: Nanos,
}

impl Place {
    fn y(&self, at: Nanos) -> f64 {
        TOP + (at.0 as f64 / self.longest.0 as f64).min(1.0) * self.height
    }

    /// The rails: of the client and of the server.
    fn rail(&self, server: bool) -> f64 {
        let margin = self.width * 0.31;
        match server {
            false => self.left + margin,
            true => self.left + self.width - margin,
        }
    }

    fn draw(&self, ladder: &Ladder<'_>, svg: &mut Svg) {
        let call = ladder.call;
        let (client, server) = (self.rail(false), self.rail(true));
        let middle = (client + server) / 2.0;
        svg.text((middle, 18.0), "ink strong middle", escape(&ladder.title));
        svg.text(
            (middle, 34.0),
            "faint small middle",
            named(call, self.width),
        );
        svg.text((client, TOP - 10.0), "ink small middle", "client");
        svg.text((server, TOP - 10.0), "ink small middle", "server");
        let end = self.y(call.parts.total());
        for x in [client, server] {
            svg.line((x, TOP), (x, end), "ink");
        }
        self.scale(call, svg);
        let mut between = Labels::default();
        let mut beside = [Labels::default(), Labels::default()];
        let mut last: [Option<Nanos>; 2] = [None; 2];
        let mut asked = Nanos(0);
        for step in &call.steps {
            let stroke = stroke(call, step);
            let side = usize::from(!step.call);
            let text = self.stroke(step, &stroke, svg);
            if let Some(y) = between.place(self.label(&stroke)) {
                svg.text((middle, y), "ink small middle", text);
            }
            if step.call {
                asked = asked.max(stroke.leaves + stroke.took + stroke.way);
            }
            let pause = last[side].map(|last| stroke.leaves.since(last));
            last[side] = Some(stroke.leaves + stroke.took);
            if let (Some(pause), Some(cause)) = (pause, step.waited) {
                let middle = Nanos(stroke.leaves.0 - pause.0.min(stroke.leaves.0) / 2);
                self.beside(
                    !step.call,
                    middle,
                    pause,
                    short(cause),
                    &mut beside[side],
                    svg,
                );
            }
        }
        let think = call.parts.think;
        if think.0 > 0 {
            let (from, to) = (self.y(asked), self.y(asked + think));
            svg.rect((server - 3.0, from), (6.0, to - from), "s1");
            let middle = asked + Nanos(think.0 / 2);
            self.beside(true, middle, think, "think", &mut beside[1], svg);
        }
        self.sum(call, end.max(TOP + self.height), svg);
    }

    /// One stroke between the rails; says what it carried.
    fn stroke(&self, step: &Step, stroke: &Stroke, svg: &mut Svg) -> String {
        let (from, to) = (self.rail(!step.call), self.rail(step.call));
        let arrived = stroke.leaves + stroke.way;
        let first = (self.y(stroke.leaves), self.y(arrived));
        let last = (
            self.y(stroke.leaves + stroke.took),
            self.y(arrived + stroke.took),
        );
        let class = if step.call { "s0" } else { "s2" };
        if last.0 - first.0 >= 1.0 {
            let corners = [(from, first.0), (to, first.1), (to, last.1), (from, last.0)];
            svg.path(&outline(&corners), &format!("area {class} soft"));
        }
        svg.line((from, first.0), (to, first.1), class);
        svg.line((from, last.0), (to, last.1), class);
        // An arrow's head, where the last of it arrives.
        let back = if step.call { -7.0 } else { 7.0 };
        let head = [
            (to, last.1),
            (to + back, last.1 - 4.0),
            (to + back, last.1 + 4.0),
        ];
        svg.path(&outline(&head), &format!("area {class}"));
        carried(step)
    }

    /// Where a stroke's text has its baseline: in it, where it is thick enough, else above it.
    fn label(&self, stroke: &Stroke) -> f64 {
        let first = (self.y(stroke.leaves) + self.y(stroke.leaves + stroke.way)) / 2.0;
        let thick = self.y(stroke.leaves + stroke.took) - self.y(stroke.leaves);
        match thick >= ROW {
            true => first + thick / 2.0 + 4.0,
            false => first - 4.0,
        }
    }

    /// What was waited for, beside the rail of who waited.
    fn beside(
        &self,
        server: bool,
        at: Nanos,
        time: Nanos,
        words: &str,
        labels: &mut Labels,
        svg: &mut Svg,
    ) {
        if (time.0 as f64) < self.longest.0 as f64 * SMALL {
            return;
        }
        let lines = match self.width > WIDTH / 2.0 {
            true => vec![format!("{time} {words}")],
            false => vec![time.to_string(), words.to_owned()],
        };
        let mut y = self.y(at) + 4.0;
        for line in lines {
            let Some(free) = labels.place(y) else {
                return;
            };
            match server {
                true => svg.text((self.rail(true) + 8.0, free), "ink small", line),
                false => svg.text((self.rail(false) - 8.0, free), "ink small end", line),
            }
            y = free + ROW - 2.0;
        }
    }

    /// The time at the left edge.
    fn scale(&self, call: &Call, svg: &mut Svg) {
        let total = call.parts.total();
        for (at, text) in [(Nanos(0), "0".to_owned()), (total, total.to_string())] {
            let y = self.y(at);
            svg.line((self.left + 4.0, y), (self.rail(true), y), "grid");
            svg.text((self.left + 4.0, y - 3.0), "faint small", text);
        }
    }

    /// The parts below, in two lines.
    fn sum(&self, call: &Call, below: f64, svg: &mut Svg) {
        let parts = call.parts.each().map(|(name, time)| match time.0 {
            0 => format!("{name} 0"),
            _ => format!("{name} {time}"),
        });
        let middle = self.left + self.width / 2.0;
        for (n, line) in [parts[..3].join(" + "), parts[3..].join(" + ")]
            .iter()
            .enumerate()
        {
            let text = match n {
                0 => line.clone(),
                _ => format!("+ {line} = {}", call.parts.total()),
            };
            let y = below + 26.0 + n as f64 * ROW;
            svg.text((middle, y), "faint small middle", text);
        }
    }
}

/// A closed path through these corners.
fn outline(corners: &[(f64, f64)]) -> String {
    let points = corners.iter().map(|(x, y)| format!("{x:.1} {y:.1}"));
    format!("M{}Z", points.collect::<Vec<_>>().join("L"))
}

/// Lines of text below each other that must not cover each other.
#[derive(Default)]
struct Labels(Vec<f64>);

impl Labels {
    /// A place at or soon below `y`; none where all is full.
    fn place(&mut self, y: f64) -> Option<f64> {
        let taken = |y: f64, all: &[f64]| all.iter().any(|other| (other - y).abs() < ROW - 2.0);
        let y = (0..4)
            .map(|n| y + f64::from(n) * (ROW - 1.0))
            .find(|y| !taken(*y, &self.0))?;
        self.0.push(y);
        Some(y)
    }
}

/// What fits above a ladder of this width.
fn named(call: &Call, width: f64) -> String {
    let name = escape(&call.operation);
    let detail = escape(&call.detail);
    let room = (width / 6.5) as usize;
    match detail.is_empty() || name.chars().count() + detail.chars().count() + 3 > room {
        true => name,
        false => format!("{name} ({detail})"),
    }
}

fn carried(step: &Step) -> String {
    match (step.bytes.0, step.segments) {
        (0, _) => "again".to_owned(),
        (bytes, 0 | 1) => format!("{bytes} B"),
        (bytes, n) => format!("{bytes} B in {n}"),
    }
}

fn alternative(ladder: &Ladder<'_>) -> String {
    let call = ladder.call;
    let parts = call.parts.each();
    let parts: Vec<String> = parts
        .iter()
        .filter(|(_, time)| time.0 > 0)
        .map(|(name, time)| format!("{name} {time}"))
        .collect();
    format!(
        "{}: {} of {} there and {} back took {}: {}.",
        escape(&ladder.title),
        escape(&call.operation),
        call.call_bytes,
        call.reply_bytes,
        call.parts.total(),
        parts.join(", ")
    )
}

const HEADER: [&str; 9] = [
    "ladder",
    "operation",
    "direction",
    "left_ns",
    "arrived_ns",
    "took_ns",
    "bytes",
    "segments",
    "waited_for",
];

fn rows_of(ladder: &Ladder<'_>, table: &mut Table) {
    for step in &ladder.call.steps {
        let stroke = stroke(ladder.call, step);
        let direction = if step.call { "call" } else { "reply" };
        table.row(&[
            escape(&ladder.title),
            escape(&ladder.call.operation),
            direction.to_owned(),
            stroke.leaves.0.to_string(),
            (stroke.leaves + stroke.way).0.to_string(),
            step.took.0.to_string(),
            step.bytes.0.to_string(),
            step.segments.to_string(),
            step.waited.map_or("", short).to_owned(),
        ]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::Drawing;
    use crate::testing;
    use insta::assert_snapshot;
    use model::Bytes;
    use model::request::{Cause, Parts};

    fn csv(picture: &Picture) -> &str {
        match &picture.drawing {
            Drawing::Still { csv, .. } => csv,
            Drawing::Chart(_) => "",
        }
    }

    #[test]
    fn strokes_leave_their_sender_wherever_they_were_seen() {
        let parts = Parts {
            forward: Nanos(1000),
            think: Nanos(5000),
            back: Nanos(3000),
            ..Parts::default()
        };
        let step = |at: u64, call| Step {
            at: Nanos(at),
            call,
            bytes: Bytes(100),
            segments: 1,
            took: Nanos(0),
            waited: None,
        };
        for (view, reply) in [
            (View::Client, 9000),
            (View::BothEnds, 9000),
            (View::Between, 7000),
            (View::Server, 5000),
        ] {
            let call = Call {
                view,
                parts,
                ..testing::requests().calls[0].clone()
            };
            let [there, back] = [step(0, true), step(reply, false)].map(|step| {
                let stroke = stroke(&call, &step);
                (stroke.leaves.0, (stroke.leaves + stroke.way).0)
            });
            assert_eq!((there, back), ((0, 1000), (6000, 9000)), "{view:?}");
        }
    }

    #[test]
    fn two_requests_stand_on_one_scale() {
        let told = testing::requests();
        let slow = &told.calls[0];
        let mut quick = slow.clone();
        quick.parts.call_send = Nanos(100_000);
        quick.steps = vec![
            Step {
                waited: None,
                ..slow.steps[0].clone()
            },
            Step {
                at: Nanos(300_000),
                ..slow.steps[2].clone()
            },
        ];
        let ladders = [("MTU 1500", slow), ("MTU 9000", &quick)].map(|(title, call)| Ladder {
            title: title.to_owned(),
            call,
        });
        let picture = picture("both", "The same request twice", &ladders);
        assert_snapshot!(picture.alternative);
        assert_snapshot!(csv(&picture));
        let Drawing::Still { svg, .. } = &picture.drawing else {
            panic!("a ladder is no chart");
        };
        assert_snapshot!(svg.replace("><", ">\n<"));
    }

    #[test]
    fn names_of_strangers_and_endless_steps_stay_in_their_place() {
        let mut call = testing::requests().calls[0].clone();
        call.operation = "</text><script>alert(1)</script>\u{202e}".to_owned();
        call.steps = (0..32)
            .map(|n| Step {
                at: Nanos(n * 40_000),
                waited: Some(Cause::ALL[n as usize % 11]),
                ..call.steps[0].clone()
            })
            .collect();
        let title = "<b>".to_owned();
        let picture = picture("one", "x", &[Ladder { title, call: &call }]);
        let Drawing::Still { svg, csv } = &picture.drawing else {
            panic!("a ladder is no chart");
        };
        assert!(!svg.contains("<script") && !svg.contains("<b>") && !svg.contains('\u{202e}'));
        assert_eq!(csv.lines().count(), 33);
    }
}

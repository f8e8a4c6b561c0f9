//! The ladder of a request between client and server: time runs down, and each side has a rail.

use super::WIDTH;
use super::latency::short;
use crate::prelude::*;
use crate::requests::named;
use model::request::{Call, Step, Viewpoint};

/// Where the rails begin.
const TOP: f64 = 64.0;
/// Width of two ladders side by side.
const TWO: f64 = 760.0;
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
    let longest = ladders.iter().map(|l| l.call.parts.total()).max();
    let longest = longest.unwrap_or_default().max(Nanos(1));
    let steps = ladders.iter().map(|l| l.call.steps.len()).max();
    let height = (steps.unwrap_or(0) as f64 * 2.0 * ROW).clamp(SHORTEST, TALLEST);
    let width = if ladders.len() > 1 { TWO / 2.0 } else { WIDTH };
    let all = width * ladders.len() as f64;
    let mut svg = Svg::new(all, TOP + height + 70.0);
    for (n, ladder) in ladders.iter().enumerate() {
        let mut place = LadderPlace {
            left: width * n as f64,
            width,
            height,
            longest,
            svg: &mut svg,
        };
        place.draw(ladder);
    }
    let alternative: Vec<String> = ladders.iter().map(alternative).collect();
    let columns = "ladder|operation|direction|left_ns|arrived_ns|took_ns|bytes|segments|waited_for";
    Picture::still(
        id,
        title,
        "Time runs down. Each stroke is what left without a pause, from the one who sent it to the other; beside a rail stands what it waited for before.",
        alternative.join(" "),
        svg,
        &columns.split('|').collect::<Vec<_>>(),
        ladders.iter().flat_map(rows).collect(),
    )
}

/// A segment or several on their way: when the first left and the last, and the delay of the path.
struct LadderStroke {
    leaves: Nanos,
    took: Nanos,
    delay: Nanos,
}

/// When a step left its sender, by where it was captured; times since the first byte of the call left the client.
fn stroke(call: &Call, step: &Step) -> LadderStroke {
    let parts = &call.parts;
    let delay = if step.call {
        parts.forward
    } else {
        parts.reverse
    };
    // How far it had come when it was captured, and how far the first byte of the call had.
    let behind = |step_is_call: bool, delay: Nanos| match call.view {
        Viewpoint::Client | Viewpoint::BothEnds if !step_is_call => delay,
        Viewpoint::Server if step_is_call => delay,
        Viewpoint::Between => Nanos(delay.0 / 2),
        _ => Nanos(0),
    };
    let begun = behind(true, parts.forward);
    LadderStroke {
        leaves: (step.at + begun).since(behind(step.call, delay)),
        took: step.took,
        delay,
    }
}

/// Where one ladder is drawn.
struct LadderPlace<'a> {
    left: f64,
    width: f64,
    height: f64,
    longest: Nanos,
    svg: &'a mut Svg,
}

impl LadderPlace<'_> {
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

    fn draw(&mut self, ladder: &Ladder<'_>) {
        let (call, total) = (ladder.call, ladder.call.parts.total());
        let rails = [self.rail(false), self.rail(true)];
        let middle = (rails[0] + rails[1]) / 2.0;
        let name = match named(call) {
            long if long.chars().count() > (self.width / 6.5) as usize => escape(&call.operation),
            name => name,
        };
        let (end, left) = (self.y(total), self.left);
        let title = escape(&ladder.title);
        self.svg.text((middle, 18.0), "ink strong middle", title);
        self.svg.text((middle, 34.0), "faint small middle", name);
        for (x, who) in rails.into_iter().zip(["client", "server"]) {
            self.svg.text((x, TOP - 10.0), "ink small middle", who);
            self.svg.line((x, TOP), (x, end), "ink");
        }
        // The time at the left edge.
        for (y, text) in [(TOP, "0".to_owned()), (end, total.to_string())] {
            self.svg.line((left + 4.0, y), (rails[1], y), "grid");
            self.svg.text((left + 4.0, y - 3.0), "faint small", text);
        }
        let mut between = Labels::default();
        let mut beside = [Labels::default(), Labels::default()];
        let mut last: [Option<Nanos>; 2] = [None; 2];
        let mut asked = Nanos(0);
        for step in &call.steps {
            let stroke = stroke(call, step);
            let side = usize::from(!step.call);
            self.stroke(step, &stroke);
            if let Some(y) = between.place(self.label(&stroke)) {
                let place = (middle, y);
                self.svg.text(place, "ink small middle", carried(step));
            }
            let left = stroke.leaves + stroke.took;
            if step.call {
                asked = asked.max(left + stroke.delay);
            }
            let pause = last[side].map(|last| stroke.leaves.since(last));
            last[side] = Some(left);
            if let (Some(pause), Some(cause)) = (pause, step.waited) {
                let middle = Nanos(stroke.leaves.0 - pause.0.min(stroke.leaves.0) / 2);
                self.beside(!step.call, middle, pause, short(cause), &mut beside[side]);
            }
        }
        let think = call.parts.think;
        if think.0 > 0 {
            let (from, to) = (self.y(asked), self.y(asked + think));
            let corner = (rails[1] - 3.0, from);
            self.svg.rect(corner, (6.0, to - from), "s1");
            let middle = asked + Nanos(think.0 / 2);
            self.beside(true, middle, think, "think", &mut beside[1]);
        }
        self.sum(call, end.max(TOP + self.height));
    }

    /// One stroke between the rails.
    fn stroke(&mut self, step: &Step, stroke: &LadderStroke) {
        let (from, to) = (self.rail(!step.call), self.rail(step.call));
        let at = |time| (self.y(time), self.y(time + stroke.delay));
        let (first, last) = (at(stroke.leaves), at(stroke.leaves + stroke.took));
        let class = if step.call { "s0" } else { "s2" };
        if last.0 - first.0 >= 1.0 {
            let corners = [(from, first.0), (to, first.1), (to, last.1), (from, last.0)];
            let class = format!("area {class} soft");
            self.svg.path(&outline(&corners), &class);
        }
        self.svg.line((from, first.0), (to, first.1), class);
        self.svg.line((from, last.0), (to, last.1), class);
        // An arrow's head, where the last of it arrives.
        let (back, y) = (if step.call { to - 7.0 } else { to + 7.0 }, last.1);
        let head = outline(&[(to, y), (back, y - 4.0), (back, y + 4.0)]);
        self.svg.path(&head, &format!("area {class}"));
    }

    /// Where a stroke's text has its baseline: in it, where it is thick enough, else above it.
    fn label(&self, stroke: &LadderStroke) -> f64 {
        let first = (self.y(stroke.leaves) + self.y(stroke.leaves + stroke.delay)) / 2.0;
        let thick = self.y(stroke.leaves + stroke.took) - self.y(stroke.leaves);
        match thick >= ROW {
            true => first + thick / 2.0 + 4.0,
            false => first - 4.0,
        }
    }

    /// What was waited for, beside the rail of who waited.
    fn beside(&mut self, server: bool, at: Nanos, time: Nanos, words: &str, labels: &mut Labels) {
        if (time.0 as f64) < self.longest.0 as f64 * SMALL {
            return;
        }
        let lines = match self.width > TWO / 2.0 {
            true => vec![format!("{time} {words}")],
            false => vec![time.to_string(), words.to_owned()],
        };
        let (x, class) = match server {
            true => (self.rail(true) + 8.0, "ink small"),
            false => (self.rail(false) - 8.0, "ink small end"),
        };
        let mut y = self.y(at) + 4.0;
        for line in lines {
            let Some(free) = labels.place(y) else {
                return;
            };
            self.svg.text((x, free), class, line);
            y = free + ROW - 2.0;
        }
    }

    /// The parts below, in two lines.
    fn sum(&mut self, call: &Call, below: f64) {
        let parts = call.parts.each().map(|(name, time)| match time.0 {
            0 => format!("{name} 0"),
            _ => format!("{name} {time}"),
        });
        let second = format!("+ {} = {}", parts[3..].join(" + "), call.parts.total());
        let middle = self.left + self.width / 2.0;
        for (n, line) in [parts[..3].join(" + "), second].into_iter().enumerate() {
            let place = (middle, below + 26.0 + n as f64 * ROW);
            self.svg.text(place, "faint small middle", line);
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
        let is_free = |y: &f64| self.0.iter().all(|other| (other - y).abs() >= ROW - 2.0);
        let mut places = (0..4).map(|n| y + f64::from(n) * (ROW - 1.0));
        let y = places.find(is_free)?;
        self.0.push(y);
        Some(y)
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
    let (call, parts) = (ladder.call, &ladder.call.parts);
    let each = parts.each().into_iter().filter(|(_, time)| time.0 > 0);
    let each: Vec<String> = each.map(|(name, time)| format!("{name} {time}")).collect();
    format!(
        "{}: {}, {} to the server and {} back, took {}: {}.",
        escape(&ladder.title),
        escape(&call.operation),
        call.call_bytes,
        call.reply_bytes,
        parts.total(),
        each.join(", ")
    )
}

fn rows(ladder: &Ladder<'_>) -> Vec<Vec<String>> {
    let steps = ladder.call.steps.iter();
    let rows = steps.map(|step| {
        let stroke = stroke(ladder.call, step);
        vec![
            escape(&ladder.title),
            escape(&ladder.call.operation),
            if step.call { "call" } else { "reply" }.to_owned(),
            stroke.leaves.0.to_string(),
            (stroke.leaves + stroke.delay).0.to_string(),
            step.took.0.to_string(),
            step.bytes.0.to_string(),
            step.segments.to_string(),
            step.waited.map_or("", short).to_owned(),
        ]
    });
    rows.collect()
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
            reverse: Nanos(3000),
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
            (Viewpoint::Client, 9000),
            (Viewpoint::BothEnds, 9000),
            (Viewpoint::Between, 7000),
            (Viewpoint::Server, 5000),
        ] {
            let call = Call {
                view,
                parts,
                ..testing::requests().calls[0].clone()
            };
            let [there, back] = [step(0, true), step(reply, false)].map(|step| {
                let stroke = stroke(&call, &step);
                (stroke.leaves.0, (stroke.leaves + stroke.delay).0)
            });
            assert_eq!((there, back), ((0, 1000), (6000, 9000)), "{view:?}");
        }
    }

    #[test]
    fn two_requests_stand_on_one_scale() {
        let output = testing::requests();
        let slow = &output.calls[0];
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
    fn names_of_others_and_endless_steps_stay_in_their_place() {
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

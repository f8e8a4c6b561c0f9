//! What a run looks like while it runs: events in, lines out.
//!
//! Counters in samples only grow, so every figure here is a difference of two of them, and a lost or
//! late sample loses nothing but a little smoothness.

use crate::prelude::*;
use crate::summary::requests_per_second;
use crate::words::{blocks, cut, round_span};
use model::{
    Event, Exchange, Latency, LegLimit, Rows, Side, SocketState, Spec, StreamSample, interval_ends,
};
use std::fmt::Display;

/// The rate that is shown as the present one covers at least this much, so that it can be read.
const RATE_SPAN: Nanos = Nanos::from_millis(500);
/// A rate at present is over this at least.
const RATE_LEAST: Nanos = Nanos::from_millis(1);
/// More points of history than this are thinned to half: enough for any screen.
const MOST_POINTS: usize = 2048;
/// Streams numbered beyond this are a peer's mistake.
const MOST_STREAMS: u32 = 1024;
/// Columns of a rate in a frame, and of a row of blocks or a bar at most.
const RATE: usize = 11;
const WIDEST: usize = 60;

/// What a view shows: lines that stay, where nothing can be drawn in place, and a picture of now.
pub trait LivePicture {
    /// Takes the lines that are due, without colour.
    fn plain(&mut self) -> Vec<String>;
    /// All of it, to be drawn over the picture before. No line is wider than `style.width`.
    fn frame(&self, style: Style) -> Vec<String>;
    /// Takes note of what happened.
    fn event(&mut self, event: &Event<'_>);
}

/// The run so far, as far as a viewer cares.
pub struct Live {
    kind: Exchange,
    limit: LegLimit,
    interval: Nanos,
    planned_legs: usize,
    legs: BTreeMap<usize, LiveLeg>,
    waiting: Option<String>,
    header_due: bool,
    pending: Vec<String>,
}

struct LiveLeg {
    kind: Exchange,
    direction: Direction,
    /// By [`Side`].
    ends: [LiveEnd; 2],
    ended: Option<Ended>,
    /// Where the last plain line stopped.
    line_at: Point,
    line_retransmits: u64,
    rows: Rows,
}

/// A moment and what had been moved (bytes) or answered (requests) by then.
#[derive(Clone, Copy, Default)]
struct Point {
    at: Nanos,
    moved: u64,
}

#[derive(Default)]
struct LiveEnd {
    streams: BTreeMap<u32, LiveStream>,
    history: Vec<Point>,
    answered: u64,
    /// Of the present row, and of the last one that is whole.
    requests: Option<Latency>,
    row_requests: Option<Latency>,
    newest: Vec<StreamSample>,
}

#[derive(Default)]
struct LiveStream {
    /// Acknowledged bytes at a sender that knows them, since what was only written may still sit in a
    /// buffer; else application bytes.
    moved: u64,
    /// Retransmissions in the first sample of its socket, and in the newest.
    retransmits: Option<(u64, u64)>,
}

impl Live {
    /// Before anything has happened.
    pub fn new(spec: &Spec) -> Live {
        Live {
            kind: spec.workload.kind().exchange,
            limit: spec.limit,
            interval: spec.interval,
            planned_legs: spec.directions.legs().len(),
            legs: BTreeMap::new(),
            waiting: None,
            header_due: true,
            pending: Vec::new(),
        }
    }

    /// Something is waited for; shown until a leg starts.
    fn waiting(&mut self, words: &str) {
        let words = escape_sentence(words);
        if self.waiting.as_ref() != Some(&words) {
            self.pending.push(words.clone());
            self.waiting = Some(words);
        }
    }

    fn leg_started(&mut self, index: usize, direction: Direction) {
        self.waiting = None;
        let leg = LiveLeg {
            kind: self.kind,
            direction,
            ends: Default::default(),
            ended: None,
            line_at: Point::default(),
            line_retransmits: 0,
            rows: Rows::new(self.interval),
        };
        self.legs.insert(index, leg);
    }

    /// Samples of legs that were never started are ignored.
    fn sample(&mut self, index: usize, side: Side, sample: &Sample) {
        let Some(leg) = self.legs.get_mut(&index) else {
            return;
        };
        let sends = leg.direction.sender() == side;
        leg.ends[side as usize].take(sample, sends, leg.kind);
        if side == leg.pace() && leg.rows.ends(sample.at) {
            self.line(index);
        }
    }

    /// A plain line of what a leg did since its last one. Columns never move, so that the lines can be read by the
    /// eye and by awk.
    fn line(&mut self, index: usize) {
        let Some(leg) = self.legs.get_mut(&index) else {
            return;
        };
        if std::mem::take(&mut self.header_due) {
            let names = leg.names()[0].split(' ');
            self.pending.push(columns(&names.collect::<Vec<_>>()));
        }
        self.pending.push(leg.plain_line());
    }

    fn leg_ended(&mut self, index: usize, ended: &Ended) {
        let Some(leg) = self.legs.get_mut(&index) else {
            return;
        };
        leg.ended = Some(ended.clone());
        // So short a rest shows nothing.
        if leg.line_span().0 >= leg.rows.span().0 / 4 {
            self.line(index);
        }
    }

    /// How far the running legs are, and how long it takes still.
    fn bar(&self, style: Style) -> Option<String> {
        let (index, leg) = self.legs.iter().rev().find(|(_, l)| l.ended.is_none())?;
        let (end, now) = (leg.paced(), leg.paced().now());
        let share = |part: u64, all: u64| (part as f64 / all.max(1) as f64).min(1.0);
        let (done, left) = match self.limit {
            LegLimit::Time(all) => (share(now.at.0, all.0), Some(all.since(now.at))),
            LegLimit::Bytes(Bytes(all)) | LegLimit::Requests(all) => {
                let left =
                    all.saturating_sub(now.moved) as f64 * 1e9 / end.rate_now().unwrap_or(0.0);
                let known = left.is_finite() && left < u64::MAX as f64;
                (share(now.moved, all), known.then_some(Nanos(left as u64)))
            }
            // How long the file is, its end knows.
            LegLimit::Whole => (0.0, None),
        };
        // Rounded up: it is never over before it says so.
        let left = left.map(|left| Nanos::from_secs(left.0.div_ceil(1_000_000_000)));
        let left = left.map_or("unknown time".to_owned(), round_span);
        let running = self.legs.values().filter(|l| l.ended.is_none()).count();
        let of = match (self.planned_legs, running) {
            (legs, 1) if legs > 1 => format!(", leg {} of {legs}", index + 1),
            _ => String::new(),
        };
        let words = format!("{left} left{of}");
        let width = usize::from(style.width);
        let room = width.saturating_sub(words.len() + 2).min(WIDEST);
        if room < 6 {
            return Some(cut(&words, width));
        }
        let (full, empty) = match style.unicode {
            true => ("\u{2588}", "\u{2591}"),
            false => ("#", "."),
        };
        let filled = (done * room as f64) as usize;
        let bar = full.repeat(filled) + &empty.repeat(room - filled);
        Some(format!("{}  {words}", style.paint(Ink::Faint, &bar)))
    }
}

impl LivePicture for Live {
    fn plain(&mut self) -> Vec<String> {
        std::mem::take(&mut self.pending)
    }

    fn frame(&self, style: Style) -> Vec<String> {
        let legs = self.legs.values();
        let mut lines: Vec<String> = legs.flat_map(|leg| leg.lines(style)).collect();
        lines.extend(match &self.waiting {
            Some(words) => Some(cut(words, usize::from(style.width))),
            None => self.bar(style),
        });
        lines
    }

    fn event(&mut self, event: &Event<'_>) {
        match *event {
            Event::Hosts { .. } | Event::Warning { .. } | Event::Traced { .. } => {}
            Event::LegStarted { index, direction } => self.leg_started(index, direction),
            Event::Sample {
                index,
                side,
                sample,
            } => self.sample(index, side, sample),
            Event::LegEnded { index, leg } => self.leg_ended(index, &leg.ended),
            Event::Waiting { what } => self.waiting(what),
        }
    }
}

impl LiveEnd {
    fn take(&mut self, sample: &Sample, sends: bool, kind: Exchange) {
        let at = sample.at;
        if self.history.last().is_some_and(|last| at <= last.at) {
            return;
        }
        for stream in sample.streams.iter().filter(|s| s.stream < MOST_STREAMS) {
            let own = self.streams.entry(stream.stream).or_default();
            let acked = stream.tcp.as_ref().and_then(SocketState::bytes_acked);
            // Never more than was written: the handshake and the stream's token are not payload.
            let acked = acked.filter(|_| sends).unwrap_or(stream.bytes);
            own.moved = own.moved.max(acked.min(stream.bytes).0);
            if let Some(tcp) = &stream.tcp {
                let all = u64::from(tcp.total_retrans().unwrap_or(0));
                let (first, last) = own.retransmits.unwrap_or((all, all));
                own.retransmits = Some((first, last.max(all)));
            }
        }
        if let Some(requests) = &sample.requests {
            self.answered = self.answered.saturating_add(requests.count());
            self.requests = Some(self.requests.take().unwrap_or_default().merged(requests));
        }
        let streams = self.streams.values().map(|s| s.moved);
        let moved = match kind {
            Exchange::Calls => self.answered,
            Exchange::Stream if !sample.streams.is_empty() => streams.fold(0, u64::saturating_add),
            Exchange::Stream | Exchange::Datagrams => sample.bytes.0,
        };
        if self.history.is_empty() && at > Nanos(0) {
            self.history.push(Point::default());
        }
        self.history.push(Point { at, moved });
        if self.history.len() > MOST_POINTS {
            let mut kept = false;
            self.history.retain(|_| {
                kept = !kept;
                kept
            });
        }
        self.newest = sample.streams.clone();
    }

    fn now(&self) -> Point {
        self.history.last().copied().unwrap_or_default()
    }

    fn retransmits(&self) -> Option<u64> {
        let all = self
            .streams
            .values()
            .filter_map(|stream| stream.retransmits);
        let new = all.map(|(first, last)| last - first);
        new.reduce(u64::saturating_add)
    }

    fn sockets(&self) -> impl Iterator<Item = &SocketState> {
        self.newest.iter().filter_map(|stream| stream.tcp.as_ref())
    }

    /// The median of its connections.
    fn rtt(&self) -> Option<Nanos> {
        let rtts = self.sockets().filter_map(SocketState::srtt);
        let mut rtts: Vec<Nanos> = rtts.filter(|srtt| *srtt > Nanos(0)).collect();
        rtts.sort_unstable();
        rtts.get(rtts.len().saturating_sub(1) / 2).copied()
    }

    fn sum(&self, of: fn(&SocketState) -> Option<Bytes>) -> Option<Bytes> {
        self.sockets().filter_map(of).reduce(|a, b| a + b)
    }

    /// Bytes or requests a second at present.
    fn rate_now(&self) -> Option<f64> {
        let last = self.history.last()?;
        let before = self.history.iter().rev();
        let mut before = before.skip_while(|p| p.at + RATE_SPAN > last.at);
        let before = before.next().or(self.history.first())?;
        // A few bytes in a microsecond are no rate.
        (last.at.since(before.at) >= RATE_LEAST).then(|| rate(before, last))?
    }
}

impl LiveLeg {
    fn end(&self, side: Side) -> &LiveEnd {
        &self.ends[side as usize]
    }

    /// The end whose samples set the pace: the client of requests, else the end on this host, whose
    /// samples always come.
    fn pace(&self) -> Side {
        match self.kind {
            Exchange::Calls => self.direction.sender(),
            Exchange::Stream | Exchange::Datagrams => Side::Local,
        }
    }

    fn paced(&self) -> &LiveEnd {
        self.end(self.pace())
    }

    /// Time since the last plain line.
    fn line_span(&self) -> Nanos {
        self.paced().now().at.since(self.line_at.at)
    }

    /// The headings of plain lines, and the figures that stand below the rate of a frame.
    fn names(&self) -> [&'static str; 2] {
        match self.kind {
            Exchange::Stream => [
                "leg seconds rate RTT cwnd unsent retrans",
                "RTT retransmitted cwnd unsent",
            ],
            Exchange::Calls => [
                "leg seconds requests/s p50 p99 max retrans",
                "p50 p99 RTT retransmitted",
            ],
            Exchange::Datagrams => ["leg seconds rate", ""],
        }
    }

    /// A figure by its name, where it is known.
    fn figure(&self, name: &str) -> Option<String> {
        fn text(value: Option<impl Display>) -> Option<String> {
            value.map(|value| value.to_string())
        }
        let (end, sender) = (self.paced(), self.end(self.direction.sender()));
        let requests = end.row_requests.as_ref().or(end.requests.as_ref());
        let again = sender.retransmits();
        match name {
            "p50" => text(requests?.percentile(0.5)),
            "p99" => text(requests?.percentile(0.99)),
            "max" => text(requests?.max()),
            "RTT" => text(sender.rtt()),
            "cwnd" => text(sender.sum(SocketState::cwnd_bytes)),
            "unsent" => text(sender.sum(SocketState::notsent_bytes)),
            "retransmitted" => again.map(grouped),
            // Since the last line.
            _ => text(again.map(|all| all.saturating_sub(self.line_retransmits))),
        }
    }

    fn plain_line(&mut self) -> String {
        let paced = &mut self.ends[self.pace() as usize];
        paced.row_requests = paced.requests.take();
        let (now, span) = (self.paced().now(), self.line_span());
        let moved = now.moved.saturating_sub(self.line_at.moved);
        let rate = match (self.kind, moved as f64 / span.as_secs_f64()) {
            (Exchange::Calls, many) if many >= 1000.0 => grouped(many.round() as u64),
            (Exchange::Calls, few) => three_digits(few),
            _ => Bytes(moved).per(span).to_string(),
        };
        let at = format!("{:.2}", now.at.as_secs_f64());
        let mut cells = vec![self.direction.to_string(), at, rate];
        let rest = self.names()[0].split(' ').skip(cells.len());
        cells.extend(rest.map(|name| or(self.figure(name), "-")));
        self.line_at = now;
        let again = self.end(self.direction.sender()).retransmits();
        self.line_retransmits = again.unwrap_or(self.line_retransmits);
        columns(&cells)
    }

    fn rate_words(&self, rate: f64) -> String {
        match self.kind {
            Exchange::Calls => requests_per_second(rate),
            Exchange::Stream | Exchange::Datagrams => BitRate((rate * 8.0) as u64).to_string(),
        }
    }

    /// The rate with its course, and the figures below it; of one that is over, how it ended.
    fn lines(&self, style: Style) -> Vec<String> {
        let (width, end) = (usize::from(style.width), self.paced());
        let head = format!("{:<5} ", self.direction);
        let ended = self.ended.as_ref().map(|ended| match ended {
            Ended::Complete => "done",
            Ended::Interrupted => "interrupted",
            Ended::Unfinished | Ended::Failed { .. } => "broke off",
        });
        if let Some(how) = ended {
            let ends = end.history.first().zip(end.history.last());
            let overall = ends.and_then(|(first, last)| rate(first, last));
            let overall = overall.map_or("nothing".to_owned(), |rate| self.rate_words(rate));
            let line = cut(&format!("{head}{overall:<RATE$}  {how}"), width);
            return vec![style.paint(Ink::Faint, &line)];
        }
        let Some(now) = end.rate_now() else {
            return vec![cut(&format!("{head}starts"), width)];
        };
        let now = self.rate_words(now);
        let gap = RATE.saturating_sub(now.chars().count()) + 2;
        let taken = head.len() + now.chars().count() + gap;
        if taken > width {
            return vec![cut(&format!("{head}{now}"), width)];
        }
        let ends = interval_ends(&end.history, |point| point.at);
        let steps = ends.windows(2);
        let rates = steps.filter_map(|p| Some((p[1].at.as_secs_f64(), rate(p[0], p[1])?)));
        let course = blocks(
            &rates.collect::<Vec<_>>(),
            (width - taken).min(WIDEST),
            style,
        );
        let first = head.clone() + &style.paint(Ink::Bold, &now) + &" ".repeat(gap) + &course;
        let mut lines = vec![first.trim_end().to_owned()];

        let mut second = " ".repeat(head.len());
        let mut column = second.len();
        for name in self.names()[1].split_whitespace() {
            let Some(value) = self.figure(name) else {
                continue;
            };
            let gap = if column > head.len() { "  " } else { "" };
            let text = format!("{name} {value}");
            column += gap.len() + text.chars().count();
            if column > width {
                break;
            }
            second += gap;
            second += &match name == "retransmitted" && value != "0" {
                true => style.paint(Ink::Yellow, &text),
                false => text,
            };
        }
        if second.len() > head.len() {
            lines.push(second);
        }
        lines
    }
}

/// Cells at fixed columns: the name on the left, figures on the right.
fn columns(cells: &[impl Display]) -> String {
    const WIDTHS: [usize; 7] = [5, 9, 13, 10, 10, 10, 8];
    let cells = cells.iter().zip(WIDTHS).enumerate();
    let cells = cells.map(|(at, (cell, width))| match at {
        0 => format!("{cell:<width$}"),
        _ => format!(" {cell:>width$}"),
    });
    cells.collect()
}

fn rate(from: &Point, to: &Point) -> Option<f64> {
    let span = to.at.since(from.at).as_secs_f64();
    (span > 0.0).then(|| to.moved.saturating_sub(from.moved) as f64 / span)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, LAN, LOSSY};
    use model::Workload;
    use model::{Directions, Leg};

    fn style(width: u16) -> Style {
        Style {
            width,
            colour: false,
            unicode: true,
        }
    }

    /// Feeds both ends of a leg up to and with sample `upto`, far behind near, as they arrive.
    fn feed(live: &mut Live, index: usize, leg: &Leg, upto: usize) {
        for at in 0..=upto {
            for side in [Side::Local, Side::Remote] {
                if let Some(sample) = leg.end(side).samples.get(at) {
                    live.sample(index, side, sample);
                }
            }
        }
    }

    fn in_the_second_leg() -> Live {
        let mut live = Live::new(&testing::spec());
        let up = testing::leg(Direction::Up, LAN);
        live.leg_started(0, Direction::Up);
        feed(&mut live, 0, &up, 10);
        live.leg_ended(0, &Ended::Complete);
        let down = testing::leg(Direction::Down, LOSSY);
        live.leg_started(1, Direction::Down);
        feed(&mut live, 1, &down, 6);
        live
    }

    #[test]
    fn frames_fit_their_screen() {
        let live = in_the_second_leg();
        for width in 1..=250 {
            for line in live.frame(style(width)) {
                assert!(
                    line.chars().count() <= usize::from(width),
                    "{width}: {line}"
                );
            }
        }
        insta::assert_snapshot!(live.frame(style(40)).join("\n"), @r#"
        up    896 Mbit/s   done
        down  62.0 Mbit/s  ▅█████
              RTT 52.9 ms  retransmitted 246
        ██████████░░░░░░░░  4 s left, leg 2 of 2
        "#);
        insta::assert_snapshot!(live.frame(style(80)).join("\n"), @r#"
        up    896 Mbit/s   done
        down  62.0 Mbit/s  ▅█████
              RTT 52.9 ms  retransmitted 246  cwnd 396 KiB  unsent 512 KiB
        ██████████████████████████████████░░░░░░░░░░░░░░░░░░░░░░░░  4 s left, leg 2 of 2
        "#);
        insta::assert_snapshot!(live.frame(style(200)).join("\n"), @r#"
        up    896 Mbit/s   done
        down  62.0 Mbit/s  ▅█████
              RTT 52.9 ms  retransmitted 246  cwnd 396 KiB  unsent 512 KiB
        ████████████████████████████████████░░░░░░░░░░░░░░░░░░░░░░░░  4 s left, leg 2 of 2
        "#);
        insta::assert_snapshot!(live.frame(Style::PLAIN).join("\n"), @r#"
        up    896 Mbit/s   done
        down  62.0 Mbit/s  =#####
              RTT 52.9 ms  retransmitted 246  cwnd 396 KiB  unsent 512 KiB
        ##################################........................  4 s left, leg 2 of 2
        "#);
    }

    #[test]
    fn both_legs_at_once() {
        let mut spec = testing::spec();
        spec.directions = Directions::Bidirectional;
        let mut live = Live::new(&spec);
        for (index, direction) in [Direction::Up, Direction::Down].into_iter().enumerate() {
            live.leg_started(index, direction);
        }
        assert_eq!(live.frame(style(80))[0], "up    starts");
        for (index, direction) in [Direction::Up, Direction::Down].into_iter().enumerate() {
            feed(&mut live, index, &testing::leg(direction, LAN), 3);
        }
        insta::assert_snapshot!(live.frame(style(80)).join("\n"), @r#"
        up    943 Mbit/s   ▅██
              RTT 1.90 ms  retransmitted 0  cwnd 580 KiB  unsent 512 KiB
        down  943 Mbit/s   ▅██
              RTT 1.90 ms  retransmitted 0  cwnd 580 KiB  unsent 512 KiB
        ██████████████████░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░  7 s left
        "#);
    }

    #[test]
    fn requests_show_their_latencies() {
        let mut spec = testing::spec();
        spec.workload = Workload::Request(testing::request());
        spec.directions = Directions::Up;
        spec.limit = LegLimit::Requests(1_165_000);
        let mut live = Live::new(&spec);
        live.leg_started(0, Direction::Up);
        feed(&mut live, 0, &testing::request_leg(11_650), 4);
        insta::assert_snapshot!(live.frame(style(80)).join("\n"), @r#"
        up    116,500 requests/s  ████
              p50 6.60 us  p99 21.0 us  RTT 1.90 ms  retransmitted 0
        ████████████████████████░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░  6 s left
        "#);
        insta::assert_snapshot!(live.plain().join("\n"), @r#"
        leg     seconds    requests/s        p50        p99        max  retrans
        up         1.00       116,500    6.60 us    21.0 us    1.23 ms        0
        up         2.00       116,500    6.60 us    21.0 us    1.23 ms        0
        up         3.00       116,500    6.60 us    21.0 us    1.23 ms        0
        up         4.00       116,500    6.60 us    21.0 us    1.23 ms        0
        "#);
    }

    #[test]
    fn plain_lines_keep_their_columns() {
        let mut live = Live::new(&testing::spec());
        live.waiting("db1 is busy\x1b[2J for 3 s more");
        let up = testing::leg(Direction::Up, LAN);
        live.leg_started(0, Direction::Up);
        feed(&mut live, 0, &up, 3);
        let mut lines = live.plain();
        assert!(live.plain().is_empty());
        let mut down = testing::leg(Direction::Down, LOSSY);
        down.remote.samples.truncate(2);
        live.leg_started(1, Direction::Down);
        feed(&mut live, 1, &down, 2);
        lines.extend(live.plain());
        // A peer that reports nothing.
        down.remote.samples.clear();
        live.leg_started(2, Direction::Down);
        feed(&mut live, 2, &down, 1);
        lines.extend(live.plain());
        insta::assert_snapshot!(lines.join("\n"), @r#"
        db1 is busy\u{1b}[2J for 3 s more
        leg     seconds          rate        RTT       cwnd     unsent  retrans
        up         1.00    472 Mbit/s    1.90 ms    580 KiB    512 KiB        0
        up         2.00    943 Mbit/s    1.90 ms    580 KiB    512 KiB        0
        up         3.00    943 Mbit/s    1.90 ms    580 KiB    512 KiB        0
        down       1.00   31.0 Mbit/s    52.1 ms    396 KiB    512 KiB        0
        down       2.00   62.0 Mbit/s    52.9 ms    396 KiB    512 KiB       41
        down       1.00   31.0 Mbit/s          -          -          -        -
        "#);
    }

    #[test]
    fn a_long_run_at_short_intervals_stays_small_and_right() {
        let mut spec = testing::spec();
        spec.interval = Nanos::from_millis(10);
        spec.limit = LegLimit::Time(Nanos::from_secs(1000));
        let mut live = Live::new(&spec);
        live.leg_started(0, Direction::Up);
        for n in 0..=50_000u64 {
            let bytes = Bytes(n * 1_250_000);
            let sample = Sample {
                at: Nanos::from_millis(10 * n),
                bytes,
                streams: vec![model::StreamSample {
                    bytes,
                    ..model::StreamSample::default()
                }],
                ..Sample::default()
            };
            live.sample(0, Side::Local, &sample);
            live.plain();
        }
        assert!(live.legs[&0].end(Side::Local).history.len() <= MOST_POINTS);
        let frame = live.frame(style(60));
        assert_eq!(
            frame[0],
            format!("up    1.00 Gbit/s  {}", "\u{2588}".repeat(41))
        );
        assert!(frame[1].ends_with("  500 s left, leg 1 of 2"), "{frame:?}");
    }

    #[test]
    fn a_line_a_second_has_all_requests_of_its_second() {
        let mut spec = testing::spec();
        spec.workload = Workload::Request(testing::request());
        spec.interval = Nanos::from_millis(100);
        let mut live = Live::new(&spec);
        live.leg_started(0, Direction::Up);
        for n in 0..=24u64 {
            let sample = Sample {
                at: Nanos::from_millis(100 * n),
                // Slow in the middle of each second only.
                requests: Some(Latency::from_counts([(1_000 + n % 10 / 5 * 8_000, 10)])),
                ..Sample::default()
            };
            live.sample(0, Side::Local, &sample);
        }
        let mut lines = live.plain();
        live.leg_ended(0, &Ended::Complete);
        lines.extend(live.plain());
        insta::assert_snapshot!(lines.join("\n"), @r#"
        leg     seconds    requests/s        p50        p99        max  retrans
        up         1.00           110    1.00 us    9.00 us    9.00 us        -
        up         2.00           100    1.00 us    9.00 us    9.00 us        -
        up         2.40           100    1.00 us    1.00 us    1.00 us        -
        "#);
        live.leg_started(1, Direction::Up);
        live.leg_ended(1, &Ended::Complete);
        assert!(live.plain().is_empty(), "a leg without samples has no line");
    }

    #[test]
    fn samples_that_make_no_sense_change_nothing() {
        let mut live = Live::new(&testing::spec());
        let leg = testing::leg(Direction::Up, LAN);
        live.sample(7, Side::Local, &leg.local.samples[1]);
        assert!(live.frame(style(80)).is_empty());
        live.leg_started(0, Direction::Up);
        feed(&mut live, 0, &leg, 5);
        let before = live.frame(style(80));
        live.sample(0, Side::Local, &leg.local.samples[2]);
        assert_eq!(live.frame(style(80)), before);
    }
}

//! How long requests took: as a distribution, over time, and split into causes.

use super::{RIGHT, WIDTH};
use crate::page::{Ruler, quantity};
use crate::prelude::*;
use crate::requests::{spent, sum};
use model::Latency;
use model::request::{Cause, Moment, Operation};

/// Distributions in one picture.
const MOST_SERIES: usize = 8;
/// Operations whose causes are drawn.
const MOST_OPERATIONS: usize = 12;
/// A line of a distribution goes on when its share has risen by so much, or time by a fiftieth.
const STEP: f64 = 0.002;
/// Where the plot of the heat map begins, behind its axis, and that of the causes.
const LEFT: f64 = 84.0;
const FROM: f64 = 16.0;
/// Shades of a heat map, and height of its plot.
const SHADES: f64 = 5.0;
const HEAT: f64 = 200.0;
/// Height of the causes below it.
const STACK: f64 = 110.0;

/// Requests that are a distribution.
const FEWEST: u64 = 5;

/// The share of requests that were answered within a time; each distribution with its name.
pub fn distribution(id: &str, named: &[(String, &Latency)]) -> Option<Picture> {
    let several = named.iter().filter(|(_, all)| all.count() >= FEWEST);
    let shown: Vec<_> = several.take(MOST_SERIES).collect();
    shown.first()?;
    let series = shown.iter();
    let series = series.map(|(name, all)| Series::new(escape(name), 0, Stroke::Steps, shares(all)));
    let alternative = shown.iter().map(|(name, latency)| {
        let at = |share| latency.percentile(share).unwrap_or_default();
        format!(
            "{}: half of {} within {}, 99 of 100 within {}, all within {}.",
            escape(name),
            grouped(latency.count()),
            at(0.5),
            at(0.99),
            at(1.0)
        )
    });
    let time = "latency";
    let x = Axis::new(time, "s", Scale::Logarithmic);
    let y = Axis::new("answered within it", " %", Scale::FromZero);
    Some(Picture::chart(
        id,
        "How long requests took",
        "Latency CDF. 50 % is the median; the right end is the tail. Left is faster.",
        alternative.collect::<Vec<_>>().join(" "),
        Chart::new(x, vec![y], series.collect(), Vec::new()),
    ))
}

/// A distribution as rising shares, in as many points as can be seen.
fn shares(latency: &Latency) -> Vec<(f64, Option<f64>)> {
    let all = latency.count().max(1) as f64;
    let (mut seen, mut points) = (0_u64, Vec::new());
    let (mut drawn, mut until) = (0.0, 0.0);
    for (value, count) in latency.counts() {
        seen += count;
        let (time, share) = (*value as f64 / 1e9, seen as f64 / all);
        if share - drawn >= STEP || time >= until || share >= 1.0 {
            points.push((time, Some(100.0 * share)));
            (drawn, until) = (share, time * 1.02);
        }
    }
    points
}

/// How many requests took how long, over time, and below what they waited for in the mean.
pub(crate) fn over_time(id: &str, moments: &[Moment]) -> Option<Picture> {
    let (first, last) = (moments.first()?, moments.last()?);
    let cells = moments.iter().map(|m| (m, buckets(&m.times)));
    let cells: Vec<(&Moment, BTreeMap<u64, u64>)> = cells.collect();
    let most = cells.iter().flat_map(|(_, of)| of.values()).max();
    let most = *most.filter(|most| **most > 0)?;
    let counted: u64 = moments.iter().map(|m| m.times.count()).sum();
    if counted < FEWEST {
        return None;
    }
    let ends = [first.from, last.to].map(Nanos::as_secs_f64);
    let x = Ruler::over(ends.into_iter(), Scale::Fitted, LEFT, RIGHT);
    let lengths = cells.iter().flat_map(|(_, of)| of.keys());
    let lengths = lengths.flat_map(|low| [*low as f64 / 1e9, behind(*low) as f64 / 1e9]);
    let (top, foot) = (30.0, 30.0 + HEAT);
    let y = Ruler::over(lengths, Scale::Logarithmic, foot, top);
    let causes = sum(moments.iter().map(|moment| &moment.causes));
    let ranked = causes.ranked();
    let below = if ranked.is_empty() { 0.0 } else { STACK + 70.0 };
    let mut svg = Svg::new(WIDTH, foot + 46.0 + below);
    let key = match most {
        1 => "each cell is one request".to_owned(),
        most => {
            let most = grouped(most);
            format!("requests in a cell: 1 (lightest) to {most} (darkest)")
        }
    };
    svg.text((LEFT, 16.0), "faint small", key);
    times_across(&y, 5.0, &mut svg);
    let mut rows = Vec::new();
    for (moment, of) in &cells {
        let [from, to] = [moment.from, moment.to].map(|at| x.place(at.as_secs_f64()));
        for (low, count) in of {
            let high = behind(*low);
            let [under, over] = [*low, high].map(|ns| y.place(ns as f64 / 1e9));
            let shade = match most {
                1 => SHADES,
                most => 1.0 + (SHADES - 1.0) * (*count as f64).ln() / (most as f64).ln(),
            };
            let title = format!(
                "{} from {}: {} took {} to {}",
                grouped(*count),
                moment.from,
                if *count == 1 { "request" } else { "requests" },
                Nanos(*low),
                Nanos(high)
            );
            let class = format!("shade{}", shade.round().clamp(1.0, SHADES));
            svg.titled_rect((from, over), (to - from, under - over), &class, &title);
            let row = [moment.from.0, moment.to.0, *low, high, *count];
            rows.push(row.map(|n| n.to_string()).to_vec());
        }
    }
    let bottom = match ranked.is_empty() {
        true => foot,
        false => stack(&cells, &ranked, &x, foot + 40.0, &mut svg),
    };
    for tick in x.ticks("s", 6.0) {
        let at = x.place(tick);
        svg.line((at, bottom), (at, bottom + 4.0), "ink thin");
        let place = (at, bottom + 17.0);
        svg.text(place, "faint small middle", quantity(tick, "s"));
    }
    let label = "time of the capture at which the call left";
    svg.text((RIGHT, bottom + 32.0), "faint small end", label);
    Some(Picture::still(
        id,
        "How long requests took, over time",
        "Each cell is as dark as it has requests: a dark line is the usual, what lies above it is slow. Below stands what a request spent its time on in the mean.",
        format!(
            "Requests that began from {} to {}: {}. Their time: {}.",
            first.from,
            last.to,
            grouped(counted),
            spent(&causes, 0.0).replace('\u{a0}', " ")
        ),
        svg,
        &["from_ns", "to_ns", "least_ns", "below_ns", "requests"],
        rows,
    ))
}

/// The causes of the mean request of each moment, on each other; gives back its lower edge.
fn stack(
    cells: &[(&Moment, BTreeMap<u64, u64>)],
    ranked: &[(Cause, Nanos)],
    x: &Ruler,
    top: f64,
    svg: &mut Svg,
) -> f64 {
    let foot = top + STACK;
    let mean =
        |moment: &Moment, time: Nanos| time.as_secs_f64() / moment.times.count().max(1) as f64;
    let means = cells.iter().map(|(m, _)| mean(m, m.causes.total()));
    let y = Ruler::over(means, Scale::FromZero, foot, top).with_air();
    times_across(&y, 3.0, svg);
    for (moment, _) in cells {
        let [from, to] = [moment.from, moment.to].map(|at| x.place(at.as_secs_f64()));
        let mut below = 0.0;
        for (cause, _) in ranked {
            let time = mean(moment, moment.causes.of(*cause));
            let [under, over] = [below, below + time].map(|at| y.place(at));
            below += time;
            if time > 0.0 {
                let title = format!("{}: {}", cause.words(), quantity(time, "s"));
                let extent = (to - from, under - over);
                svg.titled_rect((from, over), extent, class(*cause), &title);
            }
        }
    }
    let names = ranked.iter().map(|(cause, _)| (*cause, short(*cause)));
    legend(names, (LEFT, top - 14.0), svg);
    foot
}

/// Lines across the picture at about so many times, each with its name.
fn times_across(y: &Ruler, most: f64, svg: &mut Svg) {
    for tick in y.ticks("s", most) {
        let at = y.place(tick);
        svg.line((LEFT, at), (RIGHT, at), "grid");
        let place = (LEFT - 6.0, at + 4.0);
        svg.text(place, "faint small end", quantity(tick, "s"));
    }
}

/// Names of causes in one line, as far as there is room; the first lies lowest.
fn legend<'a>(
    names: impl Iterator<Item = (Cause, &'a str)>,
    (mut x, y): (f64, f64),
    svg: &mut Svg,
) {
    for (cause, name) in names {
        let room = 22.0 + 6.2 * name.len() as f64;
        if x + room > RIGHT + 8.0 {
            svg.text((x, y), "faint small", "...");
            return;
        }
        svg.rect((x, y - 9.0), (10.0, 10.0), class(cause));
        svg.text((x + 14.0, y), "ink small", name);
        x += room;
    }
}

/// What the requests of each operation spent their time on, in the mean.
pub fn by_cause(id: &str, operations: &[Operation]) -> Option<Picture> {
    const BAR: f64 = 20.0;
    const ROW: f64 = 46.0;
    let shown = &operations[..operations.len().min(MOST_OPERATIONS)];
    let mean = |of: &Operation, time: Nanos| Nanos(time.0 / of.count.max(1));
    let longest = shown.iter().map(|of| mean(of, of.causes.total())).max();
    let longest = longest.filter(|longest| longest.0 > 0)?;
    let ranked = sum(shown.iter().map(|of| &of.causes)).ranked();
    let top = 30.0;
    let mut svg = Svg::new(WIDTH, top + ROW * shown.len() as f64 + 12.0);
    let scale = (RIGHT - FROM) / longest.0 as f64;
    let names = ranked.iter().take(6);
    let names = names.map(|(cause, _)| (*cause, short(*cause)));
    legend(names, (FROM, 16.0), &mut svg);
    let mut rows = Vec::new();
    for (n, of) in shown.iter().enumerate() {
        let y = top + ROW * n as f64;
        let name = escape(&of.operation);
        let times = match of.count {
            1 => "once".to_owned(),
            n => format!("{} times", grouped(n)),
        };
        let total = mean(of, of.causes.total());
        let head = format!("{name}: {times}, {total} in the mean");
        svg.text((FROM, y + 13.0), "ink small", head);
        let mut x = FROM;
        for (cause, _) in &ranked {
            let (time, cause_name) = (mean(of, of.causes.of(*cause)), short(*cause));
            if time.0 == 0 {
                continue;
            }
            let (count, ns) = (of.count.to_string(), time.0.to_string());
            rows.push(vec![name.clone(), count, cause_name.to_owned(), ns]);
            let length = time.0 as f64 * scale;
            let title = format!("{}: {time}", cause.words());
            svg.titled_rect((x, y + 19.0), (length, BAR), class(*cause), &title);
            let text = format!("{cause_name} {time}");
            if length > 6.6 * text.len() as f64 {
                svg.text((x + length / 2.0, y + 33.0), "ground small middle", text);
            }
            x += length;
        }
    }
    let words = |of: &Operation| {
        let spent = spent(&of.causes, 0.0).replace('\u{a0}', " ");
        format!("{}: {spent}.", escape(&of.operation))
    };
    let alternative = shown.iter().map(words);
    Some(Picture::still(
        id,
        "What requests waited for",
        "Each bar is the mean request of an operation, as long as it took; its parts are what that time was spent on. The longest part is where to look.",
        alternative.collect::<Vec<_>>().join(" "),
        svg,
        &["operation", "requests", "cause", "mean_ns"],
        rows,
    ))
}

/// A cause where there is little room.
pub(super) fn short(cause: Cause) -> &'static str {
    style_of(cause).0
}

fn class(cause: Cause) -> &'static str {
    style_of(cause).1
}

/// A short name, and the colour, which is the same in all pictures.
fn style_of(cause: Cause) -> (&'static str, &'static str) {
    match cause {
        Cause::Think => ("think", "s1"),
        Cause::Path => ("propagation", "s0"),
        Cause::Queue => ("queueing", "s3 soft"),
        Cause::Retransmission => ("retransmission", "s3"),
        Cause::ReceiveWindow => ("receive window", "s4"),
        Cause::CongestionWindow => ("congestion window", "s2"),
        Cause::Nagle => ("Nagle", "s5"),
        Cause::DelayedAck => ("delayed ACK", "s6"),
        Cause::Turn => ("not asked for yet", "s1 soft"),
        Cause::Rate => ("rate", "s0 soft"),
        Cause::Application => ("application", "s7"),
    }
}

/// Times in cells of which each is a quarter to a seventh higher than the one below it, by where they begin.
fn buckets(times: &Latency) -> BTreeMap<u64, u64> {
    let mut all = BTreeMap::new();
    for (value, count) in times.counts() {
        let shift = digits_beyond(*value);
        *all.entry(value >> shift << shift).or_default() += count;
    }
    all
}

/// Where the cell ends that begins here.
fn behind(low: u64) -> u64 {
    low.saturating_add(1 << digits_beyond(low))
}

/// Binary digits beyond the first three.
fn digits_beyond(value: u64) -> u32 {
    (u64::BITS - value.leading_zeros()).saturating_sub(3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page;
    use crate::page::Drawing;
    use crate::testing;
    use insta::assert_snapshot;
    use model::request::Causes;

    #[test]
    fn a_distribution_ends_at_all_and_has_no_more_points_than_can_be_seen() {
        let many = Latency::from_counts((1..100_000).map(|n| (n * 100, 1)));
        let picture = distribution("d", &[("<NFS>".to_owned(), &many)]).unwrap();
        let Drawing::Chart(chart) = &picture.drawing else {
            panic!("a distribution is a chart");
        };
        let points = &chart.series[0].points;
        assert!(points.len() < 1500, "{}", points.len());
        assert_eq!(points.last(), Some(&(0.009_999_9, Some(100.0))));
        assert!(points.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1));
        let half = points.iter().find(|(_, y)| *y >= Some(50.0)).unwrap();
        assert!((half.0 - 0.005).abs() < 0.000_05, "{half:?}");
    }

    #[test]
    fn what_took_how_long_and_why() {
        let mut of = testing::requests();
        let named = |times| [("NFSv3 WRITE".to_owned(), times)];
        assert_eq!(distribution("d", &named(&of.operations[0].times)), None);
        assert_eq!(over_time("o", &of.moments), None, "of one request");
        let four = Latency::from_counts([(1_000_000, 3), (1_412_000, 1)]);
        assert_eq!(distribution("d", &named(&four)), None);
        let five = Latency::from_counts([(1_000_000, 3), (1_412_000, 2)]);
        of.moments[0].times = five.clone();
        let pictures = [
            distribution("d", &named(&five)).unwrap(),
            over_time("o", &of.moments).unwrap(),
            by_cause("c", &of.operations).unwrap(),
        ];
        for picture in &pictures {
            assert_snapshot!(picture.alternative);
            assert_snapshot!(page::csv(picture));
        }
    }

    #[test]
    fn nothing_and_what_is_absurd_are_drawn_as_well() {
        assert_eq!(over_time("o", &[]), None);
        assert_eq!(by_cause("c", &[Operation::default()]), None);
        assert_eq!(shares(&Latency::default()), []);
        let absurd = Moment {
            from: Nanos(u64::MAX - 1),
            to: Nanos(u64::MAX),
            times: Latency::from_counts([(0, u64::MAX), (u64::MAX, 1)]),
            causes: Causes::default(),
        };
        let picture = over_time("o", &[Moment::default(), absurd]).unwrap();
        let Drawing::Still { svg, .. } = picture.drawing else {
            panic!("a heat map is no chart");
        };
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn cells_cover_all_times_without_a_gap() {
        let mut at = 0;
        for _ in 0..100 {
            let low = at;
            at = behind(at);
            let inside = [low, at - 1].map(|value| (value, 1));
            let of = buckets(&Latency::from_counts(inside));
            assert_eq!(of.keys().copied().collect::<Vec<_>>(), [low]);
        }
        assert!(at > 1_000_000);
    }
}

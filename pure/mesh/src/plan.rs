//! When the rounds run.
//!
//! The shortest `every` of a mesh is its *period*. A test with a longer cycle has an equal share of its rounds in each
//! period of the cycle. In a period the rounds of all tests but light probes follow each other, and none touches a quiet span. What is
//! to run at a moment follows from the file and the moment alone, so a coordinator that was away catches nothing up.

use crate::{HostPair, Mesh, MeshTest, rounds};
use model::Nanos;
use std::str::FromStr;

/// For a leg to begin and to end.
const AROUND_A_LEG: Nanos = Nanos::from_secs(3);
/// From the last leg of a round to the next round.
const BETWEEN_ROUNDS: Nanos = Nanos::from_secs(2);

pub(crate) const DAY: Nanos = Nanos::from_secs(86_400);
/// 1970-01-01 was a Thursday.
const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];

/// A span of some days of the week in which no test runs, in UTC: `Mon-Fri 07:00-18:00`, `22:00-24:00`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuietSpan {
    /// By the day of the week, from Thursday.
    days: [bool; 7],
    /// Since midnight.
    from: Nanos,
    until: Nanos,
}

impl FromStr for QuietSpan {
    type Err = String;

    fn from_str(text: &str) -> Result<QuietSpan, String> {
        let day = |name: &str| DAYS.iter().position(|day| *day == name);
        let time = |text: &str| {
            let (hour, minute) = text.split_once(':')?;
            let (hour, minute): (u64, u64) = (hour.parse().ok()?, minute.parse().ok()?);
            let minutes = hour.checked_mul(60)?.checked_add(minute)?;
            (minute < 60 && minutes <= 24 * 60).then_some(Nanos::from_secs(minutes * 60))
        };
        let read = || {
            let (days, span) = text
                .split_once(' ')
                .map_or((None, text), |(days, span)| (Some(days), span));
            let (from, until) = span.split_once('-')?;
            let mut quiet = QuietSpan {
                days: [days.is_none(); 7],
                from: time(from)?,
                until: time(until)?,
            };
            for part in days.into_iter().flat_map(|days| days.split(',')) {
                let (first, last) = part.split_once('-').unwrap_or((part, part));
                let (first, last) = (day(first)?, day(last)?);
                let count = (last + 7 - first) % 7;
                (0..=count).for_each(|n| quiet.days[(first + n) % 7] = true);
            }
            (quiet.from < quiet.until).then_some(quiet)
        };
        read().ok_or_else(|| {
            "write days and times in UTC: \"Mon-Fri 07:00-18:00\", \"Sat,Sun 00:00-24:00\", \"12:00-13:00\"; across midnight write two"
                .to_owned()
        })
    }
}

impl QuietSpan {
    /// The end of what it has of `[from, until)`, where it has any.
    fn end_within(&self, from: Nanos, until: Nanos) -> Option<Nanos> {
        let days = from.0 / DAY.0..=until.0.saturating_sub(1) / DAY.0;
        let mut days = days.filter(|day| self.days[(day % 7) as usize]);
        days.find_map(|day| {
            let midnight = Nanos(day * DAY.0);
            let touches = midnight + self.from < until && midnight + self.until > from;
            touches.then_some(midnight + self.until)
        })
    }
}

/// A round with its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedRound {
    /// The test, by index in [`Mesh::tests`].
    pub test: usize,
    /// Cycle of the test, from the mesh's epoch.
    pub cycle: u64,
    /// Number in the cycle, from 0.
    pub round: usize,
    /// Start; `None`: the quiet spans leave no time for it.
    pub starts: Option<Nanos>,
    /// Duration.
    pub length: Nanos,
    /// Who measures.
    pub pairs: Vec<HostPair>,
}

/// Duration of a round: its legs, what surrounds them, and the time to the next round.
pub fn round_length(test: &MeshTest) -> Nanos {
    let at_once = test.spec.directions == model::Directions::Bidirectional;
    let legs = if at_once {
        1
    } else {
        test.spec.directions.legs().len() as u64
    };
    Nanos(legs * (test.time() + AROUND_A_LEG).0) + BETWEEN_ROUNDS
}

/// The period of a mesh: the shortest cycle of its tests that are booked.
pub fn period(mesh: &Mesh) -> Nanos {
    let cycles = mesh.booked().map(|(_, test)| test.every);
    cycles.min().unwrap_or(DAY)
}

/// The rounds of a period of a mesh but those of light probes, counted from its epoch, in the order in which they run.
pub fn planned(mesh: &Mesh, number: u64) -> Vec<PlannedRound> {
    let period = period(mesh);
    let begin = Nanos(mesh.epoch.0.saturating_add(number.saturating_mul(period.0)));
    let end = begin + period;
    let mut free = begin;
    let mut plan = Vec::new();
    for (index, test) in mesh.booked() {
        let periods = (test.every.0 / period.0).max(1);
        let (cycle, part) = (number / periods, number % periods);
        let all = rounds(mesh, test, cycle);
        let share = |part: u64| (all.len() as u64 * part / periods) as usize;
        let length = round_length(test);
        let of_period = all.iter().enumerate().take(share(part + 1));
        for (round, pairs) in of_period.skip(share(part)) {
            let starts = first_loud(&mesh.quiet, free, length, end);
            if let Some(starts) = starts {
                free = starts + length;
            }
            plan.push(PlannedRound {
                test: index,
                cycle,
                round,
                starts,
                length,
                pairs: pairs.clone(),
            });
        }
    }
    plan
}

/// The next round from then on: its test, by index in [`Mesh::tests`], and its start. Of light probes where nothing is
/// booked. `None`: for a week the quiet spans leave no time for one.
pub fn next_round(mesh: &Mesh, now: Nanos) -> Option<(usize, Nanos)> {
    let since = now.since(mesh.epoch).0;
    let Some(shortest) = mesh.booked().map(|(_, test)| round_length(test)).min() else {
        let cycles = mesh.tests.iter().map(|test| test.every.0);
        let starts = cycles.map(|every| mesh.epoch + Nanos((since / every + 1) * every));
        return starts.enumerate().min_by_key(|(_, starts)| *starts);
    };
    let period = period(mesh);
    let first = since / period.0;
    let mut periods = first..=first + (7 * DAY.0).div_ceil(period.0);
    periods.find_map(|number| {
        let begin = mesh.epoch + Nanos(number * period.0);
        // All rounds of a period are planned only where there may be one.
        first_loud(&mesh.quiet, begin, shortest, begin + period)?;
        let rounds = planned(mesh, number).into_iter();
        let mut begin = rounds.filter_map(|round| Some((round.test, round.starts?)));
        begin.find(|(_, starts)| *starts >= now)
    })
}

/// The first time from `from` on that has `length` outside of the quiet spans and before `end`.
pub fn first_loud(quiet: &[QuietSpan], from: Nanos, length: Nanos, end: Nanos) -> Option<Nanos> {
    let mut starts = from;
    while starts + length <= end {
        let quiet = quiet
            .iter()
            .filter_map(|span| span.end_within(starts, starts + length));
        match quiet.max() {
            Some(over) => starts = over,
            None => return Some(starts),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{check, parse_mesh};

    const MONDAY: u64 = 1_795_392_000; // 2026-11-23

    fn at(hours: u64) -> Nanos {
        Nanos::from_secs(MONDAY + hours * 3600)
    }

    fn mesh(quiet: &str, tests: &str) -> Mesh {
        let hosts: String = (0..4)
            .map(|n| format!("[[host]]\nname = \"h{n}\"\nagent = \"h{n}\"\n"))
            .collect();
        let text = format!(
            "[mesh]\nname = \"m\"\nepoch = 2026-11-23T00:00:00Z\nquiet = [{quiet}]\n{hosts}{tests}"
        );
        parse_mesh(&text, "m.toml").unwrap()
    }

    #[test]
    fn quiet_spans_of_days_and_of_every_day() {
        assert_eq!(Nanos::of_day(2026, 11, 23), Some(at(0)));
        let week: QuietSpan = "Mon-Fri 07:00-18:00".parse().unwrap();
        assert_eq!(week.end_within(at(6), at(7)), None);
        assert_eq!(week.end_within(at(6), at(8)), Some(at(18)));
        assert_eq!(week.end_within(at(17), at(30)), Some(at(18)));
        assert_eq!(week.end_within(at(18), at(24)), None);
        assert_eq!(week.end_within(at(5 * 24), at(7 * 24)), None);
        let ends: QuietSpan = "Sat,Sun 00:00-24:00".parse().unwrap();
        assert_eq!(ends.end_within(at(0), at(6 * 24)), Some(at(6 * 24)));
        let all: QuietSpan = "12:00-13:00".parse().unwrap();
        assert_eq!(
            all.end_within(at(6 * 24), at(7 * 24)),
            Some(at(6 * 24 + 13))
        );
        for bad in [
            "",
            "Mon",
            "Mon 18:00-07:00",
            "Mo 07:00-08:00",
            "07:60-08:00",
            "07:00-24:01",
            "x-y",
        ] {
            assert!(bad.parse::<QuietSpan>().is_err(), "{bad}");
        }
    }

    #[test]
    fn rounds_follow_each_other_around_the_quiet_spans() {
        let one = "[[test]]\nname = \"b\"\nhosts = [\"*\"]\ntime = \"10s\"\nevery = \"1d\"\n";
        let of = mesh("\"00:01-06:00\"", one);
        // 2 legs of 13 s and 2 s.
        let plan = planned(&of, 0);
        let starts: Vec<Option<Nanos>> = plan.iter().map(|round| round.starts).collect();
        let seconds = |s: u64| Some(at(0) + Nanos::from_secs(s));
        assert_eq!(starts, [seconds(0), seconds(28), seconds(6 * 3600)]);
        assert!(
            plan.iter()
                .all(|round| round.length == Nanos::from_secs(28) && round.pairs.len() == 2)
        );
        let tight = mesh("\"00:00-23:59\"", one);
        let starts: Vec<bool> = planned(&tight, 3)
            .iter()
            .map(|round| round.starts.is_some())
            .collect();
        assert_eq!(starts, [true, true, false]);
    }

    #[test]
    fn the_next_round_and_plans_that_have_none() {
        let test = "[[test]]\nname = \"b\"\nhosts = [\"*\"]\ntime = \"10s\"\nevery = \"1h\"\n";
        let light = "[[test]]\nname = \"l\"\nkind = \"light\"\nhosts = [\"*\"]\n";
        let week = mesh("\"Mon-Fri 07:00-18:00\"", &format!("{light}{test}"));
        let second = Nanos::from_secs(1);
        assert_eq!(next_round(&week, Nanos(0)), Some((1, at(0))));
        assert_eq!(next_round(&week, at(1)), Some((1, at(1))));
        // Three rounds of 28 s, and none in quiet hours.
        let last = at(6) + Nanos::from_secs(56);
        assert_eq!(next_round(&week, last), Some((1, last)));
        assert_eq!(next_round(&week, last + second), Some((1, at(18))));
        let minute = Nanos::from_secs(60);
        let lights = mesh("", light);
        assert_eq!(
            next_round(&lights, at(0) + second),
            Some((0, at(0) + minute))
        );

        assert_eq!(check(&week, week.epoch).faults, [""; 0]);
        let never = mesh("\"Mon-Sun 00:00-24:00\"", test);
        assert_eq!(next_round(&never, at(0)), None);
        let fault = "the quiet spans never leave time for a round of the test 'b', which takes 28 s: shorten 'quiet' or 'time'";
        assert_eq!(check(&never, never.epoch).faults, [fault]);
    }

    /// Of a cycle of three periods each has a third of the rounds, and in three periods each pair is once.
    #[test]
    fn a_longer_cycle_is_shared_by_its_periods() {
        let tests = "[[test]]\nname = \"b\"\nhosts = [\"*\"]\nevery = \"3h\"\n[[test]]\nname = \"r\"\nkind = \"request\"\nhosts = [\"h0\", \"h1\"]\ntime = \"1s\"\nevery = \"1h\"\n";
        let of = mesh("", tests);
        assert_eq!(period(&of), Nanos::from_secs(3600));
        let mut pairs = Vec::new();
        for number in 3..6 {
            let plan = planned(&of, number);
            let tests: Vec<(usize, u64)> =
                plan.iter().map(|round| (round.test, round.cycle)).collect();
            assert_eq!(tests, [(0, 1), (1, number)]);
            let (first, second) = (&plan[0], &plan[1]);
            assert_eq!(first.starts, Some(at(number)));
            assert_eq!(second.starts, Some(at(number) + first.length));
            pairs.extend(first.pairs.clone());
        }
        pairs.sort_unstable();
        assert_eq!(pairs, [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]);
    }
}

//! Times of a leg in which nothing arrived, and a silence that goes on.

use crate::prelude::*;
use wire::control::{SILENCE, silence};

/// A shorter time without arrivals is not named: a burst of losses can take as long.
const SHORTEST: Nanos = Nanos::from_secs(2);
/// Of these the longest are named.
const MOST_NAMED: usize = 3;

/// So many retransmissions of one segment without an answer are no burst of losses: nothing passed at all.
const UNANSWERED: u8 = 3;

/// Names the times of a leg in which nothing arrived, as the samples of the receiver show them, and what the sender's show
/// of the path meanwhile.
pub fn warnings(spec: &Spec, leg: &Leg) -> Vec<Warning> {
    let shortest = SHORTEST.max(spec.interval + spec.interval);
    let mut gaps: Vec<(Nanos, Nanos)> = Vec::new();
    let mut last = None;
    let samples = &leg.receiver().samples;
    for (n, sample) in samples.iter().enumerate() {
        let (since, bytes) = *last.get_or_insert((sample.at, sample.bytes));
        let is_last = n + 1 == samples.len();
        if (sample.bytes > bytes || is_last) && sample.at.since(since) >= shortest {
            gaps.push((since, sample.at));
        }
        if sample.bytes > bytes {
            last = Some((sample.at, sample.bytes));
        }
    }
    // Who asks may have nothing to ask; who copies may wait for storage.
    if !matches!(spec.workload, Workload::Bulk(_)) {
        gaps.retain(|gap| unanswered(leg, *gap).0 >= UNANSWERED);
    }
    gaps.sort_by_key(|(from, to)| std::cmp::Reverse(to.since(*from)));
    let more = gaps.len().saturating_sub(MOST_NAMED);
    let end = samples.last().map(|sample| sample.at);
    let warning = |&(from, to): &(Nanos, Nanos)| Warning {
        what: format!(
            "nothing arrived for {}, from {from} to {to} of the leg{}",
            to.since(from),
            if Some(to) == end { ", its end" } else { "" }
        ),
        meaning: match unanswered(leg, (from, to)) {
            (count @ UNANSWERED.., rto) => format!(
                "the path or a host was silent: {count} retransmissions in a row had no answer; the next was due {rto} after the last, so the path may have been back before the data; the means count this time"
            ),
            _ => "the means count this time".to_owned(),
        },
        remedy: "look what happened to the path and at both hosts at that time".to_owned(),
    };
    let mut warnings: Vec<Warning> = gaps.iter().take(MOST_NAMED).map(warning).collect();
    if let Some(last) = warnings.last_mut().filter(|_| more > 0) {
        last.what += &format!(" ({more} shorter ones beside)");
    }
    warnings
}

/// The most retransmissions in a row that a socket of the leg waited for in this time, and then for the next.
fn unanswered(leg: &Leg, (from, to): (Nanos, Nanos)) -> (u8, Nanos) {
    let samples = leg.local.samples.iter().chain(&leg.remote.samples);
    let meanwhile = samples.filter(|sample| (from..=to).contains(&sample.at));
    let sockets = meanwhile.flat_map(|sample| &sample.streams);
    let states = sockets.filter_map(|stream| stream.tcp.as_ref());
    let waits = states.map(|tcp| {
        (
            tcp.retransmits().unwrap_or(0),
            tcp.rto().unwrap_or_default(),
        )
    });
    waits.max().unwrap_or_default()
}

/// A silence of the remote host while a leg goes on.
pub struct Silence {
    since: Instant,
    reported: bool,
}

impl Silence {
    /// The last message of the peer arrived just now.
    pub fn begin() -> Silence {
        Silence {
            since: Instant::now(),
            reported: false,
        }
    }

    /// It has lasted longer than any session without an outage.
    pub fn is_long(&self) -> bool {
        Nanos::from(self.since.elapsed()) >= SILENCE
    }

    /// What to report of it, once, when it has become long.
    pub fn goes_on(&mut self, name: &str, outage: Nanos) -> Option<String> {
        if !self.is_long() || outage == Nanos(0) || std::mem::replace(&mut self.reported, true) {
            return None;
        }
        Some(format!(
            "nothing has come from {name} for {SILENCE}: the leg goes on, and ends after {} of silence (--outage {outage}; Ctrl-C ends it)",
            silence(outage)
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Bytes, Sample};

    #[test]
    fn times_without_arrivals_are_named_from_two_seconds_on() {
        let mut spec = Spec::default();
        let leg = |arrivals: &[(u64, u64)]| {
            let mut leg = model::Leg {
                direction: model::Direction::Up,
                started: Nanos(0),
                local: model::EndRecord::default(),
                remote: model::EndRecord::default(),
                ended: model::Ended::Complete,
            };
            leg.remote.samples = arrivals
                .iter()
                .map(|(ms, bytes)| sample(*ms, *bytes))
                .collect();
            leg
        };
        let named = |spec: &Spec, leg: &Leg| {
            warnings(spec, leg)
                .into_iter()
                .map(|w| w.what)
                .collect::<Vec<_>>()
        };
        assert!(named(&spec, &leg(&[(0, 0), (1000, 5), (2999, 5), (2999, 6)])).is_empty());
        let one = leg(&[(0, 0), (1000, 5), (2000, 5), (3000, 6), (4000, 7)]);
        assert_eq!(
            named(&spec, &one),
            ["nothing arrived for 2.00 s, from 1.00 s to 3.00 s of the leg"]
        );
        // After an outage TCP may not go on before the end of the leg.
        let end = leg(&[(0, 0), (1000, 5), (8000, 5), (9000, 5)]);
        assert_eq!(
            named(&spec, &end),
            ["nothing arrived for 8.00 s, from 1.00 s to 9.00 s of the leg, its end"]
        );
        // Storage may rest; TCP without answers is the path.
        spec.workload = Workload::Copy(model::FileCopy::default());
        assert!(warnings(&spec, &one).is_empty());
        let mut silent = one.clone();
        let tcp = serde_json::json!({"retransmits": 3, "rto_ns": 1_600_000_000_u64});
        let mut waits = sample(2500, 5);
        waits.streams = vec![model::StreamSample {
            tcp: Some(serde_json::from_value(tcp).unwrap()),
            ..model::StreamSample::default()
        }];
        silent.local.samples = vec![waits];
        let warning = &warnings(&spec, &silent)[0];
        let why = "the path or a host was silent: 3 retransmissions in a row had no answer; the next was due 1.60 s after";
        assert!(warning.meaning.starts_with(why), "{warning:?}");
    }

    fn sample(ms: u64, bytes: u64) -> Sample {
        Sample {
            at: Nanos::from_millis(ms),
            bytes: Bytes(bytes),
            ..Sample::default()
        }
    }

    #[test]
    fn the_longest_three_are_named_and_the_others_counted() {
        let mut leg = model::Leg {
            direction: model::Direction::Down,
            started: Nanos(0),
            local: model::EndRecord::default(),
            remote: model::EndRecord::default(),
            ended: model::Ended::Complete,
        };
        let spec = Spec::default();
        let named = |leg: &Leg| {
            warnings(&spec, leg)
                .into_iter()
                .map(|w| w.what)
                .collect::<Vec<_>>()
        };
        // Silences of 2, 3, 4 and 5 s, each of which ends with an arrival.
        let (mut at, mut bytes) = (0, 0);
        leg.local.samples.push(sample(at, bytes));
        for silence in [2000, 5000, 3000, 4000] {
            (at, bytes) = (at + silence, bytes + 1);
            leg.local.samples.push(sample(at, bytes));
            (at, bytes) = (at + 100, bytes + 1);
            leg.local.samples.push(sample(at, bytes));
        }
        let found = named(&leg);
        assert_eq!(found.len(), 3);
        assert!(found[0].contains("for 5.00 s"), "{found:?}");
        assert!(found[1].contains("for 4.00 s"), "{found:?}");
        assert!(found[2].contains("for 3.00 s"), "{found:?}");
        assert!(found[2].ends_with(" (1 shorter ones beside)"), "{found:?}");
        leg.local.samples.truncate(7);
        assert!(
            !named(&leg)[2].contains("beside"),
            "three are all there are"
        );
        // Two intervals at least.
        let rare = Spec {
            interval: Nanos::from_millis(2001),
            ..Spec::default()
        };
        leg.local.samples = vec![sample(0, 0), sample(4001, 1), sample(8003, 2)];
        let found = warnings(&rare, &leg);
        assert_eq!(found.len(), 1);
        assert!(found[0].what.contains("for 4.00 s"));
        assert_eq!(found[0].meaning, "the means count this time");
    }

    #[test]
    fn retransmissions_within_the_silence_count_at_either_end() {
        let tcp = |ms, retransmits: u8| {
            let tcp = serde_json::json!({"retransmits": retransmits, "rto_ns": 5});
            let mut of = sample(ms, 0);
            of.streams = vec![model::StreamSample {
                tcp: Some(serde_json::from_value(tcp).unwrap()),
                ..model::StreamSample::default()
            }];
            of
        };
        let leg = model::Leg {
            direction: model::Direction::Up,
            started: Nanos(0),
            local: model::EndRecord {
                samples: vec![tcp(999, 9), tcp(1000, 2), tcp(3001, 9)],
                ..model::EndRecord::default()
            },
            remote: model::EndRecord {
                samples: vec![tcp(3000, 4)],
                ..model::EndRecord::default()
            },
            ended: model::Ended::Complete,
        };
        let within = (Nanos::from_secs(1), Nanos::from_secs(3));
        assert_eq!(unanswered(&leg, within), (4, Nanos(5)));
        assert_eq!(unanswered(&leg, (Nanos(1), Nanos(2))), (0, Nanos(0)));
    }

    #[test]
    fn a_long_silence_is_said_once_where_an_outage_is_allowed() {
        let outage = Nanos::from_secs(60);
        let since = |seconds| Silence {
            since: Instant::now()
                .checked_sub(Duration::from_secs(seconds))
                .unwrap(),
            reported: false,
        };
        assert!(!Silence::begin().is_long() && !since(5).is_long());
        assert!(since(7).is_long());
        let mut silence = since(7);
        assert_eq!(silence.goes_on("db2", Nanos(0)), None);
        let said = silence.goes_on("db2", outage).unwrap();
        assert!(said.contains("from db2 for 6.00 s"), "{said}");
        assert!(said.contains("ends after 126 s of silence"), "{said}");
        assert_eq!(silence.goes_on("db2", outage), None);
        assert_eq!(since(5).goes_on("db2", outage), None);
    }
}

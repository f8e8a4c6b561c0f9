//! Whether segments are lost one by one, as chance does it, or several in the same round trip, as queues and
//! buckets do that overflow. For random, burst loss and policer; no limit of its own.

use super::Key;
use crate::facts::Facts;
use model::finding::Evidence;

/// Fewer events show no pattern.
const FEWEST: usize = 8;
/// Segments lost in an event, by what chance would give: up to the first one by one, from the second
/// together. Seen in labs: 1.0 to 1.2 of random loss; 1.6 and more of queues and buckets.
const ONE_BY_ONE: f64 = 1.3;
const TOGETHER: f64 = 1.45;
/// Of fewer events each must have been of so many segments.
const MANY: f64 = 4.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LossRuns {
    OneByOne,
    Together,
    Unknown,
}

pub(super) fn pattern(facts: &Facts) -> LossRuns {
    match measure(facts) {
        Some((ratio, events)) if events >= FEWEST && ratio <= ONE_BY_ONE => LossRuns::OneByOne,
        Some((ratio, events)) if events >= FEWEST && ratio >= TOGETHER || ratio >= MANY => {
            LossRuns::Together
        }
        _ => LossRuns::Unknown,
    }
}

/// Segments lost in an event by the number that chance would give, and the events. The largest is left out: the end of slow
/// start.
fn measure(facts: &Facts) -> Option<(f64, usize)> {
    if facts.is_coarse() {
        return None;
    }
    let mut events = facts.loss_events();
    events.sort_unstable();
    events.pop()?;
    let n = events.len();
    let lost: u64 = events.iter().map(|(count, _)| count).sum();
    let flight: u64 = events.iter().map(|(_, flight)| flight).sum();
    if n == 0 {
        return None;
    }
    // Of a binomial number of losses in a window, given one (Poisson's limit).
    let window = flight as f64 / n as f64 / f64::from(facts.mss.max(1));
    let expected = window * facts.loss_share();
    let by_chance = expected / (1.0 - (-expected).exp()).max(1e-9);
    Some((lost as f64 / n as f64 / by_chance.max(1.0), n))
}

/// The losses come in runs: that contradicts random loss.
pub(crate) fn clustered(facts: &Facts) -> Option<Evidence> {
    let (ratio, _) = measure(facts)?;
    let run = facts.evidence(Key::LossRunOverRandom, ratio);
    (pattern(facts) == LossRuns::Together).then(|| run.at_least(TOGETHER))
}

pub(super) fn evidence(facts: &Facts) -> Vec<Evidence> {
    let Some((ratio, events)) = measure(facts) else {
        return Vec::new();
    };
    let run = facts.evidence(Key::LossRunOverRandom, ratio);
    let run = match pattern(facts) {
        LossRuns::Unknown => run,
        LossRuns::OneByOne | LossRuns::Together => run.either(ONE_BY_ONE, TOGETHER),
    };
    vec![run, facts.evidence(Key::LossEvents, events)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{LostSegment, SenderInterval};
    use model::Nanos;
    use model::finding::Source;

    #[test]
    fn losses_one_by_one_and_together_differ_in_every_source() {
        let of = |source, many: u64| {
            let mut facts = Facts::new(source);
            (facts.mss, facts.segments) = (1000, 2000);
            facts.retransmitted = 20 * many;
            facts.min_rtt = Some(Nanos::from_millis(20));
            for n in 0..20 {
                let (from, to) = (Nanos::from_millis(n * 10), Nanos::from_millis(n * 10 + 10));
                facts.read(SenderInterval {
                    from,
                    to,
                    ..SenderInterval::default()
                });
                facts.losses.extend((0..many).map(|k| LostSegment {
                    at: Nanos::from_millis(n * 100 + k),
                    srtt: Nanos::from_millis(20),
                    flight: 10_000,
                    place: None,
                    bytes: 1448,
                    ..LostSegment::default()
                }));
            }
            pattern(&facts)
        };
        for source in [Source::Samples, Source::Trace, Source::TraceOfBothEnds] {
            assert_eq!(of(source, 1), LossRuns::OneByOne);
            assert_eq!(of(source, 5), LossRuns::Together);
        }
    }
}

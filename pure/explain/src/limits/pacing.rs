//! The socket spreads its segments out: by a rate that somebody set, or by one that its congestion
//! control believes in (then the cause is behind it).

use super::{Candidate, Key, send_buffer};
use crate::facts::{FEWEST_LOST, Facts, Rhythm, bit_rate};
use crate::sender_state::SenderState;
use model::BitRate;
use model::finding::{Confidence, Evidence};
use model::stats::percentile;

pub(crate) fn owns(state: &SenderState) -> bool {
    state.paced
}

pub(crate) fn candidate(facts: &Facts) -> Candidate {
    let mut evidence = vec![facts.evidence(Key::Goodput, bit_rate(facts.rate()))];
    if let Some(name) = &facts.congestion {
        evidence.push(facts.evidence(Key::CongestionControl, name.as_str()));
    }
    Candidate::new(Confidence::Possible, evidence)
}

/// Goodput by that of its fastest tenth, of data that come evenly.
const EVEN: f64 = 0.95;

/// Bursts of new data that no acknowledgement let go, of all of them: up to 0.9 seen of BBR, less of all that a window holds.
const BY_ITSELF: f64 = 0.9;
/// Fewer bursts show no clock.
const FEWEST: u32 = 50;

/// Time of pauses after short segments, of all pauses, up to which they are not between writes: 0.05 and less seen of paced
/// senders, 0.15 and more of a program that writes 128 KiB at a time.
const ENDS: f64 = 0.07;

/// Spread of the time from burst to burst: 0.02 and less seen of paced senders, 0.2 and more of those that wait.
const EVEN_BURSTS: f64 = 0.03;

/// Of a capture at the sender: a clock lets segments go. Who waits for a window, or for room in a buffer, sends when an
/// acknowledgement arrives.
pub(super) fn self_clocked(facts: &Facts) -> Option<Evidence> {
    let clock = facts.send_clock?;
    if let Some(spread) = clock.spread.filter(|spread| *spread <= EVEN_BURSTS) {
        let even = facts.evidence(Key::BurstSpread, spread);
        return Some(even.at_most(EVEN_BURSTS));
    }
    let share = f64::from(clock.by_itself) / f64::from(clock.bursts());
    (clock.bursts() >= FEWEST && share >= BY_ITSELF).then(|| {
        facts
            .evidence(Key::SelfClockedSends, share)
            .at_least(BY_ITSELF)
    })
}

/// The same, always at one rate and without losses: BBR, which paces too, looks for more in one of eight round trips.
pub(super) fn even(facts: &Facts) -> Option<Evidence> {
    let harmless = facts.retransmitted < FEWEST_LOST;
    self_clocked(facts).filter(|_| harmless && facts.is_flat())
}

/// From packets alone: the same amount in flight all the time, and sends spread out over the round trip by a clock of
/// their own. An application that writes little at a time, at a rate of its own, looks the same.
pub(crate) fn fits_spread(facts: &Facts) -> Option<Candidate> {
    let goodput = facts.evidence(Key::Goodput, bit_rate(facts.rate()));
    if let Some(clock) = even(facts).or_else(|| facts.arrives_evenly()) {
        return Some(advised(vec![goodput, clock]));
    }
    let steady = send_buffer::steady(facts)?;
    let spread = match facts.rhythm {
        Some(rhythm) => rhythm.is_spread().then(|| {
            let paused = facts.evidence(Key::PausedRtts, rhythm.paused);
            paused.at_most(Rhythm::SPREAD)
        }),
        None if !facts.is_seen_from_afar() => None,
        None => {
            let even = facts.goodput_by_peak().filter(|even| *even >= EVEN);
            even.map(|even| facts.evidence(Key::GoodputOverPeak, even).at_least(EVEN))
        }
    };
    Some(advised(vec![steady, spread?, goodput]))
}

/// The same where each burst is acknowledged before the next one leaves: they come evenly, or none of them has an end. A program
/// that writes so little at a time, as evenly, or just full segments, looks the same.
pub(crate) fn fits_clocked(facts: &Facts) -> Option<Candidate> {
    let even = facts.arrives_evenly().or_else(|| endless(facts));
    let even = even.filter(|_| !facts.is_exchange)?;
    let goodput = facts.evidence(Key::Goodput, bit_rate(facts.rate()));
    Some(advised(vec![goodput, even]))
}

/// What a program writes ends with a segment that is not full, unless its size is a multiple of theirs: before its pauses, more had
/// been written.
fn endless(facts: &Facts) -> Option<Evidence> {
    let pauses = facts.pauses.filter(|p| p.count >= FEWEST)?;
    let share = pauses.after_short();
    let short = facts.evidence(Key::PausesAfterShortSegments, share);
    (share <= ENDS).then(|| short.at_most(ENDS))
}

/// Pauses follow the ends of what was written.
pub(crate) fn has_ends(facts: &Facts) -> bool {
    facts
        .pauses
        .is_some_and(|pauses| pauses.after_short() > ENDS)
}

fn advised(evidence: Vec<Evidence>) -> Candidate {
    Candidate::new(Confidence::Possible, evidence)
        .ranked(0)
        .advise("look whether the sender paces: pacing_rate in 'ss -ti', SO_MAX_PACING_RATE, a queueing discipline (fq maxrate)")
}

/// Of a pacing rate, goodput at the least if it is reached.
const REACHED: f64 = 0.85;

/// Of a pacing rate, goodput at the least if it is all that holds: the rest is headers.
const KEPT: f64 = 0.93;

/// Somebody set a rate, and the sender keeps to it.
pub(super) fn is_kept(facts: &Facts) -> bool {
    let rate = bit_rate(facts.rate()).0 as f64;
    let kept = |asked: BitRate| rate >= asked.0.max(1) as f64 * KEPT;
    facts.is_flat() && facts.pacing.is_some_and(kept)
}

/// Somebody set a rate, and it is reached. Of the rate on the wire, headers are a few per cent. Who reaches it now and then is
/// held back by something else as well.
pub(crate) fn fits(facts: &Facts) -> Option<Candidate> {
    let asked = facts.pacing?;
    let rate = bit_rate(facts.rate());
    let least = asked.0.max(1) as f64 * REACHED;
    let lower_quartile = percentile(&mut facts.rates(), 0.25).map(bit_rate);
    let confidence = match lower_quartile.is_none_or(|rate| rate.0 as f64 >= least) {
        true => Confidence::Certain,
        false => Confidence::Possible,
    };
    (rate.0 as f64 >= least).then(|| {
        Candidate::new(
            confidence,
            vec![
                facts.evidence(Key::PacingRate, asked),
                facts.evidence(Key::Goodput, rate).at_least(least),
            ],
        )
        .advise("set a higher pacing rate, or none")
    })
}

#[cfg(test)]
mod tests {
    use super::super::{bottleneck_rate, send_buffer};
    use super::*;
    use crate::facts::{SendClock, SenderInterval};
    use model::Nanos;
    use model::finding::Source;

    /// Two seconds of four segments in flight on a path of 20 ms, of whose bursts so many followed no acknowledgement.
    fn bursts(by_itself: u32) -> Facts {
        let mut facts = Facts::new(Source::CaptureAtSender);
        (facts.mss, facts.min_rtt) = (1448, Some(Nanos::from_millis(20)));
        (facts.segments, facts.span) = (400, Nanos::from_secs(2));
        facts.send_clock = Some(SendClock {
            by_ack: 200 - by_itself,
            by_itself,
            ..SendClock::default()
        });
        for n in 0..100 {
            facts.read(SenderInterval {
                from: Nanos::from_millis(n * 20),
                to: Nanos::from_millis(n * 20 + 20),
                srtt: Nanos::from_millis(22),
                cwnd: 5792,
                flight: 5792,
                delivered: 5792,
                passed: 5792,
                ..SenderInterval::default()
            });
        }
        facts
    }

    #[test]
    fn segments_that_wait_for_no_acknowledgement_are_paced_and_not_held_by_a_buffer() {
        let named = |facts: &Facts| {
            [
                fits_spread(facts).is_some(),
                send_buffer::fits(facts).is_some(),
            ]
        };
        assert_eq!(named(&bursts(200)), [true, false]);
        assert_eq!(named(&bursts(20)), [false, true]);
        // A round trip of a slow line is longer than that of a SYN.
        let full = |by_itself| {
            let mut facts = bursts(by_itself);
            for reading in &mut facts.readings {
                reading.srtt = Nanos::from_millis(40);
                (reading.flight, reading.cwnd) = (11_584, 11_584);
            }
            bottleneck_rate::fits(&facts).is_some()
        };
        assert_eq!([full(20), full(200)], [true, false]);
    }

    /// At the receiver, pairs that come evenly on a link of 4 MB/s: what is named, where the fastest packet of each round trip
    /// always waits so long, and the spread from one pair to the next is so much.
    fn arriving(late: Nanos, spread: f64) -> [bool; 2] {
        let mut facts = Facts::new(Source::CaptureAtReceiver);
        (facts.mss, facts.min_rtt) = (1448, Some(Nanos::from_millis(80)));
        (facts.segments, facts.span) = (600, Nanos::from_secs(8));
        (facts.capacity, facts.burst_spread) = (Some(4e6), Some(spread));
        for n in 0..100 {
            facts.read(SenderInterval {
                from: Nanos::from_millis(n * 80),
                to: Nanos::from_millis(n * 80 + 80),
                srtt: Nanos::from_millis(82),
                flight: 8688,
                delivered: 8688,
                passed: 8688,
                late,
                ..SenderInterval::default()
            });
        }
        let full = bottleneck_rate::fits(&facts).is_some();
        [full, fits_spread(&facts).is_some()]
    }

    #[test]
    fn pairs_that_come_evenly_are_paced_unless_each_waits_in_a_queue() {
        assert_eq!(arriving(Nanos(0), 0.05), [false, true]);
        assert_eq!(arriving(Nanos(0), 0.5), [false, false]);
        // Two segments take 0.7 ms: a queue is longer than that, and than what timestamps are uncertain by.
        assert!(!arriving(Nanos(999_999), 0.05)[0]);
        assert!(arriving(Nanos::from_millis(1), 0.05)[0]);
        assert!(arriving(Nanos::from_millis(1), 0.5)[0]);
    }

    /// Half a minute at a pacing rate of 8 Mbit/s that is not reached in the first seconds.
    fn slow_at_first(seconds: u64) -> Option<Confidence> {
        let mut facts = Facts::new(Source::Samples);
        (facts.min_rtt, facts.pacing) = (Some(Nanos::from_millis(20)), Some(BitRate(8_000_000)));
        for n in 0..30 {
            facts.read(SenderInterval {
                from: Nanos::from_secs(n),
                to: Nanos::from_secs(n + 1),
                delivered: if n < seconds { 500_000 } else { 960_000 },
                ..SenderInterval::default()
            });
        }
        fits(&facts).map(|candidate| candidate.confidence)
    }

    #[test]
    fn a_pacing_rate_that_is_reached_now_and_then_is_not_certain_to_be_the_limit() {
        assert_eq!(slow_at_first(3), Some(Confidence::Certain));
        assert_eq!(slow_at_first(12), Some(Confidence::Possible));
        assert_eq!(slow_at_first(25), None);
    }
}

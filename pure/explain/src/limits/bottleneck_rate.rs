//! The slowest link is full: it has a standing queue, the rate is flat, and the window would carry
//! more. Not a fault.
//!
//! Near miss: a flat rate without a queue (a full receive window, requested pacing).

use super::{Candidate, Key, ack_path, cpu, pacing, policer};
use crate::facts::{ALLOWS_MORE, FEWEST_LOST, FLAT, Facts, HELD_FLIGHT, NO_MORE, QUEUE, bit_rate};
use model::finding::{Confidence, Evidence};
use model::stats::median;

/// The window would carry so much more.
const TO_SPARE: f64 = 1.25;
/// Of the device's speed, payload takes so much at the least (1448 in 1538 is 94 %).
const LINE_RATE: f64 = 0.90;
/// More loss than this, without a queue, is no mere overflow.
const MUCH_LOSS: f64 = 0.05;
/// More than BBR makes of itself (it takes 20 % for a full pipe, `bbr_lt_loss_thresh` in `net/ipv4/tcp_bbr.c`).
const MOST_LOSS: f64 = 0.20;
/// So many timeouts are no accident of a queue that overflowed.
const MANY_TIMEOUTS: u64 = 3;
/// Payload of a full segment on most paths: a program that writes little sends smaller ones.
const SEGMENT: u32 = 1448;
/// What BBR offers in one of eight round trips, by its estimate (`bbr_pacing_gain` in `net/ipv4/tcp_bbr.c`).
const BBR_PROBE_GAIN: f64 = 1.25;
/// Goodput by that of its fastest tenth, from which it was never faster: 0.92 and more seen of full lines, up to 0.88 of others.
const NEVER_FASTER: f64 = 0.92;
/// Segments that stand in a queue at the least: fewer may be a burst that passes, or a pause of the sender.
const STANDING: f64 = 2.0;
/// Segments that BBR keeps in flight however slow the path is (`bbr_cwnd_min_target` in `net/ipv4/tcp_bbr.c`).
const BBR_LEAST_FLIGHT: f64 = 4.0;
/// Goodput by the rate of the queue that lost, from which it could be little more.
const WELL_USED: f64 = 0.9;
/// Part of the time that buffers or programs take, from which an even rate, or the one that BBR measured, may be theirs.
const HELD_BY_HOSTS: f64 = 0.2;
/// Behind all that holds the sender itself.
const LAST: u8 = 3;
/// Segments in flight, median, below which the round trip is that of delayed acknowledgements.
const FEWEST_OUT: f64 = 2.0;

pub(crate) fn fits(facts: &Facts) -> Option<Candidate> {
    // A path that carried less would not let that rate through.
    if pacing::is_kept(facts) || pacing::even(facts).is_some() || facts.leaves_link_idle() {
        return None;
    }
    // It was full until a bucket was spent.
    if policer::SpentBucket::of(facts).is_some() {
        return None;
    }
    spaced(facts)
        .or_else(|| full(facts))
        .or_else(|| waits(facts))
        .or_else(|| never_faster(facts))
        .or_else(|| {
            overflows(
                facts,
                vec![facts.evidence(Key::Goodput, bit_rate(facts.rate()))],
            )
        })
        .or_else(|| well_used(facts))
        .or_else(|| queues_unseen(facts))
        .or_else(|| probed(facts))
}

/// Packets arrive as close to each other as the slowest link lets them, though more was offered.
fn spaced(facts: &Facts) -> Option<Candidate> {
    // At its sender, BBR takes the rate of a bucket, and each acknowledgement comes at that.
    if policer::is_policed(facts) {
        return None;
    }
    let evidence = vec![
        facts.evidence(Key::Goodput, bit_rate(facts.rate())),
        facts.evidence(Key::Capacity, bit_rate(facts.capacity?)),
        facts.fills_link()?,
    ];
    Some(line_is_full(evidence, 0))
}

/// At the receiver, even the fastest packet of each round trip waits before the slowest link, however short that is by the
/// round trip.
fn waits(facts: &Facts) -> Option<Candidate> {
    let (late, least) = facts.standing_queue()?;
    let evidence = vec![
        facts.evidence(Key::Goodput, bit_rate(facts.rate())),
        facts
            .evidence(Key::StandingQueue, late)
            .at_least(least.0 as f64),
    ];
    Some(line_is_full(evidence, 0))
}

/// Losses never slowed it down, and it was never faster: losses with another cause would slow it down, or leave faster
/// phases. A policer does the same; a capture at the sender distinguishes it.
fn never_faster(facts: &Facts) -> Option<Candidate> {
    let ratio = facts.goodput_by_peak()?;
    // Who does not yield to losses makes many in a short queue; elsewhere than at the sender that is not known of it.
    let most = if facts.is_seen_from_afar() {
        MOST_LOSS
    } else {
        MUCH_LOSS
    };
    let rated = facts.retransmitted >= FEWEST_LOST && facts.loss_share() <= most;
    let plain = facts.is_seen_from_afar() || policer::fits(facts).is_none();
    (plain && rated && ratio >= NEVER_FASTER && !ack_path::is_seen(facts)).then(|| {
        let evidence = vec![
            facts.evidence(Key::Goodput, bit_rate(facts.rate())),
            facts
                .evidence(Key::GoodputOverPeak, ratio)
                .at_least(NEVER_FASTER),
            facts.retransmissions(),
        ];
        line_is_full(evidence, 0)
    })
}

/// Losses that came with a queue are its overflow: the sender yields more than it would have to.
fn overflows(facts: &Facts, mut evidence: Vec<Evidence>) -> Option<Candidate> {
    let shown = facts.loss_hurts() && facts.queue_at_loss(QUEUE) && !ack_path::is_seen(facts);
    let at_loss = facts.inflation_at_loss().filter(|_| shown)?;
    evidence.push(
        facts
            .evidence(Key::RttOverMinRttAtLosses, at_loss)
            .at_least(facts.queue_from(QUEUE)),
    );
    Some(Candidate::new(Confidence::Possible, evidence).advise(YIELDS))
}

/// From afar a short queue is not seen at the losses. But where they allow twice of what flowed, round trips were longer than
/// the shortest.
fn queues_unseen(facts: &Facts) -> Option<Candidate> {
    let allowed = facts.loss_allows_more()?;
    let least = bit_rate(ALLOWS_MORE * facts.rate()).0 as f64;
    let evidence = vec![
        facts.evidence(Key::Goodput, bit_rate(facts.rate())),
        facts
            .evidence(Key::LossLimitedRate, bit_rate(allowed))
            .at_least(least),
    ];
    Some(Candidate::new(Confidence::Possible, evidence).advise(YIELDS))
}

/// From afar, the same in flight all the time and never faster: BBR keeps a full line so, as well as a sender that is held
/// back itself.
pub(crate) fn fits_from_afar(facts: &Facts) -> Option<Candidate> {
    let ratio = facts.goodput_by_peak()?;
    let spread = facts.held_flight().filter(|_| facts.is_seen_from_afar())?;
    // A shaper before the slowest link may still be full, if it lets bursts pass.
    let idle = facts.leaves_link_idle() || facts.arrives_evenly().is_some();
    let rank = if idle { LAST } else { 0 };
    (ratio >= NEVER_FASTER).then(|| {
        let evidence = vec![
            facts.evidence(Key::Goodput, bit_rate(facts.rate())),
            facts
                .evidence(Key::GoodputOverPeak, ratio)
                .at_least(NEVER_FASTER),
            facts
                .evidence(Key::InFlightSpread, spread)
                .at_most(HELD_FLIGHT),
        ];
        line_is_full(evidence, rank)
    })
}

/// The queue that lost segments drains at hardly more than the goodput: a deeper one could not give more than that.
fn well_used(facts: &Facts) -> Option<Candidate> {
    let queue = facts.bucket.as_ref().filter(|b| b.is_seen());
    let used = facts.rate() / queue.filter(|_| !policer::is_policed(facts))?.rate;
    (used >= WELL_USED && !ack_path::is_seen(facts)).then(|| {
        let evidence = vec![
            facts.evidence(Key::Goodput, bit_rate(facts.rate())),
            facts
                .evidence(Key::GoodputOverBucketRate, used)
                .at_least(WELL_USED),
        ];
        line_is_full(evidence, 0)
    })
}

/// BBR probes for a quarter more in one of eight round trips and paces at the rate that it measured: where no pacing rate,
/// window or processor limits it, that is what the path carries.
fn probed(facts: &Facts) -> Option<Candidate> {
    let free = facts.is_bbr() && facts.outlasts_startup() && facts.pacing.is_none();
    let spare = facts.window_to_spare().filter(|_| free)?;
    let harmless = facts.loss_share() <= MUCH_LOSS && !ack_path::is_seen(facts);
    let idle = cpu::fits(facts).is_none();
    (harmless && idle && spare >= TO_SPARE).then(|| {
        let evidence = vec![
            facts.evidence(Key::Goodput, bit_rate(facts.rate())),
            window_to_spare(facts, spare),
            facts.evidence(Key::BbrProbeGain, BBR_PROBE_GAIN),
        ];
        line_is_full(evidence, 2)
    })
}

/// A full line is possible, and comes at this place.
fn line_is_full(evidence: Vec<Evidence>, rank: u8) -> Candidate {
    Candidate::new(Confidence::Possible, evidence)
        .ranked(rank)
        .advise(LINE_IS_FULL)
}

fn full(facts: &Facts) -> Option<Candidate> {
    let rate = bit_rate(facts.rate());
    let Some(spread) = facts.unsteadiness() else {
        return few_readings(facts);
    };
    let spread = facts.evidence(Key::GoodputSpread, spread).if_at_most(FLAT);
    let mut evidence = vec![facts.evidence(Key::Goodput, rate), spread];
    if let Some(link) = facts.link
        && rate.0 as f64 >= link.0 as f64 * LINE_RATE
    {
        evidence[0] = facts
            .evidence(Key::Goodput, rate)
            .at_least(link.0 as f64 * LINE_RATE);
        evidence.push(facts.evidence(Key::DeviceSpeed, link));
        return Some(Candidate::new(Confidence::Certain, evidence).advise(LINE_IS_FULL));
    }
    // A full line is never idle.
    if facts.rhythm.is_some_and(|r| r.is_idling()) {
        return None;
    }
    if ack_path::is_seen(facts) {
        return None;
    }
    let overflowed = facts.queue_at_loss(QUEUE);
    if facts.loss_share() > MUCH_LOSS && !overflowed {
        return None;
    }
    let inflation = facts.inflation()?;
    let queued = facts.is_queue(inflation, QUEUE);
    let out = median(facts.steady().iter().map(|r| r.flight as f64))?;
    if out < FEWEST_OUT * f64::from(facts.mss.max(SEGMENT)) {
        return None;
    }
    if !facts.is_flat() && facts.loss_hurts() && overflowed {
        return overflows(facts, evidence);
    }
    evidence.push(standing_queue(facts, inflation));
    let spare = facts.window_to_spare().unwrap_or(0.0);
    evidence.push(window_to_spare(facts, spare));
    if !facts.is_flat() {
        // A standing queue while the rate varies: the rate of the path varies.
        return (queued && spare >= TO_SPARE)
            .then(|| Candidate::new(Confidence::Possible, evidence).advise(RATE_MOVES));
    }
    if queued && spare >= TO_SPARE {
        // Who waits for timers again and again does not keep the line full, nor who loses so much.
        let lossy = facts.timeouts >= MANY_TIMEOUTS || facts.loss_share() > MUCH_LOSS;
        let standing = facts.standing()?.as_secs_f64() * facts.rate() / f64::from(facts.mss.max(1));
        // Packets do not show whether more was written, and each of many writes makes a queue of its own.
        let unasked =
            facts.is_capture() && !(facts.queued_goodput().is_some() && facts.has_long_queue());
        // A short queue may be that of each burst that a buffer or a program lets go.
        let by_hosts = facts.held_by_hosts() >= HELD_BY_HOSTS && !facts.has_long_queue();
        let doubt = lossy
            || unasked
            || by_hosts
            || facts.shares_link()
            || standing < STANDING
            || facts.is_bbr() && standing < BBR_LEAST_FLIGHT
            || !facts.has_forward_queue();
        let confidence = match doubt {
            false => Confidence::Certain,
            true => Confidence::Possible,
        };
        return Some(Candidate::new(confidence, evidence).advise(LINE_IS_FULL));
    }
    // Packets do not show BBR, but they show that the sender once probed for more.
    if facts.is_capture()
        && let Some(ratio) = facts.queued_goodput()
    {
        evidence.push(
            facts
                .evidence(Key::QueuedGoodputOverGoodput, ratio)
                .at_most(NO_MORE),
        );
        // Who is held by a buffer of its own makes a short queue with each of its bursts.
        // Elsewhere than at the sender its pauses are not seen, and a burst after each makes a queue, too.
        let paused = facts.rhythm.is_none();
        let open = facts.loss_share() > MUCH_LOSS
            || facts.held_flight().is_some()
            || pacing::self_clocked(facts).is_some()
            || !facts.has_long_queue()
            || paused
            || !facts.has_forward_queue();
        let confidence = match open {
            true => Confidence::Possible,
            false => Confidence::Likely,
        };
        return Some(Candidate::new(confidence, evidence).advise(LINE_IS_FULL));
    }
    // BBR empties the queue on purpose; it probed for a quarter more and did not get it.
    (facts.is_bbr() && spare >= TO_SPARE && facts.pacing.is_none()).then(|| {
        evidence.push(facts.evidence(Key::BbrProbeGain, BBR_PROBE_GAIN));
        let shown = facts.has_forward_queue() && facts.loss_share() <= MUCH_LOSS;
        let confidence = match shown && facts.held_by_hosts() < HELD_BY_HOSTS {
            true => Confidence::Likely,
            false => Confidence::Possible,
        };
        Candidate::new(confidence, evidence).advise(LINE_IS_FULL)
    })
}

/// A short run with few samples: too few for a flat rate, but there was a standing queue, and the window would carry more.
fn few_readings(facts: &Facts) -> Option<Candidate> {
    let (inflation, spare) = (facts.inflation()?, facts.window_to_spare()?);
    let full = facts.is_queue(inflation, QUEUE) && spare >= TO_SPARE && !facts.loss_hurts();
    (facts.is_sampled() && full).then(|| {
        let evidence = vec![
            facts.evidence(Key::Goodput, bit_rate(facts.rate())),
            standing_queue(facts, inflation),
            window_to_spare(facts, spare),
        ];
        Candidate::new(Confidence::Possible, evidence).advise(LINE_IS_FULL)
    })
}

/// Evidence of a standing queue.
fn standing_queue(facts: &Facts, inflation: f64) -> Evidence {
    let evidence = facts.evidence(Key::RttOverMinRtt, inflation);
    evidence.if_at_least(facts.queue_from(QUEUE))
}

/// Judged where the window has room.
fn window_to_spare(facts: &Facts, spare: f64) -> Evidence {
    facts
        .evidence(Key::CwndOverBdp, spare)
        .if_at_least(TO_SPARE)
}

const YIELDS: &str =
    "a queue of a whole round trip at the slow link, or a congestion control that yields less";

const RATE_MOVES: &str =
    "host settings are not the bottleneck: the rate of the link varies. Look for cross traffic";

const LINE_IS_FULL: &str =
    "host settings are not the bottleneck: the link is saturated. A faster link would help";

#[cfg(test)]
mod tests {
    use super::super::{burst_loss, random_loss};
    use super::*;
    use crate::facts::{LostSegment, SenderInterval};
    use model::finding::Source;
    use model::{Bytes, Nanos};

    /// Round trips of 20 ms with 100 segments each, of which one in so many carries fewer, elsewhere than at the sender.
    fn seen(source: Source, fewer_in: u64, retransmitted: u64) -> Option<Confidence> {
        let mut facts = Facts::new(source);
        (facts.mss, facts.min_rtt) = (1000, Some(Nanos::from_millis(20)));
        facts.span = Nanos::from_secs(6);
        (facts.segments, facts.retransmitted) = (30_000, retransmitted);
        for n in 0..300 {
            let passed = if n % fewer_in == 0 { 30_000 } else { 100_000 };
            facts.read(SenderInterval {
                from: Nanos::from_millis(n * 20),
                to: Nanos::from_millis(n * 20 + 20),
                delivered: passed,
                passed,
                ..SenderInterval::default()
            });
        }
        fits(&facts).map(|candidate| candidate.confidence)
    }

    #[test]
    fn from_afar_losses_that_allow_twice_the_goodput_show_longer_round_trips() {
        let of = |source, retransmitted| {
            let mut facts = Facts::new(source);
            (facts.mss, facts.min_rtt) = (1000, Some(Nanos::from_millis(2)));
            (facts.segments, facts.retransmitted) = (10_000, retransmitted);
            (facts.span, facts.bytes) = (Nanos::from_secs(4), Bytes(10_000_000));
            // A third of the time at a third of the rate: nothing else shows a full line.
            for n in 0..400 {
                let passed = if n % 30 < 10 { 9_000 } else { 30_000 };
                facts.read(SenderInterval {
                    from: Nanos::from_millis(n * 10),
                    to: Nanos::from_millis(n * 10 + 10),
                    srtt: Nanos::from_millis(2),
                    delivered: passed,
                    passed,
                    ..SenderInterval::default()
                });
            }
            facts.losses = (0..retransmitted)
                .map(|n| LostSegment {
                    at: Nanos(n * 4_000_000_000 / retransmitted),
                    srtt: Nanos::from_millis(2),
                    flight: 20_000,
                    ..LostSegment::default()
                })
                .collect();
            [
                fits(&facts).is_some(),
                random_loss::fits(&facts).is_some(),
                burst_loss::fits(&facts).is_some(),
            ]
        };
        // 1.22 / sqrt(1 %) segments in 2 ms are 6.1 MB/s, 1.22 / sqrt(10 %) 1.9 MB/s, and 2.5 MB/s arrive.
        assert_eq!(of(Source::CaptureAtReceiver, 100), [true, false, false]);
        assert_eq!(of(Source::CaptureAtReceiver, 1000), [false, true, true]);
        assert_eq!(of(Source::CaptureAtSender, 100), [false, true, true]);
    }

    #[test]
    fn from_afar_the_same_in_flight_and_never_faster_may_be_a_full_line() {
        let of = |source, flight: fn(u64) -> u64| {
            let mut facts = Facts::new(source);
            (facts.mss, facts.min_rtt) = (1000, Some(Nanos::from_millis(20)));
            (facts.segments, facts.span) = (30_000, Nanos::from_secs(6));
            for n in 0..300 {
                facts.read(SenderInterval {
                    from: Nanos::from_millis(n * 20),
                    to: Nanos::from_millis(n * 20 + 20),
                    srtt: Nanos::from_millis(20),
                    flight: flight(n),
                    delivered: 100_000,
                    passed: 100_000,
                    ..SenderInterval::default()
                });
            }
            fits_from_afar(&facts).map(|candidate| candidate.confidence)
        };
        let possible = Some(Confidence::Possible);
        assert_eq!(of(Source::CaptureAtReceiver, |_| 100_000), possible);
        assert_eq!(of(Source::CaptureAtSender, |_| 100_000), None);
        assert_eq!(of(Source::CaptureAtReceiver, |n| n % 10 * 20_000), None);
    }

    /// At the receiver, six seconds of 20 segments in each round trip of 20 ms, on a slowest link that carries so many times
    /// that, with so many losses, each of several segments.
    fn spaced_by(times: f64, retransmitted: u64) -> Facts {
        let mut facts = Facts::new(Source::CaptureAtReceiver);
        (facts.mss, facts.min_rtt) = (1000, Some(Nanos::from_millis(20)));
        (facts.segments, facts.span) = (6000, Nanos::from_secs(6));
        (facts.retransmitted, facts.capacity) = (retransmitted, Some(1e6 * times));
        for n in 0..300 {
            facts.read(SenderInterval {
                from: Nanos::from_millis(n * 20),
                to: Nanos::from_millis(n * 20 + 20),
                srtt: Nanos::from_millis(20),
                flight: 20_000,
                delivered: 20_000,
                passed: 20_000,
                ..SenderInterval::default()
            });
        }
        facts.losses = (0..retransmitted)
            .map(|n| LostSegment {
                at: Nanos::from_millis(n / 4 * 100),
                srtt: Nanos::from_millis(20),
                ..LostSegment::default()
            })
            .collect();
        facts
    }

    #[test]
    fn a_link_on_which_packets_follow_each_other_is_full_whatever_is_lost() {
        let named = |times, retransmitted| {
            let facts = spaced_by(times, retransmitted);
            [spaced(&facts).is_some(), policer::fits(&facts).is_some()]
        };
        assert_eq!(named(1.1, 200), [true, false]);
        assert_eq!(named(2.0, 200), [false, true]);
        // Without losses and a queue, nobody may have offered more: then it is named for another reason.
        let why = |times| {
            let of = fits_from_afar(&spaced_by(times, 0)).unwrap();
            (of.rank, of.evidence[1].key)
        };
        assert_eq!(why(1.1), (0, Key::GoodputOverPeak));
        assert_eq!(why(2.0), (LAST, Key::GoodputOverPeak));
        assert!(fits(&spaced_by(2.0, 0)).is_none());
        // Three segments out, each of which waits for the one before.
        let mut waits = spaced_by(1.1, 200);
        waits.min_rtt = Some(Nanos::from_millis(3));
        for reading in &mut waits.readings {
            reading.srtt = Nanos::from_millis(3);
        }
        assert!(spaced(&waits).is_none());
    }

    #[test]
    fn a_queue_of_hardly_a_segment_is_none_for_certain() {
        let full = |source, rate: u64, more_ms: u64| {
            let mut facts = Facts::new(source);
            (facts.mss, facts.min_rtt) = (1000, Some(Nanos::from_millis(4)));
            (facts.segments, facts.marked) = (1000, 1);
            facts.span = Nanos::from_secs(3);
            for n in 0..300 {
                facts.read(SenderInterval {
                    from: Nanos::from_millis(n * 10),
                    to: Nanos::from_millis(n * 10 + 10),
                    srtt: Nanos::from_millis(4 + more_ms),
                    cwnd: 8 * rate / 250,
                    flight: 8 * rate / 250,
                    delivered: rate / 100,
                    passed: rate / 100,
                    ..SenderInterval::default()
                });
            }
            fits(&facts).map(|candidate| candidate.confidence)
        };
        let trace = Source::Trace;
        assert_eq!(full(trace, 500_000, 2), Some(Confidence::Possible));
        assert_eq!(full(trace, 500_000, 20), Some(Confidence::Certain));
        assert_eq!(full(trace, 5_000_000, 2), Some(Confidence::Certain));
        // Who never sent faster may have written no more.
        let capture = full(Source::CaptureAtSender, 5_000_000, 2);
        assert_eq!(capture, Some(Confidence::Possible));
    }

    #[test]
    fn who_was_never_faster_though_segments_were_lost_fills_the_line() {
        let possible = Some(Confidence::Possible);
        assert_eq!(seen(Source::CaptureAtReceiver, 20, 20), possible);
        assert_eq!(seen(Source::CaptureAtReceiver, 5, 20), None, "slower");
        assert_eq!(seen(Source::CaptureAtReceiver, 20, 4), None, "few losses");
        assert_eq!(seen(Source::CaptureAtReceiver, 20, 2000), possible);
        assert_eq!(seen(Source::CaptureAtReceiver, 20, 7000), None, "23 % lost");
        assert_eq!(seen(Source::Samples, 20, 2000), None, "7 % lost");
        assert_eq!(seen(Source::Samples, 20, 20), possible);
    }

    #[test]
    fn bbr_that_nothing_holds_gets_what_the_path_carries() {
        let of = |pacing, cwnd| {
            let mut facts = Facts::new(Source::Samples);
            facts.congestion = Some("bbr".into());
            (facts.mss, facts.min_rtt) = (1000, Some(Nanos::from_millis(200)));
            (facts.span, facts.segments) = (Nanos::from_secs(30), 30_000);
            facts.pacing = pacing;
            for n in 0..30 {
                let delivered = if n % 2 == 0 { 800_000 } else { 1_200_000 };
                facts.read(SenderInterval {
                    from: Nanos::from_secs(n),
                    to: Nanos::from_secs(n + 1),
                    srtt: Nanos::from_millis(205),
                    cwnd,
                    flight: 200_000,
                    delivered,
                    passed: delivered,
                    ..SenderInterval::default()
                });
            }
            fits(&facts).map(|candidate| candidate.confidence)
        };
        assert_eq!(of(None, 400_000), Some(Confidence::Possible));
        assert_eq!(of(None, 200_000), None, "the window holds it");
        let paced = model::BitRate(8_000_000);
        assert_eq!(of(Some(paced), 400_000), None, "somebody set its pace");
    }

    #[test]
    fn a_queue_that_drains_at_the_goodput_is_that_of_a_full_line() {
        let of = |used: f64| {
            let mut facts = Facts::new(Source::CaptureAtSender);
            (facts.mss, facts.min_rtt) = (1000, Some(Nanos::from_millis(1)));
            (facts.span, facts.segments) = (Nanos::from_secs(3), 30_000);
            for n in 0..300 {
                facts.read(SenderInterval {
                    from: Nanos::from_millis(n * 10),
                    to: Nanos::from_millis(n * 10 + 10),
                    srtt: Nanos::from_millis(1),
                    flight: 10_000,
                    delivered: if n % 3 == 0 { 60_000 } else { 120_000 },
                    passed: 100_000,
                    ..SenderInterval::default()
                });
            }
            facts.bucket = Some(crate::facts::BucketFit {
                rate: facts.rate() / used,
                range: [facts.rate() / used; 2],
                depth: 20_000.0,
                parts: 0.9,
                events: 20,
                of_events: 20,
                segment: 1000,
                connections: 1,
            });
            // It delays what passes as a queue does.
            facts.losses = vec![
                crate::facts::LostSegment {
                    srtt: Nanos::from_millis(2),
                    ..crate::facts::LostSegment::default()
                };
                20
            ];
            fits(&facts).map(|candidate| candidate.confidence)
        };
        assert_eq!(of(0.95), Some(Confidence::Possible));
        assert_eq!(of(0.8), None);
    }
}

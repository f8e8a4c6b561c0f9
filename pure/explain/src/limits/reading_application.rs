//! The receive window is full because nobody empties the buffer: the reading application is slow, or
//! the disk behind it.
//!
//! Near miss: a small buffer that is emptied at once.

use super::{Candidate, Key};
use crate::facts::{Facts, SenderInterval};
use model::finding::{Confidence, Limit};
use model::stats::percentile;
use model::{Bytes, Nanos};

/// Unread data by the buffer from which the reader is behind.
pub(crate) const BEHIND: f64 = 0.25;
/// The same where it shows it alone; and so many unread segments.
const FULL: f64 = 0.5;
const MANY: f64 = 8.0;
/// A window that falls to this part of its largest, and is full there, was closed by its reader.
const CLOSES: f64 = 0.5;
/// A small buffer that is emptied at once is closed for less than so many round trips, and this.
const ROUND_TRIPS: u64 = 3;
const MOMENT: Nanos = Nanos::from_millis(50);
/// Part of the time (1 / n) in which acknowledgements were held back, or the window was closed, from which that limits the transfer.
const MUCH: u64 = 4;

pub(crate) fn fits(facts: &Facts) -> Option<Candidate> {
    let steady = facts.steady();
    if let Some(unread) = unread(facts) {
        if unread < BEHIND {
            return None;
        }
        let evidence = vec![facts.evidence(Key::UnreadData, unread).at_least(BEHIND)];
        // Half of the buffer is all that a window lets in (`tcp_adv_win_scale`): less of a small one may be the segments of a
        // moment.
        let buffer = facts.receive_buffer.unwrap_or_default().0 as f64;
        let sure = unread >= FULL || unread * buffer >= MANY * f64::from(facts.mss);
        let confidence = match sure {
            true => Confidence::Certain,
            false => Confidence::Possible,
        };
        return Some(advised(Candidate::new(confidence, evidence), facts));
    }
    // Not reported by the receiver: its window shows whether the buffer is emptied.
    let mut windows: Vec<f64> = steady.iter().map(|r| r.window as f64).collect();
    let low = percentile(&mut windows, 0.25)?;
    let all = facts.readings.iter().map(|r| r.window as f64);
    let high = all.fold(0.0, f64::max);
    let (closed, longest) = closed(facts);
    let least = facts.rtt().0.saturating_mul(ROUND_TRIPS).max(MOMENT.0);
    // One pause of a reader that keeps up otherwise is a closed window, for its time alone.
    let long = longest.0 >= least && closed.0 >= facts.span.0 / MUCH;
    if !long && low > high * CLOSES {
        return None;
    }
    let quartile = facts.evidence(Key::ReceiveWindowLowerQuartile, Bytes(low as u64));
    let mut evidence = vec![
        quartile.if_at_most(high * CLOSES),
        facts.evidence(Key::ReceiveWindowMax, Bytes(high as u64)),
    ];
    if long {
        evidence.push(
            facts
                .evidence(Key::ZeroWindowLongest, longest)
                .at_least(least as f64),
        );
    }
    // Packets alone do not show whether a buffer is small or full.
    let confidence = match facts.is_capture() {
        true => Confidence::Possible,
        false => Confidence::Likely,
    };
    Some(advised(Candidate::new(confidence, evidence), facts))
}

/// Every second full segment draws an acknowledgement when it arrives (RFC 5681, 4.2), unless its receiver has so much to read
/// that the window would not open: then Linux acknowledges once the application reads, or when a timer fires
/// (`__tcp_ack_snd_check` in `net/ipv4/tcp_input.c`). To the sender, round trips grow as if a queue stood.
pub(crate) fn holds_acks(facts: &Facts) -> Option<Candidate> {
    let least = facts.span.0 / MUCH;
    let mut evidence = Vec::new();
    if facts.held_acks.0 >= least.max(1) {
        let held = facts.evidence(Key::HeldAckTime, facts.held_acks);
        evidence.push(held.of(facts.span.0).at_least(least as f64));
    }
    // A link that is full all the same leaves the reader enough time.
    let packets = facts.is_capture() || !facts.unread_is_known();
    let shut = shut(facts).filter(|shut| *shut >= BEHIND && packets);
    if let Some(shut) = shut.filter(|_| facts.fills_link().is_none()) {
        let shut = facts.evidence(Key::WindowBelowLargest, shut);
        evidence.push(shut.at_least(BEHIND));
    }
    (!evidence.is_empty())
        .then(|| advised(Candidate::new(Confidence::Possible, evidence), facts).ranked(0))
}

/// By how much the window was below its largest so far, on the average of time: what nobody had read. An application that
/// reads lets it stand or grow.
fn shut(facts: &Facts) -> Option<f64> {
    let (mut largest, mut sum, mut whole) = (0, 0.0, 0.0);
    for reading in facts.readings.iter().filter(|r| r.window > 0) {
        largest = reading.window.max(largest);
        let time = reading.to.since(reading.from).as_secs_f64();
        sum += (1.0 - reading.window as f64 / largest as f64) * time;
        whole += time;
    }
    (whole > 0.0).then(|| sum / whole)
}

/// What the receiver had not read, by its buffer: the mean of the time in which its window was the limit (a
/// closed window makes few readings, and long ones), or of all where it never was.
fn unread(facts: &Facts) -> Option<f64> {
    let held =
        |r: &&SenderInterval| matches!(r.limit, Some(Limit::ReceiveWindow | Limit::ZeroWindow));
    mean(facts.readings.iter().filter(held)).or_else(|| mean(facts.steady().iter()))
}

fn mean<'a>(readings: impl Iterator<Item = &'a SenderInterval>) -> Option<f64> {
    let (mut sum, mut whole) = (0.0, 0.0);
    for reading in readings {
        let time = reading.to.since(reading.from).0 as f64;
        if let Some(unread) = reading.unread {
            sum += unread * time;
            whole += time;
        }
    }
    (whole > 0.0).then(|| sum / whole)
}

/// For how long the window was closed in all, and at a time.
fn closed(facts: &Facts) -> (Nanos, Nanos) {
    let (mut whole, mut longest, mut begun) = (Nanos(0), Nanos(0), None);
    for reading in &facts.readings {
        if reading.limit == Some(Limit::ZeroWindow) {
            let from = *begun.get_or_insert(reading.from);
            longest = longest.max(reading.to.since(from));
            whole = Nanos(whole.0 + reading.to.since(reading.from).0);
        } else {
            begun = None;
        }
    }
    (whole, longest)
}

fn advised(candidate: Candidate, facts: &Facts) -> Candidate {
    let candidate = candidate.advise(
        "look at the receiving application: its processor, its disk, the size of its reads",
    );
    facts.reader.add_to(candidate, facts.source)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::finding::Source;

    #[test]
    fn who_acknowledges_many_segments_late_for_a_quarter_of_the_time_does_not_read() {
        let of = |held| {
            let mut facts = Facts::new(Source::CaptureAtReceiver);
            (facts.span, facts.held_acks) = (Nanos::from_secs(4), Nanos::from_millis(held));
            holds_acks(&facts).map(|candidate| candidate.confidence)
        };
        assert_eq!(of(1000), Some(Confidence::Possible));
        assert_eq!(of(999), None);
    }

    #[test]
    fn a_window_that_falls_and_opens_again_shows_a_reader_that_pauses() {
        let of = |source, window: fn(u64) -> u64, capacity| {
            let mut facts = Facts::new(source);
            (facts.mss, facts.min_rtt) = (1000, Some(Nanos::from_millis(20)));
            (facts.span, facts.capacity) = (Nanos::from_secs(4), capacity);
            facts.marked = 1;
            for n in 0..200 {
                facts.read(SenderInterval {
                    from: Nanos::from_millis(n * 20),
                    to: Nanos::from_millis(n * 20 + 20),
                    srtt: Nanos::from_millis(20),
                    window: window(n),
                    delivered: 20_000,
                    unread: Some(0.5),
                    ..SenderInterval::default()
                });
            }
            holds_acks(&facts).is_some()
        };
        let capture = Source::CaptureAtSender;
        let falls = |n: u64| 41_000 - n % 40 * 1000;
        assert!(of(capture, falls, None));
        assert!(!of(Source::Samples, falls, None), "its socket knows better");
        assert!(!of(capture, |n| 40_000 - n % 40 * 400, None), "by a fifth");
        assert!(!of(capture, |n| 1000 * (n + 1), None), "it grows");
        // A megabyte a second flows.
        assert!(!of(capture, falls, Some(1.1e6)), "the link is full");
        assert!(of(capture, falls, Some(2e6)));
    }

    #[test]
    fn a_reader_is_behind_at_a_quarter_of_its_buffer_and_not_below() {
        let of = |unread, buffer| {
            let mut facts = Facts::new(Source::Samples);
            (facts.mss, facts.receive_buffer) = (1448, Some(Bytes(buffer)));
            facts.readings = vec![SenderInterval {
                to: Nanos::from_millis(100),
                limit: Some(Limit::ZeroWindow),
                unread: Some(unread),
                ..SenderInterval::default()
            }];
            fits(&facts).map(|candidate| candidate.confidence)
        };
        assert_eq!(of(BEHIND, 1 << 20), Some(Confidence::Certain));
        assert_eq!(of(BEHIND - 0.01, 1 << 20), None);
        // Three segments of a small buffer.
        assert_eq!(of(0.26, 16_384), Some(Confidence::Possible));
        assert_eq!(of(FULL, 16_384), Some(Confidence::Certain));
    }

    #[test]
    fn one_pause_of_a_reader_does_not_make_a_small_window_its_fault() {
        // A window of 40 KB that is full; for so many of a hundred spans of 20 ms it is closed.
        let of = |closed| {
            let mut facts = Facts::new(Source::Trace);
            (facts.min_rtt, facts.span) = (Some(Nanos::from_millis(20)), Nanos::from_secs(2));
            facts.readings = (0..100)
                .map(|n| SenderInterval {
                    from: Nanos::from_millis(n * 20),
                    to: Nanos::from_millis(n * 20 + 20),
                    window: if n < closed { 0 } else { 40_000 },
                    limit: Some(match n < closed {
                        true => Limit::ZeroWindow,
                        false => Limit::ReceiveWindow,
                    }),
                    ..SenderInterval::default()
                })
                .collect();
            fits(&facts).map(|candidate| candidate.confidence)
        };
        assert_eq!(of(24), None);
        assert_eq!(of(25), Some(Confidence::Likely));
    }
}

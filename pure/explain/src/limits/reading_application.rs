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
const BEHIND: f64 = 0.25;
/// A window that falls to this part of its largest, and is full there, was closed by its reader.
const CLOSES: f64 = 0.5;
/// A small buffer that is emptied at once is closed for less than so many round trips, and this.
const ROUND_TRIPS: u64 = 3;
const MOMENT: Nanos = Nanos::from_millis(50);

pub(crate) fn fits(facts: &Facts) -> Option<Candidate> {
    let steady = facts.steady();
    if let Some(unread) = unread(facts) {
        if unread < BEHIND {
            return None;
        }
        let evidence = vec![facts.evidence(Key::UnreadData, unread).at_least(BEHIND)];
        return Some(advised(
            Candidate::new(Confidence::Certain, evidence),
            facts,
        ));
    }
    // Not reported by the receiver: its window shows whether the buffer is emptied.
    let mut windows: Vec<f64> = steady.iter().map(|r| r.window as f64).collect();
    let low = percentile(&mut windows, 0.25)?;
    let all = facts.readings.iter().map(|r| r.window as f64);
    let high = all.fold(0.0, f64::max);
    let closed = closed_longest(facts);
    let least = facts.rtt().0.saturating_mul(ROUND_TRIPS).max(MOMENT.0);
    let long = closed.0 >= least;
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
                .evidence(Key::ZeroWindowLongest, closed)
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

/// The longest time for which the window was closed.
fn closed_longest(facts: &Facts) -> Nanos {
    let (mut longest, mut begun) = (Nanos(0), None);
    for reading in &facts.readings {
        if reading.limit == Some(Limit::ZeroWindow) {
            let from = *begun.get_or_insert(reading.from);
            longest = longest.max(reading.to.since(from));
        } else {
            begun = None;
        }
    }
    longest
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
    fn a_reader_is_behind_at_a_quarter_of_its_buffer_and_not_below() {
        let of = |unread| {
            let mut facts = Facts::new(Source::Samples);
            facts.readings = vec![SenderInterval {
                to: Nanos::from_millis(100),
                limit: Some(Limit::ZeroWindow),
                unread: Some(unread),
                ..SenderInterval::default()
            }];
            fits(&facts).map(|candidate| candidate.confidence)
        };
        assert_eq!(of(BEHIND), Some(Confidence::Certain));
        assert_eq!(of(BEHIND - 0.01), None);
    }
}

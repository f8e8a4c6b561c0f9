//! The receive window is full because nobody empties the buffer: the reading application is slow, or
//! the disk behind it.
//!
//! Near miss: a small buffer that is emptied at once.

use super::Telling;
use crate::facts::{Facts, middle, percent, percentile};
use model::Bytes;
use model::finding::{Confidence, Evidence, Limit};

/// Unread data by the buffer, median, from which the reader is behind.
const BEHIND: f64 = 0.25;
/// A window that falls to this part of its largest, and is full there, was closed by its reader.
const CLOSES: f64 = 0.5;

pub(crate) fn fits(facts: &Facts) -> Option<Telling> {
    let mut evidence = Vec::new();
    let steady = facts.steady();
    if let Some(unread) = middle(steady.iter().filter_map(|r| r.unread)) {
        if unread < BEHIND {
            return None;
        }
        evidence.push(
            Evidence::new(
                "unread at the receiver by its buffer, median",
                percent(unread),
            )
            .against("25 % or more: the reader is behind"),
        );
        return Some(advised(Telling::new(Confidence::Sure, evidence)));
    }
    // The receiver did not tell: its window tells whether it is emptied.
    let mut windows: Vec<f64> = steady.iter().map(|r| r.window as f64).collect();
    let low = percentile(&mut windows, 0.25)?;
    let high = percentile(&mut windows, 1.0)?;
    let closed = facts
        .readings
        .iter()
        .any(|r| r.limit == Some(Limit::ZeroWindow));
    if !closed && low > high * CLOSES {
        return None;
    }
    evidence.push(
        Evidence::new(
            "receive window, lower quartile and largest",
            format!("{}, {}", Bytes(low as u64), Bytes(high as u64)),
        )
        .against("half and less: it closes and opens"),
    );
    if closed {
        evidence.push(Evidence::new("the window was closed", "yes"));
    }
    Some(advised(Telling::new(Confidence::Likely, evidence)))
}

fn advised(telling: Telling) -> Telling {
    telling
        .advise("look at the receiving application: its processor, its disk, the size of its reads")
}

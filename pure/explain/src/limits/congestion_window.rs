//! The congestion window is full. What made it no larger is for the second level.

use super::Telling;
use crate::facts::{Facts, middle};
use crate::moment::Moment;
use model::Bytes;
use model::finding::{Confidence, Evidence};

pub(crate) fn owns(moment: &Moment) -> bool {
    super::slow_start::window_holds(moment)
}

pub(crate) fn tell(facts: &Facts) -> Telling {
    let cwnd = middle(facts.steady().iter().map(|r| r.cwnd as f64)).unwrap_or(0.0);
    let mut evidence = vec![Evidence::new(
        "congestion window, median",
        Bytes(cwnd as u64),
    )];
    if let Some(name) = &facts.congestion {
        evidence.push(Evidence::new("congestion control", name));
    }
    Telling::new(Confidence::Open, evidence)
}

//! The socket spreads its segments out: by a rate that somebody set, or by one that its congestion
//! control believes in (then the cause is behind it).

use super::Telling;
use crate::facts::{Facts, bit_rate};
use crate::moment::Moment;
use model::finding::{Confidence, Evidence};

pub(crate) fn owns(moment: &Moment) -> bool {
    moment.paced
}

pub(crate) fn tell(facts: &Facts) -> Telling {
    let mut evidence = vec![Evidence::new("rate", bit_rate(facts.rate()))];
    if let Some(name) = &facts.congestion {
        evidence.push(Evidence::new(
            "congestion control, which sets the pace",
            name,
        ));
    }
    Telling::new(Confidence::Open, evidence)
}

/// Somebody set a rate, and it is reached. Of the rate on the wire, headers are a few per cent.
pub(crate) fn fits(facts: &Facts) -> Option<Telling> {
    let asked = facts.pacing?;
    let rate = bit_rate(facts.rate());
    let reached = rate.0 as f64 / asked.0.max(1) as f64;
    (reached >= 0.85).then(|| {
        Telling::new(
            Confidence::Sure,
            vec![
                Evidence::new("rate that was set (SO_MAX_PACING_RATE)", asked),
                Evidence::new("rate", rate).against("85 % of it or more"),
            ],
        )
        .advise("set a higher pacing rate, or none")
    })
}

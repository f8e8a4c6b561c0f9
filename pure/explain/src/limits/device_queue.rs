//! Segments wait below TCP, in the queueing discipline or the ring of the sender's own device.

use super::Telling;
use crate::facts::Facts;
use crate::moment::Moment;
use model::Nanos;
use model::finding::{Confidence, Evidence, Source};

pub(crate) fn owns(moment: &Moment) -> bool {
    moment.queued_below
}

/// Data wait to be sent, no window is full, the processors are not, and the rate is flat: what is left is
/// what lies below TCP. Of samples, which do not show how much waits there.
pub(crate) fn fits(facts: &Facts) -> Option<Telling> {
    let load = facts.sender_load?;
    if facts.source != Source::Samples || load.process > IDLE || !facts.is_flat() {
        return None;
    }
    let mut telling = tell(facts);
    telling.confidence = Confidence::Possible;
    telling.evidence[0] = Evidence::new("windows", "none is full, though data wait to be sent");
    telling.evidence.push(
        Evidence::new(
            "processors that the sending process used",
            format!("{:.2}", load.process),
        )
        .against(format!("under {IDLE}: it is not the processor")),
    );
    Some(telling)
}

/// Packets pass later than their timestamps say: they lay below TCP meanwhile. Of a capture at the sender itself.
pub(crate) fn fits_late(facts: &Facts) -> Option<Telling> {
    let late = facts.rhythm?.late?;
    if facts.source != Source::CaptureAtSender || late < LATE || !facts.is_flat() {
        return None;
    }
    let mut telling = tell(facts);
    telling.evidence[0] = Evidence::new("segments left after TCP had stamped them", late).against(
        format!("{LATE} and more on the average: they lay below TCP"),
    );
    Some(telling)
}

/// Seen of queues that pass 5 to 100 Mbit/s: 2 to 9 ms; of all else up to 0.4 ms.
const LATE: Nanos = Nanos::from_millis(1);

/// A sending process that uses less of a processor is not held up by it.
const IDLE: f64 = 0.5;

pub(crate) fn tell(facts: &Facts) -> Telling {
    let mut evidence = vec![Evidence::new(
        "segments below TCP",
        "as many as it lets wait there",
    )];
    if let Some(link) = facts.link {
        evidence.push(Evidence::new("speed of the device", link));
    }
    Telling::new(Confidence::Likely, evidence).advise(
        "the sender's own link, or its queueing discipline, is the slowest part: look at its rate",
    )
}

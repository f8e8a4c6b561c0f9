//! The socket spreads its segments out: by a rate that somebody set, or by one that its congestion
//! control believes in (then the cause is behind it).

use super::{Key, Telling, send_buffer};
use crate::facts::{Facts, Rhythm, bit_rate};
use crate::sender_state::SenderState;
use model::finding::Confidence;

pub(crate) fn owns(state: &SenderState) -> bool {
    state.paced
}

pub(crate) fn tell(facts: &Facts) -> Telling {
    let mut evidence = vec![facts.evidence(Key::Goodput, bit_rate(facts.rate()))];
    if let Some(name) = &facts.congestion {
        evidence.push(facts.evidence(Key::CongestionControl, name.as_str()));
    }
    Telling::new(Confidence::Possible, evidence)
}

/// Goodput by that of its fastest tenth, of data that come evenly.
const EVEN: f64 = 0.95;

/// From packets alone: the same amount in flight all the time, and sends spread out over the round trip by a clock of
/// their own. An application that writes little at a time, at a rate of its own, looks the same.
pub(crate) fn fits_spread(facts: &Facts) -> Option<Telling> {
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
    let evidence = vec![
        steady,
        spread?,
        facts.evidence(Key::Goodput, bit_rate(facts.rate())),
    ];
    Some(
        Telling::new(Confidence::Possible, evidence)
            .ranked(0)
            .advise("look whether the sender paces: pacing_rate in 'ss -ti', SO_MAX_PACING_RATE, a queueing discipline (fq maxrate)"),
    )
}

/// Of a pacing rate, goodput at the least if it is reached.
const REACHED: f64 = 0.85;

/// Somebody set a rate, and it is reached. Of the rate on the wire, headers are a few per cent.
pub(crate) fn fits(facts: &Facts) -> Option<Telling> {
    let asked = facts.pacing?;
    let rate = bit_rate(facts.rate());
    let least = asked.0.max(1) as f64 * REACHED;
    (rate.0 as f64 >= least).then(|| {
        Telling::new(
            Confidence::Certain,
            vec![
                facts.evidence(Key::PacingRate, asked),
                facts.evidence(Key::Goodput, rate).at_least(least),
            ],
        )
        .advise("set a higher pacing rate, or none")
    })
}

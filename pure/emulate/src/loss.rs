//! Which frames vanish on the line.

use crate::LossModel;
use crate::packet::FRAME_OVERHEAD;
use crate::seed::Purpose;
use model::Random;

/// Preamble and gap: no bit error there hurts a frame.
const OUTSIDE_CHECKSUM: u64 = FRAME_OVERHEAD - 4;

/// A model of loss at work: asked once for every frame offered, in order.
#[derive(Debug)]
pub(crate) struct Losses {
    chance: Random,
    bits: Random,
    bad: bool,
}

impl Losses {
    pub(crate) fn new(seed: u64) -> Losses {
        Losses {
            chance: Random::new(seed, Purpose::Loss as u64),
            bits: Random::new(seed, Purpose::BitError as u64),
            bad: false,
        }
    }

    /// True if the model loses the frame of this number (from 1).
    pub(crate) fn loses(&mut self, model: &LossModel, frame: u64) -> bool {
        match model {
            LossModel::Off => false,
            LossModel::Random(p) => self.chance.hits(*p),
            LossModel::Periodic(every) => frame.is_multiple_of((*every).max(1)),
            LossModel::At(frames) => frames.binary_search(&frame).is_ok(),
            LossModel::GilbertElliott {
                to_bad,
                to_good,
                lost_in_bad,
                lost_in_good,
            } => {
                let turns = self.chance.hits(if self.bad { *to_good } else { *to_bad });
                self.bad ^= turns;
                self.chance.hits(match self.bad {
                    true => *lost_in_bad,
                    false => *lost_in_good,
                })
            }
        }
    }

    /// True if a frame of this length on the wire has a wrong bit: 1 - (1 - rate)^bits.
    pub(crate) fn corrupts(&mut self, bit_error_rate: f64, wire_bytes: u64) -> bool {
        let bits = 8 * wire_bytes.saturating_sub(OUTSIDE_CHECKSUM);
        let intact = (-bit_error_rate).ln_1p() * bits as f64;
        self.bits.hits(-intact.exp_m1())
    }
}

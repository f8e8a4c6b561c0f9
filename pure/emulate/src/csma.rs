//! The sender of a half-duplex end whose other end does not listen before it sends (IEEE 802.3, 4.2.8).

use crate::chance::{Chance, Purpose};
use crate::packet::GAP;
use model::{BitRate, Nanos};

/// A collision within so many bit times of the beginning is early: the sender tries again. A later one happens in no
/// network that is made right: most devices count a late collision and give the frame up.
const SLOT_BITS: u64 = 512;
/// A sender that collides goes on for so long, to be noticed.
const JAM_BITS: u64 = 32;
/// Tries of one frame.
const ATTEMPTS: u32 = 16;
/// The wait is of up to 2^10 slots.
const BACKOFF_LIMIT: u32 = 10;

/// Collisions of the frame that is sent, one at a time.
#[derive(Debug)]
pub(crate) struct Csma {
    chance: Chance,
    /// The frame on the line: from and until.
    on_air: Option<(Nanos, Nanos)>,
    /// How often it has collided.
    collisions: u32,
}

impl Csma {
    pub fn new(seed: u64) -> Csma {
        Csma {
            chance: Chance::new(seed, Purpose::Backoff),
            on_air: None,
            collisions: 0,
        }
    }

    /// A frame begins.
    pub fn begin(&mut self, now: Nanos, wire_bytes: u64, rate: Option<BitRate>) {
        let bits = wire_bytes.saturating_sub(GAP) * 8;
        self.on_air = Some((now, now + time_of(bits, rate)));
    }

    /// Its last bit has been sent.
    pub fn end(&mut self) {
        self.on_air = None;
        self.collisions = 0;
    }

    /// Until when it is sent.
    pub fn on_air(&self) -> Option<Nanos> {
        self.on_air.map(|(_, until)| until)
    }

    /// True if the next frame is one that collided.
    pub fn tries_again(&self) -> bool {
        self.collisions > 0
    }

    /// The other end begins to send. If that is a collision: how long this one then does not send, and whether it
    /// tries the same frame again.
    pub fn hear(&mut self, at: Nanos, rate: Option<BitRate>) -> Option<(Nanos, bool)> {
        let (from, _) = self.on_air.filter(|(f, until)| *f <= at && at < *until)?;
        self.on_air = None;
        self.collisions += 1;
        let is_early = at.since(from) < time_of(SLOT_BITS, rate);
        if !is_early || self.collisions == ATTEMPTS {
            self.collisions = 0;
            return Some((time_of(JAM_BITS, rate), false));
        }
        let slots = 1 << self.collisions.min(BACKOFF_LIMIT);
        let slot = (self.chance.unit() * f64::from(slots)) as u64;
        Some((time_of(JAM_BITS + slot * SLOT_BITS, rate), true))
    }
}

fn time_of(bits: u64, rate: Option<BitRate>) -> Nanos {
    Nanos(rate.map_or(0, |r| bits.saturating_mul(1_000_000_000) / r.0.max(1)))
}

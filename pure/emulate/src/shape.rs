//! What one direction of a link does to packets, as data.

use model::{BitRate, Bytes, Nanos};
use serde::{Deserialize, Serialize};

/// The longest that the first frame of a super-packet may wait on the line for its last: about as long as
/// network cards wait for more before they interrupt.
const LONGEST_TRAIN: Nanos = Nanos::from_micros(250);

/// One direction of a link. Everything is optional: the default passes all packets at once.
///
/// A packet meets, in this order: `max_frame`, `loss` and `bit_error_rate` (decided at the
/// entry, felt after the line: a lost frame still used it), `policer`, `ack_thinning`, `queue`,
/// `shaper`, `rate`, `delay` with `jitter` and `reorder`, `duplicate`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shape {
    /// Rate of the line in bits on the wire: each frame with its [`FRAME_OVERHEAD`](crate::FRAME_OVERHEAD).
    pub rate: Option<BitRate>,
    /// A frame occupies the line at least this long, whatever its size: a receiver or a firewall whose
    /// processor works on each. Zero: only its bytes count.
    #[serde(default)]
    pub packet_time: Nanos,
    /// Propagation delay, one way.
    pub delay: Nanos,
    /// Random delay on top of `delay`.
    pub jitter: Option<Jitter>,
    /// Frames that vanish on the line.
    pub loss: Option<Loss>,
    /// Chance of each bit to be wrong; the receiver's checksum drops the frame, long ones more often.
    pub bit_error_rate: f64,
    /// Frames held back so that later ones overtake them.
    pub reorder: Option<Reorder>,
    /// Frames that arrive twice.
    pub duplicate: Option<Duplicate>,
    /// What waits for the line or the shaper; without it [`Queue::default`].
    pub queue: Option<Queue>,
    /// Drops what comes faster (RFC 2697, one rate, two colours), by bytes of IP packets.
    pub policer: Option<Bucket>,
    /// Delays what comes faster, by bytes of IP packets.
    pub shaper: Option<Bucket>,
    /// Largest IP packet in bytes that passes; larger ones are dropped without a word, as by a switch without jumbo frames.
    pub max_frame: Option<u32>,
    /// Pure acknowledgements of a flow joined into fewer.
    pub ack_thinning: Option<AckThinning>,
    /// Only one of the two directions can send at a time.
    pub half_duplex: bool,
    /// The rate wanders by itself.
    pub wander: Option<Wander>,
    /// Other traffic on the same line: it takes queue and rate, and is never delivered.
    pub cross: Option<Cross>,
}

/// Random delay between zero and `range`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Jitter {
    /// Largest extra delay.
    pub range: Nanos,
    /// How it is spread over the range.
    #[serde(default)]
    pub distribution: Distribution,
    /// True: a packet with less extra delay overtakes; false: order is kept, later ones wait.
    pub reorders: bool,
}

/// How random delay is spread over its range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Distribution {
    /// All alike.
    #[default]
    Uniform,
    /// About the middle, with a deviation of a sixth of the range; the rare value beyond is its end.
    Normal,
    /// Mostly short, with a mean of a sixth of the range; the rare value beyond is its end.
    Exponential,
}

/// A model of loss. Probabilities are per frame, between 0 and 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Loss {
    /// Each frame on its own.
    Random(f64),
    /// Two states with their own chance of loss (Gilbert 1960, Elliott 1963; names as RFC 6534 uses
    /// them): bursts have the mean length 1 / `to_good` where `lost_in_bad` is 1.
    GilbertElliott {
        /// Chance to turn bad before a frame.
        to_bad: f64,
        /// Chance to turn good before a frame.
        to_good: f64,
        /// Chance of loss in the bad state.
        lost_in_bad: f64,
        /// Chance of loss in the good state.
        lost_in_good: f64,
    },
    /// Every so many frames, one is lost: 2000 loses the 2000th, the 4000th ...
    Periodic(u64),
    /// These frames of this direction are lost, counted from 1, ascending.
    At(Vec<u64>),
}

/// Some frames are held back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reorder {
    /// Chance of each frame.
    pub probability: f64,
    /// How much later than due it arrives.
    pub late: Nanos,
}

/// Some frames arrive twice, the copy right behind the first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Duplicate {
    /// Chance of each frame.
    pub probability: f64,
}

/// What waits for the line. The frame that is being sent waits no more and is not counted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Queue {
    /// What does not fit is dropped (drop-tail, whatever the management).
    pub limit: Limit,
    /// Active queue management.
    pub aqm: Aqm,
    /// Marks packets of ECN-capable transports instead of dropping them (RFC 3168), where `aqm` chooses.
    pub ecn: bool,
}

impl Default for Queue {
    /// 1000 packets, drop-tail: Linux's usual `txqueuelen`.
    fn default() -> Queue {
        Queue {
            limit: Limit::Packets(1000),
            aqm: Aqm::DropTail,
            ecn: false,
        }
    }
}

/// The most that a queue holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// In frames of any size.
    Packets(u64),
    /// In bytes of IP packets.
    Bytes(Bytes),
}

/// Active queue management.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Aqm {
    /// Only the limit.
    DropTail,
    /// Controlled delay (RFC 8289).
    CoDel {
        /// Wait that is acceptable, usually 5 ms.
        target: Nanos,
        /// A worst-case round trip, usually 100 ms.
        interval: Nanos,
    },
    /// Random early detection (Floyd and Jacobson 1993), in the unit of the queue's limit (packets or
    /// bytes). With `min` = `max` and `weight` 1 it is the step marking of DCTCP (RFC 8257).
    Red {
        /// Average depth below which nothing happens.
        min: u64,
        /// Average depth from which on everything is marked or dropped.
        max: u64,
        /// Chance at `max`.
        probability: f64,
        /// Weight of the newest depth in the average, in (0, 1].
        weight: f64,
    },
}

/// A token bucket (RFC 2697), in bytes of IP packets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bucket {
    /// Tokens arrive at this rate.
    pub rate: BitRate,
    /// The bucket holds this much; it begins full.
    pub burst: Bytes,
}

/// Of successive pure acknowledgements of one flow only the newest goes on (RFC 3449, section 5.2.2).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AckThinning {
    /// At most this many become one.
    pub of: u32,
    /// An acknowledgement waits at most this long for the next.
    pub hold: Nanos,
}

/// A rate that wanders: an Ornstein-Uhlenbeck process about 1, times the factor of the present state.
/// It scales the shaper where there is one, else the line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wander {
    /// Standard deviation in the long run, as a part of the rate: 0.05 is 5 %.
    pub deviation: f64,
    /// Time constant with which it returns to the mean.
    pub time: Nanos,
    /// States that follow each other in turn; the first is the first. Empty: one, factor 1.
    pub states: Vec<State>,
}

/// One regime of a wandering rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// What the rate is multiplied by.
    pub factor: f64,
    /// Mean length of a stay; single stays are exponential.
    pub stay: Nanos,
}

/// Frames of others on the same line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cross {
    /// Rate on the wire while it sends.
    pub rate: BitRate,
    /// Size of its IP packets in bytes.
    pub frame: u32,
    /// It sends for `on` and is silent for `off`, in turn; `off` 0: always.
    pub on: Nanos,
    /// See `on`.
    pub off: Nanos,
}

impl Shape {
    /// True if packets pass as over a plain cable: no emulator is needed.
    pub fn is_plain(&self) -> bool {
        *self == Shape::default()
    }

    /// True if something limits how fast packets pass.
    pub fn is_limited(&self) -> bool {
        self.rate.is_some() || self.shaper.is_some() || self.packet_time > Nanos(0)
    }

    /// See [`Pipe::frames_at_once`](crate::Pipe::frames_at_once).
    pub fn frames_at_once(&self, wire_bytes: u64) -> u32 {
        if self.jitter.is_some() || self.reorder.is_some() || self.duplicate.is_some() {
            return 1;
        }
        let shaper = self.shaper.as_ref().map(|s| s.rate);
        let rate = self.rate.into_iter().chain(shaper).min();
        let time = self.time_of(rate, wire_bytes);
        u32::try_from(LONGEST_TRAIN.0 / time.0.max(1))
            .unwrap_or(u32::MAX)
            .max(1)
    }

    /// How long a frame occupies a line of this rate.
    pub(crate) fn time_of(&self, rate: Option<BitRate>, wire_bytes: u64) -> Nanos {
        let bytes = rate.map_or(0, |r| wire_bytes.saturating_mul(8_000_000_000) / r.0);
        self.packet_time.max(Nanos(bytes))
    }
}

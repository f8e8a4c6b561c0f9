//! What one direction of a link does to packets, as data.

use crate::file::{
    QueueFile,
    value::{amount, ascending, frame, real, scalar, some, span, whole},
};
use model::{BitRate, Bytes, Nanos};
use serde::Deserialize;

/// The longest that the first frame of a super-packet may wait on the line for its last: about as long as
/// network cards wait for more before they interrupt.
const LONGEST_TRAIN: Nanos = Nanos::from_micros(250);

/// One direction of a link. Everything is optional: the default passes all packets at once.
///
/// A packet meets, in this order: `max_frame`, `loss` and `bit_error_rate` (decided at the
/// entry, felt after the line: a lost frame still used it), `policer`, `ack_thinning`, `queue`,
/// `shaper`, `rate`, `delay` with `jitter` and `reorder`, `duplicate`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Shape {
    /// Rate of the line in bits on the wire: each frame with its [`FRAME_OVERHEAD`](crate::FRAME_OVERHEAD).
    #[serde(deserialize_with = "some")]
    pub rate: Option<BitRate>,
    /// A frame occupies the line at least this long, whatever its size: a receiver or a firewall whose
    /// processor works on each. Zero: only its bytes count.
    #[serde(deserialize_with = "scalar")]
    pub packet_time: Nanos,
    /// Propagation delay, one way.
    #[serde(deserialize_with = "scalar")]
    pub delay: Nanos,
    /// Random delay on top of `delay`.
    pub jitter: Option<Jitter>,
    /// Frames that vanish on the line.
    pub loss: LossModel,
    /// Chance of each bit to be wrong; the receiver's checksum drops the frame, long ones more often.
    #[serde(deserialize_with = "real::<_, 0, 10_000>")]
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
    #[serde(deserialize_with = "frame")]
    pub max_frame: Option<u32>,
    /// Pure acknowledgements of a flow joined into fewer.
    pub ack_thinning: Option<AckThinning>,
    /// Only one of the two directions can send at a time.
    pub half_duplex: bool,
    /// The rate varies by itself.
    pub rate_variation: Option<RateVariation>,
    /// Other traffic on the same line: it takes queue and rate, and is never delivered.
    pub cross: Option<Cross>,
}

/// Random delay between zero and `range`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Jitter {
    /// Largest extra delay.
    #[serde(deserialize_with = "span")]
    pub range: Nanos,
    /// How it is spread over the range.
    #[serde(default)]
    pub distribution: Distribution,
    /// True: a packet with less extra delay overtakes; false: order is kept, later ones wait.
    #[serde(default)]
    pub reorders: bool,
}

/// How random delay is spread over its range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
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
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum LossModel {
    /// Nothing is lost.
    #[default]
    Off,
    /// Each frame on its own.
    Random(#[serde(deserialize_with = "scalar")] f64),
    /// Two states with their own chance of loss (Gilbert 1960, Elliott 1963; names as RFC 6534 uses
    /// them): bursts have the mean length 1 / `to_good` where `lost_in_bad` is 1.
    GilbertElliott {
        /// Chance to turn bad before a frame.
        #[serde(deserialize_with = "scalar")]
        to_bad: f64,
        /// Chance to turn good before a frame; not 0.
        #[serde(deserialize_with = "real::<_, 1, 1_000_000>")]
        to_good: f64,
        /// Chance of loss in the bad state.
        #[serde(default = "always", deserialize_with = "scalar")]
        lost_in_bad: f64,
        /// Chance of loss in the good state.
        #[serde(default, deserialize_with = "scalar")]
        lost_in_good: f64,
    },
    /// Every so many frames, one is lost: 2000 loses the 2000th, the 4000th ...
    Periodic(#[serde(deserialize_with = "whole::<_, _, 2, { 1 << 40 }>")] u64),
    /// These frames of this direction are lost, counted from 1, ascending.
    At(#[serde(deserialize_with = "ascending")] Vec<u64>),
}

fn always() -> f64 {
    1.0
}

/// Some frames are held back.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reorder {
    /// Chance of each frame.
    #[serde(deserialize_with = "scalar")]
    pub probability: f64,
    /// How much later than due it arrives.
    #[serde(deserialize_with = "span")]
    pub late: Nanos,
}

/// Some frames arrive twice, the copy right behind the first.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Duplicate {
    /// Chance of each frame.
    #[serde(deserialize_with = "scalar")]
    pub probability: f64,
}

/// What waits for the line. The frame that is being sent waits no more and is not counted.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "QueueFile")]
pub struct Queue {
    /// What does not fit is dropped (drop-tail, whatever the management).
    pub limit: QueueLimit,
    /// Active queue management.
    pub aqm: Aqm,
    /// Marks packets of ECN-capable transports instead of dropping them (RFC 3168), where `aqm` chooses.
    pub ecn: bool,
}

impl Default for Queue {
    /// 1000 packets, drop-tail: Linux's usual `txqueuelen`.
    fn default() -> Queue {
        Queue {
            limit: QueueLimit::Packets(1000),
            aqm: Aqm::DropTail,
            ecn: false,
        }
    }
}

/// The most that a queue holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueLimit {
    /// In frames of any size.
    Packets(u64),
    /// In bytes of IP packets.
    Bytes(Bytes),
}

/// Active queue management.
#[derive(Clone, Debug, PartialEq)]
pub enum Aqm {
    /// Only the limit.
    DropTail,
    /// Controlled delay.
    CoDel(CoDelRule),
    /// Random early detection.
    Red(RedRule),
}

/// Controlled delay (RFC 8289); by default with the values of its section 4.4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoDelRule {
    /// Wait that is acceptable.
    #[serde(default = "five_ms", deserialize_with = "span")]
    pub target: Nanos,
    /// A worst-case round trip.
    #[serde(default = "hundred_ms", deserialize_with = "span")]
    pub interval: Nanos,
}

fn five_ms() -> Nanos {
    Nanos::from_millis(5)
}

fn hundred_ms() -> Nanos {
    Nanos::from_millis(100)
}

/// Random early detection (Floyd and Jacobson 1993), in the unit of the queue's limit (packets or
/// bytes). With `min` = `max` and `weight` 1 it is the step marking of DCTCP (RFC 8257).
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RedRule {
    /// Average depth below which nothing happens.
    #[serde(deserialize_with = "amount")]
    pub min: u64,
    /// Average depth from which on everything is marked or dropped.
    #[serde(deserialize_with = "amount")]
    pub max: u64,
    /// Chance at `max`.
    #[serde(default = "tenth", deserialize_with = "scalar")]
    pub probability: f64,
    /// Weight of the newest depth in the average, in (0, 1].
    #[serde(
        default = "two_thousandths",
        deserialize_with = "real::<_, 1, 1_000_000>"
    )]
    pub weight: f64,
}

fn tenth() -> f64 {
    0.1
}

/// Floyd and Jacobson's.
fn two_thousandths() -> f64 {
    0.002
}

/// A token bucket (RFC 2697), in bytes of IP packets.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bucket {
    /// Tokens arrive at this rate.
    #[serde(deserialize_with = "scalar")]
    pub rate: BitRate,
    /// The bucket holds this much; it begins full.
    #[serde(deserialize_with = "scalar")]
    pub burst: Bytes,
}

/// Of successive pure acknowledgements of one flow only the newest goes on (RFC 3449, section 5.2.2).
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AckThinning {
    /// At most this many become one.
    #[serde(deserialize_with = "whole::<_, _, 2, 9_999>")]
    pub of: u32,
    /// An acknowledgement waits at most this long for the next.
    #[serde(deserialize_with = "span")]
    pub hold: Nanos,
}

/// A rate that varies by itself: an Ornstein-Uhlenbeck process about 1, times the factor of the present state.
/// It scales the shaper where there is one, else the line.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateVariation {
    /// Standard deviation in the long run, as a part of the rate: 0.05 is 5 %.
    #[serde(deserialize_with = "real::<_, 0, 500_000>")]
    pub deviation: f64,
    /// Time constant with which it returns to the mean.
    #[serde(deserialize_with = "span")]
    pub time: Nanos,
    /// States that follow each other in turn; the first is the first. Empty: one, factor 1.
    #[serde(default)]
    pub states: Vec<RateState>,
}

/// One regime of a varying rate.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateState {
    /// What the rate is multiplied by.
    #[serde(deserialize_with = "real::<_, 10_000, 10_000_000>")]
    pub factor: f64,
    /// Mean length of a stay; single stays are exponential.
    #[serde(deserialize_with = "span")]
    pub stay: Nanos,
}

/// Frames of others on the same line.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cross {
    /// Rate on the wire while it sends.
    #[serde(deserialize_with = "scalar")]
    pub rate: BitRate,
    /// Size of its IP packets in bytes.
    #[serde(
        default = "usual_frame",
        deserialize_with = "whole::<_, _, 46, 65_535>"
    )]
    pub frame: u32,
    /// It sends for `on` and is silent for `off`, in turn; `off` 0: always.
    #[serde(default, deserialize_with = "span")]
    pub on: Nanos,
    /// See `on`.
    #[serde(default, deserialize_with = "span")]
    pub off: Nanos,
}

/// The usual MTU of Ethernet.
fn usual_frame() -> u32 {
    1500
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

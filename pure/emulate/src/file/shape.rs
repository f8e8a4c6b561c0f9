//! The keys that shape one direction of a link.

use super::value::{Of, OrOff, Real, Whole, some};
use super::{Fault, fault};
use crate::{
    AckThinning, Aqm, Bucket, CoDelRule, Cross, Duplicate, Jitter, Limit, Loss, Queue, RedRule,
    Reorder, Shape, Wander,
};
use model::{BitRate, Bytes, Nanos};
use serde::Deserialize;

/// What a table changes of a shape.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ShapeFile {
    rate: Option<OrOff<Of<BitRate>>>,
    #[serde(default, deserialize_with = "some")]
    packet_time: Option<Nanos>,
    #[serde(default, deserialize_with = "some")]
    delay: Option<Nanos>,
    jitter: Option<OrOff<Jitter>>,
    loss: Option<Loss>,
    bit_error_rate: Option<Of<Real<0, 10_000>>>,
    reorder: Option<OrOff<Reorder>>,
    duplicate: Option<OrOff<Duplicate>>,
    queue: Option<OrOff<Queue>>,
    policer: Option<OrOff<Bucket>>,
    shaper: Option<OrOff<Bucket>>,
    max_frame: Option<OrOff<u16>>,
    ack_thinning: Option<OrOff<AckThinning>>,
    pub(super) half_duplex: Option<bool>,
    wander: Option<OrOff<Wander>>,
    cross: Option<OrOff<Cross>>,
    // Of [[change]] alone.
    #[serde(default, deserialize_with = "some")]
    pub(super) at: Option<Nanos>,
    pub(super) link: Option<String>,
    pub(super) direction: Option<Toward>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Toward {
    Forward,
    Backward,
    Both,
}

/// Changes `into` as the file says.
fn set<T: Clone, U: From<T>>(into: &mut Option<U>, from: &Option<OrOff<T>>) {
    match from {
        None => {}
        Some(OrOff::Off) => *into = None,
        Some(OrOff::On(value)) => *into = Some(value.clone().into()),
    }
}

impl ShapeFile {
    /// Changes `shape`; `at` is where this table stands, `mtu` the link's.
    pub(super) fn apply(&self, shape: &mut Shape, at: usize, mtu: u32) -> Result<(), Fault> {
        set(&mut shape.rate, &self.rate);
        set(&mut shape.jitter, &self.jitter);
        set(&mut shape.reorder, &self.reorder);
        set(&mut shape.duplicate, &self.duplicate);
        set(&mut shape.queue, &self.queue);
        set(&mut shape.policer, &self.policer);
        set(&mut shape.shaper, &self.shaper);
        set(&mut shape.max_frame, &self.max_frame);
        set(&mut shape.ack_thinning, &self.ack_thinning);
        set(&mut shape.wander, &self.wander);
        set(&mut shape.cross, &self.cross);
        shape.loss = self.loss.clone().unwrap_or(shape.loss.clone());
        shape.delay = self.delay.unwrap_or(shape.delay);
        shape.packet_time = self.packet_time.unwrap_or(shape.packet_time);
        shape.half_duplex = self.half_duplex.unwrap_or(shape.half_duplex);
        if let Some(Of(Real(rate))) = self.bit_error_rate {
            shape.bit_error_rate = rate;
        }

        if let Some(OrOff::On(0..576)) = self.max_frame {
            let remedy = "write 576 to 65535";
            return fault(at, "max_frame", "'max_frame' is too small", remedy);
        }
        let mtu = u64::from(mtu);
        if let Some(OrOff::On(queue)) = &self.queue
            && let Limit::Bytes(Bytes(most)) = queue.limit
            && most < mtu
        {
            let what = format!("a queue of {most} B holds no frame of {mtu} B");
            let remedy = format!("write at least {mtu} bytes, or a limit in packets");
            return fault(at, "queue", what, remedy);
        }
        for (key, bucket) in [("policer", &self.policer), ("shaper", &self.shaper)] {
            if let Some(OrOff::On(Bucket { burst, .. })) = bucket
                && burst.0 < mtu
            {
                let what = format!("a burst of {} B lets no packet of {mtu} B pass", burst.0);
                let remedy = format!("write at least the link's MTU, {mtu}");
                return fault(at, key, what, remedy);
            }
        }
        if let Some(OrOff::On(Cross { on, off, .. })) = &self.cross
            && (on.0 == 0) != (off.0 == 0)
        {
            let what = "cross traffic has one of 'on' and 'off'";
            return fault(
                at,
                "cross",
                what,
                "give both, or neither for constant traffic",
            );
        }
        Ok(())
    }
}

/// Refuses what cannot have an effect. The tables at `places` made the shape, the last one last.
pub(super) fn effective(shape: &Shape, link: &str, places: &[usize]) -> Result<(), Fault> {
    let rated = shape.rate.is_some();
    let Shape { rate, shaper, .. } = shape;
    let faults = [
        (
            shape.queue.is_some() && !shape.is_limited(),
            "queue",
            "a queue without a rate never fills",
            "add a rate, a shaper or a packet_time in this direction",
        ),
        (
            shape.wander.is_some() && !rated && shaper.is_none(),
            "wander",
            "there is no rate that could vary",
            "add a rate or a shaper in this direction",
        ),
        (
            shape.cross.is_some() && !rated,
            "cross",
            "cross traffic on a line without a rate takes nothing",
            "add a rate in this direction",
        ),
        (
            shape.half_duplex && !rated,
            "half_duplex",
            "a line without a rate is never busy",
            "add a rate in this direction",
        ),
        (
            matches!((rate, shaper), (Some(rate), Some(s)) if s.rate >= *rate),
            "shaper",
            "a shaper as fast as the line delays nothing",
            "write a shaper slower than the rate",
        ),
    ];
    match faults.into_iter().find(|fault| fault.0) {
        None => Ok(()),
        Some((_, key, what, remedy)) => Err(Fault {
            at: places.iter().rev().copied().collect(),
            key,
            what: format!("link '{link}': {what}"),
            remedy: format!("{remedy}, or leave it out"),
        }),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct QueueFile {
    packets: Option<Of<Whole<1, { 1 << 30 }>>>,
    #[serde(default, deserialize_with = "some")]
    bytes: Option<Bytes>,
    codel: Option<CoDelRule>,
    red: Option<RedRule>,
    #[serde(default)]
    ecn: bool,
}

impl TryFrom<QueueFile> for Queue {
    type Error = String;

    fn try_from(file: QueueFile) -> Result<Queue, String> {
        let (limit, most) = match (file.packets, file.bytes) {
            (Some(Of(Whole(packets))), None) => (Limit::Packets(packets), packets),
            (None, Some(bytes)) => (Limit::Bytes(bytes), bytes.0),
            (Some(_), Some(_)) => {
                let what = "the queue is limited in packets and in bytes";
                return Err(format!("{what}; keep one of 'packets' and 'bytes'"));
            }
            (None, None) => {
                let remedy = "add packets = 1000 or bytes = \"256K\"";
                return Err(format!("the queue has no limit; {remedy}"));
            }
        };
        let (aqm, fault) = match (file.codel, file.red) {
            (None, None) => (
                Aqm::DropTail,
                file.ecn.then(|| {
                    "ecn in a drop-tail queue: nothing chooses what to mark; \
                     add codel = {} or red = {...}, or leave ecn out"
                        .to_owned()
                }),
            ),
            (Some(rule), None) => (
                Aqm::CoDel(rule),
                (rule.target >= rule.interval).then(|| {
                    let CoDelRule { target, interval } = rule;
                    format!(
                        "codel's target {target} is not below its interval {interval}; \
                         write a target of 5 to 10 % of the interval (\"5ms\", \"100ms\")"
                    )
                }),
            ),
            (None, Some(rule)) => (
                Aqm::Red(rule),
                (rule.min > rule.max || rule.max > most).then(|| {
                    format!(
                        "red's thresholds {} and {} do not rise within the limit {most}; \
                         write min <= max <= the queue's limit, in the same unit",
                        rule.min, rule.max
                    )
                }),
            ),
            (Some(_), Some(_)) => {
                return Err("the queue has codel and red; keep one of them".into());
            }
        };
        let ecn = file.ecn;
        fault.map_or(Ok(Queue { limit, aqm, ecn }), Err)
    }
}

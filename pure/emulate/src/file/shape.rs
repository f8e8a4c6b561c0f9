//! The keys that shape one direction of a link: tables laid over each other, then read and checked.

use super::ScenarioText;
use super::value::{AnyScalar, WholeNumber, some};
use crate::{Aqm, Bucket, CoDelRule, Cross, Queue, QueueLimit, RedRule, Shape};
use model::{Bytes, UserFileError};
use serde::Deserialize;
use toml::Spanned;
use toml::de::DeTable;

/// A table that is not read yet, and where it stands.
pub(super) type RawTable<'a> = Spanned<DeTable<'a>>;

/// What `"off"` takes away where another table gave it.
const CAN_BE_OFF: &str = "rate jitter loss reorder duplicate queue policer shaper max_frame \
                          ack_thinning rate_variation cross";

/// Lays the keys of a table over those of another.
pub(super) fn lay<'a>(over: &RawTable<'a>, table: &mut RawTable<'a>) {
    for (key, value) in over.get_ref() {
        let name: &str = key.get_ref();
        // Removed first, so that it stands where it was written last.
        table.get_mut().remove(name);
        if value.get_ref().as_str() != Some("off") || !CAN_BE_OFF.split(' ').any(|key| key == name)
        {
            table.get_mut().insert(key.clone(), value.clone());
        }
    }
}

/// Reads the shape of a direction of this link, and refuses what has no effect or passes no packet of the
/// link's MTU.
pub(super) fn shape(
    table: &RawTable<'_>,
    link: &str,
    mtu: u32,
    source: &ScenarioText<'_>,
) -> Result<Shape, UserFileError> {
    let shape: Shape = source.read(table.clone())?;
    let fault = |key, what: String, remedy: &str| {
        let at = table.get_ref().get_key_value(key);
        let at = at.map_or(table.span().start, |(key, _)| key.span().start);
        Err(source.0.error(at, what, remedy))
    };
    let mtu = u64::from(mtu);
    if let Some(QueueLimit::Bytes(Bytes(most))) = shape.queue.as_ref().map(|q| q.limit)
        && most < mtu
    {
        let what = format!("a queue of {most} B holds no frame of {mtu} B");
        let remedy = format!("write at least {mtu} bytes, or a limit in packets");
        return fault("queue", what, &remedy);
    }
    for (key, bucket) in [("policer", &shape.policer), ("shaper", &shape.shaper)] {
        if let Some(Bucket { burst, .. }) = bucket
            && burst.0 < mtu
        {
            let what = format!("a burst of {} B lets no packet of {mtu} B pass", burst.0);
            return fault(key, what, &format!("write at least the link's MTU, {mtu}"));
        }
    }
    if let Some(Cross { on, off, .. }) = &shape.cross
        && (on.0 == 0) != (off.0 == 0)
    {
        let what = "cross traffic has one of 'on' and 'off'".to_owned();
        return fault("cross", what, "give both, or neither for constant traffic");
    }
    let Shape { rate, shaper, .. } = &shape;
    let (rated, shaped) = (rate.is_some(), shaper.is_some());
    let (key, what, remedy) = if shape.queue.is_some() && !shape.is_limited() {
        let remedy = "add a rate, a shaper or a packet_time in this direction";
        ("queue", "a queue without a rate never fills", remedy)
    } else if shape.rate_variation.is_some() && !rated && !shaped {
        let remedy = "add a rate or a shaper in this direction";
        ("rate_variation", "there is no rate that could vary", remedy)
    } else if shape.cross.is_some() && !rated {
        let what = "cross traffic on a line without a rate takes nothing";
        ("cross", what, "add a rate in this direction")
    } else if shape.half_duplex && !rated {
        let what = "a line without a rate is never busy";
        ("half_duplex", what, "add a rate in this direction")
    } else if matches!((rate, shaper), (Some(rate), Some(s)) if s.rate >= *rate) {
        let what = "a shaper as fast as the line delays nothing";
        ("shaper", what, "write a shaper slower than the rate")
    } else {
        return Ok(shape);
    };
    let what = format!("link '{link}': {what}");
    fault(key, what, &format!("{remedy}, or leave it out"))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct QueueFile {
    packets: Option<AnyScalar<WholeNumber<1, { 1 << 30 }>>>,
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
            (Some(AnyScalar(WholeNumber(packets))), None) => {
                (QueueLimit::Packets(packets), packets)
            }
            (None, Some(bytes)) => (QueueLimit::Bytes(bytes), bytes.0),
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

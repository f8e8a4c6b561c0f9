//! The keys that shape one direction of a link.

use super::table::{Table, Value};
use crate::{
    AckThinning, Aqm, Bucket, Cross, Distribution, Duplicate, Error, Jitter, Limit, Loss, Queue,
    Reorder, Shape, State, Wander,
};
use model::Bytes;

/// All keys of a shape.
pub(super) const KEYS: [&str; 16] = [
    "rate",
    "packet_time",
    "delay",
    "jitter",
    "loss",
    "bit_error_rate",
    "reorder",
    "duplicate",
    "queue",
    "policer",
    "shaper",
    "max_frame",
    "ack_thinning",
    "half_duplex",
    "wander",
    "cross",
];

/// Most entries of a list in a shape.
const MAX_LIST: usize = 100_000;

type Entry<'t, 's, 'a> = Value<'t, 's, 'a>;

/// `base` with what the table says on top; `"off"` takes away what `base` has.
pub(super) fn patch(table: &Table<'_, '_>, base: &Shape, mtu: u32) -> Result<Shape, Error> {
    let mut shape = base.clone();
    optional(table, "rate", &mut shape.rate, |v| v.rate())?;
    optional(table, "jitter", &mut shape.jitter, jitter)?;
    optional(table, "loss", &mut shape.loss, loss)?;
    optional(table, "reorder", &mut shape.reorder, reorder)?;
    optional(table, "duplicate", &mut shape.duplicate, duplicate)?;
    optional(table, "queue", &mut shape.queue, |v| queue(v, mtu))?;
    optional(table, "policer", &mut shape.policer, |v| bucket(v, mtu))?;
    optional(table, "shaper", &mut shape.shaper, |v| bucket(v, mtu))?;
    optional(table, "max_frame", &mut shape.max_frame, |v| {
        Ok(v.whole(576..65_536)? as u32)
    })?;
    optional(table, "ack_thinning", &mut shape.ack_thinning, ack_thinning)?;
    optional(table, "wander", &mut shape.wander, wander)?;
    optional(table, "cross", &mut shape.cross, cross)?;
    if let Some(delay) = table.read("delay", |v| v.time())? {
        shape.delay = delay;
    }
    if let Some(time) = table.read("packet_time", |v| v.time())? {
        shape.packet_time = time;
    }
    if let Some(rate) = table.read("bit_error_rate", |v| v.real(0.0, 0.01))? {
        shape.bit_error_rate = rate;
    }
    if let Some(half) = table.read("half_duplex", |v| v.boolean())? {
        shape.half_duplex = half;
    }
    Ok(shape)
}

fn optional<'t, 's, 'a, V>(
    table: &Table<'s, 'a>,
    key: &'t str,
    into: &mut Option<V>,
    with: impl FnOnce(Value<'t, 's, 'a>) -> Result<V, Error>,
) -> Result<(), Error> {
    if let Some(value) = table.get(key) {
        *into = match value.is_off() {
            true => None,
            false => Some(with(value)?),
        };
    }
    Ok(())
}

/// Refuses what cannot have an effect. `tables` made the shape, the last one first.
pub(super) fn consistent(tables: &[&Table<'_, '_>], shape: &Shape) -> Result<(), Error> {
    let add = |what: &str| format!("add {what} in this direction, or leave it out");
    let fault = if shape.queue.is_some() && !shape.is_limited() {
        (
            "queue",
            "a queue without a rate never fills",
            add("a rate, a shaper or a packet_time"),
        )
    } else if shape.wander.is_some() && shape.rate.is_none() && shape.shaper.is_none() {
        (
            "wander",
            "there is no rate that could wander",
            add("a rate or a shaper"),
        )
    } else if shape.cross.is_some() && shape.rate.is_none() {
        (
            "cross",
            "cross traffic on a line without a rate takes nothing",
            add("a rate"),
        )
    } else if shape.half_duplex && shape.rate.is_none() {
        (
            "half_duplex",
            "a line without a rate is never busy",
            add("a rate"),
        )
    } else if let (Some(rate), Some(shaper)) = (shape.rate, &shape.shaper)
        && shaper.rate >= rate
    {
        let remedy = "write a shaper slower than the rate, or leave it out".to_owned();
        (
            "shaper",
            "a shaper as fast as the line delays nothing",
            remedy,
        )
    } else {
        return Ok(());
    };
    let (key, what, remedy) = fault;
    let [nearest, ..] = tables else { return Ok(()) };
    let table = tables.iter().find(|t| t.get(key).is_some());
    let table = table.unwrap_or(nearest);
    let what = format!("{}: {what}", table.subject);
    Err(table.source.fail(table.place(key), what, remedy))
}

fn jitter(v: Entry<'_, '_, '_>) -> Result<Jitter, Error> {
    let t = v.table("jitter", &["range", "distribution", "reorders"])?;
    let distribution = t.read("distribution", |v| {
        let expected = "\"uniform\", \"normal\" or \"exponential\"";
        match v.text(expected)? {
            "uniform" => Ok(Distribution::Uniform),
            "normal" => Ok(Distribution::Normal),
            "exponential" => Ok(Distribution::Exponential),
            other => Err(v.fail(
                format!("'distribution' is \"{}\"", other.escape_debug()),
                format!("write {expected}"),
            )),
        }
    })?;
    Ok(Jitter {
        range: t.need("range", "\"2ms\"")?.span()?,
        distribution: distribution.unwrap_or_default(),
        reorders: t.read("reorders", |v| v.boolean())?.unwrap_or(false),
    })
}

fn loss(v: Entry<'_, '_, '_>) -> Result<Loss, Error> {
    let kinds = ["random", "gilbert_elliott", "periodic", "at"];
    let t = v.table("loss", &kinds)?;
    let given: Vec<_> = kinds.iter().filter_map(|k| t.get(k)).collect();
    let [one] = given[..] else {
        return Err(v.fail(
            format!("loss has {} models", given.len()),
            format!("give one of {}", kinds.join(", ")),
        ));
    };
    Ok(match one.key {
        "random" => Loss::Random(one.probability()?),
        "periodic" => Loss::Periodic(one.whole(2..1 << 40)?),
        "at" => Loss::At(ascending(one)?),
        _ => {
            let keys = ["to_bad", "to_good", "lost_in_bad", "lost_in_good"];
            let t = one.table("gilbert_elliott", &keys)?;
            let to_good = t.need("to_good", "0.25")?;
            if to_good.probability()? == 0.0 {
                return Err(to_good.fail(
                    "'to_good' of 0 never leaves the bad state",
                    "write 1 / mean length of a burst (0.25 for 4 frames)",
                ));
            }
            Loss::GilbertElliott {
                to_bad: t.need("to_bad", "0.001")?.probability()?,
                to_good: to_good.probability()?,
                lost_in_bad: t.read("lost_in_bad", |v| v.probability())?.unwrap_or(1.0),
                lost_in_good: t.read("lost_in_good", |v| v.probability())?.unwrap_or(0.0),
            }
        }
    })
}

fn ascending(v: Entry<'_, '_, '_>) -> Result<Vec<u64>, Error> {
    let expected = "a list of frame numbers ([100, 101, 250])";
    let all = v.list(expected)?;
    let mut frames = Vec::new();
    for one in all.iter().take(MAX_LIST) {
        let frame = one.whole(1..1 << 40)?;
        if frames.last().is_some_and(|last| *last >= frame) {
            return Err(one.fail(
                format!("frame {frame} is not after the one before it"),
                "write the frames in order, each once",
            ));
        }
        frames.push(frame);
    }
    if all.is_empty() || all.len() > MAX_LIST {
        let what = format!("'{}' names {} frames", v.key, all.len());
        return Err(v.fail(what, format!("write 1 to {MAX_LIST} of them")));
    }
    Ok(frames)
}

fn reorder(v: Entry<'_, '_, '_>) -> Result<Reorder, Error> {
    let t = v.table("reorder", &["probability", "late"])?;
    Ok(Reorder {
        probability: t.need("probability", "0.01")?.probability()?,
        late: t.need("late", "\"1ms\"")?.span()?,
    })
}

fn duplicate(v: Entry<'_, '_, '_>) -> Result<Duplicate, Error> {
    let t = v.table("duplicate", &["probability"])?;
    Ok(Duplicate {
        probability: t.need("probability", "0.01")?.probability()?,
    })
}

fn queue(v: Entry<'_, '_, '_>, mtu: u32) -> Result<Queue, Error> {
    let t = v.table("queue", &["packets", "bytes", "codel", "red", "ecn"])?;
    let packets = t.read("packets", |v| v.whole(1..1 << 30))?;
    let bytes = t.read("bytes", |v| v.bytes())?;
    let limit = match (packets, bytes) {
        (Some(packets), None) => Limit::Packets(packets),
        (None, Some(bytes)) if bytes.0 < u64::from(mtu) => {
            return Err(v.fail(
                format!("a queue of {} B holds no frame of {mtu} B", bytes.0),
                format!("write at least {mtu} bytes, or a limit in packets"),
            ));
        }
        (None, Some(bytes)) => Limit::Bytes(bytes),
        (Some(_), Some(_)) => {
            return Err(v.fail(
                "the queue is limited in packets and in bytes",
                "keep one of 'packets' and 'bytes'",
            ));
        }
        (None, None) => {
            return Err(v.fail(
                "the queue has no limit",
                "add packets = 1000 or bytes = \"256K\"",
            ));
        }
    };
    let aqm = match (t.get("codel"), t.get("red")) {
        (None, None) => Aqm::DropTail,
        (Some(c), None) => codel(c)?,
        (None, Some(r)) => red(r, limit)?,
        (Some(_), Some(_)) => {
            return Err(v.fail("the queue has codel and red", "keep one of them"));
        }
    };
    let ecn = t.read("ecn", |v| v.boolean())?.unwrap_or(false);
    if ecn && aqm == Aqm::DropTail {
        return Err(t.source.fail(
            t.place("ecn"),
            "ecn in a drop-tail queue: nothing chooses what to mark",
            "add codel = {} or red = {...}, or leave ecn out",
        ));
    }
    Ok(Queue { limit, aqm, ecn })
}

fn codel(v: Entry<'_, '_, '_>) -> Result<Aqm, Error> {
    let t = v.table("codel", &["target", "interval"])?;
    // The defaults of RFC 8289, section 4.4.
    let target = t.read("target", |v| v.span())?;
    let interval = t.read("interval", |v| v.span())?;
    let target = target.unwrap_or(model::Nanos::from_millis(5));
    let interval = interval.unwrap_or(model::Nanos::from_millis(100));
    if target >= interval {
        return Err(v.fail(
            format!("codel's target {target} is not below its interval {interval}"),
            "write a target of 5 to 10 % of the interval (\"5ms\", \"100ms\")",
        ));
    }
    Ok(Aqm::CoDel { target, interval })
}

fn red(v: Entry<'_, '_, '_>, limit: Limit) -> Result<Aqm, Error> {
    let t = v.table("red", &["min", "max", "probability", "weight"])?;
    let depth = |v: Entry<'_, '_, '_>| match limit {
        Limit::Packets(_) => v.whole(1..1 << 30),
        Limit::Bytes(_) => v.bytes().map(|b| b.0),
    };
    let min = depth(t.need("min", "30")?)?;
    let max = depth(t.need("max", "90")?)?;
    let (Limit::Packets(most) | Limit::Bytes(Bytes(most))) = limit;
    if min > max || max > most {
        return Err(v.fail(
            format!("red's thresholds {min} and {max} do not rise within the limit {most}"),
            "write min <= max <= the queue's limit, in the same unit",
        ));
    }
    let weight = t.read("weight", |v| v.real(1e-6, 1.0))?;
    Ok(Aqm::Red {
        min,
        max,
        probability: t.read("probability", |v| v.probability())?.unwrap_or(0.1),
        // Floyd and Jacobson's 0.002.
        weight: weight.unwrap_or(0.002),
    })
}

fn bucket(v: Entry<'_, '_, '_>, mtu: u32) -> Result<Bucket, Error> {
    let t = v.table(v.key, &["rate", "burst"])?;
    let rate = t.need("rate", "\"100M\"")?.rate()?;
    let burst = t.need("burst", "\"64K\"")?;
    let bytes = burst.bytes()?;
    if bytes.0 < u64::from(mtu) {
        return Err(burst.fail(
            format!("a burst of {} B lets no packet of {mtu} B pass", bytes.0),
            format!("write at least the link's MTU, {mtu}"),
        ));
    }
    Ok(Bucket { rate, burst: bytes })
}

fn ack_thinning(v: Entry<'_, '_, '_>) -> Result<AckThinning, Error> {
    let t = v.table("ack_thinning", &["of", "hold"])?;
    Ok(AckThinning {
        of: t.need("of", "8")?.whole(2..10_000)? as u32,
        hold: t.need("hold", "\"1ms\"")?.span()?,
    })
}

fn wander(v: Entry<'_, '_, '_>) -> Result<Wander, Error> {
    let t = v.table("wander", &["deviation", "time", "states"])?;
    let mut states = Vec::new();
    if let Some(list) = t.get("states") {
        for one in list.list("a list of tables with factor and stay")? {
            let t = one.table("a state of wander", &["factor", "stay"])?;
            states.push(State {
                factor: t.need("factor", "0.7")?.real(0.01, 10.0)?,
                stay: t.need("stay", "\"3m\"")?.span()?,
            });
        }
    }
    Ok(Wander {
        deviation: t.need("deviation", "0.05")?.real(0.0, 0.5)?,
        time: t.need("time", "\"20m\"")?.span()?,
        states,
    })
}

fn cross(v: Entry<'_, '_, '_>) -> Result<Cross, Error> {
    let t = v.table("cross", &["rate", "frame", "on", "off"])?;
    let (on, off) = (t.read("on", |v| v.span())?, t.read("off", |v| v.span())?);
    if on.is_some() != off.is_some() {
        return Err(v.fail(
            "cross traffic has one of 'on' and 'off'",
            "give both, or neither for constant traffic",
        ));
    }
    Ok(Cross {
        rate: t.need("rate", "\"100M\"")?.rate()?,
        frame: t.read("frame", |v| v.whole(46..65_536))?.unwrap_or(1500) as u32,
        on: on.unwrap_or_default(),
        off: off.unwrap_or_default(),
    })
}

//! The queueing discipline at the root of a device, in words like those of tc(8).

use libc::{RTM_GETQDISC, RTM_NEWQDISC, TCA_KIND, TCA_OPTIONS};
use model::{BitRate, Bytes, Nanos};
use std::collections::BTreeMap;
use std::io;
use sys::netlink::{Conversation, NetlinkMessage, attribute, attributes, text, u32_at, u64_at};

/// Parent of the discipline at the root (`TC_H_ROOT`).
const ROOT: u32 = u32::MAX;

/// Describes the root discipline of a device: its kind, its parameters where their layout is known here,
/// and the kinds of the queues below a multi-queue root (RTM_GETQDISC).
///
/// `Ok(None)` if the kernel lists none for this device.
pub(crate) fn root(netlink: &mut Conversation, device_index: u32) -> io::Result<Option<String>> {
    // `struct tcmsg`: family, index, handle, parent, info.
    let mut question = vec![0; 20];
    question[4..8].copy_from_slice(&device_index.to_ne_bytes());
    let mut all = netlink.dump(RTM_GETQDISC, &question)?;
    // Older kernels dump every device whatever the question.
    all.retain(|answer| {
        answer.kind == RTM_NEWQDISC
            && answer.body.len() >= 20
            && u32_at(&answer.body, 4) == Some(device_index)
    });
    let parent = |qdisc: &NetlinkMessage| u32_at(&qdisc.body, 12).unwrap_or(0);
    let Some(root) = all.iter().find(|q| parent(q) == ROOT) else {
        return Ok(None);
    };
    let (kind, mut words) = describe(root);
    if kind.starts_with("mq") {
        let mut leaves = BTreeMap::new();
        let major = u32_at(&root.body, 8).map(|handle| handle >> 16);
        let is_leaf = |parent: u32| parent != ROOT && Some(parent >> 16) == major;
        for leaf in all.iter().filter(|q| is_leaf(parent(q))) {
            *leaves.entry(describe(leaf).1).or_insert(0u32) += 1;
        }
        for (leaf, count) in leaves {
            words.push_str(&format!(", {count} x {leaf}"));
        }
    }
    Ok(Some(words))
}

/// The kind of a discipline, and the same with its parameters.
fn describe(qdisc: &NetlinkMessage) -> (String, String) {
    let all = &qdisc.body[20..];
    let kind = attribute(all, TCA_KIND).map(text).unwrap_or_default();
    let options = attribute(all, TCA_OPTIONS).unwrap_or_default();
    let words = [vec![kind.clone()], parameters(&kind, options)].concat();
    (kind, words.join(" "))
}

/// Attributes of 32 bits: number, name and unit.
type Attributes = [(u16, &'static str, &'static str)];
/// Bytes a second; all ones: no limit.
const RATE: &str = "rate";
/// Shown by its name where it is on.
const SWITCH: &str = "switch";

/// `TCA_FQ_*`.
const FQ: &Attributes = &[
    (1, "limit", "p"),
    (2, "flow_limit", "p"),
    (3, "quantum", ""),
    (7, "maxrate", RATE),
];

/// `TCA_FQ_CODEL_*`.
const FQ_CODEL: &Attributes = &[
    (1, "target", "us"),
    (2, "limit", "p"),
    (3, "interval", "us"),
    (4, "ecn", SWITCH),
    (5, "flows", ""),
    (6, "quantum", ""),
    (7, "ce_threshold", "us"),
];

/// Those of a table, in the kernel's order.
fn listed(raw: &[u8], table: &Attributes) -> Vec<String> {
    let word = |(number, value)| {
        let (_, name, unit) = table.iter().find(|(known, ..)| *known == number)?;
        let value = u32_at(value, 0)?;
        match *unit {
            SWITCH => (value > 0).then(|| (*name).to_owned()),
            RATE if value == u32::MAX => None,
            RATE => Some(format!("{name} {}", per_second(value.into()))),
            unit => Some(format!("{name} {value}{unit}")),
        }
    };
    attributes(raw).filter_map(word).collect()
}

/// Parameters by the structures of `include/uapi/linux/pkt_sched.h`, for the kinds whose parameters decide
/// how fast a transfer can be. Malformed ones are left out.
fn parameters(kind: &str, raw: &[u8]) -> Vec<String> {
    match kind {
        // struct tc_fifo_qopt
        "pfifo" | "pfifo_head_drop" => known([u32_at(raw, 0).map(|n| format!("limit {n}p"))]),
        "bfifo" => known([u32_at(raw, 0).map(|n| format!("limit {n}b"))]),
        "tbf" => tbf(raw),
        "netem" => netem(raw),
        "fq" => listed(raw, FQ),
        "fq_codel" => listed(raw, FQ_CODEL),
        _ => Vec::new(),
    }
}

/// `TCA_TBF_PARMS` = 1 holds struct tc_tbf_qopt: two tc_ratespec of 12 bytes each (the rate in bytes a
/// second is the last word), limit, buffer and mtu; `TCA_TBF_RATE64` = 4 the rate if it exceeds 32 bits.
fn tbf(raw: &[u8]) -> Vec<String> {
    let Some(parms) = attribute(raw, 1) else {
        return Vec::new();
    };
    let rate = attribute(raw, 4).and_then(|a| u64_at(a, 0));
    let rate = rate.or_else(|| u32_at(parms, 8).map(u64::from));
    known([
        rate.map(|bytes| format!("rate {}", per_second(bytes))),
        u32_at(parms, 24).map(|bytes| format!("limit {}", Bytes(bytes.into()))),
    ])
}

/// struct tc_netem_qopt (latency and jitter in ticks of the packet scheduler, limit at 4, loss as a fraction
/// of 2^32 at 8), then attributes: `TCA_NETEM_RATE` = 6 (its first word in bytes a second), `RATE64` = 8,
/// `LATENCY64` = 10 and `JITTER64` = 11 in nanoseconds.
fn netem(raw: &[u8]) -> Vec<String> {
    let attributes = raw.get(24..).unwrap_or_default();
    let long = |kind| attribute(attributes, kind).and_then(|a| u64_at(a, 0));
    let time = |kind| long(kind).filter(|t| *t > 0).map(Nanos);
    let rate = long(8);
    let rate = rate.or_else(|| u32_at(attribute(attributes, 6)?, 0).map(u64::from));
    known([
        u32_at(raw, 4).map(|packets| format!("limit {packets}p")),
        time(10).map(|delay| format!("delay {delay}")),
        time(11).map(|jitter| format!("jitter {jitter}")),
        u32_at(raw, 8)
            .filter(|loss| *loss > 0)
            .map(|loss| format!("loss {:.3}%", f64::from(loss) / f64::from(u32::MAX) * 100.0)),
        rate.filter(|r| *r > 0)
            .map(|bytes| format!("rate {}", per_second(bytes))),
    ])
}

fn known<const N: usize>(parameters: [Option<String>; N]) -> Vec<String> {
    parameters.into_iter().flatten().collect()
}

fn per_second(bytes: u64) -> BitRate {
    BitRate(bytes.saturating_mul(8))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sys::netlink::push;

    fn words(numbers: &[u32]) -> Vec<u8> {
        numbers.iter().flat_map(|n| n.to_ne_bytes()).collect()
    }

    #[test]
    fn delay_loss_and_rate_of_netem_are_decoded() {
        let mut raw = words(&[0, 1000, u32::MAX / 100, 0, 0, 0]);
        push(&mut raw, 10, &20_000_000u64.to_ne_bytes());
        push(&mut raw, 11, &0u64.to_ne_bytes());
        push(&mut raw, 6, &words(&[12_500_000, 0, 0, 0]));
        assert_eq!(
            parameters("netem", &raw).join(" "),
            "limit 1000p delay 20.0 ms loss 1.000% rate 100 Mbit/s"
        );
    }

    #[test]
    fn fq_and_the_fifos() {
        let mut raw = Vec::new();
        push(&mut raw, 1, &words(&[10_000]));
        push(&mut raw, 2, &words(&[100]));
        push(&mut raw, 7, &words(&[u32::MAX]));
        assert_eq!(
            parameters("fq", &raw).join(" "),
            "limit 10000p flow_limit 100p"
        );
        let mut raw = Vec::new();
        for (kind, number) in [
            (1, 4999),
            (2, 10_240),
            (3, 99_999),
            (4, 1),
            (6, 1514),
            (8, 64),
        ] {
            push(&mut raw, kind, &words(&[number]));
        }
        assert_eq!(
            parameters("fq_codel", &raw).join(" "),
            "target 4999us limit 10240p interval 99999us ecn quantum 1514"
        );
        assert_eq!(parameters("pfifo", &words(&[1000])), ["limit 1000p"]);
        assert_eq!(parameters("bfifo", &words(&[1000])), ["limit 1000b"]);
        assert!(parameters("sfq", &words(&[1000])).is_empty());
    }

    proptest! {
        #[test]
        fn any_block_is_described(
            kind in prop::sample::select(vec!["tbf", "netem", "fq", "fq_codel", "pfifo"]),
            raw in proptest::collection::vec(any::<u8>(), 0..100),
        ) {
            parameters(kind, &raw);
        }
    }
}

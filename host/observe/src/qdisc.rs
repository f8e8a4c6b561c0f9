//! The queueing discipline at the root of a device, in words like those of tc(8).

use crate::netlink::Rtnetlink;
use model::{BitRate, Bytes, Nanos};
use netlink_packet_core::{Nla, NlasIterator};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{
    TcAttribute, TcHandle, TcMessage, TcOption, TcQdiscFqCodelOption as FqCodel,
};
use std::collections::BTreeMap;
use std::io;

/// Describes the root discipline of a device: its kind, its parameters where their layout is known here,
/// and the kinds of the queues below a multi-queue root (RTM_GETQDISC).
///
/// `Ok(None)` if the kernel lists none for this device.
pub(crate) fn root(netlink: &mut Rtnetlink, device_index: u32) -> io::Result<Option<String>> {
    let index = i32::try_from(device_index).unwrap_or(0);
    let question = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::with_index(index));
    // Older kernels dump every device whatever the question.
    let of_device = |answer| match answer {
        RouteNetlinkMessage::NewQueueDiscipline(qdisc) if qdisc.header.index == index => {
            Some(qdisc)
        }
        _ => None,
    };
    let answers = netlink.dump(question)?.into_iter();
    let all: Vec<TcMessage> = answers.filter_map(of_device).collect();
    let Some(root) = all.iter().find(|q| q.header.parent == TcHandle::ROOT) else {
        return Ok(None);
    };
    let mut words = describe(root);
    if kind(root).starts_with("mq") {
        let mut leaves = BTreeMap::new();
        let major = root.header.handle.major;
        let is_leaf = |parent: TcHandle| parent != TcHandle::ROOT && parent.major == major;
        for leaf in all.iter().filter(|q| is_leaf(q.header.parent)) {
            *leaves.entry(describe(leaf)).or_insert(0u32) += 1;
        }
        for (leaf, count) in leaves {
            words.push_str(&format!(", {count} x {leaf}"));
        }
    }
    Ok(Some(words))
}

fn kind(qdisc: &TcMessage) -> &str {
    let kind = qdisc.attributes.iter().find_map(|a| match a {
        TcAttribute::Kind(kind) => Some(kind.as_str()),
        _ => None,
    });
    kind.unwrap_or_default()
}

fn describe(qdisc: &TcMessage) -> String {
    let kind = kind(qdisc);
    let options = qdisc.attributes.iter().find_map(|a| match a {
        TcAttribute::Options(options) => Some(&options[..]),
        _ => None,
    });
    let parameters = match options {
        // Kinds that the netlink crate does not know come as one block of bytes.
        Some([TcOption::Other(block)]) => {
            let mut raw = vec![0; block.value_len()];
            block.emit_value(&mut raw);
            parameters(kind, &raw)
        }
        Some(options) if kind == "fq_codel" => fq_codel(options),
        _ => Vec::new(),
    };
    [vec![kind.to_owned()], parameters].concat().join(" ")
}

fn fq_codel(options: &[TcOption]) -> Vec<String> {
    let word = |option: &TcOption| {
        let TcOption::FqCodel(option) = option else {
            return None;
        };
        Some(match option {
            FqCodel::Limit(packets) => format!("limit {packets}p"),
            FqCodel::Flows(flows) => format!("flows {flows}"),
            FqCodel::Quantum(bytes) => format!("quantum {bytes}"),
            FqCodel::Target(us) => format!("target {us}us"),
            FqCodel::Interval(us) => format!("interval {us}us"),
            FqCodel::CeThreshold(us) => format!("ce_threshold {us}us"),
            FqCodel::Ecn(1..) => "ecn".to_owned(),
            _ => return None,
        })
    };
    options.iter().filter_map(word).collect()
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
        "fq" => fq(raw),
        _ => Vec::new(),
    }
}

/// `TCA_TBF_PARMS` = 1 holds struct tc_tbf_qopt: two tc_ratespec of 12 bytes each (the rate in bytes a
/// second is the last word), limit, buffer and mtu; `TCA_TBF_RATE64` = 4 the rate if it exceeds 32 bits.
fn tbf(raw: &[u8]) -> Vec<String> {
    let attributes = attributes(raw, 0);
    let Some(parms) = attributes.get(&1) else {
        return Vec::new();
    };
    let rate = attributes.get(&4).and_then(|a| u64_at(a, 0));
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
    let attributes = attributes(raw, 24);
    let long = |kind| attributes.get(&kind).and_then(|a| u64_at(a, 0));
    let time = |kind| long(kind).filter(|t| *t > 0).map(Nanos);
    let rate = long(8);
    let rate = rate.or_else(|| u32_at(attributes.get(&6)?, 0).map(u64::from));
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

/// Attributes `TCA_FQ_PLIMIT` = 1, `FLOW_PLIMIT` = 2, `QUANTUM` = 3, `FLOW_MAX_RATE` = 7.
fn fq(raw: &[u8]) -> Vec<String> {
    let attributes = attributes(raw, 0);
    let number = |kind| attributes.get(&kind).and_then(|a| u32_at(a, 0));
    known([
        number(1).map(|packets| format!("limit {packets}p")),
        number(2).map(|packets| format!("flow_limit {packets}p")),
        number(3).map(|bytes| format!("quantum {bytes}")),
        // All ones: no limit.
        number(7)
            .filter(|rate| *rate != u32::MAX)
            .map(|bytes| format!("maxrate {}", per_second(bytes.into()))),
    ])
}

fn known<const N: usize>(parameters: [Option<String>; N]) -> Vec<String> {
    parameters.into_iter().flatten().collect()
}

fn per_second(bytes: u64) -> BitRate {
    BitRate(bytes.saturating_mul(8))
}

fn u32_at(raw: &[u8], offset: usize) -> Option<u32> {
    let bytes = raw.get(offset..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*bytes))
}

fn u64_at(raw: &[u8], offset: usize) -> Option<u64> {
    let bytes = raw.get(offset..)?.first_chunk()?;
    Some(u64::from_ne_bytes(*bytes))
}

/// Netlink attributes from `offset` on, up to the first that is broken.
fn attributes(raw: &[u8], offset: usize) -> BTreeMap<u16, Vec<u8>> {
    NlasIterator::new(raw.get(offset..).unwrap_or_default())
        .map_while(Result::ok)
        .map(|attribute| (attribute.kind(), attribute.value().to_vec()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut raw = Vec::new();
        raw.extend((4 + value.len() as u16).to_ne_bytes());
        raw.extend(kind.to_ne_bytes());
        raw.extend(value);
        raw.resize(raw.len().next_multiple_of(4), 0);
        raw
    }

    fn words(numbers: &[u32]) -> Vec<u8> {
        numbers.iter().flat_map(|n| n.to_ne_bytes()).collect()
    }

    #[test]
    fn netem_tells_delay_loss_and_rate() {
        let mut raw = words(&[0, 1000, u32::MAX / 100, 0, 0, 0]);
        raw.extend(attribute(10, &20_000_000u64.to_ne_bytes()));
        raw.extend(attribute(11, &0u64.to_ne_bytes()));
        raw.extend(attribute(6, &words(&[12_500_000, 0, 0, 0])));
        assert_eq!(
            parameters("netem", &raw).join(" "),
            "limit 1000p delay 20.0 ms loss 1.000% rate 100 Mbit/s"
        );
    }

    #[test]
    fn fq_and_the_fifos() {
        let mut raw = attribute(1, &words(&[10_000]));
        raw.extend(attribute(2, &words(&[100])));
        raw.extend(attribute(7, &words(&[u32::MAX])));
        assert_eq!(
            parameters("fq", &raw).join(" "),
            "limit 10000p flow_limit 100p"
        );
        assert_eq!(parameters("pfifo", &words(&[1000])), ["limit 1000p"]);
        assert_eq!(parameters("bfifo", &words(&[1000])), ["limit 1000b"]);
        assert!(parameters("sfq", &words(&[1000])).is_empty());
    }

    proptest! {
        #[test]
        fn any_block_is_described(
            kind in prop::sample::select(vec!["tbf", "netem", "fq", "pfifo"]),
            raw in proptest::collection::vec(any::<u8>(), 0..100),
        ) {
            parameters(kind, &raw);
        }
    }
}

//! Queueing discipline at the root of a device. Only one that can be restored verbatim is replaced: the
//! kernel's own choice, or one of a few simple kinds, whose options are sent back as received.

use super::{Image, KnobDevice, KnobFailure, Part, from_image, refuse, to_image};
use crate::kernel::{
    CREATE, REPLACE, attribute, from_hex, nest, push, text, to_hex, u32_at, u64_at,
};
use crate::prelude::*;
use libc::{
    RTM_DELQDISC, RTM_GETQDISC, RTM_GETTFILTER, RTM_NEWQDISC, RTM_NEWTFILTER, TCA_KIND,
    TCA_OPTIONS, TCA_STAB,
};
use model::{Qdisc, QdiscKind};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Root {
    pub device: KnobDevice,
}

// include/uapi/linux/rtnetlink.h, pkt_sched.h
const TC_H_ROOT: u32 = 0xFFFF_FFFF;
/// Of arriving packets: not at the root, and untouched by what is done there.
const TC_H_INGRESS: u32 = 0xFFFF_FFF1;
/// `PSCHED_SHIFT`: times of the packet scheduler are in units of 64 ns.
const TICK_NS: u64 = 64;

/// One discipline of the device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct One {
    parent: u32,
    /// 0: the kernel's own choice.
    handle: u32,
    kind: String,
    /// Options as reported by the kernel, in hexadecimal.
    options: Option<String>,
    /// With a size table, which is not reported whole.
    stab: bool,
}

impl Root {
    fn tcmsg(&self, parent: u32, handle: u32) -> Vec<u8> {
        let mut body = vec![0; 4];
        for number in [self.device.index, handle, parent, 0] {
            body.extend(number.to_ne_bytes());
        }
        body
    }

    fn all(&self, kernel: &mut Kernel) -> Result<Vec<One>, KnobFailure> {
        // A device that is gone has no disciplines, and the dump does not mind.
        KnobDevice::by_index(kernel, self.device.index)?;
        let answers = kernel.dump(RTM_GETQDISC, &self.tcmsg(0, 0))?;
        let ours = answers.iter().filter(|answer| {
            answer.kind == RTM_NEWQDISC
                && u32_at(&answer.body, 4) == Some(self.device.index)
                && u32_at(&answer.body, 12) != Some(TC_H_INGRESS)
        });
        let read = |body: &[u8]| {
            let all = body.get(20..)?;
            Some(One {
                parent: u32_at(body, 12)?,
                handle: u32_at(body, 8)?,
                kind: attribute(all, TCA_KIND).map(text).unwrap_or_default(),
                options: attribute(all, TCA_OPTIONS).map(to_hex),
                stab: attribute(all, TCA_STAB).is_some(),
            })
        };
        Ok(ours.filter_map(|answer| read(&answer.body)).collect())
    }

    fn is_filtered(&self, kernel: &mut Kernel) -> Result<bool, KnobFailure> {
        // Without a parent: of the root.
        match kernel.dump(RTM_GETTFILTER, &self.tcmsg(0, 0)) {
            Ok(answers) => Ok(answers.iter().any(|a| a.kind == RTM_NEWTFILTER)),
            Err(refusal) if matches!(refusal.errno, libc::EOPNOTSUPP | libc::EINVAL) => Ok(false),
            Err(refusal) => Err(refusal.into()),
        }
    }
}

fn asked(setting: &Setting) -> Result<Qdisc, KnobFailure> {
    match &setting.value {
        Value::Word(word) => word.parse().map_err(KnobFailure::Words),
        Value::Number(_) | Value::Numbers(_) | Value::Switch(_) => {
            refuse("the value is no queueing discipline")
        }
    }
}

impl Part for Root {
    fn read(&self, kernel: &mut Kernel) -> Result<Image, KnobFailure> {
        to_image(self.all(kernel)?)
    }

    fn plan(
        &self,
        kernel: &mut Kernel,
        setting: &Setting,
        before: &Image,
    ) -> Result<(), KnobFailure> {
        asked(setting)?;
        let before: Vec<One> = from_image(before, "the former one")?;
        let name = &self.device.name;
        let why = if before.iter().all(|one| one.handle == 0) {
            return Ok(());
        } else if before.len() > 1 {
            "has others below it"
        } else if before
            .iter()
            .any(|one| QdiscKind::named(&one.kind).is_none())
        {
            "is of a kind whose state cannot be read whole"
        } else if before.iter().any(|one| one.stab) {
            "has a size table"
        } else if self.is_filtered(kernel)? {
            "has filters"
        } else {
            return Ok(());
        };
        refuse(format!(
            "the queueing discipline of {name} {why}, so it could not be restored verbatim; \
             replace it by hand (tc qdisc replace dev {name} root ...) if it may go"
        ))
    }

    fn apply(&self, kernel: &mut Kernel, setting: &Setting) -> Result<(), KnobFailure> {
        let qdisc = asked(setting)?;
        let mut body = self.tcmsg(TC_H_ROOT, 0);
        push(
            &mut body,
            TCA_KIND,
            &[qdisc.kind.name().as_bytes(), &[0]].concat(),
        );
        options(&qdisc, &mut body);
        match kernel.order(RTM_NEWQDISC, CREATE | REPLACE, &body) {
            Err(refusal) if refusal.errno == libc::ENOENT => refuse(format!(
                "this kernel does not have the queueing discipline {} (module sch_{0})",
                qdisc.kind.name()
            )),
            other => Ok(other?),
        }
    }

    fn found(&self, kernel: &mut Kernel) -> Result<Option<Value>, KnobFailure> {
        let all = self.all(kernel)?;
        let root = all.iter().find(|one| one.parent == TC_H_ROOT);
        Ok(root.map(|one| {
            let options = one.options.as_deref().and_then(from_hex);
            let qdisc = QdiscKind::named(&one.kind).map(|kind| Qdisc {
                kind,
                parameters: parameters(kind, &options.unwrap_or_default()),
            });
            Value::Word(qdisc.map_or(one.kind.clone(), |qdisc| qdisc.to_string()))
        }))
    }

    fn restore(&self, kernel: &mut Kernel, before: &Image) -> Result<(), KnobFailure> {
        let before: Vec<One> = from_image(before, "the former one")?;
        let done = match before.iter().find(|one| one.handle != 0) {
            None => {
                // The kernel puts its own choice there again.
                match kernel.order(RTM_DELQDISC, 0, &self.tcmsg(TC_H_ROOT, 0)) {
                    Err(refusal) if refusal.errno == libc::ENOENT => Ok(()),
                    other => other,
                }
            }
            Some(one) => {
                let mut body = self.tcmsg(TC_H_ROOT, one.handle);
                push(&mut body, TCA_KIND, &[one.kind.as_bytes(), &[0]].concat());
                if let Some(options) = one.options.as_deref().and_then(from_hex) {
                    push(&mut body, TCA_OPTIONS, &options);
                }
                kernel.order(RTM_NEWQDISC, CREATE | REPLACE, &body)
            }
        };
        step("queueing discipline restored");
        Ok(done?)
    }

    /// Those parameters that were asked for. The kernel rounds some: it counts a burst in time, and the
    /// times of fq_codel in units of 1024 ns.
    fn is(&self, asked: &Value, found: &Value) -> bool {
        let (Value::Word(asked), Value::Word(found)) = (asked, found) else {
            return false;
        };
        let (Ok(asked), Ok(found)) = (asked.parse::<Qdisc>(), found.parse::<Qdisc>()) else {
            return false;
        };
        let tick_bytes = bytes_in(asked.parameter("rate").unwrap_or(0), TICK_NS) + 1;
        asked.kind == found.kind
            && asked.parameters.iter().all(|(name, value)| {
                found.parameter(name).is_some_and(|now| match *name {
                    "burst" => value.abs_diff(now) <= tick_bytes,
                    "target" | "interval" => value.abs_diff(now) <= 2,
                    _ => now == *value,
                })
            })
    }
}

fn bytes_in(rate_bit_s: u64, ns: u64) -> u64 {
    let bytes = u128::from(rate_bit_s) * u128::from(ns) / 8_000_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// The parameters that are one attribute each, with its number (`TCA_FQ_CODEL_*`, `TCA_FQ_*`).
fn attributes_of(kind: QdiscKind) -> &'static [(&'static str, u16)] {
    match kind {
        QdiscKind::FqCodel => &[
            ("limit", 2),
            ("flows", 5),
            ("target", 1),
            ("interval", 3),
            ("quantum", 6),
            ("ecn", 4),
        ],
        QdiscKind::Fq => &[
            ("limit", 1),
            ("flow_limit", 2),
            ("quantum", 3),
            ("maxrate", 7),
            ("pacing", 5),
        ],
        QdiscKind::Noqueue
        | QdiscKind::PfifoFast
        | QdiscKind::Pfifo
        | QdiscKind::Bfifo
        | QdiscKind::Tbf => &[],
    }
}

const TCA_TBF_PARMS: u16 = 1;
const TCA_TBF_RATE64: u16 = 4;
const TCA_TBF_BURST: u16 = 6;

fn options(qdisc: &Qdisc, body: &mut Vec<u8>) {
    // Sizes and counts were checked to fit when the setting was read.
    let word = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    match qdisc.kind {
        QdiscKind::Noqueue | QdiscKind::PfifoFast => {}
        QdiscKind::Pfifo | QdiscKind::Bfifo => {
            if let Some(limit) = qdisc.parameter("limit") {
                push(body, TCA_OPTIONS, &word(limit).to_ne_bytes());
            }
        }
        QdiscKind::FqCodel | QdiscKind::Fq => {
            let mut all = Vec::new();
            for (name, value) in &qdisc.parameters {
                // The kernel's rate is in bytes a second.
                let value = value / if *name == "maxrate" { 8 } else { 1 };
                let known = attributes_of(qdisc.kind).iter();
                for (_, kind) in known.filter(|(known, _)| known == name) {
                    push(&mut all, *kind, &word(value).to_ne_bytes());
                }
            }
            if !all.is_empty() {
                nest(body, TCA_OPTIONS, &all);
            }
        }
        QdiscKind::Tbf => {
            let bytes_per_s = qdisc.parameter("rate").unwrap_or(0) / 8;
            // struct tc_tbf_qopt: two tc_ratespec (the second for a peak rate), limit, buffer, mtu.
            let mut parms = vec![0; 36];
            const TC_LINKLAYER_ETHERNET: u8 = 1;
            parms[1] = TC_LINKLAYER_ETHERNET;
            parms[8..12].copy_from_slice(&word(bytes_per_s).to_ne_bytes());
            let limit = word(qdisc.parameter("limit").unwrap_or(0));
            parms[24..28].copy_from_slice(&limit.to_ne_bytes());
            let mut all = Vec::new();
            push(&mut all, TCA_TBF_PARMS, &parms);
            let burst = word(qdisc.parameter("burst").unwrap_or(0));
            push(&mut all, TCA_TBF_BURST, &burst.to_ne_bytes());
            if u32::try_from(bytes_per_s).is_err() {
                push(&mut all, TCA_TBF_RATE64, &bytes_per_s.to_ne_bytes());
            }
            nest(body, TCA_OPTIONS, &all);
        }
    }
}

/// The settable parameters, from the kernel's report.
fn parameters(kind: QdiscKind, options: &[u8]) -> Vec<(&'static str, u64)> {
    let value = |wanted| attribute(options, wanted);
    let number = |wanted| value(wanted).and_then(|v| u32_at(v, 0)).map(u64::from);
    match kind {
        QdiscKind::Pfifo | QdiscKind::Bfifo => {
            let limit = u32_at(options, 0).map(|limit| ("limit", limit.into()));
            return limit.into_iter().collect();
        }
        QdiscKind::Tbf => {
            let Some(parms) = value(TCA_TBF_PARMS) else {
                return Vec::new();
            };
            let rate = value(TCA_TBF_RATE64).and_then(|v| u64_at(v, 0));
            let rate = rate.or_else(|| u32_at(parms, 8).map(u64::from));
            let rate = rate.unwrap_or(0) * 8;
            let ticks = u32_at(parms, 28).unwrap_or(0);
            let burst = bytes_in(rate, u64::from(ticks) * TICK_NS);
            let limit = u32_at(parms, 24).unwrap_or(0).into();
            return vec![("rate", rate), ("burst", burst), ("limit", limit)];
        }
        QdiscKind::Noqueue | QdiscKind::PfifoFast | QdiscKind::FqCodel | QdiscKind::Fq => {}
    }
    let read = |(name, kind): &(&'static str, u16)| match (*name, number(*kind)?) {
        // All ones: no limit.
        ("maxrate", value) if value == u64::from(u32::MAX) => None,
        ("maxrate", value) => Some((*name, value * 8)),
        (_, value) => Some((*name, value)),
    };
    attributes_of(kind).iter().filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reported_options_are_those_that_were_sent() {
        for text in [
            "noqueue",
            "pfifo limit 100",
            "bfifo limit 64K",
            "fq_codel limit 1000 flows 512 target 5000us interval 100000us quantum 1514 ecn 1",
            "fq limit 10000 flow_limit 100 quantum 3028 maxrate 800M pacing 1",
        ] {
            let qdisc: Qdisc = text.parse().unwrap();
            let mut body = Vec::new();
            options(&qdisc, &mut body);
            let sent = attribute(&body, TCA_OPTIONS).unwrap_or_default();
            assert_eq!(parameters(qdisc.kind, sent), qdisc.parameters, "{text}");
        }
    }

    #[test]
    fn in_force_is_the_requested_kind_with_the_requested_parameters() {
        let device = KnobDevice {
            index: 1,
            name: "eth0".to_owned(),
        };
        let root = Root { device };
        let tbf = "tbf rate 1G burst 32000 limit 400000";
        for (asked, found, expected) in [
            ("pfifo limit 100", "pfifo limit 100", true),
            ("pfifo limit 100", "pfifo limit 101", false),
            ("pfifo limit 100", "bfifo limit 100", false),
            ("fq", "fq limit 10000 quantum 3028", true),
            ("fq quantum 3028", "fq limit 10000", false),
            // At 1 Gbit/s, 64 ns are 8 bytes.
            (tbf, "tbf rate 1G burst 31991 limit 400000", true),
            (tbf, "tbf rate 1G burst 31990 limit 400000", false),
            (tbf, "tbf rate 1G burst 32000 limit 399999", false),
            ("fq_codel target 5000us", "fq_codel target 4998us", true),
            ("fq_codel target 5000us", "fq_codel target 4997us", false),
        ] {
            let [was_asked, was_found] = [asked, found].map(|text| Value::Word(text.to_owned()));
            assert_eq!(
                root.is(&was_asked, &was_found),
                expected,
                "{asked}: {found}"
            );
        }
    }

    #[test]
    fn a_bucket_is_sent_in_bytes_and_read_back_from_ticks() {
        let sent = |text: &str| {
            let mut body = Vec::new();
            options(&text.parse().unwrap(), &mut body);
            attribute(&body, TCA_OPTIONS).unwrap().to_vec()
        };
        let number = |list: &[u8], kind: u16, at: usize| u32_at(attribute(list, kind).unwrap(), at);
        let slow = sent("tbf rate 1G burst 32000 limit 400000");
        assert_eq!(number(&slow, TCA_TBF_PARMS, 8), Some(125_000_000));
        assert_eq!(number(&slow, TCA_TBF_PARMS, 24), Some(400_000));
        assert_eq!(number(&slow, TCA_TBF_BURST, 0), Some(32_000));
        assert_eq!(attribute(&slow, TCA_TBF_RATE64), None);
        let fast = sent("tbf rate 40G burst 1M limit 4M");
        assert_eq!(number(&fast, TCA_TBF_PARMS, 8), Some(u32::MAX));
        let rate = attribute(&fast, TCA_TBF_RATE64).and_then(|v| u64_at(v, 0));
        assert_eq!(rate, Some(5_000_000_000));
        // As the kernel reports it: 8 Gbit/s, 1000 ticks of 64 ns.
        let report = |rate64: Option<u64>| {
            let mut parms = [0; 36];
            parms[8..12].copy_from_slice(&1_000_000_000u32.to_ne_bytes());
            parms[24..28].copy_from_slice(&7000u32.to_ne_bytes());
            parms[28..32].copy_from_slice(&1000u32.to_ne_bytes());
            let mut list = Vec::new();
            push(&mut list, TCA_TBF_PARMS, &parms);
            rate64
                .iter()
                .for_each(|rate| push(&mut list, TCA_TBF_RATE64, &rate.to_ne_bytes()));
            parameters(QdiscKind::Tbf, &list)
        };
        let of = |rate, burst| vec![("rate", rate), ("burst", burst), ("limit", 7000)];
        assert_eq!(report(None), of(8_000_000_000, 64_000));
        assert_eq!(report(Some(5_000_000_000)), of(40_000_000_000, 320_000));
        assert_eq!(parameters(QdiscKind::Tbf, &[]), []);
    }

    #[test]
    fn no_limit_of_the_rate_is_no_parameter() {
        let report = |maxrate: u32| {
            let mut list = Vec::new();
            push(&mut list, 7, &maxrate.to_ne_bytes());
            push(&mut list, 1, &9u32.to_ne_bytes());
            parameters(QdiscKind::Fq, &list)
        };
        assert_eq!(report(u32::MAX), [("limit", 9)]);
        assert_eq!(report(1000), [("limit", 9), ("maxrate", 8000)]);
    }

    #[test]
    fn only_what_can_be_restored_is_replaced() {
        let root = Root {
            device: KnobDevice {
                index: 1,
                name: "lo".to_owned(),
            },
        };
        let one = |handle, kind: &str, stab| One {
            parent: TC_H_ROOT,
            handle,
            kind: kind.to_owned(),
            options: None,
            stab,
        };
        let mut kernel = crate::kernel::kernel().unwrap();
        let setting: Setting = "device.qdisc=pfifo limit 100".parse().unwrap();
        let mut plan = |before: &[One]| {
            let image = to_image(before).map_err(drop).unwrap();
            match root.plan(&mut kernel, &setting, &image) {
                Ok(()) => String::new(),
                Err(KnobFailure::Words(why)) => why,
                Err(KnobFailure::Forbidden | KnobFailure::Gone) => "refused".to_owned(),
            }
        };
        assert_eq!(plan(&[]), "");
        assert_eq!(
            plan(&[one(0, "mq", false), one(0, "fq_codel", true)]),
            "",
            "the kernel's own"
        );
        assert_eq!(plan(&[one(5, "pfifo", false)]), "");
        let two = [one(5, "pfifo", false), one(0, "pfifo", false)];
        assert!(plan(&two).contains("of lo has others below it"));
        assert!(plan(&[one(5, "htb", false)]).contains("is of a kind"));
        assert!(plan(&[one(5, "pfifo", true)]).contains("has a size table"));
    }

    #[test]
    fn only_words_name_a_discipline() {
        let device = KnobDevice {
            index: 7,
            name: "eth0".to_owned(),
        };
        let root = Root { device };
        let word = |text: &str| Value::Word(text.to_owned());
        for (asked, found) in [
            (Value::Number(1), word("pfifo")),
            (word("pfifo"), Value::Number(1)),
            (word("warp"), word("pfifo")),
            (word("pfifo"), word("warp")),
        ] {
            assert!(!root.is(&asked, &found));
        }
        assert!(root.is(&word("pfifo"), &word("pfifo")));
        let setting = |text: &str| text.parse::<Setting>().unwrap();
        assert!(asked(&setting("device.qdisc=pfifo limit 5")).is_ok());
        assert!(asked(&setting("device.mtu=1400")).is_err());
        // struct tcmsg: family and padding, index, handle, parent, info.
        let message = root.tcmsg(TC_H_ROOT, 5);
        let number = |at| u32_at(&message, at);
        assert_eq!(message.len(), 20);
        assert_eq!(
            [number(4), number(8), number(12)],
            [Some(7), Some(5), Some(TC_H_ROOT)]
        );
    }
}

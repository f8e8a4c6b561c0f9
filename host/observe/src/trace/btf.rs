//! What the running kernel's description of its own types (BTF) says beyond what the loader reads: the names
//! of the reasons to drop a packet, and the arguments of a tracepoint.

use std::collections::BTreeMap;
use sys::netlink::u32_at;

const MAGIC: u16 = 0xeb9f;

/// Kinds of types (`include/uapi/linux/btf.h`).
const PTR: u32 = 2;
const ENUM: u32 = 6;
const TYPEDEF: u32 = 8;
const FUNC: u32 = 12;
const FUNC_PROTO: u32 = 13;

/// What all names of reasons begin with; what does not is no reason to drop.
const REASON: &str = "SKB_DROP_REASON_";

/// The kernel's types.
pub(super) struct BtfTypes<'a> {
    types: &'a [u8],
    strings: &'a [u8],
    /// Where each begins in `types`; the first has number 1.
    at: Vec<usize>,
}

impl<'a> BtfTypes<'a> {
    /// Of the content of `/sys/kernel/btf/vmlinux`; `None` if that is something else.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<BtfTypes<'a>> {
        let magic = u16::from_ne_bytes(*bytes.first_chunk()?);
        let header = u32_at(bytes, 4)? as usize;
        let part = |at: usize| {
            let from = header.checked_add(u32_at(bytes, at)? as usize)?;
            bytes.get(from..from.checked_add(u32_at(bytes, at + 4)? as usize)?)
        };
        let (types, strings) = (part(8)?, part(16)?);
        let mut all = BtfTypes {
            types,
            strings,
            at: Vec::new(),
        };
        let mut at = 0;
        while at < types.len() && magic == MAGIC {
            all.at.push(at);
            let (kind, count) = all.info(at)?;
            at += 12
                + match kind {
                    1 | 14 | 17 => 4,
                    3 => 12,
                    4 | 5 | 15 | 19 => 12 * count,
                    ENUM | FUNC_PROTO => 8 * count,
                    _ => 0,
                };
        }
        (magic == MAGIC).then_some(all)
    }

    /// `enum skb_drop_reason`: names, less what they all begin with, by number.
    pub(super) fn drop_reasons(&self) -> BTreeMap<u32, String> {
        let Some(at) = self.find(ENUM, "skb_drop_reason") else {
            return BTreeMap::new();
        };
        let count = self.info(at).map_or(0, |(_, count)| count);
        let one = |n: usize| {
            let name = self.name(at + 12 + 8 * n)?.strip_prefix(REASON)?;
            let reason = u32_at(self.types, at + 16 + 8 * n)?;
            (!["MAX", "SUBSYS_MASK"].contains(&name)).then(|| (reason, name.to_owned()))
        };
        (0..count).filter_map(one).collect()
    }

    /// How many arguments a tracepoint hands over; zero if there is none of the name.
    pub(super) fn arguments(&self, tracepoint: &str) -> usize {
        let count = || {
            let pointer = self.target(self.find(TYPEDEF, &format!("btf_trace_{tracepoint}"))?)?;
            let function = self.target(pointer).filter(|_| self.is(pointer, PTR))?;
            // The first is the tracepoint's own.
            self.parameters(function)?.checked_sub(1)
        };
        count().unwrap_or(0)
    }

    /// How many arguments a function takes; zero if there is none of the name.
    pub(super) fn arguments_of_function(&self, name: &str) -> usize {
        let function = self.find(FUNC, name);
        let prototype = function.and_then(|function| self.target(function));
        prototype
            .and_then(|prototype| self.parameters(prototype))
            .unwrap_or(0)
    }

    fn parameters(&self, prototype: usize) -> Option<usize> {
        let (_, count) = self
            .info(prototype)
            .filter(|(kind, _)| *kind == FUNC_PROTO)?;
        Some(count)
    }

    fn find(&self, kind: u32, name: &str) -> Option<usize> {
        let wanted = |at: &&usize| self.is(**at, kind) && self.name(**at) == Some(name);
        self.at.iter().find(wanted).copied()
    }

    fn is(&self, at: usize, kind: u32) -> bool {
        self.info(at).is_some_and(|(found, _)| found == kind)
    }

    /// Kind and number of members.
    fn info(&self, at: usize) -> Option<(u32, usize)> {
        let info = u32_at(self.types, at + 4)?;
        Some((info >> 24 & 31, (info & 0xffff) as usize))
    }

    /// The type that one refers to.
    fn target(&self, at: usize) -> Option<usize> {
        let number = u32_at(self.types, at + 8)? as usize;
        self.at.get(number.checked_sub(1)?).copied()
    }

    fn name(&self, at: usize) -> Option<&'a str> {
        let rest = self.strings.get(u32_at(self.types, at)? as usize..)?;
        std::str::from_utf8(rest.split(|byte| *byte == 0).next()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An enum of two reasons, and a tracepoint of two arguments.
    fn kernel() -> Vec<u8> {
        let mut strings = vec![0];
        let mut name = |text: &str| {
            let at = strings.len() as u32;
            strings.extend(text.as_bytes());
            strings.push(0);
            at
        };
        let types: Vec<u32> = [
            [name("skb_drop_reason"), ENUM << 24 | 3, 4].as_slice(),
            &[
                name("SKB_CONSUMED"),
                1,
                name("SKB_DROP_REASON_NO_SOCKET"),
                3,
            ],
            &[name("SKB_DROP_REASON_MAX"), 4],
            &[name("btf_trace_kfree_skb"), TYPEDEF << 24, 3],
            &[0, PTR << 24, 4],
            &[0, FUNC_PROTO << 24 | 3, 0, 0, 1, 0, 1, 0, 1],
            &[name("tcp_recvmsg"), FUNC << 24, 4],
        ]
        .concat();
        let mut bytes = MAGIC.to_ne_bytes().to_vec();
        bytes.extend([1, 0]);
        let lengths = [24, 0, 4 * types.len(), 4 * types.len(), strings.len()];
        bytes.extend(lengths.iter().flat_map(|n| (*n as u32).to_ne_bytes()));
        bytes.extend(types.iter().flat_map(|word| word.to_ne_bytes()));
        bytes.extend(strings);
        bytes
    }

    #[test]
    fn reasons_and_arguments_are_found() {
        let bytes = kernel();
        let types = BtfTypes::parse(&bytes).unwrap();
        assert_eq!(
            types.drop_reasons(),
            BTreeMap::from([(3, "NO_SOCKET".to_owned())])
        );
        assert_eq!(types.arguments("kfree_skb"), 2);
        assert_eq!(types.arguments("nothing"), 0);
        assert_eq!(types.arguments_of_function("tcp_recvmsg"), 3);
        assert_eq!(types.arguments_of_function("kfree_skb"), 0);
    }

    proptest! {
        #[test]
        fn damage_is_no_panic(at in 0usize..200, with in any::<u8>()) {
            let mut bytes = kernel();
            let at = at % bytes.len();
            bytes[at] = with;
            if let Some(types) = BtfTypes::parse(&bytes) {
                let _ = (types.drop_reasons(), types.arguments("kfree_skb"));
            }
        }
    }
}

//! A queueing discipline that may be put at the root of a device, with its few parameters.

use crate::{BitRate, Bytes, Nanos};
use std::fmt;
use std::str::FromStr;

/// A kind and the parameters that are set; the kernel chooses the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Qdisc {
    /// Which discipline.
    pub kind: QdiscKind,
    /// Parameters by the names of tc(8): packets, bytes, bit/s, microseconds, or 1 and 0.
    pub parameters: Vec<(&'static str, u64)>,
}

/// The disciplines that can be restored verbatim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QdiscKind {
    /// No queue at all.
    Noqueue,
    /// First in, first out; counts packets.
    Pfifo,
    /// First in, first out; counts bytes.
    Bfifo,
    /// Three bands by priority.
    PfifoFast,
    /// A queue a flow, and active queue management.
    FqCodel,
    /// A queue a flow, and pacing.
    Fq,
    /// A token bucket.
    Tbf,
}

#[derive(Clone, Copy)]
enum QdiscUnit {
    Count,
    Size,
    Rate,
    Micros,
    Flag,
}

struct QdiscRow {
    kind: QdiscKind,
    name: &'static str,
    parameters: &'static [(&'static str, QdiscUnit)],
    /// All parameters are needed.
    all: bool,
}

#[rustfmt::skip]
const ROWS: [QdiscRow; 7] = [
    QdiscRow { kind: QdiscKind::Noqueue, name: "noqueue", parameters: &[], all: false },
    QdiscRow { kind: QdiscKind::Pfifo, name: "pfifo", parameters: &[("limit", QdiscUnit::Count)], all: false },
    QdiscRow { kind: QdiscKind::Bfifo, name: "bfifo", parameters: &[("limit", QdiscUnit::Size)], all: false },
    QdiscRow { kind: QdiscKind::PfifoFast, name: "pfifo_fast", parameters: &[], all: false },
    QdiscRow { kind: QdiscKind::FqCodel, name: "fq_codel", parameters: &[
        ("limit", QdiscUnit::Count), ("flows", QdiscUnit::Count), ("target", QdiscUnit::Micros), ("interval", QdiscUnit::Micros),
        ("quantum", QdiscUnit::Size), ("ecn", QdiscUnit::Flag),
    ], all: false },
    QdiscRow { kind: QdiscKind::Fq, name: "fq", parameters: &[
        ("limit", QdiscUnit::Count), ("flow_limit", QdiscUnit::Count), ("quantum", QdiscUnit::Size), ("maxrate", QdiscUnit::Rate),
        ("pacing", QdiscUnit::Flag),
    ], all: false },
    QdiscRow { kind: QdiscKind::Tbf, name: "tbf", parameters: &[
        ("rate", QdiscUnit::Rate), ("burst", QdiscUnit::Size), ("limit", QdiscUnit::Size),
    ], all: true },
];

impl QdiscKind {
    fn row(self) -> &'static QdiscRow {
        &ROWS[self as usize]
    }

    /// The kernel's name of it.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// By the kernel's name.
    pub fn named(name: &str) -> Option<QdiscKind> {
        ROWS.iter().find(|row| row.name == name).map(|r| r.kind)
    }
}

impl Qdisc {
    pub(super) const GRAMMAR: &str = "a queueing discipline and its parameters, each once: noqueue, pfifo [limit N], \
         bfifo [limit SIZE], pfifo_fast, fq_codel [limit N] [flows N] [target TIME] [interval TIME] [quantum SIZE] [ecn 0|1], \
         fq [limit N] [flow_limit N] [quantum SIZE] [maxrate RATE] [pacing 0|1], tbf rate RATE burst SIZE limit SIZE";

    /// A parameter that is set.
    pub fn parameter(&self, name: &str) -> Option<u64> {
        let found = self.parameters.iter().find(|(n, _)| *n == name);
        found.map(|(_, value)| *value)
    }

    pub(super) fn read(text: &str) -> Option<Qdisc> {
        let mut words = text.split_whitespace();
        let kind = QdiscKind::named(words.next()?)?;
        let row = kind.row();
        let mut qdisc = Qdisc {
            kind,
            parameters: Vec::new(),
        };
        while let Some(word) = words.next() {
            let found = row.parameters.iter().find(|(name, _)| *name == word);
            let (name, unit) = found?;
            let value = unit.read(words.next()?)?;
            if qdisc.parameter(name).is_some() {
                return None;
            }
            qdisc.parameters.push((name, value));
        }
        let is_whole = !row.all || qdisc.parameters.len() == row.parameters.len();
        is_whole.then_some(qdisc)
    }
}

impl FromStr for Qdisc {
    type Err = String;

    fn from_str(text: &str) -> Result<Qdisc, String> {
        Qdisc::read(text).ok_or_else(|| format!("expected {}", Qdisc::GRAMMAR))
    }
}

impl fmt::Display for Qdisc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name())?;
        for (name, value) in &self.parameters {
            let row = self.kind.row().parameters.iter().find(|p| p.0 == *name);
            let text = match row.map(|(_, unit)| unit) {
                Some(QdiscUnit::Size) => super::short(*value, 1024),
                Some(QdiscUnit::Rate) => super::short(*value, 1000),
                Some(QdiscUnit::Micros) => format!("{value}us"),
                _ => value.to_string(),
            };
            write!(f, " {name} {text}")?;
        }
        Ok(())
    }
}

impl QdiscUnit {
    /// Within what the kernel's 32-bit fields hold, so that nothing is cut on the way.
    fn read(self, word: &str) -> Option<u64> {
        let (value, range) = match self {
            QdiscUnit::Count => (word.parse().ok()?, 1..=1_000_000),
            QdiscUnit::Size => (word.parse::<Bytes>().ok()?.0, 1..=1 << 30),
            QdiscUnit::Rate => (word.parse::<BitRate>().ok()?.0, 8_000..=1 << 50),
            QdiscUnit::Micros => (word.parse::<Nanos>().ok()?.0 / 1000, 1..=10_000_000),
            QdiscUnit::Flag => (word.parse().ok()?, 0..=1),
        };
        range.contains(&value).then_some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disciplines_are_written_as_they_are_read() {
        for text in [
            "noqueue",
            "pfifo limit 100",
            "bfifo limit 64K",
            "pfifo_fast",
            "fq_codel target 5000us interval 100000us ecn 0",
            "fq maxrate 100M pacing 1",
            "tbf rate 100M burst 32K limit 400K",
        ] {
            let qdisc: Qdisc = text.parse().unwrap();
            assert_eq!(qdisc.to_string(), text);
            assert_eq!(QdiscKind::named(qdisc.kind.name()), Some(qdisc.kind));
        }
        let tbf: Qdisc = "tbf burst 1M limit 2M rate 1.5G".parse().unwrap();
        assert_eq!(tbf.parameter("rate"), Some(1_500_000_000));
        assert_eq!(tbf.parameter("quantum"), None);
    }

    #[test]
    fn nothing_else_is_one() {
        for bad in [
            "",
            "htb",
            "pfifo limit",
            "pfifo limit 0",
            "pfifo limit 5 limit 6",
            "pfifo rate 1M",
            "tbf rate 100M burst 32K",
            "fq_codel ecn 2",
            "fq maxrate 1000",
        ] {
            assert_eq!(Qdisc::read(bad), None, "{bad}");
        }
    }
}

//! What really happened on the links of a lab.

use emulate::{EmulatorCounters, EmulatorEvent};
use model::{Latency, Nanos};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What makes a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkBackend {
    /// A plain pair of virtual devices: nothing is done to the frames.
    Cable,
    /// The built-in emulator.
    #[default]
    Emulator,
    /// The kernel's own emulation, by queueing disciplines.
    Netem,
}

/// The account of a whole lab.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CounterReport {
    /// Since the lab is up.
    pub at: Nanos,
    /// One for each link that is not a cable.
    pub links: Vec<LinkCounters>,
    /// One for each kind of traffic of the scenario.
    #[serde(default)]
    pub traffic: Vec<TrafficCounters>,
    /// One for each host that reads for the lab.
    #[serde(default)]
    pub readers: Vec<ReaderCounters>,
}

/// What the lab itself sent, in all streams of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrafficCounters {
    /// Name of the traffic.
    pub name: String,
    /// Connections that were made.
    pub connections: u64,
    /// Connections that could not be made, or broke.
    pub failed: u64,
    /// Bytes that its senders wrote.
    pub sent: u64,
}

/// What a host read at its discard port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReaderCounters {
    /// Name of the host.
    pub host: String,
    /// Connections that came.
    pub connections: u64,
    /// Bytes that were read.
    pub bytes: u64,
}

/// The account of one link.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkCounters {
    /// Name of the link.
    pub link: String,
    /// What makes it. netem has no deepest queue, no bytes of what it dropped, no reordered frames and no log.
    #[serde(default)]
    pub backend: LinkBackend,
    /// From its first end to its second.
    pub forward: EmulatorCounters,
    /// From its second end to its first.
    pub backward: EmulatorCounters,
    /// Frames that came through and were too long for the device that they came to, forward and backward.
    pub too_long: [u64; 2],
    /// How well the emulator itself kept up.
    pub emulator: Emulator,
}

/// How well the emulator kept up: what it did to frames beyond its orders.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Emulator {
    /// How much later than due frames left; of netem: probes, which pass through one of the lab's own.
    pub lateness: Latency,
    /// Frames or super-packets that the kernel dropped because the emulator did not fetch them in time.
    pub missed: u64,
    /// Frames that the receiving device did not take, other than too long ones.
    pub refused: u64,
    /// Processor time of its thread.
    pub cpu: Nanos,
}

/// An entry of the log of a link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LogEntry {
    /// Name of the link.
    pub link: String,
    /// `forward` or `backward`.
    pub direction: emulate::Direction,
    /// What happened, at a moment since the lab is up.
    #[serde(flatten)]
    pub event: EmulatorEvent,
}

/// Lateness beyond which the emulator is no longer a stand-in for the network, at the 99th percentile.
pub const LATE: Nanos = Nanos::from_millis(1);

impl CounterReport {
    /// The account of one link.
    pub fn link(&self, name: &str) -> Option<&LinkCounters> {
        self.links.iter().find(|l| l.link == name)
    }

    /// What happened since an earlier report of the same lab, as far as the emulator's own doings go; what
    /// the pipes count stays counted from the start.
    #[must_use]
    pub fn emulator_since(&self, earlier: &CounterReport) -> CounterReport {
        let mut later = self.clone();
        for link in &mut later.links {
            if let Some(before) = earlier.link(&link.link) {
                link.emulator = link.emulator.since(&before.emulator);
            }
        }
        later
    }

    /// Sentences on where the emulator, not the network, was the limit.
    pub fn warnings(&self) -> Vec<String> {
        let complaint = |l: &LinkCounters| {
            Some(format!(
                "link {}: {}",
                l.link,
                l.emulator.complaint(l.backend)?
            ))
        };
        self.links.iter().filter_map(complaint).collect()
    }
}

impl Emulator {
    /// Why figures taken over this link say something of the emulator, not of the network; `None` if it
    /// kept up.
    pub fn complaint(&self, by: LinkBackend) -> Option<String> {
        let late = self.lateness.percentile(0.99).filter(|late| *late > LATE);
        let late = late.map(|late| format!("frames left up to {late} late (99th percentile)"));
        let count = |n: u64, what| (n > 0).then(|| format!("{n} frames were {what}"));
        let missed = count(self.missed, "lost before the emulator saw them");
        let refused = count(self.refused, "refused by the receiving device");
        let all: Vec<String> = [late, missed, refused].into_iter().flatten().collect();
        let by = match by {
            LinkBackend::Netem => "this machine under netem",
            LinkBackend::Cable | LinkBackend::Emulator => "the emulator",
        };
        (!all.is_empty()).then(|| {
            format!(
                "{by}, not the network, was the limit: {}; use a lower rate or a less busy machine",
                all.join(", ")
            )
        })
    }

    fn since(&self, earlier: &Emulator) -> Emulator {
        let before = earlier.lateness.counts();
        let rest = self.lateness.counts().iter().map(|&(value, count)| {
            let seen = before.binary_search_by_key(&value, |pair| pair.0);
            let seen = seen.map_or(0, |at| before[at].1);
            (value, count.saturating_sub(seen))
        });
        Emulator {
            lateness: Latency::from_counts(rest),
            missed: self.missed.saturating_sub(earlier.missed),
            refused: self.refused.saturating_sub(earlier.refused),
            cpu: self.cpu.since(earlier.cpu),
        }
    }
}

impl fmt::Display for LinkBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            LinkBackend::Cable => "cable",
            LinkBackend::Emulator => "emulator",
            LinkBackend::Netem => "netem",
        })
    }
}

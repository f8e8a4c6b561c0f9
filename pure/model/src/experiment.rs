//! What was done: every run of an experiment in the order in which it was made.

use crate::{BitRate, Bytes, Ended, Fingerprint, Nanos, Plan, Reading, RunId, Side, Warning};
use serde::{Deserialize, Serialize};

/// An experiment with the runs made so far. Its verdict is derived from it, never stored alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Experiment {
    /// Version of this form.
    pub schema: u32,
    /// Name in the archive: 32 hexadecimal digits (8 in older archives).
    pub id: String,
    /// Start, nanoseconds since 1970-01-01 UTC.
    #[serde(rename = "started_unix_ns")]
    pub started: Nanos,
    /// What was to be done.
    pub plan: Plan,
    /// The host of the command, before anything was changed.
    pub local: Fingerprint,
    /// The remote host, before anything was changed; `None` if not reported.
    pub remote: Option<Fingerprint>,
    /// Every run, in the order in which they were made; none is ever dropped.
    pub trials: Vec<Trial>,
    /// Doubts about the whole.
    pub warnings: Vec<Warning>,
    /// How it ended; an experiment that is not complete can be resumed.
    pub ended: Ended,
}

/// One run of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// From 1, in the order in which the runs were made.
    pub number: u32,
    /// What it is for.
    pub phase: TrialPhase,
    /// Block within the phase, from 0. A block that lacks runs at its end was interrupted: it is
    /// kept and not judged.
    pub block: u32,
    /// Position within the block, from 0.
    pub position: u32,
    /// Index of its arm in the plan.
    pub arm: u32,
    /// The run in the archive.
    pub run: Option<RunId>,
    /// Start, nanoseconds since 1970-01-01 UTC.
    #[serde(rename = "started_unix_ns")]
    pub started: Nanos,
    /// Time over which it is judged: of the leg, at least what was ordered.
    #[serde(rename = "duration_ns")]
    pub duration: Nanos,
    /// The metric, in bit/s or seconds; `None` if it failed.
    pub value: Option<f64>,
    /// Bytes that the receiver's application took.
    pub bytes: Bytes,
    /// Why there is no value; a failed run counts as a slow one.
    pub failed: Option<String>,
    /// The requested settings of machine and sockets, with those in force.
    pub readings: Vec<Reading>,
    /// What the kernel saw meanwhile.
    pub witness: Witness,
}

/// What a run is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrialPhase {
    /// Warms path and hosts up; never judged.
    Discarded,
    /// Both runs of a pair are the control: shows the noise.
    Pilot,
    /// Compares the arms; in a search: picks one.
    Main,
    /// Fresh pairs of the arm that a search picked, and the control.
    Confirmation,
}

/// What the kernel saw in a run, as far as it bears on whether the change could act. `None`: not reported.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Witness {
    /// Goodput after the ramp.
    #[serde(rename = "steady_goodput_bit_s")]
    pub steady_goodput: Option<BitRate>,
    /// Share of the busy time that waited for the receive window.
    pub rwnd_limited_share: Option<f64>,
    /// Share of the busy time that waited for room in the send buffer.
    pub sndbuf_limited_share: Option<f64>,
    /// Share of the samples with less than a segment written and not yet sent: more room in the send buffer may have let more
    /// leave.
    pub all_sent_share: Option<f64>,
    /// Share of the time with data to send: below one, the application did not always send.
    pub busy_share: Option<f64>,
    /// Bytes retransmitted by bytes sent.
    pub retransmit_share: Option<f64>,
    /// The busiest process of the two ends, in processors: near the number of streams, the processor
    /// was the limit.
    pub cpu: Option<f64>,
    /// The busier host as a share of all its processors.
    pub host_cpu_share: Option<f64>,
    /// Sending MSS of the live socket, in bytes.
    pub mss: Option<u32>,
    /// Speed of the slower of both hosts' devices; `None` unless every reporting host has a link speed.
    #[serde(rename = "link_speed_bit_s")]
    pub link_speed: Option<BitRate>,
    /// Requests answered.
    pub requests: Option<u64>,
    /// Where the hosts were not as before the experiment.
    pub differences: Vec<Difference>,
}

/// A fact about a host that was another at this run than before the experiment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Difference {
    /// The host.
    pub side: Side,
    /// Which fact, by its place in the fingerprint: `sysctls.net.ipv4.tcp_wmem`, `device.mtu`.
    pub what: String,
    /// Before the experiment.
    pub before: String,
    /// At this run.
    pub now: String,
}

//! What one end saw at one moment.

use crate::{Bytes, Datagrams, Latency, Nanos, SocketState};
use serde::{Deserialize, Serialize};

/// One reading at one end of a leg. All counters count from the start of the leg, so that the
/// difference of any two samples is right and a lost sample loses nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Time since this end started the leg.
    #[serde(rename = "at_ns")]
    pub at: Nanos,
    /// Application bytes: written at the sender, read at the receiver.
    pub bytes: Bytes,
    /// One entry a stream.
    pub streams: Vec<StreamSample>,
    /// Processor time of this process and of the whole host.
    pub cpu: CpuTimes,
    /// The requests finished since the sample before (request workload, at the client only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<Latency>,
    /// Datagrams of all streams so far, as this end counts them (UDP); the jitter is of now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datagrams: Option<Datagrams>,
}

/// One stream of a [`Sample`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StreamSample {
    /// Number of the stream within its leg, from 0.
    pub stream: u32,
    /// Application bytes of this stream.
    pub bytes: Bytes,
    /// The kernel's account of the socket; `None` once it is closed, or for UDP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<SocketState>,
    /// `SO_SNDBUF` as the kernel holds it now: autotuning moves it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send_buffer: Option<Bytes>,
    /// `SO_RCVBUF` as the kernel holds it now: autotuning moves it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive_buffer: Option<Bytes>,
}

/// Processor time used since the leg began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuTimes {
    /// This process in user mode.
    #[serde(rename = "process_user_ns")]
    pub process_user: Nanos,
    /// This process in kernel mode.
    #[serde(rename = "process_system_ns")]
    pub process_system: Nanos,
    /// All processors of the host, busy with anything, interrupts included.
    #[serde(rename = "host_busy_ns")]
    pub host_busy: Nanos,
    /// Part of busy spent in soft interrupts, where most of the receive path runs.
    #[serde(rename = "host_softirq_ns")]
    pub host_softirq: Nanos,
    /// Part of the time that the hypervisor gave to others.
    #[serde(rename = "host_steal_ns")]
    pub host_steal: Nanos,
    /// All processors of the host, busy and idle.
    #[serde(rename = "host_total_ns")]
    pub host_total: Nanos,
}

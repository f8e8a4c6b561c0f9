//! What one leg of a mesh came to: a row of its history.

use crate::names::named;
use crate::{BitRate, Bytes, Nanos, RunId};
use serde::Serialize;

named! {
    /// What became of a planned leg.
    #[derive(Default)]
    LegOutcome, "outcome" {
        /// Measured, and as good as the test requires.
        Good = "good",
        /// Measured, and worse.
        Low = "low",
        /// It began, and nothing was measured.
        Failed = "failed",
        /// It did not begin: no free time, an agent that is away or refused.
        #[default]
        Missed = "missed",
        /// It was not to begin: quiet hours or the bytes of a day.
        Skipped = "skipped",
    }
}

impl LegOutcome {
    /// Whether it has a figure.
    pub const fn is_measured(self) -> bool {
        matches!(self, LegOutcome::Good | LegOutcome::Low)
    }

    /// One letter, for grids.
    pub const fn letter(self) -> char {
        match self {
            LegOutcome::Good => 'g',
            LegOutcome::Low => 'L',
            LegOutcome::Failed => 'F',
            LegOutcome::Missed => 'M',
            LegOutcome::Skipped => 's',
        }
    }
}

/// What the cells of a test show, and what `good` is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellFigure {
    /// Goodput.
    Goodput,
    /// Median latency of requests.
    Latency,
    /// Median RTT of light probes.
    LightRtt,
    /// Path MTU.
    Mtu,
}

impl CellFigure {
    /// Less is better.
    pub const fn is_latency(self) -> bool {
        matches!(self, CellFigure::Latency | CellFigure::LightRtt)
    }

    /// That of a leg: in bit/s, seconds or bytes.
    pub fn of(self, leg: &MeshLeg) -> Option<f64> {
        match self {
            CellFigure::Goodput => leg.goodput.map(|rate| rate.0 as f64),
            CellFigure::Latency | CellFigure::LightRtt => {
                leg.rtt_p50.map(|time| time.as_secs_f64())
            }
            CellFigure::Mtu => leg.mtu.map(|size| size as f64),
        }
    }
}

/// A leg of a mesh, also one that did not happen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MeshLeg {
    /// The run that it is part of; of a leg that did not happen the name of its slot.
    pub run: RunId,
    /// Number in the run, from 0.
    pub leg: u32,
    /// Name of the mesh.
    pub mesh: String,
    /// Name of the test.
    pub test: String,
    /// The host that sends, or makes the requests.
    pub src: String,
    /// The host that receives, or answers.
    pub dst: String,
    /// Start, since 1970-01-01 UTC.
    #[serde(rename = "starts_unix_ns")]
    pub starts: Nanos,
    /// Duration; zero if it did not happen.
    #[serde(rename = "span_ns")]
    pub span: Nanos,
    /// Payload that arrived.
    pub bytes: Option<Bytes>,
    /// Steady goodput.
    #[serde(rename = "goodput_bit_s")]
    pub goodput: Option<BitRate>,
    /// Retransmitted bytes in a million bytes sent.
    pub retrans_ppm: Option<u64>,
    /// Smallest RTT.
    #[serde(rename = "rtt_idle_ns")]
    pub rtt_idle: Option<Nanos>,
    /// Median RTT under load; of requests the median latency, of light probes the median RTT.
    #[serde(rename = "rtt_p50_ns")]
    pub rtt_p50: Option<Nanos>,
    /// 95th percentile of the RTT of light probes.
    #[serde(rename = "rtt_p95_ns")]
    pub rtt_p95: Option<Nanos>,
    /// Numbered packets that were sent; of light probes alone.
    pub packets: Option<u64>,
    /// Something else was measured from or to one of the two hosts meanwhile: the RTT of light probes is one under load.
    pub busy: bool,
    /// Lost datagrams or packets in a million.
    pub loss_ppm: Option<u64>,
    /// The largest packet that passes, in bytes.
    pub mtu: Option<u64>,
    /// The limit that is named first; where that is just possible, with all that fit: `policer or random_loss (possible)`.
    pub limited_by: Option<String>,
    /// What became of it.
    pub outcome: LegOutcome,
    /// A sentence, where it is not good.
    pub why: Option<String>,
    /// Start of the first leg on the present level of the cell, if the level changed among its last 200 legs (light probes: 60).
    #[serde(rename = "level_since_unix_ns")]
    pub level_since: Option<Nanos>,
}

impl MeshLeg {
    /// One of the cell `[mesh, test, src, dst]`, of which no more is known than its outcome.
    pub fn bare(
        run: RunId,
        leg: u32,
        cell: [&str; 4],
        starts: Nanos,
        outcome: LegOutcome,
    ) -> MeshLeg {
        let [mesh, test, src, dst] = cell.map(str::to_owned);
        MeshLeg {
            run,
            leg,
            mesh,
            test,
            src,
            dst,
            starts,
            outcome,
            ..MeshLeg::default()
        }
    }
}

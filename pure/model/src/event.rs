//! What happens during a run.

use crate::{Direction, Fingerprint, Leg, Sample, Side, Warning};
use serde::Serialize;

/// One thing that happened; in JSON a line of `--json-stream`.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event<'a> {
    /// Both ends are known. Reported once, before the first leg.
    Hosts {
        /// The host of the command.
        local: &'a Fingerprint,
        /// The remote host; `None` for a peer that does not report what it is.
        remote: Option<&'a Fingerprint>,
    },
    /// A leg begins: its load starts now.
    LegStarted {
        /// Position in the run.
        #[serde(rename = "leg")]
        index: usize,
        /// Which way.
        direction: Direction,
    },
    /// A host took a sample.
    Sample {
        /// Position of the leg in the run.
        #[serde(rename = "leg")]
        index: usize,
        /// The end.
        side: Side,
        /// What it saw.
        sample: &'a Sample,
    },
    /// The trace of a host was transferred.
    #[serde(skip)]
    Traced {
        /// Position of the leg in the run.
        index: usize,
        /// The end.
        side: Side,
        /// The file, compressed.
        bytes: &'a [u8],
    },
    /// A leg is over.
    #[serde(skip)]
    LegEnded {
        /// Position in the run.
        index: usize,
        /// All of it.
        leg: &'a Leg,
    },
    /// A doubt that the user should see at once.
    Warning {
        /// The doubt.
        warning: &'a Warning,
    },
    /// Something to wait for: a busy agent, a slow connection.
    Waiting {
        /// What, in words.
        #[serde(rename = "for")]
        what: &'a str,
    },
}

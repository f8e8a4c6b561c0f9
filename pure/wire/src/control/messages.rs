//! What the two ends of a control connection say to each other.

use model::{EndRecord, Fingerprint, Limit, Nanos, Placement, Sample, SocketSettings, SocketState};
use model::{Warning, Workload};
use serde::{Deserialize, Serialize};

/// Version of this protocol. Peers of another version are told so in the greeting.
pub const PROTOCOL: u32 = 1;

/// Bytes of a data token.
pub const TOKEN_LEN: usize = 32;

/// One leg as the agent is to play it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// Number of the leg within the session, chosen by the controller, never used twice.
    pub leg: u32,
    /// The agent sends the data (or the requests); otherwise it receives (or serves).
    pub agent_sends: bool,
    /// What moves.
    pub workload: Workload,
    /// Data connections, all opened by the controller.
    pub streams: u32,
    /// When the sender ends it.
    pub limit: Limit,
    /// Time between samples.
    #[serde(rename = "interval_ns")]
    pub interval: Nanos,
    /// Options of the agent's data sockets.
    pub socket: SocketSettings,
    /// Where the agent's load runs.
    pub placement: Placement,
}

/// From the controller to the agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub enum ToAgent {
    /// First message.
    Hello {
        /// [`PROTOCOL`] of the controller.
        protocol: u32,
        /// Version of linerate.
        version: String,
    },
    /// Asks for a grant: a listening data port for one leg.
    Open {
        /// The leg.
        order: Box<Order>,
    },
    /// All data connections are open: begin. The agent answers by starting its load at once.
    Start {
        /// Number of the leg.
        leg: u32,
    },
    /// End the leg early and report.
    Stop {
        /// Number of the leg.
        leg: u32,
    },
    /// Still here.
    Ping {
        /// Comes back in the answer.
        number: u64,
    },
    /// Last message: the session is over.
    Bye,
}

/// From the agent to the controller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub enum ToController {
    /// First message.
    Hello {
        /// [`PROTOCOL`] of the agent.
        protocol: u32,
        /// Version of linerate.
        version: String,
    },
    /// The grant: connect `streams` times to `port`, each time sending the token and the stream's
    /// number (see [`crate::control::preamble`]).
    Granted {
        /// Number of the leg.
        leg: u32,
        /// TCP port of the data listener.
        port: u16,
        /// Opens the data connections of this leg and nothing else; hexadecimal.
        token: String,
        /// The listener closes after this.
        #[serde(rename = "expires_ns")]
        expires: Nanos,
        /// The leg as the agent will play it: the order, made smaller where its rules say so. The
        /// controller keeps to this one (limit, pacing) when it sends.
        order: Box<Order>,
        /// What the agent's rules made smaller than asked.
        warnings: Vec<Warning>,
    },
    /// Another leg runs; ask again.
    Busy {
        /// Number of the leg.
        leg: u32,
        /// When the present work will be over at the latest.
        #[serde(rename = "wait_ns")]
        wait: Nanos,
        /// A sentence for the user.
        why: String,
    },
    /// The order is not allowed or cannot be carried out here.
    Refused {
        /// Number of the leg.
        leg: u32,
        /// What, why and what to do.
        why: String,
    },
    /// All data connections arrived.
    Connected {
        /// Number of the leg.
        leg: u32,
        /// The agent's live sockets, read back.
        sockets: Vec<SocketState>,
        /// The agent's host, seen from this path.
        fingerprint: Box<Fingerprint>,
        /// Settings that did not take.
        warnings: Vec<Warning>,
    },
    /// A sample, as soon as it is taken.
    Sample {
        /// Number of the leg.
        leg: u32,
        /// The sample.
        sample: Box<Sample>,
    },
    /// The agent's end of the leg is over.
    Finished {
        /// Number of the leg.
        leg: u32,
        /// What it saw; its samples went before and are left out.
        record: Box<EndRecord>,
        /// Why it ended before its limit, if it did.
        #[serde(default)]
        broke: Option<String>,
    },
    /// The agent's end of the leg broke.
    Failed {
        /// Number of the leg.
        leg: u32,
        /// What, why and what to do.
        why: String,
    },
    /// Answer to [`ToAgent::Ping`].
    Pong {
        /// The number of the ping.
        number: u64,
    },
    /// Last message: the agent ends the session.
    Bye {
        /// What, why and what to do.
        why: String,
    },
}

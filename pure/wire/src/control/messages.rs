//! What the two ends of a control connection say to each other.

use super::direct::{DirectAnswer, DirectRequest, PlayEvent};
use model::advice::Configured;
use model::mtu::{Climb, PathEnd, TcpTruth};
use model::{BitRate, SocketOptions, SocketSettings, Warning, Workload};
use model::{EndRecord, Fingerprint, LegLimit, Nanos, Placement, Reading, Sample, Setting};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// Version of this protocol. The greeting names it to peers of another version.
pub const PROTOCOL: u32 = 2;

/// Bytes of a data token.
pub const TOKEN_LEN: usize = 32;

/// One leg as the agent is to play it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LegOrder {
    /// Number of the leg within the session, chosen by the controller, never used twice.
    pub leg: u32,
    /// The agent sends the data (or the requests); otherwise it receives (or serves).
    pub agent_sends: bool,
    /// What moves.
    pub workload: Workload,
    /// Data connections, all opened by the controller.
    pub streams: u32,
    /// When the sender ends it.
    pub limit: LegLimit,
    /// Time between samples.
    #[serde(rename = "interval_ns")]
    pub interval: Nanos,
    /// Longest outage of the path that the leg is to survive.
    #[serde(default, rename = "outage_ns")]
    pub outage: Nanos,
    /// The agent is to record every segment of these data sockets, and of no other, if it can.
    #[serde(default)]
    pub trace: bool,
    /// Options of the agent's data sockets.
    pub socket: SocketSettings,
    /// Where the agent's load runs.
    pub placement: Placement,
}

/// Settings that one request may name.
pub const MAX_SETTINGS: usize = 64;

/// Readings that one answer may have.
pub const MAX_READINGS: usize = 4 * MAX_SETTINGS;

/// Bytes of a trace that one answer may have.
pub const MAX_PIECE: usize = 256 << 10;

/// What the agent is to do with its machine's settings. One session holds them at a time; when it
/// ends, in whatever way, the agent undoes what it changed. There is no other way to name a setting
/// than [`Setting`]: a closed list of knobs, each with its range.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum TuneRequest {
    /// Take hold of the machine's settings.
    Begin {
        /// The purpose, shown to other controllers that want to tune.
        title: String,
        /// A separate process undoes the changes after this, without a [`TuneRequest::Renew`].
        #[serde(rename = "deadline_ns")]
        deadline: Nanos,
    },
    /// Apply settings, all or none, and read them back.
    Apply {
        /// In this order.
        settings: Vec<Setting>,
    },
    /// Read back what is applied.
    Verify,
    /// Undo what is applied; the hold stays.
    Undo,
    /// Undo these, the last first, and leave what was applied besides.
    UndoOnly {
        /// The applied settings.
        settings: Vec<Setting>,
    },
    /// The deadline counts from now.
    Renew,
    /// Forget what the kernel has learned of the path to the controller's host (TCP metrics).
    FlushMetrics,
    /// Undo what is applied and let go.
    End,
    /// End the session and keep what is applied: until [`TuneRequest::Restore`], or until the machine
    /// reboots.
    Keep,
    /// Undo whatever was ever kept. The readings have the restored values.
    Restore,
    /// Keep what another session of this controller has applied under this title, if it is still in
    /// force: the word comes over a new connection, which is the proof that there can be one.
    Commit {
        /// As in [`TuneRequest::Begin`].
        title: String,
    },
    /// Write what is kept under this title where the host reads it when it starts. Each reading covers
    /// some settings: in which file they are, or, not in force, what is to be done by hand.
    Persist {
        /// As in [`TuneRequest::Begin`].
        title: String,
    },
}

/// What the agent is to find out: about the size of packets that get through, and what sets its host up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum ProbeRequest {
    /// Open a port for probes, UDP and TCP of the same number. One session has one at a time.
    Begin {
        /// The controller's address on this path, as far as it knows. An agent that knows better goes by
        /// its own knowledge.
        controller: IpAddr,
    },
    /// Look how large datagrams to the controller may be, once it has proved over UDP that it wants them.
    Climb {
        /// The largest of interest, in bytes of the IP packet.
        ceiling: u32,
        /// The round-trip time.
        #[serde(rename = "rtt_ns")]
        rtt: Nanos,
    },
    /// Report what arrived, and close the port.
    End,
    /// Report the boot configuration of its host. Needs no open port.
    Survey,
}

/// The answer to a [`ProbeRequest`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "done", rename_all = "snake_case")]
pub enum ProbeAnswer {
    /// The port is open.
    Begun {
        /// UDP and TCP port.
        port: u16,
        /// Opens it, and nothing else; hexadecimal.
        token: String,
        /// The agent's host, as it saw the path before.
        end: PathEnd,
        /// Probes may be sent so fast at most, if the agent's rules bound it.
        #[serde(rename = "rate_bit_s")]
        rate: Option<BitRate>,
    },
    /// What arrived.
    Climbed {
        /// From the agent to the controller.
        climb: Climb,
    },
    /// The port is closed.
    Ended {
        /// The agent's host afterwards.
        end: Box<PathEnd>,
        /// The agent's transfer to the controller over TCP, if it was asked for one.
        reverse: Option<TcpTruth>,
    },
    /// What sets the host up, no more of it than bears on transfers.
    Surveyed {
        /// Files and who else does.
        configured: Box<Configured>,
    },
}

/// What came of a [`TuneRequest`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TuneOutcome {
    /// What was asked and what is there, where the request reads settings back. Refused: what, why and what to do;
    /// nothing is changed then that was not changed before.
    pub done: Result<Vec<Reading>, String>,
    /// Both ends are in one machine and network namespace: nothing was done here.
    pub shared: bool,
}

/// Where a request to tune comes from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    /// The address that the controller's data connections come from, as far as it knows. An agent
    /// that knows better goes by its own knowledge.
    pub address: Option<IpAddr>,
    /// Names the controller's machine and network namespace, no matter how: an agent in the same one
    /// leaves the settings to it.
    pub place: String,
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
    /// Requests a grant: a listening data port for one leg.
    Open {
        /// The leg.
        order: Box<LegOrder>,
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
    /// Requests the next piece of the trace of a leg that is over. Answered in turn.
    Fetch {
        /// Number of the leg.
        leg: u32,
    },
    /// Read or change the machine's settings. Answered in turn.
    Tune {
        /// Counts up from one request to the next.
        number: u64,
        /// Who wants it.
        origin: Origin,
        /// What.
        request: TuneRequest,
    },
    /// Find out what size of packets gets through. Answered in turn.
    Probe {
        /// Counts up from one request to the next.
        number: u64,
        /// What.
        request: ProbeRequest,
    },
    /// Measure towards another agent, or make ready for it. Answered in turn.
    Direct {
        /// Counts up from one request to the next.
        number: u64,
        /// What.
        request: DirectRequest,
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
        /// It has too many sessions, and ends this one: come again after this time.
        #[serde(rename = "again_ns", default, skip_serializing_if = "Option::is_none")]
        again: Option<Nanos>,
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
        order: Box<LegOrder>,
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
        sockets: Vec<SocketOptions>,
        /// The agent's host, seen from this path.
        fingerprint: Box<Fingerprint>,
        /// Settings that did not take.
        warnings: Vec<Warning>,
    },
    /// A sample, sent once it is taken.
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
    /// A piece of a trace.
    Piece {
        /// Number of the leg.
        leg: u32,
        /// At most [`MAX_PIECE`] bytes, in base64. Nothing: there is no more.
        data: String,
    },
    /// The answer to [`ToAgent::Tune`].
    Tuned {
        /// The number of the request.
        number: u64,
        /// What came of it.
        outcome: TuneOutcome,
    },
    /// The answer to [`ToAgent::Probe`].
    Probed {
        /// The number of the request.
        number: u64,
        /// What was found. Refused: what, why and what to do; no port is open then.
        answer: Result<ProbeAnswer, String>,
    },
    /// The answer to [`ToAgent::Direct`].
    Directed {
        /// The number of the request.
        number: u64,
        /// What was done. Refused: what, why and what to do.
        answer: Result<DirectAnswer, String>,
    },
    /// Before the answer to a request to play.
    Progress {
        /// The number of the request.
        number: u64,
        /// What happens.
        event: PlayEvent,
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

impl ToController {
    /// Reads a message. Samples are most of them: they are read as they stand, while the tag of any other, which may
    /// be anywhere, makes its fields be kept until it is known.
    pub fn read(json: &[u8]) -> serde_json::Result<ToController> {
        #[derive(Deserialize)]
        struct MessageFields {
            leg: u32,
            sample: Box<Sample>,
        }
        if !json.starts_with(br#"{"say":"sample","#) {
            return serde_json::from_slice(json);
        }
        let MessageFields { leg, sample } = serde_json::from_slice(json)?;
        Ok(ToController::Sample { leg, sample })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_read_as_any_other_message() {
        let sample = ToController::Sample {
            leg: 3,
            sample: Box::new(Sample {
                at: Nanos(5),
                ..Sample::default()
            }),
        };
        let pong = ToController::Pong { number: 7 };
        for message in [sample, pong] {
            let json = serde_json::to_vec(&message).unwrap();
            assert_eq!(ToController::read(&json).unwrap(), message);
            assert_eq!(
                serde_json::from_slice::<ToController>(&json).unwrap(),
                message
            );
        }
        for bad in [
            r#"{"say":"sample","leg":1}"#,
            r#"{"say":"sample","leg":"1","sample":{}}"#,
        ] {
            assert!(ToController::read(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}

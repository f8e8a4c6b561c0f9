//! A change of the MTU of two hosts together, and what came of it.

use super::{MtuCause, MtuReport, PathEnd, Way};
use crate::Nanos;
use crate::names::named;
use serde::{Deserialize, Serialize};

/// Version of the JSON form of [`MtuChange`].
pub const CHANGE_SCHEMA: u32 = 1;

/// What was done about the MTU of two hosts, and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MtuChange {
    /// Version of this form.
    pub schema: u32,
    /// The remote host as the user named it.
    pub host: String,
    /// The MTU that both devices were to have.
    pub to: u32,
    /// `segment`: packets to everybody may have the new size; `peer`: those between the two hosts.
    pub reach: ChangeReach,
    /// What got through before anything was changed.
    pub before: MtuReport,
    /// What got through while only probes could be of the new size.
    pub pinned: Option<MtuReport>,
    /// What got through over new connections once all could be.
    pub after: Option<MtuReport>,
    /// The longest time without an answer of the remote host while the devices were changed; `None` if
    /// they were not, or nothing was answered any more.
    #[serde(rename = "silence_ns")]
    pub silence: Option<Nanos>,
    /// How it ended.
    pub outcome: ChangeOutcome,
    /// Files that were written so that it outlives a restart: host and path.
    pub persisted: Vec<String>,
    /// What else is to be known: whole sentences.
    pub notes: Vec<String>,
}

/// Whose packets become larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeReach {
    /// Those to everybody on the segment.
    Segment,
    /// Those between the two hosts: the rest of a mixed segment is unchanged.
    Peer,
}

/// How a change ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ChangeOutcome {
    /// Both devices had this MTU already.
    Unneeded,
    /// Both hosts keep it until they reboot.
    Committed,
    /// It did not work, and both hosts were restored.
    RolledBack {
        /// In which stage.
        stage: ChangeStage,
        /// What does not get through, if that was it.
        stopped: Vec<Stopped>,
        /// What else went wrong: a whole sentence, or nothing.
        why: String,
    },
}

/// What speaks against beginning a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// Even now nothing, or no transfer over TCP, gets through.
    Broken(Going),
    /// Not even now packets of the size of the devices get through, so the size of the devices is not
    /// what is wrong.
    Hole(Going, u32),
    /// The device may lose its link when it changes, and with it the control connection.
    DropsLink {
        /// The host: the one that sends in this direction.
        end: Going,
        /// Its device.
        device: String,
        /// The driver of that.
        driver: String,
    },
}

/// A stage of a change, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeStage {
    /// Both hosts will undo everything unless the change is confirmed.
    Arm,
    /// Routes keep ordinary packets at the smaller size.
    Pin,
    /// The devices change.
    Widen,
    /// Probes of the new size go both ways.
    Probe,
    /// Ordinary packets may have the new size.
    Unpin,
    /// New connections transfer data both ways.
    Verify,
    /// A new connection makes it permanent.
    Commit,
}

named! {
    /// A direction, seen from this host.
    Going, "direction" {
        /// To the remote host.
        Forward = "forward",
        /// From it.
        Reverse = "reverse",
    }
}

/// A direction in which a size does not get through.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stopped {
    /// Which.
    pub way: Going,
    /// The largest size that does; `None`: none does.
    pub passes: Option<u32>,
    /// What stops larger packets.
    pub cause: MtuCause,
    /// A transfer over TCP hung.
    pub hangs: bool,
}

impl MtuReport {
    /// What was found in a direction.
    pub fn way(&self, going: Going) -> &Way {
        match going {
            Going::Forward => &self.forward,
            Going::Reverse => &self.reverse,
        }
    }

    /// The end that sends in a direction.
    pub fn sender(&self, going: Going) -> Option<&PathEnd> {
        match going {
            Going::Forward => Some(&self.local),
            Going::Reverse => self.remote.as_ref(),
        }
    }
}

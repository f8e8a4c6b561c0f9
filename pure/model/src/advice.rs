//! What to set, and why: needs of a path, proposals, and what the settings of a host are worth.

use crate::finding;
use crate::names::named;
use crate::{BitRate, Bytes, Direction, Knob, Nanos, Scope, Setting, Side};
use serde::{Deserialize, Serialize};

/// What one direction of a path needs of its hosts, for one connection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Needs {
    /// Which way.
    pub direction: Direction,
    /// What it is to carry.
    #[serde(rename = "rate_bit_s")]
    pub rate: BitRate,
    /// `user`: named by the user; `line`: the slower device; `reached`; `step`: four times what was
    /// reached, because buffers limited it.
    pub rate_from: RateFrom,
    /// RTT under load, the 95th percentile; the idle one where processors limit, for which the loaded one waits.
    #[serde(rename = "rtt_ns")]
    pub rtt: Nanos,
    /// Connections that share the rate.
    pub connections: u32,
    /// Bandwidth-delay product of each.
    pub bdp: Bytes,
    /// Greatest of `net.ipv4.tcp_rmem` at the receiver.
    pub receive_buffer: Bytes,
    /// Greatest of `net.ipv4.tcp_wmem` at the sender.
    pub send_buffer: Bytes,
}

impl Needs {
    /// How its bandwidth-delay product comes about.
    pub fn in_flight(&self) -> String {
        let Needs { rate, rtt, bdp, .. } = self;
        let among = match self.connections {
            0 | 1 => String::new(),
            n => format!(" in each of {n} connections"),
        };
        let from = self.rate_from.words();
        format!("{rate} ({from}) x RTT {rtt} = {bdp} in flight{among}")
    }

    /// The `SO_RCVBUF` to request where it is set by hand: the kernel doubles it (socket(7)).
    pub fn asked_receive_buffer(&self) -> Bytes {
        Bytes(self.receive_buffer.0 / 2)
    }

    /// The `SO_SNDBUF` to request where it is set by hand.
    pub fn asked_send_buffer(&self) -> Bytes {
        Bytes(self.send_buffer.0 / 2)
    }
}

/// Where the rate that a path is to carry comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RateFrom {
    /// The user named it.
    User,
    /// The slower of the two hosts' devices: buffers held the transfer, so the path may carry as much.
    Line,
    /// It was reached, and buffers did not hold it.
    Reached,
    /// Four times what was reached: buffers held the transfer, and what the path carries is unknown.
    Step,
}

impl RateFrom {
    /// Behind the rate.
    pub const fn words(self) -> &'static str {
        match self {
            RateFrom::User => "as you say",
            RateFrom::Line => "of the slower device",
            RateFrom::Reached => "as reached",
            RateFrom::Step => "four times what was reached, since no source has the path's rate",
        }
    }
}

/// A setting that is proposed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// What to set, and where (`knob=value[@place]`): read with the direction of its proposal.
    pub setting: Setting,
    /// The host to change.
    pub side: Side,
    /// The value now; `None` where it is not reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<String>,
    /// What this host's kernel has by default; `None` where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// Why, with the numbers.
    pub why: String,
    /// Where the rule comes from.
    pub source: String,
    /// What else may happen.
    pub risk: String,
    /// How much of the host it changes.
    pub scope: Scope,
    /// Only connections that are opened afterwards have it.
    pub new_connections: bool,
}

/// Settings that answer one finding: an arm of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Proposal {
    /// What it does, in a few words.
    pub title: String,
    /// Direction of the data that it is for: defines sender and receiver.
    pub direction: Direction,
    /// The limit that it answers, as in a finding.
    pub cause: finding::Limit,
    /// What is set, together. Never empty.
    pub changes: Vec<Change>,
    /// What tries the same with nothing but options of linerate's own connections, which need no right and
    /// change nothing of the machine; empty where no option does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stand_in: Vec<Setting>,
}

impl Proposal {
    /// What is set, as an arm of an experiment takes it.
    pub fn settings(&self) -> Vec<Setting> {
        self.changes.iter().map(|c| c.setting.clone()).collect()
    }

    /// The largest scope among its changes.
    pub fn scope(&self) -> Scope {
        let scopes = self.changes.iter().map(|c| c.scope);
        scopes.max().unwrap_or(Scope::Socket)
    }
}

/// A setting that a finding or a guide suggests, and that is not worth an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Declined {
    /// The setting.
    pub setting: Setting,
    /// Why not.
    pub why: String,
}

/// What to do about one direction of a path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// What it needs.
    pub needs: Needs,
    /// What the findings justify, the most promising first; empty: there is nothing to set.
    pub proposals: Vec<Proposal>,
    /// What was considered and is refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub declined: Vec<Declined>,
    /// What no setting fixes, a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub otherwise: Vec<String>,
}

impl Change {
    /// A change with its entry in the table of knobs.
    pub fn new(setting: Setting, side: Side, why: String, source: &str) -> Change {
        let knob: Knob = setting.knob;
        Change {
            setting,
            side,
            now: None,
            default: None,
            why,
            source: source.to_owned(),
            risk: knob.row().risk.to_owned(),
            scope: knob.scope(),
            new_connections: knob.needs_new_connections(),
        }
    }
}

/// A file that sets sysctls when a host starts, with its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigFile {
    /// Its path.
    pub path: String,
    /// Its text.
    pub text: String,
}

/// A line of such a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setter {
    /// The file.
    pub path: String,
    /// The line, from 1.
    pub line: u32,
    /// The value, white space folded.
    pub value: String,
}

/// A file that makes settings last over a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Persistent {
    /// Its path.
    pub path: String,
    /// Its text, whole.
    pub text: String,
    /// Its mode, as of chmod(1).
    pub mode: u32,
    /// What it sets.
    pub holds: Vec<Setting>,
}

/// What sets a network device up, and so keeps what is to last there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Manager {
    /// `netplan(5)`, which defines the device among those of this kind (`ethernets`, `bonds`, ...).
    Netplan {
        /// The kind.
        kind: String,
    },
    /// `systemd.network(5)`, by this file.
    Networkd {
        /// Its name, which ends with `.network`.
        file: String,
    },
    /// `NetworkManager(8)`.
    NetworkManager,
}

/// A system that linerate does not set, but writes the text for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreign {
    /// `sysctl.conf(5)` and `rc.conf(5)` of FreeBSD.
    FreeBsd,
    /// `sysctl.conf(5)` of macOS.
    MacOs,
}

impl Foreign {
    /// All of them by their names.
    pub const ALL: [(&'static str, Foreign); 2] =
        [("freebsd", Foreign::FreeBsd), ("macos", Foreign::MacOs)];
}

/// What the settings of the hosts of a path are worth.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AuditReport {
    /// The remote host as the user named it.
    pub host: String,
    /// The run that it was judged by, by its name in the archive.
    pub run: crate::RunId,
    /// What each direction needs, and what its findings justify.
    pub advice: Vec<Advice>,
    /// The hosts, that of the command first.
    pub hosts: Vec<HostAudit>,
    /// Caveats, a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub doubts: Vec<String>,
}

/// What the settings of one host are worth on one path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostAudit {
    /// Which host.
    pub side: Side,
    /// Its name.
    pub hostname: String,
    /// Its kernel.
    pub kernel: String,
    /// The settings, those that do harm first.
    pub items: Vec<Item>,
    /// What else sets such settings there, a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<String>,
}

/// A setting, judged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Item {
    /// Its name: of a sysctl, or as in 'linerate tune knobs'.
    pub name: String,
    /// The value now.
    pub now: String,
    /// What this host's kernel has by default; `None` where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// What it should be; `None` if it may stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wanted: Option<String>,
    /// The judgement.
    pub worth: Worth,
    /// It is a limit below that of this kernel's default.
    pub lowers: bool,
    /// Why.
    pub why: String,
    /// Recommendations of well-known guides, and their worth here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guides: Vec<Guidance>,
    /// The lines that set it when the host starts, in their order: the last one wins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub set_by: Vec<Setter>,
}

named! {
    /// What a setting is worth on a path.
    Worth, "worth" {
        /// It costs this path something.
        Harmful = "harmful",
        /// More of it would help, or is worth an experiment.
        Raise = "raise",
        /// It changes nothing here.
        Pointless = "pointless",
        /// It is as it should be.
        Keep = "keep",
    }
}

/// A guide's recommendation for a setting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Guidance {
    /// The guide.
    pub guide: String,
    /// Where it is written.
    pub source: String,
    /// The value that it names.
    pub value: String,
    /// What following it would be worth here.
    pub worth: Worth,
    /// It would be a limit below that of this kernel's default.
    pub lowers: bool,
    /// Why.
    pub why: String,
}

/// What sets a host up when it starts, as far as it bears on a transfer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Configured {
    /// The files of `sysctl.d(5)` and `/etc/sysctl.conf`, in no order.
    pub files: Vec<ConfigFile>,
    /// The active profile of tuned and those that it includes, itself first.
    pub tuned: Vec<ConfigFile>,
    /// NetworkManager runs.
    pub network_manager: bool,
    /// cloud-init sets the host up.
    pub cloud_init: bool,
}

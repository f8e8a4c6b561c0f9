//! From findings to settings: one function a cause that a setting can fix. Other advice is text.

use crate::defaults::default_of;
use crate::host::{now, number, three};
use crate::path_sample::PathSample;
use crate::requirements::{fits_memory, largest_granted, needs};
use model::advice::{Advice, Change, Declined, Proposal};
use model::finding::{Conclusion, Evidence, EvidenceKey, Explanation, Finding, Limit};
use model::{
    Bytes, DeviceKnob, Fingerprint, Knob, OffloadKnob, On, RouteKnob, Setting, Side, SocketKnob,
    Value,
};

/// Both ends of a path.
#[derive(Clone, Copy, Debug)]
pub struct PathHosts<'a> {
    /// The host of the command.
    pub local: &'a Fingerprint,
    /// The remote host; `None` if its settings are unknown.
    pub remote: Option<&'a Fingerprint>,
}

impl<'a> PathHosts<'a> {
    /// The host at one side.
    pub fn at(self, side: Side) -> Option<&'a Fingerprint> {
        match side {
            Side::Local => Some(self.local),
            Side::Remote => self.remote,
        }
    }
}

/// So many causes are followed up: the first is the one that limits, another fits as well.
const CAUSES: usize = 3;

const BUFFERS: &str = "RFC 7323; a window is 62 % of its buffer (measured on Linux 6.18), and before Linux 6.6 what tcp_adv_win_scale says";
const CONGESTION: &str =
    "RFC 9438 and draft-ietf-ccwg-bbr; Mathis and others 1997 (rate = MSS/RTT x 1.22/sqrt(loss))";
const PACING: &str =
    "Aggarwal, Savage and Anderson 2000; tc-fq(8), SO_MAX_PACING_RATE in socket(7)";
const OFFLOADS: &str = "Documentation/networking/segmentation-offloads.rst";
const FINDING: &str = "the finding";

/// What to set for one direction of a path, given what explains its connections (of other directions they are
/// passed over). Empty `proposals`: no finding supports a setting.
pub fn propose(way: &PathSample, hosts: PathHosts<'_>, explanations: &[Explanation]) -> Advice {
    let mine: Vec<&Explanation> = explanations
        .iter()
        .filter(|e| e.direction.is_none_or(|d| d == way.direction))
        .collect();
    let causes = causes(&mine);
    let held = |limit| is_buffer(limit) && !way.is_full(limit);
    let held = causes.iter().any(|c| held(c.limit));
    // Most of a loaded RTT is a wait for the processor then, which no buffer shortens.
    let busy = causes.first().is_some_and(|c| c.limit == Limit::Cpu);
    let idle = way.idle_rtt.filter(|_| busy);
    let way = &PathSample {
        rtt: idle.unwrap_or(way.rtt),
        ..way.clone()
    };
    let advice = Advice {
        needs: needs(way, hosts, held),
        proposals: Vec::new(),
        declined: Vec::new(),
        otherwise: Vec::new(),
    };
    let mut advisor = Advisor { way, hosts, advice };
    for cause in causes.iter().take(CAUSES) {
        advisor.answer(cause);
    }
    advisor.advice
}

/// The causes that are named, by how many connections name them and in which place; each with a finding of
/// its own.
fn causes<'a>(explanations: &[&'a Explanation]) -> Vec<&'a Finding> {
    let mut votes: Vec<(usize, &Finding)> = Vec::new();
    for explanation in explanations {
        let Conclusion::Limited { by } = &explanation.conclusion else {
            continue;
        };
        for (place, limit) in by.iter().enumerate() {
            let Some(finding) = explanation.finding(*limit) else {
                continue;
            };
            let vote = CAUSES.saturating_sub(place);
            match votes.iter_mut().find(|(_, f)| f.limit == *limit) {
                Some((votes, _)) => *votes += vote,
                None => votes.push((vote, finding)),
            }
        }
    }
    votes.sort_by_key(|(votes, _)| std::cmp::Reverse(*votes));
    votes.into_iter().map(|(_, finding)| finding).collect()
}

/// What is being put together.
struct Advisor<'a> {
    way: &'a PathSample,
    hosts: PathHosts<'a>,
    advice: Advice,
}

impl Advisor<'_> {
    fn answer(&mut self, cause: &Finding) {
        match cause.limit {
            limit if is_buffer(limit) && self.way.is_full(limit) => self.advice.otherwise.push(format!(
                "{limit} was full, and so was the path: the round trip grew from {} to {} under load, and a larger \
                 buffer would only lengthen its queue",
                self.way.idle_rtt.unwrap_or_default(),
                self.way.rtt
            )),
            Limit::SendBuffer | Limit::ReceiveWindow => self.buffers(cause),
            Limit::RandomLoss => {
                self.congestion(cause);
                self.larger_segments();
            }
            Limit::BurstLoss => {
                self.pacing(cause);
                self.congestion(cause);
            }
            Limit::Policer => self.policer(cause),
            Limit::BlackHole => self.black_hole(cause),
            Limit::Cpu => self.offloads(cause),
            // The path is full and its queue long: who waits for answers gains, who moves bytes does not.
            Limit::Bufferbloat if self.way.latency => self.congestion(cause),
            Limit::Nagle | Limit::DelayedAck => self.as_found(cause, "send small segments at once"),
            Limit::SlowStart => self.as_found(cause, "a larger first window"),
            Limit::Reordering => self.as_found(cause, "more patience with reordering"),
            // No setting of these hosts changes it.
            Limit::Handshake
            | Limit::Closing
            | Limit::Application
            | Limit::ZeroWindow
            | Limit::CongestionWindow
            | Limit::LossRecovery
            | Limit::RtoStall
            | Limit::Pacing
            | Limit::DeviceQueue
            | Limit::BottleneckRate
            | Limit::Bufferbloat
            | Limit::Shaper
            | Limit::EcnMarks
            | Limit::AckPath
            | Limit::DuplexLoss
            | Limit::ReadingApplication
            | Limit::SourceStorage
            | Limit::SinkStorage => {}
        }
        let words = cause.remedies.iter().filter(|r| r.change.is_none());
        self.advice.otherwise.extend(words.map(|r| r.words.clone()));
    }

    fn sender(&self) -> Side {
        self.way.direction.sender()
    }

    fn receiver(&self) -> Side {
        self.sender().other()
    }

    /// Larger buffers, at both ends at once: the next smaller one would hold the transfer as soon as the first
    /// is gone.
    fn buffers(&mut self, cause: &Finding) {
        if self
            .advice
            .proposals
            .iter()
            .any(|p| p.title == LARGER_BUFFERS)
        {
            return;
        }
        let needs = self.advice.needs.clone();
        let bdp = needs.in_flight();
        let sends = cause.limit == Limit::SendBuffer;
        let (set_by_hand, asked) = match sends {
            true => (self.way.send_buffer_set, needs.asked_send_buffer()),
            false => (self.way.receive_buffer_set, needs.asked_receive_buffer()),
        };
        let own = |why: String| {
            let asked = Value::Number(asked.0);
            self.own(buffer_option(sends), asked, why, BUFFERS)
        };
        if set_by_hand {
            // It does not grow then, whatever the sysctls say.
            let own = own(format!(
                "it was set explicitly, which disables autotuning; {bdp}"
            ));
            return self.propose(LARGER_BUFFERS, cause, vec![own], Vec::new());
        }
        let receiver = (self.receiver(), "net.ipv4.tcp_rmem", needs.receive_buffer);
        let sender = (self.sender(), "net.ipv4.tcp_wmem", needs.send_buffer);
        let mut changes = Vec::new();
        let mut stand_in = Vec::new();
        for (side, key, wanted) in [receiver, sender] {
            let Some(host) = self.hosts.at(side) else {
                // An iperf3 server: what its own sockets are asked to have is all that reaches it.
                if (side == self.sender()) == sends {
                    changes.push(own(format!("{bdp}; linerate cannot change that host")));
                    stand_in.extend(self.asked(side, wanted, 0));
                }
                continue;
            };
            let (Ok(sysctl), Some([least, initial, greatest])) = (key.parse(), three(host, key))
            else {
                continue;
            };
            if greatest >= wanted.0 {
                continue;
            }
            let values = Value::Numbers(vec![least, initial, wanted.0]);
            let why = format!(
                "{bdp}; a buffer of {wanted} holds that, the kernel's overhead, and a quarter more"
            );
            let mut change = self.change(Knob::Sysctl(sysctl), values, side, why, BUFFERS);
            if fits_memory(host, wanted, self.way.connections) == Some(false) {
                change.risk.push_str(&format!(
                    "; {} such connections may take more than net.ipv4.tcp_mem lets them",
                    self.way.connections
                ));
            }
            changes.push(change);
            stand_in.extend(self.asked(side, wanted, greatest));
        }
        changes.extend(self.autotuning());
        self.propose(LARGER_BUFFERS, cause, changes, stand_in);
    }

    /// The same amount by an option of the own sockets, as far as the host lets it be asked for and as far as
    /// it exceeds what they grow to by themselves.
    fn asked(&self, side: Side, wanted: Bytes, grows_to: u64) -> Option<Setting> {
        let sends = side == self.sender();
        let key = match sends {
            true => "net.core.wmem_max",
            false => "net.core.rmem_max",
        };
        // A child namespace does not show the bound; its host's own holds.
        let bound = largest_granted(self.hosts.at(side), key).unwrap_or(Bytes(DEFAULT_ASKABLE));
        let asked = (wanted.0 / 2).min(bound.0);
        (asked * 2 > grows_to).then(|| by_option(buffer_option(sends), Value::Number(asked)))
    }

    /// What keeps a window small however large its buffer may grow.
    fn autotuning(&self) -> Vec<Change> {
        let side = self.receiver();
        let Some(host) = self.hosts.at(side) else {
            return Vec::new();
        };
        let keys = [
            ("tcp_moderate_rcvbuf", "the receive buffer does not grow"),
            (
                "tcp_window_scaling",
                "no window above 64 KiB can be announced",
            ),
        ];
        let switched_on = |(key, why): (&str, &str)| {
            let key = format!("net.ipv4.{key}");
            number(host, &key).filter(|n| *n == 0)?;
            let (knob, on) = (Knob::Sysctl(key.parse().ok()?), Value::Number(1));
            let why = format!("{why} while it is 0");
            Some(self.change(knob, on, side, why, "RFC 7323; ip-sysctl.rst"))
        };
        keys.into_iter().filter_map(switched_on).collect()
    }

    fn congestion(&mut self, cause: &Finding) {
        const BBR: &str = "bbr";
        let used = self.way.congestion.clone().unwrap_or_default();
        if used.starts_with(BBR) {
            return self.advice.otherwise.push(format!(
                "the congestion control is {used} already: another one has nothing to add"
            ));
        }
        let side = self.sender();
        let lost = |e: &&Evidence| e.key == EvidenceKey::RetransmittedSegments;
        let lost = cause.evidence.iter().find(lost);
        let lost = lost.and_then(|e| Some((e.quantity.number()?, e.of?)));
        let lost = lost.map_or_else(String::new, |(lost, of)| {
            format!("{lost} of {of} segments were retransmitted; ")
        });
        let why = format!("{lost}{used} treats every loss as congestion, bbr uses rate and RTT");
        let bbr = Value::Word(BBR.to_owned());
        let congctl = Knob::Route(RouteKnob::Congctl);
        let mut change = self.change(congctl, bbr.clone(), side, why, CONGESTION);
        change.now = change.now.or(Some(used).filter(|used| !used.is_empty()));
        let host = self.hosts.at(side).and_then(|h| h.congestion.as_ref());
        if host.is_some_and(|c| c.available.iter().all(|name| name != BBR)) {
            change
                .risk
                .push_str("; the module tcp_bbr is not loaded (modprobe tcp_bbr)");
        }
        let own = by_option(Knob::Socket(SocketKnob::Congestion), bbr);
        self.propose("another congestion control", cause, vec![change], vec![own]);
    }

    /// What a loss costs is less by as much as segments are larger (Mathis).
    fn larger_segments(&mut self) {
        let used = self.way.mss + 40;
        let larger = |mtu: &u32| self.way.mss > 0 && *mtu > used + used / 4;
        if let Some(mtu) = self.way.mtu.filter(larger) {
            self.advice.otherwise.push(format!(
                "packets of {mtu} bytes get through, and {used} are used: larger segments lose less for each loss \
                 (linerate tune mtu HOST --to {mtu})"
            ));
        }
    }

    /// The rate that the finding proposes, by an option of each connection; and `fq`, which paces every
    /// connection of the device by its own window.
    fn pacing(&mut self, cause: &Finding) {
        let Some(paced) = change_of(cause, Knob::Socket(SocketKnob::Pacing)) else {
            return;
        };
        let side = self.sender();
        let why =
            "bursts at the speed of the sender's link overflow a queue that is too short for them"
                .to_owned();
        let device = self.hosts.at(side).and_then(|h| h.device.as_ref());
        let qdisc = device.and_then(|device| device.qdisc.as_deref()?.split(' ').next());
        let (change, stand_in) = match qdisc {
            Some("fq") | None => (self.own(paced.knob, paced.value, why, PACING), Vec::new()),
            Some(_) => {
                let fq = Value::Word("fq".to_owned());
                let fq = self.change(Knob::Device(DeviceKnob::Qdisc), fq, side, why, PACING);
                (fq, vec![paced])
            }
        };
        self.propose("pace the sender", cause, vec![change], stand_in);
    }

    /// Just below what a policer lets pass nothing is lost; BBR bears the loss. The experiment chooses.
    fn policer(&mut self, cause: &Finding) {
        let paced = change_of(cause, Knob::Socket(SocketKnob::Pacing)).map(|s| s.value);
        if let Some(Value::Number(rate)) = paced {
            let connections = u64::from(self.way.connections.max(1));
            // Above all that was reached, it is the rate of all connections together.
            let each = match rate > self.way.goodput.0 {
                true => rate / connections,
                false => rate,
            };
            if each > self.way.goodput.0 / connections {
                let why = format!(
                    "a policer drops what exceeds its rate; {} came through",
                    self.way.goodput
                );
                let each = Value::Number(each / 100 * 100);
                let own = self.own(Knob::Socket(SocketKnob::Pacing), each, why, PACING);
                let title = "stay below the policer's rate";
                self.propose(title, cause, vec![own], Vec::new());
            }
        }
        self.congestion(cause);
    }

    fn black_hole(&mut self, cause: &Finding) {
        let side = self.sender();
        let change = match self.way.mtu {
            Some(mtu) => {
                let why = format!("packets above {mtu} bytes are dropped silently");
                let (knob, value) = (Knob::Route(RouteKnob::Mtu), Value::Number(mtu.into()));
                self.change(knob, value, side, why, "RFC 2923; RFC 8899")
            }
            None => {
                let Ok(key) = "net.ipv4.tcp_mtu_probing".parse() else {
                    return;
                };
                let why =
                    "large segments vanish, and which size passes is not known yet".to_owned();
                self.advice.otherwise.push(
                    "probing costs each connection seconds before it finds the size: 'linerate mtu HOST' measures it once"
                        .to_owned(),
                );
                self.change(Knob::Sysctl(key), Value::Number(1), side, why, "RFC 4821")
            }
        };
        let mss = self.way.mtu.map_or(1220, |mtu| mtu.saturating_sub(40));
        let own = by_option(Knob::Socket(SocketKnob::Mss), Value::Number(u64::from(mss)));
        let title = "smaller packets to this host";
        self.propose(title, cause, vec![change], vec![own]);
    }

    fn offloads(&mut self, cause: &Finding) {
        let wanted = [
            (self.sender(), OffloadKnob::Tso),
            (self.sender(), OffloadKnob::Gso),
            (self.receiver(), OffloadKnob::Gro),
        ];
        let mut changes = Vec::new();
        for (side, offload) in wanted {
            let name = offload.tool_name();
            let device = self.hosts.at(side).and_then(|h| h.device.as_ref());
            if device.and_then(|d| d.offloads.get(name)) != Some(&false) {
                continue;
            }
            let why = format!(
                "the processor is the limit, and {name} is off: every segment goes through it alone"
            );
            let knob = Knob::Device(DeviceKnob::Offload(offload));
            changes.push(self.change(knob, Value::Switch(true), side, why, OFFLOADS));
        }
        let title = "let the device do the segmentation";
        self.propose(title, cause, changes, Vec::new());
    }

    /// What the finding itself names.
    fn as_found(&mut self, cause: &Finding, title: &'static str) {
        for remedy in &cause.remedies {
            let change = remedy.change.as_ref();
            let Some(Ok(setting)) = change.map(|c| c.parse::<Setting>()) else {
                continue;
            };
            let (Setting { knob, value, on }, why) = (setting, remedy.words.clone());
            let change = if knob.is_socket() {
                self.own(knob, value, why, FINDING)
            } else {
                let side = on.sides(self.way.direction).first().copied();
                self.change(knob, value, side.unwrap_or(self.sender()), why, FINDING)
            };
            self.propose(title, cause, vec![change], Vec::new());
        }
    }

    /// Puts a proposal on the list without what would lower a limit, change nothing, or is known to be worth
    /// nothing.
    fn propose(
        &mut self,
        title: &str,
        cause: &Finding,
        changes: Vec<Change>,
        stand_in: Vec<Setting>,
    ) {
        let mut kept = Vec::new();
        for change in changes {
            let host = self.hosts.at(change.side);
            let (setting, version) = (&change.setting, host.and_then(Fingerprint::kernel_version));
            let objection = setting.objection(version).map(str::to_owned);
            if objection.is_none() && host.is_none() && !setting.knob.is_socket() {
                let why = "at the remote host, which cannot be read or set from here";
                self.advice.otherwise.push(format!("{setting} {why}"));
            } else if let Some(why) = objection.or_else(|| self.lowers(setting, host)) {
                let setting = change.setting;
                self.advice.declined.push(Declined { setting, why });
            } else {
                kept.push(change);
            }
        }
        let settings = |changes: &[Change]| -> Vec<Setting> {
            changes.iter().map(|c| c.setting.clone()).collect()
        };
        let is_there = |p: &Proposal| settings(&p.changes) == settings(&kept);
        if kept.is_empty() || self.advice.proposals.iter().any(is_there) {
            return;
        }
        self.advice.proposals.push(Proposal {
            title: title.to_owned(),
            direction: self.way.direction,
            cause: cause.limit,
            changes: kept,
            stand_in,
        });
    }

    /// Why a setting is left out: it is there already, or would lower what is.
    fn lowers(&self, setting: &Setting, host: Option<&Fingerprint>) -> Option<String> {
        let has = now(host?, setting.knob)?;
        let says = setting.knob.format_value(&has);
        if has == setting.value {
            return Some(format!("it is {says} already"));
        }
        let lowers = match (&setting.knob, &has, &setting.value) {
            (Knob::Route(RouteKnob::Mtu), ..) => false,
            (_, Value::Number(has), Value::Number(wanted)) => wanted < has,
            (_, Value::Numbers(has), Value::Numbers(wanted)) => {
                has.iter().zip(wanted).any(|(has, wanted)| wanted < has)
            }
            _ => false,
        };
        lowers.then(|| format!("it is {says}, which is higher: limits are not lowered"))
    }

    fn own(&self, knob: Knob, value: Value, why: String, source: &str) -> Change {
        Change::new(by_option(knob, value), self.sender(), why, source)
    }

    /// A change at one of the hosts, beside what is there and what its kernel would have by itself.
    fn change(&self, knob: Knob, value: Value, side: Side, why: String, source: &str) -> Change {
        let on = match side == self.sender() {
            true => On::Sender,
            false => On::Receiver,
        };
        let host = self.hosts.at(side);
        let setting = Setting { knob, value, on };
        let say = |value: Value| knob.format_value(&value);
        Change {
            now: host.and_then(|host| now(host, knob)).map(say),
            default: match (host, knob) {
                (Some(host), Knob::Sysctl(key)) => default_of(host, key).map(say),
                _ => None,
            },
            ..Change::new(setting, side, why, source)
        }
    }
}

fn buffer_option(sends: bool) -> Knob {
    Knob::Socket(match sends {
        true => SocketKnob::SendBuffer,
        false => SocketKnob::ReceiveBuffer,
    })
}

/// An option of the own sockets, on both hosts.
fn by_option(knob: Knob, value: Value) -> Setting {
    let on = On::Both;
    Setting { knob, value, on }
}

fn is_buffer(limit: Limit) -> bool {
    matches!(limit, Limit::SendBuffer | Limit::ReceiveWindow)
}

const LARGER_BUFFERS: &str = "larger buffers";

/// `net.core.rmem_max` and `wmem_max` of kernels before 6.18: what can be asked for anywhere.
const DEFAULT_ASKABLE: u64 = 212_992;

/// The setting of a knob that a finding names.
fn change_of(cause: &Finding, knob: Knob) -> Option<Setting> {
    let changes = cause.remedies.iter().filter_map(|r| r.change.as_ref());
    let mut settings = changes.filter_map(|c| c.parse::<Setting>().ok());
    settings.find(|s| s.knob == knob)
}

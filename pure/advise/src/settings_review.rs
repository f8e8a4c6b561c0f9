//! What the settings of a host are worth on a path, and what those of the guides would be.

use crate::config_conflicts::others;
use crate::defaults::default_of;
use crate::guides::GUIDES;
use crate::host::now;
use crate::path_sample::PathSample;
use crate::requirements::fits_memory;
use crate::sysctl_precedence::setters;
use model::advice::{
    Advice, Change, ConfigFile, Configured, Guidance, HostAudit, Item, Needs, Worth,
};
use model::{BitRate, Bytes, Fingerprint, Knob, RouteKnob, Setting, Side, SysctlKey, Value};

/// Judges the settings of the host at one side of a path. `path` has each measured direction with the advice of
/// [`propose`](crate::propose); `configured` is the host's boot configuration, where it is known.
///
/// Settings that are right and in no guide are left out, except the few that bear on every transfer.
pub fn review_settings(
    host: &Fingerprint,
    side: Side,
    path: &[(PathSample, Advice)],
    configured: &Configured,
) -> HostAudit {
    let reviewer = Reviewer::new(host, side, path);
    let sysctls = SysctlKey::all().filter_map(|key| reviewer.item(key, &configured.files));
    let mut items: Vec<Item> = sysctls
        .chain(reviewer.device())
        .chain(reviewer.route())
        .collect();
    items.sort_by_key(|item| item.worth);
    HostAudit {
        side,
        hostname: host.hostname.clone(),
        kernel: host.kernel.clone(),
        items,
        others: others(configured),
    }
}

/// Reported even where they are right.
const ALWAYS: [&str; 3] = [
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.ipv4.tcp_congestion_control",
];

struct Reviewer<'a> {
    host: &'a Fingerprint,
    /// Of the direction in which it receives, and of that in which it sends.
    receives: Option<&'a Needs>,
    sends: Option<&'a Needs>,
    /// What findings propose for this host.
    asked: Vec<&'a Change>,
    latency: bool,
    receive_buffer_set: bool,
    send_buffer_set: bool,
}

struct Judgement {
    worth: Worth,
    lowers: bool,
    wanted: Option<Value>,
    why: String,
}

fn judged(worth: Worth, why: impl Into<String>, wanted: Option<Value>) -> Judgement {
    Judgement {
        worth,
        wanted,
        why: why.into(),
        lowers: false,
    }
}

/// The value is right.
fn keep(why: impl Into<String>) -> Judgement {
    judged(Worth::Keep, why, None)
}

fn pointless(why: impl Into<String>) -> Judgement {
    judged(Worth::Pointless, why, None)
}

/// Harmful, where this value would not be.
fn harmful(wanted: u64, why: impl Into<String>) -> Judgement {
    judged(Worth::Harmful, why, Some(Value::Number(wanted)))
}

impl<'a> Reviewer<'a> {
    fn new(host: &'a Fingerprint, side: Side, path: &'a [(PathSample, Advice)]) -> Reviewer<'a> {
        let needs = |sends: bool| {
            let mut all = path.iter().map(|(_, advice)| &advice.needs);
            all.find(|needs| (needs.direction.sender() == side) == sends)
        };
        let proposals = path.iter().flat_map(|(_, advice)| &advice.proposals);
        let changes = proposals.flat_map(|p| &p.changes);
        Reviewer {
            host,
            receives: needs(false),
            sends: needs(true),
            asked: changes.filter(|c| c.side == side).collect(),
            latency: path.iter().any(|(way, _)| way.latency),
            receive_buffer_set: path.iter().any(|(way, _)| way.receive_buffer_set),
            send_buffer_set: path.iter().any(|(way, _)| way.send_buffer_set),
        }
    }

    fn item(&self, key: SysctlKey, files: &[ConfigFile]) -> Option<Item> {
        let knob = Knob::Sysctl(key);
        let has = now(self.host, knob)?;
        let judged = self.proposed_for(key, &has, self.judge(key, &has));
        let guides = self.guides(key, &has, &judged);
        let reported =
            judged.worth != Worth::Keep || !guides.is_empty() || ALWAYS.contains(&key.name());
        reported.then(|| Item {
            name: key.name().to_owned(),
            now: knob.format_value(&has),
            default: default_of(self.host, key).map(|value| knob.format_value(&value)),
            wanted: judged.wanted.map(|value| knob.format_value(&value)),
            worth: judged.worth,
            lowers: judged.lowers,
            why: judged.why,
            guides,
            set_by: setters(files, key.name()),
        })
    }

    fn guides(&self, key: SysctlKey, has: &Value, of_now: &Judgement) -> Vec<Guidance> {
        let all = GUIDES.iter().filter_map(|guide| {
            let value = guide.value(key)?;
            let judged = self.follow(key, &value, has, of_now);
            Some(Guidance {
                guide: guide.name.to_owned(),
                source: guide.source.to_owned(),
                value: Knob::Sysctl(key).format_value(&value),
                worth: judged.worth,
                lowers: judged.lowers,
                why: judged.why,
            })
        });
        all.collect()
    }

    /// What it would be worth to set this value in the place of what is there, in few words: the reasons stand
    /// beside the setting.
    fn follow(&self, key: SysctlKey, value: &Value, has: &Value, of_now: &Judgement) -> Judgement {
        if value == has {
            return Judgement {
                wanted: None,
                why: "so it is here".to_owned(),
                ..*of_now
            };
        }
        let judgement = self.judge(key, value);
        if self.asking(key).is_some_and(|c| c.setting.value == *value) {
            return judged(Worth::Raise, "proposed by a finding", None);
        }
        let less = is_limit(key) && value.greatest().is_some_and(|v| Some(v) < has.greatest());
        let Judgement { worth, lowers, .. } = judgement;
        let short = worth == Worth::Raise || (lowers && worth == Worth::Harmful);
        let too_little = if short {
            ", too little for this path"
        } else {
            ""
        };
        let worth_now = match worth {
            Worth::Raise if less => Worth::Harmful,
            Worth::Keep if matches!(of_now.worth, Worth::Harmful | Worth::Raise) => Worth::Raise,
            Worth::Keep => Worth::Pointless,
            worth => worth,
        };
        let default = default_of(self.host, key).filter(|_| lowers);
        let why = match default {
            Some(default) => format!(
                "lowers the limit to {}, where this kernel has {} by itself{too_little}",
                amount(key, value),
                amount(key, &default)
            ),
            None if short && less => format!("less than there is{too_little}"),
            None if short => format!("more than there is{too_little}"),
            None if worth != Worth::Keep => judgement.why,
            None if worth_now == Worth::Raise => "enough for this path".to_owned(),
            None => "what is there suffices".to_owned(),
        };
        Judgement {
            worth: worth_now,
            why,
            ..judgement
        }
    }

    /// The change of this key that a finding proposes.
    fn asking(&self, key: SysctlKey) -> Option<&Change> {
        let mut all = self.asked.iter().copied();
        all.find(|c| c.setting.knob == Knob::Sysctl(key))
    }

    fn judge(&self, key: SysctlKey, value: &Value) -> Judgement {
        let judged = match key.name() {
            "net.ipv4.tcp_rmem" => self.buffer(key, value, self.receives, |n| n.receive_buffer),
            "net.ipv4.tcp_wmem" => self.buffer(key, value, self.sends, |n| n.send_buffer),
            "net.core.rmem_max" => {
                let needs = self.receives.filter(|_| self.receive_buffer_set);
                self.largest_granted(value, needs.map(Needs::asked_receive_buffer), "SO_RCVBUF")
            }
            "net.core.wmem_max" => {
                let needs = self.sends.filter(|_| self.send_buffer_set);
                self.largest_granted(value, needs.map(Needs::asked_send_buffer), "SO_SNDBUF")
            }
            "net.ipv4.tcp_mem" => self.memory(value),
            "net.ipv4.tcp_congestion_control" => self.congestion(value),
            name => self.plain(name, key, value),
        };
        self.lowered(key, value, judged)
    }

    /// What a finding proposes is worth an experiment, unless the judgement is worse.
    fn proposed_for(&self, key: SysctlKey, value: &Value, judgement: Judgement) -> Judgement {
        match self.asking(key).filter(|_| judgement.worth == Worth::Keep) {
            Some(Change { setting, why, .. }) if setting.value != *value => {
                judged(Worth::Raise, why.clone(), Some(setting.value.clone()))
            }
            _ => judgement,
        }
    }

    /// Marks a limit below that of the kernel's default.
    fn lowered(&self, key: SysctlKey, value: &Value, mut judged: Judgement) -> Judgement {
        let default = default_of(self.host, key);
        let (Some(default), Some(at)) = (default, value.greatest()) else {
            return judged;
        };
        if !is_limit(key) || default.greatest().is_none_or(|default| at >= default) {
            return judged;
        }
        let why = match judged.worth {
            Worth::Keep => "no gain here, and a loss on a longer or faster path",
            _ => &judged.why,
        };
        judged.lowers = true;
        judged.why = format!(
            "lowers the limit to {}, where this kernel has {} by itself: {why}",
            amount(key, value),
            amount(key, &default)
        );
        judged.worth = match judged.worth {
            Worth::Keep | Worth::Pointless => Worth::Pointless,
            Worth::Raise | Worth::Harmful => Worth::Harmful,
        };
        judged.wanted = match judged.wanted {
            Some(wanted) if wanted.greatest() > default.greatest() => Some(wanted),
            _ => Some(default),
        };
        judged
    }

    fn buffer(
        &self,
        key: SysctlKey,
        value: &Value,
        needs: Option<&Needs>,
        buffer: impl Fn(&Needs) -> Bytes,
    ) -> Judgement {
        let &[least, initial, greatest] = numbers(value) else {
            return keep("");
        };
        let Some(needs) = needs else {
            return keep("nothing was measured that would use it");
        };
        let wanted = buffer(needs);
        let path = format!("{} x {} = {} in flight", needs.rate, needs.rtt, needs.bdp);
        let enough = Some(Value::Numbers(vec![least, initial, wanted.0]));
        if greatest < wanted.0 {
            let why = format!("short of what this path needs: {wanted} ({path})");
            return judged(Worth::Raise, why, enough);
        }
        if initial > LARGE_INITIAL {
            let initial = Bytes(initial);
            let why = format!(
                "{initial} at the start of every connection: autotuning grows buffers in use"
            );
            let default = default_of(self.host, key);
            let wanted = default.map(|d| Value::Numbers([&numbers(&d)[..2], &[greatest]].concat()));
            return judged(Worth::Pointless, why, wanted);
        }
        if fits_memory(self.host, Bytes(greatest), needs.connections) == Some(false) {
            let all = match needs.connections {
                1 => "a connection".to_owned(),
                n => format!("{n} connections"),
            };
            let why = format!(
                "{all} of it may take more than net.ipv4.tcp_mem lets them; this path needs {wanted}"
            );
            return judged(Worth::Harmful, why, enough);
        }
        keep(format!("this path needs {wanted} ({path})"))
    }

    fn largest_granted(&self, value: &Value, needs: Option<Bytes>, option: &str) -> Judgement {
        let short = needs.filter(|wanted| value.number().is_some_and(|has| has < wanted.0));
        let Some(wanted) = short else {
            return keep(format!(
                "bounds only buffers that a program sets by {option}; autotuned buffers grow beyond it"
            ));
        };
        let why = format!("short of what this path needs where {option} is set by hand: {wanted}");
        judged(Worth::Raise, why, Some(Value::Number(wanted.0)))
    }

    fn memory(&self, value: &Value) -> Judgement {
        let most = numbers(value).last().copied().unwrap_or(0);
        let most = Bytes(most.saturating_mul(4096));
        match self.host.memory {
            Some(memory) if most > memory => {
                let why = format!("counts pages: TCP may take {most} of {memory}");
                judged(Worth::Harmful, why, None)
            }
            _ => keep(format!("counts pages: TCP may take up to {most}")),
        }
    }

    fn congestion(&self, value: &Value) -> Judgement {
        let Value::Word(name) = value else {
            return keep("");
        };
        let available = self.host.congestion.as_ref().map(|c| &c.available);
        if available.is_some_and(|all| !all.contains(name) && name != "bbr") {
            let why = "is not loaded here, and no finding proposes it";
            return pointless(format!("{name} {why}"));
        }
        let congctl = Knob::Route(RouteKnob::Congctl);
        let other = |s: &Setting| s.knob == congctl && s.value != *value;
        let asked = self.asked.iter().find(|c| other(&c.setting));
        match asked {
            Some(Change { setting, why, .. }) => {
                let why = format!("worth an experiment, for this path alone ({setting}): {why}");
                judged(Worth::Raise, why, None)
            }
            None => keep("no change recommended"),
        }
    }

    fn plain(&self, name: &str, key: SysctlKey, value: &Value) -> Judgement {
        let setting = Setting {
            knob: Knob::Sysctl(key),
            value: value.clone(),
            on: key.row().place,
        };
        if let Some(why) = setting.objection(self.host.kernel_version()) {
            // What is as the kernel has it is nobody's mistake.
            let neutral = default_of(self.host, key).unwrap_or(Value::Number(0));
            return match (value == &neutral, value.greatest()) {
                (true, _) => keep(""),
                (false, Some(0)) => harmful(1, why),
                (false, _) => pointless(why),
            };
        }
        let Value::Number(number) = *value else {
            return keep("");
        };
        match (name.trim_start_matches("net.ipv4."), number) {
            ("tcp_moderate_rcvbuf", 0) => harmful(
                1,
                "receive buffers do not grow: every window stays at its initial size",
            ),
            ("tcp_mtu_probing", 2) => harmful(
                0,
                "every connection begins with small segments and probes by losing larger ones",
            ),
            ("tcp_mtu_probing", 1) => pointless(
                "a workaround for PMTU black holes: each connection stalls for seconds first. 'linerate mtu HOST' shows whether the path has one",
            ),
            ("ip_no_pmtu_disc", 1..) => harmful(
                0,
                "packets leave without DF and are fragmented where they do not fit",
            ),
            ("tcp_no_metrics_save", 1) => pointless(
                "every connection probes the path again; it was for repeated tests, and linerate forgets the path between runs by itself",
            ),
            ("tcp_slow_start_after_idle", 0) if !self.latency => {
                pointless("a bulk transfer has no pauses")
            }
            ("net.core.busy_poll" | "net.core.busy_read", 1..) if !self.latency => pointless(
                "a processor spins for packets: requests gain some microseconds, a bulk transfer nothing",
            ),
            ("net.core.netdev_max_backlog", 1001..) => pointless(
                "counts only where packets are handed from one processor to another (RPS, veth, loopback), and only once some were dropped there",
            ),
            _ => keep(""),
        }
    }

    /// What the device that leads to the remote host takes from every transfer.
    fn device(&self) -> Vec<Item> {
        let Some(device) = &self.host.device else {
            return Vec::new();
        };
        let mut items = Vec::new();
        if device.duplex.as_deref() == Some("half") {
            items.push(item("device.duplex", "half", Some("full"), Worth::Harmful,
                "only one side of the cable can send at a time; with a link partner in full duplex, packets are lost whenever both send"));
        }
        let fast = |needs: Option<&Needs>| needs.is_some_and(|n| n.rate >= WORTH_OFFLOADING);
        let offloads = [
            ("tso", fast(self.sends)),
            ("gso", fast(self.sends)),
            ("gro", fast(self.receives)),
        ];
        for (name, fast) in offloads {
            if device.offloads.get(name) == Some(&false) {
                let alone = "every segment goes through the processor alone";
                let (worth, hardly) = match fast {
                    true => (Worth::Raise, ""),
                    false => (Worth::Pointless, ", a small gain at this rate"),
                };
                let why = format!("{alone}{hardly}");
                items.push(item(
                    &format!("device.{name}"),
                    "off",
                    Some("on"),
                    worth,
                    &why,
                ));
            }
        }
        items
    }

    /// What the route to the remote host bounds.
    fn route(&self) -> Vec<Item> {
        let Some(metrics) = self.host.route.as_ref().map(|r| &r.metrics) else {
            return Vec::new();
        };
        let window = metrics.get("window").and_then(|w| w.parse::<u64>().ok());
        let bdp = self.receives.map(|n| n.bdp.0).unwrap_or(0);
        let narrow = window.filter(|window| *window > 0 && *window < bdp);
        let flight = Bytes(bdp);
        let why = format!("no window to this host is larger, and {flight} are in flight");
        let narrow = narrow.map(|window| window.to_string());
        let narrow = narrow.map(|window| {
            item(
                "route.window",
                &window,
                Some("not set"),
                Worth::Harmful,
                &why,
            )
        });
        narrow.into_iter().collect()
    }
}

/// Below it one processor takes segments one by one without being the limit.
const WORTH_OFFLOADING: BitRate = BitRate(1_000_000_000);

/// An initial buffer from which it is no more a beginning.
const LARGE_INITIAL: u64 = 1 << 20;

fn item(name: &str, now: &str, wanted: Option<&str>, worth: Worth, why: &str) -> Item {
    Item {
        name: name.to_owned(),
        now: now.to_owned(),
        default: None,
        wanted: wanted.map(str::to_owned),
        worth,
        lowers: false,
        why: why.to_owned(),
        guides: Vec::new(),
        set_by: Vec::new(),
    }
}

/// Sizes and queues: more of them is a larger limit. Of flags and names there is no more.
fn is_limit(key: SysctlKey) -> bool {
    use model::ValueShape::{Size, Three};
    matches!(key.row().shape, Size(..) | Three(..)) || key.name() == "net.core.netdev_max_backlog"
}

fn amount(key: SysctlKey, value: &Value) -> String {
    let most = value.greatest().unwrap_or(0);
    match key.name() {
        "net.core.netdev_max_backlog" => most.to_string(),
        "net.ipv4.tcp_mem" => format!("{most} pages"),
        _ => Bytes(most).to_string(),
    }
}

fn numbers(value: &Value) -> &[u64] {
    match value {
        Value::Numbers(all) => all,
        _ => &[],
    }
}

//! Settings: a knob and a value, as data. Everything that linerate can change is in the closed tables of
//! this file, with the values that it takes; nothing here is a path or a command.

#![deny(clippy::wildcard_enum_match_arm)]

use crate::names::named;
use crate::{BitRate, Bytes, Direction, Nanos, Side, SocketOption, SocketSettings};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

mod qdisc;
mod sysctl;

pub use qdisc::{Qdisc, QdiscKind};
pub use sysctl::SysctlKey;

/// A knob, the value that it is to have, and on which host.
///
/// Text: `knob=value[@local|@remote|@both|@sender|@receiver]`; without a place it is the knob's
/// [usual](KnobRow::place). Values are checked when they are read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Setting {
    /// What is set.
    pub knob: Knob,
    /// To which value.
    pub value: Value,
    /// On which host.
    pub on: On,
}

named! {
    /// On which of the two hosts.
    On, "place" {
        /// The host where the command runs.
        Local = "local",
        /// The remote host.
        Remote = "remote",
        /// Both.
        Both = "both",
        /// Whichever sends the data.
        Sender = "sender",
        /// Whichever receives it.
        Receiver = "receiver",
    }
}

/// A value: bytes, bit/s, milliseconds, segments or packets by the knob.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Value {
    /// One number.
    Number(u64),
    /// Several.
    Numbers(Vec<u64>),
    /// On or off.
    Switch(bool),
    /// A name, or a [`Qdisc`] in its own words.
    Word(String),
}

impl Value {
    /// As the kernel's files and the tools take it.
    pub fn plain(&self) -> String {
        match self {
            Value::Number(n) => n.to_string(),
            Value::Numbers(all) => all.iter().map(u64::to_string).collect::<Vec<_>>().join(" "),
            Value::Switch(on) => u8::from(*on).to_string(),
            Value::Word(word) => word.clone(),
        }
    }

    /// Its number, if it is a single one.
    pub fn number(&self) -> Option<u64> {
        match self {
            Value::Number(n) => Some(*n),
            Value::Numbers(_) | Value::Switch(_) | Value::Word(_) => None,
        }
    }

    /// Its greatest number, which is the last of several; `None` if it has none.
    pub fn greatest(&self) -> Option<u64> {
        match self {
            Value::Number(n) => Some(*n),
            Value::Numbers(all) => all.last().copied(),
            Value::Switch(_) | Value::Word(_) => None,
        }
    }
}

/// How much of a host a knob changes, the smallest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// linerate's own connections: the machine is unchanged.
    Socket,
    /// Every connection to one other host.
    Route,
    /// Every connection of the network namespace.
    Namespace,
    /// Everything that goes through a device.
    Device,
    /// The whole machine, all its network namespaces.
    Host,
}

/// Which values a knob takes; numbers from the first to the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueShape {
    /// A size in bytes.
    Size(u64, u64),
    /// A plain number.
    Count(u64, u64),
    /// A time in milliseconds.
    Millis(u64, u64),
    /// A rate in bit/s.
    Rate,
    /// Least, initial and greatest of something, each within these.
    Three(u64, u64),
    /// On or off.
    Switch,
    /// A short name, as of a congestion control.
    Name,
    /// A queueing discipline.
    Qdisc,
}

/// The requested value of a setting, and the value in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    /// The setting, as text.
    pub setting: String,
    /// Where it was read.
    pub side: Side,
    /// The value that it should have.
    pub asked: String,
    /// The value that it has.
    pub found: String,
    /// Whether they are the same.
    pub in_force: bool,
}

/// Puts the settings that are options of linerate's own connections into those options; leaves the others.
pub fn apply_to_spec(settings: &[Setting], socket: &mut SocketSettings) {
    for Setting { knob, value, .. } in settings {
        let Knob::Socket(knob) = knob else { continue };
        let number = match value {
            Value::Switch(on) => u64::from(*on),
            Value::Number(number) => *number,
            Value::Numbers(_) => continue,
            Value::Word(name) => {
                socket.congestion = Some(name.clone());
                continue;
            }
        };
        let both = [SocketKnob::SendBuffer, SocketKnob::ReceiveBuffer];
        let options = match *knob == SocketKnob::SocketBuffers {
            true => &both[..],
            false => std::slice::from_ref(knob),
        };
        for option in options.iter().filter_map(|one| SocketOption::of(*one)) {
            (option.order)(socket, number);
        }
    }
}

impl On {
    /// The hosts that are meant when the data goes this way.
    pub fn sides(self, direction: Direction) -> &'static [Side] {
        match (self, direction) {
            (On::Both, _) => &[Side::Local, Side::Remote],
            (On::Local, _) | (On::Sender, Direction::Up) | (On::Receiver, Direction::Down) => {
                &[Side::Local]
            }
            (On::Remote, _) | (On::Sender, Direction::Down) | (On::Receiver, Direction::Up) => {
                &[Side::Remote]
            }
        }
    }
}

/// An entry of the table of knobs.
pub struct KnobRow {
    /// Its name in settings; of a sysctl without the prefix.
    pub name: &'static str,
    /// Which values it takes.
    pub shape: ValueShape,
    /// The host that it is set on if none is named.
    pub place: On,
    /// What it is, in a few words.
    pub summary: &'static str,
    /// What else may happen while it is set.
    pub risk: &'static str,
}

const fn row(
    name: &'static str,
    shape: ValueShape,
    place: On,
    summary: &'static str,
    risk: &'static str,
) -> KnobRow {
    KnobRow {
        name,
        shape,
        place,
        summary,
        risk,
    }
}

const OWN: &str = "none: only linerate's own connections have it";
const PEER: &str = "every new connection to this host has it while it is set";
const BOUNCE: &str = "many drivers take the link down and up for it";
const CPU: &str = "packets cost more or less processor time while it is set";

/// Knobs together with their table, so that none is without a row, whose summary documents it: those that have one
/// here, then those of the kinds that have tables of their own.
macro_rules! knobs {
    (
        $(#[$doc:meta])* $name:ident
        rows { $($knob:ident = row($tool:literal, $shape:expr, $place:expr, $summary:literal, $risk:expr),)* }
        kinds { $($(#[$kind_doc:meta])* $kind:ident($inner:ident),)* }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum $name {
            $(#[doc = $summary] $knob,)*
            $($(#[$kind_doc])* $kind($inner),)*
        }

        impl $name {
            const KNOBS: &[$name] = &[$($name::$knob),*];

            /// All of them, in the order of their tables.
            pub fn all() -> impl Iterator<Item = $name> {
                let own = $name::KNOBS.iter().copied();
                own$(.chain($inner::all().map($name::$kind)))*
            }

            /// Its name in ip-route(8), ip-link(8) or ethtool(8): behind that of its kind.
            pub fn tool_name(&self) -> &'static str {
                let name = self.row().name;
                name.split_once('.').map_or(name, |(_, name)| name)
            }

            /// Its entry in the table.
            pub fn row(&self) -> &'static KnobRow {
                match self {
                    $($name::$knob => const { &row($tool, $shape, $place, $summary, $risk) },)*
                    $($name::$kind(inner) => inner.row(),)*
                }
            }
        }
    };
}

knobs! {
    /// Something that can be set.
    Knob
    rows {}
    kinds {
        /// An option of linerate's own connections.
        Socket(SocketKnob),
        /// An attribute of the route to the remote host, and to no one else.
        Route(RouteKnob),
        /// A key below `/proc/sys/net`.
        Sysctl(SysctlKey),
        /// A property of the network device that leads to the remote host.
        Device(DeviceKnob),
    }
}

knobs! {
    /// Options of linerate's own connections.
    SocketKnob
    rows {
        Congestion = row("congestion", ValueShape::Name, On::Both, "congestion control (TCP_CONGESTION)", OWN),
        SendBuffer = row("sndbuf", ValueShape::Size(1 << 10, 1 << 30), On::Both, "send buffer (SO_SNDBUF); its autotuning is off", OWN),
        ReceiveBuffer = row("rcvbuf", ValueShape::Size(1 << 10, 1 << 30), On::Both, "receive buffer (SO_RCVBUF); its autotuning is off", OWN),
        SocketBuffers = row("sockbuf", ValueShape::Size(1 << 10, 1 << 30), On::Both, "send and receive buffer; their autotuning is off", OWN),
        Pacing = row("pacing", ValueShape::Rate, On::Both, "highest rate of each connection (SO_MAX_PACING_RATE)", OWN),
        Mss = row("mss", ValueShape::Count(88, 32_767), On::Both, "largest segment in bytes (TCP_MAXSEG)", OWN),
        Nodelay = row("nodelay", ValueShape::Switch, On::Both, "small segments leave at once (TCP_NODELAY)", OWN),
        NotsentLowat = row("notsent_lowat", ValueShape::Size(1, 1 << 30), On::Both, "unsent data above which writes wait (TCP_NOTSENT_LOWAT)", OWN),
    }
    kinds {}
}

// Ranges are the kernel's where it has any; `RTAX_MTU` and `RTAX_ADVMSS` are cut by `ip_metrics_convert`
// (`net/ipv4/metrics.c`) above 65520 and 65495.
knobs! {
    /// Attributes of a route, by the names of ip-route(8).
    RouteKnob
    rows {
        Mtu = row("route.mtu", ValueShape::Count(68, 65_520), On::Sender, "MTU in bytes towards the remote host, locked", "IPv4 packets to it may be fragmented on the way, because a locked MTU ends path MTU discovery"),
        Advmss = row("route.advmss", ValueShape::Count(88, 65_495), On::Receiver, "MSS in bytes that is announced to the remote host", PEER),
        Congctl = row("route.congctl", ValueShape::Name, On::Sender, "congestion control towards the remote host", PEER),
        Initcwnd = row("route.initcwnd", ValueShape::Count(1, 65_535), On::Sender, "segments that a new connection sends at once", "a burst of that size into the first full queue"),
        Initrwnd = row("route.initrwnd", ValueShape::Count(1, 65_535), On::Receiver, "segments that a new connection lets the remote host send", PEER),
        Quickack = row("route.quickack", ValueShape::Switch, On::Receiver, "every segment is acknowledged at once", PEER),
        RtoMin = row("route.rto_min", ValueShape::Millis(1, 120_000), On::Sender, "least retransmission timeout", "below the remote host's delayed acknowledgements (40 ms or more) timeouts are needless"),
        Window = row("route.window", ValueShape::Size(256, 1 << 30), On::Receiver, "greatest window that is announced to the remote host", PEER),
    }
    kinds {}
}

knobs! {
    /// Properties of a network device.
    DeviceKnob
    rows {
        Mtu = row("device.mtu", ValueShape::Count(68, 65_535), On::Sender, "MTU of the device in bytes", "above what a switch or the remote host takes, large packets vanish; many drivers take the link down and up for it"),
        Mtu6 = row("device.mtu6", ValueShape::Count(1280, 65_535), On::Sender, "MTU in bytes that IPv6 goes by on the device", "it follows the next change of the device's MTU"),
        Pin = row("device.pin", ValueShape::Count(576, 65_520), On::Sender, "MTU in bytes that no IPv4 route through the device exceeds, locked", "IPv4 packets that go by them may be fragmented on the way, because a locked MTU ends path MTU discovery"),
        Txqueuelen = row("device.txqueuelen", ValueShape::Count(1, 100_000), On::Sender, "packets that a plain queue holds", "packets that wait are lost where a queue becomes shorter"),
        Qdisc = row("device.qdisc", ValueShape::Qdisc, On::Sender, "queueing discipline of the device", "packets that wait in the replaced queue are lost"),
    }
    kinds {
        /// An offload.
        Offload(OffloadKnob),
        /// Descriptors of a ring.
        Ring(RingKnob),
        /// How long it waits before it interrupts.
        Coalescing(CoalescingKnob),
    }
}

knobs! {
    /// Offloads of a network device, on or off.
    OffloadKnob
    rows {
        Tso = row("device.tso", ValueShape::Switch, On::Sender, "segmentation of large packets by the device", CPU),
        Gso = row("device.gso", ValueShape::Switch, On::Sender, "segmentation of large packets just before the driver", CPU),
        Gro = row("device.gro", ValueShape::Switch, On::Receiver, "arriving segments joined by the kernel", CPU),
        Lro = row("device.lro", ValueShape::Switch, On::Receiver, "arriving segments joined by the device", "a host that forwards must not have it"),
        Rx = row("device.rx", ValueShape::Switch, On::Receiver, "checksums of arriving packets by the device", CPU),
        Tx = row("device.tx", ValueShape::Switch, On::Sender, "checksums of leaving packets by the device; without it tso is off as well", CPU),
        Sg = row("device.sg", ValueShape::Switch, On::Sender, "packets in several pieces; without it tso and gso are off as well", CPU),
    }
    kinds {}
}

knobs! {
    /// Rings of a network device.
    RingKnob
    rows {
        Rx = row("device.rxring", ValueShape::Count(1, 65_536), On::Receiver, "descriptors of the receive ring", BOUNCE),
        Tx = row("device.txring", ValueShape::Count(1, 65_536), On::Sender, "descriptors of the transmit ring", BOUNCE),
    }
    kinds {}
}

knobs! {
    /// How long a network device waits for more packets before it interrupts.
    CoalescingKnob
    rows {
        Rx = row("device.rxusecs", ValueShape::Count(0, 65_535), On::Receiver, "microseconds before an interrupt for arriving packets, no longer adapted by the driver", "a short one costs CPU, a long one latency; some drivers take the link down and up for it"),
        Tx = row("device.txusecs", ValueShape::Count(0, 65_535), On::Sender, "microseconds before an interrupt for sent packets, no longer adapted by the driver", "a short one costs CPU; in a long one sent memory is freed late"),
    }
    kinds {}
}

impl Knob {
    /// All knobs, those that change least first.
    pub fn by_scope() -> Vec<Knob> {
        let mut all: Vec<Knob> = Knob::all().collect();
        all.sort_by_key(Knob::scope);
        all
    }

    /// Whether it is an option of linerate's own connections, and changes nothing of the machine.
    pub fn is_socket(&self) -> bool {
        self.scope() == Scope::Socket
    }

    /// How much of a host it changes.
    pub fn scope(&self) -> Scope {
        match self {
            Knob::Socket(_) => Scope::Socket,
            Knob::Route(_) => Scope::Route,
            Knob::Sysctl(key) => key.scope(),
            Knob::Device(_) => Scope::Device,
        }
    }

    /// Whether only connections that are opened afterwards have it. A window that grows, a send buffer that
    /// grows, a queue and the offloads reach those that are open as well.
    pub fn needs_new_connections(&self) -> bool {
        match self {
            Knob::Socket(_) | Knob::Route(_) => true,
            Knob::Sysctl(key) => key.needs_new_connections(),
            Knob::Device(knob) => *knob == DeviceKnob::Mtu,
        }
    }

    /// The value in the syntax of [`Setting`]; values outside the knob's syntax as plain text.
    pub fn format_value(&self, value: &Value) -> String {
        match (value, self.row().shape) {
            (Value::Number(n), ValueShape::Size(..)) => short(*n, 1024),
            (Value::Number(n), ValueShape::Rate) => short(*n, 1000),
            (Value::Number(n), ValueShape::Millis(..)) => format!("{n}ms"),
            (Value::Switch(on), _) => if *on { "on" } else { "off" }.to_owned(),
            _ => value.plain(),
        }
    }
}

impl fmt::Display for Knob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Knob::Sysctl(key) => write!(f, "sysctl:{}", key.name()),
            Knob::Socket(_) | Knob::Route(_) | Knob::Device(_) => f.pad(self.row().name),
        }
    }
}

impl FromStr for Knob {
    type Err = String;

    fn from_str(text: &str) -> Result<Knob, String> {
        if let Some(key) = text.strip_prefix("sysctl:") {
            return key.parse().map(Knob::Sysctl);
        }
        Knob::all()
            .find(|knob| !matches!(knob, Knob::Sysctl(_)) && knob.row().name == text)
            .ok_or_else(|| match text.parse::<SysctlKey>() {
                Ok(_) => format!("there is no knob '{text}': did you mean sysctl:{text}?"),
                Err(_) => format!("there is no knob '{text}'; 'linerate tune knobs' lists them"),
            })
    }
}

impl Setting {
    /// Why this setting is not worth an experiment on a kernel of this version (6.18 is `(6, 18)`; `None`:
    /// any kernel), if it is known not to be: it does nothing, or only harm.
    pub fn objection(&self, kernel: Option<(u32, u32)>) -> Option<&'static str> {
        match (&self.knob, &self.value) {
            (Knob::Sysctl(key), Value::Number(n)) => key.objection(*n, kernel),
            _ => None,
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.knob, self.knob.format_value(&self.value))?;
        if self.on != self.knob.row().place {
            write!(f, "@{}", self.on)?;
        }
        Ok(())
    }
}

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Setting, String> {
        let Some((name, value)) = text.split_once('=') else {
            return Err(format!(
                "'{text}' is not a setting: write knob=value, like congestion=bbr"
            ));
        };
        let knob: Knob = name.trim().parse()?;
        let (value, on) = match value.rsplit_once('@') {
            None => (value, Some(knob.row().place)),
            Some((value, place)) => (value, place.trim().parse().ok()),
        };
        let on = on.ok_or_else(|| {
            let (_, place) = text.rsplit_once('@').unwrap_or_default();
            format!("'@{place}' is not a place: write @local, @remote, @both, @sender or @receiver")
        })?;
        if knob.is_socket() && on != On::Both {
            return Err(format!(
                "{knob} is an option of linerate's own connections, which have it at both ends: leave the '@' out"
            ));
        }
        let shape = knob.row().shape;
        let value = shape.read(value.trim()).ok_or_else(|| {
            format!("in '{text}' the value is out of range: {knob} takes {shape}")
        })?;
        Ok(Setting { knob, value, on })
    }
}

impl TryFrom<String> for Setting {
    type Error = String;

    fn try_from(text: String) -> Result<Setting, String> {
        text.parse()
    }
}

impl From<Setting> for String {
    fn from(setting: Setting) -> String {
        setting.to_string()
    }
}

impl ValueShape {
    fn read(&self, text: &str) -> Option<Value> {
        let within = |n: u64, least, most| (least..=most).contains(&n).then_some(n);
        let size = |text: &str| text.parse().ok().map(|Bytes(n)| n);
        match *self {
            ValueShape::Size(least, most) => within(size(text)?, least, most).map(Value::Number),
            ValueShape::Count(least, most) => {
                within(text.parse().ok()?, least, most).map(Value::Number)
            }
            ValueShape::Millis(least, most) => {
                // A bare number is milliseconds, as for ip-route(8).
                let n = text.parse().ok().or_else(|| {
                    let Nanos(ns) = text.parse().ok()?;
                    (ns % 1_000_000 == 0).then_some(ns / 1_000_000)
                });
                within(n?, least, most).map(Value::Number)
            }
            ValueShape::Rate => {
                let BitRate(n) = text.parse().ok()?;
                // The kernel counts bytes; all ones would mean no limit.
                within(n, 8, 1 << 50).map(Value::Number)
            }
            ValueShape::Three(least, most) => {
                let words = text.split_whitespace().take(4);
                let all = words.map(|word| within(size(word)?, least, most));
                let all: Option<Vec<u64>> = all.collect();
                // A greatest below the least is never meant.
                all.filter(|all| all.len() == 3 && all.is_sorted())
                    .map(Value::Numbers)
            }
            ValueShape::Switch => match text {
                "on" | "true" | "yes" | "1" => Some(Value::Switch(true)),
                "off" | "false" | "no" | "0" => Some(Value::Switch(false)),
                _ => None,
            },
            // TCP_CA_NAME_MAX and IFNAMSIZ (of a qdisc's name) count a closing NUL: 16.
            ValueShape::Name => ((1..16).contains(&text.len())
                && text
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-'))
            .then(|| Value::Word(text.to_owned())),
            ValueShape::Qdisc => Qdisc::read(text).map(|qdisc| Value::Word(qdisc.to_string())),
        }
    }
}

/// What the values are, with an example where the syntax needs one.
impl fmt::Display for ValueShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            ValueShape::Size(least, most) => write!(
                f,
                "a size from {} to {}, like 512K or 8M",
                short(least, 1024),
                short(most, 1024)
            ),
            ValueShape::Count(least, most) => write!(f, "a whole number from {least} to {most}"),
            ValueShape::Millis(least, most) => {
                write!(f, "a time from {least}ms to {most}ms, like 40ms")
            }
            ValueShape::Rate => f.write_str("a rate in bits per second, like 100M or 2.5G"),
            ValueShape::Three(least, most) => write!(
                f,
                "three rising numbers from {least} to {most}, like '4096 65536 16777216'"
            ),
            ValueShape::Switch => f.write_str("on or off"),
            ValueShape::Name => {
                f.write_str("a name of up to 15 letters, digits, '_' and '-', like cubic")
            }
            ValueShape::Qdisc => f.write_str(Qdisc::GRAMMAR),
        }
    }
}

/// A number with the largest suffix that keeps it whole.
fn short(number: u64, step: u64) -> String {
    let mut rest = number;
    let mut suffix = "";
    for next in ["K", "M", "G"] {
        if rest == 0 || !rest.is_multiple_of(step) {
            break;
        }
        rest /= step;
        suffix = next;
    }
    format!("{rest}{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Setting {
        text.parse().unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn settings_are_written_as_they_are_read() {
        for text in [
            "congestion=bbr",
            "sockbuf=8M",
            "sndbuf=1000K",
            "pacing=2500M",
            "mss=1460",
            "nodelay=off",
            "notsent_lowat=128K",
            "route.initcwnd=32",
            "route.initcwnd=32@both",
            "route.congctl=cubic@remote",
            "route.rto_min=40ms",
            "route.window=64K@local",
            "sysctl:net.ipv4.tcp_wmem=4096 65536 16777216@both",
            "sysctl:net.core.rmem_max=16M",
            "device.mtu=9000@receiver",
            "device.tso=off",
            "device.qdisc=fq_codel limit 1000 target 5000us ecn 1",
        ] {
            assert_eq!(read(text).to_string(), text);
        }
        for (text, canonical) in [
            (" congestion = bbr ", "congestion=bbr"),
            ("sockbuf=8388608@both", "sockbuf=8M"),
            ("pacing=2.5G", "pacing=2500M"),
            ("route.rto_min=0.04", "route.rto_min=40ms"),
            ("route.rto_min=40", "route.rto_min=40ms"),
            ("route.initcwnd=32@sender", "route.initcwnd=32"),
            (
                "sysctl:net.ipv4.tcp_rmem=4K 128K 32M",
                "sysctl:net.ipv4.tcp_rmem=4096 131072 33554432",
            ),
        ] {
            assert_eq!(read(text).to_string(), canonical);
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_the_remedy() {
        for (text, says) in [
            (
                "bbr",
                "'bbr' is not a setting: write knob=value, like congestion=bbr",
            ),
            (
                "speed=11",
                "there is no knob 'speed'; 'linerate tune knobs' lists them",
            ),
            (
                "sysctl:kernel.panic=1",
                "linerate does not set the sysctl 'kernel.panic'; 'linerate tune knobs' lists those that it sets",
            ),
            (
                "route.mtu=1400@home",
                "'@home' is not a place: write @local, @remote, @both, @sender or @receiver",
            ),
            (
                "sockbuf=8M@local",
                "sockbuf is an option of linerate's own connections, which have it at both ends: leave the '@' out",
            ),
            (
                "route.mtu=67",
                "in 'route.mtu=67' the value is out of range: route.mtu takes a whole number from 68 to 65520",
            ),
            (
                "sockbuf=2G",
                "in 'sockbuf=2G' the value is out of range: sockbuf takes a size from 1K to 1G, like 512K or 8M",
            ),
        ] {
            assert_eq!(text.parse::<Setting>().unwrap_err().to_string(), says);
        }
        for bad in [
            "congestion=",
            "congestion=../../x",
            "congestion=sixteen_letters_",
            "nodelay=maybe",
            "route.rto_min=1500us",
            "route.rto_min=0",
            "pacing=0",
            "sysctl:net.ipv4.tcp_wmem=4096 65536",
            "sysctl:net.ipv4.tcp_wmem=4096 65536 16777216 1",
            "sysctl:net.ipv4.tcp_wmem=65536 4096 16777216",
            "sysctl:net.ipv4.tcp_sack=2",
            "device.mtu=-1",
            "device.qdisc=rm -rf /",
        ] {
            assert!(bad.parse::<Setting>().is_err(), "{bad}");
        }
    }

    #[test]
    fn places_are_hosts_once_the_direction_is_known() {
        use Side::{Local, Remote};
        assert_eq!(On::Sender.sides(Direction::Up), [Local]);
        assert_eq!(On::Sender.sides(Direction::Down), [Remote]);
        assert_eq!(On::Receiver.sides(Direction::Up), [Remote]);
        assert_eq!(On::Local.sides(Direction::Down), [Local]);
        assert_eq!(On::Both.sides(Direction::Down), [Local, Remote]);
    }

    #[test]
    fn the_tables_are_whole() {
        let all = Knob::by_scope();
        assert!(all.is_sorted_by_key(Knob::scope));
        for (at, knob) in all.iter().enumerate() {
            assert!(!all[..at].contains(knob), "{knob} is there twice");
            assert_eq!(knob.to_string().parse(), Ok(*knob));
            assert!(
                !knob.row().summary.is_empty() && !knob.row().risk.is_empty(),
                "{knob}"
            );
            assert!(!knob.row().shape.to_string().is_empty());
        }
        assert_eq!(all[0], Knob::Socket(SocketKnob::Congestion));
        assert_eq!(all.last().map(Knob::scope), Some(Scope::Host));
    }

    #[test]
    fn own_connections_get_their_options_and_nothing_else() {
        let settings: Vec<Setting> = [
            "congestion=bbr",
            "sockbuf=8M",
            "sndbuf=1M",
            "pacing=1G",
            "mss=1400",
            "nodelay=on",
            "notsent_lowat=128K",
            "route.initcwnd=32",
        ]
        .map(read)
        .into();
        let mut socket = SocketSettings::default();
        apply_to_spec(&settings, &mut socket);
        assert_eq!(
            socket,
            SocketSettings {
                congestion: Some("bbr".to_owned()),
                send_buffer: Some(Bytes(1 << 20)),
                receive_buffer: Some(Bytes(8 << 20)),
                pacing: Some(BitRate(1_000_000_000)),
                mss: Some(1400),
                nodelay: Some(true),
                notsent_lowat: Some(Bytes(128 << 10)),
                ..SocketSettings::default()
            }
        );
    }

    #[test]
    fn what_does_nothing_or_harm_is_objected_to() {
        let says = |text, kernel| read(text).objection(kernel);
        assert!(says("sysctl:net.ipv4.tcp_low_latency=1", None).is_some());
        assert!(says("sysctl:net.ipv4.tcp_fack=1", None).is_some());
        assert!(says("sysctl:net.ipv4.tcp_adv_win_scale=2", Some((6, 6))).is_some());
        assert!(says("sysctl:net.ipv4.tcp_adv_win_scale=2", Some((6, 5))).is_none());
        for key in ["sack", "timestamps", "window_scaling"] {
            let switched = |to| read(&format!("sysctl:net.ipv4.tcp_{key}={to}")).objection(None);
            assert!(switched(0).is_some() && switched(1).is_none());
        }
        assert!(says("congestion=bbr", None).is_none());
    }

    #[test]
    fn in_json_a_setting_is_its_text() {
        let setting = read("route.initcwnd=32@remote");
        let json = serde_json::to_string(&setting).unwrap();
        assert_eq!(json, "\"route.initcwnd=32@remote\"");
        assert_eq!(serde_json::from_str::<Setting>(&json).unwrap(), setting);
        let error = serde_json::from_str::<Setting>("\"x=1\"").unwrap_err();
        assert!(error.to_string().starts_with("there is no knob 'x'"));
    }

    proptest! {
        #[test]
        fn any_text_is_refused_or_comes_back(
            knob in prop::sample::select(Knob::all().collect::<Vec<_>>()),
            value in "[0-9a-zKM@. _-]{0,24}",
        ) {
            if let Ok(setting) = format!("{knob}={value}").parse::<Setting>() {
                prop_assert_eq!(setting.to_string().parse(), Ok(setting));
            }
        }
    }
}

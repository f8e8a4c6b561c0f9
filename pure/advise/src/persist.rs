//! Texts that make settings last over a restart, by who reads them. Nothing is written here.
//!
//! Each file holds one matter: the sysctls of a host, the route to one other host, one property of a device. So
//! what was written of another stays, and a file of ours can go without taking anything else along.
//!
//! Names come from a peer: what could not be a device's name is left out of every text.

#![deny(clippy::wildcard_enum_match_arm)]

use crate::host::now;
use crate::sysctl_precedence::{assignment, fragment_path};
use model::advice::{ConfigFile, Foreign, Manager, Persistent};
use model::{
    CoalescingKnob, DeviceKnob, Fate, Fingerprint, Knob, QdiscKind, RingKnob, RouteKnob, Setting,
    Side, Tuning, Value,
};
use std::fmt::Write;

/// The file of `sysctl.d(5)` that sets the sysctls among these; `None` without any. `files` are those found on
/// the host: the name goes behind each that sets the same, and what an earlier one of ours sets beside these
/// stays in it. `note` says where the settings come from, in one line.
pub fn sysctls(settings: &[Setting], files: &[ConfigFile], note: &str) -> Option<Persistent> {
    let key = |setting: &Setting| match setting.knob {
        Knob::Sysctl(key) => Some(key.name()),
        Knob::Socket(_) | Knob::Route(_) | Knob::Device(_) => None,
    };
    let holds = settings.iter().filter(|s| key(s).is_some()).cloned();
    let holds: Vec<Setting> = holds.collect();
    let keys: Vec<&str> = holds.iter().filter_map(key).collect();
    let path = fragment_path(files, &keys);
    let mut text = noted(note);
    for (key, setting) in keys.iter().zip(&holds) {
        let _ = writeln!(text, "{key} = {}", setting.value.plain());
    }
    let before = files.iter().filter(|file| file.path == path).take(1);
    for line in before.flat_map(|file| file.text.lines()) {
        if assignment(line).is_some_and(|(key, _)| !keys.contains(&&*key)) {
            let _ = writeln!(text, "{line}");
        }
    }
    (!holds.is_empty()).then_some(Persistent {
        path,
        text,
        mode: 0o644,
        holds,
    })
}

/// The files that have the manager of a device set what it can of the settings of that device and of the route
/// through it.
pub fn managed(
    manager: &Manager,
    settings: &[Setting],
    host: &Fingerprint,
    note: &str,
) -> Vec<Persistent> {
    let file = |matter: Matter| {
        let Matter { device, name, .. } = &matter;
        let (path, mode, shell, text) = match manager {
            Manager::Netplan { kind } => (
                format!("/etc/netplan/90-linerate-{device}-{name}.yaml"),
                // netplan warns of one that others can read.
                0o600,
                "",
                format!(
                    "network:\n  version: 2\n  {kind}:\n    {device}:\n{}",
                    matter.netplan.as_ref()?
                ),
            ),
            Manager::Networkd { file } => (
                format!("/etc/systemd/network/{file}.d/linerate-{name}.conf"),
                0o644,
                "",
                matter.networkd.clone()?,
            ),
            // NetworkManager-dispatcher(8) runs only what is executable, and its owner's alone to write.
            Manager::NetworkManager => (
                format!("/etc/NetworkManager/dispatcher.d/90-linerate-{device}-{name}"),
                0o755,
                "#!/bin/sh\n",
                format!(
                    "case \"$1/$2\" in\n{device}/up | {device}/reapply) {} ;;\nesac\n",
                    matter.command
                ),
            ),
        };
        Some(Persistent {
            path,
            text: format!("{shell}{}{text}", noted(note)),
            mode,
            holds: matter.holds,
        })
    };
    let all = matters(settings, host).into_iter();
    all.filter_map(file).collect()
}

/// What sets the same by hand: commands of iproute2 and ethtool, in this order.
pub fn commands(settings: &[Setting], host: &Fingerprint) -> Vec<String> {
    let all = matters(settings, host).into_iter();
    all.map(|matter| matter.command).collect()
}

/// What one file is about, as each tool has it.
struct Matter {
    device: String,
    /// For the name of the file.
    name: String,
    /// Below the device in netplan(5); `None` if it has no key for some of it.
    netplan: Option<String>,
    /// The section of systemd.network(5); `None` if it has no key for some of it.
    networkd: Option<String>,
    /// ip-route(8), ip-link(8), tc(8), ethtool(8), sysctl(8): there is a command for everything.
    command: String,
    /// The settings that need it.
    holds: Vec<Setting>,
}

/// The settings of the device and of the route to the remote host.
fn matters(settings: &[Setting], host: &Fingerprint) -> Vec<Matter> {
    let device = host.device.as_ref().map(|device| device.name.as_str());
    let Some(device) = device.filter(|name| is_device(name)) else {
        return Vec::new();
    };
    let of_device = settings.iter().filter_map(|setting| match setting.knob {
        Knob::Device(knob) => device_matter(knob, setting, device),
        Knob::Socket(_) | Knob::Route(_) | Knob::Sysctl(_) => None,
    });
    let of_route = route_matter(settings, host, device);
    of_route.into_iter().chain(of_device).collect()
}

/// `dev_valid_name` of the kernel, without what a shell or a file would take for more.
fn is_device(name: &str) -> bool {
    let odd = |c: char| !(c.is_ascii_alphanumeric() || "._-".contains(c));
    (1..16).contains(&name.len()) && !name.contains(odd) && !name.starts_with(['-', '.'])
}

fn noted(note: &str) -> String {
    let note: String = note.chars().filter(|c| !c.is_control()).collect();
    format!("# {note}\n")
}

/// `None` if it does not last over a restart.
fn device_matter(knob: DeviceKnob, setting: &Setting, device: &str) -> Option<Matter> {
    let plain = setting.value.plain();
    let tool = knob.tool_name();
    let (mut netplan, mut networkd) = (None, None);
    let command = match knob {
        DeviceKnob::Mtu => {
            netplan = Some(format!("      mtu: {plain}\n"));
            networkd = Some(format!("[Link]\nMTUBytes={plain}\n"));
            format!("ip link set dev {device} mtu {plain}")
        }
        DeviceKnob::Mtu6 => {
            netplan = Some(format!("      ipv6-mtu: {plain}\n"));
            networkd = Some(format!("[Network]\nIPv6MTUBytes={plain}\n"));
            format!("sysctl -w net/ipv6/conf/{device}/mtu={plain}")
        }
        // Pins go with the addresses of a segment.
        DeviceKnob::Pin => return None,
        DeviceKnob::Txqueuelen => format!("ip link set dev {device} {tool} {plain}"),
        DeviceKnob::Qdisc => {
            let fq = plain == QdiscKind::Fq.name();
            networkd = fq.then(|| "[FairQueueing]\nParent=root\n".to_owned());
            format!("tc qdisc replace dev {device} root {plain}")
        }
        DeviceKnob::Ring(RingKnob::Rx) => format!("ethtool -G {device} rx {plain}"),
        DeviceKnob::Ring(RingKnob::Tx) => format!("ethtool -G {device} tx {plain}"),
        DeviceKnob::Coalescing(CoalescingKnob::Rx) => {
            format!("ethtool -C {device} adaptive-rx off rx-usecs {plain}")
        }
        DeviceKnob::Coalescing(CoalescingKnob::Tx) => {
            format!("ethtool -C {device} adaptive-tx off tx-usecs {plain}")
        }
        DeviceKnob::Offload(_) => {
            let value = setting.knob.format_value(&setting.value);
            format!("ethtool -K {device} {tool} {value}")
        }
    };
    Some(Matter {
        device: device.to_owned(),
        name: tool.to_owned(),
        netplan,
        networkd,
        command,
        holds: vec![setting.clone()],
    })
}

/// The route to the remote host: what it has beside these settings is part of it, without that it would be
/// another one.
fn route_matter(settings: &[Setting], host: &Fingerprint, device: &str) -> Option<Matter> {
    let of_route = |s: &&Setting| matches!(s.knob, Knob::Route(_));
    let holds: Vec<Setting> = settings.iter().filter(of_route).cloned().collect();
    let route = host.route.as_ref().filter(|_| !holds.is_empty())?;
    let peer = route.destination?;
    let to = format!("{peer}/{}", if peer.is_ipv4() { 32 } else { 128 });
    let via = |before: &str, after: &str| match route.gateway {
        Some(via) => format!("{before}{via}{after}"),
        None => String::new(),
    };
    let hop = match route.gateway {
        Some(via) => format!("via: \"{via}\""),
        None => "scope: link".to_owned(),
    };
    let mut netplan = Some(format!(
        "      routes:\n        - to: \"{to}\"\n          {hop}\n"
    ));
    let gateway = via("Gateway=", "\n");
    let mut networkd = Some(format!("[Route]\nDestination={to}\n{gateway}"));
    let mut command = format!("ip route replace {to}{} dev {device}", via(" via ", ""));
    for knob in RouteKnob::all() {
        let set = holds.iter().find(|s| s.knob == Knob::Route(knob));
        let set = set.map(|s| s.value.clone());
        let Some(value) = set.or_else(|| set_by_hand(host, knob)) else {
            continue;
        };
        let (in_netplan, in_networkd, in_command) = route_keys(knob);
        let mut plain = value.plain();
        let mut word = plain.clone();
        if knob == RouteKnob::RtoMin {
            plain.push_str("ms");
            word.push_str("ms");
        } else if let (RouteKnob::Quickack, Value::Switch(on)) = (knob, value) {
            word = if on { "yes" } else { "no" }.to_owned();
        }
        netplan = netplan
            .zip(in_netplan)
            .map(|(text, key)| format!("{text}          {key}: {plain}\n"));
        networkd = networkd
            .zip(in_networkd)
            .map(|(text, key)| format!("{text}{key}={word}\n"));
        let _ = write!(command, " {in_command} {plain}");
    }
    Some(Matter {
        device: device.to_owned(),
        name: format!("route-{peer}"),
        netplan,
        networkd,
        command,
        holds,
    })
}

/// What a route has by somebody's setting: an MTU that is not locked may be learned.
fn set_by_hand(host: &Fingerprint, knob: RouteKnob) -> Option<Value> {
    let text = host.route.as_ref()?.metrics.get(knob.tool_name())?;
    let learned = knob == RouteKnob::Mtu && !text.starts_with("lock ");
    now(host, Knob::Route(knob)).filter(|_| !learned)
}

/// The key of an attribute in netplan(5), in systemd.network(5), in ip-route(8).
fn route_keys(knob: RouteKnob) -> (Option<&'static str>, Option<&'static str>, &'static str) {
    let (netplan, networkd, command) = match knob {
        RouteKnob::Mtu => ("mtu", "MTUBytes", "mtu lock"),
        RouteKnob::Advmss => {
            let networkd = "TCPAdvertisedMaximumSegmentSize";
            ("advertised-mss", networkd, "advmss")
        }
        RouteKnob::Congctl => ("", "TCPCongestionControlAlgorithm", "congctl"),
        RouteKnob::Initcwnd => ("congestion-window", "InitialCongestionWindow", "initcwnd"),
        RouteKnob::Initrwnd => {
            let networkd = "InitialAdvertisedReceiveWindow";
            ("advertised-receive-window", networkd, "initrwnd")
        }
        RouteKnob::Quickack => ("", "QuickAck", "quickack"),
        RouteKnob::RtoMin => ("", "TCPRetransmissionTimeoutSec", "rto_min"),
        RouteKnob::Window => ("", "", "window"),
    };
    let known = |key: &'static str| Some(key).filter(|key| !key.is_empty());
    (known(netplan), known(networkd), command)
}

/// What was proven on a path as lines of `sysctl.conf(5)` for hosts with another system in the place of its two;
/// of a dry run what is proposed. A host for which nothing of it can be had there is left out.
pub fn elsewhere(system: Foreign, tuning: &Tuning) -> Vec<(Side, String)> {
    let proven = |fate| tuning.dry_run || matches!(fate, Fate::Kept | Fate::Recommended);
    let tried = tuning.rounds.iter().flat_map(|round| {
        let proposals = round.advice.proposals.iter();
        proposals.zip(&round.attempts)
    });
    let proven = tried.filter(|(_, attempt)| proven(attempt.fate));
    let changes: Vec<_> = proven.flat_map(|(p, _)| &p.changes).collect();
    let of_side = |side| {
        // A later round has the better value.
        let mine = changes.iter().rev().filter(|change| change.side == side);
        let mine: Vec<&Setting> = mine.map(|change| &change.setting).collect();
        Some((side, lines(system, &mine)?))
    };
    [Side::Local, Side::Remote]
        .into_iter()
        .filter_map(of_side)
        .collect()
}

/// Behind the name of a value the line that it stands in; a line whose value is not there is left out. tcp(4): sendspace
/// and recvspace are only where autotuning begins.
const FREEBSD: &str = "\
sockets kern.ipc.maxsockbuf=*
receive net.inet.tcp.recvbuf_auto=1
receive net.inet.tcp.recvbuf_max=*
send net.inet.tcp.sendbuf_auto=1
send net.inet.tcp.sendbuf_max=*
bbr net.inet.tcp.functions_default=bbr
bbr # and in /boot/loader.conf: tcp_bbr_load=\"YES\"
control net.inet.tcp.cc.algorithm=*
mtu # and in /etc/rc.conf, with what is there: ifconfig_X=\"... mtu *\"
";

/// The same of macOS.
const MACOS: &str = "\
sockets kern.ipc.maxsockbuf=*
scale net.inet.tcp.win_scale_factor=*
receive net.inet.tcp.autorcvbufmax=*
send net.inet.tcp.autosndbufmax=*
sockets # where this file is not read, a LaunchDaemon that runs 'sysctl KEY=VALUE' for each line
";

/// The first setting of a knob counts.
fn lines(system: Foreign, settings: &[&Setting]) -> Option<String> {
    let value = |knob: Knob| settings.iter().find(|s| s.knob == knob).map(|s| &s.value);
    let sysctl = |key: &str| value(Knob::Sysctl(key.parse().ok()?));
    let receive = sysctl("net.ipv4.tcp_rmem").and_then(Value::greatest);
    let send = sysctl("net.ipv4.tcp_wmem").and_then(Value::greatest);
    let congestion = value(Knob::Route(RouteKnob::Congctl));
    let congestion = congestion.or(sysctl("net.ipv4.tcp_congestion_control"));
    let congestion = congestion.map(Value::plain);
    let is_bbr = congestion.as_deref() == Some("bbr");
    // The scale bounds every window at 65535 << it.
    let scale = |receive| (3..14).find(|s| (65_535u64 << s) >= receive);
    let known = |name: &str| match name {
        "sockets" => Some(receive.max(send)?.saturating_mul(2).to_string()),
        "receive" => Some(receive?.to_string()),
        "send" => Some(send?.to_string()),
        "scale" => Some(scale(receive?).unwrap_or(14).to_string()),
        "bbr" => congestion.clone().filter(|_| is_bbr),
        "control" => congestion.clone().filter(|_| !is_bbr),
        _ => value(Knob::Device(DeviceKnob::Mtu)).map(Value::plain),
    };
    let template = match system {
        Foreign::FreeBsd => FREEBSD,
        Foreign::MacOs => MACOS,
    };
    let lines = template.lines().filter_map(|line| {
        let (name, line) = line.split_once(' ')?;
        Some(line.replace('*', &known(name)?) + "\n")
    });
    let text: String = lines.collect();
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Device, Route};

    const NOTE: &str = "proven by the experiment 12345678";

    fn host(name: &str) -> Fingerprint {
        Fingerprint {
            route: Some(Route {
                destination: Some("192.0.2.9".parse().unwrap()),
                gateway: Some("198.51.100.1".parse().unwrap()),
                ..Route::default()
            }),
            device: Some(Device {
                name: name.to_owned(),
                ..Device::default()
            }),
            ..Fingerprint::default()
        }
    }

    fn settings(texts: &[&str]) -> Vec<Setting> {
        texts.iter().map(|s| s.parse().unwrap()).collect()
    }

    /// Each file as its path, its mode and its text behind the note.
    fn files(manager: &Manager, texts: &[&str]) -> Vec<String> {
        let all = managed(manager, &settings(texts), &host("eth0"), NOTE);
        let texts = all.iter().map(|p| {
            let text = p.text.replacen(&format!("# {NOTE}\n"), "", 1);
            format!("{} {:o}\n{text}", p.path, p.mode)
        });
        texts.collect()
    }

    fn netplan() -> Manager {
        Manager::Netplan {
            kind: "ethernets".to_owned(),
        }
    }

    fn networkd() -> Manager {
        Manager::Networkd {
            file: "10-lan.network".to_owned(),
        }
    }

    const ROUTE: [&str; 3] = ["route.initcwnd=32", "route.mtu=1400", "route.congctl=bbr"];
    const DEVICE: [&str; 3] = ["device.mtu=9000", "device.qdisc=fq", "device.gro=on"];
    const BUFFERS: [&str; 2] = [
        "sysctl:net.ipv4.tcp_rmem=4096 131072 67108864",
        "sysctl:net.ipv4.tcp_wmem=4096 16384 8388608",
    ];

    #[test]
    fn a_route_goes_where_its_manager_keeps_it() {
        assert_eq!(
            files(&networkd(), &ROUTE),
            [
                "/etc/systemd/network/10-lan.network.d/linerate-route-192.0.2.9.conf 644\n\
              [Route]\nDestination=192.0.2.9/32\nGateway=198.51.100.1\nMTUBytes=1400\n\
              TCPCongestionControlAlgorithm=bbr\nInitialCongestionWindow=32\n"
            ]
        );
        // netplan has no key for the congestion control of a route.
        assert_eq!(files(&netplan(), &ROUTE), [""; 0]);
        assert_eq!(
            files(&netplan(), &ROUTE[..2]),
            ["/etc/netplan/90-linerate-eth0-route-192.0.2.9.yaml 600\n\
              network:\n  version: 2\n  ethernets:\n    eth0:\n      routes:\n        - to: \"192.0.2.9/32\"\n          \
              via: \"198.51.100.1\"\n          mtu: 1400\n          congestion-window: 32\n"]
        );
        assert_eq!(
            files(&Manager::NetworkManager, &ROUTE),
            [
                "/etc/NetworkManager/dispatcher.d/90-linerate-eth0-route-192.0.2.9 755\n\
              #!/bin/sh\ncase \"$1/$2\" in\neth0/up | eth0/reapply) ip route replace 192.0.2.9/32 via 198.51.100.1 dev eth0 \
              mtu lock 1400 congctl bbr initcwnd 32 ;;\nesac\n"
            ]
        );
    }

    #[test]
    fn a_route_keeps_what_it_has_beside() {
        let mut host = host("eth0");
        let metrics = &mut host.route.as_mut().unwrap().metrics;
        for (name, value) in [
            ("initcwnd", "20"),
            ("rto_min", "40ms"),
            ("mtu", "1400"),
            ("expires", "9s"),
        ] {
            metrics.insert(name.to_owned(), value.to_owned());
        }
        let congctl = settings(&["route.congctl=cubic"]);
        let command = "ip route replace 192.0.2.9/32 via 198.51.100.1 dev eth0 congctl cubic initcwnd 20 rto_min 40ms";
        assert_eq!(commands(&congctl, &host), [command]);
    }

    #[test]
    fn each_property_of_a_device_has_a_file_of_its_own() {
        assert_eq!(
            files(&networkd(), &DEVICE),
            [
                "/etc/systemd/network/10-lan.network.d/linerate-mtu.conf 644\n[Link]\nMTUBytes=9000\n",
                "/etc/systemd/network/10-lan.network.d/linerate-qdisc.conf 644\n[FairQueueing]\nParent=root\n"
            ]
        );
        assert_eq!(
            files(&netplan(), &DEVICE),
            [
                "/etc/netplan/90-linerate-eth0-mtu.yaml 600\nnetwork:\n  version: 2\n  ethernets:\n    eth0:\n      mtu: 9000\n"
            ]
        );
        let scripts = files(&Manager::NetworkManager, &DEVICE);
        assert_eq!(scripts.len(), 3);
        assert!(
            scripts[2].ends_with("eth0/up | eth0/reapply) ethtool -K eth0 gro on ;;\nesac\n"),
            "{scripts:?}"
        );
        assert_eq!(
            commands(&settings(&DEVICE), &host("eth0")),
            [
                "ip link set dev eth0 mtu 9000",
                "tc qdisc replace dev eth0 root fq",
                "ethtool -K eth0 gro on"
            ]
        );
        assert_eq!(
            commands(&settings(&["pacing=60M", "device.pin=1500"]), &host("eth0")),
            [""; 0]
        );
    }

    #[test]
    fn what_our_own_file_set_before_stays_in_it() {
        let path = "/etc/sysctl.d/90-linerate.conf".to_owned();
        let text =
            "# old\nnet.ipv4.tcp_rmem = 1 2 3\nnet/core/rmem_max=4\n; net.x = 1\n".to_owned();
        let whole = sysctls(
            &settings(&BUFFERS),
            &[ConfigFile {
                path: path.clone(),
                text,
            }],
            "a note\nkernel.panic = 1",
        )
        .unwrap();
        assert_eq!(
            (&whole.path, whole.mode, whole.holds.len()),
            (&path, 0o644, 2)
        );
        assert_eq!(
            whole.text,
            "# a notekernel.panic = 1\nnet.ipv4.tcp_rmem = 4096 131072 67108864\nnet.ipv4.tcp_wmem = 4096 16384 8388608\n\
             net/core/rmem_max=4\n"
        );
        assert_eq!(sysctls(&settings(&DEVICE), &[], NOTE), None);
    }

    #[test]
    fn other_systems_get_their_own_names() {
        let all: Vec<&str> = BUFFERS.into_iter().chain(ROUTE).chain(DEVICE).collect();
        assert_eq!(
            lines(Foreign::FreeBsd, &settings(&all).iter().collect::<Vec<_>>()).unwrap(),
            "kern.ipc.maxsockbuf=134217728\nnet.inet.tcp.recvbuf_auto=1\nnet.inet.tcp.recvbuf_max=67108864\n\
             net.inet.tcp.sendbuf_auto=1\nnet.inet.tcp.sendbuf_max=8388608\nnet.inet.tcp.functions_default=bbr\n\
             # and in /boot/loader.conf: tcp_bbr_load=\"YES\"\n\
             # and in /etc/rc.conf, with what is there: ifconfig_X=\"... mtu 9000\"\n"
        );
        let mac = lines(Foreign::MacOs, &settings(&all).iter().collect::<Vec<_>>()).unwrap();
        assert!(
            mac.starts_with("kern.ipc.maxsockbuf=134217728\nnet.inet.tcp.win_scale_factor=11\nnet.inet.tcp.autorcvbufmax=67108864\n"),
            "{mac}"
        );
        assert_eq!(
            lines(
                Foreign::MacOs,
                &settings(&DEVICE).iter().collect::<Vec<_>>()
            ),
            None
        );
    }

    #[test]
    fn a_name_that_is_none_gets_into_no_text() {
        let all = settings(&["route.initcwnd=32", "device.mtu=9000"]);
        for name in ["eth0; reboot", "$(x)", "", "a\nb", "-x", "sixteen-letters-"] {
            let host = host(name);
            assert_eq!(managed(&Manager::NetworkManager, &all, &host, NOTE), []);
            assert_eq!(commands(&all, &host), [""; 0], "{name}");
        }
    }
}

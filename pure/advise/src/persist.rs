//! Texts that make settings last over a restart, by who reads them. Nothing is written here.
//!
//! Names are of a peer's telling: what could not be a device's name is left out of every text.

use crate::wins::fragment_path;
use model::advice::{ConfigFile, Form, Persistent};
use model::{DeviceKnob, Fingerprint, Knob, Qdisc, QdiscKind, Route, RouteKnob, Setting, Value};
use std::fmt::Write;
use std::net::IpAddr;

/// Every form that can hold some of the settings of one host. `files` are the sysctl files found there, so that
/// the fragment gets a name behind them; `note` says where the settings come from, in one line.
///
/// Options of linerate's own connections are in none: a program sets them for itself.
pub fn persist(
    settings: &[Setting],
    host: &Fingerprint,
    files: &[ConfigFile],
    note: &str,
) -> Vec<Persistent> {
    let note: String = note.chars().filter(|c| !c.is_control()).collect();
    let of = Of::new(settings, host);
    let texts = [
        sysctl(&of, files),
        networkd(&of),
        network_manager(&of),
        netplan(&of),
        commands(&of),
        free_bsd(&of),
        mac_os(&of),
    ];
    let mut texts: Vec<Persistent> = texts.into_iter().flatten().collect();
    for text in &mut texts {
        text.text.insert_str(0, &format!("# {note}\n"));
    }
    texts
}

/// The settings by kind, and the path that they are about.
struct Of<'a> {
    sysctls: Vec<(&'static str, &'a Value)>,
    route: Vec<(RouteKnob, &'a Value)>,
    device: Vec<(DeviceKnob, &'a Value)>,
    /// Host route: destination with its prefix, next hop.
    to: Option<(String, Option<IpAddr>)>,
    name: Option<&'a str>,
}

impl<'a> Of<'a> {
    fn new(settings: &'a [Setting], host: &'a Fingerprint) -> Of<'a> {
        let mut of = Of {
            sysctls: Vec::new(),
            route: Vec::new(),
            device: Vec::new(),
            to: host.route.as_ref().and_then(destination),
            name: host
                .device
                .as_ref()
                .map(|d| d.name.as_str())
                .filter(|name| is_device(name)),
        };
        for Setting { knob, value, .. } in settings {
            match knob {
                Knob::Sysctl(key) => of.sysctls.push((key.name(), value)),
                Knob::Route(knob) => of.route.push((*knob, value)),
                Knob::Device(knob) => of.device.push((*knob, value)),
                _ => {}
            }
        }
        of
    }

    fn device(&self, knob: DeviceKnob) -> Option<&'a Value> {
        self.device
            .iter()
            .find(|(k, _)| *k == knob)
            .map(|(_, v)| *v)
    }

    fn greatest(&self, key: &str) -> Option<u64> {
        let (_, value) = self.sysctls.iter().find(|(k, _)| *k == key)?;
        match value {
            Value::Numbers(all) => all.last().copied(),
            Value::Number(n) => Some(*n),
            _ => None,
        }
    }

    fn congestion(&self) -> Option<String> {
        let of_route = self.route.iter().find(|(k, _)| *k == RouteKnob::Congctl);
        let of_host = self
            .sysctls
            .iter()
            .find(|(k, _)| *k == "net.ipv4.tcp_congestion_control");
        let value = of_route.map(|(_, v)| *v).or(of_host.map(|(_, v)| *v))?;
        Some(plain(value))
    }
}

fn destination(route: &Route) -> Option<(String, Option<IpAddr>)> {
    let to = route.destination?;
    let prefix = if to.is_ipv4() { 32 } else { 128 };
    Some((format!("{to}/{prefix}"), route.gateway))
}

/// `dev_valid_name` of the kernel, without what a shell or a file would take for more.
fn is_device(name: &str) -> bool {
    let odd = |c: char| !(c.is_ascii_alphanumeric() || "._-".contains(c));
    (1..16).contains(&name.len()) && !name.contains(odd) && !name.starts_with(['-', '.'])
}

/// As the kernel's files and the tools take it.
fn plain(value: &Value) -> String {
    match value {
        Value::Number(n) => n.to_string(),
        Value::Numbers(all) => all.iter().map(u64::to_string).collect::<Vec<_>>().join(" "),
        Value::Switch(on) => u8::from(*on).to_string(),
        Value::Word(word) => word.clone(),
    }
}

fn yes(value: &Value) -> &'static str {
    if *value == Value::Switch(true) {
        "yes"
    } else {
        "no"
    }
}

fn on(value: &Value) -> &'static str {
    if *value == Value::Switch(true) {
        "on"
    } else {
        "off"
    }
}

fn sysctl(of: &Of<'_>, files: &[ConfigFile]) -> Option<Persistent> {
    let keys: Vec<&str> = of.sysctls.iter().map(|(key, _)| *key).collect();
    let lines = of
        .sysctls
        .iter()
        .map(|(key, value)| format!("{key} = {}\n", plain(value)));
    let text: String = lines.collect();
    let path = fragment_path(files, &keys);
    (!text.is_empty()).then(|| Persistent {
        form: Form::Sysctl,
        how: format!("at the next start, or now: sysctl -p {path}"),
        path,
        text,
    })
}

/// Keys of systemd.network(5) and systemd.link(5).
fn networkd(of: &Of<'_>) -> Option<Persistent> {
    let name = of.name?;
    let mut text = String::new();
    let route: Vec<String> = of
        .route
        .iter()
        .filter_map(|(knob, value)| {
            let key = match knob {
                RouteKnob::Mtu => "MTUBytes",
                RouteKnob::Advmss => "TCPAdvertisedMaximumSegmentSize",
                RouteKnob::Congctl => "TCPCongestionControlAlgorithm",
                RouteKnob::Initcwnd => "InitialCongestionWindow",
                RouteKnob::Initrwnd => "InitialAdvertisedReceiveWindow",
                RouteKnob::Quickack => return Some(format!("QuickAck={}\n", yes(value))),
                RouteKnob::RtoMin => {
                    return Some(format!("TCPRetransmissionTimeoutSec={}ms\n", plain(value)));
                }
                // There is no key for it.
                RouteKnob::Window => return None,
            };
            Some(format!("{key}={}\n", plain(value)))
        })
        .collect();
    if let (Some((to, via)), false) = (&of.to, route.is_empty()) {
        let _ = write!(text, "[Route]\nDestination={to}\n");
        if let Some(via) = via {
            let _ = writeln!(text, "Gateway={via}");
        }
        text.push_str(&route.concat());
    }
    if let Some(mtu) = of.device(DeviceKnob::Mtu) {
        let _ = write!(text, "[Link]\nMTUBytes={}\n", plain(mtu));
    }
    if qdisc(of).is_some_and(|q| q.kind == QdiscKind::Fq) {
        text.push_str("[FairQueueing]\nParent=root\n");
    }
    let offloads = [
        (DeviceKnob::Tso, "TCPSegmentationOffload"),
        (DeviceKnob::Gso, "GenericSegmentationOffload"),
        (DeviceKnob::Gro, "GenericReceiveOffload"),
    ];
    for (knob, key) in offloads {
        if let Some(value) = of.device(knob) {
            let _ = writeln!(
                text,
                "# in the .link file of {name}, below [Link]: {key}={}",
                yes(value)
            );
        }
    }
    (!text.is_empty()).then(|| Persistent {
        form: Form::Networkd,
        path: "/etc/systemd/network/FILE.network.d/linerate.conf".to_owned(),
        text,
        how: format!(
            "FILE.network is what 'networkctl status {name}' names; then: networkctl reload"
        ),
    })
}

fn qdisc(of: &Of<'_>) -> Option<Qdisc> {
    match of.device(DeviceKnob::Qdisc)? {
        Value::Word(word) => word.parse().ok(),
        _ => None,
    }
}

/// Properties of nm-settings-nmcli(5) and the route attributes that it lists.
fn network_manager(of: &Of<'_>) -> Option<Persistent> {
    let name = of.name?;
    let mut text = String::new();
    let mut modify = |what: String| {
        let _ = writeln!(text, "nmcli connection modify \"$CONNECTION\" {what}");
    };
    let attributes: Vec<String> = of
        .route
        .iter()
        .filter_map(|(knob, value)| {
            Some(match knob {
                RouteKnob::Mtu => format!("mtu={} lock-mtu=true", plain(value)),
                RouteKnob::Advmss => format!("advmss={}", plain(value)),
                RouteKnob::Initcwnd => format!("initcwnd={}", plain(value)),
                RouteKnob::Initrwnd => format!("initrwnd={}", plain(value)),
                RouteKnob::Quickack => format!("quickack={}", *value == &Value::Switch(true)),
                RouteKnob::RtoMin => format!("rto_min={}", plain(value)),
                RouteKnob::Window => format!("window={}", plain(value)),
                // It has no attribute for it.
                RouteKnob::Congctl => return None,
            })
        })
        .collect();
    if let (Some((to, via)), false) = (&of.to, attributes.is_empty()) {
        let family = if to.contains(':') { "ipv6" } else { "ipv4" };
        let via = via.map_or(String::new(), |via| format!(" {via}"));
        modify(format!(
            "+{family}.routes \"{to}{via} {}\"",
            attributes.join(" ")
        ));
    }
    for (knob, value) in &of.device {
        match knob {
            DeviceKnob::Mtu => modify(format!("802-3-ethernet.mtu {}", plain(value))),
            DeviceKnob::Tso => modify(format!("ethtool.feature-tso {}", on(value))),
            DeviceKnob::Gso => modify(format!("ethtool.feature-gso {}", on(value))),
            DeviceKnob::Gro => modify(format!("ethtool.feature-gro {}", on(value))),
            DeviceKnob::Rxring => modify(format!("ethtool.ring-rx {}", plain(value))),
            DeviceKnob::Txring => modify(format!("ethtool.ring-tx {}", plain(value))),
            DeviceKnob::Qdisc => {
                if let Some(qdisc) = qdisc(of) {
                    modify(format!("+tc.qdiscs \"root {}\"", qdisc.kind.name()));
                }
            }
            _ => {}
        }
    }
    (!text.is_empty()).then(|| Persistent {
        form: Form::NetworkManager,
        path: "commands".to_owned(),
        text,
        how: format!(
            "CONNECTION is what 'nmcli -g GENERAL.CONNECTION device show {name}' names; then: nmcli device reapply {name}"
        ),
    })
}

/// Keys of netplan(5).
fn netplan(of: &Of<'_>) -> Option<Persistent> {
    let name = of.name?;
    let mut inside = String::new();
    if let Some(mtu) = of.device(DeviceKnob::Mtu) {
        let _ = writeln!(inside, "      mtu: {}", plain(mtu));
    }
    let attributes: Vec<String> = of
        .route
        .iter()
        .filter_map(|(knob, value)| {
            let key = match knob {
                RouteKnob::Mtu => "mtu",
                RouteKnob::Advmss => "advertised-mss",
                RouteKnob::Initcwnd => "congestion-window",
                RouteKnob::Initrwnd => "advertised-receive-window",
                // It has no keys for them.
                RouteKnob::Congctl
                | RouteKnob::Quickack
                | RouteKnob::RtoMin
                | RouteKnob::Window => return None,
            };
            Some(format!("          {key}: {}\n", plain(value)))
        })
        .collect();
    if let (Some((to, via)), false) = (&of.to, attributes.is_empty()) {
        let _ = write!(inside, "      routes:\n        - to: \"{to}\"\n");
        let next = via.map_or("          scope: link".to_owned(), |via| {
            format!("          via: \"{via}\"")
        });
        let _ = writeln!(inside, "{next}");
        inside.push_str(&attributes.concat());
    }
    (!inside.is_empty()).then(|| Persistent {
        form: Form::Netplan,
        path: "/etc/netplan/90-linerate.yaml".to_owned(),
        text: format!("network:\n  version: 2\n  ethernets:\n    {name}:\n{inside}"),
        how: "netplan try".to_owned(),
    })
}

/// ip-route(8), ip-link(8), tc(8), ethtool(8).
fn commands(of: &Of<'_>) -> Option<Persistent> {
    let name = of.name?;
    let mut text = String::new();
    if let (Some((to, via)), false) = (&of.to, of.route.is_empty()) {
        let via = via.map_or(String::new(), |via| format!(" via {via}"));
        let _ = write!(text, "ip route replace {to}{via} dev {name}");
        for (knob, value) in &of.route {
            let word = match knob {
                RouteKnob::Mtu => "mtu lock".to_owned(),
                RouteKnob::RtoMin => {
                    let _ = write!(text, " rto_min {}ms", plain(value));
                    continue;
                }
                knob => Knob::Route(*knob)
                    .to_string()
                    .trim_start_matches("route.")
                    .to_owned(),
            };
            let _ = write!(text, " {word} {}", plain(value));
        }
        text.push('\n');
    }
    for (knob, value) in &of.device {
        let value_text = plain(value);
        let _ = match knob {
            DeviceKnob::Mtu => writeln!(text, "ip link set dev {name} mtu {value_text}"),
            DeviceKnob::Txqueuelen => {
                writeln!(text, "ip link set dev {name} txqueuelen {value_text}")
            }
            DeviceKnob::Qdisc => writeln!(text, "tc qdisc replace dev {name} root {value_text}"),
            DeviceKnob::Rxring => writeln!(text, "ethtool -G {name} rx {value_text}"),
            DeviceKnob::Txring => writeln!(text, "ethtool -G {name} tx {value_text}"),
            DeviceKnob::Mtu6 | DeviceKnob::Pin => Ok(()),
            offload => {
                let word = Knob::Device(*offload).to_string();
                writeln!(
                    text,
                    "ethtool -K {name} {} {}",
                    word.trim_start_matches("device."),
                    on(value)
                )
            }
        };
    }
    (!text.is_empty()).then(|| Persistent {
        form: Form::Commands,
        path: "commands".to_owned(),
        text,
        how: format!("whatever runs when {name} comes up: if-up.d, a unit, rc.local"),
    })
}

/// tcp(4) of FreeBSD: `sendspace` and `recvspace` are only where autotuning begins.
fn free_bsd(of: &Of<'_>) -> Option<Persistent> {
    let receive = of.greatest("net.ipv4.tcp_rmem");
    let send = of.greatest("net.ipv4.tcp_wmem");
    let mut text = String::new();
    if let Some(most) = receive.max(send) {
        let _ = writeln!(text, "kern.ipc.maxsockbuf={}", most.saturating_mul(2));
    }
    if let Some(receive) = receive {
        let _ = write!(
            text,
            "net.inet.tcp.recvbuf_auto=1\nnet.inet.tcp.recvbuf_max={receive}\n"
        );
    }
    if let Some(send) = send {
        let _ = write!(
            text,
            "net.inet.tcp.sendbuf_auto=1\nnet.inet.tcp.sendbuf_max={send}\n"
        );
    }
    match of.congestion().as_deref() {
        Some("bbr") => text.push_str("net.inet.tcp.functions_default=bbr\n# and in /boot/loader.conf: tcp_bbr_load=\"YES\"\n"),
        Some(name) => {
            let _ = writeln!(text, "net.inet.tcp.cc.algorithm={name}");
        }
        None => {}
    }
    if let Some(mtu) = of.device(DeviceKnob::Mtu) {
        let _ = writeln!(
            text,
            "# and in /etc/rc.conf, with what is there: ifconfig_X=\"... mtu {}\"",
            plain(mtu)
        );
    }
    (!text.is_empty()).then(|| Persistent {
        form: Form::FreeBsd,
        path: "/etc/sysctl.conf".to_owned(),
        text,
        how: "service sysctl restart".to_owned(),
    })
}

/// The window scale bounds every window at 65535 << it.
fn mac_os(of: &Of<'_>) -> Option<Persistent> {
    let receive = of.greatest("net.ipv4.tcp_rmem");
    let send = of.greatest("net.ipv4.tcp_wmem");
    let most = receive.max(send)?;
    let mut text = format!("kern.ipc.maxsockbuf={}\n", most.saturating_mul(2));
    if let Some(receive) = receive {
        let scale = (0..14u32)
            .find(|s| (65_535u64 << s) >= receive)
            .unwrap_or(14)
            .max(3);
        let _ = write!(
            text,
            "net.inet.tcp.win_scale_factor={scale}\nnet.inet.tcp.autorcvbufmax={receive}\n"
        );
    }
    if let Some(send) = send {
        let _ = writeln!(text, "net.inet.tcp.autosndbufmax={send}");
    }
    Some(Persistent {
        form: Form::MacOs,
        path: "/etc/sysctl.conf".to_owned(),
        text,
        how: "where it is not read at the start, a LaunchDaemon that runs 'sysctl KEY=VALUE' for each line".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Device;

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

    fn texts(settings: &[&str], host: &Fingerprint) -> Vec<Persistent> {
        let settings: Vec<Setting> = settings.iter().map(|s| s.parse().unwrap()).collect();
        persist(&settings, host, &[], "proven by the experiment 12345678")
    }

    fn text(settings: &[&str], form: Form) -> Option<String> {
        let all = texts(settings, &host("eth0"));
        all.into_iter().find(|t| t.form == form).map(|t| {
            t.text
                .strip_prefix("# proven by the experiment 12345678\n")
                .unwrap()
                .to_owned()
        })
    }

    const BUFFERS: [&str; 2] = [
        "sysctl:net.ipv4.tcp_rmem=4096 131072 67108864",
        "sysctl:net.ipv4.tcp_wmem=4096 16384 8388608",
    ];

    #[test]
    fn sysctls_go_into_a_fragment_and_the_files_of_other_systems() {
        assert_eq!(
            text(&BUFFERS, Form::Sysctl).unwrap(),
            "net.ipv4.tcp_rmem = 4096 131072 67108864\nnet.ipv4.tcp_wmem = 4096 16384 8388608\n"
        );
        assert_eq!(
            text(&BUFFERS, Form::FreeBsd).unwrap(),
            "kern.ipc.maxsockbuf=134217728\nnet.inet.tcp.recvbuf_auto=1\nnet.inet.tcp.recvbuf_max=67108864\n\
             net.inet.tcp.sendbuf_auto=1\nnet.inet.tcp.sendbuf_max=8388608\n"
        );
        assert_eq!(
            text(&BUFFERS, Form::MacOs).unwrap(),
            "kern.ipc.maxsockbuf=134217728\nnet.inet.tcp.win_scale_factor=11\nnet.inet.tcp.autorcvbufmax=67108864\n\
             net.inet.tcp.autosndbufmax=8388608\n"
        );
        for form in [
            Form::Networkd,
            Form::NetworkManager,
            Form::Netplan,
            Form::Commands,
        ] {
            assert_eq!(text(&BUFFERS, form), None);
        }
    }

    #[test]
    fn a_route_goes_into_what_keeps_routes() {
        let route = [
            "route.congctl=bbr",
            "route.initcwnd=32",
            "route.mtu=1400",
            "route.rto_min=40ms",
        ];
        assert_eq!(
            text(&route, Form::Commands).unwrap(),
            "ip route replace 192.0.2.9/32 via 198.51.100.1 dev eth0 congctl bbr initcwnd 32 mtu lock 1400 rto_min 40ms\n"
        );
        assert_eq!(
            text(&route, Form::Networkd).unwrap(),
            "[Route]\nDestination=192.0.2.9/32\nGateway=198.51.100.1\nTCPCongestionControlAlgorithm=bbr\n\
             InitialCongestionWindow=32\nMTUBytes=1400\nTCPRetransmissionTimeoutSec=40ms\n"
        );
        assert_eq!(
            text(&route, Form::NetworkManager).unwrap(),
            "nmcli connection modify \"$CONNECTION\" +ipv4.routes \"192.0.2.9/32 198.51.100.1 initcwnd=32 mtu=1400 \
             lock-mtu=true rto_min=40\"\n"
        );
        assert_eq!(
            text(&route, Form::Netplan).unwrap(),
            "network:\n  version: 2\n  ethernets:\n    eth0:\n      routes:\n        - to: \"192.0.2.9/32\"\n          \
             via: \"198.51.100.1\"\n          congestion-window: 32\n          mtu: 1400\n"
        );
        assert_eq!(text(&["route.congctl=bbr"], Form::Netplan), None);
        assert!(
            text(&route, Form::FreeBsd)
                .unwrap()
                .starts_with("net.inet.tcp.functions_default=bbr\n")
        );
    }

    #[test]
    fn a_device_goes_into_what_keeps_devices() {
        let device = ["device.mtu=9000", "device.qdisc=fq", "device.gro=on"];
        assert_eq!(
            text(&device, Form::Commands).unwrap(),
            "ip link set dev eth0 mtu 9000\ntc qdisc replace dev eth0 root fq\nethtool -K eth0 gro on\n"
        );
        assert_eq!(
            text(&device, Form::Networkd).unwrap(),
            "[Link]\nMTUBytes=9000\n[FairQueueing]\nParent=root\n\
             # in the .link file of eth0, below [Link]: GenericReceiveOffload=yes\n"
        );
        assert_eq!(text(&["pacing=60M"], Form::Commands), None);
    }

    #[test]
    fn a_name_that_is_none_gets_into_no_text() {
        for name in ["eth0; reboot", "$(x)", "", "a\nb", "-x", "sixteen-letters-"] {
            let all = texts(&["route.initcwnd=32", "device.mtu=9000"], &host(name));
            let forms: Vec<Form> = all.iter().map(|t| t.form).collect();
            assert_eq!(forms, [Form::FreeBsd], "{name}");
        }
        let settings: Vec<Setting> = BUFFERS.iter().map(|s| s.parse().unwrap()).collect();
        let texts = persist(&settings, &host("eth0"), &[], "a note\nkernel.panic = 1");
        assert!(texts[0].text.starts_with("# a notekernel.panic = 1\nnet."));
    }
}

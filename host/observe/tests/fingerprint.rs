//! The fingerprint of this host, beside what ip(8), tc(8) and ethtool(8) say of it.
#![allow(clippy::unwrap_used, reason = "a test says what failed by panicking")]

use linerate_observe::fingerprint;
use model::{BitRate, Device, Fingerprint};
use std::net::{IpAddr, UdpSocket};
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn a_host_without_a_peer() {
    let host = fingerprint("1.2.3", None);
    assert_eq!(host.linerate, "1.2.3");
    assert_eq!(host.hostname, run("uname", &["-n"]));
    assert_eq!(host.kernel, run("uname", &["-sr"]));
    assert_eq!(host.architecture, run("uname", &["-m"]));
    assert!(host.distribution.is_some() && host.clock_source.is_some());
    assert!(!host.cpu.model.is_empty());
    assert_eq!(
        host.cpu.online.to_string(),
        run("getconf", &["_NPROCESSORS_ONLN"])
    );
    let pages: u64 = run("getconf", &["_PHYS_PAGES"]).parse().unwrap();
    let page: u64 = run("getconf", &["PAGESIZE"]).parse().unwrap();
    assert_eq!(host.memory.unwrap().0, pages * page);
    let congestion = host.congestion.as_ref().unwrap();
    assert!(congestion.available.contains(&congestion.default));
    assert!(host.sysctls.len() > 40, "{:?}", host.sysctls);
    assert_eq!(host.route, None);
    assert_eq!(host.device, None);
    assert_eq!(why(&host, "route"), "no peer");
}

#[test]
fn the_route_over_loopback() {
    for peer in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
        let peer: IpAddr = peer.parse().unwrap();
        let host = fingerprint("", Some(peer));
        let route = host.route.as_ref().unwrap();
        assert_eq!(route.destination, Some(peer.to_canonical()));
        assert_eq!(route.source, Some(peer.to_canonical()));
        assert_eq!((route.device.as_str(), route.gateway), ("lo", None));
        let device = host.device.as_ref().unwrap();
        assert_eq!(device.name, "lo");
        agrees_with_the_tools(&host, peer.to_canonical());
    }
}

#[test]
fn the_route_to_the_world() {
    // Documentation addresses (RFC 5737, RFC 3849): the route is looked up, nothing is sent.
    for peer in ["192.0.2.1", "2001:db8::1"] {
        let address: IpAddr = peer.parse().unwrap();
        let host = fingerprint("", Some(address));
        let ip = Command::new("ip").args(["route", "get", peer]).output();
        let has_route = ip
            .expect("ip (Debian package iproute2) must be installed for this test")
            .status
            .success();
        assert_eq!(host.route.is_some(), has_route, "{peer}: {:?}", host.unread);
        if has_route {
            agrees_with_the_tools(&host, address);
        } else {
            assert_eq!(
                why(&host, &format!("route to {peer}")),
                "this host has no route to it"
            );
        }
    }
}

#[test]
fn a_route_with_metrics_and_a_device_with_settings() {
    in_a_namespace_of_its_own("inside_a_namespace");
}

#[test]
fn a_cached_path_mtu_is_reported() {
    in_a_namespace_of_its_own("a_router_inside_a_namespace");
}

/// Runs one of the ignored tests in a new network namespace. It lives as long as the process in it, so
/// that nothing is left behind, whatever happens.
fn in_a_namespace_of_its_own(test: &str) {
    let is_root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    if !is_root && std::env::var("LINERATE_TEST_UNPRIVILEGED").as_deref() == Ok("1") {
        eprintln!("left out: a network namespace needs root");
        return;
    }
    assert!(
        is_root,
        "this test makes a network namespace of its own, which needs root; \
         LINERATE_TEST_UNPRIVILEGED=1 leaves it out"
    );
    let outside = std::fs::read_link("/proc/self/ns/net").unwrap();
    let output = Command::new("unshare")
        .arg("--net")
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored"])
        .env(OUTSIDE, &outside)
        .output()
        .expect("unshare (Debian package util-linux) must be installed for this test");
    let words = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success() && words.contains("1 passed"),
        "{words}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Names the network namespace that must not be touched.
const OUTSIDE: &str = "LINERATE_TEST_OUTSIDE_NAMESPACE";

/// Guards the tests that change their namespace against being run in that of the host.
fn assert_is_inside() {
    let here = std::fs::read_link("/proc/self/ns/net").unwrap();
    let outside =
        std::env::var_os(OUTSIDE).expect("not started by the test that makes a namespace");
    assert_ne!(
        here.as_os_str(),
        outside,
        "still in the namespace of the host"
    );
}

#[test]
#[ignore = "run by a_route_with_metrics_and_a_device_with_settings, in a namespace of its own"]
fn inside_a_namespace() {
    assert_is_inside();
    for line in [
        "ip link set lo up",
        "ip link add v0 mtu 1480 txqueuelen 777 type veth peer name v1",
        "ip link set v0 up",
        "ip link set v1 up",
        "ip addr add 192.0.2.1/24 dev v0",
        "ip addr add 2001:db8::1/64 dev v0 nodad",
        "ip route add 198.51.100.0/24 via 192.0.2.9 mtu lock 1400 advmss 1300 initcwnd 20 \
         initrwnd 30 window 70000 rto_min 50ms rtt 25ms quickack 1 features ecn congctl reno \
         hoplimit 33 reordering 5",
        "ip route add 2001:db8:9::/48 via 2001:db8::9 mtu 1380 advmss 1250 congctl lock reno",
        "ip route add unreachable 203.0.113.0/24",
        "ip route add prohibit 203.0.114.0/24",
        "ip route add blackhole 2001:db8:dead::/48",
        "ethtool -K v0 tso off gro on",
        "ip link add m0 numtxqueues 2 numrxqueues 2 type veth peer name m1",
        "tc qdisc add dev m0 root handle 1: mq",
        "tc qdisc replace dev m0 parent 1:1 pfifo limit 50",
        "tc qdisc replace dev m0 parent 1:2 pfifo limit 50",
        "ip link set m0 up",
        "ip addr add 198.18.0.1/24 dev m0",
        "tc qdisc add dev v0 root tbf rate 100mbit burst 32k limit 102400",
    ] {
        run_line(line);
    }

    let peer: IpAddr = "198.51.100.7".parse().unwrap();
    let host = fingerprint("", Some(peer));
    agrees_with_the_tools(&host, peer);
    let route = host.route.as_ref().unwrap();
    assert_eq!(route.destination, Some(peer));
    assert_eq!(route.gateway, Some("192.0.2.9".parse().unwrap()));
    assert_eq!(route.source, Some("192.0.2.1".parse().unwrap()));
    assert_eq!(route.device, "v0");
    let metrics: Vec<_> = route
        .metrics
        .iter()
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    assert_eq!(
        metrics,
        [
            "advmss 1300",
            "congctl reno",
            "features ecn",
            "hoplimit 33",
            "initcwnd 20",
            "initrwnd 30",
            "mtu lock 1400",
            "quickack 1",
            "reordering 5",
            "rto_min lock 50ms",
            "rtt 25ms",
            "window 70000",
        ]
    );
    let device = host.device.as_ref().unwrap();
    assert_eq!((device.name.as_str(), device.mtu), ("v0", 1480));
    assert_eq!(device.driver.as_deref(), Some("veth"));
    assert_eq!(device.tx_queue_len, Some(777));
    assert_eq!(
        device.qdisc.as_deref(),
        Some("tbf rate 100 Mbit/s limit 100 KiB")
    );
    assert!(!device.offloads["tso"] && device.offloads["gro"] && device.offloads["sg"]);
    // What a veth says of its speed limits nothing.
    assert_eq!(device.speed, None);
    assert!(why(&host, "link speed of v0").contains("limits nothing"));
    // Keys of the host are not shown in here.
    assert!(why(&host, "net.core.netdev_max_backlog").contains("network namespace"));
    assert!(host.sysctls.contains_key("net.ipv4.tcp_rmem"));

    let peer: IpAddr = "2001:db8:9::7".parse().unwrap();
    let host = fingerprint("", Some(peer));
    agrees_with_the_tools(&host, peer);
    let route = host.route.as_ref().unwrap();
    assert_eq!(route.gateway, Some("2001:db8::9".parse().unwrap()));
    assert_eq!(route.metrics["mtu"], "1380");
    assert_eq!(route.metrics["congctl"], "lock reno");

    let peer: IpAddr = "198.18.0.9".parse().unwrap();
    let host = fingerprint("", Some(peer));
    agrees_with_the_tools(&host, peer);
    let device = host.device.as_ref().unwrap();
    assert_eq!((device.rx_queues, device.tx_queues), (Some(2), Some(2)));
    assert_eq!(device.qdisc.as_deref(), Some("mq, 2 x pfifo limit 50p"));

    for (peer, words) in [
        ("203.0.113.1", "says that it is unreachable"),
        ("203.0.114.1", "prohibits it"),
        ("2001:db8:dead::1", "discards everything"),
        ("100.64.0.1", "this host has no route to it"),
    ] {
        let host = fingerprint("", Some(peer.parse().unwrap()));
        assert_eq!((&host.route, &host.device), (&None, &None));
        let why = why(&host, &format!("route to {peer}"));
        assert!(why.contains(words), "{peer}: {why}");
    }
}

#[test]
#[ignore = "run by a_learned_path_mtu_is_told, in a namespace of its own"]
fn a_router_inside_a_namespace() {
    assert_is_inside();
    // The router's namespace is held by a process that ends when its input does, which is when this
    // process ends, however it ends.
    let mut router = Command::new("unshare")
        .args(["--net", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let pid = router.id().to_string();
    let here = std::fs::read_link("/proc/self/ns/net").unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while std::fs::read_link(format!("/proc/{pid}/ns/net")).unwrap() == here {
        assert!(Instant::now() < deadline, "unshare made no namespace");
        std::thread::yield_now();
    }
    let in_router = format!("nsenter --net=/proc/{pid}/ns/net");
    for line in [
        "ip link set lo up".to_owned(),
        format!("ip link add v0 type veth peer name v1 netns {pid}"),
        "ip addr add 192.0.2.1/24 dev v0".to_owned(),
        "ip link set v0 up".to_owned(),
        "ip route add default via 192.0.2.2".to_owned(),
        format!("{in_router} ip addr add 192.0.2.2/24 dev v1"),
        format!("{in_router} ip link set v1 up"),
        format!("{in_router} sysctl -qw net.ipv4.ip_forward=1"),
        format!("{in_router} ip link add narrow mtu 1280 type veth peer name end"),
        format!("{in_router} ip link set narrow up"),
        format!("{in_router} ip link set end up"),
        format!("{in_router} ip route add 198.51.100.0/24 dev narrow"),
    ] {
        run_line(&line);
    }

    let peer: IpAddr = "198.51.100.7".parse().unwrap();
    assert!(
        fingerprint("", Some(peer))
            .route
            .unwrap()
            .metrics
            .is_empty()
    );
    // A datagram that does not fit, and must not be cut: the router says so (ICMP, RFC 1191).
    let socket = UdpSocket::bind("192.0.2.1:0").unwrap();
    socket.send_to(&[0; 1400], (peer, 9)).unwrap();
    let metrics = loop {
        let metrics = fingerprint("", Some(peer)).route.unwrap().metrics;
        if !metrics.is_empty() {
            break metrics;
        }
        assert!(Instant::now() < deadline, "no path MTU was learned");
        std::thread::yield_now();
    };
    assert_eq!(metrics["mtu"], "1280");
    let expires: u64 = metrics["expires"]
        .strip_suffix("sec")
        .unwrap()
        .parse()
        .unwrap();
    // net.ipv4.route.mtu_expires is ten minutes.
    assert!((500..=600).contains(&expires), "{expires}");

    drop(router.stdin.take());
    assert!(router.wait().unwrap().success());
}

/// Why something whose name begins so could not be read.
fn why(host: &Fingerprint, what: &str) -> String {
    let unread = host.unread.iter().find(|u| u.what.starts_with(what));
    unread
        .unwrap_or_else(|| panic!("'{what}' is not among {:?}", host.unread))
        .why
        .clone()
}

/// Holds route and device against the tools that everyone trusts.
fn agrees_with_the_tools(host: &Fingerprint, peer: IpAddr) {
    let route = host.route.as_ref().unwrap();
    let device = host.device.as_ref().unwrap();
    assert_eq!(route.device, device.name);

    let said = run("ip", &["-oneline", "route", "get", &peer.to_string()]);
    let said = format!(
        " {} ",
        said.replace('\\', " ")
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    );
    let mut expected = vec![format!("dev {}", route.device)];
    expected.extend(route.gateway.map(|g| format!("via {g}")));
    expected.extend(route.source.map(|s| format!("src {s}")));
    expected.extend(
        route
            .metrics
            .iter()
            .map(|(name, value)| format!("{name} {value}")),
    );
    for words in expected {
        assert!(
            said.contains(&format!(" {words} ")),
            "'{words}' is not in: {said}"
        );
    }
    assert_eq!(said.contains(" via "), route.gateway.is_some(), "{said}");

    let link = run(
        "ip",
        &["-oneline", "-details", "link", "show", "dev", &device.name],
    );
    let link_says = |words: String| assert!(link.contains(&words), "'{words}' is not in: {link}");
    link_says(format!("mtu {} ", device.mtu));
    link_says(format!("qlen {}", device.tx_queue_len.unwrap()));
    let qdisc = device.qdisc.as_ref().unwrap();
    link_says(format!(
        "qdisc {} ",
        qdisc.split([' ', ',']).next().unwrap()
    ));

    offloads_agree(device);
    let driver = Command::new("ethtool")
        .args(["-i", &device.name])
        .output()
        .unwrap();
    let driver = String::from_utf8(driver.stdout).unwrap();
    let said = driver
        .lines()
        .find_map(|line| line.strip_prefix("driver: "));
    assert_eq!(device.driver.as_deref(), said);
    let settings = Command::new("ethtool").arg(&device.name).output().unwrap();
    let settings = String::from_utf8(settings.stdout).unwrap();
    if let Some(BitRate(speed)) = device.speed {
        let words = format!("Speed: {}Mb/s", speed / 1_000_000);
        assert!(settings.contains(&words), "'{words}' is not in: {settings}");
    }
}

fn offloads_agree(device: &Device) {
    let said = run("ethtool", &["-k", &device.name]);
    for (short, long) in [
        ("rx", "rx-checksumming"),
        ("tx", "tx-checksumming"),
        ("sg", "scatter-gather"),
        ("tso", "tcp-segmentation-offload"),
        ("gso", "generic-segmentation-offload"),
        ("gro", "generic-receive-offload"),
        ("lro", "large-receive-offload"),
        ("rxvlan", "rx-vlan-offload"),
        ("txvlan", "tx-vlan-offload"),
        ("ntuple", "ntuple-filters"),
        ("rxhash", "receive-hashing"),
    ] {
        let line = said
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{long}: ")));
        let word = line.unwrap_or_else(|| panic!("no {long} in: {said}"));
        assert_eq!(
            device.offloads[short],
            word.starts_with("on"),
            "{short}: {word}"
        );
    }
}

/// Runs a command without quoting.
fn run_line(line: &str) {
    let words: Vec<_> = line.split_whitespace().collect();
    run(words[0], &words[1..]);
}

/// What a tool prints, which must be there and succeed.
fn run(tool: &str, arguments: &[&str]) -> String {
    let output = Command::new(tool)
        .args(arguments)
        .output()
        .unwrap_or_else(|e| panic!("{tool} must be installed for this test: {e}"));
    assert!(
        output.status.success(),
        "{tool} {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

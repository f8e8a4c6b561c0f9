//! `linerate mtu` on real kernels: the table of faults, each in namespaces of its own, beside what common
//! tools say of the same path. `make mtu-faults` writes the table to docs/mtu-faults.md.

use crate::common;
use crate::common::{Home, Running, run, stdout};
use serde_json::Value;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Hosts `a` and `b` with an MTU of 9000 and offloads off, since GSO packets pass a router's check.
/// Either two routers, `r` and `s`, between them, or a bridge `x`.
struct Net {
    name: String,
    routed: bool,
}

impl Net {
    fn new(routed: bool) -> Net {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let net = Net {
            name: format!("lm{}-{n}", std::process::id()),
            routed,
        };
        let all = net.all().join(" ");
        let common = r#"
            for n in $ALL; do
                ip netns add $P$n; ip -n $P$n link set lo up
                ip netns exec $P$n sysctl -qw net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0
            done
            cable() {
                ip -n $P$1 link add $2 mtu 9000 type veth peer name $4 mtu 9000 netns $P$3
                for e in "$1 $2" "$3 $4"; do
                    set -- $e
                    ip netns exec $P$1 ethtool -K $2 tso off gso off gro off >/dev/null
                    ip -n $P$1 link set $2 up
                done
            }
            address() {
                ip -n $P$1 address add 10.0.$3.$4/24 dev $2
                ip -n $P$1 address add fd00:$3::$4/64 nodad dev $2
            }"#;
        let own = match routed {
            true => {
                r#"
            for n in r s; do
                # Whoever asks last is to be answered as well as whoever asks first.
                ip netns exec $P$n sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 \
                    net.ipv4.icmp_ratelimit=0 net.ipv6.icmp.ratelimit=0
            done
            cable a e0 r e0; cable r e1 s e0; cable s e1 b e0
            address a e0 1 1; address r e0 1 2; address r e1 2 1; address s e0 2 2; address s e1 3 1; address b e0 3 2
            ip -n ${P}a route add default via 10.0.1.2; ip -n ${P}b route add default via 10.0.3.1
            ip -n ${P}r route add 10.0.3.0/24 via 10.0.2.2; ip -n ${P}s route add 10.0.1.0/24 via 10.0.2.1
            ip -n ${P}a route add default via fd00:1::2; ip -n ${P}b route add default via fd00:3::1
            ip -n ${P}r route add fd00:3::/64 via fd00:2::2; ip -n ${P}s route add fd00:1::/64 via fd00:2::1"#
            }
            false => {
                r#"
            cable a e0 x e0; cable x e1 b e0
            ip -n ${P}x link add br0 mtu 9000 type bridge
            for e in e0 e1; do ip -n ${P}x link set $e master br0; done
            ip -n ${P}x link set br0 up
            address a e0 3 1; address b e0 3 2"#
            }
        };
        net.shell(&format!("ALL='{all}'\n{common}\n{own}"));
        net
    }

    fn all(&self) -> &'static [&'static str] {
        match self.routed {
            true => &["a", "r", "s", "b"],
            false => &["a", "x", "b"],
        }
    }

    fn at(&self, node: &str) -> String {
        format!("{}{node}", self.name)
    }

    /// Runs a script in which `at NODE COMMAND` runs a command in a namespace.
    fn shell(&self, script: &str) {
        let script = format!(
            "set -eu; P={}; at() {{ n=$P$1; shift; ip netns exec $n \"$@\"; }}; {script}",
            self.name
        );
        let out = run(Command::new("bash").args(["-c", &script]));
        assert!(out.status.success(), "{script}\n{}", common::stderr(&out));
    }

    fn inside(&self, node: &str, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.at(node), program]);
        command
    }

    /// `linerate` in `a`, with an agent in `b` at its standard input, as in a lab.
    fn linerate(&self, home: &Home, remote: &str, args: &[&str]) -> Running {
        let (local_end, remote_end) = UnixStream::pair().unwrap();
        let own = |end: UnixStream| Stdio::from(OwnedFd::from(end));
        let program = env!("CARGO_BIN_EXE_linerate");
        let mut agent = self.inside("b", program);
        agent.args(["agent", "--stdio", "--listen", remote]);
        home.furnish(&mut agent);
        agent.stdin(own(remote_end.try_clone().unwrap()));
        agent.stdout(own(remote_end));
        let mut agent = agent.spawn().unwrap();
        let mut local = self.inside("a", program);
        local.args(args).arg(format!("--lab-remote={remote}"));
        home.furnish(&mut local);
        local.stdin(own(local_end));
        local.stdout(Stdio::piped()).stderr(Stdio::piped());
        let local = local.spawn().unwrap();
        // The agent ends when the client has; nobody else waits for it.
        std::thread::spawn(move || agent.wait());
        Running(local)
    }

    fn mtu(&self, home: &Home, remote: &str) -> Value {
        let out = self.linerate(home, remote, &["mtu", "lab:there", "--json"]);
        let out = out.output(Duration::from_secs(60));
        assert!(out.status.success(), "{}", common::stderr(&out));
        serde_json::from_slice(&out.stdout).unwrap()
    }

    /// A web server with a page of 100 kB.
    fn web(&self, node: &str, home: &Home) -> Running {
        let pages = home.path().join("pages");
        std::fs::create_dir_all(&pages).unwrap();
        std::fs::write(pages.join("big"), vec![b'x'; 100_000]).unwrap();
        let mut server = self.inside(node, "python3");
        server.args(["-u", "-m", "http.server", "80", "--directory"]);
        server
            .arg(&pages)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let server = Running(server.spawn().unwrap());
        let until = Instant::now() + Duration::from_secs(20);
        let probe = [
            "-c",
            "import socket; socket.create_connection(('127.0.0.1', 80))",
        ];
        while !run(self.inside(node, "python3").args(probe))
            .status
            .success()
        {
            assert!(Instant::now() < until, "the web server does not listen");
        }
        server
    }

    fn mtu_of_web(&self, home: &Home, url: &str) -> Value {
        let mut command = self.inside("a", env!("CARGO_BIN_EXE_linerate"));
        home.furnish(command.args(["mtu", url, "--json"]));
        common::json(&mut command)
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for node in self.all() {
            let _ = Command::new("ip")
                .args(["netns", "delete", &self.at(node)])
                .status();
        }
    }
}

/// Commands of the scripts.
const TOOLS: &str = r#"
    narrow() { ip -n ${P}r link set e1 mtu 1500; ip -n ${P}s link set e0 mtu 1500; }
    silent() { for n in "$@"; do at $n nft -f - <<'END'
        table inet silent {
            chain out {
                type filter hook output priority 0
                icmp type destination-unreachable icmp code frag-needed drop
                icmpv6 type packet-too-big drop
            }
        }
END
    done; }
    toward_b() { ip -n ${P}r route replace 10.0.3.0/24 via 10.0.2.2 mtu $1; }
    toward_a() { ip -n ${P}s route replace 10.0.1.0/24 via 10.0.2.1 mtu $1; }
    # chain NODE FAMILY TYPE HOOK RULE
    chain() {
        at $1 nft add table $2 t$4; at $1 nft "add chain $2 t$4 c { type $3 hook $4 priority 0; }"
        at $1 nft "add rule $2 t$4 c $5"
    }
    # Frames that come in by a device.
    drops() {
        at $1 nft add table netdev $2
        at $1 nft "add chain netdev $2 c { type filter hook ingress device $2 priority 0; }"
        at $1 nft "add rule netdev $2 c meta length > 1500 drop"
    }
    deaf() { for n in a b; do chain $n inet filter input "$1 drop"; done; }
"#;

/// One line of the table.
struct Row {
    name: &'static str,
    routed: bool,
    fault: &'static str,
    /// Path MTU, forward and reverse.
    sizes: (u32, u32),
    /// What stops larger packets, forward and reverse: kinds, with `@` and the hop where there is one.
    causes: (&'static str, &'static str),
    /// What is beside, forward and reverse.
    beside: (&'static [&'static str], &'static [&'static str]),
    /// Over IPv6 as well.
    v6: bool,
    /// Without an agent as well.
    web: bool,
}

const HOLE: &[&str] = &["black_hole"];

#[rustfmt::skip]
const ROWS: &[Row] = &[
    Row { name: "clean", routed: true, fault: "", sizes: (9000, 9000), causes: ("clear", "clear"), beside: (&[], &[]), v6: true, web: false },
    Row { name: "router 1500, ICMP works", routed: true, fault: "narrow",
        sizes: (1500, 1500), causes: ("router_reports@1", "router_reports@1"), beside: (&[], &[]), v6: true, web: true },
    Row { name: "router 1500, frag-needed dropped", routed: true, fault: "narrow; silent r s",
        sizes: (1500, 1500), causes: ("silent@1", "silent@1"), beside: (HOLE, HOLE), v6: true, web: true },
    Row { name: "same, forward only", routed: true, fault: "toward_b 1500; silent r",
        sizes: (1500, 9000), causes: ("silent@1", "clear"), beside: (HOLE, &[]), v6: false, web: true },
    Row { name: "same, reverse only", routed: true, fault: "toward_a 1500; silent s",
        sizes: (9000, 1500), causes: ("clear", "silent@1"), beside: (&[], HOLE), v6: false, web: true },
    Row { name: "same as the third, with 5 % of random loss", routed: true,
        fault: "narrow; silent r s; chain r inet filter forward 'numgen random mod 100 < 5 drop'",
        sizes: (1500, 1500), causes: ("silent@1", "silent@1"), beside: (HOLE, HOLE), v6: false, web: false },
    Row { name: "frag-needed dropped by the hosts' own firewall", routed: true, fault: "narrow; deaf 'icmp type destination-unreachable icmp code frag-needed'",
        sizes: (1500, 1500), causes: ("silent@1", "silent@1"), beside: (HOLE, HOLE), v6: false, web: false },
    Row { name: "all ICMP filtered at both hosts", routed: true, fault: "narrow; deaf 'ip protocol icmp'",
        sizes: (1500, 1500), causes: ("somewhere", "somewhere"), beside: (HOLE, HOLE), v6: false, web: true },
    Row { name: "black hole, and an MSS clamp at the router", routed: true,
        fault: "narrow; silent r s; chain r inet filter forward 'tcp flags syn tcp option maxseg size set 1460'",
        sizes: (1500, 1500), causes: ("silent@1", "silent@1"), beside: (&["clamp@1"], &["clamp@2"]), v6: false, web: false },
    Row { name: "switch drops > 1500, both ways", routed: false, fault: "drops x e0; drops x e1",
        sizes: (1500, 1500), causes: ("segment", "segment"), beside: (HOLE, HOLE), v6: true, web: false },
    Row { name: "switch drops > 1500, forward", routed: false, fault: "drops x e0",
        sizes: (1500, 9000), causes: ("segment", "clear"), beside: (HOLE, &[]), v6: true, web: false },
    Row { name: "switch drops > 1500, reverse", routed: false, fault: "drops x e1",
        sizes: (9000, 1500), causes: ("clear", "segment"), beside: (&[], HOLE), v6: true, web: false },
    Row { name: "one host 9000, the other 1500, same segment", routed: false, fault: "ip -n ${P}b link set e0 mtu 1500",
        sizes: (1500, 1500), causes: ("peer_device", "own_device"), beside: (&[], &[]), v6: false, web: false },
    Row { name: "tunnel 1400 inside 1500, ICMP lost", routed: true, fault: "narrow; silent r s; toward_a 1400; toward_b 1400",
        sizes: (1400, 1400), causes: ("silent@1", "silent@1"), beside: (&["black_hole", "encapsulation"], &["black_hole", "encapsulation"]), v6: false, web: false },
    Row { name: "first-hop router port 1500, silent", routed: true,
        fault: "drops r e0; silent r; ip -n ${P}r route replace 10.0.1.0/24 dev e0 src 10.0.1.2 mtu 1500",
        sizes: (1500, 1500), causes: ("segment", "silent@2"), beside: (HOLE, HOLE), v6: false, web: false },
    Row { name: "stale PMTU in the host's cache, the path is 9000", routed: true,
        fault: "narrow; at a ping -q -c 1 -W 1 -M do -s 3000 10.0.3.2 >/dev/null || true; ip -n ${P}r link set e1 mtu 9000; ip -n ${P}s link set e0 mtu 9000",
        sizes: (9000, 9000), causes: ("clear", "clear"), beside: (&["stale_cache"], &[]), v6: false, web: false },
    Row { name: "ip_no_pmtu_disc=1", routed: true, fault: "narrow; for n in a b; do at $n sysctl -qw net.ipv4.ip_no_pmtu_disc=1; done",
        sizes: (1500, 1500), causes: ("router_reports@1", "router_reports@1"), beside: (&["fragmented"], &["fragmented"]), v6: false, web: false },
];

/// Where the remote host is.
const FAR: &str = "10.0.3.2";
const FAR_V6: &str = "fd00:3::2";

/// Plays one row; with `tools`, what they say of the same path.
fn play(row: &Row, tools: bool) -> Option<[String; 4]> {
    let home = Home::new();
    let net = Net::new(row.routed);
    net.shell(&format!("{TOOLS}\n{}", row.fault));
    let found = net.mtu(&home, FAR);
    check(row, &found);
    if row.v6 {
        check(row, &net.mtu(&home, FAR_V6));
    }
    if row.web {
        let _server = net.web("b", &home);
        net.shell("for n in a b; do ip -n $P$n route flush cache; done");
        let web = net.mtu_of_web(&home, &format!("http://{FAR}/big"));
        assert_eq!(sizes(&web), row.sizes, "{} by the web: {web:#}", row.name);
    }
    tools.then(|| ask_tools(row, &net))
}

/// What common tools say of the path, and what was to be found.
fn ask_tools(row: &Row, net: &Net) -> [String; 4] {
    // What our probes have taught the kernel is not to help others.
    net.shell("for n in a b; do ip -n $P$n route flush cache; done");
    if row.beside.0.contains(&"stale_cache") {
        net.shell(&format!("{TOOLS}\n{}", row.fault));
    }
    let ask = |program: &str, args: &[&str]| {
        let mut command = net.inside("a", "bash");
        let script = "timeout -k 1 45 \"$@\" 2>&1";
        command.args(["-c", script, "tool", program]).args(args);
        stdout(&run(&mut command))
    };
    let (forward, reverse) = row.sizes;
    let least = forward.min(reverse);
    let scamper = ask("scamper", &["-I", "trace -M -w 1 10.0.3.2"]);
    let tracepath = ask("tracepath", &["-n", "-m", "4", FAR]);
    let ping = ask(
        "ping",
        &[
            "-M", "do", "-c", "3", "-i", "0.2", "-W", "1", "-s", "8972", FAR,
        ],
    );
    [
        ping_says(&ping, least),
        tracepath_says(&tracepath, least),
        scamper_says(&scamper, least),
        format!("{forward} / {reverse}"),
    ]
}

fn sizes(found: &Value) -> (u32, u32) {
    let size = |way: &str| found[way]["verdict"]["mtu"].as_u64().unwrap_or(0) as u32;
    (size("forward"), size("reverse"))
}

fn check(row: &Row, found: &Value) {
    assert_eq!(sizes(found), row.sizes, "{}: {found:#}", row.name);
    let label = |value: &Value| {
        let kind = value["kind"].as_str().unwrap_or("none");
        match value["hop"].as_u64() {
            Some(hop) => format!("{kind}@{hop}"),
            None => kind.to_owned(),
        }
    };
    for (way, cause, beside) in [
        ("forward", row.causes.0, row.beside.0),
        ("reverse", row.causes.1, row.beside.1),
    ] {
        let verdict = &found[way]["verdict"];
        assert_eq!(
            label(&verdict["cause"]),
            cause,
            "{} {way}: {found:#}",
            row.name
        );
        let labels: Vec<String> = verdict["beside"]
            .as_array()
            .unwrap()
            .iter()
            .map(label)
            .collect();
        assert_eq!(labels, beside, "{} {way}: {found:#}", row.name);
        assert_eq!(found[way]["climb"]["confirmed"], true, "{} {way}", row.name);
    }
}

/// The rating of ping's output: `OK` if it has the smaller of both sizes, `FALSE` if it reports success
/// is well where it is not, `?` if it only says that something is wrong.
fn ping_says(said: &str, least: u32) -> String {
    let replies = said.contains(" bytes from ");
    let reported =
        said.contains(&format!("mtu = {least}")) || said.contains(&format!("mtu={least}"));
    let word = match (replies, least) {
        (true, 9000) => "OK",
        (true, _) => "FALSE",
        _ if reported && least < 9000 => "OK",
        _ => "?",
    };
    word.to_owned()
}

fn tracepath_says(said: &str, least: u32) -> String {
    let resume = said
        .lines()
        .find_map(|line| line.trim().strip_prefix("Resume: pmtu "));
    let sized = resume.and_then(|rest| rest.split_whitespace().next()?.parse::<u32>().ok());
    let reached = said.contains("reached");
    match (sized, reached) {
        (Some(size), true) if size == least => "OK".to_owned(),
        (Some(size), true) => format!("FALSE ({size})"),
        _ if said
            .lines()
            .any(|line| line.contains("asymm") || line.contains("ms")) =>
        {
            "?".to_owned()
        }
        _ => "nothing".to_owned(),
    }
}

fn scamper_says(said: &str, least: u32) -> String {
    let sizes = said.split("mtu: ").skip(1).filter_map(|rest| {
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u32>().ok()
    });
    match sizes.min() {
        Some(size) if size == least => "OK".to_owned(),
        Some(size) => format!("FALSE ({size})"),
        None => "nothing".to_owned(),
    }
}

#[test]
fn every_fault_of_the_table_is_found_in_both_directions() {
    let file = std::env::var_os("LINERATE_MTU_FAULTS");
    let next = AtomicUsize::new(0);
    let table: Mutex<Vec<Option<[String; 4]>>> = Mutex::new(ROWS.iter().map(|_| None).collect());
    std::thread::scope(|scope| {
        // Rows wait for timeouts more than they compute.
        for _ in 0..9 {
            scope.spawn(|| {
                while let Some((at, row)) = {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    ROWS.get(at).map(|row| (at, row))
                } {
                    table.lock().unwrap()[at] = play(row, file.is_some());
                }
            });
        }
    });
    let Some(file) = file else {
        return;
    };
    let mut text = String::from(
        "# Faults of a path's MTU, and who finds them\n\n\
         Host A and host B with an MTU of 9000, two routers or one bridge between them, offloads off, in network\n\
         namespaces; written by `make mtu-faults`. OK: the smaller of both sizes is reported. FALSE: all is said to be\n\
         well, or a wrong size. ?: something is seen to be wrong, without a size. Sizes in bytes of the IP packet.\n\n\
         | fault | ping -M do -s 8972 | tracepath | scamper trace -M | linerate mtu, forward / reverse |\n\
         |---|---|---|---|---|\n",
    );
    for (row, said) in ROWS.iter().zip(table.into_inner().unwrap()) {
        let [ping, tracepath, scamper, ours] = said.unwrap();
        text += &format!(
            "| {} | {ping} | {tracepath} | {scamper} | {ours} |\n",
            row.name
        );
    }
    std::fs::write(file, text).unwrap();
}

/// A host with jumbo frames behind a gateway without, silent, that reaches itself by its external name:
/// both ends of the connection are the same host, so no MSS keeps it from sending too much.
#[test]
fn the_page_that_hangs_behind_a_hairpin() {
    let home = Home::new();
    let net = Net::new(true);
    net.shell(&format!(
        "{TOOLS}
        silent r
        ip -n ${{P}}r route replace 10.0.1.0/24 dev e0 src 10.0.1.2 mtu 1500
        at r nft add table ip nat
        at r nft 'add chain ip nat pre {{ type nat hook prerouting priority -100; }}'
        at r nft 'add rule ip nat pre ip daddr 203.0.113.1 dnat to 10.0.1.1'
        at r nft 'add chain ip nat post {{ type nat hook postrouting priority 100; }}'
        at r nft 'add rule ip nat post ip saddr 10.0.1.0/24 ip daddr 10.0.1.1 masquerade'"
    ));
    let _server = net.web("a", &home);
    let found = net.mtu_of_web(&home, "http://203.0.113.1/big");
    assert_eq!(sizes(&found), (1500, 1500), "{found:#}");
}

/// Handshake fine, small fine, large hangs: a measurement that meets a black hole says so by itself.
#[test]
fn a_measurement_names_the_black_hole() {
    let home = Home::new();
    let net = Net::new(true);
    net.shell(&format!("{TOOLS}\nnarrow; silent r s"));
    let options = ["measure", "lab:there", "--bidir", "-t", "4s", "-q"];
    let out = net.linerate(&home, FAR, &options);
    let said = stdout(&out.output(Duration::from_secs(60)));
    for way in ["up", "down"] {
        let named = format!("{way}: limited by a path-MTU black hole");
        assert!(said.contains(&named), "{said}");
    }
}

#[test]
fn what_cannot_be_looked_at_is_refused_in_a_sentence() {
    let home = Home::new();
    for (host, code, said) in [
        ("https://db2/", 2, "only http://"),
        ("iperf3:db2", 2, "answers no probes"),
        ("http://127.0.0.1:1/", 3, "127.0.0.1:1"),
        ("lab:none-of-that-name", 2, "no scenario"),
    ] {
        let out = run(&mut home.linerate(&["mtu", host]));
        assert_eq!(out.status.code(), Some(code), "{host}");
        assert!(
            common::stderr(&out).contains(said),
            "{}",
            common::stderr(&out)
        );
    }
    let here = common::json(&mut home.linerate(&["mtu", "local", "--json"]));
    assert_eq!(sizes(&here), (65_535, 65_535));
    // It is kept, and nothing of what was refused.
    assert_eq!(
        common::json(&mut home.linerate(&["runs", "export", "last"])),
        here
    );
    let list = common::json(&mut home.linerate(&["runs", "list", "--json"]));
    let [only] = &list.as_array().unwrap()[..] else {
        panic!("{list}");
    };
    assert_eq!(
        (&only["kind"], &only["host"]),
        (&"mtu".into(), &"local".into())
    );
    let sentence = only["sentence"].as_str().unwrap();
    assert!(sentence.starts_with("65535 bytes each way"), "{sentence}");
}

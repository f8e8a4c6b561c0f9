//! `linerate tune mtu` on real kernels: hosts on a switch, one of which fetches from the other all the
//! while, and everything that can happen to the switch and to the command.

use crate::common::{Home, Lines, Running, listening, one_line, run, stderr, stdout};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Something that takes seconds at the most has not happened by then.
const NEVER: Duration = Duration::from_secs(60);

/// A web server and its client: whatever is asked for is 30 kB each way, every 20 ms. The client counts
/// on its standard output, one line a fetch.
const SERVER: &str = r"
import http.server, socketserver
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.0'
    def do_POST(self):
        self.rfile.read(int(self.headers['Content-Length']))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'x' * 30000)
    def log_message(self, *args):
        pass
class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    request_queue_size = 100
    daemon_threads = True
server = Server(('0.0.0.0', 80), Handler)
print('listens', flush=True)
server.serve_forever()
";
/// Ends with its input, once all that was asked for has come or failed.
const CLIENT: &str = r"
import http.client, os, sys, threading
def say(what):
    os.write(1, (what + '\n').encode())
def fetch():
    try:
        c = http.client.HTTPConnection('10.0.3.2', timeout=5)
        c.request('POST', '/', b'y' * 30000)
        size = len(c.getresponse().read())
        say('fetched' if size == 30000 else 'FAILED: %d bytes' % size)
    except Exception as e:
        say('FAILED: %r' % e)
over = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
while not over.wait(0.02):
    threading.Thread(target=fetch).start()
";

/// Hosts `a`, `b` and `c` with an MTU of 1500 on a switch `x` that takes 9000, offloads off.
struct Segment {
    name: String,
    local: Home,
    remote: Home,
}

impl Segment {
    fn new() -> Segment {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let segment = Segment {
            name: format!("lt{}-{n}", std::process::id()),
            local: Home::new(),
            remote: Home::new(),
        };
        segment.shell(
            r#"
            ip netns add ${P}x
            at x sysctl -qw net.ipv6.conf.default.disable_ipv6=1
            ip -n ${P}x link add br0 mtu 9000 type bridge; ip -n ${P}x link set br0 up
            port=0
            for n in a b c; do
                port=$((port + 1))
                ip netns add $P$n; ip -n $P$n link set lo up
                at $n sysctl -qw net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0
                ip -n $P$n link add e0 mtu 1500 type veth peer name $n netns ${P}x
                at $n ethtool -K e0 tso off gso off gro off >/dev/null
                at x ethtool -K $n tso off gso off gro off >/dev/null
                ip -n ${P}x link set dev $n mtu 9000 master br0 up
                ip -n $P$n link set e0 up
                ip -n $P$n address add 10.0.3.$port/24 dev e0
                ip -n $P$n address add fd00:3::$port/64 nodad dev e0
                ip -n $P$n route add 10.9.0.0/16 via 10.0.3.9 initcwnd 20
            done"#,
        );
        segment
    }

    /// Runs a script in which `at NODE COMMAND` runs a command in a namespace.
    fn shell(&self, script: &str) -> String {
        let script = format!(
            "set -eu; P={}; at() {{ local n=$P$1; shift; ip netns exec $n \"$@\"; }}; {script}",
            self.name
        );
        let out = run(Command::new("bash").args(["-c", &script]));
        assert!(out.status.success(), "{script}\n{}", stderr(&out));
        stdout(&out)
    }

    fn inside(&self, node: &str) -> String {
        format!("{}{node}", self.name)
    }

    /// Links, addresses and routes of both hosts.
    fn snapshot(&self) -> String {
        self.shell(
            "for n in a b; do for what in 'link' 'address' 'route show table all' '-6 route show table all'; do
                ip -n $P$n -d $what; done; done; for n in a b; do at $n cat /proc/sys/net/ipv6/conf/e0/mtu; done",
        )
    }

    /// A switch that drops what is larger than 1500 and comes in from these hosts; it counts what it drops
    /// of TCP.
    fn drops(&self, from: &[&str]) {
        for port in from {
            self.shell(&format!(
                "at x nft add table netdev {port}
                 at x nft 'add chain netdev {port} c {{ type filter hook ingress device {port} priority 0; }}'
                 at x nft 'add rule netdev {port} c meta length > 1500 ip protocol tcp counter drop'
                 at x nft 'add rule netdev {port} c meta length > 1500 drop'"
            ));
        }
    }

    /// No packet of TCP was too large for the switch: a connection would have got over a few, in time.
    fn assert_no_tcp_dropped(&self, from: &[&str], when: &str) {
        for port in from {
            let rules = self.shell(&format!("at x nft list table netdev {port}"));
            assert!(
                rules.contains("counter packets 0 bytes 0"),
                "{when}: {rules}"
            );
        }
    }

    /// An agent in `b` that lets `a` tune it.
    fn agent(&self) -> Agent {
        let invite = ["trust", "invite", "--address", FAR, "--name", "a", "--tune"];
        let line = stdout(&run(&mut self.remote.linerate(&invite)));
        let serve = ["serve", "--bind", FAR, "--allow-tune"];
        let mut command = self.remote.linerate_in(&self.inside("b"), &serve);
        command.env("LINERATE_ROOT", self.remote.path());
        let (running, log) = listening(&mut command);
        let agent = Agent {
            log,
            _running: running,
        };
        let accept = ["trust", "accept", line.trim()];
        let out = run(&mut self.local.linerate_in(&self.inside("a"), &accept));
        assert!(out.status.success(), "{}", stderr(&out));
        agent
    }

    fn tune(&self, args: &[&str]) -> Command {
        let all = [&["tune", "mtu", FAR][..], args].concat();
        let mut command = self.local.linerate_in(&self.inside("a"), &all);
        command.env("LINERATE_ROOT", self.local.path());
        command
    }

    /// systemd-networkd says that it sets up the device of `a`, by its file 10-lan.network.
    fn networkd(&self) {
        let index = self.shell("at a cat /sys/class/net/e0/ifindex");
        let links = self.local.path().join("run/systemd/netif/links");
        std::fs::create_dir_all(&links).unwrap();
        let says = "NETWORK_FILE=/run/systemd/network/10-lan.network\n";
        std::fs::write(links.join(index.trim()), says).unwrap();
    }

    /// Neither host is changed, or is said to be.
    #[track_caller]
    fn assert_put_back(&self, before: &str, when: &str) {
        let until = Instant::now() + NEVER;
        loop {
            let status = |home: &Home, node| {
                stdout(&run(
                    &mut home.linerate_in(&self.inside(node), &["tune", "status"])
                ))
            };
            let (local, remote) = (status(&self.local, "a"), status(&self.remote, "b"));
            let now = self.snapshot();
            let clean = "nothing is changed on this host\n";
            if now == before && local == clean && remote == clean {
                return;
            }
            assert!(
                Instant::now() < until,
                "{when}: {local}{remote}before:\n{before}\nnow:\n{now}"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Whatever was kept goes.
    fn undo(&self) {
        for (home, node) in [(&self.local, "a"), (&self.remote, "b")] {
            let out = run(&mut home.linerate_in(&self.inside(node), &["tune", "undo"]));
            assert!(out.status.success(), "{}", stderr(&out));
        }
    }

    fn fetches(&self) -> Fetches {
        let python = |node, script| {
            let mut command = Command::new("ip");
            command.args([
                "netns",
                "exec",
                &self.inside(node),
                "python3",
                "-u",
                "-c",
                script,
            ]);
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = command.spawn().unwrap();
            let said = Lines::of(child.stdout.take().unwrap());
            (Running(child), said)
        };
        let (server, said) = python("b", SERVER);
        said.wait_for("listens");
        let (client, said) = python("a", CLIENT);
        said.wait_for("fetched");
        Fetches {
            client,
            said,
            so_far: Vec::new(),
            _server: server,
        }
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        for node in ["a", "b", "c", "x"] {
            let _ = Command::new("ip")
                .args(["netns", "delete", &self.inside(node)])
                .status();
        }
    }
}

const FAR: &str = "10.0.3.2";

struct Agent {
    log: Lines,
    _running: Running,
}

/// A client that fetches all the while.
struct Fetches {
    client: Running,
    said: Lines,
    so_far: Vec<String>,
    _server: Running,
}

impl Fetches {
    /// Some more were begun and came.
    fn go_on(&mut self) {
        self.so_far.extend(self.said.take(20));
    }

    /// None has failed of all that were begun, some of them after everything was over.
    fn assert_none_failed(mut self, when: &str) {
        self.go_on();
        drop(self.client.0.stdin.take());
        let mut all = self.so_far;
        all.extend(self.said.rest());
        let failed: Vec<&String> = all.iter().filter(|line| *line != "fetched").collect();
        assert!(
            failed.is_empty(),
            "{when}: of {} failed: {failed:#?}",
            all.len()
        );
    }
}

/// What happens to a change.
struct Scenario {
    name: &'static str,
    /// Hosts whose packets above 1500 bytes the switch drops.
    drops: &'static [&'static str],
    /// Where the command is killed.
    killed: Option<&'static str>,
    /// What is said of it.
    said: &'static [&'static str],
}

#[rustfmt::skip]
const SCENARIOS: [Scenario; 6] = [
    Scenario { name: "clean", drops: &[], killed: None, said: &["9000 bytes each way between this host and 10.0.3.2: committed."] },
    Scenario { name: "the switch drops both ways", drops: &["a", "b"], killed: None, said: &[
        "1500 bytes is the most that gets through on the forward path: a switch between the two hosts drops larger packets silently",
        "1500 bytes is the most that gets through on the reverse path" ] },
    Scenario { name: "it drops on the forward path", drops: &["a"], killed: None,
        said: &["Not changed: 1500 bytes is the most that gets through on the forward path: a switch between the two hosts"] },
    Scenario { name: "it drops on the reverse path", drops: &["b"], killed: None,
        said: &["Not changed: 1500 bytes is the most that gets through on the reverse path: a switch between the two hosts"] },
    Scenario { name: "killed when the devices are wider", drops: &[], killed: Some("devices widened"), said: &[] },
    Scenario { name: "killed when packets are unpinned", drops: &[], killed: Some("packets unpinned"), said: &[] },
];

fn play(scenario: &Scenario) {
    let Scenario { name, .. } = scenario;
    let segment = Segment::new();
    let agent = segment.agent();
    segment.drops(scenario.drops);
    let before = segment.snapshot();
    let mut fetches = segment.fetches();
    segment.networkd();
    let mut command = segment.tune(&["--to", "9000", "--persist"]);
    command.envs(
        scenario
            .killed
            .map(|step| ("LINERATE_DIE_AFTER_STEP", step)),
    );
    let out = run(&mut command);
    let said = plain(&out);
    agent.log.wait_for(", MTU probes: ");
    match (scenario.killed, scenario.drops) {
        (Some(_), _) => assert_eq!(out.status.signal(), Some(9), "{name}: {said}"),
        (_, []) => assert!(out.status.success(), "{name}: {said}"),
        _ => assert_eq!(out.status.code(), Some(1), "{name}: {said}"),
    }
    for what in scenario.said {
        assert!(said.contains(what), "{name}: '{what}' is not in {said}");
    }
    let file = segment
        .local
        .path()
        .join("etc/systemd/network/10-lan.network.d/linerate-mtu.conf");
    assert_eq!(file.exists(), out.status.success(), "{name}");
    if out.status.success() {
        fetches.go_on();
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.ends_with("\n[Link]\nMTUBytes=9000\n"), "{text}");
        assert!(said.contains("not written on 10.0.3.2: have it set each time the device is set up: ip link set dev e0 mtu 9000"), "{said}");
        let wide = segment.snapshot();
        assert_eq!(
            wide,
            before
                .replace("mtu 1500", "mtu 9000")
                .replace("\n1500", "\n9000")
        );
        // And back, the other way round.
        let out = run(&mut segment.tune(&["--to", "1500"]));
        assert!(out.status.success(), "{name}: {}", plain(&out));
        assert_eq!(segment.snapshot(), before, "{name}");
        segment.undo();
        assert!(!file.exists(), "{name}: what was written goes as well");
        let list = stdout(&run(&mut segment.local.linerate(&["runs", "list"])));
        assert_eq!(list.matches("committed.").count(), 2, "{list}");
    }
    segment.assert_put_back(&before, name);
    fetches.assert_none_failed(name);
    segment.assert_no_tcp_dropped(scenario.drops, name);
}

/// What was said, in one line.
fn plain(out: &Output) -> String {
    one_line(&(stderr(out) + &stdout(out)))
}

#[test]
fn whatever_happens_to_a_change_no_fetch_fails_and_all_comes_back() {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(scenario) = SCENARIOS.get(next.fetch_add(1, Ordering::Relaxed)) {
                    play(scenario);
                }
            });
        }
    });
}

#[test]
fn on_a_mixed_segment_only_packets_between_the_two_hosts_grow() {
    let segment = Segment::new();
    let _agent = segment.agent();
    // Somebody else is there.
    segment.shell("at c ping -q -c 1 10.0.3.1 >/dev/null");
    let before = segment.snapshot();
    let out = run(&mut segment.tune(&["--to", "9000"]));
    assert!(out.status.success(), "{}", plain(&out));
    assert!(plain(&out).contains("packets to all others stay unchanged"));
    for (node, peer) in [("a", "10.0.3.2"), ("b", "10.0.3.1")] {
        let route = |to: &str| segment.shell(&format!("at {node} ip route get {to}"));
        let (known, other, remote) = (route(peer), route("10.0.3.3"), route("10.9.1.1"));
        assert!(known.contains("mtu lock 9000 advmss 8960"), "{known}");
        assert!(other.contains("mtu lock 1500 advmss 1460"), "{other}");
        assert!(
            remote.contains("mtu lock 1500 initcwnd 20 advmss 1460")
                || remote.contains("mtu lock 1500"),
            "{remote}"
        );
    }
    // The route to the remote host has an MTU of its own by now, which does not follow the device.
    let out = run(&mut segment.tune(&["--to", "4000"]));
    assert!(out.status.success(), "{}", plain(&out));
    let route = segment.shell("at a ip route get 10.0.3.2");
    assert!(route.contains("mtu lock 4000 advmss 3960"), "{route}");
    segment.undo();
    segment.assert_put_back(&before, "undone");
}

#[test]
fn what_cannot_be_changed_is_one_sentence_and_changes_nothing() {
    let segment = Segment::new();
    let _agent = segment.agent();
    let before = segment.snapshot();
    for (host, to, code, said) in [
        ("local", "9000", 2, "name one"),
        ("iperf3:10.0.3.2", "9000", 2, "name one"),
        (FAR, "1200", 1, "would lose IPv6"),
        (FAR, "65520", 1, "drops larger packets silently"),
        (FAR, "1500", 0, "Nothing to do"),
    ] {
        let args = ["tune", "mtu", host, "--to", to, "-q"];
        let out = run(&mut segment.local.linerate_in(&segment.inside("a"), &args));
        assert_eq!(
            out.status.code(),
            Some(code),
            "{host} {to}: {}",
            plain(&out)
        );
        assert!(plain(&out).contains(said), "{host} {to}: {}", plain(&out));
        segment.assert_put_back(&before, to);
    }
    // The driver of a macvlan takes nothing wider than the device below it.
    segment.shell(
        "ip -n ${P}a link add link e0 name v0 type macvlan mode bridge; ip -n ${P}a link set v0 up
         ip -n ${P}a route add 10.0.3.2/32 dev v0 src 10.0.3.1",
    );
    let before = segment.snapshot();
    let out = run(&mut segment.tune(&["--to", "4000"]));
    assert_eq!(out.status.code(), Some(1), "{}", plain(&out));
    assert!(
        plain(&out).contains("cannot set device.mtu=4000"),
        "{}",
        plain(&out)
    );
    segment.assert_put_back(&before, "the driver refused");
}

//! A network namespace with a pair of devices, in which anything may be changed.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use sys::namespace;

/// The peer of the path, on the link.
pub const PEER: &str = "10.77.0.2";
/// Behind a router.
pub const FAR_PEER: &str = "10.78.0.9";
/// The same with IPv6.
pub const PEER6: &str = "fd77::2";
/// One that has a route of its own already.
pub const KNOWN_PEER: &str = "10.79.0.1";
pub const KNOWN_PEER6: &str = "fd79::1";

/// Removed with its namespace when dropped.
pub struct Bench {
    net: OwnedFd,
    pub state: PathBuf,
}

impl Bench {
    pub fn new() -> Bench {
        assert_eq!(
            sys::process::effective_user(),
            0,
            "these tests need root: they make a network namespace of their own"
        );
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("linerate-tune-{}-{count}", std::process::id());
        let bench = Bench {
            net: namespace::new_net().unwrap(),
            state: std::env::temp_dir().join(name),
        };
        // Addresses that are still being checked would change by themselves; the kernel adds their routes a little later.
        bench.sh(&format!(
            "sysctl -qw net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0
             ip link add name va type veth peer name vb
             ip link set lo up; ip link set va up; ip link set vb up
             ip addr add 10.77.0.1/24 dev va
             ip addr add fd77::1/64 dev va nodad
             ip route add default via {PEER} dev va initcwnd 20
             ip route add 10.79.0.0/24 via 10.77.0.3 metric 50
             ip route add {KNOWN_PEER} via 10.77.0.4 dev va src 10.77.0.1 metric 7 mtu lock 1300 window 60000
             ip -6 route add fd78::/64 via {PEER6} dev va advmss 1200
             ip -6 route add {KNOWN_PEER6} via {PEER6} dev va metric 33 initcwnd 5
             n=0; until [ $(ip -6 route show table local type local | grep -c -e 'dev v[ab]') = 3 ]; do
                 n=$((n + 1)); [ $n -lt 1000 ]
             done"
        ));
        bench
    }

    /// `command` in the namespace.
    pub fn inside(&self, command: &mut Command) {
        namespace::start_in_net(command, self.net.as_fd().try_clone_to_owned().unwrap());
    }

    pub fn sh(&self, script: &str) -> String {
        let mut command = Command::new("sh");
        command.args(["-ec", script]);
        self.inside(&mut command);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{script}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Everything that a knob can touch, as the tools of the system show it. IPv6 routes of two devices are in the order in
    /// which these came up, and one is listed twice where the list changes meanwhile.
    pub fn snapshot(&self) -> String {
        self.sh(
            "ip route show table all; ip -6 route show table all | sort -u; ip link; ip addr; tc qdisc | sed 's/direct_packets_stat [0-9]*//'; ethtool -k va; ethtool -k vb
             cd /proc/sys/net; grep -r . ipv4/tcp_* core ipv4/conf/va ipv6/conf/va 2>/dev/null |
             grep -v -e tcp_fastopen_key -e stable_secret",
        )
    }

    /// The example, so that there is something to kill.
    pub fn holder(&self, words: &[&str]) -> Command {
        let mut path = std::env::current_exe().unwrap();
        path.pop();
        path.pop();
        path.push("examples/holder");
        let mut command = Command::new(path);
        command.arg(words[0]).arg(&self.state).args(&words[1..]);
        command.stdin(Stdio::null());
        self.inside(&mut command);
        command
    }

    /// Runs it to its end, and to the end of its guard, which has the same standard error.
    pub fn run(&self, words: &[&str], environment: &[(&str, String)]) -> Output {
        let mut command = self.holder(words);
        command.envs(environment.iter().map(|(k, v)| (*k, v)));
        command.output().unwrap()
    }

    /// Whether no journal is left, not even one of what was kept.
    pub fn is_clean(&self) -> bool {
        let places = std::fs::read_dir(&self.state).into_iter().flatten();
        let files = places.flat_map(|place| std::fs::read_dir(place.unwrap().path()).unwrap());
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        names
            .filter(|name| name == "journal" || name.starts_with("kept-"))
            .count()
            == 0
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.state);
    }
}

/// A difference of two snapshots, short enough to be read.
#[track_caller]
pub fn assert_same(before: &str, after: &str, when: &str) {
    if before == after {
        return;
    }
    let only_in = |one: &str, other: &str| -> Vec<String> {
        let lines = one.lines().filter(|line| other.lines().all(|l| l != *line));
        lines.take(10).map(str::to_owned).collect()
    };
    let (lost, new) = (only_in(before, after), only_in(after, before));
    let moved = before.lines().zip(after.lines()).find(|(a, b)| a != b);
    panic!("{when}: not as before.\nlost: {lost:#?}\nnew: {new:#?}\nfirst: {moved:#?}");
}

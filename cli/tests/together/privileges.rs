//! What the processes of a server may do, which runs as root: the one that talks to the network nothing, while others change
//! settings and trace for it. Real processes in two network namespaces.

use crate::common::{Home, Lines, Pair, Running, json, listening, run, stderr, stdout};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const NONE: u64 = 0;
/// Bits of `include/uapi/linux/capability.h`.
const NET_ADMIN: u64 = 1 << 12;
const SYS_RESOURCE: u64 = 1 << 24;
const PERFMON: u64 = 1 << 38;
const BPF: u64 = 1 << 39;

/// A host with a server, and one that it trusts to tune.
struct Bench {
    pair: Pair,
    server: Home,
    client: Home,
}

impl Bench {
    fn new(name: &str) -> Bench {
        let bench = Bench {
            pair: Pair::new(name),
            server: Home::new(),
            client: Home::new(),
        };
        let invite = [
            "trust",
            "invite",
            "--address",
            Pair::FAR,
            "--name",
            "guest",
            "--tune",
        ];
        let line = stdout(&run(&mut bench.server.linerate(&invite)))
            .trim()
            .to_owned();
        let server = bench.serve(&[]);
        let accept = ["trust", "accept", &line];
        let out = run(&mut bench.client.linerate_in(&bench.pair.local, &accept));
        assert!(out.status.success(), "{}", stderr(&out));
        drop(server);
        bench
    }

    fn command(&self, options: &[&str]) -> Command {
        let serve = ["serve", "--bind", Pair::FAR];
        let mut command = self.server.linerate_in(&self.pair.remote, &serve);
        command.args(options);
        command
    }

    fn serve(&self, options: &[&str]) -> (Running, Lines) {
        ready(&mut self.command(options))
    }

    fn hold(&self, settings: &[&str]) -> Command {
        let args = ["tune", "hold", Pair::FAR, "--title", "a trial"];
        let mut command = self.client.linerate_in(&self.pair.local, &args);
        command.args(settings);
        command
    }

    /// The same under way: the settings are in force.
    fn held(&self, settings: &[&str]) -> (Running, Lines) {
        let mut hold = self.hold(settings);
        let hold = hold.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut held = hold.spawn().unwrap();
        let said = Lines::of(held.stderr.take().unwrap());
        let held = Running(held);
        said.wait_for("set until Ctrl-C");
        (held, said)
    }

    fn measure(&self, options: &[&str]) -> Command {
        let args = ["measure", Pair::FAR, "--json", "-q"];
        let mut command = self.client.linerate_in(&self.pair.local, &args);
        command.args(options);
        command
    }
}

/// Once it has given up its rights.
fn ready(command: &mut Command) -> (Running, Lines) {
    let (server, log) = listening(command);
    log.wait_for("this host's id is");
    (server, log)
}

/// Those of these that this process has: a container may be without some.
fn had(capabilities: u64) -> u64 {
    capabilities & field(&fs::read_to_string("/proc/self/status").unwrap(), "CapEff")
}

fn field(status: &str, name: &str) -> u64 {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .unwrap();
    u64::from_str_radix(line.trim_start_matches(':').trim(), 16).unwrap()
}

/// Whether these are all its rights, of a process or a thread in `/proc`.
fn has_only(directory: &str, capabilities: u64) {
    let status = fs::read_to_string(format!("{directory}/status")).unwrap();
    for set in ["CapEff", "CapPrm"] {
        assert_eq!(field(&status, set), capabilities, "{status}");
    }
    assert_eq!(
        (field(&status, "NoNewPrivs"), field(&status, "Seccomp")),
        (1, 2),
        "{status}"
    );
}

/// All threads of the process that talks to the network.
fn has_nothing(server: &Child) {
    let directory = format!("/proc/{}/task", server.id());
    let threads = fs::read_dir(&directory).unwrap();
    // One may end meanwhile.
    for thread in threads
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.exists())
    {
        has_only(thread.to_str().unwrap(), NONE);
    }
}

#[test]
fn measured_traced_and_tuned_by_a_server_whose_network_process_has_no_rights() {
    let bench = Bench::new("p");
    let (server, log) = bench.serve(&["--allow-tune"]);
    has_nothing(&server.0);
    let id = server.0.id();
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
    let helpers: Vec<&str> = children.split_whitespace().collect();
    let [tuner, tracer] = helpers[..] else {
        panic!("its children are {children}")
    };
    has_only(&format!("/proc/{tuner}"), had(NET_ADMIN | SYS_RESOURCE));
    has_only(&format!("/proc/{tracer}"), had(NET_ADMIN | BPF | PERFMON));

    let (held, said) = bench.held(&["route.initcwnd=32", "device.txqueuelen=321"]);
    let device = || {
        let show = [
            "-n",
            &bench.pair.remote,
            "-o",
            "link",
            "show",
            "dev",
            "eth0",
        ];
        stdout(&Command::new("ip").args(show).output().unwrap())
    };
    assert!(device().contains("qlen 321"));
    // Its guard has no more rights than the tuner.
    let guard = fs::read_to_string(format!("/proc/{tuner}/task/{tuner}/children")).unwrap();
    has_only(
        &format!("/proc/{}", guard.trim()),
        had(NET_ADMIN | SYS_RESOURCE),
    );

    let mut measure = bench.measure(&["--trace", "-t", "2"]);
    let measuring = measure
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let measuring = Running(measuring);
    log.wait_for("leg 0: receives");
    has_nothing(&server.0);
    let out = measuring.output(Duration::from_secs(60));
    assert!(out.status.success(), "{}", stderr(&out));
    let measured: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    for leg in measured["legs"].as_array().unwrap() {
        assert_eq!(leg["ended"]["how"], "complete", "{leg:#}");
        let trace = &leg["remote"]["trace"];
        assert_eq!(trace["source"], "probes", "{:#}", leg["remote"]["warnings"]);
        assert!(trace["events"].as_u64().unwrap() > 0, "{trace:#}");
    }
    has_nothing(&server.0);

    held.interrupt();
    said.wait_for("restored");
    assert!(!device().contains("qlen 321"));
    drop(server);
    // They go with who asks them.
    let until = Instant::now() + Duration::from_secs(30);
    for helper in [tuner, tracer] {
        let stat = || fs::read_to_string(format!("/proc/{helper}/stat"));
        while stat().is_ok_and(|stat| !stat.contains(") Z")) {
            assert!(Instant::now() < until, "{helper} lives");
            std::thread::yield_now();
        }
    }
}

#[test]
fn what_roots_rules_do_not_name_is_refused_by_name() {
    let bench = Bench::new("r");
    let file = bench.server.path().join("tune.toml");
    let rules = file.to_str().unwrap();
    let options = ["--allow-tune", "--tune-rules", rules];
    let starts = || run(&mut bench.command(&options));
    let out = starts();
    assert_eq!(out.status.code(), Some(2), "{}", stderr(&out));
    assert!(
        stderr(&out).contains("cannot read the rules"),
        "{}",
        stderr(&out)
    );

    let text = "[[allow]]\nknobs = [\"sysctl:net.ipv4.tcp_notsent_lowat\", \"device.txqueuelen\"]\ninterfaces = [\"eth0\"]\n";
    fs::write(&file, text).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    let out = starts();
    assert_eq!(out.status.code(), Some(2), "{}", stderr(&out));
    assert!(
        stderr(&out).contains("can be written by others than root"),
        "{}",
        stderr(&out)
    );

    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let (_server, log) = bench.serve(&options);
    let refused = |setting: &str, why: &str| {
        let out = run(&mut bench.hold(&[setting]));
        let said = stderr(&out);
        assert_eq!(out.status.code(), Some(3), "{said}");
        assert!(said.contains(why) && said.lines().count() == 1, "{said}");
        log.wait_for(why);
    };
    refused(
        "route.initcwnd=32",
        "its rules do not let this host's key change route.initcwnd: ",
    );
    fs::write(&file, text.replace("eth0", "eth9")).unwrap();
    refused(
        "device.txqueuelen=321",
        "its rules do not let this host's key change device.txqueuelen on the interface eth0: ",
    );
    chown(&file, Some(65534), None).unwrap();
    refused(
        "sysctl:net.ipv4.tcp_notsent_lowat=131072",
        "can be written by others than root",
    );

    chown(&file, Some(0), None).unwrap();
    fs::write(&file, text).unwrap();
    let (held, said) = bench.held(&[
        "sysctl:net.ipv4.tcp_notsent_lowat=131072",
        "device.txqueuelen=321",
    ]);
    held.interrupt();
    said.wait_for("restored");
}

#[test]
fn without_capabilities_it_measures_and_names_what_is_missing() {
    let bench = Bench::new("c");
    let program = env!("CARGO_BIN_EXE_linerate");
    let mut command = Command::new("ip");
    command.args([
        "netns",
        "exec",
        &bench.pair.remote,
        "setpriv",
        "--bounding-set=-all",
        "--inh-caps=-all",
    ]);
    command.args([program, "serve", "--bind", Pair::FAR, "--allow-tune"]);
    bench.server.furnish(&mut command);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let log = Lines::of(child.stderr.take().unwrap());
    let server = Running(child);
    log.wait_for("the capability CAP_NET_ADMIN is missing: settings cannot be changed");
    log.wait_for("this host's id is");
    has_nothing(&server.0);

    let measured = json(&mut bench.measure(&["--trace", "-t", "1", "--up"]));
    let remote = &measured["legs"][0]["remote"];
    assert!(remote["bytes"].as_u64().unwrap() > 0);
    let warnings = remote["warnings"].to_string();
    assert!(warnings.contains("CAP_BPF"), "{warnings}");
    let out = run(&mut bench.hold(&["route.initcwnd=32"]));
    assert_eq!(out.status.code(), Some(3), "{}", stderr(&out));
    assert!(stderr(&out).contains("CAP_NET_ADMIN"), "{}", stderr(&out));
}

#[test]
fn a_user_with_ambient_capabilities_tunes_and_traces_too() {
    const USER: u32 = 65534;
    let bench = Bench::new("a");
    let own = [
        "chown",
        "-R",
        &USER.to_string(),
        bench.server.path().to_str().unwrap(),
    ];
    assert!(run(Command::new(own[0]).args(&own[1..])).status.success());
    let mut command = Command::new("ip");
    // A namespace that ip(8) enters hides the control groups.
    let mounted = "mount -t cgroup2 none /sys/fs/cgroup && exec setpriv \"$@\"";
    command.args([
        "netns",
        "exec",
        &bench.pair.remote,
        "sh",
        "-c",
        mounted,
        "sh",
        "--clear-groups",
    ]);
    command.arg(format!("--reuid={USER}"));
    let capabilities = "+net_admin,+bpf,+perfmon";
    for set in ["bounding-set=-all,", "inh-caps=-all,", "ambient-caps=-all,"] {
        command.arg(format!("--{set}{capabilities}"));
    }
    command.args([
        env!("CARGO_BIN_EXE_linerate"),
        "serve",
        "--bind",
        Pair::FAR,
        "--allow-tune",
    ]);
    bench.server.furnish(&mut command);
    let (server, _log) = ready(&mut command);
    has_nothing(&server.0);

    let (held, said) = bench.held(&[
        "route.initcwnd=32",
        "sysctl:net.ipv4.tcp_notsent_lowat=131072",
        "device.txqueuelen=321",
    ]);
    let measured = json(&mut bench.measure(&["--trace", "-t", "1", "--up"]));
    let remote = &measured["legs"][0]["remote"];
    assert_eq!(
        remote["trace"]["source"], "probes",
        "{:#}",
        remote["warnings"]
    );
    held.interrupt();
    said.wait_for("restored");
}

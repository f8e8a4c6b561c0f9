//! Settings of another host: who may change them, and that they come back whatever happens. Real processes
//! in two network namespaces.

use crate::common::{Home, Lines, Pair, Running, listening, run, stderr, stdout};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// One knob of every kind that a namespace has; the route is that to the local host.
const SETTINGS: [&str; 3] = [
    "route.initcwnd=32",
    "sysctl:net.ipv4.tcp_notsent_lowat=131072",
    "device.txqueuelen=321",
];

/// Something that takes seconds at the most has not happened by then.
const NEVER: Duration = Duration::from_secs(40);

/// A server in one namespace and whoever it trusts in the other.
struct Bench {
    pair: Pair,
    server: Home,
    guest: Home,
}

struct Server {
    running: Running,
    log: Lines,
}

/// `linerate tune hold` under way.
struct Holding {
    running: Running,
    said: Lines,
}

impl Bench {
    /// `rights` as options of `linerate trust invite`.
    fn new(name: &str, rights: &[&str]) -> Bench {
        let bench = Bench {
            pair: Pair::new(name),
            server: Home::new(),
            guest: Home::new(),
        };
        let mut invite =
            bench
                .server
                .linerate(&["trust", "invite", "--address", Pair::FAR, "--name", "guest"]);
        let line = stdout(&run(invite.args(rights))).trim().to_owned();
        let server = bench.serve(&[], &[]);
        let accept = ["trust", "accept", &line];
        let out = run(&mut bench.guest.linerate_in(&bench.pair.local, &accept));
        assert!(out.status.success(), "{}", stderr(&out));
        drop(server);
        bench
    }

    fn serve(&self, options: &[&str], environment: &[(&str, &str)]) -> Server {
        let serve = ["serve", "--bind", Pair::FAR];
        let mut command = self.server.linerate_in(&self.pair.remote, &serve);
        command.args(options).envs(environment.iter().copied());
        let (running, log) = listening(&mut command);
        Server { running, log }
    }

    fn hold(&self) -> Command {
        let args = ["tune", "hold", Pair::FAR, "--title", "a trial"];
        let mut command = self.guest.linerate_in(&self.pair.local, &args);
        command.args(SETTINGS);
        command
    }

    fn holding(&self) -> Holding {
        Holding::of(&mut self.hold())
    }

    /// What the settings of the remote host are now.
    fn state(&self) -> String {
        let remote = &self.pair.remote;
        let show = "ip -4 route show table all; ip -o link show dev eth0; cat /proc/sys/net/ipv4/tcp_notsent_lowat";
        let out = Command::new("ip")
            .args(["netns", "exec", remote, "sh", "-c", show])
            .output()
            .unwrap();
        assert!(out.status.success(), "{}", stderr(&out));
        stdout(&out)
    }

    /// Waits until the settings of the remote host are restored.
    fn comes_back(&self, before: &str, after_what: &str) {
        let until = Instant::now() + NEVER;
        while self.state() != before {
            assert!(
                Instant::now() < until,
                "after {after_what} it stays:\n{}\nbefore:\n{before}",
                self.state()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        // A journal that was begun before there was anybody to guard it is cleared away by hand or by the
        // next start.
        let tune = |what| run(&mut self.server.linerate_in(&self.pair.remote, &["tune", what]));
        let undo = tune("undo");
        assert!(
            undo.status.success(),
            "after {after_what}: {}",
            stderr(&undo)
        );
        assert_eq!(stdout(&tune("status")), "nothing is changed on this host\n");
        assert_eq!(self.state(), before);
    }
}

impl Holding {
    fn of(command: &mut Command) -> Holding {
        let piped = command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        let said = Lines::of(child.stderr.take().unwrap());
        let running = Running(child);
        Holding { running, said }
    }

    fn set(self) -> Holding {
        self.said.wait_for("set until Ctrl-C");
        self
    }

    fn ends(mut self) -> ExitStatus {
        let until = Instant::now() + NEVER;
        loop {
            if let Some(status) = self.running.0.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < until, "it still holds");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn the_right_to_tune_takes_both_the_server_and_its_word_for_the_host() {
    let bench = Bench::new("r", &[]);
    let before = bench.state();
    let refused = |what: &str| {
        let was = bench.state();
        let out = run(&mut bench.hold());
        let said = stderr(&out);
        assert_eq!(out.status.code(), Some(3), "{said}");
        assert!(said.contains(what) && said.lines().count() == 1, "{said}");
        assert_eq!(bench.state(), was);
        said
    };
    let server = bench.serve(&[], &[]);
    refused("remote tuning is off there: run 'linerate serve --allow-tune' there");
    drop(server);

    let server = bench.serve(&["--allow-tune"], &[]);
    let said = refused("linerate trust add");
    // It names the command that helps.
    let (_, rest) = said.split_once("run 'linerate ").unwrap();
    let args: Vec<&str> = rest.split_once('\'').unwrap().0.split(' ').collect();
    let added = run(&mut bench.server.linerate(&args));
    assert!(stdout(&added).contains("guest  may measure and tune"));

    let held = bench.holding().set();
    let state = bench.state();
    for what in ["initcwnd 32", "qlen 321", "\n131072"] {
        assert!(state.contains(what), "{what} is not in\n{state}");
    }
    server
        .log
        .wait_for("guest: session 2: tunes: a trial (for guest)");
    server.log.wait_for("applies route.initcwnd=32");
    // A second client gets the name of the holder.
    refused("a trial (for guest)");
    held.running.interrupt();
    held.said.wait_for("restored");
    assert!(held.ends().success());
    server.log.wait_for("undone: device.txqueuelen=321");
    bench.comes_back(&before, "the end");

    // A right that is withdrawn ends what it allowed.
    let held = bench.holding().set();
    let id = args[2];
    let added = run(&mut bench.server.linerate(&["trust", "add", id]));
    assert!(added.status.success(), "{}", stderr(&added));
    bench.comes_back(&before, "the right was withdrawn");
    held.running.interrupt();
    assert_eq!(held.ends().code(), Some(3));
}

#[test]
fn whatever_ends_the_session_the_far_host_is_restored() {
    let bench = Bench::new("e", &["--tune"]);
    let before = bench.state();
    let server = bench.serve(&["--allow-tune"], &[]);

    let held = bench.holding().set();
    assert_ne!(bench.state(), before);
    drop(held);
    bench.comes_back(&before, "its controller was killed");

    // The forward path drops everything silently.
    let held = bench.holding().set();
    let cut = |what| {
        let route = ["route", what, "blackhole", "10.99.0.2/32"];
        let cut = Command::new("ip")
            .args(["-n", &bench.pair.local])
            .args(route)
            .status();
        assert!(cut.unwrap().success());
    };
    cut("add");
    bench.comes_back(&before, "the path was cut");
    held.said.wait_for(Pair::FAR);
    assert_eq!(held.ends().code(), Some(3));
    cut("delete");

    let held = bench.holding().set();
    server.running.interrupt();
    bench.comes_back(&before, "the server was stopped");
    assert_eq!(held.ends().code(), Some(3));

    let server = bench.serve(&["--allow-tune"], &[]);
    let held = bench.holding().set();
    drop(server);
    bench.comes_back(&before, "the server was killed");
    assert_eq!(held.ends().code(), Some(3));
}

#[test]
fn an_agent_that_is_killed_at_any_step_leaves_its_host_as_it_was() {
    let bench = Bench::new("k", &["--tune"]);
    let before = bench.state();
    let mut deaths = 0;
    for step in 1.. {
        let number = step.to_string();
        let die = [("LINERATE_DIE_AFTER_STEP", number.as_str())];
        let mut server = bench.serve(&["--allow-tune"], &die);
        let held = bench.holding();
        // Either it is set, and its undoing is what dies; or the setting was, and this ends.
        if held.said.comes("set until Ctrl-C") {
            held.running.interrupt();
        }
        let ended = held.ends();
        if ended.success() {
            assert!(server.running.0.try_wait().unwrap().is_none());
            break;
        }
        let until = Instant::now() + NEVER;
        while server.running.0.try_wait().unwrap().is_none() {
            assert!(Instant::now() < until, "step {step}: the server lives");
            std::thread::sleep(Duration::from_millis(10));
        }
        deaths += 1;
        bench.comes_back(&before, &format!("its agent was killed after step {step}"));
    }
    // A journal and its guard, three settings, and all of it back: each is several steps.
    assert!(deaths >= 20, "it died {deaths} times");
}

#[test]
fn an_agent_that_the_user_started_needs_no_right_and_changes_the_route_back_to_the_user() {
    let bench = Bench::new("s", &[]);
    let before = bench.state();
    // A stand-in for ssh that runs the command in the other namespace.
    let bin = bench.guest.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    let script = format!(
        "#!/bin/sh\nfor last; do :; done\ncase \"$*\" in *-G*) echo 'hostname {}'; exit;; esac\nexec ip netns exec {} sh -c \"$last\"\n",
        Pair::FAR,
        bench.pair.remote
    );
    std::fs::write(bin.join("ssh"), script).unwrap();
    let all = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(bin.join("ssh"), all).unwrap();
    let there = Path::new(env!("CARGO_BIN_EXE_linerate")).parent().unwrap();
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{}:{path}", bin.display(), there.display());

    let args = ["tune", "hold", "ssh:far"];
    let mut command = bench.guest.linerate_in(&bench.pair.local, &args);
    let held = Holding::of(command.args(SETTINGS).env("PATH", path)).set();
    let state = bench.state();
    assert!(state.contains("\n10.99.0.1 dev eth0"), "{state}");
    held.running.interrupt();
    held.said.wait_for("restored");
    assert!(held.ends().success());
    assert_eq!(bench.state(), before);

    let held = Holding::of(&mut command).set();
    assert_ne!(bench.state(), before);
    drop(held);
    bench.comes_back(&before, "its controller over ssh was killed");
}

#[test]
fn on_one_machine_only_this_end_holds_the_settings() {
    let bench = Bench::new("l", &[]);
    let before = bench.state();
    let args = ["tune", "hold", "local", SETTINGS[1], "--title", "alone"];
    let mut command = bench.server.linerate_in(&bench.pair.remote, &args);
    let held = Holding::of(&mut command).set();
    assert_ne!(bench.state(), before);
    let tune = |args: &[&str]| run(&mut bench.server.linerate_in(&bench.pair.remote, args));
    let status = stdout(&tune(&["tune", "status"]));
    assert!(
        status.starts_with("alone: process ")
            && status.contains("notsent_lowat=131072 (was 4294967295)"),
        "{status}"
    );
    // Neither a second one nor putting back under the hands of the first.
    for args in [&args[..], &["tune", "undo"]] {
        let out = tune(args);
        assert_eq!(out.status.code(), Some(1));
        assert!(stderr(&out).contains("'alone'"), "{}", stderr(&out));
    }
    held.running.interrupt();
    held.said.wait_for("restored");
    assert!(held.ends().success());
    assert_eq!(bench.state(), before);

    let held = Holding::of(&mut command).set();
    drop(held);
    bench.comes_back(&before, "it was killed");
}

#[test]
fn what_cannot_be_set_is_one_sentence() {
    let bench = Bench::new("w", &[]);
    for (args, code, said) in [
        (&["hold", "local", "route.initcwnd=0"][..], 2, "initcwnd"),
        (&["hold", "local", "exec=reboot"], 2, "linerate tune knobs"),
        (
            &["hold", "local", "congestion=bbr"],
            2,
            "linerate's own connections",
        ),
        (
            &["hold", "local", "device.mtu=1400", "--deadline", "1ms"],
            2,
            "deadline",
        ),
        // What the driver of a veth does not do.
        (&["hold", "local", "device.rxring=512"], 1, "ring"),
    ] {
        let mut command = bench.server.linerate_in(&bench.pair.remote, &["tune"]);
        let out = run(command.args(args));
        let words = stderr(&out);
        assert_eq!(out.status.code(), Some(code), "{args:?}: {words}");
        assert!(
            words.contains(said) && words.lines().count() == 1,
            "{args:?}: {words}"
        );
    }
}

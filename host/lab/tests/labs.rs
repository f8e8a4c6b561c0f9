//! Labs made, used and removed for real. Needs root; without it the tests fail, unless
//! `LINERATE_TEST_UNPRIVILEGED=1` says that only a user namespace is to be had.

#![allow(clippy::unwrap_used)]

use emulate::Scenario;
use linerate_lab::{Backend, Error, LabOptions, LabState, Labs, LinkBackend, RunningLab};
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A directory of labs of its own, and the labs in it removed at the end.
struct Bench {
    labs: Labs,
    home: PathBuf,
}

impl Bench {
    fn new() -> Bench {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let home = std::env::temp_dir().join(format!("linerate-{}-{count}", std::process::id()));
        Bench {
            labs: Labs::in_directory(&home),
            home,
        }
    }

    fn up(&self, text: &str) -> RunningLab {
        self.raise(text, &options())
    }

    fn raise(&self, text: &str, options: &LabOptions) -> RunningLab {
        let (lab, tie) = self.labs.up(&scenario(text), options).unwrap();
        tie.cut().unwrap();
        lab
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let gone = self.labs.down_all();
        if std::thread::panicking() {
            return;
        }
        gone.unwrap();
        let left: Vec<_> = std::fs::read_dir(&self.home)
            .into_iter()
            .flatten()
            .collect();
        assert!(left.is_empty(), "{left:?}");
        let _ = std::fs::remove_dir(&self.home);
    }
}

fn options() -> LabOptions {
    let unprivileged = std::env::var_os("LINERATE_TEST_UNPRIVILEGED").is_some();
    assert!(
        unprivileged || sys::process::effective_user() == 0,
        "these tests need root, or LINERATE_TEST_UNPRIVILEGED=1 for a user namespace"
    );
    let mut holder = std::env::current_exe().unwrap();
    holder.pop();
    holder.pop();
    holder.push("examples/netns_holder");
    LabOptions {
        backend: Backend::Emulator,
        in_user_namespace: unprivileged,
        holder: Some(vec![holder.into()]),
        ..LabOptions::default()
    }
}

fn scenario(text: &str) -> Scenario {
    Scenario::parse(text, "test.toml").unwrap_or_else(|e| panic!("{e}"))
}

/// Two hosts and what lies between them.
fn pair(link: &str) -> String {
    format!(
        "name = \"pair\"\nwhy = \"a test\"\n[[host]]\nname = \"one\"\ncongestion = \"cubic\"\n\
         [[host]]\nname = \"two\"\ncongestion = \"cubic\"\n\
         [[link]]\nname = \"wire\"\nbetween = [\"one\", \"two\"]\n{link}"
    )
}

fn run(lab: &RunningLab, host: &str, words: &str) -> Output {
    let mut words = words.split(' ');
    let output = lab
        .command(host, words.next().unwrap())
        .unwrap()
        .args(words)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    output
}

fn said(lab: &RunningLab, host: &str, words: &str) -> String {
    String::from_utf8(run(lab, host, words).stdout).unwrap()
}

/// Least, mean and greatest of ping's round trips, in ms.
fn round_trips(lab: &RunningLab, words: &str) -> [f64; 3] {
    let text = said(lab, "one", words);
    let line = text.lines().find(|l| l.starts_with("rtt")).unwrap();
    let mut values = line.split(" = ").nth(1).unwrap().split('/');
    std::array::from_fn(|_| values.next().unwrap().parse().unwrap())
}

/// iperf3 from one to two for some seconds: goodput in Mbit/s, retransmissions, and all that it says.
fn iperf3(lab: &RunningLab, more: &str) -> (f64, u64, Value) {
    let mut server = lab
        .command("two", "iperf3")
        .unwrap()
        .args(["-s", "-1", "--forceflush"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let listening = std::io::BufReader::new(server.stdout.take().unwrap());
    let mut lines = std::io::BufRead::lines(listening);
    while !lines.next().unwrap().unwrap().contains("listening") {}
    let text = said(lab, "one", &format!("iperf3 -J -c two {more}"));
    lines.for_each(drop);
    server.wait().unwrap();
    let value: Value = serde_json::from_str(&text).unwrap();
    let goodput = value["end"]["sum_received"]["bits_per_second"].as_f64();
    let again = value["end"]["sum_sent"]["retransmits"].as_u64();
    (goodput.unwrap() / 1e6, again.unwrap_or(0), value)
}

fn wait_until(what: &str, mut is: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn is_running(pid: u32) -> bool {
    // A zombie is not: it waits for its parent, which is this test.
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(") ").next().unwrap().starts_with('Z'))
}

#[test]
fn a_ping_takes_the_delay() {
    let bench = Bench::new();
    let lab = bench.up(&pair("[link.both]\ndelay = \"5ms\"\n"));
    let [least, mean, _] = round_trips(&lab, "ping -q -c 50 -i 0.02 two");
    assert!((10.0..10.5).contains(&least), "{least}");
    assert!((10.0..12.0).contains(&mean), "{mean}");
}

#[test]
fn goodput_is_what_the_wire_carries() {
    // Payload of a segment with timestamps, by its bytes on the wire.
    for (rate, mtu, share) in [
        (100, 1500, 1448.0 / 1538.0),
        (100, 9000, 8948.0 / 9038.0),
        (1000, 1500, 1448.0 / 1538.0),
        (1000, 9000, 8948.0 / 9038.0),
    ] {
        let bench = Bench::new();
        let lab = bench.up(&pair(&format!(
            "mtu = {mtu}\n[link.both]\nrate = \"{rate}M\"\ndelay = \"1ms\"\nqueue = {{ packets = 1000 }}\n"
        )));
        let (goodput, again, _) = iperf3(&lab, "-t 3 -O 1");
        let ideal = f64::from(rate) * share;
        let counters = lab.counters().unwrap();
        let late = &counters.links[0].emulator;
        println!(
            "{rate} Mbit/s, MTU {mtu}: {goodput:.1} of {ideal:.1} Mbit/s ({:.3}), {again} again; lateness {:?} {:?} {:?}, cpu {} of {}",
            goodput / ideal,
            late.lateness.percentile(0.5).unwrap(),
            late.lateness.percentile(0.99).unwrap(),
            late.lateness.max().unwrap(),
            late.cpu,
            counters.at,
        );
        // Never faster than the wire. How close it comes depends on the machine: the bench measures it.
        assert!(goodput <= ideal * 1.01, "{rate} {mtu}: {goodput}");
        assert!(goodput >= ideal * 0.5, "{rate} {mtu}: {goodput}");
    }
}

#[test]
fn every_dropped_segment_is_counted() {
    let bench = Bench::new();
    let lab = bench.up(&pair(
        "[link.both]\ndelay = \"1ms\"\n[link.forward]\nrate = \"200M\"\nloss = { periodic = 500 }\n\
         queue = { packets = 10000 }\n",
    ));
    let (_, again, value) = iperf3(&lab, "-n 20M");
    let counters = lab.counters().unwrap();
    let link = counters.link("wire").unwrap();
    let lost = link.forward.dropped.loss.frames;
    assert_eq!(
        lost,
        link.forward.offered.frames / 500,
        "{:?}",
        link.forward
    );
    assert_eq!(link.forward.dropped.total().frames, lost);
    assert_eq!(link.backward.dropped.total().frames, 0);
    assert_eq!(link.emulator.missed + link.emulator.refused, 0);
    // TCP sends again what was lost; a spurious retransmission or a lost control packet may differ by few.
    assert!(
        again.abs_diff(lost) <= 3,
        "{again} for {lost}: {}",
        value["end"]["sum_sent"]
    );
    let log = lab.log().unwrap();
    let logged = log
        .iter()
        .filter(|e| matches!(e.event.kind, emulate::EventKind::Dropped { .. }))
        .count();
    assert_eq!(logged as u64, lost);
}

#[test]
fn a_router_joins_and_a_longer_packet_needs_its_message() {
    let text = |icmp: &str| {
        format!(
            "name = \"path\"\nwhy = \"a test\"\n[[host]]\nname = \"one\"\n[[host]]\nname = \"two\"\n\
             [[router]]\nname = \"hop\"\n{icmp}\
             [[link]]\nname = \"near\"\nbetween = [\"one\", \"hop\"]\nmtu = 9000\n\
             [[link]]\nname = \"far\"\nbetween = [\"hop\", \"two\"]\nmtu = 1500\n[link.both]\ndelay = \"1ms\"\n"
        )
    };
    let bench = Bench::new();
    let lab = bench.up(&text(""));
    let backends: Vec<_> = lab.record().links.iter().map(|l| l.backend).collect();
    assert_eq!(backends, [LinkBackend::Cable, LinkBackend::Emulator]);
    run(&lab, "one", "ping -q -c 1 two");
    let probe = |lab: &RunningLab| {
        let mut ping = lab.command("one", "ping").unwrap();
        let output = ping
            .args(["-4", "-c", "1", "-W", "1", "-M", "do", "-s", "8000", "two"])
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(
        probe(&lab).to_lowercase().contains("frag"),
        "{}",
        probe(&lab)
    );
    bench.labs.down("path").unwrap();
    let lab = bench.up(&text("drop_icmp = \"frag-needed\"\n"));
    run(&lab, "one", "ping -q -c 1 two");
    let silent = probe(&lab);
    assert!(
        !silent.to_lowercase().contains("frag") && silent.contains("100% packet loss"),
        "{silent}"
    );
}

#[test]
fn every_shipped_scenario_comes_up() {
    let bench = Bench::new();
    for (name, text) in Scenario::shipped() {
        let lab = bench.up(text);
        let hosts: Vec<_> = lab.hosts().filter(|h| h.kind == "host").collect();
        // Who lies behind address translation is not to be reached from outside, but reaches it.
        for other in &hosts[1..] {
            // More than one, for the scenarios that lose some.
            let words = format!("ping -4 -q -c 5 -i 0.05 -W 2 {}", other.name);
            let report = said(&lab, &hosts[0].name, &words);
            assert!(report.contains("received"), "{name}: {report}");
        }
        bench.labs.down(name).unwrap();
    }
}

#[test]
fn a_hairpin_leads_back_in_and_hides_who_asks() {
    let bench = Bench::new();
    let lab = bench.up(
        "name = \"home\"\nwhy = \"a test\"\n[[host]]\nname = \"one\"\n[[host]]\nname = \"two\"\n\
         [[host]]\nname = \"internet\"\n[[switch]]\nname = \"switch\"\n[[router]]\nname = \"gate\"\n\
         nat = { outside = \"up\", hairpin = true, forward = [{ port = 5201, to = \"two\" }] }\n\
         [[link]]\nname = \"a\"\nbetween = [\"one\", \"switch\"]\n\
         [[link]]\nname = \"b\"\nbetween = [\"two\", \"switch\"]\n\
         [[link]]\nname = \"c\"\nbetween = [\"switch\", \"gate\"]\n\
         [[link]]\nname = \"up\"\nbetween = [\"gate\", \"internet\"]\n",
    );
    // Of the gate inside and outside, and of the internet; IPv4 or IPv6.
    let addresses = |v4: bool| -> Vec<String> {
        let nodes = ["gate", "internet"].map(|name| &lab.host(name).unwrap().addresses);
        let family = nodes.into_iter().flatten().filter(|a| a.is_ipv4() == v4);
        family.map(ToString::to_string).collect()
    };
    let (v4, v6) = (addresses(true), addresses(false));
    for (asker, public, seen) in [
        ("one", &v4[1], &v4[0]),
        ("internet", &v4[1], &v4[2]),
        ("one", &v6[1], &v6[0]),
        ("internet", &v6[1], &v6[2]),
    ] {
        let mut server = lab
            .command("two", "iperf3")
            .unwrap()
            .args(["-s", "-1", "--forceflush"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = std::io::BufReader::new(server.stdout.take().unwrap());
        let mut lines = std::io::BufRead::lines(output);
        while !lines.next().unwrap().unwrap().contains("listening") {}
        run(&lab, asker, &format!("iperf3 -c {public} -n 100K"));
        let rest: Vec<String> = lines.map(Result::unwrap).collect();
        assert!(
            rest.iter()
                .any(|l| l.contains(&format!("Accepted connection from {seen},"))),
            "{asker} to {public}: {rest:?}"
        );
        server.wait().unwrap();
    }
}

#[test]
fn a_program_in_a_host_finds_itself_there() {
    let bench = Bench::new();
    let lab = bench.up(&pair("[link.both]\ndelay = \"1ms\"\n"));
    assert_eq!(said(&lab, "two", "uname -n").trim(), "two");
    let devices = said(&lab, "two", "ls /sys/class/net");
    let outside = std::fs::read_dir("/sys/class/net").unwrap().count();
    assert_eq!(devices.lines().count(), 2, "{devices}; {outside} outside");
    assert!(said(&lab, "one", "cat /etc/hosts").contains("two"));
    assert!(
        !std::fs::read_to_string("/etc/hosts")
            .unwrap()
            .contains(" two")
    );
    let error = lab.command("three", "true").unwrap_err();
    assert_eq!(
        error.to_string(),
        "the lab pair has no host three; it has one, two"
    );
}

#[test]
fn two_labs_do_not_meet_and_a_name_is_taken_once() {
    let bench = Bench::new();
    let text = pair("[link.both]\ndelay = \"2ms\"\n");
    let first = bench.up(&text);
    let again = bench.labs.up(&scenario(&text), &options()).unwrap_err();
    assert!(matches!(again, Error::IsUp(_)), "{again}");
    let other = LabOptions {
        name: Some("other".into()),
        ..options()
    };
    let second = bench.raise(&text, &other);
    run(&first, "one", "ping -q -c 2 -i 0.01 two");
    run(&second, "one", "ping -q -c 5 -i 0.01 two");
    let seen = |lab: &RunningLab| lab.counters().unwrap().links[0].forward.offered.frames;
    assert_eq!((seen(&first), seen(&second)), (2, 5));
    let names: Vec<_> = bench
        .labs
        .list()
        .unwrap()
        .into_iter()
        .map(|i| (i.name, i.state))
        .collect();
    assert_eq!(
        names,
        [
            ("other".into(), LabState::Up),
            ("pair".into(), LabState::Up)
        ]
    );
    bench.labs.down("pair").unwrap();
    assert!(matches!(first.counters(), Err(Error::NotUp(_))));
    assert!(matches!(first.command("one", "true"), Err(Error::NotUp(_))));
    run(&second, "one", "ping -q -c 1 two");
}

#[test]
fn down_ends_the_programs_inside() {
    let bench = Bench::new();
    let lab = bench.up(&pair(""));
    let mut sleeper = lab
        .command("one", "sleep")
        .unwrap()
        .arg("600")
        .spawn()
        .unwrap();
    bench.labs.down("pair").unwrap();
    assert!(!sleeper.wait().unwrap().success());
}

#[test]
fn what_a_killed_lab_leaves_is_removed() {
    let bench = Bench::new();
    let text = pair("[link.both]\ndelay = \"2ms\"\n");
    let lab = bench.up(&text);
    let mut sleeper = lab
        .command("one", "sleep")
        .unwrap()
        .arg("600")
        .spawn()
        .unwrap();
    sys::signal::end(lab.pid(), true).unwrap();
    // Its last thread drops the lock.
    let is_dead = || bench.labs.list().unwrap()[0].state == LabState::Dead;
    wait_until("the lab is dead", is_dead);
    let info = &bench.labs.list().unwrap()[0];
    assert_eq!((info.name.as_str(), info.state), ("pair", LabState::Dead));
    assert!(matches!(lab.counters(), Err(Error::NotUp(_))));
    assert_eq!(bench.labs.down_all().unwrap(), ["pair"]);
    assert!(!sleeper.wait().unwrap().success());
    assert!(bench.labs.list().unwrap().is_empty());
    // The next one of the name clears up by itself.
    let lab = bench.up(&text);
    sys::signal::end(lab.pid(), true).unwrap();
    wait_until("the lab is dead", is_dead);
    run(&bench.up(&text), "one", "ping -q -c 1 two");
}

#[test]
fn a_builder_killed_half_way_leaves_nothing() {
    let text = pair("[link.both]\ndelay = \"2ms\"\n");
    for after_ms in [0, 2, 5, 10, 20, 30, 50] {
        let bench = Bench::new();
        let lock = bench.home.join("pair/lock");
        let made = std::thread::scope(|scope| {
            let making = scope.spawn(|| bench.labs.up(&scenario(&text), &options()));
            let mut pid = None;
            wait_until("the builder is there", || {
                pid = std::fs::read_to_string(&lock)
                    .ok()
                    .and_then(|t| t.parse().ok());
                pid.is_some()
            });
            std::thread::sleep(Duration::from_millis(after_ms));
            let _ = sys::signal::end(pid.unwrap(), true);
            wait_until("the builder ends", || !is_running(pid.unwrap()));
            making.join().unwrap()
        });
        match made {
            // It was up before it was killed: then it is a killed lab.
            Ok(_) => assert_eq!(bench.labs.down_all().unwrap(), ["pair"]),
            Err(error) => {
                assert!(
                    matches!(error, Error::Failed(_) | Error::NotUp(_)),
                    "{error}"
                );
                bench.labs.down_all().unwrap();
            }
        }
        assert!(bench.labs.list().unwrap().is_empty());
        run(&bench.up(&text), "one", "ping -q -c 1 two");
    }
}

#[test]
fn a_name_is_free_as_soon_as_its_lab_was_killed() {
    let bench = Bench::new();
    let text = pair("[link.both]\ndelay = \"2ms\"\n");
    for _ in 0..5 {
        let lab = bench.up(&text);
        sys::signal::end(lab.pid(), true).unwrap();
        // Its threads may hold the lock still: `up` waits for them by itself.
    }
    run(&bench.up(&text), "one", "ping -q -c 1 two");
}

#[test]
fn a_lab_sends_and_reads_by_itself_and_says_how_much() {
    let bench = Bench::new();
    let lab = bench.up(
        "name = \"busy\"\nwhy = \"a test\"\n[[host]]\nname = \"one\"\n\
         [[host]]\nname = \"two\"\nreads_at = \"8M\"\n[[host]]\nname = \"three\"\n[[switch]]\nname = \"s\"\n\
         [[link]]\nname = \"a\"\nbetween = [\"one\", \"s\"]\n[link.both]\nrate = \"100M\"\n\
         [[link]]\nname = \"b\"\nbetween = [\"s\", \"two\"]\n\
         [[link]]\nname = \"c\"\nbetween = [\"three\", \"s\"]\n\
         [[traffic]]\nfrom = \"one\"\nto = \"three\"\nstreams = 2\ncongestion = \"reno\"\n\
         on = \"300ms\"\noff = \"100ms\"\n\
         [[traffic]]\nname = \"slow\"\nfrom = \"three\"\nto = \"two\"\n",
    );
    wait_until("it has sent", || {
        let counters = lab.counters().unwrap();
        let [bursts, slow] = &counters.traffic[..] else {
            panic!("{counters:?}")
        };
        // Two streams, again after each silence; the one without end is made once.
        bursts.connections >= 4 && bursts.sent > 500_000 && slow.connections == 1
    });
    let counters = lab.counters().unwrap();
    let carried = counters.link("a").unwrap().forward.delivered.wire_bytes;
    let read = |host: &str| {
        counters
            .readers
            .iter()
            .find(|r| r.host == host)
            .unwrap()
            .bytes
    };
    assert!(
        read("three") <= carried && read("three") > 0,
        "{counters:?}"
    );
    // A megabyte a second, and one chunk that was taken at the beginning.
    let most = counters.at.0 / 1000 + 65_536;
    assert!(read("two") > 0 && read("two") <= most, "{counters:?}");
}

/// A lab of netem; `None` where the kernel has none, unless `LINERATE_TEST_NETEM` says that it has.
fn by_netem(bench: &Bench, link: &str) -> Option<RunningLab> {
    let options = LabOptions {
        backend: Backend::Netem,
        ..options()
    };
    match bench.labs.up(&scenario(&pair(link)), &options) {
        Err(Error::Unfit(why)) if std::env::var_os("LINERATE_TEST_NETEM").is_none() => {
            assert!(why.contains("this kernel lacks netem"), "{why}");
            None
        }
        up => {
            let (lab, tie) = up.unwrap();
            tie.cut().unwrap();
            Some(lab)
        }
    }
}

#[test]
fn netem_acts_on_single_frames_and_leaves_the_hosts_devices_alone() {
    let bench = Bench::new();
    let line = "[link.both]\nrate = \"20M\"\ndelay = \"20ms\"\nqueue = { packets = 20 }\n";
    let Some(lab) = by_netem(&bench, line) else {
        return;
    };
    let mut fullest = emulate::FrameTally::default();
    std::thread::scope(|scope| {
        let transfer = scope.spawn(|| iperf3(&lab, "-t 3"));
        while !transfer.is_finished() {
            let waiting = lab.counters().unwrap().links[0].forward.waiting;
            if waiting.wire_bytes > fullest.wire_bytes {
                fullest = waiting;
            }
        }
    });
    // Full frames, none of them a super-packet. The kernel counts a frame's bytes a moment before the frame.
    let frames = fullest.frames;
    let bytes = 1400 * frames..=1538 * (frames + 1);
    assert!(
        frames >= 10 && bytes.contains(&fullest.wire_bytes),
        "{fullest:?}"
    );
    let counters = lab.counters().unwrap();
    let link = &counters.links[0];
    assert_eq!(link.backend, LinkBackend::Netem);
    for of in [&link.forward, &link.backward] {
        let out = of.delivered.frames + of.dropped.total().frames + of.waiting.frames;
        assert_eq!(of.offered.frames, out, "{of:?}");
    }
    assert!(link.forward.dropped.queue.frames > 0, "{link:?}");
    assert_eq!(link.forward.dropped.loss.frames, 0, "{link:?}");
    let root = said(&lab, "one", "tc qdisc show dev eth0");
    assert!(root.starts_with("qdisc noqueue"), "{root}");
}

#[test]
fn netem_counts_what_it_loses_and_copies() {
    let bench = Bench::new();
    let Some(lab) = by_netem(
        &bench,
        "[link.forward]\ndelay = \"1ms\"\nloss = { random = 0.1 }\n",
    ) else {
        return;
    };
    let text = said(&lab, "one", "ping -c 300 -i 0.01 -W 1 two");
    let received = text
        .lines()
        .filter(|line| line.contains("icmp_seq="))
        .count();
    let forward = &lab.counters().unwrap().links[0].forward;
    // The hosts may say a word of their own.
    let others = forward.offered.frames - 300;
    let lost = forward.dropped.loss.frames - (300 - received as u64);
    assert!(lost <= others && others <= 4, "{received}, {forward:?}");
    assert!(
        (10..70).contains(&forward.dropped.loss.frames),
        "{forward:?}"
    );

    let bench = Bench::new();
    let copies = "[link.forward]\ndelay = \"1ms\"\nduplicate = { probability = 0.5 }\n";
    let lab = by_netem(&bench, copies).unwrap();
    said(&lab, "one", "ping -q -c 100 -i 0.01 two");
    let forward = &lab.counters().unwrap().links[0].forward;
    let offered = forward.offered.frames;
    assert!((100..=104).contains(&offered), "{forward:?}");
    assert!((25..75).contains(&forward.duplicated.frames), "{forward:?}");
    assert_eq!(
        forward.delivered.frames,
        offered + forward.duplicated.frames
    );
}

#[test]
fn probes_measure_how_late_netem_is_and_a_late_one_is_named() {
    let bench = Bench::new();
    let Some(lab) = by_netem(&bench, "[link.both]\ndelay = \"5ms\"\n") else {
        return;
    };
    let probes = || {
        let counters = lab.counters().unwrap();
        let late = counters.links[0].emulator.lateness.counts();
        late.iter().map(|(_, count)| count).sum::<u64>()
    };
    wait_until("probes pass while frames move", || {
        let [least, ..] = round_trips(&lab, "ping -q -c 20 -i 0.02 two");
        assert!(least >= 10.0, "{least}");
        probes() > 20
    });
    let mut counters = lab.counters().unwrap();
    counters.links[0].emulator.lateness = model::Latency::from_counts([(12_000_000, 100)]);
    assert_eq!(
        counters.warnings(),
        [
            "link wire: this machine under netem, not the network, was the limit: frames left up to 12.0 ms late (99th percentile); use a lower rate or a less busy machine"
        ]
    );
}

#[test]
fn what_netem_cannot_make_is_refused_before_anything_is_made() {
    let bench = Bench::new();
    let options = LabOptions {
        backend: Backend::Netem,
        ..options()
    };
    let policed = pair("[link.both]\npolicer = { rate = \"1M\", burst = \"64K\" }\n");
    let error = bench.labs.up(&scenario(&policed), &options).unwrap_err();
    assert!(matches!(error, Error::Unfit(_)), "{error}");
    assert_eq!(
        error.to_string(),
        "netem cannot make the link wire: it does something to the frames, and netem cannot express a policer; leave out --backend"
    );
    assert!(bench.labs.list().unwrap().is_empty());
    // Nothing is asked of it where there is nothing to shape.
    bench.raise(&pair(""), &options);
}

#[test]
fn a_lab_that_cannot_be_built_leaves_nothing() {
    let bench = Bench::new();
    // The kernel has no device of this name (`sysctl_dev_name_is_allowed`).
    let broken = scenario(&pair("devices = [\"all\", \"eth0\"]\n"));
    let error = bench.labs.up(&broken, &options()).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("cannot set up the links: ip says: "),
        "{error}"
    );
    assert!(bench.labs.list().unwrap().is_empty());
    let silent = LabOptions {
        holder: Some(vec!["false".into()]),
        ..options()
    };
    let error = bench.labs.up(&broken, &silent).unwrap_err();
    assert!(
        error.to_string().contains("ended before the lab was up"),
        "{error}"
    );
    assert!(bench.labs.list().unwrap().is_empty());
}

#[test]
fn a_user_namespace_does_as_well() {
    let bench = Bench::new();
    let options = LabOptions {
        in_user_namespace: true,
        ..options()
    };
    let lab = bench.raise(&pair("[link.both]\ndelay = \"5ms\"\n"), &options);
    assert!(lab.record().in_user_namespace);
    let [least, ..] = round_trips(&lab, "ping -q -c 10 -i 0.02 two");
    assert!(least >= 10.0, "{least}");
    assert_eq!(said(&lab, "one", "id -u").trim(), "0");
    assert_eq!(said(&lab, "two", "ls /sys/class/net").lines().count(), 2);
}

#[test]
fn nothing_outside_changes() {
    let outside = || {
        let words = [
            "ip -d addr",
            "ip -4 route show table all",
            "ip -6 route show table all",
            "ip rule",
            "ip netns",
            "tc qdisc",
            "cat /proc/self/mounts",
            "sysctl -a",
        ];
        words.map(|words| {
            let mut words = words.split(' ');
            let output = Command::new(words.next().unwrap())
                .args(words)
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            // Counters and lifetimes, which change by themselves.
            let is_steady = |line: &&str| {
                !["valid_lft", "expires", "fs.", "kernel.", "vm.", "dev."]
                    .iter()
                    .any(|moving| line.contains(moving))
                    && !line.contains("nf_conntrack_count")
            };
            text.lines()
                .filter(is_steady)
                .map(str::to_owned)
                .collect::<Vec<_>>()
        })
    };
    let before = outside();
    let bench = Bench::new();
    let nat = "name = \"home\"\nwhy = \"a test\"\n[[host]]\nname = \"one\"\nreceive_buffer = \"64K\"\n\
               offload = false\n[[host]]\nname = \"two\"\n[[router]]\nname = \"hop\"\nmss_clamp = 1200\nttl = 9\n\
               [[link]]\nname = \"near\"\nbetween = [\"one\", \"hop\"]\n\
               [[link]]\nname = \"far\"\nbetween = [\"hop\", \"two\"]\n[link.both]\ndelay = \"1ms\"\n";
    let lab = bench.up(nat);
    run(&lab, "one", "ping -q -c 1 two");
    assert_eq!(
        said(&lab, "one", "cat /proc/sys/net/ipv4/tcp_rmem").trim(),
        "4096\t65536\t65536"
    );
    assert!(said(&lab, "two", "ping -c 1 one").contains("ttl=9"));
    assert_eq!(outside(), before);
    bench.labs.down("home").unwrap();
    assert_eq!(outside(), before);
}

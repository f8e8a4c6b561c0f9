//! Paths with a known cause, and what is to be done about them.

use super::*;
use model::advice::{Advice, Configured, Item, RateFrom, Worth};
use model::finding::{
    Conclusion, Confidence, Explanation, Finding, Level, Limit, Remedy, Share, Source,
};
use model::{
    BitRate, Bytes, Congestion, Device, Direction, Fingerprint, Nanos, Scope, Side, Value,
};

const MIB: u64 = 1 << 20;

fn host() -> Fingerprint {
    let sysctls = [
        ("net.ipv4.tcp_rmem", "4096 131072 33554432"),
        ("net.ipv4.tcp_wmem", "4096 16384 4194304"),
        ("net.ipv4.tcp_mem", "278466 371289 556932"),
        ("net.core.rmem_max", "4194304"),
        ("net.core.wmem_max", "4194304"),
        ("net.ipv4.tcp_congestion_control", "cubic"),
        ("net.ipv4.tcp_moderate_rcvbuf", "1"),
    ];
    Fingerprint {
        kernel: "Linux 6.18.44".to_owned(),
        memory: Some(Bytes(16 << 30)),
        device: Some(Device {
            name: "eth0".to_owned(),
            qdisc: Some("fq_codel limit 10240".to_owned()),
            ..Device::default()
        }),
        congestion: Some(Congestion {
            default: "cubic".to_owned(),
            available: vec!["reno".to_owned(), "cubic".to_owned()],
        }),
        sysctls: sysctls.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
        ..Fingerprint::default()
    }
}

fn with(key: &str, value: &str) -> Fingerprint {
    let mut host = host();
    host.sysctls.insert(key.to_owned(), value.to_owned());
    host
}

/// 100 Mbit/s over 80 ms: 1 MB in flight.
fn way() -> PathSample {
    PathSample {
        direction: Direction::Up,
        goodput: BitRate(100_000_000),
        rtt: Nanos::from_millis(80),
        idle_rtt: Some(Nanos::from_millis(78)),
        connections: 1,
        congestion: Some("cubic".to_owned()),
        mss: 1448,
        window_share: None,
        send_buffer_set: false,
        receive_buffer_set: false,
        user_rate: None,
        mtu: None,
        latency: false,
    }
}

fn finding(limit: Limit, changes: &[&str], words: &str) -> Finding {
    let change = |c: &&str| Remedy {
        words: "as found".to_owned(),
        change: Some((*c).to_owned()),
    };
    let plain = Remedy {
        words: words.to_owned(),
        change: None,
    };
    Finding {
        limit,
        level: Level::First,
        share: Share::default(),
        confidence: Confidence::Certain,
        evidence: Vec::new(),
        remedies: changes.iter().map(change).chain([plain]).collect(),
        against: None,
        decider: None,
    }
}

fn explained_by(findings: Vec<Finding>) -> Explanation {
    Explanation {
        name: "0".to_owned(),
        sender: None,
        receiver: None,
        direction: Some(Direction::Up),
        source: Source::Samples,
        stream: None,
        span: Nanos::from_secs(10),
        bytes: Bytes(0),
        conclusion: Conclusion::Limited {
            by: findings.iter().map(|f| f.limit).collect(),
        },
        findings,
        ends: Vec::new(),
        phases: Vec::new(),
        doubts: Vec::new(),
    }
}

fn of(
    way: &PathSample,
    local: &Fingerprint,
    remote: &Fingerprint,
    findings: Vec<Finding>,
) -> Advice {
    let hosts = PathHosts {
        local,
        remote: Some(remote),
    };
    propose(way, hosts, &[explained_by(findings)])
}

fn settings(advice: &Advice) -> Vec<Vec<String>> {
    let all = advice.proposals.iter();
    all.map(|p| p.settings().iter().map(ToString::to_string).collect())
        .collect()
}

#[test]
fn small_buffers_on_a_long_path_are_raised_at_both_ends_together() {
    let local = with("net.ipv4.tcp_wmem", "4096 16384 262144");
    let remote = with("net.ipv4.tcp_rmem", "4096 131072 1048576");
    let slow = PathSample {
        goodput: BitRate(50_000_000),
        ..way()
    };
    let advice = of(
        &slow,
        &local,
        &remote,
        vec![finding(Limit::SendBuffer, &[], "x")],
    );
    // 4 x 50 Mbit/s x 80 ms = 2 MB; x 1.25 / 0.62 = 4.03 MB.
    assert_eq!(advice.needs.rate_from, RateFrom::Step);
    assert_eq!(advice.needs.bdp, Bytes(2_000_000));
    assert_eq!(
        settings(&advice),
        [[
            "sysctl:net.ipv4.tcp_rmem=4096 131072 4194304",
            "sysctl:net.ipv4.tcp_wmem=4096 16384 4194304"
        ]]
    );
    let proposal = &advice.proposals[0];
    let [receiver, sender] = &proposal.changes[..] else {
        panic!("{proposal:?}")
    };
    assert_eq!((receiver.side, sender.side), (Side::Remote, Side::Local));
    assert_eq!(receiver.now.as_deref(), Some("4096 131072 1048576"));
    assert_eq!(receiver.default.as_deref(), Some("4096 131072 33554432"));
    assert!(
        receiver.why.contains("80.0 ms = 1.91 MiB in flight"),
        "{}",
        receiver.why
    );
    assert_eq!(proposal.scope(), Scope::Namespace);
    assert!(!receiver.new_connections);
    let stand_in: Vec<String> = proposal.stand_in.iter().map(ToString::to_string).collect();
    assert_eq!(stand_in, ["rcvbuf=2M", "sndbuf=2M"]);
}

#[test]
fn buffers_that_suffice_stay_and_larger_ones_too() {
    // Held by its buffer, yet the sysctls suffice: nothing to raise.
    let advice = of(
        &way(),
        &host(),
        &host(),
        vec![finding(Limit::ReceiveWindow, &[], "x")],
    );
    // 400 Mbit/s x 80 ms = 4 MB wants 8 MiB: the send buffer would be next.
    assert_eq!(
        settings(&advice),
        [["sysctl:net.ipv4.tcp_wmem=4096 16384 8388608"]]
    );
    let large = with("net.ipv4.tcp_wmem", "4096 16384 67108864");
    let advice = of(
        &way(),
        &large,
        &host(),
        vec![finding(Limit::ReceiveWindow, &[], "x")],
    );
    assert!(advice.proposals.is_empty(), "{advice:?}");
    // Set by hand, it is the option that is to be larger.
    let by_hand = PathSample {
        receive_buffer_set: true,
        ..way()
    };
    let advice = of(
        &by_hand,
        &large,
        &host(),
        vec![finding(Limit::ReceiveWindow, &[], "x")],
    );
    assert_eq!(settings(&advice), [["rcvbuf=4M"]]);
    // Autotuning that is off is switched on.
    let off = with("net.ipv4.tcp_moderate_rcvbuf", "0");
    let advice = of(
        &way(),
        &large,
        &off,
        vec![finding(Limit::ReceiveWindow, &[], "x")],
    );
    assert_eq!(
        settings(&advice),
        [["sysctl:net.ipv4.tcp_moderate_rcvbuf=1"]]
    );
}

#[test]
fn a_host_that_can_only_be_asked_is_asked_for_what_holds_the_transfer() {
    let local = host();
    let of = |limit| {
        let hosts = PathHosts {
            local: &local,
            remote: None,
        };
        let advice = propose(
            &way(),
            hosts,
            &[explained_by(vec![finding(limit, &[], "x")])],
        );
        let stand_in = advice.proposals.iter().flat_map(|p| &p.stand_in);
        let stand_in: Vec<String> = stand_in.map(ToString::to_string).collect();
        (settings(&advice), stand_in)
    };
    let wmem = "sysctl:net.ipv4.tcp_wmem=4096 16384 8388608".to_owned();
    // What it lets be asked for is not known: the least that hosts do stands in.
    assert_eq!(
        of(Limit::ReceiveWindow),
        (
            vec![vec!["rcvbuf=4M".to_owned(), wmem.clone()]],
            vec!["rcvbuf=208K".to_owned(), "sndbuf=4M".to_owned()]
        )
    );
    assert_eq!(of(Limit::SendBuffer).0, [[wmem]]);
}

#[test]
fn the_rate_is_the_users_or_of_the_line_or_reached_or_a_step() {
    let needs = |way: &PathSample, local: &Fingerprint, held| {
        let remote = local.clone();
        needs(
            way,
            PathHosts {
                local,
                remote: Some(&remote),
            },
            held,
        )
    };
    let mut fast = host();
    fast.device.as_mut().unwrap().speed = Some(BitRate(1_000_000_000));
    let wanted = PathSample {
        user_rate: Some(BitRate(2_500_000_000)),
        ..way()
    };
    assert_eq!(needs(&wanted, &fast, true).rate_from, RateFrom::User);
    let line = needs(&way(), &fast, true);
    assert_eq!(
        (line.rate, line.rate_from),
        (BitRate(1_000_000_000), RateFrom::Line)
    );
    assert_eq!(needs(&way(), &fast, false).rate_from, RateFrom::Reached);
    assert_eq!(needs(&way(), &host(), true).rate, BitRate(400_000_000));
    // Four connections share the rate.
    let four = PathSample {
        connections: 4,
        ..way()
    };
    assert_eq!(needs(&four, &host(), false).bdp, Bytes(250_000));
}

#[test]
fn how_much_of_a_buffer_becomes_window_is_the_kernels() {
    let receive_buffer = |kernel: &str, scale: &str, share| {
        let mut remote = with("net.ipv4.tcp_adv_win_scale", scale);
        remote.kernel = kernel.to_owned();
        let way = PathSample {
            window_share: share,
            rtt: Nanos::from_millis(800),
            ..way()
        };
        let local = host();
        needs(
            &way,
            PathHosts {
                local: &local,
                remote: Some(&remote),
            },
            false,
        )
        .receive_buffer
        .0 / MIB
    };
    // 10 MB in flight, a quarter more.
    assert_eq!(receive_buffer("Linux 6.18.1", "1", None), 20);
    assert_eq!(receive_buffer("Linux 5.10.0-8", "1", None), 24);
    assert_eq!(receive_buffer("Linux 5.10.0-8", "2", None), 16);
    assert_eq!(receive_buffer("Linux 5.10.0-8", "-2", None), 48);
    assert_eq!(receive_buffer("Linux 6.18.1", "1", Some(0.5)), 24);
}

#[test]
fn a_full_path_and_an_idle_application_want_no_setting() {
    for limit in [
        Limit::BottleneckRate,
        Limit::Bufferbloat,
        Limit::Shaper,
        Limit::Application,
        Limit::ReadingApplication,
    ] {
        let advice = of(
            &way(),
            &host(),
            &host(),
            vec![finding(limit, &[], "raise the rate")],
        );
        assert!(advice.proposals.is_empty(), "{limit}: {advice:?}");
        assert_eq!(advice.otherwise, ["raise the rate"]);
    }
    let hosts = host();
    let hosts = PathHosts {
        local: &hosts,
        remote: None,
    };
    assert!(propose(&way(), hosts, &[]).proposals.is_empty());
}

#[test]
fn a_full_window_before_a_standing_queue_wants_no_larger_one() {
    let queued = PathSample {
        idle_rtt: Some(Nanos::from_millis(50)),
        ..way()
    };
    let small = with("net.ipv4.tcp_rmem", "4096 131072 1048576");
    let advice = of(
        &queued,
        &host(),
        &small,
        vec![finding(Limit::ReceiveWindow, &["rcvbuf=4M"], "x")],
    );
    assert!(advice.proposals.is_empty(), "{advice:?}");
    assert_eq!(advice.needs.rate_from, RateFrom::Reached);
    assert!(
        advice.otherwise[0].contains("grew from 50.0 ms to 80.0 ms"),
        "{advice:?}"
    );
}

#[test]
fn a_small_send_buffer_is_raised_though_its_bursts_make_the_round_trip_longer() {
    // 64 KiB at 300 Mbit/s: a writer is woken when a third is free, and all of that leaves at once.
    let bursts = PathSample {
        goodput: BitRate(134_000_000),
        rtt: Nanos::from_micros(6_300),
        idle_rtt: Some(Nanos::from_millis(4)),
        send_buffer_set: true,
        ..way()
    };
    let send_buffer = || vec![finding(Limit::SendBuffer, &[], "x")];
    let advice = of(&bursts, &host(), &host(), send_buffer());
    assert_eq!(settings(&advice), [["sndbuf=416K"]]);
    let queued = PathSample {
        rtt: Nanos::from_micros(8_100),
        ..bursts
    };
    let advice = of(&queued, &host(), &host(), send_buffer());
    assert!(advice.proposals.is_empty(), "{advice:?}");
}

#[test]
fn random_loss_asks_for_another_congestion_control_and_not_for_buffers() {
    let loss = || {
        vec![finding(
            Limit::RandomLoss,
            &["congestion=bbr"],
            "find the link",
        )]
    };
    let advice = of(&way(), &host(), &host(), loss());
    assert_eq!(settings(&advice), [["route.congctl=bbr"]]);
    let change = &advice.proposals[0].changes[0];
    assert_eq!(
        (change.now.as_deref(), change.scope),
        (Some("cubic"), Scope::Route)
    );
    assert!(change.risk.contains("modprobe tcp_bbr") && change.new_connections);
    assert_eq!(
        advice.proposals[0].stand_in[0].to_string(),
        "congestion=bbr"
    );
    let bbr = PathSample {
        congestion: Some("bbr".to_owned()),
        mtu: Some(9000),
        ..way()
    };
    let advice = of(&bbr, &host(), &host(), loss());
    assert!(advice.proposals.is_empty());
    assert!(advice.otherwise[0].starts_with("the congestion control is bbr already"));
    assert!(
        advice.otherwise[1].starts_with("packets of 9000 bytes get through, and 1488 are used")
    );
}

#[test]
fn a_shallow_queue_asks_for_pacing_and_the_finding_says_how_fast() {
    let burst = || vec![finding(Limit::BurstLoss, &["pacing=60M"], "deeper buffer")];
    let advice = of(&way(), &host(), &host(), burst());
    assert_eq!(
        settings(&advice),
        [["device.qdisc=fq"], ["route.congctl=bbr"]]
    );
    assert_eq!(advice.proposals[0].stand_in[0].to_string(), "pacing=60M");
    let mut fq = host();
    fq.device.as_mut().unwrap().qdisc = Some("fq limit 10000p".to_owned());
    let advice = of(&way(), &fq, &host(), burst());
    assert_eq!(settings(&advice)[0], ["pacing=60M"]);
}

#[test]
fn a_policer_asks_for_pacing_below_its_rate_and_for_a_congestion_control_that_bears_loss() {
    let slow = PathSample {
        goodput: BitRate(66_800_000),
        ..way()
    };
    let policer = |changes| vec![finding(Limit::Policer, changes, "replace it by a shaper")];
    let advice = of(&slow, &host(), &host(), policer(&["pacing=90600000"]));
    assert_eq!(
        settings(&advice),
        [["pacing=90600K"], ["route.congctl=bbr"]]
    );
    assert_eq!(
        advice.proposals[1].stand_in[0].to_string(),
        "congestion=bbr"
    );
    // Two connections share the bucket.
    let two = PathSample {
        connections: 2,
        ..slow.clone()
    };
    let advice = of(&two, &host(), &host(), policer(&["pacing=90600000"]));
    assert_eq!(settings(&advice)[0], ["pacing=45300K"]);
    // At what was reached already, or less, nothing is gained.
    let fast = PathSample {
        goodput: BitRate(92_000_000),
        ..way()
    };
    for advice in [
        of(&fast, &host(), &host(), policer(&["pacing=90600000"])),
        of(&slow, &host(), &host(), policer(&[])),
    ] {
        assert_eq!(settings(&advice), [["route.congctl=bbr"]]);
    }
}

#[test]
fn a_black_hole_asks_for_smaller_packets() {
    let hole = || vec![finding(Limit::BlackHole, &[], "linerate mtu HOST")];
    let advice = of(&way(), &host(), &host(), hole());
    assert_eq!(settings(&advice), [["sysctl:net.ipv4.tcp_mtu_probing=1"]]);
    let known = PathSample {
        mtu: Some(1400),
        ..way()
    };
    let advice = of(&known, &host(), &host(), hole());
    assert_eq!(settings(&advice), [["route.mtu=1400"]]);
    assert_eq!(advice.proposals[0].stand_in[0].to_string(), "mss=1360");
}

#[test]
fn what_is_worth_nothing_or_lowers_is_declined_with_a_reason() {
    let cult = finding(
        Limit::Reordering,
        &[
            "sysctl:net.ipv4.tcp_low_latency=1@sender",
            "sysctl:net.ipv4.tcp_reordering=30",
        ],
        "x",
    );
    let patient = with("net.ipv4.tcp_reordering", "300");
    let advice = of(&way(), &patient, &host(), vec![cult]);
    assert!(advice.proposals.is_empty(), "{advice:?}");
    let why: Vec<&str> = advice.declined.iter().map(|d| d.why.as_str()).collect();
    assert_eq!(
        why,
        [
            "tcp_low_latency has no effect since Linux 4.14",
            "it is 300, which is higher: limits are not lowered"
        ]
    );
}

#[test]
fn a_host_that_cannot_be_read_is_reported_and_not_set() {
    let local = with("net.ipv4.tcp_wmem", "4096 16384 262144");
    let hosts = PathHosts {
        local: &local,
        remote: None,
    };
    let mut window = explained_by(vec![finding(
        Limit::SlowStart,
        &["route.initcwnd=32@sender"],
        "x",
    )]);
    window.direction = Some(Direction::Down);
    let down = PathSample {
        direction: Direction::Down,
        ..way()
    };
    let advice = propose(&down, hosts, &[window.clone()]);
    assert!(advice.proposals.is_empty());
    assert!(
        advice.otherwise[0].contains("at the remote host"),
        "{advice:?}"
    );
    // Of the other direction nothing is taken.
    assert!(propose(&way(), hosts, &[window]).otherwise.is_empty());
}

#[test]
fn defaults_are_those_of_the_kernel_and_its_memory() {
    let default = |kernel: &str, memory: u64, key: &str| {
        let host = Fingerprint {
            kernel: kernel.to_owned(),
            memory: Some(Bytes(memory << 30)),
            ..Fingerprint::default()
        };
        default_of(&host, key.parse().unwrap())
    };
    let rmem = "net.ipv4.tcp_rmem";
    let three = |most| Some(Value::Numbers(vec![4096, 131_072, most * MIB]));
    assert_eq!(default("Linux 6.18.44", 24, rmem), three(32));
    assert_eq!(default("Linux 6.18.44", 1, rmem), three(8));
    assert_eq!(default("Linux 6.12.1", 24, rmem), three(6));
    assert_eq!(default("Darwin 24", 24, rmem), None);
    let most = "net.core.rmem_max";
    assert_eq!(
        default("Linux 6.18.1", 1, most),
        Some(Value::Number(4 * MIB))
    );
    assert_eq!(
        default("Linux 6.17.1", 1, most),
        Some(Value::Number(212_992))
    );
}

/// Of a host that receives, by the rate and round trip that it is for.
fn audited(host: &Fingerprint, rate: u64, rtt_ms: u64) -> Vec<Item> {
    let way = PathSample {
        user_rate: Some(BitRate(rate)),
        rtt: Nanos::from_millis(rtt_ms),
        direction: Direction::Down,
        ..way()
    };
    let hosts = PathHosts {
        local: host,
        remote: None,
    };
    let advice = propose(&way, hosts, &[]);
    review_settings(host, Side::Local, &[(way, advice)], &Configured::default()).items
}

fn item<'a>(items: &'a [Item], name: &str) -> &'a Item {
    items
        .iter()
        .find(|i| i.name == name)
        .unwrap_or_else(|| panic!("{name}: {items:#?}"))
}

#[test]
fn tuned_lowers_the_window_of_a_kernel_that_has_more_by_itself() {
    let guide = |items: &[Item], name: &str| {
        let of = &item(items, "net.ipv4.tcp_rmem").guides;
        of.iter().find(|g| g.guide == name).unwrap().clone()
    };
    // A path that needs little: 16 MiB are a lowering all the same, and said to be one.
    let items = audited(&host(), 100_000_000, 20);
    let tuned = guide(&items, "tuned network-throughput");
    assert!(tuned.lowers);
    assert_eq!(tuned.worth, Worth::Pointless);
    assert!(
        tuned
            .why
            .starts_with("lowers the limit to 16.0 MiB, where this kernel has 32.0 MiB by itself"),
        "{}",
        tuned.why
    );
    // 1 Gbit/s over 100 ms needs 25 MiB: now it does harm.
    let items = audited(&host(), 1_000_000_000, 100);
    let tuned = guide(&items, "tuned network-throughput");
    assert_eq!((tuned.lowers, tuned.worth), (true, Worth::Harmful));
    assert_eq!(item(&items, "net.ipv4.tcp_rmem").worth, Worth::Keep);
    // On a host that followed the guide, the review reports it, with the value to restore.
    let followed = with("net.ipv4.tcp_rmem", "4096 131072 16777216");
    let items = audited(&followed, 100_000_000, 20);
    let rmem = item(&items, "net.ipv4.tcp_rmem");
    assert!(rmem.lowers && rmem.worth == Worth::Pointless, "{rmem:?}");
    assert_eq!(rmem.wanted.as_deref(), Some("4096 131072 33554432"));
    let items = audited(&followed, 1_000_000_000, 100);
    assert_eq!(item(&items, "net.ipv4.tcp_rmem").worth, Worth::Harmful);
    // An older kernel has 6 MiB: there it raises, and suffices for some.
    let mut old = host();
    old.kernel = "Linux 5.14.0-70".to_owned();
    old.sysctls.insert(
        "net.ipv4.tcp_rmem".to_owned(),
        "4096 131072 6291456".to_owned(),
    );
    let items = audited(&old, 400_000_000, 80);
    assert_eq!(item(&items, "net.ipv4.tcp_rmem").worth, Worth::Raise);
    let tuned = guide(&items, "tuned network-throughput");
    assert_eq!(
        (tuned.lowers, tuned.worth),
        (false, Worth::Raise),
        "{tuned:?}"
    );
}

#[test]
fn settings_and_guides_are_judged_by_the_path() {
    let items = audited(&host(), 10_000_000_000, 50);
    // 62 MB in flight, and a quarter more in 62 % of a buffer: 121 MiB.
    let rmem = item(&items, "net.ipv4.tcp_rmem");
    assert_eq!(rmem.worth, Worth::Raise);
    assert_eq!(rmem.wanted.as_deref(), Some("4096 131072 126877696"));
    assert!(
        rmem.why
            .contains("10.0 Gbit/s x 50.0 ms = 59.6 MiB in flight"),
        "{}",
        rmem.why
    );
    let says = |guide: &str| {
        rmem.guides
            .iter()
            .find(|g| g.guide.starts_with(guide))
            .unwrap()
    };
    assert_eq!(says("Oracle").worth, Worth::Harmful);
    assert_eq!(says("NFS").worth, Worth::Harmful);
    // Just what is there but for the initial size, and not enough.
    assert_eq!(says("ESnet, 10 ").worth, Worth::Raise);
    // A gibibyte would do, and holds more than TCP may take here in all: 371,289 pages.
    assert_eq!(says("ESnet, 100").worth, Worth::Raise);
    let cc = item(&items, "net.ipv4.tcp_congestion_control");
    assert_eq!(
        (cc.worth, cc.guides[0].worth),
        (Worth::Keep, Worth::Pointless)
    );
}

#[test]
fn cargo_cult_and_harm_are_named() {
    let mut host = host();
    for (key, value) in [
        ("net.ipv4.tcp_low_latency", "1"),
        ("net.ipv4.tcp_adv_win_scale", "2"),
        ("net.ipv4.tcp_fack", "0"),
        ("net.ipv4.tcp_timestamps", "0"),
        ("net.ipv4.tcp_sack", "1"),
        ("net.ipv4.tcp_moderate_rcvbuf", "0"),
        ("net.core.busy_poll", "50"),
        ("net.core.netdev_max_backlog", "250000"),
    ] {
        host.sysctls.insert(key.to_owned(), value.to_owned());
    }
    let device = host.device.as_mut().unwrap();
    device.duplex = Some("half".to_owned());
    device.offloads.insert("gro".to_owned(), false);
    let items = audited(&host, 2_000_000_000, 1);
    let worth = |name: &str| item(&items, name).worth;
    for name in [
        "net.ipv4.tcp_low_latency",
        "net.ipv4.tcp_adv_win_scale",
        "net.core.busy_poll",
        "net.core.netdev_max_backlog",
    ] {
        assert_eq!(worth(name), Worth::Pointless, "{name}");
    }
    for name in [
        "net.ipv4.tcp_timestamps",
        "net.ipv4.tcp_moderate_rcvbuf",
        "device.duplex",
    ] {
        assert_eq!(worth(name), Worth::Harmful, "{name}");
    }
    assert_eq!(worth("device.gro"), Worth::Raise);
    assert_eq!(worth("net.ipv4.tcp_sack"), Worth::Keep);
    assert!(items.iter().all(|i| i.name != "net.ipv4.tcp_fack"));
    assert!(items.is_sorted_by_key(|i| i.worth), "harm comes first");
    let nfs = &item(&items, "net.ipv4.tcp_timestamps").guides[0];
    assert_eq!(nfs.worth, Worth::Harmful);
}

#[test]
fn what_a_finding_asks_for_is_raised() {
    let way = way();
    let local = host();
    let remote = with("net.ipv4.tcp_rmem", "4096 131072 1048576");
    let hosts = PathHosts {
        local: &local,
        remote: Some(&remote),
    };
    let loss = explained_by(vec![finding(Limit::RandomLoss, &["congestion=bbr"], "x")]);
    let path = [(way.clone(), propose(&way, hosts, &[loss]))];
    let local = review_settings(&local, Side::Local, &path, &Configured::default());
    let cc = item(&local.items, "net.ipv4.tcp_congestion_control");
    assert_eq!(cc.worth, Worth::Raise);
    assert!(cc.why.contains("route.congctl=bbr"), "{}", cc.why);
    // The receiver's small buffer is short of what was reached already.
    let remote = review_settings(&remote, Side::Remote, &path, &Configured::default());
    let rmem = item(&remote.items, "net.ipv4.tcp_rmem");
    assert_eq!((rmem.worth, rmem.lowers), (Worth::Harmful, true));
}

#[test]
fn what_waits_for_a_processor_needs_no_buffer_of_a_loaded_rtt() {
    let path = PathSample {
        idle_rtt: Some(Nanos::from_micros(20)),
        rtt: Nanos::from_millis(3),
        ..way()
    };
    let needed = |limit| of(&path, &host(), &host(), vec![finding(limit, &[], "x")]).needs;
    assert_eq!(needed(Limit::Cpu).rtt, Nanos::from_micros(20));
    assert_eq!(needed(Limit::RandomLoss).rtt, Nanos::from_millis(3));
}

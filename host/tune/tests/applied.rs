//! Every knob against the real kernel, in a network namespace of its own. Needs root.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Bench, FAR_PEER, KNOWN_PEER, KNOWN_PEER6, PEER, PEER6, assert_same};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// Applies, undoes, applies and ends; everything is read back as in force meanwhile.
#[track_caller]
fn comes_and_goes(bench: &Bench, peer: &str, settings: &[&str]) {
    let before = bench.snapshot();
    let output = bench.run(&[&["hold", peer][..], settings].concat(), &[]);
    assert!(output.status.success(), "{settings:?}: {output:?}");
    assert_same(&before, &bench.snapshot(), &format!("{settings:?}"));
    assert!(bench.is_clean());
}

#[test]
fn every_knob_comes_and_goes() {
    let bench = Bench::new();
    for setting in [
        "route.mtu=1400",
        "route.advmss=1000",
        "route.congctl=cubic",
        "route.initcwnd=32",
        "route.initrwnd=40",
        "route.quickack=on",
        "route.quickack=off",
        "route.rto_min=50ms",
        "route.window=64K",
    ] {
        for peer in [PEER, FAR_PEER, KNOWN_PEER, PEER6, KNOWN_PEER6, "fd78::5"] {
            comes_and_goes(&bench, peer, &[setting]);
        }
    }
    for setting in [
        "sysctl:net.ipv4.tcp_rmem=4096 65536 1048576",
        "sysctl:net.ipv4.tcp_sack=0",
        "sysctl:net.ipv4.tcp_congestion_control=reno",
        "sysctl:net.ipv4.tcp_notsent_lowat=131072",
        "sysctl:net.ipv4.tcp_limit_output_bytes=1M",
        "device.mtu=1400",
        "device.mtu=9000",
        "device.mtu6=1400",
        "device.pin=1400",
        "device.txqueuelen=77",
        "device.qdisc=pfifo limit 100",
        "device.qdisc=bfifo limit 64K",
        "device.qdisc=pfifo_fast",
        "device.qdisc=noqueue",
        "device.qdisc=tbf rate 100M burst 32K limit 400K",
        "device.qdisc=tbf rate 40G burst 1M limit 4M",
        "device.tso=off",
        "device.gso=off",
        "device.gro=on",
        "device.rx=off",
        "device.tx=off",
        "device.sg=off",
    ] {
        comes_and_goes(&bench, PEER, &[setting]);
    }
    // A device that takes more already, while the size of what goes through it is unchanged.
    let widened = ["device.pin=1500", "device.mtu=9000", "device.mtu6=1500"];
    for peer in [PEER, FAR_PEER, PEER6] {
        comes_and_goes(&bench, peer, &widened);
    }
    // What did not exist before is not created by restoring.
    bench.sh("tc qdisc replace dev va root handle 5: tbf rate 50mbit burst 20k limit 300k; ethtool -K va tso off");
    comes_and_goes(
        &bench,
        PEER,
        &[
            "device.qdisc=pfifo limit 9",
            "device.sg=off",
            "device.mtu=1300",
        ],
    );
    bench.sh("tc qdisc replace dev va root handle 6: pfifo limit 123");
    comes_and_goes(&bench, PEER, &["device.qdisc=pfifo limit 9"]);
}

#[test]
fn what_cannot_be_done_is_a_sentence_and_changes_nothing() {
    let bench = Bench::new();
    bench.sh("ip -6 route add fd99::/64 dev va mtu 1400; tc qdisc add dev vb root htb; ip route add 10.80.0.0/24 dev vb");
    let before = bench.snapshot();
    let not_there =
        "this network namespace does not have it: it is of the whole machine, so set it outside";
    // Older kernels do not show it here.
    let shows = "test -e /proc/sys/net/core/rmem_max && echo yes || true";
    let largest_buffer = match bench.sh(shows).trim() {
        "yes" => {
            "it can only be read in this network namespace: it is of the whole machine, so set it outside"
        }
        _ => not_there,
    };
    let mut cannot = vec![
        (
            PEER,
            "device.qdisc=fq",
            "this kernel does not have the queueing discipline fq (module sch_fq)",
        ),
        (
            PEER,
            "route.congctl=none_such",
            "the kernel says: Unknown tcp congestion algorithm",
        ),
        (
            "10.77.0.1",
            "route.initcwnd=9",
            "no route leads to 10.77.0.1, which is an address of this host or barred by it",
        ),
        (
            "fd66::1",
            "route.initcwnd=9",
            "this host has no route to fd66::1 (Network is unreachable (os error 101))",
        ),
        (PEER6, "route.mtu=1200", "IPv6 has no MTU below 1280 bytes"),
        (
            PEER,
            "device.mtu=1200",
            "below 1280 bytes va would lose IPv6 with its addresses: choose 1280 or more",
        ),
        (
            PEER,
            "device.mtu=1300",
            "an IPv6 route through va has an MTU of 1400 that the kernel would change and not give back: lock it \
             (ip -6 route change ... mtu lock 1400), or remove it",
        ),
        (
            PEER,
            "device.rxring=64",
            "the driver of va has no rings whose size can be set",
        ),
        (
            PEER,
            "device.rxusecs=10",
            "the driver of va has no such delay of interrupts",
        ),
        (
            PEER,
            "device.lro=on",
            "the driver of va keeps it off for ever",
        ),
        (
            "10.80.0.9",
            "device.qdisc=pfifo",
            "the queueing discipline of vb is of a kind whose state cannot be read whole, so it could not be restored \
             verbatim; replace it by hand (tc qdisc replace dev vb root ...) if it may go",
        ),
        (PEER, "sysctl:net.core.rmem_max=1M", largest_buffer),
        (PEER, "sysctl:net.core.netdev_max_backlog=5000", not_there),
        (
            PEER,
            "sysctl:net.ipv4.tcp_congestion_control=none_such",
            "this kernel does not know the name",
        ),
    ];
    // A kernel that has it as a module loads it, where there is modprobe.
    let mut module = std::process::Command::new("modprobe");
    let loads = module.args(["-n", "-q", "sch_fq"]).status();
    if loads.is_ok_and(|status| status.success()) {
        cannot.remove(0);
    }
    for (peer, setting, why) in cannot {
        // Others of the same call, before and after it, are not left behind.
        let words = [
            "hold",
            peer,
            "sysctl:net.ipv4.tcp_dsack=0",
            setting,
            "device.tso=off",
        ];
        let output = bench.run(&words, &[]);
        assert!(!output.status.success(), "{setting}");
        let says = String::from_utf8(output.stdout).unwrap();
        assert_eq!(
            says,
            format!("cannot set {setting}: {why}; nothing was changed\n")
        );
        assert_same(&before, &bench.snapshot(), setting);
        assert!(bench.is_clean());
    }
}

#[test]
fn a_device_keeps_its_settings_of_ipv6_though_it_is_disabled() {
    // The kernel forgets them below 1280 bytes, and begins again with the defaults: enabled.
    let bench = Bench::new();
    bench.sh("sysctl -qw net.ipv6.conf.va.disable_ipv6=1");
    let before = bench.snapshot();
    let output = bench.run(&["hold", PEER, "device.mtu=1279"], &[]);
    let words = String::from_utf8(output.stdout).unwrap();
    assert_same(&before, &bench.snapshot(), &words);
    assert!(
        words.contains("below 1280 bytes va would lose IPv6"),
        "{words}"
    );
    comes_and_goes(&bench, PEER, &["device.mtu=1280"]);
    // Of a device that is without IPv6 already nothing is lost.
    bench.sh("ip link set va mtu 1200");
    comes_and_goes(&bench, PEER, &["device.mtu=1250"]);
}

#[test]
fn routes_of_ipv6_that_do_not_follow_a_device_do_not_hold_its_mtu() {
    let bench = Bench::new();
    bench.sh(
        "ip -6 route add fd98::/64 dev vb mtu 1400; ip -6 route add fd99::/64 dev va mtu lock 1400",
    );
    comes_and_goes(&bench, PEER, &["device.mtu=1300"]);
    comes_and_goes(&bench, PEER6, &["route.mtu=1280"]);
}

#[test]
fn without_the_right_nothing_is_changed() {
    let bench = Bench::new();
    let before = bench.snapshot();
    std::fs::create_dir(&bench.state).unwrap();
    let holder = bench.holder(&["hold"]);
    let holder = holder.get_program().to_str().unwrap();
    for setting in [
        "route.initcwnd=9",
        "device.mtu=1400",
        "device.tso=off",
        "device.qdisc=pfifo",
    ] {
        let says = bench.sh(&format!(
            "setpriv --bounding-set -net_admin --inh-caps -net_admin \
             --ambient-caps -net_admin {holder} hold {} {PEER} {setting} || true",
            bench.state.display()
        ));
        assert_eq!(
            says,
            format!(
                "cannot set {setting}: it needs root, or the capability CAP_NET_ADMIN; nothing was changed\n"
            )
        );
        assert_same(&before, &bench.snapshot(), setting);
        assert!(bench.is_clean());
    }
}

#[test]
fn any_settings_in_any_order_leave_nothing_behind() {
    let bench = Bench::new();
    let before = bench.snapshot();
    let mut runner = TestRunner::new_with_rng(
        Config {
            cases: 24,
            failure_persistence: None,
            ..Config::default()
        },
        proptest::test_runner::TestRng::deterministic_rng(
            proptest::test_runner::RngAlgorithm::ChaCha,
        ),
    );
    let setting = prop_oneof![
        (68u32..65_000).prop_map(|n| format!("route.mtu={}", n.max(1280))),
        (1u32..60_000).prop_map(|n| format!("route.initcwnd={n}")),
        (1u32..1000).prop_map(|n| format!("route.rto_min={n}ms")),
        prop::sample::select(vec!["on", "off"]).prop_map(|on| format!("route.quickack={on}")),
        (1u32..1 << 30).prop_map(|n| format!("sysctl:net.ipv4.tcp_rmem=1 2 {}", n + 2)),
        (0u32..2).prop_map(|n| format!("sysctl:net.ipv4.tcp_sack={n}")),
        (1280u32..65_000).prop_map(|n| format!("device.mtu={n}")),
        (1u32..100_000).prop_map(|n| format!("device.txqueuelen={n}")),
        (1u32..100_000).prop_map(|n| format!("device.qdisc=pfifo limit {n}")),
        (10u32..1000).prop_map(|n| format!("device.qdisc=tbf rate {n}M burst {n}K limit 1M")),
        (
            prop::sample::select(vec!["tso", "gso", "gro", "rx", "tx", "sg"]),
            prop::sample::select(vec!["on", "off"]),
        )
            .prop_map(|(knob, on)| format!("device.{knob}={on}")),
    ];
    let peer = prop::sample::select(vec![PEER, FAR_PEER, KNOWN_PEER, PEER6, KNOWN_PEER6]);
    let orders = (peer, prop::collection::vec(setting, 1..8));
    runner
        .run(&orders, |(peer, settings)| {
            let words: Vec<&str> = settings.iter().map(String::as_str).collect();
            // Some are impossible together: tso without sg. Then nothing is changed; else it is restored.
            let output = bench.run(&[&["try", peer][..], &words].concat(), &[]);
            prop_assert!(output.status.success(), "{output:?}");
            assert_same(&before, &bench.snapshot(), &format!("{words:?}"));
            prop_assert!(bench.is_clean());
            Ok(())
        })
        .unwrap();
}

#[test]
fn what_earlier_connections_taught_is_forgotten() {
    let bench = Bench::new();
    let known = || bench.sh("ip tcp_metrics show");
    for address in ["127.0.0.1", "::1"] {
        let talk = bench.run(&["talk", address], &[]);
        assert!(talk.status.success(), "{talk:?}");
        assert!(known().contains(address), "{}", known());
        let flush = bench.run(&["flush", address], &[]);
        assert!(flush.status.success(), "{flush:?}");
        assert!(!known().contains(address), "{}", known());
        // Nothing to forget is no error.
        assert!(bench.run(&["flush", address], &[]).status.success());
    }
}

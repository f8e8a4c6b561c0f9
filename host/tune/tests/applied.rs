//! Every knob against the real kernel, in a network namespace of its own. Needs root.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Bench, FAR_PEER, KNOWN_PEER, KNOWN_PEER6, PEER, PEER6, assert_same};

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
    // What is not there before is not made better by being put back.
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

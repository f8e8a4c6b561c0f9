//! Killed with -9 after every single step: everything restored, verbatim, each time. Needs root.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Bench, FAR_PEER, KNOWN_PEER, PEER6, assert_same};
use std::os::unix::process::ExitStatusExt;
use std::process::Output;

const OWNER: &str = "LINERATE_DIE_AFTER_STEP";
const GUARD: &str = "LINERATE_GUARD_DIE_AFTER_STEP";

/// Far beyond the steps that there are.
const NEVER: u32 = 100_000;

/// One of each kind of knob.
const ALL: [&str; 8] = [
    FAR_PEER,
    "route.initcwnd=32",
    "route.congctl=reno",
    "sysctl:net.ipv4.tcp_wmem=4096 65536 16777216",
    "sysctl:net.ipv4.tcp_congestion_control=reno",
    "device.mtu=1400",
    "device.qdisc=pfifo limit 77",
    "device.tx=off",
];

fn killed(output: &Output) -> bool {
    output.status.signal() == Some(9)
}

fn words(settings: &[&'static str]) -> Vec<&'static str> {
    [&["hold"], settings].concat()
}

/// Runs with the owner, the guard, or both killed after a step, until a run comes that nobody is killed in.
fn every_step(bench: &Bench, settings: &[&'static str], guard_dies: Option<u32>) -> u32 {
    let before = bench.snapshot();
    for step in 1..NEVER {
        let mut environment = vec![(OWNER, step.to_string())];
        environment.extend(guard_dies.map(|step| (GUARD, step.to_string())));
        let output = bench.run(&words(settings), &environment);
        let when = format!("step {step}, {output:?}");
        if guard_dies.is_some() || !bench.is_clean() {
            let recovered = bench.run(&["recover"], &[]);
            assert!(recovered.status.success(), "{when}: {recovered:?}");
            // Before there is a guard, nothing is changed.
            let nothing = recovered.stdout.is_empty();
            assert!(guard_dies.is_some() || nothing, "{when}: {recovered:?}");
        }
        assert_same(&before, &bench.snapshot(), &when);
        assert!(bench.is_clean(), "{when}");
        if !killed(&output) {
            assert!(guard_dies.is_some() || output.status.success(), "{when}");
            return step;
        }
    }
    unreachable!()
}

#[test]
fn the_guard_undoes_when_its_owner_is_killed_after_any_step() {
    let bench = Bench::new();
    let steps = every_step(&bench, &ALL, None);
    assert!(steps > 100, "{steps}");
}

#[test]
fn the_next_start_undoes_when_both_are_killed() {
    let bench = Bench::new();
    // The guard's third step is that it begins to undo.
    let steps = every_step(&bench, &ALL, Some(3));
    assert!(steps > 100, "{steps}");
}

#[test]
fn the_guard_and_the_next_start_can_be_killed_at_any_step_of_undoing() {
    let bench = Bench::new();
    let before = bench.snapshot();
    // Where the settings are all in force: just before the first undoing.
    let applied = (1..NEVER)
        .find(|step| {
            let output = bench.run(&words(&ALL), &[(OWNER, step.to_string())]);
            String::from_utf8_lossy(&output.stderr).contains("change undone")
        })
        .unwrap()
        - 2;
    let mut deaths = 0;
    for step in 3..NEVER {
        let environment = [(OWNER, applied.to_string()), (GUARD, step.to_string())];
        let output = bench.run(&words(&ALL), &environment);
        assert!(killed(&output));
        let when = format!("guard killed after step {step}, {output:?}");
        // Whoever undoes next is killed as well, later and later.
        let recovered = bench.run(&["recover"], &[(OWNER, step.to_string())]);
        let again = bench.run(&["recover"], &[]);
        assert!(again.status.success(), "{when}: {recovered:?} {again:?}");
        assert_same(&before, &bench.snapshot(), &when);
        assert!(bench.is_clean());
        if String::from_utf8_lossy(&output.stderr)
            .matches("dies after step")
            .count()
            == 1
        {
            break;
        }
        deaths += 1;
    }
    assert!(deaths > 20, "{deaths}");
}

#[test]
fn routes_that_were_there_come_back() {
    for settings in [
        [
            KNOWN_PEER,
            "route.mtu=1200",
            "route.quickack=on",
            "route.window=32K",
        ],
        [
            PEER6,
            "route.mtu=1300",
            "route.rto_min=50ms",
            "route.advmss=1000",
        ],
        [
            common::KNOWN_PEER6,
            "route.initcwnd=40",
            "route.initrwnd=41",
            "route.congctl=cubic",
        ],
        [
            common::PEER,
            "device.mtu=9000",
            "device.txqueuelen=500",
            "device.qdisc=tbf rate 100M burst 32K limit 400K",
        ],
    ] {
        let bench = Bench::new();
        let steps = every_step(&bench, &settings, None);
        assert!(steps > 30, "{steps}");
    }
}

//! What is printed to undo a change undoes it, wherever it was made, and nothing stays whoever is killed. Needs root.

use crate::common::{Home, Lab, Pair, bench, run, stderr, stdout};
use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Keeps a setting in a network namespace, as 'tune HOST' keeps what it has proven; the device is that to `peer`.
fn keep(home: &Home, netns: &Path, peer: &str) {
    let netns = File::open(netns).unwrap();
    let state = home.path().join("tune");
    let peer = peer.parse().unwrap();
    let kept = std::thread::spawn(move || {
        sys::namespace::enter_net(netns.as_fd()).unwrap();
        let mut guard = Command::new(env!("CARGO_BIN_EXE_linerate"));
        guard.args(["tune", "guard", "--journal"]);
        let mut session = tune::begin(tune::Begin {
            state,
            title: "a trial".to_owned(),
            deadline: Duration::from_secs(60),
            guard,
            side: model::Side::Local,
        })
        .unwrap();
        let setting = "device.txqueuelen=321".parse().unwrap();
        session.apply(&[setting], peer).unwrap();
        session.keep().unwrap()
    });
    assert_eq!(kept.join().unwrap().len(), 1);
}

fn tune(home: &Home, args: &[&str]) -> String {
    let out = run(&mut home.linerate(&[&["tune"], args].concat()));
    assert!(out.status.success(), "{args:?}: {}", stderr(&out));
    stdout(&out)
}

/// Runs the command that a text prints between "stays until '" and "'".
fn printed(home: &Home, text: &str) -> String {
    let (_, rest) = text.split_once("stays until '").expect(text);
    let (printed, _) = rest.split_once('\'').unwrap();
    let binary = env!("CARGO_BIN_EXE_linerate");
    let words: Vec<&str> = printed
        .split(' ')
        .map(|word| if word == "linerate" { binary } else { word })
        .collect();
    let mut command = Command::new(words[0]);
    home.furnish(command.args(&words[1..]));
    let out = run(&mut command);
    assert!(out.status.success(), "{printed}: {}", stderr(&out));
    stdout(&out)
}

const NOTHING: &str = "nothing is changed on this host\n";
const BACK: &str = "undone: device.txqueuelen=321";

#[test]
fn a_change_in_a_network_namespace_is_named_and_undone_by_what_is_printed() {
    let (home, pair) = (Home::new(), Pair::new("u"));
    keep(&home, &Path::new("/run/netns").join(&pair.local), Pair::FAR);
    let status = tune(&home, &["status"]);
    let place = format!(", in the network namespace {}; stays until ", pair.local);
    assert!(status.contains(&place), "{status}");
    // Where it is, the same is printed without the place, and undoes there too.
    let inside = |args: &[&str]| stdout(&run(&mut home.linerate_in(&pair.local, args)));
    let own = inside(&["tune", "status"]);
    assert!(
        own.contains("; stays until 'linerate tune undo', or"),
        "{own}"
    );
    assert!(inside(&["tune", "undo"]).contains(BACK));
    assert_eq!(inside(&["tune", "status"]), NOTHING);
    keep(&home, &Path::new("/run/netns").join(&pair.local), Pair::FAR);
    // Undone on this host, nothing is; it says where something is.
    let undo = tune(&home, &["undo"]);
    let elsewhere = format!(
        "'ip netns exec {} linerate tune undo' undoes it",
        pair.local
    );
    assert!(undo.contains(&elsewhere), "{undo}");
    let undone = printed(&home, &status);
    assert!(undone.contains(BACK), "{undone}");
    assert_eq!(tune(&home, &["status"]), NOTHING);
}

#[test]
fn a_change_in_a_lab_is_named_while_it_is_up_and_after_it_is_down() {
    let home = Home::new();
    let lab = Lab::of(&home, 1500, "", "");
    let netns = |host: &str| -> (PathBuf, String) {
        let up = lab::Labs::in_directory(home.path().join("labs"))
            .open(&lab.name)
            .unwrap();
        let other = if host == "a" { "b" } else { "a" };
        let peer = up.host(other).unwrap().addresses[0].to_string();
        (up.host(host).unwrap().netns.clone(), peer)
    };
    for host in ["a", "b"] {
        let (path, peer) = netns(host);
        keep(&home, &path, &peer);
        let status = tune(&home, &["status"]);
        let place = format!(", in {host} of the lab {}; stays until ", lab.name);
        assert!(status.contains(&place), "{status}");
        let undone = printed(&home, &status);
        assert!(undone.contains(BACK), "{undone}");
        assert_eq!(tune(&home, &["status"]), NOTHING);
    }
    // What 'tune lab:NAME' prints reaches both hosts.
    for host in ["a", "b"] {
        let (path, peer) = netns(host);
        keep(&home, &path, &peer);
    }
    let undone = tune(&home, &["undo", &format!("lab:{}", lab.name)]);
    assert!(
        undone.contains(BACK) && undone.contains("undone on lab:"),
        "{undone}"
    );
    assert_eq!(tune(&home, &["status"]), NOTHING);

    let (path, peer) = netns("a");
    keep(&home, &path, &peer);
    lab.down();
    let status = tune(&home, &["status"]);
    assert!(
        status.contains("gone with its boot or network namespace"),
        "{status}"
    );
    assert!(!status.contains("stays until"), "{status}");
}

/// 'make kills' in small: a new seed in each run, which it prints.
#[test]
fn every_setting_is_as_before_after_a_dozen_random_kills() {
    let out = bench("kills", &["--count", "12"], Duration::from_secs(1200));
    println!("{}{}", stdout(&out), stderr(&out));
    assert!(out.status.success());
}

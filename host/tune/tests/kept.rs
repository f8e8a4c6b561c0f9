//! What was proven and is to stay: kept whole or not at all, over later experiments, until it is undone.
//! Needs root.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Bench, FAR_PEER, KNOWN_PEER, assert_same};

const ROUTE: [&str; 4] = [
    "keep",
    KNOWN_PEER,
    "route.congctl=reno",
    "sysctl:net.ipv4.tcp_notsent_lowat=131072",
];

fn says(bench: &Bench, words: &[&str]) -> String {
    let output = bench.run(words, &[]);
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn what_is_kept_outlives_its_process_and_later_experiments_and_comes_back_verbatim() {
    let bench = Bench::new();
    let before = bench.snapshot();
    says(&bench, &ROUTE);
    let kept = bench.snapshot();
    assert!(kept.contains("congctl reno"), "{kept}");
    // Nobody undoes it of their own accord.
    assert_eq!(says(&bench, &["recover"]), "");
    // The same route and the same sysctl, changed further for a while and for good.
    let more = [
        KNOWN_PEER,
        "route.initcwnd=40",
        "sysctl:net.ipv4.tcp_notsent_lowat=65536",
    ];
    says(&bench, &[&["hold"], &more[..]].concat());
    assert_same(&kept, &bench.snapshot(), "after an experiment on top");
    says(&bench, &[&["keep"], &more[..]].concat());
    let status = says(&bench, &["status"]);
    assert_eq!(status.matches("kept: true").count(), 2, "{status}");
    assert!(status.contains("alive: false"), "{status}");

    assert_eq!(
        says(&bench, &["undo"]),
        "sysctl:net.ipv4.tcp_notsent_lowat=65536 back to 131072\n\
         route.initcwnd=40 back to not set\n\
         sysctl:net.ipv4.tcp_notsent_lowat=131072 back to 4294967295\n\
         route.congctl=reno back to not set\n"
    );
    assert_same(&before, &bench.snapshot(), "undone");
    assert!(bench.is_clean());
    assert_eq!(says(&bench, &["undo"]), "");
}

#[test]
fn killed_at_any_step_it_is_kept_whole_or_not_at_all() {
    let bench = Bench::new();
    let before = bench.snapshot();
    let words = [
        "keep",
        FAR_PEER,
        "route.initcwnd=32",
        "sysctl:net.ipv4.tcp_sack=0",
    ];
    says(&bench, &words);
    let whole = bench.snapshot();
    says(&bench, &["undo"]);
    let mut ends = [0, 0];
    for step in 1.. {
        let output = bench.run(&words, &[("LINERATE_DIE_AFTER_STEP", step.to_string())]);
        // The guard has undone what it could by now; what it never saw the next start does.
        says(&bench, &["recover"]);
        let kept = !bench.is_clean();
        let now = bench.snapshot();
        assert_same(
            if kept { &whole } else { &before },
            &now,
            &format!("step {step}"),
        );
        ends[usize::from(kept)] += 1;
        says(&bench, &["undo"]);
        assert_same(&before, &bench.snapshot(), &format!("undone, step {step}"));
        assert!(bench.is_clean(), "step {step}");
        if output.status.success() {
            break;
        }
    }
    assert!(ends[0] > 10 && ends[1] > 1, "{ends:?}");
}

#[test]
fn what_another_boot_kept_is_forgotten() {
    let bench = Bench::new();
    says(&bench, &ROUTE);
    let place = std::fs::read_dir(&bench.state).unwrap().next().unwrap();
    let journal = place.unwrap().path().join("kept-1");
    let text = std::fs::read_to_string(&journal).unwrap();
    std::fs::write(&journal, text.replace("\"boot\":\"", "\"boot\":\"0")).unwrap();
    assert!(says(&bench, &["status"]).contains("namespace: Forgotten"));
    let changed = bench.snapshot();
    assert_eq!(says(&bench, &["recover"]), "");
    assert!(bench.is_clean());
    assert_same(&changed, &bench.snapshot(), "nothing was undone");
}

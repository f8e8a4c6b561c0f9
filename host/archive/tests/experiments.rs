//! Experiments: kept trial by trial, found by name, deleted with their runs.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{Scratch, complete};
use linerate_archive::{Archive, Error, Imported, NamedDocument, RunFilter};
use model::mtu::{
    Climb, MTU_SCHEMA, Method, MtuCause, MtuFound, MtuRecord, MtuReport, MtuVerdict, PathEnd, Way,
};
use model::{
    Arm, Bytes, Comm, Design, Direction, EXPERIMENT_SCHEMA, Ended, Estimand, Experiment,
    Fingerprint, Metric, Nanos, Plan, Reading, Side, TUNING_SCHEMA, Trial, TrialPhase, Tuning,
    WATCH_SCHEMA, WatchRecord, WatchTrace, WatchedDay, Witness,
};
use std::io::Write;

fn experiment(id: &str, started: Nanos) -> Experiment {
    let arm = |name: &str| Arm {
        name: name.to_owned(),
        settings: Vec::new(),
        levels: Vec::new(),
    };
    Experiment {
        schema: EXPERIMENT_SCHEMA,
        id: id.to_owned(),
        started,
        plan: Plan {
            schema: EXPERIMENT_SCHEMA,
            title: Some("before the move".to_owned()),
            host: "db2".to_owned(),
            metric: Metric::Goodput,
            margin: 0.05,
            estimand: Estimand::Typical,
            direction: Direction::Up,
            run: complete("00c0ffee", "db2", Nanos(5)).spec,
            arms: vec![arm("baseline"), arm("bbr")],
            design: Design::Pairs { looks: vec![8] },
            gap: Nanos::from_secs(3),
            seed: u64::MAX,
            pilot_pairs: 6,
        },
        local: Fingerprint::default(),
        remote: None,
        trials: Vec::new(),
        warnings: Vec::new(),
        ended: Ended::Unfinished,
    }
}

fn trial(number: u32) -> Trial {
    Trial {
        number,
        phase: TrialPhase::Main,
        block: (number - 1) / 2,
        position: (number - 1) % 2,
        arm: number % 2,
        run: Some(format!("0000000{number}")),
        started: Nanos::from_secs(u64::from(number)),
        duration: Nanos::from_secs(12),
        value: (number != 3).then_some(9.41e8 / f64::from(number)),
        bytes: Bytes(u64::MAX),
        failed: (number == 3).then(|| "the remote host broke off".to_owned()),
        readings: vec![Reading {
            setting: "TCP_CONGESTION".to_owned(),
            side: Side::Local,
            asked: "bbr".to_owned(),
            found: "cubic".to_owned(),
            in_force: false,
        }],
        witness: Witness {
            rwnd_limited_share: Some(1.0 / 3.0),
            ..Witness::default()
        },
    }
}

#[test]
fn an_experiment_reads_as_far_as_it_came() {
    let scratch = Scratch::new();
    let mut archive = Archive::open(&scratch.file()).unwrap();
    let mut whole = experiment("3f2a0001", Nanos(7));
    archive.begin_experiment(&whole).unwrap();
    let taken = archive.begin_experiment(&whole).unwrap_err();
    assert!(matches!(taken, Error::Taken { .. }), "{taken}");
    for number in 1..=4 {
        let trial = trial(number);
        archive.store_trial(&whole, &trial).unwrap();
        whole.trials.push(trial);
        assert_eq!(archive.experiment("3f2a").unwrap(), whole);
    }
    whole.ended = Ended::Complete;
    whole.remote = Some(Fingerprint::default());
    archive.update_experiment(&whole).unwrap();
    drop(archive);
    let archive = Archive::open_existing(&scratch.file()).unwrap();
    assert_eq!(archive.experiment("last").unwrap(), whole);
    assert_eq!(archive.experiments(&RunFilter::default()).unwrap(), [whole]);
}

#[test]
fn runs_of_an_experiment_are_listed_with_it_and_go_with_it() {
    let scratch = Scratch::new();
    let mut archive = Archive::open(&scratch.file()).unwrap();
    let alone = complete("00c0ffee", "db2", Nanos(5));
    let mut part = complete("00000001", "db2", Nanos(9));
    part.experiment = Some("3f2a0001".to_owned());
    let mut orphan = complete("00000002", "db2", Nanos(3));
    orphan.experiment = Some("ffffffff".to_owned());
    for run in [&alone, &part, &orphan] {
        archive.import(run).unwrap();
    }
    archive
        .begin_experiment(&experiment("3f2a0001", Nanos(7)))
        .unwrap();

    let ids = |archive: &Archive, experiment: Option<&str>| -> Vec<String> {
        let filter = RunFilter {
            experiment: experiment.map(str::to_owned),
            ..RunFilter::default()
        };
        archive
            .list(&filter)
            .unwrap()
            .into_iter()
            .map(|row| row.id)
            .collect()
    };
    assert_eq!(ids(&archive, None), ["00c0ffee", "00000002"]);
    assert_eq!(ids(&archive, Some("3f2a0001")), ["00000001"]);
    assert_eq!(
        archive.get("00000001").unwrap(),
        part,
        "the run names its experiment"
    );

    let named = |archive: &Archive, name: &str| archive.named(name);
    assert_eq!(
        named(&archive, "last").unwrap(),
        NamedDocument::Experiment("3f2a0001".into())
    );
    assert_eq!(
        named(&archive, "3f").unwrap(),
        NamedDocument::Experiment("3f2a0001".into())
    );
    assert_eq!(
        named(&archive, "00000001").unwrap(),
        NamedDocument::Run("00000001".into())
    );
    for bad in ["0000", "77", "no"] {
        assert!(named(&archive, bad).is_err(), "{bad}");
    }

    archive
        .delete(&NamedDocument::Experiment("3f2a0001".into()))
        .unwrap();
    assert!(archive.get("00000001").is_err());
    assert_eq!(
        named(&archive, "last").unwrap(),
        NamedDocument::Run("00c0ffee".into())
    );
    let gone = archive
        .delete(&NamedDocument::Experiment("3f2a0001".into()))
        .unwrap_err();
    assert!(matches!(gone, Error::NotFound { .. }), "{gone}");
}

#[test]
fn names_are_shared_by_runs_and_experiments() {
    let scratch = Scratch::new();
    let mut archive = Archive::open(&scratch.file()).unwrap();
    let run = complete("3f2a0001", "db2", Nanos(5));
    archive.import(&run).unwrap();
    let same = experiment("3f2a0001", Nanos(7));
    assert!(matches!(
        archive.begin_experiment(&same),
        Err(Error::Taken { .. })
    ));
    let other = experiment("3f2b0001", Nanos(7));
    assert_eq!(archive.import_experiment(&other).unwrap(), Imported::New);
    assert_eq!(archive.import_experiment(&other).unwrap(), Imported::Known);
    let run = complete("3f2b0001", "db2", Nanos(5));
    assert!(archive.import(&run).is_err());
    let both = archive.named("3f2").unwrap_err();
    assert!(matches!(both, Error::Ambiguous { .. }), "{both}");
}

#[test]
fn a_tuning_is_kept_replaced_and_found_by_its_first_digits() {
    let scratch = Scratch::new();
    let mut archive = Archive::open(&scratch.file()).unwrap();
    let story = |id: &str, started| Tuning {
        schema: TUNING_SCHEMA,
        id: id.to_owned(),
        started: Nanos(started),
        host: "db2".to_owned(),
        reached_by: String::new(),
        direction: Direction::Down,
        dry_run: false,
        rounds: Vec::new(),
        kept: trial(1).readings,
        after: None,
        lasting: Vec::new(),
        warnings: Vec::new(),
        ended: Ended::Unfinished,
    };
    assert!(matches!(
        archive.tuning("last"),
        Err(Error::NotFound { .. })
    ));
    let (mut first, second) = (story("3f000001", 2), story("3f000002", 1));
    for one in [&first, &second] {
        archive.store_tuning(one).unwrap();
    }
    first.ended = Ended::Complete;
    archive.store_tuning(&first).unwrap();
    assert_eq!(archive.tuning("last").unwrap(), first);
    assert_eq!(archive.tuning("3f000002").unwrap(), second);
    assert!(matches!(archive.tuning("3f"), Err(Error::Ambiguous { .. })));
    let error = archive.tuning("4").unwrap_err().to_string();
    assert!(error.contains("'linerate tune HOST' makes one"), "{error}");
    let bad = archive.store_tuning(&story("no id", 3));
    assert!(matches!(bad, Err(Error::BadId { .. })));
    assert_eq!(
        archive.named("3f000002").unwrap(),
        NamedDocument::Tuning("3f000002".into())
    );
    assert_eq!(
        archive.named("last").unwrap(),
        NamedDocument::Tuning("3f000001".into())
    );
    assert!(matches!(archive.named("3f"), Err(Error::Ambiguous { .. })));
    let listed = |filter: &RunFilter| -> Vec<String> {
        let tunings = archive.tunings(filter).unwrap();
        tunings.into_iter().map(|story| story.id).collect()
    };
    let only = |filter: RunFilter| listed(&filter);
    assert_eq!(only(RunFilter::default()), ["3f000001", "3f000002"]);
    let text = |text: &str| RunFilter {
        text: Some(text.to_owned()),
        ..RunFilter::default()
    };
    assert_eq!(only(text("0002")), ["3f000002"]);
    assert_eq!(only(text("DB2")).len(), 2);
    let bulk = RunFilter {
        workload: Some("bulk".to_owned()),
        ..RunFilter::default()
    };
    assert_eq!(only(bulk), [""; 0], "a tuning has no workload");
    let early = RunFilter {
        until: Some(Nanos(2)),
        ..RunFilter::default()
    };
    assert_eq!(only(early), ["3f000002"]);
    archive
        .delete(&NamedDocument::Tuning("3f000002".into()))
        .unwrap();
    let gone = archive.delete(&NamedDocument::Tuning("3f000002".into()));
    assert!(matches!(gone, Err(Error::NotFound { .. })));
    assert_eq!(archive.tunings(&RunFilter::default()).unwrap().len(), 1);
}

#[test]
fn what_was_found_of_an_mtu_is_listed_by_its_host_and_deleted() {
    let scratch = Scratch::new();
    let mut archive = Archive::open(&scratch.file()).unwrap();
    let way = |passes| Way {
        climb: Climb {
            passes: Some(passes),
            ..Climb::default()
        },
        mss: None,
        tcp: None,
        verdict: MtuVerdict {
            mtu: Some(passes),
            cause: MtuCause::Clear,
            beside: Vec::new(),
            doubts: Vec::new(),
        },
    };
    let record = |id: &str, host: &str, ended| MtuRecord {
        id: id.to_owned(),
        ended: Nanos(ended),
        found: MtuFound::Look(Box::new(MtuReport {
            schema: MTU_SCHEMA,
            host: host.to_owned(),
            method: Method::Agent,
            local: PathEnd::default(),
            remote: None,
            forward: way(1500),
            reverse: way(9000),
            notes: Vec::new(),
        })),
    };
    let all = [record("3f000001", "db2", 1), record("3f000002", "web1", 2)];
    for one in &all {
        archive.store_mtu(one).unwrap();
    }
    assert_eq!(archive.mtu("last").unwrap(), all[1]);
    assert_eq!(
        archive.named("3f000001").unwrap(),
        NamedDocument::Mtu("3f000001".into())
    );
    let of = RunFilter {
        host: Some("B2".to_owned()),
        ..RunFilter::default()
    };
    assert_eq!(archive.mtus(&of).unwrap(), all[..1]);
    archive
        .delete(&NamedDocument::Mtu("3f000001".into()))
        .unwrap();
    assert_eq!(archive.mtus(&RunFilter::default()).unwrap(), all[1..]);
    assert!(matches!(
        archive.mtu("3f000001"),
        Err(Error::NotFound { .. })
    ));
}

#[test]
fn a_day_of_a_watch_is_replaced_and_a_trace_goes_with_its_file() {
    let scratch = Scratch::new();
    let mut archive = Archive::open(&scratch.file()).unwrap();
    let day = |seen| {
        let mut day = WatchedDay {
            id: "da000001".to_owned(),
            host: "db2".to_owned(),
            started: Nanos(5),
            ..WatchedDay::default()
        };
        day.account.seen = seen;
        WatchRecord::Day(Box::new(day))
    };
    let trace = WatchRecord::Trace(Box::new(WatchTrace {
        schema: WATCH_SCHEMA,
        id: "da000002".to_owned(),
        host: "db2".to_owned(),
        started: Nanos(6),
        trigger: "a stall".to_owned(),
        pid: 1,
        process: Comm::new(b"rsync"),
        local: ([192, 0, 2, 1], 40_000).into(),
        remote: ([192, 0, 2, 2], 873).into(),
        before: Nanos(0),
        bytes: Bytes(3),
        found: None,
        ended: Ended::Unfinished,
    }));
    for record in [&day(1), &day(2), &trace] {
        archive.store_watch(record).unwrap();
    }
    let all = archive.watches(&RunFilter::default()).unwrap();
    assert_eq!(all, [trace, day(2)]);
    let id = NamedDocument::Watch("da000002".to_owned());
    assert_eq!(archive.named("last").unwrap(), id);
    let (traces, side) = (archive.traces(), Side::Local);
    let mut file = traces.create(id.id(), 0, side).unwrap();
    file.write_all(b"cut").unwrap();
    let before = archive.weight(&id).unwrap();
    assert!(
        !archive
            .verify(std::slice::from_ref(&id), &mut |_| {})
            .is_empty()
    );
    archive.delete(&id).unwrap();
    assert!(!traces.file(id.id(), 0, side).exists() && before > 100);
    assert_eq!(archive.watches(&RunFilter::default()).unwrap(), [day(2)]);
}

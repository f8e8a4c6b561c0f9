//! What goes in comes out, whole or in parts, by any of its names.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{Scratch, begun, complete, leg, sample};
use linerate_archive::{Archive, Error, Imported, NamedDocument, RunFilter};
use model::{
    BitRate, Bytes, Direction, Directions, EndRecord, Ended, Latency, Leg, LegLimit, Nanos,
    Request, Run, Sample, Side, StreamSample, Udp, WaitMode, Warning, Workload,
};
use proptest::prelude::*;
use std::os::unix::fs::PermissionsExt;

#[test]
fn a_name_is_shown_and_found_by_as_many_digits_as_it_needs() {
    let scratch = Scratch::new();
    let mut archive = Archive::open(&scratch.file()).unwrap();
    let old = "00c0ffee";
    let [one, two, other] = [
        "00c0ffee00000000000000000000000a",
        "00c0ffee10000000000000000000000b",
        "ffffffff00000000000000000000000c",
    ];
    for id in [old, one, two, other] {
        archive.import(&begun(id, "db2", Nanos(5))).unwrap();
    }
    for (id, shown) in [
        (old, old),
        (one, "00c0ffee0"),
        (two, "00c0ffee1"),
        (other, "ffffffff"),
    ] {
        assert_eq!(archive.shown(id), shown);
        assert_eq!(archive.get(shown).unwrap().id, id);
        assert_eq!(archive.named(shown).unwrap().id(), id);
        assert_eq!(archive.named(id).unwrap().id(), id);
    }
    assert_eq!(
        archive.named("00c0").unwrap_err().to_string(),
        "'00c0' could be any of 00c0ffee, 00c0ffee0, 00c0ffee1: give more digits"
    );
    // Only its whole name was above its longer ones.
    archive.delete(&NamedDocument::Run(old.to_owned())).unwrap();
    assert!(matches!(archive.named(old), Err(Error::Ambiguous(..))));
}

#[test]
fn what_was_made_of_a_path_holds_until_its_runs_change() {
    let scratch = Scratch::new();
    let mut archive = Archive::open(&scratch.file()).unwrap();
    let ids = ["00000001", "00000002", "00000003"];
    let runs = [0, 1, 2].map(|n| complete(ids[n], "db2", Nanos(n as u64)));
    let path = |archive: &Archive| archive.paths().unwrap().pop().unwrap();
    let keep = |archive: &mut Archive| {
        let before = path(archive);
        assert_eq!((&before.history, &before.latest), (&None, &None));
        archive.store_history(&before, Some(("h", "l"))).unwrap();
        let kept = path(archive);
        assert_eq!(kept.history.as_deref(), Some("h"));
        assert_eq!(kept.latest.as_deref(), Some("l"));
        kept
    };
    archive.import(&runs[0]).unwrap();
    let kept = keep(&mut archive);
    assert!(kept.is_of(&runs[1]) && !kept.is_of(&begun("0000000a", "db3", Nanos(1))));
    archive.import(&runs[0]).unwrap();
    assert_eq!(path(&archive), kept, "it was there already");
    // One that is imported, one that ends, and one that is deleted.
    archive.import(&runs[1]).unwrap();
    let kept = keep(&mut archive);
    let mut unfinished = runs[2].clone();
    unfinished.legs.clear();
    unfinished.ended = Ended::Unfinished;
    archive.begin(&unfinished).unwrap();
    assert_eq!(path(&archive), kept);
    archive.finish(&runs[2]).unwrap();
    // What was made of the runs before is not that of these.
    archive.store_history(&kept, Some(("old", "old"))).unwrap();
    let kept = keep(&mut archive);
    let newest = archive.runs_of(&kept, 2).unwrap();
    assert_eq!(
        newest.iter().map(|row| &*row.id).collect::<Vec<_>>(),
        [ids[2], ids[1]]
    );
    let delete = |archive: &mut Archive, id: &str| {
        archive.delete(&NamedDocument::Run(id.to_owned())).unwrap();
    };
    delete(&mut archive, ids[1]);
    keep(&mut archive);
    for id in [ids[0], ids[2]] {
        delete(&mut archive, id);
    }
    archive.store_history(&path(&archive), None).unwrap();
    assert_eq!(archive.paths().unwrap(), []);
}

#[test]
fn each_two_hosts_have_a_path_of_their_own() {
    let scratch = Scratch::new();
    let mut archive = Archive::open(&scratch.file()).unwrap();
    for (id, local) in [
        ("00000001", "web1"),
        ("00000002", "web2"),
        ("00000003", "web1"),
    ] {
        let mut run = complete(id, "db1", Nanos(1));
        run.local.hostname = local.to_owned();
        archive.import(&run).unwrap();
    }
    let paths = archive.paths().unwrap();
    let of: Vec<(&str, usize)> = paths
        .iter()
        .map(|path| (&*path.local, archive.runs_of(path, 9).unwrap().len()))
        .collect();
    assert_eq!(of, [("web1", 2), ("web2", 1)]);
}

#[test]
fn of_a_long_leg_all_samples_are_kept_and_a_part_is_read() {
    let scratch = Scratch::new();
    let mut archive = Archive::open(&scratch.file()).unwrap();
    let all: Vec<Sample> = (0..5000).map(sample).collect();
    let mut run = begun("00c0ffee", "db2", Nanos(5));
    // Of so many streams few samples are a long leg.
    run.spec.streams = 1000;
    archive.begin(&run).unwrap();
    let mut long = leg(Direction::Up, 0, 0);
    archive
        .start_leg(&run.id, 0, long.direction, long.started)
        .unwrap();
    for some in all.chunks(7) {
        let samples = some.iter().map(|one| (0, Side::Local, one));
        archive.samples(&run.id, samples).unwrap();
        some.iter()
            .for_each(|one| long.local.push(one.clone(), run.spec.streams));
    }
    let killed = archive.get(&run.id).unwrap();
    assert_eq!(killed.legs[0].local.samples, long.local.samples);
    archive.finish_leg(&run.id, 0, &long).unwrap();
    run.legs.push(long);
    archive.finish(&run).unwrap();
    let held = run.legs[0].local.samples.len();
    assert!(held < all.len() && run.legs[0].local.thinned_from == Some(5000));
    let whole_of = |archive: &Archive| {
        let mut whole = Vec::new();
        let each = &mut |one: &Sample| whole.push(one.clone());
        assert_eq!(
            archive.each_sample(&run.id, 0, Side::Local, each).unwrap(),
            5000
        );
        whole
    };
    assert_eq!(archive.get(&run.id).unwrap(), run);
    assert_eq!(whole_of(&archive), all);

    // An export, which has all.
    let mut exported = run.clone();
    let local = &mut exported.legs[0].local;
    (local.samples, local.thinned_from) = (all.clone(), None);
    let mut other = Archive::open(&scratch.0.join("other.db")).unwrap();
    assert_eq!(other.import(&exported).unwrap(), Imported::New);
    assert_eq!(other.get(&run.id).unwrap(), run);
    assert_eq!(whole_of(&other), all);
    assert_eq!(other.import(&exported).unwrap(), Imported::Known);
    assert!(other.verify(&[], &mut |_| {}).is_empty());

    let db = rusqlite::Connection::open(scratch.file()).unwrap();
    let damage = "DELETE FROM samples WHERE overview = 0 AND n = (SELECT max(n) FROM samples)";
    assert_eq!(db.execute(damage, []).unwrap(), 1);
    assert!(matches!(
        archive.get(&run.id),
        Err(Error::DamagedPart { .. })
    ));
}

#[test]
fn a_run_recorded_step_by_step_reads_as_it_ended() {
    let scratch = Scratch::new();
    let mut archive = Archive::open(&scratch.file()).unwrap();
    let run = complete("00c0ffee", "db2", Nanos(5));
    let mut begun = run.clone();
    begun.legs.clear();
    begun.ended = Ended::Unfinished;
    begun.remote = None;

    archive.begin(&begun).unwrap();
    assert_eq!(archive.get("last").unwrap(), begun);
    begun.remote = run.remote.clone();
    archive.update(&begun).unwrap();
    assert_eq!(archive.get("last").unwrap(), begun);

    for (index, leg) in run.legs.iter().enumerate() {
        archive
            .start_leg(&run.id, index, leg.direction, leg.started)
            .unwrap();
        for (n, s) in leg.local.samples.iter().enumerate() {
            archive.samples(&run.id, [(index, Side::Local, s)]).unwrap();
            // A sample that never came is made good at the end of the leg.
            if n % 3 == 0
                && let Some(remote) = leg.remote.samples.get(n)
            {
                archive
                    .samples(&run.id, [(index, Side::Remote, remote)])
                    .unwrap();
            }
        }
        archive.finish_leg(&run.id, index, leg).unwrap();
        assert_eq!(archive.get(&run.id).unwrap().legs[index], *leg);
        assert_eq!(archive.get(&run.id).unwrap().ended, Ended::Unfinished);
    }
    archive.finish(&run).unwrap();
    assert_eq!(archive.get("00c0").unwrap(), run);

    drop(archive);
    assert_eq!(
        Archive::open_existing(&scratch.file())
            .unwrap()
            .get("last")
            .unwrap(),
        run
    );
}

#[test]
fn the_end_of_a_run_has_the_last_word() {
    let scratch = Scratch::new();
    let mut archive = Archive::open(&scratch.file()).unwrap();
    let mut run = complete("00c0ffee", "db2", Nanos(5));
    archive.begin(&run).unwrap();
    // More legs and samples than the run turns out to have.
    for index in 0..3 {
        archive
            .start_leg(&run.id, index, Direction::Up, Nanos(0))
            .unwrap();
        for n in 0..50 {
            archive
                .samples(&run.id, [(index, Side::Remote, &sample(n * 7))])
                .unwrap();
        }
    }
    run.ended = Ended::Interrupted;
    archive.finish(&run).unwrap();
    assert_eq!(archive.get(&run.id).unwrap(), run);
}

#[test]
fn an_unfinished_leg_is_read_from_its_samples() {
    let scratch = Scratch::new();
    let mut archive = Archive::open(&scratch.file()).unwrap();
    let run = begun("00c0ffee", "db2", Nanos(5));
    archive.begin(&run).unwrap();
    archive
        .start_leg(&run.id, 0, Direction::Down, Nanos(77))
        .unwrap();
    for n in 0..=100 {
        let mut one = sample(n);
        one.requests = (n > 0).then(|| Latency::from_counts([(n % 2 + 1, 1)]));
        archive.samples(&run.id, [(0, Side::Local, &one)]).unwrap();
    }
    let got = archive.get(&run.id).unwrap();
    assert_eq!(got.ended, Ended::Unfinished);
    let leg = &got.legs[0];
    assert_eq!((leg.direction, leg.started), (Direction::Down, Nanos(77)));
    assert_eq!(leg.ended, Ended::Unfinished);
    assert_eq!(leg.local.samples.len(), 101);
    assert_eq!(leg.local.bytes, Bytes(1_000_000_000));
    assert_eq!(leg.local.duration, Nanos::from_secs(1));
    let requests = leg.local.requests.as_ref().unwrap();
    assert_eq!(requests.counts(), [(1, 50), (2, 50)]);
    assert_eq!(leg.remote, EndRecord::default());
    let summary = model::summarise(&got);
    assert_eq!(summary.legs[0].goodput, BitRate(8_000_000_000));
}

#[test]
fn runs_are_found_by_name_by_first_digits_and_as_last() {
    let scratch = Scratch::new();
    let mut archive = Archive::open(&scratch.file()).unwrap();
    assert!(matches!(archive.find("last"), Err(Error::Empty { .. })));
    for (id, started) in [("aa000001", 3), ("aa000002", 9), ("ab000000", 6)] {
        archive.import(&begun(id, "db2", Nanos(started))).unwrap();
    }
    assert_eq!(archive.find("last").unwrap(), "aa000002");
    assert_eq!(archive.find("ab").unwrap(), "ab000000");
    assert_eq!(archive.find("AB").unwrap(), "ab000000");
    assert_eq!(archive.find("aa000001").unwrap(), "aa000001");
    let several = archive.find("aa").unwrap_err();
    assert_eq!(
        several.to_string(),
        "'aa' could be any of aa000001, aa000002: give more digits"
    );
    for none in ["ac", "", "*", "aa?", "%", "'", "aa0000010", "\u{e9}"] {
        assert!(
            matches!(archive.find(none), Err(Error::NotFound { .. })),
            "{none}"
        );
    }
}

#[test]
fn lists_are_filtered_and_newest_first() {
    let scratch = Scratch::new();
    let mut archive = Archive::open(&scratch.file()).unwrap();
    let mut request = complete("00000003", "web1.Example", Nanos(30));
    request.spec.workload = Workload::Request(Request {
        request_size: Bytes(128),
        reply_size: Bytes(8192),
        pace_per_s: Some(0.1 + 0.2),
        reconnect: false,
        wait: WaitMode::Block,
    });
    let mut failed = begun("00000001", "db1", Nanos(10));
    failed.ended = Ended::Failed {
        why: "db1 went away".to_owned(),
    };
    for run in [&failed, &complete("00000002", "db2", Nanos(20)), &request] {
        archive.import(run).unwrap();
    }
    let ids = |filter: RunFilter| -> Vec<String> {
        let rows = archive.list(&filter).unwrap();
        rows.into_iter().map(|row| row.id).collect()
    };
    assert_eq!(
        ids(RunFilter::default()),
        ["00000003", "00000002", "00000001"]
    );
    let host = |part: &str| RunFilter {
        host: Some(part.to_owned()),
        ..RunFilter::default()
    };
    assert_eq!(ids(host("DB")), ["00000002", "00000001"]);
    assert_eq!(ids(host("example")), ["00000003"]);
    assert_eq!(ids(host("%")), [""; 0]);
    let since = RunFilter {
        since: Some(Nanos(20)),
        limit: Some(1),
        ..RunFilter::default()
    };
    assert_eq!(ids(since), ["00000003"]);
    let bulk = RunFilter {
        workload: Some("bulk".to_owned()),
        ..RunFilter::default()
    };
    assert_eq!(ids(bulk), ["00000002", "00000001"]);

    let rows = archive.list(&RunFilter::default()).unwrap();
    assert_eq!(rows[0].p50_down, None, "the client of a leg down is remote");
    assert_eq!(rows[1].goodput_up, Some(BitRate(8_000_000_000)));
    assert_eq!(rows[1].goodput_down, Some(BitRate(8_000_000_000)));
    assert_eq!(rows[1].title.as_deref(), Some("before the change"));
    assert_eq!(rows[2].goodput_up, None);
    assert_eq!(
        (rows[2].ended.as_str(), rows[2].host.as_str()),
        ("failed", "db1")
    );
    // What is damaged is no row of a list either.
    let db = rusqlite::Connection::open(scratch.file()).unwrap();
    db.execute("UPDATE runs SET document = 'no JSON'", [])
        .unwrap();
    let list = archive.list(&RunFilter::default());
    assert!(matches!(list, Err(Error::DamagedPart { .. })));
    assert!(matches!(
        archive.get("last"),
        Err(Error::DamagedPart { .. })
    ));
}

#[test]
fn the_same_run_comes_in_once_and_another_does_not_replace_it() {
    let scratch = Scratch::new();
    let mut archive = Archive::open(&scratch.file()).unwrap();
    let run = complete("00c0ffee", "db2", Nanos(5));
    assert_eq!(archive.import(&run).unwrap(), Imported::New);
    assert_eq!(archive.import(&run).unwrap(), Imported::Known);
    let mut other = run.clone();
    other.legs[0].local.samples[3].bytes = Bytes(1);
    assert!(matches!(archive.import(&other), Err(Error::Taken { .. })));
    assert!(matches!(archive.begin(&other), Err(Error::Taken { .. })));
    assert_eq!(archive.get(&run.id).unwrap(), run);
    for bad in ["", "last", "00C0FFEE", "00c0ffee1", "../../ab"] {
        other.id = bad.to_owned();
        assert!(matches!(archive.import(&other), Err(Error::BadId { .. })));
    }
}

#[test]
fn a_deleted_run_is_gone_with_all_that_belongs_to_it() {
    let scratch = Scratch::new();
    let mut archive = Archive::open(&scratch.file()).unwrap();
    let run = complete("00c0ffee", "db2", Nanos(5));
    archive.import(&run).unwrap();
    archive
        .import(&complete("00c0ffef", "db2", Nanos(6)))
        .unwrap();
    archive.delete(&NamedDocument::Run(run.id.clone())).unwrap();
    assert!(matches!(
        archive.delete(&NamedDocument::Run(run.id.clone())),
        Err(Error::NotFound { .. })
    ));
    assert!(matches!(archive.get(&run.id), Err(Error::NotFound { .. })));
    let db = rusqlite::Connection::open(scratch.file()).unwrap();
    for table in ["runs", "legs", "samples"] {
        let sql = format!("SELECT count(*) FROM {table}");
        let left: u32 = db.query_row(&sql, [], |row| row.get(0)).unwrap();
        let kept = match table {
            "runs" => 1,
            "legs" => 2,
            // A block an end.
            _ => 4,
        };
        assert_eq!(left, kept, "{table}");
    }
    // A process that still records it gets the error.
    assert!(matches!(
        archive.start_leg(&run.id, 0, Direction::Up, Nanos(0)),
        Err(Error::NotFound { .. })
    ));
    assert!(matches!(
        archive.samples(&run.id, [(0, Side::Local, &sample(0))]),
        Err(Error::NotFound { .. })
    ));
    assert!(matches!(
        archive.finish_leg(&run.id, 0, &leg(Direction::Up, 1, 1)),
        Err(Error::NotFound { .. })
    ));
    assert!(matches!(archive.finish(&run), Err(Error::NotFound { .. })));
    assert_eq!(archive.list(&RunFilter::default()).unwrap().len(), 1);
}

#[test]
fn the_directory_is_made_for_its_owner_alone() {
    let scratch = Scratch::new();
    let path = scratch.0.join("data/linerate/runs.db");
    assert!(matches!(
        Archive::open_existing(&path),
        Err(Error::Missing { .. })
    ));
    assert!(!scratch.0.join("data").exists(), "looking makes nothing");
    Archive::open(&path).unwrap();
    for made in ["data", "data/linerate"] {
        let mode = std::fs::metadata(scratch.0.join(made))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o700, "{made}");
    }
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        "[a-z]{1,8}",
        ".{0,12}",
        "\\PC{0,3}\u{0}?"
    ]
}

fn any_latency() -> impl Strategy<Value = Option<Latency>> {
    prop::option::of(
        prop::collection::vec((any::<u64>(), 0u64..1 << 40), 0..6).prop_map(Latency::from_counts),
    )
}

prop_compose! {
    fn any_sample()(at in any::<u64>(), bytes in any::<u64>(), requests in any_latency(),
                    rtts in prop::collection::vec(prop::option::of(any::<u64>()), 0..3)) -> Sample {
        let mut sample = sample(1);
        let tcp = sample.streams[0].tcp.take().unwrap();
        sample.streams = rtts.into_iter().zip(0..).map(|(rtt, stream)| StreamSample {
            stream,
            bytes: Bytes(bytes / 2),
            tcp: rtt.map(|rtt| model::socket_state! {
                from tcp.clone();
                min_rtt: Some(Nanos(rtt)),
            }),
            ..StreamSample::default()
        }).collect();
        Sample { at: Nanos(at), bytes: Bytes(bytes), requests, ..sample }
    }
}

prop_compose! {
    fn any_end()(samples in prop::collection::vec(any_sample(), 0..5), bytes in any::<u64>(),
                 duration in any::<u64>(), requests in any_latency(), text in any_text(),
                 sockets in any::<bool>(), datagrams in any::<bool>()) -> EndRecord {
        let full = common::end(0);
        EndRecord {
            acknowledged: Some(Nanos(5)),
            sockets: if sockets { full.sockets } else { Vec::new() },
            samples,
            thinned_from: None,
            bytes: Bytes(bytes),
            duration: Nanos(duration),
            requests,
            store: full.store.filter(|_| !datagrams),
            operations: if datagrams { full.operations } else { Vec::new() },
            retransmits: datagrams.then_some(bytes),
            datagrams: full.datagrams.filter(|_| datagrams),
            arrivals: full.arrivals.filter(|_| datagrams),
            copy: full.copy.filter(|_| datagrams),
            line: full.line.filter(|_| sockets),
            trace: full.trace.filter(|_| sockets),
            warnings: vec![Warning { what: text.clone(), meaning: text, remedy: String::new() }],
            signed: full.signed.filter(|_| sockets),
        }
    }
}

fn any_ended() -> impl Strategy<Value = Ended> {
    prop_oneof![
        Just(Ended::Unfinished),
        Just(Ended::Complete),
        Just(Ended::Interrupted),
        any_text().prop_map(|why| Ended::Failed { why }),
    ]
}

prop_compose! {
    fn any_leg()(up in any::<bool>(), started in any::<u64>(), local in any_end(), remote in any_end(),
                 ended in any_ended()) -> Leg {
        let direction = if up { Direction::Up } else { Direction::Down };
        Leg { direction, started: Nanos(started), local, remote, ended }
    }
}

prop_compose! {
    fn any_workload()(kind in 0..3, n in any::<u64>(), pace in prop::option::of(1e-3f64..1e7),
                      flag in any::<bool>()) -> Workload {
        match kind {
            0 => Workload::Bulk(model::Bulk {
                write_size: flag.then_some(Bytes(n)), discard: flag, zerocopy: !flag,
            }),
            1 => Workload::Request(Request {
                request_size: Bytes(n), reply_size: Bytes(1), pace_per_s: pace, reconnect: flag,
                wait: if flag { WaitMode::Hybrid } else { WaitMode::Block },
            }),
            _ => Workload::Udp(Udp { rate: BitRate(n), datagram_size: Bytes(1448) }),
        }
    }
}

prop_compose! {
    fn any_run()(id in "[0-9a-f]{8}([0-9a-f]{24})?", host in any_text(), title in prop::option::of(any_text()),
                 started in any::<u64>(), workload in any_workload(), n in any::<u64>(),
                 legs in prop::collection::vec(any_leg(), 0..3), ended in any_ended(),
                 known in any::<bool>()) -> Run {
        let mut run = complete(&id, &host, Nanos(started));
        run.title = title;
        run.remote = run.remote.filter(|_| known);
        run.spec.workload = workload;
        run.spec.directions = Directions::Bidirectional;
        run.spec.limit = if known { LegLimit::Bytes(Bytes(n)) } else { LegLimit::Requests(n) };
        run.local.sysctls.insert(host.clone(), host);
        run.legs = legs;
        run.ended = ended;
        run
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn what_goes_in_comes_out(run in any_run()) {
        let scratch = Scratch::new();
        let mut archive = Archive::open(&scratch.file()).unwrap();
        prop_assert_eq!(archive.import(&run).unwrap(), Imported::New);
        prop_assert_eq!(&archive.get(&run.id).unwrap(), &run);
        prop_assert_eq!(archive.import(&run).unwrap(), Imported::Known);
        prop_assert_eq!(archive.list(&RunFilter::default()).unwrap().len(), 1);

        // The same in steps.
        archive.delete(&NamedDocument::Run(run.id.clone())).unwrap();
        archive.begin(&run).unwrap();
        for (index, leg) in run.legs.iter().enumerate() {
            archive.start_leg(&run.id, index, Direction::Up, Nanos(0)).unwrap();
            archive.samples(&run.id, leg.remote.samples.iter().map(|s| (index, Side::Remote, s))).unwrap();
            archive.finish_leg(&run.id, index, leg).unwrap();
        }
        prop_assert_eq!(&archive.get(&run.id).unwrap(), &run);
        archive.finish(&run).unwrap();
        prop_assert_eq!(&archive.get(&run.id).unwrap(), &run);
    }
}

#[test]
fn each_host_reads_the_runs_that_it_ordered() {
    let scratch = Scratch::new();
    let mut archive = Archive::open(&scratch.file()).unwrap();
    let [one, other] = [1, 2].map(|byte| model::NodeId::new([byte; 32]));
    for n in 0..70 {
        archive.note_order(one, &format!("{n:08x}"), "d1").unwrap();
    }
    archive.note_order(other, "0000ffff", "d2").unwrap();
    archive.note_order(other, "0000ffff", "d2").unwrap();
    let numbers = |by, after| -> Vec<u64> {
        let orders = archive.orders(by, after, 64).unwrap();
        orders.iter().map(|order| order.number).collect()
    };
    assert_eq!(numbers(one, 0), (1..=64).collect::<Vec<_>>());
    assert_eq!(numbers(one, 64), (65..=70).collect::<Vec<_>>());
    assert!(numbers(one, u64::MAX).is_empty());
    let ordered = |by, run| archive.is_ordered(by, run).unwrap();
    assert!(ordered(other, "0000ffff") && !ordered(one, "0000ffff"));
    let orders = archive.orders(other, 0, 64).unwrap();
    assert_eq!(
        (orders.len(), &*orders[0].run, &*orders[0].digest),
        (1, "0000ffff", "d2")
    );
}

//! Legs of a mesh, kept and read by cell.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;
#[path = "../../calendar/tests/engines/server.rs"]
mod server;

use calendar::{Postgres, store_legs, thin_legs};
use common::Scratch;
use linerate_archive::Archive;
use model::{BitRate, Bytes, LegOutcome, MeshLeg, Nanos};
use server::PostgresServer;

fn leg(n: u64, src: &str, dst: &str, outcome: LegOutcome) -> MeshLeg {
    MeshLeg {
        run: format!("{n:032x}"),
        leg: 0,
        mesh: "db".to_owned(),
        test: "bulk".to_owned(),
        src: src.to_owned(),
        dst: dst.to_owned(),
        starts: Nanos::from_secs(1_795_392_000 + 60 * n),
        span: Nanos::from_secs(10),
        bytes: Some(Bytes(1000)),
        goodput: Some(BitRate(9_000_000_000 + n)),
        retrans_ppm: Some(12),
        rtt_idle: Some(Nanos::from_micros(100)),
        rtt_p50: Some(Nanos::from_micros(200)),
        rtt_p95: Some(Nanos::from_micros(300)),
        packets: None,
        busy: n.is_multiple_of(2),
        loss_ppm: None,
        mtu: None,
        limited_by: Some("cwnd".to_owned()),
        outcome,
        why: (outcome != LegOutcome::Good).then(|| "it is slow".to_owned()),
        level_since: Some(Nanos::from_secs(1_795_392_000)),
    }
}

#[test]
fn many_cells_read_by_two_threads_are_those_read_alone() {
    let place = Scratch::new();
    let mut archive = Archive::open(&place.file()).unwrap();
    let names: Vec<String> = (0..60).map(|n| format!("h{n}")).collect();
    let cells = names
        .iter()
        .flat_map(|src| names.iter().map(move |dst| [src.as_str(), dst]));
    let cells: Vec<[&str; 2]> = cells.collect();
    let legs = (0..).zip(&cells).filter(|(n, _)| n % 7 != 0);
    let legs: Vec<MeshLeg> = legs
        .flat_map(|(n, [src, dst])| [n, n + 10_000].map(|n| leg(n, src, dst, LegOutcome::Good)))
        .collect();
    archive.store_mesh_legs(&legs, false).unwrap();
    let read = archive
        .mesh_cells(["db", "bulk"], &cells, Nanos(u64::MAX), 1)
        .unwrap();
    assert_eq!(read.concat().len(), legs.len() / 2);
    let alone = cells.iter().map(|[src, dst]| {
        let cell = archive.mesh_cell(["db", "bulk", src, dst], Nanos(u64::MAX), 1);
        cell.unwrap()
    });
    assert!(read.into_iter().eq(alone));
}

#[test]
fn a_cell_has_its_newest_legs_first() {
    let place = Scratch::new();
    let mut archive = Archive::open(&place.file()).unwrap();
    let legs: Vec<MeshLeg> = (0..30)
        .map(|n| {
            leg(
                n,
                "a",
                if n % 3 == 0 { "c" } else { "b" },
                LegOutcome::ALL[n as usize % 5],
            )
        })
        .collect();
    archive.store_mesh_legs(&legs, false).unwrap();
    let cell = archive
        .mesh_cell(["db", "bulk", "a", "c"], Nanos(u64::MAX), 4)
        .unwrap();
    let expected: Vec<MeshLeg> = [27, 24, 21, 18].map(|n: usize| legs[n].clone()).to_vec();
    assert_eq!(cell, expected);
    let [_, _, now, _] = [27, 24, 21, 18].map(|n: usize| legs[n].starts);
    let of_now = archive.mesh_cell(["db", "bulk", "a", "c"], now, 2);
    assert_eq!(
        of_now.unwrap(),
        expected[2..],
        "none of a clock that was wrong"
    );
    assert_eq!(
        archive
            .mesh_cell(["db", "bulk", "c", "a"], Nanos(u64::MAX), 4)
            .unwrap(),
        []
    );
    assert_eq!(
        archive
            .mesh_cell(["db", "other", "a", "c"], Nanos(u64::MAX), 4)
            .unwrap(),
        []
    );

    // The same leg again is one leg.
    let again = MeshLeg {
        outcome: LegOutcome::Failed,
        ..legs[27].clone()
    };
    archive
        .store_mesh_legs(std::slice::from_ref(&again), false)
        .unwrap();
    let cell = archive
        .mesh_cell(["db", "bulk", "a", "c"], Nanos(u64::MAX), 99)
        .unwrap();
    assert_eq!((cell.len(), &cell[0]), (10, &again));
}

#[test]
fn bytes_of_a_host_are_sent_and_received() {
    let place = Scratch::new();
    let mut archive = Archive::open(&place.file()).unwrap();
    let legs = [
        leg(0, "a", "b", LegOutcome::Good),
        leg(1, "b", "a", LegOutcome::Low),
        leg(2, "b", "c", LegOutcome::Good),
    ];
    archive.store_mesh_legs(&legs, false).unwrap();
    let of = |host: &str, since: usize| archive.mesh_bytes("db", host, legs[since].starts).unwrap();
    assert_eq!(
        [of("a", 0), of("a", 1), of("b", 0), of("c", 0), of("d", 0)],
        [2000, 1000, 3000, 1000, 0].map(Bytes)
    );
}

/// What a damaged disk changed is not shown.
#[test]
fn a_damaged_row_is_left_out() {
    let place = Scratch::new();
    let mut archive = Archive::open(&place.file()).unwrap();
    archive
        .store_mesh_legs(
            &[
                leg(0, "a", "b", LegOutcome::Good),
                leg(1, "a", "b", LegOutcome::Good),
            ],
            false,
        )
        .unwrap();
    drop(archive);
    let db = rusqlite::Connection::open(place.file()).unwrap();
    db.execute(
        "UPDATE mesh_legs SET goodput_bit_s = 1 WHERE run LIKE '%1'",
        [],
    )
    .unwrap();
    drop(db);
    let archive = Archive::open(&place.file()).unwrap();
    let cell = archive
        .mesh_cell(["db", "bulk", "a", "b"], Nanos(u64::MAX), 9)
        .unwrap();
    assert_eq!(cell, [leg(0, "a", "b", LegOutcome::Good)]);
}

#[test]
fn light_probes_are_thinned_out_and_no_bytes_of_legs() {
    let place = Scratch::new();
    let mut archive = Archive::open(&place.file()).unwrap();
    // One a minute from an hour's start on, a bad one in each ten, and a booked leg at the same times.
    let light = |n: u64| MeshLeg {
        packets: Some(20),
        outcome: if n % 10 == 3 {
            LegOutcome::Low
        } else {
            LegOutcome::Good
        },
        bytes: None,
        ..leg(n, "a", "b", LegOutcome::Good)
    };
    let booked = |n: u64| MeshLeg {
        run: format!("{:032x}", n + 1000),
        test: "r".to_owned(),
        ..leg(n, "a", "b", LegOutcome::Good)
    };
    let legs: Vec<MeshLeg> = (0..120).map(light).chain((0..120).map(booked)).collect();
    archive.store_mesh_legs(&legs, false).unwrap();
    let hour = legs[0].starts;
    let of = |archive: &Archive, test| -> Vec<u64> {
        let legs = archive
            .mesh_cell(["db", test, "a", "b"], Nanos(u64::MAX), 1000)
            .unwrap();
        legs.iter()
            .rev()
            .map(|leg| leg.starts.since(hour).0 / 60_000_000_000)
            .collect()
    };
    let cells = [["db", "bulk", "a", "b"], ["db", "r", "a", "b"]];
    for _ in 0..2 {
        let until = hour + Nanos::from_secs(90 * 60);
        archive.thin_mesh_legs(&cells, [hour, until]).unwrap();
        let expected: Vec<u64> = [0, 3, 13, 23, 33, 43, 53, 60, 63, 73, 83]
            .into_iter()
            .chain(90..120)
            .collect();
        assert_eq!(of(&archive, "bulk"), expected);
        assert_eq!(of(&archive, "r").len(), 120);
    }
    assert_eq!(
        archive.mesh_bytes("db", "a", hour).unwrap(),
        Bytes(120 * 1000)
    );
}

/// Rows wait until they are in the PostgreSQL that coordinators share; there is one of each, and it gives the same of them.
#[test]
fn rows_that_wait_are_shared_once() {
    let place = Scratch::new();
    let mut archive = Archive::open(&place.file()).unwrap();
    let server = PostgresServer::start(&["fsync=off"]);
    let address = server.database("meshes").parse().unwrap();
    let now = std::time::SystemTime::now();
    let now = now.duration_since(std::time::UNIX_EPOCH).unwrap();
    assert!(
        Postgres::open_to_read(&address, "a test").is_err(),
        "nothing is there yet"
    );
    let mut shared = Postgres::open(&address, "a test", now.as_millis() as i64).unwrap();

    // What an agent may have sent, and PostgreSQL has not in its text.
    let hostile = |nul: char| MeshLeg {
        why: Some(format!("an{nul}end")),
        ..leg(998, "x", "y", LegOutcome::Failed)
    };
    store_legs(&mut shared, &[hostile('\0')]).unwrap();
    let there = shared
        .cells(["db", "bulk"], &[["x", "y"]], Nanos(u64::MAX), 9)
        .unwrap();
    assert_eq!(there, [[hostile('\u{fffd}')]]);

    let names = ["a", "o'b", "\u{e4}\u{1d}"];
    let pairs = [[0, 1], [1, 0], [1, 2]].map(|pair| pair.map(|host: usize| names[host]));
    let legs = (0..300).map(|n| {
        let [src, dst] = pairs[n as usize % 3];
        let light = n % 4 > 0;
        MeshLeg {
            packets: light.then_some(20),
            bytes: (!light).then_some(Bytes(u64::MAX)),
            mtu: light.then_some(1500),
            limited_by: None,
            ..leg(n, src, dst, LegOutcome::ALL[(n % 7 % 5) as usize])
        }
    });
    let legs: Vec<MeshLeg> = legs.collect();
    let other = MeshLeg {
        mesh: "other".to_owned(),
        ..leg(999, "a", "o'b", LegOutcome::Good)
    };
    archive.store_mesh_legs(&legs, true).unwrap();
    archive.store_mesh_legs(&[other], true).unwrap();
    let first = archive.unsent_mesh_legs("db", 100).unwrap();
    assert_eq!(first.len(), 100);
    assert_eq!(first[0], legs[299], "the newest first");
    // Killed before it was noted: they are delivered again.
    store_legs(&mut shared, &first).unwrap();
    // One is replaced between.
    let replaced = MeshLeg {
        outcome: LegOutcome::Failed,
        why: Some("it's over".to_owned()),
        ..first[7].clone()
    };
    archive
        .store_mesh_legs(std::slice::from_ref(&replaced), true)
        .unwrap();
    archive.mesh_legs_sent(&first).unwrap();
    let mut delivered = 100;
    loop {
        let waiting = archive.unsent_mesh_legs("db", 64).unwrap();
        if waiting.is_empty() {
            break;
        }
        delivered += waiting.len();
        for _ in 0..2 {
            store_legs(&mut shared, &waiting).unwrap();
        }
        archive.mesh_legs_sent(&waiting).unwrap();
    }
    assert_eq!(delivered, 301, "the one that was replaced twice");
    assert_eq!(archive.unsent_mesh_legs("other", 9).unwrap().len(), 1);
    let rows = "SELECT count(*) FROM linerate.mesh_legs";
    assert_eq!(server.sql("meshes", rows), "301");
    let by_then = legs[150].starts;
    let there = shared.cells(["db", "bulk"], &pairs, by_then, 1).unwrap();
    let here = pairs.map(|[src, dst]| archive.mesh_cell(["db", "bulk", src, dst], by_then, 1));
    assert_eq!(there, here.map(Result::unwrap));
    assert_eq!(
        there[0][0].starts, by_then,
        "none of a clock that was wrong"
    );
    let same = |archive: &Archive, limit| {
        // A standby or another host reads it.
        let mut reader = Postgres::open_to_read(&address, "a test").unwrap();
        let there = reader
            .cells(["db", "bulk"], &pairs, Nanos(u64::MAX), limit)
            .unwrap();
        let here = pairs
            .map(|[src, dst]| archive.mesh_cell(["db", "bulk", src, dst], Nanos(u64::MAX), limit));
        assert_eq!(there, here.map(Result::unwrap));
        there.concat()
    };
    assert_eq!(same(&archive, 21).len(), 63);
    assert!(same(&archive, 999).contains(&replaced));
    let cells = pairs.map(|[src, dst]| ["db", "bulk", src, dst]);
    let times = [legs[0].starts, legs[250].starts];
    archive.thin_mesh_legs(&cells, times).unwrap();
    let times = times.map(|time| (time.0 / 1_000_000) as i64);
    thin_legs(&mut shared, &cells, times).unwrap();
    // As on a standby, nothing can be written.
    let read_only = "ALTER DATABASE meshes SET default_transaction_read_only = on";
    server.sql("meshes", read_only);
    assert!(same(&archive, 999).len() < 290);
    assert!(Postgres::open(&address, "a test", now.as_millis() as i64).is_err());
}

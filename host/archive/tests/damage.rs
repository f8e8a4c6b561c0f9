//! Damage of the file: found by every read, named by `verify`, never shown as data.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{Scratch, begun, complete, sample};
use linerate_archive::{Archive, ArchiveRow, Error, NamedDocument, RunFilter};
use model::{Direction, Latency, Nanos, Random, Run, Side};
use std::path::Path;

const FINISHED: [&str; 2] = ["00c0ffee", "00c0ffef"];
const UNFINISHED: &str = "0000dead";

fn fill(path: &Path) {
    let mut archive = Archive::open(path).unwrap();
    for (id, started) in FINISHED.into_iter().zip(5..) {
        archive
            .import(&complete(id, "db2", Nanos(started)))
            .unwrap();
    }
    // Bytes that say something: what rises evenly takes few.
    let mut random = Random::new(3, 0);
    for n in 0..20 {
        let mut run = complete(&format!("{n:032x}"), "db2", Nanos(1));
        let latencies = (0..2000).map(|_| (random.bits(), 1));
        run.legs[0].local.samples[1].requests = Some(Latency::from_counts(latencies));
        archive.import(&run).unwrap();
    }
    archive.begin(&begun(UNFINISHED, "db2", Nanos(9))).unwrap();
    archive
        .start_leg(UNFINISHED, 0, Direction::Up, Nanos(0))
        .unwrap();
    for n in 0..40 {
        archive
            .samples(UNFINISHED, [(0, Side::Local, &sample(n))])
            .unwrap();
    }
    assert!(archive.verify(&[], &mut |_| {}).is_empty());
}

/// What the archive gives out, `None` where it refuses.
fn read(path: &Path) -> (Vec<Option<Run>>, Option<Vec<ArchiveRow>>) {
    let Ok(archive) = Archive::open_existing(path) else {
        return (vec![None; 3], None);
    };
    let ids = FINISHED.into_iter().chain([UNFINISHED]);
    let runs = ids.map(|id| archive.get(id).ok()).collect();
    (runs, archive.list(&RunFilter::default()).ok())
}

#[test]
fn no_flipped_bit_changes_what_is_read_in_silence() {
    const FLIPS: usize = 60;
    let scratch = Scratch::new();
    let path = scratch.file();
    fill(&path);
    let whole = std::fs::read(&path).unwrap();
    let was = read(&path);
    assert!(was.0.iter().all(Option::is_some));
    let mut random = 42_u64;
    let mut found = 0;
    for _ in 0..FLIPS {
        // Knuth's MMIX generator; its high bits are the good ones.
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let bit = (random >> 16) as usize % (whole.len() * 8);
        let mut damaged = whole.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        for more in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(path.with_file_name(format!("runs.db{more}")));
        }
        std::fs::write(&path, &damaged).unwrap();
        let is = read(&path);
        for (was, is) in was.0.iter().zip(&is.0).take(FINISHED.len()) {
            assert!(is.is_none() || is == was, "bit {bit}: other data is shown");
        }
        let reported = match Archive::open_existing(&path) {
            Ok(archive) => archive.verify(&[], &mut |_| {}).len(),
            Err(_) => 1,
        };
        assert!(is == was || reported > 0, "bit {bit}: no word of it");
        found += usize::from(reported > 0);
    }
    assert!(found > FLIPS / 2, "{found} of {FLIPS} were found");
}

#[test]
fn what_is_damaged_is_named_and_can_be_deleted() {
    let scratch = Scratch::new();
    let path = scratch.file();
    fill(&path);
    let db = rusqlite::Connection::open(&path).unwrap();
    let mut archive = Archive::open(&path).unwrap();
    let [one, other] = FINISHED;
    for (damage, id, part) in [
        (
            "UPDATE samples SET block = CAST(block || x'00' AS BLOB)
             WHERE run = '00c0ffee' AND leg = 1 AND side = 'remote'",
            one,
            "samples of leg 2 from number 1",
        ),
        (
            "DELETE FROM samples WHERE run = '00c0ffee' AND leg = 0 AND side = 'local'",
            one,
            "it has 20 of 50 samples of leg 1",
        ),
        (
            "DELETE FROM samples WHERE run = '0000dead' AND n = 7",
            UNFINISHED,
            "samples of leg 1 from number 8",
        ),
        (
            "UPDATE legs SET direction = 'down' WHERE run = '00c0ffee' AND leg = 0",
            one,
            "leg 1",
        ),
        (
            "DELETE FROM legs WHERE run = '00c0ffef' AND leg = 1",
            other,
            "it has 1 of 2 legs",
        ),
        (
            "UPDATE runs SET goodput_up_bit_s = 1 WHERE id = '00c0ffef'",
            other,
            "its document",
        ),
    ] {
        assert_eq!(db.execute(damage, []).unwrap(), 1, "{damage}");
        let said = archive.get(id).unwrap_err();
        assert!(matches!(said, Error::DamagedPart { .. }), "{said:?}");
        assert_eq!(
            said.to_string(),
            format!(
                "the run {id} in the archive {} is damaged ({part}) and is not shown: \
                 'linerate runs delete {id}' removes it, and an export of it can be imported again",
                path.display()
            )
        );
        let verified = |named: &[NamedDocument]| -> Vec<String> {
            archive
                .verify(named, &mut |_| {})
                .iter()
                .map(Error::to_string)
                .collect()
        };
        assert!(verified(&[]).contains(&said.to_string()));
        assert_eq!(
            verified(&[NamedDocument::Run(id.to_owned())]),
            [said.to_string()]
        );
    }
    let error = archive.list(&RunFilter::default()).unwrap_err();
    assert!(error.to_string().contains(other), "{error}");
    for id in [one, other, UNFINISHED] {
        archive.delete(&NamedDocument::Run(id.to_owned())).unwrap();
    }
    assert!(archive.verify(&[], &mut |_| {}).is_empty());
}

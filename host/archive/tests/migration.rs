//! An archive that an older version wrote.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::Scratch;
use linerate_archive::{Archive, Error, RunFilter};
use model::{Ended, Run, Sample, Side};
use rusqlite::{Connection, params};
use std::path::Path;

/// Two whole runs and one that was killed, by the version that kept a row a sample (form 6).
const FORM_6: &[u8] = include_bytes!("form6.db.gz");
const FINISHED: [&str; 2] = ["1ebb3532", "58076da0"];
const KILLED: &str = "84630710";

fn unpack(path: &Path) -> Connection {
    let mut file = std::fs::File::create(path).unwrap();
    std::io::copy(&mut flate2::read::GzDecoder::new(FORM_6), &mut file).unwrap();
    Connection::open(path).unwrap()
}

/// The samples that the older file has of one end.
fn samples(old: &Connection, run: &str, leg: usize, side: Side) -> Vec<Sample> {
    let sql = "SELECT document FROM samples WHERE run = ?1 AND leg = ?2 AND side = ?3 ORDER BY n";
    let mut query = old.prepare(sql).unwrap();
    let rows = query.query_map(params![run, leg, side.name()], |row| row.get(0));
    let documents: Vec<String> = rows.unwrap().collect::<Result<_, _>>().unwrap();
    let parsed = documents
        .iter()
        .map(|text| serde_json::from_str(text).unwrap());
    parsed.collect()
}

#[test]
fn all_of_an_older_archive_is_there_in_less_place() {
    let scratch = Scratch::new();
    let path = scratch.file();
    let old = unpack(&path);
    let ids = FINISHED.into_iter().chain([KILLED]);
    let was: Vec<_> = ids
        .clone()
        .map(|id| {
            let sql = "SELECT document FROM runs WHERE id = ?1";
            let document: String = old.query_row(sql, [id], |row| row.get(0)).unwrap();
            let head: Run = serde_json::from_str(&document).unwrap();
            let ends = (0..2).flat_map(|leg| [(leg, Side::Local), (leg, Side::Remote)]);
            let ends = ends.map(|(leg, side)| samples(&old, id, leg, side));
            (head, ends.collect::<Vec<_>>())
        })
        .collect();
    drop(old);
    let before = std::fs::metadata(&path).unwrap().len();
    let archive = Archive::open_to_read(&path).unwrap();
    for (id, (head, ends)) in ids.zip(was) {
        let run = archive.get(id).unwrap();
        assert_eq!(
            Run {
                legs: Vec::new(),
                ..run.clone()
            },
            head
        );
        assert_eq!(run.ended == Ended::Complete, FINISHED.contains(&id));
        let mut kept = run.legs.iter().flat_map(|leg| [&leg.local, &leg.remote]);
        for samples in ends.iter().filter(|samples| !samples.is_empty()) {
            assert_eq!(kept.next().unwrap().samples, *samples);
        }
        assert!(kept.next().is_none());
    }
    assert!(archive.verify(&[], &mut |_| {}).is_empty());
    assert_eq!(archive.list(&RunFilter::default()).unwrap().len(), 3);
    for path in archive.paths().unwrap() {
        // It knew no ids of keys.
        assert_eq!(
            [&path.local, &path.host],
            [&path.local_key, &path.remote_key]
        );
        assert!(!archive.runs_of(&path, 9).unwrap().is_empty());
    }
    drop(archive);
    let after = std::fs::metadata(&path).unwrap().len();
    assert!(after < before * 3 / 4, "{after} of {before} bytes");
}

#[test]
fn what_was_damaged_is_damaged() {
    let scratch = Scratch::new();
    let path = scratch.file();
    let old = unpack(&path);
    let [whole, damaged] = FINISHED;
    for id in [damaged, KILLED] {
        let damage =
            "UPDATE samples SET at_ns = at_ns + 1 WHERE run = ?1 AND n = 2 AND side = 'local'";
        assert_eq!(old.execute(damage, [id]).unwrap(), 1);
    }
    drop(old);
    let archive = Archive::open(&path).unwrap();
    assert!(archive.get(whole).is_ok());
    for id in [damaged, KILLED] {
        let error = archive.get(id).unwrap_err();
        assert!(matches!(error, Error::DamagedPart { .. }), "{error}");
    }
}

//! Killed processes, several writers, full disks, files that are not ours: with real processes.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{Scratch, begun, child, complete, in_child, leg, sample, until};
use linerate_archive::{Archive, Error, NamedDocument, Recorder, RunFilter};
use model::{Direction, Ended, Leg, Nanos, Run, Sample, Side};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// What a killed child had written: its run reads as unfinished, its samples are the first ones.
fn assert_unfinished(path: &Path, at_least: usize) {
    let archive = Archive::open(path).unwrap();
    let run = archive.get("last").unwrap();
    assert_eq!(run.ended, Ended::Unfinished);
    let leg = &run.legs[0];
    assert_eq!(leg.ended, Ended::Unfinished);
    let samples = &leg.local.samples;
    assert!(samples.len() >= at_least, "{} samples", samples.len());
    let first: Vec<Sample> = (0..samples.len() as u64).map(sample).collect();
    assert_eq!(*samples, first);
    assert_eq!(leg.local.bytes, samples.last().unwrap().bytes);
    assert_eq!(archive.list(&RunFilter::default()).unwrap().len(), 1);
    let check: String = rusqlite::Connection::open(path)
        .unwrap()
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(check, "ok");
}

#[test]
fn child_that_writes_until_killed() {
    let Some(path) = in_child() else { return };
    let mut archive = Archive::open(&path).unwrap();
    let run = begun("0000dead", "db2", Nanos(1));
    archive.begin(&run).unwrap();
    archive
        .start_leg(&run.id, 0, Direction::Up, Nanos(0))
        .unwrap();
    for n in 0.. {
        archive
            .samples(&run.id, [(0, Side::Local, &sample(n))])
            .unwrap();
        println!("\nwritten {n}");
    }
}

#[test]
fn a_killed_process_loses_no_sample_that_was_kept() {
    let scratch = Scratch::new();
    let mut child = child("child_that_writes_until_killed", &scratch.file())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(said.any(|line| line.unwrap() == "written 99"));
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    assert_unfinished(&scratch.file(), 100);
}

#[test]
fn child_that_records_until_killed() {
    let Some(path) = in_child() else { return };
    let run = begun("0000dead", "db2", Nanos(1));
    let mut recorder = Recorder::start(Archive::open(&path).unwrap(), &run).unwrap();
    recorder.start_leg(0, Direction::Up, Nanos(0));
    for n in 0.. {
        recorder.sample(0, Side::Local, &sample(n));
        assert!(recorder.trouble().is_none());
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

#[test]
fn a_recording_that_is_killed_can_be_read_before_and_after() {
    let scratch = Scratch::new();
    let mut child = child("child_that_records_until_killed", &scratch.file())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let kept = || {
        let run = Archive::open_existing(&scratch.file()).and_then(|a| a.get("last"));
        run.map_or(0, |run| {
            run.legs.first().map_or(0, |leg| leg.local.samples.len())
        })
    };
    until("300 samples", || kept() >= 300);
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    assert_unfinished(&scratch.file(), 300);
}

#[test]
fn samples_are_committed_without_waiting_for_the_next() {
    let scratch = Scratch::new();
    let run = begun("00c0ffee", "db2", Nanos(1));
    let mut recorder = Recorder::start(Archive::open(&scratch.file()).unwrap(), &run).unwrap();
    recorder.start_leg(0, Direction::Up, Nanos(0));
    let reader = Archive::open_existing(&scratch.file()).unwrap();
    for n in 0..3 {
        recorder.sample(0, Side::Remote, &sample(n));
    }
    until("three samples", || {
        let run = reader.get("last").unwrap();
        run.legs
            .first()
            .is_some_and(|l| l.remote.samples.len() == 3)
    });
    drop(recorder);
    assert_eq!(reader.get("last").unwrap().ended, Ended::Unfinished);
}

#[test]
fn a_recording_without_a_leg_is_taken_back() {
    let scratch = Scratch::new();
    let run = begun("00c0ffee", "db2", Nanos(1));
    let recorder = Recorder::start(Archive::open(&scratch.file()).unwrap(), &run).unwrap();
    let reader = Archive::open_existing(&scratch.file()).unwrap();
    assert_eq!(reader.get("last").unwrap(), run);
    drop(recorder);
    assert!(matches!(reader.get("last"), Err(Error::Empty { .. })));
}

/// Records `run` as a measurement would.
fn record(recorder: &mut Recorder, run: &Run) {
    recorder.update(run);
    for (index, leg) in run.legs.iter().enumerate() {
        recorder.start_leg(index, leg.direction, leg.started);
        for side in [Side::Local, Side::Remote] {
            for sample in &leg.end(side).samples {
                recorder.sample(index, side, sample);
            }
        }
        recorder.finish_leg(index, leg);
    }
}

const WRITERS: u64 = 4;
const RUNS: u64 = 5;

fn run_of(writer: u64, n: u64) -> Run {
    let id = format!("{:08x}", writer << 16 | n);
    complete(&id, &format!("writer{writer}"), Nanos(1 + n))
}

#[test]
fn child_that_records_several_runs() {
    let Some(path) = in_child() else { return };
    let writer = std::env::var("WRITER").unwrap().parse().unwrap();
    for n in 0..RUNS {
        let run = run_of(writer, n);
        let mut head = run.clone();
        head.legs.clear();
        let mut recorder = Recorder::start(Archive::open(&path).unwrap(), &head).unwrap();
        record(&mut recorder, &run);
        let trouble = recorder.trouble();
        assert!(trouble.is_none(), "{trouble:?}");
        recorder.finish(&run).unwrap();
        // And without the recorder: one commit a sample.
        let mut archive = Archive::open(&path).unwrap();
        let leg = run.legs.len();
        archive
            .start_leg(&run.id, leg, Direction::Up, Nanos(0))
            .unwrap();
        for n in 0..20 {
            archive
                .samples(&run.id, [(leg, Side::Local, &sample(n))])
                .unwrap();
        }
        archive.finish(&run).unwrap();
    }
}

#[test]
fn several_processes_make_the_archive_and_write_at_once() {
    let scratch = Scratch::new();
    let children: Vec<_> = (0..WRITERS)
        .map(|writer| {
            child("child_that_records_several_runs", &scratch.file())
                .env("WRITER", writer.to_string())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    for child in children {
        assert_passed(&child.wait_with_output().unwrap());
    }
    let archive = Archive::open_existing(&scratch.file()).unwrap();
    for (writer, n) in (0..WRITERS).flat_map(|w| (0..RUNS).map(move |n| (w, n))) {
        let run = run_of(writer, n);
        assert_eq!(archive.get(&run.id).unwrap(), run);
    }
    let all = archive.list(&RunFilter::default()).unwrap();
    assert_eq!(all.len() as u64, WRITERS * RUNS);
}

fn assert_passed(output: &Output) {
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Records until the archive gives up, and returns the reason.
fn record_until_trouble(path: &Path) -> (Recorder, Run, Error) {
    let mut run = begun("00c0ffee", "db2", Nanos(1));
    let mut recorder = Recorder::start(Archive::open(path).unwrap(), &run).unwrap();
    recorder.start_leg(0, Direction::Up, Nanos(0));
    let mut n = 0;
    let mut trouble = None;
    until("trouble", || {
        recorder.sample(0, Side::Local, &sample(n));
        n += 1;
        trouble = recorder.trouble();
        trouble.is_some()
    });
    assert!(recorder.trouble().is_none(), "said once");
    // The measurement goes on and its figures are complete.
    let whole: Leg = leg(Direction::Up, n, 0);
    recorder.finish_leg(0, &whole);
    run.legs.push(whole);
    run.ended = Ended::Complete;
    (recorder, run, trouble.unwrap())
}

#[test]
fn child_on_a_full_disk() {
    let Some(path) = in_child() else { return };
    let ballast = path.with_file_name("ballast");
    std::fs::write(&ballast, vec![1; 200 << 10]).unwrap();

    let (recorder, run, trouble) = record_until_trouble(&path);
    assert!(matches!(trouble, Error::Full { .. }), "{trouble:?}");
    let said = trouble.to_string();
    assert!(said.starts_with("the disk is full: cannot"), "{said}");
    assert!(said.contains(path.to_str().unwrap()), "{said}");
    let last = recorder.finish(&run).unwrap_err();
    assert!(matches!(last, Error::Full { .. }), "{last:?}");

    // What was kept before stays readable, on the full disk.
    let left = std::fs::File::create(path.with_file_name("rest"));
    let _ = std::io::copy(&mut std::io::repeat(1), &mut left.unwrap());
    let kept = Archive::open_existing(&path).unwrap().get("last").unwrap();
    assert_eq!(kept.ended, Ended::Unfinished);
    let samples = &kept.legs[0].local.samples;
    assert!(!samples.is_empty());
    assert_eq!(*samples, run.legs[0].local.samples[..samples.len()]);

    // Once there is room, the end of the run brings all that was left out.
    for left in ["rest", "runs.db", "runs.db-wal", "runs.db-shm"] {
        let _ = std::fs::remove_file(path.with_file_name(left));
    }
    let (recorder, run, _) = record_until_trouble(&path);
    std::fs::remove_file(&ballast).unwrap();
    recorder.finish(&run).unwrap();
    let kept = Archive::open_existing(&path).unwrap().get("last").unwrap();
    assert_eq!(kept, run);
}

#[test]
fn a_full_disk_is_said_and_what_was_kept_stays() {
    let scratch = Scratch::new();
    // A file system of 1 MiB in a mount namespace of the child alone: it goes away with it.
    let script = "mount -t tmpfs -o size=1m none \"$0\" && exec \"$@\"";
    let inner = child("child_on_a_full_disk", &scratch.file());
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", script])
        .arg(&scratch.0)
        .arg(inner.get_program())
        .args(inner.get_args())
        .env(common::CHILD, scratch.file())
        .output();
    let said = output
        .as_ref()
        .map(|o| String::from_utf8_lossy(&o.stderr).into_owned());
    match (&output, said) {
        (Ok(output), Ok(said)) if !said.contains("unshare:") && !said.contains("mount:") => {
            assert_passed(output);
        }
        // The unit test with a bounded file covers the same error where this cannot run.
        (_, said) => assert!(
            std::env::var_os("CI").is_none(),
            "cannot mount a small file system: {said:?}"
        ),
    }
}

#[test]
fn child_with_a_file_size_limit() {
    let Some(path) = in_child() else { return };
    let (recorder, run, trouble) = record_until_trouble(&path);
    assert!(matches!(trouble, Error::Refused { .. }), "{trouble:?}");
    let last = recorder.finish(&run).unwrap_err();
    assert!(matches!(last, Error::Refused { .. }), "{last:?}");
}

#[test]
fn a_refused_write_is_said() {
    let scratch = Scratch::new();
    let inner = child("child_with_a_file_size_limit", &scratch.file());
    let output = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 1000; exec \"$0\" \"$@\""])
        .arg(inner.get_program())
        .args(inner.get_args())
        .env(common::CHILD, scratch.file())
        .output()
        .unwrap();
    assert_passed(&output);
    let kept = Archive::open(&scratch.file()).unwrap().get("last").unwrap();
    assert!(!kept.legs[0].local.samples.is_empty());
}

#[test]
fn child_without_rights() {
    let Some(path) = in_child() else { return };
    let directory = path.parent().unwrap();
    let sentence = |at: &Path| Archive::open(at).unwrap_err().to_string();
    // A directory of others.
    assert_eq!(
        sentence(&directory.join("new.db")),
        format!(
            "cannot open the archive of runs {}: the file and its directory must be yours to write \
             (SQLite keeps two more files beside it); name another with --archive",
            directory.join("new.db").display()
        )
    );
    let below = directory.join("below/runs.db");
    assert_eq!(
        sentence(&below),
        format!(
            "cannot make the directory {} for the archive of runs: Permission denied (os error 13)",
            directory.join("below").display()
        )
    );
    // An archive of others, in a directory of others and in one that anyone may write.
    for file in [path.clone(), directory.join("open/runs.db")] {
        let error = Archive::open(&file).unwrap_err();
        let is_said = matches!(error, Error::Open { .. } | Error::ReadOnly { .. });
        assert!(is_said, "{error:?}");
        // It can be looked at all the same.
        let mut archive = Archive::open_existing(&file).unwrap();
        assert_eq!(
            archive.get("last").unwrap(),
            complete("00c0ffee", "db2", Nanos(1))
        );
        let error = archive
            .delete(&NamedDocument::Run("00c0ffee".into()))
            .unwrap_err();
        assert!(matches!(error, Error::ReadOnly { .. }), "{error:?}");
    }
    assert!(!directory.join("new.db").exists());
}

#[test]
fn missing_rights_are_said() {
    let scratch = Scratch::new();
    let mode = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let open = scratch.0.join("open");
    std::fs::create_dir(&open).unwrap();
    for file in [scratch.file(), open.join("runs.db")] {
        let mut archive = Archive::open(&file).unwrap();
        archive
            .import(&complete("00c0ffee", "db2", Nanos(1)))
            .unwrap();
        drop(archive);
        mode(&file, 0o444);
    }
    // The test binary may lie where only its owner can go.
    let binary = scratch.0.join("test");
    std::fs::copy(std::env::current_exe().unwrap(), &binary).unwrap();
    mode(&open, 0o777);
    mode(&scratch.0, 0o555);
    let inner = child("child_without_rights", &scratch.file());
    let mut command = Command::new(binary);
    command
        .args(inner.get_args())
        .env(common::CHILD, scratch.file());
    if std::fs::metadata("/proc/self").is_ok_and(|me| {
        use std::os::unix::fs::MetadataExt;
        me.uid() == 0
    }) {
        // Nothing is forbidden to root.
        command.uid(65534).gid(65534);
    }
    let output = command.output().unwrap();
    mode(&scratch.0, 0o755);
    assert_passed(&output);
}

#[test]
fn other_files_are_left_as_they_are() {
    let scratch = Scratch::new();
    let path = scratch.file();
    let other = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        let error = Archive::open(&path).unwrap_err();
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
        error
    };
    let no_database = other(&[b'x'; 5000]);
    assert_eq!(
        no_database.to_string(),
        format!(
            "{} is not an archive of linerate and was not modified: name another file with --archive",
            path.display()
        )
    );
    assert!(matches!(other(b"short"), Error::NotAnArchive { .. }));

    // A database of someone else.
    std::fs::remove_file(&path).unwrap();
    let db = rusqlite::Connection::open(&path).unwrap();
    db.execute_batch("CREATE TABLE t (x); PRAGMA user_version = 1;")
        .unwrap();
    drop(db);
    let bytes = std::fs::read(&path).unwrap();
    assert!(matches!(other(&bytes), Error::NotAnArchive { .. }));

    std::fs::remove_file(&path).unwrap();
    let error = Archive::open(&scratch.0).unwrap_err().to_string();
    assert!(
        error.ends_with("it is a directory; name a file with --archive"),
        "{error}"
    );
    // An empty file becomes an archive.
    std::fs::write(&path, b"").unwrap();
    Archive::open(&path).unwrap();
}

#[test]
fn a_damaged_archive_is_said_to_be() {
    let scratch = Scratch::new();
    let mut archive = Archive::open(&scratch.file()).unwrap();
    archive
        .import(&complete("00c0ffee", "db2", Nanos(1)))
        .unwrap();
    drop(archive);
    let mut bytes = std::fs::read(scratch.file()).unwrap();
    assert!(bytes.len() > 5 * 4096);
    // The pages behind the first hold the tables.
    bytes[4096..].fill(0xa5);
    std::fs::write(scratch.file(), bytes).unwrap();
    let error = Archive::open_existing(&scratch.file())
        .and_then(|archive| archive.get("last"))
        .unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }), "{error:?}");
}

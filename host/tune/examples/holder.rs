//! What the tests kill: applies settings and undoes them, as a process of its own.
//!
//!     holder hold STATE PEER SETTING...    begin, apply, read back, undo, apply again, end
//!     holder wait STATE PEER SETTING...    begin, apply, then do as the standard input says
//!     holder try STATE PEER SETTING...     begin, apply, whether it can be done or not, end
//!     holder keep STATE PEER SETTING...    begin, apply, keep
//!     holder recover STATE
//!     holder undo STATE                    the same, and what was kept
//!     holder status STATE
//!     holder talk STATE ADDRESS            a connection of this process with itself
//!     holder flush STATE ADDRESS
//!     holder guard JOURNAL                 what the others start

#![allow(clippy::unwrap_used)]

use model::{Setting, Side};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tune::{Begin, Error, TuningSession, Undone};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["guard", journal] => tune::guard(Path::new(journal)),
        ["recover", state] => tune::recover(Path::new(state)).map(print),
        ["undo", state] => tune::undo_kept(Path::new(state)).map(print),
        ["keep", state, peer, ..] => keep(state, peer, &words[3..]),
        ["commit", state, title] => tune::commit(Path::new(state), title),
        ["status", state] => tune::status(Path::new(state)).map(|all| println!("{all:?}")),
        ["talk", _, address] => {
            talk(address);
            Ok(())
        }
        ["flush", _, address] => tune::flush_metrics(address.parse().unwrap()),
        ["try", state, peer, ..] => attempt(state, peer, &words[3..]),
        ["hold", state, peer, ..] => hold(state, peer, &words[3..]),
        ["wait", state, peer, ..] => wait(state, peer, &words[3..]),
        _ => panic!("{words:?}"),
    };
    if let Err(error) = done {
        println!("{error}");
        std::process::exit(1);
    }
}

fn print(all: Vec<Undone>) {
    for undone in all {
        let note = undone.note.map(|note| format!(" ({note})"));
        println!(
            "{} back to {}{}",
            undone.setting,
            undone.back_to,
            note.unwrap_or_default()
        );
    }
}

fn begin(state: &str, deadline: Duration) -> Result<TuningSession, Error> {
    let mut guard = Command::new(std::env::current_exe().unwrap());
    guard.arg("guard");
    tune::begin(Begin {
        state: state.into(),
        title: "a test".to_owned(),
        deadline,
        guard,
        side: Side::Local,
    })
}

fn settings(texts: &[&str]) -> Vec<Setting> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn hold(state: &str, peer: &str, texts: &[&str]) -> Result<(), Error> {
    let settings = settings(texts);
    let mut hold = begin(state, Duration::from_secs(600))?;
    let empty = bytes(Path::new(state));
    for reading in hold.apply(&settings, peer.parse().unwrap())? {
        assert!(reading.in_force, "{reading:?}");
    }
    assert_eq!(hold.undo()?.len(), settings.len());
    assert_eq!(bytes(Path::new(state)), empty, "the journal is empty again");
    hold.apply(&settings, peer.parse().unwrap())?;
    assert_eq!(hold.end()?.len(), settings.len());
    Ok(())
}

/// Of all files in a directory.
fn bytes(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).unwrap().map(Result::unwrap);
    let size = |entry: std::fs::DirEntry| match entry.metadata().unwrap() {
        one if one.is_dir() => bytes(&entry.path()),
        one => one.len(),
    };
    entries.map(size).sum()
}

fn keep(state: &str, peer: &str, texts: &[&str]) -> Result<(), Error> {
    let mut hold = begin(state, Duration::from_secs(600))?;
    hold.apply(&settings(texts), peer.parse().unwrap())?;
    hold.keep().map(drop)
}

fn attempt(state: &str, peer: &str, texts: &[&str]) -> Result<(), Error> {
    let mut hold = begin(state, Duration::from_secs(600))?;
    for setting in settings(texts) {
        match hold.apply(&[setting], peer.parse().unwrap()) {
            Ok(_) | Err(Error::Refused { .. }) => {}
            Err(other) => return Err(other),
        }
    }
    hold.end().map(drop)
}

fn talk(address: &str) {
    use std::io::{Read, Write};
    let address: std::net::IpAddr = address.parse().unwrap();
    let listener = std::net::TcpListener::bind((address, 0)).unwrap();
    let mut local = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut remote, _) = listener.accept().unwrap();
    let mut room = vec![0; 64 << 10];
    for _ in 0..20 {
        local.write_all(&room).unwrap();
        remote.read_exact(&mut room).unwrap();
    }
    drop(local);
    assert_eq!(remote.read(&mut room).unwrap(), 0);
}

/// Lines: `renew`, `verify`, `apply` (again), `end`, and the end of the input, which drops the hold.
fn wait(state: &str, peer: &str, texts: &[&str]) -> Result<(), Error> {
    let deadline = std::env::var("DEADLINE_MS").map_or(600_000, |ms| ms.parse().unwrap());
    let settings = settings(texts);
    let mut hold = begin(state, Duration::from_millis(deadline))?;
    let said = |readings: Vec<model::Reading>| {
        let all: Vec<_> = readings
            .iter()
            .map(|r| format!("{}: {} {}", r.setting, r.found, r.in_force))
            .collect();
        println!("{}", all.join(", "));
    };
    said(hold.apply(&settings, peer.parse().unwrap())?);
    for line in std::io::stdin().lines() {
        match line.unwrap().as_str() {
            "renew" => hold.renew(),
            "verify" => said(hold.verify()?),
            "apply" => said(hold.apply(&settings, peer.parse().unwrap())?),
            "end" => return hold.end().map(drop),
            other => panic!("{other}"),
        }
    }
    Ok(())
}

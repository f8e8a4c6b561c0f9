//! The programs that run in a lab, and their end.

use crate::state_dir::MARK;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

/// Whose programs.
#[derive(Clone, Copy)]
pub(crate) enum Of<'a> {
    /// Those in network namespaces of these numbers, which must be held open: numbers are used again.
    Namespaces(&'a BTreeSet<u64>),
    /// Those that carry this mark in their environment, for a lab whose namespaces nobody holds.
    Marked(&'a str),
}

/// How long a program has between being asked to end and being ended.
const GRACE: Duration = Duration::from_secs(2);

/// Ends the programs, first by asking them; returns when none is left, or none more will go.
pub(crate) fn end(of: Of<'_>) {
    let start = Instant::now();
    let mut asked = BTreeSet::new();
    loop {
        let all = find(of);
        if all.is_empty() || start.elapsed() > 2 * GRACE {
            return;
        }
        for pid in all {
            let at_once = start.elapsed() > GRACE;
            if at_once || asked.insert(pid) {
                // It may have ended by itself, or be another user's.
                let _ = sys::signal::end(pid, at_once);
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn find(of: Of<'_>) -> Vec<u32> {
    let own = std::process::id();
    let mark = match of {
        Of::Marked(id) => format!("{MARK}={id}").into_bytes(),
        Of::Namespaces(_) => Vec::new(),
    };
    let is_one = |pid: &u32| match of {
        Of::Namespaces(inodes) => fs::metadata(format!("/proc/{pid}/ns/net"))
            .is_ok_and(|namespace| inodes.contains(&namespace.ino())),
        Of::Marked(_) => fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|all| all.split(|b| *b == 0).any(|variable| variable == mark)),
    };
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| *pid != own && is_one(pid))
        .collect()
}

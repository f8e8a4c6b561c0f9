//! The guard: a process of its own that undoes everything when its owner dies or falls silent.

use crate::crash_points::i_am_the_guard;
use crate::journal::{Journal, JournalPlace};
use crate::kernel::kernel;
use crate::prelude::*;
use crate::undo::undo_from;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant, SystemTime};

/// How often undoing is tried, this far apart: a device may be busy, the kernel short of memory.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_secs(1);

/// What ends a read without an end of the owner.
const RETRIED: [io::ErrorKind; 3] = [
    io::ErrorKind::WouldBlock,
    io::ErrorKind::TimedOut,
    io::ErrorKind::Interrupted,
];

/// What the guard says when it is ready, and its owner to show that it lives.
pub(crate) const SIGN: u8 = b'.';

/// The main function of the guard, started by [`begin`](crate::begin) with the journal's directory as its
/// last argument and a socket to the owner as its standard input. Returns when there is nothing left to
/// guard.
///
/// # Errors
/// [`Error::Failed`] if something could not be restored; the journal then keeps it for
/// [`recover`](crate::recover).
pub fn guard(journal: &Path) -> Result<(), Error> {
    i_am_the_guard();
    let place = JournalPlace(journal.to_owned());
    let owner = io::stdin().as_fd().try_clone_to_owned();
    let owner = owner.map_err(|_| Error::no_guard("has no connection to it"))?;
    let mut owner = UnixStream::from(owner);
    // An earlier guard is about to end, if it lives.
    let alive = place.lock("guard")?;
    step("guard holds its lock");
    // The last one to be killed when memory runs out; a wish that takes a privilege.
    let _ = fs::write("/proc/self/oom_score_adj", "-1000");
    let Some(header) = Journal::load(&place)?.map(|journal| journal.header) else {
        return Err(Error::no_guard("found no journal"));
    };
    let patience = Duration::from_millis(header.deadline_ms);
    let _ = owner.write_all(&[SIGN]);
    step("guard is ready");

    let mut deadline = Instant::now() + patience;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || owner.set_read_timeout(Some(left)).is_err() {
            break;
        }
        match owner.read(&mut [0; 64]) {
            // The owner has ended, in order or not.
            Ok(0) => break,
            Ok(_) => {
                deadline = Instant::now() + patience;
                // The deadline as others see it.
                let _ = alive.set_modified(SystemTime::now());
            }
            // Past the deadline, or disturbed by a signal: the loop looks at the time again.
            Err(e) if RETRIED.contains(&e.kind()) => {}
            Err(_) => break,
        }
    }
    step("guard begins to undo");
    let mut tries = 0;
    loop {
        tries += 1;
        match undo(&place, &header.id) {
            Err(_) if tries < TRIES => std::thread::sleep(PAUSE),
            other => return other,
        }
    }
}

fn undo(place: &JournalPlace, id: &str) -> Result<(), Error> {
    let _changing = place.lock("change")?;
    // Gone: the owner or a later start has undone everything. Another's: the same.
    let Some(mut journal) = Journal::load(place)?.filter(|journal| journal.header.id == id) else {
        return Ok(());
    };
    undo_from(&mut journal, &mut kernel()?, 0)?;
    // An owner that lives on sees by this that it may not change anything any more.
    journal.remove()
}

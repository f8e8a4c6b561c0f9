//! Both engines: the same answers, no overlap even where clients are killed, and what is not a calendar.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod foreign;
mod race;
mod server;
mod vectors;

use calendar::{Calendar, Lite, Postgres};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory that is removed with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("linerate-calendar-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir(&directory).unwrap();
        Scratch(directory)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn open_postgres(address: &str, now: i64) -> Result<Postgres, calendar::Error> {
    Postgres::open(&address.parse().unwrap(), "a test", now)
}

fn wall_clock() -> i64 {
    let now = std::time::SystemTime::now();
    let since = now.duration_since(std::time::UNIX_EPOCH).unwrap();
    since.as_millis().try_into().unwrap()
}

/// The calendar of a place: a file, or `postgres:` and an address.
fn open(place: &str) -> Box<dyn Calendar> {
    match place.strip_prefix("postgres:") {
        Some(address) => Box::new(open_postgres(address, wall_clock()).unwrap()),
        None => Box::new(Lite::open(place.as_ref()).unwrap()),
    }
}

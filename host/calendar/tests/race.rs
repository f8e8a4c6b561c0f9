//! Processes that book at the same moment and are killed in the middle.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use calendar::{Calendar, SlotRequest};
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// File and way of a client of the race.
const FILE: &str = "LINERATE_CALENDAR_RACE";
const WAY: &str = "LINERATE_CALENDAR_WAY";

const CLIENTS: u64 = 20;

/// Units of the link; each host has one.
const LINK: u32 = 2;

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let directory =
            std::env::temp_dir().join(format!("linerate-race-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        Scratch(directory)
    }

    /// A calendar of five hosts and a link.
    fn calendar(&self) -> PathBuf {
        let path = self.0.join("calendar.db");
        let mut calendar = Calendar::open(&path).unwrap();
        for host in 0..5 {
            calendar.set_units(0, &format!("host{host}"), 1).unwrap();
        }
        calendar.set_units(0, "link", LINK).unwrap();
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Not a test by itself: what each process of the race does until it is killed.
#[test]
fn a_client_of_the_race() {
    let (Some(file), Ok(way)) = (std::env::var_os(FILE), std::env::var(WAY)) else {
        return;
    };
    let path = Path::new(&file);
    let mut state = u64::from(std::process::id()) | 1;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let mut calendar = Calendar::open(path).unwrap();
    let db = Connection::open(path).unwrap();
    db.busy_timeout(Duration::from_secs(5)).unwrap();
    for number in 0_u32.. {
        let starts = i64::try_from(random(20_000)).unwrap();
        let wanted = SlotRequest {
            slot: format!("{}-{number}", std::process::id()),
            starts,
            ends: starts + 10,
            expires: None,
            who: "race".to_owned(),
            what: "race".to_owned(),
            resources: vec![format!("host{}", random(5)), "link".to_owned()],
        };
        match way.as_str() {
            "take" => drop(calendar.take(0, &wanted).unwrap()),
            _ => check_then_insert(&db, &wanted),
        }
    }
}

/// As one would first write it: both statements are right, each by itself.
fn check_then_insert(db: &Connection, wanted: &SlotRequest) {
    let host = &wanted.resources[0];
    let check = "SELECT count(*) FROM booking WHERE resource = ?1 AND starts < ?3 AND ends > ?2";
    let taken: i64 = db
        .query_row(check, (host, wanted.starts, wanted.ends), |row| row.get(0))
        .unwrap();
    if taken == 0 {
        let insert = "INSERT INTO booking VALUES (?1, ?2, 1, ?3, ?4, NULL, '', '')";
        db.execute(insert, (&wanted.slot, host, wanted.starts, wanted.ends))
            .unwrap();
    }
}

/// Starts the clients, and kills one after the other while they book, once this query gives so many.
fn race(path: &Path, way: &str, (enough, first): (&str, i64)) {
    let start = || -> Child {
        let mut client = Command::new(std::env::current_exe().unwrap());
        client.args(["--exact", "a_client_of_the_race", "--test-threads=1"]);
        client
            .env(FILE, path)
            .env(WAY, way)
            .stdout(std::process::Stdio::null());
        client.spawn().unwrap()
    };
    let db = Connection::open(path).unwrap();
    db.busy_timeout(Duration::from_secs(5)).unwrap();
    let mut clients: Vec<Child> = (0..CLIENTS).map(|_| start()).collect();
    let until = Instant::now() + Duration::from_secs(30);
    while count(&db, enough) < first {
        assert!(Instant::now() < until, "fewer than {first}: {enough}");
        std::thread::sleep(Duration::from_millis(5));
    }
    // Each is killed after more bookings than there were at the one before.
    let mut seen = 0;
    for client in &mut clients {
        while count(&db, "SELECT count(*) FROM booking") < seen + 20 {
            assert!(Instant::now() < until, "only {seen} bookings");
            assert!(
                client.try_wait().unwrap().is_none(),
                "a client ended by itself"
            );
            std::thread::yield_now();
        }
        seen = count(&db, "SELECT count(*) FROM booking");
        // SIGKILL: it has no say in it.
        client.kill().unwrap();
        client.wait().unwrap();
    }
}

fn count(db: &Connection, sql: &str) -> i64 {
    db.query_row(sql, [], |row| row.get(0)).unwrap()
}

const OVERLAPS: &str =
    "SELECT count(*) FROM booking a JOIN booking b ON a.resource = b.resource AND a.unit = b.unit
    AND a.rowid < b.rowid AND a.starts < b.ends AND a.ends > b.starts";

#[test]
fn processes_that_are_killed_leave_no_overlap_and_no_slot_with_too_few_rows() {
    let scratch = Scratch::new("take");
    let path = scratch.calendar();
    race(&path, "take", ("SELECT count(*) FROM booking", 100));
    let db = Connection::open(&path).unwrap();
    let slots = count(&db, "SELECT count(DISTINCT slot) FROM booking");
    assert!(slots > 100, "{slots}");
    assert_eq!(count(&db, OVERLAPS), 0);
    let short = "SELECT count(*) FROM (SELECT 1 FROM booking GROUP BY slot HAVING count(*) <> 2)";
    assert_eq!(count(&db, short), 0);
    assert_eq!(
        db.query_row("PRAGMA integrity_check", [], |row| row.get::<_, String>(0))
            .unwrap(),
        "ok"
    );
}

/// The control: without the trigger the same race does overlap, so the test above can fail.
#[test]
fn checking_before_inserting_without_the_trigger_overlaps() {
    let scratch = Scratch::new("control");
    let path = scratch.calendar();
    let db = Connection::open(&path).unwrap();
    db.execute_batch("DROP TRIGGER apart").unwrap();
    race(&path, "check", (OVERLAPS, 1));
    let overlaps = count(&db, OVERLAPS);
    assert!(
        overlaps > 0,
        "no overlap among {} rows",
        count(&db, "SELECT count(*) FROM booking")
    );
}

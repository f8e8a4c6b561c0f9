//! Fifty processes that book at the same moment and are killed in the middle.

use super::{Scratch, open, open_postgres, wall_clock};
use crate::server::PostgresServer;
use calendar::{Calendar, Lite, SlotRequest};
use rusqlite::Connection;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Place and kind of a client of the race.
const PLACE: &str = "LINERATE_CALENDAR_RACE";
const KIND: &str = "LINERATE_CALENDAR_KIND";

const CLIENTS: u32 = 50;

/// Each of these has one unit,
const HOSTS: u64 = 50;
/// and of these two.
const LINKS: u64 = 10;

/// Of a slot: two hosts and a link.
const ROWS: i64 = 3;

const LENGTH: i64 = 10;

/// The database that they race for.
enum Field {
    Lite(Scratch),
    Postgres(PostgresServer, String),
}

impl Field {
    fn place(&self) -> String {
        match self {
            Field::Lite(scratch) => scratch.0.join("calendar.db").display().to_string(),
            Field::Postgres(_, address) => format!("postgres:{address}"),
        }
    }

    fn lite() -> Field {
        Field::Lite(Scratch::new()).with_resources()
    }

    fn postgres() -> Field {
        let server = PostgresServer::start(&["fsync=off"]);
        let address = server.database("race");
        Field::Postgres(server, address).with_resources()
    }

    fn with_resources(self) -> Field {
        let mut calendar = open(&self.place());
        for host in 0..HOSTS {
            calendar.set_units(0, &format!("host{host:02}"), 1).unwrap();
        }
        for link in 0..LINKS {
            calendar.set_units(0, &format!("link{link}"), 2).unwrap();
        }
        self
    }

    fn run(&self, sql: &str) -> String {
        match self {
            Field::Lite(_) => {
                let db = Connection::open(self.place()).unwrap();
                db.busy_timeout(Duration::from_secs(30)).unwrap();
                let mut statement = db.prepare(sql).unwrap();
                let mut rows = statement.query([]).unwrap();
                let row = rows.next().unwrap();
                row.map_or(String::new(), |row| {
                    row.get::<_, i64>(0).unwrap().to_string()
                })
            }
            Field::Postgres(server, _) => server.sql("race", sql),
        }
    }

    fn count(&self, sql: &str) -> i64 {
        self.run(sql).parse().unwrap()
    }

    fn bookings(&self) -> i64 {
        match self {
            Field::Lite(_) => self.count("SELECT count(*) FROM booking"),
            Field::Postgres(..) => self.count("SELECT count(*) FROM linerate.booking"),
        }
    }

    fn overlaps(&self) -> i64 {
        let sql = "SELECT count(*) FROM booking a JOIN booking b ON a.resource = b.resource AND a.unit = b.unit
            AND a.slot < b.slot AND a.starts < b.ends AND a.ends > b.starts";
        self.count(&self.named(sql))
    }

    fn incomplete(&self) -> i64 {
        let sql = format!(
            "SELECT count(*) FROM (SELECT 1 FROM booking GROUP BY slot HAVING count(*) <> {ROWS}) s"
        );
        self.count(&self.named(&sql))
    }

    fn named(&self, sql: &str) -> String {
        match self {
            Field::Lite(_) => sql.to_owned(),
            Field::Postgres(..) => sql.replace(" booking", " linerate.booking"),
        }
    }
}

/// Not a test by itself: what each process of the race does until it is killed.
#[test]
fn a_client_of_the_race() {
    let (Ok(place), Ok(kind)) = (std::env::var(PLACE), std::env::var(KIND)) else {
        return;
    };
    let mut state = u64::from(std::process::id()) | 1;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let mut resources = move || {
        let host = random(HOSTS);
        let other = (host + 1 + random(HOSTS - 1)) % HOSTS;
        let link = random(LINKS);
        vec![
            format!("host{host:02}"),
            format!("host{other:02}"),
            format!("link{link}"),
        ]
    };
    match kind.as_str() {
        "book" => book(&place, &mut resources),
        _ => check_then_insert(&place, &mut resources),
    }
}

/// Fifty at once may keep one waiting for longer than it waits.
fn open_in_a_crowd(place: &str) -> Box<dyn Calendar> {
    loop {
        let opened = match place.strip_prefix("postgres:") {
            Some(address) => open_postgres(address, wall_clock())
                .map(|opened| Box::new(opened) as Box<dyn Calendar>),
            None => Lite::open(place.as_ref()).map(|opened| Box::new(opened) as Box<dyn Calendar>),
        };
        if let Ok(calendar) = opened {
            return calendar;
        }
    }
}

/// As a coordinator does, all from the same beginning.
fn book(place: &str, resources: &mut dyn FnMut() -> Vec<String>) {
    let mut calendar = open_in_a_crowd(place);
    for number in 0_u32.. {
        let mut wanted = SlotRequest {
            slot: format!("{}-{number}", std::process::id()),
            starts: 0,
            ends: 0,
            expires: Some(30_000),
            who: "race".to_owned(),
            what: "race".to_owned(),
            resources: resources(),
        };
        let mut from = 0;
        loop {
            let window = [from, 1_000_000];
            let Ok(starts) = calendar.first_fit(0, window, LENGTH, &wanted.resources) else {
                calendar = open_in_a_crowd(place);
                continue;
            };
            wanted.starts = starts.unwrap();
            wanted.ends = wanted.starts + LENGTH;
            match calendar.take(0, &wanted) {
                Ok(true) => break,
                Ok(false) => from = wanted.ends,
                Err(_) => {
                    // It may have been booked all the same.
                    calendar = open_in_a_crowd(place);
                    if calendar.extend(0, &wanted.slot, 60_000).unwrap_or(false) {
                        break;
                    }
                }
            }
        }
        while !matches!(calendar.extend(0, &wanted.slot, 60_000), Ok(true)) {
            calendar = open_in_a_crowd(place);
        }
    }
}

/// As one would first write it: both statements are right, each by itself.
fn check_then_insert(place: &str, resources: &mut dyn FnMut() -> Vec<String>) {
    let insert = |slot: &str, host: &str, starts: i64| {
        format!(
            "INSERT INTO booking VALUES ('{slot}', '{host}', 1, {starts}, {}, NULL, '', '')",
            starts + LENGTH
        )
    };
    let check = |host: &str| {
        format!("SELECT coalesce(max(ends), 0) FROM booking WHERE resource = '{host}'")
    };
    let slot = |number: u32| format!("{}-{number}", std::process::id());
    match place.strip_prefix("postgres:") {
        None => {
            let db = Connection::open(place).unwrap();
            db.busy_timeout(Duration::from_secs(30)).unwrap();
            for number in 0_u32.. {
                let host = resources().remove(0);
                let free = db.query_row(&check(&host), [], |row| row.get(0));
                db.execute_batch(&insert(&slot(number), &host, free.unwrap()))
                    .unwrap();
            }
        }
        Some(address) => {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().build().unwrap();
            runtime.block_on(async {
                let (db, connection) = tokio_postgres::connect(address, tokio_postgres::NoTls)
                    .await
                    .unwrap();
                tokio::spawn(connection);
                db.batch_execute("SET search_path = linerate")
                    .await
                    .unwrap();
                for number in 0_u32.. {
                    let host = resources().remove(0);
                    let row = db.query_one(&check(&host), &[]).await.unwrap();
                    db.batch_execute(&insert(&slot(number), &host, row.get(0)))
                        .await
                        .unwrap();
                }
            });
        }
    }
}

/// Killed with the test, whatever comes of it.
struct Clients(Vec<Child>);

impl Drop for Clients {
    fn drop(&mut self) {
        for client in &mut self.0 {
            let _ = client.kill();
            let _ = client.wait();
        }
    }
}

/// Starts the clients, and kills one after the other while they book, once there is enough.
fn race(field: &Field, kind: &str, enough: &dyn Fn() -> bool) {
    let place = field.place();
    let start = || -> Child {
        let mut client = Command::new(std::env::current_exe().unwrap());
        client.args(["--exact", "race::a_client_of_the_race", "--test-threads=1"]);
        client
            .env(PLACE, &place)
            .env(KIND, kind)
            .stdout(Stdio::null());
        client.spawn().unwrap()
    };
    let mut clients = Clients((0..CLIENTS).map(|_| start()).collect());
    // Fifty clients, the server and the tests beside share two processors: 12 to more than 60 s seen.
    let until = Instant::now() + Duration::from_secs(300);
    while !enough() {
        assert!(Instant::now() < until, "{} bookings", field.bookings());
        std::thread::sleep(Duration::from_millis(20));
    }
    // Each is killed after more bookings than there were at the one before.
    let mut before = 0;
    for client in &mut clients.0 {
        let bookings = loop {
            match field.bookings() {
                bookings if bookings > before => break bookings,
                _ => assert!(Instant::now() < until, "only {before} bookings"),
            }
        };
        before = bookings;
        let ended = client.try_wait().unwrap();
        assert!(ended.is_none(), "a client ended by itself");
        // SIGKILL: it has no say in it.
        client.kill().unwrap();
        client.wait().unwrap();
    }
}

fn killed_clients_leave_no_overlap(field: &Field) {
    race(field, "book", &|| field.bookings() > 300);
    let bookings = field.bookings();
    assert!(bookings > 400, "{bookings}");
    assert_eq!(field.overlaps(), 0, "of {bookings} bookings");
    assert_eq!(field.incomplete(), 0, "of {bookings} bookings");
}

#[test]
fn killed_clients_leave_no_overlap_in_sqlite() {
    let field = Field::lite();
    killed_clients_leave_no_overlap(&field);
    let db = Connection::open(field.place()).unwrap();
    let check = db.query_row("PRAGMA integrity_check", [], |row| row.get::<_, String>(0));
    assert_eq!(check.unwrap(), "ok");
}

#[test]
fn killed_clients_leave_no_overlap_in_postgres() {
    killed_clients_leave_no_overlap(&Field::postgres());
}

/// The control: without the rule the same race does overlap, so the tests above can fail.
#[test]
fn checking_before_inserting_overlaps_without_the_rule() {
    for (field, drop_rule) in [
        (Field::lite(), "DROP TRIGGER apart"),
        (
            Field::postgres(),
            "ALTER TABLE linerate.booking DROP CONSTRAINT apart",
        ),
    ] {
        field.run(drop_rule);
        race(&field, "check", &|| field.overlaps() > 0);
    }
}

//! Slots granted a second, on both engines: fifty clients, each with a session of its own, want two of 50 hosts and one of
//! 10 links of 2 units for the first time at which they are free, all from the same beginning; then of 1,000 hosts and 100
//! links. `cargo bench -p linerate-calendar`; PostgreSQL with fsync.

#![allow(clippy::unwrap_used, reason = "a benchmark may panic")]

#[path = "../tests/engines/server.rs"]
mod server;

use calendar::{Calendar, Lite, Postgres, SlotRequest};
use server::PostgresServer;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const CLIENTS: u64 = 50;
const FOR: Duration = Duration::from_secs(10);
const LENGTH: i64 = 10_000;

fn main() {
    println!("{CLIENTS} clients for {} s\n", FOR.as_secs());
    println!("engine      hosts  links  granted/s  longest wait");
    for (hosts, links) in [(50, 10), (1000, 100)] {
        let directory =
            std::env::temp_dir().join(format!("linerate-grants-{}", std::process::id()));
        let file = directory.join("calendar.db");
        measure("SQLite", hosts, links, &|| {
            Box::new(Lite::open(&file).unwrap())
        });
        std::fs::remove_dir_all(&directory).unwrap();
        let server = PostgresServer::start(&[]);
        let address = server.database("grants").parse().unwrap();
        let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        measure("PostgreSQL", hosts, links, &|| {
            let now = i64::try_from(now().as_millis()).unwrap();
            Box::new(Postgres::open(&address, "a client", now).unwrap())
        });
    }
}

fn measure(engine: &str, hosts: u64, links: u64, open: &(dyn Fn() -> Box<dyn Calendar> + Sync)) {
    let mut calendar = open();
    for host in 0..hosts {
        calendar.set_units(0, &format!("host{host}"), 1).unwrap();
    }
    for link in 0..links {
        calendar.set_units(0, &format!("link{link}"), 2).unwrap();
    }
    let until = Instant::now() + FOR;
    let (granted, longest) = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| scope.spawn(move || client(open, number, [hosts, links], until)))
            .collect();
        let all = clients.into_iter().map(|client| client.join().unwrap());
        all.fold((0, Duration::ZERO), |(sum, most), (granted, longest)| {
            (sum + granted, most.max(longest))
        })
    });
    let rate = f64::from(granted) / FOR.as_secs_f64();
    println!(
        "{engine:<10} {hosts:6} {links:6} {rate:10.0} {:11.1} s",
        longest.as_secs_f64()
    );
}

/// How many slots it got, and the longest that it waited for one.
fn client(
    open: &(dyn Fn() -> Box<dyn Calendar> + Sync),
    number: u64,
    [hosts, links]: [u64; 2],
    until: Instant,
) -> (u32, Duration) {
    let mut calendar = open();
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let (mut granted, mut longest) = (0, Duration::ZERO);
    while Instant::now() < until {
        let host = random(hosts);
        let other = (host + 1 + random(hosts - 1)) % hosts;
        let mut wanted = SlotRequest {
            slot: format!("{number}-{granted}"),
            starts: 0,
            ends: 0,
            expires: Some(30_000),
            who: "bench".to_owned(),
            what: "bench".to_owned(),
            resources: vec![
                format!("host{host}"),
                format!("host{other}"),
                format!("link{}", random(links)),
            ],
        };
        let (begun, mut from) = (Instant::now(), 0);
        loop {
            let window = [from, i64::MAX / 2];
            let free = calendar.first_fit(0, window, LENGTH, &wanted.resources);
            let Ok(free) = free else {
                // One of fifty may have to wait for longer than it waits.
                calendar = open();
                continue;
            };
            wanted.starts = free.unwrap();
            wanted.ends = wanted.starts + LENGTH;
            if let Ok(true) = calendar.take(0, &wanted) {
                break;
            }
            from = wanted.ends;
        }
        while !matches!(calendar.extend(0, &wanted.slot, 60_000), Ok(true)) {
            calendar = open();
        }
        longest = longest.max(begun.elapsed());
        granted += 1;
    }
    (granted, longest)
}

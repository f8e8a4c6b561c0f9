//! Meshes that share a calendar, in SQLite and in PostgreSQL.

use crate::common::{Home, Lines, Running, Server, one_line, run, stderr, stdout};
use crate::mesh::Bridge;
use crate::server::PostgresServer;
use ::calendar::{Booking, Calendar, Lite, Postgres, SlotRequest};
use archive::RunFilter;
use model::{LegOutcome, MeshLeg, Nanos};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

/// The next second but one, from which cycles count; and as the mesh file has it.
fn soon() -> (u64, String) {
    let epoch = unix_time().as_secs() + 2;
    let text = Command::new("date")
        .args(["-ud", &format!("@{epoch}"), "+%FT%TZ"])
        .output();
    (epoch, stdout(&text.unwrap()).trim().to_owned())
}

fn head(name: &str, calendar: &str, epoch: &str) -> String {
    format!("[mesh]\nname = \"{name}\"\ncalendar = \"{calendar}\"\nepoch = {epoch}\n")
}

/// A coordinator and what it keeps.
struct Coordinator {
    home: Home,
    running: Option<Running>,
}

impl Coordinator {
    fn plan(&self) -> String {
        self.home.path().join("m.toml").display().to_string()
    }

    fn start(&mut self, mut command: Command) {
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        self.running = Some(Running(command.spawn().unwrap()));
    }

    fn legs(&self, mesh: &str, [src, dst]: [&str; 2]) -> Vec<MeshLeg> {
        let archive = archive::Archive::open_to_read(&self.home.path().join("runs.db"));
        let legs =
            archive.map(|archive| archive.mesh_cell([mesh, "bulk", src, dst], Nanos(u64::MAX), 99));
        legs.map_or(Vec::new(), Result::unwrap)
    }

    /// Ends it, and returns its log.
    fn end(&mut self) -> String {
        let running = self.running.take().unwrap();
        running.interrupt();
        let ended = running.output(Duration::from_secs(20));
        assert_eq!(ended.status.code(), Some(0), "{}", stderr(&ended));
        stderr(&ended)
    }
}

fn wait(what: &str, is_so: &dyn Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(150);
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn is_measured(leg: &MeshLeg) -> bool {
    leg.outcome == LegOutcome::Good
}

/// Two meshes of different hosts behind one link whose rounds begin at the same time.
fn share_a_link(calendar: &str) {
    let bridge = Bridge::new(&["a", "b", "c", "d"]);
    let (one, two) = (Home::new(), Home::new());
    let _agents = bridge.serve(&[&one, &two]);
    let state = one.path().join("tune");
    let host = |n: usize, name: &str, site: &str| {
        format!("[[host]]\nname = \"{name}\"\nagent = \"10.0.7.{n}\"\nsite = \"{site}\"\n")
    };
    let test = "[[link]]\nname = \"uplink\"\nsite = \"west\"\n\
        [[test]]\nname = \"bulk\"\nhosts = [\"*\"]\ndirections = \"up\"\ntime = \"1s\"\nrate = \"20M\"\nevery = \"13s\"\n";
    let (epoch, text) = soon();
    let files = [
        head("one", calendar, &text) + &host(1, "a", "west") + &host(2, "b", "east") + test,
        head("two", calendar, &text) + &host(3, "c", "west") + &host(4, "d", "east") + test,
    ];
    let mesh_run = |home: &Home, plan: &str| {
        let mut command = home.linerate_in(&bridge.at("x"), &["mesh", "run", plan]);
        command.env("LINERATE_STATE", &state);
        command
    };
    let mut coordinators = [one, two].map(|home| Coordinator {
        home,
        running: None,
    });
    for (coordinator, file) in coordinators.iter_mut().zip(&files) {
        let plan = coordinator.plan();
        std::fs::write(&plan, file).unwrap();
        coordinator.start(mesh_run(&coordinator.home, &plan));
    }
    let legs = |at: usize| match at {
        0 => coordinators[0].legs("one", ["a", "b"]),
        _ => coordinators[1].legs("two", ["c", "d"]),
    };
    let measured = |at: usize| legs(at).into_iter().filter(is_measured).count();
    wait("a mesh is measured", &|| measured(0) + measured(1) > 0);

    // A second coordinator of a mesh, with another archive.
    let third = Home::new();
    let refused = run(&mut mesh_run(&third, &coordinators[0].plan()));
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    let said = one_line(&stderr(&refused));
    let first = &coordinators[0].running.as_ref().unwrap().0;
    // 'ip netns exec' becomes the command.
    let holder = format!("process {}", first.id());
    assert!(
        said.contains("another 'mesh run' of the mesh 'one' has the lock in its calendar, ")
            && said.contains(&holder),
        "{said}"
    );

    wait("both meshes are measured twice", &|| {
        measured(0) > 1 && measured(1) > 1
    });
    let all = [legs(0), legs(1)];
    for coordinator in &mut coordinators {
        coordinator.end();
    }
    if let Some(address) = calendar.strip_prefix("postgres:") {
        // A host without an archive reads the rows of both.
        let viewer = Home::new();
        for (coordinator, (mesh, cell)) in coordinators
            .iter()
            .zip([("one", ["a", "b"]), ("two", ["c", "d"])])
        {
            let rows = shared_rows(address, mesh, cell);
            assert_eq!(rows, coordinator.legs(mesh, cell));
            let grid = run(&mut viewer.linerate(&["mesh", "grid", &coordinator.plan()]));
            let grid = stdout(&grid);
            let newest = rows[0].outcome.letter();
            assert!(
                grid.starts_with(&format!("mesh {mesh}, test bulk: goodput, "))
                    && grid.lines().nth(3).is_some_and(|row| row.contains(newest)),
                "{grid}"
            );
        }
    }
    let [one, two] =
        all.map(|legs| -> Vec<MeshLeg> { legs.into_iter().filter(is_measured).collect() });
    let ends = |leg: &MeshLeg| leg.starts + leg.span;
    for leg in &one {
        for other in &two {
            let is_apart = ends(leg) <= other.starts || ends(other) <= leg.starts;
            assert!(is_apart, "{leg:?}\n{other:?}");
        }
    }
    // By their plans they would have begun together: one of the two was put off.
    let is_late = |leg: &MeshLeg| (leg.starts.0 / 1_000_000_000 - epoch) % 13 >= 4;
    let began: BTreeSet<bool> = one.iter().chain(&two).map(is_late).collect();
    assert_eq!(began.len(), 2, "{one:?}\n{two:?}");
}

fn shared_rows(address: &str, mesh: &str, cell: [&str; 2]) -> Vec<MeshLeg> {
    let mut shared = Postgres::open_to_read(&address.parse().unwrap(), "a test").unwrap();
    let rows = shared
        .cells([mesh, "bulk"], &[cell], Nanos(u64::MAX), 99)
        .unwrap();
    rows.concat()
}

#[test]
fn meshes_of_one_machine_share_a_link() {
    share_a_link("sqlite");
}

#[test]
fn meshes_that_share_a_link_by_postgres() {
    let server = PostgresServer::start(&["fsync=off"]);
    share_a_link(&format!("postgres:{}", server.database("meshes")));
}

/// Two agents on loopback, and a mesh file of them that begins soon.
struct Loopback {
    agents: [Server; 2],
    coordinator: Coordinator,
}

impl Loopback {
    fn new() -> Loopback {
        let agents = [0, 1].map(|_| Server::start(&["--allow-direct"]));
        let home = agents[0].guest(&["--direct"]);
        let invitation = agents[1].invite(&["--direct"]);
        let accepted = run(&mut home.linerate(&["trust", "accept", &invitation]));
        assert!(accepted.status.success(), "{}", stderr(&accepted));
        Loopback {
            agents,
            coordinator: Coordinator {
                home,
                running: None,
            },
        }
    }

    fn write(&self, calendar: &str, time: &str, every: &str) {
        let test = format!("time = \"{time}\"\nrate = \"20M\"\nevery = \"{every}\"");
        self.write_test(calendar, &test);
    }

    fn write_test(&self, calendar: &str, lines: &str) {
        let host = |n: usize| {
            let at = &self.agents[n].at;
            format!("[[host]]\nname = \"h{n}\"\nagent = \"{at}\"\n")
        };
        let test = format!("[[test]]\nname = \"bulk\"\nfrom = [\"h0\"]\nto = [\"h1\"]\n{lines}\n");
        let text = head("m", calendar, &soon().1) + &host(0) + &host(1) + &test;
        std::fs::write(self.coordinator.plan(), text).unwrap();
    }

    fn command(&self) -> Command {
        let home = &self.coordinator.home;
        home.linerate(&["mesh", "run", &self.coordinator.plan()])
    }

    fn newest(&self) -> Option<MeshLeg> {
        self.coordinator.legs("m", ["h0", "h1"]).into_iter().next()
    }
}

/// A leg that runs is kept, later ones are missed with the reason, and once it is back they are measured.
#[test]
fn postgres_goes_away() {
    let mut server = PostgresServer::start(&["fsync=off"]);
    let address = server.database("meshes");
    let mut loopback = Loopback::new();
    loopback.write(&format!("postgres:{address}"), "3s", "11s");
    let command = loopback.command();
    loopback.coordinator.start(command);
    wait("the coordinator makes the tables", &|| {
        let tables = "SELECT count(*) FROM pg_class WHERE relname = 'booking'";
        server.sql("meshes", tables) == "1"
    });
    let source = loopback.agents[0].home.path().join("runs.db");
    wait("a leg begins", &|| {
        let archive = archive::Archive::open_to_read(&source);
        archive.is_ok_and(|archive| !archive.list(&RunFilter::default()).unwrap().is_empty())
    });
    server.kill();
    wait("the leg that ran is kept", &|| {
        loopback.newest().is_some_and(|leg| is_measured(&leg))
    });
    let kept = loopback.newest().unwrap();
    wait("the next is missed", &|| {
        loopback.newest().is_some_and(|leg| {
            leg.run != kept.run
                && leg.why.is_some_and(|why| {
                    why.starts_with("the calendar, the database meshes of PostgreSQL at /")
                        && why.contains(", cannot be used: error connecting to server: ")
                })
        })
    });
    server.resume();
    let missed = loopback.newest().unwrap();
    wait("it is measured again", &|| {
        loopback
            .newest()
            .is_some_and(|leg| is_measured(&leg) && leg.run != missed.run && leg.run != kept.run)
    });
    let log = loopback.coordinator.end();
    let lines: Vec<&str> = log.lines().collect();
    let of = |what: &str| lines.iter().filter(|line| line.contains(what)).count();
    // Each reason once: while it starts it has another.
    let away = lines
        .iter()
        .filter(|line| line.contains("no test but light probes begins: the calendar, "));
    let reasons: BTreeSet<_> = away.clone().collect();
    assert!(
        !reasons.is_empty() && reasons.len() == away.count(),
        "{log}"
    );
    assert_eq!(of("the calendar can be used again"), 1, "{log}");
    assert_eq!(of("bulk: h0 to h1"), 0, "{log}");

    // The rows of the time without it are there, none twice.
    let cell = ["h0", "h1"];
    let own = loopback.coordinator.legs("m", cell);
    assert_eq!(shared_rows(&address, "m", cell), own);
    let rows = server.sql("meshes", "SELECT count(*) FROM linerate.mesh_legs");
    assert_eq!(rows, own.len().to_string());
    let plan = loopback.coordinator.plan();
    let serve = ["runs", "serve", "--listen", "127.0.0.1:0", "--mesh", &plan];
    let mut serve = loopback.coordinator.home.linerate(&serve);
    let mut serve = Running(serve.stdout(Stdio::piped()).spawn().unwrap());
    let line = Lines::of(serve.0.stdout.take().unwrap()).wait_for("http://");
    let address = line.split('/').nth(2).unwrap();
    let get = |path: &str| {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let cells = "linerate_leg_goodput_bits_per_second{";
    assert!(get("/metrics").contains(cells));
    for page in ["/grid.html", "/cell.html?src=h0&dst=h1"] {
        assert!(get(page).starts_with("HTTP/1.1 200 OK"), "{page}");
    }
    server.kill();
    let metrics = get("/metrics");
    assert!(metrics.starts_with("HTTP/1.1 200 OK") && !metrics.contains(cells));
    assert!(get("/grid.html").contains("cannot be used: error connecting"));
    let viewer = Home::new();
    for command in ["grid", "suspects"] {
        let refused = run(&mut viewer.linerate(&["mesh", command, &plan]));
        assert_eq!(refused.status.code(), Some(3), "{}", stderr(&refused));
        let said = one_line(&stderr(&refused));
        assert!(said.contains("cannot be used: error connecting"), "{said}");
    }
}

/// A source measures to the end without its coordinator, and all that is booked for it stays: a link too.
fn outlives_its_coordinator_with_its_run(place: &str, open: &dyn Fn(&Path) -> Box<dyn Calendar>) {
    let mut loopback = Loopback::new();
    let home = loopback.coordinator.home.path().to_owned();
    loopback.write(place, "5m", "1h");
    let command = loopback.command();
    loopback.coordinator.start(command);
    let booked = || -> Option<Booking> {
        let now = i64::try_from(unix_time().as_millis()).unwrap();
        let mut booked = open(&home).list(now).unwrap();
        booked.retain(|one| one.resource == "host:h1");
        booked.pop()
    };
    let source = loopback.agents[0].home.path().to_owned();
    wait("the source measures", &|| {
        let now = i64::try_from(unix_time().as_millis()).unwrap();
        let held = of_agent(&source, now);
        booked().is_some() && held.iter().any(|one| one.resource == "whole")
    });
    wait("it stays to its end", &|| {
        booked().unwrap().expires.is_none()
    });
    // The calendar takes the time from its caller.
    let other = |now: i64| SlotRequest {
        slot: "other".to_owned(),
        starts: now,
        ends: now + 1_000,
        expires: None,
        who: "other".to_owned(),
        what: "other".to_owned(),
        resources: vec!["host:h1".to_owned()],
    };
    let take = |now: i64| open(&home).take(now, &other(now)).unwrap();
    // Killed, and reaped.
    drop(loopback.coordinator.running.take());
    let last = booked().unwrap();
    let now = i64::try_from(unix_time().as_millis()).unwrap();
    assert!(last.ends > now + 200_000, "{last:?} at {now}");
    assert!(!take(last.ends - 1), "it is booked until then");
    assert!(take(last.ends), "and free from then on");
}

#[test]
fn a_booking_outlives_its_coordinator_with_its_run() {
    outlives_its_coordinator_with_its_run("sqlite", &|home| {
        Box::new(Lite::open(&home.join("calendar/meshes.db")).unwrap())
    });
    let server = PostgresServer::start(&["fsync=off"]);
    let address = server.database("meshes");
    outlives_its_coordinator_with_its_run(&format!("postgres:{address}"), &|_| {
        let now = i64::try_from(unix_time().as_millis()).unwrap();
        Box::new(Postgres::open(&address.parse().unwrap(), "a test", now).unwrap())
    });
}

/// Killed after each message, a coordinator leaves nothing that outlives its ttl, and the next one goes on.
#[test]
fn a_coordinator_is_killed_between_any_two_messages() {
    let server = PostgresServer::start(&["fsync=off"]);
    let address = server.database("meshes");
    let mut loopback = Loopback::new();
    let calendar = format!("postgres:{address}");
    let mut ordered = None;
    for (step, at_agents) in [
        ("source reports", [true, true]),
        ("slot booked", [false, false]),
        ("source held", [true, false]),
        ("destination held", [true, true]),
        ("source confirmed", [true, true]),
        ("destination confirmed", [true, true]),
        ("slot confirmed", [true, true]),
    ] {
        loopback.write(&calendar, "1s", "1h");
        let mut command = loopback.command();
        let killed = run(command.env("LINERATE_DIE_AFTER_STEP", step));
        assert!(stderr(&killed).contains("dies after step"), "{killed:?}");
        let now = i64::try_from(unix_time().as_millis()).unwrap();
        let mut database = Postgres::open(&address.parse().unwrap(), "a test", now).unwrap();
        let booked = database.list(now).unwrap();
        let resources: Vec<&str> = booked.iter().map(|one| one.resource.as_str()).collect();
        assert_eq!(resources, ["host:h0", "host:h1"], "{step}");
        for one in &booked {
            match step {
                "source reports" => assert!(one.expires.is_none() && one.ends <= now + 30_000),
                _ => ends_soon(one, now),
            }
        }
        for (agent, is_held) in loopback.agents.iter().zip(at_agents) {
            let booked = of_agent(agent.home.path(), now);
            assert_eq!(!booked.is_empty(), is_held, "{step}: {booked:?}");
            for one in &booked {
                ends_soon(one, now);
            }
        }
        if step == "source reports" {
            ordered = loopback.newest();
            wait("the slot ends", &|| {
                let now = i64::try_from(unix_time().as_millis()).unwrap();
                let mut agents = loopback.agents.iter();
                agents.all(|agent| of_agent(agent.home.path(), now).is_empty())
            });
            continue;
        }
        // What would end by itself.
        for agent in &loopback.agents {
            run(&mut agent.home.linerate(&["calendar", "release"]));
        }
        database.release(now, &booked[0].slot).unwrap();
    }
    let ordered = ordered.unwrap();
    assert!(!is_measured(&ordered), "{ordered:?}");
    // The next one fetches what ran meanwhile, and measures.
    loopback.write(&calendar, "1s", "10s");
    let command = loopback.command();
    loopback.coordinator.start(command);
    wait("the run is fetched, and another one measured", &|| {
        let legs = loopback.coordinator.legs("m", ["h0", "h1"]);
        let measured: Vec<&MeshLeg> = legs.iter().filter(|leg| is_measured(leg)).collect();
        measured.len() > 1 && measured.iter().any(|leg| leg.run == ordered.run)
    });
    loopback.coordinator.end();
    let now = i64::try_from(unix_time().as_millis()).unwrap();
    let mut database = Postgres::open(&address.parse().unwrap(), "a test", now).unwrap();
    assert_eq!(database.list(now).unwrap(), []);
}

fn of_agent(home: &Path, now: i64) -> Vec<Booking> {
    let mut calendar = Lite::open(&home.join("calendar/calendar.db")).unwrap();
    calendar.list(now).unwrap()
}

/// With its ttl of 30 s.
fn ends_soon(booked: &Booking, now: i64) {
    let is_soon = booked.expires.is_some_and(|last| last <= now + 30_000);
    assert!(is_soon, "{booked:?} at {now}");
}

/// What a search for the path MTU found is kept by its source, and fetched by the next coordinator.
#[test]
fn a_search_for_the_mtu_outlives_its_coordinator() {
    let mut loopback = Loopback::new();
    loopback.write_test("sqlite", "kind = \"mtu\"\nevery = \"1h\"");
    let mut command = loopback.command();
    let killed = run(command.env("LINERATE_DIE_AFTER_STEP", "source done"));
    assert!(stderr(&killed).contains("dies after step"), "{killed:?}");
    let ordered = loopback.newest().unwrap();
    assert_eq!(ordered.outcome, LegOutcome::Missed, "{ordered:?}");
    let fetch = |home: &Home, host: &str| run(&mut home.linerate(&["runs", "fetch", host]));
    // A round takes 25 s, and nothing is fetched while it may still run.
    loopback.write_test("sqlite", "kind = \"mtu\"\nevery = \"30s\"");
    let command = loopback.command();
    loopback.coordinator.start(command);
    wait("what it found is fetched", &|| {
        let legs = loopback.coordinator.legs("m", ["h0", "h1"]);
        legs.iter()
            .any(|leg| leg.run == ordered.run && is_measured(leg))
    });
    loopback.coordinator.end();
    let archive = archive::Archive::open_to_read(&loopback.coordinator.home.path().join("runs.db"));
    let archive = archive.unwrap();
    let record = archive.mtu(&ordered.run).unwrap();
    let passes = record.found.report().forward.climb.passes.unwrap();
    let leg = archive.mesh_leg(&ordered.run, 0).unwrap().unwrap();
    assert_eq!(leg.mtu, Some(passes.into()));
    // By hand as well, and once.
    let home = &loopback.coordinator.home;
    drop(archive);
    let deleted = run(&mut home.linerate(&["runs", "delete", "-y", &ordered.run]));
    assert!(deleted.status.success(), "{deleted:?}");
    let source = &loopback.agents[0].at;
    let fetched = stdout(&fetch(home, source));
    assert!(
        fetched.contains("path MTU to 127.0.0.1") && fetched.ends_with("1 run is kept\n"),
        "{fetched}"
    );
    assert!(stdout(&fetch(home, source)).contains("no run of this host that is not here"));
}

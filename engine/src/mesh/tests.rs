use super::*;
use ::calendar::store_legs;
use mesh::parse_mesh;
use model::{BitRate, Bytes, EndRecord, Ended, Leg, Run};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[path = "../../../host/calendar/tests/engines/server.rs"]
mod server;

const DAY: u64 = 86_400;
const START: u64 = 1_795_392_000;

/// `sites[n]` is the site of host n.
fn mesh_of(sites: &[usize]) -> Mesh {
    let hosts = sites.iter().enumerate();
    let hosts: String = hosts
        .map(|(n, site)| {
            format!("[[host]]\nname = \"h{n}\"\nagent = \"h{n}\"\nsite = \"s{site}\"\n")
        })
        .collect();
    let test = "[[test]]\nname = \"bulk\"\nhosts = [\"*\"]\nevery = \"1d\"\ngood = \"8G\"\n";
    parse_mesh(&format!("[mesh]\nname = \"m\"\n{hosts}{test}"), "m.toml").unwrap()
}

fn leg(mesh: &Mesh, (from, to): HostPair, n: u64, starts: u64, rate: u64) -> MeshLeg {
    MeshLeg {
        run: format!(
            "{:032x}",
            u128::from(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)) << 32 | u128::from(n)
        ),
        leg: (n % 2) as u32,
        mesh: mesh.name.clone(),
        test: "bulk".to_owned(),
        src: mesh.hosts[from].name.clone(),
        dst: mesh.hosts[to].name.clone(),
        starts: Nanos::from_secs(starts),
        span: Nanos::from_secs(10),
        bytes: Some(Bytes(rate / 8 * 10)),
        goodput: Some(BitRate(rate)),
        retrans_ppm: Some(n % 100),
        rtt_idle: Some(Nanos::from_micros(100)),
        rtt_p50: Some(Nanos::from_micros(2_000)),
        rtt_p95: None,
        packets: None,
        busy: false,
        loss_ppm: None,
        mtu: None,
        limited_by: Some("path-full".to_owned()),
        outcome: if rate < 8_000_000_000 {
            LegOutcome::Low
        } else {
            LegOutcome::Good
        },
        why: None,
        level_since: None,
    }
}

fn legs_of(scratch: &Scratch) -> MeshLegs {
    let archive = Archive::open_to_read(&scratch.0.join("runs.db"));
    MeshLegs::Archive(archive.unwrap())
}

fn whole_grid(legs: &mut MeshLegs, mesh: &Mesh, test: &MeshTest, now: Nanos) -> MeshGrid {
    grid(legs, (mesh, test), GridPart::Whole, now, NEWEST).unwrap()
}

struct Scratch(std::path::PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path =
            std::env::temp_dir().join(format!("linerate-mesh-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Of more than 300 hosts the sites: a cell is the worst of its pairs, a leg that is under way being none.
#[test]
fn a_cell_of_sites_is_the_worst_of_its_pairs() {
    let scratch = Scratch::new("sites");
    let mut archive = Archive::open(&scratch.0.join("runs.db")).unwrap();
    let mut mesh = mesh_of(&(0..302).map(|host| host % 2).collect::<Vec<_>>());
    let side = |site| (0..302).filter(|host| host % 2 == site).collect();
    (mesh.tests[0].from, mesh.tests[0].to) = (side(0), side(1));
    let (test, now) = (&mesh.tests[0], Nanos::from_secs(START));
    let shown = || {
        let grid = whole_grid(&mut legs_of(&scratch), &mesh, test, now);
        assert_eq!(grid.hosts.len(), 2);
        assert_eq!(grid.cells.keys().collect::<Vec<_>>(), [&(0, 1), &(1, 0)]);
        grid.cells[&(0, 1)].newest().map(|leg| leg.outcome)
    };
    assert_eq!(shown(), None);
    let outcomes = [
        LegOutcome::Good,
        LegOutcome::Skipped,
        LegOutcome::Missed,
        LegOutcome::Low,
        LegOutcome::Failed,
    ];
    for (n, outcome) in outcomes.into_iter().enumerate() {
        // From the last pairs to the first: the order of the pairs shows nothing.
        let pair = (300 - 10 * n, 1);
        let mut leg = leg(&mesh, pair, n as u64, START - DAY, 9_000_000_000);
        leg.outcome = outcome;
        archive.store_mesh_legs(&[leg], false).unwrap();
        assert_eq!(shown(), Some(outcome));
    }
}

/// Of a site with more hosts than a page has, those with the worst cells are left.
#[test]
fn a_grid_of_two_large_sites_has_their_worst_hosts() {
    let mesh = mesh_of(&[0, 1]);
    let of = |host: usize, outcome| GridCell {
        legs: vec![MeshLeg {
            outcome,
            ..leg(&mesh, (0, 1), host as u64, START, 0)
        }],
    };
    let outcome = |host: usize| match host {
        301 => LegOutcome::Failed,
        _ => LegOutcome::Good,
    };
    let cells = (0..302).map(|host| ((host, 400), of(host, outcome(host))));
    let mut cells: BTreeMap<_, _> = cells.collect();
    assert_eq!(leave_the_worst(&mut cells), 2);
    let left: Vec<usize> = cells.keys().map(|pair| pair.0).collect();
    let expected: Vec<usize> = (0..299).chain([301]).collect();
    assert_eq!(left, expected);
}

#[test]
fn alerts_wait_for_each_other_and_no_leg_for_them() {
    let scratch = Scratch::new("alerts");
    let said = scratch.0.join("said");
    let mesh = mesh_of(&[0, 1]);
    let alert = mesh::MeshAlert {
        test: "bulk".to_owned(),
        when: mesh::AlertWhen::Outcome(LegOutcome::Low),
        times: 1,
        exec: ["/bin/sh", "-c", &format!("cat >> {}", said.display())]
            .map(str::to_owned)
            .to_vec(),
    };
    let (queue, log) = (AlertQueue::default(), std::sync::Mutex::new(Vec::new()));
    let note = |line: &str| sys::lock(&log).push(line.to_owned());
    // Nobody executes them yet.
    for n in 0..66 {
        queue.push(&alert, &leg(&mesh, (0, 1), n, START, 1_000_000), &note);
    }
    assert_eq!(sys::lock(&log).len(), 2, "64 wait");
    queue.work(&|| false, &note);
    let text = std::fs::read_to_string(&said).unwrap();
    assert_eq!(text.lines().count(), 64);
    assert_eq!(sys::lock(&log).len(), 2);
}

/// A thin uplink of one site and a bad cable of a host, by the legs that passed them.
#[test]
fn a_grid_and_its_suspects() {
    let scratch = Scratch::new("grid");
    let mut archive = Archive::open(&scratch.0.join("runs.db")).unwrap();
    // Sites take turns in the file, and stand together in the grid.
    let mesh = mesh_of(&[0, 1, 0, 1, 0, 1, 0, 1]);
    let test = &mesh.tests[0];
    let now = Nanos::from_secs(START);
    let mut legs = Vec::new();
    for (n, pair) in test.cells().into_iter().enumerate() {
        let thin = [0, 1, 0, 1, 0, 1, 0, 1][pair.0] == 1 && pair.1 % 2 == 0;
        let rate = if thin || pair.1 == 2 {
            900_000_000
        } else {
            9_000_000_000
        };
        legs.push(leg(&mesh, pair, n as u64, START - DAY, rate));
    }
    archive.store_mesh_legs(&legs, false).unwrap();
    let grid = whole_grid(&mut legs_of(&scratch), &mesh, test, now);
    let names: Vec<&str> = grid.hosts.iter().map(|host| host.name.as_str()).collect();
    assert_eq!(names, ["h0", "h2", "h4", "h6", "h1", "h3", "h5", "h7"]);
    assert_eq!(grid.cells.len(), 56);
    assert_eq!(
        grid.cells[&(4, 0)].newest().unwrap().outcome,
        LegOutcome::Low
    );

    let found = suspected(&mut legs_of(&scratch), &mesh, test, now).unwrap();
    assert_eq!((found.good, found.low), (37, 19));
    let found: Vec<String> = found
        .suspects
        .iter()
        .flat_map(|of| &of.elements)
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        found,
        [
            "uplink of site s1, outwards",
            "uplink of site s0, inwards",
            "receiving of h2"
        ]
    );
    // Legs that are under way hide nothing; one that should be over does.
    let running = MeshLeg {
        goodput: None,
        outcome: LegOutcome::Missed,
        why: Some(run::PENDING.to_owned()),
        ..leg(&mesh, (0, 2), 99, START, 0)
    };
    let another = MeshLeg {
        run: "1".repeat(32),
        ..running.clone()
    };
    archive.store_mesh_legs(&[running, another], false).unwrap();
    let shown = |now: u64| {
        let grid = whole_grid(&mut legs_of(&scratch), &mesh, test, Nanos::from_secs(now));
        grid.cells[&(0, 1)].newest().unwrap().outcome
    };
    let outcomes = [START + 5, START + 60].map(shown);
    assert_eq!(outcomes, [LegOutcome::Low, LegOutcome::Missed]);
    // Three days later nothing is known any more.
    let later = Nanos::from_secs(START + 3 * DAY);
    let found = suspected(&mut legs_of(&scratch), &mesh, test, later).unwrap();
    assert_eq!((found.good, found.low), (0, 0));
    assert_eq!(found.suspects, []);
    assert!(
        cell(&mut legs_of(&scratch), (&mesh, test), ["h0", "h9"], later)
            .unwrap()
            .is_none()
    );
}

#[test]
fn a_cell_has_a_history_of_what_was_measured() {
    let scratch = Scratch::new("history");
    let mut archive = Archive::open(&scratch.0.join("runs.db")).unwrap();
    let mesh = mesh_of(&[0, 1]);
    let outcomes = [LegOutcome::Good, LegOutcome::Missed, LegOutcome::Low];
    let legs = (1..).zip(outcomes).map(|(n, outcome)| MeshLeg {
        outcome,
        ..leg(&mesh, (0, 1), n, START + n, 1000)
    });
    archive
        .store_mesh_legs(&legs.collect::<Vec<_>>(), false)
        .unwrap();
    let (of, now) = ((&mesh, &mesh.tests[0]), Nanos::from_secs(START + 9));
    let cell = cell(&mut legs_of(&scratch), of, ["h0", "h1"], now).unwrap();
    let (newest, history) = cell.unwrap();
    let newest: Vec<LegOutcome> = newest.iter().map(|leg| leg.outcome).collect();
    assert_eq!(newest, [outcomes[2], outcomes[1], outcomes[0]]);
    assert_eq!((history.runs.len(), history.host.as_str()), (2, "h1"));
    assert!(history.runs[0].started < history.runs[1].started);
}

/// A run that broke off in its first leg has rows for both, each with the reason: none waits for a result any more.
#[test]
fn a_run_that_broke_off_leaves_no_leg_pending() {
    let mesh = mesh_of(&[0, 1]);
    let why = "h1 does not answer".to_owned();
    let failed = || Ended::Failed { why: why.clone() };
    let leg = Leg {
        direction: Direction::Up,
        started: Nanos::from_secs(1),
        local: EndRecord::default(),
        remote: EndRecord::default(),
        ended: failed(),
    };
    let run = Run {
        // Its source's clock is wrong.
        started: Nanos::from_secs(START + 7200),
        legs: vec![leg],
        ended: failed(),
        ..Run::default()
    };
    let at = Nanos::from_secs(START);
    let rows = legs::legs_of_run(&mesh, &mesh.tests[0], ((0, 1), at), &run);
    assert_eq!(rows[0].starts, at + Nanos::from_secs(1));
    assert_eq!(rows[1].starts, at);
    let rows: Vec<_> = rows
        .iter()
        .map(|row| (row.leg, row.src.as_str(), row.outcome, row.why.as_deref()))
        .collect();
    let early = Some("it ended early: h1 does not answer");
    let before = Some("the run ended before it: h1 does not answer");
    let expected = [
        (0, "h0", LegOutcome::Failed, early),
        (1, "h1", LegOutcome::Missed, before),
    ];
    assert_eq!(rows, expected);
}

/// A wall clock that is set at some seconds of a monotonic clock, so far from it then. Sleeping takes no time, and `stop` is
/// set at the end.
struct ClockThatIsSet {
    monotonic: std::sync::Mutex<Nanos>,
    set: Vec<(u64, u64)>,
    ends: u64,
    stop: std::sync::Arc<AtomicBool>,
}

impl clock::TimeSource for ClockThatIsSet {
    fn wall(&self) -> Nanos {
        let now = self.monotonic();
        let set = self.set.iter().rev();
        let mut set = set.filter(|(at, _)| now >= Nanos::from_secs(*at));
        now + Nanos::from_secs(set.next().unwrap().1)
    }

    fn monotonic(&self) -> Nanos {
        *sys::lock(&self.monotonic)
    }

    fn sleep(&self, time: Duration) {
        let mut now = sys::lock(&self.monotonic);
        *now += time.into();
        let is_over = *now >= Nanos::from_secs(self.ends);
        self.stop.store(is_over, Ordering::Relaxed);
    }
}

/// Set an hour forward and back again: the rounds go on, and what lies in the future hides none of them.
#[test]
fn a_clock_that_is_set_stops_no_round() {
    let scratch = Scratch::new("clock");
    let hosts = [1, 2].map(|n| format!("[[host]]\nname = \"h{n}\"\nagent = \"127.0.0.{n}:1\"\n"));
    let test = "[[test]]\nname = \"b\"\nhosts = [\"*\"]\ntime = \"1s\"\nevery = \"1m\"\n";
    let file = format!("[mesh]\nname = \"m\"\n{}{test}", hosts.concat());
    let mesh = parse_mesh(&file, "m.toml").unwrap();
    let stop = std::sync::Arc::new(AtomicBool::new(false));
    let set = [(0, 30), (100, 3630), (160, 30)];
    let source = ClockThatIsSet {
        monotonic: std::sync::Mutex::default(),
        set: set.map(|(at, from)| (at, START + from)).to_vec(),
        ends: 280,
        stop: std::sync::Arc::clone(&stop),
    };
    let log = std::sync::Mutex::new(Vec::new());
    let run = MeshRun {
        mesh: &mesh,
        archive: scratch.0.join("runs.db"),
        directory: scratch.0.clone(),
        stop: &stop,
        alerts: AlertQueue::default(),
        ended: false.into(),
        clock: MeshClock::of(Box::new(source)),
        log: &|line| sys::lock(&log).push(line.to_owned()),
    };
    let mut archive = Archive::open(&run.archive).unwrap();
    let calendar = calendar::MeshCalendar::in_directory(&mesh, &scratch.0);
    run.rounds(&mut archive, &calendar).unwrap();
    let legs = archive
        .mesh_cell(["m", "b", "h1", "h2"], Nanos(u64::MAX), 99)
        .unwrap();
    let starts: Vec<u64> = legs
        .iter()
        .map(|leg| leg.starts.0 / 1_000_000_000)
        .collect();
    assert_eq!(starts, [3780, 300, 240, 120, 60].map(|at| START + at));
    let now = Nanos::from_secs(START + 310);
    let grid = whole_grid(&mut legs_of(&scratch), &mesh, &mesh.tests[0], now);
    assert_eq!(grid.cells[&(0, 1)].newest().unwrap().starts, legs[1].starts);
    let log = sys::lock(&log);
    let set: Vec<_> = log.iter().filter(|line| line.contains("clock")).collect();
    let planned = "all slots are released and the rounds planned again; the next round, of 'b', begins at 2026-11-23";
    let line = |way, at| format!("the clock of this host was set {way} by 1 h: {planned} {at} UTC");
    assert_eq!(
        set,
        [&line("forward", "01:03:00"), &line("back", "00:04:00")]
    );
}

/// Two hosts and a test of this kind.
fn two_hosts(kind: &str) -> Mesh {
    let hosts = [1, 2].map(|n| format!("[[host]]\nname = \"h{n}\"\nagent = \"127.0.0.{n}:1\"\n"));
    let test =
        format!("[[test]]\nname = \"b\"\nkind = \"{kind}\"\nhosts = [\"*\"]\nevery = \"1h\"\n");
    let file = format!(
        "[mesh]\nname = \"m\"\nepoch = 2026-11-23T00:00:00Z\n{}{test}",
        hosts.concat()
    );
    parse_mesh(&file, "m.toml").unwrap()
}

#[test]
fn a_grid_and_a_history_have_the_figure_of_their_test() {
    let scratch = Scratch::new("figures");
    drop(Archive::open(&scratch.0.join("runs.db")).unwrap());
    for (kind, figure, metric) in [
        ("bulk", CellFigure::Goodput, Some(Metric::Goodput)),
        ("udp", CellFigure::Goodput, Some(Metric::Goodput)),
        ("request", CellFigure::Latency, Some(Metric::LatencyP50)),
        ("mtu", CellFigure::Mtu, None),
        ("light", CellFigure::LightRtt, Some(Metric::LatencyP50)),
    ] {
        let mesh = two_hosts(kind);
        let test = &mesh.tests[0];
        let legs = &mut legs_of(&scratch);
        let now = Nanos::from_secs(START);
        let grid = whole_grid(legs, &mesh, test, now);
        assert!(grid.figure == figure, "{kind}");
        let cell = cell(legs, (&mesh, test), ["h1", "h2"], now).unwrap();
        let (_, history) = cell.unwrap();
        assert_eq!(history.metric, metric, "{kind}");
        assert_eq!(
            (history.local.as_str(), history.host.as_str()),
            ("h1", "h2")
        );
        assert_eq!(history.workload, "b of mesh m");
    }
}

#[test]
fn three_hundred_hosts_are_shown_and_of_one_more_the_sites() {
    let scratch = Scratch::new("many");
    drop(Archive::open(&scratch.0.join("runs.db")).unwrap());
    for (count, shown) in [(300, 300), (301, 2)] {
        let mut mesh = mesh_of(&(0..count).map(|host| host % 2).collect::<Vec<_>>());
        (mesh.tests[0].from, mesh.tests[0].to) = ((1..count).collect(), vec![0]);
        let now = Nanos::from_secs(START);
        let grid = whole_grid(&mut legs_of(&scratch), &mesh, &mesh.tests[0], now);
        assert_eq!(grid.hosts.len(), shown, "{count}");
    }
}

#[test]
fn the_next_round_is_named_with_its_time() {
    let mesh = two_hosts("bulk");
    let now = Nanos::from_secs(START + 60);
    let said = "the next round, of 'b', begins at 2026-11-23 01:00:00 UTC";
    assert_eq!(next_round(&mesh, now), said);
    let mut quiet = mesh;
    quiet.quiet = vec!["00:00-24:00".parse().unwrap()];
    let none = "no round begins: the quiet spans leave no time for one";
    assert_eq!(next_round(&quiet, now), none);
}

#[test]
fn a_leg_without_a_result_is_under_way_until_its_round_is_over() {
    let mesh = mesh_of(&[0, 1]);
    let test = &mesh.tests[0];
    let pending = MeshLeg {
        why: Some(run::PENDING.to_owned()),
        ..leg(&mesh, (0, 1), 1, START, 0)
    };
    let over = pending.starts + round_length(test);
    assert!(is_under_way(test, &pending, over.since(Nanos(1))));
    assert!(!is_under_way(test, &pending, over));
    let known = MeshLeg {
        why: Some("it broke".to_owned()),
        ..pending
    };
    assert!(!is_under_way(test, &known, known.starts));
}

#[test]
fn the_worse_outcome_of_two_cells_is_shown() {
    use LegOutcome::{Failed, Good, Low, Missed, Skipped};
    let mesh = mesh_of(&[0, 1]);
    let cell = |outcome: Option<LegOutcome>| GridCell {
        legs: outcome
            .map(|outcome| MeshLeg {
                outcome,
                ..leg(&mesh, (0, 1), 1, START, 1)
            })
            .into_iter()
            .collect(),
    };
    let order = [
        None,
        Some(Good),
        Some(Skipped),
        Some(Missed),
        Some(Low),
        Some(Failed),
    ];
    let all: Vec<u8> = order
        .iter()
        .map(|outcome| badness(&cell(*outcome)))
        .collect();
    assert!(all.is_sorted_by(|a, b| a < b), "{all:?}");
}

#[test]
fn legs_of_two_cycles_are_judged_and_older_ones_are_not() {
    let scratch = Scratch::new("old");
    let mut archive = Archive::open(&scratch.0.join("runs.db")).unwrap();
    let mesh = mesh_of(&[0, 1]);
    let (test, now) = (&mesh.tests[0], START + 10 * DAY);
    let at = |n, starts| leg(&mesh, (0, 1), n, starts, 9_000_000_000);
    let counted = |now: u64| {
        let now = Nanos::from_secs(now);
        let found = suspected(&mut legs_of(&scratch), &mesh, test, now).unwrap();
        [found.good, found.low]
    };
    archive
        .store_mesh_legs(&[at(1, now - 2 * DAY)], false)
        .unwrap();
    assert_eq!([counted(now), counted(now + 1)], [[1, 0], [0, 0]]);
    // One that measured nothing hides none that did.
    let missed = MeshLeg {
        outcome: LegOutcome::Missed,
        ..at(2, now - DAY)
    };
    archive.store_mesh_legs(&[missed], false).unwrap();
    assert_eq!(counted(now), [1, 0]);
    archive
        .store_mesh_legs(&[leg(&mesh, (1, 0), 3, now - DAY, 1000)], false)
        .unwrap();
    assert_eq!(counted(now), [1, 1]);
}

/// Where the quiet spans leave no time each pair has a row a period, from the first period on that it was there for.
#[test]
fn rounds_without_time_are_skipped_by_who_was_there() {
    let scratch = Scratch::new("quiet");
    let mut mesh = two_hosts("bulk");
    mesh.tests[0].every = Nanos::from_secs(60);
    mesh.quiet = vec!["00:00-24:00".parse().unwrap()];
    let stop = std::sync::Arc::new(AtomicBool::new(false));
    let source = ClockThatIsSet {
        monotonic: std::sync::Mutex::default(),
        set: vec![(0, START + 30)],
        ends: 180,
        stop: std::sync::Arc::clone(&stop),
    };
    let run = MeshRun {
        mesh: &mesh,
        archive: scratch.0.join("runs.db"),
        directory: scratch.0.clone(),
        stop: &stop,
        alerts: AlertQueue::default(),
        ended: false.into(),
        clock: MeshClock::of(Box::new(source)),
        log: &|line| panic!("{line}"),
    };
    let mut archive = Archive::open(&run.archive).unwrap();
    let calendar = calendar::MeshCalendar::in_directory(&mesh, &scratch.0);
    run.rounds(&mut archive, &calendar).unwrap();
    let cell = |src, dst| {
        let legs = archive
            .mesh_cell(["m", "b", src, dst], Nanos(u64::MAX), 99)
            .unwrap();
        let rows = legs.iter().map(|leg| {
            assert_eq!(leg.outcome, LegOutcome::Skipped);
            let why = "the quiet spans leave no time for it";
            assert_eq!(leg.why.as_deref(), Some(why));
            leg.starts.0 / 1_000_000_000 - START
        });
        rows.collect::<Vec<_>>()
    };
    assert_eq!(cell("h1", "h2"), [180, 120, 60]);
    assert_eq!(cell("h2", "h1"), [180, 120, 60]);
}

/// `cargo test -p linerate-engine --release a_year_of_30_hosts -- --ignored --nocapture`
#[test]
#[ignore = "seeds 876,000 rows and prints times; docs/mesh.md has them"]
fn a_year_of_30_hosts() {
    let scratch = Scratch::new("year");
    let file = scratch.0.join("runs.db");
    let mut archive = Archive::open(&file).unwrap();
    let mesh = mesh_of(&(0..30).map(|n| n % 5).collect::<Vec<usize>>());
    let test = &mesh.tests[0];
    let cells = test.cells();
    let server = server::PostgresServer::start(&[]);
    let address = server.database("meshes").parse().unwrap();
    let now = crate::host_calendar::now();
    let mut shared = Postgres::open(&address, "a test", now).unwrap();
    let [mut own, mut delivered] = [Duration::ZERO; 2];
    let mut n: u64 = 0;
    for day in 0..365 {
        let legs: Vec<MeshLeg> = (0..2400)
            .map(|_| {
                n += 1;
                let noise = n.wrapping_mul(0x9e37_79b9) % 1_000_000_000;
                leg(
                    &mesh,
                    cells[n as usize % cells.len()],
                    n,
                    START - DAY * (365 - day) + n % 2400 * 36,
                    8_500_000_000 + noise,
                )
            })
            .collect();
        let begin = Instant::now();
        archive.store_mesh_legs(&legs, false).unwrap();
        own += begin.elapsed();
        let begin = Instant::now();
        for part in legs.chunks(256) {
            store_legs(&mut shared, part).unwrap();
        }
        delivered += begin.elapsed();
    }
    println!("stored {n} legs in {own:?}, delivered in {delivered:?}");
    println!("{} MB", archive.size().unwrap().0 / 1_000_000);
    let size = "SELECT pg_total_relation_size('linerate.mesh_legs') / 1000000";
    println!("PostgreSQL: {} MB", server.sql("meshes", size));
    let shared = || {
        let opened = Postgres::open_to_read(&address, "a test");
        MeshLegs::Shared(Box::new(opened.unwrap()))
    };
    for at in 0..6 {
        let legs: &dyn Fn() -> MeshLegs = if at < 3 {
            &|| legs_of(&scratch)
        } else {
            &shared
        };
        let begin = Instant::now();
        let grid = whole_grid(&mut legs(), &mesh, test, Nanos::from_secs(START));
        let read = begin.elapsed();
        let page = report::pages::grid(
            &grid,
            &[],
            |host| [host.to_owned(), host.to_owned()],
            str::to_owned,
        );
        println!(
            "grid: read in {read:?}, with its page of {} KB {:?}",
            page.len() / 1000,
            begin.elapsed()
        );
        let begin = Instant::now();
        let now = Nanos::from_secs(START);
        let cell = cell(&mut legs(), (&mesh, test), ["h3", "h17"], now);
        let (_, history) = cell.unwrap().unwrap();
        println!(
            "history of a cell, {} legs: {:?}",
            history.runs.len(),
            begin.elapsed()
        );
    }
}

/// `cargo test -p linerate-engine --release a_grid_of_300_hosts -- --ignored --nocapture`; `KEEP=FILE` keeps the archive.
#[test]
#[ignore = "seeds 269,100 rows and prints times; docs/mesh.md has them"]
fn a_grid_of_300_hosts() {
    let scratch = Scratch::new("300");
    let file = scratch.0.join("runs.db");
    let mesh = mesh_of(&(0..300).map(|n| n % 6).collect::<Vec<usize>>());
    let test = &mesh.tests[0];
    let cells = test.cells();
    let now = crate::clock::unix_time();
    let legs = (0..3 * cells.len() as u64).map(|n| {
        // One in fifty is low.
        let noise = n.wrapping_mul(0x9e37_79b9) % 1_000_000_000;
        let rate = if n % 50 == 0 {
            900_000_000
        } else {
            8_500_000_000 + noise
        };
        let starts = now.0 / 1_000_000_000 - DAY * 2 + n / 3;
        leg(&mesh, cells[n as usize % cells.len()], n, starts, rate)
    });
    let legs: Vec<MeshLeg> = legs.collect();
    Archive::open(&file)
        .unwrap()
        .store_mesh_legs(&legs, false)
        .unwrap();
    if let Ok(keep) = std::env::var("KEEP") {
        std::fs::copy(&file, keep).unwrap();
    }
    let server = server::PostgresServer::start(&[]);
    let address = server.database("meshes").parse().unwrap();
    let mut shared = Postgres::open(&address, "a test", crate::host_calendar::now()).unwrap();
    let begin = Instant::now();
    for part in legs.chunks(256) {
        store_legs(&mut shared, part).unwrap();
    }
    println!("delivered {} legs in {:?}", legs.len(), begin.elapsed());
    for at in 0..6 {
        let mut legs = match at {
            0..3 => legs_of(&scratch),
            _ => MeshLegs::Shared(Box::new(
                Postgres::open_to_read(&address, "a test").unwrap(),
            )),
        };
        let begin = Instant::now();
        let grid = whole_grid(&mut legs, &mesh, test, now);
        let read = begin.elapsed();
        let page = report::pages::grid(
            &grid,
            &[],
            |host| [host.to_owned(), host.to_owned()],
            str::to_owned,
        );
        let both = begin.elapsed();
        println!(
            "grid: read in {read:?}, with its page of {} KB {both:?}",
            page.len() / 1000
        );
    }
}

/// `cargo test -p linerate-engine --release a_cycle_of_light_probes -- --ignored --nocapture`
#[test]
#[ignore = "seeds 174,000 rows and prints times; docs/mesh.md has them"]
fn a_cycle_of_light_probes_of_30_hosts() {
    let scratch = Scratch::new("light");
    let file = scratch.0.join("runs.db");
    let mut archive = Archive::open(&file).unwrap();
    let hosts: String = (0..30)
        .map(|n| format!("[[host]]\nname = \"h{n}\"\nagent = \"h{n}\"\n"))
        .collect();
    let test = "[[test]]\nname = \"l\"\nkind = \"light\"\nhosts = [\"*\"]\n";
    let mesh = parse_mesh(&format!("[mesh]\nname = \"m\"\n{hosts}{test}"), "m.toml").unwrap();
    let test = &mesh.tests[0];
    // Of each third cell the level changes.
    let legs = |cycle: u64| -> Vec<MeshLeg> {
        let cells = test.cells().into_iter().enumerate();
        let legs = cells.map(|(at, (from, to))| {
            let noise = (cycle * 870 + at as u64).wrapping_mul(0x9e37_79b9) % 100_000;
            let step = if at % 3 == 0 && cycle > 180 {
                50_000
            } else {
                0
            };
            let [src, dst] = [from, to].map(|host| mesh.hosts[host].name.as_str());
            let run = format!("{cycle:032x}");
            let starts = Nanos::from_secs(START + 60 * cycle);
            MeshLeg {
                rtt_p50: Some(Nanos(10_000_000 + noise + step)),
                rtt_p95: Some(Nanos(11_000_000)),
                loss_ppm: Some(0),
                packets: Some(20),
                mtu: Some(1500),
                ..MeshLeg::bare(
                    run,
                    at as u32,
                    ["m", "l", src, dst],
                    starts,
                    LegOutcome::Good,
                )
            }
        });
        legs.collect()
    };
    for cycle in 0..200 {
        archive.store_mesh_legs(&legs(cycle), false).unwrap();
    }
    let size = archive.size().unwrap().0 / (200 * 870);
    println!("{size} bytes a row");
    let run = MeshRun {
        mesh: &mesh,
        archive: file,
        directory: scratch.0.clone(),
        stop: &false.into(),
        alerts: AlertQueue::default(),
        ended: false.into(),
        clock: MeshClock::default(),
        log: &|_| {},
    };
    for cycle in 200..210 {
        let begin = Instant::now();
        run.store(&mut archive, test, legs(cycle)).unwrap();
        println!("870 legs judged and kept in {:?}", begin.elapsed());
    }
    let shifted = archive
        .mesh_cell(["m", "l", "h0", "h1"], Nanos(u64::MAX), 1)
        .unwrap();
    assert!(shifted[0].level_since.is_some());
    let begin = Instant::now();
    let now = Nanos::from_secs(START + 60 * 210);
    whole_grid(&mut legs_of(&scratch), &mesh, test, now);
    println!("grid read in {:?}", begin.elapsed());
}

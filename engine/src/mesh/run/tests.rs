use super::*;
use crate::testing::TempDir;
use mesh::parse_mesh;
use model::BitRate;
use std::sync::Mutex;

const SECOND: Nanos = Nanos::from_secs(1);
const SLOT: &str = "0123456789abcdef0123456789abcdef";
/// Two legs of 10 MB each, after which a cell is low or good.
const BULK: &str =
    "[[test]]\nname = \"bulk\"\nhosts = [\"*\"]\ntime = \"10s\"\nevery = \"1d\"\ngood = \"8M\"\n";

/// Of the hosts a and b, the first of which has these lines beside.
fn mesh_of(of_a: &str, more: &str) -> Mesh {
    let host = |name: &str| format!("[[host]]\nname = \"{name}\"\nagent = \"{name}\"\n");
    let text = format!(
        "[mesh]\nname = \"m\"\n{}{of_a}\n{}{more}",
        host("a"),
        host("b")
    );
    parse_mesh(&text, "m.toml").unwrap()
}

/// Has this done by a coordinator of the mesh; the last argument takes the lines of its log.
fn coordinator<T>(
    mesh: &Mesh,
    act: impl FnOnce(&MeshRun<'_>, &mut Archive, &dyn Fn() -> Vec<String>) -> T,
) -> T {
    let dir = TempDir::new();
    let (stop, log) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    let run = MeshRun {
        mesh,
        archive: dir.path().join("runs.db"),
        directory: dir.path().to_owned(),
        stop: &stop,
        log: &|line| sys::lock(&log).push(line.to_owned()),
        alerts: AlertQueue::default(),
        ended: false.into(),
        clock: MeshClock::default(),
    };
    let mut archive = Archive::open(&run.archive).unwrap();
    let logged = || std::mem::take(&mut *sys::lock(&log));
    act(&run, &mut archive, &logged)
}

/// A leg from a to b that began so long ago.
fn leg(test: &str, number: u32, age: Nanos, now: Nanos) -> MeshLeg {
    let run = format!("{number:032x}");
    let cell = ["m", test, "a", "b"];
    MeshLeg::bare(run, 0, cell, now.since(age), LegOutcome::Good)
}

fn of_rate(number: u32, age: Nanos, now: Nanos, rate: u64) -> MeshLeg {
    MeshLeg {
        goodput: Some(BitRate(rate)),
        ..leg("bulk", number, age, now)
    }
}

#[test]
fn a_host_moves_at_most_its_bytes_in_a_day_with_what_light_probes_will() {
    let light = "[[test]]\nname = \"l\"\nkind = \"light\"\nhosts = [\"*\"]\n";
    let of = |a_day: u64, tests: &str, counted: u64| {
        let mesh = mesh_of(&format!("bytes_a_day = \"{a_day}\""), tests);
        coordinator(&mesh, |run, archive, _| {
            let now = run.now();
            let moved = |number, age: u64, bytes| MeshLeg {
                bytes: Some(Bytes(bytes)),
                ..leg("bulk", number, Nanos::from_secs(age), now)
            };
            let legs = [moved(1, 3600, counted), moved(2, 2 * 86_400, 1 << 40)];
            archive.store_mesh_legs(&legs, false).unwrap();
            run.above_budget(archive, &mesh.tests[0], (1, 0)).unwrap()
        })
    };
    // Twice 10 MB come on top.
    assert_eq!(of(30_000_000, BULK, 10_000_000), None);
    let why = of(30_000_000, BULK, 10_000_001).unwrap();
    assert!(
        why.starts_with("a has moved 10.0 MB") || why.starts_with("a has moved 9."),
        "{why}"
    );
    assert!(why.ends_with(" in the last day"), "{why}");
    let both = format!("{BULK}{light}");
    let share = light_bytes_a_day(&mesh_of("", &both), 0).0;
    assert!(share > 0);
    assert_eq!(of(30_000_000 + share, &both, 10_000_000), None);
    assert!(of(30_000_000 + share - 1, &both, 10_000_000).is_some());
}

#[test]
fn a_pair_above_its_budget_is_skipped_with_the_reason() {
    let round = PlannedRound {
        test: 0,
        cycle: 0,
        round: 0,
        starts: None,
        length: SECOND,
        pairs: vec![(0, 1)],
    };
    let of = |a_day: &str| {
        let mesh = mesh_of(&format!("bytes_a_day = \"{a_day}\""), BULK);
        coordinator(&mesh, |run, archive, _| {
            let slots = run.slots(archive, &round).unwrap();
            let cell = |src, dst| {
                archive
                    .mesh_cell(["m", "bulk", src, dst], Nanos(u64::MAX), 9)
                    .unwrap()
            };
            (slots.len(), [cell("a", "b"), cell("b", "a")].concat())
        })
    };
    let (slots, rows) = of("20000000");
    assert_eq!((slots, rows.len()), (1, 0));
    let (slots, rows) = of("19999999");
    assert_eq!(slots, 0);
    assert_eq!(rows.len(), 2, "a row for each leg");
    for row in rows {
        assert_eq!(row.outcome, LegOutcome::Skipped);
        assert!(row.why.unwrap().starts_with("a has moved 0 B of its "));
    }
}

#[test]
fn legs_are_judged_and_alerts_are_due_once_after_so_many_in_a_row() {
    let dir = TempDir::new();
    let said = dir.path().join("said");
    let alert = format!(
        "[[alert]]\ntest = \"bulk\"\nwhen = \"low\"\ntimes = 2\nexec = [\"/bin/sh\", \"-c\", \"cat >> {}\"]\n",
        said.display()
    );
    let mesh = mesh_of("", &format!("{BULK}{alert}"));
    coordinator(&mesh, |run, archive, _| {
        let (test, now) = (&mesh.tests[0], run.now());
        let alerts = |run: &MeshRun<'_>| {
            run.alerts.work(&|| false, &|line| panic!("{line}"));
            let text = std::fs::read_to_string(&said).unwrap_or_default();
            text.lines().count()
        };
        let mut store = |leg: MeshLeg| {
            let (run_id, cell) = (leg.run.clone(), ["m", "bulk", "a", "b"]);
            run.store(archive, test, vec![leg]).unwrap();
            let kept = archive.mesh_cell(cell, Nanos(u64::MAX), 99).unwrap();
            let kept = kept.into_iter().find(|kept| kept.run == run_id).unwrap();
            (kept.outcome, kept.why, alerts(run))
        };
        let age = Nanos::from_secs;
        let low = Some("worse than 8.00 Mbit/s".to_owned());
        let of = |number, at, rate| of_rate(number, age(at), now, rate);
        assert_eq!(store(of(1, 90, 8_000_000)), (LegOutcome::Good, None, 0));
        let first = of(2, 80, 7_999_999);
        assert_eq!(store(first.clone()), (LegOutcome::Low, low.clone(), 0));
        assert_eq!(store(first).2, 0, "the same leg is one");
        let skipped = MeshLeg {
            outcome: LegOutcome::Skipped,
            why: Some("no time".to_owned()),
            ..leg("bulk", 3, age(70), now)
        };
        let why = Some("no time".to_owned());
        assert_eq!(store(skipped), (LegOutcome::Skipped, why, 0));
        assert_eq!(store(of(4, 60, 1000)), (LegOutcome::Low, low.clone(), 1));
        assert_eq!(store(of(5, 50, 1000)).2, 1, "once");
        let missed = MeshLeg {
            outcome: LegOutcome::Missed,
            ..leg("bulk", 6, age(40), now)
        };
        assert_eq!(store(missed), (LegOutcome::Missed, None, 1));
        assert_eq!(store(of(7, 30, 1000)).2, 1);
        assert_eq!(store(of(8, 20, 1000)).2, 2, "twice in a row again");
        // What somebody else says of it stays.
        let named = MeshLeg {
            why: Some("by the agent".to_owned()),
            ..of(9, 10, 1000)
        };
        let why = Some("by the agent".to_owned());
        assert_eq!(store(named), (LegOutcome::Low, why, 2));
    });
}

#[test]
fn a_change_of_level_is_kept_with_its_first_leg_and_alerts_once() {
    let dir = TempDir::new();
    let said = dir.path().join("said");
    let alert = format!(
        "[[alert]]\ntest = \"bulk\"\nwhen = \"shifted\"\nexec = [\"/bin/sh\", \"-c\", \"cat >> {}\"]\n",
        said.display()
    );
    let mesh = mesh_of("", &format!("{BULK}{alert}"));
    coordinator(&mesh, |run, archive, _| {
        let (test, now) = (&mesh.tests[0], run.now());
        let age = |number: u32| Nanos::from_secs(10 * (100 - u64::from(number)));
        let mut since = None;
        for number in 0..30 {
            let level = if number < 20 { 90_000_000 } else { 30_000_000 };
            let noise = u64::from(number * 7919 % 1000) * 1000;
            let leg = of_rate(number, age(number), now, level + noise);
            run.store(archive, test, vec![leg]).unwrap();
            let newest = &archive
                .mesh_cell(["m", "bulk", "a", "b"], Nanos(u64::MAX), 1)
                .unwrap()[0];
            if number < 20 {
                assert_eq!(newest.level_since, None, "{number}");
            }
            since = newest.level_since;
        }
        let to_ms = |at: Nanos| at.0 / 1_000_000;
        let changed = since.map(to_ms).unwrap();
        assert_eq!(changed, to_ms(now.since(age(20))));
        run.alerts.work(&|| false, &|line| panic!("{line}"));
        let text = std::fs::read_to_string(&said).unwrap();
        assert_eq!(text.lines().count(), 1);
    });
}

#[test]
fn the_level_of_light_probes_is_looked_for_in_every_tenth_cycle_and_their_losses_in_each() {
    let light = "[[test]]\nname = \"l\"\nkind = \"light\"\nhosts = [\"*\"]\nevery = \"1m\"\nloss = \"1%\"\n";
    let mesh = mesh_of("", light);
    coordinator(&mesh, |run, archive, _| {
        let test = &mesh.tests[0];
        let cycle = Nanos::from_secs(60);
        // The last cycle whose number is a multiple of ten, so that none lies in the future.
        let ten = Nanos(10 * cycle.0);
        let last = Nanos(run.now().0 / ten.0 * ten.0);
        let probed = |back: u64, rtt_us: u64, loss: u64| MeshLeg {
            rtt_p50: Some(Nanos::from_micros(rtt_us)),
            loss_ppm: Some(loss),
            packets: Some(20),
            ..leg("l", back as u32, Nanos(back * cycle.0), last)
        };
        let earlier: Vec<MeshLeg> = (2..52)
            .map(|back| {
                let level = if back < 27 { 20_000 } else { 10_000 };
                probed(back, level + back * 7919 % 100, 0)
            })
            .collect();
        archive.store_mesh_legs(&earlier, false).unwrap();
        let mut store = |leg: MeshLeg| {
            run.store(archive, test, vec![leg]).unwrap();
            archive
                .mesh_cell(["m", "l", "a", "b"], Nanos(u64::MAX), 1)
                .unwrap()
                .remove(0)
        };
        let before = store(probed(1, 20_000, 10_000));
        assert_eq!(
            (before.outcome, before.level_since),
            (LegOutcome::Good, None)
        );
        let tenth = store(probed(0, 20_000, 10_001));
        assert_eq!(tenth.outcome, LegOutcome::Low);
        let why = tenth.why.unwrap();
        assert!(
            why.starts_with("more than 1") && why.ends_with(" lost"),
            "{why}"
        );
        assert_eq!(tenth.level_since, Some(last.since(Nanos(26 * cycle.0))));
    });
}

#[test]
fn what_becomes_of_a_pair_follows_from_why_it_was_not_measured() {
    let mesh = mesh_of("", BULK);
    coordinator(&mesh, |run, archive, logged| {
        let starts = run.now();
        let mut keep = |error: anyhow::Error| {
            let of = SlotOfPair {
                test: 0,
                pair: (0, 1),
                slot: SLOT.to_owned(),
            };
            let put_off = run.keep(archive, of, Err(error), starts).unwrap();
            let rows = archive
                .mesh_cell(["m", "bulk", "a", "b"], Nanos(u64::MAX), 9)
                .unwrap();
            let row = rows.first();
            let kept = row.map(|row| (row.outcome, row.why.clone().unwrap()));
            (put_off.map(|one| (one.why, one.free)), kept, logged().len())
        };
        let kept = |outcome, why: &str| Some((outcome, why.to_owned()));
        let (put_off, row, lines) = keep(anyhow::anyhow!("lost").context(LostSource));
        assert_eq!((put_off, row, lines), (None, None, 1), "its row waits");
        let later = starts + SECOND;
        let booked = |free| {
            let why = "b is booked".to_owned();
            anyhow::Error::from(PairBooked { why, free })
        };
        let again = kept(
            LegOutcome::Missed,
            "b is booked; it is tried again in this period",
        );
        for free in [Some(later), None] {
            let (put_off, row, lines) = keep(booked(free));
            assert_eq!(put_off, Some(("b is booked".to_owned(), free)));
            assert_eq!((&row, lines), (&again, 0));
        }
        let busy = HostBusy {
            why: "b is busy".to_owned(),
            free_in: Nanos::from_secs(60),
        };
        let (put_off, ..) = keep(anyhow::anyhow!("busy").context(busy));
        let free = put_off.unwrap().1.unwrap();
        let range = starts + Nanos::from_secs(60)..=run.now() + Nanos::from_secs(60);
        assert!(range.contains(&free));
        let none = keep(NoCalendar("the calendar is lost".to_owned()).into());
        assert_eq!(
            none,
            (None, kept(LegOutcome::Missed, "the calendar is lost"), 0)
        );
        let away = keep(Refusal::unreachable("nobody is there").into());
        assert_eq!(away, (None, kept(LegOutcome::Missed, "nobody is there"), 1));
        let failed = keep(anyhow::anyhow!("it broke"));
        assert_eq!(failed, (None, kept(LegOutcome::Failed, "it broke"), 1));
    });
}

#[test]
fn what_has_no_time_left_in_its_period_is_missed() {
    let mesh = mesh_of("", BULK);
    coordinator(&mesh, |run, archive, logged| {
        let now = run.now();
        let length = round_length(&mesh.tests[0]);
        let dir = TempDir::new();
        let calendar = MeshCalendar::in_directory(&mesh, dir.path());
        let put_off = |free| PutOff {
            of: SlotOfPair {
                test: 0,
                pair: (0, 1),
                slot: archive::new_id(),
            },
            why: "b is booked".to_owned(),
            free,
        };
        let ends = now + length + SECOND;
        let waiting = vec![put_off(None), put_off(Some(now + SECOND + SECOND))];
        run.play_put_off(archive, &calendar, waiting, ends, 0)
            .unwrap();
        assert_eq!(logged(), ["bulk: a to b: b is booked"; 2]);
        let rows = archive
            .mesh_cell(["m", "bulk", "b", "a"], Nanos(u64::MAX), 9)
            .unwrap();
        assert_eq!(rows.len(), 2);
        assert!(rows.iter().all(|row| row.outcome == LegOutcome::Missed));
    });
}

#[test]
fn a_result_is_fetched_once_its_round_is_over_or_lies_in_the_future() {
    let mesh = mesh_of("", BULK);
    let test = &mesh.tests[0];
    let length = round_length(test);
    let starts = Nanos::from_secs(1_000_000);
    let over = |now| is_over(starts, test, now);
    assert!(!over(starts) && over(starts.since(Nanos(1))));
    let ends = starts + length.since(BEFORE_THE_NEXT);
    assert!(over(ends) && !over(ends.since(Nanos(1))));
}

#[test]
fn a_moment_is_waited_for_unless_the_user_stops_it_or_the_clock_was_set() {
    let mesh = mesh_of("", BULK);
    coordinator(&mesh, |run, _, _| {
        assert!(run.goes_on() && run.wait_until(run.now(), 0));
        let soon = run.now() + Nanos::from_millis(30);
        assert!(run.wait_until(soon, 0) && run.now() >= soon);
        let later = run.now() + Nanos::from_secs(3600);
        assert!(!run.wait_until(later, 1), "it was set since");
        run.ended.store(true, Ordering::Relaxed);
        assert!(!run.goes_on() && !run.wait_until(later, 0));
    });
}

//! Numbers of a plan at their bounds and one beyond; every key of a plan file; the runs of each design.

use crate::stats::power::{pairs_for_effect, pairs_for_equivalence};
use crate::stats::spread::planning_factor;
use crate::testing::{ask, many_arms, noisy, plan, play, settings};
use crate::{PlanOptions, forecast, parse_plan, plan_from_changes, to_toml, validate};
use model::{
    Bulk, Bytes, Design, Directions, IpVersion, LegLimit, Metric, Nanos, Plan, Random, Request,
    Spec, WaitMode, Workload,
};

fn search() -> PlanOptions {
    PlanOptions {
        search: true,
        ..many_arms(3)
    }
}

fn requests(pace_per_s: Option<f64>) -> PlanOptions {
    let mut run = plan(ask()).run;
    run.workload = Workload::Request(Request {
        request_size: Bytes(128),
        reply_size: Bytes(8192),
        pace_per_s,
        reconnect: false,
        wait: WaitMode::Hybrid,
    });
    PlanOptions {
        run: Some(run),
        metric: Metric::LatencyP50,
        ..ask()
    }
}

/// Factors `f0`, `f1`, ... with so many levels each.
fn factorial(levels: &[usize], more: &str) -> String {
    const KNOBS: [&str; 8] = [
        "mss",
        "sndbuf",
        "rcvbuf",
        "notsent_lowat",
        "route.initcwnd",
        "route.initrwnd",
        "pacing",
        "sysctl:net.core.rmem_max",
    ];
    let factor = |(n, levels): (usize, &usize)| {
        let level = |l: usize| format!("\"{}={}\"", KNOBS[n], 5000 + l);
        let levels: Vec<String> = (0..*levels).map(level).collect();
        format!(
            "[[factor]]\nname = \"f{n}\"\nlevels = [{}]\n",
            levels.join(", ")
        )
    };
    let factors: String = levels.iter().enumerate().map(factor).collect();
    format!("host = \"db2\"\n{more}\n{factors}")
}

fn read(text: &str) -> Result<Plan, &'static str> {
    parse_plan(text, "plan.toml", 7).map_err(|error| error.key)
}

#[test]
fn each_number_of_a_plan_has_its_bounds() {
    const S: u64 = 1_000_000_000;
    type Bounds = (
        &'static str,
        Plan,
        fn(&mut Plan, u64),
        &'static [u64],
        &'static [u64],
    );
    let pairs = || plan(ask());
    let bytes = plan(PlanOptions {
        metric: Metric::Completion,
        run: Some(Spec {
            limit: LegLimit::Bytes(Bytes(5)),
            ..pairs().run
        }),
        ..ask()
    });
    let latency = || plan(requests(None));
    let p99 = |pace| {
        plan(PlanOptions {
            metric: Metric::LatencyP99,
            ..requests(pace)
        })
    };
    let factors = || read(&factorial(&[2, 2], "")).unwrap();
    let one_look = |plan: &mut Plan, n| {
        plan.design = Design::Pairs {
            looks: vec![n as u32],
        }
    };
    let blocks = |plan: &mut Plan, n| match &mut plan.design {
        Design::Blocks { blocks }
        | Design::Search { blocks, .. }
        | Design::Factorial { blocks, .. } => *blocks = n as u32,
        Design::Pairs { .. } => unreachable!("plans of blocks"),
    };
    let time = |plan: &mut Plan, n| plan.run.limit = LegLimit::Time(Nanos(n));
    let count = |plan: &mut Plan, n| plan.run.limit = LegLimit::Requests(n);
    let arms = |plan: &mut Plan, n| {
        plan.arms.truncate(1);
        plan.arms.extend((1..n).map(|arm| model::Arm {
            name: format!("arm {arm}"),
            settings: settings(&[&format!("mss={}", 1000 + arm)]),
            levels: Vec::new(),
        }));
    };
    let bounds: [Bounds; 15] = [
        (
            "run.streams",
            pairs(),
            |p, n| p.run.streams = n as u32,
            &[1, 128],
            &[0, 129],
        ),
        (
            "run.interval",
            pairs(),
            |p, n| p.run.interval = Nanos(n),
            &[10_000_000],
            &[9_999_999],
        ),
        ("run", pairs(), time, &[1], &[0]),
        (
            "run",
            bytes,
            |p, n| p.run.limit = LegLimit::Bytes(Bytes(n)),
            &[1],
            &[0],
        ),
        ("run", latency(), count, &[1], &[0]),
        ("run", p99(None), count, &[1000], &[999]),
        (
            "run",
            p99(Some(100.0)),
            time,
            &[10 * S],
            &[10 * S - 10_000_000],
        ),
        (
            "pilot_pairs",
            pairs(),
            |p, n| p.pilot_pairs = n as u32,
            &[0, 2, 50],
            &[1, 51],
        ),
        (
            "gap",
            pairs(),
            |p, n| p.gap = Nanos(n),
            &[3600 * S],
            &[3600 * S + 1],
        ),
        (
            "margin",
            pairs(),
            |p, n| p.margin = n as f64 / 1e6,
            &[1000, 1_000_000],
            &[999, 1_000_001],
        ),
        ("looks", pairs(), one_look, &[6, 1000], &[5, 1001]),
        ("blocks", plan(many_arms(3)), blocks, &[7, 1000], &[6, 1001]),
        (
            "search.blocks",
            plan(search()),
            blocks,
            &[1, 1000],
            &[0, 1001],
        ),
        ("blocks", factors(), blocks, &[2, 1000], &[1, 1001]),
        ("arm", plan(many_arms(3)), arms, &[2, 64], &[1, 65]),
    ];
    for (key, plan, set, fits, beyond) in bounds {
        let fault = |n: u64| {
            let mut plan = plan.clone();
            set(&mut plan, n);
            validate(&plan).err().map(|error| error.key)
        };
        for n in fits {
            assert_eq!(fault(*n), None, "{key} {n}");
        }
        for n in beyond {
            assert_eq!(fault(*n), Some(key), "{key} {n}");
        }
    }
    let twice = PlanOptions {
        pairs: Some(vec![8, 8]),
        ..ask()
    };
    assert_eq!(plan_from_changes(twice).unwrap_err().key, "looks");
    let two = many_arms(1);
    let search_of_one = PlanOptions {
        search: true,
        ..two
    };
    assert_eq!(plan_from_changes(search_of_one).unwrap_err().key, "search");
}

#[test]
fn the_numbers_of_a_file_make_one_design() {
    let looks = |looks: &[u32]| {
        Ok(Design::Pairs {
            looks: looks.to_vec(),
        })
    };
    let blocks = |blocks| Ok(Design::Blocks { blocks });
    let rounds = |blocks, confirm: &[u32]| {
        Ok(Design::Search {
            blocks,
            confirm: confirm.to_vec(),
        })
    };
    let usual = &[8, 12, 16, 20];
    for (arms, numbers, tables, design) in [
        (2, "", "", looks(usual)),
        (2, "pairs = 10", "", looks(&[10])),
        (2, "looks = [10, 20, 30, 40]", "", looks(&[10, 20, 30, 40])),
        (2, "blocks = 9", "", blocks(9)),
        (2, "pairs = 9\nblocks = 9", "", Err("pairs")),
        (2, "looks = [9]\nblocks = 9", "", Err("pairs")),
        (3, "", "", blocks(20)),
        (3, "pairs = 12", "", blocks(12)),
        (3, "blocks = 12", "", blocks(12)),
        (3, "looks = [12]", "", Err("looks")),
        (3, "pairs = 9\nblocks = 9", "", Err("pairs")),
        (3, "", "[search]", rounds(3, usual)),
        (
            3,
            "",
            "[search]\nblocks = 2\nconfirm = [9]",
            rounds(2, &[9]),
        ),
        (3, "pairs = 9", "[search]", Err("search")),
        (3, "looks = [9]", "[search]", Err("search")),
        (3, "blocks = 9", "[search]", Err("search")),
    ] {
        let arm = |n| {
            format!(
                "[[arm]]\nname = \"{n}\"\nsettings = [\"mss={}\"]\n",
                1000 + n
            )
        };
        let arms: String = (0..arms).map(arm).collect();
        let text = format!("host = \"db2\"\n{numbers}\n{tables}\n{arms}");
        assert_eq!(read(&text).map(|plan| plan.design), design, "{text}");
    }
}

#[test]
fn combinations_of_factors_have_their_bounds() {
    let half = "half = true\nblocks = 4";
    let plan = read(&factorial(&[2; 7], half)).unwrap();
    assert_eq!(plan.arms.len(), 64);
    let mut levels: Vec<&[u32]> = plan.arms.iter().map(|arm| &arm.levels[..]).collect();
    levels.sort_unstable();
    levels.dedup();
    assert_eq!(levels.len(), 64);
    let even = |levels: &&[u32]| levels.iter().sum::<u32>().is_multiple_of(2);
    assert!(levels.iter().all(even));
    assert_eq!(read(&factorial(&[2; 8], half)), Err("factor"));
    assert_eq!(read(&factorial(&[2; 4], half)), Err("half"));
    assert_eq!(read(&factorial(&[2, 2, 2, 2, 3], half)), Err("half"));
    assert_eq!(read(&factorial(&[2, 1], "")), Err("factor"));
    let with_arm = factorial(&[2, 2], "") + "[[arm]]\n";
    assert_eq!(read(&with_arm), Err("factor"));
    let searched = factorial(&[2, 2], "") + "[search]\n";
    assert_eq!(read(&searched), Err("factor"));
}

#[test]
fn every_key_of_a_run_is_read_and_written() {
    let common = "host = \"db2\"\nmetric = \"METRIC\"\npilot_pairs = 3\n[[arm]]\n[[arm]]\nsettings = [\"congestion=bbr\"]\n[run]\nLIMIT\nstreams = 3\nramp = \"1500ms\"\ninterval = \"20ms\"\nsettings = [\"congestion=cubic\", \"mss=1400\"]\ndscp = 46\nip_version = \"v6\"\nbind = \"fd00::1\"\nbind_device = \"eth1\"\ncpus = [0, 2]\nremote_cpus = [1]\n";
    let bulk = common
        .replace("METRIC", "completion")
        .replace("LIMIT", "bytes = \"3M\"")
        + "write_size = \"64K\"\ndiscard = true\nzerocopy = true\n";
    let request = common
        .replace("METRIC", "latency-p50")
        .replace("LIMIT", "requests = 2000\nworkload = \"request\"")
        + "request_size = 100\nreply_size = \"2K\"\npace = 50.5\nreconnect = true\nwait = \"block\"\n";
    let read = |text: &str| {
        let plan = parse_plan(text, "plan.toml", 7).unwrap_or_else(|e| panic!("{e}"));
        let again = to_toml(&plan);
        assert_eq!(
            parse_plan(&again, "again.toml", 9),
            Ok(plan.clone()),
            "{again}"
        );
        assert_eq!(plan.pilot_pairs, 3);
        plan.run
    };
    let run = read(&bulk);
    let order = Bulk {
        write_size: Some(Bytes(64 << 10)),
        discard: true,
        zerocopy: true,
    };
    assert_eq!(run.workload, Workload::Bulk(order));
    assert_eq!(run.limit, LegLimit::Bytes(Bytes(3 << 20)));
    assert_eq!((run.streams, run.interval), (3, Nanos::from_millis(20)));
    assert_eq!(run.ramp, Some(Nanos::from_millis(1500)));
    assert_eq!(run.directions, Directions::Up);
    let socket = &run.socket;
    assert_eq!(
        (socket.congestion.as_deref(), socket.mss),
        (Some("cubic"), Some(1400))
    );
    assert_eq!(
        (socket.dscp, socket.ip_version),
        (Some(46), Some(IpVersion::V6))
    );
    assert_eq!(run.local.bind_address, Some("fd00::1".parse().unwrap()));
    assert_eq!(run.local.bind_device.as_deref(), Some("eth1"));
    assert_eq!(
        (&run.local.cpus[..], &run.remote.cpus[..]),
        (&[0, 2][..], &[1][..])
    );
    let run = read(&request);
    let order = Request {
        request_size: Bytes(100),
        reply_size: Bytes(2048),
        pace_per_s: Some(50.5),
        reconnect: true,
        wait: WaitMode::Block,
    };
    assert_eq!(run.workload, Workload::Request(order));
    assert_eq!(run.limit, LegLimit::Requests(2000));
}

#[test]
fn a_key_of_another_workload_is_refused() {
    let said = |run: &str| {
        let text = format!(
            "host = \"db2\"\n[[arm]]\n[[arm]]\nsettings = [\"congestion=bbr\"]\n[run]\n{run}\n"
        );
        parse_plan(&text, "plan.toml", 7).unwrap_err().to_string()
    };
    for key in ["write_size = 1000", "discard = true", "zerocopy = true"] {
        let said = said(&format!("workload = \"request\"\n{key}"));
        assert!(said.contains("are of bulk transfer"), "{key}: {said}");
    }
    for key in [
        "request_size = 5",
        "reply_size = 5",
        "pace = 5.0",
        "reconnect = true",
        "wait = \"block\"",
    ] {
        assert!(
            said(key).contains("are of requests"),
            "{key}: {}",
            said(key)
        );
    }
    for two in [
        "time = \"1s\"\nbytes = 5",
        "bytes = 5\nrequests = 5",
        "time = \"1s\"\nrequests = 5",
    ] {
        assert!(said(two).contains("more than one of time, bytes"), "{two}");
    }
}

#[test]
fn a_file_has_its_longest() {
    let error = |bytes: usize| parse_plan(&"#".repeat(bytes), "p", 7).unwrap_err();
    assert_eq!(error(1 << 20).key, "host");
    let error = error((1 << 20) + 1);
    assert_eq!(error.line, Some(("p".to_owned(), 1)));
    assert!(error.what.contains("more than 1048576 bytes"));
}

#[test]
fn a_forecast_counts_the_runs_that_a_plan_makes() {
    let fixed = PlanOptions {
        pairs: Some(vec![10]),
        pilot_pairs: Some(0),
        ..ask()
    };
    // A warm-up run and 6 pairs of the pilot; a search of 3: 3 blocks of 4, then 3 blocks of 3 runs.
    for (ask, least, most) in [
        (ask(), 13 + 16, 13 + 40),
        (fixed, 1 + 20, 1 + 20),
        (many_arms(3), 13 + 80, 13 + 80),
        (search(), 13 + 21 + 16, 13 + 21 + 40),
    ] {
        let plan = plan(ask);
        let found = forecast(&plan, &[]);
        assert_eq!((found.runs_least, found.runs_most), (least, most));
        // 12 s and a gap of 3 s.
        assert_eq!(found.run, Some(Nanos::from_secs(15)));
        assert_eq!(found.least, Some(Nanos::from_secs(15 * u64::from(least))));
        assert_eq!(found.most, Some(Nanos::from_secs(15 * u64::from(most))));
        assert_eq!((found.noise, found.pairs_for_margin), (None, None));
        let made = play(plan, noisy(3, 1.0, 0.01)).trials.len() as u32;
        assert!((least..=most).contains(&made), "{made}");
    }
}

#[test]
fn a_forecast_after_the_pilot_is_of_its_noise() {
    let plan = plan(ask());
    let mut trials = play(plan.clone(), noisy(3, 1.0, 0.01)).trials;
    trials.truncate(13);
    let found = forecast(&plan, &trials);
    let noise = found.noise.unwrap();
    assert!((0.005..0.03).contains(&noise), "{noise}");
    let planned = noise * planning_factor(6).unwrap();
    assert_eq!(found.pairs_for_margin, pairs_for_effect(planned, 0.05));
    assert_eq!(found.pairs_for_none, pairs_for_equivalence(planned, 0.05));
    assert_eq!(found.pairs_most, 20);
    // The median of what the runs took.
    let mut chance = Random::new(1, 1);
    for trial in &mut trials {
        trial.started += Nanos((chance.unit() * 1e9) as u64);
    }
    trials[12].started += Nanos::from_secs(1000);
    let run = forecast(&plan, &trials).run.unwrap();
    assert!(
        run.since(Nanos::from_secs(14)) < Nanos::from_secs(2),
        "{run}"
    );
}

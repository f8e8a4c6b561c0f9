//! Golden texts of each answer, and what must never be printed.

use super::*;
use crate::pictures::{bars, drift, forest, pairs};
use crate::words::Style;
use crate::{page, pages};
use ::prove::{PlanOptions, TrialSlot, forecast as foresee, judge, next, plan_from_changes, trial};
use model::*;

/// Noise that repeats, so that golden texts need no chance: in [-1, 1].
fn wobble(n: u32) -> f64 {
    let mixed = (n ^ 0x5bd1).wrapping_mul(0x9e37_79b1);
    f64::from((mixed ^ mixed >> 15).wrapping_mul(0x85eb_ca6b) >> 8) / f64::from(1 << 23) - 1.0
}

fn ask() -> PlanOptions {
    PlanOptions {
        host: "db2".to_owned(),
        against: vec!["congestion=cubic".parse().unwrap()],
        changes: vec!["congestion=bbr".parse().unwrap()],
        seed: 4711,
        ..PlanOptions::default()
    }
}

fn arms(names: &[&str]) -> PlanOptions {
    PlanOptions {
        against: Vec::new(),
        changes: Vec::new(),
        arms: names.iter().map(|n| (*n).to_owned()).collect(),
        pairs: Some(vec![12]),
        ..ask()
    }
}

/// An experiment in which run n of an arm has `value(slot, n)`.
fn play(plan: Plan, value: impl Fn(TrialSlot, u32) -> Option<f64>) -> Experiment {
    let mut trials: Vec<Trial> = Vec::new();
    while let Some(slot) = next(&plan, &trials) {
        let number = trials.len() as u32 + 1;
        let started = Nanos::from_secs(1_795_205_836 + 15 * u64::from(number));
        let mut made =
            trial::without_run(slot, number, started, Nanos::from_secs(12), String::new());
        made.value = value(slot, number);
        made.bytes = Bytes(made.value.map_or(0.0, |v| v * 1.5) as u64);
        made.failed = made
            .value
            .is_none()
            .then(|| "the connection was reset".to_owned());
        let asked = plan.arms[slot.arm as usize]
            .settings
            .iter()
            .map(|s| Reading {
                setting: "TCP_CONGESTION".to_owned(),
                side: Side::Local,
                asked: s.to_string(),
                found: s.to_string(),
                in_force: true,
            });
        made.readings = asked.collect();
        trials.push(made);
    }
    Experiment {
        schema: EXPERIMENT_SCHEMA,
        id: "3f2a0c11".to_owned(),
        started: Nanos::from_secs(1_795_205_836),
        plan,
        local: Fingerprint::default(),
        remote: None,
        trials,
        warnings: Vec::new(),
        ended: Ended::Complete,
    }
}

/// 900 Mbit/s, the change `factor` times that, each run off by at most `spread`.
fn path(ask: PlanOptions, factor: f64, spread: f64) -> Experiment {
    play(plan_from_changes(ask).unwrap(), |slot, n| {
        let effect = if slot.arm == 0 { 1.0 } else { factor };
        Some(9e8 * effect * (1.0 + spread * wobble(n)))
    })
}

/// An experiment that finds this factor.
pub(crate) fn path_of(factor: f64, spread: f64) -> Experiment {
    path(ask(), factor, spread)
}

fn text(experiment: &Experiment) -> String {
    verdict(
        experiment,
        &judge(experiment),
        Style {
            width: 100,
            ..Style::PLAIN
        },
    )
}

fn with_readings(mut experiment: Experiment, change: impl Fn(&mut Trial)) -> Experiment {
    experiment.trials.iter_mut().for_each(change);
    experiment
}

/// Nine of the runs did not get the buffer that was asked for.
fn not_in_force() -> Experiment {
    let buffers = PlanOptions {
        changes: vec!["sockbuf=8M".parse().unwrap()],
        pairs: Some(vec![20]),
        pilot_pairs: Some(0),
        ..ask()
    };
    with_readings(path(buffers, 1.0, 0.05), |t| {
        for reading in t.readings.iter_mut().filter(|_| t.arm == 1) {
            let odd = t.block < 9;
            *reading = Reading {
                setting: "SO_SNDBUF".to_owned(),
                side: Side::Local,
                asked: "8192 KiB".to_owned(),
                found: if odd { "65 KiB" } else { "8192 KiB" }.to_owned(),
                in_force: !odd,
            };
        }
    })
}

fn latencies() -> Experiment {
    let plan = plan_from_changes(PlanOptions {
        metric: Metric::LatencyP99,
        run: Some(crate::testing::spec()).map(|spec| Spec {
            workload: Workload::Request(crate::testing::request()),
            limit: LegLimit::Requests(20_000),
            ..spec
        }),
        ..ask()
    });
    play(plan.unwrap(), |slot, n| {
        let effect = if slot.arm == 0 { 1.0 } else { 0.8 };
        Some(2.4e-4 * effect * (1.0 + 0.03 * wobble(n)))
    })
}

fn search() -> Experiment {
    let many = PlanOptions {
        search: true,
        pairs: None,
        ..arms(&[
            "a=congestion=reno",
            "b=congestion=bbr",
            "c=congestion=vegas",
            "d=sockbuf=8M",
        ])
    };
    path(many, 1.0, 0.02)
}

fn factors() -> Experiment {
    let file = "host = 'db2'\nblocks = 6\nseed = 1\npilot_pairs = 0\n\
        [[factor]]\nname = 'cc'\nlevels = ['baseline', 'congestion=bbr']\n\
        [[factor]]\nname = 'buffers'\nlevels = ['baseline', 'sockbuf=8M']\n";
    let plan = ::prove::parse_plan(file, "f.toml", 0).unwrap();
    play(plan, |slot, n| {
        Some(9e8 * [1.0, 1.2, 1.0, 1.5][slot.arm as usize] * (1.0 + 0.01 * wobble(n)))
    })
}

pub(crate) fn several() -> Experiment {
    let plan = plan_from_changes(arms(&[
        "bbr=congestion=bbr",
        "reno=congestion=reno",
        "big=sockbuf=8M",
    ]));
    play(plan.unwrap(), |slot, n| {
        Some(9e8 * [1.0, 1.12, 0.9, 1.001][slot.arm as usize] * (1.0 + 0.02 * wobble(n)))
    })
}

fn failing() -> Experiment {
    let plan = plan_from_changes(ask()).unwrap();
    play(plan, |slot, n| {
        let value = 9e8 * (1.0 + 0.08 * wobble(n));
        (slot.arm == 0 || n % 5 != 0).then_some(value)
    })
}

/// Every kind of answer, by name.
fn all() -> [(&'static str, Experiment); 10] {
    [
        ("faster", path(ask(), 1.12, 0.04)),
        ("slower", path(ask(), 0.8, 0.04)),
        ("no difference", path(ask(), 1.0, 0.01)),
        ("not enough", path(ask(), 1.0, 0.3)),
        ("no verdict", not_in_force()),
        ("latency", latencies()),
        ("search", search()),
        ("factors", factors()),
        ("several", several()),
        ("failing", failing()),
    ]
}

/// The JSON of an experiment of each design, with nothing left out.
pub(crate) fn of_every_design() -> Vec<String> {
    let full = |mut e: Experiment| {
        e.plan.title = Some("all of it".to_owned());
        e.warnings = vec![crate::testing::warning("a", "b", "c")];
        e.remote = Some(Fingerprint::default());
        e.trials[0].witness.differences = vec![Difference {
            side: Side::Local,
            what: "device.mtu".to_owned(),
            before: "1500".to_owned(),
            now: "9000".to_owned(),
        }];
        let mut verdict = judge(&e);
        verdict.change_points = vec![ChangePoint {
            trial: 1,
            shift_share: 0.1,
            p: 0.001,
        }];
        verdict.outliers = vec![Outlier {
            trial: 1,
            ratio: 0.1,
        }];
        json(&e, &verdict)
    };
    all().map(|(_, e)| full(e)).into()
}

/// All pictures that there are of it now, as files.
fn pictures(e: &Experiment) -> Vec<String> {
    let v = judge(e);
    let all = [
        bars::of_experiment(e, &v),
        forest::of_experiment(e, &v),
        pairs::picture(e, &v),
        drift::picture(e, &v),
    ];
    all.iter().flatten().map(crate::page::svg).collect()
}

/// The outputs of an experiment, all of them.
fn outputs(e: &Experiment) -> Vec<String> {
    let v = judge(e);
    let style = Style {
        width: 100,
        colour: true,
        unicode: true,
    };
    let mut all = vec![
        text(e),
        verdict(e, &v, style),
        page::markdown(&pages::experiment(e, &v)),
        csv(e),
        json(e, &v),
        p_values(e, &v),
    ];
    all.extend(pictures(e));
    for made in 0..=e.trials.len() {
        let part = Experiment {
            trials: e.trials[..made].to_vec(),
            ended: Ended::Interrupted,
            ..e.clone()
        };
        all.push(monitor(&part, &judge(&part), style));
        all.push(forecast(&e.plan, &foresee(&e.plan, &part.trials), style));
        if made % 5 == 0 {
            all.push(text(&part));
            all.extend(pictures(&part));
        }
    }
    all
}

#[test]
fn nothing_is_said_that_no_data_can_say() {
    for (name, e) in &all() {
        for output in outputs(e) {
            let lower = output.to_lowercase();
            for never in [
                "no effect",
                "significant",
                "p=0.000",
                "p = 0.0000",
                "nan",
                "inf ",
                "-0.0 %",
            ] {
                assert!(!lower.contains(never), "{name}: '{never}' in {output}");
            }
        }
    }
}

#[test]
fn what_more_than_doubles_is_a_ratio() {
    let output = |ask: PlanOptions, factor| {
        let e = path(ask, factor, 0.02);
        text(&e).replace('\n', " ")
    };
    let times = output(ask(), 13.8);
    assert!(
        times.contains(
            "median goodput with congestion=bbr 13.8x that with congestion=cubic (95 % CI "
        ),
        "{times}"
    );
    assert!(times.contains("x; "), "{times}");
    assert!(!times.contains("% against"), "{times}");
    let without = PlanOptions {
        against: Vec::new(),
        ..ask()
    };
    assert!(output(without, 3.0).contains("median goodput with congestion=bbr 3.0x baseline ("));
    assert!(output(ask(), 1.5).contains(" % against that with congestion=cubic ("));
}

#[test]
fn a_small_effect_has_a_direction_only_where_the_change_can_act() {
    let small = |changes: &[&str]| {
        let ask = PlanOptions {
            against: Vec::new(),
            changes: changes.iter().map(|c| c.parse().unwrap()).collect(),
            ..ask()
        };
        let words = text(&path(ask, 1.02, 0.002)).replace('\n', " ");
        assert!(
            words.starts_with("EQUIVALENT within \u{b1}5 % (threshold: --margin 5%): "),
            "{words}"
        );
        words.contains("It is faster, by less than the margin.")
    };
    assert!(small(&["congestion=bbr"]));
    assert!(!small(&["nodelay=on"]));
}

#[test]
fn a_monitor_claims_nothing() {
    for (name, e) in &all() {
        for made in 0..e.trials.len() {
            let part = Experiment {
                trials: e.trials[..made].to_vec(),
                ..e.clone()
            };
            let line = monitor(&part, &judge(&part), Style::PLAIN);
            for claim in ["FASTER", "SLOWER", "EQUIVALENT", "CI"] {
                assert!(!line.contains(claim), "{name}: {line}");
            }
        }
    }
    let e = &all()[0].1;
    let after = |made| {
        let part = Experiment {
            trials: e.trials[..made].to_vec(),
            ..e.clone()
        };
        monitor(&part, &judge(&part), Style::PLAIN)
    };
    assert_eq!(after(1), "Warming up: this run is discarded\n");
    assert_eq!(after(4), "Pilot, the control with itself: pair 2 of 6\n");
    assert_eq!(
        after(20),
        "20 runs, 3 pairs; next look after 8; so far +11.5 % in goodput, which may change\n"
    );
}

/// What another's file put into a name comes out as text everywhere.
#[test]
fn names_cannot_be_markup() {
    let nasty = "<script>&\"'|*\u{1b}[2J\u{202e}";
    let mut e = several();
    e.plan.host = nasty.to_owned();
    e.plan.arms[1].name = nasty.to_owned();
    e.trials[20].value = None;
    e.trials[20].failed = Some(nasty.to_owned());
    let v = judge(&e);
    let mut two = path(ask(), 1.12, 0.04);
    two.plan.arms[1].name = nasty.to_owned();
    for svg in pictures(&e).into_iter().chain(pictures(&two)) {
        well_formed(&svg);
        assert!(!svg.contains("<script") && !svg.contains('\u{1b}'), "{svg}");
    }
    let marked = page::markdown(&pages::experiment(&e, &v));
    for text in [&text(&e), &marked, &csv(&e), &json(&e, &v)] {
        assert!(
            !text.contains('\u{1b}') && !text.contains('\u{202e}'),
            "{text}"
        );
    }
    assert!(
        marked.contains("\\<script\\>") && !marked.contains(" <script"),
        "{marked}"
    );
}

/// Every tag is closed in order, and every `&` begins one of the entities of XML.
pub(crate) fn well_formed(svg: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = svg;
    while let Some(at) = rest.find('<') {
        let (text, tag) = rest.split_at(at);
        for (n, _) in text.match_indices('&') {
            let entity = ["&amp;", "&lt;", "&gt;", "&quot;", "&#39;"];
            assert!(entity.iter().any(|e| text[n..].starts_with(e)), "{text}");
        }
        let end = tag.find('>').expect("a tag ends");
        let inside = &tag[1..end];
        assert!(!inside.contains('<'), "{inside}");
        if let Some(name) = inside.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name));
        } else if !inside.ends_with('/') {
            open.push(inside.split(' ').next().unwrap());
        }
        rest = &tag[end + 1..];
    }
    assert!(open.is_empty() && rest.trim().is_empty(), "{open:?} {rest}");
}

#[test]
fn pictures_are_whole_at_every_moment() {
    for (_, e) in &all() {
        for made in (0..=e.trials.len()).step_by(7) {
            let part = Experiment {
                trials: e.trials[..made].to_vec(),
                ..e.clone()
            };
            for svg in pictures(&part) {
                well_formed(&svg);
                assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            }
        }
    }
    let e = several();
    let none = pairs::picture(&e, &judge(&e));
    assert_eq!(none, None, "pairs are of two arms");
}

#[test]
fn a_table_has_a_row_for_every_run() {
    let e = failing();
    let table = csv(&e);
    assert_eq!(table.lines().count(), e.trials.len() + 1);
    let columns = |line: &str| line.split(',').count();
    assert!(table.lines().all(|l| columns(l) == 19), "{table}");
}

#[test]
fn figures_as_a_person_writes_them() {
    use super::phrase::{minutes, p, share, signed, span};
    for (seconds, text) in [
        (45, "45 s"),
        (60, "1 min"),
        (365, "6 min 5 s"),
        (7800, "2 h 10 min"),
        (3600, "1 h"),
    ] {
        assert_eq!(span(Nanos::from_secs(seconds)), text);
    }
    assert_eq!(minutes(Nanos::from_secs(3900)), "65 min");
    assert_eq!(
        (share(0.05), share(0.025)),
        ("5 %".to_owned(), "2.5 %".to_owned())
    );
    assert_eq!(
        (signed(-0.0001), signed(0.13)),
        ("0.0 %".to_owned(), "+13.0 %".to_owned())
    );
    assert_eq!(
        (p(0.000_01), p(0.0078125)),
        ("p < 0.0001".to_owned(), "p = 0.0078".to_owned())
    );
}

#[test]
#[allow(clippy::disallowed_methods, reason = "a test writes its golden file")]
fn every_answer_in_its_words() {
    let mut output = String::new();
    for (name, e) in &all() {
        output += &format!("=== {name}\n{}\n", text(e));
    }
    let e = &all()[0].1;
    let style = Style {
        width: 100,
        ..Style::PLAIN
    };
    let after_the_pilot = foresee(&e.plan, &e.trials[..13]);
    output += &format!(
        "=== forecast\n{}\n",
        forecast(&e.plan, &after_the_pilot, style)
    );
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/prove/golden.txt");
        return std::fs::write(path, output).unwrap();
    }
    assert_eq!(output, include_str!("golden.txt"), "{output}");
}

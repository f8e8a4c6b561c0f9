//! The statistics against scipy's, on random data sets.

use crate::stats::factors::{Observation, fit};
use crate::stats::{ALPHA, Interval, multiple, quantile, rank_sum, signed_rank, total};
use model::Random;
use serde_json::{Value, json};
use std::io::Write;

/// Data sets of each kind.
const SETS: usize = 60;

struct Data(Random);

impl Data {
    fn below(&mut self, n: u64) -> u64 {
        self.0.bits() % n
    }

    fn unit(&mut self) -> f64 {
        self.below(1 << 53) as f64 / (1u64 << 53) as f64
    }

    /// Values about `centre`, in steps of a tenth where ties are wanted.
    fn values(&mut self, count: u64, centre: f64, ties: bool) -> Vec<f64> {
        let value = |v: f64| if ties { (10.0 * v).round() / 10.0 } else { v };
        (0..count)
            .map(|_| value(centre + self.unit() - 0.5))
            .collect()
    }
}

/// One question, and what linerate says.
type Case = (Value, Value);

fn interval(interval: Option<Interval>) -> Value {
    interval.map_or(Value::Null, |i| json!([i.low, i.high]))
}

fn paired(chance: &mut Data) -> Case {
    let count = 3 + chance.below(12);
    let d = chance.values(count, 0.2, false);
    let mut ours = json!({
        "p": signed_rank::p_two_sided(&d),
        "typical": signed_rank::hodges_lehmann(&d),
    });
    if let Some(critical) = signed_rank::critical_value(d.len() as u32, ALPHA) {
        ours["interval"] = interval(signed_rank::interval(&d, critical));
    }
    (json!({"kind": "paired", "d": d}), ours)
}

fn tied(chance: &mut Data) -> Case {
    let count = 4 + chance.below(7);
    let d = chance.values(count, 0.1, true);
    let ours = json!({
        "p": signed_rank::p_two_sided(&d),
        "total_p": total::p_two_sided(&d),
    });
    (json!({"kind": "tied", "d": d}), ours)
}

fn two(chance: &mut Data) -> Case {
    let sizes = [4 + chance.below(4), 4 + chance.below(4)];
    let a = chance.values(sizes[0], 0.0, false);
    let b = chance.values(sizes[1], 0.3, false);
    let shift = rank_sum::shift(&a, &b, ALPHA).unwrap();
    let ours = json!({"shift": shift.value, "interval": interval(Some(shift.interval))});
    (json!({"kind": "two", "a": a, "b": b}), ours)
}

fn many(chance: &mut Data) -> Case {
    let count = 1 + chance.below(9);
    let p: Vec<f64> = (0..count)
        .map(|_| (chance.unit() * 0.3 * 50.0).ceil() / 50.0)
        .collect();
    let ours = json!({"holm": multiple::holm(&p)});
    (json!({"kind": "many", "p": p}), ours)
}

fn quantiles(chance: &mut Data) -> Case {
    let (p, df, x) = (
        chance.unit().max(1e-9),
        1 + chance.below(60),
        6.0 * chance.unit() - 3.0,
    );
    let ours = json!({
        "normal": quantile::normal_quantile(p),
        "t": quantile::t_quantile(p, df as f64),
        "t_cdf": quantile::t_cdf(x, df as f64),
    });
    (json!({"kind": "quantile", "p": p, "df": df, "x": x}), ours)
}

fn factors(chance: &mut Data) -> Case {
    let mut runs = Vec::new();
    for block in 0..3u32 {
        for set in 0..8u32 {
            let levels = vec![set & 1, set >> 1 & 1, set >> 2];
            let y = 0.2 * f64::from(levels[0] * levels[1]) + 0.3 * f64::from(block) + chance.unit();
            runs.push(Observation { block, levels, y });
        }
    }
    let fit = fit(&runs, &[2, 2, 2]).unwrap();
    let estimates: Vec<_> = fit.iter().map(|e| e.estimate).collect();
    let ours = json!({
        "value": estimates.iter().map(|e| e.value).collect::<Vec<_>>(),
        "low": estimates.iter().map(|e| e.interval.low).collect::<Vec<_>>(),
        "high": estimates.iter().map(|e| e.interval.high).collect::<Vec<_>>(),
        "p": fit.iter().map(|e| e.p).collect::<Vec<_>>(),
    });
    let question = json!({
        "kind": "factors",
        "blocks": runs.iter().map(|r| r.block).collect::<Vec<_>>(),
        "levels": runs.iter().map(|r| r.levels.clone()).collect::<Vec<_>>(),
        "y": runs.iter().map(|r| r.y).collect::<Vec<_>>(),
    });
    (question, ours)
}

#[test]
fn the_same_as_scipy() {
    let mut chance = Data(Random::new(1, 0));
    let kinds = [paired, tied, two, many, quantiles, factors];
    let (questions, ours): (Vec<Value>, Vec<Value>) = kinds
        .into_iter()
        .flat_map(|kind| std::iter::repeat_n(kind, SETS))
        .map(|kind| kind(&mut chance))
        .unzip();
    let theirs = ask(&json!(questions));
    assert_eq!(theirs.len(), kinds.len() * SETS);
    for ((question, ours), theirs) in questions.iter().zip(&ours).zip(&theirs) {
        assert!(
            same(ours, theirs),
            "{question}\nlinerate {ours}\nscipy    {theirs}"
        );
    }
}

/// Equal but for rounding.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => {
            let (a, b) = (a.as_f64().unwrap(), b.as_f64().unwrap());
            (a - b).abs() <= 1e-9 * (1.0 + b.abs())
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter()
                    .all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        (a, b) => a == b,
    }
}

/// The answers of scipy.
#[expect(
    clippy::disallowed_types,
    reason = "the oracle is a program of its own"
)]
fn ask(questions: &Value) -> Vec<Value> {
    use std::process::{Command, Stdio};
    let has_scipy = |python: &&str| {
        let asked = Command::new(python).args(["-c", "import scipy"]).output();
        asked.is_ok_and(|out| out.status.success())
    };
    // Debian's own first: another that stands before it in the path has packages of its own.
    let python = ["/usr/bin/python3", "python3"].into_iter().find(has_scipy).expect(
        "the statistics are compared with scipy, which is missing: apt-get install python3-scipy",
    );
    let mut oracle = Command::new(python)
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/src/tests/oracle.py"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // Questions and answers are a few hundred kilobytes; the script reads all before it writes.
    let mut stdin = oracle.stdin.take().unwrap();
    stdin.write_all(questions.to_string().as_bytes()).unwrap();
    drop(stdin);
    let out = oracle.wait_with_output().unwrap();
    assert!(out.status.success(), "oracle.py failed: {}", out.status);
    serde_json::from_slice(&out.stdout).unwrap()
}

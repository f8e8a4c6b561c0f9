//! The rows of a mesh, from the run of a pair.

use mesh::{HostPair, Mesh, MeshTest, round_length};
use model::finding::{Conclusion, Confidence, Explanation};
use model::mtu::MtuRecord;
use model::{Direction, Ended, LegOutcome, MeshLeg, Nanos, Run, summarise};

/// The legs of a pair that have no run.
pub(super) fn without_run(
    mesh: &Mesh,
    test: &MeshTest,
    pair: HostPair,
    slot: &str,
    starts: Nanos,
    outcome: LegOutcome,
    why: &str,
) -> Vec<MeshLeg> {
    let legs = test.spec.directions.legs().iter().enumerate();
    legs.map(|(at, direction)| MeshLeg {
        outcome,
        why: Some(why.to_owned()),
        ..bare(mesh, test, pair, (slot, at as u32), *direction, starts)
    })
    .collect()
}

/// The legs of a search for the path MTU between a pair, not judged yet.
pub(super) fn legs_of_mtu(
    mesh: &Mesh,
    test: &MeshTest,
    pair: HostPair,
    starts: Nanos,
    record: &MtuRecord,
) -> Vec<MeshLeg> {
    let found = record.found.report();
    let ways = [
        (Direction::Up, &found.forward),
        (Direction::Down, &found.reverse),
    ];
    let legs = ways.into_iter().zip(0..).map(|((direction, way), at)| {
        let found = match (way.climb.passes, way.climb.confirmed) {
            (Some(size), true) => Ok(size.into()),
            (Some(size), false) => Err(format!(
                "packets of {size} bytes pass; that larger ones do not is not certain, too many probes were lost"
            )),
            (None, _) => Err("no packet passes".to_owned()),
        };
        let outcome = match found {
            Ok(_) => LegOutcome::Good,
            Err(_) => LegOutcome::Failed,
        };
        MeshLeg {
            mtu: found.as_ref().ok().copied(),
            outcome,
            why: found.err(),
            ..bare(mesh, test, pair, (&record.id, at), direction, starts)
        }
    });
    legs.collect()
}

/// The legs of a run between a pair, not judged yet: good where something was measured. Those that it did not come to are missed.
/// They begin as the slot did by the coordinator's clock: that of the source may be wrong.
pub(super) fn legs_of_run(
    mesh: &Mesh,
    test: &MeshTest,
    (pair, starts): (HostPair, Nanos),
    run: &Run,
) -> Vec<MeshLeg> {
    let summary = summarise(run);
    let explained = explain::explain(run);
    let ppm = |share: f64| (share * 1e6).round() as u64;
    let legs = run.legs.iter().zip(&summary.legs).enumerate();
    let played = legs.map(|(at, (leg, figures))| {
        let was_measured = figures.ended == Ended::Complete && figures.bytes.0 > 0;
        MeshLeg {
            span: figures.duration,
            bytes: Some(figures.bytes),
            goodput: was_measured.then(|| figures.steady_goodput.unwrap_or(figures.goodput)),
            retrans_ppm: figures.retransmit_share.map(ppm),
            rtt_idle: figures.rtt_idle,
            rtt_p50: figures
                .requests
                .as_ref()
                .map(|latency| latency.p50)
                .or(figures.rtt_loaded),
            loss_ppm: figures
                .datagrams
                .and_then(|datagrams| datagrams.lost_share())
                .map(ppm),
            limited_by: explained.get(at).and_then(limited_by),
            outcome: if was_measured {
                LegOutcome::Good
            } else {
                LegOutcome::Failed
            },
            why: match &figures.ended {
                _ if was_measured => None,
                Ended::Failed { why } => Some(format!("it ended early: {why}")),
                Ended::Complete => Some("no data arrived".to_owned()),
                ended => Some(format!("it ended early: {}", ended.name())),
            },
            ..bare(
                mesh,
                test,
                pair,
                (&run.id, at as u32),
                leg.direction,
                starts + leg.started.min(round_length(test)),
            )
        }
    });
    let why = match &run.ended {
        Ended::Failed { why } => format!("the run ended before it: {why}"),
        _ => "the run ended before it".to_owned(),
    };
    let outcome = LegOutcome::Missed;
    let mut absent = without_run(mesh, test, pair, &run.id, starts, outcome, &why);
    played
        .chain(absent.drain(run.legs.len().min(absent.len())..))
        .collect()
}

/// The first limit that is named; all of them where that one is just possible.
fn limited_by(explanation: &Explanation) -> Option<String> {
    let Conclusion::Limited { by } = &explanation.conclusion else {
        return None;
    };
    let first = by.first()?;
    let finding = explanation.finding(*first);
    if finding.is_none_or(|first| first.confidence > Confidence::Possible) {
        return Some(first.name());
    }
    let names: Vec<String> = by.iter().map(|limit| limit.name()).collect();
    Some(format!("{} (possible)", names.join(" or ")))
}

fn bare(
    mesh: &Mesh,
    test: &MeshTest,
    (from, to): HostPair,
    (run, leg): (&str, u32),
    direction: Direction,
    starts: Nanos,
) -> MeshLeg {
    let (src, dst) = match direction {
        Direction::Up => (from, to),
        Direction::Down => (to, from),
    };
    let name = |host: usize| mesh.hosts[host].name.as_str();
    let cell = [&mesh.name, &test.name, name(src), name(dst)];
    MeshLeg::bare(run.to_owned(), leg, cell, starts, LegOutcome::Failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mesh::parse_mesh;
    use model::mtu::{Climb, MTU_SCHEMA, Method, MtuFound, MtuReport, PathEnd};
    use model::{BitRate, Bytes, EndRecord, Leg};

    fn mesh_of(kind: &str) -> Mesh {
        let hosts =
            ["a", "b"].map(|name| format!("[[host]]\nname = \"{name}\"\nagent = \"{name}\"\n"));
        let test =
            format!("[[test]]\nname = \"t\"\nkind = \"{kind}\"\nhosts = [\"*\"]\nevery = \"1d\"\n");
        let text = format!("[mesh]\nname = \"m\"\n{}{test}", hosts.concat());
        parse_mesh(&text, "m.toml").unwrap()
    }

    const STARTS: Nanos = Nanos::from_secs(1_000_000);

    #[test]
    fn each_direction_of_a_path_mtu_is_a_leg_from_its_sender() {
        let mesh = mesh_of("mtu");
        let way = |passes: Option<u32>, confirmed: bool| {
            let climb = Climb {
                passes,
                confirmed,
                ..Climb::default()
            };
            crate::mtu::local::way(&PathEnd::default(), None, climb, None, None)
        };
        let legs = |passes, confirmed| {
            let report = MtuReport {
                schema: MTU_SCHEMA,
                host: "b".to_owned(),
                method: Method::Agent,
                local: PathEnd::default(),
                remote: None,
                forward: way(passes, confirmed),
                reverse: way(None, false),
                notes: Vec::new(),
            };
            let record = MtuRecord {
                id: "x".to_owned(),
                ended: Nanos(0),
                found: MtuFound::Look(Box::new(report)),
            };
            let legs = legs_of_mtu(&mesh, &mesh.tests[0], (0, 1), STARTS, &record);
            for (leg, (at, ends)) in legs.iter().zip([(0, ["a", "b"]), (1, ["b", "a"])]) {
                assert_eq!((leg.run.as_str(), leg.starts), ("x", STARTS));
                assert_eq!((leg.leg, [leg.src.as_str(), &leg.dst]), (at, ends));
            }
            let legs = legs.into_iter();
            legs.map(|leg| (leg.mtu, leg.outcome, leg.why))
                .collect::<Vec<_>>()
        };
        let failed = |why: &str| (None, LegOutcome::Failed, Some(why.to_owned()));
        let none = failed("no packet passes");
        let good = (Some(1500), LegOutcome::Good, None);
        assert_eq!(legs(Some(1500), true), [good, none.clone()]);
        // A larger one may pass.
        let open = "packets of 1500 bytes pass; that larger ones do not is not certain, too many probes were lost";
        assert_eq!(legs(Some(1500), false), [failed(open), none]);
    }

    #[test]
    fn a_limit_that_is_just_possible_is_named_with_its_rivals() {
        let of = |confidence: &str, by: &[&str]| {
            let finding = |limit: &&str| {
                serde_json::json!({
                    "limit": limit, "level": "second", "confidence": confidence, "evidence": [], "remedies": [],
                    "share": {"time_ns": 1, "time_share": 1.0, "bytes": 1},
                })
            };
            let explanation = serde_json::json!({
                "name": "x", "source": "samples", "span_ns": 1, "bytes": 1, "phases": [], "doubts": [],
                "conclusion": {"is": "limited", "by": by},
                "findings": by.iter().map(finding).collect::<Vec<_>>(),
            });
            limited_by(&serde_json::from_value(explanation).unwrap())
        };
        let named = |text: &str| Some(text.to_owned());
        assert_eq!(of("certain", &["pacing", "rto_stall"]), named("pacing"));
        assert_eq!(of("likely", &["policer"]), named("policer"));
        let rivals = ["policer", "random_loss"];
        let both = named("policer or random_loss (possible)");
        assert_eq!(of("possible", &rivals), both);
        assert_eq!(of("possible", &["shaper"]), named("shaper (possible)"));
    }

    fn leg(direction: Direction, started: u64, bytes: u64, ended: Ended) -> Leg {
        let end = EndRecord {
            bytes: Bytes(bytes),
            duration: Nanos::from_secs(10),
            ..EndRecord::default()
        };
        Leg {
            direction,
            started: Nanos::from_secs(started),
            local: end.clone(),
            remote: end,
            ended,
        }
    }

    #[test]
    fn what_a_run_measured_is_good_and_the_rest_has_its_reason() {
        let mesh = mesh_of("bulk");
        let test = &mesh.tests[0];
        let of = |legs: Vec<Leg>, ended: Ended| {
            let run = Run {
                id: "r".to_owned(),
                spec: test.spec.clone(),
                legs,
                ended,
                ..Run::default()
            };
            legs_of_run(&mesh, test, ((0, 1), STARTS), &run)
        };
        let up = || leg(Direction::Up, 0, 10_000_000, Ended::Complete);
        let down = |bytes, ended| leg(Direction::Down, 12, bytes, ended);
        let rows = of(
            vec![up(), down(5_000_000, Ended::Complete)],
            Ended::Complete,
        );
        let [first, second] = &rows[..] else {
            panic!("{rows:?}")
        };
        assert_eq!(
            (first.outcome, first.why.as_ref()),
            (LegOutcome::Good, None)
        );
        assert_eq!(first.goodput, Some(BitRate(8_000_000)));
        assert_eq!(
            (first.bytes, first.span),
            (Some(Bytes(10_000_000)), Nanos::from_secs(10))
        );
        assert_eq!(
            (first.src.as_str(), first.leg, first.starts),
            ("a", 0, STARTS)
        );
        assert_eq!((second.src.as_str(), second.leg), ("b", 1));
        assert_eq!(second.starts, STARTS + Nanos::from_secs(12));
        assert_eq!(second.goodput, Some(BitRate(4_000_000)));
        // The clock of its source may be wrong, but no round is longer.
        let late = leg(Direction::Up, 1 << 30, 1, Ended::Complete);
        assert_eq!(
            of(vec![late], Ended::Complete)[0].starts,
            STARTS + round_length(test)
        );

        let failed = || Ended::Failed {
            why: "it broke".to_owned(),
        };
        for (bytes, ended, why) in [
            (0, Ended::Complete, "no data arrived"),
            (5, failed(), "it ended early: it broke"),
            (5, Ended::Interrupted, "it ended early: interrupted"),
        ] {
            let rows = of(vec![up(), down(bytes, ended)], Ended::Complete);
            assert_eq!(rows[1].outcome, LegOutcome::Failed);
            assert_eq!((rows[1].why.as_deref(), rows[1].goodput), (Some(why), None));
            assert_eq!(rows[1].bytes, Some(Bytes(bytes)));
        }
        let rows = of(vec![up()], Ended::Interrupted);
        assert_eq!((rows.len(), rows[1].outcome), (2, LegOutcome::Missed));
        assert_eq!(rows[1].why.as_deref(), Some("the run ended before it"));
        assert_eq!(
            (rows[1].src.as_str(), rows[1].leg, rows[1].starts),
            ("b", 1, STARTS)
        );
    }

    #[test]
    fn lost_datagrams_are_counted_in_a_million_and_latencies_come_before_rtts() {
        let mesh = mesh_of("udp");
        let mut leg = leg(Direction::Up, 0, 1000, Ended::Complete);
        leg.remote.datagrams = Some(model::Datagrams {
            packets: 1000,
            lost: 3,
            ..model::Datagrams::default()
        });
        let run = Run {
            spec: mesh.tests[0].spec.clone(),
            legs: vec![leg],
            ended: Ended::Complete,
            ..Run::default()
        };
        let share = summarise(&run).legs[0]
            .datagrams
            .unwrap()
            .lost_share()
            .unwrap();
        assert!(share > 0.0);
        let rows = legs_of_run(&mesh, &mesh.tests[0], ((0, 1), STARTS), &run);
        assert_eq!(rows[0].loss_ppm, Some((share * 1e6).round() as u64));
        assert_eq!(rows[0].retrans_ppm, None);
    }
}

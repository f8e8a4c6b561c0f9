//! The rows of a mesh, from the run of a pair.

use mesh::{HostPair, Mesh, MeshTest, round_length};
use model::finding::Conclusion;
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
        let (mtu, outcome) = match way.climb.passes {
            Some(size) => (Some(size.into()), LegOutcome::Good),
            None => (None, LegOutcome::Failed),
        };
        let why = mtu.is_none().then(|| "no packet passes".to_owned());
        MeshLeg {
            mtu,
            outcome,
            why,
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
        let limit = explained.get(at).and_then(|one| match &one.conclusion {
            Conclusion::Limited { by } => by.first().map(|limit| limit.name().to_owned()),
            _ => None,
        });
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
            limited_by: limit,
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

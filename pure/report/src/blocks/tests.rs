use super::*;
use crate::testing;
use model::{Workload, summarise};

#[test]
fn every_operation_has_its_figures_and_its_split() {
    let mut spec = testing::spec();
    spec.workload = Workload::Blocks(testing::blocks());
    let mut leg = testing::request_leg(100);
    leg.local.operations = testing::block_records();
    let mut run = testing::run(spec, vec![leg]);
    for host in [Some(&mut run.local), run.remote.as_mut()]
        .into_iter()
        .flatten()
    {
        host.device.as_mut().unwrap().speed = None;
    }
    let output = crate::summary(&run, &summarise(&run), &[], Style::PLAIN);
    insta::assert_snapshot!(output);
}

/// The deeper, the faster, until it is enough.
pub(crate) fn some_depths() -> Vec<Depth> {
    let mut leg = testing::request_leg(100);
    leg.local.operations = testing::reported_by_server();
    let figures = model::summarise_leg(&testing::spec(), &leg);
    let measured = |(depth, rate): (u32, f64)| Depth {
        depth,
        run: "1a2b3c4d".to_owned(),
        requests: figures.requests.as_ref().map(|all| LatencySummary {
            per_s: rate,
            ..*all
        }),
        operations: figures.operations.clone(),
    };
    [(1, 100.0), (8, 700.0), (32, 720.0)].map(measured).to_vec()
}

#[test]
fn depths_stand_beside_each_other_and_one_is_enough() {
    let output = some_depths();
    let table = depths(&output, Style::PLAIN);
    assert_eq!(table.lines().count(), 1 + 3 * 2 + 1, "{table}");
    assert!(table.contains("A depth of 8 is enough"), "{table}");
    assert!(depths(&output[..2], Style::PLAIN).contains("might be faster still"));
    assert!(depths(&[], Style::PLAIN).contains("Nothing was measured"));
}

#[test]
fn storage_or_network_is_a_sentence_of_each_operation() {
    let mut spec = testing::spec();
    spec.workload = Workload::Blocks(testing::peer_blocks());
    let mut leg = testing::request_leg(100);
    leg.local.operations = testing::reported_by_server();
    leg.remote.store = Some(StoreRecord {
        blocks: 131_072,
        fsync: Some(Nanos::from_millis(12)),
        cached_before_share: Some(0.0),
        cached_after_share: Some(0.004),
        failed: None,
    });
    let run = testing::run(spec, vec![leg]);
    let output = crate::summary(&run, &summarise(&run), &[], Style::PLAIN);
    insta::assert_snapshot!(output);
}

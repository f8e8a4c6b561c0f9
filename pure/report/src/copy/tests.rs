use super::*;
use model::Nanos;
use model::StageUse;

fn copied(busy: [f64; 3], decided: bool) -> CopySummary {
    let stages = [Stage::Source, Stage::Network, Stage::Sink];
    let mut stages: Vec<StageUse> = stages
        .into_iter()
        .zip(busy)
        .map(|(stage, busy_share)| StageUse {
            stage,
            busy_share,
            alone: Some(BitRate(400_000_000)),
        })
        .collect();
    stages.sort_by(|a, b| b.busy_share.total_cmp(&a.busy_share));
    CopySummary {
        span: Nanos::from_secs(1),
        rate: BitRate(360_000_000),
        stages,
        decided,
        sender_ring_full_share: 0.0,
        sender_ring_empty_share: 0.1,
        receiver_ring_full_share: 0.0,
        receiver_ring_empty_share: 0.9,
        fsync: None,
        verified: Some(true),
        kept: false,
        source_cached_before_share: None,
        source_cached_after_share: None,
        sink_cached_after_share: None,
        hashing_s_per_gb: 0.2,
    }
}

fn order(from: bool, to: bool) -> FileCopy {
    FileCopy {
        from: from.then(|| "a".to_owned()),
        to: to.then(|| "b".to_owned()),
        ..FileCopy::default()
    }
}

#[test]
fn the_stage_and_the_next_limit_in_a_sentence() {
    let plain = |text: String| text.replace('\u{a0}', " ");
    let output = verdict(&order(true, false), &copied([0.99, 0.9, 0.1], true));
    assert_eq!(
        plain(output),
        "Held up by the source's storage: at work 99 % of the time. The next limit is the network \
             at about 400 Mbit/s (at work 90 %)."
    );
    let output = verdict(&order(false, false), &copied([0.2, 0.98, 0.97], false));
    assert_eq!(
        plain(output),
        "Held up by the network and the receiver's memory and processor alike: at work 98 % and \
             97 % of the time."
    );
}

fn all_corners() -> Vec<Corner> {
    let corner = |from, to, busy| Corner {
        order: order(from, to),
        copies: vec![copied(busy, true)],
        runs: vec!["1a2b3c4d".to_owned()],
    };
    vec![
        corner(false, false, [0.1, 0.99, 0.1]),
        corner(true, true, [0.99, 0.9, 0.2]),
        Corner {
            order: order(true, false),
            copies: Vec::new(),
            runs: Vec::new(),
        },
    ]
}

pub(crate) fn corners_json_of_all() -> String {
    corners_json(&all_corners())
}

#[test]
fn the_corners_stand_beside_each_other() {
    let table = corners(&all_corners(), Style::PLAIN);
    let row = |name: &str| table.lines().find(|l| l.starts_with(name)).unwrap();
    assert!(row("memory to memory").contains("the network"), "{table}");
    assert!(
        row("file to file").contains("the source's storage"),
        "{table}"
    );
    assert!(row("file to memory").contains("not copied"), "{table}");
    assert!(
        table.contains("File to file: Held up by the source's storage"),
        "{table}"
    );
}

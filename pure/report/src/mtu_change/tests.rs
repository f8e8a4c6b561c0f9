use super::*;
use model::mtu::{CHANGE_SCHEMA, MtuCause, MtuReport};

fn change(outcome: ChangeOutcome) -> MtuChange {
    let report = || -> Option<MtuReport> { crate::mtu::tests::of_every_cause().pop() };
    MtuChange {
        schema: CHANGE_SCHEMA,
        host: "db2\x1b[2J".to_owned(),
        to: 9000,
        reach: ChangeReach::Peer,
        before: report().expect("there is one"),
        pinned: report(),
        after: report(),
        silence: Some(Nanos(1_500_000)),
        outcome,
        persisted: Vec::new(),
        notes: vec!["a note".to_owned()],
    }
}

/// One in which nothing is left out.
pub(crate) fn rolled_back() -> MtuChange {
    let cause = MtuCause::Segment {
        to: None,
        peer: true,
    };
    change(ChangeOutcome::RolledBack {
        stage: ChangeStage::Probe,
        stopped: vec![Stopped {
            way: Going::Reverse,
            passes: Some(1500),
            cause,
            hangs: false,
        }],
        why: "the cat".to_owned(),
    })
}

#[test]
fn it_says_which_direction_failed_at_which_size_and_of_what_kind() {
    let said = text(&rolled_back(), Style::PLAIN).replace('\n', " ");
    assert!(
            said.starts_with(
                "Not changed: 1500 bytes is the most that gets through on the reverse path: a switch between the two \
                 hosts drops larger packets silently on the reverse path. All settings restored. "
            ),
            "{said}"
        );
    assert!(
        said.contains("the cat") && said.contains("a note"),
        "{said}"
    );
    let hangs = ChangeOutcome::RolledBack {
        stage: ChangeStage::Verify,
        stopped: vec![Stopped {
            way: Going::Forward,
            passes: Some(9000),
            cause: MtuCause::Clear,
            hangs: true,
        }],
        why: String::new(),
    };
    let said = text(&change(hangs), Style::PLAIN).replace('\n', " ");
    let expected = "9000 bytes get through on the forward path, but a transfer over TCP hangs";
    assert!(said.contains(expected), "{said}");
}

#[test]
fn every_stage_and_every_end_has_words_that_move_no_cursor() {
    let all = [
        ChangeStage::Arm,
        ChangeStage::Pin,
        ChangeStage::Widen,
        ChangeStage::Probe,
        ChangeStage::Unpin,
        ChangeStage::Verify,
        ChangeStage::Commit,
    ];
    for outcome in [ChangeOutcome::Unneeded, ChangeOutcome::Committed] {
        let change = change(outcome);
        let stages = all.map(|stage| done(stage, &change) + during(stage));
        for said in stages.into_iter().chain([text(&change, Style::PLAIN)]) {
            assert!(!said.is_empty() && !said.contains('\x1b'), "{said}");
        }
    }
    let committed = text(&change(ChangeOutcome::Committed), Style::PLAIN).replace('\n', " ");
    assert!(committed.contains("packets to all others stay unchanged"));
    let force = Obstacle::DropsLink {
        end: Going::Reverse,
        device: "eth0".to_owned(),
        driver: "e1000e".to_owned(),
    };
    assert!(against(&force, "db2").starts_with("eth0 (e1000e) of db2 may take the link down"));
}

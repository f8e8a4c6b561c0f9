use super::*;
use crate::controller::leg_order;
use model::Fingerprint;

fn state() -> LegState {
    let order = leg_order(&Spec::default(), 3, Direction::Up);
    LegState::new(0, Direction::Up, order)
}

#[test]
fn a_leg_is_over_when_both_of_its_ends_are() {
    use ConnectStage::{Opening, Over, Running};
    for (local, remote, is_over) in [
        (Opening, Opening, false),
        (Over, Running, false),
        (Running, Over, false),
        (Over, Over, true),
    ] {
        let mut state = state();
        (state.local, state.remote) = (local, remote);
        assert_eq!(state.is_over(), is_over);
        assert!(*state.end(Side::Local).1 == local && *state.end(Side::Remote).1 == remote);
    }
}

#[test]
fn a_failure_ends_this_end_unless_it_runs_and_the_first_reason_stays() {
    for (stage, after) in [
        (ConnectStage::Opening, ConnectStage::Over),
        (ConnectStage::Connected, ConnectStage::Over),
        (ConnectStage::Running, ConnectStage::Running),
        (ConnectStage::Over, ConnectStage::Over),
    ] {
        let mut state = state();
        state.local = stage;
        state.go = Some(mpsc::channel().0);
        state.fail(anyhow!("first"));
        state.fail(anyhow!("second"));
        assert!(state.local == after && state.go.is_none());
        assert!(state.stop.load(Ordering::Relaxed));
        assert_eq!(state.failure.unwrap().to_string(), "first");
    }
}

#[test]
fn messages_of_a_leg_have_its_number() {
    let (leg, why) = (7, String::new());
    for message in [
        ToController::Granted {
            leg,
            port: 1,
            token: String::new(),
            expires: Nanos(0),
            order: Box::new(state().order),
            warnings: Vec::new(),
        },
        ToController::Busy {
            leg,
            wait: Nanos(0),
            why: why.clone(),
        },
        ToController::Refused {
            leg,
            why: why.clone(),
        },
        ToController::Connected {
            leg,
            sockets: Vec::new(),
            fingerprint: Box::<Fingerprint>::default(),
            warnings: Vec::new(),
        },
        ToController::Sample {
            leg,
            sample: Box::default(),
        },
        ToController::Finished {
            leg,
            record: Box::default(),
            broke: None,
        },
        ToController::Failed {
            leg,
            why: why.clone(),
        },
    ] {
        assert_eq!(leg_of(&message), Some(7), "{message:?}");
    }
    let piece = ToController::Piece {
        leg,
        data: String::new(),
    };
    assert_eq!(leg_of(&piece), None);
    assert_eq!(leg_of(&ToController::Bye { why }), None);
}

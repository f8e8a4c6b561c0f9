use super::*;
use model::mtu::Way;
use model::mtu::{Climb, Hop, MTU_SCHEMA, MssSeen, TcpTruth, TooBig};
use std::net::IpAddr;

/// Reports in which nothing is left out.
pub(crate) fn of_every_cause() -> Vec<MtuReport> {
    let from: IpAddr = [10, 0, 1, 1].into();
    let causes = [
        MtuCause::RouterReports { hop: Some(1), from },
        MtuCause::Silent {
            hop: 1,
            address: Some(from),
            last: true,
        },
        MtuCause::Segment {
            to: Some(from),
            peer: false,
        },
    ];
    let beside = vec![
        Beside::StaleCache {
            says: 552,
            expires_s: 9,
        },
        Beside::Clamp {
            announced: 8960,
            seen: 1460,
            hop: Some(1),
            by: Some(from),
        },
        Beside::Fragmented { arrived: 3 },
        Beside::Encapsulation {
            like: "GRE".to_owned(),
        },
    ];
    causes
        .into_iter()
        .map(|cause| {
            let mut forward = way(1500, cause, beside.clone(), vec![MtuDoubt::Place]);
            forward.climb.too_big = Some(TooBig { from, mtu: 1500 });
            forward.climb.hops = vec![Hop::default()];
            forward.mss = Some(MssSeen {
                announced: 8960,
                seen: 1460,
                at_least: false,
            });
            report(forward.clone(), forward)
        })
        .collect()
}

#[test]
fn every_cause_and_what_is_beside_it_has_words() {
    for report in of_every_cause() {
        let shown = text(&report, Style::PLAIN);
        for word in [
            "10.0.1.1",
            "8960",
            "GRE",
            "fragments",
            "1500 bytes each way",
        ] {
            assert!(shown.contains(word), "{word}: {shown}");
        }
    }
}

fn way(mtu: u32, cause: MtuCause, beside: Vec<Beside>, doubts: Vec<MtuDoubt>) -> Way {
    Way {
        climb: Climb {
            ceiling: 9000,
            passes: Some(mtu),
            confirmed: true,
            sent: 30,
            arrived: 30,
            ..Climb::default()
        },
        mss: None,
        tcp: Some(TcpTruth::default()),
        verdict: MtuVerdict {
            mtu: Some(mtu),
            cause,
            beside,
            doubts,
        },
    }
}

fn report(forward: Way, reverse: Way) -> MtuReport {
    MtuReport {
        schema: MTU_SCHEMA,
        host: "db2".to_owned(),
        method: Method::Agent,
        local: PathEnd::default(),
        remote: Some(PathEnd::default()),
        forward,
        reverse,
        notes: vec!["a note \x1b[2J".to_owned()],
    }
}

#[test]
fn the_answer_is_one_sentence() {
    let clear = || way(9000, MtuCause::Clear, vec![], vec![]);
    let router: IpAddr = [10, 0, 1, 1].into();
    let silent = MtuCause::Silent {
        hop: 2,
        address: Some(router),
        last: true,
    };
    let hole = || {
        let doubts = vec![MtuDoubt::RouterOrLink];
        way(1500, silent.clone(), vec![Beside::BlackHole], doubts)
    };
    let stale = Beside::StaleCache {
        says: 1500,
        expires_s: 9,
    };
    for (forward, reverse, said) in [
        (
            clear(),
            clear(),
            "9000 bytes each way: all that the devices of both hosts take.",
        ),
        (
            clear(),
            hole(),
            "9000 bytes forward, 1500 in reverse: a router 2 hops from db2 (10.0.1.1) drops larger packets silently on the reverse path; TCP transfers hang (reverse).",
        ),
        (
            way(9000, MtuCause::Clear, vec![stale], vec![]),
            clear(),
            "9000 bytes each way: all that the devices of both hosts take; but this host believes in 1500 and sends no more.",
        ),
        (
            way(1500, MtuCause::PeerDevice, vec![], vec![]),
            way(1500, MtuCause::OwnDevice, vec![], vec![]),
            "1500 bytes each way: the device of db2 takes no more.",
        ),
    ] {
        let report = report(forward, reverse);
        let shown = text(
            &report,
            Style {
                width: 500,
                ..Style::PLAIN
            },
        );
        assert_eq!(shown.lines().next(), Some(said));
        assert!(!shown.contains('\x1b'));
    }
}

#[test]
fn it_says_what_is_not_separable_and_what_to_do() {
    let cause = MtuCause::Segment {
        to: Some([10, 0, 0, 1].into()),
        peer: false,
    };
    let stuck = || {
        way(
            1500,
            cause.clone(),
            vec![Beside::BlackHole],
            vec![MtuDoubt::SwitchOrPort],
        )
    };
    let shown = text(&report(stuck(), stuck()), Style::PLAIN);
    assert!(shown.contains("not separable: a switch"), "{shown}");
    assert!(shown.contains("What to do:"), "{shown}");
    assert!(
        shown.lines().all(|line| line.chars().count() <= 120),
        "{shown}"
    );
}

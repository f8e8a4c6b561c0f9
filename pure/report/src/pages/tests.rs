//! The pages of experiments, tunings, MTUs and published numbers, as a whole.

use super::{experiment, mtu, tuning};
use crate::Style;
use crate::page::{Drawing, Page, html, text};
use crate::prove::tests::{path_of, several, well_formed};
use crate::testing::{published, rivals};
use model::advice::{Advice, Change, Needs, Proposal, RateFrom};
use model::finding::Limit;
use model::mtu::{
    Beside, Climb, Hop, MTU_SCHEMA, Method, MtuCause, MtuDoubt, MtuFound, MtuReport, MtuVerdict,
    PathEnd, TcpTruth, Way,
};
use model::*;
use std::net::IpAddr;

/// A path of three routers whose reverse path loses what is larger than 1500 bytes behind the second.
fn silent_router() -> MtuReport {
    let end = |last: u8, gateway: u8| PathEnd {
        address: Some([10, 0, last, 2].into()),
        device: "eth0".to_owned(),
        device_mtu: 9000,
        gateway: Some([10, 0, gateway, 1].into()),
        ..PathEnd::default()
    };
    let hop = |ttl: u8, large: bool| Hop {
        ttl,
        address: (ttl != 2).then(|| IpAddr::from([10, 0, ttl, 1])),
        small: ttl != 2,
        large: large && ttl != 2,
        mss: None,
    };
    let way = |mtu: u32, reached: u8, cause: MtuCause, beside: Vec<Beside>, hangs: bool| Way {
        climb: Climb {
            ceiling: 9000,
            passes: Some(mtu),
            confirmed: true,
            sent: 40,
            arrived: 40,
            hops: (1..=3).map(|ttl| hop(ttl, ttl <= reached)).collect(),
            distance: Some(4),
            ..Climb::default()
        },
        mss: None,
        tcp: Some(TcpTruth {
            asked: 65_536,
            acked: if hangs { 0 } else { 65_536 },
            hangs,
            ..TcpTruth::default()
        }),
        verdict: MtuVerdict {
            mtu: Some(mtu),
            cause,
            beside,
            doubts: match hangs {
                true => vec![MtuDoubt::RouterOrLink, MtuDoubt::SilentOrFiltered],
                false => Vec::new(),
            },
        },
    };
    let silent = MtuCause::Silent {
        hop: 1,
        address: Some([10, 0, 1, 1].into()),
        last: false,
    };
    MtuReport {
        schema: MTU_SCHEMA,
        host: "db2".to_owned(),
        method: Method::Agent,
        local: end(1, 1),
        remote: Some(end(4, 4)),
        forward: way(9000, 3, MtuCause::Clear, Vec::new(), false),
        reverse: way(1500, 1, silent, vec![Beside::BlackHole], true),
        notes: Vec::new(),
    }
}

/// A path whose first proposal helped.
fn tuned() -> (Tuning, Vec<crate::tune::Judged>) {
    let experiment = path_of(1.12, 0.04);
    let verdict = ::prove::judge(&experiment);
    let look = |run: &str, mbit: u64| Look {
        run: run.to_owned(),
        goodput: BitRate(mbit * 1_000_000),
        explanations: vec![rivals()],
    };
    let setting: Setting = "congestion=bbr".parse().unwrap();
    let story = Tuning {
        schema: TUNING_SCHEMA,
        id: "7u2e0001".to_owned(),
        started: Nanos::from_secs(1_795_205_836),
        host: "db2".to_owned(),
        reached_by: String::new(),
        direction: Direction::Up,
        dry_run: false,
        rounds: vec![Round {
            before: look("00000001", 62),
            advice: Advice {
                needs: Needs {
                    direction: Direction::Up,
                    rate: BitRate(1_000_000_000),
                    rate_from: RateFrom::Line,
                    rtt: Nanos::from_millis(52),
                    connections: 1,
                    bdp: Bytes(6 << 20),
                    receive_buffer: Bytes(16 << 20),
                    send_buffer: Bytes(16 << 20),
                },
                proposals: vec![Proposal {
                    title: "another congestion control".to_owned(),
                    direction: Direction::Up,
                    cause: Limit::RandomLoss,
                    changes: vec![Change::new(
                        setting.clone(),
                        Side::Local,
                        "losses without a queue".to_owned(),
                        "Mathis 1997",
                    )],
                    stand_in: Vec::new(),
                }],
                declined: Vec::new(),
                otherwise: Vec::new(),
            },
            attempts: vec![Attempt {
                settings: vec![setting],
                instead: None,
                arm: Some(1),
                fate: Fate::Kept,
            }],
            experiments: vec![experiment.id.clone()],
        }],
        kept: vec![Reading {
            setting: "congestion=bbr".to_owned(),
            side: Side::Local,
            asked: "bbr".to_owned(),
            found: "bbr".to_owned(),
            in_force: true,
        }],
        after: Some(look("00000002", 850)),
        lasting: Vec::new(),
        warnings: Vec::new(),
        ended: Ended::Complete,
    };
    (story, vec![(experiment, verdict)])
}

/// A picture that is no chart, an element a line.
fn elements(page: &Page, id: &str) -> String {
    let pictures = page.sections.iter().flat_map(|section| &section.pictures);
    let picture = pictures.into_iter().find(|picture| picture.id == id);
    match &picture.expect("the page has it").drawing {
        Drawing::Still { svg, csv } => format!("{}\n{csv}", svg.replace("><", ">\n<")),
        Drawing::Chart(chart) => format!("{chart:#?}"),
    }
}

fn words(page: &Page) -> String {
    text(page, Style::PLAIN)
}

#[test]
fn an_experiment_of_two_arms() {
    let e = path_of(1.12, 0.04);
    let page = experiment(&e, &::prove::judge(&e));
    insta::assert_snapshot!(words(&page));
    insta::assert_snapshot!("pairs", elements(&page, "pairs"));
    insta::assert_snapshot!("bars", elements(&page, "bars"));
}

#[test]
fn an_experiment_of_several_arms() {
    let e = several();
    let page = experiment(&e, &::prove::judge(&e));
    insta::assert_snapshot!(words(&page));
    insta::assert_snapshot!("forest", elements(&page, "forest"));
}

#[test]
fn a_size_that_stops_on_the_way_back() {
    let page = mtu(&MtuFound::Look(Box::new(silent_router())));
    insta::assert_snapshot!(words(&page));
    insta::assert_snapshot!("hops", elements(&page, "hops"));
}

#[test]
fn a_tuning() {
    let (story, judged) = tuned();
    insta::assert_snapshot!(words(&tuning(&story, &judged)));
}

#[test]
fn published_numbers() {
    let table = include_str!("../../../prove/tests/published/virtio_cloud.csv");
    let found = ::prove::published::of_table("virtio_cloud.csv", table, 0.05).unwrap();
    let page = super::published(&found);
    insta::assert_snapshot!(words(&page));
    insta::assert_snapshot!("classic", elements(&page, "bars"));
}

/// What others wrote stays text in every kind of page, and every picture is whole.
#[test]
fn names_cannot_be_markup() {
    let nasty = "<script>&\"'\u{1b}[2J\u{202e}".repeat(4);
    let mut look = silent_router();
    look.host = nasty.clone();
    look.local.device = nasty.clone();
    let mut change = crate::mtu_change::tests::rolled_back();
    change.host = nasty.clone();
    let mut numbers = published();
    numbers.name = nasty.clone();
    numbers.comparisons[0].of = nasty.clone();
    numbers.statistics[0].of = nasty.clone();
    numbers.statistics[0].arm = nasty.clone();
    let (mut story, mut judged) = tuned();
    story.host = nasty.clone();
    story.rounds[0].advice.proposals[0].title = nasty.clone();
    judged[0].0.plan.arms[1].name = nasty.clone();
    let mut e = several();
    e.plan.host = nasty.clone();
    e.plan.arms[1].name = nasty;
    let mut pages = vec![
        experiment(&e, &::prove::judge(&e)),
        experiment(&judged[0].0, &judged[0].1),
        mtu(&MtuFound::Look(Box::new(look))),
        mtu(&MtuFound::Change(Box::new(change))),
        super::published(&numbers),
        tuning(&story, &judged),
    ];
    let causes = crate::mtu::tests::of_every_cause();
    pages.extend(
        causes
            .into_iter()
            .map(|of| mtu(&MtuFound::Look(Box::new(of)))),
    );
    for page in &pages {
        let whole = html(page);
        assert!(!whole.contains("<script>&") && !whole.contains('\u{1b}'));
        for picture in page.sections.iter().flat_map(|s| &s.pictures) {
            let svg = crate::page::svg(picture);
            well_formed(&svg);
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }
}

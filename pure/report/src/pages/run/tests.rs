use super::*;
use crate::page;
use crate::testing::{self, LOSSY, WINDOWED};
use model::summarise;

pub(crate) fn both_ways() -> Page {
    let legs = vec![
        testing::leg(Direction::Up, LOSSY),
        testing::leg(Direction::Down, WINDOWED),
    ];
    let one = testing::run(testing::spec(), legs);
    run(&one, &summarise(&one), &[testing::rivals()])
}

#[test]
fn words_and_pictures_of_a_run() {
    let page = both_ways();
    insta::assert_snapshot!(page.verdict.join("\n"));
    let pictures = page.sections.iter().flat_map(|s| &s.pictures);
    let output = pictures.map(|p| format!("{}: {}\n{}", p.id, p.title, p.alternative));
    insta::assert_snapshot!(output.collect::<Vec<_>>().join("\n"));
}

#[test]
fn a_picture_of_each_kind_by_the_letter() {
    let page = both_ways();
    for picture in page.sections[..2].iter().flat_map(|s| &s.pictures) {
        insta::assert_snapshot!(picture.id.clone(), page::csv(picture));
    }
}

#[test]
fn a_run_of_an_hour_is_a_page_that_a_browser_takes() {
    let mut legs = vec![testing::leg(Direction::Up, LOSSY)];
    let samples = legs[0].local.samples.clone();
    let Leg { local, remote, .. } = &mut legs[0];
    for end in [local, remote] {
        end.samples = (0..36_000u64)
            .map(|n| {
                let mut sample = samples[n as usize % samples.len()].clone();
                sample.at = model::Nanos::from_millis(100 * n);
                sample.bytes = model::Bytes(n * 1_234_567);
                sample
            })
            .collect();
    }
    let one = testing::run(testing::spec(), legs);
    let text = page::html(&run(&one, &summarise(&one), &[]));
    assert!(text.len() < 1_000_000, "{}", text.len());
}

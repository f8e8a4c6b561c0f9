//! What was found in numbers that somebody published.

use crate::json::pretty;
use crate::words::{Ink, Style, escape, escape_sentence, glue, wrap};
use model::{Estimate, Outcome, Published, PublishedComparison};

/// Comparisons and doubts that are told; a table has fewer.
const TOLD: usize = 50;

/// All of it as text: each difference with its verdict, then what to know before it is believed.
pub fn text(of: &Published, style: Style) -> String {
    let mut out = String::new();
    for one in of.comparisons.iter().take(TOLD) {
        out.push_str(&comparison(one, of.margin_share, style));
    }
    if of.comparisons.len() > TOLD {
        let more = of.comparisons.len() - TOLD;
        out.push_str(&format!("And {more} more comparisons (--json has all).\n"));
    }
    if !of.doubts.is_empty() {
        out.push_str("\nBefore this is believed:\n");
    }
    for doubt in of.doubts.iter().take(TOLD) {
        out.push_str(&wrap(
            &escape_sentence(&doubt.words),
            style.width,
            "- ",
            "  ",
        ));
    }
    if of.doubts.len() > TOLD {
        let more = of.doubts.len() - TOLD;
        out.push_str(&format!("And {more} more (--json has all).\n"));
    }
    out
}

/// The document; `docs/json.md` has its keys.
pub fn json(of: &Published) -> String {
    pretty(of)
}

/// A difference and its verdict in one line.
pub(crate) fn sentence(one: &PublishedComparison, margin_share: f64) -> String {
    let (word, sentence) = verdict(one, margin_share);
    format!("{}: {word}. {sentence}", values(one))
}

fn values(one: &PublishedComparison) -> String {
    let of = match one.of.as_str() {
        "" => String::new(),
        of => format!("{}: ", escape(of)),
    };
    format!(
        "{of}{} ({}) and {} ({})",
        escape(&one.control),
        value(one.control_value, &one.unit),
        escape(&one.arm),
        value(one.arm_value, &one.unit)
    )
}

fn comparison(one: &PublishedComparison, margin_share: f64, style: Style) -> String {
    let (word, sentence) = verdict(one, margin_share);
    let answer = wrap(&format!("{word}. {sentence}"), style.width, "  ", "  ");
    // Painted after wrapping, so that escapes count for no width.
    let answer = answer.replacen(word, &style.paint(Ink::Bold, word), 1);
    wrap(&values(one), style.width, "", "  ") + &answer
}

/// The verdict in a word and a sentence.
fn verdict(one: &PublishedComparison, margin_share: f64) -> (&'static str, String) {
    let [control, arm] = one.runs;
    let runs = match (one.paired, one.runs) {
        (true, _) => format!("{control} pairs"),
        (false, _) => format!("{control} and {arm} runs without pairs"),
    };
    let level = |e: &Estimate| format!("{:.0} % interval", 100.0 * e.level);
    let judged = |word, than: &str, e: Estimate| {
        let sentence = format!(
            "A typical run was {} {than} ({} {} to {}; {runs}).",
            glue(percent(e.effect_share.abs())),
            level(&e),
            glue(signed(e.low_share)),
            glue(signed(e.high_share)),
        );
        (word, sentence)
    };
    match (one.outcome, one.estimate) {
        (Outcome::Faster, Some(e)) => judged("FASTER", "faster", e),
        (Outcome::Slower, Some(e)) => judged("SLOWER", "slower", e),
        (Outcome::NoDifference, Some(e)) => (
            "NO DIFFERENCE THAT MATTERS",
            format!(
                "Between {} and {} ({} matters; {runs}).",
                glue(signed(e.low_share)),
                glue(signed(e.high_share)),
                glue(percent(margin_share)),
            ),
        ),
        (Outcome::NotEnoughData, Some(e)) => (
            "NOT ENOUGH DATA",
            format!(
                "Anything from {} to {} fits {runs}.",
                glue(signed(e.low_share)),
                glue(signed(e.high_share)),
            ),
        ),
        _ => ("NO VERDICT", unjudged(one)),
    }
}

/// What can be said where there is no interval.
fn unjudged(one: &PublishedComparison) -> String {
    let change = one.change_share.map_or(String::new(), |share| {
        let printed = one.printed_share.map_or(String::new(), |printed| {
            format!(" (printed {})", glue(signed(printed)))
        });
        format!("The values differ by {}{printed}; ", glue(signed(share)))
    });
    let why = match one.runs {
        [0, _] | [_, 0] => "the runs behind them were not published.".to_owned(),
        [1, 1] => "one run a side has no interval.".to_owned(),
        [control, arm] if control.min(arm) < 6 => {
            format!("{control} and {arm} runs are too few for an interval.")
        }
        [control, arm] => format!("the {control} and {arm} values are not judged, see below."),
    };
    format!("{change}{why}")
}

fn value(value: f64, unit: &str) -> String {
    glue(format!("{value} {unit}").trim())
}

fn percent(share: f64) -> String {
    let p = 100.0 * share;
    let decimals = if p.abs() < 9.95 { 1 } else { 0 };
    format!("{p:.decimals$} %")
}

fn signed(share: f64) -> String {
    let sign = if share >= 0.0 { "+" } else { "" };
    format!("{sign}{}", percent(share))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::published;

    fn one(
        outcome: Outcome,
        runs: [u32; 2],
        interval: Option<(f64, f64, f64)>,
    ) -> PublishedComparison {
        PublishedComparison {
            runs,
            estimate: interval.map(|(effect_share, low_share, high_share)| Estimate {
                effect_share,
                low_share,
                high_share,
                level: 0.95,
            }),
            outcome,
            ..published().comparisons.remove(0)
        }
    }

    fn said(comparisons: Vec<PublishedComparison>) -> String {
        let of = Published {
            comparisons,
            ..published()
        };
        text(&of, Style::PLAIN)
    }

    #[test]
    fn every_answer_in_words() {
        let mut lost = one(Outcome::NoVerdict, [1, 1], None);
        (lost.of, lost.printed_share) = ("table 1, write".to_owned(), Some(0.0053));
        insta::assert_snapshot!(said(vec![
            one(Outcome::Faster, [8, 9], Some((0.12, 0.06, 0.19))),
            one(Outcome::NoDifference, [20, 20], Some((0.01, -0.021, 0.033))),
            one(Outcome::NotEnoughData, [8, 8], Some((0.04, -0.07, 0.15))),
            lost,
            one(Outcome::NoVerdict, [0, 0], None),
            one(Outcome::NoVerdict, [3, 3], None),
        ]), @r"
        cubic (100 Mbit/s) and bbr (112 Mbit/s)
          FASTER. A typical run was 12 % faster (95 % interval +6.0 % to +19 %; 8 and 9
          runs without pairs).
        cubic (100 Mbit/s) and bbr (112 Mbit/s)
          NO DIFFERENCE THAT MATTERS. Between -2.1 % and +3.3 % (5.0 % matters; 20 and
          20 runs without pairs).
        cubic (100 Mbit/s) and bbr (112 Mbit/s)
          NOT ENOUGH DATA. Anything from -7.0 % to +15 % fits 8 and 8 runs without
          pairs.
        table 1, write: cubic (100 Mbit/s) and bbr (112 Mbit/s)
          NO VERDICT. The values differ by +12 % (printed +0.5 %); one run a side has no
          interval.
        cubic (100 Mbit/s) and bbr (112 Mbit/s)
          NO VERDICT. The values differ by +12 %; the runs behind them were not
          published.
        cubic (100 Mbit/s) and bbr (112 Mbit/s)
          NO VERDICT. The values differ by +12 %; 3 and 3 runs are too few for an
          interval.

        Before this is believed:
        - The order was not drawn at random, and \u{1b}[2J is no word.
        ");
    }

    #[test]
    fn an_effect_is_never_denied() {
        for outcome in [
            Outcome::NoDifference,
            Outcome::NotEnoughData,
            Outcome::NoVerdict,
        ] {
            let words = said(vec![one(outcome, [8, 8], Some((0.0, -0.01, 0.01)))]);
            assert!(
                !words.contains("no effect") && !words.contains("ignificant"),
                "{words}"
            );
        }
    }
}

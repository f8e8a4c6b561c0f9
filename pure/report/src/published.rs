//! What was found in published numbers.

use crate::prove::phrase::{answer, level, share, signed, size};
use crate::words::{Ink, Style, counted, escape, escape_sentence, glue, three_digits};
use model::{Outcome, Published, PublishedComparison};

/// Comparisons and doubts that are shown; a table has fewer.
const SHOWN: usize = 50;

/// All of it as text: each difference with its verdict, then the caveats.
pub fn text(of: &Published, style: Style) -> String {
    let more = |all: usize, what: &str| match all.saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!("And {more} more{what} (--json has all).\n"),
    };
    let mut out = String::new();
    for one in of.comparisons.iter().take(SHOWN) {
        let word = answer(one.outcome);
        let text = format!("{word}: {}", explained(one, of.margin_share));
        // Painted after wrapping, so that escapes count for no width.
        let text = style.hang("  ", 2, &text);
        out += &style.hang("", 2, &values(one));
        out += &text.replacen(word, &style.paint(Ink::Bold, word), 1);
    }
    out += &more(of.comparisons.len(), " comparisons");
    if !of.doubts.is_empty() {
        out += "\nCaveats:\n";
    }
    let doubts = of.doubts.iter().take(SHOWN);
    out.extend(doubts.map(|doubt| style.item(&escape_sentence(&doubt.words))));
    out + &more(of.doubts.len(), "")
}

/// A difference and its verdict in one line.
pub(crate) fn sentence(one: &PublishedComparison, margin_share: f64) -> String {
    let explained = explained(one, margin_share);
    format!("{}: {}: {explained}", values(one), answer(one.outcome))
}

fn values(one: &PublishedComparison) -> String {
    let of = match one.of.as_str() {
        "" => String::new(),
        of => format!("{}: ", escape(of)),
    };
    let value = |value: f64| glue(format!("{} {}", three_digits(value), one.unit).trim());
    let (control, arm) = (escape(&one.control), escape(&one.arm));
    let [before, after] = [one.control_value, one.arm_value].map(value);
    format!("{of}{control} ({before}) and {arm} ({after})")
}

/// The verdict in a sentence.
fn explained(one: &PublishedComparison, margin_share: f64) -> String {
    let [control, arm] = one.runs;
    let runs = match one.paired {
        true => counted(control.into(), "pair"),
        false => format!("{control} and {} without pairs", counted(arm.into(), "run")),
    };
    let Some(e) = one.estimate.filter(|_| one.outcome != Outcome::NoVerdict) else {
        return unjudged(one);
    };
    let (low, high) = (glue(signed(e.low_share)), glue(signed(e.high_share)));
    match one.outcome {
        Outcome::NoDifference => {
            let margin = glue(share(margin_share));
            format!("within \u{b1}{margin}: {low} to {high} ({runs}).")
        }
        Outcome::NotEnoughData | Outcome::NoVerdict => {
            format!("Anything from {low} to {high} fits {runs}.")
        }
        Outcome::Faster | Outcome::Slower => {
            let faster = one.outcome == Outcome::Faster;
            let (size, level) = (glue(size(e.effect_share.abs())), level(&e));
            format!(
                "{size} {} ({level} CI {low} to {high}; {runs}).",
                if faster { "faster" } else { "slower" }
            )
        }
    }
}

/// What can be said where there is no interval.
fn unjudged(one: &PublishedComparison) -> String {
    let printed = one
        .printed_share
        .map(|p| format!(" (printed {})", glue(signed(p))));
    let printed = printed.unwrap_or_default();
    let change = one.change_share.map(|share| glue(signed(share)));
    let change = change.map(|change| format!("The values differ by {change}{printed}; "));
    let why = match one.runs {
        [0, _] | [_, 0] => "the runs behind them were not published.".to_owned(),
        [1, 1] => "one run a side has no interval.".to_owned(),
        [control, arm] if control.min(arm) < 6 => {
            format!("{control} and {arm} runs are too few for an interval.")
        }
        [control, arm] => format!("the {control} and {arm} values are not judged, see below."),
    };
    change.unwrap_or_default() + &why
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::published;
    use model::Estimate;

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
          FASTER: 12.0 % faster (95 % CI +6.0 % to +19.0 %; 8 and 9 runs without pairs).
        cubic (100 Mbit/s) and bbr (112 Mbit/s)
          EQUIVALENT: within ±5 %: -2.1 % to +3.3 % (20 and 20 runs without pairs).
        cubic (100 Mbit/s) and bbr (112 Mbit/s)
          NOT ENOUGH DATA: Anything from -7.0 % to +15.0 % fits 8 and 8 runs without
          pairs.
        table 1, write: cubic (100 Mbit/s) and bbr (112 Mbit/s)
          NO VERDICT: The values differ by +12.0 % (printed +0.5 %); one run a side has
          no interval.
        cubic (100 Mbit/s) and bbr (112 Mbit/s)
          NO VERDICT: The values differ by +12.0 %; the runs behind them were not
          published.
        cubic (100 Mbit/s) and bbr (112 Mbit/s)
          NO VERDICT: The values differ by +12.0 %; 3 and 3 runs are too few for an
          interval.

        Caveats:
        - The order was not drawn at random, and \u{1b}[2J is no word.
        ");
    }
}

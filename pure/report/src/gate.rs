//! A gate for pipelines: what was expected of a run, or what an experiment proved, as checks that pass or fail; in text,
//! Markdown and JUnit XML.

use crate::page::inert;
use crate::prelude::*;
use crate::prove::phrase;
use crate::words::unmarked;
use model::parse_share;
use serde::Deserialize;
use std::cmp::Ordering;
use std::fmt::{self, Write as _};
use std::str::FromStr;

/// What a check found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CheckState {
    /// As expected, or not proven slower.
    Passed,
    /// The gate is closed.
    Failed,
    /// The experiment gives no answer: this closes no gate.
    Undecided,
}

impl CheckState {
    fn word(self) -> &'static str {
        match self {
            CheckState::Passed => "passed",
            CheckState::Failed => "FAILED",
            CheckState::Undecided => "undecided",
        }
    }
}

/// One line of the gate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateCheck {
    /// What was checked.
    pub name: String,
    /// What came out.
    pub state: CheckState,
    /// The figure, or the verdict with its numbers.
    pub found: String,
}

/// `[up.|down.]FIGURE OPERATOR VALUE`, as `goodput>=900M` or `down.requests.p99<2ms`.
#[derive(Clone, Debug, PartialEq)]
pub struct Expectation {
    text: String,
    direction: Option<String>,
    /// Keys of the summary of a leg.
    figure: Vec<String>,
    /// On which side of the value it has to be, and whether the value itself will do.
    side: Ordering,
    or_equal: bool,
    value: String,
}

impl FromStr for Expectation {
    type Err = String;

    fn from_str(text: &str) -> Result<Expectation, String> {
        let wrong = || {
            format!(
                "'{text}' is no expectation like 'goodput>=900M', 'up.rtt_loaded<20ms' or 'requests.p99<2ms'"
            )
        };
        let at = text.find(['<', '>']).ok_or_else(wrong)?;
        let (name, rest) = text.split_at(at);
        let (sign, rest) = rest.split_at(1);
        let equal = rest.strip_prefix('=');
        let value = equal.unwrap_or(rest).trim().to_owned();
        let mut figure: Vec<String> = name.trim().split('.').map(str::to_owned).collect();
        let direction = ["up", "down"]
            .contains(&figure[0].as_str())
            .then(|| figure.remove(0));
        if value.is_empty() || figure.is_empty() || figure.iter().any(String::is_empty) {
            return Err(wrong());
        }
        Ok(Expectation {
            text: text.trim().to_owned(),
            direction,
            figure,
            side: match sign {
                "<" => Ordering::Less,
                _ => Ordering::Greater,
            },
            or_equal: equal.is_some(),
            value,
        })
    }
}

impl fmt::Display for Expectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The unit of a key of JSON, by its suffix.
#[derive(Clone, Copy)]
enum GateUnit {
    Rate,
    Time,
    Share,
    Number,
}

/// Suffixes of keys, which an expectation leaves out.
const SUFFIXES: [(&str, GateUnit); 5] = [
    ("_bit_s", GateUnit::Rate),
    ("_ns", GateUnit::Time),
    ("_share", GateUnit::Share),
    ("_per_s", GateUnit::Number),
    ("", GateUnit::Number),
];

impl GateUnit {
    fn parse(self, text: &str) -> Result<f64, String> {
        match self {
            GateUnit::Rate => BitRate::from_str(text).map(|rate| rate.0 as f64),
            GateUnit::Time => Nanos::from_str(text).map(|time| time.0 as f64),
            GateUnit::Share => parse_share(text),
            GateUnit::Number => text
                .parse()
                .or_else(|_| Bytes::from_str(text).map(|bytes| bytes.0 as f64)),
        }
    }

    fn print(self, value: f64) -> String {
        match self {
            GateUnit::Rate => BitRate(value as u64).to_string(),
            GateUnit::Time => Nanos(value as u64).to_string(),
            GateUnit::Share => percent(value),
            GateUnit::Number => three_digits(value),
        }
    }
}

impl Expectation {
    /// The figure in the summary of a leg: its unit, and its value where it is known.
    fn figure(&self, leg: &Value) -> Option<(GateUnit, Option<f64>)> {
        let (last, path) = self.figure.split_last()?;
        let mut object = leg;
        for key in path {
            object = object.get(key)?;
            if object.is_null() {
                return Some((GateUnit::Number, None));
            }
        }
        let found =
            |(suffix, unit): (&str, GateUnit)| Some((object.get(format!("{last}{suffix}"))?, unit));
        let (value, unit) = SUFFIXES.into_iter().find_map(found)?;
        match value {
            Value::Null => Some((unit, None)),
            value => Some((unit, Some(value.as_f64()?))),
        }
    }

    /// What it finds in each leg of its direction.
    ///
    /// # Errors
    /// The expectation is of a figure that no leg has, or its value is none of that unit.
    fn judge(&self, legs: &[LegSummary]) -> Result<Vec<GateCheck>, String> {
        let mut checks = Vec::new();
        for leg in legs {
            let direction = leg.direction.to_string();
            if self
                .direction
                .as_ref()
                .is_some_and(|wanted| *wanted != direction)
            {
                continue;
            }
            let json = serde_json::to_value(leg).map_err(|error| error.to_string())?;
            let Some((unit, found)) = self.figure(&json) else {
                return Err(format!(
                    "a run has no figure '{}'; it has {}",
                    self.figure.join("."),
                    names(&json)
                ));
            };
            let passes = match found {
                Some(found) => {
                    let limit = unit.parse(&self.value)?;
                    found.partial_cmp(&limit) == Some(self.side)
                        || (self.or_equal && found == limit)
                }
                None => false,
            };
            checks.push(GateCheck {
                name: match self.direction {
                    Some(_) => self.text.clone(),
                    None => format!("{direction}.{}", self.text),
                },
                state: if passes {
                    CheckState::Passed
                } else {
                    CheckState::Failed
                },
                found: found.map_or_else(|| "not reported".to_owned(), |found| unit.print(found)),
            });
        }
        if checks.is_empty() {
            checks.push(GateCheck {
                name: self.text.clone(),
                state: CheckState::Failed,
                found: "not measured".to_owned(),
            });
        }
        Ok(checks)
    }
}

/// The figures that an expectation can name.
fn names(leg: &Value) -> String {
    let mut names = Vec::new();
    for (key, value) in leg.as_object().into_iter().flatten() {
        let suffix = SUFFIXES.iter().find(|(suffix, _)| key.ends_with(suffix));
        let name = suffix
            .and_then(|(suffix, _)| key.strip_suffix(suffix))
            .unwrap_or(key);
        match value {
            Value::Number(_) | Value::Null => names.push(name.to_owned()),
            Value::Object(of) if of.contains_key("p99_ns") => names.push(format!("{name}.p99")),
            _ => {}
        }
    }
    names.join(", ")
}

/// A run: that it was complete, and what was expected of it.
///
/// # Errors
/// An expectation that cannot be judged, whatever the figures are.
pub fn of_run(
    run: &Run,
    summary: &Summary,
    expected: &[Expectation],
) -> Result<Vec<GateCheck>, String> {
    let mut checks = vec![GateCheck {
        name: "the run is complete".to_owned(),
        state: match run.ended {
            Ended::Complete => CheckState::Passed,
            _ => CheckState::Failed,
        },
        found: match &run.ended {
            Ended::Failed { why } => why.clone(),
            other => other.name().to_owned(),
        },
    }];
    for expectation in expected {
        checks.extend(expectation.judge(&summary.legs)?);
    }
    Ok(checks)
}

/// An experiment: a variant fails that is proven slower than the baseline by more than the margin.
pub fn of_experiment(experiment: &Experiment, verdict: &Verdict) -> Vec<GateCheck> {
    let arm = |arm: u32| experiment.plan.arm_name(arm);
    let compared = verdict.comparisons.iter().map(|c| {
        let name = format!("{} is not slower than {}", arm(c.arm), arm(c.against));
        (name, c.outcome, c.beyond_margin)
    });
    let effects = verdict.effects.iter().map(|e| {
        (
            format!("{} is not slower", e.name),
            e.outcome,
            e.beyond_margin,
        )
    });
    let judged: Vec<_> = compared.chain(effects).collect();
    let answers = phrase::answers(experiment, verdict);
    let of_all = |name| GateCheck {
        name,
        state: CheckState::Undecided,
        found: answers.first().map(ToString::to_string).unwrap_or_default(),
    };
    if verdict.outcome == Outcome::NoVerdict || judged.is_empty() {
        return vec![of_all(
            "the variants are not slower than the baseline".to_owned(),
        )];
    }
    let check =
        |((name, outcome, beyond_margin), answer): ((String, Outcome, bool), &phrase::Answer)| {
            GateCheck {
                name,
                state: match outcome {
                    Outcome::Slower if beyond_margin => CheckState::Failed,
                    Outcome::Slower | Outcome::Faster | Outcome::NoDifference => CheckState::Passed,
                    Outcome::NotEnoughData | Outcome::NoVerdict => CheckState::Undecided,
                },
                found: answer.to_string(),
            }
        };
    judged.into_iter().zip(&answers).map(check).collect()
}

/// True if nothing failed.
pub fn passes(checks: &[GateCheck]) -> bool {
    checks.iter().all(|check| check.state != CheckState::Failed)
}

/// For a terminal.
pub fn text(subject: &str, checks: &[GateCheck], style: Style) -> String {
    let answer = if passes(checks) { "passed" } else { "FAILED" };
    let mut out = style.bold(&format!("{}: {answer}", escape(subject)));
    for check in checks {
        let (state, name) = (check.state.word(), escape(&check.name));
        out += &style.item(&format!("{state}: {name}: {}", check.found));
    }
    out
}

/// For the summary of a job, a ticket or a mail.
pub fn markdown(subject: &str, checks: &[GateCheck]) -> String {
    let answer = if passes(checks) {
        "passed"
    } else {
        "**failed**"
    };
    let mut out = format!(
        "## linerate: {} {answer}\n\n| | check | found |\n|---|---|---|\n",
        unmarked(&escape(subject))
    );
    for check in checks {
        let state = match check.state {
            CheckState::Failed => "**failed**",
            other => other.word(),
        };
        let _ = writeln!(
            out,
            "| {state} | {} | {} |",
            unmarked(&check.name),
            unmarked(&check.found)
        );
    }
    out
}

/// JUnit XML, which pipelines show as tests.
pub fn junit(subject: &str, checks: &[GateCheck]) -> String {
    let count = |state| checks.iter().filter(|check| check.state == state).count();
    let (tests, failures, skipped) = (
        checks.len(),
        count(CheckState::Failed),
        count(CheckState::Undecided),
    );
    let counts =
        format!("tests=\"{tests}\" failures=\"{failures}\" errors=\"0\" skipped=\"{skipped}\"");
    let name = attribute(subject);
    let mut out = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites {counts}>\n<testsuite name=\"linerate {name}\" {counts}>\n"
    );
    for check in checks {
        let (name, found) = (attribute(&check.name), attribute(&check.found));
        let _ = write!(out, "<testcase classname=\"linerate\" name=\"{name}\">");
        out += &match check.state {
            CheckState::Passed => format!("<system-out>{found}</system-out>"),
            CheckState::Failed => format!("<failure message=\"{found}\"/>"),
            CheckState::Undecided => format!("<skipped message=\"{found}\"/>"),
        };
        out += "</testcase>\n";
    }
    out + "</testsuite>\n</testsuites>\n"
}

/// Text for an attribute or an element of XML, without the characters that XML cannot have.
fn attribute(text: &str) -> String {
    let kept = text
        .chars()
        .filter(|c| !matches!(c, '\u{fffe}' | '\u{ffff}'));
    let text: String = kept.map(|c| if c.is_control() { ' ' } else { c }).collect();
    inert(&text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prove::tests::path_of;
    use crate::testing::{self, LAN};
    use model::{Direction, summarise};

    fn checks(expected: &[&str]) -> Result<Vec<GateCheck>, String> {
        let run = testing::run(testing::spec(), vec![testing::leg(Direction::Up, LAN)]);
        let expected: Result<Vec<Expectation>, String> =
            expected.iter().map(|text| text.parse()).collect();
        of_run(&run, &summarise(&run), &expected?)
    }

    #[test]
    fn a_run_is_held_to_what_is_expected() {
        let goodput = |limit: &str| checks(&[&format!("goodput{limit}")]).unwrap()[1].state;
        let run = testing::run(testing::spec(), vec![testing::leg(Direction::Up, LAN)]);
        let exact = summarise(&run).legs[0].goodput.0;
        assert_eq!(goodput(&format!(">={exact}")), CheckState::Passed);
        assert_eq!(goodput(&format!(">{exact}")), CheckState::Failed);
        assert_eq!(goodput(&format!("<={exact}")), CheckState::Passed);
        assert_eq!(goodput(&format!("<{exact}")), CheckState::Failed);
        assert_eq!(goodput(">1M"), CheckState::Passed);
        let all = checks(&["up.retransmit < 1%", "up.duration>1s", "rtt_loaded<10s"]).unwrap();
        assert!(passes(&all), "{all:?}");
        assert_eq!(all[1].name, "up.retransmit < 1%");
        assert_eq!(all[3].name, "up.rtt_loaded<10s");
    }

    #[test]
    fn what_is_not_known_or_was_not_measured_fails() {
        for (expected, found) in [
            ("requests.p99<1s", "not reported"),
            ("down.goodput>1", "not measured"),
        ] {
            let all = checks(&[expected]).unwrap();
            assert_eq!(
                (all[1].state, all[1].found.as_str()),
                (CheckState::Failed, found)
            );
        }
        let mut run = testing::run(testing::spec(), vec![testing::leg(Direction::Up, LAN)]);
        run.ended = Ended::Interrupted;
        assert!(!passes(&of_run(&run, &summarise(&run), &[]).unwrap()));
    }

    #[test]
    fn what_cannot_be_judged_is_an_error() {
        for (expected, why) in [
            ("goodput", "no expectation like"),
            ("goodput>=", "no expectation like"),
            (">=900M", "no expectation like"),
            ("godput>=900M", "no figure 'godput'; it has"),
            ("goodput>=fast", "'fast' is not"),
            ("retransmit<1 apple", "is no share; write per cent"),
        ] {
            let error = checks(&[expected]).unwrap_err();
            assert!(error.contains(why), "{expected}: {error}");
        }
    }

    #[test]
    fn only_what_is_proven_slower_fails() {
        for (factor, spread, state) in [
            (1.3, 0.01, CheckState::Passed),
            (0.7, 0.01, CheckState::Failed),
            (1.0, 0.001, CheckState::Passed),
            (0.98, 0.001, CheckState::Passed),
            (1.0, 0.4, CheckState::Undecided),
        ] {
            let experiment = path_of(factor, spread);
            let all = of_experiment(&experiment, &::prove::judge(&experiment));
            assert_eq!(all[0].state, state, "{factor}, {spread}: {all:?}");
        }
    }

    #[test]
    fn the_forms_escape_what_they_carry() {
        let check = |state| GateCheck {
            name: "a<b>|\"&\u{1b}".to_owned(),
            state,
            found: "]]>&".to_owned(),
        };
        let all = [
            CheckState::Passed,
            CheckState::Failed,
            CheckState::Undecided,
        ]
        .map(check);
        assert!(!passes(&all));
        let xml = junit("x\"y", &all);
        assert!(xml.contains("<testsuite name=\"linerate x&quot;y\" tests=\"3\" failures=\"1\" errors=\"0\" skipped=\"1\">"), "{xml}");
        assert!(
            xml.contains("name=\"a&lt;b&gt;|&quot;&amp; \"><failure message=\"]]&gt;&amp;\"/>"),
            "{xml}"
        );
        assert!(
            markdown("x", &all).contains("| **failed** | a\\<b\\>\\|"),
            "{}",
            markdown("x", &all)
        );
    }
}

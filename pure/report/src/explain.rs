//! Explanations in words: one sentence first, then the shares with what they rest on, what to try, the
//! experiment that decides, and the time line.

use crate::words::{self, Ink, Style, escape, escape_sentence, glue, percent, wrap};
use model::finding::{Conclusion, Decider, Evidence, Explanation, Finding, Level, Limit, Source};
use model::{Clocks, Nanos};
use serde::Serialize;

/// Version of the JSON form.
pub const EXPLAIN_SCHEMA: u32 = 1;
/// Connections that are told in full; the others by their sentence, and beyond [`NAMED`] by number.
const TOLD: usize = 8;
/// Connections that are named.
pub const NAMED: usize = 200;

/// One sentence a connection or group of connections that say the same, for the summary of a run.
/// Those that have nothing to say (innocents) are left out.
pub fn sentences(explanations: &[Explanation], style: Style) -> String {
    let mut groups: Vec<(&Explanation, u32)> = Vec::new();
    for one in explanations {
        match groups.iter_mut().find(|(first, _)| same_answer(first, one)) {
            Some((_, count)) => *count += 1,
            None => groups.push((one, 1)),
        }
    }
    let mut out = String::new();
    for (one, count) in groups {
        if one.conclusion == Conclusion::Innocent {
            continue;
        }
        let all = explanations
            .iter()
            .filter(|e| e.direction == one.direction)
            .count();
        let whose = match one.direction {
            Some(direction) if count as usize == all => direction.to_string(),
            Some(direction) => format!("{direction} ({count} of {all} connections)"),
            None => escape(&one.name),
        };
        out.push_str(&wrap(
            &format!("{whose}: {}", sentence(one)),
            style.width,
            "",
            "      ",
        ));
    }
    out
}

fn same_answer(a: &Explanation, b: &Explanation) -> bool {
    a.direction == b.direction && a.direction.is_some() && a.conclusion == b.conclusion
}

/// The answer in one sentence.
pub fn sentence(of: &Explanation) -> String {
    match &of.conclusion {
        Conclusion::Limited { by } => {
            let share = by
                .first()
                .and_then(|limit| of.finding(*limit))
                .map(|f| format!(" ({} of the time)", glue(percent(f.share.time_share))))
                .unwrap_or_default();
            let names: Vec<&str> = by.iter().map(|l| l.words()).collect();
            match names.as_slice() {
                [one] => format!("limited by {one}{share}."),
                _ if together(of, by) => {
                    format!("limited by {}{share}.", names.join(" and "))
                }
                [all @ .., last] => format!(
                    "limited by {} or {last}{share}: each of them fits, an experiment decides.",
                    all.join(", ")
                ),
                [] => "limited.".to_owned(),
            }
        }
        Conclusion::Innocent => "nothing to mend: the application asked for no more.".to_owned(),
        Conclusion::TooShort => "too short to tell what limits it.".to_owned(),
        Conclusion::Unexplained => {
            "nothing that is known here explains why it is not faster.".to_owned()
        }
    }
}

/// Causes that each own a time of their own, or that belong to each other; not rivals.
fn together(of: &Explanation, by: &[Limit]) -> bool {
    let level = |limit: &Limit| of.finding(*limit).map_or(limit.level(), |f| f.level);
    let first_level = by.iter().filter(|l| level(l) == Level::First).count();
    first_level == by.len()
        || (first_level == 1
            && !by
                .iter()
                .any(|l| of.finding(*l).is_some_and(|f| f.decider.is_some())))
}

/// All of it; of a trace or a capture, what carried most comes first. `host` is what stands in the commands that decide;
/// where none is known, the receiver's address.
pub fn text(explanations: &[Explanation], host: Option<&str>, style: Style) -> String {
    if explanations.is_empty() {
        return "Nothing to explain: no connection of TCP was seen sending data for long enough.\n"
            .to_owned();
    }
    let mut ordered: Vec<&Explanation> = explanations.iter().collect();
    if ordered.iter().all(|one| one.direction.is_none()) {
        ordered.sort_by_key(|one| std::cmp::Reverse(one.bytes));
    }
    let mut out = String::new();
    for (n, one) in ordered.into_iter().enumerate().take(NAMED) {
        if n > 0 && n < TOLD {
            out.push('\n');
        }
        out.push_str(&head(one, style));
        if n < TOLD {
            out.push_str(&connection(one, host, style));
        }
    }
    if explanations.len() > NAMED {
        let more = explanations.len() - NAMED;
        out.push_str(&format!("And {more} more connections (--json has all).\n"));
    }
    out
}

fn head(one: &Explanation, style: Style) -> String {
    let name = escape(&one.name);
    // Traces and captures name a connection by its ends already.
    let ends = match (one.sender, one.receiver) {
        (Some(from), Some(to)) => Some(format!("{from} to {to}")).filter(|ends| *ends != name),
        _ => None,
    };
    let ends = ends.map_or(String::new(), |ends| format!(", {ends}"));
    let rate = one.bytes.per(one.span);
    let line = format!(
        "{name}{ends}: {} in {}, {}",
        glue(one.bytes),
        glue(one.span),
        glue(rate)
    );
    let lines = wrap(&capital(sentence(one)), style.width, "  ", "  ");
    let bold: Vec<String> = lines
        .lines()
        .map(|line| format!("{}\n", style.paint(Ink::Bold, line)))
        .collect();
    wrap(&line, style.width, "", "  ") + &bold.concat()
}

/// As a sentence begins.
fn capital(mut sentence: String) -> String {
    if let Some(first) = sentence.get_mut(0..1) {
        first.make_ascii_uppercase();
    }
    sentence
}

fn connection(one: &Explanation, host: Option<&str>, style: Style) -> String {
    let mut out = String::new();
    let shares: Vec<Vec<String>> = ranked(one)
        .map(|f| {
            vec![
                String::new(),
                percent(f.share.time_share),
                f.share.bytes.to_string(),
                f.limit.words().to_owned(),
            ]
        })
        .collect();
    if !shares.is_empty() {
        out.push('\n');
        out.push_str(&words::table(&shares));
    }
    let causes: &[Limit] = match &one.conclusion {
        Conclusion::Limited { by } => by,
        _ => &[],
    };
    let told = one
        .findings
        .iter()
        .filter(|f| causes.contains(&f.limit) || (causes.is_empty() && f.share.time_share >= 0.25));
    let mut deciders: Vec<&Decider> = Vec::new();
    for finding in told {
        out.push('\n');
        out.push_str(&self::finding(finding, style));
        deciders.extend(finding.decider.as_ref());
    }
    deciders.dedup_by(|a, b| a.change == b.change);
    for decider in deciders {
        out.push('\n');
        out.push_str(&decision(decider, one, host, style));
    }
    if !one.ends.is_empty() {
        out.push('\n');
        out.push_str(match one.source {
            Source::TraceOfBothEnds => "  Both ends together\n",
            Source::CapturesAtTwoPlaces => "  Both captures together\n",
            _ => "  From the trace at the receiver\n",
        });
        evidence(&one.ends, style, &mut out);
    }
    if !one.phases.is_empty() {
        out.push('\n');
        out.push_str(&time_line(one, style));
    }
    for doubt in one
        .doubts
        .iter()
        .map(String::as_str)
        .chain(source(one.source))
    {
        let doubt = capital(escape_sentence(doubt));
        out.push_str(&wrap(&doubt, style.width, "! ", "  "));
    }
    out
}

/// The first level by falling share.
fn ranked(one: &Explanation) -> impl Iterator<Item = &Finding> {
    let mut first: Vec<&Finding> = one
        .findings
        .iter()
        .filter(|f| f.level == Level::First)
        .collect();
    first.sort_by_key(|f| std::cmp::Reverse(f.share.time));
    first.into_iter()
}

/// The command of the experiment, and what each outcome tells.
fn decision(decider: &Decider, one: &Explanation, host: Option<&str>, style: Style) -> String {
    let (direction, receiver) = (one.direction, one.receiver);
    let way = direction.map_or_else(String::new, |d| format!(" --direction {d}"));
    let host = match (host, receiver) {
        (Some(host), _) => escape(host),
        (None, Some(receiver)) => receiver.ip().to_string(),
        (None, None) => "HOST".to_owned(),
    };
    let change = escape(&decider.change);
    // Never broken: it is there to be copied.
    format!("  To decide: linerate prove {host} --change {change}{way}\n")
        + &wrap(
            &escape_sentence(&decider.tells),
            style.width,
            "    ",
            "    ",
        )
}

fn finding(finding: &Finding, style: Style) -> String {
    let confidence = finding.confidence.name();
    let mut out = wrap(
        &format!("{} ({confidence})", finding.limit.words()),
        style.width,
        "  ",
        "  ",
    );
    if finding.level == Level::First {
        let share = percent(finding.share.time_share);
        let line = format!(
            "limited the transfer for {} of the time, {}",
            glue(share),
            glue(finding.share.bytes)
        );
        out.push_str(&wrap(&line, style.width, "    ", "      "));
    }
    evidence(&finding.evidence, style, &mut out);
    for remedy in &finding.remedies {
        let change = remedy
            .change
            .as_ref()
            .map(|c| format!(" ({})", glue(escape(c))));
        let line = format!(
            "{}{}",
            escape_sentence(&remedy.words),
            change.unwrap_or_default()
        );
        out.push_str(&wrap(&line, style.width, "    Try: ", "         "));
    }
    out
}

/// Facts, a line each.
fn evidence(facts: &[Evidence], style: Style, out: &mut String) {
    for fact in facts {
        let line = crate::evidence::line(fact);
        out.push_str(&wrap(&line, style.width, "    ", "      "));
    }
}

fn source(source: Source) -> Option<&'static str> {
    match source {
        Source::Samples | Source::Trace | Source::TraceOfBothEnds => None,
        Source::TraceAtReceiver => {
            Some("From a trace at the receiver: what the sender's socket waited for is inferred.")
        }
        Source::CapturesAtTwoPlaces => {
            Some("From captures at two places: what the sockets waited for is inferred.")
        }
        Source::Listing => {
            Some("From printed lines: what the socket waited for is inferred from its windows.")
        }
        Source::PacketsAndSamples => Some(
            "From packets and samples of the sender's socket: its state between them is inferred.",
        ),
        Source::CaptureAtSender => {
            Some("From a capture at the sender: what its socket waited for is inferred.")
        }
        Source::CaptureAtReceiver => Some(
            "From a capture at the receiver: what the sender saw is inferred, half a round trip late.",
        ),
        Source::CaptureSomewhere => {
            Some("From a capture, and where it stood is not known: what both ends saw is inferred.")
        }
        Source::CaptureBetween => Some(
            "From a capture between the hosts: what both ends saw is inferred from the round trips to each.",
        ),
    }
}

/// A row of letters, one a limit, with their meaning below.
fn time_line(one: &Explanation, style: Style) -> String {
    let end = one.phases.last().map_or(Nanos(0), |p| p.to);
    let room = usize::from(style.width.clamp(24, 80)) - 4;
    let mut row = String::new();
    let mut seen: Vec<Limit> = Vec::new();
    for column in 0..room as u64 {
        let middle = (u128::from(end.0) * u128::from(2 * column + 1)) / (2 * room as u128);
        let middle = Nanos(u64::try_from(middle).unwrap_or(u64::MAX));
        match one
            .phases
            .iter()
            .find(|p| p.from <= middle && middle < p.to)
        {
            Some(phase) => {
                if !seen.contains(&phase.limit) {
                    seen.push(phase.limit);
                }
                row.extend(phase.limit.letter());
            }
            None => row.push(' '),
        }
    }
    let legend: Vec<String> = seen
        .iter()
        .filter_map(|l| Some(glue(format!("{} {}", l.letter()?, l.words()))))
        .collect();
    let scale = format!("0 to {}: ", glue(end));
    format!("  {row}\n") + &wrap(&(scale + &legend.join(", ")), style.width, "  ", "  ")
}

/// All of it as a JSON document.
pub fn json(explanations: &[Explanation], clocks: Option<&Clocks>) -> String {
    crate::json::pretty(&Document::of(explanations, clocks))
}

/// How the clocks of two captures or traces are related.
pub fn clocks(clocks: &Clocks, style: Style) -> String {
    let line = format!(
        "Clocks, by {} packets that passed both places: offset {} us, drift {:.1} ppm, within {}; changes of one-way delays are within {}.",
        clocks.matched,
        clocks.offset_ns / 1000,
        clocks.drift_ppm,
        glue(clocks.error),
        glue(clocks.residual)
    );
    wrap(&line, style.width, "", "")
}

/// The same on a line of its own.
pub fn json_line(explanations: &[Explanation]) -> String {
    crate::json::compact(&Document::of(explanations, None))
}

#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    /// How the clocks of two captures or traces are related.
    #[serde(skip_serializing_if = "Option::is_none")]
    clocks: Option<&'a Clocks>,
    explanations: &'a [Explanation],
}

impl<'a> Document<'a> {
    fn of(explanations: &'a [Explanation], clocks: Option<&'a Clocks>) -> Document<'a> {
        Document {
            schema: EXPLAIN_SCHEMA,
            clocks,
            explanations,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use insta::assert_snapshot;
    use model::{Bytes, Direction};

    #[test]
    fn what_carried_most_comes_first() {
        let of = |name: &str, bytes| Explanation {
            name: name.to_owned(),
            bytes,
            direction: None,
            ..testing::rivals()
        };
        let all = [of("small", Bytes(9)), of("large", Bytes(1 << 30))];
        let text = text(&all, None, Style::PLAIN);
        assert!(text.starts_with("large"), "{text}");
        assert!(text.contains("\nsmall"), "{text}");
    }

    #[test]
    fn rivals_with_the_experiment_that_decides() {
        assert_snapshot!(text(&[testing::rivals()], Some("db1"), Style::PLAIN), @r"
        up, 192.0.2.1:40000 to 192.0.2.2:5210: 54.0 MiB in 10.0 s, 45.3 Mbit/s
          Limited by random loss or burst loss in a shallow buffer (98 % of the time):
          each of them fits, an experiment decides.

          73 %  40.0 MiB  the congestion window
          25 %  12.0 MiB  loss recovery

          random loss (possible)
            retransmitted segments: 160 of 39,000 (0.41 %), at 1.20 s
            RTT by the shortest, at losses: 1.02 (<= 1.30: no queue had filled)
            Try: a congestion control that does not take every loss for congestion
                 (congestion=bbr)

          burst loss in a shallow buffer (possible)
            retransmitted segments: 160 of 39,000 (0.41 %), at 1.20 s
            RTT by the shortest, at losses: 1.02 (<= 1.30: no queue had filled)
            Try: a congestion control that does not take every loss for congestion
                 (congestion=bbr)

          To decide: linerate prove db1 --change pacing=90000000 --direction up
            bursts that overflow a buffer stop being lost when paced; random loss stays

          ss============================================rrrrrrrrrrrrrrrrrrr===========
          0 to 10.0 s: s slow start, = the congestion window, r loss recovery
        ! Samples 1.00 s apart: what happened between them is inferred
        ");
    }

    #[test]
    fn one_sentence_a_group() {
        let mut other = testing::rivals();
        other.name = "up stream 1".to_owned();
        let innocent = Explanation {
            conclusion: Conclusion::Innocent,
            direction: Some(Direction::Down),
            ..testing::rivals()
        };
        let short = Explanation {
            conclusion: Conclusion::TooShort,
            ..testing::rivals()
        };
        let all = [testing::rivals(), other, short, innocent];
        assert_snapshot!(sentences(&all, Style::PLAIN), @r"
        up (2 of 3 connections): limited by random loss or burst loss in a shallow
              buffer (98 % of the time): each of them fits, an experiment decides.
        up (1 of 3 connections): too short to tell what limits it.
        ");
    }

    #[test]
    fn names_of_strangers_are_inert() {
        let mut evil = testing::rivals();
        evil.name = "\u{1b}[2Jx".to_owned();
        evil.doubts = vec!["\u{9b}2J".to_owned()];
        evil.findings[0].evidence[0].subject = Some("\u{202e}".to_owned());
        let shown = text(&[evil], Some("\u{1b}]0;"), Style::PLAIN);
        assert!(
            shown
                .chars()
                .all(|c| c == '\n' || !words::is_unprintable(c)),
            "{shown}"
        );
    }
}

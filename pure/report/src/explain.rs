//! Explanations in words: one sentence first, then the shares with their evidence, what to try, the
//! experiment that decides, and the time line.

use crate::json::compact;
use crate::prelude::*;
use crate::prove::answer;
use model::Clocks;
use model::finding::{Conclusion, Decider, Evidence, Finding, Level, Limit, Remedy, Source};

/// Version of the JSON form.
pub const EXPLAIN_SCHEMA: u32 = 1;
/// Connections that are shown in full; the others by their sentence, and beyond [`NAMED`] by number.
pub(crate) const FULL: usize = 8;
/// Connections that are named.
pub const NAMED: usize = 200;

/// One sentence a connection or group of connections of which the same holds, for the summary of a run.
/// Those that nothing limited are left out.
pub fn sentences(explanations: &[Explanation], style: Style) -> String {
    let mut groups: Vec<Vec<&Explanation>> = Vec::new();
    for one in explanations {
        match groups.iter_mut().find(|group| same_answer(group[0], one)) {
            Some(group) => group.push(one),
            None => groups.push(vec![one]),
        }
    }
    groups.retain(|group| group[0].conclusion != Conclusion::Innocent);
    let line = |group: Vec<&Explanation>| {
        let (one, count) = (group[0], group.len());
        let all = explanations.iter().filter(|e| e.direction == one.direction);
        let whose = match (one.direction, all.count()) {
            (Some(direction), all) if count == all => direction.to_string(),
            (Some(direction), all) => format!("{direction} ({count} of {all} connections)"),
            (None, _) => escape(&one.name),
        };
        style.hang("", 6, &format!("{whose}: {}", sentence_of(&group)))
    };
    groups.into_iter().map(line).collect()
}

fn same_answer(a: &Explanation, b: &Explanation) -> bool {
    a.direction == b.direction && a.direction.is_some() && a.conclusion == b.conclusion
}

/// The answer in one sentence, with its confidence.
pub fn sentence(of: &Explanation) -> String {
    sentence_of(&[of])
}

/// The same of connections with one conclusion: the least of their confidences, and the range of their shares.
fn sentence_of(group: &[&Explanation]) -> String {
    let of = group[0];
    let by = match &of.conclusion {
        Conclusion::Limited { by } => by,
        Conclusion::Innocent => {
            let confidence = group.iter().filter_map(|one| one.confidence()).min();
            let confidence = confidence.map(|found| format!(" ({})", found.name()));
            let confidence = confidence.unwrap_or_default();
            return format!("nothing to fix: the application asked for no more{confidence}.");
        }
        Conclusion::TooShort => return "not known: the transfer is too short.".into(),
        Conclusion::Unexplained => {
            return "not known: none of the limits that are looked for explains it.".into();
        }
    };
    // Timeouts are no rival of what limits the rest of the time.
    let (stalls, others): (Vec<Limit>, Vec<Limit>) =
        by.iter().partition(|limit| **limit == Limit::RtoStall);
    let mut parts = vec![others, stalls];
    parts.retain(|part| !part.is_empty());
    if parts.len() > 1 && (by[0] == Limit::RtoStall || parts[0].len() > 1) {
        parts.reverse();
    }
    let last = parts.last().is_some_and(|part| is_open(of, part));
    let parts: Vec<String> = parts.iter().map(|part| some(group, part)).collect();
    let open = match last {
        true => ": each of them fits, an experiment decides.",
        false => ".",
    };
    match parts.is_empty() {
        true => "limited.".to_owned(),
        false => format!("limited by {}{open}", parts.join(" and by ")),
    }
}

/// Some of the causes that the answer names, with their confidence and share.
fn some(group: &[&Explanation], limits: &[Limit]) -> String {
    let findings = || {
        let all = group.iter().flat_map(|one| causes(one));
        all.filter(|f| limits.contains(&f.limit))
    };
    let confidence = findings().map(|f| f.confidence).min();
    let mut shares: Vec<f64> = findings().map(time_share).collect();
    shares.sort_by(f64::total_cmp);
    let share = shares.first().zip(shares.last()).map(|(least, most)| {
        let [least, most] = [least, most].map(|share| glue(percent(*share)));
        match least == most {
            true => format!("{most} of the time"),
            false => format!("{least} to {most} of the time"),
        }
    });
    // What had more of the time than any cause and is none, as the pauses of an exchange that waits for itself.
    let most = group.iter().flat_map(|one| causes(one)).map(time_share);
    let most = most.fold(0.0, f64::max);
    let more = group.iter().flat_map(|one| &one.findings);
    let more =
        more.filter(|f| f.level == Level::First && causes(group[0]).all(|c| c.limit != f.limit));
    let more = more.max_by(|a, b| time_share(a).total_cmp(&time_share(b)));
    let more = more.filter(|f| time_share(f) > most).map(|f| {
        let share = glue(percent(time_share(f)));
        format!("beside it {} {share}", f.limit.words())
    });
    let how = [confidence.map(|found| found.name().to_owned()), share, more];
    let how = match &how.into_iter().flatten().collect::<Vec<_>>()[..] {
        [] => String::new(),
        how => format!(" ({})", how.join(", ")),
    };
    let names: Vec<&str> = limits.iter().map(|l| l.words()).collect();
    match names.as_slice() {
        [all @ .., last] if is_open(group[0], limits) => {
            format!("{} or {last}{how}", all.join(", "))
        }
        names => format!("{}{how}", names.join(" and ")),
    }
}

/// Several of these fit, and one of them is the cause.
fn is_open(of: &Explanation, limits: &[Limit]) -> bool {
    limits.len() > 1 && !together(of, limits)
}

/// The findings of the causes that the answer names, in its order.
fn causes(of: &Explanation) -> impl Iterator<Item = &Finding> {
    let by = match &of.conclusion {
        Conclusion::Limited { by } => &by[..],
        _ => &[],
    };
    by.iter().filter_map(|limit| of.finding(*limit))
}

fn time_share(finding: &Finding) -> f64 {
    finding.share.time_share
}

/// The causes of the answer with the shares that it has in the headline, then what the sender waited for.
pub(crate) fn shares(of: &Explanation) -> Table {
    let mut first: Vec<&Finding> = of.findings.iter().collect();
    first.retain(|f| f.level == Level::First);
    first.sort_by_key(|f| std::cmp::Reverse(f.share.time));
    let behind = causes(of).filter(|f| f.level == Level::Second);
    let rows = behind.chain(first).map(|f| {
        let kind = match f.level {
            Level::First => "",
            Level::Second => " (cause)",
        };
        vec![
            percent(f.share.time_share),
            f.share.bytes.to_string(),
            format!("{}{kind}", f.limit.words()),
        ]
    });
    Table::new(&["time", "bytes", "limit"], rows)
}

/// Causes that each took a time of their own, or that belong to each other; not rivals.
fn together(of: &Explanation, by: &[Limit]) -> bool {
    let level = |limit: &Limit| of.finding(*limit).map_or(limit.level(), |f| f.level);
    by.iter().all(|limit| level(limit) == Level::First) || by.first() == Some(&Limit::Nagle)
}

/// What a run of datagrams shows: where they were lost. No limit of TCP applies to them.
pub fn datagrams(run: &Run, style: Style) -> String {
    let legs = model::summarise(run).legs;
    let legs = legs.iter().map(|leg| {
        let all = leg.datagrams.unwrap_or_default();
        let share = all.lost_share().map_or("no".to_owned(), percent);
        let at = match leg.arrivals {
            None => "; the receiver does not report where".to_owned(),
            Some(_) if all.lost == 0 => String::new(),
            Some(found) => format!(
                ": {} on the path, at most {} dropped by the receiving socket, whose buffer was full",
                grouped(found.lost_on_path),
                grouped(found.dropped)
            ),
        };
        let sentence = format!(
            "{}: {share} of {} datagrams were lost{at}.",
            leg.direction,
            grouped(all.packets)
        );
        style.prose(&sentence)
    });
    let sentences: String = legs.collect();
    let rest = "Limits of TCP do not apply: datagrams have no window, and are not retransmitted.";
    sentences + &style.prose(rest)
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
        if n > 0 && n < FULL {
            out.push('\n');
        }
        out += &head(one, style);
        if n < FULL {
            out += &connection(one, host, style);
        }
    }
    if explanations.len() > NAMED {
        let more = explanations.len() - NAMED;
        out += &format!("And {more} more (--json has all).\n");
    }
    out
}

fn head(one: &Explanation, style: Style) -> String {
    let name = escape(&one.name);
    let ends = one.sender.zip(one.receiver);
    // Traces and captures name a connection by its ends already.
    let ends = ends
        .map(|(from, to)| format!("{from} to {to}"))
        .filter(|ends| *ends != name);
    let ends = ends.map(|ends| format!(", {ends}")).unwrap_or_default();
    let (bytes, span) = (glue(one.bytes), glue(one.span));
    let rate = glue(one.bytes.per(one.span));
    let line = style.hang("", 2, &format!("{name}{ends}: {bytes} in {span}, {rate}"));
    line + &style.paint_lines(Ink::Bold, &style.hang("  ", 2, &capital(sentence(one))))
}

/// As a sentence begins.
fn capital(mut sentence: String) -> String {
    if let Some(first) = sentence.get_mut(0..1) {
        first.make_ascii_uppercase();
    }
    sentence
}

fn connection(one: &Explanation, host: Option<&str>, style: Style) -> String {
    let mut parts: Vec<String> = Vec::new();
    let shares = shares(one);
    if !shares.rows.is_empty() {
        let lines = shares.to_string();
        parts.push(lines.lines().map(|line| format!("  {line}\n")).collect());
    }
    parts.extend(shown(one).map(|f| finding(f, style)));
    parts.extend(deciders(one).map(|d| decision(d, one, host, style)));
    if !one.ends.is_empty() {
        parts.push(format!("  {}\n{}", whose(one), evidence(&one.ends, style)));
    }
    if !one.phases.is_empty() {
        parts.push(time_line(one, style));
    }
    let parts = parts.into_iter().map(|part| format!("\n{part}"));
    let doubts = doubts(one).map(|doubt| style.hang("! ", 2, &doubt));
    parts.chain(doubts).collect()
}

/// The findings that are shown with their evidence: the causes, or without one those with a quarter of the time.
fn shown(one: &Explanation) -> impl Iterator<Item = &Finding> {
    let has_cause = one.cause().is_some();
    let large = one.findings.iter();
    let large = large.filter(move |f| !has_cause && f.share.time_share >= 0.25);
    causes(one).chain(large)
}

fn deciders(one: &Explanation) -> impl Iterator<Item = &Decider> {
    let mut all: Vec<&Decider> = shown(one).filter_map(|f| f.decider.as_ref()).collect();
    all.dedup_by(|a, b| a.change == b.change);
    all.into_iter()
}

/// Where what both ends show comes from.
fn whose(one: &Explanation) -> &'static str {
    match one.source {
        Source::TraceOfBothEnds => "Both ends together",
        Source::CapturesAtTwoPlaces => "Both captures together",
        _ => "From the trace at the receiver",
    }
}

/// Caveats, a sentence each.
fn doubts(one: &Explanation) -> impl Iterator<Item = String> {
    let doubts = one.doubts.iter().map(String::as_str);
    let doubts = doubts.chain(source(one.source));
    doubts.map(|doubt| capital(escape_sentence(doubt)))
}

/// All of one connection, as a part of a page.
pub(crate) fn section(heading: String, one: &Explanation, host: Option<&str>) -> Section {
    let facts = shown(one).flat_map(|f| {
        let name = format!("{} ({})", f.limit.words(), f.confidence.name());
        let against = f.against.iter();
        let against = against.map(|fact| format!("against it: {}", crate::evidence::line(fact)));
        let facts = f.evidence.iter().map(crate::evidence::line).chain(against);
        named(name, facts.collect())
    });
    let both = one.ends.iter().map(crate::evidence::line).collect();
    let facts = facts.chain(named(whose(one).to_owned(), both));
    let remedies = shown(one).flat_map(|f| {
        let remedies = f.remedies.iter().map(remedy_words);
        named(f.limit.words().to_owned(), remedies.collect())
    });
    let decisions = deciders(one).map(|d| decision(d, one, host, Style::WIDE));
    Section::new(heading)
        .words(doubts(one).collect())
        .tables([
            shares(one),
            Table::new(&["finding", "evidence"], facts),
            Table::new(&["finding", "what to try"], remedies),
        ])
        .listing(decisions.collect())
        .folded(true)
}

/// Rows under a name that stands in the first of them.
pub(crate) fn named(name: String, lines: Vec<String>) -> impl Iterator<Item = Vec<String>> {
    let names = std::iter::once(name).chain(std::iter::repeat(String::new()));
    names.zip(lines).map(|(name, line)| vec![name, line])
}

fn remedy_words(remedy: &Remedy) -> String {
    let change = remedy.change.as_ref();
    let change = change.map(|c| format!(" ({})", glue(escape(c))));
    escape_sentence(&remedy.words) + &change.unwrap_or_default()
}

/// The command of the experiment, and the causes that each outcome leaves.
fn decision(decider: &Decider, one: &Explanation, host: Option<&str>, style: Style) -> String {
    let way = one.direction.map(|d| format!(" --direction {d}"));
    let host = match (host, one.receiver) {
        (Some(host), _) => escape(host),
        (None, Some(receiver)) => receiver.ip().to_string(),
        (None, None) => "HOST".to_owned(),
    };
    let (change, way) = (escape(&decider.change), way.unwrap_or_default());
    // Never broken: it is there to be copied.
    let margin = decider.margin * 100.0;
    let command = format!(
        "  To decide: linerate prove {host} --change {change} --margin {margin:.0}%{way}\n"
    );
    let meaning = |outcomes: String, leaves: &[Limit]| {
        let names: Vec<&str> = leaves.iter().map(|l| l.words()).collect();
        let causes = match names.is_empty() {
            true => "none of these".to_owned(),
            false => names.join(" or "),
        };
        style.hang("    ", 6, &format!("{outcomes}: {causes}"))
    };
    let [faster, slower] = [Outcome::Faster, Outcome::Slower].map(answer);
    // By how much it is faster, if at all, may matter or not.
    let others = match decider.faster == decider.no_difference {
        true => meaning(format!("within the margin or {faster}"), &decider.faster),
        false => {
            meaning(format!("{faster} beyond the margin"), &decider.faster)
                + &meaning("within the margin".to_owned(), &decider.no_difference)
        }
    };
    let slower = meaning(format!("{slower} beyond the margin"), &decider.slower);
    command + &others + &slower
}

fn finding(finding: &Finding, style: Style) -> String {
    let (name, confidence) = (finding.limit.words(), finding.confidence.name());
    let mut out = style.hang("  ", 2, &format!("{name} ({confidence})"));
    if finding.level == Level::First {
        let share = glue(percent(finding.share.time_share));
        let bytes = glue(finding.share.bytes);
        let line = format!("limited the transfer for {share} of the time, {bytes}");
        out += &style.hang("    ", 6, &line);
    }
    out += &evidence(&finding.evidence, style);
    if let Some(fact) = &finding.against {
        let line = format!("Against it: {}", crate::evidence::line(fact));
        out += &style.hang("    ", 6, &line);
    }
    for remedy in &finding.remedies {
        out += &style.hang("    Try: ", 9, &remedy_words(remedy));
    }
    out
}

/// Facts, a line each.
fn evidence(facts: &[Evidence], style: Style) -> String {
    let lines = facts.iter().map(crate::evidence::line);
    lines.map(|line| style.hang("    ", 6, &line)).collect()
}

fn source(source: Source) -> Option<&'static str> {
    Some(match source {
        Source::Samples | Source::Trace | Source::TraceOfBothEnds => return None,
        Source::TraceAtReceiver => {
            "From a trace at the receiver: what the sender's socket waited for is inferred."
        }
        Source::CapturesAtTwoPlaces => {
            "From captures at two places: what the sockets waited for is inferred."
        }
        Source::Listing => {
            "From printed lines: what the socket waited for is inferred from its windows."
        }
        Source::PacketsAndSamples => {
            "From packets and samples of the sender's socket: its state between them is inferred."
        }
        Source::CaptureAtSender => {
            "From a capture at the sender: what its socket waited for is inferred."
        }
        Source::CaptureAtReceiver => {
            "From a capture at the receiver: what the sender saw is inferred, half a round trip late."
        }
        Source::CaptureSomewhere => {
            "From a capture, and where it stood is not known: what both ends saw is inferred."
        }
        Source::CaptureBetween => {
            "From a capture between the hosts: what both ends saw is inferred from the round trips to each."
        }
    })
}

/// A row of letters, one a limit, with their meaning below.
fn time_line(one: &Explanation, style: Style) -> String {
    let end = one.phases.last().map_or(Nanos(0), |p| p.to);
    let room = u64::from(style.width.clamp(24, 80)) - 4;
    let mut row = String::new();
    let mut seen: Vec<Limit> = Vec::new();
    for column in 0..room {
        let middle = u128::from(end.0) * u128::from(2 * column + 1) / u128::from(2 * room);
        let middle = Nanos(u64::try_from(middle).unwrap_or(u64::MAX));
        let mut phases = one.phases.iter();
        let phase = phases.find(|p| p.from <= middle && middle < p.to);
        let limit = phase.map(|p| p.limit);
        row.extend(limit.map_or(Some(' '), Limit::letter));
        seen.extend(limit.filter(|limit| !seen.contains(limit)));
    }
    let legend = seen.iter();
    let legend = legend.filter_map(|l| Some(glue(format!("{} {}", l.letter()?, l.words()))));
    let legend = legend.collect::<Vec<_>>().join(", ");
    format!("  {row}\n") + &style.hang("  ", 2, &format!("0 to {}: {legend}", glue(end)))
}

/// How the clocks of two captures or traces are related.
pub fn clocks(clocks: &Clocks, style: Style) -> String {
    let ahead = |ns: i64| {
        (
            Nanos(ns.unsigned_abs()),
            ["ahead", "behind"][usize::from(ns < 0)],
        )
    };
    let offset = match clocks.ahead_ns.map(ahead) {
        Some((time, side)) => format!("the second is {} {side}", glue(time)),
        None => format!("offset {} us from both beginnings", clocks.offset_ns / 1000),
    };
    style.prose(&format!(
        "Clocks, by {} at both places: {offset}, drift {:.1} ppm, within {}; changes of one-way delays are within {}.",
        counted(clocks.matched, "packet"),
        clocks.drift_ppm,
        glue(clocks.error),
        glue(clocks.residual)
    ))
}

/// All of it as a JSON document, with how the clocks of two captures or traces are related.
pub fn json(explanations: &[Explanation], clocks: Option<&Clocks>) -> String {
    let schema = EXPLAIN_SCHEMA;
    match clocks {
        Some(clocks) => pretty(&document!(schema, clocks, explanations)),
        None => pretty(&document!(schema, explanations)),
    }
}

/// The same on a line of its own.
pub fn json_line(explanations: &[Explanation]) -> String {
    let schema = EXPLAIN_SCHEMA;
    compact(&document!(schema, explanations))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use insta::assert_snapshot;
    use model::{Bytes, Direction};
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;
    use std::collections::BTreeMap;

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
          Limited by random loss or burst loss in a shallow buffer (possible, 98 % of
          the time): each of them fits, an experiment decides.

          time  bytes     limit
          98 %  52.0 MiB  random loss (cause)
          98 %  52.0 MiB  burst loss in a shallow buffer (cause)
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

          To decide: linerate prove db1 --change pacing=90000000 --margin 5% --direction up
            FASTER beyond the margin: burst loss in a shallow buffer
            within the margin: random loss
            SLOWER beyond the margin: random loss

          ss============================================rrrrrrrrrrrrrrrrrrr===========
          0 to 10.0 s: s slow start, = the congestion window, r loss recovery
        ! Samples 1.00 s apart: what happened between them is inferred
        ");
    }

    fn shown_shares(one: &Explanation) -> Vec<f64> {
        let in_table =
            |f: &&Finding| f.level == Level::First || causes(one).any(|cause| cause == *f);
        one.findings
            .iter()
            .filter(in_table)
            .map(time_share)
            .collect()
    }

    proptest! {
        #[test]
        fn the_shares_of_a_headline_stand_in_the_tables(
            by in vec(select(Limit::ALL), 1..4),
            group in vec(vec((select(Limit::ALL), any::<bool>(), 0..=1000_u32), 0..6), 1..4),
        ) {
            let like = testing::rivals().findings.remove(0);
            let finding = |(limit, first, per_mille): (Limit, bool, u32)| {
                let mut one = like.clone();
                one.limit = limit;
                one.level = if first { Level::First } else { Level::Second };
                one.share.time_share = f64::from(per_mille) / 1000.0;
                one
            };
            let group = group.into_iter().map(|findings| Explanation {
                conclusion: Conclusion::Limited { by: by.clone() },
                // Each limit is found once.
                findings: findings
                    .into_iter()
                    .map(|one| (one.0, one))
                    .collect::<BTreeMap<_, _>>()
                    .into_values()
                    .map(finding)
                    .collect(),
                ..testing::rivals()
            });
            let group: Vec<Explanation> = group.collect();
            let headline = sentence_of(&group.iter().collect::<Vec<_>>());
            let rows = group.iter().flat_map(|one| shares(one).rows);
            let rows: Vec<String> = rows.map(|row| glue(&row[0])).collect();
            // In the headline nothing else is a number.
            let words = headline.split([' ', '(', ',', ')']).collect::<Vec<_>>();
            let named: Vec<&str> = words.into_iter().filter(|word| word.contains('%')).collect();
            for share in &named {
                prop_assert!(rows.iter().any(|row| row == share), "{headline}: {rows:?}");
            }
            // Nor has any row more than the headline has.
            let largest = group.iter().flat_map(shown_shares).max_by(f64::total_cmp);
            if let Some(largest) = largest.filter(|_| !named.is_empty()) {
                prop_assert!(named.contains(&&*glue(percent(largest))), "{headline}: {rows:?}");
            }
        }
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
              buffer (possible, 98 % of the time): each of them fits, an experiment
              decides.
        up (1 of 3 connections): not known: the transfer is too short.
        ");
    }

    #[test]
    fn the_headline_has_the_confidence_of_the_least_certain_cause() {
        let mut one = testing::rivals();
        one.conclusion = Conclusion::Limited {
            by: vec![Limit::RandomLoss],
        };
        for confidence in model::finding::Confidence::ALL {
            for finding in &mut one.findings {
                finding.confidence = confidence;
            }
            let wanted = format!("limited by random loss ({confidence}, 98\u{a0}% of the time).");
            assert_eq!(sentence(&one), wanted);
        }
        for conclusion in [Conclusion::TooShort, Conclusion::Unexplained] {
            one.conclusion = conclusion;
            assert!(sentence(&one).starts_with("not known: "));
        }
    }

    #[test]
    fn names_of_others_are_inert() {
        let mut evil = testing::rivals();
        evil.name = "\u{1b}[2Jx".to_owned();
        evil.doubts = vec!["\u{9b}2J".to_owned()];
        evil.findings[0].evidence[0].subject = Some("\u{202e}".to_owned());
        let shown = text(&[evil], Some("\u{1b}]0;"), Style::PLAIN);
        assert!(
            shown
                .chars()
                .all(|c| c == '\n' || !crate::words::is_unprintable(c)),
            "{shown}"
        );
    }
}

//! From owned pieces of time and the facts to an explanation.

use crate::contradiction;
use crate::facts::{Facts, bit_rate};
use crate::limits::{self, Candidate, Fits, TimeKind};
use crate::sender_state::OwnedInterval;
use model::finding::{
    Conclusion, Confidence, Evidence, EvidenceKey, Explanation, Finding, Level, Limit, Phase, Share,
};
use model::{Bytes, Direction, Nanos, Stage};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Pieces of the time line.
const PHASES: usize = 72;
/// A transfer of fewer round trips cannot be judged by its rate.
const FEWEST_ROUND_TRIPS: u64 = 10;
/// Nor one of fewer segments.
pub(crate) const FEWEST_SEGMENTS: u64 = 20;
/// The time that one kind of limit must own to be the answer, of what the transfer itself took.
const MOST_OF_IT: f64 = 0.5;
/// Of the time of a transfer: from here on a wait is worth a name though something else has more.
const HELD: f64 = 0.25;
/// From here on the pauses of a program leave a cause in the path possible.
const PAUSED: f64 = 0.1;
/// Of the time of a handshake and the transfer together: from here on a handshake with a retransmitted SYN is the first answer, and
/// from [`HELD`] on one beside what limits the transfer, or the only one where that is not known.
const OPENING: f64 = 0.4;
/// RTT by the shortest, from which a queue is longer than one that a program makes which fills a buffer by large writes.
const BEYOND_BURSTS: f64 = 1.75;
/// Where several causes are possible, one of these comes before this one: on drawn paths that was right in 55 answers, and wrong in 5
/// (docs/truth.md). Loss that looks like chance, segments that come late and a window that does not grow are mostly
/// something else's doing.
const OFTENER: [(Limit, &[Limit]); 6] = [
    (Limit::RandomLoss, &[Limit::BottleneckRate, Limit::Policer]),
    (Limit::BurstLoss, &[Limit::BottleneckRate, Limit::Policer]),
    (Limit::Reordering, &[Limit::BottleneckRate]),
    (Limit::CongestionWindow, &[Limit::SendBuffer]),
    (Limit::LossRecovery, &[Limit::SendBuffer]),
    (Limit::AckPath, &[Limit::DelayedAck]),
];
/// Goodput in the other direction by this one, from which causes that hold a path to a rate come behind those that waste what
/// it carries: few paths are made so unequal.
const UNEQUAL: f64 = 5.0;
/// A share of the first level below this is not reported.
const NEGLIGIBLE: f64 = 0.005;

/// Which connection it is.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExplainedConnection {
    pub name: String,
    pub sender: Option<SocketAddr>,
    pub receiver: Option<SocketAddr>,
    pub direction: Option<Direction>,
}

/// All but that of an outage, which is a cause beside others.
const KINDS: [TimeKind; 8] = [
    TimeKind::Network,
    TimeKind::Receiver,
    TimeKind::SendBuffer,
    TimeKind::Application,
    TimeKind::Nagle,
    TimeKind::SlowStart,
    TimeKind::Device,
    TimeKind::Cpu,
];

fn kind(limit: Limit, facts: &Facts) -> Option<TimeKind> {
    match limit {
        // Slow start again and again is what losses make; BBR's window is below its `ssthresh` at any time. And a
        // window that is still small while there is a standing queue limits nothing.
        Limit::SlowStart
            if facts.loss_hurts() || facts.outlasts_startup() || facts.has_long_queue() =>
        {
            Some(TimeKind::Network)
        }
        Limit::RtoStall if facts.has_outage() => Some(TimeKind::Outage),
        limit => limits::first(limit)?.kind,
    }
}

pub(crate) fn assemble(
    subject: ExplainedConnection,
    pieces: &[OwnedInterval],
    facts: &Facts,
    doubts: Vec<String>,
) -> Explanation {
    let shares = shares(pieces);
    let of_kind = |wanted| time_of(&shares, |limit| kind(limit, facts) == Some(wanted));
    let transfer: Nanos = KINDS.into_iter().map(of_kind).sum();
    let most = KINDS
        .into_iter()
        .max_by_key(|k| (of_kind(*k), u8::from(*k == TimeKind::Network)));
    let mut behind = Vec::new();
    let mut conclusion = match (limits::fits_undelivered(facts), most) {
        (Some(hole), _) => {
            behind.push((Limit::BlackHole, KINDS.to_vec(), hole));
            Conclusion::Limited {
                by: vec![Limit::BlackHole],
            }
        }
        (None, Some(most)) if transfer.0 > 0 => {
            let share = of_kind(most).0 as f64 / transfer.0 as f64;
            conclude(most, share, transfer, &shares, facts, &mut behind)
        }
        _ => Conclusion::TooShort,
    };

    // Processors that take turns reorder, and on one machine that is at work for both ends they are all that there is.
    let certain = |(limit, _, t): &(Limit, _, Candidate)| {
        *limit != Limit::Reordering && t.confidence == Confidence::Certain
    };
    let is_all = |cpu: &Candidate| facts.memory_path && cpu.confidence == Confidence::Likely;
    if let Conclusion::Limited { by } = &mut conclusion
        && by.iter().all(|limit| limits::looks_like_cpu(*limit))
        && let Some(candidate) = limits::hides_the_path(facts)
        && (is_all(&candidate) || !behind.iter().any(certain))
    {
        *by = vec![Limit::Cpu];
        behind = vec![(Limit::Cpu, KINDS.to_vec(), candidate)];
    }

    let all = transfer + of_kind(TimeKind::Outage);
    let is_long = of_kind(TimeKind::Outage).0 as f64 >= all.0 as f64 * HELD;
    let is_beside = matches!(conclusion, Conclusion::Limited { .. });
    let outage = limits::fits_outage(facts).filter(|_| is_long || is_beside);
    if let Some(candidate) = &outage {
        let mut by = match conclusion {
            Conclusion::Limited { by } if transfer.0 as f64 >= all.0 as f64 * HELD => by,
            _ => Vec::new(),
        };
        let first = facts.stood_still();
        // What else fits may have made it.
        let confidence = match by.is_empty() {
            true => candidate.confidence,
            false => Confidence::Possible,
        };
        let candidate = Candidate {
            confidence,
            ..candidate.clone()
        };
        behind.push((Limit::RtoStall, vec![TimeKind::Outage], candidate));
        by.insert(if first { 0 } else { by.len() }, Limit::RtoStall);
        conclusion = Conclusion::Limited { by };
    }

    let opening = time_of(&shares, |limit| limit == Limit::Handshake);
    let opens = opening.0 as f64 / (opening + transfer).0.max(1) as f64;
    let mut besides = Vec::from_iter(outage.is_some().then_some(Limit::RtoStall));
    if facts.syns_again > 0 && opens >= HELD {
        match &mut conclusion {
            Conclusion::Limited { by } if opens < OPENING => by.push(Limit::Handshake),
            Conclusion::Limited { by } if 1.0 - opens >= HELD => by.insert(0, Limit::Handshake),
            other if opens >= OPENING || *other == Conclusion::Unexplained => {
                *other = Conclusion::Limited {
                    by: vec![Limit::Handshake],
                };
            }
            _ => {}
        }
        besides.push(Limit::Handshake);
    }

    let total: Nanos = shares.iter().map(|(_, s)| s.time).sum();
    let explained = |limits: &[TimeKind]| -> Share {
        let parts = shares
            .iter()
            .filter(|(limit, _)| kind(*limit, facts).is_some_and(|k| limits.contains(&k)));
        let (time, bytes) = parts.fold((Nanos(0), Bytes(0)), |(t, b), (_, s)| {
            (t + s.time, b + s.bytes)
        });
        share(time, bytes, total)
    };
    // A limit of the first level that is also the cause behind it is reported once, with its own time; behind all kinds of time it
    // has all of them.
    let own = |limit: Limit, kinds: &[TimeKind]| {
        let of_limit = shares.iter().find(|(l, _)| *l == limit);
        of_limit.filter(|_| kinds != KINDS).map(|(_, s)| *s)
    };
    let mut findings: Vec<Finding> = behind
        .into_iter()
        .map(|(limit, kinds, candidate)| {
            let share = match facts.storage().filter(|_| is_storage(limit)) {
                Some(slow) => share(
                    Nanos((slow.busy_share * total.0 as f64) as u64),
                    facts.bytes,
                    total,
                ),
                None => own(limit, &kinds).unwrap_or_else(|| explained(&kinds)),
            };
            // The processor may own time, or lie behind that of others: then it has none of its own.
            let level = own(limit, &kinds).map_or(Level::Second, |_| limit.level());
            finding(limit, level, share, candidate)
        })
        .collect();
    let rest: Vec<Finding> = shares
        .iter()
        .filter(|(l, s)| s.time_share >= NEGLIGIBLE && findings.iter().all(|f| f.limit != *l))
        .filter_map(|(limit, s)| {
            Some(finding(
                *limit,
                limit.level(),
                *s,
                limits::candidate(*limit, facts)?,
            ))
        })
        .collect();
    findings.extend(rest);
    for finding in &mut findings {
        contradiction::weigh(finding, facts, &conclusion);
    }
    // Most of the time all was written, and not yet delivered.
    let closing = time_of(&shares, |limit| limit == Limit::Closing);
    if conclusion == Conclusion::Innocent && closing > transfer {
        let application = findings.iter_mut().find(|f| f.limit == Limit::Application);
        application
            .into_iter()
            .for_each(|f| f.confidence = Confidence::Possible);
    }
    if let Conclusion::Limited { by } = &mut conclusion {
        // What nothing speaks against comes first.
        let refuted = |l: &Limit| {
            findings
                .iter()
                .any(|f| f.limit == *l && f.against.is_some())
        };
        by.sort_by_key(refuted);
        let of_first = OFTENER.iter().find(|(first, _)| by.first() == Some(first));
        let oftener = of_first.map_or(&[][..], |(_, oftener)| oftener);
        let place = |l: &Limit| by.iter().position(|b| b == l && !refuted(b));
        if let Some(place) = oftener.iter().find_map(place) {
            by[..=place].rotate_right(1);
        }
        let is_rate = |l: &Limit| {
            let held = findings.iter().find(|f| f.limit == *l);
            matches!(l, Limit::BottleneckRate | Limit::Policer)
                && held.is_some_and(|f| f.confidence == Confidence::Possible)
        };
        let loses = |l: &Limit| matches!(l, Limit::BurstLoss | Limit::RandomLoss) && !refuted(l);
        if let Some(carries) = carries_more_back(facts)
            && let Some(place) = by.iter().position(loses)
            && by[..place].iter().all(is_rate)
        {
            by[..=place].rotate_right(1);
            let first = findings.iter_mut().filter(|f| f.limit == by[0]);
            first.for_each(|f| f.evidence.push(carries.clone()));
        }
        let rank = |f: &Finding| by.iter().position(|l| *l == f.limit).unwrap_or(by.len());
        findings.sort_by(|a, b| {
            rank(a)
                .cmp(&rank(b))
                .then(b.share.time.cmp(&a.share.time))
                .then(a.limit.cmp(&b.limit))
        });
        let is_rival = |limit: &&Limit| !besides.contains(limit);
        let rivals: Vec<Limit> = by.iter().filter(is_rival).copied().collect();
        if rivals.len() > 1 {
            for finding in findings.iter_mut().filter(|f| rivals.contains(&f.limit)) {
                finding.confidence = Confidence::Possible;
                finding.decider = limits::experiment::between(&rivals, facts);
            }
        }
    }
    Explanation {
        name: subject.name,
        sender: subject.sender,
        receiver: subject.receiver,
        direction: subject.direction,
        source: facts.source,
        stream: None,
        span: facts.span,
        bytes: facts.bytes,
        conclusion,
        findings,
        ends: Vec::new(),
        phases: phases(pieces),
        doubts,
    }
}

/// The other direction of the same run is so much faster.
fn carries_more_back(facts: &Facts) -> Option<Evidence> {
    let least = bit_rate(UNEQUAL * facts.rate());
    let carries = bit_rate(facts.other_direction?);
    let evidence = facts.evidence(EvidenceKey::OtherDirectionGoodput, carries);
    (carries >= least).then(|| evidence.at_least(least.0 as f64))
}

/// The time of some limits.
fn time_of(shares: &[(Limit, Share)], is: impl Fn(Limit) -> bool) -> Nanos {
    let own = shares.iter().filter(|(limit, _)| is(*limit));
    own.map(|(_, share)| share.time).sum()
}

/// Storage has a share of its own: the time in which it was at work.
fn is_storage(limit: Limit) -> bool {
    matches!(limit, Limit::SourceStorage | Limit::SinkStorage)
}

/// The second level of one kind of time.
type SecondLevel = Vec<(Limit, Vec<TimeKind>, Candidate)>;

fn conclude(
    most: TimeKind,
    part: f64,
    transfer: Nanos,
    shares: &[(Limit, Share)],
    facts: &Facts,
    behind: &mut SecondLevel,
) -> Conclusion {
    let round_trips = transfer.0 / facts.rtt().0.max(1);
    // Idleness, short segments that wait and timeouts are seen in few segments, if there was time. A single one is a
    // request, or waits for more to be written.
    let waits = matches!(most, TimeKind::Application | TimeKind::Nagle) && facts.segments > 1;
    let few = facts.segments < FEWEST_SEGMENTS && !waits && !facts.stood_still();
    let too_short = round_trips < FEWEST_ROUND_TRIPS || few;
    let largest = |kinds: TimeKind| {
        let of = shares
            .iter()
            .filter(|(l, _)| kind(*l, facts) == Some(kinds));
        of.max_by_key(|(_, s)| s.time).map(|(l, _)| *l)
    };
    let mut fitting = |rules: &[(Limit, Fits)], kinds: &[TimeKind]| -> Vec<Limit> {
        let mut fits: Vec<(Limit, Candidate)> = rules
            .iter()
            .filter_map(|(limit, fits)| fits(facts).map(|candidate| (*limit, candidate)))
            .collect();
        // A queue that bloats, or that a shaper makes, is a bottleneck's: the special name is the answer, unless it comes last.
        let special = |l: &Limit| matches!(l, Limit::Bufferbloat | Limit::Shaper | Limit::EcnMarks);
        if fits.iter().any(|(l, t)| special(l) && t.rank <= 2) {
            fits.retain(|(l, _)| *l != Limit::BottleneckRate);
        }
        // One that was seen outweighs those that are only possible, unless these explain the same evidence.
        if let Some(sure) = fits
            .iter()
            .position(|(_, t)| t.confidence == Confidence::Certain)
        {
            let sure = fits[sure].0;
            let stays = |l: &Limit| *l == sure || limits::RIVALS.contains(&(sure, *l));
            fits.retain(|(l, t)| stays(l) || t.confidence == Confidence::Certain);
        }
        fits.sort_by_key(|(_, t)| (std::cmp::Reverse(t.confidence), t.rank));
        let names = fits.iter().map(|(l, _)| *l).collect();
        behind.extend(fits.into_iter().map(|(l, t)| (l, kinds.to_vec(), t)));
        names
    };
    // The rings of a copy saw which storage never waited.
    if let Some(slow) = facts.storage() {
        let kind = match slow.stage {
            Stage::Sink => TimeKind::Receiver,
            Stage::Source | Stage::Network => TimeKind::Application,
        };
        let by = fitting(limits::BEHIND_A_COPY, &[kind]);
        return Conclusion::Limited { by };
    }
    // What a black hole does is seen at once, however short the transfer was.
    let hole = facts.vanished.is_some() && limits::is_black_hole(facts);
    if too_short && !hole {
        return Conclusion::TooShort;
    }
    // An exchange waits for itself: what is held is what its application waits for.
    let nagle = time_of(shares, |limit| limit == Limit::Nagle);
    let held = facts.is_exchange && nagle.0 as f64 >= transfer.0 as f64 * HELD;
    let (most, part) = match most {
        TimeKind::Application | TimeKind::Nagle if held => (TimeKind::Nagle, part.max(MOST_OF_IT)),
        _ => (most, part),
    };
    let receiver = time_of(shares, |limit| {
        kind(limit, facts) == Some(TimeKind::Receiver)
    });
    if part < MOST_OF_IT {
        let by: Vec<Limit> = two_largest(shares, facts);
        return match by.is_empty() {
            true => Conclusion::Unexplained,
            false => Conclusion::Limited { by },
        };
    }
    let by = match most {
        TimeKind::Network => {
            let kinds = [TimeKind::Network, TimeKind::SlowStart];
            let mut names = fitting(limits::BEHIND_THE_WINDOW, &kinds);
            if names.is_empty() && facts.is_capture() {
                // After a zero window a sender starts again: that is caused by the receiver.
                names = match receiver.0 as f64 >= transfer.0 as f64 * HELD {
                    true => fitting(limits::BEHIND_THE_RECEIVER, &[TimeKind::Receiver]),
                    false => fitting(limits::BEHIND_A_HELD_FLIGHT, &kinds),
                };
            }
            if names.is_empty() && largest(most) == Some(Limit::CongestionWindow) {
                names = fitting(limits::BEHIND_A_GROWING_WINDOW, &kinds);
            }
            // A buffer that is full again and again has a reader that is slower than the path, which is full in between.
            let closed = time_of(shares, |limit| limit == Limit::ZeroWindow);
            if closed.0 as f64 >= transfer.0 as f64 * HELD
                && !names.contains(&Limit::ReadingApplication)
            {
                let reader = fitting(limits::BEHIND_THE_RECEIVER, &[TimeKind::Receiver]);
                names = [reader, names].concat();
            }
            // A line on which nothing was written so often is not full, though each write makes a queue.
            let idle = time_of(shares, |limit| limit == Limit::Application);
            let open = behind
                .iter()
                .all(|(.., t)| t.confidence == Confidence::Possible);
            let written = facts.is_traced() || limits::has_ends(facts);
            if written && open && idle.0 as f64 >= transfer.0 as f64 * HELD {
                names.insert(0, Limit::Application);
            }
            // Nor certainly one on which nothing was written now and then.
            if !facts.always_writes && idle.0 as f64 >= transfer.0 as f64 * PAUSED {
                let own = behind
                    .iter_mut()
                    .filter(|(_, kinds, _)| kinds.contains(&TimeKind::Network));
                own.for_each(|(.., t)| t.confidence = Confidence::Possible);
            }
            // No loss, no queue, no rate: the window is what it is, and grows by itself.
            let own = Limit::CongestionWindow;
            match (names.is_empty(), largest(most) == Some(own)) {
                (true, true) if !facts.is_capture() => vec![own],
                (true, _) => return Conclusion::Unexplained,
                (false, _) => names,
            }
        }
        TimeKind::Receiver => {
            let names = fitting(limits::BEHIND_THE_RECEIVER, &[TimeKind::Receiver]);
            // A small buffer with hardly anything in it.
            let open =
                limits::reads_slowly(facts).is_some_and(|t| t.confidence == Confidence::Possible);
            match names.is_empty() {
                true => [
                    path_behind(most, facts, &mut fitting),
                    vec![Limit::ReceiveWindow],
                ]
                .concat(),
                false if open && facts.unread_is_known() => {
                    [vec![Limit::ReceiveWindow], names].concat()
                }
                false => names,
            }
        }
        TimeKind::SendBuffer => {
            let path = path_behind(most, facts, &mut fitting).into_iter();
            path.chain(largest(most)).collect()
        }
        TimeKind::Nagle => {
            let names = fitting(limits::BEHIND_NAGLE, &[TimeKind::Nagle]);
            [vec![Limit::Nagle], names].concat()
        }
        TimeKind::Application if facts.always_writes => {
            match fitting(&[(Limit::Cpu, limits::cpu_fits)], &[TimeKind::Application]) {
                names if names.is_empty() => vec![Limit::Application],
                names => names,
            }
        }
        // Who paces below a bucket's rate, or waits for timers after it was empty, sends now and then.
        TimeKind::Application if facts.shows_no_writes() => {
            let mut names = fitting(limits::BEHIND_PAUSES, &[TimeKind::Application]);
            let open = |t: &Candidate| t.confidence == Confidence::Possible;
            if behind.iter().all(|(.., t)| open(t)) {
                names.push(Limit::Application);
            }
            names
        }
        TimeKind::Application if facts.behind.waits_for_processor() => vec![Limit::Application],
        TimeKind::Application => return Conclusion::Innocent,
        TimeKind::Cpu => match fitting(limits::BELOW, &[TimeKind::Cpu]) {
            names if names.is_empty() => return Conclusion::Unexplained,
            names => names,
        },
        TimeKind::Outage | TimeKind::SlowStart | TimeKind::Device => {
            largest(most).into_iter().collect()
        }
    };
    Conclusion::Limited { by }
}

/// The cause in the path where a buffer is full and that holds back nothing: more room would lengthen the queue. Its time is
/// that of the full buffer as well.
fn path_behind(
    full: TimeKind,
    facts: &Facts,
    fitting: &mut impl FnMut(&[(Limit, Fits)], &[TimeKind]) -> Vec<Limit>,
) -> Vec<Limit> {
    // Acknowledgements let a full window go packet by packet.
    let queue = match full {
        TimeKind::Receiver => contradiction::holds_back_nothing(facts).is_some(),
        _ => facts.has_queue(BEYOND_BURSTS) || facts.fills_link().is_some(),
    };
    match queue {
        true => fitting(limits::BEHIND_A_QUEUE, &[TimeKind::Network, full]),
        false => Vec::new(),
    }
}

/// Where no kind has half of the time: the two limits with the most.
fn two_largest(shares: &[(Limit, Share)], facts: &Facts) -> Vec<Limit> {
    let mut ranked: Vec<&(Limit, Share)> = shares
        .iter()
        .filter(|(l, _)| kind(*l, facts).is_some() && *l != Limit::Cpu)
        .collect();
    ranked.sort_by_key(|(_, s)| std::cmp::Reverse(s.time));
    ranked.iter().take(2).map(|(l, _)| *l).collect()
}

fn finding(limit: Limit, level: Level, share: Share, candidate: Candidate) -> Finding {
    Finding {
        limit,
        level,
        share,
        confidence: candidate.confidence,
        evidence: candidate.evidence,
        against: None,
        remedies: candidate.remedies,
        decider: None,
    }
}

fn share(time: Nanos, bytes: Bytes, total: Nanos) -> Share {
    Share {
        time,
        time_share: time.0 as f64 / total.0.max(1) as f64,
        bytes,
    }
}

/// The sum of each limit that owns anything.
pub(crate) fn shares(pieces: &[OwnedInterval]) -> Vec<(Limit, Share)> {
    let mut sums: BTreeMap<Limit, (Nanos, Bytes)> = BTreeMap::new();
    for piece in pieces {
        let sum = sums.entry(piece.limit).or_default();
        sum.0 += piece.length();
        sum.1 += piece.bytes;
    }
    let total = pieces.iter().map(OwnedInterval::length).sum();
    sums.into_iter()
        .map(|(limit, (time, bytes))| (limit, share(time, bytes, total)))
        .collect()
}

/// The time line: equal stretches, each by its largest owner, neighbours of one owner joined.
pub(crate) fn phases(pieces: &[OwnedInterval]) -> Vec<Phase> {
    let (Some(first), Some(last)) = (pieces.first(), pieces.last()) else {
        return Vec::new();
    };
    let span = last.to.since(first.from).0;
    let step = span.div_ceil(PHASES as u64).max(1);
    let mut cells = vec![(BTreeMap::<Limit, u64>::new(), 0u64); PHASES];
    for piece in pieces {
        let (mut from, to) = (piece.from.since(first.from).0, piece.to.since(first.from).0);
        let length = (to - from.min(to)).max(1);
        while from < to {
            let cell = ((from / step) as usize).min(PHASES - 1);
            let until = (from / step + 1).saturating_mul(step).min(to);
            *cells[cell].0.entry(piece.limit).or_default() += until - from;
            let part = u128::from(piece.bytes.0) * u128::from(until - from) / u128::from(length);
            cells[cell].1 += u64::try_from(part).unwrap_or(0);
            from = until;
        }
    }
    let mut phases: Vec<Phase> = Vec::new();
    for (n, (owners, bytes)) in (0..).zip(cells) {
        let Some((&limit, _)) = owners.iter().max_by_key(|(_, time)| **time) else {
            continue;
        };
        let (from, to) = (
            Nanos(n * step),
            Nanos((n + 1).saturating_mul(step).min(span)),
        );
        match phases.last_mut() {
            Some(last) if last.limit == limit && last.to == from => {
                last.to = to;
                last.bytes += Bytes(bytes);
            }
            _ => phases.push(Phase {
                from,
                to,
                limit,
                bytes: Bytes(bytes),
            }),
        }
    }
    phases
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{LostSegment, SenderInterval};
    use model::finding::Source;

    /// From one millisecond to another.
    fn piece(from: u64, to: u64, limit: Limit) -> OwnedInterval {
        OwnedInterval {
            from: Nanos::from_millis(from),
            to: Nanos::from_millis(to),
            limit,
            bytes: Bytes(0),
        }
    }

    #[test]
    fn a_connection_that_was_long_in_opening_is_limited_by_its_handshake() {
        let of = |opening, syns_again| {
            let mut facts = Facts::new(Source::Trace);
            facts.min_rtt = Some(Nanos::from_millis(20));
            (facts.segments, facts.syns_again) = (1000, syns_again);
            let pieces = [
                piece(0, opening, Limit::Handshake),
                piece(opening, opening + 2000, Limit::SendBuffer),
            ];
            let subject = ExplainedConnection::default();
            let explanation = assemble(subject, &pieces, &facts, Vec::new());
            let Conclusion::Limited { by } = explanation.conclusion else {
                panic!("{explanation:#?}")
            };
            let first = &explanation.findings[0];
            assert_eq!(
                (first.limit, first.confidence),
                (by[0], Confidence::Certain)
            );
            by
        };
        let (opening, buffer) = (Limit::Handshake, Limit::SendBuffer);
        assert_eq!(of(9000, 1), [opening]);
        assert_eq!(of(1500, 1), [opening, buffer]);
        assert_eq!(of(1000, 1), [buffer, opening], "a third of the time");
        assert_eq!(of(500, 1), [buffer]);
        assert_eq!(of(1500, 0), [buffer], "a long round trip");
    }

    #[test]
    fn an_outage_is_named_beside_a_limit_from_a_tenth_of_the_time_and_alone_from_a_quarter() {
        let of = |outage: u64, rest: Limit| {
            let mut facts = Facts::new(Source::Trace);
            facts.min_rtt = Some(Nanos::from_millis(20));
            (facts.segments, facts.span) = (1000, Nanos::from_secs(10));
            (facts.timeouts, facts.backoffs) = (3, 3);
            facts.stalled = Nanos::from_millis(outage);
            let pieces = [
                piece(0, outage, Limit::RtoStall),
                piece(outage, 10_000, rest),
            ];
            let explanation = assemble(ExplainedConnection::default(), &pieces, &facts, Vec::new());
            match explanation.conclusion {
                Conclusion::Limited { by } => by,
                _ => Vec::new(),
            }
        };
        let (outage, buffer) = (Limit::RtoStall, Limit::SendBuffer);
        assert_eq!(of(990, buffer), [buffer]);
        assert_eq!(of(1000, buffer), [buffer, outage]);
        assert_eq!(of(4000, buffer), [outage, buffer]);
        // What the application leaves is no limit: a short outage beside it neither.
        assert_eq!(of(2400, Limit::Application), []);
        assert_eq!(of(2500, Limit::Application), [outage]);
    }

    /// Samples of a full line every 20 ms, for 3.2 s; what passed in each, and the share of the reader's buffer that is full.
    fn full_line(passed: impl Fn(u64) -> u64, unread: Option<f64>) -> Facts {
        let mut facts = Facts::new(Source::Samples);
        (facts.mss, facts.min_rtt) = (1000, Some(Nanos::from_millis(20)));
        for n in 0..160 {
            facts.read(SenderInterval {
                from: Nanos::from_millis(n * 20),
                to: Nanos::from_millis(n * 20 + 20),
                srtt: Nanos::from_millis(35),
                cwnd: 200_000,
                flight: 150_000,
                delivered: passed(n),
                passed: passed(n),
                unread,
                ..SenderInterval::default()
            });
        }
        (facts.segments, facts.marked) = (15_000, 1);
        facts.span = Nanos::from_millis(3200);
        facts
    }

    /// What limits it, and the confidence of the first.
    fn named(facts: &Facts, pieces: &[OwnedInterval]) -> (Vec<Limit>, Confidence) {
        let explanation = assemble(ExplainedConnection::default(), pieces, facts, Vec::new());
        let Conclusion::Limited { by } = explanation.conclusion else {
            panic!("{explanation:#?}")
        };
        (by, explanation.findings[0].confidence)
    }

    #[test]
    fn a_line_that_was_faster_at_first_may_be_a_shaper_and_neither_is_certain() {
        let of = |burst| {
            // The queue of a line that is shared stands from the start.
            let facts = full_line(|n| if n < 10 { burst } else { 100_000 }, None);
            named(&facts, &[piece(0, 3200, Limit::CongestionWindow)])
        };
        let line = Limit::BottleneckRate;
        assert_eq!(of(100_000), (vec![line], Confidence::Certain));
        let both = vec![line, Limit::Shaper];
        assert_eq!(of(200_000), (both, Confidence::Possible));
    }

    #[test]
    fn a_reader_whose_buffer_is_full_again_and_again_comes_before_the_path_that_is_full_in_between()
    {
        let of = |closed: u64| {
            let pieces = [
                piece(0, 3200 - closed, Limit::CongestionWindow),
                piece(3200 - closed, 3200, Limit::ZeroWindow),
            ];
            named(&full_line(|_| 100_000, Some(0.9)), &pieces)
        };
        let (line, reader) = (Limit::BottleneckRate, Limit::ReadingApplication);
        assert_eq!(of(1200), (vec![reader, line], Confidence::Possible));
        assert_eq!(of(400), (vec![line], Confidence::Certain));
    }

    #[test]
    fn a_path_that_carries_ten_times_as_much_back_hardly_holds_this_way_to_a_rate() {
        let of = |back: f64| {
            let mut facts = Facts::new(Source::Samples);
            let rtt = Nanos::from_millis(50);
            (facts.mss, facts.min_rtt, facts.segments) = (1000, Some(rtt), 25_000);
            // The window grows from each loss event to the next, which comes at any window.
            let mut window = 100_000;
            for n in 0..100u64 {
                let at = Nanos(n * rtt.0);
                let lost = [5, 14, 17, 31, 50, 58, 77, 90].contains(&n);
                window = if lost { 100_000 } else { window + 10_000 };
                facts.read(SenderInterval {
                    from: at,
                    to: Nanos(at.0 + rtt.0),
                    srtt: rtt,
                    cwnd: window,
                    flight: window,
                    delivered: window,
                    passed: window,
                    retransmitted: if lost { 40 } else { 0 },
                    ..SenderInterval::default()
                });
                let loss = LostSegment {
                    at,
                    srtt: rtt,
                    flight: window,
                    bytes: 1000,
                    ..LostSegment::default()
                };
                let losses = std::iter::repeat_n(loss, 40).filter(|_| lost);
                facts.losses.extend(losses);
            }
            facts.retransmitted = facts.losses.len() as u64;
            facts.span = Nanos::from_secs(5);
            facts.other_direction = Some(facts.rate() * back);
            let pieces = [OwnedInterval {
                from: Nanos(0),
                to: facts.span,
                limit: Limit::CongestionWindow,
                bytes: Bytes(0),
            }];
            let subject = ExplainedConnection::default();
            let explanation = assemble(subject, &pieces, &facts, Vec::new());
            let first = &explanation.findings[0];
            let shown = |e: &Evidence| e.key == EvidenceKey::OtherDirectionGoodput;
            (first.limit, first.evidence.iter().any(shown))
        };
        assert_eq!(of(1.0), (Limit::Policer, false));
        assert_eq!(of(10.0), (Limit::BurstLoss, true));
    }

    #[test]
    fn an_outage_is_a_cause_beside_what_limits_the_rest() {
        let of = |timeouts: u64| {
            let mut facts = Facts::new(Source::Trace);
            (facts.mss, facts.min_rtt) = (1000, Some(Nanos::from_millis(20)));
            for n in 0..300 {
                let dead = (100..200).contains(&n);
                facts.read(SenderInterval {
                    from: Nanos::from_millis(n * 20),
                    to: Nanos::from_millis(n * 20 + 20),
                    srtt: Nanos::from_millis(35),
                    cwnd: 200_000,
                    flight: 150_000,
                    delivered: if dead { 0 } else { 100_000 },
                    passed: if dead { 0 } else { 100_000 },
                    ..SenderInterval::default()
                });
            }
            (facts.segments, facts.marked) = (20_000, 1);
            (facts.timeouts, facts.backoffs) = (timeouts, 3);
            (facts.span, facts.stalled) = (Nanos::from_secs(6), Nanos::from_secs(2));
            let pieces = [
                piece(0, 2000, Limit::CongestionWindow),
                piece(2000, 4000, Limit::RtoStall),
                piece(4000, 6000, Limit::CongestionWindow),
            ];
            let subject = ExplainedConnection::default();
            assemble(subject, &pieces, &facts, Vec::new())
        };
        let one = of(3);
        let by = vec![Limit::BottleneckRate, Limit::RtoStall];
        assert_eq!(one.conclusion, Conclusion::Limited { by });
        let share = |limit| one.finding(limit).map(|f| f.share.time);
        assert_eq!(share(Limit::BottleneckRate), Some(Nanos::from_secs(4)));
        assert_eq!(share(Limit::RtoStall), Some(Nanos::from_secs(2)));
        // Nothing speaks against a path that was full for the rest.
        assert_eq!(one.findings[0].against, None);
        // Timers that fire again and again have a cause, which is named.
        let by = vec![Limit::BottleneckRate];
        assert_eq!(of(30).conclusion, Conclusion::Limited { by });
    }

    #[test]
    fn slow_start_behind_a_queue_is_no_answer_of_its_own() {
        let of = |srtt_ms| {
            let mut facts = Facts::new(Source::Samples);
            facts.min_rtt = Some(Nanos::from_millis(20));
            facts.read(SenderInterval {
                to: Nanos::from_millis(100),
                srtt: Nanos::from_millis(srtt_ms),
                ..SenderInterval::default()
            });
            kind(Limit::SlowStart, &facts)
        };
        assert_eq!(of(20), Some(TimeKind::SlowStart));
        assert_eq!(of(40), Some(TimeKind::Network));
    }

    #[test]
    fn the_time_line_has_equal_stretches_each_of_its_largest_owner() {
        let of = |pieces: &[(u64, u64, Limit)]| -> Vec<(u64, u64, Limit, u64)> {
            let pieces = pieces.iter().map(|(from, to, limit)| OwnedInterval {
                from: Nanos(1000 + from),
                to: Nanos(1000 + to),
                limit: *limit,
                bytes: Bytes(2 * (to - from)),
            });
            let pieces: Vec<OwnedInterval> = pieces.collect();
            let all = phases(&pieces).into_iter();
            all.map(|p| (p.from.0, p.to.0, p.limit, p.bytes.0))
                .collect()
        };
        let (pacing, nagle) = (Limit::Pacing, Limit::Nagle);
        // Of 72 stretches of 10 ns the third is mostly the second's.
        assert_eq!(
            of(&[(0, 24, pacing), (24, 720, nagle)]),
            [(0, 20, pacing, 40), (20, 720, nagle, 1400)]
        );
        assert_eq!(
            of(&[(0, 26, pacing), (26, 720, nagle)]),
            [(0, 30, pacing, 60), (30, 720, nagle, 1380)]
        );
        // Of 2 ns each, the last is shorter.
        assert_eq!(of(&[(0, 101, pacing)]), [(0, 101, pacing, 202)]);
        assert_eq!(
            of(&[(0, 40, pacing), (60, 720, nagle)]),
            [(0, 40, pacing, 80), (60, 720, nagle, 1320)],
            "nothing is known of the time between"
        );
        assert_eq!(of(&[]), []);
    }

    #[test]
    fn shares_are_sums_by_their_total() {
        let pieces = [
            OwnedInterval {
                bytes: Bytes(5),
                ..piece(0, 30, Limit::Pacing)
            },
            OwnedInterval {
                bytes: Bytes(6),
                ..piece(30, 50, Limit::Nagle)
            },
            OwnedInterval {
                bytes: Bytes(7),
                ..piece(50, 80, Limit::Pacing)
            },
        ];
        let found = shares(&pieces).into_iter();
        let found = found.map(|(l, s)| (l, s.time.0 / 1_000_000, s.time_share, s.bytes.0));
        let mut found: Vec<_> = found.collect();
        found.sort_by_key(|(.., bytes)| *bytes);
        assert_eq!(
            found,
            [(Limit::Nagle, 20, 0.25, 6), (Limit::Pacing, 60, 0.75, 12)]
        );
    }

    /// What limits a connection whose time is divided so, in milliseconds.
    fn judged(facts: &Facts, parts: &[(Limit, u64)]) -> Explanation {
        let mut at = 0;
        let pieces = parts.iter().map(|(limit, time)| {
            at += time;
            piece(at - time, at, *limit)
        });
        let pieces: Vec<OwnedInterval> = pieces.collect();
        assemble(ExplainedConnection::default(), &pieces, facts, Vec::new())
    }

    fn causes(facts: &Facts, parts: &[(Limit, u64)]) -> Option<Vec<Limit>> {
        match judged(facts, parts).conclusion {
            Conclusion::Limited { by } => Some(by),
            Conclusion::Innocent => Some(Vec::new()),
            Conclusion::TooShort | Conclusion::Unexplained => None,
        }
    }

    /// A second of 1000 segments on a path of 10 ms.
    fn second(source: Source, change: impl Fn(&mut Facts)) -> Facts {
        let mut facts = crate::facts::tests::steady(100);
        facts.source = source;
        change(&mut facts);
        facts
    }

    fn each(facts: &mut Facts, change: impl Fn(&mut SenderInterval)) {
        facts.readings.iter_mut().for_each(change);
    }

    #[test]
    fn ten_round_trips_and_twenty_segments_are_judged() {
        let buffer = Limit::SendBuffer;
        let of = |parts: &[(Limit, u64)], segments| {
            let facts = second(Source::Trace, |f| f.segments = segments);
            judged(&facts, parts).conclusion
        };
        let is_short =
            |parts: &[(Limit, u64)], segments| of(parts, segments) == Conclusion::TooShort;
        assert!(is_short(&[(buffer, 99)], 1000) && !is_short(&[(buffer, 100)], 1000));
        assert!(is_short(&[(buffer, 100)], 19) && !is_short(&[(buffer, 100)], 20));
        for waits in [Limit::Application, Limit::Nagle] {
            assert!(is_short(&[(waits, 100)], 1) && !is_short(&[(waits, 100)], 2));
        }
        let died = second(Source::Trace, |f| {
            (f.segments, f.timeouts, f.stalled) = (5, 1, Nanos::from_millis(400));
        });
        assert_ne!(
            judged(&died, &[(buffer, 100)]).conclusion,
            Conclusion::TooShort
        );
    }

    #[test]
    fn one_kind_has_half_of_the_time_or_the_two_largest_are_named() {
        use Limit::{Application, Nagle, ReceiveWindow, SendBuffer};
        let facts = second(Source::Trace, |_| {});
        let of = |parts: &[(Limit, u64)]| causes(&facts, parts).unwrap();
        let rest = |buffer| {
            [(SendBuffer, buffer), (ReceiveWindow, 29), (Application, 21)].map(|(l, t)| (l, t * 10))
        };
        assert_eq!(of(&rest(50)), [SendBuffer]);
        assert_eq!(of(&rest(49)), [SendBuffer, ReceiveWindow]);
        // An exchange waits for itself, where Nagle's algorithm holds a quarter of it.
        let waits = |held, is_exchange| {
            let facts = second(Source::Trace, |f| f.is_exchange = is_exchange);
            causes(&facts, &[(Application, 1000 - held), (Nagle, held)]).unwrap()
        };
        assert_eq!(waits(250, true), [Nagle]);
        assert_eq!([waits(249, true), waits(250, false)], [[], []]);
    }

    #[test]
    fn an_idle_application_makes_a_cause_in_the_path_only_possible() {
        use Limit::{Application, BottleneckRate, CongestionWindow};
        let of = |idle, change: fn(&mut Facts)| {
            let facts = second(Source::Trace, |f| {
                each(f, |r| (r.cwnd, r.srtt) = (20_000, Nanos::from_millis(15)));
                f.marked = 1;
                change(f);
            });
            let parts = [(CongestionWindow, 1000 - idle), (Application, idle)];
            named(&facts, &{
                let [(a, time), (b, _)] = parts;
                [piece(0, time, a), piece(time, 1000, b)]
            })
        };
        let certain = (vec![BottleneckRate], Confidence::Certain);
        let possible = (vec![BottleneckRate], Confidence::Possible);
        assert_eq!(of(99, |_| {}), certain);
        assert_eq!(of(100, |_| {}), possible);
        assert_eq!(of(100, |f| f.always_writes = true), certain);
        // Which is only possible itself, and a quarter of the time nothing was written.
        let open: fn(&mut Facts) = |f| f.marked = 0;
        let ack = Limit::AckPath;
        assert_eq!(of(249, open).0, [BottleneckRate, ack]);
        assert_eq!(of(250, open).0, [Application, BottleneckRate, ack]);
    }

    #[test]
    fn a_full_buffer_with_a_queue_has_a_cause_in_the_path_too() {
        use Limit::{BottleneckRate, ReadingApplication, ReceiveWindow, SendBuffer};
        let of = |limit, srtt_us, unread: Option<f64>| {
            let facts = second(Source::Trace, |f| {
                let srtt = Nanos::from_micros(srtt_us);
                each(f, |r| (r.cwnd, r.srtt, r.unread) = (20_000, srtt, unread));
                each(f, |r| r.window = 10_000);
                f.marked = 1;
            });
            causes(&facts, &[(limit, 1000)]).unwrap()
        };
        assert_eq!(of(SendBuffer, 17_400, None), [SendBuffer]);
        assert_eq!(of(SendBuffer, 17_500, None), [BottleneckRate, SendBuffer]);
        assert_eq!(of(ReceiveWindow, 12_400, None), [ReceiveWindow]);
        assert_eq!(
            of(ReceiveWindow, 12_500, None),
            [BottleneckRate, ReceiveWindow]
        );
        // A small buffer with hardly anything in it; or half of it.
        assert_eq!(
            of(ReceiveWindow, 10_000, Some(0.3)),
            [ReceiveWindow, ReadingApplication]
        );
        assert_eq!(of(ReceiveWindow, 10_000, Some(0.5)), [ReadingApplication]);
    }

    #[test]
    fn nothing_behind_a_window_leaves_the_window_or_no_answer() {
        use Limit::{CongestionWindow, LossRecovery};
        let grows = |source| {
            let facts = second(source, |f| {
                let readings = f.readings.iter_mut().zip(0..);
                readings
                    .for_each(|(r, n)| (r.cwnd, r.flight) = (10_000 + n * 100, 10_000 + n * 100));
            });
            move |limit| causes(&facts, &[(limit, 1000)])
        };
        let traced = grows(Source::Trace);
        assert_eq!(traced(CongestionWindow), Some(vec![CongestionWindow]));
        assert_eq!(traced(LossRecovery), None);
        assert_eq!(grows(Source::CaptureAtSender)(CongestionWindow), None);
        // The same in flight all the time: something at the sender.
        let held = causes(
            &second(Source::CaptureAtSender, |_| {}),
            &[(CongestionWindow, 1000)],
        );
        assert_eq!(held, Some(vec![Limit::SendBuffer, Limit::Application]));
    }

    #[test]
    fn a_load_generator_that_does_not_write_or_nothing_in_tcp_is_the_processors() {
        use Limit::{Application, Cpu};
        let busy = |process| {
            Some(crate::facts::CpuLoad {
                process,
                streams: 1,
                ..Default::default()
            })
        };
        let of = |limit, always_writes, process| {
            let facts = second(Source::Samples, |f| {
                (f.always_writes, f.sender_load) = (always_writes, busy(process));
            });
            causes(&facts, &[(limit, 1000)])
        };
        assert_eq!(of(Application, true, 1.0), Some(vec![Cpu]));
        assert_eq!(of(Application, true, 0.7), Some(vec![Application]));
        assert_eq!(of(Application, false, 1.0), Some(vec![]));
        assert_eq!(of(Cpu, false, 1.0), Some(vec![Cpu]));
        assert_eq!(of(Cpu, false, 0.7), None);
        assert_eq!(
            of(Limit::DeviceQueue, false, 0.7),
            Some(vec![Limit::DeviceQueue])
        );
        assert_eq!(
            of(Limit::SlowStart, false, 0.7),
            Some(vec![Limit::SlowStart])
        );
    }

    #[test]
    fn an_application_that_mostly_waited_for_the_end_is_only_possible() {
        let of = |closing| {
            let facts = second(Source::Trace, |_| {});
            let found = judged(
                &facts,
                &[(Limit::Application, 500), (Limit::Closing, closing)],
            );
            found.finding(Limit::Application).unwrap().confidence
        };
        assert_eq!(
            [of(500), of(501)],
            [Confidence::Certain, Confidence::Possible]
        );
    }

    #[test]
    fn a_handshake_takes_a_quarter_two_fifths_or_three_quarters() {
        let of = |opening| {
            let facts = second(Source::Trace, |f| f.syns_again = 1);
            causes(
                &facts,
                &[(Limit::Handshake, opening), (Limit::SendBuffer, 3000)],
            )
            .unwrap()
        };
        let (opening, buffer) = (Limit::Handshake, Limit::SendBuffer);
        assert_eq!(of(999), [buffer]);
        assert_eq!(of(1000), [buffer, opening]);
        assert_eq!([of(1999), of(2000)], [[buffer, opening], [opening, buffer]]);
        assert_eq!(of(9000), [opening, buffer]);
        assert_eq!(of(9001), [opening]);
    }

    #[test]
    fn a_handshake_of_a_quarter_is_what_is_known_where_nothing_else_is() {
        let of = |opening| {
            let mut facts = Facts::new(Source::CaptureAtSender);
            (facts.segments, facts.syns_again) = (1000, 2);
            facts.span = Nanos::from_secs(3);
            facts.bytes = Bytes(1_000_000);
            causes(
                &facts,
                &[(Limit::Handshake, opening), (Limit::CongestionWindow, 3000)],
            )
        };
        assert_eq!(of(999), None);
        assert_eq!(of(1000), Some(vec![Limit::Handshake]));
    }

    #[test]
    fn an_outage_stands_alone_where_the_rest_is_less_than_a_quarter() {
        let of = |rest| {
            let facts = second(Source::Trace, |f| {
                (f.timeouts, f.backoffs, f.stalled) = (2, 4, Nanos::from_millis(600));
            });
            causes(&facts, &[(Limit::SendBuffer, rest), (Limit::RtoStall, 600)]).unwrap()
        };
        let (buffer, stall) = (Limit::SendBuffer, Limit::RtoStall);
        assert_eq!(of(200), [stall, buffer]);
        assert_eq!(of(199), [stall]);
    }

    #[test]
    fn parts_of_less_than_one_in_two_hundred_are_not_reported() {
        let of = |nagle| {
            let facts = second(Source::Trace, |_| {});
            let found = judged(
                &facts,
                &[(Limit::SendBuffer, 2000 - nagle), (Limit::Nagle, nagle)],
            );
            found.finding(Limit::Nagle).is_some()
        };
        assert_eq!([of(10), of(9)], [true, false]);
    }

    #[test]
    fn five_times_as_much_in_the_other_direction_is_unequal() {
        let of = |back: f64| {
            let facts = second(Source::Samples, |f| f.other_direction = Some(back * 1e6));
            carries_more_back(&facts).is_some()
        };
        assert_eq!([of(5.001), of(4.999)], [true, false]);
        assert!(carries_more_back(&second(Source::Samples, |_| {})).is_none());
    }
}

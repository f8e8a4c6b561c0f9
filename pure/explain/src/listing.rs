//! From what `tcp.d` printed at a sender: the windows beside each segment, and how long each waited.
//!
//! A window that was cut to the new threshold and three segments is a fast retransmit (RFC 5681, section 3.2). How often the
//! receiver acknowledges is reported with its cause: it is a consequence.

use crate::conclude::{phases, shares};
use crate::limits::{Key, TimeKind, first};
use crate::sender_state::{OwnedInterval, own};
use model::finding::{
    Conclusion, Confidence, Evidence, Explanation, Finding, Limit, Quantity, Remedy, Share, Source,
};
use model::{Bytes, Nanos};
use tcp::listing::{LineOrder, Listing, ListingRow, Windows};
pub use tcp::listing::{is_listing, read as read_listing};
use tcp::thresholds::DELAYED_ACK_MIN;

/// A wait is longer than so many usual gaps between two segments.
const LONG: u64 = 2;

/// Explains a listing. Its connection has no name there: `name` is the file's.
pub fn explain_listing(name: &str, listing: &Listing) -> Explanation {
    let rows = &listing.rows;
    let scene = Scene::of(rows);
    let mut pieces = Vec::new();
    // Without an order nothing is known of what came before a line.
    let known = match listing.order {
        LineOrder::Unknown => 0,
        LineOrder::Printed | LineOrder::Sorted { .. } => rows.len(),
    };
    for n in 1..known {
        let piece = OwnedInterval {
            from: rows[n - 1].packet.at,
            to: rows[n].packet.at,
            limit: scene.owner(rows, n),
            bytes: sent(&rows[n]),
        };
        own(&mut pieces, piece);
    }
    let shares = shares(&pieces).into_iter();
    let mut findings: Vec<Finding> = shares
        .map(|(limit, share)| scene.finding(rows, limit, share))
        .collect();
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.share.time));
    let ends = rows.first().zip(rows.last());
    Explanation {
        name: name.to_owned(),
        sender: None,
        receiver: None,
        direction: None,
        source: Source::Listing,
        stream: None,
        span: ends.map_or(Nanos(0), |(a, b)| b.packet.at.since(a.packet.at)),
        bytes: rows.iter().map(sent).sum(),
        conclusion: scene.conclusion(&findings),
        findings,
        ends: Vec::new(),
        phases: phases(&pieces),
        doubts: doubts(listing),
    }
}

fn sent(row: &ListingRow) -> Bytes {
    match row.is_sent() {
        true => Bytes(row.packet.payload.into()),
        false => Bytes(0),
    }
}

/// The time before a line.
fn gap(rows: &[ListingRow], n: usize) -> Nanos {
    rows[n].packet.at.since(rows[n - 1].packet.at)
}

/// What must be known to take it right.
fn doubts(listing: &Listing) -> Vec<String> {
    let all = listing.rows.len();
    let order = match listing.order {
        LineOrder::Printed => None,
        LineOrder::Sorted { moved } => Some(format!(
            "each processor's lines were printed separately: {moved} of {all} were out of order and were sorted by their timestamps"
        )),
        LineOrder::Unknown => Some(
            "the lines are of several processors and have no timestamps: their order is unknown, so times are not reported"
                .to_owned(),
        ),
    };
    let skipped = (listing.skipped > 0).then(|| {
        format!(
            "{} lines are no segments and were left out",
            listing.skipped
        )
    });
    order.into_iter().chain(skipped).collect()
}

/// What holds for all lines.
struct Scene {
    /// The largest segment.
    mss: u64,
    /// The usual gap between two segments that were sent one behind the other.
    gap: Nanos,
    /// Where the window was cut, and by what.
    cut: Option<(usize, Limit)>,
    /// The window was still growing to its first threshold.
    starting: bool,
}

impl Scene {
    fn of(rows: &[ListingRow]) -> Scene {
        let mss = rows.iter().map(|row| sent(row).0).max().unwrap_or(0);
        let is_pair = |n: &usize| rows[n - 1].is_data() && rows[*n].is_data();
        let mut gaps: Vec<Nanos> = (1..rows.len())
            .filter(is_pair)
            .map(|n| gap(rows, n))
            .collect();
        gaps.sort();
        let windows: Vec<Windows> = rows.iter().filter_map(|row| row.windows).collect();
        let grew = windows
            .windows(2)
            .any(|pair| pair[0].congestion < pair[1].congestion);
        Scene {
            mss,
            gap: gaps.get(gaps.len() / 2).copied().unwrap_or_default(),
            cut: (1..rows.len()).find_map(|n| Some((n, cut(&rows[n - 1], &rows[n], mss)?))),
            starting: grew && windows.iter().all(|windows| windows.threshold.is_none()),
        }
    }

    /// The time before a line is long beside the gaps between segments.
    fn is_long(&self, rows: &[ListingRow], n: usize) -> bool {
        gap(rows, n).0 > LONG * self.gap.0
    }

    /// What owns the time before a line.
    fn owner(&self, rows: &[ListingRow], n: usize) -> Limit {
        let (before, row) = (&rows[n - 1], &rows[n]);
        if let Some((_, limit)) = self.cut.filter(|(cut, _)| n >= *cut) {
            return limit;
        }
        if let (Some(out), Some(windows)) = (before.unacked, before.windows)
            && out.0 + self.mss > windows.congestion.min(windows.send).0
        {
            return match windows.send < windows.congestion {
                true => Limit::ReceiveWindow,
                false => self.congestion(),
            };
        }
        let next = rows[n..].iter().find(|row| row.packet.payload > 0);
        match (row.is_sent(), next.is_some_and(ListingRow::is_sent)) {
            // It answers what came.
            (true, _) if before.packet.payload > 0 && !before.is_sent() => Limit::Application,
            (true, _) => Limit::Cpu,
            // There was nothing more to send.
            (false, false) => Limit::Application,
            // An acknowledgement that let go what follows.
            (false, true) if row.windows.is_some() && self.is_long(rows, n) => self.congestion(),
            (false, true) => Limit::Cpu,
        }
    }

    fn congestion(&self) -> Limit {
        match self.starting {
            true => Limit::SlowStart,
            false => Limit::CongestionWindow,
        }
    }

    /// The answer, of findings of which the first owns most.
    fn conclusion(&self, findings: &[Finding]) -> Conclusion {
        let most = findings.first().map(|finding| finding.limit);
        match (self.cut, most) {
            (Some((_, limit)), _) => Conclusion::Limited { by: vec![limit] },
            (None, Some(Limit::Application)) => Conclusion::Innocent,
            (None, None | Some(Limit::Cpu)) => Conclusion::TooShort,
            (None, Some(limit)) => Conclusion::Limited { by: vec![limit] },
        }
    }

    fn finding(&self, rows: &[ListingRow], limit: Limit, share: Share) -> Finding {
        use Confidence::{Certain, Likely, Possible};
        let is_seen = rows.iter().any(|row| row.unacked.is_some());
        let is_cut = self.cut.is_some_and(|(_, cut)| cut == limit);
        let (confidence, evidence, remedy) = match first(limit).and_then(|first| first.kind) {
            Some(TimeKind::Network) if is_cut => (
                Certain,
                self.loss(rows),
                "capture at both ends: it shows whether a segment was lost or overtaken, and where",
            ),
            Some(TimeKind::Network | TimeKind::Outage | TimeKind::SlowStart) => (
                if is_seen { Certain } else { Likely },
                self.window(rows),
                "trace the connection from its beginning: it shows what keeps the window small",
            ),
            Some(TimeKind::Receiver) => (
                Certain,
                self.window(rows),
                "a larger receive buffer at the receiver",
            ),
            Some(TimeKind::Application) => (
                Likely,
                self.idle(rows),
                "nothing in TCP: 'linerate explain --requests' divides this time among the calls",
            ),
            Some(TimeKind::Cpu | TimeKind::SendBuffer | TimeKind::Nagle | TimeKind::Device)
            | None => (
                Possible,
                self.pace(rows),
                "nothing in TCP held these segments: they left at the pace of the sender and its line",
            ),
        };
        Finding {
            limit,
            level: limit.level(),
            share,
            confidence,
            evidence,
            remedies: vec![Remedy {
                words: remedy.to_owned(),
                change: None,
            }],
            against: None,
            decider: None,
        }
    }

    /// How the window was cut, and what was sent meanwhile.
    fn loss(&self, rows: &[ListingRow]) -> Vec<Evidence> {
        let Some((cut, _)) = self.cut else {
            return Vec::new();
        };
        let (Some(was), Some(is)) = (rows[cut - 1].windows, rows[cut].windows) else {
            return Vec::new();
        };
        // A fast retransmit sets the window to ssthresh and 3 segments (RFC 5681, 3.2).
        let threshold = is.threshold.unwrap_or_default();
        let sum = threshold.0 + 3 * self.mss;
        let after = of(Key::CwndAfterCut, is.congestion);
        let mut evidence = vec![
            of(Key::CwndBeforeCut, was.congestion),
            match is.congestion.0.abs_diff(sum) < self.mss {
                true => after.at_most((sum + self.mss) as f64),
                false => after,
            },
            of(Key::SsthreshAfterCut, threshold),
        ];
        let stands =
            |pair: &&[ListingRow]| pair[0].unacked.is_some() && pair[0].unacked == pair[1].unacked;
        let stood: Vec<&[ListingRow]> = rows[cut - 1..].windows(2).filter(stands).collect();
        // A new one adds to what is out: these are retransmissions.
        let again = stood.iter().filter(|pair| pair[1].is_data()).count();
        if again > 0 {
            evidence.push(of(Key::SegmentsWithoutGrowth, again));
            let nothing = stood.iter().filter(|pair| !pair[1].is_sent()).count();
            evidence.push(of(Key::DuplicateAcks, nothing));
        }
        evidence.extend(
            rows[cut - 1]
                .unacked
                .map(|out| of(Key::InFlightBeforeCut, out)),
        );
        evidence.extend(self.acknowledgements(rows));
        evidence
    }

    /// The windows, and what waited for them.
    fn window(&self, rows: &[ListingRow]) -> Vec<Evidence> {
        let windows: Vec<Windows> = rows.iter().filter_map(|row| row.windows).collect();
        let (Some(first), Some(last)) = (windows.first(), windows.last()) else {
            return Vec::new();
        };
        let waits = (1..rows.len()).filter(|n| !rows[*n].is_sent() && self.is_long(rows, *n));
        let windows = [
            of(Key::CwndFirst, first.congestion),
            of(Key::CwndLast, last.congestion),
            of(Key::ReceiveWindow, last.send),
            of(Key::AckWaits, waits.count()),
        ];
        windows
            .into_iter()
            .chain(self.acknowledgements(rows))
            .collect()
    }

    /// The pace where nothing held.
    fn pace(&self, rows: &[ListingRow]) -> Vec<Evidence> {
        let sent = rows.iter().filter(|row| row.is_data()).count();
        // With a full window it is evidence of that finding.
        let alone = self.cut.is_none() && !self.starting;
        let acknowledged = self.acknowledgements(rows).filter(|_| alone);
        [of(Key::SentSegments, sent), of(Key::SegmentGap, self.gap)]
            .into_iter()
            .chain(acknowledged)
            .collect()
    }

    /// How often the receiver acknowledged: full segments between two acknowledgements, at the most.
    fn acknowledgements(&self, rows: &[ListingRow]) -> Option<Evidence> {
        let full = |row: &ListingRow| u64::from(row.packet.payload) == self.mss;
        let (mut run, mut longest) = (0_u64, 0);
        for row in rows.iter().filter(|row| row.windows.is_some()) {
            run = match row.is_sent() {
                true => run + u64::from(full(row)),
                false => 0,
            };
            longest = longest.max(run);
        }
        (longest > 0).then(|| of(Key::SegmentsPerAck, longest))
    }

    /// What the time without anything to send was.
    fn idle(&self, rows: &[ListingRow]) -> Vec<Evidence> {
        let asks = |row: &ListingRow| !row.is_sent() && row.packet.payload > 0;
        let answers = (1..rows.len()).filter(|n| rows[*n].is_data() && asks(&rows[n - 1]));
        let mut answers: Vec<Nanos> = answers.map(|n| gap(rows, n)).collect();
        answers.sort();
        let mut evidence = Vec::new();
        if let Some(middle) = answers.get(answers.len() / 2) {
            evidence.push(of(Key::Replies, answers.len()));
            evidence.push(of(Key::ReplyTime, *middle));
        }
        let acks = |row: &&ListingRow| !row.is_sent() && row.packet.payload == 0;
        if rows.len() > 1 && rows.last().filter(acks).is_some() {
            let held = gap(rows, rows.len() - 1);
            if held >= DELAYED_ACK_MIN {
                let held = of(Key::LastAckDelay, held);
                evidence.push(held.at_least(DELAYED_ACK_MIN.0 as f64));
            }
        }
        evidence
    }
}

fn of(key: Key, quantity: impl Into<Quantity>) -> Evidence {
    Evidence::new(key, quantity, Source::Listing)
}

/// Whether the window was cut between two lines, and by what.
fn cut(before: &ListingRow, row: &ListingRow, mss: u64) -> Option<Limit> {
    let (was, is) = (before.windows?, row.windows?);
    let threshold = is.threshold.filter(|_| is.threshold != was.threshold)?;
    let cut = is.congestion < was.congestion;
    // A timeout begins again with one segment (RFC 5681, 3.1).
    cut.then(
        || match is.congestion.0 <= mss && is.congestion < threshold {
            true => Limit::RtoStall,
            false => Limit::LossRecovery,
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::finding::Threshold;

    /// Unacknowledged, time since the line before in us, sent or not, congestion window, threshold: of a slow sender.
    const SLOW: [(u64, u64, bool, u64, Option<u64>); 15] = [
        (139_760, 31, true, 144_800, None),
        (139_760, 33, true, 144_800, None),
        (144_104, 29, true, 146_248, None),
        (145_552, 31, false, 144_800, None),
        (145_552, 41, true, 147_696, None),
        (147_000, 30, false, 144_800, None),
        (147_000, 22, true, 76_744, Some(72_400)),
        (147_000, 28, false, 76_744, Some(72_400)),
        (147_000, 18, true, 76_744, Some(72_400)),
        (147_000, 26, false, 76_744, Some(72_400)),
        (147_000, 17, true, 76_744, Some(72_400)),
        (147_000, 27, false, 76_744, Some(72_400)),
        (147_000, 18, true, 76_744, Some(72_400)),
        (147_000, 56, false, 76_744, Some(72_400)),
        (147_000, 22, true, 76_744, Some(72_400)),
    ];

    /// As `tcp.d` prints it, with what is not acknowledged or with the scales.
    fn listing(of: &[(u64, u64, bool, u64, Option<u64>)], seen: bool) -> Listing {
        let mut text = format!("{} ssthresh\n", if seen { "unack" } else { "" });
        for (unacked, us, sent, congestion, threshold) in of {
            let bytes = if *sent { "1448" } else { "/ 0" };
            let threshold = threshold.unwrap_or(1_073_725_440);
            text += &match seen {
                true => {
                    format!("{unacked} 0 {us} {bytes} 195200 131768 {congestion} {threshold}\n")
                }
                false => format!("{us} {bytes} 195200 7 131768 2 {congestion} {threshold}\n"),
            };
        }
        tcp::listing::read(&text)
    }

    #[test]
    fn a_window_of_the_threshold_and_three_segments_is_a_fast_retransmit() {
        let explanation = explain_listing("slow", &listing(&SLOW, true));
        assert_eq!(explanation.cause(), Some(Limit::LossRecovery));
        assert!(explanation.is_confident());
        let evidence = &explanation.findings[0].evidence;
        let of = |key| evidence.iter().find(|e| e.key == key).unwrap();
        // 72,400 + 3 x 1448, within a segment: a fast retransmit.
        assert_eq!(
            of(Key::CwndAfterCut).threshold,
            Some(Threshold::AtMost(78_192.0))
        );
        assert_eq!(of(Key::SegmentsWithoutGrowth).quantity, 5_u64.into());
        assert_eq!(of(Key::DuplicateAcks).quantity, 4_u64.into());
        assert!(of(Key::SegmentsPerAck).holds());
        // Before it, the window was full.
        let full = explanation
            .finding(Limit::CongestionWindow)
            .or(explanation.finding(Limit::SlowStart));
        assert!(full.is_some_and(|full| full.confidence == Confidence::Certain));
        let all: Nanos = explanation
            .findings
            .iter()
            .map(|finding| finding.share.time)
            .sum();
        assert_eq!(all, explanation.span);
    }

    #[test]
    fn waiting_for_acknowledgements_while_the_window_grows_is_slow_start() {
        let lines = [
            (0, 161, false, 127_424, None),
            (0, 52, true, 128_872, None),
            (0, 33, true, 128_872, None),
            (0, 11, true, 128_872, None),
            (0, 143, false, 128_872, None),
            (0, 46, true, 130_320, None),
            (0, 31, true, 130_320, None),
            (0, 11, true, 130_320, None),
            (0, 157, false, 130_320, None),
            (0, 46, true, 131_768, None),
            (0, 18, true, 131_768, None),
        ];
        let explanation = explain_listing("slow", &listing(&lines, false));
        assert_eq!(explanation.cause(), Some(Limit::SlowStart));
        assert_eq!(explanation.findings[0].share.time, Nanos::from_micros(300));
        // A sender that never waits is too short for a conclusion.
        let lines: Vec<_> = lines.into_iter().filter(|line| line.2).collect();
        let explanation = explain_listing("fast", &listing(&lines[..3], false));
        assert_eq!(explanation.conclusion, Conclusion::TooShort);
    }

    #[test]
    fn the_acknowledgement_that_came_late_at_the_end_is_idle_time() {
        let lines =
            "0 1 2 <-- 140\n116 1 2 132 -->\n33 1 2 1448 -->\n100 1 2 <-- 0\n39933 1 2 <-- 0\n";
        let explanation = explain_listing("read", &tcp::listing::read(lines));
        assert_eq!(explanation.conclusion, Conclusion::Innocent);
        let evidence = &explanation.findings[0].evidence;
        assert!(
            evidence
                .iter()
                .any(|e| e.key == Key::LastAckDelay && e.quantity == Nanos(39_933_000).into()),
            "{evidence:?}"
        );
    }

    #[test]
    fn one_segment_below_the_threshold_is_left_by_a_timeout() {
        let of = |congestion, threshold| {
            let lines = [
                (5792, 10, true, 144_800, None),
                (5792, 10, true, congestion, Some(threshold)),
            ];
            explain_listing("cut", &listing(&lines, true)).cause()
        };
        assert_eq!(of(1448, 72_400), Some(Limit::RtoStall));
        assert_eq!(of(1449, 72_400), Some(Limit::LossRecovery));
        assert_eq!(of(1448, 1448), Some(Limit::LossRecovery));
        assert_eq!(of(1448, 1449), Some(Limit::RtoStall));
    }

    #[test]
    fn the_evidence_of_a_cut_is_what_was_before_and_after_it() {
        let found = |congestion: u64| {
            let lines = [
                (5792, 10, true, 20_000, None),
                (10_000, 10, true, 20_000, None),
                (10_500, 10, false, congestion, Some(9000)),
                (10_500, 10, false, congestion, Some(9000)),
                (10_500, 10, true, congestion, Some(9000)),
                (10_600, 10, true, congestion, Some(9000)),
            ];
            explain_listing("cut", &listing(&lines, true)).findings
        };
        let findings = found(9000 + 3 * 1448);
        let recovery = findings
            .iter()
            .find(|f| f.limit == Limit::LossRecovery)
            .unwrap();
        let of = |key| recovery.evidence.iter().find(|e| e.key == key);
        let bytes = |key| of(key).map(|e| e.quantity.clone());
        assert_eq!(bytes(Key::CwndBeforeCut), Some(Bytes(20_000).into()));
        assert_eq!(bytes(Key::CwndAfterCut), Some(Bytes(13_344).into()));
        assert_eq!(bytes(Key::SsthreshAfterCut), Some(Bytes(9000).into()));
        assert_eq!(bytes(Key::InFlightBeforeCut), Some(Bytes(10_000).into()));
        // From the cut on two lines add nothing to what is out: one is sent.
        assert_eq!(bytes(Key::SegmentsWithoutGrowth), Some(1_usize.into()));
        assert_eq!(bytes(Key::DuplicateAcks), Some(1_usize.into()));
        // The threshold and three segments, within one.
        let judged = |congestion| {
            let findings = found(congestion);
            let recovery = findings
                .iter()
                .find(|f| f.limit == Limit::LossRecovery)
                .unwrap();
            let after = recovery
                .evidence
                .iter()
                .find(|e| e.key == Key::CwndAfterCut);
            after.unwrap().threshold
        };
        let most = Some(Threshold::AtMost(14_792.0));
        assert_eq!([judged(13_344 + 1447), judged(13_344 - 1447)], [most, most]);
        assert_eq!([judged(13_344 + 1448), judged(13_344 - 1448)], [None, None]);
        // What held before it has the evidence of a window.
        let other = findings.iter().find(|f| f.limit != Limit::LossRecovery);
        assert!(other.is_none_or(|f| f.evidence.iter().all(|e| e.key != Key::CwndBeforeCut)));
    }

    #[test]
    fn replies_are_timed_and_only_an_acknowledgement_comes_late() {
        let idle = |lines: &str| {
            let explanation = explain_listing("read", &tcp::listing::read(lines));
            let rows = explanation.findings[0].evidence.iter();
            rows.map(|e| (e.key, e.quantity.clone()))
                .collect::<Vec<_>>()
        };
        let asked = "0 1 2 <-- 140\n100 1 2 132 -->\n900 1 2 <-- 140\n300 1 2 132 -->\n900 1 2 <-- 140\n200 1 2 132 -->\n";
        let replies = [
            (Key::Replies, 3_usize.into()),
            (Key::ReplyTime, Nanos::from_micros(200).into()),
        ];
        assert_eq!(idle(asked), replies);
        let all = explain_listing("read", &tcp::listing::read(asked)).findings;
        assert_eq!(all.len(), 1, "all of it is the application's");
        let late = |us: u64| (Key::LastAckDelay, Nanos::from_micros(us).into());
        let ended = |line: &str| idle(&format!("{asked}{line}"))[2..].to_vec();
        assert_eq!(ended("15000 1 2 <-- 0\n"), [late(15_000)]);
        assert_eq!(ended("14999 1 2 <-- 0\n"), []);
        assert_eq!(ended("15000 1 2 <-- 140\n"), []);
        assert_eq!(ended("15000 1 2 0 -->\n"), []);
    }

    #[test]
    fn how_often_a_receiver_acknowledged_is_reported_once_with_its_cause() {
        let keys = |cut: Option<u64>| {
            let mut lines = vec![(0, 10, true, 20_000, None); 3];
            lines.push((0, 10, false, 20_000, None));
            lines.push((0, 10, true, cut.map_or(20_000, |_| 9000), cut));
            let explanation = explain_listing("read", &listing(&lines, true));
            let pace = explanation
                .findings
                .into_iter()
                .find(|f| f.limit == Limit::Cpu)
                .unwrap();
            let row = pace
                .evidence
                .into_iter()
                .find(|e| e.key == Key::SegmentsPerAck);
            row.map(|row| row.quantity)
        };
        assert_eq!(keys(None), Some(3_u64.into()));
        assert_eq!(keys(Some(9000)), None);
    }
}

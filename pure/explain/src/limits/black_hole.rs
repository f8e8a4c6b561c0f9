//! Full-size segments vanish without an ICMP message, smaller ones pass: the sender backs off until it
//! gives up, or probes with smaller ones (RFC 2923, RFC 4821).
//!
//! Near miss: a link that is down, where small segments vanish too.

use super::{Candidate, Key};
use crate::facts::Facts;
use model::finding::{Confidence, Evidence};
use model::{Bytes, Nanos};
use tcp::stream::Undelivered;
use tcp::thresholds::USUAL_SEGMENT;

/// So many backoffs of the same segment are no chance.
pub(crate) const BACKOFFS: u32 = 3;

pub(crate) fn fits(facts: &Facts) -> Option<Candidate> {
    let gone = facts.vanished?;
    if gone.backoffs < BACKOFFS || gone.size <= gone.passed {
        return None;
    }
    let evidence = vec![
        facts
            .evidence(Key::VanishedSegment, Bytes(gone.size.into()))
            .at_least(f64::from(gone.passed) + 1.0)
            .at(gone.at),
        facts.evidence(Key::LargestDelivered, Bytes(gone.passed.into())),
        facts
            .evidence(Key::ConsecutiveTimeouts, gone.backoffs)
            .at_least(BACKOFFS.into()),
    ];
    Some(advised(Confidence::Certain, evidence))
}

/// For so long data were retransmitted again and again: a timeout is 1 s at first, and doubles (RFC 6298).
const OFTEN: Nanos = Nanos::from_secs(3);

/// Payload from which segments of full size passed: every link of IPv6 carries more (1280 bytes, RFC 8200, 5).
const PASSES: u32 = 1200;

/// At the receiver, of a sender whose packets without data arrive, and none with data. A single one may have overtaken them;
/// and where full segments had passed, be that of a sender that waits for a timeout.
pub(crate) fn fits_undelivered(facts: &Facts) -> Option<Candidate> {
    let missing = facts.undelivered?;
    hides(&missing).then(|| {
        let bytes = facts.evidence(Key::UndeliveredBytes, Bytes(missing.bytes.into()));
        let acks = facts.evidence(Key::AcksAheadOfData, missing.acknowledgements);
        let evidence = vec![bytes.at(missing.since), acks.if_at_least(BACKOFFS.into())];
        let confidence = match is_repeated(&missing) {
            true => Confidence::Likely,
            false => Confidence::Possible,
        };
        advised(confidence, evidence)
    })
}

fn is_repeated(missing: &Undelivered) -> bool {
    missing.acknowledgements >= BACKOFFS
}

/// Whether nothing of full size came: where it had, something else may keep the data back.
pub(crate) fn hides(missing: &Undelivered) -> bool {
    let often = missing.silence() >= OFTEN;
    often && (is_repeated(missing) || missing.largest < PASSES) && is_lost(missing)
}

/// More is missing than what one packet may have overtaken.
pub(crate) fn is_lost(missing: &Undelivered) -> bool {
    missing.bytes >= 2 * USUAL_SEGMENT
}

fn advised(confidence: Confidence, evidence: Vec<Evidence>) -> Candidate {
    Candidate::new(confidence, evidence)
        .change(
            "sysctl:net.ipv4.tcp_mtu_probing=1@sender",
            "let the sender find the size that passes (RFC 4821)",
        )
        .advise("see where it stops: linerate mtu HOST")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::CaptureObserver;
    use model::finding::{Explanation, Limit};
    use model::packet::Packet;
    use model::segment::tcp_flag::{ACK, PSH, SYN};

    /// At the receiver: a greeting, and then each second an acknowledgement without data that is so far ahead of it; the
    /// receiver probes.
    fn seen(ahead: u32, seconds: u64, data_at_last: bool) -> Vec<Explanation> {
        seen_from(1, ahead, seconds, data_at_last)
    }

    /// The same, from this second on.
    fn seen_from(first: u64, ahead: u32, seconds: u64, data_at_last: bool) -> Vec<Explanation> {
        let ends: [std::net::SocketAddr; 2] = [
            ([192, 0, 2, 1], 40000).into(),
            ([192, 0, 2, 2], 5210).into(),
        ];
        let mut observer = CaptureObserver::default();
        let mut push = |us: u64, side: usize, flags: u8, (seq, ack): (u32, u32), payload: u32| {
            observer.push(&Packet {
                at: Nanos::from_micros(us),
                flags,
                seq,
                ack,
                payload,
                window: 65_000,
                mss: Some(1460).filter(|_| flags & SYN != 0),
                ..Packet::new(ends[side], ends[1 - side])
            });
        };
        push(0, 0, SYN, (0, 0), 0);
        push(20, 1, SYN | ACK, (0, 1), 0);
        push(20_020, 0, ACK, (1, 1), 0);
        push(20_040, 0, ACK | PSH, (1, 1), 36);
        push(20_050, 1, ACK, (1, 37), 0);
        for second in first..=seconds {
            push(second * 1_000_000, 1, ACK, (0, 37), 0);
            push(second * 1_000_000 + 20_000, 0, ACK, (37 + ahead, 1), 0);
        }
        if data_at_last {
            push(seconds * 1_000_000 + 40_000, 0, ACK, (37, 1), 1448);
        }
        observer.explain().explanations
    }

    #[test]
    fn acknowledgements_ahead_of_data_that_never_come_show_a_black_hole() {
        let hole = |all: Vec<Explanation>| {
            let of = all.iter().find(|one| one.cause() == Some(Limit::BlackHole));
            of.map(|one| one.findings[0].confidence)
        };
        let likely = Some(Confidence::Likely);
        assert_eq!(hole(seen(14_480, 6, false)), likely);
        assert_eq!(hole(seen(14_480, 2, false)), None, "too soon");
        assert_eq!(hole(seen(1448, 6, false)), None, "one segment");
        assert_eq!(hole(seen(0, 6, false)), None, "nothing more was sent");
        assert_eq!(hole(seen(1, 6, false)), None, "a FIN");
        assert_eq!(hole(seen(14_480, 6, true)), None, "they come");
        // A single one after six seconds of silence: who gives up gets it.
        assert_eq!(
            hole(seen_from(6, 14_480, 6, false)),
            Some(Confidence::Possible)
        );
        let [hole] = &seen(14_480, 6, false)[..] else {
            panic!("one direction")
        };
        assert_eq!(hole.findings[0].confidence, Confidence::Likely);
        let waits = |f: &model::finding::Finding| f.limit == Limit::RtoStall;
        assert!(hole.findings.iter().any(waits), "{hole:#?}");
    }
}

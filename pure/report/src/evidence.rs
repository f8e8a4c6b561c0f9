//! Evidence in words.

use crate::words::{escape, escape_sentence, glue, grouped, percent};
use model::finding::{Evidence, EvidenceKey, Quantity, Threshold};

/// A fact in one line: `RTT by the shortest, median: 3.45 (>= 1.25: standing queue)`.
pub(crate) fn line(fact: &Evidence) -> String {
    let subject = fact.subject.as_deref().map(|s| format!(" ({})", escape(s)));
    let at = fact.at.map(|at| format!(", at {}", glue(at)));
    let rule = fact.threshold.map(|threshold| {
        let (sign, bound) = match threshold {
            Threshold::AtLeast(bound) => (">=", bound),
            Threshold::AtMost(bound) => ("<=", bound),
        };
        let bound = glue(format!("{sign} {}", shown(&fact.quantity.with(bound))));
        match fact.key.meaning(threshold) {
            "" => format!(" ({bound})"),
            meaning => format!(" ({bound}: {meaning})"),
        }
    });
    format!(
        "{}{}: {}{}{}",
        fact.key.label(),
        subject.unwrap_or_default(),
        value(fact),
        at.unwrap_or_default(),
        rule.unwrap_or_default()
    )
}

/// The value, with its whole where it is a part.
fn value(fact: &Evidence) -> String {
    if fact.key == EvidenceKey::WaitFunction
        && let Quantity::Name(function) = &fact.quantity
    {
        return wait(&escape(function));
    }
    let part = glue(shown(&fact.quantity));
    let (Some(of), Some(number)) = (fact.of, fact.quantity.number()) else {
        return part;
    };
    let whole = glue(shown(&fact.quantity.with(of as f64)));
    let share = glue(percent(number / of.max(1) as f64));
    format!("{part} of {whole} ({share})")
}

fn shown(quantity: &Quantity) -> String {
    match quantity {
        Quantity::Count(n) => grouped(*n),
        Quantity::Bytes(bytes) => bytes.to_string(),
        Quantity::Time(time) => time.to_string(),
        // A window in an RTT of microseconds is a bound above every link, and no rate of anything.
        Quantity::BitRate(rate) if rate.0 >= FASTEST_LINK => "above every link".to_owned(),
        Quantity::BitRate(rate) => rate.to_string(),
        Quantity::Share(share) => percent(*share),
        Quantity::Ratio(x) | Quantity::Cpus(x) => format!("{x:.2}"),
        Quantity::Name(name) => escape_sentence(name),
    }
}

/// Rates from here on are of no link, in bit/s: Ethernet has 800 Gbit/s.
const FASTEST_LINK: u64 = 1_000_000_000_000;

/// A kernel function, with what it waits for where that is known.
fn wait(place: &str) -> String {
    let meaning = match place {
        p if p.contains("nanosleep") => "a timer of its own",
        p if p.contains("pipe") => "another process, by a pipe",
        p if p.contains("futex") => "another thread",
        p if p.contains("poll") || p.contains("select") => "whatever it polls for",
        p if p.contains("sk_wait") || p.contains("wait_woken") => "a socket",
        p if p.contains("io_schedule")
            || p.contains("blk")
            || p.contains("bio")
            || p.contains("dio") =>
        {
            "a disk"
        }
        p if p.contains("folio") || p.contains("page") => "the page cache: a disk",
        p if p.contains("wait4") || p == "do_wait" => "a child process",
        _ => return place.to_owned(),
    };
    format!("{place}: {meaning}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::finding::Source;
    use model::{BitRate, Bytes, Nanos};

    fn of(key: EvidenceKey, quantity: impl Into<Quantity>) -> Evidence {
        Evidence::new(key, quantity, Source::Samples)
    }

    #[test]
    fn facts_in_words() {
        for (fact, expected) in [
            (
                of(EvidenceKey::RttOverMinRtt, 3.451).at_least(1.25),
                "RTT by the shortest, median: 3.45 (>= 1.25: standing queue)",
            ),
            (
                of(EvidenceKey::RetransmittedSegments, 1600_u64).of(390_000),
                "retransmitted segments: 1,600 of 390,000 (0.41 %)",
            ),
            (
                of(EvidenceKey::VanishedSegment, Bytes(1448)).at(Nanos::from_millis(12)),
                "segment that is never acknowledged: 1.41 KiB, at 12.0 ms",
            ),
            (
                of(EvidenceKey::ReceiveWindowRate, BitRate(52_700_000_000_000)),
                "rate of one receive window in each RTT: above every link",
            ),
            (
                of(EvidenceKey::Goodput, BitRate(943_000_000)).at_least(9e8),
                "goodput: 943 Mbit/s (>= 900 Mbit/s)",
            ),
            (
                of(EvidenceKey::Duplex, "half").about("eth0"),
                "duplex (eth0): half",
            ),
            (
                of(EvidenceKey::WaitFunction, "do_nanosleep"),
                "waiting in: do_nanosleep: a timer of its own",
            ),
        ] {
            assert_eq!(line(&fact).replace('\u{a0}', " "), expected);
        }
    }

    #[test]
    fn labels_are_short_and_differ() {
        let mut labels: Vec<_> = EvidenceKey::ALL.iter().map(|k| k.label()).collect();
        assert!(labels.iter().all(|l| l.len() <= 64), "{labels:?}");
        let count = labels.len();
        labels.sort_unstable();
        labels.dedup();
        assert_eq!(labels.len(), count);
    }
}

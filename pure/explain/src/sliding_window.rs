//! What owned the last seconds of a connection, and what moved in them.

use model::finding::Limit;
use model::{Bytes, Nanos};
use std::collections::{BTreeMap, VecDeque};

const SECOND: u64 = 1_000_000_000;
/// Seconds that are looked back on, the present one included.
const SECONDS: u64 = 3;

#[derive(Clone, Debug, Default)]
pub(crate) struct SlidingWindow {
    /// Rising, at most [`SECONDS`] of them.
    seconds: VecDeque<SecondSums>,
}

#[derive(Clone, Debug, Default)]
struct SecondSums {
    number: u64,
    owned: BTreeMap<Limit, u64>,
    sent: u64,
    received: u64,
    retransmitted: u64,
}

/// The sums of the last seconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sums {
    pub span: Nanos,
    pub owned: BTreeMap<Limit, u64>,
    pub sent: Bytes,
    pub received: Bytes,
    pub retransmitted: u64,
}

impl SlidingWindow {
    /// A limit owned the time between two moments.
    pub fn own(&mut self, from: Nanos, to: Nanos, limit: Limit) {
        let mut from = from
            .0
            .max((to.0 / SECOND).saturating_sub(SECONDS - 1) * SECOND);
        while from < to.0 {
            let until = to.0.min((from / SECOND + 1).saturating_mul(SECOND));
            if let Some(second) = self.second(Nanos(from)) {
                *second.owned.entry(limit).or_default() += until - from;
            }
            from = until;
        }
    }

    pub fn sent(&mut self, at: Nanos, bytes: Bytes, retransmitted: u64) {
        if let Some(second) = self.second(at) {
            second.sent += bytes.0;
            second.retransmitted += retransmitted;
        }
    }

    pub fn received(&mut self, at: Nanos, bytes: Bytes) {
        if let Some(second) = self.second(at) {
            second.received += bytes.0;
        }
    }

    /// The second of a moment; `None` once it is too long ago.
    fn second(&mut self, at: Nanos) -> Option<&mut SecondSums> {
        let number = at.0 / SECOND;
        if self.seconds.back().is_none_or(|last| last.number < number) {
            self.seconds.push_back(SecondSums {
                number,
                ..SecondSums::default()
            });
            if self.seconds.len() > SECONDS as usize {
                self.seconds.pop_front();
            }
        }
        self.seconds.iter_mut().rev().find(|s| s.number == number)
    }

    /// The last seconds before `now`, of a connection that was first seen at `begun`.
    pub fn sums(&self, begun: Nanos, now: Nanos) -> Sums {
        let first = (now.0 / SECOND).saturating_sub(SECONDS - 1);
        let mut sums = Sums {
            span: now.since(Nanos(begun.0.max(first * SECOND))),
            ..Sums::default()
        };
        for second in self.seconds.iter().filter(|s| s.number >= first) {
            for (limit, time) in &second.owned {
                *sums.owned.entry(*limit).or_default() += time;
            }
            sums.sent += Bytes(second.sent);
            sums.received += Bytes(second.received);
            sums.retransmitted += second.retransmitted;
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_seconds_count() {
        let mut lately = SlidingWindow::default();
        let ms = |n: u64| Nanos(n * 1_000_000);
        lately.own(ms(0), ms(9_500), Limit::Application);
        lately.own(ms(9_500), ms(10_500), Limit::Pacing);
        lately.sent(ms(1_000), Bytes(9), 9);
        lately.sent(ms(9_900), Bytes(5), 1);
        lately.received(ms(10_100), Bytes(7));
        let sums = lately.sums(ms(0), ms(10_500));
        assert_eq!(sums.span, ms(2_500));
        let owned: Vec<_> = sums
            .owned
            .iter()
            .map(|(l, t)| (*l, t / 1_000_000))
            .collect();
        assert_eq!(owned, [(Limit::Application, 1_500), (Limit::Pacing, 1_000)]);
        assert_eq!(
            (sums.sent, sums.received, sums.retransmitted),
            (Bytes(5), Bytes(7), 1)
        );
        assert_eq!(lately.sums(ms(0), ms(20_000)).sent, Bytes(0));
    }

    #[test]
    fn each_second_counts_until_two_others_have_begun() {
        let mut lately = SlidingWindow::default();
        let ms = |n: u64| Nanos(n * 1_000_000);
        lately.own(ms(500), ms(2_500), Limit::Pacing);
        lately.own(ms(2_500), ms(3_000), Limit::Nagle);
        lately.sent(ms(999), Bytes(1), 1);
        lately.sent(ms(1_000), Bytes(2), 2);
        // Late ones count where their second still does.
        lately.received(ms(2_999), Bytes(4));
        lately.received(ms(2_000), Bytes(8));
        let of = |now| {
            let sums = lately.sums(ms(500), ms(now));
            let owned = [Limit::Pacing, Limit::Nagle].map(|l| sums.owned.get(&l).copied());
            let owned = owned.map(|time| time.unwrap_or(0) / 1_000_000);
            (
                owned,
                sums.span.0 / 1_000_000,
                sums.sent.0,
                sums.retransmitted,
                sums.received.0,
            )
        };
        assert_eq!(of(2_999), ([2_000, 500], 2_499, 3, 3, 12));
        assert_eq!(of(3_000), ([1_500, 500], 2_000, 2, 2, 12));
        assert_eq!(of(4_500), ([500, 500], 2_500, 0, 0, 12));
        lately.received(ms(4_000), Bytes(16));
        lately.received(ms(1_999), Bytes(32));
        assert_eq!(lately.sums(ms(4_400), ms(4_500)).span, ms(100));
        assert_eq!(
            lately.sums(ms(0), ms(4_500)).received,
            Bytes(28),
            "one was too late"
        );
    }
}

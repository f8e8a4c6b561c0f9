//! What the receiver of a stream of numbered datagrams counts: losses and their runs, order, duplicates, jitter and the
//! variation of the one-way delay.

use crate::{Arrivals, Datagrams, Latency, Nanos};

/// Numbers, the highest ones, of which is known whether they arrived: 131,072. A datagram that comes later than that
/// stays lost, and counts as a duplicate.
const WINDOW: u64 = 1 << 17;
const WORDS: usize = (WINDOW / 64) as usize;

/// Counts the datagrams of one stream, which are numbered from 1. The sender is not trusted: any numbers and times
/// may come.
#[derive(Clone, Debug, Default)]
pub struct ArrivalCounter {
    highest: u64,
    received: u64,
    out_of_order: u64,
    duplicates: u64,
    /// What the socket may have dropped before the datagram that comes next.
    may_be_dropped: u64,
    dropped: u64,
    /// Missing, and not dropped as far as is known: the socket may count a drop some messages late.
    unexplained: u64,
    /// A bit for each number of the window, at its remainder; empty before the first datagram.
    seen: Vec<u64>,
    runs: MissingRuns,
    /// Nanoseconds.
    jitter: f64,
    delay: Option<i64>,
    delays: DelayVariation,
}

impl ArrivalCounter {
    /// Takes one datagram that was sent at `sent` by its sender's clock and arrived `at` by this one; false if it
    /// does not count: a copy of one that came before, or without a number. The clocks need not agree: only
    /// differences of delays count.
    ///
    /// It is out of order if its number is below one that came before (RFC 4737, 3). The jitter is that of RFC 3550,
    /// 6.4.1.
    pub fn arrived(&mut self, number: u64, sent: Nanos, at: Nanos) -> bool {
        if number == 0 {
            return false;
        }
        self.explain(number.saturating_sub(self.highest.saturating_add(1)));
        if number > self.highest {
            self.advance(number, true);
        } else if self.highest - number >= WINDOW || self.is_seen(number) {
            self.duplicates += 1;
            return false;
        } else {
            self.out_of_order += 1;
            self.mark(number, true);
        }
        self.received += 1;
        let delay = at.0.cast_signed().saturating_sub(sent.0.cast_signed());
        if let Some(before) = self.delay.replace(delay) {
            let difference = delay.abs_diff(before) as f64;
            self.jitter += (difference - self.jitter) / 16.0;
        }
        self.delays.add(delay);
        true
    }

    /// The socket had no room for datagrams, at most so many, between the last one and the next.
    pub fn dropped(&mut self, at_most: u64) {
        self.may_be_dropped = self.may_be_dropped.saturating_add(at_most);
    }

    /// The sender reports that it has sent so many, and ends the stream.
    pub fn ended(&mut self, sent: u64) {
        self.explain(sent.saturating_sub(self.highest));
        if sent > self.highest {
            self.advance(sent, false);
        }
    }

    /// Takes what the socket may have dropped as the reason of a gap of so many, and of gaps before it.
    fn explain(&mut self, gap: u64) {
        let may_be_dropped = std::mem::take(&mut self.may_be_dropped);
        let here = may_be_dropped.min(gap);
        let before = (may_be_dropped - here).min(self.unexplained);
        self.dropped = self.dropped.saturating_add(here + before);
        self.unexplained = (self.unexplained - before).saturating_add(gap - here);
    }

    /// The counts so far.
    pub fn totals(&self) -> Datagrams {
        Datagrams {
            packets: self.highest,
            lost: self.highest - self.received,
            out_of_order: self.out_of_order,
            jitter: Nanos(self.jitter as u64),
        }
    }

    /// Everything that is known at the end.
    pub fn arrivals(&mut self) -> Arrivals {
        let mut runs = self.runs.clone();
        for number in self.highest.saturating_sub(WINDOW - 1).max(1)..=self.highest {
            runs.add(self.is_seen(number));
        }
        Arrivals {
            received: self.received,
            duplicates: self.duplicates,
            // Some may have come late by another path.
            dropped: self.dropped.min(self.highest - self.received),
            loss_events: runs.events,
            longest_loss: runs.longest,
            delay_variation: self.delays.report(),
        }
    }

    /// Moves the window on to a number above all before, which is there or not; those between are not.
    fn advance(&mut self, number: u64, is_there: bool) {
        self.seen.resize(WORDS, 0);
        let next = self.highest + 1;
        if number - self.highest > WINDOW {
            for old in next.saturating_sub(WINDOW).max(1)..next {
                let seen = self.is_seen(old);
                self.runs.add(seen);
            }
            self.runs.lose(number - WINDOW - self.highest);
            self.seen.fill(0);
        } else {
            for new in next..=number {
                if new > WINDOW {
                    let seen = self.is_seen(new);
                    self.runs.add(seen);
                }
                self.mark(new, false);
            }
        }
        self.mark(number, is_there);
        self.highest = number;
    }

    /// Of a number in the window, or of the one that has its place.
    fn is_seen(&self, number: u64) -> bool {
        let place = number % WINDOW;
        let word = self.seen.get((place / 64) as usize);
        word.is_some_and(|word| word >> (place % 64) & 1 == 1)
    }

    fn mark(&mut self, number: u64, is_there: bool) {
        let place = number % WINDOW;
        if let Some(word) = self.seen.get_mut((place / 64) as usize) {
            let bit = 1 << (place % 64);
            *word = *word & !bit | if is_there { bit } else { 0 };
        }
    }
}

/// Runs of numbers that are missing.
#[derive(Clone, Debug, Default)]
struct MissingRuns {
    current: u64,
    events: u64,
    longest: u64,
}

impl MissingRuns {
    fn add(&mut self, is_there: bool) {
        match is_there {
            true => self.current = 0,
            false => self.lose(1),
        }
    }

    fn lose(&mut self, count: u64) {
        self.events += u64::from(self.current == 0 && count > 0);
        self.current = self.current.saturating_add(count);
        self.longest = self.longest.max(self.current);
    }
}

/// One-way delays above the smallest of them, as a histogram whose buckets are less than 1 % wide.
#[derive(Clone, Debug, Default)]
struct DelayVariation {
    smallest: i64,
    /// By bucket, above the smallest.
    counts: Vec<u64>,
    /// Not in the buckets yet: a smaller one moves them all, so they are added many at once.
    recent: Vec<i64>,
}

impl DelayVariation {
    const MANY: usize = 2048;

    fn add(&mut self, delay: i64) {
        self.recent.push(delay);
        if self.recent.len() == DelayVariation::MANY {
            self.settle();
        }
    }

    fn settle(&mut self) {
        let Some(&smallest) = self.recent.iter().min() else {
            return;
        };
        if self.counts.is_empty() {
            self.smallest = smallest;
        } else if smallest < self.smallest {
            let more = smallest.abs_diff(self.smallest);
            self.smallest = smallest;
            let before = std::mem::take(&mut self.counts);
            for (bucket, count) in before.into_iter().enumerate().filter(|(_, n)| *n > 0) {
                self.count(value(bucket).saturating_add(more), count);
            }
        }
        for delay in std::mem::take(&mut self.recent) {
            self.count(delay.abs_diff(self.smallest), 1);
        }
    }

    fn count(&mut self, above: u64, more: u64) {
        let bucket = bucket(above);
        if self.counts.len() <= bucket {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += more;
    }

    fn report(&mut self) -> Latency {
        self.settle();
        let counts = self.counts.iter().enumerate();
        Latency::from_counts(counts.map(|(bucket, count)| (value(bucket), *count)))
    }
}

/// Buckets of a power of two.
const EACH: u64 = 128;

/// The bucket of a value: up to 255 its own, above that one of 128 for each power of two.
fn bucket(value: u64) -> usize {
    let shift = u64::from(value.max(EACH).ilog2() - EACH.ilog2());
    (shift * EACH + (value >> shift)) as usize
}

/// The middle of a bucket.
fn value(bucket: usize) -> u64 {
    let shift = (bucket as u64 / EACH).saturating_sub(1);
    let steps = bucket as u64 - shift * EACH;
    (steps << shift) + (1 << shift) / 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn counted(numbers: impl IntoIterator<Item = u64>) -> ArrivalCounter {
        let mut counter = ArrivalCounter::default();
        for number in numbers {
            counter.arrived(number, Nanos(0), Nanos(0));
        }
        counter
    }

    #[test]
    fn loss_order_and_duplicates() {
        let mut counter = counted([1, 2, 5, 3, 6, 6, 3, 9]);
        let totals = counter.totals();
        assert_eq!(
            (totals.packets, totals.lost, totals.out_of_order),
            (9, 3, 1)
        );
        let arrivals = counter.arrivals();
        assert_eq!((arrivals.received, arrivals.duplicates), (6, 2));
        // 4; 7 and 8.
        assert_eq!((arrivals.loss_events, arrivals.longest_loss), (2, 2));
        counter.ended(12);
        let arrivals = counter.arrivals();
        assert_eq!(counter.totals().lost, 6);
        assert_eq!((arrivals.loss_events, arrivals.longest_loss), (3, 3));
    }

    #[test]
    fn jitter_by_the_rfc() {
        let mut counter = ArrivalCounter::default();
        // Sent every 10 ms; delays of 5, 7, 5 ms (plus any clock offset).
        for (number, sent, at) in [(1, 0, 1005), (2, 10, 1017), (3, 20, 1025)] {
            counter.arrived(number, Nanos::from_millis(sent), Nanos::from_millis(at));
        }
        // J1 = 2/16 ms; J2 = J1 + (2 - J1)/16.
        let expected = 125_000.0 + (2_000_000.0 - 125_000.0) / 16.0;
        assert_eq!(counter.totals().jitter, Nanos(expected as u64));
        let variation = counter.arrivals().delay_variation;
        assert_eq!(variation.percentile(0.5), Some(Nanos(0)));
        let most = variation.max().unwrap().0;
        assert!(most.abs_diff(2_000_000) < 20_000, "{most}");
    }

    #[test]
    fn what_the_socket_dropped_is_no_more_than_what_is_missing() {
        let mut counter = counted([1, 2]);
        counter.dropped(64);
        counter.arrived(13, Nanos(0), Nanos(0));
        // On the path.
        counter.arrived(20, Nanos(0), Nanos(0));
        assert_eq!(counter.arrivals().dropped, 10);
        // Counted one message late.
        counter.dropped(2);
        counter.arrived(21, Nanos(0), Nanos(0));
        assert_eq!(counter.arrivals().dropped, 12);
        counter.dropped(1);
        counter.ended(30);
        assert_eq!(counter.arrivals().dropped, 13);
        assert_eq!(counter.totals().lost, 25);
    }

    #[test]
    fn a_number_far_above_all_others_takes_no_longer() {
        let mut counter = counted([1, 3, u64::MAX, 2]);
        let arrivals = counter.arrivals();
        assert_eq!((arrivals.received, arrivals.duplicates), (3, 1));
        assert_eq!(counter.totals().lost, u64::MAX - 3);
        assert_eq!(
            (arrivals.loss_events, arrivals.longest_loss),
            (2, u64::MAX - 4)
        );
    }

    #[test]
    fn a_smaller_delay_moves_all_before() {
        let mut delays = DelayVariation::default();
        for _ in 0..DelayVariation::MANY {
            delays.add(1_000_000);
        }
        delays.add(-1_000_000);
        let report = delays.report();
        assert_eq!(report.count(), DelayVariation::MANY as u64 + 1);
        assert_eq!(report.percentile(0.0), Some(Nanos(0)));
        let usual = report.percentile(0.5).unwrap().0;
        assert!(usual.abs_diff(2_000_000) < 20_000, "{usual}");
    }

    proptest! {
        #[test]
        fn buckets_are_narrow(above: u64) {
            let near = value(bucket(above));
            prop_assert!(near.abs_diff(above) <= above / 128);
            prop_assert_eq!(bucket(near), bucket(above));
        }

        #[test]
        fn runs_are_those_of_what_did_not_come(
            kept in proptest::collection::vec(any::<bool>(), 1..2000),
            swap in any::<usize>(),
        ) {
            let mut numbers: Vec<u64> = (1..).zip(&kept).filter(|(_, kept)| **kept).map(|(n, _)| n).collect();
            if numbers.len() > 1 {
                let at = swap % (numbers.len() - 1);
                numbers.swap(at, at + 1);
            }
            let mut counter = counted(numbers.iter().copied());
            counter.ended(kept.len() as u64);
            let arrivals = counter.arrivals();
            let lost: Vec<usize> = kept.split(|kept| *kept).map(<[bool]>::len).filter(|n| *n > 0).collect();
            prop_assert_eq!(arrivals.loss_events, lost.len() as u64);
            prop_assert_eq!(arrivals.longest_loss, lost.iter().copied().max().unwrap_or(0) as u64);
            prop_assert_eq!(arrivals.received, numbers.len() as u64);
            prop_assert_eq!(counter.totals().lost, (kept.len() - numbers.len()) as u64);
            prop_assert_eq!(counter.totals().out_of_order, u64::from(numbers.len() > 1));
        }

        #[test]
        fn runs_are_the_same_beyond_the_window(gap in 1..3 * WINDOW, before in 1..2 * WINDOW) {
            let mut counter = counted((1..=before).chain([before + gap + 1]));
            let arrivals = counter.arrivals();
            prop_assert_eq!((arrivals.loss_events, arrivals.longest_loss), (1, gap));
            prop_assert_eq!(counter.totals().lost, gap);
        }

        #[test]
        fn any_order_of_all_datagrams_loses_none(order in Just((1..50u64).collect::<Vec<_>>()).prop_shuffle()) {
            let mut counter = counted(order);
            prop_assert_eq!((counter.totals().lost, counter.totals().packets), (0, 49));
            prop_assert_eq!(counter.arrivals().loss_events, 0);
        }
    }
}

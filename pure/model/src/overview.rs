//! The samples of a long leg in bounded memory: evenly thinned, the more the longer it lasts.
//!
//! Counters count from the start of the leg, so what lies between two samples is right however many were left out.

use crate::{EndRecord, Latency, Nanos, Sample};

/// Streams of all samples of an end that are held at the most, of one end some 40 MB.
const MOST: u64 = 1 << 16;

/// Samples of an end that are held whatever the number of streams.
const FEWEST: u64 = 1 << 11;

/// Each how many-th sample is held, of so many of so many streams: as few are left out as can be, in steps of two.
fn stride(samples: u64, streams: u32) -> u64 {
    let most = (MOST / u64::from(streams.max(1))).max(FEWEST);
    samples.div_ceil(most).max(1).next_power_of_two()
}

impl EndRecord {
    /// Takes in the next sample of a leg of so many streams: the first and the last stay, of those between each so
    /// many-th. The requests of one that is left out are those of the next.
    pub fn push(&mut self, mut sample: Sample, streams: u32) {
        let before = self.taken();
        let (was, is) = (stride(before, streams), stride(before + 1, streams));
        // What was the last one stood for the end.
        let mut left_out = match before.checked_sub(1) {
            Some(last) if last % was > 0 => self.samples.pop().and_then(|last| last.requests),
            _ => None,
        };
        if is > was {
            let mut place = 0;
            let mut earlier: Option<Latency> = None;
            self.samples.retain_mut(|one| {
                one.requests = together(earlier.take(), one.requests.take());
                place += 1;
                let stays = place % 2 == 1;
                if !stays {
                    earlier = one.requests.take();
                }
                stays
            });
            left_out = together(earlier, left_out);
        }
        sample.requests = together(left_out, sample.requests);
        self.samples.push(sample);
        self.thinned_from = (is > 1).then_some(before + 1);
    }

    /// How many samples were taken, those that were left out included.
    pub fn taken(&self) -> u64 {
        self.thinned_from.unwrap_or(self.samples.len() as u64)
    }

    /// From one sample that is held to the next, where one was taken every `interval`.
    pub fn spacing(&self, interval: Nanos) -> Nanos {
        match self.samples.len() as u64 {
            0 => interval,
            held => {
                Nanos((u128::from(interval.0) * u128::from(self.taken()) / u128::from(held)) as u64)
            }
        }
    }
}

fn together(a: Option<Latency>, b: Option<Latency>) -> Option<Latency> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.merged(&b)),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_leg_keeps_its_ends_its_requests_and_an_even_spacing() {
        let streams = 1000;
        for count in [1, 2, FEWEST, FEWEST + 1, 3 * FEWEST, 8 * FEWEST + 5] {
            let mut end = EndRecord::default();
            for n in 0..count {
                let sample = Sample {
                    at: Nanos(n),
                    requests: Some(Latency::from_counts([(n, 1)])),
                    ..Sample::default()
                };
                end.push(sample, streams);
            }
            let held = end.samples.len() as u64;
            assert!(
                held <= FEWEST + 1 && held >= count.min(FEWEST / 2),
                "{count}: {held}"
            );
            assert_eq!(
                (end.taken(), end.thinned_from.is_some()),
                (count, held < count)
            );
            assert_eq!(end.samples[0].at, Nanos(0));
            assert_eq!(end.samples[held as usize - 1].at, Nanos(count - 1));
            let stride = stride(count, streams);
            let even = end.samples.windows(2).rev().skip(1);
            even.for_each(|pair| assert_eq!(pair[1].at.0 - pair[0].at.0, stride));
            let mut next = 0;
            for sample in &end.samples {
                let counts = sample.requests.as_ref().unwrap().counts();
                let since: Vec<(u64, u64)> = (next..=sample.at.0).map(|n| (n, 1)).collect();
                assert_eq!(counts, since);
                next = sample.at.0 + 1;
            }
        }
    }
}

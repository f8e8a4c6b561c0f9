//! The state of one host at one time.

use crate::{Bytes, Datagrams, Latency, Nanos, SocketState};
use serde::{Deserialize, Serialize};

/// One reading at one host of a leg. All counters count from the start of the leg, so that the
/// difference of any two samples is right and a lost sample loses nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Time since this host started the leg.
    #[serde(rename = "at_ns")]
    pub at: Nanos,
    /// Application bytes: written at the sender, read at the receiver.
    pub bytes: Bytes,
    /// One entry a stream, of the first 128.
    pub streams: Vec<StreamSample>,
    /// Processor time of this process and of the whole host.
    pub cpu: CpuTimes,
    /// The requests finished since the sample before (request workload, at the client only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<Latency>,
    /// Datagrams of all streams so far, as this host counts them (UDP), with the current jitter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datagrams: Option<Datagrams>,
}

/// Streams of a leg whose sockets are read, the first ones: reading all of thousands would cost more than their load,
/// and a sample of them fills a disk.
pub const MOST_SAMPLED: usize = 128;

/// One stream of a [`Sample`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StreamSample {
    /// Number of the stream within its leg, from 0.
    pub stream: u32,
    /// Application bytes of this stream.
    pub bytes: Bytes,
    /// The kernel's account of the socket; `None` once it is closed, or for UDP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<SocketState>,
    /// `SO_SNDBUF` as the kernel holds it now: autotuning moves it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send_buffer: Option<Bytes>,
    /// `SO_RCVBUF` as the kernel holds it now: autotuning moves it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive_buffer: Option<Bytes>,
}

/// Parts the samples of a leg into the rows that a reader gets while it runs: one a second, or one a sample where
/// samples are farther apart.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    interval: Nanos,
    at: Nanos,
}

impl Rows {
    const SHORTEST: Nanos = Nanos::from_secs(1);

    /// Of a leg that is sampled at this interval.
    pub fn new(interval: Nanos) -> Rows {
        Rows {
            interval,
            at: Nanos(0),
        }
    }

    /// Time that a row covers.
    pub fn span(&self) -> Nanos {
        self.interval.max(Rows::SHORTEST)
    }

    /// Whether the sample taken `at` this moment ends a row. Samples may come up to an eighth of their interval early.
    pub fn ends(&mut self, at: Nanos) -> bool {
        let number = |at: Nanos| (at + Nanos(self.interval.0 / 8)).0 / self.span().0;
        let ends = number(at) > number(self.at);
        if ends {
            self.at = at;
        }
        ends
    }
}

/// The readings that bound intervals with a rate: none is shorter than half of the median interval, since a few bytes in a
/// microsecond are no rate. What is shorter belongs to the interval that follows, at the end to the one before.
pub fn interval_ends<T>(readings: &[T], at: impl Fn(&T) -> Nanos) -> Vec<&T> {
    let length = |from: &T, to: &T| at(to).since(at(from));
    let pairs = readings.windows(2);
    let mut lengths: Vec<Nanos> = pairs.map(|pair| length(&pair[0], &pair[1])).collect();
    lengths.sort_unstable();
    let (Some(median), [first, rest @ ..]) = (lengths.get(lengths.len() / 2), readings) else {
        return readings.iter().collect();
    };
    let least = Nanos(median.0.div_ceil(2));
    let mut ends = vec![first];
    let mut left_over = None;
    for reading in rest {
        left_over = Some(reading);
        if length(ends[ends.len() - 1], reading) >= least {
            ends.push(reading);
            left_over = None;
        }
    }
    if let Some(last) = left_over {
        if ends.len() > 1 {
            ends.pop();
        }
        ends.push(last);
    }
    ends
}

/// Processor time used since the leg began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuTimes {
    /// This process in user mode.
    #[serde(rename = "process_user_ns")]
    pub process_user: Nanos,
    /// This process in kernel mode.
    #[serde(rename = "process_system_ns")]
    pub process_system: Nanos,
    /// All processors of the host, busy with anything, interrupts included.
    #[serde(rename = "host_busy_ns")]
    pub host_busy: Nanos,
    /// The busiest processor of the host, summed over windows of a tenth of a second: equal to the wall time if there always
    /// was a full one. `None` if not known.
    #[serde(
        rename = "busiest_processor_ns",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub busiest_processor: Option<Nanos>,
    /// Part of busy spent in soft interrupts, where most of the receive path runs.
    #[serde(rename = "host_softirq_ns")]
    pub host_softirq: Nanos,
    /// Part of the time that the hypervisor gave to others.
    #[serde(rename = "host_steal_ns")]
    pub host_steal: Nanos,
    /// All processors of the host, busy and idle.
    #[serde(rename = "host_total_ns")]
    pub host_total: Nanos,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ends(interval_ms: u64, at_ms: impl IntoIterator<Item = u64>) -> Vec<u64> {
        let mut rows = Rows::new(Nanos::from_millis(interval_ms));
        let mut at_ms: Vec<u64> = at_ms.into_iter().collect();
        at_ms.retain(|at| rows.ends(Nanos::from_millis(*at)));
        at_ms
    }

    /// Where the ends of intervals stand among these moments.
    fn places(moments: &[Nanos]) -> Vec<usize> {
        let placed: Vec<(usize, Nanos)> = moments.iter().copied().enumerate().collect();
        let ends = interval_ends(&placed, |(_, at)| *at);
        ends.into_iter().map(|(n, _)| *n).collect()
    }

    proptest! {
        #[test]
        fn no_interval_is_much_shorter_than_most(
            steps in prop::collection::vec(prop_oneof![0..10_u64, 90_000_000..110_000_000_u64], 1..40),
        ) {
            let mut moments = vec![Nanos(0)];
            for step in &steps {
                moments.push(moments[moments.len() - 1] + Nanos(*step));
            }
            let ends = places(&moments);
            prop_assert_eq!((ends[0], ends[ends.len() - 1]), (0, steps.len()));
            let mut steps = steps;
            steps.sort_unstable();
            let median = steps[steps.len() / 2];
            for pair in ends.windows(2).filter(|_| ends.len() > 2) {
                prop_assert!(moments[pair[1]].since(moments[pair[0]]).0 * 2 >= median);
            }
        }
    }

    #[test]
    fn what_is_left_over_is_no_interval() {
        let ends = |at: &[u64]| places(&at.iter().map(|at| Nanos(*at)).collect::<Vec<_>>());
        assert_eq!(ends(&[0, 100, 200, 201]), [0, 1, 3], "at the end");
        assert_eq!(ends(&[0, 1, 100, 200]), [0, 2, 3], "at the begin");
        assert_eq!(ends(&[0, 1, 100]), [0, 2]);
        assert_eq!(ends(&[0, 100, 250, 300]), [0, 1, 2, 3]);
        assert_eq!(
            (ends(&[]), ends(&[7]), ends(&[7, 7])),
            (vec![], vec![0], vec![0, 1])
        );
    }

    #[test]
    fn a_row_is_a_second_or_a_sample() {
        let often = (0..=30).map(|n| n * 100 + 3);
        assert_eq!(ends(100, often), [1003, 2003, 3003]);
        assert_eq!(ends(100, [0, 900, 995, 1100, 1998, 2100]), [995, 1998]);
        assert_eq!(ends(1000, [0, 1001, 1999, 3000]), [1001, 1999, 3000]);
        assert_eq!(ends(2000, [0, 2000, 4001]), [2000, 4001]);
        // A sample that is missing does not move the rows after it.
        assert_eq!(ends(100, [0, 1400, 1900, 2000, 3000]), [1400, 2000, 3000]);
    }
}

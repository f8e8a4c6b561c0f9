//! Queueing delay on each way, by the timestamps that both ends put on their segments (RFC 7323).

use crate::facts::ReverseQueueing;
use model::Nanos;
use tcp::seq::before;
use tcp::thresholds::TIMESTAMP_TICK;

/// Fewer readings with timestamps of both hosts are no evidence.
const FEWEST_READINGS: u64 = 10;
/// Ticks of a clock that show that each is a millisecond.
const FEWEST_MILLISECONDS: f64 = 100.0;
/// Clocks drift by up to a millisecond in so long (50 ppm): what is less late than all before is looked for in so long again.
const LEAST_OVER: Nanos = Nanos::from_secs(10);

/// What is certain of a lateness in microseconds: a stamp may be a tick old when it is sent.
pub(crate) fn in_ticks(late: u32) -> Nanos {
    Nanos::from_micros(late.into()).since(TIMESTAMP_TICK)
}

/// How much later than its timestamp each packet of an end passes, above the least that was seen (RFC 7323). Linux counts
/// milliseconds; of a clock that ticks otherwise nothing is known.
#[derive(Clone, Copy, Debug, Default)]
struct Lateness {
    /// The least time from a timestamp to its packet, in microseconds from an arbitrary moment: of this stretch of
    /// [`LEAST_OVER`], and of the one before.
    least: Option<[u32; 2]>,
    since: Nanos,
    first: Option<(Nanos, u32)>,
    last: (Nanos, u32),
    /// The least lateness of the reading that runs, in microseconds; and whether it counts the last packet.
    of_reading: Option<u32>,
    counted: bool,
}

impl Lateness {
    /// A packet passed.
    #[inline]
    fn push(&mut self, at: Nanos, value: u32) {
        // What follows with the same timestamp is later by the time between them.
        let (last, tick) = self.last;
        let is_later = value == tick && at >= last && at.since(self.since) < LEAST_OVER;
        match self.counted && is_later {
            true => self.last.0 = at,
            false => _ = self.of(at, value),
        }
    }

    /// The same, so late, in microseconds; none of one that shows that the others were late.
    #[inline(never)]
    fn of(&mut self, at: Nanos, value: u32) -> Option<u32> {
        self.first.get_or_insert((at, value));
        self.last = (at, value);
        let apart = ((at.0 / 1000) as u32).wrapping_sub(value.wrapping_mul(1000));
        let least = self.least.get_or_insert([apart; 2]);
        if at.since(self.since) >= LEAST_OVER {
            (*least, self.since) = ([apart, least[0]], at);
        }
        let late = least.map(|least| apart.wrapping_sub(least));
        if before(apart, least[0]) {
            least[0] = apart;
        }
        self.counted = late.iter().all(|late| *late <= u32::MAX / 2);
        let late = self.counted.then(|| late[0].max(late[1]))?;
        self.of_reading = Some(self.of_reading.map_or(late, |least| least.min(late)));
        Some(late)
    }

    /// A reading ends: the least lateness of it.
    fn read(&mut self) -> Option<u32> {
        self.counted = false;
        self.of_reading.take()
    }

    /// The clock ticks once in a millisecond, as far as packets that were late themselves can show it.
    fn is_in_milliseconds(&self) -> bool {
        let Some((at, value)) = self.first else {
            return false;
        };
        let ticks = f64::from(self.last.1.wrapping_sub(value));
        let time = self.last.0.since(at).0 as f64 / TIMESTAMP_TICK.0 as f64;
        // A queue that grows all the time holds back the later ones; the next longer tick in use has 4 ms.
        ticks >= FEWEST_MILLISECONDS && (0.3..2.0).contains(&(ticks / time))
    }
}

/// Queueing delay by timestamps, summed over readings: before the observer for data, behind it for acknowledgements.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stamped {
    /// Of the sender's timestamps on its data, and of the receiver's on its acknowledgements.
    data: Lateness,
    acks: Lateness,
    readings: u64,
    /// Sums, in microseconds.
    late: [u64; 2],
    srtt: Nanos,
    echo: Nanos,
}

impl Stamped {
    /// Data passed with this timestamp.
    #[inline]
    pub fn data(&mut self, at: Nanos, value: u32) {
        self.data.push(at, value);
    }

    /// The same, which were so late, in microseconds.
    pub fn data_late(&mut self, at: Nanos, value: u32) -> Option<u32> {
        self.data.of(at, value)
    }

    /// An acknowledgement passed with this timestamp.
    #[inline]
    pub fn ack(&mut self, at: Nanos, value: u32) {
        self.acks.push(at, value);
    }

    /// A reading ends: how late its data were at the least.
    pub fn read(&mut self, srtt: Nanos, echo: Nanos) -> Nanos {
        let (acks, data) = (self.acks.read(), self.data.read());
        if let (Some(acks), Some(data)) = (acks, data) {
            self.readings += 1;
            self.late[0] += u64::from(acks);
            self.late[1] += u64::from(data);
            self.srtt += srtt;
            self.echo += echo;
        }
        in_ticks(data.unwrap_or(0))
    }

    /// The sender's timestamps count milliseconds.
    pub fn is_data_in_milliseconds(&self) -> bool {
        self.data.is_in_milliseconds()
    }

    /// Means of the sums: how late acknowledgements and data were; the round trips to the receiver and to the sender.
    fn means(&self) -> Option<[Nanos; 4]> {
        let in_time = self.data.is_in_milliseconds() && self.acks.is_in_milliseconds();
        if !in_time || self.readings < FEWEST_READINGS {
            return None;
        }
        let [acks, data] = self.late.map(|sum| sum * 1000);
        let mean = |sum: u64| Nanos(sum / self.readings);
        Some([acks, data, self.srtt.0, self.echo.0].map(mean))
    }

    /// At the sender, of this shortest round trip.
    pub fn reverse_queueing_at_sender(&self, min_rtt: Nanos) -> Option<ReverseQueueing> {
        let [acks, _, srtt, _] = self.means().filter(|_| min_rtt.0 > 0)?;
        Some(ReverseQueueing::of(acks, srtt.since(min_rtt)))
    }

    /// At the receiver, with so much from there to the sender and back. Data left the sender as late as the
    /// acknowledgements before them came.
    pub fn reverse_queueing_at_receiver(&self, near: Nanos) -> Option<ReverseQueueing> {
        let [_, data, _, echo] = self.means()?;
        let all = echo.since(near);
        Some(ReverseQueueing::of(all.since(data), all))
    }
}

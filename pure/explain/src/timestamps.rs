//! Queueing delay on each way, by the timestamps that both ends put on their segments (RFC 7323).

use crate::facts::ReverseQueueing;
use model::Nanos;
use tcp::seq::before;
use tcp::thresholds::TIMESTAMP_TICK;

/// Fewer readings with timestamps of both hosts are no evidence.
const FEWEST_READINGS: u64 = 10;
/// Ticks of a clock that show that each is a millisecond.
const FEWEST_MILLISECONDS: f64 = 100.0;
/// Microseconds that a tick takes: Linux 1 ms, or as the timer of the kernel, older BSD 10 to 100 ms.
const TICKS: [u32; 4] = [1_000, 4_000, 10_000, 100_000];
/// Fewer ticks do not show how long one is; it may differ from the usual lengths by this part.
const FEWEST_TICKS: u32 = 5;
const TICK_WITHIN: f64 = 0.25;
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
    /// Whether a packet that passed has the timestamp of the one before it: then it is later by the time between them.
    #[inline]
    fn follows(&mut self, at: Nanos, value: u32) -> bool {
        let (last, tick) = self.last;
        let is_later = value == tick && at >= last && at.since(self.since) < LEAST_OVER;
        let follows = self.counted && is_later;
        if follows {
            self.last.0 = at;
        }
        follows
    }

    /// Another passed, so late, in microseconds; none of one that shows that the others were late.
    #[inline(never)]
    fn of(&mut self, at: Nanos, value: u32) -> Option<u32> {
        self.first.get_or_insert((at, value));
        self.last = (at, value);
        let apart = apart(at, value, TICKS[0]);
        let least = self.least.get_or_insert([apart; 2]);
        if at.since(self.since) >= LEAST_OVER {
            (*least, self.since) = ([apart, least[0]], at);
        }
        let late = least.map(|least| apart.wrapping_sub(least));
        // Of both: else all that follow in this stretch would seem to be less late than what was seen before.
        for least in least {
            if before(apart, *least) {
                *least = apart;
            }
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

/// From a timestamp to its packet, in microseconds from an arbitrary moment, if a tick takes so many.
fn apart(at: Nanos, value: u32, tick: u32) -> u32 {
    ((at.0 / 1000) as u32).wrapping_sub(value.wrapping_mul(tick))
}

/// How much later than its timestamp each packet passes, by the least that was seen before, for each length that a tick may
/// have (RFC 7323, 5.4): which one it is shows only in time.
#[derive(Clone, Copy, Debug, Default)]
struct TickLateness {
    least: Option<[u32; TICKS.len()]>,
    /// Packets, and the microseconds that they were late; those of the tick that runs are not in them yet.
    count: u32,
    late: [u64; TICKS.len()],
    tick: RunningTick,
}

/// The packets of one timestamp: each is later than the first by the time between them, however long a tick is.
#[derive(Clone, Copy, Debug, Default)]
struct RunningTick {
    /// Of the first of them.
    at: Nanos,
    value: u32,
    /// How late it was.
    by: [u32; TICKS.len()],
    /// Packets that count, and the time from the first to each of them.
    count: u32,
    since: Nanos,
}

impl RunningTick {
    /// How late all of them were, by the length of a tick at this place.
    fn late(&self, place: usize) -> u64 {
        u64::from(self.by[place]) * u64::from(self.count) + self.since.0 / 1000
    }
}

impl TickLateness {
    /// A packet passed, of the tick that runs.
    #[inline]
    fn follow(&mut self, at: Nanos) {
        self.tick.count += 1;
        self.tick.since += at.since(self.tick.at);
    }

    /// Another passed.
    fn push(&mut self, at: Nanos, value: u32) {
        // In so much time no lateness wraps.
        let room = u32::MAX / 2 - self.tick.by.into_iter().fold(0, u32::max);
        let is_soon = at.since(self.tick.at) <= Nanos::from_micros(room.into());
        if self.least.is_none() || value != self.tick.value || at < self.tick.at || !is_soon {
            self.begin(at, value);
        }
        self.follow(at);
    }

    /// The first packet of a timestamp.
    fn begin(&mut self, at: Nanos, value: u32) {
        let least = self
            .least
            .get_or_insert(TICKS.map(|tick| apart(at, value, tick)));
        self.count += self.tick.count;
        let mut by = [0; TICKS.len()];
        for (n, tick) in TICKS.into_iter().enumerate() {
            self.late[n] += self.tick.late(n);
            let late = apart(at, value, tick).wrapping_sub(least[n]);
            if late > u32::MAX / 2 {
                least[n] = least[n].wrapping_add(late);
            } else {
                by[n] = late;
            }
        }
        self.tick = RunningTick {
            at,
            value,
            by,
            ..RunningTick::default()
        };
    }

    /// The mean, where the timestamps are a clock of so many ticks in this time, and the packets are later than one of them.
    fn mean(&self, time: Nanos, ticks: u32) -> Option<Nanos> {
        if ticks < FEWEST_TICKS {
            return None;
        }
        let length = time.0 as f64 / 1e3 / f64::from(ticks);
        let fits = |tick: &u32| (length / f64::from(*tick) - 1.0).abs() <= TICK_WITHIN;
        let place = TICKS.iter().position(fits)?;
        let late = self.late[place] + self.tick.late(place);
        let mean = late.checked_div((self.count + self.tick.count).into())?;
        // On the average a packet leaves half a tick after the tick of its stamp.
        let late = mean.saturating_sub(u64::from(TICKS[place] / 2));
        (late >= TICKS[place].into()).then_some(Nanos::from_micros(late))
    }
}

/// Queueing delay by timestamps, summed over readings: before the observer for data, behind it for acknowledgements.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stamped {
    /// Of the sender's timestamps on its data, and of the receiver's on its acknowledgements.
    data: Lateness,
    acks: Lateness,
    /// The mean of that of data, however long a tick is.
    ticks: TickLateness,
    readings: u64,
    /// Sums, in microseconds.
    late: [u64; 2],
    srtt: Nanos,
    echo: Nanos,
}

impl Stamped {
    /// The sender's first data had passed then with this timestamp, before any that count.
    pub fn after(first: Option<(Nanos, u32)>) -> Stamped {
        let mut stamped = Stamped::default();
        if let Some((at, value)) = first {
            stamped.ticks.begin(at, value);
            stamped.data.of(at, value);
        }
        stamped
    }

    /// Data passed with this timestamp; in the mean they count or not.
    #[inline]
    pub fn data(&mut self, at: Nanos, value: u32, counts: bool) {
        match self.data.follows(at, value) {
            true if counts => self.ticks.follow(at),
            true => {}
            false => _ = self.data_late(at, value, counts),
        }
    }

    /// The same, which were so late, in microseconds.
    #[inline(never)]
    pub fn data_late(&mut self, at: Nanos, value: u32, counts: bool) -> Option<u32> {
        if counts {
            self.ticks.push(at, value);
        }
        self.data.of(at, value)
    }

    /// An acknowledgement passed with this timestamp.
    #[inline]
    pub fn ack(&mut self, at: Nanos, value: u32) {
        if !self.acks.follows(at, value) {
            self.acks.of(at, value);
        }
    }

    /// How late data were on the average, at their sender, where that is later than its clock ticks.
    pub fn mean_late(&self) -> Option<Nanos> {
        let (from, first) = self.data.first?;
        let (to, last) = self.data.last;
        self.ticks.mean(to.since(from), last.wrapping_sub(first))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_packet_that_is_late_hides_no_other() {
        let mut stamped = Stamped::default();
        let mut read = |late: u64| {
            for n in 0..10 {
                let late = if n == 0 { late + 20 } else { late };
                stamped.data(Nanos::from_millis(n * 10 + late), n as u32 * 10, false);
            }
            stamped.read(Nanos(0), Nanos(0))
        };
        assert_eq!([read(0), read(7)], [Nanos(0), Nanos::from_millis(6)]);
    }

    #[test]
    fn a_tick_is_a_millisecond_if_a_hundred_of_them_take_about_as_long() {
        let of = |ticks: u32, us: u64| {
            let mut lateness = Lateness::default();
            lateness.of(Nanos(0), 1000);
            lateness.of(Nanos::from_micros(us), 1000 + ticks);
            lateness.is_in_milliseconds()
        };
        assert_eq!([of(100, 100_000), of(99, 99_000)], [true, false]);
        assert_eq!([of(100, 333_000), of(100, 334_000)], [true, false]);
        assert_eq!([of(100, 50_100), of(100, 50_000)], [true, false]);
        assert!(!Lateness::default().is_in_milliseconds());
    }

    #[test]
    fn lateness_is_above_the_least_of_this_stretch_and_the_one_before() {
        let mut lateness = Lateness::default();
        let mut late = |ms: u64, by: u64| lateness.of(Nanos::from_millis(ms + by), ms as u32);
        assert_eq!(
            [late(0, 5), late(10, 7), late(20, 5)],
            [Some(0), Some(2000), Some(0)]
        );
        assert_eq!(late(30, 3), None, "it shows that the others were late");
        assert_eq!(late(40, 5), Some(2000));
        // Ten seconds later the least is looked for again, beside the one before.
        assert_eq!([late(10_000, 4), late(10_010, 6)], [Some(1000), Some(3000)]);
        assert_eq!([late(20_001, 8), late(20_010, 9)], [Some(4000), Some(5000)]);
        assert_eq!(
            [late(30_002, 9), late(30_010, 10)],
            [Some(1000), Some(2000)]
        );
    }

    #[test]
    fn packets_of_one_stamp_are_later_by_the_time_between_them() {
        let mut lateness = Lateness::default();
        let at = Nanos::from_millis;
        assert!(!lateness.follows(at(0), 0), "the first");
        lateness.of(at(0), 0);
        assert!(lateness.follows(at(1), 0) && !lateness.follows(at(2), 1));
        assert!(!lateness.follows(Nanos(0), 0), "not before the last");
        assert!(lateness.follows(at(9_999), 0) && !lateness.follows(at(10_000), 0));
        assert_eq!(lateness.read(), Some(0));
        assert!(!lateness.follows(at(9_999), 0), "of another reading");
        assert_eq!(lateness.read(), None);
    }

    #[test]
    fn the_mean_lateness_is_that_of_the_clock_that_fits_less_half_a_tick() {
        // Ten packets 10 ms apart of a clock of such ticks, all but the first late.
        let of = |tick_ms: u64, late_ms: u64, span_ms: f64, ticks: u32| {
            let mut lateness = TickLateness::default();
            for n in 0..10 {
                let late = if n == 0 { 0 } else { late_ms };
                let value = (n * 20 / tick_ms) as u32;
                lateness.push(Nanos::from_millis(n * 20 + late), value);
            }
            let mean = lateness.mean(Nanos((span_ms * 1e6) as u64), ticks);
            mean.map(|mean| mean.0 / 1000)
        };
        // 9 x 4 ms by 10, less 0.5 ms.
        assert_eq!(of(1, 4, 180.0, 180), Some(3100));
        // 9 x 10 ms by 10, less 2 or 5 ms.
        assert_eq!(
            [of(4, 10, 180.0, 45), of(10, 10, 180.0, 18)],
            [Some(7000), None]
        );
        assert_eq!(of(10, 20, 180.0, 18), Some(13_000));
        assert_eq!(
            [of(1, 1, 180.0, 180), of(1, 2, 180.0, 180)],
            [None, Some(1300)]
        );
        // Five ticks, and a quarter more or less.
        assert_eq!([of(1, 4, 5.0, 5), of(1, 4, 4.0, 4)], [Some(3100), None]);
        assert_eq!(
            [of(1, 4, 125.0, 100), of(1, 4, 127.0, 100)],
            [Some(3100), None]
        );
        assert_eq!(
            [of(1, 4, 75.0, 100), of(1, 4, 74.0, 100)],
            [Some(3100), None]
        );
        // Of one stamp: 0, 6 and 12 ms late.
        let mut lateness = TickLateness::default();
        for ms in [0, 6, 12] {
            lateness.push(Nanos::from_millis(ms), 0);
        }
        assert_eq!(
            lateness.mean(Nanos::from_millis(10), 10),
            Some(Nanos::from_micros(5500))
        );
    }

    #[test]
    fn means_of_ten_readings_divide_the_delay_between_both_directions() {
        let of = |readings: u64| {
            let mut stamped = Stamped::default();
            for n in 0..readings {
                // The first of each is on time; both clocks count milliseconds.
                let late = |by: u64| Nanos::from_millis(if n == 0 { 0 } else { by });
                let at = Nanos::from_millis(n * 100);
                stamped.data(at + late(11), n as u32 * 100, false);
                stamped.ack(at + Nanos::from_millis(50) + late(22), n as u32 * 100 + 50);
                stamped.read(Nanos::from_millis(50), Nanos::from_millis(70));
            }
            let ms = |way: Option<ReverseQueueing>| {
                way.map(|w| (w.delay.0 / 1_000_000, w.all.0 / 1_000_000))
            };
            [
                ms(stamped.reverse_queueing_at_sender(Nanos::from_millis(10))),
                ms(stamped.reverse_queueing_at_receiver(Nanos::from_millis(20))),
                ms(stamped.reverse_queueing_at_sender(Nanos(0))),
            ]
        };
        // 10 of 11 readings: 20 ms of acknowledgements and 10 ms of data.
        assert_eq!(of(11), [Some((20, 40)), Some((40, 50)), None]);
        assert_eq!(of(9), [None; 3]);
        assert!(of(10)[0].is_some());
    }
}

//! Events of many processors in true order, while they come (docs/decisions/0012-order-without-a-lock.md).
//!
//! Each producer takes a place in its processor's log, then its event's clock, writes the event, and marks it as
//! written. The consumer reads its own clock, then how many places are taken in each log, then which of these are
//! written. An event that is not written yet cannot be older than the consumer's clock before the one with which its
//! place was first seen to be taken; one whose place is not taken yet, not older than the consumer's last clock. No
//! bound on how long a producer takes is assumed.

/// What clocks of two processors may differ by, and more.
const SLACK_NS: u64 = 20_000;

/// How far ahead the event is that can be fetched.
const SOON: usize = 4;

/// The state of the producers, in the order in which it was read.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    /// The consumer's clock, before all else.
    pub clock_ns: u64,
    /// Places taken in the log of each processor, since the start.
    pub taken: Vec<u64>,
}

/// An event that is written: in the order of time, and on one processor of places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    clock_ns: u64,
    cpu: u32,
    /// Counted from 0 on each processor.
    place: u64,
    /// Where it lies in memory.
    pub at: usize,
}

/// Holds events back until nothing older can come.
#[derive(Debug)]
pub(super) struct Sequencer {
    logs: Vec<Log>,
    /// Written, and not handed out.
    waiting: Vec<Key>,
    /// Clock of the last snapshot.
    clock_ns: u64,
}

#[derive(Clone, Debug, Default)]
struct Log {
    /// Places looked at.
    seen: u64,
    /// Of these, those that are not written yet, and a clock that the event cannot be before.
    open: Vec<(u64, u64)>,
}

impl Sequencer {
    /// For `processors` processors without events yet.
    pub(super) fn new(processors: usize) -> Sequencer {
        Sequencer {
            logs: vec![Log::default(); processors],
            waiting: Vec::new(),
            clock_ns: 0,
        }
    }

    /// Takes what there is since the last snapshot. `find` returns the clock of the event in a place of a processor's
    /// log and where it lies, once it is written. Returns how many new places the fullest log had.
    pub(super) fn take(
        &mut self,
        snapshot: &Snapshot,
        find: impl Fn(u32, u64) -> Option<(u64, usize)>,
    ) -> u64 {
        let mut most = 0;
        let not_before = std::mem::replace(&mut self.clock_ns, snapshot.clock_ns);
        for ((log, taken), cpu) in self.logs.iter_mut().zip(&snapshot.taken).zip(0..) {
            let mut open = std::mem::take(&mut log.open);
            let mut is_open = |place: u64| match find(cpu, place) {
                Some((clock_ns, at)) => {
                    self.waiting.push(Key {
                        clock_ns,
                        cpu,
                        place,
                        at,
                    });
                    false
                }
                None => true,
            };
            open.retain(|(place, _)| is_open(*place));
            let new = (log.seen..*taken).filter(|place| is_open(*place));
            open.extend(new.map(|place| (place, not_before)));
            most = most.max(taken - log.seen);
            (log.open, log.seen) = (open, *taken);
        }
        most
    }

    /// Whether every place that was seen is written.
    pub(super) fn is_whole(&self) -> bool {
        self.logs.iter().all(|log| log.open.is_empty())
    }

    /// Hands out, in order, the events that nothing older can follow; beside each one that comes soon after, which can
    /// be fetched meanwhile.
    pub(super) fn release<E>(
        &mut self,
        each: impl FnMut(&Key, Option<&Key>) -> Result<(), E>,
    ) -> Result<(), E> {
        let open = self.logs.iter().flat_map(|log| &log.open);
        let oldest = open.map(|(_, not_before)| *not_before).min();
        let watermark = oldest.unwrap_or(u64::MAX).min(self.clock_ns);
        self.release_below(watermark.saturating_sub(SLACK_NS), each)
    }

    /// Hands out all that is left, in order: when no producer can add any more.
    pub(super) fn finish<E>(
        &mut self,
        each: impl FnMut(&Key, Option<&Key>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.release_below(u64::MAX, each)
    }

    fn release_below<E>(
        &mut self,
        watermark: u64,
        mut each: impl FnMut(&Key, Option<&Key>) -> Result<(), E>,
    ) -> Result<(), E> {
        // Runs that are nearly in order: little is moved.
        self.waiting.sort();
        let ready = self.waiting.partition_point(|key| key.clock_ns < watermark);
        let ordered = &self.waiting[..ready];
        for (n, key) in ordered.iter().enumerate() {
            each(key, ordered.get(n + SOON))?;
        }
        self.waiting.drain(..ready);
        Ok(())
    }

    /// Of each processor, the first place that is still needed: everything before it can be overwritten.
    pub(super) fn needed(&self) -> Vec<u64> {
        let first_open = |log: &Log| log.open.iter().map(|(place, _)| *place).min();
        let needed = |log: &Log| first_open(log).unwrap_or(log.seen);
        let mut needed: Vec<u64> = self.logs.iter().map(needed).collect();
        for key in &self.waiting {
            let first = &mut needed[key.cpu as usize];
            *first = (*first).min(key.place);
        }
        needed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// How producers and consumer go about it.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum Way {
        /// As described above.
        Right,
        /// A producer takes its clock before its place.
        ClockFirst,
        /// The consumer reads its clock after it has looked how many places are taken.
        LookFirst,
        /// The consumer does not mind places that are not written yet.
        OpenIgnored,
    }

    /// A machine whose every step is one of a producer or of the consumer, in an order that chance decides.
    struct Machine {
        way: Way,
        clock: u64,
        /// Of each processor: the places taken, with the clock of those that are written.
        logs: Vec<Vec<Option<u64>>>,
        producers: Vec<Producer>,
        chance: u64,
    }

    #[derive(Clone, Copy, Default)]
    struct Producer {
        cpu: usize,
        step: u8,
        clock: u64,
        place: usize,
    }

    impl Machine {
        fn new(way: Way, seed: u64, cpus: usize) -> Machine {
            Machine {
                way,
                clock: 1_000_000,
                logs: vec![Vec::new(); cpus],
                // Three on each processor: preempted in any place by one another.
                producers: (0..cpus * 3)
                    .map(|n| Producer {
                        cpu: n % cpus,
                        ..Producer::default()
                    })
                    .collect(),
                chance: seed | 1,
            }
        }

        /// xorshift64 (Marsaglia): any order of steps will do.
        fn below(&mut self, limit: u64) -> u64 {
            self.chance ^= self.chance << 13;
            self.chance ^= self.chance >> 7;
            self.chance ^= self.chance << 17;
            self.chance % limit
        }

        /// One step of one producer.
        fn produce(&mut self, which: usize) {
            let mut producer = self.producers[which];
            // A preempted one stands still for long now and then.
            self.clock += match self.below(50) {
                0 => 30_000,
                _ => self.below(100),
            };
            let log = &mut self.logs[producer.cpu];
            match (producer.step, self.way == Way::ClockFirst) {
                (0, false) | (1, true) => {
                    producer.place = log.len();
                    log.push(None);
                }
                (1, false) | (0, true) => producer.clock = self.clock,
                (3, _) => log[producer.place] = Some(producer.clock),
                _ => {}
            }
            producer.step = (producer.step + 1) % 4;
            self.producers[which] = producer;
        }

        fn any_producer(&mut self) {
            let which = self.below(self.producers.len() as u64) as usize;
            self.produce(which);
        }

        fn snapshot(&mut self) -> Snapshot {
            let mut clock_ns = self.clock;
            let mut taken = Vec::new();
            for cpu in 0..self.logs.len() {
                self.any_producer();
                taken.push(self.logs[cpu].len() as u64);
            }
            if self.way == Way::LookFirst {
                (0..20).for_each(|_| self.any_producer());
                clock_ns = self.clock;
            }
            Snapshot { clock_ns, taken }
        }
    }

    /// Runs until `events` are out, with producers going on between any two reads of the consumer.
    /// Returns how many came out after a younger one.
    fn out_of_order(way: Way, seed: u64, cpus: usize, events: usize) -> (usize, usize) {
        let mut machine = Machine::new(way, seed, cpus);
        let mut sequencer = Sequencer::new(cpus);
        let (mut wrong, mut released, mut youngest) = (0, 0, None);
        while released < events {
            for _ in 0..machine.below(60) {
                machine.any_producer();
            }
            let snapshot = machine.snapshot();
            sequencer.take(&snapshot, |cpu, place| {
                machine.logs[cpu as usize][place as usize].map(|clock| (clock, 0))
            });
            if way == Way::OpenIgnored {
                let open = sequencer.logs.iter_mut().flat_map(|log| &mut log.open);
                open.for_each(|(_, not_before)| *not_before = u64::MAX);
            }
            sequencer
                .release(|key, _| {
                    released += 1;
                    wrong += usize::from(Some(*key) < youngest);
                    youngest = youngest.max(Some(*key));
                    Ok::<_, ()>(())
                })
                .unwrap();
        }
        (wrong, released)
    }

    #[test]
    fn a_million_events_come_out_in_order() {
        let (wrong, released) = out_of_order(Way::Right, 1, 4, 1_000_000);
        assert_eq!(wrong, 0, "of {released}");
    }

    #[test]
    fn every_weaker_way_is_caught() {
        for way in [Way::ClockFirst, Way::LookFirst, Way::OpenIgnored] {
            let (wrong, released) = out_of_order(way, 1, 4, 200_000);
            assert!(wrong > 0, "{way:?}: none of {released}");
        }
    }

    #[test]
    fn nothing_is_kept_back_at_the_end_and_places_are_needed_until_then() {
        let mut sequencer = Sequencer::new(1);
        // The second is not written yet when it is first looked at.
        let clocks = [30, 0, 10, 20];
        let written = |_, place| {
            let clock = clocks[place as usize];
            (clock > 0).then_some((clock, 0))
        };
        let snapshot = |clock, taken| Snapshot {
            clock_ns: clock + SLACK_NS,
            taken: vec![taken],
        };
        sequencer.take(&snapshot(25, 1), written);
        sequencer.take(&snapshot(40, 4), written);
        assert!(!sequencer.is_whole());
        let mut out = Vec::new();
        sequencer.release(|key, _| push(&mut out, key)).unwrap();
        assert_eq!(out, [10, 20]);
        assert_eq!(sequencer.needed(), [0]);
        sequencer.take(&snapshot(40, 4), |_, _| Some((25, 0)));
        assert!(sequencer.is_whole());
        sequencer.finish(|key, _| push(&mut out, key)).unwrap();
        assert_eq!(out, [10, 20, 25, 30]);
        assert_eq!(sequencer.needed(), [4]);
    }

    fn push(out: &mut Vec<u64>, key: &Key) -> Result<(), ()> {
        out.push(key.clock_ns);
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn any_interleaving_comes_out_in_order(seed in any::<u64>(), cpus in 1usize..6) {
            prop_assert_eq!(out_of_order(Way::Right, seed, cpus, 5_000).0, 0);
        }
    }
}

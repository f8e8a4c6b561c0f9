//! Events of many processors in true order, while they come (docs/decisions/0012-order-without-a-lock.md).
//!
//! Each producer claims a cell of its processor with a time that is not after its own (that of an event before on
//! this processor), then takes its event's clock, writes
//! the event into the ring, counts it as committed, and clears the cell. The consumer reads its own clock,
//! then all cells of a processor, then that processor's count of committed events. No event that it has not
//! drained once it holds as many of each processor as were committed can be older than the smallest of that
//! clock and the cells that were not empty: whoever claimed after the cells were read took his clock after
//! the consumer did; whoever stood in a cell has a clock not before what the cell says; and whoever had
//! cleared it was among the committed. No bound on how long a producer takes is assumed.

/// Claims that can be open on one processor at a time: a process, what interrupts it, and some that were
/// preempted in between.
pub(super) const CELLS: usize = 8;

/// What clocks of two processors may differ by, and more.
const SLACK_NS: u64 = 20_000;

/// What the producers tell, in the order in which it was read: clock, then for each processor its cells, then
/// its count.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    /// The consumer's clock, before all else.
    pub clock_ns: u64,
    /// Of each processor: the open claims (0: none), and the events committed.
    pub processors: Vec<([u64; CELLS], u64)>,
}

/// Place of an event: clock, processor. (Two of the same lie in the ring as they came.)
pub(super) type Key = (u64, u32);

/// Holds events back until nothing older can come.
pub(super) struct Sequencer<E> {
    waiting: Vec<(Key, E)>,
    /// Events taken, of each processor.
    taken: Vec<u64>,
    goal: Option<Goal>,
    released_below: u64,
}

/// Once `committed` events of each processor are here, those below `watermark` are complete.
struct Goal {
    watermark: u64,
    committed: Vec<u64>,
}

impl<E> Sequencer<E> {
    /// For `processors` processors that have told nothing yet.
    pub(super) fn new(processors: usize) -> Sequencer<E> {
        Sequencer {
            waiting: Vec::new(),
            taken: vec![0; processors],
            goal: None,
            released_below: 0,
        }
    }

    /// Takes an event out of the ring.
    pub(super) fn take(&mut self, key: Key, event: E) {
        if let Some(taken) = self.taken.get_mut(key.1 as usize) {
            *taken += 1;
        }
        self.waiting.push((key, event));
    }

    /// Whether it is time for a new snapshot: the last one's events were all released.
    pub(super) fn wants_snapshot(&self) -> bool {
        self.goal.is_none()
    }

    /// Sets what to wait for. The ring has to be drained again afterwards.
    pub(super) fn aim(&mut self, snapshot: &Snapshot) {
        let open = snapshot.processors.iter().flat_map(|(cells, _)| cells);
        let oldest = open.copied().filter(|claimed| *claimed != 0).min();
        let clock = snapshot.clock_ns.saturating_sub(SLACK_NS);
        self.goal = Some(Goal {
            watermark: oldest
                .unwrap_or(u64::MAX)
                .min(clock)
                .max(self.released_below),
            committed: snapshot
                .processors
                .iter()
                .map(|(_, committed)| *committed)
                .collect(),
        });
    }

    /// Hands out, in order, the events that nothing older can follow.
    pub(super) fn release(&mut self, mut each: impl FnMut(E)) {
        let reached = |goal: &Goal| {
            goal.committed
                .iter()
                .zip(&self.taken)
                .all(|(all, here)| here >= all)
        };
        let Some(goal) = self.goal.take_if(|goal| reached(goal)) else {
            return;
        };
        // Stable, and nearly in order already: little is moved.
        self.waiting.sort_by_key(|(key, _)| *key);
        let ready = self
            .waiting
            .partition_point(|(key, _)| key.0 < goal.watermark);
        self.waiting
            .drain(..ready)
            .for_each(|(_, event)| each(event));
        self.released_below = goal.watermark;
    }

    /// The events that are held back.
    pub(super) fn waiting(&mut self) -> impl Iterator<Item = &mut E> {
        self.waiting.iter_mut().map(|(_, event)| event)
    }

    /// Hands out all that is left, in order: when no producer can add any more.
    pub(super) fn finish(mut self, mut each: impl FnMut(E)) {
        self.waiting.sort_by_key(|(key, _)| *key);
        self.waiting.into_iter().for_each(|(_, event)| each(event));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// How a producer goes about it.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum Way {
        /// As described above.
        Right,
        /// Takes its clock before it claims.
        ClockFirst,
        /// Claims nothing: the consumer only waits for some time.
        NoClaim,
        /// Clears its claim before it has counted its event.
        ClearFirst,
    }

    /// A machine whose every step is one of a producer or of the consumer, in an order that chance decides.
    struct Machine {
        way: Way,
        clock: u64,
        cells: Vec<[u64; CELLS]>,
        committed: Vec<u64>,
        last: Vec<u64>,
        /// The ring: reserved places in order; `None` until written.
        ring: std::collections::VecDeque<Option<Key>>,
        drained: usize,
        producers: Vec<Producer>,
        chance: u64,
    }

    #[derive(Clone, Copy, Default)]
    struct Producer {
        cpu: usize,
        step: u8,
        cell: usize,
        key: Key,
        place: usize,
    }

    impl Machine {
        fn new(way: Way, seed: u64, cpus: usize) -> Machine {
            Machine {
                way,
                clock: 1_000_000,
                cells: vec![[0; CELLS]; cpus],
                committed: vec![0; cpus],
                last: vec![1; cpus],
                ring: std::collections::VecDeque::new(),
                drained: 0,
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

        fn claim(&mut self, producer: &mut Producer) {
            let cells = &mut self.cells[producer.cpu];
            producer.cell = cells
                .iter()
                .position(|cell| *cell == 0)
                .expect("three producers, eight cells");
            cells[producer.cell] = self.last[producer.cpu];
        }

        fn read_clock(&mut self, producer: &mut Producer) {
            producer.key = (self.clock, producer.cpu as u32);
            self.last[producer.cpu] = self.clock;
        }

        /// One step of one producer.
        fn produce(&mut self, which: usize) {
            let mut producer = self.producers[which];
            // A preempted one stands still for long now and then.
            self.clock += match self.below(50) {
                0 => 30_000,
                _ => self.below(100),
            };
            match (producer.step, self.way) {
                (0, Way::ClockFirst) | (1, Way::Right | Way::NoClaim | Way::ClearFirst) => {
                    self.read_clock(&mut producer);
                }
                (0, Way::Right | Way::ClearFirst) | (1, Way::ClockFirst) => {
                    self.claim(&mut producer)
                }
                (2, _) => {
                    producer.place = self.drained + self.ring.len();
                    self.ring.push_back(None);
                }
                (3, _) => self.ring[producer.place - self.drained] = Some(producer.key),
                (4, Way::ClearFirst) | (5, Way::Right | Way::ClockFirst) => {
                    self.cells[producer.cpu][producer.cell] = 0;
                }
                (4, _) | (5, Way::ClearFirst) => self.committed[producer.cpu] += 1,
                _ => {}
            }
            producer.step = (producer.step + 1) % 6;
            self.producers[which] = producer;
        }

        fn drain(&mut self, sequencer: &mut Sequencer<Key>) {
            while let Some(Some(key)) = self.ring.front().copied() {
                self.ring.pop_front();
                self.drained += 1;
                sequencer.take(key, key);
            }
        }

        fn any_producer(&mut self) {
            let which = self.below(self.producers.len() as u64) as usize;
            self.produce(which);
        }
    }

    /// Runs until `events` are out, with producers going on between any two reads of the consumer.
    /// Returns how many came out after a younger one.
    fn out_of_order(way: Way, seed: u64, cpus: usize, events: usize) -> (usize, usize) {
        let mut machine = Machine::new(way, seed, cpus);
        let mut sequencer = Sequencer::new(cpus);
        let (mut wrong, mut told, mut youngest) = (0, 0, (0, 0));
        while told < events {
            for _ in 0..machine.below(60) {
                machine.any_producer();
            }
            machine.drain(&mut sequencer);
            if sequencer.wants_snapshot() {
                let clock_ns = machine.clock;
                let mut processors = Vec::new();
                for cpu in 0..cpus {
                    let mut cells = [0; CELLS];
                    for (index, cell) in cells.iter_mut().enumerate() {
                        machine.any_producer();
                        *cell = machine.cells[cpu][index];
                    }
                    machine.any_producer();
                    processors.push((cells, machine.committed[cpu]));
                }
                sequencer.aim(&Snapshot {
                    clock_ns,
                    processors,
                });
                machine.drain(&mut sequencer);
            }
            sequencer.release(|key| {
                told += 1;
                wrong += usize::from(key < youngest);
                youngest = youngest.max(key);
            });
        }
        (wrong, told)
    }

    #[test]
    fn a_million_events_come_out_in_order() {
        let (wrong, told) = out_of_order(Way::Right, 1, 4, 1_000_000);
        assert_eq!(wrong, 0, "of {told}");
    }

    #[test]
    fn every_weaker_way_is_caught() {
        for way in [Way::ClockFirst, Way::NoClaim, Way::ClearFirst] {
            let (wrong, told) = out_of_order(way, 1, 4, 200_000);
            assert!(wrong > 0, "{way:?}: none of {told}");
        }
    }

    #[test]
    fn nothing_is_kept_back_at_the_end() {
        let mut sequencer = Sequencer::new(1);
        for clock in [30, 10, 20] {
            sequencer.take((clock, 0), clock);
        }
        sequencer.aim(&Snapshot {
            clock_ns: 25 + SLACK_NS,
            processors: vec![([0; CELLS], 3)],
        });
        let mut out = Vec::new();
        sequencer.release(|event| out.push(event));
        assert_eq!(out, [10, 20]);
        sequencer.finish(|event| out.push(event));
        assert_eq!(out, [10, 20, 30]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn any_interleaving_comes_out_in_order(seed in any::<u64>(), cpus in 1usize..6) {
            prop_assert_eq!(out_of_order(Way::Right, seed, cpus, 5_000).0, 0);
        }
    }
}

//! What the process behind "the application" did in the time that it held a connection up.

use crate::limits::{Candidate, Key};
use model::finding::{Evidence, Quantity, Remedy, Source};
use model::{Bytes, Comm, Nanos, Owner};
use std::collections::BTreeMap;

/// Kernel functions that are counted separately.
const MOST_PLACES: usize = 16;
/// Less of the stalled time than this was looked at: nothing is said.
const FEWEST: Nanos = Nanos::from_millis(40);

/// What a process did over some time. The four add up to it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Doing {
    /// Nanoseconds, as the next three.
    computing: f64,
    /// Ready, without a processor.
    queued: f64,
    /// Waiting for a disk.
    disk: f64,
    asleep: f64,
    /// Bytes from and to storage.
    storage: f64,
    storage_known: bool,
    /// Where in the kernel it waited, in nanoseconds.
    places: BTreeMap<String, f64>,
}

/// What a process did from one look to the next.
pub(crate) struct ActivityInterval {
    from: Nanos,
    to: Nanos,
    pid: u32,
    comm: Comm,
    doing: Doing,
}

impl ActivityInterval {
    /// Between two looks; `None` if time did not pass.
    pub fn between(before: &Owner, now: &Owner) -> Option<ActivityInterval> {
        let span = now.at.since(before.at).0 as f64;
        let share = |a: Nanos, b: Nanos, room: f64| (b.since(a).0 as f64).min(room);
        // One thread that computes is enough to be computing.
        let computing = share(before.ran, now.ran, span);
        let queued = share(before.queued, now.queued, span - computing);
        let rest = span - computing - queued;
        let (disk, asleep) = match now.blocked {
            0 => (0.0, rest),
            _ => (rest, 0.0),
        };
        let both = |o: &Owner| o.storage_read.zip(o.storage_written);
        let moved = both(before).zip(both(now));
        let moved = moved.map(|(a, b)| b.0.since(a.0) + b.1.since(a.1));
        let places = match now.waits_in.is_empty() || rest <= 0.0 {
            true => BTreeMap::new(),
            false => BTreeMap::from([(now.waits_in.clone(), rest)]),
        };
        (span > 0.0).then(|| ActivityInterval {
            from: before.at,
            to: now.at,
            pid: now.pid,
            comm: now.comm,
            doing: Doing {
                computing,
                queued,
                disk,
                asleep,
                storage: moved.map_or(0.0, |b| b.0 as f64),
                storage_known: moved.is_some(),
                places,
            },
        })
    }
}

impl Doing {
    fn add(&mut self, other: &Doing, part: f64) {
        self.computing += other.computing * part;
        self.queued += other.queued * part;
        self.disk += other.disk * part;
        self.asleep += other.asleep * part;
        self.storage += other.storage * part;
        self.storage_known |= other.storage_known;
        for (place, time) in &other.places {
            if self.places.len() < MOST_PLACES || self.places.contains_key(place) {
                *self.places.entry(place.clone()).or_default() += time * part;
            }
        }
    }

    fn time(&self) -> f64 {
        self.computing + self.queued + self.disk + self.asleep
    }
}

/// What the owner of one connection did while it was the limit. A look comes every so often, and whom time
/// belongs to is known later than the time passes: what was seen meanwhile waits.
#[derive(Clone, Debug, Default)]
pub(crate) struct LimitingProcess {
    owner: Option<(u32, Comm)>,
    looked: Nanos,
    /// Time since the last look that is known to be the owner's.
    stalled: Nanos,
    /// Seen in the time that belongs to nobody yet.
    pending: Doing,
    total: Doing,
}

impl LimitingProcess {
    /// The time between two events now belongs to somebody: to the owner, if it is stalled by it.
    pub fn decide(&mut self, from: Nanos, to: Nanos, stalled: bool) {
        if stalled {
            self.total.add(&self.pending, 1.0);
            self.stalled += to.since(from.max(self.looked));
        }
        self.pending = Doing::default();
    }

    /// The owner was looked at again. Time is decided up to an event at `decided`.
    pub fn look(&mut self, stretch: &ActivityInterval, decided: Nanos) {
        let span = stretch.to.since(stretch.from).0 as f64;
        let part = |time: Nanos| (time.0 as f64 / span).min(1.0);
        self.total.add(&stretch.doing, part(self.stalled));
        self.stalled = Nanos(0);
        let open = stretch.to.since(decided.max(stretch.from));
        self.pending.add(&stretch.doing, part(open));
        self.looked = stretch.to;
        self.owner = Some((stretch.pid, stretch.comm));
    }

    /// Most of the time it was ready, and others had the processors.
    pub fn waits_for_processor(&self) -> bool {
        let time = self.total.time();
        time >= FEWEST.0 as f64 && self.total.queued > time / 2.0
    }

    /// Adds what the owner did, most of that time first.
    pub fn add_to(&self, mut candidate: Candidate, source: Source) -> Candidate {
        let time = self.total.time();
        let Some((pid, comm)) = self.owner.filter(|_| time >= FEWEST.0 as f64) else {
            return candidate;
        };
        let Doing {
            computing,
            queued,
            disk,
            asleep,
            ..
        } = self.total;
        let words = [
            format!("{comm} computes meanwhile: perf top -p {pid} shows what"),
            format!("{comm} waits for a processor: other work keeps it from running"),
            format!(
                "{comm} waits for a disk: read ahead, in larger pieces, or from a faster one (iostat -x 1)"
            ),
            format!(
                "{comm} waits for something other than the network: strace -p {pid} shows what"
            ),
        ];
        let keys = [
            Key::ProcessRunning,
            Key::ProcessReady,
            Key::ProcessDiskWait,
            Key::ProcessAsleep,
        ];
        let mut parts: Vec<_> = [computing, queued, disk, asleep]
            .into_iter()
            .zip(keys)
            .zip(words)
            .collect();
        parts.sort_by(|a, b| b.0.0.total_cmp(&a.0.0));
        let of = |key| move |quantity: Quantity| Evidence::new(key, quantity, source);
        candidate.evidence.push(
            of(Key::ProcessTime)(Nanos(time as u64).into())
                .about(format!("{comm} (process {pid})")),
        );
        let shares = parts.iter().filter(|((part, _), _)| *part >= 0.01 * time);
        candidate
            .evidence
            .extend(shares.map(|((part, key), _)| of(*key)((part / time).into())));
        let ((_, most), words) = parts.swap_remove(0);
        let place = self.total.places.iter().max_by(|a, b| a.1.total_cmp(b.1));
        if let Some((place, _)) = place.filter(|_| most == Key::ProcessAsleep || disk > 0.0) {
            candidate
                .evidence
                .push(of(Key::WaitFunction)(place.as_str().into()));
        }
        // What may not be read without the rights of its owner or of root is left out.
        if self.total.storage_known && self.total.storage >= 1.0 {
            let bytes = Bytes(self.total.storage as u64);
            candidate.evidence.push(of(Key::StorageBytes)(bytes.into()));
        }
        // It says more than what is advised of any application.
        candidate.remedies = vec![Remedy {
            words,
            change: None,
        }];
        candidate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn look(at: u64, ran: u64, blocked: u32) -> Owner {
        Owner {
            at: Nanos(at * MS),
            pid: 845,
            comm: Comm::new(b"iperf3"),
            ran: Nanos(ran * MS),
            blocked,
            asleep: 1 - blocked,
            ..Owner::default()
        }
    }

    fn play(behind: &mut LimitingProcess, looks: &[Owner], decided: u64) {
        for pair in looks.windows(2) {
            behind.look(
                &ActivityInterval::between(&pair[0], &pair[1]).unwrap(),
                Nanos(decided * MS),
            );
        }
    }

    #[test]
    fn who_is_ready_most_of_the_time_waits_for_a_processor() {
        let of = |queued: u64| {
            let late = Owner {
                queued: Nanos(queued * MS),
                ..look(200, 5, 0)
            };
            let mut behind = LimitingProcess::default();
            play(&mut behind, &[look(100, 0, 0), late], 100);
            behind.decide(Nanos(100 * MS), Nanos(200 * MS), true);
            behind.waits_for_processor()
        };
        assert!(of(60));
        assert!(!of(40));
    }

    #[test]
    fn a_pause_belongs_to_its_owner_only_once_that_is_known() {
        // Silent from 100 to 200 ms, a quarter of it computing.
        let looks = [
            look(100, 0, 1),
            look(120, 5, 1),
            look(140, 10, 1),
            look(200, 25, 1),
        ];
        let mut network = LimitingProcess::default();
        play(&mut network, &looks, 100);
        let mut own = network.clone();
        network.decide(Nanos(100 * MS), Nanos(210 * MS), false);
        assert_eq!(network.total.time(), 0.0);
        own.decide(Nanos(100 * MS), Nanos(210 * MS), true);
        assert_eq!(own.total.time(), 100.0 * MS as f64);
        assert_eq!(own.total.computing, 25.0 * MS as f64);
        assert_eq!(own.total.disk, 75.0 * MS as f64);
        // The ten milliseconds after the last look come with the next.
        play(&mut own, &[look(200, 25, 0), look(220, 25, 0)], 220);
        assert_eq!(own.total.asleep, 10.0 * MS as f64);
    }

    #[test]
    fn time_shared_with_the_network_counts_by_its_part() {
        let mut behind = LimitingProcess {
            looked: Nanos(100 * MS),
            ..LimitingProcess::default()
        };
        behind.decide(Nanos(100 * MS), Nanos(105 * MS), true);
        behind.decide(Nanos(105 * MS), Nanos(120 * MS), false);
        play(&mut behind, &[look(100, 0, 0), look(120, 20, 0)], 120);
        assert_eq!(behind.total.computing, 5.0 * MS as f64);
        assert_eq!(behind.total.asleep, 0.0);
    }

    /// Between two looks 100 ms apart: computing, ready, waiting for a disk, asleep, bytes; the functions.
    fn between(change: impl Fn(&mut Owner)) -> ([f64; 5], Vec<(String, f64)>, bool) {
        let before = Owner {
            storage_read: Some(Bytes(5)),
            storage_written: Some(Bytes(7)),
            ..look(100, 10, 0)
        };
        let mut now = Owner {
            at: Nanos(200 * MS),
            ..before.clone()
        };
        change(&mut now);
        let Doing {
            computing,
            queued,
            disk,
            asleep,
            storage,
            storage_known,
            places,
        } = ActivityInterval::between(&before, &now).unwrap().doing;
        let [computing, queued, disk, asleep] =
            [computing, queued, disk, asleep].map(|ns| ns / MS as f64);
        let places = places.into_iter().map(|(name, ns)| (name, ns / MS as f64));
        (
            [computing, queued, disk, asleep, storage],
            places.collect(),
            storage_known,
        )
    }

    #[test]
    fn the_time_between_two_looks_is_divided_once() {
        let (parts, places, known) = between(|now| {
            (now.ran, now.queued) = (Nanos(40 * MS), Nanos(20 * MS));
            (now.storage_read, now.storage_written) = (Some(Bytes(15)), Some(Bytes(27)));
            now.waits_in = "futex".to_owned();
        });
        assert_eq!(parts, [30.0, 20.0, 0.0, 50.0, 30.0]);
        assert_eq!(places, [("futex".to_owned(), 50.0)]);
        assert!(known);
        let (parts, ..) = between(|now| (now.ran, now.blocked) = (Nanos(40 * MS), 1));
        assert_eq!(parts, [30.0, 0.0, 70.0, 0.0, 0.0]);
        // Several threads: no more than there is, and the rest is nobody's.
        let (parts, places, _) = between(|now| {
            (now.ran, now.queued) = (Nanos(90 * MS), Nanos(500 * MS));
            now.waits_in = "futex".to_owned();
        });
        assert_eq!((parts, places), ([80.0, 20.0, 0.0, 0.0, 0.0], vec![]));
        let (.., known) = between(|now| now.storage_read = None);
        assert!(!known);
        assert!(ActivityInterval::between(&look(1, 0, 0), &look(1, 0, 0)).is_none());
    }

    #[test]
    fn what_is_done_adds_up_by_its_part() {
        let one = Doing {
            computing: 1.0,
            queued: 2.0,
            disk: 4.0,
            asleep: 8.0,
            storage: 16.0,
            storage_known: true,
            places: BTreeMap::from([("a".to_owned(), 32.0)]),
        };
        let mut sum = one.clone();
        sum.add(&one, 0.5);
        let Doing {
            computing,
            queued,
            disk,
            asleep,
            storage,
            storage_known,
            places,
        } = &sum;
        assert_eq!(
            [*computing, *queued, *disk, *asleep, *storage],
            [1.5, 3.0, 6.0, 12.0, 24.0]
        );
        assert_eq!(
            (*storage_known, places["a"], sum.time()),
            (true, 48.0, 22.5)
        );
        // Once known, it is known; and so many functions are counted.
        sum.add(&Doing::default(), 1.0);
        assert!(sum.storage_known);
        for n in 1..=MOST_PLACES {
            let places = BTreeMap::from([(format!("f{n}"), 1.0)]);
            sum.add(
                &Doing {
                    places,
                    ..Doing::default()
                },
                1.0,
            );
        }
        sum.add(&one, 1.0);
        assert_eq!((sum.places.len(), sum.places["a"]), (MOST_PLACES, 80.0));
        let mut unknown = Doing::default();
        unknown.add(&Doing::default(), 1.0);
        assert!(!unknown.storage_known);
    }

    #[test]
    fn evidence_has_what_was_done_most_first() {
        let of = |change: fn(&mut Doing)| {
            let mut behind = LimitingProcess {
                owner: Some((845, Comm::new(b"iperf3"))),
                ..LimitingProcess::default()
            };
            behind.total = Doing {
                computing: 4.0e6,
                queued: 0.39e6,
                disk: 0.0,
                asleep: 36.0e6,
                storage: 1.0,
                storage_known: true,
                places: BTreeMap::from([("a".to_owned(), 1.0), ("b".to_owned(), 2.0)]),
            };
            change(&mut behind.total);
            let facts = crate::facts::Facts::new(Source::Trace);
            let candidate =
                crate::limits::candidate(model::finding::Limit::Closing, &facts).unwrap();
            let found = behind.add_to(candidate, Source::Trace);
            let keys: Vec<Key> = found.evidence.iter().map(|e| e.key).collect();
            (
                keys,
                found
                    .remedies
                    .first()
                    .map(|r| r.words.clone())
                    .unwrap_or_default(),
            )
        };
        let (keys, words) = of(|_| {});
        use Key::*;
        assert_eq!(
            keys,
            [
                ProcessTime,
                ProcessAsleep,
                ProcessRunning,
                WaitFunction,
                StorageBytes
            ]
        );
        assert!(words.starts_with("iperf3 waits for something"), "{words}");
        // One in a hundred is worth a row.
        let (keys, _) = of(|d| (d.queued, d.computing) = (0.41e6, 4.0e6));
        assert_eq!(
            keys[..4],
            [ProcessTime, ProcessAsleep, ProcessRunning, ProcessReady]
        );
        let (keys, words) =
            of(|d| (d.computing, d.storage, d.storage_known) = (50.0e6, 9.0, false));
        assert_eq!(keys, [ProcessTime, ProcessRunning, ProcessAsleep]);
        assert!(words.starts_with("iperf3 computes"), "{words}");
        let (keys, words) = of(|d| (d.disk, d.storage) = (40.0e6, 0.9));
        assert_eq!(
            keys,
            [
                ProcessTime,
                ProcessDiskWait,
                ProcessAsleep,
                ProcessRunning,
                WaitFunction
            ]
        );
        assert!(words.starts_with("iperf3 waits for a disk"), "{words}");
        let (keys, _) = of(|d| (d.computing, d.asleep) = (4.0e6, 35.6e6));
        assert_eq!(keys, [], "39.99 ms");
        let waits = |queued: f64, asleep: f64| {
            let total = Doing {
                queued,
                asleep,
                ..Doing::default()
            };
            LimitingProcess {
                total,
                ..LimitingProcess::default()
            }
            .waits_for_processor()
        };
        assert!(waits(20.1e6, 19.9e6) && !waits(20.0e6, 20.0e6) && !waits(39.9e6, 0.0));
    }
}

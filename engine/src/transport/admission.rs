//! Which connections that have not authenticated themselves are kept when there are many of them.
//!
//! After sshd's MaxStartups and PerSourcePenalties, with one difference: what is dropped is not the newest connection
//! but a stale one of the source that has most, so that a flood of silent connections makes room for who answers.

use super::acceptor::{AcceptorGate, source};
use crate::prelude::*;
use std::str::FromStr;

/// A connection from which nothing came for so long is stale: a client sends its first bytes at once. What has sent
/// something has until its deadline; its source pays for it if it comes to nothing.
const SILENT_FOR: Duration = Duration::from_millis(250);
/// A connection that ends without authentication costs its source so long ...
const PENALTY: Duration = Duration::from_secs(5);
/// ... up to this in all; a source is refused for what is above [`TOLERATED`].
const MOST_PENALTY: Duration = Duration::from_secs(60);
const TOLERATED: Duration = Duration::from_secs(10);
/// Whoever is refused may come again after so many seconds, at random: all at once would meet again.
const AGAIN_S: std::ops::RangeInclusive<u64> = 1..=5;
/// Sources that are remembered: with penalties, and as authenticated before.
const MOST_PENALISED: usize = 4096;
const MOST_KNOWN: usize = 1024;

/// From `start` connections on, one is dropped for a new one with a probability of `rate` percent, which grows to
/// certainty at `full`. Written `10:30:100`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Startups {
    start: usize,
    rate: usize,
    full: usize,
}

/// What an [`Admission`] allows at once.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Of connections from addresses that have not authenticated themselves before.
    pub startups: Startups,
    /// Kept besides for those that have.
    pub kept: usize,
    /// The most of these from one source.
    pub kept_for_one: usize,
}

impl Bounds {
    /// Of an agent: one source has half of what is kept.
    pub fn of(startups: Startups) -> Bounds {
        let kept = startups.kept();
        Bounds {
            startups,
            kept,
            kept_for_one: kept / 2,
        }
    }
}

/// Admits connections; clones count together.
#[derive(Clone)]
pub struct Admission(Arc<Mutex<AdmissionTable<HeldSlot>>>);

/// A connection that has not authenticated itself yet, until this is dropped.
pub struct PendingConnection {
    admission: Admission,
    number: u64,
}

/// A connection as the table sees it.
trait AdmittedConnection {
    /// Nothing came from it yet.
    fn is_silent(&self) -> bool;
    /// Closes it, to come again after this; whoever waits for it notices.
    fn close(self, again: Duration);
}

struct HeldSlot {
    stream: TcpStream,
    refuse: Refuse,
}

/// Sends a connection away, to come again after this.
pub type Refuse = fn(&TcpStream, Duration);

struct AdmissionTable<C> {
    bounds: Bounds,
    refuse: Refuse,
    pending: BTreeMap<u64, AdmissionEntry<C>>,
    next: u64,
    /// Until when.
    penalties: BTreeMap<IpAddr, Instant>,
    /// Sources that authenticated themselves, and when last.
    known: BTreeMap<IpAddr, Instant>,
}

struct AdmissionEntry<C> {
    source: IpAddr,
    known: bool,
    since: Instant,
    connection: C,
}

impl Startups {
    /// Of connections from one source.
    fn for_one(&self) -> usize {
        (self.full / 8).max(1)
    }

    /// Places kept for sources that authenticated themselves before, each of which may have half.
    pub fn kept(&self) -> usize {
        (self.full / 2).max(2)
    }

    /// How likely it is, from 0 to 1, that one of `count` is dropped for another.
    fn chance(&self, count: usize) -> f64 {
        if count < self.start {
            return 0.0;
        }
        let rate = self.rate as f64 / 100.0;
        let share = (count - self.start) as f64 / (self.full - self.start).max(1) as f64;
        rate + (1.0 - rate) * share
    }
}

impl Default for Startups {
    fn default() -> Startups {
        Startups {
            start: 10,
            rate: 30,
            full: 100,
        }
    }
}

impl FromStr for Startups {
    type Err = String;

    fn from_str(text: &str) -> Result<Startups, String> {
        let numbers: Result<Vec<usize>, _> = text.split(':').map(str::parse).collect();
        match numbers.as_deref() {
            Ok(&[start, rate, full]) if start <= full && rate <= 100 && (1..=500).contains(&full) => {
                Ok(Startups { start, rate, full })
            }
            _ => Err("write START:RATE:FULL like 10:30:100, with RATE in percent, START at most FULL, and FULL from 1 to 500".to_owned()),
        }
    }
}

impl std::fmt::Display for Startups {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}:{}", self.start, self.rate, self.full)
    }
}

impl Admission {
    /// Within `bounds`; `refuse` sends away whom there is no room for.
    pub fn new(bounds: Bounds, refuse: Refuse) -> Admission {
        Admission(Arc::new(Mutex::new(AdmissionTable::new(bounds, refuse))))
    }
}

impl AcceptorGate for Admission {
    type Pass = PendingConnection;

    fn enter(&self, stream: &TcpStream, peer: IpAddr) -> Option<PendingConnection> {
        let held = stream.try_clone().ok()?;
        let mut table = sys::lock(&self.0);
        let connection = HeldSlot {
            stream: held,
            refuse: table.refuse,
        };
        let number = table.enter(Instant::now(), source(peer), connection, dice())?;
        let admission = self.clone();
        Some(PendingConnection { admission, number })
    }

    fn is_full(&self) -> bool {
        false
    }
}

impl PendingConnection {
    /// The connection authenticated itself: it counts no longer, and its source is known from now on.
    pub fn authenticated(self) {
        sys::lock(&self.admission.0).authenticated(Instant::now(), self.number);
    }

    /// Its time is over: closes it, to come again. A client without a processor is late as well.
    pub fn expire(self) {
        sys::lock(&self.admission.0).expire(Instant::now(), self.number);
    }

    /// It was dropped for another.
    pub fn is_dropped(&self) -> bool {
        !sys::lock(&self.admission.0)
            .pending
            .contains_key(&self.number)
    }
}

impl Drop for PendingConnection {
    fn drop(&mut self) {
        sys::lock(&self.admission.0).failed(Instant::now(), self.number);
    }
}

impl AdmittedConnection for HeldSlot {
    fn is_silent(&self) -> bool {
        let info = observe::tcp_info(self.stream.as_fd());
        info.is_ok_and(|info| info.bytes_received() == Some(Bytes(0)))
    }

    fn close(self, again: Duration) {
        (self.refuse)(&self.stream, again);
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}

/// After how long whom there is no room for may come again, at random.
pub fn again() -> Duration {
    after(dice())
}

fn after(dice: f64) -> Duration {
    Duration::from_secs(AGAIN_S.start() + (dice * *AGAIN_S.end() as f64) as u64)
}

impl<C: AdmittedConnection> AdmissionTable<C> {
    fn new(bounds: Bounds, refuse: Refuse) -> AdmissionTable<C> {
        AdmissionTable {
            bounds,
            refuse,
            pending: BTreeMap::new(),
            next: 0,
            penalties: BTreeMap::new(),
            known: BTreeMap::new(),
        }
    }

    /// Keeps a new connection, and drops another for it if there are too many; otherwise sends it away. `dice` is
    /// from 0 to 1.
    fn enter(&mut self, now: Instant, source: IpAddr, connection: C, dice: f64) -> Option<u64> {
        let known = self.known.contains_key(&source);
        let startups = self.bounds.startups;
        let (places, for_one) = match known {
            true => (self.bounds.kept, self.bounds.kept_for_one),
            false => (startups.full, startups.for_one()),
        };
        let count = self.pending.values().filter(|e| e.known == known).count();
        let own = self.of(source);
        if let Some(until) = self.penalties.get(&source)
            && !known
            && count >= startups.start
            && *until > now + TOLERATED
        {
            connection.close(*until - now - TOLERATED);
            return None;
        }
        let again = after(dice);
        let must = count >= places || own >= for_one;
        if must || !known && dice < startups.chance(count) {
            let within = (own >= for_one).then_some(source);
            match self.stalest(now, known, within) {
                Some(number) => {
                    let entry = self.pending.remove(&number)?;
                    entry.connection.close(again);
                    self.penalise(now, entry.source);
                }
                None if must => {
                    connection.close(again);
                    return None;
                }
                None => {}
            }
        }
        self.next += 1;
        let entry = AdmissionEntry {
            source,
            known,
            since: now,
            connection,
        };
        self.pending.insert(self.next, entry);
        Some(self.next)
    }

    fn of(&self, source: IpAddr) -> usize {
        self.pending.values().filter(|e| e.source == source).count()
    }

    /// The oldest stale connection of the source that has most; of one source if it is given.
    fn stalest(&self, now: Instant, known: bool, within: Option<IpAddr>) -> Option<u64> {
        let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
        for entry in self.pending.values() {
            *counts.entry(entry.source).or_default() += 1;
        }
        let old = self.pending.iter().filter(|(_, entry)| {
            entry.known == known
                && within.is_none_or(|source| source == entry.source)
                && now.saturating_duration_since(entry.since) >= SILENT_FOR
        });
        let mut old: Vec<_> = old.collect();
        // By number, which is by age, among equals.
        old.sort_by_key(|(_, entry)| std::cmp::Reverse(counts[&entry.source]));
        let stale = old
            .into_iter()
            .find(|(_, entry)| entry.connection.is_silent());
        stale.map(|(number, _)| *number)
    }

    fn authenticated(&mut self, now: Instant, number: u64) {
        let Some(entry) = self.pending.remove(&number) else {
            return;
        };
        self.penalties.remove(&entry.source);
        self.known.insert(entry.source, now);
        forget_earliest(&mut self.known, MOST_KNOWN);
    }

    fn expire(&mut self, now: Instant, number: u64) {
        if let Some(entry) = self.pending.remove(&number) {
            entry.connection.close(PENALTY);
            self.penalise(now, entry.source);
        }
    }

    fn failed(&mut self, now: Instant, number: u64) {
        if let Some(entry) = self.pending.remove(&number) {
            self.penalise(now, entry.source);
        }
    }

    fn penalise(&mut self, now: Instant, source: IpAddr) {
        let until = self.penalties.entry(source).or_insert(now);
        *until = (*until).max(now) + PENALTY;
        *until = (*until).min(now + MOST_PENALTY);
        forget_earliest(&mut self.penalties, MOST_PENALISED);
    }
}

/// Keeps a map to its bound.
fn forget_earliest(times: &mut BTreeMap<IpAddr, Instant>, most: usize) {
    if times.len() > most
        && let Some(source) = times.iter().min_by_key(|(_, time)| **time).map(|(s, _)| *s)
    {
        times.remove(&source);
    }
}

/// From 0 to 1. Zero where the kernel gives none: then a connection is dropped rather than not.
fn dice() -> f64 {
    let byte = crate::chance::bytes::<1>().map_or(0, |[byte]| byte);
    f64::from(byte) / 256.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;

    /// A connection in simulated time.
    #[derive(Clone)]
    struct Simulated {
        clock: Rc<Cell<Instant>>,
        speaks: Option<Instant>,
        closed: Rc<Cell<Option<Duration>>>,
    }

    impl AdmittedConnection for Simulated {
        fn is_silent(&self) -> bool {
            self.speaks.is_none_or(|at| at > self.clock.get())
        }

        fn close(self, again: Duration) {
            self.closed.set(Some(again));
        }
    }

    struct Simulation {
        table: AdmissionTable<Simulated>,
        clock: Rc<Cell<Instant>>,
        random: u64,
    }

    impl Simulation {
        fn new(seed: u64) -> Simulation {
            let bounds = Bounds::of(Startups::default());
            Simulation {
                table: AdmissionTable::new(bounds, |_, _| {}),
                clock: Rc::new(Cell::new(Instant::now())),
                random: seed | 1,
            }
        }

        /// Whether it was kept, as what, and the connection. Its first bytes come after `speaks`.
        fn enter(&mut self, from: u32, speaks: Option<Duration>) -> (Option<u64>, Simulated) {
            let now = self.clock.get();
            let connection = Simulated {
                clock: Rc::clone(&self.clock),
                speaks: speaks.map(|after| now + after),
                closed: Rc::default(),
            };
            // xorshift64
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            let dice = (self.random >> 11) as f64 / (1u64 << 53) as f64;
            let source = IpAddr::from(from.to_be_bytes());
            let number = self.table.enter(now, source, connection.clone(), dice);
            (number, connection)
        }

        fn pass(&mut self, time: Duration) {
            self.clock.set(self.clock.get() + time);
        }

        fn authenticate(&mut self, number: u64) {
            self.table.authenticated(self.clock.get(), number);
        }
    }

    const ATTACKERS: u32 = 0x0a00_0000;
    const KNOWN: u32 = 0x0b00_0000;
    const UNKNOWN: u32 = 0x0c00_0000;

    /// Two thousand silent connections from `sources` addresses, which come again when they are dropped as 90 a second
    /// from eight, while a client begins each half second, over 100 ms of RTT. The share of `clients` that got in within
    /// two seconds, with the backoff that the server requests.
    fn flood(seed: u64, sources: u32, clients: u32) -> f64 {
        const STEP: Duration = Duration::from_millis(10);
        const HANDSHAKE: Duration = Duration::from_millis(200);
        let mut sim = Simulation::new(seed);
        let (known, _) = sim.enter(KNOWN, None);
        sim.authenticate(known.unwrap());
        let mut attacks: Vec<(Instant, u64)> = Vec::new();
        let mut handshakes: Vec<(Instant, Instant, u32, u64, Simulated)> = Vec::new();
        let mut waiting: Vec<(Instant, Instant, u32)> = Vec::new();
        let (mut came, mut inside, mut carry) = (0, 0, 0.0);
        for step in 0..3000 {
            let now = sim.clock.get();
            let silent = if step < 100 { 20 } else { 0 };
            carry += 0.9;
            let repeated = carry as u32;
            carry -= f64::from(repeated);
            let first = (0..silent).map(|n| (step * 20 + n) % sources);
            for source in first.chain((0..repeated).map(|n| (step + n) % 8)) {
                let (number, _) = sim.enter(ATTACKERS + source, None);
                attacks.extend(number.map(|number| (now, number)));
            }
            attacks.retain(|(since, number)| {
                let late = now - *since >= Duration::from_secs(5);
                if late {
                    sim.table.failed(now, *number);
                }
                !late
            });
            if step % 50 == 0 {
                came += 1;
                waiting.push((now, now, clients + came % 7 * u32::from(clients == UNKNOWN)));
            }
            let (due, later) = waiting.into_iter().partition(|(_, at, _)| *at <= now);
            waiting = later;
            for (began, _, from) in due {
                match sim.enter(from, Some(Duration::from_millis(100))) {
                    (Some(number), connection) => {
                        handshakes.push((began, now + HANDSHAKE, from, number, connection));
                    }
                    (None, connection) => {
                        waiting.push((began, now + connection.closed.get().unwrap(), from));
                    }
                }
            }
            handshakes.retain(|(began, ends, from, number, connection)| {
                if let Some(again) = connection.closed.get() {
                    waiting.push((*began, now + again, *from));
                    return false;
                }
                let over = *ends <= now;
                if over {
                    sim.authenticate(*number);
                    inside += u32::from(now - *began <= Duration::from_secs(2));
                }
                !over
            });
            sim.pass(STEP);
        }
        f64::from(inside) / f64::from(came)
    }

    #[test]
    fn clients_get_in_during_a_flood_of_silent_connections() {
        for (seed, sources) in [(1, 8), (2, 8), (3, 2000), (4, 2000)] {
            for clients in [KNOWN, UNKNOWN] {
                let share = flood(seed, sources, clients);
                assert!(share >= 0.95, "{sources} sources, {clients:x}: {share}");
            }
        }
    }

    #[test]
    fn silent_connections_of_its_own_address_do_not_lock_a_known_client_out() {
        let mut sim = Simulation::new(1);
        let (first, _) = sim.enter(KNOWN, None);
        sim.authenticate(first.unwrap());
        for _ in 0..9 {
            assert!(sim.enter(KNOWN, None).0.is_some());
        }
        assert!(sim.enter(KNOWN, Some(Duration::ZERO)).0.is_some());
        // Nor does a thousand: the oldest give way.
        for _ in 0..1000 {
            sim.enter(KNOWN, None);
            sim.pass(Duration::from_millis(11));
        }
        assert!(sim.enter(KNOWN, Some(Duration::ZERO)).0.is_some());
        assert_eq!(sim.table.of(IpAddr::from(KNOWN.to_be_bytes())), 25);
    }

    #[test]
    fn a_source_has_an_eighth_and_what_answers_is_not_dropped_for_what_is_new() {
        let mut sim = Simulation::new(1);
        for _ in 0..12 {
            assert!(sim.enter(UNKNOWN, Some(Duration::ZERO)).0.is_some());
        }
        let (number, refused) = sim.enter(UNKNOWN, Some(Duration::ZERO));
        assert_eq!(number, None);
        let again = refused.closed.get().unwrap();
        assert!((1..=6).contains(&again.as_secs()), "{again:?}");
        // Silent ones give way.
        for _ in 0..12 {
            assert!(sim.enter(ATTACKERS, None).0.is_some());
        }
        sim.pass(SILENT_FOR);
        assert!(sim.enter(ATTACKERS, None).0.is_some());
        assert_eq!(sim.enter(UNKNOWN, None).0, None);
    }

    #[test]
    fn penalties_hold_while_there_are_many_and_end() {
        let mut sim = Simulation::new(1);
        for _ in 0..4 {
            let (number, _) = sim.enter(ATTACKERS, None);
            sim.table.failed(sim.clock.get(), number.unwrap());
        }
        assert!(
            sim.enter(ATTACKERS, None).0.is_some(),
            "nobody else is there"
        );
        for n in 0..10 {
            assert!(sim.enter(UNKNOWN + n, None).0.is_some());
        }
        let (number, refused) = sim.enter(ATTACKERS, Some(Duration::ZERO));
        assert_eq!(
            (number, refused.closed.get()),
            (None, Some(Duration::from_secs(10)))
        );
        sim.pass(Duration::from_secs(10));
        assert!(sim.enter(ATTACKERS, None).0.is_some());
        for n in 0..2 * MOST_PENALISED as u32 {
            sim.table
                .penalise(sim.clock.get(), IpAddr::from((UNKNOWN + n).to_be_bytes()));
        }
        assert_eq!(sim.table.penalties.len(), MOST_PENALISED);
    }

    #[test]
    fn numbers_of_startups() {
        let startups: Startups = "10:30:100".parse().unwrap();
        assert_eq!(startups, Startups::default());
        assert_eq!(startups.to_string(), "10:30:100");
        let percents = [9, 10, 55, 100].map(|count| (startups.chance(count) * 100.0).round());
        assert_eq!(percents, [0.0, 30.0, 65.0, 100.0]);
        for bad in [
            "",
            "10",
            "10:30",
            "10:101:100",
            "11:30:10",
            "0:0:0",
            "1:1:501",
            "1:2:3:4",
        ] {
            assert!(bad.parse::<Startups>().is_err(), "{bad}");
        }
    }

    #[test]
    fn places_follow_from_the_startups() {
        let of = |text: &str| text.parse::<Startups>().unwrap();
        let places = |text: &str| (of(text).for_one(), of(text).kept());
        assert_eq!(places("10:30:100"), (12, 50));
        assert_eq!(places("1:1:16"), (2, 8));
        assert_eq!(places("1:1:15"), (1, 7));
        assert_eq!(places("1:1:1"), (1, 2));
        let bounds = Bounds::of(of("10:30:100"));
        assert_eq!((bounds.kept, bounds.kept_for_one), (50, 25));
        // Where all may be there at once the last is certainly one too many.
        let sudden = of("5:0:5");
        assert_eq!([4, 5, 6].map(|count| sudden.chance(count)), [0.0, 0.0, 1.0]);
        for good in ["0:0:1", "500:100:500", "1:1:500"] {
            assert_eq!(of(good).to_string(), good);
        }
    }

    #[test]
    fn who_is_refused_may_come_again_after_one_to_five_seconds() {
        let seconds = |dice| after(dice).as_secs();
        assert_eq!([0.0, 0.19, 0.2, 0.5, 0.99].map(seconds), [1, 1, 2, 3, 5]);
        assert!((0.0..1.0).contains(&dice()));
        assert!((1..=5).contains(&again().as_secs()));
    }

    /// An address.
    fn at(number: u32) -> IpAddr {
        IpAddr::from(number.to_be_bytes())
    }

    #[test]
    fn penalties_add_up_to_a_bound_from_the_time_of_the_last() {
        let mut sim = Simulation::new(1);
        let now = sim.clock.get();
        let mut penalty = |times: u32, later: u64| {
            let at_then = now + Duration::from_secs(later);
            (0..times).for_each(|_| sim.table.penalise(at_then, at(1)));
            sim.table.penalties[&at(1)] - now
        };
        let seconds = Duration::from_secs;
        assert_eq!(penalty(1, 0), seconds(5));
        assert_eq!(penalty(2, 0), seconds(15));
        assert_eq!(penalty(9, 0), seconds(60));
        assert_eq!(penalty(1, 0), seconds(60));
        // After they have ended they begin again.
        assert_eq!(penalty(1, 100), seconds(105));
    }

    #[test]
    fn who_authenticated_itself_is_known_and_has_no_penalty() {
        let mut sim = Simulation::new(1);
        let (number, _) = sim.enter(KNOWN, None);
        sim.table.penalise(sim.clock.get(), at(KNOWN));
        sim.authenticate(number.unwrap());
        sim.authenticate(number.unwrap());
        assert!(sim.table.penalties.is_empty() && sim.table.pending.is_empty());
        assert!(sim.table.known.contains_key(&at(KNOWN)));
        let first = sim.clock.get();
        for source in 1..MOST_KNOWN as u32 {
            sim.pass(Duration::from_millis(1));
            let (number, _) = sim.enter(KNOWN + source, None);
            sim.authenticate(number.unwrap());
        }
        assert_eq!(sim.table.known.len(), MOST_KNOWN);
        assert_eq!(sim.table.known[&at(KNOWN)], first);
        let (number, _) = sim.enter(UNKNOWN, None);
        sim.authenticate(number.unwrap());
        assert_eq!(sim.table.known.len(), MOST_KNOWN);
        assert!(!sim.table.known.contains_key(&at(KNOWN)), "the earliest");
    }

    #[test]
    fn a_connection_whose_time_is_over_is_closed_and_costs_its_source() {
        let mut sim = Simulation::new(1);
        let (number, connection) = sim.enter(UNKNOWN, None);
        sim.table.expire(sim.clock.get(), number.unwrap());
        assert_eq!(connection.closed.get(), Some(PENALTY));
        assert_eq!(sim.table.penalties.len(), 1);
        // Once is enough.
        sim.table.expire(sim.clock.get(), number.unwrap());
        sim.table.failed(sim.clock.get(), number.unwrap());
        assert_eq!(sim.table.penalties[&at(UNKNOWN)] - sim.clock.get(), PENALTY);
    }

    #[test]
    fn the_oldest_stale_connection_of_the_source_that_has_most_gives_way() {
        let mut sim = Simulation::new(1);
        let one = sim.enter(1, None).0;
        sim.pass(Duration::from_millis(1));
        let talks = sim.enter(2, Some(Duration::ZERO)).0;
        let many = [sim.enter(2, None).0, sim.enter(2, None).0];
        let stalest = |sim: &Simulation, within| sim.table.stalest(sim.clock.get(), false, within);
        assert_eq!(stalest(&sim, None), None, "none is stale yet");
        sim.pass(SILENT_FOR - Duration::from_millis(1));
        assert_eq!(stalest(&sim, None), one, "the first is");
        assert_eq!(stalest(&sim, Some(at(2))), None);
        sim.pass(Duration::from_millis(1));
        assert_eq!(stalest(&sim, None), many[0]);
        assert_ne!(stalest(&sim, None), talks);
        assert_eq!(stalest(&sim, Some(at(1))), one);
        assert_eq!(stalest(&sim, Some(at(3))), None);
        assert_eq!(sim.table.stalest(sim.clock.get(), true, None), None);
    }

    #[test]
    fn a_penalty_counts_from_the_first_startups_on_and_above_what_is_tolerated() {
        let refused_for = |penalties: u32, others: u32| {
            let mut sim = Simulation::new(1);
            let now = sim.clock.get();
            (0..penalties).for_each(|_| sim.table.penalise(now, at(ATTACKERS)));
            (0..others).for_each(|n| drop(sim.enter(UNKNOWN + n, Some(Duration::ZERO))));
            let (number, connection) = sim.enter(ATTACKERS, Some(Duration::ZERO));
            assert_eq!(number.is_none(), connection.closed.get().is_some());
            connection.closed.get().map(|again| again.as_secs())
        };
        assert_eq!(refused_for(2, 10), None, "ten seconds are tolerated");
        assert_eq!(refused_for(3, 10), Some(5));
        assert_eq!(refused_for(3, 9), None, "there are few");
    }

    #[test]
    fn a_pending_connection_is_dropped_for_another_or_ends_by_itself() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, peer) = listener.accept().unwrap();
        let refuse: Refuse = |mut stream, again| {
            let _ = stream.write_all(&[again.as_secs() as u8]);
        };
        let admission = Admission::new(Bounds::of(Startups::default()), refuse);
        assert!(!admission.is_full());
        let silent = HeldSlot {
            stream: server.try_clone().unwrap(),
            refuse,
        };
        assert!(silent.is_silent());
        client.write_all(b"x").unwrap();
        while silent.is_silent() {
            std::thread::yield_now();
        }
        let pass = || admission.enter(&server, peer.ip()).unwrap();
        let pending = |admission: &Admission| sys::lock(&admission.0).pending.len();
        let first = pass();
        assert!(!first.is_dropped());
        drop(first);
        assert_eq!(sys::lock(&admission.0).penalties.len(), 1);
        pass().authenticated();
        assert_eq!(pending(&admission), 0);
        assert!(sys::lock(&admission.0).penalties.is_empty());
        let last = pass();
        sys::lock(&admission.0).pending.clear();
        assert!(last.is_dropped());
        drop(last);
        assert!(
            sys::lock(&admission.0).penalties.is_empty(),
            "it pays for nothing"
        );
        pass().expire();
        let mut said = Vec::new();
        client.read_to_end(&mut said).unwrap();
        assert_eq!(said, [PENALTY.as_secs() as u8], "and it is closed");
    }
}

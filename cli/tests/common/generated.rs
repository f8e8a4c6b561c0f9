//! Captures of TCP connections whose truth is known: a discrete-event simulation of two hosts and the path between them,
//! recorded by up to three observers with clocks of their own.

use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::net::Ipv4Addr;

/// Nanoseconds of true time.
pub type Time = u64;

pub const MS: Time = 1_000_000;
const MSS: u32 = 1448;
const FIN: u8 = 1;
const SYN: u8 = 2;
const PSH: u8 = 8;
const ACK: u8 = 16;
/// RFC 6298 with the minimum of Linux (`TCP_RTO_MIN`).
const RTO: Time = 200 * MS;

/// The generator of Steele, Lea and Flood 2014 (splitmix64): the same numbers for a seed on every machine.
#[derive(Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// From 0 up to 1.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// From `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    pub fn is(&mut self, chance: f64) -> bool {
        self.unit() < chance
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }
}

/// Where packets are observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    Client,
    Middle,
    Server,
}

/// What the connections do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// The client sends so many segments with a window of so many.
    Bulk { segments: u32, window: u32 },
    /// Requests in two writes, the second of which Nagle's rule holds until the server acknowledges the first, so much later.
    Requests { count: u32, held: Time, think: Time },
}

#[derive(Clone, Debug)]
pub struct Case {
    pub seed: u64,
    pub load: Load,
    pub connections: u16,
    /// One way, empty.
    pub delay: Time,
    /// Of it, from the client to the middle.
    pub to_middle: Time,
    /// Mean of the queueing delay of a packet.
    pub queueing: Time,
    pub loss: f64,
    /// Of segments that arrived: retransmitted all the same.
    pub needless: f64,
    /// Of packets: recorded twice by the observer.
    pub twice: f64,
    /// The clocks of client, middle and server: nanoseconds ahead, parts of a million faster.
    pub clocks: [(i64, f64); 3],
}

/// A packet as an observer records it.
#[derive(Clone, Copy)]
struct Packet {
    connection: u16,
    from_client: bool,
    id: u16,
    seq: u32,
    ack: u32,
    flags: u8,
    payload: u32,
    sack: Option<(u32, u32)>,
    stamps: (u32, u32),
    /// Set by the simulation alone.
    again: bool,
    needless: bool,
}

/// What is true of the forward direction of a connection, as far as an observer can have seen it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Truth {
    pub segments: u64,
    pub retransmissions: u64,
    pub needless: u64,
    pub twice: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClockTruth {
    /// The second clock less the first, both counted from their first packets, when the first began.
    pub offset_ns: f64,
    pub drift_ppm: f64,
}

/// What each observer recorded, and what is true.
pub struct Recording {
    passes: BTreeMap<Place, Vec<(Time, Packet, bool)>>,
    clocks: [(i64, f64); 3],
    /// One-way delays of data that arrived, beyond the smallest: the median.
    pub forward_queueing: Time,
    pub requests: Vec<Time>,
}

/// Which event of which connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Open,
    Timeout(Time),
    AckTimer,
    Reply,
    NextRequest,
}

/// One connection's two ends.
struct Connection {
    isn: [u32; 2],
    next: u32,
    acked: u32,
    sacked: BTreeSet<u32>,
    again_at: BTreeMap<u32, Time>,
    sent_at: BTreeMap<u32, Time>,
    arrived: BTreeSet<u32>,
    total: u32,
    closing: bool,
    progress: Time,
    /// The server's: the next byte it expects, what lies beyond, and what it has sent.
    expected: u32,
    beyond: BTreeMap<u32, u32>,
    replied: u32,
    heard_reply: u32,
    request: u32,
    asked: Time,
    holds: bool,
    stamp_echo: [u32; 2],
}

struct Simulation<'a> {
    case: &'a Case,
    random: Random,
    now: Time,
    queue: BinaryHeap<std::cmp::Reverse<(Time, u64, u16, Work)>>,
    count: u64,
    free: [Time; 2],
    ids: [u16; 2],
    connections: Vec<Connection>,
    passes: BTreeMap<Place, Vec<(Time, Packet, bool)>>,
    delays: Vec<Time>,
    requests: Vec<Time>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Work {
    Event(Event),
    Arrives(u64),
}

impl Case {
    pub fn play(&self) -> Recording {
        Simulation::new(self).play()
    }

    /// Drawn from a seed. Loads alternate.
    pub fn drawn(seed: u64) -> Case {
        let mut random = Random(seed.wrapping_mul(0x1234_5679).wrapping_add(99));
        let bulk = seed.is_multiple_of(2);
        let delay = random.between(2 * MS, 15 * MS);
        let load = match bulk {
            true => Load::Bulk {
                segments: random.between(1200, 2000) as u32,
                window: random.between(12, 24) as u32,
            },
            false => Load::Requests {
                count: 60,
                held: random.between(5, 60) * MS,
                think: random.between(MS / 2, 3 * MS),
            },
        };
        let drift = random.unit() * 500.0;
        let sign = if random.is(0.5) { 1.0 } else { -1.0 };
        let ahead = random.between(0, 20_000 * MS) as i64 - 10_000 * MS as i64;
        Case {
            seed,
            load,
            connections: random.between(1, 3) as u16,
            delay,
            to_middle: delay * random.between(30, 70) / 100,
            queueing: random.between(0, 30_000),
            loss: if bulk { 0.01 } else { 0.0 },
            needless: if bulk && random.is(0.7) { 0.01 } else { 0.0 },
            twice: if random.is(0.3) { 0.02 } else { 0.0 },
            clocks: [(0, 0.0), (3_000, 0.0), (ahead, sign * drift)],
        }
    }
}

impl<'a> Simulation<'a> {
    fn new(case: &'a Case) -> Simulation<'a> {
        let mut random = Random(case.seed ^ 0xabcd_ef01);
        let connections = (0..case.connections)
            .map(|_| {
                let isn = [random.next() as u32, random.next() as u32];
                Connection {
                    isn,
                    next: 1,
                    acked: 1,
                    sacked: BTreeSet::new(),
                    again_at: BTreeMap::new(),
                    sent_at: BTreeMap::new(),
                    arrived: BTreeSet::new(),
                    total: match case.load {
                        Load::Bulk { segments, .. } => 1 + segments * MSS,
                        Load::Requests { .. } => u32::MAX,
                    },
                    closing: false,
                    progress: 0,
                    expected: 1,
                    beyond: BTreeMap::new(),
                    replied: 1,
                    heard_reply: 1,
                    request: 0,
                    asked: 0,
                    holds: false,
                    stamp_echo: [0; 2],
                }
            })
            .collect();
        Simulation {
            case,
            random,
            now: 0,
            queue: BinaryHeap::new(),
            count: 0,
            free: [0; 2],
            ids: [1000, 30_000],
            connections,
            passes: BTreeMap::new(),
            delays: Vec::new(),
            requests: Vec::new(),
        }
    }

    fn at(&mut self, time: Time, connection: u16, work: Work) {
        self.count += 1;
        let entry = (time, self.count, connection, work);
        self.queue.push(std::cmp::Reverse(entry));
    }

    fn play(mut self) -> Recording {
        let mut flying: BTreeMap<u64, Packet> = BTreeMap::new();
        for n in 0..self.case.connections {
            self.at(MS + u64::from(n) * 3 * MS, n, Work::Event(Event::Open));
        }
        let mut steps = 0_u32;
        while let Some(std::cmp::Reverse((time, _, n, work))) = self.queue.pop() {
            steps += 1;
            assert!(
                steps < 2_000_000,
                "the simulation of seed {} ends",
                self.case.seed
            );
            self.now = time;
            match work {
                Work::Event(event) => self.event(n, event, &mut flying),
                Work::Arrives(key) => {
                    let packet = flying.remove(&key).expect("it was sent");
                    self.arrives(packet, &mut flying);
                }
            }
        }
        self.delays.sort_unstable();
        let least = self.delays.first().copied().unwrap_or(0);
        let middle = self.delays.get(self.delays.len() / 2).copied().unwrap_or(0);
        Recording {
            passes: self.passes,
            clocks: self.case.clocks,
            forward_queueing: middle - least,
            requests: self.requests,
        }
    }

    /// Sends a packet: observed at its host, perhaps in the middle, and where it arrives unless it is lost.
    fn send(&mut self, mut packet: Packet, flying: &mut BTreeMap<u64, Packet>, lost: bool) {
        let side = usize::from(!packet.from_client);
        self.ids[side] = self.ids[side].wrapping_add(1);
        packet.id = self.ids[side];
        // A tick of a millisecond, as Linux counts.
        let own = (self.now / MS) as u32 + 77_000 * (1 + side as u32);
        packet.stamps = (
            own,
            self.connections[usize::from(packet.connection)].stamp_echo[side],
        );
        // Its line takes 12 us for a full frame of 1 Gbit/s, and packets keep their order.
        let line = u64::from(packet.payload + 78) * 8;
        let begin = self.free[side].max(self.now);
        let leaves = begin + line;
        self.free[side] = leaves;
        let here = match packet.from_client {
            true => Place::Client,
            false => Place::Server,
        };
        self.observe(here, self.now.max(begin), packet);
        let before = lost && self.random.is(0.5);
        let queued = self.random.exponential(self.case.queueing as f64) as u64;
        let half = match packet.from_client {
            true => self.case.to_middle,
            false => self.case.delay - self.case.to_middle,
        };
        if !before {
            self.observe(Place::Middle, leaves + half, packet);
        }
        if lost {
            return;
        }
        let arrives = leaves + self.case.delay + queued;
        if packet.payload > 0 && packet.from_client {
            self.delays.push(arrives - begin);
        }
        self.count += 1;
        flying.insert(self.count, packet);
        let key = self.count;
        self.at(arrives, packet.connection, Work::Arrives(key));
    }

    fn observe(&mut self, place: Place, at: Time, packet: Packet) {
        let twice = self.random.is(self.case.twice);
        let passes = self.passes.entry(place).or_default();
        passes.push((at, packet, false));
        if twice {
            passes.push((at + 4_000, packet, true));
        }
    }

    fn packet(&self, n: u16, from_client: bool, flags: u8, payload: u32) -> Packet {
        let of = &self.connections[usize::from(n)];
        let (seq, ack) = match from_client {
            true => (
                of.isn[0].wrapping_add(of.next),
                of.isn[1].wrapping_add(of.heard_reply),
            ),
            false => (
                of.isn[1].wrapping_add(of.replied),
                of.isn[0].wrapping_add(of.expected),
            ),
        };
        Packet {
            connection: n,
            from_client,
            id: 0,
            seq,
            ack,
            flags,
            payload,
            sack: None,
            stamps: (0, 0),
            again: false,
            needless: false,
        }
    }

    fn event(&mut self, n: u16, event: Event, flying: &mut BTreeMap<u64, Packet>) {
        match event {
            Event::Open => {
                let mut syn = self.packet(n, true, SYN, 0);
                syn.seq = self.connections[usize::from(n)].isn[0];
                syn.ack = 0;
                self.send(syn, flying, false);
            }
            Event::Timeout(progress) => {
                let of = &self.connections[usize::from(n)];
                if of.progress == progress && of.acked < of.next && !of.closing {
                    let first = of.acked;
                    self.retransmit(n, first, flying);
                    self.rearm(n);
                }
            }
            Event::AckTimer => {
                self.connections[usize::from(n)].holds = false;
                let ack = self.packet(n, false, ACK, 0);
                self.send(ack, flying, false);
            }
            Event::Reply => {
                let reply = self.packet(n, false, ACK | PSH, 400);
                self.connections[usize::from(n)].replied += 400;
                self.send(reply, flying, false);
            }
            Event::NextRequest => {
                let Load::Requests { count, .. } = self.case.load else {
                    return;
                };
                let of = &mut self.connections[usize::from(n)];
                of.request += 1;
                if of.request > count {
                    of.closing = true;
                    let fin = self.packet(n, true, FIN | ACK, 0);
                    self.send(fin, flying, false);
                    return;
                }
                of.asked = self.now;
                self.data(n, 100, PSH, flying);
            }
        }
    }

    /// New data of the client.
    fn data(&mut self, n: u16, bytes: u32, push: u8, flying: &mut BTreeMap<u64, Packet>) {
        let packet = self.packet(n, true, ACK | push, bytes);
        let of = &mut self.connections[usize::from(n)];
        let first = of.next;
        of.sent_at.insert(first, self.now);
        of.next += bytes;
        // The end is not lost: nothing behind it would show the loss.
        let tail = of.next + 6 * MSS >= of.total;
        let lost = !tail && self.random.is(self.case.loss);
        if !lost {
            self.connections[usize::from(n)].arrived.insert(first);
        }
        self.send(packet, flying, lost);
    }

    fn retransmit(&mut self, n: u16, first: u32, flying: &mut BTreeMap<u64, Packet>) {
        let mut packet = self.packet(n, true, ACK, MSS);
        let of = &mut self.connections[usize::from(n)];
        packet.seq = of.isn[0].wrapping_add(first);
        packet.again = true;
        packet.needless = of.arrived.contains(&first);
        of.again_at.insert(first, self.now);
        of.arrived.insert(first);
        self.send(packet, flying, false);
    }

    fn rearm(&mut self, n: u16) {
        let of = &mut self.connections[usize::from(n)];
        of.progress = self.now;
        let timeout = Work::Event(Event::Timeout(self.now));
        self.at(self.now + RTO + 4 * self.case.delay, n, timeout);
    }

    fn fill(&mut self, n: u16, flying: &mut BTreeMap<u64, Packet>) {
        let Load::Bulk { window, .. } = self.case.load else {
            return;
        };
        loop {
            let of = &self.connections[usize::from(n)];
            let out = (of.next - of.acked) / MSS - of.sacked.len() as u32;
            if out >= window || of.next >= of.total {
                return;
            }
            self.data(n, MSS, 0, flying);
        }
    }

    fn arrives(&mut self, packet: Packet, flying: &mut BTreeMap<u64, Packet>) {
        let n = packet.connection;
        let there = match packet.from_client {
            true => Place::Server,
            false => Place::Client,
        };
        self.observe(there, self.now, packet);
        let side = usize::from(packet.from_client);
        self.connections[usize::from(n)].stamp_echo[side] = packet.stamps.0;
        match packet.from_client {
            true => self.at_server(packet, flying),
            false => self.at_client(packet, flying),
        }
    }

    fn at_server(&mut self, packet: Packet, flying: &mut BTreeMap<u64, Packet>) {
        let n = packet.connection;
        if packet.flags & SYN != 0 {
            let mut answer = self.packet(n, false, SYN | ACK, 0);
            answer.seq = self.connections[usize::from(n)].isn[1];
            self.send(answer, flying, false);
            return;
        }
        if packet.flags & FIN != 0 {
            self.connections[usize::from(n)].expected += 1;
            let fin = self.packet(n, false, FIN | ACK, 0);
            self.connections[usize::from(n)].replied += 1;
            self.send(fin, flying, false);
            return;
        }
        if packet.payload == 0 {
            return;
        }
        let of = &mut self.connections[usize::from(n)];
        let first = packet.seq.wrapping_sub(of.isn[0]);
        let end = first + packet.payload;
        let isn = of.isn[0];
        let block = |a: u32, b: u32| Some((isn.wrapping_add(a), isn.wrapping_add(b)));
        let mut sack = None;
        if end <= of.expected || of.beyond.contains_key(&first) {
            sack = block(first, end); // RFC 2883
        } else if first > of.expected {
            of.beyond.insert(first, end);
            sack = block(first, end);
        } else {
            of.expected = end;
            while let Some(end) = of.beyond.remove(&of.expected) {
                of.expected = end;
            }
            if let Some((a, b)) = of.beyond.first_key_value() {
                sack = block(*a, *b);
            }
        }
        match self.case.load {
            Load::Bulk { .. } => {
                let mut ack = self.packet(n, false, ACK, 0);
                ack.sack = sack;
                self.send(ack, flying, false);
            }
            Load::Requests { held, think, .. } => match packet.payload {
                100 => {
                    self.connections[usize::from(n)].holds = true;
                    self.at(self.now + held, n, Work::Event(Event::AckTimer));
                }
                _ => self.at(self.now + think, n, Work::Event(Event::Reply)),
            },
        }
    }

    fn at_client(&mut self, packet: Packet, flying: &mut BTreeMap<u64, Packet>) {
        let n = packet.connection;
        if packet.flags & SYN != 0 {
            let ack = self.packet(n, true, ACK, 0);
            self.send(ack, flying, false);
            match self.case.load {
                Load::Bulk { .. } => {
                    self.fill(n, flying);
                    self.rearm(n);
                }
                Load::Requests { .. } => {
                    let first = Work::Event(Event::NextRequest);
                    self.at(self.now + 2 * MS, n, first);
                }
            }
            return;
        }
        let of = &mut self.connections[usize::from(n)];
        let ack = packet.ack.wrapping_sub(of.isn[0]);
        let gained = ack > of.acked && ack <= of.next;
        if gained {
            of.acked = ack;
            of.sacked = of.sacked.split_off(&ack);
        }
        if packet.flags & FIN != 0 {
            of.heard_reply += 1;
            of.next += 1;
            let last = self.packet(n, true, ACK, 0);
            self.send(last, flying, false);
            return;
        }
        if let Load::Requests { .. } = self.case.load {
            if packet.payload > 0 {
                of.heard_reply += packet.payload;
                let took = self.now - of.asked;
                self.requests.push(took);
                let ack = self.packet(n, true, ACK, 0);
                self.send(ack, flying, false);
                self.at(self.now + 5 * MS, n, Work::Event(Event::NextRequest));
            } else if gained {
                self.data(n, 200, PSH, flying);
            }
            return;
        }
        if let Some((from, _)) = packet.sack {
            let from = from.wrapping_sub(of.isn[0]);
            if from >= of.acked {
                of.sacked.insert(from);
            }
        }
        let done = of.acked >= of.total;
        if done && !of.closing {
            of.closing = true;
            let fin = self.packet(n, true, FIN | ACK, 0);
            self.send(fin, flying, false);
            return;
        }
        let trip = 2 * self.case.delay;
        let of = &self.connections[usize::from(n)];
        // Three later ones arrived (RFC 6675), and it was not retransmitted within a round trip.
        let missing: Vec<u32> = (of.acked..of.next)
            .step_by(MSS as usize)
            .take_while(|first| of.sacked.range(first + 1..).nth(2).is_some())
            .filter(|first| !of.sacked.contains(first))
            .filter(|first| {
                of.again_at
                    .get(first)
                    .is_none_or(|at| self.now - at > trip + RTO)
            })
            .collect();
        // One that is on its way or has arrived, and whose acknowledgement is not here.
        let fresh = |first: &u32| {
            let age = of.sent_at.get(first).map_or(0, |at| self.now - at);
            age > trip * 7 / 10 && of.arrived.contains(first)
        };
        let spurious = (of.acked..of.next).step_by(MSS as usize).find(|first| {
            fresh(first) && !of.again_at.contains_key(first) && !of.sacked.contains(first)
        });
        for first in missing {
            self.retransmit(n, first, flying);
        }
        if let Some(first) = spurious
            && self.random.is(self.case.needless)
        {
            self.retransmit(n, first, flying);
        }
        self.fill(n, flying);
        if gained {
            self.rearm(n);
        }
    }
}

impl Recording {
    fn sorted(&self, place: Place) -> Vec<(Time, Packet, bool)> {
        let mut passes = self.passes.get(&place).cloned().unwrap_or_default();
        passes.sort_by_key(|(at, ..)| *at);
        passes
    }

    /// Nanoseconds since 1970 by the clock of the observer.
    fn read(&self, place: Place, at: Time) -> u64 {
        const START: i64 = 1_700_000_000_000_000_000;
        let (ahead, ppm) = self.clocks[place as usize];
        let drifted = (at as f64 * ppm * 1e-6) as i64;
        (START + ahead + at as i64 + drifted) as u64
    }

    /// The capture of an observer: pcap with nanoseconds, headers alone.
    pub fn pcap(&self, place: Place) -> Vec<u8> {
        let mut out = Vec::new();
        for word in [0xa1b2_3c4d_u32, 4 << 16 | 2, 0, 0, 96, 1] {
            out.extend(word.to_le_bytes());
        }
        for (at, packet, twice) in self.sorted(place) {
            let at = self.read(place, at);
            let frame = frame(&packet, twice);
            let whole = frame.len() as u32 + packet.payload;
            let words = [(at / 1_000_000_000) as u32, (at % 1_000_000_000) as u32];
            for word in words.into_iter().chain([frame.len() as u32, whole]) {
                out.extend(word.to_le_bytes());
            }
            out.extend(frame);
        }
        out
    }

    /// What is true of the data of a connection's client, by what passed an observer.
    pub fn truth(&self, place: Place, connection: u16) -> Truth {
        let mut truth = Truth::default();
        for (_, packet, twice) in self.passes.get(&place).into_iter().flatten() {
            if packet.connection != connection || packet.payload == 0 || !packet.from_client {
                continue;
            }
            match twice {
                true => truth.twice += 1,
                false => {
                    truth.segments += 1;
                    truth.retransmissions += u64::from(packet.again);
                    truth.needless += u64::from(packet.needless);
                }
            }
        }
        truth
    }

    /// Of the clocks of client and server, as two captures show them.
    pub fn clocks(&self) -> ClockTruth {
        let first = |place| self.sorted(place)[0].0;
        let (a, b) = (first(Place::Client), first(Place::Server));
        let (own, other) = (self.clocks[0].1 * 1e-6, self.clocks[2].1 * 1e-6);
        ClockTruth {
            offset_ns: (a as f64 - b as f64) * (1.0 + other),
            drift_ppm: ((1.0 + other) / (1.0 + own) - 1.0) * 1e6,
        }
    }
}

pub fn client(connection: u16) -> String {
    format!("192.0.2.1:{}", 40_000 + connection)
}

const SERVER_PORT: u16 = 9000;

/// Ethernet, IPv4 and TCP with its options.
fn frame(packet: &Packet, twice: bool) -> Vec<u8> {
    let mut options: Vec<u8> = Vec::new();
    if packet.flags & SYN != 0 {
        options.extend([2, 4, 5, 0xb4, 4, 2, 1, 3, 3, 7, 1, 1]);
    }
    options.extend([1, 1, 8, 10]);
    options.extend(packet.stamps.0.to_be_bytes());
    options.extend(packet.stamps.1.to_be_bytes());
    if let Some((from, to)) = packet.sack {
        options.extend([1, 1, 5, 10]);
        options.extend(from.to_be_bytes());
        options.extend(to.to_be_bytes());
    }
    let header = 20 + options.len();
    let total = (20 + header) as u32 + packet.payload;
    let ends = [
        (Ipv4Addr::new(192, 0, 2, 1), 40_000 + packet.connection),
        (Ipv4Addr::new(198, 51, 100, 7), SERVER_PORT),
    ];
    let [from, to] = match packet.from_client {
        true => ends,
        false => [ends[1], ends[0]],
    };
    let mut out = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
    out.extend((total as u16).to_be_bytes());
    out.extend(packet.id.to_be_bytes());
    out.extend([0x40, 0, if twice { 63 } else { 64 }, 6, 0, 0]);
    out.extend(from.0.octets());
    out.extend(to.0.octets());
    out.extend(from.1.to_be_bytes());
    out.extend(to.1.to_be_bytes());
    out.extend(packet.seq.to_be_bytes());
    out.extend(packet.ack.to_be_bytes());
    let offset = ((header / 4) << 4) as u8;
    // That of a SYN has no scale (RFC 7323, 2.2).
    let window: u16 = if packet.flags & SYN != 0 {
        64_240
    } else {
        4000
    };
    out.extend([offset, packet.flags]);
    out.extend(window.to_be_bytes());
    out.extend([0, 0, 0, 0]);
    out.extend(options);
    out
}

//! The sockets of a host, each sampled from time to time at its own end: what limits each of them, within a bounded memory.
//! An explanation is one of the last minute.

use crate::account::ConnectionAccount;
use crate::alarms::{AlarmInterval, AlarmState, SocketAlarm, data_wait};
use crate::capture::is_small;
use crate::conclude::{ExplainedConnection, assemble};
use crate::facts::Facts;
use crate::limits::{Key, UNREAD};
use crate::mixed::{KnownSocket, Mixed};
use crate::samples::{Idle, count, grown, interval, of_coarse_samples};
use crate::sliding_window::Sums;
use crate::socket_totals::SocketTotals;
use model::finding::{
    Conclusion, Confidence, Evidence, Explanation, Finding, Glance, Level, Limit, Share,
    SocketAccount, SocketGroup, Source,
};
use model::{Bytes, Comm, Connection, Nanos, SocketState, TraceSample};
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

/// Sockets that are watched at once; others are counted and left out.
const MOST_SOCKETS: usize = 32_768;
/// Samples that are kept of all sockets together, and of one at the most and at the least.
const MOST_SAMPLES: usize = 23_296 + MOST_BUSY * SAMPLES_OF_BUSY;
const MOST_OF_ONE: usize = 600;
const FEWEST_OF_ONE: usize = 2;
/// Sockets that are busy, and samples that are kept of each of them at the least: they are asked more often than all.
const MOST_BUSY: usize = 16;
const SAMPLES_OF_BUSY: usize = 80;
/// Samples are kept for so long, and so long after data moved.
const KEPT: Nanos = Nanos::from_secs(60);
/// What a glance shows.
const LATELY: Nanos = Nanos::from_secs(3);
/// Explanations of sockets that ended: of more, those that moved most stay.
const MOST_ENDED: usize = 64;
/// With fewer samples nothing is explained.
const FEWEST_EXPLAINED: usize = 8;
/// An explanation that a glance shows is at most so old.
const EXPLAINED_EVERY: Nanos = Nanos::from_secs(5);
/// Explanations that are made for one set of glances: one takes up to a millisecond.
const MOST_EXPLAINED: usize = 2;
/// The age of a connection that was open before the first look.
const LONG: Nanos = Nanos::from_secs(86_400);
/// A reader that is behind for so much of the time is the limit.
const MOSTLY: f64 = 0.5;
/// Time after which a mean of the last seconds has forgotten most.
const MEMORY: f64 = 5e9;

/// Watches the TCP sockets of a host by samples of them.
#[derive(Default)]
pub struct SocketWatcher {
    sockets: BTreeMap<(u32, u64), WatchedSocket>,
    totals: SocketTotals,
    next: u32,
    dump: u32,
    /// A look at all sockets is behind it: what was not met in it is new.
    complete: bool,
    /// Sockets of which several samples are kept.
    moving: usize,
    left_out: u64,
    ended: Vec<Explanation>,
    alarms: Vec<SocketAlarm>,
    scratch: Facts,
}

struct WatchedSocket {
    about: Connection,
    pid: u32,
    comm: Comm,
    congestion: String,
    group: usize,
    since: Nanos,
    /// At the first sample, since the connection began.
    age: Nanos,
    /// The last look that met it, and when.
    dump: u32,
    met: Nanos,
    /// The last sample, and those before it while data move. By the age of the connection.
    samples: VecDeque<KnownSocket>,
    idle: Option<Idle>,
    /// Since the first sample, or the begin.
    sent: u64,
    received: u64,
    moved: Option<Nanos>,
    /// One of those that are busiest.
    busy: bool,
    /// Means of the last seconds: bytes a second, and the part of the time in which anything but its application held it.
    rate: f64,
    held: f64,
    explained: Option<(Nanos, Option<(Limit, Confidence)>)>,
    alarmed: Option<Box<AlarmState>>,
    /// The alarm that holds.
    alarm: Option<usize>,
}

/// A socket that an alarm holds for.
#[derive(Clone, Debug)]
pub struct AlarmedSocket {
    /// Which.
    pub connection: Connection,
    /// Process that holds it; zero while not known.
    pub pid: u32,
    /// Its name.
    pub comm: Comm,
    /// Which of the alarms.
    pub alarm: usize,
}

impl SocketWatcher {
    /// Watches for these conditions as well.
    pub fn with_alarms(alarms: Vec<SocketAlarm>) -> SocketWatcher {
        SocketWatcher {
            alarms,
            ..SocketWatcher::default()
        }
    }

    /// The sockets that an alarm holds for now.
    pub fn alarmed(&self) -> impl Iterator<Item = AlarmedSocket> {
        self.sockets.values().filter_map(|socket| {
            Some(AlarmedSocket {
                connection: socket.about.clone(),
                pid: socket.pid,
                comm: socket.comm,
                alarm: socket.alarm?,
            })
        })
    }

    /// A look at all sockets begins.
    pub fn begin(&mut self) {
        self.dump += 1;
        self.left_out = 0;
    }

    /// Takes a socket of a look, or the last state of one that ended.
    pub fn push(&mut self, connection: Connection, sample: &TraceSample) {
        let key = (connection.netns, connection.cookie);
        let known = self.sockets.contains_key(&key);
        if !known {
            if !sample.gone && self.sockets.len() >= MOST_SOCKETS {
                self.left_out += 1;
                return;
            }
            let is_new = self.complete;
            let mut socket = WatchedSocket::new(connection, self.next, sample, is_new);
            self.next = self.next.wrapping_add(1);
            socket.group = self.totals.group(&socket.about, socket.comm);
            self.totals.meets(socket.group);
            if is_new {
                socket.sent = sample.socket.bytes_acked().unwrap_or_default().0;
                socket.received = sample.socket.bytes_received().unwrap_or_default().0;
                self.totals
                    .moves(socket.group, socket.sent, socket.received);
                socket.moved = (socket.sent + socket.received > 0).then_some(sample.at);
            }
            if sample.gone {
                self.totals.account.ended += 1;
                self.totals.account.short += 1;
                return;
            }
            socket.dump = self.dump;
            self.sockets.insert(key, socket);
            return;
        }
        let all = MOST_SAMPLES - MOST_BUSY * SAMPLES_OF_BUSY;
        let most = (all / self.moving.max(1)).clamp(FEWEST_OF_ONE, MOST_OF_ONE);
        if let Some(socket) = self.sockets.get_mut(&key) {
            let most = match socket.busy {
                true => most.max(SAMPLES_OF_BUSY),
                false => most,
            };
            (socket.dump, socket.met) = (self.dump, sample.at);
            let SocketWatcher {
                alarms,
                scratch,
                totals,
                ..
            } = self;
            socket.take(sample, most, alarms, scratch, totals);
        }
        if sample.gone {
            self.totals.account.ended += 1;
            self.end(key);
        }
    }

    /// The look is over. A socket that was not met is closed, and its last state comes once no process holds it any more.
    pub fn finish(&mut self, at: Nanos) {
        let dump = self.dump;
        let lost = |s: &WatchedSocket| s.dump < dump && at.since(s.met) > KEPT;
        let lost = self.sockets.iter().filter(|(_, s)| lost(s));
        let lost: Vec<(u32, u64)> = lost.map(|(key, _)| *key).collect();
        self.totals.account.vanished += lost.len() as u64;
        lost.into_iter().for_each(|key| self.end(key));
        self.moving = self
            .sockets
            .values()
            .filter(|s| s.samples.len() > 1)
            .count();
        self.choose_busy();
        self.totals.account.left_out = self.left_out;
        self.complete = true;
    }

    /// Those that data wait in, and of these the fastest, then those that are held back most.
    fn choose_busy(&mut self) {
        let mut found: Vec<_> = Vec::new();
        for (key, socket) in &mut self.sockets {
            socket.busy = false;
            let tcp = &socket
                .samples
                .back()
                .expect("one sample is always kept")
                .tcp;
            let waits = data_wait(tcp) || unread(tcp) >= UNREAD;
            if socket.dump == self.dump && (waits || socket.rate > 0.0) {
                let rank = (waits, socket.rate as u64, (socket.held * 10.0) as u8);
                found.push((Reverse(rank), *key));
            }
        }
        if found.len() > MOST_BUSY {
            found.select_nth_unstable(MOST_BUSY);
            found.truncate(MOST_BUSY);
        }
        for (_, key) in found {
            if let Some(socket) = self.sockets.get_mut(&key) {
                socket.busy = true;
            }
        }
    }

    /// The busiest sockets of the last look, which are worth more samples than all others.
    pub fn busy(&self) -> Vec<Connection> {
        let busy = self.sockets.values().filter(|socket| socket.busy);
        busy.map(|socket| socket.about.clone()).collect()
    }

    fn end(&mut self, key: (u32, u64)) {
        let Some(socket) = self.sockets.get(&key) else {
            return;
        };
        self.ended.extend(self.explain_socket(socket));
        self.sockets.remove(&key);
        if self.ended.len() > MOST_ENDED {
            self.ended.sort_by_key(|e| Reverse(e.bytes));
            self.ended.truncate(MOST_ENDED / 2);
        }
    }

    /// What was counted so far.
    pub fn account(&self) -> &SocketAccount {
        &self.totals.account
    }

    /// The same by process, port and network of the peer; the first has what belongs to no other.
    pub fn groups(&self) -> &[SocketGroup] {
        &self.totals.groups
    }

    /// Sockets that are open.
    pub fn open(&self) -> usize {
        self.sockets
            .values()
            .filter(|s| s.dump == self.dump)
            .count()
    }

    /// The current state of sockets, at most so many, those first that something other than their application holds back most
    /// of the time, and of these the fastest.
    pub fn glances(
        &mut self,
        now: Nanos,
        most: usize,
        wanted: &dyn Fn(Comm, f64) -> bool,
    ) -> Vec<Glance> {
        let mut order: Vec<_> = self
            .sockets
            .iter()
            .filter(|(_, s)| s.dump == self.dump && wanted(s.comm, s.rate))
            .map(|(key, s)| {
                (
                    Reverse((s.held * 10.0) as u8),
                    Reverse(s.rate as u64),
                    s.about.id,
                    *key,
                )
            })
            .collect();
        order.sort_unstable();
        order.truncate(most);
        let keys: Vec<(u32, u64)> = order.into_iter().map(|(.., key)| key).collect();
        let old = |key: &&(u32, u64)| {
            let socket = &self.sockets[*key];
            let fresh = |(at, _): &(Nanos, _)| now.since(*at) < EXPLAINED_EVERY;
            socket.samples.len() >= FEWEST_EXPLAINED
                && !socket.explained.as_ref().is_some_and(fresh)
        };
        let mut old: Vec<(u32, u64)> = keys.iter().filter(old).copied().collect();
        old.sort_by_key(|key| self.sockets[key].explained.map(|(at, _)| at));
        for key in old.into_iter().take(MOST_EXPLAINED) {
            let explanation = self.explain_socket(&self.sockets[&key]);
            let cause = explanation.and_then(|e| e.cause().zip(e.confidence()));
            if let Some(socket) = self.sockets.get_mut(&key) {
                socket.explained = Some((now, cause));
            }
        }
        keys.iter()
            .map(|key| self.sockets[key].glance(now))
            .collect()
    }

    /// Explains a socket by its number.
    pub fn explain(&self, number: u32) -> Option<Explanation> {
        let socket = self.sockets.values().find(|s| s.about.id == number)?;
        self.explain_socket(socket)
    }

    /// Takes the explanations of the sockets that ended, those that moved most first.
    pub fn take_ended(&mut self) -> Vec<Explanation> {
        self.ended.sort_by_key(|e| Reverse(e.bytes));
        std::mem::take(&mut self.ended)
    }

    fn explain_socket(&self, socket: &WatchedSocket) -> Option<Explanation> {
        if socket.samples.len() < FEWEST_EXPLAINED {
            return None;
        }
        let Connection { local, remote, .. } = socket.about;
        let is_peer = |s: &&WatchedSocket| (s.about.local, s.about.remote) == (remote, local);
        socket.explain(self.sockets.values().find(is_peer))
    }
}

impl WatchedSocket {
    fn new(about: Connection, id: u32, sample: &TraceSample, is_new: bool) -> WatchedSocket {
        let age = if is_new { Nanos(0) } else { LONG };
        let mut samples = VecDeque::with_capacity(1);
        samples.push_back(KnownSocket {
            at: age,
            tcp: sample.socket.clone(),
        });
        WatchedSocket {
            about: Connection { id, ..about },
            pid: sample.pid,
            comm: sample.comm,
            congestion: sample.congestion.clone(),
            group: 0,
            since: sample.at,
            age,
            dump: 0,
            met: sample.at,
            samples,
            idle: None,
            sent: 0,
            received: 0,
            moved: None,
            busy: false,
            rate: 0.0,
            held: 0.0,
            explained: None,
            alarmed: None,
            alarm: None,
        }
    }

    /// Most data come to it.
    fn receives(&self) -> bool {
        is_small(self.sent, self.received)
    }

    fn take(
        &mut self,
        sample: &TraceSample,
        most: usize,
        alarms: &[SocketAlarm],
        facts: &mut Facts,
        totals: &mut SocketTotals,
    ) {
        if sample.pid != 0 {
            if sample.comm != self.comm {
                self.group = totals.group(&self.about, sample.comm);
            }
            (self.pid, self.comm) = (sample.pid, sample.comm);
        }
        let now = KnownSocket {
            at: sample.at.since(self.since) + self.age,
            tcp: sample.socket.clone(),
        };
        let was = self.samples.back().expect("one sample is always kept");
        let (sent, received) = moved(&was.tcp, &now.tcp);
        let span = now.at.since(was.at);
        self.sent += sent;
        self.received += received;
        totals.moves(self.group, sent, received);
        if sent + received > 0
            || (!sample.gone && (data_wait(&now.tcp) || unread(&now.tcp) >= UNREAD))
        {
            self.moved = Some(sample.at);
        }
        if self.moved.is_none_or(|moved| sample.at.since(moved) > KEPT) {
            self.samples.clear();
            self.samples.shrink_to(1);
            self.samples.push_back(now);
            (self.idle, self.rate, self.held, self.explained) = (None, 0.0, 0.0, None);
            (self.alarmed, self.alarm) = (None, None);
            return;
        }
        let mut held = 0.0;
        let mut pieces = Vec::new();
        if self.receives() {
            held = f64::from(u8::from(unread(&now.tcp) >= UNREAD));
            let limited = Nanos((span.0 as f64 * held) as u64);
            totals.limits(self.group, Limit::ReadingApplication, limited);
        } else {
            self.informs(facts);
            let idle = self.idle.get_or_insert_with(|| Idle::from(&was.row()));
            interval(&was.row(), &now.row(), facts, idle, &mut pieces);
            for piece in &pieces {
                let time = piece.to.since(piece.from);
                totals.limits(self.group, piece.limit, time);
                if piece.limit != Limit::Application {
                    held += time.0 as f64 / span.0.max(1) as f64;
                }
            }
        }
        let weight = 1.0 - (-(span.0 as f64) / MEMORY).exp();
        self.held += weight * (held - self.held);
        let rate = (sent + received) as f64 / span.as_secs_f64().max(1e-9);
        self.rate += weight * (rate - self.rate);
        if !alarms.is_empty() {
            let state = self.alarmed.get_or_insert_default();
            let interval = AlarmInterval {
                at: sample.at,
                span,
                comm: self.comm,
                was: &was.tcp,
                now: &now.tcp,
                pieces: &pieces,
                bytes: sent + received,
                rate: self.rate,
                weight,
            };
            self.alarm = state.take(alarms, &interval);
        }
        self.samples.push_back(now);
        let first = self
            .samples
            .back()
            .map_or(Nanos(0), |last| last.at.since(KEPT));
        while self.samples.len() > most || self.samples.front().is_some_and(|s| s.at < first) {
            self.samples.pop_front();
        }
    }

    /// What an interval is judged by.
    fn informs(&self, facts: &mut Facts) {
        facts.readings.clear();
        facts.losses.clear();
        facts.congestion = Some(self.congestion.clone()).filter(|name| !name.is_empty());
        facts.pacing = self.samples.back().and_then(|s| s.tcp.max_pacing_rate());
    }

    fn lately(&self) -> Sums {
        let mut sums = Sums::default();
        let (Some(first), Some(last)) = (self.samples.front(), self.samples.back()) else {
            return sums;
        };
        let from = last.at.since(LATELY);
        let begin = self.samples.partition_point(|s| s.at < from);
        let begin = begin.min(self.samples.len().saturating_sub(2));
        let first = self.samples.get(begin).unwrap_or(first);
        let mut facts = Facts::new(Source::Samples);
        self.informs(&mut facts);
        let mut idle = Idle::from(&first.row());
        let mut pieces = Vec::new();
        for (was, now) in self
            .samples
            .range(begin..)
            .zip(self.samples.range(begin + 1..))
        {
            let span = now.at.since(was.at).0;
            match self.receives() {
                true if unread(&now.tcp) >= UNREAD => {
                    *sums.owned.entry(Limit::ReadingApplication).or_default() += span;
                }
                true => {}
                false => interval(&was.row(), &now.row(), &mut facts, &mut idle, &mut pieces),
            }
        }
        for piece in pieces {
            *sums.owned.entry(piece.limit).or_default() += piece.to.since(piece.from).0;
        }
        let (sent, received) = moved(&first.tcp, &last.tcp);
        sums.span = last.at.since(first.at);
        (sums.sent, sums.received) = (Bytes(sent), Bytes(received));
        sums.retransmitted = count(first.tcp.total_retrans(), last.tcp.total_retrans());
        sums
    }

    fn glance(&self, now: Nanos) -> Glance {
        let sums = self.lately();
        let all = sums.span.0.max(1);
        let most = sums.owned.iter().max_by_key(|(_, time)| **time);
        let most =
            most.filter(|(_, time)| !self.receives() || **time as f64 >= MOSTLY * all as f64);
        // One that waits for nothing and moves nothing is idle: that is no limit.
        let idle = sums.sent.0 + sums.received.0 == 0;
        let most = most.filter(|(limit, _)| !(idle && **limit == Limit::Application));
        let tcp = &self.samples.back().expect("one sample is always kept").tcp;
        let (_, cause) = self.explained.unwrap_or_default();
        Glance {
            connection: self.about.id,
            local: self.about.local,
            remote: self.about.remote,
            pid: self.pid,
            comm: self.comm,
            unit: None,
            seen: now.since(self.since),
            sent: sums.sent.per(sums.span),
            received: sums.received.per(sums.span),
            limit: most.map(|(limit, _)| *limit),
            share: most.map_or(0.0, |(_, time)| *time as f64 / all as f64),
            cause: cause.map(|(limit, _)| limit),
            confidence: cause.map(|(_, confidence)| confidence),
            cwnd: tcp.cwnd_bytes().unwrap_or_default(),
            srtt: tcp.srtt().unwrap_or_default(),
            min_rtt: tcp.min_rtt().unwrap_or_default(),
            retransmitted: sums.retransmitted,
            silent: now.since(self.moved.unwrap_or(self.since)),
        }
    }

    /// By its own samples, and those of its peer where that is a socket of this host.
    fn explain(&self, peer: Option<&WatchedSocket>) -> Option<Explanation> {
        if self.receives() {
            return Some(self.explain_reader());
        }
        let mut mixed = Mixed::new(Nanos(0));
        for known in &self.samples {
            mixed.sample(&TraceSample {
                at: known.at,
                congestion: self.congestion.clone(),
                socket: known.tcp.clone(),
                ..TraceSample::default()
            });
        }
        let account = ConnectionAccount::new(self.about.clone());
        let (pieces, mut facts) = mixed.conclude(&account)?;
        let mut doubts = vec![self.doubt()];
        match peer {
            Some(peer) => {
                let buffers = peer.samples.iter().filter_map(|s| s.tcp.rcvbuf());
                facts.receive_buffer = buffers.max();
                let mean = peer.unread();
                facts
                    .readings
                    .iter_mut()
                    .for_each(|r| r.unread = Some(mean));
            }
            None => doubts.push(
                "the peer's socket is on another host: its buffer and its reader are not known"
                    .to_owned(),
            ),
        }
        let subject = subject(self.about.local, self.about.remote);
        let mut explanation = assemble(subject, &pieces, &facts, doubts);
        of_coarse_samples(&mut explanation, self.spacing(), facts.retransmitted);
        // What lies behind is seen from one end, and now and then.
        let inferred = |f: &&mut Finding| f.level == Level::Second && peer.is_none();
        for finding in explanation.findings.iter_mut().filter(inferred) {
            finding.confidence = finding.confidence.min(Confidence::Likely);
        }
        Some(explanation)
    }

    /// At the receiver little is known: whether its application leaves data unread.
    fn explain_reader(&self) -> Explanation {
        let (first, last) = (self.samples.front(), self.samples.back());
        let (first, last) = first.zip(last).expect("one sample is always kept");
        let unread = self.unread();
        let evidence = Evidence::new(Key::UnreadData, unread, Source::Samples).if_at_least(UNREAD);
        let span = last.at.since(first.at);
        let bytes = Bytes(moved(&first.tcp, &last.tcp).1);
        let behind = unread >= UNREAD;
        let limit = Limit::ReadingApplication;
        let finding = Finding {
            limit,
            level: Level::Second,
            share: Share {
                time: span,
                time_share: 1.0,
                bytes,
            },
            confidence: Confidence::Likely,
            evidence: vec![evidence.clone()],
            against: None,
            remedies: Vec::new(),
            decider: None,
        };
        let mut doubts = vec![self.doubt()];
        if !behind {
            doubts.push("this end receives, and its application reads what comes: what limits it is known at the sender".to_owned());
        }
        let Connection { local, remote, .. } = self.about;
        let subject = subject(remote, local);
        Explanation {
            name: subject.name,
            sender: subject.sender,
            receiver: subject.receiver,
            direction: None,
            source: Source::Samples,
            stream: None,
            span,
            bytes,
            conclusion: match behind {
                true => Conclusion::Limited { by: vec![limit] },
                false => Conclusion::Unexplained,
            },
            findings: behind.then_some(finding).into_iter().collect(),
            ends: (!behind).then_some(evidence).into_iter().collect(),
            phases: Vec::new(),
            doubts,
        }
    }

    /// What its application had not read, by its buffer, on the average of the samples.
    fn unread(&self) -> f64 {
        let sum: f64 = self.samples.iter().map(|s| unread(&s.tcp)).sum();
        sum / self.samples.len().max(1) as f64
    }

    fn spacing(&self) -> Nanos {
        let span = self.samples.front().zip(self.samples.back());
        let span = span.map_or(Nanos(0), |(first, last)| last.at.since(first.at));
        Nanos(span.0 / self.samples.len().saturating_sub(1).max(1) as u64)
    }

    fn doubt(&self) -> String {
        format!(
            "from {} samples of this socket, {} apart: what happened between them is inferred from counters",
            self.samples.len(),
            self.spacing()
        )
    }
}

fn subject(sender: SocketAddr, receiver: SocketAddr) -> ExplainedConnection {
    ExplainedConnection {
        name: format!("{sender} to {receiver}"),
        sender: Some(sender),
        receiver: Some(receiver),
        direction: None,
    }
}

/// Bytes that were acknowledged and that came between two states.
fn moved(was: &SocketState, now: &SocketState) -> (u64, u64) {
    let sent = grown(was.bytes_acked(), now.bytes_acked());
    let received = grown(was.bytes_received(), now.bytes_received());
    (sent.0, received.0)
}

/// What the application has not read, by the receive buffer.
fn unread(tcp: &SocketState) -> f64 {
    let unread = tcp.unread().unwrap_or_default().0 as f64;
    unread
        / tcp
            .rcvbuf()
            .filter(|b| b.0 > 0)
            .map_or(f64::MAX, |b| b.0 as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::socket_state;

    const TRIP: u64 = 20;

    fn connection(cookie: u64) -> Connection {
        Connection {
            id: 0,
            cookie,
            netns: 1,
            local: ([192, 0, 2, 1], 40_000).into(),
            remote: ([192, 0, 2, 2], 5201).into(),
        }
    }

    fn sample(ms: u64, acked: u64, received: u64) -> TraceSample {
        TraceSample {
            at: Nanos::from_millis(ms),
            pid: 845,
            congestion: "cubic".to_owned(),
            socket: socket_state! {
                state: Some(1),
                mss: Some(1448),
                srtt: Some(Nanos::from_millis(TRIP)),
                min_rtt: Some(Nanos::from_millis(TRIP)),
                cwnd: Some(100),
                ssthresh: Some(50),
                bytes_acked: Some(Bytes(acked)),
                bytes_received: Some(Bytes(received)),
                busy: Some(Nanos::from_millis(ms)),
                rwnd_limited: Some(Nanos(0)),
                sndbuf_limited: Some(Nanos(0)),
                rqueue: Some(Bytes(0)),
                rcvbuf: Some(Bytes(128 << 10)),
            },
            ..TraceSample::default()
        }
    }

    /// Of a sender whose peer's window of 28 segments is full.
    fn windowed(ms: u64) -> TraceSample {
        let mut one = sample(ms, ms * 2000, 0);
        one.socket = socket_state! {
            from one.socket;
            packets_out: Some(28),
            notsent_bytes: Some(Bytes(100_000)),
            data_segs_out: Some((ms * 2) as u32),
            snd_wnd: Some(Bytes(28 * 1448)),
            rwnd_limited: Some(Nanos::from_millis(ms)),
        };
        one
    }

    fn look(watcher: &mut SocketWatcher, all: &[(u64, TraceSample)]) {
        watcher.begin();
        for (cookie, sample) in all {
            watcher.push(connection(*cookie), sample);
        }
        let at = all
            .first()
            .map_or(Nanos::from_secs(200), |(_, sample)| sample.at);
        watcher.finish(at);
    }

    fn all_of(watcher: &mut SocketWatcher, at: u64) -> Vec<Glance> {
        watcher.glances(Nanos::from_millis(at), 100, &|_, _| true)
    }

    #[test]
    fn a_full_window_is_named_with_its_rate_and_before_an_idle_socket() {
        let mut watcher = SocketWatcher::default();
        for ms in (0..10_000).step_by(80) {
            look(&mut watcher, &[(1, sample(ms, 5, 0)), (2, windowed(ms))]);
        }
        let glances = all_of(&mut watcher, 9_920);
        assert_eq!(glances.len(), 2);
        assert_eq!(glances[0].limit, Some(Limit::ReceiveWindow));
        assert_eq!(glances[0].cause, Some(Limit::ReceiveWindow));
        assert_eq!(glances[0].sent.0, 16_000_000);
        assert!(
            glances[0].share > 0.99 && glances[0].pid == 845,
            "{:?}",
            glances[0]
        );
        assert_eq!((glances[1].limit, glances[1].sent.0), (None, 0), "idle");
        let explained = watcher.explain(glances[0].connection).unwrap();
        assert_eq!(explained.confidence(), Some(Confidence::Certain));
        assert!(watcher.explain(glances[1].connection).is_none());
        let limited = &watcher.account().limited;
        assert_eq!(
            limited.get(&Limit::ReceiveWindow),
            Some(&Nanos::from_millis(9_920))
        );
    }

    #[test]
    fn at_the_receiver_unread_data_are_known_and_nothing_else() {
        let of = |unread: u64| {
            let mut watcher = SocketWatcher::default();
            for ms in (0..2_000).step_by(80) {
                let mut one = sample(ms, 5, ms * 2000);
                one.socket = socket_state! { from one.socket; rqueue: Some(Bytes(unread)) };
                look(&mut watcher, &[(1, one)]);
            }
            let glance = all_of(&mut watcher, 1_920).remove(0);
            let explained = watcher.explain(glance.connection).unwrap();
            assert_eq!(explained.cause(), glance.cause);
            (glance.limit, glance.cause)
        };
        let reader = Some(Limit::ReadingApplication);
        assert_eq!(of(64 << 10), (reader, reader));
        assert_eq!(of(1 << 10), (None, None));
    }

    #[test]
    fn what_ends_is_counted_once_and_what_is_gone_without_a_last_state_as_that() {
        let mut watcher = SocketWatcher::default();
        look(
            &mut watcher,
            &[(1, sample(0, 1000, 0)), (2, sample(0, 0, 0))],
        );
        // Of those before the first look only what comes after it.
        assert_eq!(watcher.account().sent, Bytes(0));
        let gone = |acked| TraceSample {
            gone: true,
            ..sample(50, acked, 0)
        };
        watcher.push(connection(1), &gone(1500));
        watcher.push(connection(3), &gone(700));
        look(&mut watcher, &[(4, sample(100, 0, 0))]);
        assert_eq!(
            (watcher.account().vanished, watcher.open()),
            (0, 1),
            "it may be closed"
        );
        look(&mut watcher, &[]);
        let account = watcher.account();
        assert_eq!(account.sent, Bytes(500 + 700));
        let counts = (account.seen, account.ended, account.short, account.vanished);
        assert_eq!(counts, (4, 2, 1, 2));
        assert_eq!(
            account.missing().as_deref(),
            Some("2 ended without a last state")
        );
        assert_eq!(watcher.open(), 0);
    }

    #[test]
    fn the_busiest_are_worth_more_samples() {
        let mut watcher = SocketWatcher::default();
        let mut all: Vec<_> = (0..5_000).map(|n| (n, sample(0, 5, 0))).collect();
        all.extend((6_000..6_010).map(|n| (n, windowed(0))));
        look(&mut watcher, &all);
        let busy: Vec<u64> = watcher.busy().iter().map(|one| one.cookie).collect();
        assert_eq!(busy, (6_000..6_010).collect::<Vec<_>>());
        // What is pushed of one between two looks counts as any sample.
        for ms in (200..1_800).step_by(200) {
            watcher.push(connection(6_003), &windowed(ms));
        }
        let glances = all_of(&mut watcher, 1_600);
        let named = glances
            .iter()
            .filter(|one| one.cause == Some(Limit::ReceiveWindow));
        assert_eq!(named.count(), 1);
        all.iter_mut()
            .for_each(|(_, sample)| *sample = windowed(2_000));
        look(&mut watcher, &all);
        assert_eq!(watcher.busy().len(), MOST_BUSY);
    }

    #[test]
    fn memory_is_bounded_however_many_move_and_however_long() {
        let mut watcher = SocketWatcher::default();
        for ms in (0..8_000).step_by(80) {
            let moving: Vec<_> = (0..3_000).map(|n| (n, windowed(ms))).collect();
            look(&mut watcher, &moving);
        }
        let kept: usize = watcher.sockets.values().map(|s| s.samples.len()).sum();
        assert!(kept <= MOST_SAMPLES, "{kept}");
        assert!(
            size_of::<KnownSocket>() <= 640,
            "{}",
            size_of::<KnownSocket>()
        );
        let many: Vec<_> = (0..MOST_SOCKETS as u64 + 5)
            .map(|n| (n, sample(8_000, 0, 0)))
            .collect();
        look(&mut watcher, &many);
        assert_eq!(
            (watcher.open(), watcher.account().left_out),
            (MOST_SOCKETS, 5)
        );
    }

    #[test]
    fn means_forget_most_in_five_seconds() {
        let mut watcher = SocketWatcher::default();
        let after = |watcher: &mut SocketWatcher, ms| {
            look(watcher, &[(1, windowed(ms))]);
            let socket = watcher.sockets.values().next().unwrap();
            (socket.rate, socket.held)
        };
        assert_eq!(after(&mut watcher, 0), (0.0, 0.0));
        // 2 MB/s, of which a second is worth 1 - exp(-1/5).
        let weight = 1.0 - (-0.2f64).exp();
        let about = |found: (f64, f64), share: f64| {
            (found.0 / 2e6 / share - 1.0).abs() < 1e-9 && (found.1 / share - 1.0).abs() < 1e-9
        };
        assert!(about(after(&mut watcher, 1000), weight));
        assert!(about(after(&mut watcher, 2000), 1.0 - (-0.4f64).exp()));
        // Idle for a second.
        look(
            &mut watcher,
            &[(
                1,
                TraceSample {
                    at: Nanos::from_millis(3000),
                    ..windowed(2000)
                },
            )],
        );
        let rate = watcher.sockets.values().next().unwrap().rate;
        assert!((rate / 2e6 / ((1.0 - (-0.4f64).exp()) * (1.0 - weight)) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn samples_are_kept_for_a_minute_after_data_moved() {
        let mut watcher = SocketWatcher::default();
        for ms in [0, 1000, 2000] {
            look(&mut watcher, &[(1, sample(ms, ms, 0))]);
        }
        let kept = |watcher: &mut SocketWatcher, ms| {
            look(watcher, &[(1, sample(ms, 2000, 0))]);
            let socket = watcher.sockets.values().next().unwrap();
            (socket.samples.len(), socket.rate > 0.0)
        };
        // Those of the last minute.
        assert_eq!(kept(&mut watcher, 60_000), (4, true));
        assert_eq!(kept(&mut watcher, 61_000), (4, true));
        assert_eq!(kept(&mut watcher, 62_000), (4, true));
        assert_eq!(kept(&mut watcher, 62_001), (1, false));
        let unread = |ms| {
            let mut one = sample(ms, 2000, 0);
            one.socket = socket_state! { from one.socket; rqueue: Some(Bytes(32 << 10)) };
            one
        };
        look(&mut watcher, &[(1, unread(62_100))]);
        assert_eq!(
            watcher.sockets.values().next().unwrap().samples.len(),
            2,
            "data wait"
        );
    }

    #[test]
    fn what_is_not_met_for_a_minute_has_vanished() {
        let lost = |ms| {
            let mut watcher = SocketWatcher::default();
            look(&mut watcher, &[(1, sample(0, 5, 0))]);
            watcher.begin();
            watcher.finish(Nanos::from_millis(ms));
            (watcher.account().vanished, watcher.open())
        };
        assert_eq!([lost(60_000), lost(60_001)], [(0, 0), (1, 0)]);
    }

    #[test]
    fn a_glance_shows_three_seconds_of_who_sends_or_receives() {
        let mut watcher = SocketWatcher::default();
        let reader = |ms: u64, unread: u64| {
            let mut one = sample(ms, 5, ms * 1000);
            one.socket = socket_state! { from one.socket; rqueue: Some(Bytes(unread)), total_retrans: Some((ms / 1000) as u32) };
            one
        };
        for ms in (0..=10_000).step_by(1000) {
            let unread = if ms > 8_000 { 32 << 10 } else { 0 };
            look(&mut watcher, &[(1, reader(ms, unread))]);
        }
        let glance = all_of(&mut watcher, 12_000).remove(0);
        assert_eq!((glance.received.0, glance.sent.0), (8_000_000, 0));
        assert_eq!(
            (glance.retransmitted, glance.silent),
            (3, Nanos::from_secs(2))
        );
        // A quarter of its buffer was unread for two of three seconds.
        assert_eq!(glance.limit, Some(Limit::ReadingApplication));
        assert!((glance.share - 2.0 / 3.0).abs() < 1e-9);
        assert_eq!(glance.seen, Nanos::from_secs(12));
        assert_eq!(
            (glance.cwnd, glance.srtt),
            (Bytes(144_800), Nanos::from_millis(20))
        );
    }

    #[test]
    fn an_explanation_names_its_samples_and_what_is_not_known_of_the_peer() {
        let mut watcher = SocketWatcher::default();
        let peer = |ms: u64| {
            let mut one = sample(ms, 5, ms * 2000);
            one.socket = socket_state! { from one.socket; rqueue: Some(Bytes(32 << 10)) };
            one
        };
        let mirrored = Connection {
            local: connection(1).remote,
            remote: connection(1).local,
            ..connection(2)
        };
        let explain = |watcher: &SocketWatcher, cookie: u64| {
            let socket = watcher.sockets.values().find(|s| s.about.cookie == cookie);
            watcher.explain(socket.unwrap().about.id)
        };
        for n in 0..9 {
            if n == 8 {
                let few = explain(&watcher, 1).unwrap();
                assert_eq!(few.doubts.len(), 2, "{:?}", few.doubts);
                assert!(
                    few.doubts[0].starts_with("from 8 samples of this socket, 80"),
                    "{:?}",
                    few.doubts
                );
                assert!(few.doubts[1].contains("another host"));
            } else if n == 7 {
                assert!(explain(&watcher, 1).is_none(), "seven samples");
            }
            look(&mut watcher, &[(1, windowed(n * 80))]);
        }
        for n in 9..20 {
            watcher.begin();
            watcher.push(connection(1), &windowed(n * 80));
            watcher.push(mirrored.clone(), &peer(n * 80));
            watcher.finish(Nanos::from_millis(n * 80));
        }
        // Its reader has a quarter of its buffer unread.
        let both = explain(&watcher, 1).unwrap();
        assert_eq!(both.doubts.len(), 1);
        assert!(
            both.finding(Limit::ReadingApplication).is_some(),
            "{both:#?}"
        );
        let reader = explain(&watcher, 2).unwrap();
        assert_eq!(
            reader.conclusion,
            Conclusion::Limited {
                by: vec![Limit::ReadingApplication]
            }
        );
        assert_eq!(
            (reader.span, reader.bytes),
            (Nanos::from_millis(800), Bytes(1_600_000))
        );
        assert_eq!(reader.receiver, Some(mirrored.local));
    }

    #[test]
    fn of_many_that_end_those_that_moved_most_stay() {
        let mut watcher = SocketWatcher::default();
        let of = |cookie: u64, ms: u64| {
            let mut one = windowed(ms);
            one.socket =
                socket_state! { from one.socket; bytes_acked: Some(Bytes(ms * (cookie + 1))) };
            one
        };
        for ms in (0..640).step_by(80) {
            let all: Vec<_> = (0..70).map(|n| (n, of(n, ms))).collect();
            look(&mut watcher, &all);
        }
        let end = |watcher: &mut SocketWatcher, cookies: std::ops::Range<u64>| {
            for cookie in cookies {
                let gone = TraceSample {
                    gone: true,
                    ..of(cookie, 560)
                };
                watcher.push(connection(cookie), &gone);
            }
            watcher.ended.len()
        };
        assert_eq!(end(&mut watcher, 0..64), 64);
        assert_eq!(end(&mut watcher, 64..65), 32, "half of them");
        let bytes: Vec<u64> = watcher.take_ended().iter().map(|e| e.bytes.0).collect();
        assert_eq!(
            bytes,
            (33..65).rev().map(|n| (n + 1) * 560).collect::<Vec<_>>()
        );
        assert_eq!(watcher.take_ended().len(), 0);
    }

    #[test]
    fn what_an_interval_is_judged_by_is_the_sockets_own() {
        let mut watcher = SocketWatcher::default();
        let mut one = sample(0, 5, 0);
        one.socket = socket_state! { from one.socket; max_pacing_rate: Some(model::BitRate(7)) };
        look(&mut watcher, &[(1, one.clone())]);
        let judged = |watcher: &SocketWatcher| {
            let mut facts = crate::facts::tests::steady(3);
            facts.losses.push(crate::facts::LostSegment::default());
            watcher.sockets.values().next().unwrap().informs(&mut facts);
            (
                facts.readings.len(),
                facts.losses.len(),
                facts.congestion,
                facts.pacing,
            )
        };
        let pacing = Some(model::BitRate(7));
        assert_eq!(judged(&watcher), (0, 0, Some("cubic".to_owned()), pacing));
        let mut unnamed = SocketWatcher::default();
        one.congestion = String::new();
        look(&mut unnamed, &[(1, one)]);
        assert_eq!(judged(&unnamed), (0, 0, None, pacing));
    }
}

//! From a sender's trace: every interval between two events has the state that its end found, and the
//! first rule that claims it owns it. Exact, as far as the kernel's own fields are.

use crate::account::ConnectionAccount;
use crate::capture::is_small;
use crate::conclude::{ExplainedConnection, assemble};
use crate::facts::{AckWaitCounts, Facts, SenderInterval};
use crate::mixed::Mixed;
use crate::process_activity::{ActivityInterval, LimitingProcess};
use crate::receiver::ReceivingSocket;
use crate::sender_state::{self, ConnectionStage, OwnedInterval, SenderState, ShortSegmentRelease};
use crate::sliding_window::{SlidingWindow, Sums};
use crate::timestamps::Stamped;
use model::finding::{Evidence, Explanation, Glance, Limit, Source};
use model::segment::{chrono, tcp_flag, tcp_state};
use model::{
    Bytes, Comm, CompletenessCheck, Connection, Nanos, Owner, Segment, SocketValues, TraceRecord,
    What,
};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tcp::seq::{ahead, before};
use tcp::thresholds::held_back;
use tcp::waits::{is_short_out, left_unsent};

/// A reading is no shorter than this.
const SHORTEST_READING: Nanos = Nanos::from_millis(1);
/// Bursts that are remembered until they are acknowledged.
const MOST_BURSTS: usize = 65_536;
/// Sends nearer to each other than this part of a round trip are one burst.
const BURST: u64 = 50;
/// Most bytes that the kernel sends as one (GSO_MAX_SIZE), and fewest segments (`tcp_min_tso_segs`).
const LARGEST_BURST: u64 = 65_536;
const SMALLEST_BURST: u64 = 2;
/// A window that did not grow for so many round trips is not in slow start, whatever its threshold.
pub(crate) const GROWS_WITHIN: u64 = 4;
/// A pace within this part of what follows from the window was not set by anything else.
const SAME_PACE: u64 = 10;
/// Events that wait at most until it is known what let a short segment go.
const MOST_WAITING: usize = 256;

/// A reader is behind once this part of its buffer is unread (`limits/reading_application.rs`).
const UNREAD: u64 = 4;
/// A request sends up to so many bytes before its reply begins.
const REQUEST: u64 = 1 << 16;
/// Processes that are known at once.
const MOST_OWNERS: usize = 1024;
/// Connections that are known at once; of more, half of those that ended are forgotten, the oldest first.
const MOST_CONNECTIONS: usize = 100_000;

/// Explains the connections of a trace while their events come. Its memory is bounded by the number of
/// connections, however many segments each of them has.
#[derive(Default)]
pub struct TraceWatcher {
    connections: BTreeMap<u32, WatchedConnection>,
    /// Connections that ended and are not known any more.
    forgotten: u64,
    /// Open connections by the process that uses them.
    used_by: BTreeMap<u32, BTreeSet<u32>>,
    /// The last look at each process.
    owners: BTreeMap<u32, Owner>,
    /// Events that the trace lost, of any connection.
    lost: u64,
}

/// Adds facts to a connection whose first event had this time; returns what only both hosts together
/// show.
pub(crate) type More<'a> =
    dyn FnMut(&Connection, Nanos, &mut ExplainedConnection, &mut Facts) -> Vec<Evidence> + 'a;

/// One connection, seen from its own end.
struct WatchedConnection {
    account: ConnectionAccount,
    completeness: CompletenessCheck,
    /// Payload that its own end has sent, and that came.
    sent: u64,
    received: u64,
    /// Since the first event with the state of the socket.
    sender: Option<TraceSender>,
    pid: u32,
    comm: Comm,
    closed: bool,
    /// Where the socket is not read at its segments.
    mixed: Option<Box<Mixed>>,
    /// While most data came.
    reader: Option<Box<ReceivingSocket>>,
}

/// What is known of a connection's socket last.
struct CurrentSocket {
    cwnd: Bytes,
    srtt: Nanos,
    min_rtt: Nanos,
    has_sent: bool,
    seen: Nanos,
    silent: Nanos,
}

impl TraceWatcher {
    /// Takes the next record of the trace.
    pub fn push(&mut self, record: TraceRecord) {
        match record {
            TraceRecord::Connection(connection) => match self.connections.entry(connection.id) {
                Entry::Occupied(mut known) => known.get_mut().account.about = connection,
                Entry::Vacant(new) => {
                    new.insert(WatchedConnection::new(connection));
                    self.forget();
                }
            },
            TraceRecord::Segment(segment) => self.segment(segment),
            TraceRecord::Owner(owner) => self.owner(owner),
            TraceRecord::Sample(sample) => {
                if let Some(watched) = self.connections.get_mut(&sample.connection) {
                    watched.completeness.sample(&sample);
                    watched.closed |= sample.gone;
                    if sample.pid != 0 {
                        (watched.pid, watched.comm) = (sample.pid, sample.comm);
                    }
                    watched.account.reports(&sample.socket, watched.sent > 0);
                    if let Some(reader) = &mut watched.reader {
                        reader.sample(&sample);
                    }
                    watched.mixed(sample.at).sample(&sample);
                }
            }
            TraceRecord::Lost(lost) => self.lost = self.lost.saturating_add(lost.events),
            TraceRecord::Begin(_) | TraceRecord::End(_) => {}
        }
    }

    fn segment(&mut self, segment: Segment) {
        let (id, pid) = (segment.connection, segment.pid);
        let Some(watched) = self.connections.get_mut(&id) else {
            return;
        };
        let before = watched.pid;
        watched.push(segment);
        if watched.closed || (pid != 0 && pid != before) {
            if let Some(used) = self.used_by.get_mut(&before) {
                used.remove(&id);
                if used.is_empty() {
                    self.used_by.remove(&before);
                }
            }
            if !watched.closed {
                self.used_by.entry(pid).or_default().insert(id);
            }
        }
    }

    fn owner(&mut self, owner: Owner) {
        if self.owners.len() >= MOST_OWNERS {
            self.owners.clear();
        }
        let pid = owner.pid;
        let Some(before) = self.owners.insert(pid, owner) else {
            return;
        };
        let Some(stretch) = ActivityInterval::between(&before, &self.owners[&pid]) else {
            return;
        };
        for id in self.used_by.get(&pid).into_iter().flatten() {
            if let Some(sender) = self.connections.get_mut(id).and_then(|c| c.sender.as_mut()) {
                sender.facts.behind.look(&stretch, sender.was.at);
                sender.reader.look(&stretch, sender.was.at);
            }
        }
    }

    fn forget(&mut self) {
        if self.connections.len() < MOST_CONNECTIONS {
            return;
        }
        let closed = self.connections.iter().filter(|(_, c)| c.closed);
        let mut closed: Vec<u32> = closed.map(|(id, _)| *id).collect();
        closed.truncate(closed.len().div_ceil(2));
        self.forgotten += closed.len() as u64;
        for id in closed {
            self.connections.remove(&id);
        }
    }

    /// Explains each connection: as its sender where the local host sent data, else as its receiver.
    /// Where both sockets are on this machine, the sender's is explained, with the receiver's evidence
    /// beside it.
    pub fn explain(mut self) -> Vec<Explanation> {
        let mut explained = self.explain_with(&mut |_, _, _, _| Vec::new());
        let ends = |e: &Explanation| (e.sender, e.receiver);
        let exact: BTreeMap<_, _> = explained.iter().map(ends).zip(0_usize..).collect();
        for one in self.received() {
            match exact.get(&ends(&one)) {
                Some(place) => explained[*place].ends.extend(one.ends),
                None => explained.push(one),
            }
        }
        explained
    }

    /// Explains the connections to which nearly all data came, unless the socket reported nothing; or to which more was sent.
    pub(crate) fn received(self) -> Vec<Explanation> {
        let all = self.connections.into_values();
        let received = all.filter_map(|c| {
            let reader = c.reader.filter(|reader| !reader.is_blind());
            if reader.is_none() && c.account.missing() == 0 {
                return None;
            }
            let is_traced = c.sender.is_some() || reader.as_ref().is_some_and(|r| r.is_traced);
            let received = c.account.received(&mut |facts| {
                if is_traced {
                    facts.source = Source::TraceAtReceiver;
                }
                if let Some(reader) = &reader {
                    reader.inform_as_a_whole(facts);
                }
            })?;
            Some(Explanation {
                ends: reader.map_or_else(Vec::new, |reader| reader.evidence()),
                ..received
            })
        });
        received.collect()
    }

    /// Explains those whose own end sent data, with what more is known of them.
    pub(crate) fn explain_with(&mut self, more: &mut More<'_>) -> Vec<Explanation> {
        for watched in self.connections.values_mut() {
            if let Some(sender) = &mut watched.sender {
                sender.finish(&mut watched.account);
            }
        }
        // Where both sockets are traced, as on one host, each has evidence that the other lacks.
        let ends = |c: &WatchedConnection| (c.account.about.local, c.account.about.remote);
        let by_ends: BTreeMap<_, &WatchedConnection> =
            self.connections.values().map(|c| (ends(c), c)).collect();
        let explained = self.connections.values().filter_map(|c| {
            let (local, remote) = ends(c);
            let reader = by_ends.get(&(remote, local));
            let reader = reader.and_then(|c| c.sender.as_ref());
            c.explain(reader.map(|sender| &sender.reader), self.lost, more)
        });
        let mut explained: Vec<Explanation> = explained.collect();
        if let (Some(first), 1..) = (explained.first_mut(), self.forgotten) {
            let doubt = format!(
                "{} connections that ended early were left out",
                self.forgotten
            );
            first.doubts.push(doubt);
        }
        explained
    }

    /// The current state of the open connections, those with the highest rate first.
    pub fn glances(&self, now: Nanos) -> Vec<Glance> {
        let open = self.connections.values().filter(|c| !c.closed);
        let mut glances: Vec<Glance> = open.filter_map(|c| c.glance(now)).collect();
        glances.sort_by_key(|g| (std::cmp::Reverse(g.sent.0 + g.received.0), g.connection));
        glances
    }

    /// Connections that were seen, those that ended included.
    pub fn seen(&self) -> u64 {
        self.forgotten + self.connections.len() as u64
    }

    /// Whether a connection was seen, and all that were have ended.
    pub fn is_over(&self) -> bool {
        self.seen() > 0 && self.connections.values().all(|c| c.closed)
    }
}

impl WatchedConnection {
    fn new(connection: Connection) -> WatchedConnection {
        WatchedConnection {
            account: ConnectionAccount::new(connection),
            completeness: CompletenessCheck::default(),
            sent: 0,
            received: 0,
            sender: None,
            pid: 0,
            comm: Comm::default(),
            closed: false,
            mixed: None,
            reader: None,
        }
    }

    fn push(&mut self, segment: Segment) {
        self.completeness.push(&segment);
        self.receive(&segment);
        if segment.pid != 0 {
            (self.pid, self.comm) = (segment.pid, segment.comm);
        }
        let state = segment.probed().map(|tcb| tcb.state);
        // A listener's socket can be closed, and opened again.
        self.closed = segment.what == What::State && state == Some(tcp_state::CLOSE);
        let Some(first) = segment.probed() else {
            self.mixed(segment.at);
            if let Some(mixed) = &mut self.mixed {
                mixed.packet(&segment, &mut self.account);
            }
            return;
        };
        match &mut self.sender {
            Some(sender) => sender.push(segment, &mut self.account),
            None => {
                self.account
                    .push(&segment, segment.is_retransmission(), None);
                self.sender = Some(TraceSender::new(first.clone(), segment));
            }
        }
    }

    /// What is known of it as a receiver, while its own end sends no more than requests.
    fn receive(&mut self, segment: &Segment) {
        match segment.what {
            What::Sent => self.sent += segment.payload.0,
            What::Received => self.received += segment.payload.0,
            _ => {}
        }
        if self.sent > REQUEST && !is_small(self.sent, self.received) {
            self.reader = None;
        } else if self.reader.is_some() || self.received > 0 {
            self.reader.get_or_insert_default().event(segment);
        }
    }

    fn mixed(&mut self, at: Nanos) -> &mut Mixed {
        self.mixed.get_or_insert_with(|| Box::new(Mixed::new(at)))
    }

    fn explain(
        &self,
        reader: Option<&LimitingProcess>,
        lost: u64,
        more: &mut More<'_>,
    ) -> Option<Explanation> {
        let Connection { local, remote, .. } = self.account.about;
        let mut subject = ExplainedConnection {
            name: format!("{local} to {remote}"),
            sender: Some(local),
            receiver: Some(remote),
            direction: None,
        };
        let missing = self.account.missing();
        let reads = missing > 0 || self.reader.as_ref().is_some_and(|r| !r.is_blind());
        if reads && is_small(self.sent, self.received + missing) {
            return None;
        }
        let (pieces, mut facts) = match &self.sender {
            Some(sender) => sender
                .has_sent
                .then(|| sender.clone().conclude(&self.account))?,
            None => self.mixed.as_ref()?.conclude(&self.account)?,
        };
        facts.reader = reader.cloned().unwrap_or_default();
        if pieces.is_empty() {
            return None;
        }
        let begun = self.sender.as_ref().map_or(Nanos(0), |s| s.begun);
        let ends = more(&self.account.about, begun, &mut subject, &mut facts);
        let explanation = assemble(subject, &pieces, &facts, self.doubts(lost));
        Some(Explanation {
            ends,
            ..explanation
        })
    }

    fn glance(&self, now: Nanos) -> Option<Glance> {
        let Some(sender) = &self.sender else {
            let mixed = self.mixed.as_ref()?;
            let (window, tcp, silent) = mixed.window(now)?;
            let now = CurrentSocket {
                cwnd: tcp.cwnd_bytes().unwrap_or_default(),
                srtt: tcp.srtt().unwrap_or_default(),
                min_rtt: tcp.min_rtt().unwrap_or_default(),
                has_sent: mixed.has_sent(),
                seen: now.since(mixed.begun),
                silent,
            };
            return self.glance_of(&window, now);
        };
        let last = sender.waiting.back().unwrap_or(&sender.was);
        let tcb = last.probed()?;
        let now = now.max(last.at);
        let mut window = sender.window.sums(sender.begun, now);
        // What the last event left lasts.
        let owner = sender.now();
        *window.owned.entry(owner).or_default() += now.since(sender.was.at).0.min(window.span.0);
        let now = CurrentSocket {
            cwnd: Bytes(u64::from(tcb.cwnd) * u64::from(tcb.mss)),
            srtt: tcb.srtt,
            min_rtt: tcb.min_rtt,
            has_sent: sender.has_sent,
            seen: now.since(sender.begun),
            silent: now.since(last.at),
        };
        self.glance_of(&window, now)
    }

    fn glance_of(&self, window: &Sums, now: CurrentSocket) -> Option<Glance> {
        let all: u64 = window.owned.values().sum();
        let (limit, most) = window.owned.iter().max_by_key(|(_, time)| **time)?;
        Some(Glance {
            connection: self.account.about.id,
            local: self.account.about.local,
            remote: self.account.about.remote,
            pid: self.pid,
            comm: self.comm,
            unit: None,
            seen: now.seen,
            sent: window.sent.per(window.span),
            received: window.received.per(window.span),
            limit: now.has_sent.then_some(*limit),
            share: *most as f64 / all.max(1) as f64,
            cause: None,
            confidence: None,
            cwnd: now.cwnd,
            srtt: now.srtt,
            min_rtt: now.min_rtt,
            retransmitted: window.retransmitted,
            silent: now.silent,
        })
    }

    /// What a reader must know: what the trace lacks.
    fn doubts(&self, lost: u64) -> Vec<String> {
        let found = self.completeness.result();
        let mut doubts = Vec::new();
        if self.sender.is_none() && found.sent + found.received == 0 {
            let words = "only its socket was sampled: what happened between two samples is inferred from counters";
            doubts.push(words.to_owned());
        } else if found.sent_missing + found.received_missing > 0 {
            doubts.push(format!(
                "the trace lacks {} sent and {} received segments that the kernel counted: shares are off where they are missing",
                found.sent_missing, found.received_missing
            ));
        }
        if lost > 0 {
            doubts.push(format!(
                "{lost} events of this trace were lost, of unknown connections"
            ));
        }
        doubts
    }
}

/// A burst that left, until it is acknowledged.
#[derive(Clone)]
struct Burst {
    from: u32,
    to: u32,
    last: Nanos,
    /// Largest segment in it.
    size: u32,
}

/// What sets the pace of a sender.
#[derive(Clone, Copy, Default)]
struct PaceOfSender {
    /// The highest that the window does not explain, in bits a second.
    top: u64,
    /// Time at that, and at others that the window does not explain.
    at_top: Nanos,
    free: Nanos,
}

#[derive(Clone, Default)]
struct TraceSender {
    facts: Facts,
    pieces: Vec<OwnedInterval>,
    begun: Nanos,
    /// The first state.
    first: SocketValues,
    /// The event up to which time is owned, and those after it that wait for what decides them.
    was: Segment,
    waiting: VecDeque<Segment>,
    /// Its own end has sent data.
    has_sent: bool,
    window: SlidingWindow,
    /// What this end's process did while it was behind with reading.
    reader: LimitingProcess,
    reading: SenderInterval,
    stamped: Stamped,
    /// Time of each owner within the reading.
    owners: BTreeMap<Limit, u64>,
    bursts: VecDeque<Burst>,
    retransmits: u8,
    mss: u32,
    hold: Option<Nanos>,
    /// Since when the window waits with a single segment out.
    alone: Option<Nanos>,
    pace: PaceOfSender,
    last_una: u32,
    /// The congestion window, and since when it has not grown.
    cwnd: (u32, Nanos),
    /// The path MTU fell: data up to here are retransmitted in smaller segments, and were not lost.
    mtu_cut: Option<u32>,
}

impl TraceSender {
    fn new(first: SocketValues, was: Segment) -> TraceSender {
        TraceSender {
            facts: Facts::new(Source::Trace),
            begun: was.at,
            has_sent: was.what == What::Sent && was.payload.0 > 0,
            was,
            retransmits: first.retransmits,
            mss: first.mss,
            last_una: first.snd_una,
            cwnd: (first.cwnd, Nanos(0)),
            first,
            ..TraceSender::default()
        }
    }

    /// Takes the next event. Who owns the time before it can depend on what lets the next new data go:
    /// an acknowledgement, or a write. Then it waits until that is seen.
    fn push(&mut self, now: Segment, account: &mut ConnectionAccount) {
        let data = now.what == What::Sent && now.payload.0 > 0;
        match now.stamps {
            Some((value, _)) if data => self.stamped.data(now.at, value, false),
            Some((value, _)) if now.what == What::Received => self.stamped.ack(now.at, value),
            _ => {}
        }
        self.has_sent |= data;
        match now.what {
            What::Sent => {
                let again = u64::from(now.is_retransmission()) * u64::from(now.segments);
                self.window.sent(now.at, now.payload, again);
            }
            What::Received => self.window.received(now.at, now.payload),
            _ => {}
        }
        if data && !now.is_retransmission() {
            let full = now
                .probed()
                .is_some_and(|t| t.unsent().0 >= u64::from(t.mss));
            let before = self.waiting.back().unwrap_or(&self.was);
            let release = match before.what == What::Received && !full {
                true => ShortSegmentRelease::Ack,
                false => ShortSegmentRelease::Write,
            };
            self.release(release, account);
            self.take(now, release, account);
        } else if !self.waiting.is_empty() || is_short(&self.was) {
            self.waiting.push_back(now);
            if self.waiting.len() >= MOST_WAITING {
                self.release(ShortSegmentRelease::Write, account);
            }
        } else {
            self.take(now, ShortSegmentRelease::Write, account);
        }
    }

    /// Takes the events that waited.
    fn release(&mut self, release: ShortSegmentRelease, account: &mut ConnectionAccount) {
        while let Some(next) = self.waiting.pop_front() {
            self.take(next, release, account);
        }
    }

    fn take(
        &mut self,
        now: Segment,
        release: ShortSegmentRelease,
        account: &mut ConnectionAccount,
    ) {
        let was = std::mem::take(&mut self.was);
        if let (Some(was_tcb), Some(tcb)) = (was.probed(), now.probed()) {
            now.socket
                .iter()
                .for_each(|socket| account.reports(socket, self.has_sent));
            let is_loss = self.interval((&was, was_tcb), (&now, tcb), release);
            let place = is_loss.then(|| self.place(now.seq)).flatten();
            if let Some(loss) = account.push(&now, is_loss, Some(tcb.retransmits.into())) {
                (loss.place, loss.srtt, loss.flight) = (place, tcb.srtt, tcb.unacked_sent().0);
            }
        }
        self.was = now;
    }

    /// Takes the time from one event to the next. Whether what is sent repeats what may have been lost.
    fn interval(
        &mut self,
        (was, was_tcb): (&Segment, &SocketValues),
        (now, tcb): (&Segment, &SocketValues),
        release: ShortSegmentRelease,
    ) -> bool {
        let (from, to) = (was.at.since(self.begun), now.at.since(self.begun));
        if tcb.min_rtt.0 > 0 {
            let least = self
                .facts
                .min_rtt
                .map_or(tcb.min_rtt, |m| m.min(tcb.min_rtt));
            self.facts.min_rtt = Some(least);
        }
        if tcb.cwnd > self.cwnd.0 {
            self.cwnd.1 = to;
        }
        self.cwnd.0 = tcb.cwnd;
        let state = self.state(was, was_tcb, tcb, release, to);
        let limit = state.owner();
        self.window.own(was.at, now.at, limit);
        let stalled = limit == Limit::Application;
        self.facts.behind.decide(was.at, now.at, stalled);
        let behind = tcb.unread().0 > 0 && tcb.unread().0 * UNREAD >= tcb.rcvbuf.0;
        self.reader.decide(was.at, now.at, behind);
        let fresh = now.what == What::Sent && !now.is_retransmission();
        let bytes = if fresh { now.payload } else { Bytes(0) };
        sender_state::own(
            &mut self.pieces,
            OwnedInterval {
                from,
                to,
                limit,
                bytes,
            },
        );
        self.hold(limit, &state, from, tcb);

        self.reading.to = to;
        self.reading.srtt = tcb.srtt;
        let mss = u64::from(tcb.mss);
        self.facts.mss = self.facts.mss.max(tcb.mss);
        self.facts.send_buffer = self.facts.send_buffer.max(Some(tcb.sndbuf));
        self.reading.cwnd = u64::from(tcb.cwnd) * mss;
        self.reading.flight = self.reading.flight.max(u64::from(tcb.in_flight()) * mss);
        self.reading.window = tcb.snd_wnd.0;
        let owned = self.owners.entry(limit).or_default();
        *owned = owned.saturating_add(to.since(from).0);
        // Selectively acknowledged segments have arrived too.
        let arrived = tcb.delivered.saturating_sub(was_tcb.delivered);
        self.reading.delivered += u64::from(arrived) * mss;
        if before(self.last_una, tcb.snd_una) {
            self.last_una = tcb.snd_una;
            let whole = |until: &u32| before(*until, tcb.snd_una);
            self.mtu_cut = self.mtu_cut.filter(|until| !whole(until));
            let arrived = |burst: &Burst| !before(tcb.snd_una, burst.to);
            while self.bursts.front().is_some_and(arrived) {
                self.bursts.pop_front();
            }
        }
        let is_loss = now.what == What::Sent && now.payload.0 > 0 && self.sent(now, tcb);
        if now.what == What::Sent && now.flags & tcp_flag::SYN != 0 && now.is_retransmission() {
            self.facts.syns_again += 1;
        }
        if limit == Limit::RtoStall {
            self.facts.stalled += to.since(from);
        }
        if tcb.retransmits > self.retransmits {
            self.facts.timeouts += u64::from(tcb.retransmits - self.retransmits);
        }
        self.retransmits = tcb.retransmits;
        self.facts.backoffs = self.facts.backoffs.max(tcb.retransmits.into());
        self.mss = tcb.mss;
        self.pace.see(tcb, to.since(from));
        let span = self.reading.to.since(self.reading.from);
        if span >= SHORTEST_READING.max(Nanos(self.facts.rtt().0 / 4)) {
            self.close();
        }
        is_loss
    }

    /// Who owns the time since the last event, if nothing changes.
    fn now(&self) -> Limit {
        let Some(tcb) = self.was.probed() else {
            return Limit::Application;
        };
        let mut after = tcb.clone();
        if self.was.what == What::Sent {
            after.packets_out += self.was.segments;
        }
        let from = self.was.at.since(self.begun);
        let state = self.state(&self.was, tcb, &after, ShortSegmentRelease::Write, from);
        state.owner()
    }

    fn state(
        &self,
        was: &Segment,
        was_tcb: &SocketValues,
        tcb: &SocketValues,
        release: ShortSegmentRelease,
        to: Nanos,
    ) -> SenderState {
        let left_unsent = left_unsent(was, was_tcb);
        let pace = (tcb.pacing_rate.0 / 8) >> 10;
        let mss = u64::from(tcb.mss.max(1));
        // tcp_tso_autosize: a millisecond's worth, and more on a short path.
        let near = LARGEST_BURST.checked_shr(((tcb.min_rtt.0 / 1000) >> 9) as u32);
        let burst = (pace + near.unwrap_or(0)).min(LARGEST_BURST) / mss;
        let burst = burst.max(SMALLEST_BURST);
        let short = left_unsent > 0 && left_unsent < mss;
        let sending = tcb.unsent().0 > 0 || left_unsent > 0;
        let grows = to.since(self.cwnd.1).0 < tcb.srtt.0.saturating_mul(GROWS_WITHIN);
        SenderState {
            stage: match tcb.state {
                tcp_state::SYN_SENT | tcp_state::SYN_RECV | tcp_state::NEW_SYN_RECV => {
                    ConnectionStage::Opening
                }
                tcp_state::ESTABLISHED | tcp_state::CLOSE_WAIT => ConnectionStage::Open,
                // Closed by the application, and still sending what it had written.
                tcp_state::FIN_WAIT1 | tcp_state::LAST_ACK if sending => ConnectionStage::Open,
                _ => ConnectionStage::Closing,
            },
            ca_state: tcb.ca_state,
            backed_off: tcb.retransmits > 0,
            unsent: left_unsent,
            flight: tcb.in_flight(),
            written: ahead(tcb.snd_una, tcb.write_seq),
            window: tcb.snd_wnd.0,
            room: tcb.send_window_left().0,
            cwnd: tcb.cwnd,
            ssthresh: if grows { tcb.ssthresh } else { 0 },
            mss: tcb.mss,
            burst: burst as u32,
            no_space: tcb.no_space || tcb.chrono == chrono::SNDBUF_LIMITED,
            held_until: (short && tcb.nonagle == 0 && is_short_out(tcb)).then_some(release),
            paced: tcb.pacing_status > 0,
            app_limited: tcb.app_limited != 0 && before(tcb.delivered, tcb.app_limited),
            // tcp_small_queue_check: two super-segments with their overhead, or a millisecond's worth. A send
            // that the device itself lets go finds it lower again.
            queued_below: was_tcb.wmem_alloc.0 > (2 * burst * mss).max(pace),
        }
    }

    /// Counts the waits of short segments, and of a window that lets out one segment at a time.
    fn hold(&mut self, limit: Limit, state: &SenderState, from: Nanos, tcb: &SocketValues) {
        let trip = self.facts.min_rtt.unwrap_or(tcb.srtt);
        let wait = |waits: bool, since: &mut Option<Nanos>, held: &mut AckWaitCounts| {
            if waits {
                since.get_or_insert(from);
            } else if let Some(begun) = since.take() {
                held.waited(held_back(from.since(begun), trip));
            }
        };
        let alone =
            state.flight == 1 && matches!(limit, Limit::CongestionWindow | Limit::SlowStart);
        wait(limit == Limit::Nagle, &mut self.hold, &mut self.facts.held);
        wait(alone, &mut self.alone, &mut self.facts.alone);
    }

    /// Its own end sent data. Whether they may have been lost.
    fn sent(&mut self, segment: &Segment, tcb: &SocketValues) -> bool {
        let count = segment.segments.max(1);
        self.facts.segments += u64::from(count);
        self.reading.passed = self.reading.passed.saturating_add(segment.payload.0);
        if segment.is_retransmission() {
            if tcb.mss < self.mss {
                self.mtu_cut = Some(tcb.snd_nxt);
            }
            let is_mtu_cut = |until| before(segment.seq, until);
            if self.mtu_cut.is_some_and(is_mtu_cut) {
                return false;
            }
            self.facts.retransmitted += u64::from(count);
            self.reading.retransmitted = self.reading.retransmitted.saturating_add(count);
            return true;
        }
        let size = match segment.segment_size {
            0 => segment.payload.0 as u32,
            size => size,
        };
        let to = segment.seq.wrapping_add(segment.payload.0 as u32);
        let (near, at) = (Nanos(tcb.srtt.0 / BURST), segment.at);
        match self.bursts.back_mut() {
            Some(burst) if burst.to == segment.seq && at.since(burst.last) <= near => {
                (burst.to, burst.last) = (to, at);
                burst.size = burst.size.max(size);
            }
            _ => {
                if self.bursts.len() >= MOST_BURSTS {
                    self.bursts.pop_front();
                }
                self.bursts.push_back(Burst {
                    from: segment.seq,
                    to,
                    last: at,
                    size,
                });
            }
        }
        false
    }

    /// Where in its burst a segment stood.
    fn place(&self, seq: u32) -> Option<f64> {
        let is_in = |b: &&Burst| !before(seq, b.from) && before(seq, b.to);
        let burst = self.bursts.iter().find(is_in)?;
        let length = burst.to.wrapping_sub(burst.from).saturating_sub(burst.size);
        (length > 0).then(|| f64::from(seq.wrapping_sub(burst.from)) / f64::from(length))
    }

    fn close(&mut self) {
        let owners = std::mem::take(&mut self.owners);
        self.reading.limit = owners
            .iter()
            .max_by_key(|(_, time)| **time)
            .map(|(l, _)| *l);
        let next = SenderInterval {
            from: self.reading.to,
            to: self.reading.to,
            ..SenderInterval::default()
        };
        let done = std::mem::replace(&mut self.reading, next);
        self.stamped.read(done.srtt, done.echo);
        self.facts.read(done);
    }

    /// Nothing more comes.
    fn finish(&mut self, account: &mut ConnectionAccount) {
        self.release(ShortSegmentRelease::Write, account);
        if self.reading.to > self.reading.from {
            self.close();
        }
    }

    /// Who owned each piece of its time, and what is known of it.
    fn conclude(mut self, account: &ConnectionAccount) -> (Vec<OwnedInterval>, Facts) {
        let (first, facts) = (&self.first, &mut self.facts);
        let tcb = self.was.probed().unwrap_or(first);
        facts.span = self.was.at.since(self.begun);
        facts.bytes = tcb.bytes_acked.since(first.bytes_acked);
        // A FIN counts as one.
        facts.is_exchange = tcb.bytes_received.since(first.bytes_received).0 > 1;
        facts.needless = u64::from(tcb.dsack_dups.saturating_sub(first.dsack_dups));
        facts.reordered = u64::from(tcb.reord_seen.saturating_sub(first.reord_seen));
        facts.marked = u64::from(tcb.delivered_ce.saturating_sub(first.delivered_ce));
        account.inform(facts, self.begun);
        // What was lost did not pass, though it was counted when it left.
        for loss in &facts.losses {
            let n = facts.readings.partition_point(|r| r.to < loss.at);
            if let Some(reading) = facts.readings.get_mut(n) {
                reading.passed = reading.passed.saturating_sub(loss.bytes.into());
            }
        }
        facts.reverse_queueing = self.stamped.reverse_queueing_at_sender(facts.rtt());
        // The name of the congestion control is not in a socket's block. A pace that stays at its highest
        // was set by somebody; one that moves, and not with the window, is bbr's.
        let PaceOfSender { top, at_top, free } = self.pace;
        let long = Nanos(facts.span.0 / 10);
        if at_top > free.max(long) {
            facts.pacing = Some(model::BitRate(top));
        } else if free > long {
            facts.congestion = Some("bbr, as its pace shows".to_owned());
        }
        (self.pieces, self.facts)
    }
}

impl PaceOfSender {
    /// Takes the pace that a socket had for some time.
    fn see(&mut self, tcb: &SocketValues, time: Nanos) {
        let rate = tcb.pacing_rate;
        if tcb.pacing_status == 0 || rate.0 == 0 {
            return;
        }
        // tcp_update_pacing_rate: 2 or 1.2 windows a round trip.
        let window = u128::from(tcb.cwnd.max(tcb.packets_out)) * u128::from(tcb.mss) * 8;
        let follows = |parts: u128| {
            let pace = (window * parts / 5).saturating_mul(1_000_000_000);
            let pace = u64::try_from(pace / u128::from(tcb.srtt.0.max(1))).unwrap_or(u64::MAX);
            rate.0.abs_diff(pace) < pace / SAME_PACE
        };
        if follows(6) || follows(10) {
            return;
        }
        if rate.0 > self.top {
            self.free += std::mem::replace(&mut self.at_top, Nanos(0));
            self.top = rate.0;
        }
        match rate.0 == self.top {
            true => self.at_top += time,
            false => self.free += time,
        }
    }
}

/// What an event left unsent is less than a segment: Nagle's algorithm can hold it.
fn is_short(was: &Segment) -> bool {
    was.probed().is_some_and(|tcb| {
        let left = left_unsent(was, tcb);
        left > 0 && left < u64::from(tcb.mss)
    })
}

#[cfg(test)]
mod tests;

//! From TCP_INFO samples of both ends: the rules of a trace, as far as the fields go, and the kernel's
//! own counters where it keeps them. Shares are off by 0.3 % at 1 ms, 1.2 % at 10 ms, 8 % at 100 ms.

use crate::conclude::{ExplainedConnection, assemble};
use crate::facts::{
    CpuLoad, Facts, LostSegment, MOST_LOSSES, ReverseQueueing, SenderInterval, Vanished,
};
use crate::limits::RECEIVE_WINDOW_FULL;
use crate::reverse_path;
use crate::sender_state::{OwnedInterval, SenderState};
use crate::trace::GROWS_WITHIN;
use model::finding::{Confidence, Explanation, Limit, Source};
use model::segment::{ca_state, tcp_state};
use model::{
    BitRate, Bytes, EndRecord, Fingerprint, Leg, Nanos, Run, SocketOptions, SocketState,
    StreamSample, Workload,
};

/// Round trips that bbr needs to fill a path (its gain of 2.89 doubles the rate each).
const STARTUP: u64 = 12;
/// Samples farther apart than this leave much between them unseen.
const COARSE: Nanos = Nanos::from_millis(100);
/// Causes that only the place of each loss separates from each other.
const NEED_LOSSES: [Limit; 6] = [
    Limit::BottleneckRate,
    Limit::Bufferbloat,
    Limit::RandomLoss,
    Limit::BurstLoss,
    Limit::Policer,
    Limit::Shaper,
];
/// Payload that a send buffer holds by its size: the kernel's overhead takes half and more.
const BUFFER_FULL: f64 = 0.3;
/// Use of a send buffer up to which a writer that waits for room is woken (`sk_stream_is_writeable`).
const WRITABLE: f64 = 2.0 / 3.0;
/// Share of what was written that is in flight, from which the buffer keeps nothing back.
const ALL_OUT: f64 = 0.75;
/// In flight by the congestion window, from which it holds the sender back.
const WINDOW_FULL: f64 = 0.8;

/// Streams of a leg that can be explained: none for datagrams and where neither host reported samples.
pub(crate) fn streams(run: &Run, ends: LegEnds) -> usize {
    if run.spec.workload.is_udp() {
        return 0;
    }
    let streams = ends.sender.samples.iter().map(|s| s.streams.len());
    streams.max().unwrap_or(0)
}

/// The two ends of a leg, by what they do.
#[derive(Clone, Copy)]
pub(crate) struct LegEnds<'a> {
    pub sender: &'a EndRecord,
    pub receiver: &'a EndRecord,
}

impl LegEnds<'_> {
    /// Both ends send where requests are answered: the matter is the one that sends more.
    pub fn of<'a>(run: &Run, leg: &'a Leg) -> LegEnds<'a> {
        let own = LegEnds {
            sender: leg.sender(),
            receiver: leg.receiver(),
        };
        let sent = |end: &EndRecord| -> u64 {
            let last = end.samples.last().map(|s| s.streams.iter());
            let acked = last
                .into_iter()
                .flatten()
                .filter_map(|s| s.tcp.as_ref()?.bytes_acked());
            acked.map(|bytes| bytes.0).sum()
        };
        let answers = run.spec.workload.is_answered();
        if answers && sent(own.receiver) > sent(own.sender) {
            return LegEnds {
                sender: own.receiver,
                receiver: own.sender,
            };
        }
        own
    }
}

/// Explains a stream, with what more is known of it.
pub(crate) fn stream(
    run: &Run,
    leg: &Leg,
    ends: LegEnds,
    n: usize,
    more: &mut dyn FnMut(&mut Facts),
) -> Option<Explanation> {
    let rows: Vec<SampleRow> = rows(ends.sender, n);
    if rows.is_empty() {
        return None;
    }
    let mut facts = facts(ends, n, &rows);
    of_hosts(run, ends, n, &mut facts);
    let mut pieces = Vec::new();
    let mut idle = Idle::from(&rows[0]);
    let mut unread = UnreadShares::of(ends.receiver, n);
    for pair in rows.windows(2) {
        interval(&pair[0], &pair[1], &mut facts, &mut idle, &mut pieces);
        if let Some(reading) = facts.readings.last_mut() {
            reading.unread = unread.at(reading.to);
        }
    }
    facts.reverse_queueing = reverse_queueing(&rows, ends.receiver, n, &facts);
    let stalls = pieces.iter().filter(|p| p.limit == Limit::RtoStall);
    facts.stalled = stalls.map(|p| p.to.since(p.from)).sum();
    facts.vanished = vanished(&rows, &facts);
    let mut doubts = Vec::new();
    let spacing = ends.sender.spacing(run.spec.interval);
    if spacing > COARSE {
        doubts.push(format!(
            "samples {} apart: what happened between them is inferred from counters; -i 10ms shows more",
            spacing
        ));
    }
    more(&mut facts);
    let mut explanation = assemble(subject(run, leg, ends, n), &pieces, &facts, doubts);
    of_coarse_samples(&mut explanation, spacing, facts.retransmitted);
    Some(explanation)
}

/// Which losses came together, and whether a queue stood then, lies between samples that are so far apart.
pub(crate) fn of_coarse_samples(explanation: &mut Explanation, spacing: Nanos, retransmitted: u64) {
    if spacing > COARSE && retransmitted > 0 {
        let findings = explanation.findings.iter_mut();
        for finding in findings.filter(|f| NEED_LOSSES.contains(&f.limit)) {
            finding.confidence = Confidence::Possible;
        }
    }
}

/// What a stream of a leg is called.
pub(crate) fn subject(run: &Run, leg: &Leg, ends: LegEnds, n: usize) -> ExplainedConnection {
    let socket = ends.sender.sockets.get(n);
    let streams = match run.spec.streams {
        0 | 1 => String::new(),
        _ => format!(" stream {n}"),
    };
    ExplainedConnection {
        name: format!("{}{streams}", leg.direction),
        sender: socket.map(|s| s.local),
        receiver: socket.map(|s| s.remote),
        direction: Some(leg.direction),
    }
}

/// What a run has of a stream's hosts and sockets, for samples and traces alike.
pub(crate) fn of_hosts(run: &Run, ends: LegEnds, n: usize, facts: &mut Facts) {
    let hosts = [Some(&run.local), run.remote.as_ref()];
    facts.link = slowest(&hosts);
    facts.half_duplex = half_duplex(&hosts);
    facts.line = [ends.sender, ends.receiver].map(|end| end.line.clone());
    let socket = ends.sender.sockets.get(n);
    let congestion = socket.map(|s| s.congestion.clone());
    facts.congestion = congestion.filter(|name| !name.is_empty());
    facts.pacing = socket.and_then(|s| s.pacing);
    facts.other_direction = other_direction(run, ends);
    let order = &run.spec.workload;
    facts.always_writes = order.always_writes();
    facts.memory_path = is_memory_path(run, socket);
    facts.most_written = order.most_written();
    if let Workload::Copy(copy) = &run.spec.workload {
        facts.copy = model::summarise_copy(ends.sender, ends.receiver)
            .map(|copy_summary| (copy_summary, [copy.from.is_some(), copy.to.is_some()]));
    }
    facts.sender_load = load(ends.sender, threads(run, ends.sender, facts.memory_path));
    facts.receiver_load = load(
        ends.receiver,
        threads(run, ends.receiver, facts.memory_path),
    );
}

/// Goodput of a stream of the leg in the other direction, in bytes a second; a peer may report nothing.
fn other_direction(run: &Run, ends: LegEnds) -> Option<f64> {
    let is_own = |end| std::ptr::eq(end, ends.sender) || std::ptr::eq(end, ends.receiver);
    let other = run.legs.iter().find(|leg| !is_own(&leg.local))?;
    let counted = [other.receiver(), other.sender()];
    let end = counted.into_iter().find(|end| end.duration.0 > 0)?;
    let streams = f64::from(run.spec.streams.max(1));
    Some(end.bytes.0 as f64 / end.duration.as_secs_f64() / streams)
}

/// Threads that moved the streams of a run at this end.
fn threads(run: &Run, end: &EndRecord, shares_processors: bool) -> u32 {
    let host = run.legs.iter().find_map(|leg| match end {
        end if std::ptr::eq(end, &leg.local) => Some(&run.local),
        end if std::ptr::eq(end, &leg.remote) => run.remote.as_ref(),
        _ => None,
    });
    match host {
        Some(host) if run.spec.workload.shares_threads() && host.cpu.online > 0 => {
            let own = host.cpu.online / (1 + u32::from(shares_processors));
            run.spec.streams.min(own.max(1))
        }
        _ => run.spec.streams,
    }
}

/// What the receiving application had not read, by its buffer, from sample to sample.
struct UnreadShares<'a> {
    end: &'a EndRecord,
    stream: usize,
    next: usize,
    last: Option<f64>,
}

impl UnreadShares<'_> {
    fn of(end: &EndRecord, stream: usize) -> UnreadShares<'_> {
        UnreadShares {
            end,
            stream,
            next: 0,
            last: None,
        }
    }

    /// The latest value up to `at`; calls come in the order of time.
    fn at(&mut self, at: Nanos) -> Option<f64> {
        while let Some(sample) = self.end.samples.get(self.next).filter(|s| s.at <= at) {
            self.next += 1;
            self.last = sample.streams.get(self.stream).and_then(|s| {
                let arrived = s.tcp.as_ref()?.bytes_received()?;
                let buffer = s.receive_buffer.filter(|b| b.0 > 0)?;
                // A few bytes that open a stream are not the application's; of a buffer they are nothing.
                Some(arrived.since(s.bytes).0 as f64 / buffer.0 as f64)
            });
        }
        self.last
    }
}

/// How much of the queueing delay is on the reverse path, by the samples of both ends.
fn reverse_queueing(
    rows: &[SampleRow],
    receiver: &EndRecord,
    n: usize,
    facts: &Facts,
) -> Option<ReverseQueueing> {
    let bytes = |s: &model::Sample| s.streams.get(n)?.tcp.as_ref()?.bytes_received();
    let arrived = receiver.samples.iter();
    let arrived: Vec<(Nanos, Bytes)> = arrived.filter_map(|s| Some((s.at, bytes(s)?))).collect();
    // Behind a hole nothing is acknowledged in order, however fast the acknowledgements come back.
    let whole = |row: &&SampleRow| row.tcp.sacked_out().unwrap_or(0) == 0;
    let acked = rows.iter().filter(whole).filter_map(|row| {
        let srtt = row.tcp.srtt().filter(|srtt| srtt.0 > 0)?;
        Some((row.at, srtt, row.tcp.bytes_acked()?))
    });
    reverse_path::queueing(acked, &arrived, facts.min_rtt?)
}

/// Timeouts after which segments that never arrived are no chance.
const TIMEOUTS: u32 = 3;

/// The retransmission timer fires repeatedly, the handshake got through (here, where the peer opened the
/// connection), and not one full segment did.
fn vanished(rows: &[SampleRow], facts: &Facts) -> Option<Vanished> {
    let (first, last) = (rows.first()?, rows.last()?);
    let passed = last.tcp.bytes_acked()?;
    let size = rows.iter().filter_map(|r| r.tcp.mss()).max()?;
    let timeouts = u32::from(last.tcp.total_rto()?);
    let opened = passed.0 > 0 || last.tcp.bytes_received().is_some_and(|bytes| bytes.0 > 0);
    let stuck = timeouts >= TIMEOUTS && opened && passed.0 < u64::from(size);
    let sent = last.tcp.bytes_sent().zip(last.tcp.bytes_retrans());
    let sent = sent.is_some_and(|(all, again)| all.since(again).0 >= u64::from(size));
    (stuck && (sent || facts.always_writes)).then_some(Vanished {
        size,
        passed: passed.0 as u32,
        backoffs: timeouts,
        at: first.at,
    })
}

/// Time with nothing outstanding so far. The kernel's clock of it ticks every few milliseconds, so it is
/// taken over all of the connection and not from one short interval to the next.
#[derive(Clone, Debug)]
pub(crate) struct Idle {
    from: Nanos,
    busy: Option<Nanos>,
    given: Nanos,
}

impl Idle {
    pub(crate) fn from(first: &SampleRow) -> Idle {
        Idle {
            from: first.at,
            busy: first.tcp.busy(),
            given: Nanos(0),
        }
    }

    fn grown(&self, now: &SampleRow) -> Nanos {
        let Some((busy, before)) = now.tcp.busy().zip(self.busy) else {
            return Nanos(0);
        };
        let outstanding = busy.since(before) + self.given;
        now.at.since(self.from).since(outstanding)
    }
}

/// A stream at one state.
pub(crate) struct SampleRow<'a> {
    pub at: Nanos,
    pub tcp: &'a SocketState,
    pub send_buffer: Option<Bytes>,
    /// Its use, the kernel's overhead included, where that is reported.
    pub buffer_used: Option<Bytes>,
}

/// The readable accounts of a stream, in order; a closed socket ends them.
fn rows(end: &EndRecord, n: usize) -> Vec<SampleRow<'_>> {
    let mut rows: Vec<SampleRow> = Vec::new();
    for sample in &end.samples {
        let Some(StreamSample {
            tcp: Some(tcp),
            send_buffer,
            ..
        }) = sample.streams.get(n)
        else {
            continue;
        };
        // The socket of a leg that is over: nothing of the transfer is in it any more.
        let over = rows.last().is_some_and(|last| {
            sample.at <= last.at
                || (tcp.state() != Some(tcp_state::ESTABLISHED)
                    && tcp.bytes_acked() == last.tcp.bytes_acked())
        });
        if !over {
            rows.push(SampleRow {
                at: sample.at,
                tcp,
                send_buffer: *send_buffer,
                buffer_used: None,
            });
        }
    }
    rows
}

fn facts(ends: LegEnds, n: usize, rows: &[SampleRow]) -> Facts {
    let (first, last) = (&rows[0], &rows[rows.len() - 1]);
    let mut facts = Facts::new(Source::Samples);
    count_all(&mut facts, first, last);
    let in_a_row = rows.iter().filter_map(|r| r.tcp.retransmits());
    facts.backoffs = in_a_row.max().unwrap_or_default().into();
    facts.send_buffer = rows.iter().filter_map(|r| r.send_buffer).max();
    let receiver = ends.receiver.samples.iter();
    facts.receive_buffer = receiver
        .filter_map(|s| s.streams.get(n)?.receive_buffer)
        .max();
    facts
}

/// What the kernel's counters say of the time between two moments.
pub(crate) fn count_all(facts: &mut Facts, first: &SampleRow, last: &SampleRow) {
    facts.mss = last.tcp.mss().unwrap_or_default();
    facts.span = last.at.since(first.at);
    facts.bytes = grown(first.tcp.bytes_acked(), last.tcp.bytes_acked());
    facts.min_rtt = last.tcp.min_rtt().filter(|rtt| rtt.0 > 0);
    facts.segments = count(first.tcp.data_segs_out(), last.tcp.data_segs_out());
    facts.retransmitted = count(first.tcp.total_retrans(), last.tcp.total_retrans());
    facts.timeouts = count(
        first.tcp.total_rto().map(u32::from),
        last.tcp.total_rto().map(u32::from),
    );
    facts.needless = count(first.tcp.dsack_dups(), last.tcp.dsack_dups());
    facts.reordered = count(first.tcp.reord_seen(), last.tcp.reord_seen());
    facts.marked = count(first.tcp.delivered_ce(), last.tcp.delivered_ce());
}

pub(crate) fn count(before: Option<u32>, now: Option<u32>) -> u64 {
    u64::from(now.unwrap_or(0).saturating_sub(before.unwrap_or(0)))
}

pub(crate) fn grown(before: Option<Bytes>, now: Option<Bytes>) -> Bytes {
    now.unwrap_or_default().since(before.unwrap_or_default())
}

fn load(end: &EndRecord, threads: u32) -> Option<CpuLoad> {
    let (first, last) = (end.samples.first()?, end.samples.last()?);
    let wall = last.at.since(first.at).0;
    if wall == 0 {
        return None;
    }
    let own = |c: &model::CpuTimes| c.process_user + c.process_system;
    let total = last.cpu.host_total.since(first.cpu.host_total).0;
    let busy = last.cpu.host_busy.since(first.cpu.host_busy).0;
    let busiest = last.cpu.busiest_processor;
    let busiest = busiest.map(|busy| busy.since(first.cpu.busiest_processor.unwrap_or_default()));
    Some(CpuLoad {
        process: own(&last.cpu).since(own(&first.cpu)).0 as f64 / wall as f64,
        host: (total > 0).then(|| busy as f64 / total as f64),
        busiest: busiest.map(|busy| busy.0 as f64 / wall as f64),
        streams: threads,
    })
}

fn slowest(hosts: &[Option<&Fingerprint>]) -> Option<BitRate> {
    let devices = hosts.iter().flatten().filter_map(|h| h.device.as_ref());
    devices.filter_map(|d| d.speed).min()
}

/// One kernel has both ends, in whatever namespaces or containers, of a load that neither storage nor a setting slows.
fn is_memory_path(run: &Run, socket: Option<&SocketOptions>) -> bool {
    let of_remote = run
        .remote
        .as_ref()
        .and_then(|remote| remote.boot_id.as_ref());
    let same_kernel = of_remote.is_some() && of_remote == run.local.boot_id.as_ref();
    let loopback = socket.is_some_and(|socket| socket.remote.ip().to_canonical().is_loopback());
    let asked = &run.spec.socket;
    let free = asked.send_buffer.or(asked.receive_buffer).is_none() && asked.pacing.is_none();
    (same_kernel || loopback) && free && matches!(run.spec.workload, Workload::Bulk(_))
}

fn half_duplex(hosts: &[Option<&Fingerprint>]) -> Option<String> {
    let host = hosts.iter().flatten().find(|h| {
        let duplex = h.device.as_ref().and_then(|d| d.duplex.as_deref());
        duplex.is_some_and(|d| d.eq_ignore_ascii_case("half"))
    })?;
    let device = host.device.as_ref()?;
    Some(format!("{} on {}", device.name, host.hostname))
}

/// Parts the time between two samples: first by what the kernel counted, then by the state at its end.
pub(crate) fn interval(
    before: &SampleRow,
    now: &SampleRow,
    facts: &mut Facts,
    idle: &mut Idle,
    pieces: &mut Vec<OwnedInterval>,
) {
    let (a, b) = (before.tcp, now.tcp);
    let (mss, srtt) = (
        b.mss().unwrap_or_default().into(),
        b.srtt().unwrap_or_default(),
    );
    let cwnd = b.cwnd_bytes().unwrap_or_default().0;
    let span = now.at.since(before.at);
    let delivered = grown(a.bytes_acked(), b.bytes_acked());
    let resent = count(a.total_retrans(), b.total_retrans());
    let spent = |f: fn(&SocketState) -> Option<Nanos>| Some(f(b)?.since(f(a)?));
    let mut left = span;
    let mut parts: Vec<(Limit, Nanos)> = Vec::new();
    let mut give = |limit: Limit, time: Nanos| {
        let time = time.min(left);
        left = left.since(time);
        if time.0 > 0 {
            parts.push((limit, time));
        }
    };
    // Selectively acknowledged segments have arrived too: behind a hole bytes_acked stands still.
    let arrived = match (a.delivered(), b.delivered()) {
        (Some(before), Some(now)) => u64::from(now.saturating_sub(before)) * mss,
        _ => delivered.0,
    };
    // The kernel's clocks of full windows and buffers run on while its timer waits for the network
    // (`tcp_chrono_stop`, `net/ipv4/tcp_output.c`).
    if arrived == 0 && b.retransmits().is_some_and(|fired| fired > 0) {
        give(Limit::RtoStall, span);
    }
    let closed = b.snd_wnd().is_some_and(|w| w.0 < mss);
    let window = if closed {
        Limit::ZeroWindow
    } else {
        Limit::ReceiveWindow
    };
    give(window, spent(|t| t.rwnd_limited()).unwrap_or_default());
    let no_room = spent(|t| t.sndbuf_limited()).unwrap_or_default();
    give(Limit::SendBuffer, no_room);
    let nothing_out = idle.grown(now).min(span);
    idle.given += nothing_out;
    give(Limit::Application, nothing_out);
    let timeouts = count(a.total_rto().map(u32::from), b.total_rto().map(u32::from));
    let rto = b.rto().unwrap_or_default();
    give(Limit::RtoStall, Nanos(rto.0.saturating_mul(timeouts)));
    if resent > 0
        && !matches!(
            b.ca_state(),
            Some(ca_state::CWR | ca_state::RECOVERY | ca_state::LOSS)
        )
    {
        // A recovery that began and ended between the samples took a round trip at the least.
        give(Limit::LossRecovery, srtt);
    }
    let early = before.at.0 < STARTUP.saturating_mul(srtt.0);
    let buffer = now.send_buffer.unwrap_or_default().0 as f64;
    let held = (flight(b) * mss + b.notsent_bytes().unwrap_or_default().0) as f64;
    let seems_full = match now.buffer_used {
        Some(used) => used.0 as f64 > WRITABLE * buffer,
        None => held >= BUFFER_FULL * buffer,
    };
    // Who never has more to write than fits does not wait for room.
    let fits = facts
        .most_written
        .is_some_and(|most| most.0 as f64 <= buffer);
    let buffer_full = no_room.0 * 50 > span.0 || (buffer > 0.0 && seems_full && !fits);
    let lately = Nanos(srtt.0.saturating_mul(GROWS_WITHIN));
    let readings = facts.readings.iter().rev();
    let grows = before.at < lately
        || a.cwnd() < b.cwnd()
        || readings
            .take_while(|r| now.at.since(r.to) < lately)
            .any(|r| r.cwnd < cwnd);
    let rest = owner(a, b, facts, buffer_full, early, grows);
    give(rest, span);

    let most = parts.iter().max_by_key(|(_, time)| *time).map(|(l, _)| *l);
    let mut from = before.at;
    for (limit, time) in parts {
        let bytes = u128::from(delivered.0) * u128::from(time.0) / u128::from(span.0.max(1));
        let bytes = Bytes(u64::try_from(bytes).unwrap_or(0));
        let to = from + time;
        pieces.push(OwnedInterval {
            from,
            to,
            limit,
            bytes,
        });
        from = to;
    }
    facts.read(SenderInterval {
        from: before.at,
        to: now.at,
        srtt,
        cwnd,
        flight: flight(b) * mss,
        window: b.snd_wnd().unwrap_or_default().0,
        delivered: arrived,
        passed: arrived,
        retransmitted: u32::try_from(resent).unwrap_or(u32::MAX),
        limit: most,
        unread: None,
        ..SenderInterval::default()
    });
    // Where between the samples is not known: they are spread evenly.
    let room = MOST_LOSSES.saturating_sub(facts.losses.len()) as u64;
    let kept = resent.min(room);
    for n in 0..kept {
        facts.losses.push(LostSegment {
            at: before.at + Nanos(span.0 / (kept + 1) * (n + 1)),
            srtt: srtt.max(a.srtt().unwrap_or_default()),
            flight: flight(a) * mss,
            place: None,
            bytes: 0,
            ..LostSegment::default()
        });
    }
}

/// Segments that are in the network as the sender sees it (`tcp_packets_in_flight`).
fn flight(tcp: &SocketState) -> u64 {
    tcp.in_flight().unwrap_or_default().into()
}

/// Who owns what the counters leave, by the state at the end of the interval.
fn owner(
    before: &SocketState,
    now: &SocketState,
    facts: &Facts,
    buffer_full: bool,
    early: bool,
    grows: bool,
) -> Limit {
    let unsent = now.notsent_bytes().unwrap_or(Bytes(1 << 20)).0;
    let in_flight = flight(now);
    let window = now.snd_wnd().unwrap_or(Bytes(u64::MAX)).0;
    let mss = now.mss().unwrap_or_default();
    let cwnd = now.cwnd().unwrap_or_default();
    let segment = u64::from(mss.max(1));
    let idle = now.delivery_rate_app_limited() == Some(true) && unsent < segment;
    let full = (in_flight * segment) as f64 >= RECEIVE_WINDOW_FULL * window as f64;
    if full && (facts.is_bbr() || now.rwnd_limited().is_none()) {
        return Limit::ReceiveWindow;
    }
    let paced = facts.is_bbr() || facts.pacing.is_some();
    let cwnd_full = in_flight as f64 >= WINDOW_FULL * f64::from(cwnd);
    // A pacing sender never empties its queue, but nearly all that the buffer holds is in flight.
    let all_out = (in_flight * segment) as f64 >= ALL_OUT * (in_flight * segment + unsent) as f64;
    if buffer_full && (idle || (paced && all_out && !cwnd_full)) {
        return Limit::SendBuffer;
    }
    if matches!(now.ca_state(), Some(ca_state::CWR | ca_state::RECOVERY)) {
        return Limit::LossRecovery;
    }
    if now.ca_state() == Some(ca_state::LOSS) {
        return Limit::RtoStall;
    }
    if idle && !cwnd_full {
        return Limit::Application;
    }
    // bbr has no threshold, and keeps its startup to itself. A window that stands is in no slow start.
    let ssthresh = match (facts.is_bbr(), early) {
        (true, true) => u32::MAX,
        (true, false) => 0,
        _ if !grows => 0,
        _ => now.ssthresh().min(before.ssthresh()).unwrap_or_default(),
    };
    let state = SenderState {
        unsent: unsent.max(segment),
        flight: if cwnd_full { cwnd } else { 0 },
        window,
        room: window,
        cwnd,
        ssthresh,
        mss,
        burst: 1,
        paced,
        ..SenderState::default()
    };
    state.owner()
}

#[cfg(test)]
mod tests;

//! From samples to the figures that are printed first.

use crate::physics::HEADERS;
use crate::request::Links;
use crate::stats::percentile;
use crate::{
    BitRate, BlockSummary, Bytes, CopySummary, Datagrams, Direction, Directions, EndRecord, Ended,
    Latency, Leg, LegLimit, Nanos, Run, SOCKET_OPTIONS, Sample, Side, SocketOption, SocketOptions,
    SocketState, Spec, StreamSample, Warning, Workload, blocks::read_again, interval_ends,
    summarise_blocks, summarise_copy,
};
use serde::{Deserialize, Serialize};

/// The figures of a whole run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// One entry a leg, in order.
    pub legs: Vec<LegSummary>,
    /// Doubts of the run and of its ends, each once.
    pub warnings: Vec<Warning>,
}

/// The figures of one leg. Steady figures leave the ramp out; `None` means that it cannot be known
/// from what was seen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LegSummary {
    /// Which way.
    pub direction: Direction,
    /// How it ended.
    pub ended: Ended,
    /// From the first byte sent to the last received; under a time limit at least to that limit, even if nothing came
    /// any more. Of transfers of a set size the sender sees the last byte acknowledged, half of the shortest RTT later.
    #[serde(rename = "duration_ns")]
    pub duration: Nanos,
    /// Bytes that the receiver's application took (the sender's count where the receiver is silent).
    pub bytes: Bytes,
    /// Bytes by time, over the whole leg, slow start included.
    #[serde(rename = "goodput_bit_s")]
    pub goodput: BitRate,
    /// The same without the ramp.
    #[serde(rename = "steady_goodput_bit_s")]
    pub steady_goodput: Option<BitRate>,
    /// End of the ramp.
    #[serde(rename = "ramp_ns")]
    pub ramp: Nanos,
    /// Segments retransmitted.
    pub retransmits: Option<u64>,
    /// Bytes retransmitted by bytes sent, 0 to 1.
    pub retransmit_share: Option<f64>,
    /// Segments delivered with an ECN mark.
    pub ecn_marks: Option<u64>,
    /// Round-trip time before the load: from the handshake.
    #[serde(rename = "rtt_idle_ns")]
    pub rtt_idle: Option<Nanos>,
    /// Median of the smoothed round-trip times in the steady part.
    #[serde(rename = "rtt_loaded_ns")]
    pub rtt_loaded: Option<Nanos>,
    /// Largest smoothed round-trip time of the steady part.
    #[serde(rename = "rtt_loaded_max_ns")]
    pub rtt_loaded_max: Option<Nanos>,
    /// Bandwidth-delay product: steady goodput times loaded round-trip time.
    pub bdp: Option<Bytes>,
    /// Median receive window that the sender saw, all streams together.
    pub window: Option<Bytes>,
    /// Median congestion window, all streams together.
    pub cwnd: Option<Bytes>,
    /// Median of written and unsent bytes, all streams together.
    pub unsent: Option<Bytes>,
    /// Largest send buffer that a sender socket had: autotuning moves it.
    pub send_buffer: Option<Bytes>,
    /// Largest receive buffer that a receiver socket had.
    pub receive_buffer: Option<Bytes>,
    /// Share of the busy time that waited for the receive window, 0 to 1.
    pub rwnd_limited_share: Option<f64>,
    /// Share of the busy time that waited for the send buffer, 0 to 1, as the kernel counts it: a wait that begins when all that was
    /// written has left is not counted.
    pub sndbuf_limited_share: Option<f64>,
    /// Share of the leg with data to send, 0 to 1: below one, the application did not always send.
    pub busy_share: Option<f64>,
    /// Processor use at the sender.
    pub sender_cpu: Option<CpuUse>,
    /// Processor use at the receiver.
    pub receiver_cpu: Option<CpuUse>,
    /// Requests (request workload, blocks).
    pub requests: Option<LatencySummary>,
    /// The same by operation, those first that took the most time (blocks).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub operations: Vec<BlockSummary>,
    /// Datagrams as the receiver counted them (UDP).
    pub datagrams: Option<Datagrams>,
    /// More about them, where the receiver is a linerate host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrivals: Option<ArrivalSummary>,
    /// The stages of a copy (copy workload).
    pub copy: Option<CopySummary>,
    /// Requested settings, and those of the live sockets.
    pub settings: Vec<SettingInForce>,
    /// The receiver discarded in the kernel: the path was measured, not the reader.
    pub discarded: bool,
}

/// What became of the datagrams of a leg.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrivalSummary {
    /// That arrived, each counted once.
    pub received: u64,
    /// Copies of those that had arrived.
    pub duplicates: u64,
    /// Missing, not dropped by the receiver's socket: at least so many were lost on the path.
    pub lost_on_path: u64,
    /// Missing, dropped by the receiver's own socket, which had no room: at most so many.
    pub dropped: u64,
    /// Runs of missing datagrams with consecutive numbers.
    pub loss_events: u64,
    /// Datagrams of the longest such run.
    pub longest_loss: u64,
    /// Median of the one-way delays above the smallest of the stream (RFC 5481, 4.2).
    #[serde(rename = "delay_variation_p50_ns")]
    pub delay_variation_p50: Nanos,
    /// 99 in 100 are not above it.
    #[serde(rename = "delay_variation_p99_ns")]
    pub delay_variation_p99: Nanos,
}

/// Processor use of one host over a leg.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CpuUse {
    /// The process, in processors: 1.0 is one of them all the time.
    pub process: f64,
    /// The whole host as a share of all its processors, 0 to 1; `None` if not reported.
    pub host_share: Option<f64>,
    /// The process, in seconds for each 10^9 bytes that it moved, in both directions if both ran at
    /// once; `None` if nothing moved.
    pub process_s_per_gb: Option<f64>,
}

/// Request latency in the usual percentiles.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LatencySummary {
    /// Requests answered.
    pub count: u64,
    /// Requests answered a second.
    pub per_s: f64,
    /// Arithmetic mean.
    #[serde(rename = "mean_ns")]
    pub mean: Nanos,
    /// Median.
    #[serde(rename = "p50_ns")]
    pub p50: Nanos,
    /// 90 in 100 are not slower.
    #[serde(rename = "p90_ns")]
    pub p90: Nanos,
    /// 99 in 100 are not slower.
    #[serde(rename = "p99_ns")]
    pub p99: Nanos,
    /// 999 in 1000 are not slower.
    #[serde(rename = "p999_ns")]
    pub p999: Nanos,
    /// The slowest.
    #[serde(rename = "max_ns")]
    pub max: Nanos,
    /// What the path needs for one at the least: the shortest round trip, and its frames on a link
    /// of the slower rate that the devices of the hosts report, where one does. `None`: the round
    /// trip was not seen, or requests of several kinds are in here.
    #[serde(rename = "ideal_ns", default)]
    pub ideal: Option<Nanos>,
}

/// A requested setting, and its values in force.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SettingInForce {
    /// Name, as on the command line.
    pub name: String,
    /// Requested; `None` if the kernel's own choice.
    pub asked: Option<String>,
    /// On the sender's live socket; `None` if not reported.
    pub sender: Option<String>,
    /// On the receiver's live socket; `None` if not reported.
    pub receiver: Option<String>,
}

/// The start of a leg that steady figures leave out: the longer of 2 s and 20 round trips (slow
/// start doubles each round trip, so 20 cover any window), but at most half of the leg. It depends
/// on nothing that the leg itself achieved, so it cannot flatter.
pub fn ramp_for(spec: &Spec, rtt: Option<Nanos>, duration: Nanos) -> Nanos {
    let asked = spec.ramp.unwrap_or_else(|| {
        let round_trips = Nanos(rtt.unwrap_or_default().0.saturating_mul(20));
        round_trips.max(Nanos::from_secs(2))
    });
    asked.min(Nanos(duration.0 / 2))
}

/// Sums a run up.
pub fn summarise(run: &Run) -> Summary {
    let links = run.links();
    let of = |leg: &Leg| {
        let mut figures = summarise_leg(&run.spec, leg);
        ideals(&run.spec.workload, leg.sender(), &links, &mut figures);
        figures
    };
    let mut legs: Vec<LegSummary> = run.legs.iter().map(of).collect();
    if run.spec.directions == Directions::Bidirectional {
        share_cpu(&mut legs);
    }
    let ends = run.legs.iter().flat_map(|leg| [&leg.local, &leg.remote]);
    let again = run.legs.iter().filter_map(|leg| read_again(&run.spec, leg));
    let seen = run.warnings.iter();
    let seen = seen.chain(ends.flat_map(|end| &end.warnings)).cloned();
    let mut warnings: Vec<Warning> = Vec::new();
    let dropped = run.legs.iter().filter_map(dropped_by_socket);
    for warning in seen.chain(again).chain(dropped) {
        if !warnings.contains(&warning) {
            warnings.push(warning);
        }
    }
    Summary { legs, warnings }
}

/// Sums one leg up.
pub fn summarise_leg(spec: &Spec, leg: &Leg) -> LegSummary {
    let sender = leg.sender();
    let receiver = leg.receiver();
    // Stock iperf3 may report nothing for its side: then the local count is used.
    let counted = match receiver.duration {
        Nanos(0) => sender,
        _ => receiver,
    };
    let first_tcp = || sender.samples.first().into_iter().flat_map(tcp_of);
    let rtt_idle = first_tcp()
        .filter_map(|tcp| tcp.min_rtt().or(tcp.srtt()))
        .filter(|rtt| *rtt > Nanos(0))
        .min();
    let span = span(spec.limit, leg, counted, rtt_idle);
    let ramp = ramp_for(spec, rtt_idle, span);
    let steady: Vec<&Sample> = sender.samples.iter().filter(|s| s.at >= ramp).collect();
    // Stock iperf3 reports its totals only: a first and a last sample cannot leave the ramp out.
    let sampled = [counted, sender]
        .into_iter()
        .find(|end| end.samples.len() > 2);
    let steady_goodput = sampled.and_then(|end| steady_rate(&end.samples, ramp, span));
    let rtts = || {
        let all = steady.iter().flat_map(|s| tcp_of(s));
        all.filter_map(|t| t.srtt()).filter(|r| *r > Nanos(0))
    };
    let rtt_loaded = percentile(&mut rtts().collect::<Vec<_>>(), 0.5);
    let last = last_tcp(sender);
    let first: Vec<&SocketState> = first_tcp().collect();
    let busy = sum_of(&last, |t| t.busy());
    let share_of_busy = |part: Option<Nanos>| match (part, busy) {
        (Some(part), Some(busy)) if busy > Nanos(0) => Some(part.0 as f64 / busy.0 as f64),
        _ => None,
    };
    let streams = last.len().max(1) as f64;
    let requests = sender.requests.as_ref();
    let grown = |now: Option<u64>, before: Option<u64>| Some(now?.saturating_sub(before?));
    let retransmitted = |tcp: &[&SocketState]| sum_of(tcp, |t| t.total_retrans().map(u64::from));
    let bytes_sent: Option<Bytes> = sum_of(&last, |t| t.bytes_sent());
    let bytes_retrans: Option<Bytes> = sum_of(&last, |t| t.bytes_retrans());
    let together = |f: fn(&SocketState) -> Option<Bytes>| {
        let sums = steady
            .iter()
            .filter_map(|s| sum_of(&tcp_of(s).collect::<Vec<_>>(), f));
        percentile(&mut sums.collect::<Vec<_>>(), 0.5)
    };

    LegSummary {
        direction: leg.direction,
        ended: leg.ended.clone(),
        duration: span,
        bytes: counted.bytes,
        goodput: counted.bytes.per(span),
        steady_goodput,
        ramp,
        retransmits: grown(retransmitted(&last), retransmitted(&first)).or(sender.retransmits),
        retransmit_share: match (bytes_retrans, bytes_sent) {
            (Some(again), Some(all)) if all > Bytes(0) => Some(again.0 as f64 / all.0 as f64),
            _ => None,
        },
        ecn_marks: sum_of(&last, |t| t.delivered_ce().map(u64::from)),
        rtt_idle,
        rtt_loaded,
        rtt_loaded_max: rtts().max(),
        bdp: steady_goodput
            .zip(rtt_loaded)
            .map(|(rate, rtt)| rate.bytes_in(rtt)),
        window: together(|t| t.snd_wnd()),
        cwnd: together(|t| t.cwnd_bytes()),
        unsent: together(|t| t.notsent_bytes()),
        send_buffer: largest(sender, |s| s.send_buffer)
            .or(sender.sockets.first().map(|s| s.send_buffer)),
        receive_buffer: largest(receiver, |s| s.receive_buffer)
            .or(receiver.sockets.first().map(|s| s.receive_buffer)),
        rwnd_limited_share: share_of_busy(sum_of(&last, |t| t.rwnd_limited())),
        sndbuf_limited_share: share_of_busy(sum_of(&last, |t| t.sndbuf_limited())),
        busy_share: busy.zip(sender.samples.last()).and_then(|(busy, end)| {
            let span = end.at.0 as f64 * streams;
            (span > 0.0).then(|| (busy.0 as f64 / span).min(1.0))
        }),
        sender_cpu: cpu_use(sender),
        receiver_cpu: cpu_use(receiver),
        requests: requests.and_then(|all| LatencySummary::of(all, sender.duration)),
        operations: summarise_blocks(sender),
        datagrams: datagrams(sender, receiver),
        arrivals: summarise_arrivals(sender, receiver),
        copy: summarise_copy(sender, receiver),
        settings: settings(spec, sender.sockets.first(), receiver.sockets.first()),
        discarded: matches!(&spec.workload, Workload::Bulk(bulk) if bulk.discard)
            && receiver.duration > Nanos(0),
    }
}

/// Losses that are the receiving host's, not the path's.
fn dropped_by_socket(leg: &Leg) -> Option<Warning> {
    let receiver = leg.receiver();
    let dropped = receiver.arrivals.as_ref()?.dropped;
    let buffer = receiver
        .sockets
        .first()
        .map(|s| format!(" ({})", s.receive_buffer));
    let buffer = buffer.unwrap_or_default();
    (dropped > 0).then(|| Warning {
        what: format!("{}: the receiving socket dropped up to {dropped} datagrams: its buffer{buffer} was full", leg.direction),
        meaning: "these are losses of the receiving host, which did not read in time, not of the path".to_owned(),
        remedy: "choose a lower --rate, or larger buffers (-w 4M), which net.core.rmem_max of that host has to allow".to_owned(),
    })
}

/// The receiver's counts; where its sender is a linerate host, which reports its sockets, of all that was sent: the
/// last ones and the end of the stream may have been lost.
fn datagrams(sender: &EndRecord, receiver: &EndRecord) -> Option<Datagrams> {
    let (Some(mut counted), Some(_)) = (receiver.datagrams, &receiver.arrivals) else {
        return receiver.datagrams.or(sender.datagrams);
    };
    let sent = sender.datagrams.filter(|_| !sender.sockets.is_empty());
    let tail = sent.map_or(0, |sent| sent.packets.saturating_sub(counted.packets));
    counted.packets += tail;
    counted.lost = counted.lost.saturating_add(tail);
    Some(counted)
}

fn summarise_arrivals(sender: &EndRecord, receiver: &EndRecord) -> Option<ArrivalSummary> {
    let arrivals = receiver.arrivals.as_ref()?;
    let lost = datagrams(sender, receiver)?.lost;
    let variation = |share| arrivals.delay_variation.percentile(share);
    Some(ArrivalSummary {
        received: arrivals.received,
        duplicates: arrivals.duplicates,
        lost_on_path: lost.saturating_sub(arrivals.dropped),
        dropped: arrivals.dropped,
        loss_events: arrivals.loss_events,
        longest_loss: arrivals.longest_loss,
        delay_variation_p50: variation(0.5).unwrap_or_default(),
        delay_variation_p99: variation(0.99).unwrap_or_default(),
    })
}

/// The minimum RTT that the kernel of a host measured; the handshake of each connection is one.
pub fn shortest_trip(end: &EndRecord) -> Option<Nanos> {
    let all = end.samples.iter().flat_map(tcp_of);
    all.filter_map(|tcp| tcp.min_rtt()).min()
}

/// Puts beside what requests took what the path needs for one at the least.
fn ideals(workload: &Workload, client: &EndRecord, links: &Links, figures: &mut LegSummary) {
    let segment = last_tcp(client).iter().filter_map(|tcp| tcp.mss()).max();
    let (Some(trip), Some(segment)) = (shortest_trip(client), segment) else {
        return;
    };
    let mtu = segment.saturating_add(HEADERS as u32);
    let ideal = |[call, reply]: [Bytes; 2], trip, measured: Nanos| {
        let ideal = links.ideal([(call, mtu), (reply, mtu)], trip);
        // What was faster refutes it: the links are not those that the devices report.
        Some(ideal).filter(|ideal| *ideal <= measured)
    };
    match (workload, &mut figures.requests) {
        (Workload::Request(order), Some(requests)) => {
            // A connection that is new for each has its handshake first.
            let trips = 1 + u64::from(order.reconnect);
            let sizes = [order.request_size, order.reply_size];
            let trip = Nanos(trip.0.saturating_mul(trips));
            requests.ideal = ideal(sizes, trip, requests.p50);
        }
        (Workload::Blocks(order), _) => {
            for one in &mut figures.operations {
                let sizes = one.operation.carries(order.block);
                one.latency.ideal = ideal(sizes, trip, one.latency.mean);
            }
        }
        _ => {}
    }
}

fn tcp_of(sample: &Sample) -> impl Iterator<Item = &SocketState> {
    sample.streams.iter().filter_map(|s| s.tcp.as_ref())
}

fn largest(end: &EndRecord, f: impl Fn(&StreamSample) -> Option<Bytes>) -> Option<Bytes> {
    let streams = end.samples.iter().flat_map(|s| &s.streams);
    streams.filter_map(f).max()
}

/// The newest account of each stream: streams may close at different times.
fn last_tcp(end: &EndRecord) -> Vec<&SocketState> {
    let mut newest = std::collections::BTreeMap::new();
    for stream in end.samples.iter().flat_map(|s| &s.streams) {
        if let Some(tcp) = &stream.tcp {
            newest.insert(stream.stream, tcp);
        }
    }
    newest.into_values().collect()
}

/// The sum over all streams; `None` if there is none or one does not report.
fn sum_of<T: std::iter::Sum>(
    tcp: &[&SocketState],
    f: impl Fn(&SocketState) -> Option<T>,
) -> Option<T> {
    (!tcp.is_empty()).then(|| tcp.iter().map(|t| f(t)).sum())?
}

/// The time over which a leg is judged: from the first byte sent to the last received; under a time limit at least
/// to that limit (or to where the leg was ended), so that a path that fell silent is not flattered.
///
/// A receiver that begins to read when all has arrived takes no time at all: the sender's clock has the time from the
/// first byte until the last was acknowledged, which is half a round trip longer. Another host's is believed as far as
/// this one saw the leg last.
fn span(limit: LegLimit, leg: &Leg, end: &EndRecord, rtt: Option<Nanos>) -> Nanos {
    let seen = |end: &EndRecord| end.samples.last().map_or(Nanos(0), |s| s.at);
    if let LegLimit::Time(limit) = limit {
        return end.duration.max(limit.min(seen(end)));
    }
    let Some(acknowledged) = leg.sender().acknowledged else {
        return end.duration;
    };
    let back = Nanos(rtt.unwrap_or_default().0 / 2);
    let believed = match leg.direction.sender() {
        Side::Local => acknowledged,
        Side::Remote => acknowledged.min(seen(end)),
    };
    end.duration.max(believed.since(back))
}

/// Rate from the last sample at or before the end of the ramp to `span`, or to the sample that saw
/// the last byte if that is later; `None` if less than half of an interval lies between.
fn steady_rate(samples: &[Sample], ramp: Nanos, span: Nanos) -> Option<BitRate> {
    let from = samples.iter().rev().find(|s| s.at <= ramp)?;
    let total = samples.last()?.bytes;
    let to = samples.iter().find(|s| s.bytes == total)?.at.max(span);
    let ends = interval_ends(samples, |s| s.at);
    let shortest = ends.windows(2).map(|pair| pair[1].at.since(pair[0].at));
    let steady = to.since(from.at);
    let is_long = steady > Nanos(0) && shortest.min()? <= steady;
    is_long.then(|| total.since(from.bytes).per(steady))
}

fn cpu_use(end: &EndRecord) -> Option<CpuUse> {
    let (first, last) = (end.samples.first()?, end.samples.last()?);
    let wall = last.at.since(first.at).as_secs_f64();
    if wall <= 0.0 {
        return None;
    }
    let of = |c: &crate::CpuTimes| (c.process_user + c.process_system).as_secs_f64();
    let process_s = of(&last.cpu) - of(&first.cpu);
    let of_host = |f: fn(&crate::CpuTimes) -> Nanos| f(&last.cpu).since(f(&first.cpu)).0 as f64;
    let (host_total, host_busy) = (of_host(|c| c.host_total), of_host(|c| c.host_busy));
    Some(CpuUse {
        process: process_s / wall,
        host_share: (host_total > 0.0).then(|| host_busy / host_total),
        process_s_per_gb: (end.bytes.0 > 0).then(|| process_s / (end.bytes.0 as f64 / 1e9)),
    })
}

/// Directions that ran at once were moved by the same processes: their time is for the bytes of all.
fn share_cpu(legs: &mut [LegSummary]) {
    let all: Bytes = legs.iter().map(|leg| leg.bytes).sum();
    for leg in legs {
        let share = leg.bytes.0 as f64 / all.0.max(1) as f64;
        let both = [&mut leg.sender_cpu, &mut leg.receiver_cpu];
        for cpu in both.into_iter().flatten() {
            cpu.process_s_per_gb = cpu.process_s_per_gb.map(|own| own * share);
        }
    }
}

impl LatencySummary {
    /// Of latencies that were recorded in this time; `None` if there are none.
    pub(crate) fn of(latency: &Latency, span: Nanos) -> Option<LatencySummary> {
        let at = |share| latency.percentile(share);
        Some(LatencySummary {
            count: latency.count(),
            per_s: latency.count() as f64 / span.as_secs_f64().max(1e-9),
            mean: latency.mean()?,
            p50: at(0.5)?,
            p90: at(0.9)?,
            p99: at(0.99)?,
            p999: at(0.999)?,
            max: latency.max()?,
            ideal: None,
        })
    }
}

fn settings(
    spec: &Spec,
    sender: Option<&SocketOptions>,
    receiver: Option<&SocketOptions>,
) -> Vec<SettingInForce> {
    let row = |name: &str, asked: Option<String>, read: &dyn Fn(&SocketOptions) -> String| {
        SettingInForce {
            name: name.to_owned(),
            asked,
            sender: sender.map(read),
            receiver: receiver.map(read),
        }
    };
    let of_option = |option: &SocketOption| {
        let format = |value| option.unit.format(value);
        let asked = (option.asked)(&spec.socket).map(format);
        row(option.name, asked, &|socket| {
            (option.held)(socket).map_or_else(|| option.unset.to_owned(), format)
        })
    };
    let mut rows: Vec<SettingInForce> = SOCKET_OPTIONS.iter().map(of_option).collect();
    let asked = spec.socket.congestion.clone();
    let congestion = row("congestion", asked, &|s| s.congestion.clone());
    rows.insert(3, congestion);
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CpuTimes, Request, WaitMode};

    /// 64 KiB that had all arrived when the receiver began to read.
    #[test]
    fn a_short_transfer_is_timed_from_its_first_byte_sent() {
        let spec = Spec {
            limit: LegLimit::Bytes(Bytes(64 << 10)),
            ..spec()
        };
        let tcp = crate::socket_state! {
            min_rtt: Some(Nanos::from_micros(10)),
        };
        let end = |duration, acknowledged| EndRecord {
            bytes: Bytes(64 << 10),
            duration: Nanos(duration),
            acknowledged,
            samples: vec![sample(0, 0, Some(&tcp)), sample(1, 0, Some(&tcp))],
            ..EndRecord::default()
        };
        let (sender, receiver) = (end(5_000, Some(Nanos(25_000))), end(731, None));
        for (direction, local, remote) in [
            (Direction::Up, &sender, &receiver),
            (Direction::Down, &receiver, &sender),
        ] {
            let mut leg = Leg {
                direction,
                started: Nanos(0),
                local: local.clone(),
                remote: remote.clone(),
                ended: Ended::Complete,
            };
            let figures = summarise_leg(&spec, &leg);
            assert_eq!(figures.duration, Nanos(20_000), "{direction}");
            assert_eq!(figures.goodput, Bytes(64 << 10).per(Nanos(20_000)));
            // A remote sender cannot claim more time than this host saw.
            leg.remote.acknowledged = leg.remote.acknowledged.map(|_| Nanos(u64::MAX));
            let figures = summarise_leg(&spec, &leg);
            assert!(figures.duration <= Nanos::from_secs(1), "{direction}");
            // A receiver that read as it arrived has the time itself.
            leg.local.acknowledged = None;
            leg.remote.acknowledged = None;
            assert_eq!(summarise_leg(&spec, &leg).duration, Nanos(731));
        }
    }

    fn spec() -> Spec {
        Spec {
            streams: 2,
            ..Spec::default()
        }
    }

    /// A sample of two streams at second `at`, each of which has moved `mb` 10^6 bytes.
    fn sample(at: u64, mb: u64, tcp: Option<&SocketState>) -> Sample {
        let stream = |stream| StreamSample {
            stream,
            bytes: Bytes(mb * 1_000_000),
            tcp: tcp.cloned(),
            ..StreamSample::default()
        };
        Sample {
            at: Nanos::from_secs(at),
            bytes: Bytes(2 * mb * 1_000_000),
            streams: vec![stream(0), stream(1)],
            cpu: CpuTimes {
                process_user: Nanos::from_millis(at * 100),
                process_system: Nanos::from_millis(at * 400),
                host_busy: Nanos::from_secs(at),
                host_total: Nanos::from_secs(at * 2),
                ..CpuTimes::default()
            },
            requests: None,
            datagrams: None,
        }
    }

    fn tcp(rtt_ms: u64, retrans: u32) -> SocketState {
        crate::socket_state! {
            srtt: Some(Nanos::from_millis(rtt_ms)),
            min_rtt: Some(Nanos::from_millis(1)),
            total_retrans: Some(retrans),
            mss: Some(1000),
            cwnd: Some(50),
            snd_wnd: Some(Bytes(1 << 20)),
            busy: Some(Nanos::from_secs(8)),
            rwnd_limited: Some(Nanos::from_secs(2)),
            sndbuf_limited: Some(Nanos(0)),
            bytes_sent: Some(Bytes(1000)),
            bytes_retrans: Some(Bytes(10)),
        }
    }

    fn leg() -> Leg {
        // The ramp moves little: 2 x 10 MB in 2 s; then 2 x 100 MB a second.
        let samples = |with_tcp: bool| {
            (0..=10u64)
                .map(|at| {
                    let mb = if at <= 2 { at * 5 } else { 10 + (at - 2) * 100 };
                    let account = tcp(if at <= 2 { 1 } else { at }, at as u32);
                    sample(at, mb, with_tcp.then_some(&account))
                })
                .collect::<Vec<_>>()
        };
        let bytes = Bytes(2 * 810 * 1_000_000);
        let duration = Nanos::from_secs(10);
        Leg {
            direction: Direction::Up,
            started: Nanos(0),
            local: EndRecord {
                samples: samples(true),
                bytes,
                duration,
                ..EndRecord::default()
            },
            remote: EndRecord {
                samples: samples(false),
                bytes,
                duration,
                ..EndRecord::default()
            },
            ended: Ended::Complete,
        }
    }

    #[test]
    fn the_ramp_is_fixed_before_the_leg_and_at_most_half_of_it() {
        let ramp = |rtt_ms: Option<u64>, s| {
            ramp_for(&spec(), rtt_ms.map(Nanos::from_millis), Nanos::from_secs(s))
        };
        assert_eq!(ramp(None, 10), Nanos::from_secs(2));
        assert_eq!(ramp(Some(200), 10), Nanos::from_secs(4));
        assert_eq!(ramp(Some(200), 6), Nanos::from_secs(3));
        let asked = Spec {
            ramp: Some(Nanos(0)),
            ..spec()
        };
        assert_eq!(ramp_for(&asked, None, Nanos::from_secs(10)), Nanos(0));
    }

    #[test]
    fn figures_of_a_leg() {
        let s = summarise_leg(&spec(), &leg());
        assert_eq!(s.goodput, BitRate(1_296_000_000));
        assert_eq!(s.steady_goodput, Some(BitRate(1_600_000_000)));
        assert_eq!(s.retransmits, Some(20), "two streams, ten each");
        assert_eq!(s.retransmit_share, Some(0.01));
        assert_eq!(s.rtt_idle, Some(Nanos::from_millis(1)));
        assert_eq!(
            s.rtt_loaded,
            Some(Nanos::from_millis(6)),
            "lower median of 1, 3..=10, twice each"
        );
        assert_eq!(s.rtt_loaded_max, Some(Nanos::from_millis(10)));
        assert_eq!(s.bdp, Some(Bytes(1_200_000)));
        assert_eq!(s.cwnd, Some(Bytes(100_000)));
        assert_eq!(s.window, Some(Bytes(2 << 20)));
        assert_eq!(s.rwnd_limited_share, Some(0.25));
        assert_eq!(s.sndbuf_limited_share, Some(0.0));
        assert_eq!(s.busy_share, Some(0.8));
        let cpu = s.sender_cpu.unwrap();
        assert!((cpu.process - 0.5).abs() < 1e-9 && cpu.host_share == Some(0.5));
        assert!((cpu.process_s_per_gb.unwrap() - 5.0 / 1.62).abs() < 1e-9);
    }

    #[test]
    fn a_silent_end_leaves_figures_open_and_a_stalled_tail_counts() {
        let mut silent = leg();
        silent.remote = EndRecord::default();
        let s = summarise_leg(&spec(), &silent);
        assert_eq!(
            s.goodput,
            BitRate(1_296_000_000),
            "the sender's own count serves"
        );
        assert!(s.receiver_cpu.is_none() && s.receive_buffer.is_none());

        let mut stalled = leg();
        stalled.remote.duration = Nanos::from_secs(1);
        for sample in &mut stalled.remote.samples[1..] {
            sample.bytes = Bytes(125_000_000);
        }
        stalled.remote.bytes = Bytes(125_000_000);
        let s = summarise_leg(&spec(), &stalled);
        assert_eq!(
            (s.duration, s.goodput),
            (Nanos::from_secs(10), BitRate(100_000_000))
        );
        assert_eq!(s.steady_goodput, Some(BitRate(0)));

        silent.local = EndRecord::default();
        let s = summarise_leg(&spec(), &silent);
        assert_eq!(s.goodput, BitRate(0));
        assert!(s.steady_goodput.is_none() && s.retransmits.is_none() && s.rtt_idle.is_none());
    }

    #[test]
    fn beside_requests_stands_what_the_path_needs_for_one() {
        let mut client = leg().local;
        client.requests = Some(Latency::from_counts([(2_000_000, 5)]));
        let request = |reconnect| {
            Workload::Request(Request {
                request_size: Bytes(100),
                reply_size: Bytes(8192),
                pace_per_s: None,
                reconnect,
                wait: WaitMode::Block,
            })
        };
        let ideal = |reconnect, rate| {
            let leg = Leg {
                local: client.clone(),
                ..leg()
            };
            let mut figures = summarise_leg(&spec(), &leg);
            let links = Links { rate, hops: 1 };
            ideals(&request(reconnect), leg.sender(), &links, &mut figures);
            figures.requests.unwrap().ideal
        };
        assert_eq!(ideal(false, None), Some(Nanos::from_millis(1)));
        assert_eq!(
            ideal(true, None),
            Some(Nanos::from_millis(2)),
            "a handshake before"
        );
        // 100 bytes in a frame of 190, and 8192 in nine segments of at most 1000.
        let frames = Nanos((190 + 8192 + 9 * 90) * 8);
        let rate = Some(BitRate(1_000_000_000));
        assert_eq!(ideal(false, rate), Some(Nanos::from_millis(1) + frames));
        // The median took 2 ms: a link of 100 kbit/s cannot have been on the path.
        assert_eq!(ideal(false, Some(BitRate(100_000))), None);
    }

    #[test]
    fn a_warning_of_both_hosts_is_reported_once() {
        let warning = Warning {
            what: "a".into(),
            meaning: "b".into(),
            remedy: "c".into(),
        };
        let mut both = leg();
        both.local.warnings = vec![warning.clone()];
        both.remote.warnings = vec![warning.clone()];
        let run = Run {
            schema: crate::SCHEMA_VERSION,
            id: "0badcafe".into(),
            host: "remote".into(),
            spec: spec(),
            local: crate::Fingerprint::default(),
            legs: vec![both],
            warnings: vec![],
            ended: Ended::Complete,
            ..Run::default()
        };
        assert_eq!(summarise(&run).warnings, [warning]);

        let at_once = Run {
            spec: Spec {
                directions: Directions::Bidirectional,
                ..run.spec.clone()
            },
            legs: vec![run.legs[0].clone(), run.legs[0].clone()],
            ..run
        };
        let cost = |leg: &LegSummary| leg.sender_cpu.unwrap().process_s_per_gb.unwrap();
        let legs = summarise(&at_once).legs;
        let alone = summarise_leg(&at_once.spec, &at_once.legs[0]);
        assert!(
            (cost(&legs[1]) - cost(&alone) / 2.0).abs() < 1e-9,
            "the same process moved both"
        );
    }
}

//! One direction of a path, from a run.

use model::finding::Limit;
use model::stats::percentile;
use model::{BitRate, Bytes, Direction, Nanos, Run, summarise_leg};

/// One direction of a path, and how it was used.
#[derive(Clone, Debug, PartialEq)]
pub struct PathSample {
    /// Which way the data goes.
    pub direction: Direction,
    /// What it carried, all connections together, without the ramp where that is known.
    pub goodput: BitRate,
    /// Round trip under load: the 95th percentile of the smoothed ones.
    pub rtt: Nanos,
    /// Round trip before the load; `None` if it is not known.
    pub idle_rtt: Option<Nanos>,
    /// Connections that shared it.
    pub connections: u32,
    /// Congestion control of the sender's sockets; `None` if not reported.
    pub congestion: Option<String>,
    /// Payload of the largest segments, in bytes; 0 if unknown.
    pub mss: u32,
    /// Share of the receive buffer that became window, 0 to 1, where the window was what held the transfer.
    pub window_share: Option<f64>,
    /// `SO_SNDBUF` was set by whoever sent, which switches its autotuning off.
    pub send_buffer_set: bool,
    /// The same of `SO_RCVBUF`.
    pub receive_buffer_set: bool,
    /// The rate that the user wants from it; `None`: see [`crate::needs`].
    pub user_rate: Option<BitRate>,
    /// The largest IP packet that is known to get through, in bytes.
    pub mtu: Option<u32>,
    /// Requests count here, not bytes: the round trip is worth more than the rate.
    pub latency: bool,
}

/// Share of the busy time behind the receive window from which its size shows how much of a buffer
/// becomes window.
const HELD: f64 = 0.5;

impl PathSample {
    /// From one leg of a run; `None` if nothing moved in it, or its RTT is unknown.
    pub fn of(run: &Run, leg: usize) -> Option<PathSample> {
        let leg = run.legs.get(leg)?;
        let sums = summarise_leg(&run.spec, leg);
        let goodput = sums.steady_goodput.unwrap_or(sums.goodput);
        let sockets = &leg.sender().sockets;
        let samples = leg.sender().samples.iter().filter(|s| s.at >= sums.ramp);
        let streams = samples.flat_map(|s| &s.streams);
        let rtts = streams.filter_map(|s| s.tcp.as_ref()?.srtt());
        let mut rtts: Vec<Nanos> = rtts.filter(|rtt| *rtt > Nanos(0)).collect();
        let rtt = percentile(&mut rtts, 0.95).or(sums.rtt_idle)?;
        let connections = run.spec.streams.max(1);
        let held = sums.rwnd_limited_share.is_some_and(|share| share >= HELD);
        let window_share = match (sums.window, sums.receive_buffer) {
            (Some(Bytes(window)), Some(Bytes(buffer))) if held && buffer > 0 => {
                let share = window as f64 / f64::from(connections) / buffer as f64;
                Some(share.clamp(0.25, 1.0))
            }
            _ => None,
        };
        (goodput > BitRate(0)).then(|| PathSample {
            direction: leg.direction,
            goodput,
            rtt,
            idle_rtt: sums.rtt_idle,
            connections,
            congestion: sockets.first().map(|s| s.congestion.clone()),
            mss: sockets.first().map_or(0, |s| s.mss),
            window_share,
            send_buffer_set: run.spec.socket.send_buffer.is_some(),
            receive_buffer_set: run.spec.socket.receive_buffer.is_some(),
            user_rate: None,
            mtu: None,
            latency: run.spec.workload.is_answered(),
        })
    }
}

/// There is a standing queue where the load raises the RTT by this share, and by more than hosts add to it.
const QUEUE_SHARE: f64 = 0.5;
const QUEUE: Nanos = Nanos::from_millis(1);
/// The same behind a send buffer. Its writer is woken when a third of it is free (`sk_stream_write_space` in `net/core/stream.c`)
/// and fills that at once: the segments of such a burst queue behind each other on a path that is not full.
const BURSTS_SHARE: f64 = 1.0;

impl PathSample {
    /// Under load the round trip grew so much that a queue must have stood, whatever buffer was full: the path carried what it
    /// can.
    pub fn is_full(&self, buffer: Limit) -> bool {
        let Some(idle) = self.idle_rtt else {
            return false;
        };
        let share = match buffer {
            Limit::SendBuffer => BURSTS_SHARE,
            _ => QUEUE_SHARE,
        };
        let grown = self.rtt.since(idle);
        grown > QUEUE && grown.0 as f64 > idle.0 as f64 * share
    }
}

//! What a sender's kernel held at a moment.

use model::{Leg, Sample, SocketState};

/// The state of a sender, all its connections together; `None` where its kernel did not tell. Bytes and seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct State {
    /// Since the begin.
    pub at: f64,
    /// Smoothed round-trip time; the longest of several connections.
    pub rtt: Option<f64>,
    /// Congestion window.
    pub cwnd: Option<f64>,
    /// Slow-start threshold; `None` until one is set.
    pub ssthresh: Option<f64>,
    /// Sent, and not known to have left the network.
    pub in_flight: Option<f64>,
    /// The window that the receiver announced.
    pub send_window: Option<f64>,
    /// The window that this end announced.
    pub receive_window: Option<f64>,
    /// `SO_SNDBUF`, bookkeeping included.
    pub send_buffer: Option<f64>,
    /// Segments sent again so far.
    pub sent_again: Option<f64>,
}

/// What the sender of a leg told.
pub fn states(leg: &Leg) -> Vec<State> {
    leg.sender().samples.iter().map(state).collect()
}

fn state(sample: &Sample) -> State {
    let sum = |of: &dyn Fn(&SocketState) -> Option<f64>| {
        let told = sample.streams.iter().filter_map(|s| of(s.tcp.as_ref()?));
        told.reduce(|a, b| a + b)
    };
    let segments = |n: Option<u32>, tcp: &SocketState| Some(f64::from(n?) * f64::from(tcp.mss()?));
    let rtts = sample.streams.iter().filter_map(|s| s.tcp.as_ref()?.srtt());
    let buffers = sample.streams.iter().filter_map(|s| s.send_buffer);
    State {
        at: sample.at.as_secs_f64(),
        rtt: rtts
            .filter(|rtt| rtt.0 > 0)
            .max()
            .map(|rtt| rtt.as_secs_f64()),
        cwnd: sum(&|t| segments(t.cwnd(), t)),
        ssthresh: sum(&|t| segments(t.ssthresh().filter(|n| *n < i32::MAX as u32), t)),
        in_flight: sum(&|t| segments(t.in_flight(), t)),
        send_window: sum(&|t| t.snd_wnd().map(|w| w.0 as f64)),
        receive_window: sum(&|t| t.rcv_wnd().map(|w| w.0 as f64)),
        send_buffer: buffers.map(|b| b.0 as f64).reduce(|a, b| a + b),
        sent_again: sum(&|t| t.total_retrans().map(f64::from)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Bytes, StreamSample};

    #[test]
    fn connections_are_added_up() {
        let stream = |rtt_us, ssthresh| StreamSample {
            tcp: Some(model::socket_state! {
                mss: Some(1000),
                cwnd: Some(10),
                ssthresh: Some(ssthresh),
                packets_out: Some(8),
                sacked_out: Some(3),
                lost_out: Some(1),
                retrans_out: Some(1),
                total_retrans: Some(0),
                srtt: Some(model::Nanos::from_micros(rtt_us)),
                snd_wnd: Some(Bytes(65_536)),
            }),
            send_buffer: Some(Bytes(1 << 20)),
            ..StreamSample::default()
        };
        let both = Sample {
            streams: vec![
                stream(500, 7),
                stream(1500, i32::MAX as u32),
                StreamSample::default(),
            ],
            ..Sample::default()
        };
        assert_eq!(
            state(&both),
            State {
                at: 0.0,
                rtt: Some(0.0015),
                cwnd: Some(20_000.0),
                ssthresh: Some(7_000.0),
                in_flight: Some(10_000.0),
                send_window: Some(131_072.0),
                receive_window: None,
                send_buffer: Some(f64::from(2 << 20)),
                sent_again: Some(0.0),
            }
        );
        assert_eq!(state(&Sample::default()), State::default());
    }
}

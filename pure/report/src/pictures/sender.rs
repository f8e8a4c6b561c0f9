//! What a sender's kernel reports at each sample.

use super::downsample::Track;
use model::{Leg, Sample, SocketState};

/// A quantity of the sender over time, all its connections together; `None` where its kernel does not report it.
/// Bytes and seconds; of several connections the longest RTT.
pub(super) fn points(leg: &Leg, track: Track) -> Vec<(f64, Option<f64>)> {
    let samples = leg.sender().samples.iter();
    samples
        .map(|sample| (sample.at.as_secs_f64(), value(sample, track)))
        .collect()
}

fn value(sample: &Sample, track: Track) -> Option<f64> {
    let sockets = || sample.streams.iter().filter_map(|s| s.tcp.as_ref());
    let sum = |of: fn(&SocketState) -> Option<f64>| sockets().filter_map(of).reduce(|a, b| a + b);
    fn segments(tcp: &SocketState, count: Option<u32>) -> Option<f64> {
        Some(f64::from(count?) * f64::from(tcp.mss()?))
    }
    match track {
        Track::Congestion => sum(|t| segments(t, t.cwnd())),
        // Until one is set it is infinite.
        Track::Threshold => sum(|t| segments(t, t.ssthresh().filter(|n| *n < i32::MAX as u32))),
        Track::Flight => sum(|t| segments(t, t.in_flight())),
        Track::Window => sum(|t| Some(t.snd_wnd()?.0 as f64)),
        Track::Own => sum(|t| Some(t.rcv_wnd()?.0 as f64)),
        // Segments here.
        Track::Again => sum(|t| t.total_retrans().map(f64::from)),
        Track::Buffer => {
            let buffers = sample.streams.iter().filter_map(|s| s.send_buffer);
            buffers.map(|b| b.0 as f64).reduce(|a, b| a + b)
        }
        Track::Smoothed => {
            let rtts = sockets()
                .filter_map(SocketState::srtt)
                .filter(|rtt| rtt.0 > 0);
            rtts.max().map(|rtt| rtt.as_secs_f64())
        }
        Track::Sent | Track::Acknowledged | Track::Selective | Track::Edge | Track::RoundTrip => {
            None
        }
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
        for (track, expected) in [
            (Track::Smoothed, Some(0.0015)),
            (Track::Congestion, Some(20_000.0)),
            (Track::Threshold, Some(7_000.0)),
            (Track::Flight, Some(10_000.0)),
            (Track::Window, Some(131_072.0)),
            (Track::Own, None),
            (Track::Buffer, Some(f64::from(2 << 20))),
            (Track::Again, Some(0.0)),
        ] {
            assert_eq!(value(&both, track), expected, "{track:?}");
            assert_eq!(value(&Sample::default(), track), None);
        }
    }
}

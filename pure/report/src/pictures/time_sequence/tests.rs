use super::*;
use crate::page;
use crate::page::Drawing;
use insta::assert_snapshot;
use model::Nanos;
use model::finding::{Limit, Phase};
use model::packet::Packet;
use model::segment::tcp_flag::{ACK, SYN};
use std::net::SocketAddr;

/// Three segments, the second of which is lost and retransmitted.
pub fn lossy() -> Downsampled {
    let ends = [([192, 0, 2, 1], 40_000), ([192, 0, 2, 2], 5201)].map(SocketAddr::from);
    let mut course = Downsampled::new(ends[0], ends[1]);
    let mut see = |ms: u64, from: usize, seq, ack, flags, payload, sack| {
        course.packet(&Packet {
            at: Nanos::from_millis(ms),
            seq,
            ack,
            flags,
            window: 8000,
            payload,
            wscale: Some(1),
            sack,
            ..Packet::new(ends[from], ends[1 - from])
        });
    };
    see(0, 0, 99, 0, SYN, 0, None);
    see(10, 1, 0, 100, SYN | ACK, 0, None);
    see(10, 0, 100, 1, ACK, 1448, None);
    see(11, 0, 1548, 1, ACK, 1448, None);
    see(12, 0, 2996, 1, ACK, 1448, None);
    see(20, 1, 1, 1548, ACK, 0, None);
    see(22, 1, 1, 1548, ACK, 0, Some((2996, 4444)));
    see(23, 0, 1548, 1, ACK, 1448, None);
    see(33, 1, 1, 4444, ACK, 0, None);
    course
}

#[test]
fn a_segment_that_was_lost_and_retransmitted() {
    let phase = |from, to, limit| Phase {
        from: Nanos::from_millis(from),
        to: Nanos::from_millis(to),
        limit,
        bytes: Bytes(0),
    };
    let phases = [
        phase(0, 10, Limit::Handshake),
        phase(10, 33, Limit::LossRecovery),
    ];
    let picture = picture(
        "time-sequence",
        &lossy(),
        crate::pictures::bands(&[&phases]),
    );
    assert_snapshot!(picture.alternative);
    assert_snapshot!(page::csv(&picture));
    let Drawing::Chart(chart) = &picture.drawing else {
        panic!("a time-sequence graph is a chart");
    };
    assert_eq!(chart.bands[1].name, "loss recovery");
}

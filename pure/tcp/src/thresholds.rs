//! Each tolerance once, with its source.

use model::Nanos;

/// How long Linux holds an acknowledgement back (`TCP_DELACK_MIN`, `include/net/tcp.h`); FreeBSD and Windows the
/// same, others 50 to 200 ms. RFC 9293, 3.8.6.3, allows 500 ms.
pub const DELACK_TIMER: Nanos = model::physics::DELACK_TIMER;
/// The least time beyond the round trip that shows a delayed acknowledgement. A timer that runs already when the
/// segment arrives, and ticks of 10 ms (`HZ=100`), leave less of it than [`DELACK_TIMER`]; scheduling and
/// cross traffic of a path delay by less.
pub const DELAYED_ACK_MIN: Nanos = Nanos::from_millis(15);
/// On longer paths what they themselves vary by: this part of the round trip (1 / n).
const VARIES: u64 = 8;
/// The least retransmission timeout (`TCP_RTO_MIN`, 200 ms; RFC 6298 requires 1 s), timers that tick left out.
pub const RTO_MIN: Nanos = Nanos::from_millis(190);
/// After so long without data a sender of no more than the usual timeout begins with its initial window again
/// (RFC 5681, 4.1; `tcp_slow_start_after_idle`).
pub const IDLE: Nanos = Nanos::from_millis(200);
/// Data that leave so soon after an acknowledgement were released by it, on a host that is busy.
pub const AT_ONCE: Nanos = Nanos::from_millis(1);
/// A pause so short needs no cause of its own.
pub const NO_PAUSE: Nanos = Nanos::from_micros(100);
/// A SYN again and sooner is the same packet, captured twice: no timer is so short (RFC 6298 and Linux'
/// `TCP_TIMEOUT_INIT`: 1 s).
pub const SYN_AGAIN: Nanos = Nanos::from_millis(100);
/// What fills a gap sooner than this part of a round trip (1 / n) was overtaken, not retransmitted.
pub const TOO_SOON: u64 = 2;
/// The same where no round trip is known.
pub const SOON: Nanos = Nanos::from_millis(3);
/// The largest window (RFC 7323, 2.3): what is further away belongs to another connection.
pub const LARGEST_WINDOW: u32 = 1 << 30;
/// Segments of the initial window (RFC 6928), and of the least one (RFC 5681, 3.1).
pub const INITIAL_WINDOW: u32 = 10;
/// See [`INITIAL_WINDOW`].
pub const LEAST_INITIAL_WINDOW: u32 = 2;
/// Bytes of the largest usual frame: larger segments were joined by a host or its device (TSO, GRO).
pub const LARGEST_FRAME: u32 = 9000;
/// Payload of an Ethernet frame with timestamps: where no handshake says it.
pub const USUAL_SEGMENT: u32 = 1448;
/// Bytes of each segment that timestamps take (RFC 7323, appendix A).
pub const TIMESTAMPS: u32 = 12;
/// Two times of a capture are known within this: pcap counts microseconds.
pub const TIMESTAMP_PRECISION: Nanos = Nanos::from_micros(2);
/// A tick of Linux' timestamps (`tcp_clock_ms`).
pub const TIMESTAMP_TICK: Nanos = Nanos::from_millis(1);

/// Of a wait for an acknowledgement on a path of this round trip, the time for which the receiver held it back;
/// 0 if that is no more than a path may take.
pub fn held_back(wait: Nanos, trip: Nanos) -> Nanos {
    let held = wait.since(trip);
    match held >= DELAYED_ACK_MIN.max(Nanos(trip.0 / VARIES)) {
        true => held,
        false => Nanos(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acknowledgement_is_held_back_if_it_comes_clearly_later_than_the_round_trip() {
        let held = |wait, trip| held_back(Nanos::from_millis(wait), Nanos::from_millis(trip));
        assert_eq!(held(60, 20), Nanos::from_millis(40));
        assert_eq!(held(35, 20), Nanos::from_millis(15));
        assert_eq!(held(34, 20), Nanos(0));
        assert_eq!(held(10, 20), Nanos(0));
        // On a path of 200 ms 15 ms are the path's own.
        assert_eq!(held(215, 200), Nanos(0));
        assert_eq!(held(240, 200), Nanos::from_millis(40));
    }
}

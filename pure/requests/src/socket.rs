//! The sockets of a trace: they know when data were written, and what these have waited for since. So a pause of the
//! application is one even if an acknowledgement happens to end it.
//!
//! Each event has the state of the socket since the event before: data unsent by then had waited for what this state shows.

use crate::message_timing::SegmentWait;
use crate::pairing::{Pairing, PairingOutput, RequestConnection, SocketContext};
use model::packet::Packet;
use model::request::{Cause, Causes};
use model::segment::{ca_state, tcp_state};
use model::{Nanos, Segment, SocketValues, What};
use std::net::SocketAddr;
use tcp::thresholds::held_back;
use tcp::waits::{is_short_out, left_unsent};

/// `TCP_NAGLE_CORK`: the application holds back what is no full segment.
const CORK: u8 = 2;

/// One socket of a trace.
pub(crate) struct TracedSocket {
    /// Its own address, and its peer's.
    pub ends: [SocketAddr; 2],
    connection: Option<Box<RequestConnection>>,
    at: Nanos,
    /// Bytes that were written and not sent, after the event before; `None` before the first.
    unsent: Option<u64>,
    /// Since when there are such, or since data were sent last.
    written: Nanos,
    waited: Causes,
}

/// What new data had waited for since they were written.
pub(crate) struct Write {
    cause: Cause,
    at: Nanos,
    /// All data before them were acknowledged, and that was waited for.
    behind_ack: bool,
}

impl TracedSocket {
    pub fn new(ends: [SocketAddr; 2]) -> TracedSocket {
        TracedSocket {
            ends,
            connection: None,
            at: Nanos(0),
            unsent: None,
            written: Nanos(0),
            waited: Causes::default(),
        }
    }

    /// Takes the next event; of one that sends new data returns what these had waited for, where that is known.
    pub fn push(&mut self, segment: &Segment) -> Option<Write> {
        let tcb = segment.probed().filter(|tcb| is_open(tcb))?;
        let from = std::mem::replace(&mut self.at, segment.at);
        let unsent = self.unsent.replace(left_unsent(segment, tcb));
        match unsent {
            None | Some(0) => self.written = segment.at,
            Some(unsent) => {
                let span = segment.at.since(from);
                self.waited.spend(waits_for(tcb, unsent), span);
            }
        }
        let is_new = segment.payload.0 > 0 && !segment.is_retransmission();
        if segment.what != What::Sent || !is_new {
            return None;
        }
        let waited = std::mem::take(&mut self.waited).ranked();
        let cause = waited.first().map_or(Cause::Rate, |(cause, _)| *cause);
        let at = std::mem::replace(&mut self.written, self.at);
        let waits = matches!(cause, Cause::Nagle | Cause::CongestionWindow);
        let behind_ack = waits && tcb.snd_una == tcb.snd_nxt;
        unsent.map(|_| Write {
            cause,
            at,
            behind_ack,
        })
    }

    /// Takes a packet that it sent or received.
    pub fn packet(
        &mut self,
        packet: &Packet,
        tcb: Option<&SocketValues>,
        write: Option<Write>,
        out: &mut PairingOutput,
    ) {
        let [local, _] = self.ends;
        let second = packet.from != local;
        let connection = self
            .connection
            .get_or_insert_with(|| Box::new(RequestConnection::new(packet, second)));
        if let Some(tcb) = tcb.filter(|tcb| tcb.min_rtt.0 > 0) {
            let mut scales = [tcb.snd_wscale, tcb.rcv_wscale];
            if !connection.client_is_second() {
                scales.reverse();
            }
            connection.reports_scales(scales);
        }
        let passed = connection.push(packet, second);
        let stream = connection.stream(passed.side);
        let wait = write.zip(stream).map(|(write, own)| {
            let release = &own.stream.released;
            let last_ack = packet.at.since(release.gap) + release.until_ack;
            let held = match (write.behind_ack, tcb) {
                (true, Some(tcb)) => held_back(release.until_ack, tcb.min_rtt),
                _ => Nanos(0),
            };
            SegmentWait {
                cause: write.cause,
                held: held.min(last_ack.since(write.at)),
                written: Some(write.at),
            }
        });
        let beside = SocketContext { local, tcb, wait };
        Pairing::push(connection, packet, &[], &passed, Some(&beside), out);
    }

    /// Nothing more comes.
    pub fn close(&mut self, out: &mut PairingOutput) {
        if let Some(connection) = &mut self.connection {
            Pairing::end(connection, out);
        }
    }
}

/// Sequence numbers mean something.
fn is_open(tcb: &SocketValues) -> bool {
    use tcp_state::{CLOSE_WAIT, CLOSING, ESTABLISHED, FIN_WAIT1, LAST_ACK};
    matches!(
        tcb.state,
        ESTABLISHED | CLOSE_WAIT | FIN_WAIT1 | LAST_ACK | CLOSING
    )
}

/// What holds back `unsent` bytes, by the checks of `tcp_write_xmit` in their order.
fn waits_for(tcb: &SocketValues, unsent: u64) -> Cause {
    let mss = u64::from(tcb.mss.max(1));
    let next = unsent.min(mss);
    if matches!(tcb.ca_state, ca_state::RECOVERY | ca_state::LOSS) {
        Cause::Retransmission
    } else if tcb.in_flight() >= tcb.cwnd {
        Cause::CongestionWindow
    } else if tcb.send_window_left().0 < next {
        Cause::ReceiveWindow
    } else if unsent < mss && tcb.nonagle & CORK != 0 {
        Cause::Application
    } else if unsent < mss && tcb.nonagle == 0 && is_short_out(tcb) {
        Cause::Nagle
    } else if tcb.in_flight() + 1 >= tcb.cwnd && unsent > mss {
        // Room for one, where the kernel waits to send more at once (`tcp_tso_should_defer`).
        Cause::CongestionWindow
    } else {
        Cause::Rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RequestObserver;
    use model::request::{Call, Viewpoint};
    use model::segment::tcp_flag::{ACK, PSH};
    use model::{Bytes, Connection, SocketState, TraceRecord};

    const MSS: u32 = 1000;
    /// From the client to the server and back.
    const TRIP: Nanos = Nanos::from_millis(10);

    const fn ms(of: u64) -> Nanos {
        Nanos::from_millis(of)
    }

    /// A trace of a connection at its client, where a round trip takes 10 ms.
    struct TracedClient {
        observer: RequestObserver,
        tcb: SocketValues,
    }

    impl TracedClient {
        fn new() -> TracedClient {
            let mut observer = RequestObserver::of_two();
            let [local, remote] =
                [([192, 0, 2, 1], 40000), ([192, 0, 2, 2], 9000)].map(SocketAddr::from);
            let connection = Connection {
                id: 7,
                cookie: 0,
                netns: 0,
                local,
                remote,
            };
            observer.record(&TraceRecord::Connection(connection));
            let tcb = SocketValues {
                state: tcp_state::ESTABLISHED,
                snd_wnd: Bytes(60_000),
                cwnd: 10,
                mss: MSS,
                min_rtt: TRIP,
                ..SocketValues::default()
            };
            TracedClient { observer, tcb }
        }

        fn event(&mut self, at: Nanos, what: What, seq: u32, bytes: u32) {
            let ack = self.tcb.rcv_nxt;
            let (seq, ack) = match what {
                What::Received => (ack, seq),
                _ => (seq, ack),
            };
            self.observer.record(&TraceRecord::Segment(Segment {
                at,
                connection: 7,
                what,
                seq,
                ack,
                flags: ACK | PSH,
                payload: Bytes(bytes.into()),
                segments: 1,
                socket: Some(SocketState::from_probe(self.tcb.clone())),
                ..Segment::default()
            }));
        }

        /// The application writes, and the socket sends so much of all that there is at once.
        fn writes(&mut self, at: Nanos, bytes: u32, sends: u32) {
            self.tcb.write_seq += bytes;
            if sends > 0 {
                self.sends(at, sends);
            }
            self.event(at, What::Wrote, 0, bytes);
        }

        fn sends(&mut self, at: Nanos, bytes: u32) {
            self.event(at, What::Sent, self.tcb.snd_nxt, bytes);
            self.tcb.snd_nxt += bytes;
            if bytes < MSS {
                self.tcb.snd_sml = self.tcb.snd_nxt;
            }
        }

        /// All that was sent is acknowledged, with so much data.
        fn acknowledged(&mut self, at: Nanos, bytes: u32) {
            self.event(at, What::Received, self.tcb.snd_nxt, bytes);
            self.tcb.snd_una = self.tcb.snd_nxt;
            self.tcb.rcv_nxt += bytes;
        }

        fn finish(self) -> Call {
            let calls = self.observer.finish().calls;
            assert_eq!(calls.len(), 1, "{calls:#?}");
            assert_eq!(calls[0].parts.total(), calls[0].causes.total());
            assert_eq!(calls[0].view, Viewpoint::Client);
            calls[0].clone()
        }
    }

    #[test]
    fn a_trace_separates_a_pause_from_nagles_rule_though_an_acknowledgement_ends_both() {
        // Two writes of one call: the second comes as the acknowledgement of the first does.
        let mut pause = TracedClient::new();
        pause.writes(ms(0), 100, 100);
        pause.acknowledged(ms(50), 0);
        pause.writes(ms(50), 200, 200);
        pause.acknowledged(ms(62), 10);
        let call = pause.finish();
        assert_eq!(call.causes.of(Cause::Application), ms(50));
        assert_eq!(call.parts.think, ms(2));

        // The same packets; but the second write was there after 3 ms, and waited.
        let mut held = TracedClient::new();
        held.writes(ms(0), 100, 100);
        held.writes(ms(3), 200, 0);
        held.acknowledged(ms(50), 0);
        held.sends(ms(50), 200);
        held.acknowledged(ms(62), 10);
        let call = held.finish();
        assert_eq!(call.causes.of(Cause::Application), ms(3));
        assert_eq!(call.causes.of(Cause::Nagle), ms(7));
        assert_eq!(call.causes.of(Cause::DelayedAck), ms(40));
    }

    #[test]
    fn a_trace_counts_a_call_from_its_write_and_names_the_window_that_it_waits_for() {
        for (window, cwnd, cause) in [
            (2000, 10, Cause::ReceiveWindow),
            (60_000, 2, Cause::CongestionWindow),
        ] {
            let mut traced = TracedClient::new();
            (traced.tcb.snd_wnd.0, traced.tcb.cwnd) = (window, cwnd);
            traced.tcb.packets_out = 1;
            traced.writes(ms(0), 5000, MSS);
            traced.tcb.packets_out = 2;
            traced.sends(ms(0), MSS);
            traced.acknowledged(ms(10), 0);
            traced.tcb.packets_out = 0;
            traced.sends(ms(10), MSS);
            traced.sends(ms(10), MSS);
            traced.sends(ms(10), MSS);
            traced.acknowledged(ms(21), 10);
            assert_eq!(traced.finish().causes.of(cause), ms(10), "{cause:?}");
        }
    }

    #[test]
    fn both_ends_in_one_trace_are_one_request() {
        let mut observer = RequestObserver::of_two();
        let ends = [([192, 0, 2, 1], 40000), ([192, 0, 2, 2], 9000)].map(SocketAddr::from);
        for (id, [local, remote]) in [(0, ends), (1, [ends[1], ends[0]])] {
            observer.record(&TraceRecord::Connection(Connection {
                id,
                cookie: 0,
                netns: 0,
                local,
                remote,
            }));
        }
        let (sent, received) = (What::Sent, What::Received);
        for (at, connection, what, seq, ack, bytes) in [
            (0, 0, sent, 1, 1, 100),
            (4, 1, received, 1, 1, 100),
            (9, 1, sent, 1, 101, 300),
            (15, 0, received, 1, 101, 300),
            (16, 0, sent, 101, 301, 0),
            (20, 1, received, 101, 301, 0),
            // Never answered: seen at both ends, and one request.
            (30, 0, sent, 101, 301, 100),
            (34, 1, received, 101, 301, 100),
        ] {
            observer.record(&TraceRecord::Segment(Segment {
                at: ms(at),
                connection,
                what,
                seq,
                ack,
                flags: ACK | PSH,
                payload: Bytes(bytes),
                ..Segment::default()
            }));
        }
        let found = observer.finish();
        assert_eq!((found.answered, found.clocks), (1, None));
        assert_eq!(found.unanswered, 1);
        let parts = found.calls[0].parts;
        assert_eq!(found.calls[0].view, Viewpoint::BothEnds);
        assert_eq!(
            (parts.forward, parts.think, parts.reverse),
            (ms(4), ms(5), ms(6))
        );
    }
}

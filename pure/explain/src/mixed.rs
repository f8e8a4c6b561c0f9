//! From packets and samples of one socket, the better evidence of each: the samples have the kernel's clocks of what the
//! sender waited for, which separate the send buffer from the application; the packets have the handshake, the
//! retransmissions, when those segments had left first, and how much was in flight then.

use crate::account::ConnectionAccount;
use crate::facts::Facts;
use crate::samples::{Idle, SampleRow, count, count_all, grown, interval};
use crate::sender_state::{OwnedInterval, own};
use crate::sliding_window::{SlidingWindow, Sums};
use model::finding::{Limit, Source};
use model::segment::tcp_flag::SYN;
use model::segment::tcp_state;
use model::{Bytes, Nanos, Segment, SocketState, TraceSample, What, socket_state};
use tcp::thresholds::INITIAL_WINDOW;

/// A connection while its packets and samples come.
#[derive(Clone, Default)]
pub(crate) struct Mixed {
    facts: Facts,
    pieces: Vec<OwnedInterval>,
    /// The first event of any kind.
    pub begun: Nanos,
    /// The SYN of this end, and its answer.
    opened: Option<(Nanos, Nanos)>,
    born: bool,
    first: Option<KnownSocket>,
    last: Option<KnownSocket>,
    idle: Option<Idle>,
    packets: bool,
    sent: bool,
    window: SlidingWindow,
}

/// A socket at one moment since the connection began.
#[derive(Clone)]
pub(crate) struct KnownSocket {
    pub at: Nanos,
    pub tcp: SocketState,
}

impl KnownSocket {
    pub fn row(&self) -> SampleRow<'_> {
        SampleRow {
            at: self.at,
            tcp: &self.tcp,
            send_buffer: self.tcp.sndbuf(),
            buffer_used: self.tcp.sndbuf_used(),
        }
    }
}

impl Mixed {
    pub fn new(begun: Nanos) -> Mixed {
        Mixed {
            begun,
            ..Mixed::default()
        }
    }

    /// Takes the next packet.
    pub fn packet(&mut self, segment: &Segment, account: &mut ConnectionAccount) {
        self.packets = true;
        self.born |= segment.flags & SYN != 0;
        self.sent |= segment.what == What::Sent && segment.payload.0 > 0;
        let loss = account.push(segment, segment.is_retransmission(), None);
        if let (Some(loss), Some(last)) = (loss, &self.last) {
            loss.srtt = last.tcp.srtt().unwrap_or_default();
        }
        self.opened = account.opened().map(|(asked, took)| {
            let asked = asked.since(self.begun);
            (asked, asked + took)
        });
    }

    /// Takes the next sample.
    pub fn sample(&mut self, sample: &TraceSample) {
        let now = KnownSocket {
            at: sample.at.since(self.begun),
            tcp: sample.socket.clone(),
        };
        if !sample.congestion.is_empty() {
            self.facts.congestion = Some(sample.congestion.clone());
        }
        self.facts.pacing = sample.socket.max_pacing_rate();
        let buffer = self.facts.send_buffer.unwrap_or_default();
        let buffer = Some(buffer).max(sample.socket.sndbuf());
        self.facts.send_buffer = buffer.filter(|buffer| buffer.0 > 0);
        let was = match self.last.take() {
            Some(was) => was,
            None => {
                let first = self.beginning(&now);
                self.idle = Some(Idle::from(&first.row()));
                self.first = Some(first.clone());
                first
            }
        };
        // The socket of a connection that is over: nothing of the transfer is in it any more.
        let over = now.tcp.state() != Some(tcp_state::ESTABLISHED)
            && now.tcp.bytes_acked() == was.tcp.bytes_acked();
        if now.at <= was.at || over {
            self.last = Some(was);
            return;
        }
        let known = self.facts.losses.len();
        let mut pieces = Vec::new();
        if let Some(idle) = &mut self.idle {
            interval(&was.row(), &now.row(), &mut self.facts, idle, &mut pieces);
        }
        if self.packets {
            // They have times of their own.
            self.facts.losses.truncate(known);
        }
        for piece in pieces {
            self.window.own(piece.from, piece.to, piece.limit);
            own(&mut self.pieces, piece);
        }
        let again = count(was.tcp.total_retrans(), now.tcp.total_retrans());
        let sent = grown(was.tcp.bytes_acked(), now.tcp.bytes_acked());
        self.window.sent(now.at, sent, again);
        let received = grown(was.tcp.bytes_received(), now.tcp.bytes_received());
        self.window.received(now.at, received);
        self.last = Some(now);
    }

    /// The last seconds before `now`, the last state of the socket, and the time since that state.
    pub fn window(&self, now: Nanos) -> Option<(Sums, &SocketState, Nanos)> {
        let last = self.last.as_ref()?;
        let now = now.since(self.begun).max(last.at);
        let sums = self.window.sums(Nanos(0), now);
        Some((sums, &last.tcp, now.since(last.at)))
    }

    /// Whether the local host sent data in the trace.
    pub fn has_sent(&self) -> bool {
        let moved = || {
            let (first, last) = self.first.as_ref().zip(self.last.as_ref())?;
            Some(first.tcp.bytes_acked() < last.tcp.bytes_acked())
        };
        self.sent || (!self.packets && moved().unwrap_or(false))
    }

    /// What the socket was before its first sample: where its first packet was seen, all counters stood at zero.
    fn beginning(&self, now: &KnownSocket) -> KnownSocket {
        if !self.born {
            return now.clone();
        }
        let zero = |time: Option<Nanos>| time.map(|_| Nanos(0));
        let none = |count: Option<u32>| count.map(|_| 0);
        let tcp = &now.tcp;
        KnownSocket {
            at: self.opened.unwrap_or_default().1,
            tcp: socket_state! {
                from tcp.clone();
                ca_state: Some(0),
                cwnd: Some(INITIAL_WINDOW),
                ssthresh: Some(i32::MAX as u32),
                total_retrans: Some(0),
                bytes_acked: tcp.bytes_acked().map(|_| Bytes(0)),
                data_segs_out: none(tcp.data_segs_out()),
                delivered: none(tcp.delivered()),
                delivered_ce: none(tcp.delivered_ce()),
                dsack_dups: none(tcp.dsack_dups()),
                reord_seen: none(tcp.reord_seen()),
                total_rto: tcp.total_rto().map(|_| 0),
                busy: zero(tcp.busy()),
                rwnd_limited: zero(tcp.rwnd_limited()),
                sndbuf_limited: zero(tcp.sndbuf_limited()),
            },
        }
    }

    /// Who owned each piece of its time, and what is known of it; none if its own end sent nothing, or too few
    /// samples met it.
    pub fn conclude(&self, account: &ConnectionAccount) -> Option<(Vec<OwnedInterval>, Facts)> {
        let (first, last) = (self.first.as_ref()?, self.last.as_ref()?);
        let mut facts = self.facts.clone();
        count_all(&mut facts, &first.row(), &last.row());
        if self.pieces.is_empty() || !self.has_sent() {
            return None;
        }
        let mut pieces = self.pieces.clone();
        if self.packets {
            facts.source = Source::PacketsAndSamples;
            account.inform(&mut facts, self.begun);
        }
        if let Some((from, to)) = self.opened {
            let limit = Limit::Handshake;
            let bytes = Bytes(0);
            pieces.insert(
                0,
                OwnedInterval {
                    from,
                    to,
                    limit,
                    bytes,
                },
            );
        }
        Some((pieces, facts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conclude::{ExplainedConnection, assemble};
    use model::finding::Explanation;
    use model::segment::tcp_flag::ACK;

    const MSS: u32 = 1448;
    const TRIP: u64 = 20;

    fn account() -> ConnectionAccount {
        ConnectionAccount::new(model::Connection {
            id: 0,
            cookie: 1,
            netns: 0,
            local: ([192, 0, 2, 1], 40000).into(),
            remote: ([192, 0, 2, 2], 5201).into(),
        })
    }

    /// Two seconds of samples 10 ms apart over a path of 20 ms, 40 segments a round trip.
    fn explained(
        each: impl Fn(u64, &mut SocketState),
        packets: impl Fn(&mut Mixed),
    ) -> Explanation {
        explained_with((4 << 20, 1 << 20), each, packets)
    }

    /// The same with a send buffer and its use.
    fn explained_with(
        (buffer, used): (u64, u64),
        each: impl Fn(u64, &mut SocketState),
        packets: impl Fn(&mut Mixed),
    ) -> Explanation {
        let mut mixed = Mixed::new(Nanos(0));
        let mut account = account();
        let segment = |at: u64, what, flags| Segment {
            at: Nanos::from_millis(at),
            what,
            flags,
            ..Segment::default()
        };
        mixed.packet(&segment(0, What::Sent, SYN), &mut account);
        mixed.packet(&segment(TRIP, What::Received, SYN | ACK), &mut account);
        for n in 3..=200u64 {
            let at = 10 * n;
            let segments = 20 * n as u32;
            let mut tcp = socket_state! {
                state: Some(tcp_state::ESTABLISHED),
                mss: Some(MSS),
                srtt: Some(Nanos::from_millis(TRIP)),
                min_rtt: Some(Nanos::from_millis(TRIP)),
                rto: Some(Nanos::from_millis(220)),
                packets_out: Some(40),
                cwnd: Some(80),
                ssthresh: Some(60),
                bytes_acked: Some(Bytes(u64::from(segments * MSS))),
                data_segs_out: Some(segments + 40),
                delivered: Some(segments),
                notsent_bytes: Some(Bytes(1 << 20)),
                snd_wnd: Some(Bytes(1 << 22)),
                busy: Some(Nanos::from_millis(at - TRIP)),
                rwnd_limited: Some(Nanos(0)),
                sndbuf_limited: Some(Nanos(0)),
                total_rto: Some(0),
                sacked_out: Some(0),
                lost_out: Some(0),
                retrans_out: Some(0),
                sndbuf: Some(Bytes(buffer)),
                sndbuf_used: Some(Bytes(used)),
            };
            each(at, &mut tcp);
            mixed.sample(&TraceSample {
                at: Nanos::from_millis(at),
                congestion: "cubic".to_owned(),
                socket: tcp,
                ..TraceSample::default()
            });
        }
        packets(&mut mixed);
        mixed.sent = true;
        let (pieces, facts) = mixed.conclude(&account).unwrap();
        let subject = ExplainedConnection::default();
        assemble(subject, &pieces, &facts, Vec::new())
    }

    #[test]
    fn the_kernels_clocks_separate_the_window_from_the_send_buffer() {
        let part = |at: u64| Some(Nanos::from_millis((at - TRIP) * 9 / 10));
        let explanation = explained(
            |at, tcp| *tcp = socket_state! { from tcp.clone(); rwnd_limited: part(at) },
            |_| (),
        );
        assert_eq!(
            explanation.cause(),
            Some(Limit::ReceiveWindow),
            "{explanation:#?}"
        );
        assert_eq!(explanation.source, Source::PacketsAndSamples);
        assert_eq!(explanation.phases[0].limit, Limit::Handshake);
        let explanation = explained(
            |at, tcp| *tcp = socket_state! { from tcp.clone(); sndbuf_limited: part(at) },
            |_| (),
        );
        assert_eq!(
            explanation.cause(),
            Some(Limit::SendBuffer),
            "{explanation:#?}"
        );
    }

    #[test]
    fn the_last_seconds_are_explained_meanwhile() {
        let part = |at: u64| Some(Nanos::from_millis((at - TRIP) * 9 / 10));
        explained(
            |at, tcp| *tcp = socket_state! { from tcp.clone(); rwnd_limited: part(at) },
            |mixed| {
                let (sums, tcp, silent) = mixed.window(Nanos::from_millis(2_050)).unwrap();
                let most = sums.owned.iter().max_by_key(|(_, time)| **time);
                assert_eq!(most.map(|(limit, _)| *limit), Some(Limit::ReceiveWindow));
                // From the first sample to the last, 20 segments each 10 ms.
                assert_eq!(sums.sent, Bytes(200 * 20 * u64::from(MSS)));
                assert_eq!((tcp.cwnd(), silent), (Some(80), Nanos::from_millis(50)));
            },
        );
    }

    #[test]
    fn a_buffer_with_room_holds_nobody() {
        // An application that paces itself keeps half of a buffer of 46 kB in use; a full one is seen as well.
        for (used, cause) in [(24_160, Limit::Application), (40_000, Limit::SendBuffer)] {
            let all_out = |_, tcp: &mut SocketState| {
                *tcp = socket_state! {
                    from tcp.clone();
                    packets_out: Some(14),
                    notsent_bytes: Some(Bytes(0)),
                    delivery_rate_app_limited: Some(true),
                };
            };
            let explanation = explained_with((46_080, used), all_out, |_| ());
            let owner = explanation.phases.last().map(|phase| phase.limit);
            assert_eq!(owner, Some(cause), "{explanation:#?}");
        }
    }

    #[test]
    fn packets_say_when_what_was_lost_had_left() {
        let mut mixed = Mixed::new(Nanos(0));
        let sent = |at: u64, seq: u32, snd_nxt: u32| Segment {
            at: Nanos::from_millis(at),
            seq,
            payload: Bytes(MSS.into()),
            segments: 1,
            socket: Some(socket_state! { snd_una: Some(1), snd_nxt: Some(snd_nxt) }),
            ..Segment::default()
        };
        let mut account = account();
        mixed.packet(&sent(1, 1, 1), &mut account);
        mixed.packet(&sent(2, 1 + MSS, 1 + MSS), &mut account);
        let mut facts = Facts::new(Source::Samples);
        for (n, at) in [(1, 201), (2, 601), (3, 1401)] {
            mixed.packet(&sent(at, 1, 1 + 2 * MSS), &mut account);
            account.inform(&mut facts, Nanos(0));
            assert_eq!(facts.losses.len(), n);
        }
        assert_eq!(facts.losses[0].at, Nanos::from_millis(1));
        assert_eq!(facts.losses[0].flight, u64::from(2 * MSS));
        let vanished = facts.vanished.unwrap();
        assert_eq!(
            (vanished.size, vanished.passed, vanished.backoffs),
            (MSS, 0, 3)
        );
    }

    #[test]
    fn its_own_end_sent_if_packets_show_it_or_counters_without_any() {
        let of = |packets: &[(What, u64)], grows: bool| {
            let (mut mixed, mut account) = (Mixed::new(Nanos(0)), account());
            for (what, payload) in packets {
                let segment = Segment {
                    what: *what,
                    payload: Bytes(*payload),
                    flags: ACK,
                    ..Segment::default()
                };
                mixed.packet(&segment, &mut account);
            }
            for n in 1..3u64 {
                let acked = if grows { n } else { 1 };
                mixed.sample(&TraceSample {
                    at: Nanos::from_millis(n),
                    socket: socket_state! { state: Some(1), bytes_acked: Some(Bytes(acked)) },
                    ..TraceSample::default()
                });
            }
            mixed.has_sent()
        };
        assert!(of(&[], true) && !of(&[], false));
        assert!(of(&[(What::Sent, 1)], false) && !of(&[(What::Sent, 0)], true));
        assert!(!of(&[(What::Received, 9)], true));
    }

    #[test]
    fn a_sample_of_the_same_moment_or_of_a_socket_that_is_over_is_left_out() {
        let mut mixed = Mixed::new(Nanos(0));
        let mut sample = |ms: u64, state, acked: u64| {
            mixed.sample(&TraceSample {
                at: Nanos::from_millis(ms),
                socket: socket_state! { state: Some(state), bytes_acked: Some(Bytes(acked)) },
                ..TraceSample::default()
            });
            let (_, tcp, _) = mixed.window(Nanos::from_millis(90)).unwrap();
            tcp.bytes_acked().unwrap().0
        };
        let (open, closing) = (tcp_state::ESTABLISHED, tcp_state::FIN_WAIT1);
        assert_eq!([sample(10, open, 5), sample(20, open, 6)], [5, 6]);
        assert_eq!(sample(20, open, 7), 6, "the same moment");
        assert_eq!(sample(30, closing, 8), 8, "it still moves");
        assert_eq!(sample(40, open, 9), 9);
    }
}

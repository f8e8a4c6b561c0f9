//! The packets of one connection of a trace, followed as those of a capture are, with what its socket reports beside.

use crate::capture::sender::CaptureSender;
use crate::capture::{self, CaptureConnection};
use crate::facts::{Facts, LostSegment, Vanished};
use model::finding::Explanation;
use model::packet::Packet;
use model::segment::tcp_state;
use model::{Nanos, Segment, SocketState, SocketValues, Vantage, What};
use tcp::stream::DataArrival;
use tcp::thresholds::TIMESTAMP_TICK;

/// A connection of a trace.
pub(crate) struct ConnectionAccount {
    /// Which one.
    pub about: model::Connection,
    followed: Option<Box<CaptureConnection>>,
    number: u16,
    /// The last data that came.
    came: Nanos,
}

impl ConnectionAccount {
    pub fn new(about: model::Connection) -> ConnectionAccount {
        ConnectionAccount {
            about,
            followed: None,
            number: 0,
            came: Nanos(0),
        }
    }

    /// What the socket knows and packets need not show: the trace may have begun later than the connection.
    pub fn reports(&mut self, socket: &SocketState, has_sent: bool) {
        let Some(followed) = &mut self.followed else {
            return;
        };
        // Until the handshake is over it knows half, and the child of a listener what that had (`inet_csk_clone_lock`).
        if socket.state().is_some_and(tcp_state::is_opening) {
            return;
        }
        let side = usize::from(followed.client_is_second());
        if let (Some(own), Some(peer)) = (socket.rcv_wscale(), socket.snd_wscale()) {
            followed.reports_scales(if side == 0 { [own, peer] } else { [peer, own] });
        }
        let mss = if has_sent {
            socket.mss()
        } else {
            socket.advmss()
        };
        let mss = mss.and_then(|mss| u16::try_from(mss).ok());
        let rtts = [socket.min_rtt(), socket.rcv_rtt()].into_iter().flatten();
        let rtt = rtts.into_iter().find(|rtt| rtt.0 > 0);
        followed.reports_path(side, mss.filter(|mss| *mss > 0), rtt);
    }

    /// Takes the next event. What its own end retransmits need not have been lost (the path MTU fell); `backoffs` says how
    /// often its timer had fired for it, where the socket knows that. Returns the loss that it shows.
    pub fn push(
        &mut self,
        segment: &Segment,
        is_loss: bool,
        backoffs: Option<u32>,
    ) -> Option<&mut LostSegment> {
        let packet = Packet::of_segment(self.about.local, self.about.remote, segment)?;
        let is_sent = segment.what == What::Sent;
        // Each is recorded once; but the path may deliver what left once again and again, with one timestamp.
        self.number = self.number % u16::MAX + 1;
        let ip_id = match segment.stamps {
            Some((value, _)) if !is_sent && segment.payload.0 > 0 => {
                let mixed = (segment.seq ^ value.rotate_left(16)).wrapping_mul(0x9E37_79B1);
                (mixed >> 16) as u16 | 1
            }
            _ => self.number,
        };
        let packet = Packet { ip_id, ..packet };
        let begin = || Box::new(CaptureConnection::new(&packet, !is_sent));
        let followed = self.followed.get_or_insert_with(begin);
        let mut passed = followed.push(&packet, !is_sent);
        if !is_sent {
            let full = followed.segment();
            let own = followed.stream_mut(1 - passed.side);
            if let (Some(own), Some(ack)) = (own, passed.ack.take()) {
                own.view.acknowledged(&own.stream);
                own.view.holds(&own.stream, segment.at, ack.gained, full);
            }
            capture::read(followed, &packet, &passed);
            if segment.payload.0 == 0 {
                return None;
            }
            // The kernel measures it by timestamps, in their ticks (`tcp_rcv_rtt_measure_ts` in `net/ipv4/tcp_input.c`); a
            // sender that paused echoes late.
            let pause = segment
                .at
                .since(std::mem::replace(&mut self.came, segment.at));
            let whole = |own: &SocketValues| own.rcv_rtt.since(TIMESTAMP_TICK);
            let whole = segment.probed().map(whole);
            if let (Some(peer), Some(whole)) = (followed.stream_mut(passed.side), whole) {
                peer.view.reports_echo(whole, pause);
            }
            return None;
        }
        let data = passed.data.take();
        capture::read(followed, &packet, &passed);
        let size = followed.segment();
        let own = followed.stream_mut(passed.side)?;
        own.view.keeps(&own.stream);
        match data? {
            DataArrival::Retransmission if is_loss => {
                own.view.repeats(&own.stream, &packet, size, backoffs)
            }
            DataArrival::New | DataArrival::Retransmission | DataArrival::Reordered => {
                own.view.departs(&own.stream, &packet, size);
                None
            }
            DataArrival::Duplicate | DataArrival::Probe | DataArrival::Stray => None,
        }
    }

    /// What is known of the data that its own end sent.
    pub fn sent(&self) -> Option<&CaptureSender> {
        let followed = self.followed.as_ref()?;
        let own = followed.stream(usize::from(followed.client_is_second()))?;
        Some(&own.view)
    }

    /// Bytes that the peer counts as sent since the last of its data, and that never came.
    pub fn missing(&self) -> u64 {
        let of = |followed: &CaptureConnection| {
            let peer = usize::from(!followed.client_is_second());
            Some(followed.undelivered(peer)?.bytes)
        };
        self.followed.as_deref().and_then(of).unwrap_or(0).into()
    }

    /// The losses of these data, what vanished, and the queue or bucket that lost them; times since `begun`.
    pub fn inform(&self, facts: &mut Facts, begun: Nanos) {
        let Some(own) = self.sent() else {
            return;
        };
        let lost = own.losses();
        facts.losses = lost.losses;
        for loss in &mut facts.losses {
            loss.at = loss.at.since(begun);
        }
        facts.vanished = lost.vanished.map(|v| Vanished {
            at: v.at.since(begun),
            ..v
        });
        facts.bucket = own.bucket(facts.rtt());
        facts.capacity = own.acknowledged_capacity(facts.mss);
        facts.held_acks = own.held_acks(facts.rtt());
    }

    /// Its own end opened it: when the first packet passed, and from its SYN to the answer.
    pub fn opened(&self) -> Option<(Nanos, Nanos)> {
        let own = self
            .followed
            .as_ref()
            .filter(|own| !own.client_is_second())?;
        Some((own.begun, own.opened?))
    }

    /// Explains what the peer sent, as a capture here would.
    pub fn received(self, more: &mut dyn FnMut(&mut Facts)) -> Option<Explanation> {
        let followed = self.followed?;
        let (local, remote) = (self.about.local, self.about.remote);
        let is_server = followed.client_is_second();
        let ends = if is_server {
            [remote, local]
        } else {
            [local, remote]
        };
        let local = local.ip();
        let vantage = |_, to| match to == local {
            true => Vantage::AtReceiver,
            false => Vantage::AtSender,
        };
        let [client, server] = capture::explain(
            *followed,
            ends,
            (&vantage, &|_| None),
            &mut Vec::new(),
            more,
        );
        if is_server { client } else { server }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::segment::tcp_flag::ACK;
    use model::socket_state;

    fn account() -> ConnectionAccount {
        ConnectionAccount::new(model::Connection {
            id: 0,
            cookie: 1,
            netns: 0,
            local: ([192, 0, 2, 2], 5201).into(),
            remote: ([192, 0, 2, 1], 40000).into(),
        })
    }

    #[test]
    fn the_child_of_a_listener_knows_the_window_scales_when_the_handshake_is_over() {
        let mut account = account();
        let first = Segment {
            what: What::Received,
            flags: ACK,
            payload: model::Bytes(1448),
            ..Segment::default()
        };
        account.push(&first, false, None);
        let reported = [(tcp_state::SYN_RECV, 0, 0), (tcp_state::ESTABLISHED, 7, 9)];
        for (state, peer, own) in reported {
            let socket = socket_state! {
                state: Some(state), snd_wscale: Some(peer), rcv_wscale: Some(own)
            };
            account.reports(&socket, false);
        }
        let followed = account.followed.unwrap();
        assert_eq!([0, 1].map(|side| followed.scale(side)), [Some(7), Some(9)]);
    }

    #[test]
    fn a_full_segment_with_timestamps_is_one() {
        let figures = came(|_, _| true).stream.unwrap();
        assert_eq!((figures.segments, figures.retransmissions), (100, 0));
    }

    #[test]
    fn what_the_path_delivers_twice_was_not_sent_again() {
        let twice = came(|account, data| account.push(data, false, None).is_none());
        let figures = twice.stream.unwrap();
        assert_eq!((figures.segments, figures.retransmissions), (100, 0));
        let again = came(|account, data| {
            let later = data.stamps.map(|(value, echoed)| (value + 1000, echoed));
            let again = Segment {
                at: data.at + Nanos::from_millis(500),
                stamps: later,
                ..data.clone()
            };
            data.seq != 0 || account.push(&again, false, None).is_none()
        });
        assert_eq!(again.stream.unwrap().retransmissions, 1);
    }

    /// A hundred segments that come, and what comes after each of them.
    fn came(after: impl Fn(&mut ConnectionAccount, &Segment) -> bool) -> Explanation {
        let mut account = account();
        let socket = socket_state! { state: Some(tcp_state::ESTABLISHED), advmss: Some(1448) };
        for n in 0..100 {
            let data = Segment {
                at: Nanos::from_millis(n),
                what: What::Received,
                seq: n as u32 * 1448,
                flags: ACK,
                payload: model::Bytes(1448),
                stamps: Some((n as u32, 1)),
                ..Segment::default()
            };
            account.push(&data, false, None);
            account.reports(&socket, false);
            assert!(after(&mut account, &data));
        }
        account.received(&mut |_| ()).unwrap()
    }
}

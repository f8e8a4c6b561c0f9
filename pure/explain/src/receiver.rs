//! From the receiver's own trace while its records come: what a capture at the receiver would tell, with what its
//! socket knew beside.

use crate::capture::Observer;
use crate::ends::{Kept, Reader, packet, reading};
use model::finding::{Explanation, Source};
use model::packet::Packet;
use model::segment::tcp_flag::{ACK, SYN};
use model::{Bytes, Comm, Connection, Nanos, Segment, SocketValues, TraceSample, What};

/// Packets that wait at most until the socket tells the round trip.
const MOST_EARLY: usize = 256;

/// A connection to which data come, from the first of them on.
pub(crate) struct Receiver {
    connection: Connection,
    begun: Nanos,
    observer: Observer,
    /// Packets from before the round trip was known; `None` since it is.
    early: Option<Vec<Packet>>,
    /// So much later than it passed a packet is told: the handshake comes first.
    after: Nanos,
    shake: Handshake,
    /// The socket was read at its segments.
    is_read: bool,
    /// The state before: when, what was unread by the buffer, whether less than a segment was offered.
    was: Option<(Nanos, f64, bool)>,
    /// Sums up to the last data, and since then.
    until: Sums,
    since: Sums,
    last: Nanos,
    kept: Kept,
}

/// What the socket knows of its handshake, which the trace need not have.
#[derive(Default)]
struct Handshake {
    own_scale: u8,
    peer_scale: u8,
    mss: Option<u16>,
    trip: Option<Nanos>,
}

/// What was unread, by the time that it was; all of the time, and that with less than a segment offered.
#[derive(Clone, Copy, Default)]
struct Sums {
    unread: f64,
    time: Nanos,
    closed: Nanos,
}

impl Receiver {
    pub fn new(connection: Connection, begun: Nanos) -> Receiver {
        Receiver {
            connection,
            begun,
            observer: Observer::of_most(1),
            early: Some(Vec::new()),
            after: Nanos(0),
            shake: Handshake::default(),
            is_read: false,
            was: None,
            until: Sums::default(),
            since: Sums::default(),
            last: begun,
            kept: Kept::default(),
        }
    }

    /// Takes the next event.
    pub fn see(&mut self, segment: &Segment) {
        if let Some(tcb) = segment.probed() {
            self.state(segment, tcb);
        }
        if segment.what == What::Received && segment.payload.0 > 0 {
            self.last = segment.at;
            let since = std::mem::take(&mut self.since);
            self.until.unread += since.unread;
            self.until.time += since.time;
            self.until.closed += since.closed;
        }
        let Some(packet) = packet(&self.connection, segment).filter(|p| !p.has(SYN)) else {
            return;
        };
        let Some(early) = &mut self.early else {
            self.pass(packet);
            return;
        };
        early.push(packet);
        if self.shake.trip.is_some() || early.len() >= MOST_EARLY {
            self.open();
        }
    }

    /// Takes what the kernel was asked between the packets.
    pub fn sample(&mut self, sample: &TraceSample) {
        if sample.gone {
            return;
        }
        let tcp = &sample.socket;
        let scale = |scale: Option<u8>| scale.unwrap_or(0);
        let trip = tcp.min_rtt().filter(|rtt| rtt.0 > 0).or(tcp.rcv_rtt());
        self.shake(
            scale(tcp.rcv_wscale()),
            scale(tcp.snd_wscale()),
            tcp.advmss().unwrap_or(0),
            trip,
        );
        self.stretch(sample.at, None);
        let buffer = tcp.rcvbuf().unwrap_or_default();
        let share = tcp.unread().unwrap_or_default().0 as f64 / buffer.0.max(1) as f64;
        self.was = Some((sample.at, share, false));
        self.socket(buffer, sample.comm, sample.pid);
    }

    fn state(&mut self, segment: &Segment, tcb: &SocketValues) {
        self.is_read = true;
        let trip = Some(tcb.min_rtt)
            .filter(|rtt| rtt.0 > 0)
            .or(Some(tcb.rcv_rtt));
        self.shake(tcb.rcv_wscale, tcb.snd_wscale, tcb.advmss, trip);
        let (share, closed) = reading(tcb);
        // A read tells what was left after it; all else what was there before.
        let before = (segment.what != What::Read).then_some((share, closed));
        self.stretch(segment.at, before);
        self.was = Some((segment.at, share, closed));
        self.socket(tcb.rcvbuf, segment.comm, segment.pid);
    }

    /// The time since the last state was spent in it, or in the one that `now` knows.
    fn stretch(&mut self, at: Nanos, now: Option<(f64, bool)>) {
        let Some((was, share, closed)) = self.was else {
            return;
        };
        let (share, closed) = now.unwrap_or((share, closed));
        let time = at.since(was);
        self.since.unread += share * time.0 as f64;
        self.since.time += time;
        if closed {
            self.since.closed += time;
        }
    }

    fn shake(&mut self, own_scale: u8, peer_scale: u8, mss: u32, trip: Option<Nanos>) {
        let shake = &mut self.shake;
        if shake.own_scale == 0 {
            (shake.own_scale, shake.peer_scale) = (own_scale, peer_scale);
            shake.mss = u16::try_from(mss).ok().filter(|mss| *mss > 0);
        }
        shake.trip = shake.trip.or(trip.filter(|rtt| rtt.0 > 0));
    }

    fn socket(&mut self, buffer: Bytes, comm: Comm, pid: u32) {
        let (first, most) = &mut self.kept.buffer;
        if first.0 == 0 {
            *first = buffer;
        }
        *most = buffer.max(*most);
        if pid > 0 {
            self.kept.who = Some((comm, pid));
        }
    }

    fn pass(&mut self, packet: Packet) {
        self.observer.see(&Packet {
            at: packet.at + self.after,
            ..packet
        });
    }

    /// Lets those go that waited for the round trip.
    fn open(&mut self) {
        let early = self.early.take().unwrap_or_default();
        let opening = early.first().and_then(|first| self.opening(first));
        for packet in opening.into_iter().flatten() {
            self.after = packet.at;
            self.observer.see(&Packet {
                at: packet.at + self.begun,
                ..packet
            });
        }
        early.into_iter().for_each(|packet| self.pass(packet));
    }

    /// The handshake as it must have been, by what the socket knows: the trace may have begun later. Its times
    /// tell that the place is the receiver's.
    fn opening(&self, first: &Packet) -> Option<[Packet; 3]> {
        let (shake, trip) = (&self.shake, self.shake.trip?);
        let scaled = shake.own_scale > 0 || shake.peer_scale > 0;
        let (own, peer) = (self.connection.local, self.connection.remote);
        let of = |from, to, flags: u8, wscale: u8| Packet {
            flags,
            window: u16::MAX,
            wscale: scaled.then_some(wscale),
            mss: shake.mss,
            ..Packet::new(from, to)
        };
        let (here, there) = match first.from == peer {
            true => (first.ack, first.seq),
            false => (first.seq, first.ack),
        };
        let (here, there) = (here.wrapping_sub(1), there.wrapping_sub(1));
        let syn = Packet {
            seq: there,
            ..of(peer, own, SYN, shake.peer_scale)
        };
        let syn_ack = Packet {
            seq: here,
            ack: there.wrapping_add(1),
            ..of(own, peer, SYN | ACK, shake.own_scale)
        };
        let ack = Packet {
            at: trip,
            seq: there.wrapping_add(1),
            ack: here.wrapping_add(1),
            ..of(peer, own, ACK, 0)
        };
        Some([syn, syn_ack, ack])
    }

    /// What the peer's data were limited by. Nothing where the socket told nothing.
    pub fn explain(mut self) -> Vec<Explanation> {
        if self.kept.buffer.1.0 == 0 {
            return Vec::new();
        }
        self.open();
        let Sums {
            unread,
            time,
            closed,
        } = self.until;
        self.kept.closed = closed;
        let mean = unread / time.0.max(1) as f64;
        let reader = Reader::summed(self.begun, self.last.since(self.begun), mean, self.kept);
        let told = self.observer.explain_with(&mut |facts| {
            if self.is_read {
                facts.source = Source::TraceAtReceiver;
            }
            reader.inform_as_a_whole(facts);
        });
        let peer = self.connection.remote;
        let own = told.explanations.into_iter();
        let own = own.filter(|e| e.sender == Some(peer));
        own.map(|one| Explanation {
            ends: reader.evidence(),
            ..one
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::finding::{EvidenceKey, Quantity};
    use model::{SocketState, TraceRecord};

    /// Data that come to a connection, ten segments a round trip of 20 ms, half of the buffer unread; at the end its
    /// own end sends, or not.
    fn told(answers: bool) -> Vec<Explanation> {
        let mut watcher = crate::Watcher::default();
        let connection = Connection {
            id: 0,
            cookie: 1,
            netns: 0,
            local: ([192, 0, 2, 2], 5201).into(),
            remote: ([192, 0, 2, 1], 40000).into(),
        };
        watcher.see(TraceRecord::Connection(connection));
        let tcb = SocketValues {
            state: model::segment::tcp_state::ESTABLISHED,
            min_rtt: Nanos::from_millis(20),
            rcv_wscale: 7,
            advmss: 1460,
            rcvbuf: Bytes(100_000),
            rcv_nxt: 50_000,
            rcv_wnd: Bytes(14_480),
            ..SocketValues::default()
        };
        let mut seq = 1;
        for n in 0..1000u64 {
            let trip = Nanos(n / 10 * 21_000_000);
            let mut segment = Segment {
                at: trip + Nanos(n % 10 * 1000),
                what: What::Received,
                seq,
                ack: 1,
                flags: ACK,
                payload: Bytes(1448),
                segments: 1,
                socket: Some(SocketState::from_probe(tcb.clone())),
                ..Segment::default()
            };
            seq += 1448;
            watcher.see(TraceRecord::Segment(segment.clone()));
            if n % 10 == 9 {
                segment.what = What::Sent;
                (segment.seq, segment.ack, segment.window) = (1, seq, 114);
                segment.payload = Bytes(u64::from(answers && n == 999));
                watcher.see(TraceRecord::Segment(segment));
            }
        }
        watcher.explain()
    }

    #[test]
    fn what_came_is_told_as_it_came_unless_its_own_end_sends() {
        let [told] = &told(false)[..] else {
            panic!("one direction has data")
        };
        assert_eq!(told.source, Source::TraceAtReceiver);
        assert_eq!(told.bytes, Bytes(1_448_000));
        assert!(
            told.ends
                .iter()
                .any(|e| e.key == EvidenceKey::UnreadData && e.quantity == Quantity::Share(0.5)),
            "{told:#?}"
        );
        assert_eq!(
            told.cause(),
            Some(model::finding::Limit::ReadingApplication)
        );
        let local = told.receiver;
        assert!(super::tests::told(true).iter().all(|e| e.sender == local));
    }
}

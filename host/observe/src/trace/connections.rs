//! Which connection an event belongs to, and where in its stream.

use super::record::{EncodedRecord, RecordPlace};
use model::segment::{tcp_flag, tcp_state};
use model::{Connection, What};
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::net::SocketAddr;
use tcp::seq::{Unwrap, before};

/// Connections whose end was never seen, and handshakes that led to nothing: more are forgotten.
const MOST: usize = 1 << 20;

/// Closed connections that are remembered for what still comes of them: a reset, a last read.
const CLOSED: usize = 4096;

type Flow = (u32, SocketAddr, SocketAddr);

/// The connections of a trace, by what the kernel calls them.
#[derive(Debug, Default)]
pub(super) struct Connections {
    next: u32,
    known: HashMap<u64, Known, ByNumber>,
    /// Handshakes that a listener answers: there is no socket of their own yet.
    greeting: HashMap<Flow, u32>,
    /// The latest of each flow: a segment can be dropped before anyone knows whose it is.
    flows: HashMap<Flow, u32>,
    closed: VecDeque<(u64, Flow)>,
}

/// Sockets are counted by the kernel, connections by us, and nobody else chooses their numbers: they need no more than
/// to be spread (multiplicative hashing, Knuth, The Art of Computer Programming, 6.4). Each event is looked up.
pub(super) type ByNumber = BuildHasherDefault<Spread>;

#[derive(Default)]
pub(super) struct Spread(u64);

impl Hasher for Spread {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[derive(Clone, Copy, Debug)]
struct Known {
    id: u32,
    closed: bool,
    /// What the kernel counts as acknowledged beside the stream: 1 for the SYN at the end that connected.
    beside: Option<u64>,
}

impl Connections {
    /// Finds the place of an event; `None` for what a socket does outside any connection.
    pub(super) fn place(&mut self, event: EncodedRecord<'_>) -> Option<RecordPlace> {
        let place = self.find(event)?;
        let known = self.known.get_mut(&event.cookie());
        let offset = known.and_then(|known| offset(event, known));
        Some(RecordPlace { offset, ..place })
    }

    /// As [`Connections::place`], but for the offset.
    pub(super) fn find(&mut self, event: EncodedRecord<'_>) -> Option<RecordPlace> {
        let what = event.kind();
        if event.state() == tcp_state::LISTEN {
            return self.greet(flow(event), event.flags() & tcp_flag::SYN != 0);
        }
        if event.cookie() == 0 {
            return self.stray(flow(event));
        }
        let opens = what == What::Sent && event.state() == tcp_state::SYN_SENT;
        let closes = what == What::State && event.state() == tcp_state::CLOSE;
        match self.known.get_mut(&event.cookie()) {
            Some(known) if !(known.closed && opens) => {
                let place = RecordPlace::new(known.id, None);
                if closes && !known.closed {
                    known.closed = true;
                    self.forget_after(event);
                }
                return Some(place);
            }
            // A closed socket that is new to us: its connection was over before the trace.
            None if event.state() == tcp_state::CLOSE && !closes => return None,
            _ => {}
        }
        let flow = flow(event);
        let id = match self.greeting.remove(&flow) {
            Some(id) => id,
            None => self.number(),
        };
        let known = Known {
            id,
            closed: closes,
            beside: None,
        };
        if self.known.len() >= MOST {
            self.known.clear();
            self.flows.clear();
        }
        self.known.insert(event.cookie(), known);
        self.flows.insert(flow, id);
        if closes {
            self.forget_after(event);
        }
        let new = connection(id, event.cookie(), flow);
        Some(RecordPlace::new(id, Some(new)))
    }

    /// What has closed is remembered for a while.
    fn forget_after(&mut self, event: EncodedRecord<'_>) {
        self.closed.push_back((event.cookie(), flow(event)));
        if self.closed.len() > CLOSED
            && let Some((oldest, flow)) = self.closed.pop_front()
            && self.known.get(&oldest).is_some_and(|known| known.closed)
            && let Some(known) = self.known.remove(&oldest)
            && self.flows.get(&flow) == Some(&known.id)
        {
            self.flows.remove(&flow);
        }
    }

    /// A segment that was dropped before its socket was known: of the end that it was meant for, or else, on
    /// the same host, of the end that sent it.
    fn stray(&mut self, (netns, local, remote): Flow) -> Option<RecordPlace> {
        let receiver = self.flows.get(&(netns, local, remote));
        let id = receiver.or_else(|| self.flows.get(&(netns, remote, local)))?;
        Some(RecordPlace::new(*id, None))
    }

    /// A listener's own packets: a handshake begins with SYN, else it is a straggler of what was closed.
    fn greet(&mut self, flow: Flow, opens: bool) -> Option<RecordPlace> {
        if let Some(id) = self.greeting.get(&flow) {
            return Some(RecordPlace::new(*id, None));
        }
        if !opens {
            return None;
        }
        if self.greeting.len() >= MOST {
            self.greeting.clear();
        }
        let id = self.number();
        self.greeting.insert(flow, id);
        Some(RecordPlace::new(id, Some(connection(id, 0, flow))))
    }

    fn number(&mut self) -> u32 {
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        id
    }
}

fn flow(event: EncodedRecord<'_>) -> Flow {
    (event.netns(), event.here(), event.there())
}

fn connection(id: u32, cookie: u64, (netns, local, remote): Flow) -> Box<Connection> {
    Box::new(Connection {
        id,
        cookie,
        netns,
        local,
        remote,
    })
}

/// Place in the stream of a segment's first byte, from the kernel's 64-bit counts of it.
fn offset(event: EncodedRecord<'_>, known: &mut Known) -> Option<u64> {
    if event.payload() == 0 {
        return None;
    }
    match event.kind() {
        What::Sent => {
            let before_this = before(event.seq(), event.snd_nxt());
            let payload = u64::from(if before_this { 0 } else { event.payload() });
            // Sent for the first time, of the stream: all that was ever sent but retransmissions and this.
            let sent = event
                .bytes_sent()
                .checked_sub(event.bytes_retrans())?
                .checked_sub(payload)?;
            if known.beside.is_none() && event.state() == tcp_state::ESTABLISHED {
                let unacked = u64::from(event.snd_nxt().wrapping_sub(event.snd_una()));
                let counted = event.bytes_acked().saturating_add(unacked);
                known.beside = counted.checked_sub(sent).filter(|beside| *beside <= 1);
            }
            ahead(
                event.bytes_acked().checked_sub(known.beside?)?,
                event.snd_una(),
                event.seq(),
            )
        }
        What::Received if event.flags() & tcp_flag::SYN == 0 => {
            ahead(event.bytes_received(), event.rcv_nxt(), event.seq())
        }
        _ => None,
    }
}

/// `count` belongs to sequence number `from`; what belongs to `to`, which may lie on either side.
fn ahead(count: u64, from: u32, to: u32) -> Option<u64> {
    Unwrap::at(from, count).checked_position(to)
}

#[cfg(test)]
mod tests {
    use super::super::record::Raw;
    use super::*;
    use model::segment::tcp_flag::{ACK, SYN};

    fn event(what: u8, state: u8, cookie: u64) -> Raw {
        Raw {
            what,
            state,
            cookie,
            local_port: 2049,
            remote_port: 900,
            ..Raw::default()
        }
    }

    fn place(connections: &mut Connections, raw: &Raw) -> Option<RecordPlace> {
        connections.place(EncodedRecord::of(&raw.encode()).unwrap())
    }

    #[test]
    fn a_drop_without_a_socket_finds_its_connection_by_its_addresses() {
        let mut connections = Connections::default();
        place(&mut connections, &event(0, tcp_state::ESTABLISHED, 5)).unwrap();
        let drop = event(6, 0, 0);
        let found = place(&mut connections, &drop).unwrap();
        assert_eq!(found.id, 0);
        let turned = Raw {
            local_port: 900,
            remote_port: 2049,
            ..drop.clone()
        };
        let found = place(&mut connections, &turned).unwrap();
        assert_eq!(found.id, 0);
        let elsewhere = Raw { netns: 9, ..drop };
        assert_eq!(place(&mut connections, &elsewhere), None);
    }

    #[test]
    fn a_handshake_becomes_the_connection_that_it_led_to() {
        let mut connections = Connections::default();
        let syn = Raw {
            flags: SYN,
            ..event(1, tcp_state::LISTEN, 5)
        };
        let first = place(&mut connections, &syn).unwrap();
        assert_eq!((first.id, first.new.unwrap().cookie), (0, 0));
        let answer = Raw {
            flags: SYN | ACK,
            ..event(0, tcp_state::LISTEN, 5)
        };
        assert_eq!(place(&mut connections, &answer).unwrap().new, None);
        let child = place(&mut connections, &event(4, tcp_state::ESTABLISHED, 6)).unwrap();
        assert_eq!((child.id, child.new.unwrap().cookie), (0, 6));
        assert_eq!(
            place(&mut connections, &event(1, tcp_state::ESTABLISHED, 6))
                .unwrap()
                .new,
            None
        );
    }

    #[test]
    fn a_straggler_at_a_listener_is_no_connection() {
        let straggler = Raw {
            flags: ACK,
            ..event(1, tcp_state::LISTEN, 5)
        };
        assert_eq!(place(&mut Connections::default(), &straggler), None);
    }

    #[test]
    fn a_socket_that_connects_again_is_a_new_connection() {
        let mut connections = Connections::default();
        assert_eq!(
            place(&mut connections, &event(0, tcp_state::SYN_SENT, 5))
                .unwrap()
                .id,
            0
        );
        assert_eq!(
            place(&mut connections, &event(4, tcp_state::CLOSE, 5))
                .unwrap()
                .id,
            0
        );
        assert_eq!(
            place(&mut connections, &event(0, tcp_state::CLOSE, 5))
                .unwrap()
                .id,
            0,
            "its reset"
        );
        assert_eq!(
            place(&mut connections, &event(0, tcp_state::SYN_SENT, 5))
                .unwrap()
                .id,
            1
        );
        assert_eq!(
            place(&mut connections, &event(2, tcp_state::CLOSE, 77)),
            None
        );
    }

    #[test]
    fn offsets_leave_out_the_syn_and_know_retransmissions() {
        let mut connections = Connections::default();
        // The end that connected: its SYN is among the acknowledged. 1000 bytes acknowledged, 500 out.
        let sent = Raw {
            seq: 1_500,
            payload: 100,
            snd_una: 1_000,
            snd_nxt: 1_500,
            bytes_acked: 1_001,
            bytes_sent: 1_600,
            ..event(0, tcp_state::ESTABLISHED, 5)
        };
        assert_eq!(place(&mut connections, &sent).unwrap().offset, Some(1_500));
        let again = Raw {
            seq: 1_000,
            snd_nxt: 1_600,
            bytes_sent: 1_700,
            bytes_retrans: 100,
            ..sent.clone()
        };
        assert_eq!(place(&mut connections, &again).unwrap().offset, Some(1_000));
        // The end that was connected to.
        let sent = Raw {
            cookie: 6,
            bytes_acked: 1_000,
            ..sent
        };
        assert_eq!(place(&mut connections, &sent).unwrap().offset, Some(1_500));
        let received = Raw {
            seq: 90,
            payload: 10,
            rcv_nxt: 100,
            bytes_received: 40,
            ..event(1, tcp_state::ESTABLISHED, 6)
        };
        assert_eq!(place(&mut connections, &received).unwrap().offset, Some(30));
    }

    #[test]
    fn what_never_ends_is_bounded() {
        let mut connections = Connections::default();
        for cookie in 0..2 * CLOSED as u64 {
            place(&mut connections, &event(4, tcp_state::CLOSE, cookie));
        }
        assert!(connections.known.len() <= CLOSED + 1);
    }
}

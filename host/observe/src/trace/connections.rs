//! Which connection an event belongs to, and where in its stream.

use super::record::Raw;
use model::segment::{before, tcp_flag, tcp_state};
use model::{Connection, What};
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

/// Connections whose end was never seen, and handshakes that led to nothing: more are forgotten.
const MOST: usize = 1 << 20;

/// Closed connections that are remembered for what still comes of them: a reset, a last read.
const CLOSED: usize = 4096;

type Flow = (u32, SocketAddr, SocketAddr);

/// The connections of a trace, by what the kernel calls them.
#[derive(Debug, Default)]
pub(super) struct Connections {
    next: u32,
    known: HashMap<u64, Known>,
    /// Handshakes that a listener answers: there is no socket of their own yet.
    greeting: HashMap<Flow, u32>,
    closed: VecDeque<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    id: u32,
    closed: bool,
    /// What the kernel counts as acknowledged beside the stream: 1 for the SYN at the end that connected.
    beside: Option<u64>,
}

/// The place of an event.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub id: u32,
    /// To be told first: a new connection, or one whose socket is known only now.
    pub told: Option<Connection>,
    /// Of the first byte in its stream.
    pub offset: Option<u64>,
}

impl Connections {
    /// Finds the place of an event; `None` for what a socket does outside any connection.
    pub(super) fn place(&mut self, raw: &Raw) -> Option<Place> {
        let flow = (raw.netns, raw.local(), raw.remote());
        if raw.state == tcp_state::LISTEN {
            return self.greet(flow, raw.flags & tcp_flag::SYN != 0);
        }
        let opens = raw.what() == What::Sent && raw.state == tcp_state::SYN_SENT;
        let known = self.known.get(&raw.cookie).copied();
        let (mut known, told) = match known.filter(|known| !(known.closed && opens)) {
            Some(known) => (known, None),
            // A closed socket that is new to us: its connection was over before the trace.
            None if raw.state == tcp_state::CLOSE && raw.what() != What::State => return None,
            None => {
                let id = self.greeting.remove(&flow).unwrap_or_else(|| self.number());
                let known = Known {
                    id,
                    closed: false,
                    beside: None,
                };
                (known, Some(connection(id, raw.cookie, flow)))
            }
        };
        let offset = offset(raw, &mut known);
        if raw.what() == What::State && raw.state == tcp_state::CLOSE && !known.closed {
            known.closed = true;
            self.closed.push_back(raw.cookie);
            if self.closed.len() > CLOSED
                && let Some(oldest) = self.closed.pop_front()
                && self.known.get(&oldest).is_some_and(|known| known.closed)
            {
                self.known.remove(&oldest);
            }
        }
        if self.known.len() >= MOST {
            self.known.clear();
        }
        self.known.insert(raw.cookie, known);
        Some(Place {
            id: known.id,
            told,
            offset,
        })
    }

    /// A listener's own packets: a handshake begins with SYN, else it is a straggler of what was closed.
    fn greet(&mut self, flow: Flow, opens: bool) -> Option<Place> {
        if let Some(id) = self.greeting.get(&flow) {
            return Some(Place {
                id: *id,
                told: None,
                offset: None,
            });
        }
        if !opens {
            return None;
        }
        if self.greeting.len() >= MOST {
            self.greeting.clear();
        }
        let id = self.number();
        self.greeting.insert(flow, id);
        Some(Place {
            id,
            told: Some(connection(id, 0, flow)),
            offset: None,
        })
    }

    fn number(&mut self) -> u32 {
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        id
    }
}

fn connection(id: u32, cookie: u64, (netns, local, remote): Flow) -> Connection {
    Connection {
        id,
        cookie,
        netns,
        local,
        remote,
    }
}

/// Place in the stream of a segment's first byte, from the kernel's 64-bit counts of it.
fn offset(raw: &Raw, known: &mut Known) -> Option<u64> {
    if raw.payload == 0 {
        return None;
    }
    match raw.what() {
        What::Sent => {
            let before_this = before(raw.seq, raw.snd_nxt);
            let payload = u64::from(if before_this { 0 } else { raw.payload });
            // Sent for the first time, of the stream: all that was ever sent but retransmissions and this.
            let sent = raw
                .bytes_sent
                .checked_sub(raw.bytes_retrans)?
                .checked_sub(payload)?;
            if known.beside.is_none() && raw.state == tcp_state::ESTABLISHED {
                let unacked = u64::from(raw.snd_nxt.wrapping_sub(raw.snd_una));
                let counted = raw.bytes_acked.saturating_add(unacked);
                known.beside = counted.checked_sub(sent).filter(|beside| *beside <= 1);
            }
            ahead(
                raw.bytes_acked.checked_sub(known.beside?)?,
                raw.snd_una,
                raw.seq,
            )
        }
        What::Received if raw.flags & tcp_flag::SYN == 0 => {
            ahead(raw.bytes_received, raw.rcv_nxt, raw.seq)
        }
        _ => None,
    }
}

/// `count` belongs to sequence number `from`; what belongs to `to`, which may lie on either side.
fn ahead(count: u64, from: u32, to: u32) -> Option<u64> {
    count.checked_add_signed((to.wrapping_sub(from) as i32).into())
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn a_handshake_becomes_the_connection_that_it_led_to() {
        let mut connections = Connections::default();
        let syn = Raw {
            flags: SYN,
            ..event(1, tcp_state::LISTEN, 5)
        };
        let first = connections.place(&syn).unwrap();
        assert_eq!((first.id, first.told.unwrap().cookie), (0, 0));
        let answer = Raw {
            flags: SYN | ACK,
            ..event(0, tcp_state::LISTEN, 5)
        };
        assert_eq!(connections.place(&answer).unwrap().told, None);
        let child = connections
            .place(&event(4, tcp_state::ESTABLISHED, 6))
            .unwrap();
        assert_eq!((child.id, child.told.unwrap().cookie), (0, 6));
        assert_eq!(
            connections
                .place(&event(1, tcp_state::ESTABLISHED, 6))
                .unwrap()
                .told,
            None
        );
    }

    #[test]
    fn a_straggler_at_a_listener_is_no_connection() {
        let straggler = Raw {
            flags: ACK,
            ..event(1, tcp_state::LISTEN, 5)
        };
        assert_eq!(Connections::default().place(&straggler), None);
    }

    #[test]
    fn a_socket_that_connects_again_is_a_new_connection() {
        let mut connections = Connections::default();
        assert_eq!(
            connections
                .place(&event(0, tcp_state::SYN_SENT, 5))
                .unwrap()
                .id,
            0
        );
        assert_eq!(
            connections
                .place(&event(4, tcp_state::CLOSE, 5))
                .unwrap()
                .id,
            0
        );
        assert_eq!(
            connections
                .place(&event(0, tcp_state::CLOSE, 5))
                .unwrap()
                .id,
            0,
            "its reset"
        );
        assert_eq!(
            connections
                .place(&event(0, tcp_state::SYN_SENT, 5))
                .unwrap()
                .id,
            1
        );
        assert_eq!(connections.place(&event(2, tcp_state::CLOSE, 77)), None);
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
        assert_eq!(connections.place(&sent).unwrap().offset, Some(1_500));
        let again = Raw {
            seq: 1_000,
            snd_nxt: 1_600,
            bytes_sent: 1_700,
            bytes_retrans: 100,
            ..sent.clone()
        };
        assert_eq!(connections.place(&again).unwrap().offset, Some(1_000));
        // The end that was connected to.
        let sent = Raw {
            cookie: 6,
            bytes_acked: 1_000,
            ..sent
        };
        assert_eq!(connections.place(&sent).unwrap().offset, Some(1_500));
        let received = Raw {
            seq: 90,
            payload: 10,
            rcv_nxt: 100,
            bytes_received: 40,
            ..event(1, tcp_state::ESTABLISHED, 6)
        };
        assert_eq!(connections.place(&received).unwrap().offset, Some(30));
    }

    #[test]
    fn what_never_ends_is_bounded() {
        let mut connections = Connections::default();
        for cookie in 0..2 * CLOSED as u64 {
            connections.place(&event(4, tcp_state::CLOSE, cookie));
        }
        assert!(connections.known.len() <= CLOSED + 1);
    }
}

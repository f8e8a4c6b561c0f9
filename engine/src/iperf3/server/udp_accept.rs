//! Accepts UDP streams: one connected socket for each client on the shared port (`SO_REUSEPORT`), to which the kernel
//! prefers to deliver.
//!
//! A connect datagram carries no cookie, only an address. So one test at a time is expected from each client address,
//! and nothing is sent to an address from which no test is expected.

use super::reservations::{Reservation, Reservations};
use crate::prelude::*;
use std::collections::VecDeque;
use std::io;
use std::net::UdpSocket;
use wire::iperf3::connect_reply;

/// Between two looks at whether the server is to stop.
const TICK: Duration = Duration::from_millis(100);
/// Connect datagrams of other clients that are requeued at most while one stream is set up.
const MAX_REQUEUED: usize = 64;

/// The listening socket, and the tests that expect streams.
pub struct UdpAcceptor {
    listening: UdpSocket,
    port: u16,
    expected: Reservations<IpAddr, UdpSocket, Expected>,
}

/// A test that expects streams from one address.
pub struct Expected {
    /// Where its client reached this host.
    local: IpAddr,
    /// Client addresses that have a stream: a repeated connect datagram opens no second one.
    connected: Vec<SocketAddr>,
}

impl UdpAcceptor {
    /// Accepts streams at the address of the TCP listener.
    pub fn open(local: SocketAddr) -> io::Result<UdpAcceptor> {
        let listening = sys::udp::bind_shared(local)?;
        listening.set_read_timeout(Some(TICK))?;
        Ok(UdpAcceptor {
            listening,
            port: local.port(),
            expected: Reservations::new(),
        })
    }

    /// Expects `count` streams from `peer`, who reached this host at `local`: connected sockets, in the order of
    /// their connect datagrams. `None` while another test of the same peer expects some.
    pub fn expect(
        &self,
        peer: IpAddr,
        local: IpAddr,
        count: usize,
    ) -> io::Result<Option<Reservation<'_, IpAddr, UdpSocket, Expected>>> {
        let connected = Vec::new();
        let expected = Expected { local, connected };
        self.expected.reserve(peer.to_canonical(), count, expected)
    }

    /// Accepts streams until `stop` is set.
    pub fn run(&self, stop: &AtomicBool) {
        let mut buffer = [0; 64];
        while !stop.load(Ordering::Relaxed) {
            // Errors are of single datagrams (an ICMP answer), or the tick of the timeout.
            let Ok((length, from)) = self.listening.recv_from(&mut buffer) else {
                continue;
            };
            let mut queue = VecDeque::from([(buffer[..length].to_vec(), from)]);
            while let Some((datagram, from)) = queue.pop_front() {
                self.on_connect(&datagram, from, &mut queue);
            }
        }
    }

    fn on_connect(
        &self,
        datagram: &[u8],
        from: SocketAddr,
        requeue: &mut VecDeque<(Vec<u8>, SocketAddr)>,
    ) {
        let Some(reply) = connect_reply(datagram) else {
            return;
        };
        self.expected.give(&from.ip().to_canonical(), |test| {
            if test.connected.contains(&from) {
                return None;
            }
            // A failure here leaves the client without an answer; it says so, and its test ends at the deadline.
            let stream = self.connected(test.local, from, requeue).ok()?;
            stream.send(&reply).ok()?;
            test.connected.push(from);
            Some(stream)
        });
    }

    /// A socket on the same port that is connected to `peer`. Between its binding and its connecting
    /// the kernel may deliver datagrams of other clients to it; they are requeued.
    fn connected(
        &self,
        local: IpAddr,
        peer: SocketAddr,
        requeue: &mut VecDeque<(Vec<u8>, SocketAddr)>,
    ) -> io::Result<UdpSocket> {
        let socket = sys::udp::bind_shared(SocketAddr::new(local, self.port))?;
        socket.connect(peer)?;
        socket.set_nonblocking(true)?;
        let mut buffer = [0; 64];
        while requeue.len() < MAX_REQUEUED {
            match socket.recv_from(&mut buffer) {
                Ok((length, from)) => requeue.push_back((buffer[..length].to_vec(), from)),
                Err(_) => break,
            }
        }
        socket.set_nonblocking(false)?;
        Ok(socket)
    }
}

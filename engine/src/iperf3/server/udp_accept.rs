//! Accepts UDP streams: one connected socket for each client on the shared port (`SO_REUSEADDR`), to which the kernel
//! prefers to deliver.
//!
//! A connect datagram carries no cookie, only an address. So one test at a time is expected from each client address,
//! and nothing is sent to an address from which no test is expected.

use super::server_state::lock;
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use sys::poll::Waker;
use wire::iperf3::connect_reply;

/// Between two looks at whether the server is to stop.
const TICK: Duration = Duration::from_millis(100);
/// Connect datagrams of other clients that are requeued at most while one stream is set up.
const MAX_REQUEUED: usize = 64;

/// The listening socket, and the tests that expect streams.
pub struct UdpAcceptor {
    listening: UdpSocket,
    port: u16,
    expected: Mutex<Vec<Expected>>,
}

/// The streams that one test expects.
struct Expected {
    peer: IpAddr,
    local: IpAddr,
    left: usize,
    /// Client addresses that have a stream: a repeated connect datagram opens no second one.
    connected: Vec<SocketAddr>,
    to: Sender<UdpSocket>,
    waker: Arc<Waker>,
}

/// Streams that a test expects; no more are accepted once it is dropped.
pub struct Pending<'a> {
    acceptor: &'a UdpAcceptor,
    peer: IpAddr,
    /// The connected sockets, in the order of their connect datagrams.
    pub streams: Receiver<UdpSocket>,
    /// Woken for each.
    pub waker: Arc<Waker>,
}

impl UdpAcceptor {
    /// Accepts streams at the address of the TCP listener.
    pub fn open(local: SocketAddr) -> io::Result<UdpAcceptor> {
        let listening = sys::udp::bind_shared(local)?;
        listening.set_read_timeout(Some(TICK))?;
        Ok(UdpAcceptor {
            listening,
            port: local.port(),
            expected: Mutex::default(),
        })
    }

    /// Expects `count` streams from `peer`, who reached this host at `local`; `None`
    /// while another test of the same peer expects some.
    pub fn expect(
        &self,
        peer: IpAddr,
        local: IpAddr,
        count: usize,
    ) -> io::Result<Option<Pending<'_>>> {
        let peer = peer.to_canonical();
        let waker = Arc::new(Waker::new()?);
        let mut expected = lock(&self.expected);
        if expected.iter().any(|test| test.peer == peer) {
            return Ok(None);
        }
        let (to, streams) = mpsc::channel();
        expected.push(Expected {
            peer,
            local,
            left: count,
            connected: Vec::new(),
            to,
            waker: Arc::clone(&waker),
        });
        Ok(Some(Pending {
            acceptor: self,
            peer,
            streams,
            waker,
        }))
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
        let mut expected = lock(&self.expected);
        let wanted = |test: &&mut Expected| {
            test.peer == from.ip().to_canonical()
                && test.left > 0
                && !test.connected.contains(&from)
        };
        let Some(test) = expected.iter_mut().find(wanted) else {
            return;
        };
        // A failure here leaves the client without an answer; it says so, and its test ends at the
        // deadline.
        let Ok(stream) = self.connected(test.local, from, requeue) else {
            return;
        };
        if stream.send(&reply).is_ok() {
            test.left -= 1;
            test.connected.push(from);
            let _ = test.to.send(stream);
            test.waker.wake();
        }
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

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        let mut expected = lock(&self.acceptor.expected);
        expected.retain(|test| test.peer != self.peer);
    }
}

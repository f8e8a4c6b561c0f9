//! Where UDP streams begin. All clients greet the same port; each stream then gets a socket of its
//! own, bound to that port and connected to its client, to which the kernel prefers to deliver.
//!
//! A greeting carries no cookie, only an address. So one test at a time is set up for each client
//! address, and nothing is ever sent to an address for which no test waits.

use super::house::lock;
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use sys::poll::Waker;
use wire::iperf3::connect_reply;

/// How soon the desk notices that the server is to stop.
const TICK: Duration = Duration::from_millis(100);
/// Greetings that are put back at most while one stream is set up.
const MAX_PUT_BACK: usize = 64;

/// The listening socket, and the tests that wait for streams.
pub struct Desk {
    listening: UdpSocket,
    port: u16,
    claims: Mutex<Vec<Claim>>,
}

struct Claim {
    peer: IpAddr,
    local: IpAddr,
    left: usize,
    /// Clients that greeted: a repeated greeting opens no second stream.
    seen: Vec<SocketAddr>,
    to: Sender<UdpSocket>,
    waker: Arc<Waker>,
}

/// A test that waits for its streams, until it goes.
pub struct Waiting<'a> {
    desk: &'a Desk,
    peer: IpAddr,
    /// The connected sockets, in the order of the greetings.
    pub streams: Receiver<UdpSocket>,
    /// Rung for each.
    pub waker: Arc<Waker>,
}

impl Desk {
    /// Takes greetings at the address of the TCP listener.
    pub fn open(local: SocketAddr) -> io::Result<Desk> {
        let listening = sys::udp::bind_shared(local)?;
        listening.set_read_timeout(Some(TICK))?;
        Ok(Desk {
            listening,
            port: local.port(),
            claims: Mutex::default(),
        })
    }

    /// Lets a test wait for `count` streams from `peer`, who reached this host at `local`; `None`
    /// while another test of the same peer waits.
    pub fn claim(
        &self,
        peer: IpAddr,
        local: IpAddr,
        count: usize,
    ) -> io::Result<Option<Waiting<'_>>> {
        let peer = peer.to_canonical();
        let waker = Arc::new(Waker::new()?);
        let mut claims = lock(&self.claims);
        if claims.iter().any(|claim| claim.peer == peer) {
            return Ok(None);
        }
        let (to, streams) = mpsc::channel();
        claims.push(Claim {
            peer,
            local,
            left: count,
            seen: Vec::new(),
            to,
            waker: Arc::clone(&waker),
        });
        Ok(Some(Waiting {
            desk: self,
            peer,
            streams,
            waker,
        }))
    }

    /// Takes greetings until `stop` is set.
    pub fn run(&self, stop: &AtomicBool) {
        let mut buffer = [0; 64];
        while !stop.load(Ordering::Relaxed) {
            // Errors are of single datagrams (an ICMP answer), or the tick of the timeout.
            let Ok((length, from)) = self.listening.recv_from(&mut buffer) else {
                continue;
            };
            let mut queue = VecDeque::from([(buffer[..length].to_vec(), from)]);
            while let Some((datagram, from)) = queue.pop_front() {
                self.greet(&datagram, from, &mut queue);
            }
        }
    }

    fn greet(
        &self,
        datagram: &[u8],
        from: SocketAddr,
        put_back: &mut VecDeque<(Vec<u8>, SocketAddr)>,
    ) {
        let Some(reply) = connect_reply(datagram) else {
            return;
        };
        let mut claims = lock(&self.claims);
        let wanted = |claim: &&mut Claim| {
            claim.peer == from.ip().to_canonical() && claim.left > 0 && !claim.seen.contains(&from)
        };
        let Some(claim) = claims.iter_mut().find(wanted) else {
            return;
        };
        // A failure here leaves the client without an answer; it says so, and its test ends at the
        // deadline.
        let Ok(stream) = self.connected(claim.local, from, put_back) else {
            return;
        };
        if stream.send(&reply).is_ok() {
            claim.left -= 1;
            claim.seen.push(from);
            let _ = claim.to.send(stream);
            claim.waker.wake();
        }
    }

    /// A socket on the same port that is connected to `peer`. Between its binding and its connecting
    /// the kernel may deliver greetings of others to it; they are put back.
    fn connected(
        &self,
        local: IpAddr,
        peer: SocketAddr,
        put_back: &mut VecDeque<(Vec<u8>, SocketAddr)>,
    ) -> io::Result<UdpSocket> {
        let socket = sys::udp::bind_shared(SocketAddr::new(local, self.port))?;
        socket.connect(peer)?;
        socket.set_nonblocking(true)?;
        let mut buffer = [0; 64];
        while put_back.len() < MAX_PUT_BACK {
            match socket.recv_from(&mut buffer) {
                Ok((length, from)) => put_back.push_back((buffer[..length].to_vec(), from)),
                Err(_) => break,
            }
        }
        socket.set_nonblocking(false)?;
        Ok(socket)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut claims = lock(&self.desk.claims);
        claims.retain(|claim| claim.peer != self.peer);
    }
}

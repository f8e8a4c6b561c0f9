//! What all sessions share: the data connections that they await, the tests that run, the limits.

use super::Options;
use super::reservations::{Reservation, Reservations, lock};
use super::udp_accept::UdpAcceptor;
use crate::iperf3::auth::Authenticator;
use crate::transport::acceptor::Slots;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use wire::iperf3::Cookie;

/// Sessions at once, those in the queue included.
const MAX_SESSIONS: usize = 64;
/// Sessions at once from one address, so that one client cannot take them all.
const MAX_FROM_ONE: usize = 16;

/// A data connection, with its position in the order of connections.
pub type Arrival = (u64, TcpStream);

/// The state of a server.
pub struct ServerState<'a> {
    /// What it allows.
    pub options: Options,
    /// Tests at the same time.
    pub tests: u32,
    /// Verifies users; `None`: everybody may test.
    pub authenticator: Option<Authenticator>,
    /// Accepts UDP streams.
    pub udp: UdpAcceptor,
    /// The server is to stop.
    pub stop: &'a AtomicBool,
    /// Takes a line about what happened.
    pub log: &'a (dyn Fn(&str) + Sync),
    /// Clients that are served or wait in the queue.
    pub clients: Slots,
    /// The data connections that each session awaits, from the address of its client.
    sessions: Reservations<Cookie, Arrival, IpAddr>,
    running: Mutex<u32>,
}

/// A running test; another may start once it is dropped.
pub struct TestSlot<'a>(&'a ServerState<'a>);

impl<'a> ServerState<'a> {
    /// Opens the socket for datagrams beside the listener at `local`.
    pub fn open(
        options: Options,
        tests: u32,
        authenticator: Option<Authenticator>,
        local: SocketAddr,
        stop: &'a AtomicBool,
        log: &'a (dyn Fn(&str) + Sync),
    ) -> io::Result<ServerState<'a>> {
        Ok(ServerState {
            options,
            tests,
            authenticator,
            udp: UdpAcceptor::open(local)?,
            stop,
            log,
            clients: Slots::new(MAX_SESSIONS, MAX_FROM_ONE),
            sessions: Reservations::new(),
            running: Mutex::default(),
        })
    }

    /// Awaits `count` data connections of the test with this cookie from `peer`; `None` if a test
    /// with the same cookie runs.
    pub fn reserve(
        &self,
        cookie: Cookie,
        peer: IpAddr,
        count: usize,
    ) -> io::Result<Option<Reservation<'_, Cookie, Arrival, IpAddr>>> {
        self.sessions.reserve(cookie, count, peer.to_canonical())
    }

    /// Attaches a connection to the session that its cookie names. Returns it if there is none;
    /// drops it if the session awaits no more, or the peer is another than that of the session.
    pub fn attach(
        &self,
        cookie: &Cookie,
        peer: SocketAddr,
        arrival: u64,
        stream: TcpStream,
    ) -> Option<TcpStream> {
        let mut stream = Some(stream);
        let known = self.sessions.give(cookie, |awaited| {
            let from_client = *awaited == peer.ip().to_canonical();
            let stream = stream.take_if(|_| from_client)?;
            Some((arrival, stream))
        });
        stream.filter(|_| !known)
    }

    /// Starts a test, if there is room for one.
    pub fn acquire_slot(&'a self) -> Option<TestSlot<'a>> {
        let mut running = lock(&self.running);
        if *running >= self.tests {
            return None;
        }
        *running += 1;
        Some(TestSlot(self))
    }
}

impl Drop for TestSlot<'_> {
    fn drop(&mut self) {
        *lock(&self.0.running) -= 1;
    }
}

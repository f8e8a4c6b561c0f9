//! What all sessions share: the sessions that await data connections, the tests that run, the limits.

use super::Options;
use super::udp_accept::UdpAcceptor;
use crate::iperf3::auth::Authenticator;
use crate::transport::acceptor::Slots;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use sys::poll::Waker;
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
    sessions: Mutex<BTreeMap<Cookie, Awaiting>>,
    running: Mutex<u32>,
}

/// A session that awaits data connections.
struct Awaiting {
    peer: IpAddr,
    left: usize,
    to: Sender<Arrival>,
    waker: Arc<Waker>,
}

/// Data connections that a session awaits; no more are attached once it is dropped.
pub struct Reservation<'a> {
    server: &'a ServerState<'a>,
    cookie: Cookie,
    /// The connections.
    pub arrivals: Receiver<Arrival>,
    /// Woken for each.
    pub waker: Arc<Waker>,
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
            sessions: Mutex::default(),
            running: Mutex::default(),
        })
    }

    /// Awaits `count` data connections of the test with this cookie from `peer`; `None` if a test
    /// with the same cookie runs.
    pub fn reserve(
        &'a self,
        cookie: Cookie,
        peer: IpAddr,
        count: usize,
    ) -> io::Result<Option<Reservation<'a>>> {
        let waker = Arc::new(Waker::new()?);
        let (to, arrivals) = mpsc::channel();
        let mut sessions = lock(&self.sessions);
        if sessions.contains_key(&cookie) {
            return Ok(None);
        }
        sessions.insert(
            cookie,
            Awaiting {
                peer: peer.to_canonical(),
                left: count,
                to,
                waker: Arc::clone(&waker),
            },
        );
        Ok(Some(Reservation {
            server: self,
            cookie,
            arrivals,
            waker,
        }))
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
        let mut sessions = lock(&self.sessions);
        let Some(session) = sessions.get_mut(cookie) else {
            return Some(stream);
        };
        if session.peer == peer.ip().to_canonical() && session.left > 0 {
            session.left -= 1;
            // A session that has just ended does not take it: then it closes, as it should.
            let _ = session.to.send((arrival, stream));
            session.waker.wake();
        }
        None
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

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        lock(&self.server.sessions).remove(&self.cookie);
    }
}

impl Drop for TestSlot<'_> {
    fn drop(&mut self) {
        *lock(&self.0.running) -= 1;
    }
}

/// A thread that panicked leaves nothing half done here.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! What all sessions share: who is in, whose data connections are awaited, how many tests run.

use super::Options;
use super::desk::Desk;
use crate::iperf3::auth::Doorkeeper;
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
/// Sessions at once from one address, so that one client cannot fill the house.
const MAX_FROM_ONE: usize = 16;

/// A data connection, with its position in the order of connections.
pub type Arrival = (u64, TcpStream);

/// The state of a server.
pub struct House<'a> {
    /// What it allows.
    pub options: Options,
    /// Tests at the same time.
    pub tests: u32,
    /// Whom it lets in; `None`: everybody.
    pub doorkeeper: Option<Doorkeeper>,
    /// Where datagrams come in.
    pub desk: Desk,
    /// The server is to stop.
    pub stop: &'a AtomicBool,
    /// Takes a line about what happened.
    pub log: &'a (dyn Fn(&str) + Sync),
    guests: Mutex<BTreeMap<IpAddr, usize>>,
    seats: Mutex<BTreeMap<Cookie, Seat>>,
    running: Mutex<u32>,
}

/// A session that awaits data connections.
struct Seat {
    peer: IpAddr,
    left: usize,
    to: Sender<Arrival>,
    waker: Arc<Waker>,
}

/// Ends the waiting for data connections when it goes.
pub struct Reservation<'a> {
    house: &'a House<'a>,
    cookie: Cookie,
    /// The connections.
    pub arrivals: Receiver<Arrival>,
    /// Rung for each.
    pub waker: Arc<Waker>,
}

/// A running test; another may start when it goes.
pub struct Turn<'a>(&'a House<'a>);

impl<'a> House<'a> {
    /// Opens the socket for datagrams beside the listener at `local`.
    pub fn open(
        options: Options,
        tests: u32,
        doorkeeper: Option<Doorkeeper>,
        local: SocketAddr,
        stop: &'a AtomicBool,
        log: &'a (dyn Fn(&str) + Sync),
    ) -> io::Result<House<'a>> {
        Ok(House {
            options,
            tests,
            doorkeeper,
            desk: Desk::open(local)?,
            stop,
            log,
            guests: Mutex::default(),
            seats: Mutex::default(),
            running: Mutex::default(),
        })
    }

    /// Counts a session in; false if there are too many.
    pub fn enter(&self, peer: IpAddr) -> bool {
        let mut guests = lock(&self.guests);
        if guests.values().sum::<usize>() >= MAX_SESSIONS {
            return false;
        }
        let own = guests.entry(peer.to_canonical()).or_default();
        *own += 1;
        if *own > MAX_FROM_ONE {
            *own -= 1;
            return false;
        }
        true
    }

    /// Counts a session out.
    pub fn leave(&self, peer: IpAddr) {
        let mut guests = lock(&self.guests);
        if let Some(own) = guests.get_mut(&peer.to_canonical()) {
            *own -= 1;
            if *own == 0 {
                guests.remove(&peer.to_canonical());
            }
        }
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
        let mut seats = lock(&self.seats);
        if seats.contains_key(&cookie) {
            return Ok(None);
        }
        seats.insert(
            cookie,
            Seat {
                peer: peer.to_canonical(),
                left: count,
                to,
                waker: Arc::clone(&waker),
            },
        );
        Ok(Some(Reservation {
            house: self,
            cookie,
            arrivals,
            waker,
        }))
    }

    /// Hands a connection to the session that its cookie names. Gives it back if there is none;
    /// drops it if the session awaits no more, or the peer is another than that of the session.
    pub fn seat(
        &self,
        cookie: &Cookie,
        peer: SocketAddr,
        arrival: u64,
        stream: TcpStream,
    ) -> Option<TcpStream> {
        let mut seats = lock(&self.seats);
        let Some(seat) = seats.get_mut(cookie) else {
            return Some(stream);
        };
        if seat.peer == peer.ip().to_canonical() && seat.left > 0 {
            seat.left -= 1;
            // A session that has just ended does not take it: then it closes, as it should.
            let _ = seat.to.send((arrival, stream));
            seat.waker.wake();
        }
        None
    }

    /// Starts a test, if there is room for one.
    pub fn turn(&'a self) -> Option<Turn<'a>> {
        let mut running = lock(&self.running);
        if *running >= self.tests {
            return None;
        }
        *running += 1;
        Some(Turn(self))
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        lock(&self.house.seats).remove(&self.cookie);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *lock(&self.0.running) -= 1;
    }
}

/// A thread that panicked leaves nothing half done here.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

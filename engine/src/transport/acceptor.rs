//! Accepts TCP connections: for agents, data connections, iperf3 clients, probes and browsers.
//!
//! A connection that has not authenticated itself costs nobody else anything: a [`Gate`] bounds how many there are, and
//! what it must send first has a deadline.

use crate::prelude::*;
use std::io;
use std::net::{Ipv6Addr, TcpListener};
use sys::poll::{PollFd, poll};

/// Connections that are accepted before others are read again.
const AT_ONCE: usize = 64;

/// After an error that lasts (no file descriptor is left), before the next attempt to accept.
const RETRY_AFTER: Duration = Duration::from_millis(50);

/// What an [`Acceptor`] allows.
#[derive(Clone, Debug)]
pub struct AcceptorLimits {
    /// Bytes that a connection sends before it is ready; 0: it is ready at once.
    pub prefix: usize,
    /// For these bytes to arrive.
    pub within: Duration,
    /// What connections meet that the [`Gate`] has no room for.
    pub when_full: WhenFull,
    /// The one address that connections are accepted from, if it is known.
    pub only: Option<IpAddr>,
}

/// Who decides whether a connection is kept.
pub trait AcceptorGate {
    /// Counts a connection until it is dropped.
    type Pass;

    /// Admits a connection, if there is room for it.
    fn enter(&self, stream: &TcpStream, peer: IpAddr) -> Option<Self::Pass>;

    /// Whether nobody is admitted now.
    fn is_full(&self) -> bool;
}

/// What happens to a connection for which there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// It is handed to the caller as [`Arrival::Refused`].
    Refuse,
    /// It waits in the listener's backlog.
    Wait,
}

/// What there may be at once: in all, and for one key (of connections their [`source`]). Clones count together.
#[derive(Clone)]
pub struct Slots<K = IpAddr>(Arc<SlotTable<K>>);

struct SlotTable<K> {
    most: usize,
    per_key: usize,
    taken: Mutex<BTreeMap<K, usize>>,
}

/// One of the [`Slots`], free again when it is dropped.
pub struct Slot<K: Ord + Copy = IpAddr> {
    slots: Slots<K>,
    key: K,
}

/// Where a connection comes from (IPv4: an address; IPv6: a /64, of which one host may use any address).
pub fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from(u128::from(v6) & !u128::from(u64::MAX)).into(),
        v4 @ IpAddr::V4(_) => v4,
    }
}

impl<K: Ord + Copy> Slots<K> {
    /// `most` in all, `per_key` for one key.
    pub fn new(most: usize, per_key: usize) -> Slots<K> {
        Slots(Arc::new(SlotTable {
            most,
            per_key,
            taken: Mutex::default(),
        }))
    }

    /// A slot for this key, if one is free.
    pub fn take(&self, key: K) -> Option<Slot<K>> {
        let mut taken = sys::lock(&self.0.taken);
        let here = taken.get(&key).copied().unwrap_or_default();
        if taken.values().sum::<usize>() >= self.0.most || here >= self.0.per_key {
            return None;
        }
        taken.insert(key, here + 1);
        let slots = self.clone();
        Some(Slot { slots, key })
    }
}

impl AcceptorGate for Slots {
    type Pass = Slot;

    fn enter(&self, _: &TcpStream, peer: IpAddr) -> Option<Slot> {
        self.take(source(peer))
    }

    fn is_full(&self) -> bool {
        sys::lock(&self.0.taken).values().sum::<usize>() >= self.0.most
    }
}

impl<K: Ord + Copy> Drop for Slot<K> {
    fn drop(&mut self) {
        let mut taken = sys::lock(&self.slots.0.taken);
        match taken.get_mut(&self.key) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(taken.remove(&self.key)),
        }
    }
}

/// A connection that has sent its prefix, in blocking mode.
pub struct ReadyConn<P = Slot> {
    /// The connection.
    pub stream: TcpStream,
    /// Its remote address; that of an IPv4 client as IPv4.
    pub peer: SocketAddr,
    /// What it sent first: [`AcceptorLimits::prefix`] bytes.
    pub prefix: Vec<u8>,
    /// Its position in the order in which connections were accepted.
    pub number: u64,
    /// Of the [`Gate`].
    pub pass: P,
}

/// What [`Acceptor::poll`] returns.
pub enum Arrival<P = Slot> {
    /// A connection to be served.
    Ready(ReadyConn<P>),
    /// One for which there is no room, in non-blocking mode.
    Refused(TcpStream, SocketAddr),
    /// A connection could not be accepted; the next ones may be.
    Failed(io::Error),
}

/// Accepts from some listeners.
pub struct Acceptor<'a, G: AcceptorGate = Slots> {
    listeners: Vec<&'a TcpListener>,
    limits: AcceptorLimits,
    gate: G,
    /// Connections that have not sent their prefix yet, and until when each may.
    pending: Vec<(ReadyConn<G::Pass>, Instant)>,
    accepted: u64,
    /// No listener is read before.
    pause: Option<Instant>,
}

impl<'a, G: AcceptorGate> Acceptor<'a, G> {
    /// Accepts from `listeners`, which are in non-blocking mode.
    pub fn new(
        listeners: impl IntoIterator<Item = &'a TcpListener>,
        limits: AcceptorLimits,
        gate: G,
    ) -> Acceptor<'a, G> {
        Acceptor {
            listeners: listeners.into_iter().collect(),
            limits,
            gate,
            pending: Vec::new(),
            accepted: 0,
            pause: None,
        }
    }

    /// Waits for connections and their bytes for `timeout` at most. A connection that closes, breaks or sends
    /// nothing in time is dropped.
    pub fn poll(&mut self, timeout: Duration) -> io::Result<Vec<Arrival<G::Pass>>> {
        let now = Instant::now();
        self.pending.retain(|(_, until)| now < *until);
        self.pause = self.pause.filter(|until| now < *until);
        let full = self.limits.when_full == WhenFull::Wait && self.gate.is_full();
        let accepting = !full && self.pause.is_none();
        let next = self.pending.iter().map(|(_, until)| *until);
        let next = next.chain(self.pause).min();
        let timeout = next.map_or(timeout, |next| timeout.min(next - now));
        let pending = self.pending.iter().map(|(conn, _)| conn.stream.as_fd());
        let listeners = self.listeners.iter().map(|listener| listener.as_fd());
        let mut fds: Vec<PollFd<'_>> = pending
            .map(|fd| PollFd::new(fd, true, false))
            .chain(listeners.map(|fd| PollFd::new(fd, accepting, false)))
            .collect();
        poll(&mut fds, Some(timeout))?;
        let ready: Vec<bool> = fds.iter().map(PollFd::readable).collect();
        drop(fds);

        let (of_pending, of_listeners) = ready.split_at(self.pending.len());
        let mut arrivals = Vec::new();
        let pending = std::mem::take(&mut self.pending);
        for ((mut conn, until), ready) in pending.into_iter().zip(of_pending) {
            match !*ready || conn.read(self.limits.prefix) {
                true if conn.prefix.len() < self.limits.prefix => self.pending.push((conn, until)),
                true => arrivals.push(Arrival::Ready(conn)),
                false => {}
            }
        }
        for (listener, ready) in self.listeners.clone().into_iter().zip(of_listeners) {
            if accepting && *ready {
                self.accept(listener, &mut arrivals);
            }
        }
        Ok(arrivals)
    }

    /// Accepts what waits, as far as other connections need not be read in between.
    fn accept(&mut self, listener: &TcpListener, arrivals: &mut Vec<Arrival<G::Pass>>) {
        for _ in 0..AT_ONCE {
            if self.limits.when_full == WhenFull::Wait && self.gate.is_full() {
                return;
            }
            match listener.accept() {
                Ok((stream, peer)) => {
                    let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
                    if self.limits.only.is_none_or(|only| only == peer.ip()) {
                        arrivals.extend(self.admit(stream, peer));
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // Errors of one connection that is gone already (accept(2)).
                Err(error) if is_passing(&error) => {}
                Err(error) => {
                    self.pause = Some(Instant::now() + RETRY_AFTER);
                    return arrivals.push(Arrival::Failed(error));
                }
            }
        }
    }

    fn admit(&mut self, stream: TcpStream, peer: SocketAddr) -> Option<Arrival<G::Pass>> {
        let Some(pass) = self.gate.enter(&stream, peer.ip()) else {
            stream.set_nonblocking(true).ok()?;
            return Some(Arrival::Refused(stream, peer));
        };
        self.accepted += 1;
        let conn = ReadyConn {
            stream,
            peer,
            prefix: Vec::with_capacity(self.limits.prefix),
            number: self.accepted,
            pass,
        };
        if self.limits.prefix == 0 {
            return Some(Arrival::Ready(conn));
        }
        conn.stream.set_nonblocking(true).ok()?;
        let until = Instant::now() + self.limits.within;
        self.pending.push((conn, until));
        None
    }
}

impl<P> ReadyConn<P> {
    /// Reads on until `length` bytes are there; false if they will never be.
    fn read(&mut self, length: usize) -> bool {
        let missing = length - self.prefix.len();
        let mut reader = (&self.stream).take(missing as u64);
        match reader.read_to_end(&mut self.prefix) {
            Err(error) if !is_passing(&error) => false,
            _ if self.prefix.len() == length => self.stream.set_nonblocking(false).is_ok(),
            read => read.is_err(),
        }
    }
}

/// An error of one connection or one moment, not of the listener (accept(2)).
pub fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionAborted
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::Ipv4Addr;

    const SOON: Duration = Duration::from_secs(10);

    fn listener() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    fn limits(prefix: usize, within: Duration, when_full: WhenFull) -> AcceptorLimits {
        AcceptorLimits {
            prefix,
            within,
            when_full,
            only: None,
        }
    }

    /// The next `count` arrivals.
    fn arrivals(acceptor: &mut Acceptor<'_>, count: usize) -> Vec<Arrival> {
        let until = Instant::now() + SOON;
        let mut all = Vec::new();
        while all.len() < count && Instant::now() < until {
            all.extend(acceptor.poll(Duration::from_millis(20)).unwrap());
        }
        assert_eq!(all.len(), count);
        all
    }

    fn ready(acceptor: &mut Acceptor<'_>) -> ReadyConn {
        match arrivals(acceptor, 1).pop() {
            Some(Arrival::Ready(conn)) => conn,
            _ => panic!("no connection is ready"),
        }
    }

    #[test]
    fn a_prefix_in_pieces_is_whole_and_what_follows_it_stays_unread() {
        let (listener, address) = listener();
        let limits = limits(4, SOON, WhenFull::Refuse);
        let mut acceptor = Acceptor::new([&listener], limits, Slots::new(8, 8));
        let silent = TcpStream::connect(address).unwrap();
        let mut pieces = TcpStream::connect(address).unwrap();
        pieces.write_all(b"ab").unwrap();
        while acceptor.pending.len() < 2 || acceptor.pending[1].0.prefix.len() < 2 {
            assert!(acceptor.poll(SOON).unwrap().is_empty());
        }
        pieces.write_all(b"cdef").unwrap();
        let mut conn = ready(&mut acceptor);
        assert_eq!((&conn.prefix[..], conn.number), (&b"abcd"[..], 2));
        let mut rest = [0; 2];
        conn.stream.read_exact(&mut rest).unwrap();
        assert_eq!(&rest, b"ef");
        drop(silent);
    }

    #[test]
    fn a_silent_connection_is_dropped_at_its_deadline_and_frees_its_slot() {
        let (listener, address) = listener();
        let slots = Slots::new(1, 1);
        let limits = limits(1, Duration::from_millis(30), WhenFull::Wait);
        let mut acceptor = Acceptor::new([&listener], limits, slots);
        let mut silent = TcpStream::connect(address).unwrap();
        while acceptor.pending.is_empty() {
            acceptor.poll(SOON).unwrap();
        }
        let mut next = TcpStream::connect(address).unwrap();
        next.write_all(b"x").unwrap();
        assert_eq!(ready(&mut acceptor).prefix, b"x");
        silent.set_read_timeout(Some(SOON)).unwrap();
        assert_eq!(silent.read(&mut [0]).unwrap(), 0);
    }

    #[test]
    fn slots_are_bounded_in_all_and_by_source() {
        let slots = Slots::new(3, 2);
        let v4 = |last| IpAddr::from([192, 0, 2, last]);
        let v6 = |last| IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, last]);
        let first = slots.take(source(v6(1))).unwrap();
        let _second = slots.take(source(v6(2))).unwrap();
        assert!(slots.take(source(v6(3))).is_none(), "one /64 is one source");
        let mapped = "::ffff:192.0.2.1".parse().unwrap();
        let _third = slots.take(source(mapped)).unwrap();
        assert!(slots.take(source(v4(2))).is_none(), "three in all");
        drop(first);
        assert!(
            slots.take(source(v4(1))).is_some(),
            "a mapped address is IPv4"
        );
    }

    #[test]
    fn beyond_the_slots_connections_are_refused_or_wait() {
        for when_full in [WhenFull::Refuse, WhenFull::Wait] {
            let (listener, address) = listener();
            let limits = limits(0, SOON, when_full);
            let mut acceptor = Acceptor::new([&listener], limits, Slots::new(1, 1));
            let _clients = [(); 2].map(|()| TcpStream::connect(address).unwrap());
            match when_full {
                WhenFull::Refuse => {
                    let both = arrivals(&mut acceptor, 2);
                    assert!(matches!(
                        both[..],
                        [Arrival::Ready(_), Arrival::Refused(..)]
                    ));
                }
                WhenFull::Wait => {
                    let first = ready(&mut acceptor);
                    assert!(acceptor.poll(Duration::from_millis(50)).unwrap().is_empty());
                    drop(first);
                    assert_eq!(ready(&mut acceptor).number, 2);
                }
            }
        }
    }

    #[test]
    fn other_addresses_than_the_expected_one_are_dropped() {
        let (listener, address) = listener();
        let limits = AcceptorLimits {
            only: Some([127, 0, 0, 2].into()),
            ..limits(0, SOON, WhenFull::Refuse)
        };
        let mut acceptor = Acceptor::new([&listener], limits, Slots::new(1, 1));
        let mut dropped = TcpStream::connect(address).unwrap();
        assert!(acceptor.poll(SOON).unwrap().is_empty());
        dropped.set_read_timeout(Some(SOON)).unwrap();
        assert_eq!(dropped.read(&mut [0]).unwrap(), 0);
    }

    #[test]
    fn an_error_of_one_connection_passes() {
        use ErrorKind::*;
        let passing = |kind: ErrorKind| is_passing(&kind.into());
        assert!(
            [WouldBlock, Interrupted, ConnectionAborted]
                .into_iter()
                .all(passing)
        );
        assert!(
            ![ConnectionReset, NotFound, UnexpectedEof]
                .into_iter()
                .any(passing)
        );
    }

    #[test]
    fn a_key_has_as_many_slots_as_were_taken_for_it() {
        let slots: Slots<u8> = Slots::new(10, 2);
        let (first, second) = (slots.take(1).unwrap(), slots.take(1).unwrap());
        assert!(slots.take(1).is_none() && slots.take(2).is_some());
        drop(first);
        let third = slots.take(1).unwrap();
        assert!(slots.take(1).is_none());
        drop((second, third));
        assert!(
            sys::lock(&slots.0.taken).is_empty(),
            "nothing is kept of a key"
        );
    }

    #[test]
    fn a_connection_that_closes_before_its_prefix_is_dropped() {
        let (listener, address) = listener();
        let limits = limits(4, SOON, WhenFull::Refuse);
        let mut acceptor = Acceptor::new([&listener], limits, Slots::new(8, 8));
        let mut closes = TcpStream::connect(address).unwrap();
        closes.write_all(b"abc").unwrap();
        while acceptor
            .pending
            .first()
            .is_none_or(|(conn, _)| conn.prefix.len() < 3)
        {
            assert!(acceptor.poll(SOON).unwrap().is_empty());
        }
        drop(closes);
        while !acceptor.pending.is_empty() {
            assert!(acceptor.poll(SOON).unwrap().is_empty());
        }
        assert!(!Slots::new(1, 1).is_full());
    }

    #[test]
    fn a_refused_connection_does_not_block() {
        let (listener, address) = listener();
        let limits = limits(0, SOON, WhenFull::Refuse);
        let mut acceptor = Acceptor::new([&listener], limits, Slots::new(0, 1));
        let _client = TcpStream::connect(address).unwrap();
        match arrivals(&mut acceptor, 1).pop() {
            Some(Arrival::Refused(mut stream, peer)) => {
                assert_eq!(peer.ip(), address.ip());
                let error = stream.read(&mut [0]).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
            }
            _ => panic!("it is refused"),
        }
    }

    #[test]
    fn nothing_is_accepted_in_a_pause() {
        let (listener, address) = listener();
        let limits = limits(0, SOON, WhenFull::Refuse);
        let mut acceptor = Acceptor::new([&listener], limits, Slots::new(8, 8));
        let _client = TcpStream::connect(address).unwrap();
        acceptor.pause = Some(Instant::now() + Duration::from_secs(3600));
        assert!(acceptor.poll(Duration::from_millis(1)).unwrap().is_empty());
        acceptor.pause = Some(Instant::now());
        assert_eq!(ready(&mut acceptor).number, 1);
        assert_eq!(acceptor.pause, None);
    }
}

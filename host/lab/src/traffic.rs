//! Transfers of the lab's own: others' TCP on the same path, and hosts that read slowly.

use crate::Error;
use crate::emulator_counters::{ReaderCounters, TrafficCounters};
use crate::netns::in_net;
use emulate::Traffic;
use model::{BitRate, Nanos};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use sys::namespace;

/// The discard protocol's (RFC 863).
pub(crate) const DISCARD: u16 = 9;

/// Connections that one host reads at a time; more are closed at once.
const MAX_CONNECTIONS: usize = 256;

/// Bytes of a read or a write, or less for a slow one: what comes in such a time.
const CHUNK: usize = 64 * 1024;
const CHUNK_TIME: Nanos = Nanos::from_millis(10);

/// The most that waits to be sent in a connection.
const UNSENT: i32 = 2 * CHUNK as i32;

/// How long a connection, a write, or the next try after a failure is waited for.
const CONNECT: Duration = Duration::from_secs(5);
const WRITE: Duration = Duration::from_millis(100);
const AGAIN: Duration = Duration::from_secs(1);

/// A rate that its users keep together.
struct TrafficPace {
    rate: Option<BitRate>,
    next: Mutex<Instant>,
}

impl TrafficPace {
    fn new(rate: Option<BitRate>) -> TrafficPace {
        TrafficPace {
            rate,
            next: Mutex::new(Instant::now()),
        }
    }

    fn chunk(&self) -> usize {
        let most = self.rate.map(|rate| rate.bytes_in(CHUNK_TIME).0);
        most.map_or(CHUNK, |most| most.clamp(1, CHUNK as u64) as usize)
    }

    /// Waits until so many bytes more may have passed.
    fn wait(&self, bytes: usize) {
        let Some(rate) = self.rate else { return };
        let took = Duration::from_secs_f64(bytes as f64 * 8.0 / rate.0 as f64);
        let until = {
            let mut next = sys::lock(&self.next);
            let now = Instant::now();
            // Who was woken late makes up for it, but not for a time without work.
            let earliest = now.checked_sub(CHUNK_TIME.into()).unwrap_or(now);
            *next = next.max(earliest) + took;
            *next
        };
        thread::sleep(until.saturating_duration_since(Instant::now()));
    }
}

/// A host that reads what comes to its discard port.
pub(crate) struct TrafficReader {
    host: String,
    counts: Arc<TrafficCounts>,
}

#[derive(Default)]
struct TrafficCounts {
    connections: AtomicU64,
    failed: AtomicU64,
    bytes: AtomicU64,
}

impl TrafficReader {
    pub(crate) fn start(
        host: &str,
        net: &OwnedFd,
        rate: Option<BitRate>,
    ) -> Result<TrafficReader, Error> {
        let system = || Error::system(format!("listen at the discard port of {host}"));
        // A socket stays in the namespace in which it was made.
        let listener = in_net(net, || {
            // Both families; IPv4 alone where there is no IPv6.
            TcpListener::bind((Ipv6Addr::UNSPECIFIED, DISCARD))
                .or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, DISCARD)))
                .map_err(system())
        })?;
        let counts = Arc::new(TrafficCounts::default());
        let reader = TrafficReader {
            host: host.to_owned(),
            counts: Arc::clone(&counts),
        };
        let pace = Arc::new(TrafficPace::new(rate));
        sys::spawn("discard", move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else {
                    // No descriptor is left: some time later there may be.
                    thread::sleep(AGAIN);
                    continue;
                };
                counts.connections.fetch_add(1, Ordering::Relaxed);
                // Each connection holds the pace.
                if Arc::strong_count(&pace) > MAX_CONNECTIONS {
                    continue;
                }
                let (counts, pace) = (Arc::clone(&counts), Arc::clone(&pace));
                // Without a thread for it the connection is closed.
                let _ = sys::spawn("discard", move || discard(stream, &pace, &counts));
            }
        })
        .map_err(system())?;
        Ok(reader)
    }

    pub(crate) fn counters(&self) -> ReaderCounters {
        ReaderCounters {
            host: self.host.clone(),
            connections: self.counts.connections.load(Ordering::Relaxed),
            bytes: self.counts.bytes.load(Ordering::Relaxed),
        }
    }
}

fn discard(mut stream: TcpStream, pace: &TrafficPace, counts: &TrafficCounts) {
    let mut buffer = vec![0; pace.chunk()];
    while let Ok(got @ 1..) = stream.read(&mut buffer) {
        counts.bytes.fetch_add(got as u64, Ordering::Relaxed);
        pace.wait(got);
    }
}

/// Connections that come and go.
pub(crate) struct TrafficSender {
    name: String,
    counts: Arc<TrafficCounts>,
}

impl TrafficSender {
    pub(crate) fn start(
        traffic: &Traffic,
        net: &OwnedFd,
        to: SocketAddr,
    ) -> Result<TrafficSender, Error> {
        let system = || Error::system(format!("start the traffic {}", traffic.name));
        let counts = Arc::new(TrafficCounts::default());
        for _ in 0..traffic.streams {
            let (traffic, counts) = (traffic.clone(), Arc::clone(&counts));
            let net = net.try_clone().map_err(system())?;
            sys::spawn("traffic", move || {
                if namespace::enter_net(net.as_fd()).is_ok() {
                    send(&traffic, to, &counts);
                }
            })
            .map_err(system())?;
        }
        Ok(TrafficSender {
            name: traffic.name.clone(),
            counts,
        })
    }

    pub(crate) fn counters(&self) -> TrafficCounters {
        TrafficCounters {
            name: self.name.clone(),
            connections: self.counts.connections.load(Ordering::Relaxed),
            failed: self.counts.failed.load(Ordering::Relaxed),
            sent: self.counts.bytes.load(Ordering::Relaxed),
        }
    }
}

/// Never ends; the process does.
fn send(traffic: &Traffic, to: SocketAddr, counts: &TrafficCounts) {
    let pace = TrafficPace::new(traffic.rate);
    let chunk = vec![0; pace.chunk()];
    loop {
        let until = (traffic.off > Nanos(0)).then(|| Instant::now() + traffic.on.into());
        if transfer(traffic, to, &chunk, &pace, until, counts).is_err() {
            counts.failed.fetch_add(1, Ordering::Relaxed);
            thread::sleep(AGAIN);
        }
        thread::sleep(traffic.off.into());
    }
}

/// One connection, until its time is over; an error if it broke before.
fn transfer(
    traffic: &Traffic,
    to: SocketAddr,
    chunk: &[u8],
    pace: &TrafficPace,
    until: Option<Instant>,
    counts: &TrafficCounts,
) -> io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&to, CONNECT)?;
    stream.set_write_timeout(Some(WRITE))?;
    // What waits to be sent at the end is sent in the silence.
    let option = sys::socket::NOTSENT_LOWAT;
    sys::socket::set(stream.as_fd(), option, UNSENT)?;
    if let Some(name) = &traffic.congestion {
        sys::socket::set_congestion(stream.as_fd(), name)?;
    }
    counts.connections.fetch_add(1, Ordering::Relaxed);
    while until.is_none_or(|until| Instant::now() < until) {
        match stream.write(chunk) {
            Ok(sent) => {
                counts.bytes.fetch_add(sent as u64, Ordering::Relaxed);
                pace.wait(sent);
            }
            // The path takes no more for now; the time may be over.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

//! Datagrams at a set rate, one thread a stream. What stands in them is the caller's: this engine
//! knows no protocol.

use crate::{Error, lock};
use model::{BitRate, Bytes, Datagrams, LegLimit, Nanos};
use std::io;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use sys::udp::{self, BATCH, ReceiveBatch};

/// How soon a thread notices that it is to stop.
const STOP_WITHIN: Duration = Duration::from_millis(50);

/// A sender that fell behind (its thread did not run) catches up at most this much; the rest is not
/// sent. More would be a burst that no path was asked to take.
const CATCH_UP: Duration = Duration::from_millis(50);

/// A peer that answers nothing but "port unreachable" for this long is gone.
const GONE_AFTER: Duration = Duration::from_secs(3);

/// The largest payload of a UDP datagram over IPv4.
const LARGEST: usize = 65_507;

/// What a sender of datagrams is to do.
#[derive(Clone, Debug, PartialEq)]
pub struct UdpJob {
    /// Payload of each stream in bits per second; `None`: as fast as it goes.
    pub rate: Option<BitRate>,
    /// Payload of a datagram in bytes.
    pub size: Bytes,
    /// When the sender stops.
    pub limit: LegLimit,
    /// Processors for the stream threads, given out in turn; empty: the scheduler's choice.
    pub cpus: Vec<u32>,
}

/// Writes into a datagram that is about to leave: number (from 1), and time since 1970.
pub type Stamp = Arc<dyn Fn(&mut [u8], u64, Nanos) + Send + Sync>;

/// Counts the datagrams of one stream at its receiver.
pub trait Count: Send {
    /// Takes a datagram that arrived at `at` since 1970; false: the sender says that it is done.
    fn count(&mut self, datagram: &[u8], at: Nanos) -> bool;
    /// The counts so far.
    fn totals(&self) -> Datagrams;
}

/// What a finished load of datagrams did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UdpOutcome {
    /// Payload bytes of each stream, sent or received.
    pub bytes: Vec<Bytes>,
    /// Counts of each stream.
    pub datagrams: Vec<Datagrams>,
    /// From the first datagram of any stream to the last.
    pub duration: Nanos,
    /// Streams that broke: number and sentence.
    pub errors: Vec<(u32, String)>,
}

/// A running load of datagrams.
pub struct UdpLoad {
    streams: Vec<Arc<Stream>>,
    shared: Arc<UdpShared>,
    threads: Vec<JoinHandle<()>>,
    sockets: Vec<UdpSocket>,
    /// Disconnected when the last thread ends, in whatever way.
    running: Receiver<()>,
}

#[derive(Default)]
struct UdpShared {
    stop: AtomicBool,
    /// Bytes that all streams together have taken from the limit.
    taken: AtomicU64,
}

type Stream = Mutex<UdpCounts>;

#[derive(Clone, Default)]
struct UdpCounts {
    bytes: Bytes,
    datagrams: Datagrams,
    first: Option<Instant>,
    last: Option<Instant>,
    error: Option<String>,
}

impl UdpLoad {
    /// Starts to send over connected sockets, at once.
    pub fn send(job: UdpJob, sockets: Vec<UdpSocket>, stamp: Stamp) -> Result<UdpLoad, Error> {
        let size = usize::try_from(job.size.0).unwrap_or(usize::MAX);
        if !(16..=LARGEST).contains(&size) {
            let remedy = format!("a datagram carries 16 to {LARGEST} bytes");
            return Err(Error::range("--datagram-size", size, remedy));
        }
        UdpLoad::start(sockets, &job.cpus, |socket, stream, shared| {
            let (job, stamp) = (job.clone(), Arc::clone(&stamp));
            move || sender(&socket, &job, size, &stamp, &stream, &shared)
        })
    }

    /// Starts to receive from connected sockets: until the sender says that it is done, or
    /// [`UdpLoad::stop`]. One counter a socket; `cpus` as in [`UdpJob`].
    pub fn receive(
        sockets: Vec<UdpSocket>,
        counters: Vec<Box<dyn Count>>,
        cpus: &[u32],
    ) -> Result<UdpLoad, Error> {
        let mut counters = counters.into_iter();
        UdpLoad::start(sockets, cpus, |socket, stream, shared| {
            let counter = counters.next();
            move || {
                if let Some(counter) = counter {
                    receiver(&socket, counter, &stream, &shared);
                }
            }
        })
    }

    fn start<F: FnOnce() + Send + 'static>(
        sockets: Vec<UdpSocket>,
        cpus: &[u32],
        mut work: impl FnMut(UdpSocket, Arc<Stream>, Arc<UdpShared>) -> F,
    ) -> Result<UdpLoad, Error> {
        let system = |what| move |error| Error::system(what, error);
        let (runs, running) = channel();
        let mut load = UdpLoad {
            running,
            streams: Vec::new(),
            shared: Arc::default(),
            threads: Vec::new(),
            sockets: Vec::new(),
        };
        for socket in sockets {
            socket
                .set_read_timeout(Some(STOP_WITHIN))
                .and_then(|()| socket.set_write_timeout(Some(STOP_WITHIN)))
                .map_err(system("set the timeouts of a UDP socket"))?;
            // Without it the time of the system call serves: jitter is a little coarser.
            let _ = sys::udp::stamp_arrivals(&socket);
            let copy = socket.try_clone().map_err(system("copy a UDP socket"))?;
            let stream = Arc::<Stream>::default();
            let cpu = cpus.iter().cycle().nth(load.streams.len()).copied();
            let runs: Sender<()> = runs.clone();
            let work = work(copy, Arc::clone(&stream), Arc::clone(&load.shared));
            let thread = std::thread::Builder::new()
                .name(format!("udp-{}", load.streams.len()))
                .spawn(move || {
                    let _runs = runs;
                    // A processor that is not there leaves the choice to the scheduler.
                    if let Some(cpu) = cpu {
                        let _ = sys::sched::run_on(&[cpu]);
                    }
                    work();
                });
            load.threads.push(match thread {
                Ok(thread) => thread,
                Err(source) => {
                    load.stop();
                    return Err(system("start a thread for a stream")(source));
                }
            });
            load.streams.push(stream);
            load.sockets.push(socket);
        }
        Ok(load)
    }

    /// Payload bytes of each stream so far; cheap, from any thread.
    pub fn bytes(&self) -> Vec<Bytes> {
        self.streams.iter().map(|s| lock(s).bytes).collect()
    }

    /// Counts of each stream so far.
    pub fn datagrams(&self) -> Vec<Datagrams> {
        self.streams.iter().map(|s| lock(s).datagrams).collect()
    }

    /// The sockets, in the order of their streams.
    pub fn sockets(&self) -> &[UdpSocket] {
        &self.sockets
    }

    /// Ends early, within some ten milliseconds. A receiver takes what has arrived by then.
    pub fn stop(&self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }

    /// Waits until all streams are done (`true`) or the moment has come (`false`).
    pub fn wait(&self, until: Instant) -> bool {
        let left = until.saturating_duration_since(Instant::now());
        self.running.recv_timeout(left) == Err(RecvTimeoutError::Disconnected)
    }

    /// Waits for all streams, without a limit, and returns their results.
    pub fn finish(self) -> UdpOutcome {
        for thread in self.threads {
            // A thread that panicked has left its counts behind.
            let _ = thread.join();
        }
        let counts: Vec<UdpCounts> = self.streams.iter().map(|s| lock(s).clone()).collect();
        let first = counts.iter().filter_map(|c| c.first).min();
        let last = counts.iter().filter_map(|c| c.last).max();
        UdpOutcome {
            bytes: counts.iter().map(|c| c.bytes).collect(),
            datagrams: counts.iter().map(|c| c.datagrams).collect(),
            duration: match (first, last) {
                (Some(first), Some(last)) => Nanos::from(last - first),
                _ => Nanos(0),
            },
            errors: (0..)
                .zip(counts)
                .filter_map(|(stream, c)| Some((stream, c.error?)))
                .collect(),
        }
    }
}

fn unix_now() -> Nanos {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(Nanos(0), Nanos::from)
}

fn sender(
    socket: &UdpSocket,
    job: &UdpJob,
    size: usize,
    stamp: &Stamp,
    stream: &Stream,
    shared: &UdpShared,
) {
    // Used again and again.
    let mut buffers = vec![0; BATCH * size];
    let mut pace = UdpPace::new(job.rate, size, Instant::now());
    let end = match job.limit {
        LegLimit::Time(span) => Some(Instant::now() + Duration::from(span)),
        LegLimit::Bytes(_) | LegLimit::Requests(_) | LegLimit::Whole => None,
    };
    let mut sent = 0u64;
    let mut gone_since: Option<Instant> = None;
    loop {
        let now = Instant::now();
        if shared.stop.load(Ordering::Relaxed) || end.is_some_and(|end| now >= end) {
            return;
        }
        let due = match pace.due(now) {
            Ok(due) => due,
            Err(wait) => {
                let left = end.map_or(wait, |end| wait.min(end - now));
                std::thread::sleep(left.min(STOP_WITHIN));
                continue;
            }
        };
        let mut count = due.min(BATCH);
        if let LegLimit::Bytes(limit) = job.limit {
            count = take(&shared.taken, limit.0, size as u64, count);
            if count == 0 {
                return;
            }
        }
        let datagrams = buffers.chunks_exact_mut(size).take(count);
        for (datagram, number) in datagrams.zip(sent + 1..) {
            stamp(datagram, number, unix_now());
        }
        let datagrams = buffers.chunks_exact(size).take(count);
        let left = match udp::send(socket.as_fd(), datagrams) {
            Ok(left) => {
                gone_since = None;
                left
            }
            Err(error) => {
                if !passing(&error) {
                    lock(stream).error = Some(format!("cannot send: {error}"));
                    return;
                }
                if error.kind() == io::ErrorKind::ConnectionRefused
                    && gone_since.get_or_insert(now).elapsed() > GONE_AFTER
                {
                    lock(stream).error = Some("the peer's port is closed".to_owned());
                    return;
                }
                0
            }
        };
        if let LegLimit::Bytes(_) = job.limit {
            let back = ((count - left) * size) as u64;
            shared.taken.fetch_sub(back, Ordering::Relaxed);
        }
        sent += left as u64;
        pace.sent(left);
        let mut counts = lock(stream);
        counts.bytes += Bytes((left * size) as u64);
        counts.datagrams.packets = sent;
        if left > 0 {
            counts.first.get_or_insert(now);
            counts.last = Some(Instant::now());
        }
    }
}

/// Takes up to `count` datagrams of `size` from what the limit leaves. The last one may go past the
/// limit, as it does with iperf3: it ends when the limit is reached.
fn take(taken: &AtomicU64, limit: u64, size: u64, count: usize) -> usize {
    let mut got = 0;
    while got < count {
        let before = taken.fetch_add(size, Ordering::Relaxed);
        if before >= limit {
            taken.fetch_sub(size, Ordering::Relaxed);
            break;
        }
        got += 1;
    }
    got
}

/// Errors that pass: no room for a moment, a signal, or the answer to an earlier datagram.
fn passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock
            | io::ErrorKind::TimedOut
            | io::ErrorKind::Interrupted
            | io::ErrorKind::ConnectionRefused
    ) || error.raw_os_error() == Some(libc::ENOBUFS)
}

/// Says how many datagrams are due.
struct UdpPace {
    /// Time that one datagram takes at the rate; `None`: no rate.
    each: Option<f64>,
    origin: Instant,
    sent: u64,
}

impl UdpPace {
    fn new(rate: Option<BitRate>, size: usize, now: Instant) -> UdpPace {
        UdpPace {
            each: rate
                .filter(|rate| rate.0 > 0)
                .map(|rate| size as f64 * 8.0 / rate.0 as f64),
            origin: now,
            sent: 0,
        }
    }

    /// Datagrams that should have left by `now`, at least one; otherwise the time until the next.
    fn due(&mut self, now: Instant) -> Result<usize, Duration> {
        let Some(each) = self.each else {
            return Ok(BATCH);
        };
        let elapsed = (now - self.origin).as_secs_f64();
        let behind = elapsed / each - self.sent as f64;
        if behind < 0.0 {
            // The first leaves at once, the next one datagram's time later.
            return Err(Duration::from_secs_f64(-behind * each));
        }
        let most = (CATCH_UP.as_secs_f64() / each).max(1.0);
        if behind > most {
            let skipped = Duration::from_secs_f64((behind - most) * each);
            self.origin += skipped;
        }
        Ok(behind.min(most) as usize + 1)
    }

    fn sent(&mut self, count: usize) {
        self.sent += count as u64;
    }
}

fn receiver(socket: &UdpSocket, mut counter: Box<dyn Count>, stream: &Stream, shared: &UdpShared) {
    let mut batch = ReceiveBatch::new(LARGEST + 1);
    loop {
        // Looked at first: after the flag one more round takes what has arrived.
        let last_round = shared.stop.load(Ordering::Relaxed);
        match batch.receive(socket) {
            Ok(_) => {
                let now = Instant::now();
                let mut bytes = 0;
                let mut done = false;
                for (datagram, at) in batch.datagrams() {
                    let at = at.map_or_else(unix_now, Nanos::from);
                    if !counter.count(datagram, at) {
                        done = true;
                        break;
                    }
                    bytes += datagram.len() as u64;
                }
                let mut counts = lock(stream);
                counts.bytes += Bytes(bytes);
                counts.datagrams = counter.totals();
                counts.first.get_or_insert(now);
                counts.last = Some(now);
                if done {
                    return;
                }
            }
            Err(error) if passing(&error) => {}
            Err(error) => {
                lock(stream).error = Some(format!("cannot receive: {error}"));
                return;
            }
        }
        if last_round {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers as eight bytes at the start; zero ends the stream.
    struct Numbers(Datagrams);

    impl Count for Numbers {
        fn count(&mut self, datagram: &[u8], _at: Nanos) -> bool {
            let number = u64::from_be_bytes(datagram[..8].try_into().unwrap());
            if number == 0 {
                return false;
            }
            self.0.packets = self.0.packets.max(number);
            true
        }

        fn totals(&self) -> Datagrams {
            self.0
        }
    }

    fn pair() -> (UdpSocket, UdpSocket) {
        let a = UdpSocket::bind("127.0.0.1:0").unwrap();
        let b = UdpSocket::bind("127.0.0.1:0").unwrap();
        a.connect(b.local_addr().unwrap()).unwrap();
        b.connect(a.local_addr().unwrap()).unwrap();
        (a, b)
    }

    fn numbered() -> Stamp {
        Arc::new(|datagram: &mut [u8], number: u64, _at: Nanos| {
            datagram[..8].copy_from_slice(&number.to_be_bytes());
        })
    }

    fn remote() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }

    #[test]
    fn what_is_sent_arrives_until_the_sender_is_done() {
        let (a, b) = pair();
        let end = a.try_clone().unwrap();
        let receiving =
            UdpLoad::receive(vec![b], vec![Box::new(Numbers(Datagrams::default()))], &[]);
        let receiving = receiving.unwrap();
        let job = UdpJob {
            rate: Some(BitRate(8_000_000)),
            size: Bytes(1000),
            limit: LegLimit::Bytes(Bytes(100_000)),
            cpus: Vec::new(),
        };
        let sending = UdpLoad::send(job, vec![a], numbered()).unwrap();
        assert!(sending.wait(remote()));
        let sent = sending.finish();
        assert_eq!(sent.bytes, [Bytes(100_000)]);
        assert_eq!(sent.datagrams[0].packets, 100);
        assert!(sent.errors.is_empty());
        end.send(&[0; 16]).unwrap();
        assert!(receiving.wait(remote()));
        let received = receiving.finish();
        assert_eq!(received.bytes, [Bytes(100_000)]);
        assert_eq!(received.datagrams[0].packets, 100);
    }

    #[test]
    fn streams_share_one_limit_and_stop_on_request() {
        let (a, _b) = pair();
        let (c, _d) = pair();
        let job = UdpJob {
            rate: None,
            size: Bytes(500),
            limit: LegLimit::Bytes(Bytes(50_000)),
            cpus: Vec::new(),
        };
        let sending = UdpLoad::send(job, vec![a, c], numbered()).unwrap();
        assert!(sending.wait(remote()));
        let outcome = sending.finish();
        assert_eq!(outcome.bytes.iter().copied().sum::<Bytes>(), Bytes(50_000));

        let (_e, f) = pair();
        let receiving =
            UdpLoad::receive(vec![f], vec![Box::new(Numbers(Datagrams::default()))], &[]);
        let receiving = receiving.unwrap();
        assert!(!receiving.wait(Instant::now()));
        receiving.stop();
        assert!(receiving.wait(remote()));
        assert_eq!(receiving.finish().duration, Nanos(0));
    }

    #[test]
    fn what_a_closed_port_refused_is_not_counted_as_sent() {
        let (a, b) = pair();
        drop(b);
        let job = UdpJob {
            rate: None,
            size: Bytes(500),
            limit: LegLimit::Bytes(Bytes(50_000)),
            cpus: Vec::new(),
        };
        let sending = UdpLoad::send(job, vec![a], numbered()).unwrap();
        assert!(sending.wait(remote()));
        let outcome = sending.finish();
        assert_eq!(outcome.errors, []);
        assert_eq!(outcome.bytes, [Bytes(50_000)]);
        assert_eq!(outcome.datagrams[0].packets, 100);
    }

    #[test]
    fn the_pace_holds_the_rate_and_skips_what_it_cannot_catch_up() {
        let start = Instant::now();
        // 1000 bytes at 8 Mbit/s: one a millisecond.
        let mut pace = UdpPace::new(Some(BitRate(8_000_000)), 1000, start);
        assert_eq!(pace.due(start), Ok(1));
        pace.sent(1);
        let wait = pace.due(start).unwrap_err();
        assert!((wait.as_secs_f64() - 0.001).abs() < 1e-6);
        let late = pace.due(start + Duration::from_secs(10)).unwrap();
        assert!((50..=51).contains(&late), "{late}");
    }

    #[test]
    fn sizes_that_no_datagram_has_are_refused() {
        for size in [0, 15, 65_508] {
            let job = UdpJob {
                rate: None,
                size: Bytes(size),
                limit: LegLimit::Bytes(Bytes(1)),
                cpus: Vec::new(),
            };
            assert!(UdpLoad::send(job, Vec::new(), numbered()).is_err());
        }
    }
}

//! Datagrams at a set rate, one thread a stream. What stands in them is the caller's: this engine
//! knows no protocol.

use crate::Error;
use crate::job::{Job, Role};
use crate::spin::Spin;
use crate::stream::{LoadPhase, LoadStream};
use crate::workload::{WorkloadEnd, alone, no_such_role};
use model::{BitRate, Datagrams, Nanos, Udp};
use std::io;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use sys::udp::{self, BATCH, ReceiveBatch};

/// How soon a receiver to which nothing comes notices that it is to stop.
const STOP_WITHIN: Duration = Duration::from_millis(50);

/// A sender that fell behind (its thread did not run) catches up at most this much; the rest is not
/// sent. More would be a burst that no path was asked to take.
const CATCH_UP: Duration = Duration::from_millis(50);

/// A peer that answers nothing but "port unreachable" for this long is gone.
const GONE_AFTER: Duration = Duration::from_secs(3);

/// The largest payload of a UDP datagram over IPv4.
const LARGEST: usize = 65_507;

/// What stands in the datagrams of a protocol.
pub trait DatagramFormat: Send + Sync {
    /// Writes into a datagram that is about to leave: number (from 1), and time since 1970.
    fn stamp(&self, datagram: &mut [u8], number: u64, at: Nanos);
    /// Counts the datagrams of one stream at its receiver.
    fn counter(&self) -> Box<dyn Count>;
}

/// Counts the datagrams of one stream at its receiver.
pub trait Count: Send {
    /// Takes a datagram that arrived at `at` since 1970; false: the sender says that it is done.
    fn count(&mut self, datagram: &[u8], at: Nanos) -> bool;
    /// The counts so far.
    fn totals(&self) -> Datagrams;
}

struct UdpEnd {
    order: Udp,
    sends: bool,
    format: Arc<dyn DatagramFormat>,
}

/// This end of datagrams.
pub(crate) fn end(job: &Job, order: &Udp) -> Result<Box<dyn WorkloadEnd>, Error> {
    let (Role::Send | Role::Receive, Some(format)) = (job.role, &job.datagrams) else {
        return Err(no_such_role());
    };
    let size = usize::try_from(order.datagram_size.0).unwrap_or(usize::MAX);
    if !(16..=LARGEST).contains(&size) {
        let remedy = format!("a datagram carries 16 to {LARGEST} bytes");
        return Err(Error::range("--datagram-size", size, remedy));
    }
    Ok(Box::new(UdpEnd {
        order: order.clone(),
        sends: job.role == Role::Send,
        format: Arc::clone(format),
    }))
}

/// What a socket gets before its load.
pub(crate) fn prepare(socket: &TcpStream) -> io::Result<()> {
    // Without it the time of the system call serves: jitter is a little coarser.
    let _ = udp::stamp_arrivals(socket.as_fd());
    socket.set_read_timeout(Some(STOP_WITHIN))
}

impl WorkloadEnd for UdpEnd {
    fn run(&self, streams: &[LoadStream<'_>], _spin: Spin) {
        alone(streams, |stream| {
            let mut span = None;
            let result = match self.sends {
                true => send(stream, &self.order, self.format.as_ref(), &mut span),
                false => receive(stream, self.format.counter(), &mut span),
            };
            if let Some((first, last)) = span {
                stream.moved(first, last);
            }
            result
        });
    }
}

/// When the first datagrams of a stream moved, and the last.
type Span = Option<(Instant, Instant)>;

/// Sends until the limit.
fn send(
    stream: &LoadStream<'_>,
    order: &Udp,
    format: &dyn DatagramFormat,
    span: &mut Span,
) -> Result<(), String> {
    let size = order.datagram_size.0 as usize;
    // Used again and again.
    let mut buffers = vec![0; BATCH * size];
    let mut pace = UdpPace::new(order.rate, size, Instant::now());
    let mut gone_since: Option<Instant> = None;
    while stream.phase() == LoadPhase::Running {
        let now = Instant::now();
        let due = match pace.due(now) {
            Ok(due) => due.min(BATCH),
            Err(wait) => {
                // The keeper wakes the thread when the load ends.
                thread::park_timeout(wait);
                continue;
            }
        };
        // The last one may go past the limit, as it does with iperf3: it ends when the limit is reached.
        let (mut count, mut claimed) = (0, 0);
        while count < due {
            match stream.claim(size as u64) {
                0 => break,
                bytes => claimed += bytes,
            }
            count += 1;
        }
        if count == 0 {
            return Ok(());
        }
        let datagrams = buffers.chunks_exact_mut(size).take(count);
        for (datagram, number) in datagrams.zip(pace.sent + 1..) {
            format.stamp(datagram, number, sys::clock::unix().into());
        }
        let datagrams = buffers.chunks_exact(size).take(count);
        let left = match udp::send(stream.fd(), datagrams) {
            Ok(left) => {
                gone_since = None;
                left
            }
            Err(error) if !passing(&error) => return Err(format!("cannot send: {error}")),
            Err(error) => {
                if error.kind() == io::ErrorKind::ConnectionRefused
                    && gone_since.get_or_insert(now).elapsed() > GONE_AFTER
                {
                    return Err("the peer's port is closed".to_owned());
                }
                0
            }
        };
        stream.give_back(claimed.saturating_sub((left * size) as u64));
        pace.sent += left as u64;
        stream.count(left * size);
        stream.counted(Datagrams {
            packets: pace.sent,
            ..Datagrams::default()
        });
        if left > 0 {
            let (first, _) = span.unwrap_or((now, now));
            *span = Some((first, Instant::now()));
        }
    }
    Ok(())
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
    /// Time that one datagram takes at the rate; `None`: as fast as it goes.
    each: Option<f64>,
    origin: Instant,
    sent: u64,
}

impl UdpPace {
    fn new(rate: BitRate, size: usize, now: Instant) -> UdpPace {
        UdpPace {
            each: (rate.0 > 0).then_some(size as f64 * 8.0 / rate.0 as f64),
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
}

/// Receives until the sender says that it is done, or the load ends.
fn receive(
    stream: &LoadStream<'_>,
    mut counter: Box<dyn Count>,
    span: &mut Span,
) -> Result<(), String> {
    let mut batch = ReceiveBatch::new(LARGEST + 1);
    loop {
        // Looked at first: after the end one more round takes what has arrived.
        let last_round = stream.phase() != LoadPhase::Running;
        match batch.receive(stream.fd()) {
            Ok(_) => {
                let now = Instant::now();
                let mut bytes = 0;
                let is_done = batch.datagrams().any(|(datagram, at)| {
                    let goes_on =
                        counter.count(datagram, at.unwrap_or_else(sys::clock::unix).into());
                    bytes += if goes_on { datagram.len() } else { 0 };
                    !goes_on
                });
                stream.count(bytes);
                stream.counted(counter.totals());
                let (first, _) = span.unwrap_or((now, now));
                *span = Some((first, now));
                if is_done {
                    return Ok(());
                }
            }
            Err(error) if passing(&error) => {}
            Err(error) => return Err(format!("cannot receive: {error}")),
        }
        if last_round {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Load;
    use model::{Bytes, LegLimit, Workload};
    use std::net::UdpSocket;

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

    struct Numbered;

    impl DatagramFormat for Numbered {
        fn stamp(&self, datagram: &mut [u8], number: u64, _at: Nanos) {
            datagram[..8].copy_from_slice(&number.to_be_bytes());
        }

        fn counter(&self) -> Box<dyn Count> {
            Box::new(Numbers(Datagrams::default()))
        }
    }

    fn pair() -> (UdpSocket, UdpSocket) {
        let a = UdpSocket::bind("127.0.0.1:0").unwrap();
        let b = UdpSocket::bind("127.0.0.1:0").unwrap();
        a.connect(b.local_addr().unwrap()).unwrap();
        b.connect(a.local_addr().unwrap()).unwrap();
        (a, b)
    }

    fn load(
        role: Role,
        (rate, size): (u64, u64),
        limit: LegLimit,
        sockets: Vec<UdpSocket>,
    ) -> Result<Load, Error> {
        let order = Udp {
            rate: BitRate(rate),
            datagram_size: Bytes(size),
        };
        let mut job = Job::new(role, Workload::Udp(order), limit);
        job.datagrams = Some(Arc::new(Numbered));
        Load::start(job, sockets.into_iter().map(udp::as_stream).collect())
    }

    const EVER: LegLimit = LegLimit::Time(Nanos::from_secs(1000));

    fn remote() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }

    #[test]
    fn what_is_sent_arrives_until_the_sender_is_done() {
        let (a, b) = pair();
        let end = a.try_clone().unwrap();
        let receiving = load(Role::Receive, (0, 1000), EVER, vec![b]).unwrap();
        let limit = LegLimit::Bytes(Bytes(100_000));
        let sending = load(Role::Send, (8_000_000, 1000), limit, vec![a]).unwrap();
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
        let limit = LegLimit::Bytes(Bytes(50_000));
        let sending = load(Role::Send, (0, 500), limit, vec![a, c]).unwrap();
        assert!(sending.wait(remote()));
        let outcome = sending.finish();
        assert_eq!(outcome.bytes.iter().copied().sum::<Bytes>(), Bytes(50_000));

        let (_e, f) = pair();
        let receiving = load(Role::Receive, (0, 500), EVER, vec![f]).unwrap();
        assert!(!receiving.wait(Instant::now()));
        receiving.stop();
        assert!(receiving.wait(remote()));
        assert_eq!(receiving.finish().duration, Nanos(0));
    }

    #[test]
    fn what_a_closed_port_refused_is_not_counted_as_sent() {
        let (a, b) = pair();
        drop(b);
        let limit = LegLimit::Bytes(Bytes(50_000));
        let sending = load(Role::Send, (0, 500), limit, vec![a]).unwrap();
        assert!(sending.wait(remote()));
        let outcome = sending.finish();
        assert!(outcome.errors.is_empty());
        assert_eq!(outcome.bytes, [Bytes(50_000)]);
        assert_eq!(outcome.datagrams[0].packets, 100);
    }

    #[test]
    fn the_pace_holds_the_rate_and_skips_what_it_cannot_catch_up() {
        let start = Instant::now();
        // 1000 bytes at 8 Mbit/s: one a millisecond.
        let mut pace = UdpPace::new(BitRate(8_000_000), 1000, start);
        assert_eq!(pace.due(start), Ok(1));
        pace.sent += 1;
        let wait = pace.due(start).unwrap_err();
        assert!((wait.as_secs_f64() - 0.001).abs() < 1e-6);
        let late = pace.due(start + Duration::from_secs(10)).unwrap();
        assert!((50..=51).contains(&late), "{late}");
    }

    #[test]
    fn sizes_that_no_datagram_has_are_refused() {
        for size in [0, 15, 65_508] {
            let limit = LegLimit::Bytes(Bytes(1));
            assert!(load(Role::Send, (0, size), limit, vec![pair().0]).is_err());
        }
    }
}

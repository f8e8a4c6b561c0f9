//! Datagrams at a set rate, one thread a stream. What stands in them is the caller's: this engine
//! knows no protocol.
//!
//! Datagrams that leave together are one message to the kernel, and those that arrived together another: all in a
//! message have one time of sending and one of arrival. As fast as it goes, a message holds up to 64 datagrams, and
//! within it neither jitter nor delay is seen.

use crate::prelude::*;
use crate::workload::{alone, no_such_role};
use model::{ArrivalCounter, BitRate, Datagrams, LegLimit, Udp};
use std::thread;
use sys::udp::{self, BATCH, LARGEST, ReceiveBatch, SEGMENTS};

/// How soon a receiver to which nothing comes notices that it is to stop.
const STOP_WITHIN: Duration = Duration::from_millis(50);

/// A paced sender sends what is due together, and does not wake more often than this: its bursts are what the rate
/// makes in so long, and what the thread is late. A rate that makes less than two datagrams of it leaves them one by
/// one.
const BURST: Duration = Duration::from_micros(100);

/// A sender that fell behind (its thread did not run) catches up at most this much; the rest is not
/// sent. More would be a burst that no path was asked to take.
const CATCH_UP: Duration = Duration::from_millis(50);

/// A peer that answers nothing but "port unreachable" for this long is gone.
const GONE_AFTER: Duration = Duration::from_secs(3);

/// Messages that are received at once.
const RECEIVED: usize = 8;

/// What stands in the datagrams of a protocol.
pub trait DatagramFormat: Send + Sync {
    /// Bytes that it needs of each datagram.
    fn least(&self) -> usize;
    /// Writes into a datagram that is about to leave: number (from 1), and time since 1970.
    fn stamp(&self, datagram: &mut [u8], number: u64, at: Nanos);
    /// The datagram that ends a stream of `sent` datagrams; `None`: the receiver learns of the end elsewhere.
    fn end(&self, sent: u64, at: Nanos) -> Option<Vec<u8>>;
    /// What a datagram that arrived says.
    fn read(&self, datagram: &[u8]) -> DatagramRead;
}

/// What a datagram is to its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatagramRead {
    /// One of the load.
    Payload {
        /// Its number, from 1.
        number: u64,
        /// When it was sent, since 1970 by its sender's clock.
        sent: Nanos,
    },
    /// None of the load.
    Other,
    /// The sender is done, and may say how many it has sent.
    End(Option<u64>),
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
    let least = format.least();
    if !(least..=LARGEST).contains(&size) {
        let remedy = format!("a datagram carries {least} to {LARGEST} bytes");
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
    udp::receive_together(socket.as_fd());
    socket.set_read_timeout(Some(STOP_WITHIN))
}

impl WorkloadEnd for UdpEnd {
    fn run(&self, streams: &[LoadStream<'_>], _spin: Spin) {
        alone(streams, |stream| {
            let mut span = None;
            let result = match self.sends {
                true => {
                    let sent = send(stream, &self.order, self.format.as_ref(), &mut span);
                    sent.map(|sent| end_stream(stream, self.format.as_ref(), sent))
                }
                false => receive(stream, &self.order, self.format.as_ref(), &mut span),
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

/// Sends until the limit: how many.
fn send(
    stream: &LoadStream<'_>,
    order: &Udp,
    format: &dyn DatagramFormat,
    span: &mut Span,
) -> Result<u64, String> {
    let size = order.datagram_size.0 as usize;
    // One message of the kernel's, whether it cuts that or not; used again and again.
    let most = at_once(size);
    let mut buffer = vec![0; most * size];
    let mut pace = UdpPace::new(order.rate, size, Instant::now());
    let mut segments = udp::can_segment(stream.fd());
    if is_above_mtu(stream, size) {
        // The kernel cuts no messages then, and this is why.
        segments = false;
        stream.tally(|tally| tally.fragmented += 1);
    }
    let mut gone_since: Option<Instant> = None;
    while stream.phase() == LoadPhase::Running {
        let now = Instant::now();
        let due = match pace.due(now) {
            Ok(due) => due.min(most),
            Err(wait) => {
                // The keeper wakes the thread when the load ends.
                thread::park_timeout(wait);
                continue;
            }
        };
        // The last one may go past the limit, as it does with iperf3: it ends when the limit is reached.
        let claimed = stream.claim((due * size) as u64);
        let wanted = (claimed as usize).div_ceil(size);
        if wanted == 0 {
            break;
        }
        let Ok(count) = admit(stream, wanted, size) else {
            // The load ends.
            stream.give_back(claimed);
            continue;
        };
        let data = &mut buffer[..count * size];
        let at = Nanos::from(sys::clock::unix());
        for (datagram, number) in data.chunks_exact_mut(size).zip(pace.sent + 1..) {
            format.stamp(datagram, number, at);
        }
        let left = match send_all(stream, data, size, &mut segments) {
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
        stream.unmoved(count * size, &Ok(left * size));
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
    Ok(pace.sent)
}

/// Whether datagrams of this size leave in fragments, as far as the kernel knows the path.
fn is_above_mtu(stream: &LoadStream<'_>, size: usize) -> bool {
    let local = stream.socket().local_addr();
    let ipv6 = local.is_ok_and(|local| local.is_ipv6());
    let mtu = udp::path_mtu(stream.fd(), ipv6);
    mtu.is_ok_and(|mtu| packet(size, ipv6) > mtu as usize)
}

/// Bytes of a whole datagram with its headers of UDP and IP.
fn packet(size: usize, ipv6: bool) -> usize {
    size + 8 + if ipv6 { 40 } else { 20 }
}

/// Waits until whole datagrams may leave by the peer's quota, at most so many: how many.
///
/// # Errors
/// The load has come to its end meanwhile.
fn admit(stream: &LoadStream<'_>, count: usize, size: usize) -> io::Result<usize> {
    let mut bytes = 0;
    while bytes < size {
        let more = stream.admit(count * size - bytes, LoadPhase::Ending);
        bytes += more.inspect_err(|_| stream.unmoved(bytes, &Ok(0)))?;
    }
    let whole = bytes / size;
    stream.unmoved(bytes, &Ok(whole * size));
    Ok(whole)
}

/// Ends a stream at its receiver, where the protocol ends it by a datagram: that may be lost, so it is repeated, less
/// and less often for about half a second, until the receiver's port is closed.
fn end_stream(stream: &LoadStream<'_>, format: &dyn DatagramFormat, sent: u64) {
    const REPEATED: u32 = 8;
    for turn in 0..REPEATED {
        let Some(end) = format.end(sent, sys::clock::unix().into()) else {
            return;
        };
        match udp::send(stream.fd(), [&end[..]].into_iter()) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return,
            // One that does not leave is as good as lost.
            _ => {}
        }
        let until = Instant::now() + Duration::from_millis(2 << turn);
        while Instant::now() < until && stream.phase() != LoadPhase::Cut {
            thread::park_timeout(until.saturating_duration_since(Instant::now()));
        }
    }
}

/// Datagrams that leave together at this rate when their sender is in time: at most one message of them.
pub fn datagrams_together(rate: BitRate, size: Bytes) -> u32 {
    let most = at_once(usize::try_from(size.0).unwrap_or(usize::MAX).max(1)) as u64;
    let together = match rate.0 {
        0 => most,
        _ => (rate.bytes_in(BURST.into()).0 / size.0.max(1)).clamp(1, most),
    };
    together as u32
}

/// Datagrams of this size that one message has at most.
fn at_once(size: usize) -> usize {
    (LARGEST / size).clamp(1, SEGMENTS.min(BATCH))
}

/// Sends these datagrams as one message, which the kernel cuts; as many messages, once it has refused that. How many
/// left.
fn send_all(
    stream: &LoadStream<'_>,
    data: &[u8],
    size: usize,
    segments: &mut bool,
) -> io::Result<usize> {
    let count = data.len() / size;
    if let (true, 2.., Ok(segment)) = (*segments, count, u16::try_from(size)) {
        match udp::send_segmented(stream.fd(), data, segment) {
            Err(error) if udp::refuses_segments(&error) => {
                *segments = false;
                stream.tally(|tally| tally.segments_refused += 1);
            }
            sent => return sent.map(|()| count),
        }
    }
    udp::send(stream.fd(), data.chunks_exact(size))
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

    /// Datagrams that should have left by `now`, at least one; otherwise the time to wait.
    fn due(&mut self, now: Instant) -> Result<usize, Duration> {
        let Some(each) = self.each else {
            return Ok(usize::MAX);
        };
        let elapsed = (now - self.origin).as_secs_f64();
        let behind = elapsed / each - self.sent as f64;
        if behind < 0.0 {
            // The first leaves at once, the next one datagram's time later.
            let next = Duration::from_secs_f64(-behind * each);
            let is_alone = each * 2.0 > BURST.as_secs_f64();
            return Err(if is_alone { next } else { next.max(BURST) });
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
    order: &Udp,
    format: &dyn DatagramFormat,
    span: &mut Span,
) -> Result<(), String> {
    let socket = stream.fd();
    let mut batch = ReceiveBatch::new(RECEIVED, LARGEST + 1);
    let mut counter = ArrivalCounter::default();
    // What was dropped had no more datagrams than the largest message that came.
    let mut in_one = 1;
    let mut dropped = 0_u32;
    let mut silent_since = Instant::now();
    let received = loop {
        // Looked at first: after the end one more round takes what has arrived.
        let last_round = stream.phase() != LoadPhase::Running;
        match batch.receive(socket) {
            Ok(_) => {
                let now = Instant::now();
                let (mut all, mut bytes) = (0, 0);
                let is_done = batch.messages().any(|message| {
                    all += message.payload.len();
                    in_one = in_one.max(message.datagrams().len() as u64);
                    if let Some(drops) = message.drops {
                        counter.dropped(u64::from(drops.wrapping_sub(dropped)) * in_one);
                        dropped = drops;
                    }
                    let at = message.at.unwrap_or_else(sys::clock::unix).into();
                    message
                        .datagrams()
                        .any(|datagram| match format.read(datagram) {
                            DatagramRead::Payload { number, sent } => {
                                if counter.arrived(number, sent, at) {
                                    bytes += datagram.len();
                                }
                                false
                            }
                            DatagramRead::Other => false,
                            DatagramRead::End(sent) => {
                                sent.into_iter().for_each(|sent| counter.ended(sent));
                                true
                            }
                        })
                });
                stream.count(bytes);
                stream.counted(counter.totals());
                silent_since = now;
                if bytes > 0 {
                    let (first, _) = span.unwrap_or((now, now));
                    *span = Some((first, now));
                }
                // What cuts the load shows in its phase.
                let _ = stream.spend(all);
                if is_done {
                    break Ok(());
                }
            }
            Err(error) if passing(&error) => {}
            Err(error) => break Err(format!("cannot receive: {error}")),
        }
        if last_round || stream.is_lost(silent_since, order) {
            break Ok(());
        }
    };
    stream.arrived(&counter.arrivals());
    received
}

impl LoadStream<'_> {
    /// Nothing came for so long that the end of a stream without a time limit must have been lost.
    fn is_lost(&self, since: Instant, order: &Udp) -> bool {
        let each = order.datagram_size.0 as f64 * 8.0 / order.rate.0.max(1) as f64;
        let longest = Duration::from_secs_f64(if order.rate.0 > 0 { 4.0 * each } else { 0.0 });
        let is_timed = matches!(self.shared.job.limit, LegLimit::Time(_));
        !is_timed && since.elapsed() > self.shared.job.lost_after.max(longest)
    }
}

/// Memory for the buffers of one stream.
pub(crate) fn buffers(sends: bool) -> usize {
    /// What the counter of arrivals keeps.
    const COUNTER: usize = 96 << 10;
    match sends {
        true => LARGEST,
        false => RECEIVED * (LARGEST + 1) + COUNTER,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Load;
    use model::Workload;
    use std::net::UdpSocket;

    /// Numbers as eight bytes at the start; zero ends the stream.
    struct Numbered;

    impl DatagramFormat for Numbered {
        fn least(&self) -> usize {
            16
        }

        fn end(&self, _sent: u64, _at: Nanos) -> Option<Vec<u8>> {
            Some(vec![0; 16])
        }

        fn stamp(&self, datagram: &mut [u8], number: u64, _at: Nanos) {
            datagram[..8].copy_from_slice(&number.to_be_bytes());
        }

        fn read(&self, datagram: &[u8]) -> DatagramRead {
            match u64::from_be_bytes(datagram[..8].try_into().unwrap()) {
                0 => DatagramRead::End(None),
                number => DatagramRead::Payload {
                    number,
                    sent: Nanos(0),
                },
            }
        }
    }

    fn pair() -> (UdpSocket, UdpSocket) {
        pair_at("127.0.0.1:0")
    }

    fn pair_at(local: &str) -> (UdpSocket, UdpSocket) {
        let a = UdpSocket::bind(local).unwrap();
        let b = UdpSocket::bind(local).unwrap();
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
        let receiving = load(Role::Receive, (0, 1000), EVER, vec![b]).unwrap();
        let limit = LegLimit::Bytes(Bytes(100_000));
        let sending = load(Role::Send, (8_000_000, 1000), limit, vec![a]).unwrap();
        assert!(sending.wait(remote()));
        let sent = sending.finish();
        assert_eq!(sent.bytes, [Bytes(100_000)]);
        assert_eq!(sent.datagrams[0].packets, 100);
        assert!(sent.errors.is_empty());
        assert!(receiving.wait(remote()));
        let received = receiving.finish();
        assert_eq!(received.bytes, [Bytes(100_000)]);
        assert_eq!(received.datagrams[0].packets, 100);
        assert_eq!(received.record.arrivals.unwrap().received, 100);
        assert_eq!(sent.record.arrivals, None);
        assert!(sent.record.duration > Nanos(0) && received.record.duration > Nanos(0));
    }

    #[test]
    fn datagrams_above_the_path_mtu_are_said() {
        assert_eq!([packet(1472, false), packet(1452, true)], [1500, 1500]);
        let (a, _b) = pair_at("[::1]:0");
        let mtu = u64::from(udp::path_mtu(a.as_fd(), true).unwrap());
        for (size, warnings) in [(mtu - 48, 0), (mtu - 47, 1)] {
            let (limit, socket) = (LegLimit::Bytes(Bytes(1)), a.try_clone().unwrap());
            let sending = load(Role::Send, (0, size), limit, vec![socket]).unwrap();
            assert!(sending.wait(remote()));
            let said = sending.finish().record.warnings;
            assert_eq!(said.len(), warnings, "{size}: {said:?}");
            assert!(said.iter().all(|w| w.what.contains("above the path MTU")));
        }
    }

    #[test]
    fn what_the_kernel_does_not_cut_arrives_and_is_said() {
        let (a, b) = pair();
        // Messages without checksums are not cut.
        sys::socket::set(a.as_fd(), (libc::SOL_SOCKET, libc::SO_NO_CHECK), 1).unwrap();
        let receiving = load(Role::Receive, (0, 1000), EVER, vec![b]).unwrap();
        let limit = LegLimit::Bytes(Bytes(20_000));
        let sending = load(Role::Send, (0, 1000), limit, vec![a]).unwrap();
        assert!(sending.wait(remote()) && receiving.wait(remote()));
        let said = sending.finish().record.warnings;
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].what.contains("(UDP_SEGMENT) for 1 stream(s)"));
        assert_eq!(receiving.finish().bytes, [Bytes(20_000)]);
    }

    #[test]
    fn what_had_no_room_at_the_receiver_counts_as_dropped() {
        let (a, b) = pair();
        // The least that there is: a datagram or two.
        sys::socket::set(b.as_fd(), sys::socket::RECEIVE_BUFFER, 1).unwrap();
        prepare(&udp::as_stream(b.try_clone().unwrap())).unwrap();
        let send = |number| {
            let mut datagram = [0; 1000];
            Numbered.stamp(&mut datagram, number, Nanos(0));
            a.send(&datagram).unwrap();
        };
        (1..=100).for_each(send);
        let receiving = load(Role::Receive, (0, 1000), EVER, vec![b]).unwrap();
        let reads = |packets: u64| {
            while receiving.datagrams()[0].packets < packets {
                assert!(!receiving.wait(Instant::now() + Duration::from_millis(1)));
            }
        };
        reads(1);
        send(101);
        reads(101);
        send(0);
        assert!(receiving.wait(remote()));
        let found = receiving.finish().record.arrivals.unwrap();
        assert!(found.dropped > 0, "{found:?}");
        assert_eq!(found.received + found.dropped, 101);
    }

    #[test]
    fn the_largest_datagram_arrives_whole() {
        let (a, b) = pair();
        let (size, all) = (LARGEST as u64, Bytes(LARGEST as u64));
        let receiving = load(Role::Receive, (0, size), EVER, vec![b]).unwrap();
        let sending = load(Role::Send, (0, size), LegLimit::Bytes(all), vec![a]).unwrap();
        assert!(sending.wait(remote()) && receiving.wait(remote()));
        let outcomes = [sending, receiving].map(Load::finish);
        assert_eq!(outcomes.map(|outcome| outcome.bytes), [[all], [all]]);
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
        assert_eq!(receiving.finish().record.duration, Nanos(0));
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

    /// So many bytes.
    struct Purse(std::sync::Mutex<usize>);

    impl crate::Quota for Purse {
        fn take(&self, want: usize) -> Result<(usize, Instant), String> {
            let mut left = self.0.lock().unwrap();
            let bytes = want.min(1000).min(*left);
            *left -= bytes;
            match bytes {
                0 => Err("the purse is empty".to_owned()),
                _ => Ok((bytes, Instant::now())),
            }
        }

        fn give_back(&self, bytes: usize) {
            *self.0.lock().unwrap() += bytes;
        }

        fn spend(&self, bytes: usize) -> Result<(), String> {
            let mut left = self.0.lock().unwrap();
            *left = left.checked_sub(bytes).ok_or("the purse is empty")?;
            Ok(())
        }

        fn pay_ahead(&self, _bytes: usize) {}
    }

    #[test]
    fn a_quota_ends_senders_and_receivers() {
        for limited in [Role::Send, Role::Receive] {
            let (a, b) = pair();
            let start = |role, socket| {
                let order = Udp {
                    rate: BitRate(80_000_000),
                    datagram_size: Bytes(1500),
                };
                let mut job = Job::new(role, Workload::Udp(order), EVER);
                job.datagrams = Some(Arc::new(Numbered));
                if role == limited {
                    job.quota = Some(Arc::new(Purse(100_000.into())));
                }
                Load::start(job, vec![udp::as_stream(socket)]).unwrap()
            };
            let receiving = start(Role::Receive, b);
            let sending = start(Role::Send, a);
            let cut = match limited {
                Role::Send => sending,
                _ => receiving,
            };
            assert!(cut.wait(remote()));
            let outcome = cut.finish();
            assert_eq!(outcome.limit.as_deref(), Some("the purse is empty"));
            // The last one sent is whole or not sent; what had arrived at once is counted.
            let most = if limited == Role::Send {
                100_000
            } else {
                200_000
            };
            assert!(outcome.bytes[0] <= Bytes(most), "{:?}", outcome.bytes);
            assert!(outcome.bytes[0] >= Bytes(97_500), "{:?}", outcome.bytes);
        }
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
        // What was skipped is no debt: the next one is due in its turn.
        pace.sent += late as u64;
        let wait = pace.due(start + Duration::from_secs(10)).unwrap_err();
        assert!((wait.as_secs_f64() - 0.001).abs() < 1e-6, "{wait:?}");
    }

    #[test]
    fn bursts_are_what_a_tenth_of_a_millisecond_makes() {
        let start = Instant::now();
        // 1000 bytes at 800 Mbit/s: ten in a tenth of a millisecond.
        let mut pace = UdpPace::new(BitRate(800_000_000), 1000, start);
        pace.sent = 1;
        assert_eq!(pace.due(start), Err(BURST));
        assert_eq!(pace.due(start + BURST), Ok(10));
        // At 100 Mbit/s less than two: one by one.
        let mut pace = UdpPace::new(BitRate(100_000_000), 1000, start);
        pace.sent = 1;
        assert_eq!(pace.due(start), Err(Duration::from_micros(80)));
        assert_eq!((at_once(1400), at_once(64), at_once(LARGEST)), (46, 64, 1));
        let together = |rate| datagrams_together(BitRate(rate), Bytes(1000));
        assert_eq!([0, 1, 800_000_000].map(together), [64, 1, 10]);
    }

    #[test]
    fn sizes_that_no_datagram_has_are_refused() {
        for size in [0, 15, 65_508] {
            let limit = LegLimit::Bytes(Bytes(1));
            assert!(load(Role::Send, (0, size), limit, vec![pair().0]).is_err());
        }
    }

    #[test]
    fn nothing_for_as_long_as_four_datagrams_take_is_the_lost_end_of_a_stream() {
        let is_lost = |rate, limit, seconds: u64| {
            let order = Udp {
                rate: BitRate(rate),
                datagram_size: Bytes(1000),
            };
            let mut job = Job::new(Role::Receive, Workload::Udp(order.clone()), limit);
            job.lost_after = Duration::from_secs(100);
            job.datagrams = Some(Arc::new(Numbered));
            let (shared, _peers) = crate::stream::tests::idle(job, 1);
            let since = Instant::now() - Duration::from_secs(seconds);
            crate::stream::tests::stream(&shared, 0).is_lost(since, &order)
        };
        let bytes = LegLimit::Bytes(Bytes(1));
        assert_eq!(
            [is_lost(0, bytes, 99), is_lost(0, bytes, 101)],
            [false, true]
        );
        // One in 50 s.
        assert_eq!(
            [is_lost(160, bytes, 199), is_lost(160, bytes, 201)],
            [false, true]
        );
        assert_eq!(
            [is_lost(160_000, bytes, 99), is_lost(160_000, bytes, 101)],
            [false, true]
        );
        assert!(!is_lost(0, EVER, 1000), "the clock ends it");
    }

    #[test]
    fn a_quota_lets_whole_datagrams_leave() {
        let admitted = |part, count, size| {
            let quota = crate::stream::tests::RecordingQuota::new(part);
            let mut job = crate::stream::tests::bulk(Role::Send, EVER);
            job.quota = Some(Arc::<crate::stream::tests::RecordingQuota>::clone(&quota));
            let (shared, _peers) = crate::stream::tests::idle(job, 1);
            let count = admit(&crate::stream::tests::stream(&shared, 0), count, size).unwrap();
            let taken: usize = quota.taken.lock().unwrap().iter().sum();
            let back: usize = quota.back.lock().unwrap().iter().sum();
            (count, taken, back)
        };
        assert_eq!(admitted(1000, 3, 500), (2, 1000, 0));
        assert_eq!(admitted(1000, 1, 1500), (1, 1500, 0));
        assert_eq!(admitted(1000, 2, 1500), (1, 2000, 500));
        assert_eq!(admitted(9000, 2, 1500), (2, 3000, 0));
    }

    #[test]
    fn errors_that_pass_are_room_signals_and_refusals() {
        use io::ErrorKind::*;
        let of = |kind: io::ErrorKind| passing(&kind.into());
        assert!(
            [WouldBlock, TimedOut, Interrupted, ConnectionRefused]
                .into_iter()
                .all(of)
        );
        assert!(
            ![ConnectionReset, NotFound, PermissionDenied]
                .into_iter()
                .any(of)
        );
        let number = |number| passing(&io::Error::from_raw_os_error(number));
        assert!(number(libc::ENOBUFS) && !number(libc::EMSGSIZE) && !number(libc::EBADF));
    }

    #[test]
    fn datagrams_that_are_half_a_burst_apart_leave_in_bursts() {
        let start = Instant::now();
        let wait = |rate| {
            let mut pace = UdpPace::new(BitRate(rate), 1000, start);
            pace.sent = 1;
            pace.due(start).unwrap_err()
        };
        // 50 us each, and 51 us.
        assert_eq!(wait(160_000_000), BURST);
        let alone = wait(156_862_745);
        assert!(
            alone < BURST && alone > Duration::from_micros(50),
            "{alone:?}"
        );
        // As fast as it goes.
        assert_eq!(
            UdpPace::new(BitRate(0), 1000, start).due(start),
            Ok(usize::MAX)
        );
        // In time: the one whose moment is now, and those before.
        let mut pace = UdpPace::new(BitRate(8_000_000), 1000, start);
        assert_eq!(pace.due(start + Duration::from_micros(3500)), Ok(4));
        assert_eq!(pace.due(start + Duration::from_millis(49)), Ok(50));
        let rate = |bit| datagrams_together(BitRate(bit), Bytes(1000));
        assert_eq!(
            [rate(159_000_000), rate(160_000_000), rate(80_000_000_000)],
            [1, 2, 64]
        );
        assert_eq!(datagrams_together(BitRate(0), Bytes(0)), 64);
    }

    #[test]
    fn buffers_are_those_of_a_message_or_of_eight_with_what_counts_them() {
        assert_eq!(buffers(true), 65_507);
        assert_eq!(buffers(false), 8 * 65_508 + 98_304);
    }
}

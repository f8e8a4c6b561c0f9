//! As much as fits, one way.

use crate::cpu_placement::{Busy, CpuPlacement};
use crate::noise::noise;
use crate::prelude::*;
use crate::spin::is_pause;
use crate::stream::Tally;
use crate::stride::Stride;
use crate::workload::{alone, no_such_role};
use model::{Bulk, LegLimit};
use sys::splice::PagePipe;

/// Bytes of a write that follows the path, at most; and where all processors are busy, so that the reader finds what was
/// written in the cache.
const WRITE: usize = 1 << 20;
const WRITE_OF_FULL: usize = 512 << 10;
/// Bytes that are written again and again: few enough to stay in a processor's second cache.
const PIECE: usize = 128 << 10;
/// Bytes a read, for the same reason.
const READ: usize = 256 << 10;
/// The longest that a reader sleeps for a batch, in bytes.
const MOST_BATCH: usize = 1 << 20;
/// Bytes that all streams of a load have in buffers, unless the order sets the size of writes.
const BUFFERS: usize = 16 << 20;
/// However many streams there are, a buffer has so many bytes.
const SMALLEST_BUFFER: usize = 64 << 10;

/// Bytes of a stream's buffer among so many, at most these.
fn buffer(streams: usize, most: usize) -> usize {
    (BUFFERS / streams.max(1)).clamp(SMALLEST_BUFFER, most)
}

/// Bytes of the largest write of a stream among so many. Without a copy all of it is in memory.
fn largest_write(order: &Bulk, streams: usize) -> usize {
    match order.write_size {
        Some(size) => size.0 as usize,
        None if order.zerocopy => buffer(streams, WRITE),
        None => WRITE,
    }
}

/// Bytes that all streams of an end have in buffers.
pub(crate) fn buffers(order: &Bulk, streams: usize, sends: bool) -> usize {
    let each = match (sends, largest_write(order, streams)) {
        (true, largest) if order.zerocopy => PagePipe::memory(largest),
        (true, largest) => socket::piece_of(largest, PIECE),
        (false, _) if order.discard => 0,
        (false, _) => buffer(streams, READ),
    };
    each.saturating_mul(streams)
}

struct BulkEnd {
    order: Bulk,
    sends: bool,
}

/// This end of a bulk transfer.
pub(crate) fn end(job: &Job, order: &Bulk) -> Result<Box<dyn WorkloadEnd>, Error> {
    if matches!(job.limit, LegLimit::Requests(_) | LegLimit::Whole) {
        return Err(Error::Job(
            "a bulk load ends neither by requests nor with a file; limit it by time or bytes"
                .into(),
        ));
    }
    job.workload.check(1).map_err(Error::Job)?;
    if matches!(job.role, Role::Ask | Role::Answer) {
        return Err(no_such_role());
    }
    Ok(Box::new(BulkEnd {
        order: order.clone(),
        sends: job.role == Role::Send,
    }))
}

impl WorkloadEnd for BulkEnd {
    fn run(&self, streams: &[LoadStream<'_>], _spin: Spin) {
        alone(streams, |stream| match self.sends {
            true => send(stream, &self.order),
            false => receive(stream, &self.order),
        });
    }
}

/// How what is written reaches the socket.
enum Output {
    Copied(Vec<u8>),
    Spliced(PagePipe),
}

impl Output {
    fn new(order: &Bulk, largest: usize) -> Result<Output, String> {
        if !order.zerocopy {
            return Ok(Output::Copied(noise(socket::piece_of(largest, PIECE))));
        }
        let pipe = PagePipe::new(&noise(largest)).map(Output::Spliced);
        pipe.map_err(|e| format!("cannot make a pipe for zero-copy: {e}; leave zero-copy away"))
    }

    fn send(&mut self, fd: BorrowedFd<'_>, bytes: usize) -> io::Result<usize> {
        match self {
            Output::Copied(piece) => socket::send_repeated(fd, piece, bytes),
            Output::Spliced(pipe) => pipe.send(fd, bytes),
        }
    }
}

/// Writes until the limit, then ends the stream.
fn send(stream: &LoadStream<'_>, order: &Bulk) -> Result<(), String> {
    let _busy = Busy::count();
    let mut placement = CpuPlacement::new(stream);
    let largest = largest_write(order, stream.streams.len());
    let mut stride = Stride::new(order.write_size, largest);
    let mut output = Output::new(order, largest)?;
    let first = Instant::now();
    let mut before = first;
    let mut result = Ok(());
    while stream.phase() == LoadPhase::Running {
        let claimed = stream.claim(stride.size as u64);
        if claimed == 0 {
            break;
        }
        let sent = stream
            .admit(claimed as usize, LoadPhase::Ending)
            .and_then(|bytes| {
                let sent = output.send(stream.fd(), bytes);
                stream.unmoved(bytes, &sent);
                sent
            });
        let written = *sent.as_ref().unwrap_or(&0);
        stream.count(written);
        stream.give_back(claimed - written as u64);
        match sent {
            Ok(_) => {
                let largest = match placement.give_way() {
                    true => WRITE_OF_FULL,
                    false => WRITE,
                };
                before = stride.follow(before, largest);
            }
            Err(e) if is_pause(&e) => {}
            // The keeper ended the stream under a waiting write.
            Err(e) if e.kind() == ErrorKind::BrokenPipe && stream.phase() != LoadPhase::Running => {
            }
            Err(e) => {
                result = Err(stream.broken(&e));
                break;
            }
        }
    }
    stream.moved(first, Instant::now());
    if stream.job.half_close {
        // A connection that is gone already needs none.
        let _ = stream.socket().shutdown(Shutdown::Write);
    }
    // By a clock of this end: the receiver may begin to read when all has arrived.
    if matches!(stream.job.limit, LegLimit::Bytes(_)) && result.is_ok() {
        stream.settle_acknowledged();
    }
    result
}

/// Reads to the end of the stream.
fn receive(stream: &LoadStream<'_>, order: &Bulk) -> Result<(), String> {
    let _busy = Busy::count();
    let most = buffer(stream.streams.len(), READ);
    let mut buffer = vec![0; if order.discard { 0 } else { most }];
    let mut intake = Intake::new(stream);
    let mut first = None;
    let mut result = Ok(());
    let last = loop {
        let got = stream.receive(
            stream.fd(),
            most,
            || socket::arrived(stream.fd(), 1, true),
            |bytes| match order.discard {
                true => socket::discard(stream.fd(), bytes),
                false => socket::receive(stream.fd(), &mut buffer[..bytes]),
            },
        );
        match got {
            Ok(0) => break Instant::now(),
            Ok(bytes) => {
                stream.count(bytes);
                first.get_or_insert_with(Instant::now);
                if stream.claim(bytes as u64) < bytes as u64 {
                    let _ = stream
                        .limit("the sender sent more than was ordered: the leg was ended".into());
                }
                intake.follow(bytes);
            }
            Err(e) if is_pause(&e) => intake.follow(0),
            Err(e) => {
                result = Err(stream.broken(&e));
                break Instant::now();
            }
        }
        if stream.phase() == LoadPhase::Cut {
            break Instant::now();
        }
    };
    if stream.phase() == LoadPhase::Cut {
        if stream.job.half_close && !stream.is_limited() {
            stream.tally(|t: &mut Tally| t.cut_receivers += 1);
        }
        result = Ok(());
    }
    if let Some(first) = first {
        stream.moved(first, last);
    }
    result
}

/// How a receiver takes data in from a fast path.
///
/// Waking a sleeping reader costs more than copying what woke it, so on a fast path the reader
/// sleeps until there is a batch (`SO_RCVLOWAT`): up to an eighth of a millisecond of data, so that counters
/// stay smooth, and up to an eighth of the receive buffer, so that the window stays open. A timeout
/// ends the wait for a batch on a path that slows down.
struct Intake<'a> {
    stream: &'a LoadStream<'a>,
    placement: CpuPlacement<'a>,
    batch: usize,
    bytes: usize,
    since: Instant,
    placed: Instant,
}

impl<'a> Intake<'a> {
    const SPAN: Duration = Duration::from_micros(125);
    const SMALLEST: usize = 64 << 10;
    const LOOK_AFTER: Duration = Duration::from_millis(5);
    const PLACE_AFTER: Duration = Duration::from_millis(50);

    fn new(stream: &'a LoadStream<'a>) -> Intake<'a> {
        let now = Instant::now();
        Intake {
            stream,
            placement: CpuPlacement::new(stream),
            batch: 1,
            bytes: 0,
            since: now,
            placed: now,
        }
    }

    fn follow(&mut self, bytes: usize) {
        self.bytes += bytes;
        // A slow path needs no look at the clock.
        if self.batch == 1 && self.bytes < MOST_BATCH {
            return;
        }
        let now = Instant::now();
        let span = now - self.since;
        if span < Self::LOOK_AFTER {
            return;
        }
        let room = socket::get(self.stream.fd(), socket::RECEIVE_BUFFER).unwrap_or(0) as usize / 8;
        let batch = Self::batch(self.bytes, span, room);
        if batch != self.batch && wait_for_batch(self.stream.socket(), batch).is_ok() {
            self.batch = batch;
        }
        if now - self.placed > Self::PLACE_AFTER {
            self.placement.follow();
            self.placed = now;
        }
        self.bytes = 0;
        self.since = now;
    }

    /// Bytes to wait for; 1: do not.
    fn batch(bytes: usize, span: Duration, room: usize) -> usize {
        let share = Self::SPAN.as_secs_f64() / span.as_secs_f64();
        let most = ((bytes as f64 * share) as usize).min(room).min(MOST_BATCH);
        if most < Self::SMALLEST {
            1
        } else {
            // In few steps, so that it is seldom changed.
            1 << most.ilog2()
        }
    }
}

/// Lets reads wait for so many bytes, for at most 20 ms; 1: for the first byte, as long as it takes.
fn wait_for_batch(stream: &TcpStream, batch: usize) -> io::Result<()> {
    let patience = (batch > 1).then_some(Duration::from_millis(20));
    stream.set_read_timeout(patience)?;
    socket::set(stream.as_fd(), socket::RECEIVE_LOW_WATER, batch as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_reads_that_wait_for_a_batch_end_before_it() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        for (batch, patience) in [(64 << 10, Some(Duration::from_millis(20))), (1, None)] {
            wait_for_batch(&stream, batch).unwrap();
            assert_eq!(stream.read_timeout().unwrap(), patience);
            let low_water = socket::get(stream.as_fd(), socket::RECEIVE_LOW_WATER).unwrap();
            assert_eq!(low_water, batch as i32);
        }
    }

    #[test]
    fn a_batch_is_an_eighth_of_a_millisecond_within_bounds() {
        let ms = Duration::from_millis;
        let batch = |bytes, span, room| Intake::batch(bytes, span, room);
        assert_eq!(batch(1_250_000, ms(10), 1 << 20), 1, "1 Gbit/s");
        assert_eq!(batch(12_500_000, ms(10), 8 << 20), 128 << 10, "10 Gbit/s");
        assert_eq!(batch(75_000_000, ms(10), 8 << 20), 512 << 10, "60 Gbit/s");
        assert_eq!(
            batch(1_000_000_000, ms(10), 64 << 20),
            MOST_BATCH,
            "800 Gbit/s"
        );
        assert_eq!(batch(100_000_000, ms(10), 70_000), 64 << 10, "small buffer");
        assert_eq!(batch(100_000_000, ms(10), 60_000), 1, "too small a buffer");
        assert_eq!(batch(0, ms(20), 8 << 20), 1, "silence");
    }

    #[test]
    fn all_streams_share_sixteen_mebibytes_within_bounds() {
        assert_eq!(
            [1, 16, 32, 256, 1000].map(|n| buffer(n, WRITE) >> 10),
            [1024, 1024, 512, 64, 64]
        );
        assert_eq!([0, 64, 128].map(|n| buffer(n, READ) >> 10), [256, 256, 128]);
        let order = |size: Option<u64>, zerocopy, discard| Bulk {
            write_size: size.map(model::Bytes),
            zerocopy,
            discard,
        };
        let plain = order(None, false, false);
        assert_eq!(largest_write(&plain, 1000), WRITE);
        assert_eq!(largest_write(&order(None, true, false), 32), 512 << 10);
        assert_eq!(largest_write(&order(Some(777), true, false), 32), 777);
        assert_eq!(buffers(&plain, 3, true), 3 * socket::piece_of(WRITE, PIECE));
        assert_eq!(
            buffers(&order(None, true, false), 32, true),
            32 * PagePipe::memory(512 << 10)
        );
        assert_eq!(buffers(&plain, 128, false), 128 * (128 << 10));
        assert_eq!(buffers(&order(None, false, true), 128, false), 0);
    }
}

//! Small requests, each answered.

use crate::Error;
use crate::cpu_distance::Distance;
use crate::job::{Connector, DataAcceptor, Job, Reconnect, Role};
use crate::spin::{Spin, is_pause};
use crate::stream::{LoadPhase, LoadStream, Tally};
use crate::workload::{WorkloadEnd, no_such_role};
use model::{Bytes, Request, WaitMode};
use std::io::{self, ErrorKind};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use sys::poll::{PollFd, poll};
use sys::sched;
use sys::socket;

/// Bytes of a reply (or request) that are held at once.
const CHUNK: usize = 1 << 20;
enum RequestEnd {
    Client(Request, Option<Arc<Connector>>),
    Server(Request, Option<Arc<dyn DataAcceptor>>),
}

/// Bytes that all streams of an end have in buffers.
pub(crate) fn buffers(order: &Request, streams: usize) -> usize {
    let held = |size: Bytes| size.0.min(CHUNK as u64) as usize;
    (held(order.request_size) + held(order.reply_size)).saturating_mul(streams)
}

/// This end of requests.
pub(crate) fn end(job: &Job, order: &Request) -> Result<Box<dyn WorkloadEnd>, Error> {
    job.workload.check(1).map_err(Error::Job)?;
    let order = order.clone();
    Ok(Box::new(
        match (job.role, &job.reconnect, order.reconnect) {
            (Role::Ask, None, false) => RequestEnd::Client(order, None),
            (Role::Ask, Some(Reconnect::Connect(connector)), true) => {
                RequestEnd::Client(order, Some(Arc::clone(connector)))
            }
            (Role::Answer, None, false) => RequestEnd::Server(order, None),
            (Role::Answer, Some(Reconnect::Accept(acceptor)), true) => {
                RequestEnd::Server(order, Some(Arc::clone(acceptor)))
            }
            (Role::Send | Role::Receive, ..) => return Err(no_such_role()),
            (Role::Ask | Role::Answer, ..) => {
                return Err(Error::Job(
                    "an order for new connections and their source must go together".into(),
                ));
            }
        },
    ))
}

impl WorkloadEnd for RequestEnd {
    fn wait(&self) -> Option<WaitMode> {
        match self {
            RequestEnd::Client(order, _) | RequestEnd::Server(order, _) => Some(order.wait),
        }
    }

    fn run(&self, stream: &LoadStream<'_>, spin: Spin) -> Result<(), String> {
        match self {
            RequestEnd::Client(order, source) => ask(stream, order, source.as_deref(), spin),
            RequestEnd::Server(order, source) => answer(stream, order, source.as_deref(), spin),
        }
    }
}

/// Asks until the limit.
fn ask(
    stream: &LoadStream<'_>,
    order: &Request,
    connector: Option<&Connector>,
    spin: Spin,
) -> Result<(), String> {
    // Timers may be late otherwise by more than a whole exchange; without it they only are.
    let _ = sched::wake_on_time();
    let mut client = RequestClient::new(order, spin);
    let pace = order.pace_per_s.map(|rate| RequestPace::new(stream, rate));
    let started = Instant::now();
    let mut done = 0u64;
    let mut result = Ok(());
    while stream.phase() == LoadPhase::Running {
        let due = pace.as_ref().map(|p| p.due(done));
        if let Some(due) = due
            && !sleep_until(stream, in_time(stream, due), spin.due)
        {
            break;
        }
        if stream.claim(1) == 0 {
            break;
        }
        // A paced request counts from when it was due: an earlier one that came back late, or a
        // thread that woke up late, is part of what a user would have waited.
        let began = due.unwrap_or_else(Instant::now);
        let answered = || stream.record(began.elapsed());
        let answered = match connector {
            None => client.exchange(stream, stream.fd(), answered),
            Some(connector) => client.exchange_once(stream, connector, answered),
        };
        match answered {
            Ok(()) => done += 1,
            Err(_) if stream.phase() == LoadPhase::Cut => {
                stream.tally(|t: &mut Tally| t.unanswered += 1);
                break;
            }
            Err(what) => {
                stream.give_back(1);
                result = Err(what);
                break;
            }
        }
    }
    let ended = Instant::now();
    if let (Some(pace), Ok(())) = (&pace, &result) {
        let late = pace.due_before(stream.ends.map_or(ended, |e| e.min(ended)));
        // The last one may just have been on its way to its moment.
        let missed = late.saturating_sub(done + 1);
        if stream.phase() != LoadPhase::Running && missed > 0 {
            stream.tally(|t: &mut Tally| t.never_sent += missed);
        }
    }
    stream.moved(started, ended);
    // Signals the end of the requests to the server.
    let _ = stream.socket().shutdown(Shutdown::Write);
    result
}

/// Answers until the client closes.
fn answer(
    stream: &LoadStream<'_>,
    order: &Request,
    acceptor: Option<&dyn DataAcceptor>,
    spin: Spin,
) -> Result<(), String> {
    let mut server = RequestServer::new(order, spin);
    let distance = Distance::new(stream);
    let started = Instant::now();
    let result = match acceptor {
        None => loop {
            match server.serve(stream, &distance, stream.fd()) {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(what) => break Err(what),
            }
        },
        Some(acceptor) => server.serve_new(stream, &distance, acceptor),
    };
    stream.moved(server.first.unwrap_or(started), Instant::now());
    if stream.phase() == LoadPhase::Cut {
        return Ok(());
    }
    result
}

/// When the requests of one connection are due: the connections take turns, so that together they
/// ask at even steps.
struct RequestPace {
    first: Instant,
    step_s: f64,
}

impl RequestPace {
    fn new(stream: &LoadStream<'_>, rate: f64) -> RequestPace {
        let offset = Duration::try_from_secs_f64(stream.index as f64 / rate);
        RequestPace {
            first: stream.begun + offset.unwrap_or(FAR),
            step_s: stream.streams.len() as f64 / rate,
        }
    }

    fn due(&self, number: u64) -> Instant {
        let after = Duration::try_from_secs_f64(number as f64 * self.step_s);
        self.first + after.unwrap_or(FAR).min(FAR)
    }

    /// How many are due before `moment`.
    fn due_before(&self, moment: Instant) -> u64 {
        match moment.checked_duration_since(self.first) {
            Some(span) => (span.as_secs_f64() / self.step_s).ceil() as u64,
            None => 0,
        }
    }
}

/// A request that is due at the very end of the time is not sent.
fn in_time(stream: &LoadStream<'_>, due: Instant) -> Instant {
    match stream.ends {
        Some(end) if due >= end => end + FAR,
        _ => due,
    }
}

/// A century: later than any load, early enough for the clock.
const FAR: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Sleeps until `due`, the last bit of it spinning; `false` if the load ends meanwhile.
fn sleep_until(stream: &LoadStream<'_>, due: Instant, spin: Duration) -> bool {
    loop {
        if stream.phase() != LoadPhase::Running {
            return false;
        }
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        if left > spin {
            // The keeper wakes the thread when the load ends.
            thread::park_timeout(left - spin);
        } else {
            std::hint::spin_loop();
        }
    }
}

struct RequestClient<'a> {
    order: &'a Request,
    request: Vec<u8>,
    reply: Vec<u8>,
    spin: Spin,
}

impl RequestClient<'_> {
    fn new(order: &Request, spin: Spin) -> RequestClient<'_> {
        let mut request = vec![0x5a; order.request_size.0.min(CHUNK as u64) as usize];
        let size = u32::try_from(order.reply_size.0).expect("checked to be at most 1 GiB");
        request[..4].copy_from_slice(&size.to_be_bytes());
        RequestClient {
            order,
            request,
            reply: vec![0; order.reply_size.0.min(CHUNK as u64) as usize],
            spin,
        }
    }

    fn exchange(
        &mut self,
        stream: &LoadStream<'_>,
        fd: BorrowedFd<'_>,
        answered: impl FnOnce(),
    ) -> Result<(), String> {
        let size = self.order.request_size.0;
        let sent = send_all(stream, fd, &self.request, size);
        sent.map_err(|e| stream.broken(&e))?;
        stream.count(size as usize);
        let mut left = self.order.reply_size.0;
        while left > 0 {
            let want = left.min(CHUNK as u64) as usize;
            let room = &mut self.reply[..want];
            match self.spin.some(stream, fd, room, || {})? {
                0 => return Err(stream.broken(&ErrorKind::BrokenPipe.into())),
                got => left -= got as u64,
            }
        }
        answered();
        Ok(())
    }

    fn exchange_once(
        &mut self,
        stream: &LoadStream<'_>,
        connector: &Connector,
        answered: impl FnOnce(),
    ) -> Result<(), String> {
        let number = u32::try_from(stream.index).unwrap_or(u32::MAX);
        let connection = connector(number)
            .map_err(|e| format!("cannot open a new connection for a request: {e}"))?;
        let fd = connection.as_fd();
        prepare(stream, &connection)?;
        self.exchange(stream, fd, answered)?;
        // The server closes first and keeps the closed connection's ports (TIME-WAIT, RFC 9293
        // 3.6.1): otherwise this end would run out of ports after some ten thousand requests.
        let _ = socket::receive(fd, &mut self.reply[..1]);
        Ok(())
    }
}

/// Readies a new connection.
fn prepare(stream: &LoadStream<'_>, connection: &TcpStream) -> Result<(), String> {
    // The keeper cannot cut a connection that it does not know: so its thread looks.
    let look = Some(Duration::from_millis(100));
    stream.begin_connection();
    connection
        .set_nonblocking(false)
        .and_then(|()| connection.set_read_timeout(look))
        .and_then(|()| connection.set_write_timeout(look))
        .and_then(|()| stream.prepare(connection))
        .map_err(|e| stream.broken(&e))
}

struct RequestServer<'a> {
    order: &'a Request,
    buffer: Vec<u8>,
    spin: Spin,
    first: Option<Instant>,
}

impl RequestServer<'_> {
    fn new(order: &Request, spin: Spin) -> RequestServer<'_> {
        let largest = order.request_size.max(order.reply_size).0;
        RequestServer {
            order,
            buffer: vec![0x5a; largest.min(CHUNK as u64) as usize],
            spin,
            first: None,
        }
    }

    /// Answers one request; `false`: the client closed.
    fn serve(
        &mut self,
        stream: &LoadStream<'_>,
        distance: &Distance<'_>,
        fd: BorrowedFd<'_>,
    ) -> Result<bool, String> {
        let mut size = [0; 4];
        let mut read = 0u64;
        while read < self.order.request_size.0 {
            let want = (self.order.request_size.0 - read).min(CHUNK as u64) as usize;
            let room = &mut self.buffer[..want];
            match self.spin.some(stream, fd, room, || distance.apply())? {
                0 if read == 0 => return Ok(false),
                0 => return Err(stream.broken(&ErrorKind::BrokenPipe.into())),
                got => {
                    self.first.get_or_insert_with(Instant::now);
                    let head = (read as usize).min(4)..(read as usize + got).min(4);
                    let len = head.len();
                    size[head].copy_from_slice(&self.buffer[..len]);
                    read += got as u64;
                    stream.count(got);
                }
            }
        }
        let size = u64::from(u32::from_be_bytes(size));
        let most = self.order.reply_size.0;
        if size == 0 || size > most {
            return Err(format!(
                "the client asked for a reply of {size} bytes where the order allows 1 to {most}; \
                 use the same version of linerate at both ends"
            ));
        }
        send_all(stream, fd, &self.buffer, size).map_err(|e| stream.broken(&e))?;
        Ok(true)
    }

    /// Serves new connections, one request each, until the client closes the idle one.
    fn serve_new(
        &mut self,
        stream: &LoadStream<'_>,
        distance: &Distance<'_>,
        acceptor: &dyn DataAcceptor,
    ) -> Result<(), String> {
        while let Some(connection) = self.accept(stream, acceptor)? {
            prepare(stream, &connection)?;
            self.serve(stream, distance, connection.as_fd())?;
        }
        Ok(())
    }

    fn accept(
        &self,
        stream: &LoadStream<'_>,
        acceptor: &dyn DataAcceptor,
    ) -> Result<Option<TcpStream>, String> {
        let fail = |e: io::Error| format!("cannot accept a new connection for a request: {e}");
        loop {
            let accepted = self.spin.until(|| acceptor.accept().transpose());
            if let Some(accepted) = accepted {
                return accepted.map(Some).map_err(fail);
            }
            let mut fds = [
                PollFd::new(acceptor.as_fd(), true, false),
                PollFd::new(stream.fd(), true, false),
            ];
            poll(&mut fds, None).map_err(fail)?;
            if !fds[0].readable() && fds[1].readable() {
                let mut byte = [0];
                return match socket::receive_now(stream.fd(), &mut byte) {
                    Ok(0) => Ok(None),
                    Ok(_) => Err(
                        "the client sent a request over the connection that stays idle; use the \
                         same version of linerate at both ends"
                            .into(),
                    ),
                    Err(e) => Err(stream.broken(&e)),
                };
            }
        }
    }
}

/// Sends `size` bytes: `data`, and again from its start until it is enough.
pub(crate) fn send_all(
    stream: &LoadStream<'_>,
    fd: BorrowedFd<'_>,
    data: &[u8],
    size: u64,
) -> io::Result<()> {
    let mut sent = 0u64;
    while sent < size {
        let at = (sent % data.len() as u64) as usize;
        let want = (size - sent).min((data.len() - at) as u64) as usize;
        match stream.send(fd, &data[at..at + want]) {
            Ok(now) => sent += now as u64,
            Err(e) if is_pause(&e) && stream.phase() != LoadPhase::Cut => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

//! The client of requests.

use super::connections::ReadyConnections;
use super::{CHUNK, prepare};
use crate::job::Connector;
use crate::prelude::*;
use crate::spin::is_pause;
use crate::stream::Tally;
use model::Request;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use sys::sched;

/// Asks over these connections until the limit.
pub(super) fn ask(
    streams: &[LoadStream<'_>],
    order: &Request,
    connector: Option<&Connector>,
    spin: Spin,
) {
    // Timers may be late otherwise by more than a whole exchange; without it they only are.
    let _ = sched::wake_on_time();
    if let Some(connections) = ReadyConnections::of(streams, spin) {
        RequestClient::new(streams, order, connector, connections).run();
    }
}

struct RequestClient<'a> {
    streams: &'a [LoadStream<'a>],
    order: &'a Request,
    connector: Option<&'a Connector>,
    connections: ReadyConnections<'a>,
    calls: Vec<OpenCall>,
    /// When the next requests of idle connections are due.
    due: BinaryHeap<Reverse<(Instant, usize)>>,
    /// Connections that go on.
    open: usize,
    started: Instant,
    request: Vec<u8>,
    /// One byte more than a reply has.
    reply: Vec<u8>,
}

/// The request of a connection.
struct OpenCall {
    state: CallState,
    /// When it was due, or was sent.
    began: Instant,
    /// Of its request, bytes that were sent; of its reply, bytes that are still to come.
    sent: u64,
    left: u64,
    /// Its own connection, where each request has a new one.
    connection: Option<TcpStream>,
    pace: Option<RequestPace>,
    /// Requests that were answered.
    done: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CallState {
    /// The next one is not due yet.
    Idle,
    Sending,
    Receiving,
    Over,
}

impl<'a> RequestClient<'a> {
    fn new(
        streams: &'a [LoadStream<'a>],
        order: &'a Request,
        connector: Option<&'a Connector>,
        connections: ReadyConnections<'a>,
    ) -> RequestClient<'a> {
        let mut request = vec![0x5a; order.request_size.0.min(CHUNK as u64) as usize];
        let size = u32::try_from(order.reply_size.0).expect("checked to be at most 1 GiB");
        request[..4].copy_from_slice(&size.to_be_bytes());
        let started = Instant::now();
        let call = |stream| OpenCall {
            state: CallState::Idle,
            began: started,
            sent: 0,
            left: 0,
            connection: None,
            pace: order.pace_per_s.map(|rate| RequestPace::new(stream, rate)),
            done: 0,
        };
        RequestClient {
            streams,
            order,
            connector,
            connections,
            calls: streams.iter().map(call).collect(),
            due: BinaryHeap::new(),
            open: streams.len(),
            started,
            request,
            reply: vec![0; (order.reply_size.0 + 1).min(CHUNK as u64) as usize],
        }
    }

    fn run(&mut self) {
        for index in 0..self.streams.len() {
            self.next(index, self.started);
        }
        loop {
            self.begin_due();
            if self.open == 0 {
                return;
            }
            let asking = self.open > self.due.len();
            if asking && self.connections.is_single() {
                self.go_on(0);
                continue;
            }
            let next = self.due.peek().map(|Reverse((at, _))| *at);
            match self.connections.wait(next, asking, || {}) {
                Ok(count) => {
                    for number in 0..count {
                        if let Some(index) = self.connections.ready(number) {
                            self.go_on(index);
                        }
                    }
                }
                Err(e) => {
                    for index in 0..self.streams.len() {
                        self.fail(index, self.streams[index].broken(&e));
                    }
                }
            }
        }
    }

    /// The next request of a connection: at once, when it is due, or none.
    fn next(&mut self, index: usize, now: Instant) {
        let (stream, call) = (&self.streams[index], &mut self.calls[index]);
        call.state = CallState::Idle;
        match &call.pace {
            Some(pace) => {
                let due = in_time(stream, pace.due(call.done));
                self.due.push(Reverse((due, index)));
            }
            None => self.begin(index, now),
        }
    }

    /// Begins what is due; ends what is idle once the load does.
    fn begin_due(&mut self) {
        while let Some(Reverse((due, index))) = self.due.peek().copied() {
            if self.streams[index].phase() == LoadPhase::Running && due > Instant::now() {
                return;
            }
            self.due.pop();
            // A paced request counts from when it was due: an earlier one that came back late, or a thread that woke
            // up late, is part of what a user would have waited.
            if self.calls[index].state == CallState::Idle {
                self.begin(index, due);
            }
        }
    }

    fn begin(&mut self, index: usize, began: Instant) {
        let (stream, call) = (&self.streams[index], &mut self.calls[index]);
        if stream.phase() != LoadPhase::Running || stream.claim(1) == 0 {
            return self.end(index, Ok(()));
        }
        (call.state, call.began) = (CallState::Sending, began);
        (call.sent, call.left) = (0, self.order.reply_size.0);
        if let Some(connector) = self.connector {
            let number = u32::try_from(stream.index).unwrap_or(u32::MAX);
            let opened = connector(number)
                .map_err(|e| format!("cannot open a new connection for a request: {e}"))
                .and_then(|opened| {
                    let ready = prepare(stream, &opened);
                    ready.map(|()| opened).map_err(|e| stream.broken(&e))
                });
            match opened {
                Ok(opened) => call.connection = Some(opened),
                Err(what) => return self.fail(index, what),
            }
        }
        self.go_on(index);
    }

    /// Sends or receives as much as there is for one call of the kernel.
    fn go_on(&mut self, index: usize) {
        let result = match self.calls[index].state {
            CallState::Sending => self.send(index),
            CallState::Receiving => self.receive(index),
            CallState::Idle => self.unasked(index),
            CallState::Over => return,
        };
        let (stream, call) = (&self.streams[index], &self.calls[index]);
        let turned = self
            .connections
            .turn(index, call.state == CallState::Sending);
        match turned.and(result) {
            Ok(true) => self.answered(index),
            Ok(false) => {}
            Err(e) if is_pause(&e) && stream.phase() != LoadPhase::Cut => {}
            Err(e) if e.kind() == ErrorKind::InvalidData => {
                // It need not send on.
                let _ = stream.socket().shutdown(Shutdown::Both);
                let what = "the server sent more than it was asked for; use the same version of linerate at both ends";
                self.fail(index, what.into());
            }
            Err(e) => self.fail(index, stream.broken(&e)),
        }
    }

    fn send(&mut self, index: usize) -> io::Result<bool> {
        let (stream, call) = (&self.streams[index], &mut self.calls[index]);
        let size = self.order.request_size.0;
        let fd = call.connection.as_ref().map_or(stream.fd(), AsFd::as_fd);
        stream.send_on(fd, &self.request, size, &mut call.sent)?;
        stream.count(size as usize);
        call.state = CallState::Receiving;
        Ok(false)
    }

    /// Whether the reply is whole.
    fn receive(&mut self, index: usize) -> io::Result<bool> {
        let (stream, call) = (&self.streams[index], &mut self.calls[index]);
        let want = (call.left + 1).min(self.reply.len() as u64) as usize;
        let fd = call.connection.as_ref().map_or(stream.fd(), AsFd::as_fd);
        let room = &mut self.reply[..want];
        match self.connections.spin().receive(stream, fd, room, || {})? as u64 {
            0 => Err(ErrorKind::BrokenPipe.into()),
            got if got > call.left => Err(ErrorKind::InvalidData.into()),
            got => {
                call.left -= got;
                Ok(call.left == 0)
            }
        }
    }

    /// Something came though nothing was asked for.
    fn unasked(&mut self, index: usize) -> io::Result<bool> {
        match socket::receive_now(self.streams[index].fd(), &mut self.reply[..1])? {
            0 => Err(ErrorKind::BrokenPipe.into()),
            _ => Err(ErrorKind::InvalidData.into()),
        }
    }

    fn answered(&mut self, index: usize) {
        let (stream, call) = (&self.streams[index], &mut self.calls[index]);
        let now = Instant::now();
        stream.record(now.saturating_duration_since(call.began));
        call.done += 1;
        if let Some(connection) = call.connection.take() {
            // The server closes first and keeps the closed connection's ports (TIME-WAIT, RFC 9293
            // 3.6.1): otherwise this end would run out of ports after some ten thousand requests.
            let _ = socket::receive(connection.as_fd(), &mut self.reply[..1]);
            return self.next(index, Instant::now());
        }
        self.next(index, now);
    }

    /// The connection broke.
    fn fail(&mut self, index: usize, what: String) {
        let (stream, call) = (&self.streams[index], &self.calls[index]);
        let asking = matches!(call.state, CallState::Sending | CallState::Receiving);
        let result = match stream.phase() {
            _ if call.state == CallState::Over => return,
            LoadPhase::Cut => {
                stream.tally(|t: &mut Tally| t.unanswered += u64::from(asking));
                Ok(())
            }
            _ => {
                stream.give_back(u64::from(asking));
                Err(what)
            }
        };
        self.end(index, result);
    }

    fn end(&mut self, index: usize, result: Result<(), String>) {
        let (stream, call) = (&self.streams[index], &mut self.calls[index]);
        call.state = CallState::Over;
        call.connection = None;
        self.open -= 1;
        self.connections.remove(index);
        let ended = Instant::now();
        if let (Some(pace), Ok(())) = (&call.pace, &result) {
            let late = pace.due_before(stream.ends.map_or(ended, |e| e.min(ended)));
            // The last one may just have been on its way to its moment.
            let missed = late.saturating_sub(call.done + 1);
            if stream.phase() != LoadPhase::Running && missed > 0 {
                stream.tally(|t: &mut Tally| t.never_sent += missed);
            }
        }
        stream.moved(self.started, ended);
        // Signals the end of the requests to the server.
        let _ = stream.socket().shutdown(Shutdown::Write);
        stream.finish(result);
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Job, Role};
    use crate::stream::tests::{idle, stream};
    use model::{Bytes, LegLimit, Nanos, WaitMode, Workload};

    #[test]
    fn connections_take_turns_at_even_steps() {
        let order = Request {
            request_size: Bytes(64),
            reply_size: Bytes(64),
            pace_per_s: Some(10.0),
            reconnect: false,
            wait: WaitMode::Block,
        };
        let limit = LegLimit::Time(Nanos::from_secs(2));
        let (shared, _peers) = idle(Job::new(Role::Ask, Workload::Request(order), limit), 2);
        let ms = |n| shared.begun + Duration::from_millis(n);
        let (own, other) = (stream(&shared, 0), stream(&shared, 1));
        let paces = [&own, &other].map(|one| RequestPace::new(one, 10.0));
        assert_eq!([paces[0].due(0), paces[0].due(3)], [ms(0), ms(600)]);
        assert_eq!([paces[1].due(0), paces[1].due(3)], [ms(100), ms(700)]);
        // Those at 0, 200 and 400 ms are before 600 ms.
        let before = |pace: &RequestPace, at| pace.due_before(ms(at));
        assert_eq!(
            [0, 1, 599, 601].map(|at| before(&paces[0], at)),
            [0, 1, 3, 4]
        );
        assert_eq!([99, 101, 301].map(|at| before(&paces[1], at)), [0, 1, 2]);
        // What is due at the end of the time is not sent.
        assert_eq!(in_time(&own, ms(1999)), ms(1999));
        assert_eq!(in_time(&own, ms(2000)), ms(2000) + FAR);
        let slow = RequestPace::new(&other, 1e-300);
        assert_eq!([slow.due(0), slow.due(1)], [ms(0) + FAR, ms(0) + FAR + FAR]);
    }

    fn order(reply_size: u64) -> Request {
        Request {
            request_size: Bytes(64),
            reply_size: Bytes(reply_size),
            pace_per_s: Some(10.0),
            reconnect: false,
            wait: WaitMode::Block,
        }
    }

    /// Has this done by a client of two connections, before their first requests; its servers' sockets are given too.
    fn asking<T>(
        reply_size: u64,
        act: impl FnOnce(&mut RequestClient<'_>, &mut [TcpStream]) -> T,
    ) -> T {
        let order = order(reply_size);
        let limit = LegLimit::Time(Nanos::from_secs(3600));
        let job = Job::new(Role::Ask, Workload::Request(order.clone()), limit);
        let (shared, mut peers) = idle(job, 2);
        let streams = [stream(&shared, 0), stream(&shared, 1)];
        let connections = ReadyConnections::of(&streams, Spin::NEVER).unwrap();
        act(
            &mut RequestClient::new(&streams, &order, None, connections),
            &mut peers,
        )
    }

    #[test]
    fn what_comes_though_nothing_was_asked_is_an_end_or_too_much() {
        use std::io::Write;
        asking(64, |client, peers| {
            let now = client.unasked(0).unwrap_err().kind();
            assert_eq!(now, ErrorKind::WouldBlock);
            let mut kind = |index| loop {
                match client.unasked(index).unwrap_err().kind() {
                    ErrorKind::WouldBlock => std::thread::yield_now(),
                    kind => return kind,
                }
            };
            peers[0].write_all(b"x").unwrap();
            assert_eq!(kind(0), ErrorKind::InvalidData);
            peers[1].shutdown(Shutdown::Write).unwrap();
            assert_eq!(kind(1), ErrorKind::BrokenPipe);
        });
    }

    #[test]
    fn a_request_says_how_long_its_reply_is_and_room_is_for_a_byte_more() {
        asking(7, |client, _| {
            assert_eq!((client.request.len(), client.reply.len()), (64, 8));
            assert_eq!(client.request[..5], [0, 0, 0, 7, 0x5a]);
            assert_eq!((client.open, client.calls.len()), (2, 2));
        });
        asking(1 << 30, |client, _| assert_eq!(client.reply.len(), CHUNK));
    }

    #[test]
    fn a_connection_ends_once_and_gives_back_what_it_asked() {
        asking(64, |client, _| {
            client.calls[0].state = CallState::Sending;
            client.fail(0, "broken".to_owned());
            client.fail(0, "again".to_owned());
            assert_eq!(client.open, 1);
            assert!(client.calls[0].state == CallState::Over);
            client.go_on(0);
            client.end(1, Ok(()));
            assert_eq!(client.open, 0);
        });
    }
}

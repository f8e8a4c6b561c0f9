//! The server of requests.

use super::connections::ReadyConnections;
use super::{CHUNK, prepare};
use crate::cpu_placement::CpuPlacement;
use crate::job::DataAcceptor;
use crate::prelude::*;
use crate::spin::is_pause;
use model::Request;
use sys::poll::{PollFd, poll};

/// Answers over these connections until the client closes them.
pub(super) fn answer(streams: &[LoadStream<'_>], order: &Request, spin: Spin) {
    if let Some(connections) = ReadyConnections::of(streams, spin) {
        RequestServer {
            streams,
            answering: Answering::new(order, connections.spin(), &streams[0]),
            connections,
            replies: vec![ReplyState::default(); streams.len()],
            open: streams.len(),
        }
        .run();
    }
}

struct RequestServer<'a> {
    streams: &'a [LoadStream<'a>],
    answering: Answering<'a>,
    connections: ReadyConnections<'a>,
    replies: Vec<ReplyState>,
    /// Connections that go on.
    open: usize,
}

/// What a connection is at.
#[derive(Clone, Default)]
struct ReplyState {
    /// Of a request, bytes that have come; the first four are the size of its reply.
    read: u64,
    size: [u8; 4],
    /// Of its reply, bytes that were sent and that there are.
    sent: u64,
    of: u64,
    over: bool,
}

impl RequestServer<'_> {
    fn run(&mut self) {
        while self.open > 0 {
            if self.connections.is_single() {
                self.go_on(0);
                continue;
            }
            let placement = &self.answering.placement;
            match self.connections.wait(None, true, || placement.move_away()) {
                Ok(count) => {
                    for number in 0..count {
                        if let Some(index) = self.connections.ready(number) {
                            self.go_on(index);
                        }
                    }
                }
                Err(e) => {
                    for index in 0..self.streams.len() {
                        self.end(index, Err(self.streams[index].broken(&e)));
                    }
                }
            }
        }
    }

    fn go_on(&mut self, index: usize) {
        let (stream, reply) = (&self.streams[index], &mut self.replies[index]);
        let step = self.answering.go_on(stream, stream.fd(), reply);
        let turned = self.connections.turn(index, reply.of > 0);
        match (step, turned) {
            (Ok(AnswerStep::Closed), _) => self.end(index, Ok(())),
            (Ok(_), Ok(())) => {}
            (Ok(_), Err(e)) => self.end(index, Err(stream.broken(&e))),
            (Err(what), _) => self.end(index, Err(what)),
        }
    }

    fn end(&mut self, index: usize, result: Result<(), String>) {
        let stream = &self.streams[index];
        if std::mem::replace(&mut self.replies[index].over, true) {
            return;
        }
        self.open -= 1;
        self.connections.remove(index);
        stream.moved(self.answering.began(), Instant::now());
        if result.is_err() {
            // The client need not wait for an answer.
            let _ = stream.socket().shutdown(Shutdown::Both);
        }
        stream.finish(match stream.phase() {
            LoadPhase::Cut => Ok(()),
            _ => result,
        });
    }
}

/// Answers new connections, one request each, until the client closes the idle one.
pub(super) fn answer_new(
    stream: &LoadStream<'_>,
    order: &Request,
    acceptor: &dyn DataAcceptor,
    spin: Spin,
) -> Result<(), String> {
    let mut answering = Answering::new(order, spin, stream);
    let mut serve = || {
        while let Some(connection) = accept(stream, acceptor, spin)? {
            prepare(stream, &connection).map_err(|e| stream.broken(&e))?;
            let mut reply = ReplyState::default();
            while answering.go_on(stream, connection.as_fd(), &mut reply)? == AnswerStep::Waiting {}
        }
        Ok(())
    };
    let result = serve();
    stream.moved(answering.began(), Instant::now());
    match stream.phase() {
        LoadPhase::Cut => Ok(()),
        _ => result,
    }
}

fn accept(
    stream: &LoadStream<'_>,
    acceptor: &dyn DataAcceptor,
    spin: Spin,
) -> Result<Option<TcpStream>, String> {
    let fail = |e: io::Error| format!("cannot accept a new connection for a request: {e}");
    loop {
        let accepted = spin.until(|| acceptor.accept().transpose());
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

#[derive(Clone, Copy, PartialEq, Eq)]
enum AnswerStep {
    /// For more of a request, or for room for a reply.
    Waiting,
    /// A reply is sent.
    Answered,
    /// The client has closed after whole requests.
    Closed,
}

/// Takes requests and sends replies, of any connection.
struct Answering<'a> {
    order: &'a Request,
    spin: Spin,
    buffer: Vec<u8>,
    placement: CpuPlacement<'a>,
    started: Instant,
    first: Option<Instant>,
}

impl<'a> Answering<'a> {
    fn new(order: &'a Request, spin: Spin, stream: &'a LoadStream<'a>) -> Answering<'a> {
        let largest = order.request_size.max(order.reply_size).0;
        Answering {
            order,
            spin,
            buffer: vec![0x5a; largest.min(CHUNK as u64) as usize],
            placement: CpuPlacement::new(stream),
            started: Instant::now(),
            first: None,
        }
    }

    /// When the first byte came.
    fn began(&self) -> Instant {
        self.first.unwrap_or(self.started)
    }

    /// Receives or sends as much as there is for one call of the kernel, and a reply after its request.
    fn go_on(
        &mut self,
        stream: &LoadStream<'_>,
        fd: BorrowedFd<'_>,
        reply: &mut ReplyState,
    ) -> Result<AnswerStep, String> {
        let waits = |e: &io::Error| is_pause(e) && stream.phase() != LoadPhase::Cut;
        if reply.of == 0 {
            let want = (self.order.request_size.0 - reply.read).min(CHUNK as u64) as usize;
            let room = &mut self.buffer[..want];
            let in_vain = || self.placement.move_away();
            let got = match self.spin.receive(stream, fd, room, in_vain) {
                Ok(0) if reply.read == 0 => return Ok(AnswerStep::Closed),
                Ok(0) => return Err(stream.broken(&ErrorKind::BrokenPipe.into())),
                Ok(got) => got,
                Err(e) if waits(&e) => return Ok(AnswerStep::Waiting),
                Err(e) => return Err(stream.broken(&e)),
            };
            self.first.get_or_insert_with(Instant::now);
            let head = (reply.read as usize).min(4)..(reply.read as usize + got).min(4);
            let len = head.len();
            reply.size[head].copy_from_slice(&self.buffer[..len]);
            reply.read += got as u64;
            stream.count(got);
            if reply.read < self.order.request_size.0 {
                return Ok(AnswerStep::Waiting);
            }
            (reply.sent, reply.of) = (0, self.size(reply)?);
        }
        match stream.send_on(fd, &self.buffer, reply.of, &mut reply.sent) {
            Ok(()) => {
                (reply.read, reply.of) = (0, 0);
                Ok(AnswerStep::Answered)
            }
            Err(e) if waits(&e) => Ok(AnswerStep::Waiting),
            Err(e) => Err(stream.broken(&e)),
        }
    }

    /// Of the reply to a request.
    fn size(&self, reply: &ReplyState) -> Result<u64, String> {
        let size = u64::from(u32::from_be_bytes(reply.size));
        let most = self.order.reply_size.0;
        match (1..=most).contains(&size) {
            true => Ok(size),
            false => Err(format!(
                "the client asked for a reply of {size} bytes where the order allows 1 to {most}; \
                 use the same version of linerate at both ends"
            )),
        }
    }
}

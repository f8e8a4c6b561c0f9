//! Running threads, one a stream, and what they counted.

use crate::Error;
use model::{Bytes, Latency, Limit, Nanos, Warning, Workload};
use std::io;
use std::net::TcpStream;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a receiver goes on reading after the sender's time is over, unless the job says else.
pub const DRAIN: Duration = Duration::from_secs(3);

/// A peer that acknowledges nothing for this long is lost, unless the job says else.
pub const LOST_AFTER: Duration = Duration::from_secs(8);

/// What this end does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Bulk: writes until the limit, then shuts down its sending side.
    Send,
    /// Bulk: reads until the peer's end of stream.
    Receive,
    /// Client of requests.
    Ask,
    /// Server of requests.
    Answer,
}

/// What a load is to do.
#[derive(Clone)]
pub struct Job {
    /// What this end does.
    pub role: Role,
    /// What moves: bulk for [`Role::Send`] and [`Role::Receive`], requests for the others.
    pub workload: Workload,
    /// When the sending (or asking) end stops. The other end reads to the end of the stream; under
    /// a time limit it gives up `drain` after that time.
    pub limit: Limit,
    /// Processors for the stream threads, given out in turn; empty: the scheduler's choice.
    pub cpus: Vec<u32>,
    /// How long the receiving end reads on after the time limit or after [`Load::stop`].
    pub drain: Duration,
    /// After how long without any acknowledgement the peer is lost (`TCP_USER_TIMEOUT`, keepalive).
    pub lost_after: Duration,
    /// The sender ends its stream with a FIN (default). Without it the connection stays open and
    /// the peer learns of the end elsewhere, as in iperf3's protocol.
    pub half_close: bool,
    /// Where the connection of each request comes from, if the order wants a new one every time.
    /// The sockets given to [`Load::start`] then stay open and idle, one a stream; the client
    /// closing them tells the server that it is done.
    pub reconnect: Option<Reconnect>,
}

impl Job {
    /// A job with the defaults: no affinity, [`DRAIN`], [`LOST_AFTER`], half-close, no reconnecting.
    pub fn new(role: Role, workload: Workload, limit: Limit) -> Job {
        Job {
            role,
            workload,
            limit,
            cpus: Vec::new(),
            drain: DRAIN,
            lost_after: LOST_AFTER,
            half_close: true,
            reconnect: None,
        }
    }
}

/// Where new connections come from while a load runs.
#[derive(Clone)]
pub enum Reconnect {
    /// The client opens them.
    Connect(Arc<dyn Connector>),
    /// The server takes them.
    Accept(Arc<dyn Acceptor>),
}

/// Opens a data connection for one request of `stream`, preamble sent. Any
/// `Fn(u32) -> io::Result<TcpStream>` is one.
pub trait Connector: Send + Sync {
    /// Opens the connection; blocks until it stands.
    fn connect(&self, stream: u32) -> io::Result<TcpStream>;
}

impl<F: Fn(u32) -> io::Result<TcpStream> + Send + Sync> Connector for F {
    fn connect(&self, stream: u32) -> io::Result<TcpStream> {
        self(stream)
    }
}

/// Takes data connections, called by several threads.
pub trait Acceptor: Send + Sync {
    /// Readable when [`Acceptor::accept`] may have something: the listener, in non-blocking mode.
    fn as_fd(&self) -> BorrowedFd<'_>;
    /// Takes one connection, checks its preamble (with a deadline) and returns it; `None` if none
    /// waits or the stranger was turned away.
    fn accept(&self) -> io::Result<Option<TcpStream>>;
}

/// A stream that broke: the others went on, and its counts are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamError {
    /// Number of the stream, from 0.
    pub stream: u32,
    /// One sentence: what happened, to what, what to do.
    pub what: String,
}

/// What a finished load did.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Bytes of each stream in the direction of the leg: written by [`Role::Send`] and
    /// [`Role::Ask`], read by the others.
    pub bytes: Vec<Bytes>,
    /// From the first byte of any stream to the last.
    pub duration: Nanos,
    /// All latencies ([`Role::Ask`] only).
    pub requests: Option<Latency>,
    /// Streams that broke.
    pub errors: Vec<StreamError>,
    /// What the reader must know to take the figures right.
    pub warnings: Vec<Warning>,
}

/// A running load.
pub struct Load {}

impl Load {
    /// Starts at once, one thread a socket.
    pub fn start(job: Job, sockets: Vec<TcpStream>) -> Result<Load, Error> {
        let _ = (job, sockets);
        unimplemented!()
    }

    /// Bytes of each stream so far; cheap, from any thread.
    pub fn bytes(&self) -> Vec<Bytes> {
        unimplemented!()
    }

    /// The latencies since the last call; `None` unless this end asks.
    pub fn take_requests(&self) -> Option<Latency> {
        unimplemented!()
    }

    /// The sockets, in the order of their streams; open and readable until [`Load::finish`].
    pub fn sockets(&self) -> &[TcpStream] {
        unimplemented!()
    }

    /// Ends early: a sender stops and closes its side, a receiver reads on for at most `drain`.
    pub fn stop(&self) {
        unimplemented!()
    }

    /// All streams are done.
    pub fn is_finished(&self) -> bool {
        unimplemented!()
    }

    /// Waits until all streams are done (`true`) or the moment has come (`false`).
    pub fn wait(&self, until: Instant) -> bool {
        let _ = until;
        unimplemented!()
    }

    /// Waits for all streams, however long, and closes the sockets.
    pub fn finish(self) -> Outcome {
        unimplemented!()
    }
}

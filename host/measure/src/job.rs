//! What one end of a load is to do, as its caller describes it.

use crate::prelude::*;
use crate::storage::Storage;
use crate::udp::DatagramFormat;
use model::{BlockClients, LegLimit, Workload};

/// How long a receiver goes on reading after the sender's time is over, unless the job says else.
pub const DRAIN: Duration = Duration::from_secs(3);

/// A peer that acknowledges nothing for this long is lost, unless the job says else.
pub const LOST_AFTER: Duration = Duration::from_secs(8);

/// A sink that writes nothing for so long (a disk that catches up) does not count as a lost peer.
const STORAGE_LOST_AFTER: Duration = Duration::from_secs(60);
/// What a sender under a time limit has begun to send it may finish.
pub(crate) const STORAGE_DRAIN: Duration = Duration::from_secs(30);

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

impl Role {
    /// The role of the leg's sender, or of its receiver.
    pub fn of(workload: &Workload, sender: bool) -> Role {
        match (workload.is_answered(), sender) {
            (true, true) => Role::Ask,
            (true, false) => Role::Answer,
            (false, true) => Role::Send,
            (false, false) => Role::Receive,
        }
    }

    /// Both ends send: requests.
    pub(crate) fn talks(self) -> bool {
        matches!(self, Role::Ask | Role::Answer)
    }

    /// The limit of the job is kept at this end.
    pub(crate) fn limits(self) -> bool {
        matches!(self, Role::Send | Role::Ask)
    }
}

/// What a load is to do.
#[derive(Clone)]
pub struct Job {
    /// What this end does.
    pub role: Role,
    /// What moves: bulk for [`Role::Send`] and [`Role::Receive`], requests for the others.
    pub workload: Workload,
    /// When the sending (or asking) end stops. The peer reads to the end of the stream; under
    /// a time limit it gives up `drain` after that time.
    pub limit: LegLimit,
    /// Processors for the stream threads, given out in turn; empty: the scheduler's choice.
    pub cpus: Vec<u32>,
    /// How long the receiving end reads on after the time limit or after [`Load::stop`].
    pub drain: Duration,
    /// After how long without any acknowledgement the peer is lost (`TCP_USER_TIMEOUT`, keepalive).
    pub lost_after: Duration,
    /// Longest time between retransmissions, where it is not the kernel's two minutes (Linux 6.15).
    pub longest_rto: Option<Duration>,
    /// The sender ends its stream with a FIN (default). Without it the connection stays open and
    /// the peer learns of the end elsewhere, as in iperf3's protocol.
    pub half_close: bool,
    /// `TCP_NODELAY` as the order has it; unless `Some(false)`, requests and replies never wait for
    /// an acknowledgement (RFC 896).
    pub nodelay: Option<bool>,
    /// Where the connection of each request comes from, if the order wants a new one every time.
    /// The sockets given to [`Load::start`] then stay open and idle, one a stream; the client
    /// closing them ends the server.
    pub reconnect: Option<Reconnect>,
    /// What a copy comes from or goes to at this end, or what has the blocks.
    pub storage: Option<Storage>,
    /// The clients of a server that has the blocks.
    pub clients: Option<Arc<BlockClients>>,
    /// What stands in the datagrams of [`Workload::Udp`].
    pub datagrams: Option<Arc<dyn DatagramFormat>>,
    /// The limits of the peer, where it has any.
    pub quota: Option<Arc<dyn Quota>>,
    /// The load is cut so long after its start, for the reason given, however it was ordered to end.
    pub longest: Option<(Duration, String)>,
}

/// What a peer may still move, over all its loads and in both directions. Writes and reads take from it before they
/// move anything, so it holds whatever the peer does: what is not read stays in TCP's window.
pub trait Quota: Send + Sync {
    /// Takes up to `want` bytes, at least one: how many, and from when on they may move.
    ///
    /// # Errors
    /// A sentence that names the limit which is reached.
    fn take(&self, want: usize) -> Result<(usize, Instant), String>;

    /// Gives back what was taken and did not move.
    fn give_back(&self, bytes: usize);

    /// Counts what has moved and could not be held back: datagrams.
    ///
    /// # Errors
    /// A sentence if it was more than the limits allow.
    fn spend(&self, bytes: usize) -> Result<(), String>;

    /// Counts, without waiting, what a receive window has let arrive before it is read.
    fn pay_ahead(&self, bytes: usize);
}

impl Job {
    /// A job with the defaults of its workload: no affinity, no reconnecting, no storage yet.
    pub fn new(role: Role, workload: Workload, limit: LegLimit) -> Job {
        let stored = workload.has_storage();
        Job {
            role,
            limit: match (role, &workload) {
                // However long the sender prepares its source: the connection ends it.
                (Role::Receive, Workload::Copy(_)) => LegLimit::Whole,
                _ => limit,
            },
            cpus: Vec::new(),
            drain: if stored { STORAGE_DRAIN } else { DRAIN },
            lost_after: if stored {
                STORAGE_LOST_AFTER
            } else {
                LOST_AFTER
            },
            longest_rto: None,
            // Where there is storage, the protocol has an end of its own; datagrams have none.
            half_close: !stored && !workload.is_udp(),
            nodelay: None,
            reconnect: None,
            storage: None,
            clients: None,
            datagrams: None,
            quota: None,
            longest: None,
            workload,
        }
    }
}

/// Where new connections come from while a load runs.
#[derive(Clone)]
pub enum Reconnect {
    /// The client opens them.
    Connect(Arc<Connector>),
    /// The server takes them.
    Accept(Arc<dyn DataAcceptor>),
}

/// Opens a data connection for one request of the stream with this number, preamble sent; blocks until it stands.
pub type Connector = dyn Fn(u32) -> io::Result<TcpStream> + Send + Sync;

/// Takes data connections, called by several threads.
pub trait DataAcceptor: Send + Sync {
    /// Readable when [`DataAcceptor::accept`] may have something: the listener, in non-blocking mode.
    fn as_fd(&self) -> BorrowedFd<'_>;
    /// Takes one connection, checks its preamble (with a deadline) and returns it; `None` if none
    /// waits or an unauthenticated peer was turned away.
    fn accept(&self) -> io::Result<Option<TcpStream>>;
}

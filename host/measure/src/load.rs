//! Running threads, one a stream, and what they counted.

use crate::blocks::{self, Store};
use crate::copy::{self, Sink, Source, Storage};
use crate::dialogue::{self, Dialogues};
use crate::request::{self, Spin};
use crate::{Error, bulk};
use hdrhistogram::Histogram;
use model::{
    BlockRecord, Blocks, Bulk, Bytes, CopyRecord, FileCopy, Latency, Limit, Nanos, Request,
    StoreRecord, Warning, Workload,
};
use std::io;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};
use sys::{sched, socket};

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
    /// `TCP_NODELAY` as the order has it; unless `Some(false)`, requests and replies never wait for
    /// an acknowledgement (RFC 896).
    pub nodelay: Option<bool>,
    /// Where the connection of each request comes from, if the order wants a new one every time.
    /// The sockets given to [`Load::start`] then stay open and idle, one a stream; the client
    /// closing them tells the server that it is done.
    pub reconnect: Option<Reconnect>,
    /// What a copy comes from or goes to at this end, or what has the blocks.
    pub storage: Option<Storage>,
    /// Who speaks with a server that has the blocks.
    pub dialogues: Option<Arc<Dialogues>>,
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
            nodelay: None,
            reconnect: None,
            storage: None,
            dialogues: None,
        }
    }

    /// The client of a server that has the blocks.
    pub fn blocks(order: Blocks, limit: Limit, dialogues: Arc<Dialogues>) -> Job {
        Job {
            dialogues: Some(dialogues),
            ..Job::new(Role::Ask, Workload::Blocks(order), limit)
        }
    }

    /// Either end of blocks that the peer has: the one that has them, or, without storage, the one that asks. It is
    /// to be made [`blocks::ready`] before it starts.
    pub fn peer_blocks(order: Blocks, limit: Limit, storage: Option<Storage>) -> Job {
        let role = match storage {
            Some(_) => Role::Answer,
            None => Role::Ask,
        };
        Job {
            drain: copy::DRAIN,
            lost_after: copy::LOST_AFTER,
            storage,
            ..Job::new(role, Workload::Blocks(order), limit)
        }
    }

    /// One end of a copy: a sender's source, or a receiver's sink.
    pub fn copy(order: FileCopy, limit: Limit, storage: Storage) -> Job {
        let (role, limit) = match &storage {
            Storage::Source(_) => (Role::Send, limit),
            // However long the sender prepares its source: the connection ends it.
            Storage::Sink(_) | Storage::Store(_) => (Role::Receive, Limit::Whole),
        };
        Job {
            drain: copy::DRAIN,
            lost_after: copy::LOST_AFTER,
            // A copy has an end of its own on the wire.
            half_close: false,
            storage: Some(storage),
            ..Job::new(role, Workload::Copy(order), limit)
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
    /// The same by operation (blocks only).
    pub operations: Vec<BlockRecord>,
    /// What the storage did (copies only).
    pub copy: Option<CopyRecord>,
    /// What the blocks were in (the end that was asked for them only).
    pub store: Option<StoreRecord>,
    /// Streams that broke.
    pub errors: Vec<StreamError>,
    /// What the reader must know to take the figures right.
    pub warnings: Vec<Warning>,
}

/// A running load. Dropping it without [`Load::finish`] cuts its streams off.
pub struct Load {
    shared: Arc<Shared>,
    task: Arc<Task>,
    streams: Vec<JoinHandle<()>>,
    keeper: Option<JoinHandle<()>>,
}

impl Load {
    /// Starts at once, one thread a socket. The sockets must be connected and in blocking mode.
    pub fn start(job: Job, sockets: Vec<TcpStream>) -> Result<Load, Error> {
        let task = Task::of(&job)?;
        if sockets.is_empty() {
            return Err(Error::Job("a load needs at least one connection".into()));
        }
        check_cpus(&job.cpus)?;
        if let Task::CopyFrom(source) = &task {
            source.prepare().map_err(Error::Job)?;
        }
        let mut warnings = Vec::new();
        let spin = Spin::allowed(&task, &sockets, &mut warnings);
        let shared = Arc::new(Shared::new(&job, sockets, warnings)?);
        let task = Arc::new(task);
        let mut load = Load {
            shared: Arc::clone(&shared),
            task: Arc::clone(&task),
            streams: Vec::new(),
            keeper: None,
        };
        for index in 0..shared.streams.len() {
            let (shared, task) = (Arc::clone(&shared), Arc::clone(&task));
            let cpu = (!job.cpus.is_empty()).then(|| job.cpus[index % job.cpus.len()]);
            let thread = spawn(format!("stream {index}"), move || {
                let stream = Stream {
                    shared: &shared,
                    index,
                };
                stream.run(cpu, &task, spin);
            })?;
            load.streams.push(thread);
        }
        let threads = load.streams.iter().map(|t| t.thread().clone()).collect();
        load.keeper = Some(spawn("load keeper".into(), move || shared.keep(threads))?);
        Ok(load)
    }

    /// Bytes of each stream so far; cheap, from any thread.
    pub fn bytes(&self) -> Vec<Bytes> {
        self.shared.bytes()
    }

    /// The latencies since the last call; `None` unless this end asks.
    pub fn take_requests(&self) -> Option<Latency> {
        self.shared.asks.then(|| self.shared.take_latencies())
    }

    /// The sockets, in the order of their streams; open and readable until [`Load::finish`].
    pub fn sockets(&self) -> &[TcpStream] {
        &self.shared.sockets
    }

    /// Ends early: a sender stops and closes its side, a receiver reads on for at most `drain`.
    pub fn stop(&self) {
        self.shared.lock().stopped = true;
        self.shared.changed.notify_all();
    }

    /// All streams are done.
    pub fn is_finished(&self) -> bool {
        self.shared.lock().running == 0
    }

    /// Waits until all streams are done (`true`) or the moment has come (`false`).
    pub fn wait(&self, until: Instant) -> bool {
        let mut state = self.shared.lock();
        loop {
            if state.running == 0 {
                return true;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self.shared.sleep(state, left);
        }
    }

    /// Waits for all streams, however long, and closes the sockets.
    pub fn finish(mut self) -> Outcome {
        self.join();
        let shared = &self.shared;
        let store = match self.task.as_ref() {
            Task::Serve(_, store) => {
                let failed = shared.lock().storage_failed.take();
                Some(blocks::settle(store.as_ref(), failed))
            }
            _ => None,
        };
        let requests = shared.asks.then(|| {
            shared.take_latencies();
            counts(&shared.lock().all)
        });
        let mut state = shared.lock();
        let mut warnings = std::mem::take(&mut state.warnings);
        warnings.extend(state.tally.warnings());
        let mut errors = std::mem::take(&mut state.errors);
        errors.sort_by_key(|e| e.stream);
        Outcome {
            bytes: shared.bytes(),
            duration: match (state.first, state.last) {
                (Some(first), Some(last)) => last.saturating_duration_since(first).into(),
                _ => Nanos(0),
            },
            requests,
            operations: std::mem::take(&mut state.operations),
            copy: state.copy.take(),
            store,
            errors,
            warnings,
        }
    }

    fn join(&mut self) {
        for thread in self.streams.drain(..) {
            // A stream that panicked has said so on stderr; its counters stand.
            let _ = thread.join();
        }
        if let Some(keeper) = self.keeper.take() {
            let _ = keeper.join();
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        if self.streams.is_empty() {
            return;
        }
        self.shared.cut();
        // Without a keeper (the system ran out of threads) nobody else wakes a sleeping stream.
        self.streams.iter().for_each(|t| t.thread().unpark());
        self.join();
    }
}

fn spawn(name: String, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Error> {
    thread::Builder::new()
        .name(name)
        .spawn(body)
        .map_err(|e| Error::system("start a thread; lower the number of streams", e))
}

fn check_cpus(cpus: &[u32]) -> Result<(), Error> {
    if cpus.is_empty() {
        return Ok(());
    }
    let allowed = sched::allowed_cpus().map_err(|e| Error::system("read the CPU affinity", e))?;
    match cpus.iter().find(|cpu| !allowed.contains(cpu)) {
        None => Ok(()),
        Some(cpu) => {
            let allowed: Vec<String> = allowed.iter().map(u32::to_string).collect();
            let remedy = format!("this process may use CPU {}", allowed.join(", "));
            Err(Error::range("CPU", cpu, remedy))
        }
    }
}

/// What each thread does, once the order is known to fit together.
pub(crate) enum Task {
    Send(Bulk),
    Receive(Bulk),
    Ask(Request, Option<Arc<dyn Connector>>),
    Answer(Request, Option<Arc<dyn Acceptor>>),
    CopyFrom(Arc<dyn Source>),
    CopyTo(Arc<dyn Sink>),
    Converse(Blocks, Arc<Dialogues>),
    Serve(Blocks, Arc<dyn Store>),
}

impl Task {
    fn of(job: &Job) -> Result<Task, Error> {
        match (job.role, &job.workload, &job.reconnect) {
            (Role::Send | Role::Receive, Workload::Bulk(bulk), None) => {
                if matches!(job.limit, Limit::Requests(_) | Limit::Whole) {
                    return Err(Error::Job(
                        "a bulk load ends neither by requests nor with a file; limit it by time or bytes".into(),
                    ));
                }
                bulk::check(bulk)?;
                Ok(if job.role == Role::Send {
                    Task::Send(bulk.clone())
                } else {
                    Task::Receive(bulk.clone())
                })
            }
            (Role::Send | Role::Receive, Workload::Copy(_), None) => match &job.storage {
                Some(Storage::Source(source)) => Ok(Task::CopyFrom(Arc::clone(source))),
                Some(Storage::Sink(sink)) => Ok(Task::CopyTo(Arc::clone(sink))),
                _ => Err(Error::Job("a copy needs its storage".into())),
            },
            (Role::Ask, Workload::Blocks(order), None) => match &job.dialogues {
                Some(dialogues) => Ok(Task::Converse(order.clone(), Arc::clone(dialogues))),
                None => Err(Error::Job(
                    "blocks need somebody who speaks with their server".into(),
                )),
            },
            (Role::Answer, Workload::Blocks(order), None) => match &job.storage {
                Some(Storage::Store(store)) => Ok(Task::Serve(order.clone(), Arc::clone(store))),
                _ => Err(Error::Job("blocks need what they are in".into())),
            },
            (Role::Ask | Role::Answer, Workload::Request(order), source) => {
                request::check(order)?;
                let task = match (job.role, source, order.reconnect) {
                    (Role::Ask, None, false) => Task::Ask(order.clone(), None),
                    (Role::Ask, Some(Reconnect::Connect(c)), true) => {
                        Task::Ask(order.clone(), Some(Arc::clone(c)))
                    }
                    (Role::Answer, None, false) => Task::Answer(order.clone(), None),
                    (Role::Answer, Some(Reconnect::Accept(a)), true) => {
                        Task::Answer(order.clone(), Some(Arc::clone(a)))
                    }
                    _ => {
                        return Err(Error::Job(
                            "an order for new connections and their source must go together".into(),
                        ));
                    }
                };
                Ok(task)
            }
            _ => Err(Error::Job(
                "role and workload do not fit together: bulk is sent and received, requests are \
                 asked and answered"
                    .into(),
            )),
        }
    }
}

/// How far the load is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Go on.
    Running = 0,
    /// The limit is reached or someone stopped it: senders stop, receivers read to the end.
    Ending = 1,
    /// The time to drain is over too: leave everything.
    Cut = 2,
}

/// What all threads of a load see.
pub(crate) struct Shared {
    sockets: Vec<TcpStream>,
    streams: Vec<PerStream>,
    /// The scheduler chooses the processors.
    pub(crate) roams: bool,
    asks: bool,
    sends: bool,
    /// Both ends send: requests.
    talks: bool,
    half_close: bool,
    drain: Duration,
    lost_after: Duration,
    nodelay: bool,
    pub(crate) begun: Instant,
    /// When a sender stops by the clock.
    ends: Option<Instant>,
    phase: AtomicU8,
    /// Bytes or requests that may still be started; `None`: no such limit.
    budget: Option<AtomicU64>,
    state: Mutex<State>,
    changed: Condvar,
}

/// Counters of one stream on cache lines of their own, so that streams never disturb each other
/// (128: neighbouring lines are fetched in pairs).
#[repr(align(128))]
struct PerStream {
    bytes: AtomicU64,
    peer: Option<SocketAddr>,
    recent: Mutex<Histogram<u64>>,
}

struct State {
    running: usize,
    stopped: bool,
    first: Option<Instant>,
    last: Option<Instant>,
    errors: Vec<StreamError>,
    warnings: Vec<Warning>,
    tally: Tally,
    copy: Option<CopyRecord>,
    /// Why what has the blocks failed, if it did.
    storage_failed: Option<String>,
    operations: Vec<BlockRecord>,
    /// All latencies that were taken out of the streams.
    all: Histogram<u64>,
    /// Empty, to be swapped with a stream's.
    spare: Histogram<u64>,
}

/// Counts that become warnings once, whatever the number of streams.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) zerocopy_sends: u64,
    pub(crate) zerocopy_copied: u64,
    pub(crate) zerocopy_refused: u64,
    pub(crate) cut_receivers: u64,
    pub(crate) unanswered: u64,
    pub(crate) never_sent: u64,
}

/// What every data connection gets, whenever it is made.
fn prepare(fd: BorrowedFd<'_>, lost_after: Duration, nodelay: bool) -> io::Result<()> {
    socket::set_lost_after(fd, lost_after)?;
    match nodelay {
        true => socket::set_nodelay(fd, true),
        false => Ok(()),
    }
}

impl Shared {
    /// The same for one that is made meanwhile.
    pub(crate) fn prepare(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        prepare(fd, self.lost_after, self.nodelay)
    }

    fn new(job: &Job, sockets: Vec<TcpStream>, warnings: Vec<Warning>) -> Result<Shared, Error> {
        let talks = matches!(job.role, Role::Ask | Role::Answer);
        let nodelay = talks && job.nodelay != Some(false);
        for stream in &sockets {
            let fail = |e| Error::system("prepare a data connection", e);
            prepare(stream.as_fd(), job.lost_after, nodelay).map_err(fail)?;
            if job.role == Role::Send && !job.half_close {
                // Nothing else ends a blocked write while the connection stays open.
                stream
                    .set_write_timeout(Some(Duration::from_millis(100)))
                    .map_err(fail)?;
            }
        }
        let begun = Instant::now();
        let limits_here = matches!(job.role, Role::Send | Role::Ask);
        let budget = match (job.limit, &job.workload) {
            (Limit::Time(_), _) => None,
            // Requests by the bytes that they send: the last one may go over.
            (Limit::Bytes(bytes), Workload::Request(r)) => {
                Some(bytes.0.div_ceil(r.request_size.0.max(1)))
            }
            (Limit::Bytes(bytes), _) => Some(bytes.0),
            (Limit::Requests(n), _) => Some(n),
            (Limit::Whole, _) => None,
        };
        let ends = match job.limit {
            Limit::Time(time) => begun.checked_add(time.into()),
            _ => None,
        };
        Ok(Shared {
            streams: sockets.iter().map(PerStream::new).collect(),
            roams: job.cpus.is_empty(),
            asks: job.role == Role::Ask,
            sends: job.role == Role::Send,
            talks,
            half_close: job.half_close,
            drain: job.drain,
            lost_after: job.lost_after,
            nodelay,
            begun,
            ends: ends.filter(|_| limits_here).or_else(|| {
                // The end that only follows ends by itself when the sender's time and its own
                // patience are over, see `keep`.
                ends.and_then(|at| at.checked_add(job.drain))
            }),
            phase: AtomicU8::new(Phase::Running as u8),
            budget: budget.filter(|_| limits_here).map(AtomicU64::new),
            state: Mutex::new(State {
                running: sockets.len(),
                stopped: false,
                first: None,
                last: None,
                errors: Vec::new(),
                warnings,
                tally: Tally::default(),
                copy: None,
                storage_failed: None,
                operations: Vec::new(),
                all: latencies(),
                spare: latencies(),
            }),
            changed: Condvar::new(),
            sockets,
        })
    }

    /// Moves the load through its phases; ends with the last stream.
    fn keep(&self, threads: Vec<Thread>) {
        let limits_here = self.asks || self.sends;
        let mut cut_at = None;
        let mut state = self.lock();
        while state.running > 0 {
            let now = Instant::now();
            let phase = self.phase();
            let next = if phase == Phase::Running {
                self.ends
            } else {
                cut_at
            };
            let due = next.is_some_and(|at| now >= at);
            if phase == Phase::Running && (due || state.stopped) {
                if due && !limits_here {
                    self.cut();
                } else {
                    cut_at = now.checked_add(self.drain);
                    self.end();
                }
                threads.iter().for_each(Thread::unpark);
            } else if phase == Phase::Ending && due {
                self.cut();
                threads.iter().for_each(Thread::unpark);
            }
            let left = match self.phase() {
                Phase::Running => self.ends,
                Phase::Ending => cut_at,
                Phase::Cut => None,
            }
            .map_or(FOR_EVER, |at| at.saturating_duration_since(Instant::now()));
            state = self.sleep(state, left);
        }
    }

    fn end(&self) {
        self.phase.store(Phase::Ending as u8, Ordering::Relaxed);
        if self.sends && self.half_close {
            // Also wakes a writer that waits for room on a stalled path.
            self.shutdown(Shutdown::Write);
        }
    }

    fn cut(&self) {
        self.phase.store(Phase::Cut as u8, Ordering::Relaxed);
        match (self.sends, self.talks) {
            (_, true) => self.shutdown(Shutdown::Both),
            (false, _) => self.shutdown(Shutdown::Read),
            (true, _) if self.half_close => self.shutdown(Shutdown::Write),
            (true, _) => {}
        }
    }

    fn shutdown(&self, side: Shutdown) {
        for socket in &self.sockets {
            // A connection that is gone already needs none.
            let _ = socket.shutdown(side);
        }
    }

    fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Relaxed) {
            0 => Phase::Running,
            1 => Phase::Ending,
            _ => Phase::Cut,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sleep<'a>(&self, state: MutexGuard<'a, State>, time: Duration) -> MutexGuard<'a, State> {
        self.changed
            .wait_timeout(state, time)
            .unwrap_or_else(PoisonError::into_inner)
            .0
    }

    fn bytes(&self) -> Vec<Bytes> {
        let read = |s: &PerStream| Bytes(s.bytes.load(Ordering::Relaxed));
        self.streams.iter().map(read).collect()
    }

    fn take_latencies(&self) -> Latency {
        let mut guard = self.lock();
        let state = &mut *guard;
        let mut taken = Latency::default();
        for stream in &self.streams {
            // Swapped, so that the stream waits for a moment only.
            std::mem::swap(&mut *stream.recent(), &mut state.spare);
            if state.spare.is_empty() {
                continue;
            }
            taken = taken.merged(&counts(&state.spare));
            state
                .all
                .add(&state.spare)
                .expect("a resizing histogram takes every value");
            state.spare.reset();
        }
        taken
    }
}

/// Longer than any load; a condition variable needs some time.
const FOR_EVER: Duration = Duration::from_secs(3600);

impl PerStream {
    fn new(socket: &TcpStream) -> PerStream {
        PerStream {
            bytes: AtomicU64::new(0),
            peer: socket.peer_addr().ok(),
            recent: Mutex::new(latencies()),
        }
    }

    fn recent(&self) -> MutexGuard<'_, Histogram<u64>> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Nanoseconds to three significant digits, growing as needed.
pub(crate) fn latencies() -> Histogram<u64> {
    Histogram::new(3).expect("three digits are within what the histogram allows")
}

pub(crate) fn counts(histogram: &Histogram<u64>) -> Latency {
    let recorded = histogram.iter_recorded();
    Latency::from_counts(recorded.map(|v| (v.value_iterated_to(), v.count_at_value())))
}

/// One thread's view of the load.
pub(crate) struct Stream<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) index: usize,
}

impl Stream<'_> {
    fn run(&self, cpu: Option<u32>, task: &Task, spin: Spin) {
        let result = match cpu.map_or(Ok(()), |cpu| sched::run_on(&[cpu])) {
            Err(e) => Err(format!(
                "cannot keep a thread on its CPU: {e}; leave CPUs away"
            )),
            Ok(()) => match task {
                Task::Send(order) => bulk::send(self, order),
                Task::Receive(order) => bulk::receive(self, order),
                Task::Ask(order, source) => request::ask(self, order, source.as_deref(), spin),
                Task::Answer(order, source) => {
                    request::answer(self, order, source.as_deref(), spin)
                }
                Task::CopyFrom(source) => copy::send(self, source.as_ref()),
                Task::CopyTo(sink) => copy::receive(self, sink.as_ref()),
                Task::Converse(order, dialogues) => {
                    let mut dialogue = dialogues(self.index);
                    dialogue::converse(self, order, dialogue.as_mut(), spin)
                }
                Task::Serve(order, store) => blocks::serve(self, order, store.as_ref(), spin),
            },
        };
        let mut state = self.shared.lock();
        state.running -= 1;
        if let Err(what) = result {
            state.errors.push(StreamError {
                stream: u32::try_from(self.index).unwrap_or(u32::MAX),
                what,
            });
        }
        drop(state);
        self.shared.changed.notify_all();
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        &self.shared.sockets[self.index]
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket().as_fd()
    }

    pub(crate) fn streams(&self) -> usize {
        self.shared.streams.len()
    }

    pub(crate) fn phase(&self) -> Phase {
        self.shared.phase()
    }

    pub(crate) fn half_close(&self) -> bool {
        self.shared.half_close
    }

    /// When this end stops by the clock.
    pub(crate) fn ends(&self) -> Option<Instant> {
        self.shared.ends
    }

    /// Counts bytes. This thread is the only writer, so that no locked instruction is needed.
    pub(crate) fn count(&self, bytes: usize) {
        let counter = &self.shared.streams[self.index].bytes;
        counter.store(
            counter.load(Ordering::Relaxed) + bytes as u64,
            Ordering::Relaxed,
        );
    }

    /// The time from the first byte to the last.
    pub(crate) fn moved(&self, first: Instant, last: Instant) {
        let mut state = self.shared.lock();
        state.first = Some(state.first.map_or(first, |f| f.min(first)));
        state.last = Some(state.last.map_or(last, |l| l.max(last)));
    }

    pub(crate) fn record(&self, latency: Duration) {
        let ns = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        // Only a value beyond what the histogram can ever hold fails: half an eternity.
        let _ = self.shared.streams[self.index].recent().record(ns);
    }

    /// Takes up to `want` of what the limit still allows; zero: the limit is reached.
    pub(crate) fn claim(&self, want: u64) -> u64 {
        let Some(budget) = &self.shared.budget else {
            return want;
        };
        let take = |left: u64| Some(left.saturating_sub(want));
        let order = Ordering::Relaxed;
        let before = budget.fetch_update(order, order, take).unwrap_or(0);
        before.min(want)
    }

    /// Gives back what was claimed and not used.
    pub(crate) fn give_back(&self, unused: u64) {
        if let Some(budget) = &self.shared.budget {
            budget.fetch_add(unused, Ordering::Relaxed);
        }
    }

    /// Somebody ended the load early.
    pub(crate) fn stopped(&self) -> bool {
        self.shared.lock().stopped
    }

    /// Keeps what the storage of a copy did.
    pub(crate) fn copied(&self, record: CopyRecord) {
        self.shared.lock().copy = Some(record);
    }

    /// Keeps why what has the blocks failed.
    pub(crate) fn storage_failed(&self, why: &str) {
        let mut state = self.shared.lock();
        state.storage_failed.get_or_insert_with(|| why.to_owned());
    }

    /// Adds what the operations of a connection came to.
    pub(crate) fn operated(&self, records: impl Iterator<Item = BlockRecord>) {
        let mut state = self.shared.lock();
        for record in records {
            let known = |of: &&mut BlockRecord| of.operation == record.operation;
            match state.operations.iter_mut().find(known) {
                Some(of) => of.add(&record),
                None => state.operations.push(record),
            }
        }
    }

    pub(crate) fn tally(&self, add: impl FnOnce(&mut Tally)) {
        add(&mut self.shared.lock().tally);
    }

    /// A sentence for a connection that broke.
    pub(crate) fn broken(&self, e: &io::Error) -> String {
        let peer = match self.shared.streams[self.index].peer {
            Some(peer) => peer.to_string(),
            None => "the peer".into(),
        };
        match e.kind() {
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => format!(
                "{peer} closed the connection before the end ({e}); see what its own side says"
            ),
            io::ErrorKind::TimedOut => format!(
                "{peer} has acknowledged nothing for {} s and counts as lost ({e}); check the host \
                 and the path",
                self.shared.lost_after.as_secs_f64()
            ),
            _ => format!("the connection with {peer} broke ({e}); check the host and the path"),
        }
    }
}

impl Tally {
    fn warnings(&self) -> Vec<Warning> {
        let mut all = Vec::new();
        let mut warn = |what: String, meaning: &str, remedy: &str| {
            all.push(Warning {
                what,
                meaning: meaning.into(),
                remedy: remedy.into(),
            });
        };
        if self.zerocopy_copied > 0 {
            warn(
                format!(
                    "the kernel copied the data of {} of {} zero-copy sends all the same",
                    self.zerocopy_copied, self.zerocopy_sends
                ),
                "CPU use is that of copying plus the bookkeeping for zero-copy",
                "leave zero-copy away here: loopback, veth and devices without scatter-gather copy",
            );
        }
        if self.zerocopy_refused > 0 {
            warn(
                format!(
                    "the kernel refused {} zero-copy sends for want of memory; they were copied",
                    self.zerocopy_refused
                ),
                "part of the load was not zero-copy",
                "raise net.core.optmem_max or the limit of locked memory (ulimit -l)",
            );
        }
        if self.cut_receivers > 0 {
            warn(
                format!(
                    "{} stream(s) had not reached their end when the time to drain was over",
                    self.cut_receivers
                ),
                "bytes still under way are not counted, so sender and receiver differ",
                "measure for longer, or with a smaller send buffer on a slow path",
            );
        }
        if self.unanswered > 0 {
            warn(
                format!("{} request(s) were never answered", self.unanswered),
                "their latency is missing: the worst figures are worse than shown",
                "look at the server and the path for a stall at the end of the run",
            );
        }
        if self.never_sent > 0 {
            warn(
                format!(
                    "{} request(s) were due and never sent: the ones before took too long",
                    self.never_sent
                ),
                "the asked pace was not reached and the latencies are those of an overload",
                "lower the pace or use more connections",
            );
        }
        all
    }
}

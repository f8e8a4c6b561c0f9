//! Running threads and what they counted.

use crate::prelude::*;
use crate::spin::is_local;
use crate::stream::{StreamError, StreamShared};
use crate::workload::alone;
use crate::{blocks, bulk, copy, request, udp};
use model::{Datagrams, EndRecord, Latency, Workload};
use std::collections::BTreeSet;
use std::thread::{self, JoinHandle, Thread};
use sys::sched;

/// What a finished load did.
#[derive(Clone, Debug, Default)]
pub struct LoadOutcome {
    /// Bytes of each stream in the direction of the leg: written by [`Role::Send`] and
    /// [`Role::Ask`], read by the others.
    pub bytes: Vec<Bytes>,
    /// Datagrams of each stream (datagrams only).
    pub datagrams: Vec<Datagrams>,
    /// What all streams together came to, but for bytes and datagrams.
    pub record: EndRecord,
    /// Streams that broke.
    pub errors: Vec<StreamError>,
    /// The limit that cut the load, if one did.
    pub limit: Option<String>,
}

/// A running load. Dropping it without [`Load::finish`] cuts its streams off.
pub struct Load {
    shared: Arc<StreamShared>,
    end: Arc<dyn WorkloadEnd>,
    threads: Vec<JoinHandle<()>>,
    keeper: Option<JoinHandle<()>>,
}

impl Load {
    /// Starts at once. The sockets must be connected and in blocking mode; those of datagrams come by
    /// [`sys::udp::as_stream`].
    pub fn start(job: Job, sockets: Vec<TcpStream>) -> Result<Load, Error> {
        let end: Arc<dyn WorkloadEnd> = workload_end(&job)?.into();
        if sockets.is_empty() {
            return Err(Error::Job("a load needs at least one connection".into()));
        }
        check_cpus(&job.cpus)?;
        end.prepare().map_err(Error::Job)?;
        let mut warnings = Vec::new();
        let streams = sockets.len();
        let ends_here = 1 + usize::from(is_local(&sockets[0]));
        let placed = job.cpus.iter().collect::<BTreeSet<_>>().len();
        let own = match placed {
            0 => (processors() / ends_here).max(1),
            _ => placed,
        };
        let threads = end.threads(streams, own);
        let spin = Spin::allowed(end.wait(), threads * ends_here, &mut warnings);
        let shared = Arc::new(StreamShared::new(job, sockets, threads, warnings)?);
        let cpus = &shared.job.cpus;
        let mut load = Load {
            shared: Arc::clone(&shared),
            end: Arc::clone(&end),
            threads: Vec::new(),
            keeper: None,
        };
        for thread in 0..threads {
            let (shared, end) = (Arc::clone(&shared), Arc::clone(&end));
            let cpu = cpus.iter().cycle().nth(thread).copied();
            let thread = spawn(format!("stream {thread}"), move || {
                let part = (thread..streams).step_by(threads);
                let part: Vec<LoadStream<'_>> = part
                    .map(|index| LoadStream {
                        shared: &shared,
                        index,
                        thread,
                        over: AtomicBool::new(false),
                    })
                    .collect();
                match cpu.map_or(Ok(()), |cpu| sched::run_on(&[cpu])) {
                    Ok(()) => end.run(&part, spin),
                    Err(e) => alone(&part, |_| {
                        let why = format!("cannot keep a thread on its CPU: {e}");
                        Err(format!("{why}; leave CPUs away"))
                    }),
                }
            })?;
            load.threads.push(thread);
        }
        let threads = load.all_threads();
        let keeper = Arc::clone(&shared);
        load.keeper = Some(spawn("load keeper".into(), move || {
            keeper.run_phases(threads)
        })?);
        Ok(load)
    }

    fn all_threads(&self) -> Vec<Thread> {
        self.threads.iter().map(|t| t.thread().clone()).collect()
    }

    /// Bytes of each stream so far; cheap, from any thread.
    pub fn bytes(&self) -> Vec<Bytes> {
        self.shared.bytes()
    }

    /// Datagrams of each stream so far; likewise.
    pub fn datagrams(&self) -> Vec<Datagrams> {
        self.shared.datagrams()
    }

    /// The latencies since the last call; `None` unless this end asks.
    pub fn take_requests(&self) -> Option<Latency> {
        self.asks().then(|| self.shared.take_latencies())
    }

    fn asks(&self) -> bool {
        self.shared.job.role == Role::Ask
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
    pub fn finish(mut self) -> LoadOutcome {
        self.join();
        let shared = &self.shared;
        let failed = shared.lock().storage_failed.take();
        let store = self.end.settle(failed);
        if self.asks() {
            shared.take_latencies();
        }
        let mut state = shared.lock();
        let mut outcome = std::mem::take(&mut state.outcome);
        outcome.errors.sort_by_key(|e| e.stream);
        let record = &mut outcome.record;
        record.warnings.extend(state.tally.warnings());
        if let (Some(first), Some(last)) = (state.first, state.last) {
            record.duration = last.saturating_duration_since(first).into();
        }
        if let (Some(first), (streams, Some(last))) = (state.first, state.acknowledged)
            && streams == shared.streams.len()
        {
            record.acknowledged = Some(last.saturating_duration_since(first).into());
        }
        record.requests = self.asks().then(|| state.all.clone());
        record.store = store;
        LoadOutcome {
            bytes: shared.bytes(),
            datagrams: shared.datagrams(),
            ..outcome
        }
    }

    fn join(&mut self) {
        for thread in self.threads.drain(..) {
            // A stream that panicked has said so; its counters stand.
            let _ = thread.join();
        }
        if let Some(keeper) = self.keeper.take() {
            let _ = keeper.join();
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        if self.threads.is_empty() {
            return;
        }
        self.shared.cut();
        // Without a keeper (the system ran out of threads) nobody else wakes a sleeping stream.
        self.shared.wake(&self.all_threads());
        self.join();
    }
}

fn spawn(name: String, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Error> {
    thread::Builder::new()
        .name(name)
        .spawn(body)
        .map_err(|e| Error::system("start a thread; lower the number of streams", e))
}

/// That this process may use.
pub(crate) fn processors() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
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

/// Memory that an end of a leg needs for buffers: an order must not take all of the machine's.
pub fn buffers(workload: &Workload, streams: u32, role: Role) -> Bytes {
    let streams = streams as usize;
    let bytes = match workload {
        Workload::Bulk(order) => bulk::buffers(order, streams, role == Role::Send),
        Workload::Request(order) => request::buffers(order, streams),
        Workload::Copy(_) => copy::BUFFERS,
        Workload::Blocks(order) => {
            let held = order.block.0.saturating_mul(order.depth.into()) as usize;
            held.saturating_mul(streams)
        }
        Workload::Udp(_) => udp::buffers(role == Role::Send).saturating_mul(streams),
    };
    Bytes(bytes as u64)
}

/// This end of the job's workload, once the job is known to fit together.
fn workload_end(job: &Job) -> Result<Box<dyn WorkloadEnd>, Error> {
    match &job.workload {
        Workload::Bulk(order) => bulk::end(job, order),
        Workload::Request(order) => request::end(job, order),
        Workload::Copy(_) => copy::end(job),
        Workload::Blocks(order) => blocks::end(job, order),
        Workload::Udp(order) => udp::end(job, order),
    }
}

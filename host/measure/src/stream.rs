//! One load's streams while they run: phases, limits, counters, and each thread's view of them.

use crate::load::LoadOutcome;
use crate::prelude::*;
use crate::udp;
use hdrhistogram::Histogram;
use model::{Arrivals, BlockRecord, CopyRecord, Datagrams, EndRecord, Latency, LegLimit, Warning};
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use sys::lock;
use sys::poll::Waker;

/// A stream that broke: the others went on, and its counts are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamError {
    /// Number of the stream, from 0.
    pub stream: u32,
    /// One sentence: what happened, to what, what to do.
    pub what: String,
}

/// How far the load is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LoadPhase {
    /// Go on.
    Running = 0,
    /// The limit is reached or someone stopped it: senders stop, receivers read to the end.
    Ending = 1,
    /// The time to drain is over too: leave everything.
    Cut = 2,
}

/// What all threads of a load see.
pub(crate) struct StreamShared {
    pub(crate) sockets: Vec<TcpStream>,
    pub(crate) streams: Vec<PerStream>,
    /// Those that each thread has recorded and nobody has taken.
    recent: Vec<Mutex<Histogram<u64>>>,
    /// Woken whenever the phase changes, for threads that wait for several connections.
    pub(crate) waker: Waker,
    pub(crate) job: Job,
    pub(crate) begun: Instant,
    /// When a sender stops by the clock.
    pub(crate) ends: Option<Instant>,
    phase: AtomicU8,
    /// Bytes or requests that may still be started; `None`: no such limit.
    budget: Option<AtomicU64>,
    /// When the load is cut.
    longest: Option<Instant>,
    state: Mutex<StreamState>,
    pub(crate) changed: Condvar,
}

/// Counters of one stream on cache lines of their own, so that streams never disturb each other
/// (128: neighbouring lines are fetched in pairs).
#[repr(align(128))]
pub(crate) struct PerStream {
    bytes: AtomicU64,
    /// The most bytes that have waited to be read: the quota has counted so many beside those that were read.
    ahead: AtomicUsize,
    peer: Option<SocketAddr>,
    datagrams: Mutex<Datagrams>,
}

#[derive(Default)]
pub(crate) struct StreamState {
    pub(crate) running: usize,
    pub(crate) stopped: bool,
    pub(crate) first: Option<Instant>,
    pub(crate) last: Option<Instant>,
    /// Streams of which everything was acknowledged, and when that of the last was.
    pub(crate) acknowledged: (usize, Option<Instant>),
    pub(crate) tally: Tally,
    /// Why what has the blocks failed, if it did.
    pub(crate) storage_failed: Option<String>,
    /// As far as the streams know it.
    pub(crate) outcome: LoadOutcome,
    /// All latencies that were taken out of the streams.
    pub(crate) all: Latency,
    /// Empty, to be swapped with a thread's; it keeps its size.
    spare: Option<Histogram<u64>>,
}

/// Counts that become warnings once, whatever the number of streams.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) segments_refused: u64,
    pub(crate) fragmented: u64,
    pub(crate) cut_receivers: u64,
    pub(crate) unanswered: u64,
    pub(crate) never_sent: u64,
}

/// What every data connection gets, whenever it is made.
fn prepare(stream: &TcpStream, job: &Job) -> io::Result<()> {
    if job.workload.is_udp() {
        return udp::prepare(stream);
    }
    socket::set_lost_after(stream.as_fd(), job.lost_after)?;
    if let Some(longest) = job.longest_rto {
        // Older kernels have none.
        let _ = socket::set_longest_rto(stream.as_fd(), longest);
    }
    match job.role.talks() && job.nodelay != Some(false) {
        true => stream.set_nodelay(true),
        false => Ok(()),
    }
}

impl StreamShared {
    /// The same for one that is made meanwhile.
    pub(crate) fn prepare(&self, stream: &TcpStream) -> io::Result<()> {
        prepare(stream, &self.job)
    }

    pub(crate) fn new(
        job: Job,
        sockets: Vec<TcpStream>,
        threads: usize,
        warnings: Vec<Warning>,
    ) -> Result<StreamShared, Error> {
        for stream in &sockets {
            let fail = |e| Error::system("prepare a data connection", e);
            prepare(stream, &job).map_err(fail)?;
            if job.role == Role::Send && !job.half_close {
                // Nothing else ends a blocked write while the connection stays open.
                stream
                    .set_write_timeout(Some(Duration::from_millis(100)))
                    .map_err(fail)?;
            }
        }
        let begun = Instant::now();
        let limits_here = job.role.limits();
        // Of a peer that ends its stream itself no more is taken than was ordered.
        let receives = job.role == Role::Receive && job.half_close;
        let budget = job.workload.budget(job.limit);
        let ends = match job.limit {
            LegLimit::Time(time) => begun.checked_add(time.into()),
            _ => None,
        };
        let longest = job.longest.as_ref();
        Ok(StreamShared {
            streams: sockets.iter().map(PerStream::new).collect(),
            recent: (0..threads).map(|_| Mutex::new(latencies())).collect(),
            waker: Waker::new().map_err(|e| Error::system("open an eventfd", e))?,
            begun,
            ends: match limits_here {
                true => ends,
                // The end that only follows ends by itself when the sender's time and its own
                // patience are over, see `keep`.
                false => ends.and_then(|at| at.checked_add(job.drain)),
            },
            phase: AtomicU8::new(LoadPhase::Running as u8),
            budget: budget
                .filter(|_| limits_here || receives)
                .map(AtomicU64::new),
            longest: longest.and_then(|(time, _)| begun.checked_add(*time)),
            state: Mutex::new(StreamState {
                running: sockets.len(),
                outcome: LoadOutcome {
                    record: EndRecord {
                        warnings,
                        ..EndRecord::default()
                    },
                    ..LoadOutcome::default()
                },
                ..StreamState::default()
            }),
            changed: Condvar::new(),
            sockets,
            job,
        })
    }

    /// Moves the load through its phases; ends with the last stream.
    pub(crate) fn run_phases(&self, threads: Vec<Thread>) {
        let limits_here = self.job.role.limits();
        let mut cut_at = None;
        let mut state = self.lock();
        while state.running > 0 {
            let now = Instant::now();
            let due = |at: Option<Instant>| at.is_some_and(|at| now >= at);
            match self.phase() {
                LoadPhase::Running | LoadPhase::Ending if due(self.longest) => {
                    let why = self.job.longest.as_ref().map(|(_, why)| why.clone());
                    state.outcome.limit = state.outcome.limit.take().or(why);
                    self.cut();
                }
                LoadPhase::Running if due(self.ends) && !limits_here => self.cut(),
                LoadPhase::Running if due(self.ends) || state.stopped => {
                    self.end();
                    cut_at = now.checked_add(self.job.drain);
                }
                LoadPhase::Ending if due(cut_at) => self.cut(),
                phase => {
                    let next = match phase {
                        LoadPhase::Running => self.ends,
                        LoadPhase::Ending => cut_at,
                        LoadPhase::Cut => None,
                    };
                    let longest = self.longest.filter(|_| phase != LoadPhase::Cut);
                    let next = next.into_iter().chain(longest).min();
                    let left = next.map_or(FOR_EVER, |at| at.saturating_duration_since(now));
                    state = self.sleep(state, left);
                    continue;
                }
            }
            self.wake(&threads);
        }
    }

    /// Has all threads look at the phase.
    pub(crate) fn wake(&self, threads: &[Thread]) {
        self.waker.wake();
        threads.iter().for_each(Thread::unpark);
    }

    fn end(&self) {
        self.phase.store(LoadPhase::Ending as u8, Ordering::Relaxed);
        if self.job.role == Role::Send && self.job.half_close {
            // Also wakes a writer that waits for room on a stalled path.
            self.shutdown(Shutdown::Write);
        }
    }

    pub(crate) fn cut(&self) {
        self.phase.store(LoadPhase::Cut as u8, Ordering::Relaxed);
        match self.job.role {
            Role::Ask | Role::Answer => self.shutdown(Shutdown::Both),
            Role::Receive => self.shutdown(Shutdown::Read),
            Role::Send if self.job.half_close => self.shutdown(Shutdown::Write),
            Role::Send => {}
        }
    }

    fn shutdown(&self, side: Shutdown) {
        for socket in &self.sockets {
            // A connection that is gone already needs none.
            let _ = socket.shutdown(side);
        }
    }

    pub(crate) fn phase(&self) -> LoadPhase {
        match self.phase.load(Ordering::Relaxed) {
            0 => LoadPhase::Running,
            1 => LoadPhase::Ending,
            _ => LoadPhase::Cut,
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, StreamState> {
        lock(&self.state)
    }

    pub(crate) fn sleep<'a>(
        &self,
        state: MutexGuard<'a, StreamState>,
        time: Duration,
    ) -> MutexGuard<'a, StreamState> {
        self.changed
            .wait_timeout(state, time)
            .unwrap_or_else(PoisonError::into_inner)
            .0
    }

    pub(crate) fn bytes(&self) -> Vec<Bytes> {
        let read = |s: &PerStream| Bytes(s.bytes.load(Ordering::Relaxed));
        self.streams.iter().map(read).collect()
    }

    pub(crate) fn datagrams(&self) -> Vec<Datagrams> {
        let read = |s: &PerStream| *lock(&s.datagrams);
        self.streams.iter().map(read).collect()
    }

    pub(crate) fn take_latencies(&self) -> Latency {
        let mut state = self.lock();
        let mut spare = state.spare.take().unwrap_or_else(latencies);
        let mut taken = Latency::default();
        for recent in &self.recent {
            // Swapped, so that the thread waits for a moment only.
            std::mem::swap(&mut *lock(recent), &mut spare);
            taken = taken.merged(&counts(&spare));
            spare.reset();
        }
        state.all = state.all.merged(&taken);
        state.spare = Some(spare);
        taken
    }
}

/// How soon a thread that waits for a quota, and that nobody wakes, notices the end of the load.
const LOOK: Duration = Duration::from_millis(50);

/// Longer than any load; a condition variable needs some time.
const FOR_EVER: Duration = Duration::from_secs(3600);

impl PerStream {
    fn new(socket: &TcpStream) -> PerStream {
        PerStream {
            bytes: AtomicU64::new(0),
            ahead: AtomicUsize::new(0),
            peer: socket.peer_addr().ok(),
            datagrams: Mutex::default(),
        }
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

/// What the thread of a stream sees of the load.
pub(crate) struct LoadStream<'a> {
    pub(crate) shared: &'a StreamShared,
    pub(crate) index: usize,
    /// Number of its thread.
    pub(crate) thread: usize,
    pub(crate) over: AtomicBool,
}

impl Drop for LoadStream<'_> {
    /// A stream that nobody finished, as its thread panicked, is over as well: nobody waits for it for ever.
    fn drop(&mut self) {
        let why = "its thread panicked, which is a fault of linerate: standard error has more";
        self.finish(Err(why.to_owned()));
    }
}

impl Deref for LoadStream<'_> {
    type Target = StreamShared;

    fn deref(&self) -> &StreamShared {
        self.shared
    }
}

impl LoadStream<'_> {
    /// The stream is over; why it broke is kept. Only the first call counts.
    pub(crate) fn finish(&self, result: Result<(), String>) {
        if self.over.swap(true, Ordering::Relaxed) {
            return;
        }
        let mut state = self.shared.lock();
        state.running -= 1;
        if let Err(what) = result {
            state.outcome.errors.push(StreamError {
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

    /// Counts bytes. This thread is the only writer, so that no locked instruction is needed.
    pub(crate) fn count(&self, bytes: usize) {
        let counter = &self.shared.streams[self.index].bytes;
        counter.store(
            counter.load(Ordering::Relaxed) + bytes as u64,
            Ordering::Relaxed,
        );
    }

    /// Keeps the counts of datagrams so far.
    pub(crate) fn counted(&self, datagrams: Datagrams) {
        *lock(&self.shared.streams[self.index].datagrams) = datagrams;
    }

    /// Adds what a receiver of datagrams found at the end.
    pub(crate) fn arrived(&self, arrivals: &Arrivals) {
        let mut state = self.shared.lock();
        let before = state.outcome.record.arrivals.take().unwrap_or_default();
        state.outcome.record.arrivals = Some(before.merged(arrivals));
    }

    /// The time from the first byte to the last.
    pub(crate) fn moved(&self, first: Instant, last: Instant) {
        let mut state = self.shared.lock();
        state.first = Some(state.first.map_or(first, |f| f.min(first)));
        state.last = Some(state.last.map_or(last, |l| l.max(last)));
    }

    /// Waits until everything that was written is acknowledged, at most the time to drain, and keeps when that was.
    pub(crate) fn settle_acknowledged(&self) {
        /// A wait of a scheduler's pass each, until these are too many.
        const SPIN: Duration = Duration::from_millis(1);
        let began = Instant::now();
        loop {
            let now = Instant::now();
            let Ok(left) = socket::unacknowledged(self.fd()) else {
                return;
            };
            // The end of the stream counts as a byte.
            if left <= 1 {
                let (streams, last) = &mut self.shared.lock().acknowledged;
                *streams += 1;
                *last = (*last).max(Some(now));
                return;
            }
            let waited = now - began;
            if self.phase() == LoadPhase::Cut || waited > self.shared.job.drain {
                return;
            }
            match waited < SPIN {
                true => thread::yield_now(),
                false => thread::sleep((waited / 64).min(SPIN)),
            }
        }
    }

    pub(crate) fn record(&self, latency: Duration) {
        let ns = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        // Only a value beyond what the histogram can ever hold fails: half an eternity.
        let _ = lock(&self.shared.recent[self.thread]).record(ns);
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

    /// Takes what may be written or read of `want` bytes from the peer's quota, and waits until it may; at once and all
    /// of it without a quota.
    ///
    /// # Errors
    /// A pause, if the load has come to the phase `last` during the wait: a reached limit cuts it.
    pub(crate) fn admit(&self, want: usize, last: LoadPhase) -> io::Result<usize> {
        let Some(quota) = &self.shared.job.quota else {
            return Ok(want);
        };
        let (bytes, from) = quota.take(want).map_err(|why| self.limit(why))?;
        // Before the phase: another stream may have been refused because this one has the last bytes.
        loop {
            let left = from.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(bytes);
            }
            if self.phase() >= last {
                quota.give_back(bytes);
                return Err(io::ErrorKind::Interrupted.into());
            }
            // The keeper wakes the stream's own thread when the load ends; others look.
            thread::park_timeout(left.min(LOOK));
        }
    }

    /// Counts against the peer's quota what has arrived and could not be held back.
    ///
    /// # Errors
    /// A pause: it was more than the quota allows, and the load is cut.
    pub(crate) fn spend(&self, bytes: usize) -> io::Result<()> {
        match &self.shared.job.quota {
            Some(quota) => quota.spend(bytes).map_err(|why| self.limit(why)),
            None => Ok(()),
        }
    }

    /// Cuts the load for this reason: a pause in which its phase changes.
    pub(crate) fn limit(&self, why: String) -> io::Error {
        self.shared.lock().outcome.limit.get_or_insert(why);
        self.shared.cut();
        io::ErrorKind::Interrupted.into()
    }

    /// Sends as much of this as the peer's quota allows.
    pub(crate) fn send(&self, fd: BorrowedFd<'_>, data: &[u8]) -> io::Result<usize> {
        let bytes = self.admit(data.len(), LoadPhase::Cut)?;
        let sent = socket::send(fd, &data[..bytes]);
        self.unmoved(bytes, &sent);
        sent
    }

    /// Sends on until `size` bytes are sent: `data`, and again from its start.
    ///
    /// # Errors
    /// A pause among them: `sent` then says how far it came.
    pub(crate) fn send_on(
        &self,
        fd: BorrowedFd<'_>,
        data: &[u8],
        size: u64,
        sent: &mut u64,
    ) -> io::Result<()> {
        while *sent < size {
            let at = (*sent % data.len() as u64) as usize;
            let want = (size - *sent).min((data.len() - at) as u64) as usize;
            *sent += self.send(fd, &data[at..at + want])? as u64;
        }
        Ok(())
    }

    /// Receives up to `most` bytes as the peer's quota allows: `wait` waits until some are there, `receive` takes
    /// them. Without a quota `receive` waits itself.
    pub(crate) fn receive(
        &self,
        fd: BorrowedFd<'_>,
        most: usize,
        wait: impl FnOnce() -> io::Result<usize>,
        receive: impl FnOnce(usize) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let Some(quota) = &self.shared.job.quota else {
            return receive(most);
        };
        if wait()? == 0 {
            return Ok(0);
        }
        let queued = socket::queued(fd)?;
        let ahead = &self.shared.streams[self.index].ahead;
        let paid = ahead.load(Ordering::Relaxed);
        if queued > paid {
            ahead.store(queued, Ordering::Relaxed);
            quota.pay_ahead(queued - paid);
        }
        let bytes = self.admit(most.min(queued), LoadPhase::Cut)?;
        let got = receive(bytes);
        self.unmoved(bytes, &got);
        got
    }

    /// A new connection: nothing is paid ahead for it yet.
    pub(crate) fn begin_connection(&self) {
        let stream = &self.shared.streams[self.index];
        stream.ahead.store(0, Ordering::Relaxed);
    }

    /// Gives back what was admitted and did not move.
    pub(crate) fn unmoved(&self, admitted: usize, moved: &io::Result<usize>) {
        let moved = *moved.as_ref().unwrap_or(&0);
        if let Some(quota) = &self.shared.job.quota
            && moved < admitted
        {
            quota.give_back(admitted - moved);
        }
    }

    /// A limit has cut the load.
    pub(crate) fn is_limited(&self) -> bool {
        self.shared.lock().outcome.limit.is_some()
    }

    pub(crate) fn has_quota(&self) -> bool {
        self.shared.job.quota.is_some()
    }

    /// Keeps what the storage of a copy did.
    pub(crate) fn copied(&self, record: CopyRecord) {
        self.shared.lock().outcome.record.copy = Some(record);
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
            match state.outcome.record.operations.iter_mut().find(known) {
                Some(of) => of.add(&record),
                None => state.outcome.record.operations.push(record),
            }
        }
    }

    pub(crate) fn tally(&self, add: impl FnOnce(&mut Tally)) {
        add(&mut self.shared.lock().tally);
    }

    /// A sentence for a connection that broke.
    pub(crate) fn broken(&self, e: &io::Error) -> String {
        if let Some(limit) = &self.shared.lock().outcome.limit {
            return limit.clone();
        }
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
                self.shared.job.lost_after.as_secs_f64()
            ),
            _ => format!("the connection with {peer} broke ({e}); check the host and the path"),
        }
    }
}

impl Tally {
    pub(crate) fn warnings(&self) -> Vec<Warning> {
        let (uncut, fragmented) = (self.segments_refused, self.fragmented);
        let (cut, unanswered, unsent) = (self.cut_receivers, self.unanswered, self.never_sent);
        let all = [
            (
                fragmented,
                format!(
                    "the datagrams of {fragmented} stream(s) are above the path MTU: each leaves in fragments"
                ),
                "a datagram is lost with any of its fragments, and takes more processor time",
                "choose a --datagram-size of the path MTU less 28 bytes (IPv6: 48); 'linerate mtu HOST' finds it",
            ),
            (
                uncut,
                format!(
                    "the kernel cut no messages into datagrams (UDP_SEGMENT) for {uncut} stream(s): each datagram was one"
                ),
                "sending takes several times the processor time of what it takes elsewhere",
                "choose a --datagram-size within the path MTU, and look at the device's checksum offload (ethtool -k)",
            ),
            (
                cut,
                format!(
                    "{cut} stream(s) had not reached their end when the time to drain was over"
                ),
                "bytes still under way are not counted, so sender and receiver differ",
                "measure for longer, or with a smaller send buffer on a slow path",
            ),
            (
                unanswered,
                format!("{unanswered} request(s) were never answered"),
                "their latency is missing: the worst figures are worse than shown",
                "look at the server and the path for a stall at the end of the run",
            ),
            (
                unsent,
                format!(
                    "{unsent} request(s) were due and never sent: the ones before took too long"
                ),
                "the asked pace was not reached and the latencies are those of an overload",
                "lower the pace or use more connections",
            ),
        ];
        let all = all.into_iter().filter(|(count, ..)| *count > 0);
        all.map(|(_, what, meaning, remedy)| Warning {
            what,
            meaning: meaning.into(),
            remedy: remedy.into(),
        })
        .collect()
    }
}

#[cfg(test)]
pub(crate) mod tests;

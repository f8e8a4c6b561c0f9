//! One emulated link at work: a thread with a packet socket at each end, and what the link does between
//! them.

use crate::emulator_counters::{Emulator, LinkCounters, LogEntry};
use crate::frame;
use emulate::{Change, Delivery, Direction, Duplex, Kept, Link, Packet, Scenario};
use model::{Latency, Nanos};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};
use sys::packet::{BATCH, Inbox, PacketSocket};
use sys::poll::{PollFd, Waker, poll_nanos};

/// Entries of the log that are kept for one link; older ones go.
const LOG_KEPT: usize = 100_000;

/// How often the log of the pipes, which is bounded too, is taken over.
const LOG_EVERY: Nanos = Nanos::from_millis(20);

/// A wait this long at most, so that a clock that stood still is noticed.
const LONGEST_WAIT: Nanos = Nanos::from_millis(500);

/// Before a frame that comes so long after the last one, the last part of the wait is spun through, because a
/// sleeping processor comes back too late: by how much is learned from the last waits, up to this. Dense
/// traffic makes up for it by the next frame, and needs the processor.
const LONGEST_SPIN: Nanos = Nanos::from_micros(500);
const SPARSE: Nanos = Nanos::from_micros(400);

/// The processors are kept from sleeping deeply until nothing has come for so long.
const AWAKE: Nanos = Nanos::from_millis(200);

/// Where fetches come closer than this, a nap between them moves several frames at once, some as much too
/// late as a wake-up is anyway. When they came, the kernel noted.
const DENSE: Nanos = Nanos::from_micros(80);
const NAP: Nanos = Nanos::from_micros(30);

/// How long an answer of a link's thread is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// The thread of a link, as the rest of the process sees it.
pub(crate) struct Worker {
    link: String,
    shared: Arc<Shared>,
}

impl Worker {
    pub(crate) fn start(mut cable: Cable) -> io::Result<Worker> {
        let shared = Arc::new(Shared {
            waker: Waker::new()?,
            asked: AtomicU64::new(0),
            restart: AtomicBool::new(false),
            told: Mutex::new(Told::default()),
            changed: Condvar::new(),
        });
        let worker = Worker {
            link: cable.link.name.clone(),
            shared: Arc::clone(&shared),
        };
        thread::Builder::new()
            .name(cable.link.name.chars().take(15).collect())
            .spawn(move || cable.run(&shared))?;
        Ok(worker)
    }

    /// The account up to now.
    pub(crate) fn truth(&self) -> LinkCounters {
        let told = self.fresh();
        LinkCounters {
            link: self.link.clone(),
            ..told.truth.clone()
        }
    }

    /// The log up to now.
    pub(crate) fn log(&self) -> Vec<LogEntry> {
        self.fresh().log.iter().cloned().collect()
    }

    /// The script from its beginning.
    pub(crate) fn restart(&self) {
        self.shared.restart.store(true, Ordering::Release);
        drop(self.fresh());
    }

    fn fresh(&self) -> MutexGuard<'_, Told> {
        let wanted = self.shared.asked.fetch_add(1, Ordering::AcqRel) + 1;
        self.shared.waker.wake();
        let told = self.shared.told();
        self.shared
            .changed
            .wait_timeout_while(told, PATIENCE, |told| told.answered < wanted)
            .unwrap_or_else(PoisonError::into_inner)
            .0
    }
}

struct Shared {
    waker: Waker,
    /// Questions so far.
    asked: AtomicU64,
    restart: AtomicBool,
    told: Mutex<Told>,
    changed: Condvar,
}

#[derive(Default)]
struct Told {
    /// Questions that the rest of this answers.
    answered: u64,
    truth: LinkCounters,
    log: VecDeque<LogEntry>,
}

impl Shared {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A link, with what its thread needs.
pub(crate) struct Cable {
    link: Link,
    sockets: [PacketSocket; 2],
    duplex: Duplex<Body>,
    script: Script,
    clock: Clock,
    /// The latest moment that each direction was told of.
    told: Nanos,
    last_delivery: Nanos,
    last_fetch: Nanos,
    /// Mean time between two fetches.
    spacing: Nanos,
    /// How much too late sleeps have ended of late: rises at once, falls slowly.
    oversleep: Nanos,
    /// While it is open, processors do not sleep deeply.
    awake: Option<File>,
    last_log: Nanos,
    outgoing: [Vec<Vec<u8>>; 2],
    too_long: [u64; 2],
    missed: u64,
    refused: u64,
    answered: u64,
    lateness: Lateness,
}

/// A frame inside a pipe.
#[derive(Clone)]
struct Body {
    /// With its virtio-net header.
    bytes: Vec<u8>,
    /// Length of the longest IP packet in it.
    packet_bytes: u64,
}

impl Cable {
    /// The link, whose clock began at `start`; the sockets are those behind its two ends.
    pub(crate) fn new(
        scenario: &Scenario,
        link: &Link,
        sockets: [PacketSocket; 2],
        start: Instant,
    ) -> Cable {
        let steps = scenario.script.iter().filter(|c| c.link == link.name);
        Cable {
            link: link.clone(),
            sockets,
            duplex: Duplex::new(link, scenario.seed),
            script: Script {
                steps: steps.cloned().collect(),
                next: 0,
                origin: Nanos(0),
            },
            clock: Clock(start),
            told: Nanos(0),
            last_delivery: Nanos(0),
            last_fetch: Nanos(0),
            spacing: LONGEST_WAIT,
            oversleep: Nanos(0),
            awake: None,
            last_log: Nanos(0),
            outgoing: Default::default(),
            too_long: [0; 2],
            missed: 0,
            refused: 0,
            answered: 0,
            lateness: Lateness::default(),
        }
    }

    fn run(&mut self, shared: &Shared) {
        // Where it is not allowed, it is as prompt as any other thread.
        let _ = sys::sched::wake_on_time();
        let _ = sys::sched::run_first().or_else(|_| sys::sched::run_in_short_turns());
        let mut inbox = Inbox::default();
        loop {
            let ready = self.wait(shared);
            if shared.restart.swap(false, Ordering::AcqRel) {
                self.restart();
            }
            for (end, is_ready) in ready.into_iter().enumerate() {
                if is_ready {
                    self.fetch(end, &mut inbox);
                }
            }
            let now = self.clock.now();
            self.follow_script(now);
            self.deliver(now);
            if now.since(self.last_fetch) > AWAKE && self.duplex.due().is_none() {
                self.awake = None;
            }
            if now.since(self.last_log) >= LOG_EVERY {
                self.keep_log(shared, now);
            }
            let asked = shared.asked.load(Ordering::Acquire);
            if asked != self.answered {
                self.answer(shared, now, asked);
            }
        }
    }

    /// Takes what has arrived at one end into the pipe that leads away from it.
    fn fetch(&mut self, end: usize, inbox: &mut Inbox) {
        // An error belongs to a device that is down: nothing arrives there.
        if inbox.receive(&self.sockets[end]).unwrap_or(0) == 0 {
            return;
        }
        let direction = Direction::BOTH[end];
        let (now, wall) = (self.clock.now(), SystemTime::now());
        // A mean over the last eight.
        self.spacing = Nanos((self.spacing.0 * 7 + now.since(self.last_fetch).0) / 8);
        if self.awake.is_none()
            && (now.since(self.last_fetch) > AWAKE || self.last_fetch == Nanos(0))
        {
            // Where it is not allowed, wake-ups are as late as they are.
            self.awake = sys::sched::keep_awake().ok();
        }
        self.last_fetch = now;
        for (bytes, stamp) in inbox.frames() {
            // The kernel noted when it came; what passed since is the emulator's, not the network's.
            let age = stamp
                .and_then(|stamp| wall.duration_since(SystemTime::UNIX_EPOCH + stamp).ok())
                .map_or(Nanos(0), Nanos::from);
            self.told = self.told.max(now.since(age));
            let view = frame::view(bytes);
            if view.is_listener_report {
                continue;
            }
            let pipe = self.duplex.pipe(direction);
            let at_once = pipe.frames_at_once(view.segment_wire_bytes);
            if view.segments > at_once {
                for first in (0..view.segments).step_by(at_once as usize) {
                    let last = (first + at_once).min(view.segments);
                    let part = frame::part(bytes, &view, first..last);
                    let view = frame::view(&part);
                    self.duplex.offer(self.told, direction, packet(part, &view));
                }
            } else {
                self.duplex
                    .offer(self.told, direction, packet(bytes.to_vec(), &view));
            }
        }
    }

    /// Sends what has come out by now.
    fn deliver(&mut self, now: Nanos) {
        self.told = self.told.max(now);
        while let Some((direction, delivery)) = self.duplex.take(self.told) {
            self.lateness.record(self.told.since(delivery.due));
            self.last_delivery = self.told;
            let end = match direction {
                Direction::Forward => 1,
                Direction::Backward => 0,
            };
            if delivery.packet.body.packet_bytes > u64::from(self.link.ends[end].mtu) {
                self.too_long[1 - end] += u64::from(delivery.packet.segments);
                continue;
            }
            survivors(delivery, &mut self.outgoing[end]);
            if self.outgoing[end].len() >= BATCH {
                self.send(end);
            }
        }
        self.send(0);
        self.send(1);
    }

    fn send(&mut self, end: usize) {
        let frames = &mut self.outgoing[end];
        let mut at = 0;
        while at < frames.len() {
            match self.sockets[end].send(frames[at..].iter().map(Vec::as_slice)) {
                Ok(sent) => at += sent.max(1),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    self.refused += 1;
                    at += 1;
                }
            }
        }
        frames.clear();
    }

    fn follow_script(&mut self, now: Nanos) {
        self.told = self.told.max(now);
        while let Some(step) = self.script.due(now) {
            self.duplex.change(self.told, step.direction, &step.shape);
        }
    }

    fn restart(&mut self) {
        self.told = self.told.max(self.clock.now());
        for direction in Direction::BOTH {
            self.duplex
                .change(self.told, direction, self.link.shape(direction));
        }
        self.script.next = 0;
        self.script.origin = self.told;
    }

    fn keep_log(&mut self, shared: &Shared, now: Nanos) {
        self.last_log = now;
        let mut told = None;
        for direction in Direction::BOTH {
            let events = self.duplex.drain_log(direction);
            if events.is_empty() {
                continue;
            }
            let told = told.get_or_insert_with(|| shared.told());
            told.log.extend(events.into_iter().map(|event| LogEntry {
                link: self.link.name.clone(),
                direction,
                event,
            }));
            let excess = told.log.len().saturating_sub(LOG_KEPT);
            told.log.drain(..excess);
        }
    }

    fn answer(&mut self, shared: &Shared, now: Nanos, asked: u64) {
        self.keep_log(shared, now);
        for socket in &self.sockets {
            self.missed += u64::from(socket.take_drops().unwrap_or(0));
        }
        let truth = LinkCounters {
            link: String::new(),
            forward: self.duplex.pipe(Direction::Forward).truth().clone(),
            backward: self.duplex.pipe(Direction::Backward).truth().clone(),
            too_long: self.too_long,
            emulator: Emulator {
                lateness: self.lateness.histogram(),
                missed: self.missed,
                refused: self.refused,
                cpu: sys::process::thread_cpu_time().map_or(Nanos(0), Nanos::from),
            },
        };
        let mut told = shared.told();
        told.truth = truth;
        told.answered = asked;
        self.answered = asked;
        shared.waker.clear();
        drop(told);
        shared.changed.notify_all();
    }

    /// Sleeps until something arrives or is due; returns at which ends there is something to fetch.
    fn wait(&mut self, shared: &Shared) -> [bool; 2] {
        let next = [self.duplex.due(), self.script.next_at()];
        let next = next.into_iter().flatten().min();
        let span = |now| next.map_or(LONGEST_WAIT, |at| at.since(now).min(LONGEST_WAIT));
        let mut now = self.clock.now();
        let mut span_now = span(now);
        if self.spacing < DENSE {
            thread::sleep(NAP.into());
            now = self.clock.now();
            span_now = span(now);
        } else if next.is_some_and(|at| at.since(self.last_delivery) > SPARSE) {
            span_now = span_now.since(self.oversleep);
        }
        let mut fds = [
            PollFd::new(self.sockets[0].as_fd(), true, false),
            PollFd::new(self.sockets[1].as_fd(), true, false),
            PollFd::new(shared.waker.as_fd(), true, false),
        ];
        // It fails for lack of memory only; then the next round tries again.
        let ready = poll_nanos(&mut fds, span_now.into());
        if span_now > Nanos(0) && matches!(ready, Ok(0)) {
            let late = self.clock.now().since(now + span_now).min(LONGEST_SPIN);
            self.oversleep = late.max(Nanos(self.oversleep.0 - self.oversleep.0 / 32));
        }
        [fds[0].readable(), fds[1].readable()]
    }
}

fn packet(bytes: Vec<u8>, view: &frame::View) -> Packet<Body> {
    Packet {
        wire_bytes: view.wire_bytes,
        segments: view.segments,
        segment_wire_bytes: view.segment_wire_bytes,
        ecn: view.ecn,
        is_pure_ack: view.is_pure_ack,
        flow: view.flow,
        body: Body {
            bytes,
            packet_bytes: view.packet_bytes,
        },
    }
}

/// What is left of a packet that came through.
fn survivors(delivery: Delivery<Body>, out: &mut Vec<Vec<u8>>) {
    let mut bytes = delivery.packet.body.bytes;
    if delivery.mark {
        let view = frame::view(&bytes);
        frame::mark_congestion(&mut bytes, &view);
    }
    match delivery.kept {
        Kept::Whole => out.push(bytes),
        Kept::Some(ranges) => {
            let view = frame::view(&bytes);
            for range in ranges {
                out.push(frame::part(&bytes, &view, range));
            }
        }
    }
}

/// The changes of one link, and how far they have come.
struct Script {
    steps: Vec<Change>,
    next: usize,
    origin: Nanos,
}

impl Script {
    fn next_at(&self) -> Option<Nanos> {
        Some(self.origin + self.steps.get(self.next)?.at)
    }

    fn due(&mut self, now: Nanos) -> Option<Change> {
        if self.next_at()? > now {
            return None;
        }
        self.next += 1;
        self.steps.get(self.next - 1).cloned()
    }
}

struct Clock(Instant);

impl Clock {
    fn now(&self) -> Nanos {
        Nanos::from(self.0.elapsed())
    }
}

/// Steps of an eighth: a value is told within 12 %.
const STEPS: u32 = 3;

/// How late frames left.
struct Lateness([u64; 64 << STEPS]);

impl Default for Lateness {
    fn default() -> Lateness {
        Lateness([0; 64 << STEPS])
    }
}

impl Lateness {
    fn record(&mut self, late: Nanos) {
        let value = late.0.max(1 << STEPS);
        let octave = value.ilog2();
        let step = (value >> (octave - STEPS)) & ((1 << STEPS) - 1);
        self.0[((octave as usize) << STEPS) + step as usize] += 1;
    }

    /// Each value as the upper end of its step.
    fn histogram(&self) -> Latency {
        Latency::from_counts(self.0.iter().enumerate().map(|(index, &count)| {
            let (octave, step) = (index as u32 >> STEPS, index as u128 & ((1 << STEPS) - 1));
            let upper = (((1 << STEPS) + step + 1) << octave >> STEPS) - 1;
            (u64::try_from(upper).unwrap_or(u64::MAX), count)
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lateness_is_told_within_an_eighth() {
        let mut lateness = Lateness::default();
        for value in [100, 1_000, 30_000, 1_000_000] {
            lateness.record(Nanos(value));
        }
        let told = lateness.histogram();
        for (&(value, count), truth) in told.counts().iter().zip([100, 1_000, 30_000, 1_000_000]) {
            assert_eq!(count, 1);
            assert!(
                value >= truth && value <= truth + truth / 8,
                "{value} for {truth}"
            );
        }
        lateness.record(Nanos(u64::MAX));
        assert_eq!(lateness.histogram().max(), Some(Nanos(u64::MAX)));
    }
}

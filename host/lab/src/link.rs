//! One emulated link at work: a thread with a packet socket at each end, and what the link does between
//! them.

use crate::emulator_counters::{Emulator, LinkBackend, LinkCounters, LogEntry};
use crate::frame;
use emulate::{
    Delivery, Direction, Duplex, EmulatedPacket, KeptSegments, Link, Scenario, ScriptStep,
};
use hdrhistogram::Histogram;
use model::{Latency, Nanos};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};
use sys::packet::{BATCH, Inbox, PacketSocket};
use sys::poll::{PollFd, Waker, poll};

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
pub(crate) struct LinkWorker {
    link: String,
    shared: Arc<LinkShared>,
}

impl LinkWorker {
    pub(crate) fn start(mut cable: Cable) -> io::Result<LinkWorker> {
        let shared = Arc::new(LinkShared {
            waker: Waker::new()?,
            asked: AtomicU64::new(0),
            answer: Mutex::new(LinkAnswer::default()),
            changed: Condvar::new(),
        });
        let worker = LinkWorker {
            link: cable.link.name.clone(),
            shared: Arc::clone(&shared),
        };
        thread::Builder::new()
            .name(cable.link.name.chars().take(15).collect())
            .spawn(move || cable.run(&shared))?;
        Ok(worker)
    }

    pub(crate) fn counters(&self) -> LinkCounters {
        let answer = self.fresh();
        LinkCounters {
            link: self.link.clone(),
            ..answer.counters.clone()
        }
    }

    pub(crate) fn log(&self) -> Vec<LogEntry> {
        self.fresh().log.iter().cloned().collect()
    }

    fn fresh(&self) -> MutexGuard<'_, LinkAnswer> {
        let wanted = self.shared.asked.fetch_add(1, Ordering::AcqRel) + 1;
        self.shared.waker.wake();
        let answer = sys::lock(&self.shared.answer);
        self.shared
            .changed
            .wait_timeout_while(answer, PATIENCE, |answer| answer.answered < wanted)
            .unwrap_or_else(PoisonError::into_inner)
            .0
    }
}

struct LinkShared {
    waker: Waker,
    /// Questions so far.
    asked: AtomicU64,
    answer: Mutex<LinkAnswer>,
    changed: Condvar,
}

#[derive(Default)]
struct LinkAnswer {
    /// Questions that the rest of this answers.
    answered: u64,
    counters: LinkCounters,
    log: VecDeque<LogEntry>,
}

/// A link, with what its thread needs.
pub(crate) struct Cable {
    link: Link,
    sockets: [PacketSocket; 2],
    duplex: Duplex<Body>,
    script: VecDeque<ScriptStep>,
    start: Instant,
    /// The latest moment that the pipes have been given.
    offered: Nanos,
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
    /// How late frames left, in nanoseconds.
    lateness: Histogram<u64>,
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
            script: steps.cloned().collect(),
            start,
            offered: Nanos(0),
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
            // Two digits: a value is right within 1 %.
            lateness: Histogram::new(2).expect("two digits are within what the histogram allows"),
        }
    }

    fn now(&self) -> Nanos {
        Nanos::from(self.start.elapsed())
    }

    fn run(&mut self, shared: &LinkShared) {
        // Where it is not allowed, it is as prompt as any other thread.
        let _ = sys::sched::wake_on_time();
        let _ = sys::sched::run_first().or_else(|_| sys::sched::run_in_short_turns());
        let mut inbox = Inbox::default();
        loop {
            let ready = self.wait(shared);
            for (end, is_ready) in ready.into_iter().enumerate() {
                if is_ready {
                    self.fetch(end, &mut inbox);
                }
            }
            let now = self.now();
            self.follow_script(now);
            self.deliver(now);
            if now.since(self.last_fetch) > AWAKE && self.duplex.due().is_none() {
                self.awake = None;
            }
            if now.since(self.last_log) >= LOG_EVERY {
                self.store_log(shared, now);
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
        // In this order: a pause between both makes what came late, and never early.
        let (wall, now) = (SystemTime::now(), self.now());
        // A mean over the last eight.
        self.spacing = Nanos((self.spacing.0 * 7 + now.since(self.last_fetch).0) / 8);
        if self.awake.is_none()
            && (now.since(self.last_fetch) > AWAKE || self.last_fetch == Nanos(0))
        {
            // Without permission wake-ups are late.
            self.awake = sys::sched::keep_awake().ok();
        }
        self.last_fetch = now;
        for (bytes, stamp) in inbox.frames() {
            // The kernel noted when it came; what passed since is the emulator's, not the network's.
            let age = stamp
                .and_then(|stamp| wall.duration_since(SystemTime::UNIX_EPOCH + stamp).ok())
                .map_or(Nanos(0), Nanos::from);
            self.offered = self.offered.max(now.since(age));
            let view = frame::view(bytes);
            if view.is_listener_report {
                continue;
            }
            let pipe = self.duplex.pipe(direction);
            let at_once = pipe.frames_at_once(view.segment_wire_bytes);
            let now = self.offered;
            if view.segments <= at_once {
                self.duplex
                    .offer(now, direction, packet(bytes.to_vec(), &view));
                continue;
            }
            for first in (0..view.segments).step_by(at_once as usize) {
                let last = (first + at_once).min(view.segments);
                let part = frame::part(bytes, &view, first..last);
                let view = frame::view(&part);
                self.duplex.offer(now, direction, packet(part, &view));
            }
        }
    }

    /// Sends what has come out by now.
    fn deliver(&mut self, now: Nanos) {
        self.offered = self.offered.max(now);
        while let Some((direction, delivery)) = self.duplex.take(self.offered) {
            // It grows as needed, so no value is too large for it.
            let _ = self.lateness.record(self.offered.since(delivery.due).0);
            self.last_delivery = self.offered;
            let end = 1 - direction as usize;
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
        self.offered = self.offered.max(now);
        while self.script.front().is_some_and(|step| step.at <= now) {
            if let Some(step) = self.script.pop_front() {
                let now = self.offered;
                self.duplex.change(now, step.direction, &step.shape);
            }
        }
    }

    fn store_log(&mut self, shared: &LinkShared, now: Nanos) {
        self.last_log = now;
        let mut answer = None;
        for direction in Direction::BOTH {
            let events = self.duplex.drain_log(direction);
            if events.is_empty() {
                continue;
            }
            let answer = answer.get_or_insert_with(|| sys::lock(&shared.answer));
            answer.log.extend(events.into_iter().map(|event| LogEntry {
                link: self.link.name.clone(),
                direction,
                event,
            }));
            let excess = answer.log.len().saturating_sub(LOG_KEPT);
            answer.log.drain(..excess);
        }
    }

    fn answer(&mut self, shared: &LinkShared, now: Nanos, asked: u64) {
        self.store_log(shared, now);
        for socket in &self.sockets {
            self.missed += u64::from(socket.take_drops().unwrap_or(0));
        }
        let late = self.lateness.iter_recorded();
        let late = late.map(|v| (v.value_iterated_to(), v.count_at_value()));
        let counters = LinkCounters {
            link: String::new(),
            backend: LinkBackend::Emulator,
            forward: self.duplex.pipe(Direction::Forward).counters().clone(),
            backward: self.duplex.pipe(Direction::Backward).counters().clone(),
            too_long: self.too_long,
            emulator: Emulator {
                lateness: Latency::from_counts(late),
                missed: self.missed,
                refused: self.refused,
                cpu: sys::clock::thread_cpu().into(),
            },
        };
        let mut answer = sys::lock(&shared.answer);
        answer.counters = counters;
        answer.answered = asked;
        self.answered = asked;
        shared.waker.clear();
        drop(answer);
        shared.changed.notify_all();
    }

    /// Sleeps until something arrives or is due; returns at which ends there is something to fetch.
    fn wait(&mut self, shared: &LinkShared) -> [bool; 2] {
        let next = [self.duplex.due(), self.script.front().map(|step| step.at)];
        let next = next.into_iter().flatten().min();
        let span = |now| next.map_or(LONGEST_WAIT, |at| at.since(now).min(LONGEST_WAIT));
        let mut now = self.now();
        let mut span_now = span(now);
        if self.spacing < DENSE {
            thread::sleep(NAP.into());
            now = self.now();
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
        let ready = poll(&mut fds, Some(span_now.into()));
        if span_now > Nanos(0) && matches!(ready, Ok(0)) {
            let late = self.now().since(now + span_now).min(LONGEST_SPIN);
            self.oversleep = late.max(Nanos(self.oversleep.0 - self.oversleep.0 / 32));
        }
        [fds[0].readable(), fds[1].readable()]
    }
}

fn packet(bytes: Vec<u8>, view: &frame::FrameView) -> EmulatedPacket<Body> {
    EmulatedPacket {
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
        KeptSegments::Whole => out.push(bytes),
        KeptSegments::Some(ranges) => {
            let view = frame::view(&bytes);
            for range in ranges {
                out.push(frame::part(&bytes, &view, range));
            }
        }
    }
}

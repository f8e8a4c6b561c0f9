//! A message on its way past the capture: when its bytes came by, and what they had waited for.

use model::request::{Cause, Causes, Step};
use model::{Bytes, Nanos};
use std::collections::VecDeque;
use tcp::waits::Release;

/// Pauses of one message that are reported one by one.
const MOST_STEPS: usize = 16;
/// Message timings whose room is kept.
const MOST_SPARE: usize = 64;

/// What a segment had waited for behind the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentWait {
    pub cause: Cause,
    /// The part of that time in which the peer delayed an acknowledgement.
    pub held: Nanos,
    /// When it was written, where that is known: until then it waited for the application.
    pub written: Option<Nanos>,
}

impl From<Cause> for SegmentWait {
    fn from(cause: Cause) -> SegmentWait {
        SegmentWait {
            cause,
            held: Nanos(0),
            written: None,
        }
    }
}

impl From<Release> for SegmentWait {
    fn from(release: Release) -> SegmentWait {
        let cause = match release.wait {
            tcp::waits::Wait::Rate => Cause::Rate,
            tcp::waits::Wait::Application => Cause::Application,
            tcp::waits::Wait::CongestionWindow => Cause::CongestionWindow,
            tcp::waits::Wait::AdvertisedWindow => Cause::ReceiveWindow,
            tcp::waits::Wait::Nagle => Cause::Nagle,
            tcp::waits::Wait::Retransmission => Cause::Retransmission,
        };
        SegmentWait {
            held: release.held,
            ..cause.into()
        }
    }
}

/// A message, or several that belong together.
#[derive(Clone, Debug)]
pub(crate) struct MessageTiming {
    /// Sequence number of its first byte.
    pub seq: u32,
    /// Place of its first byte in the stream, and of what is behind its last.
    pub begin: u64,
    pub end: u64,
    pub first: Nanos,
    pub last: Nanos,
    pub bytes: u64,
    pub causes: Causes,
    /// Times count as in the capture.
    pub steps: Vec<Step>,
    /// The end before retransmissions prolonged it.
    before_retransmission: Option<Box<(Nanos, Causes)>>,
}

/// Message timings that are not needed any more: room for the next ones, so that a message takes none of its own.
#[derive(Default)]
pub(crate) struct Spare(VecDeque<Box<MessageTiming>>);

impl Spare {
    /// A new timing.
    pub fn timing(&mut self, seq: u32, begin: u64, at: Nanos) -> Box<MessageTiming> {
        let new = MessageTiming::new(seq, begin, at);
        match self.0.pop_back() {
            Some(mut timing) => {
                let mut steps = std::mem::take(&mut timing.steps);
                steps.clear();
                *timing = MessageTiming { steps, ..new };
                timing
            }
            None => Box::new(new),
        }
    }

    /// Takes one that is not needed any more.
    pub fn take(&mut self, timing: Box<MessageTiming>) {
        if self.0.len() < MOST_SPARE {
            self.0.push_back(timing);
        }
    }
}

impl MessageTiming {
    pub fn new(seq: u32, begin: u64, at: Nanos) -> MessageTiming {
        MessageTiming {
            seq,
            begin,
            end: begin,
            first: at,
            last: at,
            bytes: 0,
            causes: Causes::default(),
            steps: Vec::new(),
            before_retransmission: None,
        }
    }

    /// Takes bytes of a segment; `fresh` if they are the first of it.
    pub fn take(&mut self, at: Nanos, bytes: u64, wait: SegmentWait, fresh: bool, call: bool) {
        let waited = self.wait_until(at, wait);
        self.bytes += bytes;
        self.end += bytes;
        self.step(Step {
            at,
            call,
            bytes: Bytes(bytes),
            segments: fresh.into(),
            took: Nanos(0),
            waited: waited.filter(|cause| *cause != Cause::Rate),
        });
    }

    /// Adds a step: to the one before, where nothing was waited for.
    fn step(&mut self, step: Step) {
        let goes_on = step.waited.is_none() || self.steps.len() >= MOST_STEPS;
        match self.steps.last_mut() {
            Some(last) if goes_on => {
                last.bytes += step.bytes;
                last.segments += step.segments;
                last.took = last.took.max((step.at + step.took).since(last.at));
            }
            _ => self.steps.push(Step {
                segments: step.segments.max(1),
                ..step
            }),
        }
    }

    /// Lets time pass; says what most of it was spent on.
    fn wait_until(&mut self, at: Nanos, wait: SegmentWait) -> Option<Cause> {
        let gap = at.since(self.last);
        if gap.0 == 0 {
            return None;
        }
        // As a rule one cause has all of it.
        if wait.held.0 == 0 && wait.written.is_none() {
            self.causes.spend(wait.cause, gap);
            self.last = at;
            return Some(wait.cause);
        }
        let paused = wait.written.map_or(Nanos(0), |at| at.since(self.last));
        let paused = paused.min(gap);
        let held = wait.held.min(gap.since(paused));
        let rest = gap.since(paused + held);
        let parts = [
            (wait.cause, rest),
            (Cause::DelayedAck, held),
            (Cause::Application, paused),
        ];
        for (cause, time) in parts {
            self.causes.spend(cause, time);
        }
        self.last = at;
        parts
            .into_iter()
            .max_by_key(|(_, time)| *time)
            .map(|(cause, _)| cause)
    }

    /// Some of it was retransmitted.
    pub fn retransmitted(&mut self, at: Nanos) {
        self.before_retransmission
            .get_or_insert_with(|| Box::new((self.last, self.causes)));
        let call = self.steps.last().is_some_and(|step| step.call);
        self.take(at, 0, Cause::Retransmission.into(), false, call);
    }

    /// Whether some of it was retransmitted.
    pub fn was_retransmitted(&self) -> bool {
        self.before_retransmission.is_some()
    }

    /// Its retransmissions were needless, or came too late.
    pub fn ignore_retransmissions(&mut self) {
        if let Some(before) = self.before_retransmission.take() {
            let (last, causes) = *before;
            (self.last, self.causes) = (last, causes);
            self.steps.retain(|step| step.at <= last);
        }
    }

    /// Goes on with another message, which had waited for this.
    pub fn join(&mut self, more: MessageTiming, wait: Cause) {
        self.wait_until(more.first, wait.into());
        self.last = self.last.max(more.last);
        self.end = self.end.max(more.end);
        self.bytes += more.bytes;
        self.causes.add(&more.causes);
        let waited = (wait != Cause::Rate).then_some(wait);
        for (n, step) in more.steps.into_iter().enumerate() {
            self.step(match n {
                0 => Step { waited, ..step },
                _ => step,
            });
        }
    }
}

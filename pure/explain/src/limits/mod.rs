//! One file a limit: when it owns a moment (first level) or fits a connection (second level), what the
//! finding rests on, and what to do about it.

mod ack_path;
mod application;
mod black_hole;
mod bottleneck_rate;
pub(crate) mod bucket;
mod bufferbloat;
mod burst_loss;
mod closing;
mod congestion_window;
mod cpu;
mod delayed_ack;
mod device_queue;
mod duplex_loss;
mod ecn_marks;
pub(crate) mod experiment;
mod handshake;
mod loss_recovery;
mod loss_runs;
mod nagle;
mod pacing;
mod policer;
mod random_loss;
mod reading_application;
mod receive_window;
mod reordering;
mod rto_stall;
mod send_buffer;
mod shaper;
mod sink_storage;
mod slow_start;
mod source_storage;
mod zero_window;

use crate::facts::Facts;
use crate::sender_state::SenderState;
use model::finding::{Confidence, Evidence, Limit, Remedy};
pub(crate) use policer::SpentBucket;

pub(crate) use model::finding::EvidenceKey as Key;

/// Whether a limit of the first level owns a state.
pub(crate) type Owns = fn(&SenderState) -> bool;

/// The first level: the first rule that claims a moment has it. What none claims is the processor's.
pub(crate) const ORDER: &[(Limit, Owns)] = &[
    (Limit::Handshake, handshake::owns),
    (Limit::Closing, closing::owns),
    (Limit::RtoStall, rto_stall::owns),
    (Limit::ZeroWindow, zero_window::owns_silence),
    (Limit::Application, application::owns_idleness),
    (Limit::SendBuffer, send_buffer::owns),
    (Limit::Nagle, nagle::owns),
    (Limit::Application, application::owns),
    (Limit::ZeroWindow, zero_window::owns),
    (Limit::ReceiveWindow, receive_window::owns),
    (Limit::LossRecovery, loss_recovery::owns),
    (Limit::SlowStart, slow_start::owns),
    (Limit::CongestionWindow, congestion_window::owns),
    (Limit::Application, application::owns_pacing),
    (Limit::SendBuffer, send_buffer::owns_pacing),
    (Limit::ReceiveWindow, receive_window::owns_pacing),
    (Limit::Pacing, pacing::owns),
    (Limit::DeviceQueue, device_queue::owns),
];

/// A limit as a candidate cause of a connection's rate, with its evidence.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub confidence: Confidence,
    pub evidence: Vec<Evidence>,
    pub remedies: Vec<Remedy>,
    /// Among several that fit: the lower is named first.
    pub rank: u8,
}

impl Candidate {
    fn new(confidence: Confidence, evidence: Vec<Evidence>) -> Candidate {
        Candidate {
            confidence,
            evidence,
            remedies: Vec::new(),
            rank: 1,
        }
    }

    /// Advice in words.
    fn advise(mut self, words: impl Into<String>) -> Candidate {
        self.remedies.push(Remedy {
            words: words.into(),
            change: None,
        });
        self
    }

    /// Advice that is a setting.
    fn change(self, change: impl Into<String>, words: impl Into<String>) -> Candidate {
        self.try_out(Some(change.into()), words)
    }

    /// The same, where the setting may not be known.
    fn try_out(mut self, change: Option<String>, words: impl Into<String>) -> Candidate {
        self.remedies.push(Remedy {
            words: words.into(),
            change,
        });
        self
    }

    fn ranked(self, rank: u8) -> Candidate {
        Candidate { rank, ..self }
    }
}

/// What kinds of time there are: each has its own second level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimeKind {
    /// Held by the network, or by what the sender believes of it.
    Network,
    /// Nothing passes.
    Outage,
    Receiver,
    SendBuffer,
    Application,
    Nagle,
    SlowStart,
    Device,
    Cpu,
}

/// A limit of the first level.
pub(crate) struct FirstLevel {
    /// What kind of time it owns; none: time that is not the transfer's.
    pub kind: Option<TimeKind>,
    candidate: fn(&Facts) -> Candidate,
}

/// How a limit of the first level is explained; `None` of one of the second.
pub(crate) fn first(limit: Limit) -> Option<FirstLevel> {
    use Limit::*;
    let (kind, candidate): (Option<TimeKind>, fn(&Facts) -> Candidate) = match limit {
        Handshake => (None, handshake::candidate),
        Closing => (None, closing::candidate),
        Application => (Some(TimeKind::Application), application::candidate),
        SendBuffer => (Some(TimeKind::SendBuffer), send_buffer::candidate),
        ReceiveWindow => (Some(TimeKind::Receiver), receive_window::candidate),
        ZeroWindow => (Some(TimeKind::Receiver), zero_window::candidate),
        SlowStart => (Some(TimeKind::SlowStart), slow_start::candidate),
        CongestionWindow => (Some(TimeKind::Network), congestion_window::candidate),
        LossRecovery => (Some(TimeKind::Network), loss_recovery::candidate),
        RtoStall => (Some(TimeKind::Network), rto_stall::candidate),
        Nagle => (Some(TimeKind::Nagle), nagle::candidate),
        Pacing => (Some(TimeKind::Network), pacing::candidate),
        DeviceQueue => (Some(TimeKind::Device), device_queue::candidate),
        Cpu => (Some(TimeKind::Cpu), cpu::candidate),
        BlackHole | DelayedAck | BottleneckRate | Bufferbloat | RandomLoss | BurstLoss
        | Policer | Shaper | Reordering | EcnMarks | AckPath | DuplexLoss | ReadingApplication
        | SourceStorage | SinkStorage => return None,
    };
    Some(FirstLevel { kind, candidate })
}

/// What a limit of the first level shows of the time that it owns.
pub(crate) fn candidate(limit: Limit, facts: &Facts) -> Option<Candidate> {
    first(limit).map(|first| (first.candidate)(facts))
}

/// A cause of the second level: it fits the connection, or does not.
pub(crate) type Fits = fn(&Facts) -> Option<Candidate>;

/// What can lie behind a full congestion window, pacing, recovery and timeouts. Where several fit,
/// the earlier is named first.
pub(crate) const BEHIND_THE_WINDOW: &[(Limit, Fits)] = &[
    (Limit::BlackHole, black_hole::fits),
    (Limit::RtoStall, rto_stall::fits),
    (Limit::AckPath, ack_path::fits),
    (Limit::ReadingApplication, reading_application::holds_acks),
    (Limit::DuplexLoss, duplex_loss::fits),
    (Limit::DelayedAck, delayed_ack::fits_alone),
    (Limit::Reordering, reordering::fits),
    (Limit::EcnMarks, ecn_marks::fits),
    (Limit::DeviceQueue, device_queue::fits_late),
    (Limit::Bufferbloat, bufferbloat::fits),
    (Limit::Shaper, shaper::fits),
    (Limit::BottleneckRate, bottleneck_rate::fits),
    (Limit::RandomLoss, random_loss::fits),
    (Limit::BurstLoss, burst_loss::fits),
    (Limit::Policer, policer::fits),
    (Limit::Pacing, pacing::fits),
    (Limit::Cpu, cpu::fits),
    (Limit::CongestionWindow, congestion_window::fits),
];

/// Pairs of which the first does not exclude the second, though it was seen: what shows the one is there with the other, too.
pub(crate) const RIVALS: &[(Limit, Limit)] = &[(Limit::BottleneckRate, Limit::Shaper)];

/// Causes at the sender that look in packets like a full congestion window: the same amount in flight
/// all the time.
pub(crate) const BEHIND_A_HELD_FLIGHT: &[(Limit, Fits)] = &[
    (Limit::CongestionWindow, congestion_window::fits_single),
    (Limit::BottleneckRate, bottleneck_rate::fits_from_afar),
    (Limit::Pacing, pacing::fits_spread),
    (Limit::SendBuffer, send_buffer::fits),
    (Limit::Application, application::fits),
    (Limit::ReceiveWindow, receive_window::fits_unscaled),
];

/// What can lie behind a full congestion window that grows all the time.
pub(crate) const BEHIND_A_GROWING_WINDOW: &[(Limit, Fits)] = &[
    (Limit::BurstLoss, burst_loss::fits_early),
    (Limit::RandomLoss, random_loss::fits_early),
];

/// What can lie behind a full receive window or a zero window.
pub(crate) const BEHIND_THE_RECEIVER: &[(Limit, Fits)] =
    &[(Limit::ReadingApplication, reading_application::fits)];

/// What lies behind a copy whose storage never waited. The rings between storage and network saw it: TCP only
/// sees an application that neither writes nor reads.
pub(crate) const BEHIND_A_COPY: &[(Limit, Fits)] = &[
    (Limit::SourceStorage, source_storage::fits),
    (Limit::SinkStorage, sink_storage::fits),
];

/// What can lie behind short segments that wait.
pub(crate) const BEHIND_NAGLE: &[(Limit, Fits)] = &[(Limit::DelayedAck, delayed_ack::fits)];

/// What can lie behind a standing queue though a buffer of a host is full.
pub(crate) const BEHIND_A_QUEUE: &[(Limit, Fits)] = &[
    (Limit::AckPath, ack_path::fits),
    (Limit::Bufferbloat, bufferbloat::fits),
    (Limit::Shaper, shaper::fits),
    (Limit::BottleneckRate, bottleneck_rate::fits),
];

/// What can lie behind the pauses that a capture shows.
pub(crate) const BEHIND_PAUSES: &[(Limit, Fits)] = &[
    (Limit::Policer, policer::fits_pauses),
    (Limit::Pacing, pacing::fits_clocked),
];

/// What can lie behind segments that TCP would let go.
pub(crate) const BELOW: &[(Limit, Fits)] = &[
    (Limit::Cpu, cpu::fits),
    (Limit::DeviceQueue, device_queue::fits),
];

pub(crate) use cpu::{
    fits as cpu_fits, fullest as full_processor, hides_the_path, looks_like as looks_like_cpu,
};
pub(crate) use loss_runs::clustered;
pub(crate) use pacing::has_ends;
pub(crate) use random_loss::QUEUE as QUEUE_AT_LOSS;
pub(crate) use reading_application::{BEHIND as UNREAD, fits as reads_slowly};

pub(crate) use black_hole::{fits_undelivered, hides, is_lost};
pub(crate) use rto_stall::fits_outage;

/// A black hole is seen at once, however short the transfer was.
pub(crate) fn is_black_hole(facts: &Facts) -> bool {
    black_hole::fits(facts).is_some()
}
pub(crate) use receive_window::{FULL as RECEIVE_WINDOW_FULL, typical as receive_window};

#[cfg(test)]
mod tests;

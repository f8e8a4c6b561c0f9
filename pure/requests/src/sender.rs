//! What the sender of one direction could send at each moment, and so what its segments waited for.
//!
//! Acknowledgements are seen where the capture is. They reach the sender half a round trip (between it and the
//! capture) later, and what they release is seen half of one later again: with a capture at the sender both are 0.

use crate::passage::Wait;
use model::Nanos;
use model::request::Cause;
use std::collections::VecDeque;
use tcp::thresholds::{IDLE, INITIAL_WINDOW, TIMESTAMPS, held_back};

/// Acknowledgements and segments that are remembered: the latest.
const MOST_KEPT: usize = 64;
/// So soon behind an acknowledgement a segment was released by it: what a host takes that is busy.
const SOON: Nanos = Nanos::from_micros(300);
/// A pause so short needs no cause of its own.
const SHORT: Nanos = Nanos::from_micros(100);

#[derive(Clone, Copy, Debug)]
struct Heard {
    at: Nanos,
    ack: u64,
    /// Behind the last byte that fits into the window, where its scale is known.
    edge: Option<u64>,
}

/// One direction's sender.
#[derive(Debug, Default)]
pub(crate) struct Sender {
    heard: VecDeque<Heard>,
    /// When segments were seen that are not acknowledged yet, and what is behind them.
    out: VecDeque<(Nanos, u64)>,
    /// From the capture to the receiver and back: the shortest.
    pub trip: Option<Nanos>,
    /// Largest segment: what the handshake or else the data say.
    mss: Option<u32>,
    largest: u32,
    /// Most that was outstanding since the last loss or idleness: the congestion window was at least so large.
    most_out: u64,
    /// Behind the last segment that was smaller than the largest.
    short_end: u64,
    /// Nagle's rule does not hold: a short segment left while another was out.
    at_once: bool,
    /// The segment before was short, and the last that was there to send.
    drained: bool,
    /// It was the last of a write at least.
    pushed: bool,
    lost: bool,
    /// When new data was seen last, and when old.
    last: Option<Nanos>,
    again: Option<Nanos>,
    /// Where its data began.
    begun: Option<u64>,
}

impl Sender {
    /// The receiver announces the largest segment that it takes.
    pub fn announced(&mut self, mss: Option<u16>) {
        self.mss = mss.map(u32::from).filter(|mss| *mss > 0).or(self.mss);
    }

    /// What a full segment carries.
    fn full(&self) -> u32 {
        // A path can take less than the handshake announced, but not much less; timestamps take 12 bytes.
        let full = match self.mss {
            Some(mss) if self.largest < mss / 2 => mss,
            Some(mss) => self.largest.min(mss),
            None => self.largest,
        };
        full.saturating_sub(TIMESTAMPS)
    }

    /// The largest packet of IPv4 on this way, as far as is known: an MSS leaves out 40 bytes of headers (RFC 9293,
    /// 3.7.1), and what data show leaves out timestamps as well.
    pub fn mtu(&self) -> u32 {
        let seen = Some(self.largest).filter(|largest| *largest <= 8948);
        let seen = seen.map_or(0, |largest| largest + 52);
        self.mss.map_or(seen.max(1500), |mss| mss + 40)
    }

    fn is_short(&self, bytes: u32) -> bool {
        bytes < self.full()
    }

    /// A round trip between the capture and the receiver.
    pub fn took(&mut self, trip: Nanos) {
        self.trip = Some(self.trip.map_or(trip, |known| known.min(trip)));
    }

    /// The receiver acknowledges.
    pub fn hears(&mut self, at: Nanos, ack: u64, edge: Option<u64>) {
        let mut sent = None;
        while let Some((when, end)) = self.out.front().copied()
            && end <= ack
        {
            self.out.pop_front();
            sent = Some(when).filter(|_| end == ack);
        }
        // What was sent again says nothing of the round trip (Karn).
        if let Some(sent) = sent.filter(|sent| self.again.is_none_or(|again| again < *sent)) {
            self.took(at.since(sent));
        }
        if let Some(last) = self.heard.back()
            && (ack < last.ack || (ack == last.ack && edge <= last.edge))
        {
            return;
        }
        if self.heard.len() == MOST_KEPT {
            self.heard.pop_front();
        }
        self.heard.push_back(Heard { at, ack, edge });
    }

    /// Everything up to here is acknowledged, as far as is known.
    pub fn acked(&self) -> u64 {
        let heard = self.heard.back().map(|heard| heard.ack);
        heard.max(self.begun).unwrap_or(0)
    }

    /// When this was seen first, if it is not acknowledged.
    pub fn sent(&self, end: u64) -> Option<Nanos> {
        let known = self.out.iter().find(|(_, known)| *known >= end);
        known.map(|(at, _)| *at)
    }

    /// Old data was sent again.
    pub fn sends_again(&mut self, at: Nanos) {
        self.again = Some(at);
        self.lost = true;
        self.most_out = 0;
    }

    /// New data from `begin` on, with the flag that it is the last of a write (PSH); `near` is the round trip between
    /// the capture and this sender. Says what it had waited for since the data before.
    pub fn sends(&mut self, at: Nanos, begin: u64, bytes: u32, push: bool, near: Nanos) -> Wait {
        let end = begin + u64::from(bytes);
        let last = self.last.replace(at).unwrap_or(at);
        let idle = at.since(last) > IDLE;
        if idle && self.out.is_empty() {
            self.most_out = 0;
        }
        let wait = self.waited(last, at, begin, bytes, near);
        self.largest = self.largest.max(bytes);
        let full = u64::from(self.full()).max(1);
        let short = self.is_short(bytes);
        if short {
            let known = self.heard.iter().rev().find(|heard| heard.at + near <= at);
            self.at_once |= known.is_some_and(|known| known.ack < self.short_end);
            self.short_end = end;
        }
        // One for many counts as they do: all of them full but the last.
        self.pushed = push;
        self.drained =
            push && (short || u64::from(bytes) % full != 0 && u64::from(bytes) % (full + 12) != 0);
        self.begun.get_or_insert(begin);
        let out = end.saturating_sub(self.acked());
        self.most_out = self.most_out.max(out);
        if self.out.len() == MOST_KEPT {
            self.out.pop_front();
        }
        self.out.push_back((at, end));
        wait
    }

    fn waited(&mut self, last: Nanos, at: Nanos, begin: u64, bytes: u32, near: Nanos) -> Wait {
        if self.again.is_some_and(|again| again >= last) {
            return Cause::Retransmission.into();
        }
        let gap = at.since(last);
        if gap.0 == 0 {
            return Cause::Rate.into();
        }
        let end = begin + u64::from(bytes);
        // It is known from the handshake, as a rule, and later round trips can be shorter.
        let near = Nanos(near.0 - near.0 / 10);
        // The newest acknowledgement that can have released it, and what was known before that.
        let newest = self.heard.iter().rposition(|heard| heard.at + near <= at);
        let heard = newest.and_then(|n| Some((self.heard[n], n.checked_sub(1)?)));
        if let Some((heard, n)) = heard
            && heard.at + near >= last
            && at.since(heard.at + near) <= SOON + Nanos(near.0 / 4)
        {
            let before = self.heard[n];
            if before.edge.is_some_and(|edge| end > edge) {
                return Cause::ReceiveWindow.into();
            }
            let out = begin.saturating_sub(before.ack);
            // All that was out was waited for: if that took long, it was held back.
            let trip = self.trip.unwrap_or_default();
            let held = match heard.ack >= begin {
                true => held_back(heard.at.since(last), trip),
                false => Nanos(0),
            };
            let short = self.is_short(bytes) && !self.at_once;
            let short_is_out = self.short_end > before.ack && heard.ack >= self.short_end;
            let fills = out + u64::from(bytes) + self.most_out / 8 > self.most_out;
            // All was sent that there was, and a window of ten segments (RFC 6928) was not full.
            let idle = self.drained && !self.lost && out < u64::from(INITIAL_WINDOW * self.full());
            let cause = match (out > 0, short && short_is_out, fills && !idle) {
                (false, ..) => None,
                (_, true, _) => Some(Cause::Nagle),
                (.., true) => Some(Cause::CongestionWindow),
                // Of other systems: any data that is out, not only a short segment's.
                _ => (short && held.0 > 0).then_some(Cause::Nagle),
            };
            if let Some(cause) = cause {
                return Wait {
                    held,
                    ..cause.into()
                };
            }
        }
        // Where more was written than sent, or what was sent is even, the sender itself took its time: pacing, the line.
        let even = self.trip.is_some_and(|trip| gap.0 < (near + trip).0 / 2);
        match gap <= SHORT || !self.pushed || (even && !self.drained) {
            true => Cause::Rate.into(),
            false => Cause::Application.into(),
        }
    }
}

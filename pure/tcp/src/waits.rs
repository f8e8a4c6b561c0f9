//! What each new segment had waited for since the one before it: one answer for limits and for requests.
//!
//! Acknowledgements are seen where the observer is. They reach the sender half a round trip (between it and the
//! observer) later, and what they release is seen half of one later again: at the sender both are 0.

use crate::seq::{ahead, before};
use crate::thresholds::{AT_ONCE, IDLE, INITIAL_WINDOW, NO_PAUSE, USUAL_SEGMENT, held_back};
use crate::vantage::Trips;
use model::{Nanos, SocketValues, What};

/// What is written independently of acknowledgements follows one within this part (1 / n) of the wait for it in one case of
/// so many.
const CHANCE: u64 = 16;
/// The same where nothing else than the acknowledgement can have been waited for, as far as is known: a slow link takes so long.
const ONE_BY_ONE: u64 = 4;

/// What a segment waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wait {
    /// Nothing but the segment before: the line, its bottleneck, pacing.
    #[default]
    Rate,
    /// The sending application, or its host.
    Application,
    /// An acknowledgement that opened the congestion window.
    CongestionWindow,
    /// The advertised window.
    AdvertisedWindow,
    /// A short segment waited for the acknowledgement of one before it (RFC 896).
    Nagle,
    /// A retransmission came between.
    Retransmission,
}

/// What released a new segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Release {
    /// What it had waited for.
    pub wait: Wait,
    /// Since the data before it.
    pub gap: Nanos,
    /// Of it, the time for which the receiver held the acknowledgement back that was waited for (RFC 1122, 4.2.3.2).
    pub held: Nanos,
    /// All data before it were acknowledged.
    pub all_acked: bool,
    /// An acknowledgement without data had just arrived.
    pub by_ack: bool,
    /// From the data before it until that acknowledgement arrived at the sender.
    pub until_ack: Nanos,
    /// A single segment had been in flight.
    pub was_alone: bool,
}

/// Bytes that a socket had written and not yet sent once an event was over.
pub fn left_unsent(event: &model::Segment, tcb: &SocketValues) -> u64 {
    let end = event.seq.wrapping_add(event.sequence_length());
    let next = match event.what {
        What::Sent if before(tcb.snd_nxt, end) => end,
        _ => tcb.snd_nxt,
    };
    ahead(next, tcb.write_seq)
}

/// A segment smaller than a full one is not acknowledged: while it is out, Nagle's rule as Minshall changed it holds the
/// next one back (`tcp_minshall_check`).
pub fn is_short_out(tcb: &SocketValues) -> bool {
    before(tcb.snd_una, tcb.snd_sml) && !before(tcb.snd_nxt, tcb.snd_sml)
}

/// What an acknowledgement says, and when it was seen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SeenAck {
    pub at: Nanos,
    pub ack: u32,
    /// The advertised window, where its scale is known.
    pub window: Option<u32>,
    /// It carried no data.
    pub bare: bool,
}

impl SeenAck {
    /// Whether data up to there fit into the window, as far as that is known.
    pub fn allows(&self, end: u32) -> bool {
        let edge = self.window.map(|window| self.ack.wrapping_add(window));
        edge.is_none_or(|edge| ahead(edge, end) == 0)
    }

    /// Whether it lets more go than another.
    pub fn is_behind(&self, other: &SeenAck) -> bool {
        let edge = |k: &SeenAck| k.ack.wrapping_add(k.window.unwrap_or(0));
        before(other.ack, self.ack) || self.ack == other.ack && before(edge(other), edge(self))
    }
}

/// A new segment.
#[derive(Clone, Copy)]
pub(crate) struct NewSegment {
    pub at: Nanos,
    pub begin: u32,
    pub bytes: u32,
    /// The last of a write at least (PSH).
    pub push: bool,
    /// What the handshake says of a full segment; 0 if nothing.
    pub announced: u32,
    /// Offload joined so many.
    pub count: u64,
}

/// The newest acknowledgement that can have released a segment, what the sender knew before that, and the round trips
/// from the observer. Most segments need little of it, so that all is where it was.
pub(crate) struct Before<'a> {
    pub last: Nanos,
    pub newest: &'a SeenAck,
    pub known: &'a SeenAck,
    /// Acknowledged for certain by then: of those that came within the uncertainty of the round trip, which one released
    /// the segment cannot be seen from afar.
    pub settled: &'a SeenAck,
    /// When the acknowledgement was seen that opened the window for the segment, if that was on its way.
    pub opened: Option<Nanos>,
    pub trips: &'a Trips,
    /// To the receiver and back: the shortest of data.
    pub min_rtt: &'a Option<Nanos>,
}

impl Before<'_> {
    /// Whether an acknowledgement that was seen then let a segment of this moment go, which follows within this part (1 / n) of
    /// the wait for it.
    fn is_at_once(&self, seen: Nanos, at: Nanos, chance: u64) -> bool {
        let near = self.trips.to_sender;
        // From afar, a full segment takes longer than a SYN.
        let soon = Nanos((near.0 / 6).max(seen.since(self.last).0 / chance));
        at.since(seen + near) <= AT_ONCE.max(soon)
    }

    /// A short segment takes as long as a SYN; a full one may take longer.
    fn trip(&self, is_short: bool) -> Option<Nanos> {
        match (self.trips.to_receiver, *self.min_rtt) {
            (Some(a), Some(b)) if is_short => Some(a.min(b)),
            (handshake, data) => data.or(handshake),
        }
    }
}

/// What the sender of a direction could send at each moment.
#[derive(Debug, Default)]
pub(crate) struct SenderWaits {
    /// Most that was in flight since the last loss or idleness: the congestion window was at least so large.
    most_out: u32,
    /// Behind the last segment that was smaller than a full one.
    short_end: Option<u32>,
    largest: u32,
    begun: bool,
    /// Nagle's rule does not hold: a short segment left while another was out.
    no_nagle: bool,
    /// The segment before was short, and the last that was there to send.
    drained: bool,
    /// It was the last of a write at least.
    pushed: bool,
    lost: bool,
    /// A retransmission since the last new data.
    again: bool,
    /// A single segment left since all was acknowledged.
    alone: bool,
}

impl SenderWaits {
    /// What a full segment carries: the largest that was seen, if it is of the order of what was announced (the path
    /// or other options may make segments smaller).
    pub fn full(&self, announced: u32) -> u32 {
        let announced = match announced {
            0 => USUAL_SEGMENT,
            announced => announced,
        };
        match self.largest >= announced / 2 {
            true => self.largest.min(announced),
            false => announced,
        }
    }

    /// The largest segment that left.
    pub fn largest(&self) -> u32 {
        self.largest
    }

    /// Old data left again.
    pub fn resends(&mut self, bytes: u32) {
        (self.again, self.lost, self.alone) = (true, true, false);
        self.most_out = 0;
        self.largest = self.largest.max(bytes);
    }

    /// New data leave.
    #[inline]
    pub fn sends(&mut self, segment: &NewSegment, before: &Before) -> Release {
        self.largest = self.largest.max(segment.bytes);
        let full = self.full(segment.announced).max(1);
        let is_short = segment.bytes < full;
        let newest = before.newest;
        let arrived = newest.at + before.trips.least_to_sender;
        let gap = segment.at.since(before.last);
        let all_acked = ahead(newest.ack, segment.begin) == 0;
        if gap > IDLE && all_acked {
            self.most_out = 0;
        }
        // A full segment alone, which ends no write and is acknowledged: more was written, and pacing sends two at a time
        // (`tcp_tso_autosize`). From afar it is not seen how long the next one takes on its way.
        let is_one_by_one = || {
            let alone = before.trips.to_sender.0 > 0 && all_acked && self.alone;
            alone && !(self.pushed || self.drained || is_short)
        };
        let chance = || if is_one_by_one() { ONE_BY_ONE } else { CHANCE };
        let at_once = self.begun
            && arrived >= before.last
            && before.is_at_once(newest.at, segment.at, chance());
        let by_ack = at_once && newest.bare;
        let held = match all_acked && by_ack {
            true => held_back(
                newest.at.since(before.last),
                before.trip(is_short).unwrap_or_default(),
            ),
            false => Nanos(0),
        };
        let wait = match () {
            () if self.again => Wait::Retransmission,
            () if gap.0 == 0 => Wait::Rate,
            () => at_once
                .then(|| self.released(segment, before, is_short, full, held))
                .flatten()
                .unwrap_or_else(|| self.paused(gap, before)),
        };
        let release = Release {
            wait,
            gap,
            held: match wait {
                Wait::Nagle | Wait::CongestionWindow => held,
                _ => Nanos(0),
            },
            all_acked,
            by_ack,
            until_ack: arrived.since(before.last),
            was_alone: self.alone,
        };
        let end = segment.begin.wrapping_add(segment.bytes);
        if is_short {
            self.no_nagle |= self
                .short_end
                .is_some_and(|short| ahead(newest.ack, short) > 0);
            self.short_end = Some(end);
        }
        self.pushed = segment.push;
        // A division takes as long as all the rest: most segments are full.
        self.drained = segment.push && segment.bytes != full && !segment.bytes.is_multiple_of(full);
        self.alone = all_acked && segment.count == 1;
        self.most_out = self.most_out.max(ahead(newest.ack, end) as u32);
        (self.begun, self.again) = (true, false);
        release
    }

    /// What the acknowledgement that had just arrived let go.
    #[inline]
    fn released(
        &self,
        segment: &NewSegment,
        before: &Before,
        is_short: bool,
        full: u32,
        held: Nanos,
    ) -> Option<Wait> {
        let Before { newest, known, .. } = before;
        let end = segment.begin.wrapping_add(segment.bytes);
        // Of several that came together, the first that opened the window for it is the one that it waited for.
        let opened =
            (before.opened).is_some_and(|seen| before.is_at_once(seen, segment.at, CHANCE));
        if opened || !known.allows(end) {
            return Some(Wait::AdvertisedWindow);
        }
        let out = ahead(known.ack, segment.begin) as u32;
        if out == 0 {
            return None;
        }
        let is_short = is_short && !self.no_nagle;
        let short_was_out = self
            .short_end
            .is_some_and(|short| ahead(known.ack, short) > 0 && ahead(newest.ack, short) == 0);
        let most = ahead(before.settled.ack, segment.begin).max(out.into());
        let fills =
            most + u64::from(segment.bytes) + u64::from(self.most_out / 8) > self.most_out.into();
        // All was sent that there was, and an initial window was not full.
        let idle = self.drained && !self.lost && out / full < INITIAL_WINDOW;
        match () {
            () if is_short && newest.bare && short_was_out => Some(Wait::Nagle),
            () if fills && !idle => Some(Wait::CongestionWindow),
            // Of other systems: any data in flight, not only a short segment's.
            () if is_short && held.0 > 0 => Some(Wait::Nagle),
            () => None,
        }
    }

    /// No acknowledgement was waited for. Where more was written than sent, or what was sent is even, the sender took
    /// its time: pacing, the line.
    #[inline]
    fn paused(&self, gap: Nanos, before: &Before) -> Wait {
        let is_even = || {
            let trip = before.trip(true);
            trip.is_some_and(|trip| gap.0 < (before.trips.least_to_sender + trip).0 / 2)
        };
        match gap <= NO_PAUSE || !self.pushed || (!self.drained && is_even()) {
            true => Wait::Rate,
            false => Wait::Application,
        }
    }
}

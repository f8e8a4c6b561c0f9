//! The state of a sender between two events, and the limit that owns it.

use crate::limits;
use model::finding::Limit;
use model::{Bytes, Nanos};

/// What a sender's socket was between two events. Unsent data are those after the first of them, the
/// rest is as the second found it.
#[derive(Clone, Debug, Default)]
pub(crate) struct SenderState {
    pub stage: ConnectionStage,
    /// `TCP_CA_*`.
    pub ca_state: u8,
    /// The retransmission timer has fired and nothing was acknowledged since.
    pub backed_off: bool,
    /// Bytes written and not yet sent.
    pub unsent: u64,
    /// Segments in flight: sent, less those known to have left the network.
    pub flight: u32,
    /// Bytes written and not yet acknowledged: what the send buffer holds.
    pub written: u64,
    /// The receive window that the peer advertised, in bytes.
    pub window: u64,
    /// What of it is free.
    pub room: u64,
    /// Segments.
    pub cwnd: u32,
    /// Segments.
    pub ssthresh: u32,
    /// Bytes.
    pub mss: u32,
    /// Most segments that would be sent as one (`tcp_tso_autosize`).
    pub burst: u32,
    /// The application waits for room in the send buffer.
    pub no_space: bool,
    /// A short segment is held back by Nagle's algorithm until this.
    pub held_until: Option<ShortSegmentRelease>,
    /// The socket paces, and the next segment was not yet due.
    pub paced: bool,
    /// The application left the pipe part empty, and those segments are not all delivered.
    pub app_limited: bool,
    /// The segments below TCP fill what it lets wait there (`tcp_small_queue_check`).
    pub queued_below: bool,
}

/// Which part of a connection's life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ConnectionStage {
    Opening,
    #[default]
    Open,
    Closing,
}

/// What ended the wait of a short segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShortSegmentRelease {
    /// An acknowledgement came.
    Ack,
    /// The application wrote more.
    Write,
}

impl SenderState {
    /// Segments that the congestion window still lets go.
    pub fn quota(&self) -> i64 {
        i64::from(self.cwnd) - i64::from(self.flight)
    }

    /// Segments would go, but so few that the kernel waits to send more at once
    /// (`tcp_tso_should_defer`), and this is what makes them few.
    pub fn deferred_by(&self) -> Option<Limit> {
        let mss = u64::from(self.mss.max(1));
        let quota = u64::try_from(self.quota()).unwrap_or(0) * mss;
        let window = self.window.min(u64::from(self.cwnd) * mss);
        let worth = (window / 3).min(u64::from(self.burst.max(1)) * mss);
        (quota.min(self.room) < worth).then_some(if self.room < quota {
            Limit::ReceiveWindow
        } else {
            Limit::CongestionWindow
        })
    }

    /// The limit that owns this moment: the first of the rules in their order that claims it.
    pub fn owner(&self) -> Limit {
        let claim = limits::ORDER.iter().find(|(_, owns)| owns(self));
        claim.map_or(Limit::Cpu, |(limit, _)| *limit)
    }
}

/// A stretch of time with its owner.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct OwnedInterval {
    pub from: Nanos,
    pub to: Nanos,
    pub limit: Limit,
    pub bytes: Bytes,
}

/// Pieces that are kept of one connection at most.
const MOST_PIECES: usize = 4096;
/// Stretches that they are brought down to, each with a piece for each of its owners: four for each of the
/// time line's, and with every limit of the first level in each still fewer than [`MOST_PIECES`].
const STRETCHES: u64 = 288;

/// Adds the next piece. Neighbours of one owner are one; when there are too many, those within a short
/// stretch are put together by owner: sums stay exact, and the order is lost within that stretch alone.
/// Where a damaged recording goes back in time, its time stands still until it is past the piece before.
pub(crate) fn own(pieces: &mut Vec<OwnedInterval>, mut piece: OwnedInterval) {
    if let Some(last) = pieces.last() {
        piece.from = piece.from.max(last.to);
    }
    piece.to = piece.to.max(piece.from);
    join(pieces, piece);
    if pieces.len() >= MOST_PIECES {
        *pieces = coarser(pieces);
    }
}

fn join(pieces: &mut Vec<OwnedInterval>, piece: OwnedInterval) {
    match pieces.last_mut() {
        Some(last) if last.limit == piece.limit => {
            last.to = piece.to;
            last.bytes += piece.bytes;
        }
        _ => pieces.push(piece),
    }
}

/// Gives the time of a silence to another limit, but for what a window held back. Data came before it.
pub(crate) fn give(
    pieces: Vec<OwnedInterval>,
    [from, to]: [Nanos; 2],
    limit: Limit,
) -> Vec<OwnedInterval> {
    let mut out = Vec::new();
    for mut rest in pieces {
        let mut before = rest.split(from.max(rest.from));
        let mut within = rest.split(to.max(rest.from));
        if !matches!(within.limit, Limit::ReceiveWindow | Limit::ZeroWindow) {
            within.limit = limit;
            if before.length().0 > 0 {
                before.bytes += std::mem::take(&mut within.bytes);
            }
        }
        let parts = [before, within, rest].into_iter();
        parts
            .filter(|part| part.length().0 > 0 || part.bytes.0 > 0)
            .for_each(|part| join(&mut out, part));
    }
    out
}

fn coarser(pieces: &[OwnedInterval]) -> Vec<OwnedInterval> {
    let (Some(first), Some(last)) = (pieces.first(), pieces.last()) else {
        return Vec::new();
    };
    let begin = first.from;
    let step = last.to.since(begin).0.div_ceil(STRETCHES).max(1);
    let mut out: Vec<OwnedInterval> = Vec::new();
    // Those of the present stretch, in the order of their first time in it.
    let mut within: Vec<OwnedInterval> = Vec::new();
    let mut stretch = 0;
    for piece in pieces {
        let mut rest = *piece;
        while rest.from < rest.to || rest.bytes.0 > 0 {
            let at = rest.from.since(begin).0 / step;
            if at != stretch {
                stretch = at;
                within.drain(..).for_each(|piece| join(&mut out, piece));
            }
            let part = rest.split(begin + Nanos((at + 1).saturating_mul(step)));
            match within.iter_mut().position(|p| p.limit == part.limit) {
                Some(n) => {
                    within[n].to += part.length();
                    within[n].bytes += part.bytes;
                    for later in &mut within[n + 1..] {
                        later.from += part.length();
                        later.to += part.length();
                    }
                }
                None => within.push(part),
            }
        }
    }
    within.into_iter().for_each(|piece| join(&mut out, piece));
    out
}

impl OwnedInterval {
    pub fn length(&self) -> Nanos {
        self.to.since(self.from)
    }

    /// Takes what lies before a moment off; its bytes in proportion.
    fn split(&mut self, at: Nanos) -> OwnedInterval {
        let whole = *self;
        if whole.to <= at {
            *self = OwnedInterval {
                from: whole.to,
                bytes: Bytes(0),
                ..whole
            };
            return whole;
        }
        let part = u128::from(at.since(whole.from).0) * u128::from(whole.bytes.0)
            / u128::from(whole.length().0);
        let bytes = Bytes(u64::try_from(part).unwrap_or(whole.bytes.0));
        self.from = at;
        self.bytes = whole.bytes.since(bytes);
        OwnedInterval {
            to: at,
            bytes,
            ..whole
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn sums(pieces: &[OwnedInterval]) -> BTreeMap<Limit, (u64, u64)> {
        let mut sums = BTreeMap::<Limit, (u64, u64)>::new();
        for piece in pieces {
            let sum = sums.entry(piece.limit).or_default();
            sum.0 += piece.length().0;
            sum.1 += piece.bytes.0;
        }
        sums
    }

    #[test]
    fn the_time_of_a_silence_is_given_and_no_other() {
        let piece = |from, to, limit, bytes| OwnedInterval {
            from: Nanos(from),
            to: Nanos(to),
            limit,
            bytes: Bytes(bytes),
        };
        use Limit::{Application, CongestionWindow, RtoStall, ZeroWindow};
        let pieces = vec![
            piece(0, 40, CongestionWindow, 90),
            piece(40, 50, ZeroWindow, 1),
            piece(50, 50, Application, 2),
            piece(50, 80, Application, 0),
            piece(80, 100, CongestionWindow, 7),
        ];
        let given = give(pieces, [Nanos(10), Nanos(90)], RtoStall);
        let expected = [
            piece(0, 10, CongestionWindow, 90),
            piece(10, 40, RtoStall, 0),
            piece(40, 50, ZeroWindow, 1),
            piece(50, 50, Application, 2),
            piece(50, 90, RtoStall, 3),
            piece(90, 100, CongestionWindow, 4),
        ];
        assert_eq!(given, expected);
    }

    #[test]
    fn time_that_goes_back_stands_still_and_ends_nothing_late() {
        let mut kept = Vec::new();
        for n in 0..20_000u64 {
            let piece = OwnedInterval {
                from: Nanos(u64::MAX - (n << 40)),
                to: Nanos(u64::MAX - ((n * n % 1013) << 30)),
                limit: Limit::ALL[(n % 14) as usize],
                bytes: Bytes(1),
            };
            own(&mut kept, piece);
        }
        assert!(kept.len() < MOST_PIECES);
        assert!(kept.windows(2).all(|two| two[0].to <= two[1].from));
        let bytes: u64 = kept.iter().map(|piece| piece.bytes.0).sum();
        assert_eq!(bytes, 20_000);
    }

    #[test]
    fn a_long_connection_keeps_its_sums_and_takes_no_more_room() {
        let owners = &Limit::ALL[..14];
        let (mut all, mut kept) = (Vec::new(), Vec::new());
        let mut at = Nanos(7);
        for n in 0..100_000u64 {
            let to = at + Nanos(n * n % 1013);
            let piece = OwnedInterval {
                from: at,
                to,
                limit: owners[(n * n % 13 + n / 50_000) as usize],
                bytes: Bytes(n % 17),
            };
            all.push(piece);
            own(&mut kept, piece);
            assert!(kept.len() < MOST_PIECES);
            at = to;
        }
        assert_eq!(sums(&kept), sums(&all));
        assert_eq!((kept[0].from, kept[kept.len() - 1].to), (Nanos(7), at));
        assert!(kept.windows(2).all(|w| w[0].to == w[1].from));
        // The last owner came with the second half.
        let late = kept.iter().find(|p| p.limit == owners[13]);
        assert!(late.is_some_and(|p| p.from.0.abs_diff(at.0 / 2) < at.0 / 100));
    }

    #[test]
    fn a_piece_is_split_in_proportion() {
        let piece = OwnedInterval {
            from: Nanos(10),
            to: Nanos(50),
            limit: Limit::Pacing,
            bytes: Bytes(100),
        };
        let of = |at| {
            let mut rest = piece;
            let part = rest.split(Nanos(at));
            [part, rest].map(|p| (p.from.0, p.to.0, p.bytes.0))
        };
        assert_eq!(of(20), [(10, 20, 25), (20, 50, 75)]);
        assert_eq!(of(49), [(10, 49, 97), (49, 50, 3)]);
        assert_eq!([of(50), of(60)], [[(10, 50, 100), (50, 50, 0)]; 2]);
    }

    #[test]
    fn neighbours_of_one_owner_are_one_and_time_never_goes_back() {
        let mut pieces = Vec::new();
        let mut own = |from, to, limit| {
            let piece = OwnedInterval {
                from: Nanos(from),
                to: Nanos(to),
                limit,
                bytes: Bytes(1),
            };
            super::own(&mut pieces, piece);
        };
        own(0, 10, Limit::Pacing);
        own(10, 20, Limit::Pacing);
        own(15, 30, Limit::Nagle);
        own(5, 8, Limit::Cpu);
        let found: Vec<_> = pieces
            .iter()
            .map(|p| (p.from.0, p.to.0, p.limit, p.bytes.0))
            .collect();
        let expected = [
            (0, 20, Limit::Pacing, 2),
            (20, 30, Limit::Nagle, 1),
            (30, 30, Limit::Cpu, 1),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn too_many_pieces_are_put_together_within_a_stretch() {
        // Of 288 stretches of 100 ns each has both owners, of 10 and 40 ns in turns.
        let mut pieces = Vec::new();
        for n in 0..576u64 {
            for (from, to, limit) in [(0, 10, Limit::Pacing), (10, 50, Limit::Nagle)] {
                pieces.push(OwnedInterval {
                    from: Nanos(n * 50 + from),
                    to: Nanos(n * 50 + to),
                    limit,
                    bytes: Bytes(to - from),
                });
            }
        }
        let out = coarser(&pieces);
        assert_eq!(out.len(), 576);
        for (n, two) in (0..).zip(out.chunks(2)) {
            let found = [&two[0], &two[1]].map(|p| (p.from.0, p.to.0, p.limit, p.bytes.0));
            let at = n * 100;
            let expected = [
                (at, at + 20, Limit::Pacing, 20),
                (at + 20, at + 100, Limit::Nagle, 80),
            ];
            assert_eq!(found, expected);
        }
        assert_eq!(coarser(&[]).len(), 0);
    }
}

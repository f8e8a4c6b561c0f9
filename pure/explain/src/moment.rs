//! The state of a sender between two events, and the limit that owns it.

use crate::limits;
use model::finding::Limit;
use model::{Bytes, Nanos};

/// Congestion state `TCP_CA_CWR` (`include/uapi/linux/tcp.h`).
pub(crate) const CWR: u8 = 2;
/// Congestion state `TCP_CA_Recovery`.
pub(crate) const RECOVERY: u8 = 3;
/// Congestion state `TCP_CA_Loss`.
pub(crate) const LOSS: u8 = 4;

/// What a sender's socket was between two events. Unsent data are those after the first of them, the
/// rest is as the second found it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Moment {
    pub stage: Stage,
    /// `TCP_CA_*`.
    pub ca_state: u8,
    /// The retransmission timer has fired and nothing was acknowledged since.
    pub backed_off: bool,
    /// Bytes written and not yet sent.
    pub unsent: u64,
    /// Segments in flight: sent, less those known to have left the network.
    pub flight: u32,
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
    /// The zero-window probe timer runs.
    pub probing: bool,
    /// The application waits for room in the send buffer.
    pub no_space: bool,
    /// A short segment is held back by Nagle's algorithm until this.
    pub held_until: Option<Release>,
    /// The socket paces, and the next segment was not yet due.
    pub paced: bool,
    /// The application left the pipe part empty, and those segments are not all delivered.
    pub app_limited: bool,
    /// The segments below TCP fill what it lets wait there (`tcp_small_queue_check`).
    pub queued_below: bool,
}

/// Which part of a connection's life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stage {
    Opening,
    #[default]
    Open,
    Closing,
}

/// What ended the wait of a short segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Release {
    /// An acknowledgement came.
    Ack,
    /// The application wrote more.
    Write,
}

impl Moment {
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
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub from: Nanos,
    pub to: Nanos,
    pub limit: Limit,
    pub bytes: Bytes,
}

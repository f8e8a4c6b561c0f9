//! What the script `tcp.d` of DTrace printed of one connection, as people paste it: with or without timestamps,
//! processors and windows, with headings between the lines and in the order in which each processor's buffer was emptied.

use model::packet::Packet;
use model::segment::tcp_flag::{ACK, PSH};
use model::{Bytes, Nanos};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The two ends, which have no names there: the host that was traced, and its peer.
pub const ENDS: [SocketAddr; 2] = {
    let nobody = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    [SocketAddr::new(nobody, 0), SocketAddr::new(nobody, 1)]
};
/// No segment carries more.
const MOST_CARRIED: u64 = 1 << 20;
/// Lines that are read at most.
const MOST_ROWS: usize = 1 << 20;
/// No delta in microseconds, size or window is larger, and no timestamp in nanoseconds: so their sums stay in range.
const MOST: u64 = 1 << 32;
const MOST_TIME: u64 = 1 << 62;
/// A threshold that is not set: the largest window of all (65535 with a scale of 14, RFC 7323).
const UNSET: u64 = 65_535 << 14;
/// Bytes from the beginning of a file in which it shows whether it is a listing.
const HEAD: usize = 4096;

/// Whether a file that begins like this is a listing.
pub fn is_listing(head: &[u8]) -> bool {
    let head = String::from_utf8_lossy(&head[..head.len().min(HEAD)]);
    !head.trim_start().starts_with('{') && !read(&head).rows.is_empty()
}

/// The lines of a listing, in true order as far as that can be known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Its segments.
    pub rows: Vec<ListingRow>,
    /// How they came into this order.
    pub order: LineOrder,
    /// Lines that are no segments: headings, and what somebody wrote beside them.
    pub skipped: u64,
}

/// How the lines of a listing were put in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LineOrder {
    /// In the printed order: nothing contradicts it.
    #[default]
    Printed,
    /// By the timestamps that were printed too.
    Sorted {
        /// Lines that had stood behind later ones.
        moved: u64,
    },
    /// Of several processors, each in its own order, without timestamps: what followed what between them
    /// cannot be known.
    Unknown,
}

/// One printed segment; `None` where there was no such column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListingRow {
    /// Between [`ENDS`], since the first line. Its numbers count what was printed before it.
    pub packet: Packet,
    /// Bytes that were sent and not acknowledged.
    pub unacked: Option<Bytes>,
    /// The windows and the threshold.
    pub windows: Option<Windows>,
}

impl ListingRow {
    /// By the host that was traced; else it received it.
    pub fn is_sent(&self) -> bool {
        self.packet.from == ENDS[0]
    }

    /// Sent, with data.
    pub fn is_data(&self) -> bool {
        self.is_sent() && self.packet.payload > 0
    }
}

/// What a socket's windows were at a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Windows {
    /// The peer's receive window.
    pub send: Bytes,
    /// The congestion window.
    pub congestion: Bytes,
    /// The threshold of slow start; `None` while it is not set.
    pub threshold: Option<Bytes>,
}

/// Reads a listing, and puts its lines in order.
pub fn read(text: &str) -> Listing {
    let mut columns = ListingColumns::default();
    let mut lines = Vec::new();
    let mut skipped = 0;
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        match columns.line(line) {
            Some(line) if lines.len() < MOST_ROWS => lines.push(line),
            _ => skipped += 1,
        }
    }
    let order = put_in_order(&mut lines);
    let mut at = Nanos(0);
    let mut last = None;
    let mut seqs = [0_u32; 2];
    let rows = lines.into_iter().map(|line| {
        at += match (last, line.time) {
            (None, _) => Nanos(0),
            (Some(last), Some(time)) => time.since(last),
            (Some(_), None) => line.delta,
        };
        last = line.time.or(Some(at));
        let side = usize::from(!line.sent);
        let payload = line.bytes.min(MOST_CARRIED) as u32;
        let packet = Packet {
            at,
            seq: seqs[side],
            // The listing lacks the acknowledgement number: all that was sent before is the least that fits.
            ack: seqs[1 - side],
            flags: ACK | PSH,
            payload,
            options_cut: true,
            ..Packet::new(ENDS[side], ENDS[1 - side])
        };
        seqs[side] = seqs[side].wrapping_add(payload);
        ListingRow {
            packet,
            unacked: line.unacked,
            windows: line.windows,
        }
    });
    Listing {
        rows: rows.collect(),
        order,
        skipped,
    }
}

/// A line before its place is known.
#[derive(Clone, Copy, Default)]
struct RawLine {
    time: Option<Nanos>,
    /// Since the line before it, of whatever processor.
    delta: Nanos,
    sent: bool,
    bytes: u64,
    /// Processor on which it was printed.
    cpu: Option<u32>,
    unacked: Option<Bytes>,
    windows: Option<Windows>,
}

fn put_in_order(lines: &mut [RawLine]) -> LineOrder {
    if lines.iter().all(|line| line.time.is_some()) {
        let mut latest = None;
        let mut moved = 0;
        for line in lines.iter() {
            moved += u64::from(line.time < latest);
            latest = latest.max(line.time);
        }
        lines.sort_by_key(|line| line.time);
        return match moved {
            0 => LineOrder::Printed,
            moved => LineOrder::Sorted { moved },
        };
    }
    lines.iter_mut().for_each(|line| line.time = None);
    let apart = |pair: &[RawLine]| pair[0].cpu != pair[1].cpu;
    match lines.windows(2).any(apart) || answers_unasked(lines) {
        true => LineOrder::Unknown,
        false => LineOrder::Printed,
    }
}

/// Short messages of one end that follow each other, as answers do only when what was asked between them is printed
/// elsewhere: processors empty their buffers one by one.
fn answers_unasked(lines: &[RawLine]) -> bool {
    let largest = lines.iter().map(|line| line.bytes).max().unwrap_or(0);
    let short = |line: &RawLine| line.bytes > 0 && line.bytes < largest / 2;
    let same = |pair: &[RawLine]| pair.iter().all(short) && pair[0].sent == pair[1].sent;
    lines.windows(2).any(same)
}

/// What the headings so far say of the columns.
#[derive(Default)]
struct ListingColumns {
    /// There are such of windows.
    windows: bool,
    /// The first two are bytes that are not acknowledged, sent and received.
    unacked: bool,
}

impl ListingColumns {
    fn line(&mut self, line: &str) -> Option<RawLine> {
        let (mut before, mut after) = (Vec::new(), Vec::new());
        let mut mark = None;
        for word in line.split_whitespace() {
            match word {
                "-->" | "<--" | "/" | "\\" if mark.is_none() => mark = Some(word),
                _ => {
                    let number = word.parse::<u64>().ok();
                    let Some(number) = number.filter(|number| *number <= MOST_TIME) else {
                        self.heading(line);
                        return None;
                    };
                    let side = if mark.is_none() {
                        &mut before
                    } else {
                        &mut after
                    };
                    side.push(number);
                }
            }
        }
        match mark {
            Some("-->") => Self::with_arrow(&before, &after, true),
            Some("<--") => Self::with_arrow(&before, &after, false),
            _ => self.with_windows(&[before, after].concat(), mark != Some("/")),
        }
    }

    fn heading(&mut self, line: &str) {
        let line = line.to_ascii_lowercase();
        self.windows |= line.contains("ssthresh");
        self.unacked |= line.contains("unack");
    }

    /// `[time] delta connection process`, and the bytes on the side of the arrow that they came from; then the processor.
    fn with_arrow(before: &[u64], after: &[u64], sent: bool) -> Option<RawLine> {
        let ((bytes, whose), cpu) = match sent {
            true => (before.split_last()?, after),
            false => after
                .split_first()
                .map(|(bytes, cpu)| ((bytes, before), cpu))?,
        };
        let cpu = match cpu {
            [] => None,
            [cpu] => Some(u32::try_from(*cpu).ok()?),
            _ => return None,
        };
        let (time, delta) = match whose {
            [delta, _, _] => (None, *delta),
            [time, delta, _, _] => (Some(Nanos(*time)), *delta),
            _ => return None,
        };
        if delta.max(*bytes) > MOST {
            return None;
        }
        Some(RawLine {
            time,
            delta: micros(delta),
            sent,
            bytes: *bytes,
            cpu,
            ..RawLine::default()
        })
    }

    /// `delta bytes swnd its scale rwnd its scale cwnd ssthresh`, or `unacknowledged sent and received, delta bytes swnd
    /// rwnd cwnd ssthresh`.
    fn with_windows(&self, numbers: &[u64], sent: bool) -> Option<RawLine> {
        let numbers: [u64; 8] = numbers.try_into().ok().filter(|_| self.windows)?;
        if numbers.iter().any(|number| *number > MOST) {
            return None;
        }
        let [.., congestion, threshold] = numbers;
        let (unacked, delta, bytes, send) = match numbers {
            [out, _, delta, bytes, send, ..] if self.unacked => {
                (Some(Bytes(out)), delta, bytes, send)
            }
            [delta, bytes, send, ..] => (None, delta, bytes, send),
        };
        let threshold = Some(threshold).filter(|threshold| *threshold < UNSET);
        Some(RawLine {
            time: None,
            delta: micros(delta),
            sent,
            bytes,
            unacked,
            windows: Some(Windows {
                send: Bytes(send),
                congestion: Bytes(congestion),
                threshold: threshold.map(Bytes),
            }),
            ..RawLine::default()
        })
    }
}

/// A printed delta.
fn micros(delta: u64) -> Nanos {
    Nanos(delta.saturating_mul(1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_several_processors_are_sorted_by_their_timestamps() {
        let listing = read(
            "607858104143731       116     3904    845      132 -->          2
607858104176769        33     3904    845     1448 -->          2
607858103774417       165     3904    845          <-- 132      3
607858104125414     delta      cid    pid     send     recd cpu#
what we see is the data ordered by CPU.
",
        );
        assert_eq!(listing.order, LineOrder::Sorted { moved: 1 });
        assert_eq!(listing.skipped, 2);
        let rows: Vec<_> = listing
            .rows
            .iter()
            .map(|row| (row.packet.at.0, row.is_sent(), row.packet.payload))
            .collect();
        assert_eq!(
            rows,
            [(0, false, 132), (369_314, true, 132), (402_352, true, 1448)]
        );
    }

    #[test]
    fn without_timestamps_the_order_between_processors_is_not_known() {
        let listing =
            read("66 3904 845 124 --> 0\n6091 3904 845 124 --> 2\n375 3904 845 <-- 0 3\n");
        assert_eq!(listing.order, LineOrder::Unknown);
        assert_eq!(listing.rows[2].packet.at, Nanos::from_micros(6466));
        assert_eq!(
            read("66 3904 845 124 -->\n375 3904 845 <-- 0\n").order,
            LineOrder::Printed
        );
    }

    #[test]
    fn windows_are_read_in_either_form() {
        let scales = read(
            "delta send   recd\n (us) bytes  bytes  swnd snd_ws   rwnd rcv_ws   cwnd    ssthresh
  161      /    0 195200     7 131768      2 127424   1073725440
   52 1448       195200     7 131768      2 128872   72400\n",
        );
        assert_eq!(scales.rows.len(), 2);
        assert!(!scales.rows[0].is_sent() && scales.rows[1].is_sent());
        let windows = scales.rows[1].windows.unwrap();
        assert_eq!(
            (windows.congestion, windows.threshold),
            (Bytes(128_872), Some(Bytes(72_400)))
        );
        assert_eq!(scales.rows[0].windows.unwrap().threshold, None);

        let unacked = read(
            "unack    unack    delta  bytes  ssthresh\n139760 0 31 1448 195200 131768 144800 1073725440\n",
        );
        assert_eq!(unacked.rows[0].unacked, Some(Bytes(139_760)));
        assert_eq!(unacked.rows[0].packet.payload, 1448);
    }

    #[test]
    fn other_files_are_no_listings() {
        for other in [
            "",
            "{\"kind\": 1}",
            "1 2 3 4 5 6 7 8\n",
            "a --> b\n",
            "--> 1\n",
            "1 --> \n",
            "<-- 1\n",
            "\u{0}\u{1}",
        ] {
            assert!(!is_listing(other.as_bytes()), "{other}");
        }
        assert!(is_listing(b"375 3904 845 <-- 0\n"));
    }
}

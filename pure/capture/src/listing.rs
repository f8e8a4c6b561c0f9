//! What the script `tcp.d` of DTrace printed, as people paste it: with or without timestamps, processors and windows, with
//! headings between the lines and in the order in which each processor's buffer was emptied.

use model::listing::{Listing, Order, Row, Windows};
use model::{Bytes, Nanos};

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

/// Reads a listing, and puts its lines in order.
pub fn read(text: &str) -> Listing {
    let mut columns = Columns::default();
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
    let rows = lines.into_iter().map(|line| {
        at += match (last, line.time) {
            (None, _) => Nanos(0),
            (Some(last), Some(time)) => time.since(last),
            (Some(_), None) => line.delta,
        };
        last = line.time.or(Some(at));
        Row { at, ..line.row }
    });
    Listing {
        rows: rows.collect(),
        order,
        skipped,
    }
}

/// A line before its place is known.
#[derive(Clone, Copy, Default)]
struct Line {
    time: Option<Nanos>,
    /// Since the line before it, of whatever processor.
    delta: Nanos,
    row: Row,
}

fn put_in_order(lines: &mut [Line]) -> Order {
    if lines.iter().all(|line| line.time.is_some()) {
        let mut latest = None;
        let mut moved = 0;
        for line in lines.iter() {
            moved += u64::from(line.time < latest);
            latest = latest.max(line.time);
        }
        lines.sort_by_key(|line| line.time);
        return match moved {
            0 => Order::Printed,
            moved => Order::Sorted { moved },
        };
    }
    lines.iter_mut().for_each(|line| line.time = None);
    let apart = |pair: &[Line]| pair[0].row.cpu != pair[1].row.cpu;
    match lines.windows(2).any(apart) || answers_unasked(lines) {
        true => Order::Unknown,
        false => Order::Printed,
    }
}

/// Short messages of one end that follow each other, as answers do only when what was asked between them is printed
/// elsewhere: processors empty their buffers one by one.
fn answers_unasked(lines: &[Line]) -> bool {
    let largest = lines.iter().map(|line| line.row.bytes.0).max().unwrap_or(0);
    let short = |row: &Row| row.bytes.0 > 0 && row.bytes.0 < largest / 2;
    lines.windows(2).any(|pair| {
        let [a, b] = [pair[0].row, pair[1].row];
        short(&a) && short(&b) && a.sent == b.sent
    })
}

/// What the headings so far say of the columns.
#[derive(Default)]
struct Columns {
    /// There are such of windows.
    windows: bool,
    /// The first two are bytes that are not acknowledged, sent and received.
    unacked: bool,
}

impl Columns {
    fn line(&mut self, line: &str) -> Option<Line> {
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
    fn with_arrow(before: &[u64], after: &[u64], sent: bool) -> Option<Line> {
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
        Some(Line {
            time,
            delta: micros(delta),
            row: Row {
                sent,
                bytes: Bytes(*bytes),
                cpu,
                ..Row::default()
            },
        })
    }

    /// `delta bytes swnd its scale rwnd its scale cwnd ssthresh`, or `unacknowledged sent and received, delta bytes swnd
    /// rwnd cwnd ssthresh`.
    fn with_windows(&self, numbers: &[u64], sent: bool) -> Option<Line> {
        let numbers: [u64; 8] = numbers.try_into().ok().filter(|_| self.windows)?;
        if numbers.iter().any(|number| *number > MOST) {
            return None;
        }
        let (unacked, delta, bytes, [send, receive, congestion, threshold]) = match numbers {
            [out, _, delta, bytes, rest @ ..] if self.unacked => {
                (Some(Bytes(out)), delta, bytes, rest)
            }
            [delta, bytes, send, _, receive, _, congestion, threshold] => {
                (None, delta, bytes, [send, receive, congestion, threshold])
            }
        };
        let threshold = Some(threshold).filter(|threshold| *threshold < UNSET);
        Some(Line {
            time: None,
            delta: micros(delta),
            row: Row {
                sent,
                bytes: Bytes(bytes),
                unacked,
                windows: Some(Windows {
                    send: Bytes(send),
                    receive: Bytes(receive),
                    congestion: Bytes(congestion),
                    threshold: threshold.map(Bytes),
                }),
                ..Row::default()
            },
        })
    }
}

/// A delta as it is printed.
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
        assert_eq!(listing.order, Order::Sorted { moved: 1 });
        assert_eq!(listing.skipped, 2);
        let rows: Vec<_> = listing
            .rows
            .iter()
            .map(|row| (row.at.0, row.sent, row.bytes.0))
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
        assert_eq!(listing.order, Order::Unknown);
        assert_eq!(listing.rows[2].at, Nanos::from_micros(6466));
        assert_eq!(
            read("66 3904 845 124 -->\n375 3904 845 <-- 0\n").order,
            Order::Printed
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
        assert!(!scales.rows[0].sent && scales.rows[1].sent);
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
        assert_eq!(unacked.rows[0].bytes, Bytes(1448));
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

//! A live trace as lines: one a segment, in columns that the user picks.

use crate::words::{counted, escape, grouped, or};
use model::segment::{ca_state, chrono, tcp_flag, tcp_state};
use model::{
    Bytes, Completeness, Connection, Dropped, Gap, Lost, Nanos, Retransmission, Segment,
    SocketState, TraceEnd, TraceSample, What,
};

/// What a line is made of.
#[derive(Clone, Copy, Debug)]
pub struct TraceRow<'a> {
    /// The event.
    pub segment: &'a Segment,
    /// Its connection; `None` where a line does not show its ends.
    pub connection: Option<&'a Connection>,
    /// The last sample of its socket, where that is not read at each segment. What is of it stands behind a `~`.
    pub sample: Option<&'a TraceSample>,
    /// Time since the line before.
    pub delta: Nanos,
}

/// One column.
pub struct Column {
    /// Its name, for the user to pick it, and its heading.
    pub name: &'static str,
    /// What it says, with its unit.
    pub meaning: &'static str,
    width: usize,
    left: bool,
    cell: fn(&TraceRow<'_>) -> String,
}

/// The columns that are shown where none are picked.
pub const USUAL: &str =
    "delta,conn,pid,comm,send,recd,flight,unrcv,swnd,sws,rwnd,rws,cwnd,ssthresh,rtt,rto,mss,re,cpu";

macro_rules! columns {
    ($($name:literal $width:literal $($left:ident)? $meaning:literal $cell:expr;)*) => {
        &[$(Column {
            name: $name,
            meaning: $meaning,
            width: $width,
            left: columns!(@ $($left)?),
            cell: $cell,
        },)*]
    };
    (@ left) => { true };
    (@) => { false };
}

/// All columns.
pub static COLUMNS: &[Column] = columns! {
    "time" 13 "seconds since the trace began" |r| format!("{:.6}", r.segment.at.as_secs_f64());
    "delta" 9 "microseconds since the line before" |r| whole_us(r.delta);
    "conn" 5 "number of the connection" |r| r.segment.connection.to_string();
    "local" 21 left "this end" |r| or(r.connection.map(|c| c.local), "");
    "remote" 21 left "the remote host" |r| or(r.connection.map(|c| c.remote), "");
    "pid" 7 "process that uses the socket" |r| unless_zero(r.segment.pid);
    "comm" 15 left "its name" |r| escape(&r.segment.comm.to_string());
    "running" 15 left "process that the processor was running" |r| escape(&r.segment.current_comm.to_string());
    "send" 10 "bytes sent" |r| match r.segment.what {
        What::Sent => format!("{} -->", r.segment.payload.0),
        What::Received => String::new(),
        _ => step(r.segment),
    };
    "recd" 10 left "bytes received" |r| match r.segment.what {
        What::Received => format!("<-- {}", r.segment.payload.0),
        _ => String::new(),
    };
    "segs" 4 "segments on the wire that the line stands for" |r| unless_zero(r.segment.segments);
    "flags" 5 left "flags of TCP, as S F R P A U E C" |r| flags(r.segment.flags);
    "seq" 10 "sequence number" |r| of_packet(r, r.segment.seq);
    "ack" 10 "acknowledgement number" |r| of_packet(r, r.segment.ack);
    "offset" 12 "place of the first byte in its stream" |r| or(r.segment.offset, "-");
    "flight" 9 "bytes sent and not acknowledged" |r| state_of(r, |s| Some(s.unacked_sent()?.0));
    "unrcv" 7 "bytes received and not acknowledged" |r| state_of(r, |s| Some(s.unacked_received()?.0));
    "unsent" 9 "bytes written and not sent" |r| state_of(r, |s| Some(s.unsent()?.0));
    "unread" 9 "bytes received and not read by the application" |r| state_of(r, |s| Some(s.unread()?.0));
    "swnd" 9 "send window in bytes: what the peer offered" |r| state_of(r, |s| Some(s.snd_wnd()?.0));
    "sws" 3 "its scale" |r| state_of(r, SocketState::snd_wscale);
    "rwnd" 9 "receive window in bytes: what this end offered" |r| state_of(r, |s| Some(s.rcv_wnd()?.0));
    "rws" 3 "its scale" |r| state_of(r, SocketState::rcv_wscale);
    "cwnd" 9 "congestion window in bytes" |r| state_of(r, |s| Some(s.cwnd_bytes()?.0));
    "ssthresh" 9 "slow-start threshold in bytes; - before there is one" |r| state_of(r, threshold);
    "rtt" 8 "smoothed round-trip time in microseconds" |r| state_of(r, |s| Some(s.srtt()?.0 / 1_000));
    "minrtt" 8 "smallest round-trip time in microseconds" |r| state_of(r, |s| Some(s.min_rtt()?.0 / 1_000));
    "rto" 6 "retransmission timeout in milliseconds" |r| state_of(r, |s| Some(s.rto()?.0 / 1_000_000));
    "mss" 5 "largest segment to send, in bytes" |r| state_of(r, SocketState::mss);
    "re" 2 left "R where the segment is a retransmission"
        |r| if r.segment.is_retransmission() { "R" } else { "" }.to_owned();
    "why" 9 left "what a retransmission is due to" |r| r.segment.retransmission().map_or("", why).to_owned();
    "cpu" 3 "processor" |r| or(r.segment.probed().map(|_| r.segment.cpu), "-");
    "state" 11 left "state of the connection" |r| state_of(r, |s| s.state().map(state));
    "ca" 8 left "state of congestion control" |r| state_of(r, |s| s.ca_state().map(congestion));
    "limit" 6 left "what the kernel says limits the sender" |r| state_of(r, |s| s.chrono().map(limit));
    "pacing" 9 "pacing rate in Mbit/s" |r| state_of(r, |s| Some(s.pacing_rate()?.0 / 1_000_000));
    "sndbuf" 9 "send buffer in bytes" |r| state_of(r, |s| Some(s.sndbuf()?.0));
    "sndused" 9 "its use" |r| state_of(r, |s| Some(s.sndbuf_used()?.0));
    "rcvbuf" 9 "receive buffer in bytes" |r| state_of(r, |s| Some(s.rcvbuf()?.0));
    "rcvused" 9 "its use" |r| state_of(r, |s| Some(s.rcvbuf_used()?.0));
    "queued" 9 "bytes handed to the device and not yet sent by it" |r| state_of(r, |s| Some(s.wmem_alloc()?.0));
    "lost" 4 "segments believed lost" |r| state_of(r, SocketState::lost_out);
    "sacked" 6 "segments selectively acknowledged" |r| state_of(r, SocketState::sacked_out);
    "retrans" 7 "segments retransmitted since the connection began" |r| state_of(r, SocketState::total_retrans);
};

/// The columns that a list names: `delta,conn,send`; `+rtt,...` adds to the usual ones.
///
/// # Errors
/// A sentence that names the one that does not exist.
pub fn columns(list: &str) -> Result<Vec<&'static Column>, String> {
    let (first, list) = match list.strip_prefix('+') {
        Some(more) => (USUAL, more),
        None => ("", list),
    };
    let names = first.split(',').chain(list.split(',')).map(str::trim);
    let named = names.filter(|name| !name.is_empty()).map(|name| {
        column(name).ok_or_else(|| {
            let all: Vec<_> = COLUMNS.iter().map(|column| column.name).collect();
            format!("no column '{name}': choose of {}", all.join(" "))
        })
    });
    match named.collect::<Result<Vec<_>, _>>()? {
        none if none.is_empty() => Err("name at least one column".to_owned()),
        columns => Ok(columns),
    }
}

fn column(name: &str) -> Option<&'static Column> {
    COLUMNS.iter().find(|column| column.name == name)
}

/// The line above the columns.
pub fn heading(columns: &[&Column]) -> String {
    join(columns, |column| column.name.to_owned())
}

/// One event.
pub fn line(columns: &[&Column], row: &TraceRow<'_>) -> String {
    let line = join(columns, |column| (column.cell)(row));
    match &row.segment.dropped {
        None => line,
        Some(dropped) => format!("{line}  {}", drop_words(dropped)),
    }
}

/// Where and why a segment was dropped, in words: those of the kernel's own name for it.
pub fn drop_words(dropped: &Dropped) -> String {
    let reason = dropped.reason.to_lowercase().replace('_', " ");
    let place = match (&dropped.device[..], dropped.arrived) {
        ("", _) => "by the socket".to_owned(),
        (device, true) => format!("on arrival at {}", escape(device)),
        (device, false) => format!("before it left by {}", escape(device)),
    };
    format!("dropped {place}: {}", escape(&reason))
}

fn join(columns: &[&Column], text: impl Fn(&Column) -> String) -> String {
    let cells = columns.iter().map(|column| match column.left {
        true => format!("{:<1$}", text(column), column.width),
        false => format!("{:>1$}", text(column), column.width),
    });
    cells.collect::<Vec<_>>().join(" ").trim_end().to_owned()
}

/// Which connection a number stands for.
pub fn connection(connection: &Connection) -> String {
    let (id, local, remote) = (connection.id, connection.local, connection.remote);
    format!("{id}: {local} -> {remote}")
}

/// A sample of a socket, in a line of its own.
pub fn sample(sample: &TraceSample) -> String {
    let socket = &sample.socket;
    let bytes = |figure: Option<Bytes>| or(figure.map(|bytes| bytes.0), "-");
    format!(
        "{:.6} connection {} {}{}: {} segments out, cwnd {}, rtt {} us, window {}, unsent {}, unread {}, retransmitted {}",
        sample.at.as_secs_f64(),
        sample.connection,
        or(socket.state().map(state), "-"),
        if sample.gone { ", gone" } else { "" },
        or(socket.packets_out(), "-"),
        bytes(socket.cwnd_bytes()),
        or(socket.srtt().map(|srtt| srtt.0 / 1_000), "-"),
        bytes(socket.snd_wnd()),
        bytes(socket.unsent()),
        bytes(socket.unread()),
        or(socket.total_retrans(), "-"),
    )
}

/// Events that were lost, in a sentence.
pub fn lost(lost: &Lost) -> String {
    let events = counted(lost.events, "event");
    let [from, to] = [lost.from, lost.to].map(seconds);
    format!(
        "{events} lost between {from} and {to}: the ring was full; trace less, or give it more room with --buffer"
    )
}

/// Whether every segment of a connection is in its trace, in a sentence.
pub fn completeness(of: &Connection, found: &Completeness) -> String {
    const NAMED: usize = 3;
    let name = connection(of);
    let [sent_missing, received_missing] = [found.sent_missing, found.received_missing];
    let is_checked = !found.unchecked && !found.is_complete();
    if is_checked && found.sent + found.received == 0 {
        let (sent, received) = (counted(sent_missing, "segment"), grouped(received_missing));
        return format!(
            "connection {name}: only its socket was sampled; the kernel counted {sent} sent, {received} received"
        );
    }
    let (sent, received) = (counted(found.sent, "segment"), grouped(found.received));
    let mut line = format!("connection {name}: {sent} sent, {received} received");
    let (again, by_kernel) = (found.retransmitted, found.retransmitted_counted);
    if again > 0 || by_kernel > 0 {
        line += &format!(", {} retransmitted", grouped(again));
    }
    if again != by_kernel {
        line += &format!(" (the kernel counted {})", grouped(by_kernel));
    }
    if found.unchecked {
        return line + ": not checked, no sample met its socket";
    }
    if !is_checked {
        return line + ": complete";
    }
    let gap = |gap: &Gap| {
        let way = if gap.sent { "sent" } else { "received" };
        let (from, to) = (seconds(gap.from), seconds(gap.to));
        format!("{} {way} between {from} and {to}", grouped(gap.segments))
    };
    let gaps: Vec<_> = found.gaps.iter().take(NAMED).map(gap).collect();
    let more = match found.gaps.len() {
        ..=NAMED => "",
        _ => ", and more",
    };
    let queue = match found.behind_queue && sent_missing > 0 {
        true => {
            "; those sent may have been dropped in this host's own queue, which the kernel counts as sent"
        }
        false => "",
    };
    let missing = counted(sent_missing + received_missing, "segment");
    let gaps = gaps.join(", ");
    format!("{line}: {missing} missing ({gaps}{more}){queue}")
}

/// The trace as a whole, in a sentence.
pub fn end(end: &TraceEnd) -> String {
    let mut line = format!("{} in {}", counted(end.events, "event"), end.at);
    if end.lost > 0 {
        line += &format!(", {} lost", grouped(end.lost));
    }
    if end.unordered > 0 {
        let unordered = grouped(end.unordered);
        line += &format!(", {unordered} whose place in the order is not certain");
    }
    line
}

/// The state of the socket in a few words, for a comment beside a packet; where it was not read at the packet,
/// that of the last sample, behind a `~`.
pub(crate) fn state_words(segment: &Segment, sample: Option<&TraceSample>) -> String {
    if segment.socket.is_none() && sample.is_none() {
        return String::new();
    }
    let names =
        "flight unsent swnd rwnd cwnd ssthresh rtt minrtt rto mss ca limit unread lost sacked";
    let row = TraceRow {
        segment,
        connection: None,
        sample,
        delta: Nanos(0),
    };
    let cell = |name| Some(format!("{name} {}", (column(name)?.cell)(&row)));
    let cells = names
        .split(' ')
        .filter_map(cell)
        .collect::<Vec<_>>()
        .join("; ");
    let again = segment.retransmission();
    let again = again.map(|kind| format!("retransmission ({}); ", why(kind)));
    let (again, comm) = (again.unwrap_or_default(), escape(&segment.comm.to_string()));
    let note = match (segment.probed(), sample) {
        (Some(socket), _) if socket.no_space => "; waits for the send buffer".to_owned(),
        (None, Some(sample)) => format!("; ~ is of {} before", segment.at.since(sample.at)),
        _ => String::new(),
    };
    format!("{again}{cells} pid {} ({comm}){note}", segment.pid)
}

/// A figure of the socket at the segment, or behind a `~` of its last sample.
fn state_of<T: ToString>(row: &TraceRow<'_>, figure: impl Fn(&SocketState) -> Option<T>) -> String {
    let now = row.segment.socket.as_ref().and_then(&figure);
    let before = || format!("~{}", figure(&row.sample?.socket)?.to_string()).into();
    let text = now.map(|figure| figure.to_string()).or_else(before);
    text.unwrap_or_else(|| "-".to_owned())
}

/// Bytes of the slow-start threshold, once it is set (`TCP_INFINITE_SSTHRESH`).
fn threshold(socket: &SocketState) -> Option<u64> {
    let segments = socket.ssthresh().filter(|n| *n < 0x7fff_ffff)?;
    Some(u64::from(segments) * u64::from(socket.mss()?))
}

fn of_packet(row: &TraceRow<'_>, number: u32) -> String {
    match row.segment.segments {
        0 => String::new(),
        _ => number.to_string(),
    }
}

fn unless_zero(number: u32) -> String {
    match number {
        0 => "-".to_owned(),
        _ => number.to_string(),
    }
}

fn whole_us(span: Nanos) -> String {
    (span.0 / 1_000).to_string()
}

fn seconds(at: Nanos) -> String {
    format!("{:.6} s", at.as_secs_f64())
}

/// What is no segment, in place of the bytes.
fn step(segment: &Segment) -> String {
    match (segment.what, segment.probed()) {
        (What::Wrote, _) => format!("write {}", segment.payload.0),
        (What::Read, _) => format!("read {}", segment.payload.0),
        (What::State, Some(socket)) => state(socket.state).to_owned(),
        (What::Congestion, Some(socket)) => congestion(socket.ca_state).to_owned(),
        (What::Dropped, _) => format!("drop {}", segment.payload.0),
        (What::Retransmitted, _) => format!("again {}", segment.payload.0),
        _ => String::new(),
    }
}

fn flags(flags: u8) -> String {
    let all = [
        (tcp_flag::SYN, 'S'),
        (tcp_flag::FIN, 'F'),
        (tcp_flag::RST, 'R'),
        (tcp_flag::PSH, 'P'),
        (tcp_flag::ACK, 'A'),
        (tcp_flag::URG, 'U'),
        (tcp_flag::ECE, 'E'),
        (tcp_flag::CWR, 'C'),
    ];
    let set = all.iter().filter(|(bit, _)| flags & bit != 0);
    set.map(|(_, letter)| letter).collect()
}

fn why(kind: Retransmission) -> &'static str {
    match kind {
        Retransmission::Handshake => "handshake",
        Retransmission::Timeout => "timeout",
        Retransmission::Fast => "fast",
        Retransmission::TailLossProbe => "tail loss",
        Retransmission::Other => "other",
    }
}

fn state(state: u8) -> &'static str {
    match state {
        tcp_state::ESTABLISHED => "established",
        tcp_state::SYN_SENT => "syn-sent",
        tcp_state::SYN_RECV | tcp_state::NEW_SYN_RECV => "syn-recv",
        tcp_state::FIN_WAIT1 => "fin-wait-1",
        tcp_state::FIN_WAIT2 => "fin-wait-2",
        tcp_state::TIME_WAIT => "time-wait",
        tcp_state::CLOSE => "closed",
        tcp_state::CLOSE_WAIT => "close-wait",
        tcp_state::LAST_ACK => "last-ack",
        tcp_state::LISTEN => "listen",
        tcp_state::CLOSING => "closing",
        _ => "?",
    }
}

fn congestion(state: u8) -> &'static str {
    match state {
        ca_state::OPEN => "open",
        ca_state::DISORDER => "disorder",
        ca_state::CWR => "cwr",
        ca_state::RECOVERY => "recovery",
        ca_state::LOSS => "loss",
        _ => "?",
    }
}

fn limit(chronograph: u8) -> &'static str {
    match chronograph {
        chrono::BUSY => "busy",
        chrono::RWND_LIMITED => "rwnd",
        chrono::SNDBUF_LIMITED => "sndbuf",
        _ => "idle",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Comm, SocketValues, socket_state};

    fn sent() -> (Segment, Connection) {
        let segment = Segment {
            at: Nanos(1_000_042_000),
            connection: 3,
            pid: 845,
            comm: Comm::new(b"dd"),
            payload: Bytes(1448),
            segments: 1,
            seq: 1,
            socket: Some(SocketState::from_probe(SocketValues {
                snd_una: 1,
                snd_nxt: 147_001,
                snd_wnd: Bytes(195_200),
                snd_wscale: 7,
                rcv_wnd: Bytes(131_768),
                rcv_wscale: 2,
                cwnd: 53,
                ssthresh: 50,
                srtt: Nanos(350_000),
                rto: Nanos(204_000_000),
                mss: 1448,
                ..SocketValues::default()
            })),
            ..Segment::default()
        };
        let connection = Connection {
            id: 3,
            local: "10.0.0.1:900".parse().unwrap(),
            remote: "10.0.0.2:2049".parse().unwrap(),
            cookie: 0,
            netns: 0,
        };
        (segment, connection)
    }

    #[test]
    fn packets_and_samples_have_the_same_columns() {
        let (segment, connection) = sent();
        let packet = Segment {
            socket: Some(socket_state! {
                snd_una: Some(1),
                snd_nxt: Some(1449),
                rcv_wnd: Some(Bytes(65_536)),
            }),
            ..segment
        };
        let sample = TraceSample {
            socket: socket_state! {
                cwnd: Some(10),
                mss: Some(1448),
                ssthresh: Some(0x7fff_ffff),
            },
            ..TraceSample::default()
        };
        let columns = columns("flight,swnd,rwnd,cwnd,ssthresh,re,cpu").unwrap();
        let cells = |sample| {
            let row = TraceRow {
                segment: &packet,
                connection: Some(&connection),
                sample,
                delta: Nanos(0),
            };
            let line = line(&columns, &row);
            line.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(cells(None), ["1448", "-", "65536", "-", "-", "R", "-"]);
        assert_eq!(
            cells(Some(&sample)),
            ["1448", "-", "65536", "~14480", "-", "R", "-"]
        );
        assert!(state_words(&packet, Some(&sample)).ends_with("; ~ is of 1.00 s before"));
    }

    #[test]
    fn lines_stand_under_their_heading() {
        let (segment, connection) = sent();
        let received = Segment {
            what: What::Received,
            payload: Bytes(0),
            cpu: 1,
            ..segment.clone()
        };
        let usual = columns(USUAL).unwrap();
        let row = |segment| {
            let row = TraceRow {
                segment,
                connection: Some(&connection),
                sample: None,
                delta: Nanos(18_400),
            };
            line(&usual, &row)
        };
        let text = [heading(&usual), row(&segment), row(&received)].join("\n");
        let expected = "
    delta  conn     pid comm                  send recd          flight   unrcv      swnd sws      rwnd rws      cwnd  ssthresh      rtt    rto   mss re cpu
       18     3     845 dd                1448 -->               147000       0    195200   7    131768   2     76744     72400      350    204  1448 R    0
       18     3     845 dd                         <-- 0         147000       0    195200   7    131768   2     76744     72400      350    204  1448      1";
        assert_eq!(text, expected[1..]);
    }

    #[test]
    fn a_drop_says_where_and_why() {
        let (segment, connection) = sent();
        let dropped = |device: &str, arrived| {
            let segment = Segment {
                what: What::Dropped,
                dropped: Some(Box::new(Dropped {
                    reason: "QDISC_OVERLIMIT".to_owned(),
                    device: device.to_owned(),
                    arrived,
                })),
                ..segment.clone()
            };
            let row = TraceRow {
                segment: &segment,
                connection: Some(&connection),
                sample: None,
                delta: Nanos(0),
            };
            line(&columns("send").unwrap(), &row)
        };
        assert_eq!(
            dropped("eth0", false),
            " drop 1448  dropped before it left by eth0: qdisc overlimit"
        );
        assert!(dropped("eth0", true).contains("dropped on arrival at eth0"));
        assert!(dropped("", true).contains("dropped by the socket"));
    }

    #[test]
    fn columns_are_picked_by_name() {
        let names = |list| -> Vec<_> { columns(list).unwrap().iter().map(|c| c.name).collect() };
        assert_eq!(names("rtt, cwnd"), ["rtt", "cwnd"]);
        assert!(names("+flags").starts_with(&["delta", "conn"]));
        assert_eq!(names("+flags").last(), Some(&"flags"));
        assert!(columns("").is_err());
        let error = columns("rtt,nonsense").err().unwrap();
        assert!(
            error.starts_with("no column 'nonsense': choose of time delta "),
            "{error}"
        );
    }

    #[test]
    fn nothing_known_is_no_panic() {
        let bare = Segment::default();
        let (_, connection) = sent();
        let all: Vec<_> = COLUMNS.iter().collect();
        let row = TraceRow {
            segment: &bare,
            connection: Some(&connection),
            sample: None,
            delta: Nanos(0),
        };
        assert!(line(&all, &row).contains(" - "));
        assert_eq!(state_words(&bare, None), "");
    }

    #[test]
    fn completeness_says_what_is_missing_and_where() {
        let (_, connection) = sent();
        let whole = Completeness {
            sent: 4_745,
            received: 3_065,
            retransmitted: 11,
            retransmitted_counted: 11,
            ..Completeness::default()
        };
        assert_eq!(
            completeness(&connection, &whole),
            "connection 3: 10.0.0.1:900 -> 10.0.0.2:2049: 4,745 segments sent, 3,065 received, 11 retransmitted: complete"
        );
        let holes = Completeness {
            sent_missing: 45,
            gaps: vec![Gap {
                from: Nanos::from_millis(1),
                to: Nanos::from_millis(2),
                segments: 45,
                sent: true,
            }],
            ..whole
        };
        assert!(
            completeness(&connection, &holes)
                .ends_with(": 45 segments missing (45 sent between 0.001000 s and 0.002000 s)")
        );
        let behind_queue = Completeness {
            behind_queue: true,
            ..holes
        };
        assert!(completeness(&connection, &behind_queue).contains("this host's own queue"));
        let sampled = Completeness {
            sent: 0,
            received: 0,
            ..behind_queue
        };
        assert!(completeness(&connection, &sampled).ends_with(
            "only its socket was sampled; the kernel counted 45 segments sent, 0 received"
        ));
        let one = Completeness {
            sent: 1,
            ..Completeness::default()
        };
        assert!(completeness(&connection, &one).contains(": 1 segment sent, 0 received"));
    }
}

//! The options of a data socket: as ordered, as in force, and one table of those that are numbers.
//!
//! A new option is a field of [`SocketSettings`] and of [`SocketOptions`] and a row of [`SOCKET_OPTIONS`]: setting it,
//! reading it back, the doubts about it, the summary and experiments go through the table. To be varied in experiments
//! it needs a row of [`SocketKnob`] too.

use crate::{BitRate, Bytes, IpVersion, SocketKnob};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// Options of a data socket; `None` leaves the kernel's own choice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SocketSettings {
    /// Requested `SO_SNDBUF`; the kernel doubles it for its own bookkeeping (socket(7)).
    pub send_buffer: Option<Bytes>,
    /// Requested `SO_RCVBUF`; doubled likewise. An explicit value switches autotuning off.
    pub receive_buffer: Option<Bytes>,
    /// `TCP_MAXSEG`, in bytes.
    pub mss: Option<u32>,
    /// `TCP_CONGESTION`.
    pub congestion: Option<String>,
    /// `TCP_NODELAY`; always set for the request workload unless false.
    pub nodelay: Option<bool>,
    /// `SO_MAX_PACING_RATE` of each stream.
    #[serde(rename = "pacing_bit_s")]
    pub pacing: Option<BitRate>,
    /// Differentiated services code point, 0 to 63 (RFC 2474).
    pub dscp: Option<u8>,
    /// `TCP_NOTSENT_LOWAT`: unsent data beyond which the kernel takes no more from the sender.
    pub notsent_lowat: Option<Bytes>,
    /// IP version to insist on.
    pub ip_version: Option<IpVersion>,
}

/// Options of a live data socket, read back from the kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SocketOptions {
    /// Number of the stream, from 0.
    pub stream: u32,
    /// This end, address and port.
    pub local: SocketAddr,
    /// The peer, address and port.
    pub remote: SocketAddr,
    /// `SO_SNDBUF` as the kernel holds it, in bytes (twice what was granted).
    pub send_buffer: Bytes,
    /// `SO_RCVBUF` as the kernel holds it, in bytes (twice what was granted).
    pub receive_buffer: Bytes,
    /// `TCP_MAXSEG`, in bytes; 0 for UDP.
    pub mss: u32,
    /// `TCP_CONGESTION`; empty for UDP.
    pub congestion: String,
    /// `TCP_NODELAY`.
    pub nodelay: bool,
    /// `SO_MAX_PACING_RATE`; `None` if unlimited.
    #[serde(rename = "pacing_bit_s")]
    pub pacing: Option<BitRate>,
    /// Differentiated services code point.
    pub dscp: u8,
    /// `TCP_NOTSENT_LOWAT`; `None` if not set (then `net.ipv4.tcp_notsent_lowat` holds) or not reported.
    pub notsent_lowat: Option<Bytes>,
    /// Window scale that the peer's handshake announced; `None` if not negotiated or not reported.
    pub snd_wscale: Option<u8>,
    /// Window scale that this host announced: bounds its window at 65535 << this for the whole life of
    /// the connection (RFC 7323); `None` if not negotiated or not reported.
    pub rcv_wscale: Option<u8>,
}

impl SocketOptions {
    /// A socket between these addresses of which nothing else is known.
    pub fn new(stream: u32, local: SocketAddr, remote: SocketAddr) -> SocketOptions {
        SocketOptions {
            stream,
            local,
            remote,
            send_buffer: Bytes(0),
            receive_buffer: Bytes(0),
            mss: 0,
            congestion: String::new(),
            nodelay: false,
            pacing: None,
            dscp: 0,
            notsent_lowat: None,
            snd_wscale: None,
            rcv_wscale: None,
        }
    }
}

/// The unit of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionUnit {
    /// Bytes.
    Bytes,
    /// Bit a second.
    BitRate,
    /// A number.
    Count,
    /// 0 or 1.
    Switch,
}

impl OptionUnit {
    /// A value for people.
    pub fn format(self, value: u64) -> String {
        match self {
            OptionUnit::Bytes => Bytes(value).to_string(),
            OptionUnit::BitRate => BitRate(value).to_string(),
            OptionUnit::Count => value.to_string(),
            OptionUnit::Switch => if value == 0 { "off" } else { "on" }.to_owned(),
        }
    }
}

/// How an option gets to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionCall {
    /// A number of 32 bits at the level of TCP, by its name in `include/uapi/linux/tcp.h`; 0 where it reads back as
    /// not set.
    Tcp(i32),
    /// `SO_SNDBUF`, which the kernel doubles for its own bookkeeping (socket(7)).
    SendBuffer,
    /// `SO_RCVBUF`, doubled likewise.
    ReceiveBuffer,
    /// `SO_MAX_PACING_RATE`, in bytes a second.
    PacingRate,
    /// `IP_TOS` and `IPV6_TCLASS`: in the upper six bits.
    TrafficClass,
}

/// One option whose value is a number.
#[derive(Debug)]
pub struct SocketOption {
    /// Name in the summary and of the command's option.
    pub name: &'static str,
    /// The command's short option.
    pub short: Option<char>,
    /// One line for `--help`.
    pub help: &'static str,
    /// The kernel's name.
    pub kernel: &'static str,
    /// Name in errors.
    pub label: &'static str,
    /// What varies it in experiments.
    pub knob: Option<SocketKnob>,
    /// Unit of the values.
    pub unit: OptionUnit,
    /// How it is set and read.
    pub call: OptionCall,
    /// Smallest and largest value, and the remedy beyond them.
    pub range: (u64, u64, &'static str),
    /// What to do if the kernel refuses it.
    pub if_refused: &'static str,
    /// What a value that is not set is called.
    pub unset: &'static str,
    /// It acts at the end that receives.
    pub at_receiver: bool,
    /// The ordered value.
    pub asked: fn(&SocketSettings) -> Option<u64>,
    /// Orders a value.
    pub order: fn(&mut SocketSettings, u64),
    /// The value in force, as the kernel reports it.
    pub held: fn(&SocketOptions) -> Option<u64>,
    /// Keeps what the kernel reports.
    pub keep: fn(&mut SocketOptions, u64),
    /// Whether an ordered value is in force.
    pub same: fn(u64, u64) -> bool,
    /// What another value means for the figures, and what to do about it.
    pub otherwise: [&'static str; 2],
}

impl SocketOption {
    /// The value in force in the terms of an order: half of a buffer that the kernel doubled.
    pub fn in_force(&self, socket: &SocketOptions) -> Option<u64> {
        let held = (self.held)(socket)?;
        Some(match self.call {
            OptionCall::SendBuffer | OptionCall::ReceiveBuffer => held / 2,
            OptionCall::Tcp(_) | OptionCall::PacingRate | OptionCall::TrafficClass => held,
        })
    }

    /// A value as a person writes it.
    ///
    /// # Errors
    /// Why it is none, or which values are possible.
    pub fn parse(&self, text: &str) -> Result<u64, String> {
        let value = match (self.call, self.unit) {
            (OptionCall::TrafficClass, _) => code_point(text)?,
            (_, OptionUnit::Bytes) => text.parse::<Bytes>().map_err(|e| e.to_string())?.0,
            (_, OptionUnit::BitRate) => text.parse::<BitRate>().map_err(|e| e.to_string())?.0,
            (_, OptionUnit::Count | OptionUnit::Switch) => {
                text.parse::<u64>().map_err(|e| e.to_string())?
            }
        };
        let (least, most, range) = self.range;
        match (least..=most).contains(&value) {
            true => Ok(value),
            false => Err(range.to_owned()),
        }
    }

    /// The option that a knob sets.
    pub fn of(knob: SocketKnob) -> Option<&'static SocketOption> {
        SOCKET_OPTIONS
            .iter()
            .find(|option| option.knob == Some(knob))
    }
}

/// A code point as a number or by its name (RFC 2474 class selectors, RFC 2597 assured, RFC 3246
/// expedited forwarding, RFC 8622 lower effort).
fn code_point(text: &str) -> Result<u64, String> {
    let upper = text.to_ascii_uppercase();
    let digit = |at: usize| upper.as_bytes().get(at).map(|d| d.wrapping_sub(b'0'));
    let named = match (upper.as_str(), upper.len()) {
        ("BE" | "DF", _) => Some(0),
        ("EF", _) => Some(46),
        ("LE", _) => Some(1),
        (name, 3) if name.starts_with("CS") => digit(2).filter(|c| *c <= 7).map(|c| c * 8),
        (name, 4) if name.starts_with("AF") => match (digit(2), digit(3)) {
            (Some(class @ 1..=4), Some(drop @ 1..=3)) => Some(class * 8 + drop * 2),
            _ => None,
        },
        _ => text.parse().ok().filter(|n| *n <= 63),
    };
    named
        .map(u64::from)
        .ok_or_else(|| "a code point is 0 to 63 or a name: CS0-CS7, AF11-AF43, EF, LE".to_owned())
}

/// The kernel raises a buffer to what one packet needs (`SOCK_MIN_SNDBUF`, `SOCK_MIN_RCVBUF`: under 5 KB on all
/// machines).
fn same_buffer(asked: u64, found: u64) -> bool {
    found == asked || (found > asked && found <= 5 << 10)
}

fn same(asked: u64, found: u64) -> bool {
    asked == found
}

const WITHOUT: &str = "run again without the option to see what the default gives";

/// All options that are numbers, in the order of the summary.
pub static SOCKET_OPTIONS: [SocketOption; 7] = [
    SocketOption {
        name: "send-buffer",
        short: None,
        help: "Send buffer alone",
        kernel: "SO_SNDBUF",
        label: "send buffer",
        knob: Some(SocketKnob::SendBuffer),
        unit: OptionUnit::Bytes,
        call: OptionCall::SendBuffer,
        range: (1, i32::MAX as u64 / 2, "choose 1 byte to less than 1 GiB"),
        if_refused: "choose another size",
        unset: "default",
        at_receiver: false,
        asked: |s| s.send_buffer.map(|b| b.0),
        order: |s, value| s.send_buffer = Some(Bytes(value)),
        held: |s| Some(s.send_buffer.0),
        keep: |s, value| s.send_buffer = Bytes(value),
        same: same_buffer,
        otherwise: ["data in flight", "net.core.wmem_max"],
    },
    SocketOption {
        name: "receive-buffer",
        short: None,
        help: "Receive buffer alone",
        kernel: "SO_RCVBUF",
        label: "receive buffer",
        knob: Some(SocketKnob::ReceiveBuffer),
        unit: OptionUnit::Bytes,
        call: OptionCall::ReceiveBuffer,
        range: (1, i32::MAX as u64 / 2, "choose 1 byte to less than 1 GiB"),
        if_refused: "choose another size",
        unset: "default",
        at_receiver: true,
        asked: |s| s.receive_buffer.map(|b| b.0),
        order: |s, value| s.receive_buffer = Some(Bytes(value)),
        held: |s| Some(s.receive_buffer.0),
        keep: |s, value| s.receive_buffer = Bytes(value),
        same: same_buffer,
        otherwise: ["the receive window", "net.core.rmem_max"],
    },
    SocketOption {
        name: "mss",
        short: Some('M'),
        help: "Largest segment, in bytes",
        kernel: "TCP_MAXSEG",
        label: "MSS",
        knob: Some(SocketKnob::Mss),
        unit: OptionUnit::Count,
        call: OptionCall::Tcp(2),
        // TCP_MIN_MSS and MAX_TCP_WINDOW of include/net/tcp.h.
        range: (88, 32_767, "Linux takes 88 to 32767 bytes"),
        if_refused: "choose another MSS",
        unset: "default",
        at_receiver: false,
        asked: |s| s.mss.map(u64::from),
        order: |s, value| s.mss = u32::try_from(value).ok(),
        held: |s| Some(s.mss.into()),
        keep: |s, value| s.mss = value as u32,
        // Options of every segment (at most 40 bytes) are taken off what was asked.
        same: |asked, found| found <= asked && found + 40 >= asked,
        otherwise: ["segments carry another amount of data than asked", WITHOUT],
    },
    SocketOption {
        name: "nodelay",
        short: Some('N'),
        help: "Send small segments at once (TCP_NODELAY); always on for requests",
        kernel: "TCP_NODELAY",
        label: "nodelay",
        knob: Some(SocketKnob::Nodelay),
        unit: OptionUnit::Switch,
        call: OptionCall::Tcp(1),
        range: (0, 1, "choose on or off"),
        if_refused: "leave the option away",
        unset: "default",
        at_receiver: false,
        asked: |s| s.nodelay.map(u64::from),
        order: |s, value| s.nodelay = Some(value == 1),
        held: |s| Some(s.nodelay.into()),
        keep: |s, value| s.nodelay = value != 0,
        same,
        otherwise: [
            "small writes are delayed or sent otherwise than asked, which shows in request latencies",
            WITHOUT,
        ],
    },
    SocketOption {
        name: "pacing",
        short: None,
        help: "Highest rate of each stream, paced by the kernel",
        kernel: "SO_MAX_PACING_RATE",
        label: "pacing",
        knob: Some(SocketKnob::Pacing),
        unit: OptionUnit::BitRate,
        call: OptionCall::PacingRate,
        range: (8, u64::MAX, "choose at least 8 bit/s"),
        if_refused: "64-bit pacing rates need Linux 4.20",
        unset: "unlimited",
        at_receiver: false,
        asked: |s| s.pacing.map(|p| p.0),
        order: |s, value| s.pacing = Some(BitRate(value)),
        held: |s| s.pacing.map(|p| p.0),
        keep: |s, value| s.pacing = Some(BitRate(value)),
        // The kernel paces in whole bytes a second.
        same: |asked, found| asked.abs_diff(found) < 8,
        otherwise: [
            "the sender is not paced as asked",
            "kernels before 4.20 pace at most 34 Gbit/s: set a lower rate",
        ],
    },
    SocketOption {
        name: "notsent-lowat",
        short: None,
        help: "Unsent data beyond which the sender's kernel takes no more (TCP_NOTSENT_LOWAT)",
        kernel: "TCP_NOTSENT_LOWAT",
        label: "unsent data",
        knob: Some(SocketKnob::NotsentLowat),
        unit: OptionUnit::Bytes,
        call: OptionCall::Tcp(25),
        // Zero would leave it to the sysctl.
        range: (1, u32::MAX as u64, "choose 1 byte to less than 4 GiB"),
        if_refused: "leave the option away",
        unset: "default",
        at_receiver: false,
        asked: |s| s.notsent_lowat.map(|b| b.0),
        order: |s, value| s.notsent_lowat = Some(Bytes(value)),
        held: |s| s.notsent_lowat.map(|b| b.0),
        keep: |s, value| s.notsent_lowat = (value > 0).then_some(Bytes(value)),
        same,
        otherwise: [
            "the sender keeps another amount of unsent data than asked",
            WITHOUT,
        ],
    },
    SocketOption {
        name: "dscp",
        short: None,
        help: "Differentiated services code point: 0 to 63, or a name like EF, AF21, CS1",
        kernel: "DSCP",
        label: "DSCP",
        knob: None,
        unit: OptionUnit::Count,
        call: OptionCall::TrafficClass,
        range: (0, 63, "choose 0 to 63 (RFC 2474)"),
        if_refused: "choose a value that this user may set",
        unset: "default",
        at_receiver: false,
        asked: |s| s.dscp.map(u64::from),
        order: |s, value| s.dscp = u8::try_from(value).ok(),
        held: |s| Some(s.dscp.into()),
        keep: |s, value| s.dscp = value as u8,
        same,
        otherwise: [
            "the network queues these packets as another class than asked",
            "look for a cgroup or security policy that sets IP_TOS or IPV6_TCLASS",
        ],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_of_older_runs_are_read() {
        let old = r#"{"stream":0,"local":"192.0.2.1:1","remote":"192.0.2.2:2","send_buffer":1,
            "receive_buffer":2,"mss":1448,"congestion":"cubic","nodelay":false,"pacing_bit_s":null,
            "dscp":0}"#;
        let state: SocketOptions = serde_json::from_str(old).unwrap();
        assert_eq!(state.mss, 1448);
        assert_eq!((state.notsent_lowat, state.rcv_wscale), (None, None));
    }

    #[test]
    fn code_points_by_number_and_name() {
        for (text, code) in [
            ("0", 0),
            ("46", 46),
            ("ef", 46),
            ("AF21", 18),
            ("cs1", 8),
            ("LE", 1),
        ] {
            assert_eq!(code_point(text), Ok(code), "{text}");
        }
        for bad in ["64", "-1", "AF51", "AF14", "CS8", "X", ""] {
            assert!(code_point(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn values_have_a_unit_and_a_range() {
        let parse = |name: &str, text: &str| {
            let option = SOCKET_OPTIONS.iter().find(|option| option.name == name);
            option.unwrap().parse(text)
        };
        assert_eq!(parse("send-buffer", "8M"), Ok(8 << 20));
        assert_eq!(parse("pacing", "1G"), Ok(1_000_000_000));
        assert_eq!(parse("mss", "1400"), Ok(1400));
        assert!(parse("mss", "87").unwrap_err().contains("88"));
        assert!(parse("receive-buffer", "8X").is_err());
    }
}

//! Which packets the kernel keeps for a trace, in the language of socket filters (bpf(4)). What they keep is
//! judged again where it is decoded.

use super::Filter;
use std::net::IpAddr;

/// Bytes that are kept of a packet, from its link layer on: all headers of IP and TCP.
const KEPT: u32 = 256;

/// From the header of IP on (`SKF_NET_OFF`), and the protocol of the link (`SKF_AD_OFF + SKF_AD_PROTOCOL`).
const NET: u32 = 0xfff0_0000;
const LINK_PROTOCOL: u32 = 0xffff_f000;

const LOAD_WORD: u16 = 0x20;
const LOAD_HALF: u16 = 0x28;
const LOAD_BYTE: u16 = 0x30;
/// Half a word behind the header whose length is in the index.
const LOAD_HALF_AT: u16 = 0x48;
/// The index: four times the low half of a byte, the length of an IPv4 header.
const LOAD_HEADER: u16 = 0xb1;
const IF_EQUAL: u16 = 0x15;
const IF_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;

/// Where a condition leads to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum To {
    Next,
    Keep,
    Drop,
    /// So many instructions on.
    Skip(u8),
}

#[derive(Clone, Copy)]
struct FilterLine(u16, u32, To, To);

fn load(code: u16, at: u32) -> FilterLine {
    FilterLine(code, at, To::Next, To::Next)
}

/// Packets of TCP that a filter may want.
pub(super) fn program(filter: &Filter) -> Vec<libc::sock_filter> {
    let v4 = family(filter, true);
    let v6 = family(filter, false);
    let mut lines = vec![
        load(LOAD_WORD, LINK_PROTOCOL),
        FilterLine(IF_EQUAL, 0x0800, To::Next, To::Skip(v4.len() as u8)),
    ];
    lines.extend(v4);
    // The accumulator holds the protocol still: this is reached by the jump alone.
    lines.push(FilterLine(IF_EQUAL, 0x86dd, To::Next, To::Drop));
    lines.extend(v6);
    lines.push(FilterLine(RETURN, KEPT, To::Next, To::Next));
    lines.push(FilterLine(RETURN, 0, To::Next, To::Next));
    let keep = lines.len() - 2;
    let place = |n: usize, to: To| match to {
        To::Next => 0,
        To::Skip(count) => count,
        To::Keep => (keep - n - 1) as u8,
        To::Drop => (keep - n) as u8,
    };
    let line = |(n, line): (usize, &FilterLine)| libc::sock_filter {
        code: line.0,
        jt: place(n, line.2),
        jf: place(n, line.3),
        k: line.1,
    };
    lines.iter().enumerate().map(line).collect()
}

/// What an IP packet of one version must be; ends by keeping or dropping it.
fn family(filter: &Filter, v4: bool) -> Vec<FilterLine> {
    let mut lines = Vec::new();
    if v4 {
        lines.push(load(LOAD_BYTE, NET + 9));
        lines.push(FilterLine(IF_EQUAL, 6, To::Next, To::Drop));
        // No later fragment.
        lines.push(load(LOAD_HALF, NET + 6));
        lines.push(FilterLine(IF_ANY_BIT, 0x1fff, To::Drop, To::Next));
    } else {
        lines.push(load(LOAD_BYTE, NET + 6));
        // Behind an extension there may be TCP.
        for extension in [0, 43, 44, 51, 60] {
            lines.push(FilterLine(IF_EQUAL, extension, To::Keep, To::Next));
        }
        lines.push(FilterLine(IF_EQUAL, 6, To::Next, To::Drop));
    }
    match (filter.host.map(|host| host.to_canonical()), v4) {
        (None, _) => {}
        (Some(IpAddr::V4(host)), true) => {
            lines.push(load(LOAD_WORD, NET + 12));
            lines.push(FilterLine(IF_EQUAL, host.to_bits(), To::Skip(2), To::Next));
            lines.push(load(LOAD_WORD, NET + 16));
            lines.push(FilterLine(IF_EQUAL, host.to_bits(), To::Next, To::Drop));
        }
        (Some(IpAddr::V6(host)), false) => {
            let bits = host.to_bits();
            let word = |n: u32| (bits >> (96 - 32 * n)) as u32;
            for n in 0..4 {
                lines.push(load(LOAD_WORD, NET + 8 + 4 * n));
                let (found, other) = (To::Skip(8), To::Skip(2 * (3 - n as u8)));
                let found = if n == 3 { found } else { To::Next };
                lines.push(FilterLine(IF_EQUAL, word(n), found, other));
            }
            for n in 0..4 {
                lines.push(load(LOAD_WORD, NET + 24 + 4 * n));
                lines.push(FilterLine(IF_EQUAL, word(n), To::Next, To::Drop));
            }
        }
        // The other version.
        (Some(_), _) => lines.push(FilterLine(RETURN, 0, To::Next, To::Next)),
    }
    if let Some(port) = filter.port {
        let header = match v4 {
            true => {
                lines.push(load(LOAD_HEADER, NET));
                (LOAD_HALF_AT, NET)
            }
            false => (LOAD_HALF, NET + 40),
        };
        lines.push(load(header.0, header.1));
        lines.push(FilterLine(IF_EQUAL, port.into(), To::Keep, To::Next));
        lines.push(load(header.0, header.1 + 2));
        lines.push(FilterLine(IF_EQUAL, port.into(), To::Keep, To::Drop));
    } else {
        lines.push(FilterLine(RETURN, KEPT, To::Next, To::Next));
    }
    lines
}

//! iperf3 spoken to the rest of the world: as a client of stock servers, and as a server for stock
//! clients. The protocol lives in `wire::iperf3`; here are its sockets, clocks and loads.

mod auth;
pub mod client;
mod control;
pub mod server;
mod udp;

use model::{Datagrams, Nanos};
use wire::iperf3::Cookie;

/// A cookie that nobody can guess: 36 characters of base 32 and a NUL.
fn new_cookie() -> anyhow::Result<Cookie> {
    const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let mut cookie = crate::chance::bytes::<{ wire::iperf3::COOKIE_LEN }>()?;
    for byte in &mut cookie {
        *byte = LETTERS[usize::from(*byte % 32)];
    }
    cookie[wire::iperf3::COOKIE_LEN - 1] = 0;
    Ok(cookie)
}

/// The counts of all streams together; the jitter is their mean, as in iperf3.
fn together(streams: &[Datagrams]) -> Datagrams {
    let count = (streams.len() as u64).max(1);
    Datagrams {
        packets: streams.iter().map(|d| d.packets).sum(),
        lost: streams.iter().map(|d| d.lost).sum(),
        out_of_order: streams.iter().map(|d| d.out_of_order).sum(),
        jitter: Nanos(streams.iter().map(|d| d.jitter.0).sum::<u64>() / count),
    }
}

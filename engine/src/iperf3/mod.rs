//! iperf3 spoken to the rest of the world: as a client of stock servers, and as a server for stock
//! clients. The protocol lives in `wire::iperf3`; here are its sockets, clocks and loads.

mod auth;
pub mod client;
pub mod server;
mod udp;

use crate::prelude::*;
use crate::transport::driver::Driver;
use model::Datagrams;
use wire::Machine;
use wire::iperf3::{Cookie, StreamResult, stream_id};

/// A peer whose host answers nothing for this long is gone.
const LOST_AFTER: Duration = Duration::from_secs(15);

/// A control connection: a connected socket and its machine, which was made with [`Nanos`] of zero.
fn control<M: Machine>(stream: TcpStream, machine: M) -> std::io::Result<Driver<M>> {
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    sys::socket::set_lost_after(stream.as_fd(), LOST_AFTER)?;
    Ok(Driver::new(machine, Box::new(stream)))
}

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

/// What this end reports of the stream at this position; `retransmits` where it sent over TCP.
fn stream_result(
    position: usize,
    bytes: Bytes,
    retransmits: Option<u32>,
    [datagrams, omitted]: [Datagrams; 2],
    span: Nanos,
) -> StreamResult {
    let whole = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    StreamResult {
        id: stream_id(position),
        bytes: bytes.0,
        retransmits: retransmits.map_or(-1, i64::from),
        jitter_s: datagrams.jitter.as_secs_f64(),
        errors: whole(datagrams.lost),
        omitted_errors: Some(whole(omitted.lost)),
        packets: whole(datagrams.packets),
        omitted_packets: Some(whole(omitted.packets)),
        start_s: 0.0,
        end_s: span.as_secs_f64(),
    }
}

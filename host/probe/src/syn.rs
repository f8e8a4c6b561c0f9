//! SYNs that run out of hops: who gets one quotes it as it arrived there (Linux reports it to unprivileged users
//! since 5.11).

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};
use sys::poll::{PollFd, poll};
use sys::probe::Said;
use sys::socket;

/// Sends a SYN to each of the first hops; returns for each what it quotes, from the TCP header on, empty
/// if it does not answer. `meanwhile` is called every few milliseconds.
pub fn quoted_syns(
    to: SocketAddr,
    hops: u8,
    wait: Duration,
    meanwhile: &mut dyn FnMut(),
) -> io::Result<Vec<Vec<u8>>> {
    let ipv6 = to.is_ipv6();
    let sockets = (1..=hops)
        .map(|ttl| {
            let socket = socket::tcp(&to)?;
            sys::probe::receive_errors_of(socket.as_fd(), ipv6)?;
            sys::probe::set_hop_limit(socket.as_fd(), ipv6, ttl)?;
            // One that is closed on its way has said why.
            let _ = sys::probe::begin_connect(socket.as_fd(), &to);
            Ok(socket)
        })
        .collect::<io::Result<Vec<OwnedFd>>>()?;
    let mut quoted = vec![Vec::new(); sockets.len()];
    let until = Instant::now() + wait;
    loop {
        let silent = || quoted.iter().zip(&sockets).filter(|(q, _)| q.is_empty());
        let mut fds: Vec<_> = silent()
            .map(|(_, socket)| PollFd::new(socket.as_fd(), true, false))
            .collect();
        let left = until.saturating_duration_since(Instant::now());
        if fds.is_empty() || left.is_zero() {
            return Ok(quoted);
        }
        poll(&mut fds, Some(left.min(Duration::from_millis(2))))?;
        meanwhile();
        for (socket, quoted) in sockets.iter().zip(&mut quoted) {
            while let Some(message) = sys::probe::take_message(socket.as_fd())? {
                if message.what == Said::HopLimit {
                    *quoted = message.quoted;
                }
            }
        }
    }
}

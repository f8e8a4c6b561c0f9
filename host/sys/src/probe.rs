//! What path probing needs of a socket: how the kernel treats its packets, and what routers say of them.

pub use crate::socket::{begin_connect, take_error};
use crate::socket::{error_queue, read_option, set, tcp_option};
use rustix::net::sockopt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;

/// Lets a UDP socket's packets be as large as the device takes them, whatever the kernel has learned of the
/// path, and sets DF (`IP_MTU_DISCOVER`, ip(7)).
pub fn ignore_path_mtu(fd: BorrowedFd<'_>, ipv6: bool) -> io::Result<()> {
    let option = match ipv6 {
        false => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER),
        true => (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER),
    };
    // IPV6_PMTUDISC_PROBE is the same number.
    set(fd, option, libc::IP_PMTUDISC_PROBE)
}

/// Keeps what routers say of the socket's packets for [`take_message`] (`IP_RECVERR`).
pub fn receive_errors_of(fd: BorrowedFd<'_>, ipv6: bool) -> io::Result<()> {
    set(fd, receive_errors(ipv6), 1)
}

/// Keeps none any longer.
pub fn forget_messages(fd: BorrowedFd<'_>, ipv6: bool) -> io::Result<()> {
    set(fd, receive_errors(ipv6), 0)
}

fn receive_errors(ipv6: bool) -> (i32, i32) {
    match ipv6 {
        false => (libc::IPPROTO_IP, libc::IP_RECVERR),
        true => (libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
    }
}

/// How many hops the socket's packets live.
pub fn set_hop_limit(fd: BorrowedFd<'_>, ipv6: bool, hops: u8) -> io::Result<()> {
    match ipv6 {
        false => sockopt::set_ip_ttl(fd, hops.into())?,
        true => sockopt::set_ipv6_unicast_hops(fd, Some(hops))?,
    }
    Ok(())
}

/// Has a listener keep the SYNs of its connections for [`saved_syn`] (`TCP_SAVE_SYN`, Linux 4.3).
pub fn save_syn(listener: BorrowedFd<'_>) -> io::Result<()> {
    set(listener, tcp_option(libc::TCP_SAVE_SYN), 1)
}

/// The SYN of an accepted connection as it arrived, from its IP header on; once only, empty afterwards.
pub fn saved_syn(fd: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
    // The longest headers of IPv4 and TCP are 60 bytes each; IPv6 may have extension headers.
    let mut syn = vec![0; 512];
    let length = read_option(fd, tcp_option(libc::TCP_SAVED_SYN), &mut syn)?;
    syn.truncate(length);
    Ok(syn)
}

/// What somebody on the way said of a packet of this socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeMessage {
    /// Who.
    pub from: Option<IpAddr>,
    /// What.
    pub what: Said,
    /// Where the packet was going.
    pub to: Option<SocketAddr>,
    /// The quoted part of the packet: behind the UDP header, or from the TCP header on.
    pub quoted: Vec<u8>,
}

/// What was said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// It ran out of hops.
    HopLimit,
    /// It is too big: the next link takes so many bytes.
    TooBig(u32),
    /// It cannot be delivered.
    Unreachable,
    /// Something else, or this host's own kernel said it.
    Other,
}

/// Takes one message off the error queue; `None` if there is none. Never sleeps.
pub fn take_message(fd: BorrowedFd<'_>) -> io::Result<Option<ProbeMessage>> {
    let mut quoted = vec![0u8; 576];
    let Some(entry) = error_queue(fd, &mut quoted)? else {
        return Ok(None);
    };
    quoted.truncate(entry.quoted);
    let from = entry.error.as_ref().and_then(|(_, from)| *from);
    Ok(Some(ProbeMessage {
        from: from.map(|address| address.ip()),
        what: entry.error.map_or(Said::Other, |(error, _)| said(&error)),
        to: entry.to,
        quoted,
    }))
}

/// ICMP's types and codes (RFC 792, RFC 4443).
fn said(error: &libc::sock_extended_err) -> Said {
    match (error.ee_origin, error.ee_type, error.ee_code) {
        (libc::SO_EE_ORIGIN_ICMP, 3, 4) | (libc::SO_EE_ORIGIN_ICMP6, 2, _) => {
            Said::TooBig(error.ee_info)
        }
        (libc::SO_EE_ORIGIN_ICMP, 11, 0) | (libc::SO_EE_ORIGIN_ICMP6, 3, 0) => Said::HopLimit,
        (libc::SO_EE_ORIGIN_ICMP, 3, _) | (libc::SO_EE_ORIGIN_ICMP6, 1, _) => Said::Unreachable,
        _ => Said::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::fd::AsFd;

    #[test]
    fn the_kernel_says_who_did_not_take_a_datagram() {
        for any in ["127.0.0.1:0", "[::1]:0"] {
            let gone = UdpSocket::bind(any).unwrap().local_addr().unwrap();
            let socket = UdpSocket::bind(any).unwrap();
            let ipv6 = gone.is_ipv6();
            receive_errors_of(socket.as_fd(), ipv6).unwrap();
            ignore_path_mtu(socket.as_fd(), ipv6).unwrap();
            set_hop_limit(socket.as_fd(), ipv6, 3).unwrap();
            assert_eq!(take_message(socket.as_fd()).unwrap(), None);
            socket.send_to(b"hello", gone).unwrap();
            let message = take_message(socket.as_fd()).unwrap().unwrap();
            assert_eq!(message.what, Said::Unreachable, "{any}");
            assert_eq!(message.from, Some(gone.ip()));
            assert_eq!(message.to, Some(gone));
            assert_eq!(message.quoted, b"hello");
        }
    }

    #[test]
    fn a_listener_shows_the_syn_as_it_came() {
        for any in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(any).unwrap();
            save_syn(listener.as_fd()).unwrap();
            let _local = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (remote, from) = listener.accept().unwrap();
            let syn = saved_syn(remote.as_fd()).unwrap();
            let header = if from.is_ipv6() { 40 } else { 20 };
            assert_eq!(syn[0] >> 4, if from.is_ipv6() { 6 } else { 4 });
            assert_eq!(syn[header..header + 2], from.port().to_be_bytes());
            assert!(saved_syn(remote.as_fd()).unwrap().is_empty());
        }
    }
}

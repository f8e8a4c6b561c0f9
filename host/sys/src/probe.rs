//! What path probing needs of a socket: how the kernel treats its packets, and what routers say of them.

use crate::read_option::{read_int_option, read_option};
use crate::socket::{check, check_len, set, set_nonblocking, to_kernel};
use std::io;
use std::mem::zeroed;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

/// Lets a UDP socket's packets be as large as the device takes them, whatever the kernel has learned of the
/// path, and sets DF (`IP_MTU_DISCOVER`, ip(7)).
///
/// # Errors
/// What setsockopt(2) returns.
pub fn ignore_path_mtu(fd: BorrowedFd<'_>, ipv6: bool) -> io::Result<()> {
    match ipv6 {
        false => set(
            fd,
            libc::IPPROTO_IP,
            libc::IP_MTU_DISCOVER,
            libc::IP_PMTUDISC_PROBE,
        ),
        true => set(
            fd,
            libc::IPPROTO_IPV6,
            libc::IPV6_MTU_DISCOVER,
            libc::IPV6_PMTUDISC_PROBE,
        ),
    }
}

/// Keeps what routers say of the socket's packets for [`take_message`] (`IP_RECVERR`).
///
/// # Errors
/// What setsockopt(2) returns.
pub fn keep_messages(fd: BorrowedFd<'_>, ipv6: bool) -> io::Result<()> {
    match ipv6 {
        false => set(fd, libc::IPPROTO_IP, libc::IP_RECVERR, 1i32),
        true => set(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1i32),
    }
}

/// How many hops the socket's packets live.
///
/// # Errors
/// What setsockopt(2) returns.
pub fn set_hop_limit(fd: BorrowedFd<'_>, ipv6: bool, hops: u8) -> io::Result<()> {
    let hops = i32::from(hops);
    match ipv6 {
        false => set(fd, libc::IPPROTO_IP, libc::IP_TTL, hops),
        true => set(fd, libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS, hops),
    }
}

/// Begins a handshake and does not wait for its end; the socket no longer blocks.
///
/// # Errors
/// What connect(2) returns, other than that it goes on.
pub fn begin_connect(fd: BorrowedFd<'_>, address: &SocketAddr) -> io::Result<()> {
    let (storage, len) = to_kernel(address);
    set_nonblocking(fd, true)?;
    // SAFETY: `storage` holds `len` initialised bytes for the length of the call.
    let begun =
        check(unsafe { libc::connect(fd.as_raw_fd(), ptr::from_ref(&storage).cast(), len) });
    match begun {
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => Ok(()),
        other => other.map(drop),
    }
}

/// The error of a socket that stopped working, taken off it (`SO_ERROR`).
///
/// # Errors
/// What getsockopt(2) returns.
pub fn take_error(fd: BorrowedFd<'_>) -> io::Result<Option<io::Error>> {
    let code = read_int_option(fd, libc::SOL_SOCKET, libc::SO_ERROR)?;
    Ok((code != 0).then(|| io::Error::from_raw_os_error(code)))
}

/// Has a listener keep the SYNs of its connections for [`saved_syn`] (`TCP_SAVE_SYN`, Linux 4.3).
///
/// # Errors
/// What setsockopt(2) returns.
pub fn save_syn(listener: BorrowedFd<'_>) -> io::Result<()> {
    set(listener, libc::IPPROTO_TCP, libc::TCP_SAVE_SYN, 1i32)
}

/// The SYN of an accepted connection as it arrived, from its IP header on; once only, empty afterwards.
///
/// # Errors
/// What getsockopt(2) returns.
pub fn saved_syn(fd: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
    // The longest headers of IPv4 and TCP are 60 bytes each; IPv6 may have extension headers.
    let mut syn = vec![0; 512];
    let length = read_option(fd, libc::IPPROTO_TCP, libc::TCP_SAVED_SYN, &mut syn)?;
    syn.truncate(length);
    Ok(syn)
}

/// What somebody on the way said of a packet of this socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Who.
    pub from: Option<IpAddr>,
    /// What.
    pub what: Said,
    /// Where the packet was going.
    pub to: Option<SocketAddr>,
    /// The packet, as far as it is quoted: behind the UDP header, or from the TCP header on.
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
///
/// # Errors
/// What recvmsg(2) returns.
pub fn take_message(fd: BorrowedFd<'_>) -> io::Result<Option<Message>> {
    /// Room for the extended error with the address of who said it, and others that may come along.
    #[repr(C, align(8))]
    struct Control([u8; 512]);
    let mut control = Control([0; 512]);
    let mut quoted = vec![0u8; 576];
    let mut part = libc::iovec {
        iov_base: quoted.as_mut_ptr().cast(),
        iov_len: quoted.len(),
    };
    // SAFETY: both are plain C data, for which all zeroes is a valid, empty value.
    let (mut message, mut name): (libc::msghdr, libc::sockaddr_storage) =
        unsafe { (zeroed(), zeroed()) };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_name = (&raw mut name).cast();
    message.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len() as _;
    // SAFETY: the message refers only to buffers of the given lengths that outlive the call.
    let got = check_len(unsafe {
        libc::recvmsg(
            fd.as_raw_fd(),
            &raw mut message,
            libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT,
        )
    });
    let length = match got {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
        other => other?,
    };
    quoted.truncate(length);
    let mut found = Message {
        from: None,
        what: Said::Other,
        // SAFETY: the kernel filled at most a sockaddr_storage, zero where it did not.
        to: unsafe { from_kernel((&raw const name).cast()) },
        quoted,
    };
    // SAFETY: the kernel filled `message`; the macro stays within its control buffer.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(&message) };
    while !header.is_null() {
        // SAFETY: a non-null header lies inside `control`, complete and aligned.
        let (level, kind, len) = unsafe {
            let header = &*header;
            (
                header.cmsg_level,
                header.cmsg_type,
                header.cmsg_len as usize,
            )
        };
        let ours = [
            (libc::SOL_IP, libc::IP_RECVERR),
            (libc::SOL_IPV6, libc::IPV6_RECVERR),
        ];
        // The error is followed by an address of either version (`struct errhdr` of ip_recv_error and
        // ipv6_recv_error).
        let least = size_of::<libc::cmsghdr>()
            + size_of::<libc::sock_extended_err>()
            + size_of::<libc::sockaddr_in>();
        if ours.contains(&(level, kind)) && len >= least {
            // SAFETY: of this kind and at least this long, checked above; may be unaligned.
            let data = unsafe { libc::CMSG_DATA(header) };
            // SAFETY: as above.
            let error: libc::sock_extended_err = unsafe { ptr::read_unaligned(data.cast()) };
            found.what = said(&error);
            // SAFETY: the address follows the error inside the control buffer, whose rest is zero and
            // longer than any address.
            let from = unsafe { from_kernel(data.add(size_of::<libc::sock_extended_err>())) };
            found.from = from.map(|address| address.ip());
        }
        // SAFETY: as for the first.
        header = unsafe { libc::CMSG_NXTHDR(&message, header) };
    }
    Ok(Some(found))
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

/// # Safety
/// `address` points to a sockaddr of its own family's size.
unsafe fn from_kernel(address: *const u8) -> Option<SocketAddr> {
    // SAFETY: every sockaddr begins with its family.
    let family = unsafe { ptr::read_unaligned(address.cast::<libc::sa_family_t>()) };
    match i32::from(family) {
        libc::AF_INET => {
            // SAFETY: of this family, by the caller's promise.
            let v4: libc::sockaddr_in = unsafe { ptr::read_unaligned(address.cast()) };
            let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddr::new(ip.into(), u16::from_be(v4.sin_port)))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let v6: libc::sockaddr_in6 = unsafe { ptr::read_unaligned(address.cast()) };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            Some(SocketAddr::new(ip.into(), u16::from_be(v6.sin6_port)))
        }
        _ => None,
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
            keep_messages(socket.as_fd(), ipv6).unwrap();
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
            let _near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (far, from) = listener.accept().unwrap();
            let syn = saved_syn(far.as_fd()).unwrap();
            let header = if from.is_ipv6() { 40 } else { 20 };
            assert_eq!(syn[0] >> 4, if from.is_ipv6() { 6 } else { 4 });
            assert_eq!(syn[header..header + 2], from.port().to_be_bytes());
            assert!(saved_syn(far.as_fd()).unwrap().is_empty());
        }
    }
}

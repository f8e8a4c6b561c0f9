//! TCP sockets: the options and calls that std lacks.
//!
//! Everything here takes a borrowed descriptor and reports the kernel's own error.

use crate::poll::{PollFd, poll};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags, SocketType, sockopt,
};
use std::io::{self, IoSlice};
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::time::{Duration, Instant};

/// A new TCP socket for the family of `address`, close-on-exec, in blocking mode.
pub fn tcp(address: &SocketAddr) -> io::Result<OwnedFd> {
    inet(address, SocketType::STREAM)
}

/// A new UDP socket, likewise.
pub fn udp(address: &SocketAddr) -> io::Result<OwnedFd> {
    inet(address, SocketType::DGRAM)
}

pub(crate) fn inet(address: &SocketAddr, kind: SocketType) -> io::Result<OwnedFd> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    Ok(socket)
}

/// bind(2).
pub fn bind(fd: BorrowedFd<'_>, address: &SocketAddr) -> io::Result<()> {
    Ok(rustix::net::bind(fd, address)?)
}

/// listen(2).
pub fn listen(fd: BorrowedFd<'_>, backlog: i32) -> io::Result<()> {
    Ok(rustix::net::listen(fd, backlog)?)
}

/// connect(2) within `timeout`; the error is the handshake's own, or `TimedOut`. The socket is in
/// blocking mode afterwards.
pub fn connect(fd: BorrowedFd<'_>, address: &SocketAddr, timeout: Duration) -> io::Result<()> {
    begin_connect(fd, address)?;
    let until = Instant::now() + timeout;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let mut fds = [PollFd::new(fd, false, true)];
        poll(&mut fds, Some(left))?;
        if fds[0].writable() {
            break;
        }
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
    match take_error(fd)? {
        Some(error) => Err(error),
        None => Ok(rustix::io::ioctl_fionbio(fd, false)?),
    }
}

/// Begins a handshake and does not wait for its end; the socket no longer blocks.
pub fn begin_connect(fd: BorrowedFd<'_>, address: &SocketAddr) -> io::Result<()> {
    rustix::io::ioctl_fionbio(fd, true)?;
    match rustix::net::connect(fd, address) {
        Err(rustix::io::Errno::INPROGRESS) => Ok(()),
        other => Ok(other?),
    }
}

/// The error of a socket that stopped working, taken off it (`SO_ERROR`).
pub fn take_error(fd: BorrowedFd<'_>) -> io::Result<Option<io::Error>> {
    Ok(sockopt::socket_error(fd)?.err().map(io::Error::from))
}

/// An option whose value is a C `int`: level and name.
pub type IntOption = (i32, i32);

/// Lets others bind the same port.
pub const REUSE_ADDRESS: IntOption = (libc::SOL_SOCKET, libc::SO_REUSEADDR);
/// Lets sockets of the same user bind the same port, and those of nobody else (socket(7)).
pub const REUSE_PORT: IntOption = (libc::SOL_SOCKET, libc::SO_REUSEPORT);
/// In bytes, set before the kernel doubles it, read as it holds it; silently limited by `net.core.wmem_max`.
pub const SEND_BUFFER: IntOption = (libc::SOL_SOCKET, libc::SO_SNDBUF);
/// The same, limited by `net.core.rmem_max`.
pub const RECEIVE_BUFFER: IntOption = (libc::SOL_SOCKET, libc::SO_RCVBUF);
/// In bytes: a blocking read sleeps until this much is there.
pub const RECEIVE_LOW_WATER: IntOption = (libc::SOL_SOCKET, libc::SO_RCVLOWAT);
/// The processor that took the latest segment in; negative before the first.
pub const INCOMING_CPU: IntOption = (libc::SOL_SOCKET, libc::SO_INCOMING_CPU);
/// `IPPROTO_TCP`, ...
pub const PROTOCOL: IntOption = (libc::SOL_SOCKET, libc::SO_PROTOCOL);
/// In bytes.
pub const MSS: IntOption = tcp_option(libc::TCP_MAXSEG);
/// Unsent bytes above which a socket is not writable; zero leaves it to the sysctl.
pub const NOTSENT_LOWAT: IntOption = tcp_option(libc::TCP_NOTSENT_LOWAT);
/// DSCP in the upper six bits, of IPv4; on an IPv6 socket for IPv4-mapped peers.
pub const TOS: IntOption = (libc::IPPROTO_IP, libc::IP_TOS);
/// DSCP in the upper six bits, of IPv6.
pub const TRAFFIC_CLASS: IntOption = (libc::IPPROTO_IPV6, libc::IPV6_TCLASS);
/// Takes no IPv4.
pub const V6_ONLY: IntOption = (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY);

/// An option of TCP by its number in `include/uapi/linux/tcp.h`.
pub const fn tcp_option(name: i32) -> IntOption {
    (libc::IPPROTO_TCP, name)
}

/// Sets an option that is a number of 32 bits.
pub fn set(fd: BorrowedFd<'_>, option: IntOption, value: i32) -> io::Result<()> {
    set_bytes(fd, option, &value.to_ne_bytes())
}

/// Reads one socket option into `buffer` and returns how many bytes the kernel filled, which for
/// structures that grew over the years (`TCP_INFO`) is fewer than asked on an older kernel.
///
/// # Errors
/// What getsockopt(2) says: `ENOPROTOOPT` for an option that this kernel or protocol lacks.
pub fn read_option(
    fd: BorrowedFd<'_>,
    (level, name): IntOption,
    buffer: &mut [u8],
) -> io::Result<usize> {
    let mut length = libc::socklen_t::try_from(buffer.len()).unwrap_or(libc::socklen_t::MAX);
    let (fd, to) = (fd.as_raw_fd(), buffer.as_mut_ptr().cast());
    // SAFETY: the descriptor is open for the length of the borrow; the kernel writes at most `length`
    // bytes, which is the size of the exclusively borrowed buffer (or less), and then `length` itself.
    check(unsafe { libc::getsockopt(fd, level, name, to, &raw mut length) })?;
    Ok((length as usize).min(buffer.len()))
}

/// Reads an option whose value is one C `int`.
///
/// # Errors
/// As [`read_option`]; also if the kernel's value is shorter than an `int`.
pub fn get(fd: BorrowedFd<'_>, option: IntOption) -> io::Result<i32> {
    let mut value = [0; 4];
    // Some IP options answer with a single byte where the value fits: the rest stays zero, which is
    // the same number only in little-endian order, so the byte is taken by itself.
    match read_option(fd, option, &mut value)? {
        4 => Ok(i32::from_ne_bytes(value)),
        1 => Ok(i32::from(value[0])),
        n => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("the kernel answered with {n} bytes where an int was expected"),
        )),
    }
}

/// Sets DSCP and ECN bits for the IP version of the socket, and for IPv4-mapped peers of IPv6.
pub fn set_tos(fd: BorrowedFd<'_>, ipv6: bool, tos: u8) -> io::Result<()> {
    if ipv6 {
        set(fd, TRAFFIC_CLASS, tos.into())?;
    }
    set(fd, TOS, tos.into())
}

/// `TCP_CONGESTION`. The kernel loads a module for a name that it does not know if it may.
pub fn set_congestion(fd: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    set_bytes(fd, tcp_option(libc::TCP_CONGESTION), name.as_bytes())
}

/// `SO_MAX_PACING_RATE` in bytes per second, in its 64-bit form (Linux 4.20).
pub fn set_pacing(fd: BorrowedFd<'_>, bytes_per_s: u64) -> io::Result<()> {
    let option = (libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE);
    set_bytes(fd, option, &bytes_per_s.to_ne_bytes())
}

/// Lowers the longest time between retransmissions (`TCP_RTO_MAX_MS`, Linux 6.15), which doubles up to two minutes, to
/// this: the connection goes on soon after an outage of its path. The kernel gives up sooner then
/// (`net.ipv4.tcp_retries2` counts attempts), unless [`set_lost_after`] says when.
pub fn set_longest_rto(fd: BorrowedFd<'_>, longest: Duration) -> io::Result<()> {
    const TCP_RTO_MAX_MS: i32 = 44;
    let ms = i32::try_from(longest.as_millis()).unwrap_or(i32::MAX);
    let own = get(fd, tcp_option(TCP_RTO_MAX_MS))?;
    set(fd, tcp_option(TCP_RTO_MAX_MS), ms.min(own))
}

/// `SO_BINDTODEVICE`.
pub fn set_device(fd: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    let option = (libc::SOL_SOCKET, libc::SO_BINDTODEVICE);
    set_bytes(fd, option, name.as_bytes())
}

/// Makes a silent loss of the peer an error (`ETIMEDOUT`) within about `after`: `TCP_USER_TIMEOUT`
/// for data that nobody acknowledges, keepalive probes for an end that only reads (tcp(7)).
pub fn set_lost_after(fd: BorrowedFd<'_>, after: Duration) -> io::Result<()> {
    const PROBES: i32 = 4;
    let ms = u32::try_from(after.as_millis()).unwrap_or(u32::MAX);
    let each_s = i32::try_from(after.as_secs()).unwrap_or(i32::MAX) / (PROBES + 1);
    for (name, value) in [
        (libc::TCP_USER_TIMEOUT, ms.cast_signed()),
        (libc::TCP_KEEPIDLE, each_s.max(1)),
        (libc::TCP_KEEPINTVL, each_s.max(1)),
        (libc::TCP_KEEPCNT, PROBES),
    ] {
        set(fd, tcp_option(name), value)?;
    }
    set(fd, (libc::SOL_SOCKET, libc::SO_KEEPALIVE), 1)
}

fn set_bytes(fd: BorrowedFd<'_>, option: IntOption, value: &[u8]) -> io::Result<()> {
    // SAFETY: pointer and length are those of a live slice.
    unsafe { set_raw(fd, option, value.as_ptr(), value.len()) }
}

/// setsockopt(2).
///
/// # Safety
/// `value` points to as many initialised bytes; what these point to lives through the call.
pub(crate) unsafe fn set_raw(
    fd: BorrowedFd<'_>,
    (level, name): IntOption,
    value: *const u8,
    bytes: usize,
) -> io::Result<()> {
    let (fd, bytes) = (fd.as_raw_fd(), bytes as libc::socklen_t);
    // SAFETY: the caller's promise.
    check(unsafe { libc::setsockopt(fd, level, name, value.cast(), bytes) }).map(drop)
}

/// send(2), blocking, without a signal.
pub fn send(fd: BorrowedFd<'_>, data: &[u8]) -> io::Result<usize> {
    Ok(rustix::net::send(fd, data, SendFlags::NOSIGNAL)?)
}

/// Pieces that [`send_repeated`] hands over in one call.
const MOST_PIECES: usize = 16;

/// A piece of about `usual` bytes, so long that [`send_repeated`] sends `most` bytes of it in one call.
pub fn piece_of(most: usize, usual: usize) -> usize {
    most.div_ceil(MOST_PIECES).max(usual).min(most)
}

/// Sends up to `bytes` bytes that are `piece` again and again: sendmsg(2), blocking, without a signal.
pub fn send_repeated(fd: BorrowedFd<'_>, piece: &[u8], bytes: usize) -> io::Result<usize> {
    let mut parts = [IoSlice::new(&[]); MOST_PIECES];
    let (mut left, mut count) = (bytes, 0);
    for part in &mut parts {
        let (here, _) = piece.split_at(left.min(piece.len()));
        *part = IoSlice::new(here);
        left -= here.len();
        count += usize::from(!here.is_empty());
    }
    let no_control = &mut SendAncillaryBuffer::default();
    Ok(rustix::net::sendmsg(
        fd,
        &parts[..count],
        no_control,
        SendFlags::NOSIGNAL,
    )?)
}

/// recv(2), blocking.
pub fn receive(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    Ok(rustix::net::recv(fd, buffer, RecvFlags::empty())?.0)
}

/// recv(2) that never sleeps: `WouldBlock` if nothing is there.
pub fn receive_now(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    Ok(rustix::net::recv(fd, buffer, RecvFlags::DONTWAIT)?.0)
}

/// How many bytes of the next `len` have arrived, without taking any (`MSG_PEEK` and `MSG_TRUNC`, tcp(7)); sleeps
/// until there is one if `wait`, unless the socket never sleeps. Zero: the peer has ended its stream.
pub fn arrived(fd: BorrowedFd<'_>, len: usize, wait: bool) -> io::Result<usize> {
    let flags = libc::MSG_PEEK | libc::MSG_TRUNC | if wait { 0 } else { libc::MSG_DONTWAIT };
    // SAFETY: with MSG_TRUNC on a TCP socket the kernel writes nothing to the buffer
    // (tcp_recvmsg_locked skips the copy), so a null one is never touched.
    check_len(unsafe { libc::recv(fd.as_raw_fd(), ptr::null_mut(), len, flags) })
}

/// How many bytes have arrived and are not taken (`SIOCINQ`, tcp(7)).
pub fn queued(fd: BorrowedFd<'_>) -> io::Result<usize> {
    Ok(rustix::io::ioctl_fionread(fd)? as usize)
}

/// How many bytes were written and are not acknowledged, the end of the stream included (`SIOCOUTQ`, tcp(7)).
pub fn unacknowledged(fd: BorrowedFd<'_>) -> io::Result<usize> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the kernel writes one int (tcp_ioctl), and the pointer is valid for the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) })?;
    Ok(usize::try_from(bytes).unwrap_or_default())
}

/// Takes up to `len` bytes off the socket without copying them anywhere (`MSG_TRUNC`, tcp(7)),
/// blocking.
pub fn discard(fd: BorrowedFd<'_>, len: usize) -> io::Result<usize> {
    // SAFETY: with MSG_TRUNC on a TCP socket the kernel writes nothing to the buffer
    // (tcp_recvmsg_locked skips the copy), so a null one is never touched.
    check_len(unsafe { libc::recv(fd.as_raw_fd(), ptr::null_mut(), len, libc::MSG_TRUNC) })
}

/// An entry of a socket's error queue.
pub(crate) struct QueuedError {
    /// Bytes of the packet that are quoted in the buffer.
    pub quoted: usize,
    /// Where the packet was going.
    pub to: Option<SocketAddr>,
    /// The error, and who reported it.
    pub error: Option<(libc::sock_extended_err, Option<SocketAddr>)>,
}

/// Takes one entry off the error queue; `None` if there is none. Never sleeps.
pub(crate) fn error_queue(
    fd: BorrowedFd<'_>,
    buffer: &mut [u8],
) -> io::Result<Option<QueuedError>> {
    /// Room for the extended error with the address of who reported it, and others that may come along.
    #[repr(C, align(8))]
    struct ControlMessage([u8; 512]);
    let mut control = ControlMessage([0; 512]);
    let mut part = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
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
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    // SAFETY: the message refers only to buffers of the given lengths that outlive the call.
    let got = unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut message, flags) };
    let quoted = match check_len(got) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
        other => other?,
    };
    let mut entry = QueuedError {
        quoted,
        // SAFETY: the kernel filled at most a sockaddr_storage, zero where it did not.
        to: unsafe { from_kernel((&raw const name).cast()) },
        error: None,
    };
    // SAFETY: the kernel filled `message`; the macro stays within its control buffer.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(&message) };
    while !header.is_null() {
        // SAFETY: a non-null header lies inside `control`, complete and aligned.
        let of = unsafe { *header };
        let ours = [
            (libc::SOL_IP, libc::IP_RECVERR),
            (libc::SOL_IPV6, libc::IPV6_RECVERR),
        ];
        let least = size_of::<libc::cmsghdr>() + size_of::<libc::sock_extended_err>();
        if ours.contains(&(of.cmsg_level, of.cmsg_type)) && of.cmsg_len as usize >= least {
            // SAFETY: of this kind and at least this long, checked above; may be unaligned. The address
            // follows the error (`struct errhdr` of ip_recv_error and ipv6_recv_error) inside the control
            // buffer, whose rest is zero and longer than any address.
            entry.error = Some(unsafe {
                let data = libc::CMSG_DATA(header);
                let from = from_kernel(data.add(size_of::<libc::sock_extended_err>()));
                (ptr::read_unaligned(data.cast()), from)
            });
        }
        // SAFETY: as for the first.
        header = unsafe { libc::CMSG_NXTHDR(&message, header) };
    }
    Ok(Some(entry))
}

/// # Safety
/// `address` points to a sockaddr of its own family's size.
unsafe fn from_kernel(address: *const u8) -> Option<SocketAddr> {
    // SAFETY: every sockaddr begins with its family.
    let family = unsafe { ptr::read_unaligned(address.cast::<libc::sa_family_t>()) };
    let (ip, port): (IpAddr, u16) = match i32::from(family) {
        libc::AF_INET => {
            // SAFETY: of this family, by the caller's promise.
            let v4: libc::sockaddr_in = unsafe { ptr::read_unaligned(address.cast()) };
            (
                Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes()).into(),
                v4.sin_port,
            )
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let v6: libc::sockaddr_in6 = unsafe { ptr::read_unaligned(address.cast()) };
            (Ipv6Addr::from(v6.sin6_addr.s6_addr).into(), v6.sin6_port)
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_be(port)))
}

pub(crate) fn check(result: i32) -> io::Result<i32> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

pub(crate) fn check_len(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    #[test]
    fn an_option_is_read_and_a_wrong_one_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let kind = get(listener.as_fd(), (libc::SOL_SOCKET, libc::SO_TYPE));
        assert_eq!(kind.unwrap(), libc::SOCK_STREAM);
        let wrong = get(listener.as_fd(), (libc::SOL_SOCKET, 9999)).unwrap_err();
        assert_eq!(wrong.raw_os_error(), Some(libc::ENOPROTOOPT));
    }

    #[test]
    fn a_piece_is_sent_again_and_again_to_the_byte() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut receiver, _) = listener.accept().unwrap();
        for (most, usual, piece) in [(100, 10, 10), (160, 10, 10), (161, 10, 11), (7, 10, 7)] {
            assert_eq!(piece_of(most, usual), piece);
            let data: Vec<u8> = (0..piece as u8).collect();
            assert_eq!(send_repeated(sender.as_fd(), &data, most).unwrap(), most);
            let mut got = vec![0; most];
            receiver.read_exact(&mut got).unwrap();
            assert!(got.iter().zip(data.iter().cycle()).all(|(a, b)| a == b));
        }
    }
}

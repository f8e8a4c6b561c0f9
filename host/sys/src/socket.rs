//! TCP sockets: the options and calls that std lacks.
//!
//! Everything here takes a borrowed descriptor and reports the kernel's own error.

use crate::poll::{PollFd, poll};
use crate::read_option::read_int_option;
use std::io;
use std::mem::{size_of, zeroed};
use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::time::{Duration, Instant};

/// A new TCP socket for the family of `address`, close-on-exec, in blocking mode.
pub fn tcp(address: &SocketAddr) -> io::Result<OwnedFd> {
    let family = match address {
        SocketAddr::V4(_) => libc::AF_INET,
        SocketAddr::V6(_) => libc::AF_INET6,
    };
    // SAFETY: socket(2) takes no pointers.
    let fd = check(unsafe { libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: the descriptor is new and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// bind(2).
pub fn bind(fd: BorrowedFd<'_>, address: &SocketAddr) -> io::Result<()> {
    let (storage, len) = to_kernel(address);
    // SAFETY: `storage` holds `len` initialised bytes for the length of the call.
    check(unsafe { libc::bind(fd.as_raw_fd(), ptr::from_ref(&storage).cast(), len) }).map(drop)
}

/// listen(2).
pub fn listen(fd: BorrowedFd<'_>, backlog: i32) -> io::Result<()> {
    // SAFETY: listen(2) takes no pointers.
    check(unsafe { libc::listen(fd.as_raw_fd(), backlog) }).map(drop)
}

/// connect(2) within `timeout`; the error is the handshake's own, or `TimedOut`. The socket is in
/// blocking mode afterwards.
pub fn connect(fd: BorrowedFd<'_>, address: &SocketAddr, timeout: Duration) -> io::Result<()> {
    let (storage, len) = to_kernel(address);
    set_nonblocking(fd, true)?;
    // SAFETY: `storage` holds `len` initialised bytes for the length of the call.
    let begun =
        check(unsafe { libc::connect(fd.as_raw_fd(), ptr::from_ref(&storage).cast(), len) });
    match begun {
        Err(e) if e.raw_os_error() == Some(libc::EINPROGRESS) => {
            await_handshake(fd, timeout)?;
            let code = read_int_option(fd, libc::SOL_SOCKET, libc::SO_ERROR)?;
            if code != 0 {
                return Err(io::Error::from_raw_os_error(code));
            }
        }
        other => drop(other?),
    }
    set_nonblocking(fd, false)
}

fn await_handshake(fd: BorrowedFd<'_>, timeout: Duration) -> io::Result<()> {
    let until = Instant::now() + timeout;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let mut fds = [PollFd::new(fd, false, true)];
        poll(&mut fds, Some(left))?;
        if fds[0].writable() {
            return Ok(());
        }
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
}

/// What the kernel accepts of a value for [`set`]: plain data without padding.
mod plain {
    /// An option's value.
    pub trait Plain: Copy {}
    impl Plain for i32 {}
    impl Plain for u32 {}
    impl Plain for u64 {}
}
use plain::Plain;

pub(crate) fn set<T: Plain>(fd: BorrowedFd<'_>, level: i32, name: i32, value: T) -> io::Result<()> {
    // SAFETY: `value` is plain data that lives through the call, and its size is given.
    check(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            ptr::from_ref(&value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    })
    .map(drop)
}

fn set_bytes(fd: BorrowedFd<'_>, level: i32, name: i32, value: &[u8]) -> io::Result<()> {
    // SAFETY: pointer and length are those of a live slice.
    check(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            value.as_ptr().cast(),
            value.len() as libc::socklen_t,
        )
    })
    .map(drop)
}

/// `SO_REUSEADDR`.
pub fn set_reuse_address(fd: BorrowedFd<'_>) -> io::Result<()> {
    set(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1i32)
}

/// `SO_SNDBUF` in bytes, before the kernel doubles it; silently limited by `net.core.wmem_max`.
pub fn set_send_buffer(fd: BorrowedFd<'_>, bytes: i32) -> io::Result<()> {
    set(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, bytes)
}

/// `SO_RCVBUF` in bytes, before the kernel doubles it; silently limited by `net.core.rmem_max`.
pub fn set_receive_buffer(fd: BorrowedFd<'_>, bytes: i32) -> io::Result<()> {
    set(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, bytes)
}

/// `SO_RCVLOWAT` in bytes: a blocking read sleeps until this much is there.
pub fn set_receive_low_water(fd: BorrowedFd<'_>, bytes: i32) -> io::Result<()> {
    set(fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT, bytes)
}

/// `SO_RCVBUF` in bytes as the kernel holds it now, autotuned or set.
pub fn receive_buffer(fd: BorrowedFd<'_>) -> io::Result<usize> {
    let bytes = read_int_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUF)?;
    Ok(usize::try_from(bytes).unwrap_or(0))
}

/// `SO_INCOMING_CPU`: the processor that took the latest segment in; `None` before the first.
pub fn incoming_cpu(fd: BorrowedFd<'_>) -> io::Result<Option<u32>> {
    let cpu = read_int_option(fd, libc::SOL_SOCKET, libc::SO_INCOMING_CPU)?;
    Ok(u32::try_from(cpu).ok())
}

/// `TCP_MAXSEG` in bytes.
pub fn set_mss(fd: BorrowedFd<'_>, bytes: i32) -> io::Result<()> {
    set(fd, libc::IPPROTO_TCP, libc::TCP_MAXSEG, bytes)
}

/// `TCP_CONGESTION`. The kernel loads a module for a name that it does not know if it may.
pub fn set_congestion(fd: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    set_bytes(fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION, name.as_bytes())
}

/// `TCP_NODELAY`.
pub fn set_nodelay(fd: BorrowedFd<'_>, on: bool) -> io::Result<()> {
    set(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, i32::from(on))
}

/// An option of TCP that is a number of 32 bits, by its number in `include/uapi/linux/tcp.h`.
pub fn set_tcp_option(fd: BorrowedFd<'_>, name: i32, value: u32) -> io::Result<()> {
    set(fd, libc::IPPROTO_TCP, name, value)
}

/// `TCP_NOTSENT_LOWAT` in bytes; zero leaves it to the sysctl.
pub fn set_notsent_lowat(fd: BorrowedFd<'_>, bytes: u32) -> io::Result<()> {
    set(fd, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, bytes)
}

/// `SO_MAX_PACING_RATE` in bytes per second, in its 64-bit form (Linux 4.20).
pub fn set_pacing(fd: BorrowedFd<'_>, bytes_per_s: u64) -> io::Result<()> {
    set(fd, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, bytes_per_s)
}

/// `IP_TOS`: DSCP in the upper six bits.
pub fn set_tos_v4(fd: BorrowedFd<'_>, tos: u8) -> io::Result<()> {
    set(fd, libc::IPPROTO_IP, libc::IP_TOS, i32::from(tos))
}

/// `IPV6_TCLASS`: DSCP in the upper six bits.
pub fn set_tos_v6(fd: BorrowedFd<'_>, tos: u8) -> io::Result<()> {
    set(fd, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, i32::from(tos))
}

/// `IPV6_V6ONLY`.
pub fn set_v6_only(fd: BorrowedFd<'_>, on: bool) -> io::Result<()> {
    set(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, i32::from(on))
}

/// `SO_BINDTODEVICE`.
pub fn set_device(fd: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    set_bytes(fd, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, name.as_bytes())
}

/// Makes a silent loss of the peer an error (`ETIMEDOUT`) within about `after`: `TCP_USER_TIMEOUT`
/// for data that nobody acknowledges, keepalive probes for an end that only reads (tcp(7)).
pub fn set_lost_after(fd: BorrowedFd<'_>, after: Duration) -> io::Result<()> {
    const PROBES: u64 = 4;
    let ms = u32::try_from(after.as_millis()).unwrap_or(u32::MAX);
    let each_s = i32::try_from((after.as_secs() / (PROBES + 1)).max(1)).unwrap_or(i32::MAX);
    set(fd, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, ms)?;
    set(fd, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, each_s)?;
    set(fd, libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, each_s)?;
    set(fd, libc::IPPROTO_TCP, libc::TCP_KEEPCNT, PROBES as i32)?;
    set(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1i32)
}

/// `SO_ZEROCOPY`: allows [`SendMode::ZeroCopy`].
pub fn set_zerocopy(fd: BorrowedFd<'_>) -> io::Result<()> {
    set(fd, libc::SOL_SOCKET, libc::SO_ZEROCOPY, 1i32)
}

/// How [`send`] hands data over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendMode {
    /// The kernel copies.
    Copy,
    /// `MSG_ZEROCOPY`: the kernel refers to the caller's pages until it says so by a
    /// [`Completion`]. The bytes that the peer gets are those at the time of sending, so a buffer
    /// whose content does not matter, or never changes, may be used again at once.
    ZeroCopy,
}

/// send(2), blocking, without a signal.
pub fn send(fd: BorrowedFd<'_>, data: &[u8], mode: SendMode) -> io::Result<usize> {
    let flags = match mode {
        SendMode::Copy => 0,
        SendMode::ZeroCopy => libc::MSG_ZEROCOPY,
    };
    // SAFETY: pointer and length are those of a live slice; with MSG_ZEROCOPY the kernel pins the
    // pages themselves, so that they outlive even an unmapping.
    check_len(unsafe {
        libc::send(
            fd.as_raw_fd(),
            data.as_ptr().cast(),
            data.len(),
            flags | libc::MSG_NOSIGNAL,
        )
    })
}

/// recv(2), blocking.
pub fn receive(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    receive_with(fd, buffer, 0)
}

/// recv(2) that never sleeps: `WouldBlock` if nothing is there.
pub fn receive_now(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    receive_with(fd, buffer, libc::MSG_DONTWAIT)
}

fn receive_with(fd: BorrowedFd<'_>, buffer: &mut [u8], flags: i32) -> io::Result<usize> {
    // SAFETY: pointer and length are those of a live, writable slice.
    check_len(unsafe {
        libc::recv(
            fd.as_raw_fd(),
            buffer.as_mut_ptr().cast(),
            buffer.len(),
            flags,
        )
    })
}

/// Takes up to `len` bytes off the socket without copying them anywhere (`MSG_TRUNC`, tcp(7)),
/// blocking.
pub fn discard(fd: BorrowedFd<'_>, len: usize) -> io::Result<usize> {
    // SAFETY: with MSG_TRUNC on a TCP socket the kernel writes nothing to the buffer
    // (tcp_recvmsg_locked skips the copy), so a null one is never touched.
    check_len(unsafe { libc::recv(fd.as_raw_fd(), ptr::null_mut(), len, libc::MSG_TRUNC) })
}

/// A range of zero-copy sends that the kernel is done with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// How many sends.
    pub sends: u32,
    /// The kernel copied the data all the same (`SO_EE_CODE_ZEROCOPY_COPIED`).
    pub copied: bool,
}

/// Takes one completion from the error queue; `None` if there is none. Never sleeps.
pub fn zerocopy_completion(fd: BorrowedFd<'_>) -> io::Result<Option<Completion>> {
    /// Room for one control message with the extended error and the offender's address.
    #[repr(C, align(8))]
    struct Control([u8; 128]);
    let mut control = Control([0; 128]);
    // SAFETY: msghdr is plain C data, for which all zeroes is a valid, empty value.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len() as _;
    // SAFETY: the message refers only to `control`, which outlives the call.
    let got = check_len(unsafe {
        libc::recvmsg(
            fd.as_raw_fd(),
            &mut message,
            libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT,
        )
    });
    match got {
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
        other => drop(other?),
    }
    // SAFETY: the kernel filled `message`; the macros stay within its control buffer and return
    // null at its end.
    let first = unsafe { libc::CMSG_FIRSTHDR(&message) };
    if first.is_null() {
        return Ok(None);
    }
    // SAFETY: a non-null header lies inside `control`, complete and aligned.
    let header = unsafe { *first };
    let extended = (libc::SOL_IP, libc::IP_RECVERR);
    let extended_v6 = (libc::SOL_IPV6, libc::IPV6_RECVERR);
    let kind = (header.cmsg_level, header.cmsg_type);
    let len = size_of::<libc::sock_extended_err>();
    if (kind != extended && kind != extended_v6) || (header.cmsg_len as usize) < len {
        return Ok(None);
    }
    // SAFETY: the message is of this kind and at least this long; read without assuming alignment.
    let error: libc::sock_extended_err =
        unsafe { ptr::read_unaligned(libc::CMSG_DATA(first).cast()) };
    if error.ee_origin != SO_EE_ORIGIN_ZEROCOPY {
        return Ok(None);
    }
    Ok(Some(Completion {
        // An inclusive range of send numbers that may wrap (Documentation/networking/msg_zerocopy.rst).
        sends: error.ee_data.wrapping_sub(error.ee_info).wrapping_add(1),
        copied: error.ee_code & SO_EE_CODE_ZEROCOPY_COPIED != 0,
    }))
}

/// `include/uapi/linux/errqueue.h`.
const SO_EE_CODE_ZEROCOPY_COPIED: u8 = 1;
/// `include/uapi/linux/errqueue.h`.
const SO_EE_ORIGIN_ZEROCOPY: u8 = 5;

pub(crate) fn set_nonblocking(fd: BorrowedFd<'_>, on: bool) -> io::Result<()> {
    let mut flag = i32::from(on);
    // SAFETY: FIONBIO reads one int, which lives through the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::FIONBIO, &mut flag) }).map(drop)
}

pub(crate) fn to_kernel(address: &SocketAddr) -> (libc::sockaddr_storage, libc::socklen_t) {
    // SAFETY: sockaddr_storage is plain C data, for which all zeroes is valid.
    let mut storage: libc::sockaddr_storage = unsafe { zeroed() };
    let len = match address {
        SocketAddr::V4(v4) => {
            // SAFETY: sockaddr_storage is large and aligned enough for every address family.
            unsafe {
                ptr::from_mut(&mut storage)
                    .cast::<libc::sockaddr_in>()
                    .write(in4(v4))
            };
            size_of::<libc::sockaddr_in>()
        }
        SocketAddr::V6(v6) => {
            // SAFETY: as above.
            unsafe {
                ptr::from_mut(&mut storage)
                    .cast::<libc::sockaddr_in6>()
                    .write(in6(v6))
            };
            size_of::<libc::sockaddr_in6>()
        }
    };
    (storage, len as libc::socklen_t)
}

fn in4(v4: &SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: v4.port().to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from_ne_bytes(v4.ip().octets()),
        },
        sin_zero: [0; 8],
    }
}

fn in6(v6: &SocketAddrV6) -> libc::sockaddr_in6 {
    libc::sockaddr_in6 {
        sin6_family: libc::AF_INET6 as libc::sa_family_t,
        sin6_port: v6.port().to_be(),
        sin6_flowinfo: v6.flowinfo(),
        sin6_addr: libc::in6_addr {
            s6_addr: v6.ip().octets(),
        },
        sin6_scope_id: v6.scope_id(),
    }
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

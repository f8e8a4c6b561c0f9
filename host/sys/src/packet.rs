//! Whole Ethernet frames in and out of one device: packet sockets with the virtio-net header in front of
//! each frame (packet(7); `struct virtio_net_hdr` in `include/uapi/linux/virtio_net.h`), many a call.

use crate::udp::{Control, arrival};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// Bytes of the virtio-net header in front of each frame.
pub const VNET_HEADER: usize = 10;

/// Frames moved by one call at most.
pub const BATCH: usize = 64;

/// Room for one frame: the virtio-net header, 64 KiB of a super-packet and its link layer.
const FRAME: usize = 66 * 1024;

/// `PACKET_IGNORE_OUTGOING`, which libc does not name.
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;

/// A packet socket bound to one device of the calling thread's network namespace.
#[derive(Debug)]
pub struct PacketSocket(OwnedFd);

impl PacketSocket {
    /// Opens the socket: it sees every frame that arrives at `device`, none that leaves. It never blocks.
    /// `buffer` is the room in bytes for frames that wait to be received; without root outside it is cut to
    /// `net.core.rmem_max`. Needs CAP_NET_RAW and
    /// CAP_NET_ADMIN in the namespace.
    ///
    /// # Errors
    /// What socket(2), setsockopt(2), if_nametoindex(3) and bind(2) say.
    pub fn open(device: &str, buffer: u32) -> io::Result<PacketSocket> {
        let name = CString::new(device).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: the name ends with NUL and outlives the call.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        if index == 0 {
            return Err(io::Error::last_os_error());
        }
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // Protocol 0 receives nothing before the socket is bound to its device.
        // SAFETY: socket takes plain numbers; the result is checked before it is owned.
        let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just opened and nothing else owns it.
        let socket = PacketSocket(unsafe { OwnedFd::from_raw_fd(fd) });
        let buffer = libc::c_int::try_from(buffer).unwrap_or(libc::c_int::MAX);
        socket.set(libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
        socket.set(libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)?;
        socket.set(libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1)?;
        // Root alone may go beyond net.core.rmem_max; in a user namespace nobody is root in that sense.
        socket
            .set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, buffer)
            .or_else(|_| socket.set(libc::SOL_SOCKET, libc::SO_RCVBUF, buffer))?;
        socket.set(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
        // SAFETY: all zeroes are a valid sockaddr_ll.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as libc::sa_family_t;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = index.cast_signed();
        // SAFETY: the kernel reads one sockaddr_ll, whose size is given.
        let status = unsafe {
            libc::bind(
                socket.0.as_raw_fd(),
                (&raw const address).cast(),
                size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            )
        };
        if status != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(socket)
    }

    /// Frames that the kernel dropped since the last call because the socket's buffer was full.
    ///
    /// # Errors
    /// What getsockopt(2) says.
    pub fn take_drops(&self) -> io::Result<u32> {
        take_drops(&self.0)
    }

    /// Sends frames, each beginning with its virtio-net header; returns how many of the first
    /// [`BATCH`] left.
    ///
    /// # Errors
    /// What sendmmsg(2) says of the first frame: `ENOBUFS` where the peer of a veth dropped it.
    pub fn send<'a>(&self, frames: impl Iterator<Item = &'a [u8]>) -> io::Result<usize> {
        let mut parts = [NO_PART; BATCH];
        // SAFETY: an all-zero mmsghdr is valid: no name, no parts, no control.
        let mut messages: [libc::mmsghdr; BATCH] = unsafe { std::mem::zeroed() };
        let mut count = 0;
        for frame in frames.take(BATCH) {
            parts[count].iov_base = frame.as_ptr().cast_mut().cast();
            parts[count].iov_len = frame.len();
            messages[count].msg_hdr.msg_iov = &raw mut parts[count];
            messages[count].msg_hdr.msg_iovlen = 1;
            count += 1;
        }
        // SAFETY: each of the `count` headers points to one part, and each part to a frame borrowed for
        // longer than the call, which the kernel only reads.
        let sent = unsafe {
            libc::sendmmsg(
                self.0.as_raw_fd(),
                messages.as_mut_ptr(),
                count as libc::c_uint,
                0,
            )
        };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }

    fn set(&self, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
        // SAFETY: the kernel reads one int, whose size is given.
        let status = unsafe {
            libc::setsockopt(
                self.0.as_raw_fd(),
                level,
                name,
                (&raw const value).cast(),
                size_of::<libc::c_int>() as libc::socklen_t,
            )
        };
        if status != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }
}

/// Packets that the kernel dropped since the last call for want of room (`PACKET_STATISTICS`).
pub(crate) fn take_drops(socket: &OwnedFd) -> io::Result<u32> {
    let mut stats = libc::tpacket_stats {
        tp_packets: 0,
        tp_drops: 0,
    };
    let mut length = size_of::<libc::tpacket_stats>() as libc::socklen_t;
    // SAFETY: the kernel writes at most one tpacket_stats, whose size is given.
    let status = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            (&raw mut stats).cast(),
            &raw mut length,
        )
    };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(stats.tp_drops)
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Room for the frames of one receiving call, used again and again.
pub struct Inbox {
    buffers: Vec<u8>,
    received: Vec<(usize, Option<Duration>)>,
}

impl Default for Inbox {
    fn default() -> Inbox {
        Inbox {
            buffers: vec![0; BATCH * FRAME],
            received: Vec::with_capacity(BATCH),
        }
    }
}

impl Inbox {
    /// Takes the frames that are there, at most [`BATCH`], and returns how many; zero if there is none.
    ///
    /// # Errors
    /// What recvmmsg(2) says: `ENETDOWN` where the device was set down.
    pub fn receive(&mut self, socket: &PacketSocket) -> io::Result<usize> {
        self.received.clear();
        let mut parts = [NO_PART; BATCH];
        let mut controls = [Control::EMPTY; BATCH];
        // SAFETY: an all-zero mmsghdr is valid: no name, no parts, no control.
        let mut messages: [libc::mmsghdr; BATCH] = unsafe { std::mem::zeroed() };
        for (index, buffer) in self.buffers.chunks_exact_mut(FRAME).enumerate() {
            parts[index].iov_base = buffer.as_mut_ptr().cast();
            parts[index].iov_len = buffer.len();
            let header = &mut messages[index].msg_hdr;
            header.msg_iov = &raw mut parts[index];
            header.msg_iovlen = 1;
            header.msg_control = controls[index].as_mut_ptr();
            header.msg_controllen = size_of::<Control>() as _;
        }
        // SAFETY: each header points to one part and one control buffer, all live, exclusively borrowed
        // and of the lengths given; a null timeout is allowed.
        let count = unsafe {
            libc::recvmmsg(
                socket.0.as_raw_fd(),
                messages.as_mut_ptr(),
                BATCH as libc::c_uint,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        let Ok(count) = usize::try_from(count) else {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(0),
                _ => Err(error),
            };
        };
        for message in &messages[..count] {
            let length = (message.msg_len as usize).min(FRAME);
            self.received.push((length, arrival(&message.msg_hdr)));
        }
        Ok(count)
    }

    /// The frames of the last call, each behind its virtio-net header, with the time since 1970 at which
    /// the kernel got it.
    pub fn frames(&self) -> impl Iterator<Item = (&[u8], Option<Duration>)> {
        self.received
            .iter()
            .zip(self.buffers.chunks_exact(FRAME))
            .map(|(&(length, at), buffer)| (&buffer[..length], at))
    }
}

const NO_PART: libc::iovec = libc::iovec {
    iov_base: std::ptr::null_mut(),
    iov_len: 0,
};

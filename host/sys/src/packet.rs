//! Whole Ethernet frames in and out of one device: packet sockets with the virtio-net header in front of
//! each frame (packet(7); `struct virtio_net_hdr` in `include/uapi/linux/virtio_net.h`), many a call.

use crate::socket::{RECEIVE_BUFFER, check, set};
use crate::udp::{self, ReceiveBatch};
use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

pub use crate::udp::BATCH;

/// Bytes of the virtio-net header in front of each frame.
pub const VNET_HEADER: usize = 10;

/// Room for one frame: the virtio-net header, 64 KiB of a super-packet and its link layer.
const FRAME: usize = 66 * 1024;

/// `PACKET_IGNORE_OUTGOING`, which libc does not name.
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;

/// Name of the device with this index in the calling thread's network namespace.
pub fn device_name(index: u32) -> io::Result<String> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::DGRAM);
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    Ok(netdevice::index_to_name(&socket, index)?)
}

/// A packet socket bound to one device of the calling thread's network namespace.
#[derive(Debug)]
pub struct PacketSocket(OwnedFd);

impl PacketSocket {
    /// Opens the socket: it receives every frame that arrives at `device`, none that leaves. It never blocks.
    /// `buffer` is the room in bytes for frames that wait to be received; without root outside it is cut to
    /// `net.core.rmem_max`. Needs CAP_NET_RAW and CAP_NET_ADMIN in the namespace.
    pub fn open(device: &str, buffer: u32) -> io::Result<PacketSocket> {
        let socket = unbound()?;
        let index = netdevice::name_to_index(&socket, device)?;
        let set = |option, value| set(socket.as_fd(), option, value);
        let buffer = libc::c_int::try_from(buffer).unwrap_or(libc::c_int::MAX);
        set((libc::SOL_PACKET, libc::PACKET_VNET_HDR), 1)?;
        set((libc::SOL_PACKET, PACKET_IGNORE_OUTGOING), 1)?;
        set((libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS), 1)?;
        // Root alone may go beyond net.core.rmem_max; in a user namespace nobody is root in that sense.
        set((libc::SOL_SOCKET, libc::SO_RCVBUFFORCE), buffer)
            .or_else(|_| set(RECEIVE_BUFFER, buffer))?;
        set(udp::STAMPS, 1)?;
        bind(&socket, index)?;
        Ok(PacketSocket(socket))
    }

    /// Frames that the kernel dropped since the last call because the socket's buffer was full.
    pub fn take_drops(&self) -> io::Result<u32> {
        take_drops(&self.0)
    }

    /// Sends frames, each beginning with its virtio-net header; returns how many of the first
    /// [`BATCH`] left.
    ///
    /// # Errors
    /// What sendmmsg(2) returns for the first frame: `ENOBUFS` where the peer of a veth dropped it.
    pub fn send<'a>(&self, frames: impl Iterator<Item = &'a [u8]>) -> io::Result<usize> {
        udp::send(self.as_fd(), frames)
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A packet socket that receives nothing before it is bound.
pub(crate) fn unbound() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(
        AddressFamily::PACKET,
        SocketType::RAW,
        flags,
        None,
    )?)
}

/// Binds to all protocols of the device with this index; 0 is any device.
pub(crate) fn bind(socket: &OwnedFd, index: u32) -> io::Result<()> {
    // SAFETY: all zeroes are a valid sockaddr_ll.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as libc::sa_family_t;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index.cast_signed();
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the kernel reads one sockaddr_ll, whose size is given.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) }).map(drop)
}

/// Packets that the kernel dropped since the last call for want of room (`PACKET_STATISTICS`).
pub(crate) fn take_drops(socket: &OwnedFd) -> io::Result<u32> {
    // struct tpacket_stats: packets, drops.
    let mut stats = [0; 8];
    let option = (libc::SOL_PACKET, libc::PACKET_STATISTICS);
    crate::socket::read_option(socket.as_fd(), option, &mut stats)?;
    let [.., a, b, c, d] = stats;
    Ok(u32::from_ne_bytes([a, b, c, d]))
}

/// Room for the frames of one receiving call, used again and again.
pub struct Inbox(ReceiveBatch);

impl Default for Inbox {
    fn default() -> Inbox {
        Inbox(ReceiveBatch::new(BATCH, FRAME))
    }
}

impl Inbox {
    /// Takes the frames that are there, at most [`BATCH`], and returns how many; zero if there is none.
    pub fn receive(&mut self, socket: &PacketSocket) -> io::Result<usize> {
        match self.0.receive_with(socket.as_fd(), libc::MSG_DONTWAIT) {
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(0),
                _ => Err(error),
            },
            received => received,
        }
    }

    /// The frames of the last call, each behind its virtio-net header, with the time since 1970 at which
    /// the kernel got it.
    pub fn frames(&self) -> impl Iterator<Item = (&[u8], Option<Duration>)> {
        self.0.messages().map(|frame| (frame.payload, frame.at))
    }
}

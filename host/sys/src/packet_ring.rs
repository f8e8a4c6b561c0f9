//! The headers of all packets of a network namespace: a packet socket whose ring the kernel fills (packet(7),
//! `TPACKET_V2`). Nothing is sent, and no packet is held back.

use crate::file::Mapping;
use crate::netlink::{u16_at, u32_at};
use crate::packet::VNET_HEADER;
use crate::socket::{IntOption, set_raw};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Room for one packet: the kernel's header and as much of the packet as the filter lets through.
const SLOT: usize = 512;

/// The kernel allocates so much in one piece.
const BLOCK: usize = 64 * 1024;

/// Where the segment size is in the virtio-net header in front of each packet (`struct virtio_net_hdr`).
const GSO_SIZE: usize = 4;

/// A packet socket on every device of the calling thread's network namespace.
pub struct PacketRing {
    socket: OwnedFd,
    memory: Mapping,
    slots: usize,
    next: usize,
}

/// A packet in the ring.
#[derive(Clone, Copy, Debug)]
pub struct RingPacket<'a> {
    /// From the header of IP on, as much as was kept.
    pub ip: &'a [u8],
    /// Bytes of the whole packet from there.
    pub length: usize,
    /// Payload of each segment where this stands for several; else zero.
    pub segment_size: u16,
    /// It leaves this host; else it is for this host.
    pub outgoing: bool,
    /// The device that it passed.
    pub device: u32,
    /// Since 1970.
    pub at: Duration,
}

impl PacketRing {
    /// Opens the socket. `room` is the size of the ring in bytes; `filter` says of each packet, from its
    /// link layer on, how many bytes are kept (bpf(4); no more than 400 have room). Needs CAP_NET_RAW in the
    /// namespace.
    pub fn open(room: usize, filter: &[libc::sock_filter]) -> io::Result<PacketRing> {
        let socket = crate::packet::unbound()?;
        let version = libc::tpacket_versions::TPACKET_V2 as libc::c_int;
        set(&socket, (libc::SOL_PACKET, libc::PACKET_VERSION), &version)?;
        set(&socket, (libc::SOL_PACKET, libc::PACKET_VNET_HDR), &1i32)?;
        let program = libc::sock_fprog {
            len: u16::try_from(filter.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
            filter: filter.as_ptr().cast_mut(),
        };
        set(
            &socket,
            (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER),
            &program,
        )?;
        let blocks = (room / BLOCK).max(1);
        let request = libc::tpacket_req {
            tp_block_size: BLOCK as libc::c_uint,
            tp_block_nr: blocks as libc::c_uint,
            tp_frame_size: SLOT as libc::c_uint,
            tp_frame_nr: (blocks * BLOCK / SLOT) as libc::c_uint,
        };
        set(&socket, (libc::SOL_PACKET, libc::PACKET_RX_RING), &request)?;
        let ring = PacketRing {
            memory: Mapping::shared(socket.as_fd(), blocks * BLOCK)?,
            socket,
            slots: blocks * BLOCK / SLOT,
            next: 0,
        };
        crate::packet::bind(&ring.socket, 0)?;
        Ok(ring)
    }

    /// Takes the packets that are there, at most one round of the ring, and returns how many. Those that were
    /// for another host are left out.
    pub fn take(&mut self, each: &mut dyn FnMut(RingPacket<'_>)) -> usize {
        for taken in 0..self.slots {
            // SAFETY: `next` is below the number of slots, all inside the mapping.
            let slot = unsafe { self.memory.at.add(self.next * SLOT) };
            // SAFETY: a slot begins with its status, aligned as the slot is; the kernel changes it at any time,
            // so it is accessed atomically.
            let status = unsafe { slot.cast::<AtomicU32>().as_ref() };
            if status.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
                return taken;
            }
            // SAFETY: until the status is given back the kernel leaves the slot alone; behind the status it is
            // plain memory of this length.
            let bytes = unsafe { std::slice::from_raw_parts(slot.as_ptr(), SLOT) };
            if let Some(packet) = decode(bytes) {
                each(packet);
            }
            status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
            self.next = (self.next + 1) % self.slots;
        }
        self.slots
    }

    /// Packets for which the ring had no room, since the last call.
    pub fn take_drops(&self) -> io::Result<u32> {
        crate::packet::take_drops(&self.socket)
    }
}

/// Reads a slot: `struct tpacket2_hdr`, `struct sockaddr_ll`, and the packet where the first says.
fn decode(slot: &[u8]) -> Option<RingPacket<'_>> {
    const ADDRESS: usize =
        size_of::<libc::tpacket2_hdr>().next_multiple_of(libc::TPACKET_ALIGNMENT);
    let (half, word) = (|at| u16_at(slot, at), |at| u32_at(slot, at));
    let (length, kept) = (word(4)? as usize, word(8)? as usize);
    let (mac, net) = (usize::from(half(12)?), usize::from(half(14)?));
    let outgoing = match *slot.get(ADDRESS + 10)? {
        libc::PACKET_OUTGOING => true,
        libc::PACKET_HOST => false,
        _ => return None,
    };
    let link = net.checked_sub(mac)?;
    Some(RingPacket {
        ip: slot.get(net..(mac + kept).min(SLOT))?,
        length: length.checked_sub(link)?,
        segment_size: half(mac.checked_sub(VNET_HEADER)? + GSO_SIZE)?,
        outgoing,
        device: word(ADDRESS + 4)?,
        at: Duration::new(word(16)?.into(), word(20)?.min(999_999_999)),
    })
}

fn set<T>(socket: &OwnedFd, option: IntOption, value: &T) -> io::Result<()> {
    let (value, bytes) = (std::ptr::from_ref(value).cast(), size_of::<T>());
    // SAFETY: the kernel reads as many bytes as the value has, and what a filter points to is borrowed by the
    // caller for longer than the call.
    unsafe { set_raw(socket.as_fd(), option, value, bytes) }
}

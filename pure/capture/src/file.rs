//! The files: pcap and pcapng, of either byte order, in micro- or nanoseconds.

use crate::{FrameCounts, Skip, frame};
use model::Nanos;
use model::packet::Packet;
use pcap_parser::{Block, PcapBlockOwned, PcapError, create_reader};
use std::io::{BufRead, BufReader, Read};

/// Nanoseconds.
const SECOND: u64 = 1_000_000_000;
/// Room for blocks at first.
const ROOM: usize = 1 << 17;
/// Largest block that is read: a packet is 256 KiB at the most (MAXIMUM_SNAPLEN of libpcap).
const LARGEST_BLOCK: usize = 1 << 20;
/// Interfaces of a section that are kept.
const MOST_INTERFACES: usize = 4096;

/// Whether something begins as a pcap or pcapng file does, in either order of bytes, or as one that is
/// packed: [`read`] says what to do with that.
pub fn is_capture(head: [u8; 4]) -> bool {
    const MAGIC: [u32; 3] = [0xa1b2_c3d4, 0xa1b2_3c4d, 0x0a0d_0d0a];
    let number = u32::from_le_bytes(head);
    MAGIC.contains(&number) || MAGIC.contains(&number.swap_bytes()) || packed(head).is_some()
}

/// The program that packed it (RFC 1952, RFC 8878, the formats of xz and bzip2).
fn packed(head: [u8; 4]) -> Option<&'static str> {
    match head {
        [0x1f, 0x8b, ..] => Some("gzip"),
        [0x28, 0xb5, 0x2f, 0xfd] => Some("zstd"),
        [0xfd, b'7', b'z', b'X'] => Some("xz"),
        [b'B', b'Z', b'h', b'1'..=b'9'] => Some("bzip2"),
        _ => None,
    }
}

/// Why a capture could not be read.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// Neither format.
    #[error("it is neither a pcap nor a pcapng file")]
    NotACapture,
    /// Packed by a program of this name.
    #[error("it is packed: unpack it with {0} -d first")]
    Packed(&'static str),
    /// The operating system.
    #[error("it cannot be read")]
    Read,
}

/// An interface of the capture.
#[derive(Clone, Copy)]
struct Interface {
    link: i32,
    /// Ticks of its clock in a second.
    resolution: u64,
    offset_s: i64,
}

/// Hands every TCP packet of a capture to `see`, in the order of the file; times count from its first
/// frame. Returns what became of all frames.
pub fn read(input: impl Read + Send, mut see: impl FnMut(&Packet)) -> Result<FrameCounts, Error> {
    read_with_payload(input, |packet, _| see(packet))
}

/// As [`read`], with what was captured of each packet's payload.
///
/// # Errors
/// [`Error`]; what was read before has been handed over.
pub fn read_with_payload(
    input: impl Read + Send,
    see: impl FnMut(&Packet, &[u8]),
) -> Result<FrameCounts, Error> {
    let packet = frame::BLANK;
    read_into(input, &mut EachPacket { packet, see })
}

/// As [`read`]: each packet is decoded where it is wanted, for to copy it takes long.
///
/// # Errors
/// [`Error`]; what was read before has been handed over.
pub fn read_into(
    input: impl Read + Send,
    sink: &mut impl PacketSink,
) -> Result<FrameCounts, Error> {
    // Smaller than the reads to come, which so go past it.
    let mut input = BufReader::with_capacity(ROOM / 2, input);
    let head = input.fill_buf().map_err(|_| Error::Read)?.first_chunk();
    if let Some(program) = head.and_then(|head| packed(*head)) {
        return Err(Error::Packed(program));
    }
    let mut reader = create_reader(ROOM, input).map_err(|e| match e {
        PcapError::ReadError => Error::Read,
        _ => Error::NotACapture,
    })?;
    let mut frames = Frames {
        account: FrameCounts::default(),
        sink,
    };
    let mut plain: Option<PlainFile> = None;
    let mut interfaces: Vec<Interface> = Vec::new();
    let mut big_endian = false;
    let mut room = ROOM;
    let mut stuck = false;
    loop {
        if let Some(plain) = &plain {
            // All that are whole at once: block by block takes twice as long.
            let data = reader.data();
            let taken = frames.take_all(data, plain);
            stuck &= taken == 0;
            reader.consume_noshift(taken);
        }
        let offset = match reader.next() {
            Ok((offset, block)) => {
                stuck = false;
                match block {
                    PcapBlockOwned::LegacyHeader(header) => {
                        plain = Some(PlainFile {
                            is_big_endian: header.is_bigendian(),
                            more: match header.is_modified_format() {
                                true => 8,
                                false => 0,
                            },
                            link: header.network.0,
                            tick: match header.is_nanosecond_precision() {
                                true => 1,
                                false => 1000,
                            },
                        });
                    }
                    // Taken above, all of them.
                    PcapBlockOwned::Legacy(_) => {}
                    // A section begins: its interfaces are its own.
                    PcapBlockOwned::NG(Block::SectionHeader(block)) => {
                        interfaces.clear();
                        big_endian = block.big_endian();
                    }
                    PcapBlockOwned::NG(Block::InterfaceDescription(block)) => {
                        if interfaces.len() < MOST_INTERFACES {
                            interfaces.push(Interface {
                                link: block.linktype.0,
                                resolution: resolution(block.if_tsresol),
                                // The library reads it as little-endian, always; so the counts below.
                                offset_s: match big_endian {
                                    true => block.if_tsoffset.swap_bytes(),
                                    false => block.if_tsoffset,
                                },
                            });
                        }
                    }
                    PcapBlockOwned::NG(Block::EnhancedPacket(block)) => {
                        match interfaces.get(block.if_id as usize) {
                            Some(i) => {
                                let ticks =
                                    u64::from(block.ts_high) << 32 | u64::from(block.ts_low);
                                let captured = block.data.len().min(block.caplen as usize);
                                let data = &block.data[..captured];
                                frames.take(nanos_of(ticks, i), i.link, data, block.origlen);
                            }
                            None => frames.skip(Skip::UnknownLink),
                        }
                    }
                    // Without a time: all that can be said is the order.
                    PcapBlockOwned::NG(Block::SimplePacket(block)) => {
                        if let Some(i) = interfaces.first() {
                            let at = frames.account.began.unwrap_or_default().0;
                            frames.take(at, i.link, block.data, block.origlen);
                        }
                    }
                    // How many there were since the interface began: the last one counts.
                    PcapBlockOwned::NG(Block::InterfaceStatistics(block)) => {
                        let lost = [block.isb_ifdrop(), block.isb_osdrop()];
                        let lost = lost
                            .into_iter()
                            .flatten()
                            .flatten()
                            .fold(0, u64::saturating_add);
                        let dropped = &mut frames.account.dropped;
                        *dropped = lost.max(*dropped);
                    }
                    PcapBlockOwned::NG(_) => {}
                }
                offset
            }
            Err(PcapError::Eof) => return Ok(frames.account),
            Err(PcapError::UnexpectedEof) => return Ok(frames.broken_off()),
            Err(PcapError::BufferTooSmall) if room < LARGEST_BLOCK => {
                room *= 2;
                if !reader.grow(room) {
                    return Ok(frames.damaged());
                }
                0
            }
            Err(PcapError::Incomplete(_)) => {
                reader.refill().map_err(|_| Error::Read)?;
                // Nothing more comes, and what is there is not whole.
                if stuck && reader.reader_exhausted() {
                    return Ok(frames.broken_off());
                }
                stuck = reader.reader_exhausted();
                0
            }
            Err(PcapError::ReadError) => return Err(Error::Read),
            Err(_) => return Ok(frames.damaged()),
        };
        if offset > 0 {
            reader.consume_noshift(offset);
        }
    }
}

/// A pcap file.
struct PlainFile {
    is_big_endian: bool,
    /// Bytes of the header of a frame beyond the usual ones: some systems wrote more.
    more: usize,
    link: i32,
    /// Nanoseconds.
    tick: u64,
}

/// A frame of a pcap file.
struct PlainFrame<'a> {
    /// Nanoseconds.
    at: u64,
    data: &'a [u8],
    /// How long it was before the capture cut it.
    whole: u32,
}

impl PlainFile {
    /// The first frame of some bytes, and what is behind; none if it is not whole.
    #[inline]
    fn first<'a>(&self, bytes: &'a [u8]) -> Option<(PlainFrame<'a>, &'a [u8])> {
        let (head, rest) = bytes.split_first_chunk::<16>()?;
        let field = |n: usize| {
            let field = [head[n], head[n + 1], head[n + 2], head[n + 3]];
            match self.is_big_endian {
                true => u32::from_be_bytes(field),
                false => u32::from_le_bytes(field),
            }
        };
        let (data, rest) = rest.get(self.more..)?.split_at_checked(field(8) as usize)?;
        let frame = PlainFrame {
            // Both are less than 2^32: no overflow.
            at: u64::from(field(0)) * SECOND + u64::from(field(4)) * self.tick,
            data,
            whole: field(12),
        };
        Some((frame, rest))
    }
}

/// Takes decoded packets.
pub trait PacketSink {
    /// Where the next one is written; what is there already does not matter.
    fn place(&mut self) -> &mut Packet;
    /// It is written; and what was captured of its payload.
    fn take(&mut self, payload: &[u8]);
}

/// Shows each packet, and keeps none.
struct EachPacket<S> {
    packet: Packet,
    see: S,
}

impl<S: FnMut(&Packet, &[u8])> PacketSink for EachPacket<S> {
    #[inline]
    fn place(&mut self) -> &mut Packet {
        &mut self.packet
    }

    #[inline]
    fn take(&mut self, payload: &[u8]) {
        (self.see)(&self.packet, payload);
    }
}

/// What becomes of the frames.
struct Frames<'a, S> {
    account: FrameCounts,
    sink: &'a mut S,
}

impl<S: PacketSink> Frames<'_, S> {
    /// All frames of a pcap file that are whole; returns how many bytes they take.
    fn take_all(&mut self, data: &[u8], file: &PlainFile) -> usize {
        let mut rest = data;
        while let Some((frame, behind)) = file.first(rest) {
            self.take(frame.at, file.link, frame.data, frame.whole);
            rest = behind;
        }
        data.len() - rest.len()
    }

    /// The next frame; `whole` is how long it was before the capture cut it.
    #[inline]
    fn take(&mut self, at: u64, link: i32, data: &[u8], whole: u32) {
        let began = *self.account.began.get_or_insert(Nanos(at));
        self.account.cut += u64::from((data.len() as u64) < u64::from(whole));
        let at = Nanos(at).since(began);
        match frame::write(link, data, at, self.sink.place()) {
            Ok(payload) => {
                self.account.frames += 1;
                self.account.packets += 1;
                self.sink.take(payload);
            }
            Err(skip) => {
                if skip == Skip::UnknownLink {
                    self.account.unknown_link.get_or_insert(link);
                }
                self.skip(skip);
            }
        }
    }

    fn skip(&mut self, skip: Skip) {
        self.account.frames += 1;
        *self.account.skipped.entry(skip).or_default() += 1;
    }

    fn broken_off(mut self) -> FrameCounts {
        self.account.broken_off = true;
        self.account
    }

    fn damaged(mut self) -> FrameCounts {
        self.account.damaged = true;
        self.account
    }
}

/// Ticks a second: a power of ten or, with the highest bit, of two (if_tsresol). One that cannot be is as
/// if it were not there.
fn resolution(option: u8) -> u64 {
    let power = u32::from(option & 0x7f);
    let ticks = match option & 0x80 {
        0 => 10_u64.checked_pow(power),
        _ => 1_u64.checked_shl(power),
    };
    ticks.unwrap_or(1_000_000)
}

fn nanos_of(ticks: u64, interface: &Interface) -> u64 {
    let ns = u128::from(ticks) * u128::from(SECOND) / u128::from(interface.resolution);
    let ns = u64::try_from(ns).unwrap_or(u64::MAX);
    let offset = interface.offset_s.unsigned_abs().saturating_mul(SECOND);
    match interface.offset_s < 0 {
        true => ns.saturating_sub(offset),
        false => ns.saturating_add(offset),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Skip;
    use crate::frame::tests::tcp_frame;

    fn pcap(frames: &[(u32, u32, &[u8], u32)], big_endian: bool, nano: bool) -> Vec<u8> {
        let n32 = |n: u32| {
            if big_endian {
                n.to_be_bytes()
            } else {
                n.to_le_bytes()
            }
        };
        let n16 = |n: u16| {
            if big_endian {
                n.to_be_bytes()
            } else {
                n.to_le_bytes()
            }
        };
        let magic = if nano { 0xa1b2_3c4d } else { 0xa1b2_c3d4 };
        let mut file = n32(magic).to_vec();
        file.extend(n16(2));
        file.extend(n16(4));
        for n in [0, 0, 262_144, 1] {
            file.extend(n32(n));
        }
        for (s, fraction, data, whole) in frames {
            for n in [*s, *fraction, data.len() as u32, *whole] {
                file.extend(n32(n));
            }
            file.extend(*data);
        }
        file
    }

    fn all(file: &[u8]) -> (Vec<Packet>, Result<FrameCounts, Error>) {
        let mut packets = Vec::new();
        let account = read(file, |p| packets.push(*p));
        (packets, account)
    }

    #[test]
    fn times_count_from_the_first_frame_in_any_order_of_bytes() {
        let frame = tcp_frame(100);
        for big in [false, true] {
            for (nano, tick) in [(false, 1000), (true, 1)] {
                let frames: [(u32, u32, &[u8], u32); 2] = [
                    (7, 5, &frame, frame.len() as u32),
                    (8, 9, &frame, frame.len() as u32),
                ];
                let (packets, account) = all(&pcap(&frames, big, nano));
                assert_eq!(
                    packets[1].at,
                    Nanos(1_000_000_000 + 4 * tick),
                    "{big} {nano}"
                );
                assert_eq!(packets[1].payload, 100);
                let account = account.unwrap();
                assert_eq!((account.frames, account.packets, account.cut), (2, 2, 0));
                assert!(!account.broken_off);
            }
        }
    }

    #[test]
    fn a_file_cut_anywhere_is_read_as_far_as_it_goes() {
        let frame = tcp_frame(100);
        let frames: [(u32, u32, &[u8], u32); 2] = [
            (7, 5, &frame, frame.len() as u32),
            (8, 9, &frame[..60], frame.len() as u32),
        ];
        let file = pcap(&frames, false, false);
        for end in 0..file.len() {
            let (packets, account) = all(&file[..end]);
            let first = 24 + 16 + frame.len();
            match account {
                Ok(account) => {
                    assert!(end >= 24);
                    assert_eq!(packets.len(), usize::from(end >= first), "{end}");
                    assert_eq!(account.broken_off, end != 24 && end != first, "{end}");
                }
                Err(error) => assert!(error == Error::NotACapture && end < 24, "{error} {end}"),
            }
        }
        let (packets, account) = all(&file);
        assert_eq!(account.unwrap().cut, 1);
        assert_eq!(
            packets[1].payload, 100,
            "by the header, not by what was kept"
        );
    }

    #[test]
    fn garbage_is_no_capture() {
        assert_eq!(all(b"").1, Err(Error::NotACapture));
        assert_eq!(all(&[7; 4000]).1, Err(Error::NotACapture));
    }

    /// A block of pcapng.
    fn block(kind: u32, body: &[u8]) -> Vec<u8> {
        let mut padded = body.to_vec();
        padded.resize(body.len().next_multiple_of(4), 0);
        let length = (padded.len() + 12) as u32;
        let mut block = kind.to_le_bytes().to_vec();
        block.extend(length.to_le_bytes());
        block.extend(padded);
        block.extend(length.to_le_bytes());
        block
    }

    fn section() -> Vec<u8> {
        let mut section = 0x1a2b_3c4d_u32.to_le_bytes().to_vec();
        section.extend([1, 0, 0, 0]);
        section.extend([0xff; 8]);
        block(0x0a0d_0d0a, &section)
    }

    fn interface(link: u8, options: &[u8]) -> Vec<u8> {
        block(1, &[&[link, 0, 0, 0, 0, 0, 0, 0][..], options].concat())
    }

    fn enhanced(interface: u32, ticks: u64, frame: &[u8]) -> Vec<u8> {
        let mut body = interface.to_le_bytes().to_vec();
        body.extend(((ticks >> 32) as u32).to_le_bytes());
        body.extend((ticks as u32).to_le_bytes());
        body.extend((frame.len() as u32).to_le_bytes());
        body.extend((frame.len() as u32).to_le_bytes());
        body.extend(frame);
        block(6, &body)
    }

    /// if_tsresol 9: nanoseconds.
    const NANOSECONDS: [u8; 8] = [9, 0, 1, 0, 9, 0, 0, 0];

    #[test]
    fn pcapng_with_its_own_clock() {
        let frame = tcp_frame(10);
        let base = 1_795_205_836_000_000_000;
        let file = [
            section(),
            interface(1, &NANOSECONDS),
            enhanced(0, base, &frame),
            block(0x0bad, b"custom"),
            enhanced(0, base + 42, &frame),
        ];
        let (packets, account) = all(&file.concat());
        assert_eq!(account.unwrap().packets, 2);
        assert_eq!(packets[1].at, Nanos(42));
    }

    #[test]
    fn each_interface_has_its_clock_and_each_section_its_interfaces() {
        let frame = tcp_frame(10);
        let second = 1_000_000;
        // Two to the power of ten ticks a second, ten seconds ahead (if_tsoffset).
        let binary = [
            9, 0, 1, 0, 0x8a, 0, 0, 0, 14, 0, 8, 0, 10, 0, 0, 0, 0, 0, 0, 0,
        ];
        let lost = [&[0u8; 12][..], &[5, 0, 8, 0, 7, 0, 0, 0, 0, 0, 0, 0]].concat();
        let file = [
            section(),
            interface(1, &[]),
            interface(101, &binary),
            enhanced(0, 20 * second, &frame),
            enhanced(1, 11 * 1024 + 512, &frame[14..]),
            enhanced(7, 0, &frame),
            block(5, &lost),
            section(),
            interface(101, &[]),
            enhanced(0, 22 * second, &frame[14..]),
            enhanced(1, 0, &frame),
        ];
        let (packets, account) = all(&file.concat());
        let at: Vec<u64> = packets.iter().map(|p| p.at.0 / 1_000_000).collect();
        assert_eq!(at, [0, 1500, 2000]);
        let account = account.unwrap();
        assert_eq!((account.frames, account.packets), (5, 3));
        assert_eq!(account.skipped, [(Skip::UnknownLink, 2)].into());
        assert_eq!(account.dropped, 7);
        assert_eq!(account.left_out().len(), 2);
    }

    #[test]
    fn what_is_damaged_is_read_so_far_and_what_is_packed_says_how_to_unpack_it() {
        let frame = tcp_frame(10);
        let mut liar = enhanced(0, 5, &frame);
        liar[4..8].copy_from_slice(&3u32.to_le_bytes());
        let file = [section(), interface(1, &[]), enhanced(0, 4, &frame), liar];
        let (packets, account) = all(&file.concat());
        let account = account.unwrap();
        assert_eq!((packets.len(), account.damaged), (1, true));
        assert!(account.left_out()[0].contains("damaged after 1 frames"));
        assert_eq!(all(&[0x1f, 0x8b, 8, 0, 0]).1, Err(Error::Packed("gzip")));
        assert!(is_capture([0x28, 0xb5, 0x2f, 0xfd]) && !is_capture(*b"{\"sc"));
    }

    #[test]
    fn an_unknown_link_type_is_reported_by_its_number() {
        let frame = tcp_frame(10);
        let mut file = pcap(&[(0, 0, &frame, 64), (0, 1, &frame, 64)], false, false);
        file[20] = 105;
        let said = all(&file).1.unwrap().left_out();
        let wanted = "2 of 2 frames were left out: of an unknown link type (the first: 105)";
        assert_eq!(said, [wanted]);
    }

    #[test]
    fn what_is_skipped_is_counted() {
        let mut udp = tcp_frame(10);
        udp[14 + 9] = 17;
        let frames: [(u32, u32, &[u8], u32); 2] = [(0, 0, &udp, 60), (0, 1, &[0; 10], 10)];
        let account = all(&pcap(&frames, false, false)).1.unwrap();
        assert_eq!(account.skipped, [(Skip::NotTcp, 1), (Skip::Cut, 1)].into());
        assert!(account.left_out()[1].ends_with("end of their headers"));
        let frame = tcp_frame(10);
        let cut = [(0, 0, &frame[..32], 64), (0, 1, &frame[..32], 64)];
        let said = all(&pcap(&cut, false, false)).1.unwrap().left_out();
        assert!(said[0].starts_with("2 of 2 frames were left out: cut before"));
        assert!(said[0].ends_with("tcpdump -s 128)"), "{said:?}");
    }
}

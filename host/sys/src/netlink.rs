//! Netlink: a plain, blocking socket, and questions to the kernel over it, in raw bytes.

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// A socket of family `AF_NETLINK`.
#[derive(Debug)]
pub struct Socket(OwnedFd);

/// Whom a netlink socket speaks to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// `NETLINK_ROUTE` (rtnetlink(7)).
    Route,
    /// `NETLINK_GENERIC`: families that are found by name.
    Generic,
    /// `NETLINK_SOCK_DIAG`: the sockets of the namespace (sock_diag(7)).
    Sockets,
}

impl Socket {
    /// Opens the socket in the network namespace of the calling thread. Needs no privilege.
    pub fn open(protocol: Protocol) -> io::Result<Socket> {
        let protocol = match protocol {
            // NETLINK_ROUTE is 0, the default.
            Protocol::Route => None,
            Protocol::Generic => Some(netlink::GENERIC),
            Protocol::Sockets => Some(netlink::SOCK_DIAG),
        };
        let (family, flags) = (AddressFamily::NETLINK, SocketFlags::CLOEXEC);
        let socket = rustix::net::socket_with(family, SocketType::RAW, flags, protocol)?;
        // To a socket without a number the kernel sends nothing of a group (`do_one_broadcast` in `net/netlink/af_netlink.c`).
        rustix::net::bind(&socket, &netlink::SocketAddrNetlink::new(0, 0))?;
        // The kernel answers at once; this bounds the wait should it ever not.
        set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_secs(2)))?;
        Ok(Socket(socket))
    }

    fn set(&self, option: i32, value: i32) -> io::Result<()> {
        crate::socket::set(self.0.as_fd(), (libc::SOL_NETLINK, option), value)
    }

    /// From now on what the kernel sends to this group comes in as well.
    pub fn join(&self, group: i32) -> io::Result<()> {
        self.set(libc::NETLINK_ADD_MEMBERSHIP, group)
    }

    /// Lets so many bytes wait to be received; without CAP_NET_ADMIN no more than `net.core.rmem_max`.
    pub fn make_room(&self, bytes: i32) {
        for option in [libc::SO_RCVBUFFORCE, libc::SO_RCVBUF] {
            if crate::socket::set(self.0.as_fd(), (libc::SOL_SOCKET, option), bytes).is_ok() {
                return;
            }
        }
    }

    /// Sends one whole request to the kernel.
    pub fn send(&self, request: &[u8]) -> io::Result<()> {
        match rustix::net::send(&self.0, request, SendFlags::empty())? {
            n if n == request.len() => Ok(()),
            _ => Err(io::Error::new(
                io::ErrorKind::WriteZero,
                "the kernel took only a part of a netlink request",
            )),
        }
    }

    /// Receives one datagram, which can hold several messages, and returns its length.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.receive_with(buffer, RecvFlags::empty())
    }

    /// The same without waiting; zero if nothing is there.
    pub fn receive_now(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.receive_with(buffer, RecvFlags::DONTWAIT) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            other => other,
        }
    }

    fn receive_with(&self, buffer: &mut [u8], flags: RecvFlags) -> io::Result<usize> {
        let room = buffer.len();
        // With MSG_TRUNC the length of a datagram is the true one.
        let (_, length) = rustix::net::recv(&self.0, buffer, RecvFlags::TRUNC | flags)?;
        if length > room {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("a netlink answer of {length} bytes is longer than its buffer"),
            ));
        }
        Ok(length)
    }
}

/// An object fills at most this (`NLMSG_GOODSIZE` and `max_recvmsg_len` in `net/netlink/af_netlink.c`).
const ROOM: usize = 64 * 1024;

/// Messages of one answer: a full table of the Internet's routes and some more.
const MOST_MESSAGES: usize = 4_000_000;

/// How often a dump is repeated that was disturbed by a change meanwhile.
const PATIENCE: u32 = 5;

const REQUEST: u16 = 1;
const ACK: u16 = 4;
const DUMP: u16 = 0x300;
/// Of a request that makes something: replace it if it is there.
pub const REPLACE: u16 = 0x100;
/// Of a request that makes something: make it if it is not there.
pub const CREATE: u16 = 0x400;

/// What the kernel says instead of doing what it was asked.
#[derive(Debug)]
pub struct NetlinkRefusal {
    /// Number of the error (errno(3)).
    pub errno: i32,
    /// The kernel's own words, if it has any.
    said: Option<String>,
}

impl From<io::Error> for NetlinkRefusal {
    fn from(error: io::Error) -> NetlinkRefusal {
        let errno = error.raw_os_error();
        NetlinkRefusal {
            errno: errno.unwrap_or(0),
            said: errno.is_none().then(|| error.to_string()),
        }
    }
}

impl std::fmt::Display for NetlinkRefusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.said {
            Some(words) => f.write_str(words),
            None => io::Error::from_raw_os_error(self.errno).fmt(f),
        }
    }
}

/// A message of the kernel: its type and what follows the header.
#[derive(Debug)]
pub struct NetlinkMessage {
    /// `RTM_*`, or the number of a family.
    pub kind: u16,
    /// What follows the header.
    pub body: Vec<u8>,
}

impl NetlinkMessage {
    fn new(kind: u16, body: &[u8]) -> NetlinkMessage {
        let body = body.to_vec();
        NetlinkMessage { kind, body }
    }
}

impl From<NetlinkRefusal> for io::Error {
    fn from(refusal: NetlinkRefusal) -> io::Error {
        match refusal.errno {
            0 => io::Error::other(refusal.to_string()),
            errno => io::Error::from_raw_os_error(errno),
        }
    }
}

/// Questions to the kernel, one after the other, and its answers.
#[derive(Debug)]
pub struct Conversation {
    socket: Socket,
    sequence: u32,
    room: Vec<u8>,
}

impl Conversation {
    /// Opens the socket in the network namespace of the calling thread.
    pub fn open(protocol: Protocol) -> io::Result<Conversation> {
        let socket = Socket::open(protocol)?;
        // Refusals are short and carry the kernel's own words; before Linux 4.12 the number alone.
        for option in [libc::NETLINK_CAP_ACK, libc::NETLINK_EXT_ACK] {
            let _ = socket.set(option, 1);
        }
        Ok(Conversation {
            socket,
            sequence: 0,
            room: vec![0; ROOM],
        })
    }

    /// Requests one object.
    pub fn get(&mut self, kind: u16, body: &[u8]) -> Result<NetlinkMessage, NetlinkRefusal> {
        let mut answer = None;
        self.converse(kind, REQUEST, body, &mut |kind, body| {
            answer = Some(NetlinkMessage::new(kind, body));
        })?;
        answer.ok_or_else(|| io::Error::other("the kernel's answer is empty").into())
    }

    /// Requests all objects of a kind.
    pub fn dump(&mut self, kind: u16, body: &[u8]) -> Result<Vec<NetlinkMessage>, NetlinkRefusal> {
        let mut tries = 0;
        loop {
            tries += 1;
            let mut all = Vec::new();
            let each = &mut |kind: u16, body: &[u8]| all.push(NetlinkMessage::new(kind, body));
            match self.dump_each(kind, body, each) {
                Err(refusal) if refusal.errno == libc::EINTR && tries < PATIENCE => {}
                other => return other.map(|()| all),
            }
        }
    }

    /// The same where they lie, by their type; `EINTR` if a change has disturbed it.
    pub fn dump_each(
        &mut self,
        kind: u16,
        body: &[u8],
        each: &mut dyn FnMut(u16, &[u8]),
    ) -> Result<(), NetlinkRefusal> {
        self.converse(kind, REQUEST | DUMP, body, each)
    }

    /// Has something done, and waits until it is.
    pub fn order(&mut self, kind: u16, flags: u16, body: &[u8]) -> Result<(), NetlinkRefusal> {
        self.converse(kind, REQUEST | ACK | flags, body, &mut |_, _| ())
    }

    /// The route by which the kernel would reach `peer` now, with `rtm_flags` of the question (`RTM_GETROUTE`, like
    /// `ip route get`). The body is a whole `struct rtmsg`, of 12 bytes, and attributes.
    pub fn route_to(&mut self, peer: IpAddr, flags: u32) -> Result<NetlinkMessage, NetlinkRefusal> {
        let (family, octets) = octets(peer);
        let mut body = vec![family, (octets.len() * 8) as u8, 0, 0, 0, 0, 0, 0];
        body.extend(flags.to_ne_bytes());
        push(&mut body, libc::RTA_DST, &octets);
        let route = self.get(libc::RTM_GETROUTE, &body)?;
        if route.kind != libc::RTM_NEWROUTE || route.body.len() < 12 {
            return Err(io::Error::other("the kernel's answer is not a route").into());
        }
        Ok(route)
    }

    fn converse(
        &mut self,
        kind: u16,
        flags: u16,
        body: &[u8],
        each: &mut dyn FnMut(u16, &[u8]),
    ) -> Result<(), NetlinkRefusal> {
        self.sequence += 1;
        let mut request = Vec::with_capacity(16 + body.len());
        request.extend((16 + body.len() as u32).to_ne_bytes());
        request.extend(kind.to_ne_bytes());
        request.extend(flags.to_ne_bytes());
        request.extend(self.sequence.to_ne_bytes());
        request.extend(0u32.to_ne_bytes());
        request.extend(body);
        self.socket.send(&request)?;

        const NLMSG_ERROR: u16 = 2;
        const NLMSG_DONE: u16 = 3;
        const DISTURBED: u16 = 0x10;
        let dumps = flags & DUMP == DUMP;
        let (mut answers, mut disturbed) = (0, false);
        while answers < MOST_MESSAGES {
            let length = self.socket.receive(&mut self.room)?;
            for message in messages(&self.room[..length]) {
                if u32_at(message, 8) != Some(self.sequence) {
                    continue;
                }
                disturbed |= u16_at(message, 6).is_some_and(|flags| flags & DISTURBED != 0);
                match u16_at(message, 4) {
                    Some(NLMSG_ERROR) => {
                        return match u32_at(message, 16).map(u32::cast_signed) {
                            Some(0) => Ok(()),
                            errno => Err(NetlinkRefusal {
                                errno: -errno.unwrap_or(-libc::EIO),
                                said: said(message),
                            }),
                        };
                    }
                    Some(NLMSG_DONE) if disturbed => {
                        return Err(io::Error::from_raw_os_error(libc::EINTR).into());
                    }
                    Some(NLMSG_DONE) => return Ok(()),
                    Some(kind) => {
                        answers += 1;
                        each(kind, &message[16..]);
                        if !dumps && flags & ACK == 0 {
                            return Ok(());
                        }
                    }
                    None => {}
                }
            }
        }
        Err(io::Error::other("the kernel's answer has no end").into())
    }
}

/// Splits a datagram into its messages by their lengths, each a multiple of four bytes apart.
pub fn messages(datagram: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let length = u32::from_ne_bytes(*rest.first_chunk()?) as usize;
        // A header is 16 bytes: anything shorter would not move on.
        if length < 16 || length > rest.len() {
            return None;
        }
        let message = &rest[..length];
        rest = &rest[length.next_multiple_of(4).min(rest.len())..];
        Some(message)
    })
}

/// Family and octets of an address; an IPv4 address that is mapped into IPv6 is one of IPv4.
pub fn octets(address: IpAddr) -> (u8, Vec<u8>) {
    match address.to_canonical() {
        IpAddr::V4(v4) => (libc::AF_INET as u8, v4.octets().to_vec()),
        IpAddr::V6(v6) => (libc::AF_INET6 as u8, v6.octets().to_vec()),
    }
}

/// The address of these octets; `None` if there are not as many as an address has.
pub fn address(octets: &[u8]) -> Option<IpAddr> {
    let v4 = || <[u8; 4]>::try_from(octets).map(IpAddr::from);
    let v6 = <[u8; 16]>::try_from(octets).map(IpAddr::from);
    v6.or_else(|_| v4()).ok()
}

/// `struct ifinfomsg` for one device; 0 for all.
pub fn ifinfomsg(index: u32) -> Vec<u8> {
    let mut body = vec![0; 4];
    body.extend(index.to_ne_bytes());
    body.extend([0; 8]);
    body
}

/// The words of a refusal: `NLMSGERR_ATTR_MSG` behind the number and the header of the request.
fn said(message: &[u8]) -> Option<String> {
    const NLMSGERR_ATTR_MSG: u16 = 1;
    // Flags: the request was cut to its header, attributes follow.
    let flags = u16_at(message, 6)?;
    if flags & 0x300 != 0x300 {
        return None;
    }
    let words = text(attribute(message.get(36..)?, NLMSGERR_ATTR_MSG)?);
    Some(words.trim_end_matches('.').to_owned())
}

/// Appends a netlink attribute.
pub fn push(to: &mut Vec<u8>, kind: u16, value: &[u8]) {
    to.extend((4 + value.len() as u16).to_ne_bytes());
    to.extend(kind.to_ne_bytes());
    to.extend(value);
    to.resize(to.len().next_multiple_of(4), 0);
}

/// Appends a nested one.
pub fn nest(to: &mut Vec<u8>, kind: u16, value: &[u8]) {
    const NLA_F_NESTED: u16 = 1 << 15;
    push(to, kind | NLA_F_NESTED, value);
}

/// The netlink attributes of a block, up to the first that is broken; flags are taken off the types.
pub fn attributes(block: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = block;
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(rest, 0)?);
        let kind = u16_at(rest, 2)? & 0x3fff;
        let value = rest.get(4..length)?;
        rest = &rest[length.next_multiple_of(4).min(rest.len())..];
        Some((kind, value))
    })
}

/// The value of one attribute of a block.
pub fn attribute(block: &[u8], wanted: u16) -> Option<&[u8]> {
    attributes(block)
        .find(|(kind, _)| *kind == wanted)
        .map(|(_, value)| value)
}

/// The number of 16 bits at this place.
pub fn u16_at(block: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*block.get(at..)?.first_chunk()?))
}

/// The number of 32 bits at this place.
pub fn u32_at(block: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*block.get(at..)?.first_chunk()?))
}

/// The number of 64 bits at this place.
pub fn u64_at(block: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*block.get(at..)?.first_chunk()?))
}

/// Text of a value that ends with NUL.
pub fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value.strip_suffix(&[0]).unwrap_or(value)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_kernel_answers_an_unknown_request_with_an_error() {
        let socket = Socket::open(Protocol::Route).unwrap();
        // struct nlmsghdr: length 16, type 0xffff, flags NLM_F_REQUEST | NLM_F_ACK, sequence 7, port 0.
        let mut request = Vec::new();
        request.extend(16u32.to_ne_bytes());
        request.extend(0xffffu16.to_ne_bytes());
        request.extend(5u16.to_ne_bytes());
        request.extend(7u32.to_ne_bytes());
        request.extend(0u32.to_ne_bytes());
        socket.send(&request).unwrap();
        let mut answer = [0; 4096];
        let n = socket.receive(&mut answer).unwrap();
        assert!(n >= 20);
        // NLMSG_ERROR to the same sequence number.
        assert_eq!(answer[4..6], 2u16.to_ne_bytes());
        assert_eq!(answer[8..12], 7u32.to_ne_bytes());
    }

    #[test]
    fn a_buffer_too_small_is_said() {
        let socket = Socket::open(Protocol::Route).unwrap();
        socket
            .send(&[16, 0, 0, 0, 0xff, 0xff, 5, 0, 1, 0, 0, 0, 0, 0, 0, 0])
            .unwrap();
        let error = socket.receive(&mut [0; 8]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn a_datagram_is_split_where_its_lengths_say() {
        let mut datagram = Vec::new();
        datagram.extend(18u32.to_ne_bytes());
        datagram.extend([1; 14]);
        datagram.extend([0; 2]);
        datagram.extend(16u32.to_ne_bytes());
        datagram.extend([2; 12]);
        datagram.extend([9; 3]);
        let lengths: Vec<_> = messages(&datagram).map(<[u8]>::len).collect();
        assert_eq!(lengths, [18, 16]);
    }

    proptest! {
        #[test]
        fn attributes_come_back_and_any_block_ends(
            value in proptest::collection::vec(any::<u8>(), 0..40),
            block in proptest::collection::vec(0u8..20, 0..100),
        ) {
            let mut raw = Vec::new();
            push(&mut raw, 7, &value);
            nest(&mut raw, 8, &value);
            let back: Vec<_> = attributes(&raw).collect();
            prop_assert_eq!(back, [(7, &value[..]), (8, &value[..])]);
            prop_assert!(attributes(&block).count() <= block.len() / 4);
        }

        #[test]
        fn any_datagram_ends(raw in proptest::collection::vec(0u8..40, 0..200)) {
            prop_assert!(messages(&raw).count() <= raw.len() / 16);
        }
    }
}

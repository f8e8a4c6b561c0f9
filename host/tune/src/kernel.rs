//! Conversations with the kernel over netlink, in raw bytes: what is to be put back verbatim must not be
//! taken apart further than needed.

use std::io;
use std::net::IpAddr;
use sys::netlink::{Protocol, Socket};

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
pub(crate) const REPLACE: u16 = 0x100;
/// Of a request that makes something: make it if it is not there.
pub(crate) const CREATE: u16 = 0x400;

/// What the kernel says instead of doing what it was asked.
#[derive(Debug)]
pub(crate) struct Refusal {
    /// Number of the error (errno(3)).
    pub errno: i32,
    /// The kernel's own words, if it has any.
    said: Option<String>,
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Refusal {
        let errno = error.raw_os_error();
        Refusal {
            errno: errno.unwrap_or(0),
            said: errno.is_none().then(|| error.to_string()),
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.said {
            Some(words) => f.write_str(words),
            None => io::Error::from_raw_os_error(self.errno).fmt(f),
        }
    }
}

/// A message of the kernel: its type and what follows the header.
pub(crate) struct Message {
    pub kind: u16,
    pub body: Vec<u8>,
}

/// The kernel, as it is asked and told by this crate.
pub(crate) struct Kernel {
    socket: Socket,
    sequence: u32,
}

impl Kernel {
    /// Speaks to routing netlink in the network namespace of the calling thread.
    pub fn open() -> io::Result<Kernel> {
        Kernel::speaking(Protocol::Route)
    }

    pub fn speaking(protocol: Protocol) -> io::Result<Kernel> {
        let socket = Socket::open(protocol)?;
        // Old kernels have fewer words.
        let _ = socket.explain_refusals();
        Ok(Kernel {
            socket,
            sequence: 0,
        })
    }

    /// Asks for one object.
    pub fn get(&mut self, kind: u16, body: &[u8]) -> Result<Message, Refusal> {
        let mut all = self.converse(kind, REQUEST, body)?;
        if all.is_empty() {
            return Err(io::Error::other("the kernel's answer is empty").into());
        }
        Ok(all.swap_remove(0))
    }

    /// Asks for all objects of a kind.
    pub fn dump(&mut self, kind: u16, body: &[u8]) -> Result<Vec<Message>, Refusal> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.converse(kind, REQUEST | DUMP, body) {
                Err(refusal) if refusal.errno == libc::EINTR && tries < PATIENCE => {}
                other => return other,
            }
        }
    }

    /// Has something done, and waits until it is.
    pub fn tell(&mut self, kind: u16, flags: u16, body: &[u8]) -> Result<(), Refusal> {
        self.converse(kind, REQUEST | ACK | flags, body).map(drop)
    }

    fn converse(&mut self, kind: u16, flags: u16, body: &[u8]) -> Result<Vec<Message>, Refusal> {
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
        let mut answers = Vec::new();
        let mut disturbed = false;
        let mut room = vec![0; ROOM];
        while answers.len() < MOST_MESSAGES {
            let length = self.socket.receive(&mut room)?;
            let mut rest = &room[..length];
            while let Some(length) = u32_at(rest, 0).map(|n| n as usize) {
                if length < 16 || length > rest.len() {
                    break;
                }
                let message = &rest[..length];
                rest = &rest[length.next_multiple_of(4).min(rest.len())..];
                if u32_at(message, 8) != Some(self.sequence) {
                    continue;
                }
                disturbed |= u16_at(message, 6).is_some_and(|flags| flags & DISTURBED != 0);
                match u16_at(message, 4) {
                    Some(NLMSG_ERROR) => {
                        return match u32_at(message, 16).map(u32::cast_signed) {
                            Some(0) => Ok(answers),
                            errno => Err(Refusal {
                                errno: -errno.unwrap_or(-libc::EIO),
                                said: said(message),
                            }),
                        };
                    }
                    Some(NLMSG_DONE) if disturbed => {
                        return Err(io::Error::from_raw_os_error(libc::EINTR).into());
                    }
                    Some(NLMSG_DONE) => return Ok(answers),
                    Some(kind) => {
                        answers.push(Message {
                            kind,
                            body: message[16..].to_vec(),
                        });
                        if !dumps && flags & ACK == 0 {
                            return Ok(answers);
                        }
                    }
                    None => {}
                }
            }
        }
        Err(io::Error::other("the kernel's answer has no end").into())
    }

    /// Index of the device by which the kernel would reach the peer.
    pub fn device_towards(&mut self, peer: IpAddr) -> Result<u32, Refusal> {
        const RTA_OIF: u16 = 4;
        let route = self.route_to(peer, 0)?;
        attribute(&route.body[12..], RTA_OIF)
            .and_then(|value| u32_at(value, 0))
            .ok_or_else(|| io::Error::other("the route names no device").into())
    }

    /// `RTM_GETROUTE` for one destination, with `rtm_flags`; the body is a whole `rtmsg` and more.
    pub fn route_to(&mut self, peer: IpAddr, flags: u32) -> Result<Message, Refusal> {
        const RTM_NEWROUTE: u16 = 24;
        const RTM_GETROUTE: u16 = 26;
        const RTA_DST: u16 = 1;
        let (family, octets) = address(peer);
        let mut body = vec![family, (octets.len() * 8) as u8, 0, 0, 0, 0, 0, 0];
        body.extend(flags.to_ne_bytes());
        push(&mut body, RTA_DST, &octets);
        let route = self.get(RTM_GETROUTE, &body)?;
        if route.kind != RTM_NEWROUTE || route.body.len() < 12 {
            return Err(io::Error::other("the kernel's answer is not a route").into());
        }
        Ok(route)
    }
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

/// Family and octets of an address; one of IPv4 in IPv6's clothes is one of IPv4.
pub(crate) fn address(peer: IpAddr) -> (u8, Vec<u8>) {
    match peer.to_canonical() {
        IpAddr::V4(v4) => (libc::AF_INET as u8, v4.octets().to_vec()),
        IpAddr::V6(v6) => (libc::AF_INET6 as u8, v6.octets().to_vec()),
    }
}

/// Appends a netlink attribute.
pub(crate) fn push(to: &mut Vec<u8>, kind: u16, value: &[u8]) {
    to.extend((4 + value.len() as u16).to_ne_bytes());
    to.extend(kind.to_ne_bytes());
    to.extend(value);
    to.resize(to.len().next_multiple_of(4), 0);
}

/// Appends a nested one.
pub(crate) fn nest(to: &mut Vec<u8>, kind: u16, value: &[u8]) {
    const NLA_F_NESTED: u16 = 1 << 15;
    push(to, kind | NLA_F_NESTED, value);
}

/// The netlink attributes of a block, up to the first that is broken; flags are taken off the types.
pub(crate) fn attributes(block: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = block;
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(rest, 0)?);
        let kind = u16_at(rest, 2)? & 0x3fff;
        let value = rest.get(4..length)?;
        rest = &rest[length.next_multiple_of(4).min(rest.len())..];
        Some((kind, value))
    })
}

/// One of them.
pub(crate) fn attribute(block: &[u8], wanted: u16) -> Option<&[u8]> {
    attributes(block)
        .find(|(kind, _)| *kind == wanted)
        .map(|(_, value)| value)
}

pub(crate) fn u16_at(block: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*block.get(at..)?.first_chunk()?))
}

pub(crate) fn u32_at(block: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*block.get(at..)?.first_chunk()?))
}

pub(crate) fn u64_at(block: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*block.get(at..)?.first_chunk()?))
}

/// Text of a value that ends with NUL.
pub(crate) fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value.strip_suffix(&[0]).unwrap_or(value)).into_owned()
}

/// Bytes as they are kept in the journal.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// The way back; `None` if it is not hexadecimal.
pub(crate) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    text.len()
        .is_multiple_of(2)
        .then(|| text.as_bytes().chunks(2).map(pair).collect())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_kernel_finds_its_own_loopback_and_refuses_in_words() {
        let mut kernel = Kernel::open().unwrap();
        let lo = kernel.device_towards([127, 0, 0, 1].into()).unwrap();
        assert_eq!(lo, 1);
        // RTM_GETROUTE with a strange family.
        let refusal = kernel.get(26, &[0xee; 12]).err().unwrap();
        assert_ne!(refusal.errno, 0);
        assert!(!refusal.to_string().is_empty());
    }

    #[test]
    fn hexadecimal_goes_there_and_back() {
        assert_eq!(to_hex(&[0, 255, 16]), "00ff10");
        assert_eq!(from_hex("00ff10"), Some(vec![0, 255, 16]));
        assert_eq!(from_hex("0"), None);
        assert_eq!(from_hex("zz"), None);
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
    }
}

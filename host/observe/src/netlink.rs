//! Questions to the kernel's routing netlink (rtnetlink(7)), and its answers as messages.

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use std::io;
use sys::netlink::{Protocol, Socket};

/// A conversation with the kernel, one question after the other.
pub(crate) struct Rtnetlink {
    socket: Socket,
    sequence: u32,
}

/// A dump fills at most this (`NLMSG_GOODSIZE` and `max_recvmsg_len` in `net/netlink/af_netlink.c`).
const ROOM: usize = 64 * 1024;

/// Datagrams of one answer: each holds tens of messages, so this is far beyond any real host.
const MOST_DATAGRAMS: usize = 4096;

impl Rtnetlink {
    pub(crate) fn open() -> io::Result<Rtnetlink> {
        let socket = Socket::open(Protocol::Route)?;
        Ok(Rtnetlink {
            socket,
            sequence: 0,
        })
    }

    /// Asks for one object.
    pub(crate) fn get(&mut self, question: RouteNetlinkMessage) -> io::Result<RouteNetlinkMessage> {
        let first = self.ask(question, false)?.into_iter().next();
        first.ok_or_else(|| invalid("the kernel's answer is empty"))
    }

    /// Asks for all objects of a kind.
    pub(crate) fn dump(
        &mut self,
        question: RouteNetlinkMessage,
    ) -> io::Result<Vec<RouteNetlinkMessage>> {
        self.ask(question, true)
    }

    fn ask(
        &mut self,
        question: RouteNetlinkMessage,
        is_dump: bool,
    ) -> io::Result<Vec<RouteNetlinkMessage>> {
        self.sequence += 1;
        let mut message = NetlinkMessage::from(question);
        message.header.flags = NLM_F_REQUEST | if is_dump { NLM_F_DUMP } else { 0 };
        message.header.sequence_number = self.sequence;
        message.finalize();
        let mut request = vec![0; message.buffer_len()];
        message.serialize(&mut request);
        self.socket.send(&request)?;

        let mut answers = Vec::new();
        // An object that cannot be decoded must not hide the others of a dump: it is an error only if
        // nothing else came.
        let mut undecoded = None;
        let mut room = vec![0; ROOM];
        for _ in 0..MOST_DATAGRAMS {
            let length = self.socket.receive(&mut room)?;
            for raw in messages(&room[..length]) {
                let answer = match NetlinkMessage::<RouteNetlinkMessage>::deserialize(raw) {
                    Ok(answer) => answer,
                    Err(error) => {
                        undecoded = Some(invalid(error));
                        if is_dump {
                            continue;
                        }
                        return finish(answers, undecoded);
                    }
                };
                if answer.header.sequence_number != self.sequence {
                    continue;
                }
                match answer.payload {
                    NetlinkPayload::InnerMessage(inner) => {
                        answers.push(inner);
                        if !is_dump {
                            return Ok(answers);
                        }
                    }
                    NetlinkPayload::Error(error) if error.code.is_some() => {
                        return Err(error.to_io());
                    }
                    NetlinkPayload::Done(_) => return finish(answers, undecoded),
                    _ => {}
                }
            }
        }
        finish(answers, undecoded)
    }
}

/// The kernel's answer is not as it should be.
pub(crate) fn invalid(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

fn finish(
    answers: Vec<RouteNetlinkMessage>,
    undecoded: Option<io::Error>,
) -> io::Result<Vec<RouteNetlinkMessage>> {
    match undecoded {
        Some(error) if answers.is_empty() => Err(error),
        _ => Ok(answers),
    }
}

/// Splits a datagram into its messages by their lengths, each a multiple of four bytes apart.
pub(crate) fn messages(datagram: &[u8]) -> impl Iterator<Item = &[u8]> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
        fn any_datagram_ends(raw in proptest::collection::vec(0u8..40, 0..200)) {
            prop_assert!(messages(&raw).count() <= raw.len() / 16);
        }
    }
}

//! Questions to the kernel's routing netlink (rtnetlink(7)), and its answers as messages.

use netlink_packet_core::{NetlinkDeserializable, NetlinkHeader, NetlinkSerializable};
use netlink_packet_route::RouteNetlinkMessage;
use std::io;
use sys::netlink::{Conversation, Message, Protocol};

/// A conversation with the kernel, one question after the other.
pub(crate) struct Rtnetlink(Conversation);

impl Rtnetlink {
    pub(crate) fn open() -> io::Result<Rtnetlink> {
        Conversation::open(Protocol::Route).map(Rtnetlink)
    }

    /// Asks for one object.
    pub(crate) fn get(&mut self, question: RouteNetlinkMessage) -> io::Result<RouteNetlinkMessage> {
        let (kind, body) = encoded(&question);
        decoded(&self.0.get(kind, &body)?)
    }

    /// Asks for all objects of a kind. One that cannot be decoded must not hide the others: it is an error
    /// only if nothing else came.
    pub(crate) fn dump(
        &mut self,
        question: RouteNetlinkMessage,
    ) -> io::Result<Vec<RouteNetlinkMessage>> {
        let (kind, body) = encoded(&question);
        let (mut answers, mut undecoded) = (Vec::new(), None);
        for answer in self.0.dump(kind, &body)? {
            match decoded(&answer) {
                Ok(answer) => answers.push(answer),
                Err(error) => undecoded = Some(error),
            }
        }
        match undecoded {
            Some(error) if answers.is_empty() => Err(error),
            _ => Ok(answers),
        }
    }
}

fn encoded(question: &RouteNetlinkMessage) -> (u16, Vec<u8>) {
    let mut body = vec![0; question.buffer_len()];
    question.serialize(&mut body);
    (question.message_type(), body)
}

fn decoded(answer: &Message) -> io::Result<RouteNetlinkMessage> {
    let mut header = NetlinkHeader::default();
    header.message_type = answer.kind;
    RouteNetlinkMessage::deserialize(&header, &answer.body).map_err(invalid)
}

/// The kernel's answer is not as it should be.
pub(crate) fn invalid(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

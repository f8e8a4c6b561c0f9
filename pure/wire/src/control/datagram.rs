//! Datagrams of a leg: how a stream of them begins, and what each carries.
//!
//! The controller greets the data port from the socket of a stream. The agent answers with a challenge for that
//! address, and takes the stream once the challenge has come back from there. So nobody's address can be made the
//! target of a leg, and the answer is no longer than the greeting. The controller repeats the echo until the leg
//! starts.

use super::messages::TOKEN_LEN;
use super::preamble::Token;
use model::Nanos;

/// Of every greeting: "linerate datagram stream", first form.
const MAGIC: [u8; 4] = *b"LRd1";

/// Bytes of a challenge.
pub const CHALLENGE_LEN: usize = 8;

/// Bytes of a greeting.
pub const GREETING_LEN: usize = MAGIC.len() + TOKEN_LEN + 1 + 4 + CHALLENGE_LEN;

/// What a greeting says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GreetingKind {
    /// From the controller: here is a stream.
    Hello,
    /// From the agent: send this back.
    Challenge,
    /// From the controller: the challenge.
    Echo,
}

/// A datagram before the load. All are of one length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamGreeting {
    /// What it says.
    pub kind: GreetingKind,
    /// Number of the stream within its leg, from 0.
    pub stream: u32,
    /// Zero in a [`GreetingKind::Hello`].
    pub challenge: [u8; CHALLENGE_LEN],
}

impl StreamGreeting {
    /// Its bytes.
    pub fn encode(&self, token: &Token) -> [u8; GREETING_LEN] {
        let kind = match self.kind {
            GreetingKind::Hello => 0,
            GreetingKind::Challenge => 1,
            GreetingKind::Echo => 2,
        };
        let stream = self.stream.to_be_bytes();
        let parts: [&[u8]; 5] = [&MAGIC, token.as_bytes(), &[kind], &stream, &self.challenge];
        let mut bytes = [0; GREETING_LEN];
        let all = parts.into_iter().flatten();
        bytes.iter_mut().zip(all).for_each(|(to, from)| *to = *from);
        bytes
    }

    /// The reverse; `None` for anything that does not carry the token, or is none.
    pub fn decode(bytes: &[u8], token: &Token) -> Option<StreamGreeting> {
        let bytes: &[u8; GREETING_LEN] = bytes.try_into().ok()?;
        let rest = token.strip_from(bytes.strip_prefix(&MAGIC)?)?;
        let ([kind], rest) = rest.split_first_chunk()?;
        let (stream, challenge) = rest.split_first_chunk()?;
        Some(StreamGreeting {
            kind: match kind {
                0 => GreetingKind::Hello,
                1 => GreetingKind::Challenge,
                2 => GreetingKind::Echo,
                _ => return None,
            },
            stream: u32::from_be_bytes(*stream),
            challenge: challenge.try_into().ok()?,
        })
    }
}

/// What stands at the start of each datagram of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramHeader {
    /// From 1; of the end of a stream, how many there were.
    pub number: u64,
    /// The stream is over: this datagram is none of it.
    pub is_end: bool,
    /// When it was sent, since 1970 by the sender's clock. Datagrams that leave in one message have one time.
    pub sent: Nanos,
}

impl DatagramHeader {
    /// Bytes of a header: the first eight of the token, number and time in big-endian order.
    pub const LEN: usize = 24;
    const END: u64 = 1 << 63;

    /// Writes it at the start of a datagram, if that is long enough.
    pub fn encode(&self, datagram: &mut [u8], token: &Token) {
        let Some(start) = datagram.first_chunk_mut::<{ DatagramHeader::LEN }>() else {
            return;
        };
        let end = if self.is_end { DatagramHeader::END } else { 0 };
        start[..8].copy_from_slice(&token.as_bytes()[..8]);
        start[8..16].copy_from_slice(&(self.number & !DatagramHeader::END | end).to_be_bytes());
        start[16..].copy_from_slice(&self.sent.0.to_be_bytes());
    }

    /// The reverse; `None` if it is not of this leg.
    pub fn decode(datagram: &[u8], token: &Token) -> Option<DatagramHeader> {
        let (tag, rest) = datagram.split_first_chunk::<8>()?;
        let (number, rest) = rest.split_first_chunk()?;
        let number = u64::from_be_bytes(*number);
        (tag[..] == token.as_bytes()[..8]).then_some(DatagramHeader {
            number: number & !DatagramHeader::END,
            is_end: number & DatagramHeader::END != 0,
            sent: Nanos(u64::from_be_bytes(*rest.first_chunk()?)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn there_and_back(token: [u8; TOKEN_LEN], stream: u32, challenge: [u8; CHALLENGE_LEN], flip in 0..GREETING_LEN) {
            let token = Token::new(token);
            for kind in [GreetingKind::Hello, GreetingKind::Challenge, GreetingKind::Echo] {
                let greeting = StreamGreeting { kind, stream, challenge };
                let mut bytes = greeting.encode(&token);
                prop_assert_eq!(StreamGreeting::decode(&bytes, &token), Some(greeting));
                prop_assert_eq!(StreamGreeting::decode(&bytes[1..], &token), None);
                bytes[flip] ^= 1;
                prop_assert_ne!(StreamGreeting::decode(&bytes, &token), Some(greeting));
            }
        }

        #[test]
        fn headers_there_and_back(token: [u8; TOKEN_LEN], number in 0..1u64 << 63, is_end: bool, sent: u64, more in 0..100usize) {
            let token = Token::new(token);
            let header = DatagramHeader { number, is_end, sent: Nanos(sent) };
            let mut datagram = vec![7; DatagramHeader::LEN + more];
            header.encode(&mut datagram, &token);
            prop_assert_eq!(DatagramHeader::decode(&datagram, &token), Some(header));
            prop_assert_eq!(DatagramHeader::decode(&datagram[..DatagramHeader::LEN - 1], &token), None);
            datagram[0] ^= 1;
            prop_assert_eq!(DatagramHeader::decode(&datagram, &token), None);
        }
    }

    #[test]
    fn only_who_has_the_token_is_understood() {
        let (token, other) = (Token::new([7; TOKEN_LEN]), Token::new([8; TOKEN_LEN]));
        let hello = StreamGreeting {
            kind: GreetingKind::Hello,
            stream: 0,
            challenge: [0; CHALLENGE_LEN],
        };
        assert_eq!(StreamGreeting::decode(&hello.encode(&other), &token), None);
        // A greeting that is repeated during the load is none of its datagrams.
        assert_eq!(DatagramHeader::decode(&hello.encode(&token), &token), None);
    }
}

//! Datagrams of path probing. All begin with a token that the control connection gave out, so that
//! nobody else gets an answer; the agent sends probes only to whom has sent a challenge back to it, so that
//! nobody's address can be made their target. Until then it answers with 8 bytes more than it was sent.

use super::messages::TOKEN_LEN;
use super::preamble::Token;
use model::mtu::Probe;

/// Of every datagram: "linerate path probe", first form.
const MAGIC: [u8; 4] = *b"LRp1";

/// Bytes before what is particular to a kind: magic, token, kind.
const COMMON: usize = MAGIC.len() + TOKEN_LEN + 1;

/// Bytes of a challenge.
pub const CHALLENGE_LEN: usize = 8;

/// Smallest payload of a probe.
pub const LEAST: usize = COMMON + 6;

/// Probes that one answer can report.
pub const MOST_SEEN: usize = 80;

/// How many probes an answer can report that is no larger than a datagram of so many bytes.
pub fn answer_room(bytes: usize) -> usize {
    (bytes.saturating_sub(COMMON) / NUMBERED).min(MOST_SEEN)
}

/// What a datagram says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Datagram {
    /// From the controller: here I am.
    Hello,
    /// To whoever said so: send this back.
    Challenge([u8; CHALLENGE_LEN]),
    /// Sent back; answered by the same.
    Echo([u8; CHALLENGE_LEN]),
    /// A probe, filled up to its size.
    Probe(Probe),
    /// Probes that arrived, at most [`MOST_SEEN`], all of one sender's socket and the latest last.
    Seen(Vec<Probe>),
}

impl Datagram {
    /// Its bytes; a probe's payload is `payload` bytes long (or [`LEAST`]).
    pub fn encode(&self, token: &Token, payload: usize) -> Vec<u8> {
        let (kind, body) = match self {
            Datagram::Hello => (0, Vec::new()),
            Datagram::Challenge(challenge) => (1, challenge.to_vec()),
            Datagram::Echo(challenge) => (2, challenge.to_vec()),
            Datagram::Probe(probe) => (3, put(probe).to_vec()),
            Datagram::Seen(seen) => {
                let last = seen.iter().rev().take(MOST_SEEN).rev();
                (4, last.flat_map(put).collect())
            }
        };
        let mut bytes = [&MAGIC[..], token.as_bytes(), &[kind], &body].concat();
        if let Datagram::Probe(_) = self {
            bytes.resize(payload.max(LEAST), 0);
        }
        bytes
    }

    /// The reverse; `None` for anything that does not carry the token or is none of these.
    pub fn decode(bytes: &[u8], token: &Token) -> Option<Datagram> {
        let rest = token.strip_from(bytes.strip_prefix(&MAGIC)?)?;
        let (kind, rest) = rest.split_first()?;
        Some(match kind {
            0 => Datagram::Hello,
            1 => Datagram::Challenge(*rest.first_chunk()?),
            2 => Datagram::Echo(*rest.first_chunk()?),
            3 => Datagram::Probe(get(rest.first_chunk()?)),
            4 => Datagram::Seen(
                rest.chunks_exact(NUMBERED)
                    .take(MOST_SEEN)
                    .filter_map(|one| Some(get(one.first_chunk()?)))
                    .collect(),
            ),
            _ => return None,
        })
    }
}

/// Bytes of a [`Probe`].
const NUMBERED: usize = 6;

fn put(probe: &Probe) -> [u8; NUMBERED] {
    let [a, b, c, d] = probe.size.to_be_bytes();
    [a, b, c, d, probe.round, probe.copy]
}

fn get(bytes: &[u8; NUMBERED]) -> Probe {
    let [a, b, c, d, round, copy] = *bytes;
    Probe {
        round,
        size: u32::from_be_bytes([a, b, c, d]),
        copy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn numbered() -> impl Strategy<Value = Probe> {
        (any::<u8>(), any::<u32>(), any::<u8>()).prop_map(|(round, size, copy)| Probe {
            round,
            size,
            copy,
        })
    }

    proptest! {
        #[test]
        fn there_and_back(
            token: [u8; TOKEN_LEN],
            challenge: [u8; CHALLENGE_LEN],
            seen in prop::collection::vec(numbered(), 1..MOST_SEEN),
            payload in 0usize..9000,
        ) {
            let token = Token::new(token);
            for datagram in [
                Datagram::Hello,
                Datagram::Challenge(challenge),
                Datagram::Echo(challenge),
                Datagram::Probe(seen[0]),
                Datagram::Seen(seen),
            ] {
                let bytes = datagram.encode(&token, payload);
                prop_assert_eq!(Datagram::decode(&bytes, &token), Some(datagram));
            }
        }

        #[test]
        fn a_wrong_token_is_rejected(token: [u8; TOKEN_LEN], flip in 0..TOKEN_LEN, junk in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut other = token;
            other[flip] ^= 1;
            let hello = Datagram::Hello.encode(&Token::new(other), 0);
            let token = Token::new(token);
            prop_assert_eq!(Datagram::decode(&hello, &token), None);
            let _ = Datagram::decode(&junk, &token);
            let mut close = Datagram::Hello.encode(&token, 0);
            *close.last_mut().unwrap() = junk.first().copied().unwrap_or(9);
            close.extend(junk);
            let _ = Datagram::decode(&close, &token);
        }
    }

    #[test]
    fn an_answer_is_no_larger_than_its_probe() {
        let probe = |size| Probe {
            round: 0,
            size,
            copy: 9,
        };
        let token = Token::new([0; TOKEN_LEN]);
        for payload in [LEAST, 80, 100, 8972] {
            let sent = Datagram::Probe(probe(payload as u32)).encode(&token, payload);
            let answer = Datagram::Seen(vec![probe(1); answer_room(sent.len())]);
            let answer = answer.encode(&token, 0);
            assert!(
                answer.len() <= sent.len() && answer.len() > COMMON,
                "{payload}"
            );
        }
        assert_eq!(answer_room(COMMON), 0);
    }

    #[test]
    fn an_answer_fits_the_smallest_path() {
        let probe = Probe {
            round: 1,
            size: 1500,
            copy: 1,
        };
        let seen = Datagram::Seen(vec![probe; 500]);
        // What every host takes in one piece (RFC 1122), without the headers.
        assert!(seen.encode(&Token::new([0; TOKEN_LEN]), 0).len() <= 576 - 28);
    }
}

//! Enrolment: all that an unauthenticated peer with an invitation may send, in frames of one fixed size, so that
//! nothing of it needs parsing before the token is checked.

use super::messages::TOKEN_LEN;
use super::preamble::Token;

/// Longest name of a host in bytes.
pub const MAX_NAME: usize = 64;

/// Bytes of an encoded [`Request`].
pub const REQUEST_LEN: usize = MAGIC.len() + TOKEN_LEN + 1 + MAX_NAME;

/// Bytes of an encoded [`Answer`].
pub const ANSWER_LEN: usize = MAGIC.len() + 1 + 1 + MAX_NAME;

const MAGIC: [u8; 8] = *b"LRENROL1";

/// "Here is the token of my invitation; I am called `name`."
#[derive(Clone, Debug)]
pub struct EnrolRequest {
    /// Of the invitation.
    pub token: Token,
    /// Name of the host to enrol: see [`is_name`].
    pub name: String,
}

/// What becomes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EnrolAnswer {
    /// Enrolled; the server calls itself `name`.
    Welcome {
        /// Name of the server: see [`is_name`].
        name: String,
    },
    /// No such invitation: never made, used, or expired. The server does not say which.
    Unknown,
    /// The server could not keep the new entry.
    Failed,
}

/// Names are 1 to [`MAX_NAME`] letters, digits, `.`, `_` and `-` of ASCII, so that they are
/// safe in a log, a file and a terminal.
pub fn is_name(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len())
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

impl EnrolRequest {
    /// As a frame. A name that is none (see [`is_name`]) goes as an empty one, which is refused.
    pub fn encode(&self) -> Vec<u8> {
        [&MAGIC[..], self.token.as_bytes(), &named(&self.name)].concat()
    }

    /// The reverse; `None` for anything that [`Request::encode`] does not write.
    pub fn decode(frame: &[u8]) -> Option<EnrolRequest> {
        let whole = frame.len() == REQUEST_LEN;
        let rest = frame.strip_prefix(&MAGIC).filter(|_| whole)?;
        let (token, name) = rest.split_first_chunk::<TOKEN_LEN>()?;
        Some(EnrolRequest {
            token: Token::new(*token),
            name: read_name(name)?,
        })
    }
}

impl EnrolAnswer {
    /// As a frame.
    pub fn encode(&self) -> Vec<u8> {
        let (kind, name) = match self {
            EnrolAnswer::Welcome { name } => (b'W', name.as_str()),
            EnrolAnswer::Unknown => (b'U', ""),
            EnrolAnswer::Failed => (b'F', ""),
        };
        [&MAGIC[..], &[kind], &named(name)].concat()
    }

    /// The reverse; `None` for anything that [`Answer::encode`] does not write.
    pub fn decode(frame: &[u8]) -> Option<EnrolAnswer> {
        let whole = frame.len() == ANSWER_LEN;
        let rest = frame.strip_prefix(&MAGIC).filter(|_| whole)?;
        let (kind, name) = rest.split_first()?;
        match kind {
            b'W' => read_name(name).map(|name| EnrolAnswer::Welcome { name }),
            b'U' if name.iter().all(|&b| b == 0) => Some(EnrolAnswer::Unknown),
            b'F' if name.iter().all(|&b| b == 0) => Some(EnrolAnswer::Failed),
            _ => None,
        }
    }
}

/// Length in one byte, the name, zeros.
fn named(name: &str) -> [u8; 1 + MAX_NAME] {
    let mut field = [0; 1 + MAX_NAME];
    if is_name(name) {
        field[0] = name.len() as u8;
        field[1..=name.len()].copy_from_slice(name.as_bytes());
    }
    field
}

fn read_name(from: &[u8]) -> Option<String> {
    let (&len, rest) = from.split_first()?;
    let (name, zeros) = rest.split_at_checked(usize::from(len))?;
    let name = std::str::from_utf8(name).ok()?;
    (is_name(name) && zeros.iter().all(|&b| b == 0)).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn answers_come_back() {
        for answer in [
            EnrolAnswer::Welcome {
                name: "far-host.example".into(),
            },
            EnrolAnswer::Unknown,
            EnrolAnswer::Failed,
        ] {
            assert_eq!(EnrolAnswer::decode(&answer.encode()), Some(answer));
        }
    }

    #[test]
    fn a_name_that_could_fool_a_terminal_is_none() {
        let long = "a".repeat(MAX_NAME + 1);
        for bad in ["", "a b", "a\n", "\u{1b}[2J", "ä", long.as_str()] {
            assert!(!is_name(bad), "{bad:?}");
            let request = EnrolRequest {
                token: Token::new([7; TOKEN_LEN]),
                name: bad.to_owned(),
            };
            assert!(EnrolRequest::decode(&request.encode()).is_none(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn requests_come_back(token: [u8; TOKEN_LEN], name in "[A-Za-z0-9._-]{1,64}") {
            let request = EnrolRequest { token: Token::new(token), name };
            let back = EnrolRequest::decode(&request.encode()).unwrap();
            prop_assert!(back.token.matches(&request.token));
            prop_assert_eq!(back.name, request.name);
        }

        #[test]
        fn what_is_read_is_what_would_be_written(
            bytes in prop::collection::vec(any::<u8>(), REQUEST_LEN), valid in any::<bool>(),
        ) {
            let mut frame: [u8; REQUEST_LEN] = bytes.try_into().unwrap();
            if valid {
                frame[..MAGIC.len()].copy_from_slice(&MAGIC);
                frame[MAGIC.len() + TOKEN_LEN] %= 4;
            }
            if let Some(request) = EnrolRequest::decode(&frame) {
                prop_assert_eq!(request.encode(), frame);
            }
            let answer: &[u8; ANSWER_LEN] = frame.first_chunk().unwrap();
            if let Some(read) = EnrolAnswer::decode(answer) {
                prop_assert_eq!(&read.encode(), answer);
            }
        }
    }
}

//! Who a host is.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// Lower-case base 32 (RFC 4648, 6): easy to read out, and no `l` beside `1`.
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// Digits of a printed [`NodeId`]: 256 bits by five.
const DIGITS: usize = 52;

/// The key of a host: the SHA-256 of its public key (Ed25519, as SubjectPublicKeyInfo).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId([u8; 32]);

impl NodeId {
    /// Of that SHA-256.
    pub const fn new(sha256: [u8; 32]) -> NodeId {
        NodeId(sha256)
    }

    /// The beginning, for people; 60 bits.
    pub fn short(&self) -> String {
        self.to_string()[..12].to_owned()
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bit = |n: usize| self.0.get(n / 8).map_or(0, |byte| byte >> (7 - n % 8) & 1);
        let digit = |at: usize| (0..5).fold(0, |value, n| value << 1 | bit(at * 5 + n));
        let text: String = (0..DIGITS)
            .map(|at| char::from(ALPHABET[usize::from(digit(at))]))
            .collect();
        f.pad(&text)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeId({self})")
    }
}

impl FromStr for NodeId {
    type Err = String;

    fn from_str(text: &str) -> Result<NodeId, String> {
        let wrong = || {
            format!(
                "'{text}' is not the id of a host: 52 letters and digits, as 'linerate trust show' prints them there"
            )
        };
        if text.len() != DIGITS {
            return Err(wrong());
        }
        let mut bytes = [0u8; 33];
        for (at, digit) in text.bytes().enumerate() {
            let digit = digit.to_ascii_lowercase();
            let value = ALPHABET.iter().position(|a| *a == digit);
            let value = value.ok_or_else(wrong)?;
            for n in (0..5).filter(|n| value >> (4 - n) & 1 == 1) {
                let bit = at * 5 + n;
                bytes[bit / 8] |= 1 << (7 - bit % 8);
            }
        }
        match bytes.split_last() {
            Some((0, id)) => Ok(NodeId(id.try_into().map_err(|_| wrong())?)),
            _ => Err(wrong()),
        }
    }
}

impl Serialize for NodeId {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for NodeId {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<NodeId, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ids_are_printed_and_read_back(bytes: [u8; 32]) {
            let id = NodeId::new(bytes);
            prop_assert_eq!(id.to_string().len(), DIGITS);
            prop_assert_eq!(id.to_string().parse::<NodeId>().unwrap(), id);
            prop_assert!(id.to_string().starts_with(&id.short()));
        }

        #[test]
        fn nothing_else_is_read(text in "[a-z2-7]{52}|.{0,60}") {
            if let Ok(id) = text.parse::<NodeId>() {
                prop_assert_eq!(id.to_string(), text.to_ascii_lowercase());
            }
        }
    }
}

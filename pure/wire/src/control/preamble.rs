//! The first bytes of a data connection: the token of its grant and the number of its stream.

use super::messages::TOKEN_LEN;
use crate::{hex, unhex};
use std::fmt;

/// Bytes of an encoded [`Preamble`].
pub const PREAMBLE_LEN: usize = TOKEN_LEN + 4;

/// Opens the data connections of one leg. Not printed by `Debug`.
#[derive(Clone, Copy)]
pub struct Token([u8; TOKEN_LEN]);

impl Token {
    /// From random bytes.
    pub const fn new(bytes: [u8; TOKEN_LEN]) -> Token {
        Token(bytes)
    }

    /// From the 64 hexadecimal digits that [`Token::to_hex`] wrote; `None` for anything else.
    pub fn from_hex(text: &str) -> Option<Token> {
        unhex(text)?.try_into().ok().map(Token)
    }

    /// The secret itself.
    pub const fn as_bytes(&self) -> &[u8; TOKEN_LEN] {
        &self.0
    }

    /// Lower-case hexadecimal.
    pub fn to_hex(&self) -> String {
        hex(&self.0)
    }

    /// What follows this token in these bytes; `None` if they do not begin with it.
    pub(super) fn strip_from<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let (theirs, rest) = bytes.split_first_chunk()?;
        Token(*theirs).matches(self).then_some(rest)
    }

    /// Whether both are the same, in constant time.
    pub fn matches(&self, other: &Token) -> bool {
        let differing = self
            .0
            .iter()
            .zip(&other.0)
            .fold(0, |all, (a, b)| all | (a ^ b));
        std::hint::black_box(differing) == 0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(secret)")
    }
}

/// What the controller writes first on every data connection.
#[derive(Clone, Copy, Debug)]
pub struct Preamble {
    /// The token of the grant.
    pub token: Token,
    /// Number of the stream within its leg, from 0.
    pub stream: u32,
}

impl Preamble {
    /// The token, then the number in big-endian order.
    pub fn encode(&self) -> [u8; PREAMBLE_LEN] {
        let mut bytes = [0; PREAMBLE_LEN];
        bytes[..TOKEN_LEN].copy_from_slice(&self.token.0);
        bytes[TOKEN_LEN..].copy_from_slice(&self.stream.to_be_bytes());
        bytes
    }

    /// The reverse; the caller compares the token ([`Token::matches`]) and bounds the number.
    pub fn decode(bytes: &[u8; PREAMBLE_LEN]) -> Preamble {
        let (token, stream) = bytes
            .split_first_chunk::<TOKEN_LEN>()
            .expect("the preamble is longer than the token");
        let stream = stream.first_chunk().expect("four bytes follow the token");
        Preamble {
            token: Token(*token),
            stream: u32::from_be_bytes(*stream),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_token_is_not_printed() {
        assert_eq!(format!("{:?}", Token::new([7; 32])), "Token(secret)");
    }

    #[test]
    fn hexadecimal_of_another_length_or_alphabet_is_refused() {
        for bad in [
            "",
            "00",
            &"0".repeat(63),
            &"0".repeat(65),
            &"g".repeat(64),
            &"é".repeat(32),
        ] {
            assert!(Token::from_hex(bad).is_none(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn there_and_back(bytes: [u8; TOKEN_LEN], stream: u32) {
            let token = Token::from_hex(&Token::new(bytes).to_hex()).unwrap();
            let back = Preamble::decode(&Preamble { token, stream }.encode());
            prop_assert!(back.token.matches(&Token::new(bytes)));
            prop_assert_eq!(back.stream, stream);
        }

        #[test]
        fn one_bit_makes_another_token(bytes: [u8; TOKEN_LEN], bit in 0..TOKEN_LEN * 8) {
            let mut other = bytes;
            other[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(!Token::new(bytes).matches(&Token::new(other)));
        }
    }
}

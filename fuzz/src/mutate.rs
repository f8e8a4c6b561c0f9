//! Inputs from inputs, the same ones from the same seed.

/// A small generator (xorshift64*, Vigna 2016): the same seed gives the same numbers everywhere.
pub struct Chance(u64);

impl Chance {
    /// From a seed; zero is no seed.
    pub fn new(seed: u64) -> Chance {
        Chance(seed.max(1))
    }

    /// The next number below `bound`; 0 if the bound is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        (number as usize).checked_rem(bound).unwrap_or(0)
    }
}

/// Longest input that is made.
const LONGEST: usize = 16 * 1024;

/// Texts that decoders of JSON and of numbers find hard.
const WORDS: &[&[u8]] = &[
    b"-1",
    b"1e400",
    b"18446744073709551616",
    b"9223372036854775807",
    b"null",
    b"true",
    b"[]",
    b"{}",
    b"\"\\u0000\"",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\0\0\0\0",
    b"\x1b[2J",
    b"[[[[[[[[[[[[[[[[",
    b"0.1e-320",
];

/// One to four changes of one input, which may borrow from another.
pub fn mutate(input: &[u8], other: &[u8], chance: &mut Chance) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..=chance.below(4) {
        let at = chance.below(bytes.len() + 1);
        let end = (at + 1 + chance.below(16)).min(bytes.len());
        match chance.below(8) {
            0 if at < bytes.len() => bytes[at] ^= 1 << chance.below(8),
            1 if at < bytes.len() => bytes[at] = chance.below(256) as u8,
            2 => drop(bytes.drain(at.min(end)..end)),
            3 => {
                let word = WORDS[chance.below(WORDS.len())];
                bytes.splice(at..at, word.iter().copied());
            }
            4 => {
                let word = WORDS[chance.below(WORDS.len())];
                bytes.splice(at.min(end)..end, word.iter().copied());
            }
            5 => {
                let part = bytes[at.min(end)..end].to_vec();
                bytes.splice(at..at, part);
            }
            6 => bytes.truncate(at),
            _ => {
                let from = chance.below(other.len() + 1);
                let to = (from + chance.below(64)).min(other.len());
                bytes.splice(at..at, other[from..to].iter().copied());
            }
        }
        bytes.truncate(LONGEST);
    }
    bytes
}

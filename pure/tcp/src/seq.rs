//! Sequence numbers: 32 bits that wrap (RFC 9293, 3.4), and positions in a stream that do not.

/// Whether sequence number `a` comes before `b`.
pub fn before(a: u32, b: u32) -> bool {
    offset(b, a) < 0
}

/// From one sequence number to another: negative if that lies before it.
pub fn offset(from: u32, to: u32) -> i64 {
    i64::from(to.wrapping_sub(from) as i32)
}

/// Bytes from one sequence number to another; 0 if that lies before it.
pub fn ahead(from: u32, to: u32) -> u64 {
    u64::try_from(offset(from, to)).unwrap_or(0)
}

/// The later of two sequence numbers.
pub fn later(a: u32, b: u32) -> u32 {
    if before(a, b) { b } else { a }
}

/// A sequence number and its position in a stream: what is within 2 GiB of it has one too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unwrap {
    seq: u32,
    position: u64,
}

impl Unwrap {
    /// The position of the first sequence number of a stream: what came before it has one as well.
    pub const ORIGIN: u64 = 1 << 32;

    /// A stream that begins with this number.
    pub fn new(first: u32) -> Unwrap {
        Unwrap::at(first, Unwrap::ORIGIN)
    }

    /// A number whose position is known.
    pub fn at(seq: u32, position: u64) -> Unwrap {
        Unwrap { seq, position }
    }

    /// The position of the number itself.
    pub fn last(&self) -> u64 {
        self.position
    }

    /// The position of a number near the last one; 0 of what would lie below it.
    pub fn position(&self, seq: u32) -> u64 {
        self.position.saturating_add_signed(offset(self.seq, seq))
    }

    /// The same; none of what would lie below 0.
    pub fn checked_position(&self, seq: u32) -> Option<u64> {
        self.position.checked_add_signed(offset(self.seq, seq))
    }

    /// The sequence number of a position.
    pub fn seq(&self, position: u64) -> u32 {
        self.seq
            .wrapping_add(position.wrapping_sub(self.position) as u32)
    }

    /// Whether a number lies behind it.
    pub fn is_before(&self, seq: u32) -> bool {
        before(self.seq, seq)
    }

    /// The position of a number, and goes on from there.
    pub fn follow(&mut self, seq: u32) -> u64 {
        let position = self.position(seq);
        *self = Unwrap::at(seq, position);
        position
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_do_not_wrap() {
        let mut stream = Unwrap::new(0xffff_ff00);
        assert_eq!(stream.position(0xffff_ff00), Unwrap::ORIGIN);
        assert_eq!(stream.follow(0x100), Unwrap::ORIGIN + 0x200);
        assert_eq!(stream.position(0xffff_fe00), Unwrap::ORIGIN - 0x100);
        assert_eq!(stream.seq(Unwrap::ORIGIN - 0x100), 0xffff_fe00);
        for step in 1..=16u64 {
            let seq = (step << 30).wrapping_add(0x100) as u32;
            assert_eq!(stream.follow(seq), Unwrap::ORIGIN + 0x200 + (step << 30));
        }
    }

    #[test]
    fn nothing_lies_below_the_first_position() {
        let stream = Unwrap::at(10, 5);
        assert_eq!((stream.position(0), stream.checked_position(0)), (0, None));
    }

    #[test]
    fn distances_across_the_wrap() {
        assert_eq!(offset(0xffff_fff0, 0x10), 0x20);
        assert_eq!(offset(0x10, 0xffff_fff0), -0x20);
        assert_eq!(ahead(0x10, 0xffff_fff0), 0);
        assert_eq!(later(0xffff_fff0, 0x10), 0x10);
        assert_eq!(later(0x10, 0xffff_fff0), 0x10);
    }
}

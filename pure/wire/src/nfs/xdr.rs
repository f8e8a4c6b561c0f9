//! The external data representation (RFC 4506): words of four bytes, big-endian, whatever is shorter padded.

/// Writes values one behind the other.
pub struct XdrWriter<'a>(pub &'a mut Vec<u8>);

impl XdrWriter<'_> {
    /// An unsigned integer.
    pub fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    /// Unsigned integers.
    pub fn u32s(&mut self, values: &[u32]) {
        values.iter().for_each(|value| self.u32(*value));
    }

    /// An unsigned hyper integer.
    pub fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    /// Opaque data of variable length.
    pub fn opaque(&mut self, bytes: &[u8]) {
        let length = u32::try_from(bytes.len()).expect("names, handles and blocks are below 4 GiB");
        self.u32(length);
        self.0.extend_from_slice(bytes);
        self.0
            .resize(self.0.len() + bytes.len().wrapping_neg() % 4, 0);
    }
}

/// The bytes that are left to read; `None` from a method: the value is cut off or malformed.
#[derive(Clone, Copy)]
pub struct Xdr<'a>(pub &'a [u8]);

impl<'a> Xdr<'a> {
    /// The next bytes, whatever they are.
    pub fn skip(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    /// An unsigned integer.
    pub fn u32(&mut self) -> Option<u32> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*word))
    }

    /// An unsigned hyper integer.
    pub fn u64(&mut self) -> Option<u64> {
        Some(u64::from(self.u32()?) << 32 | u64::from(self.u32()?))
    }

    /// 0 or 1.
    pub fn bool(&mut self) -> Option<bool> {
        match self.u32()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    /// Opaque data of variable length, at most `most` bytes, padded to four.
    pub fn opaque(&mut self, most: usize) -> Option<&'a [u8]> {
        let length = self.u32()? as usize;
        if length > most {
            return None;
        }
        let bytes = self.skip(length)?;
        self.skip(length.wrapping_neg() % 4)?;
        Some(bytes)
    }

    /// Skips a value of this many bytes that is optional.
    pub fn skip_optional(&mut self, bytes: usize) -> Option<()> {
        if self.bool()? {
            self.skip(bytes)?;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_of_their_bytes_and_no_fewer() {
        let bytes = [0, 0, 0, 1, 0, 0, 0, 2, 9];
        let mut from = Xdr(&bytes);
        assert_eq!(from.u64(), Some((1 << 32) + 2));
        assert_eq!(from.u32(), None);
        assert_eq!(Xdr(&bytes[..7]).u64(), None);
        assert_eq!(Xdr(&[0, 0, 0, 1]).bool(), Some(true));
        assert_eq!(Xdr(&[0, 0, 0, 2]).bool(), None);
    }
}

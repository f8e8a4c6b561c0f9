//! Reading the external data representation (RFC 4506), as far as it was captured.

/// What is left to read.
#[derive(Clone, Copy)]
pub(super) struct Xdr<'a>(pub &'a [u8]);

impl<'a> Xdr<'a> {
    pub fn skip(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    pub fn u32(&mut self) -> Option<u32> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*word))
    }

    pub fn u64(&mut self) -> Option<u64> {
        Some(u64::from(self.u32()?) << 32 | u64::from(self.u32()?))
    }

    /// Opaque data of variable length, padded to four bytes.
    pub fn opaque(&mut self) -> Option<&'a [u8]> {
        let length = self.u32()? as usize;
        let bytes = self.skip(length)?;
        self.skip(length.wrapping_neg() % 4)?;
        Some(bytes)
    }

    /// A name that a stranger chose.
    pub fn name(&mut self) -> Option<String> {
        Some(String::from_utf8_lossy(self.opaque()?).into_owned())
    }

    /// Steps over values by their shapes: `w` 4 bytes, `d` 8, `s` 16, `o` opaque, `b` a list of words, `z` a list
    /// that is empty, `f` attributes of NFSv4; anything else is not known.
    pub fn step(&mut self, shapes: &str) -> Option<()> {
        for shape in shapes.chars() {
            match shape {
                'w' => self.skip(4)?,
                'd' => self.skip(8)?,
                's' => self.skip(16)?,
                'o' => self.opaque()?,
                'z' if self.u32()? == 0 => &[],
                'b' => {
                    let words = self.u32()? as usize;
                    self.skip(words.checked_mul(4)?)?
                }
                'f' => {
                    self.step("b")?;
                    self.opaque()?
                }
                _ => return None,
            };
        }
        Some(())
    }
}

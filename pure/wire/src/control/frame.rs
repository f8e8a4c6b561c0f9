//! Frames: a 32-bit big-endian length and so many bytes of JSON.

use serde::Serialize;

/// Bytes of the length in front of a frame.
pub const HEADER_LEN: usize = 4;

/// Largest frame in bytes, header left out. A sample of 128 streams with a full latency histogram
/// stays below half of it.
pub const MAX_FRAME: usize = 1 << 20;

/// A frame that cannot be: its length, as sent, is zero or above [`MAX_FRAME`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a frame of {0} bytes where 1 to {MAX_FRAME} are allowed")]
pub struct FrameError(pub u64);

/// `message` as one frame.
pub fn encode_frame(message: &impl Serialize) -> Result<Vec<u8>, FrameError> {
    let mut frame = vec![0; HEADER_LEN];
    serde_json::to_writer(&mut frame, message)
        .expect("messages have string keys and a Vec takes all");
    let len = frame.len() - HEADER_LEN;
    match u32::try_from(len) {
        Ok(header) if len <= MAX_FRAME => {
            frame[..HEADER_LEN].copy_from_slice(&header.to_be_bytes());
            Ok(frame)
        }
        _ => Err(FrameError(len as u64)),
    }
}

/// Cuts a stream of bytes into frames. Holds at most one frame beyond what was just pushed.
#[derive(Debug, Default)]
pub struct FrameReader {
    bytes: Vec<u8>,
    taken: usize,
}

impl FrameReader {
    /// Takes bytes as they came, cut anywhere.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole frame, without its header; `None` until more bytes come.
    ///
    /// # Errors
    /// As soon as a header with an impossible length is in, before any room is set aside for it.
    pub fn next_frame(&mut self) -> Result<Option<&[u8]>, FrameError> {
        let rest = &self.bytes[self.taken..];
        let Some((header, body)) = rest.split_first_chunk::<HEADER_LEN>() else {
            return Ok(None);
        };
        let len = u32::from_be_bytes(*header) as usize;
        if len == 0 || len > MAX_FRAME {
            return Err(FrameError(len as u64));
        }
        if body.len() < len {
            return Ok(None);
        }
        self.taken += HEADER_LEN + len;
        Ok(Some(&self.bytes[self.taken - len..self.taken]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_length_out_of_bounds_is_refused_by_its_header_alone() {
        for len in [0u32, MAX_FRAME as u32 + 1, u32::MAX] {
            let mut reader = FrameReader::default();
            reader.push(&len.to_be_bytes());
            assert_eq!(reader.next_frame(), Err(FrameError(u64::from(len))));
        }
        let mut reader = FrameReader::default();
        reader.push(&(MAX_FRAME as u32).to_be_bytes());
        assert_eq!(reader.next_frame(), Ok(None));
        let large = "x".repeat(MAX_FRAME);
        assert!(encode_frame(&large).is_err());
        // With its quotes one byte above, and at the bound.
        assert!(encode_frame(&&large[1..]).is_err());
        assert!(encode_frame(&&large[2..]).is_ok());
    }

    proptest! {
        #[test]
        fn frames_come_back_however_they_are_cut(
            texts in prop::collection::vec("[a-z]{0,40}", 0..8),
            cuts in prop::collection::vec(1usize..20, 1..40),
        ) {
            let stream: Vec<u8> = texts.iter().flat_map(|t| encode_frame(t).unwrap()).collect();
            let mut reader = FrameReader::default();
            let mut got: Vec<String> = Vec::new();
            let mut rest = stream.as_slice();
            for cut in cuts.iter().cycle() {
                if rest.is_empty() { break; }
                let (now, later) = rest.split_at((*cut).min(rest.len()));
                rest = later;
                reader.push(now);
                while let Some(frame) = reader.next_frame().unwrap() {
                    got.push(serde_json::from_slice(frame).unwrap());
                }
            }
            prop_assert_eq!(got, texts);
        }

        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut reader = FrameReader::default();
            reader.push(&bytes);
            while let Ok(Some(_)) = reader.next_frame() {}
        }
    }
}

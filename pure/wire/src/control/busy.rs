//! What a server sends a client that it has no room for, before any TLS. It is not authenticated: a client waits, for
//! a bounded time, and does nothing else because of it.

use model::Nanos;

/// Bytes of an encoded notice.
pub const BUSY_LEN: usize = MAGIC.len() + 2;

const MAGIC: [u8; 8] = *b"LRBUSY1\n";

/// Longest time that is sent or taken.
const LONGEST_S: u64 = 600;

/// "Come again after this."
pub fn encode(again: Nanos) -> [u8; BUSY_LEN] {
    let seconds = again.0.div_ceil(1_000_000_000).clamp(1, LONGEST_S) as u16;
    let mut notice = [0; BUSY_LEN];
    notice[..MAGIC.len()].copy_from_slice(&MAGIC);
    notice[MAGIC.len()..].copy_from_slice(&seconds.to_be_bytes());
    notice
}

/// The reverse; `None` for anything that [`encode`] does not write.
pub fn decode(bytes: &[u8]) -> Option<Nanos> {
    let seconds = bytes.strip_prefix(&MAGIC)?.try_into().ok()?;
    let seconds = u64::from(u16::from_be_bytes(seconds));
    (1..=LONGEST_S)
        .contains(&seconds)
        .then(|| Nanos::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_is_read_again_within_its_bounds_and_nothing_else_is() {
        for (sent, read) in [(0, 1), (1, 1), (1_500, 2), (600_000, 600), (700_000, 600)] {
            let notice = encode(Nanos::from_millis(sent));
            assert_eq!(decode(&notice), Some(Nanos::from_secs(read)));
            assert_eq!(decode(&notice[..BUSY_LEN - 1]), None);
        }
        let with = |seconds: u16| [&MAGIC[..], &seconds.to_be_bytes()].concat();
        assert_eq!(decode(&with(601)), None);
        assert_eq!(decode(&with(0)), None);
        assert_eq!(decode(&[0x16, 3, 1, 0, 0, 0, 0, 0, 0, 1]), None);
    }
}

//! Incompressible data.

/// Data that nothing on the way can compress: xorshift64 (Marsaglia 2003).
pub fn noise(len: usize) -> Vec<u8> {
    let mut x = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x.to_ne_bytes()
    };
    let mut data: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| next()).collect();
    data.truncate(len);
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_has_its_length_and_no_pattern() {
        let data = noise(1001);
        assert_eq!(data.len(), 1001);
        // The first two steps from the golden ratio, by hand.
        let words = [0xdc1b_77ae_0bf3_4dad_u64, 0x64f0_eeb9_026e_6076];
        assert_eq!(data[..16], words.map(u64::to_ne_bytes).concat());
        let ones: u32 = data.iter().map(|b| b.count_ones()).sum();
        assert!((3600..4400).contains(&ones), "{ones}");
        // No word comes again in the largest buffer: nothing for a compressor to find.
        let data = noise(1 << 20);
        let words: std::collections::BTreeSet<&[u8]> = data.chunks(8).collect();
        assert_eq!(words.len(), 1 << 17);
    }
}

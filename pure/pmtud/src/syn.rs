//! The MSS in a SYN that somebody quotes.

/// The MSS option of a SYN (RFC 9293 section 3.2, kind 2), from its TCP header, which may be cut short.
/// `None` if there is none in it.
pub fn mss_of_tcp(header: &[u8]) -> Option<u16> {
    let length = usize::from(*header.get(12)? >> 4) * 4;
    let mut options = header.get(20..length.min(header.len()))?;
    // Each round takes at least a byte.
    loop {
        match *options.first()? {
            0 => return None,
            1 => options = &options[1..],
            2 => return Some(u16::from_be_bytes([*options.get(2)?, *options.get(3)?])),
            _ => {
                let length = usize::from(*options.get(1)?);
                options = options.get(length.max(2)..)?;
            }
        }
    }
}

/// The same from the IP header on.
pub fn mss_of_packet(packet: &[u8]) -> Option<u16> {
    let tcp = match packet.first()? >> 4 {
        4 => packet.get(usize::from(packet[0] & 15) * 4..)?,
        // TCP right behind the fixed header (RFC 8200): a SYN with extension headers is not read.
        6 if *packet.get(6)? == 6 => packet.get(40..)?,
        _ => return None,
    };
    mss_of_tcp(tcp)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn syn(options: &[u8]) -> Vec<u8> {
        let mut header = vec![0; 20];
        header[12] = (((20 + options.len()) / 4) << 4) as u8;
        header.extend(options);
        header
    }

    #[test]
    fn the_option_is_found_behind_others() {
        let mss = [2, 4, 0x05, 0xb4];
        let padded = [1, 1, 4, 2, 3, 3, 7, 1, 2, 4, 0x05, 0xb4];
        for options in [&mss[..], &padded[..]] {
            assert_eq!(mss_of_tcp(&syn(options)), Some(1460));
        }
        let mut packet = vec![0x45; 20];
        packet.extend(syn(&mss));
        assert_eq!(mss_of_packet(&packet), Some(1460));
        let mut packet = vec![0x60, 0, 0, 0, 0, 24, 6, 64];
        packet.extend([0; 32]);
        packet.extend(syn(&mss));
        assert_eq!(mss_of_packet(&packet), Some(1460));
        // RFC 792 demands no more than eight bytes of it.
        assert_eq!(mss_of_tcp(&syn(&mss)[..8]), None);
    }

    proptest! {
        #[test]
        fn anything_ends(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = (mss_of_tcp(&bytes), mss_of_packet(&bytes));
        }
    }
}

//! What the kernel fills in.

use observe::decode_tcp_info;

/// The kernel may fill any number of bytes: a shorter structure knows less, and nothing else.
pub fn tcp_info(bytes: &[u8]) {
    let whole = decode_tcp_info(bytes);
    let shorter = decode_tcp_info(&bytes[..bytes.len().min(104)]);
    assert_eq!(shorter.srtt(), whole.srtt());
    assert_eq!(shorter.cwnd(), whole.cwnd());
    assert_eq!(shorter.total_retrans(), whole.total_retrans());
    assert_eq!(shorter.bytes_acked(), None);
    let mut longer = bytes.to_vec();
    longer.resize(bytes.len().max(1024), 0xff);
    assert_eq!(
        decode_tcp_info(&longer).srtt(),
        decode_tcp_info(&longer[..104]).srtt()
    );
}

/// SYNs as somebody on the way quotes them.
pub fn quoted_syn(bytes: &[u8]) {
    if let Some(mss) = pmtud::mss_of_tcp(bytes) {
        assert!(bytes.windows(2).any(|two| two == mss.to_be_bytes()));
    }
    let _ = pmtud::mss_of_packet(bytes);
}

use super::*;

/// A TCP header of 32 bytes: window scale 7 and MSS 1460 as in a SYN.
fn tcp() -> Vec<u8> {
    let mut tcp = vec![
        0x9c, 0x40, 0x14, 0x5a, 0, 0, 0, 5, 0, 0, 0, 9, 0x80, 0x12, 1, 0,
    ];
    tcp.extend([0, 0, 0, 0, 2, 4, 5, 0xb4, 1, 3, 3, 7, 1, 1, 1, 1]);
    tcp
}

fn in_ipv4(payload: u16) -> Vec<u8> {
    let mut ip = vec![
        0x45, 3, 0, 0, 0, 0, 0x40, 0, 64, 6, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2,
    ];
    ip[2..4].copy_from_slice(&(52 + payload).to_be_bytes());
    ip.extend(tcp());
    ip.extend(vec![0; usize::from(payload)]);
    ip
}

fn in_ipv6(first: u8, extensions: &[u8]) -> Vec<u8> {
    let mut ip = vec![0x60, 0, 0, 0, 0, 0, first, 64];
    ip[4..6].copy_from_slice(&((extensions.len() + 32 + 10) as u16).to_be_bytes());
    ip.extend([0xfd; 32]);
    ip.extend(extensions);
    ip.extend(tcp());
    ip.extend([0; 10]);
    ip
}

/// Ethernet, IPv4, TCP with this many bytes.
pub(crate) fn tcp_frame(payload: u16) -> Vec<u8> {
    let mut frame = vec![0; 12];
    frame.extend([8, 0]);
    frame.extend(in_ipv4(payload));
    frame
}

fn of(link: i32, frame: &[u8]) -> Result<Packet, Skip> {
    packet(link, frame, Nanos(0))
}

#[test]
fn every_link_type_leads_to_the_same_packet() {
    let ip = in_ipv4(10);
    let with = |head: &[u8]| [head, &ip].concat();
    let wanted = of(link::RAW, &ip).unwrap();
    assert_eq!((wanted.from.port(), wanted.to.port()), (40000, 5210));
    assert_eq!((wanted.seq, wanted.ack, wanted.payload), (5, 9, 10));
    assert_eq!((wanted.wscale, wanted.mss), (Some(7), Some(1460)));
    assert!(wanted.marked && wanted.has(SYN));
    let sll2 = [&[8u8, 0][..], &[0; 18]].concat();
    let tagged = [&[0u8; 12][..], &[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6, 8, 0]].concat();
    for (link, frame) in [
        (link::ETHERNET, tcp_frame(10)),
        (link::ETHERNET, with(&tagged)),
        (link::SLL, with(&[&[0u8; 14][..], &[8, 0]].concat())),
        (link::SLL2, with(&sll2)),
        (link::NULL, with(&[2, 0, 0, 0])),
        (link::RAW_BSD, ip.clone()),
    ] {
        assert_eq!(of(link, &frame), Ok(wanted), "{link}");
    }
}

#[test]
fn extensions_of_ipv6_are_walked() {
    let plain = of(link::RAW, &in_ipv6(6, &[])).unwrap();
    // Hop-by-hop of 8 bytes, then a first fragment, then TCP.
    let walked = [44, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 1, 0, 0, 0, 7];
    let first = Packet {
        fragment: true,
        ..plain
    };
    assert_eq!(of(link::RAW, &in_ipv6(0, &walked)), Ok(first));
    let later = [6, 0, 0, 9, 0, 0, 0, 7];
    assert_eq!(of(link::RAW, &in_ipv6(44, &later)), Err(Skip::Fragment));
    assert_eq!(of(link::RAW, &in_ipv6(50, &[0; 8])), Err(Skip::Tunnel));
    assert_eq!(of(link::RAW, &in_ipv6(17, &[0; 8])), Err(Skip::NotTcp));
    let endless = [0u8; 8 * 20];
    assert!(of(link::RAW, &in_ipv6(0, &endless)).is_err());
}

#[test]
fn what_is_no_tcp_packet_says_why() {
    let mut fragment = in_ipv4(10);
    fragment[7] = 1;
    assert_eq!(of(link::RAW, &fragment), Err(Skip::Fragment));
    let mut lies = in_ipv4(10);
    lies[2..4].copy_from_slice(&30u16.to_be_bytes());
    assert_eq!(of(link::RAW, &lies), Err(Skip::Cut));
    assert_eq!(of(147, &in_ipv4(10)), Err(Skip::UnknownLink));
    let arp = [&[0u8; 12][..], &[8, 6], &[0; 28]].concat();
    assert_eq!(of(link::ETHERNET, &arp), Err(Skip::NotIp));
    let whole = tcp_frame(10);
    for end in 0..54 {
        assert_eq!(of(link::ETHERNET, &whole[..end]), Err(Skip::Cut), "{end}");
    }
    let snapped = of(link::ETHERNET, &whole[..64]).unwrap();
    assert_eq!(snapped.payload, 10);
}

/// An IPv4 header around something.
fn around(protocol: u8, inner: &[u8]) -> Vec<u8> {
    let mut ip = in_ipv4(0)[..20].to_vec();
    ip[2..4].copy_from_slice(&(20 + inner.len() as u16).to_be_bytes());
    ip[9] = protocol;
    [&ip, inner].concat()
}

/// UDP to a port around something.
fn to_port(port: u16, inner: &[u8]) -> Vec<u8> {
    let udp = [&[0xc0, 0][..], &port.to_be_bytes(), &[0; 4], inner].concat();
    around(17, &udp)
}

#[test]
fn tunnels_and_labels_are_taken_off() {
    let ip = in_ipv4(10);
    let frame = tcp_frame(10);
    let with = |head: &[u8], rest: &[u8]| [head, rest].concat();
    let ethernet = |kind: [u8; 2], rest: &[u8]| [&[0u8; 12][..], &kind, rest].concat();
    let wanted = of(link::RAW, &ip);
    assert!(wanted.is_ok());
    let nested = (0..10).fold(ip.clone(), |inner, _| around(4, &inner));
    let mut authenticated = vec![6, 4];
    authenticated.extend([0; 22]);
    authenticated.extend(&ip[20..]);
    let labels = [0, 1, 0x20, 64, 0, 1, 0x31, 64];
    let pppoe = [0x11, 0, 0, 7, 0, 99, 0, 0x21];
    let llc = [0, 99, 0xaa, 0xaa, 3, 0, 0, 0, 8, 0];
    let vxlan = [8, 0, 0, 0, 0, 0, 42, 0];
    let geneve = [1, 0, 0x65, 0x58, 0, 0, 42, 0, 1, 2, 3, 0];
    for (name, link, bytes) in [
        (
            "MPLS",
            link::ETHERNET,
            ethernet([0x88, 0x47], &with(&labels, &ip)),
        ),
        (
            "PPPoE",
            link::ETHERNET,
            ethernet([0x88, 0x64], &with(&pppoe, &ip)),
        ),
        (
            "LLC and SNAP",
            link::ETHERNET,
            [&[0; 12][..], &llc, &ip].concat(),
        ),
        ("PPP", link::PPP, with(&[0, 0x21], &ip)),
        (
            "PPP in HDLC",
            link::PPP_HDLC,
            with(&[0xff, 3, 0, 0x21], &ip),
        ),
        ("IP in IP", link::RAW, around(4, &ip)),
        ("ten times", link::RAW, nested),
        ("IP in IPv6", link::RAW, {
            let mut outer = in_ipv6(4, &[])[..40].to_vec();
            outer[4..6].copy_from_slice(&(ip.len() as u16).to_be_bytes());
            with(&outer, &ip)
        }),
        ("authenticated", link::RAW, around(51, &authenticated)),
        ("GRE", link::RAW, around(47, &with(&[0, 0, 8, 0], &ip))),
        ("GRE with a key and numbers", link::RAW, {
            around(47, &with(&[0x30, 0, 8, 0, 0, 0, 0, 7, 0, 0, 0, 1], &ip))
        }),
        (
            "Ethernet in GRE",
            link::RAW,
            around(47, &with(&[0, 0, 0x65, 0x58], &frame)),
        ),
        ("VXLAN", link::RAW, to_port(4789, &with(&vxlan, &frame))),
        (
            "VXLAN of old",
            link::RAW,
            to_port(8472, &with(&vxlan, &frame)),
        ),
        (
            "Geneve with an option",
            link::RAW,
            to_port(6081, &with(&geneve, &frame)),
        ),
    ] {
        assert_eq!(of(link, &bytes), wanted, "{name}");
        for end in 0..bytes.len() - 42 {
            assert!(of(link, &bytes[..end]).is_err(), "{name} at {end}");
        }
    }
    let sixth = in_ipv6(6, &[]);
    assert_eq!(of(link::RAW, &around(41, &sixth)), of(link::RAW, &sixth));
    let endless = (0..60).fold(ip.clone(), |inner, _| around(4, &inner));
    for (name, bytes, why) in [
        ("ESP", around(50, &[0; 40]), Skip::Tunnel),
        ("PPTP", around(47, &[0x30, 1, 0x88, 0x0b]), Skip::Tunnel),
        (
            "ERSPAN",
            around(47, &[0x10, 0, 0x88, 0xbe, 0, 0, 0, 0]),
            Skip::Tunnel,
        ),
        ("one in another for ever", endless, Skip::Tunnel),
        ("DNS", to_port(53, &[0; 40]), Skip::NotTcp),
        ("no VXLAN", to_port(4789, &[0; 40]), Skip::NotTcp),
        (
            "versions that contradict",
            around(41, &ip)[..20].to_vec(),
            Skip::Cut,
        ),
    ] {
        assert_eq!(of(link::RAW, &bytes), Err(why), "{name}");
    }
}

#[test]
fn options_that_were_cut_off_are_not_taken_for_missing() {
    // A SYN of 64 captured bytes: its window scale stands behind.
    let whole = tcp_frame(0);
    assert!(!of(link::ETHERNET, &whole).unwrap().options_cut);
    let cut = of(link::ETHERNET, &whole[..58]).unwrap();
    assert!(cut.options_cut && cut.wscale.is_none());
    assert_eq!(cut.mss, Some(1460));
}

#[test]
fn a_first_fragment_says_that_it_goes_on() {
    let mut first = in_ipv4(10);
    first[6] = 0x20;
    assert!(of(link::RAW, &first).unwrap().fragment);
    assert!(!of(link::RAW, &in_ipv4(10)).unwrap().fragment);
}

#[test]
fn a_super_segment_whose_length_is_left_to_the_device() {
    let mut ip = in_ipv4(1000);
    ip[2..4].copy_from_slice(&[0, 0]);
    assert_eq!(of(link::RAW, &ip).unwrap().payload, 1000);
}

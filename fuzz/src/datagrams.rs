//! Datagrams of a leg, and what their receiver counts.

use model::{ArrivalCounter, Nanos};
use wire::control::Token;
use wire::control::datagram::{DatagramHeader, StreamGreeting};

/// What stands in the corpus; the tag of datagrams is the first eight bytes.
const TOKEN: Token = Token::new(*b"0123456789abcdef0123456789abcdef");

pub fn greeting(bytes: &[u8]) {
    if let Some(greeting) = StreamGreeting::decode(bytes, &TOKEN) {
        assert_eq!(greeting.encode(&TOKEN)[..], *bytes);
    }
}

/// Datagrams of the least size, one after the other; what is none of the leg stands for drops of the socket.
pub fn arrivals(bytes: &[u8]) {
    let mut counter = ArrivalCounter::default();
    let mut before = counter.totals();
    for (moment, datagram) in (0..).zip(bytes.chunks_exact(DatagramHeader::LEN)) {
        match DatagramHeader::decode(datagram, &TOKEN) {
            Some(header) if header.is_end => counter.ended(header.number),
            Some(header) => {
                let mut again = [0; DatagramHeader::LEN];
                header.encode(&mut again, &TOKEN);
                assert_eq!(again, *datagram);
                counter.arrived(header.number, header.sent, Nanos::from_micros(moment));
            }
            None => counter.dropped(datagram[0].into()),
        }
        let totals = counter.totals();
        assert!(totals.packets >= before.packets, "the highest number fell");
        assert!(totals.lost <= totals.packets, "more lost than sent");
        before = totals;
    }
    let arrivals = counter.arrivals();
    assert_eq!(arrivals.received, before.packets - before.lost);
    assert!(arrivals.dropped <= before.lost && arrivals.longest_loss <= before.lost);
    assert!(arrivals.loss_events <= before.lost);
    assert_eq!(arrivals.loss_events == 0, before.lost == 0);
    assert_eq!(arrivals.delay_variation.count(), arrivals.received);
}

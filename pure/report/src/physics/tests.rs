use super::*;
use model::physics::IdealPath;
use model::{BitRate, Bytes};

pub(crate) fn of_8_kib(hops: u32) -> Vec<Ideal> {
    let of = |mtu| {
        let path = IdealPath {
            mtu,
            rate: BitRate(1_000_000_000),
            rtt: Nanos::from_micros(200),
            hops,
            initial_window: 2,
            window: None,
        };
        path.ideal(Bytes(8192))
    };
    vec![of(1500), of(9000)]
}

#[test]
fn one_block_and_many() {
    let two = text(&of_8_kib(2), Style::PLAIN);
    for said in [
        "8.00 KiB over 2 links that store and forward, of 1.00 Gbit/s, round trip 200 us: at best 182 us",
        "frames                     6 of up to 1448 bytes  1 of up to 8948 bytes",
        "has arrived after          182 us                 233 us",
        "an endless transfer        941 Mbit/s             990 Mbit/s",
        "larger frames are stored longer on their way. Many have 5.2 % more of the rate with 9000.",
    ] {
        let found = two.replace('\n', " ").contains(said);
        assert!(found, "{said}: {two}");
    }
    let one = text(&of_8_kib(1), Style::PLAIN).replace('\n', " ");
    assert!(
        one.contains("earlier with packets of 9000 bytes than of 1500, and many"),
        "{one}"
    );
}

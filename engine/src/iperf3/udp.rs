//! iperf3's datagrams on the engine for datagrams.

use measure::{Count, Stamp};
use model::{Datagrams, Nanos};
use std::sync::Arc;
use wire::iperf3::{Counter, UdpHeader};

/// Writes iperf3's header into each datagram.
pub fn stamp(wide: bool) -> Stamp {
    Arc::new(move |datagram: &mut [u8], number: u64, sent: Nanos| {
        let sequence = i64::try_from(number).unwrap_or(i64::MAX);
        UdpHeader::new(sent, sequence).encode(datagram, wide);
    })
}

/// Counts iperf3's datagrams, one counter a stream.
pub fn counters(streams: usize, wide: bool) -> Vec<Box<dyn Count>> {
    let counter = || -> Box<dyn Count> {
        Box::new(Counting {
            counter: Counter::default(),
            wide,
        })
    };
    (0..streams).map(|_| counter()).collect()
}

struct Counting {
    counter: Counter,
    wide: bool,
}

impl Count for Counting {
    fn count(&mut self, datagram: &[u8], at: Nanos) -> bool {
        // What is too short is a late greeting or not of this test: it does not count, and ends nothing.
        UdpHeader::decode(datagram, self.wide)
            .is_none_or(|header| self.counter.arrived(&header, at))
    }

    fn totals(&self) -> Datagrams {
        self.counter.totals()
    }
}

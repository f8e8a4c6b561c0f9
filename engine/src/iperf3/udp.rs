//! iperf3's datagrams.

use measure::{Count, DatagramFormat};
use model::{Datagrams, Nanos};
use wire::iperf3::{Counter, UdpHeader};

/// Each datagram begins with iperf3's header.
pub struct Iperf3Datagrams {
    /// Sequence numbers have 64 bits.
    pub wide: bool,
}

impl DatagramFormat for Iperf3Datagrams {
    fn stamp(&self, datagram: &mut [u8], number: u64, at: Nanos) {
        let sequence = i64::try_from(number).unwrap_or(i64::MAX);
        UdpHeader::new(at, sequence).encode(datagram, self.wide);
    }

    fn counter(&self) -> Box<dyn Count> {
        Box::new(Counting {
            counter: Counter::default(),
            wide: self.wide,
        })
    }
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

//! iperf3's datagrams.

use measure::{Count, DatagramFormat, DatagramKind};
use model::{Arrivals, Datagrams, Nanos};
use wire::ArrivalCounter;
use wire::iperf3::UdpHeader;

/// Each datagram begins with iperf3's header.
pub struct Iperf3Datagrams {
    /// Sequence numbers have 64 bits.
    pub wide: bool,
}

impl DatagramFormat for Iperf3Datagrams {
    fn least(&self) -> usize {
        UdpHeader::WIDE
    }

    fn end(&self, _sent: u64, _at: Nanos) -> Option<Vec<u8>> {
        None
    }

    fn stamp(&self, datagram: &mut [u8], number: u64, at: Nanos) {
        let sequence = i64::try_from(number).unwrap_or(i64::MAX);
        UdpHeader::new(at, sequence).encode(datagram, self.wide);
    }

    fn counter(&self) -> Box<dyn Count> {
        Box::new(Counting {
            counter: ArrivalCounter::default(),
            wide: self.wide,
        })
    }
}

struct Counting {
    counter: ArrivalCounter,
    wide: bool,
}

impl Count for Counting {
    fn dropped(&mut self, at_most: u64) {
        self.counter.dropped(at_most);
    }

    fn count(&mut self, datagram: &[u8], at: Nanos) -> DatagramKind {
        // What is too short is a late greeting or not of this test: it does not count, and ends nothing.
        let Some(header) = UdpHeader::decode(datagram, self.wide) else {
            return DatagramKind::Other;
        };
        match u64::try_from(header.sequence) {
            Ok(number) if self.counter.arrived(number, header.sent(), at) => DatagramKind::Payload,
            Ok(_) => DatagramKind::Other,
            Err(_) => DatagramKind::End,
        }
    }

    fn totals(&self) -> Datagrams {
        self.counter.totals()
    }

    fn arrivals(&mut self) -> Arrivals {
        self.counter.arrivals()
    }
}

//! iperf3's datagrams.

use measure::{DatagramFormat, DatagramRead};
use model::Nanos;
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

    fn read(&self, datagram: &[u8]) -> DatagramRead {
        // What is too short is a late greeting or not of this test: it does not count, and ends nothing.
        let Some(header) = UdpHeader::decode(datagram, self.wide) else {
            return DatagramRead::Other;
        };
        let sent = header.sent();
        u64::try_from(header.sequence).map_or(DatagramRead::End(None), |number| {
            DatagramRead::Payload { number, sent }
        })
    }
}

//! What all protocol machines have in common.

use model::Nanos;

/// One end of a protocol without a socket and without a clock: bytes and times go in, bytes and events come out.
/// Times count from any fixed point and never go back.
pub trait Machine {
    /// What happens.
    type Event;
    /// Takes bytes of the peer, cut anywhere.
    fn input(&mut self, now: Nanos, bytes: &[u8]);
    /// The peer closed its side of the stream.
    fn input_end(&mut self);
    /// When [`Machine::on_timeout`] is to be called at the latest; `None`: nothing is due.
    fn deadline(&self) -> Option<Nanos>;
    /// Time went on. Input what has arrived before calling this: bytes in hand are no silence.
    fn on_timeout(&mut self, now: Nanos);
    /// A peer that takes none of the bytes that wait for it for so long is lost, even if it still sends.
    fn longest_stall(&self) -> Nanos {
        Nanos::from_secs(10)
    }
    /// The oldest event that was not taken yet.
    fn poll_event(&mut self) -> Option<Self::Event>;
    /// All bytes for the peer that were not taken yet; `None` if there are none.
    fn poll_output(&mut self) -> Option<Vec<u8>>;
}

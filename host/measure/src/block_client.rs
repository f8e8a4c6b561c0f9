//! The client's side of a protocol for blocks, as the load uses it.

use model::{BlockReply, Nanos};

/// The client of a block server on one connection, in any protocol: times and bytes go in, bytes and answers come out.
pub trait BlockClient: Send {
    /// Appends the next call to what is to be sent.
    fn ask(&mut self, now: Nanos, out: &mut Vec<u8>);
    /// The kernel took this many further bytes of the calls.
    fn sent(&mut self, now: Nanos, bytes: usize);
    /// Takes received bytes; `answered` is called for each complete answer.
    ///
    /// # Errors
    /// A sentence, if the server refused or what it sent is no answer: the connection is of no use any more.
    fn recv(
        &mut self,
        now: Nanos,
        bytes: &[u8],
        answered: &mut dyn FnMut(BlockReply),
    ) -> Result<(), String>;
}

/// Makes the client of a connection, by its number from 0.
pub type BlockClients = dyn Fn(usize) -> Box<dyn BlockClient> + Send + Sync;

//! Calls and replies on the wire, big-endian.
//!
//! The server first sends the number of its blocks, once they are ready (64 bits). A call is its number (32), the
//! operation (8) and the number of a block (64), followed by the block if it is written. A reply is the number of its
//! call (32), the time that the call was queued and the time that the storage took, in nanoseconds (64 each), followed
//! by the block if it was read. The order has the size of a block.

use model::{BlockOperation, Blocks};
use std::time::Instant;

/// Bytes of a call before its block.
pub(super) const CALL: usize = 4 + 1 + 8;
/// Bytes of a reply before its block.
pub(super) const REPLY: usize = 4 + 8 + 8;

/// The number of an operation: its place in [`BlockOperation::ALL`].
pub(super) fn code(operation: BlockOperation) -> u8 {
    operation as u8
}

/// A call as it arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FramedCall {
    pub(super) number: u32,
    pub(super) operation: BlockOperation,
    pub(super) block: u64,
    /// When its last byte arrived.
    pub(super) arrived: Instant,
}

impl FramedCall {
    /// # Errors
    /// What the order does not allow.
    pub(super) fn decode(
        bytes: &[u8; CALL],
        order: &Blocks,
        all: u64,
    ) -> Result<FramedCall, String> {
        let (number, rest) = bytes.split_at(4);
        let (what, block) = rest.split_at(1);
        let known = |operation: &BlockOperation| code(*operation) == what[0];
        let call = FramedCall {
            number: u32::from_be_bytes(number.try_into().expect("four bytes")),
            operation: *order.mix.iter().find(|one| known(one)).ok_or(STRANGE)?,
            block: u64::from_be_bytes(block.try_into().expect("eight bytes")),
            arrived: Instant::now(),
        };
        if call.block >= all {
            return Err(STRANGE.to_owned());
        }
        Ok(call)
    }
}

pub(super) const STRANGE: &str =
    "the peer asked for blocks that it did not order: install the same linerate on both hosts";

#[cfg(test)]
mod tests {
    use super::*;
    use model::{BlockServer, BlockStore, Bytes, WaitMode};

    #[test]
    fn codes_stay() {
        assert_eq!(BlockOperation::ALL.map(code), [0, 1, 2, 3, 4]);
        assert_eq!(code(BlockOperation::WriteStable), 2);
        assert_eq!(code(BlockOperation::Commit), 4);
    }

    #[test]
    fn only_what_was_ordered_is_done() {
        let order = Blocks {
            server: BlockServer::Peer(BlockStore::default()),
            block: Bytes(4096),
            depth: 1,
            mix: vec![BlockOperation::Read],
            random: false,
            seed: 0,
            wait: WaitMode::Block,
        };
        let call = |operation, block: u64| {
            let mut bytes = [0; CALL];
            bytes[3] = 7;
            bytes[4] = code(operation);
            bytes[5..].copy_from_slice(&block.to_be_bytes());
            FramedCall::decode(&bytes, &order, 10).map(|call| (call.number, call.block))
        };
        assert_eq!(call(BlockOperation::Read, 9), Ok((7, 9)));
        assert!(call(BlockOperation::Read, 10).is_err());
        assert!(call(BlockOperation::Read, u64::MAX).is_err());
        assert!(call(BlockOperation::Write, 1).is_err());
    }
}

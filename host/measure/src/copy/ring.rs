//! The blocks between storage and network at one end, and who waited for whom.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of a block.
pub(super) const BLOCK: usize = 1 << 20;
/// Blocks of a ring.
const BLOCKS: usize = 8;
/// What `O_DIRECT` wants buffers, positions and lengths to be multiples of: the page covers every device.
pub(super) const ALIGNED: usize = 4096;
/// Bytes before a block on the wire: its length.
pub(super) const HEADER: usize = 4;

/// One block, with room for its header before it.
pub(super) struct Block {
    memory: Vec<u8>,
    /// Where the data begins: aligned.
    start: usize,
    len: usize,
    /// The hash of all data up to the end of this block.
    pub hash: u128,
}

impl Block {
    /// What is in it at the beginning nothing on the way can compress.
    fn new(noise: &[u8]) -> Block {
        let mut memory = vec![0; BLOCK + 2 * ALIGNED];
        let address = memory.as_ptr() as usize + HEADER;
        let start = HEADER + address.next_multiple_of(ALIGNED) - address;
        memory[start..start + BLOCK].copy_from_slice(noise);
        Block {
            memory,
            start,
            len: 0,
            hash: 0,
        }
    }

    /// Room for a block of this many bytes, at most [`BLOCK`].
    pub fn room(&mut self, len: usize) -> &mut [u8] {
        self.len = len;
        &mut self.memory[self.start..][..len]
    }

    /// It has got no more than this.
    pub fn cut(&mut self, len: usize) {
        self.len = len;
    }

    pub fn data(&self) -> &[u8] {
        &self.memory[self.start..][..self.len]
    }

    /// The data with its length before it, big-endian.
    pub fn framed(&mut self) -> &[u8] {
        let at = self.start - HEADER;
        self.memory[at..self.start].copy_from_slice(&(self.len as u32).to_be_bytes());
        &self.memory[at..][..HEADER + self.len]
    }
}

/// A ring of [`BLOCKS`] blocks between a thread that fills them and one that empties them.
pub(super) struct Ring {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    free: Vec<Block>,
    filled: VecDeque<Block>,
    /// No more will be filled.
    ended: bool,
    /// Nobody wants what is filled any more.
    abandoned: bool,
    waits: Waits,
}

/// Who waited how long.
#[derive(Clone, Copy, Default)]
pub(super) struct Waits {
    /// For a free block: the ring was full.
    pub full: Duration,
    /// For a filled one: the ring was empty.
    pub empty: Duration,
}

impl Ring {
    pub fn new() -> Ring {
        let noise = crate::bulk::noise(BLOCK);
        Ring {
            state: Mutex::new(State {
                free: (0..BLOCKS).map(|_| Block::new(&noise)).collect(),
                filled: VecDeque::new(),
                ended: false,
                abandoned: false,
                waits: Waits::default(),
            }),
            changed: Condvar::new(),
        }
    }

    /// A block to fill; `None` if nobody wants more.
    pub fn free(&self) -> Option<Block> {
        let mut state = self.lock();
        if state.free.is_empty() && !state.abandoned {
            let since = Instant::now();
            state = self.wait_while(state, |s| s.free.is_empty() && !s.abandoned);
            state.waits.full += since.elapsed();
        }
        match state.abandoned {
            true => None,
            false => state.free.pop(),
        }
    }

    /// Passes a filled block on.
    pub fn fill(&self, block: Block) {
        self.lock().filled.push_back(block);
        self.changed.notify_all();
    }

    /// The next filled block; `None` if no more will come.
    pub fn filled(&self) -> Option<Block> {
        let mut state = self.lock();
        if state.filled.is_empty() && !state.ended {
            let since = Instant::now();
            state = self.wait_while(state, |s| s.filled.is_empty() && !s.ended);
            state.waits.empty += since.elapsed();
        }
        state.filled.pop_front()
    }

    /// Gives an emptied block back.
    pub fn release(&self, block: Block) {
        self.lock().free.push(block);
        self.changed.notify_all();
    }

    /// Says that no more will be filled.
    pub fn end(&self) {
        self.lock().ended = true;
        self.changed.notify_all();
    }

    /// Says that nothing more is wanted.
    pub fn abandon(&self) {
        self.lock().abandoned = true;
        self.changed.notify_all();
    }

    pub fn waits(&self) -> Waits {
        self.lock().waits
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_while<'a>(
        &self,
        state: MutexGuard<'a, State>,
        wait: impl FnMut(&mut State) -> bool,
    ) -> MutexGuard<'a, State> {
        self.changed
            .wait_while(state, wait)
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_and_carry_their_length() {
        let ring = Ring::new();
        let mut block = ring.free().unwrap();
        assert_eq!(block.room(BLOCK).as_ptr() as usize % ALIGNED, 0);
        block.room(3).copy_from_slice(b"abc");
        assert_eq!(block.framed(), b"\0\0\0\x03abc");
        block.cut(2);
        assert_eq!(block.data(), b"ab");
    }

    #[test]
    fn nobody_waits_for_what_will_not_come() {
        let ring = Ring::new();
        let blocks: Vec<Block> = (0..BLOCKS).map(|_| ring.free().unwrap()).collect();
        std::thread::scope(|scope| {
            let filler = scope.spawn(|| ring.free().is_none());
            let emptier = scope.spawn(|| ring.filled().is_none());
            ring.end();
            ring.abandon();
            assert!(filler.join().unwrap() && emptier.join().unwrap());
        });
        drop(blocks);
    }
}

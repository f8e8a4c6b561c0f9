//! The blocks between storage and network at one end, and who waited for whom.

use crate::noise::noise;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use sys::lock;

/// What `O_DIRECT` wants buffers, positions and lengths to be multiples of: the page covers every device.
pub(crate) const ALIGNED: usize = 4096;

/// One block, with room for a header before it and a note beside it.
pub(crate) struct Block<T> {
    memory: Vec<u8>,
    /// Where the data begins: aligned.
    start: usize,
    len: usize,
    /// What there is to know of it.
    pub note: T,
}

impl<T> Block<T> {
    /// What is in it at the beginning nothing on the way can compress.
    fn new(noise: &[u8], header: usize, note: T) -> Block<T> {
        let mut memory = vec![0; header + ALIGNED + noise.len()];
        let address = memory.as_ptr() as usize + header;
        let start = header + address.next_multiple_of(ALIGNED) - address;
        memory[start..start + noise.len()].copy_from_slice(noise);
        Block {
            memory,
            start,
            len: 0,
            note,
        }
    }

    /// Room for a block of this many bytes, at most those of the ring.
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

    /// The data with a header before it, at most as long as the ring has it.
    pub fn behind(&mut self, header: &[u8]) -> &[u8] {
        let at = self.start - header.len();
        self.memory[at..self.start].copy_from_slice(header);
        &self.memory[at..][..header.len() + self.len]
    }
}

/// A ring of blocks between a thread that fills them and those that empty them.
pub(crate) struct Ring<T> {
    state: Mutex<RingState<T>>,
    freed: Condvar,
    arrived: Condvar,
}

struct RingState<T> {
    free: Vec<Block<T>>,
    filled: VecDeque<Block<T>>,
    /// No more will be filled.
    ended: bool,
    /// Nobody wants what is filled any more.
    abandoned: bool,
    waits: Waits,
}

/// Who waited how long.
#[derive(Clone, Copy, Default)]
pub(crate) struct Waits {
    /// For a free block: the ring was full.
    pub full: Duration,
    /// For a filled one: the ring was empty.
    pub empty: Duration,
}

impl<T: Default> Ring<T> {
    /// Of so many blocks of so many bytes, with room for a header before each.
    pub fn new(blocks: usize, size: usize, header: usize) -> Ring<T> {
        let noise = noise(size);
        let block = |_| Block::new(&noise, header, T::default());
        Ring {
            state: Mutex::new(RingState {
                free: (0..blocks).map(block).collect(),
                filled: VecDeque::new(),
                ended: false,
                abandoned: false,
                waits: Waits::default(),
            }),
            freed: Condvar::new(),
            arrived: Condvar::new(),
        }
    }

    /// A block to fill; `None` if nobody wants more.
    pub fn free(&self) -> Option<Block<T>> {
        let (mut state, waited) = self.wait(&self.freed, |s| s.free.is_empty() && !s.abandoned);
        state.waits.full += waited;
        match state.abandoned {
            true => None,
            false => state.free.pop(),
        }
    }

    /// Waits while `nothing` is there, and says how long.
    fn wait(
        &self,
        changed: &Condvar,
        nothing: impl Fn(&mut RingState<T>) -> bool,
    ) -> (MutexGuard<'_, RingState<T>>, Duration) {
        let mut state = lock(&self.state);
        if !nothing(&mut state) {
            return (state, Duration::ZERO);
        }
        let since = Instant::now();
        let state = changed.wait_while(state, nothing);
        (
            state.unwrap_or_else(PoisonError::into_inner),
            since.elapsed(),
        )
    }

    /// Passes a filled block on.
    pub fn fill(&self, block: Block<T>) {
        lock(&self.state).filled.push_back(block);
        self.arrived.notify_one();
    }

    /// The next filled block; `None` if no more will come.
    pub fn filled(&self) -> Option<Block<T>> {
        let (mut state, waited) = self.wait(&self.arrived, |s| s.filled.is_empty() && !s.ended);
        state.waits.empty += waited;
        state.filled.pop_front()
    }

    /// Gives an emptied block back.
    pub fn release(&self, block: Block<T>) {
        lock(&self.state).free.push(block);
        self.freed.notify_one();
    }

    /// Says that no more will be filled.
    pub fn end(&self) {
        lock(&self.state).ended = true;
        self.arrived.notify_all();
    }

    /// Says that nothing more is wanted.
    pub fn abandon(&self) {
        lock(&self.state).abandoned = true;
        self.freed.notify_all();
    }

    pub fn waits(&self) -> Waits {
        lock(&self.state).waits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_and_stand_behind_their_header() {
        let ring = Ring::<()>::new(1, 8192, 4);
        let mut block = ring.free().unwrap();
        assert_eq!(block.room(8192).as_ptr() as usize % ALIGNED, 0);
        block.room(3).copy_from_slice(b"abc");
        assert_eq!(block.behind(b"head"), b"headabc");
        block.cut(2);
        assert_eq!(block.data(), b"ab");
    }

    #[test]
    fn nobody_waits_for_what_will_not_come() {
        let ring = Ring::<()>::new(2, 4096, 0);
        let blocks: Vec<Block<()>> = (0..2).map(|_| ring.free().unwrap()).collect();
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

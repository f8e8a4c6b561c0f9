//! The server of blocks.

use super::frame::{CALL, FramedCall, REPLY};
use crate::cpu_placement::CpuPlacement;
use crate::prelude::*;
use crate::ring::{Block, Ring};
use crate::spin::is_pause;
use crate::storage::Store;
use model::{BlockOperation, Blocks, StoreRecord};
use std::sync::Mutex;
use std::thread;
use sys::lock;

/// Does what the peer asks until it closes. With several calls outstanding on blocks of a file, each has a thread
/// of its own, so that the storage sees as many at once.
pub(super) fn serve(
    stream: &LoadStream<'_>,
    order: &Blocks,
    store: &dyn Store,
    spin: Spin,
) -> Result<(), String> {
    let workers = workers(order, store);
    let server = BlocksLoop {
        stream,
        order,
        store,
        ring: Ring::new(workers.max(1), order.block.0 as usize, REPLY),
        turn: Mutex::default(),
        failed: Mutex::default(),
    };
    let started = Instant::now();
    let result = thread::scope(|scope| {
        let result = (0..workers)
            .try_for_each(|_| {
                let worker = thread::Builder::new().spawn_scoped(scope, || server.work());
                worker.map(drop).map_err(|e| {
                    format!("cannot start a thread for each request ({e}); lower --depth")
                })
            })
            .and_then(|()| server.listen(spin, workers == 0));
        server.ring.end();
        result
    });
    stream.moved(started, Instant::now());
    let result = lock(&server.failed).take().map_or(result, Err);
    if result.is_err() {
        // The peer need not wait for an answer.
        let _ = stream.socket().shutdown(Shutdown::Both);
    }
    match stream.phase() {
        LoadPhase::Cut => Ok(()),
        _ => result,
    }
}

/// Threads for what a connection asks at once; none: its own does it, one after the other.
pub(super) fn workers(order: &Blocks, store: &dyn Store) -> usize {
    match order.depth {
        1 => 0,
        _ if store.is_immediate() => 0,
        depth => depth as usize,
    }
}

struct BlocksLoop<'a> {
    stream: &'a LoadStream<'a>,
    order: &'a Blocks,
    store: &'a dyn Store,
    ring: Ring<Option<FramedCall>>,
    /// Replies go one after the other.
    turn: Mutex<()>,
    failed: Mutex<Option<String>>,
}

impl BlocksLoop<'_> {
    /// Takes calls; does them itself, or passes them on.
    fn listen(&self, spin: Spin, alone: bool) -> Result<(), String> {
        let placement = CpuPlacement::new(self.stream);
        let mut head = [0; CALL];
        // Without a free block the peer has more outstanding than it ordered, or all broke.
        while let Some(mut block) = self.ring.free() {
            if !self.fill(&mut head, spin, &placement, true)? {
                return Ok(());
            }
            let mut call = FramedCall::decode(&head, self.order, self.store.blocks())?;
            let [sent, _] = call.operation.carries(self.order.block);
            self.fill(block.room(sent.0 as usize), spin, &placement, false)?;
            call.arrived = Instant::now();
            block.note = Some(call);
            match alone {
                true => {
                    self.execute(&mut block)?;
                    self.ring.release(block);
                }
                false => self.ring.fill(block),
            }
        }
        Ok(())
    }

    /// Does what was passed on, until there is no more or something fails.
    fn work(&self) {
        while let Some(mut block) = self.ring.filled() {
            if let Err(why) = self.execute(&mut block) {
                lock(&self.failed).get_or_insert(why);
                self.ring.abandon();
                let _ = self.stream.socket().shutdown(Shutdown::Both);
            }
            self.ring.release(block);
        }
    }

    /// Has the storage do it, and replies.
    fn execute(&self, block: &mut Block<Option<FramedCall>>) -> Result<(), String> {
        let call = block
            .note
            .take()
            .expect("a block is passed on with its call");
        let size = self.order.block.0;
        let at = call.block * size;
        let begun = Instant::now();
        match call.operation {
            BlockOperation::Read => self.store.read(at, block.room(size as usize)),
            BlockOperation::Write => self.store.write(at, block.data()),
            BlockOperation::WriteStable => {
                let written = self.store.write(at, block.data());
                written.and_then(|()| self.store.sync())
            }
            BlockOperation::Commit => self.store.sync(),
            BlockOperation::Getattr => Ok(()),
        }
        .inspect_err(|why| self.stream.storage_failed(why))?;
        let took = [begun.duration_since(call.arrived), begun.elapsed()].map(Nanos::from);
        if call.operation != BlockOperation::Read {
            block.room(0);
        }
        let mut head = [0; REPLY];
        head[..4].copy_from_slice(&call.number.to_be_bytes());
        head[4..12].copy_from_slice(&took[0].0.to_be_bytes());
        head[12..].copy_from_slice(&took[1].0.to_be_bytes());
        let reply = block.behind(&head);
        let _turn = lock(&self.turn);
        let (stream, size, mut sent) = (self.stream, reply.len() as u64, 0);
        while let Err(e) = stream.send_on(stream.fd(), reply, size, &mut sent) {
            if !is_pause(&e) || stream.phase() == LoadPhase::Cut {
                return Err(stream.broken(&e));
            }
        }
        let [sent, answered] = call.operation.carries(self.order.block);
        self.stream.count((sent + answered).0 as usize);
        Ok(())
    }

    /// Fills all of this; `false` if the peer closed before its first byte, where it may.
    fn fill(
        &self,
        mut room: &mut [u8],
        spin: Spin,
        placement: &CpuPlacement<'_>,
        mut may_end: bool,
    ) -> Result<bool, String> {
        while !room.is_empty() {
            match spin.some(self.stream, self.stream.fd(), room, || {
                placement.move_away()
            })? {
                0 if may_end => return Ok(false),
                0 => return Err(self.stream.broken(&ErrorKind::BrokenPipe.into())),
                got => {
                    may_end = false;
                    room = &mut room[got..];
                }
            }
        }
        Ok(true)
    }
}

/// What the storage came to, once all connections are over: what was written and not made safe is made safe.
pub(super) fn settle(store: &dyn Store, failed: Option<String>) -> StoreRecord {
    let begun = Instant::now();
    let safe = store.settle();
    StoreRecord {
        blocks: store.blocks(),
        fsync: matches!(safe, Ok(true)).then(|| begun.elapsed().into()),
        cached_before_share: store.cached_before(),
        cached_after_share: store.cached(),
        failed: failed.or(safe.err()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{BlockServer, BlockStore, Bytes, WaitMode};

    struct Memory(bool);

    impl Store for Memory {
        fn blocks(&self) -> u64 {
            1
        }

        fn is_immediate(&self) -> bool {
            self.0
        }

        fn read(&self, _at: u64, _into: &mut [u8]) -> Result<(), String> {
            Ok(())
        }

        fn write(&self, _at: u64, _data: &[u8]) -> Result<(), String> {
            Ok(())
        }
    }

    #[test]
    fn only_storage_that_lets_wait_has_a_thread_for_each_call() {
        let threads = |depth, immediate| {
            let order = Blocks {
                server: BlockServer::Peer(BlockStore::default()),
                block: Bytes(4096),
                depth,
                mix: vec![BlockOperation::Read],
                random: false,
                seed: 1,
                wait: WaitMode::Block,
            };
            workers(&order, &Memory(immediate))
        };
        assert_eq!(
            [threads(1, false), threads(2, false), threads(8, false)],
            [0, 2, 8]
        );
        assert_eq!(threads(8, true), 0);
    }
}

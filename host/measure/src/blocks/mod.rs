//! Blocks between two ends of ours: one asks, the other has them, in memory or a file.
//!
//! On the wire, all big-endian: the end that has them says how many there are once they are ready (64 bits). A call is
//! its number (32), what is to be done (8) and the number of a block (64), and the block behind it if it is to be
//! written. A reply is the number of its call (32), how long that was queued and how long the storage took, in
//! nanoseconds (64 each), and the block behind it if it was read. How large a block is says the order.

mod client;
mod store;

pub use store::{Store, open};

use crate::copy::Storage;
use crate::load::{Job, Phase, Role, Stream};
use crate::place::Distance;
use crate::request::{Spin, is_pause, send_all};
use crate::ring::{Block, Ring};
use model::{BlockOperation, Blocks, Nanos, StoreRecord, Workload};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of a call before its block.
const CALL: usize = 4 + 1 + 8;
/// Bytes of a reply before its block.
const REPLY: usize = 4 + 8 + 8;
/// How soon an end that waits for the other notices that it is to stop.
const LOOK: Duration = Duration::from_millis(100);

/// Readies both ends of a job for blocks of the peer, before its load starts: the time of a file that has to be made
/// is nobody's latency. Other jobs are ready. `false`: it was stopped meanwhile.
///
/// # Errors
/// A sentence: the storage failed, or the peer's did.
pub fn ready(job: &mut Job, sockets: &[TcpStream], stop: &AtomicBool) -> Result<bool, String> {
    let Workload::Blocks(order) = &job.workload else {
        return Ok(true);
    };
    match (&job.storage, job.role) {
        (Some(Storage::Store(store)), Role::Answer) => {
            store.prepare(stop)?;
            for mut socket in sockets {
                // A peer that is gone already is found out by the load.
                let _ = socket.write_all(&store.blocks().to_be_bytes());
            }
        }
        (None, Role::Ask) if order.store().is_some() => {
            let mut all = 1;
            for socket in sockets {
                match announced(socket, stop)? {
                    Some(blocks) => all = blocks,
                    None => return Ok(false),
                }
            }
            job.dialogues = Some(client::dialogues(order, all, sockets.len() as u64));
        }
        _ => {}
    }
    Ok(!stop.load(Ordering::Relaxed))
}

/// How many blocks the peer has, once they are ready; `None`: stopped.
fn announced(mut socket: &TcpStream, stop: &AtomicBool) -> Result<Option<u64>, String> {
    let broke = |e: std::io::Error| {
        format!(
            "the connection broke before the blocks were ready ({e}); see what the far end says"
        )
    };
    socket.set_read_timeout(Some(LOOK)).map_err(broke)?;
    let mut number = [0; 8];
    let mut got = 0;
    while got < number.len() {
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        match socket.read(&mut number[got..]) {
            Ok(0) => return Err(broke(ErrorKind::UnexpectedEof.into())),
            Ok(more) => got += more,
            Err(e) if is_pause(&e) => {}
            Err(e) => return Err(broke(e)),
        }
    }
    socket.set_read_timeout(None).map_err(broke)?;
    Ok(Some(u64::from_be_bytes(number)))
}

/// A number for what is to be done, and back.
fn code(operation: BlockOperation) -> u8 {
    match operation {
        BlockOperation::Read => 0,
        BlockOperation::Write => 1,
        BlockOperation::WriteStable => 2,
        BlockOperation::Getattr => 3,
        BlockOperation::Commit => 4,
    }
}

/// Something to do, as it arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Call {
    number: u32,
    operation: BlockOperation,
    block: u64,
    /// Its last byte.
    arrived: Instant,
}

impl Call {
    /// # Errors
    /// What the order does not allow.
    fn decode(bytes: &[u8; CALL], order: &Blocks, all: u64) -> Result<Call, String> {
        let (number, rest) = bytes.split_at(4);
        let (what, block) = rest.split_at(1);
        let known = |operation: &BlockOperation| code(*operation) == what[0];
        let call = Call {
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

const STRANGE: &str =
    "the other end asked for blocks that it did not order: install the same linerate on both hosts";

/// Does what the other end asks until it closes. With several calls outstanding on blocks of a file, each has a thread
/// of its own, so that the storage sees as many at once.
pub(crate) fn serve(
    stream: &Stream<'_>,
    order: &Blocks,
    store: &dyn Store,
    spin: Spin,
) -> Result<(), String> {
    let workers = workers(order, store);
    let desk = Desk {
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
                let worker = thread::Builder::new().spawn_scoped(scope, || desk.work());
                worker.map(drop).map_err(|e| {
                    format!("cannot start a thread for each request ({e}); lower --depth")
                })
            })
            .and_then(|()| desk.listen(spin, workers == 0));
        desk.ring.end();
        result
    });
    stream.moved(started, Instant::now());
    let failed = desk
        .failed
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    let result = failed.map_or(result, Err);
    if result.is_err() {
        // The other end need not wait for an answer.
        let _ = stream.socket().shutdown(Shutdown::Both);
    }
    match stream.phase() {
        Phase::Cut => Ok(()),
        _ => result,
    }
}

/// Threads for what a connection asks at once; none: its own does it, one after the other.
pub(crate) fn workers(order: &Blocks, store: &dyn Store) -> usize {
    match order.depth {
        1 => 0,
        _ if store.is_immediate() => 0,
        depth => depth as usize,
    }
}

struct Desk<'a> {
    stream: &'a Stream<'a>,
    order: &'a Blocks,
    store: &'a dyn Store,
    ring: Ring<Option<Call>>,
    /// Replies go one after the other.
    turn: Mutex<()>,
    failed: Mutex<Option<String>>,
}

impl Desk<'_> {
    /// Takes calls; does them itself, or passes them on.
    fn listen(&self, spin: Spin, alone: bool) -> Result<(), String> {
        let distance = Distance::new(self.stream);
        let mut head = [0; CALL];
        // Without a free block the other end has more outstanding than it ordered, or all broke.
        while let Some(mut block) = self.ring.free() {
            if !self.fill(&mut head, spin, &distance, true)? {
                return Ok(());
            }
            let mut call = Call::decode(&head, self.order, self.store.blocks())?;
            let [sent, _] = call.operation.carries(self.order.block);
            self.fill(block.room(sent.0 as usize), spin, &distance, false)?;
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
                self.failed
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .get_or_insert(why);
                self.ring.abandon();
                let _ = self.stream.socket().shutdown(Shutdown::Both);
            }
            self.ring.release(block);
        }
    }

    /// Has the storage do it, and replies.
    fn execute(&self, block: &mut Block<Option<Call>>) -> Result<(), String> {
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
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        send_all(self.stream, self.stream.fd(), reply, reply.len() as u64)
            .map_err(|e| self.stream.broken(&e))?;
        let [sent, answered] = call.operation.carries(self.order.block);
        self.stream.count((sent + answered).0 as usize);
        Ok(())
    }

    /// Fills all of this; `false` if the other end closed before its first byte, where it may.
    fn fill(
        &self,
        mut room: &mut [u8],
        spin: Spin,
        distance: &Distance<'_>,
        mut may_end: bool,
    ) -> Result<bool, String> {
        while !room.is_empty() {
            match spin.receive(self.stream.fd(), room, || distance.keep()) {
                Ok(0) if may_end => return Ok(false),
                Ok(0) => return Err(self.stream.broken(&ErrorKind::BrokenPipe.into())),
                Ok(got) => {
                    may_end = false;
                    room = &mut room[got..];
                }
                Err(e) if is_pause(&e) && self.stream.phase() != Phase::Cut => {}
                Err(e) => return Err(self.stream.broken(&e)),
            }
        }
        Ok(true)
    }
}

/// What the storage came to, once all connections are over: what was written and not made safe is made safe.
pub(crate) fn settle(store: &dyn Store, failed: Option<String>) -> StoreRecord {
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
    use model::{BlockServer, BlockStore, Bytes, Wait};

    #[test]
    fn only_what_was_ordered_is_done() {
        let order = Blocks {
            server: BlockServer::Peer(BlockStore::default()),
            block: Bytes(4096),
            depth: 1,
            mix: vec![BlockOperation::Read],
            random: false,
            seed: 0,
            wait: Wait::Block,
        };
        let call = |operation, block: u64| {
            let mut bytes = [0; CALL];
            bytes[3] = 7;
            bytes[4] = code(operation);
            bytes[5..].copy_from_slice(&block.to_be_bytes());
            Call::decode(&bytes, &order, 10).map(|call| (call.number, call.block))
        };
        assert_eq!(call(BlockOperation::Read, 9), Ok((7, 9)));
        assert!(call(BlockOperation::Read, 10).is_err());
        assert!(call(BlockOperation::Read, u64::MAX).is_err());
        assert!(call(BlockOperation::Write, 1).is_err());
    }
}

//! What the blocks are in: memory, a file of the run's own that has no name, or a file that is there and only read.

use super::files::{Reach, direct, new_part, prepare, sees_cache, unopened};
use crate::noise::noise;
use crate::prelude::*;
use crate::ring::ALIGNED;
use model::{BlockOperation, BlockStore, Blocks, Cache};
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::OnceLock;
use sys::file::{self, Open};

/// The backing store of blocks, used by several threads at once. Errors are sentences.
pub trait Store: Send + Sync {
    /// How many there are.
    fn blocks(&self) -> u64;

    /// Fills the buffer from this position on.
    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), String>;

    /// Writes all of this at the position.
    fn write(&self, at: u64, data: &[u8]) -> Result<(), String>;

    /// Makes safe what was written.
    fn sync(&self) -> Result<(), String> {
        Ok(())
    }

    /// Brings everything to the state that was ordered; called once, before anything else is asked.
    fn prepare(&self, _stop: &AtomicBool) -> Result<(), String> {
        Ok(())
    }

    /// Makes safe what was written since it last was, at the end; `false`: nothing was.
    fn settle(&self) -> Result<bool, String> {
        Ok(false)
    }

    /// The share that the page cache holds now, if known.
    fn cached(&self) -> Option<f64> {
        None
    }

    /// The cached share once everything was prepared.
    fn cached_before(&self) -> Option<f64> {
        None
    }

    /// No operation blocks.
    fn is_immediate(&self) -> bool {
        false
    }
}

/// Opens what the blocks of an order are in at this end.
///
/// # Errors
/// A file that is missing, out of reach, too small, or there and to be written.
pub fn open(order: &Blocks, reach: &Reach) -> Result<Box<dyn Store>, Error> {
    let whose = order.store().cloned().unwrap_or_default();
    let count = |size: Bytes| size.0 / order.block.0.max(1);
    let size = whose.file_size.unwrap_or(BlockStore::SIZE);
    let Some(path) = &whose.store else {
        return Ok(Box::new(BlockMemory(count(size).max(1))));
    };
    if whose.direct && !order.block.0.is_multiple_of(ALIGNED as u64) {
        return Err(Error::Job(format!(
            "blocks of {} cannot pass the page cache by (--direct): choose a multiple of {}",
            order.block,
            Bytes(ALIGNED as u64)
        )));
    }
    let fail = |e| unopened("use", path, reach, e);
    let (directory, relative, bound) = reach.start(path)?;
    let relative = match relative.as_os_str().is_empty() {
        true => Path::new("."),
        false => &relative,
    };
    let there = file::open_at(directory.as_fd(), relative, Open::Read, bound).map_err(fail)?;
    let meta = there.metadata().map_err(fail)?;
    let new = meta.is_dir();
    let (file, size) = if new {
        let (part, file) = new_part(&there, bound).map_err(fail)?;
        // However this process ends, nothing of it stays.
        file::remove(there.as_fd(), &part).map_err(fail)?;
        (file, size)
    } else if !meta.is_file() {
        return Err(Error::Job(format!(
            "cannot use {path}: it is neither a file nor a directory; name one, or leave it out for memory"
        )));
    } else if order.mix.iter().any(|one| *one != BlockOperation::Read) {
        return Err(Error::Job(format!(
            "{path} is an existing file and is only read: use --mix read, or name a directory, where a temporary file is written"
        )));
    } else {
        (there, whose.file_size.unwrap_or(Bytes(meta.len())))
    };
    if !new && size.0 > meta.len() {
        return Err(Error::Job(format!(
            "{path} has {}, less than {size}: reduce --file-size",
            Bytes(meta.len())
        )));
    }
    if count(size) == 0 {
        return Err(Error::Job(format!(
            "no block of {} fits into {size} of {path}: choose a smaller --block",
            order.block
        )));
    }
    if whose.direct {
        direct(&file, path)?;
    }
    Ok(Box::new(FileStore {
        path: path.clone(),
        sees_cache: new || sees_cache(meta.uid()),
        file,
        new,
        blocks: count(size),
        length: Bytes(count(size) * order.block.0),
        order: whose,
        random: order.random,
        unsafe_yet: AtomicBool::new(false),
        cached_before: OnceLock::new(),
    }))
}

/// Reads find what was last in the buffer, and writes go nowhere: it takes the storage out of the way.
struct BlockMemory(u64);

impl Store for BlockMemory {
    fn blocks(&self) -> u64 {
        self.0
    }

    fn read(&self, _at: u64, _into: &mut [u8]) -> Result<(), String> {
        Ok(())
    }

    fn write(&self, _at: u64, _data: &[u8]) -> Result<(), String> {
        Ok(())
    }

    fn is_immediate(&self) -> bool {
        true
    }
}

struct FileStore {
    path: String,
    file: File,
    /// Made for this, without a name.
    new: bool,
    blocks: u64,
    length: Bytes,
    order: BlockStore,
    random: bool,
    sees_cache: bool,
    /// Something was written and not made safe yet.
    unsafe_yet: AtomicBool,
    cached_before: OnceLock<Option<f64>>,
}

impl FileStore {
    /// Gives a new file all its blocks, through the page cache whatever was ordered, and makes them safe.
    fn fill(&self, stop: &AtomicBool) -> Result<(), String> {
        const PIECE: usize = 1 << 20;
        let fail = |e| {
            format!(
                "cannot make a file of {} in {}: {e}; reduce --file-size, or name another directory",
                self.length, self.path
            )
        };
        let through = |direct| match self.order.direct {
            true => file::set_direct(self.file.as_fd(), direct),
            false => Ok(()),
        };
        through(false).map_err(fail)?;
        let noise = noise(PIECE);
        let mut at = 0;
        while at < self.length.0 && !stop.load(Ordering::Relaxed) {
            let part = (self.length.0 - at).min(PIECE as u64);
            self.file
                .write_all_at(&noise[..part as usize], at)
                .map_err(fail)?;
            at += part;
        }
        self.file.sync_all().map_err(fail)?;
        through(true).map_err(fail)
    }
}

impl Store for FileStore {
    fn blocks(&self) -> u64 {
        self.blocks
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), String> {
        self.file.read_exact_at(into, at).map_err(|e| {
            let why = match e.kind() {
                ErrorKind::UnexpectedEof => "it became shorter meanwhile".to_owned(),
                _ => e.to_string(),
            };
            format!("cannot read {}: {why}", self.path)
        })
    }

    fn write(&self, at: u64, data: &[u8]) -> Result<(), String> {
        self.unsafe_yet.store(true, Ordering::Relaxed);
        let written = self.file.write_all_at(data, at);
        written.map_err(|e| format!("cannot write to a file in {}: {e}", self.path))
    }

    fn sync(&self) -> Result<(), String> {
        // Before, so that what is written meanwhile counts as not safe.
        self.unsafe_yet.store(false, Ordering::Relaxed);
        let safe = self.file.sync_data();
        safe.map_err(|e| format!("cannot make a file in {} safe: {e}", self.path))
    }

    fn prepare(&self, stop: &AtomicBool) -> Result<(), String> {
        if self.new {
            self.fill(stop)?;
        }
        // What was just written is in the cache already.
        if !self.new || self.order.cache == Cache::Cold {
            let (cache, direct) = (self.order.cache, self.order.direct);
            prepare(&self.file, &self.path, self.length, cache, direct)?;
        }
        if self.random {
            // The kernel is not to read what nobody asked for.
            let _ = file::advise_random(self.file.as_fd());
        }
        let _ = self.cached_before.set(self.cached());
        Ok(())
    }

    fn settle(&self) -> Result<bool, String> {
        let needed = self.unsafe_yet.load(Ordering::Relaxed);
        if needed {
            self.sync()?;
        }
        Ok(needed)
    }

    fn cached(&self) -> Option<f64> {
        let share = || file::cached_share(self.file.as_fd(), self.length.0).ok();
        self.sees_cache.then(share).flatten()
    }

    fn cached_before(&self) -> Option<f64> {
        self.cached_before.get().copied().flatten()
    }
}

//! What a copy comes from and goes to: memory, or a file that is read as asked, or put in place only when it is whole.

use super::files::{Reach, direct, new_part, prepare, sees_cache, unopened};
use crate::prelude::*;
use crate::ring::ALIGNED;
use model::{Cache, FileCopy};
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use sys::file::{self, Open};

/// The source of a copy. Errors are sentences.
pub trait CopySource: Send + Sync {
    /// Fills the buffer from this position on; fewer bytes are the last ones.
    fn read(&self, at: u64, into: &mut [u8]) -> Result<usize, String>;

    /// It has no end of its own.
    fn is_endless(&self) -> bool {
        false
    }

    /// Brings the page cache to the state that was asked for; called once, before the first read.
    fn prepare(&self) -> Result<(), String> {
        Ok(())
    }

    /// The share that the page cache holds now, if known.
    fn cached(&self) -> Option<f64> {
        None
    }
}

/// The destination of a copy; removed when dropped unless kept. Errors are sentences.
pub trait CopySink: Send + Sync {
    /// Writes all of this at the position: the end of what was written so far.
    fn write(&self, at: u64, data: &[u8]) -> Result<(), String>;

    /// Makes what was written safe; `false`: there is nothing to make safe.
    fn settle(&self) -> Result<bool, String> {
        Ok(false)
    }

    /// Puts the copy in its place, if it is to stay: whether it is there now.
    fn commit(&self) -> Result<bool, String> {
        Ok(false)
    }

    /// The share of this many bytes that the page cache holds now, if known.
    fn cached(&self, _length: u64) -> Option<f64> {
        None
    }
}

/// Opens what a copy comes from.
///
/// # Errors
/// A file that is missing, out of reach, or none.
pub fn source(order: &FileCopy, reach: &Reach) -> Result<Box<dyn CopySource>, Error> {
    let Some(path) = &order.from else {
        return Ok(Box::new(CopyMemory));
    };
    let (directory, relative, bound) = reach.start(path)?;
    let fail = |e| unopened("read", path, reach, e);
    let file = file::open_at(directory.as_fd(), &relative, Open::Read, bound).map_err(fail)?;
    let meta = file.metadata().map_err(fail)?;
    if !meta.is_file() {
        return Err(Error::Job(format!(
            "cannot read {path}: it is no regular file; name one, or leave it out to copy from memory"
        )));
    }
    if order.direct {
        direct(&file, path)?;
    }
    Ok(Box::new(FileSource {
        path: path.clone(),
        sees_cache: sees_cache(meta.uid()),
        length: meta.len(),
        cache: order.cache,
        direct: order.direct,
        file,
    }))
}

/// Opens what a copy goes to: a new file under a name of its own, until it is kept.
///
/// # Errors
/// A name that is taken, a directory that is missing, out of reach or not writable.
pub fn sink(order: &FileCopy, reach: &Reach) -> Result<Box<dyn CopySink>, Error> {
    let Some(path) = &order.to else {
        return Ok(Box::new(CopyMemory));
    };
    let (directory, relative, bound) = reach.start(path)?;
    let fail = |e| unopened("write", path, reach, e);
    let name = match relative.file_name() {
        Some(name) if !path.ends_with('/') => PathBuf::from(name),
        _ => {
            return Err(Error::Job(format!(
                "cannot write {path}: it names a directory; name a new file in it"
            )));
        }
    };
    let parent = match relative.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let directory =
        file::open_at(directory.as_fd(), parent, Open::Directory, bound).map_err(fail)?;
    if file::open_at(directory.as_fd(), &name, Open::Name, bound).is_ok() {
        return Err(taken(path));
    }
    let (part, file) = new_part(&directory, bound).map_err(fail)?;
    let sink = FileSink {
        path: path.clone(),
        keep: order.keep,
        direct: order.direct,
        kept: AtomicBool::new(false),
        directory,
        name,
        part,
        file,
    };
    if order.direct {
        direct(&sink.file, path)?;
    }
    Ok(Box::new(sink))
}

fn taken(path: &str) -> Error {
    Error::Job(format!(
        "cannot write {path}: the name is taken, and nothing is overwritten; name a new file"
    ))
}

struct CopyMemory;

impl CopySource for CopyMemory {
    fn read(&self, _at: u64, into: &mut [u8]) -> Result<usize, String> {
        // Blocks are noise from the beginning.
        Ok(into.len())
    }

    fn is_endless(&self) -> bool {
        true
    }
}

impl CopySink for CopyMemory {
    fn write(&self, _at: u64, _data: &[u8]) -> Result<(), String> {
        Ok(())
    }
}

struct FileSource {
    path: String,
    file: File,
    length: u64,
    cache: Cache,
    direct: bool,
    sees_cache: bool,
}

impl CopySource for FileSource {
    fn read(&self, at: u64, into: &mut [u8]) -> Result<usize, String> {
        let mut got = 0;
        while got < into.len() {
            match self.file.read_at(&mut into[got..], at + got as u64) {
                Ok(0) => break,
                Ok(bytes) => {
                    got += bytes;
                    // Only the end of a file is cut so; reading on from there is refused.
                    if self.direct && !bytes.is_multiple_of(ALIGNED) {
                        break;
                    }
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(format!("cannot read {}: {e}", self.path)),
            }
        }
        Ok(got)
    }

    fn prepare(&self) -> Result<(), String> {
        let length = Bytes(self.length);
        prepare(&self.file, &self.path, length, self.cache, self.direct)
    }

    fn cached(&self) -> Option<f64> {
        let known = self.sees_cache && self.length > 0;
        let share = || file::cached_share(self.file.as_fd(), self.length).ok();
        known.then(share).flatten()
    }
}

struct FileSink {
    path: String,
    directory: File,
    name: PathBuf,
    part: PathBuf,
    file: File,
    keep: bool,
    direct: bool,
    kept: AtomicBool,
}

impl CopySink for FileSink {
    fn write(&self, at: u64, data: &[u8]) -> Result<(), String> {
        let fail = |e| format!("cannot write {}: {e}; the copy was removed", self.path);
        if self.direct && !data.len().is_multiple_of(ALIGNED) {
            // The end of a file seldom fills a sector.
            file::set_direct(self.file.as_fd(), false).map_err(fail)?;
        }
        self.file.write_all_at(data, at).map_err(fail)
    }

    fn settle(&self) -> Result<bool, String> {
        let fail = |e| format!("cannot make {} safe: {e}; the copy was removed", self.path);
        self.file.sync_all().map(|()| true).map_err(fail)
    }

    fn commit(&self) -> Result<bool, String> {
        if !self.keep {
            return Ok(false);
        }
        file::rename_new(self.directory.as_fd(), &self.part, &self.name).map_err(|e| {
            match e.kind() {
                ErrorKind::AlreadyExists => taken(&self.path).to_string(),
                _ => format!(
                    "cannot give {} its name: {e}; the copy was removed",
                    self.path
                ),
            }
        })?;
        self.kept.store(true, Ordering::Relaxed);
        // The name is safe only with its directory (fsync(2)).
        let safe = self.directory.sync_all();
        safe.map_err(|e| format!("{} is there, but its directory is not safe: {e}", self.path))?;
        Ok(true)
    }

    fn cached(&self, length: u64) -> Option<f64> {
        let share = || file::cached_share(self.file.as_fd(), length).ok();
        (length > 0).then(share).flatten()
    }
}

impl Drop for FileSink {
    fn drop(&mut self) {
        if !*self.kept.get_mut() {
            // A directory that is gone by now has taken it along.
            let _ = file::remove(self.directory.as_fd(), &self.part);
        }
    }
}

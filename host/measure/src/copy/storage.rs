//! What a copy comes from and goes to: memory, or a file that is read as asked, or put in place only when it is whole.

use crate::Error;
use crate::ring::ALIGNED;
use model::{Bytes, Cache, FileCopy};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use sys::file::{self, Bound, Open};

/// What a copy comes from.
pub trait Source: Send + Sync {
    /// Fills the buffer from this position on; fewer bytes are the last ones.
    ///
    /// # Errors
    /// A sentence.
    fn read(&self, at: u64, into: &mut [u8]) -> Result<usize, String>;

    /// It has no end of its own.
    fn is_endless(&self) -> bool {
        false
    }

    /// Brings the page cache to the state that was asked for; called once, before the first read.
    ///
    /// # Errors
    /// A sentence.
    fn prepare(&self) -> Result<(), String> {
        Ok(())
    }

    /// The share that the page cache holds now, if that can be told.
    fn cached(&self) -> Option<f64> {
        None
    }
}

/// What a copy goes to. What is not kept is gone when it is dropped.
pub trait Sink: Send + Sync {
    /// Writes all of this at the position: the end of what was written so far.
    ///
    /// # Errors
    /// A sentence.
    fn write(&self, at: u64, data: &[u8]) -> Result<(), String>;

    /// Makes what was written safe; `false`: there is nothing to make safe.
    ///
    /// # Errors
    /// A sentence.
    fn settle(&self) -> Result<bool, String> {
        Ok(false)
    }

    /// Puts the copy in its place, if it is to stay: whether it is there now.
    ///
    /// # Errors
    /// A sentence.
    fn keep(&self) -> Result<bool, String> {
        Ok(false)
    }

    /// The share of this many bytes that the page cache holds now, if that can be told.
    fn cached(&self, _length: u64) -> Option<f64> {
        None
    }
}

/// Which files an order may name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Those of the user whose process this is.
    Anywhere,
    /// Those below a directory, by whatever path.
    Beneath(PathBuf),
}

/// Opens what a copy comes from.
///
/// # Errors
/// A file that is missing, out of reach, or none.
pub fn source(order: &FileCopy, reach: &Reach) -> Result<Box<dyn Source>, Error> {
    let Some(path) = &order.from else {
        return Ok(Box::new(Memory));
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
        tells: tells(meta.uid()),
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
pub fn sink(order: &FileCopy, reach: &Reach) -> Result<Box<dyn Sink>, Error> {
    let Some(path) = &order.to else {
        return Ok(Box::new(Memory));
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

/// A new file of a directory, under a name that nobody else has.
pub(crate) fn new_part(directory: &File, bound: Bound) -> io::Result<(PathBuf, File)> {
    /// Names that an earlier process with the same number may have left.
    const ATTEMPTS: u32 = 100;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    for _ in 0..ATTEMPTS {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let part = PathBuf::from(format!(".linerate-{}-{number}.part", std::process::id()));
        match file::open_at(directory.as_fd(), &part, Open::New, bound) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            opened => return opened.map(|file| (part, file)),
        }
    }
    Err(ErrorKind::AlreadyExists.into())
}

impl Reach {
    /// Where a path is looked up from, and how it is written from there.
    pub(crate) fn start(&self, path: &str) -> Result<(File, PathBuf, Bound), Error> {
        let open = |directory: &Path| {
            File::open(directory)
                .map_err(|e| Error::system(format!("open {}", directory.display()), e))
        };
        match self {
            Reach::Anywhere => Ok((open(Path::new("."))?, path.into(), Bound::None)),
            Reach::Beneath(directory) => {
                // Its own name may stand before the path.
                let path = Path::new(path);
                let relative = path.strip_prefix(directory).unwrap_or(path).to_owned();
                Ok((open(directory)?, relative, Bound::Beneath))
            }
        }
    }
}

/// `EXDEV` of asm-generic/errno-base.h.
const LEADS_OUT: i32 = 18;
/// `EINVAL` of the same.
const INVALID: i32 = 22;

pub(crate) fn unopened(what: &str, path: &str, reach: &Reach, e: io::Error) -> Error {
    match reach {
        Reach::Beneath(directory) if e.raw_os_error() == Some(LEADS_OUT) => Error::Job(format!(
            "cannot {what} {path}: it is not below {}, where alone files may be used here",
            directory.display()
        )),
        _ => Error::Job(format!("cannot {what} {path}: {e}")),
    }
}

fn taken(path: &str) -> Error {
    Error::Job(format!(
        "cannot write {path}: the name is taken, and nothing is overwritten; name a new file"
    ))
}

pub(crate) fn direct(file: &File, path: &str) -> Result<(), Error> {
    file::set_direct(file.as_fd(), true).map_err(|e| {
        let why = match e.raw_os_error() {
            Some(INVALID) => "its file system has no O_DIRECT".to_owned(),
            _ => e.to_string(),
        };
        Error::Job(format!(
            "cannot pass the page cache by for {path}: {why}; leave --direct out"
        ))
    })
}

/// Whether the kernel tells this process the truth about a file's pages (mincore(2)).
pub(crate) fn tells(owner: u32) -> bool {
    let user = sys::process::effective_user();
    user == 0 || user == owner
}

struct Memory;

impl Source for Memory {
    fn read(&self, _at: u64, into: &mut [u8]) -> Result<usize, String> {
        // Blocks are noise from the beginning.
        Ok(into.len())
    }

    fn is_endless(&self) -> bool {
        true
    }
}

impl Sink for Memory {
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
    tells: bool,
}

impl Source for FileSource {
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
        let told = self.tells && self.length > 0;
        let share = || file::cached_share(self.file.as_fd(), self.length).ok();
        told.then(share).flatten()
    }
}

/// Brings the page cache to the state that was asked for.
pub(crate) fn prepare(
    file: &File,
    path: &str,
    length: Bytes,
    cache: Cache,
    direct: bool,
) -> Result<(), String> {
    let fail = |e| format!("cannot prepare the page cache for {path}: {e}");
    match cache {
        Cache::AsIs => Ok(()),
        // What is not on the disk yet cannot be dropped.
        Cache::Cold => file
            .sync_data()
            .and_then(|()| file::drop_cached(file.as_fd()))
            .map_err(fail),
        // Past the page cache there is nothing to warm.
        Cache::Hot if direct => Ok(()),
        Cache::Hot => {
            let mut buffer = vec![0; 1 << 20];
            let mut at = 0;
            while at < length.0 {
                match file.read_at(&mut buffer, at) {
                    Ok(0) => break,
                    Ok(bytes) => at += bytes as u64,
                    Err(e) if e.kind() == ErrorKind::Interrupted => {}
                    Err(e) => return Err(fail(e)),
                }
            }
            Ok(())
        }
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

impl Sink for FileSink {
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

    fn keep(&self) -> Result<bool, String> {
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

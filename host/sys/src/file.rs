//! Files: those of a copy, opened beneath a directory and nowhere else and put in place under a new name, what the page
//! cache holds of them, and files of settings, replaced whole.

use crate::socket::check;
use rustix::fs::{Advice, AtFlags, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// A directory, to name files in.
    Directory,
    /// To read; a pipe without a writer does not keep the caller waiting.
    Read,
    /// The name itself, whatever it is: a symbolic link is not followed.
    Name,
    /// A new file to write; a name that is taken is an error.
    New,
}

/// How far a path may lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Wherever this process may go.
    None,
    /// No symbolic link, `..` or absolute path leads out of the directory (`RESOLVE_BENEATH` of openat2(2),
    /// Linux 5.6).
    Beneath,
}

/// Opens `path` as seen from `directory`.
pub fn open_at(
    directory: BorrowedFd<'_>,
    path: &Path,
    how: Open,
    bound: Bound,
) -> io::Result<File> {
    let flags = OFlags::CLOEXEC
        | match how {
            Open::Directory => OFlags::RDONLY | OFlags::DIRECTORY,
            Open::Read => OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY,
            Open::Name => OFlags::PATH | OFlags::NOFOLLOW,
            Open::New => OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW,
        };
    // Of a new file, less the process's umask; openat2(2) takes none of another.
    let mode = match how {
        Open::New => Mode::from_raw_mode(0o666),
        Open::Directory | Open::Read | Open::Name => Mode::empty(),
    };
    let fd = match bound {
        Bound::None => rustix::fs::openat(directory, path, flags, mode)?,
        Bound::Beneath => {
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
            rustix::fs::openat2(directory, path, flags, mode, resolve)?
        }
    };
    Ok(fd.into())
}

/// Puts `bytes` in the place of whatever is at `path`, with the permissions `mode`: whole or not at all, even if the
/// power fails. `draft`, beside it, is its name until then, and nobody else's.
pub fn replace(path: &Path, draft: &Path, mode: u32, bytes: &[u8]) -> io::Result<()> {
    // One that was left behind.
    let _ = fs::remove_file(draft);
    let mut new = OpenOptions::new();
    let new = new.write(true).create_new(true).mode(0o600);
    let written = new.open(draft).and_then(|mut file| {
        file.write_all(bytes)?;
        // The mask of the process does not hold here.
        file.set_permissions(Permissions::from_mode(mode))?;
        file.sync_all()?;
        fs::rename(draft, path)?;
        sync_directory(path)
    });
    if written.is_err() {
        // It may not even have been made; the first failure is reported.
        let _ = fs::remove_file(draft);
    }
    written
}

/// Makes a directory, and those above it, for the user alone where they are missing.
pub fn make_private(directory: &Path) -> io::Result<()> {
    let mut new = DirBuilder::new();
    new.recursive(true).mode(0o700).create(directory)
}

/// A directory for the user alone that is removed with its value.
#[derive(Debug)]
pub struct TemporaryDirectory(PathBuf);

impl TemporaryDirectory {
    /// A new one of this name, which nobody else has.
    pub fn create(name: &str) -> io::Result<TemporaryDirectory> {
        let path = std::env::temp_dir().join(name);
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(TemporaryDirectory(path))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        // It is of no use to anybody any more.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Makes what became of the name `path` last.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
}

/// Gives a file of a directory a new name in it, which must be free.
///
/// # Errors
/// What renameat2(2) says: `EEXIST` if the name is taken by now. Where a file system lacks the promise
/// (`EINVAL`, as NFS does), a link and an unlink keep it.
pub fn rename_new(directory: BorrowedFd<'_>, from: &Path, to: &Path) -> io::Result<()> {
    match rustix::fs::renameat_with(directory, from, directory, to, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL) => {
            rustix::fs::linkat(directory, from, directory, to, AtFlags::empty())?;
            remove(directory, from)
        }
        renamed => Ok(renamed?),
    }
}

/// Removes a file of a directory.
pub fn remove(directory: BorrowedFd<'_>, name: &Path) -> io::Result<()> {
    Ok(rustix::fs::unlinkat(directory, name, AtFlags::empty())?)
}

/// Has reads and writes of a file pass the page cache by, or not (`O_DIRECT`).
pub fn set_direct(file: BorrowedFd<'_>, on: bool) -> io::Result<()> {
    let mut flags = rustix::fs::fcntl_getfl(file)?;
    flags.set(OFlags::DIRECT, on);
    Ok(rustix::fs::fcntl_setfl(file, flags)?)
}

/// Asks the kernel to drop what the page cache holds of a file. What is not written to the disk yet stays.
pub fn drop_cached(file: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::fs::fadvise(file, 0, None, Advice::DontNeed)?)
}

/// Advises the kernel of random reads, so that it does not read ahead.
pub fn advise_random(file: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::fs::fadvise(file, 0, None, Advice::Random)?)
}

/// The share of the first `length` bytes of a file that the page cache holds, 0 to 1 (mincore(2)). The kernel
/// gives the true answer only to the file's owner, root and those who may write it: to others all of it seems cached.
pub fn cached_share(file: BorrowedFd<'_>, length: u64) -> io::Result<f64> {
    /// Looked at at once: 64 KiB of answers with pages of 4 KiB.
    const WINDOW: u64 = 256 << 20;
    let page = rustix::param::page_size() as u64;
    let (mut held, mut pages, mut at) = (0u64, 0u64, 0u64);
    while at < length {
        let span = (length - at).min(WINDOW);
        let mut answers = vec![0u8; span.div_ceil(page) as usize];
        // SAFETY: a new mapping of an open file at a place that the kernel chooses touches no memory of ours;
        // it is never read.
        let map = unsafe {
            let (null, kind) = (ptr::null_mut(), MapFlags::SHARED);
            mmap(null, span as usize, ProtFlags::empty(), kind, file, at)?
        };
        // SAFETY: the mapping has `span` bytes, and there is room for an answer for each of its pages.
        let seen = check(unsafe { libc::mincore(map, span as usize, answers.as_mut_ptr().cast()) });
        // SAFETY: the mapping was made above with this length and is used no more.
        unsafe { munmap(map, span as usize) }?;
        seen?;
        held += answers
            .iter()
            .map(|answer| u64::from(answer & 1))
            .sum::<u64>();
        pages += answers.len() as u64;
        at += span;
    }
    Ok(held as f64 / pages.max(1) as f64)
}

/// The first bytes of a file, read and written together with the kernel.
#[derive(Debug)]
pub(crate) struct Mapping {
    pub at: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the memory stays mapped for the life of the value; how it is used is up to its owner.
unsafe impl Send for Mapping {}

impl Mapping {
    pub fn shared(file: BorrowedFd<'_>, bytes: usize) -> io::Result<Mapping> {
        let (access, kind) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping of an open file at a place that the kernel chooses.
        let at = unsafe { mmap(ptr::null_mut(), bytes, access, kind, file, 0) }?;
        let at = NonNull::new(at.cast()).ok_or(io::ErrorKind::Other)?;
        Ok(Mapping { at, bytes })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly what was mapped, and nothing can use it any more.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::path::PathBuf;

    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> (Directory, File) {
            let path = std::env::temp_dir().join(format!("linerate-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            let open = File::open(&path).unwrap();
            (Directory(path), open)
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn no_path_leads_out_of_a_directory() {
        let (path, directory) = Directory::new("beneath");
        std::fs::write(path.0.join("a"), "x").unwrap();
        std::os::unix::fs::symlink("a", path.0.join("inside")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", path.0.join("outside")).unwrap();
        std::os::unix::fs::symlink("..", path.0.join("up")).unwrap();
        let open = |name: &str| {
            open_at(
                directory.as_fd(),
                Path::new(name),
                Open::Read,
                Bound::Beneath,
            )
        };
        assert!(open("a").is_ok() && open("inside").is_ok());
        for bad in ["outside", "up/etc", "../x", "/etc/passwd", "up"] {
            let error = open(bad).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EXDEV), "{bad}: {error}");
        }
    }

    #[test]
    fn a_new_name_replaces_nothing() {
        let (path, directory) = Directory::new("rename");
        let mut new = open_at(
            directory.as_fd(),
            Path::new("part"),
            Open::New,
            Bound::Beneath,
        )
        .unwrap();
        new.write_all(b"new").unwrap();
        std::fs::write(path.0.join("taken"), "old").unwrap();
        let rename = |to: &str| rename_new(directory.as_fd(), Path::new("part"), Path::new(to));
        assert_eq!(
            rename("taken").unwrap_err().kind(),
            io::ErrorKind::AlreadyExists
        );
        rename("free").unwrap();
        let read = |name: &str| std::fs::read_to_string(path.0.join(name)).unwrap();
        assert_eq!((read("taken"), read("free")), ("old".into(), "new".into()));
        remove(directory.as_fd(), Path::new("free")).unwrap();
        assert!(!path.0.join("free").exists());
    }

    #[test]
    fn the_cached_share_is_reported() {
        let (path, directory) = Directory::new("cached");
        std::fs::write(path.0.join("a"), vec![1; 1 << 20]).unwrap();
        let file = open_at(directory.as_fd(), Path::new("a"), Open::Read, Bound::None).unwrap();
        assert_eq!(cached_share(file.as_fd(), 1 << 20).unwrap(), 1.0);
        file.sync_all().unwrap();
        drop_cached(file.as_fd()).unwrap();
        // A file system in memory keeps everything.
        assert!(cached_share(file.as_fd(), 1 << 20).unwrap() <= 1.0);
        assert_eq!(cached_share(file.as_fd(), 0).unwrap(), 0.0);
    }
}

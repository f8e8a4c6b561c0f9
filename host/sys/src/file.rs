//! Files for a copy: opened beneath a directory and nowhere else, put in place under a new name, and what the page
//! cache holds of them.

use crate::socket::check;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

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
///
/// # Errors
/// What openat(2) and openat2(2) say: `EXDEV` for a path that leads out.
pub fn open_at(
    directory: BorrowedFd<'_>,
    path: &Path,
    how: Open,
    bound: Bound,
) -> io::Result<File> {
    /// Of a new file, less the process's umask.
    const MODE: libc::mode_t = 0o666;
    let path = c_string(path)?;
    let flags = libc::O_CLOEXEC
        | match how {
            Open::Directory => libc::O_RDONLY | libc::O_DIRECTORY,
            Open::Read => libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY,
            Open::Name => libc::O_PATH | libc::O_NOFOLLOW,
            Open::New => libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW,
        };
    if bound == Bound::None {
        // SAFETY: the descriptor is open and the path is a terminated string, which the kernel only reads.
        let fd = unsafe { libc::openat(directory.as_raw_fd(), path.as_ptr(), flags, MODE) };
        return opened(fd.into());
    }
    // SAFETY: open_how is plain numbers, for which zero is the documented default of each.
    let mut open_how: libc::open_how = unsafe { std::mem::zeroed() };
    open_how.flags = flags as u64;
    if how == Open::New {
        open_how.mode = MODE.into();
    }
    open_how.resolve = libc::RESOLVE_BENEATH | libc::RESOLVE_NO_MAGICLINKS;
    // SAFETY: the descriptor is open, the path is a terminated string, and the structure is initialised and
    // its size given; the kernel only reads them.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_openat2,
            directory.as_raw_fd(),
            path.as_ptr(),
            &raw const open_how,
            size_of::<libc::open_how>(),
        )
    };
    opened(fd)
}

/// What a call that opens has just returned.
fn opened(fd: libc::c_long) -> io::Result<File> {
    match libc::c_int::try_from(fd) {
        // SAFETY: the kernel has just given us this descriptor, and nobody else has it.
        Ok(fd) if fd >= 0 => Ok(unsafe { File::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Gives a file of a directory a new name in it, which must be free.
///
/// # Errors
/// What renameat2(2) says: `EEXIST` if the name is taken by now. Where a file system lacks the promise
/// (`EINVAL`, as NFS does), a link and an unlink keep it.
pub fn rename_new(directory: BorrowedFd<'_>, from: &Path, to: &Path) -> io::Result<()> {
    let (fd, old, new) = (directory.as_raw_fd(), c_string(from)?, c_string(to)?);
    // SAFETY: the descriptor is open and both names are terminated strings.
    let renamed = check(unsafe {
        libc::renameat2(fd, old.as_ptr(), fd, new.as_ptr(), libc::RENAME_NOREPLACE)
    });
    match renamed {
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
            // SAFETY: as above.
            check(unsafe { libc::linkat(fd, old.as_ptr(), fd, new.as_ptr(), 0) })?;
            remove(directory, from)
        }
        renamed => renamed.map(drop),
    }
}

/// Removes a file of a directory.
///
/// # Errors
/// What unlinkat(2) says.
pub fn remove(directory: BorrowedFd<'_>, name: &Path) -> io::Result<()> {
    let name = c_string(name)?;
    // SAFETY: the descriptor is open and the name is a terminated string.
    check(unsafe { libc::unlinkat(directory.as_raw_fd(), name.as_ptr(), 0) }).map(drop)
}

/// Has reads and writes of a file pass the page cache by, or not (`O_DIRECT`).
///
/// # Errors
/// What fcntl(2) says: `EINVAL` where the file system has no such way.
pub fn set_direct(file: BorrowedFd<'_>, on: bool) -> io::Result<()> {
    // SAFETY: the descriptor is open; these operations take and return plain numbers.
    let flags = check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) })?;
    let flags = match on {
        true => flags | libc::O_DIRECT,
        false => flags & !libc::O_DIRECT,
    };
    // SAFETY: as above.
    check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags) }).map(drop)
}

/// Asks the kernel to drop what the page cache holds of a file. What is not written to the disk yet stays.
///
/// # Errors
/// What posix_fadvise(2) says.
pub fn drop_cached(file: BorrowedFd<'_>) -> io::Result<()> {
    advise(file, libc::POSIX_FADV_DONTNEED)
}

/// Tells the kernel that a file is read by chance, so that it does not read ahead.
///
/// # Errors
/// What posix_fadvise(2) says.
pub fn advise_random(file: BorrowedFd<'_>) -> io::Result<()> {
    advise(file, libc::POSIX_FADV_RANDOM)
}

fn advise(file: BorrowedFd<'_>, advice: libc::c_int) -> io::Result<()> {
    // SAFETY: the descriptor is open; the call takes plain numbers.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, advice) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// The share of the first `length` bytes of a file that the page cache holds, 0 to 1 (mincore(2)). The kernel
/// tells the truth only to the file's owner, root and whoever may write it: to others everything seems to be there.
///
/// # Errors
/// What mmap(2) and mincore(2) say.
pub fn cached_share(file: BorrowedFd<'_>, length: u64) -> io::Result<f64> {
    /// Looked at at once: 64 KiB of answers with pages of 4 KiB.
    const WINDOW: u64 = 256 << 20;
    // SAFETY: the call takes a plain number.
    let page = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
    let (mut held, mut pages, mut at) = (0u64, 0u64, 0u64);
    while at < length {
        let span = (length - at).min(WINDOW);
        let mut answers = vec![0u8; span.div_ceil(page) as usize];
        let offset = libc::off_t::try_from(at).map_err(io::Error::other)?;
        // SAFETY: a new mapping of an open file at a place that the kernel chooses touches no memory of ours;
        // it is never read.
        let map = unsafe {
            libc::mmap(
                ptr::null_mut(),
                span as usize,
                libc::PROT_NONE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                offset,
            )
        };
        if map == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the mapping has `span` bytes, and there is room for an answer for each of its pages.
        let seen = check(unsafe { libc::mincore(map, span as usize, answers.as_mut_ptr().cast()) });
        // SAFETY: the mapping was made above with this length and is used no more.
        unsafe { libc::munmap(map, span as usize) };
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

fn c_string(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::ErrorKind::InvalidInput.into())
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
    fn what_the_cache_holds_is_told() {
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

//! Files of an order: which may be named, how they are opened, and what the page cache holds of them.

use crate::prelude::*;
use model::Cache;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU32;
use sys::file::{self, Bound, Open};

/// Which files an order may name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Those of the user whose process this is.
    Anywhere,
    /// Those below a directory, by whatever path.
    Beneath(PathBuf),
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

pub(crate) fn unopened(what: &str, path: &str, reach: &Reach, e: io::Error) -> Error {
    match reach {
        Reach::Beneath(directory) if e.raw_os_error() == Some(libc::EXDEV) => Error::Job(format!(
            "cannot {what} {path}: it is not below {}, where alone files may be used here",
            directory.display()
        )),
        _ => Error::Job(format!("cannot {what} {path}: {e}")),
    }
}

pub(crate) fn direct(file: &File, path: &str) -> Result<(), Error> {
    file::set_direct(file.as_fd(), true).map_err(|e| {
        let why = match e.raw_os_error() {
            Some(libc::EINVAL) => "its file system has no O_DIRECT".to_owned(),
            _ => e.to_string(),
        };
        Error::Job(format!(
            "cannot pass the page cache by for {path}: {why}; leave --direct out"
        ))
    })
}

/// Whether this process sees which pages of a file are cached (mincore(2)).
pub(crate) fn sees_cache(owner: u32) -> bool {
    let user = sys::process::effective_user();
    user == 0 || user == owner
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_part_has_a_name_that_nobody_has_and_gives_up_after_100() {
        let directory = std::env::temp_dir().join(format!("linerate-parts-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let part = || new_part(&File::open(&directory).unwrap(), Bound::None).map(|(name, _)| name);
        let occupy = |numbers: std::ops::Range<u32>| {
            for number in numbers {
                let name = format!(".linerate-{}-{number}.part", std::process::id());
                fs::write(directory.join(name), "").unwrap();
            }
        };
        // No other test of this binary makes a part.
        occupy(0..99);
        let name = part().unwrap();
        assert!(name.to_str().unwrap().ends_with("-99.part"), "{name:?}");
        occupy(100..200);
        let found = part().map_err(|error| error.kind());
        let gone = File::open(&directory).unwrap();
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(found, Err(ErrorKind::AlreadyExists));
        let other = new_part(&gone, Bound::None).map_err(|error| error.kind());
        assert_eq!(other.unwrap_err(), ErrorKind::NotFound);
    }
}

//! The traces of runs and of watches: files in a directory beside the archive, so that every tool can open them.

use crate::{Error, is_id};
use flate2::read::GzDecoder;
use model::Side;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Where the traces of an archive are: `runs.db.traces` beside `runs.db`.
#[derive(Clone, Debug)]
pub struct Traces {
    directory: PathBuf,
}

impl Traces {
    /// Those of the archive at this path.
    pub fn beside(archive: &Path) -> Traces {
        let mut directory = archive.as_os_str().to_owned();
        directory.push(".traces");
        Traces {
            directory: directory.into(),
        }
    }

    /// The file of the trace of one end of a leg, which need not exist.
    pub fn file(&self, run: &str, leg: usize, side: Side) -> PathBuf {
        let name = format!("{run}-{leg}-{}.trace.gz", side.name());
        self.directory.join(name)
    }

    /// Makes the file of a trace that is written as it comes; only the owner may read it.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn create(&self, run: &str, leg: usize, side: Side) -> Result<File, Error> {
        let file = self.file(run, leg, side);
        self.make(&file)
            .map_err(|source| Error::Trace(file, source))
    }

    fn make(&self, file: &Path) -> io::Result<File> {
        sys::file::make_private(&self.directory)?;
        let mut open = OpenOptions::new();
        let open = open.write(true).create(true).truncate(true).mode(0o600);
        open.open(file)
    }

    /// Keeps a trace: whole, or not at all. Only the owner may read it.
    pub fn store(&self, run: &str, leg: usize, side: Side, bytes: &[u8]) -> Result<(), Error> {
        let file = self.file(run, leg, side);
        let part = file.with_extension("part");
        let write = || -> io::Result<()> {
            self.make(&part)?.write_all(bytes)?;
            fs::rename(&part, &file)
        };
        write().map_err(|source| {
            // It may not even have been made; the first failure is reported.
            let _ = fs::remove_file(&part);
            Error::Trace(file, source)
        })
    }

    /// The same file, read whole once: gzip has a checksum at its end.
    ///
    /// # Errors
    /// If it is missing or damaged.
    pub fn checked(&self, run: &str, leg: usize, side: Side) -> Result<PathBuf, Error> {
        check(run, self.file(run, leg, side))
    }

    /// Checks all those of a run.
    ///
    /// # Errors
    /// As [`Traces::checked`], of the first.
    pub fn verify(&self, run: &str) -> Result<(), Error> {
        let mut files = self.of(run).into_iter();
        files.try_for_each(|file| check(run, file).map(drop))
    }

    /// What the files of a run, or of all, take on the disk.
    pub(crate) fn bytes(&self, run: Option<&str>) -> u64 {
        let Ok(entries) = fs::read_dir(&self.directory) else {
            return 0;
        };
        let of_run = |name: &str| run.is_none_or(|run| name.starts_with(&format!("{run}-")));
        let files = entries
            .flatten()
            .filter(|entry| entry.file_name().to_str().is_some_and(of_run));
        files
            .flat_map(|entry| entry.metadata())
            .map(|m| m.len())
            .sum()
    }

    /// The files of a run.
    pub fn of(&self, run: &str) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(&self.directory) else {
            return Vec::new();
        };
        let own = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str());
            is_id(run) && name.is_some_and(|name| name.starts_with(&format!("{run}-")))
        };
        let mut files: Vec<PathBuf> = entries.flatten().map(|e| e.path()).filter(own).collect();
        files.sort();
        files
    }

    /// Deletes those of a run for good, and the directory with the last of all.
    pub fn delete(&self, run: &str) -> Result<(), Error> {
        for path in self.of(run) {
            fs::remove_file(&path).map_err(|source| Error::Trace(path, source))?;
        }
        // Others may be in it.
        let _ = fs::remove_dir(&self.directory);
        Ok(())
    }
}

fn check(run: &str, file: PathBuf) -> Result<PathBuf, Error> {
    let read = || {
        io::copy(
            &mut GzDecoder::new(sys::confine::open(&file)?),
            &mut io::sink(),
        )
    };
    match read() {
        Ok(_) => Ok(file),
        Err(source) => Err(Error::DamagedTrace(file, run.to_owned(), source)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn traces_are_kept_for_their_run_alone_and_go_with_it() {
        let archive = std::env::temp_dir().join(format!("linerate-traces-{}", std::process::id()));
        let traces = Traces::beside(&archive);
        traces.store("00c0ffee", 0, Side::Local, b"one").unwrap();
        traces.store("00c0ffee", 1, Side::Remote, b"two").unwrap();
        traces.store("0badcafe", 0, Side::Local, b"three").unwrap();
        let file = traces.file("00c0ffee", 1, Side::Remote);
        assert_eq!(fs::read(&file).unwrap(), b"two");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o77, 0);
        assert_eq!(traces.of("00c0ffee").len(), 2);
        assert!(traces.of("00").is_empty());
        assert!(matches!(
            traces.verify("00c0ffee"),
            Err(Error::DamagedTrace(..))
        ));
        traces.delete("00c0ffee").unwrap();
        assert_eq!(
            (traces.of("00c0ffee").len(), traces.of("0badcafe").len()),
            (0, 1)
        );
        traces.delete("0badcafe").unwrap();
        assert!(!traces.directory.exists());
    }
}

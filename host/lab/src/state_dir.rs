//! Where the state of labs is kept: one directory a lab, whose lock is held by the process that holds the
//! lab for as long as it lives. The kernel drops the lock with the process, which distinguishes a killed lab
//! from a running one without trusting process numbers.

use crate::Error;
use crate::emulator_counters::LinkBackend;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The environment variable that marks every program started in a lab with the lab's own id.
pub const MARK: &str = "LINERATE_LAB";

/// The environment variable that names another directory of labs than the user's own.
pub const HOME: &str = "LINERATE_LABS";

/// What is written of a lab once it is up.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LabRecord {
    /// Name of the lab.
    pub name: String,
    /// Name of the scenario that it was made from.
    pub scenario: String,
    /// Why the scenario's numbers are what they are.
    pub why: String,
    /// Random, never used again: marks the programs of this lab.
    pub id: String,
    /// The process that holds the namespaces and moves the frames.
    pub pid: u32,
    /// Seconds since 1970.
    pub started: u64,
    /// Whether the lab lives in a user namespace of its own.
    pub in_user_namespace: bool,
    /// Hosts, routers and switches.
    pub nodes: Vec<NodeRecord>,
    /// How each link is made.
    pub links: Vec<LinkRecord>,
}

/// A node of a lab that is up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// Its name.
    pub name: String,
    /// `host`, `router` or `switch`.
    pub kind: String,
    /// Its addresses, in the order of its links.
    pub addresses: Vec<IpAddr>,
    /// Its network namespace: a path that setns(2) and `nsenter --net=` take.
    pub netns: PathBuf,
    /// Number of the namespace, as in `/proc/PID/ns/net`.
    pub inode: u64,
}

/// A link of a lab that is up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkRecord {
    /// Its name.
    pub name: String,
    /// The nodes that it joins: forward is from the first to the second.
    pub ends: [String; 2],
    /// What makes it.
    pub backend: LinkBackend,
    /// Why that and nothing else.
    pub why: String,
}

/// The directory of all labs of this user: `$LINERATE_LABS`; without it `/run/linerate/labs` for root, else
/// `linerate/labs` in `$XDG_RUNTIME_DIR`, or in `/tmp/linerate-UID` where that is unset.
pub(crate) fn home_of_user() -> PathBuf {
    let absolute = |name| {
        let path = std::env::var_os(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    if let Some(path) = absolute(HOME) {
        return path;
    }
    let uid = sys::process::effective_user();
    if uid == 0 {
        return PathBuf::from("/run/linerate/labs");
    }
    let runtime = absolute("XDG_RUNTIME_DIR").filter(|path| path.is_dir());
    let own = || PathBuf::from(format!("/tmp/linerate-{uid}"));
    runtime.unwrap_or_else(own).join("linerate/labs")
}

/// The directory of one lab.
#[derive(Clone, Debug)]
pub struct StatePlace {
    directory: PathBuf,
}

impl StatePlace {
    /// The place of the lab `name` in the directory of all labs; it need not exist.
    pub fn of(home: &Path, name: &str) -> Result<StatePlace, Error> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let first = name.starts_with(|c: char| c.is_ascii_alphanumeric());
        match first && name.len() <= 40 && name.chars().all(plain) {
            true => Ok(StatePlace {
                directory: home.join(name),
            }),
            false => Err(Error::Failed(format!(
                "'{name}' cannot be the name of a lab: use up to 40 letters, digits, '-', '_' and '.', a letter or digit first"
            ))),
        }
    }

    /// The places of all labs, dead or alive, by name.
    pub fn all(home: &Path) -> Result<Vec<(String, StatePlace)>, Error> {
        let entries = match fs::read_dir(home) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed("read", home)(error)),
        };
        let mut all: Vec<_> = entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter_map(|name| Some((name.clone(), StatePlace::of(home, &name).ok()?)))
            .collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(all)
    }

    /// Makes the directory and takes its lock; for the process that holds the lab.
    ///
    /// # Errors
    /// [`Error::IsUp`] if another process has the lock.
    pub fn take(&self, name: &str) -> Result<File, Error> {
        for _ in 0..PATIENCE {
            let made = sys::file::make_private(&self.directory);
            made.map_err(failed("make", &self.directory))?;
            self.check_owner()?;
            let mut lock = OpenOptions::new();
            lock.write(true).create(true).truncate(false);
            let lock = match lock.open(self.lock()) {
                Ok(lock) => lock,
                // Removed by somebody else in between.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(failed("make", &self.lock())(error)),
            };
            match lock.try_lock() {
                Ok(()) if self.is_lock(&lock) => {
                    let pid = std::process::id().to_string();
                    let written = fs::write(self.lock(), pid);
                    written.map_err(failed("write", &self.lock()))?;
                    return Ok(lock);
                }
                // Removed in between, or held for a moment by somebody who looks.
                Ok(()) | Err(TryLockError::WouldBlock) => std::thread::sleep(MOMENT),
                Err(TryLockError::Error(error)) => return Err(failed("lock", &self.lock())(error)),
            }
        }
        Err(Error::IsUp(name.to_owned()))
    }

    /// Whether a living process holds the lab.
    pub fn is_alive(&self) -> bool {
        File::open(self.lock())
            .is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)))
    }

    /// The process that holds the lab or makes it.
    pub fn holder(&self) -> Option<u32> {
        fs::read_to_string(self.lock()).ok()?.trim().parse().ok()
    }

    /// What is written of the lab; `None` before it is up.
    pub fn record(&self) -> Option<LabRecord> {
        serde_json::from_slice(&fs::read(self.file("lab.json")).ok()?).ok()
    }

    /// Writes a file whole or not at all.
    pub fn write(&self, name: &str, value: &impl Serialize) -> Result<(), Error> {
        let path = self.file(name);
        let draft = self.file(&format!("{name}.new"));
        serde_json::to_vec_pretty(value)
            .map_err(io::Error::from)
            .and_then(|text| sys::file::replace(&path, &draft, 0o600, &text))
            .map_err(failed("write", &path))
    }

    /// The directory of all labs.
    pub fn home(&self) -> &Path {
        self.directory.parent().unwrap_or(&self.directory)
    }

    /// A file of the lab.
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Removes what a lab left, unless a process holds it. `held` is the lock of a caller that does itself.
    pub fn remove(&self, held: Option<File>) -> Result<(), Error> {
        // Removed under the lock, so that a lab of this name that is just being made keeps its own.
        let free = || {
            File::open(self.lock())
                .ok()
                .filter(|l| l.try_lock().is_ok())
        };
        let lock = held.or_else(free);
        if lock.is_none() && self.lock().exists() {
            return Ok(());
        }
        match fs::remove_dir_all(&self.directory) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(failed("remove", &self.directory)(error))
            }
            _ => Ok(()),
        }
    }

    /// Whether there is anything of this lab.
    pub fn exists(&self) -> bool {
        self.directory.is_dir()
    }

    fn lock(&self) -> PathBuf {
        self.file("lock")
    }

    fn is_lock(&self, lock: &File) -> bool {
        let number = |m: io::Result<fs::Metadata>| m.map(|m| (m.dev(), m.ino())).ok();
        number(lock.metadata()) == number(fs::metadata(self.lock()))
    }

    /// A directory in /tmp could have been put there by anybody.
    fn check_owner(&self) -> Result<(), Error> {
        let uid = sys::process::effective_user();
        // The lab's own directory, that of all labs, and `/tmp/linerate-UID`, which is two above.
        let strange =
            |path: &&Path| fs::metadata(path).is_ok_and(|m| m.uid() != uid && m.uid() != 0);
        match self.directory.ancestors().take(4).find(strange) {
            None => Ok(()),
            Some(path) => {
                let what = format!("use {}, which belongs to another user", path.display());
                Err(Error::system(what)(io::ErrorKind::PermissionDenied))
            }
        }
    }
}

fn failed(what: &str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    Error::system(format!("{what} {}", path.display()))
}

/// How often a lock is tried, this far apart: whoever only looks holds it for microseconds.
const PATIENCE: u32 = 10;
const MOMENT: Duration = Duration::from_millis(20);

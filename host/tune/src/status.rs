//! What is changed now, and by whom.

use crate::journal::{Journal, JournalEntry, JournalPlace, Namespace};
use crate::prelude::*;
use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;

/// An experiment that changes, or has changed and not undone, settings of this machine; or what one kept.
#[derive(Clone, Debug)]
pub struct Pending {
    /// Title of the experiment.
    pub title: String,
    /// Its process.
    pub pid: u32,
    /// Since when, in seconds since 1970-01-01 UTC.
    pub started: u64,
    /// When the guard will undo everything unless the session is renewed, in seconds since 1970-01-01 UTC.
    pub deadline: u64,
    /// Whether the experiment lives.
    pub alive: bool,
    /// Whether its guard lives.
    pub guarded: bool,
    /// It is over, and what it proved stays.
    pub kept: bool,
    /// Where the changes are.
    pub namespace: Where,
    /// What is changed, in the order in which it was.
    pub changes: Vec<PendingChange>,
}

/// In which network namespace changes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    /// In that of the caller.
    Here,
    /// In another of this machine, with this inode number (`ls -l /proc/PID/ns/net`); to a caller who may not look at every
    /// process, also one that is gone.
    Elsewhere(u64),
    /// Nowhere: the machine was rebooted since, or the namespace is gone.
    Forgotten,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingChange {
    /// The setting, as text.
    pub setting: String,
    /// The value before.
    pub was: String,
    /// Whether it is known to have been made; else it may have been.
    pub made: bool,
}

/// What is changed now on this machine, according to the journals in this directory.
pub fn status(state: &Path) -> Result<Vec<Pending>, Error> {
    let here = Namespace::current()?;
    let mut all = Vec::new();
    for place in JournalPlace::all(state)? {
        for path in place.kept().into_values() {
            if let Some(journal) = Journal::read_at(path)? {
                all.push(pending(journal, &place, &here, true));
            }
        }
        if let Some(journal) = Journal::read_at(place.journal())? {
            all.push(pending(journal, &place, &here, false));
        }
    }
    Ok(all)
}

fn pending(journal: Journal, place: &JournalPlace, here: &Namespace, kept: bool) -> Pending {
    let change = |entry: JournalEntry| PendingChange {
        made: entry.after.is_some(),
        setting: entry.change.setting.to_string(),
        was: entry.change.was,
    };
    let header = journal.header;
    let patience = header.deadline_ms / 1000;
    Pending {
        alive: !kept && place.is_locked("hold"),
        guarded: !kept && place.is_locked("guard"),
        kept,
        deadline: place.touched("guard").unwrap_or(header.started) + patience,
        namespace: match header.namespace {
            same if same == *here => Where::Here,
            other if other.boot != here.boot || other.inode == here.inode => Where::Forgotten,
            other if is_gone(other.inode) => Where::Forgotten,
            other => Where::Elsewhere(other.inode),
        },
        title: header.title,
        pid: header.pid,
        started: header.started,
        changes: journal.entries.into_iter().map(change).collect(),
    }
}

/// No thread is in this network namespace, and no name and no open file holds it; false where that is not known.
fn is_gone(inode: u64) -> bool {
    let holds = |path: PathBuf| match std::fs::metadata(path) {
        Ok(file) => file.ino() == inode,
        // Who may not look does not know; what has ended holds nothing.
        Err(error) => error.kind() == std::io::ErrorKind::PermissionDenied,
    };
    let within = |folder: PathBuf| {
        let all = std::fs::read_dir(folder).into_iter().flatten();
        all.flatten().map(|entry| entry.path())
    };
    // A name of a namespace has its inode, and so has an open file of one.
    if within("/run/netns".into()).any(holds) {
        return false;
    }
    // The first process may be closed to root in a sandbox; it is not alone in its namespace.
    let is_other = |process: &PathBuf| {
        let number = process.file_name().and_then(OsStr::to_str);
        number.and_then(|name| name.parse().ok()) > Some(1u32)
    };
    let link = PathBuf::from(format!("net:[{inode}]"));
    let is_held = |file: PathBuf| std::fs::read_link(file).is_ok_and(|to| to == link);
    within("/proc".into()).filter(is_other).all(|process| {
        !within(process.join("task")).any(|thread| holds(thread.join("ns/net")))
            && !within(process.join("fd")).any(is_held)
    })
}

/// The directory of the journals: `LINERATE_STATE` if it is set; `/var/lib/linerate/tune` for root; else
/// `linerate/tune` in `$XDG_STATE_HOME`, or in `~/.local/state` (XDG Base Directory Specification). The
/// caller reads the environment.
///
/// # Errors
/// [`Error::NoState`] if nothing leads to a directory.
pub fn default_state(
    linerate_state: Option<&OsStr>,
    xdg_state_home: Option<&OsStr>,
    home: Option<&OsStr>,
) -> Result<PathBuf, Error> {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let root = owns_the_machine(sys::process::effective_user(), &map);
    choose(linerate_state, root, xdg_state_home, home).ok_or(Error::NoState)
}

/// Root of a user namespace, by its map of users, cannot write where root can.
fn owns_the_machine(user: u32, map: &str) -> bool {
    user == 0 && map.split_whitespace().eq(["0", "0", "4294967295"])
}

fn choose(
    linerate_state: Option<&OsStr>,
    root: bool,
    xdg_state_home: Option<&OsStr>,
    home: Option<&OsStr>,
) -> Option<PathBuf> {
    let absolute = |value: Option<&OsStr>| {
        let path = value.map(Path::new).filter(|path| path.is_absolute());
        path.map(Path::to_owned)
    };
    if let Some(state) = absolute(linerate_state) {
        return Some(state);
    }
    if root {
        return Some("/var/lib/linerate/tune".into());
    }
    absolute(xdg_state_home)
        .or_else(|| Some(absolute(home)?.join(".local/state")))
        .map(|state| state.join("linerate/tune"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_that_is_held_is_not_gone() {
        let own = std::fs::metadata("/proc/self/ns/net").unwrap().ino();
        assert!(!is_gone(own));
        // A lab holds its namespaces by open files. Root alone may make one.
        let Ok(held) = sys::namespace::new_net().map(std::fs::File::from) else {
            return;
        };
        let other = held.metadata().unwrap().ino();
        assert!(!is_gone(other));
        drop(held);
        assert!(is_gone(other));
    }

    #[test]
    fn the_directory_of_the_journals() {
        let path = |state: Option<&str>, root, xdg: Option<&str>, home: Option<&str>| {
            choose(
                state.map(OsStr::new),
                root,
                xdg.map(OsStr::new),
                home.map(OsStr::new),
            )
        };
        let of = |text: &str| Some(PathBuf::from(text));
        assert_eq!(path(Some("/s"), true, None, None), of("/s"));
        assert_eq!(
            path(None, true, Some("/x"), None),
            of("/var/lib/linerate/tune")
        );
        assert_eq!(
            path(Some("s"), false, Some("/x"), None),
            of("/x/linerate/tune")
        );
        assert_eq!(
            path(None, false, Some(""), Some("/home/a")),
            of("/home/a/.local/state/linerate/tune")
        );
        assert_eq!(path(None, false, None, None), None);
    }

    #[test]
    fn the_journals_of_the_machines_root_are_those_of_the_machine() {
        let all = "         0          0 4294967295\n";
        assert!(owns_the_machine(0, all) && !owns_the_machine(1000, all));
        for mapped in ["0 1000 1\n", "0 0 65536\n", "0 0 4294967295\n5 5 1\n", ""] {
            assert!(!owns_the_machine(0, mapped), "{mapped}");
        }
        let found = default_state(None, None, Some(OsStr::new("/home/a"))).unwrap();
        let own = std::fs::read_to_string("/proc/self/uid_map").unwrap();
        let is_root = owns_the_machine(sys::process::effective_user(), &own);
        let of_machine = Path::new("/var/lib/linerate/tune");
        assert_eq!(found == of_machine, is_root, "{found:?}");
    }
}

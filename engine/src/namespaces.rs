//! Network namespaces of this machine as people know them, and how to run a command in one.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A network namespace.
pub struct NamespacePlace {
    /// "home of the lab x", "the network namespace y".
    pub name: String,
    /// What a command begins with to run in it.
    prefix: String,
}

impl NamespacePlace {
    /// The command that undoes what was kept there.
    pub fn undo(&self) -> String {
        format!("'{}linerate tune undo'", self.prefix)
    }
}

/// The namespace with this inode number: a host of a lab, one that 'ip netns' lists, or that of a process.
pub fn find(inode: u64) -> Option<NamespacePlace> {
    named(inode).or_else(|| {
        let processes = fs::read_dir("/proc").ok()?.flatten();
        let mut pids =
            processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let pid = pids.find(|pid| is(format!("/proc/{pid}/ns/net"), inode))?;
        Some(NamespacePlace {
            name: format!("the network namespace of process {pid}"),
            prefix: format!("nsenter --net=/proc/{pid}/ns/net "),
        })
    })
}

/// That of this process, if it has a name.
pub fn own() -> Option<NamespacePlace> {
    named(fs::metadata("/proc/thread-self/ns/net").ok()?.ino())
}

fn named(inode: u64) -> Option<NamespacePlace> {
    in_a_lab(inode).or_else(|| {
        let names = fs::read_dir("/run/netns").ok()?.flatten();
        let entry = names.into_iter().find(|entry| is(entry.path(), inode))?;
        let name = entry.file_name().into_string().ok()?;
        Some(NamespacePlace {
            prefix: format!("ip netns exec {name} "),
            name: format!("the network namespace {name}"),
        })
    })
}

fn in_a_lab(inode: u64) -> Option<NamespacePlace> {
    let labs = lab::Labs::of_user();
    labs.list().ok()?.into_iter().find_map(|info| {
        let lab = labs.open(&info.name).ok()?;
        let host = lab.hosts().find(|host| host.inode == inode)?;
        Some(NamespacePlace {
            name: format!("{} of the lab {}", host.name, info.name),
            prefix: format!("linerate lab exec {}/{} -- ", info.name, host.name),
        })
    })
}

fn is(path: impl AsRef<Path>, inode: u64) -> bool {
    fs::metadata(path).is_ok_and(|file| file.ino() == inode)
}

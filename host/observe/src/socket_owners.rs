//! Which process holds a socket, as `/proc` shows it to this one.

use model::{Comm, Nanos};
use std::collections::{HashMap, HashSet};
use std::fs;

/// Between two samples of all processes.
const RARELY: Nanos = Nanos::from_millis(200);

/// Sockets whose holders are known at once, and processes that were read.
const MOST_SOCKETS: usize = 1 << 18;

/// Open files of a process that holds sockets, up to which it is read whenever new ones are.
const FEW_FILES: usize = 64;

/// The holders of sockets, by the sockets' inodes.
pub(crate) struct SocketOwners {
    known: HashMap<u32, (u32, Comm)>,
    /// Processes that were read since all were, but those that hold sockets and have few files.
    done: HashSet<u32>,
    next: Nanos,
    next_new: Nanos,
    share: u64,
}

impl SocketOwners {
    /// Samples that take at most one part in so many of the time, and as much for new processes.
    pub(crate) fn within(share: u64) -> SocketOwners {
        SocketOwners {
            known: HashMap::new(),
            done: HashSet::new(),
            next: Nanos(0),
            next_new: Nanos(0),
            share,
        }
    }

    /// Samples one process, or all of them if it is time, else those that are new or have few files: a process that begins
    /// a transfer is most often one of these.
    pub(crate) fn sample(&mut self, only: Option<u32>, clock: impl Fn() -> Nanos) {
        let begun = clock();
        if let Some(pid) = only {
            self.read(pid);
        } else if begun >= self.next {
            self.known.clear();
            self.done.clear();
            self.read_new();
            let took = clock().since(begun);
            self.next = begun + RARELY.max(Nanos(took.0 * self.share));
        } else if begun >= self.next_new {
            self.read_new();
            let took = clock().since(begun);
            self.next_new = begun + RARELY.max(Nanos(took.0 * self.share));
        }
    }

    /// Reads the processes that are not done.
    fn read_new(&mut self) {
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        for pid in processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
            if !self.done.contains(&pid) && !self.read(pid) && self.done.len() < MOST_SOCKETS {
                self.done.insert(pid);
            }
        }
    }

    /// Whether it holds sockets and has few files. One that may not be read has no known sockets.
    fn read(&mut self, pid: u32) -> bool {
        let Ok(files) = fs::read_dir(format!("/proc/{pid}/fd")) else {
            return false;
        };
        let (mut count, mut holds) = (0, false);
        let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
        let comm = Comm::new(name.trim_ascii_end());
        for file in files.flatten() {
            count += 1;
            let Ok(target) = fs::read_link(file.path()) else {
                continue;
            };
            let inode = target.to_str().and_then(|target| {
                target
                    .strip_prefix("socket:[")?
                    .strip_suffix(']')?
                    .parse()
                    .ok()
            });
            if let Some(inode) = inode {
                holds = true;
                // Of several the one that opened it, most often: the first in the order of /proc.
                if self.known.len() < MOST_SOCKETS {
                    self.known.entry(inode).or_insert((pid, comm));
                }
            }
        }
        holds && count <= FEW_FILES
    }

    /// A process that holds this socket.
    pub(crate) fn of(&self, inode: u32) -> Option<(u32, Comm)> {
        self.known.get(&inode).copied()
    }
}

/// The systemd unit or the container that a process belongs to: the last part of its control group's path.
pub fn unit(pid: u32) -> Option<String> {
    named(&fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?)
}

/// Of lines as `0::/system.slice/rsync.service` (cgroups(7)), version 2 or systemd's own hierarchy. Digits of a container's
/// name are cut to twelve, as its tools show them.
fn named(groups: &str) -> Option<String> {
    // Other hierarchies of version 1 group by something else.
    let paths = groups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let hierarchy = parts.next()?;
        parts
            .next()
            .filter(|_| matches!(hierarchy, "" | "name=systemd"))
    });
    let last = paths
        .filter_map(|path| path.rsplit('/').next())
        .find(|name| !name.is_empty())?;
    let is_hex = |part: &&str| part.len() == 64 && part.bytes().all(|b| b.is_ascii_hexdigit());
    let id = last.split(['-', '.', ':']).find(is_hex);
    Some(id.map_or_else(|| last.to_owned(), |id| last.replace(id, &id[..12])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_and_containers_by_their_control_group() {
        let id = "0123456789abcdef".repeat(4);
        let docker = format!("0::/system.slice/docker-{id}.scope\n");
        let of = |text: &str| named(text);
        assert_eq!(of(&docker).as_deref(), Some("docker-0123456789ab.scope"));
        assert_eq!(
            of("0::/system.slice/rsync.service\n").as_deref(),
            Some("rsync.service")
        );
        assert_eq!(
            of("1:name=systemd:/user.slice/session-3.scope\n0::/\n").as_deref(),
            Some("session-3.scope")
        );
        assert_eq!(of("4:memory:/jobs/7\n0::/\n"), None);
    }
    use std::net::UdpSocket;
    use std::os::fd::AsRawFd;

    #[test]
    fn this_process_holds_its_socket() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let link = format!("/proc/self/fd/{}", socket.as_raw_fd());
        let link = fs::read_link(link).unwrap().to_string_lossy().into_owned();
        let inode = link.trim_start_matches("socket:[").trim_end_matches(']');
        let inode = inode.parse().unwrap();
        for only in [None, Some(std::process::id())] {
            let mut owners = SocketOwners::within(20);
            owners.sample(only, || Nanos(0));
            assert_eq!(owners.of(inode).unwrap().0, std::process::id());
        }
    }
}

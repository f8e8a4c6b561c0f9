//! Which process holds a socket, as `/proc` shows it to this one.

use model::{Comm, Nanos};
use std::collections::HashMap;
use std::fs;

/// Between two samples of all processes.
const RARELY: Nanos = Nanos::from_millis(200);

/// Samples take at most one part in this many of the time.
const SHARE: u64 = 20;

/// The holders of sockets, by the sockets' inodes.
#[derive(Default)]
pub(super) struct SocketOwners {
    known: HashMap<u32, (u32, Comm)>,
    next: Nanos,
}

impl SocketOwners {
    /// Samples one process, or all of them if it is time.
    pub(super) fn sample(&mut self, only: Option<u32>, clock: impl Fn() -> Nanos) {
        let begun = clock();
        if let Some(pid) = only {
            self.read(pid);
        } else if begun >= self.next {
            self.known.clear();
            let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
            for pid in processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
                self.read(pid);
            }
            let took = clock().since(begun);
            self.next = begun + RARELY.max(Nanos(took.0 * SHARE));
        }
    }

    /// One that may not be read has no known sockets.
    fn read(&mut self, pid: u32) {
        let Ok(files) = fs::read_dir(format!("/proc/{pid}/fd")) else {
            return;
        };
        let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
        let comm = Comm::new(name.trim_ascii_end());
        for file in files.flatten() {
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
                // Of several the one that opened it, most often: the first in the order of /proc.
                self.known.entry(inode).or_insert((pid, comm));
            }
        }
    }

    /// A process that holds this socket.
    pub(super) fn of(&self, inode: u32) -> Option<(u32, Comm)> {
        self.known.get(&inode).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
            let mut owners = SocketOwners::default();
            owners.sample(only, || Nanos(0));
            assert_eq!(owners.of(inode).unwrap().0, std::process::id());
        }
    }
}

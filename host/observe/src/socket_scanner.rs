//! Every TCP socket of this host, read from time to time, and the last state of each that ends.

use crate::proc;
use crate::socket_diag::{DiagReport, DiagSockets, Pair};
use crate::socket_owners::SocketOwners;
use crate::trace::{Error, Filter, enter, netns_at, netns_files, own_netns};
use model::{Connection, Nanos, TraceSample};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::{Duration, Instant};

/// Looks into `/proc` for the processes that hold sockets take at most one part in this many of the time.
const OWNERS_SHARE: u64 = 500;
/// Between two looks for new network namespaces.
const RARELY: Nanos = Nanos::from_secs(5);
/// Sockets of one process that are known at once.
const MOST_OWN: usize = 1 << 20;
/// Network namespaces that are read at once.
const MOST_NAMESPACES: usize = 1024;

/// Reads the TCP sockets of one network namespace, or of all. Sockets without a peer are left out.
pub struct SocketScanner {
    filter: Filter,
    spaces: BTreeMap<u32, DiagSockets>,
    /// Namespaces that this process may not enter.
    refused: BTreeSet<u32>,
    looked: Nanos,
    owners: SocketOwners,
    /// Processor time, as in [`SocketScanner::naming`].
    naming: Duration,
    started: Instant,
    /// Sockets that ended without a peer.
    unconnected: u64,
    /// Connections that the kernel had counted before the last look.
    counted: Option<u64>,
    /// Sockets of the filter's process: of one that ended, the process is not known any more.
    own: HashSet<u64>,
}

impl SocketScanner {
    /// Of the filter's network namespace, or of all where it has none. Reading the own one needs no privilege.
    ///
    /// # Errors
    /// The kernel reports no sockets, or the namespace may not be entered.
    pub fn open(filter: &Filter) -> Result<SocketScanner, Error> {
        let mut scanner = SocketScanner {
            filter: *filter,
            spaces: BTreeMap::new(),
            refused: BTreeSet::new(),
            looked: Nanos(0),
            owners: SocketOwners::within(OWNERS_SHARE),
            started: Instant::now(),
            naming: Duration::ZERO,
            unconnected: 0,
            counted: None,
            own: HashSet::new(),
        };
        match filter.netns {
            Some(netns) => drop(scanner.spaces.insert(netns, sockets_of(netns, filter)?)),
            None => scanner.find_namespaces(),
        }
        Ok(scanner)
    }

    /// Time since the start.
    pub fn now(&self) -> Nanos {
        self.started.elapsed().into()
    }

    /// Reads every socket that the filter matches. A connection has its socket's cookie and no number.
    pub fn poll(&mut self, each: &mut dyn FnMut(Connection, TraceSample)) {
        if self.filter.netns.is_none() && self.now().since(self.looked) >= RARELY {
            self.find_namespaces();
        }
        self.counted = opened();
        let mut met = Vec::new();
        for (netns, sockets) in &mut self.spaces {
            // A dump that fails is one that is missing: the next comes soon.
            let _ = sockets.poll(&mut |pair, report| met.push((*netns, pair, report)));
        }
        let at = self.now();
        let unknown =
            |report: &DiagReport| report.inode != 0 && self.owners.of(report.inode).is_none();
        if self.filter.pid.is_some() || met.iter().any(|(.., report)| unknown(report)) {
            let (started, began) = (self.started, sys::clock::thread_cpu());
            self.owners
                .sample(self.filter.pid, || started.elapsed().into());
            if self.filter.pid.is_none() {
                self.naming += sys::clock::thread_cpu().saturating_sub(began);
            }
        }
        for (netns, pair, report) in met {
            self.hand_on(at, netns, (pair, report), false, each);
        }
    }

    /// Reads these sockets again, one by one.
    pub fn poll_each(
        &mut self,
        wanted: &[Connection],
        each: &mut dyn FnMut(Connection, TraceSample),
    ) {
        for one in wanted {
            let sockets = self.spaces.get_mut(&one.netns);
            let found =
                sockets.and_then(|sockets| sockets.one((one.local, one.remote), one.cookie));
            if let Some(found) = found {
                self.hand_on(self.now(), one.netns, found, false, each);
            }
        }
    }

    /// Processor time since the call before that went into finding who holds which socket. Of all processes that is done as
    /// often as `OWNERS_SHARE` allows, so that it need not make looks at the sockets rarer.
    pub fn naming(&mut self) -> Duration {
        std::mem::take(&mut self.naming)
    }

    /// Reads the last state of each socket that ended since the call before. Which process had held it is not known any more.
    pub fn ended(&mut self, each: &mut dyn FnMut(Connection, TraceSample)) {
        let mut met = Vec::new();
        for (netns, sockets) in &mut self.spaces {
            sockets.ended(&mut |pair, report| met.push((*netns, pair, report)));
        }
        let at = self.now();
        for (netns, pair, report) in met {
            self.hand_on(at, netns, (pair, report), true, each);
        }
    }

    fn hand_on(
        &mut self,
        at: Nanos,
        netns: u32,
        ((local, remote), report): (Pair, DiagReport),
        gone: bool,
        each: &mut dyn FnMut(Connection, TraceSample),
    ) {
        let port = self.filter.port;
        let wanted = port.is_none_or(|port| local.port() == port || remote.port() == port);
        let (pid, comm) = self.owners.of(report.inode).unwrap_or_default();
        let own = match (self.filter.pid, gone) {
            (None, _) => true,
            (Some(_), true) => self.own.remove(&report.cookie),
            (Some(only), false) => only == pid,
        };
        self.unconnected += u64::from(gone && remote.port() == 0);
        if remote.port() == 0 || !wanted || !own {
            return;
        }
        if self.filter.pid.is_some() && !gone && self.own.len() < MOST_OWN {
            self.own.insert(report.cookie);
        }
        let connection = Connection {
            id: 0,
            cookie: report.cookie,
            netns,
            local,
            remote,
        };
        let sample = TraceSample {
            at,
            pid,
            comm,
            gone,
            ..report.sample
        };
        each(connection, sample);
    }

    /// Times that last states of sockets were lost, because too many had waited to be read.
    pub fn overruns(&self) -> u64 {
        self.spaces.values().map(|sockets| sockets.overruns).sum()
    }

    /// Connections that this network namespace had opened and accepted before the last look, by the kernel's own count
    /// (`ActiveOpens` and `PassiveOpens`, RFC 4022), without sockets that ended with no peer, as one does that was refused;
    /// `None` where all namespaces or some connections are read.
    pub fn opened(&self) -> Option<u64> {
        let filter = Filter {
            netns: own_netns(),
            ..Filter::default()
        };
        let counted = self.counted.filter(|_| self.filter == filter)?;
        Some(counted.saturating_sub(self.unconnected))
    }

    /// Network namespaces that are read, and those that this process may not enter.
    pub fn namespaces(&self) -> (usize, usize) {
        (self.spaces.len(), self.refused.len())
    }

    fn find_namespaces(&mut self) {
        self.looked = self.now();
        let found = netns_files().filter_map(|path| netns_at(&path));
        let found: BTreeSet<u32> = found.chain(own_netns()).take(1 << 16).collect();
        self.spaces.retain(|netns, _| found.contains(netns));
        for netns in found {
            let known = self.spaces.contains_key(&netns) || self.refused.contains(&netns);
            if known || self.spaces.len() >= MOST_NAMESPACES {
                continue;
            }
            match sockets_of(netns, &self.filter) {
                Ok(sockets) => drop(self.spaces.insert(netns, sockets)),
                Err(_) => drop(self.refused.insert(netns)),
            }
        }
    }
}

/// The sockets of a namespace, which is entered by a thread alone.
fn sockets_of(netns: u32, filter: &Filter) -> Result<DiagSockets, Error> {
    let filter = Filter {
        netns: Some(netns),
        ..*filter
    };
    let opened = std::thread::spawn(move || {
        enter(&filter)?;
        DiagSockets::open(&filter).map_err(|error| Error::refused("read the sockets", error))
    });
    let ended = |_| Error::refused("read the sockets", "the thread ended");
    opened.join().map_err(ended).flatten()
}

/// Connections opened and accepted so far in this network namespace.
fn opened() -> Option<u64> {
    let text = proc::read("/proc/thread-self/net/snmp").ok()?;
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, values) = (lines.next()?.split(' '), lines.next()?.split(' '));
    let opens = names
        .zip(values)
        .filter(|(name, _)| matches!(*name, "ActiveOpens" | "PassiveOpens"));
    opens.map(|(_, value)| value.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_connection_is_met_while_it_is_open_and_when_it_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let filter = Filter {
            netns: own_netns(),
            port: Some(at.port()),
            ..Filter::default()
        };
        let mut scanner = SocketScanner::open(&filter).unwrap();
        let mut client = TcpStream::connect(at).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(&[1; 1000]).unwrap();
        server.read_exact(&mut [0; 1000]).unwrap();
        let ours = (client.local_addr().unwrap(), at);
        let mut met = Vec::new();
        scanner.poll(&mut |connection, sample| {
            if (connection.local, connection.remote) == ours {
                met.push((connection.cookie, sample.pid, sample.gone));
            }
        });
        let [(cookie, pid, gone)] = met[..] else {
            panic!("{met:?}")
        };
        assert_eq!((pid, gone), (std::process::id(), false));
        let ours = |cookie| Connection {
            id: 0,
            cookie,
            netns: own_netns().unwrap(),
            local: client.local_addr().unwrap(),
            remote: at,
        };
        let mut again = Vec::new();
        scanner.poll_each(&[ours(cookie), ours(cookie + 1)], &mut |one, sample| {
            again.push((one, sample.pid, sample.socket.bytes_acked()));
        });
        assert_eq!(again, [(ours(cookie), pid, Some(model::Bytes(1001)))]);
        drop(client);
        drop(server);
        let mut last = None;
        let until = Instant::now() + std::time::Duration::from_secs(10);
        while last.is_none() && Instant::now() < until {
            scanner.ended(&mut |connection, sample| {
                if connection.cookie == cookie {
                    last = Some((connection.remote, sample.gone, sample.socket.bytes_acked()));
                }
            });
        }
        // The SYN and what was written, and for some states the FIN.
        let (remote, gone, acked) = last.unwrap();
        assert!(gone && remote == at, "{remote}");
        assert!(
            acked.is_some_and(|bytes| (1000..=1002).contains(&bytes.0)),
            "{acked:?}"
        );
        assert_eq!(scanner.overruns(), 0);
        assert_eq!(scanner.opened(), None, "of one port alone");
    }
}

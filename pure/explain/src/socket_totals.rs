//! What all watched sockets moved and what limited them, together and by process, port and network of the peer.

use model::finding::{Limit, SocketAccount, SocketGroup};
use model::{Bytes, Comm, Connection, Nanos};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Groups that are kept apart: all others are one.
const MOST_GROUPS: usize = 500;
/// Ports from here on are those of clients (`net.ipv4.ip_local_port_range`), and are no group.
const CLIENTS: u16 = 32_768;

/// Counters of a watch.
pub(crate) struct SocketTotals {
    pub account: SocketAccount,
    /// The first has what belongs to no other.
    pub groups: Vec<SocketGroup>,
    known: BTreeMap<(IpAddr, u16, Comm), usize>,
}

impl Default for SocketTotals {
    fn default() -> SocketTotals {
        let others = SocketGroup {
            peer: "other".to_owned(),
            ..SocketGroup::default()
        };
        SocketTotals {
            account: SocketAccount::default(),
            groups: vec![others],
            known: BTreeMap::new(),
        }
    }
}

impl SocketTotals {
    /// The group of a connection, by the network of its peer, the port of its service and its process.
    pub fn group(&mut self, of: &Connection, process: Comm) -> usize {
        let port = of.local.port().min(of.remote.port());
        let port = if port < CLIENTS { port } else { 0 };
        let (network, bits) = network(of.remote.ip());
        let key = (network, port, process);
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        if self.groups.len() > MOST_GROUPS {
            return 0;
        }
        self.known.insert(key, self.groups.len());
        self.groups.push(SocketGroup {
            peer: format!("{network}/{bits}"),
            port,
            process,
            ..SocketGroup::default()
        });
        self.groups.len() - 1
    }

    /// A socket was seen.
    pub fn meets(&mut self, group: usize) {
        self.account.seen += 1;
        self.groups[group].sockets += 1;
    }

    /// Bytes were acknowledged and came.
    pub fn moves(&mut self, group: usize, sent: u64, received: u64) {
        let SocketTotals {
            account, groups, ..
        } = self;
        let of = &mut groups[group];
        for (sum, bytes) in [
            (&mut account.sent, sent),
            (&mut of.sent, sent),
            (&mut account.received, received),
            (&mut of.received, received),
        ] {
            *sum += Bytes(bytes);
        }
    }

    /// A limit had so much time of a socket.
    pub fn limits(&mut self, group: usize, limit: Limit, time: Nanos) {
        if time.0 > 0 {
            for sums in [&mut self.account.limited, &mut self.groups[group].limited] {
                *sums.entry(limit).or_default() += time;
            }
        }
    }
}

/// The network that an address is counted under: 24 bits of IPv4, 64 of IPv6.
fn network(ip: IpAddr) -> (IpAddr, u8) {
    match ip {
        IpAddr::V4(v4) => (IpAddr::V4((v4.to_bits() & !0xff).into()), 24),
        IpAddr::V6(v6) => (IpAddr::V6((v6.to_bits() >> 64 << 64).into()), 64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_bounded_and_their_sums_are_those_of_all() {
        let mut totals = SocketTotals::default();
        for n in 0..1_000u32 {
            let of = Connection {
                id: 0,
                cookie: n.into(),
                netns: 0,
                local: ([10, 0, 0, 1], 40_000).into(),
                remote: ((n << 8).to_be_bytes(), 873).into(),
            };
            let group = totals.group(&of, Comm::new(b"rsync"));
            assert_eq!(group, totals.group(&of, Comm::new(b"rsync")));
            totals.meets(group);
            totals.moves(group, 5, 7);
            totals.limits(group, Limit::ReceiveWindow, Nanos(3));
        }
        assert_eq!(totals.groups.len(), MOST_GROUPS + 1);
        assert_eq!(
            (totals.groups[1].peer.as_str(), totals.groups[1].port),
            ("0.0.0.0/24", 873)
        );
        assert_eq!(totals.groups[0].sockets, 500);
        let sent: u64 = totals.groups.iter().map(|g| g.sent.0).sum();
        assert_eq!(
            (sent, totals.account.sent, totals.account.seen),
            (5_000, Bytes(5_000), 1_000)
        );
        assert_eq!(totals.account.limited[&Limit::ReceiveWindow], Nanos(3_000));
    }

    #[test]
    fn a_group_has_the_port_of_a_service_and_the_network_of_a_peer() {
        let of = |local: &str, remote: &str| {
            let mut totals = SocketTotals::default();
            let connection = Connection {
                id: 0,
                cookie: 1,
                netns: 0,
                local: local.parse().unwrap(),
                remote: remote.parse().unwrap(),
            };
            let group = totals.group(&connection, Comm::default());
            (totals.groups[group].peer.clone(), totals.groups[group].port)
        };
        let is = |peer: &str, port| (peer.to_owned(), port);
        assert_eq!(
            of("10.0.0.1:40000", "192.0.2.77:443"),
            is("192.0.2.0/24", 443)
        );
        assert_eq!(
            of("10.0.0.1:22", "192.0.2.77:40000"),
            is("192.0.2.0/24", 22)
        );
        assert_eq!(
            of("10.0.0.1:32767", "192.0.2.77:40000"),
            is("192.0.2.0/24", 32_767)
        );
        assert_eq!(
            of("10.0.0.1:32768", "192.0.2.77:40000"),
            is("192.0.2.0/24", 0)
        );
        assert_eq!(
            of("[::1]:40000", "[2001:db8:1:2:3:4:5:6]:5201"),
            is("2001:db8:1:2::/64", 5201)
        );
    }
}

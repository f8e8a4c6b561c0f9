//! Light probes: who sends them to whom at the same time, what they take, and when a path is worse than it is to be.

use crate::plan::DAY;
use crate::{Mesh, MeshTest};
use model::light::{MAX_PEERS, PACKET, shortest_gap};
use model::stats::percent;
use model::{Bytes, MeshLeg, Nanos};

/// Numbered packets to each host where a test names no number.
pub(crate) const USUAL_PACKETS: u32 = 20;

/// Sizes that are tried where a test names none: those of Ethernet with jumbo frames and without, and of usual tunnels.
pub(crate) const USUAL_SIZES: [u32; 9] = [9000, 1500, 1492, 1480, 1450, 1420, 1400, 1280, 576];

/// For agents to be reached and held.
const HOLDING: Nanos = Nanos::from_secs(5);

/// For the challenges before the packets, and the sizes behind them.
const AROUND_PACKETS: Nanos = Nanos::from_secs(4);

/// Between two packets to the same host, even if there are few hosts.
const USUAL_GAP: Nanos = Nanos::from_millis(20);

/// What light probes send to each host, and when a cell is low.
#[derive(Clone, Debug, PartialEq)]
pub struct LightTest {
    /// Numbered packets.
    pub packets: u32,
    /// Sizes of IP packets, the largest first.
    pub sizes: Vec<u32>,
    /// A cell is low above this share of lost packets.
    pub loss: Option<f64>,
    /// A cell is low if no packet of this size passes, in bytes.
    pub mtu: Option<u32>,
}

impl LightTest {
    /// Between two packets to the same host, for an agent that sends to so many.
    pub fn gap(&self, peers: usize) -> Nanos {
        shortest_gap(peers).max(USUAL_GAP)
    }

    /// Duration of a round in which no agent has more than so many peers.
    pub fn round_length(&self, peers: usize) -> Nanos {
        Nanos(self.gap(peers).0 * u64::from(self.packets)) + AROUND_PACKETS
    }

    /// What a leg moves at the least: its packets and their answers, and one of the usual size each way.
    pub fn bytes(&self) -> Bytes {
        Bytes(2 * u64::from(self.packets * PACKET) + 2 * 1500)
    }

    /// Why a leg is low, beside its RTT.
    pub fn shortfall(&self, leg: &MeshLeg) -> Option<String> {
        let lost = leg.loss_ppm.unwrap_or(0) as f64 / 1e6;
        if let Some(most) = self.loss.filter(|most| lost > *most) {
            return Some(format!("more than {} lost", percent(most)));
        }
        let least = self.mtu.filter(|least| leg.mtu < Some(u64::from(*least)))?;
        Some(too_small(Bytes(least.into())))
    }
}

/// Why a leg is low whose MTU is smaller than this.
pub fn too_small(least: Bytes) -> String {
    format!("packets of {} bytes do not pass", least.0)
}

/// Who sends to whom at the same time: a host, and those that it sends to.
pub type LightRound = Vec<(usize, Vec<usize>)>;

/// The rounds of a cycle of light probes: all ordered pairs, in each round no host with more than [`MAX_PEERS`] others, to
/// which it sends or which send to it.
pub fn light_rounds(test: &MeshTest) -> Vec<LightRound> {
    let mut hosts = [test.from.as_slice(), &test.to].concat();
    hosts.sort_unstable();
    hosts.dedup();
    let n = hosts.len();
    // Hosts in a circle, each with those at these distances from it, on both sides.
    let distances: Vec<usize> = (1..=n / 2).collect();
    let round = |distances: &[usize]| -> LightRound {
        let of_host = |at: usize| {
            let sides = distances
                .iter()
                .flat_map(|d| [(at + d) % n, (at + n - d) % n]);
            let pairs = sides.filter_map(|other| test.ordered((hosts[at], hosts[other])));
            let mut peers: Vec<usize> = pairs.map(|(_, peer)| peer).collect();
            peers.sort_unstable();
            peers.dedup();
            (hosts[at], peers)
        };
        let all = (0..n).map(of_host);
        all.filter(|(_, peers)| !peers.is_empty()).collect()
    };
    let rounds = distances.chunks(MAX_PEERS / 2).map(round);
    rounds.filter(|round| !round.is_empty()).collect()
}

/// How long the rounds take, and all of them with what is before.
pub(crate) fn lasts(light: &LightTest, rounds: &[LightRound]) -> (Nanos, Nanos) {
    let peers = rounds.iter().flatten().map(|(_, peers)| peers.len());
    let length = light.round_length(peers.max().unwrap_or(0));
    (length, HOLDING + Nanos(length.0 * rounds.len() as u64))
}

/// What the light probes of a mesh move through a host in a day, at the least.
pub fn light_bytes_a_day(mesh: &Mesh, host: usize) -> Bytes {
    let of_test = |test: &MeshTest| {
        let bytes = test.light.as_ref()?.bytes();
        let cells = test.cells().into_iter();
        let cells = cells
            .filter(|(from, to)| [*from, *to].contains(&host))
            .count() as u64;
        Some(Bytes((bytes.0 * cells * DAY.0).div_ceil(test.every.0)))
    };
    mesh.tests.iter().filter_map(of_test).sum()
}

/// How long agents are held for a cycle.
pub fn light_span(light: &LightTest, rounds: &[LightRound]) -> Nanos {
    let (_, takes) = lasts(light, rounds);
    takes + takes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse_mesh;
    use model::LegOutcome;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    fn test(hosts: usize, lines: &str) -> MeshTest {
        let hosts: String = (0..hosts)
            .map(|n| format!("[[host]]\nname = \"h{n}\"\nagent = \"h{n}\"\n"))
            .collect();
        let text = format!(
            "[mesh]\nname = \"m\"\n{hosts}[[test]]\nname = \"l\"\nkind = \"light\"\n{lines}"
        );
        parse_mesh(&text, "m.toml").unwrap().tests.remove(0)
    }

    /// Every ordered pair once in a cycle, and nobody with too many others in a round.
    fn hold(test: &MeshTest) -> usize {
        let rounds = light_rounds(test);
        let mut cells = Vec::new();
        for round in &rounds {
            let mut others: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
            for (from, peers) in round {
                for to in peers {
                    cells.push((*from, *to));
                    others.entry(*from).or_default().insert(*to);
                    others.entry(*to).or_default().insert(*from);
                }
            }
            assert!(others.values().all(|others| others.len() <= MAX_PEERS));
        }
        cells.sort_unstable();
        assert_eq!(cells, test.cells());
        rounds.len()
    }

    #[test]
    fn all_ordered_pairs_each_with_64_peers_at_a_time() {
        let of = |hosts| hold(&test(hosts, "hosts = [\"*\"]\n"));
        assert_eq!([2, 3, 64, 65, 66, 129, 130].map(of), [1, 1, 1, 1, 2, 2, 3]);
        assert_eq!(hold(&test(4, "from = [\"h1\"]\nto = [\"*\"]\n")), 1);
        let left_out = test(3, "hosts = [\"*\"]\nexcept = [[\"h0\", \"h2\"]]\n");
        assert_eq!(left_out.cells(), [(0, 1), (1, 0), (1, 2), (2, 0), (2, 1)]);
        hold(&left_out);
    }

    proptest! {
        #[test]
        fn no_pair_is_missed_or_twice(hosts in 2usize..200, first in 0usize..20, last in 0usize..20) {
            let (first, last) = (first.min(hosts - 2), last.min(hosts - 1).max(1));
            let names = |hosts: std::ops::Range<usize>| hosts.map(|n| format!("\"h{n}\"")).collect::<Vec<_>>().join(", ");
            let lines = format!("from = [{}]\nto = [{}]\n", names(first..hosts), names(0..last + 1));
            hold(&test(hosts, &lines));
        }
    }

    #[test]
    fn packets_keep_to_the_rate() {
        let light = test(2, "hosts = [\"*\"]\n").light.unwrap();
        assert_eq!([1, 19].map(|peers| light.gap(peers)), [USUAL_GAP; 2]);
        assert_eq!(light.gap(64), Nanos(65_536_000));
    }

    #[test]
    fn loss_and_size_that_are_not_good() {
        let light = test(2, "hosts = [\"*\"]\nloss = \"2.5%\"\nmtu = 4000\n")
            .light
            .unwrap();
        assert_eq!(light.sizes[..3], [9000, 4000, 1500]);
        let of = |loss: u64, mtu: Option<u64>| {
            let cell = ["m", "l", "a", "b"];
            let leg = MeshLeg::bare(String::new(), 0, cell, Nanos(0), LegOutcome::Good);
            light.shortfall(&MeshLeg {
                loss_ppm: Some(loss),
                mtu,
                ..leg
            })
        };
        assert_eq!(of(25_000, Some(4000)), None);
        assert_eq!(of(50_000, Some(9000)).unwrap(), "more than 2.5 % lost");
        let too_small = Some("packets of 4000 bytes do not pass".to_owned());
        assert_eq!(
            [of(0, Some(1500)), of(0, None)],
            [too_small.clone(), too_small]
        );
    }
}

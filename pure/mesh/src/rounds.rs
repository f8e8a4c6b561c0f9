//! Which pairs measure at the same time.

use crate::file::sites;
use crate::{HostPair, Mesh, MeshTest, PairChoice};
use model::{Directions, Random};

/// Most hosts of a mesh: 2 million pairs.
pub const MOST_HOSTS: usize = 2_000;

/// Purposes of random numbers.
const MATCHINGS: u64 = 1 << 62;
const PUT_OFF: u64 = 1 << 63;

/// The rounds in which each of `n` players meets every other once, nobody twice in a round: the circle method. With an
/// odd number one pauses in each round.
pub fn circle(n: usize) -> Vec<Vec<HostPair>> {
    let even = n + n % 2;
    let Some(last) = even.checked_sub(1) else {
        return Vec::new();
    };
    let round = |k: usize| {
        let meets = |i: usize| (2 * k + last - i) % last;
        let pairs = (0..last).filter_map(|i| match meets(i) {
            other if other == i => Some((i, last)),
            other if i < other => Some((i, other)),
            _ => None,
        });
        pairs.filter(|(_, other)| *other < n).collect()
    };
    (0..last).map(round).collect()
}

/// The rounds of a cycle of a test. Links that are full put pairs off to a later round, or to rounds behind the last.
pub fn rounds(mesh: &Mesh, test: &MeshTest, cycle: u64) -> Vec<Vec<HostPair>> {
    let names = mesh.name.bytes().chain([0]).chain(test.name.bytes());
    let seed = model::seed_of(names);
    let all = match test.pairs {
        PairChoice::All if test.mutual => named(circle(test.from.len()), &test.from),
        PairChoice::All => between(test),
        PairChoice::Sites => between_sites(mesh, test, cycle),
        PairChoice::Matchings(count) => {
            let mut random = Random::new(seed, MATCHINGS | cycle);
            let mut order = test.from.clone();
            let mut matching = || {
                random.shuffle(&mut order);
                order
                    .chunks_exact(2)
                    .map(|pair| (pair[0], pair[1]))
                    .collect()
            };
            (0..count).map(|_| matching()).collect()
        }
    };
    let wanted = all.into_iter().map(|round| {
        let pairs = round.into_iter().filter_map(|pair| test.ordered(pair));
        pairs.collect::<Vec<HostPair>>()
    });
    let wanted = wanted.filter(|round| !round.is_empty()).collect();
    within_links(mesh, wanted, &mut Random::new(seed, PUT_OFF | cycle))
}

fn named(rounds: Vec<Vec<HostPair>>, hosts: &[usize]) -> Vec<Vec<HostPair>> {
    let name = |(a, b): HostPair| (hosts[a], hosts[b]);
    let rounds = rounds.into_iter();
    rounds
        .map(|round| round.into_iter().map(name).collect())
        .collect()
}

/// From some hosts to others. Where a host is among both, all meet in a circle, twice if each order is measured alone.
fn between(test: &MeshTest) -> Vec<Vec<HostPair>> {
    let MeshTest { from, to, .. } = test;
    if from.iter().any(|host| to.contains(host)) {
        let mut all = [from.as_slice(), to].concat();
        all.sort_unstable();
        all.dedup();
        let mut rounds = named(circle(all.len()), &all);
        if test.spec.directions == Directions::Up {
            let turned = |round: &Vec<HostPair>| round.iter().map(|(a, b)| (*b, *a)).collect();
            let turned: Vec<Vec<HostPair>> = rounds.iter().map(turned).collect();
            rounds.extend(turned);
        }
        return rounds;
    }
    let most = from.len().max(to.len());
    let round = |k: usize| {
        let pairs = from.iter().enumerate();
        let pairs = pairs.filter_map(|(at, host)| Some((*host, *to.get((at + k) % most)?)));
        pairs.collect()
    };
    (0..most).map(round).collect()
}

/// Of each two sites one pair of hosts, another one in each cycle.
fn between_sites(mesh: &Mesh, test: &MeshTest, cycle: u64) -> Vec<Vec<HostPair>> {
    let members: Vec<Vec<usize>> = sites(&mesh.hosts)
        .into_iter()
        .map(|site| {
            let there = |host: &&usize| mesh.hosts[**host].site.as_deref() == Some(site);
            test.from.iter().filter(there).copied().collect()
        })
        .filter(|members: &Vec<usize>| !members.is_empty())
        .collect();
    let host = |site: usize, other: usize| {
        let members: &Vec<usize> = &members[site];
        members[((other as u64).wrapping_add(cycle) % members.len() as u64) as usize]
    };
    let rounds = circle(members.len()).into_iter();
    rounds
        .map(|round| {
            round
                .into_iter()
                .map(|(a, b)| (host(a, b), host(b, a)))
                .collect()
        })
        .collect()
}

/// Takes the pairs that a link has no unit for out of their rounds, and puts each, in a random order, into the first
/// later round where its hosts and links are free.
fn within_links(
    mesh: &Mesh,
    wanted: Vec<Vec<HostPair>>,
    random: &mut Random,
) -> Vec<Vec<HostPair>> {
    if mesh.links.is_empty() {
        return wanted;
    }
    let mut rounds: Vec<OpenRound> = wanted.iter().map(|_| OpenRound::new(mesh)).collect();
    let mut put_off = Vec::new();
    for (at, pairs) in wanted.into_iter().enumerate() {
        for pair in pairs {
            if !rounds[at].take(mesh, pair) {
                put_off.push((at, pair));
            }
        }
    }
    random.shuffle(&mut put_off);
    // No round before it has a unit of the link.
    let mut full_before = vec![0; mesh.links.len()];
    for (was, pair) in put_off {
        for link in mesh.links_between(pair) {
            let full = &mut full_before[link];
            while rounds.get(*full).is_some_and(|round| round.free[link] == 0) {
                *full += 1;
            }
        }
        let free_from = mesh.links_between(pair).map(|link| full_before[link]).max();
        let mut at = free_from.unwrap_or(0).max(was + 1);
        while rounds
            .get_mut(at)
            .is_some_and(|round| !round.take(mesh, pair))
        {
            at += 1;
        }
        if at >= rounds.len() {
            rounds.push(OpenRound::new(mesh));
            let last = rounds.len() - 1;
            let fits = rounds[last].take(mesh, pair);
            debug_assert!(fits, "an empty round has a unit of every link");
        }
    }
    let rounds = rounds.into_iter().map(|round| round.pairs);
    rounds.filter(|pairs| !pairs.is_empty()).collect()
}

/// A round with what is free in it.
struct OpenRound {
    pairs: Vec<HostPair>,
    busy: Vec<bool>,
    free: Vec<u32>,
}

impl OpenRound {
    fn new(mesh: &Mesh) -> OpenRound {
        OpenRound {
            pairs: Vec::new(),
            busy: vec![false; mesh.hosts.len()],
            free: mesh.links.iter().map(|link| link.units).collect(),
        }
    }

    /// Whether the pair fits, and is in it now.
    fn take(&mut self, mesh: &Mesh, pair: HostPair) -> bool {
        let (a, b) = pair;
        let fits = !self.busy[a]
            && !self.busy[b]
            && mesh.links_between(pair).all(|link| self.free[link] > 0);
        if fits {
            (self.busy[a], self.busy[b]) = (true, true);
            mesh.links_between(pair)
                .for_each(|link| self.free[link] -= 1);
            self.pairs.push(pair);
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse_mesh;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn text(rounds: &[Vec<HostPair>]) -> String {
        let pair = |(a, b): &HostPair| format!("{a}-{b}");
        let round = |pairs: &Vec<HostPair>| pairs.iter().map(pair).collect::<Vec<_>>().join(" ");
        rounds.iter().map(round).collect::<Vec<_>>().join(" | ")
    }

    #[test]
    fn the_circle_method() {
        for (n, expected) in [
            (0, ""),
            (1, ""),
            (2, "0-1"),
            (4, "0-3 1-2 | 0-2 1-3 | 0-1 2-3"),
            (5, "1-4 2-3 | 0-2 3-4 | 0-4 1-3 | 0-1 2-4 | 0-3 1-2"),
            (
                6,
                "0-5 1-4 2-3 | 0-2 1-5 3-4 | 0-4 1-3 2-5 | 0-1 2-4 3-5 | 0-3 1-2 4-5",
            ),
        ] {
            assert_eq!(text(&circle(n)).trim_matches([' ', '|']), expected, "{n}");
        }
    }

    /// `sites[n]` is the site of host n; a link for each site.
    fn mesh(sites: &[usize], units: u32, test: &str) -> Mesh {
        let hosts = sites.iter().enumerate().map(|(n, site)| {
            format!("[[host]]\nname = \"h{n}\"\nagent = \"h{n}\"\nsite = \"s{site}\"\n")
        });
        let there: BTreeSet<&usize> = sites.iter().collect();
        let links = there.iter().map(|site| {
            format!("[[link]]\nname = \"l{site}\"\nsite = \"s{site}\"\nunits = {units}\n")
        });
        let tables: String = hosts.chain(links).collect();
        let text =
            format!("[mesh]\nname = \"m\"\n{tables}[[test]]\nname = \"t\"\nevery = \"1d\"\n{test}");
        parse_mesh(&text, "m.toml").unwrap()
    }

    fn hold(mesh: &Mesh, rounds: &[Vec<HostPair>]) {
        for round in rounds {
            assert!(!round.is_empty());
            let mut hosts = BTreeSet::new();
            let mut units: Vec<u32> = mesh.links.iter().map(|link| link.units).collect();
            for pair in round {
                assert!(hosts.insert(pair.0) && hosts.insert(pair.1), "{round:?}");
                for link in mesh.links_between(*pair) {
                    units[link] = units[link].checked_sub(1).expect("no link above its units");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn every_pair_once_nobody_twice_no_link_above_its_units(
            sites in prop::collection::vec(0_usize..5, 2..40),
            units in 1_u32..4,
            cycle in 0_u64..1000,
        ) {
            let mesh = mesh(&sites, units, "hosts = [\"*\"]\n");
            let rounds = rounds(&mesh, &mesh.tests[0], cycle);
            hold(&mesh, &rounds);
            let mut pairs: Vec<HostPair> = rounds.concat().iter().map(|(a, b)| (*a.min(b), *a.max(b))).collect();
            pairs.sort_unstable();
            let n = sites.len();
            let all: Vec<HostPair> = (0..n).flat_map(|a| (a + 1..n).map(move |b| (a, b))).collect();
            prop_assert_eq!(pairs, all);
        }

        #[test]
        fn some_to_others(sites in prop::collection::vec(0_usize..3, 4..30), from in 1_usize..20, both in any::<bool>(), units in 1_u32..4) {
            let n = sites.len();
            let names = |hosts: std::ops::Range<usize>| hosts.map(|n| format!("\"h{n}\"")).collect::<Vec<_>>().join(",");
            let from = from.min(n - 1);
            let directions = if both { "both" } else { "up" };
            // They overlap from the middle on.
            let test = format!("from = [{}]\nto = [{}]\ndirections = \"{directions}\"\n", names(0..from), names(n / 2..n));
            let mesh = mesh(&sites, units, &test);
            let rounds = rounds(&mesh, &mesh.tests[0], 0);
            hold(&mesh, &rounds);
            let mut cells: Vec<HostPair> = rounds.concat();
            if both {
                let turned: Vec<HostPair> = cells.iter().map(|(a, b)| (*b, *a)).collect();
                cells.extend(turned);
            }
            cells.sort_unstable();
            prop_assert_eq!(cells, mesh.tests[0].cells());
        }

        #[test]
        fn matchings_pair_all(n in 2_usize..40, count in 1_usize..6, cycle in 0_u64..100) {
            let mesh = mesh(&vec![0; n], 1, &format!("hosts = [\"*\"]\npairs = \"matchings:{count}\"\n"));
            let drawn = rounds(&mesh, &mesh.tests[0], cycle);
            hold(&mesh, &drawn);
            prop_assert_eq!(drawn.len(), count);
            prop_assert!(drawn.iter().all(|round| round.len() == n / 2));
            prop_assert_eq!(&drawn, &rounds(&mesh, &mesh.tests[0], cycle));
            prop_assert!(n < 8 || drawn != rounds(&mesh, &mesh.tests[0], cycle + 1));
        }
    }

    /// In some cycles every host has its turn, and each two sites have one pair in each.
    #[test]
    fn sites_take_turns() {
        let mesh = mesh(
            &[0, 0, 0, 1, 1, 2],
            1,
            "hosts = [\"*\"]\npairs = \"sites\"\n",
        );
        let test = &mesh.tests[0];
        let mut seen = BTreeSet::new();
        for cycle in 0..6 {
            let rounds = rounds(&mesh, test, cycle);
            hold(&mesh, &rounds);
            assert_eq!(rounds.concat().len(), 3, "{rounds:?}");
            // Site a's host towards site b in cycle c is number (b + c) mod |a|.
            for (a, b) in rounds.concat() {
                let site = |host: usize| [0, 0, 0, 1, 1, 2][host];
                let first = |site: usize| [0, 3, 5][site];
                let size = |site: usize| [3, 2, 1][site];
                assert_eq!(
                    a - first(site(a)),
                    (site(b) + cycle as usize) % size(site(a))
                );
                assert_eq!(
                    b - first(site(b)),
                    (site(a) + cycle as usize) % size(site(b))
                );
                seen.extend([a, b]);
            }
        }
        assert_eq!(seen.len(), 6);
    }

    #[test]
    fn many_hosts_behind_thin_uplinks() {
        let sites: Vec<usize> = (0..300).map(|n| n % 10).collect();
        let mesh = mesh(&sites, 2, "hosts = [\"*\"]\n");
        let rounds = rounds(&mesh, &mesh.tests[0], 7);
        hold(&mesh, &rounds);
        assert_eq!(rounds.concat().len(), 300 * 299 / 2);
        // Each uplink has 30 * 270 tests, two at a time.
        assert!((4050..5500).contains(&rounds.len()), "{}", rounds.len());
    }
}

//! The ladder: all candidate sizes at once, a few copies of each, closer and closer round by round.
//! A sequential search waits a timeout for every size that is lost; this waits one a round.
//!
//! An arrival proves that a size passes. A missing probe may be random loss, so the edge is confirmed by
//! alternating the largest size that passes with the next one: if both passed alike, so many first
//! arrivals of the same size in a row would occur once in a thousand times (a sign test). A single arrival
//! of the larger one refutes the edge.

use model::mtu::{Climb, Probe};
use std::collections::{BTreeMap, BTreeSet};

/// How a ladder climbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Copies of each candidate.
    pub copies: u8,
    /// Candidates of a round that divides a gap.
    pub width: u32,
    /// Arrivals of the largest size, with none of the next one between them, that confirm the edge.
    pub wins: u32,
}

impl Rule {
    /// For datagrams, which random loss drops.
    pub const DATAGRAMS: Rule = Rule {
        copies: 2,
        width: 32,
        // 2^-10 < 0.001.
        wins: 10,
    };
    /// For connections, which retransmit what is lost: only a server too busy to accept one looks as if a
    /// size did not pass.
    pub const CONNECTIONS: Rule = Rule {
        copies: 1,
        width: 24,
        wins: 3,
    };
}

/// Rounds at most: after that the edge stays unconfirmed.
const MAX_ROUNDS: u8 = 24;

/// Rounds in which nothing at all arrived, the known-good size included: the path was down.
const MAX_VOID: u8 = 8;

/// Sizes that paths have: each is tried with the next byte. Plain links and their encapsulations
/// (RFC 1191 section 7, IEEE 802.3, PPPoE RFC 2516, GRE, WireGuard, VXLAN, IPsec), jumbo frames as
/// vendors and clouds have them.
const COMMON: &[u32] = &[
    576, 1006, 1280, 1400, 1420, 1440, 1450, 1460, 1472, 1476, 1480, 1492, 1500, 2002, 4352, 8166,
    8500, 8900, 8950, 9000, 9100, 9180, 9216, 16_110,
];

/// A search for the largest size that passes.
#[derive(Clone, Debug)]
pub struct ProbeLadder {
    rule: Rule,
    floor: u32,
    ceiling: u32,
    largest: Option<u32>,
    /// Sizes whose copies were all lost, above the largest that passes.
    failed: BTreeSet<u32>,
    round: u8,
    void: u8,
    common_tried: bool,
    /// Arrivals of the largest beside the next one.
    wins: u32,
    pairing: bool,
    sent: BTreeSet<Probe>,
    arrived: BTreeSet<Probe>,
    over: bool,
}

impl ProbeLadder {
    /// Between sizes that both can be sent: `floor` should pass everywhere, more than `ceiling` is of no
    /// interest.
    pub fn new(rule: Rule, floor: u32, ceiling: u32) -> ProbeLadder {
        ProbeLadder {
            rule,
            floor: floor.min(ceiling),
            ceiling,
            largest: None,
            failed: BTreeSet::new(),
            round: 0,
            void: 0,
            common_tried: false,
            wins: 0,
            pairing: false,
            sent: BTreeSet::new(),
            arrived: BTreeSet::new(),
            over: false,
        }
    }

    /// Ends the present round: what has not arrived counts as lost. The probes of the next one, in the
    /// order in which to send them; `None` once the answer is there.
    pub fn next_round(&mut self) -> Option<Vec<Probe>> {
        if self.round > 0 {
            self.close();
        }
        let sizes = match self.plan() {
            Some(sizes) if self.round < MAX_ROUNDS => sizes,
            _ => {
                self.over = true;
                return None;
            }
        };
        self.round += 1;
        let (mut copies, round) = (BTreeMap::<u32, u8>::new(), self.round);
        let probe = |size| {
            let copy = copies.entry(size).or_default();
            *copy += 1;
            let copy = *copy;
            Probe { round, size, copy }
        };
        let probes: Vec<Probe> = sizes.into_iter().map(probe).collect();
        self.sent.extend(&probes);
        Some(probes)
    }

    /// A probe arrived at the peer; unsent probes and repeated reports are ignored.
    pub fn arrived(&mut self, probe: Probe) {
        if !self.sent.contains(&probe) || !self.arrived.insert(probe) {
            return;
        }
        if self.largest.is_none_or(|largest| probe.size > largest) {
            self.largest = Some(probe.size);
            self.wins = 0;
            if self.failed.range(..=probe.size).next().is_some() {
                // That size failed by random loss: so may the other sizes have.
                self.failed.clear();
                self.common_tried = false;
            }
        } else if self.pairing && probe.round == self.round && Some(probe.size) == self.largest {
            self.wins += 1;
        }
    }

    /// Nothing more of this round is worth waiting for.
    pub fn is_settled(&self) -> bool {
        self.largest == Some(self.ceiling)
            || self.wins >= self.rule.wins
            || self.of_round().all(|probe| self.arrived.contains(probe))
    }

    /// What is known.
    pub fn climb(&self) -> Climb {
        let largest = self.largest.unwrap_or(0);
        let below = |probes: &BTreeSet<Probe>| {
            let count = probes.iter().filter(|p| p.size <= largest).count();
            u32::try_from(count).unwrap_or(u32::MAX)
        };
        Climb {
            ceiling: self.ceiling,
            passes: self.largest,
            confirmed: self.largest == Some(self.ceiling)
                || (self.over && self.gap() == Some(0) && self.wins >= self.rule.wins),
            sent: below(&self.sent),
            arrived: below(&self.arrived),
            ..Climb::default()
        }
    }

    fn of_round(&self) -> impl Iterator<Item = &Probe> {
        self.sent.iter().filter(|probe| probe.round == self.round)
    }

    fn close(&mut self) {
        if !self.arrived.iter().any(|probe| probe.round == self.round) {
            self.void += 1;
            return;
        }
        self.void = 0;
        let largest = self.largest.unwrap_or(0);
        let sizes = self.of_round().map(|probe| probe.size);
        let lost: Vec<u32> = sizes.filter(|size| *size > largest).collect();
        self.failed.extend(lost);
    }

    /// The smallest size that is known not to pass, or the first of no interest.
    fn upper(&self) -> u32 {
        let failed = self.failed.first().copied();
        failed.unwrap_or(self.ceiling + 1)
    }

    /// Sizes between the largest that passes and the smallest that does not.
    fn gap(&self) -> Option<u32> {
        Some(self.upper() - self.largest? - 1)
    }

    /// Sizes of the next round; `None` once all is known.
    fn plan(&mut self) -> Option<Vec<u32>> {
        self.pairing = false;
        if self.void >= MAX_VOID || self.largest == Some(self.ceiling) {
            return None;
        }
        let (Some(largest), Some(gap)) = (self.largest, self.gap()) else {
            // The whole answer on a clean path.
            let ends = [self.ceiling, self.floor];
            return Some(ends.repeat(usize::from(self.rule.copies) + 1));
        };
        let upper = self.upper();
        if gap == 0 {
            if self.wins >= self.rule.wins {
                return None;
            }
            self.pairing = true;
            return Some([upper, largest].repeat(self.rule.wins as usize));
        }
        let mut candidates = Vec::new();
        if !std::mem::replace(&mut self.common_tried, true) {
            let all = COMMON.iter().flat_map(|size| [*size, *size + 1]);
            let all = all.chain([self.ceiling]);
            candidates.extend(all.filter(|size| *size > largest && *size < upper));
            candidates.dedup();
        }
        if candidates.is_empty() {
            let width = self.rule.width.min(gap);
            candidates.extend((1..=width).map(|n| largest + gap * n / width));
        }
        // A size that is known to pass goes first and last: if it does not come back either, the round
        // says nothing.
        let copies = candidates.repeat(usize::from(self.rule.copies));
        Some([vec![largest], copies, vec![largest]].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A path that passes `edge`, and loses each other packet when `lose` says so.
    fn climb(
        rule: Rule,
        ceiling: u32,
        edge: u32,
        mut lose: impl FnMut(Probe) -> bool,
    ) -> (Climb, u32, u64) {
        let mut ladder = ProbeLadder::new(rule, 128, ceiling);
        let (mut rounds, mut bytes) = (0, 0);
        while let Some(probes) = ladder.next_round() {
            rounds += 1;
            for probe in probes {
                assert!((128..=ceiling).contains(&probe.size), "{probe:?}");
                bytes += u64::from(probe.size);
                if probe.size <= edge && !lose(probe) {
                    ladder.arrived(probe);
                    ladder.arrived(probe);
                }
            }
        }
        (ladder.climb(), rounds, bytes)
    }

    /// Chance of `percent`, the same for a seed for ever (the generator of Knuth's MMIX).
    fn chance(seed: u64, percent: u64) -> impl FnMut(Probe) -> bool {
        let mut state = seed;
        move |_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % 100 < percent
        }
    }

    #[test]
    fn a_clean_path_takes_one_round() {
        let (climb, rounds, _) = climb(Rule::DATAGRAMS, 9000, 9000, |_| false);
        assert_eq!(
            (climb.passes, climb.confirmed, rounds),
            (Some(9000), true, 1)
        );
    }

    #[test]
    fn a_common_size_takes_three_and_few_bytes() {
        let (climb, rounds, bytes) = climb(Rule::DATAGRAMS, 9000, 1500, |_| false);
        assert_eq!(
            (climb.passes, climb.confirmed, rounds),
            (Some(1500), true, 3)
        );
        assert!(bytes < 400_000, "{bytes}");
    }

    #[test]
    fn a_dead_path_ends_soon() {
        let (climb, rounds, _) = climb(Rule::DATAGRAMS, 9000, 0, |_| false);
        assert_eq!((climb.passes, climb.confirmed, rounds), (None, false, 8));
    }

    #[test]
    fn five_per_cent_of_loss_never_change_the_answer() {
        for seed in 0..2000 {
            let edge = [1280, 1400, 1437, 1492, 1500, 3333, 8999][seed as usize % 7];
            let (climb, rounds, _) = climb(Rule::DATAGRAMS, 9000, edge, chance(seed, 5));
            assert_eq!(climb.passes, Some(edge), "seed {seed} in {rounds} rounds");
            assert!(climb.confirmed, "seed {seed}");
        }
    }

    #[test]
    fn at_twenty_per_cent_the_sign_test_decides_or_says_that_it_did_not() {
        let mut wrong = 0;
        for seed in 0..2000 {
            let (climb, ..) = climb(Rule::DATAGRAMS, 9000, 1437, chance(seed, 20));
            wrong += u32::from(climb.confirmed && climb.passes != Some(1437));
            assert!(climb.passes <= Some(1437), "what arrived did arrive");
        }
        assert!(wrong <= 6, "{wrong} of 2000");
    }

    #[test]
    fn answers_to_what_was_never_sent_are_ignored() {
        let mut ladder = ProbeLadder::new(Rule::DATAGRAMS, 128, 9000);
        let probes = ladder.next_round().unwrap();
        for probe in probes {
            ladder.arrived(Probe { copy: 200, ..probe });
            ladder.arrived(Probe { round: 9, ..probe });
        }
        assert_eq!(ladder.climb().passes, None);
    }

    proptest! {
        #[test]
        fn without_loss_every_edge_is_found(ceiling in 129u32..65_535, share in 0.0..1.0f64) {
            let edge = 128 + (f64::from(ceiling - 128) * share) as u32;
            for rule in [Rule::DATAGRAMS, Rule::CONNECTIONS] {
                let (climb, rounds, _) = climb(rule, ceiling, edge, |_| false);
                prop_assert_eq!(climb.passes, Some(edge));
                prop_assert!(climb.confirmed);
                prop_assert!(rounds <= 8, "{} rounds", rounds);
            }
        }

        #[test]
        fn any_answers_end(arrivals in prop::collection::vec(any::<bool>(), 1..64), ceiling in 129u32..65_535) {
            let mut answers = arrivals.iter().cycle();
            let (climb, rounds, _) = climb(Rule::DATAGRAMS, ceiling, ceiling, |_| *answers.next().unwrap());
            prop_assert!(rounds <= u32::from(MAX_ROUNDS));
            prop_assert!(climb.arrived <= climb.sent);
        }
    }
}

use super::*;
use model::Random;
use std::ops::Range;

fn leg(good: bool, parts: &[(&str, &str)]) -> JudgedLeg {
    let element = |(kind, name): &(&str, &str)| {
        let name = (*name).to_owned();
        match *kind {
            "tx" => PathElement::Sending(name),
            "out" => PathElement::Out(name),
            "in" => PathElement::In(name),
            _ => PathElement::Receiving(name),
        }
    };
    JudgedLeg {
        elements: parts.iter().map(element).collect(),
        good,
    }
}

#[test]
fn an_uplink_is_named_with_what_lies_on_the_same_legs() {
    let legs = [
        leg(
            false,
            &[("tx", "a"), ("out", "1"), ("in", "2"), ("rx", "c")],
        ),
        leg(
            false,
            &[("tx", "b"), ("out", "1"), ("in", "2"), ("rx", "d")],
        ),
        leg(true, &[("tx", "a"), ("rx", "b")]),
        leg(true, &[("tx", "c"), ("rx", "d")]),
    ];
    let found = suspects(&legs, 2);
    let [found] = &found[..] else {
        panic!("{found:?}");
    };
    let elements = [
        PathElement::Out("1".to_owned()),
        PathElement::In("2".to_owned()),
    ];
    assert_eq!(
        (found.elements.as_slice(), found.low, found.legs),
        (&elements[..], 2, 2)
    );
    assert_eq!(suspects(&legs, 3), []);
}

#[test]
fn a_good_leg_of_the_same_pair_clears_it() {
    let pair = [("tx", "a"), ("rx", "b")];
    assert_eq!(suspects(&[leg(false, &pair), leg(true, &pair)], 1), []);
    assert_eq!(suspects(&[], 1), []);
}

/// One good leg among many low ones does not clear.
#[test]
fn a_third_of_the_legs_is_to_be_good() {
    let of = |good: usize, all: usize| {
        let legs: Vec<JudgedLeg> = (0..all)
            .map(|n| leg(n < good, &[("tx", "a"), ("rx", &format!("h{n}"))]))
            .collect();
        suspects(&legs, 3).len()
    };
    assert_eq!([of(1, 4), of(2, 6), of(0, 3), of(0, 2)], [1, 0, 1, 0]);
}

/// Hosts with some bad directions and sites with some bad uplinks, measured in random matchings; each verdict is wrong
/// with some probability. How many were named, how many of these are bad, how many are bad.
fn simulated(seed: u64, hosts: usize, sites: usize, matchings: usize, wrong: f64) -> [usize; 3] {
    let mut random = Random::new(seed, 0);
    let mut bad = BTreeSet::new();
    for host in 0..hosts {
        for element in [PathElement::Sending, PathElement::Receiving] {
            if random.hits(0.005) {
                bad.insert(element(host.to_string()));
            }
        }
    }
    for site in 0..sites {
        for element in [PathElement::Out, PathElement::In] {
            if random.hits(0.02) {
                bad.insert(element(site.to_string()));
            }
        }
    }
    let mut legs = Vec::new();
    let mut order: Vec<usize> = (0..hosts).collect();
    for _ in 0..matchings {
        random.shuffle(&mut order);
        for pair in order.chunks_exact(2) {
            for (from, to) in [(pair[0], pair[1]), (pair[1], pair[0])] {
                let mut elements = vec![PathElement::Sending(from.to_string())];
                if from % sites != to % sites {
                    elements.push(PathElement::Out((from % sites).to_string()));
                    elements.push(PathElement::In((to % sites).to_string()));
                }
                elements.push(PathElement::Receiving(to.to_string()));
                let good = !elements.iter().any(|element| bad.contains(element));
                legs.push(JudgedLeg {
                    elements,
                    good: good != random.hits(wrong),
                });
            }
        }
    }
    let named = suspects(&legs, fewest_low(matchings));
    let right = named
        .iter()
        .filter(|of| of.elements.iter().any(|element| bad.contains(element)));
    [named.len(), right.count(), bad.len()]
}

/// Precision and recall over some seeds.
fn quality(seeds: Range<u64>, [hosts, sites, matchings]: [usize; 3], wrong: f64) -> [f64; 2] {
    let mut all = [0; 3];
    for seed in seeds {
        let one = simulated(seed, hosts, sites, matchings, wrong);
        all = [all[0] + one[0], all[1] + one[1], all[2] + one[2]];
    }
    let [named, right, bad] = all.map(|n| n as f64);
    [right / named, right / bad]
}

#[test]
fn bad_hosts_and_uplinks_are_found_among_wrong_verdicts() {
    // A cycle of 'matchings:4', and the two that 'mesh suspects' reads.
    for (matchings, wrong, least) in [(4, 0.02, 0.98), (4, 0.05, 0.88), (8, 0.05, 0.99)] {
        let [precision, recall] = quality(0..200, [200, 10, matchings], wrong);
        assert!(
            precision >= least && recall >= 0.93,
            "{matchings} matchings, {wrong}: precision {precision:.3}, recall {recall:.3}"
        );
    }
}

/// `cargo test -p linerate-mesh --release table_of_suspects -- --ignored --nocapture`
#[test]
#[ignore = "prints the figures of 1000 hosts; decision 42 has them"]
fn table_of_suspects() {
    for (matchings, wrong) in [(4, 0.0), (4, 0.02), (4, 0.05), (8, 0.02), (8, 0.05)] {
        let [precision, recall] = quality(1000..1200, [1000, 50, matchings], wrong);
        println!(
            "1000 hosts, 50 sites, {matchings} matchings, {:.0} % wrong: precision {precision:.3}, recall {recall:.3}",
            wrong * 100.0
        );
    }
}

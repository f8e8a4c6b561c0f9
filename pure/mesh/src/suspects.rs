//! Which host or uplink explains the low legs.
//!
//! A slow leg may have gone wrong at its source's sending, its site's uplink out, the other site's uplink in, or its
//! destination's receiving. An element with a good leg, and at least a third of its legs good, is cleared. The others are
//! named greedily: whichever lies on the most low legs that no other explains (set cover, Chvatal 1979).

use crate::{HostPair, Mesh};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// What a leg passes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "kind", content = "name", rename_all = "snake_case")]
pub enum PathElement {
    /// The sending of a host.
    Sending(String),
    /// The uplink of a site, outwards.
    Out(String),
    /// The uplink of a site, inwards.
    In(String),
    /// The receiving of a host.
    Receiving(String),
}

impl fmt::Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PathElement::Sending(host) => write!(f, "sending of {host}"),
            PathElement::Out(site) => write!(f, "uplink of site {site}, outwards"),
            PathElement::In(site) => write!(f, "uplink of site {site}, inwards"),
            PathElement::Receiving(host) => write!(f, "receiving of {host}"),
        }
    }
}

/// A leg that was good or low.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JudgedLeg {
    /// What it passed.
    pub elements: Vec<PathElement>,
    /// Whether it was good.
    pub good: bool,
}

/// Who explains the low legs of a test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MeshSuspects {
    /// Version of this form, now 1.
    pub schema: u32,
    /// Name of the mesh.
    pub mesh: String,
    /// Name of the test.
    pub test: String,
    /// Cells whose newest leg of the last two cycles was good.
    pub good: u64,
    /// Cells whose newest leg of the last two cycles was low.
    pub low: u64,
    /// Those that explain the most low legs first.
    pub suspects: Vec<MeshSuspect>,
}

/// Elements of paths that explain low legs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MeshSuspect {
    /// One, or several that the same low legs pass.
    pub elements: Vec<PathElement>,
    /// Low legs that they explain and no suspect before.
    pub low: u64,
    /// All legs that pass them (of several the first).
    pub legs: u64,
}

impl MeshSuspects {
    /// Of a test, by its newest legs: elements that explain at least `fewest` low ones each.
    pub fn of(mesh: &str, test: &str, legs: &[JudgedLeg], fewest: usize) -> MeshSuspects {
        let good = legs.iter().filter(|leg| leg.good).count();
        MeshSuspects {
            schema: 1,
            mesh: mesh.to_owned(),
            test: test.to_owned(),
            good: good as u64,
            low: (legs.len() - good) as u64,
            suspects: suspects(legs, fewest),
        }
    }
}

/// What a leg from one host to another passes.
pub fn elements(mesh: &Mesh, (from, to): HostPair) -> Vec<PathElement> {
    let (from, to) = (&mesh.hosts[from], &mesh.hosts[to]);
    let mut elements = vec![PathElement::Sending(from.name.clone())];
    if from.site != to.site {
        elements.extend(from.site.clone().map(PathElement::Out));
        elements.extend(to.site.clone().map(PathElement::In));
    }
    elements.push(PathElement::Receiving(to.name.clone()));
    elements
}

/// Low legs that an element must explain to be named: 3, of hosts with fewer than 4 legs in a direction 2.
pub fn fewest_low(legs_of_a_host: usize) -> usize {
    if legs_of_a_host < 4 { 2 } else { 3 }
}

/// Names the elements that explain at least `fewest` low legs each, those that explain the most first.
fn suspects(legs: &[JudgedLeg], fewest: usize) -> Vec<MeshSuspect> {
    #[derive(Default)]
    struct Through {
        good: usize,
        low: BTreeSet<usize>,
    }
    let mut through: BTreeMap<&PathElement, Through> = BTreeMap::new();
    for (at, leg) in legs.iter().enumerate() {
        for element in &leg.elements {
            let through = through.entry(element).or_default();
            match leg.good {
                true => through.good += 1,
                false => drop(through.low.insert(at)),
            }
        }
    }
    through.retain(|_, of| of.good == 0 || 3 * of.good < of.good + of.low.len());
    let mut explained: BTreeSet<usize> = BTreeSet::new();
    let mut named = Vec::new();
    loop {
        let left = |of: &Through| of.low.iter().filter(|leg| !explained.contains(leg)).count();
        let counts: Vec<usize> = through.values().map(left).collect();
        let most = counts.into_iter().max().unwrap_or(0);
        if most < fewest.max(1) {
            return named;
        }
        let first = through.values().find(|of| left(of) == most);
        let Some(Through { good, low }) = first else {
            return named;
        };
        let (legs, low) = (good + low.len(), low.clone());
        let same = through.iter().filter(|(_, of)| of.low == low);
        named.push(MeshSuspect {
            elements: same.map(|(element, _)| (*element).clone()).collect(),
            low: most as u64,
            legs: legs as u64,
        });
        explained.extend(&low);
        through.retain(|_, of| of.low != low);
    }
}

#[cfg(test)]
mod tests;

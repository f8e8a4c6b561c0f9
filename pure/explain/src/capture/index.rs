//! Which connection has these ends.

use super::{Ends, Place};
use std::collections::BTreeMap;

/// Places of a row: as many as a processor fetches at once.
const ROW: usize = 8;
const FREE: u64 = 0;
/// Was taken, so that what did not fit in the row may stand elsewhere. There are not so many places.
const GONE: u64 = u32::MAX as u64;

/// A table of short rows, and a tree of what finds its row full: ends that somebody chose so that they all
/// meet in one row are found no slower than in a tree alone.
pub(super) struct Index {
    /// In each the hash, and one more than the place of a connection; filled from the left.
    rows: Vec<[u64; ROW]>,
    taken: usize,
    rest: BTreeMap<Ends, u32>,
}

impl Default for Index {
    fn default() -> Index {
        Index {
            rows: vec![[FREE; ROW]; 1 << 6],
            taken: 0,
            rest: BTreeMap::new(),
        }
    }
}

impl Index {
    /// The place of the connection with these ends.
    pub fn get(&self, ends: &Ends, places: &[Place]) -> Option<u32> {
        let hash = hash(ends);
        for &place in &self.rows[self.row(hash)] {
            if place == FREE {
                return None;
            }
            // The hash first: a place is most often not in the processor's cache.
            let n = (place as u32).wrapping_sub(1);
            if place >> 32 == u64::from(hash)
                && places.get(n as usize).is_some_and(|p| p.ends == *ends)
            {
                return Some(n);
            }
        }
        self.rest.get(ends).copied()
    }

    /// These ends, which are in here no more than once, are those of this connection.
    pub fn insert(&mut self, ends: Ends, n: u32) {
        if self.taken > self.rows.len() * ROW / 3 {
            self.grow();
        }
        self.place(hash(&ends), n, ends);
    }

    /// Forgets that these ends are those of this connection, if they are.
    pub fn remove(&mut self, ends: &Ends, n: u32) {
        let row = self.row(hash(ends));
        let mut places = self.rows[row].iter_mut();
        if let Some(place) = places.find(|place| **place as u32 == n + 1) {
            *place = GONE;
            self.taken -= 1;
        } else if self.rest.get(ends) == Some(&n) {
            self.rest.remove(ends);
        }
    }

    fn place(&mut self, hash: u32, n: u32, ends: Ends) {
        let row = self.row(hash);
        let mut places = self.rows[row].iter_mut();
        match places.find(|place| matches!(**place, FREE | GONE)) {
            Some(place) => {
                *place = u64::from(hash) << 32 | u64::from(n + 1);
                self.taken += 1;
            }
            None => {
                self.rest.insert(ends, n);
            }
        }
    }

    /// Twice the rows: what stands in one goes to two.
    fn grow(&mut self) {
        let rows = vec![[FREE; ROW]; self.rows.len() * 2];
        let old = std::mem::replace(&mut self.rows, rows);
        for place in old.into_iter().flatten() {
            if !matches!(place, FREE | GONE) {
                let row = self.row((place >> 32) as u32);
                let free = self.rows[row].iter_mut().find(|p| **p == FREE);
                if let Some(free) = free {
                    *free = place;
                }
            }
        }
        for (ends, n) in std::mem::take(&mut self.rest) {
            self.place(hash(&ends), n, ends);
        }
    }

    /// By the upper bits of the hash.
    fn row(&self, hash: u32) -> usize {
        (hash >> (32 - self.rows.len().trailing_zeros())) as usize
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.taken + self.rest.len()
    }
}

/// By multiplication with 2^64 / golden ratio (Knuth), twice.
pub(super) fn hash(ends: &Ends) -> u32 {
    const RATIO: u64 = 0x9e37_79b9_7f4a_7c15;
    let [[a, b], [c, d]] = ends.addresses.map(|address| {
        let all = u128::from_be_bytes(address);
        [(all >> 64) as u64, all as u64]
    });
    let ports = u64::from(ends.ports);
    let mixed = (a ^ b.rotate_left(7) ^ c.rotate_left(19) ^ d.rotate_left(31) ^ ports << 13)
        .wrapping_mul(RATIO);
    ((mixed ^ mixed >> 32).wrapping_mul(RATIO) >> 32) as u32
}

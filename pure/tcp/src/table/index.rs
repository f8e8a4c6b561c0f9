//! Which connection has these ends.

use super::AddressPair;
use std::collections::BTreeMap;

/// Places of a row: as many as a processor fetches at once.
const ROW: usize = 8;
const FREE: u32 = 0;
/// Was taken in a row that was full, so that what did not fit in may stand elsewhere. There are not so many places.
const GONE: u32 = u32::MAX;

/// A table of short rows, and a tree of what finds its row full: ends that somebody chose so that they all
/// meet in one row are found no slower than in a tree alone.
pub(super) struct TableIndex {
    rows: Vec<IndexRow>,
    taken: usize,
    rest: BTreeMap<AddressPair, u32>,
}

/// Filled from the left.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct IndexRow {
    hashes: [u32; ROW],
    /// One more than the place of a connection.
    places: [u32; ROW],
}

impl IndexRow {
    const EMPTY: IndexRow = IndexRow {
        hashes: [0; ROW],
        places: [FREE; ROW],
    };

    /// Which of them have this hash, a bit for each: all at once, where a search would have to guess its end.
    fn of(&self, hash: u32) -> u32 {
        let bits = self.hashes.iter().zip(0..);
        bits.fold(0, |bits, (h, n)| bits | u32::from(*h == hash) << n)
    }

    /// False if all are taken already.
    fn push(&mut self, hash: u32, place: u32) -> bool {
        let free = self.places.iter().position(|p| matches!(*p, FREE | GONE));
        if let Some(free) = free {
            (self.hashes[free], self.places[free]) = (hash, place);
        }
        free.is_some()
    }
}

impl Default for TableIndex {
    fn default() -> TableIndex {
        TableIndex {
            rows: vec![IndexRow::EMPTY; 1 << 6],
            taken: 0,
            rest: BTreeMap::new(),
        }
    }
}

impl TableIndex {
    /// The place of the connection with these ends.
    #[inline]
    pub fn get(
        &self,
        ends: AddressPair,
        ends_of: impl Fn(u32) -> Option<AddressPair>,
    ) -> Option<u32> {
        let hash = hash(&ends);
        let row = &self.rows[self.row(hash)];
        let mut bits = row.of(hash);
        while bits != 0 {
            let n = row.places[bits.trailing_zeros() as usize].wrapping_sub(1);
            if ends_of(n) == Some(ends) {
                return Some(n);
            }
            bits &= bits - 1;
        }
        match row.places[ROW - 1] {
            FREE => None,
            _ => self.rest.get(&ends).copied(),
        }
    }

    /// These ends, which are in here no more than once, are those of this connection.
    pub fn insert(&mut self, ends: AddressPair, n: u32) {
        if self.taken > self.rows.len() * ROW / 3 {
            self.grow();
        }
        self.place(hash(&ends), n, ends);
    }

    /// Forgets that these ends are those of this connection, if they are.
    pub fn remove(&mut self, ends: &AddressPair, n: u32) {
        let row = self.row(hash(ends));
        let row = &mut self.rows[row];
        if let Some(place) = row.places.iter().position(|place| *place == n + 1) {
            // The last one moves there, so that no row is longer than it must be.
            let last = row.places.iter().rposition(|place| *place != FREE);
            let last = last.unwrap_or(place);
            row.hashes[place] = row.hashes[last];
            row.places[place] = row.places[last];
            let was_full = last == ROW - 1 && !self.rest.is_empty();
            row.places[last] = if was_full { GONE } else { FREE };
            self.taken -= 1;
        } else if self.rest.get(ends) == Some(&n) {
            self.rest.remove(ends);
        }
    }

    fn place(&mut self, hash: u32, n: u32, ends: AddressPair) {
        let row = self.row(hash);
        match self.rows[row].push(hash, n + 1) {
            true => self.taken += 1,
            false => {
                self.rest.insert(ends, n);
            }
        }
    }

    /// Twice the rows: what stands in one goes to two.
    fn grow(&mut self) {
        let rows = vec![IndexRow::EMPTY; self.rows.len() * 2];
        let old = std::mem::replace(&mut self.rows, rows);
        let taken = old
            .iter()
            .flat_map(|row| row.hashes.iter().zip(&row.places));
        for (&hash, &place) in taken {
            if !matches!(place, FREE | GONE) {
                let row = self.row(hash);
                self.rows[row].push(hash, place);
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
pub(crate) fn hash(ends: &AddressPair) -> u32 {
    const RATIO: u64 = 0x9e37_79b9_7f4a_7c15;
    let [[a, b], [c, d]] = ends.addresses;
    let ports = u64::from(ends.ports);
    let mixed = (a ^ b.rotate_left(7) ^ c.rotate_left(19) ^ d.rotate_left(31) ^ ports << 13)
        .wrapping_mul(RATIO);
    ((mixed ^ mixed >> 32).wrapping_mul(RATIO) >> 32) as u32
}

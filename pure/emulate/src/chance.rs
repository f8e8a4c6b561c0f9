//! Chance from a seed: one stream for each purpose, so that adding one impairment does not shift another's.

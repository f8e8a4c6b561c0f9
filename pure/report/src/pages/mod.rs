//! The pages, one kind a file.

mod compare;
mod demo_page;
mod experiment;
mod grid;
mod history;
mod index;
mod mtu;
mod published;
mod run;
#[cfg(test)]
mod tests;
mod trace;
mod tuning;
mod watched;

pub use compare::{Side, compare};
pub use demo_page::{Demonstration, demo};
pub use experiment::experiment;
#[cfg(test)]
pub(crate) use grid::grid_of_tests;
pub use grid::{GridCell, GridHost, GridOf, MeshGrid, cell, grid};
pub use history::{History, Past, Shift, history};
pub use index::{Entry, FIELDS, Index, PathHistory, RUN, Search, index};
pub use mtu::mtu;
pub use published::published;
pub use run::run;
pub use trace::{Followed, segments, trace};
pub use tuning::tuning;
pub use watched::{WatchedHost, watch_trace, watched, watched_day};
pub(crate) use watched::{day, held, most, ranked, sentence};

use crate::page::Section;

/// Names and values; what has no value is left out.
fn facts<const N: usize>(all: [(&str, String); N]) -> Vec<(String, String)> {
    let known = all.into_iter().filter(|(_, value)| !value.is_empty());
    known
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// Those that hold something.
fn filled(mut sections: Vec<Section>) -> Vec<Section> {
    sections.retain(|s| !(s.words.is_empty() && s.listing.is_empty() && s.pictures.is_empty()));
    sections
}

#[cfg(test)]
pub(crate) use run::tests::both_ways;

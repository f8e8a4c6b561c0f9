//! Pictures for pages, one file each: data to a [`crate::page::Picture`].

pub mod bars;
pub mod drift;
pub mod forest;
pub mod hops;
pub mod pairs;

use crate::words::escape;

/// Width of a still picture, in its own units: a page shows it at this size where there is room.
const WIDTH: f64 = 760.0;
/// Right end of what is drawn in it.
const RIGHT: f64 = WIDTH - 10.0;

/// The ends of an axis that has some air around these values.
fn airy(values: impl Iterator<Item = f64>) -> impl Iterator<Item = f64> {
    let finite = values.filter(|v| v.is_finite());
    let ends = finite.fold(None, |ends: Option<(f64, f64)>, v| match ends {
        Some((low, high)) => Some((low.min(v), high.max(v))),
        None => Some((v, v)),
    });
    let ends = ends.map(|(low, high)| {
        let air = ((high - low) * 0.06).max(high.abs() * 1e-3).max(1e-9);
        [low - air, high + air]
    });
    ends.into_iter().flatten()
}

/// A name of at most so many characters.
fn cut(name: &str, longest: usize) -> String {
    let name = escape(name);
    if name.chars().count() <= longest {
        return name;
    }
    let kept = name.chars().take(longest.saturating_sub(3));
    kept.chain("...".chars()).collect()
}

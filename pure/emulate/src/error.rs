//! What is wrong with a scenario file, where, and what to do.

/// A scenario file that cannot be used. Prints as `file:line: what; remedy`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {what}; {remedy}")]
pub struct Error {
    /// The file as the caller named it.
    pub file: String,
    /// Line of the fault, from 1.
    pub line: usize,
    /// What is wrong, naming the key or the value.
    pub what: String,
    /// What to write instead.
    pub remedy: String,
}

//! What is wrong with a mesh file, where, and what is possible.

/// A mesh file that cannot be used. Prints as `file:line: what; remedy`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {what}; {remedy}")]
pub struct MeshError {
    /// The file as the caller named it.
    pub file: String,
    /// Line of the fault, from 1.
    pub line: usize,
    /// What is wrong, naming the table, the key and the value.
    pub what: String,
    /// What is possible.
    pub remedy: String,
}

//! From what was found of a path to what to set: needs, proposals, and what a host's settings are worth.
//!
//! [`propose`] says which settings the findings justify, [`review_settings`] what those of a host and of well-known guides
//! are worth, [`sysctls`] and [`managed`] how they last; [`arms`] makes an experiment of them, [`choose`] ends it.
//!
//! Nothing here lowers a limit, and each proposal has a finding that supports it: "no change recommended" is an
//! answer. An experiment shows whether a proposal helps.

mod choose;
mod config_conflicts;
mod defaults;
mod guides;
mod host;
mod path_sample;
mod persist;
mod propose;
mod requirements;
mod settings_review;
mod sysctl_precedence;

#[cfg(test)]
mod tests;

pub use choose::{Choice, arms, choose, proven_alone, together};
pub use config_conflicts::{contested, others, relevant};
pub use defaults::default_of;
pub use path_sample::PathSample;
pub use persist::{commands, elsewhere, managed, sysctls};
pub use propose::{PathHosts, propose};
pub use requirements::needs;
pub use settings_review::review_settings;
pub use sysctl_precedence::{DIRECTORIES, LAST, setters};

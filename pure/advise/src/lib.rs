//! From what was found of a path to what to set: needs, proposals, and what a host's settings are worth.
//!
//! - [`PathSample::of`] takes what a run tells of one direction of a path.
//! - [`needs`] says what it needs of its hosts: the bandwidth-delay product, and buffers for it.
//! - [`propose`] says which few settings the findings justify, each with its reason in numbers.
//! - [`audit`] says what the settings of a host are worth on the path, and what those of well-known guides would be.
//! - [`sysctls`] and [`managed`] write the texts that make settings last, [`elsewhere`] those of other systems;
//!   [`setters`] tells which file wins when a host starts, and [`contested`] what may win over ours.
//! - [`arms`] makes an experiment of them, and [`choose`] says what of it stays.
//!
//! Nothing here lowers a limit, and nothing is proposed that no finding asks for: "nothing to set" is an
//! answer. Whether a proposal helps is for an experiment to say.

mod audit;
mod choose;
mod config_conflicts;
mod defaults;
mod guides;
mod host;
mod path_sample;
mod persist;
mod propose;
mod requirements;
mod sysctl_precedence;

#[cfg(test)]
mod tests;

pub use audit::audit;
pub use choose::{Choice, arms, choose, proven_alone, together};
pub use config_conflicts::{contested, others, relevant};
pub use defaults::default_of;
pub use path_sample::PathSample;
pub use persist::{commands, elsewhere, managed, sysctls};
pub use propose::{Hosts, propose};
pub use requirements::needs;
pub use sysctl_precedence::{DIRECTORIES, LAST, setters};

//! Who this host is, whom it trusts with what, and how other hosts are enrolled.
//!
//! A host is its Ed25519 key; there are no certificates. Nobody is trusted until the user says so,
//! by hand (`linerate trust add`) or by an invitation.

mod book;
mod files;
mod identity;
mod invitation;
mod ledger;
mod quota;
mod store;

pub use identity::{Identity, NodeId};
pub use invitation::Invitation;
pub use ledger::{Admitted, Denied, Ledger, Peer};
pub use store::{Entry, Limits, PendingInvitation, Right, Store, Trust};

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// The directory of the key and of the list of trusted hosts: `--config`, or
/// `$XDG_CONFIG_HOME/linerate`, or `~/.config/linerate`.
///
/// # Errors
/// If there is no home directory either.
pub fn directory(config: Option<&Path>) -> Result<PathBuf> {
    if let Some(directory) = config {
        return Ok(directory.to_owned());
    }
    let absolute = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|p| p.is_absolute())
    };
    absolute("XDG_CONFIG_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".config")))
        .map(|base| base.join("linerate"))
        .context("neither HOME nor XDG_CONFIG_HOME names a directory: say where this host's key is kept with --config")
}

/// The name of this host, as it introduces itself: letters, digits, `.`, `_` and `-` only.
pub fn host_name() -> String {
    let [_, name, ..] = sys::process::uname();
    let name: String = name
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))
        .take(wire::control::enrol::MAX_NAME)
        .collect();
    if name.is_empty() {
        "unnamed".to_owned()
    } else {
        name
    }
}

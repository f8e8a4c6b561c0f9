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

pub use files::sha256;
#[cfg(test)]
pub use identity::tests as identity_tests;
pub use identity::{Identity, SPKI_PREFIX, id_of_spki};
pub use invitation::Invitation;
pub use ledger::{Admitted, Denied, DirectMeans, Ledger, LedgerLimits, LightUse, Peer};
pub use model::NodeId;
pub use store::{KeyLimits, PendingInvitation, Right, TrustEntry, TrustFile, TrustStore};

use crate::prelude::*;
use wire::control::enrol::MAX_NAME;

/// The directory of the key and of the list of trusted hosts: `--config`, or
/// `$XDG_CONFIG_HOME/linerate`, or `~/.config/linerate`.
pub fn directory(config: Option<&Path>) -> Result<PathBuf> {
    if let Some(directory) = config {
        return Ok(directory.to_owned());
    }
    let absolute = |name| {
        let path = std::env::var_os(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    absolute("XDG_CONFIG_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".config")))
        .map(|base| base.join("linerate"))
        .context("neither HOME nor XDG_CONFIG_HOME names a directory: say where this host's key is kept with --config")
}

/// The name of this host, as it introduces itself: letters, digits, `.`, `_` and `-` only.
pub fn host_name() -> String {
    let [_, name, ..] = sys::process::uname();
    let fits = |c: &char| c.is_ascii_alphanumeric() || ".-_".contains(*c);
    let name: String = name.chars().filter(fits).take(MAX_NAME).collect();
    match name.is_empty() {
        true => "unnamed".to_owned(),
        false => name,
    }
}

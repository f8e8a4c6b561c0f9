//! Changes of this machine for a controller elsewhere: one session's, undone with it.

use crate::trust::Peer;
use model::Reading;
use sha2::{Digest, Sha256};
use std::fs;
use std::os::unix::fs::MetadataExt;
use wire::control::{Origin, ToController, TuneRequest};

/// Names this machine, from its start to its end, and this process' network namespace; empty where
/// that cannot be told. Gives nothing else away.
pub fn place() -> String {
    let boot = fs::read("/proc/sys/kernel/random/boot_id");
    let namespace = fs::metadata("/proc/self/ns/net");
    let (Ok(boot), Ok(namespace)) = (boot, namespace) else {
        return String::new();
    };
    let mut digest = Sha256::new_with_prefix(boot);
    digest.update(namespace.dev().to_be_bytes());
    digest.update(namespace.ino().to_be_bytes());
    let all = digest.finalize();
    all.iter().take(16).map(|b| format!("{b:02x}")).collect()
}

/// What one session holds of this machine's settings.
pub struct Tuning {
    peer: Peer,
    /// The controller is in the same place, and keeps the settings itself.
    shared: bool,
}

impl Tuning {
    /// Of a session with `peer`, in which nothing is held yet.
    pub fn new(peer: Peer) -> Tuning {
        Tuning {
            peer,
            shared: false,
        }
    }

    /// Does what is requested, and says what came of it.
    pub fn answer(&mut self, number: u64, origin: &Origin, request: &TuneRequest) -> ToController {
        match self.act(origin, request) {
            Ok(readings) => ToController::Tuned {
                number,
                readings,
                shared: self.shared,
            },
            Err(why) => ToController::TuneRefused { number, why },
        }
    }

    fn act(&mut self, origin: &Origin, request: &TuneRequest) -> Result<Vec<Reading>, String> {
        self.peer.may_tune.clone()?;
        let here = place();
        self.shared = !here.is_empty() && here == origin.place;
        match request {
            TuneRequest::Apply { .. } if self.shared => Err(
                "it is on the controller's own machine, which applies its settings itself"
                    .to_owned(),
            ),
            _ if self.shared => Ok(Vec::new()),
            _ => Err("this version cannot change its machine for another".to_owned()),
        }
    }
}

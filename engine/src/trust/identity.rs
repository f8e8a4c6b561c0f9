//! The key of this host, and the id that follows from a key.

use super::files;
use crate::prelude::*;
use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use std::fs;
use std::os::unix::fs::MetadataExt;

/// What a SubjectPublicKeyInfo of Ed25519 begins with; the 32 bytes of the key follow (RFC 8410, 4).
pub const SPKI_PREFIX: [u8; 12] = [
    0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
];

/// The private key as PKCS#8, in the directory of this host's configuration.
const FILE: &str = "identity.p8";

const SPKI_LEN: usize = SPKI_PREFIX.len() + 32;

/// The id of a raw public key as TLS carries it; `None` if it is not an Ed25519 key in its one form.
pub fn id_of_spki(spki: &[u8]) -> Option<NodeId> {
    let known = spki.len() == SPKI_LEN && spki.starts_with(&SPKI_PREFIX);
    let id = digest(&SHA256, spki).as_ref().try_into();
    id.ok().filter(|_| known).map(NodeId::new)
}

/// The key of this host.
pub struct Identity {
    pkcs8: Vec<u8>,
    spki: Vec<u8>,
    id: NodeId,
}

impl Identity {
    /// The key in `directory`, made on first use. Only the user may read it.
    ///
    /// # Errors
    /// A directory that cannot be written, a key that others can read, a damaged key.
    pub fn open(directory: &Path) -> Result<Identity> {
        let path = directory.join(FILE);
        let name = path.display();
        let mut made = false;
        loop {
            match fs::read(&path) {
                Ok(pkcs8) => {
                    let mode = fs::metadata(&path).map_or(0o600, |m| m.mode()) & 0o777;
                    if mode & 0o077 != 0 {
                        bail!(
                            "{name}: others than its owner may read this host's private key (mode {mode:03o}): chmod 600 it, or delete it for a new one"
                        );
                    }
                    return Identity::from_pkcs8(pkcs8).with_context(|| {
                        format!(
                            "{name}: not an Ed25519 key: restore it, or delete it for a new one"
                        )
                    });
                }
                Err(e) if e.kind() == ErrorKind::NotFound && !made => {
                    Identity::generate()
                        .and_then(|new| new.keep(directory))
                        .with_context(|| format!("cannot keep a key in {}", directory.display()))?;
                    made = true;
                }
                Err(e) => return Err(e).with_context(|| format!("cannot read {name}")),
            }
        }
    }

    /// The id of the key in `directory`; `None` if there is none, or it cannot be used.
    pub fn id_in(directory: &Path) -> Option<NodeId> {
        let pkcs8 = fs::read(directory.join(FILE)).ok()?;
        Some(Identity::from_pkcs8(pkcs8).ok()?.id)
    }

    /// From an Ed25519 private key in PKCS#8.
    pub fn from_pkcs8(pkcs8: Vec<u8>) -> Result<Identity> {
        let pair = Ed25519KeyPair::from_pkcs8(&pkcs8).map_err(|e| anyhow::anyhow!("{e}"))?;
        let spki = [SPKI_PREFIX.as_slice(), pair.public_key().as_ref()].concat();
        let id = id_of_spki(&spki).expect("just built in its one form");
        Ok(Identity { pkcs8, spki, id })
    }

    /// A new key that is nowhere kept.
    ///
    /// # Errors
    /// The kernel gives no random numbers.
    pub fn generate() -> Result<Identity> {
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new())
            .map_err(|_| anyhow::anyhow!("the kernel gave no random numbers"))?;
        Identity::from_pkcs8(pkcs8.as_ref().to_vec())
    }

    /// Keeps the key in a directory: it appears whole or not at all. False if one is there, which stays.
    ///
    /// # Errors
    /// A directory that cannot be written.
    pub fn keep(&self, directory: &Path) -> Result<bool> {
        let _lock = files::lock(directory)?;
        let path = directory.join(FILE);
        match path.exists() {
            true => Ok(false),
            false => files::replace(&path, &self.pkcs8).map(|()| true),
        }
    }

    /// The id of this host.
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// The public key as SubjectPublicKeyInfo.
    pub fn spki(&self) -> &[u8] {
        &self.spki
    }

    /// Signs a text.
    pub fn sign(&self, text: &[u8]) -> Vec<u8> {
        let pair = Ed25519KeyPair::from_pkcs8(&self.pkcs8);
        let pair = pair.expect("it was a key when this was made");
        pair.sign(text).as_ref().to_vec()
    }

    /// The private key as PKCS#8.
    pub fn pkcs8(&self) -> &[u8] {
        &self.pkcs8
    }
}

#[cfg(test)]
pub mod tests;

//! Whether somebody is at the address that a datagram says it is from.

use crate::prelude::*;
use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign};

/// Makes challenges: only who receives at an address can send back that of the address. Nothing is kept of one, as
/// with SYN cookies (RFC 4987, section 3.6).
pub struct AddressChallenge(Key);

impl AddressChallenge {
    /// With a secret of its own.
    ///
    /// # Errors
    /// The kernel gives no random bytes.
    pub fn new() -> Result<AddressChallenge> {
        let secret: [u8; 32] = crate::chance::bytes()?;
        Ok(AddressChallenge(Key::new(HMAC_SHA256, &secret)))
    }

    /// That of an address, and of what is opened from there.
    pub fn of<const N: usize>(&self, address: SocketAddr, stream: u32) -> [u8; N] {
        let tag = sign(&self.0, format!("{address} {stream}").as_bytes());
        let mut bytes = tag.as_ref().iter().copied();
        std::array::from_fn(|_| bytes.next().unwrap_or_default())
    }
}

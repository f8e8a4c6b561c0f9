//! The one source of chance: the kernel's.

use anyhow::{Result, anyhow};
use aws_lc_rs::rand::{SecureRandom, SystemRandom};

/// Random bytes fit for a secret.
pub fn bytes<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| anyhow!("the kernel gives no random bytes (getrandom failed)"))?;
    Ok(bytes)
}

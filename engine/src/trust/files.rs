//! Files that only the user may read, changed under a lock.

use crate::prelude::*;
use aws_lc_rs::digest::{SHA256, digest};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use wire::hex;

/// The SHA-256 of these bytes, hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    hex(digest(&SHA256, bytes).as_ref())
}

/// Keeps other processes from writing in `directory`, which is made for the user alone where there is none, until
/// the file is dropped.
pub fn lock(directory: &Path) -> io::Result<File> {
    sys::file::make_private(directory)?;
    let file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(directory.join("lock"))?;
    file.lock()?;
    Ok(file)
}

/// Puts `bytes` in the place of a file of the user's alone: whole or not at all. Under [`lock`].
pub fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let draft = path.with_extension("new");
    Ok(sys::file::replace(path, &draft, 0o600, bytes)?)
}

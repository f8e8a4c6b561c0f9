//! Standard output, for results alone.

use anyhow::{Context, Result};
use std::io::{ErrorKind, Write};

/// Writes a result. A reader that has seen enough (`| head`) is no error.
///
/// # Errors
/// If standard output cannot take it: a full disk behind a redirection.
pub fn print(text: &str) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write the result to standard output"),
    }
}

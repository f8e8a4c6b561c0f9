//! Standard output, for results alone, and standard error, for everything else.

use anyhow::{Context, Result};
use engine::exit::Exit;
pub use engine::log::note;
use std::io::{ErrorKind, Write};

/// Writes a result. A reader that has seen enough (`| head`) is no error.
///
/// # Errors
/// If standard output cannot take it: a full disk behind a redirection.
pub fn print(text: &str) -> Result<()> {
    write(text.as_bytes())
}

/// Writes all that a command has to print.
pub fn result(text: &str) -> Result<Exit> {
    print(text).map(|()| Exit::Done)
}

/// The same of what need not be text.
pub fn write(bytes: &[u8]) -> Result<()> {
    put(bytes).map(drop)
}

/// Writes a part of a result; false once nobody reads any more.
pub fn print_part(text: &str) -> Result<bool> {
    put(text.as_bytes())
}

fn put(bytes: &[u8]) -> Result<bool> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        written => written
            .context("cannot write the result to standard output")
            .map(|()| true),
    }
}

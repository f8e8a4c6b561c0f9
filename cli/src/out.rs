//! Standard output, for results alone, and standard error, for everything else.

use anyhow::{Context, Result};
use engine::exit::Exit;
pub use engine::log::note;
use std::io::{BufWriter, ErrorKind, Write};

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

/// Writes what `parts` writes.
pub fn write_parts(parts: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let mut stdout = BufWriter::new(std::io::stdout().lock());
    let written = parts(&mut stdout).and_then(|()| Ok(stdout.flush()?));
    match written {
        Err(error) if error.downcast_ref().is_some_and(is_closed) => Ok(()),
        written => written.context("cannot write the result to standard output"),
    }
}

fn is_closed(error: &std::io::Error) -> bool {
    error.kind() == ErrorKind::BrokenPipe
}

fn put(bytes: &[u8]) -> Result<bool> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if is_closed(&error) => Ok(false),
        written => written
            .context("cannot write the result to standard output")
            .map(|()| true),
    }
}

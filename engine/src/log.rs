//! The log: lines on standard error.

use std::io::Write;

/// Writes a line for the user or the log. A closed standard error is no reason to stop.
pub fn note(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

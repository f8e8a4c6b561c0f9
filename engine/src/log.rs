//! The log: lines on standard error.

use crate::prelude::*;

/// Lines of a confined reader, which go with its answer.
static KEPT: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Writes a line for the user or the log. A closed standard error is no reason to stop.
pub fn note(line: &str) {
    if sys::confine::is_reader() {
        let mut kept = sys::lock(&KEPT);
        return kept.push(line.to_owned());
    }
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// What a reader noted.
pub fn take_kept() -> Vec<String> {
    std::mem::take(&mut sys::lock(&KEPT))
}

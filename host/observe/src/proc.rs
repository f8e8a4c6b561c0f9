//! Small files of the kernel, below /proc and /sys.

use std::fs;
use std::io;
use std::path::Path;

/// A file, white space at its ends cut.
pub(crate) fn read(path: impl AsRef<Path>) -> io::Result<String> {
    fs::read_to_string(path).map(|text| text.trim().to_owned())
}

/// What is behind `key` in the first line that begins with it, white space cut.
pub(crate) fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let value = text.lines().find_map(|line| line.strip_prefix(key))?;
    Some(value.trim())
}

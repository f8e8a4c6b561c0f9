//! Files that the user named.

use crate::prelude::*;
use engine::reader;
use engine::traces::unpacked;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::OpenOptions;
use std::io::{BufWriter, Read};

/// Has `work` done by a process that can only read these files and answer: their origin is untrusted.
///
/// # Errors
/// Those of `work`; and if it did not end in bounded time and memory.
pub fn confined<T: Serialize + DeserializeOwned>(
    inputs: &[impl AsRef<Path>],
    work: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let inputs: Vec<&Path> = inputs.iter().map(AsRef::as_ref).collect();
    // There it would not be a terminal.
    stdout_style();
    reader::confined(&inputs, work)
}

/// Longest file that is read whole: an hour of samples each 10 ms over several streams is shorter.
const LONGEST: u64 = 2 << 30;

/// The text of a file, or of standard input where its name is `-`.
///
/// # Errors
/// Why it cannot be had, for a sentence that names the file.
pub fn read_whole(file: &Path) -> Result<String, String> {
    let input: Box<dyn Read> = if file.as_os_str() == "-" {
        Box::new(std::io::stdin().lock())
    } else {
        unpacked(file).map_err(|e| e.to_string())?
    };
    let mut bytes = Vec::new();
    input
        .take(LONGEST + 1)
        .read_to_end(&mut bytes)
        .map_err(|e| e.to_string())?;
    if bytes.len() as u64 > LONGEST {
        return Err("it is longer than 2 GiB".to_owned());
    }
    String::from_utf8(bytes).map_err(|_| "it is not text".to_owned())
}

/// What a file of that is called.
pub fn name(file: &Path) -> String {
    match file.to_str() {
        Some("-") => "standard input".to_owned(),
        _ => file.display().to_string(),
    }
}

/// Writes a file that appears whole or not at all, unless it is a device or a pipe.
pub fn write_whole(file: &Path, text: impl AsRef<[u8]>) -> Result<()> {
    write_parts(file, |out| Ok(out.write_all(text.as_ref())?))
}

/// The same, part by part.
pub fn write_parts(file: &Path, parts: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let failed = || format!("cannot write {}", file.display());
    if std::fs::metadata(file).is_ok_and(|found| !found.is_file()) {
        let device = OpenOptions::new().write(true).truncate(true).open(file);
        return parts(&mut device.with_context(failed)?).with_context(failed);
    }
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    let part = file.with_file_name(name);
    let write = || -> Result<()> {
        let mut out = BufWriter::new(std::fs::File::create_new(&part)?);
        parts(&mut out)?;
        out.into_inner()?.sync_all()?;
        Ok(std::fs::rename(&part, file)?)
    };
    let written = write();
    if written.is_err() {
        // It may not even have been made; the first failure is reported.
        let _ = std::fs::remove_file(&part);
    }
    written.with_context(failed)
}

/// Whether a file could be written there, before much is done for it.
///
/// # Errors
/// A sentence with the reason.
pub fn check_writable(file: &Path) -> Result<()> {
    let name = std::ffi::OsString::from(format!(".linerate.{}.part", std::process::id()));
    let part = file.with_file_name(name);
    let made = std::fs::File::create_new(&part).and_then(|_| std::fs::remove_file(&part));
    let failed = || format!("cannot write {}", file.display());
    if file.is_dir() {
        anyhow::bail!("{}: it is a directory; name a file", failed());
    }
    made.with_context(failed)
}

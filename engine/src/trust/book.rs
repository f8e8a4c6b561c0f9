//! `usage.toml`: how many bytes each key has moved today. Several processes may write it.

use super::files;
use crate::prelude::*;
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// The book of the bytes a day.
pub(super) struct Book {
    /// `None`: what is used is not kept.
    pub(super) file: Option<PathBuf>,
}

/// What is in the file.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Usage {
    /// Days since 1970-01-01 UTC.
    day: u64,
    /// SHA-256 of the rest, hexadecimal: a damaged file must not allow more than was left.
    sha256: String,
    /// Bytes in both directions.
    bytes: BTreeMap<String, Bytes>,
}

impl Usage {
    fn digest(&self) -> String {
        let mut text = format!("{}\n", self.day);
        for (id, bytes) in &self.bytes {
            let _ = writeln!(text, "{id} {}", bytes.0);
        }
        files::sha256(text.as_bytes())
    }
}

impl Book {
    /// Enters bytes of a key and takes others out: all that it has moved today, by all processes.
    ///
    /// # Errors
    /// A sentence if the file is damaged, or cannot be read or written.
    pub(super) fn enter(
        &self,
        day: u64,
        id: &NodeId,
        more: Bytes,
        less: Bytes,
    ) -> Result<Bytes, String> {
        let Some(file) = &self.file else {
            return Ok(Bytes(0));
        };
        let cannot = |why: String| {
            format!(
                "cannot account for the bytes a day there ({}: {why}): look at that file, and remove it if it is damaged",
                file.display()
            )
        };
        let io = |e: std::io::Error| cannot(e.to_string());
        let _lock =
            files::lock(file.parent().unwrap_or(file)).map_err(|e| cannot(format!("{e:#}")))?;
        let mut usage = match std::fs::read_to_string(file) {
            Ok(text) => toml::from_str(&text)
                .ok()
                .filter(|usage: &Usage| usage.digest() == usage.sha256)
                .ok_or_else(|| cannot("it is damaged".to_owned()))?,
            Err(e) if e.kind() == ErrorKind::NotFound => Usage::default(),
            Err(e) => return Err(io(e)),
        };
        if usage.day != day {
            usage = Usage::default();
            usage.day = day;
        }
        let all = usage.bytes.entry(id.to_string()).or_default();
        // TOML has no integers above 2^63 - 1.
        *all = Bytes((*all + more).since(less).0.min(i64::MAX as u64));
        let all = *all;
        if more != less {
            usage.sha256 = usage.digest();
            let text = toml::to_string(&usage).map_err(|e| cannot(e.to_string()))?;
            files::replace(file, text.as_bytes()).map_err(|e| cannot(format!("{e:#}")))?;
        }
        Ok(all)
    }
}

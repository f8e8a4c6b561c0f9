//! `linerate explain --requests`: where the time of each request went.

use super::{Kind, bad, kind, open};
use crate::cli::live::stdout_style;
use crate::exit::Exit;
use crate::out;
use anyhow::Result;
use requests::Observer;
use std::path::Path;

/// Tells the requests of a capture, or of two of the same connections.
///
/// # Errors
/// If one cannot be read, or is none.
pub fn run(path: &Path, other: Option<&Path>, json: bool) -> Result<Exit> {
    let (mut told, left_out) = match other {
        None => {
            let (observer, left_out) = captured(path, Observer::default())?;
            (observer.told(), left_out)
        }
        Some(other) => {
            let (a, mut left_out) = captured(path, Observer::of_two())?;
            let (b, of_other) = captured(other, Observer::of_two())?;
            left_out.extend(of_other);
            (requests::joined(a, b), left_out)
        }
    };
    told.doubts.extend(left_out);
    out::print(&match json {
        true => report::requests::json(&told),
        false => report::requests::text(&told, stdout_style()),
    })?;
    Ok(Exit::Done)
}

/// What a capture shows, and what was left out of it.
fn captured(path: &Path, mut observer: Observer) -> Result<(Observer, Vec<String>)> {
    if !matches!(kind(path)?, Kind::Capture) {
        return Err(bad(path, "requests are found in captures (pcap, pcapng)"));
    }
    let account = capture::read_with_payload(open(path)?, |packet, payload| {
        observer.see(packet, payload);
    });
    let left_out = account.map_err(|e| bad(path, e))?.left_out();
    Ok((observer, left_out))
}

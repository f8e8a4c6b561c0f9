//! Files that commands read: what a file is, by how it begins, and its content.

use crate::prelude::*;
use engine::traces;
use explain::TraceWatcher;
use model::Trace;
use requests::RequestObserver;
use std::io::BufRead;

/// A file that cannot be explained, and why.
pub fn bad(path: &Path, why: impl std::fmt::Display) -> anyhow::Error {
    Refusal::usage(format!("cannot explain {}: {why}", path.display())).into()
}

pub fn open(path: &Path) -> Result<Box<dyn BufRead + Send>> {
    traces::unpacked(path).map_err(|error| bad(path, error))
}

pub fn whole(path: &Path) -> Result<Trace> {
    traces::read(open(path)?).map_err(|why| bad(path, why))
}

pub fn each_record(path: &Path, mut each: impl FnMut(TraceRecord)) -> Result<()> {
    let read = traces::each_record(open(path)?, |record| {
        each(record);
        Ok(())
    });
    read.map_err(|why| bad(path, why))
}

/// What limited the connections of a trace.
pub fn explained(path: &Path) -> Result<Vec<Explanation>> {
    let mut watcher = TraceWatcher::default();
    each_record(path, |record| watcher.push(record))?;
    Ok(watcher.explain())
}

/// What a file is, by how it begins.
pub enum InputKind {
    /// What `linerate trace` wrote.
    Trace,
    /// A capture of packets (pcap, pcapng).
    Capture,
    /// What `tcp.d` printed.
    Listing,
    /// A run, or nothing that is known.
    Other,
}

pub fn kind(path: &Path) -> Result<InputKind> {
    let mut file = open(path)?;
    let head = file.fill_buf().map_err(|error| bad(path, error))?;
    Ok(match head.first_chunk() {
        Some(first) if capture::is_capture(*first) => InputKind::Capture,
        _ if observe::trace::is_trace(head) => InputKind::Trace,
        _ if explain::is_listing(head) => InputKind::Listing,
        _ => InputKind::Other,
    })
}

/// The requests of a capture or a trace, and what was left out of it.
pub fn observed(
    path: &Path,
    mut observer: RequestObserver,
) -> Result<(RequestObserver, Vec<String>)> {
    let left_out = match kind(path)? {
        InputKind::Capture => {
            let account = capture::read_with_payload(open(path)?, |packet, payload| {
                observer.push(packet, payload);
            });
            let account = account.map_err(|e| bad(path, e))?;
            observer.begin(account.began.unwrap_or_default());
            account.left_out()
        }
        InputKind::Trace => {
            each_record(path, |record| observer.record(&record))?;
            Vec::new()
        }
        InputKind::Listing | InputKind::Other => {
            let why = "requests are found in captures (pcap, pcapng) and in traces of linerate";
            return Err(bad(path, why));
        }
    };
    Ok((observer, left_out))
}

//! What a person reads of reads and writes of blocks: by operation how many, how long, and where the time went.

use crate::prelude::*;
use crate::requests;
use crate::summary::wait_words;
use crate::words::table;
use model::request::Links;
use model::{
    BlockRecord, BlockServer, BlockSplit, BlockStore, BlockSummary, Blocks, Cache, Latency,
    LatencySummary, RunId, StoreRecord,
};

/// Storage or network: one takes the larger part if it has more than this share of the time.
const LARGER: f64 = 0.55;

/// The version of the document of several depths.
const DEPTHS_SCHEMA: u32 = 1;
/// A depth is enough if no larger one is faster by more than this.
const ENOUGH: f64 = 1.1;

/// What was measured with so many requests outstanding.
#[derive(Clone, Debug, Serialize)]
pub struct Depth {
    /// Requests that each connection had outstanding.
    pub depth: u32,
    /// Its run in the archive.
    pub run: RunId,
    /// All of them; `None`: none was answered.
    pub requests: Option<LatencySummary>,
    /// The same by operation, those first that took the most time.
    pub operations: Vec<BlockSummary>,
}

/// All depths as one JSON document.
pub fn depths_json(depths: &[Depth]) -> String {
    let schema = DEPTHS_SCHEMA;
    pretty(&document!(schema, depths))
}

/// A line as soon as a depth is measured.
pub fn progress(one: &Depth) -> String {
    let rate = one.requests.as_ref().map_or(0.0, |all| all.per_s);
    format!("depth {}: {} requests/s", one.depth, three_digits(rate))
}

/// Depths beside each other, and which of them is enough.
pub fn depths(depths: &[Depth], style: Style) -> String {
    let rows = depths.iter().flat_map(|depth| {
        depth.operations.iter().map(|one| {
            let shares = one.split.iter().flat_map(|split| {
                let share = |time: Nanos| percent(time.0 as f64 / split.total().0.max(1) as f64);
                [split.storage, split.queued, split.network].map(share)
            });
            let first = [
                depth.depth.to_string(),
                one.operation.name().to_owned(),
                three_digits(one.latency.per_s),
                or(one.data, "-"),
                one.latency.p50.to_string(),
                one.latency.p99.to_string(),
            ];
            first.into_iter().chain(shares).collect()
        })
    });
    let heads: Vec<&str> = "depth|operation|a second|data|p50|p99|storage|queued|network"
        .split('|')
        .collect();
    table(&heads, rows) + &style.prose(&enough(depths))
}

/// The smallest depth that no other outdoes by much.
fn enough(depths: &[Depth]) -> String {
    let rate = |one: &Depth| one.requests.as_ref().map_or(0.0, |all| all.per_s);
    let most = depths.iter().map(rate).fold(0.0, f64::max);
    let good = depths.iter().filter(|one| rate(one) * ENOUGH >= most);
    let deepest = depths.iter().map(|one| one.depth).max();
    match good.map(|one| one.depth).min() {
        Some(depth) if Some(depth) == deepest => {
            format!("A depth of {depth} is the fastest, and a larger one might be faster still.")
        }
        Some(depth) => {
            format!("A depth of {depth} is enough: none of the others is faster by more than 10 %.")
        }
        None => "Nothing was measured.".to_owned(),
    }
}

/// Storage or network? A sentence an operation, of those that move blocks or make them safe.
pub(crate) fn verdict(order: &Blocks, host: &str, leg: &Leg, all: &[BlockSummary]) -> Vec<String> {
    let Some(whose) = order.store() else {
        return Vec::new();
    };
    let place = match leg.direction {
        Direction::Up => format!("at {}", escape(host)),
        Direction::Down => "at this host".to_owned(),
    };
    let storage = match whose.store {
        Some(_) => format!("the storage {place}"),
        None => format!("memory {place}"),
    };
    let split = all.iter();
    let split = split.filter_map(|one| Some(sentence(one, one.split.as_ref()?, &storage)));
    split.collect()
}

fn sentence(one: &BlockSummary, split: &BlockSplit, storage: &str) -> String {
    let total = split.total();
    let share = |time: Nanos| time.0 as f64 / total.0.max(1) as f64;
    let of = |time: Nanos| format!("{} ({})", glue(time), percent(share(time)));
    let queued = match share(split.queued) {
        small if small < 0.01 => String::new(),
        _ => format!(", {} the wait for it", of(split.queued)),
    };
    let verdict = match (share(split.storage + split.queued), share(split.network)) {
        (storage, _) if storage > LARGER => "the storage takes the time",
        (_, network) if network > LARGER => "the network takes the time",
        _ => "both take about as much",
    };
    let ideal = one.latency.ideal;
    let ideal = ideal.map(|time| format!(", of which the path needs {} at the least", glue(time)));
    format!(
        "{}: of {} on average {} are {storage}{queued}, and {} the network and both kernels{}: {verdict}.",
        one.operation.name(),
        glue(total),
        of(split.storage),
        of(split.network),
        ideal.unwrap_or_default()
    )
}

/// What the page cache held of the file, and what it took to make safe what was written.
pub(crate) fn store(order: &Blocks, record: &StoreRecord) -> Option<String> {
    let cached = record.cached_before_share.zip(record.cached_after_share);
    let cached = cached.map(|shares| {
        let (before, after) = (glue(percent(shares.0)), glue(percent(shares.1)));
        let size = glue(Bytes(record.blocks.saturating_mul(order.block.0)));
        format!("The page cache held {before} of {size} before and {after} after.")
    });
    let safe = record.fsync.map(|time| {
        let time = glue(time);
        format!("What was written was on the disk {time} after the last answer (fsync).")
    });
    let all: Vec<String> = cached.into_iter().chain(safe).collect();
    (!all.is_empty()).then(|| all.join(" "))
}

/// The operations, those first that took the most time, and how the split is to be read.
pub(crate) fn operations(
    operations: &[BlockSummary],
    links: &Links,
) -> Option<(Table, Vec<String>)> {
    if operations.is_empty() {
        return None;
    }
    let row = |name: &str, data: String, latency: &LatencySummary| {
        vec![
            name.to_owned(),
            grouped(latency.count),
            three_digits(latency.per_s),
            data,
            latency.p50.to_string(),
            latency.p99.to_string(),
            latency.p999.to_string(),
            latency.max.to_string(),
        ]
    };
    let rows = operations.iter().flat_map(|one| {
        let storage = one.split.as_ref().map(|split| {
            let mut storage = row("  in storage", String::new(), &split.storage_latency);
            // Of the same requests.
            storage[1..3].fill(String::new());
            storage
        });
        let all = row(one.operation.name(), or(one.data, "-"), &one.latency);
        [all].into_iter().chain(storage)
    });
    let heads: Vec<&str> = "operation|count|a second|data|p50|p99|p99.9|longest"
        .split('|')
        .collect();
    let table = Table::new(&heads, rows);
    if operations.iter().all(|one| one.split.is_some()) {
        return Some((table, Vec::new()));
    }
    let mut words = vec![
        "Where the time went, by the client's clock (think time includes queueing at the path and at the server; \
         forward and reverse are half of the shortest RTT each):"
            .to_owned(),
    ];
    for one in operations {
        let total = one.parts.total().0.max(1) as f64;
        let share = |(name, time): (&str, Nanos)| {
            format!("{name} {}", glue(percent(time.0 as f64 / total)))
        };
        let ideal = one.latency.ideal;
        let ideal = ideal.map(|ideal| format!("ideal {}, ", glue(ideal)));
        words.push(format!(
            "{}: {}measured {}: {}",
            one.operation.name(),
            ideal.unwrap_or_default(),
            glue(one.latency.mean),
            one.parts.each().map(share).join(", ")
        ));
    }
    let ideal = requests::ideal(links, requests::NO_RATE);
    words.push(format!("{} {ideal}", requests::EACH));
    Some((table, words))
}

/// The operations with their latencies, and those of their storage where it is known.
pub(crate) fn named(operations: &[BlockRecord]) -> Vec<(String, &Latency)> {
    let named = operations.iter().flat_map(|one| {
        let name = one.operation.name();
        let storage = one.at_server.as_ref();
        let storage = storage.map(|at| (format!("{name} in storage"), &at.storage));
        [(name.to_owned(), &one.latency)].into_iter().chain(storage)
    });
    named.collect()
}

/// What was ordered.
pub(crate) fn order(order: &Blocks, streams: &str) -> Vec<String> {
    let mix: Vec<&str> = order.mix.iter().map(|one| one.name()).collect();
    let file = match &order.server {
        BlockServer::Nfs { export, file_size } => {
            let (size, export) = (glue(file_size), escape(export));
            format!("of a file of {size} on {streams}, below {export}")
        }
        BlockServer::Peer(whose) => format!("{} on {streams}", store_words(whose)),
    };
    let depth = match order.depth {
        1 => "the next leaves when the reply is in".to_owned(),
        n => format!("{n} outstanding on each"),
    };
    let sequence = match (order.random, order.seed) {
        (true, 0) => "in random order".to_owned(),
        (true, seed) => format!("in random order (--seed {seed})"),
        (false, _) => "one after the other".to_owned(),
    };
    let wait = wait_words(order.wait, ["This end", "spins", "sleeps"]);
    let (mix, size) = (mix.join("; "), glue(order.block));
    let first = format!("Asked in turn: {mix}; {depth}; blocks of {size} {sequence} {file}.");
    vec![first, wait]
}

fn store_words(whose: &BlockStore) -> String {
    let Some(path) = &whose.store else {
        return "of memory".to_owned();
    };
    let size = whose.file_size.map(|size| format!(" ({})", glue(size)));
    let cache = match (whose.direct, whose.cache) {
        (true, _) => "past the page cache",
        (_, Cache::Cold) => "none of it cached before",
        (_, Cache::Hot) => "all of it cached before",
        (_, Cache::AsIs) => "with an untouched page cache",
    };
    format!("in {}{}, {cache},", escape(path), size.unwrap_or_default())
}

#[cfg(test)]
pub(crate) mod tests;

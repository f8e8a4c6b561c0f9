//! What a person reads of a copy: the stage that held it up, and the next limit behind it.

use crate::prelude::*;
use crate::words::table;
use model::{Cache, CopySummary, FileCopy, RunId, Stage};

/// The figure of a leg, and what stands in brackets behind it.
pub(crate) fn answer(figures: &LegSummary) -> (String, Vec<String>) {
    let moved = |span| format!("{} in {}", glue(figures.bytes), glue(span));
    let Some(copy) = &figures.copy else {
        return (figures.goodput.to_string(), vec![moved(figures.duration)]);
    };
    let fsync = copy
        .fsync
        .map(|fsync| format!(", of them {} fsync", glue(fsync)));
    let verified = match copy.verified {
        Some(true) => "length and hash verified",
        Some(false) => "length or hash WRONG",
        None => "not verified: it did not come to its end",
    };
    let span = moved(copy.span) + &fsync.unwrap_or_default();
    (copy.rate.to_string(), vec![span, verified.to_owned()])
}

/// Which stage held the copy up, with its share of the time, and the next limit.
pub(crate) fn verdict(order: &FileCopy, copy: &CopySummary) -> String {
    let [first, second, ..] = copy.stages.as_slice() else {
        return String::new();
    };
    let [name, next] = [first, second].map(|stage| stage_name(order, stage.stage));
    let [busy, next_busy] = [first, second].map(|stage| glue(percent(stage.busy_share)));
    if !copy.decided {
        return format!(
            "Held up by {name} and {next} alike: at work {busy} and {next_busy} of the time."
        );
    }
    let alone = second.alone.map(|rate| format!(" at about {}", glue(rate)));
    format!(
        "Held up by {name}: at work {busy} of the time. The next limit is {next}{} (at work {next_busy}).",
        alone.unwrap_or_default()
    )
}

/// Every stage needs a processor: what a crowded host does to the verdict.
pub(crate) fn crowded(figures: &LegSummary) -> Option<String> {
    /// A host so busy has no processor left.
    const FULL: f64 = 0.95;
    let ends = [figures.sender_cpu, figures.receiver_cpu];
    let shares = ends.iter().flatten().filter_map(|cpu| cpu.host_share);
    (shares.fold(0.0, f64::max) >= FULL)
        .then(|| "A host had no processor left, which slows everything at its end.".to_owned())
}

/// What the verdict, which has named storage already, does not say.
pub(crate) fn beside(why: &[Explanation]) -> Vec<Explanation> {
    let storage = [Limit::SourceStorage, Limit::SinkStorage];
    let others = why
        .iter()
        .filter(|e| e.cause().is_none_or(|limit| !storage.contains(&limit)));
    others.cloned().collect()
}

/// What a stage is called, by what is at its end.
pub(crate) fn stage_name(order: &FileCopy, stage: Stage) -> &'static str {
    match (stage, &order.from, &order.to) {
        (Stage::Network, ..) => "the network",
        (Stage::Source, Some(_), _) => "the source's storage",
        (Stage::Source, None, _) => "the sender's memory and processor",
        (Stage::Sink, _, Some(_)) => "the sink's storage",
        (Stage::Sink, _, None) => "the receiver's memory and processor",
    }
}

/// What was ordered, in a sentence.
pub(crate) fn order(order: &FileCopy) -> String {
    let place = |file: &Option<String>| match file {
        Some(path) => escape(path),
        None => "memory".to_owned(),
    };
    let mut sentence = format!("Copied from {} to {}", place(&order.from), place(&order.to));
    if order.from.is_some() {
        sentence.push_str(match order.cache {
            Cache::Cold => ", the source's page cache emptied before",
            Cache::Hot => ", the source read into the page cache before",
            Cache::AsIs => ", the source's page cache untouched",
        });
    }
    if order.direct {
        sentence.push_str(", past the page cache (O_DIRECT)");
    }
    if order.to.is_some() && !order.keep {
        sentence.push_str("; the copy was removed at the end");
    }
    sentence + "."
}

/// Version of the JSON form of corners; counts by itself.
const CORNERS_SCHEMA: u32 = 1;

/// One corner of a comparison: what was at its ends, and the rates that its copies reached.
#[derive(Serialize)]
pub struct Corner {
    /// What was ordered; its `kind` is left out.
    pub order: FileCopy,
    /// A copy each, in the order in which they were made.
    pub copies: Vec<CopySummary>,
    /// Their runs in the archive.
    pub runs: Vec<RunId>,
}

/// All corners as one JSON document.
pub fn corners_json(corners: &[Corner]) -> String {
    let schema = CORNERS_SCHEMA;
    pretty(&document!(schema, corners))
}

/// What is at the two ends of a copy.
pub fn name(order: &FileCopy) -> String {
    let place = |file: &Option<String>| if file.is_some() { "file" } else { "memory" };
    format!("{} to {}", place(&order.from), place(&order.to))
}

/// The same path with memory and with a file at either end: what storage costs.
pub fn corners(corners: &[Corner], style: Style) -> String {
    let mut last = None;
    let rows = corners.iter().map(|corner| {
        let order = &corner.order;
        let mut rates: Vec<BitRate> = corner.copies.iter().map(|c| c.rate).collect();
        rates.sort_unstable();
        let mut line = vec![name(order)];
        let (Some(slowest), Some(fastest)) = (rates.first(), rates.last()) else {
            line.push("not copied".to_owned());
            return line;
        };
        let middle = rates[(rates.len() - 1) / 2];
        line.extend([middle.to_string(), format!("{slowest} to {fastest}")]);
        // The copy of the median speaks for its corner.
        let typical = corner.copies.iter().find(|c| c.rate == middle);
        if let Some(first) = typical.and_then(|c| c.stages.first()) {
            let name = stage_name(order, first.stage);
            line.extend([name.to_owned(), percent(first.busy_share)]);
        }
        if order.from.is_some() && order.to.is_some() {
            last = typical.map(|c| verdict(order, c));
        }
        line
    });
    let head = ["", "median", "slowest to fastest", "held up by", "at work"];
    let out = table(&head, rows);
    let last = last.map(|verdict| style.prose(&format!("File to file: {verdict}")));
    out + &last.unwrap_or_default()
}

#[cfg(test)]
pub(crate) mod tests;

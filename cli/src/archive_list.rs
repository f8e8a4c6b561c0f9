//! What the archive holds, a line each: for lists in a terminal and in a browser.

use archive::{Archive, ArchiveRow, Error, NamedDocument, RunFilter};
use model::mtu::{MtuFound, MtuRecord};
use model::{BitRate, Direction, Ended, Experiment, Nanos, NodeId, Round, Tuning, WatchRecord};
use report::pages::{Entry, RUN};
use report::words::{self, cut, escape, utc};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

pub struct Listed {
    /// What every kind has.
    pub row: ArchiveRow,
    /// Its shown name, once [`Listed::named_in`] has found that.
    pub shown: String,
    kind: &'static str,
    /// What its kind has beside, for scripts.
    more: Value,
}

/// All that passes, the newest first. Runs of an experiment stand for themselves only where the filter names
/// the experiment.
pub fn list(archive: &Archive, filter: &RunFilter) -> Result<Vec<Listed>, Error> {
    let mut all: Vec<Listed> = archive.list(filter)?.into_iter().map(Listed::run).collect();
    if filter.experiment.is_none() {
        all.extend(archive.experiments(filter)?.iter().map(Listed::experiment));
        all.extend(archive.tunings(filter)?.iter().map(Listed::tuning));
        all.extend(archive.mtus(filter)?.iter().map(Listed::mtu));
        all.extend(archive.watches(filter)?.iter().map(Listed::watch));
    }
    all.sort_by(|a, b| (b.row.started, &a.row.id).cmp(&(a.row.started, &b.row.id)));
    if let Some(limit) = filter.limit {
        all.truncate(limit as usize);
    }
    Ok(all)
}

impl Listed {
    /// What a name stands for.
    pub fn of(archive: &Archive, named: &NamedDocument) -> Result<Option<Listed>, Error> {
        let listed = match named {
            NamedDocument::Run(id) => {
                let filter = RunFilter {
                    text: Some(id.clone()),
                    experiment: archive.get(id)?.experiment,
                    ..RunFilter::default()
                };
                let found = archive.list(&filter)?.into_iter().find(|row| row.id == *id);
                match found {
                    Some(row) => Listed::run(row),
                    None => return Ok(None),
                }
            }
            NamedDocument::Experiment(id) => Listed::experiment(&archive.experiment(id)?),
            NamedDocument::Tuning(id) => Listed::tuning(&archive.tuning(id)?),
            NamedDocument::Mtu(id) => Listed::mtu(&archive.mtu(id)?),
            NamedDocument::Watch(id) => Listed::watch(&archive.watch(id)?),
        };
        Ok(Some(listed.named_in(archive)))
    }

    fn new(kind: &'static str, row: ArchiveRow, more: Value) -> Listed {
        Listed {
            shown: row.id.clone(),
            row,
            kind,
            more,
        }
    }

    /// Finds how many digits its name needs.
    pub fn named_in(mut self, archive: &Archive) -> Listed {
        self.shown = archive.shown(&self.row.id);
        self
    }

    fn run(row: ArchiveRow) -> Listed {
        let more = json!({
            "local": row.local,
            "local_id": id(&row.local_key),
            "remote_id": id(&row.remote_key),
            "title": row.title,
            "workload": row.workload,
            "ended": row.ended,
            "goodput_up_bit_s": row.goodput_up,
            "goodput_down_bit_s": row.goodput_down,
            "p50_up_ns": row.p50_up,
            "p50_down_ns": row.p50_down,
        });
        Listed::new(RUN, row, more)
    }

    fn experiment(experiment: &Experiment) -> Listed {
        let outcome = prove::judge(experiment).outcome;
        let plan = &experiment.plan;
        let arms = || plan.arms.iter().map(|arm| arm.name.as_str());
        let title = plan.title.clone();
        let title = title.unwrap_or_else(|| arms().collect::<Vec<_>>().join(" | "));
        let row = ArchiveRow {
            title: Some(format!("{}: {title}", report::prove::answer(outcome))),
            workload: plan.run.workload.kind().name.to_owned(),
            ended: experiment.ended.name().to_owned(),
            ..bare(&experiment.id, experiment.started, &plan.host)
        };
        let more = json!({
            "title": row.title,
            "workload": row.workload,
            "ended": row.ended,
            "runs": experiment.trials.len(),
            "outcome": outcome,
        });
        Listed::new("experiment", row, more)
    }

    fn tuning(story: &Tuning) -> Listed {
        let before = |round: &Round| round.before.goodput;
        let after = story.after.as_ref().map(|look| look.goodput);
        let last = after.or(story.rounds.last().map(before));
        let title = match story.kept.len() {
            _ if story.dry_run => "tuning: a dry run".to_owned(),
            0 => "tuning: nothing changed for good".to_owned(),
            1 => "tuning: 1 setting kept".to_owned(),
            n => format!("tuning: {n} settings kept"),
        };
        let row = ArchiveRow {
            title: Some(title),
            ended: story.ended.name().to_owned(),
            goodput_up: last.filter(|_| story.direction == Direction::Up),
            goodput_down: last.filter(|_| story.direction == Direction::Down),
            ..bare(&story.id, story.started, &story.host)
        };
        let more = json!({
            "direction": story.direction,
            "ended": story.ended.name(),
            "dry_run": story.dry_run,
            "kept": story.kept.len(),
            "goodput_before_bit_s": story.rounds.first().map(before),
            "goodput_after_bit_s": after,
        });
        Listed::new("tuning", row, more)
    }

    fn mtu(record: &MtuRecord) -> Listed {
        let sentence = sentence(&record.found);
        let more = json!({ "sentence": sentence });
        let row = ArchiveRow {
            title: Some(sentence),
            ..bare(&record.id, record.ended, record.found.host())
        };
        Listed::new("mtu", row, more)
    }

    fn watch(record: &WatchRecord) -> Listed {
        let bare = bare(record.id(), record.started(), record.host());
        match record {
            WatchRecord::Day(day) => {
                let more = json!({
                    "filter": day.filter,
                    "until_unix_ns": day.until,
                    "watched_ns": day.watched,
                    "account": day.account,
                });
                let title = Some(report::watch::day_note(day));
                Listed::new("watched day", ArchiveRow { title, ..bare }, more)
            }
            WatchRecord::Trace(trace) => {
                let more = json!({
                    "trigger": trace.trigger,
                    "process": trace.process,
                    "local": trace.local,
                    "remote": trace.remote,
                    "bytes": trace.bytes,
                    "found": trace.found,
                    "ended": trace.ended.name(),
                });
                let row = ArchiveRow {
                    title: Some(report::watch::trace_note(trace)),
                    ended: trace.ended.name().to_owned(),
                    ..bare
                };
                Listed::new("trace", row, more)
            }
        }
    }

    /// For a browser.
    pub fn entry(&self) -> Entry {
        let row = &self.row;
        Entry {
            id: self.shown.clone(),
            kind: match self.kind {
                "mtu" => "MTU",
                kind => kind,
            },
            started: row.started,
            host: row.host.clone(),
            up: figure(row.p50_up, row.goodput_up).unwrap_or_default(),
            down: figure(row.p50_down, row.goodput_down).unwrap_or_default(),
            note: note(row),
            is_broken: row.ended != Ended::Complete.name(),
        }
    }

    /// For scripts.
    pub fn json(&self) -> Value {
        let (row, mut all) = (&self.row, self.more.clone());
        all["kind"] = json!(self.kind);
        all["id"] = json!(row.id);
        all["started_unix_ns"] = json!(row.started);
        all["host"] = json!(row.host);
        all
    }
}

/// What was found of an MTU, in a sentence.
fn sentence(found: &MtuFound) -> String {
    match found {
        MtuFound::Look(report) => report::mtu::sentence(report),
        MtuFound::Change(change) => report::mtu_change::sentence(change),
    }
}

/// A key that is no name.
fn id(key: &str) -> Option<NodeId> {
    key.parse().ok()
}

fn bare(id: &str, started: Nanos, host: &str) -> ArchiveRow {
    ArchiveRow {
        id: id.to_owned(),
        started,
        host: host.to_owned(),
        ended: Ended::Complete.name().to_owned(),
        ..ArchiveRow::default()
    }
}

/// The runs as a table of `width` columns. Where several hosts measured, each line says which; a note that is longer than
/// the rest of a line has the next one.
pub fn table(rows: &[ArchiveRow], width: usize) -> String {
    let measured = || rows.iter().filter(|row| !row.local.is_empty());
    let from: BTreeSet<&str> = measured().map(|row| &*row.local_key).collect();
    let names = archive::distinct_names(measured().map(|row| (&*row.local, &*row.local_key)));
    let names: BTreeMap<&str, String> = measured().map(|row| &*row.local_key).zip(names).collect();
    let local = |row: &ArchiveRow| {
        let name = names.get(&*row.local_key).filter(|_| from.len() > 1);
        name.map(|name| escape(name))
    };
    let hosts = |row: &ArchiveRow| match local(row) {
        Some(local) => format!("{local} to {}", escape(&row.host)),
        None => escape(&row.host),
    };
    let mut cells = vec![["ID", "STARTED (UTC)", "HOST", "UP", "DOWN", "NOTE"].map(str::to_owned)];
    cells.extend(rows.iter().map(|row| {
        let figure = |p50, goodput| figure(p50, goodput).unwrap_or_else(|| "-".to_owned());
        [
            row.id.clone(),
            utc(row.started).chars().take(16).collect(),
            hosts(row),
            figure(row.p50_up, row.goodput_up),
            figure(row.p50_down, row.goodput_down),
            note(row),
        ]
    }));
    const HOST: usize = 2;
    const NOTE: usize = 5;
    let widest = |column: usize| {
        let lengths = cells.iter().map(|row| row[column].chars().count());
        lengths.max().unwrap_or(0)
    };
    let gaps = 2 * NOTE;
    let figures: usize = [0, 1, 3, 4].map(widest).iter().sum();
    let room = width.saturating_sub(figures + gaps);
    let host = widest(HOST).min(room).max(8);
    let room = room.saturating_sub(host);
    let indent = widest(0) + 2;
    if room < "NOTE".len() {
        // All notes are below.
        cells[0][NOTE].clear();
    }
    let mut below = vec![String::new()];
    for (cells, row) in cells[1..].iter_mut().zip(rows) {
        cells[HOST] = match local(row) {
            Some(local) => cut_pair([&local, &escape(&row.host)], host),
            None => cut(&cells[HOST], host),
        };
        below.push(match cells[NOTE].chars().count() > room {
            true => {
                let note = std::mem::take(&mut cells[NOTE]);
                format!(
                    "{:indent$}{}\n",
                    "",
                    cut(&note, width.saturating_sub(indent))
                )
            }
            false => String::new(),
        });
    }
    let table = words::table(&[], cells.into_iter().map(Vec::from));
    let lines = table.lines().zip(below);
    lines
        .map(|(line, below)| format!("{line}\n{below}"))
        .collect()
}

/// The figure of a direction in a list: the latency of requests, else the goodput.
fn figure(p50: Option<Nanos>, goodput: Option<BitRate>) -> Option<String> {
    let rate = || goodput.map(|rate| rate.to_string());
    p50.map(|p50| p50.to_string()).or_else(rate)
}

/// How a run ended unless as ordered, and its title.
fn note(row: &ArchiveRow) -> String {
    let title = escape(row.title.as_deref().unwrap_or_default());
    match (row.ended.as_str(), title.as_str()) {
        ("complete", _) => title,
        (ended, "") => ended.to_owned(),
        (ended, title) => format!("{ended}: {title}"),
    }
}

/// `A to B` where each has at least a half of the width if it needs that, without its middle where it is longer.
fn cut_pair([local, remote]: [&str; 2], width: usize) -> String {
    let room = width.saturating_sub(" to ".len());
    let [first, second] = [local, remote].map(|name| name.chars().count());
    let first = first.min((room / 2).max(room.saturating_sub(second)));
    let without_middle = |name: &str, width: usize| {
        let (all, kept) = (name.chars().count(), width.saturating_sub(2));
        let head = name.chars().take(kept.div_ceil(2));
        match all <= width {
            true => name.to_owned(),
            false => head
                .chain("..".chars())
                .chain(name.chars().skip(all - kept / 2))
                .collect(),
        }
    };
    let second = room.saturating_sub(first);
    format!(
        "{} to {}",
        without_middle(local, first),
        without_middle(remote, second)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_keeps_to_its_width_and_says_how_runs_ended() {
        let row = |host: &str, title: Option<&str>, ended: &str| ArchiveRow {
            id: "00c0ffee".to_owned(),
            started: Nanos::from_secs(1_795_132_800),
            host: host.to_owned(),
            local: "web1".to_owned(),
            local_key: "web1".to_owned(),
            remote_key: host.to_owned(),
            title: title.map(str::to_owned),
            workload: "bulk".to_owned(),
            ended: ended.to_owned(),
            goodput_up: Some(BitRate(1_234_000_000)),
            goodput_down: None,
            p50_up: None,
            p50_down: Some(Nanos(41_000)),
        };
        let rows = [
            row(
                &"host".repeat(30),
                Some(&"title ".repeat(30)),
                "interrupted",
            ),
            row("a\x1b[2Jb", None, "complete"),
        ];
        for width in [80, 100] {
            let text = table(&rows, width);
            assert!(
                text.lines().all(|line| line.chars().count() <= width),
                "{text}"
            );
            assert!(
                text.contains("\n          interrupted: title title"),
                "{text}"
            );
            assert!(!text.contains('\x1b'));
            assert!(!text.contains("web1"), "one host measured all: {text}");
        }
        let other = ArchiveRow {
            local: "web2".to_owned(),
            local_key: "web2".to_owned(),
            ..row("db1", None, "complete")
        };
        let text = table(&[other, row("db1", None, "complete")], 80);
        assert!(text.contains("  web2 to db1  "), "{text}");
        assert!(text.contains("  web1 to db1  "), "{text}");
    }

    #[test]
    fn both_hosts_of_a_run_are_recognised_in_a_narrow_table() {
        let row = |local: &str, key: &str, host: &str| ArchiveRow {
            id: "00c0ffee".to_owned(),
            host: host.to_owned(),
            local: local.to_owned(),
            local_key: key.to_owned(),
            ended: "complete".to_owned(),
            ..ArchiveRow::default()
        };
        let rows = [
            row("vm-of-berkeley", "a", "db2.chicago.example:5210"),
            row("vm-of-chicago", "b", "db3.chicago.example:5211"),
        ];
        let narrow = table(&rows, 80);
        for part in [
            "vm-of-berkeley to db2.chicag..ample:5210",
            "vm-of-chicago to db3.chicago..ample:5211",
        ] {
            assert!(narrow.contains(part), "{narrow}");
        }
        assert!(
            table(&rows, 64).contains("vm-o..eley to db2...5210"),
            "{narrow}"
        );
        let wide = table(&rows, 160);
        assert!(
            wide.contains("vm-of-berkeley to db2.chicago.example:5210"),
            "{wide}"
        );
        assert!(
            narrow.lines().all(|line| line.chars().count() <= 80),
            "{narrow}"
        );
        assert_eq!(cut_pair(["abc", "def"], 0), ".. to ..");
    }
}

//! What a reader made of the runs of each path, kept until these change: no view has to read all of them.

use crate::Error;
use crate::archive::{Archive, ArchiveRow, RunFilter};
use crate::rows::{RowFailure, whole};
use model::{LegLimit, NodeId, Run};
use rusqlite::{Transaction, params};
use std::collections::{BTreeMap, BTreeSet};

/// Runs that can be compared: between two hosts, of one workload, of one length and number of streams.
#[derive(Clone, Debug, PartialEq)]
pub struct PathRow {
    /// The remote host as the user named it in the newest run, as [`distinct_names`] has it.
    pub host: String,
    /// Name of the host that measured, likewise.
    pub local: String,
    /// What distinguishes the host that measured from others ([`Run::local_key`]).
    pub local_key: String,
    /// The same of the remote host ([`Run::remote_key`]).
    pub remote_key: String,
    /// Kind of the workload.
    pub workload: String,
    /// When a leg ends.
    pub limit: Option<LegLimit>,
    /// Connections for each leg.
    pub streams: u32,
    /// What was made of its history; `None`: its runs are others since.
    pub history: Option<String>,
    /// What was made of its newest runs.
    pub latest: Option<String>,
    pub(crate) alike: String,
    /// Counts how often its runs changed.
    changes: i64,
}

impl PathRow {
    /// What makes it another path: both hosts, the workload, and what makes runs of it alike.
    pub(crate) fn key(&self) -> [&String; 4] {
        [
            &self.local_key,
            &self.remote_key,
            &self.workload,
            &self.alike,
        ]
    }

    /// Whether a run is one of its own.
    pub fn is_of(&self, run: &Run) -> bool {
        let spec = &run.spec;
        [&self.local_key, &self.remote_key] == [&run.local_key(), &run.remote_key()]
            && self.workload == spec.workload.kind().name
            && (self.limit, self.streams) == (Some(spec.limit), spec.streams)
    }
}

const COLUMNS: &str = "local_key, remote_key, workload, alike, changes, history, latest";

/// The runs that meet this condition on one `id` begin, end or go: what was made of their paths holds no longer.
pub(crate) fn changed(tx: &Transaction<'_>, condition: &str, id: &str) -> Result<(), RowFailure> {
    let sql = format!(
        "INSERT INTO histories (local_key, remote_key, workload, alike, changes)
         SELECT DISTINCT local_key, remote_key, workload, alike, 1 FROM runs WHERE {condition}
         ON CONFLICT DO UPDATE SET changes = changes + 1, history = NULL, latest = NULL, sum = NULL"
    );
    tx.prepare_cached(&sql)?.execute([id])?;
    Ok(())
}

/// The same of all runs that are kept.
pub(crate) fn all_changed(tx: &Transaction<'_>) -> rusqlite::Result<()> {
    let sql = "INSERT INTO histories (local_key, remote_key, workload, alike, changes)
               SELECT DISTINCT local_key, remote_key, workload, alike, 1 FROM runs";
    tx.execute(sql, []).map(drop)
}

/// What a row has of [`Spec`](model::Spec) that makes runs alike, from its column.
pub(crate) fn alike(column: &str) -> (Option<LegLimit>, u32) {
    let read = serde_json::from_str::<(LegLimit, u32)>(column).ok();
    read.map_or((None, 1), |(limit, streams)| (Some(limit), streams))
}

/// The names of hosts, given with their keys; where several hosts have one name, with the beginning of the key's id.
pub fn distinct_names<'a>(hosts: impl Iterator<Item = (&'a str, &'a str)> + Clone) -> Vec<String> {
    let mut keys: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (name, key) in hosts.clone() {
        keys.entry(name).or_default().insert(key);
    }
    let distinct = |(name, key): (&str, &str)| match key.parse::<NodeId>() {
        Ok(id) if keys[name].len() > 1 => format!("{name} ({})", id.short()),
        _ => name.to_owned(),
    };
    hosts.map(distinct).collect()
}

impl Archive {
    /// The paths that have runs, or had.
    pub fn paths(&self) -> Result<Vec<PathRow>, Error> {
        let newest = |name| {
            format!(
                "coalesce((SELECT r.{name} FROM runs r WHERE r.local_key = h.local_key AND r.remote_key = h.remote_key
                  AND r.workload = h.workload AND r.alike = h.alike ORDER BY r.started_unix_ns DESC LIMIT 1), '')"
            )
        };
        let sql = format!(
            "SELECT {COLUMNS}, {}, {} AS host, {} AS local FROM histories h
             ORDER BY host, local, local_key, remote_key, workload, alike",
            whole(COLUMNS),
            newest("host"),
            newest("local")
        );
        let mut paths = self.rows("list the paths", &sql, [], |row| {
            let column: String = row.get(3)?;
            let (limit, streams) = alike(&column);
            // It is made again.
            let is_whole = row.get::<_, bool>(7)?;
            let made = |text: Option<String>| text.filter(|_| is_whole);
            Ok(PathRow {
                host: row.get(8)?,
                local: row.get(9)?,
                local_key: row.get(0)?,
                remote_key: row.get(1)?,
                workload: row.get(2)?,
                limit,
                streams,
                history: made(row.get(5)?),
                latest: made(row.get(6)?),
                alike: column,
                changes: row.get(4)?,
            })
        })?;
        let hosts = distinct_names(paths.iter().map(|path| (&*path.host, &*path.remote_key)));
        let locals = distinct_names(paths.iter().map(|path| (&*path.local, &*path.local_key)));
        for ((path, host), local) in paths.iter_mut().zip(hosts).zip(locals) {
            (path.host, path.local) = (host, local);
        }
        Ok(paths)
    }

    /// The newest runs of a path, without those of experiments, the newest first.
    pub fn runs_of(&self, path: &PathRow, limit: u32) -> Result<Vec<ArchiveRow>, Error> {
        self.list(&RunFilter {
            path: Some(path.clone()),
            limit: Some(limit),
            ..RunFilter::default()
        })
    }

    /// Keeps what was made of the runs of a path, [`PathRow::history`] and [`PathRow::latest`], unless they changed
    /// since it was read; a path without runs is forgotten.
    pub fn store_history(
        &mut self,
        path: &PathRow,
        made: Option<(&str, &str)>,
    ) -> Result<(), Error> {
        const OF_PATH: &str =
            "local_key = ?1 AND remote_key = ?2 AND workload = ?3 AND alike = ?4 AND changes = ?5";
        self.write("keep the history of a path", "", |tx| {
            let [local_key, remote_key, workload, alike] = path.key();
            let changes = path.changes;
            match made {
                Some((history, latest)) => tx.execute(
                    &format!(
                        "UPDATE histories
                         SET history = ?6, latest = ?7, sum = row_sum(?1, ?2, ?3, ?4, ?5, ?6, ?7)
                         WHERE {OF_PATH}"
                    ),
                    params![
                        local_key, remote_key, workload, alike, changes, history, latest
                    ],
                ),
                None => tx.execute(
                    &format!("DELETE FROM histories WHERE {OF_PATH}"),
                    params![local_key, remote_key, workload, alike, changes],
                ),
            }?;
            Ok(())
        })
    }
}

//! The history of each path: made when its runs change, kept in the archive, and read by every view.

use archive::{Archive, ArchiveRow, Error, PathRow};
use model::{
    Direction, EndRecord, Ended, Exchange, Fingerprint, Leg, LegLimit, Metric, Nanos, Run, Summary,
    WorkloadKind, summarise,
};
use prove::change::{LONGEST, change_points};
use report::pages::{History, Past, Shift};
use serde::{Deserialize, Serialize};

/// Fewer runs of one kind are no history.
const FEWEST: usize = 2;

/// How often noise alone is marked.
const LEVEL: f64 = 0.01;

/// Values of the line of a list.
const LINE: usize = 100;

/// What a list shows of a history.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HistoryFigures {
    /// Which way.
    pub direction: Direction,
    /// Runs in it.
    pub runs: usize,
    /// Where the level changes.
    pub shifts: Vec<Shift>,
    /// The last one.
    pub last: Past,
    /// The values of all, in [`LINE`] steps at most.
    pub line: Vec<f64>,
    /// How the newest run of the path ended.
    pub ended: String,
}

/// The last complete run of a path and the last one that ended otherwise, as far as metrics show them.
pub type Latest = Vec<(Run, Summary)>;

/// Makes of these paths what is not kept yet, or holds no longer. A view does the same for itself, each time.
pub fn refresh(archive: &mut Archive, wanted: impl Fn(&PathRow) -> bool) -> Result<(), Error> {
    let paths = archive.paths()?;
    for path in paths
        .iter()
        .filter(|path| path.history.is_none() && wanted(path))
    {
        let rows = over(archive, path)?;
        if rows.is_empty() {
            archive.store_history(path, None)?;
            continue;
        }
        let figures = json(&figures(path, &rows));
        let latest = json(&newest(archive, &rows)?);
        archive.store_history(path, Some((&figures, &latest)))?;
    }
    Ok(())
}

/// What a list shows of the histories of a path.
pub fn of(archive: &Archive, path: &PathRow) -> Result<Vec<HistoryFigures>, Error> {
    match kept(path.history.as_deref()) {
        Some(figures) => Ok(figures),
        None => Ok(figures(path, &over(archive, path)?)),
    }
}

/// A history whole.
pub fn whole(
    archive: &Archive,
    path: &PathRow,
    direction: Direction,
) -> Result<Option<History>, Error> {
    let kept: Option<Vec<HistoryFigures>> = kept(path.history.as_deref());
    let mut kept = kept.into_iter().flatten();
    let shifts = kept
        .find(|of| of.direction == direction)
        .map(|of| of.shifts);
    Ok(history(path, &over(archive, path)?, direction, shifts))
}

/// The newest runs of a path, see [`Latest`].
pub fn latest(archive: &Archive, path: &PathRow) -> Result<Latest, Error> {
    match kept(path.latest.as_deref()) {
        Some(latest) => Ok(latest),
        None => newest(archive, &over(archive, path)?),
    }
}

/// What the runs of a path have in common that can be compared: `bulk, 10 s, 4 streams`.
pub fn alike(path: &PathRow) -> String {
    let limit = match path.limit {
        Some(LegLimit::Time(time)) => format!(", {}", report::words::round_span(time)),
        Some(LegLimit::Bytes(bytes)) => format!(", {bytes}"),
        Some(LegLimit::Requests(n)) => format!(", {n} requests"),
        Some(LegLimit::Whole) | None => String::new(),
    };
    let streams = match path.streams {
        1 => String::new(),
        n => format!(", {n} streams"),
    };
    format!("{}{limit}{streams}", path.workload)
}

/// A history without its runs.
pub fn head(path: &PathRow, direction: Direction) -> History {
    let calls =
        |kind: &&WorkloadKind| kind.name == path.workload && kind.exchange == Exchange::Calls;
    History {
        host: path.host.clone(),
        local: path.local.clone(),
        workload: alike(path),
        direction,
        metric: match WorkloadKind::ALL.iter().any(calls) {
            true => Some(Metric::LatencyP50),
            false => Some(Metric::Goodput),
        },
        runs: Vec::new(),
        shifts: Vec::new(),
    }
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("the keys are strings")
}

/// What was kept by this version; what another one kept is made again.
fn kept<T: serde::de::DeserializeOwned>(text: Option<&str>) -> Option<T> {
    serde_json::from_str(text?).ok()
}

/// The runs of a path that are over, the newest first.
fn over(archive: &Archive, path: &PathRow) -> Result<Vec<ArchiveRow>, Error> {
    // Some go in the other direction alone, or failed.
    let mut rows = archive.runs_of(path, 3 * LONGEST as u32)?;
    rows.retain(|row| row.ended != Ended::Unfinished.name());
    Ok(rows)
}

fn figures(path: &PathRow, rows: &[ArchiveRow]) -> Vec<HistoryFigures> {
    let of = |direction| {
        let history = history(path, rows, direction, None)?;
        let values: Vec<f64> = history.runs.iter().map(|run| run.value).collect();
        let steps = values.chunks(values.len().div_ceil(LINE).max(1));
        Some(HistoryFigures {
            direction,
            runs: history.runs.len(),
            last: history.runs.last()?.clone(),
            line: steps
                .map(|some| some.iter().sum::<f64>() / some.len() as f64)
                .collect(),
            ended: rows.first()?.ended.clone(),
            shifts: history.shifts,
        })
    };
    Direction::ALL.into_iter().filter_map(of).collect()
}

/// From the complete runs, the newest of which come first; the shifts where they are known.
fn history(
    path: &PathRow,
    rows: &[ArchiveRow],
    direction: Direction,
    shifts: Option<Vec<Shift>>,
) -> Option<History> {
    let head = head(path, direction);
    let past = |row: &ArchiveRow| {
        let (goodput, p50) = match direction {
            Direction::Up => (row.goodput_up, row.p50_up),
            Direction::Down => (row.goodput_down, row.p50_down),
        };
        let value = match head.metric {
            Some(Metric::LatencyP50) => p50.map(Nanos::as_secs_f64),
            _ => goodput.map(|rate| rate.0 as f64),
        };
        Some(Past {
            id: row.id.clone(),
            started: row.started,
            value: value?,
        })
    };
    let complete = rows
        .iter()
        .filter(|row| row.ended == Ended::Complete.name());
    let mut runs: Vec<Past> = complete.filter_map(past).take(LONGEST).collect();
    if runs.len() < FEWEST {
        return None;
    }
    runs.reverse();
    let found = || shifts_of(&runs);
    Some(History {
        shifts: shifts.unwrap_or_else(found),
        runs,
        ..head
    })
}

/// Where the level of runs, the oldest first, changes.
pub(crate) fn shifts_of(runs: &[Past]) -> Vec<Shift> {
    let values: Vec<f64> = runs.iter().map(|run| run.value).collect();
    let shifts = change_points(&values, LEVEL).into_iter();
    let shifts = shifts.map(|found| Shift {
        at: found.after,
        before: found.before_median,
        after: found.after_median,
    });
    shifts.collect()
}

fn newest(archive: &Archive, rows: &[ArchiveRow]) -> Result<Latest, Error> {
    let is_complete = |row: &&ArchiveRow| row.ended == Ended::Complete.name();
    let complete = rows.iter().find(is_complete);
    let other = rows.iter().find(|row| !is_complete(row));
    let runs = complete.into_iter().chain(other).map(|row| {
        let run = archive.get(&row.id)?;
        let summary = Summary {
            warnings: Vec::new(),
            ..summarise(&run)
        };
        let legs = run.legs.into_iter().map(|leg| Leg {
            local: EndRecord::default(),
            remote: EndRecord::default(),
            ..leg
        });
        let bare = Run {
            local: Fingerprint {
                hostname: run.local.hostname,
                ..Fingerprint::default()
            },
            remote: None,
            legs: legs.collect(),
            warnings: Vec::new(),
            ..run
        };
        Ok((bare, summary))
    });
    runs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::testing::TempDir;
    use model::{Bytes, LegLimit as Limit, Spec};

    /// A run of ten seconds, the n-th, that carried so much up.
    fn run(n: u64, mbit: u64, ended: Ended) -> Run {
        let end = EndRecord {
            bytes: Bytes(mbit * 1_250_000),
            duration: Nanos::from_secs(10),
            ..EndRecord::default()
        };
        Run {
            started: Nanos::from_secs(1_000_000 + n),
            host: "db2".to_owned(),
            spec: Spec {
                limit: Limit::Time(Nanos::from_secs(10)),
                ..Spec::default()
            },
            legs: vec![Leg {
                direction: Direction::Up,
                started: Nanos(0),
                local: end.clone(),
                remote: end,
                ended: ended.clone(),
            }],
            ended,
            ..crate::record::blank("db2", Spec::default())
        }
    }

    fn archive(dir: &TempDir, runs: &[Run]) -> Archive {
        let mut archive = Archive::open(&dir.path().join("runs.db")).unwrap();
        for run in runs {
            archive.import(run).unwrap();
        }
        archive
    }

    fn interrupted(n: u64) -> Run {
        run(n, 1, Ended::Interrupted)
    }

    #[test]
    fn a_history_has_the_complete_runs_of_a_direction_in_their_order() {
        let dir = TempDir::new();
        let level = |n| if n < 20 { 100 } else { 50 };
        let mut runs: Vec<Run> = (0..150)
            .map(|n| run(n, level(n), Ended::Complete))
            .collect();
        runs.push(interrupted(150));
        let mut archive = archive(&dir, &runs);
        let paths = archive.paths().unwrap();
        assert_eq!(paths.len(), 1);
        assert!(refresh(&mut archive, |_| false).is_ok());
        assert!(archive.paths().unwrap()[0].history.is_none());
        let unkept = of(&archive, &paths[0]).unwrap();
        refresh(&mut archive, |_| true).unwrap();
        let path = archive.paths().unwrap().remove(0);
        assert!(path.history.is_some() && path.latest.is_some());
        let kept = of(&archive, &path).unwrap();
        assert_eq!(
            serde_json::to_string(&kept).unwrap(),
            serde_json::to_string(&unkept).unwrap()
        );
        let [up] = &kept[..] else { panic!("{kept:?}") };
        assert_eq!(
            (up.direction, up.runs, up.ended.as_str()),
            (Direction::Up, 150, "interrupted")
        );
        // Two runs a step of the line.
        assert_eq!(up.line.len(), 75);
        assert_eq!([up.line[0], up.line[74]], [100e6, 50e6]);
        assert_eq!(
            (up.last.value, up.last.started),
            (50e6, Nanos::from_secs(1_000_149))
        );
        assert_eq!(up.shifts.len(), 1);
        let shift = up.shifts[0];
        assert_eq!((shift.before, shift.after), (100e6, 50e6));
        let all = whole(&archive, &path, Direction::Up).unwrap().unwrap();
        assert_eq!(
            (all.runs.len(), all.shifts.clone()),
            (150, up.shifts.clone())
        );
        assert!(all.runs.is_sorted_by_key(|past| past.started));
        assert_eq!(all.metric, Some(Metric::Goodput));
        assert!(whole(&archive, &path, Direction::Down).unwrap().is_none());
        let newest = latest(&archive, &path).unwrap();
        let ends: Vec<_> = newest.iter().map(|(run, _)| run.ended.clone()).collect();
        assert_eq!(ends, [Ended::Complete, Ended::Interrupted]);
        assert_eq!(newest[0].0.started, Nanos::from_secs(1_000_149));
        assert_eq!(newest[0].0.legs[0].local, EndRecord::default());
    }

    #[test]
    fn fewer_runs_than_two_are_no_history() {
        for (count, is_one) in [(1, false), (2, true)] {
            let dir = TempDir::new();
            let runs: Vec<Run> = (0..count).map(|n| run(n, 100, Ended::Complete)).collect();
            let archive = archive(&dir, &runs);
            let path = archive.paths().unwrap().remove(0);
            assert_eq!(of(&archive, &path).unwrap().len(), usize::from(is_one));
            let whole = whole(&archive, &path, Direction::Up).unwrap();
            assert_eq!(whole.is_some(), is_one);
        }
    }

    #[test]
    fn runs_that_are_alike_are_named_by_what_they_share() {
        let dir = TempDir::new();
        let archive = archive(&dir, &[run(0, 100, Ended::Complete)]);
        let mut path = archive.paths().unwrap().remove(0);
        assert_eq!(alike(&path), "bulk, 10 s");
        path.streams = 4;
        path.limit = Some(Limit::Requests(5));
        assert_eq!(alike(&path), "bulk, 5 requests, 4 streams");
        path.limit = Some(Limit::Bytes(Bytes(1000)));
        assert_eq!(alike(&path), "bulk, 1000 B, 4 streams");
        path.limit = None;
        assert_eq!(alike(&path), "bulk, 4 streams");
        assert_eq!(head(&path, Direction::Up).metric, Some(Metric::Goodput));
        path.workload = "request".to_owned();
        assert_eq!(head(&path, Direction::Up).metric, Some(Metric::LatencyP50));
    }
}

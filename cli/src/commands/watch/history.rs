//! What a watch keeps in the archive: a record a day, which has the minutes of the last hour and outlives a restart.

use super::LINES;
use crate::prelude::*;
use archive::Error;
use model::{SocketCounts, WATCH_SCHEMA, WatchedDay, WatchedSpan, day_of, grown};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

const MINUTE: Nanos = Nanos::from_secs(60);
const HOUR: Nanos = Nanos::from_secs(3_600);
const DAY: Nanos = Nanos::from_secs(86_400);

/// The day of a watch, and the minutes of its last hour.
pub struct WatchHistory {
    day: WatchedDay,
    /// What was counted when the last minute began, and when that was, by the clock of the watch.
    before: SocketCounts,
    since: Nanos,
    due: Nanos,
    keeper: Option<DayKeeper>,
}

/// Writes the record in a thread of its own: the archive may be slow, or in use by others.
struct DayKeeper {
    records: SyncSender<WatchedDay>,
    thread: JoinHandle<()>,
}

impl WatchHistory {
    /// Goes on with the record of today, if there is one of the same connections. Without an archive nothing is kept.
    pub fn begin(archive: Option<PathBuf>, filter: String, unix: Nanos) -> Result<WatchHistory> {
        let mut day = WatchedDay {
            id: archive::new_id(),
            started: unix,
            ..successor(&WatchedDay {
                host: engine::trust::host_name(),
                filter,
                ..WatchedDay::default()
            })
        };
        let mut keeper = None;
        if let Some(path) = archive {
            let held = hold(&path).map_err(|error| not_kept(&error)).ok();
            if let Some(Held::ByAnother) = held {
                out::note(
                    "linerate: another watch keeps the record of this day: this one does not",
                );
            } else {
                match last_day(&path, &day) {
                    Ok(Some(last)) if day_of(last.started) == day_of(unix) => day = last,
                    Ok(Some(last)) => day.minutes = last.minutes,
                    Ok(None) | Err(_) => {}
                }
                keeper = Some(DayKeeper::begin(path, held)?);
            }
        }
        let mut history = WatchHistory {
            day,
            before: SocketCounts::default(),
            since: Nanos(0),
            due: Nanos(0),
            keeper,
        };
        history.begin_minute(unix);
        Ok(history)
    }

    /// The minutes of the last hour, the oldest first; the last goes on.
    pub fn minutes(&self) -> Vec<WatchedSpan> {
        self.day.minutes.clone()
    }

    /// Takes what was counted up to `at`, when it was `unix`. Does nothing before it is due.
    pub fn update(&mut self, at: Nanos, unix: Nanos, counts: impl FnOnce() -> SocketCounts) {
        if at < self.due {
            return;
        }
        self.due = at + LINES;
        let counts = counts();
        let is_over = day_of(unix) != day_of(self.day.started);
        if self.grow(at, &counts) < MINUTE && !is_over {
            return;
        }
        self.end_minute(at, counts);
        if let Some(keeper) = &self.keeper {
            let day = self.day.clone();
            // While the last is still being written this one is left out: the next has it all. A day has no next.
            let _ = match is_over {
                true => keeper.records.send(day).is_ok(),
                false => keeper.records.try_send(day).is_ok(),
            };
        }
        if is_over {
            self.day = WatchedDay {
                id: archive::new_id(),
                started: unix,
                ..successor(&self.day)
            };
        }
        self.begin_minute(unix);
    }

    /// The last minute so far, and how long it has been.
    fn grow(&mut self, at: Nanos, counts: &SocketCounts) -> Nanos {
        let last = self.day.minutes.last_mut().expect("there is always one");
        last.watched = at.since(self.since);
        last.limited = grown(&self.before.account.limited, &counts.account.limited);
        last.watched
    }

    fn end_minute(&mut self, at: Nanos, mut counts: SocketCounts) {
        let last = self.day.minutes.last().expect("there is always one");
        let last = last.clone();
        self.day.add(&self.before, &counts, &last);
        // The kernel's count is ahead of what was met now and then: that is not missing twice.
        let unseen = &mut counts.account.unseen;
        *unseen = (*unseen).max(self.before.account.unseen);
        self.before = counts;
        self.since = at;
    }

    fn begin_minute(&mut self, unix: Nanos) {
        self.day.minutes.retain(|span| span.begun + HOUR > unix);
        self.day.minutes.push(WatchedSpan {
            begun: unix,
            ..WatchedSpan::default()
        });
    }

    /// Keeps what is left, and waits until it is on the disk. A short look is no record.
    pub fn finish(mut self, at: Nanos, counts: SocketCounts) {
        self.grow(at, &counts);
        self.end_minute(at, counts);
        if let Some(keeper) = self.keeper {
            if self.day.watched >= MINUTE {
                let _ = keeper.records.send(self.day);
            }
            drop(keeper.records);
            let _ = keeper.thread.join();
        }
    }
}

/// The day after, of which nothing is known yet.
fn successor(of: &WatchedDay) -> WatchedDay {
    WatchedDay {
        schema: WATCH_SCHEMA,
        host: of.host.clone(),
        filter: of.filter.clone(),
        minutes: of.minutes.clone(),
        ..WatchedDay::default()
    }
}

/// The last record of the same connections of this host that has a part of the last hour or is of today.
fn last_day(path: &Path, new: &WatchedDay) -> Result<Option<WatchedDay>, Error> {
    let lately = RunFilter {
        host: Some(new.host.clone()),
        since: Some(new.started.since(DAY + HOUR)),
        ..RunFilter::default()
    };
    let kept = Archive::open_existing(path)?.watches(&lately)?;
    let is_it = |day: &WatchedDay| (&day.host, &day.filter) == (&new.host, &new.filter);
    let mut days = kept.into_iter().filter_map(|record| match record {
        WatchRecord::Day(day) if is_it(&day) => Some(*day),
        _ => None,
    });
    Ok(days.next())
}

/// Whether this process alone keeps days in an archive.
enum Held {
    /// As long as this file is open.
    Alone(#[expect(dead_code, reason = "the lock is held while it is open")] File),
    ByAnother,
}

/// Makes the archive if there is none, and tries to be the only one that keeps days in it.
fn hold(path: &Path) -> Result<Held> {
    let lock = Archive::open(path)?.lock("watch")?;
    Ok(lock.map_or(Held::ByAnother, Held::Alone))
}

fn not_kept(error: &anyhow::Error) {
    out::note(&format!(
        "linerate: the record of this day is not kept, and is tried again each minute: {}",
        sentence(error)
    ));
}

impl DayKeeper {
    fn begin(path: PathBuf, held: Option<Held>) -> Result<DayKeeper> {
        let (records, received) = sync_channel(1);
        let thread = sys::spawn("records", move || keep(&path, held, &received))
            .context("cannot start the thread that keeps records")?;
        Ok(DayKeeper { records, thread })
    }
}

/// Keeps what comes. What fails is reported once, until it works again.
fn keep(path: &Path, mut held: Option<Held>, received: &Receiver<WatchedDay>) {
    let mut fails = held.is_none();
    for day in received {
        let store = || -> Result<()> {
            if held.is_none() {
                held = Some(hold(path)?);
            }
            if let Some(Held::ByAnother) = held {
                return Ok(());
            }
            Ok(Archive::open(path)?.store_watch(&WatchRecord::Day(Box::new(day)))?)
        };
        match store() {
            Err(error) if !fails => {
                not_kept(&error);
                fails = true;
            }
            kept => fails = kept.is_err(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::finding::{Limit, SocketAccount};

    fn counts(seconds: u64) -> SocketCounts {
        let limited = [(Limit::ReceiveWindow, Nanos::from_secs(seconds))].into();
        let account = SocketAccount {
            seen: seconds,
            limited,
            ..SocketAccount::default()
        };
        SocketCounts {
            account,
            groups: Vec::new(),
        }
    }

    /// Watches for so many seconds from `unix` on, and says which record that is in.
    fn watch(path: &Path, unix: Nanos, seconds: u64) -> WatchHistory {
        let mut history = WatchHistory::begin(Some(path.to_owned()), String::new(), unix).unwrap();
        for second in (0..=seconds).step_by(5) {
            let at = Nanos::from_secs(second);
            history.update(at, unix + at, || counts(second));
        }
        history
    }

    #[test]
    fn the_day_and_the_hour_go_on_after_a_restart_for_one_watch_at_a_time() {
        let name = format!("linerate-history-{}", std::process::id());
        let place = std::env::temp_dir().join(name);
        let path = place.join("runs.db");
        // 08:00 of a day.
        let morning = Nanos::from_secs(1_800_000_000);
        let first = watch(&path, morning, 150);
        let id = first.day.id.clone();
        first.finish(Nanos::from_secs(152), counts(152));
        let kept = || {
            let all = Archive::open(&path).unwrap().watches(&RunFilter::default());
            let days = all.unwrap().into_iter().map(|record| match record {
                WatchRecord::Day(day) => *day,
                WatchRecord::Trace(trace) => panic!("{trace:?}"),
            });
            days.collect::<Vec<_>>()
        };
        let [day] = &kept()[..] else { panic!() };
        assert_eq!(day.watched, Nanos::from_secs(152));
        assert_eq!((day.account.seen, day.hours.len()), (152, 1));
        let lengths = |day: &WatchedDay| {
            let spans = day.minutes.iter();
            spans
                .map(|span| span.watched.0 / 1_000_000_000)
                .collect::<Vec<_>>()
        };
        assert_eq!(lengths(day), [60, 60, 32]);

        let second = watch(&path, morning + Nanos::from_secs(600), 60);
        assert_eq!(second.day.id, id);
        assert_eq!(lengths(&second.day), [60, 60, 32, 60, 0]);
        let beside = watch(&path, morning + Nanos::from_secs(600), 60);
        assert!(beside.keeper.is_none());
        second.finish(Nanos::from_secs(61), counts(61));
        let [day] = &kept()[..] else { panic!() };
        assert_eq!(
            (day.watched, day.account.seen),
            (Nanos::from_secs(213), 213)
        );

        // The next day has a record of its own, with the hour before.
        let night = Nanos::from_secs(1_800_000_000 + 16 * 3_600 - 90);
        let third = watch(&path, night, 100);
        assert!(third.day.id != id && third.day.filter.is_empty());
        assert_eq!(lengths(&third.day), [60, 30, 10]);
        third.finish(Nanos::from_secs(101), counts(101));
        let [day] = &kept()[..] else {
            panic!("{:?}", kept())
        };
        assert_eq!(day.watched, Nanos::from_secs(213 + 90));
        std::fs::remove_dir_all(place).unwrap();
    }

    #[test]
    fn without_an_archive_there_is_the_hour_alone() {
        let unix = Nanos::from_secs(1_800_000_000);
        let mut history = WatchHistory::begin(None, String::new(), unix).unwrap();
        for minute in 1..=90 {
            let at = Nanos::from_secs(60 * minute);
            history.update(at, unix + at, || counts(60 * minute));
        }
        assert_eq!(history.minutes().len(), 60);
    }
}

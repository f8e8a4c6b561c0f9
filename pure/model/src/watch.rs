//! What a watch of this host's sockets keeps in the archive: a record a day, and the traces that its triggers started.

use crate::finding::{Limit, SocketAccount, SocketGroup};
use crate::{Bytes, Comm, Ended, Nanos, RunId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Version of the JSON form of [`WatchedDay`] and [`WatchTrace`].
pub const WATCH_SCHEMA: u32 = 1;

const HOUR: Nanos = Nanos::from_secs(3_600);
/// A day in UTC.
const DAY: Nanos = Nanos::from_secs(86_400);
/// Groups that a day keeps apart: all others are one.
const MOST_GROUPS: usize = 500;

/// What the archive keeps of a watch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WatchRecord {
    /// A day of it.
    Day(Box<WatchedDay>),
    /// A trace that a trigger started.
    Trace(Box<WatchTrace>),
}

impl WatchRecord {
    /// Name in the archive.
    pub fn id(&self) -> &RunId {
        match self {
            WatchRecord::Day(day) => &day.id,
            WatchRecord::Trace(trace) => &trace.id,
        }
    }

    /// Start, since 1970-01-01 UTC.
    pub fn started(&self) -> Nanos {
        match self {
            WatchRecord::Day(day) => day.started,
            WatchRecord::Trace(trace) => trace.started,
        }
    }

    /// The host that was watched.
    pub fn host(&self) -> &str {
        match self {
            WatchRecord::Day(day) => &day.host,
            WatchRecord::Trace(trace) => &trace.host,
        }
    }
}

/// What the connections of a host moved on a day (UTC), and what limited them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WatchedDay {
    /// Version of this form.
    pub schema: u32,
    /// Name in the archive: 32 hexadecimal digits.
    pub id: RunId,
    /// The host that was watched.
    pub host: String,
    /// The options that chose connections; empty: all of them.
    pub filter: String,
    /// When its watching began, nanoseconds since 1970-01-01 UTC.
    #[serde(rename = "started_unix_ns")]
    pub started: Nanos,
    /// Until when this counts, nanoseconds since 1970-01-01 UTC.
    #[serde(rename = "until_unix_ns")]
    pub until: Nanos,
    /// Time that was watched: less than between both where the watch was stopped.
    #[serde(rename = "watched_ns")]
    pub watched: Nanos,
    /// What was counted, and what is missing.
    pub account: SocketAccount,
    /// The same by process, port and network of the peer, of at most 501; the first has what belongs to no other.
    pub groups: Vec<SocketGroup>,
    /// The hours that were watched.
    pub hours: Vec<WatchedSpan>,
    /// The last minutes of the last hour, which may have begun the day before.
    pub minutes: Vec<WatchedSpan>,
}

/// A part of the time of a watch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchedSpan {
    /// Its begin, nanoseconds since 1970-01-01 UTC.
    #[serde(rename = "begun_unix_ns")]
    pub begun: Nanos,
    /// How much of it was watched.
    #[serde(rename = "watched_ns")]
    pub watched: Nanos,
    /// Time that each limit had, of all sockets together.
    #[serde(rename = "limited_ns")]
    pub limited: BTreeMap<Limit, Nanos>,
}

/// What a watch counted since it began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SocketCounts {
    /// Of all sockets.
    pub account: SocketAccount,
    /// By process, port and network of the peer. More are appended, and none moves.
    pub groups: Vec<SocketGroup>,
}

/// Whole days since 1970-01-01 UTC.
pub fn day_of(unix: Nanos) -> u64 {
    unix.0 / DAY.0
}

impl WatchedDay {
    /// Adds what was counted between two moments, the first of them `span.begun`.
    pub fn add(&mut self, before: &SocketCounts, now: &SocketCounts, span: &WatchedSpan) {
        self.watched += span.watched;
        self.until = span.begun + span.watched;
        let hour = Nanos(span.begun.0 - span.begun.0 % HOUR.0);
        if self.hours.last().is_none_or(|last| last.begun != hour) {
            self.hours.push(WatchedSpan {
                begun: hour,
                ..WatchedSpan::default()
            });
        }
        let last = self.hours.last_mut().expect("one was pushed");
        last.watched += span.watched;
        add_times(&mut last.limited, &span.limited);

        let (was, is) = (&before.account, &now.account);
        let of = &mut self.account;
        for (sum, was, is) in [
            (&mut of.seen, was.seen, is.seen),
            (&mut of.ended, was.ended, is.ended),
            (&mut of.short, was.short, is.short),
            (&mut of.vanished, was.vanished, is.vanished),
            (&mut of.unseen, was.unseen, is.unseen),
        ] {
            *sum += is.saturating_sub(was);
        }
        of.left_out = of.left_out.max(is.left_out);
        of.sent += is.sent.since(was.sent);
        of.received += is.received.since(was.received);
        add_times(&mut of.limited, &grown(&was.limited, &is.limited));
        for (n, is) in now.groups.iter().enumerate() {
            match before.groups.get(n) {
                Some(was) if was == is => {}
                was => self.add_group(was.unwrap_or(&SocketGroup::default()), is),
            }
        }
    }

    fn add_group(&mut self, was: &SocketGroup, is: &SocketGroup) {
        if self.groups.is_empty() {
            self.groups.push(SocketGroup {
                peer: "other".to_owned(),
                ..SocketGroup::default()
            });
        }
        fn key(of: &SocketGroup) -> (&str, u16, Comm) {
            (&of.peer, of.port, of.process)
        }
        let known = self.groups.iter().position(|of| key(of) == key(is));
        let place = match known {
            Some(place) => place,
            None if self.groups.len() > MOST_GROUPS => 0,
            None => {
                self.groups.push(SocketGroup {
                    peer: is.peer.clone(),
                    port: is.port,
                    process: is.process,
                    ..SocketGroup::default()
                });
                self.groups.len() - 1
            }
        };
        let of = &mut self.groups[place];
        of.sockets += is.sockets.saturating_sub(was.sockets);
        of.sent += is.sent.since(was.sent);
        of.received += is.received.since(was.received);
        add_times(&mut of.limited, &grown(&was.limited, &is.limited));
    }
}

type Times = BTreeMap<Limit, Nanos>;

/// How much each limit had between two moments.
pub fn grown(was: &Times, is: &Times) -> Times {
    let grown = is.iter().map(|(limit, time)| {
        let before = was.get(limit).copied().unwrap_or_default();
        (*limit, time.since(before))
    });
    grown.filter(|(_, time)| time.0 > 0).collect()
}

/// Adds the time of each limit.
pub fn add_times(to: &mut Times, more: &Times) {
    for (limit, time) in more {
        *to.entry(*limit).or_default() += *time;
    }
}

/// A trace of one connection that a trigger started. Its segments are in a file beside the archive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WatchTrace {
    /// Version of this form.
    pub schema: u32,
    /// Name in the archive: 32 hexadecimal digits.
    pub id: RunId,
    /// The host that was watched.
    pub host: String,
    /// Start, nanoseconds since 1970-01-01 UTC.
    #[serde(rename = "started_unix_ns")]
    pub started: Nanos,
    /// What started it.
    pub trigger: String,
    /// Process that held the socket; zero while not known.
    pub pid: u32,
    /// Its name.
    pub process: Comm,
    /// Local address.
    pub local: SocketAddr,
    /// Remote address.
    pub remote: SocketAddr,
    /// How long before its start the trace begins: `--before` was given.
    #[serde(rename = "before_ns")]
    pub before: Nanos,
    /// Length of the file.
    pub bytes: Bytes,
    /// What limited the connection meanwhile, in a sentence; `None` while not known.
    pub found: Option<String>,
    /// How it ended.
    pub ended: Ended,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(n: u64, groups: u64) -> SocketCounts {
        let limited = Times::from([(Limit::ReceiveWindow, Nanos(10 * n))]);
        let group = |port| SocketGroup {
            peer: "192.0.2.0/24".to_owned(),
            port,
            sockets: n,
            sent: Bytes(n),
            limited: limited.clone(),
            ..SocketGroup::default()
        };
        SocketCounts {
            account: SocketAccount {
                seen: n,
                sent: Bytes(n),
                limited: limited.clone(),
                ..SocketAccount::default()
            },
            groups: (1..=groups).map(|port| group(port as u16)).collect(),
        }
    }

    #[test]
    fn a_day_has_what_its_minutes_grew_by_in_bounded_groups() {
        let mut day = WatchedDay::default();
        let minute = Nanos::from_secs(60);
        let span = |n: u64| WatchedSpan {
            begun: Nanos::from_secs(1_800_000_000 + 60 * n),
            watched: minute,
            limited: [(Limit::ReceiveWindow, Nanos(10))].into(),
        };
        // What was counted before it began is not its own.
        for n in 0..120 {
            day.add(&counts(100 + n, 3), &counts(101 + n, 3), &span(n));
        }
        assert_eq!((day.account.seen, day.account.sent), (120, Bytes(120)));
        assert_eq!(day.account.limited[&Limit::ReceiveWindow], Nanos(1_200));
        assert_eq!(day.watched, Nanos::from_secs(7_200));
        assert_eq!(day.until, span(119).begun + minute);
        assert_eq!(day.groups.len(), 4);
        assert_eq!(day.groups[3].limited[&Limit::ReceiveWindow], Nanos(1_200));
        let hours: Vec<Nanos> = day.hours.iter().map(|hour| hour.watched).collect();
        assert_eq!(hours.iter().copied().sum::<Nanos>(), day.watched);
        assert!((2..=3).contains(&hours.len()), "{hours:?}");
        day.add(&SocketCounts::default(), &counts(1, 2_000), &span(120));
        assert_eq!(day.groups.len(), MOST_GROUPS + 1);
        let sent: u64 = day.groups.iter().map(|of| of.sent.0).sum();
        assert_eq!(sent, 3 * 120 + 2_000);
    }
}

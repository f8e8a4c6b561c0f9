//! The connections of a host that is watched: the last hour, who was limited by what, and each that is shown by itself;
//! and a day of it that was kept.

use super::facts;
use crate::pictures::{RIGHT, WIDTH};
use crate::prelude::*;
use crate::watch::{limit, way, who};
use crate::words::{minute, round_span};
use model::finding::{Glance, SocketAccount, SocketGroup};
use model::{WatchTrace, WatchedDay, WatchedSpan, add_times};

const HOUR: Nanos = Nanos::from_secs(3_600);
/// Rows of the table of groups, those first that were limited longest by something other than their application.
const GROUPS: usize = 20;
/// Colours of the picture; more limits share the last.
const COLOURS: usize = 8;
const LEFT: f64 = 60.0;
const HIGH: f64 = 160.0;

/// What a watch knows at a moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WatchedHost {
    /// Name of the host.
    pub host: String,
    /// Now, since 1970-01-01 UTC.
    pub now: Nanos,
    /// How long it has been watched.
    pub watched: Nanos,
    /// Sockets that are open.
    pub open: u64,
    /// What was counted, and what is missing.
    pub account: SocketAccount,
    /// The same by process, port and network of the peer.
    pub groups: Vec<SocketGroup>,
    /// The minutes of the last hour, the oldest first.
    pub minutes: Vec<WatchedSpan>,
    /// The connections that are held back most, and what limited each for the last minute, where that is known.
    pub connections: Vec<(Glance, Option<Explanation>)>,
}

/// Time that anything but the application had.
pub(crate) fn held(limited: &BTreeMap<Limit, Nanos>) -> Nanos {
    let all = limited
        .iter()
        .filter(|(limit, _)| **limit != Limit::Application);
    all.map(|(_, time)| *time).sum()
}

/// The limit that had most, but for the application, and its time.
pub(crate) fn most(limited: &BTreeMap<Limit, Nanos>) -> Option<(Limit, Nanos)> {
    let others = limited
        .iter()
        .filter(|(limit, time)| **limit != Limit::Application && time.0 > 0);
    let most = others.max_by_key(|(_, time)| **time)?;
    Some((*most.0, *most.1))
}

/// What held connections back, in a sentence.
pub(crate) fn sentence(limited: &BTreeMap<Limit, Nanos>) -> String {
    match most(limited) {
        Some((limit, time)) => format!(
            "What held connections back most is {}: {} of {} in all.",
            limit.words(),
            time,
            held(limited)
        ),
        None => "Nothing but their applications held connections back.".to_owned(),
    }
}

/// The groups that were held back longest first, and of those alike the ones that moved most.
pub(crate) fn ranked(groups: &[SocketGroup]) -> Vec<&SocketGroup> {
    let mut groups: Vec<&SocketGroup> = groups.iter().filter(|group| group.sockets > 0).collect();
    groups.sort_by_key(|group| {
        std::cmp::Reverse((held(&group.limited), group.sent + group.received))
    });
    groups
}

/// What held connections back, and which are missing in that.
fn verdict(limited: &BTreeMap<Limit, Nanos>, account: &SocketAccount) -> Vec<String> {
    let missing = account.missing();
    let missing = missing.map(|missing| format!("Connections are missing: {missing}."));
    [sentence(limited)].into_iter().chain(missing).collect()
}

fn figure(label: &str, value: impl ToString) -> KeyFigure {
    KeyFigure::new(label, value.to_string(), "")
}

/// The page of a watch.
pub fn watched(of: &WatchedHost) -> Page {
    let mut hour: BTreeMap<Limit, Nanos> = BTreeMap::new();
    for minute in &of.minutes {
        add_times(&mut hour, &minute.limited);
    }
    Page {
        title: format!("Connections of {}", of.host),
        figures: vec![
            figure("open", of.open),
            figure("sent", of.account.sent),
            figure("received", of.account.received),
        ],
        verdict: verdict(&hour, &of.account),
        facts: facts([
            ("host", of.host.clone()),
            ("at", minute(of.now)),
            ("watched for", round_span(of.watched)),
            ("seen", counted(of.account.seen, "socket")),
        ]),
        sections: sections(of, &hour),
        ..Page::default()
    }
}

/// The page of a day that was kept.
pub fn watched_day(of: &WatchedDay) -> Page {
    let first = of.hours.first().map_or(of.started, |hour| hour.begun);
    let last = of.hours.last().map_or(of.until, |hour| hour.begun + HOUR);
    let bars = Bars {
        of: "hour",
        from: ("", first),
        until: ("", last),
    };
    let hours: Vec<WatchedSpan> = of.hours.iter().map(whole_hour).collect();
    Page {
        title: format!("Connections of {}, {}", of.host, day(of)),
        figures: vec![
            figure("sockets", of.account.seen),
            figure("sent", of.account.sent),
            figure("received", of.account.received),
        ],
        verdict: verdict(&of.account.limited, &of.account),
        facts: facts([
            ("host", of.host.clone()),
            ("connections", of.filter.clone()),
            ("from", minute(of.started)),
            ("until", minute(of.until)),
            ("watched for", round_span(of.watched)),
        ]),
        sections: vec![
            Section::new("The day").pictures(bars.picture(&hours, &of.account.limited)),
            Section::new("Who was held back").tables([groups(&of.groups)]),
        ],
        ..Page::default()
    }
}

/// The page of a trace that a trigger started; without its segments what is known of it.
pub fn watch_trace(of: &WatchTrace, drawn: Option<Page>) -> Page {
    let page = drawn.unwrap_or_else(|| Page {
        verdict: of.found.iter().cloned().collect(),
        ..Page::default()
    });
    let mut all = facts([
        ("host", of.host.clone()),
        ("started by", of.trigger.clone() + &crate::watch::before(of)),
        ("at", minute(of.started)),
        ("process", of.process.to_string()),
    ]);
    all.extend(page.facts);
    Page {
        title: format!("{} to {}", of.local, of.remote),
        facts: all,
        ..page
    }
}

/// As wide as an hour, however much of it was watched.
fn whole_hour(of: &WatchedSpan) -> WatchedSpan {
    WatchedSpan {
        watched: HOUR,
        ..of.clone()
    }
}

/// The day of a record: `2026-11-20`.
pub(crate) fn day(of: &WatchedDay) -> String {
    minute(of.started).chars().take(10).collect()
}

fn groups(all: &[SocketGroup]) -> Table {
    let head = [
        "process",
        "port",
        "peers",
        "sockets",
        "sent",
        "received",
        "held back",
        "by",
    ];
    Table::new(&head, ranked(all).into_iter().take(GROUPS).map(row))
}

fn sections(of: &WatchedHost, hour: &BTreeMap<Limit, Nanos>) -> Vec<Section> {
    let bars = Bars {
        of: "minute",
        from: ("an hour ago", of.now.since(HOUR)),
        until: ("now", of.now),
    };
    let now = [
        "process",
        "unit",
        "connection",
        "rate",
        "seen",
        "limit lately",
    ];
    let now = Table::new(&now, of.connections.iter().map(|(one, _)| glance(one)));
    let mut sections = vec![
        Section::new("The last hour").pictures(bars.picture(&of.minutes, hour)),
        Section::new("Connections").tables([now]),
        Section::new("Who was held back").tables([groups(&of.groups)]),
    ];
    let explained = of.connections.iter().filter_map(|(one, explanation)| {
        let heading = format!("{} {}", who(one), between(one));
        Some(crate::explain::section(
            heading,
            explanation.as_ref()?,
            Some(&of.host),
        ))
    });
    sections.extend(explained);
    sections
}

fn row(of: &SocketGroup) -> Vec<String> {
    let by = most(&of.limited);
    let bytes = |bytes: Bytes| bytes.to_string();
    vec![
        known(of.process.to_string()),
        known(if of.port == 0 {
            String::new()
        } else {
            of.port.to_string()
        }),
        of.peer.clone(),
        of.sockets.to_string(),
        bytes(of.sent),
        bytes(of.received),
        known(by.map_or(String::new(), |_| held(&of.limited).to_string())),
        known(by.map_or(String::new(), |(limit, _)| limit.words().to_owned())),
    ]
}

fn known(text: String) -> String {
    if text.is_empty() {
        "-".to_owned()
    } else {
        text
    }
}

fn between(one: &Glance) -> String {
    let way = if way(one) == "->" {
        '\u{2192}'
    } else {
        '\u{2190}'
    };
    format!("{} {way} {}", one.local, one.remote)
}

fn glance(one: &Glance) -> Vec<String> {
    vec![
        who(one),
        one.unit.clone().unwrap_or_default(),
        between(one),
        one.sent.max(one.received).to_string(),
        round_span(one.seen),
        limit(one),
    ]
}

/// A bar for each part of a time, of what each limit had of all sockets together; the application's is left out, as it would
/// hide the rest.
struct Bars {
    /// Of what there is a bar each.
    of: &'static str,
    /// Both ends of the time: what stands there, empty for the moment itself.
    from: (&'static str, Nanos),
    until: (&'static str, Nanos),
}

impl Bars {
    fn picture(&self, spans: &[WatchedSpan], all: &BTreeMap<Limit, Nanos>) -> Option<Picture> {
        let mut limits: Vec<Limit> = all
            .keys()
            .copied()
            .filter(|limit| *limit != Limit::Application)
            .collect();
        limits.sort_by_key(|limit| std::cmp::Reverse(all[limit]));
        let tallest = spans.iter().map(|span| held(&span.limited)).max();
        let tallest = tallest.filter(|time| time.0 > 0)?;
        let mut svg = Svg::new(WIDTH, HIGH + 40.0 + 20.0 * limits.len() as f64);
        let class = |n: usize| format!("s{}", n.min(COLOURS - 1));
        let mut rows = Vec::new();
        for span in spans {
            let (x, end) = (self.x(span.begun), self.x(span.begun + span.watched));
            let mut y = HIGH + 10.0;
            let mut row = vec![span.begun.as_secs_f64().to_string()];
            for (place, of) in limits.iter().enumerate() {
                let time = span.limited.get(of).copied().unwrap_or_default();
                let height = HIGH * time.0 as f64 / tallest.0 as f64;
                y -= height;
                if time.0 > 0 && end > x {
                    let title = format!("{}, {of}: {time}", minute(span.begun));
                    let width = (end - x - 1.0).max(0.5);
                    svg.titled_rect((x, y), (width, height), &class(place), &title);
                }
                row.push(time.as_secs_f64().to_string());
            }
            rows.push(row);
        }
        let ends = [self.from, self.until].map(|(words, at)| match words {
            "" => minute(at),
            words => words.to_owned(),
        });
        svg.line((LEFT, HIGH + 10.0), (RIGHT, HIGH + 10.0), "grid");
        svg.text((LEFT - 6.0, 20.0), "faint small end", tallest);
        svg.text((RIGHT, HIGH + 28.0), "faint small end", &ends[1]);
        svg.text((LEFT, HIGH + 28.0), "faint small", &ends[0]);
        for (place, of) in limits.iter().enumerate() {
            let y = HIGH + 48.0 + 20.0 * place as f64;
            svg.rect((LEFT, y - 9.0), (10.0, 10.0), &class(place));
            svg.text((LEFT + 16.0, y), "ink", format!("{of}, {}", all[of]));
        }
        let name = |of: &Limit| format!("{}_s", of.words().replace(['\'', ' '], "_"));
        let columns: Vec<String> = std::iter::once("begun_unix_s".to_owned())
            .chain(limits.iter().map(name))
            .collect();
        let times = limits.iter().map(|of| format!("{of} {}", all[of]));
        let times = times.collect::<Vec<_>>().join(", ");
        let of = self.of;
        Some(Picture::still(
            "causes",
            "What held connections back",
            format!(
                "A bar for each {of} that was watched: the time that each limit had, of all sockets together. \
                 The time of applications is left out."
            ),
            format!("In all: {times}."),
            svg,
            &columns,
            rows,
        ))
    }

    /// Where a moment is, within the picture.
    fn x(&self, at: Nanos) -> f64 {
        let (from, until) = (self.from.1, self.until.1);
        let part = at.since(from).0 as f64 / until.since(from).0.max(1) as f64;
        LEFT + (RIGHT - LEFT) * part.min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn a_page_has_the_hour_who_was_held_back_and_each_connection() {
        let window = (Limit::ReceiveWindow, Nanos::from_secs(40));
        let idle = (Limit::Application, Nanos::from_secs(600));
        let begun = |n: u64| Nanos::from_secs(1_800_000_000 + 60 * n);
        let minutes = (0..3).map(|n| WatchedSpan {
            begun: begun(n),
            watched: Nanos::from_secs(60),
            limited: [window, idle].into(),
        });
        let of = WatchedHost {
            host: "db2".to_owned(),
            now: begun(3),
            open: 2,
            account: testing::account(),
            groups: vec![SocketGroup {
                peer: "192.0.2.0/24".to_owned(),
                port: 873,
                sockets: 5,
                limited: [window].into(),
                ..SocketGroup::default()
            }],
            minutes: minutes.collect(),
            connections: vec![(testing::glance(), Some(testing::rivals()))],
            ..WatchedHost::default()
        };
        let page = watched(&of);
        assert_eq!(
            page.verdict,
            ["What held connections back most is the receive window: 120 s of 120 s in all."]
        );
        let html = crate::page::html(&page);
        assert_eq!(
            html.matches("class=\"s0\"").count(),
            4,
            "three bars and the legend"
        );
        for part in [
            "192.0.2.0/24",
            "873",
            "iperf3",
            "backup.service",
            "receive window",
        ] {
            assert!(html.contains(part), "{part}");
        }
        assert_eq!(page.sections.len(), 4);
        let bars = Bars {
            of: "hour",
            from: ("", begun(0)),
            until: ("", begun(2)),
        };
        assert!(bars.picture(&[], &BTreeMap::new()).is_none());
        let x = [0, 1, 2, 3].map(|n| bars.x(begun(n)));
        assert_eq!(x, [LEFT, (LEFT + RIGHT) / 2.0, RIGHT, RIGHT]);

        let html = crate::page::html(&watched_day(&testing::watched_day()));
        for part in [
            "Connections of db2, 2027-01-15",
            "192.0.2.0/24",
            "watched for",
        ] {
            assert!(html.contains(part), "{part}");
        }
        let metrics = crate::prometheus::watched(2, &of.account, &of.groups);
        let line = r#"linerate_watch_limited_seconds_total{peer="192.0.2.0/24",port="873",process="",cause="receive_window"} 40"#;
        assert!(metrics.contains(line), "{metrics}");
        for limit in Limit::ALL {
            assert_eq!(serde_json::to_value(limit).unwrap(), limit.name());
        }
    }
}

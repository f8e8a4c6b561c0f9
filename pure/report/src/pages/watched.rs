//! The connections of a host that is watched: the last hour, who was limited by what, and each that is shown by itself.

use super::facts;
use crate::page::{KeyFigure, Page, Picture, Section, Svg};
use crate::pictures::{RIGHT, WIDTH};
use crate::watch::{limit, way, who};
use crate::words::{Table, counted, minute, round_span};
use model::finding::{Explanation, Glance, Limit, SocketAccount, SocketGroup};
use model::{Bytes, Nanos};
use std::collections::BTreeMap;

/// Minutes that the picture has.
pub const MINUTES: usize = 60;
/// Rows of the table of groups, those first that were limited longest by something other than their application.
const GROUPS: usize = 20;
/// Colours of the picture; more limits share the last.
const COLOURS: usize = 8;
const LEFT: f64 = 60.0;
const HIGH: f64 = 160.0;

/// A minute of a watch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WatchedMinute {
    /// Its begin, since 1970-01-01 UTC.
    pub begun: Nanos,
    /// Time that each limit had of all sockets together.
    pub limited: BTreeMap<Limit, Nanos>,
}

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
    /// The last minutes, the oldest first.
    pub minutes: Vec<WatchedMinute>,
    /// The connections that are held back most, and what limited each for the last minute, where that is known.
    pub connections: Vec<(Glance, Option<Explanation>)>,
}

/// Time that anything but the application had.
fn held(limited: &BTreeMap<Limit, Nanos>) -> Nanos {
    let all = limited
        .iter()
        .filter(|(limit, _)| **limit != Limit::Application);
    all.map(|(_, time)| *time).sum()
}

/// The page of a watch.
pub fn watched(of: &WatchedHost) -> Page {
    let mut hour: BTreeMap<Limit, Nanos> = BTreeMap::new();
    for minute in &of.minutes {
        for (limit, time) in &minute.limited {
            *hour.entry(*limit).or_default() += *time;
        }
    }
    let most = hour
        .iter()
        .filter(|(limit, _)| **limit != Limit::Application)
        .max_by_key(|(_, time)| **time);
    let mut verdict = vec![match most {
        Some((limit, time)) => format!(
            "What held connections back most is {}: {} of {} in all.",
            limit.words(),
            time,
            held(&hour)
        ),
        None => "Nothing but their applications held connections back.".to_owned(),
    }];
    let missing = of.account.missing();
    verdict.extend(missing.map(|missing| format!("Connections are missing: {missing}.")));
    let figure = |label: &str, value: String| KeyFigure::new(label, value, "");
    Page {
        title: format!("Connections of {}", of.host),
        figures: vec![
            figure("open", of.open.to_string()),
            figure("sent", of.account.sent.to_string()),
            figure("received", of.account.received.to_string()),
        ],
        verdict,
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

fn sections(of: &WatchedHost, hour: &BTreeMap<Limit, Nanos>) -> Vec<Section> {
    let mut groups: Vec<&SocketGroup> =
        of.groups.iter().filter(|group| group.sockets > 0).collect();
    groups.sort_by_key(|group| {
        std::cmp::Reverse((held(&group.limited), group.sent + group.received))
    });
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
    let groups = Table::new(&head, groups.into_iter().take(GROUPS).map(row));
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
        Section::new("The last hour").pictures(stacked(&of.minutes, hour)),
        Section::new("Connections").tables([now]),
        Section::new("Who was held back").tables([groups]),
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
    let by = of
        .limited
        .iter()
        .filter(|(limit, _)| **limit != Limit::Application)
        .max_by_key(|(_, time)| **time);
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

/// A bar a minute, of the time that each limit had of all sockets together; the application's is left out, as it would hide the rest.
fn stacked(minutes: &[WatchedMinute], hour: &BTreeMap<Limit, Nanos>) -> Option<Picture> {
    let mut limits: Vec<Limit> = hour
        .keys()
        .copied()
        .filter(|limit| *limit != Limit::Application)
        .collect();
    limits.sort_by_key(|limit| std::cmp::Reverse(hour[limit]));
    let tallest = minutes
        .iter()
        .map(|minute| held(&minute.limited))
        .max()
        .filter(|time| time.0 > 0)?;
    let mut svg = Svg::new(WIDTH, HIGH + 40.0 + 20.0 * limits.len() as f64);
    let width = (RIGHT - LEFT) / MINUTES as f64;
    let class = |n: usize| format!("s{}", n.min(COLOURS - 1));
    let mut rows = Vec::new();
    for (n, minute) in minutes.iter().rev().take(MINUTES).enumerate() {
        let x = RIGHT - (n + 1) as f64 * width;
        let mut y = HIGH + 10.0;
        for (place, of) in limits.iter().enumerate() {
            let time = minute.limited.get(of).copied().unwrap_or_default();
            let height = HIGH * time.0 as f64 / tallest.0 as f64;
            y -= height;
            if time.0 > 0 {
                let title = format!("{}, {of}: {time}", crate::words::minute(minute.begun));
                svg.titled_rect((x, y), (width - 1.0, height), &class(place), &title);
            }
        }
        let mut row = vec![minute.begun.as_secs_f64().to_string()];
        row.extend(limits.iter().map(|of| {
            minute
                .limited
                .get(of)
                .copied()
                .unwrap_or_default()
                .as_secs_f64()
                .to_string()
        }));
        rows.insert(0, row);
    }
    svg.line((LEFT, HIGH + 10.0), (RIGHT, HIGH + 10.0), "grid");
    svg.text((LEFT - 6.0, 20.0), "faint small end", tallest);
    svg.text((RIGHT, HIGH + 28.0), "faint small end", "now");
    svg.text((LEFT, HIGH + 28.0), "faint small", "an hour ago");
    for (place, of) in limits.iter().enumerate() {
        let y = HIGH + 48.0 + 20.0 * place as f64;
        svg.rect((LEFT, y - 9.0), (10.0, 10.0), &class(place));
        svg.text((LEFT + 16.0, y), "ink", format!("{of}, {}", hour[of]));
    }
    let columns: Vec<String> = std::iter::once("begun_unix_s".to_owned())
        .chain(
            limits
                .iter()
                .map(|of| format!("{}_s", of.words().replace(['\'', ' '], "_"))),
        )
        .collect();
    let all: Vec<String> = limits
        .iter()
        .map(|of| format!("{of} {}", hour[of]))
        .collect();
    Some(Picture::still(
        "causes",
        "What held connections back",
        "A bar a minute: the time that each limit had, of all sockets together. The time of applications is left out.",
        format!("In the last hour: {}.", all.join(", ")),
        svg,
        &columns,
        rows,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn a_page_has_the_hour_who_was_held_back_and_each_connection() {
        let window = (Limit::ReceiveWindow, Nanos::from_secs(40));
        let idle = (Limit::Application, Nanos::from_secs(600));
        let minutes = (0..3).map(|n| WatchedMinute {
            begun: Nanos::from_secs(1_800_000_000 + 60 * n),
            limited: [window, idle].into(),
        });
        let of = WatchedHost {
            host: "db2".to_owned(),
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
        assert!(stacked(&[], &BTreeMap::new()).is_none());
        let metrics = crate::prometheus::watched(2, &of.account, &of.groups);
        let line = r#"linerate_watch_limited_seconds_total{peer="192.0.2.0/24",port="873",process="",cause="receive_window"} 40"#;
        assert!(metrics.contains(line), "{metrics}");
        for limit in Limit::ALL {
            assert_eq!(serde_json::to_value(limit).unwrap(), limit.name());
        }
    }
}

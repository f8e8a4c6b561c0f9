//! The page of a path's MTU, looked at or changed.

use super::{facts, filled};
use crate::mtu::{fate, parts, sentence};
use crate::mtu_change;
use crate::pictures::hops;
use crate::prelude::*;
use model::mtu::{Going, Method, MtuChange, MtuFound, MtuReport, PathEnd};

/// What was found of a path, or what came of a change.
pub fn mtu(found: &MtuFound) -> Page {
    match found {
        MtuFound::Look(report) => looked(report),
        MtuFound::Change(change) => changed(change),
    }
}

fn looked(report: &MtuReport) -> Page {
    let (figures, evidence, todo) = parts(report);
    Page {
        title: format!("What size gets through to {}", escape(&report.host)),
        verdict: vec![sentence(report)],
        facts: about(report),
        figures: key_figures(report),
        sections: filled(vec![
            Section::new("The path").pictures(vec![hops::picture(report, "hops", "Hop by hop")]),
            Section::new("What to do").words(todo),
            Section::new("Evidence").words(evidence).tables([figures]),
        ]),
        ..Page::default()
    }
}

fn changed(change: &MtuChange) -> Page {
    let look = |id: &str, heading: &str, report: &MtuReport| {
        Section::new(heading.to_owned())
            .words(vec![sentence(report)])
            .tables([parts(report).0])
            .pictures(vec![hops::picture(report, id, heading)])
    };
    let output = mtu_change::text(change, Style::PLAIN);
    let mut sections = vec![look("before", "Before", &change.before)];
    let looks = [
        ("pinned", "While only probes were larger", &change.pinned),
        ("after", "Afterwards", &change.after),
    ];
    let looks = looks.into_iter().filter_map(|(id, heading, report)| {
        let report = report.as_ref()?;
        Some(look(id, heading, report))
    });
    sections.extend(looks);
    sections.push(Section::new("Result").listing(output).folded(true));
    let (to, host) = (change.to, escape(&change.host));
    Page {
        title: format!("An MTU of {to} between this host and {host}"),
        verdict: vec![mtu_change::sentence(change)],
        facts: about(&change.before),
        sections,
        figures: key_figures(change.after.as_ref().unwrap_or(&change.before)),
        ..Page::default()
    }
}

/// What passes in each direction, and what becomes of TCP there.
fn key_figures(report: &MtuReport) -> Vec<KeyFigure> {
    let figure = |(going, label): (Going, &str)| {
        let way = report.way(going);
        let mtu = way.verdict.mtu?;
        let tcp = way.tcp.as_ref().map(fate);
        let tcp = tcp.map(|fate| format!("64 KiB over TCP: {fate}"));
        Some(KeyFigure::new(
            label,
            format!("{mtu} bytes"),
            tcp.unwrap_or_default(),
        ))
    };
    let both = [
        (Going::Forward, "path MTU, forward"),
        (Going::Reverse, "path MTU, reverse"),
    ];
    both.into_iter().filter_map(figure).collect()
}

fn about(report: &MtuReport) -> Vec<(String, String)> {
    let end = |end: &PathEnd| {
        let address = end.address.map(|address| format!("{address}, "));
        let by = end.gateway.map(|gateway| format!(", by {gateway}"));
        format!(
            "{}{} with an MTU of {}{}",
            address.unwrap_or_default(),
            escape(&end.device),
            end.device_mtu,
            by.unwrap_or_default()
        )
    };
    facts([
        (
            "Method",
            match report.method {
                Method::Agent => "UDP probes to an agent at the remote host",
                Method::Web => "over connections of every MSS to a web server",
            }
            .to_owned(),
        ),
        ("Local host", end(&report.local)),
        (
            "Remote host",
            report.remote.as_ref().map(end).unwrap_or_default(),
        ),
    ])
}

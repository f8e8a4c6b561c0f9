//! The list of what the archive holds, with links: to the pages, and to the history of each path.

use super::grid::link;
use crate::page::{DROP, document, inert};
use crate::words::{counted, utc};
use model::{Nanos, WorkloadKind};
use std::fmt::Write as _;

/// What the list has.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Index {
    /// The newest first.
    pub entries: Vec<Entry>,
    /// Paths with a history.
    pub paths: Vec<PathHistory>,
    /// What was searched for; `None`: files cannot search, nor compare.
    pub search: Option<Search>,
    /// The server takes a capture and answers with its page.
    pub takes_captures: bool,
    /// Names of meshes and addresses of their grids.
    pub meshes: Vec<(String, String)>,
    /// Address of the page with those before the oldest of these.
    pub older: Option<String>,
}

/// A line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Entry {
    /// Name in the archive.
    pub id: String,
    /// What it is: `run`, `experiment`, ...
    pub kind: &'static str,
    /// Start, since 1970-01-01 UTC.
    pub started: Nanos,
    /// The remote host as the user named it.
    pub host: String,
    /// What was found from here to the host.
    pub up: String,
    /// What was found from the host to here.
    pub down: String,
    /// How it ended unless as ordered, and its title.
    pub note: String,
    /// It failed, was interrupted, or is unfinished.
    pub is_broken: bool,
}

/// A path with a history.
#[derive(Clone, Debug, PartialEq)]
pub struct PathHistory {
    /// What it is of, see [`History::name`](super::History::name).
    pub name: String,
    /// Runs in it.
    pub runs: usize,
    /// Places to look at.
    pub shifts: usize,
    /// What the last run found.
    pub last: String,
    /// When that was.
    pub when: String,
    /// How the newest run ended, unless it was complete.
    pub failed: Option<String>,
    /// What they found, the oldest first, for the line that shows it.
    pub values: Vec<f64>,
    /// Address of its page.
    pub href: String,
}

/// The fields of a search: part of host, title or name; part of the host's name; kind of workload; the first day, the last.
pub const FIELDS: [&str; 5] = ["text", "host", "workload", "since", "until"];

/// What is searched for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Search {
    /// What each of [`FIELDS`] holds.
    pub values: [String; FIELDS.len()],
    /// What was wrong with them.
    pub said: String,
}

/// A kind that can be compared.
pub const RUN: &str = "run";

const TITLE: &str = "Measurements";

const COLUMNS: [&str; 7] = [
    "Name",
    "Started (UTC)",
    "Host",
    "What",
    "Up",
    "Down",
    "Note",
];

/// The whole page.
pub fn index(index: &Index) -> String {
    let mut out = format!("<main class=\"list\">\n<h1>{TITLE}</h1>\n");
    if !index.meshes.is_empty() {
        let links = index.meshes.iter();
        let links: String = links.map(|(name, href)| link(name, href)).collect();
        let _ = writeln!(out, "<nav>Meshes:{links}</nav>");
    }
    if let Some(search) = &index.search {
        self::search(&mut out, search);
    }
    if index.takes_captures {
        let _ = writeln!(
            out,
            "<p><label>A capture to explain, chosen or dropped here: <input type=\"file\" id=\"capture\"></label> \
             <span id=\"capture-state\" role=\"status\"></span></p>\n<script>{DROP}</script>"
        );
    }
    if !index.paths.is_empty() {
        paths(&mut out, &index.paths);
    }
    if index.entries.is_empty() {
        out.push_str("<p>No measurement matches.</p>\n");
    } else {
        list(&mut out, index);
    }
    if let Some(older) = &index.older {
        let _ = writeln!(
            out,
            "<p><a href=\"{}\" rel=\"next\">Older</a></p>",
            inert(older)
        );
    }
    out.push_str("</main>\n");
    document(TITLE, index.search.is_some(), |body| body.push_str(&out))
}

/// A card for each path: its last figure, its time and state, all of its runs as a line.
fn paths(out: &mut String, paths: &[PathHistory]) {
    out.push_str("<section>\n<h2>Paths</h2>\n<ul class=\"paths\">\n");
    for way in paths {
        let changes = counted(way.shifts as u64, "change");
        let (class, state) = match (&way.failed, way.shifts) {
            (Some(ended), _) => ("failed", format!(", the last run {}", inert(ended))),
            (None, 0) => ("steady", String::new()),
            (None, _) => ("changed", format!(", {changes} of level")),
        };
        let (href, name, last, when) = (
            inert(&way.href),
            inert(&way.name),
            inert(&way.last),
            inert(&way.when),
        );
        let (runs, line) = (counted(way.runs as u64, "run"), spark(&way.values));
        let _ = writeln!(
            out,
            "<li class=\"{class}\"><a href=\"{href}\">{name}</a><strong>{last}</strong>{line}<small>{when}, {runs}{state}</small></li>"
        );
    }
    out.push_str("</ul>\n</section>\n");
}

/// A line over all values, from zero up.
fn spark(values: &[f64]) -> String {
    let most = values.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let step = 200.0 / (values.len().max(2) - 1) as f64;
    let place = |(n, value): (usize, &f64)| {
        let letter = if n == 0 { 'M' } else { 'L' };
        format!(
            "{letter}{:.1} {:.1}",
            n as f64 * step,
            34.0 - 32.0 * value / most
        )
    };
    let path: String = values.iter().enumerate().map(place).collect();
    format!(
        "<svg viewBox=\"0 0 200 36\" preserveAspectRatio=\"none\" aria-hidden=\"true\"><path class=\"s0\" d=\"{path}\"/></svg>"
    )
}

/// Asked by GET, so that what was found has an address.
fn search(out: &mut String, search: &Search) {
    let [text, host, workload, since, until] = &search.values;
    out.push_str("<form role=\"search\">\n");
    for (label, name, kind, value) in [
        ("Text", "text", "search", text),
        ("Host", "host", "search", host),
        ("From", "since", "date", since),
        ("Until", "until", "date", until),
    ] {
        let value = inert(value);
        let _ = writeln!(
            out,
            "<label>{label} <input type=\"{kind}\" name=\"{name}\" value=\"{value}\"></label>"
        );
    }
    out.push_str("<label>Workload <select name=\"workload\"><option value=\"\">any</option>");
    for kind in WorkloadKind::ALL.map(|kind| kind.name) {
        let chosen = if workload == kind { " selected" } else { "" };
        let _ = write!(out, "<option{chosen}>{kind}</option>");
    }
    out.push_str("</select></label>\n<button>Search</button> <a href=\"/\">all</a>\n</form>\n");
    if !search.said.is_empty() {
        let _ = writeln!(out, "<p role=\"status\">{}</p>", inert(&search.said));
    }
}

fn list(out: &mut String, index: &Index) {
    let compares = index.search.is_some() && index.entries.iter().any(|e| e.kind == RUN);
    if compares {
        out.push_str(
            "<form id=\"compare\" action=\"compare.html\"><p><button>Compare</button> \
             two runs: choose one as A, another as B.</p></form>\n",
        );
    }
    out.push_str("<div class=\"wide\" tabindex=\"0\">\n<table>\n<thead><tr>");
    let choice: &[&str] = if compares { &["A", "B"] } else { &[] };
    for name in choice.iter().chain(&COLUMNS) {
        let _ = write!(out, "<th scope=\"col\">{name}</th>");
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for entry in &index.entries {
        let id = inert(&entry.id);
        out.push_str(if entry.is_broken {
            "<tr class=\"broken\">"
        } else {
            "<tr>"
        });
        for name in choice {
            let input = match entry.kind {
                RUN => format!(
                    "<input type=\"radio\" form=\"compare\" name=\"{}\" value=\"{id}\" aria-label=\"{id} as {name}\" required>",
                    name.to_ascii_lowercase()
                ),
                _ => String::new(),
            };
            let _ = write!(
                out,
                "<td data-name=\"{}\">{input}</td>",
                if input.is_empty() { "" } else { *name }
            );
        }
        let started: String = utc(entry.started).chars().take(16).collect();
        let cells = [
            format!("<a href=\"{id}.html\">{id}</a>"),
            started,
            inert(&entry.host),
            entry.kind.to_owned(),
            inert(&entry.up),
            inert(&entry.down),
            inert(&entry.note),
        ];
        for (name, cell) in COLUMNS.iter().zip(cells) {
            let _ = write!(out, "<td data-name=\"{name}\">{cell}</td>");
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table>\n</div>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_wrote_stays_text_and_files_do_not_search() {
        let evil = "\"><script>alert(1)</script>\u{202e}";
        let entry = |kind| Entry {
            id: "3f00c0de".to_owned(),
            kind,
            host: evil.to_owned(),
            note: evil.to_owned(),
            up: "941 Mbit/s".to_owned(),
            ..Entry::default()
        };
        let mut of = Index {
            takes_captures: true,
            meshes: vec![(evil.to_owned(), "/grid.html?mesh=db".to_owned())],
            entries: vec![
                entry(RUN),
                Entry {
                    is_broken: true,
                    ..entry("tuning")
                },
            ],
            paths: vec![PathHistory {
                name: evil.to_owned(),
                runs: 12,
                shifts: 1,
                last: "941 Mbit/s".to_owned(),
                when: "2 h ago".to_owned(),
                failed: None,
                values: vec![1.0, 2.0],
                href: "history.html?host=%22".to_owned(),
            }],
            search: Some(Search {
                values: [evil, "", "bulk", "", ""].map(str::to_owned),
                said: evil.to_owned(),
            }),
            older: Some("/?text=a&before=7".to_owned()),
        };
        let page = index(&of);
        assert!(!page.contains("<script>alert"), "{page}");
        assert!(!page.contains('\u{202e}'));
        assert!(page.contains("<option selected>bulk</option>"));
        assert_eq!(page.matches("<tr class=\"broken\">").count(), 1);
        assert_eq!(
            page.matches("type=\"radio\"").count(),
            2,
            "of the run alone"
        );
        assert!(page.contains("<a href=\"3f00c0de.html\">3f00c0de</a>"));
        assert!(
            page.contains("<strong>941 Mbit/s</strong>")
                && page.contains("2 h ago, 12 runs, 1 change of level")
        );
        assert!(page.contains("<a href=\"/?text=a&amp;before=7\" rel=\"next\">Older</a>"));
        assert!(page.contains("<nav>Meshes: <a href=\"/grid.html?mesh=db\">"));
        of.search = None;
        let file = index(&of);
        assert!(!file.contains("<form"), "{file}");
        assert!(index(&Index::default()).contains("No measurement matches"));
    }
}

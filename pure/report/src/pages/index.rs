//! The list of what the archive holds, with links: to the pages, and to the history of each path.

use crate::page::{document, inert};
use crate::words::utc;
use model::{Nanos, WorkloadKind};
use std::fmt::Write as _;

/// What the list says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Index {
    /// The newest first.
    pub entries: Vec<Entry>,
    /// Paths with a history.
    pub paths: Vec<Way>,
    /// What was searched for; `None`: files cannot search, nor compare.
    pub search: Option<Search>,
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
    /// The other host as the user named it.
    pub host: String,
    /// What was found from here to the host.
    pub up: String,
    /// What was found from the host to here.
    pub down: String,
    /// How it ended unless as ordered, and its title.
    pub note: String,
}

/// A path with a history.
#[derive(Clone, Debug, PartialEq)]
pub struct Way {
    /// What it is of, see [`History::name`](super::History::name).
    pub name: String,
    /// Runs in it.
    pub runs: usize,
    /// Places to look at.
    pub shifts: usize,
    /// Address of its page.
    pub href: String,
}

/// What the fields of the search hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Search {
    /// Part of host, title or name.
    pub text: String,
    /// Part of the host's name.
    pub host: String,
    /// Kind of workload.
    pub workload: String,
    /// The first day.
    pub since: String,
    /// The last day.
    pub until: String,
    /// What was wrong with them, or that there is more than the list has.
    pub said: String,
}

/// A kind that can be compared.
pub const RUN: &str = "run";

const TITLE: &str = "The archive of linerate";

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
    if let Some(search) = &index.search {
        self::search(&mut out, search);
    }
    if index.entries.is_empty() {
        out.push_str("<p>Nothing is kept that is like that.</p>\n");
    } else {
        list(&mut out, index);
    }
    if !index.paths.is_empty() {
        out.push_str("<section>\n<h2>Paths over time</h2>\n<ul>\n");
        for way in &index.paths {
            let look = match way.shifts {
                0 => String::new(),
                n => format!(", <strong>look at {n} of them</strong>"),
            };
            let (href, name) = (inert(&way.href), inert(&way.name));
            let _ = writeln!(
                out,
                "<li><a href=\"{href}\">{name}</a>: {} runs{look}</li>",
                way.runs
            );
        }
        out.push_str("</ul>\n</section>\n");
    }
    out.push_str("</main>\n");
    document(TITLE, &out, index.search.is_some())
}

/// Asked by GET, so that what was found has an address.
fn search(out: &mut String, search: &Search) {
    out.push_str("<form role=\"search\">\n");
    for (label, name, kind, value) in [
        ("Text", "text", "search", &search.text),
        ("Host", "host", "search", &search.host),
        ("From", "since", "date", &search.since),
        ("Until", "until", "date", &search.until),
    ] {
        let value = inert(value);
        let _ = writeln!(
            out,
            "<label>{label} <input type=\"{kind}\" name=\"{name}\" value=\"{value}\"></label>"
        );
    }
    out.push_str("<label>Workload <select name=\"workload\"><option value=\"\">any</option>");
    for kind in WorkloadKind::ALL.map(|kind| kind.name) {
        let chosen = if search.workload == kind {
            " selected"
        } else {
            ""
        };
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
        out.push_str("<tr>");
        for name in choice {
            let input = match entry.kind {
                RUN => format!(
                    "<input type=\"radio\" form=\"compare\" name=\"{}\" value=\"{id}\" aria-label=\"{id} as {name}\" required>",
                    name.to_ascii_lowercase()
                ),
                _ => String::new(),
            };
            let _ = write!(out, "<td>{input}</td>");
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
        for cell in cells {
            let _ = write!(out, "<td>{cell}</td>");
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table>\n</div>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_stranger_wrote_stays_text_and_files_do_not_search() {
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
            entries: vec![entry(RUN), entry("tuning")],
            paths: vec![Way {
                name: evil.to_owned(),
                runs: 12,
                shifts: 1,
                href: "history.html?host=%22".to_owned(),
            }],
            search: Some(Search {
                text: evil.to_owned(),
                workload: "bulk".to_owned(),
                said: evil.to_owned(),
                ..Search::default()
            }),
        };
        let page = index(&of);
        assert!(!page.contains("<script>alert"), "{page}");
        assert!(!page.contains('\u{202e}'));
        assert!(page.contains("<option selected>bulk</option>"));
        assert_eq!(
            page.matches("type=\"radio\"").count(),
            2,
            "of the run alone"
        );
        assert!(page.contains("<a href=\"3f00c0de.html\">3f00c0de</a>"));
        assert!(page.contains("look at 1 of them"));
        of.search = None;
        let file = index(&of);
        assert!(!file.contains("<form"), "{file}");
        assert!(index(&Index::default()).contains("Nothing is kept"));
    }
}

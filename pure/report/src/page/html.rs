//! A page as one HTML file.

use super::{Page, Picture, Section, data, drawing, inert, style};
use crate::words::Table;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The chart library: uPlot 1.6.32, unchanged (MIT, see its LICENSE beside it).
const LIBRARY: &str = include_str!("../../vendor/uplot/uPlot.iife.min.js");
const LIBRARY_STYLE: &str = include_str!("../../vendor/uplot/uPlot.min.css");
const SCRIPT: &str = include_str!("zoom.js");
/// Takes captures to the server, in the list that it serves.
pub(crate) const DROP: &str = include_str!("drop.js");
const STYLE: &str = include_str!("page.css");

/// What any page may do: nothing in it asks a network for anything, and the only scripts and styles that run are those
/// whose hashes are named here (Content Security Policy Level 3, 8.2). A page that is served may ask its server by a
/// form or a script, one that is a file has nobody to ask.
pub fn policy(served: bool) -> String {
    let (asks, scripts): (_, &[&str]) = match served {
        true => ("'self'", &[LIBRARY, SCRIPT, DROP]),
        false => ("'none'", &[LIBRARY, SCRIPT]),
    };
    format!(
        "default-src 'none'; script-src {}; style-src {}; img-src data: blob:; base-uri 'none'; connect-src {asks}; form-action {asks}",
        hashes(scripts),
        hashes(&[&of_page(), &style::of_pictures(), LIBRARY_STYLE])
    )
}

fn of_page() -> String {
    style::variables() + STYLE
}

/// A whole document: the same head for every page, and what is in its body.
pub(crate) fn document(title: &str, served: bool, body: impl FnOnce(&mut String)) -> String {
    let (policy, title) = (policy(served), inert(title));
    let (of_page, of_pictures) = (of_page(), style::of_pictures());
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
        <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
        <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
        <meta name=\"color-scheme\" content=\"light dark\">\n\
        <meta name=\"generator\" content=\"linerate\">\n\
        <title>{title}</title>\n<link rel=\"icon\" href=\"data:,\">\n\
        <style>{LIBRARY_STYLE}</style>\n<style>{of_page}</style>\n<style id=\"of-pictures\">{of_pictures}</style>\n\
        </head>\n<body>\n"
    );
    body(&mut out);
    out.push_str("</body>\n</html>\n");
    out
}

/// The whole file.
pub fn html(page: &Page) -> String {
    let mut out = format!("<main>\n<h1>{}</h1>\n", inert(&page.title));
    if !page.figures.is_empty() {
        out.push_str("<ul class=\"figures\">\n");
        for figure in &page.figures {
            let (label, value, note) = (
                inert(&figure.label),
                inert(&figure.value),
                phrase(&figure.note),
            );
            let _ = writeln!(
                out,
                "<li>{label} <strong>{value}</strong> <small>{note}</small></li>"
            );
        }
        out.push_str("</ul>\n");
    }
    if !page.verdict.is_empty() {
        out.push_str("<div class=\"verdict\">\n");
        page.verdict
            .iter()
            .for_each(|sentence| paragraph(&mut out, "", sentence));
        out.push_str("</div>\n");
    }
    if !page.facts.is_empty() {
        out.push_str("<dl>\n");
        for (name, value) in &page.facts {
            let (name, value) = (inert(name), linked(value, &page.links));
            let _ = writeln!(out, "<dt>{name}</dt><dd>{value}</dd>");
        }
        out.push_str("</dl>\n");
    }
    for (n, section) in page.sections.iter().enumerate() {
        self::section(&mut out, n, section, &page.links);
    }
    out.push_str("</main>\n");
    let figures = data_of(page);
    if !figures.is_empty() {
        // A string of JSON may write any character by its number (RFC 8259, 7), so nothing in it can end the element.
        let json = Value::from(figures).to_string().replace('<', "\\u003c");
        let _ = write!(
            out,
            "<script type=\"application/json\" id=\"data\">{json}</script>\n\
            <script>{LIBRARY}</script>\n<script>{SCRIPT}</script>\n"
        );
    }
    document(&page.title, false, |body| body.push_str(&out))
}

fn data_of(page: &Page) -> Map<String, Value> {
    let pictures = page.sections.iter().flat_map(|section| &section.pictures);
    pictures
        .map(|picture| (picture.id.clone(), data::data(picture)))
        .collect()
}

fn hashes(parts: &[&str]) -> String {
    let parts = parts.iter().map(|part| {
        format!(
            "'sha256-{}'",
            STANDARD.encode(Sha256::digest(part.as_bytes()))
        )
    });
    parts.collect::<Vec<_>>().join(" ")
}

fn paragraph(out: &mut String, class: &str, text: &str) {
    let _ = match class {
        "" => writeln!(out, "<p>{}</p>", phrase(text)),
        class => writeln!(out, "<p class=\"{class}\">{}</p>", phrase(text)),
    };
}

/// What the units of figures begin with or are.
const UNITS: [&str; 18] = [
    "%", "s", "ms", "us", "ns", "min", "h", "B", "KiB", "MiB", "GiB", "bytes", "bit/s", "kbit/s",
    "Mbit/s", "Gbit/s", "times", "x",
];

/// Text in which no line ends between a number and its unit.
fn phrase(text: &str) -> String {
    let is_number = |word: &str| word.ends_with(|c: char| c.is_ascii_digit());
    let is_unit = |word: &str| UNITS.contains(&word.trim_end_matches(['.', ',', ';', ':', ')']));
    let mut out = String::new();
    let mut words = text.split(' ').peekable();
    while let Some(word) = words.next() {
        let space = if out.is_empty() { "" } else { " " };
        let _ = match words.next_if(|next| is_number(word) && is_unit(next)) {
            Some(unit) => write!(
                out,
                "{space}<span class=\"q\">{} {}</span>",
                inert(word),
                inert(unit)
            ),
            None => write!(out, "{space}{}", inert(word)),
        };
    }
    out
}

/// The text, as a link if it names something with an address.
fn linked(text: &str, links: &BTreeMap<String, String>) -> String {
    match links.get(text) {
        Some(href) => format!("<a href=\"{}\">{}</a>", inert(href), phrase(text)),
        None => phrase(text),
    }
}

fn section(out: &mut String, n: usize, section: &Section, links: &BTreeMap<String, String>) {
    let heading = inert(&section.heading);
    let end = match section.folded {
        true => {
            let _ = writeln!(
                out,
                "<details data-part=\"{n}\">\n<summary><h2>{heading}</h2></summary>"
            );
            "</details>\n"
        }
        false => {
            let _ = writeln!(out, "<section data-part=\"{n}\">\n<h2>{heading}</h2>");
            "</section>\n"
        }
    };
    section
        .words
        .iter()
        .for_each(|words| paragraph(out, "", words));
    section
        .pictures
        .iter()
        .for_each(|picture| figure(out, picture));
    section.tables.iter().for_each(|one| table(out, one, links));
    if !section.listing.is_empty() {
        let _ = writeln!(out, "<pre tabindex=\"0\">{}</pre>", inert(&section.listing));
    }
    out.push_str(end);
}

/// It scrolls in a box of its own where the window is too narrow or the table too long.
fn table(out: &mut String, table: &Table, links: &BTreeMap<String, String>) {
    let row = |tag: &str, cells: &[String]| {
        let cells = cells.iter().map(|cell| {
            // Two spaces make a row a part of the one above it.
            let class = if cell.starts_with("  ") {
                " class=\"part\""
            } else {
                ""
            };
            format!(
                "<{tag}{class}>{}</{}>",
                linked(cell.trim(), links),
                &tag[..2]
            )
        });
        format!("<tr>{}</tr>\n", cells.collect::<String>())
    };
    out.push_str("<div class=\"wide\" tabindex=\"0\">\n<table>\n");
    if !table.head.is_empty() {
        let _ = writeln!(
            out,
            "<thead>{}</thead>",
            row("th scope=\"col\"", &table.head)
        );
    }
    out.push_str("<tbody>\n");
    out.extend(table.rows.iter().map(|cells| row("td", cells)));
    out.push_str("</tbody>\n</table>\n</div>\n");
}

fn figure(out: &mut String, picture: &Picture) {
    let (id, title) = (inert(&picture.id), inert(&picture.title));
    let _ = writeln!(out, "<figure id=\"{id}\">\n<h3>{title}</h3>");
    paragraph(out, "reading", &picture.reading);
    let _ = writeln!(
        out,
        "<div class=\"still\">{}</div>\n</figure>",
        drawing(picture)
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::{Axis, Band, Chart, Scale, Series, Stroke, csv, svg};

    const EVIL: &str = "</script><script>alert(1)</script><!--\u{202e}\u{1b}[2J\"'&";

    fn axis(label: &str, unit: &'static str, scale: Scale) -> Axis {
        Axis::new(label.to_owned(), unit, scale)
    }

    fn picture(name: &str) -> Picture {
        let series = |stroke, axis, points: &[(f64, Option<f64>)]| {
            Series::new(name.to_owned(), axis, stroke, points.to_vec())
        };
        Picture::chart(
            "example",
            name,
            name.to_owned(),
            name.to_owned(),
            Chart {
                x: axis(name, "s", Scale::FromZero),
                y: vec![
                    axis(name, "bit/s", Scale::FromZero),
                    axis(name, "B", Scale::Logarithmic),
                ],
                series: vec![
                    series(
                        Stroke::Line,
                        0,
                        &[
                            (0.0, Some(1e6)),
                            (1.0, Some(3e6)),
                            (2.0, None),
                            (3.0, Some(2e6)),
                        ],
                    ),
                    series(
                        Stroke::Steps,
                        1,
                        &[(0.0, Some(1000.0)), (2.0, Some(64000.0))],
                    ),
                    series(
                        Stroke::Reference,
                        1,
                        &[(0.0, Some(0.0)), (3.0, Some(8192.0))],
                    ),
                    series(
                        Stroke::Points,
                        0,
                        &[(0.5, Some(1.5e6)), (2.5, Some(f64::NAN))],
                    ),
                    series(Stroke::Bars, 0, &[(1.0, Some(5e5))]),
                    series(Stroke::Points, 7, &[(1.0, Some(5e5))]),
                ],
                bands: vec![Band {
                    from: 0.5,
                    to: 1.5,
                    name: name.to_owned(),
                }],
            },
        )
    }

    fn page(name: &str) -> Page {
        Page {
            figures: Vec::new(),
            streams: Vec::new(),
            links: BTreeMap::from([(name.to_owned(), name.to_owned())]),
            title: name.to_owned(),
            verdict: vec![name.to_owned()],
            facts: vec![(name.to_owned(), name.to_owned())],
            sections: vec![
                Section::new(name.to_owned())
                    .words(vec![name.to_owned()])
                    .tables([Table::new(&[name], [vec![name.to_owned()]])])
                    .listing(name.to_owned())
                    .pictures(vec![picture(name)])
                    .folded(true),
            ],
        }
    }

    #[test]
    fn the_library_is_the_one_that_was_published() {
        // The files of uPlot's release 1.6.32, as its repository has them below dist/.
        for (file, sum) in [
            (
                LIBRARY,
                "4408ace91a18b4888998171e122da65b9ab28711c30f19a6a591491c5a82caf1",
            ),
            (
                LIBRARY_STYLE,
                "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
            ),
            (
                include_str!("../../vendor/uplot/LICENSE"),
                "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
            ),
        ] {
            let found: String = Sha256::digest(file)
                .iter()
                .map(|b| format!("{b:02x}"))
                .collect();
            assert_eq!(found, sum);
        }
        assert!(LIBRARY.contains("(v1.6.32)"));
    }

    #[test]
    fn nothing_that_others_wrote_is_markup() {
        let harmless = html(&page("name"));
        let hostile = html(&page(EVIL));
        for mark in ["<script", "</script", "<!--", "<p", "<style", "<svg", "<td"] {
            let count = |text: &str| text.matches(mark).count();
            assert_eq!(count(&hostile), count(&harmless), "{mark}");
        }
        assert!(!hostile.contains(['\u{1b}', '\u{202e}']));
        let alone = svg(&picture(EVIL));
        assert!(
            !alone.contains("<script") && !alone.contains("var("),
            "{alone}"
        );
    }

    #[test]
    fn a_page_asks_nothing_of_a_network() {
        let text = html(&page("name"));
        let body = text
            .replace(LIBRARY, "")
            .replace("http://www.w3.org/2000/svg", "");
        assert!(!body.contains("http:") && !body.contains("https:") && !body.contains("//www"));
        // An attribute of style would be refused by the page's own policy.
        assert!(!body.contains(" style=\""));
        assert_eq!(text.matches("'sha256-").count(), 5);
    }

    #[test]
    fn figures_as_a_table() {
        insta::assert_snapshot!(csv(&picture("=a,\"b\"")), @r#"
        "'=a,""b"" (s)","'=a,""b"" (bit/s)","'=a,""b"" (B)","'=a,""b"" (B)","'=a,""b"" (bit/s)","'=a,""b"" (bit/s)","'=a,""b"""
        0,1000000,1000,0,,,
        0.5,,,,1500000,,
        1,3000000,,,,500000,500000
        2,,64000,,,,
        2.5,,,,NaN,,
        3,2000000,,8192,,,

        from,to,stretch
        0.5,1.5,"'=a,""b"""
        "#);
    }

    #[test]
    fn a_picture_by_the_letter() {
        insta::assert_snapshot!(drawing(&picture("name")));
    }
}

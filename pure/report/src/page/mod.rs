//! One self-contained page: words first, one picture, the rest folded. It opens from a disk, asks no network for
//! anything, and is whole without scripts; a chart library that travels inside makes its charts zoomable.

mod chart;
mod data;
mod draw;
mod html;
mod style;
mod svg;
mod text;
mod thin;
mod ticks;

pub use chart::{Axis, Band, Chart, Scale, Series, Stroke, Values};
pub use data::csv;
pub(crate) use html::{DROP, document};
pub use html::{html, policy};
pub use svg::Svg;
pub(crate) use text::sparkline;
pub use text::{PAGE_SCHEMA, json, markdown, text};
pub use ticks::quantity;
pub(crate) use ticks::{DATE, Ruler};

use crate::csv::table;
use crate::redact::Redaction;
use crate::words::{Table, is_unprintable};
use model::StreamFigures;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;

/// All that a page says. Its strings are plain text; the page escapes them.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Page {
    /// Name of the page.
    pub title: String,
    /// The figures that stand large above everything else.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub figures: Vec<KeyFigure>,
    /// The verdict or finding, a sentence each, with its interval: what a reader takes away who reads no further.
    pub verdict: Vec<String>,
    /// What was done, on what, when: names and values.
    #[serde(serialize_with = "named")]
    pub facts: Vec<(String, String)>,
    /// The rest; the first section's first picture is the one picture that is shown at once.
    pub sections: Vec<Section>,
    /// What the packets of each direction of a connection show, of a page of a capture.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub streams: Vec<StreamFigures>,
    /// Addresses of what a value or a cell of a table names, by its whole text; of a page that is served.
    #[serde(skip)]
    pub links: BTreeMap<String, String>,
}

/// A figure that is read at a glance.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KeyFigure {
    /// Of what it is.
    pub label: String,
    /// Its value with the unit; of a change both values.
    pub value: String,
    /// What belongs to it, in a few words; may be empty.
    pub note: String,
}

impl fmt::Display for KeyFigure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.label, self.value)?;
        match self.note.as_str() {
            "" => Ok(()),
            note => write!(f, " ({note})"),
        }
    }
}

impl KeyFigure {
    pub(crate) fn new(
        label: impl Into<String>,
        value: impl Into<String>,
        note: impl Into<String>,
    ) -> KeyFigure {
        KeyFigure {
            label: label.into(),
            value: value.into(),
            note: note.into(),
        }
    }
}

/// A part of a page under a heading.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Section {
    /// Its heading.
    pub heading: String,
    /// Paragraphs before the pictures.
    pub words: Vec<String>,
    /// Figures in rows and columns.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<Table>,
    /// Lines to copy, or what a terminal would show; empty if there is none.
    pub listing: String,
    /// Pictures, in order.
    pub pictures: Vec<Picture>,
    /// Closed until the reader opens it.
    #[serde(skip)]
    pub folded: bool,
}

/// A picture, what it says in words, and the figures behind it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Picture {
    /// Name for files and anchors: lower-case letters, digits and hyphens; once a page.
    pub id: String,
    /// What it is of.
    pub title: String,
    /// How to read it, in one line.
    pub reading: String,
    /// What it shows, for a reader who cannot see it.
    pub alternative: String,
    /// How it is drawn; in JSON its figures.
    #[serde(rename = "csv", serialize_with = "figures")]
    pub drawing: Drawing,
}

fn named<S: Serializer>(facts: &[(String, String)], serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Fact<'a> {
        name: &'a str,
        value: &'a str,
    }
    serializer.collect_seq(facts.iter().map(|(name, value)| Fact { name, value }))
}

fn figures<S: Serializer>(drawing: &Drawing, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&data::drawing_csv(drawing))
}

impl Page {
    /// Takes names and addresses out of everything that it says.
    pub fn redact(&mut self, redaction: &mut Redaction) {
        for (name, value) in &self.facts {
            redaction.learn(name, value);
        }
        let mut redact = |text: &mut String| *text = redaction.text(text);
        redact(&mut self.title);
        for figure in &mut self.figures {
            [&mut figure.label, &mut figure.value, &mut figure.note]
                .into_iter()
                .for_each(&mut redact);
        }
        self.verdict.iter_mut().for_each(&mut redact);
        self.facts.iter_mut().for_each(|fact| redact(&mut fact.1));
        for section in &mut self.sections {
            redact(&mut section.heading);
            section.words.iter_mut().for_each(&mut redact);
            for table in &mut section.tables {
                let cells = table.rows.iter_mut().flatten();
                table.head.iter_mut().chain(cells).for_each(&mut redact);
            }
            redact(&mut section.listing);
            for picture in &mut section.pictures {
                redact(&mut picture.title);
                redact(&mut picture.reading);
                redact(&mut picture.alternative);
                match &mut picture.drawing {
                    Drawing::Chart(chart) => {
                        chart.series.iter_mut().for_each(|s| redact(&mut s.name));
                        chart.bands.iter_mut().for_each(|b| redact(&mut b.name));
                    }
                    Drawing::Still { svg, csv } => {
                        redact(svg);
                        redact(csv);
                    }
                }
            }
        }
        for stream in &mut self.streams {
            for end in [&mut stream.sender, &mut stream.receiver] {
                end.set_ip(redaction.ip(end.ip()));
            }
        }
    }
}

impl Section {
    /// A section without content, to be shown open.
    pub(crate) fn new(heading: impl Into<String>) -> Section {
        Section {
            heading: heading.into(),
            ..Section::default()
        }
    }

    pub(crate) fn words(self, words: Vec<String>) -> Section {
        Section { words, ..self }
    }

    /// With those of the tables that have rows.
    pub(crate) fn tables(self, tables: impl IntoIterator<Item = Table>) -> Section {
        let tables = tables.into_iter().filter(|table| !table.rows.is_empty());
        Section {
            tables: tables.collect(),
            ..self
        }
    }

    pub(crate) fn listing(self, listing: String) -> Section {
        Section { listing, ..self }
    }

    pub(crate) fn pictures(self, pictures: impl IntoIterator<Item = Picture>) -> Section {
        let pictures = pictures.into_iter().collect();
        Section { pictures, ..self }
    }

    pub(crate) fn folded(self, folded: bool) -> Section {
        Section { folded, ..self }
    }
}

impl Picture {
    /// A picture by a chart.
    pub(crate) fn chart(
        id: &str,
        title: &str,
        reading: impl Into<String>,
        alternative: String,
        chart: Chart,
    ) -> Picture {
        Picture {
            id: id.to_owned(),
            title: title.to_owned(),
            reading: reading.into(),
            alternative,
            drawing: Drawing::Chart(chart),
        }
    }

    /// A picture by an SVG of its own, with its figures as a table.
    pub(crate) fn still(
        id: &str,
        title: &str,
        reading: impl Into<String>,
        alternative: String,
        svg: Svg,
        columns: &[impl AsRef<str>],
        rows: Vec<Vec<String>>,
    ) -> Picture {
        let (svg, csv) = (svg.finish(title, &alternative), table(columns, rows));
        Picture {
            id: id.to_owned(),
            title: title.to_owned(),
            reading: reading.into(),
            alternative,
            drawing: Drawing::Still { svg, csv },
        }
    }
}

/// A picture's drawing.
#[derive(Clone, Debug, PartialEq)]
pub enum Drawing {
    /// Series over an axis: SVG, CSV and what the chart library needs come of the one description.
    Chart(Chart),
    /// Anything else.
    Still {
        /// A whole `<svg>` element with a `viewBox`, coloured by the page's classes alone.
        svg: String,
        /// The figures in it, as CSV with a header line.
        csv: String,
    },
}

/// A picture as a file of its own, in the colours of a light page.
pub fn svg(picture: &Picture) -> String {
    let drawn = drawing(picture);
    let (head, body) = drawn.split_once('>').unwrap_or((&drawn, ""));
    format!(
        "{head}><style>{}</style><rect width=\"100%\" height=\"100%\" class=\"ground\"/>{body}\n",
        style::of_files()
    )
}

/// The `<svg>` element of a picture.
fn drawing(picture: &Picture) -> String {
    match &picture.drawing {
        Drawing::Chart(chart) => draw::chart(chart, &picture.title, &picture.alternative),
        Drawing::Still { svg, .. } => svg.clone(),
    }
}

/// All stretches of one name: a row above the plot, so that names have room and colour is not needed.
struct Lane {
    name: String,
    /// Which series' colour it has: by the name alone, so that it is the same everywhere. The limits that are met most
    /// differ from each other.
    colour: u32,
    spans: Vec<(f64, f64)>,
}

/// In the order in which the names appear.
fn lanes(bands: &[Band]) -> Vec<Lane> {
    let mut lanes: Vec<Lane> = Vec::new();
    for Band { from, to, name } in bands {
        if let Some(lane) = lanes.iter_mut().find(|lane| lane.name == *name) {
            lane.spans.push((*from, *to));
            continue;
        }
        let hash = |sum, byte| (sum * 47 + u32::from(byte)) % 1009;
        lanes.push(Lane {
            name: name.clone(),
            colour: name.bytes().fold(0, hash) % 8,
            spans: vec![(*from, *to)],
        });
    }
    lanes
}

/// Text for HTML and XML. Control characters, which neither can hold, and those that make text read as another are
/// written out.
pub(crate) fn inert(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    push_inert(&mut out, text);
    out
}

/// Appends what [`inert`] makes of a text.
pub(crate) fn push_inert(out: &mut String, mut text: &str) {
    let stays = |byte: u8| {
        matches!(byte, b' '..=b'~' | b'\n') && !matches!(byte, b'&' | b'<' | b'>' | b'"' | b'\'')
    };
    if text.bytes().all(stays) {
        out.push_str(text);
        return;
    }
    let changes = |c: char| match u8::try_from(c) {
        Ok(byte) if byte.is_ascii() => !stays(byte),
        _ => is_unprintable(c),
    };
    while let Some(at) = text.find(changes) {
        let (plain, rest) = text.split_at(at);
        let mut rest = rest.chars();
        out.push_str(plain);
        match rest.next() {
            Some('&') => out.push_str("&amp;"),
            Some('<') => out.push_str("&lt;"),
            Some('>') => out.push_str("&gt;"),
            Some('"') => out.push_str("&quot;"),
            Some('\'') => out.push_str("&#39;"),
            c => out.extend(c.into_iter().flat_map(char::escape_default)),
        }
        text = rest.as_str();
    }
    out.push_str(text);
}

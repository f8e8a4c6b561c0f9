//! One self-contained page: words first, one picture, the rest folded. It opens from a disk, asks no network for
//! anything, and is whole without scripts; a chart library that travels inside makes its charts zoomable.

mod chart;

pub use chart::{Axis, Band, Chart, Scale, Series, Stroke};

/// All that a page says. Its strings are plain text; the page escapes them.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    /// Name of the page.
    pub title: String,
    /// The verdict or finding, a sentence each, with its interval: what a reader takes away who reads no further.
    pub verdict: Vec<String>,
    /// What was done, on what, when: names and values.
    pub facts: Vec<(String, String)>,
    /// The rest; the first section's first picture is the one picture that is shown at once.
    pub sections: Vec<Section>,
}

/// A part of a page under a heading.
#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    /// Its heading.
    pub heading: String,
    /// Paragraphs before the pictures.
    pub words: Vec<String>,
    /// What a terminal would show, in its own lines and columns; empty if there is none.
    pub listing: String,
    /// Pictures, in order.
    pub pictures: Vec<Picture>,
    /// Closed until the reader opens it.
    pub folded: bool,
}

/// A picture, what it says in words, and the figures behind it.
#[derive(Clone, Debug, PartialEq)]
pub struct Picture {
    /// Name for files and anchors: lower-case letters, digits and hyphens; once a page.
    pub id: String,
    /// What it is of.
    pub title: String,
    /// How to read it, in one line.
    pub reading: String,
    /// What it shows, for a reader who cannot see it.
    pub alternative: String,
    /// How it is drawn.
    pub drawing: Drawing,
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

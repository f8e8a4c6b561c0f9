//! The JSON forms: a whole run, and one line an event while it runs. `docs/json.md` is their manual.

use crate::words::is_unprintable;
use model::{Direction, Ended, Fingerprint, Leg, Nanos, Run, Sample, Side, Spec, Summary, Warning};
use serde::Serialize;
use serde_json::Value;
use std::fmt::Write as _;

/// A run as one document over several lines: the fields of [`Run`], and its [`Summary`] under `summary`.
pub fn run(run: &Run, summary: &Summary) -> String {
    #[derive(Serialize)]
    struct Document<'a> {
        #[serde(flatten)]
        run: &'a Run,
        summary: &'a Summary,
    }
    pretty(&Document { run, summary })
}

/// Any document over several lines, the way that [`run`] prints; ends with a line feed.
pub fn pretty(document: &impl Serialize) -> String {
    let mut text = serde_json::to_string_pretty(document).expect(NEVER_FAILS);
    text.push('\n');
    inert(&text)
}

/// One line of `--json-stream`.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Line<'a> {
    /// The first line: the run as it is known before it starts.
    Start {
        /// Version of the form.
        schema: u32,
        /// Name in the archive.
        id: &'a str,
        /// Since 1970-01-01 UTC.
        started_unix_ns: Nanos,
        /// The other host as the user named it.
        host: &'a str,
        /// A note of the user.
        #[serde(skip_serializing_if = "Option::is_none")]
        title: Option<&'a str>,
        /// What was asked.
        spec: &'a Spec,
    },
    /// Both ends are known.
    Hosts {
        /// The host of the command.
        near: &'a Fingerprint,
        /// The other host; null if it cannot tell.
        far: Option<&'a Fingerprint>,
    },
    /// A leg begins.
    LegStarted {
        /// Position in the run.
        leg: usize,
        /// Which way.
        direction: Direction,
    },
    /// An end took a sample.
    Sample {
        /// Position of the leg in the run.
        leg: usize,
        /// The end.
        side: Side,
        /// What it saw.
        sample: &'a Sample,
    },
    /// A leg is over.
    LegEnded {
        /// Position in the run.
        leg: usize,
        /// All of it but the samples, see [`without_samples`].
        record: Value,
    },
    /// A doubt that the user should see at once.
    Warning {
        /// The doubt.
        warning: &'a Warning,
    },
    /// Something is waited for.
    Waiting {
        /// What, in words.
        #[serde(rename = "for")]
        what: &'a str,
    },
    /// The last line.
    End {
        /// Name in the archive.
        id: &'a str,
        /// How the run ended.
        ended: &'a Ended,
        /// The figures.
        summary: &'a Summary,
    },
}

impl<'a> Line<'a> {
    /// The first line, from a run whose legs are still to come.
    pub fn start(run: &'a Run) -> Line<'a> {
        Line::Start {
            schema: run.schema,
            id: &run.id,
            started_unix_ns: run.started,
            host: &run.host,
            title: run.title.as_deref(),
            spec: &run.spec,
        }
    }

    /// A leg is over; its samples were lines of their own.
    pub fn leg_ended(index: usize, leg: &Leg) -> Line<'a> {
        Line::LegEnded {
            leg: index,
            record: without_samples(leg),
        }
    }

    /// The last line, from the finished run.
    pub fn end(run: &'a Run, summary: &'a Summary) -> Line<'a> {
        Line::End {
            id: &run.id,
            ended: &run.ended,
            summary,
        }
    }

    /// The document on one line, line feed included.
    pub fn print(&self) -> String {
        let mut text = serde_json::to_string(self).expect(NEVER_FAILS);
        text.push('\n');
        inert(&text)
    }
}

/// A leg without the samples of its ends.
fn without_samples(leg: &Leg) -> Value {
    let mut record = serde_json::to_value(leg).expect(NEVER_FAILS);
    for side in ["near", "far"] {
        if let Some(end) = record[side].as_object_mut() {
            end.remove("samples");
        }
    }
    record
}

const NEVER_FAILS: &str = "the nouns have string keys and no serialiser that fails";

/// JSON escapes C0 only; a terminal also obeys C1, and a person the invisible. Both can occur inside
/// strings alone, so writing them as `\uXXXX` keeps the document the same.
fn inert(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c != '\n' && is_unprintable(c) {
            let mut units = [0u16; 2];
            for unit in c.encode_utf16(&mut units) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        } else {
            out.push(c);
        }
    }
    out
}

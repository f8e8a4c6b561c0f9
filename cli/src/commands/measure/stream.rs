//! A run as it happens, in lines of JSON. A reader that is gone does not stop the measurement: the archive keeps it.

use crate::prelude::*;
use engine::progress::Watcher;
use model::{Rows, Sample};
use report::json;
use std::collections::BTreeMap;

/// An object for each event; the last one is printed with the result.
pub struct JsonLines;

impl JsonLines {
    pub fn begin(run: &Run) -> JsonLines {
        let _ = out::print(&json::start(run));
        JsonLines
    }
}

impl Watcher for JsonLines {
    fn event(&mut self, event: &Event<'_>) {
        if let Some(line) = json::event(event) {
            let _ = out::print(&line);
        }
    }
}

/// The lines of iperf3's `--json-stream`: the start and each local row; the end is printed with the result.
pub struct Iperf3Lines {
    spec: Spec,
    legs: BTreeMap<usize, LegProgress>,
}

/// The last row of a leg, and the samples since.
struct LegProgress {
    direction: Direction,
    rows: Rows,
    before: Option<Sample>,
    last: Option<Sample>,
}

impl Iperf3Lines {
    pub fn begin(run: &Run) -> Iperf3Lines {
        let _ = out::print(&report::iperf3::stream_start(run));
        Iperf3Lines {
            spec: run.spec.clone(),
            legs: BTreeMap::new(),
        }
    }

    /// Prints the row that the last sample ends.
    fn row(&mut self, index: usize) {
        let Some(leg) = self.legs.get_mut(&index) else {
            return;
        };
        let Some(sample) = leg.last.take() else {
            return;
        };
        if let Some(before) = leg.before.replace(sample.clone()) {
            let (spec, second) = (&self.spec, index > 0);
            let line =
                report::iperf3::stream_interval(spec, leg.direction, second, &before, &sample);
            let _ = out::print(&line);
        }
    }
}

impl Watcher for Iperf3Lines {
    fn event(&mut self, event: &Event<'_>) {
        match *event {
            Event::LegStarted { index, direction } => {
                let leg = LegProgress {
                    direction,
                    rows: Rows::new(self.spec.interval),
                    before: None,
                    last: None,
                };
                self.legs.insert(index, leg);
            }
            Event::Sample {
                index,
                side: Side::Local,
                sample,
            } => {
                let Some(leg) = self.legs.get_mut(&index) else {
                    return;
                };
                leg.last = Some(sample.clone());
                if leg.rows.ends(sample.at) || leg.before.is_none() {
                    self.row(index);
                }
            }
            Event::LegEnded { index, .. } => self.row(index),
            _ => {}
        }
    }
}

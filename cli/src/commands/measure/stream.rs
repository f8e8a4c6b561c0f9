//! A run as it happens, in lines of JSON. A reader that is gone does not stop the measurement: the archive keeps it.

use crate::out;
use engine::progress::{Event, Watcher};
use model::{Direction, Run, Sample, Side, Spec};
use report::json;
use std::collections::BTreeMap;

/// An object for each event; the last one is printed with the result.
pub struct JsonLines;

impl JsonLines {
    /// Prints the first line.
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

/// The lines of iperf3's `--json-stream`: the start and each local interval; the end is printed with the result.
pub struct Iperf3Lines {
    spec: Spec,
    legs: BTreeMap<usize, (Direction, Option<Sample>)>,
}

impl Iperf3Lines {
    /// Prints the first line.
    pub fn begin(run: &Run) -> Iperf3Lines {
        let _ = out::print(&report::iperf3::stream_start(run));
        Iperf3Lines {
            spec: run.spec.clone(),
            legs: BTreeMap::new(),
        }
    }
}

impl Watcher for Iperf3Lines {
    fn event(&mut self, event: &Event<'_>) {
        match *event {
            Event::LegStarted { index, direction } => {
                self.legs.insert(index, (direction, None));
            }
            Event::Sample {
                index,
                side: Side::Near,
                sample,
            } => {
                let Some((direction, last)) = self.legs.get_mut(&index) else {
                    return;
                };
                if let Some(before) = last.replace(sample.clone()) {
                    let (spec, second) = (&self.spec, index > 0);
                    let _ = out::print(&report::iperf3::stream_interval(
                        spec, *direction, second, &before, sample,
                    ));
                }
            }
            _ => {}
        }
    }
}

//! A run as it happens, in the lines of iperf3's `--json-stream`.

use crate::out;
use engine::progress::{Event, Watcher};
use model::{Direction, Run, Sample, Side, Spec};
use std::collections::BTreeMap;

/// Prints a line for the start and one for each interval of the near end; the end is printed with
/// the result.
pub struct Stream {
    spec: Spec,
    legs: BTreeMap<usize, (Direction, Option<Sample>)>,
}

impl Stream {
    /// Prints the first line.
    pub fn begin(run: &Run) -> Stream {
        line(&report::iperf3::stream_start(run));
        Stream {
            spec: run.spec.clone(),
            legs: BTreeMap::new(),
        }
    }
}

impl Watcher for Stream {
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
                if let Some((direction, before)) = self.legs.get_mut(&index) {
                    if let Some(before) = &before {
                        line(&report::iperf3::stream_interval(
                            &self.spec,
                            *direction,
                            index > 0,
                            before,
                            sample,
                        ));
                    }
                    *before = Some(sample.clone());
                }
            }
            _ => {}
        }
    }
}

/// A reader that is gone does not stop the measurement: the archive keeps it.
fn line(text: &str) {
    let _ = out::print(text);
}

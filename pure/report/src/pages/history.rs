//! The history of a path: what runs of one kind found on it, the oldest first, and where to look.

use super::facts;
use crate::page::{
    Axis, Band, Chart, DATE, KeyFigure, Page, Picture, Scale, Section, Series, Stroke,
};
use crate::prove::phrase::{base_unit, metric_words, value};
use crate::tune::up_to;
use crate::words::{Table, counted, escape, minute, shown};
use model::{Direction, Metric, Nanos, RunId};
use serde::{Deserialize, Serialize};

/// What runs of one workload found in one direction between two hosts.
#[derive(Clone, Debug, PartialEq)]
pub struct History {
    /// The remote host as the user named it.
    pub host: String,
    /// Name of the host that measured.
    pub local: String,
    /// Kind of the workload, and what else makes runs alike: `bulk, 10.0 s, 4 streams`.
    pub workload: String,
    /// Which way.
    pub direction: Direction,
    /// What is shown of each run; `None`: the path MTU.
    pub metric: Option<Metric>,
    /// The runs, the oldest first.
    pub runs: Vec<Past>,
    /// Where the level changes, in order.
    pub shifts: Vec<Shift>,
}

/// A run of a history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Past {
    /// Name in the archive.
    pub id: RunId,
    /// Start, since 1970-01-01 UTC.
    pub started: Nanos,
    /// The metric, in bit/s or seconds; the MTU in bytes.
    pub value: f64,
}

/// A change of level.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shift {
    /// Position of the first run at the new level.
    pub at: usize,
    /// Median before, back to the shift before.
    pub before: f64,
    /// Median from here to the next shift.
    pub after: f64,
}

/// Fewer runs than these show no change at the level that is asked for.
const LEAST: usize = 14;

impl History {
    /// Of what it is.
    pub fn name(&self) -> String {
        let way = up_to(self.direction);
        let (local, host) = (escape(&self.local), escape(&self.host));
        format!("{} of {local} {way} {host}", self.workload)
    }

    /// What a run of it found.
    pub fn value(&self, run: &Past) -> String {
        self.shown(Some(run.value))
    }

    fn shown(&self, figure: Option<f64>) -> String {
        match (self.metric, figure) {
            (Some(metric), _) => value(metric, figure),
            (None, Some(size)) => format!("{size:.0} bytes"),
            (None, None) => "-".to_owned(),
        }
    }

    /// What is shown, and its unit.
    fn axis(&self) -> (&'static str, &'static str) {
        let of = |metric| (metric_words(metric), base_unit(metric));
        self.metric.map_or(("path MTU", "B"), of)
    }

    /// Where to look, a sentence each.
    fn sentences(&self) -> Vec<String> {
        let runs = self.runs.len();
        match (self.shifts.is_empty(), runs) {
            (_, 0) => return vec!["Nothing was measured yet.".to_owned()],
            (true, ..LEAST) => {
                return vec![format!(
                    "Change-point detection needs {LEAST} runs (have {runs})."
                )];
            }
            (true, _) => return vec![format!("No change of level in {runs} runs.")],
            (false, _) => {}
        }
        let shifts = self.shifts.iter().filter_map(|shift| {
            let last = self.runs.get(shift.at.checked_sub(1)?)?;
            let first = self.runs.get(shift.at)?;
            let change = 100.0 * (shift.after / shift.before - 1.0);
            Some(format!(
                "Change of level: about {} until {} (run {}), about {} from {} (run {}): {change:+.0} %.",
                self.shown(Some(shift.before)),
                minute(last.started),
                shown(&last.id),
                self.shown(Some(shift.after)),
                minute(first.started),
                shown(&first.id),
            ))
        });
        let caveat = "That is where to look, and no verdict: runs of different days differ in more than one thing. \
                      'linerate diff' sets two of them side by side, 'linerate prove' tests whether a change helps.";
        shifts.chain([caveat.to_owned()]).collect()
    }

    fn picture(&self) -> Picture {
        let (label, unit) = self.axis();
        let start = |at: usize| self.runs.get(at).map(|run| run.started.as_secs_f64());
        let starts = [0].into_iter().chain(self.shifts.iter().map(|s| s.at));
        let first = self.shifts.first().map(|s| s.before);
        let levels = first.into_iter().chain(self.shifts.iter().map(|s| s.after));
        let steps = starts.zip(levels);
        let steps = steps.filter_map(|(at, level)| Some((start(at)?, Some(level))));
        let mut steps: Vec<(f64, Option<f64>)> = steps.collect();
        let end = steps
            .last()
            .and_then(|(_, level)| Some((start(self.runs.len() - 1)?, *level)));
        steps.extend(end);
        let marks = self.runs.iter();
        let marks = marks.map(|run| (run.started.as_secs_f64(), Some(run.value)));
        let marks: Vec<(f64, Option<f64>)> = marks.collect();
        let mut series = vec![
            Series::new(label, 0, Stroke::Points, marks.clone()),
            Series::new("run to run", 0, Stroke::Line, marks),
        ];
        if !steps.is_empty() {
            series.push(Series::new("median of a level", 0, Stroke::Steps, steps));
        }
        let bands = self.shifts.iter().filter_map(|shift| {
            let worse = (shift.after < shift.before) != self.metric.is_some_and(Metric::is_time);
            Some(Band {
                from: start(shift.at.checked_sub(1)?)?,
                to: start(shift.at)?,
                name: if worse { "regression" } else { "improvement" }.to_owned(),
            })
        });
        let x = Axis::new("start of the run (UTC)", DATE, Scale::Fitted);
        let y = Axis::new(label, unit, Scale::FromZero);
        Picture::chart(
            "history",
            "Run by run",
            "Each mark is a run. A strip 'regression' or 'improvement' lies between the last run of one level and the \
             first of the next.",
            self.sentences().join(" "),
            Chart::new(x, vec![y], series, bands.collect()),
        )
    }

    fn table(&self) -> Table {
        let rows = self.runs.iter().enumerate().map(|(at, run)| {
            let is_first = self.shifts.iter().any(|shift| shift.at == at);
            vec![
                if is_first { ">" } else { "" }.to_owned(),
                shown(&run.id),
                minute(run.started),
                self.shown(Some(run.value)),
            ]
        });
        let head = ["", "run", "started (UTC)", self.axis().0];
        Table::new(&head, rows)
    }
}

/// The last run, and the median of all.
fn key_figures(history: &History) -> Vec<KeyFigure> {
    let mut values: Vec<f64> = history.runs.iter().map(|run| run.value).collect();
    values.sort_by(f64::total_cmp);
    let Some(last) = history.runs.last() else {
        return Vec::new();
    };
    let median = values.get(values.len() / 2).copied();
    vec![
        KeyFigure::new(
            "last",
            history.shown(Some(last.value)),
            minute(last.started),
        ),
        KeyFigure::new(
            "median",
            history.shown(median),
            format!("of {}", counted(values.len() as u64, "run")),
        ),
    ]
}

/// The page of a history.
pub fn history(history: &History) -> Page {
    let start = |run: Option<&Past>| run.map(|run| minute(run.started)).unwrap_or_default();
    let mut page = Page {
        title: format!("History: {}", history.name()),
        verdict: history.sentences(),
        facts: facts([
            ("Host", escape(&history.host)),
            ("Runs", history.runs.len().to_string()),
            ("First", start(history.runs.first())),
            ("Last", start(history.runs.last())),
        ]),
        sections: vec![
            Section::new("Over time").pictures(vec![history.picture()]),
            Section::new("The runs")
                .words(vec!["A mark > is the first run at a new level.".to_owned()])
                .tables([history.table()])
                .folded(true),
            Section::new("How it is found")
                .words(vec![HOW.to_owned()])
                .folded(true),
        ],
        figures: key_figures(history),
        ..Page::default()
    };
    if history.runs.is_empty() {
        page.sections.clear();
        page.facts.truncate(1);
    }
    page
}

const HOW: &str = "Circular binary segmentation (Olshen and others 2004) of the ranks, answered by permutation: \
    ranks alone count, so single odd runs do not. Where the level never changes and runs do not depend on each other, \
    a place is marked in one history of a hundred at most; a slow drift is marked too. Runs of experiments are left \
    out, since their settings were changed on purpose.";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::Drawing;

    fn past(values: &[f64]) -> History {
        let run = |(n, value): (usize, &f64)| Past {
            id: format!("{n:08x}"),
            started: Nanos::from_secs(1_795_132_800 + 3600 * n as u64),
            value: *value,
        };
        History {
            host: "db\x1b[2J2".to_owned(),
            local: "web1".to_owned(),
            workload: "bulk".to_owned(),
            direction: Direction::Up,
            metric: Some(Metric::Goodput),
            runs: values.iter().enumerate().map(run).collect(),
            shifts: Vec::new(),
        }
    }

    #[test]
    fn a_shift_is_a_place_to_look_at() {
        let mut of = past(&[941e6, 940e6, 622e6, 620e6]);
        of.shifts = vec![Shift {
            at: 2,
            before: 940.2e6,
            after: 621e6,
        }];
        let page = history(&of);
        assert_eq!(
            page.verdict[0],
            "Change of level: about 940 Mbit/s until 2026-11-20 01:00 (run 00000001), \
             about 621 Mbit/s from 2026-11-20 02:00 (run 00000002): -34 %."
        );
        assert!(page.verdict[1].contains("no verdict"));
        let Drawing::Chart(chart) = &page.sections[0].pictures[0].drawing else {
            panic!("a chart");
        };
        assert_eq!(chart.series[0].points.len(), 4);
        let at = |n: usize| of.runs[n].started.as_secs_f64();
        assert_eq!(
            chart.series[2].points,
            [
                (at(0), Some(940.2e6)),
                (at(2), Some(621e6)),
                (at(3), Some(621e6))
            ]
        );
        assert_eq!((chart.bands[0].from, chart.bands[0].to), (at(1), at(2)));
        assert_eq!(chart.bands[0].name, "regression");
        assert!(
            page.sections[1].tables[0].rows[2][..2] == [">", "00000002"],
            "{}",
            page.sections[1].tables[0]
        );
        assert!(!page.title.contains('\x1b'));
    }

    #[test]
    fn nothing_found_is_not_the_same_as_too_few() {
        assert!(history(&past(&[1e9; 4])).verdict[0].contains("needs 14 runs (have 4)"));
        let many = history(&past(&[1e9; 14]));
        assert_eq!(many.verdict, ["No change of level in 14 runs."]);
        let Drawing::Chart(chart) = &many.sections[0].pictures[0].drawing else {
            panic!("a chart");
        };
        assert_eq!((chart.series.len(), chart.bands.len()), (2, 0));
    }
}

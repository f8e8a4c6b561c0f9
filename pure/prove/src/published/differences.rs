//! Tables with a difference a row: two settings, a value of each, and what the author made of them.

use super::table::{Printed, Row, Table};
use super::units::{trap, unit_of};
use super::{Error, Found, and, doubt, percent};
use model::{About, Doubt, Outcome, PublishedComparison, Statistics};

/// A row, derived again.
struct Difference {
    table: String,
    operation: String,
    settings: [String; 2],
    values: [Printed; 2],
    share: f64,
    printed: Option<Printed>,
}

pub(super) fn of_table(table: &Table) -> Result<Found, Error> {
    let value = |side: &'static str| {
        table.starting(side).ok_or_else(|| Error::UnknownColumns {
            found: table.header().join(", "),
        })
    };
    let columns = [value("value_a")?, value("value_b")?];
    let units = columns.map(unit_of);
    let all: Vec<Difference> = table
        .rows()
        .iter()
        .map(|row| difference(table, row, columns))
        .collect::<Result<_, _>>()?;

    let mut doubts = wrong(&all);
    doubts.push(doubt(
        About::OneRun,
        "Each value is one figure without a spread: no interval exists, so no row can be judged, whatever its difference.",
    ));
    if units[0].in_bytes != units[1].in_bytes {
        let words = format!(
            "One side is in {}, the other in {}.",
            units[0].name, units[1].name
        );
        doubts.push(doubt(About::Units, words));
    }
    for d in &all {
        if let Some(words) = trap(1.0 + d.share) {
            doubts.push(doubt(About::Units, format!("{}: {words}.", d.name())));
        }
    }
    doubts.extend(other_controls(&all, units[0].name));

    let comparisons = all.iter().map(|d| PublishedComparison {
        of: d.name(),
        control: d.settings[0].clone(),
        arm: d.settings[1].clone(),
        runs: [1, 1],
        control_value: d.values[0].value,
        arm_value: d.values[1].value,
        unit: units[0].name.to_owned(),
        change_share: Some(d.share),
        printed_share: d.printed.map(|p| p.value / 100.0),
        estimate: None,
        paired: false,
        outcome: Outcome::NoVerdict,
    });
    let statistics = all.iter().flat_map(|d| {
        [0, 1].map(|side| Statistics {
            of: d.name(),
            arm: d.settings[side].clone(),
            average: Some(d.values[side].value),
            ..Statistics::default()
        })
    });
    Ok(Found {
        comparisons: comparisons.collect(),
        statistics: statistics.collect(),
        doubts,
    })
}

fn difference(table: &Table, row: &Row, columns: [&str; 2]) -> Result<Difference, Error> {
    let values = [
        table.amount(row, columns[0])?,
        table.amount(row, columns[1])?,
    ];
    if values[0].value == 0.0 {
        return Err(Error::NothingToCompare(format!(
            "line {}: nothing can be compared with 0",
            row.line
        )));
    }
    let printed = match table.starting("printed_difference") {
        Some(column) if !table.text(row, column).is_empty() => Some(table.number(row, column)?),
        _ => None,
    };
    Ok(Difference {
        table: table.text(row, "table").to_owned(),
        operation: table.text(row, "operation").to_owned(),
        settings: ["setting_a", "setting_b"].map(|column| table.text(row, column).to_owned()),
        values,
        share: values[1].value / values[0].value - 1.0,
        printed,
    })
}

impl Difference {
    fn name(&self) -> String {
        match (self.table.as_str(), self.operation.as_str()) {
            ("", operation) => operation.to_owned(),
            (table, "") => format!("table {table}"),
            (table, operation) => format!("table {table}, {operation}"),
        }
    }

    /// The printed difference of another row is that of these values, but for rounding.
    fn explains(&self, printed: Printed) -> bool {
        let [a, b] = self.values;
        let rounding =
            (1.0 + self.share) * (a.half / a.value + b.half / b.value.max(f64::MIN_POSITIVE));
        (printed.value - 100.0 * self.share).abs() <= 100.0 * rounding + printed.half
    }

    fn is_right(&self) -> bool {
        self.printed.is_none_or(|printed| self.explains(printed))
    }
}

/// Rows whose printed difference is not that of their values: of each other, or of none.
fn wrong(all: &[Difference]) -> Vec<Doubt> {
    let is_swap = |(one, other): &(usize, usize)| {
        let (one, other) = (&all[*one], &all[*other]);
        !one.is_right()
            && !other.is_right()
            && one.table == other.table
            && one.printed.is_some_and(|p| other.explains(p))
            && other.printed.is_some_and(|p| one.explains(p))
    };
    let swaps: Vec<(usize, usize)> = (0..all.len())
        .flat_map(|one| (one + 1..all.len()).map(move |other| (one, other)))
        .filter(is_swap)
        .collect();
    let printed = |d: &Difference| {
        d.printed
            .map_or(String::new(), |p| format!("{:+} %", p.value))
    };
    let mut doubts: Vec<Doubt> = swaps
        .iter()
        .map(|&(one, other)| {
            let (one, other) = (&all[one], &all[other]);
            doubt(
                About::WrongDifference,
                format!(
                    "The printed differences of two rows are swapped: the values of {} give {}, those of {} give {}; printed \
                     are {} and {}.",
                    one.name(),
                    percent(one.share),
                    other.name(),
                    percent(other.share),
                    printed(one),
                    printed(other)
                ),
            )
        })
        .collect();
    let in_a_swap = |row: usize| swaps.iter().any(|&(one, other)| one == row || other == row);
    for (row, d) in all.iter().enumerate() {
        if !d.is_right() && !in_a_swap(row) {
            let words = format!(
                "The values of {} give {}; printed is {}.",
                d.name(),
                percent(d.share),
                printed(d)
            );
            doubts.push(doubt(About::WrongDifference, words));
        }
    }
    doubts
}

/// Tables in which the same operation starts from another level: more than the setting differed.
fn other_controls(all: &[Difference], unit: &str) -> Option<Doubt> {
    /// Controls further apart than this are not of one path and workload.
    const APART: f64 = 1.2;
    let mut found = Vec::new();
    for (at, one) in all.iter().enumerate() {
        for other in &all[at + 1..] {
            let (a, b) = (one.values[0].value, other.values[0].value);
            if one.operation == other.operation
                && one.table != other.table
                && a.max(b) > APART * a.min(b)
            {
                found.push(format!(
                    "{} starts from {a} {unit} in table {} and from {b} in table {}",
                    one.operation, one.table, other.table
                ));
            }
        }
    }
    (!found.is_empty()).then(|| {
        doubt(
            About::Confounded,
            format!(
                "{}: something else differed between them, so the gains of one table cannot be held against those of the other.",
                and(&found)
            ),
        )
    })
}

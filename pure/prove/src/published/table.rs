//! A table in CSV as cells by the names of columns.

use super::Error;

const MOST_BYTES: usize = 16 << 20;
const MOST_ROWS: usize = 20_000;
const MOST_COLUMNS: usize = 200;

pub(super) struct Table {
    header: Vec<String>,
    rows: Vec<Row>,
}

pub(super) struct Row {
    pub line: u64,
    cells: Vec<String>,
}

/// A number and how exactly it was printed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Printed {
    pub value: f64,
    /// Half of the last printed digit.
    pub half: f64,
}

impl Table {
    pub fn read(text: &str) -> Result<Table, Error> {
        if text.len() > MOST_BYTES {
            return Err(Error::TooMuch {
                what: "MiB",
                most: MOST_BYTES >> 20,
            });
        }
        let broken = |error: csv::Error| Error::NotCsv(error.to_string());
        let mut reader = csv::ReaderBuilder::new()
            .trim(csv::Trim::All)
            .comment(Some(b'#'))
            .from_reader(text.trim_start_matches('\u{feff}').as_bytes());
        let header: Vec<String> = reader
            .headers()
            .map_err(broken)?
            .iter()
            .map(str::to_lowercase)
            .collect();
        if header.len() > MOST_COLUMNS {
            return Err(Error::TooMuch {
                what: "columns",
                most: MOST_COLUMNS,
            });
        }
        let mut rows = Vec::new();
        for record in reader.records().take(MOST_ROWS + 1) {
            let record = record.map_err(broken)?;
            rows.push(Row {
                line: record.position().map_or(0, csv::Position::line),
                cells: record.iter().map(str::to_owned).collect(),
            });
        }
        match rows.len() {
            0 => Err(Error::NotCsv("it has no rows".to_owned())),
            1..=MOST_ROWS => Ok(Table { header, rows }),
            _ => Err(Error::TooMuch {
                what: "rows",
                most: MOST_ROWS,
            }),
        }
    }

    pub fn header(&self) -> &[String] {
        &self.header
    }

    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    pub fn has(&self, column: &str) -> bool {
        self.header.iter().any(|name| name == column)
    }

    /// The first column whose name begins so.
    pub fn starting(&self, prefix: &str) -> Option<&str> {
        let mut names = self.header.iter().map(String::as_str);
        names.find(|name| name.starts_with(prefix))
    }

    /// A cell; empty if there is no such column.
    pub fn text<'a>(&self, row: &'a Row, column: &str) -> &'a str {
        let at = self.header.iter().position(|name| name == column);
        at.and_then(|at| row.cells.get(at))
            .map_or("", String::as_str)
    }

    /// The number in a cell.
    pub fn number(&self, row: &Row, column: &str) -> Result<Printed, Error> {
        let text = self.text(row, column);
        Printed::read(text).ok_or_else(|| Error::NoNumber {
            line: row.line,
            column: column.to_owned(),
            text: text.chars().take(40).collect(),
            expected: "a number",
        })
    }

    /// A rate or a time: not below zero.
    pub fn amount(&self, row: &Row, column: &str) -> Result<Printed, Error> {
        let number = self.number(row, column)?;
        if number.value >= 0.0 {
            return Ok(number);
        }
        Err(Error::NoNumber {
            line: row.line,
            column: column.to_owned(),
            text: number.value.to_string(),
            expected: "an amount: it is below zero",
        })
    }
}

impl Printed {
    pub fn read(text: &str) -> Option<Printed> {
        let value: f64 = text.parse().ok()?;
        let decimals = text.split_once('.').map_or(0, |(_, after)| after.len());
        let half = 0.5 * 10f64.powi(-(decimals.min(18) as i32));
        value.is_finite().then_some(Printed { value, half })
    }
}

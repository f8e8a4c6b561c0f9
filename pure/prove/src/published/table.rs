//! A table in CSV as cells by the names of columns, and the units in those names.

use super::Error;

const MOST_BYTES: usize = 16 << 20;
const MOST_ROWS: usize = 20_000;
const MOST_COLUMNS: usize = 200;

pub(super) use csv::StringRecord as Row;

pub(super) struct PublishedTable {
    /// Names of the columns, in small letters.
    pub(super) header: Vec<String>,
    pub(super) rows: Vec<Row>,
}

/// A number and how exactly it was printed.
#[derive(Clone, Copy)]
pub(super) struct Printed {
    pub(super) value: f64,
    /// Half of the last printed digit.
    pub(super) half: f64,
}

/// What a column counts.
#[derive(Clone, Copy)]
pub(super) struct ColumnUnit {
    /// The printed name; empty if unknown.
    pub(super) name: &'static str,
    /// A time: less is better.
    pub(super) is_time: bool,
}

impl PublishedTable {
    pub(super) fn read(text: &str) -> Result<PublishedTable, Error> {
        let not_csv = |why: String| Error::NotCsv(why);
        if text.len() > MOST_BYTES {
            return Err(not_csv(format!(
                "it has more than {} MiB",
                MOST_BYTES >> 20
            )));
        }
        let mut reader = csv::ReaderBuilder::new()
            .trim(csv::Trim::All)
            .comment(Some(b'#'))
            .from_reader(text.trim_start_matches('\u{feff}').as_bytes());
        let header = reader.headers().map_err(|e| not_csv(e.to_string()))?;
        let header: Vec<String> = header.iter().map(str::to_lowercase).collect();
        let records = reader.records().take(MOST_ROWS + 1);
        let rows: Vec<Row> = records
            .collect::<Result<_, _>>()
            .map_err(|e| not_csv(e.to_string()))?;
        if rows.is_empty() {
            return Err(not_csv("it has no rows".to_owned()));
        }
        if rows.len() > MOST_ROWS || header.len() > MOST_COLUMNS {
            let bounds = format!("it has more than {MOST_ROWS} rows or {MOST_COLUMNS} columns");
            return Err(not_csv(bounds));
        }
        Ok(PublishedTable { header, rows })
    }

    pub(super) fn has(&self, column: &str) -> bool {
        self.header.iter().any(|name| name == column)
    }

    /// The first column whose name begins so.
    pub(super) fn starting(&self, prefix: &str) -> Option<&str> {
        let mut names = self.header.iter().map(String::as_str);
        names.find(|name| name.starts_with(prefix))
    }

    /// The column of the values: `value...`, or the first in a unit of rate.
    pub(super) fn values(&self) -> Option<&str> {
        let is_rate = |name: &&String| !unit_of(name).name.is_empty() && !unit_of(name).is_time;
        let rate = self.header.iter().find(is_rate).map(String::as_str);
        self.starting("value").or(rate)
    }

    /// A cell; empty if there is no such column.
    pub(super) fn text<'a>(&self, row: &'a Row, column: &str) -> &'a str {
        let at = self.header.iter().position(|name| name == column);
        at.and_then(|at| row.get(at)).unwrap_or_default()
    }

    /// A rate or a time: a number of at least 0.
    pub(super) fn amount(&self, row: &Row, column: &str) -> Result<Printed, Error> {
        let text = self.text(row, column);
        let amount = Printed::read(text).filter(|number| number.value >= 0.0);
        amount.ok_or_else(|| {
            let text = text.chars().take(40).collect();
            Error::NoNumber(line_of(row), column.to_owned(), text)
        })
    }
}

impl Printed {
    pub(super) fn read(text: &str) -> Option<Printed> {
        let value: f64 = text.parse().ok()?;
        let decimals = text.split_once('.').map_or(0, |(_, after)| after.len());
        let half = 0.5 * 10f64.powi(-(decimals.min(18) as i32));
        value.is_finite().then_some(Printed { value, half })
    }
}

pub(super) fn line_of(row: &Row) -> u64 {
    row.position().map_or(0, csv::Position::line)
}

/// The unit that the name of a column ends with.
pub(super) fn unit_of(column: &str) -> ColumnUnit {
    let endings = [
        ("gbits_per_s gbit_s gbps", "Gbit/s", false),
        ("mbits_per_s mbit_s mbps", "Mbit/s", false),
        ("_bits_per_s _bit_s _bps", "bit/s", false),
        ("mb_per_s mbytes_per_s mb_s", "MB/s", false),
        ("_ms", "ms", true),
        ("_us", "us", true),
        ("_s _seconds", "s", true),
    ];
    let ends = |names: &str| names.split(' ').any(|ending| column.ends_with(ending));
    let found = endings.into_iter().find(|(names, ..)| ends(names));
    let (_, name, is_time) = found.unwrap_or_default();
    ColumnUnit { name, is_time }
}

//! A table in CSV with one run a row, and the units in the names of its columns.

use super::{Error, PublishedEntry, nothing};

const MOST_BYTES: usize = 16 << 20;
const MOST_ROWS: usize = 20_000;
const MOST_COLUMNS: usize = 200;

/// What a column counts.
#[derive(Clone, Copy)]
pub(super) struct ColumnUnit {
    /// The printed name; empty if unknown.
    pub(super) name: &'static str,
    /// A time: less is better.
    pub(super) is_time: bool,
}

/// The names of the arms, the runs in the order of the table, and the unit of their values.
pub(super) fn read(text: &str) -> Result<(Vec<String>, Vec<PublishedEntry>, ColumnUnit), Error> {
    let not_csv = |why: String| Error::NotCsv(why);
    if text.len() > MOST_BYTES {
        let bounds = format!("it has more than {} MiB", MOST_BYTES >> 20);
        return Err(not_csv(bounds));
    }
    let mut reader = csv::ReaderBuilder::new()
        .trim(csv::Trim::All)
        .comment(Some(b'#'))
        .from_reader(text.trim_start_matches('\u{feff}').as_bytes());
    let header = reader.headers().map_err(|e| not_csv(e.to_string()))?;
    let header: Vec<String> = header.iter().map(str::to_lowercase).collect();
    let records = reader.records().take(MOST_ROWS + 1);
    let rows: Vec<csv::StringRecord> = records
        .collect::<Result<_, _>>()
        .map_err(|e| not_csv(e.to_string()))?;
    if rows.is_empty() {
        return Err(not_csv("it has no rows".to_owned()));
    }
    if rows.len() > MOST_ROWS || header.len() > MOST_COLUMNS {
        let bounds = format!("it has more than {MOST_ROWS} rows or {MOST_COLUMNS} columns");
        return Err(not_csv(bounds));
    }
    let column = |is: &dyn Fn(&str) -> bool| header.iter().position(|name| is(name));
    let arm = column(&|name| name == "arm").or_else(|| column(&|name| name == "configuration"));
    let is_rate = |name: &str| !unit_of(name).name.is_empty() && !unit_of(name).is_time;
    let value = column(&|name| name.starts_with("value")).or_else(|| column(&is_rate));
    let (Some(arm), Some(value)) = (arm, value) else {
        return nothing(format!(
            "its columns ({}) are of no kind that can be read: one run a row has the columns arm,value (and block, where runs were \
             paired)",
            header.join(", ")
        ));
    };
    let block = column(&|name| name == "block");
    let mut names: Vec<String> = Vec::new();
    let mut entries = Vec::new();
    for row in &rows {
        let name = &row[arm];
        let known = names.iter().position(|known| known == name);
        entries.push(PublishedEntry {
            arm: known.unwrap_or_else(|| {
                names.push(name.to_owned());
                names.len() - 1
            }),
            block: block.map(|block| row[block].to_owned()),
            value: amount(row, value, &header)?,
        });
    }
    Ok((names, entries, unit_of(&header[value])))
}

/// A rate or a time: a number of at least 0.
fn amount(row: &csv::StringRecord, column: usize, header: &[String]) -> Result<f64, Error> {
    let number = row[column].parse().ok();
    let number = number.filter(|n: &f64| n.is_finite() && *n >= 0.0);
    number.ok_or_else(|| {
        let line = row.position().map_or(0, csv::Position::line);
        let text = row[column].chars().take(40).collect();
        Error::NoNumber(line, header[column].clone(), text)
    })
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

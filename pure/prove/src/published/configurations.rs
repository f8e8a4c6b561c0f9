//! Tables with a measurement a row: a configuration in words, the rate, and what iperf printed beside it.

use super::runs::{Values, compare_all, no_interval};
use super::table::{Printed, Row, Table};
use super::units::unit_of;
use super::{Error, Found, doubt};
use model::{About, Bytes, Doubt};

/// Names of settings that ask for a buffer or window of that size; limits of such sizes do not.
const SIZES: [&str; 7] = [
    "sendspace",
    "recvspace",
    "sndbuf",
    "rcvbuf",
    "sockbuf",
    "wmem",
    "rmem",
];
/// A window that is not asked for is this, by old and common default.
const DEFAULT_WINDOW: u64 = 65_536;

/// A measurement, with what its configuration asks for.
struct Measurement {
    configuration: String,
    /// `key=value` words, those of `the same ...` included.
    settings: Vec<(String, String)>,
    rate: Printed,
    /// As printed, and in bytes.
    window: Option<(String, Printed)>,
}

pub(super) fn of_table(table: &Table, margin: f64) -> Result<Found, Error> {
    let column = table
        .header()
        .iter()
        .find(|name| name.contains("bit") && !unit_of(name).name.is_empty())
        .map(String::as_str)
        .or(table.starting("value"))
        .ok_or_else(|| Error::UnknownColumns {
            found: table.header().join(", "),
        })?;
    let mut all: Vec<Measurement> = Vec::new();
    for row in table.rows() {
        let before = all.last().map(|m| m.settings.clone());
        all.push(measurement(table, row, column, before.unwrap_or_default())?);
    }

    let mut arms: Vec<Values> = Vec::new();
    for m in &all {
        match arms.iter_mut().find(|arm| arm.name == m.configuration) {
            Some(arm) => arm.values.push(m.rate.value),
            None => arms.push(Values {
                name: m.configuration.clone(),
                values: vec![m.rate.value],
            }),
        }
    }
    let (mut comparisons, mut doubts) = compare_all(&arms, unit_of(column), margin)?;
    // The last step of a series is asked about as much as the whole way.
    for (before, after) in arms.iter().zip(&arms[1..]).skip(1) {
        comparisons.extend(no_interval(before, after, unit_of(column)));
    }
    doubts.extend(not_in_force(&all));
    doubts.extend(several_at_once(&all));
    doubts.extend(volumes(table, column)?);
    Ok(Found {
        comparisons,
        statistics: arms.iter().map(Values::statistics).collect(),
        doubts,
    })
}

fn measurement(
    table: &Table,
    row: &Row,
    column: &str,
    before: Vec<(String, String)>,
) -> Result<Measurement, Error> {
    let configuration = table.text(row, "configuration").to_owned();
    let mut settings = if configuration.contains("the same") {
        before
    } else {
        Vec::new()
    };
    for (key, value) in configuration
        .split_whitespace()
        .filter_map(|word| word.split_once('='))
    {
        settings.retain(|(known, _)| known != key);
        settings.push((key.to_owned(), value.to_owned()));
    }
    let window = table.header().iter().find(|name| name.contains("window"));
    Ok(Measurement {
        rate: table.amount(row, column)?,
        window: window.and_then(|column| {
            let text = table.text(row, column);
            Some((text.to_owned(), bytes(text)?))
        }),
        configuration,
        settings,
    })
}

impl Measurement {
    /// The configuration, or the beginning of a long one.
    fn name(&self) -> String {
        const LONGEST: usize = 48;
        let mut name: String = self.configuration.chars().take(LONGEST).collect();
        if name.len() < self.configuration.len() {
            name.push_str("...");
        }
        name
    }

    /// The largest buffer or window that is asked for.
    fn asked(&self) -> Option<(&str, Bytes)> {
        self.settings
            .iter()
            .filter(|(key, _)| SIZES.iter().any(|size| key.contains(size)) && !key.contains("max"))
            .filter_map(|(key, value)| Some((key.as_str(), value.parse::<Bytes>().ok()?)))
            .rev()
            .max_by_key(|(_, size)| *size)
    }

    /// Payload of a segment with timestamps (RFC 7323) and without.
    fn segments(&self) -> [u64; 2] {
        let mtu = self.settings.iter().find(|(key, _)| key.ends_with("mtu"));
        let mtu: u64 = mtu
            .and_then(|(_, value)| value.parse().ok())
            .unwrap_or(1500);
        [mtu.saturating_sub(52).max(1), mtu.saturating_sub(40).max(1)]
    }
}

/// A size as iperf prints it, in multiples of 1024: `65.0 KByte`.
fn bytes(text: &str) -> Option<Printed> {
    let (number, unit) = text.split_once(' ')?;
    let factor = match unit.trim().to_lowercase().as_str() {
        "byte" | "bytes" => 1.0,
        "kbyte" | "kbytes" => 1024.0,
        "mbyte" | "mbytes" => 1024.0 * 1024.0,
        "gbyte" | "gbytes" => 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    };
    let printed = Printed::read(number)?;
    Some(Printed {
        value: printed.value * factor,
        half: printed.half * factor,
    })
}

/// The window that iperf printed is not the one that was asked for.
fn not_in_force(all: &[Measurement]) -> Vec<Doubt> {
    let mut doubts = Vec::new();
    for m in all {
        let (Some((key, asked)), Some((text, window))) = (m.asked(), &m.window) else {
            continue;
        };
        // The kernel may round and double; half is not what was asked.
        if 2.0 * window.value > asked.0 as f64 {
            continue;
        }
        let whole = m.segments().into_iter().find(|segment| {
            let rounded = DEFAULT_WINDOW.div_ceil(*segment) * segment;
            (rounded as f64 - window.value).abs() <= window.half
        });
        let is_default = whole.map_or(String::new(), |segment| {
            format!(
                " That is the default of 64 KiB rounded up to whole segments of {segment} bytes."
            )
        });
        let before = all.iter().find(|other| {
            other.asked().is_none()
                && other
                    .window
                    .as_ref()
                    .is_some_and(|(before, _)| before == text)
        });
        let unchanged = before.map_or(String::new(), |before| {
            format!(
                " '{}' has the same window: as far as it goes, the two compare a setting with itself.",
                before.name()
            )
        });
        doubts.push(doubt(
            About::NotInForce,
            format!(
                "'{}' asks for {key} of {asked}, but the window printed at the client is {text}; in force it would print {}.{is_default}{unchanged}",
                m.name(),
                as_iperf(asked)
            ),
        ));
    }
    doubts
}

/// As iperf prints a window: `8.00 MByte`.
fn as_iperf(size: Bytes) -> String {
    size.to_string().replace("iB", "Byte")
}

/// Configurations that change several things.
fn several_at_once(all: &[Measurement]) -> Vec<Doubt> {
    all.iter()
        .filter(|m| m.settings.len() > 1)
        .map(|m| {
            let words = format!(
                "'{}' differs from the control in {} settings: which of them did what cannot be told.",
                m.name(),
                m.settings.len()
            );
            doubt(About::Confounded, words)
        })
        .collect()
}

/// Volume, time and rate of each row, held against each other.
fn volumes(table: &Table, rate_column: &str) -> Result<Option<Doubt>, Error> {
    let (Some(volume), Some(duration)) = (
        table.starting("transfer_gbytes"),
        table.starting("duration_s"),
    ) else {
        return Ok(None);
    };
    if unit_of(rate_column).name != "Mbit/s" {
        return Ok(None);
    }
    let mut binary = None;
    for row in table.rows() {
        let [volume, time, rate] = [
            table.amount(row, volume)?,
            table.amount(row, duration)?,
            table.amount(row, rate_column)?,
        ];
        let rounding = [volume, time, rate]
            .iter()
            .map(|p| p.half / p.value)
            .sum::<f64>();
        let fits = |gigabyte: f64| {
            let derived = volume.value * gigabyte * 8.0 / time.value / 1e6;
            ((derived / rate.value - 1.0).abs() <= rounding).then_some(derived)
        };
        match (fits(1_073_741_824.0), fits(1e9)) {
            (Some(derived), None) if binary.is_none() => {
                binary = Some(format!(
                    "Bytes are counted in multiples of 1024 here and bits in multiples of 1000: {} GByte in {} s are {derived:.0} Mbit/s, \
                     as printed. Whoever takes both for 1000 is 7 % off.",
                    volume.value, time.value
                ));
            }
            (None, None) => {
                let words = format!(
                    "Line {}: {} GBytes in {} s are not {} Mbit/s, whether G is 1000 or 1024 to the third.",
                    row.line, volume.value, time.value, rate.value
                );
                return Ok(Some(doubt(About::Units, words)));
            }
            _ => {}
        }
    }
    Ok(binary.map(|words| doubt(About::Units, words)))
}

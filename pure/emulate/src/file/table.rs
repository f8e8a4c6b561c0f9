//! A TOML table that knows which keys it may have and where it stands in the file.

use crate::Error;
use model::{BitRate, Bytes, Nanos};
use std::ops::Range;
use std::str::FromStr;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Longest text that a file may hold, in bytes.
const MAX_FILE: usize = 1 << 20;

/// The text of a file, to name lines in it.
pub(super) struct Source<'a> {
    pub(super) text: &'a str,
    pub(super) file: &'a str,
}

impl<'a> Source<'a> {
    pub(super) fn fail(
        &self,
        at: usize,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Error {
        let before = &self.text.as_bytes()[..at.min(self.text.len())];
        Error {
            file: self.file.to_owned(),
            line: before.iter().filter(|&&b| b == b'\n').count() + 1,
            what: what.into(),
            remedy: remedy.into(),
        }
    }

    pub(super) fn root(&self) -> Result<Spanned<DeTable<'a>>, Error> {
        if self.text.len() > MAX_FILE {
            let what = format!("the file has more than {MAX_FILE} bytes");
            return Err(self.fail(0, what, "give a scenario file"));
        }
        DeTable::parse(self.text).map_err(|e| {
            let at = e.span().map_or(0, |s| s.start);
            let what = e.message().trim().replace('\n', ", ");
            self.fail(
                at,
                format!("not TOML: {what}"),
                "write key = value, with text in quotes",
            )
        })
    }
}

/// One table, its keys checked.
pub(super) struct Table<'s, 'a> {
    pub(super) source: &'s Source<'a>,
    /// What it describes, for sentences: `link 'wan'`.
    pub(super) subject: String,
    pub(super) at: usize,
    entries: &'s DeTable<'a>,
}

/// One value, and what to call it.
#[derive(Clone, Copy)]
pub(super) struct Value<'t, 's, 'a> {
    pub(super) source: &'s Source<'a>,
    pub(super) key: &'t str,
    pub(super) value: &'s Spanned<DeValue<'a>>,
}

impl<'s, 'a> Table<'s, 'a> {
    /// Refuses keys that are not in `keys`.
    pub(super) fn open(
        source: &'s Source<'a>,
        subject: impl Into<String>,
        entries: &'s DeTable<'a>,
        at: usize,
        keys: &[&str],
    ) -> Result<Table<'s, 'a>, Error> {
        let subject = subject.into();
        for key in entries.keys() {
            let name: &str = key.get_ref();
            if !keys.contains(&name) {
                let what = format!("unknown key '{name}' in {subject}");
                return Err(source.fail(key.span().start, what, suggest(name, keys)));
            }
        }
        Ok(Table {
            source,
            subject,
            at,
            entries,
        })
    }

    pub(super) fn get<'t>(&self, key: &'t str) -> Option<Value<'t, 's, 'a>> {
        let value = self.entries.get(key)?;
        Some(Value {
            source: self.source,
            key,
            value,
        })
    }

    pub(super) fn need<'t>(&self, key: &'t str, example: &str) -> Result<Value<'t, 's, 'a>, Error> {
        self.get(key).ok_or_else(|| {
            let what = format!("{} has no '{key}'", self.subject);
            self.source
                .fail(self.at, what, format!("add {key} = {example}"))
        })
    }

    /// Reads an optional key.
    pub(super) fn read<V>(
        &self,
        key: &str,
        with: impl FnOnce(Value<'_, 's, 'a>) -> Result<V, Error>,
    ) -> Result<Option<V>, Error> {
        self.get(key).map(with).transpose()
    }

    /// The tables under a `[[key]]`.
    pub(super) fn each(&self, key: &str) -> Result<Vec<(&'s DeTable<'a>, usize)>, Error> {
        let Some(value) = self.get(key) else {
            return Ok(Vec::new());
        };
        let tables = value.list(&format!("tables, each under [[{key}]]"))?;
        tables
            .into_iter()
            .map(|v| match v.value.get_ref() {
                DeValue::Table(t) => Ok((t, v.at())),
                _ => Err(v.wrong(&format!("tables, each under [[{key}]]"))),
            })
            .collect()
    }

    /// Where the key stands, or else the table.
    pub(super) fn place(&self, key: &str) -> usize {
        self.entries
            .get_key_value(key)
            .map_or(self.at, |(k, _)| k.span().start)
    }
}

impl<'t, 's, 'a> Value<'t, 's, 'a> {
    pub(super) fn at(&self) -> usize {
        let Range { start, .. } = self.value.span();
        start
    }

    pub(super) fn fail(&self, what: impl Into<String>, remedy: impl Into<String>) -> Error {
        self.source.fail(self.at(), what, remedy)
    }

    fn wrong(&self, expected: &str) -> Error {
        let is = match self.value.get_ref() {
            DeValue::String(s) => format!("\"{}\"", s.escape_debug()),
            DeValue::Integer(i) => i.as_str().to_owned(),
            DeValue::Float(f) => f.as_str().to_owned(),
            DeValue::Boolean(b) => b.to_string(),
            other => format!("a TOML {}", other.type_str()),
        };
        self.fail(
            format!("'{}' is {is}", self.key),
            format!("write {expected}"),
        )
    }

    /// True for `"off"`, which takes an impairment away again.
    pub(super) fn is_off(&self) -> bool {
        matches!(self.value.get_ref(), DeValue::String(s) if s == "off")
    }

    pub(super) fn table(
        &self,
        subject: impl Into<String>,
        keys: &[&str],
    ) -> Result<Table<'s, 'a>, Error> {
        match self.value.get_ref() {
            DeValue::Table(t) => Table::open(self.source, subject, t, self.at(), keys),
            _ => Err(self.wrong(&format!("a table with {}", keys.join(", ")))),
        }
    }

    pub(super) fn list(&self, expected: &str) -> Result<Vec<Value<'t, 's, 'a>>, Error> {
        match self.value.get_ref() {
            DeValue::Array(all) => Ok(all.iter().map(|value| Value { value, ..*self }).collect()),
            _ => Err(self.wrong(expected)),
        }
    }

    /// Both ends' values in a list of two.
    pub(super) fn pair(&self, expected: &str) -> Result<[Value<'t, 's, 'a>; 2], Error> {
        <[_; 2]>::try_from(self.list(expected)?).map_err(|_| self.wrong(expected))
    }

    pub(super) fn text(&self, expected: &str) -> Result<&'s str, Error> {
        match self.value.get_ref() {
            DeValue::String(s) => Ok(s),
            _ => Err(self.wrong(expected)),
        }
    }

    pub(super) fn boolean(&self) -> Result<bool, Error> {
        match self.value.get_ref() {
            DeValue::Boolean(b) => Ok(*b),
            _ => Err(self.wrong("true or false")),
        }
    }

    fn number(&self) -> Option<i128> {
        match self.value.get_ref() {
            DeValue::Integer(i) => i128::from_str_radix(i.as_str(), i.radix()).ok(),
            _ => None,
        }
    }

    pub(super) fn is_number(&self) -> bool {
        self.number().is_some()
    }

    pub(super) fn whole(&self, range: Range<u64>) -> Result<u64, Error> {
        self.number()
            .and_then(|n| u64::try_from(n).ok())
            .filter(|n| range.contains(n))
            .ok_or_else(|| {
                let last = range.end - 1;
                let expected = match last {
                    0..=0xffff_ffff => format!("a whole number from {} to {last}", range.start),
                    _ => format!("a whole number from {}", range.start),
                };
                self.wrong(&expected)
            })
    }

    /// A number between `low` and `high`, both allowed.
    pub(super) fn real(&self, low: f64, high: f64) -> Result<f64, Error> {
        let value = match self.value.get_ref() {
            DeValue::Float(f) => f64::from_str(f.as_str()).ok(),
            DeValue::String(s) => s
                .strip_suffix('%')
                .and_then(|p| f64::from_str(p.trim()).ok())
                .map(|p| p / 100.0),
            _ => self.number().map(|n| n as f64),
        };
        value.filter(|v| (low..=high).contains(v)).ok_or_else(|| {
            self.wrong(&format!(
                "a number from {low} to {high}, or per cent in quotes (0.001 is \"0.1%\")"
            ))
        })
    }

    pub(super) fn probability(&self) -> Result<f64, Error> {
        self.real(0.0, 1.0)
    }

    pub(super) fn rate(&self) -> Result<BitRate, Error> {
        let rate: BitRate =
            self.quantity("a rate above 0 in quotes, in bit/s (\"100M\", \"2.5G\")")?;
        if rate.0 == 0 {
            let what = format!("'{}' of 0 lets nothing pass", self.key);
            return Err(self.fail(
                what,
                "write a rate above 0 (\"100M\"), or leave the key out for no limit",
            ));
        }
        Ok(rate)
    }

    pub(super) fn bytes(&self) -> Result<Bytes, Error> {
        if self.is_number() {
            return self.whole(1..1 << 40).map(Bytes);
        }
        self.quantity("a size in bytes, or with a unit in quotes (\"64K\", \"8M\")")
    }

    pub(super) fn time(&self) -> Result<Nanos, Error> {
        let expected = "a time with its unit in quotes (\"25.5ms\", \"200us\", \"5s\")";
        let nanos: Nanos = self.quantity(expected)?;
        // "25" could mean milliseconds to whoever wrote it; only zero needs no unit.
        let bare = self
            .text(expected)?
            .trim_end()
            .ends_with(|c: char| c.is_ascii_digit());
        // A year: everything that is added to it still fits.
        if (bare && nanos.0 != 0) || nanos > Nanos::from_secs(31_557_600) {
            return Err(self.wrong(expected));
        }
        Ok(nanos)
    }

    /// A time above zero.
    pub(super) fn span(&self) -> Result<Nanos, Error> {
        let nanos = self.time()?;
        if nanos.0 == 0 {
            let what = format!("'{}' of 0 does nothing", self.key);
            return Err(self.fail(what, "write a time above 0 (\"1ms\"), or leave it out"));
        }
        Ok(nanos)
    }

    fn quantity<Q: FromStr>(&self, expected: &str) -> Result<Q, Error> {
        let negative = match self.value.get_ref() {
            DeValue::String(s) => s.trim_start().starts_with('-'),
            DeValue::Integer(i) => i.as_str().starts_with('-'),
            DeValue::Float(f) => f.as_str().starts_with('-'),
            _ => false,
        };
        if negative {
            let what = format!("'{}' is negative", self.key);
            return Err(self.fail(what, format!("write {expected}")));
        }
        match self.value.get_ref() {
            DeValue::String(s) => s.parse().map_err(|_| self.wrong(expected)),
            _ => Err(self.wrong(expected)),
        }
    }
}

/// A remedy for a name that is none of `known`.
pub(super) fn suggest(name: &str, known: &[&str]) -> String {
    let near = known
        .iter()
        .map(|k| (distance(name, k), *k))
        .min()
        .filter(|(d, k)| *d <= 1 + k.len() / 4);
    match near {
        Some((_, key)) => format!("did you mean '{key}'?"),
        None if known.is_empty() => "there is none yet".to_owned(),
        None => format!("known here: {}", known.join(", ")),
    }
}

/// Edits between two names (Levenshtein), of the first 64 bytes.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let (a, b) = (&a[..a.len().min(64)], &b[..b.len().min(64)]);
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

//! Bytes as they arrive, taken a piece at a time.

use super::{Iperf3Failure, Malformed};
use serde_json::{Map, Value};

/// Bytes of a control connection that were received and not yet used.
#[derive(Debug, Default)]
pub(super) struct ReceivedBytes {
    bytes: Vec<u8>,
}

impl ReceivedBytes {
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The next byte, left where it is.
    pub fn peek(&self) -> Option<u8> {
        self.bytes.first().copied()
    }

    /// One state byte.
    pub fn byte(&mut self) -> Option<u8> {
        (!self.bytes.is_empty()).then(|| self.bytes.remove(0))
    }

    /// Exactly `N` bytes, once they are all there.
    pub fn exactly<const N: usize>(&mut self) -> Option<[u8; N]> {
        let taken = *self.bytes.first_chunk::<N>()?;
        self.bytes.drain(..N);
        Some(taken)
    }

    /// One JSON object behind its length, as `read` understands it, once it is all there.
    pub fn object<T>(
        &mut self,
        what: &'static str,
        limit: usize,
        read: impl FnOnce(&Map<String, Value>) -> Result<T, Malformed>,
    ) -> Result<Option<T>, Iperf3Failure> {
        let Some(announced) = self.bytes.first_chunk::<4>() else {
            return Ok(None);
        };
        let announced = u32::from_be_bytes(*announced) as usize;
        if announced > limit {
            return Err(Iperf3Failure::TooLarge {
                what,
                size: announced as u64,
                limit: limit as u64,
            });
        }
        let Some(text) = self.bytes.get(4..4 + announced) else {
            return Ok(None);
        };
        let object = object(text).and_then(|map| read(&map));
        self.bytes.drain(..4 + announced);
        match object {
            Ok(object) => Ok(Some(object)),
            Err(why) => Err(Iperf3Failure::Malformed { what, why }),
        }
    }
}

/// Reads one JSON object. Depth is bounded by the reader of `serde_json` (128).
pub(super) fn object(text: &[u8]) -> Result<Map<String, Value>, Malformed> {
    let not = |why: String| Malformed(format!("it is not a JSON object ({why})"));
    match serde_json::from_slice(text) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err(not("another kind of value".to_owned())),
        Err(error) => Err(not(error.to_string())),
    }
}

/// A JSON value behind its length.
pub(super) fn framed(value: &Value) -> Vec<u8> {
    let text = value.to_string();
    let length = u32::try_from(text.len()).expect("our own objects are far below 4 GiB");
    [&length.to_be_bytes(), text.as_bytes()].concat()
}

/// The values of a JSON object by their keys; `None` for one that is absent or null.
pub(super) struct KeyBytes<'a>(pub &'a Map<String, Value>);

impl KeyBytes<'_> {
    fn typed<T>(
        &self,
        key: &str,
        expected: &str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<Option<T>, Malformed> {
        let value = self.0.get(key).filter(|value| !value.is_null());
        let wrong = || Malformed(format!("'{key}' is not {expected}"));
        value.map(|value| read(value).ok_or_else(wrong)).transpose()
    }

    /// A finite number, or 0.
    pub fn real(&self, key: &str) -> Result<f64, Malformed> {
        let number = self.typed(key, "a number", Value::as_f64)?;
        Ok(number.filter(|n| n.is_finite()).unwrap_or(0.0))
    }

    /// A whole number from 0 to `max`. cJSON prints whole numbers as such when they fit, and otherwise like `1e+15`, so
    /// both are taken.
    pub fn whole(&self, key: &str, max: u64, range: &str) -> Result<Option<u64>, Malformed> {
        let whole = |value: &Value| {
            let fits = |n: &f64| *n >= 0.0 && n.fract() == 0.0 && *n < 1.8e19;
            let real = value.as_f64()?;
            let whole = value.as_u64().or(Some(real).filter(fits).map(|n| n as u64));
            Some(
                whole
                    .filter(|whole| *whole <= max)
                    .ok_or_else(|| value.to_string()),
            )
        };
        let whole = self.typed(key, "a number", whole)?;
        whole
            .transpose()
            .map_err(|value| out_of_range(key, &value, range))
    }

    /// A whole number that may be negative.
    pub fn signed(&self, key: &str) -> Result<Option<i64>, Malformed> {
        let finite = |value: &Value| value.as_f64().filter(|n| n.is_finite());
        self.typed(key, "a number", |value| {
            value.as_i64().or_else(|| finite(value).map(|n| n as i64))
        })
    }

    /// True or false, or a number as some versions send it.
    pub fn flag(&self, key: &str) -> Result<bool, Malformed> {
        let flag = self.typed(key, "true, false or a number", |value| {
            value.as_bool().or_else(|| Some(value.as_f64()? != 0.0))
        })?;
        Ok(flag.unwrap_or(false))
    }

    /// A text.
    pub fn text(&self, key: &str) -> Result<Option<String>, Malformed> {
        self.typed(key, "a text", |value| value.as_str().map(str::to_owned))
    }
}

pub(super) fn out_of_range(key: &str, value: &str, range: &str) -> Malformed {
    let value: String = value.chars().take(40).collect();
    Malformed(format!("'{key}' is {value}, and must be {range}"))
}

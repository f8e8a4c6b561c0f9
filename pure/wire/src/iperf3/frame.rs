//! Bytes as they arrive, taken a piece at a time.

use super::{Failure, Malformed};
use serde_json::{Map, Value};

/// Bytes of a control connection that were received and not yet used.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    bytes: Vec<u8>,
}

impl Incoming {
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
    ) -> Result<Option<T>, Failure> {
        let Some(announced) = self.bytes.first_chunk::<4>() else {
            return Ok(None);
        };
        let announced = u32::from_be_bytes(*announced) as usize;
        if announced > limit {
            return Err(Failure::TooLarge {
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
            Err(why) => Err(Failure::Malformed { what, why }),
        }
    }
}

/// Reads one JSON object. Depth is bounded by the reader of `serde_json` (128).
pub(super) fn object(text: &[u8]) -> Result<Map<String, Value>, Malformed> {
    match serde_json::from_slice(text) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err(Malformed::NotAnObject("another kind of value".into())),
        Err(error) => Err(Malformed::NotAnObject(error.to_string())),
    }
}

/// A JSON value behind its length.
pub(super) fn framed(value: &Value) -> Vec<u8> {
    let text = value.to_string();
    let length = u32::try_from(text.len()).expect("our own objects are far below 4 GiB");
    let mut bytes = length.to_be_bytes().to_vec();
    bytes.extend_from_slice(text.as_bytes());
    bytes
}

/// A number under `key`; `None` if absent or null. cJSON prints whole numbers as such when they fit,
/// and otherwise like `1e+15`, so both are taken.
pub(super) fn number(
    map: &Map<String, Value>,
    key: &'static str,
) -> Result<Option<f64>, Malformed> {
    match map.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => value.as_f64().map(Some).ok_or(Malformed::Type {
            key,
            expected: "a number",
        }),
    }
}

/// A whole number from 0 to `max` under `key`.
pub(super) fn whole(
    map: &Map<String, Value>,
    key: &'static str,
    max: u64,
    range: &'static str,
) -> Result<Option<u64>, Malformed> {
    let Some(value) = map.get(key).filter(|v| !v.is_null()) else {
        return Ok(None);
    };
    let out = || Malformed::Range {
        key,
        value: value.to_string().chars().take(40).collect(),
        range,
    };
    let read = match (value.as_u64(), value.as_f64()) {
        (Some(whole), _) => whole,
        (None, Some(real)) if real >= 0.0 && real.fract() == 0.0 && real < 1.8e19 => real as u64,
        (None, Some(_)) => return Err(out()),
        (None, None) => {
            return Err(Malformed::Type {
                key,
                expected: "a number",
            });
        }
    };
    if read <= max {
        Ok(Some(read))
    } else {
        Err(out())
    }
}

/// A flag under `key`: true or false, or a number as some versions send it.
pub(super) fn flag(map: &Map<String, Value>, key: &'static str) -> Result<bool, Malformed> {
    match map.get(key) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(value)) => Ok(*value),
        Some(value) => value.as_f64().map(|n| n != 0.0).ok_or(Malformed::Type {
            key,
            expected: "true, false or a number",
        }),
    }
}

/// A text under `key`.
pub(super) fn text(
    map: &Map<String, Value>,
    key: &'static str,
) -> Result<Option<String>, Malformed> {
    match map.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(Malformed::Type {
            key,
            expected: "a text",
        }),
    }
}

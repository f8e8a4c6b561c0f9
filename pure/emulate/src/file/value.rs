//! Values of a scenario file: scalars with a unit and within bounds.

use crate::MssClamp;
use model::{BitRate, Bytes, Nanos};
use serde::Deserialize;
use serde::de::{Deserializer, Error};
use std::fmt;
use std::str::FromStr;

/// A scalar as TOML has it.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "neither a number nor text; write a number, or text in quotes"
)]
pub(crate) enum Scalar {
    Whole(i64),
    Real(f64),
    Text(String),
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::Whole(n) => n.fmt(f),
            Scalar::Real(x) => x.fmt(f),
            Scalar::Text(text) => write!(f, "\"{}\"", text.escape_debug()),
        }
    }
}

impl Scalar {
    fn is_negative(&self) -> bool {
        match self {
            Scalar::Whole(n) => *n < 0,
            Scalar::Real(x) => *x < 0.0,
            Scalar::Text(text) => {
                let number = text.trim_start().strip_prefix('-').unwrap_or_default();
                number.starts_with(|c: char| c.is_ascii_digit())
            }
        }
    }
}

/// What a scalar can be read as.
pub(crate) trait FromScalar: Sized {
    fn expected() -> String;
    fn read(scalar: &Scalar) -> Option<Self>;
}

fn parse<T: FromStr>(scalar: &Scalar) -> Option<T> {
    match scalar {
        Scalar::Text(text) => text.parse().ok(),
        Scalar::Whole(_) | Scalar::Real(_) => None,
    }
}

impl FromScalar for BitRate {
    fn expected() -> String {
        "a rate above 0 in quotes, in bit/s (\"100M\", \"2.5G\"), or leave it out for no limit"
            .into()
    }
    fn read(scalar: &Scalar) -> Option<BitRate> {
        parse(scalar).filter(|rate: &BitRate| rate.0 > 0)
    }
}

impl FromScalar for Bytes {
    fn expected() -> String {
        "a size in bytes, or with a unit in quotes (\"64K\", \"8M\")".into()
    }
    fn read(scalar: &Scalar) -> Option<Bytes> {
        match scalar {
            Scalar::Whole(n @ 1..0x100_0000_0000) => Some(Bytes(*n as u64)),
            _ => parse(scalar),
        }
    }
}

impl FromScalar for Nanos {
    fn expected() -> String {
        "a time with its unit in quotes (\"25.5ms\", \"200us\", \"5s\")".into()
    }
    fn read(scalar: &Scalar) -> Option<Nanos> {
        let Scalar::Text(text) = scalar else {
            return None;
        };
        let nanos: Nanos = text.parse().ok()?;
        // "25" could be meant as milliseconds; only zero needs no unit.
        let bare = text.trim_end().ends_with(|c: char| c.is_ascii_digit());
        // At most a year, so that sums do not overflow.
        let fits = nanos <= Nanos::from_secs(31_557_600) && (!bare || nanos.0 == 0);
        fits.then_some(nanos)
    }
}

/// A time above zero.
struct Span(Nanos);

impl FromScalar for Span {
    fn expected() -> String {
        "a time above 0 with its unit in quotes (\"1ms\", \"5s\")".into()
    }
    fn read(scalar: &Scalar) -> Option<Span> {
        Nanos::read(scalar).filter(|time| time.0 > 0).map(Span)
    }
}

/// A name fit for a file, a network namespace and the input of `ip -batch`.
impl FromScalar for String {
    fn expected() -> String {
        "1 to 32 of a-z, 0-9 and '-' in quotes, not beginning with '-'".into()
    }
    fn read(scalar: &Scalar) -> Option<String> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        parse(scalar).filter(|name: &String| {
            (1..=32).contains(&name.len()) && name.chars().all(plain) && !name.starts_with('-')
        })
    }
}

/// A whole number from `MIN` to `MAX`.
pub(crate) struct WholeNumber<const MIN: u64, const MAX: u64>(pub(crate) u64);

impl<const MIN: u64, const MAX: u64> FromScalar for WholeNumber<MIN, MAX> {
    fn expected() -> String {
        format!("a whole number from {MIN} to {MAX}")
    }
    fn read(scalar: &Scalar) -> Option<Self> {
        let Scalar::Whole(n) = scalar else {
            return None;
        };
        let n = u64::try_from(*n).ok()?;
        (MIN..=MAX).contains(&n).then_some(WholeNumber(n))
    }
}

/// A number from `MIN` to `MAX` millionths.
pub(crate) struct Real<const MIN: u64, const MAX: u64>(pub(crate) f64);

impl<const MIN: u64, const MAX: u64> FromScalar for Real<MIN, MAX> {
    fn expected() -> String {
        let (min, max) = (MIN as f64 / 1e6, MAX as f64 / 1e6);
        format!("a number from {min} to {max}, or per cent in quotes (0.001 is \"0.1%\")")
    }
    fn read(scalar: &Scalar) -> Option<Self> {
        let value = match scalar {
            Scalar::Whole(n) => *n as f64,
            Scalar::Real(x) => *x,
            Scalar::Text(text) => text.strip_suffix('%')?.trim().parse::<f64>().ok()? / 100.0,
        };
        let fits = (MIN as f64 / 1e6..=MAX as f64 / 1e6).contains(&value);
        fits.then_some(Real(value))
    }
}

/// A probability.
impl FromScalar for f64 {
    fn expected() -> String {
        Real::<0, 1_000_000>::expected()
    }
    fn read(scalar: &Scalar) -> Option<f64> {
        Real::<0, 1_000_000>::read(scalar).map(|real| real.0)
    }
}

impl FromScalar for MssClamp {
    fn expected() -> String {
        "\"path-mtu\", or a size of 88 to 65495 bytes (1440)".into()
    }
    fn read(scalar: &Scalar) -> Option<MssClamp> {
        match scalar {
            Scalar::Whole(n @ 88..=65_495) => u16::try_from(*n).ok().map(MssClamp::To),
            Scalar::Text(text) if text == "path-mtu" => Some(MssClamp::PathMtu),
            _ => None,
        }
    }
}

/// Any [`FromScalar`], for where a type has to be named.
#[derive(Clone)]
pub(crate) struct AnyScalar<T>(pub(crate) T);

impl<'de, T: FromScalar> Deserialize<'de> for AnyScalar<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<AnyScalar<T>, D::Error> {
        let scalar = Scalar::deserialize(from)?;
        T::read(&scalar).map(AnyScalar).ok_or_else(|| {
            let is = match scalar.is_negative() {
                true => "negative",
                false => "not allowed here",
            };
            D::Error::custom(format!("{scalar} is {is}; write {}", T::expected()))
        })
    }
}

// ---- for `deserialize_with` ----

pub(crate) fn scalar<'de, T: FromScalar, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    AnyScalar::deserialize(from).map(|of| of.0)
}

/// An optional scalar that is there.
pub(crate) fn some<'de, T: FromScalar, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<T>, D::Error> {
    scalar(from).map(Some)
}

/// A largest frame.
pub(crate) fn frame<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    whole::<_, _, 576, 65_535>(from).map(Some)
}

/// A time above zero.
pub(crate) fn span<'de, D: Deserializer<'de>>(from: D) -> Result<Nanos, D::Error> {
    scalar(from).map(|Span(time)| time)
}

pub(crate) fn whole<'de, T, D, const MIN: u64, const MAX: u64>(from: D) -> Result<T, D::Error>
where
    T: TryFrom<u64, Error: fmt::Display>,
    D: Deserializer<'de>,
{
    let WholeNumber::<MIN, MAX>(n) = scalar(from)?;
    T::try_from(n).map_err(D::Error::custom)
}

pub(crate) fn real<'de, D: Deserializer<'de>, const MIN: u64, const MAX: u64>(
    from: D,
) -> Result<f64, D::Error> {
    scalar(from).map(|Real::<MIN, MAX>(x)| x)
}

/// A number, or bytes with a unit.
pub(crate) fn amount<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    scalar(from).map(|Bytes(amount)| amount)
}

/// Numbers of frames: 1 to 100,000 of them, rising.
pub(crate) fn ascending<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u64>, D::Error> {
    let frames = Vec::<AnyScalar<WholeNumber<1, { 1 << 40 }>>>::deserialize(from)?;
    let frames: Vec<u64> = frames.into_iter().map(|of| of.0.0).collect();
    let fault = match frames.windows(2).find(|pair| pair[0] >= pair[1]) {
        Some(pair) => format!(
            "frame {} is not after the one before it; write the frames in order, each once",
            pair[1]
        ),
        None if (1..=100_000).contains(&frames.len()) => return Ok(frames),
        None => format!("{} frames; write 1 to 100000 of them", frames.len()),
    };
    Err(D::Error::custom(fault))
}

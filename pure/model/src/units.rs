//! Quantities that cannot be mixed up: an amount of data, a rate, a span of time.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub};
use std::str::FromStr;

/// The quantities: the printed units of each, each `step` times the one before; what is expected where one is read, and
/// the suffixes with their factors.
macro_rules! quantities {
    ($(
        $(#[$doc:meta])*
        $quantity:ident, $step:literal: $units:expr,
        $expected:literal, $same:expr, $suffixes:expr;
    )*) => {$(
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        pub struct $quantity(pub u64);

        impl Add for $quantity {
            type Output = $quantity;
            fn add(self, other: $quantity) -> $quantity {
                $quantity(self.0.saturating_add(other.0))
            }
        }
        impl Sub for $quantity {
            type Output = $quantity;
            fn sub(self, other: $quantity) -> $quantity {
                $quantity(self.0.saturating_sub(other.0))
            }
        }
        impl AddAssign for $quantity {
            fn add_assign(&mut self, other: $quantity) {
                *self = *self + other;
            }
        }
        impl Sum for $quantity {
            fn sum<I: Iterator<Item = $quantity>>(all: I) -> $quantity {
                all.fold($quantity(0), Add::add)
            }
        }

        impl fmt::Display for $quantity {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&printed(self.0, $step, $units))
            }
        }

        impl FromStr for $quantity {
            type Err = String;

            fn from_str(text: &str) -> Result<$quantity, String> {
                parsed(text, $expected, $same, $suffixes).map($quantity)
            }
        }
    )*};
}

quantities! {
    /// An amount of data in bytes. Reads and prints binary multiples: `64K` is 65,536 bytes, as in iperf3.
    Bytes, 1024.0: &["B", "KiB", "MiB", "GiB", "TiB", "PiB"],
    "an amount of data (like 65536, 64K, 8M, 1.5G)", str::eq_ignore_ascii_case,
    &[
        (" B", 1.0),
        ("K KiB KB", 1024.0),
        ("M MiB MB", 1_048_576.0),
        ("G GiB GB", 1_073_741_824.0),
        ("T TiB TB", 1_099_511_627_776.0),
    ];

    /// A rate in bits per second. Reads and prints decimal multiples: `1G` is 1,000,000,000 bit/s.
    BitRate, 1000.0: &["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"],
    "a rate in bits per second (like 100M, 2.5G)", str::eq_ignore_ascii_case,
    &[
        (" bit/s bps bit", 1.0),
        ("K Kbit/s Kbps Kbit", 1e3),
        ("M Mbit/s Mbps Mbit", 1e6),
        ("G Gbit/s Gbps Gbit", 1e9),
        ("T Tbit/s Tbps Tbit", 1e12),
    ];

    /// A span of time in nanoseconds.
    Nanos, 1000.0: &["ns", "us", "ms", "s"],
    "a time (like 10, 10s, 250ms, 2m, 1d)", |a: &str, b: &str| a == b,
    &[
        (" s", 1e9),
        ("ms", 1e6),
        ("us", 1e3),
        ("ns", 1.0),
        ("m min", 60e9),
        ("h", 3600e9),
        ("d", 86_400e9),
    ];
}

impl Bytes {
    /// The average rate of moving this much in `span`; zero for an empty span.
    pub fn per(self, span: Nanos) -> BitRate {
        if span.0 == 0 {
            return BitRate(0);
        }
        let bits = u128::from(self.0) * 8 * 1_000_000_000;
        BitRate(u64::try_from(bits / u128::from(span.0)).unwrap_or(u64::MAX))
    }

    /// The difference to an earlier reading of the same counter; zero if the counter went back.
    pub fn since(self, earlier: Bytes) -> Bytes {
        Bytes(self.0.saturating_sub(earlier.0))
    }
}

impl BitRate {
    /// The data moved in `span` at this rate: with a round-trip time, the bandwidth-delay product.
    pub fn bytes_in(self, span: Nanos) -> Bytes {
        let bytes = u128::from(self.0) * u128::from(span.0) / 8_000_000_000;
        Bytes(u64::try_from(bytes).unwrap_or(u64::MAX))
    }
}

impl Nanos {
    /// From whole microseconds, the kernel's unit for RTT and limited times.
    pub const fn from_micros(us: u64) -> Nanos {
        Nanos(us.saturating_mul(1_000))
    }

    /// From whole milliseconds.
    pub const fn from_millis(ms: u64) -> Nanos {
        Nanos(ms.saturating_mul(1_000_000))
    }

    /// From whole seconds.
    pub const fn from_secs(s: u64) -> Nanos {
        Nanos(s.saturating_mul(1_000_000_000))
    }

    /// The beginning of a day in UTC, since 1970-01-01; `None` for a date that does not exist or lies outside 1970 to
    /// 2500.
    pub fn of_day(year: u64, month: u64, day: u64) -> Option<Nanos> {
        let is_leap = |year: u64| {
            year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
        };
        let february = 28 + u64::from(is_leap(year));
        let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let before = usize::try_from(month.checked_sub(1)?).ok()?;
        let in_month = *months.get(before)?;
        if !(1970..=2500).contains(&year) || !(1..=in_month).contains(&day) {
            return None;
        }
        let years: u64 = (1970..year).map(|y| 365 + u64::from(is_leap(y))).sum();
        let days = years + months[..before].iter().sum::<u64>() + day - 1;
        Some(Nanos::from_secs(days * 86_400))
    }

    /// In seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The difference to an earlier moment; zero if it is not earlier.
    pub fn since(self, earlier: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
}

impl From<std::time::Duration> for Nanos {
    fn from(d: std::time::Duration) -> Nanos {
        Nanos(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Nanos> for std::time::Duration {
    fn from(n: Nanos) -> std::time::Duration {
        std::time::Duration::from_nanos(n.0)
    }
}

/// Three significant digits with the unit: `941 Mbit/s`, `1.45 GiB`, `12.4 ms`; a few bytes as a plain number.
fn printed(number: u64, step: f64, units: &[&str]) -> String {
    if units[0] == "B" && number < 1024 {
        return format!("{number} B");
    }
    let (mut value, mut at) = (number as f64, 0);
    // 999.5 would print as "1000" in three digits, so it moves up first.
    while value >= step - 0.5 && at + 1 < units.len() {
        value /= step;
        at += 1;
    }
    let decimals = match value {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.decimals$} {}", units[at])
}

/// Splits `1.5M` into 1.5 and `M`, and multiplies by the factor of that suffix.
fn parsed(
    text: &str,
    expected: &str,
    same: fn(&str, &str) -> bool,
    factors: &[(&str, f64)],
) -> Result<u64, String> {
    let fail = || format!("'{text}' is not {expected}");
    let trimmed = text.trim();
    let split = trimmed
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(trimmed.len());
    let (digits, suffix) = trimmed.split_at(split);
    let known = |(names, _): &&(&str, f64)| names.split(' ').any(|name| same(name, suffix.trim()));
    let (_, factor) = *factors.iter().find(known).ok_or_else(fail)?;
    if let Ok(whole) = digits.parse::<u64>()
        && factor >= 1.0
    {
        return whole.checked_mul(factor as u64).ok_or_else(fail);
    }
    let value = digits.parse::<f64>().map_err(|_| fail())? * factor;
    if !value.is_finite() || value >= u64::MAX as f64 {
        return Err(fail());
    }
    Ok(value.round() as u64)
}

/// A share as a person writes it: `5%`, `5 %` or `0.05`.
///
/// # Errors
/// In words, if it is neither.
pub fn parse_share(text: &str) -> Result<f64, String> {
    let (digits, scale) = match text.trim().strip_suffix('%') {
        Some(percent) => (percent.trim(), 100.0),
        None => (text.trim(), 1.0),
    };
    let share = digits.parse::<f64>().ok().filter(|share| share.is_finite());
    let wrong = || format!("'{text}' is no share; write per cent (5%) or a number (0.05)");
    share.map(|share| share / scale).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rates_and_products() {
        assert_eq!(
            Bytes(125_000_000).per(Nanos::from_secs(1)),
            BitRate(1_000_000_000)
        );
        assert_eq!(Bytes(1).per(Nanos(0)), BitRate(0));
        let bdp = BitRate(1_000_000_000).bytes_in(Nanos::from_millis(50));
        assert_eq!(bdp, Bytes(6_250_000));
    }

    #[test]
    fn printed_in_three_digits() {
        for (rate, text) in [
            (941_482_000, "941 Mbit/s"),
            (999_600_000, "1.00 Gbit/s"),
            (12_345, "12.3 kbit/s"),
            (7, "7.00 bit/s"),
        ] {
            assert_eq!(BitRate(rate).to_string(), text);
        }
        assert_eq!(Bytes(8 << 20).to_string(), "8.00 MiB");
        assert_eq!(Bytes(512).to_string(), "512 B");
        assert_eq!(Nanos(12_400_000).to_string(), "12.4 ms");
    }

    #[test]
    fn read_as_a_person_writes_them() {
        assert_eq!("8M".parse(), Ok(Bytes(8 << 20)));
        assert_eq!("1.5K".parse(), Ok(Bytes(1536)));
        assert_eq!("2.5G".parse(), Ok(BitRate(2_500_000_000)));
        assert_eq!("100 Mbit/s".parse(), Ok(BitRate(100_000_000)));
        assert_eq!("250ms".parse(), Ok(Nanos::from_millis(250)));
        assert_eq!("10".parse(), Ok(Nanos::from_secs(10)));
        for bad in ["", "x", "-1", "1..2", "8Q", "1e400", "99999999999999999999"] {
            assert!(bad.parse::<Bytes>().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn a_rate_over_its_own_span_gives_the_bytes_back(bytes in 0u64..1 << 50, ms in 1u64..1 << 20) {
            let span = Nanos::from_millis(ms);
            let back = Bytes(bytes).per(span).bytes_in(span);
            // The rate is cut to whole bits per second: at most one bit a second is lost.
            prop_assert!(bytes - back.0 <= ms / 8000 + 1);
        }

        #[test]
        fn reading_never_panics(text in ".{0,20}") {
            let _ = (text.parse::<Bytes>(), text.parse::<BitRate>(), text.parse::<Nanos>());
        }
    }

    #[test]
    fn shares_as_a_person_writes_them() {
        assert_eq!(parse_share("5%"), Ok(0.05));
        assert_eq!(parse_share(" 2.5 % "), Ok(0.025));
        assert_eq!(parse_share("0.05"), Ok(0.05));
        assert!(parse_share("five").is_err() && parse_share("inf").is_err());
    }
}

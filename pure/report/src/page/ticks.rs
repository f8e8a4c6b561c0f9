//! Where an axis has its marks, and how a value is written there.

use super::{Axis, Scale};
use crate::words::{minute, utc};
use model::Nanos;

/// The unit of an axis of moments, in seconds since 1970-01-01 UTC.
pub(crate) const DATE: &str = "date";

/// Distances between the marks of such an axis, in seconds: from a second to a year.
pub(super) const DATE_STEPS: [f64; 20] = [
    1.0,
    2.0,
    5.0,
    10.0,
    30.0,
    60.0,
    120.0,
    300.0,
    900.0,
    3600.0,
    7200.0,
    21_600.0,
    43_200.0,
    86_400.0,
    172_800.0,
    604_800.0,
    1_209_600.0,
    2_592_000.0,
    7_776_000.0,
    31_536_000.0,
];

/// An axis laid over a length of the picture.
pub(crate) struct Ruler {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    is_logarithmic: bool,
}

impl Ruler {
    /// Covers all finite `values`, those above zero if it goes by decades, on the way `from` one place `to` another.
    pub fn over(values: impl Iterator<Item = f64>, scale: Scale, from: f64, to: f64) -> Ruler {
        let is_logarithmic = scale == Scale::Logarithmic;
        let (low, high) = values
            .filter(|v| v.is_finite() && (!is_logarithmic || *v > 0.0))
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| {
                (low.min(v), high.max(v))
            });
        let (low, high) = match scale {
            _ if low > high => (if is_logarithmic { 0.1 } else { 0.0 }, 1.0),
            Scale::FromZero => (low.min(0.0), high.max(0.0)),
            Scale::Fitted | Scale::Logarithmic => (low, high),
        };
        // One value alone has no extent of its own.
        let (low, high) = match (low < high, is_logarithmic) {
            (true, _) => (low, high),
            (false, true) => (low / 2.0, high * 2.0),
            (false, false) => (low, high + high.abs().max(1.0)),
        };
        Ruler {
            low,
            high,
            from,
            to,
            is_logarithmic,
        }
    }

    /// The same with some air at the upper end.
    pub(crate) fn with_air(mut self) -> Ruler {
        match self.is_logarithmic {
            true => self.high *= (self.high / self.low).powf(0.04),
            false => self.high += (self.high - self.low) * 0.05,
        }
        self
    }

    /// The place of a value; `None` of one that the axis cannot hold.
    pub fn at(&self, value: f64) -> Option<f64> {
        let share = match self.is_logarithmic {
            true => (value / self.low).ln() / (self.high / self.low).ln(),
            false => (value - self.low) / (self.high - self.low),
        };
        (share.is_finite() && (!self.is_logarithmic || value > 0.0))
            .then_some(self.from + share * (self.to - self.from))
    }

    /// The place of a value that the axis can hold, and its beginning for any other.
    pub fn place(&self, value: f64) -> f64 {
        self.at(value).unwrap_or(self.from)
    }

    /// The place where the axis begins: of zero, where it has that.
    pub(crate) fn foot(&self) -> f64 {
        match self.is_logarithmic {
            true => self.from,
            false => self.at(self.low.max(0.0)).unwrap_or(self.from),
        }
    }

    /// About `count` round values, ascending.
    pub fn ticks(&self, unit: &str, count: f64) -> Vec<f64> {
        if self.is_logarithmic {
            return self.decades(unit);
        }
        let rough = (self.high - self.low) / count;
        let step = match unit {
            // Bytes go by powers of two.
            "B" => 2f64.powf(rough.log2().ceil()),
            DATE => DATE_STEPS
                .into_iter()
                .find(|step| *step >= rough)
                .unwrap_or(315_360_000.0),
            _ => {
                let power = 10f64.powf(rough.log10().floor());
                let round = [1.0, 2.0, 5.0].map(|m| m * power);
                round
                    .into_iter()
                    .find(|step| *step >= rough)
                    .unwrap_or(10.0 * power)
            }
        };
        let first = (self.low / step - 1e-9).ceil() as i64;
        let last = (self.high / step + 1e-9).floor() as i64;
        (first..=last.min(first + 30))
            .map(|n| n as f64 * step)
            .collect()
    }

    /// Powers of ten, over less than two decades 2 and 5 of each as well; of bytes, about six powers of two.
    fn decades(&self, unit: &str) -> Vec<f64> {
        let base: f64 = if unit == "B" { 2.0 } else { 10.0 };
        let (first, last) = (self.low.log(base).floor(), self.high.log(base).ceil());
        let powers = last - first;
        let (by, parts): (f64, &[f64]) = match powers {
            powers if unit == "B" => ((powers / 6.0).ceil().max(1.0), &[1.0]),
            few if few <= 2.0 => (1.0, &[1.0, 2.0, 5.0]),
            _ => (1.0, &[1.0]),
        };
        let steps = ((first / by).floor() as i32)..=((last / by).ceil() as i32);
        steps
            .flat_map(|step| {
                parts
                    .iter()
                    .map(move |part| part * base.powf(f64::from(step) * by))
            })
            .filter(|v| (self.low..=self.high).contains(v))
            .collect()
    }
}

/// The marks of an axis in words, and its title with the unit that all of them share. On a logarithmic axis each mark
/// has a unit of its own.
pub(super) fn marks(axis: &Axis, ticks: &[f64]) -> (String, Vec<String>) {
    let label = &axis.label;
    let each = |text: &dyn Fn(f64) -> String| ticks.iter().map(|tick| text(*tick)).collect();
    let step = ticks.windows(2).map(|pair| pair[1] - pair[0]).next();
    let at = |seconds: f64| utc(Nanos((seconds.max(0.0) * 1e9) as u64));
    match (axis.unit, axis.scale, step) {
        (DATE, _, Some(..60.0)) => {
            let day = ticks.first().map(|tick| at(*tick)[..10].to_owned());
            let day = day.unwrap_or_default();
            (
                format!("{label}, {day}"),
                each(&|tick| at(tick)[11..19].to_owned()),
            )
        }
        (DATE, _, Some(86_400.0..)) => (label.clone(), each(&|tick| at(tick)[..10].to_owned())),
        (DATE, ..) => (label.clone(), each(&|tick| at(tick)[5..16].to_owned())),
        ("", ..) | (_, Scale::Logarithmic, _) => {
            (label.clone(), each(&|tick| quantity(tick, axis.unit)))
        }
        (unit, ..) => {
            let most = ticks
                .iter()
                .fold(0.0, |most: f64, tick| most.max(tick.abs()));
            let (divisor, prefix) = prefix(most, unit);
            let number = |tick: f64| (tick / divisor * 1e6).round() / 1e6;
            let title = format!("{label} ({prefix}{})", unit.trim());
            (title, each(&|tick| number(tick).to_string()))
        }
    }
}

/// The prefix for a value of this unit, and what it stands for.
fn prefix(value: f64, unit: &str) -> (f64, &'static str) {
    let (base, smaller, larger): (f64, &[&str], &[&str]) = match unit {
        "B" => (1024.0, &[], &["Ki", "Mi", "Gi", "Ti"]),
        "s" => (1000.0, &["m", "\u{b5}", "n"], &[]),
        unit if unit.starts_with(' ') => (1000.0, &[], &[]),
        _ => (1000.0, &[], &["k", "M", "G", "T"]),
    };
    let (mut divisor, mut prefix) = (1.0, "");
    for larger in larger {
        if (value / divisor).abs() < base {
            break;
        }
        (divisor, prefix) = (divisor * base, larger);
    }
    for smaller in smaller {
        // 999.9995 of a prefix is written as 1 of the next.
        if value == 0.0 || (value / divisor).abs() >= 0.9995 {
            break;
        }
        (divisor, prefix) = (divisor / base, smaller);
    }
    (divisor, prefix)
}

/// A value with the prefix that fits its unit: `200 Mbit/s`, `64 KiB`, `1.5 ms`, `30 %`.
pub fn quantity(value: f64, unit: &str) -> String {
    if unit == DATE {
        return minute(Nanos((value.max(0.0) * 1e9) as u64));
    }
    let (divisor, prefix) = prefix(value, unit);
    let scaled = value / divisor;
    let decimals = match scaled.abs() {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 0.1 => 2,
        _ => 4,
    };
    let digits = format!("{scaled:.decimals$}");
    let digits = match digits.contains('.') {
        true => digits.trim_end_matches('0').trim_end_matches('.'),
        false => &digits,
    };
    match (unit, scaled == 0.0) {
        ("", _) | (_, true) => format!("{digits} {prefix}").trim_end().to_owned(),
        (unit, _) if unit.starts_with(' ') => format!("{digits}{unit}"),
        _ => format!("{digits} {prefix}{unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_with_the_prefix_that_fits() {
        for (value, unit, text) in [
            (0.0, "bit/s", "0"),
            (2e8, "bit/s", "200 Mbit/s"),
            (1.25e9, "bit/s", "1.25 Gbit/s"),
            (65536.0, "B", "64 KiB"),
            (1e6, "B", "977 KiB"),
            (0.0015, "s", "1.5 ms"),
            (0.001, "s", "1 ms"),
            (12e-6, "s", "12 \u{b5}s"),
            (90.0, "s", "90 s"),
            (30.0, " %", "30 %"),
            (1234.0, "", "1.23 k"),
            (-5.0, "", "-5"),
            (0.25, "/s", "0.25 /s"),
            (1_795_132_800.0, "date", "2026-11-20 00:00"),
        ] {
            assert_eq!(quantity(value, unit), text);
        }
    }

    #[test]
    fn marks_are_round_and_within() {
        let ticks = |low, high, scale, unit| {
            Ruler::over([low, high].into_iter(), scale, 0.0, 100.0).ticks(unit, 5.0)
        };
        assert_eq!(
            ticks(3.0, 10.0, Scale::FromZero, "s"),
            [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
        );
        assert_eq!(
            ticks(0.0, 300_000.0, Scale::FromZero, "B"),
            [0.0, 65536.0, 131_072.0, 196_608.0, 262_144.0]
        );
        assert_eq!(ticks(1e-5, 1e-2, Scale::Logarithmic, "s").len(), 4);
        assert_eq!(ticks(2.0, 2.0, Scale::Logarithmic, ""), [1.0, 2.0]);
        assert_eq!(
            ticks(60e3, 17e6, Scale::Logarithmic, "B"),
            [65_536.0, 262_144.0, 1_048_576.0, 4_194_304.0, 16_777_216.0]
        );
        assert!(ticks(f64::NAN, f64::INFINITY, Scale::Fitted, "").len() > 3);
        assert!(ticks(7.0, 7.0, Scale::Fitted, "").contains(&8.0));
        let days = ticks(1_795_140_000.0, 1_795_500_000.0, Scale::Fitted, DATE);
        assert_eq!(
            days,
            [
                1_795_219_200.0,
                1_795_305_600.0,
                1_795_392_000.0,
                1_795_478_400.0
            ]
        );
    }

    #[test]
    fn marks_share_the_unit_of_the_title() {
        let marks = |label: &str, unit, scale, ticks: &[f64]| {
            let (title, marks) = marks(&Axis::new(label, unit, scale), ticks);
            format!("{title}: {}", marks.join(" "))
        };
        let zero = Scale::FromZero;
        let start = 1_795_132_800.0;
        for (found, wanted) in [
            (
                marks("goodput", "bit/s", zero, &[0.0, 5e8, 1e9]),
                "goodput (Gbit/s): 0 0.5 1",
            ),
            (
                marks("time", "s", zero, &[0.0, 0.5, 1.0]),
                "time (s): 0 0.5 1",
            ),
            (
                marks("RTT", "s", zero, &[0.0, 0.001, 0.002]),
                "RTT (ms): 0 1 2",
            ),
            (marks("share", " %", zero, &[0.0, 50.0]), "share (%): 0 50"),
            (
                marks("segments", "", zero, &[0.0, 2000.0]),
                "segments: 0 2 k",
            ),
            (
                marks("time", "s", Scale::Logarithmic, &[1e-3, 1.0]),
                "time: 1 ms 1 s",
            ),
            (
                marks("start (UTC)", DATE, zero, &[start, start + 5.0]),
                "start (UTC), 2026-11-20: 00:00:00 00:00:05",
            ),
            (
                marks("start (UTC)", DATE, zero, &[start, start + 7200.0]),
                "start (UTC): 11-20 00:00 11-20 02:00",
            ),
            (
                marks("start (UTC)", DATE, zero, &[start, start + 86_400.0]),
                "start (UTC): 2026-11-20 2026-11-21",
            ),
        ] {
            assert_eq!(found, wanted);
        }
    }

    #[test]
    fn what_an_axis_cannot_hold_has_no_place() {
        let by_decades = Ruler::over([1.0, 100.0].into_iter(), Scale::Logarithmic, 0.0, 100.0);
        assert_eq!(by_decades.at(10.0), Some(50.0));
        assert_eq!((by_decades.at(0.0), by_decades.at(-1.0)), (None, None));
        let even = Ruler::over([-5.0, 5.0].into_iter(), Scale::FromZero, 100.0, 0.0);
        assert_eq!((even.foot(), even.at(f64::NAN)), (50.0, None));
    }
}

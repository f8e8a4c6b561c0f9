//! Times as perfSONAR writes them (ISO 8601).

use model::Nanos;
use toml::value::{Datetime, Offset};

/// A duration without months and years: `PT4H`, `P1DT30M`.
pub fn iso_duration(text: &str) -> Option<Nanos> {
    let rest = text.strip_prefix('P')?;
    let (days, times) = rest.split_once('T').unwrap_or((rest, ""));
    let mut total = None;
    for (part, units) in [
        (days, &[('W', 604_800), ('D', 86_400)][..]),
        (times, &[('H', 3600), ('M', 60), ('S', 1)]),
    ] {
        let mut part = part;
        for (unit, seconds) in units {
            if let Some((number, after)) = part.split_once(*unit) {
                let number: f64 = number
                    .parse()
                    .ok()
                    .filter(|n: &f64| *n >= 0.0 && *n < 1e9)?;
                let more = Nanos((number * f64::from(*seconds) * 1e9) as u64);
                total = Some(total.unwrap_or(Nanos(0)) + more);
                part = after;
            }
        }
        if !part.is_empty() {
            return None;
        }
    }
    total
}

/// A moment since 1970, with its offset from UTC: `2026-11-28T15:00:00Z`, `2026-11-28T10:00:00-05:00`.
pub fn iso_moment(text: &str) -> Option<Nanos> {
    moment(&text.parse().ok()?)
}

pub(crate) fn moment(at: &Datetime) -> Option<Nanos> {
    let (date, time) = (at.date?, at.time?);
    let minutes = match at.offset? {
        Offset::Z => 0,
        Offset::Custom { minutes } => minutes,
    };
    let day = Nanos::of_day(date.year.into(), date.month.into(), date.day.into())?;
    let seconds =
        u64::from(time.hour) * 3600 + u64::from(time.minute) * 60 + u64::from(time.second);
    let local = (day + Nanos::from_secs(seconds)).0;
    let offset = u64::from(minutes.unsigned_abs()) * 60_000_000_000;
    let utc = match minutes > 0 {
        true => local.checked_sub(offset)?,
        false => local + offset,
    };
    Some(Nanos(utc + u64::from(time.nanosecond)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let seconds = |text: &str| iso_duration(text).map(|span| span.0 / 1_000_000_000);
        assert_eq!(seconds("PT20S"), Some(20));
        assert_eq!(seconds("PT0S"), Some(0));
        assert_eq!(seconds("P1DT30M"), Some(88_200));
        assert_eq!(seconds("P1W"), Some(604_800));
        for bad in ["", "P", "PT", "4H", "PT4", "P1M", "PT-1S", "PTnanS"] {
            assert_eq!(seconds(bad), None, "{bad}");
        }
    }

    #[test]
    fn moments_of_any_zone() {
        let at = |text: &str| iso_moment(text).map(|at| at.0);
        assert_eq!(at("1970-01-02T00:00:00Z"), Some(86_400_000_000_000));
        assert_eq!(at("1970-01-02T01:30:00+01:30"), Some(86_400_000_000_000));
        assert_eq!(at("1970-01-01T19:00:00.5-05:00"), Some(86_400_500_000_000));
        for bad in [
            "",
            "1970-01-02",
            "1970-01-02T00:00:00",
            "1970-01-01T00:00:00+01:00",
            "soon",
        ] {
            assert_eq!(at(bad), None, "{bad}");
        }
    }
}

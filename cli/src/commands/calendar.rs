//! `linerate calendar`: what is booked on this host.

use crate::prelude::*;
use clap::Subcommand;
use engine::clock::{day, unix_time};
use engine::host_calendar::{HostCalendar, HostSlot, RENEW_EVERY};
use report::words::{escape_sentence, shown, utc, wrap};
use std::fmt::Write as _;

const DAY: Nanos = Nanos::from_secs(86_400);
/// The longest hold, and how far ahead one may begin.
const LONGEST: Nanos = Nanos(7 * DAY.0);
const FARTHEST: Nanos = Nanos(365 * DAY.0);

/// List what is booked on this host, or hold it for a while without measurements
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate calendar list
  linerate calendar hold 30m                         from now, or once it is free
  linerate calendar hold 2h --at '2026-12-01 22:00' --note backup
  linerate calendar release

A measurement that would overlap a hold waits up to 2 minutes for its end, then
ends with status 3 and the time of that end. Every agent on this host and every
measurement from here is booked while its legs run; docs/calendar.md has the
limits of that.")]
pub struct CalendarArgs {
    #[command(subcommand)]
    action: CalendarAction,
}

#[derive(Subcommand)]
enum CalendarAction {
    List(CalendarList),
    Hold(CalendarHold),
    Release(CalendarRelease),
}

/// List what is booked from now on
#[derive(Args)]
struct CalendarList {
    /// An array of JSON objects instead of a table
    #[arg(short = 'J', long)]
    json: bool,
}

/// Hold the whole host for a span: no measurement by linerate runs in it
#[derive(Args)]
struct CalendarHold {
    /// How long: 90s, 30m, 2h; at most 7 days
    #[arg(value_name = "SPAN", value_parser = span)]
    span: Nanos,
    /// When it begins (UTC): 22:00, the next one, or '2026-12-01 22:00' [default: as soon as the host is free]
    #[arg(long, value_name = "TIME", value_parser = |text: &str| time(text, unix_time()))]
    at: Option<Nanos>,
    /// What for
    #[arg(long, value_name = "TEXT", default_value = "maintenance", value_parser = note)]
    note: String,
    /// A JSON object instead of a sentence
    #[arg(short = 'J', long)]
    json: bool,
}

/// Release a hold
#[derive(Args)]
struct CalendarRelease {
    /// Its name or the first digits of it [default: the only hold]
    name: Option<String>,
}

impl CalendarArgs {
    pub fn run(&self) -> Result<Exit> {
        let calendar = HostCalendar::of_this_host();
        let text = match &self.action {
            CalendarAction::List(list) => {
                let slots = calendar.slots()?;
                match list.json {
                    true => report::json::pretty(&slots),
                    false => text(&slots),
                }
            }
            CalendarAction::Hold(hold) => {
                let user = ["USER", "LOGNAME"]
                    .into_iter()
                    .find_map(|name| std::env::var(name).ok());
                let user =
                    user.unwrap_or_else(|| format!("user {}", sys::process::effective_user()));
                let slot = calendar.hold(hold.span, hold.at, &user, &hold.note)?;
                match hold.json {
                    true => report::json::pretty(&slot),
                    false => format!(
                        "held from {} until {}\n'linerate calendar release {}' releases it\n",
                        utc(slot.starts),
                        utc(slot.ends),
                        shown(&slot.slot)
                    ),
                }
            }
            CalendarAction::Release(release) => {
                let slot = calendar.release(release.name.as_deref())?;
                let what = escape_sentence(&slot.what);
                let mut text = format!("released: {what} until {}\n", utc(slot.ends));
                if slot.starts <= unix_time() {
                    let soon = RENEW_EVERY.as_secs();
                    let _ = writeln!(text, "a run in it ends within {soon} s");
                }
                text
            }
        };
        out::result(&text)
    }
}

fn text(slots: &[HostSlot]) -> String {
    if slots.is_empty() {
        return "nothing is booked on this host\n".to_owned();
    }
    let width = stdout_style().width;
    let mut text = format!("{:21}{:21}{:10}what\n", "from (UTC)", "until", "hold");
    for slot in slots {
        let [starts, ends] = [slot.starts, slot.ends].map(|at| utc(at).replace(" UTC", ""));
        let (name, what) = match slot.held {
            true => (shown(&slot.slot), "the whole host: "),
            false => (String::new(), ""),
        };
        let what = escape_sentence(&format!("{what}{} ({})", slot.what, slot.who));
        let columns = format!("{starts:21}{ends:21}{name:10}");
        text += &wrap(&what, width, &columns, &" ".repeat(columns.len()));
        text.push('\n');
    }
    text
}

fn span(text: &str) -> Result<Nanos, String> {
    let span: Nanos = text.parse()?;
    match (Nanos::from_secs(1)..=LONGEST).contains(&span) {
        true => Ok(span),
        false => Err("1s to 7 days (168h) are possible".to_owned()),
    }
}

fn note(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("it is empty".to_owned()),
        text if text.chars().count() > 64 => Err("at most 64 characters are possible".to_owned()),
        text => Ok(text.to_owned()),
    }
}

/// A moment in UTC: `HH:MM`, the next one, or `YYYY-MM-DD HH:MM`.
fn time(text: &str, now: Nanos) -> Result<Nanos, String> {
    let of_day = |text: &str| {
        let (hour, minute) = text.split_once(':')?;
        let number = |text: &str, below: u64| text.parse().ok().filter(|n: &u64| *n < below);
        Some(Nanos::from_secs(
            number(hour, 24)? * 3600 + number(minute, 60)? * 60,
        ))
    };
    let at = match text.trim().split_once([' ', 'T']) {
        Some((date, time)) => day(date).zip(of_day(time)).map(|(day, time)| day + time),
        None => of_day(text.trim()).map(|time| {
            let today = Nanos(now.0 - now.0 % DAY.0) + time;
            if today < now { today + DAY } else { today }
        }),
    };
    match at {
        None => Err("write 22:00, or '2026-12-01 22:00' (UTC)".to_owned()),
        Some(at) if at < now => Err(format!("{} is over", utc(at))),
        Some(at) if at > now + FARTHEST => Err("at most a year ahead is possible".to_owned()),
        Some(at) => Ok(at),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_of_a_hold() {
        let now = day("2026-11-27").unwrap() + Nanos::from_secs(7 * 3600);
        let at = |text: &str| time(text, now).map(utc);
        let is = |text: &str| Ok(format!("{text} UTC"));
        assert_eq!(at("22:00"), is("2026-11-27 22:00:00"));
        assert_eq!(at("06:59"), is("2026-11-28 06:59:00"));
        assert_eq!(at("2026-12-01 22:05"), is("2026-12-01 22:05:00"));
        assert_eq!(at("2026-12-01T22:05"), is("2026-12-01 22:05:00"));
        assert!(at("2026-11-27 06:59").unwrap_err().ends_with("is over"));
        for bad in [
            "",
            "24:00",
            "10:60",
            "10",
            "2026-13-01 10:00",
            "tomorrow",
            "2028-01-01 10:00",
        ] {
            assert!(at(bad).is_err(), "{bad}");
        }
    }
}

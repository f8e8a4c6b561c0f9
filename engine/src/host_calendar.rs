//! The calendar of this host: each leg that it plays has a unit of it, so that the processes that measure here at the
//! same time, as agents or from here, respect one limit and the times for which the whole host is held.

use crate::clock::wait_until;
use crate::prelude::*;
use crate::tuning;
use calendar::{Calendar, Lite, Milliseconds, SlotRequest};
use report::words::utc;
use serde::Serialize;

/// A leg takes a unit of it.
const HOST: &str = "host";

/// Who has the whole host has this beside all units of it, however many there are.
const WHOLE: &str = "whole";

/// Its units where no server has set them: the default of `linerate serve --clients`.
const UNITS: u32 = 4;

/// A process that is killed keeps its unit for so long at most.
const TTL: Milliseconds = 10_000;

/// How often a leg under way renews its hold, and notices that it was released: twice may fail.
pub const RENEW_EVERY: Duration = Duration::from_secs(3);

/// What is set aside for the beginning and the end of a leg.
const AROUND_A_LEG: Milliseconds = 3_000;

/// How far ahead a free time is looked for.
const AHEAD: Milliseconds = 24 * 3_600_000;

/// How long a busy host is waited for.
pub const BUSY_FOR: Duration = Duration::from_secs(120);

/// Where the calendar of this host is, or why there is none.
#[derive(Clone)]
pub struct HostCalendar(Result<PathBuf, String>);

impl HostCalendar {
    /// Beside the directory of the journals of changed settings, in a directory of its own: a server may write there
    /// without a right to the journals.
    pub fn of_this_host() -> HostCalendar {
        let state = tuning::state().map_err(|error| error.to_string());
        HostCalendar(state.map(|state| state.with_file_name("calendar").join("calendar.db")))
    }

    /// In this directory.
    #[cfg(test)]
    pub fn in_directory(directory: &Path) -> HostCalendar {
        HostCalendar(Ok(directory.join("calendar/calendar.db")))
    }

    /// The directory of its files, where there is one.
    pub fn directory(&self) -> Option<PathBuf> {
        let path = self.0.as_ref().ok()?;
        path.parent().map(Path::to_owned)
    }

    /// Has as many legs at once as a server has clients.
    pub fn set_clients(&self, clients: u32) -> Result<()> {
        Ok(self.open()?.set_units(now(), HOST, clients)?)
    }

    /// What is booked from now on, by its beginning.
    pub fn slots(&self) -> Result<Vec<HostSlot>> {
        match &self.0 {
            Ok(path) if !path.exists() => Ok(Vec::new()),
            _ => Ok(HostSlot::all(&mut self.open()?)?),
        }
    }

    /// Holds the whole host for a span: from then, or from the first time at which it is free for so long.
    ///
    /// # Errors
    /// If something else is booked then: what, and the first free time.
    pub fn hold(&self, span: Nanos, at: Option<Nanos>, who: &str, what: &str) -> Result<HostSlot> {
        let mut calendar = self.open()?;
        let length = milliseconds(span);
        // Another process may be faster.
        for _ in 0..10 {
            let now = now();
            let slots = HostSlot::all(&mut calendar)?;
            let from = at.unwrap_or(moment(now));
            let first = first_free(&slots, from, span);
            if let Some(other) = slots.iter().find(|slot| slot.overlaps(from, span))
                && at.is_some()
            {
                bail!(Refusal::usage(format!(
                    "this host is booked from {} until {} ({}): {span} are free from {}; choose that time or a later one",
                    utc(other.starts),
                    utc(other.ends),
                    other.what,
                    utc(first)
                )));
            }
            let starts = milliseconds(first);
            let wanted = SlotRequest {
                slot: new_slot()?,
                starts,
                ends: starts + length,
                expires: None,
                who: who.to_owned(),
                what: what.to_owned(),
                resources: [HOST, WHOLE].map(str::to_owned).to_vec(),
            };
            if calendar.take_whole(now, &wanted)? {
                let mut slots = HostSlot::all(&mut calendar)?.into_iter();
                let held = slots.find(|slot| slot.slot == wanted.slot);
                return held.context("the hold was released at once");
            }
        }
        bail!("measurements on this host begin all the time: try again, or name a time with --at")
    }

    /// Books the whole host for the slot of a coordinator: from so much later on for a span, until it expires. Or when
    /// the host is free for so long, and why not then.
    pub fn book_slot(
        &self,
        slot: &str,
        [after, span, ttl]: [Nanos; 3],
        who: &str,
        what: &str,
    ) -> Result<Result<(), (Nanos, String)>> {
        let mut calendar = self.open()?;
        let now = now();
        let starts = now + milliseconds(after);
        let wanted = SlotRequest {
            slot: slot.to_owned(),
            starts,
            ends: starts + milliseconds(span).max(1),
            expires: Some(now + milliseconds(ttl).max(1)),
            who: who.to_owned(),
            what: what.to_owned(),
            resources: [HOST, WHOLE].map(str::to_owned).to_vec(),
        };
        if calendar.take_whole(now, &wanted)? {
            return Ok(Ok(()));
        }
        let slots = HostSlot::all(&mut calendar)?;
        let (now, starts) = (moment(now), moment(starts));
        let first = first_free(&slots, starts, span).max(starts + Nanos::from_millis(1));
        let other = slots.iter().find(|slot| slot.overlaps(starts, span));
        let why = other.map_or_else(
            || "another booking was faster".to_owned(),
            |other| {
                let (from, until) = (utc(other.starts), utc(other.ends));
                format!("it is booked from {from} until {until} ({})", other.what)
            },
        );
        Ok(Err((first.since(now), why)))
    }

    /// Keeps a slot that is booked, as long as `keep` holds, and releases it then. `None` if it is over.
    pub fn keep_slot(
        &self,
        slot: &str,
        keep: impl FnMut() -> Option<Duration> + Send + 'static,
        lost: impl FnOnce(bool) + Send + 'static,
    ) -> Result<Option<Renewal>> {
        let mut calendar = self.open()?;
        let now = now();
        match calendar.extend(now, slot, now + TTL)? {
            true => Renewal::of_slot(calendar, slot.to_owned(), keep, lost).map(Some),
            false => Ok(None),
        }
    }

    /// Frees what a slot has, if it has anything.
    pub fn release_slot(&self, slot: &str) -> Result<()> {
        self.open()?.release(now(), slot)?;
        Ok(())
    }

    /// Releases the hold of the whole host whose name begins so, or the only one there is.
    ///
    /// # Errors
    /// If there is none, or there are several.
    pub fn release(&self, name: Option<&str>) -> Result<HostSlot> {
        let fits =
            |slot: &HostSlot| slot.held && name.is_none_or(|name| slot.slot.starts_with(name));
        let mut held: Vec<HostSlot> = self.slots()?.into_iter().filter(fits).collect();
        let Some(slot) = held.pop() else {
            let which = name.map_or(String::new(), |name| {
                format!(" whose name begins with '{name}'")
            });
            bail!(Refusal::usage(format!(
                "this host has no hold{which}: see 'linerate calendar list'"
            )));
        };
        if !held.is_empty() {
            bail!(Refusal::usage(
                "this host is held several times: name one of 'linerate calendar list'"
            ));
        }
        self.open()?.release(now(), &slot.slot)?;
        Ok(slot)
    }

    fn open(&self) -> Result<Lite> {
        let path = self.0.as_ref().map_err(|why| anyhow::anyhow!("{why}"))?;
        let mut calendar = Lite::open(path)?;
        for (resource, units) in [(HOST, UNITS), (WHOLE, 1)] {
            if calendar.units(resource)? == 0 {
                calendar.set_units(now(), resource, units)?;
            }
        }
        Ok(calendar)
    }
}

/// What is booked together on this host.
#[derive(Clone, Debug, Serialize)]
pub struct HostSlot {
    /// Name: 32 hexadecimal digits.
    pub slot: String,
    /// The whole host, by a hold or for a slot, until somebody releases it; otherwise a leg, which has one unit.
    pub held: bool,
    /// Beginning, since 1970-01-01 UTC.
    #[serde(rename = "starts_unix_ns")]
    pub starts: Nanos,
    /// End; of a leg without a length what it has renewed.
    #[serde(rename = "ends_unix_ns")]
    pub ends: Nanos,
    /// Who has it.
    pub who: String,
    /// What for.
    pub what: String,
}

/// The first time at which nothing of this is booked for so long.
fn first_free(slots: &[HostSlot], from: Nanos, span: Nanos) -> Nanos {
    let ends = slots.iter().map(|slot| slot.ends);
    let ends = ends.filter(|ends| *ends > from);
    let mut starts: Vec<Nanos> = std::iter::once(from).chain(ends).collect();
    starts.sort();
    let is_free = |at: &Nanos| !slots.iter().any(|slot| slot.overlaps(*at, span));
    let first = starts.into_iter().find(is_free);
    first.expect("after the last booking it is free")
}

impl HostSlot {
    fn overlaps(&self, starts: Nanos, span: Nanos) -> bool {
        self.starts < Nanos(starts.0.saturating_add(span.0)) && self.ends > starts
    }

    fn all(calendar: &mut Lite) -> Result<Vec<HostSlot>, calendar::Error> {
        let bookings = calendar.list(now())?;
        let slots = bookings.chunk_by(|a, b| a.slot == b.slot);
        let slots = slots.map(|units| HostSlot {
            slot: units[0].slot.clone(),
            held: units.iter().any(|unit| unit.resource == WHOLE),
            starts: moment(units[0].starts),
            ends: moment(units[0].ends),
            who: units[0].who.clone(),
            what: units[0].what.clone(),
        });
        Ok(slots.collect())
    }
}

/// The unit that the legs of one session have together, while there are any.
pub struct SessionUnit {
    calendar: Option<HostCalendar>,
    who: String,
    state: Arc<Mutex<UnitState>>,
}

#[derive(Default)]
struct UnitState {
    legs: usize,
    hold: Option<Renewal>,
}

/// A leg that may be. Dropping the last of a session frees its unit.
pub struct LegHold(Arc<Mutex<UnitState>>);

/// Why a leg has no unit.
pub enum NoUnit {
    /// Others have what there is, or the whole host is held.
    Busy {
        /// When there should be one.
        wait: Nanos,
        /// A sentence for the user.
        why: String,
    },
    /// The calendar cannot be used. Reported once a session: its legs are played without it.
    NoCalendar(Warning),
}

impl SessionUnit {
    /// Of a session that is called so in the calendar; without a calendar it gets whatever it needs.
    pub fn new(calendar: Option<HostCalendar>, who: String) -> SessionUnit {
        SessionUnit {
            calendar,
            who,
            state: Arc::default(),
        }
    }

    /// Books a unit from now on for a leg, unless the session has one. `None`: there is no calendar.
    pub fn book(&mut self, limit: LegLimit, what: &str) -> Result<Option<LegHold>, NoUnit> {
        let Some(calendar) = &self.calendar else {
            return Ok(None);
        };
        let mut state = sys::lock(&self.state);
        if state.hold.is_none() {
            match hold(calendar, limit, &self.who, what) {
                Ok(Ok(hold)) => state.hold = Some(hold),
                Ok(Err((wait, why))) => return Err(NoUnit::Busy { wait, why }),
                Err(error) => {
                    drop(state);
                    self.calendar = None;
                    return Err(NoUnit::NoCalendar(Warning {
                        what: format!("not in this host's calendar: {}", sentence(&error)),
                        meaning: "other measurements on the same host do not wait for this one, nor it for them; they share its processors and links".to_owned(),
                        remedy: "give the user of linerate the right to write there, or name another directory with LINERATE_STATE".to_owned(),
                    }));
                }
            }
        }
        state.legs += 1;
        drop(state);
        Ok(Some(LegHold(Arc::clone(&self.state))))
    }

    /// The same for a host that measures: waits for a unit until then. A warning if there is no calendar.
    ///
    /// # Errors
    /// If none is free by then, or the user stops it.
    pub fn wait(
        &mut self,
        (limit, what): (LegLimit, &str),
        until: Instant,
        watcher: &mut dyn Watcher,
        stop: &AtomicBool,
    ) -> Result<(Option<LegHold>, Option<Warning>)> {
        let mut said = String::new();
        loop {
            let why = match self.book(limit, what) {
                Ok(hold) => return Ok((hold, None)),
                Err(NoUnit::NoCalendar(warning)) => return Ok((None, Some(warning))),
                Err(NoUnit::Busy { why, .. }) => format!("this host is busy: {why}"),
            };
            if Instant::now() >= until {
                bail!(Refusal::unreachable(why));
            }
            if why != said {
                watcher.event(&Event::Waiting { what: &why });
                said = why;
            }
            let again = Instant::now() + Duration::from_secs(1);
            if !wait_until(again, stop) {
                bail!(Refusal::interrupted("stopped before the load began"));
            }
        }
    }
}

impl Drop for LegHold {
    fn drop(&mut self) {
        let mut state = sys::lock(&self.0);
        state.legs -= 1;
        if state.legs == 0 {
            // Waits until it is released: the next leg follows at once.
            state.hold = None;
        }
    }
}

/// Renews a hold until it is dropped, then releases it.
pub struct Renewal {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Renewal {
    fn start(mut calendar: Lite, mut hold: SlotRequest) -> Result<Renewal> {
        Renewal::run(move |stopped| {
            while let Err(mpsc::RecvTimeoutError::Timeout) = stopped.recv_timeout(RENEW_EVERY) {
                let now = now();
                hold.ends = hold.ends.max(now + TTL);
                hold.expires = Some(now + TTL);
                // What cannot be renewed expires; the leg is not disturbed.
                let _ = calendar.renew(now, &hold);
            }
            let _ = calendar.release(now(), &hold.slot);
        })
    }

    /// Of the slot of a coordinator, while `keep` has a time after which to look again; `lost` if it is over: whether
    /// somebody else released it.
    fn of_slot(
        mut calendar: Lite,
        slot: String,
        mut keep: impl FnMut() -> Option<Duration> + Send + 'static,
        lost: impl FnOnce(bool) + Send + 'static,
    ) -> Result<Renewal> {
        Renewal::run(move |stopped| {
            let mut expires = now() + TTL;
            while let Some(look) = keep() {
                let look = look.min(RENEW_EVERY);
                let Err(mpsc::RecvTimeoutError::Timeout) = stopped.recv_timeout(look) else {
                    break;
                };
                let now = now();
                match calendar.extend(now, &slot, now + TTL) {
                    Ok(true) => expires = now + TTL,
                    Ok(false) => return lost(now < expires),
                    // Tried again, as long as it has not expired.
                    Err(_) => {}
                }
            }
            let _ = calendar.release(now(), &slot);
        })
    }

    fn run(renew: impl FnOnce(mpsc::Receiver<()>) + Send + 'static) -> Result<Renewal> {
        let (stop, stopped) = mpsc::channel::<()>();
        let renew = move || renew(stopped);
        let thread = sys::spawn("calendar", renew);
        let thread = Some(thread.context("no thread to renew the booking")?);
        Ok(Renewal {
            stop: Some(stop),
            thread,
        })
    }
}

impl Drop for Renewal {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // One that panicked leaves a hold that expires.
            let _ = thread.join();
        }
    }
}

/// A unit for a leg from now on; or when there is one, and who has them.
fn hold(
    calendar: &HostCalendar,
    limit: LegLimit,
    who: &str,
    what: &str,
) -> Result<Result<Renewal, (Nanos, String)>> {
    let mut calendar = calendar.open()?;
    let now = now();
    let length = match limit {
        LegLimit::Time(span) => milliseconds(span) + AROUND_A_LEG,
        LegLimit::Bytes(_) | LegLimit::Requests(_) | LegLimit::Whole => TTL,
    };
    let wanted = SlotRequest {
        slot: new_slot()?,
        starts: now,
        ends: now + length,
        expires: Some(now + TTL),
        who: who.to_owned(),
        what: what.to_owned(),
        resources: vec![HOST.to_owned()],
    };
    if calendar.take(now, &wanted)? {
        return Renewal::start(calendar, wanted).map(Ok);
    }
    let free = calendar.first_fit(now, [now, now + AHEAD + length], length, &wanted.resources)?;
    let free = free.unwrap_or(now + AHEAD).max(now + 1);
    let units = calendar.units(HOST)?;
    let slots = HostSlot::all(&mut calendar)?;
    let held = slots
        .iter()
        .find(|slot| slot.held && slot.starts < moment(wanted.ends));
    let why = match held {
        Some(slot) => format!(
            "it is held from {} until {} ({})",
            utc(slot.starts),
            utc(slot.ends),
            slot.what
        ),
        None => format!(
            "as many measurements run on it now as it takes at once ({units}); one of them should end within {} s",
            (free - now + 999) / 1000
        ),
    };
    Ok(Err((moment(free - now), why)))
}

fn new_slot() -> Result<String> {
    let bytes: [u8; 16] = crate::chance::bytes()?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

pub(crate) fn now() -> Milliseconds {
    milliseconds(unix_time())
}

pub(crate) fn milliseconds(time: Nanos) -> Milliseconds {
    // 64 bits of nanoseconds are fewer milliseconds than fit.
    (time.0 / 1_000_000) as Milliseconds
}

pub(crate) fn moment(time: Milliseconds) -> Nanos {
    Nanos::from_millis(time.max(0) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempDir;

    const TEN: LegLimit = LegLimit::Time(Nanos::from_secs(10));

    struct Silent;

    impl Watcher for Silent {
        fn event(&mut self, _: &Event<'_>) {}
    }

    fn session(calendar: &HostCalendar, who: &str) -> SessionUnit {
        SessionUnit::new(Some(calendar.clone()), who.to_owned())
    }

    fn busy(unit: &mut SessionUnit, limit: LegLimit) -> (Nanos, String) {
        match unit.book(limit, "bulk") {
            Err(NoUnit::Busy { wait, why }) => (wait, why),
            Err(NoUnit::NoCalendar(warning)) => panic!("{warning:?}"),
            Ok(_) => panic!("booked"),
        }
    }

    #[test]
    fn the_legs_of_a_session_have_one_unit_until_the_last_is_over() {
        let directory = TempDir::new();
        let calendar = HostCalendar::in_directory(directory.path());
        calendar.set_clients(1).unwrap();
        let (mut one, mut other) = (session(&calendar, "one"), session(&calendar, "other"));
        let up = one.book(TEN, "bulk").ok().unwrap();
        let down = one.book(TEN, "bulk").ok().unwrap();
        let listed = calendar.open().unwrap().list(now()).unwrap();
        assert_eq!((listed.len(), listed[0].who.as_str()), (1, "one"));
        let (wait, why) = busy(&mut other, TEN);
        assert!(
            wait > Nanos::from_secs(10) && wait <= Nanos::from_secs(13),
            "{wait}"
        );
        assert!(why.contains("as it takes at once (1)"), "{why}");
        drop(up);
        busy(&mut other, TEN);
        drop(down);
        assert!(
            other.book(TEN, "bulk").ok().unwrap().is_some(),
            "free at once"
        );
    }

    #[test]
    fn a_leg_is_booked_only_where_it_ends_before_the_host_is_held() {
        let directory = TempDir::new();
        let calendar = HostCalendar::in_directory(directory.path());
        let starts = now() + 8_000;
        let held = SlotRequest {
            slot: "maintenance".to_owned(),
            starts,
            ends: starts + 60_000,
            expires: None,
            who: "root".to_owned(),
            what: "maintenance".to_owned(),
            resources: [HOST, WHOLE].map(str::to_owned).to_vec(),
        };
        let mut db = calendar.open().unwrap();
        assert!(db.take_whole(now(), &held).unwrap());
        let mut unit = session(&calendar, "one");
        let (wait, why) = busy(&mut unit, TEN);
        assert!(
            wait > Nanos::from_secs(60) && wait <= Nanos::from_secs(68),
            "{wait}"
        );
        assert!(why.starts_with("it is held from 2"), "{why}");
        assert!(why.ends_with("UTC (maintenance)"), "{why}");
        let short = LegLimit::Time(Nanos::from_secs(1));
        assert!(unit.book(short, "bulk").ok().unwrap().is_some());
        // Waiting ends with the patience, and with Ctrl-C.
        let mut other = session(&calendar, "other");
        let (stop, go_on) = (AtomicBool::new(true), AtomicBool::new(false));
        let mut wait = |until, stop| {
            let waited = other.wait((TEN, "bulk"), until, &mut Silent, stop);
            waited.err().unwrap().to_string()
        };
        assert!(wait(Instant::now(), &go_on).starts_with("this host is busy: it is held"));
        let later = Instant::now() + BUSY_FOR;
        assert_eq!(wait(later, &stop), "stopped before the load began");
    }

    fn slot(starts: u64, ends: u64) -> HostSlot {
        HostSlot {
            slot: String::new(),
            held: true,
            starts: Nanos::from_secs(starts),
            ends: Nanos::from_secs(ends),
            who: String::new(),
            what: String::new(),
        }
    }

    #[test]
    fn the_first_free_time_has_the_whole_span_and_may_touch_what_is_booked() {
        let booked = [slot(10, 20), slot(25, 40)];
        let seconds = Nanos::from_secs;
        let first = |from, span| first_free(&booked, seconds(from), seconds(span));
        for (from, span, at) in [
            (0, 10, 0),
            (0, 11, 40),
            (15, 5, 20),
            (20, 5, 20),
            (20, 6, 40),
            (39, 1, 40),
            (41, 100, 41),
        ] {
            assert_eq!(first(from, span), seconds(at), "{span} s from {from}");
        }
        assert_eq!(first_free(&[], seconds(7), seconds(1)), seconds(7));
        let one = slot(10, 20);
        let overlaps = |from, span| one.overlaps(seconds(from), seconds(span));
        assert!(overlaps(9, 2) && overlaps(19, 1) && overlaps(12, 1));
        assert!(!overlaps(9, 1) && !overlaps(20, 1));
        assert!(one.overlaps(seconds(1), Nanos(u64::MAX)));
    }

    /// Also where the host takes one measurement at a time, or as many as it likes.
    #[test]
    fn a_host_is_held_from_a_time_or_the_first_free_one_until_it_is_released() {
        for clients in [1, 2, 9] {
            let directory = TempDir::new();
            let calendar = HostCalendar::in_directory(directory.path());
            assert_eq!(calendar.slots().unwrap().len(), 0);
            calendar.set_clients(clients).unwrap();
            let hour = Nanos::from_secs(3600);
            let later = moment(now()) + hour;
            let first = calendar.hold(hour, Some(later), "root", "tests").unwrap();
            assert_eq!((first.starts, first.ends), (later, later + hour));
            assert_eq!((first.who.as_str(), first.what.as_str()), ("root", "tests"));
            assert!(first.held, "{clients} clients");
            let why = calendar.hold(hour, Some(later + Nanos::from_secs(1800)), "x", "x");
            let why = why.unwrap_err().to_string();
            let booked = format!("from {} until {} (tests)", utc(later), utc(later + hour));
            let free = format!("are free from {};", utc(later + hour));
            assert!(why.contains(&booked) && why.contains(&free), "{why}");
            // Two hours are free behind it alone, a minute before it.
            let behind = calendar.hold(hour + hour, None, "x", "x").unwrap();
            assert_eq!(behind.starts, later + hour);
            let before = moment(now());
            let at_once = calendar.hold(Nanos::from_secs(60), None, "x", "x").unwrap();
            assert!((before..=moment(now())).contains(&at_once.starts));

            let several = calendar.release(None).unwrap_err().to_string();
            assert!(several.contains("is held several times"), "{several}");
            let none = calendar.release(Some("zz")).unwrap_err().to_string();
            assert!(
                none.contains("no hold whose name begins with 'zz'"),
                "{none}"
            );
            for name in [&first.slot, &behind.slot] {
                let released = calendar.release(Some(&name[..16])).unwrap();
                assert_eq!(released.slot, *name);
            }
            assert_eq!(calendar.release(None).unwrap().slot, at_once.slot);
            let none = calendar.release(None).unwrap_err().to_string();
            assert!(none.starts_with("this host has no hold: "), "{none}");
        }
    }

    #[test]
    fn a_leg_is_no_hold_of_the_host_however_few_there_may_be() {
        for clients in [1, 2] {
            let directory = TempDir::new();
            let calendar = HostCalendar::in_directory(directory.path());
            calendar.set_clients(clients).unwrap();
            let mut unit = session(&calendar, "one");
            let leg = unit.book(TEN, "bulk").ok().unwrap();
            let listed = calendar.slots().unwrap();
            assert_eq!((listed.len(), listed[0].held), (1, false));
            assert!(calendar.release(None).is_err());
            drop(leg);
        }
    }

    #[test]
    fn a_slot_of_a_coordinator_has_the_whole_host_or_learns_when_it_is_free() {
        let directory = TempDir::new();
        let calendar = HostCalendar::in_directory(directory.path());
        let book = |name: char, times: [u64; 3]| {
            let (name, times) = (name.to_string().repeat(32), times.map(Nanos::from_secs));
            let booked = calendar.book_slot(&name, times, "mesh", "measuring");
            booked.unwrap()
        };
        assert_eq!(book('a', [0, 60, 30]), Ok(()));
        let booked = calendar.slots().unwrap().remove(0);
        assert!(booked.held);
        assert_eq!(booked.ends.since(booked.starts), Nanos::from_secs(60));
        let (free_in, why) = book('b', [30, 10, 30]).unwrap_err();
        let range = Nanos::from_secs(40)..=Nanos::from_secs(60);
        assert!(range.contains(&free_in), "{free_in}");
        let until = format!("until {} (measuring)", utc(booked.ends));
        assert!(
            why.starts_with("it is booked from ") && why.ends_with(&until),
            "{why}"
        );
        assert_eq!(book('b', [60, 10, 30]), Ok(()));
        // As short as can be.
        assert_eq!(book('c', [3600, 0, 30]), Ok(()));
        let short = calendar.slots().unwrap().pop().unwrap();
        assert_eq!(short.ends.since(short.starts), Nanos::from_millis(1));
        // One that nobody confirmed is over with its hold, and cannot be kept.
        let keep = || Some(Duration::from_secs(1));
        let kept = |name: char| {
            let name = name.to_string().repeat(32);
            calendar.keep_slot(&name, keep, |_| ()).unwrap().is_some()
        };
        assert!(kept('a') && !kept('f'));
        calendar.release_slot(&"b".repeat(32)).unwrap();
        assert!(!kept('b'));
        let times = [Nanos::from_secs(7200), MINUTE, Nanos(0)];
        let booked = calendar.book_slot(&"e".repeat(32), times, "mesh", "x");
        assert_eq!(booked.unwrap(), Ok(()));
        let until = Instant::now() + Duration::from_secs(10);
        while kept('e') && Instant::now() < until {}
        assert!(!kept('e'));
    }

    const MINUTE: Nanos = Nanos::from_secs(60);

    /// How long a unit is waited for where another session has it for this leg.
    fn wait_behind(limit: LegLimit) -> (Nanos, String) {
        let directory = TempDir::new();
        let calendar = HostCalendar::in_directory(directory.path());
        calendar.set_clients(1).unwrap();
        let _leg = session(&calendar, "one").book(limit, "bulk").ok().unwrap();
        // What begins later keeps nobody waiting now.
        let later = moment(now()) + Nanos::from_secs(3600);
        calendar.hold(MINUTE, Some(later), "root", "tests").unwrap();
        busy(&mut session(&calendar, "other"), TEN)
    }

    #[test]
    fn a_leg_without_a_time_has_ten_seconds_that_it_renews_and_others_wait_for_them() {
        for limit in [
            LegLimit::Bytes(Bytes(1)),
            LegLimit::Requests(1),
            LegLimit::Whole,
        ] {
            let (wait, why) = wait_behind(limit);
            let range = Nanos::from_secs(5)..=Nanos::from_secs(10);
            assert!(range.contains(&wait), "{wait}");
            let seconds = wait.0.div_ceil(1_000_000_000);
            let within = format!("at once (1); one of them should end within {seconds} s");
            assert!(why.ends_with(&within), "{wait}: {why}");
        }
    }

    #[test]
    fn a_host_that_is_held_for_longer_is_looked_at_again_after_a_day() {
        let directory = TempDir::new();
        let calendar = HostCalendar::in_directory(directory.path());
        let day = Nanos::from_secs(86_400);
        calendar.hold(day + day, None, "root", "tests").unwrap();
        let (wait, why) = busy(&mut session(&calendar, "one"), TEN);
        assert_eq!(wait, day);
        assert!(why.starts_with("it is held from "), "{why}");
    }

    #[test]
    fn who_waits_for_a_unit_says_so_once() {
        struct Said(Vec<String>);
        impl Watcher for Said {
            fn event(&mut self, event: &Event<'_>) {
                match event {
                    Event::Waiting { what } => self.0.push((*what).to_owned()),
                    _ => panic!("it only waits"),
                }
            }
        }
        let directory = TempDir::new();
        let calendar = HostCalendar::in_directory(directory.path());
        calendar.hold(MINUTE, None, "root", "tests").unwrap();
        let (mut said, go_on) = (Said(Vec::new()), AtomicBool::new(false));
        let until = Instant::now() + Duration::from_millis(1500);
        let mut unit = session(&calendar, "one");
        let waited = unit.wait((TEN, "bulk"), until, &mut said, &go_on);
        assert!(waited.is_err() && Instant::now() >= until);
        assert_eq!(said.0.len(), 1, "{:?}", said.0);
        assert!(said.0[0].starts_with("this host is busy: it is held"));
    }

    #[test]
    fn what_cannot_be_booked_is_reported_once_and_measured() {
        let directory = TempDir::new();
        std::fs::write(directory.path().join("calendar"), "a file").unwrap();
        let mut unit = session(&HostCalendar::in_directory(directory.path()), "one");
        match unit.book(TEN, "bulk") {
            Err(NoUnit::NoCalendar(warning)) => {
                assert!(
                    warning.what.contains("cannot make the directory"),
                    "{warning:?}"
                );
            }
            _ => panic!("it was booked"),
        }
        assert!(unit.book(TEN, "bulk").ok().unwrap().is_none());
    }
}

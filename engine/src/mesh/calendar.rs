//! The calendar of a mesh: its hosts and links are booked in it before the agents hold them, so that meshes that share
//! some never measure on them at the same time, no matter who coordinates them.

use crate::host_calendar::{HostCalendar, milliseconds, moment, now};
use crate::prelude::*;
use archive::{Archive, CellName};
use calendar::{
    Booking, Calendar, Lite, Milliseconds, Postgres, SlotRequest, store_legs, thin_legs,
};
use mesh::{HostPair, Mesh, MeshTest};
use report::words::{counted, utc};

/// A booking ends by itself after this, unless it is renewed.
const TTL: Milliseconds = 30_000;

/// A confirmed one is renewed so often: twice may fail.
const RENEW_EVERY: Milliseconds = 10_000;

/// A calendar that can be used is looked at so often; one that cannot is tried again after this,
const AGAIN: Duration = Duration::from_secs(1);
/// then after twice as long each time, up to this.
const AGAIN_AT_MOST: Duration = Duration::from_secs(60);

/// PostgreSQL keeps the lock of a coordinator whose machine is gone for some seconds.
const LOCK_WITHIN: Duration = Duration::from_secs(12);

/// Rows of legs that are delivered in a transaction, and transactions at once.
const OF_PART: u32 = 256;
const PARTS: u32 = 16;

/// How soon the wish to stop is noticed.
const LOOK: Duration = Duration::from_millis(100);

/// Resources are shared by the meshes of a calendar under these names.
fn of_host(name: &str) -> String {
    format!("host:{name}")
}

fn of_disk(name: &str) -> String {
    format!("disk:{name}")
}

fn of_link(name: &str) -> String {
    format!("link:{name}")
}

/// The calendar, or why it cannot be used.
type Opened = Result<Box<dyn Calendar>, String>;

/// The one of a mesh, as long as its coordinator runs.
pub(super) struct MeshCalendar<'a> {
    mesh: &'a Mesh,
    /// Where the mesh file names no PostgreSQL.
    file: PathBuf,
    /// For sentences.
    place: String,
    log: &'a (dyn Fn(&str) + Sync),
    opened: Mutex<Opened>,
    /// By their slots: what is renewed until it is released, or over.
    confirmed: Mutex<BTreeMap<String, SlotRequest>>,
}

/// Why a pair has no slot: something else is booked on its hosts or links.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub(super) struct PairBooked {
    pub(super) why: String,
    /// When it is free; `None`: not in this period.
    pub(super) free: Option<Nanos>,
}

/// Why the calendar cannot be used: in the log once, not for each leg.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct NoCalendar(pub(super) String);

/// Where the hosts and links of a mesh are booked.
///
/// # Errors
/// If there is no place for a file.
pub fn calendar_place(mesh: &Mesh) -> Result<String> {
    Ok(match &mesh.calendar {
        Some(address) => address.to_string(),
        None => file()?.display().to_string(),
    })
}

/// Beside the calendar of this host.
fn file() -> Result<PathBuf> {
    let directory = HostCalendar::of_this_host().directory();
    let directory = directory.context("no place for a calendar: set LINERATE_STATE or HOME")?;
    Ok(directory.join("meshes.db"))
}

impl<'a> MeshCalendar<'a> {
    /// Opens it, or will as soon as it can be used.
    ///
    /// # Errors
    /// If another coordinator of the mesh uses it.
    pub(super) fn start(
        mesh: &'a Mesh,
        log: &'a (dyn Fn(&str) + Sync),
        goes_on: &dyn Fn() -> bool,
    ) -> Result<MeshCalendar<'a>> {
        let calendar = MeshCalendar {
            mesh,
            file: file()?,
            place: calendar_place(mesh)?,
            log,
            opened: Mutex::new(Err("the calendar is not open yet".to_owned())),
            confirmed: Mutex::default(),
        };
        let until = Instant::now() + LOCK_WITHIN;
        let mut waits = false;
        loop {
            let opened = match calendar.open() {
                Ok(Err(holder)) => {
                    let held = calendar.held_by(&holder);
                    if mesh.calendar.is_none() || Instant::now() >= until || !goes_on() {
                        bail!(Refusal::usage(held));
                    }
                    if !std::mem::replace(&mut waits, true) {
                        log(&format!(
                            "{held}; waiting {} s for its end",
                            LOCK_WITHIN.as_secs()
                        ));
                    }
                    std::thread::sleep(LOOK);
                    continue;
                }
                Ok(Ok(opened)) => Ok(opened),
                Err(error) => Err(sentence(&error.into())),
            };
            *sys::lock(&calendar.opened) = opened;
            return Ok(calendar);
        }
    }

    #[cfg(test)]
    pub(super) fn in_directory(mesh: &'a Mesh, directory: &std::path::Path) -> MeshCalendar<'a> {
        let calendar = MeshCalendar {
            mesh,
            file: directory.join("meshes.db"),
            place: "a test".to_owned(),
            log: &|_| {},
            opened: Mutex::new(Err(String::new())),
            confirmed: Mutex::default(),
        };
        *sys::lock(&calendar.opened) = Ok(calendar.open().unwrap().unwrap());
        calendar
    }

    fn held_by(&self, holder: &str) -> String {
        let (name, place) = (&self.mesh.name, &self.place);
        format!(
            "another 'mesh run' of the mesh '{name}' has the lock in its calendar, {place}: {holder}; one of a mesh is possible"
        )
    }

    /// Opens the calendar with the units of this mesh; or who coordinates the mesh already.
    fn open(&self) -> Result<Result<Box<dyn Calendar>, String>, calendar::Error> {
        let mut calendar: Box<dyn Calendar> = match &self.mesh.calendar {
            Some(address) => Box::new(Postgres::open(address, &called(), now())?),
            None => Box::new(Lite::open(&self.file)?),
        };
        if let Err(holder) = calendar.lock_mesh(&self.mesh.name)? {
            return Ok(Err(holder));
        }
        let has_disks = self.mesh.tests.iter().any(|test| test.spec.has_files());
        let names = self.mesh.hosts.iter().map(|host| &host.name);
        let disks = names
            .clone()
            .filter(|_| has_disks)
            .map(|name| of_disk(name));
        let hosts = names.map(|name| of_host(name)).chain(disks);
        let hosts = hosts.map(|name| (name, 1));
        let links = self.mesh.links.iter();
        let links = links.map(|link| (of_link(&link.name), link.units));
        for (resource, units) in hosts.chain(links) {
            let before = calendar.units(&resource)?;
            if before == units {
                continue;
            }
            calendar.set_units(now(), &resource, units)?;
            if before > 0 {
                (self.log)(&format!(
                    "{resource} has {} from now on, for all meshes of the calendar, instead of {before}",
                    counted(units.into(), "unit")
                ));
            }
        }
        Ok(Ok(calendar))
    }

    /// Renews what is confirmed, and opens the calendar again where it cannot be used, with a line in the log for each state.
    ///
    /// # Errors
    /// If the archive cannot be read or written.
    pub(super) fn keep(
        &self,
        archive: &mut Archive,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<(), archive::Error> {
        let mut reported: Option<String> = None;
        let mut wait = AGAIN;
        let mut next = Instant::now();
        while goes_on() {
            let left = next.saturating_duration_since(Instant::now());
            if !left.is_zero() {
                std::thread::sleep(left.min(LOOK));
                continue;
            }
            let Err(NoCalendar(lost)) = self.renew_and_deliver(archive)? else {
                wait = AGAIN;
                next = Instant::now() + wait;
                continue;
            };
            // Nobody waits for it meanwhile.
            let opened = match self.open() {
                Ok(Ok(opened)) => Ok(opened),
                Ok(Err(holder)) => Err(self.held_by(&holder)),
                Err(error) => Err(sentence(&error.into())),
            };
            let waited = wait;
            match &opened {
                Ok(_) => {
                    match reported.take() {
                        Some(_) => (self.log)("the calendar can be used again"),
                        None => (self.log)(&format!("{lost}; it can be used again")),
                    }
                    wait = AGAIN;
                }
                Err(why) => {
                    if reported.as_ref() != Some(why) {
                        (self.log)(&format!("no test but light probes begins: {why}"));
                        reported = Some(why.clone());
                    }
                    wait = (2 * wait).min(AGAIN_AT_MOST);
                }
            }
            // One that can be used has the rows that wait soon.
            next = Instant::now() + waited.min(wait);
            *sys::lock(&self.opened) = opened;
        }
        Ok(())
    }

    fn renew_and_deliver(
        &self,
        archive: &mut Archive,
    ) -> Result<Result<(), NoCalendar>, archive::Error> {
        match self.renew() {
            Ok(()) => self.deliver(archive),
            lost => Ok(lost),
        }
    }

    /// Takes the rows of legs that wait to the PostgreSQL that coordinators share. One that is there already is replaced.
    ///
    /// # Errors
    /// If the archive cannot be read or written.
    pub(super) fn deliver(
        &self,
        archive: &mut Archive,
    ) -> Result<Result<(), NoCalendar>, archive::Error> {
        if self.mesh.calendar.is_none() {
            return Ok(Ok(()));
        }
        // In parts: a round may have to book meanwhile.
        for _ in 0..PARTS {
            let legs = archive.unsent_mesh_legs(&self.mesh.name, OF_PART)?;
            if legs.is_empty() {
                break;
            }
            if let Err(lost) = self.with(|calendar| store_legs(calendar, &legs)) {
                return Ok(Err(lost));
            }
            archive.mesh_legs_sent(&legs)?;
        }
        Ok(Ok(()))
    }

    /// Thins out the light probes of these cells there. What fails is due again an hour later.
    pub(super) fn thin(&self, cells: &[CellName<'_>], times: [Nanos; 2]) {
        if self.mesh.calendar.is_some() {
            let _ = self.with(|calendar| thin_legs(calendar, cells, times.map(milliseconds)));
        }
    }

    fn renew(&self) -> Result<(), NoCalendar> {
        let mut confirmed = sys::lock(&self.confirmed);
        let now = now();
        confirmed.retain(|_, booking| booking.ends > now);
        let mut lost = Vec::new();
        for booking in confirmed.values_mut() {
            let soon = now + TTL - RENEW_EVERY;
            if booking.expires.is_none_or(|expires| expires > soon) {
                continue;
            }
            let renewed = SlotRequest {
                expires: Some(now + TTL),
                ..booking.clone()
            };
            match self.with(|calendar| calendar.renew(now, &renewed))? {
                true => *booking = renewed,
                false => lost.push(booking.slot.clone()),
            }
        }
        for slot in lost {
            let what = confirmed.remove(&slot).map(|booking| booking.what);
            (self.log)(&format!(
                "{}: its booking ended while the calendar could not be used, and others may measure at the same time",
                what.unwrap_or_default()
            ));
        }
        self.with(|calendar| calendar.tidy(now))
    }

    /// Books the hosts of a pair and the links between them, from now on until the moment that this returns. It ends
    /// by itself unless it is confirmed.
    ///
    /// # Errors
    /// [`PairBooked`] where something else is booked, [`NoCalendar`].
    pub(super) fn hold(
        &self,
        test: &MeshTest,
        pair: HostPair,
        slot: &str,
        span: Nanos,
        until: Nanos,
    ) -> Result<(SlotRequest, Instant)> {
        let [from, to] = [pair.0, pair.1].map(|host| &self.mesh.hosts[host].name);
        let links = self.mesh.links_between(pair);
        let links = links.map(|link| &self.mesh.links[link]);
        let mut units = vec![(of_host(from), 1), (of_host(to), 1)];
        if test.spec.has_files() {
            units.extend([(of_disk(from), 1), (of_disk(to), 1)]);
        }
        units.extend(links.map(|link| (of_link(&link.name), link.units)));
        let (starts, length) = (now(), milliseconds(span));
        let ends = Instant::now() + span.into();
        let wanted = SlotRequest {
            slot: slot.to_owned(),
            starts,
            ends: starts + length,
            expires: Some(starts + TTL),
            who: format!("mesh {}", self.mesh.name),
            what: format!("{}: {from} to {to}", test.name),
            resources: units.iter().map(|(name, _)| name.clone()).collect(),
        };
        let booked = self.with(|calendar| {
            if calendar.take(starts, &wanted)? {
                return Ok(None);
            }
            let window = [starts, milliseconds(until)];
            let free = calendar.first_fit(starts, window, length, &wanted.resources)?;
            Ok(Some((free, calendar.list(starts)?)))
        })?;
        match booked {
            None => Ok((wanted, ends)),
            Some((free, bookings)) => bail!(PairBooked {
                why: why_booked(&units, &wanted, &bookings),
                free: free.map(moment),
            }),
        }
    }

    /// Makes a booking stay as long as this coordinator lives, until its end at most.
    ///
    /// # Errors
    /// If it is over, and something else booked; [`NoCalendar`].
    pub(super) fn confirm(&self, booking: &SlotRequest) -> Result<()> {
        let now = now();
        let confirmed = SlotRequest {
            expires: Some(now + TTL),
            ..booking.clone()
        };
        match self.with(|calendar| calendar.renew(now, &confirmed))? {
            true => {
                sys::lock(&self.confirmed).insert(booking.slot.clone(), confirmed);
                Ok(())
            }
            false => bail!(Refusal::unreachable(format!(
                "its booking in the calendar ended after {} s, before both hosts were confirmed",
                TTL / 1000
            ))),
        }
    }

    /// Makes a confirmed booking stay until its end even without this coordinator: the source measures until then. Where the
    /// calendar cannot be used it is renewed like others.
    pub(super) fn keep_to_its_end(&self, slot: &str) {
        let mut confirmed = sys::lock(&self.confirmed);
        if let Some(booking) = confirmed.get_mut(slot) {
            let whole = SlotRequest {
                expires: None,
                ..booking.clone()
            };
            if let Ok(true) = self.with(|calendar| calendar.renew(now(), &whole)) {
                *booking = whole;
            }
        }
    }

    /// Frees what was booked. What cannot be released ends by itself.
    pub(super) fn release(&self, slot: &str) {
        sys::lock(&self.confirmed).remove(slot);
        let _ = self.with(|calendar| calendar.release(now(), slot));
    }

    /// Frees all that is confirmed.
    pub(super) fn release_all(&self) {
        let confirmed = std::mem::take(&mut *sys::lock(&self.confirmed));
        confirmed.keys().for_each(|slot| self.release(slot));
    }

    /// What fails is opened again by [`MeshCalendar::keep`].
    fn with<T>(
        &self,
        act: impl FnOnce(&mut dyn Calendar) -> Result<T, calendar::Error>,
    ) -> Result<T, NoCalendar> {
        let mut opened = sys::lock(&self.opened);
        let result = match &mut *opened {
            Ok(calendar) => act(calendar.as_mut()).map_err(|error| sentence(&error.into())),
            Err(why) => Err(why.clone()),
        };
        result.map_err(|why| {
            *opened = Err(why.clone());
            NoCalendar(why)
        })
    }
}

/// What is booked instead, of the first resource that has no unit left.
fn why_booked(units: &[(String, u32)], wanted: &SlotRequest, bookings: &[Booking]) -> String {
    let overlaps =
        |booking: &&Booking| booking.starts < wanted.ends && booking.ends > wanted.starts;
    let of = |resource: &str| -> Vec<&Booking> {
        let all = bookings.iter().filter(overlaps);
        all.filter(|booking| booking.resource == resource).collect()
    };
    let full = units
        .iter()
        .map(|(name, units)| (name, *units as usize, of(name)));
    let mut full = full.filter(|(_, units, booked)| booked.len() >= *units);
    match full.next() {
        Some((name, _, booked)) => format!(
            "{} is booked until {} ({}, {})",
            name.replacen(':', " ", 1),
            utc(moment(booked[0].ends)),
            booked[0].who,
            booked[0].what
        ),
        None => "another booking was faster".to_owned(),
    }
}

/// What others see of this process.
pub(super) fn called() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("process {} on {}", std::process::id(), host.trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempDir;
    use mesh::parse_mesh;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn mesh_of(name: &str, hosts: [&str; 2], copy: &str) -> Mesh {
        let hosts: String = hosts
            .iter()
            .map(|host| format!("[[host]]\nname = \"{host}\"\nagent = \"{host}\"\n"))
            .collect();
        let test = format!("[[test]]\nname = \"copy\"\nkind = \"copy\"\nhosts = [\"*\"]\n{copy}");
        parse_mesh(
            &format!("[mesh]\nname = \"{name}\"\n{hosts}{test}"),
            "m.toml",
        )
        .unwrap()
    }

    fn calendar_of<'a>(mesh: &'a Mesh, directory: &TempDir) -> MeshCalendar<'a> {
        MeshCalendar::in_directory(mesh, directory.path())
    }

    const FILES: &str = "time = \"5s\"\nevery = \"1h\"\nfrom_file = \"in\"\nto_file = \"out\"\n";
    const MEMORY: &str = "time = \"5s\"\nevery = \"1h\"\n";

    /// `(0, 1)` of a mesh, for 10 s.
    fn hold(calendar: &MeshCalendar<'_>, slot: &str) -> Result<SlotRequest, String> {
        let (test, span) = (&calendar.mesh.tests[0], Nanos::from_secs(10));
        let until = moment(now()) + Nanos::from_secs(3600);
        let held = calendar.hold(test, (0, 1), slot, span, until);
        held.map(|(booking, _)| booking)
            .map_err(|error| error.to_string())
    }

    /// A confirmed booking is renewed; one of a source that measures stays to its end.
    #[test]
    fn a_booking_is_renewed_until_the_source_has_its_order() {
        let directory = TempDir::new();
        let mesh = mesh_of("one", ["a", "b"], MEMORY);
        let calendar = calendar_of(&mesh, &directory);
        let booking = hold(&calendar, "1").unwrap();
        calendar.confirm(&booking).unwrap();
        let expires = || {
            let bookings = calendar.with(|calendar| calendar.list(now())).unwrap();
            assert_eq!(bookings.len(), 2);
            assert!(
                bookings
                    .iter()
                    .all(|one| one.expires == bookings[0].expires)
            );
            bookings[0].expires
        };
        let earlier = SlotRequest {
            expires: Some(now() + 5_000),
            ..booking
        };
        assert!(
            calendar
                .with(|calendar| calendar.renew(now(), &earlier))
                .unwrap()
        );
        sys::lock(&calendar.confirmed).insert("1".to_owned(), earlier);
        calendar.renew().unwrap();
        assert!(expires() >= Some(now() + TTL - 1_000));
        calendar.keep_to_its_end("1");
        assert_eq!(expires(), None);
        calendar.renew().unwrap();
        assert_eq!(expires(), None);
        calendar.release("1");
        assert_eq!(calendar.with(|calendar| calendar.list(now())).unwrap(), []);
    }

    /// Of meshes that name the same disk, also where nothing else is shared.
    #[test]
    fn copies_that_share_a_disk_never_overlap() {
        let directory = TempDir::new();
        let meshes = [("one", ["a", "b"]), ("two", ["c", "b"])];
        let [one, two] = meshes.map(|(name, hosts)| mesh_of(name, hosts, FILES));
        let [one, two] = [&one, &two].map(|mesh| calendar_of(mesh, &directory));
        let booking = hold(&one, "1").unwrap();
        assert_eq!(booking.resources, ["host:a", "host:b", "disk:a", "disk:b"]);
        let why = hold(&two, "2").unwrap_err();
        assert!(why.starts_with("host b is booked until "), "{why}");
        assert!(why.ends_with("(mesh one, copy: a to b)"), "{why}");
        one.release("1");

        let disk = SlotRequest {
            slot: "disk".to_owned(),
            resources: vec!["disk:b".to_owned()],
            ..booking
        };
        assert!(one.with(|calendar| calendar.take(now(), &disk)).unwrap());
        let why = hold(&two, "3").unwrap_err();
        assert!(why.starts_with("disk b is booked until "), "{why}");
        // The control: to memory it overlaps.
        let memory = mesh_of("memory", ["c", "b"], MEMORY);
        let memory = calendar_of(&memory, &directory);
        hold(&memory, "4").unwrap();
        memory.release("4");
        one.release("disk");

        // Both at the same moments.
        let inside = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for calendar in [&one, &two] {
                let inside = &inside;
                scope.spawn(move || {
                    for held in 0..100 {
                        let slot = format!("{} {held}", calendar.mesh.name);
                        while hold(calendar, &slot).is_err() {}
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "{slot}");
                        std::thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                        calendar.release(&slot);
                    }
                });
            }
        });
        // The control: copies of different disks overlap.
        let apart = mesh_of("apart", ["e", "f"], FILES);
        let apart = calendar_of(&apart, &directory);
        hold(&one, "5").unwrap();
        hold(&apart, "6").unwrap();
    }

    const THREE: &str = "[mesh]\nname = \"m\"\n[[host]]\nname = \"a\"\nagent = \"a\"\nsite = \"x\"\n\
        [[host]]\nname = \"b\"\nagent = \"b\"\nsite = \"y\"\n\
        [[link]]\nname = \"up\"\nsite = \"x\"\nunits = UNITS\n\
        [[test]]\nname = \"t\"\nhosts = [\"*\"]\nevery = \"1h\"\n";

    fn linked(units: &str) -> Mesh {
        parse_mesh(&THREE.replace("UNITS", units), "m.toml").unwrap()
    }

    #[test]
    fn the_first_resource_without_a_free_unit_is_named_with_its_booking() {
        let booking = |resource: &str, unit, starts, ends| Booking {
            slot: format!("{resource}{unit}"),
            resource: resource.to_owned(),
            unit,
            starts,
            ends,
            expires: None,
            who: "mesh x".to_owned(),
            what: format!("t{unit}"),
        };
        let wanted = SlotRequest {
            slot: "s".to_owned(),
            starts: 1000,
            ends: 2000,
            expires: None,
            who: String::new(),
            what: String::new(),
            resources: Vec::new(),
        };
        let units = [("host:a".to_owned(), 1), ("link:up".to_owned(), 2)];
        let why = |bookings: &[Booking]| why_booked(&units, &wanted, bookings);
        let faster = "another booking was faster";
        assert_eq!(why(&[]), faster);
        let until = |at| utc(moment(at));
        let host = |starts, ends| [booking("host:a", 1, starts, ends)];
        let named = format!("host a is booked until {} (mesh x, t1)", until(1500));
        assert_eq!(why(&host(0, 1500)), named);
        // What only touches it is no overlap.
        assert_eq!([why(&host(0, 1000)), why(&host(2000, 3000))], [faster; 2]);
        assert_ne!(why(&host(0, 1001)), faster);
        assert_ne!(why(&host(1999, 3000)), faster);
        let link = |unit| booking("link:up", unit, 0, 1600);
        assert_eq!(why(&[link(1)]), faster, "a unit is left");
        let named = format!("link up is booked until {} (mesh x, t1)", until(1600));
        assert_eq!(why(&[link(1), link(2)]), named);
    }

    #[test]
    fn a_pair_takes_its_hosts_and_the_links_between_and_confirmed_slots_are_renewed() {
        let directory = TempDir::new();
        let mesh = linked("2");
        let calendar = calendar_of(&mesh, &directory);
        let booking = hold(&calendar, "1").unwrap();
        assert_eq!(booking.resources, ["host:a", "host:b", "link:up"]);
        assert_eq!(booking.ends - booking.starts, 10_000);
        assert_eq!(booking.expires, Some(booking.starts + TTL));
        assert_eq!(
            (booking.who.as_str(), booking.what.as_str()),
            ("mesh m", "t: a to b")
        );
        let listed = |calendar: &MeshCalendar<'_>| {
            let all = calendar.with(|calendar| calendar.list(now())).unwrap();
            all.into_iter().map(|one| one.expires).collect::<Vec<_>>()
        };
        // Until it is confirmed it is not renewed.
        calendar.renew().unwrap();
        assert_eq!(listed(&calendar), [booking.expires; 3]);
        calendar.confirm(&booking).unwrap();
        let confirmed = sys::lock(&calendar.confirmed)["1"].clone();
        assert!(confirmed.expires >= booking.expires);
        calendar.renew().unwrap();
        assert_eq!(
            sys::lock(&calendar.confirmed)["1"],
            confirmed,
            "it is early"
        );
        let due = now() + TTL - RENEW_EVERY;
        sys::lock(&calendar.confirmed).get_mut("1").unwrap().expires = Some(due);
        let before = now();
        calendar.renew().unwrap();
        let renewed = sys::lock(&calendar.confirmed)["1"].expires.unwrap();
        assert!(renewed >= before + TTL && renewed <= now() + TTL);
        assert_eq!(listed(&calendar), [Some(renewed); 3]);
        // One that is over is forgotten, and one that somebody else released is lost.
        sys::lock(&calendar.confirmed).get_mut("1").unwrap().ends = now();
        calendar.renew().unwrap();
        assert!(sys::lock(&calendar.confirmed).is_empty());
        calendar.confirm(&booking).unwrap();
        calendar.release_all();
        assert!(listed(&calendar).is_empty() && sys::lock(&calendar.confirmed).is_empty());
    }

    #[test]
    fn a_slot_whose_time_is_over_is_not_confirmed_and_one_that_is_lost_is_named() {
        let directory = TempDir::new();
        let mesh = linked("2");
        let log = Mutex::new(Vec::new());
        let note = |line: &str| sys::lock(&log).push(line.to_owned());
        let calendar = MeshCalendar {
            log: &note,
            ..calendar_of(&mesh, &directory)
        };
        let mut booking = hold(&calendar, "1").unwrap();
        calendar.confirm(&booking).unwrap();
        // Somebody else has the host meanwhile.
        let other = SlotRequest {
            slot: "other".to_owned(),
            expires: None,
            ..booking.clone()
        };
        calendar
            .with(|calendar| calendar.release(now(), "1"))
            .unwrap();
        assert!(
            calendar
                .with(|calendar| calendar.take(now(), &other))
                .unwrap()
        );
        let due = Some(now());
        sys::lock(&calendar.confirmed).get_mut("1").unwrap().expires = due;
        calendar.renew().unwrap();
        assert!(sys::lock(&calendar.confirmed).is_empty());
        let logged = sys::lock(&log).join("\n");
        assert!(
            logged.starts_with("t: a to b: its booking ended while"),
            "{logged}"
        );
        booking.slot = "2".to_owned();
        let why = calendar.confirm(&booking).unwrap_err().to_string();
        assert!(
            why.starts_with("its booking in the calendar ended after 30 s"),
            "{why}"
        );
    }

    #[test]
    fn units_that_change_are_those_of_all_meshes_and_are_in_the_log() {
        let directory = TempDir::new();
        let log = Mutex::new(Vec::new());
        let note = |line: &str| sys::lock(&log).push(line.to_owned());
        for (units, line) in [
            ("2", None),
            ("2", None),
            (
                "1",
                Some(
                    "link:up has 1 unit from now on, for all meshes of the calendar, instead of 2",
                ),
            ),
        ] {
            let mesh = linked(units);
            let calendar = MeshCalendar {
                mesh: &mesh,
                file: directory.path().join("meshes.db"),
                place: "a test".to_owned(),
                log: &note,
                opened: Mutex::new(Err(String::new())),
                confirmed: Mutex::default(),
            };
            let mut opened = calendar.open().unwrap().unwrap();
            let count: u32 = units.parse().unwrap();
            assert_eq!(opened.units("link:up").unwrap(), count);
            assert_eq!(opened.units("host:b").unwrap(), 1);
            assert_eq!(opened.units("disk:b").unwrap(), 0, "nothing is copied");
            // One coordinator of a mesh.
            let holder = calendar.open().unwrap().err().unwrap();
            assert!(
                calendar
                    .held_by(&holder)
                    .contains("one of a mesh is possible")
            );
            let logged = std::mem::take(&mut *sys::lock(&log));
            assert_eq!(logged.first().map(String::as_str), line);
        }
    }

    #[test]
    fn a_calendar_that_failed_is_not_used_until_it_is_opened_again() {
        let directory = TempDir::new();
        let mesh = linked("2");
        let log = Mutex::new(Vec::new());
        let note = |line: &str| sys::lock(&log).push(line.to_owned());
        let calendar = MeshCalendar {
            log: &note,
            ..calendar_of(&mesh, &directory)
        };
        let lost = || calendar::Error::Unknown("a test".to_owned(), "x".to_owned());
        let why = calendar
            .with(|_| -> Result<(), _> { Err(lost()) })
            .unwrap_err();
        let again = calendar.with(|_| -> Result<(), _> { panic!("it is not used") });
        assert_eq!(again.unwrap_err().to_string(), why.to_string());
        assert!(hold(&calendar, "1").is_err());
        let mut archive = Archive::open(&directory.path().join("runs.db")).unwrap();
        let looks = AtomicU32::new(0);
        let goes_on = || looks.fetch_add(1, Ordering::SeqCst) < 1;
        calendar.keep(&mut archive, &goes_on).unwrap();
        hold(&calendar, "1").unwrap();
        let logged = sys::lock(&log).join("\n");
        assert!(logged.ends_with("; it can be used again"), "{logged}");
    }

    #[test]
    fn a_calendar_that_can_be_used_is_looked_at_each_second() {
        let directory = TempDir::new();
        let mesh = linked("2");
        let calendar = calendar_of(&mesh, &directory);
        let mut archive = Archive::open(&directory.path().join("runs.db")).unwrap();
        let (begun, looks) = (Instant::now(), AtomicU32::new(0));
        let goes_on = || {
            looks.fetch_add(1, Ordering::SeqCst);
            begun.elapsed() < AGAIN / 2
        };
        calendar.keep(&mut archive, &goes_on).unwrap();
        // Between them the wish to stop alone.
        assert!(looks.load(Ordering::SeqCst) <= 2 + (AGAIN / 2).div_duration_f64(LOOK) as u32);
    }
}

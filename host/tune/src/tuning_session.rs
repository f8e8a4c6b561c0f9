//! The session in which an experiment changes the settings of this host.

use crate::Undone;
use crate::guard::SIGN;
use crate::journal::{Header, Journal, JournalChange, JournalPlace, Namespace, plain};
use crate::kernel::kernel;
use crate::knobs::{Image, KnobFailure, NO_RIGHT, Target};
use crate::persist::undo_written;
use crate::prelude::*;
use crate::undo::{undo_from, undo_those};
use model::{Knob, Reading, Side};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// How long the guard may take to be ready: it is this program, already in memory.
const GUARD_START: Duration = Duration::from_secs(20);

/// What an experiment needs to change settings.
#[derive(Debug)]
pub struct Begin {
    /// Directory of the journals, see [`default_state`](crate::default_state).
    pub state: PathBuf,
    /// Name of the experiment: a second one gets it in its error.
    pub title: String,
    /// After so long without [`TuningSession::renew`] everything is undone.
    pub deadline: Duration,
    /// Starts a process that calls [`guard`](crate::guard) with the last argument, which is added here.
    /// Standard input and output are taken over; standard error is the caller's to direct (to nowhere,
    /// or whoever waits for its end waits for the guard's).
    pub guard: Command,
    /// Which of the two hosts this is, for the readings.
    pub side: Side,
}

/// The exclusive right to change the settings of this network namespace. Undoes everything when dropped.
#[derive(Debug)]
pub struct TuningSession {
    place: JournalPlace,
    header: Header,
    side: Side,
    guard: Option<(UnixStream, Child)>,
    /// Dropped last: everything is undone by then.
    _alone: File,
}

/// Takes the settings of this host (of the calling thread's network namespace) for an experiment. What a
/// dead one left is undone first.
///
/// # Errors
/// [`Error::Held`] while another has them.
pub fn begin(begin: Begin) -> Result<TuningSession, Error> {
    let header = Header::new(&begin.title, begin.deadline)?;
    let place = JournalPlace::of(&begin.state, &header.namespace)?;
    let Some(alone) = place.try_lock("hold")? else {
        return Err(held(&place));
    };
    {
        let _changing = place.lock("change")?;
        undo_the_dead(&place)?;
        Journal::create(&place, header.clone())?;
    }
    let mut session = TuningSession {
        place,
        header,
        side: begin.side,
        guard: None,
        _alone: alone,
    };
    session.start_guard(begin.guard)?;
    Ok(session)
}

fn held(place: &JournalPlace) -> Error {
    // The journal is read without the lock: it may be just being written, and then has no title yet.
    let header = Journal::peek_at(&place.journal());
    let (title, pid) = header.map_or(("an experiment".to_owned(), 0), |h| (h.title, h.pid));
    Error::Held { title, pid }
}

/// Undoes what a dead experiment left in this place, under the locks `hold` and `change`.
pub(crate) fn undo_the_dead(place: &JournalPlace) -> Result<Vec<Undone>, Error> {
    let Some(mut journal) = Journal::load(place)? else {
        return Ok(Vec::new());
    };
    // Of an earlier boot, or of a namespace that is gone, the kernel has forgotten all.
    let undone = match journal.header.namespace == Namespace::current()? {
        true => undo_from(&mut journal, &mut kernel()?, 0)?,
        false => Vec::new(),
    };
    journal.remove()?;
    Ok(undone)
}

impl TuningSession {
    fn start_guard(&mut self, mut command: Command) -> Result<(), Error> {
        let failed = |why: String| Error::no_guard(&format!("cannot be started ({why})"));
        let (mut ours, theirs) = UnixStream::pair().map_err(|e| failed(e.to_string()))?;
        command
            .arg(&self.place.0)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null());
        sys::namespace::detach(&mut command);
        let child = command.spawn().map_err(|e| failed(e.to_string()))?;
        // The command keeps the guard's end of the socket, which would hide its death.
        drop(command);
        step("guard started");
        let ready = ours
            .set_read_timeout(Some(GUARD_START))
            .and_then(|()| ours.read_exact(&mut [0]));
        self.guard = Some((ours, child));
        step("guard answered");
        ready.map_err(|_| failed("it does not answer".to_owned()))
    }

    /// Applies settings, those that change least first, and reads them back. Options of linerate's own
    /// connections are passed over. If one cannot be applied, the others of the same call are undone.
    ///
    /// # Errors
    /// [`Error::Refused`], with nothing changed; [`Error::Expired`] and
    /// [`Error::Failed`], after which only [`TuningSession::end`] is of use.
    pub fn apply(&mut self, settings: &[Setting], peer: IpAddr) -> Result<Vec<Reading>, Error> {
        let (_changing, mut journal) = self.open()?;
        if !self.place.is_locked("guard") {
            return Err(Error::no_guard("has died"));
        }
        let mut kernel = kernel()?;
        let mut settings: Vec<&Setting> = settings.iter().filter(|s| !s.knob.is_socket()).collect();
        settings.sort_by_key(|setting| setting.knob.scope());
        // What can be known to fail is refused before anything is changed.
        for setting in &settings {
            plan(&mut kernel, setting, peer).map_err(|f| refused(setting, f))?;
        }
        let first = journal.next_number();
        for setting in &settings {
            if let Err(error) = apply_one(&mut journal, &mut kernel, setting, peer) {
                undo_from(&mut journal, &mut kernel, first)?;
                return Err(error);
            }
        }
        Ok(self.read(&journal, &mut kernel, first))
    }

    /// Reads all settings that are applied now.
    ///
    /// # Errors
    /// [`Error::Expired`] if the guard has undone them.
    pub fn verify(&self) -> Result<Vec<Reading>, Error> {
        let (_changing, journal) = self.open()?;
        Ok(self.read(&journal, &mut kernel()?, 0))
    }

    /// Undoes all settings; others can be applied afterwards.
    ///
    /// # Errors
    /// [`Error::Expired`] if the guard has undone them.
    pub fn undo(&mut self) -> Result<Vec<Undone>, Error> {
        let (_changing, mut journal) = self.open()?;
        undo_from(&mut journal, &mut kernel()?, 0)
    }

    /// Undoes these settings and leaves the others, whatever was applied between them.
    ///
    /// # Errors
    /// [`Error::Expired`] if the guard has undone them.
    pub fn undo_only(&mut self, settings: &[Setting]) -> Result<Vec<Undone>, Error> {
        let (_changing, mut journal) = self.open()?;
        let which = |change: &JournalChange| settings.contains(&change.setting);
        undo_those(&mut journal, &mut kernel()?, which)
    }

    /// Shows the guard that the experiment lives: the deadline is extended.
    pub fn renew(&mut self) {
        if let Some((guard, _)) = &mut self.guard {
            // Whether it lives is seen when something is to be changed.
            let _ = guard.write_all(&[SIGN]);
        }
    }

    /// Undoes all settings and gives the host free for the next experiment.
    ///
    /// # Errors
    /// [`Error::Failed`]: the journal stays, and the guard goes on trying for a while.
    pub fn end(mut self) -> Result<Vec<Undone>, Error> {
        let undone = self.finish();
        self.dismiss_guard();
        match undone {
            // It has undone everything already.
            Err(Error::Expired(_)) => Ok(Vec::new()),
            other => other,
        }
    }

    /// Lets what is applied stay, and gives the host free: until [`undo_kept`], or until the machine is
    /// rebooted. Returns what that is.
    ///
    /// # Errors
    /// [`Error::Expired`] if the guard has undone it; [`Error::Failed`], after which it is undone.
    pub fn keep(mut self) -> Result<Vec<Reading>, Error> {
        let readings = {
            let (_changing, journal) = self.open()?;
            let readings = self.read(&journal, &mut kernel()?, 0);
            if journal.entries.is_empty() {
                journal.remove()?;
            } else {
                journal.keep(&self.place)?;
            }
            readings
        };
        self.dismiss_guard();
        Ok(readings)
    }

    fn finish(&mut self) -> Result<Vec<Undone>, Error> {
        let (_changing, mut journal) = self.open()?;
        let undone = undo_from(&mut journal, &mut kernel()?, 0)?;
        journal.remove()?;
        Ok(undone)
    }

    /// The guard ends when it sees the journal gone, or has tried what this process could not do.
    fn dismiss_guard(&mut self) {
        if let Some((socket, mut child)) = self.guard.take() {
            drop(socket);
            let _ = child.wait();
        }
    }

    fn open(&self) -> Result<(File, Journal), Error> {
        let changing = self.place.lock("change")?;
        if Namespace::current()? != self.header.namespace {
            let why = "is in another network namespace than this thread";
            return Err(Error::no_guard(why));
        }
        let journal = Journal::load(&self.place)?.filter(|j| j.header.id == self.header.id);
        let journal = journal.ok_or_else(|| Error::Expired(self.header.title.clone()))?;
        Ok((changing, journal))
    }

    /// The latest of each knob.
    fn read(&self, journal: &Journal, kernel: &mut Kernel, first: u64) -> Vec<Reading> {
        let mut readings: Vec<Reading> = Vec::new();
        let mut knobs: Vec<(Knob, String)> = Vec::new();
        let entries = journal.entries.iter().rev();
        for entry in entries.filter(|e| e.change.number >= first) {
            let setting = &entry.change.setting;
            let about = (setting.knob, subject(&entry.change.target));
            if knobs.contains(&about) {
                continue;
            }
            knobs.push(about);
            let part = entry.change.target.part();
            let (found, in_force) = match part.found(kernel) {
                Ok(Some(value)) => (
                    setting.knob.format_value(&value),
                    part.is(&setting.value, &value),
                ),
                Ok(None) => ("not set".to_owned(), false),
                Err(_) => ("unreadable".to_owned(), false),
            };
            readings.push(Reading {
                asked: setting.knob.format_value(&setting.value),
                setting: setting.to_string(),
                side: self.side,
                found,
                in_force,
            });
        }
        readings.reverse();
        readings
    }
}

impl Drop for TuningSession {
    fn drop(&mut self) {
        if self.guard.is_some() {
            // What fails here the guard tries again.
            let _ = self.finish();
            self.dismiss_guard();
        } else if let Ok((_changing, journal)) = self.open() {
            // Never begun: nothing was changed.
            let _ = journal.remove();
        }
    }
}

/// Whom a target is about, whatever is planned for it.
fn subject(target: &Target) -> String {
    match target {
        Target::Route(route) => route.peer().to_string(),
        Target::Sysctl(_)
        | Target::Mtu(_)
        | Target::Mtu6(_)
        | Target::Pin(_)
        | Target::Txqueuelen(_)
        | Target::Qdisc(_)
        | Target::Offloads(_)
        | Target::Rings(_)
        | Target::InterruptDelay(_) => serde_json::to_string(target).unwrap_or_default(),
    }
}

/// Where a setting acts, what is there, and the value that the knob has.
fn plan(
    kernel: &mut Kernel,
    setting: &Setting,
    peer: IpAddr,
) -> Result<Option<(Target, Image, String)>, KnobFailure> {
    let Some(target) = Target::of(kernel, setting, peer)? else {
        return Ok(None);
    };
    let part = target.part();
    let before = part.read(kernel)?;
    part.plan(kernel, setting, &before)?;
    let was = part.found(kernel)?;
    let was = was.map_or("not set".to_owned(), |value| {
        setting.knob.format_value(&value)
    });
    Ok(Some((target, before, was)))
}

fn apply_one(
    journal: &mut Journal,
    kernel: &mut Kernel,
    setting: &Setting,
    peer: IpAddr,
) -> Result<(), Error> {
    let planned = plan(kernel, setting, peer).map_err(|f| refused(setting, f))?;
    let Some((target, before, was)) = planned else {
        return Ok(());
    };
    let number = journal.next_number();
    journal.before(JournalChange {
        number,
        setting: setting.clone(),
        was,
        target: target.clone(),
        before,
    })?;
    let (part, refused) = (target.part(), |f| refused(setting, f));
    part.apply(kernel, setting).map_err(refused)?;
    step("change made");
    let after = part.read(kernel).map_err(refused)?;
    step("change read back");
    journal.made(number, after);
    Ok(())
}

fn refused(setting: &Setting, failure: KnobFailure) -> Error {
    let what = setting.to_string();
    let why = match failure {
        KnobFailure::Forbidden => NO_RIGHT.to_owned(),
        KnobFailure::Gone => "the device is not there".to_owned(),
        KnobFailure::Words(why) => why,
    };
    Error::Refused { what, why }
}

/// Keeps what a session of this title has applied in this network namespace, from outside: its holder sees that
/// there is nothing left to undo. A second call does nothing.
///
/// # Errors
/// [`Error::Expired`] if nothing of that title is in force any more.
pub fn commit(state: &Path, title: &str) -> Result<(), Error> {
    let here = Namespace::current()?;
    let place = JournalPlace::of(state, &here)?;
    let _changing = place.lock("change")?;
    let title = plain(title);
    let is_it = |header: &Header| header.title == title && header.namespace == here;
    if let Some(journal) = Journal::load(&place)?.filter(|j| is_it(&j.header)) {
        return journal.keep(&place);
    }
    let last = place.kept().pop_last();
    match last.and_then(|(_, path)| Journal::peek_at(&path)) {
        Some(header) if is_it(&header) => Ok(()),
        _ => Err(Error::Expired(title)),
    }
}

/// What was kept in this network namespace under this title, in the order in which it was applied.
///
/// # Errors
/// [`Error::Expired`] if nothing was, or not any more.
pub fn kept(state: &Path, title: &str) -> Result<Vec<Setting>, Error> {
    let here = Namespace::current()?;
    let title = plain(title);
    let mut kept: Vec<Setting> = Vec::new();
    for path in JournalPlace::of(state, &here)?.kept().into_values() {
        let journal = Journal::read_at(path)?;
        let ours = |j: &Journal| j.header.title == title && j.header.namespace == here;
        for entry in journal.filter(ours).map_or(Vec::new(), |j| j.entries) {
            // Kept again, the latest is in force.
            let setting = entry.change.setting;
            kept.retain(|s| s.knob != setting.knob || s.on != setting.on);
            kept.push(setting);
        }
    }
    match kept.is_empty() {
        true => Err(Error::Expired(title)),
        false => Ok(kept),
    }
}

/// Undoes what an experiment that died left in this network namespace, and clears away what earlier boots
/// left anywhere. What was kept stays.
///
/// # Errors
/// [`Error::Held`] if it lives.
pub fn recover(state: &Path) -> Result<Vec<Undone>, Error> {
    restore(state, false)
}

/// The same, and undoes what was kept in this network namespace as well, and what was written down of it for
/// the next start of this machine.
pub fn undo_kept(state: &Path) -> Result<Vec<Undone>, Error> {
    let mut undone = restore(state, true)?;
    undone.extend(undo_written(state)?);
    Ok(undone)
}

fn restore(state: &Path, kept_too: bool) -> Result<Vec<Undone>, Error> {
    let here = Namespace::current()?;
    let mut undone = Vec::new();
    for place in JournalPlace::all(state)? {
        let ours = place.0.ends_with(format!("net-{}", here.inode));
        let kept = place.kept();
        let journals = kept.values().cloned().chain([place.journal()]);
        let mut known = journals.filter_map(|path| Journal::peek_at(&path));
        let stale = known.all(|header| header.namespace.boot != here.boot);
        if !ours && !stale {
            continue;
        }
        let Some(_alone) = place.try_lock("hold")? else {
            return Err(held(&place));
        };
        let _changing = place.lock("change")?;
        undone.extend(undo_the_dead(&place)?);
        for path in kept.into_values().rev() {
            let Some(mut journal) = Journal::read_at(path)? else {
                continue;
            };
            let Namespace { boot, inode, .. } = &journal.header.namespace;
            // Elsewhere on this machine it is in force, unless that namespace is gone and this one has
            // its number.
            let gone =
                *boot != here.boot || (*inode == here.inode && journal.header.namespace != here);
            if journal.header.namespace == here && kept_too {
                undone.extend(undo_from(&mut journal, &mut kernel()?, 0)?);
            } else if !gone {
                continue;
            }
            journal.remove()?;
        }
    }
    Ok(undone)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes a journal of this namespace with these settings, as a session of this title does.
    fn journal(state: &Path, title: &str, settings: &[&str]) -> (JournalPlace, Journal) {
        let header = Header::new(title, Duration::from_secs(7)).unwrap();
        let place = JournalPlace::of(state, &header.namespace).unwrap();
        let mut journal = Journal::create(&place, header).unwrap();
        for (number, setting) in (1..).zip(settings) {
            let setting: Setting = setting.parse().unwrap();
            let target = serde_json::json!({"part": "sysctl", "key": "net.ipv4.tcp_sack"});
            let change = JournalChange {
                number,
                setting,
                was: "1".to_owned(),
                target: serde_json::from_value(target).unwrap(),
                before: Image::Null,
            };
            journal.before(change).unwrap();
        }
        (place, journal)
    }

    #[test]
    fn of_what_was_kept_under_a_title_the_latest_of_each_knob_is_in_force() {
        let name = format!("linerate-kept-{}", std::process::id());
        let state = std::env::temp_dir().join(name);
        let sack = |on: u8| format!("sysctl:net.ipv4.tcp_sack={on}");
        for (title, settings) in [
            ("one", vec![sack(0), "route.initcwnd=9".to_owned()]),
            ("two", vec!["route.initcwnd=7".to_owned()]),
            ("one", vec![sack(1), "route.initcwnd=8@receiver".to_owned()]),
        ] {
            let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
            let (place, _) = journal(&state, title, &settings);
            // Kept from outside, once; a second time changes nothing.
            commit(&state, title).unwrap();
            commit(&state, title).unwrap();
            assert!(!place.journal().exists());
            assert!(matches!(commit(&state, "none"), Err(Error::Expired(_))));
        }
        let texts = |title: &str| {
            let all = kept(&state, title).map_err(drop)?;
            Ok::<_, ()>(all.iter().map(Setting::to_string).collect::<Vec<_>>())
        };
        let found = [texts("one"), texts("two"), texts("none")];
        // What is not the last is not found by its title any more.
        let last = commit(&state, "two");
        std::fs::remove_dir_all(&state).unwrap();
        let one = [
            "route.initcwnd=9",
            "sysctl:net.ipv4.tcp_sack=1",
            "route.initcwnd=8@receiver",
        ];
        let strings = |all: &[&str]| Ok(all.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>());
        assert_eq!(
            found,
            [strings(&one), strings(&["route.initcwnd=7"]), Err(())]
        );
        assert!(matches!(last, Err(Error::Expired(_))));
    }

    #[test]
    fn what_is_gone_is_cleared_away_and_what_is_in_force_stays() {
        let name = format!("linerate-recover-{}", std::process::id());
        let state = std::env::temp_dir().join(name);
        let here = Namespace::current().unwrap();
        let (boot, inode, cookie) = (here.boot.as_str(), here.inode, here.cookie);
        // Kept in the place of this namespace, then in that of another one.
        let other = inode + 1;
        let kept = [
            (inode, boot, inode, cookie, true),
            (inode, boot, inode, cookie + 1, false),
            (inode, "another", inode, cookie, false),
            (inode, boot, other, cookie, true),
            (other, boot, other, cookie, true),
            (other + 1, "another", other, cookie, false),
        ];
        let mut paths = Vec::new();
        for (place, boot, inode, cookie, stays) in kept {
            let place = JournalPlace::named(&state, &format!("net-{place}")).unwrap();
            let mut header = Header::new("one", Duration::from_secs(7)).unwrap();
            header.namespace = Namespace {
                boot: boot.to_owned(),
                inode,
                cookie,
            };
            Journal::create(&place, header)
                .unwrap()
                .keep(&place)
                .unwrap();
            let (_, path) = place.kept().pop_last().unwrap();
            paths.push((path, stays));
        }
        let undone = recover(&state);
        let left: Vec<bool> = paths.iter().map(|(path, _)| path.exists()).collect();
        let undone_too = undo_kept(&state);
        let first = paths[0].0.exists();
        let elsewhere = paths[3].0.exists() && paths[4].0.exists();
        std::fs::remove_dir_all(&state).unwrap();
        assert_eq!(undone.unwrap(), []);
        assert_eq!(left, kept.map(|(.., stays)| stays));
        assert_eq!(undone_too.unwrap(), []);
        assert!(!first && elsewhere);
    }

    #[test]
    fn a_living_session_is_named_and_keeps_its_place() {
        let name = format!("linerate-held-{}", std::process::id());
        let state = std::env::temp_dir().join(name);
        let (place, journal) = journal(&state, "mine", &[]);
        let holds = place.try_lock("hold").unwrap().unwrap();
        let found = recover(&state).unwrap_err().to_string();
        drop(holds);
        assert_eq!(recover(&state).unwrap(), []);
        let cleared = !place.journal().exists();
        drop(journal);
        std::fs::remove_dir_all(&state).unwrap();
        assert!(found.starts_with("'mine' (process "), "{found}");
        assert!(cleared);
    }

    #[test]
    fn readings_differ_by_what_they_are_about() {
        let target = |text: &str| subject(&serde_json::from_str::<Target>(text).unwrap());
        let sack = r#"{"part":"sysctl","key":"net.ipv4.tcp_sack"}"#;
        assert_ne!(target(sack), target(&sack.replace("sack", "dsack")));
        let route = |planned: &str| {
            let text =
                r#"{"part":"route","peer":"192.0.2.1","knob":"initcwnd","planned":"PLANNED"}"#;
            target(&text.replace("PLANNED", planned))
        };
        // Whatever is planned for the route to one host.
        assert_eq!(route("00"), route("01"));
        assert_eq!(route("00"), "192.0.2.1");
    }

    #[test]
    fn a_refusal_names_the_setting_and_why() {
        let setting: Setting = "device.mtu=1400".parse().unwrap();
        let of = |failure| refused(&setting, failure).to_string();
        let begin = "cannot set device.mtu=1400: ";
        assert_eq!(
            of(KnobFailure::Forbidden),
            format!("{begin}{NO_RIGHT}; nothing was changed")
        );
        assert!(of(KnobFailure::Gone).contains("the device is not there"));
        assert!(of(KnobFailure::Words("x".to_owned())).contains(": x; "));
    }
}

//! The journal of one network namespace: what is about to be changed is on the disk before it is changed.
//!
//! A directory a namespace, with a journal of one JSON value a line and three files that are only locked:
//! `hold` by the experiment, `guard` by its guard, `change` by whoever changes or undoes anything just now.
//! The kernel drops a lock with the process, which distinguishes dead processes from living ones without process
//! numbers.
//!
//! A journal whose changes are to stay is renamed to `kept-N`, which is the one moment that parts "undone
//! if anything happens" from "kept": guards and later starts look for `journal` alone.

use crate::knobs::{Image, Target};
use crate::prelude::*;
use model::{Knob, On};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Write};
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

/// Larger than any that is written: an experiment's journal is emptied whenever everything is undone.
const MOST_BYTES: u64 = 64 << 20;

/// What the names of kept journals begin with; a number follows, which rises.
const KEPT: &str = "kept-";

/// Which network namespace of which boot. The kernel uses inode numbers again, but never a cookie.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Namespace {
    pub boot: String,
    pub inode: u64,
    /// `SO_NETNS_COOKIE`; 0 before Linux 5.14.
    pub cookie: u64,
}

impl Namespace {
    /// That of the calling thread.
    pub fn current() -> Result<Namespace, Error> {
        let boot = sys::process::boot_id().map_err(Error::kernel("its boot"))?;
        let net = fs::metadata("/proc/thread-self/ns/net");
        Ok(Namespace {
            boot,
            inode: net.map_err(Error::kernel("its network namespace"))?.ino(),
            cookie: cookie().unwrap_or(0),
        })
    }
}

fn cookie() -> io::Result<u64> {
    /// `include/uapi/asm-generic/socket.h`.
    const SO_NETNS_COOKIE: i32 = 71;
    // Any socket will do; this one sends nothing.
    let socket = UdpSocket::bind(("127.0.0.1", 0)).or_else(|_| UdpSocket::bind(("0.0.0.0", 0)))?;
    let mut cookie = [0; 8];
    let option = (libc::SOL_SOCKET, SO_NETNS_COOKIE);
    sys::socket::read_option(socket.as_fd(), option, &mut cookie)?;
    Ok(u64::from_ne_bytes(cookie))
}

/// The first line: whose journal it is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Header {
    /// Distinguishes this journal from a later one in its place.
    pub id: String,
    pub title: String,
    pub pid: u32,
    /// Seconds since 1970-01-01 UTC.
    pub started: u64,
    /// How long the guard waits for a sign of life, in milliseconds.
    pub deadline_ms: u64,
    pub namespace: Namespace,
}

impl Header {
    pub fn new(title: &str, deadline: std::time::Duration) -> Result<Header, Error> {
        Ok(Header {
            // The keys of RandomState come from the kernel's random numbers.
            id: format!("{:016x}", RandomState::new().hash_one(())),
            title: plain(title),
            pid: std::process::id(),
            started: sys::clock::unix().as_secs(),
            deadline_ms: u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX),
            namespace: Namespace::current()?,
        })
    }
}

/// A title in the form of the journal.
pub(crate) fn plain(title: &str) -> String {
    let visible = title.chars().filter(|c| !c.is_control());
    visible.take(100).collect()
}

/// One change, as planned before it is made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct JournalChange {
    pub number: u64,
    #[serde(with = "SettingRecord")]
    pub setting: Setting,
    /// The value before, in the words of the setting.
    pub was: String,
    pub target: Target,
    pub before: Image,
}

/// A setting by its parts: unlike its text, they are read back whatever range a knob has by then.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Setting")]
struct SettingRecord {
    knob: Knob,
    value: Value,
    on: On,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum JournalLine {
    Header(Header),
    /// About to be made.
    Change(JournalChange),
    /// Made, and read back.
    Made {
        number: u64,
        after: Image,
    },
    Undone {
        number: u64,
    },
}

/// A change that may be in force.
#[derive(Clone, Debug)]
pub(crate) struct JournalEntry {
    pub change: JournalChange,
    /// What was read back; `None`: perhaps it was never made.
    pub after: Option<Image>,
}

/// The directory of one network namespace.
#[derive(Clone, Debug)]
pub(crate) struct JournalPlace(pub PathBuf);

impl JournalPlace {
    /// That of a namespace, made if it is not there.
    pub fn of(state: &Path, namespace: &Namespace) -> Result<JournalPlace, Error> {
        JournalPlace::named(state, &format!("net-{}", namespace.inode))
    }

    /// One with this name, made if it is not there.
    pub fn named(state: &Path, name: &str) -> Result<JournalPlace, Error> {
        let place = JournalPlace(state.join(name));
        let made = sys::file::make_private(&place.0);
        made.map_err(Error::journal("make", &place.0))?;
        // A directory in /tmp could have been put there by anybody, and what a journal says is done.
        let uid = sys::process::effective_user();
        for directory in [&place.0, state] {
            let metadata = fs::metadata(directory).map_err(Error::journal("look at", directory))?;
            if metadata.uid() != uid && metadata.uid() != 0 {
                let why = "the directory belongs to another user";
                return Err(Error::journal("use", directory)(why));
            }
        }
        Ok(place)
    }

    /// All that there are.
    pub fn all(state: &Path) -> Result<Vec<JournalPlace>, Error> {
        let entries = match fs::read_dir(state) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(Error::journal("read", state)(e)),
        };
        let mut all: Vec<JournalPlace> = entries
            .filter_map(|entry| Some(JournalPlace(entry.ok()?.path())))
            .filter(|place| place.journal().exists() || !place.kept().is_empty())
            .collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(all)
    }

    pub fn journal(&self) -> PathBuf {
        self.0.join("journal")
    }

    /// The journals of what was kept by their numbers, the first first.
    pub fn kept(&self) -> BTreeMap<u64, PathBuf> {
        let entries = fs::read_dir(&self.0).into_iter().flatten();
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        paths
            .filter_map(|path| {
                let name = path.file_name()?.to_str()?;
                Some((name.strip_prefix(KEPT)?.parse().ok()?, path))
            })
            .collect()
    }

    /// The file that is locked for a purpose; never removed, so that a lock is always on the one file.
    pub fn lock_file(&self, name: &str) -> Result<File, Error> {
        let path = self.0.join(name);
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(Error::journal("make", &path))
    }

    /// Takes a lock if nobody has it.
    pub fn try_lock(&self, name: &str) -> Result<Option<File>, Error> {
        let file = self.lock_file(name)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(e)) => Err(Error::journal("lock", &self.0.join(name))(e)),
        }
    }

    /// Takes a lock, after whoever has it now.
    pub fn lock(&self, name: &str) -> Result<File, Error> {
        let file = self.lock_file(name)?;
        file.lock()
            .map_err(Error::journal("lock", &self.0.join(name)))?;
        Ok(file)
    }

    /// Whether a living process has a lock.
    pub fn is_locked(&self, name: &str) -> bool {
        let shared = File::open(self.0.join(name)).map(|file| file.try_lock_shared());
        matches!(shared, Ok(Err(TryLockError::WouldBlock)))
    }

    /// When a file was written last, in seconds since 1970-01-01 UTC.
    pub fn touched(&self, name: &str) -> Option<u64> {
        let seconds = fs::metadata(self.0.join(name)).ok()?.mtime();
        u64::try_from(seconds).ok()
    }
}

/// The journal, open; only under the lock `change`.
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
    pub header: Header,
    /// In the order in which they were made.
    pub entries: Vec<JournalEntry>,
    /// Where the first line ends.
    begin: u64,
    /// Where the last whole line ends.
    end: u64,
}

impl Journal {
    /// Begins a journal, on the disk when this returns.
    pub fn create(place: &JournalPlace, header: Header) -> Result<Journal, Error> {
        let path = place.journal();
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .map_err(Error::journal("make", &path))?;
        step("journal made");
        let mut journal = Journal {
            path: path.clone(),
            file,
            header: header.clone(),
            entries: Vec::new(),
            begin: 0,
            end: 0,
        };
        if let Err(error) = journal.append(&JournalLine::Header(header), true) {
            let _ = fs::remove_file(&path);
            return Err(error);
        }
        journal.begin = journal.end;
        // The name is on the disk as well.
        let saved = File::open(&place.0).and_then(|directory| directory.sync_all());
        saved.map_err(Error::journal("save", &place.0))?;
        step("journal begun");
        Ok(journal)
    }

    /// The first line of any of the journals alone, for whoever has no lock.
    pub fn peek_at(path: &Path) -> Option<Header> {
        let text = fs::read(path).ok()?;
        match serde_json::from_slice(text.split(|b| *b == b'\n').next()?) {
            Ok(JournalLine::Header(header)) => Some(header),
            _ => None,
        }
    }

    /// Opens the journal; `None` if there is none, or only one that was never begun, which is removed.
    pub fn load(place: &JournalPlace) -> Result<Option<Journal>, Error> {
        let path = place.journal();
        let there = path.exists();
        let journal = Journal::read_at(path.clone())?;
        if there && journal.is_none() {
            // Killed while it was begun: nothing was changed under it.
            fs::remove_file(&path).map_err(Error::journal("remove", &path))?;
        }
        Ok(journal)
    }

    /// Opens a journal without changing it; `None` if there is none.
    pub fn read_at(path: PathBuf) -> Result<Option<Journal>, Error> {
        let mut file = match OpenOptions::new().read(true).write(true).open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Error::journal("open", &path)(e)),
        };
        let mut text = Vec::new();
        let read = (&mut file).take(MOST_BYTES).read_to_end(&mut text);
        read.map_err(Error::journal("read", &path))?;
        let damaged = |why: String| Error::damaged(&path, why);
        let mut header = None;
        let mut entries: Vec<JournalEntry> = Vec::new();
        let (mut begin, mut end) = (0, 0);
        // An entry after the last newline was never completed, and its change was never made.
        let lines = text.split_inclusive(|b| *b == b'\n');
        for line in lines.filter(|l| l.ends_with(b"\n")) {
            end += line.len() as u64;
            match (serde_json::from_slice(line), &header) {
                (Ok(JournalLine::Header(first)), None) => {
                    header = Some(first);
                    begin = end;
                }
                (Ok(JournalLine::Change(change)), Some(_)) => {
                    let after = None;
                    entries.push(JournalEntry { change, after });
                }
                (Ok(JournalLine::Made { number, after }), Some(_)) => {
                    let made = entries.iter_mut().find(|e| e.change.number == number);
                    let made =
                        made.ok_or_else(|| damaged(format!("no change {number} was begun")))?;
                    made.after = Some(after);
                }
                (Ok(JournalLine::Undone { number }), Some(_)) => {
                    entries.retain(|entry| entry.change.number != number);
                }
                (Ok(_), _) => return Err(damaged("its lines are in a wrong order".to_owned())),
                (Err(error), _) => return Err(damaged(error.to_string())),
            }
        }
        let Some(header) = header else {
            return Ok(None);
        };
        Ok(Some(Journal {
            path,
            file,
            header,
            entries,
            begin,
            end,
        }))
    }

    /// Writes down what is about to be changed; it is on the disk when this returns.
    pub fn before(&mut self, change: JournalChange) -> Result<(), Error> {
        self.append(&JournalLine::Change(change.clone()), true)?;
        let after = None;
        self.entries.push(JournalEntry { change, after });
        step("change written down");
        Ok(())
    }

    /// Writes down that a change was made, and what was read back. Without this mark it is undone all the
    /// same, so a full disk does not matter here.
    pub fn made(&mut self, number: u64, after: Image) {
        if let Some(entry) = self.entries.iter_mut().find(|e| e.change.number == number) {
            entry.after = Some(after.clone());
        }
        let _ = self.append(&JournalLine::Made { number, after }, false);
        step("change marked as made");
    }

    /// Records that a change was undone. Without this mark it is undone again, which changes
    /// nothing.
    pub fn undone(&mut self, number: u64) {
        let _ = self.append(&JournalLine::Undone { number }, false);
        self.entries.retain(|entry| entry.change.number != number);
        step("change marked as undone");
    }

    /// A number for the next change.
    pub fn next_number(&self) -> u64 {
        self.entries.last().map_or(1, |last| last.change.number + 1)
    }

    /// Empties the journal once everything is undone; it can be used further.
    pub fn clear(&mut self) {
        if self.entries.is_empty() && self.file.set_len(self.begin).is_ok() {
            self.end = self.begin;
            step("journal emptied");
        }
    }

    /// Removes the journal.
    pub fn remove(self) -> Result<(), Error> {
        fs::remove_file(&self.path).map_err(Error::journal("remove", &self.path))?;
        step("journal removed");
        Ok(())
    }

    /// Sets the journal aside with its changes in force: nobody undoes them of their own accord any
    /// more. On the disk when this returns.
    pub fn keep(self, place: &JournalPlace) -> Result<(), Error> {
        let last = place.kept().pop_last().map_or(0, |(number, _)| number);
        let path = place.0.join(format!("{KEPT}{}", last + 1));
        self.file
            .sync_data()
            .and_then(|()| fs::rename(&self.path, &path))
            .map_err(Error::journal("keep", &self.path))?;
        step("journal kept");
        // Where this fails the changes are kept all the same, if the machine does not lose power just now.
        let _ = File::open(&place.0).and_then(|directory| directory.sync_all());
        Ok(())
    }

    fn append(&mut self, line: &JournalLine, on_disk: bool) -> Result<(), Error> {
        use std::io::{Seek, SeekFrom};
        let mut text = serde_json::to_vec(line).expect("plain data with text keys becomes JSON");
        text.push(b'\n');
        let write = |file: &mut File, end| {
            // Cuts off what was left by a writer that was killed.
            file.set_len(end)?;
            file.seek(SeekFrom::Start(end))?;
            let half = text.len() / 2;
            file.write_all(&text[..half])?;
            step("half a line written");
            file.write_all(&text[half..])?;
            step("line written");
            if on_disk { file.sync_data() } else { Ok(()) }
        };
        match write(&mut self.file, self.end) {
            Ok(()) => {
                self.end += text.len() as u64;
                Ok(())
            }
            Err(error) => {
                let _ = self.file.set_len(self.end);
                Err(Error::journal("write", &self.path)(error))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// A directory of journals that goes with it.
    struct State(PathBuf);

    impl State {
        fn new(name: &str) -> State {
            let name = format!("linerate-journal-{name}-{}", std::process::id());
            let state = std::env::temp_dir().join(name);
            fs::create_dir(&state).unwrap();
            State(state)
        }

        fn begin(&self) -> (JournalPlace, Journal) {
            let place = JournalPlace::named(&self.0, "net-1").unwrap();
            let header = Header::new("one", Duration::from_secs(7)).unwrap();
            let journal = Journal::create(&place, header).unwrap();
            (place, journal)
        }
    }

    impl Drop for State {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn change(number: u64) -> JournalChange {
        JournalChange {
            number,
            setting: "sysctl:net.ipv4.tcp_sack=0".parse().unwrap(),
            was: "1".to_owned(),
            target: serde_json::from_str(r#"{"part":"sysctl","key":"net.ipv4.tcp_sack"}"#).unwrap(),
            before: Image::Null,
        }
    }

    /// The changes that a journal has on the disk, and whether they are known to have been made.
    fn on_disk(place: &JournalPlace) -> Vec<(u64, bool)> {
        let journal = Journal::load(place).unwrap().unwrap();
        journal
            .entries
            .iter()
            .map(|e| (e.change.number, e.after.is_some()))
            .collect()
    }

    #[test]
    fn what_is_written_is_read_and_what_was_cut_off_is_written_over() {
        let state = State::new("read");
        let (place, mut journal) = state.begin();
        assert_eq!(journal.next_number(), 1);
        journal.before(change(1)).unwrap();
        journal.made(1, Image::Null);
        assert!(journal.entries[0].after.is_some());
        journal.before(change(2)).unwrap();
        journal.before(change(3)).unwrap();
        journal.undone(2);
        assert_eq!(journal.next_number(), 4);
        assert_eq!(on_disk(&place), [(1, true), (3, false)]);
        // A writer that was killed in the middle of a line.
        let whole = fs::metadata(place.journal()).unwrap().len();
        let mut file = OpenOptions::new()
            .append(true)
            .open(place.journal())
            .unwrap();
        file.write_all(br#"{"undone":{"number":1"#).unwrap();
        let mut again = Journal::load(&place).unwrap().unwrap();
        assert_eq!((again.end, again.next_number()), (whole, 4));
        again.before(change(4)).unwrap();
        assert_eq!(on_disk(&place), [(1, true), (3, false), (4, false)]);
        // Emptied once all is undone, and not before.
        again.clear();
        assert_eq!(on_disk(&place).len(), 3);
        [1, 3, 4]
            .into_iter()
            .for_each(|number| again.undone(number));
        again.clear();
        assert_eq!(fs::metadata(place.journal()).unwrap().len(), again.begin);
        again.before(change(1)).unwrap();
        assert_eq!(on_disk(&place), [(1, false)]);
        assert_eq!(
            Journal::peek_at(&place.journal()).unwrap().deadline_ms,
            7000
        );
    }

    #[test]
    fn a_journal_that_is_damaged_is_refused_and_one_never_begun_removed() {
        let state = State::new("damaged");
        let (place, mut journal) = state.begin();
        journal.before(change(1)).unwrap();
        let text = fs::read_to_string(place.journal()).unwrap();
        let (header, first) = text.split_once('\n').unwrap();
        let is_read = |text: &str| {
            fs::write(place.journal(), text).unwrap();
            Journal::load(&place)
                .map(|journal| journal.is_some())
                .map_err(drop)
        };
        assert_eq!(is_read(&text), Ok(true));
        let made = r#"{"made":{"number":2,"after":null}}"#;
        assert_eq!(is_read(&format!("{text}{made}\n")), Err(()), "never begun");
        assert_eq!(
            is_read(&format!("{text}{header}\n")),
            Err(()),
            "a second header"
        );
        assert_eq!(is_read(first), Err(()), "none");
        assert_eq!(is_read(&format!("{header}\nx\n")), Err(()));
        assert!(place.journal().exists());
        assert_eq!(is_read(header), Ok(false), "half a line");
        assert!(!place.journal().exists());
        assert!(Journal::load(&place).unwrap().is_none());
    }

    #[test]
    fn what_is_kept_has_rising_numbers_and_locks_are_seen() {
        let state = State::new("kept");
        for number in 1..=2 {
            let (place, mut journal) = state.begin();
            journal.before(change(1)).unwrap();
            journal.keep(&place).unwrap();
            assert_eq!(place.kept().into_keys().max(), Some(number));
        }
        let (place, journal) = state.begin();
        fs::remove_file(place.0.join("kept-1")).unwrap();
        fs::write(place.0.join("kept-x"), "").unwrap();
        journal.keep(&place).unwrap();
        assert_eq!(place.kept().into_keys().collect::<Vec<_>>(), [2, 3]);
        let held = place.try_lock("hold").unwrap().unwrap();
        assert!(place.is_locked("hold") && !place.is_locked("change") && !place.is_locked("guard"));
        assert!(place.try_lock("hold").unwrap().is_none());
        drop(held);
        assert!(!place.is_locked("hold") && place.try_lock("hold").unwrap().is_some());
        // Those that have something, by name.
        fs::create_dir(state.0.join("net-0")).unwrap();
        let empty = JournalPlace::named(&state.0, "net-2").unwrap();
        let all = |state: &State| JournalPlace::all(&state.0).unwrap().len();
        assert_eq!(all(&state), 1);
        fs::write(empty.journal(), "").unwrap();
        assert_eq!(all(&state), 2);
        assert_eq!(JournalPlace::all(&state.0.join("none")).unwrap().len(), 0);
        assert!(JournalPlace::all(&empty.journal()).is_err(), "a file");
        assert_eq!(empty.touched("gone"), None);
        assert!(
            empty
                .touched("journal")
                .is_some_and(|at| at > 1_700_000_000)
        );
    }

    #[test]
    fn a_title_is_a_hundred_visible_characters() {
        assert_eq!(plain("a\u{1b}[2Jb\n"), "a[2Jb");
        assert_eq!(
            [plain(&"x".repeat(100)).len(), plain(&"x".repeat(101)).len()],
            [100, 100]
        );
    }

    #[test]
    fn a_directory_of_another_user_is_not_used() {
        let state = State::new("foreign");
        let own = JournalPlace::named(&state.0, "net-1").unwrap();
        if sys::process::effective_user() != 0 {
            return;
        }
        for directory in [&own.0, &state.0] {
            std::os::unix::fs::chown(directory, Some(65_534), None).unwrap();
            let why = JournalPlace::named(&state.0, "net-1")
                .unwrap_err()
                .to_string();
            assert!(why.contains("belongs to another user"), "{why}");
            std::os::unix::fs::chown(directory, Some(0), None).unwrap();
        }
        assert!(JournalPlace::named(&state.0, "net-1").is_ok());
    }
}

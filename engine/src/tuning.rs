//! Changes of this machine's settings: where their journals are, what undoes them, and the changes that
//! a session makes here for a controller elsewhere.

use crate::helper::Helper;
use crate::lab::MYSELF;
use crate::listener::log;
use crate::log;
use crate::prelude::*;
use crate::transport::VERSION;
use crate::trust::sha256;
use crate::tune_rules::Rules;
use model::advice::{Configured, Persistent};
use model::{DeviceKnob, Knob, Reading, Setting};
use serde::{Deserialize, Serialize};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use tune::{Begin, TuningSession, Undone};
use wire::control::{Origin, TuneOutcome, TuneRequest};

/// The deadlines that can be: a shorter one could pass under a run, a longer one leaves a machine changed
/// too long where nobody is left to say that it goes on.
const SHORTEST: Duration = Duration::from_secs(5);
const LONGEST: Duration = Duration::from_secs(3600);

/// How often a leg under way renews the deadline: well within the shortest.
const RENEW_EVERY: Duration = Duration::from_secs(1);

/// Where the journals of changes are.
pub fn state() -> Result<PathBuf, tune::Error> {
    let value = |name| std::env::var_os(name);
    tune::default_state(
        value("LINERATE_STATE").as_deref(),
        value("XDG_STATE_HOME").as_deref(),
        value("HOME").as_deref(),
    )
}

/// Takes hold of the settings of this host, which is at this side of the experiment.
///
/// # Errors
/// If another holds them: its title.
pub fn begin(title: &str, deadline: Duration, side: Side) -> Result<TuningSession> {
    if !(SHORTEST..=LONGEST).contains(&deadline) {
        let [asked, shortest, longest] = [deadline, SHORTEST, LONGEST].map(Nanos::from);
        bail!(Refusal::usage(format!(
            "a deadline of {asked}: {shortest} to {longest} are possible"
        )));
    }
    // The process that undoes the changes if this one cannot: this same program, by itself.
    let mut guard = Command::new(MYSELF);
    guard.args(["tune", "guard", "--journal"]);
    guard.stderr(Stdio::null());
    Ok(tune::begin(Begin {
        state: state()?,
        title: title.to_owned(),
        deadline,
        guard,
        side,
    })?)
}

/// Where the files are from which this host takes its settings when it starts.
fn root() -> PathBuf {
    std::env::var_os("LINERATE_ROOT").map_or("/".into(), PathBuf::from)
}

/// What sets this host up when it starts.
pub fn configured() -> Configured {
    observe::configured(&root(), &advise::DIRECTORIES, advise::LAST)
}

/// What a server reads of its host: what its kernel reports, and what sets it up.
pub fn readable() -> Vec<PathBuf> {
    let host = [
        "/proc",
        "/sys",
        "/etc/os-release",
        "/usr/lib/os-release",
        "/run/systemd/container",
    ];
    let profiles = ["/etc/tuned", "/usr/lib/tuned"].map(Path::new);
    let set_up = advise::DIRECTORIES
        .iter()
        .chain([&advise::LAST])
        .map(Path::new)
        .chain(profiles);
    let root = root();
    let set_up = set_up.map(|path| root.join(path.strip_prefix("/").unwrap_or(path)));
    host.into_iter().map(PathBuf::from).chain(set_up).collect()
}

/// Writes what was kept under this title where this host reads it when it starts, by whatever sets its device
/// up: the settings, and in `found` the file, or what is to be done by hand.
///
/// # Errors
/// If nothing is kept under the title, or a file cannot be written.
pub fn persist(title: &str, peer: IpAddr, side: Side) -> Result<Vec<Reading>> {
    let (state, root) = (state()?, root());
    let settings = tune::kept(&state, title)?;
    let configured = configured();
    let host = observe::fingerprint(VERSION, Some(peer));
    let note = format!("Written by linerate: {title}. 'linerate tune undo' takes it back.");
    let reading = |settings: &[Setting], found: String, in_force| {
        let words: Vec<String> = settings.iter().map(ToString::to_string).collect();
        Reading {
            setting: words.join(" "),
            side,
            asked: "outlives a restart".to_owned(),
            found,
            in_force,
        }
    };
    let mut all = Vec::new();
    let mut write = |file: &Persistent| -> Result<()> {
        tune::write(&state, &root, file, title)?;
        all.push(reading(&file.holds, file.path.clone(), true));
        Ok(())
    };
    let sysctls = advise::sysctls(&settings, &configured.files, &note);
    if let Some(file) = &sysctls {
        write(file)?;
    }
    let of_machine = |s: &Setting| matches!(s.knob, Knob::Device(_) | Knob::Route(_));
    let mut left: Vec<Setting> = settings.into_iter().filter(of_machine).collect();
    let pinned = left.iter().any(|s| s.knob == Knob::Device(DeviceKnob::Pin));
    let device = host.device.as_ref().map(|device| device.name.as_str());
    for manager in device.map_or(Vec::new(), |device| tune::managers(&root, device)) {
        if pinned {
            break;
        }
        for file in advise::managed(&manager, &left, &host, &note) {
            write(&file)?;
            left.retain(|setting| !file.holds.contains(setting));
        }
    }
    let contested = |ours| advise::contested(&configured, ours);
    for (setting, why) in sysctls.iter().flat_map(contested) {
        all.push(reading(&[setting], why, false));
    }
    if pinned {
        let why = "set it again after a restart: the pins of a mixed segment go with its addresses, and without them everybody would get larger packets";
        all.push(reading(&left, why.to_owned(), false));
    } else if !left.is_empty() {
        let commands = advise::commands(&left, &host).join("; ");
        let why = format!("have it set each time the device is set up: {commands}");
        all.push(reading(&left, why, false));
    }
    Ok(all)
}

/// Undoes what was kept on this host, and what processes that were killed have left.
///
/// # Errors
/// If it cannot be restored, or something else changes settings just now.
pub fn restore() -> Result<Vec<Undone>, tune::Error> {
    tune::undo_kept(&state()?)
}

/// Undoes what processes that were killed have left changed here. What cannot be undone is said: it
/// keeps nobody from measuring.
pub fn recover() {
    match state().and_then(|state| tune::recover(&state)) {
        Ok(undone) => {
            for one in &undone {
                log::note(&format!("linerate: undone: {}", restored_line(one)));
            }
        }
        // Nothing is left behind by one that goes on, or where nothing can be kept.
        Err(tune::Error::Held { .. } | tune::Error::NoState) => {}
        Err(error) => log::note(&format!("linerate: {error}")),
    }
}

/// A setting that was undone, for people.
pub fn restored_line(undone: &Undone) -> String {
    let note = undone.note.as_ref().map(|note| format!(" ({note})"));
    let (setting, back_to) = (&undone.setting, &undone.back_to);
    format!("{setting}, back to {back_to}{}", note.unwrap_or_default())
}

/// Names this machine, from its start to its end, and this process' network namespace; empty where
/// unknown. Gives nothing else away.
pub fn place() -> String {
    let boot = sys::process::boot_id();
    let namespace = fs::metadata("/proc/thread-self/ns/net");
    let (Ok(boot), Ok(namespace)) = (boot, namespace) else {
        return String::new();
    };
    let namespace = [namespace.dev().to_be_bytes(), namespace.ino().to_be_bytes()];
    let mut place = sha256(&[boot.into_bytes(), namespace.concat()].concat());
    place.truncate(32);
    place
}

/// Who changes settings of this machine from elsewhere.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Controller {
    name: String,
    /// The id of its key; `None` over a pipe.
    key: Option<String>,
    address: Option<IpAddr>,
    /// Number of the session.
    pub session: u64,
}

impl Controller {
    /// The client of a session.
    pub fn of(peer: &Peer) -> Controller {
        Controller {
            name: peer.name.clone(),
            key: peer.id.map(|id| id.to_string()),
            address: peer.address,
            session: peer.session,
        }
    }
}

/// The outcome of a request that is not done, for this reason.
pub fn refused(why: String) -> TuneOutcome {
    TuneOutcome {
        done: Err(why),
        shared: false,
    }
}

/// What one session may change of this machine's settings, here or by a process that has the right.
pub struct TuneService {
    may_tune: Result<(), String>,
    by: Controller,
    way: TuneWay,
    /// Something was requested that it may.
    used: bool,
}

enum TuneWay {
    Here(Box<Tuner>),
    Helper(Arc<Helper>),
}

impl TuneService {
    /// Of a session with `peer`, in which nothing is held yet.
    pub fn new(peer: &Peer, helper: Option<Arc<Helper>>) -> TuneService {
        let by = Controller::of(peer);
        let here = || TuneWay::Here(Box::new(Tuner::new(by.clone(), None)));
        TuneService {
            may_tune: peer.may_tune.clone(),
            way: helper.map_or_else(here, TuneWay::Helper),
            by,
            used: false,
        }
    }

    /// Does what is requested, and says what came of it.
    pub fn answer(&mut self, number: u64, origin: &Origin, request: TuneRequest) -> ToController {
        self.used |= self.may_tune.is_ok();
        let outcome = match (&self.may_tune, &mut self.way) {
            (Err(why), _) => refused(why.clone()),
            (Ok(()), TuneWay::Here(tuner)) => tuner.answer(origin, request),
            (Ok(()), TuneWay::Helper(helper)) => helper.tune(&self.by, origin, request),
        };
        ToController::Tuned { number, outcome }
    }

    /// A leg of the session is under way, which may last longer than the deadline: as good as a word
    /// of the controller.
    pub fn goes_on(&mut self) {
        match &mut self.way {
            TuneWay::Here(tuner) => tuner.goes_on(),
            TuneWay::Helper(helper) if self.used => helper.goes_on(self.by.session),
            TuneWay::Helper(_) => {}
        }
    }
}

impl Drop for TuneService {
    fn drop(&mut self) {
        match &self.way {
            TuneWay::Helper(helper) if self.used => helper.end(self.by.session),
            TuneWay::Here(_) | TuneWay::Helper(_) => {}
        }
    }
}

/// What one session holds of this machine's settings. Dropping it undoes what is applied.
pub struct Tuner {
    by: Controller,
    rules: Option<Rules>,
    /// The controller is in the same place, and keeps the settings itself.
    shared: bool,
    hold: Option<TuningSession>,
    /// When the hold was renewed last.
    renewed: Instant,
}

impl Tuner {
    /// Of a session in which nothing is held yet.
    pub fn new(by: Controller, rules: Option<Rules>) -> Tuner {
        Tuner {
            by,
            rules,
            shared: false,
            hold: None,
            renewed: Instant::now(),
        }
    }

    /// Does what is requested.
    pub fn answer(&mut self, origin: &Origin, request: TuneRequest) -> TuneOutcome {
        TuneOutcome {
            done: self.act(origin, request),
            shared: self.shared,
        }
    }

    /// As [`Tuning::goes_on`].
    pub fn goes_on(&mut self) {
        if let Some(hold) = &mut self.hold
            && self.renewed.elapsed() > RENEW_EVERY
        {
            hold.renew();
            self.renewed = Instant::now();
        }
    }

    fn act(&mut self, origin: &Origin, request: TuneRequest) -> Result<Vec<Reading>, String> {
        let here = place();
        self.shared = !here.is_empty() && here == origin.place;
        if self.shared {
            return match request {
                TuneRequest::Apply { .. } => Err(
                    "it is on the controller's own machine, which applies its settings itself"
                        .into(),
                ),
                _ => Ok(Vec::new()),
            };
        }
        // Over TLS data comes from where the control connection does, whatever else is said.
        let address = self.by.address.or(origin.address);
        let address = address.ok_or("the controller's address is unknown: measure once first");
        match request {
            TuneRequest::Begin { title, deadline } => self.begin(&title, deadline.into())?,
            TuneRequest::Apply { settings } => {
                let address = address?;
                self.allow(&settings, address)?;
                let words: Vec<String> = settings.iter().map(ToString::to_string).collect();
                self.note(&format!("applies {}", words.join(", ")));
                return self.held()?.apply(&settings, address).map_err(said);
            }
            TuneRequest::Verify => return self.held()?.verify().map_err(said),
            TuneRequest::Undo => drop(self.held()?.undo().map_err(said)?),
            TuneRequest::UndoOnly { settings } => {
                self.held()?.undo_only(&settings).map_err(said)?;
            }
            TuneRequest::Renew => self.held()?.renew(),
            TuneRequest::FlushMetrics => tune::flush_metrics(address?).map_err(said)?,
            TuneRequest::End => self.end()?,
            TuneRequest::Commit { title } => {
                let title = self.full(&title);
                let state = state().map_err(said)?;
                tune::commit(&state, &title).map_err(said)?;
                self.note(&format!("keeps: {title}"));
            }
            TuneRequest::Persist { title } => {
                let lasting = persist(&self.full(&title), address?, Side::Remote);
                let lasting = lasting.map_err(|error| sentence(&error))?;
                for reading in lasting.iter().filter(|reading| reading.in_force) {
                    self.note(&format!("writes {} to {}", reading.setting, reading.found));
                }
                return Ok(lasting);
            }
            TuneRequest::Keep => {
                self.held()?;
                let hold = self.hold.take();
                let kept = hold.map_or(Ok(Vec::new()), TuningSession::keep);
                let kept = kept.map_err(said)?;
                let words: Vec<&str> = kept.iter().map(|r| r.setting.as_str()).collect();
                self.note(&format!("keeps {}", words.join(", ")));
                return Ok(kept);
            }
            TuneRequest::Restore => {
                let undone = restore().map_err(said)?;
                let all: Vec<String> = undone.iter().map(restored_line).collect();
                self.note(&format!("undone: {}", all.join("; ")));
                let restored = |undone: Undone| Reading {
                    setting: undone.setting,
                    side: Side::Remote,
                    asked: undone.back_to.clone(),
                    found: undone.back_to,
                    in_force: true,
                };
                return Ok(undone.into_iter().map(restored).collect());
            }
        }
        Ok(Vec::new())
    }

    /// By the rules of root, who may know more than the list of trusted hosts does.
    fn allow(&self, settings: &[Setting], peer: IpAddr) -> Result<(), String> {
        let (Some(rules), Some(key)) = (&self.rules, &self.by.key) else {
            return Ok(());
        };
        let interface = || Ok(tune::interface_towards(peer)?);
        let allowed = rules.allow(key, settings, interface);
        allowed
            .map_err(|error| sentence(&error))
            .inspect_err(|why| self.note(why))
    }

    fn begin(&mut self, title: &str, deadline: Duration) -> Result<(), String> {
        // One whose deadline has passed is over.
        if self.hold.as_ref().is_some_and(|hold| hold.verify().is_ok()) {
            return Err("this session holds its settings already".to_owned());
        }
        self.hold = None;
        let title = self.full(title);
        self.hold = Some(begin(&title, deadline, Side::Remote).map_err(|e| sentence(&e))?);
        self.note(&format!("tunes: {title}"));
        Ok(())
    }

    /// A title with the name of the host that it is for, so that no other can mean it.
    fn full(&self, title: &str) -> String {
        format!("{title} (for {})", self.by.name)
    }

    fn held(&mut self) -> Result<&mut TuningSession, String> {
        let nothing = || "nothing holds its settings in this session: begin first".to_owned();
        self.hold.as_mut().ok_or_else(nothing)
    }

    /// Undoes what is applied and lets go, if anything is held.
    fn end(&mut self) -> Result<(), String> {
        let Some(hold) = self.hold.take() else {
            return Ok(());
        };
        match hold.end() {
            // Kept meanwhile, or undone by the guard, or never changed.
            Ok(undone) if undone.is_empty() => Ok(()),
            Ok(undone) => {
                let all: Vec<String> = undone.iter().map(restored_line).collect();
                self.note(&format!("undone: {}", all.join("; ")));
                Ok(())
            }
            Err(error) => Err(said(error)).inspect_err(|why| self.note(why)),
        }
    }

    /// Over a pipe nobody reads the log of this end.
    fn note(&self, what: &str) {
        if self.by.key.is_some() {
            let Controller { name, session, .. } = &self.by;
            log(&format!("{name}: session {session}: {what}"));
        }
    }
}

impl Drop for Tuner {
    fn drop(&mut self) {
        // Said in the log; the journal stays for the next start.
        let _ = self.end();
    }
}

fn said(error: tune::Error) -> String {
    sentence(&error.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::{Exit, exit_of};
    use std::net::Ipv4Addr;

    #[test]
    fn a_deadline_is_five_seconds_to_an_hour() {
        for deadline in [
            SHORTEST - Duration::from_nanos(1),
            LONGEST + Duration::from_nanos(1),
        ] {
            let error = begin("a test", deadline, Side::Local).err().unwrap();
            assert_eq!(exit_of(&error), Exit::Usage);
            assert!(
                error.to_string().ends_with("5.00 s to 3600 s are possible"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_setting_that_was_undone_is_a_line_with_its_note() {
        let line = |note: Option<&str>| {
            restored_line(&Undone {
                setting: "device.mtu=9000".to_owned(),
                back_to: "1500".to_owned(),
                note: note.map(str::to_owned),
            })
        };
        assert_eq!(line(None), "device.mtu=9000, back to 1500");
        assert_eq!(
            line(Some("it was 4000")),
            "device.mtu=9000, back to 1500 (it was 4000)"
        );
    }

    #[test]
    fn a_place_is_the_same_each_time_and_no_name_of_this_host() {
        let here = place();
        assert_eq!((here.len(), &here), (32, &place()));
        assert!(here.bytes().all(|byte| byte.is_ascii_hexdigit()));
    }

    #[test]
    fn a_server_reads_its_kernel_and_what_sets_it_up() {
        let all = readable();
        for path in [
            "/proc",
            "/sys",
            "/etc/os-release",
            "/etc/tuned",
            "/etc/sysctl.conf",
        ] {
            assert!(all.contains(&PathBuf::from(path)), "{path}: {all:?}");
        }
    }

    fn by(address: Option<IpAddr>) -> Controller {
        Controller::of(&Peer {
            address,
            ..Peer::at_a_pipe(Ipv4Addr::LOCALHOST.into(), None)
        })
    }

    fn origin(place: &str, address: Option<IpAddr>) -> Origin {
        Origin {
            address,
            place: place.to_owned(),
        }
    }

    fn apply() -> TuneRequest {
        TuneRequest::Apply {
            settings: Vec::new(),
        }
    }

    #[test]
    fn on_the_controllers_own_machine_nothing_is_changed_for_it() {
        let mut tuner = Tuner::new(by(None), None);
        let here = origin(&place(), None);
        let begin = TuneRequest::Begin {
            title: "x".to_owned(),
            deadline: Nanos::from_secs(60),
        };
        let begun = tuner.answer(&here, begin);
        assert!(begun.shared && begun.done == Ok(Vec::new()) && tuner.hold.is_none());
        let applied = tuner.answer(&here, apply());
        assert!(
            applied.shared
                && applied
                    .done
                    .unwrap_err()
                    .contains("the controller's own machine")
        );
        let elsewhere = tuner.answer(&origin("elsewhere", None), TuneRequest::Verify);
        assert!(!elsewhere.shared);
    }

    #[test]
    fn what_is_not_held_is_neither_changed_nor_read_and_its_end_is_none() {
        let mut tuner = Tuner::new(by(None), None);
        let somewhere = Some([192, 0, 2, 1].into());
        let from = origin("elsewhere", somewhere);
        for request in [
            apply(),
            TuneRequest::Verify,
            TuneRequest::Undo,
            TuneRequest::UndoOnly {
                settings: Vec::new(),
            },
            TuneRequest::Renew,
            TuneRequest::Keep,
        ] {
            let why = tuner.answer(&from, request).done.unwrap_err();
            assert!(why.ends_with("begin first"), "{why}");
        }
        assert_eq!(tuner.answer(&from, TuneRequest::End).done, Ok(Vec::new()));
        let unknown = tuner.answer(&origin("elsewhere", None), apply());
        let why = unknown.done.unwrap_err();
        assert!(
            why.starts_with("the controller's address is unknown"),
            "{why}"
        );
    }

    #[test]
    fn a_peer_without_the_right_changes_nothing() {
        let peer = Peer {
            may_tune: Err("no right".to_owned()),
            ..Peer::at_a_pipe(Ipv4Addr::LOCALHOST.into(), None)
        };
        let mut service = TuneService::new(&peer, None);
        let said = |answer| match answer {
            ToController::Tuned { number, outcome } => (number, outcome.done),
            other => panic!("{other:?}"),
        };
        let from = origin("elsewhere", None);
        let answer = said(service.answer(7, &from, TuneRequest::End));
        assert_eq!(answer, (7, Err("no right".to_owned())));
        assert!(!service.used);
        let free = Peer::at_a_pipe(Ipv4Addr::LOCALHOST.into(), None);
        let mut service = TuneService::new(&free, None);
        let answer = said(service.answer(8, &from, TuneRequest::End));
        assert_eq!((answer, service.used), ((8, Ok(Vec::new())), true));
    }

    #[test]
    fn a_title_has_the_host_that_it_is_for() {
        let tuner = Tuner::new(by(None), None);
        assert_eq!(tuner.full("tuning x"), "tuning x (for the controller)");
    }
}

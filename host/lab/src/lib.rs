//! A network in a box: network namespaces joined by cables and emulated paths.
//!
//! One process holds a lab: it keeps its namespaces alive by descriptors alone and moves the frames of
//! its emulated links. When it ends, however it ends, the kernel takes namespaces and devices away.
//! Architecture invariant: touches only what it made.

mod emulator_counters;
mod error;
mod frame;
mod lab_processes;
mod link;
mod netem;
mod netem_watch;
mod netns;
mod netns_holder;
mod plan;
mod state_dir;
mod traffic;

pub use emulator_counters::{
    CounterReport, Emulator, LATE, LinkBackend, LinkCounters, LogEntry, ReaderCounters,
    TrafficCounters,
};
pub use error::Error;
pub use netns_holder::hold_namespaces;
pub use state_dir::{LabRecord, LinkRecord, MARK, NodeRecord};

use emulate::Scenario;
use serde::{Deserialize, Serialize};
use state_dir::StatePlace;
use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};
use sys::namespace::{self, Inside};

/// How a lab is to be made.
#[derive(Clone, Debug, Default)]
pub struct LabOptions {
    /// Its name, where that is not to be the scenario's: two labs of one scenario can be up at once.
    pub name: Option<String>,
    /// What makes its links.
    pub backend: Backend,
    /// A user namespace even for root; a user who is not root gets one anyway.
    pub in_user_namespace: bool,
    /// The command that calls [`hold_namespaces`]; without it this program with `lab-emulator`.
    pub holder: Option<Vec<OsString>>,
}

/// What may make links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// netem where the kernel has it and it can express the link, else the emulator.
    #[default]
    Auto,
    /// The emulator only: it alone obeys the seed and keeps a log.
    Emulator,
    /// netem only: nothing is made if it cannot make every shaped link.
    Netem,
}

/// A lab as a list shows it.
#[derive(Clone, Debug)]
pub struct Info {
    /// Its name.
    pub name: String,
    /// How it is.
    pub state: LabState,
    /// What was written of it; `None` if it never came up.
    pub record: Option<LabRecord>,
}

/// How a lab is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabState {
    /// It can be used.
    Up,
    /// It is being made, or removed.
    Changing,
    /// Its process was killed; `down` removes what is left.
    Dead,
}

/// A lab that is up.
#[derive(Clone, Debug)]
pub struct RunningLab {
    place: StatePlace,
    record: LabRecord,
}

/// What a lab hangs on from its first moment: it goes with this value, and so with the process that holds it,
/// however that ends.
#[derive(Debug)]
pub struct Tie(ChildStdin);

impl Tie {
    /// Lets the lab stay until [`Labs::down`].
    ///
    /// # Errors
    /// [`Error::Failed`] if it has ended already.
    pub fn cut(mut self) -> Result<(), Error> {
        let sent = self.0.write_all(netns_holder::STAY);
        sent.map_err(Error::system("let the lab stay"))
    }
}

/// The labs of one user: a directory that says which there are.
#[derive(Clone, Debug)]
pub struct Labs {
    home: PathBuf,
}

impl Labs {
    /// Those of the user who runs this: in `$LINERATE_LABS`; without it in `/run/linerate/labs` for root,
    /// else in `linerate/labs` below `$XDG_RUNTIME_DIR` or `/tmp/linerate-UID`.
    pub fn of_user() -> Labs {
        Labs {
            home: state_dir::home_of_user(),
        }
    }

    /// Those in a directory, which need not exist.
    pub fn in_directory(home: impl Into<PathBuf>) -> Labs {
        Labs { home: home.into() }
    }

    /// Makes a lab and returns once its hosts can be used. It stays up as long as its tie, or until [`Labs::down`]; if it
    /// cannot be made, nothing of it stays.
    ///
    /// # Errors
    /// [`Error::IsUp`], [`Error::Unfit`] and the other sentences on why it could not be made.
    pub fn up(
        &self,
        scenario: &Scenario,
        options: &LabOptions,
    ) -> Result<(RunningLab, Tie), Error> {
        let name = options.name.as_ref().unwrap_or(&scenario.name);
        let place = StatePlace::of(&self.home, name)?;
        if lives(&place) {
            return Err(Error::IsUp(name.clone()));
        }
        // What a killed lab of this name left.
        clear(&place)?;
        let order = netns_holder::Order {
            home: self.home.clone(),
            name: name.clone(),
            scenario: scenario.clone(),
            backend: options.backend,
            in_user_namespace: options.in_user_namespace,
        };
        match start(&order, options) {
            Ok(tie) => Ok((self.open(name)?, tie)),
            Err(error) => {
                if !matches!(error, Error::IsUp(_)) {
                    place.remove(None)?;
                }
                Err(error)
            }
        }
    }

    /// A lab that is up.
    pub fn open(&self, name: &str) -> Result<RunningLab, Error> {
        let place = StatePlace::of(&self.home, name)?;
        match place.record() {
            Some(record) if place.is_alive() => Ok(RunningLab { place, record }),
            _ => Err(Error::NotUp(name.to_owned())),
        }
    }

    /// The lab that this process runs in, started by [`Lab::command`].
    pub fn around_this_process(&self) -> Option<RunningLab> {
        let id = std::env::var(MARK).ok()?;
        let places = StatePlace::all(&self.home).ok()?;
        let mut labs = places.iter().filter_map(|(name, _)| self.open(name).ok());
        labs.find(|lab| lab.record.id == id)
    }

    /// All labs, those included whose process was killed.
    pub fn list(&self) -> Result<Vec<Info>, Error> {
        let info = |(name, place): (String, StatePlace)| {
            let record = place.record();
            let state = match (place.is_alive(), &record) {
                (true, Some(_)) => LabState::Up,
                (true, None) => LabState::Changing,
                (false, _) => LabState::Dead,
            };
            Info {
                name,
                state,
                record,
            }
        };
        Ok(StatePlace::all(&self.home)?.into_iter().map(info).collect())
    }

    /// Removes a lab, dead or alive, and ends the programs that run in it.
    ///
    /// # Errors
    /// [`Error::NotUp`] if there is nothing of this name.
    pub fn down(&self, name: &str) -> Result<(), Error> {
        let place = StatePlace::of(&self.home, name)?;
        if !place.exists() {
            return Err(Error::NotUp(name.to_owned()));
        }
        clear(&place)
    }

    /// Removes all labs, dead or alive; returns their names.
    ///
    /// # Errors
    /// The first that occurred, after all were tried.
    pub fn down_all(&self) -> Result<Vec<String>, Error> {
        let mut first = Ok(());
        let mut names = Vec::new();
        for (name, place) in StatePlace::all(&self.home)? {
            match clear(&place) {
                Ok(()) => names.push(name),
                Err(error) => first = first.and(Err(error)),
            }
        }
        first.map(|()| names)
    }
}

impl RunningLab {
    /// What is written of the lab.
    pub fn record(&self) -> &LabRecord {
        &self.record
    }

    /// The scenario that the lab was made from.
    ///
    /// # Errors
    /// [`Error::Failed`] if it cannot be read any more.
    pub fn scenario(&self) -> Result<Scenario, Error> {
        let path = self.place.file("scenario.json");
        fs::read(&path)
            .and_then(|text| serde_json::from_slice(&text).map_err(Into::into))
            .map_err(Error::system(format!("read {}", path.display())))
    }

    /// The nodes in which programs run, routers included.
    pub fn hosts(&self) -> impl Iterator<Item = &NodeRecord> {
        self.record.nodes.iter().filter(|n| n.kind != "switch")
    }

    /// One of the hosts.
    pub fn host(&self, name: &str) -> Result<&NodeRecord, Error> {
        self.hosts().find(|host| host.name == name).ok_or_else(|| {
            let hosts: Vec<&str> = self.hosts().map(|h| &*h.name).collect();
            let (lab, hosts) = (&self.record.name, hosts.join(", "));
            Error::Failed(format!("the lab {lab} has no host {name}; it has {hosts}"))
        })
    }

    /// A command that will run in a host, under the host's name, with `/etc/hosts` naming the others.
    ///
    /// # Errors
    /// [`Error::Failed`] if there is no such host; [`Error::NotUp`] if the lab has ended.
    pub fn command(&self, host: &str, program: impl AsRef<OsStr>) -> Result<Command, Error> {
        let node = self.host(host)?;
        let gone = |_| Error::NotUp(self.record.name.clone());
        let net = File::open(&node.netns).map_err(gone)?.into();
        let user = format!("/proc/{}/ns/user", self.record.pid);
        let user = self.record.in_user_namespace.then(|| File::open(user));
        let user = user.transpose().map_err(gone)?.map(Into::into);
        // The number of the process could be another's by now.
        if !self.place.is_alive() {
            return Err(Error::NotUp(self.record.name.clone()));
        }
        let hosts = CString::new(self.place.file("hosts").as_os_str().as_bytes())
            .expect("a path that was made has no NUL");
        let mut command = Command::new(program);
        command.env(MARK, &self.record.id);
        // Who asks there may be root of a user namespace, whose labs are elsewhere.
        command.env(state_dir::HOME, self.place.home());
        let inside = Inside {
            user,
            net,
            host_name: host.to_owned(),
            hosts,
        };
        namespace::start_inside(&mut command, inside);
        Ok(command)
    }

    /// What really happened so far, counted up to this moment.
    ///
    /// # Errors
    /// [`Error::NotUp`] if the lab has ended.
    pub fn counters(&self) -> Result<CounterReport, Error> {
        self.ask("counters")
    }

    /// The log of what was done to frames, oldest first: the last part of it if it was long.
    pub fn log(&self) -> Result<Vec<LogEntry>, Error> {
        self.ask("log")
    }

    /// The process that holds the lab.
    pub fn pid(&self) -> u32 {
        self.record.pid
    }

    fn ask<T: for<'de> Deserialize<'de>>(&self, what: &str) -> Result<T, Error> {
        let name = &self.record.name;
        let answer = ask(&self.place, what).map_err(|error| match self.place.is_alive() {
            true => Error::system(format!("ask the lab {name} for its {what}"))(error),
            false => Error::NotUp(name.clone()),
        })?;
        serde_json::from_slice(&answer)
            .map_err(Error::system(format!("read what the lab {name} answers")))
    }
}

/// How long a lab has to come up, to answer, or to go.
const PATIENCE: Duration = Duration::from_secs(20);

fn start(order: &netns_holder::Order, options: &LabOptions) -> Result<Tie, Error> {
    let holder = match &options.holder {
        Some(holder) => holder.clone(),
        None => {
            let program = std::env::current_exe();
            let program = program.map_err(Error::system("find this program's own file"))?;
            vec![program.into(), "lab-emulator".into()]
        }
    };
    let mut command = Command::new(holder.first().map_or(OsStr::new(""), OsString::as_os_str));
    command
        .args(holder.iter().skip(1))
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    namespace::detach(&mut command);
    let child = command.spawn();
    let mut child = child.map_err(Error::system("start the process that holds the lab"))?;
    let mut stdin = child.stdin.take().expect("stdin was asked for");
    let mut text = serde_json::to_vec(order).expect("a scenario is plain data");
    text.push(b'\n');
    // If the process ended already, its silence below says so.
    let _ = stdin.write_all(&text);
    let mut line = String::new();
    let stdout = child.stdout.take().expect("stdout was asked for");
    // What cannot be read is no answer either.
    let _ = BufReader::new(stdout).read_line(&mut line);
    if let Ok(answer) = serde_json::from_slice::<netns_holder::Answer>(line.as_bytes()) {
        return answer.map(|()| Tie(stdin));
    }
    let _ = child.kill();
    let status = child.wait();
    Err(Error::Failed(format!(
        "the process that should hold the lab {} ended before the lab was up ({}); try again",
        order.name,
        status.map_or_else(|error| error.to_string(), |status| status.to_string())
    )))
}

/// Whether a lab is up, or about to be. One that was killed a moment ago holds its lock until the kernel has
/// cleared it away, and one that is being made does not answer yet: both are waited for.
fn lives(place: &StatePlace) -> bool {
    let start = Instant::now();
    while place.is_alive() {
        if ask(place, "alive").is_ok() || start.elapsed() > PATIENCE {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

/// Ends what lives of a lab and removes what is left.
fn clear(place: &StatePlace) -> Result<(), Error> {
    let record = place.record();
    if place.is_alive() {
        // Asked, it ends the programs in the lab and itself; if it is stuck or being made, it is killed.
        let asked = ask(place, "end");
        if let (Err(_), Some(pid)) = (asked, place.holder())
            && place.is_alive()
        {
            let _ = sys::signal::end(pid, true);
        }
        let start = Instant::now();
        while place.is_alive() {
            if start.elapsed() > PATIENCE {
                let what = format!("end the process of the lab in {}", place.file("").display());
                return Err(Error::system(what)(std::io::ErrorKind::TimedOut));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    if let Some(record) = record {
        lab_processes::end(lab_processes::Of::Marked(&record.id));
    }
    place.remove(None)
}

fn ask(place: &StatePlace, what: &str) -> std::io::Result<Vec<u8>> {
    let mut stream = UnixStream::connect(place.file("control"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(what.as_bytes())?;
    stream.write_all(b"\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(answer)
}

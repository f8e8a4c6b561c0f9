//! Labs for the commands: found by name or file, raised where they are missing, and taken down by
//! whoever raised them.

use crate::exit::{Exit, Refusal};
use crate::host::ends;
use crate::out;
use anyhow::{Context, Result};
use emulate::Scenario;
use std::ffi::OsStr;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often a child that runs is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// For a child that has heard of Ctrl-C itself, before it is told to end.
const GRACE: Duration = Duration::from_secs(2);

/// The file that runs, even if a newer one has taken its place.
pub const MYSELF: &str = "/proc/self/exe";

/// `NAME`, or `NAME/HOST`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The lab or scenario.
    pub lab: String,
    /// A host in it; the first without.
    pub host: Option<String>,
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Place, String> {
        let (lab, host) = match text.split_once('/') {
            Some((lab, host)) => (lab, Some(host)),
            None => (text, None),
        };
        if lab.is_empty() || host.is_some_and(str::is_empty) {
            return Err(format!("'{text}' is no place in a lab: write NAME or NAME/HOST"));
        }
        Ok(Place {
            lab: lab.to_owned(),
            host: host.map(str::to_owned),
        })
    }
}

/// The scenario of a file (`*.toml`, or a path with a slash) or of the shipped ones.
///
/// # Errors
/// If there is none, or it is wrong: where, what, and what to do.
pub fn scenario(what: &str) -> Result<Scenario> {
    let path = Path::new(what);
    let text;
    let (text, file) = if path.extension() == Some(OsStr::new("toml")) || what.contains('/') {
        text = std::fs::read_to_string(path)
            .map_err(|e| Refusal::usage(format!("cannot read the scenario {what}: {e}")))?;
        (text.as_str(), what.to_owned())
    } else {
        let shipped = Scenario::shipped().iter().find(|(name, _)| *name == what);
        let Some((name, text)) = shipped else {
            return Err(Refusal::usage(format!(
                "there is no scenario '{what}': 'linerate lab scenarios' lists them; a file of your own ends in .toml"
            ))
            .into());
        };
        (*text, format!("{name}.toml"))
    };
    Ok(Scenario::parse(text, &file).map_err(|e| Refusal::usage(e.to_string()))?)
}

/// A lab that is up, and goes down with this value if it came up for it.
pub struct Standing {
    lab: Lab,
    raised: bool,
}

impl Standing {
    /// The lab of that name if it is up, else the scenario, brought up.
    ///
    /// # Errors
    /// If there is neither, or it cannot be brought up.
    pub fn find_or_raise(name: &str) -> Result<Standing> {
        if let Some(lab) = lab::open(name)? {
            return Ok(Standing { lab, raised: false });
        }
        Standing::raise(&scenario(name)?, &Options::default())
    }

    /// Brings a scenario up.
    ///
    /// # Errors
    /// If it cannot be brought up; nothing is left then.
    pub fn raise(scenario: &Scenario, options: &Options) -> Result<Standing> {
        let lab = lab::up(scenario, options)?;
        Ok(Standing { lab, raised: true })
    }

    /// Takes the lab down now if it came up for this, and says what went wrong with that.
    ///
    /// # Errors
    /// If something of it is left.
    pub fn lower(mut self) -> Result<()> {
        if std::mem::take(&mut self.raised) {
            lab::down(self.lab.name())?;
        }
        Ok(())
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        if self.raised
            && let Err(error) = lab::down(self.lab.name())
        {
            out::note(&format!("linerate: {error}"));
        }
    }
}

/// Measures between two hosts of a lab: starts the agent in the far one and this same command again
/// in the near one, with the agent at its standard input.
///
/// # Errors
/// If the lab or a process in it cannot be started.
pub fn measure(name: &str, hosts: Option<&str>, quiet: bool, stop: &AtomicBool) -> Result<ExitCode> {
    let standing = Standing::find_or_raise(name)?;
    let lab = &standing.lab;
    let all = lab.hosts();
    let names: Vec<&str> = all.iter().map(|host| host.name.as_str()).collect();
    let Some((near, far)) = ends(hosts, &names) else {
        return Err(Refusal::usage(match hosts {
            Some(hosts) => format!("'{hosts}' names no two hosts of the lab {name}, which has {}: write lab:{name}/FAR or lab:{name}/NEAR-FAR", names.join(", ")),
            None => format!("the lab {name} has fewer than two hosts to measure between"),
        })
        .into());
    };
    let listen = all.iter().find(|host| host.name == far).and_then(|host| host.addresses.first());
    let listen = listen.with_context(|| format!("{far} in the lab {name} has no address"))?;
    if !quiet {
        let up = if standing.raised { "up for this measurement" } else { "is up" };
        out::note(&format!("lab {name} {up}: {near} -> {far} ({listen}), {}", lab.backend()));
    }
    let (ours, theirs) = UnixStream::pair().context("cannot make a socket for the agent")?;
    let mut agent = lab.command(far, MYSELF);
    agent.args(["agent", "--stdio", "--listen", &listen.to_string()]);
    let output = theirs.try_clone().context("cannot share the agent's socket")?;
    agent.stdin(OwnedFd::from(theirs)).stdout(OwnedFd::from(output));
    sys::signal::deaf_to_interrupt(&mut agent);
    let mut agent = agent.spawn().with_context(|| format!("cannot start an agent in {far}"))?;
    let mut inside = lab.command(near, MYSELF);
    inside.args(std::env::args_os().skip(1)).arg(format!("--lab-far={listen}"));
    inside.stdin(OwnedFd::from(ours));
    let code = inside.spawn().with_context(|| format!("cannot start linerate in {near}")).and_then(|child| wait(child, stop));
    drop(inside); // with its copy of the socket: the agent's input ends
    // An agent ends when its input does.
    let _ = agent.wait();
    standing.lower()?;
    code
}

/// Waits for the end of a child that hears Ctrl-C itself, and gives its exit code on.
///
/// # Errors
/// What wait(2) says.
pub fn wait(mut child: Child, stop: &AtomicBool) -> Result<ExitCode> {
    let mut told = false;
    let mut stopped = None;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(code(status));
        }
        if stop.load(Ordering::Relaxed) {
            let since = *stopped.get_or_insert_with(Instant::now);
            if !told && since.elapsed() > GRACE {
                told = true;
                sys::signal::end(child.id(), false)?;
            }
        }
        std::thread::sleep(LOOK);
    }
}

/// The exit code that a shell would give: 128 and the signal for a process that one ended.
fn code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

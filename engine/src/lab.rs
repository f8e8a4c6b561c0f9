//! Labs for the commands: found by name or file, raised where they are missing, and taken down by
//! whoever raised them.

use crate::host::ends;
use crate::log;
use crate::prelude::*;
use emulate::Scenario;
use lab::{CounterReport, LabOptions, LinkBackend, NodeRecord, RunningLab, Tie};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitCode};
use std::str::FromStr;

/// How often a child that runs is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// For a child that received Ctrl-C itself, before SIGTERM is sent to it.
const GRACE: Duration = Duration::from_secs(2);

/// The file that runs, even if a newer one has taken its place.
pub const MYSELF: &str = "/proc/self/exe";

/// `NAME` or `FILE.toml`, and `/HOST`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabPlace {
    /// The lab or scenario.
    pub lab: String,
    /// A host in it; the first without.
    pub host: Option<String>,
}

impl FromStr for LabPlace {
    type Err = String;

    fn from_str(text: &str) -> Result<LabPlace, String> {
        let (lab, host) = split(text);
        if lab.is_empty() || host.is_some_and(str::is_empty) {
            return Err(format!(
                "'{text}' is no place in a lab: write NAME or FILE.toml, or one of them with /HOST"
            ));
        }
        Ok(LabPlace {
            lab: lab.to_owned(),
            host: host.map(str::to_owned),
        })
    }
}

/// A lab and a host in it. The slashes of a path end where `.toml` does.
pub fn split(text: &str) -> (&str, Option<&str>) {
    if is_file(text) {
        return (text, None);
    }
    let file = text.rfind(".toml/").map(|at| at + ".toml".len());
    match file.or_else(|| text.find('/')) {
        Some(slash) => (&text[..slash], Some(&text[slash + 1..])),
        None => (text, None),
    }
}

/// The scenario of a file (`*.toml`) or a shipped one.
///
/// # Errors
/// If there is none, or it is wrong: where, what, and what to do.
pub fn scenario(what: &str) -> Result<Scenario> {
    let parsed = match is_file(what) {
        true => {
            let text = std::fs::read_to_string(what)
                .map_err(|e| Refusal::usage(format!("cannot read the scenario {what}: {e}")))?;
            Scenario::parse(&text, what)
        }
        false => Scenario::parse(shipped(what)?.1, &format!("{what}.toml")),
    };
    Ok(parsed.map_err(|e| Refusal::usage(e.to_string()))?)
}

/// Name and text of a shipped scenario.
pub fn shipped(name: &str) -> Result<(&'static str, &'static str)> {
    let found = Scenario::shipped().iter().find(|(n, _)| *n == name);
    Ok(*found.ok_or_else(|| {
        Refusal::usage(format!(
            "there is no scenario '{name}': 'linerate lab scenarios' lists them; the name of a file of your own ends in .toml"
        ))
    })?)
}

/// Whether a scenario is named by its file.
pub fn is_file(what: &str) -> bool {
    !what.ends_with('/') && Path::new(what).extension() == Some(OsStr::new("toml"))
}

/// A running lab; dropping it removes the lab if it was created for this value.
pub struct Standing {
    lab: RunningLab,
    /// The lab was created for this.
    tie: Option<Tie>,
}

impl Standing {
    /// The lab of that name if it is up, else the scenario, brought up. A file is always brought up: a lab
    /// of its name can be of another scenario.
    pub fn find_or_raise(name: &str) -> Result<Standing> {
        if is_file(name) {
            return Standing::raise(&scenario(name)?, &LabOptions::default());
        }
        match lab::Labs::of_user().open(name) {
            Ok(lab) => Ok(Standing { lab, tie: None }),
            Err(lab::Error::NotUp(_)) => Standing::raise(&scenario(name)?, &LabOptions::default()),
            Err(error) => Err(error.into()),
        }
    }

    /// Brings a scenario up.
    ///
    /// # Errors
    /// If it cannot be brought up; nothing is left then.
    pub fn raise(scenario: &Scenario, options: &LabOptions) -> Result<Standing> {
        let up = lab::Labs::of_user().up(scenario, options);
        let (lab, tie) = up.map_err(|error| match error {
            lab::Error::Unfit(why) => Refusal::usage(why).into(),
            error => anyhow::Error::from(error),
        })?;
        let tie = Some(tie);
        Ok(Standing { lab, tie })
    }

    /// The lab.
    pub fn lab(&self) -> &RunningLab {
        &self.lab
    }

    /// Lets the lab stay.
    pub fn keep(mut self) -> Result<()> {
        Ok(self.tie.take().map_or(Ok(()), Tie::cut)?)
    }

    /// Takes the lab down now if it came up for this.
    pub fn lower(mut self) -> Result<()> {
        if let Some(_tie) = self.tie.take() {
            lab::Labs::of_user().down(&self.lab.record().name)?;
        }
        Ok(())
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        if self.tie.is_some()
            && let Err(error) = lab::Labs::of_user().down(&self.lab.record().name)
        {
            log::note(&format!("linerate: {error}"));
        }
    }
}

/// Whether a lab of that name is up, so that it stays when a measurement in it is over.
pub fn is_up(name: &str) -> bool {
    !is_file(name) && lab::Labs::of_user().open(name).is_ok()
}

/// The hosts of a lab in the order of its scenario, routers left out.
pub fn hosts(lab: &RunningLab) -> Vec<&NodeRecord> {
    lab.hosts().filter(|node| node.kind == "host").collect()
}

/// What makes the shaped links of a lab, in words.
pub fn backends(lab: &RunningLab) -> String {
    let links = &lab.record().links;
    let made_by = |backend| {
        let names = links.iter().filter(|l| l.backend == backend);
        let names: Vec<&str> = names.map(|l| l.name.as_str()).collect();
        (!names.is_empty()).then(|| format!("{backend} for {}", names.join(", ")))
    };
    let all = [LinkBackend::Emulator, LinkBackend::Netem];
    let words: Vec<String> = all.into_iter().filter_map(made_by).collect();
    match words.is_empty() {
        true => "plain cables only".to_owned(),
        false => words.join("; "),
    }
}

/// Looks whether the emulator, not the network, was the limit of what happens meanwhile.
pub struct LabWatch {
    lab: Option<RunningLab>,
    before: CounterReport,
}

impl LabWatch {
    /// Begins now, in the lab that this process runs in.
    pub fn begin() -> LabWatch {
        let lab = lab::Labs::of_user().around_this_process();
        let before = lab.as_ref().and_then(|lab| lab.counters().ok());
        let before = before.unwrap_or_default();
        LabWatch { lab, before }
    }

    /// Warnings about the time since the beginning.
    pub fn end(self) -> Vec<Warning> {
        let sentences = match self.lab.map(|lab| lab.counters()) {
            Some(Ok(after)) => after.emulator_since(&self.before).warnings(),
            _ => vec![
                "the lab does not say how well it kept up; look with 'linerate lab list' whether the lab is still up, and measure again"
                    .to_owned(),
            ],
        };
        sentences.iter().map(|sentence| doubt(sentence)).collect()
    }
}

/// A sentence about the emulator as a warning: its last clause is the remedy.
fn doubt(sentence: &str) -> Warning {
    let (what, remedy) = sentence.rsplit_once("; ").unwrap_or((sentence, ""));
    Warning {
        what: what.to_owned(),
        meaning: "the figures may be those of this machine, not of the path".to_owned(),
        remedy: remedy.to_owned(),
    }
}

/// Measures between two hosts of a lab: starts the agent in the remote one, and this same command again
/// in the local one, with the agent at its standard input.
pub fn measure(name: &str, ends: Option<&str>, quiet: bool, stop: &AtomicBool) -> Result<ExitCode> {
    let standing = Standing::find_or_raise(name)?;
    let lab = standing.lab();
    let (local, remote, listen) = choose(lab, name, ends)?;
    if !quiet {
        let state = match standing.tie.is_some() {
            true => "up for this measurement",
            false => "is up",
        };
        log::note(&format!(
            "lab {name} {state}: from {local} to {remote}, {}",
            backends(lab)
        ));
    }
    let (ours, theirs) = UnixStream::pair().context("cannot make a socket for the agent")?;
    let output = theirs.try_clone();
    let output = output.context("cannot share the agent's socket")?;
    let mut command = lab.command(remote, MYSELF)?;
    command.args(["agent", "--stdio", "--listen", &listen.to_string()]);
    command
        .stdin(OwnedFd::from(theirs))
        .stdout(OwnedFd::from(output));
    sys::signal::deaf_to_interrupt(&mut command);
    let agent = command.spawn();
    // The command holds copies of the socket: without them the agent's input ends with the client.
    drop(command);
    let mut agent = agent.with_context(|| format!("cannot start an agent in {remote}"))?;
    let mut command = lab.command(local, MYSELF)?;
    command.args(std::env::args_os().skip(1));
    command
        .arg(format!("--lab-remote={listen}"))
        .stdin(OwnedFd::from(ours));
    sys::signal::end_with_parent(&mut command);
    let inside = command.spawn();
    drop(command);
    let code = inside
        .with_context(|| format!("cannot start linerate in {local}"))
        .and_then(|child| wait(child, stop));
    agent.wait().context("cannot wait for the agent")?;
    standing.lower()?;
    code
}

/// Local host, remote host, and the remote one's address.
fn choose<'a>(
    lab: &'a RunningLab,
    name: &str,
    wanted: Option<&str>,
) -> Result<(&'a str, &'a str, IpAddr)> {
    let hosts = hosts(lab);
    let names: Vec<&str> = hosts.iter().map(|host| host.name.as_str()).collect();
    let (local, remote) = ends(wanted, &names).ok_or_else(|| {
        Refusal::usage(match wanted {
            Some(wanted) => format!(
                "'{wanted}' names no two hosts of the lab {name}, which has {}: write lab:{name}/REMOTE or lab:{name}/LOCAL-REMOTE",
                names.join(", ")
            ),
            None => format!("the lab {name} has no two hosts to measure between"),
        })
    })?;
    let host = hosts.iter().find(|host| host.name == remote);
    let address = host.and_then(|host| host.addresses.first());
    let address = address.with_context(|| format!("{remote} in the lab {name} has no address"))?;
    Ok((local, remote, *address))
}

/// Waits for the end of a child that receives Ctrl-C itself, and returns its exit code.
pub fn wait(mut child: Child, stop: &AtomicBool) -> Result<ExitCode> {
    let mut signalled = false;
    let mut stopped = None;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if stop.load(Ordering::Relaxed) {
            let since = *stopped.get_or_insert_with(Instant::now);
            if !signalled && since.elapsed() > GRACE {
                signalled = true;
                sys::signal::end(child.id(), false)?;
            }
        }
        std::thread::sleep(LOOK);
    };
    // As a shell would: 128 and the signal for a process that one ended.
    let by_signal = || status.signal().map(|signal| 128 + signal);
    let code = status.code().or_else(by_signal);
    let code = code.and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_place_is_a_lab_or_a_file_and_a_host_behind_it() {
        for (text, lab, host) in [
            ("wan", "wan", None),
            ("wan/db1", "wan", Some("db1")),
            ("wan.toml", "wan.toml", None),
            ("a/wan.toml", "a/wan.toml", None),
            ("a/wan.toml/db1", "a/wan.toml", Some("db1")),
            ("a.toml/b.toml/db1", "a.toml/b.toml", Some("db1")),
        ] {
            assert_eq!(split(text), (lab, host), "{text}");
            let place: LabPlace = text.parse().unwrap();
            assert_eq!((place.lab.as_str(), place.host.as_deref()), (lab, host));
        }
        assert_eq!(split("wan/"), ("wan", Some("")));
        for bad in ["", "/db1", "wan/", "a/wan.toml/"] {
            let why = bad.parse::<LabPlace>().unwrap_err();
            assert!(why.contains("is no place in a lab"), "{bad}: {why}");
        }
    }

    #[test]
    fn a_scenario_is_a_file_by_its_ending_and_else_a_shipped_one() {
        assert!(is_file("wan.toml") && is_file("./a/b.toml"));
        assert!(
            !is_file("wan") && !is_file("wan.toml/") && !is_file("toml") && !is_file("wan.txt")
        );
        let (first, _) = Scenario::shipped()[0];
        assert_eq!(shipped(first).unwrap().0, first);
        assert_eq!(scenario(first).unwrap().name, first);
        for (what, part) in [
            ("nowhere", "there is no scenario 'nowhere'"),
            (
                "/nowhere/x.toml",
                "cannot read the scenario /nowhere/x.toml",
            ),
        ] {
            let error = scenario(what).unwrap_err();
            assert_eq!(crate::exit::exit_of(&error), crate::exit::Exit::Usage);
            assert!(error.to_string().contains(part), "{error}");
        }
        let dir = crate::testing::TempDir::new();
        let file = dir.path().join("own.toml");
        std::fs::write(&file, shipped(first).unwrap().1).unwrap();
        assert_eq!(scenario(file.to_str().unwrap()).unwrap().name, first);
        std::fs::write(&file, "name = 1").unwrap();
        assert!(scenario(file.to_str().unwrap()).is_err());
        assert!(!is_up("wan.toml"), "no file is up");
    }

    #[test]
    fn the_last_clause_of_a_doubt_is_its_remedy() {
        let of = |sentence: &str| {
            let warning = doubt(sentence);
            (warning.what, warning.remedy)
        };
        let parts = |what: &str, remedy: &str| (what.to_owned(), remedy.to_owned());
        assert_eq!(
            of("it was late; and slow; measure again"),
            parts("it was late; and slow", "measure again")
        );
        assert_eq!(of("it was late"), parts("it was late", ""));
    }

    #[test]
    fn a_child_ends_this_command_as_it_ended() {
        let ended = |script: &str| {
            let child = Command::new("/bin/sh")
                .args(["-c", script])
                .spawn()
                .unwrap();
            format!("{:?}", wait(child, &AtomicBool::new(false)).unwrap())
        };
        let code = |code: u8| format!("{:?}", ExitCode::from(code));
        assert_eq!(ended("exit 0"), code(0));
        assert_eq!(ended("exit 7"), code(7));
        assert_eq!(ended("kill -KILL $$"), code(137));
    }

    #[test]
    fn a_child_that_goes_on_after_a_stop_is_ended_two_seconds_later() {
        let child = Command::new("/bin/sleep").arg("3600").spawn().unwrap();
        let begun = Instant::now();
        let code = wait(child, &AtomicBool::new(true)).unwrap();
        assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::from(143)));
        assert!(begun.elapsed() >= GRACE && begun.elapsed() < GRACE * 10);
    }
}

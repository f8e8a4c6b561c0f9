//! The archive and what is in it, by the names that users give.

use crate::prelude::*;

/// The archive, which must be there.
pub fn open_existing(global: &Global) -> Result<Archive> {
    Archive::open_existing(&global.archive_path().map_err(refused)?).map_err(refused)
}

/// The same, for a name that may have been meant for a file.
pub fn open_for(name: &str, global: &Global) -> Result<Archive> {
    let path = global.archive_path().map_err(refused)?;
    Archive::open_existing(&path).map_err(|error| match error {
        archive::Error::Missing(_) if is_file_name(name) => no_file(name),
        error => refused(error),
    })
}

/// A run by its name, and the traces of all runs.
pub fn run(name: &str, global: &Global) -> Result<(Run, Traces)> {
    let archive = open_for(name, global)?;
    let run = archive.get(name).map_err(refused)?;
    Ok((run, archive.traces()))
}

/// What is explained: a file, or a run of the archive and the traces of all runs.
pub enum Subject {
    File(PathBuf),
    Run(Box<Run>, Traces),
}

impl Subject {
    /// The file of this name if there is one, else the run, or the trace that a watch kept.
    pub fn find(name: &str, global: &Global) -> Result<Subject> {
        let file = PathBuf::from(name);
        if file.is_file() {
            return Ok(Subject::File(file));
        }
        let archive = open_for(name, global)?;
        let traces = archive.traces();
        // 'last' is the newest run.
        if name != "last"
            && let Ok(NamedDocument::Watch(id)) = archive.named(name)
        {
            return match archive.watch(&id).map_err(refused)? {
                WatchRecord::Trace(_) => Ok(Subject::File(traces.file(&id, 0, Side::Local))),
                WatchRecord::Day(_) => refuse!(
                    "{name} is the record of a day and has no segments: 'linerate runs show {name}' shows it"
                ),
            };
        }
        let run = archive.get(name).map_err(refused)?;
        Ok(Subject::Run(Box::new(run), traces))
    }

    /// The files of untrusted origin: a trace of the remote host too.
    pub fn files(&self) -> Vec<PathBuf> {
        match self {
            Subject::File(file) => vec![file.clone()],
            Subject::Run(run, traces) => traces.of(&run.id),
        }
    }
}

/// Runs have no such names.
fn is_file_name(name: &str) -> bool {
    name.contains(['/', '.']) || Path::new(name).exists()
}

fn no_file(name: &str) -> anyhow::Error {
    let why = match Path::new(name).exists() {
        true => "is no regular file",
        false => "is not there",
    };
    Refusal::usage(format!(
        "the file {name} {why}, and no run has that name: see linerate runs list"
    ))
    .into()
}

/// What the user got wrong ends with the code for that; what the machine refused, with the other.
pub fn refused(error: archive::Error) -> anyhow::Error {
    use archive::Error as E;
    match error {
        E::NotFound { name, .. } if is_file_name(&name) => no_file(&name),
        E::NoHome
        | E::Missing(_)
        | E::NotAnArchive(_)
        | E::NotFound { .. }
        | E::Empty(_)
        | E::Ambiguous(..)
        | E::Taken(_)
        | E::BadId(_) => Refusal::usage(error.to_string()).into(),
        other => other.into(),
    }
}

//! Keeps a run in the archive while it is measured.

use crate::histories;
use crate::prelude::*;
use archive::{Archive, NamedDocument, Recorder, Traces};

/// A run of `spec` with `host` that begins now, and of which nothing is known yet.
pub fn blank(host: &str, spec: Spec) -> Run {
    Run {
        id: archive::new_id(),
        started: unix_time(),
        host: host.to_owned(),
        spec,
        ..Run::default()
    }
}

/// A watcher that archives the events of a run. The archive is opened before anything is measured;
/// the run appears in it with its first leg, so a host that cannot be reached leaves nothing.
pub struct RunArchiver {
    path: Option<PathBuf>,
    archive: Option<Archive>,
    recorder: Option<Recorder>,
    /// What is known of the run before its legs.
    head: Run,
    begun: Instant,
    trouble: Option<archive::Error>,
}

impl RunArchiver {
    /// For the run that `head` describes, in the archive at `path`.
    pub fn new(path: Result<PathBuf, archive::Error>, head: &Run) -> RunArchiver {
        let opened = path.and_then(|path| Ok((Archive::open(&path)?, path)));
        let (archive, path, trouble) = match opened {
            Ok((archive, path)) => (Some(archive), Some(path), None),
            Err(error) => (None, None, Some(error)),
        };
        RunArchiver {
            path,
            archive,
            recorder: None,
            head: head.clone(),
            begun: Instant::now(),
            trouble,
        }
    }

    /// Keeps the whole run. `Some` if it could not be kept: the figures are right all the same.
    pub fn finish(mut self, run: &Run) -> Option<Warning> {
        let kept = match (self.recorder.take(), self.trouble.take()) {
            (Some(recorder), _) => recorder.finish(run).map(|mut archive| {
                // What cannot be made of its history now is made by who looks at it.
                let _ = histories::refresh(&mut archive, |path| path.is_of(run));
            }),
            (None, Some(trouble)) => Err(trouble),
            // Nothing was measured, so there is nothing to keep.
            (None, None) => Ok(()),
        };
        kept.err().map(|error| Warning {
            what: format!("the run is not kept: {error}"),
            meaning: "the figures here are right, but the archive does not have them".to_owned(),
            remedy: "fix that, or keep it by hand: --json > run.json, later runs import run.json"
                .to_owned(),
        })
    }

    /// Keeps the run if anything was measured in it, and takes it back otherwise.
    ///
    /// # Errors
    /// If it could not be kept: what rests on it could not be looked at again.
    pub fn settle(self, run: &Run) -> Result<()> {
        if run.legs.is_empty() {
            self.discard();
            return Ok(());
        }
        match self.finish(run) {
            Some(Warning { what, remedy, .. }) => Err(anyhow!("{what}; {remedy}")),
            None => Ok(()),
        }
    }

    /// Takes back a run that moved nothing after all.
    pub fn discard(self) {
        if let (Some(recorder), Some(path)) = (self.recorder, self.path) {
            drop(recorder);
            // An archive that cannot be written shows an empty run that never finished: no harm.
            let run = NamedDocument::Run(self.head.id);
            let _ = Archive::open(&path).and_then(|mut archive| archive.delete(&run));
        }
    }
}

impl Watcher for RunArchiver {
    fn event(&mut self, event: &Event<'_>) {
        if let Event::Hosts { local, remote } = event
            && let Some(archive) = self.archive.take()
        {
            self.head.local = (*local).clone();
            self.head.remote = remote.cloned();
            match Recorder::start(archive, &self.head) {
                Ok(recorder) => self.recorder = Some(recorder),
                Err(error) => self.trouble = Some(error),
            }
        }
        let Some(recorder) = &mut self.recorder else {
            return;
        };
        match event {
            Event::LegStarted { index, direction } => {
                recorder.start_leg(*index, *direction, Nanos::from(self.begun.elapsed()));
            }
            Event::Sample {
                index,
                side,
                sample,
            } => recorder.sample(*index, *side, sample),
            Event::LegEnded { index, leg } => recorder.finish_leg(*index, leg),
            Event::Traced { index, side, bytes } => {
                let traces = self.path.as_deref().map(Traces::beside);
                let kept = traces.map(|t| t.store(&self.head.id, *index, *side, bytes));
                if let Some(Err(error)) = kept {
                    crate::log::note(&format!("linerate: {error}"));
                }
            }
            Event::Hosts { .. } | Event::Warning { .. } | Event::Waiting { .. } => {}
        }
    }
}

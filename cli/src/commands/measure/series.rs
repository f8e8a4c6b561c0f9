//! Several runs side by side: the corners of a copy, or the depths of blocks. Each is a run of the archive.

use super::{Measure, Path, play};
use crate::prelude::*;
use anyhow::bail;
use engine::chance;
use engine::peer::PeerSession;
use model::{FileCopy, Workload};
use report::blocks::Depth;
use report::copy::Corner;

impl Measure {
    /// Measures the series that the options order, and prints it after the last run or Ctrl-C.
    pub(super) fn series(&self, path: Path<'_>, spec: &Spec) -> Result<ExitCode> {
        if self.output.is_machine() && !self.output.json {
            refuse!(
                "several runs make a table, or with --json one document; each of them: linerate runs export"
            );
        }
        let mut remote = self.open(path, spec)?;
        let table = match self.options.depths() {
            Some(depths) => self.depths(&mut *remote, path, spec, depths)?,
            None => self.corners(&mut *remote, path, spec)?,
        };
        out::print(&table)?;
        let exit = match path.stop.load(Ordering::Relaxed) {
            true => Exit::Interrupted,
            false => Exit::Done,
        };
        Ok(exit.into())
    }

    fn depths(
        &self,
        remote: &mut dyn PeerSession,
        path: Path<'_>,
        spec: &Spec,
        depths: &[u32],
    ) -> Result<String> {
        let mut done = Vec::new();
        for depth in depths {
            let mut spec = spec.clone();
            if let Workload::Blocks(order) = &mut spec.workload {
                order.depth = *depth;
            }
            let Some(run) = self.part(remote, path, spec)? else {
                break;
            };
            let legs = model::summarise(&run).legs;
            done.extend(legs.into_iter().map(|leg| Depth {
                depth: *depth,
                run: run.id.clone(),
                requests: leg.requests,
                operations: leg.operations,
            }));
            if let Some(last) = done.last() {
                self.progress(&report::blocks::progress(last));
            }
        }
        Ok(match self.output.json {
            true => report::blocks::depths_json(&done),
            false => report::blocks::depths(&done, stdout_style()),
        })
    }

    /// Copies from memory and the file to memory and the file, in a random order; none of the copies stays.
    fn corners(&self, remote: &mut dyn PeerSession, path: Path<'_>, spec: &Spec) -> Result<String> {
        let Workload::Copy(order) = &spec.workload else {
            bail!("--corners belongs to copies: add --workload copy");
        };
        let rounds = self.options.corners().unwrap_or_default();
        let corner = |(from, to)| Corner {
            order: FileCopy {
                from: order.from.clone().filter(|_| from),
                to: order.to.clone().filter(|_| to),
                keep: false,
                ..order.clone()
            },
            copies: Vec::new(),
            runs: Vec::new(),
        };
        let all = [(false, false), (true, false), (false, true), (true, true)];
        let mut corners = all.map(corner);
        // Memory has no end of its own: it is copied as long as the file is.
        let mut limit = Some(spec.limit).filter(|limit| *limit != LegLimit::Whole);
        'rounds: for round in 1..=rounds {
            let mut turns = shuffled(corners.len())?;
            if limit.is_none() {
                turns.sort_by_key(|turn| corners[*turn].order.from.is_none());
            }
            for turn in turns {
                let corner = &mut corners[turn];
                let mut spec = spec.clone();
                spec.workload = Workload::Copy(corner.order.clone());
                if corner.order.from.is_none() {
                    spec.limit = limit.unwrap_or(spec.limit);
                }
                let Some(run) = self.part(remote, path, spec)? else {
                    break 'rounds;
                };
                let copy = model::summarise(&run).legs.pop().and_then(|leg| leg.copy);
                let copy = copy.context("nothing arrived")?;
                limit.get_or_insert(LegLimit::Bytes(run.legs[0].receiver().bytes));
                let name = report::copy::name(&corner.order);
                self.progress(&format!("round {round} of {rounds}: {name}: {}", copy.rate));
                corner.copies.push(copy);
                corner.runs.push(run.id);
            }
        }
        Ok(match self.output.json {
            true => report::copy::corners_json(&corners),
            false => report::copy::corners(&corners, stdout_style()),
        })
    }

    /// One run of several; `None`: stopped.
    ///
    /// # Errors
    /// If it is not complete.
    fn part(
        &self,
        remote: &mut dyn PeerSession,
        path: Path<'_>,
        spec: Spec,
    ) -> Result<Option<Run>> {
        let played = play(remote, path, self.blank(spec), self.output.quiet, None);
        if path.stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let played = played?;
        if let Some(warning) = played.not_kept {
            out::note(&format!("linerate: {}; {}", warning.what, warning.remedy));
        }
        played.outcome?;
        match &played.run.ended {
            Ended::Failed { why } => bail!("{why}"),
            _ => Ok(Some(played.run)),
        }
    }

    fn progress(&self, line: &str) {
        if !self.output.quiet {
            out::note(line);
        }
    }
}

/// The numbers below `count` in a random order.
fn shuffled(count: usize) -> Result<Vec<usize>> {
    let mut turns = (0..count)
        .map(|turn| Ok((chance::bytes::<8>()?, turn)))
        .collect::<Result<Vec<_>>>()?;
    turns.sort_unstable();
    Ok(turns.into_iter().map(|(_, turn)| turn).collect())
}

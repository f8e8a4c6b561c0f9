//! `linerate measure --workload copy --corners`: memory and a file at either end, in a random order.

use super::{Measure, compared, through};
use crate::global::Global;
use crate::live::stdout_style;
use crate::out;
use anyhow::{Result, bail};
use engine::chance;
use engine::exit::Refusal;
use engine::peer::{Peer, PeerSession};
use model::{CopySummary, FileCopy, Limit, Run, Spec, Workload};
use report::copy::Corner;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

impl Measure {
    /// Copies between all four corners, `rounds` times each, and shows them beside each other. Each copy is a
    /// run of the archive; none of the files stays.
    pub(super) fn corners(
        &self,
        peer: &dyn Peer,
        global: &Global,
        spec: &Spec,
        rounds: u32,
        stop: &AtomicBool,
    ) -> Result<ExitCode> {
        if self.output.is_machine() && !self.output.json {
            return Err(Refusal::usage(
                "--corners prints a table, or with --json one document; each of its runs: linerate runs export",
            )
            .into());
        }
        let Workload::Copy(order) = &spec.workload else {
            bail!("corners are those of copies");
        };
        let mut corners: Vec<Corner> = [(false, false), (true, false), (false, true), (true, true)]
            .into_iter()
            .map(|(from, to)| Corner {
                order: FileCopy {
                    from: order.from.clone().filter(|_| from),
                    to: order.to.clone().filter(|_| to),
                    keep: false,
                    ..order.clone()
                },
                copies: Vec::new(),
                runs: Vec::new(),
            })
            .collect();
        let mut far = self.open(peer, global, spec, stop)?;
        // Memory has no end of its own: it is copied as long as the file is.
        let mut limit = Some(spec.limit).filter(|limit| *limit != Limit::Whole);
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
                let copied = self.corner(&mut *far, peer, global, spec, stop);
                if stop.load(Ordering::Relaxed) {
                    break 'rounds;
                }
                let (run, copy) = copied?;
                limit.get_or_insert(Limit::Bytes(run.legs[0].receiver().bytes));
                if !self.output.quiet {
                    out::note(&format!(
                        "round {round} of {rounds}: {}: {}",
                        report::copy::name(&corner.order),
                        copy.rate
                    ));
                }
                corner.copies.push(copy);
                corner.runs.push(run.id);
            }
        }
        let table = match self.output.json {
            true => report::copy::corners_json(&corners),
            false => report::copy::corners(&corners, stdout_style()),
        };
        compared(&table, stop)
    }

    /// One copy.
    fn corner(
        &self,
        far: &mut dyn PeerSession,
        peer: &dyn Peer,
        global: &Global,
        spec: Spec,
        stop: &AtomicBool,
    ) -> Result<(Run, CopySummary)> {
        let run = self.part(global, spec, &mut |run, watcher| {
            through(far, peer, run, watcher, stop)
        })?;
        match model::summarise(&run).legs.pop().and_then(|leg| leg.copy) {
            Some(copy) => Ok((run, copy)),
            None => bail!("nothing arrived"),
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

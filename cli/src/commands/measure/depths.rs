//! `linerate measure --workload blocks --depth 1,8,32`: what more requests at once bring.

use super::{Measure, compared, through};
use crate::global::Global;
use crate::live::stdout_style;
use crate::out;
use anyhow::{Result, bail};
use engine::exit::Refusal;
use engine::peer::Peer;
use model::{Spec, Workload};
use report::blocks::Depth;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

impl Measure {
    /// Measures each depth as a run of the archive, and shows them beside each other.
    pub(super) fn depths(
        &self,
        peer: &dyn Peer,
        global: &Global,
        spec: &Spec,
        depths: &[u32],
        stop: &AtomicBool,
    ) -> Result<ExitCode> {
        if self.output.is_machine() && !self.output.json {
            return Err(Refusal::usage(
                "several depths make a table, or with --json one document; each of its runs: linerate runs export",
            )
            .into());
        }
        let mut far = self.open(peer, global, spec, stop)?;
        let mut told = Vec::new();
        for depth in depths {
            let mut spec = spec.clone();
            let Workload::Blocks(order) = &mut spec.workload else {
                bail!("depths are those of blocks");
            };
            order.depth = *depth;
            let played = self.part(global, spec, &mut |run, watcher| {
                through(&mut *far, peer, run, watcher, stop)
            });
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let run = played?;
            let legs = model::summarise(&run).legs;
            told.extend(legs.into_iter().map(|leg| Depth {
                depth: *depth,
                run: run.id.clone(),
                requests: leg.requests,
                operations: leg.operations,
            }));
            if let (false, Some(last)) = (self.output.quiet, told.last()) {
                out::note(&report::blocks::progress(last));
            }
        }
        let table = match self.output.json {
            true => report::blocks::depths_json(&told),
            false => report::blocks::depths(&told, stdout_style()),
        };
        compared(&table, stop)
    }
}

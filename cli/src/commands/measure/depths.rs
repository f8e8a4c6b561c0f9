//! `linerate measure --workload blocks --depth 1,8,32`: what more requests at once bring.

use super::super::live::stdout_style;
use super::{Measure, compared, through};
use crate::commands::Global;
use crate::out;
use anyhow::{Result, bail};
use engine::exit::Refusal;
use engine::host::Host;
use engine::nfs;
use model::{Spec, Workload};
use report::blocks::Depth;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

impl Measure {
    /// Measures each depth as a run of the archive, and shows them beside each other.
    pub(super) fn depths(
        &self,
        host: &Host,
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
        let mut link = match host {
            Host::Nfs { .. } => None,
            _ => Some(self.link(host, global, spec, stop)?),
        };
        let mut told = Vec::new();
        for depth in depths {
            let mut spec = spec.clone();
            let Workload::Blocks(order) = &mut spec.workload else {
                bail!("depths are those of blocks");
            };
            order.depth = *depth;
            let played = self.part(global, spec, &mut |run, watcher| match (&mut link, host) {
                (Some((link, near)), _) => {
                    run.near = near.clone();
                    through(link, host, run, watcher, stop)
                }
                (None, Host::Nfs { name, port, export }) => {
                    let (name, port) = (name.as_str(), *port);
                    nfs::play(&nfs::Server { name, port, export }, run, watcher, stop)
                }
                (None, _) => bail!("nobody has blocks there"),
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

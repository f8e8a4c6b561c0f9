//! `linerate runs fetch`: what other hosts measured for this one.

use crate::lookup::refused;
use crate::prelude::*;
use engine::histories;
use engine::third_party::{self, SlotResult};
use report::words::{escape, utc};

/// Keep the runs that an agent measured for this host ('measure A B') and that are not here yet
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate runs fetch db1

After a lost connection the agent measures to the end and keeps the run. Only
runs that this host ordered are sent.")]
pub struct RunsFetch {
    /// The agent, name[:port]
    host: String,
}

impl RunsFetch {
    pub fn run(&self, global: &Global) -> Result<Exit> {
        let host: Host = self.host.parse()?;
        let stop = sys::signal::stop_flag().context("cannot watch for Ctrl-C")?;
        let (mut agent, _) = third_party::connect(&host, &global.how(None, stop)?)?;
        let path = global.archive_path().map_err(refused)?;
        let mut archive = Archive::open(&path).map_err(refused)?;
        let (mut after, mut new, mut failed) = (0, 0, 0);
        loop {
            let kept = third_party::kept(&mut agent, after)?;
            let Some(last) = kept.last() else { break };
            if last.number <= after {
                anyhow::bail!("{host} repeats the numbers of its runs");
            }
            after = last.number;
            for one in &kept {
                if archive::is_id(&one.run) && archive.named(&one.run).is_ok() {
                    continue;
                }
                let fetched = third_party::fetch(&mut agent, &one.run, &one.digest);
                match fetched.and_then(|result| Ok(keep(&mut archive, &result)?)) {
                    Ok(what) => {
                        new += 1;
                        out::print(&format!("{}  {}\n", archive.shown(&one.run), escape(&what)))?;
                    }
                    Err(error) if agent.is_lost() => return Err(error),
                    Err(error) => {
                        failed += 1;
                        out::note(&format!("linerate: left out: {}", sentence(&error)));
                    }
                }
            }
        }
        histories::refresh(&mut archive, |_| true).map_err(refused)?;
        out::print(&match new {
            0 => format!("{host} has no run of this host that is not here\n"),
            1 => "1 run is kept\n".to_owned(),
            n => format!("{n} runs are kept\n"),
        })?;
        Ok(match failed {
            0 => Exit::Done,
            _ => Exit::Failed,
        })
    }
}

/// When it was, and between whom.
fn keep(archive: &mut Archive, result: &SlotResult) -> Result<String, archive::Error> {
    Ok(match result {
        SlotResult::Run(run) => {
            archive.import(run)?;
            format!(
                "{}  {} to {}",
                utc(run.started),
                run.local.hostname,
                run.host
            )
        }
        SlotResult::Mtu(record) => {
            archive.store_mtu(record)?;
            let host = &record.found.report().host;
            format!("{}  path MTU to {host}", utc(record.ended))
        }
    })
}

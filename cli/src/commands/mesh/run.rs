//! `linerate mesh run`: the coordinator.

use super::read;
use crate::lookup::refused;
use crate::prelude::*;
use ::mesh::check;
use engine::clock::unix_time;
use engine::mesh::{AlertQueue, MeshClock, MeshRun};
use report::words::escape_sentence;

/// Have the hosts measure each other by the plan, until Ctrl-C
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate mesh run db.toml

Every host is a 'linerate serve --allow-direct' that trusts this host for
--direct. What runs at a moment follows from the file and the clock: the command
may be ended and started again at any point, and catches nothing up. Runs and
legs are kept in the archive, also those that did not happen, with the reason.")]
pub struct MeshRunArgs {
    /// The mesh file
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

impl MeshRunArgs {
    pub fn run(&self, global: &Global) -> Result<Exit> {
        let mesh = read(&self.file)?;
        let checked = check(&mesh, unix_time());
        if !checked.faults.is_empty() {
            refuse!(
                "the mesh '{}' does not fit: {}",
                mesh.name,
                checked.faults.join("; ")
            );
        }
        for host in &mesh.hosts {
            if !matches!(host.agent.parse()?, Host::Agent { .. } | Host::Ssh { .. }) {
                refuse!(
                    "host '{}': agent = \"{}\" is not possible: write name[:port] of a 'linerate serve', or ssh:[user@]name",
                    host.name,
                    host.agent
                );
            }
        }
        let stop = sys::signal::stop_flag().context("cannot watch for Ctrl-C")?;
        let archive = global.archive_path().map_err(refused)?;
        out::print(&format!(
            "mesh {}: results are kept in {}, bookings in {}\n",
            mesh.name,
            archive.display(),
            engine::mesh::calendar_place(&mesh)?
        ))?;
        let run = MeshRun {
            mesh: &mesh,
            archive,
            directory: engine::trust::directory(global.config.as_deref())?,
            stop,
            alerts: AlertQueue::default(),
            ended: AtomicBool::new(false),
            clock: MeshClock::default(),
            log: &|line| out::note(&format!("linerate: {}", escape_sentence(line))),
        };
        run.run()?;
        Ok(Exit::Done)
    }
}

//! `linerate runs serve`: the archive in a browser.

use crate::commands::mesh;
use crate::lookup::refused;
use crate::prelude::*;
use crate::web::{self, Site};
use engine::histories;
use std::net::SocketAddr;
use std::sync::Mutex;

/// Show the archive in a browser: list, search, compare, histories
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate runs serve                          http://127.0.0.1:5220/
  ssh -L 5220:127.0.0.1:5220 db2 linerate runs serve
  linerate runs serve --listen 127.0.0.1:0     a free port, which is printed
  linerate runs serve --mesh db.toml           with the grid of a mesh, /grid.html

Read-only, until Ctrl-C. A capture that is dropped on the list is read by a
process that can do nothing else, and its page is shown; nothing of it is kept.
/metrics has the last run of each host and workload.")]
pub struct RunsServe {
    /// Where to listen; all who can connect can read the archive
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:5220")]
    listen: SocketAddr,
    /// Show the grid of this mesh at /grid.html and its cells at /metrics; repeatable
    #[arg(long, value_name = "FILE")]
    mesh: Vec<PathBuf>,
}

impl RunsServe {
    pub fn run(&self, global: &Global) -> Result<Exit> {
        let meshes = self.mesh.iter().map(|file| mesh::read(file));
        let meshes = meshes.collect::<Result<Vec<_>>>()?;
        let stop = sys::signal::stop_flag().context("cannot watch for Ctrl-C")?;
        let archive = global.archive_path().map_err(refused)?;
        let mut opened = Archive::open_existing(&archive).map_err(refused)?;
        // Of an archive that can only be read, each view makes them.
        let _ = histories::refresh(&mut opened, |_| true);
        drop(opened);
        let (listener, address) = web::listen(self.listen, "--listen", "the archive")?;
        out::print(&format!(
            "the archive is at http://{address}/ until Ctrl-C\n"
        ))?;
        let site = Site {
            archive,
            any_name: !address.ip().is_loopback(),
            meshes,
            reads: Mutex::default(),
        };
        web::serve(&listener, site, stop)?;
        Ok(Exit::Done)
    }
}

//! `linerate runs pack`: samples for other engines.

use super::since;
use crate::lookup::open_existing;
use crate::prelude::*;
use engine::clock::unix_time;
use engine::pack;
use report::words::counted;

/// Write the samples of all runs as Parquet files, one a day, for other engines
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate runs pack /data
  linerate runs pack /data --older 7d          in a timer
  duckdb -c \"SELECT src, dst, run_id, leg, max(end_bytes) * 8e9 / max(at_ns)
    FROM '/data/samples/*/*.parquet' GROUP BY ALL\"

Writes DIR/samples/day=2026-11-23/NAME.parquet (days in UTC) with the columns of
'runs export --format csv'. What is packed already is left out, so it can be
repeated; nothing is deleted from the archive ('runs prune').")]
pub struct Pack {
    /// Directory to write to
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Only days that were over at this time: an age like 7d, or a day [default: now]
    #[arg(long, value_name = "TIME", value_parser = |text: &str| since(text, unix_time()))]
    older: Option<Nanos>,
}

impl Pack {
    pub fn run(&self, global: &Global) -> Result<Exit> {
        let archive = open_existing(global)?;
        let mut files = 0;
        pack::pack(
            &archive,
            self.older.unwrap_or_else(unix_time),
            &self.dir,
            |file| {
                files += 1;
                let (runs, rows) = (counted(file.runs as u64, "run"), counted(file.rows, "row"));
                out::print(&format!(
                    "{}: {runs}, {rows}, {}\n",
                    file.path.display(),
                    Bytes(file.bytes)
                ))
            },
        )?;
        match files {
            0 => out::result("nothing to pack: no day that is over has runs that are not packed\n"),
            _ => Ok(Exit::Done),
        }
    }
}

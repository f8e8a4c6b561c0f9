//! `linerate install`: this binary on a host that ssh reaches.

use crate::prelude::*;
use engine::transport::install;

/// Copy this binary to a host over ssh, for measurements of ssh:HOST
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate install ssh:db2
  linerate measure ssh:db2
  linerate install --remove ssh:db2

The copy is ~/.cache/linerate/bin/linerate of the user there: no root, nothing
else is changed. Its SHA-256 is compared, and it is run once, before it gets
that name. A linerate in the PATH there comes first. The static binary of
'make dist' runs on any Linux of the same processor.")]
pub struct Install {
    /// The host, as ssh:[USER@]HOST[:PORT]
    #[arg(value_name = "ssh:HOST")]
    host: Host,
    /// Remove the copy again
    #[arg(long)]
    remove: bool,
}

impl Install {
    pub fn run(&self) -> Result<Exit> {
        let Host::Ssh { destination, port } = &self.host else {
            refuse!(
                "{} is not reached over ssh: give the host as ssh:HOST",
                self.host
            );
        };
        if self.remove {
            install::remove(destination, *port)?;
            return out::result(&format!("removed from {destination}\n"));
        }
        let version = install::install(destination, *port)?;
        out::result(&format!(
            "{version} is installed: linerate measure {}\n",
            self.host
        ))
    }
}

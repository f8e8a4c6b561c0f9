//! `linerate agent`: the remote end of a session over a pipe, started by `local` and `ssh:`.

use crate::prelude::*;
use engine::helper::Helpers;
use engine::host_calendar::HostCalendar;
use engine::{session, transport, trust, tuning};
use std::ops::RangeInclusive;

/// Serve one session over standard input and output
#[derive(Args)]
pub struct AgentArgs {
    /// Speak over standard input and output
    #[arg(long, required = true)]
    stdio: bool,
    /// Where data listeners listen
    #[arg(long, value_name = "ADDRESS")]
    listen: IpAddr,
    /// Ports of data listeners [default: any]
    #[arg(long, value_name = "A-B", value_parser = super::serve::ports)]
    data_ports: Option<RangeInclusive<u16>>,
}

impl AgentArgs {
    pub fn run(&self, global: &Global) -> Result<Exit> {
        tuning::recover();
        let channel = transport::at_stdio()?;
        let ports = self.data_ports.clone();
        // Its controller ends it: by a word, or by closing the pipe.
        let stop = AtomicBool::new(false);
        let mut peer = trust::Peer::at_a_pipe(self.listen, ports);
        if let Ok(archive) = global.archive_path() {
            let directory = PathBuf::new();
            peer.may_direct = Ok(trust::DirectMeans { archive, directory });
        }
        let calendar = Some(HostCalendar::of_this_host());
        session::serve(channel, peer, &Helpers::default(), calendar, &stop)?;
        Ok(Exit::Done)
    }
}

//! `linerate tune hold`: settings by hand, until Ctrl-C.

use crate::prelude::*;
use engine::controller::PeerLink;
use engine::transport::How;
use engine::tuning;
use model::{Reading, Setting};
use wire::control::TuneRequest;

/// How soon Ctrl-C is noticed.
const STOP_WITHIN: Duration = Duration::from_millis(50);

/// Apply settings to a host until Ctrl-C, then restore it
#[derive(Args)]
pub struct Hold {
    /// The host: name[:port] (an agent with --allow-tune), ssh:[user@]name or local
    host: String,
    /// What to set there, like route.initcwnd=32; the route is that to this host
    #[arg(required = true, value_name = "KNOB=VALUE")]
    settings: Vec<String>,
    /// What for: shown to others who want to change settings there
    #[arg(long, default_value = "set by hand", value_name = "TEXT")]
    title: String,
    /// Restore after this time without a message from here, even if linerate is killed there
    #[arg(long, default_value = "30s", value_name = "TIME")]
    deadline: Nanos,
    /// How ssh starts linerate on the remote host [default: linerate]
    #[arg(long, value_name = "COMMAND")]
    remote_command: Option<String>,
}

enum Holder {
    /// This process: both ends are on this machine.
    Here(tune::TuningSession),
    /// The agent on the remote host.
    There(Box<PeerLink>),
}

impl Hold {
    pub fn run(&self, global: &Global) -> Result<()> {
        let settings = self.settings()?;
        let host: Host = self.host.parse()?;
        let stop = sys::signal::stop_flag().context("cannot watch for Ctrl-C")?;
        tuning::recover();
        let how = How {
            remote_command: self.remote_command.as_deref(),
            ..global.how(None, stop)?
        };
        let mut link = PeerLink::new(host.connect(&how)?);
        let begin = TuneRequest::Begin {
            title: self.title.clone(),
            deadline: self.deadline,
        };
        link.tune(begin)?;
        let (mut holder, readings) = if link.shares_machine() {
            let mut hold = tuning::begin(&self.title, self.deadline.into(), Side::Remote)?;
            let readings = hold.apply(&settings, link.remote_address())?;
            (Holder::Here(hold), readings)
        } else {
            let readings = link.tune(TuneRequest::Apply { settings })?;
            (Holder::There(Box::new(link)), readings)
        };
        for reading in &readings {
            out::print(&line(reading))?;
        }
        out::note("set until Ctrl-C");
        let often = Duration::from(self.deadline) / 3;
        let mut renewed = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            std::thread::sleep(STOP_WITHIN);
            if renewed.elapsed() >= often {
                renewed = Instant::now();
                match &mut holder {
                    Holder::Here(hold) => hold.renew(),
                    Holder::There(link) => drop(link.tune(TuneRequest::Renew)?),
                }
            }
        }
        match holder {
            Holder::Here(hold) => drop(hold.end()?),
            Holder::There(mut link) => drop(link.tune(TuneRequest::End)?),
        }
        out::note("restored");
        Ok(())
    }

    fn settings(&self) -> Result<Vec<Setting>> {
        let read = |text: &String| {
            let setting: Setting = text.parse().map_err(Refusal::usage)?;
            if setting.knob.is_socket() {
                refuse!(
                    "{} is an option of linerate's own connections: 'linerate measure' and 'linerate prove' take it",
                    setting.knob
                );
            }
            Ok(setting)
        };
        self.settings.iter().map(read).collect()
    }
}

fn line(reading: &Reading) -> String {
    let (setting, asked, found) = (&reading.setting, &reading.asked, &reading.found);
    match reading.in_force {
        true => format!("{setting}: in force\n"),
        false => format!("{setting}: {asked} asked, {found} in force\n"),
    }
}

//! `linerate serve`: let hosts measure this one.

use crate::lookup::refused;
use crate::prelude::*;
use engine::helper::Helpers;
use engine::host::DEFAULT_PORT;
use engine::host_calendar::HostCalendar;
use engine::listener::{self, Listener};
use engine::transport::admission::Startups;
use engine::trust::LedgerLimits;
use engine::tune_rules::Rules;
use engine::{iperf3, leg, session, trust, tuning};
use std::net::TcpListener;
use std::ops::RangeInclusive;
use sys::privilege::Network;

/// Data connections, unless the user says how many.
const CONNECTIONS: u32 = 1024;
/// Open files of a session besides its data connections.
const SESSION_FILES: u32 = 8;

/// What says how names become addresses.
const RESOLVER: [&str; 5] = [
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/nsswitch.conf",
    "/etc/gai.conf",
];

const GIVE_UP: &str = "cannot give up the rights that serving does not need";

/// Let trusted hosts measure to and from this one
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate serve                               loopback until a host is trusted
  linerate serve --data-ports 5300-5399        behind a firewall
  linerate serve --bind 192.0.2.1 --clients 1
  linerate serve --allow-tune
  linerate serve --allow-direct                others have it measure ('measure A B')
  linerate serve --allow-files /srv/copies
  linerate serve --iperf3 --bind 0.0.0.0       for stock iperf3 clients

'linerate trust' decides who may measure here. Control connections are TLS 1.3
with raw public keys; a data connection is accepted only during a leg, from the
client's address and with the leg's token. The process that listens has no
capabilities; with root's, others tune and trace for it. docs/safety.md lists the
rules of /etc/linerate/tune.toml.")]
pub struct ServeArgs {
    /// Where to listen once a host is trusted [default: all addresses]
    #[arg(long, value_name = "ADDRESS")]
    bind: Option<IpAddr>,
    /// Port to listen on [default: 5210; 5201 with --iperf3]
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Ports of data connections, like 5300-5399 [default: any]
    #[arg(long, value_name = "A-B", value_parser = ports)]
    data_ports: Option<RangeInclusive<u16>>,
    /// Clients that may measure at the same time; others wait
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    clients: u32,
    /// Control connections at the same time; further clients are asked to come again
    #[arg(long, default_value_t = 64, value_name = "N", conflicts_with = "iperf3", value_parser = clap::value_parser!(u32).range(1..=65_535))]
    sessions: u32,
    /// The same of one host
    #[arg(long, default_value_t = 8, value_name = "N", conflicts_with = "iperf3", value_parser = clap::value_parser!(u32).range(1..=65_535))]
    host_sessions: u32,
    /// Data connections of all legs together [default: 1024]
    #[arg(long, value_name = "N", conflicts_with = "iperf3", value_parser = clap::value_parser!(u32).range(1..=65_535))]
    connections: Option<u32>,
    /// Unauthenticated connections: from START on one is dropped for a new one with a probability of RATE percent, at
    /// FULL certainly; stale ones of the busiest addresses first
    #[arg(long, default_value_t, value_name = "START:RATE:FULL")]
    startups: Startups,
    /// Memory for the buffers of all legs together
    #[arg(
        long,
        default_value = "64M",
        value_name = "SIZE",
        conflicts_with = "iperf3"
    )]
    buffers: Bytes,
    /// Let hosts with the right to tune ('linerate trust add ID --tune') change this host's settings
    #[arg(long, conflicts_with = "iperf3")]
    allow_tune: bool,
    /// Which knobs and interfaces each of them may change; root's file [default: /etc/linerate/tune.toml, if it is there]
    #[arg(long, value_name = "FILE", requires = "allow_tune")]
    tune_rules: Option<PathBuf>,
    /// Let hosts with the right to files ('linerate trust add ID --files') copy from and to files below this
    /// directory, and nowhere else
    #[arg(long, value_name = "DIR", conflicts_with = "iperf3")]
    allow_files: Option<PathBuf>,
    /// Let hosts with the right to direct ('linerate trust add ID --direct') have this one measure towards others
    /// ('measure A B'): it connects to them, and keeps the runs in its archive
    #[arg(long, conflicts_with = "iperf3")]
    allow_direct: bool,
    /// Serve stock iperf3 clients instead, without linerate's trust; on loopback unless --bind or
    /// --authorized-users is given
    #[arg(long)]
    iperf3: bool,
    #[command(flatten)]
    iperf3_options: iperf3::server::ServerOptions,
}

impl ServeArgs {
    pub fn run(&self, global: &Global) -> Result<Exit> {
        let stop = sys::signal::stop_flag()?;
        // A service: what a reload would read again, the list of trusted hosts, is followed anyway.
        if !std::io::stdin().is_terminal() {
            sys::signal::ignore_hangup()?;
        }
        if let Some(address) = self.bind {
            let bound = TcpListener::bind((address, 0));
            bound.map_err(|error| {
                Refusal::usage(format!("cannot listen on --bind {address}: {error}; 'ip address' lists the addresses of this host"))
            })?;
        }
        if self.iperf3 {
            let network = Network {
                read: tuning::readable(),
                write: Vec::new(),
                low_ports: self.low_ports(wire::iperf3::DEFAULT_PORT),
                connects: false,
            };
            iperf3::server::serve(
                (self.bind, self.port),
                self.clients as usize,
                self.startups,
                &self.iperf3_options,
                &|| confine(&network),
                stop,
                &listener::log,
            )?;
            return Ok(Exit::Done);
        }
        tuning::recover();
        let helpers = Helpers::start(self.rules()?)?;
        let directory = trust::directory(global.config.as_deref())?;
        let calendar = HostCalendar::of_this_host();
        if let Err(error) = calendar.set_clients(self.clients) {
            listener::log(&format!("{error:#}: clients are warned"));
        }
        let archive = self.archive(global)?;
        let archive_in = archive
            .as_ref()
            .and_then(|file| Some(file.parent()?.to_owned()));
        let mut read = tuning::readable();
        if self.allow_direct {
            read.extend(RESOLVER.map(PathBuf::from));
        }
        let network = Network {
            read,
            write: [
                Some(directory.clone()),
                self.files()?,
                calendar.directory(),
                archive_in,
            ]
            .into_iter()
            .flatten()
            .collect(),
            low_ports: self.low_ports(DEFAULT_PORT),
            connects: self.allow_direct,
        };
        let config = listener::ListenerConfig {
            directory,
            bind: self.bind,
            port: self.port.unwrap_or(DEFAULT_PORT),
            data_ports: self.data_ports.clone(),
            limits: self.limits()?,
            sessions: self.sessions as usize,
            key_sessions: self.host_sessions as usize,
            startups: self.startups,
            allow_tune: self.allow_tune,
            allow_files: self.files()?.map(measure::storage::Reach::Beneath),
            allow_direct: archive,
            calendar: calendar.clone(),
        };
        let serving = helpers.clone();
        let session = move |channel, peer| {
            let ended = session::serve(channel, peer, &serving, Some(calendar.clone()), stop);
            if serving.lost().is_some() {
                stop.store(true, Ordering::Relaxed);
            }
            ended
        };
        let listener = Listener::open(config, Box::new(session))?;
        confine(&network)?;
        listener::log(&format!("this host's id is {}", listener.id()));
        listener.run(stop)?;
        match helpers.lost() {
            Some(what) => anyhow::bail!("the {what} of this server died: start the server again"),
            None => Ok(Exit::Done),
        }
    }

    /// The archive of the runs that this host measures for others, if it does; what is confined later cannot make it.
    fn archive(&self, global: &Global) -> Result<Option<PathBuf>> {
        if !self.allow_direct {
            return Ok(None);
        }
        let file = std::path::absolute(global.archive_path().map_err(refused)?)?;
        Archive::open(&file).map_err(refused)?;
        Ok(Some(file))
    }

    /// What may be tuned, if anything.
    fn rules(&self) -> Result<Option<Rules>> {
        let named = self.tune_rules.clone().map(|file| Rules {
            file,
            required: true,
        });
        let rules = self.allow_tune.then(|| named.unwrap_or_default());
        if let Some(rules) = &rules {
            rules
                .check()
                .map_err(|error| Refusal::usage(format!("{error:#}")))?;
        }
        Ok(rules)
    }

    /// What all legs may use together, as far as this process may have files open.
    fn limits(&self) -> Result<LedgerLimits> {
        let all = leg::most_connections();
        // A connection that is sampled has two.
        let most = all.saturating_sub(self.sessions * SESSION_FILES) / 2;
        let wanted = self.connections.unwrap_or(1);
        if most < wanted {
            let needed = self.sessions * SESSION_FILES + 2 * wanted;
            refuse!(
                "{} sessions and {wanted} data connections need up to {needed} open files, and the hard limit of this process leaves {all}: lower --sessions or --connections, or raise the limit (LimitNOFILE= of a service, 'ulimit -Hn' as root)",
                self.sessions
            );
        }
        Ok(LedgerLimits {
            clients: self.clients as usize,
            buffers: self.buffers,
            connections: self.connections.unwrap_or(CONNECTIONS.min(most)),
            more_connections: "'linerate serve --connections N'",
        })
    }

    /// Whether it opens ports that take a privilege, by default this one.
    fn low_ports(&self, default: u16) -> bool {
        const FIRST_FREE: u16 = 1024;
        let data = self.data_ports.as_ref().map(RangeInclusive::start);
        [Some(&self.port.unwrap_or(default)), data]
            .into_iter()
            .flatten()
            .any(|port| *port < FIRST_FREE)
    }

    /// The directory of `--allow-files`, as an absolute path.
    fn files(&self) -> Result<Option<PathBuf>> {
        let Some(directory) = &self.allow_files else {
            return Ok(None);
        };
        let refused =
            |why: String| Refusal::usage(format!("--allow-files {}: {why}", directory.display()));
        let found = directory.canonicalize();
        let found = found.map_err(|e| refused(e.to_string()))?;
        match found.is_dir() {
            true => Ok(Some(found)),
            false => Err(refused("it is no directory".to_owned()).into()),
        }
    }
}

/// Reads `A-B` or `A`.
pub fn ports(text: &str) -> Result<RangeInclusive<u16>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let port = |text: &str| text.trim().parse::<u16>().ok().filter(|port| *port > 0);
    match (port(first), port(last)) {
        (Some(first), Some(last)) if first <= last => Ok(first..=last),
        _ => Err(format!(
            "'{text}' is no range of ports: write the first and the last, like 5300-5399"
        )),
    }
}

/// Its port is bound: notifies a service manager, gives up what serving does not need, and says what the kernel is too old to take.
fn confine(network: &Network) -> Result<()> {
    sys::service::ready().context("cannot notify the service manager (NOTIFY_SOCKET)")?;
    if let Some(not_denied) = network.confine().context(GIVE_UP)? {
        listener::log(&not_denied);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_ports() {
        assert_eq!(ports("5300-5399").unwrap(), 5300..=5399);
        assert_eq!(ports("5300").unwrap(), 5300..=5300);
        for bad in ["", "-", "5-4", "0-5", "1-65536", "a-b", "1-2-3"] {
            assert!(ports(bad).is_err(), "{bad}");
        }
    }
}

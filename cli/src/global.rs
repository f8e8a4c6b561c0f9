//! Options that several commands have.

use crate::prelude::*;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use engine::iperf3::client;
use engine::peer::{LabPath, Opening, PeerSession};
use engine::transport::How;
use model::IpVersion;
use serde::de::value::{self, StringDeserializer};
use serde::de::{DeserializeOwned, IntoDeserializer};
use std::borrow::Cow;

/// Options of every command.
#[derive(Args, Clone)]
pub struct Global {
    /// Archive of runs [default: linerate/runs.db in the user's data directory]
    #[arg(long, global = true, value_name = "FILE", env = "LINERATE_ARCHIVE")]
    #[arg(help_heading = "Global options", hide_short_help = true)]
    pub archive: Option<PathBuf>,
    /// Directory of this host's key and of whom it trusts [default: linerate in the user's configuration directory]
    #[arg(long, global = true, value_name = "DIR", env = "LINERATE_CONFIG")]
    #[arg(help_heading = "Global options", hide_short_help = true)]
    pub config: Option<PathBuf>,
}

impl Global {
    /// Where runs are kept.
    ///
    /// # Errors
    /// If neither an option nor the environment names a place.
    pub fn archive_path(&self) -> Result<PathBuf, archive::Error> {
        let value = |name| std::env::var_os(name);
        match &self.archive {
            Some(path) => Ok(path.clone()),
            None => {
                archive::default_path(value("XDG_DATA_HOME").as_deref(), value("HOME").as_deref())
            }
        }
    }

    /// How an agent is reached, but for what a command has options for. One that was handed over was
    /// trusted by who did that.
    ///
    /// # Errors
    /// If neither an option nor the environment names the directory of this host's key.
    pub fn how<'a>(&self, handed: Option<IpAddr>, stop: &'a AtomicBool) -> Result<How<'a>> {
        let directory = match handed {
            Some(_) => PathBuf::new(),
            None => engine::trust::directory(self.config.as_deref())?,
        };
        Ok(How {
            directory,
            handed,
            stop: Some(stop),
            ..How::default()
        })
    }
}

/// A value of an enumeration by its name in JSON, written with dashes.
pub fn named<T: DeserializeOwned>(name: &str) -> Option<T> {
    let name: StringDeserializer<value::Error> = name.replace('-', "_").into_deserializer();
    T::deserialize(name).ok()
}

pub fn by_name<T: DeserializeOwned + Clone + Send + Sync + 'static>(
    names: impl IntoIterator<Item = &'static str>,
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(names).try_map(|name| named(&name).ok_or("it is not known"))
}

/// A time whose unit stands beside it: of an RTT a bare number could be seconds or milliseconds.
pub fn time_with_unit(text: &str) -> Result<Nanos, String> {
    match text.parse::<f64>() {
        Ok(_) => Err(format!(
            "'{text}' has no unit: write {text}ms, {text}us or {text}s"
        )),
        Err(_) => text.parse(),
    }
}

/// The IP version to use.
#[derive(Args)]
pub struct Version {
    /// Over IPv4 only
    #[arg(short = '4', long, conflicts_with = "ipv6")]
    ipv4: bool,
    /// Over IPv6 only
    #[arg(short = '6', long)]
    ipv6: bool,
}

impl Version {
    pub fn chosen(&self) -> Option<IpVersion> {
        match (self.ipv4, self.ipv6) {
            (true, _) => Some(IpVersion::V4),
            (_, true) => Some(IpVersion::V6),
            _ => None,
        }
    }
}

/// How the remote host is reached.
#[derive(Args)]
pub struct Reaching {
    /// How ssh starts linerate on the remote host [default: linerate]
    #[arg(long, value_name = "CMD", help_heading = "Placement")]
    remote_command: Option<String>,
    /// Where the agent listens whose control connection is standard input: this process is the local
    /// end inside a lab
    #[arg(long, hide = true, value_name = "ADDRESS")]
    lab_remote: Option<IpAddr>,
}

impl Reaching {
    /// The path in a lab, if this process is to be started again inside of it.
    pub fn lab<'a>(&self, peer: &'a Host) -> Option<LabPath<'a>> {
        peer.lab().filter(|_| self.lab_remote.is_none())
    }

    /// These options and the directory of the key, where they were given, as for a shell.
    pub fn words(&self, global: &Global) -> String {
        let config = global.config.as_ref().map(|path| path.to_string_lossy());
        let config = config.filter(|_| std::env::var_os("LINERATE_CONFIG").is_none());
        let command = self.remote_command.as_deref().map(Cow::Borrowed);
        let all = [("--remote-command", command), ("--config", config)];
        let given = all.into_iter().filter_map(|(option, value)| {
            let value = value?.replace('\'', r"'\''");
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
            Some(match value.chars().all(is_plain) {
                true => format!("{option} {value}"),
                false => format!("{option} '{value}'"),
            })
        });
        given.collect::<Vec<_>>().join(" ")
    }

    /// How an agent is reached.
    pub fn how<'a>(&'a self, global: &Global, stop: &'a AtomicBool) -> Result<How<'a>> {
        Ok(How {
            remote_command: self.remote_command.as_deref(),
            ..global.how(self.lab_remote, stop)?
        })
    }

    /// Opens a session for runs of `spec`, whose legs survive an outage of the path of this length.
    pub fn open(
        &self,
        peer: &Host,
        spec: &Spec,
        iperf3: &client::ClientOptions,
        outage: Nanos,
        global: &Global,
        stop: &AtomicBool,
    ) -> Result<Box<dyn PeerSession>> {
        let how = || {
            Ok(How {
                outage,
                ip_version: spec.socket.ip_version,
                placement: spec.local.clone(),
                ..self.how(global, stop)?
            })
        };
        peer.open(&Opening { how: &how, iperf3 })
    }
}

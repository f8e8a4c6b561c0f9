//! `linerate trust`: who this host is, and who may measure here.

use crate::prelude::*;
use clap::Subcommand;
use engine::clock::unix_seconds;
use engine::host::{DEFAULT_PORT, agent_address, authority};
use engine::transport::{self, How};
use engine::trust::{
    self, Identity, Invitation, KeyLimits, NodeId, PendingInvitation, Right, TrustEntry, TrustStore,
};
use std::collections::BTreeSet;
use std::net::UdpSocket;
use wire::control::{Token, enrol};

/// Decide who may measure here; introduce hosts to each other
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  server$ linerate trust invite --rate 1G      prints a line, used once
  client$ linerate trust accept linerate-invitation/192.0.2.1/...

  server$ linerate trust add ID-OF-CLIENT --name laptop --seconds 60
  client$ linerate trust add ID-OF-SERVER --address db2 --server

A host is its key; 'linerate trust show' prints its id. Send an invitation as
you would send a password.")]
pub struct Trust {
    #[command(subcommand)]
    action: TrustAction,
}

#[derive(Subcommand)]
enum TrustAction {
    /// Print this host's id
    Show,
    /// Trust a host by its id, or change what it may do; limits that are not given stay
    Add(Add),
    /// List the trusted hosts and the open invitations
    List,
    /// Trust a host no longer, or withdraw the open invitations
    Remove(Remove),
    /// Print a line that enrols one other host here
    Invite(Invite),
    /// Enrol this host where the line came from
    Accept(Accept),
}

#[derive(Args)]
struct Add {
    /// The remote host's id: 'linerate trust show' prints it there
    id: NodeId,
    /// What to call it
    #[arg(long, value_name = "NAME", value_parser = name)]
    name: Option<String>,
    /// Where it serves: the server there must have this key
    #[arg(long, value_name = "NAME[:PORT]")]
    address: Option<String>,
    /// It is only to be measured from here: no rights on this host
    #[arg(long, conflicts_with_all = ["rights", "tune", "files", "direct", "rate", "seconds", "bytes_per_day"])]
    server: bool,
    #[command(flatten)]
    allow: Allow,
}

/// What another host may do here.
#[derive(Args)]
struct Allow {
    /// What it may do here
    #[arg(long, value_enum, value_delimiter = ',', default_value = "measure")]
    rights: Vec<Right>,
    /// It may change this host's settings too, if 'linerate serve --allow-tune' runs
    #[arg(long)]
    tune: bool,
    /// Its copies may read and write files here, if 'linerate serve --allow-files DIR' runs
    #[arg(long)]
    files: bool,
    /// It may have this host measure towards others ('measure A B'), if 'linerate serve --allow-direct' runs
    #[arg(long)]
    direct: bool,
    /// Highest rate of all its legs together, both directions in one [default: unlimited]
    #[arg(long, value_name = "RATE")]
    rate: Option<BitRate>,
    /// Longest leg [default: a day]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: Option<u64>,
    /// Bytes both ways from midnight to midnight UTC [default: unlimited]
    #[arg(long, value_name = "SIZE")]
    bytes_per_day: Option<Bytes>,
    /// Data connections of all its legs at once [default: as many as 'linerate serve --connections' allows]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    connections: Option<u32>,
}

#[derive(Args)]
struct Remove {
    /// Its name, its id or the beginning of its id
    #[arg(required_unless_present = "invitations")]
    host: Option<String>,
    /// Withdraw all open invitations
    #[arg(long)]
    invitations: bool,
}

#[derive(Args)]
struct Invite {
    /// How the remote host reaches this one [default: the address of the default route]
    #[arg(long, value_name = "NAME[:PORT]")]
    address: Option<String>,
    /// Until when the line can be used
    #[arg(long, default_value = "1h", value_name = "TIME")]
    expires: Nanos,
    /// What to call the remote host [default: what it calls itself]
    #[arg(long, value_name = "NAME", value_parser = name)]
    name: Option<String>,
    #[command(flatten)]
    allow: Allow,
}

#[derive(Args)]
struct Accept {
    /// The line that 'linerate trust invite' printed
    line: String,
}

impl Trust {
    pub fn run(&self, global: &Global) -> Result<Exit> {
        let directory = trust::directory(global.config.as_deref())?;
        let store = TrustStore::new(&directory);
        let said = match &self.action {
            TrustAction::Show => Identity::open(&directory)?.id().to_string(),
            TrustAction::Add(add) => store.update(|trust| {
                let entry = add.entry(trust.host(&add.id))?;
                trust.put(entry.clone())?;
                Ok(describe(&entry))
            })?,
            TrustAction::List => list(&store.load()?),
            TrustAction::Remove(remove) => store.update(|trust| {
                if remove.invitations {
                    trust.invitations.clear();
                }
                let Some(host) = &remove.host else {
                    return Ok("no invitation is open".to_owned());
                };
                let TrustEntry { name, id, .. } = trust.named(host)?.clone();
                trust.hosts.retain(|other| other.id != id);
                Ok(format!("{name} ({}) is trusted no longer", id.short()))
            })?,
            TrustAction::Invite(invite) => {
                let line = invite.line(&Identity::open(&directory)?, &store)?;
                out::note(&format!(
                    "On the remote host, within {}: linerate trust accept LINE (and 'linerate serve' must run here)",
                    invite.expires
                ));
                line.to_string()
            }
            TrustAction::Accept(accept) => {
                let invitation: Invitation = accept.line.parse()?;
                let how = How {
                    directory,
                    ..How::default()
                };
                let entry = transport::accept_invitation(&invitation, &how)?;
                let (name, id) = (&entry.name, entry.id.short());
                let at = entry.address.as_deref().unwrap_or_default();
                format!("{name} ({id}) is trusted now: linerate measure {at}")
            }
        };
        out::result(&format!("{said}\n"))
    }
}

impl Add {
    /// The entry: a new one, or the old one changed. What is not given is kept, but for the rights.
    fn entry(&self, old: Option<&TrustEntry>) -> Result<TrustEntry> {
        let address = match &self.address {
            Some(text) => {
                let (name, port) = address(text)?;
                Some(authority(&name, port, DEFAULT_PORT))
            }
            None => old.and_then(|old| old.address.clone()),
        };
        let name = self.name.clone().or(old.map(|old| old.name.clone()));
        let limits = old.filter(|_| !self.server).map(|old| old.limits.clone());
        Ok(TrustEntry {
            id: self.id,
            name: name.unwrap_or_else(|| self.id.short()),
            address,
            rights: match self.server {
                true => BTreeSet::new(),
                false => self.allow.rights(),
            },
            limits: self.allow.limits(limits.unwrap_or_default()),
        })
    }
}

impl Allow {
    fn rights(&self) -> BTreeSet<Right> {
        let tune = self.tune.then_some(Right::Tune);
        let files = self.files.then_some(Right::Files);
        let direct = self.direct.then_some(Right::Direct);
        let rights = self.rights.iter().copied();
        rights.chain(tune).chain(files).chain(direct).collect()
    }

    /// The limits, those that are not given being kept.
    fn limits(&self, old: KeyLimits) -> KeyLimits {
        KeyLimits {
            rate: self.rate.or(old.rate),
            seconds: self.seconds.or(old.seconds),
            bytes_per_day: self.bytes_per_day.or(old.bytes_per_day),
            connections: self.connections.or(old.connections),
        }
    }
}

impl Invite {
    fn line(&self, identity: &Identity, store: &TrustStore) -> Result<Invitation> {
        let (name, port) = match &self.address {
            Some(text) => address(text)?,
            None => (own_address(), DEFAULT_PORT),
        };
        let seconds = self.expires.0 / 1_000_000_000;
        if !(1..=30 * 86_400).contains(&seconds) {
            refuse!("--expires goes from 1 second to 30 days (720h)");
        }
        let token = Token::new(engine::chance::bytes()?);
        let expires_unix_s = unix_seconds() + seconds;
        store.update(|trust| {
            let now = unix_seconds();
            trust.invitations.retain(|open| open.expires_unix_s > now);
            trust.invitations.push(PendingInvitation {
                token_sha256: PendingInvitation::digest(&token),
                expires_unix_s,
                name: self.name.clone(),
                rights: self.allow.rights(),
                limits: self.allow.limits(KeyLimits::default()),
            });
            Ok(())
        })?;
        Ok(Invitation {
            name,
            port,
            server: identity.id(),
            token,
            expires_unix_s,
        })
    }
}

fn list(trust: &trust::TrustFile) -> String {
    let mut lines: Vec<String> = trust.hosts.iter().map(describe).collect();
    if lines.is_empty() {
        lines.push("nobody is trusted: 'linerate trust invite' introduces a host".to_owned());
    }
    let now = unix_seconds();
    let open = trust.invitations.iter();
    lines.extend(open.filter(|open| open.expires_unix_s > now).map(|open| {
        let whom = open.name.as_deref().unwrap_or("a host");
        let left = Nanos::from_secs(open.expires_unix_s - now);
        let limits = &open.limits;
        format!("open invitation for {whom}: {left} left; {limits}")
    }));
    lines.join("\n")
}

fn describe(entry: &TrustEntry) -> String {
    let rights = entry.rights.iter().map(|right| match right {
        Right::Measure => "measure",
        Right::Tune => "tune",
        Right::Files => "use files",
        Right::Direct => "direct",
    });
    let rights: Vec<&str> = rights.collect();
    let may = match rights.is_empty() {
        true => "no rights on this host".to_owned(),
        false => format!("may {}, {}", rights.join(" and "), entry.limits),
    };
    let serves = entry.address.iter().map(|at| format!("; server at {at}"));
    let serves: String = serves.collect();
    let width = stdout_style().width;
    report::words::wrap(
        &format!("{may}{serves}"),
        width,
        &format!("{}  ", entry.name),
        "    ",
    ) + &format!("    {}", entry.id)
}

/// `name[:port]`, and nothing with a prefix.
fn address(text: &str) -> Result<(String, u16)> {
    let host: Host = text.parse()?;
    agent_address(text)
        .ok_or_else(|| Refusal::usage(format!("'{host}' is no name[:port] of a host")).into())
}

/// Our address towards the rest of the world. Connecting a UDP socket sends nothing: it only asks
/// the kernel for the route (192.0.2.1 stands for any address that is not ours, RFC 5737).
fn own_address() -> String {
    let routed = UdpSocket::bind(("0.0.0.0", 0)).and_then(|socket| {
        socket.connect(("192.0.2.1", 9))?;
        socket.local_addr()
    });
    match routed {
        Ok(address) if !address.ip().is_unspecified() => address.ip().to_string(),
        _ => trust::host_name(),
    }
}

fn name(text: &str) -> Result<String, String> {
    match enrol::is_name(text) {
        true => Ok(text.to_owned()),
        false => Err("a name has 1 to 64 letters, digits, '.', '_' and '-'".to_owned()),
    }
}

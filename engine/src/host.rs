//! The remote host, as the user names it.

use crate::exit::Refusal;
use crate::lab;
use std::fmt;
use std::str::FromStr;

/// Port of the control connection of `linerate serve`.
pub const DEFAULT_PORT: u16 = mesh::AGENT_PORT;

/// `name[:port]`, `ssh:[user@]name[:port]`, `iperf3:name[:port]`, `nfs://name[:port]/export`, `lab:name[/host]`,
/// `lab:file.toml[/host]` or `local`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// An agent that listens (`linerate serve`).
    Agent {
        /// Name or address, brackets taken off.
        name: String,
        /// TCP port.
        port: u16,
    },
    /// An agent that the user's ssh starts.
    Ssh {
        /// `[user@]name` as ssh takes it.
        destination: String,
        /// Port of the ssh server, if not ssh's own choice.
        port: Option<u16>,
    },
    /// A stock iperf3 server.
    Iperf3 {
        /// Name or address, brackets taken off.
        name: String,
        /// TCP port.
        port: u16,
    },
    /// A folder that an NFS server exports.
    Nfs {
        /// Name or address, brackets taken off.
        name: String,
        /// TCP port of NFS, if its port mapper is not to be asked.
        port: Option<u16>,
        /// The folder, with its slash.
        export: String,
    },
    /// A host of a lab on this machine; the client is a host of the same lab.
    Lab {
        /// Name of the lab, or name or file of a scenario that is created for the measurement.
        name: String,
        /// The remote host, or the local and the remote one with a dash between; whose name has a dash of
        /// its own is known by the lab alone ([`ends`]). Without: the lab's first and second host.
        hosts: Option<String>,
    },
    /// An agent on this machine, started for the session.
    Local,
}

impl FromStr for Host {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Host, Refusal> {
        let bad = |why: &str| {
            Refusal::usage(format!(
                "HOST '{text}' {why}: write name[:port], [IPv6 address]:port, ssh:[user@]name, iperf3:name[:port], nfs://name/export, lab:NAME[/host], lab:FILE.toml[/host] or local"
            ))
        };
        if text == "local" {
            return Ok(Host::Local);
        }
        if text.starts_with("http://") || text.starts_with("https://") {
            return Err(Refusal::usage(format!(
                "'{text}' is a web page, and no peer to measure: 'linerate mtu {text}' probes the path to its server"
            )));
        }
        if let Some(rest) = text.strip_prefix("lab:") {
            let (name, hosts) = lab::split(rest);
            if name.is_empty() {
                return Err(bad("names no lab"));
            }
            if hosts == Some("") {
                return Err(bad("names no host behind its slash"));
            }
            let odd = |c: char| !(c.is_ascii_alphanumeric() || "._-".contains(c));
            let is_odd = !lab::is_file(name) && name.contains(odd);
            if is_odd || hosts.is_some_and(|hosts| hosts.contains(odd)) {
                return Err(bad("has a name that no lab or host can have"));
            }
            return Ok(Host::Lab {
                name: name.to_owned(),
                hosts: hosts.map(str::to_owned),
            });
        }
        let of = |text: &str| split(text).map_err(bad);
        if let Some(rest) = text.strip_prefix("iperf3:") {
            let (name, port) = of(rest)?;
            let port = port.unwrap_or(wire::iperf3::DEFAULT_PORT);
            return Ok(Host::Iperf3 { name, port });
        }
        if let Some(rest) = text.strip_prefix("nfs://") {
            let slash = rest.find('/');
            let slash = slash.ok_or_else(|| bad("names no exported folder behind the host"))?;
            let (name, port) = of(&rest[..slash])?;
            let export = rest[slash..].to_owned();
            return Ok(Host::Nfs { name, port, export });
        }
        if let Some(rest) = text.strip_prefix("ssh:") {
            let (user, name) = match rest.rsplit_once('@') {
                Some(("", _)) => return Err(bad("has an empty user name")),
                Some((user, name)) => (Some(user), name),
                None => (None, rest),
            };
            let (name, port) = of(name)?;
            let destination = user.map_or(name.clone(), |user| format!("{user}@{name}"));
            // ssh would take it for an option.
            if destination.starts_with('-') {
                return Err(bad("begins with a dash"));
            }
            return Ok(Host::Ssh { destination, port });
        }
        let (name, port) = of(text)?;
        let port = port.unwrap_or(DEFAULT_PORT);
        Ok(Host::Agent { name, port })
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Agent { name, port } => f.write_str(&authority(name, *port, DEFAULT_PORT)),
            Host::Iperf3 { name, port } => {
                let at = authority(name, *port, wire::iperf3::DEFAULT_PORT);
                write!(f, "iperf3:{at}")
            }
            Host::Nfs { name, port, export } => {
                // Every port is shown: without one the port mapper is asked.
                let at = authority(name, port.unwrap_or(0), 0);
                write!(f, "nfs://{at}{export}")
            }
            Host::Ssh { destination, port } => match port {
                Some(port) => write!(f, "ssh:{destination}:{port}"),
                None => write!(f, "ssh:{destination}"),
            },
            Host::Lab { name, hosts } => match hosts {
                Some(hosts) => write!(f, "lab:{name}/{hosts}"),
                None => write!(f, "lab:{name}"),
            },
            Host::Local => f.write_str("local"),
        }
    }
}

/// Local and remote host among the hosts of a lab, by what [`Host::Lab`] says of them: the first and the
/// second if it says nothing, the first and the named one, or both. `None` if it names no such pair.
pub fn ends<'a>(hosts: Option<&str>, all: &[&'a str]) -> Option<(&'a str, &'a str)> {
    let find = |name: &str| all.iter().copied().find(|host| *host == name);
    let (local, remote) = match hosts {
        None => (*all.first()?, *all.get(1)?),
        Some(text) => match find(text) {
            Some(remote) => (*all.iter().find(|host| **host != remote)?, remote),
            None => text
                .match_indices('-')
                .find_map(|(at, _)| Some((find(&text[..at])?, find(&text[at + 1..])?)))?,
        },
    };
    (local != remote).then_some((local, remote))
}

/// Name and port of an agent that listens: `name[:port]`, and nothing with a prefix.
pub fn agent_address(text: &str) -> Option<(String, u16)> {
    match text.parse() {
        Ok(Host::Agent { name, port }) => Some((name, port)),
        _ => None,
    }
}

/// `name:port`, the port left out where it is the usual one, IPv6 addresses in brackets.
pub fn authority(name: &str, port: u16, usual: u16) -> String {
    let colons = name.contains(':');
    match (colons, port == usual) {
        (true, true) => format!("[{name}]"),
        (true, false) => format!("[{name}]:{port}"),
        (false, true) => name.to_owned(),
        (false, false) => format!("{name}:{port}"),
    }
}

/// `name`, `name:port`, `[v6]`, `[v6]:port` or a bare IPv6 address.
pub fn split(text: &str) -> Result<(String, Option<u16>), &'static str> {
    let (name, port) = if let Some(rest) = text.strip_prefix('[') {
        let (name, rest) = rest.split_once(']').ok_or("has no closing bracket")?;
        if name.parse::<std::net::Ipv6Addr>().is_err() && !name.contains('%') {
            return Err("has no IPv6 address in its brackets");
        }
        match (rest, rest.strip_prefix(':')) {
            ("", _) => (name, None),
            (_, Some(port)) => (name, Some(port)),
            _ => return Err("goes on behind the bracket"),
        }
    } else if text.parse::<std::net::Ipv6Addr>().is_ok() {
        (text, None)
    } else {
        match text.split_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (text, None),
        }
    };
    if name.is_empty() {
        return Err("has no name");
    }
    if name.len() > 253 || name.contains(|c: char| c.is_whitespace() || c.is_control() || c == '/')
    {
        return Err("is no host name");
    }
    let port = match port {
        Some(text) => match text.parse::<u16>() {
            Ok(port) if port > 0 && text.bytes().all(|b| b.is_ascii_digit()) => Some(port),
            _ => return Err("has a port that is not a number from 1 to 65535"),
        },
        None => None,
    };
    Ok((name.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_form_is_read_and_printed() {
        let agent = |name: &str, port| Host::Agent {
            name: name.into(),
            port,
        };
        let ssh = |destination: &str, port| Host::Ssh {
            destination: destination.into(),
            port,
        };
        let lab = |name: &str, hosts: Option<&str>| Host::Lab {
            name: name.into(),
            hosts: hosts.map(Into::into),
        };
        for (text, host) in [
            ("db2", agent("db2", 5210)),
            ("db2:99", agent("db2", 99)),
            ("192.0.2.1:99", agent("192.0.2.1", 99)),
            ("[2001:db8::1]:99", agent("2001:db8::1", 99)),
            ("[2001:db8::1]", agent("2001:db8::1", 5210)),
            ("[fe80::1%eth0]:99", agent("fe80::1%eth0", 99)),
            ("ssh:db2", ssh("db2", None)),
            ("ssh:me@db2:2222", ssh("me@db2", Some(2222))),
            (
                "iperf3:db2:99",
                Host::Iperf3 {
                    name: "db2".into(),
                    port: 99,
                },
            ),
            (
                "nfs://[2001:db8::1]:99/x/y",
                Host::Nfs {
                    name: "2001:db8::1".into(),
                    port: Some(99),
                    export: "/x/y".into(),
                },
            ),
            (
                "nfs://nas/x",
                Host::Nfs {
                    name: "nas".into(),
                    port: None,
                    export: "/x".into(),
                },
            ),
            ("lab:wan", lab("wan", None)),
            ("lab:wan/db-2", lab("wan", Some("db-2"))),
            ("lab:wan.toml", lab("wan.toml", None)),
            (
                "lab:../my paths/wan.toml",
                lab("../my paths/wan.toml", None),
            ),
            (
                "lab:/tmp/a.toml/wan.toml",
                lab("/tmp/a.toml/wan.toml", None),
            ),
            ("lab:x/wan.toml/a-b", lab("x/wan.toml", Some("a-b"))),
            ("local", Host::Local),
        ] {
            assert_eq!(text.parse::<Host>().unwrap(), host, "{text}");
            assert_eq!(host.to_string(), text);
        }
        assert_eq!("::1".parse::<Host>().unwrap(), agent("::1", 5210));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, said) in [
            ("", "no name"),
            (":80", "no name"),
            ("db2:", "port"),
            ("db2:0", "port"),
            ("db2:+1", "port"),
            ("db2:65536", "port"),
            ("[::1", "bracket"),
            ("[::1]x", "bracket"),
            ("[db2]:1", "IPv6"),
            ("a b", "host name"),
            ("http://db2/x", "linerate mtu http://db2/x"),
            ("ssh:", "no name"),
            ("ssh:@db2", "user"),
            ("ssh:-oProxyCommand=x", "dash"),
            ("nfs://nas", "no exported folder"),
            ("nfs:///x", "no name"),
            ("lab:", "no lab"),
            ("lab:/x", "no lab"),
            ("lab:wan/", "no host"),
            ("lab:wan/a/b", "no lab or host"),
            ("lab:x/wan.toml/", "no host"),
            ("lab:x/wan.toml/a/b", "no lab or host"),
        ] {
            let error = text.parse::<Host>().unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn both_ends_are_found_in_a_lab() {
        let all = ["a", "a-b", "b", "nas-2"];
        for (hosts, expected) in [
            (None, Some(("a", "a-b"))),
            (Some("b"), Some(("a", "b"))),
            (Some("a"), Some(("a-b", "a"))),
            // A host of that very name comes first.
            (Some("a-b"), Some(("a", "a-b"))),
            (Some("b-nas-2"), Some(("b", "nas-2"))),
            (Some("nas-2-a-b"), Some(("nas-2", "a-b"))),
            (Some("c"), None),
            (Some("b-b"), None),
        ] {
            assert_eq!(ends(hosts, &all), expected, "{hosts:?}");
        }
        assert_eq!(ends(None, &["alone"]), None);
        assert_eq!(ends(Some("alone"), &["alone"]), None);
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_back(text in "(ssh:|iperf3:|nfs://|lab:|)[a-z/\\[\\]:@0-9.-]{0,20}(|[.]toml|[.]toml/[a-z/]{0,3})") {
            if let Ok(host) = text.parse::<Host>() {
                prop_assert_eq!(host.to_string().parse::<Host>().unwrap(), host);
            }
        }
    }
}

//! The other host, as the user names it.

use crate::exit::Refusal;
use std::fmt;
use std::str::FromStr;

/// Port of the control connection of `linerate serve`.
pub const DEFAULT_PORT: u16 = 5210;

/// `name[:port]`, `ssh:[user@]name[:port]`, `iperf3:name[:port]` or `local`.
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
    /// An agent on this machine, started for the session.
    Local,
}

impl FromStr for Host {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Host, Refusal> {
        let bad = |why: &str| {
            Refusal::usage(format!(
                "HOST '{text}' {why}: write name[:port], [IPv6 address]:port, ssh:[user@]name, iperf3:name[:port] or local"
            ))
        };
        if text == "local" {
            return Ok(Host::Local);
        }
        if let Some(lab) = text.strip_prefix("lab:") {
            return Err(Refusal::usage(format!(
                "lab:{lab}: this version has no emulated paths; measure a host, or 'local'"
            )));
        }
        let of = |text: &str| split(text).map_err(bad);
        if let Some(rest) = text.strip_prefix("iperf3:") {
            let (name, port) = of(rest)?;
            let port = port.unwrap_or(wire::iperf3::DEFAULT_PORT);
            return Ok(Host::Iperf3 { name, port });
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
                write!(
                    f,
                    "iperf3:{}",
                    authority(name, *port, wire::iperf3::DEFAULT_PORT)
                )
            }
            Host::Ssh { destination, port } => match port {
                Some(port) => write!(f, "ssh:{destination}:{port}"),
                None => write!(f, "ssh:{destination}"),
            },
            Host::Local => f.write_str("local"),
        }
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
fn split(text: &str) -> Result<(String, Option<u16>), &'static str> {
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
            ("ssh:", "no name"),
            ("ssh:@db2", "user"),
            ("ssh:-oProxyCommand=x", "dash"),
            ("lab:wan", "emulated"),
        ] {
            let error = text.parse::<Host>().unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_back(text in "(ssh:|iperf3:|)[a-z\\[\\]:@0-9.-]{0,20}") {
            if let Ok(host) = text.parse::<Host>() {
                prop_assert_eq!(host.to_string().parse::<Host>().unwrap(), host);
            }
        }
    }
}

//! Which connections to trace: options that `trace` and `explain --live` share, and how a tracer starts and ends.

use crate::prelude::*;
use observe::trace::{Filter, TraceOptions, Tracer, netns_at, own_netns};

#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct FilterArgs {
    /// Only connections with this port at either end
    #[arg(long, value_name = "PORT", value_parser = parse_port)]
    pub port: Option<u16>,
    /// Only connections with this address at either end
    #[arg(long, value_name = "ADDRESS")]
    pub host: Option<IpAddr>,
    /// Only sockets that this process uses
    #[arg(long)]
    pub pid: Option<u32>,
    /// Network namespace: a name of 'ip netns', a process, a path, or all [default: that of --pid, or this one]
    #[arg(long, value_name = "NAME")]
    pub netns: Option<String>,
    /// Only the socket with this number, as 'ss -e' shows it after sk:
    #[arg(long, value_name = "NUMBER", value_parser = parse_cookie)]
    pub cookie: Option<u64>,
}

impl FilterArgs {
    /// The same for the tracer.
    pub fn filter(&self) -> Result<Filter> {
        let netns = match self.netns.as_deref() {
            Some("all") => None,
            Some(name) => Some(find_netns(name)?),
            // A process in a container has its connections there.
            None => {
                let of_process = self
                    .pid
                    .map(|pid| PathBuf::from(format!("/proc/{pid}/ns/net")));
                of_process
                    .and_then(|path| netns_at(&path))
                    .or_else(own_netns)
            }
        };
        if let Some(pid) = self.pid
            && !Path::new(&format!("/proc/{pid}")).is_dir()
        {
            refuse!("there is no process {pid}");
        }
        Ok(Filter {
            netns,
            pid: self.pid,
            port: self.port,
            host: self.host,
            cookie: self.cookie,
        })
    }
}

/// Between two looks at Ctrl-C and at the time.
pub const LOOK: Duration = Duration::from_millis(100);

/// The end of a trace: Ctrl-C, a time, or the end of the chosen socket or process.
pub struct FilterEnd<'a> {
    stop: &'static AtomicBool,
    at: Option<Instant>,
    which: &'a FilterArgs,
}

/// Starts a tracer that ends after `time`, and notes what it lacks.
pub fn start<'a>(
    which: &'a FilterArgs,
    options: &TraceOptions,
    time: Option<Nanos>,
) -> Result<(Tracer, FilterEnd<'a>)> {
    let stop = sys::signal::stop_flag().context("cannot catch Ctrl-C")?;
    let tracer = Tracer::start(&which.filter()?, options)?;
    for sentence in &tracer.instead {
        out::note(&format!("linerate: {sentence}"));
    }
    for tracepoint in &tracer.missing {
        out::note(&format!(
            "linerate: this kernel does not let {tracepoint} be traced: what it reports is left out"
        ));
    }
    let at = time.map(|time| Instant::now() + Duration::from(time));
    Ok((tracer, FilterEnd { stop, at, which }))
}

impl FilterEnd<'_> {
    /// Ctrl-C or the time.
    pub fn has_come(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.at.is_some_and(|at| Instant::now() >= at)
    }

    /// The same, or the chosen socket (`closed`) or process is gone: their numbers are not used again soon.
    pub fn has_come_for(&self, closed: bool) -> bool {
        let process = |pid: u32| Path::new("/proc").join(format!("{pid}")).exists();
        self.has_come()
            || (self.which.cookie.is_some() && closed)
            || self.which.pid.is_some_and(|pid| !process(pid))
    }
}

fn find_netns(name: &str) -> Result<u32> {
    let path = match name.parse::<u32>() {
        Ok(pid) => PathBuf::from(format!("/proc/{pid}/ns/net")),
        Err(_) if name.contains('/') => PathBuf::from(name),
        Err(_) => Path::new("/run/netns").join(name),
    };
    let Some(inode) = netns_at(&path) else {
        refuse!(
            "no network namespace '{name}': {} is not there; 'ip netns' lists the names, and a process or a path will do",
            path.display()
        )
    };
    Ok(inode)
}

/// A number, or the name of a service (services(5)).
pub fn parse_port(text: &str) -> Result<u16, String> {
    const SERVICES: &str = "/etc/services";
    if let Ok(port) = text.parse() {
        return Ok(port);
    }
    let services = std::fs::read_to_string(SERVICES).unwrap_or_default();
    let named = services.lines().find_map(|line| port_of(line, text));
    named.ok_or_else(|| {
        format!("'{text}' is neither a port (0 to 65535) nor a TCP service of {SERVICES}")
    })
}

/// The TCP port that a line of services(5) gives this name: `http 80/tcp www`.
fn port_of(line: &str, name: &str) -> Option<u16> {
    let mut words = line.split('#').next()?.split_whitespace();
    let (first, port) = (words.next()?, words.next()?.strip_suffix("/tcp")?);
    let is_it = first == name || words.any(|alias| alias == name);
    is_it.then_some(port)?.parse().ok()
}

/// As `ss` prints it, or in decimal.
fn parse_cookie(text: &str) -> Result<u64, String> {
    let hex = text.trim_start_matches("sk:");
    let hex = hex.strip_prefix("0x").or((hex != text).then_some(hex));
    match hex {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    }
    .map_err(|_| format!("'{text}' is no number of a socket; write 4711, 0x1267 or sk:1267"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_sockets_as_they_are_shown() {
        assert_eq!(parse_cookie("4711"), Ok(4711));
        assert_eq!(parse_cookie("0x1267"), Ok(4711));
        assert_eq!(parse_cookie("sk:1267"), Ok(4711));
        assert!(parse_cookie("x").is_err());
    }

    #[test]
    fn ports_by_name() {
        let line = "http\t\t80/tcp\t\twww\t# WorldWideWeb HTTP";
        for (name, port) in [
            ("http", Some(80)),
            ("www", Some(80)),
            ("HTTP", None),
            ("#", None),
        ] {
            assert_eq!(port_of(line, name), port, "{name}");
        }
        assert_eq!(port_of("tftp 69/udp", "tftp"), None);
        assert_eq!(parse_port("2049"), Ok(2049));
        for bad in ["", "65536", "-1", "no-such-service"] {
            assert!(parse_port(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_process_that_is_not_there_is_refused() {
        let of = |pid| FilterArgs {
            pid: Some(pid),
            ..FilterArgs::default()
        };
        let refused = of(u32::MAX).filter().err().map(|error| error.to_string());
        assert_eq!(refused.as_deref(), Some("there is no process 4294967295"));
        assert!(of(std::process::id()).filter().is_ok());
    }
}

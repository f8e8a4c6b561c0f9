//! From the name of a host to a control connection with its agent.

use super::channel::{AgentChannel, Channel, ChannelEnd, ControllerChannel};
use super::child::{Meaning, Pipes};
use super::install;
use super::tls::{CONNECT, ENROL, Handshake, SESSION, Tls, Verdict, not_trusted};
use crate::clock::unix_seconds;
use crate::host::{DEFAULT_PORT, agent_address, authority};
use crate::log;
use crate::prelude::*;
use crate::trust::{Identity, Invitation, KeyLimits, NodeId, TrustEntry, TrustStore, host_name};
use model::{IpVersion, Placement};
use std::collections::BTreeSet;
use std::io;
use std::net::{Ipv4Addr, ToSocketAddrs};
use std::process::{Command, ExitStatus};
use wire::control::enrol::{ANSWER_LEN, EnrolAnswer, EnrolRequest};

/// For the greeting once there is a connection.
const GREETING: Duration = Duration::from_secs(10);

/// How soon Ctrl-C is noticed.
const STOP_WITHIN: Duration = Duration::from_millis(50);

/// For ssh, which may ask a person for a passphrase first.
const SSH: Duration = Duration::from_secs(120);

/// A server without room for connections that are not authenticated is tried again for so long.
const BUSY_FOR: Duration = Duration::from_secs(60);

/// MSS of a control connection: it must get through where larger packets vanish, so its segments fit the
/// smallest link that IPv6 allows (1280 bytes, RFC 8200).
const MSS: u32 = 1220;

/// How to reach a host.
#[derive(Clone, Default)]
pub struct How<'a> {
    /// Where this host's key and the list of trusted hosts are ([`crate::trust::directory`]).
    pub directory: PathBuf,
    /// The IP version to insist on.
    pub ip_version: Option<IpVersion>,
    /// Source address and device: those of the data, since an agent takes data only from where the
    /// control connection comes from.
    pub placement: Placement,
    /// How ssh is to start linerate on the remote host; `linerate` by default.
    pub remote_command: Option<&'a str>,
    /// The agent was reached by the parent, which left it at this process' standard input: this is where
    /// its data listeners are.
    pub handed: Option<IpAddr>,
    /// Longest outage of the path that legs are to survive.
    pub outage: Nanos,
    /// The one key that is accepted; who else is trusted does not count.
    pub only: Option<NodeId>,
    /// Ends the attempt.
    pub stop: Option<&'a AtomicBool>,
    /// How long TCP tries to reach the host; [`CONNECT`] by default.
    pub within: Option<Duration>,
    /// The agent is to measure towards another one, or to be measured by it, for this host.
    pub coordinates: bool,
}

impl How<'_> {
    /// Id of this host's key, if it has one; a host in a lab has none.
    pub fn local_id(&self) -> Option<NodeId> {
        match self.handed {
            Some(_) => None,
            None => Identity::id_in(&self.directory),
        }
    }

    /// How the agent and this host come to trust each other.
    fn enrolment(&self) -> String {
        let there = match self.coordinates {
            true => " --direct' there, where 'linerate serve --allow-direct' runs,",
            false => "' there",
        };
        format!(
            "run 'linerate trust invite{there} and 'linerate trust accept LINE' here, with the line that it prints"
        )
    }

    /// What to do where ssh reaches the agent.
    fn over_ssh(&self, name: &str) -> String {
        match self.coordinates {
            true => format!("name it ssh:{name} (in a mesh file agent = \"ssh:{name}\")"),
            false => format!("measure ssh:{name}"),
        }
    }
}

/// An agent that has greeted.
pub struct Reached {
    /// The control connection.
    pub channel: ControllerChannel,
    /// Where its data listeners are to be reached: try them in turn.
    pub addresses: Vec<IpAddr>,
    /// This host's key and the agent's id, where TLS authenticated both.
    pub keys: Option<(Identity, NodeId)>,
}

/// The agent's end of a session over standard input and output.
pub fn at_stdio() -> Result<AgentChannel> {
    let pipes = Box::new(Pipes::standard()?);
    Channel::start(pipes, "the controller", GREETING, None)
}

/// The control connection that the parent process left at standard input.
pub fn at_standard_input(
    listens: IpAddr,
    name: &str,
    stop: Option<&AtomicBool>,
) -> Result<Reached> {
    let standard_input = || {
        let socket = TcpStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        socket.set_nonblocking(true)?;
        Ok::<_, io::Error>(socket)
    };
    let socket = standard_input().context("no agent at standard input")?;
    let channel = Channel::start(Box::new(socket), name, GREETING, stop)?;
    Ok(Reached {
        channel,
        addresses: vec![listens],
        keys: None,
    })
}

/// Enrols this host at the server of an invitation, and trusts that server from now on.
///
/// # Errors
/// One sentence; nothing is changed then.
pub fn accept_invitation(invitation: &Invitation, how: &How<'_>) -> Result<TrustEntry> {
    let store = TrustStore::new(&how.directory);
    store.load()?;
    let at = authority(&invitation.name, invitation.port, DEFAULT_PORT);
    if invitation.expires_unix_s <= unix_seconds() {
        bail!(Refusal::usage(format!(
            "the invitation to {at} has expired (or this host's clock is wrong): request a new one"
        )));
    }
    let identity = Identity::open(&how.directory)?;
    let server = invitation.server;
    let accepts: Arc<Verdict> = Arc::new(move |id| *id == server);
    let (name, port) = (&invitation.name, invitation.port);
    let busy_until = Instant::now() + BUSY_FOR;
    let shaken = shake_hands(name, port, how, &identity, &accepts, ENROL, busy_until)?;
    let (mut tls, _) = shaken.map_err(|failure| match failure {
        Handshake::Key(key) => Refusal::unreachable(format!(
            "another host answers at {at} than the one that invited: its key is {}, the invitation's {}: do not go on before you know why",
            key.short(),
            server.short()
        )),
        Handshake::Broken(why) => Refusal::unreachable(format!("{at}: {why}")),
        Handshake::Busy(again) => Refusal::unreachable(too_busy(&at, again)),
    })?;
    let until = Instant::now() + CONNECT;
    let request = EnrolRequest {
        token: invitation.token,
        name: host_name(),
    };
    let mut answer = [0; ANSWER_LEN];
    let asked = tls
        .write_all(&request.encode(), until)
        .and_then(|()| tls.read_exact(&mut answer, until));
    asked.map_err(|e| {
        Refusal::unreachable(format!(
            "{at} did not answer the invitation ({e}): it may have been used or withdrawn; request a new one"
        ))
    })?;
    let why = match EnrolAnswer::decode(&answer) {
        Some(EnrolAnswer::Welcome { name }) => return trust_server(&store, server, &name, &at),
        Some(EnrolAnswer::Unknown) => {
            "does not know this invitation: it was used, withdrawn, or has expired; request a new one"
        }
        Some(EnrolAnswer::Failed) => {
            "could not keep this host's key: see the output of 'linerate serve' there"
        }
        None => {
            "gave no answer that can be understood: install the same version of linerate on both hosts"
        }
    };
    Err(Refusal::unreachable(format!("{at} {why}")).into())
}

/// Trusts the server that enrolled this host; it lets us measure, which gives it no right here.
fn trust_server(store: &TrustStore, server: NodeId, name: &str, at: &str) -> Result<TrustEntry> {
    store.update(|trust| {
        let known = trust.host(&server).cloned();
        let entry = TrustEntry {
            address: Some(at.to_owned()),
            ..known.unwrap_or_else(|| TrustEntry {
                id: server,
                name: trust.free_name(name, &server),
                address: None,
                rights: BTreeSet::new(),
                limits: KeyLimits::default(),
            })
        };
        trust.put(entry.clone())?;
        Ok(entry)
    })
}

/// The agent that listens at `name`, which is to show a key that is trusted.
pub fn over_tls(name: &str, port: u16, how: &How<'_>) -> Result<Reached> {
    let at = authority(name, port, DEFAULT_PORT);
    let identity = Identity::open(&how.directory)?;
    let us = identity.id();
    let trust = TrustStore::new(&how.directory).load()?;
    // A host that is known by this address or name must show its own key, not just a trusted one.
    let is_it = |entry: &&TrustEntry| is_known_as(entry, name, port);
    let pinned: Vec<NodeId> = match how.only {
        Some(id) => vec![id],
        None => trust.hosts.iter().filter(is_it).map(|e| e.id).collect(),
    };
    let expected: BTreeSet<NodeId> = match pinned.is_empty() {
        true => trust.hosts.iter().map(|entry| entry.id).collect(),
        false => pinned.iter().copied().collect(),
    };
    let accepts: Arc<Verdict> = Arc::new(move |id| expected.contains(id));
    if trust.hosts.is_empty() && how.only.is_none() {
        // Where nothing listens that is said first.
        tcp(name, port, how)?;
        bail!(Refusal::unreachable(format!(
            "{at} is not trusted yet: {}; or {}",
            how.enrolment(),
            how.over_ssh(name)
        )));
    }
    let busy_until = Instant::now() + BUSY_FOR;
    let (channel, address, id) = loop {
        let shaken = shake_hands(name, port, how, &identity, &accepts, SESSION, busy_until)?;
        let (tls, address) = shaken.map_err(|failure| {
        Refusal::unreachable(match (failure, pinned.first()) {
            (Handshake::Key(key), Some(pin)) if how.only.is_some() => format!(
                "another host answers at {at} than the one of the slot: its key is {key}, that one's {pin}"
            ),
            (Handshake::Key(key), Some(pin)) => format!(
                "another host answers at {at} than before: its key is {key}, the trusted one {}: do not go on before you know why; if the host is new, 'linerate trust remove {}' and enrol it again",
                pin.short(),
                pin.short()
            ),
            (Handshake::Key(key), None) if how.coordinates => format!(
                "{at} shows the key {key}, which is not trusted here: {}",
                how.enrolment()
            ),
            (Handshake::Key(key), None) => format!(
                "{at} shows the key {key}, which is not trusted here: compare it with 'linerate trust show' there and run 'linerate trust add {key} --name {name} --address {at} --server'"
            ),
            (Handshake::Broken(why), _) => format!("{at}: {why}"),
            (Handshake::Busy(again), _) => too_busy(&at, again),
        })
    })?;
        let id = tls.peer();
        match Channel::start(Box::new(tls), &at, GREETING, how.stop) {
            Ok(channel) => break (channel, address, id),
            Err(error) => match error.downcast_ref() {
                Some(ChannelEnd::Busy(_, again))
                    if waits(&error.to_string(), *again, how, busy_until)? => {}
                _ => return Err(refusal(error, &at, &us, how.coordinates)),
            },
        }
    };
    Ok(Reached {
        channel,
        addresses: vec![address.ip().to_canonical()],
        keys: Some((identity, id)),
    })
}

/// Whether a trusted host is known by this name, or by this address.
fn is_known_as(entry: &TrustEntry, name: &str, port: u16) -> bool {
    let same = |other: &str| other.eq_ignore_ascii_case(name);
    let at = entry.address.as_deref().and_then(agent_address);
    same(&entry.name) || at.is_some_and(|(name, at)| at == port && same(&name))
}

/// TLS with the server at `name`, and where it is. A server that is busy is tried again when it said so.
fn shake_hands(
    name: &str,
    port: u16,
    how: &How<'_>,
    identity: &Identity,
    accepts: &Arc<Verdict>,
    protocol: &[u8],
    busy_until: Instant,
) -> Result<Result<(Tls, SocketAddr), Handshake>> {
    let at = authority(name, port, DEFAULT_PORT);
    loop {
        let socket = tcp(name, port, how)?;
        let address = socket.peer_addr().with_context(|| at.clone())?;
        let until = Instant::now() + CONNECT;
        let shaken = Tls::client(socket, identity, Arc::clone(accepts), protocol, &at, until);
        match shaken {
            Err(Handshake::Busy(again))
                if waits(&too_busy(&at, again), again, how, busy_until)? => {}
            shaken => return Ok(shaken.map(|tls| (tls, address))),
        }
    }
}

/// Waits until a server that is busy has asked to come again, if that is before this moment.
fn waits(busy: &str, again: Nanos, how: &How<'_>, busy_until: Instant) -> Result<bool> {
    let until = Instant::now() + Duration::from(again);
    if until >= busy_until {
        return Ok(false);
    }
    log::note(&format!("{busy}; waiting"));
    while Instant::now() < until {
        if how.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            bail!(Refusal::interrupted(format!(
                "stopped while waiting: {busy}"
            )));
        }
        std::thread::sleep(STOP_WITHIN);
    }
    Ok(true)
}

fn too_busy(at: &str, again: Nanos) -> String {
    format!(
        "{at} did not take this connection: it has too many that are not authenticated yet, or this one was too slow; \
         try again in {again}"
    )
}

/// A session that ended before its greeting. A server that refuses our key closes at once; the
/// alert that says so is lost if the reset overtakes it.
fn refusal(error: anyhow::Error, at: &str, us: &NodeId, coordinates: bool) -> anyhow::Error {
    if error.is::<Refusal>() {
        return error;
    }
    let said = error.to_string();
    let reset = io::Error::from_raw_os_error(104).to_string();
    let refused = [reset, not_trusted(at, us, false)];
    Refusal::unreachable(match refused.iter().any(|why| said.contains(why)) {
        true => not_trusted(at, us, coordinates),
        false => said,
    })
    .into()
}

/// Connects to the first of a host's addresses that answers.
fn tcp(name: &str, port: u16, how: &How<'_>) -> Result<TcpStream> {
    let at = authority(name, port, DEFAULT_PORT);
    let addresses = resolve(name, port, how.ip_version)?;
    let settings = SocketSettings {
        mss: Some(MSS),
        ..SocketSettings::default()
    };
    let until = Instant::now() + how.within.unwrap_or(CONNECT);
    let mut last = None;
    for (tried, address) in addresses.iter().enumerate() {
        if how.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            return Err(Refusal::interrupted(format!("stopped while connecting to {at}")).into());
        }
        let left = until.saturating_duration_since(Instant::now());
        // A silent first address leaves time for the others.
        let share = left / u32::try_from(addresses.len() - tried).unwrap_or(1).max(1);
        if share.is_zero() {
            break;
        }
        match measure::connect(*address, &settings, &how.placement, share) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = Some((*address, error)),
        }
    }
    let Some((address, error)) = last else {
        return Err(Refusal::unreachable(format!("{at} has no address to try")).into());
    };
    let ip = address.ip().to_string();
    let place = match ip == name {
        true => at,
        false => format!("{at} ({ip})"),
    };
    let over_ssh = how.over_ssh(name);
    Err(Refusal::unreachable(match error {
        // The fault is here.
        error @ (measure::Error::Option { .. } | measure::Error::Range { .. }) => {
            return Err(Refusal::usage(error.to_string()).into());
        }
        measure::Error::Refused(_) => format!(
            "{place}: TCP port {port} answers with a reset (RST): nothing listens there, or a firewall rejects it: run 'linerate serve' there (it listens on loopback only until somebody is trusted or invited), or {over_ssh}"
        ),
        measure::Error::Timeout { .. } => format!(
            "{place} did not answer on TCP port {port}: it is down, or a firewall drops the packets; {over_ssh} if ssh gets through"
        ),
        measure::Error::Rejected { from, .. } => format!(
            "{place}: {from} rejected TCP port {port} (ICMP: unreachable): open it in the firewall there, or {over_ssh} if ssh gets through"
        ),
        measure::Error::Unreachable { source, .. } => format!(
            "{place} cannot be reached: {source}: it is down, or the route is wrong (ip route get {ip})"
        ),
        error => format!("{place} cannot be reached: {error}"),
    })
    .into())
}

/// The addresses of a name.
pub fn resolve(name: &str, port: u16, version: Option<IpVersion>) -> Result<Vec<SocketAddr>> {
    let all = (name, port).to_socket_addrs().map_err(|e| {
        Refusal::unreachable(format!(
            "the name '{name}' has no address ({e}): check its spelling, or give the address"
        ))
    })?;
    let (wanted, called): (fn(&SocketAddr) -> bool, _) = match version {
        Some(IpVersion::V4) => (SocketAddr::is_ipv4, "IPv4 "),
        Some(IpVersion::V6) => (SocketAddr::is_ipv6, "IPv6 "),
        None => (|_| true, ""),
    };
    let some: Vec<SocketAddr> = all.filter(wanted).collect();
    if some.is_empty() {
        bail!(Refusal::unreachable(format!(
            "'{name}' has no {called}address"
        )));
    }
    Ok(some)
}

/// An agent on this machine, started for the session.
pub fn on_this_machine(how: &How<'_>) -> Result<Reached> {
    let listen = match how.ip_version {
        Some(IpVersion::V6) => IpAddr::from(std::net::Ipv6Addr::LOCALHOST),
        _ => IpAddr::from(Ipv4Addr::LOCALHOST),
    };
    // The file that runs, even if a newer one has taken its place.
    let mut command = Command::new("/proc/self/exe");
    command.args(["agent", "--stdio", "--listen", &listen.to_string()]);
    let meaning: Box<Meaning> = Box::new(|status, words| {
        let how = status.map_or_else(|| "does not end".to_owned(), |s| format!("ended: {s}"));
        Some(format!("the agent on this machine {how}{}", quoted(words)))
    });
    let child =
        Pipes::of_command(command, meaning).context("cannot start an agent on this machine")?;
    let name = "the agent on this machine";
    let channel = Channel::start(Box::new(child), name, GREETING, how.stop)?;
    Ok(Reached {
        channel,
        addresses: vec![listen],
        keys: None,
    })
}

/// An agent that ssh starts.
pub fn over_ssh(destination: &str, port: Option<u16>, how: &How<'_>) -> Result<Reached> {
    let name = format!("ssh:{destination}");
    let remote = match how.remote_command {
        Some(command) => command.to_owned(),
        // Any shell sets it so; the user's own linerate comes first.
        None => format!("env PATH=\"$PATH:$HOME/{}\" linerate", install::DIRECTORY),
    };
    let real = ssh_host_name(destination, port, how.ip_version)?;
    let mut command = ssh(destination, port, how.ip_version, &[]);
    // One string: the shell of the remote host splits it, as it does for ssh itself. The data
    // listener is dual-stack; the agent falls back to IPv4 where there is no IPv6.
    command.arg(format!("{remote} agent --stdio --listen ::"));
    let meaning = ssh_meaning(
        destination.to_owned(),
        how.remote_command.map(str::to_owned),
    );
    let child = Pipes::of_command(command, meaning).map_err(no_ssh)?;
    let channel =
        Channel::start(Box::new(child), &name, SSH, how.stop).map_err(|error| {
            match error.is::<Refusal>() {
                true => error,
                false => Refusal::unreachable(error.to_string()).into(),
            }
        })?;
    let addresses = resolve(&real, 0, how.ip_version)
        .map_err(|_| {
            Refusal::unreachable(format!(
                "ssh reaches {destination}, but its host name '{real}' has no address here: data goes past ssh, so give a name or address that this host can reach itself"
            ))
        })?
        .iter()
        .map(SocketAddr::ip)
        .collect();
    Ok(Reached {
        channel,
        addresses,
        keys: None,
    })
}

pub(super) fn ssh(
    destination: &str,
    port: Option<u16>,
    version: Option<IpVersion>,
    options: &[&str],
) -> Command {
    let mut command = Command::new("ssh");
    command.args(options).args(["-T", "-x", "-a"]);
    match version {
        Some(IpVersion::V4) => drop(command.arg("-4")),
        Some(IpVersion::V6) => drop(command.arg("-6")),
        None => {}
    }
    if let Some(port) = port {
        command.args(["-p", &port.to_string()]);
    }
    command.args(["--", destination]);
    command
}

/// What ssh's configuration makes of a name: where data has to go.
fn ssh_host_name(
    destination: &str,
    port: Option<u16>,
    version: Option<IpVersion>,
) -> Result<String> {
    let output = ssh(destination, port, version, &["-G"])
        .output()
        .map_err(no_ssh)?;
    let text = String::from_utf8_lossy(&output.stdout);
    match text.lines().find_map(|line| line.strip_prefix("hostname ")) {
        Some(name) if output.status.success() => Ok(name.trim().to_owned()),
        _ => {
            let said = String::from_utf8_lossy(&output.stderr);
            let last = said.lines().last().unwrap_or_default();
            Err(Refusal::usage(format!(
                "ssh cannot use '{destination}'{}",
                quoted(&wire::control::printable(last, 300))
            ))
            .into())
        }
    }
}

pub(super) fn no_ssh(error: io::Error) -> Refusal {
    Refusal::unreachable(match error.kind() {
        io::ErrorKind::NotFound => "there is no ssh command on this machine: install an ssh client, or run 'linerate serve' on the remote host".to_owned(),
        _ => format!("cannot start ssh: {error}"),
    })
}

/// What the end of ssh means: 255 is its own failure, 127 and 126 the remote shell's word for a
/// command that it does not find or may not run (POSIX).
fn ssh_meaning(destination: String, remote: Option<String>) -> Box<Meaning> {
    Box::new(move |status: Option<ExitStatus>, words: &str| {
        let words = quoted(words);
        let command = remote.as_deref().unwrap_or("linerate");
        Some(match status.map(|s| s.code()) {
            Some(Some(255)) => format!("ssh to {destination} failed{words}"),
            Some(Some(127)) if remote.is_none() => format!(
                "{destination} has no linerate: 'linerate install ssh:{destination}' copies this one there, or name it with --remote-command"
            ),
            Some(Some(127)) => format!(
                "{destination} does not find the command '{command}': name another with --remote-command{words}"
            ),
            Some(Some(126)) => format!(
                "{destination} may not run '{command}': make it executable for that user{words}"
            ),
            Some(Some(2)) => format!(
                "'{command}' on {destination} does not know how to be an agent: install the same version of linerate on both hosts{words}"
            ),
            Some(_) => {
                format!("the agent on {destination} ended in the middle of the session{words}")
            }
            None => format!("ssh to {destination} closed its output but does not end{words}"),
        })
    })
}

pub(super) fn quoted(words: &str) -> String {
    match words {
        "" => String::new(),
        words => format!(" (its message: {words})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::fd::AsFd;

    #[test]
    fn a_silent_host_is_waited_for_as_long_as_the_caller_says() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = silent.local_addr().unwrap();
        // With a full queue, here of one, the kernel answers no further SYN.
        sys::socket::listen(silent.as_fd(), 0).unwrap();
        let short = Duration::from_millis(200);
        let queued: Vec<TcpStream> =
            std::iter::from_fn(|| TcpStream::connect_timeout(&at, short).ok()).collect();
        assert!((1..9).contains(&queued.len()));
        let how = How {
            within: Some(short),
            ..How::default()
        };
        let begun = Instant::now();
        let error = tcp("127.0.0.1", at.port(), &how).unwrap_err();
        assert!(error.to_string().contains("did not answer"), "{error}");
        assert!(begun.elapsed() < CONNECT / 2);
    }

    #[test]
    fn a_host_is_known_by_its_name_or_by_its_name_and_port_together() {
        let entry = |address: Option<&str>| TrustEntry {
            id: NodeId::new([1; 32]),
            name: "db2".to_owned(),
            address: address.map(str::to_owned),
            rights: BTreeSet::new(),
            limits: KeyLimits::default(),
        };
        let known = |address, name, port| is_known_as(&entry(address), name, port);
        assert!(known(None, "db2", 1) && known(None, "DB2", 1) && !known(None, "db3", 1));
        let at = Some("nas.example:99");
        assert!(known(at, "nas.example", 99) && known(at, "NAS.example", 99));
        assert!(!known(at, "nas.example", 98) && !known(at, "other", 99));
        assert!(known(at, "db2", 98));
        assert!(known(Some("nas"), "nas", DEFAULT_PORT));
        assert!(!known(Some("ssh:nas"), "nas", DEFAULT_PORT));
    }

    #[test]
    fn the_end_of_ssh_is_explained_by_its_status() {
        use std::os::unix::process::ExitStatusExt;
        let ended = |code| Some(ExitStatus::from_raw(code << 8));
        let said = |status, remote: Option<&str>| {
            let remote = remote.map(str::to_owned);
            ssh_meaning("db2".to_owned(), remote)(status, "why").unwrap()
        };
        for (status, remote, part) in [
            (ended(255), None, "ssh to db2 failed (its message: why)"),
            (
                ended(127),
                None,
                "db2 has no linerate: 'linerate install ssh:db2'",
            ),
            (ended(127), Some("x"), "db2 does not find the command 'x'"),
            (ended(126), Some("x"), "db2 may not run 'x'"),
            (ended(126), None, "db2 may not run 'linerate'"),
            (
                ended(2),
                None,
                "'linerate' on db2 does not know how to be an agent",
            ),
            (
                ended(1),
                None,
                "the agent on db2 ended in the middle of the session",
            ),
            (Some(ExitStatus::from_raw(9)), None, "ended in the middle"),
            (None, None, "ssh to db2 closed its output but does not end"),
        ] {
            let said = said(status, remote);
            assert!(said.contains(part), "{said}");
        }
        assert_eq!(quoted(""), "");
        let missing = no_ssh(ErrorKind::NotFound.into()).to_string();
        assert!(missing.contains("there is no ssh command"), "{missing}");
        let other = no_ssh(ErrorKind::PermissionDenied.into()).to_string();
        assert!(other.starts_with("cannot start ssh: "), "{other}");
    }

    #[test]
    fn ssh_gets_the_port_the_version_and_the_destination_behind_all_options() {
        let arguments = |port, version| {
            let command = ssh("-db2", port, version, &["-G"]);
            let all = command.get_args().map(|of| of.to_str().unwrap().to_owned());
            all.collect::<Vec<_>>()
        };
        let begin = ["-G", "-T", "-x", "-a"];
        assert_eq!(
            arguments(None, None),
            [&begin[..], &["--", "-db2"]].concat()
        );
        let v4 = arguments(Some(22), Some(IpVersion::V4));
        assert_eq!(v4, [&begin[..], &["-4", "-p", "22", "--", "-db2"]].concat());
        assert!(arguments(None, Some(IpVersion::V6)).contains(&"-6".to_owned()));
    }

    #[test]
    fn a_reset_before_the_greeting_is_a_key_that_is_not_trusted() {
        let us = NodeId::new([1; 32]);
        let of = |error: anyhow::Error| refusal(error, "db2", &us, true).to_string();
        // ECONNRESET.
        let reset = io::Error::from_raw_os_error(104);
        assert!(of(anyhow!("db2: it broke: {reset}")).contains("does not trust this host's key"));
        assert!(of(anyhow!("{reset}")).contains("'linerate trust invite --direct'"));
        let alert = not_trusted("db2", &us, false);
        assert!(of(anyhow!(alert)).contains("'linerate trust invite --direct'"));
        assert_eq!(of(anyhow!("db2: silent")), "db2: silent");
        assert_eq!(
            of(Refusal::usage(reset.to_string()).into()),
            reset.to_string()
        );
    }

    #[test]
    fn a_busy_server_is_waited_for_within_the_time_and_until_a_stop() {
        let later = Instant::now() + Duration::from_secs(3600);
        let how = How::default();
        assert!(waits("busy", Nanos(0), &how, later).unwrap());
        assert!(!waits("busy", Nanos(0), &how, Instant::now()).unwrap());
        let stop = AtomicBool::new(true);
        let stopped = How {
            stop: Some(&stop),
            ..How::default()
        };
        let error = waits("busy", Nanos::from_secs(60), &stopped, later).unwrap_err();
        assert_eq!(error.to_string(), "stopped while waiting: busy");
        let stopped = tcp("127.0.0.1", 9, &stopped).unwrap_err();
        assert!(
            stopped.to_string().starts_with("stopped while connecting"),
            "{stopped}"
        );
    }

    #[test]
    fn addresses_of_a_name_are_those_of_the_version_that_is_insisted_on() {
        let of = |name: &str, version| {
            resolve(name, 7, version)
                .map(|all| all.len())
                .map_err(|error| error.to_string())
        };
        let (v4, v6) = (Some(IpVersion::V4), Some(IpVersion::V6));
        assert_eq!(
            [of("127.0.0.1", None), of("127.0.0.1", v4), of("::1", v6)],
            [Ok(1), Ok(1), Ok(1)]
        );
        assert_eq!(
            of("127.0.0.1", v6),
            Err("'127.0.0.1' has no IPv6 address".to_owned())
        );
        assert_eq!(of("::1", v4), Err("'::1' has no IPv4 address".to_owned()));
    }
}

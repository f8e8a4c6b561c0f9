//! This host's end of a leg: its data connections, and its part of the load.

use super::{Happened, Incoming};
use crate::datagrams;
use crate::leg::{LegEnd, LegResult, can_connect, job, sampled_ones, storage};
use crate::prelude::*;
use crate::trust::Admitted;
use measure::Reconnect;
use measure::storage::Reach;
use model::Placement;
use wire::control::Preamble;

/// A data connection stands by then, or never will.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// Threads that connect at once, and connections that each opens at least: a round trip each would take too long.
const MOST_DIALLERS: u32 = 64;
const EACH_DIALS: u32 = 128;
/// What this end is called in what is shown.
const NEAR: &str = "this host";

/// Starts the thread of this host's side, which plays the order as granted: it connects,
/// waits for the go, and runs.
pub(super) fn local_end(
    order: LegOrder,
    dial: Dial,
    limits: Option<Arc<Admitted>>,
    stop: Arc<AtomicBool>,
    post: mpsc::Sender<Incoming>,
) -> mpsc::Sender<()> {
    let (go, gone) = mpsc::channel();
    let leg = order.leg;
    std::thread::spawn(move || {
        // A controller that is over receives nothing more and needs nothing more.
        let report = |what| drop(post.send(Incoming::Local(leg, what)));
        match play(&order, dial, limits.as_deref(), &gone, &stop, &report) {
            Ok(Some(played)) => report(Happened::Over(Box::new(played))),
            Ok(None) => {}
            Err(error) => report(Happened::Failed(error)),
        }
    });
    go
}

/// This host's side of a leg; `None` if the leg was cancelled before its start.
fn play(
    order: &LegOrder,
    mut dial: Dial,
    limits: Option<&Admitted>,
    go: &mpsc::Receiver<()>,
    stop: &AtomicBool,
    report: &dyn Fn(Happened),
) -> Result<Option<LegResult>> {
    let storage =
        storage(order, Side::Local, &dial.reach).map_err(|e| Refusal::usage(e.to_string()))?;
    can_connect(order.streams).map_err(Refusal::usage)?;
    let mut end = LegEnd::begin(order, dial.port, NEAR, None);
    let mut sockets = vec![dial.first()?];
    sockets.extend(dial.others(order.streams, stop)?);
    let (states, mut warnings) = end.connected(&sockets, &dial.settings)?;
    warnings.extend(sampled_ones(order.streams));
    report(Happened::Connected(states, warnings));
    if !dial.await_start(&sockets, go) {
        return Ok(None);
    }
    let cpus = dial.placement.cpus.clone();
    let token = dial.token;
    let mut job = job(order, Side::Local, &cpus, storage, &token, || {
        let open = move |stream| dial.open(stream).map_err(std::io::Error::other);
        Reconnect::Connect(Arc::new(open))
    });
    if let Some(limits) = limits {
        limits.limit(&mut job);
    }
    let mut on_sample = |sample: Sample| {
        if let Some(limits) = limits {
            limits.account(order.workload.both_directions(sample.bytes));
        }
        report(Happened::Sample(Box::new(sample)));
    };
    let played = end.play(job, sockets, order, &token, stop, &mut on_sample);
    let played = played.map_err(|error| error.downcast().map_or_else(|other| other, refusal))?;
    Ok(Some(played))
}

/// How to open a data connection of one leg.
pub(super) struct Dial {
    /// In order of preference; never empty.
    pub(super) addresses: Vec<IpAddr>,
    pub(super) port: u16,
    pub(super) token: Token,
    pub(super) settings: SocketSettings,
    pub(super) placement: Placement,
    /// Streams of datagrams, not connections.
    pub(super) is_udp: bool,
    /// Where a file of this end is looked for.
    pub(super) reach: Reach,
}

impl Dial {
    /// Waits for the go; false if the leg was cancelled.
    fn await_start(&self, sockets: &[TcpStream], go: &mpsc::Receiver<()>) -> bool {
        if !self.is_udp {
            return go.recv().is_ok();
        }
        loop {
            match go.recv_timeout(datagrams::REPEAT) {
                Ok(()) => return true,
                Err(mpsc::RecvTimeoutError::Disconnected) => return false,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    datagrams::greet_again(sockets, &self.token);
                }
            }
        }
    }

    /// Tries the addresses in turn. The first that answers serves all further connections.
    fn first(&mut self) -> Result<TcpStream> {
        let all = std::mem::take(&mut self.addresses);
        let mut failure = None;
        for address in all {
            self.addresses = vec![address];
            match self.open(0) {
                Ok(socket) => return Ok(socket),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        Err(failure.unwrap_or_else(|| anyhow!("the remote host has no address")))
    }

    /// The connections after the first, in the order of their numbers: one after the other, thousands by several threads.
    fn others(&self, streams: u32, stop: &AtomicBool) -> Result<Vec<TcpStream>> {
        let part = streams.div_ceil(MOST_DIALLERS).max(EACH_DIALS);
        let failed = AtomicBool::new(false);
        let open = |from: u32| -> Result<Vec<TcpStream>> {
            let mut sockets = Vec::new();
            for stream in from..streams.min(from.saturating_add(part)) {
                if failed.load(Ordering::Relaxed) || stop.load(Ordering::Relaxed) {
                    break;
                }
                let socket = self.open(stream);
                failed.fetch_or(socket.is_err(), Ordering::Relaxed);
                sockets.push(socket?);
            }
            Ok(sockets)
        };
        let parts: Result<Vec<_>> = std::thread::scope(|scope| {
            let open = &open;
            let later = (1..streams).step_by(part as usize).skip(1);
            let threads: Vec<_> = later.map(|from| scope.spawn(move || open(from))).collect();
            let later = threads.into_iter().map(|thread| {
                let opened = thread.join();
                opened.unwrap_or_else(|_| bail!("a thread that connects is gone"))
            });
            std::iter::once(open(1)).chain(later).collect()
        });
        let all: Vec<TcpStream> = parts?.into_iter().flatten().collect();
        if all.len() + 1 < streams as usize {
            bail!(Refusal::interrupted(
                "stopped before all data connections stood"
            ));
        }
        Ok(all)
    }

    fn open(&self, stream: u32) -> Result<TcpStream> {
        let address = self.addresses.first();
        let address = address.context("the remote host has no address")?;
        let remote = SocketAddr::new(*address, self.port);
        if self.is_udp {
            return self.open_datagrams(remote, stream);
        }
        let mut socket = measure::connect(remote, &self.settings, &self.placement, CONNECT_WITHIN)
            .map_err(data_refusal)?;
        let token = self.token;
        let preamble = Preamble { token, stream }.encode();
        let sent = socket.write_all(&preamble);
        sent.context("cannot write to a data connection")?;
        Ok(socket)
    }

    fn open_datagrams(&self, remote: SocketAddr, stream: u32) -> Result<TcpStream> {
        let (of, settings) = ((&self.token, stream), &self.settings);
        let open = datagrams::open(remote, of, settings, &self.placement, CONNECT_WITHIN);
        match open.map_err(data_refusal)? {
            Some(socket) => Ok(sys::udp::as_stream(socket)),
            None => bail!(Refusal::unreachable(format!(
                "no datagram arrived from {} port {}, though the agent answers there: a firewall may drop UDP; {OPEN_PORTS}",
                remote.ip(),
                remote.port()
            ))),
        }
    }
}

/// What to do about a data port that is out of reach.
const OPEN_PORTS: &str = "open the data ports in the firewalls between the hosts ('linerate serve --data-ports A-B' there chooses them; datagrams need them for UDP)";

/// Why there is no data connection, by what answered: the agent listens there, and was reached just now.
fn data_refusal(error: measure::Error) -> anyhow::Error {
    use measure::Error::{Refused, Rejected, Timeout};
    let open = OPEN_PORTS;
    Refusal::unreachable(match error {
        Refused(remote) => format!(
            "the data port {remote} answered with a reset (RST), though the agent listens there: a firewall or a NAT on the path rejects it; {open}"
        ),
        Rejected { remote, from } => format!(
            "{from} rejected the data port {remote} (ICMP: unreachable): a firewall there lets nothing through to it; {open}"
        ),
        Timeout { remote, after } => format!(
            "the data port {remote} did not answer within {} s, neither with a reset nor by ICMP: packets to or from it are dropped; {open}",
            after.as_secs_f64()
        ),
        other => return refusal(other),
    })
    .into()
}

/// An option that the kernel does not take is wrong usage; a peer out of reach is not.
fn refusal(error: measure::Error) -> anyhow::Error {
    use measure::Error::{Option, Range, Refused, Rejected, Timeout, Unreachable};
    let sentence = error.to_string();
    match error {
        Option { .. } | Range { .. } => Refusal::usage(sentence).into(),
        Refused(_) | Rejected { .. } | Timeout { .. } | Unreachable { .. } => {
            Refusal::unreachable(sentence).into()
        }
        other => other.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener};

    #[test]
    fn further_connections_end_with_the_first_failure_and_when_stopped() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let dial = Dial {
            addresses: vec![Ipv4Addr::LOCALHOST.into()],
            port,
            token: Token::new([7; 32]),
            settings: SocketSettings::default(),
            placement: Placement::default(),
            is_udp: false,
            reach: Reach::Anywhere,
        };
        let (stop, go_on) = (AtomicBool::new(true), AtomicBool::new(false));
        assert_eq!(dial.others(4, &go_on).unwrap().len(), 3);
        let why = dial.others(4, &stop).unwrap_err().to_string();
        assert_eq!(why, "stopped before all data connections stood");
        listener.set_nonblocking(true).unwrap();
        assert_eq!(
            std::iter::from_fn(|| listener.accept().ok()).count(),
            3,
            "none after the stop"
        );
        drop(listener);
        let why = dial.others(4, &go_on).unwrap_err().to_string();
        assert!(why.contains("answered with a reset"), "{why}");
    }

    #[test]
    fn a_data_port_out_of_reach_is_named_by_what_answered() {
        use measure::Error;
        let remote: SocketAddr = (Ipv4Addr::LOCALHOST, 9).into();
        let gone = || std::io::Error::from(std::io::ErrorKind::HostUnreachable);
        for (error, says, code) in [
            (
                Error::Refused(remote),
                "the data port 127.0.0.1:9 answered with a reset",
                crate::exit::Exit::Unreachable,
            ),
            (
                Error::Rejected {
                    remote,
                    from: Ipv4Addr::new(10, 0, 0, 1).into(),
                },
                "10.0.0.1 rejected the data port",
                crate::exit::Exit::Unreachable,
            ),
            (
                Error::Timeout {
                    remote,
                    after: Duration::from_secs(3),
                },
                "did not answer within 3 s",
                crate::exit::Exit::Unreachable,
            ),
            (
                Error::Unreachable {
                    remote,
                    source: gone(),
                },
                "127.0.0.1:9",
                crate::exit::Exit::Unreachable,
            ),
            (
                Error::System {
                    what: "open a socket".to_owned(),
                    source: gone(),
                },
                "open a socket",
                crate::exit::Exit::Failed,
            ),
        ] {
            let said = data_refusal(error);
            assert!(said.to_string().contains(says), "{said}");
            assert_eq!(crate::exit::exit_of(&said), code, "{said}");
        }
        let settings = SocketSettings {
            mss: Some(1),
            ..SocketSettings::default()
        };
        let placement = Placement::default();
        let range = measure::connect(remote, &settings, &placement, CONNECT_WITHIN).unwrap_err();
        let code = crate::exit::exit_of(&refusal(range));
        assert_eq!(code, crate::exit::Exit::Usage);
        let timeout = Error::Timeout {
            remote,
            after: Duration::ZERO,
        };
        let code = crate::exit::exit_of(&refusal(timeout));
        assert_eq!(code, crate::exit::Exit::Unreachable);
    }

    #[test]
    fn the_first_address_that_answers_serves_all_connections() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let closed = Ipv4Addr::new(127, 9, 9, 9);
        let dial = |addresses: &[Ipv4Addr]| Dial {
            addresses: addresses.iter().map(|of| (*of).into()).collect(),
            port: listener.local_addr().unwrap().port(),
            token: Token::new([7; 32]),
            settings: SocketSettings::default(),
            placement: Placement::default(),
            is_udp: false,
            reach: Reach::Anywhere,
        };
        let mut two = dial(&[closed, Ipv4Addr::LOCALHOST]);
        two.first().unwrap();
        assert_eq!(two.addresses, [IpAddr::from(Ipv4Addr::LOCALHOST)]);
        let (mut connection, _) = listener.accept().unwrap();
        let mut preamble = [0; wire::control::PREAMBLE_LEN];
        std::io::Read::read_exact(&mut connection, &mut preamble).unwrap();
        let said = Preamble::decode(&preamble);
        assert_eq!(said.stream, 0);
        assert!(said.token.matches(&two.token));
        // Of two that fail the first is said.
        let mut none = dial(&[closed, Ipv4Addr::new(127, 9, 9, 8)]);
        let why = none.first().unwrap_err().to_string();
        assert!(why.contains("127.9.9.9"), "{why}");
        let why = dial(&[]).first().unwrap_err().to_string();
        assert_eq!(why, "the remote host has no address");
        // Without a go the leg is cancelled.
        let (go, gone) = mpsc::channel();
        go.send(()).unwrap();
        assert!(two.await_start(&[], &gone));
        drop(go);
        assert!(!two.await_start(&[], &gone));
    }
}

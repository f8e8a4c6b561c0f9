//! The side of the host of the command.

use super::exchange::{LARGEST, MtuExchange};
use super::tcp_transfer::{self, HandshakeMss};
use super::{announced_mss, tcp_header};
use crate::controller::PeerLink;
use crate::prelude::*;
use crate::trust::Admitted;
use anyhow::Error;
use model::mtu::{Climb, MTU_SCHEMA, Method, MssSeen, MtuReport, PathEnd, TcpTruth, Way};
use pmtud::{DirectionFacts, judge};
use probe::{DatagramProbe, unspecified};
use std::net::Shutdown;
use wire::control::{Preamble, ProbeAnswer, ProbeRequest};

/// For an answer of the agent that it only has to look up.
const ANSWER: Duration = Duration::from_secs(10);

/// For an agent's climb on a bad path.
const CLIMB: Duration = Duration::from_secs(55);

/// For the first round trip of datagrams.
const GREETING: Duration = Duration::from_secs(3);

/// For the handshake of a data connection.
const CONNECT: Duration = Duration::from_secs(3);

/// Finds out what gets through between this host and the agent of a link, in both directions; within the limits of a peer
/// that ordered it, if one did.
///
/// # Errors
/// If the agent refuses or is lost, or not even the smallest datagrams get through.
pub fn probe(
    host: &str,
    link: &mut PeerLink,
    admitted: Option<&Admitted>,
    stop: &AtomicBool,
) -> Result<MtuReport> {
    let agent = link.remote_address();
    // Before anything is sent: what the kernel learns from now on is its own story.
    let before = end_of(agent)?;
    let port = LocalPort::open(link)?;
    let (at, token) = (port.at, port.token);
    let rates = [port.rate, admitted.and_then(|of| of.order.socket.pacing)];
    let rate = rates.into_iter().flatten().min();

    // The handshakes come first: a smaller MTU that the kernel learns makes it announce a smaller MSS.
    let mut notes = Vec::new();
    let transfers = Transfers::open(at, token);
    let transfers = transfers.map_err(|error| {
        notes.push(format!(
            "no TCP connection to port {} of the remote host, so neither MSS nor a transfer was tested: {error:#}",
            at.port()
        ));
    });
    let mut exchange = port.exchange()?;
    let rtt = exchange.greet(GREETING, stop)?.ok_or_else(|| {
        Refusal::unreachable(format!(
            "no datagram gets through to UDP port {} of {agent} and back: let it through every firewall on the path ('linerate serve --data-ports' chooses it), or look without an agent: linerate mtu http://HOST/PAGE",
            at.port()
        ))
    })?;
    let mut running = transfers.ok().map(Transfers::run);

    let ceiling = before.device_mtu.min(port.end.device_mtu).min(LARGEST);
    let asked = link.probe(ProbeRequest::Climb {
        ceiling,
        rtt: rtt.into(),
    })?;
    let forward = exchange.climb(ceiling, rtt, rate, stop)?;
    let climbed = link.answer(asked, CLIMB, &mut || {
        exchange.pump();
    })?;
    let ProbeAnswer::Climbed { climb: reverse } = climbed else {
        return Err(astray());
    };
    if let Some(admitted) = admitted {
        admitted.spend(exchange.moved()).map_err(Error::msg)?;
    }
    if stop.load(Ordering::Relaxed) {
        return Err(Refusal::interrupted("stopped before the end of the test").into());
    }
    let mss = running
        .as_ref()
        .map_or(Mss::default(), |running| running.mss);
    let tcp_there = running.as_mut().and_then(Running::carried);
    let number = link.probe(ProbeRequest::End)?;
    let ProbeAnswer::Ended {
        end: remote,
        reverse: tcp_back,
    } = link.answer(number, ANSWER, &mut || {})?
    else {
        return Err(astray());
    };
    let local = observe::path_end_after(&before, agent).unwrap_or(before);
    Ok(MtuReport {
        schema: MTU_SCHEMA,
        host: host.to_owned(),
        method: Method::Agent,
        forward: way(&local, Some(&remote), forward, mss.forward, tcp_there),
        reverse: way(&remote, Some(&local), reverse, mss.reverse, tcp_back),
        local,
        remote: Some(*remote),
        notes,
    })
}

/// A port for probes that the agent has open.
struct LocalPort {
    at: SocketAddr,
    token: Token,
    /// The agent's host, as it saw the path.
    end: PathEnd,
    rate: Option<BitRate>,
}

impl LocalPort {
    fn open(link: &mut PeerLink) -> Result<LocalPort> {
        let agent = link.remote_address();
        let controller = link.local_address();
        let controller =
            controller.with_context(|| format!("this host has no route to {agent}"))?;
        let number = link.probe(ProbeRequest::Begin { controller })?;
        let ProbeAnswer::Begun {
            port,
            token,
            end,
            rate,
        } = link.answer(number, ANSWER, &mut || {})?
        else {
            return Err(astray());
        };
        Ok(LocalPort {
            at: SocketAddr::new(agent, port),
            token: Token::from_hex(&token).context("the agent sent a token that is none")?,
            end,
            rate,
        })
    }

    fn exchange(&self) -> Result<MtuExchange> {
        let socket = DatagramProbe::open(SocketAddr::new(unspecified(self.at.ip()), 0))
            .context("cannot open a UDP socket")?;
        Ok(MtuExchange::new(socket, self.token, Some(self.at), None))
    }
}

/// Asks the agent again and again whether it is there, beside something that may take the link down.
pub struct SocketWatch {
    over: Arc<AtomicBool>,
    thread: JoinHandle<Option<Duration>>,
}

impl SocketWatch {
    /// Begins, once the agent has answered for the first time.
    pub fn begin(link: &mut PeerLink, stop: &AtomicBool) -> Result<SocketWatch> {
        let mut exchange = LocalPort::open(link)?.exchange()?;
        let greeted = exchange.greet(GREETING, stop)?;
        greeted.context("no datagram gets to the remote host and back")?;
        let over = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&over);
        let thread = std::thread::spawn(move || exchange.longest_silence(&seen));
        Ok(SocketWatch { over, thread })
    }

    /// The longest time without an answer; it waits for one more answer. `None` if none comes.
    pub fn end(self) -> Option<Duration> {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().ok().flatten()
    }
}

/// This host's end of a path.
pub fn end_of(peer: IpAddr) -> Result<PathEnd> {
    observe::path_end(peer)
        .map_err(|error| Refusal::unreachable(format!("{peer} cannot be reached: {error}")).into())
}

/// One direction with what follows.
pub fn way(
    sender: &PathEnd,
    receiver: Option<&PathEnd>,
    climb: Climb,
    mss: Option<MssSeen>,
    tcp: Option<TcpTruth>,
) -> Way {
    let verdict = judge(&DirectionFacts {
        sender,
        receiver,
        climb: &climb,
        mss: mss.as_ref(),
        tcp: tcp.as_ref(),
    });
    Way {
        climb,
        mss,
        tcp,
        verdict,
    }
}

fn astray() -> anyhow::Error {
    anyhow!(
        "the agent's answer does not fit the request: install the same version of linerate on both hosts"
    )
}

/// Two data connections: one carries data to the agent, the other from it.
struct Transfers {
    forward: TcpStream,
    reverse: TcpStream,
    mss: Mss,
}

/// The MSS of both handshakes, each as the peer saw it.
#[derive(Clone, Copy, Default)]
struct Mss {
    forward: Option<MssSeen>,
    reverse: Option<MssSeen>,
}

impl Transfers {
    fn open(at: SocketAddr, token: Token) -> Result<Transfers> {
        let connect = |stream: u32| -> Result<TcpStream> {
            let mut socket = TcpStream::connect_timeout(&at, CONNECT)?;
            socket.set_nodelay(true)?;
            sys::socket::set_lost_after(socket.as_fd(), CONNECT)?;
            socket.write_all(&Preamble { token, stream }.encode())?;
            Ok(socket)
        };
        let forward = connect(tcp_transfer::CONTROLLER_SENDS)?;
        let mut reverse = connect(tcp_transfer::AGENT_SENDS)?;
        // In the first segment of its own, before the kernel can have learned anything.
        let info = observe::tcp_info(reverse.as_fd())?;
        let opening = HandshakeMss::read(&mut reverse)?;
        let mss = Mss {
            forward: (opening.syn_mss > 0).then_some(MssSeen {
                announced: announced_mss(&info),
                seen: opening.syn_mss,
                at_least: false,
            }),
            reverse: Some(tcp_transfer::mss_seen(
                opening.announced,
                &info,
                tcp_header(at),
            )),
        };
        Ok(Transfers {
            forward,
            reverse,
            mss,
        })
    }

    /// Both at once, beside the probes: where packets vanish, each waits for its own timeouts.
    fn run(mut self) -> Running {
        let reverse = self.reverse.try_clone().ok();
        std::thread::spawn(move || tcp_transfer::receive(&mut self.reverse));
        let forward = std::thread::spawn(move || tcp_transfer::send(&mut self.forward).ok());
        Running {
            forward: Some(forward),
            reverse,
            mss: self.mss,
        }
    }
}

/// Both transfers under way. Dropping this ends the one from the agent, which may wait for what does not come.
struct Running {
    forward: Option<JoinHandle<Option<TcpTruth>>>,
    reverse: Option<TcpStream>,
    mss: Mss,
}

impl Running {
    /// Waits for the transfer to the agent, which is bounded by its own patience; the agent reports the other one.
    fn carried(&mut self) -> Option<TcpTruth> {
        // One that panicked has nothing to report.
        self.forward.take()?.join().ok().flatten()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(reverse) = &self.reverse {
            // Ends the thread that reads it; one that is over cannot be ended again.
            let _ = reverse.shutdown(Shutdown::Both);
        }
    }
}

//! The agent's side: opens a port under a grant, acknowledges probes, sends its own on request.

use super::announced_mss;
use super::exchange::{LARGEST, MtuExchange};
use super::tcp_transfer::{self, AGENT_SENDS, CONTROLLER_SENDS, HandshakeMss};
use crate::address_challenge::AddressChallenge;
use crate::controller::leg_order;
use crate::prelude::*;
use crate::transport::ChannelSender;
use crate::transport::acceptor::{Acceptor, AcceptorLimits, Arrival, ReadyConn, Slots, WhenFull};
use crate::trust::{Admitted, Denied};
use crate::tuning;
use model::mtu::{PathEnd, TcpTruth};
use probe::{DatagramProbe, unspecified};
use std::net::TcpListener;
use wire::control::{AgentRole, PREAMBLE_LEN, Preamble, ProbeAnswer, ProbeRequest};

/// A port is open for so long at most.
const OPEN_FOR: Duration = Duration::from_secs(60);

/// Bytes that the probes of one port may move: several times what the worst path takes.
const MOST: Bytes = Bytes(64 << 20);

/// Between two looks at what is to be done.
const LOOK: Duration = Duration::from_millis(5);

/// Data connections that are taken.
const CONNECTIONS: usize = 4;

/// What nobody acknowledges is forgotten after this.
const LOST_AFTER: Duration = Duration::from_secs(5);

/// For the first bytes of a data connection.
const PROVE_WITHIN: Duration = Duration::from_secs(2);

/// What one session finds out about the path to its controller.
pub struct Probing {
    peer: Peer,
    sender: ChannelSender<AgentRole>,
    open: Option<OpenProbe>,
}

struct OpenProbe {
    post: mpsc::Sender<(u64, ProbeRequest)>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Probing {
    /// Of a session with `peer`, in which nothing is open yet.
    pub fn new(peer: Peer, sender: ChannelSender<AgentRole>) -> Probing {
        let open = None;
        Probing { peer, sender, open }
    }

    /// Does what is requested, and answers in its time.
    pub fn take(&mut self, number: u64, request: ProbeRequest) {
        let answer = match request {
            ProbeRequest::Begin { controller } => self.begin(controller),
            ProbeRequest::Survey => self.survey(),
            request => {
                let open = self.open.as_ref();
                if open.is_some_and(|open| open.post.send((number, request)).is_ok()) {
                    return;
                }
                Err("no port is open for probes: begin first".to_owned())
            }
        };
        // A session that is over takes no more, and needs nothing more.
        let _ = self.sender.send(ToController::Probed { number, answer });
    }

    fn begin(&mut self, controller: IpAddr) -> Result<ProbeAnswer, String> {
        self.close();
        let admitted = admitted(&self.peer, "MTU probes")?;
        let rate = admitted.order.socket.pacing;
        let port = RemotePort::open(&self.peer, controller, admitted).map_err(|e| sentence(&e))?;
        let answer = ProbeAnswer::Begun {
            port: port.number,
            token: port.token.to_hex(),
            end: port.end.clone(),
            rate,
        };
        let (post, inbox) = mpsc::channel();
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, stopped) = (self.sender.clone(), Arc::clone(&stop));
        let thread = std::thread::spawn(move || port.serve(&inbox, &stopped, &sender, rate));
        self.open = Some(OpenProbe { post, stop, thread });
        Ok(answer)
    }

    /// What sets this host up, as far as it bears on a transfer: for whoever may measure.
    fn survey(&self) -> Result<ProbeAnswer, String> {
        admitted(&self.peer, "survey")?;
        Ok(ProbeAnswer::Surveyed {
            configured: Box::new(advise::relevant(tuning::configured())),
        })
    }

    fn close(&mut self) {
        if let Some(open) = self.open.take() {
            open.stop.store(true, Ordering::Relaxed);
            // One that panicked has closed its sockets.
            let _ = open.thread.join();
        }
    }
}

/// Room for what this peer wants, called so in the log.
///
/// # Errors
/// In a sentence, if there is none.
pub fn admitted(peer: &Peer, what: &str) -> Result<Admitted, String> {
    // Probes as the agent's rules see them.
    let spec = Spec {
        limit: LegLimit::Bytes(MOST),
        ..Spec::default()
    };
    let order = leg_order(&spec, 0, Direction::Down);
    let admitted = peer.admit_as(what, &order);
    admitted.map_err(|denied| match denied {
        Denied::Busy { why, .. } | Denied::Refused(why) => why,
    })
}

impl Drop for Probing {
    fn drop(&mut self) {
        self.close();
    }
}

/// An open port.
struct RemotePort {
    number: u16,
    token: Token,
    controller: IpAddr,
    end: PathEnd,
    exchange: MtuExchange,
    listener: TcpListener,
    /// Where data connections come from, if that is known.
    only: Option<IpAddr>,
    admitted: Admitted,
}

impl RemotePort {
    fn open(peer: &Peer, controller: IpAddr, admitted: Admitted) -> Result<RemotePort> {
        let controller = peer.address.unwrap_or(controller).to_canonical();
        let end = observe::path_end(controller)
            .with_context(|| format!("cannot see the path to {controller}"))?;
        // The same address as that of other data, in the version of IP of this path.
        let fits = !peer.listen.is_unspecified() && peer.listen.is_ipv4() == controller.is_ipv4();
        let local = Some(peer.listen).filter(|_| fits);
        let local = local.unwrap_or(unspecified(controller));
        let bind = |port: u16| -> std::io::Result<(TcpListener, DatagramProbe)> {
            let listener = TcpListener::bind((local, port))?;
            let udp = DatagramProbe::open(SocketAddr::new(local, listener.local_addr()?.port()))?;
            Ok((listener, udp))
        };
        let (listener, udp) = match &peer.data_ports {
            // Another's UDP port may have the number that the kernel gave out for TCP.
            None => (0..16).find_map(|_| bind(0).ok()),
            Some(ports) => ports.clone().find_map(|port| bind(port).ok()),
        }
        .with_context(|| format!("no port of {local} is free for probes over both UDP and TCP"))?;
        sys::probe::save_syn(listener.as_fd()).context("cannot keep SYNs")?;
        listener.set_nonblocking(true)?;
        let token = Token::new(crate::chance::bytes()?);
        Ok(RemotePort {
            number: listener.local_addr()?.port(),
            token,
            controller,
            end,
            exchange: MtuExchange::new(udp, token, None, Some(AddressChallenge::new()?)),
            listener,
            only: peer.address.map(|address| address.to_canonical()),
            admitted,
        })
    }

    fn serve(
        mut self,
        inbox: &mpsc::Receiver<(u64, ProbeRequest)>,
        stop: &AtomicBool,
        sender: &ChannelSender<AgentRole>,
        rate: Option<BitRate>,
    ) {
        let answer = |number, answer| drop(sender.send(ToController::Probed { number, answer }));
        let started = Instant::now();
        let (results, received) = mpsc::channel();
        let limits = AcceptorLimits {
            prefix: PREAMBLE_LEN,
            within: PROVE_WITHIN,
            when_full: WhenFull::Wait,
            only: self.only,
        };
        let slots = Slots::new(CONNECTIONS, CONNECTIONS);
        let mut acceptor = Acceptor::new([&self.listener], limits, slots);
        let mut taken = 0;
        while !stop.load(Ordering::Relaxed) && started.elapsed() < OPEN_FOR {
            self.exchange.wait(LOOK);
            self.exchange.pump();
            // An error of one connection ends nothing.
            for arrival in acceptor.poll(Duration::ZERO).unwrap_or_default() {
                if let Arrival::Ready(conn) = arrival
                    && taken < CONNECTIONS
                {
                    let (token, results) = (self.token, results.clone());
                    taken += 1;
                    std::thread::spawn(move || {
                        // A connection that breaks reports nothing more.
                        let _ = converse(conn, &token, results);
                    });
                }
            }
            let moved = self.exchange.moved();
            if self.admitted.spend(moved).is_err() {
                return;
            }
            match inbox.try_recv() {
                Ok((number, ProbeRequest::Climb { ceiling, rtt })) => {
                    let ceiling = ceiling.min(self.end.device_mtu).min(LARGEST);
                    let rtt = Duration::from(rtt).min(Duration::from_secs(2));
                    let climb = self.exchange.climb(ceiling, rtt, rate, stop);
                    let climbed = climb.map(|climb| ProbeAnswer::Climbed { climb });
                    answer(number, climbed.map_err(|error| sentence(&error)));
                }
                Ok((number, ProbeRequest::End)) => {
                    // Until the last connection that may have a result has sent it.
                    drop(results);
                    let reverse = received.iter().last();
                    let end = observe::path_end_after(&self.end, self.controller);
                    let end = Box::new(end.unwrap_or_else(|_| self.end.clone()));
                    return answer(number, Ok(ProbeAnswer::Ended { end, reverse }));
                }
                Ok((number, ProbeRequest::Begin { .. } | ProbeRequest::Survey)) => {
                    answer(number, Err("a port is open already".to_owned()));
                }
                Err(mpsc::TryRecvError::Empty) => {}
                Err(mpsc::TryRecvError::Disconnected) => return,
            }
        }
    }
}

/// Plays the peer of a data connection.
fn converse(conn: ReadyConn, token: &Token, results: mpsc::Sender<TcpTruth>) -> Result<()> {
    let mut stream = conn.stream;
    stream.set_read_timeout(Some(PROVE_WITHIN))?;
    stream.set_nodelay(true)?;
    sys::socket::set_lost_after(stream.as_fd(), LOST_AFTER)?;
    let preamble = conn.prefix.first_chunk().map(Preamble::decode);
    let Some(preamble) = preamble.filter(|preamble| preamble.token.matches(token)) else {
        return Ok(());
    };
    match preamble.stream {
        CONTROLLER_SENDS => {
            drop(results);
            tcp_transfer::receive(&mut stream);
        }
        AGENT_SENDS => {
            let syn = sys::probe::saved_syn(stream.as_fd()).unwrap_or_default();
            let opening = HandshakeMss {
                syn_mss: pmtud::mss_of_packet(&syn).map_or(0, u32::from),
                announced: announced_mss(&observe::tcp_info(stream.as_fd())?),
            };
            stream.write_all(&opening.encode())?;
            // The controller that reads no more has no use for it.
            let _ = results.send(tcp_transfer::send(&mut stream)?);
        }
        _ => {}
    }
    Ok(())
}

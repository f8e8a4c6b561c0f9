//! The agent's data port: open for one leg, to the peer that holds its token.

use crate::datagrams;
use crate::prelude::*;
use crate::transport::acceptor::{Acceptor, AcceptorLimits, Arrival, Slots, WhenFull, is_passing};
use measure::accept_options;
use std::io;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::BorrowedFd;
use wire::control::{PREAMBLE_LEN, Preamble};

/// A data connection must have proved itself by then.
const PROVE_WITHIN: Duration = Duration::from_secs(2);
/// Connections that may be proving themselves at once; more wait in the listener's queue.
const MAX_PENDING: usize = 160;
/// Between two looks at the wish to stop.
const LOOK: Duration = Duration::from_millis(50);

/// One leg's right to data connections, or to streams of datagrams.
pub struct Grant {
    port: DataPort,
    token: Token,
    peer: Option<IpAddr>,
    order: LegOrder,
}

enum DataPort {
    Tcp(TcpListener),
    Udp(UdpSocket),
}

impl Grant {
    /// Opens the data port with the options of the leg, a free one (of the peer's, if they are bounded).
    /// Connections and streams are taken from the peer's address alone, if it is known.
    pub fn open(order: &LegOrder, peer: &Peer) -> Result<Grant> {
        let listen = |port| {
            if order.workload.is_udp() {
                return datagrams::open_port(peer, port, order).map(DataPort::Udp);
            }
            let address = SocketAddr::new(peer.listen, port);
            measure::listen(address, &order.socket, &order.placement).map(DataPort::Tcp)
        };
        let port = match peer.data_ports.clone() {
            None => listen(0)?,
            Some(ports) => {
                let (first, last) = (*ports.start(), *ports.end());
                let mut tried = ports.map(listen);
                let free = tried.find(|tried| !tried.as_ref().is_err_and(is_taken));
                free.with_context(|| {
                    format!("data ports {first}-{last} are all in use; widen --data-ports")
                })??
            }
        };
        if let DataPort::Tcp(listener) = &port {
            listener
                .set_nonblocking(true)
                .context("cannot make the data listener non-blocking")?;
        }
        Ok(Grant {
            port,
            token: Token::new(crate::chance::bytes()?),
            peer: peer.address.map(|ip| ip.to_canonical()),
            order: order.clone(),
        })
    }

    /// Where to connect.
    pub fn port(&self) -> Result<u16> {
        let address = match &self.port {
            DataPort::Tcp(listener) => listener.local_addr(),
            DataPort::Udp(socket) => socket.local_addr(),
        };
        Ok(address.context("the data port has no address")?.port())
    }

    /// What to say first.
    pub fn token(&self) -> &Token {
        &self.token
    }

    /// Accepts connections until each stream has one, in the order of their numbers. A connection without the token,
    /// or one that sends nothing, is closed and delays no other.
    pub fn collect(&self, until: Instant, stop: &AtomicBool) -> Result<Vec<TcpStream>> {
        let listener = match &self.port {
            DataPort::Tcp(listener) => listener,
            DataPort::Udp(port) => {
                let (order, token) = (&self.order, &self.token);
                return datagrams::collect(port, order, token, self.peer, until, stop);
            }
        };
        let mut streams: Vec<Option<TcpStream>> = (0..self.order.streams).map(|_| None).collect();
        let limits = AcceptorLimits {
            prefix: PREAMBLE_LEN,
            within: PROVE_WITHIN,
            when_full: WhenFull::Wait,
            only: self.peer,
        };
        // The peer is known: all may be of one source.
        let slots = Slots::new(MAX_PENDING, MAX_PENDING);
        let mut acceptor = Acceptor::new([listener], limits, slots);
        let mut came = 0;
        while came < streams.len() {
            if stop.load(Ordering::Relaxed) {
                bail!("the session ended before the data connections came");
            }
            if Instant::now() >= until {
                bail!(
                    "{came} of {} data connections came in time; is the data port open in every firewall on the path?",
                    streams.len()
                );
            }
            for arrival in acceptor.poll(LOOK).context("waiting for connections")? {
                let conn = match arrival {
                    Arrival::Ready(conn) => conn,
                    Arrival::Refused(..) => continue,
                    Arrival::Failed(error) => {
                        return Err(error).context("cannot accept a data connection");
                    }
                };
                let Some(preamble) = conn.prefix.first_chunk().map(Preamble::decode) else {
                    continue;
                };
                let stream = usize::try_from(preamble.stream).unwrap_or(usize::MAX);
                if let (true, Some(slot @ None)) =
                    (preamble.token.matches(&self.token), streams.get_mut(stream))
                {
                    accept_options(&conn.stream, &self.order.socket)?;
                    *slot = Some(conn.stream);
                    came += 1;
                }
            }
        }
        Ok(streams.into_iter().flatten().collect())
    }
}

/// Requests that each want a connection of their own come here while the leg runs.
impl measure::DataAcceptor for Grant {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.port {
            DataPort::Tcp(listener) => listener.as_fd(),
            DataPort::Udp(socket) => socket.as_fd(),
        }
    }

    fn accept(&self) -> io::Result<Option<TcpStream>> {
        let DataPort::Tcp(listener) = &self.port else {
            return Ok(None);
        };
        let (mut stream, from) = match listener.accept() {
            Ok(accepted) => accepted,
            Err(error) if is_passing(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let from = from.ip().to_canonical();
        if self.peer.is_some_and(|peer| peer != from) {
            return Ok(None);
        }
        accept_options(&stream, &self.order.socket).map_err(io::Error::other)?;
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(PROVE_WITHIN))?;
        let mut bytes = [0; PREAMBLE_LEN];
        if stream.read_exact(&mut bytes).is_err()
            || !Preamble::decode(&bytes).token.matches(&self.token)
        {
            return Ok(None);
        }
        stream.set_read_timeout(None)?;
        Ok(Some(stream))
    }
}

fn is_taken(error: &measure::Error) -> bool {
    use measure::Error::{Option, System};
    matches!(error, Option { source, .. } | System { source, .. } if source.kind() == ErrorKind::AddrInUse)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::Ipv4Addr;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn order(streams: u32) -> LegOrder {
        LegOrder {
            leg: 0,
            agent_sends: false,
            workload: model::Workload::Bulk(model::Bulk::default()),
            streams,
            limit: model::LegLimit::Bytes(model::Bytes(1)),
            interval: model::Nanos::from_secs(1),
            outage: model::Nanos(0),
            trace: false,
            socket: model::SocketSettings::default(),
            placement: model::Placement::default(),
        }
    }

    fn grant(streams: u32, address: Option<IpAddr>) -> Grant {
        let peer = Peer {
            address,
            ..Peer::at_a_pipe(HERE, None)
        };
        Grant::open(&order(streams), &peer).unwrap()
    }

    fn knock(grant: &Grant, bytes: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect((HERE, grant.port().unwrap())).unwrap();
        stream.write_all(bytes).unwrap();
        stream
    }

    fn proof(grant: &Grant, stream: u32) -> [u8; PREAMBLE_LEN] {
        Preamble {
            token: *grant.token(),
            stream,
        }
        .encode()
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(10)
    }

    #[test]
    fn unauthenticated_and_silent_peers_block_nobody() {
        let grant = grant(2, Some(HERE));
        let silent = TcpStream::connect((HERE, grant.port().unwrap())).unwrap();
        let unauthenticated = knock(&grant, &[7; PREAMBLE_LEN]);
        let beyond = knock(&grant, &proof(&grant, 2));
        // The second comes in two pieces, the first comes twice.
        let (head, tail) = (proof(&grant, 1), proof(&grant, 1));
        let mut second = knock(&grant, &head[..10]);
        let first = knock(&grant, &proof(&grant, 0));
        let again = knock(&grant, &proof(&grant, 0));
        second.write_all(&tail[10..]).unwrap();

        let streams = grant.collect(soon(), &AtomicBool::new(false)).unwrap();
        let peers: Vec<_> = streams.iter().map(|s| s.peer_addr().unwrap()).collect();
        let first_ones = [first.local_addr().unwrap(), again.local_addr().unwrap()];
        assert!(first_ones.contains(&peers[0]));
        assert_eq!(peers[1], second.local_addr().unwrap());
        drop((silent, unauthenticated, beyond));
    }

    #[test]
    fn a_connection_that_comes_during_the_leg_has_its_token_or_is_none() {
        let grant = grant(1, Some(HERE));
        for (bytes, taken) in [
            (proof(&grant, 0), true),
            ([7; PREAMBLE_LEN], false),
            (proof(&grant, 1), true),
        ] {
            let stream = knock(&grant, &bytes);
            let accepted = measure::DataAcceptor::accept(&grant).unwrap();
            let from = accepted.map(|accepted| accepted.peer_addr().unwrap());
            assert_eq!(from, taken.then(|| stream.local_addr().unwrap()));
        }
        let short = knock(&grant, &proof(&grant, 0)[1..]);
        short.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(measure::DataAcceptor::accept(&grant).unwrap().is_none());
    }

    #[test]
    fn another_address_is_not_let_in() {
        let elsewhere = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
        let grant = grant(1, Some(elsewhere));
        let _knock = knock(&grant, &proof(&grant, 0));
        let until = Instant::now() + Duration::from_millis(300);
        let error = grant.collect(until, &AtomicBool::new(false)).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("0 of 1 data connections came"),
            "{error}"
        );
    }

    #[test]
    fn a_leg_may_want_a_port_of_a_range() {
        let holder = TcpListener::bind((HERE, 0)).unwrap();
        let taken = holder.local_addr().unwrap().port();
        let error = Grant::open(&order(1), &Peer::at_a_pipe(HERE, Some(taken..=taken)))
            .err()
            .expect("the only port is in use");
        assert!(error.to_string().contains("are all in use"), "{error:#}");
    }
}

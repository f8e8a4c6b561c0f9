//! Streams of datagrams between linerate hosts: how both ends open them, and what their datagrams carry.

use crate::address_challenge::AddressChallenge;
use crate::prelude::*;
use measure::{DatagramFormat, DatagramRead};
use model::Placement;
use std::net::UdpSocket;
use wire::control::datagram::{
    CHALLENGE_LEN, DatagramHeader, GREETING_LEN, GreetingKind, StreamGreeting,
};

/// A greeting that nobody answers is repeated after this.
pub const REPEAT: Duration = Duration::from_millis(100);

/// What is set on the sockets of datagrams: most options are of TCP alone, and datagrams are paced by their sender.
pub fn settings(asked: &SocketSettings) -> SocketSettings {
    SocketSettings {
        send_buffer: asked.send_buffer,
        receive_buffer: asked.receive_buffer,
        dscp: asked.dscp,
        ip_version: asked.ip_version,
        ..SocketSettings::default()
    }
}

// ---- the agent ----

/// Waits until each stream of an order has an address that has proved itself, and returns a socket connected to each,
/// in the order of their numbers. Nothing but a challenge is sent to an address before, and that only as an answer of
/// the same size to a host that has the token, from the address `only` if it is known.
///
/// # Errors
/// What is missing at `until`, or after a `stop`.
pub fn collect(
    port: &UdpSocket,
    order: &LegOrder,
    token: &Token,
    only: Option<IpAddr>,
    until: Instant,
    stop: &AtomicBool,
) -> Result<Vec<TcpStream>> {
    let mut streams: Vec<Option<UdpSocket>> = (0..order.streams).map(|_| None).collect();
    let challenges = AddressChallenge::new()?;
    let local = port.local_addr()?;
    port.set_read_timeout(Some(REPEAT / 2))?;
    let (mut room, mut came) = ([0; GREETING_LEN + 1], 0);
    while came < order.streams {
        if stop.load(Ordering::Relaxed) {
            bail!("the session ended before the streams of datagrams came");
        }
        if Instant::now() >= until {
            bail!(
                "{came} of {} streams of datagrams came in time to UDP port {}: a firewall on the path may drop UDP; open the data ports there for UDP as for TCP",
                order.streams,
                local.port()
            );
        }
        // Errors are of single datagrams (an ICMP answer), or the tick of the timeout.
        let Ok((length, from)) = port.recv_from(&mut room) else {
            continue;
        };
        if only.is_some_and(|peer| peer != from.ip().to_canonical()) {
            continue;
        }
        let Some(greeting) = StreamGreeting::decode(&room[..length], token) else {
            continue;
        };
        let number = usize::try_from(greeting.stream).unwrap_or(usize::MAX);
        let Some(stream @ None) = streams.get_mut(number) else {
            continue;
        };
        let challenge = challenges.of(from, greeting.stream);
        match greeting.kind {
            GreetingKind::Hello => {
                let answer = StreamGreeting {
                    kind: GreetingKind::Challenge,
                    challenge,
                    ..greeting
                };
                // One that does not leave is as good as lost.
                let _ = port.send_to(&answer.encode(token), from);
            }
            GreetingKind::Echo if greeting.challenge == challenge => {
                let bind = Placement {
                    bind_device: order.placement.bind_device.clone(),
                    ..Placement::default()
                };
                let socket = measure::bind_datagrams(local, &settings(&order.socket), &bind)?;
                socket.connect(from)?;
                *stream = Some(socket);
                came += 1;
            }
            GreetingKind::Echo | GreetingKind::Challenge => {}
        }
    }
    let open = streams.into_iter().flatten();
    Ok(open.map(sys::udp::as_stream).collect())
}

/// Opens the port to which an agent lets streams of datagrams come.
pub fn open_port(
    peer: &Peer,
    port: u16,
    order: &LegOrder,
) -> std::result::Result<UdpSocket, measure::Error> {
    let local = SocketAddr::new(peer.listen, port);
    measure::listen_datagrams(local, &settings(&order.socket), &order.placement)
}

// ---- the controller ----

/// Opens the stream of this number: greets the agent's port until it answers; `None` if no answer came in time.
///
/// # Errors
/// What the kernel says of the socket: `ECONNREFUSED` where something answered that the port is closed.
pub fn open(
    remote: SocketAddr,
    (token, stream): (&Token, u32),
    asked: &SocketSettings,
    placement: &Placement,
    within: Duration,
) -> std::result::Result<Option<UdpSocket>, measure::Error> {
    let socket = measure::connect_datagrams(remote, &settings(asked), placement)?;
    let failed = |source| measure::Error::System {
        what: "greet the data port over UDP".to_owned(),
        source,
    };
    socket.set_read_timeout(Some(REPEAT)).map_err(failed)?;
    let until = Instant::now() + within;
    let mut refused = None;
    while Instant::now() < until {
        match greet(&socket, token, stream) {
            Ok(true) => return Ok(Some(socket)),
            Ok(false) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                refused = Some(error);
                std::thread::sleep(REPEAT);
            }
            Err(error) => return Err(failed(error)),
        }
    }
    match refused {
        Some(_) => Err(measure::Error::Refused(remote)),
        None => Ok(None),
    }
}

/// Greets once, and echoes the challenge if one comes in time: whether one did.
fn greet(socket: &UdpSocket, token: &Token, stream: u32) -> std::io::Result<bool> {
    let hello = StreamGreeting {
        kind: GreetingKind::Hello,
        stream,
        challenge: [0; CHALLENGE_LEN],
    };
    socket.send(&hello.encode(token))?;
    let mut room = [0; GREETING_LEN + 1];
    let asked = Instant::now();
    while asked.elapsed() < REPEAT {
        let length = match socket.recv(&mut room) {
            Ok(length) => length,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        let challenge = StreamGreeting::decode(&room[..length], token)
            .filter(|answer| answer.kind == GreetingKind::Challenge && answer.stream == stream);
        if let Some(challenge) = challenge {
            let echo = StreamGreeting {
                kind: GreetingKind::Echo,
                ..challenge
            };
            socket.send(&echo.encode(token))?;
            return Ok(true);
        }
    }
    Ok(false)
}

/// Greets again on all streams, without waiting long: an echo may have been lost. An agent that has a stream does not
/// answer.
pub fn greet_again(streams: &[TcpStream], token: &Token) {
    for (number, stream) in (0..).zip(streams) {
        let Ok(socket) = stream.as_fd().try_clone_to_owned() else {
            continue;
        };
        let socket = UdpSocket::from(socket);
        let wait = REPEAT / u32::try_from(streams.len()).unwrap_or(u32::MAX).max(1);
        let wait = wait.max(Duration::from_millis(1));
        // What goes wrong here shows at the agent, which waits for the stream.
        let _ = socket.set_read_timeout(Some(wait));
        let _ = greet(&socket, token, number);
    }
}

// ---- the load ----

/// Datagrams of a leg.
pub struct LegDatagrams(pub Token);

impl DatagramFormat for LegDatagrams {
    fn least(&self) -> usize {
        DatagramHeader::LEN
    }

    fn stamp(&self, datagram: &mut [u8], number: u64, sent: Nanos) {
        let header = DatagramHeader {
            number,
            is_end: false,
            sent,
        };
        header.encode(datagram, &self.0);
    }

    fn end(&self, number: u64, sent: Nanos) -> Option<Vec<u8>> {
        let mut datagram = vec![0; DatagramHeader::LEN];
        let header = DatagramHeader {
            number,
            is_end: true,
            sent,
        };
        header.encode(&mut datagram, &self.0);
        Some(datagram)
    }

    fn read(&self, datagram: &[u8]) -> DatagramRead {
        match DatagramHeader::decode(datagram, &self.0) {
            None => DatagramRead::Other,
            Some(header) if header.is_end => DatagramRead::End(Some(header.number)),
            Some(DatagramHeader { number, sent, .. }) => DatagramRead::Payload { number, sent },
        }
    }
}

/// The order of datagrams with a rate that is not above the pacing that was granted.
pub fn paced(order: &LegOrder) -> Workload {
    let mut workload = order.workload.clone();
    if let (Workload::Udp(udp), Some(pacing)) = (&mut workload, order.socket.pacing) {
        udp.rate = match udp.rate.0 {
            0 => pacing,
            _ => udp.rate.min(pacing),
        };
    }
    workload
}

/// What of a receiver's report cannot be of so many datagrams sent, if anything.
pub fn impossible(received: &EndRecord, sent: u64) -> Option<String> {
    let counted = received.datagrams.unwrap_or_default();
    let arrived = received.arrivals.as_ref();
    let most = [
        counted.packets,
        counted.lost,
        counted.out_of_order,
        arrived.map_or(0, |arrived| arrived.received),
        arrived.map_or(0, |arrived| arrived.dropped),
        arrived.map_or(0, |arrived| arrived.longest_loss),
    ];
    let most = most.into_iter().max().unwrap_or(0);
    (most > sent).then(|| format!("{most} datagrams, this kernel sent {sent}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{BitRate, Bytes, LegLimit, Udp};
    use std::net::Ipv4Addr;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    const TOKEN: Token = Token::new([7; 32]);

    fn order(streams: u32) -> LegOrder {
        LegOrder {
            leg: 0,
            agent_sends: true,
            workload: Workload::Udp(Udp {
                rate: BitRate(1_000_000),
                datagram_size: Bytes(1000),
            }),
            streams,
            limit: LegLimit::Time(Nanos::from_secs(1)),
            interval: Nanos::from_secs(1),
            outage: Nanos(0),
            trace: false,
            socket: SocketSettings::default(),
            placement: Placement::default(),
        }
    }

    fn port(order: &LegOrder) -> (UdpSocket, SocketAddr) {
        let port = open_port(&Peer::at_a_pipe(HERE, None), 0, order).unwrap();
        let at = port.local_addr().unwrap();
        (port, at)
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(10)
    }

    fn dial(at: SocketAddr, token: &Token, stream: u32) -> Option<UdpSocket> {
        let (asked, here) = (SocketSettings::default(), Placement::default());
        open(at, (token, stream), &asked, &here, Duration::from_secs(10)).unwrap()
    }

    #[test]
    fn streams_open_in_any_order_and_carry_both_ways() {
        let order = order(2);
        let (port, at) = port(&order);
        std::thread::scope(|scope| {
            let agent = scope.spawn(|| {
                let stop = AtomicBool::new(false);
                collect(&port, &order, &TOKEN, Some(HERE), soon(), &stop)
            });
            let second = dial(at, &TOKEN, 1).unwrap();
            let first = dial(at, &TOKEN, 0).unwrap();
            let local: Vec<TcpStream> = [first, second].map(sys::udp::as_stream).into();
            greet_again(&local, &TOKEN);
            let remote = agent.join().unwrap().unwrap();
            for (ours, theirs) in local.iter().zip(&remote) {
                assert_eq!(theirs.peer_addr().unwrap(), ours.local_addr().unwrap());
                assert_eq!(ours.peer_addr().unwrap(), at);
            }
        });
    }

    /// What an agent answers is a challenge of the same size, to who has the token; whose address that is, it does not
    /// believe before the challenge comes back.
    #[test]
    fn nothing_is_sent_to_who_has_no_token_or_does_not_return_the_challenge() {
        let order = order(1);
        let (port, at) = port(&order);
        let quiet = |socket: &UdpSocket| {
            let mut room = [0; 2000];
            socket.set_nonblocking(true).unwrap();
            assert!(socket.recv(&mut room).is_err(), "something was sent");
        };
        let hello = StreamGreeting {
            kind: GreetingKind::Hello,
            stream: 0,
            challenge: [0; CHALLENGE_LEN],
        };
        let peers: Vec<UdpSocket> = (0..5)
            .map(|_| UdpSocket::bind((HERE, 0)).unwrap())
            .collect();
        peers.iter().for_each(|peer| peer.connect(at).unwrap());
        let [without, beyond, guessing, spoofed, own] = &peers[..] else {
            unreachable!("five were made")
        };
        without.send(&hello.encode(&Token::new([8; 32]))).unwrap();
        beyond
            .send(&StreamGreeting { stream: 1, ..hello }.encode(&TOKEN))
            .unwrap();
        let echo = |challenge| StreamGreeting {
            kind: GreetingKind::Echo,
            challenge,
            ..hello
        };
        guessing
            .send(&echo([1; CHALLENGE_LEN]).encode(&TOKEN))
            .unwrap();
        own.send(&hello.encode(&TOKEN)).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let agent = scope.spawn(|| collect(&port, &order, &TOKEN, None, soon(), &stop));
            let mut room = [0; 2000];
            own.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            let length = own.recv(&mut room).unwrap();
            assert_eq!(length, GREETING_LEN, "an answer larger than its request");
            let answer = StreamGreeting::decode(&room[..length], &TOKEN).unwrap();
            assert_eq!(answer.kind, GreetingKind::Challenge);
            // The challenge of one address opens no stream for another.
            spoofed
                .send(&echo(answer.challenge).encode(&TOKEN))
                .unwrap();
            own.send(&echo(answer.challenge).encode(&TOKEN)).unwrap();
            let streams = agent.join().unwrap().unwrap();
            assert_eq!(streams[0].peer_addr().unwrap(), own.local_addr().unwrap());
        });
        [without, beyond, guessing, spoofed]
            .into_iter()
            .for_each(quiet);
    }

    #[test]
    fn another_address_is_not_let_in_and_the_port_is_named() {
        let order = order(1);
        let (port, at) = port(&order);
        let elsewhere = Some(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)));
        let greeting = UdpSocket::bind((HERE, 0)).unwrap();
        greeting.connect(at).unwrap();
        greeting.set_read_timeout(Some(REPEAT)).unwrap();
        assert!(!greet(&greeting, &TOKEN, 0).is_ok_and(|came| came));
        let stop = AtomicBool::new(false);
        let until = Instant::now() + Duration::from_millis(300);
        let error = collect(&port, &order, &TOKEN, elsewhere, until, &stop).unwrap_err();
        let said = error.to_string();
        assert!(said.contains("0 of 1 streams"), "{said}");
        assert!(said.contains(&format!("UDP port {}", at.port())), "{said}");
    }

    #[test]
    fn a_closed_port_differs_from_a_silent_one() {
        let (asked, here) = (SocketSettings::default(), Placement::default());
        let silent = UdpSocket::bind((HERE, 0)).unwrap();
        let at = silent.local_addr().unwrap();
        let short = Duration::from_millis(250);
        let opened = open(at, (&TOKEN, 0), &asked, &here, short).unwrap();
        assert!(opened.is_none());
        drop(silent);
        let refused = open(at, (&TOKEN, 0), &asked, &here, short);
        assert!(matches!(refused, Err(measure::Error::Refused(to)) if to == at));
    }

    #[test]
    fn the_granted_pacing_bounds_the_rate() {
        let mut order = order(1);
        for (rate, pacing, paced_at) in [(0, 5, 5), (9, 5, 5), (3, 5, 3)] {
            order.workload = Workload::Udp(Udp {
                rate: BitRate(rate),
                datagram_size: Bytes(1000),
            });
            order.socket.pacing = Some(BitRate(pacing));
            assert_eq!(paced(&order).rate(), Some(BitRate(paced_at)));
        }
    }

    #[test]
    fn only_buffers_the_code_point_and_the_version_are_set_on_sockets_of_datagrams() {
        let all = SocketSettings {
            send_buffer: Some(Bytes(1)),
            receive_buffer: Some(Bytes(2)),
            mss: Some(3),
            congestion: Some("reno".to_owned()),
            nodelay: Some(true),
            pacing: Some(BitRate(4)),
            dscp: Some(5),
            notsent_lowat: Some(Bytes(6)),
            ip_version: Some(model::IpVersion::V6),
        };
        let expected = SocketSettings {
            send_buffer: Some(Bytes(1)),
            receive_buffer: Some(Bytes(2)),
            dscp: Some(5),
            ip_version: Some(model::IpVersion::V6),
            ..SocketSettings::default()
        };
        assert_eq!(settings(&all), expected);
    }

    #[test]
    fn a_rate_stays_without_pacing_and_other_workloads_stay_as_they_are() {
        let mut order = order(1);
        assert_eq!(paced(&order), order.workload);
        order.socket.pacing = Some(BitRate(5));
        order.workload = Workload::Bulk(model::Bulk::default());
        assert_eq!(paced(&order), order.workload);
    }

    #[test]
    fn datagrams_of_a_leg_are_read_by_who_has_its_token() {
        let format = LegDatagrams(TOKEN);
        assert_eq!(format.least(), DatagramHeader::LEN);
        let mut datagram = vec![0; DatagramHeader::LEN + 10];
        format.stamp(&mut datagram, 7, Nanos(8));
        let (number, sent) = (7, Nanos(8));
        assert_eq!(
            format.read(&datagram),
            DatagramRead::Payload { number, sent }
        );
        let end = format.end(9, Nanos(10)).unwrap();
        assert_eq!(end.len(), DatagramHeader::LEN);
        assert_eq!(format.read(&end), DatagramRead::End(Some(9)));
        let other = LegDatagrams(Token::new([8; 32]));
        assert_eq!(other.read(&datagram), DatagramRead::Other);
        assert_eq!(format.read(&datagram[..4]), DatagramRead::Other);
    }

    #[test]
    fn no_count_of_a_receiver_is_above_what_was_sent() {
        let counted = |packets, lost, out_of_order| EndRecord {
            datagrams: Some(model::Datagrams {
                packets,
                lost,
                out_of_order,
                jitter: Nanos(0),
            }),
            ..EndRecord::default()
        };
        let found = |received, dropped, longest_loss| EndRecord {
            arrivals: Some(model::Arrivals {
                received,
                dropped,
                longest_loss,
                ..model::Arrivals::default()
            }),
            ..EndRecord::default()
        };
        assert_eq!(impossible(&EndRecord::default(), 0), None);
        for at_bound in [counted(10, 10, 10), found(10, 10, 10)] {
            assert_eq!(impossible(&at_bound, 10), None);
        }
        for above in [
            counted(11, 0, 0),
            counted(0, 11, 0),
            counted(0, 0, 11),
            found(11, 0, 0),
            found(0, 11, 0),
            found(0, 0, 11),
        ] {
            let why = impossible(&above, 10).unwrap();
            assert_eq!(why, "11 datagrams, this kernel sent 10");
        }
    }

    #[test]
    fn streams_are_not_waited_for_after_a_stop() {
        let order = order(1);
        let (port, _) = port(&order);
        let stop = AtomicBool::new(true);
        let error = collect(&port, &order, &TOKEN, None, soon(), &stop).unwrap_err();
        assert!(error.to_string().contains("the session ended before"));
        let none = LegOrder {
            streams: 0,
            ..order
        };
        let over = Instant::now();
        assert_eq!(
            collect(&port, &none, &TOKEN, None, over, &stop)
                .unwrap()
                .len(),
            0
        );
    }
}

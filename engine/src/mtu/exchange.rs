//! One end of an exchange of probes over UDP.

use super::trace_hops;
use crate::address_challenge::AddressChallenge;
use crate::prelude::*;
use model::mtu::{Climb, TooBig};
use pmtud::{Probe, ProbeLadder, Rule};
use probe::{Ask, DatagramProbe, Said, header};
use wire::control::probe::{Datagram, LEAST, MOST_SEEN};

/// The largest IP packet.
pub const LARGEST: u32 = 65_535;

/// Passes every path that is worth the name, and has room for a probe.
const FLOOR: u32 = 128;

/// Probes leave so fast at most: a slow path has a queue of some 50 ms.
const PACE: BitRate = BitRate(40_000_000);

/// How far behind its pace a sender may be and still catch up.
const CATCH_UP: Duration = Duration::from_millis(5);

/// For answers, beyond two round-trip times: an end may have to wait for a processor.
const PATIENCE: Duration = Duration::from_millis(60);

/// For the answers of routers, beyond three round-trip times.
const ROUTERS: Duration = Duration::from_millis(300);

/// A link that went down is up again by then: it negotiates for some seconds.
const LINK_UP: Duration = Duration::from_secs(15);

/// Sockets of the peer whose probes are acknowledged: one for each hop, and some.
const MOST_SOURCES: usize = 64;

/// A UDP socket, and whom it talks to.
pub struct MtuExchange {
    socket: DatagramProbe,
    token: Token,
    peer: Option<SocketAddr>,
    /// The agent's: what a peer has to return to prove its address.
    challenge: Option<AddressChallenge>,
    proven: bool,
    /// What arrived from each of its sockets.
    seen: BTreeMap<SocketAddr, Vec<Probe>>,
    moved: u64,
    room: Vec<u8>,
}

impl MtuExchange {
    /// Of the controller, which knows its `peer`, or of the agent, which talks to whoever has the token and sends the
    /// challenge back.
    pub fn new(
        socket: DatagramProbe,
        token: Token,
        peer: Option<SocketAddr>,
        challenge: Option<AddressChallenge>,
    ) -> MtuExchange {
        MtuExchange {
            socket,
            token,
            peer,
            challenge,
            proven: false,
            seen: BTreeMap::new(),
            moved: 0,
            room: vec![0; LARGEST as usize],
        }
    }

    /// The peer, once its address is proven.
    pub fn proven(&self) -> Option<SocketAddr> {
        self.peer.filter(|_| self.proven)
    }

    /// Bytes that this end has sent and received.
    pub fn moved(&self) -> Bytes {
        Bytes(self.moved)
    }

    /// Announces this host and waits until the peer has verified it; the RTT of the last message.
    /// `None` if no answer arrives.
    pub fn greet(&mut self, within: Duration, stop: &AtomicBool) -> Result<Option<Duration>> {
        let until = Instant::now() + within;
        while !stop.load(Ordering::Relaxed) && Instant::now() < until {
            let asked = Instant::now();
            self.send_datagram(&Datagram::Hello)?;
            while asked.elapsed() < Duration::from_millis(100) {
                self.socket.wait(Duration::from_millis(5))?;
                self.pump();
                if self.proven {
                    // A hello and a challenge, an echo and its echo.
                    return Ok(Some(asked.elapsed() / 2));
                }
            }
        }
        Ok(None)
    }

    /// Probes the peer every millisecond, until `over` and one answer more: the
    /// longest time without one. `None` if none comes for too long then.
    pub fn longest_silence(&mut self, over: &AtomicBool) -> Option<Duration> {
        let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
        loop {
            // While the link is down it cannot be sent; that is what is to be seen.
            let _ = self.send_datagram(&Datagram::Hello);
            let ending = over.load(Ordering::Relaxed);
            let before = self.moved;
            self.wait(Duration::from_millis(1));
            self.pump();
            if self.moved > before {
                longest = longest.max(last.elapsed());
                last = Instant::now();
                if ending {
                    return Some(longest);
                }
            }
            if last.elapsed() > LINK_UP {
                return None;
            }
        }
    }

    /// Takes and answers what is there; returns which of this end's probes have arrived.
    pub fn pump(&mut self) -> Vec<Probe> {
        let mut arrived = Vec::new();
        let mut answers: Vec<SocketAddr> = Vec::new();
        // One look takes no more than a socket holds.
        for _ in 0..1024 {
            let Some((length, from)) = self.socket.receive(&mut self.room) else {
                break;
            };
            let Some(datagram) = Datagram::decode(&self.room[..length], &self.token) else {
                continue;
            };
            self.moved += length as u64;
            let ours = self.peer == Some(from);
            match datagram {
                Datagram::Hello => {
                    if let Some(challenge) = &self.challenge {
                        self.answer(&Datagram::Challenge(challenge.of(from, 0)), from);
                    }
                }
                Datagram::Challenge(challenge) if ours => {
                    self.answer(&Datagram::Echo(challenge), from);
                }
                Datagram::Echo(echo) => match &self.challenge {
                    Some(challenge) if challenge.of(from, 0) == echo => {
                        (self.peer, self.proven) = (Some(from), true);
                        self.answer(&Datagram::Echo(echo), from);
                    }
                    Some(_) => {}
                    None => self.proven |= ours,
                },
                Datagram::Probe(probe) => {
                    let whole = length as u32 + header(from.ip()) == probe.size;
                    let forward = self.proven().is_some_and(|peer| peer.ip() == from.ip());
                    let known = self.seen.contains_key(&from) || self.seen.len() < MOST_SOURCES;
                    if whole && forward && known {
                        let seen = self.seen.entry(from).or_default();
                        if seen.len() >= 2 * MOST_SEEN {
                            seen.drain(..MOST_SEEN);
                        }
                        seen.push(probe);
                        if !answers.contains(&from) {
                            answers.push(from);
                        }
                    }
                }
                Datagram::Seen(seen) if ours => arrived.extend(seen),
                Datagram::Challenge(_) | Datagram::Seen(_) => {}
            }
        }
        for from in answers {
            let seen = Datagram::Seen(self.seen.get(&from).cloned().unwrap_or_default());
            // Twice, since the last answer of a round is followed by no other.
            self.answer(&seen, from);
            self.answer(&seen, from);
        }
        arrived
    }

    /// Finds the largest size that arrives at the peer, and if it is less than the `ceiling`, the hops on the
    /// path.
    pub fn climb(
        &mut self,
        ceiling: u32,
        rtt: Duration,
        rate: Option<BitRate>,
        stop: &AtomicBool,
    ) -> Result<Climb> {
        let peer = self.proven().context("the peer has not answered yet")?;
        let pace = rate.map_or(PACE, |rate| rate.min(PACE)).0.max(1);
        let mut ladder = ProbeLadder::new(Rule::DATAGRAMS, FLOOR, ceiling.min(LARGEST));
        let mut reported: Option<TooBig> = None;
        while let Some(probes) = ladder.next_round() {
            let mut due = Instant::now();
            for probe in probes {
                while Instant::now() < due {
                    self.listen(due, &mut ladder, &mut reported)?;
                }
                if ladder.is_settled() || stop.load(Ordering::Relaxed) {
                    break;
                }
                let payload = probe.size.saturating_sub(header(peer.ip())) as usize;
                let size = u64::from(probe.size);
                self.moved += size;
                let bytes = Datagram::Probe(probe).encode(&self.token, payload);
                self.send(&bytes, peer)?;
                let takes = Duration::from_nanos(size * 8 * 1_000_000_000 / pace);
                due = (due + takes).max(Instant::now().checked_sub(CATCH_UP).unwrap_or(due));
            }
            let until = Instant::now() + 2 * rtt + PATIENCE;
            while !ladder.is_settled() && Instant::now() < until {
                self.listen(until, &mut ladder, &mut reported)?;
            }
            if stop.load(Ordering::Relaxed) {
                break;
            }
        }
        let mut climb = ladder.climb();
        climb.too_big = reported;
        if let Some(passes) = climb.passes.filter(|passes| *passes < climb.ceiling) {
            self.trace_hops(&mut climb, passes, peer, 3 * rtt + ROUTERS)?;
        }
        Ok(climb)
    }

    /// Finds who is on the way, and whom larger packets reach.
    fn trace_hops(
        &mut self,
        climb: &mut Climb,
        passes: u32,
        peer: SocketAddr,
        wait: Duration,
    ) -> Result<()> {
        let of_size = |size: u32| {
            let payload = (size - header(peer.ip())) as usize;
            let [round, copy] = [0, 0];
            Datagram::Probe(Probe { round, size, copy }).encode(&self.token, payload)
        };
        let least = FLOOR.max(LEAST as u32 + header(peer.ip()));
        let (small, large) = (of_size(least.min(passes)), of_size(passes + 1));
        let ask = Ask {
            to: peer,
            small: &small,
            large: &large,
            wait,
        };
        trace_hops(climb, &ask, peer, &mut || drop(self.pump()))
    }

    fn listen(
        &mut self,
        until: Instant,
        ladder: &mut ProbeLadder,
        reported: &mut Option<TooBig>,
    ) -> Result<()> {
        let left = until.saturating_duration_since(Instant::now());
        self.socket
            .wait(left.min(Duration::from_millis(5)))
            .context("cannot wait for datagrams")?;
        for probe in self.pump() {
            ladder.arrived(probe);
        }
        while let Some(message) = self.socket.message() {
            if let (Said::TooBig(mtu), Some(from)) = (message.what, message.from)
                && reported.is_none_or(|reported| mtu < reported.mtu)
            {
                *reported = Some(TooBig { from, mtu });
            }
        }
        Ok(())
    }

    /// Waits a moment for something to come.
    pub fn wait(&self, moment: Duration) {
        // A socket that cannot be waited for says so when it is used.
        let _ = self.socket.wait(moment);
    }

    fn send_datagram(&mut self, datagram: &Datagram) -> Result<()> {
        let peer = self.peer.context("nobody is there to talk to")?;
        self.send(&datagram.encode(&self.token, 0), peer)
    }

    fn send(&self, bytes: &[u8], to: SocketAddr) -> Result<()> {
        let sent = self.socket.send(bytes, to);
        sent.with_context(|| format!("cannot send a datagram to {to}"))
    }

    fn answer(&mut self, datagram: &Datagram, to: SocketAddr) {
        let bytes = datagram.encode(&self.token, 0);
        self.moved += bytes.len() as u64;
        // One that does not leave is as good as lost.
        let _ = self.socket.send(&bytes, to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (MtuExchange, MtuExchange) {
        let open = || DatagramProbe::open("127.0.0.1:0".parse().unwrap()).unwrap();
        let token = Token::new([7; 32]);
        let remote = open();
        let at = SocketAddr::new("127.0.0.1".parse().unwrap(), remote.port().unwrap());
        let remote = MtuExchange::new(remote, token, None, Some(AddressChallenge::new().unwrap()));
        (MtuExchange::new(open(), token, Some(at), None), remote)
    }

    /// Lets the remote exchange answer until the local one is done.
    fn beside<T: Send>(remote: &mut MtuExchange, local: impl FnOnce() -> T + Send) -> T {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let local = scope.spawn(|| {
                let result = local();
                over.store(true, Ordering::Relaxed);
                result
            });
            while !over.load(Ordering::Relaxed) {
                remote.wait(Duration::from_millis(1));
                remote.pump();
            }
            local.join().unwrap()
        })
    }

    #[test]
    fn over_loopback_the_largest_packet_gets_through() {
        let (mut local, mut remote) = pair();
        let stop = AtomicBool::new(false);
        let climb = beside(&mut remote, || {
            let rtt = local
                .greet(Duration::from_secs(10), &stop)
                .unwrap()
                .unwrap();
            local.climb(LARGEST, rtt, None, &stop).unwrap()
        });
        assert_eq!((climb.passes, climb.confirmed), (Some(LARGEST), true));
        assert!(remote.proven().is_some());
    }

    #[test]
    fn the_challenge_of_one_address_proves_no_other() {
        let (local, mut remote) = pair();
        let open = || DatagramProbe::open("127.0.0.1:0".parse().unwrap()).unwrap();
        let (own, spoofed) = (open(), open());
        let to = local.peer.unwrap();
        own.send(&Datagram::Hello.encode(&local.token, 0), to)
            .unwrap();
        remote.wait(Duration::from_secs(10));
        remote.pump();
        own.wait(Duration::from_secs(10)).unwrap();
        let mut room = [0; 100];
        let (length, _) = own.receive(&mut room).unwrap();
        let Some(Datagram::Challenge(challenge)) = Datagram::decode(&room[..length], &local.token)
        else {
            panic!("no challenge came");
        };
        let echo = Datagram::Echo(challenge).encode(&local.token, 0);
        for (from, is_proven) in [(&spoofed, false), (&own, true)] {
            from.send(&echo, to).unwrap();
            remote.wait(Duration::from_secs(10));
            remote.pump();
            assert_eq!(remote.proven().is_some(), is_proven);
        }
    }

    #[test]
    fn nobody_gets_probes_or_answers_before_it_proved_to_be_there() {
        let (mut local, mut remote) = pair();
        let stop = AtomicBool::new(false);
        assert!(remote.climb(1500, Duration::ZERO, None, &stop).is_err());
        let probe = Probe {
            round: 1,
            size: 200,
            copy: 1,
        };
        // With the right token, but from somewhere that may be anybody's address.
        let unproven = DatagramProbe::open("127.0.0.1:0".parse().unwrap()).unwrap();
        let port = remote.socket.port().unwrap();
        let to = SocketAddr::new("127.0.0.1".parse().unwrap(), port);
        let bytes = Datagram::Probe(probe).encode(&local.token, 172);
        unproven.send(&bytes, to).unwrap();
        let wrong = Datagram::Echo([1; 8]).encode(&local.token, 0);
        unproven.send(&wrong, to).unwrap();
        remote.wait(Duration::from_secs(10));
        remote.pump();
        assert!(remote.proven().is_none());
        let mut room = [0; 100];
        assert!(unproven.receive(&mut room).is_none());
        let greeted = beside(&mut remote, || local.greet(Duration::from_secs(10), &stop));
        assert!(greeted.unwrap().is_some());
    }

    /// Both ends, after the remote one has verified the local one.
    fn greeted() -> (MtuExchange, MtuExchange) {
        let (mut local, mut remote) = pair();
        let stop = AtomicBool::new(false);
        let greeted = beside(&mut remote, || local.greet(Duration::from_secs(10), &stop));
        assert!(greeted.unwrap().is_some() && local.proven().is_some());
        (local, remote)
    }

    /// Sends a probe that is as long as it says, less so many bytes, and has it taken; what arrived from there.
    fn take(remote: &mut MtuExchange, from: &DatagramProbe, copy: u8, less: usize) -> usize {
        let probe = Probe {
            round: 1,
            size: 200,
            copy,
        };
        let to = SocketAddr::from(([127, 0, 0, 1], remote.socket.port().unwrap()));
        let bytes = Datagram::Probe(probe).encode(&remote.token, 172 - less);
        from.send(&bytes, to).unwrap();
        remote.wait(Duration::from_secs(10));
        remote.pump();
        let port = from.port().unwrap();
        let seen = remote.seen.iter().find(|(at, _)| at.port() == port);
        seen.map_or(0, |(_, seen)| seen.len())
    }

    #[test]
    fn who_does_not_answer_is_not_waited_for_longer_than_asked() {
        let (mut local, _remote) = pair();
        let (stop, go_on) = (AtomicBool::new(true), AtomicBool::new(false));
        assert_eq!(local.greet(Duration::ZERO, &go_on).unwrap(), None);
        assert_eq!(local.greet(Duration::from_secs(3600), &stop).unwrap(), None);
        assert_eq!(local.moved(), Bytes(0));
        assert_eq!(local.greet(Duration::from_millis(1), &go_on).unwrap(), None);
        let mut nobody = pair().1;
        assert!(nobody.greet(Duration::from_millis(1), &go_on).is_err());
    }

    #[test]
    fn whole_probes_of_the_peers_address_are_remembered_and_answered() {
        let (_local, mut remote) = greeted();
        let open = |at: &str| DatagramProbe::open(at.parse().unwrap()).unwrap();
        let (hop, elsewhere) = (open("127.0.0.1:0"), open("127.0.0.2:0"));
        let before = remote.moved();
        assert_eq!(take(&mut remote, &hop, 1, 1), 0, "it was cut");
        assert_eq!(remote.moved().since(before), Bytes(171));
        assert_eq!(take(&mut remote, &elsewhere, 1, 0), 0);
        assert_eq!(take(&mut remote, &hop, 2, 0), 1);
        assert_eq!(take(&mut remote, &hop, 3, 0), 2);
        // Twice each time.
        let mut room = [0; 1500];
        let answers = std::iter::from_fn(|| hop.receive(&mut room).map(|_| ())).count();
        assert_eq!(answers, 4);
        assert!(elsewhere.receive(&mut room).is_none());
    }

    #[test]
    fn the_latest_probes_of_so_many_sockets_are_remembered() {
        let (_local, mut remote) = greeted();
        let open = || DatagramProbe::open("127.0.0.1:0".parse().unwrap()).unwrap();
        let one = open();
        let most = 2 * MOST_SEEN;
        for number in 1..=most {
            assert_eq!(take(&mut remote, &one, number as u8, 0), number);
        }
        assert_eq!(take(&mut remote, &one, 0, 0), MOST_SEEN + 1);
        let others: Vec<DatagramProbe> = (1..MOST_SOURCES).map(|_| open()).collect();
        for other in &others {
            assert_eq!(take(&mut remote, other, 1, 0), 1);
        }
        assert_eq!(take(&mut remote, &open(), 1, 0), 0);
        assert_eq!(take(&mut remote, &others[0], 2, 0), 2);
    }

    #[test]
    fn only_the_peer_says_which_probes_arrived() {
        let (mut local, remote) = greeted();
        let unknown = DatagramProbe::open("127.0.0.1:0".parse().unwrap()).unwrap();
        let probe = Probe {
            round: 1,
            size: 200,
            copy: 1,
        };
        let to = SocketAddr::from(([127, 0, 0, 1], local.socket.port().unwrap()));
        let seen = Datagram::Seen(vec![probe]).encode(&local.token, 0);
        for (from, arrived) in [(&unknown, 0), (&remote.socket, 1)] {
            from.send(&seen, to).unwrap();
            local.wait(Duration::from_secs(10));
            assert_eq!(local.pump().len(), arrived);
        }
    }

    #[test]
    fn a_silence_ends_with_an_answer_after_the_end() {
        let (mut local, mut remote) = greeted();
        let over = AtomicBool::new(true);
        let longest = beside(&mut remote, || local.longest_silence(&over));
        assert!(longest.is_some_and(|longest| longest > Duration::ZERO && longest < LINK_UP));
    }

    #[test]
    fn a_climb_that_is_stopped_has_found_nothing() {
        let (mut local, mut remote) = greeted();
        let stop = AtomicBool::new(true);
        let rtt = Duration::from_millis(1);
        let climb = beside(&mut remote, || local.climb(1500, rtt, None, &stop));
        assert_eq!(climb.unwrap().passes, None);
        let go_on = AtomicBool::new(false);
        let slow = Some(BitRate(100_000_000));
        let before = local.moved();
        let climb = beside(&mut remote, || local.climb(1500, rtt, slow, &go_on)).unwrap();
        assert_eq!((climb.ceiling, climb.passes), (1500, Some(1500)));
        assert!(local.moved().since(before) > Bytes(1500));
    }
}

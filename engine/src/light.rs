//! Light probes at an agent: answers those of other hosts, and sends its own.
//!
//! A host that is held for light probes opens a UDP port with a token, which its coordinator hands to the others. Before
//! any probe both ends return a challenge of the other one: nobody who is not there and has not the token gets more than
//! a few packets of up to 73 bytes, and no answer is larger than what it answers, but for 8 bytes of a challenge.

use crate::address_challenge::AddressChallenge;
use crate::direct::is_host_name;
use crate::prelude::*;
use crate::slots::DirectSlot;
use crate::trust::LightUse;
use model::IpVersion;
use model::light::{MAX_PACKETS, MAX_PEERS, MAX_RATE, MAX_SIZES, MAX_TIME, PACKET, shortest_gap};
use model::mtu::Probe;
use model::stats::percentile;
use probe::{DatagramProbe, header};
use std::collections::VecDeque;
use std::net::{Ipv4Addr, Ipv6Addr, ToSocketAddrs};
use std::ops::RangeInclusive;
use wire::control::TOKEN_LEN;
use wire::control::direct::{LightPeer, LightPort, LightResult};
use wire::control::probe::{CHALLENGE_LEN, Datagram, MOST_SEEN, answer_room};

/// How soon the end of a slot is noticed.
const LOOK: Duration = Duration::from_millis(200);

/// Hosts whose packets are remembered in a slot.
const MOST_SOURCES: usize = 4096;

/// For the name of a host to be resolved.
const RESOLVED_WITHIN: Duration = Duration::from_secs(2);

/// The first datagram to a host is sent at these times, and an answer is waited for so long.
const HELLOS: [Duration; 3] = [
    Duration::ZERO,
    Duration::from_millis(300),
    Duration::from_millis(1000),
];
const GREETED_WITHIN: Duration = Duration::from_secs(2);

/// Challenges of a host that are returned.
const MOST_CHALLENGES: u32 = 3;

/// For answers beyond two RTTs: a host may have to wait for a processor.
const PATIENCE: Duration = Duration::from_millis(60);

/// The longest RTT that is waited for.
const LONGEST_RTT: Duration = Duration::from_secs(1);

/// Copies of a size at the least and at the most, the first one alone.
const COPIES: [u8; 2] = [4, 20];

/// Share of sizes that pass and are taken for too large because all copies are lost: never more, up to a loss of 70 %.
const MISSED: f64 = 0.001;

/// All of a request: its answer is due in time.
const WITHIN: Duration = Duration::from_secs(45);

/// How many copies of a size are sent to a host that has answered so many of the packets sent.
fn copies(answered: usize, sent: usize) -> u8 {
    let lost = 1.0 - answered.max(1) as f64 / sent.max(1) as f64;
    let [least, most] = COPIES;
    ((MISSED.ln() / lost.ln()).ceil() as u8).clamp(least, most)
}

/// Spaces the probes of all coordinators.
#[derive(Default)]
pub struct LightPace(Mutex<Option<Instant>>);

impl LightPace {
    /// When so many bytes may leave, behind all before them.
    fn next(&self, bytes: u32, rate: BitRate) -> Instant {
        let mut next = sys::lock(&self.0);
        let at = next.unwrap_or_else(Instant::now).max(Instant::now());
        let takes = u64::from(bytes) * 8_000_000_000 / rate.0.max(1);
        *next = Some(at + Duration::from_nanos(takes));
        at
    }
}

/// The port at which a host answers light probes in a slot.
pub struct LightSocket {
    socket: DatagramProbe,
    token: Token,
    challenge: AddressChallenge,
}

impl LightSocket {
    /// On this address, or on all; of these ports, or any.
    ///
    /// # Errors
    /// If none is free.
    pub fn open(bind: Option<IpAddr>, ports: Option<&RangeInclusive<u16>>) -> Result<LightSocket> {
        let all = [Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()];
        let addresses = bind.map_or(all.to_vec(), |address| vec![address]);
        let ports = ports.cloned().unwrap_or(0..=0);
        let mut places = addresses
            .iter()
            .flat_map(|address| ports.clone().map(|port| SocketAddr::new(*address, port)));
        let socket = places.find_map(|place| DatagramProbe::open(place).ok());
        Ok(LightSocket {
            socket: socket.context("no UDP port is free for light probes")?,
            token: Token::new(crate::chance::bytes()?),
            challenge: AddressChallenge::new()?,
        })
    }

    /// What a coordinator hands to other hosts.
    pub fn port(&self) -> Result<LightPort> {
        Ok(LightPort {
            port: self.socket.port()?,
            token: self.token.to_hex(),
        })
    }

    /// Answers until the slot is over, as far as its coordinator may move bytes.
    pub fn answer(self, slot: &DirectSlot, light_use: &LightUse) {
        let mut seen: BTreeMap<SocketAddr, VecDeque<Probe>> = BTreeMap::new();
        let mut room = vec![0; 1 << 16];
        let mut may_answer = true;
        while !slot.left().is_zero() {
            // A socket that cannot be waited for says so when it is used.
            let _ = self.socket.wait(LOOK);
            let mut moved = 0;
            // One look takes no more than a socket holds.
            for _ in 0..1024 {
                let Some((length, from)) = self.socket.receive(&mut room) else {
                    break;
                };
                moved += length as u64;
                if !may_answer || !slot.has_begun() {
                    continue;
                }
                if let Some(answer) = self.answer_to(&room[..length], from, &mut seen) {
                    let bytes = answer.encode(&self.token, 0);
                    moved += bytes.len() as u64;
                    // One that does not leave is as good as lost.
                    let _ = self.socket.send(&bytes, from);
                }
            }
            if moved > 0 {
                may_answer = light_use.spend(Bytes(moved)).is_ok();
            }
        }
    }

    fn answer_to(
        &self,
        bytes: &[u8],
        from: SocketAddr,
        seen: &mut BTreeMap<SocketAddr, VecDeque<Probe>>,
    ) -> Option<Datagram> {
        let own = self.challenge.of(from, 0);
        match Datagram::decode(bytes, &self.token)? {
            Datagram::Hello => Some(Datagram::Challenge(own)),
            Datagram::Echo(echo) if echo == own => {
                if seen.len() < MOST_SOURCES {
                    seen.entry(from).or_default();
                }
                None
            }
            Datagram::Challenge(theirs) if seen.contains_key(&from) => Some(Datagram::Echo(theirs)),
            Datagram::Probe(probe) => {
                let whole = bytes.len() as u32 + header(from.ip().to_canonical()) == probe.size;
                let known = seen.get_mut(&from).filter(|_| whole)?;
                known.push_back(probe);
                if known.len() > MOST_SEEN {
                    known.pop_front();
                }
                let room = answer_room(bytes.len()).min(known.len());
                Some(Datagram::Seen(
                    known.range(known.len() - room..).copied().collect(),
                ))
            }
            _ => None,
        }
    }
}

/// Light probes as a coordinator wants them.
pub struct LightOrder {
    /// To whom.
    pub peers: Vec<LightPeer>,
    /// Numbered packets to each.
    pub packets: u32,
    /// Between two of them to the same host.
    pub gap: Nanos,
    /// Sizes of IP packets.
    pub sizes: Vec<u32>,
    /// Of the addresses of the hosts; `None`: the first address of each.
    pub ip_version: Option<IpVersion>,
}

impl LightOrder {
    /// Whether it can be, for any coordinator.
    ///
    /// # Errors
    /// In a sentence, if it cannot.
    pub fn check(&self) -> Result<()> {
        let (peers, packets) = (self.peers.len(), self.packets);
        if peers > MAX_PEERS {
            bail!("light probes to {peers} hosts at a time: up to {MAX_PEERS} are possible");
        }
        if packets > MAX_PACKETS || packets == 0 {
            bail!("{packets} packets to each host: 1 to {MAX_PACKETS} are possible");
        }
        let shortest = shortest_gap(peers);
        if self.gap < shortest {
            bail!(
                "light probes to {peers} hosts every {}: {shortest} at least keep to {MAX_RATE}",
                self.gap
            );
        }
        let time = Nanos(self.gap.0.saturating_mul(packets.into()));
        if time > MAX_TIME {
            bail!(
                "{packets} packets every {} take {time}: up to {MAX_TIME} are possible",
                self.gap
            );
        }
        let sizes = self.sizes.len();
        if sizes > MAX_SIZES {
            bail!("{sizes} sizes of packets: up to {MAX_SIZES} are possible");
        }
        if let Some(size) = self
            .sizes
            .iter()
            .find(|size| !(PACKET..=65_535).contains(size))
        {
            bail!("packets of {size} bytes: {PACKET} to 65535 are possible");
        }
        Ok(())
    }
}

/// Sends the probes, and returns what came of them in the order of the hosts.
///
/// # Errors
/// If the slot ends before, no socket can be opened, or the coordinator may move no more bytes.
pub fn send(
    order: &LightOrder,
    slot: &DirectSlot,
    light_use: &LightUse,
    pace: &LightPace,
) -> Result<Vec<LightResult>> {
    let mut sender = LightSender {
        sockets: Vec::new(),
        targets: Vec::new(),
        by_address: BTreeMap::new(),
        challenge: AddressChallenge::new()?,
        until: Instant::now() + WITHIN,
        sizes: order.sizes.clone(),
        rate: rate_of(light_use.rate()),
        room: vec![0; 1 << 16],
        moved: 0,
        slot,
        light_use,
        pace,
    };
    sender.find(&order.peers, order.ip_version);
    sender.greet()?;
    sender.number(order)?;
    sender.measure_sizes()?;
    sender.spend()?;
    Ok(sender
        .targets
        .into_iter()
        .map(LightTarget::result)
        .collect())
}

/// A host to which probes are sent.
struct LightTarget {
    token: Token,
    address: Option<SocketAddr>,
    /// Of its address; the device of the path takes no more.
    ceiling: u32,
    challenges: u32,
    proven: bool,
    /// When each numbered packet was sent, and which arrived.
    sent: Vec<Instant>,
    came: Vec<bool>,
    rtts: Vec<Nanos>,
    largest: Option<u32>,
    why: Option<String>,
}

impl LightTarget {
    fn result(mut self) -> LightResult {
        let mut rtt = |share| percentile(&mut self.rtts, share);
        LightResult {
            sent: self.sent.len() as u32,
            came: self.came.iter().filter(|came| **came).count() as u32,
            rtt_min: rtt(0.0),
            rtt_p50: rtt(0.5),
            rtt_p95: rtt(0.95),
            largest: self.largest,
            why: self.why,
        }
    }
}

struct LightSender<'a> {
    /// One of each version of IP that is used.
    sockets: Vec<(bool, DatagramProbe)>,
    targets: Vec<LightTarget>,
    by_address: BTreeMap<SocketAddr, usize>,
    challenge: AddressChallenge,
    until: Instant,
    /// Those that are sent: no host can claim to have seen another.
    sizes: Vec<u32>,
    rate: BitRate,
    room: Vec<u8>,
    /// Bytes of datagrams that are not accounted for yet.
    moved: u64,
    slot: &'a DirectSlot,
    light_use: &'a LightUse,
    pace: &'a LightPace,
}

impl LightSender<'_> {
    /// Finds the addresses of the hosts.
    fn find(&mut self, peers: &[LightPeer], version: Option<IpVersion>) {
        let until = Instant::now() + RESOLVED_WITHIN;
        let wanted: Vec<_> = peers.iter().map(|peer| resolve(peer, version)).collect();
        for (at, (peer, wanted)) in peers.iter().zip(wanted).enumerate() {
            let left = until.saturating_duration_since(Instant::now());
            let found = wanted.and_then(|wanted| {
                wanted
                    .recv_timeout(left)
                    .unwrap_or_else(|_| Err("its name is not resolved in time".to_owned()))
            });
            let token = Token::from_hex(&peer.at.token);
            let found = found.and_then(|address| {
                if token.is_none() {
                    return Err("its token is none".to_owned());
                }
                self.open(address.is_ipv6())
                    .map_err(|error| format!("{error:#}"))?;
                match self.by_address.contains_key(&address) {
                    true => Err("another host of this request has its address".to_owned()),
                    false => Ok(address),
                }
            });
            if let Ok(address) = found {
                self.by_address.insert(address, at);
            }
            let device = found
                .as_ref()
                .ok()
                .and_then(|address| observe::path_end(address.ip()).ok());
            self.targets.push(LightTarget {
                token: token.unwrap_or(Token::new([0; TOKEN_LEN])),
                address: found.as_ref().ok().copied(),
                ceiling: device.map_or(u32::MAX, |end| end.device_mtu),
                challenges: 0,
                proven: false,
                sent: Vec::new(),
                came: Vec::new(),
                rtts: Vec::new(),
                largest: None,
                why: found.err(),
            });
        }
    }

    fn open(&mut self, ipv6: bool) -> Result<()> {
        if self.sockets.iter().all(|(of, _)| *of != ipv6) {
            let any: IpAddr = match ipv6 {
                true => Ipv6Addr::UNSPECIFIED.into(),
                false => Ipv4Addr::UNSPECIFIED.into(),
            };
            let socket = DatagramProbe::open((any, 0).into());
            self.sockets
                .push((ipv6, socket.context("cannot open a UDP socket")?));
        }
        Ok(())
    }

    /// Has every host prove that it is there, and proves the same to it.
    fn greet(&mut self) -> Result<()> {
        let begun = Instant::now();
        let open = |target: &LightTarget| target.address.is_some() && !target.proven;
        for after in HELLOS {
            self.listen(begun + after, |targets| !targets.iter().any(open))?;
            for at in 0..self.targets.len() {
                if open(&self.targets[at]) {
                    self.say(at, &Datagram::Hello, 0)?;
                }
            }
        }
        self.listen(begun + GREETED_WITHIN, |targets| !targets.iter().any(open))?;
        for target in self.targets.iter_mut().filter(|target| open(target)) {
            let address = target.address.map(|address| address.to_string());
            target.why = Some(format!(
                "nobody who is held for light probes answers at UDP {}: let it through every firewall on the path ('linerate serve --data-ports' chooses it)",
                address.unwrap_or_default()
            ));
        }
        Ok(())
    }

    /// Sends the numbered packets, to one host after the other.
    fn number(&mut self, order: &LightOrder) -> Result<()> {
        let proven: Vec<usize> = (0..self.targets.len())
            .filter(|at| self.targets[*at].proven)
            .collect();
        let begun = Instant::now();
        let gap = Duration::from(order.gap);
        for round in 0..order.packets {
            for (turn, at) in proven.iter().enumerate() {
                let due = begun + gap * round + gap * turn as u32 / proven.len() as u32;
                self.listen(due, |_| false)?;
                let copy = round as u8;
                let probe = Probe {
                    round: 0,
                    size: PACKET,
                    copy,
                };
                let sent = self.say(*at, &Datagram::Probe(probe), PACKET)?;
                let target = &mut self.targets[*at];
                target.sent.push(sent);
                target.came.push(false);
            }
        }
        let is_there = |target: &LightTarget| target.came.iter().all(|came| *came);
        self.listen(Instant::now() + self.patience(&proven), |targets| {
            targets.iter().all(is_there)
        })
    }

    /// How long answers of these hosts are waited for.
    fn patience(&self, of: &[usize]) -> Duration {
        let rtts = of.iter().flat_map(|at| &self.targets[*at].rtts);
        let longest = rtts.max().map_or(LONGEST_RTT, |rtt| Duration::from(*rtt));
        2 * longest.min(LONGEST_RTT) + PATIENCE
    }

    /// Finds the largest size that arrives at each host. Answers come in the order of the probes, so that one that is late is
    /// not taken for lost.
    fn measure_sizes(&mut self) -> Result<()> {
        let mut sizes = self.sizes.clone();
        sizes.sort_unstable();
        // A size that arrived ends it; of those that did not even get a small packet no more is wanted.
        let mut left: Vec<(usize, Vec<u32>)> = Vec::new();
        for (at, target) in self.targets.iter_mut().enumerate() {
            if target.came.contains(&true) {
                target.largest = Some(PACKET);
                let fit = sizes.iter().filter(|size| **size <= target.ceiling);
                left.push((at, fit.copied().collect()));
            }
        }
        for round in 1..=u8::MAX {
            left.retain(|(at, sizes)| {
                let next = sizes.last().copied();
                next.is_some_and(|next| self.targets[*at].largest < Some(next))
            });
            if left.is_empty() || Instant::now() >= self.until {
                break;
            }
            let hosts: Vec<usize> = left.iter().map(|(at, _)| *at).collect();
            for is_first in [true, false] {
                for (at, sizes) in &left {
                    let size = *sizes.last().expect("one is left");
                    let target = &self.targets[*at];
                    let copies = copies(target.rtts.len(), target.sent.len());
                    for copy in if is_first { 0..1 } else { 1..copies } {
                        if self.targets[*at].largest < Some(size) {
                            self.say(*at, &Datagram::Probe(Probe { round, size, copy }), size)?;
                        }
                    }
                }
                let wanted = left.clone();
                let is_there = |targets: &[LightTarget]| {
                    wanted
                        .iter()
                        .all(|(at, sizes)| targets[*at].largest >= sizes.last().copied())
                };
                self.listen(Instant::now() + self.patience(&hosts), is_there)?;
            }
            for (at, sizes) in &mut left {
                if self.targets[*at].largest < sizes.last().copied() {
                    sizes.pop();
                }
            }
        }
        Ok(())
    }

    /// Sends a datagram once its bytes may leave, a probe as an IP packet of `size` bytes; when it left.
    fn say(&mut self, at: usize, datagram: &Datagram, size: u32) -> Result<Instant> {
        let target = &self.targets[at];
        let address = target.address.context("it has no address")?;
        let header = header(address.ip());
        let bytes = datagram.encode(&target.token, size.saturating_sub(header) as usize);
        let due = self.pace.next(bytes.len() as u32 + header, self.rate);
        self.listen(due, |_| false)?;
        let now = Instant::now();
        self.write(address, &bytes)?;
        Ok(now)
    }

    fn write(&mut self, to: SocketAddr, bytes: &[u8]) -> Result<()> {
        let socket = self.sockets.iter().find(|(ipv6, _)| *ipv6 == to.is_ipv6());
        let (_, socket) = socket.context("no socket is open for it")?;
        self.moved += bytes.len() as u64;
        // Without a route to one host the others are not given up; nothing comes from it then.
        let _ = socket.send(bytes, to);
        Ok(())
    }

    /// Takes what comes until then, or until that is so.
    fn listen(&mut self, until: Instant, enough: impl Fn(&[LightTarget]) -> bool) -> Result<()> {
        loop {
            self.take()?;
            let now = Instant::now();
            if now >= until || enough(&self.targets) {
                return Ok(());
            }
            if self.slot.left().is_zero() {
                bail!("the slot was over before the light probes were");
            }
            let polled: Vec<_> = self.sockets.iter().map(|(_, socket)| socket).collect();
            probe::wait_any(&polled, (until - now).min(LOOK))
                .context("cannot wait for datagrams")?;
        }
    }

    fn take(&mut self) -> Result<()> {
        let mut came = Vec::new();
        for (_, socket) in &self.sockets {
            // One look takes no more than a socket holds.
            for _ in 0..1024 {
                let Some((length, from)) = socket.receive(&mut self.room) else {
                    break;
                };
                let Some(&at) = self.by_address.get(&from) else {
                    continue;
                };
                self.moved += length as u64;
                if let Some(datagram) =
                    Datagram::decode(&self.room[..length], &self.targets[at].token)
                {
                    came.push((at, from, datagram, Instant::now()));
                }
            }
        }
        for (at, from, datagram, now) in came {
            self.handle(at, from, &datagram, now)?;
        }
        self.spend()
    }

    fn handle(
        &mut self,
        at: usize,
        from: SocketAddr,
        datagram: &Datagram,
        now: Instant,
    ) -> Result<()> {
        let own: [u8; CHALLENGE_LEN] = self.challenge.of(from, 0);
        let target = &mut self.targets[at];
        match datagram {
            Datagram::Challenge(theirs) if target.challenges < MOST_CHALLENGES => {
                target.challenges += 1;
                let token = target.token;
                for answer in [Datagram::Echo(*theirs), Datagram::Challenge(own)] {
                    self.write(from, &answer.encode(&token, 0))?;
                }
            }
            Datagram::Echo(echo) if *echo == own => target.proven = true,
            Datagram::Seen(seen) => {
                for (behind, probe) in seen.iter().rev().enumerate() {
                    if probe.round > 0 {
                        let size = Some(probe.size).filter(|size| self.sizes.contains(size));
                        target.largest = target.largest.max(size);
                        continue;
                    }
                    let number = usize::from(probe.copy);
                    let Some(came) = target.came.get_mut(number) else {
                        continue;
                    };
                    // The answer to an earlier packet may be lost; only the last one is answered by this.
                    if !std::mem::replace(came, true) && behind == 0 {
                        let rtt = now.saturating_duration_since(target.sent[number]);
                        target.rtts.push(rtt.into());
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Accounts for what moved.
    fn spend(&mut self) -> Result<()> {
        let moved = std::mem::take(&mut self.moved);
        self.light_use
            .spend(Bytes(moved))
            .map_err(|why| anyhow::anyhow!(why))
    }
}

/// The address of a host, once it is resolved.
type Resolving = mpsc::Receiver<Result<SocketAddr, String>>;

fn resolve(peer: &LightPeer, version: Option<IpVersion>) -> Result<Resolving, String> {
    let (name, port) = (peer.name.clone(), peer.at.port);
    if !is_host_name(&name) || port == 0 {
        return Err("it has no name that a host can have".to_owned());
    }
    let (done, resolved) = mpsc::channel();
    let find = move || {
        let found = (name.as_str(), port).to_socket_addrs();
        let first = found.map_err(|error| format!("its name cannot be resolved: {error}"));
        let is_of_version = |address: &SocketAddr| match version {
            None => true,
            Some(IpVersion::V4) => address.is_ipv4(),
            Some(IpVersion::V6) => address.is_ipv6(),
        };
        let first = first.and_then(|mut all| {
            let none = || "its name has no address of this version of IP".to_owned();
            all.find(is_of_version).ok_or_else(none)
        });
        // Nobody waits any longer for one that is late.
        let _ = done.send(first);
    };
    if peer.name.parse::<IpAddr>().is_ok() {
        find();
    } else {
        std::thread::spawn(find);
    }
    Ok(resolved)
}

/// Answers light probes in a thread of its own.
pub fn answer(socket: LightSocket, slot: Arc<DirectSlot>, light_use: LightUse) -> Result<()> {
    sys::spawn("light", move || socket.answer(&slot, &light_use))
        .context("no thread for light probes")?;
    Ok(())
}

/// The rate of a key is that of both directions.
fn rate_of(key: Option<BitRate>) -> BitRate {
    key.map_or(MAX_RATE, |key| MAX_RATE.min(BitRate(key.0 / 2)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_half_of_its_rate_each_way() {
        assert_eq!(rate_of(None), MAX_RATE);
        assert_eq!(rate_of(Some(BitRate(500_001))), BitRate(250_000));
        assert_eq!(rate_of(Some(BitRate(MAX_RATE.0 * 3))), MAX_RATE);
    }

    #[test]
    fn bounds_and_one_above() {
        let order = |peers: usize, packets: u32, gap: Nanos, sizes: Vec<u32>| {
            let at = LightPort {
                port: 1,
                token: String::new(),
            };
            let peer = LightPeer {
                name: "192.0.2.1".to_owned(),
                at,
            };
            LightOrder {
                peers: vec![peer; peers],
                packets,
                gap,
                sizes,
                ip_version: None,
            }
        };
        let gap = shortest_gap(MAX_PEERS);
        let longest = Nanos(MAX_TIME.0 / 100);
        let sizes = |size: u32| vec![size; MAX_SIZES];
        for order in [
            order(MAX_PEERS, MAX_PACKETS, gap, sizes(65_535)),
            order(1, MAX_PACKETS, longest, sizes(PACKET)),
            order(0, 1, Nanos(0), Vec::new()),
        ] {
            order.check().unwrap();
        }
        for (order, why) in [
            (order(MAX_PEERS + 1, 1, longest, Vec::new()), "65 hosts"),
            (order(1, MAX_PACKETS + 1, gap, Vec::new()), "101 packets"),
            (order(1, 0, gap, Vec::new()), "0 packets"),
            (
                order(MAX_PEERS, 1, Nanos(gap.0 - 1), Vec::new()),
                "keep to 1.00 Mbit/s",
            ),
            (
                order(1, MAX_PACKETS, Nanos(longest.0 + 1), Vec::new()),
                "20.0 s are possible",
            ),
            (order(1, 1, gap, vec![1500; MAX_SIZES + 1]), "17 sizes"),
            (order(1, 1, gap, vec![PACKET - 1]), "127 bytes"),
            (order(1, 1, gap, vec![65_536]), "65536 bytes"),
        ] {
            let said = order.check().unwrap_err().to_string();
            assert!(said.contains(why), "{said}");
        }
    }

    #[test]
    fn bytes_leave_one_after_the_other_at_the_rate_and_save_nothing_up() {
        let pace = LightPace::default();
        let rate = BitRate(8_000);
        let first = pace.next(1000, rate);
        let second = pace.next(2000, rate);
        assert_eq!(second - first, Duration::from_secs(1));
        assert_eq!(pace.next(1, rate) - second, Duration::from_secs(2));
        let idle = LightPace(Mutex::new(Instant::now().checked_sub(LONGEST_RTT)));
        let before = Instant::now();
        assert!(idle.next(1, rate) >= before);
        // A rate of nothing is as slow as can be, and no division by zero.
        let slow = LightPace::default();
        let first = slow.next(1, BitRate(0));
        assert_eq!(slow.next(1, BitRate(0)) - first, Duration::from_secs(8));
    }

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn probe(round: u8, size: u32, copy: u8) -> Probe {
        Probe { round, size, copy }
    }

    #[test]
    fn who_returned_its_challenge_is_answered_as_far_as_its_probes_are_long() {
        let light = LightSocket::open(Some(HERE), None).unwrap();
        let port = light.port().unwrap();
        assert!(port.port > 0);
        assert_eq!(port.token, light.token.to_hex());
        let (from, other) = ((HERE, 7).into(), (HERE, 8).into());
        let mut seen = BTreeMap::new();
        let mut said = |datagram: &Datagram, payload: usize, from| {
            let bytes = datagram.encode(&light.token, payload);
            light.answer_to(&bytes, from, &mut seen)
        };
        let small = Datagram::Probe(probe(0, PACKET, 0));
        let payload = PACKET as usize - 28;
        assert_eq!(said(&small, payload, from), None, "nobody has proven that");
        assert_eq!(said(&Datagram::Challenge([9; 8]), 0, from), None);
        let own = match said(&Datagram::Hello, 0, from) {
            Some(Datagram::Challenge(own)) => own,
            other => panic!("{other:?}"),
        };
        assert_eq!(said(&Datagram::Echo(own), 0, other), None);
        assert_eq!(said(&small, payload, other), None, "of another address");
        assert_eq!(said(&Datagram::Echo(own), 0, from), None);
        assert_eq!(
            said(&Datagram::Challenge([9; 8]), 0, from),
            Some(Datagram::Echo([9; 8]))
        );
        assert_eq!(
            said(&small, payload, from),
            Some(Datagram::Seen(vec![probe(0, PACKET, 0)]))
        );
        assert_eq!(said(&small, payload - 1, from), None, "it was cut");
        assert_eq!(said(&Datagram::Seen(Vec::new()), 0, from), None);
        // No answer is larger than what it answers: the latest are reported.
        let mut last = None;
        for copy in 1..=MOST_SEEN as u8 {
            last = said(&Datagram::Probe(probe(0, PACKET, copy)), payload, from);
        }
        let Some(Datagram::Seen(reported)) = last else {
            panic!("{last:?}")
        };
        assert_eq!(reported.len(), answer_room(payload));
        assert_eq!(reported.last(), Some(&probe(0, PACKET, MOST_SEEN as u8)));
        assert_eq!(seen[&from].len(), MOST_SEEN, "and no more are remembered");
        let wrong = Datagram::Hello.encode(&Token::new([1; TOKEN_LEN]), 0);
        assert_eq!(light.answer_to(&wrong, from, &mut seen), None);
    }

    #[test]
    fn so_many_hosts_are_remembered_in_a_slot() {
        let light = LightSocket::open(Some(HERE), None).unwrap();
        let mut seen = BTreeMap::new();
        let mut proven = |port: u16| {
            let from = SocketAddr::new(HERE, port);
            let echo = Datagram::Echo(light.challenge.of(from, 0));
            light.answer_to(&echo.encode(&light.token, 0), from, &mut seen);
            seen.contains_key(&from)
        };
        let most = MOST_SOURCES as u16;
        assert!((1..=most).all(&mut proven));
        assert!(!proven(most + 1));
    }

    #[test]
    fn a_port_is_one_of_those_that_may_be_or_none() {
        let taken = LightSocket::open(Some(HERE), None).unwrap();
        let port = taken.port().unwrap().port;
        let why = LightSocket::open(Some(HERE), Some(&(port..=port)));
        let why = why.err().unwrap().to_string();
        assert!(why.contains("no UDP port is free"), "{why}");
        drop(taken);
        let again = LightSocket::open(Some(HERE), Some(&(port..=port))).unwrap();
        assert_eq!(again.port().unwrap().port, port);
    }

    fn target() -> LightTarget {
        LightTarget {
            token: Token::new([7; TOKEN_LEN]),
            address: Some((HERE, 9).into()),
            ceiling: 1500,
            challenges: 0,
            proven: false,
            sent: vec![Instant::now(); 3],
            came: vec![false; 3],
            rtts: Vec::new(),
            largest: None,
            why: None,
        }
    }

    #[test]
    fn what_came_of_probes_is_counted() {
        let mut of = target();
        of.came = vec![true, false, true];
        of.rtts = [30, 10, 20].map(Nanos::from_millis).to_vec();
        of.largest = Some(1400);
        let found = of.result();
        assert_eq!((found.sent, found.came), (3, 2));
        let ms = |n| Some(Nanos::from_millis(n));
        assert_eq!(
            (found.rtt_min, found.rtt_p50, found.rtt_p95),
            (ms(10), ms(20), ms(30))
        );
        assert_eq!((found.largest, found.why), (Some(1400), None));
        let none = target().result();
        assert_eq!((none.came, none.rtt_min, none.largest), (0, None, None));
    }

    fn held_for_light(slot: &str) -> crate::slots::SlotOrder<'_> {
        crate::slots::SlotOrder {
            slot,
            after: Nanos(0),
            span: Nanos::from_secs(60),
            ttl: Nanos::from_secs(60),
            peer: None,
            role: wire::control::direct::SlotRole::Light,
            files: false,
        }
    }

    /// Has this done with a sender to one host.
    fn sending<T>(act: impl FnOnce(&mut LightSender<'_>) -> T) -> T {
        let directory = crate::testing::TempDir::new();
        let calendar = crate::host_calendar::HostCalendar::in_directory(directory.path());
        let slots = crate::slots::SlotBook::new(calendar, Some(HERE), None);
        let peer = Peer::at_a_pipe(HERE, None);
        let by = NodeId::new([1; 32]);
        let name = "0".repeat(32);
        let answering = peer.light_use(Nanos(0)).ok();
        slots
            .hold(by, "coordinator", &held_for_light(&name), answering)
            .ok()
            .unwrap();
        slots.confirm(by, &name).unwrap();
        let (slot, light_use) = (
            slots.light(by, &name).unwrap(),
            peer.light_use(Nanos(0)).unwrap(),
        );
        act(&mut LightSender {
            sockets: Vec::new(),
            targets: vec![target()],
            by_address: BTreeMap::new(),
            challenge: AddressChallenge::new().unwrap(),
            until: Instant::now() + WITHIN,
            sizes: vec![1400, 1500],
            rate: MAX_RATE,
            room: vec![0; 1 << 16],
            moved: 0,
            slot: &slot,
            light_use: &light_use,
            pace: &LightPace::default(),
        })
    }

    #[test]
    fn only_the_last_packet_that_arrived_has_an_rtt_and_only_sizes_that_were_sent_count() {
        sending(|sender| {
            let from = (HERE, 9).into();
            let mut seen = |all: &[Probe]| {
                let now = sender.targets[0].sent[0] + Duration::from_millis(5);
                let seen = Datagram::Seen(all.to_vec());
                sender.handle(0, from, &seen, now).unwrap();
                let target = &sender.targets[0];
                (target.came.clone(), target.rtts.len(), target.largest)
            };
            // The answer to the first was lost.
            let (came, rtts, _) = seen(&[probe(0, PACKET, 0), probe(0, PACKET, 1)]);
            assert_eq!((came, rtts), (vec![true, true, false], 1));
            let (came, rtts, _) = seen(&[probe(0, PACKET, 0), probe(0, PACKET, 1)]);
            assert_eq!((came, rtts), (vec![true, true, false], 1));
            // One that was never sent, and sizes.
            assert_eq!(seen(&[probe(0, PACKET, 3)]).1, 1);
            assert_eq!(seen(&[probe(1, 1499, 0)]).2, None);
            assert_eq!(seen(&[probe(1, 1400, 0)]).2, Some(1400));
            assert_eq!(seen(&[probe(1, 1500, 0)]).2, Some(1500));
            assert_eq!(seen(&[probe(2, 1400, 0)]).2, Some(1500));
            assert_eq!(sender.targets[0].rtts, [Nanos::from_millis(5)]);
        });
    }

    #[test]
    fn a_host_proves_its_address_and_gets_so_many_echoes() {
        sending(|sender| {
            let from: SocketAddr = (HERE, 9).into();
            sender.open(false).unwrap();
            let now = Instant::now();
            let own = sender.challenge.of(from, 0);
            let mut take = |datagram| {
                let before = sender.moved;
                sender.handle(0, from, &datagram, now).unwrap();
                (sender.targets[0].proven, sender.moved > before)
            };
            assert_eq!(take(Datagram::Echo([1; CHALLENGE_LEN])), (false, false));
            for _ in 0..MOST_CHALLENGES {
                assert_eq!(take(Datagram::Challenge([2; CHALLENGE_LEN])), (false, true));
            }
            assert_eq!(
                take(Datagram::Challenge([2; CHALLENGE_LEN])),
                (false, false)
            );
            assert_eq!(take(Datagram::Echo(own)), (true, false));
            sender.spend().unwrap();
            assert_eq!(sender.moved, 0);
        });
    }

    /// On a path that loses packets a size is given up after more copies: 1500 bytes that pass are not called 1400.
    #[test]
    fn more_copies_are_sent_where_more_packets_are_lost() {
        let of_20 = [20, 19, 16, 10, 6, 1, 0];
        assert_eq!(
            of_20.map(|answered| copies(answered, 20)),
            [4, 4, 5, 10, 20, 20, 20]
        );
    }

    #[test]
    fn answers_are_waited_for_two_of_the_longest_rtt_up_to_a_second() {
        sending(|sender| {
            let mut patience = |rtts: &[u64]| {
                sender.targets[0].rtts = rtts.iter().copied().map(Nanos::from_millis).collect();
                sender.patience(&[0])
            };
            assert_eq!(patience(&[]), Duration::from_millis(2060));
            assert_eq!(patience(&[3, 20, 7]), Duration::from_millis(100));
            assert_eq!(patience(&[3000]), Duration::from_millis(2060));
        });
    }

    #[test]
    fn hosts_are_found_by_their_name_and_the_version_of_ip() {
        let peer = |name: &str, port| LightPeer {
            name: name.to_owned(),
            at: LightPort {
                port,
                token: "07".repeat(TOKEN_LEN),
            },
        };
        let found = |name: &str, port, version| {
            let resolving = resolve(&peer(name, port), version)?;
            resolving.recv_timeout(Duration::from_secs(10)).unwrap()
        };
        let at: SocketAddr = (HERE, 9).into();
        let (v4, v6) = (Some(IpVersion::V4), Some(IpVersion::V6));
        assert_eq!(
            [found("127.0.0.1", 9, None), found("127.0.0.1", 9, v4)],
            [Ok(at), Ok(at)]
        );
        let none = found("127.0.0.1", 9, v6).unwrap_err();
        assert!(none.contains("no address of this version"), "{none}");
        assert!(found("::1", 9, v6).is_ok() && found("::1", 9, v4).is_err());
        for (name, port) in [("127.0.0.1", 0), ("", 9), ("a/b", 9)] {
            let none = found(name, port, None).unwrap_err();
            assert!(none.contains("no name that a host can have"), "{none}");
        }
        sending(|sender| {
            sender.targets.clear();
            let mut damaged = peer("127.0.0.1", 11);
            damaged.at.token = "7".to_owned();
            let all = [
                peer("127.0.0.1", 9),
                peer("127.0.0.1", 9),
                damaged,
                peer("::1", 10),
            ];
            sender.find(&all, None);
            let why: Vec<_> = sender.targets.iter().map(|of| of.why.as_deref()).collect();
            assert_eq!(why[0], None);
            assert!(why[1].unwrap().contains("another host of this request"));
            assert!(why[2].unwrap().contains("its token is none"));
            assert_eq!(why[3], None);
            assert_eq!(sender.targets[0].address, Some(at));
            let mtu = observe::path_end(HERE).unwrap().device_mtu;
            assert_eq!(sender.targets[0].ceiling, mtu);
            assert_eq!(sender.targets[1].ceiling, u32::MAX);
            assert_eq!(sender.sockets.len(), 2, "one of each version");
            assert_eq!(sender.by_address.len(), 2);
        });
    }

    #[test]
    fn probes_between_two_hosts_find_the_rtt_and_the_largest_size() {
        let directory = crate::testing::TempDir::new();
        let calendar = crate::host_calendar::HostCalendar::in_directory(directory.path());
        let slots = crate::slots::SlotBook::new(calendar, Some(HERE), None);
        let peer = Peer::at_a_pipe(HERE, None);
        let by = NodeId::new([1; 32]);
        let held = |number: u32| {
            let name = format!("{number:032x}");
            let light_use = peer.light_use(Nanos(0)).ok();
            let port = slots
                .hold(by, "coordinator", &held_for_light(&name), light_use)
                .ok()
                .unwrap();
            slots.confirm(by, &name).unwrap();
            (slots.light(by, &name).unwrap(), port.unwrap())
        };
        let (slot, _) = held(1);
        let (other, at) = held(2);
        let nobody = LightPort {
            port: 9,
            token: at.token.clone(),
        };
        let mtu = observe::path_end(HERE).unwrap().device_mtu;
        let to = |at: LightPort| LightPeer {
            name: "127.0.0.1".to_owned(),
            at,
        };
        let order = |peers, sizes: &[u32]| LightOrder {
            peers,
            packets: 5,
            gap: shortest_gap(2),
            sizes: sizes.to_vec(),
            ip_version: None,
        };
        let light_use = peer.light_use(Nanos(0)).unwrap();
        let sent = |order: &LightOrder| send(order, &slot, &light_use, &slots.pace).unwrap();
        let both = sent(&order(
            vec![to(at.clone()), to(nobody)],
            &[1500, 1000, mtu + 1],
        ));
        assert_eq!((both[0].sent, both[0].came), (5, 5));
        assert_eq!(
            (both[0].largest, both[0].why.as_deref()),
            (Some(1500), None)
        );
        let rtts = [both[0].rtt_min, both[0].rtt_p50, both[0].rtt_p95];
        assert!(
            rtts.iter().all(Option::is_some) && rtts.is_sorted(),
            "{rtts:?}"
        );
        assert_eq!((both[1].sent, both[1].largest), (0, None));
        let why = both[1].why.as_ref().unwrap();
        assert!(
            why.contains("nobody who is held for light probes answers at UDP 127.0.0.1:9"),
            "{why}"
        );
        let plain = sent(&order(vec![to(at.clone())], &[]));
        assert_eq!((plain[0].came, plain[0].largest), (5, Some(PACKET)));
        // A slot that is over ends it, on either side.
        other.over.store(true, Ordering::Relaxed);
        slot.over.store(true, Ordering::Relaxed);
        let over = send(&order(vec![to(at)], &[]), &slot, &light_use, &slots.pace);
        let why = over.unwrap_err().to_string();
        assert!(why.contains("the slot was over"), "{why}");
    }
}

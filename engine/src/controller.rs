//! The controller's side: drives an agent through the legs of one run after another, and keeps what
//! both ends saw.

mod claims;
mod drive;
mod local_end;

use crate::host_calendar::SessionUnit;
use crate::leg::LegResult;
use crate::leg_watch;
use crate::prelude::*;
use crate::transport::{ChannelEnd as SessionEnd, ChannelEvent, ChannelSender, Reached};
use crate::trust::{Identity, NodeId};
use model::{Reading, SocketOptions};
use std::net::UdpSocket;
use wire::control::direct::{DirectAnswer, DirectRequest, PlayEvent};
use wire::control::{ControllerRole, Origin, ProbeAnswer, ProbeRequest, ToAgent, TuneRequest};

/// How often the listener looks whether it is still wanted; events come at once.
const LISTEN: Duration = Duration::from_secs(1);
/// A request to tune is answered within this: settings of a slow device.
const TUNE_WITHIN: Duration = Duration::from_secs(30);

/// A control connection that serves many runs, one after the other. Dropping it says good-bye.
pub struct PeerLink {
    agent: ChannelSender<ControllerRole>,
    name: String,
    /// This host's key and the agent's id, where both are authenticated.
    keys: Option<(Identity, NodeId)>,
    /// Id of this host's key, if it has one.
    local_id: Option<NodeId>,
    /// Where the data listeners are; the one that answered, once one has. Never empty.
    addresses: Vec<IpAddr>,
    post: mpsc::Sender<Incoming>,
    inbox: mpsc::Receiver<Incoming>,
    listener: Option<JoinHandle<()>>,
    /// Number of the next leg: none is used twice in a session.
    next_leg: u32,
    /// Number of the latest request to tune.
    tunes: u64,
    /// Number of the latest request to probe.
    probes: u64,
    /// This host's address as the agent saw it last.
    seen_as: Option<IpAddr>,
    /// The agent has found that it is where this process is.
    shares_machine: bool,
    /// How the session ended; `None` while it is open.
    ended: Option<SessionEnd>,
    /// Longest outage of the path that legs are to survive.
    outage: Nanos,
    /// How long this host had been suspended when the session began.
    suspended: Duration,
    /// Of this host, while the agent plays a leg with it.
    unit: SessionUnit,
    /// Who ordered the legs, whose limits this end of them keeps.
    orderer: Option<Peer>,
    /// Number of the latest request to measure towards another host.
    directs: u64,
    /// Key that an agent reached over ssh has for its slots.
    slot_id: Option<NodeId>,
}

impl PeerLink {
    /// Over the control connection of an agent that was reached.
    pub fn new(reached: Reached) -> PeerLink {
        let Reached {
            channel,
            addresses,
            keys,
        } = reached;
        let (post, inbox) = mpsc::channel();
        let (agent, name) = (channel.sender(), channel.peer().to_owned());
        let remote = post.clone();
        let listener = std::thread::spawn(move || {
            loop {
                match channel.recv(LISTEN) {
                    Some(ChannelEvent::Message(message)) => {
                        drop(remote.send(Incoming::Remote(message)))
                    }
                    // A controller that is over has hung up itself.
                    Some(ChannelEvent::Ended(ended)) => {
                        return drop(remote.send(Incoming::Ended(ended)));
                    }
                    None => {}
                }
            }
        });
        PeerLink {
            agent,
            name,
            local_id: keys.as_ref().map(|(own, _)| own.id()),
            keys,
            addresses,
            post,
            inbox,
            listener: Some(listener),
            next_leg: 0,
            tunes: 0,
            probes: 0,
            seen_as: None,
            shares_machine: false,
            ended: None,
            outage: Nanos(0),
            suspended: sys::clock::suspended(),
            unit: SessionUnit::new(None, String::new()),
            orderer: None,
            directs: 0,
            slot_id: None,
        }
    }

    /// The same, its legs booked on this host. An agent that has an address of this host books them itself.
    pub fn booking(mut self, unit: SessionUnit) -> PeerLink {
        if self.local_address() != Some(self.remote_address()) {
            self.unit = unit;
        }
        self
    }

    /// The same from a host whose key has this id.
    pub fn from_host(mut self, id: Option<NodeId>) -> PeerLink {
        self.local_id = id;
        self
    }

    /// The same with an agent that has this key for its slots.
    pub fn with_slot_id(mut self, id: NodeId) -> PeerLink {
        self.slot_id = Some(id);
        self
    }

    /// The key that the agent shows to the other host of a slot.
    pub fn slot_id(&self) -> Option<NodeId> {
        self.slot_id.or(self.ids().1)
    }

    /// The ids of the keys of this host and, where TLS authenticated it, of the agent.
    pub fn ids(&self) -> (Option<NodeId>, Option<NodeId>) {
        (self.local_id, self.keys.as_ref().map(|(_, agent)| *agent))
    }

    /// The same with legs that this peer ordered, within its limits.
    pub fn ordered_by(mut self, peer: Peer) -> PeerLink {
        self.orderer = Some(peer);
        self
    }

    /// The same with legs that survive an outage of the path of this length.
    pub fn surviving(mut self, outage: Nanos) -> PeerLink {
        self.outage = outage;
        self
    }

    /// Plays the legs of `run.spec` over fresh data connections. They are put into `run` even when
    /// this ends in an error, so that what was seen until then is kept. `stop` ends the run, not the
    /// link: when this returns both ends are quiet, or the link is lost.
    ///
    /// # Errors
    /// If the agent refuses, is lost or speaks out of turn, or data connections cannot be made.
    /// [`Link::is_lost`] shows whether another run may follow.
    pub fn measure(
        &mut self,
        run: &mut Run,
        watcher: &mut dyn Watcher,
        stop: &AtomicBool,
    ) -> Result<()> {
        drive::play(self, run, watcher, stop)
    }

    /// Has the agent read or change its machine's settings, between runs or during one. It undoes
    /// what it has changed when the link ends, in whatever way.
    ///
    /// # Errors
    /// If the agent refuses, is lost, or does not answer in time; every sentence names it.
    pub fn tune(&mut self, request: TuneRequest) -> Result<Vec<Reading>> {
        self.tune_within(request, TUNE_WITHIN)
    }

    fn tune_within(&mut self, request: TuneRequest, within: Duration) -> Result<Vec<Reading>> {
        self.tunes += 1;
        let ours = self.tunes;
        self.send(ToAgent::Tune {
            number: ours,
            origin: Origin {
                address: self.local_address(),
                place: crate::tuning::place(),
            },
            request,
        })?;
        let outcome = self.wait("tune", within, None, |message| match message {
            ToController::Tuned { number, outcome } if number == ours => Some(outcome),
            _ => None,
        })?;
        let mut readings = outcome.done.map_err(|why| self.refuses(&why))?;
        self.shares_machine = outcome.shared;
        for reading in &mut readings {
            reading.side = Side::Remote;
        }
        Ok(readings)
    }

    /// Has the agent find out something of the path; the number under which it will answer.
    pub fn probe(&mut self, request: ProbeRequest) -> Result<u64> {
        self.probes += 1;
        let number = self.probes;
        self.send(ToAgent::Probe { number, request })?;
        Ok(number)
    }

    /// The answer to [`Link::ask`]. `meanwhile` is called every few milliseconds.
    pub fn answer(
        &mut self,
        ours: u64,
        within: Duration,
        meanwhile: &mut dyn FnMut(),
    ) -> Result<ProbeAnswer> {
        let answer = self.wait("probe", within, Some(meanwhile), |message| match message {
            ToController::Probed { number, answer } if number == ours => Some(answer),
            _ => None,
        })?;
        Ok(answer.map_err(|why| self.refuses(&why))?)
    }

    /// Has the agent measure towards another one, or make ready for it; the number under which it will answer.
    pub fn direct(&mut self, request: DirectRequest) -> Result<u64> {
        self.directs += 1;
        let number = self.directs;
        self.send(ToAgent::Direct { number, request })?;
        Ok(number)
    }

    /// The answer to [`PeerLink::direct`], or what is reported before; `None` if nothing came within this time.
    ///
    /// # Errors
    /// If it refuses or is lost.
    pub fn directed(&mut self, ours: u64, within: Duration) -> Result<Option<Directed>> {
        let until = Instant::now() + within;
        loop {
            if let Some(ended) = &self.ended {
                return Err(self.lost(ended));
            }
            let left = until.saturating_duration_since(Instant::now());
            match self.recv(left) {
                Some(Incoming::Remote(ToController::Directed { number, answer }))
                    if number == ours =>
                {
                    let answer = answer.map_err(|why| self.refuses(&why))?;
                    return Ok(Some(Directed::Answer(answer)));
                }
                Some(Incoming::Remote(ToController::Progress { number, event }))
                    if number == ours =>
                {
                    return Ok(Some(Directed::Progress(event)));
                }
                Some(_) => {}
                None if left.is_zero() => return Ok(None),
                None => {}
            }
        }
    }

    /// The agent, as its sentences begin.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The answer to a request, as `pick` knows it; `meanwhile` is called every few milliseconds.
    fn wait<T>(
        &mut self,
        what: &str,
        within: Duration,
        mut meanwhile: Option<&mut dyn FnMut()>,
        pick: impl Fn(ToController) -> Option<T>,
    ) -> Result<T> {
        let until = Instant::now() + within;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let moment = meanwhile.as_ref().map(|_| Duration::from_millis(2));
            match self.recv(moment.map_or(left, |moment| moment.min(left))) {
                // What is not picked: an answer that came too late, the last message of a leg that was not waited for.
                Some(Incoming::Remote(message)) => {
                    if let Some(answer) = pick(message) {
                        return Ok(answer);
                    }
                }
                Some(Incoming::Ended(ended)) => return Err(self.lost(&ended)),
                Some(_) => {}
                None if left.is_zero() => bail!(Refusal::unreachable(format!(
                    "{} did not answer a request to {what} in time",
                    self.name
                ))),
                None => {
                    if let Some(meanwhile) = &mut meanwhile {
                        meanwhile();
                    }
                }
            }
        }
    }

    /// Whether the agent is on this machine and in this network namespace (as `local` is), as it reported when it was
    /// to take hold of its settings. Then all settings are this end's to apply.
    pub fn shares_machine(&self) -> bool {
        self.shares_machine
    }

    /// The remote host's address, as data connections from here reach it.
    pub fn remote_address(&self) -> IpAddr {
        let first = self.addresses.first();
        *first.expect("whoever was reached has an address")
    }

    /// This host's address, as the agent sees data connections come from it; before the first run
    /// what this host's routes say.
    pub fn local_address(&self) -> Option<IpAddr> {
        self.seen_as.or_else(|| {
            let remote = self.remote_address();
            // Connecting a UDP socket sends nothing: it asks the kernel for the route.
            let socket = UdpSocket::bind((probe::unspecified(remote), 0)).ok()?;
            socket.connect((remote, 9)).ok()?;
            socket.local_addr().ok().map(|address| address.ip())
        })
    }

    /// Whether the session is over: no further run is possible over this link.
    pub fn is_lost(&self) -> bool {
        self.ended.is_some()
    }

    /// How the session ended, and whether this host slept meanwhile, which the other one cannot know.
    fn lost(&self, ended: &SessionEnd) -> anyhow::Error {
        let slept = leg_watch::suspended_since(self.suspended).map_or(String::new(), |time| {
            let time = Nanos::from(time);
            format!("; this host was suspended for {time} during the session, which may be why")
        });
        Refusal::unreachable(format!("{ended}{slept}")).into()
    }

    fn refuses(&self, why: &str) -> Refusal {
        Refusal::unreachable(format!("{} refuses: {why}", self.name))
    }

    fn open(&mut self, order: &LegOrder) -> Result<()> {
        let order = Box::new(order.clone());
        self.send(ToAgent::Open { order })
    }

    fn send(&mut self, message: ToAgent) -> Result<()> {
        if self.ended.is_none() {
            self.ended = self.agent.send(message).err();
        }
        match &self.ended {
            Some(ended) => Err(self.lost(ended)),
            None => Ok(()),
        }
    }

    /// The next message, within this time.
    fn recv(&mut self, within: Duration) -> Option<Incoming> {
        let next = self.inbox.recv_timeout(within).ok();
        if let Some(Incoming::Ended(ended)) = &next {
            self.ended = Some(ended.clone());
        }
        next
    }
}

impl Drop for PeerLink {
    fn drop(&mut self) {
        self.agent.close("");
        if let Some(listener) = self.listener.take() {
            // Its channel has reported the end, so it has returned or is about to.
            let _ = listener.join();
        }
    }
}

/// What an agent reports of a request to measure towards another host.
pub enum Directed {
    /// What happens before the answer.
    Progress(PlayEvent),
    /// The answer.
    Answer(DirectAnswer),
}

/// What comes to a link.
enum Incoming {
    /// What happens at this host's end of a leg, by the leg's number.
    Local(u32, Happened),
    /// A message of the agent.
    Remote(ToController),
    /// The session is over.
    Ended(SessionEnd),
}

/// What happens at one end of a leg.
enum Happened {
    Connected(Vec<SocketOptions>, Vec<Warning>),
    Sample(Box<Sample>),
    Over(Box<LegResult>),
    /// It never began.
    Failed(anyhow::Error),
}

/// The order of a leg of this direction.
pub(crate) fn leg_order(spec: &Spec, leg: u32, direction: Direction) -> LegOrder {
    let agent_sends = direction.sender() == Side::Remote;
    LegOrder {
        leg,
        agent_sends,
        workload: spec.workload.clone().without_own_files(agent_sends),
        streams: spec.streams,
        limit: spec.limit,
        interval: spec.interval,
        outage: Nanos(0),
        trace: spec.trace,
        socket: SocketSettings {
            congestion: congestion(spec, direction, Side::Remote),
            ..spec.socket.clone()
        },
        placement: spec.remote.clone(),
    }
}

/// The congestion control to set on one side: a host that only receives does not need to have it.
fn congestion(spec: &Spec, direction: Direction, side: Side) -> Option<String> {
    let sends = direction.sender() == side || spec.workload.is_answered();
    spec.socket.congestion.clone().filter(|_| sends)
}

#[cfg(test)]
mod tests;

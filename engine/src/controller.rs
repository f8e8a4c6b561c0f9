//! The controller's side: drives an agent through the legs of one run after another, and keeps what
//! both ends saw.

use crate::datagrams;
use crate::exit::Refusal;
use crate::leg::{
    LegEnd, LegResult, asked, can_connect, failed_with, job, merge, sampled_ones, storage,
};
use crate::leg_watch;
use crate::outages;
use crate::progress::{Event as Progress, Watcher};
use crate::signature::{self, Statement};
use crate::traces;
use crate::transport::{ChannelEnd as SessionEnd, ChannelEvent, ChannelSender, Reached};
use crate::trust::{Identity, NodeId};
use anyhow::{Context, Result, anyhow, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use measure::Reconnect;
use measure::storage::Reach;
use model::{
    Bytes, Direction, Directions, EndRecord, Ended, Leg, LegLimit, MOST_SAMPLED, Nanos, Placement,
    Reading, Run, Sample, Side, SocketOptions, SocketSettings, Spec, StreamSample, Warning,
    Workload,
};
use std::io::Write;
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use wire::control::{
    ControllerRole, LegOrder, MAX_OPEN_FETCHES, Origin, Preamble, ToAgent, ToController, Token,
};
use wire::control::{ProbeAnswer, ProbeRequest, TuneRequest};

/// A data connection stands by then, or never will.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// Threads that connect at once, and connections that each opens at least: a round trip each would take too long.
const MOST_DIALLERS: u32 = 64;
const EACH_DIALS: u32 = 128;
/// How often the listener looks whether it is still wanted; events come at once.
const LISTEN: Duration = Duration::from_secs(1);
/// How soon Ctrl-C is noticed.
const STOP_WITHIN: Duration = Duration::from_millis(50);
/// What this end is called in what is shown.
const NEAR: &str = "this host";
/// The remote host's trace has come by then, or is done without.
const FETCH_WITHIN: Duration = Duration::from_secs(120);
/// Largest trace that is taken from an agent, compressed.
const LARGEST_TRACE: usize = 64 << 20;
/// Samples of the remote host beyond twice those that were due.
const MORE_SAMPLES: u64 = 64;
/// A leg takes at most a day.
const LATEST_SAMPLE: Nanos = Nanos::from_secs(7 * 86_400);
/// Operations that the remote host may report: more than there are.
const MOST_OPERATIONS: usize = 64;
/// Below this, the send time is not compared with the remote receive time: socket buffers absorb the data.
const SHORTEST_COMPARED: Nanos = Nanos::from_millis(100);
/// What a Linux kernel offers at first (`net.ipv4.tcp_rmem`, half of its 128 KiB).
const FIRST_WINDOW: Bytes = Bytes(64 << 10);
/// A receive buffer that nobody ordered holds no more that is not read, whatever window its kernel offers.
const MOST_UNREAD: Bytes = Bytes(1 << 20);
/// A request to tune is answered within this: settings of a slow device.
const TUNE_WITHIN: Duration = Duration::from_secs(30);
/// How long a busy agent is waited for.
const BUSY_FOR: Duration = Duration::from_secs(120);

/// A control connection that serves many runs, one after the other. Dropping it says good-bye.
pub struct PeerLink {
    agent: ChannelSender<ControllerRole>,
    name: String,
    /// This host's key and the agent's id, where both are authenticated.
    keys: Option<(Identity, NodeId)>,
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
        }
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
        let spec = run.spec.clone();
        let at_once = match spec.directions {
            Directions::Bidirectional => 2,
            _ => 1,
        };
        let mut drive = Drive {
            link: self,
            run,
            watcher,
            stop,
            started: Instant::now(),
        };
        for group in spec.directions.legs().chunks(at_once) {
            if !stop.load(Ordering::Relaxed) {
                drive.group(&spec, group)?;
            }
        }
        Ok(())
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

/// One run over a link.
struct Drive<'a> {
    link: &'a mut PeerLink,
    run: &'a mut Run,
    watcher: &'a mut dyn Watcher,
    stop: &'a AtomicBool,
    started: Instant,
}

/// A leg under way.
struct LegState {
    /// Position in the run.
    index: usize,
    leg: Leg,
    order: LegOrder,
    /// The samples of each side, to be signed.
    reported: [Statement; 2],
    /// Of its data connections, once it is granted.
    token: Option<Token>,
    local: ConnectStage,
    remote: ConnectStage,
    began: bool,
    /// A busy agent is asked again then.
    ask_again: Option<Instant>,
    /// Starts this host's side.
    go: Option<mpsc::Sender<()>>,
    /// Ends it early.
    stop: Arc<AtomicBool>,
    /// The request to stop was sent to the agent.
    stop_sent: bool,
    /// It never began because another leg of its group could not, whose failure is reported.
    cancelled: bool,
    failure: Option<anyhow::Error>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ConnectStage {
    Opening,
    Connected,
    Running,
    Over,
}

impl Drive<'_> {
    /// Plays the legs of `directions` at once.
    fn group(&mut self, spec: &Spec, directions: &[Direction]) -> Result<()> {
        let mut legs = Vec::new();
        for (index, &direction) in (self.run.legs.len()..).zip(directions) {
            let order = LegOrder {
                outage: self.link.outage,
                ..leg_order(spec, self.link.next_leg, direction)
            };
            self.link.next_leg += 1;
            legs.push(LegState::new(index, direction, order));
        }
        let outcome = self.run_legs(&mut legs);
        let mut outcome = outcome.and(self.end(&mut legs));
        for leg_state in legs.iter_mut().filter(|f| f.leg.remote.trace.is_some()) {
            if let Err(why) = self.fetch(leg_state) {
                leg_state.leg.remote.trace = None;
                let warning = traces::untraced("the remote host", &why);
                self.warn(&mut leg_state.leg.remote, vec![warning]);
            }
        }
        for leg_state in legs {
            let never_began = self.finish_leg(leg_state, outcome.as_ref().err());
            outcome = outcome.and(never_began);
        }
        outcome
    }

    /// Has the agent send the trace of its end, in pieces, a few of them on their way at once.
    fn fetch(&mut self, leg_state: &LegState) -> Result<()> {
        let (ours, index) = (leg_state.order.leg, leg_state.index);
        let until = Instant::now() + FETCH_WITHIN;
        let (mut bytes, mut asked) = (Vec::new(), 0);
        let what = "fetching the remote host's trace";
        self.watcher.event(&Progress::Waiting { what });
        loop {
            while asked < MAX_OPEN_FETCHES / 2 {
                self.link.send(ToAgent::Fetch { leg: ours })?;
                asked += 1;
            }
            if self.stop.load(Ordering::Relaxed) {
                bail!("stopped while it was being fetched");
            }
            if Instant::now() >= until {
                bail!("it did not come within {FETCH_WITHIN:?}");
            }
            match self.link.recv(STOP_WITHIN) {
                Some(Incoming::Remote(ToController::Piece { leg, data })) if leg == ours => {
                    asked -= 1;
                    let piece = BASE64.decode(data).context("a piece of it is damaged")?;
                    if piece.is_empty() {
                        break;
                    }
                    bytes.extend_from_slice(&piece);
                    if bytes.len() > LARGEST_TRACE {
                        bail!("it is larger than {}", Bytes(LARGEST_TRACE as u64));
                    }
                }
                Some(Incoming::Ended(ended)) => return Err(self.link.lost(&ended)),
                _ => {}
            }
        }
        self.watcher.event(&Progress::Traced {
            index,
            side: Side::Remote,
            bytes: &bytes,
        });
        Ok(())
    }

    fn run_legs(&mut self, legs: &mut [LegState]) -> Result<()> {
        let patience = Instant::now() + BUSY_FOR;
        let mut silence = outages::Silence::begin();
        for leg_state in legs.iter() {
            self.link.open(&leg_state.order)?;
        }
        while legs.iter().any(|f| !f.is_over()) {
            if self.stop.load(Ordering::Relaxed) {
                if legs.iter().all(|f| !f.began) {
                    bail!(Refusal::interrupted("stopped before the load began"));
                }
                for leg_state in legs.iter_mut() {
                    leg_state.stop.store(true, Ordering::Relaxed);
                    self.stop_remote(leg_state)?;
                }
                // Nobody who has stopped waits for the end of an outage.
                if silence.is_long() {
                    self.link.agent.close("");
                    bail!(Refusal::interrupted(format!(
                        "stopped; {} is silent: what it measured is missing",
                        self.link.name
                    )));
                }
            }
            self.retry_requests(legs)?;
            let running = legs.iter().any(|f| f.began);
            if let Some(what) = silence
                .goes_on(&self.link.name, self.link.outage)
                .filter(|_| running)
            {
                self.watcher.event(&Progress::Waiting { what: &what });
            }
            match self.link.recv(STOP_WITHIN) {
                Some(Incoming::Local(leg, what)) => self.local(legs, leg, what),
                Some(Incoming::Remote(message)) => {
                    silence = outages::Silence::begin();
                    self.remote(legs, message, patience)?;
                }
                Some(Incoming::Ended(ended)) => return Err(self.link.lost(&ended)),
                None => {}
            }
            self.settle(legs)?;
        }
        Ok(())
    }

    /// Ends what is still under way and receives the last messages of both sides: they belong to the run,
    /// and the next run begins on an idle link. The protocol has a deadline for the agent's.
    fn end(&mut self, legs: &mut [LegState]) -> Result<()> {
        for leg_state in legs.iter_mut() {
            leg_state.stop.store(true, Ordering::Relaxed);
            leg_state.go = None;
            if leg_state.local != ConnectStage::Running {
                leg_state.local = ConnectStage::Over;
            }
        }
        let mut outcome = Ok(());
        loop {
            for leg_state in legs.iter_mut() {
                // A lost link is noticed by the receiver below.
                let _ = self.stop_remote(leg_state);
            }
            let local = legs.iter().any(|f| f.local != ConnectStage::Over);
            let remote =
                legs.iter().any(|f| f.remote != ConnectStage::Over) && self.link.ended.is_none();
            if !local && !remote {
                return outcome;
            }
            match self.link.recv(measure::LOST_AFTER) {
                Some(Incoming::Local(leg, what)) => self.local(legs, leg, what),
                // Why an order that is not wanted any more was refused does not matter.
                Some(Incoming::Remote(message)) => drop(self.remote(legs, message, Instant::now())),
                Some(Incoming::Ended(ended)) => outcome = Err(self.link.lost(&ended)),
                None if remote => {}
                None => return outcome,
            }
        }
    }

    /// Requests once that the agent ends its part of a leg.
    fn stop_remote(&mut self, leg_state: &mut LegState) -> Result<()> {
        if leg_state.ask_again.take().is_some() {
            // There is nothing of it there.
            leg_state.remote = ConnectStage::Over;
        }
        if leg_state.remote == ConnectStage::Over
            || std::mem::replace(&mut leg_state.stop_sent, true)
        {
            return Ok(());
        }
        let leg = leg_state.order.leg;
        self.link.send(ToAgent::Stop { leg })
    }

    /// Starts the legs once all connections of all of them stand; passes a failure on.
    fn settle(&mut self, legs: &mut [LegState]) -> Result<()> {
        let connected = |f: &LegState| {
            f.local == ConnectStage::Connected && f.remote == ConnectStage::Connected
        };
        if !legs.is_empty() && legs.iter().all(connected) {
            if legs[0].index == 0 {
                self.watcher.event(&Progress::Hosts {
                    local: &self.run.local,
                    remote: self.run.remote.as_ref(),
                });
            }
            for leg_state in legs.iter_mut() {
                leg_state.leg.started = Nanos::from(self.started.elapsed());
                let (index, direction) = (leg_state.index, leg_state.leg.direction);
                if self.run.spec.workload.is_answered() && self.run.spec.workload.has_storage() {
                    let what = "the blocks are made ready";
                    self.watcher.event(&Progress::Waiting { what });
                }
                self.watcher
                    .event(&Progress::LegStarted { index, direction });
                let leg = leg_state.order.leg;
                self.link.send(ToAgent::Start { leg })?;
                if let Some(go) = leg_state.go.take() {
                    // A thread that is gone has left its reason in the inbox.
                    let _ = go.send(());
                }
                (leg_state.local, leg_state.remote, leg_state.began) =
                    (ConnectStage::Running, ConnectStage::Running, true);
            }
        }
        // One leg that cannot begin keeps the others of its group from ever starting.
        let failed = legs.iter().any(|f| f.failure.is_some() && !f.began);
        for leg_state in legs.iter_mut() {
            if failed
                && matches!(
                    leg_state.local,
                    ConnectStage::Opening | ConnectStage::Connected
                )
            {
                leg_state.cancelled = true;
                leg_state.fail(anyhow!("the other direction could not begin"));
            }
            if leg_state.failure.is_some() {
                self.stop_remote(leg_state)?;
            }
        }
        Ok(())
    }

    fn retry_requests(&mut self, legs: &mut [LegState]) -> Result<()> {
        for leg_state in legs {
            if leg_state.ask_again.is_some_and(|at| at <= Instant::now()) {
                leg_state.ask_again = None;
                self.link.open(&leg_state.order)?;
            }
        }
        Ok(())
    }

    /// Takes what happens at one end of a leg.
    fn happened(&mut self, leg: &mut LegState, side: Side, what: Happened) {
        let index = leg.index;
        match what {
            Happened::Connected(sockets, warnings) => {
                if let Some(socket) = sockets.first() {
                    let remote = socket.remote.ip();
                    match side {
                        Side::Local => self.link.addresses = vec![remote],
                        Side::Remote => self.link.seen_as = Some(remote),
                    }
                }
                let (end, stage) = leg.end(side);
                end.sockets = sockets;
                if *stage == ConnectStage::Opening {
                    *stage = ConnectStage::Connected;
                }
                self.warn(end, warnings);
            }
            Happened::Sample(sample) => {
                self.watcher.event(&Progress::Sample {
                    index,
                    side,
                    sample: &sample,
                });
                if self.link.keys.is_some() {
                    leg.reported[side as usize].sample(&sample);
                }
                let streams = leg.order.streams;
                leg.end(side).0.push(*sample, streams);
            }
            Happened::Over(played) => {
                if let Some(bytes) = &played.trace {
                    let bytes = bytes.as_slice();
                    self.watcher.event(&Progress::Traced { index, side, bytes });
                }
                let (end, stage) = leg.end(side);
                merge(end, played.record);
                *stage = ConnectStage::Over;
                if let Some(why) = played.broke {
                    leg.fail(anyhow!(why));
                }
            }
            Happened::Failed(error) => {
                *leg.end(side).1 = ConnectStage::Over;
                leg.fail(error);
            }
        }
    }

    /// Takes what this host's end reports.
    fn local(&mut self, legs: &mut [LegState], number: u32, what: Happened) {
        // An end that came too late to be waited for may still report in a later run.
        if let Some(leg) = legs.iter_mut().find(|leg| leg.order.leg == number) {
            self.happened(leg, Side::Local, what);
        }
    }

    /// Takes a message of the agent.
    fn remote(
        &mut self,
        legs: &mut [LegState],
        message: ToController,
        patience: Instant,
    ) -> Result<()> {
        let Some(leg_state) =
            leg_of(&message).and_then(|leg| legs.iter_mut().find(|f| f.order.leg == leg))
        else {
            return Ok(());
        };
        match message {
            // It crossed our stop; the agent's last word follows.
            ToController::Granted { .. } if leg_state.stop_sent => {}
            ToController::Granted {
                port,
                token,
                order,
                warnings,
                ..
            } => {
                let token = Token::from_hex(&token)
                    .with_context(|| format!("{} sent a token that is none", self.link.name))?;
                leg_state.token = Some(token);
                self.warn(&mut leg_state.leg.remote, warnings);
                if leg_state.order.trace && !order.trace {
                    let name = &self.link.name;
                    let why = anyhow!("{name} runs a linerate that cannot: install this version");
                    let warning = traces::untraced("the remote host", &why);
                    self.warn(&mut leg_state.leg.remote, vec![warning]);
                }
                let order = within(&leg_state.order, &order).map_err(|granted| {
                    Refusal::unreachable(format!(
                        "{} granted more than was ordered: {granted}",
                        self.link.name
                    ))
                })?;
                let order = LegOrder {
                    // Which files are used here, this end alone decides.
                    workload: self.run.spec.workload.clone(),
                    ..order
                };
                let dial = Dial {
                    addresses: self.link.addresses.clone(),
                    port,
                    token,
                    settings: SocketSettings {
                        congestion: congestion(
                            &self.run.spec,
                            leg_state.leg.direction,
                            Side::Local,
                        ),
                        ..asked(&order)
                    },
                    placement: self.run.spec.local.clone(),
                    is_udp: order.workload.is_udp(),
                };
                leg_state.go = Some(local_end(order, dial, leg_state, self.link.post.clone()));
            }
            ToController::Busy { wait, why, .. } => {
                let why = format!("{} is busy: {why}", self.link.name);
                if leg_state.stop_sent || Instant::now() >= patience {
                    leg_state.remote = ConnectStage::Over;
                    bail!(Refusal::unreachable(why));
                }
                let wait =
                    Duration::from(wait).clamp(Duration::from_millis(200), Duration::from_secs(1));
                leg_state.ask_again = Some(Instant::now() + wait);
                self.watcher.event(&Progress::Waiting { what: &why });
            }
            ToController::Refused { why, .. } => {
                leg_state.remote = ConnectStage::Over;
                bail!(self.link.refuses(&why));
            }
            ToController::Connected { sockets, .. }
                if sockets.len() != sampled(&leg_state.order) =>
            {
                leg_state.fail(anyhow!(
                    "{} reports {} data connections where {} are to be",
                    self.link.name,
                    sockets.len(),
                    sampled(&leg_state.order)
                ));
            }
            ToController::Connected {
                sockets,
                fingerprint,
                warnings,
                ..
            } => {
                self.run.remote.get_or_insert(*fingerprint);
                self.happened(
                    leg_state,
                    Side::Remote,
                    Happened::Connected(sockets, warnings),
                );
            }
            ToController::Sample { sample, .. } => {
                match bounded(&sample, leg_state, self.started.elapsed().into()) {
                    Ok(()) => self.happened(leg_state, Side::Remote, Happened::Sample(sample)),
                    Err(why) => leg_state.fail(anyhow!("{} {why}", self.link.name)),
                }
            }
            ToController::Finished {
                mut record, broke, ..
            } => {
                // An agent reports these in samples, or not at all.
                record.retransmits = None;
                let is_udp = leg_state.order.workload.is_udp();
                record.datagrams = record.datagrams.filter(|_| is_udp);
                record.arrivals = record.arrivals.filter(|_| is_udp);
                record.operations.truncate(MOST_OPERATIONS);
                let played = LegResult {
                    record: *record,
                    broke: broke.map(|why| format!("{}: {why}", self.link.name)),
                    ..LegResult::default()
                };
                self.happened(leg_state, Side::Remote, Happened::Over(Box::new(played)));
            }
            ToController::Failed { why, .. } => {
                let why = anyhow!("{}: {why}", self.link.name);
                self.happened(leg_state, Side::Remote, Happened::Failed(why));
            }
            _ => {}
        }
        Ok(())
    }

    /// Signs this host's record of a leg, and compares the remote host's with its signature; why that fails, if it does.
    fn sign(&self, leg_state: &mut LegState) -> Option<String> {
        let (Some((own_key, remote_id)), Some(token)) = (&self.link.keys, &leg_state.token) else {
            leg_state.leg.remote.signed = None;
            return None;
        };
        let leg = &mut leg_state.leg;
        let [local, remote] = std::mem::take(&mut leg_state.reported);
        let sent = leg.direction.sender() == Side::Local;
        let signed = local.sign(own_key, token, sent, &leg.local, &leg.local.sockets);
        leg.local.signed = Some(signed);
        let signed = leg.remote.signed.as_ref()?;
        let holds = signature::is_of(signed, *remote_id, token)
            && signature::check(remote, leg, Side::Remote, signed).is_ok();
        (!holds).then(|| {
            format!(
                "{} signed something else than it reported: the figures are those of this host alone",
                self.link.name
            )
        })
    }

    fn warn(&mut self, end: &mut EndRecord, warnings: Vec<Warning>) {
        for warning in &warnings {
            self.watcher.event(&Progress::Warning { warning });
        }
        end.warnings.extend(warnings);
    }

    /// Puts a finished leg into the run.
    ///
    /// # Errors
    /// The failure of a leg that moved nothing: there is nothing of it to keep.
    fn finish_leg(
        &mut self,
        mut leg_state: LegState,
        session: Option<&anyhow::Error>,
    ) -> Result<()> {
        if leg_state.cancelled {
            return Ok(());
        }
        // A storage error is the cause of whatever the peer saw of the connection.
        let failed = |end: &EndRecord| {
            let copy = end.copy.as_ref().and_then(|copy| copy.failed.clone());
            copy.or_else(|| end.store.as_ref()?.failed.clone())
        };
        let leg = &leg_state.leg;
        if let Some(why) = failed(&leg.local).or_else(|| failed(&leg.remote)) {
            leg_state.failure = Some(anyhow!(why));
        }
        let forged = self.sign(&mut leg_state);
        if leg_state.failure.is_none()
            && let Some(why) =
                forged.or_else(|| disputed(&self.run.spec, &leg_state.leg, &self.link.name))
        {
            // The figures that are left are those of this end.
            let remote = &mut leg_state.leg.remote;
            *remote = EndRecord {
                sockets: std::mem::take(&mut remote.sockets),
                warnings: std::mem::take(&mut remote.warnings),
                ..EndRecord::default()
            };
            leg_state.failure = Some(anyhow!(why));
        }
        let silences = outages::warnings(&self.run.spec, &leg_state.leg);
        self.warn(&mut leg_state.leg.local, silences);
        let moved = leg_state.leg.local.bytes + leg_state.leg.remote.bytes > Bytes(0);
        if !leg_state.began || (leg_state.failure.is_some() && !moved) {
            return leg_state.failure.map_or(Ok(()), Err);
        }
        leg_state.leg.ended = match session.or(leg_state.failure.as_ref()) {
            Some(error) => failed_with(error),
            None if self.stop.load(Ordering::Relaxed) => Ended::Interrupted,
            None => Ended::Complete,
        };
        self.watcher.event(&Progress::LegEnded {
            index: leg_state.index,
            leg: &leg_state.leg,
        });
        self.run.legs.push(leg_state.leg);
        Ok(())
    }
}

impl LegState {
    fn new(index: usize, direction: Direction, order: LegOrder) -> LegState {
        let leg = Leg {
            direction,
            started: Nanos(0),
            local: EndRecord::default(),
            remote: EndRecord::default(),
            ended: Ended::Unfinished,
        };
        LegState {
            index,
            leg,
            order,
            reported: Default::default(),
            token: None,
            local: ConnectStage::Opening,
            remote: ConnectStage::Opening,
            began: false,
            ask_again: None,
            go: None,
            stop: Arc::default(),
            stop_sent: false,
            cancelled: false,
            failure: None,
        }
    }

    fn end(&mut self, side: Side) -> (&mut EndRecord, &mut ConnectStage) {
        match side {
            Side::Local => (&mut self.leg.local, &mut self.local),
            Side::Remote => (&mut self.leg.remote, &mut self.remote),
        }
    }

    fn is_over(&self) -> bool {
        self.local == ConnectStage::Over && self.remote == ConnectStage::Over
    }

    /// Ends this host's end, as far as it has begun; what it has seen is kept.
    fn fail(&mut self, why: anyhow::Error) {
        self.failure.get_or_insert(why);
        self.stop.store(true, Ordering::Relaxed);
        // Without a go, its thread ends at once.
        self.go = None;
        if self.local != ConnectStage::Running {
            self.local = ConnectStage::Over;
        }
    }
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

/// The order as granted: that of this host, with the smaller limit and pacing of the remote host's rules.
///
/// # Errors
/// What of the grant is more than was ordered.
fn within(ordered: &LegOrder, granted: &LegOrder) -> Result<LegOrder, String> {
    let limit = match (ordered.limit, granted.limit) {
        (LegLimit::Time(asked), LegLimit::Time(time)) if time <= asked => granted.limit,
        (LegLimit::Bytes(asked), LegLimit::Bytes(bytes)) if bytes <= asked => granted.limit,
        (LegLimit::Requests(asked), LegLimit::Requests(count)) if count <= asked => granted.limit,
        (LegLimit::Whole, LegLimit::Whole) => LegLimit::Whole,
        (_, LegLimit::Time(time)) => return Err(time.to_string()),
        (_, LegLimit::Bytes(bytes)) => return Err(bytes.to_string()),
        (_, LegLimit::Requests(count)) => return Err(format!("{count} requests")),
        (_, LegLimit::Whole) => return Err("all of the source".to_owned()),
    };
    if granted.streams != ordered.streams {
        return Err(format!("{} streams", granted.streams));
    }
    let pacing = match (ordered.socket.pacing, granted.socket.pacing) {
        (Some(_), None) => return Err("no pacing".to_owned()),
        (Some(asked), Some(pacing)) if pacing > asked => {
            return Err(format!("pacing at {pacing}"));
        }
        (_, pacing) => pacing,
    };
    Ok(LegOrder {
        limit,
        socket: SocketSettings {
            pacing,
            ..ordered.socket.clone()
        },
        ..ordered.clone()
    })
}

/// Connections of a leg whose sockets are reported.
fn sampled(order: &LegOrder) -> usize {
    (order.streams as usize).min(MOST_SAMPLED)
}

/// Whether a sample of the remote host, taken in now, can be one of this leg.
///
/// # Errors
/// The rest of a sentence about that host.
fn bounded(sample: &Sample, leg_state: &LegState, now: Nanos) -> Result<(), String> {
    let (ordered, count) = (sampled(&leg_state.order), sample.streams.len());
    if count > ordered {
        return Err(format!(
            "sent a sample of {count} streams where {ordered} are to be"
        ));
    }
    // This host may have been suspended meanwhile.
    if sample.at > LATEST_SAMPLE {
        return Err(format!(
            "sent a sample of {}, which no leg reaches",
            sample.at
        ));
    }
    let interval = leg_state.order.interval.max(Nanos::from_millis(1));
    let due = now.since(leg_state.leg.started).0 / interval.0;
    if leg_state.leg.remote.taken() > 2 * due + MORE_SAMPLES {
        return Err("sent more samples than there was time for".to_owned());
    }
    Ok(())
}

/// Why the remote host's counts of a transfer cannot be, if they cannot: it received more, or sooner, than this host's kernel
/// took to send, or sent less than arrived here.
fn disputed(spec: &Spec, leg: &Leg, name: &str) -> Option<String> {
    if spec.workload.is_answered() {
        return None;
    }
    let (sent, received) = (leg.sender().bytes, leg.receiver().bytes);
    if leg.direction == Direction::Down && sent > Bytes(0) && received > sent {
        return Some(format!(
            "the remote host claims to have sent {sent}, this host received {received} from {name}: \
             the figures are those of this host alone"
        ));
    }
    let counts = leg.direction == Direction::Up;
    let samples = leg.remote.samples.iter().map(|sample| sample.bytes);
    let claimed = samples.chain([leg.remote.bytes]).max()?;
    let sent = leg.local.bytes;
    let took = leg.local.duration.since(unread_at_first(spec, &leg.local));
    // The sender of a copy also waits for storage at both hosts.
    // A path may have lost all datagrams for most of the time.
    let sooner = !matches!(spec.workload, Workload::Copy(_) | Workload::Udp(_))
        && leg.remote.bytes > Bytes(0)
        && took > SHORTEST_COMPARED
        && leg.remote.duration < Nanos(took.0 / 2);
    let of_this_kernel = "the figures are those of this host alone";
    let packets = leg.local.datagrams.map_or(0, |sent| sent.packets);
    if counts
        && spec.workload.is_udp()
        && let Some(claims) = datagrams::impossible(&leg.remote, packets)
    {
        return Some(format!(
            "the remote host claims {claims} to {name}: {of_this_kernel}"
        ));
    }
    match counts {
        true if sent > Bytes(0) && claimed > sent => Some(format!(
            "the remote host claims {claimed}, this kernel sent {sent} to {name}: {of_this_kernel}"
        )),
        true if sooner => Some(format!(
            "the remote host claims to have received for {}, this kernel sent for {took} what no receive buffer holds to {name}: \
             {of_this_kernel}",
            leg.remote.duration
        )),
        _ => None,
    }
}

/// How long after the beginning all that the remote kernel had acknowledged fitted its receive buffers: a program that began
/// late has read it at once.
fn unread_at_first(spec: &Spec, sender: &EndRecord) -> Nanos {
    let most = spec
        .socket
        .receive_buffer
        .unwrap_or(MOST_UNREAD)
        .max(MOST_UNREAD);
    // Acknowledged and offered by each socket. What opened the connections was acknowledged before.
    let unread = |sample: &Sample| -> Option<bool> {
        let mut firsts = sender.samples.first()?.streams.iter();
        let mut fits = true;
        for stream in &sample.streams {
            let acked = |stream: &StreamSample| stream.tcp.as_ref()?.bytes_acked();
            let offered = stream.tcp.as_ref()?.snd_wnd().unwrap_or(FIRST_WINDOW);
            let since = acked(stream)?.since(acked(firsts.next()?)?);
            fits &= since <= offered.clamp(FIRST_WINDOW, most);
        }
        Some(fits)
    };
    let last = (sender.samples.iter())
        .take_while(|sample| unread(sample) == Some(true))
        .last();
    last.map_or(Nanos(0), |sample| sample.at)
}

fn leg_of(message: &ToController) -> Option<u32> {
    match message {
        ToController::Granted { leg, .. }
        | ToController::Busy { leg, .. }
        | ToController::Refused { leg, .. }
        | ToController::Connected { leg, .. }
        | ToController::Sample { leg, .. }
        | ToController::Finished { leg, .. }
        | ToController::Failed { leg, .. } => Some(*leg),
        _ => None,
    }
}

/// Starts the thread of this host's side, which plays the order as granted: it connects,
/// waits for the go, and runs.
fn local_end(
    order: LegOrder,
    dial: Dial,
    leg_state: &LegState,
    post: mpsc::Sender<Incoming>,
) -> mpsc::Sender<()> {
    let (go, gone) = mpsc::channel();
    let (leg, stop) = (leg_state.order.leg, Arc::clone(&leg_state.stop));
    std::thread::spawn(move || {
        // A controller that is over receives nothing more and needs nothing more.
        let report = |what| drop(post.send(Incoming::Local(leg, what)));
        match play(&order, dial, &gone, &stop, &report) {
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
    go: &mpsc::Receiver<()>,
    stop: &AtomicBool,
    report: &dyn Fn(Happened),
) -> Result<Option<LegResult>> {
    let storage =
        storage(order, Side::Local, &Reach::Anywhere).map_err(|e| Refusal::usage(e.to_string()))?;
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
    let job = job(order, Side::Local, &cpus, storage, &token, || {
        let open = move |stream| dial.open(stream).map_err(std::io::Error::other);
        Reconnect::Connect(Arc::new(open))
    });
    let mut on_sample = |sample| report(Happened::Sample(Box::new(sample)));
    let played = end.play(job, sockets, order, &token, stop, &mut on_sample);
    let played = played.map_err(|error| error.downcast().map_or_else(|other| other, refusal))?;
    Ok(Some(played))
}

/// How to open a data connection of one leg.
struct Dial {
    /// In order of preference; never empty.
    addresses: Vec<IpAddr>,
    port: u16,
    token: Token,
    settings: SocketSettings,
    placement: Placement,
    /// Streams of datagrams, not connections.
    is_udp: bool,
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
}

impl Dial {
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
mod tests;

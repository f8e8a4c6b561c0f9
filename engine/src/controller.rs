//! The controller's side: drives an agent through the legs of one run after another, and keeps what
//! both ends saw.

use crate::exit::{Refusal, sentence};
use crate::leg::{end_trace, inspect, job, run_end, storage, traced};
use crate::progress::{Event as Progress, Watcher};
use crate::traces;
use crate::transport::{Ended as SessionEnd, Event, Reached, Sender};
use anyhow::{Context, Result, anyhow, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use measure::Reconnect;
use measure::storage::Reach;
use model::{
    Bytes, Direction, Directions, EndRecord, Ended, Leg, Nanos, Placement, Reading, Run, Sample,
    Side, SocketOptions, SocketSettings, Spec, Warning,
};
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use wire::control::{
    Controller, MAX_OPEN_FETCHES, Order, Origin, Preamble, ToAgent, ToController, Token,
};
use wire::control::{ProbeAnswer, ProbeRequest, TuneRequest};

/// A data connection stands by then, or never will.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// How often the listener looks whether it is still wanted; events come at once.
const LISTEN: Duration = Duration::from_secs(1);
/// How soon Ctrl-C is noticed.
const STOP_WITHIN: Duration = Duration::from_millis(50);
/// What this end is called in what is shown.
const NEAR: &str = "this host";
/// The far host's trace has come by then, or is done without.
const FETCH_WITHIN: Duration = Duration::from_secs(120);
/// Largest trace that is taken from an agent, compressed.
const LARGEST_TRACE: usize = 64 << 20;
/// How long a busy agent is waited for.
const BUSY_FOR: Duration = Duration::from_secs(120);

/// A control connection that serves many runs, one after the other. Dropping it says good-bye.
pub struct Link {
    agent: Sender<Controller>,
    name: String,
    /// Where the data listeners are; the one that answered, once one has. Never empty.
    addresses: Vec<IpAddr>,
    post: mpsc::Sender<Told>,
    inbox: mpsc::Receiver<Told>,
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
    /// How the session ended, once that was heard.
    ended: Option<SessionEnd>,
}

impl Link {
    /// Over the control connection of an agent that was reached.
    pub fn new(reached: Reached) -> Link {
        let Reached { channel, addresses } = reached;
        let (post, inbox) = mpsc::channel();
        let (agent, name) = (channel.sender(), channel.peer().to_owned());
        let far = post.clone();
        let listener = std::thread::spawn(move || {
            loop {
                match channel.recv(LISTEN) {
                    Some(Event::Message(message)) => drop(far.send(Told::Far(message))),
                    // A controller that is over has hung up itself.
                    Some(Event::Ended(ended)) => return drop(far.send(Told::Ended(ended))),
                    None => {}
                }
            }
        });
        Link {
            agent,
            name,
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
        }
    }

    /// Plays the legs of `run.spec` over fresh data connections. They are put into `run` even when
    /// this ends in an error, so that what was seen until then is kept. `stop` ends the run, not the
    /// link: when this returns both ends are quiet, or the link is lost.
    ///
    /// # Errors
    /// If the agent refuses, is lost or speaks out of turn, or data connections cannot be made.
    /// [`Link::is_lost`] tells whether another run may follow.
    pub fn measure(
        &mut self,
        run: &mut Run,
        watcher: &mut dyn Watcher,
        stop: &AtomicBool,
    ) -> Result<()> {
        let spec = run.spec.clone();
        let groups: Vec<&[Direction]> = match spec.directions {
            Directions::Bidirectional => vec![spec.directions.legs()],
            _ => spec.directions.legs().chunks(1).collect(),
        };
        let started = Instant::now();
        let mut drive = Drive {
            link: self,
            run,
            watcher,
            stop,
            started,
        };
        groups.into_iter().try_for_each(|group| {
            if stop.load(Ordering::Relaxed) {
                Ok(())
            } else {
                drive.group(&spec, group)
            }
        })
    }

    /// Has the agent read or change its machine's settings, between runs or during one. It undoes
    /// what it has changed when the link ends, in whatever way.
    ///
    /// # Errors
    /// If the agent refuses, is lost, or does not answer within this time; every sentence names it.
    pub fn tune(&mut self, request: TuneRequest, within: Duration) -> Result<Vec<Reading>> {
        self.tunes += 1;
        let ours = self.tunes;
        self.tell(ToAgent::Tune {
            number: ours,
            origin: Origin {
                address: self.near_address(),
                place: crate::tuning::place(),
            },
            request,
        })?;
        let until = Instant::now() + within;
        loop {
            match self.hear(until.saturating_duration_since(Instant::now())) {
                Some(Told::Far(ToController::Tuned {
                    number,
                    mut readings,
                    shared,
                })) if number == ours => {
                    self.shares_machine = shared;
                    for reading in &mut readings {
                        reading.side = Side::Far;
                    }
                    return Ok(readings);
                }
                Some(Told::Far(ToController::TuneRefused { number, why })) if number == ours => {
                    let why = format!("{} refuses: {why}", self.name);
                    return Err(Refusal::unreachable(why).into());
                }
                Some(Told::Ended(ended)) => return Err(lost(&ended)),
                // An answer that came too late, the last word of an end that was not waited for.
                Some(_) => {}
                None => {
                    let why = format!("{} did not answer a request to tune in time", self.name);
                    return Err(Refusal::unreachable(why).into());
                }
            }
        }
    }

    /// Has the agent find out something of the path; the number under which it will answer.
    ///
    /// # Errors
    /// If the agent is lost.
    pub fn ask(&mut self, request: ProbeRequest) -> Result<u64> {
        self.probes += 1;
        let number = self.probes;
        self.tell(ToAgent::Probe { number, request })?;
        Ok(number)
    }

    /// The answer to [`Link::ask`]. `meanwhile` is called every few milliseconds.
    ///
    /// # Errors
    /// If the agent refuses, is lost, or does not answer within this time.
    pub fn answer(
        &mut self,
        ours: u64,
        within: Duration,
        meanwhile: &mut dyn FnMut(),
    ) -> Result<ProbeAnswer> {
        let until = Instant::now() + within;
        while Instant::now() < until {
            match self.hear(Duration::from_millis(2)) {
                Some(Told::Far(ToController::Probed { number, answer })) if number == ours => {
                    return Ok(answer);
                }
                Some(Told::Far(ToController::ProbeRefused { number, why })) if number == ours => {
                    let why = format!("{} refuses: {why}", self.name);
                    return Err(Refusal::unreachable(why).into());
                }
                Some(Told::Ended(ended)) => return Err(lost(&ended)),
                // The last word of something that was not waited for.
                Some(_) => {}
                None => meanwhile(),
            }
        }
        let why = format!("{} did not answer a request to probe in time", self.name);
        Err(Refusal::unreachable(why).into())
    }

    /// Whether the agent said, when it was to take hold of its settings, that it is on this machine
    /// and in this network namespace (as `local` is). Then all settings are this end's to apply: the
    /// agent answers requests without doing anything, and refuses to apply.
    pub fn shares_machine(&self) -> bool {
        self.shares_machine
    }

    /// The far host's address, as data connections from here reach it.
    pub fn far_address(&self) -> IpAddr {
        let first = self.addresses.first();
        *first.expect("whoever was reached has an address")
    }

    /// This host's address, as the agent sees data connections come from it; before the first run
    /// what this host's routes say.
    pub fn near_address(&self) -> Option<IpAddr> {
        self.seen_as.or_else(|| {
            let far = self.far_address();
            let any: IpAddr = match far {
                IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
            };
            // Connecting a UDP socket sends nothing: it asks the kernel for the route.
            let socket = UdpSocket::bind((any, 0)).ok()?;
            socket.connect((far, 9)).ok()?;
            socket.local_addr().ok().map(|address| address.ip())
        })
    }

    /// Whether the session is over: no further run is possible over this link.
    pub fn is_lost(&self) -> bool {
        self.ended.is_some()
    }

    fn tell(&mut self, message: ToAgent) -> Result<()> {
        if self.ended.is_none() {
            self.ended = self.agent.send(message).err();
        }
        match &self.ended {
            Some(ended) => Err(lost(ended)),
            None => Ok(()),
        }
    }

    /// The next thing that is told, within this time.
    fn hear(&mut self, within: Duration) -> Option<Told> {
        let told = self.inbox.recv_timeout(within).ok();
        if let Some(Told::Ended(ended)) = &told {
            self.ended = Some(ended.clone());
        }
        told
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.agent.close("");
        if let Some(listener) = self.listener.take() {
            // Its channel has told the end, so it has returned or is about to.
            let _ = listener.join();
        }
    }
}

fn lost(ended: &SessionEnd) -> anyhow::Error {
    Refusal::unreachable(ended.to_string()).into()
}

/// What the controller hears.
enum Told {
    /// From the thread of this host's end of a leg, by the leg's number.
    Near(u32, Near),
    /// From the agent.
    Far(ToController),
    /// The session is over.
    Ended(SessionEnd),
}

/// What the thread of this host's end of a leg tells.
enum Near {
    Connected(Vec<SocketOptions>, Vec<Warning>),
    Sample(Sample),
    /// The trace of this end.
    Trace(Vec<u8>),
    /// The record, and why the load broke if it did.
    Over(Box<EndRecord>, Option<String>),
    /// It never began.
    Failed(anyhow::Error),
}

/// One run over a link.
struct Drive<'a> {
    link: &'a mut Link,
    run: &'a mut Run,
    watcher: &'a mut dyn Watcher,
    stop: &'a AtomicBool,
    started: Instant,
}

/// A leg under way.
struct Flight {
    /// Position in the run.
    index: usize,
    leg: Leg,
    order: Order,
    near: Stage,
    far: Stage,
    began: bool,
    /// A busy agent is asked again then.
    ask_again: Option<Instant>,
    /// Tells this host's end to begin.
    go: Option<mpsc::Sender<()>>,
    /// Tells it to end early.
    stop: Arc<AtomicBool>,
    /// The agent was told so.
    told_stop: bool,
    /// It never began because another leg of its group could not, whose failure is the one to tell.
    gave_way: bool,
    failure: Option<anyhow::Error>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Opening,
    Connected,
    Running,
    Over,
}

impl Drive<'_> {
    /// Plays the legs of `directions` at once.
    fn group(&mut self, spec: &Spec, directions: &[Direction]) -> Result<()> {
        let first = self.run.legs.len();
        let mut flights: Vec<Flight> = (first..)
            .zip(directions)
            .map(|(index, direction)| {
                let number = self.link.next_leg;
                self.link.next_leg += 1;
                Flight::new(index, *direction, order(spec, number, *direction))
            })
            .collect();
        let outcome = self.fly(&mut flights);
        let mut outcome = outcome.and(self.end(&mut flights));
        for flight in flights.iter_mut().filter(|f| f.leg.far.trace.is_some()) {
            if let Err(why) = self.fetch(flight) {
                flight.leg.far.trace = None;
                let warning = traces::untraced("the far host", &why);
                self.warn(&mut flight.leg.far, vec![warning]);
            }
        }
        for flight in flights {
            let never_began = self.land(flight, outcome.as_ref().err());
            outcome = outcome.and(never_began);
        }
        outcome
    }

    /// Has the agent send the trace of its end, in pieces, a few of them on their way at once.
    fn fetch(&mut self, flight: &Flight) -> Result<()> {
        let (ours, index) = (flight.order.leg, flight.index);
        let until = Instant::now() + FETCH_WITHIN;
        let (mut bytes, mut asked) = (Vec::new(), 0);
        self.watcher
            .event(&Progress::Waiting("fetching the far host's trace"));
        loop {
            while asked < MAX_OPEN_FETCHES / 2 {
                self.link.tell(ToAgent::Fetch { leg: ours })?;
                asked += 1;
            }
            if self.stop.load(Ordering::Relaxed) {
                bail!("stopped while it was being fetched");
            }
            if Instant::now() >= until {
                bail!("it did not come within {FETCH_WITHIN:?}");
            }
            match self.link.hear(STOP_WITHIN) {
                Some(Told::Far(ToController::Piece { leg, data })) if leg == ours => {
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
                Some(Told::Ended(ended)) => return Err(lost(&ended)),
                _ => {}
            }
        }
        self.watcher.event(&Progress::Traced {
            index,
            side: Side::Far,
            bytes: &bytes,
        });
        Ok(())
    }

    fn fly(&mut self, flights: &mut [Flight]) -> Result<()> {
        let patience = Instant::now() + BUSY_FOR;
        for flight in flights.iter() {
            self.link.tell(ToAgent::Open {
                order: Box::new(flight.order.clone()),
            })?;
        }
        while flights.iter().any(|f| !f.is_over()) {
            if self.stop.load(Ordering::Relaxed) {
                if flights.iter().all(|f| !f.began) {
                    return Err(Refusal::interrupted("stopped before the load began").into());
                }
                for flight in flights.iter_mut() {
                    flight.stop.store(true, Ordering::Relaxed);
                    self.stop_far(flight)?;
                }
            }
            self.ask_again(flights)?;
            match self.link.hear(STOP_WITHIN) {
                Some(Told::Near(leg, what)) => self.near(flights, leg, what),
                Some(Told::Far(message)) => self.far(flights, message, patience)?,
                Some(Told::Ended(ended)) => return Err(lost(&ended)),
                None => {}
            }
            self.settle(flights)?;
        }
        Ok(())
    }

    /// Ends what is under way still and hears the last words of both ends: they belong to the run,
    /// and the next one finds the link quiet. The protocol has a deadline for the agent's.
    fn end(&mut self, flights: &mut [Flight]) -> Result<()> {
        for flight in flights.iter_mut() {
            flight.stop.store(true, Ordering::Relaxed);
            flight.go = None;
            if flight.near != Stage::Running {
                flight.near = Stage::Over;
            }
        }
        let mut outcome = Ok(());
        loop {
            for flight in flights.iter_mut() {
                // A link that is lost was heard to be.
                let _ = self.stop_far(flight);
            }
            let near = flights.iter().any(|f| f.near != Stage::Over);
            let far = flights.iter().any(|f| f.far != Stage::Over) && self.link.ended.is_none();
            if !near && !far {
                return outcome;
            }
            match self.link.hear(measure::LOST_AFTER) {
                Some(Told::Near(leg, what)) => self.near(flights, leg, what),
                // Why an order that is not wanted any more was refused does not matter.
                Some(Told::Far(message)) => drop(self.far(flights, message, Instant::now())),
                Some(Told::Ended(ended)) => outcome = Err(lost(&ended)),
                None if far => {}
                None => return outcome,
            }
        }
    }

    /// Has the agent end its part of a leg; told once.
    fn stop_far(&mut self, flight: &mut Flight) -> Result<()> {
        if flight.ask_again.take().is_some() {
            // There is nothing of it there.
            flight.far = Stage::Over;
        }
        if flight.far == Stage::Over || std::mem::replace(&mut flight.told_stop, true) {
            return Ok(());
        }
        let leg = flight.order.leg;
        self.link.tell(ToAgent::Stop { leg })
    }

    /// Starts the legs once all connections of all of them stand; passes a failure on.
    fn settle(&mut self, flights: &mut [Flight]) -> Result<()> {
        let connected = |f: &Flight| f.near == Stage::Connected && f.far == Stage::Connected;
        if !flights.is_empty() && flights.iter().all(connected) {
            if flights[0].index == 0 {
                self.watcher.event(&Progress::Hosts {
                    near: &self.run.near,
                    far: self.run.far.as_ref(),
                });
            }
            for flight in flights.iter_mut() {
                flight.leg.started = Nanos::from(self.started.elapsed());
                let (index, direction) = (flight.index, flight.leg.direction);
                if self.run.spec.workload.is_answered()
                    && self.run.spec.workload.order().has_storage()
                {
                    self.watcher
                        .event(&Progress::Waiting("the blocks are made ready"));
                }
                self.watcher
                    .event(&Progress::LegStarted { index, direction });
                self.link.tell(ToAgent::Start {
                    leg: flight.order.leg,
                })?;
                if let Some(go) = flight.go.take() {
                    // A thread that is gone has left its reason in the inbox.
                    let _ = go.send(());
                }
                (flight.near, flight.far, flight.began) = (Stage::Running, Stage::Running, true);
            }
        }
        // One leg that cannot begin keeps the others of its group from ever starting.
        let failed = flights.iter().any(|f| f.failure.is_some() && !f.began);
        for flight in flights.iter_mut() {
            if failed && matches!(flight.near, Stage::Opening | Stage::Connected) {
                flight.gave_way = true;
                flight.fail(anyhow!("the other direction could not begin"));
            }
            if flight.failure.is_some() {
                self.stop_far(flight)?;
            }
        }
        Ok(())
    }

    fn ask_again(&mut self, flights: &mut [Flight]) -> Result<()> {
        for flight in flights {
            if flight.ask_again.is_some_and(|at| at <= Instant::now()) {
                flight.ask_again = None;
                self.link.tell(ToAgent::Open {
                    order: Box::new(flight.order.clone()),
                })?;
            }
        }
        Ok(())
    }

    /// Takes what this host's end tells.
    fn near(&mut self, flights: &mut [Flight], leg: u32, what: Near) {
        // An end that came too late to be waited for may still speak in a later run.
        let Some(flight) = flights.iter_mut().find(|f| f.order.leg == leg) else {
            return;
        };
        let index = flight.index;
        match what {
            Near::Connected(sockets, warnings) => {
                if let Some(socket) = sockets.first() {
                    self.link.addresses = vec![socket.remote.ip()];
                }
                flight.leg.near.sockets = sockets;
                self.warn(&mut flight.leg.near, warnings);
                if flight.near == Stage::Opening {
                    flight.near = Stage::Connected;
                }
            }
            Near::Sample(sample) => {
                let side = Side::Near;
                self.watcher.event(&Progress::Sample {
                    index,
                    side,
                    sample: &sample,
                });
                flight.leg.near.samples.push(sample);
            }
            Near::Trace(bytes) => self.watcher.event(&Progress::Traced {
                index,
                side: Side::Near,
                bytes: &bytes,
            }),
            Near::Over(record, broke) => {
                keep(&mut flight.leg.near, *record);
                flight.near = Stage::Over;
                if let Some(why) = broke {
                    flight.fail(anyhow!(why));
                }
            }
            Near::Failed(error) => {
                flight.near = Stage::Over;
                flight.fail(error);
            }
        }
    }

    /// Takes what the agent tells.
    fn far(
        &mut self,
        flights: &mut [Flight],
        message: ToController,
        patience: Instant,
    ) -> Result<()> {
        let Some(flight) =
            leg_of(&message).and_then(|leg| flights.iter_mut().find(|f| f.order.leg == leg))
        else {
            return Ok(());
        };
        match message {
            // It crossed our stop; the agent's last word follows.
            ToController::Granted { .. } if flight.told_stop => {}
            ToController::Granted {
                port,
                token,
                order,
                warnings,
                ..
            } => {
                let token = Token::from_hex(&token)
                    .with_context(|| format!("{} sent a token that is none", self.link.name))?;
                self.warn(&mut flight.leg.far, warnings);
                if flight.order.trace && !order.trace {
                    let why = anyhow!(
                        "{} runs a linerate that cannot: install this version",
                        self.link.name
                    );
                    let warning = traces::untraced("the far host", &why);
                    self.warn(&mut flight.leg.far, vec![warning]);
                }
                let order = Order {
                    trace: flight.order.trace,
                    // Which files are used here, this end alone decides.
                    workload: self.run.spec.workload.clone(),
                    ..*order
                };
                let placement = self.run.spec.near.clone();
                let settings = SocketSettings {
                    congestion: congestion(&self.run.spec, flight.leg.direction, Side::Near),
                    ..order.socket.clone()
                };
                let dial = Dial {
                    addresses: self.link.addresses.clone(),
                    port,
                    token,
                    settings,
                    placement,
                };
                flight.go = Some(near_end(order, dial, flight, self.link.post.clone()));
            }
            ToController::Busy { wait, why, .. } => {
                let why = format!("{} is busy: {why}", self.link.name);
                if flight.told_stop || Instant::now() >= patience {
                    flight.far = Stage::Over;
                    return Err(Refusal::unreachable(why).into());
                }
                let wait =
                    Duration::from(wait).clamp(Duration::from_millis(200), Duration::from_secs(1));
                flight.ask_again = Some(Instant::now() + wait);
                self.watcher.event(&Progress::Waiting(&why));
            }
            ToController::Refused { why, .. } => {
                flight.far = Stage::Over;
                let why = format!("{} refuses: {why}", self.link.name);
                return Err(Refusal::unreachable(why).into());
            }
            ToController::Connected {
                sockets,
                fingerprint,
                warnings,
                ..
            } => {
                if let Some(socket) = sockets.first() {
                    self.link.seen_as = Some(socket.remote.ip());
                }
                flight.leg.far.sockets = sockets;
                self.warn(&mut flight.leg.far, warnings);
                self.run.far.get_or_insert(*fingerprint);
                if flight.far == Stage::Opening {
                    flight.far = Stage::Connected;
                }
            }
            ToController::Sample { sample, .. } => {
                let (index, side) = (flight.index, Side::Far);
                self.watcher.event(&Progress::Sample {
                    index,
                    side,
                    sample: &sample,
                });
                flight.leg.far.samples.push(*sample);
            }
            ToController::Finished { record, broke, .. } => {
                keep(&mut flight.leg.far, *record);
                flight.far = Stage::Over;
                if let Some(why) = broke {
                    flight.fail(anyhow!("{}: {why}", self.link.name));
                }
            }
            ToController::Failed { why, .. } => {
                flight.far = Stage::Over;
                flight.fail(anyhow!("{}: {why}", self.link.name));
            }
            _ => {}
        }
        Ok(())
    }

    fn warn(&mut self, end: &mut EndRecord, warnings: Vec<Warning>) {
        for warning in &warnings {
            self.watcher.event(&Progress::Warning(warning));
        }
        end.warnings.extend(warnings);
    }

    /// Puts a finished leg into the run.
    ///
    /// # Errors
    /// The failure of a leg that moved nothing: there is nothing of it to keep.
    fn land(&mut self, mut flight: Flight, session: Option<&anyhow::Error>) -> Result<()> {
        if flight.gave_way {
            return Ok(());
        }
        // What storage says is the reason of what the other end saw of the connection.
        let storage = [&flight.leg.near, &flight.leg.far]
            .into_iter()
            .find_map(|end| {
                let copy = end.copy.as_ref().and_then(|copy| copy.failed.clone());
                copy.or_else(|| end.store.as_ref()?.failed.clone())
            });
        if let Some(why) = storage {
            flight.failure = Some(anyhow!(why));
        }
        let moved = flight.leg.near.bytes + flight.leg.far.bytes > Bytes(0);
        if !flight.began || (flight.failure.is_some() && !moved) {
            return flight.failure.map_or(Ok(()), Err);
        }
        flight.leg.ended = match session.or(flight.failure.as_ref()) {
            Some(error) => Ended::Failed {
                why: sentence(error),
            },
            None if self.stop.load(Ordering::Relaxed) => Ended::Interrupted,
            None => Ended::Complete,
        };
        self.watcher.event(&Progress::LegEnded {
            index: flight.index,
            leg: &flight.leg,
        });
        self.run.legs.push(flight.leg);
        Ok(())
    }
}

impl Flight {
    fn new(index: usize, direction: Direction, order: Order) -> Flight {
        let leg = Leg {
            direction,
            started: Nanos(0),
            near: EndRecord::default(),
            far: EndRecord::default(),
            ended: Ended::Unfinished,
        };
        Flight {
            index,
            leg,
            order,
            near: Stage::Opening,
            far: Stage::Opening,
            began: false,
            ask_again: None,
            go: None,
            stop: Arc::default(),
            told_stop: false,
            gave_way: false,
            failure: None,
        }
    }

    fn is_over(&self) -> bool {
        self.near == Stage::Over && self.far == Stage::Over
    }

    /// Ends this host's end, as far as it has begun; what it has seen is kept.
    fn fail(&mut self, why: anyhow::Error) {
        self.failure.get_or_insert(why);
        self.stop.store(true, Ordering::Relaxed);
        // Without a go, its thread ends at once.
        self.go = None;
        if self.near != Stage::Running {
            self.near = Stage::Over;
        }
    }
}

/// Adds what the end of a load knows to what its beginning knew.
fn keep(end: &mut EndRecord, record: EndRecord) {
    let EndRecord {
        bytes,
        duration,
        requests,
        operations,
        datagrams,
        copy,
        store,
        line,
        trace,
        warnings,
        ..
    } = record;
    (end.bytes, end.duration, end.requests, end.datagrams) = (bytes, duration, requests, datagrams);
    (end.operations, end.copy, end.store, end.trace) = (operations, copy, store, trace);
    end.line = line;
    end.warnings.extend(warnings);
}

fn order(spec: &Spec, leg: u32, direction: Direction) -> Order {
    Order {
        leg,
        agent_sends: direction.sender() == Side::Far,
        workload: spec
            .workload
            .clone()
            .without_own_files(direction.sender() == Side::Far),
        streams: spec.streams,
        limit: spec.limit,
        interval: spec.interval,
        trace: spec.trace,
        socket: SocketSettings {
            congestion: congestion(spec, direction, Side::Far),
            ..spec.socket.clone()
        },
        placement: spec.far.clone(),
    }
}

/// The congestion control to set on one side: a host that only receives does not need to have it.
fn congestion(spec: &Spec, direction: Direction, side: Side) -> Option<String> {
    let sends = direction.sender() == side || spec.workload.is_answered();
    spec.socket.congestion.clone().filter(|_| sends)
}

fn leg_of(message: &ToController) -> Option<u32> {
    match message {
        ToController::Granted { leg, .. }
        | ToController::Busy { leg, .. }
        | ToController::Refused { leg, .. }
        | ToController::Connected { leg, .. }
        | ToController::Sample { leg, .. }
        | ToController::Finished { leg, .. }
        | ToController::Failed { leg, .. }
        | ToController::Piece { leg, .. } => Some(*leg),
        ToController::Tuned { .. }
        | ToController::TuneRefused { .. }
        | ToController::Probed { .. }
        | ToController::ProbeRefused { .. }
        | ToController::Hello { .. }
        | ToController::Pong { .. }
        | ToController::Bye { .. } => None,
    }
}

/// Starts the thread of this host's end, which plays the order as it was granted: it connects,
/// waits for the go, and runs.
fn near_end(
    order: Order,
    dial: Dial,
    flight: &Flight,
    post: mpsc::Sender<Told>,
) -> mpsc::Sender<()> {
    let (go, gone) = mpsc::channel();
    let (leg, stop) = (flight.order.leg, Arc::clone(&flight.stop));
    std::thread::spawn(move || {
        // A controller that is over hears no more, and needs nothing more.
        let say = |what| drop(post.send(Told::Near(leg, what)));
        match play(&order, dial, &gone, &stop, &say) {
            Ok(Some((record, broke))) => say(Near::Over(Box::new(record), broke)),
            Ok(None) => {}
            Err(error) => say(Near::Failed(error)),
        }
    });
    go
}

/// This host's end of a leg; `None` if it was never told to go.
fn play(
    order: &Order,
    mut dial: Dial,
    go: &mpsc::Receiver<()>,
    stop: &AtomicBool,
    say: &dyn Fn(Near),
) -> Result<Option<(EndRecord, Option<String>)>> {
    let storage =
        storage(order, Side::Near, &Reach::Anywhere).map_err(|e| Refusal::usage(e.to_string()))?;
    let (tracing, untraced) = traced(order, dial.port, NEAR);
    let mut sockets = vec![dial.first()?];
    for stream in 1..order.streams {
        sockets.push(dial.open(stream)?);
    }
    let (states, mut warnings) = inspect(&sockets, &dial.settings, NEAR)?;
    warnings.extend(untraced);
    if let Some(tracing) = &tracing {
        tracing.own(&states);
    }
    say(Near::Connected(states, warnings));
    if go.recv().is_err() {
        return Ok(None);
    }
    let cpus = dial.placement.cpus.clone();
    let job = job(order, Side::Near, &cpus, storage, || {
        let open = move |stream| dial.open(stream).map_err(std::io::Error::other);
        Reconnect::Connect(Arc::new(open))
    });
    let (mut record, broke) = run_end(job, sockets, order.interval, stop, &mut |sample| {
        say(Near::Sample(sample))
    })
    .map_err(|error| error.downcast().map_or_else(|other| other, refusal))?;
    if let Some(trace) = end_trace(tracing, &mut record, NEAR) {
        say(Near::Trace(trace));
    }
    Ok(Some((record, broke)))
}

/// How to open a data connection of one leg.
struct Dial {
    /// In order of preference; never empty.
    addresses: Vec<IpAddr>,
    port: u16,
    token: Token,
    settings: SocketSettings,
    placement: Placement,
}

impl Dial {
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
        Err(failure.unwrap_or_else(|| anyhow!("the far host has no address")))
    }

    fn open(&self, stream: u32) -> Result<TcpStream> {
        let address = self
            .addresses
            .first()
            .context("the far host has no address")?;
        let remote = SocketAddr::new(*address, self.port);
        let mut socket = measure::connect(remote, &self.settings, &self.placement, CONNECT_WITHIN)
            .map_err(refusal)?;
        let preamble = Preamble {
            token: self.token,
            stream,
        };
        socket
            .write_all(&preamble.encode())
            .context("cannot write to a data connection")?;
        Ok(socket)
    }
}

/// An option that the kernel does not take is wrong usage; a peer out of reach is not.
fn refusal(error: measure::Error) -> anyhow::Error {
    let sentence = error.to_string();
    match error {
        measure::Error::Option { .. } | measure::Error::Range { .. } => {
            Refusal::usage(sentence).into()
        }
        measure::Error::Refused(_)
        | measure::Error::Timeout { .. }
        | measure::Error::Unreachable { .. } => Refusal::unreachable(sentence).into(),
        other => other.into(),
    }
}

#[cfg(test)]
mod tests;

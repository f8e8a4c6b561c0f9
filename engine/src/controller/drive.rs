//! One run over a link: its legs from their orders to their records.

use super::claims::{bounded, disputed, sampled, within};
use super::local_end::{Dial, local_end};
use super::{Happened, Incoming, PeerLink, congestion, leg_order};
use crate::host_calendar::{BUSY_FOR, LegHold};
use crate::leg::{LegResult, asked, failed_with, merge};
use crate::outages;
use crate::prelude::*;
use crate::progress::Event as Progress;
use crate::signature::{self, Statement};
use crate::traces;
use crate::trust::{Admitted, Denied};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use measure::storage::Reach;
use model::Directions;
use wire::control::{MAX_OPEN_FETCHES, ToAgent};

/// The remote host's trace has come by then, or is done without.
const FETCH_WITHIN: Duration = Duration::from_secs(120);
/// Largest trace that is taken from an agent, compressed.
const LARGEST_TRACE: usize = 64 << 20;
/// Operations that the remote host may report: more than there are.
const MOST_OPERATIONS: usize = 64;
/// Two hosts that wait for each other do not ask again at the same moment: by up to so much later.
const APART: Duration = Duration::from_millis(500);
/// How soon Ctrl-C is noticed.
const STOP_WITHIN: Duration = Duration::from_millis(50);

/// Plays the legs of a run, those in both directions at once together.
pub(super) fn play(
    link: &mut PeerLink,
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
        link,
        run,
        watcher,
        stop,
        started: Instant::now(),
        unit: None,
    };
    for group in spec.directions.legs().chunks(at_once) {
        if !stop.load(Ordering::Relaxed) {
            drive.group(&spec, group)?;
        }
    }
    Ok(())
}

/// One run over a link.
struct Drive<'a> {
    link: &'a mut PeerLink,
    run: &'a mut Run,
    watcher: &'a mut dyn Watcher,
    stop: &'a AtomicBool,
    started: Instant,
    /// In the calendar of this host, for the legs under way.
    unit: Option<LegHold>,
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
    /// The limits that this end keeps for who ordered the leg.
    admitted: Option<Arc<Admitted>>,
    /// The request to stop was sent to the agent.
    stop_sent: bool,
    /// It never began because another leg of its group could not, whose failure is reported.
    cancelled: bool,
    failure: Option<anyhow::Error>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
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
            let mut leg_state = LegState::new(index, direction, order);
            if let Some(peer) = &self.link.orderer {
                let admitted = admit(peer, &mut leg_state.order, &self.link.name)?;
                let warnings = admitted.warnings.clone();
                self.warn(&mut leg_state.leg.local, warnings);
                leg_state.admitted = Some(Arc::new(admitted));
            }
            legs.push(leg_state);
        }
        let outcome = self.run_legs(&mut legs);
        let mut outcome = outcome.and(self.end(&mut legs));
        self.unit = None;
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
        for leg_state in legs.iter_mut() {
            leg_state.ask_again = Some(Instant::now());
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
            self.request(legs, patience)?;
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
        legs.iter_mut().for_each(LegState::stop_local);
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
        let connected = |f: &LegState| [f.local, f.remote] == [ConnectStage::Connected; 2];
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
            if failed && leg_state.local < ConnectStage::Running {
                leg_state.cancelled = true;
                leg_state.fail(anyhow!("the other direction could not begin"));
            }
            if leg_state.failure.is_some() {
                self.stop_remote(leg_state)?;
            }
        }
        Ok(())
    }

    /// Orders the legs whose time has come, with a unit of this host's calendar.
    fn request(&mut self, legs: &mut [LegState], patience: Instant) -> Result<()> {
        for leg_state in legs {
            if leg_state.ask_again.is_some_and(|at| at <= Instant::now()) {
                if self.unit.is_none() {
                    let name = self.run.spec.workload.kind().name;
                    let what = format!("{name} with {}", self.link.name);
                    let leg = (leg_state.order.limit, what.as_str());
                    let unit = &mut self.link.unit;
                    let (unit, warning) = unit.wait(leg, patience, self.watcher, self.stop)?;
                    self.unit = unit;
                    self.warn(&mut leg_state.leg.local, warning.into_iter().collect());
                }
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
                self.warn(&mut leg_state.leg.remote, warnings);
                self.granted(leg_state, port, &token, &order)?;
            }
            ToController::Busy { wait, why, .. } => {
                let why = format!("{} is busy: {why}", self.link.name);
                if leg_state.stop_sent || Instant::now() >= patience {
                    leg_state.remote = ConnectStage::Over;
                    bail!(Refusal::unreachable(why));
                }
                let wait =
                    Duration::from(wait).clamp(Duration::from_millis(200), Duration::from_secs(1));
                // Who waits keeps nobody waiting, above all not the agent's host for this one.
                let apart = match self.unit.take() {
                    Some(_) => APART * u32::from(crate::chance::bytes::<1>()?[0]) / 255,
                    None => Duration::ZERO,
                };
                leg_state.ask_again = Some(Instant::now() + wait + apart);
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
                let now = self.started.elapsed().into();
                match bounded(&sample, &leg_state.order, &leg_state.leg, now) {
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

    /// Starts this host's end of a leg as the agent granted it.
    fn granted(
        &mut self,
        leg_state: &mut LegState,
        port: u16,
        token: &str,
        order: &LegOrder,
    ) -> Result<()> {
        let name = &self.link.name;
        let token =
            Token::from_hex(token).with_context(|| format!("{name} sent a token that is none"))?;
        leg_state.token = Some(token);
        if leg_state.order.trace && !order.trace {
            let why = anyhow!("{name} runs a linerate that cannot: install this version");
            let warning = traces::untraced("the remote host", &why);
            self.warn(&mut leg_state.leg.remote, vec![warning]);
        }
        let name = &self.link.name;
        let order = within(&leg_state.order, order).map_err(|granted| {
            Refusal::unreachable(format!("{name} granted more than was ordered: {granted}"))
        })?;
        let order = LegOrder {
            // Which files are used here, this end alone decides.
            workload: self.run.spec.workload.clone(),
            ..order
        };
        let direction = leg_state.leg.direction;
        let file = order.workload.file(direction.sender() == Side::Local);
        let reach = match &self.link.orderer {
            Some(peer) => peer.reach(file).map_err(Refusal::usage)?,
            None => Reach::Anywhere,
        };
        let dial = Dial {
            addresses: self.link.addresses.clone(),
            port,
            token,
            settings: SocketSettings {
                congestion: congestion(&self.run.spec, direction, Side::Local),
                ..asked(&order)
            },
            placement: self.run.spec.local.clone(),
            is_udp: order.workload.is_udp(),
            reach,
        };
        let stop = Arc::clone(&leg_state.stop);
        let limits = leg_state.admitted.clone();
        leg_state.go = Some(local_end(order, dial, limits, stop, self.link.post.clone()));
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

/// Requests a leg that another host ordered: the order becomes as small as its limits at this host are.
fn admit(peer: &Peer, order: &mut LegOrder, towards: &str) -> Result<Admitted> {
    let ours = LegOrder {
        agent_sends: !order.agent_sends,
        ..order.clone()
    };
    match peer.admit_as(&format!("leg {} towards {towards}", order.leg), &ours) {
        Ok(admitted) => {
            let LegOrder {
                limit,
                interval,
                socket,
                ..
            } = admitted.order.clone();
            (order.limit, order.interval, order.socket) = (limit, interval, socket);
            Ok(admitted)
        }
        Err(Denied::Busy { why, .. } | Denied::Refused(why)) => bail!(Refusal::unreachable(why)),
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
            admitted: None,
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
        self.stop_local();
    }

    fn stop_local(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Without a go, its thread ends at once.
        self.go = None;
        if self.local != ConnectStage::Running {
            self.local = ConnectStage::Over;
        }
    }
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

#[cfg(test)]
mod tests;

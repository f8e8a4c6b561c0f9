//! The coordinator's side of measurements between two other hosts: holds both, has one measure towards the other, and
//! fetches what that one kept.

use crate::clock::wait_until;
use crate::controller::{Directed, PeerLink};
use crate::host::Host;
use crate::prelude::*;
use crate::transport::How;
use crate::trust::{NodeId, sha256};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use model::mtu::MtuRecord;
use wire::control::direct::{
    Destination, DirectAnswer, DirectRequest, DirectedRun, LightPort, MAX_DOCUMENT, MAX_SPAN,
    PlayEvent, SlotRole,
};

/// For every answer but that to a request to play.
const ANSWERED_WITHIN: Duration = Duration::from_secs(30);

/// Set aside for the beginning and the end of each leg, and of the slot.
const AROUND_A_LEG: Nanos = Nanos::from_secs(3);
const AROUND_A_SLOT: Nanos = Nanos::from_secs(2);

/// The slot of a run that ends by an amount, not by a time.
const UNKNOWN_SPAN: Nanos = Nanos::from_secs(600);

/// An unconfirmed hold ends by itself after this.
const TTL: Nanos = Nanos::from_secs(30);

/// A busy host is asked again after this at the latest.
const AGAIN: Duration = Duration::from_secs(2);

/// How soon Ctrl-C is noticed.
const LOOK: Duration = Duration::from_millis(100);

/// Two agents with a slot between them.
pub struct Pair<'a> {
    /// Measures.
    pub source: &'a mut PeerLink,
    /// Is measured.
    pub destination: &'a mut PeerLink,
}

/// A run between two other hosts.
pub struct PairOrder<'a> {
    /// Name of the slot and of the run: 32 random hexadecimal digits.
    pub slot: String,
    /// What to measure.
    pub spec: Spec,
    /// The path MTU instead, in the version of IP of the spec.
    pub is_mtu: bool,
    /// Name and port by which the source reaches the destination.
    pub to: (String, u16),
    /// Longest outage of the path that the legs are to survive.
    pub outage: Nanos,
    /// A note kept with the run.
    pub title: Option<String>,
    /// How long busy hosts are waited for.
    pub patience: Duration,
    /// No host is held for longer.
    pub ends: Option<Instant>,
    /// Called once both hosts are confirmed; nothing is measured if it fails.
    pub confirmed: &'a dyn Fn() -> Result<()>,
    /// Called once the source has its order: it measures to the end, also where this process ends.
    pub ordered: &'a dyn Fn(),
}

impl PairOrder<'_> {
    /// For a source whose destination has this key.
    fn request(&self, id: NodeId) -> DirectRequest {
        let (slot, (name, port)) = (self.slot.clone(), self.to.clone());
        let to = Destination { name, port, id };
        match self.is_mtu {
            true => DirectRequest::Mtu {
                slot,
                to,
                ip_version: self.spec.socket.ip_version,
            },
            false => DirectRequest::Play {
                slot,
                spec: Box::new(self.spec.clone()),
                to,
                outage: self.outage,
                title: self.title.clone(),
            },
        }
    }
}

/// What came of a slot, as its source keeps it.
#[derive(Debug)]
pub enum SlotResult {
    /// Of a measurement.
    Run(Box<Run>),
    /// Of a search for the path MTU.
    Mtu(Box<MtuRecord>),
}

impl SlotResult {
    /// The run, where one was ordered.
    pub fn run(self) -> Option<Run> {
        match self {
            SlotResult::Run(run) => Some(*run),
            SlotResult::Mtu(_) => None,
        }
    }
}

/// A host that is busy for longer than it is waited for.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub struct HostBusy {
    /// A sentence that names it.
    pub why: String,
    /// When it should be free.
    pub free_in: Nanos,
}

/// How long a slot for this is.
///
/// # Errors
/// If it is longer than a slot may be.
pub fn span(spec: &Spec) -> Result<Nanos, Refusal> {
    let rounds = u64::from(spec.directions.rounds());
    let span = match spec.limit {
        LegLimit::Time(time) => {
            let leg = time.0.saturating_add(AROUND_A_LEG.0);
            Nanos(leg.saturating_mul(rounds).saturating_add(AROUND_A_SLOT.0))
        }
        _ => UNKNOWN_SPAN,
    };
    match span > MAX_SPAN {
        true => Err(Refusal::usage(format!(
            "{span} for the run: two other hosts are held for up to {MAX_SPAN}; use a shorter --time"
        ))),
        false => Ok(span),
    }
}

/// The agent of a host that is to be directed, or measured by another one.
///
/// # Errors
/// If it is no agent of these kinds, or cannot be reached.
pub fn connect(host: &Host, how: &How<'_>) -> Result<(PeerLink, (String, u16))> {
    let how = &How {
        coordinates: true,
        ..how.clone()
    };
    match host {
        Host::Agent { name, port } => {
            let link = PeerLink::new(host.connect(how)?);
            Ok((link, (name.clone(), *port)))
        }
        Host::Ssh { .. } => {
            let mut link = PeerLink::new(host.connect(how)?);
            let name = link.remote_address().to_string();
            match ask_now(&mut link, DirectRequest::Key)? {
                DirectAnswer::Key { id, port } => Ok((link.with_slot_id(id), (name, port))),
                _ => bail!(out_of_turn(&link)),
            }
        }
        _ => bail!(Refusal::usage(format!(
            "{host} is no agent that another host can measure: run 'linerate serve' there and name it name[:port], or use ssh:[user@]name"
        ))),
    }
}

/// The key of an agent.
///
/// # Errors
/// If it has none: it was not reached over TLS.
pub fn id(agent: &PeerLink) -> Result<NodeId> {
    agent.slot_id().with_context(|| {
        format!(
            "{} shows no key: it must be a 'linerate serve'",
            agent.name()
        )
    })
}

impl Pair<'_> {
    /// Holds both hosts from now on, waiting for busy ones, measures, and returns what the source kept. The hosts are
    /// released in the end, whatever comes of it.
    ///
    /// # Errors
    /// Why nothing was measured; or, once the source has begun, why its result is not known here.
    pub fn measure(
        &mut self,
        order: &PairOrder<'_>,
        watcher: &mut dyn Watcher,
        stop: &AtomicBool,
    ) -> Result<SlotResult> {
        let span = span(&order.spec)?;
        let (source, destination) = (id(self.source)?, id(self.destination)?);
        if source == destination {
            bail!(Refusal::usage(format!(
                "{} and {} are one host: name two",
                self.source.name(),
                self.destination.name()
            )));
        }
        let measured = self
            .hold(order, span, [source, destination], watcher, stop)
            .and_then(|()| (order.confirmed)())
            .and_then(|()| self.play(order, order.request(destination), watcher, stop));
        // A run goes on at a source that is lost, and needs its destination.
        if !self.source.is_lost() {
            for agent in [&mut *self.source, &mut *self.destination] {
                let slot = order.slot.clone();
                // What cannot be released ends by itself.
                let _ = ask_now(agent, DirectRequest::Release { slot });
            }
        }
        measured
    }

    fn hold(
        &mut self,
        order: &PairOrder<'_>,
        span: Nanos,
        [source, destination]: [NodeId; 2],
        watcher: &mut dyn Watcher,
        stop: &AtomicBool,
    ) -> Result<()> {
        let (slot, patience) = (&order.slot, Instant::now() + order.patience);
        let mut said = String::new();
        loop {
            let left = order
                .ends
                .map(|ends| ends.saturating_duration_since(Instant::now()));
            let span = left.map_or(span, |left| span.min(left.into()));
            let files = order.spec.has_files();
            let holds = self.try_hold(slot, (span, files), [source, destination]);
            let Some((why, free_in)) = holds? else {
                break;
            };
            let again = Instant::now() + Duration::from(free_in).min(AGAIN);
            if again >= patience {
                let error = anyhow::Error::from(Refusal::unreachable(why.clone()));
                return Err(error.context(HostBusy { why, free_in }));
            }
            if why != said {
                watcher.event(&Event::Waiting { what: &why });
                said = why;
            }
            if !wait_until(again, stop) {
                bail!(Refusal::interrupted(format!(
                    "stopped before the load began: {said}"
                )));
            }
        }
        confirm(self.source, slot, ANSWERED_WITHIN)?;
        tune::step("source confirmed");
        confirm(self.destination, slot, ANSWERED_WITHIN)?;
        tune::step("destination confirmed");
        Ok(())
    }

    /// Holds both hosts or none; why one is busy, and how long.
    fn try_hold(
        &mut self,
        slot: &str,
        (span, files): (Nanos, bool),
        [source, destination]: [NodeId; 2],
    ) -> Result<Option<(String, Nanos)>> {
        let hold = |agent: &mut PeerLink, peer, role| -> Result<Option<(String, Nanos)>> {
            let request = DirectRequest::Hold {
                slot: slot.to_owned(),
                after: Nanos(0),
                span,
                ttl: TTL,
                peer: Some(peer),
                role,
                files,
            };
            match ask_now(agent, request)? {
                DirectAnswer::Held { .. } => Ok(None),
                DirectAnswer::HoldRefused {
                    why,
                    free_in: Some(free_in),
                } => Ok(Some((format!("{} is busy: {why}", agent.name()), free_in))),
                DirectAnswer::HoldRefused { why, .. } => bail!(refuses(agent, &why)),
                _ => bail!(out_of_turn(agent)),
            }
        };
        if let Some(busy) = hold(self.source, destination, SlotRole::Source)? {
            return Ok(Some(busy));
        }
        tune::step("source held");
        let busy = hold(self.destination, source, SlotRole::Destination)?;
        if busy.is_some() {
            let slot = slot.to_owned();
            ask_now(self.source, DirectRequest::Release { slot })?;
        }
        tune::step("destination held");
        Ok(busy)
    }

    fn play(
        &mut self,
        order: &PairOrder<'_>,
        request: DirectRequest,
        watcher: &mut dyn Watcher,
        stop: &AtomicBool,
    ) -> Result<SlotResult> {
        let number = self.source.direct(request)?;
        (order.ordered)();
        let slot = &order.slot;
        let mut stopped = false;
        let (run, digest) = loop {
            if stop.load(Ordering::Relaxed) && !std::mem::replace(&mut stopped, true) {
                let slot = slot.clone();
                self.source.direct(DirectRequest::Release { slot })?;
            }
            // The protocol has a deadline for the answer.
            match self.source.directed(number, LOOK) {
                Ok(Some(Directed::Answer(DirectAnswer::Played { run, digest }))) => {
                    break (run, digest);
                }
                Ok(Some(Directed::Answer(_))) => bail!(out_of_turn(self.source)),
                Ok(Some(Directed::Progress(event))) => {
                    tune::step("source reports");
                    report(&event, self.source.name(), watcher);
                }
                Ok(None) => {}
                Err(error) if self.source.is_lost() => bail!(Refusal::unreachable(format!(
                    "{error:#}; the run goes on there and is kept: 'linerate runs fetch {}' gets it",
                    self.source.name()
                ))),
                Err(error) => return Err(error),
            }
        };
        tune::step("source done");
        if run != *slot {
            bail!(out_of_turn(self.source));
        }
        let result = fetch(self.source, &run, &digest)?;
        if matches!(result, SlotResult::Mtu(_)) != order.is_mtu {
            bail!(out_of_turn(self.source));
        }
        Ok(result)
    }
}

/// What this host ordered at an agent and is kept there, those behind that number.
///
/// # Errors
/// If it refuses or is lost.
pub fn kept(agent: &mut PeerLink, after: u64) -> Result<Vec<DirectedRun>> {
    match ask_now(agent, DirectRequest::Kept { after })? {
        DirectAnswer::Kept { runs } => Ok(runs),
        _ => bail!(out_of_turn(agent)),
    }
}

/// One of them, which must be what its digest says.
///
/// # Errors
/// If it is not, if it is too large, if the agent refuses or is lost.
pub fn fetch(agent: &mut PeerLink, run: &str, digest: &str) -> Result<SlotResult> {
    let mut document = Vec::new();
    loop {
        let request = DirectRequest::Document {
            run: run.to_owned(),
            from: document.len() as u64,
        };
        let DirectAnswer::Document { data } = ask_now(agent, request)? else {
            bail!(out_of_turn(agent));
        };
        let piece = BASE64.decode(data);
        let piece = piece.with_context(|| format!("{} sent a damaged piece", agent.name()))?;
        if piece.is_empty() {
            break;
        }
        document.extend_from_slice(&piece);
        if document.len() > MAX_DOCUMENT {
            bail!("the run {run} of {} is larger than it may be", agent.name());
        }
    }
    if sha256(&document) != digest {
        bail!(
            "the run {run} that {} sent is not the one that it kept: its SHA-256 differs",
            agent.name()
        );
    }
    let (id, read) = match serde_json::from_slice::<MtuRecord>(&document) {
        Ok(record) => (record.id.clone(), SlotResult::Mtu(Box::new(record))),
        Err(_) => {
            let read = serde_json::from_slice::<Run>(&document);
            let read = read.with_context(|| {
                format!("{} sent a run that this version cannot read", agent.name())
            })?;
            (read.id.clone(), SlotResult::Run(Box::new(read)))
        }
    };
    if id != run {
        bail!("{} sent the run {id} instead of {run}", agent.name());
    }
    Ok(read)
}

/// Holds an agent for light probes from now on, and confirms it: where it answers them.
///
/// # Errors
/// If it refuses, is lost, or does not know them.
pub fn hold_light(
    agent: &mut PeerLink,
    slot: &str,
    span: Nanos,
    within: Duration,
) -> Result<LightPort> {
    let hold = DirectRequest::Hold {
        slot: slot.to_owned(),
        after: Nanos(0),
        span,
        ttl: TTL,
        peer: None,
        role: SlotRole::Light,
        files: false,
    };
    let held = match ask(agent, hold, within, &|| true) {
        Err(error) if agent.is_lost() => {
            return Err(error.context(
                "a linerate that does not know light probes ends the session: install the same version on all hosts",
            ));
        }
        held => held?,
    };
    let port = match held {
        DirectAnswer::Held {
            light: Some(port), ..
        } => port,
        DirectAnswer::HoldRefused { why, .. } => bail!(refuses(agent, &why)),
        _ => bail!(out_of_turn(agent)),
    };
    confirm(agent, slot, within)?;
    Ok(port)
}

fn confirm(agent: &mut PeerLink, slot: &str, within: Duration) -> Result<()> {
    let slot = slot.to_owned();
    match ask(agent, DirectRequest::Confirm { slot }, within, &|| true)? {
        DirectAnswer::Confirmed => Ok(()),
        _ => bail!(out_of_turn(agent)),
    }
}

/// One request and its answer, as long as that is wanted.
///
/// # Errors
/// If the agent refuses, is lost, or does not answer in time.
pub fn ask(
    agent: &mut PeerLink,
    request: DirectRequest,
    within: Duration,
    goes_on: &dyn Fn() -> bool,
) -> Result<DirectAnswer> {
    let number = agent.direct(request)?;
    let until = Instant::now() + within;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match agent.directed(number, left.min(LOOK))? {
            Some(Directed::Answer(answer)) => return Ok(answer),
            Some(Directed::Progress(_)) => bail!(out_of_turn(agent)),
            None if !goes_on() => bail!(Refusal::interrupted("stopped before the answer")),
            None if left.is_zero() => bail!(Refusal::unreachable(format!(
                "{} did not answer in time: try again",
                agent.name()
            ))),
            None => {}
        }
    }
}

/// The same where the answer takes no time.
fn ask_now(agent: &mut PeerLink, request: DirectRequest) -> Result<DirectAnswer> {
    ask(agent, request, ANSWERED_WITHIN, &|| true)
}

fn refuses(agent: &PeerLink, why: &str) -> Refusal {
    Refusal::unreachable(format!("{} refuses: {why}", agent.name()))
}

/// The fault of an answer that is none to the request.
pub fn out_of_turn(agent: &PeerLink) -> Refusal {
    Refusal::unreachable(format!(
        "{} answered out of turn: install the same version of linerate on both hosts",
        agent.name()
    ))
}

/// Passes on what happens at the source.
fn report(event: &PlayEvent, source: &str, watcher: &mut dyn Watcher) {
    match event {
        PlayEvent::LegStarted { leg, direction } => watcher.event(&Event::LegStarted {
            index: *leg as usize,
            direction: *direction,
        }),
        PlayEvent::Sample { leg, side, sample } => watcher.event(&Event::Sample {
            index: *leg as usize,
            side: *side,
            sample,
        }),
        PlayEvent::Warning { warning } => watcher.event(&Event::Warning { warning }),
        PlayEvent::Waiting { what } => watcher.event(&Event::Waiting {
            what: &format!("{source}: {what}"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use model::Directions;

    #[test]
    fn a_slot_is_as_long_as_its_legs_with_what_is_around_them() {
        let of = |directions, limit| {
            span(&Spec {
                directions,
                limit,
                ..Spec::default()
            })
        };
        let time = |seconds| LegLimit::Time(Nanos::from_secs(seconds));
        let seconds = |n| Ok(Nanos::from_secs(n));
        let said = |result: Result<Nanos, Refusal>| result.map_err(|why| why.to_string());
        let span = |directions, limit| said(of(directions, limit));
        assert_eq!(span(Directions::Up, time(10)), seconds(15));
        assert_eq!(span(Directions::Bidirectional, time(10)), seconds(15));
        assert_eq!(span(Directions::UpThenDown, time(10)), seconds(28));
        for limit in [LegLimit::Whole, LegLimit::Requests(1)] {
            assert_eq!(span(Directions::UpThenDown, limit), seconds(600));
        }
        // An hour at most.
        assert_eq!(span(Directions::Up, time(3595)), seconds(3600));
        let why = span(Directions::Up, time(3596)).unwrap_err();
        assert!(why.contains("are held for up to"), "{why}");
        assert!(span(Directions::UpThenDown, LegLimit::Time(Nanos(u64::MAX))).is_err());
    }

    #[test]
    fn what_the_source_reports_is_passed_on_with_its_name() {
        struct Seen(Vec<String>);
        impl Watcher for Seen {
            fn event(&mut self, event: &Event<'_>) {
                self.0.push(match event {
                    Event::LegStarted { index, .. } => format!("leg {index}"),
                    Event::Sample { index, side, .. } => format!("sample {index} {side:?}"),
                    Event::Warning { warning } => warning.what.clone(),
                    Event::Waiting { what } => (*what).to_owned(),
                    _ => panic!("nobody reports that"),
                });
            }
        }
        let mut seen = Seen(Vec::new());
        let warning = model::Warning {
            what: "slow".to_owned(),
            meaning: String::new(),
            remedy: String::new(),
        };
        for event in [
            PlayEvent::LegStarted {
                leg: 1,
                direction: model::Direction::Up,
            },
            PlayEvent::Sample {
                leg: 2,
                side: model::Side::Remote,
                sample: Box::default(),
            },
            PlayEvent::Warning { warning },
            PlayEvent::Waiting {
                what: "busy".to_owned(),
            },
        ] {
            report(&event, "db1", &mut seen);
        }
        assert_eq!(seen.0, ["leg 1", "sample 2 Remote", "slow", "db1: busy"]);
    }

    #[test]
    fn only_agents_are_directed() {
        for host in ["iperf3:db2", "local", "lab:wan", "nfs://nas/x"] {
            let host: Host = host.parse().unwrap();
            let why = connect(&host, &How::default()).err().unwrap().to_string();
            assert!(
                why.contains("is no agent that another host can measure"),
                "{why}"
            );
        }
    }

    use crate::exit::{Exit, exit_of};
    use crate::testing::directed;
    use std::sync::{Arc, Mutex};
    use wire::control::direct::DirectAnswer as Answer;

    const SOURCE: NodeId = NodeId::new([1; 32]);
    const DESTINATION: NodeId = NodeId::new([2; 32]);
    const SLOT: &str = "0123456789abcdef0123456789abcdef";

    /// What agents were requested, in order, as `db1 hold`.
    type Requested = Arc<Mutex<Vec<String>>>;

    fn requested(all: &Requested) -> Vec<String> {
        std::mem::take(&mut *sys::lock(all))
    }

    fn kind(request: &DirectRequest) -> String {
        let json = serde_json::to_value(request).unwrap();
        json["do"].as_str().unwrap().to_owned()
    }

    /// An agent with this key that does what is requested, but for what `other` answers.
    fn agent(
        name: &'static str,
        id: NodeId,
        all: &Requested,
        document: Vec<u8>,
        mut other: impl FnMut(&DirectRequest) -> Option<Answer> + Send + 'static,
    ) -> PeerLink {
        let all = Arc::clone(all);
        let link = directed(name, move |request| {
            sys::lock(&all).push(format!("{name} {}", kind(&request)));
            if let Some(answer) = other(&request) {
                return Some(Ok(answer));
            }
            Some(Ok(match request {
                DirectRequest::Hold { .. } => Answer::Held {
                    id,
                    port: 1,
                    light: None,
                },
                DirectRequest::Confirm { .. } => Answer::Confirmed,
                DirectRequest::Play { slot, .. } | DirectRequest::Mtu { slot, .. } => {
                    Answer::Played {
                        run: slot,
                        digest: sha256(&document),
                    }
                }
                DirectRequest::Document { from, .. } => {
                    let rest = document[from as usize..].iter().take(100);
                    let data = BASE64.encode(rest.copied().collect::<Vec<u8>>());
                    Answer::Document { data }
                }
                _ => Answer::Released,
            }))
        });
        link.with_slot_id(id)
    }

    fn run_document(id: &str) -> Vec<u8> {
        let run = Run {
            id: id.to_owned(),
            host: "db2".to_owned(),
            ..Run::default()
        };
        serde_json::to_vec(&run).unwrap()
    }

    fn order(confirmed: &dyn Fn() -> Result<()>) -> PairOrder<'_> {
        PairOrder {
            slot: SLOT.to_owned(),
            spec: Spec::default(),
            is_mtu: false,
            to: ("db2".to_owned(), 5210),
            outage: Nanos(0),
            title: None,
            patience: Duration::ZERO,
            ends: None,
            confirmed,
            ordered: &|| {},
        }
    }

    struct Said(Vec<String>);

    impl Watcher for Said {
        fn event(&mut self, event: &Event<'_>) {
            if let Event::Waiting { what } = event {
                self.0.push((*what).to_owned());
            }
        }
    }

    /// Measures between these two; what it said meanwhile is given too.
    fn measured(
        source: &mut PeerLink,
        destination: &mut PeerLink,
        order: &PairOrder<'_>,
        stop: &AtomicBool,
    ) -> (Result<Run>, Vec<String>) {
        let mut said = Said(Vec::new());
        let mut pair = Pair {
            source,
            destination,
        };
        let result = pair.measure(order, &mut said, stop);
        (result.map(|result| result.run().unwrap()), said.0)
    }

    const PLAYED: [&str; 8] = [
        "db1 hold",
        "db2 hold",
        "db1 confirm",
        "db2 confirm",
        "db1 play",
        "db1 document",
        "db1 release",
        "db2 release",
    ];

    fn without_pieces(mut all: Vec<String>) -> Vec<String> {
        all.dedup();
        all
    }

    #[test]
    fn both_are_held_and_confirmed_before_the_source_measures_and_released_after() {
        let all = Requested::default();
        let held = Arc::new(Mutex::new(Vec::new()));
        let note = |held: &Arc<Mutex<Vec<DirectRequest>>>| {
            let held = Arc::clone(held);
            move |request: &DirectRequest| {
                if matches!(request, DirectRequest::Hold { .. }) {
                    sys::lock(&held).push(request.clone());
                }
                None
            }
        };
        let mut source = agent("db1", SOURCE, &all, run_document(SLOT), note(&held));
        let mut destination = agent("db2", DESTINATION, &all, Vec::new(), note(&held));
        let go_on = AtomicBool::new(false);
        let is_confirmed = AtomicBool::new(false);
        let confirmed = || {
            is_confirmed.store(true, Ordering::Relaxed);
            Ok(())
        };
        let order = order(&confirmed);
        let (run, said) = measured(&mut source, &mut destination, &order, &go_on);
        assert_eq!(run.unwrap().id, SLOT);
        assert!(said.is_empty() && is_confirmed.load(Ordering::Relaxed));
        assert_eq!(without_pieces(requested(&all)), PLAYED);
        let each = |peer, role| DirectRequest::Hold {
            slot: SLOT.to_owned(),
            after: Nanos(0),
            span: span(&order.spec).unwrap(),
            ttl: TTL,
            peer: Some(peer),
            role,
            files: false,
        };
        assert_eq!(
            *sys::lock(&held),
            [
                each(DESTINATION, SlotRole::Source),
                each(SOURCE, SlotRole::Destination)
            ]
        );
        // The slot is no longer than the hosts may be held.
        sys::lock(&held).clear();
        let short = PairOrder {
            ends: Some(Instant::now() + Duration::from_secs(5)),
            ..order
        };
        let (run, _) = measured(&mut source, &mut destination, &short, &go_on);
        assert!(run.is_ok());
        for hold in sys::lock(&held).iter() {
            let DirectRequest::Hold { span, .. } = hold else {
                panic!("{hold:?}")
            };
            assert!(*span <= Nanos::from_secs(5) && *span > Nanos::from_secs(1));
        }
    }

    #[test]
    fn nothing_is_measured_where_the_booking_fails_and_both_are_released() {
        let all = Requested::default();
        let nothing = |_: &DirectRequest| None;
        let mut source = agent("db1", SOURCE, &all, Vec::new(), nothing);
        let mut destination = agent("db2", DESTINATION, &all, Vec::new(), nothing);
        let go_on = AtomicBool::new(false);
        let lost = || bail!("the calendar is lost");
        let (run, _) = measured(&mut source, &mut destination, &order(&lost), &go_on);
        assert_eq!(run.unwrap_err().to_string(), "the calendar is lost");
        let all = requested(&all);
        assert!(!all.contains(&"db1 play".to_owned()), "{all:?}");
        assert!(all.ends_with(&["db1 release".to_owned(), "db2 release".to_owned()]));
    }

    #[test]
    fn a_busy_destination_frees_the_source_and_is_waited_for_as_long_as_ordered() {
        let go_on = AtomicBool::new(false);
        let fine = || Ok(());
        let busy = |times: usize, free_in: Option<u64>| {
            let mut left = times;
            move |request: &DirectRequest| {
                let is_busy = matches!(request, DirectRequest::Hold { .. }) && left > 0;
                left -= usize::from(is_busy);
                is_busy.then(|| Answer::HoldRefused {
                    why: "it is booked".to_owned(),
                    free_in: free_in.map(Nanos::from_millis),
                })
            }
        };
        let all = Requested::default();
        let nothing = |_: &DirectRequest| None;
        let mut source = agent("db1", SOURCE, &all, run_document(SLOT), nothing);
        let mut of = |times, free_in, patience| {
            let mut busy = agent("db2", DESTINATION, &all, Vec::new(), busy(times, free_in));
            let order = PairOrder {
                patience: Duration::from_millis(patience),
                ..order(&fine)
            };
            let (run, said) = measured(&mut source, &mut busy, &order, &go_on);
            (run, said, without_pieces(requested(&all)))
        };
        let (run, said, all) = of(2, Some(1), 60_000);
        assert!(run.is_ok());
        assert_eq!(said, ["db2 is busy: it is booked"], "said once");
        let again = ["db1 hold", "db2 hold", "db1 release"];
        assert_eq!(all, [&again[..], &again, &PLAYED].concat());
        // It is free only after that.
        let (run, said, all) = of(1, Some(100_000), 1000);
        let error = run.unwrap_err();
        let free = error.downcast_ref::<HostBusy>().unwrap();
        assert_eq!(free.free_in, Nanos::from_secs(100));
        assert_eq!(free.to_string(), "db2 is busy: it is booked");
        assert_eq!(exit_of(&error), Exit::Unreachable);
        assert!(said.is_empty());
        assert_eq!(all, [&again[..], &["db2 release"]].concat());
        // One that never is.
        let (run, _, _) = of(1, None, 60_000);
        let why = run.unwrap_err();
        assert_eq!(why.to_string(), "db2 refuses: it is booked");
        assert!(why.downcast_ref::<HostBusy>().is_none());
    }

    #[test]
    fn a_host_is_not_measured_towards_itself_or_without_a_key() {
        let all = Requested::default();
        let nothing = |_: &DirectRequest| None;
        let (go_on, fine) = (AtomicBool::new(false), || Ok(()));
        let mut one = agent("db1", SOURCE, &all, Vec::new(), nothing);
        let mut same = agent("db2", SOURCE, &all, Vec::new(), nothing);
        let (run, _) = measured(&mut one, &mut same, &order(&fine), &go_on);
        let why = run.unwrap_err().to_string();
        assert_eq!(why, "db1 and db2 are one host: name two");
        let mut keyless = directed("db3", |_| None);
        let (run, _) = measured(&mut one, &mut keyless, &order(&fine), &go_on);
        let why = run.unwrap_err().to_string();
        assert!(why.starts_with("db3 shows no key"), "{why}");
        assert!(requested(&all).is_empty());
    }

    #[test]
    fn a_source_that_is_lost_keeps_its_slot_and_its_destination_too() {
        let all = Requested::default();
        let (go_on, fine) = (AtomicBool::new(false), || Ok(()));
        let mut source = crate::testing::linked("db1", |sender, message| {
            if let wire::control::ToAgent::Direct { number, request } = message {
                let answer = match request {
                    DirectRequest::Hold { .. } => Answer::Held {
                        id: SOURCE,
                        port: 1,
                        light: None,
                    },
                    DirectRequest::Confirm { .. } => Answer::Confirmed,
                    _ => return sender.close("it was stopped"),
                };
                let answer = Ok(answer);
                let _ = sender.send(wire::control::ToController::Directed { number, answer });
            }
        })
        .with_slot_id(SOURCE);
        let mut destination = agent("db2", DESTINATION, &all, Vec::new(), |_| None);
        let (run, _) = measured(&mut source, &mut destination, &order(&fine), &go_on);
        let why = run.unwrap_err().to_string();
        assert!(why.contains("'linerate runs fetch db1' gets it"), "{why}");
        assert_eq!(requested(&all), ["db2 hold", "db2 confirm"]);
    }

    #[test]
    fn what_is_stopped_is_released_at_the_source_which_answers_all_the_same() {
        let all = Requested::default();
        let (stop, fine) = (AtomicBool::new(true), || Ok(()));
        let nothing = |_: &DirectRequest| None;
        let mut source = agent("db1", SOURCE, &all, run_document(SLOT), nothing);
        let mut destination = agent("db2", DESTINATION, &all, Vec::new(), nothing);
        let (run, _) = measured(&mut source, &mut destination, &order(&fine), &stop);
        assert!(run.is_ok());
        let all = without_pieces(requested(&all));
        let played = ["db1 play", "db1 release", "db1 document"].map(str::to_owned);
        assert!(all.windows(3).any(|three| three == played), "{all:?}");
    }

    #[test]
    fn what_is_fetched_is_what_was_kept_under_that_name() {
        let all = Requested::default();
        let whole = run_document(SLOT);
        let digest = sha256(&whole);
        let fetched = |document: Vec<u8>, run: &str, digest: &str| {
            let mut agent = agent("db1", SOURCE, &all, document, |_| None);
            match fetch(&mut agent, run, digest) {
                Ok(SlotResult::Run(run)) => Ok(run.id),
                Ok(SlotResult::Mtu(record)) => Ok(format!("mtu {}", record.id)),
                Err(error) => Err(error.to_string()),
            }
        };
        assert!(whole.len() > 200, "it comes in several pieces");
        assert_eq!(fetched(whole.clone(), SLOT, &digest), Ok(SLOT.to_owned()));
        let pieces = requested(&all).len();
        assert_eq!(pieces, whole.len().div_ceil(100) + 1);
        let why = fetched(whole.clone(), SLOT, "other").unwrap_err();
        assert!(why.contains("its SHA-256 differs"), "{why}");
        let why = fetched(whole.clone(), "another", &digest).unwrap_err();
        assert_eq!(why, format!("db1 sent the run {SLOT} instead of another"));
        let why = fetched(b"{}".to_vec(), SLOT, &sha256(b"[")).unwrap_err();
        assert!(why.contains("differs"), "{why}");
        let why = fetched(b"[".to_vec(), SLOT, &sha256(b"[")).unwrap_err();
        assert!(why.contains("that this version cannot read"), "{why}");
        let damaged = |_: &DirectRequest| {
            let data = "?".to_owned();
            Some(Answer::Document { data })
        };
        let mut agent = agent("db1", SOURCE, &all, Vec::new(), damaged);
        let why = fetch(&mut agent, SLOT, &digest).err().unwrap().to_string();
        assert_eq!(why, "db1 sent a damaged piece");
    }

    #[test]
    fn an_answer_is_waited_for_in_its_time_and_as_long_as_it_is_wanted() {
        let mut silent = directed("db1", |_| None);
        let mut of = |within, goes_on: bool| {
            let error = ask(&mut silent, DirectRequest::Key, within, &|| goes_on).unwrap_err();
            (exit_of(&error), error.to_string())
        };
        let (code, why) = of(Duration::from_millis(20), true);
        assert_eq!(code, Exit::Unreachable);
        assert!(why.contains("did not answer in time"), "{why}");
        let (code, why) = of(Duration::from_secs(3600), false);
        assert_eq!(
            (code, why.as_str()),
            (Exit::Interrupted, "stopped before the answer")
        );
        let mut refuses = directed("db1", |_| Some(Err("no right".to_owned())));
        let why = kept(&mut refuses, 0).unwrap_err().to_string();
        assert_eq!(why, "db1 refuses: no right");
        let mut kept_runs = directed("db1", |request| match request {
            DirectRequest::Kept { after: 3 } => Some(Ok(Answer::Kept { runs: Vec::new() })),
            _ => Some(Ok(Answer::Confirmed)),
        });
        assert_eq!(kept(&mut kept_runs, 3).unwrap(), []);
        let why = kept(&mut kept_runs, 4).unwrap_err().to_string();
        assert!(why.starts_with("db1 answered out of turn"), "{why}");
    }

    #[test]
    fn a_host_is_held_for_light_probes_where_it_says_where_it_answers_them() {
        let held = |light: bool, refuses: bool| {
            let mut agent = directed("db1", move |request| {
                Some(Ok(match request {
                    DirectRequest::Hold {
                        role: SlotRole::Light,
                        peer: None,
                        ..
                    } if refuses => Answer::HoldRefused {
                        why: "no port".to_owned(),
                        free_in: None,
                    },
                    DirectRequest::Hold { .. } => Answer::Held {
                        id: SOURCE,
                        port: 1,
                        light: light.then(|| LightPort {
                            port: 7,
                            token: "x".to_owned(),
                        }),
                    },
                    _ => Answer::Confirmed,
                }))
            });
            let soon = Duration::from_secs(30);
            let held = hold_light(&mut agent, SLOT, Nanos::from_secs(60), soon);
            held.map(|port| port.port).map_err(|why| why.to_string())
        };
        assert_eq!(held(true, false), Ok(7));
        assert!(held(false, false).unwrap_err().contains("out of turn"));
        assert_eq!(held(true, true), Err("db1 refuses: no port".to_owned()));
        let mut old = crate::testing::linked("db1", |sender, _| sender.close("what is that"));
        let why = hold_light(&mut old, SLOT, Nanos(1), Duration::from_secs(30));
        let why = format!("{:#}", why.unwrap_err());
        assert!(why.contains("does not know light probes"), "{why}");
    }
}

//! The two ends of a control connection.

use super::direct::{DirectAnswer, DirectRequest, PlayEvent};
use super::frame::{FrameError, FrameReader, encode_frame};
use super::legs::{Legs, MessageAction};
use super::messages::{PROTOCOL, ProbeAnswer, ToAgent, ToController, TuneRequest};
use super::printable;
use crate::Machine;
use model::mtu::PathEnd;
use model::{Nanos, Warning};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// The controller says so often that it is there; the agent answers.
pub const PING_EVERY: Nanos = Nanos::from_secs(1);

/// A peer from which nothing came for this long is lost, where no order allows for an outage.
pub const SILENCE: Nanos = Nanos::from_secs(6);

/// Longest outage of the path that an order may allow for.
pub const LONGEST_OUTAGE: Nanos = Nanos::from_secs(600);

/// How long nothing may come because of an outage of the path: TCP doubles the time between its retransmissions, so
/// that it may go on as late as after twice the outage.
pub fn silence(outage: Nanos) -> Nanos {
    let outage = outage.min(LONGEST_OUTAGE);
    SILENCE + outage + outage
}

/// An agent ends a session in which nothing was ordered for this long.
pub const IDLE: Nanos = Nanos::from_secs(600);

/// Bytes that may wait for the way out.
pub const MAX_QUEUED: usize = 8 << 20;

/// Events that may wait for [`Machine::poll_event`].
pub const MAX_EVENTS: usize = 4096;

/// Legs that may be open at once.
pub const MAX_LIVE_LEGS: usize = 8;

/// Requests of a kind (to tune, to probe) that may wait for their answers.
pub const MAX_OPEN_REQUESTS: usize = 8;

/// Requests for pieces of traces that may wait for their answers.
pub const MAX_OPEN_FETCHES: usize = 8;

/// Longest title and name of a place that are taken from a peer, in characters.
const MAX_TITLE: usize = 200;

/// Files that a survey of a host may have.
const MAX_FILES: usize = 4096;

/// Longest sentence that is taken from a peer, in characters.
const MAX_SENTENCE: usize = 1000;

/// The end on the host of the command.
pub type ControllerMachine = Endpoint<ControllerRole>;

/// The end on the remote host.
pub type AgentMachine = Endpoint<AgentRole>;

/// What happens at one end.
#[derive(Clone, Debug, PartialEq)]
pub enum MachineEvent<M> {
    /// The peer greeted in the same protocol: from now on messages may be sent.
    Ready {
        /// The peer's version of linerate, safe for a terminal.
        version: String,
    },
    /// The peer said this, in turn. Its sentences are fit for a terminal.
    Message(M),
    /// Last event: the peer said good-bye (an agent says why), or we did.
    Closed {
        /// The agent's sentence.
        why: Option<String>,
    },
    /// Last event: the session broke.
    Lost(Fault),
}

/// Why a session broke. Reads as the end of a sentence that begins with the peer's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the sentence of each says what it is")]
pub enum Fault {
    #[error("sent {0}: it does not speak linerate's control protocol")]
    Frame(FrameError),
    #[error(
        "sent a message that cannot be read ({0}): install the same version of linerate on both hosts"
    )]
    Message(String),
    #[error("has as many sessions as it takes: try again in {0}")]
    Busy(Nanos),
    #[error("did not greet: it does not speak linerate's control protocol")]
    NoGreeting,
    #[error("did not greet within {0}: is it linerate that answers there?")]
    Mute(Nanos),
    #[error(
        "runs linerate {theirs} (protocol {their_protocol}), this host {ours} (protocol {PROTOCOL}): install the same version on both"
    )]
    Version {
        theirs: String,
        their_protocol: u32,
        ours: String,
    },
    #[error("{0}: one of the two programs is faulty")]
    Order(String),
    /// Nothing came for [`silence`].
    #[error("fell silent: nothing came from it for {0}")]
    Silent(Nanos),
    #[error("did not {0} in time")]
    Overdue(&'static str),
    #[error("closed the connection in the middle of the session")]
    Gone,
    #[error("is too slow, or this host is: {0}")]
    Backlog(&'static str),
}

/// One end of a control connection.
pub struct Endpoint<R: ControlRole> {
    version: String,
    reader: FrameReader,
    state: SessionState,
    legs: Legs,
    events: VecDeque<MachineEvent<R::In>>,
    out: Vec<u8>,
    /// When the last bytes came.
    received: Nanos,
    /// When the greeting is due, the next ping is, or the idle session ends.
    next: Nanos,
    patience: Nanos,
    pings: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SessionState {
    Greeting,
    Ready,
    Over,
}

impl<R: ControlRole> Endpoint<R> {
    /// A new end at the time `now`, with its own greeting to send. `version` is linerate's;
    /// the peer has `patience` for its greeting (a human may have to type a passphrase first).
    pub fn new(now: Nanos, version: &str, patience: Nanos) -> Endpoint<R> {
        let mut end = Endpoint {
            version: version.to_owned(),
            reader: FrameReader::default(),
            state: SessionState::Greeting,
            legs: Legs::default(),
            events: VecDeque::new(),
            out: Vec::new(),
            received: now,
            next: now + patience,
            patience,
            pings: 0,
        };
        end.push(&R::hello(PROTOCOL, version.to_owned()));
        end
    }

    /// Sends a message. What crossed the end of its leg (a late sample, a stop of a finished leg) and
    /// what comes after the end of the session is dropped.
    ///
    /// # Errors
    /// A message that is out of turn, too large, or one too many for a peer that does not read.
    /// Nothing is sent then and the session goes on.
    pub fn send(&mut self, now: Nanos, message: &R::Out) -> Result<(), Fault> {
        match self.state {
            SessionState::Over => return Ok(()),
            SessionState::Greeting => {
                let what = "was sent a message before its greeting";
                return Err(Fault::Order(what.to_owned()));
            }
            SessionState::Ready => {}
        }
        let frame = encode_frame(message).map_err(Fault::Frame)?;
        if self.out.len() + frame.len() > MAX_QUEUED {
            return Err(Fault::Backlog("too much waits for the way out"));
        }
        match R::sends(&mut self.legs, now, message)? {
            MessageAction::Late => return Ok(()),
            MessageAction::Last => self.close(),
            MessageAction::Take if R::IDLES => self.next = now + R::EVERY,
            MessageAction::Take => {}
        }
        self.out.extend_from_slice(&frame);
        Ok(())
    }

    /// Ends the session; an agent says `why`. Nothing if it is over.
    pub fn bye(&mut self, why: &str) {
        if self.state != SessionState::Over {
            self.push(&R::goodbye(why.to_owned()));
            self.close();
        }
    }

    /// Whether the last event has happened.
    pub fn is_over(&self) -> bool {
        self.state == SessionState::Over
    }

    fn close(&mut self) {
        self.state = SessionState::Over;
        self.event(MachineEvent::Closed { why: None });
    }

    fn frame(&mut self, now: Nanos) -> Result<bool, Fault> {
        let greeting = self.state == SessionState::Greeting;
        let frame = match self.reader.next_frame() {
            Ok(None) => return Ok(false),
            Ok(Some(frame)) => frame,
            Err(e) if greeting && e != (FrameError(0)) => {
                return Err(Fault::NoGreeting);
            }
            Err(e) => return Err(Fault::Frame(e)),
        };
        if greeting {
            let version = read_greeting(frame, &self.version)?;
            self.state = SessionState::Ready;
            self.next = now + R::EVERY;
            self.event(MachineEvent::Ready { version });
        } else {
            let message = R::read(frame);
            let message = message.map_err(|e| Fault::Message(printable(&e.to_string(), 200)))?;
            R::receives(self, now, message)?;
        }
        Ok(true)
    }

    fn push(&mut self, message: &R::Out) {
        let frame = encode_frame(message).expect("the machine's own messages are small");
        self.out.extend_from_slice(&frame);
    }

    fn event(&mut self, event: MachineEvent<R::In>) {
        if self.events.len() < MAX_EVENTS {
            self.events.push_back(event);
        } else {
            self.lose(Fault::Backlog("too many messages wait to be read"));
        }
    }

    fn lose(&mut self, fault: Fault) {
        if self.state != SessionState::Over {
            self.state = SessionState::Over;
            // Beyond the bound by this one, which is the last.
            self.events.push_back(MachineEvent::Lost(fault));
        }
    }
}

impl<R: ControlRole> Machine for Endpoint<R> {
    type Event = MachineEvent<R::In>;

    fn input(&mut self, now: Nanos, bytes: &[u8]) {
        if self.state == SessionState::Over || bytes.is_empty() {
            return;
        }
        self.received = now;
        self.reader.push(bytes);
        while self.state != SessionState::Over {
            match self.frame(now) {
                Ok(true) => {}
                Ok(false) => return,
                Err(fault) => self.lose(fault),
            }
        }
    }

    fn input_end(&mut self) {
        self.lose(Fault::Gone);
    }

    fn deadline(&self) -> Option<Nanos> {
        let silent = self.received + silence(self.legs.outage());
        let owed = R::peer_owes(&self.legs).map(|(until, _)| until);
        match self.state {
            SessionState::Over => None,
            SessionState::Greeting => Some(self.next),
            SessionState::Ready => Some(silent.min(self.next).min(owed.unwrap_or(silent))),
        }
    }

    fn on_timeout(&mut self, now: Nanos) {
        match self.state {
            SessionState::Greeting if now >= self.next => self.lose(Fault::Mute(self.patience)),
            SessionState::Over | SessionState::Greeting => {}
            SessionState::Ready => {
                let owed = R::peer_owes(&self.legs).filter(|&(until, _)| now >= until);
                let silence = silence(self.legs.outage());
                if now >= self.received + silence {
                    self.lose(Fault::Silent(silence));
                } else if let Some((_, what)) = owed {
                    self.lose(Fault::Overdue(what));
                } else if now >= self.next {
                    self.next = now + R::EVERY;
                    R::on_every(self);
                }
            }
        }
    }

    fn longest_stall(&self) -> Nanos {
        Nanos::from_secs(10).max(silence(self.legs.outage()))
    }

    fn poll_event(&mut self) -> Option<MachineEvent<R::In>> {
        self.events.pop_front()
    }

    fn poll_output(&mut self) -> Option<Vec<u8>> {
        (!self.out.is_empty()).then(|| std::mem::take(&mut self.out))
    }
}

/// The greeting of any version: what is needed to say which it is.
#[derive(Deserialize)]
struct Greeting {
    say: String,
    protocol: u32,
    #[serde(default)]
    version: String,
    #[serde(default)]
    again_ns: Option<Nanos>,
}

/// Longest time after which to come again that is taken from a peer.
const LONGEST_AGAIN: Nanos = Nanos::from_secs(600);

/// The version of a peer that greeted in our protocol.
fn read_greeting(frame: &[u8], ours: &str) -> Result<String, Fault> {
    let hello: Greeting = serde_json::from_slice(frame).map_err(|_| Fault::NoGreeting)?;
    let theirs = printable(&hello.version, 40);
    if hello.say != "hello" {
        Err(Fault::NoGreeting)
    } else if hello.protocol != PROTOCOL {
        Err(Fault::Version {
            theirs,
            their_protocol: hello.protocol,
            ours: ours.to_owned(),
        })
    } else if let Some(again) = hello.again_ns {
        Err(Fault::Busy(again.min(LONGEST_AGAIN)))
    } else {
        Ok(theirs)
    }
}

/// Warnings of one message.
const MAX_WARNINGS: usize = 100;

fn clean(warnings: &mut [Warning]) {
    let texts = warnings.iter_mut();
    for text in texts.flat_map(|w| [&mut w.what, &mut w.meaning, &mut w.remedy]) {
        *text = printable(text, MAX_SENTENCE);
    }
}

/// Makes a peer's report of a path safe to show, and no longer than a path can be.
fn bound(answer: &mut ProbeAnswer) {
    match answer {
        ProbeAnswer::Begun { end, .. } => bound_end(end),
        ProbeAnswer::Ended { end, .. } => bound_end(end),
        ProbeAnswer::Climbed { climb } => climb.hops.truncate(usize::from(u8::MAX)),
        // Its texts are read, and what is shown of them is made fit then.
        ProbeAnswer::Surveyed { configured } => {
            configured.files.truncate(MAX_FILES);
            configured.tuned.truncate(MAX_FILES);
        }
    }
}

fn bound_end(end: &mut PathEnd) {
    end.device = printable(&end.device, MAX_TITLE);
    end.driver = end.driver.as_deref().map(|name| printable(name, MAX_TITLE));
}

/// What differs between the two ends: [`Controller`] and [`Agent`].
pub trait ControlRole: Sized + Send + 'static {
    /// Messages that this end sends.
    type Out: Serialize + Send + 'static;
    /// Messages that it receives.
    type In: DeserializeOwned + Send + 'static;
    /// Between pings, or the longest time without an order.
    #[doc(hidden)]
    const EVERY: Nanos;
    /// Every message, sent or received, restarts [`Role::EVERY`].
    #[doc(hidden)]
    const IDLES: bool;
    #[doc(hidden)]
    fn hello(protocol: u32, version: String) -> Self::Out;
    #[doc(hidden)]
    fn goodbye(why: String) -> Self::Out;
    #[doc(hidden)]
    fn sends(legs: &mut Legs, now: Nanos, message: &Self::Out) -> Result<MessageAction, Fault>;
    #[doc(hidden)]
    fn peer_owes(legs: &Legs) -> Option<(Nanos, &'static str)>;
    /// Reads a message of the peer.
    #[doc(hidden)]
    fn read(frame: &[u8]) -> serde_json::Result<Self::In> {
        serde_json::from_slice(frame)
    }
    /// Takes a message of the peer.
    #[doc(hidden)]
    fn receives(end: &mut Endpoint<Self>, now: Nanos, message: Self::In) -> Result<(), Fault>;
    /// [`Role::EVERY`] has passed.
    #[doc(hidden)]
    fn on_every(end: &mut Endpoint<Self>);
}

/// The end on the host of the command.
#[derive(Debug)]
pub enum ControllerRole {}

impl ControlRole for ControllerRole {
    type Out = ToAgent;
    type In = ToController;
    const EVERY: Nanos = PING_EVERY;
    const IDLES: bool = false;

    fn hello(protocol: u32, version: String) -> ToAgent {
        ToAgent::Hello { protocol, version }
    }

    fn goodbye(_: String) -> ToAgent {
        ToAgent::Bye
    }

    fn read(frame: &[u8]) -> serde_json::Result<ToController> {
        ToController::read(frame)
    }

    fn sends(legs: &mut Legs, now: Nanos, message: &ToAgent) -> Result<MessageAction, Fault> {
        legs.controller_sends(now, message)
    }

    fn peer_owes(legs: &Legs) -> Option<(Nanos, &'static str)> {
        legs.agent_owes()
    }

    fn receives(
        end: &mut Endpoint<Self>,
        now: Nanos,
        mut message: ToController,
    ) -> Result<(), Fault> {
        if end.legs.agent_sends(now, &message)? == MessageAction::Late {
            return Ok(());
        }
        match &mut message {
            ToController::Pong { .. } => return Ok(()),
            ToController::Bye { why } => {
                let why = Some(printable(why, MAX_SENTENCE));
                end.event(MachineEvent::Closed { why });
                end.state = SessionState::Over;
                return Ok(());
            }
            ToController::Granted { warnings, .. } | ToController::Connected { warnings, .. } => {
                warnings.truncate(MAX_WARNINGS);
                clean(warnings);
            }
            ToController::Busy { why, .. }
            | ToController::Refused { why, .. }
            | ToController::Failed { why, .. } => *why = printable(why, MAX_SENTENCE),
            ToController::Finished { record, broke, .. } => {
                record.warnings.truncate(MAX_WARNINGS);
                clean(&mut record.warnings);
                *broke = broke.as_deref().map(|why| printable(why, MAX_SENTENCE));
            }
            ToController::Tuned { outcome, .. } => match &mut outcome.done {
                Ok(readings) => {
                    let texts = readings.iter_mut();
                    for text in texts.flat_map(|r| [&mut r.setting, &mut r.asked, &mut r.found]) {
                        *text = printable(text, MAX_SENTENCE);
                    }
                }
                Err(why) => *why = printable(why, MAX_SENTENCE),
            },
            ToController::Probed { answer, .. } => match answer {
                Ok(answer) => bound(answer),
                Err(why) => *why = printable(why, MAX_SENTENCE),
            },
            ToController::Directed { answer, .. } => match answer {
                Ok(DirectAnswer::HoldRefused { why, .. }) | Err(why) => {
                    *why = printable(why, MAX_SENTENCE);
                }
                Ok(DirectAnswer::Lighted { peers, .. }) => {
                    for why in peers.iter_mut().filter_map(|peer| peer.why.as_mut()) {
                        *why = printable(why, MAX_SENTENCE);
                    }
                }
                Ok(_) => {}
            },
            ToController::Progress { event, .. } => match event {
                PlayEvent::Warning { warning } => clean(std::slice::from_mut(warning)),
                PlayEvent::Waiting { what } => *what = printable(what, MAX_SENTENCE),
                PlayEvent::LegStarted { .. } | PlayEvent::Sample { .. } => {}
            },
            ToController::Hello { .. }
            | ToController::Sample { .. }
            | ToController::Piece { .. } => {}
        }
        end.event(MachineEvent::Message(message));
        Ok(())
    }

    fn on_every(end: &mut Endpoint<Self>) {
        end.pings += 1;
        end.push(&ToAgent::Ping { number: end.pings });
    }
}

/// The end on the remote host.
#[derive(Debug)]
pub enum AgentRole {}

impl ControlRole for AgentRole {
    type Out = ToController;
    type In = ToAgent;
    const EVERY: Nanos = IDLE;
    const IDLES: bool = true;

    fn hello(protocol: u32, version: String) -> ToController {
        ToController::Hello {
            protocol,
            version,
            again: None,
        }
    }

    fn goodbye(why: String) -> ToController {
        ToController::Bye { why }
    }

    fn sends(legs: &mut Legs, now: Nanos, message: &ToController) -> Result<MessageAction, Fault> {
        legs.agent_sends(now, message)
    }

    fn peer_owes(legs: &Legs) -> Option<(Nanos, &'static str)> {
        legs.controller_owes()
    }

    fn receives(end: &mut Endpoint<Self>, now: Nanos, mut message: ToAgent) -> Result<(), Fault> {
        if end.legs.controller_sends(now, &message)? == MessageAction::Late {
            return Ok(());
        }
        match &mut message {
            ToAgent::Ping { number } => {
                if end.out.len() > MAX_QUEUED {
                    return Err(Fault::Backlog("it does not read what it is sent"));
                }
                end.push(&ToController::Pong { number: *number });
                return Ok(());
            }
            ToAgent::Bye => {
                end.event(MachineEvent::Closed { why: None });
                end.state = SessionState::Over;
                return Ok(());
            }
            ToAgent::Tune {
                origin, request, ..
            } => {
                origin.place = printable(&origin.place, MAX_TITLE);
                if let TuneRequest::Begin { title, .. }
                | TuneRequest::Commit { title }
                | TuneRequest::Persist { title } = request
                {
                    *title = printable(title, MAX_TITLE);
                }
            }
            ToAgent::Direct {
                request: DirectRequest::Play { title, .. },
                ..
            } => *title = title.as_deref().map(|title| printable(title, MAX_TITLE)),
            _ => {}
        }
        end.next = now + IDLE;
        end.event(MachineEvent::Message(message));
        Ok(())
    }

    fn on_every(end: &mut Endpoint<Self>) {
        if end.legs.is_idle() {
            end.bye(&format!("nothing was ordered for {IDLE}"));
        }
    }
}

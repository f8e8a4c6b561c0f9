//! The two ends of a control connection without a socket and without a clock.
//!
//! The driver feeds bytes and moments ([`Machine::input`], [`Machine::on_timeout`]), sends what
//! [`Machine::poll_output`] gives, and acts on [`Machine::poll_event`]. Moments count from any
//! fixed point; they never go back.

use super::frame::{FrameError, FrameReader, encode_frame};
use super::legs::{Legs, Verdict};
use super::messages::{PROTOCOL, ProbeAnswer, ToAgent, ToController, TuneRequest};
use super::printable;
use model::mtu::PathEnd;
use model::{Nanos, Warning};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// The controller says so often that it is there; the agent answers.
pub const PING_EVERY: Nanos = Nanos::from_secs(1);

/// A peer from which nothing came for this long is lost.
pub const SILENCE: Nanos = Nanos::from_secs(6);

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
pub type ControllerMachine = Machine<Controller>;

/// The end on the other host.
pub type AgentMachine = Machine<Agent>;

/// What happens at one end.
#[derive(Clone, Debug, PartialEq)]
pub enum Event<M> {
    /// The peer greeted in the same protocol: from now on messages may be sent.
    Ready {
        /// Version of linerate at the other end, fit for a terminal.
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
pub enum Fault {
    /// Not a frame.
    #[error("sent {0}: it does not speak linerate's control protocol")]
    Frame(FrameError),
    /// Not a message.
    #[error(
        "sent a message that cannot be read ({0}): install the same version of linerate on both hosts"
    )]
    Message(String),
    /// No greeting at the beginning.
    #[error("did not greet: it does not speak linerate's control protocol")]
    NoGreeting,
    /// The greeting did not come in time.
    #[error("did not greet within {0}: is it linerate that answers there?")]
    Mute(Nanos),
    /// Another protocol.
    #[error(
        "runs linerate {theirs} (protocol {their_protocol}), this host {ours} (protocol {PROTOCOL}): install the same version on both"
    )]
    Version {
        /// The peer's version.
        theirs: String,
        /// The peer's protocol.
        their_protocol: u32,
        /// Our version.
        ours: String,
    },
    /// A message that is not allowed now.
    #[error("{0}: one of the two programs is faulty")]
    Order(String),
    /// Nothing came for [`SILENCE`].
    #[error("fell silent: nothing came from it for {0}")]
    Silent(Nanos),
    /// Something due did not come.
    #[error("did not {0} in time")]
    Overdue(&'static str),
    /// The stream ended without a good-bye.
    #[error("closed the connection in the middle of the session")]
    Gone,
    /// More than [`MAX_QUEUED`] or [`MAX_EVENTS`] waiting.
    #[error("is too slow, or this host is: {0}")]
    Backlog(&'static str),
}

impl Fault {
    pub(super) fn order(what: &str) -> Fault {
        Fault::Order(what.to_owned())
    }
}

/// Which end a machine is: [`Controller`] or [`Agent`]. `Out` is what it says, `In` what it hears.
pub trait Role: sealed::Sealed + Send + 'static {}

/// The end on the host of the command.
#[derive(Debug)]
pub enum Controller {}

/// The end on the other host.
#[derive(Debug)]
pub enum Agent {}

impl Role for Controller {}
impl Role for Agent {}

/// One end of a control connection.
pub struct Machine<R: Role> {
    version: String,
    reader: FrameReader,
    state: State,
    legs: Legs,
    events: VecDeque<Event<R::In>>,
    out: Vec<u8>,
    /// When something came last.
    heard: Nanos,
    /// When the greeting is due, the next ping is, or the idle session ends.
    next: Nanos,
    patience: Nanos,
    pings: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Greeting,
    Ready,
    Over,
}

impl<R: Role> Machine<R> {
    /// A new end at the moment `now`, with its own greeting to send. `version` is linerate's;
    /// the peer has `patience` for its greeting (a human may have to type a passphrase first).
    pub fn new(now: Nanos, version: &str, patience: Nanos) -> Machine<R> {
        let mut machine = Machine {
            version: version.to_owned(),
            reader: FrameReader::default(),
            state: State::Greeting,
            legs: Legs::default(),
            events: VecDeque::new(),
            out: Vec::new(),
            heard: now,
            next: now + patience,
            patience,
            pings: 0,
        };
        machine.push(&R::hello(version));
        machine
    }

    /// Takes bytes from the peer, cut anywhere.
    pub fn input(&mut self, now: Nanos, bytes: &[u8]) {
        if self.state == State::Over || bytes.is_empty() {
            return;
        }
        self.heard = now;
        self.reader.push(bytes);
        while self.state != State::Over {
            let step = match self.reader.next_frame() {
                Ok(None) => return,
                Ok(Some(frame)) if self.state == State::Greeting => {
                    greeting(frame, &self.version).map(Step::Ready)
                }
                Ok(Some(frame)) => serde_json::from_slice(frame)
                    .map(Step::Message)
                    .map_err(|e| Fault::Message(printable(&e.to_string(), 200))),
                Err(e) if self.state == State::Greeting && e != FrameError::Length { len: 0 } => {
                    Err(Fault::NoGreeting)
                }
                Err(e) => Err(Fault::Frame(e)),
            };
            match step {
                Ok(Step::Ready(version)) => {
                    self.state = State::Ready;
                    self.next = now + R::EVERY;
                    self.event(Event::Ready { version });
                }
                Ok(Step::Message(message)) => {
                    if let Err(fault) = R::take(self, now, message) {
                        self.lose(fault);
                    }
                }
                Err(fault) => self.lose(fault),
            }
        }
    }

    /// The peer closed its side of the stream.
    pub fn input_end(&mut self) {
        self.lose(Fault::Gone);
    }

    /// Says something to the peer. What crossed the end of its leg (a late sample, a stop of a
    /// finished leg) and what comes after the end of the session is dropped.
    ///
    /// # Errors
    /// A message that is out of turn, too large, or one too many for a peer that does not read.
    /// Nothing is sent then and the session goes on.
    pub fn send(&mut self, now: Nanos, message: &R::Out) -> Result<(), Fault> {
        match self.state {
            State::Over => return Ok(()),
            State::Greeting => {
                return Err(Fault::order("is to be told something before its greeting"));
            }
            State::Ready => {}
        }
        let frame = encode_frame(message).map_err(Fault::Frame)?;
        if self.out.len() + frame.len() > MAX_QUEUED {
            return Err(Fault::Backlog("too much waits for the way out"));
        }
        if R::note_sent(&mut self.legs, now, message)? == Verdict::Late {
            return Ok(());
        }
        self.out.extend_from_slice(&frame);
        if R::is_bye(message) {
            self.state = State::Over;
            self.event(Event::Closed { why: None });
        } else {
            R::touched(self, now);
        }
        Ok(())
    }

    /// Ends the session; an agent says `why`. Nothing if it is over.
    pub fn bye(&mut self, why: &str) {
        if self.state != State::Over {
            self.push(&R::goodbye(why));
            self.state = State::Over;
            self.event(Event::Closed { why: None });
        }
    }

    /// Whether the last event has happened.
    pub fn is_over(&self) -> bool {
        self.state == State::Over
    }

    /// What happened, oldest first.
    pub fn poll_event(&mut self) -> Option<Event<R::In>> {
        self.events.pop_front()
    }

    /// All bytes for the peer; `None` if there are none. After the last event these are the last.
    pub fn poll_output(&mut self) -> Option<Vec<u8>> {
        (!self.out.is_empty()).then(|| std::mem::take(&mut self.out))
    }

    /// When [`Machine::on_timeout`] is to be called at the latest; `None` once the session is over.
    pub fn deadline(&self) -> Option<Nanos> {
        let silent = self.heard + SILENCE;
        let owed = R::peer_owes(&self.legs).map(|(until, _)| until);
        match self.state {
            State::Over => None,
            State::Greeting => Some(self.next),
            State::Ready => Some(silent.min(self.next).min(owed.unwrap_or(silent))),
        }
    }

    /// Time went on. Read what has arrived before calling this: bytes in hand are no silence.
    pub fn on_timeout(&mut self, now: Nanos) {
        match self.state {
            State::Over => {}
            State::Greeting if now >= self.next => self.lose(Fault::Mute(self.patience)),
            State::Greeting => {}
            State::Ready => {
                let owed = R::peer_owes(&self.legs).filter(|&(until, _)| now >= until);
                if now >= self.heard + SILENCE {
                    self.lose(Fault::Silent(SILENCE));
                } else if let Some((_, what)) = owed {
                    self.lose(Fault::Overdue(what));
                } else if now >= self.next {
                    R::due(self, now);
                }
            }
        }
    }

    fn push(&mut self, message: &R::Out) {
        let frame = encode_frame(message).expect("the machine's own messages are small");
        self.out.extend_from_slice(&frame);
    }

    fn event(&mut self, event: Event<R::In>) {
        if self.events.len() < MAX_EVENTS {
            self.events.push_back(event);
        } else {
            self.lose(Fault::Backlog("too many messages wait to be read"));
        }
    }

    fn lose(&mut self, fault: Fault) {
        if self.state != State::Over {
            self.state = State::Over;
            // Beyond the bound by this one, which is the last.
            self.events.push_back(Event::Lost(fault));
        }
    }
}

enum Step<M> {
    Ready(String),
    Message(M),
}

/// The greeting of any version: what is needed to say which it is.
#[derive(Deserialize)]
struct Greeting {
    say: String,
    protocol: u32,
    #[serde(default)]
    version: String,
}

/// The version of a peer that greeted in our protocol.
fn greeting(frame: &[u8], ours: &str) -> Result<String, Fault> {
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
    } else {
        Ok(theirs)
    }
}

fn clean(warnings: &mut Vec<Warning>) {
    warnings.truncate(100);
    for text in warnings
        .iter_mut()
        .flat_map(|w| [&mut w.what, &mut w.meaning, &mut w.remedy])
    {
        *text = printable(text, MAX_SENTENCE);
    }
}

/// Makes what a peer tells of a path fit to be shown, and as short as a path can be.
fn bound(answer: &mut ProbeAnswer) {
    match answer {
        ProbeAnswer::Begun { end, .. } => bound_end(end),
        ProbeAnswer::Climbed { climb } => climb.hops.truncate(usize::from(u8::MAX)),
        ProbeAnswer::Ended { end, .. } => bound_end(end),
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

/// What differs between the two ends.
mod sealed {
    use super::*;

    pub trait Sealed: Sized {
        /// What this end says.
        type Out: Serialize + Send + 'static;
        /// What it hears.
        type In: DeserializeOwned + Send + 'static;
        /// Between two calls of [`Sealed::due`].
        const EVERY: Nanos;
        fn hello(version: &str) -> Self::Out;
        fn goodbye(why: &str) -> Self::Out;
        fn is_bye(message: &Self::Out) -> bool;
        fn note_sent(legs: &mut Legs, now: Nanos, message: &Self::Out) -> Result<Verdict, Fault>;
        fn peer_owes(legs: &Legs) -> Option<(Nanos, &'static str)>;
        /// Takes a message of the peer.
        fn take(machine: &mut Machine<Self>, now: Nanos, message: Self::In) -> Result<(), Fault>
        where
            Self: Role;
        /// A message was sent.
        fn touched(machine: &mut Machine<Self>, now: Nanos)
        where
            Self: Role;
        /// [`Machine::next`] has come.
        fn due(machine: &mut Machine<Self>, now: Nanos)
        where
            Self: Role;
    }

    impl Sealed for Controller {
        type Out = ToAgent;
        type In = ToController;
        const EVERY: Nanos = PING_EVERY;

        fn hello(version: &str) -> ToAgent {
            ToAgent::Hello {
                protocol: PROTOCOL,
                version: version.to_owned(),
            }
        }

        fn goodbye(_why: &str) -> ToAgent {
            ToAgent::Bye
        }

        fn is_bye(message: &ToAgent) -> bool {
            matches!(message, ToAgent::Bye)
        }

        fn note_sent(legs: &mut Legs, now: Nanos, message: &ToAgent) -> Result<Verdict, Fault> {
            legs.controller_says(now, message)
        }

        fn peer_owes(legs: &Legs) -> Option<(Nanos, &'static str)> {
            legs.agent_owes()
        }

        fn take(
            machine: &mut Machine<Self>,
            now: Nanos,
            mut said: ToController,
        ) -> Result<(), Fault> {
            if machine.legs.agent_says(now, &said)? == Verdict::Late {
                return Ok(());
            }
            match &mut said {
                ToController::Pong { .. } => return Ok(()),
                ToController::Bye { why } => {
                    let why = Some(printable(why, MAX_SENTENCE));
                    machine.event(Event::Closed { why });
                    machine.state = State::Over;
                    return Ok(());
                }
                ToController::Granted { warnings, .. }
                | ToController::Connected { warnings, .. } => {
                    clean(warnings);
                }
                ToController::Busy { why, .. }
                | ToController::Refused { why, .. }
                | ToController::Failed { why, .. } => *why = printable(why, MAX_SENTENCE),
                ToController::Finished { record, broke, .. } => {
                    clean(&mut record.warnings);
                    if let Some(why) = broke {
                        *why = printable(why, MAX_SENTENCE);
                    }
                }
                ToController::Tuned { readings, .. } => {
                    for text in readings
                        .iter_mut()
                        .flat_map(|r| [&mut r.setting, &mut r.asked, &mut r.found])
                    {
                        *text = printable(text, MAX_SENTENCE);
                    }
                }
                ToController::TuneRefused { why, .. } | ToController::ProbeRefused { why, .. } => {
                    *why = printable(why, MAX_SENTENCE);
                }
                ToController::Probed { answer, .. } => bound(answer),
                ToController::Hello { .. }
                | ToController::Sample { .. }
                | ToController::Piece { .. } => {}
            }
            machine.event(Event::Message(said));
            Ok(())
        }

        fn touched(_: &mut Machine<Self>, _: Nanos) {}

        fn due(machine: &mut Machine<Self>, now: Nanos) {
            machine.pings += 1;
            machine.push(&ToAgent::Ping {
                number: machine.pings,
            });
            machine.next = now + PING_EVERY;
        }
    }

    impl Sealed for Agent {
        type Out = ToController;
        type In = ToAgent;
        const EVERY: Nanos = IDLE;

        fn hello(version: &str) -> ToController {
            ToController::Hello {
                protocol: PROTOCOL,
                version: version.to_owned(),
            }
        }

        fn goodbye(why: &str) -> ToController {
            ToController::Bye {
                why: why.to_owned(),
            }
        }

        fn is_bye(message: &ToController) -> bool {
            matches!(message, ToController::Bye { .. })
        }

        fn note_sent(
            legs: &mut Legs,
            now: Nanos,
            message: &ToController,
        ) -> Result<Verdict, Fault> {
            legs.agent_says(now, message)
        }

        fn peer_owes(legs: &Legs) -> Option<(Nanos, &'static str)> {
            legs.controller_owes()
        }

        fn take(machine: &mut Machine<Self>, now: Nanos, mut said: ToAgent) -> Result<(), Fault> {
            if machine.legs.controller_says(now, &said)? == Verdict::Late {
                return Ok(());
            }
            if let ToAgent::Tune {
                origin, request, ..
            } = &mut said
            {
                origin.place = printable(&origin.place, MAX_TITLE);
                if let TuneRequest::Begin { title, .. }
                | TuneRequest::Commit { title }
                | TuneRequest::Persist { title } = request
                {
                    *title = printable(title, MAX_TITLE);
                }
            }
            match said {
                ToAgent::Ping { number } => {
                    if machine.out.len() > MAX_QUEUED {
                        return Err(Fault::Backlog("it does not read what it is sent"));
                    }
                    machine.push(&ToController::Pong { number });
                }
                ToAgent::Bye => {
                    machine.event(Event::Closed { why: None });
                    machine.state = State::Over;
                }
                said => {
                    machine.next = now + IDLE;
                    machine.event(Event::Message(said));
                }
            }
            Ok(())
        }

        fn touched(machine: &mut Machine<Self>, now: Nanos) {
            machine.next = now + IDLE;
        }

        fn due(machine: &mut Machine<Self>, now: Nanos) {
            if machine.legs.is_idle() {
                machine.bye(&format!("nothing was ordered for {IDLE}"));
            } else {
                machine.next = now + IDLE;
            }
        }
    }
}

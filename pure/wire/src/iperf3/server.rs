//! The server's end of a control connection.

use super::frame::{ReceivedBytes, framed};
use super::{Cookie, Iperf3Failure, Params, State, TestResults, is_cookie};
use crate::Machine;
use model::Nanos;
use std::collections::VecDeque;

/// Span in which the client must take each step.
const PATIENCE: Nanos = Nanos::from_secs(10);
/// Span in which the client must open all of its streams.
const OPENING: Nanos = Nanos::from_secs(20);
/// Bytes that may come before they are due; no client sends any.
const MAX_EARLY: usize = 64;

/// What the server is to do, or learns.
#[derive(Clone, Debug, PartialEq)]
pub enum ServerEvent {
    /// The cookie of the test. Nothing to do.
    Greeted(Cookie),
    /// The client requests a test: call [`Server::open`], or [`Server::refuse`].
    Asked(Box<Params>),
    /// The client ended the test: stop the load and call [`Server::results`].
    Ended,
    /// All is over; the client's results.
    Finished(Box<TestResults>),
    /// The test broke. Nothing follows.
    Failed(Iperf3Failure),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServerStep {
    /// The cookie is due.
    Greeting,
    /// The parameters are due.
    Asking,
    /// They are being looked at.
    Deciding,
    /// The streams are being opened.
    Opening,
    Running,
    /// The client's results are due.
    Exchanging,
    /// The client's good bye is due.
    Parting,
    Over,
}

impl ServerStep {
    fn words(self) -> &'static str {
        match self {
            ServerStep::Greeting => "its cookie was due",
            ServerStep::Asking => "its parameters were due",
            ServerStep::Deciding => "its parameters were looked at",
            ServerStep::Opening => "its streams were being opened",
            ServerStep::Running => "the test ran",
            ServerStep::Exchanging => "its results were due",
            ServerStep::Parting => "its good bye was due",
            ServerStep::Over => "nothing was due",
        }
    }
}

/// The server's machine, for one client. Every state has a deadline.
#[derive(Debug)]
pub struct Iperf3Server {
    at: ServerStep,
    client_results: Option<Box<TestResults>>,
    results: Option<TestResults>,
    incoming: ReceivedBytes,
    outgoing: Vec<u8>,
    events: VecDeque<ServerEvent>,
    since: Nanos,
    deadline: Option<Nanos>,
}

impl Iperf3Server {
    /// A connection that was just accepted.
    pub fn new(now: Nanos) -> Iperf3Server {
        Iperf3Server {
            at: ServerStep::Greeting,
            client_results: None,
            results: None,
            incoming: ReceivedBytes::default(),
            outgoing: Vec::new(),
            events: VecDeque::new(),
            since: now,
            deadline: Some(now + PATIENCE),
        }
    }

    /// Grants the test: the client opens its streams.
    pub fn open(&mut self, now: Nanos) {
        if self.at == ServerStep::Deciding {
            self.outgoing.push(State::CreateStreams.byte());
            self.go(ServerStep::Opening, now, OPENING);
            self.steps(now);
        }
    }

    /// All streams are there: the test runs, for `at_most`.
    pub fn start(&mut self, now: Nanos, at_most: Nanos) {
        if self.at == ServerStep::Opening {
            self.outgoing
                .extend([State::TestStart.byte(), State::TestRunning.byte()]);
            self.go(ServerStep::Running, now, at_most);
            self.steps(now);
        }
    }

    /// Refuses, or gives up, with iperf3's number of the reason (see [`super::code`]).
    pub fn refuse(&mut self, number: i32, errno: i32) {
        self.leave(State::ServerError, &[number, errno]);
    }

    /// Turns the client away because others are served.
    pub fn deny(&mut self) {
        self.leave(State::AccessDenied, &[]);
    }

    /// Gives up because this server stops.
    pub fn terminate(&mut self) {
        self.leave(State::ServerTerminate, &[]);
    }

    /// This end's results, after [`ServerEvent::Ended`]. They leave when the client's are in.
    pub fn results(&mut self, now: Nanos, results: TestResults) {
        if self.at == ServerStep::Exchanging {
            self.results = Some(results);
            self.answer(now);
        }
    }

    fn leave(&mut self, state: State, numbers: &[i32]) {
        if self.at != ServerStep::Over {
            self.outgoing.push(state.byte());
            self.outgoing
                .extend(numbers.iter().flat_map(|n| n.to_be_bytes()));
            self.over();
        }
    }

    fn steps(&mut self, now: Nanos) {
        while self.at != ServerStep::Over {
            match self.step(now) {
                Ok(true) => {}
                Ok(false) => return,
                Err(failure) => self.fail(failure),
            }
        }
    }

    /// Uses one piece of what came; false if it is not all there.
    fn step(&mut self, now: Nanos) -> Result<bool, Iperf3Failure> {
        match self.at {
            ServerStep::Greeting => {
                let Some(cookie) = self.incoming.exactly() else {
                    return Ok(false);
                };
                if !is_cookie(&cookie) {
                    return Err(Iperf3Failure::NotACookie);
                }
                self.outgoing.push(State::ParamExchange.byte());
                self.events.push_back(ServerEvent::Greeted(cookie));
                self.go(ServerStep::Asking, now, PATIENCE);
            }
            ServerStep::Asking => {
                let Some(params) =
                    self.incoming
                        .object("parameters", Params::MAX_JSON, Params::from_map)?
                else {
                    return Ok(false);
                };
                self.events.push_back(ServerEvent::Asked(Box::new(params)));
                // The decision may wait for a slot; the server bounds that itself.
                self.at = ServerStep::Deciding;
                self.deadline = None;
            }
            ServerStep::Exchanging if self.client_results.is_none() => {
                let Some(results) = self.incoming.object(
                    "results",
                    TestResults::MAX_JSON,
                    TestResults::from_map,
                )?
                else {
                    return Ok(false);
                };
                self.client_results = Some(Box::new(results));
                self.answer(now);
            }
            ServerStep::Deciding if self.incoming.peek() != Some(State::ClientTerminate.byte()) => {
                return self.too_early();
            }
            ServerStep::Exchanging => return self.too_early(),
            at => {
                let Some(byte) = self.incoming.byte() else {
                    return Ok(false);
                };
                match (at, State::from_byte(byte)) {
                    (ServerStep::Running, Some(State::TestEnd)) => {
                        self.outgoing.push(State::ExchangeResults.byte());
                        self.events.push_back(ServerEvent::Ended);
                        self.go(ServerStep::Exchanging, now, PATIENCE);
                    }
                    (ServerStep::Parting, Some(State::Done)) => self.finish(),
                    (_, Some(State::ClientTerminate)) => {
                        return Err(Iperf3Failure::ClientTerminated);
                    }
                    _ => {
                        let during = at.words();
                        return Err(Iperf3Failure::Unexpected { byte, during });
                    }
                }
            }
        }
        Ok(true)
    }

    fn too_early(&self) -> Result<bool, Iperf3Failure> {
        match self.incoming.len() {
            size if size > MAX_EARLY => Err(Iperf3Failure::TooLarge {
                what: "data before its turn",
                size: size as u64,
                limit: MAX_EARLY as u64,
            }),
            _ => Ok(false),
        }
    }

    /// Sends this end's results once both are there.
    fn answer(&mut self, now: Nanos) {
        if self.client_results.is_some()
            && let Some(results) = self.results.take()
        {
            self.outgoing.extend(framed(&results.to_json()));
            self.outgoing.push(State::DisplayResults.byte());
            self.go(ServerStep::Parting, now, PATIENCE);
            self.steps(now);
        }
    }

    fn finish(&mut self) {
        self.over();
        let results = self.client_results.take().expect("set on the way here");
        self.events.push_back(ServerEvent::Finished(results));
    }

    fn go(&mut self, at: ServerStep, now: Nanos, patience: Nanos) {
        self.at = at;
        self.since = now;
        self.deadline = Some(now + patience);
    }

    fn fail(&mut self, failure: Iperf3Failure) {
        // iperf3's number of it, where it has one.
        let number = match &failure {
            Iperf3Failure::Malformed { what, .. } | Iperf3Failure::TooLarge { what, .. } => {
                match *what {
                    "results" => super::code::RECEIVE_RESULTS,
                    _ => super::code::RECEIVE_PARAMS,
                }
            }
            Iperf3Failure::Silent { .. } if self.at == ServerStep::Running => super::code::EXPIRED,
            Iperf3Failure::Silent { .. } if self.at == ServerStep::Opening => {
                super::code::STREAM_ACCEPT
            }
            Iperf3Failure::Silent { .. } if self.at != ServerStep::Greeting => {
                super::code::NO_MESSAGE
            }
            _ => 0,
        };
        if number != 0 {
            self.refuse(number, 0);
        }
        self.over();
        self.events.push_back(ServerEvent::Failed(failure));
    }

    fn over(&mut self) {
        self.at = ServerStep::Over;
        self.deadline = None;
    }
}

impl Machine for Iperf3Server {
    type Event = ServerEvent;

    fn input(&mut self, now: Nanos, bytes: &[u8]) {
        if self.at != ServerStep::Over {
            self.incoming.push(bytes);
            self.steps(now);
        }
    }

    fn input_end(&mut self) {
        match self.at {
            // All has been exchanged; a client that leaves without a good bye is as welcome.
            ServerStep::Parting => self.finish(),
            ServerStep::Over => {}
            at => self.fail(Iperf3Failure::Closed(at.words())),
        }
    }

    fn deadline(&self) -> Option<Nanos> {
        self.deadline
    }

    fn on_timeout(&mut self, now: Nanos) {
        if self.deadline.is_some_and(|deadline| now >= deadline) {
            let span = now.since(self.since);
            match self.at {
                ServerStep::Parting => self.finish(),
                at => self.fail(Iperf3Failure::Silent {
                    during: at.words(),
                    span,
                }),
            }
        }
    }

    fn poll_event(&mut self) -> Option<ServerEvent> {
        self.events.pop_front()
    }

    fn poll_output(&mut self) -> Option<Vec<u8>> {
        (!self.outgoing.is_empty()).then(|| std::mem::take(&mut self.outgoing))
    }
}

//! The client's end of a control connection.

use super::frame::{ReceivedBytes, framed};
use super::{Cookie, Iperf3Failure, Params, State, TestResults};
use crate::Machine;
use model::Nanos;
use std::collections::VecDeque;

/// Span in which the server must answer each step. Stream set-up and results may take a stock
/// server several round trips and the end of its last write.
const PATIENCE: Nanos = Nanos::from_secs(15);
/// The same for the grant of the test: a server may let its clients wait in a queue.
const QUEUE_PATIENCE: Nanos = Nanos::from_secs(150);

/// What the client is to do, or learns.
#[derive(Clone, Debug, PartialEq)]
pub enum ClientEvent {
    /// Open the data connections: first those that this end sends on, then those that it receives on.
    OpenStreams,
    /// Start the load.
    Begin,
    /// The server stopped its load: stop receiving and call [`Client::results`].
    GiveResults,
    /// All is over; the server's results.
    Finished(Box<TestResults>),
    /// The test broke. Nothing follows.
    Failed(Iperf3Failure),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClientStep {
    /// The cookie is sent.
    Greeted,
    /// The parameters are sent.
    Asked,
    /// The streams are being opened.
    Opening,
    /// The test is about to run or runs.
    Starting,
    Running,
    /// TEST_END is sent.
    Ending,
    /// This end's results are due.
    Results,
    /// They are sent; the server's are due.
    Exchanging,
    /// DISPLAY_RESULTS is due.
    Displaying,
    /// Two integers are due.
    Refused,
    Over,
}

impl ClientStep {
    fn words(self) -> &'static str {
        match self {
            ClientStep::Greeted => "its first answer was due",
            ClientStep::Asked => "its answer to the parameters was due",
            ClientStep::Opening => "the streams were being opened",
            ClientStep::Starting => "the test was about to start",
            ClientStep::Running => "the test ran",
            ClientStep::Ending => "the end of the test was to be confirmed",
            ClientStep::Results | ClientStep::Exchanging | ClientStep::Displaying => {
                "the results were exchanged"
            }
            ClientStep::Refused => "it was about to say why it refuses",
            ClientStep::Over => "nothing was due",
        }
    }
}

/// The client's machine.
#[derive(Debug)]
pub struct Iperf3Client {
    at: ClientStep,
    params: Params,
    server_results: Option<Box<TestResults>>,
    incoming: ReceivedBytes,
    outgoing: Vec<u8>,
    events: VecDeque<ClientEvent>,
    since: Nanos,
    deadline: Option<Nanos>,
}

impl Iperf3Client {
    /// A test to be; its output starts with the cookie.
    pub fn new(now: Nanos, cookie: &Cookie, params: Params) -> Iperf3Client {
        Iperf3Client {
            at: ClientStep::Greeted,
            params,
            server_results: None,
            incoming: ReceivedBytes::default(),
            outgoing: cookie.to_vec(),
            events: VecDeque::new(),
            since: now,
            deadline: Some(now + PATIENCE),
        }
    }

    /// This end's load is over (its limit is reached, or the user stopped it): ends the test.
    /// Without effect unless it runs.
    pub fn end(&mut self, now: Nanos) {
        if self.at == ClientStep::Running {
            self.outgoing.push(State::TestEnd.byte());
            self.go(ClientStep::Ending, now);
        }
    }

    /// Gives up in whatever state, and lets the server know.
    pub fn terminate(&mut self) {
        if self.at != ClientStep::Over {
            self.outgoing.push(State::ClientTerminate.byte());
            self.over();
        }
    }

    /// This end's results, after [`ClientEvent::GiveResults`].
    pub fn results(&mut self, now: Nanos, results: &TestResults) {
        if self.at == ClientStep::Results {
            self.outgoing.extend(framed(&results.to_json()));
            self.go(ClientStep::Exchanging, now);
            self.steps(now);
        }
    }

    fn steps(&mut self, now: Nanos) {
        while self.at != ClientStep::Over {
            match self.step(now) {
                Ok(true) => {}
                Ok(false) => return,
                Err(failure) => self.fail(failure),
            }
        }
    }

    /// Uses one piece of what came; false if it is not all there.
    fn step(&mut self, now: Nanos) -> Result<bool, Iperf3Failure> {
        // A server that gives up sends a negative byte; a length cannot begin with one,
        // because it is bounded far below 2^31.
        let is_length = self.incoming.peek().is_none_or(|byte| byte < 0x80);
        match self.at {
            ClientStep::Refused => match self.incoming.exactly::<8>() {
                Some([a, b, c, d, e, f, g, h]) => Err(Iperf3Failure::ServerError {
                    number: i32::from_be_bytes([a, b, c, d]),
                    errno: i32::from_be_bytes([e, f, g, h]),
                }),
                None => Ok(false),
            },
            ClientStep::Exchanging if is_length => {
                let read = TestResults::from_map;
                let results = self
                    .incoming
                    .object("results", TestResults::MAX_JSON, read)?;
                let Some(results) = results else {
                    return Ok(false);
                };
                self.server_results = Some(Box::new(results));
                self.go(ClientStep::Displaying, now);
                Ok(true)
            }
            _ => match self.incoming.byte() {
                Some(byte) => self.state(now, byte).map(|()| true),
                None => Ok(false),
            },
        }
    }

    fn state(&mut self, now: Nanos, byte: u8) -> Result<(), Iperf3Failure> {
        match (self.at, State::from_byte(byte)) {
            (ClientStep::Greeted, Some(State::ParamExchange)) => {
                self.outgoing.extend(framed(&self.params.to_json()));
                self.go(ClientStep::Asked, now);
                self.deadline = Some(now + QUEUE_PATIENCE);
            }
            (ClientStep::Asked, Some(State::CreateStreams)) => {
                self.events.push_back(ClientEvent::OpenStreams);
                self.go(ClientStep::Opening, now);
            }
            (ClientStep::Opening, Some(State::TestStart)) => self.go(ClientStep::Starting, now),
            (ClientStep::Starting, Some(State::TestRunning)) => {
                self.events.push_back(ClientEvent::Begin);
                self.at = ClientStep::Running;
                self.deadline = None;
            }
            (ClientStep::Ending, Some(State::ExchangeResults)) => {
                self.events.push_back(ClientEvent::GiveResults);
                self.go(ClientStep::Results, now);
            }
            (ClientStep::Displaying, Some(State::DisplayResults)) => {
                self.outgoing.push(State::Done.byte());
                self.over();
                let results = self.server_results.take().expect("set on the way here");
                self.events.push_back(ClientEvent::Finished(results));
            }
            (_, Some(State::AccessDenied)) => return Err(Iperf3Failure::Busy),
            (_, Some(State::ServerError)) => self.go(ClientStep::Refused, now),
            (_, Some(State::ServerTerminate)) => return Err(Iperf3Failure::ServerTerminated),
            // Until this end's results are given nothing but an error may come.
            (at, _) => {
                let during = at.words();
                return Err(Iperf3Failure::Unexpected { byte, during });
            }
        }
        Ok(())
    }

    fn go(&mut self, at: ClientStep, now: Nanos) {
        self.at = at;
        self.since = now;
        self.deadline = Some(now + PATIENCE);
    }

    fn fail(&mut self, failure: Iperf3Failure) {
        self.over();
        self.events.push_back(ClientEvent::Failed(failure));
    }

    fn over(&mut self) {
        self.at = ClientStep::Over;
        self.deadline = None;
    }
}

impl Machine for Iperf3Client {
    type Event = ClientEvent;

    fn input(&mut self, now: Nanos, bytes: &[u8]) {
        if self.at != ClientStep::Over {
            self.incoming.push(bytes);
            self.steps(now);
        }
    }

    fn input_end(&mut self) {
        match (self.at, self.incoming.exactly::<4>()) {
            (ClientStep::Over, _) => {}
            // 3.12 closes after the first of the two integers when it does not know the user.
            (ClientStep::Refused, Some(number)) => self.fail(Iperf3Failure::ServerError {
                number: i32::from_be_bytes(number),
                errno: 0,
            }),
            (at, _) => self.fail(Iperf3Failure::Closed(at.words())),
        }
    }

    fn deadline(&self) -> Option<Nanos> {
        self.deadline
    }

    fn on_timeout(&mut self, now: Nanos) {
        if self.deadline.is_some_and(|deadline| now >= deadline) {
            self.fail(Iperf3Failure::Silent {
                during: self.at.words(),
                span: now.since(self.since),
            });
        }
    }

    fn poll_event(&mut self) -> Option<ClientEvent> {
        self.events.pop_front()
    }

    fn poll_output(&mut self) -> Option<Vec<u8>> {
        (!self.outgoing.is_empty()).then(|| std::mem::take(&mut self.outgoing))
    }
}

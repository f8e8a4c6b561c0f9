//! The legal order of messages, leg by leg, and of the requests to tune and to probe between them. Both ends
//! keep the same table from what they send and what they receive.

use super::direct::{DirectAnswer, DirectRequest, MAX_KEPT, MAX_SPAN};
use super::machine::{
    Fault, LONGEST_OUTAGE, MAX_LIVE_LEGS, MAX_OPEN_FETCHES, MAX_OPEN_REQUESTS, silence,
};
use super::messages::{
    LegOrder, MAX_PIECE, MAX_READINGS, MAX_SETTINGS, ToAgent, ToController, TuneRequest,
};
use model::{LegLimit, Nanos};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Legs that one session may have in all.
const MAX_LEGS: usize = 4096;

/// For the answer to an order.
const ANSWER: Nanos = Nanos::from_secs(30);

/// For the report after the grant ran out: the agent's own listener ends first.
const AFTER_EXPIRY: Nanos = Nanos::from_secs(10);

/// For the start once all is connected (with both directions at once, the other leg's grant lies
/// between).
const START: Nanos = Nanos::from_secs(60);

/// For the end of a leg past its limit, and for the report after a stop: the last bytes may wait in
/// deep buffers.
const DRAIN: Nanos = Nanos::from_secs(60);

/// For the answer to a request to tune, since a device may have to be reset, or to probe, since much may
/// be lost.
const REQUEST: Nanos = Nanos::from_secs(60);

/// For a run, which may wait before it begins and has an end that takes its time.
const PLAY: Nanos = Nanos(MAX_SPAN.0 + 300_000_000_000);

/// For a piece of a trace, which may wait behind others on a slow path.
const PIECE: Nanos = Nanos::from_secs(60);

/// For legs that are limited by an amount, and for those with storage, which may have to be made ready: silence
/// ends those whose peer is lost, this the rest.
const LONGEST: Nanos = Nanos::from_secs(24 * 3600);

/// Base64 makes four characters of three bytes.
const MAX_PIECE_TEXT: usize = MAX_PIECE.div_ceil(3) * 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LegStage {
    /// Ordered, not yet answered.
    Asked,
    /// The data listener waits for connections.
    Granted,
    /// All connections are there.
    Connected,
    /// Under load.
    Running,
    /// The controller wants the end.
    Stopping,
}

use LegStage::{Asked, Connected, Granted, Running, Stopping};

const ANY: &[LegStage] = &[Asked, Granted, Connected, Running, Stopping];

/// The fault of a message that is not allowed now.
fn fault<T>(what: impl Into<String>) -> Result<T, Fault> {
    Err(Fault::Order(what.into()))
}

struct WireLeg {
    stage: LegStage,
    longest: Nanos,
    /// What is due may be so late because of an outage.
    late: Nanos,
    until: Nanos,
}

/// What to do with a message.
#[derive(Debug, PartialEq, Eq)]
pub enum MessageAction {
    /// It is in order.
    Take,
    /// It crossed the end of its leg on the way: drop it.
    Late,
    /// It is in order, and the last of the session.
    Last,
}

/// The legs of a session.
#[derive(Default)]
pub struct Legs {
    live: BTreeMap<u32, WireLeg>,
    over: BTreeSet<u32>,
    /// Turned away for now: may be asked for again, and a word about them may be on its way.
    waiting: BTreeSet<u32>,
    tunes: OpenRequests,
    probes: OpenRequests,
    directs: OpenRequests,
    /// The longest that an order of this session allows for.
    outage: Nanos,
    /// Pieces of traces that were asked for, oldest first: of which leg, and when they are due.
    fetches: VecDeque<(u32, Nanos)>,
}

/// Requests of one kind.
#[derive(Default)]
struct OpenRequests {
    /// Those that are not answered, oldest first, and when their answers are due.
    open: VecDeque<(u64, Nanos)>,
    /// Number of the latest.
    latest: u64,
}

impl OpenRequests {
    fn open(&mut self, until: Nanos, number: u64, what: &str) -> Result<MessageAction, Fault> {
        if number <= self.latest {
            return fault(format!("used the number of a request to {what} twice"));
        }
        if self.open.len() >= MAX_OPEN_REQUESTS {
            return fault(format!("sent more requests to {what} than may wait"));
        }
        self.latest = number;
        // It waits for those before it.
        let until = self.open.back().map_or(until, |(_, last)| until.max(*last));
        self.open.push_back((number, until));
        Ok(MessageAction::Take)
    }

    fn answer(&mut self, number: u64, what: &str) -> Result<MessageAction, Fault> {
        if self.open.front().map(|(oldest, _)| *oldest) != Some(number) {
            return fault(format!("answered a request to {what} out of turn"));
        }
        self.open.pop_front();
        Ok(MessageAction::Take)
    }

    /// A word before the answer.
    fn goes_on(&self, number: u64, what: &str) -> Result<MessageAction, Fault> {
        match self.open.front() {
            Some((oldest, _)) if *oldest == number => Ok(MessageAction::Take),
            _ => fault(format!("reported on a request to {what} out of turn")),
        }
    }

    fn due(&self) -> Option<Nanos> {
        self.open.front().map(|(_, until)| *until)
    }
}

impl Legs {
    /// Whether no leg is open and no request.
    pub fn is_idle(&self) -> bool {
        self.live.is_empty()
            && self.tunes.open.is_empty()
            && self.probes.open.is_empty()
            && self.directs.open.is_empty()
            && self.fetches.is_empty()
    }

    /// The longest outage of the path that an order of this session allows for.
    pub fn outage(&self) -> Nanos {
        self.outage
    }

    /// The earliest moment at which the agent owes the controller something.
    pub fn agent_owes(&self) -> Option<(Nanos, &'static str)> {
        let owed = self.live.values().filter_map(|leg| {
            let what = match leg.stage {
                Asked => "answer an order",
                Granted => "report the data connections",
                Connected => return None,
                Running => "end its part of the measurement",
                Stopping => "report after the stop",
            };
            Some((leg.until, what))
        });
        let tune = self.tunes.due().map(|at| (at, "answer a request to tune"));
        let probe = self.probes.due();
        let probe = probe.map(|at| (at, "answer a request to probe"));
        let direct = self.directs.due();
        let direct = direct.map(|at| (at, "answer a request to measure towards another host"));
        let fetch = self.fetches.front();
        let fetch = fetch.map(|(_, until)| (*until, "send a piece of a trace"));
        let requests = [tune, probe, direct, fetch].into_iter().flatten();
        owed.chain(requests).min()
    }

    /// The earliest moment at which the controller owes the agent something.
    pub fn controller_owes(&self) -> Option<(Nanos, &'static str)> {
        let connected = |leg: &&WireLeg| leg.stage == Connected;
        let owed = self.live.values().filter(connected);
        owed.map(|leg| (leg.until, "start the measurement")).min()
    }

    /// Notes what the controller sends.
    pub fn controller_sends(
        &mut self,
        now: Nanos,
        message: &ToAgent,
    ) -> Result<MessageAction, Fault> {
        match message {
            ToAgent::Open { order } => self.open(now, order),
            ToAgent::Start { leg } => {
                let longest = self.live.get(leg).map_or(LONGEST, |leg| leg.longest);
                let running = (Running, now + longest + DRAIN);
                self.step(*leg, "start", &[Connected], Some(running))
            }
            ToAgent::Stop { leg } => self.step(*leg, "stop", ANY, Some((Stopping, now + DRAIN))),
            ToAgent::Tune {
                request: TuneRequest::Apply { settings } | TuneRequest::UndoOnly { settings },
                ..
            } if settings.len() > MAX_SETTINGS => fault("named more settings than a request may"),
            ToAgent::Tune { number, .. } => self.tunes.open(now + REQUEST, *number, "tune"),
            ToAgent::Probe { number, .. } => self.probes.open(now + REQUEST, *number, "probe"),
            ToAgent::Direct { number, request } => {
                let within = match request {
                    DirectRequest::Play { .. } | DirectRequest::Mtu { .. } => PLAY,
                    _ => REQUEST,
                };
                self.directs.open(now + within, *number, "direct")
            }
            ToAgent::Fetch { leg } if !self.over.contains(leg) => {
                fault("asked for the trace of a leg that is not over")
            }
            ToAgent::Fetch { .. } if self.fetches.len() >= MAX_OPEN_FETCHES => {
                fault("asked for more pieces of a trace than may wait")
            }
            ToAgent::Fetch { leg } => {
                self.fetches.push_back((*leg, now + PIECE));
                Ok(MessageAction::Take)
            }
            ToAgent::Hello { .. } => fault("greeted twice"),
            ToAgent::Ping { .. } => Ok(MessageAction::Take),
            ToAgent::Bye => Ok(MessageAction::Last),
        }
    }

    /// Notes what the agent sends.
    pub fn agent_sends(
        &mut self,
        now: Nanos,
        message: &ToController,
    ) -> Result<MessageAction, Fault> {
        match message {
            ToController::Granted { leg, expires, .. } => {
                let expires = Nanos(expires.0.min(LONGEST.0));
                let granted = (Granted, now + expires + AFTER_EXPIRY);
                self.step(*leg, "grant", &[Asked, Stopping], Some(granted))
            }
            ToController::Connected { leg, .. } => {
                let from = [Granted, Stopping];
                self.step(
                    *leg,
                    "report of connections",
                    &from,
                    Some((Connected, now + START)),
                )
            }
            ToController::Sample { leg, .. } => {
                self.step(*leg, "sample", &[Running, Stopping], None)
            }
            ToController::Busy { leg, .. } => {
                let verdict = self.step(*leg, "refusal", &[Asked, Stopping], None)?;
                // The same leg may be asked for again.
                if self.live.remove(leg).is_some() {
                    self.waiting.insert(*leg);
                }
                Ok(verdict)
            }
            ToController::Refused { leg, .. } => self.end(*leg, "refusal", &[Asked, Stopping]),
            ToController::Finished { leg, .. } => self.end(*leg, "result", &[Running, Stopping]),
            ToController::Failed { leg, .. } => self.end(*leg, "failure", ANY),
            // None may be left out: it could be the setting that is not in force.
            ToController::Tuned { outcome, .. } if matches!(&outcome.done, Ok(readings) if readings.len() > MAX_READINGS) => {
                fault("sent more readings than an answer may have")
            }
            ToController::Tuned { number, .. } => self.tunes.answer(*number, "tune"),
            ToController::Probed { number, .. } => self.probes.answer(*number, "probe"),
            ToController::Directed {
                answer: Ok(DirectAnswer::Kept { runs }),
                ..
            } if runs.len() > MAX_KEPT => fault("sent more runs than an answer may have"),
            ToController::Directed {
                answer: Ok(DirectAnswer::Lighted { peers, .. }),
                ..
            } if peers.len() > model::light::MAX_PEERS => {
                fault("sent more light probes than an answer may have")
            }
            ToController::Piece { data, .. }
            | ToController::Directed {
                answer: Ok(DirectAnswer::Document { data }),
                ..
            } if data.len() > MAX_PIECE_TEXT => fault("sent a larger piece than it may"),
            ToController::Directed { number, .. } => self.directs.answer(*number, "direct"),
            ToController::Progress { number, .. } => self.directs.goes_on(*number, "direct"),
            ToController::Piece { leg, .. } => match self.fetches.pop_front() {
                Some((asked, _)) if asked == *leg => Ok(MessageAction::Take),
                _ => fault("sent a piece of a trace out of turn"),
            },
            ToController::Hello { .. } => fault("greeted twice"),
            ToController::Pong { .. } => Ok(MessageAction::Take),
            ToController::Bye { .. } => Ok(MessageAction::Last),
        }
    }

    fn open(&mut self, now: Nanos, order: &LegOrder) -> Result<MessageAction, Fault> {
        if self.live.contains_key(&order.leg) || self.over.contains(&order.leg) {
            return fault("used the number of a leg twice");
        }
        if self.live.len() >= MAX_LIVE_LEGS || self.over.len() + self.waiting.len() >= MAX_LEGS {
            return fault("opened more legs than a session may have");
        }
        let longest = match order.limit {
            // However long the network takes, storage may take longer.
            LegLimit::Time(span) if !order.workload.has_storage() => span.min(LONGEST),
            _ => LONGEST,
        };
        self.outage = self.outage.max(order.outage.min(LONGEST_OUTAGE));
        let late = match order.outage {
            Nanos(0) => Nanos(0),
            outage => silence(outage),
        };
        let leg = WireLeg {
            stage: Asked,
            longest,
            late,
            until: now + ANSWER + late,
        };
        self.waiting.remove(&order.leg);
        self.live.insert(order.leg, leg);
        Ok(MessageAction::Take)
    }

    /// A message about a leg, which is in order in these stages; it moves the leg on. A leg that is being
    /// stopped stays so, and a second stop does not lengthen the wait.
    fn step(
        &mut self,
        number: u32,
        what: &str,
        from: &[LegStage],
        to: Option<(LegStage, Nanos)>,
    ) -> Result<MessageAction, Fault> {
        let Some(leg) = self.live.get_mut(&number) else {
            return if self.over.contains(&number) || self.waiting.contains(&number) {
                Ok(MessageAction::Late)
            } else {
                fault(format!("sent a {what} for a leg that is not open"))
            };
        };
        if !from.contains(&leg.stage) {
            return fault(format!("sent a {what} out of turn"));
        }
        if let Some((stage, until)) = to
            && leg.stage != Stopping
        {
            (leg.stage, leg.until) = (stage, until + leg.late);
        }
        Ok(MessageAction::Take)
    }

    /// The last message about a leg.
    fn end(&mut self, number: u32, what: &str, from: &[LegStage]) -> Result<MessageAction, Fault> {
        let verdict = self.step(number, what, from, None)?;
        if self.live.remove(&number).is_some() {
            self.over.insert(number);
        }
        Ok(verdict)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Bulk, Bytes, FileCopy, Placement, SocketSettings, Workload};

    fn order(leg: u32, limit: LegLimit, outage: u64) -> LegOrder {
        LegOrder {
            leg,
            agent_sends: true,
            workload: Workload::Bulk(Bulk::default()),
            streams: 1,
            limit,
            interval: Nanos::from_secs(1),
            outage: Nanos::from_secs(outage),
            trace: false,
            socket: SocketSettings::default(),
            placement: Placement::default(),
        }
    }

    const TEN: LegLimit = LegLimit::Time(Nanos::from_secs(10));

    fn opens(legs: &mut Legs, at: u64, order: LegOrder) -> Result<MessageAction, Fault> {
        let order = Box::new(order);
        legs.controller_sends(Nanos::from_secs(at), &ToAgent::Open { order })
    }

    fn sends(legs: &mut Legs, at: u64, message: ToAgent) {
        let sent = legs.controller_sends(Nanos::from_secs(at), &message);
        assert_eq!(sent, Ok(MessageAction::Take));
    }

    fn granted(leg: u32, expires: u64) -> ToController {
        ToController::Granted {
            leg,
            port: 5300,
            token: String::new(),
            expires: Nanos::from_secs(expires),
            order: Box::new(order(leg, TEN, 0)),
            warnings: Vec::new(),
        }
    }

    fn answers(legs: &mut Legs, at: u64, message: ToController) {
        let sent = legs.agent_sends(Nanos::from_secs(at), &message);
        assert_eq!(sent, Ok(MessageAction::Take));
    }

    fn refused(leg: u32) -> ToController {
        let why = String::new();
        ToController::Refused { leg, why }
    }

    fn in_seconds(due: Option<(Nanos, &'static str)>) -> Option<(u64, &'static str)> {
        due.map(|(at, what)| (at.0 / 1_000_000_000, what))
    }

    #[test]
    fn each_stage_of_a_leg_has_its_time() {
        let mut legs = Legs::default();
        opens(&mut legs, 100, order(1, TEN, 0)).unwrap();
        assert_eq!(
            in_seconds(legs.agent_owes()),
            Some((130, "answer an order"))
        );
        assert_eq!(legs.controller_owes(), None);
        answers(&mut legs, 101, granted(1, 5));
        assert_eq!(
            in_seconds(legs.agent_owes()),
            Some((116, "report the data connections"))
        );
        let connected = ToController::Connected {
            leg: 1,
            sockets: Vec::new(),
            fingerprint: Box::default(),
            warnings: Vec::new(),
        };
        answers(&mut legs, 102, connected);
        assert_eq!(legs.agent_owes(), None);
        assert_eq!(
            in_seconds(legs.controller_owes()),
            Some((162, "start the measurement"))
        );
        sends(&mut legs, 103, ToAgent::Start { leg: 1 });
        assert_eq!(
            in_seconds(legs.agent_owes()),
            Some((173, "end its part of the measurement"))
        );
        assert_eq!(legs.controller_owes(), None);
        sends(&mut legs, 104, ToAgent::Stop { leg: 1 });
        sends(&mut legs, 150, ToAgent::Stop { leg: 1 });
        assert_eq!(
            in_seconds(legs.agent_owes()),
            Some((164, "report after the stop"))
        );
        assert!(!legs.is_idle());
        let why = String::new();
        answers(&mut legs, 160, ToController::Failed { leg: 1, why });
        assert!(legs.is_idle() && legs.agent_owes().is_none());
    }

    #[test]
    fn a_leg_lasts_as_long_as_its_clock_or_a_day_and_an_outage_more() {
        let running = |order: LegOrder| {
            let mut legs = Legs::default();
            opens(&mut legs, 0, order).unwrap();
            answers(&mut legs, 0, granted(1, 1 << 40));
            let (expires, _) = in_seconds(legs.agent_owes()).unwrap();
            let connected = ToController::Connected {
                leg: 1,
                sockets: Vec::new(),
                fingerprint: Box::default(),
                warnings: Vec::new(),
            };
            answers(&mut legs, 0, connected);
            sends(&mut legs, 0, ToAgent::Start { leg: 1 });
            (expires, in_seconds(legs.agent_owes()).unwrap().0)
        };
        let day = 86_400;
        assert_eq!(running(order(1, TEN, 0)), (day + 10, 70));
        let (bytes, week) = (
            LegLimit::Bytes(Bytes(1)),
            LegLimit::Time(Nanos::from_secs(7 * day)),
        );
        for limit in [bytes, week] {
            assert_eq!(running(order(1, limit, 0)).1, day + 60);
        }
        let mut stored = order(1, TEN, 0);
        stored.workload = Workload::Copy(FileCopy {
            from: Some("a".to_owned()),
            ..FileCopy::default()
        });
        assert_eq!(running(stored).1, day + 60);
        // Silence of 6 s and twice the outage.
        assert_eq!(running(order(1, TEN, 20)), (day + 10 + 46, 70 + 46));
        let mut legs = Legs::default();
        for (leg, outage, longest) in [(1, 20, 20), (2, 5, 20), (3, 601, 600)] {
            opens(&mut legs, 0, order(leg, TEN, outage)).unwrap();
            assert_eq!(legs.outage(), Nanos::from_secs(longest));
        }
        assert_eq!(
            in_seconds(legs.agent_owes()),
            Some((30 + 16, "answer an order"))
        );
    }

    #[test]
    fn eight_legs_are_open_at_once_and_4096_in_all() {
        let mut legs = Legs::default();
        for leg in 0..8 {
            opens(&mut legs, 0, order(leg, TEN, 0)).unwrap();
        }
        assert!(opens(&mut legs, 0, order(8, TEN, 0)).is_err());
        let busy = ToController::Busy {
            leg: 0,
            wait: Nanos(0),
            why: String::new(),
        };
        answers(&mut legs, 0, busy);
        (1..8).for_each(|leg| answers(&mut legs, 0, refused(leg)));
        // One was turned away and may be asked for again; the others are over.
        for leg in 8..4096 {
            opens(&mut legs, 0, order(leg, TEN, 0)).unwrap();
            answers(&mut legs, 0, refused(leg));
        }
        assert!(opens(&mut legs, 0, order(4096, TEN, 0)).is_err());
        assert!(opens(&mut legs, 0, order(5, TEN, 0)).is_err(), "it is over");
        assert_eq!(
            legs.agent_sends(Nanos(0), &refused(5)),
            Ok(MessageAction::Late)
        );
        assert_eq!(
            legs.agent_sends(Nanos(0), &refused(0)),
            Ok(MessageAction::Late)
        );
        assert!(legs.agent_sends(Nanos(0), &refused(4096)).is_err());
    }

    #[test]
    fn requests_are_numbered_wait_for_each_other_and_are_answered_in_turn() {
        let mut all = OpenRequests::default();
        let ask = |all: &mut OpenRequests, until, number| all.open(Nanos(until), number, "tune");
        ask(&mut all, 70, 5).unwrap();
        ask(&mut all, 60, 7).unwrap();
        assert!(ask(&mut all, 60, 7).is_err() && ask(&mut all, 60, 6).is_err());
        assert_eq!(all.due(), Some(Nanos(70)));
        assert!(all.answer(7, "tune").is_err() && all.goes_on(7, "tune").is_err());
        assert!(all.goes_on(5, "tune").is_ok() && all.answer(5, "tune").is_ok());
        assert_eq!(all.due(), Some(Nanos(70)), "it waited for the one before");
        for number in 8..15 {
            ask(&mut all, 90, number).unwrap();
        }
        assert_eq!(all.open.len(), MAX_OPEN_REQUESTS);
        assert!(ask(&mut all, 90, 15).is_err());
        all.answer(7, "tune").unwrap();
        assert!(ask(&mut all, 90, 15).is_ok());
        assert_eq!(all.due(), Some(Nanos(90)));
    }

    #[test]
    fn of_all_that_is_owed_the_earliest_counts() {
        let mut legs = Legs::default();
        opens(&mut legs, 0, order(1, TEN, 0)).unwrap();
        answers(&mut legs, 0, refused(1));
        sends(&mut legs, 3, ToAgent::Fetch { leg: 1 });
        assert_eq!(
            in_seconds(legs.agent_owes()),
            Some((63, "send a piece of a trace"))
        );
        assert!(!legs.is_idle());
        let tune = |number| ToAgent::Tune {
            number,
            origin: Default::default(),
            request: TuneRequest::UndoOnly {
                settings: Vec::new(),
            },
        };
        sends(&mut legs, 2, tune(1));
        assert_eq!(
            in_seconds(legs.agent_owes()),
            Some((62, "answer a request to tune"))
        );
        assert!(
            !Legs {
                tunes: std::mem::take(&mut legs.tunes),
                ..Legs::default()
            }
            .is_idle()
        );
        assert!(
            !Legs {
                fetches: std::mem::take(&mut legs.fetches),
                ..Legs::default()
            }
            .is_idle()
        );
    }
}

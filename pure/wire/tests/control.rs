//! Both ends of the control protocol on a hand-moved clock: cut, dropped, repeated, out of order,
//! silent, garbage.
#![allow(clippy::unwrap_used, reason = "a test says what failed by panicking")]

use linerate_wire::Machine;
use linerate_wire::control::direct::{
    Destination, DirectAnswer, DirectRequest, DirectedRun, LightResult, MAX_KEPT, MAX_SPAN,
    PlayEvent,
};
use linerate_wire::control::{
    AgentMachine, ControlRole, ControllerMachine, Endpoint, Fault, IDLE, LegOrder, MAX_FRAME,
    MAX_LIVE_LEGS, MAX_OPEN_FETCHES, MAX_OPEN_REQUESTS, MAX_PIECE, MAX_QUEUED, MAX_READINGS,
    MAX_SETTINGS, MachineEvent, Origin, PING_EVERY, PROTOCOL, ProbeAnswer, ProbeRequest, SILENCE,
    ToAgent, ToController, TuneOutcome, TuneRequest, encode_frame,
};
use model::mtu::{Climb, Hop};
use model::{Bulk, EndRecord, Fingerprint, LegLimit, Nanos, Placement, Reading, Sample, Side};
use model::{NodeId, SocketSettings, Warning, Workload};
use proptest::prelude::*;

const PATIENCE: Nanos = Nanos::from_secs(10);

fn order(leg: u32) -> LegOrder {
    LegOrder {
        leg,
        agent_sends: true,
        workload: Workload::Bulk(Bulk::default()),
        streams: 1,
        limit: LegLimit::Time(Nanos::from_secs(10)),
        interval: Nanos::from_secs(1),
        outage: Nanos(0),
        trace: false,
        socket: SocketSettings::default(),
        placement: Placement::default(),
    }
}

fn open(leg: u32) -> ToAgent {
    let order = Box::new(order(leg));
    ToAgent::Open { order }
}

fn hello() -> ToController {
    ToController::Hello {
        protocol: PROTOCOL,
        version: "0.1.0".to_owned(),
        again: None,
    }
}

fn granted(leg: u32) -> ToController {
    ToController::Granted {
        leg,
        port: 5300,
        token: "00".repeat(32),
        expires: Nanos::from_secs(10),
        order: Box::new(order(leg)),
        warnings: Vec::new(),
    }
}

fn connected(leg: u32) -> ToController {
    ToController::Connected {
        leg,
        sockets: Vec::new(),
        fingerprint: Box::new(Fingerprint::default()),
        warnings: Vec::new(),
    }
}

fn sample(leg: u32) -> ToController {
    let sample = Box::new(Sample::default());
    ToController::Sample { leg, sample }
}

fn finished(leg: u32) -> ToController {
    let record = Box::new(EndRecord::default());
    ToController::Finished {
        leg,
        record,
        broke: None,
    }
}

fn failed(leg: u32, why: &str) -> ToController {
    let why = why.to_owned();
    ToController::Failed { leg, why }
}

fn busy(leg: u32) -> ToController {
    ToController::Busy {
        leg,
        wait: Nanos::from_secs(3),
        why: "busy".to_owned(),
    }
}

fn tune(number: u64, request: TuneRequest) -> ToAgent {
    ToAgent::Tune {
        number,
        origin: Origin::default(),
        request,
    }
}

fn apply(number: u64, settings: usize) -> ToAgent {
    let one = "route.initcwnd=32@remote".parse().unwrap();
    let settings = vec![one; settings];
    tune(number, TuneRequest::Apply { settings })
}

fn tuned(number: u64, readings: usize) -> ToController {
    let reading = Reading {
        setting: "route.initcwnd".to_owned(),
        side: Side::Remote,
        asked: "32".to_owned(),
        found: "10\u{1b}[2J".to_owned(),
        in_force: false,
    };
    outcome(number, Ok(vec![reading; readings]))
}

fn not_tuned(number: u64, why: &str) -> ToController {
    outcome(number, Err(why.to_owned()))
}

fn outcome(number: u64, done: Result<Vec<Reading>, String>) -> ToController {
    let shared = false;
    let outcome = TuneOutcome { done, shared };
    ToController::Tuned { number, outcome }
}

fn all<R: ControlRole>(machine: &mut Endpoint<R>) -> Vec<MachineEvent<R::In>> {
    std::iter::from_fn(|| machine.poll_event()).collect()
}

fn fault<R: ControlRole>(machine: &mut Endpoint<R>) -> Fault {
    match all(machine).pop() {
        Some(MachineEvent::Lost(fault)) => fault,
        _ => panic!("the session goes on"),
    }
}

/// Two ends and a wire that loses nothing, at one moment.
struct Pair {
    now: Nanos,
    controller: ControllerMachine,
    agent: AgentMachine,
}

impl Pair {
    fn new() -> Pair {
        let now = Nanos::from_secs(1000);
        Pair {
            now,
            controller: Endpoint::new(now, "0.1.0", PATIENCE),
            agent: Endpoint::new(now, "0.1.0", PATIENCE),
        }
    }

    fn ready() -> Pair {
        let mut pair = Pair::new();
        pair.exchange();
        let version = "0.1.0".to_owned();
        assert_eq!(all(&mut pair.controller), [MachineEvent::Ready { version }]);
        assert_eq!(all(&mut pair.agent).len(), 1);
        pair
    }

    /// A pair whose leg 1 has come so far.
    fn with_leg(said: &[ToController], started: bool) -> Pair {
        let mut pair = Pair::ready();
        pair.send(&open(1)).unwrap();
        for message in said {
            pair.answer(message).unwrap();
        }
        if started {
            pair.send(&ToAgent::Start { leg: 1 }).unwrap();
        }
        all(&mut pair.controller);
        all(&mut pair.agent);
        pair
    }

    fn running() -> Pair {
        Pair::with_leg(&[granted(1), connected(1)], true)
    }

    fn exchange(&mut self) {
        loop {
            let (there, back) = (self.controller.poll_output(), self.agent.poll_output());
            if there.is_none() && back.is_none() {
                return;
            }
            self.agent.input(self.now, &there.unwrap_or_default());
            self.controller.input(self.now, &back.unwrap_or_default());
        }
    }

    fn send(&mut self, message: &ToAgent) -> Result<(), Fault> {
        self.controller.send(self.now, message)?;
        self.exchange();
        Ok(())
    }

    fn answer(&mut self, message: &ToController) -> Result<(), Fault> {
        self.agent.send(self.now, message)?;
        self.exchange();
        Ok(())
    }

    /// Lets time pass, deadline by deadline, with a wire that works.
    fn pass(&mut self, span: Nanos) {
        let end = self.now + span;
        loop {
            let next = [self.controller.deadline(), self.agent.deadline()];
            match next.into_iter().flatten().min() {
                Some(at) if at <= end => self.now = at.max(self.now),
                _ => break,
            }
            self.controller.on_timeout(self.now);
            self.agent.on_timeout(self.now);
            self.exchange();
        }
        self.now = end;
    }
}

#[test]
fn a_session_with_both_directions_at_once() {
    let mut pair = Pair::ready();
    for leg in [1, 2] {
        pair.send(&open(leg)).unwrap();
        pair.answer(&granted(leg)).unwrap();
        pair.answer(&connected(leg)).unwrap();
    }
    for leg in [1, 2] {
        pair.send(&ToAgent::Start { leg }).unwrap();
    }
    pair.pass(Nanos::from_secs(10));
    for leg in [2, 1] {
        pair.answer(&sample(leg)).unwrap();
        pair.answer(&finished(leg)).unwrap();
    }
    pair.send(&ToAgent::Bye).unwrap();
    assert_eq!(all(&mut pair.controller).len(), 9);
    let events = all(&mut pair.agent);
    assert_eq!(events.len(), 5);
    assert_eq!(events.last(), Some(&MachineEvent::Closed { why: None }));
    assert!(pair.agent.is_over() && pair.controller.is_over());
    assert_eq!(pair.agent.deadline(), None);
}

#[test]
fn bytes_cut_at_every_position_make_the_same_session() {
    let now = Nanos(1);
    // What a controller receives between two of its own messages.
    let parts = [
        (vec![hello()], Some(open(1))),
        (
            vec![granted(1), connected(1)],
            Some(ToAgent::Start { leg: 1 }),
        ),
        (vec![sample(1), finished(1)], None),
    ];
    let bytes = |said: &[ToController]| -> Vec<u8> {
        said.iter().flat_map(|m| encode_frame(m).unwrap()).collect()
    };
    let longest = parts
        .iter()
        .map(|(said, _)| bytes(said).len())
        .max()
        .unwrap();
    for cut in 0..=longest {
        let mut controller = ControllerMachine::new(now, "0.1.0", PATIENCE);
        for (said, answer) in &parts {
            let bytes = bytes(said);
            let (first, second) = bytes.split_at(cut.min(bytes.len()));
            controller.input(now, first);
            controller.input(now, second);
            if let Some(answer) = answer {
                controller.send(now, answer).unwrap();
            }
        }
        let events = all(&mut controller);
        assert_eq!(events.len(), 5, "cut at {cut}");
        assert_eq!(
            events[4],
            MachineEvent::Message(finished(1)),
            "cut at {cut}"
        );
    }
    // And byte by byte.
    let mut pair = Pair::running();
    pair.agent.send(pair.now, &sample(1)).unwrap();
    pair.agent.send(pair.now, &finished(1)).unwrap();
    for byte in pair.agent.poll_output().unwrap() {
        pair.controller.input(pair.now, &[byte]);
    }
    let events = all(&mut pair.controller);
    assert_eq!(
        events,
        [
            MachineEvent::Message(sample(1)),
            MachineEvent::Message(finished(1))
        ]
    );
}

#[test]
fn peers_of_another_version_learn_the_version() {
    let mut pair = Pair::new();
    let newer = serde_json::json!({
        "say": "hello", "protocol": 7, "version": "3.0\u{1b}[2J", "colour": "green"
    });
    pair.agent.input(pair.now, &encode_frame(&newer).unwrap());
    assert_eq!(
        fault(&mut pair.agent).to_string(),
        "runs linerate 3.0?[2J (protocol 7), this host 0.1.0 (protocol 2): install the same version on both"
    );
    // Our own greeting goes out all the same, so that the peer can report it too.
    assert!(pair.agent.poll_output().is_some());
}

#[test]
fn unknown_fields_are_ignored_and_wrong_types_are_not() {
    let mut pair = Pair::ready();
    let frame = |value: &serde_json::Value| encode_frame(value).unwrap();
    let ping = serde_json::json!({"say": "ping", "number": 1, "more": [1, 2]});
    pair.agent.input(pair.now, &frame(&ping));
    assert_eq!(all(&mut pair.agent), []);
    for bad in [
        serde_json::json!({"say": "ping", "number": "1"}),
        serde_json::json!({"say": "ping", "number": -1}),
        serde_json::json!({"say": "sing"}),
        serde_json::json!(["ping"]),
        serde_json::json!({"say": "open", "order": {"leg": 1}}),
    ] {
        let mut pair = Pair::ready();
        pair.agent.input(pair.now, &frame(&bad));
        assert!(matches!(fault(&mut pair.agent), Fault::Message(_)), "{bad}");
    }
    // As deep as a parser may be led astray.
    let mut pair = Pair::ready();
    let mut deep = ((MAX_FRAME as u32) / 2).to_be_bytes().to_vec();
    deep.extend("[".repeat(MAX_FRAME / 2).bytes());
    pair.agent.input(pair.now, &deep);
    assert!(matches!(fault(&mut pair.agent), Fault::Message(_)));
}

#[test]
fn whoever_does_not_greet_is_not_listened_to() {
    for bytes in [
        &b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..],
        b"SSH-2.0-OpenSSH_9.2\r\n",
        &[0; 37],
    ] {
        let mut pair = Pair::new();
        pair.agent.input(pair.now, bytes);
        let what = fault(&mut pair.agent).to_string();
        assert!(what.contains("control protocol"), "{what}");
    }
    let mut pair = Pair::new();
    pair.agent.input(pair.now, &encode_frame(&open(1)).unwrap());
    assert_eq!(fault(&mut pair.agent), Fault::NoGreeting);
    // Nor is anything said to it before.
    let mut pair = Pair::new();
    assert!(pair.controller.send(pair.now, &open(1)).is_err());

    let mut pair = Pair::new();
    let due = pair.agent.deadline().unwrap();
    assert_eq!(due, pair.now + PATIENCE);
    pair.agent.on_timeout(Nanos(due.0 - 1));
    assert!(!pair.agent.is_over());
    pair.agent.on_timeout(due);
    assert_eq!(fault(&mut pair.agent), Fault::Mute(PATIENCE));
}

#[test]
fn a_quiet_session_lives_by_its_pings_and_a_silent_one_does_not() {
    let mut pair = Pair::running();
    pair.pass(Nanos::from_secs(60));
    assert!(!pair.controller.is_over() && !pair.agent.is_over());

    // The wire breaks: both notice, neither before its time.
    let broken = pair.now;
    let mut now = broken;
    while !(pair.controller.is_over() && pair.agent.is_over()) {
        let next = [pair.controller.deadline(), pair.agent.deadline()];
        now = next.into_iter().flatten().min().unwrap().max(now);
        pair.controller.on_timeout(now);
        pair.agent.on_timeout(now);
        drop((pair.controller.poll_output(), pair.agent.poll_output()));
    }
    let waited = now.since(broken);
    assert!(waited <= SILENCE, "{waited}");
    assert!(waited + PING_EVERY + PING_EVERY >= SILENCE, "{waited}");
    assert_eq!(fault(&mut pair.controller), Fault::Silent(SILENCE));
    assert_eq!(fault(&mut pair.agent), Fault::Silent(SILENCE));
}

#[test]
fn what_is_owed_has_a_deadline_in_every_stage() {
    let day = Nanos::from_secs(86_400);
    for (said, started, owes, by_agent) in [
        (vec![], false, "answer an order", true),
        (vec![granted(1)], false, "report the data connections", true),
        (
            vec![granted(1), connected(1)],
            false,
            "start the measurement",
            false,
        ),
        (
            vec![granted(1), connected(1)],
            true,
            "end its part of the measurement",
            true,
        ),
    ] {
        let mut pair = Pair::with_leg(&said, started);
        pair.pass(day);
        let fault = if by_agent {
            fault(&mut pair.controller)
        } else {
            fault(&mut pair.agent)
        };
        assert_eq!(fault, Fault::Overdue(owes));
    }
    let mut pair = Pair::running();
    pair.send(&ToAgent::Stop { leg: 1 }).unwrap();
    pair.pass(day);
    let owes = Fault::Overdue("report after the stop");
    assert_eq!(fault(&mut pair.controller), owes);

    let mut pair = Pair::ready();
    pair.pass(IDLE + PING_EVERY);
    match all(&mut pair.controller).pop() {
        Some(MachineEvent::Closed { why: Some(why) }) => {
            assert!(why.contains("nothing was ordered"))
        }
        _ => panic!("an idle session goes on"),
    }
    assert_eq!(all(&mut pair.agent), [MachineEvent::Closed { why: None }]);
}

#[test]
fn the_idle_time_of_a_session_begins_with_each_order_and_each_answer_and_no_ping() {
    let second = Nanos::from_secs(1);
    let mut pair = Pair::ready();
    pair.pass(IDLE - second);
    pair.send(&open(1)).unwrap();
    pair.answer(&busy(1)).unwrap();
    pair.pass(IDLE - second);
    pair.send(&open(1)).unwrap();
    pair.pass(Nanos::from_secs(20));
    pair.answer(&failed(1, "no")).unwrap();
    pair.pass(IDLE - second);
    let ended = |pair: &mut Pair| {
        let last = all(&mut pair.controller).pop();
        matches!(last, Some(MachineEvent::Closed { .. }))
    };
    assert!(!ended(&mut pair));
    pair.pass(second);
    assert!(ended(&mut pair));
}

#[test]
fn a_session_has_a_deadline_for_all_that_may_come() {
    let mut agent = AgentMachine::new(Nanos(0), "0.1.0", PATIENCE);
    assert_eq!(agent.deadline(), Some(PATIENCE));
    agent.on_timeout(Nanos(PATIENCE.0 - 1));
    assert_eq!(all(&mut agent), []);
    agent.on_timeout(PATIENCE);
    assert_eq!(fault(&mut agent), Fault::Mute(PATIENCE));
    assert_eq!(agent.deadline(), None);
    // Nothing comes: the controller's pings are each second, until 6 s are over.
    let mut pair = Pair::ready();
    let (begun, second) = (pair.now, Nanos::from_secs(1));
    assert_eq!(pair.controller.deadline(), Some(begun + second));
    assert_eq!(pair.agent.deadline(), Some(begun + SILENCE));
    for n in 1..6 {
        let at = begun + Nanos::from_secs(n);
        pair.controller.on_timeout(at);
        assert_eq!(pair.controller.deadline(), Some(at + second));
    }
    pair.controller.on_timeout(begun + Nanos(SILENCE.0 - 1));
    assert_eq!(all(&mut pair.controller), []);
    pair.controller.on_timeout(begun + SILENCE);
    assert_eq!(fault(&mut pair.controller), Fault::Silent(SILENCE));
    let stalls = |outage| {
        let mut pair = Pair::ready();
        let mut order = order(1);
        order.outage = Nanos::from_secs(outage);
        let order = Box::new(order);
        pair.send(&ToAgent::Open { order }).unwrap();
        pair.controller.longest_stall().0 / 1_000_000_000
    };
    assert_eq!([stalls(0), stalls(2), stalls(3)], [10, 10, 12]);
}

#[test]
fn what_is_out_of_turn_is_not_sent_and_not_taken() {
    let from_agent: [(Vec<ToController>, bool, ToController); 9] = [
        (vec![], false, granted(2)),
        (vec![granted(1)], false, granted(1)),
        (vec![], false, connected(1)),
        (vec![granted(1), connected(1)], false, sample(1)),
        (vec![granted(1)], false, finished(1)),
        (vec![granted(1)], false, busy(1)),
        (vec![], false, failed(9, "")),
        (vec![granted(1), connected(1)], true, connected(1)),
        (vec![], false, hello()),
    ];
    for (said, started, wrong) in from_agent {
        let mut pair = Pair::with_leg(&said, started);
        assert!(pair.agent.send(pair.now, &wrong).is_err(), "{wrong:?}");
        assert_eq!(pair.agent.poll_output(), None);
        pair.controller
            .input(pair.now, &encode_frame(&wrong).unwrap());
        assert!(
            matches!(fault(&mut pair.controller), Fault::Order(_)),
            "{wrong:?}"
        );
    }
    let from_controller: [(Vec<ToController>, ToAgent); 5] = [
        (vec![], ToAgent::Start { leg: 1 }),
        (vec![granted(1)], ToAgent::Start { leg: 1 }),
        (vec![], ToAgent::Stop { leg: 2 }),
        (vec![], open(1)),
        (vec![granted(1), failed(1, "")], open(1)),
    ];
    for (said, wrong) in from_controller {
        let mut pair = Pair::with_leg(&said, false);
        assert!(pair.controller.send(pair.now, &wrong).is_err(), "{wrong:?}");
        pair.agent.input(pair.now, &encode_frame(&wrong).unwrap());
        assert!(
            matches!(fault(&mut pair.agent), Fault::Order(_)),
            "{wrong:?}"
        );
    }
}

#[test]
fn a_busy_agent_may_be_asked_again() {
    let mut pair = Pair::with_leg(&[busy(1)], false);
    pair.send(&open(1)).unwrap();
    pair.answer(&granted(1)).unwrap();
    assert!(!pair.controller.is_over() && !pair.agent.is_over());
}

#[test]
fn what_crosses_on_the_way_is_no_fault() {
    // The stop is on its way while the leg ends.
    let stop = ToAgent::Stop { leg: 1 };
    let mut pair = Pair::running();
    pair.controller.send(pair.now, &stop).unwrap();
    pair.agent.send(pair.now, &finished(1)).unwrap();
    pair.agent.send(pair.now, &sample(1)).unwrap();
    pair.exchange();
    assert_eq!(
        all(&mut pair.controller),
        [MachineEvent::Message(finished(1))]
    );
    assert_eq!(all(&mut pair.agent), []);

    // The start is on its way while the agent gives up.
    let mut pair = Pair::with_leg(&[granted(1), connected(1)], false);
    pair.controller
        .send(pair.now, &ToAgent::Start { leg: 1 })
        .unwrap();
    pair.agent.send(pair.now, &failed(1, "lost")).unwrap();
    pair.exchange();
    assert_eq!(
        all(&mut pair.controller),
        [MachineEvent::Message(failed(1, "lost"))]
    );
    assert_eq!(all(&mut pair.agent), []);

    // The stop is on its way while the agent answers the order.
    for late in [granted(1), busy(1)] {
        let mut pair = Pair::with_leg(&[], false);
        pair.controller.send(pair.now, &stop).unwrap();
        pair.agent.send(pair.now, &late).unwrap();
        pair.exchange();
        assert!(
            !pair.controller.is_over() && !pair.agent.is_over(),
            "{late:?}"
        );
    }
}

#[test]
fn queues_have_an_end() {
    let mut pair = Pair::ready();
    for leg in 0..MAX_LIVE_LEGS as u32 {
        pair.send(&open(leg)).unwrap();
    }
    assert!(pair.send(&open(99)).is_err());

    // A controller that does not read.
    let mut pair = Pair::running();
    let mut fat = sample(1);
    if let ToController::Sample { sample, .. } = &mut fat {
        sample.streams.resize(1000, model::StreamSample::default());
    }
    let refused = (0..100_000).find_map(|_| pair.agent.send(pair.now, &fat).err());
    assert!(matches!(refused, Some(Fault::Backlog(_))));
    let waits = pair.agent.poll_output().unwrap().len();
    let frame = encode_frame(&fat).unwrap().len();
    assert!(waits <= MAX_QUEUED && waits + frame > MAX_QUEUED, "{waits}");

    // Nor does the answer to pings grow for ever.
    let ping = encode_frame(&ToAgent::Ping { number: 1 }).unwrap();
    let many = ping.repeat(10_000);
    for _ in 0..MAX_QUEUED / many.len() + 2 {
        pair.agent.input(pair.now, &many);
    }
    assert!(matches!(fault(&mut pair.agent), Fault::Backlog(_)));
    assert!(pair.agent.poll_output().unwrap().len() <= MAX_QUEUED + 100);

    // Nor the messages that nobody reads.
    let mut pair = Pair::running();
    let one = encode_frame(&sample(1)).unwrap();
    for _ in 0..10_000 {
        pair.controller.input(pair.now, &one);
    }
    assert!(matches!(fault(&mut pair.controller), Fault::Backlog(_)));
}

#[test]
fn sentences_of_a_peer_are_fit_for_a_terminal() {
    let mut pair = Pair::with_leg(&[], false);
    let why = format!("\u{1b}]0;title\u{7}\u{202e}{}", "x".repeat(5000));
    pair.answer(&failed(1, &why)).unwrap();
    let Some(MachineEvent::Message(ToController::Failed { why, .. })) =
        all(&mut pair.controller).pop()
    else {
        panic!("no failure");
    };
    assert!(why.starts_with("?]0;title??xxx") && why.chars().count() == 1000);

    let mut pair = Pair::with_leg(&[], false);
    let mut grant = granted(1);
    if let ToController::Granted { warnings, .. } = &mut grant {
        warnings.push(Warning {
            what: "a\u{9b}b".into(),
            meaning: "\n".into(),
            remedy: "\r".into(),
        });
    }
    pair.answer(&grant).unwrap();
    match all(&mut pair.controller).pop() {
        Some(MachineEvent::Message(ToController::Granted { warnings, .. })) => {
            assert_eq!(
                (warnings[0].what.as_str(), warnings[0].meaning.as_str()),
                ("a?b", "?")
            );
        }
        _ => panic!("no grant"),
    }
}

#[test]
fn the_end_of_the_stream_is_a_loss_only_before_the_good_bye() {
    let mut pair = Pair::running();
    pair.controller.input_end();
    assert_eq!(fault(&mut pair.controller), Fault::Gone);
    let mut pair = Pair::running();
    pair.agent.bye("the server was stopped");
    pair.exchange();
    pair.controller.input_end();
    let why = Some("the server was stopped".to_owned());
    assert_eq!(all(&mut pair.controller), [MachineEvent::Closed { why }]);
    // After the end nothing is said any more.
    pair.agent.send(pair.now, &sample(1)).unwrap();
    assert_eq!(pair.agent.poll_output(), None);
}

#[test]
fn requests_to_tune_are_answered_in_their_order_with_a_leg_open_or_not() {
    for mut pair in [Pair::ready(), Pair::running()] {
        let title = "a\u{7}b".to_owned();
        let deadline = Nanos::from_secs(30);
        let begin = TuneRequest::Begin { title, deadline };
        pair.send(&tune(1, begin)).unwrap();
        pair.send(&apply(7, MAX_SETTINGS)).unwrap();
        let [MachineEvent::Message(begun), MachineEvent::Message(applied)] =
            &all(&mut pair.agent)[..]
        else {
            panic!("two requests");
        };
        assert_eq!(applied, &apply(7, MAX_SETTINGS));
        let title = "a?b".to_owned();
        assert_eq!(begun, &tune(1, TuneRequest::Begin { title, deadline }));
        pair.answer(&not_tuned(1, "no\n")).unwrap();
        pair.answer(&tuned(7, MAX_READINGS)).unwrap();
        let [
            MachineEvent::Message(refused),
            MachineEvent::Message(answer),
        ] = &all(&mut pair.controller)[..]
        else {
            panic!("two answers");
        };
        assert_eq!(refused, &not_tuned(1, "no?"));
        match answer {
            ToController::Tuned { outcome, .. } => {
                assert_eq!(outcome.done.as_ref().unwrap()[255].found, "10?[2J");
            }
            _ => panic!("no readings"),
        }
    }
}

#[test]
fn requests_and_answers_out_of_turn_or_bounds_are_not_sent_and_not_taken() {
    let asked = |numbers: &[u64]| {
        let mut pair = Pair::ready();
        for number in numbers {
            pair.send(&tune(*number, TuneRequest::Verify)).unwrap();
        }
        all(&mut pair.agent);
        pair
    };
    for (numbers, wrong) in [
        (vec![], tuned(1, 0)),
        (vec![1, 2], tuned(2, 0)),
        (vec![1, 2], not_tuned(2, "no\n")),
        (vec![1], tuned(1, MAX_READINGS + 1)),
    ] {
        let mut pair = asked(&numbers);
        assert!(pair.agent.send(pair.now, &wrong).is_err());
        let wrong = encode_frame(&wrong).unwrap();
        pair.controller.input(pair.now, &wrong);
        assert!(matches!(fault(&mut pair.controller), Fault::Order(_)));
    }
    let many: Vec<u64> = (1..=MAX_OPEN_REQUESTS as u64).collect();
    let settings = vec!["device.pin=1500@remote".parse().unwrap(); MAX_SETTINGS + 1];
    for (numbers, wrong) in [
        (vec![], tune(1, TuneRequest::UndoOnly { settings })),
        (vec![], tune(0, TuneRequest::Undo)),
        (vec![2], tune(1, TuneRequest::Undo)),
        (vec![2], tune(2, TuneRequest::Undo)),
        (many, tune(99, TuneRequest::Undo)),
        (vec![], apply(1, MAX_SETTINGS + 1)),
    ] {
        let mut pair = asked(&numbers);
        assert!(pair.controller.send(pair.now, &wrong).is_err());
        pair.agent.input(pair.now, &encode_frame(&wrong).unwrap());
        assert!(matches!(fault(&mut pair.agent), Fault::Order(_)));
    }
    // Before the greeting it is no request at all.
    let mut pair = Pair::new();
    let early = tune(1, TuneRequest::Undo);
    assert!(pair.controller.send(pair.now, &early).is_err());
    pair.agent.input(pair.now, &encode_frame(&early).unwrap());
    assert_eq!(fault(&mut pair.agent), Fault::NoGreeting);
}

#[test]
fn an_agent_that_does_not_answer_a_request_to_tune_is_lost() {
    let mut pair = Pair::ready();
    pair.send(&tune(1, TuneRequest::End)).unwrap();
    pair.pass(IDLE);
    let owes = Fault::Overdue("answer a request to tune");
    assert_eq!(fault(&mut pair.controller), owes);
}

#[test]
fn requests_to_probe_are_answered_in_turn_and_their_reports_are_bounded() {
    let ask = |number, request| ToAgent::Probe { number, request };
    let mut pair = Pair::ready();
    pair.send(&ask(
        1,
        ProbeRequest::Begin {
            controller: [192, 0, 2, 1].into(),
        },
    ))
    .unwrap();
    pair.send(&ask(
        2,
        ProbeRequest::Climb {
            ceiling: 9000,
            rtt: PATIENCE,
        },
    ))
    .unwrap();
    assert_eq!(all(&mut pair.agent).len(), 2);
    let refused = |number| ToController::Probed {
        number,
        answer: Err("no\n".to_owned()),
    };
    assert!(pair.agent.send(pair.now, &refused(2)).is_err());
    pair.answer(&refused(1)).unwrap();
    let climb = Climb {
        hops: vec![Hop::default(); 1000],
        ..Climb::default()
    };
    let answer = Ok(ProbeAnswer::Climbed { climb });
    pair.answer(&ToController::Probed { number: 2, answer })
        .unwrap();
    match &all(&mut pair.controller)[..] {
        [
            MachineEvent::Message(ToController::Probed {
                answer: Err(why), ..
            }),
            MachineEvent::Message(ToController::Probed {
                answer: Ok(ProbeAnswer::Climbed { climb }),
                ..
            }),
        ] => {
            assert_eq!(why, "no?");
            assert_eq!(climb.hops.len(), 255);
        }
        other => panic!("{other:?}"),
    }
    pair.send(&ask(3, ProbeRequest::End)).unwrap();
    pair.pass(IDLE);
    let owes = Fault::Overdue("answer a request to probe");
    assert_eq!(fault(&mut pair.controller), owes);
}

#[test]
fn pieces_of_a_trace_are_asked_for_and_sent_up_to_their_bounds() {
    let piece = |length: usize| ToController::Piece {
        leg: 1,
        data: "A".repeat(length),
    };
    let mut pair = Pair::running();
    assert!(
        pair.controller
            .send(pair.now, &ToAgent::Fetch { leg: 1 })
            .is_err()
    );
    let mut pair = Pair::running();
    pair.answer(&finished(1)).unwrap();
    for _ in 0..MAX_OPEN_FETCHES {
        pair.send(&ToAgent::Fetch { leg: 1 }).unwrap();
    }
    assert!(
        pair.controller
            .send(pair.now, &ToAgent::Fetch { leg: 1 })
            .is_err()
    );
    let longest = MAX_PIECE.div_ceil(3) * 4;
    all(&mut pair.controller);
    pair.answer(&piece(longest)).unwrap();
    assert_eq!(
        all(&mut pair.controller),
        [MachineEvent::Message(piece(longest))]
    );
    assert!(pair.agent.send(pair.now, &piece(longest + 1)).is_err());
}

#[test]
fn a_run_between_two_other_hosts_is_reported_and_answered_in_turn() {
    let request = |number, request| ToAgent::Direct { number, request };
    let slot = "0".repeat(32);
    let play = DirectRequest::Play {
        slot: slot.clone(),
        spec: Box::default(),
        to: Destination {
            name: "db1".to_owned(),
            port: 5210,
            id: NodeId::new([1; 32]),
        },
        outage: Nanos(0),
        title: Some("a\u{7}b".to_owned()),
    };
    let progress = |number, what: &str| ToController::Progress {
        number,
        event: PlayEvent::Waiting {
            what: what.to_owned(),
        },
    };
    let answer = |number, answer| ToController::Directed { number, answer };
    let mut pair = Pair::ready();
    pair.send(&request(1, play)).unwrap();
    pair.send(&request(2, DirectRequest::Release { slot }))
        .unwrap();
    match &all(&mut pair.agent)[..] {
        [
            MachineEvent::Message(ToAgent::Direct {
                request: DirectRequest::Play { title, .. },
                ..
            }),
            _,
        ] => assert_eq!(title.as_deref(), Some("a?b")),
        other => panic!("{other:?}"),
    }
    pair.answer(&progress(1, "x\ny")).unwrap();
    assert_eq!(
        all(&mut pair.controller),
        [MachineEvent::Message(progress(1, "x?y"))]
    );
    for early in [progress(2, ""), answer(2, Ok(DirectAnswer::Released))] {
        assert!(pair.agent.send(pair.now, &early).is_err(), "{early:?}");
    }
    // An hour of a run is no silence, and what is behind it waits for its end.
    pair.pass(MAX_SPAN);
    assert!(!pair.controller.is_over());
    pair.answer(&answer(1, Err("stopped".to_owned()))).unwrap();
    assert!(pair.agent.send(pair.now, &progress(1, "")).is_err());
    pair.answer(&answer(2, Ok(DirectAnswer::Released))).unwrap();
    let kept = DirectedRun {
        number: 1,
        run: "0".repeat(32),
        digest: String::new(),
    };
    pair.send(&request(3, DirectRequest::Kept { after: 0 }))
        .unwrap();
    let runs = |count| {
        answer(
            3,
            Ok(DirectAnswer::Kept {
                runs: vec![kept.clone(); count],
            }),
        )
    };
    assert!(pair.agent.send(pair.now, &runs(MAX_KEPT + 1)).is_err());
    pair.answer(&runs(MAX_KEPT)).unwrap();
    let again = request(3, DirectRequest::Kept { after: 64 });
    assert!(pair.controller.send(pair.now, &again).is_err());
    pair.send(&request(4, DirectRequest::Kept { after: 64 }))
        .unwrap();
    pair.pass(Nanos::from_secs(120));
    let owes = Fault::Overdue("answer a request to measure towards another host");
    assert_eq!(fault(&mut pair.controller), owes);
}

#[test]
fn light_probes_are_answered_within_their_bounds() {
    let mut pair = Pair::ready();
    let request = DirectRequest::Light {
        slot: "0".repeat(32),
        peers: Vec::new(),
        packets: 1,
        gap: Nanos(1),
        sizes: Vec::new(),
        ip_version: None,
    };
    pair.send(&ToAgent::Direct { number: 1, request }).unwrap();
    let result = LightResult {
        why: Some("a\u{7}b".to_owned()),
        ..LightResult::default()
    };
    let lighted = |peers: usize| ToController::Directed {
        number: 1,
        answer: Ok(DirectAnswer::Lighted {
            busy: false,
            peers: vec![result.clone(); peers],
        }),
    };
    let most = model::light::MAX_PEERS;
    assert!(pair.agent.send(pair.now, &lighted(most + 1)).is_err());
    pair.answer(&lighted(most)).unwrap();
    match &all(&mut pair.controller)[..] {
        [
            MachineEvent::Message(ToController::Directed {
                answer: Ok(DirectAnswer::Lighted { peers, .. }),
                ..
            }),
        ] => assert_eq!((peers.len(), peers[63].why.as_deref()), (most, Some("a?b"))),
        other => panic!("{other:?}"),
    }
    // What a version without light probes wrote is read.
    let held =
        r#"{"done":"held","id":"ID","port":5210}"#.replace("ID", &NodeId::new([1; 32]).to_string());
    let held: DirectAnswer = serde_json::from_str(&held).unwrap();
    assert!(matches!(held, DirectAnswer::Held { light: None, .. }));
}

#[test]
fn a_request_names_as_many_settings_as_it_may() {
    let mut pair = Pair::ready();
    pair.send(&apply(1, MAX_SETTINGS)).unwrap();
    assert!(
        pair.controller
            .send(pair.now, &apply(2, MAX_SETTINGS + 1))
            .is_err()
    );
}

#[test]
fn a_setting_is_one_of_a_closed_list_or_the_session_ends() {
    for setting in [
        "sysctl:kernel.core_pattern=|/bin/sh@remote",
        "route.initcwnd=0@remote",
        "../../etc/passwd=1",
        "exec=reboot",
    ] {
        let mut pair = Pair::ready();
        let frame = serde_json::json!({
            "say": "tune", "number": 1, "origin": { "address": null, "place": "" },
            "request": { "do": "apply", "settings": [setting] },
        });
        pair.agent.input(pair.now, &encode_frame(&frame).unwrap());
        let fault = fault(&mut pair.agent);
        assert!(matches!(fault, Fault::Message(_)), "{setting}: {fault}");
    }
}

/// What a wire, the two users and time do next.
#[derive(Clone, Debug)]
enum Act {
    Send(u8, u32),
    Answer(u8, u32),
    /// Bytes of one way: how many, and what becomes of them.
    Wire(bool, usize, Fate),
    Pass(u64),
    Garbage(bool, Vec<u8>),
}

#[derive(Clone, Copy, Debug)]
enum Fate {
    Delivered,
    Dropped,
    Repeated,
    Reversed,
}

fn acts(faults: bool) -> impl Strategy<Value = Vec<Act>> {
    let bad = u32::from(faults);
    let fate = prop_oneof![
        8 => Just(Fate::Delivered),
        bad => Just(Fate::Dropped),
        bad => Just(Fate::Repeated),
        bad => Just(Fate::Reversed),
    ];
    let garbage = prop::collection::vec(any::<u8>(), 0..12);
    let act = prop_oneof![
        4 => (0u8..7, 0u32..3).prop_map(|(what, leg)| Act::Send(what, leg)),
        6 => (0u8..10, 0u32..3).prop_map(|(what, leg)| Act::Answer(what, leg)),
        8 => (any::<bool>(), 1usize..600, fate).prop_map(|(way, n, fate)| Act::Wire(way, n, fate)),
        2 => (0u64..1_500).prop_map(Act::Pass),
        bad => (any::<bool>(), garbage).prop_map(|(way, bytes)| Act::Garbage(way, bytes)),
    ];
    prop::collection::vec(act, 0..120)
}

fn to_agent(what: u8, leg: u32) -> ToAgent {
    match what {
        0 | 1 => open(leg),
        2 => ToAgent::Start { leg },
        3 => ToAgent::Stop { leg },
        4 => apply(leg.into(), 1),
        5 => tune(leg.into(), TuneRequest::Renew),
        _ => ToAgent::Ping { number: 1 },
    }
}

fn answered(what: u8, leg: u32) -> ToController {
    match what {
        0 | 1 => granted(leg),
        2 => busy(leg),
        3 | 4 => connected(leg),
        5 => sample(leg),
        6 => finished(leg),
        7 => tuned(leg.into(), 1),
        8 => not_tuned(leg.into(), "no\n"),
        _ => failed(leg, "why"),
    }
}

/// Plays the acts, and at the end delivers what is left on the wire.
fn play(acts: Vec<Act>) -> Pair {
    let mut pair = Pair::new();
    let (mut there, mut back) = (Vec::new(), Vec::new());
    for act in acts {
        match act {
            Act::Send(what, leg) => drop(pair.controller.send(pair.now, &to_agent(what, leg))),
            Act::Answer(what, leg) => drop(pair.agent.send(pair.now, &answered(what, leg))),
            Act::Pass(ms) => {
                pair.now += Nanos::from_millis(ms);
                pair.controller.on_timeout(pair.now);
                pair.agent.on_timeout(pair.now);
            }
            Act::Garbage(true, bytes) => pair.agent.input(pair.now, &bytes),
            Act::Garbage(false, bytes) => pair.controller.input(pair.now, &bytes),
            Act::Wire(way, n, fate) => {
                there.extend(pair.controller.poll_output().unwrap_or_default());
                back.extend(pair.agent.poll_output().unwrap_or_default());
                let queue = if way { &mut there } else { &mut back };
                let mut piece: Vec<u8> = queue.drain(..n.min(queue.len())).collect();
                match fate {
                    Fate::Delivered => {}
                    Fate::Dropped => piece.clear(),
                    Fate::Repeated => piece.extend(piece.clone()),
                    Fate::Reversed => piece.reverse(),
                }
                if way {
                    pair.agent.input(pair.now, &piece);
                } else {
                    pair.controller.input(pair.now, &piece);
                }
            }
        }
    }
    pair.agent.input(pair.now, &there);
    pair.controller.input(pair.now, &back);
    pair.exchange();
    pair
}

/// Whether a session that broke was broken by time alone.
fn only_late<M>(events: &[MachineEvent<M>]) -> bool {
    events.iter().all(|event| match event {
        MachineEvent::Lost(fault) => {
            matches!(fault, Fault::Silent(_) | Fault::Mute(_) | Fault::Overdue(_))
        }
        _ => true,
    })
}

/// Whether the one end is the last event.
fn ends_once<M>(events: &[MachineEvent<M>]) -> bool {
    let is_end =
        |e: &MachineEvent<M>| matches!(e, MachineEvent::Lost(_) | MachineEvent::Closed { .. });
    events.iter().filter(|e| is_end(e)).count() == 1 && events.last().is_some_and(is_end)
}

proptest! {
    /// A wire that only delays never makes one end find fault with the other: what a machine lets
    /// its user say, the other machine takes, whatever crosses on the way.
    #[test]
    fn two_of_us_never_find_fault_with_each_other(acts in acts(false)) {
        let mut pair = play(acts);
        let (local, remote) = (all(&mut pair.controller), all(&mut pair.agent));
        prop_assert!(only_late(&local), "{local:?}");
        prop_assert!(only_late(&remote), "{remote:?}");
    }

    /// A wire that does what it likes never makes a machine panic, go on after its last event, or
    /// stay without an end.
    #[test]
    fn whatever_the_wire_does_there_is_one_end(acts in acts(true)) {
        let mut pair = play(acts);
        for _ in 0..20 {
            pair.now += Nanos::from_secs(3600);
            pair.controller.on_timeout(pair.now);
            pair.agent.on_timeout(pair.now);
        }
        prop_assert!(pair.controller.is_over() && pair.agent.is_over());
        prop_assert!(ends_once(&all(&mut pair.controller)));
        prop_assert!(ends_once(&all(&mut pair.agent)));
    }
}

#[test]
fn nothing_is_taken_after_the_end_and_no_bytes_are_no_sign_of_life() {
    let mut pair = Pair::ready();
    let begun = pair.now;
    pair.agent.input(begun + Nanos::from_secs(3), &[]);
    assert_eq!(pair.agent.deadline(), Some(begun + SILENCE));
    pair.agent.bye("enough");
    all(&mut pair.agent);
    pair.agent.input(begun, b"\0\0\0\x01x");
    pair.agent.input_end();
    assert_eq!(all(&mut pair.agent), []);
}

//! A link and an agent in one process, joined by a pair of sockets; data goes over loopback.

use super::claims::disputed;
use super::*;
use crate::helper::Helpers;
use crate::progress::Event as Progress;
use crate::session;
use crate::testing::byte_stream;
use crate::transport::{AgentChannel, Channel, ControllerChannel};
use crate::trust::Peer;
use model::{Bytes, Directions, Ended, LegLimit};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use wire::control::TuneOutcome;

const SOON: Duration = Duration::from_secs(30);
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// An agent that serves until its link ends or it is stopped.
struct TestAgent {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<()>>,
}

fn linked() -> (PeerLink, TestAgent) {
    let (local, remote) = UnixStream::pair().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let thread = std::thread::spawn(move || {
        let line = byte_stream(remote);
        let channel: AgentChannel = Channel::start(line, "the controller", SOON, None)?;
        session::serve(
            channel,
            Peer::at_a_pipe(HERE, None),
            &Helpers::default(),
            None,
            &stopped,
        )
    });
    let line = byte_stream(local);
    let channel: ControllerChannel = Channel::start(line, "db2", SOON, None).unwrap();
    let addresses = vec![HERE];
    let link = PeerLink::new(Reached {
        channel,
        addresses,
        keys: None,
    });
    (link, TestAgent { stop, thread })
}

fn run(directions: Directions, limit: LegLimit) -> Run {
    Run {
        host: "db2".to_owned(),
        spec: Spec {
            directions,
            streams: 2,
            limit,
            interval: Nanos::from_millis(50),
            ..Spec::default()
        },
        ..Run::default()
    }
}

#[test]
fn more_than_the_far_end_claims_to_have_sent_is_disputed() {
    let of = |sent, received| {
        let bytes = |count| model::EndRecord {
            bytes: model::Bytes(count),
            ..model::EndRecord::default()
        };
        let leg = model::Leg {
            direction: model::Direction::Down,
            started: Nanos(0),
            local: bytes(received),
            remote: bytes(sent),
            ended: Ended::Complete,
        };
        disputed(&Spec::default(), &leg, "db2")
    };
    assert_eq!(of(1000, 1000), None);
    let why = of(1000, 1001).unwrap();
    assert!(
        why.contains("sent 1000 B, this host received 1001 B"),
        "{why}"
    );
    // An end that broke before its last word.
    assert_eq!(of(0, 1001), None);
}

#[test]
fn who_received_in_less_than_half_the_time_is_disputed_unless_a_receive_buffer_held_what_was_acknowledged()
 {
    // A sample every 100 ms for two seconds. In so many at first no more is acknowledged than this; in each later one 200 KB more.
    let of = |silent: u64, at_first: u64, window: u64| {
        let sample = |n: u64| model::Sample {
            at: Nanos::from_millis(n * 100),
            streams: vec![model::StreamSample {
                tcp: Some(model::SocketState::from_probe(model::SocketValues {
                    bytes_acked: model::Bytes(match n {
                        1 => 32,
                        _ => 32 + at_first + n.saturating_sub(silent) * 200_000,
                    }),
                    // What is not read closes it.
                    snd_wnd: model::Bytes(match n {
                        1 => window,
                        _ => window.saturating_sub(at_first),
                    }),
                    ..Default::default()
                })),
                ..Default::default()
            }],
            ..Default::default()
        };
        let end = |ms, samples| model::EndRecord {
            bytes: model::Bytes(2_000_000),
            duration: Nanos::from_millis(ms),
            samples,
            ..model::EndRecord::default()
        };
        let leg = model::Leg {
            direction: model::Direction::Up,
            started: Nanos(0),
            local: end(2000, (1..=20).map(sample).collect()),
            remote: end(140, Vec::new()),
            ended: Ended::Complete,
        };
        disputed(&Spec::default(), &leg, "db2")
    };
    let why = of(0, 0, 0).unwrap();
    assert!(why.contains("claims to have received for 140 ms"), "{why}");
    assert!(of(17, 0, 0).is_some());
    assert_eq!(of(18, 0, 0), None);
    // It began to read late, from a full buffer; more than that is in no buffer.
    assert_eq!(of(18, 131_072, 0), None);
    assert!(of(18, 131_073, 0).is_some());
    assert_eq!(of(18, 900_000, 900_000), None);
    assert!(of(18, 1 << 20, 1 << 30).is_none());
    assert!(of(18, (1 << 20) + 1, 1 << 30).is_some());
}

/// Sets a flag as soon as a sample comes.
struct StopAtSample<'a>(&'a AtomicBool);

impl Watcher for StopAtSample<'_> {
    fn event(&mut self, event: &Progress<'_>) {
        if matches!(event, Progress::Sample { .. }) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

struct Deaf;

impl Watcher for Deaf {
    fn event(&mut self, _: &Progress<'_>) {}
}

#[test]
fn one_link_serves_many_runs_each_over_connections_of_its_own() {
    let (mut link, agent) = linked();
    let go_on = AtomicBool::new(false);
    let mut locals = BTreeSet::new();
    for directions in [
        Directions::Up,
        Directions::UpThenDown,
        Directions::Bidirectional,
    ] {
        let mut run = run(directions, LegLimit::Bytes(Bytes(1 << 20)));
        link.measure(&mut run, &mut Deaf, &go_on).unwrap();
        assert_eq!(run.legs.len(), directions.legs().len());
        assert!(run.remote.is_some());
        for leg in &run.legs {
            assert_eq!(leg.ended, Ended::Complete);
            assert_eq!(leg.receiver().bytes, Bytes(1 << 20));
            for socket in &leg.local.sockets {
                assert!(locals.insert(socket.local), "connected afresh");
            }
        }
    }
    assert_eq!(link.next_leg, 5);
    drop(link);
    agent.thread.join().unwrap().unwrap();
}

#[test]
fn what_ends_a_run_does_not_end_the_link() {
    let (mut link, agent) = linked();
    let go_on = AtomicBool::new(false);
    let long = LegLimit::Time(Nanos::from_secs(60));
    let brief = LegLimit::Bytes(Bytes(1));

    let stop = AtomicBool::new(false);
    let mut stopped = run(Directions::UpThenDown, long);
    link.measure(&mut stopped, &mut StopAtSample(&stop), &stop)
        .unwrap();
    assert_eq!(stopped.legs.len(), 1);
    assert_eq!(stopped.legs[0].ended, Ended::Interrupted);
    assert!(!stopped.legs[0].remote.samples.is_empty());

    let mut refused = run(Directions::Bidirectional, brief);
    refused.spec.streams = 129;
    let error = link.measure(&mut refused, &mut Deaf, &go_on).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("db2 refuses: 129 connections")
    );

    // Nothing listens at this address, so the connections of neither direction come about.
    let remote = std::mem::replace(
        &mut link.addresses,
        vec![Ipv4Addr::new(127, 9, 9, 9).into()],
    );
    let mut apart = run(Directions::Bidirectional, brief);
    let error = link.measure(&mut apart, &mut Deaf, &go_on).unwrap_err();
    assert!(error.to_string().contains("127.9.9.9"), "{error:#}");
    assert!(apart.legs.is_empty() && !link.is_lost());
    link.addresses = remote;

    let mut fine = run(Directions::Bidirectional, brief);
    link.measure(&mut fine, &mut Deaf, &go_on).unwrap();
    assert_eq!(fine.legs.len(), 2);
    drop(link);
    agent.thread.join().unwrap().unwrap();
}

#[test]
fn a_lost_link_is_named_and_stays_lost() {
    let (mut link, agent) = linked();
    let go_on = AtomicBool::new(false);
    let mut first = run(Directions::Up, LegLimit::Time(Nanos::from_secs(60)));
    let mut watcher = StopAtSample(&agent.stop);
    let error = link.measure(&mut first, &mut watcher, &go_on).unwrap_err();
    assert!(error.to_string().starts_with("db2"), "{error:#}");
    assert!(matches!(first.legs[0].ended, Ended::Failed { .. }));
    assert!(link.is_lost());
    let mut second = run(Directions::Up, LegLimit::Bytes(Bytes(1)));
    let error = link.measure(&mut second, &mut Deaf, &go_on).unwrap_err();
    assert!(error.to_string().starts_with("db2"), "{error:#}");
    assert!(second.legs.is_empty());
    drop(agent.thread.join().unwrap());
}

#[test]
fn on_one_machine_the_settings_are_left_to_the_controller() {
    let (mut link, agent) = linked();
    let title = "test".to_owned();
    let deadline = Nanos::from_secs(60);
    assert!(!link.shares_machine());
    let begun = link.tune(TuneRequest::Begin { title, deadline });
    assert_eq!(begun.unwrap(), []);
    assert!(link.shares_machine());
    let settings = vec!["route.initcwnd=32@remote".parse().unwrap()];
    let refused = link.tune(TuneRequest::Apply { settings }).unwrap_err();
    assert!(
        refused.to_string().starts_with("db2 refuses: "),
        "{refused}"
    );
    assert_eq!(link.tune(TuneRequest::End).unwrap(), []);
    assert_eq!(
        (link.local_address(), link.remote_address()),
        (Some(HERE), HERE)
    );

    agent.stop.store(true, Ordering::Relaxed);
    drop(agent.thread.join().unwrap());
    let gone = link.tune(TuneRequest::Verify).unwrap_err();
    assert!(gone.to_string().starts_with("db2"), "{gone}");
    assert!(link.is_lost());
}

#[test]
fn an_answer_that_comes_too_late_is_not_taken_for_another() {
    let (local, remote) = UnixStream::pair().unwrap();
    let agent = std::thread::spawn(move || {
        let line = byte_stream(remote);
        let channel: AgentChannel = Channel::start(line, "the controller", SOON, None).unwrap();
        let mut asked = Vec::new();
        while let Some(ChannelEvent::Message(ToAgent::Tune { number, .. })) = channel.recv(SOON) {
            asked.push(number);
            if asked.len() == 2 {
                for number in &asked {
                    let reading = Reading {
                        setting: number.to_string(),
                        side: Side::Local,
                        asked: String::new(),
                        found: String::new(),
                        in_force: true,
                    };
                    let tuned = ToController::Tuned {
                        number: *number,
                        outcome: TuneOutcome {
                            done: Ok(vec![reading]),
                            shared: false,
                        },
                    };
                    channel.sender().send(tuned).unwrap();
                }
            }
        }
    });
    let line = byte_stream(local);
    let channel: ControllerChannel = Channel::start(line, "db2", SOON, None).unwrap();
    let addresses = vec![HERE];
    let mut link = PeerLink::new(Reached {
        channel,
        addresses,
        keys: None,
    });
    let late = link
        .tune_within(TuneRequest::Verify, Duration::ZERO)
        .unwrap_err();
    assert!(late.to_string().starts_with("db2 did not answer"), "{late}");
    assert!(!link.is_lost());
    let readings = link.tune(TuneRequest::Verify).unwrap();
    assert_eq!(
        (readings[0].setting.as_str(), readings[0].side),
        ("2", Side::Remote)
    );
    drop(link);
    agent.join().unwrap();
}

#[test]
fn an_order_has_the_agent_send_what_comes_down_with_the_congestion_control_of_senders() {
    let spec = Spec {
        socket: SocketSettings {
            congestion: Some("reno".to_owned()),
            ..SocketSettings::default()
        },
        ..Spec::default()
    };
    let reno = Some("reno".to_owned());
    for (direction, agent_sends) in [(Direction::Up, false), (Direction::Down, true)] {
        let order = leg_order(&spec, 3, direction);
        assert_eq!((order.leg, order.agent_sends), (3, agent_sends));
        let of = |side| congestion(&spec, direction, side);
        let expected = [
            reno.clone().filter(|_| !agent_sends),
            reno.clone().filter(|_| agent_sends),
        ];
        assert_eq!([of(Side::Local), of(Side::Remote)], expected);
        assert_eq!(order.socket.congestion, of(Side::Remote));
    }
    // Both ends of calls send.
    let calls = Spec {
        workload: Workload::Request(model::Request {
            request_size: Bytes(1),
            reply_size: Bytes(1),
            pace_per_s: None,
            reconnect: false,
            wait: model::WaitMode::Block,
        }),
        ..spec
    };
    for side in [Side::Local, Side::Remote] {
        assert_eq!(congestion(&calls, Direction::Up, side), reno);
    }
}

//! The agent's side of a session: grants data connections, plays its end of each leg, reports.

use crate::direct::Directing;
use crate::grant::Grant;
use crate::helper::{Helper, Helpers};
use crate::host_calendar::{HostCalendar, NoUnit, SessionUnit};
use crate::leg::{LegEnd, LegResult, asked, job, storage};
use crate::mtu::remote::Probing;
use crate::prelude::*;
use crate::signature::Statement;
use crate::transport::{AgentChannel, ChannelEnd, ChannelEvent, ChannelSender};
use crate::trust::{Admitted, Denied, Identity};
use crate::tuning::TuneService;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use measure::Reconnect;
use measure::storage::Storage;
use std::collections::VecDeque;
use wire::control::{AgentRole, MAX_PIECE, ToAgent, encode_frame};

/// Data connections have so long to come once granted.
const GRANT_FOR: Duration = Duration::from_secs(20);
/// Longer for each: thousands are opened one after the other, a few of them at once.
const GRANT_FOR_EACH: Duration = Duration::from_millis(2);
/// What this end is called in what the controller shows.
const FAR: &str = "the remote host";
/// The controller has so long to say go once all have come.
const START_WITHIN: Duration = Duration::from_secs(60);

/// Serves one authenticated controller until it leaves, is lost, or `stop` is set. When this
/// returns every leg is over and every data socket closed. Its legs are booked in `calendar`.
///
/// # Errors
/// Why the session broke, as a sentence that names the peer.
pub fn serve(
    channel: AgentChannel,
    peer: Peer,
    helpers: &Helpers,
    calendar: Option<HostCalendar>,
    stop: &AtomicBool,
) -> Result<()> {
    let mut session = Session {
        // A slot has the whole host.
        unit: SessionUnit::new(calendar.filter(|_| peer.slot.is_none()), peer.name.clone()),
        directing: Directing::new(peer.clone(), channel.sender()),
        sender: channel.sender(),
        tuning: TuneService::new(&peer, helpers.tuner.clone()),
        probing: Probing::new(peer.clone(), channel.sender()),
        tracer: helpers.tracer.clone(),
        peer,
        legs: BTreeMap::new(),
        traces: Arc::default(),
    };
    let ended = loop {
        if stop.load(Ordering::Relaxed) {
            session
                .sender
                .close("it is shutting down; measure again when it is back");
        }
        if let Some(slot) = session.peer.slot.as_ref()
            && slot.left().is_zero()
        {
            let why = slot.why_over().unwrap_or("its slot is over");
            session.sender.close(why);
        }
        if session.legs.values().any(|leg| !leg.thread.is_finished()) {
            session.tuning.goes_on();
        }
        match channel.recv(Duration::from_millis(200)) {
            Some(ChannelEvent::Message(message)) => session.take(message),
            Some(ChannelEvent::Ended(ended)) => break ended,
            None => {}
        }
    };
    for leg in session.legs.values() {
        leg.stop.store(true, Ordering::Relaxed);
    }
    // The host's settings are restored before its last bytes are waited for.
    drop(session.tuning);
    for (_, leg) in session.legs {
        drop(leg.go);
        // A leg that panicked has nothing more to say, and its sockets are closed.
        let _ = leg.thread.join();
    }
    if let (Some(slot), Some(slots)) = (&session.peer.slot, &session.peer.slots) {
        slots.release(slot.by, &slot.name);
    }
    // What a coordinator ordered goes on without it, and it can fetch it later; unless it said good-bye.
    session
        .directing
        .end(matches!(ended, ChannelEnd::Closed { .. }));
    match ended {
        ChannelEnd::Closed { .. } => Ok(()),
        ended => bail!(ended),
    }
}

struct Session {
    sender: ChannelSender<AgentRole>,
    peer: Peer,
    unit: SessionUnit,
    directing: Directing,
    tuning: TuneService,
    tracer: Option<Arc<Helper>>,
    probing: Probing,
    legs: BTreeMap<u32, Playing>,
    traces: Arc<Mutex<SessionTraces>>,
}

/// Traces that wait to be fetched, by their legs; read from the front.
type SessionTraces = VecDeque<(u32, std::io::Cursor<Vec<u8>>)>;

/// Traces that wait at most: those of two legs at once. The oldest gives way.
const MOST_TRACES: usize = 2;

/// A leg of this session, in a thread of its own.
struct Playing {
    stop: Arc<AtomicBool>,
    /// Taken by a stop: then the start is not waited for any longer.
    go: Option<mpsc::Sender<()>>,
    thread: JoinHandle<()>,
}

impl Session {
    fn take(&mut self, message: ToAgent) {
        match message {
            ToAgent::Open { order } => {
                self.legs.retain(|_, leg| !leg.thread.is_finished());
                let answer = self.open(&order);
                send(&self.sender, answer);
            }
            ToAgent::Start { leg } => {
                if let Some(go) = self.legs.get(&leg).and_then(|playing| playing.go.as_ref()) {
                    // A leg whose thread is over has said why.
                    let _ = go.send(());
                }
            }
            ToAgent::Stop { leg } => {
                if let Some(playing) = self.legs.get_mut(&leg) {
                    playing.stop.store(true, Ordering::Relaxed);
                    playing.go = None;
                }
            }
            ToAgent::Fetch { leg } => send(&self.sender, self.piece(leg)),
            ToAgent::Tune {
                number,
                origin,
                request,
            } => send(&self.sender, self.tuning.answer(number, &origin, request)),
            ToAgent::Probe { number, request } => self.probing.take(number, request),
            ToAgent::Direct { number, request } => self.directing.take(number, request),
            ToAgent::Hello { .. } | ToAgent::Ping { .. } | ToAgent::Bye => {}
        }
    }

    /// The next piece of a trace; an empty one after the last.
    fn piece(&self, leg: u32) -> ToController {
        let mut traces = sys::lock(&self.traces);
        let mut piece = Vec::new();
        if let Some((_, rest)) = traces.iter_mut().find(|(of, _)| *of == leg) {
            let read = rest.take(MAX_PIECE as u64).read_to_end(&mut piece);
            read.expect("memory can be read");
        }
        if piece.is_empty() {
            traces.retain(|(of, _)| *of != leg);
        }
        ToController::Piece {
            leg,
            data: BASE64.encode(piece),
        }
    }

    /// The answer to an order: a grant, and the thread that plays it; or why not.
    fn open(&mut self, order: &LegOrder) -> ToController {
        let leg = order.leg;
        if let Some(why) = self.too_long(order) {
            return ToController::Refused { leg, why };
        }
        let mut admitted = match self.peer.admit(order) {
            Ok(admitted) => admitted,
            Err(Denied::Busy { wait, why }) => return ToController::Busy { leg, wait, why },
            Err(Denied::Refused(why)) => return ToController::Refused { leg, why },
        };
        let what = order.workload.kind().name;
        let unit = match self.unit.book(admitted.order.limit, what) {
            Ok(unit) => unit,
            Err(NoUnit::Busy { wait, why }) => return ToController::Busy { leg, wait, why },
            Err(NoUnit::NoCalendar(warning)) => {
                admitted.warnings.push(warning);
                None
            }
        };
        let opened = self.storage(&admitted.order).and_then(|storage| {
            let grant = Grant::open(&admitted.order, &self.peer);
            let granted = grant.and_then(|grant| Ok((grant.port()?, grant, storage)));
            granted.map_err(|error| sentence(&error))
        });
        let (port, grant, storage) = match opened {
            Ok(opened) => opened,
            Err(why) => return ToController::Refused { leg, why },
        };
        let answer = ToController::Granted {
            leg,
            port,
            token: grant.token().to_hex(),
            expires: granted_for(order).into(),
            order: Box::new(admitted.order.clone()),
            warnings: admitted.warnings.clone(),
        };
        let (go, gone) = mpsc::channel();
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, stop_leg) = (self.sender.clone(), Arc::clone(&stop));
        let traces = Arc::clone(&self.traces);
        let means = Means {
            own_key: self.peer.own_key.clone(),
            tracer: self.tracer.clone(),
        };
        let thread = std::thread::spawn(move || {
            let say = |message| send(&sender, message);
            let grant = Arc::new(grant);
            let played = play(&admitted, grant, storage, &means, &gone, &stop_leg, &say);
            // The next leg may be ordered as soon as this one is reported.
            drop(unit);
            say(match played {
                Ok(played) => {
                    if let Some(trace) = played.trace {
                        let mut traces = sys::lock(&traces);
                        traces.truncate(MOST_TRACES - 1);
                        traces.push_front((leg, std::io::Cursor::new(trace)));
                    }
                    ToController::Finished {
                        leg,
                        record: Box::new(played.record),
                        broke: played.broke,
                    }
                }
                Err(error) => {
                    let why = sentence(&error);
                    ToController::Failed { leg, why }
                }
            });
        });
        let go = Some(go);
        self.legs.insert(leg, Playing { stop, go, thread });
        answer
    }

    /// Why a leg does not end within the slot of this session, if it is in one.
    fn too_long(&self, order: &LegOrder) -> Option<String> {
        let left = Nanos::from(self.peer.slot.as_ref()?.left());
        match order.limit {
            LegLimit::Time(span) if span > left => {
                Some(format!("a leg of {span}: its slot ends in {left}"))
            }
            _ => None,
        }
    }

    /// What the agent's end of a leg reads or writes, as far as the peer may use files here.
    fn storage(&self, order: &LegOrder) -> Result<Option<Storage>, String> {
        let reach = self.peer.reach(order.workload.file(order.agent_sends))?;
        storage(order, Side::Remote, &reach).map_err(|error| error.to_string())
    }
}

fn granted_for(order: &LegOrder) -> Duration {
    GRANT_FOR + GRANT_FOR_EACH * order.streams
}

/// A session that is over receives nothing more and needs nothing more.
fn send(sender: &ChannelSender<AgentRole>, message: ToController) {
    let _ = sender.send(message);
}

/// What the agent's end of a leg has beside its order.
struct Means {
    own_key: Option<Arc<Identity>>,
    tracer: Option<Arc<Helper>>,
}

/// The agent's end of one leg, from the grant to the record, why it broke if it did, and its trace.
fn play(
    admitted: &Admitted,
    grant: Arc<Grant>,
    storage: Option<Storage>,
    means: &Means,
    go: &mpsc::Receiver<()>,
    stop: &AtomicBool,
    say: &dyn Fn(ToController),
) -> Result<LegResult> {
    let order = &admitted.order;
    let leg = order.leg;
    let mut end = LegEnd::begin(order, grant.port()?, FAR, means.tracer.as_ref());
    let sockets = grant.collect(Instant::now() + granted_for(order), stop)?;
    let (states, warnings) = end.connected(&sockets, &asked(order))?;
    let peer = states.first().map(|s| s.remote.ip());
    let fingerprint = Box::new(observe::fingerprint(env!("CARGO_PKG_VERSION"), peer));
    say(ToController::Connected {
        leg,
        sockets: states.clone(),
        fingerprint,
        warnings,
    });
    go.recv_timeout(START_WITHIN)
        .context("the start did not come")?;

    let token = *grant.token();
    let mut statement = Statement::default();
    let cpus = &order.placement.cpus;
    let mut job = job(order, Side::Remote, cpus, storage, &token, || {
        Reconnect::Accept(grant)
    });
    admitted.limit(&mut job);
    let mut on_sample = |sample: Sample| {
        // Its load counts the bytes of the leg's own direction.
        admitted.account(order.workload.both_directions(sample.bytes));
        let message = ToController::Sample {
            leg,
            sample: Box::new(sample.clone()),
        };
        // Counters count from the beginning: a sample that is left out loses nothing.
        let bytes = || encode_frame(&message).map_or(0, |frame| frame.len());
        if admitted.may_sample(bytes) {
            statement.sample(&sample);
            say(message);
        }
    };
    let mut played = end.play(job, sockets, order, &token, stop, &mut on_sample)?;
    let record = &mut played.record;
    let own_key = means.own_key.as_deref();
    record.signed =
        own_key.map(|key| statement.sign(key, &token, order.agent_sends, record, &states));
    Ok(played)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::leg_order;
    use crate::testing::{TempDir, channels};
    use model::{LegLimit, Workload};
    use std::io::Cursor;

    /// Has this done by a session with this peer.
    fn session<T>(peer: Peer, act: impl FnOnce(&mut Session) -> T) -> T {
        let (_controller, agent) = channels("db1");
        act(&mut Session {
            unit: SessionUnit::new(None, String::new()),
            directing: Directing::new(peer.clone(), agent.sender()),
            sender: agent.sender(),
            tuning: TuneService::new(&peer, None),
            probing: Probing::new(peer.clone(), agent.sender()),
            tracer: None,
            peer,
            legs: BTreeMap::new(),
            traces: Arc::default(),
        })
    }

    fn at_a_pipe() -> Peer {
        Peer::at_a_pipe([127, 0, 0, 1].into(), None)
    }

    #[test]
    fn a_trace_is_sent_in_pieces_with_an_empty_one_behind_them_once() {
        session(at_a_pipe(), |session| {
            let bytes: Vec<u8> = (0..MAX_PIECE + 5).map(|n| n as u8).collect();
            let mut traces = sys::lock(&session.traces);
            traces.push_front((1, Cursor::new(b"other".to_vec())));
            traces.push_front((0, Cursor::new(bytes.clone())));
            drop(traces);
            let piece = |leg| match session.piece(leg) {
                ToController::Piece { leg: of, data } => {
                    assert_eq!(of, leg);
                    BASE64.decode(data).unwrap()
                }
                other => panic!("{other:?}"),
            };
            assert!(piece(0) == bytes[..MAX_PIECE]);
            assert_eq!(piece(0), bytes[MAX_PIECE..]);
            assert_eq!(sys::lock(&session.traces).len(), 2);
            assert!(piece(0).is_empty());
            assert_eq!(
                sys::lock(&session.traces).len(),
                1,
                "it is not needed any more"
            );
            assert_eq!(piece(1), b"other");
            assert!(piece(7).is_empty());
        });
    }

    #[test]
    fn a_leg_ends_within_the_slot_of_its_session() {
        let directory = TempDir::new();
        let calendar = HostCalendar::in_directory(directory.path());
        let slots = crate::slots::SlotBook::new(calendar, None, None);
        let (by, source) = ([1; 32], [2; 32]);
        let (by, source) = (model::NodeId::new(by), model::NodeId::new(source));
        let name = "0".repeat(32);
        let order_of_slot = crate::slots::SlotOrder {
            slot: &name,
            after: Nanos(0),
            span: Nanos::from_secs(60),
            ttl: Nanos::from_secs(30),
            peer: Some(source),
            role: wire::control::direct::SlotRole::Destination,
            files: false,
        };
        slots.hold(by, "mesh", &order_of_slot, None).ok().unwrap();
        slots.confirm(by, &name).unwrap();
        let peer = Peer {
            slot: slots.enter(&source),
            ..at_a_pipe()
        };
        let time = |seconds| LegLimit::Time(Nanos::from_secs(seconds));
        session(peer, |session| {
            let too_long = |limit| session.too_long(&leg_order(limit));
            assert_eq!(too_long(time(50)), None);
            let why = too_long(time(61)).unwrap();
            assert!(
                why.starts_with("a leg of 61.0 s: its slot ends in "),
                "{why}"
            );
            assert_eq!(too_long(LegLimit::Whole), None);
        });
        session(at_a_pipe(), |session| {
            assert_eq!(session.too_long(&leg_order(time(86_400))), None);
        });
    }

    #[test]
    fn connections_have_twenty_seconds_to_come_and_a_little_each() {
        let of = |streams| {
            granted_for(&LegOrder {
                streams,
                ..leg_order(LegLimit::Whole)
            })
        };
        assert_eq!(of(1), Duration::from_millis(20_002));
        assert_eq!(of(10_000), Duration::from_secs(40));
    }

    #[test]
    fn an_order_is_granted_with_a_port_or_refused_with_the_reason() {
        let peer = Peer {
            may_files: Err("no files".to_owned()),
            ..at_a_pipe()
        };
        session(peer, |session| {
            let granted = leg_order(LegLimit::Bytes(model::Bytes(1)));
            match session.open(&granted) {
                ToController::Granted {
                    leg: 0,
                    port,
                    expires,
                    order,
                    ..
                } => {
                    assert!(port > 0);
                    assert_eq!(expires, Nanos::from_millis(20_002));
                    assert_eq!(*order, granted);
                }
                other => panic!("{other:?}"),
            }
            assert_eq!(session.legs.len(), 1);
            session.take(ToAgent::Stop { leg: 0 });
            assert!(session.legs[&0].stop.load(Ordering::Relaxed) && session.legs[&0].go.is_none());
            let file = Some("x".to_owned());
            let copy = LegOrder {
                leg: 1,
                workload: Workload::Copy(model::FileCopy {
                    from: file.clone(),
                    to: file,
                    ..model::FileCopy::default()
                }),
                ..granted
            };
            match session.open(&copy) {
                ToController::Refused { leg: 1, why } => assert_eq!(why, "no files"),
                other => panic!("{other:?}"),
            }
        });
    }
}

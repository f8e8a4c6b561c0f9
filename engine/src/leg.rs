//! One end of one leg: a load, and a sampler beside it.

use crate::datagrams::{self, LegDatagrams};
use crate::helper::Helper;
use crate::leg_watch::LegWatch;
use crate::prelude::*;
use crate::signature;
use crate::traces::{self, Tracing};
use measure::storage::{Reach, Storage};
use measure::{Job, Load, Reconnect, Role};
use model::{Datagrams, MOST_SAMPLED, SocketOptions};
use wire::control::silence;

/// Samples are never closer together, whoever asked for them.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(1);
/// How soon an end notices that it is to stop, and its bytes are looked at.
const STOP_WITHIN: Duration = Duration::from_millis(20);

/// Between retransmissions of a leg that is to survive an outage: up to 6 s of silence they are those of any connection, then
/// it goes on at most so long after its path does, instead of twice as late.
const LONGEST_RTO: Duration = Duration::from_secs(4);

/// What one end of a leg made.
#[derive(Default)]
pub struct LegResult {
    /// Everything but its samples and sockets.
    pub record: EndRecord,
    /// Why it ended before its limit, if it did.
    pub broke: Option<String>,
    /// Its trace, if it was traced.
    pub trace: Option<Vec<u8>>,
    /// Of datagrams, the counts of each stream.
    pub datagrams: Vec<Datagrams>,
}

/// What `side` does in a leg of `direction`.
pub fn role(workload: &model::Workload, direction: Direction, side: Side) -> Role {
    Role::of(workload, direction.sender() == side)
}

/// Opens what a copy comes from or goes to at `side`, or what has the blocks there, before any connection is made for
/// it; `None` for other orders.
///
/// # Errors
/// A file that is missing, taken, too small or out of reach.
pub fn storage(
    order: &LegOrder,
    side: Side,
    reach: &Reach,
) -> Result<Option<Storage>, measure::Error> {
    let sender = direction(order).sender() == side;
    measure::storage::open(&order.workload, sender, reach)
}

/// Which way an order moves data.
pub fn direction(order: &LegOrder) -> Direction {
    match order.agent_sends {
        true => Direction::Down,
        false => Direction::Up,
    }
}

/// What `side` is to do of an order, with its storage and the token of its grant. `reconnect` says where new
/// connections come
/// from, if the order wants one for every request.
pub fn job(
    order: &LegOrder,
    side: Side,
    cpus: &[u32],
    storage: Option<Storage>,
    token: &Token,
    reconnect: impl FnOnce() -> Reconnect,
) -> Job {
    let role = role(&order.workload, direction(order), side);
    let mut job = Job::new(role, datagrams::paced(order), order.limit);
    if order.workload.is_udp() {
        job.datagrams = Some(Arc::new(LegDatagrams(*token)));
    }
    job.storage = storage;
    job.cpus = cpus.to_vec();
    if order.outage > Nanos(0) {
        job.lost_after = job.lost_after.max(silence(order.outage).into());
        job.longest_rto = Some(LONGEST_RTO);
    }
    if order.workload.reconnects() {
        job.reconnect = Some(reconnect());
    }
    job
}

/// Open files of a process besides the connections of a leg.
const OTHER_FILES: u64 = 256;

/// Connections that this process may have, as its limit of open files allows, which is raised as far as it goes.
pub fn most_connections() -> u32 {
    let files = sys::process::raise_open_files().saturating_sub(OTHER_FILES);
    u32::try_from(files).unwrap_or(u32::MAX).max(1)
}

/// Whether this process may have so many connections.
///
/// # Errors
/// A sentence: how many it may have, and what to raise.
pub fn can_connect(streams: u32) -> Result<(), String> {
    let most = most_connections();
    (streams <= most).then_some(()).ok_or_else(|| {
        format!(
            "{streams} connections need as many open files and {OTHER_FILES}, and the hard limit of this process allows {most} connections: raise it ('ulimit -Hn' as root, LimitNOFILE= of a service)"
        )
    })
}

/// Which connections of a leg the samples show, if that is not all of them.
pub fn sampled_ones(streams: u32) -> Option<Warning> {
    (streams as usize > MOST_SAMPLED).then(|| Warning {
        what: format!("the sockets of the first {MOST_SAMPLED} of {streams} connections are sampled"),
        meaning: "RTTs, retransmissions and what else TCP reports are those of these; bytes, requests and latencies are of all".to_owned(),
        remedy: format!("use at most {MOST_SAMPLED} connections to see the sockets of all"),
    })
}

/// What is asked of the sockets of an order.
pub fn asked(order: &LegOrder) -> SocketSettings {
    match order.workload.is_udp() {
        true => datagrams::settings(&order.socket),
        false => order.socket.clone(),
    }
}

/// The live sockets that are sampled, as the kernel has them, and where that is not what was asked for.
/// `whose` names this end in the warnings.
pub fn inspect(
    sockets: &[TcpStream],
    asked: &SocketSettings,
    whose: &str,
) -> Result<(Vec<SocketOptions>, Vec<Warning>), observe::Error> {
    let mut states = Vec::new();
    let mut warnings = Vec::new();
    for (stream, socket) in (0..).zip(sockets).take(MOST_SAMPLED) {
        let state = observe::socket_options(stream, socket.as_fd())?;
        for warning in observe::setting_warnings(asked, &state, whose) {
            if !warnings.contains(&warning) {
                warnings.push(warning);
            }
        }
        states.push(state);
    }
    Ok((states, warnings))
}

/// One end of a leg of an agent, from its data port on.
pub struct LegEnd {
    /// What this end is called in warnings.
    whose: &'static str,
    tracing: Option<Tracing>,
    untraced: Option<Warning>,
}

impl LegEnd {
    /// Begins the trace of an order that wants one: before connections are made to or from the data port, by the tracer
    /// if there is one.
    pub fn begin(
        order: &LegOrder,
        port: u16,
        whose: &'static str,
        tracer: Option<&Arc<Helper>>,
    ) -> LegEnd {
        let started = order.trace.then(|| Tracing::start(port, tracer));
        let (tracing, untraced) = match started {
            Some(Ok(tracing)) => (Some(tracing), None),
            Some(Err(error)) => (None, Some(traces::untraced(whose, &error))),
            None => (None, None),
        };
        LegEnd {
            whose,
            tracing,
            untraced,
        }
    }

    /// The live sockets as the kernel has them, and what there is to warn of.
    pub fn connected(
        &mut self,
        sockets: &[TcpStream],
        asked: &SocketSettings,
    ) -> Result<(Vec<SocketOptions>, Vec<Warning>), observe::Error> {
        let (states, mut warnings) = inspect(sockets, asked, self.whose)?;
        warnings.extend(self.untraced.take());
        if let Some(tracing) = &self.tracing {
            tracing.own(&states);
        }
        Ok((states, warnings))
    }

    /// As [`run_end`], with what disturbed this host meanwhile and the trace.
    pub fn play(
        self,
        job: Job,
        sockets: Vec<TcpStream>,
        order: &LegOrder,
        token: &Token,
        stop: &AtomicBool,
        on_sample: &mut dyn FnMut(Sample),
    ) -> anyhow::Result<LegResult> {
        let watch = LegWatch::begin(&signature::tag(token));
        let mut played = run_end(job, sockets, order.interval, stop, &|_| (), on_sample)?;
        let record = &mut played.record;
        record.warnings.extend(watch.end(self.whose));
        match self.tracing.map(Tracing::finish) {
            Some(Ok(kept)) => {
                let cut = traces::cut(self.whose, &kept.traced);
                record.warnings.extend(cut);
                record.trace = Some(kept.traced);
                played.trace = Some(kept.bytes);
            }
            Some(Err(error)) => record.warnings.push(traces::untraced(self.whose, &error)),
            None => {}
        }
        Ok(played)
    }
}

/// Runs one end to its limit, or until `stop` is set; every sample goes to `on_sample` as soon as
/// it is taken, and `moved` learns every moment how many bytes there are. Streams that broke are among the warnings; if
/// all broke, the result says why.
///
/// # Errors
/// If the load could not start: then nothing was sent.
pub fn run_end(
    mut job: Job,
    sockets: Vec<TcpStream>,
    interval: Nanos,
    stop: &AtomicBool,
    moved: &dyn Fn(Bytes),
    on_sample: &mut dyn FnMut(Sample),
) -> anyhow::Result<LegResult> {
    let mut result = LegResult::default();
    match measure::ready(&mut job, &sockets, stop) {
        Ok(true) => {}
        Ok(false) => return Ok(result),
        Err(why) => {
            if job.storage.is_some() {
                result.record.store.get_or_insert_default().failed = Some(why.clone());
            }
            result.broke = Some(why);
            return Ok(result);
        }
    }
    let (streams, is_udp) = (sockets.len(), job.workload.is_udp());
    // TCP has an account of each.
    let sampled_ones = sockets.iter().filter(|_| !is_udp).take(MOST_SAMPLED);
    let copies: Result<Vec<_>, _> = sampled_ones.map(TcpStream::try_clone).collect();
    let mut sampler = observe::Sampler::start(copies?);
    let all = |datagrams: &[Datagrams]| is_udp.then(|| together(datagrams));
    let peer = sockets.first().and_then(|s| s.peer_addr().ok());
    // Many devices do not report line errors, and none need be there.
    let line = || observe::line_errors(peer?.ip()).ok();
    let line_before = line();
    // Before the load starts: the round-trip time of the handshake is that of the idle path.
    on_sample(Sample {
        datagrams: all(&[]),
        ..sampler.sample(Nanos(0), &vec![Bytes(0); streams], None)
    });

    let started = Instant::now();
    let load = Load::start(job, sockets)?;
    let wait = |until| {
        let is_over = load.wait(until);
        moved(load.bytes().iter().copied().sum());
        is_over
    };
    sampled(interval, stop, &wait, &|| load.stop(), &mut || {
        let at = Nanos::from(started.elapsed());
        on_sample(Sample {
            datagrams: all(&load.datagrams()),
            ..sampler.sample(at, &load.bytes(), load.take_requests())
        });
    });

    let outcome = load.finish();
    result.record = EndRecord {
        bytes: outcome.bytes.iter().copied().sum(),
        datagrams: all(&outcome.datagrams),
        line: line_before.and_then(|before| line()?.since(&before)),
        ..outcome.record
    };
    let broke: Vec<String> = outcome.errors.iter().map(|e| e.what.clone()).collect();
    let all_broke = broke.len() == streams && streams > 0;
    if !all_broke && outcome.limit.is_none() {
        let warnings = &mut result.record.warnings;
        warnings.extend(outcome.errors.into_iter().map(|error| Warning {
            what: format!("stream {} broke: {}", error.stream, error.what),
            meaning: "the figures hold what it moved until then".to_owned(),
            remedy: "measure again; if it stays, look at the path with fewer streams".to_owned(),
        }));
    }
    let broke = broke.into_iter().next().filter(|_| all_broke);
    result.broke = outcome.limit.or(broke);
    result.datagrams = outcome.datagrams;
    Ok(result)
}

/// The counts of all streams together; the jitter is their mean, as in iperf3.
pub fn together(streams: &[Datagrams]) -> Datagrams {
    let count = (streams.len() as u64).max(1);
    Datagrams {
        packets: streams.iter().map(|d| d.packets).sum(),
        lost: streams.iter().map(|d| d.lost).sum(),
        out_of_order: streams.iter().map(|d| d.out_of_order).sum(),
        jitter: Nanos(streams.iter().map(|d| d.jitter.0).sum::<u64>() / count),
    }
}

/// Adds what the end of a load knows to what its beginning knew: its samples, sockets and warnings.
pub fn merge(end: &mut EndRecord, record: EndRecord) {
    let EndRecord {
        samples,
        thinned_from,
        sockets,
        mut warnings,
        ..
    } = std::mem::take(end);
    warnings.extend(record.warnings);
    *end = EndRecord {
        samples,
        thinned_from,
        sockets,
        warnings,
        ..record
    };
}

/// Samples every `interval` and once at the end, until the load is over (`wait` says so) or `stop` has ended it.
pub fn sampled(
    interval: Nanos,
    stop: &AtomicBool,
    wait: &dyn Fn(Instant) -> bool,
    end: &dyn Fn(),
    sample: &mut dyn FnMut(),
) {
    let interval = Duration::from(interval).max(SHORTEST_INTERVAL);
    let mut due = Instant::now() + interval;
    let mut finished = false;
    while !finished {
        finished = wait(due.min(Instant::now() + STOP_WITHIN));
        if stop.load(Ordering::Relaxed) {
            end();
        }
        if finished || Instant::now() >= due {
            sample();
            // A sampler that fell behind skips moments instead of crowding them.
            while due <= Instant::now() {
                due += interval;
            }
        }
    }
}

/// How the run ended that came to this and made these legs: one that failed outweighs one that was
/// interrupted.
pub fn how_ended(outcome: &anyhow::Result<()>, legs: &[Leg]) -> Ended {
    if let Err(error) = outcome {
        return failed_with(error);
    }
    let mut ends = legs.iter().map(|leg| &leg.ended);
    let failed = ends.clone().find(|end| matches!(end, Ended::Failed { .. }));
    let worst = failed.or_else(|| ends.find(|end| **end != Ended::Complete));
    worst.cloned().unwrap_or(Ended::Complete)
}

/// The end of what failed with this error.
pub fn failed_with(error: &anyhow::Error) -> Ended {
    let why = sentence(error);
    Ended::Failed { why }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Bulk, LegLimit, Workload};
    use std::io::Write;
    use std::net::{Ipv4Addr, TcpListener};

    /// Two streams arrive, of which so many end with a reset.
    fn received(resets: usize) -> LegResult {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let at = listener.local_addr().unwrap();
        let senders = [(); 2].map(|()| TcpStream::connect(at).unwrap());
        let mut sockets = Vec::from([(); 2].map(|()| listener.accept().unwrap().0));
        // Who closes with something unread sends a reset (RFC 2525, 2.17).
        for (socket, sender) in sockets.iter_mut().zip(&senders).take(resets) {
            socket.write_all(b"unread").unwrap();
            sender.peek(&mut [0]).unwrap();
        }
        drop(senders);
        let workload = Workload::Bulk(Bulk::default());
        let limit = LegLimit::Time(Nanos::from_secs(60));
        let job = Job::new(Role::Receive, workload, limit);
        let stop = AtomicBool::new(false);
        let interval = Nanos::from_millis(100);
        run_end(job, sockets, interval, &stop, &|_| (), &mut |_| ()).unwrap()
    }

    #[test]
    fn a_leg_broke_when_all_of_its_streams_did() {
        let broke = |warning: &Warning| warning.what.contains(" broke: ");
        let of = |resets| {
            let result = received(resets);
            let warned = result
                .record
                .warnings
                .iter()
                .filter(|warning| broke(warning))
                .count();
            (result.broke.is_some(), warned)
        };
        assert_eq!(of(0), (false, 0));
        assert_eq!(of(1), (false, 1));
        assert_eq!(of(2), (true, 0));
    }

    #[test]
    fn counts_of_streams_are_added_and_their_jitter_is_the_mean() {
        let one = |n: u64| Datagrams {
            packets: n,
            lost: 2 * n,
            out_of_order: 3 * n,
            jitter: Nanos(4 * n),
        };
        assert_eq!(together(&[]), Datagrams::default());
        let both = together(&[one(1), one(3)]);
        assert_eq!((both.packets, both.lost), (4, 8));
        assert_eq!((both.out_of_order, both.jitter), (12, Nanos(8)));
    }

    #[test]
    fn the_end_of_a_load_adds_its_warnings_and_replaces_its_counts() {
        let warning = |what: &str| Warning {
            what: what.to_owned(),
            meaning: String::new(),
            remedy: String::new(),
        };
        let mut end = EndRecord {
            samples: vec![Sample::default(); 2],
            thinned_from: Some(9),
            warnings: vec![warning("first")],
            bytes: Bytes(1),
            ..EndRecord::default()
        };
        let record = EndRecord {
            warnings: vec![warning("second")],
            bytes: Bytes(7),
            ..EndRecord::default()
        };
        merge(&mut end, record);
        assert_eq!((end.samples.len(), end.thinned_from), (2, Some(9)));
        assert_eq!(end.warnings, [warning("first"), warning("second")]);
        assert_eq!(end.bytes, Bytes(7));
    }

    #[test]
    fn a_failure_outweighs_an_interrupt() {
        let legs = |all: &[Ended]| -> Vec<Leg> {
            let leg = |ended: &Ended| Leg {
                direction: Direction::Up,
                started: Nanos(0),
                local: EndRecord::default(),
                remote: EndRecord::default(),
                ended: ended.clone(),
            };
            all.iter().map(leg).collect()
        };
        let failed = || Ended::Failed {
            why: "x".to_owned(),
        };
        let done = || Ended::Complete;
        let of = |all: &[Ended]| how_ended(&Ok(()), &legs(all));
        assert_eq!([of(&[]), of(&[done(), done()])], [done(), done()]);
        assert_eq!(of(&[done(), Ended::Interrupted]), Ended::Interrupted);
        assert_eq!(of(&[Ended::Interrupted, failed(), done()]), failed());
        assert_eq!(how_ended(&Err(anyhow!("x")), &legs(&[done()])), failed());
    }

    #[test]
    fn samples_are_due_every_interval_and_once_at_the_end() {
        let go_on = AtomicBool::new(false);
        let count = |interval, looks: u32| {
            let (mut samples, ended) = (0, AtomicBool::new(false));
            let left = std::cell::Cell::new(looks);
            let wait = |_| {
                left.set(left.get() - 1);
                left.get() == 0
            };
            let end = || ended.store(true, Ordering::Relaxed);
            sampled(interval, &go_on, &wait, &end, &mut || samples += 1);
            assert!(!ended.load(Ordering::Relaxed));
            samples
        };
        assert_eq!(count(Nanos::from_secs(3600), 1), 1);
        assert_eq!(count(Nanos::from_secs(3600), 50), 1);
        // A waiter that waits until it is due: at each look one is.
        let (mut samples, looks) = (0, std::cell::Cell::new(0));
        let wait = |until: Instant| {
            assert!(until <= Instant::now() + STOP_WITHIN);
            std::thread::sleep(until.saturating_duration_since(Instant::now()));
            looks.set(looks.get() + 1);
            looks.get() == 4
        };
        sampled(Nanos(0), &go_on, &wait, &|| (), &mut || samples += 1);
        assert_eq!(samples, 4);
        let (stop, stopped) = (AtomicBool::new(true), std::cell::Cell::new(0));
        let end = || stopped.set(stopped.get() + 1);
        sampled(
            Nanos::from_secs(3600),
            &stop,
            &|_| stopped.get() > 0,
            &end,
            &mut || (),
        );
        assert_eq!(stopped.get(), 2);
    }

    fn an_order(workload: Workload) -> LegOrder {
        LegOrder {
            leg: 0,
            agent_sends: true,
            workload,
            streams: 1,
            limit: LegLimit::Whole,
            interval: Nanos(0),
            outage: Nanos(0),
            trace: false,
            socket: SocketSettings {
                mss: Some(1000),
                dscp: Some(3),
                ..SocketSettings::default()
            },
            placement: model::Placement::default(),
        }
    }

    #[test]
    fn a_job_is_what_its_order_says() {
        let udp = Workload::Udp(model::Udp {
            rate: model::BitRate(1),
            datagram_size: Bytes(1000),
        });
        let requests = |reconnect| {
            Workload::Request(model::Request {
                request_size: Bytes(64),
                reply_size: Bytes(64),
                pace_per_s: None,
                reconnect,
                wait: model::WaitMode::Block,
            })
        };
        let bulk = || Workload::Bulk(Bulk::default());
        let of = |order: &LegOrder, side| {
            let none = || Reconnect::Connect(Arc::new(|_| Err(ErrorKind::NotFound.into())));
            job(order, side, &[3], None, &Token::new([7; 32]), none)
        };
        let plain = an_order(bulk());
        let job = of(&plain, Side::Remote);
        assert!(job.role == Role::Send && job.cpus == [3]);
        assert!(job.datagrams.is_none() && job.reconnect.is_none());
        assert!(job.longest_rto.is_none());
        assert!(of(&plain, Side::Local).role == Role::Receive);
        assert_eq!(direction(&plain), Direction::Down);
        let up = LegOrder {
            agent_sends: false,
            ..an_order(bulk())
        };
        assert_eq!(direction(&up), Direction::Up);
        assert!(of(&up, Side::Remote).role == Role::Receive);
        assert!(of(&an_order(udp.clone()), Side::Local).datagrams.is_some());
        assert!(
            of(&an_order(requests(true)), Side::Local)
                .reconnect
                .is_some()
        );
        assert!(
            of(&an_order(requests(false)), Side::Local)
                .reconnect
                .is_none()
        );
        let outage = |outage| LegOrder {
            outage,
            ..an_order(bulk())
        };
        let longer = of(&outage(Nanos::from_secs(60)), Side::Local);
        assert_eq!(longer.longest_rto, Some(LONGEST_RTO));
        assert_eq!(longer.lost_after, Duration::from_secs(126));
        let shorter = of(&outage(Nanos(1)), Side::Local);
        assert_eq!(shorter.lost_after, job.lost_after);
        assert_eq!(asked(&plain), plain.socket);
        let of_udp = asked(&an_order(udp));
        assert_eq!((of_udp.mss, of_udp.dscp), (None, Some(3)));
    }

    #[test]
    fn connections_are_as_many_as_open_files_allow_and_the_first_are_sampled() {
        let most = most_connections();
        assert_eq!(can_connect(most), Ok(()));
        if let Some(more) = most.checked_add(1) {
            let why = can_connect(more).unwrap_err();
            assert!(
                why.starts_with(&format!("{more} connections need")),
                "{why}"
            );
        }
        let of = |streams: usize| sampled_ones(streams as u32).map(|warning| warning.what);
        assert_eq!(of(MOST_SAMPLED), None);
        let what = of(MOST_SAMPLED + 1).unwrap();
        assert!(
            what.contains(&format!("of {} connections", MOST_SAMPLED + 1)),
            "{what}"
        );
    }
}

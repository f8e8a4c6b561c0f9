//! One iperf3 session: params, auth, streams, test, results.

use super::ServerState;
use super::reservations::Reservation;
use crate::clock::unix_seconds;
use crate::iperf3::stream_result;
use crate::iperf3::udp::Iperf3Datagrams;
use crate::prelude::*;
use crate::transport::acceptor::{Slot, source};
use crate::transport::admission::PendingConnection;
use crate::transport::driver::Driver;
use measure::{Job, Load, Role};
use model::{Bulk, Datagrams, Udp};
use sys::poll::Waker;
use wire::Machine;
use wire::iperf3::{
    Cookie, Iperf3Failure, Iperf3Server, Params, ServerEvent, State, TestProtocol, TestResults,
    code,
};

/// How soon a session notices what happens elsewhere.
const TICK: Duration = Duration::from_millis(50);
/// How long a client waits in the queue before it gets "server is busy".
const QUEUE_FOR: Duration = Duration::from_secs(120);
/// A client that does not end its test in time gets this much more, as with iperf3 itself.
const GRACE: Nanos = Nanos::from_secs(30);
/// What is on its way when the client ends the test may still arrive within this.
const DRAIN: Duration = Duration::from_millis(100);
/// Payload of a datagram if the client names none: what fits an Ethernet frame.
const DATAGRAM: Bytes = Bytes(1448);

/// Turns a client away that cannot even wait.
pub fn deny(mut stream: &TcpStream) {
    // One byte into an empty send buffer: it cannot block, and if it fails nobody is there.
    let _ = stream.write_all(&[State::AccessDenied.byte()]);
}

/// Serves one client.
pub fn run(
    server: &ServerState<'_>,
    stream: TcpStream,
    peer: SocketAddr,
    cookie: Cookie,
    pending: PendingConnection,
) {
    let session = TestSession::open(server, stream, peer, cookie);
    let (Ok(said) | Err(said)) = session.and_then(|session| session.serve(pending));
    (server.log)(&format!("{peer}: {said}"));
}

struct TestSession<'a> {
    server: &'a ServerState<'a>,
    control: Driver<Iperf3Server>,
    peer: SocketAddr,
    local: SocketAddr,
    cookie: Cookie,
}

/// One half of a test: the streams that this end receives on, or those that it sends on.
struct Half {
    load: Load,
    sends: bool,
    /// What came before the end of the omitted start, by stream.
    omitted: Vec<SessionCounts>,
}

/// The counters of one stream.
#[derive(Clone, Copy, Debug, Default)]
struct SessionCounts {
    bytes: Bytes,
    retransmits: Option<u32>,
    datagrams: Datagrams,
}

impl<'a> TestSession<'a> {
    fn open(
        server: &'a ServerState<'a>,
        stream: TcpStream,
        peer: SocketAddr,
        cookie: Cookie,
    ) -> Result<TestSession<'a>, String> {
        let local = stream.local_addr().map_err(|error| error.to_string())?;
        let mut machine = Iperf3Server::new(Nanos(0));
        machine.input(Nanos(0), &cookie);
        let control = crate::iperf3::control(stream, machine).map_err(|error| error.to_string())?;
        Ok(TestSession {
            server,
            control,
            peer,
            local,
            cookie,
        })
    }

    fn serve(mut self, pending: PendingConnection) -> Result<String, String> {
        let params = self.params()?;
        self.admit(&params)?;
        pending.authenticated();
        let Some(_client) = self.server.clients.take(source(self.peer.ip())) else {
            return Err(self.deny("too many clients at once; turned away"));
        };
        let _slot = self.slot()?;
        let streams = match params.protocol {
            TestProtocol::Tcp => self.tcp_streams(&params)?,
            TestProtocol::Udp => self.udp_streams(&params)?,
        };
        self.test(&params, streams)
    }

    fn params(&mut self) -> Result<Params, String> {
        loop {
            if let Some(ServerEvent::Asked(params)) = self.step(None)? {
                return Ok(*params);
            }
        }
    }

    /// Checks what the client requests; refuses in iperf3's words.
    fn admit(&mut self, params: &Params) -> Result<(), String> {
        if let Some(authenticator) = &self.server.authenticator {
            let now = i64::try_from(unix_seconds()).unwrap_or(i64::MAX);
            match authenticator.verify(params.authtoken.as_deref(), now) {
                Ok(user) => (self.server.log)(&format!("{}: is the user {user}", self.peer)),
                Err(why) => return Err(self.refuse(code::AUTH, &why.to_string())),
            }
        }
        let options = &self.server.options;
        let asked = Nanos::from_secs(u64::from(params.time_s) + u64::from(params.omit_s));
        if asked > options.iperf3_max_time {
            let most = options.iperf3_max_time;
            let why = format!("requested {asked}, and --iperf3-max-time is {most}");
            return Err(self.refuse(code::DURATION, &why));
        }
        let streams = stream_count(params) as u64;
        let rate = params.rate_bit_s.saturating_mul(streams);
        if let Some(limit) = options.iperf3_max_rate
            && rate > limit.0
        {
            let rate = BitRate(rate);
            let why = format!("requested {rate}, and --iperf3-max-rate is {limit}");
            return Err(self.refuse(code::TOTAL_RATE, &why));
        }
        Ok(())
    }

    /// Waits until there is room for another test.
    fn slot(&mut self) -> Result<Slot<()>, String> {
        let until = Instant::now() + QUEUE_FOR;
        let mut logged = false;
        loop {
            if let Some(slot) = self.server.tests.take(()) {
                return Ok(slot);
            }
            if !logged {
                (self.server.log)(&format!("{}: waits in the queue", self.peer));
                logged = true;
            }
            self.step(None)?;
            if Instant::now() >= until {
                return Err(
                    self.deny("waited too long in the queue; answered that the server is busy")
                );
            }
        }
    }

    fn tcp_streams(&mut self, params: &Params) -> Result<Vec<TcpStream>, String> {
        let count = stream_count(params);
        let server = self.server;
        let reservation = match server.sessions.reserve(self.cookie, count, self.peer.ip()) {
            Ok(Some(reservation)) => reservation,
            Ok(None) => return Err(self.refuse(code::RECEIVE_COOKIE, "its cookie is in use")),
            Err(error) => return Err(self.refuse(code::STREAM_ACCEPT, &error.to_string())),
        };
        let now = self.control.now();
        self.control.machine.open(now);
        let mut arrived = self.collect(&reservation, count)?;
        arrived.sort_unstable_by_key(|(order, _)| *order);
        let settings = self.settings(params);
        let streams: Vec<TcpStream> = arrived.into_iter().map(|(_, stream)| stream).collect();
        for stream in &streams {
            let blocking = stream.set_nonblocking(false).map_err(|e| e.to_string());
            let ready = blocking.and_then(|()| apply(stream, &settings));
            ready.map_err(|why| self.refuse(code::STREAM_ACCEPT, &why))?;
        }
        Ok(streams)
    }

    fn udp_streams(&mut self, params: &Params) -> Result<Vec<TcpStream>, String> {
        let count = stream_count(params);
        let until = Instant::now() + QUEUE_FOR;
        let pending = loop {
            let (peer, local) = (self.peer.ip(), self.local.ip());
            match self.server.udp.expect(peer, local, count) {
                Ok(Some(pending)) => break pending,
                Ok(None) if Instant::now() < until => {
                    self.step(None)?;
                }
                Ok(None) => {
                    let why = "another test of the same client was set up for too long";
                    return Err(self.deny(why));
                }
                Err(error) => return Err(self.refuse(code::STREAM_ACCEPT, &error.to_string())),
            }
        };
        let now = self.control.now();
        self.control.machine.open(now);
        let streams = self.collect(&pending, count)?;
        for stream in &streams {
            // A buffer or a code point that does not take changes no count: the test goes on.
            if let Some(bytes) = params.window {
                let _ = sys::udp::set_buffers(stream, bytes);
            }
            if params.tos > 0 {
                let _ = sys::udp::set_tos(stream, params.tos);
            }
        }
        Ok(streams.into_iter().map(sys::udp::as_stream).collect())
    }

    /// All that was reserved, once it is there; the protocol has a deadline for it.
    fn collect<K: Ord, Item, Extra>(
        &mut self,
        reservation: &Reservation<'_, K, Item, Extra>,
        count: usize,
    ) -> Result<Vec<Item>, String> {
        let mut arrived = Vec::new();
        while arrived.len() < count {
            self.step(Some(&reservation.waker))?;
            arrived.extend(reservation.arrivals.try_iter());
        }
        Ok(arrived)
    }

    /// The test itself, from its start to the exchange of results. The streams that the client sends on come first.
    fn test(&mut self, params: &Params, streams: Vec<TcpStream>) -> Result<String, String> {
        let span = match params.time_s {
            0 => self.server.options.iperf3_max_time,
            time_s => Nanos::from_secs(u64::from(time_s) + u64::from(params.omit_s)),
        };
        let at_most = span + GRACE;
        let now = self.control.now();
        self.control.machine.start(now, at_most);
        self.control.send_all();
        let mut halves = match self.start(params, streams, at_most) {
            Ok(halves) => halves,
            Err(why) => return Err(self.refuse(code::STREAM_ACCEPT, &why)),
        };
        let cpu = sys::process::cpu_time().unwrap_or_default();
        let mut cpu_since = cpu;
        let mut started = Instant::now();
        let omit = Duration::from_secs(u64::from(params.omit_s));
        let mut omitting = !omit.is_zero();
        loop {
            if omitting && started.elapsed() >= omit {
                for half in &mut halves {
                    half.omitted = half.counts();
                }
                omitting = false;
                started = Instant::now();
                cpu_since = sys::process::cpu_time().unwrap_or_default();
            }
            let mut until = Instant::now() + TICK;
            if omitting {
                until = until.min(started + omit);
            }
            match self.step_until(None, until) {
                Ok(Some(ServerEvent::Ended)) => break,
                Ok(_) => {}
                Err(why) => {
                    let moved: Bytes = halves.iter().map(Half::total).sum();
                    halves.into_iter().for_each(Half::end);
                    return Err(format!("{why}; {moved} were moved until then"));
                }
            }
            if let Err((number, why)) = self.within_limits(&halves, started.elapsed()) {
                halves.into_iter().for_each(Half::end);
                return Err(self.refuse(number, &why));
            }
        }
        let span = started.elapsed();
        // Still in the omitted start: all of it counts, which says more than nothing.
        let until = Instant::now() + DRAIN * 4;
        for half in &halves {
            half.load.stop();
        }
        for half in &halves {
            half.load.wait(until);
        }
        let (user, system) = sys::process::cpu_time().unwrap_or_default();
        let percent = |now: Duration, before: Duration| {
            100.0 * now.saturating_sub(before).as_secs_f64() / span.as_secs_f64().max(1e-6)
        };
        let cpu = (percent(user, cpu_since.0), percent(system, cpu_since.1));
        let results = results(params, &halves, span, cpu, self.peer);
        let summary = summary(params, &results, span);
        halves.into_iter().for_each(Half::end);
        let now = self.control.now();
        self.control.machine.results(now, results);
        loop {
            if let Some(ServerEvent::Finished(_)) = self.step(None)? {
                return Ok(summary);
            }
        }
    }

    /// Starts the loads: what the client sends is received, and the other way round.
    fn start(
        &self,
        params: &Params,
        mut streams: Vec<TcpStream>,
        at_most: Nanos,
    ) -> Result<Vec<Half>, String> {
        let workload = self.workload(params);
        let wide = params.udp_counters_64bit;
        let sending = streams.split_off(receiving_streams(params).min(streams.len()));
        let mut halves = Vec::new();
        for (role, streams) in [(Role::Receive, streams), (Role::Send, sending)] {
            if streams.is_empty() {
                continue;
            }
            // The client ends the test; this is the bound.
            let mut job = Job::new(role, workload.clone(), LegLimit::Time(at_most));
            job.half_close = false;
            job.drain = DRAIN;
            job.datagrams = Some(Arc::new(Iperf3Datagrams { wide }));
            halves.push(Half {
                load: Load::start(job, streams).map_err(|error| error.to_string())?,
                sends: role == Role::Send,
                omitted: Vec::new(),
            });
        }
        Ok(halves)
    }

    /// What its streams carry.
    fn workload(&self, params: &Params) -> Workload {
        let size = params.block_size.map(|size| Bytes(u64::from(size)));
        match params.protocol {
            TestProtocol::Tcp => Workload::Bulk(Bulk {
                write_size: size,
                discard: params.skip_rx_copy,
                zerocopy: params.zerocopy,
            }),
            TestProtocol::Udp => {
                let asked = Some(params.rate_bit_s).filter(|rate| *rate > 0);
                let rate = asked.or_else(|| self.share_of_limit(params));
                Workload::Udp(Udp {
                    rate: BitRate(rate.unwrap_or(0)),
                    datagram_size: size.unwrap_or(DATAGRAM),
                })
            }
        }
    }

    fn settings(&self, params: &Params) -> SocketSettings {
        let window = params.window.map(|bytes| Bytes(u64::from(bytes)));
        let rates = [
            Some(params.rate_bit_s).filter(|rate| *rate > 0),
            Some(params.fq_rate_bit_s).filter(|rate| *rate > 0),
            self.share_of_limit(params),
        ];
        let least = rates.into_iter().flatten().min();
        SocketSettings {
            send_buffer: window,
            receive_buffer: window,
            // The client announced its own MSS in its SYN, which already binds this end.
            mss: params.mss.filter(|mss| *mss >= 88),
            congestion: params.congestion.clone(),
            nodelay: params.nodelay.then_some(true),
            pacing: least.map(|rate| BitRate(rate.max(8))),
            dscp: (params.tos > 3).then_some(params.tos >> 2),
            ..SocketSettings::default()
        }
    }

    /// What each stream may have of the highest rate.
    fn share_of_limit(&self, params: &Params) -> Option<u64> {
        let limit = self.server.options.iperf3_max_rate?;
        Some((limit.0 / stream_count(params) as u64).max(8))
    }

    fn within_limits(&self, halves: &[Half], elapsed: Duration) -> Result<(), (i32, String)> {
        let options = &self.server.options;
        let total: Bytes = halves.iter().map(Half::total).sum();
        if let Some(limit) = options.iperf3_max_bytes
            && total > limit
        {
            let why = format!("moved more than --iperf3-max-bytes {limit}");
            return Err((code::EXPIRED, why));
        }
        // An average over a second at least; a tenth above is within what pacing can hold. What waits in a send buffer of this
        // host is not sent yet.
        let elapsed = Nanos::from(elapsed);
        let sent = || {
            halves
                .iter()
                .flat_map(Half::counts)
                .map(|of| of.bytes)
                .sum()
        };
        let is_above = |bytes: Bytes, limit: BitRate| {
            bytes.per(elapsed).0 > limit.0.saturating_add(limit.0 / 10)
        };
        if let Some(limit) = options.iperf3_max_rate
            && elapsed > Nanos::from_secs(1)
            && is_above(total, limit)
            && is_above(sent(), limit)
        {
            let why = format!("was faster than --iperf3-max-rate {limit}");
            return Err((code::TOTAL_RATE, why));
        }
        Ok(())
    }

    /// Waits a moment for the client, or until `waker` rings.
    fn step(&mut self, waker: Option<&Waker>) -> Result<Option<ServerEvent>, String> {
        self.step_until(waker, Instant::now() + TICK)
    }

    fn step_until(
        &mut self,
        waker: Option<&Waker>,
        until: Instant,
    ) -> Result<Option<ServerEvent>, String> {
        if self.server.stop.load(Ordering::Relaxed) {
            self.control.machine.terminate();
            self.control.send_all();
            return Err("notified that this server stops".to_owned());
        }
        match self.control.event(waker, until) {
            Some(ServerEvent::Failed(failure)) => {
                self.control.send_all();
                Err(match failure {
                    Iperf3Failure::ClientTerminated => "stopped its test".to_owned(),
                    failure => failure.to_string(),
                })
            }
            event => Ok(event),
        }
    }

    /// Turns the client away as a busy server; what to log.
    fn deny(&mut self, why: &str) -> String {
        self.control.machine.deny();
        self.control.send_all();
        why.to_owned()
    }

    /// Refuses the client in iperf3's words; what to log in ours.
    fn refuse(&mut self, number: i32, why: &str) -> String {
        self.control.machine.refuse(number, 0);
        self.control.send_all();
        format!("refused: {why}")
    }
}

impl Half {
    /// The counters now, by stream.
    fn counts(&self) -> Vec<SessionCounts> {
        let load = &self.load;
        let all = load.bytes().into_iter().zip(load.datagrams());
        all.zip(load.sockets())
            .map(|((bytes, datagrams), socket)| {
                // There is none of UDP.
                let tcp = observe::tcp_info(socket.as_fd()).ok();
                // What still waits in this host has not been sent.
                let unsent = tcp.as_ref().and_then(|tcp| tcp.notsent_bytes());
                SessionCounts {
                    bytes: bytes.since(unsent.filter(|_| self.sends).unwrap_or_default()),
                    retransmits: tcp.and_then(|tcp| tcp.total_retrans()),
                    datagrams,
                }
            })
            .collect()
    }

    fn total(&self) -> Bytes {
        self.load.bytes().into_iter().sum()
    }

    fn end(self) {
        self.load.stop();
        drop(self.load.finish());
    }
}

/// Streams of a test on which the client sends; they come first.
fn receiving_streams(params: &Params) -> usize {
    params.parallel as usize * usize::from(!params.reverse)
}

/// Data connections of a test.
fn stream_count(params: &Params) -> usize {
    params.parallel as usize * if params.bidirectional { 2 } else { 1 }
}

/// Sets the options that the client asked for; a congestion control that this host lacks is left
/// out, as iperf3 does, and shows in the results by the name of the one in use.
fn apply(stream: &TcpStream, settings: &SocketSettings) -> Result<(), String> {
    measure::accept_options(stream, settings).or_else(|error| {
        if settings.congestion.is_none() {
            return Err(error.to_string());
        }
        let mut without = settings.clone();
        without.congestion = None;
        measure::accept_options(stream, &without).map_err(|error| error.to_string())
    })
}

fn results(
    params: &Params,
    halves: &[Half],
    span: Duration,
    (cpu_user, cpu_system): (f64, f64),
    peer: SocketAddr,
) -> TestResults {
    let mut streams = Vec::new();
    let mut congestion_used = None;
    let mut sender_has_retransmits = -1;
    for half in halves {
        if params.protocol == TestProtocol::Tcp
            && let Some(socket) = half.load.sockets().first()
            && let Ok(state) = observe::socket_options(0, socket.as_fd())
        {
            congestion_used = Some(state.congestion);
        }
        if half.sends {
            sender_has_retransmits = i64::from(params.protocol == TestProtocol::Tcp);
        }
        for (index, counts) in half.counts().into_iter().enumerate() {
            let omitted = half.omitted.get(index).copied().unwrap_or_default();
            let before = omitted.retransmits.unwrap_or(0);
            let again = counts.retransmits.filter(|_| half.sends);
            streams.push(stream_result(
                streams.len(),
                counts.bytes.since(omitted.bytes),
                again.map(|now| now.saturating_sub(before)),
                [counts.datagrams, omitted.datagrams],
                span.into(),
            ));
        }
    }
    let mut results = TestResults {
        cpu_total: cpu_user + cpu_system,
        cpu_user,
        cpu_system,
        sender_has_retransmits,
        congestion_used,
        streams,
        ..TestResults::default()
    };
    if params.get_server_output {
        results.server_output_text = Some(output(params, &results, span, peer));
    }
    results
}

/// The server's report, as requested by --get-server-output.
fn output(params: &Params, results: &TestResults, span: Duration, peer: SocketAddr) -> String {
    let mut text = format!(
        "linerate {} served {peer}\n[ ID] Interval           Transfer     Bitrate\n",
        env!("CARGO_PKG_VERSION")
    );
    let receiving = receiving_streams(params);
    for (index, stream) in results.streams.iter().enumerate() {
        let bytes = Bytes(stream.bytes);
        let rate = bytes.per(Nanos::from(span));
        let (id, seconds) = (stream.id, span.as_secs_f64());
        text += &format!("[{id:3}]   0.00-{seconds:.2} sec  {bytes}  {rate}");
        if params.protocol == TestProtocol::Udp && index < receiving {
            let jitter_ms = stream.jitter_s * 1e3;
            text += &format!("  {jitter_ms:.3} ms  {}/{}", stream.errors, stream.packets);
        }
        let role = ["sender", "receiver"][usize::from(index < receiving)];
        text += &format!("  {role}\n");
    }
    text
}

fn summary(params: &Params, results: &TestResults, span: Duration) -> String {
    let way = match (params.reverse, params.bidirectional) {
        (true, _) => "received",
        (_, true) => "sent and received",
        _ => "sent",
    };
    let bytes: Bytes = results.streams.iter().map(|s| Bytes(s.bytes)).sum();
    format!(
        "{way} {bytes} over {} {} stream{} in {:.1} s, {}",
        results.streams.len(),
        match params.protocol {
            TestProtocol::Tcp => "TCP",
            TestProtocol::Udp => "UDP",
        },
        if results.streams.len() == 1 { "" } else { "s" },
        span.as_secs_f64(),
        bytes.per(Nanos::from(span))
    )
}

#[cfg(test)]
mod tests;

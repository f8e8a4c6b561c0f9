//! `measure iperf3:HOST`: a test against any stock iperf3 server.

use super::udp::Iperf3Datagrams;
use super::{auth, new_cookie, stream_result};
use crate::clock::{unix_seconds, wait_until};
use crate::datagrams;
use crate::exit::unreachable;
use crate::host::authority;
use crate::leg::{self, LegResult, together};
use crate::prelude::*;
use crate::transport::{self, driver::Driver};
use measure::Job;
use model::{Bulk, CpuTimes, Datagrams, Directions, StreamSample, Udp};
use std::net::UdpSocket;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{self, Receiver};
use wire::iperf3::{
    CONNECT, ClientEvent, Iperf3Client, Iperf3Failure, Params, StreamResult, TestProtocol,
    TestResults, UserCredentials, is_connect_reply, stream_id,
};

/// Bytes of the payload of an IPv4 packet, of which a server's buffer for datagrams that arrived together is.
const LARGEST_MESSAGE: u32 = 65_507;

/// How long a connection may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// How often the control connection is looked at while the load runs.
const TICK: Duration = Duration::from_millis(20);
/// Between two questions to a busy server.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// A stock server closes its port for a moment after each test.
const REOPENS_WITHIN: Duration = Duration::from_secs(3);
/// How long the sender's last bytes may take to be acknowledged before the end of the test is sent.
const LAST_BYTES_WITHIN: Duration = Duration::from_secs(10);
/// Bytes of a write at the server, iperf3's own default.
const BLOCK: u32 = 128 * 1024;

/// Options that only an iperf3 server needs.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "iperf3 servers")]
pub struct ClientOptions {
    /// User at a server that requires one; the password comes from IPERF3_PASSWORD
    #[arg(long, value_name = "NAME", requires = "rsa_public_key")]
    pub username: Option<String>,
    /// Password of the user
    #[arg(long, env = "IPERF3_PASSWORD", hide = true, hide_env_values = true)]
    pub password: Option<String>,
    /// Public key of the server, in PEM form
    #[arg(long, value_name = "FILE", requires = "username")]
    pub rsa_public_key: Option<PathBuf>,
    /// Pad as servers before 3.17 expect it (PKCS#1 v1.5 instead of OAEP)
    #[arg(long)]
    pub use_pkcs1_padding: bool,
    /// Time to retry a busy server
    #[arg(long, default_value = "60s", value_name = "TIME")]
    pub busy_wait: Nanos,
}

/// Measures what `run` orders against the server at `host`, and fills in its hosts, legs and
/// warnings. Up and down one after the other are two tests. What was seen until a test broke stays
/// in the run, with the reason. A server that has `answered` before and is gone is between two tests.
pub fn play(
    host: &str,
    port: u16,
    run: &mut Run,
    options: &ClientOptions,
    answered: bool,
    watcher: &mut dyn Watcher,
    stop: &AtomicBool,
) -> Result<()> {
    check(&run.spec)?;
    let remote = transport::resolve(host, port, run.spec.socket.ip_version)?[0];
    let began = Instant::now();
    run.local = observe::fingerprint(env!("CARGO_PKG_VERSION"), Some(remote.ip()));
    run.warnings.push(stock_server());
    watcher.event(&Event::Hosts {
        local: &run.local,
        remote: None,
    });
    let tests: Vec<&[Direction]> = match run.spec.directions {
        Directions::UpThenDown => vec![&[Direction::Up], &[Direction::Down]],
        directions => vec![directions.legs()],
    };
    for directions in tests {
        if stop.load(Ordering::Relaxed) && !run.legs.is_empty() {
            break;
        }
        let test = Test {
            remote,
            // The port is shown even where it is the usual one.
            name: authority(host, port, 0),
            spec: &run.spec,
            options,
            known: answered || !run.legs.is_empty(),
            directions,
            first_leg: run.legs.len(),
            began,
            title: run.title.as_deref(),
            stop,
        };
        let legs = test.run(watcher)?;
        let whole = legs.iter().all(|leg| leg.ended == Ended::Complete);
        run.legs.extend(legs);
        if !whole {
            break;
        }
    }
    Ok(())
}

/// One test: one control connection, one leg or two at once.
struct Test<'a> {
    remote: SocketAddr,
    name: String,
    spec: &'a Spec,
    options: &'a ClientOptions,
    /// It has answered before.
    known: bool,
    directions: &'a [Direction],
    first_leg: usize,
    began: Instant,
    title: Option<&'a str>,
    stop: &'a AtomicBool,
}

impl Test<'_> {
    fn run(&self, watcher: &mut dyn Watcher) -> Result<Vec<Leg>> {
        let patience = Instant::now() + Duration::from(self.options.busy_wait);
        let reopened_by = Instant::now() + REOPENS_WITHIN;
        let reopens = || self.known && Instant::now() < reopened_by;
        let (mut control, sockets) = loop {
            let error = match self.open() {
                Ok(opened) => break opened,
                Err(error) => error,
            };
            match error.downcast_ref::<Iperf3Failure>() {
                None if reopens() && is_refused(&error) => self.sleep(TICK),
                None => return Err(error),
                Some(Iperf3Failure::Closed(_)) if reopens() => self.sleep(TICK),
                Some(busy @ Iperf3Failure::Busy) => {
                    let left = patience.saturating_duration_since(Instant::now());
                    if left.is_zero() || self.stop.load(Ordering::Relaxed) {
                        bail!(Refusal::unreachable(format!(
                            "{}: {busy}; try again later, or wait longer with --busy-wait",
                            self.name
                        )));
                    }
                    let (name, seconds) = (&self.name, left.as_secs_f64().ceil());
                    let what = format!(
                        "{name} is busy with another test; asking again for {seconds:.0} s"
                    );
                    watcher.event(&Event::Waiting { what: &what });
                    self.sleep(ASK_AGAIN.min(left));
                }
                Some(failure) => return Err(self.explain(failure)),
            }
        };
        self.play(&mut control, sockets, watcher)
    }

    /// From the first connection to the moment when the server says go. A [`Failure`] is the server's.
    fn open(&self) -> Result<(Driver<Iperf3Client>, Vec<Vec<TcpStream>>)> {
        // What is wrong here is said before anybody is bothered.
        let params = self.params()?;
        let settings = SocketSettings::default();
        let stream = measure::connect(self.remote, &settings, &self.spec.local, CONNECT_WITHIN)
            .map_err(unreachable)?;
        let cookie = new_cookie()?;
        let machine = Iperf3Client::new(Nanos(0), &cookie, params);
        let mut control = super::control(stream, machine)?;
        let mut sockets = Vec::new();
        loop {
            if self.stop.load(Ordering::Relaxed) {
                control.machine.terminate();
                control.send_all();
                let why = "stopped before the test began; nothing was measured";
                bail!(Refusal::interrupted(why));
            }
            match control.event(None, Instant::now() + TICK) {
                None => {}
                Some(ClientEvent::OpenStreams) => {
                    let open = |&direction| self.open_streams(direction, &cookie);
                    let opened: Result<_> = self.directions.iter().map(open).collect();
                    match opened {
                        Ok(opened) => sockets = opened,
                        // The server's own reason explains more than a refused connection.
                        Err(error) => {
                            let until = Instant::now() + Duration::from_millis(500);
                            if let Some(ClientEvent::Failed(failure)) = control.event(None, until) {
                                return Err(failure.into());
                            }
                            control.machine.terminate();
                            control.send_all();
                            return Err(error);
                        }
                    }
                }
                Some(ClientEvent::Begin) => return Ok((control, sockets)),
                Some(ClientEvent::Failed(failure)) => return Err(failure.into()),
                Some(ClientEvent::GiveResults | ClientEvent::Finished(_)) => {
                    unreachable!("the machine has these only after Begin")
                }
            }
        }
    }

    fn open_streams(&self, direction: Direction, cookie: &[u8]) -> Result<Vec<TcpStream>> {
        let (spec, streams) = (self.spec, 0..self.spec.streams);
        if spec.workload.is_udp() {
            let open = |_| self.open_udp().map(sys::udp::as_stream);
            return streams.map(open).collect();
        }
        let settings = SocketSettings {
            // A pacing of the sender only: the server's own is among the parameters.
            pacing: spec.socket.pacing.filter(|_| direction == Direction::Up),
            ..spec.socket.clone()
        };
        let open = |_| {
            let mut stream = measure::connect(self.remote, &settings, &spec.local, CONNECT_WITHIN)?;
            let greeted = stream.write_all(cookie);
            greeted.context("cannot greet the server on a data connection")?;
            Ok(stream)
        };
        streams.map(open).collect()
    }

    fn open_udp(&self) -> Result<UdpSocket> {
        let settings = datagrams::settings(&self.spec.socket);
        let socket = measure::connect_datagrams(self.remote, &settings, &self.spec.local)?;
        // The greeting or its answer may be lost: a second one does no harm.
        let end = Instant::now() + CONNECT_WITHIN;
        let mut buffer = [0; 64];
        while Instant::now() < end && !self.stop.load(Ordering::Relaxed) {
            socket.set_read_timeout(Some(Duration::from_secs(1)))?;
            match socket.send(&CONNECT).and_then(|_| socket.recv(&mut buffer)) {
                Ok(length) if is_connect_reply(&buffer[..length]) => return Ok(socket),
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                    self.sleep(Duration::from_millis(100));
                }
                _ => {}
            }
        }
        bail!(Refusal::unreachable(format!(
            "{} answers no datagrams although its control connection works; let UDP port {} \
             through the firewalls on the way",
            self.name,
            self.remote.port()
        )))
    }

    /// The load, and the end of the test.
    fn play(
        &self,
        control: &mut Driver<Iperf3Client>,
        sockets: Vec<Vec<TcpStream>>,
        watcher: &mut dyn Watcher,
    ) -> Result<Vec<Leg>> {
        let started = Nanos::from(self.began.elapsed());
        let mut legs = Vec::new();
        // They keep the data connections open until the results are in, as a server expects it.
        let mut kept: Vec<(Direction, TcpStream)> = Vec::new();
        for (&direction, opened) in self.directions.iter().zip(&sockets) {
            let mut local = EndRecord::default();
            (local.sockets, local.warnings) = leg::inspect(opened, &self.spec.socket, "this host")?;
            if self.spec.workload.is_udp() {
                // Most options are of TCP alone.
                local.warnings.clear();
            }
            for stream in opened {
                kept.push((direction, stream.try_clone()?));
            }
            legs.push(Leg {
                direction,
                started,
                local,
                remote: EndRecord::default(),
                ended: Ended::Complete,
            });
        }
        for (index, leg) in legs.iter().enumerate() {
            watcher.event(&Event::LegStarted {
                index: self.first_leg + index,
                direction: leg.direction,
            });
        }

        let signals: Vec<LegSignals> = legs.iter().map(|_| LegSignals::default()).collect();
        let (reports, inbox) = mpsc::channel();
        let (results, ends) = std::thread::scope(|scope| {
            for (index, opened) in sockets.into_iter().enumerate() {
                let (reports, signals) = (reports.clone(), &signals[index]);
                let direction = self.directions[index];
                scope.spawn(move || {
                    let end = self.local_end(direction, opened, signals, &mut |sample| {
                        // Nobody listens any more: then the sample is of no use either.
                        let _ = reports.send(ClientReport::Sample(index, Box::new(sample)));
                    });
                    let _ = reports.send(ClientReport::Over(index, Box::new(end)));
                });
            }
            drop(reports);
            let mut conductor = Conductor {
                test: self,
                legs: &mut legs,
                signals: &signals,
                kept: &kept,
                ends: self.directions.iter().map(|_| None).collect(),
                inbox: &inbox,
                watcher,
            };
            let outcome = conductor.conduct(control);
            // Whatever happened: the threads end before their sockets do.
            conductor.stop_all();
            conductor.collect_all();
            (outcome, conductor.ends)
        });
        drop(kept);
        let interrupted = self.stop.load(Ordering::Relaxed);
        for (index, (leg, end)) in legs.iter_mut().zip(ends).enumerate() {
            let end = end.expect("every thread returns its record")?;
            leg::merge(&mut leg.local, end.record);
            match &results {
                Ok(results) => leg.remote = self.remote_end(index, leg, results),
                Err(failure) => leg.ended = leg::failed_with(&self.explain(failure)),
            }
            if let (Some(why), true) = (end.broke, results.is_ok()) {
                leg.ended = Ended::Failed { why };
            }
            if interrupted {
                leg.ended = Ended::Interrupted;
            }
        }
        for (index, leg) in legs.iter().enumerate() {
            watcher.event(&Event::LegEnded {
                index: self.first_leg + index,
                leg,
            });
        }
        Ok(legs)
    }

    /// This end of one leg, in a thread of its own.
    fn local_end(
        &self,
        direction: Direction,
        sockets: Vec<TcpStream>,
        signals: &LegSignals,
        on_sample: &mut dyn FnMut(Sample),
    ) -> Result<LegResult> {
        let role = leg::role(&self.spec.workload, direction, Side::Local);
        // The receiver stops when the server has confirmed the end, not before.
        let limit = match direction {
            Direction::Up => self.spec.limit,
            Direction::Down => LegLimit::Time(Nanos::from_secs(7 * 86_400)),
        };
        let mut job = Job::new(role, self.spec.workload.clone(), limit);
        job.cpus.clone_from(&self.spec.local.cpus);
        job.half_close = false;
        job.drain = Duration::from_millis(300);
        job.datagrams = Some(Arc::new(Iperf3Datagrams { wide: true }));
        let moved = |bytes: Bytes| signals.moved.store(bytes.0, Ordering::Relaxed);
        let interval = self.spec.interval;
        leg::run_end(job, sockets, interval, &signals.stop, &moved, on_sample)
    }

    /// The server's side, from its results.
    fn remote_end(&self, index: usize, leg: &Leg, results: &TestResults) -> EndRecord {
        let count = self.spec.streams as usize;
        let ids = (index * count..(index + 1) * count).map(stream_id);
        let of = |id| results.streams.iter().find(|s| s.id == id);
        let streams: Vec<&StreamResult> = ids.filter_map(of).collect();
        let spans = streams.iter().map(|s| s.end_s - s.start_s);
        let seconds = spans.fold(0.0, f64::max);
        let duration = if seconds > 0.0 && seconds < 1e6 {
            Nanos((seconds * 1e9) as u64)
        } else {
            leg.local.duration
        };
        let cpu = |percent: f64| {
            Nanos((percent.clamp(0.0, 1e6) / 100.0 * duration.as_secs_f64() * 1e9) as u64)
        };
        let used = CpuTimes {
            process_user: cpu(results.cpu_user),
            process_system: cpu(results.cpu_system),
            ..CpuTimes::default()
        };
        let bytes: Bytes = streams.iter().map(|s| Bytes(s.bytes)).sum();
        let sample = |at: Nanos, share: u64, cpu: CpuTimes| Sample {
            at,
            bytes: Bytes(bytes.0 * share),
            streams: (0..)
                .zip(&streams)
                .map(|(stream, s)| StreamSample {
                    stream,
                    bytes: Bytes(s.bytes * share),
                    ..StreamSample::default()
                })
                .collect(),
            cpu,
            requests: None,
            datagrams: None,
        };
        let sends = leg.direction == Direction::Down;
        let is_udp = self.spec.workload.is_udp();
        let datagrams = streams.iter().map(|s| Datagrams {
            packets: u64::try_from(s.packets).unwrap_or(0),
            lost: u64::try_from(s.errors).unwrap_or(0),
            out_of_order: 0,
            jitter: Nanos((s.jitter_s.clamp(0.0, 1e6) * 1e9) as u64),
        });
        let retransmits = streams.iter().map(|s| u64::try_from(s.retransmits).ok());
        let retransmits: Option<u64> = retransmits.sum();
        EndRecord {
            samples: vec![
                sample(Nanos(0), 0, CpuTimes::default()),
                sample(duration, 1, used),
            ],
            bytes,
            duration,
            retransmits: retransmits.filter(|_| sends && results.sender_has_retransmits == 1),
            datagrams: is_udp.then(|| together(&datagrams.collect::<Vec<_>>())),
            ..EndRecord::default()
        }
    }

    fn params(&self) -> Result<Params> {
        let socket = &self.spec.socket;
        let up = self.directions.contains(&Direction::Up);
        let down = self.directions.contains(&Direction::Down);
        // The server has one size for both of its buffers: the one that bears on its role.
        let window = match (up, down) {
            (true, false) => socket.receive_buffer,
            (false, true) => socket.send_buffer,
            _ => socket.receive_buffer.max(socket.send_buffer),
        };
        let small = |bytes: Bytes| u32::try_from(bytes.0).unwrap_or(u32::MAX);
        let (span, bytes) = match self.spec.limit {
            LegLimit::Time(span) => (span, 0),
            LegLimit::Bytes(bytes) => (Nanos(0), bytes.0),
            LegLimit::Requests(_) | LegLimit::Whole => (Nanos(0), 0),
        };
        let params = Params {
            time_s: u32::try_from(span.0.div_ceil(1_000_000_000)).unwrap_or(0),
            bytes,
            parallel: self.spec.streams,
            reverse: down && !up,
            bidirectional: down && up,
            mss: socket.mss,
            nodelay: socket.nodelay == Some(true),
            window: window.map(small),
            tos: socket.dscp.unwrap_or(0) << 2,
            congestion: socket.congestion.clone(),
            title: self.title.map(str::to_owned),
            client_version: Some(concat!("linerate ", env!("CARGO_PKG_VERSION")).to_owned()),
            authtoken: self.token()?,
            ..Params::default()
        };
        let server_rate = socket.pacing.filter(|_| down).map_or(0, |rate| rate.0);
        Ok(match &self.spec.workload {
            Workload::Udp(Udp {
                rate,
                datagram_size,
            }) => {
                let (size, together) = (
                    small(*datagram_size),
                    measure::datagrams_together(*rate, *datagram_size),
                );
                // What this host does by itself; older servers do not know these.
                let gathers = together > 1;
                let gathered = |bytes: u32| if gathers { bytes } else { 0 };
                Params {
                    protocol: TestProtocol::Udp,
                    rate_bit_s: rate.0,
                    block_size: Some(size),
                    udp_counters_64bit: true,
                    gso: gathers,
                    gso_datagram: gathered(size),
                    gso_message: gathered(together.saturating_mul(size)),
                    gro: gathers,
                    gro_buffer: gathered(LARGEST_MESSAGE),
                    ..params
                }
            }
            Workload::Bulk(Bulk {
                write_size,
                discard,
                zerocopy,
            }) => Params {
                block_size: Some(write_size.map_or(BLOCK, |size| small(size).clamp(1, 1 << 20))),
                skip_rx_copy: *discard,
                zerocopy: *zerocopy,
                // Servers before 3.17 leave the kernel's pacing aside when they send.
                rate_bit_s: server_rate,
                fq_rate_bit_s: server_rate,
                ..params
            },
            other => bail!("an iperf3 server plays no {}", other.kind().name),
        })
    }

    fn token(&self) -> Result<Option<String>> {
        let (Some(user), Some(key)) = (&self.options.username, &self.options.rsa_public_key) else {
            return Ok(None);
        };
        let password = self.options.password.clone().ok_or_else(|| {
            Refusal::usage(format!(
                "no password for the user {user}: put it into the environment as IPERF3_PASSWORD"
            ))
        })?;
        let seconds = i64::try_from(unix_seconds()).unwrap_or(i64::MAX);
        let credentials = UserCredentials {
            user: user.clone(),
            password,
            seconds,
        };
        auth::token(&credentials, key, self.options.use_pkcs1_padding).map(Some)
    }

    /// A failure of the protocol as an error: one sentence with what to do.
    fn explain(&self, failure: &Iperf3Failure) -> anyhow::Error {
        let remedy = match failure {
            Iperf3Failure::Busy => "try again later",
            Iperf3Failure::ServerError { number: 142, .. } => {
                "check --username, IPERF3_PASSWORD, the key and both clocks; for a server before \
                 3.17 add --use-pkcs1-padding"
            }
            Iperf3Failure::ServerError { .. } => {
                "see the server's own output, and change the order"
            }
            Iperf3Failure::ServerTerminated => "start the server again",
            Iperf3Failure::Unexpected { .. } | Iperf3Failure::NotACookie => {
                "check that an iperf3 server listens on that port"
            }
            Iperf3Failure::Silent { .. } | Iperf3Failure::Closed(_) => {
                "check that the server runs, and the path to it"
            }
            _ => "check the version of the server",
        };
        let why = format!("{}: {failure}; {remedy}", self.name);
        Refusal::unreachable(why).into()
    }

    /// Waits, unless the user stops.
    fn sleep(&self, span: Duration) {
        wait_until(Instant::now() + span, self.stop);
    }
}

/// Between the conductor and the thread of a leg.
#[derive(Default)]
struct LegSignals {
    stop: AtomicBool,
    /// Bytes so far: the server goes on until the client ends the test, so a receiver's limit is this end's to see.
    moved: AtomicU64,
}

/// From the threads of the legs to the conductor.
enum ClientReport {
    Sample(usize, Box<Sample>),
    Over(usize, Box<Result<LegResult>>),
}

/// Leads a test from its start to its results.
struct Conductor<'a> {
    test: &'a Test<'a>,
    legs: &'a mut Vec<Leg>,
    signals: &'a [LegSignals],
    kept: &'a [(Direction, TcpStream)],
    ends: Vec<Option<Result<LegResult>>>,
    inbox: &'a Receiver<ClientReport>,
    watcher: &'a mut dyn Watcher,
}

impl Conductor<'_> {
    fn conduct(
        &mut self,
        control: &mut Driver<Iperf3Client>,
    ) -> Result<TestResults, Iperf3Failure> {
        let start = Instant::now();
        let mut acknowledged_by = None;
        loop {
            let event = control.event(None, Instant::now() + TICK);
            self.collect();
            match event {
                Some(ClientEvent::GiveResults) => {
                    self.stop_all();
                    self.collect_all();
                    let results = self.results();
                    let now = control.now();
                    control.machine.results(now, &results);
                }
                Some(ClientEvent::Finished(results)) => {
                    control.send_all();
                    return Ok(*results);
                }
                Some(ClientEvent::Failed(failure)) => return Err(failure),
                Some(ClientEvent::OpenStreams | ClientEvent::Begin) | None => {}
            }
            let interrupted = self.test.stop.load(Ordering::Relaxed);
            if interrupted {
                self.stop_all();
            }
            if interrupted || self.reached(start.elapsed()) {
                // A byte that waits in this host's buffers when the test ends is missing in the
                // server's count; it costs a moment to let it arrive.
                let by = *acknowledged_by.get_or_insert(Instant::now() + LAST_BYTES_WITHIN);
                if interrupted || self.all_acknowledged() || Instant::now() >= by {
                    let now = control.now();
                    control.machine.end(now);
                }
            }
        }
    }

    /// Every leg has reached its limit, or broke.
    fn reached(&self, elapsed: Duration) -> bool {
        let reached = |(index, leg): (usize, &Leg)| match (leg.direction, self.test.spec.limit) {
            _ if self.ends[index].is_some() => true,
            (Direction::Up, _) => false,
            (Direction::Down, LegLimit::Time(span)) => elapsed >= Duration::from(span),
            (Direction::Down, LegLimit::Bytes(limit)) => {
                self.signals[index].moved.load(Ordering::Relaxed) >= limit.0
            }
            (Direction::Down, LegLimit::Requests(_) | LegLimit::Whole) => true,
        };
        self.legs.iter().enumerate().all(reached)
    }

    fn all_acknowledged(&self) -> bool {
        let mut sending = self.kept.iter().filter(|(way, _)| *way == Direction::Up);
        sending.all(|(_, socket)| {
            observe::tcp_info(socket.as_fd()).map_or(true, |tcp| {
                // 1 is TCP_ESTABLISHED: a broken connection acknowledges nothing any more.
                tcp.state() != Some(1)
                    || (tcp.packets_out() == Some(0)
                        && tcp.notsent_bytes().is_none_or(|b| b.0 == 0))
            })
        })
    }

    fn stop_all(&self) {
        for signals in self.signals {
            signals.stop.store(true, Ordering::Relaxed);
        }
    }

    fn collect(&mut self) {
        while let Ok(report) = self.inbox.try_recv() {
            self.take(report);
        }
    }

    fn collect_all(&mut self) {
        while self.ends.iter().any(Option::is_none) {
            let Ok(report) = self.inbox.recv() else { break };
            self.take(report);
        }
    }

    fn take(&mut self, report: ClientReport) {
        match report {
            ClientReport::Over(index, end) => self.ends[index] = Some(*end),
            ClientReport::Sample(index, sample) => {
                self.watcher.event(&Event::Sample {
                    index: self.test.first_leg + index,
                    side: Side::Local,
                    sample: &sample,
                });
                let streams = self.test.spec.streams;
                self.legs[index].local.push(*sample, streams);
            }
        }
    }

    /// This end's results, as the server wants them.
    fn results(&self) -> TestResults {
        let mut streams = Vec::new();
        let mut cpu = CpuTimes::default();
        let mut span = Nanos(0);
        let count = self.test.spec.streams as usize;
        let mut sender_has_retransmits = -1;
        for (index, (leg, end)) in self.legs.iter().zip(&self.ends).enumerate() {
            let Some(Ok(end)) = end else { continue };
            let last = leg.local.samples.last();
            if let Some(last) = last {
                (cpu, span) = (last.cpu, last.at);
            }
            let up = leg.direction == Direction::Up;
            for stream in 0..count {
                let seen = last.and_then(|sample| sample.streams.get(stream));
                let again = seen.and_then(|s| s.tcp.as_ref()?.total_retrans());
                if up && again.is_some() {
                    sender_has_retransmits = 1;
                }
                let datagrams = end.datagrams.get(stream).copied().unwrap_or_default();
                streams.push(stream_result(
                    index * count + stream,
                    seen.map_or(Bytes(0), |s| s.bytes),
                    again.filter(|_| up),
                    [datagrams, Datagrams::default()],
                    end.record.duration,
                ));
            }
        }
        let percent = |time: Nanos| match span.0 {
            0 => 0.0,
            span => 100.0 * time.0 as f64 / span as f64,
        };
        let socket = self.legs.first().and_then(|leg| leg.local.sockets.first());
        let congestion = socket.map(|socket| socket.congestion.clone());
        TestResults {
            cpu_total: percent(cpu.process_user + cpu.process_system),
            cpu_user: percent(cpu.process_user),
            cpu_system: percent(cpu.process_system),
            sender_has_retransmits,
            congestion_used: congestion.filter(|name| !name.is_empty()),
            streams,
            ..TestResults::default()
        }
    }
}

fn is_refused(error: &anyhow::Error) -> bool {
    let refused = |error| matches!(error, &measure::Error::Refused(_));
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref())
        .any(refused)
}

fn check(spec: &Spec) -> Result<()> {
    if let LegLimit::Requests(_) = spec.limit {
        bail!(Refusal::usage(
            "an iperf3 server counts no requests: end the test with --time or --bytes"
        ));
    }
    if !(1..=128).contains(&spec.streams) {
        bail!(Refusal::usage(format!(
            "--parallel {}: an iperf3 server takes 1 to 128 streams",
            spec.streams
        )));
    }
    if !spec.remote.cpus.is_empty() {
        bail!(Refusal::usage(
            "--remote-cpus: an iperf3 server chooses its processors itself; start it with -A there"
        ));
    }
    Ok(())
}

fn stock_server() -> Warning {
    Warning {
        what: "the server is a stock iperf3".to_owned(),
        meaning:
            "it reports its totals and its processor use, but not its samples, sockets or host"
                .to_owned(),
        remedy: "run `linerate serve` there to see both ends".to_owned(),
    }
}

#[cfg(test)]
mod tests;

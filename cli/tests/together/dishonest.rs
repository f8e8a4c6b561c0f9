//! Hosts that do not obey: a client and a server made of raw frames, which order, send and report what they like.
//! Loads go over loopback only.

use crate::common::{Home, Server, alone, run, stderr, stdout};
use engine::transport::{SESSION, Tls};
use engine::trust::{Identity, KeyLimits, TrustEntry, TrustStore};
use model::{Bulk, Bytes, LegLimit, Nanos, Placement, SocketSettings, Workload};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use wire::control::{LegOrder, PROTOCOL, Preamble, ToAgent, ToController, Token, encode_frame};

/// For anything that is to happen at once.
const SOON: Duration = Duration::from_secs(20);
/// How long a load is watched.
const WATCHED: Duration = Duration::from_secs(5);
/// As long as a client may wish for.
const A_DAY: Nanos = Nanos::from_secs(86_400);

/// A control connection without a protocol: raw frames.
pub struct Raw(Tls);

impl Raw {
    pub fn send(&mut self, message: &impl Serialize) {
        self.try_send(message).unwrap();
    }

    fn try_send(&mut self, message: &impl Serialize) -> std::io::Result<()> {
        let frame = encode_frame(message).unwrap();
        self.0.write_all(&frame, Instant::now() + SOON)
    }

    /// The next frame; `None` once the connection is over.
    fn recv(&mut self, until: Instant) -> Option<Value> {
        let mut header = [0; 4];
        self.0.read_exact(&mut header, until).ok()?;
        let mut body = vec![0; u32::from_be_bytes(header) as usize];
        self.0.read_exact(&mut body, until).ok()?;
        Some(serde_json::from_slice(&body).unwrap())
    }

    /// The next frame that says one of these.
    pub fn wait_for(&mut self, what: &[&str]) -> Value {
        let until = Instant::now() + SOON;
        loop {
            let message = self
                .recv(until)
                .unwrap_or_else(|| panic!("none of {what:?} came"));
            if what.contains(&message["say"].as_str().unwrap()) {
                return message;
            }
        }
    }
}

pub struct Client {
    pub control: Raw,
    legs: u32,
}

/// What a leg moves, counted by this end's kernel.
struct Flow {
    down: bool,
    sockets: Vec<TcpStream>,
    read: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Client {
    /// A client of that key which does not obey.
    pub fn of(agent: &Server, key: &Home) -> Client {
        Client::try_of(agent, key).expect("the key is trusted")
    }

    /// The same, if its key is accepted: a server that refuses it says so after the handshake.
    pub fn try_of(agent: &Server, key: &Home) -> Option<Client> {
        let identity = Identity::open(&key.path().join("config")).unwrap();
        let socket = TcpStream::connect(&agent.at).unwrap();
        let until = Instant::now() + SOON;
        let tls = Tls::client(
            socket,
            &identity,
            Arc::new(|_| true),
            SESSION,
            "agent",
            until,
        );
        let mut control = Raw(tls.ok()?);
        let hello = ToAgent::Hello {
            protocol: PROTOCOL,
            version: "dishonest".to_owned(),
        };
        control.try_send(&hello).ok()?;
        control.recv(Instant::now() + SOON)?;
        Some(Client { control, legs: 0 })
    }

    pub fn order(&mut self, down: bool, streams: u32, limit: LegLimit) -> LegOrder {
        self.legs += 1;
        LegOrder {
            leg: self.legs,
            agent_sends: down,
            workload: Workload::Bulk(Bulk::default()),
            streams,
            limit,
            interval: A_DAY,
            outage: Nanos(0),
            trace: false,
            socket: SocketSettings::default(),
            placement: Placement::default(),
        }
    }

    /// The answer to an order.
    pub fn ask(&mut self, order: &LegOrder) -> Value {
        let order = Box::new(order.clone());
        self.control.send(&ToAgent::Open { order });
        self.control
            .wait_for(&["granted", "busy", "refused", "bye"])
    }

    /// Opens and starts a leg that moves as much as the agent takes or gives, whatever was granted.
    fn flood(&mut self, order: &LegOrder) -> Option<Flow> {
        let granted = self.ask(order);
        if granted["say"] != "granted" {
            return None;
        }
        let port = granted["port"].as_u64().unwrap() as u16;
        let token = Token::from_hex(granted["token"].as_str().unwrap()).unwrap();
        let sockets: Vec<TcpStream> = (0..order.streams)
            .map(|stream| {
                let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
                socket
                    .write_all(&Preamble { token, stream }.encode())
                    .unwrap();
                let look = Some(Duration::from_millis(100));
                socket.set_read_timeout(look).unwrap();
                socket.set_write_timeout(look).unwrap();
                socket
            })
            .collect();
        self.control.wait_for(&["connected"]);
        self.control.send(&ToAgent::Start { leg: order.leg });
        Some(Flow::start(order.agent_sends, sockets))
    }
}

impl Flow {
    fn start(down: bool, sockets: Vec<TcpStream>) -> Flow {
        let (read, stop) = (
            Arc::new(AtomicU64::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let threads = sockets
            .iter()
            .map(|socket| {
                let mut socket = socket.try_clone().unwrap();
                let (read, stop) = (Arc::clone(&read), Arc::clone(&stop));
                std::thread::spawn(move || {
                    let mut buffer = vec![0x5a; 1 << 18];
                    while !stop.load(Ordering::Relaxed) {
                        let moved = match down {
                            true => socket.read(&mut buffer),
                            false => socket.write(&buffer),
                        };
                        match moved {
                            Ok(0) => return,
                            Ok(bytes) if down => {
                                _ = read.fetch_add(bytes as u64, Ordering::Relaxed)
                            }
                            Ok(_) => {}
                            Err(e)
                                if matches!(
                                    e.kind(),
                                    ErrorKind::WouldBlock | ErrorKind::TimedOut
                                ) => {}
                            Err(_) => return,
                        }
                    }
                })
            })
            .collect();
        Flow {
            down,
            sockets,
            read,
            stop,
            threads,
        }
    }

    /// Bytes that arrived here, or at the agent.
    fn moved(&self) -> u64 {
        if self.down {
            return self.read.load(Ordering::Relaxed);
        }
        let acked = |socket: &TcpStream| {
            let info = observe::tcp_info(socket.as_fd()).unwrap();
            info.bytes_acked().unwrap().0
        };
        self.sockets.iter().map(acked).sum()
    }

    /// Whether the agent has ended all connections.
    fn is_over(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
    }
}

/// Waits until something is so.
fn until(within: Duration, what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + within;
    while !is_so() {
        assert!(
            Instant::now() < end,
            "{what} did not come within {within:?}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Most bytes that may have moved at a rate since then: 1.02 times it, and 64 KiB.
fn allowed(bit_s: f64, since: Instant) -> u64 {
    (bit_s / 8.0 * since.elapsed().as_secs_f64() * 1.02) as u64 + (64 << 10)
}

/// What arrives at once before the agent reads: a receive window for every connection.
fn windows(flows: &[Flow]) -> u64 {
    let receiving = flows.iter().filter(|flow| !flow.down).count() as u64;
    receiving * (64 << 10)
}

/// Lets the flows of a key move for a while, and holds all of them together against its rate.
fn watch(clients: &mut [Client], flows: &[Flow], bit_s: f64, since: Instant) {
    let end = Instant::now() + WATCHED;
    let moved = || flows.iter().map(Flow::moved).sum::<u64>();
    let mut number = 0;
    while Instant::now() < end {
        number += 1;
        for client in &mut *clients {
            client.control.send(&ToAgent::Ping { number });
        }
        // Whatever was moved was moved before the clock is read.
        let bytes = moved();
        let most = allowed(bit_s, since) + windows(flows);
        let each: Vec<u64> = flows.iter().map(Flow::moved).collect();
        assert!(
            bytes <= most,
            "{bytes} moved where {most} are allowed: {each:?}"
        );
        std::thread::sleep(Duration::from_millis(250));
    }
    let bytes = moved();
    let least = (bit_s / 8.0 * WATCHED.as_secs_f64() * 0.8) as u64;
    assert!(bytes >= least, "{bytes} moved where {least} are fair");
}

#[test]
fn the_rate_of_a_key_holds_without_samples_and_against_a_client_that_does_not_pace() {
    let _alone = alone();
    let agent = Server::start(&[]);
    for down in [false, true] {
        let key = agent.guest(&["--rate", "10M", "--bytes-per-day", "500M"]);
        let mut client = Client::of(&agent, &key);
        let order = client.order(down, 1, LegLimit::Time(A_DAY));
        let since = Instant::now();
        let flow = client.flood(&order).unwrap();
        watch(&mut [client], &[flow], 10e6, since);
    }
}

#[test]
fn samples_of_a_key_take_no_more_than_an_eighth_of_its_rate() {
    let _alone = alone();
    let agent = Server::start(&[]);
    let key = agent.guest(&["--rate", "2M"]);
    let mut client = Client::of(&agent, &key);
    let mut order = client.order(true, 128, LegLimit::Time(A_DAY));
    order.interval = Nanos::from_millis(10);
    let flow = client.flood(&order).unwrap();
    let since = Instant::now();
    let mut samples = 0;
    while let Some(message) = client.control.recv(since + WATCHED) {
        samples += message.to_string().len() as u64;
    }
    assert!(
        flow.moved() <= allowed(2e6, since),
        "{} moved",
        flow.moved()
    );
    // And the one after which there is no more, of 128 connections.
    let most = allowed(2e6 / 8.0, since) + (256 << 10);
    assert!(
        (1..=most).contains(&samples),
        "{samples} of samples where {most} are allowed"
    );
}

#[test]
fn all_legs_and_sessions_of_a_key_share_its_rate_and_leave_a_seat_to_others() {
    let _alone = alone();
    let agent = Server::start(&["--clients", "4"]);
    let key = agent.guest(&["--rate", "100M"]);
    let mut clients: Vec<Client> = (0..4).map(|_| Client::of(&agent, &key)).collect();
    let since = Instant::now();
    let mut flows = Vec::new();
    for client in &mut clients {
        for leg in 0..8 {
            let order = client.order(leg % 2 == 0, 1, LegLimit::Time(A_DAY));
            flows.extend(client.flood(&order));
        }
    }
    assert_eq!(flows.len(), 24, "three sessions of the four have a seat");
    watch(&mut clients, &flows, 100e6, since);
    let moved = |down| {
        let flows = flows.iter().filter(|flow| flow.down == down);
        flows.map(Flow::moved).sum::<u64>()
    };
    let (up, down) = (moved(false), moved(true));
    assert!(up < 3 * down && down < 3 * up, "{up} up, {down} down");
    let order = clients[3].order(true, 1, LegLimit::Time(A_DAY));
    let busy = clients[3].ask(&order);
    assert!(busy["why"].as_str().unwrap().contains("(3 of 4)"), "{busy}");
    let other = agent.guest(&[]);
    let mut other = Client::of(&agent, &other);
    let order = other.order(true, 1, LegLimit::Bytes(Bytes(1)));
    assert_eq!(other.ask(&order)["say"], "granted");
}

#[test]
fn the_bytes_of_a_day_end_a_leg_at_once_and_the_client_gets_the_reason() {
    let _alone = alone();
    let agent = Server::start(&[]);
    for down in [false, true] {
        let key = agent.guest(&["--bytes-per-day", "20M"]);
        let mut client = Client::of(&agent, &key);
        let order = client.order(down, 4, LegLimit::Time(A_DAY));
        let flow = client.flood(&order).unwrap();
        until(SOON, "the end", || flow.is_over());
        // What the receive windows of the connections took is above what was read; autotuning makes them larger on a busy machine.
        let most = (20 << 20) + 4 * (8 << 20);
        assert!(flow.moved() <= most, "{} moved", flow.moved());
        let finished = client.control.wait_for(&["finished"]);
        let why = finished["broke"].as_str().unwrap_or_default();
        assert!(why.contains("20.0 MiB a day"), "{finished}");
        if down {
            // What was taken and not written any more is left.
            continue;
        }
        let refused = client.order(down, 1, LegLimit::Bytes(Bytes(1)));
        let refused = client.ask(&refused);
        assert!(
            refused["why"].as_str().unwrap().contains("midnight"),
            "{refused}"
        );
    }
}

#[test]
fn the_time_of_a_leg_is_that_of_the_agents_clock() {
    let _alone = alone();
    let agent = Server::start(&[]);
    let key = agent.guest(&["--seconds", "1"]);
    for (limit, reason) in [
        (LegLimit::Bytes(Bytes(1 << 50)), "1.00 s a leg"),
        (LegLimit::Time(A_DAY), ""),
    ] {
        let mut client = Client::of(&agent, &key);
        let order = client.order(false, 1, limit);
        let flow = client.flood(&order).unwrap();
        let begun = Instant::now();
        until(SOON, "the end", || flow.is_over());
        let took = begun.elapsed();
        assert!(took < Duration::from_millis(2500), "{took:?}");
        let finished = client.control.wait_for(&["finished"]);
        let broke = finished["broke"].as_str().unwrap_or_default();
        assert!(broke.contains(reason), "{finished}");
    }
}

#[test]
fn counts_beyond_all_bounds_are_refused_by_name_and_frames_after_the_end_are_not_read() {
    let agent = Server::start(&[]);
    let key = agent.guest(&[]);
    let mut client = Client::of(&agent, &key);
    let writes = |size| {
        Workload::Bulk(Bulk {
            write_size: Some(Bytes(size)),
            ..Bulk::default()
        })
    };
    let mut refused = |change: &dyn Fn(&mut LegOrder)| {
        let mut order = client.order(true, 1, LegLimit::Bytes(Bytes(1)));
        change(&mut order);
        let answer = client.ask(&order);
        assert_eq!(answer["say"], "refused", "{answer}");
        answer["why"].as_str().unwrap().to_owned()
    };
    assert!(refused(&|o| o.streams = u32::MAX).contains("connections"));
    assert!(refused(&|o| o.limit = LegLimit::Time(Nanos(u64::MAX))).contains("at most"));
    assert!(refused(&|o| o.workload = writes(u64::MAX)).contains("writes"));
    let buffers = refused(&|o| {
        o.workload = writes(64 << 20);
        o.streams = 32;
    });
    assert!(buffers.contains("64.0 MiB allowed"), "{buffers}");

    // Not a number, and a number that is none: the session ends, the agent does not.
    for pace in ["NaN", "1e999"] {
        let mut client = Client::of(&agent, &key);
        let order = client.order(true, 1, LegLimit::Bytes(Bytes(1)));
        let workload = r#"{"kind":"request","request_size":64,"reply_size":64,"pace_per_s":PACE,"reconnect":false,"wait":"block"}"#;
        let mut open = serde_json::to_value(ToAgent::Open {
            order: Box::new(order),
        })
        .unwrap();
        open["order"]["workload"] = json!("WORKLOAD");
        let text = open
            .to_string()
            .replace("\"WORKLOAD\"", workload)
            .replace("PACE", pace);
        let frame = [&(text.len() as u32).to_be_bytes()[..], text.as_bytes()].concat();
        client
            .control
            .0
            .write_all(&frame, Instant::now() + SOON)
            .unwrap();
        agent.log.wait_for("cannot be read");
    }

    let mut client = Client::of(&agent, &key);
    let order = client.order(true, 1, LegLimit::Bytes(Bytes(1)));
    client.control.send(&ToAgent::Bye);
    let open = ToAgent::Open {
        order: Box::new(order),
    };
    // The agent may have closed already.
    let _ = client.control.try_send(&open);
    let mut answered = false;
    while let Some(message) = client.control.recv(Instant::now() + SOON) {
        answered |= message["say"] == "granted";
    }
    assert!(!answered, "an order after the end was granted");
    let mut honest = key.linerate(&["measure", &agent.at, "--up", "-n", "1M", "-q"]);
    assert!(run(&mut honest).status.success());
}

/// A server that grants and reports what it likes.
struct Remote {
    at: String,
    client: Home,
    thread: JoinHandle<()>,
}

/// How it lies.
#[derive(Clone)]
struct Lies {
    grant: fn(&mut LegOrder),
    /// Frames that it sends while the leg runs.
    extra: fn(u32) -> Vec<Value>,
    /// Times the bytes that it received.
    factor: u64,
    /// What it puts beside its record.
    signed: Option<fn() -> model::Signature>,
}

const HONEST: Lies = Lies {
    grant: |_| {},
    extra: |_| Vec::new(),
    factor: 1,
    signed: None,
};

impl Remote {
    fn start(lies: Lies) -> Remote {
        let (home, client) = (Home::new(), Home::new());
        let identity = Identity::open(&home.path().join("config")).unwrap();
        let control = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = control.local_addr().unwrap().to_string();
        let entry = TrustEntry {
            id: identity.id(),
            name: "remote".to_owned(),
            address: Some(at.clone()),
            rights: BTreeSet::new(),
            limits: KeyLimits::default(),
        };
        let store = TrustStore::new(&client.path().join("config"));
        store.update(|trust| trust.put(entry)).unwrap();
        let thread = std::thread::spawn(move || {
            let _home = home;
            let socket = control.accept().unwrap().0;
            let until = Instant::now() + SOON;
            let tls = Tls::server(socket, &identity, Arc::new(|_| true), "client", until);
            let mut control = Raw(tls.ok().expect("the client accepts this key"));
            control.send(&ToController::Hello {
                protocol: PROTOCOL,
                version: "dishonest".to_owned(),
                again: None,
            });
            // A client that has had enough has closed.
            let _ = remote_end(&mut control, &lies);
        });
        Remote { at, client, thread }
    }

    fn measured_by(self, options: &[&str]) -> std::process::Output {
        let mut command = self.client.linerate(&["measure", &self.at]);
        let out = run(command.args(options));
        self.thread.join().unwrap();
        out
    }
}

/// Receives one leg.
fn remote_end(control: &mut Raw, lies: &Lies) -> Option<()> {
    let end = Instant::now() + Duration::from_secs(20);
    let message = loop {
        let message = control.recv(end)?;
        if message["say"] == "open" {
            break message;
        }
    };
    let mut order: LegOrder = serde_json::from_value(message["order"].clone()).unwrap();
    let (leg, streams) = (order.leg, order.streams);
    (lies.grant)(&mut order);
    let data = TcpListener::bind("127.0.0.1:0").unwrap();
    let granted = ToController::Granted {
        leg,
        port: data.local_addr().unwrap().port(),
        token: Token::new([7; 32]).to_hex(),
        expires: Nanos::from_secs(20),
        order: Box::new(order),
        warnings: Vec::new(),
    };
    control.try_send(&granted).ok()?;
    data.set_nonblocking(true).unwrap();
    let mut sockets = Vec::new();
    while sockets.len() < streams as usize {
        match data.accept() {
            Ok((mut socket, _)) => {
                socket.set_nonblocking(false).unwrap();
                socket.read_exact(&mut [0; 36]).unwrap();
                sockets.push(socket);
            }
            Err(_) => {
                // Until the client refuses the grant.
                let message = control.recv(Instant::now() + Duration::from_millis(100));
                if message.is_some_and(|message| message["say"] == "stop") {
                    let why = "this server has no other answer".to_owned();
                    control.try_send(&ToController::Failed { leg, why }).ok()?;
                    while control.recv(end).is_some() {}
                    return None;
                }
                if Instant::now() > end {
                    return None;
                }
            }
        }
    }
    let state = |(stream, socket): (u32, &TcpStream)| {
        observe::socket_options(stream, socket.as_fd()).unwrap()
    };
    let connected = ToController::Connected {
        leg,
        sockets: (0..).zip(&sockets).map(state).collect(),
        fingerprint: Box::new(observe::fingerprint("dishonest", None)),
        warnings: Vec::new(),
    };
    control.try_send(&connected).ok()?;
    loop {
        if control.recv(end)?["say"] == "start" {
            break;
        }
    }
    for frame in (lies.extra)(leg) {
        control.try_send(&frame).ok()?;
    }
    let mut bytes = 0;
    let mut buffer = vec![0; 1 << 18];
    let begun = Instant::now();
    for socket in &mut sockets {
        loop {
            match socket.read(&mut buffer) {
                Ok(0) | Err(_) => break,
                Ok(got) => bytes += got as u64,
            }
        }
    }
    let record = model::EndRecord {
        bytes: Bytes(bytes * lies.factor),
        duration: begun.elapsed().into(),
        signed: lies.signed.map(|signature| signature()),
        retransmits: (lies.factor > 1).then_some(u64::MAX),
        ..model::EndRecord::default()
    };
    let finished = ToController::Finished {
        leg,
        record: Box::new(record),
        broke: None,
    };
    control.try_send(&finished).ok()?;
    while control.recv(end).is_some() {}
    None
}

#[test]
fn a_grant_above_the_order_is_refused_in_one_sentence() {
    let options = ["--up", "-t", "1", "--pacing", "20M", "-q"];
    type Change = fn(&mut LegOrder);
    let above: [(Change, &str); 4] = [
        (
            |order| order.limit = LegLimit::Time(Nanos::from_secs(4)),
            "4.00 s",
        ),
        (|order| order.socket.pacing = None, "no pacing"),
        (|order| order.streams = 3000, "3000 streams"),
        (
            |order| order.limit = LegLimit::Bytes(Bytes(1 << 40)),
            "1.00 TiB",
        ),
    ];
    for (grant, named) in above {
        let remote = Remote::start(Lies { grant, ..HONEST });
        let out = remote.measured_by(&options);
        let said = stderr(&out);
        assert!(!out.status.success(), "{named}: {}", stdout(&out));
        assert!(
            said.contains("more than was ordered") && said.contains(named),
            "{named}: {said}"
        );
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

#[test]
fn an_interval_of_zero_does_not_loop() {
    let remote = Remote::start(Lies {
        grant: |order| order.interval = Nanos(0),
        ..HONEST
    });
    let out = remote.measured_by(&["--up", "-n", "1M", "-q"]);
    assert!(out.status.success(), "{}", stderr(&out));
}

#[test]
fn bytes_that_this_kernel_did_not_send_are_not_the_runs() {
    let remote = Remote::start(Lies {
        factor: 10,
        ..HONEST
    });
    let out = remote.measured_by(&["--up", "-n", "8M", "--json"]);
    let measured: Value = serde_json::from_slice(&out.stdout).unwrap();
    let why = measured["legs"][0]["ended"]["why"].as_str().unwrap();
    assert!(
        why.contains("the remote host claims 80.0 MiB, this kernel sent 8.00 MiB"),
        "{why}"
    );
    assert_eq!(
        measured["summary"]["legs"][0]["bytes"],
        8 << 20,
        "{measured}"
    );
    assert_ne!(
        measured["summary"]["legs"][0]["retransmits"],
        json!(u64::MAX)
    );
    assert!(!out.status.success());
}

#[test]
fn a_signature_of_something_else_leaves_the_figures_of_this_host() {
    let remote = Remote::start(Lies {
        signed: Some(|| model::Signature {
            key: "00".repeat(32),
            leg: "00".repeat(32),
            at: Nanos(0),
            signature: "00".repeat(64),
        }),
        ..HONEST
    });
    let out = remote.measured_by(&["--up", "-n", "8M", "--json"]);
    let measured: Value = serde_json::from_slice(&out.stdout).unwrap();
    let leg = &measured["legs"][0];
    let why = leg["ended"]["why"].as_str().unwrap();
    assert!(
        why.contains("signed something else than it reported"),
        "{why}"
    );
    assert!(leg["remote"]["signed"].is_null());
    assert_eq!(
        leg["local"]["signed"]["signature"].as_str().unwrap().len(),
        128
    );
    assert!(!out.status.success());
}

/// A sample of so many streams.
fn sample(leg: u32, streams: usize) -> Value {
    let streams: Vec<Value> = (0..streams)
        .map(|n| json!({"stream": n, "bytes": 1}))
        .collect();
    let cpu = serde_json::to_value(model::CpuTimes::default()).unwrap();
    json!({"say": "sample", "leg": leg,
        "sample": {"at_ns": 1, "bytes": 1, "streams": streams, "cpu": cpu}})
}

#[test]
fn samples_without_end_or_sense_end_the_run() {
    let many = Lies {
        extra: |leg| (0..5000).map(|_| sample(leg, 1)).collect(),
        ..HONEST
    };
    let wide = Lies {
        extra: |leg| vec![sample(leg, 3000)],
        ..HONEST
    };
    let none = Lies {
        extra: |leg| vec![json!({"say": "sample", "leg": leg, "sample": {"at_ns": null}})],
        ..HONEST
    };
    let late = Lies {
        extra: |leg| {
            let mut late = sample(leg, 1);
            late["sample"]["at_ns"] = json!(u64::MAX);
            vec![late]
        },
        ..HONEST
    };
    for (lies, reason) in [
        (late, "which no leg reaches"),
        (many, "more samples than there was time for"),
        (wide, "3000 streams"),
        (none, "cannot be read"),
    ] {
        let out = Remote::start(lies).measured_by(&["--up", "-t", "2", "-q"]);
        assert!(!out.status.success(), "{reason}");
        let said = stderr(&out) + &stdout(&out);
        assert!(said.contains(reason), "{reason}: {said}");
    }
}

/// Samples whose states have the largest numbers, and whose times and counts go back.
fn absurd(leg: u32) -> Vec<Value> {
    let most = u64::MAX;
    let tcp = json!({"state": 1, "retransmits": 255, "backoff": 255, "rto_ns": most, "srtt_ns": most, "min_rtt_ns": most,
        "rttvar_ns": most, "cwnd": u32::MAX, "ssthresh": u32::MAX, "mss": u32::MAX, "snd_wnd": most, "rcv_wnd": most,
        "bytes_acked": most, "bytes_received": most, "bytes_sent": most, "bytes_retrans": most, "notsent_bytes": most,
        "packets_out": u32::MAX, "total_retrans": u32::MAX, "delivered": u32::MAX, "delivered_ce": u32::MAX,
        "busy_ns": most, "rwnd_limited_ns": most, "sndbuf_limited_ns": most, "pacing_rate_bit_s": most,
        "delivery_rate_bit_s": most, "segs_out": u32::MAX, "segs_in": u32::MAX, "rcv_space": most});
    let cpu = json!({"process_user_ns": most, "process_system_ns": most, "host_busy_ns": most, "host_total_ns": most,
        "busiest_processor_ns": most, "host_softirq_ns": most, "host_steal_ns": most});
    let of = |at: u64, bytes: u64, large: bool| {
        let mut stream = json!({"stream": 0, "bytes": bytes});
        let mut sample = sample(leg, 0);
        if large {
            stream["tcp"] = tcp.clone();
            stream["send_buffer"] = json!(most);
            stream["receive_buffer"] = json!(most);
            sample["sample"]["cpu"] = cpu.clone();
        }
        sample["sample"]["at_ns"] = json!(at);
        sample["sample"]["bytes"] = json!(bytes);
        sample["sample"]["streams"] = json!([stream]);
        sample
    };
    vec![
        of(0, 0, false),
        of(1 << 49, 9, true),
        of(1, 1, false),
        of(1 << 48, 0, true),
        of(5, 7, true),
    ]
}

#[test]
fn absurd_samples_break_no_reader() {
    let remote = Remote::start(Lies {
        extra: absurd,
        ..HONEST
    });
    let sound = |command: &mut Command| {
        let out = run(command);
        let said = stderr(&out);
        assert!(!said.contains("panicked"), "{command:?}: {said}");
        assert!(
            out.status.code().is_some_and(|code| code < 100),
            "{command:?}: {said}"
        );
    };
    let client = &remote.client;
    sound(&mut client.linerate(&["measure", &remote.at, "--up", "-n", "8M"]));
    let export = stdout(&run(&mut client.linerate(&["runs", "export", "last"])));
    let kept: Value = serde_json::from_str(&export).unwrap();
    assert_eq!(
        kept["legs"][0]["remote"]["samples"]
            .as_array()
            .unwrap()
            .len(),
        5
    );
    for args in [
        &["runs", "show", "last"][..],
        &["runs", "export", "last", "-f", "csv"],
        &["explain", "last"],
        &["report", "last", "-o", "-"],
    ] {
        sound(&mut client.linerate(args));
    }
    remote.thread.join().unwrap();
}

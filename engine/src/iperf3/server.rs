//! `serve --iperf3`: tests for any stock iperf3 client, several at once.
//!
//! One thread takes connections and reads their cookies, each within a deadline; a connection whose
//! cookie names a running session goes to that session, any other begins one. Each session has a
//! thread of its own, so that a silent client costs nobody else anything.

mod reservations;
mod session;
mod udp_accept;

use super::auth::Authenticator;
use crate::prelude::*;
use crate::transport::acceptor::{Acceptor, AcceptorLimits, Arrival, ReadyConn, Slots, WhenFull};
use crate::transport::admission::{Admission, Bounds, PendingConnection, Startups};
use model::Placement;
use reservations::Reservations;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::thread::Scope;
use udp_accept::UdpAcceptor;
use wire::iperf3::{COOKIE_LEN, Cookie, DEFAULT_PORT, DEFAULT_SKEW_S, is_cookie};

/// How long a connection may take to send its cookie.
const COOKIE_WITHIN: Duration = Duration::from_secs(10);
/// Connections of clients with a test that have not sent their cookie yet: in all, and from one source. A client opens
/// 129 at most (128 streams and the control connection).
const MAX_PENDING: usize = 256;
const MAX_PENDING_FROM_ONE: usize = 160;
/// Between two looks at whether the server is to stop.
const TICK: Duration = Duration::from_millis(100);
/// Sessions at once, those in the queue included: in all, and from one address, so that one client cannot take all.
const MAX_SESSIONS: usize = 64;
const MAX_FROM_ONE: usize = 16;

/// What a server for iperf3 clients allows.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "iperf3 clients (with --iperf3)")]
pub struct ServerOptions {
    /// Private key in PEM form: only users of --authorized-users may test
    #[arg(long, value_name = "FILE", requires_all = ["authorized_users", "iperf3"])]
    pub rsa_private_key: Option<PathBuf>,
    /// Users, one 'NAME,HASH' a line; HASH is the SHA-256 of {NAME}PASSWORD in hexadecimal
    #[arg(long, value_name = "FILE", requires_all = ["rsa_private_key", "iperf3"])]
    pub authorized_users: Option<PathBuf>,
    /// Seconds that the clocks of users may be off
    #[arg(long, default_value_t = DEFAULT_SKEW_S, value_name = "SECONDS", requires = "iperf3")]
    pub time_skew: u64,
    /// Accept the padding of clients before 3.17 too (PKCS#1 v1.5)
    #[arg(long, requires = "iperf3")]
    pub use_pkcs1_padding: bool,
    /// Longest iperf3 test
    #[arg(long, default_value = "1h", value_name = "TIME", requires = "iperf3")]
    pub iperf3_max_time: Nanos,
    /// Most bytes of one iperf3 test, both directions together
    #[arg(long, value_name = "SIZE", requires = "iperf3")]
    pub iperf3_max_bytes: Option<Bytes>,
    /// Highest rate of one iperf3 test, both directions together
    #[arg(long, value_name = "RATE", requires = "iperf3")]
    pub iperf3_max_rate: Option<BitRate>,
}

/// What all sessions share: the data connections that they await, the tests that run, the limits.
struct ServerState<'a> {
    options: &'a ServerOptions,
    /// Verifies users; `None`: everybody may test.
    authenticator: Option<Authenticator>,
    /// Accepts UDP streams.
    udp: UdpAcceptor,
    /// The server is to stop.
    stop: &'a AtomicBool,
    /// Takes a line about what happened.
    log: &'a (dyn Fn(&str) + Sync),
    /// Clients that are served or wait in the queue.
    clients: Slots,
    /// The data connections that each session awaits, from the address of its client; each with its position in the
    /// order of connections.
    sessions: Reservations<Cookie, (u64, TcpStream), IpAddr>,
    /// Tests that run.
    tests: Slots<()>,
}

/// Serves up to `tests` tests at a time until `stop` is set, on `port` of `bind`; without it on all addresses if only
/// authorised users may test, and on loopback if everybody may. Calls `ready` once all files and ports are open. `log` gets one
/// line for each thing that happens.
pub fn serve(
    (bind, port): (Option<IpAddr>, Option<u16>),
    tests: usize,
    startups: Startups,
    options: &ServerOptions,
    ready: &dyn Fn() -> Result<()>,
    stop: &AtomicBool,
    log: &(dyn Fn(&str) + Sync),
) -> Result<()> {
    let authenticator = match (&options.rsa_private_key, &options.authorized_users) {
        (Some(key), Some(users)) => {
            let (skew_s, pkcs1) = (options.time_skew, options.use_pkcs1_padding);
            Some(Authenticator::open(key, users, skew_s, pkcs1)?)
        }
        (None, None) => None,
        _ => bail!(Refusal::usage(
            "--rsa-private-key and --authorized-users belong together: give both or none"
        )),
    };
    let listen = bind.unwrap_or(match authenticator {
        Some(_) => Ipv6Addr::UNSPECIFIED.into(),
        None => Ipv4Addr::LOCALHOST.into(),
    });
    let local = SocketAddr::new(listen, port.unwrap_or(DEFAULT_PORT));
    let listener = measure::listen(local, &SocketSettings::default(), &Placement::default())
        .with_context(|| format!("cannot serve iperf3 clients on {local}"))?;
    listener.set_nonblocking(true)?;
    let local = listener.local_addr()?;
    let udp = UdpAcceptor::open(local);
    let server = ServerState {
        options,
        authenticator,
        udp: udp.with_context(|| format!("cannot serve iperf3 datagrams on {local}"))?,
        stop,
        log,
        clients: Slots::new(MAX_SESSIONS.max(tests), MAX_FROM_ONE),
        sessions: Reservations::new(),
        tests: Slots::new(tests, tests),
    };
    log(&format!("iperf3 clients are served on {local}"));
    if bind.is_none() && server.authenticator.is_none() {
        log(
            "only this host can reach it: give --bind 0.0.0.0 to let everybody test, or \
             --rsa-private-key and --authorized-users to let some",
        );
    }
    let limits = AcceptorLimits {
        prefix: COOKIE_LEN,
        within: COOKIE_WITHIN,
        when_full: WhenFull::Refuse,
        only: None,
    };
    ready()?;
    let bounds = Bounds {
        startups,
        kept: MAX_PENDING,
        kept_for_one: MAX_PENDING_FROM_ONE,
    };
    let admission = Admission::new(bounds, |stream, _| session::deny(stream));
    let mut acceptor = Acceptor::new([&listener], limits, admission);
    std::thread::scope(|scope| {
        scope.spawn(|| server.udp.run(stop));
        while !stop.load(Ordering::Relaxed) {
            let arrivals = acceptor.poll(TICK);
            for arrival in arrivals.context("cannot wait for connections")? {
                // A connection beyond the limits is closed; an error of one connection ends nothing.
                if let Arrival::Ready(conn) = arrival {
                    serve_connection(scope, &server, conn);
                }
            }
        }
        Ok(())
    })
}

/// Attaches the connection to the session that its cookie names (dropped if that awaits no more, or has another peer),
/// or begins a session.
fn serve_connection<'scope>(
    scope: &'scope Scope<'scope, '_>,
    server: &'scope ServerState<'scope>,
    conn: ReadyConn<PendingConnection>,
) {
    let peer = conn.peer;
    let Ok(cookie) = Cookie::try_from(&conn.prefix[..]) else {
        return;
    };
    if !is_cookie(&cookie) {
        return (server.log)(&format!(
            "{peer} does not speak iperf3's protocol; turned away"
        ));
    }
    let (number, pending, mut stream) = (conn.number, conn.pass, Some(conn.stream));
    let known = server.sessions.give(&cookie, |client| {
        let stream = stream.take_if(|_| *client == peer.ip())?;
        Some((number, stream))
    });
    let Some(stream) = stream.filter(|_| !known) else {
        return pending.authenticated();
    };
    // Without a thread the connection is closed.
    let _ = std::thread::Builder::new()
        .name("iperf3-session".to_owned())
        .spawn_scoped(scope, move || {
            session::run(server, stream, peer, cookie, pending);
        });
}

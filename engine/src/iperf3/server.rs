//! `serve --iperf3`: tests for any stock iperf3 client, several at once.
//!
//! One thread takes connections and reads their cookies, each within a deadline; a connection whose
//! cookie names a running session goes to that session, any other begins one. Each session has a
//! thread of its own, so that a silent client costs nobody else anything.

mod desk;
mod house;
mod session;

use super::auth::Doorkeeper;
use crate::exit::Refusal;
use anyhow::{Context, Result, bail};
use house::House;
use model::{BitRate, Bytes, Nanos, Placement, SocketSettings};
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Scope;
use std::time::{Duration, Instant};
use sys::poll::{PollFd, poll};
use wire::iperf3::{COOKIE_LEN, Cookie, DEFAULT_PORT, DEFAULT_SKEW_S, is_cookie};

/// How long a connection may take to send its cookie.
const COOKIE_WITHIN: Duration = Duration::from_secs(10);
/// Connections that may be about to send their cookie; beyond that the oldest is dropped.
const MAX_STRANGERS: usize = 256;
/// How soon the server notices that it is to stop.
const TICK: Duration = Duration::from_millis(100);

/// What a server for iperf3 clients allows.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "iperf3 clients (with --iperf3)")]
pub struct Options {
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

/// Serves up to `tests` tests at a time until `stop` is set, on `port` of `bind`; without it on all addresses if only authorised users may
/// test, and on loopback if everybody may. `log` gets one line for each thing that happens: who did
/// what.
///
/// # Errors
/// If the keys cannot be read or the port cannot be had.
pub fn serve(
    bind: Option<IpAddr>,
    port: Option<u16>,
    tests: u32,
    options: &Options,
    stop: &AtomicBool,
    log: &(dyn Fn(&str) + Sync),
) -> Result<()> {
    let doorkeeper = match (&options.rsa_private_key, &options.authorized_users) {
        (Some(key), Some(users)) => Some(Doorkeeper::open(
            key,
            users,
            options.time_skew,
            options.use_pkcs1_padding,
        )?),
        (None, None) => None,
        _ => bail!(Refusal::usage(
            "--rsa-private-key and --authorized-users belong together: give both or none"
        )),
    };
    let listen = bind.unwrap_or(match doorkeeper {
        Some(_) => Ipv6Addr::UNSPECIFIED.into(),
        None => Ipv4Addr::LOCALHOST.into(),
    });
    let local = SocketAddr::new(listen, port.unwrap_or(DEFAULT_PORT));
    let listener = measure::listen(local, &SocketSettings::default(), &Placement::default())
        .with_context(|| format!("cannot serve iperf3 clients on {local}"))?;
    listener.set_nonblocking(true)?;
    let local = listener.local_addr()?;
    let doorkeeper_is_absent = doorkeeper.is_none();
    let house = House::open(options.clone(), tests, doorkeeper, local, stop, log)
        .with_context(|| format!("cannot serve iperf3 datagrams on {local}"))?;
    log(&format!("iperf3 clients are served on {local}"));
    if bind.is_none() && doorkeeper_is_absent {
        log(
            "only this host can reach it: give --bind 0.0.0.0 to let everybody test, or \
             --rsa-private-key and --authorized-users to let some",
        );
    }
    std::thread::scope(|scope| {
        scope.spawn(|| house.desk.run(stop));
        let door = Door {
            listener,
            house: &house,
            strangers: Vec::new(),
            arrivals: 0,
        };
        door.run(scope, stop)
    })
}

/// Where connections come in.
struct Door<'a> {
    listener: TcpListener,
    house: &'a House<'a>,
    strangers: Vec<Stranger>,
    arrivals: u64,
}

/// A connection that has not said its cookie yet.
struct Stranger {
    stream: TcpStream,
    peer: SocketAddr,
    cookie: Vec<u8>,
    until: Instant,
    /// Position in the order of connections, which tells the streams of a test apart.
    arrival: u64,
}

impl<'a> Door<'a> {
    fn run<'scope>(mut self, scope: &'scope Scope<'scope, '_>, stop: &AtomicBool) -> Result<()>
    where
        'a: 'scope,
    {
        while !stop.load(Ordering::Relaxed) {
            let mut fds = vec![PollFd::new(self.listener.as_fd(), true, false)];
            fds.extend(
                self.strangers
                    .iter()
                    .map(|s| PollFd::new(s.stream.as_fd(), true, false)),
            );
            poll(&mut fds, Some(TICK)).context("cannot wait for connections")?;
            let knocking = fds[0].readable();
            let speaking: Vec<bool> = fds[1..].iter().map(PollFd::readable).collect();
            drop(fds);
            let now = Instant::now();
            let mut speaking = speaking.into_iter();
            for mut stranger in std::mem::take(&mut self.strangers) {
                let done = speaking.next() == Some(true) && !stranger.listen();
                if done {
                    self.enter(scope, stranger);
                } else if stranger.until > now {
                    self.strangers.push(stranger);
                }
            }
            if knocking {
                self.accept();
            }
        }
        Ok(())
    }

    fn accept(&mut self) {
        // Each error that can happen here is of one connection, or passes.
        while let Ok((stream, peer)) = self.listener.accept() {
            // An IPv4 client of a socket for both versions is told by its IPv4 address.
            let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            if self.strangers.len() >= MAX_STRANGERS {
                self.strangers.remove(0);
            }
            self.arrivals += 1;
            self.strangers.push(Stranger {
                stream,
                peer,
                cookie: Vec::with_capacity(COOKIE_LEN),
                until: Instant::now() + COOKIE_WITHIN,
                arrival: self.arrivals,
            });
        }
    }

    fn enter<'scope>(&self, scope: &'scope Scope<'scope, '_>, stranger: Stranger)
    where
        'a: 'scope,
    {
        let Ok(cookie) = Cookie::try_from(&stranger.cookie[..]) else {
            return;
        };
        if !is_cookie(&cookie) {
            (self.house.log)(&format!(
                "{} does not speak iperf3's protocol; turned away",
                stranger.peer
            ));
            return;
        }
        let Stranger {
            stream,
            peer,
            arrival,
            ..
        } = stranger;
        let Some(stream) = self.house.seat(&cookie, peer, arrival, stream) else {
            return;
        };
        let house = self.house;
        if house.enter(peer.ip()) {
            let spawned = std::thread::Builder::new()
                .name("iperf3-session".to_owned())
                .spawn_scoped(scope, move || {
                    session::run(house, stream, peer, cookie);
                    house.leave(peer.ip());
                });
            if spawned.is_err() {
                house.leave(peer.ip());
            }
        } else {
            session::deny(stream);
            (house.log)(&format!("{peer}: too many clients at once; turned away"));
        }
    }
}

impl Stranger {
    /// Reads on; false once there is no more to wait for.
    fn listen(&mut self) -> bool {
        let mut buffer = [0; COOKIE_LEN];
        let missing = COOKIE_LEN - self.cookie.len();
        match self.stream.read(&mut buffer[..missing]) {
            Ok(0) => false,
            Ok(count) => {
                self.cookie.extend_from_slice(&buffer[..count]);
                self.cookie.len() < COOKIE_LEN
            }
            Err(error) => matches!(
                error.kind(),
                std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted
            ),
        }
    }
}

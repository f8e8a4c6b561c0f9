//! Without an agent: any web server, unprivileged.
//!
//! An MSS that is set before connect(2) bounds the segments of both ends. Two full segments that are
//! acknowledged show that the way there takes their size; a page that comes in full segments shows it
//! for the way back. TCP sends again what is lost by chance, so each size is tried once.

use super::exchange::LARGEST;
use super::near::{end_of, way};
use super::{handshake_mss, look_around, options, tcp_header};
use crate::exit::Refusal;
use crate::host::authority;
use crate::transport;
use anyhow::{Context, Result};
use model::IpVersion;
use model::mtu::{Cause, Climb, MTU_SCHEMA, Method, MtuReport, PathEnd, Way};
use pmtud::{Ladder, Rule};
use probe::Ask;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Passes every path that is worth the name.
const FLOOR: u32 = 296;

/// Largest MSS that Linux takes (`MAX_TCP_WINDOW`, include/net/tcp.h), with the longer headers.
const CEILING: u32 = 32_767 + 40;

/// What makes no progress for so long is stuck: the timeouts of TCP, of 200, 400 and 800 ms, have passed.
const STUCK_AFTER: Duration = Duration::from_millis(1500);

/// For a handshake; the second SYN goes out after a second.
const CONNECT: Duration = Duration::from_secs(3);

/// Bytes of a page that are read.
const MOST: usize = 256 * 1024;

/// For the answers of routers.
const ROUTERS: Duration = Duration::from_millis(900);

/// Where nothing listens, as a rule: traceroute's first port.
const CLOSED_PORT: u16 = 33_434;

/// Between the beginnings of two connections.
const BETWEEN: Duration = Duration::from_millis(5);

/// Between two looks at the connections.
const LOOK: Duration = Duration::from_millis(2);

/// A page of a web server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    name: String,
    port: u16,
    path: String,
}

impl Page {
    /// Reads `http://name[:port][/page]`; `None` for what is no such address.
    ///
    /// # Errors
    /// If it is one, and wrong.
    pub fn of(text: &str) -> Result<Option<Page>> {
        if text.starts_with("https://") {
            return Err(Refusal::usage(format!(
                "{text}: only http:// can be looked at without an agent; a server that answers plain http with a redirection will do for the way there"
            ))
            .into());
        }
        let Some(rest) = text.strip_prefix("http://") else {
            return Ok(None);
        };
        let (at, path) = match rest.find('/') {
            Some(slash) => rest.split_at(slash),
            None => (rest, "/"),
        };
        let wrong =
            |why: &str| Refusal::usage(format!("{text} {why}: write http://name[:port]/page"));
        let (name, port) = crate::host::split(at).map_err(wrong)?;
        if !path.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(wrong("has a page with spaces or other odd characters").into());
        }
        Ok(Some(Page {
            name,
            port: port.unwrap_or(80),
            path: path.to_owned(),
        }))
    }

    fn request(&self) -> String {
        format!(
            "GET {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: linerate/{}\r\nAccept: */*\r\nConnection: close\r\n",
            self.path,
            authority(&self.name, self.port, 80),
            transport::VERSION
        )
    }
}

/// Finds out what gets through between this host and a web server, in both directions.
///
/// # Errors
/// If it cannot be reached or does not answer.
pub fn look(host: &str, page: &Page, version: Option<IpVersion>) -> Result<MtuReport> {
    let mut last = None;
    for at in transport::resolve(&page.name, page.port, version)? {
        match look_at(host, page, at) {
            Ok(report) => return Ok(report),
            Err(error) => last = last.or(Some(error)),
        }
    }
    Err(last.context("a name that was resolved has an address")?)
}

fn look_at(host: &str, page: &Page, at: SocketAddr) -> Result<MtuReport> {
    let ip = at.ip().to_canonical();
    let at = SocketAddr::new(ip, at.port());
    let before = end_of(ip)?;
    let own = before.device_mtu.min(LARGEST).min(CEILING);
    let mut notes = Vec::new();

    // As it is, to learn what the server announces; then with segments that pass anywhere, to learn how
    // long the page is.
    let plain = Try::begin(at, None)?;
    let plain = plain.connected()?;
    let theirs = handshake_mss(&plain.info()?) + tcp_header(at);
    drop(plain);
    let length = Try::begin(at, Some(FLOOR))?.connected()?.fetch(page)?;
    if length == 0 {
        return Err(Refusal::unreachable(format!(
            "{host}: the server takes connections and sends nothing, not even in packets of {FLOOR} bytes"
        ))
        .into());
    }
    let length = u32::try_from(length).unwrap_or(u32::MAX);
    let longest = length.saturating_add(tcp_header(at));
    if longest < own {
        notes.push(format!(
            "the page has {length} bytes with its header: name one longer than {own} to look further on the way back"
        ));
    }
    if theirs < own {
        notes.push(format!(
            "the server's side takes segments of packets of {theirs} bytes at most (its MSS, or one that this host has learned): larger ones cannot be sent there"
        ));
    }
    let ((there, _), (back, smaller)) = std::thread::scope(|scope| {
        let there = scope.spawn(|| climb(own.min(theirs), |size| Job::new(at, size, page, true)));
        let back = climb(own.min(longest), |size| Job::new(at, size, page, false));
        there.join().map(|there| (there, back))
    })
    .map_err(|_| anyhow::anyhow!("a thread ended early"))?;
    let mut there = there;
    if let Some(passes) = there.passes.filter(|passes| *passes < there.ceiling) {
        // With datagrams to a port where nothing listens.
        let (small, large) = (
            vec![0; 40],
            vec![0; (passes + 1 - probe::header(ip)) as usize],
        );
        let ask = Ask {
            to: SocketAddr::new(ip, CLOSED_PORT),
            small: &small,
            large: &large,
            wait: ROUTERS,
        };
        look_around(&mut there, &ask, at, &mut || {})?;
    }
    let near = observe::path_end_after(&before, ip).unwrap_or(before);
    Ok(MtuReport {
        schema: MTU_SCHEMA,
        host: host.to_owned(),
        method: Method::Web,
        there: way(&near, Some(&server(theirs)), there, None, None),
        back: back_way(&near, back, smaller),
        near,
        far: None,
        notes,
    })
}

/// The server's end, of which only this is known.
fn server(device_mtu: u32) -> PathEnd {
    PathEnd {
        device_mtu,
        ..PathEnd::default()
    }
}

/// The way back. Where the whole page came in `smaller` segments, nothing on the way has stopped it.
fn back_way(near: &PathEnd, climb: Climb, smaller: bool) -> Way {
    let sender = PathEnd {
        // Unknown, and not none.
        gateway: near.gateway.or(near.address),
        ..server(near.device_mtu)
    };
    let short = climb.ceiling < near.device_mtu.min(CEILING);
    let mut back = way(&sender, Some(near), climb, None, None);
    if back.climb.passes == Some(back.climb.ceiling) && short {
        back.verdict.cause = Cause::NotTried;
    } else if smaller && back.verdict.cause == Cause::Somewhere {
        back.verdict.cause = Cause::SenderStops;
        back.verdict.doubts.clear();
    }
    back
}

/// Climbs with connections; also says whether one that was to be larger carried everything in smaller
/// segments.
fn climb<'a>(ceiling: u32, job: impl Fn(u32) -> Result<Job<'a>>) -> (Climb, bool) {
    let mut ladder = Ladder::new(Rule::CONNECTIONS, FLOOR.min(ceiling), ceiling);
    let mut smaller = false;
    while let Some(probes) = ladder.next_round() {
        let mut waiting = probes.into_iter();
        let mut jobs = Vec::new();
        let mut next = Instant::now();
        loop {
            // Not all at once: many servers let only a few wait to be accepted.
            if next <= Instant::now()
                && let Some(probe) = waiting.next()
            {
                // One that cannot even begin has not passed.
                jobs.extend(job(probe.size).ok().map(|job| (probe, job)));
                next = Instant::now() + BETWEEN;
            }
            jobs.retain_mut(|(probe, job)| {
                let outcome = job.step().unwrap_or(Some(Outcome::Stuck));
                if outcome == Some(Outcome::Passes) {
                    ladder.arrived(*probe);
                }
                smaller |= outcome == Some(Outcome::Smaller);
                outcome.is_none()
            });
            let all = ladder.climb().passes == Some(ceiling);
            if all || (jobs.is_empty() && waiting.len() == 0) {
                break;
            }
            std::thread::sleep(LOOK);
        }
    }
    (ladder.climb(), smaller)
}

/// A connection that is tried.
struct Try {
    stream: TcpStream,
    at: SocketAddr,
    since: Instant,
}

impl Try {
    /// Begins the handshake, with an MSS for packets of this size.
    fn begin(at: SocketAddr, size: Option<u32>) -> Result<Try> {
        let socket = sys::socket::tcp(&at).context("cannot open a TCP socket")?;
        if let Some(size) = size {
            let mss = size.saturating_sub(tcp_header(at));
            sys::socket::set(socket.as_fd(), sys::socket::MSS, mss.cast_signed())
                .context("cannot set the MSS")?;
        }
        sys::probe::begin_connect(socket.as_fd(), &at)
            .map_err(|error| Refusal::unreachable(format!("{at} cannot be reached: {error}")))?;
        let stream = TcpStream::from(socket);
        stream.set_nodelay(true)?;
        sys::socket::set_lost_after(stream.as_fd(), CONNECT)?;
        Ok(Try {
            stream,
            at,
            since: Instant::now(),
        })
    }

    /// Waits for the end of the handshake.
    fn connected(self) -> Result<Try> {
        while !self.is_up()? {
            if self.since.elapsed() > CONNECT {
                return Err(Refusal::unreachable(format!(
                    "{} did not answer: is a web server there?",
                    self.at
                ))
                .into());
            }
            std::thread::sleep(LOOK);
        }
        Ok(self)
    }

    fn is_up(&self) -> Result<bool> {
        if let Some(error) = sys::probe::take_error(self.stream.as_fd())? {
            let why = format!("{} cannot be reached: {error}", self.at);
            return Err(Refusal::unreachable(why).into());
        }
        Ok(self.info()?.state() == Some(ESTABLISHED))
    }

    fn info(&self) -> Result<model::SocketState> {
        Ok(observe::tcp_info(self.stream.as_fd())?)
    }

    /// Bytes of a page with its header, as far as they come.
    fn fetch(mut self, page: &Page) -> Result<usize> {
        let request = format!("{}\r\n", page.request());
        self.stream.write_all(request.as_bytes())?;
        let mut reading = Reading::new();
        while !reading.is_over() {
            reading.step(&mut self.stream);
            std::thread::sleep(LOOK);
        }
        Ok(reading.got)
    }
}

/// `TCP_ESTABLISHED` and the state after the server has closed its side (`net/tcp_states.h`).
const ESTABLISHED: u8 = 1;
const CLOSE_WAIT: u8 = 8;

/// What comes over a connection.
struct Reading {
    got: usize,
    since: Instant,
    ended: bool,
    room: Vec<u8>,
}

impl Reading {
    fn new() -> Reading {
        Reading {
            got: 0,
            since: Instant::now(),
            ended: false,
            room: vec![0; 64 * 1024],
        }
    }

    fn step(&mut self, stream: &mut TcpStream) {
        while self.got < MOST {
            match stream.read(&mut self.room) {
                Ok(more @ 1..) => (self.got, self.since) = (self.got + more, Instant::now()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => {
                    self.ended = true;
                    return;
                }
            }
        }
    }

    fn is_over(&self) -> bool {
        self.ended || self.got >= MOST || self.since.elapsed() >= STUCK_AFTER
    }
}

/// A size in one direction.
struct Job<'a> {
    connection: Try,
    size: u32,
    page: &'a Page,
    stage: Stage,
}

/// What became of a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// Full segments arrived.
    Passes,
    /// Everything arrived, in smaller segments.
    Smaller,
    /// Nothing moved any more.
    Stuck,
}

enum Stage {
    /// The handshake; then data goes there if the flag says so, else comes back.
    Connecting {
        push: bool,
    },
    /// Full segments are on their way: their MSS.
    Pushed {
        mss: u32,
        since: Instant,
    },
    Fetching(Reading),
}

impl<'a> Job<'a> {
    /// Two full segments to the server if `push`, else a page from it.
    fn new(at: SocketAddr, size: u32, page: &'a Page, push: bool) -> Result<Job<'a>> {
        Ok(Job {
            connection: Try::begin(at, Some(size))?,
            size,
            page,
            stage: Stage::Connecting { push },
        })
    }

    /// Goes on; what became of it, once that is known.
    fn step(&mut self) -> Result<Option<Outcome>> {
        let header = tcp_header(self.connection.at);
        match &mut self.stage {
            Stage::Connecting { .. } if !self.connection.is_up()? => {
                Ok((self.connection.since.elapsed() > CONNECT).then_some(Outcome::Stuck))
            }
            Stage::Connecting { push: true } => {
                let info = self.connection.info()?;
                if handshake_mss(&info) + header < self.size {
                    // The server, or what the kernel has learned meanwhile, allows no such segment.
                    return Ok(Some(Outcome::Smaller));
                }
                let mut request = format!("{}X-Path: ", self.page.request()).into_bytes();
                request.resize(2 * info.mss().unwrap_or(0) as usize, b'x');
                let sent = self.connection.stream.write(&request)?;
                self.stage = Stage::Pushed {
                    mss: info.mss().unwrap_or(0),
                    since: Instant::now(),
                };
                Ok((sent < request.len()).then_some(Outcome::Stuck))
            }
            Stage::Connecting { push: false } => {
                let request = format!("{}\r\n", self.page.request());
                self.connection.stream.write_all(request.as_bytes())?;
                self.stage = Stage::Fetching(Reading::new());
                Ok(None)
            }
            Stage::Pushed { mss, since } => {
                let info = self.connection.info()?;
                if info.mss().is_some_and(|now| now < *mss) {
                    // A router has said that they are too big.
                    return Ok(Some(Outcome::Smaller));
                }
                let up = matches!(info.state(), Some(ESTABLISHED | CLOSE_WAIT));
                if info.packets_out() == Some(0) && info.notsent_bytes().unwrap_or_default().0 == 0
                {
                    return Ok(Some(if up { Outcome::Passes } else { Outcome::Stuck }));
                }
                Ok((since.elapsed() >= STUCK_AFTER).then_some(Outcome::Stuck))
            }
            Stage::Fetching(reading) => {
                reading.step(&mut self.connection.stream);
                let info = self.connection.info()?;
                let options = options(&info);
                if info.rcv_mss().unwrap_or(0) + options + header >= self.size && reading.got > 0 {
                    return Ok(Some(Outcome::Passes));
                }
                // As much as was there when the page was fetched in small segments.
                let whole = reading.got as u32 + header >= self.size;
                let outcome = if whole {
                    Outcome::Smaller
                } else {
                    Outcome::Stuck
                };
                Ok(reading.is_over().then_some(outcome))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_pages() {
        let page = |name: &str, port, path: &str| {
            Some(Page {
                name: name.to_owned(),
                port,
                path: path.to_owned(),
            })
        };
        for (text, expected) in [
            ("http://db2/big", page("db2", 80, "/big")),
            ("http://db2:8080", page("db2", 8080, "/")),
            (
                "http://[2001:db8::1]:81/a?b=c",
                page("2001:db8::1", 81, "/a?b=c"),
            ),
            ("db2:8080", None),
            ("ssh:db2", None),
        ] {
            assert_eq!(Page::of(text).unwrap(), expected, "{text}");
        }
        for bad in [
            "https://db2/",
            "http://",
            "http://:80/",
            "http://db2:x/",
            "http://db2/a b",
        ] {
            assert!(Page::of(bad).is_err(), "{bad}");
        }
    }
}

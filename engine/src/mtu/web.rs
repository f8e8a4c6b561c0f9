//! Without an agent: any web server, unprivileged.
//!
//! An MSS that is set before connect(2) bounds the segments of both ends. Two full segments that are
//! acknowledged prove that size on the forward path; a page that arrives in full segments proves it
//! on the reverse path. TCP retransmits random losses, so each size is tried once.

use super::exchange::LARGEST;
use super::local::{end_of, way};
use super::{handshake_mss, options, tcp_header, trace_hops};
use crate::host::authority;
use crate::prelude::*;
use crate::transport;
use model::IpVersion;
use model::mtu::{Climb, MTU_SCHEMA, Method, MtuCause, MtuReport, PathEnd, Way};
use pmtud::{ProbeLadder, Rule};
use probe::Ask;

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
pub struct WebPage {
    name: String,
    port: u16,
    path: String,
}

impl WebPage {
    /// Reads `http://name[:port][/page]`; `None` for what is no such address.
    ///
    /// # Errors
    /// If it is one, and wrong.
    pub fn of(text: &str) -> Result<Option<WebPage>> {
        if text.starts_with("https://") {
            bail!(Refusal::usage(format!(
                "{text}: without an agent only http:// is measured; a server that redirects plain http suffices for the forward path"
            )));
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
        Ok(Some(WebPage {
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
pub fn probe(host: &str, page: &WebPage, version: Option<IpVersion>) -> Result<MtuReport> {
    let mut last = None;
    for at in transport::resolve(&page.name, page.port, version)? {
        match probe_address(host, page, at) {
            Ok(report) => return Ok(report),
            Err(error) => last = last.or(Some(error)),
        }
    }
    Err(last.context("a name that was resolved has an address")?)
}

fn probe_address(host: &str, page: &WebPage, at: SocketAddr) -> Result<MtuReport> {
    let ip = at.ip().to_canonical();
    let at = SocketAddr::new(ip, at.port());
    let before = end_of(ip)?;
    let own = before.device_mtu.min(LARGEST).min(CEILING);
    let mut notes = Vec::new();

    // First without a bound, to learn what the server announces; then with segments that pass anywhere, to learn how
    // long the page is.
    let never = AtomicBool::new(false);
    let plain = Try::connect(at, None, &never)?.info()?;
    let theirs = handshake_mss(&plain) + tcp_header(at);
    let length = Try::connect(at, Some(FLOOR), &never)?.fetch(page, |_, _| false)?;
    if length == 0 {
        bail!(Refusal::unreachable(format!(
            "{host}: the server takes connections and sends nothing, not even in packets of {FLOOR} bytes"
        )));
    }
    let length = u32::try_from(length).unwrap_or(u32::MAX);
    let longest = length.saturating_add(tcp_header(at));
    if longest < own {
        notes.push(format!(
            "the page has {length} bytes with its header: name one longer than {own} to probe larger sizes on the reverse path"
        ));
    }
    if theirs < own {
        notes.push(format!(
            "the server's side takes segments of packets of {theirs} bytes at most (its MSS, or one that this host has learned): larger ones cannot be sent there"
        ));
    }
    let ((mut forward, _), (reverse, smaller)) = std::thread::scope(|scope| {
        let forward =
            scope.spawn(|| climb(own.min(theirs), |size, over| push(at, size, page, over)));
        let reverse = climb(own.min(longest), |size, over| pull(at, size, page, over));
        forward.join().map(|forward| (forward, reverse))
    })
    .map_err(|_| anyhow!("a thread ended early"))?;
    if let Some(passes) = forward.passes.filter(|passes| *passes < forward.ceiling) {
        // With datagrams to a port where nothing listens.
        let large = vec![0; (passes + 1 - probe::header(ip)) as usize];
        let ask = Ask {
            to: SocketAddr::new(ip, CLOSED_PORT),
            small: &[0; 40],
            large: &large,
            wait: ROUTERS,
        };
        trace_hops(&mut forward, &ask, at, &mut || {})?;
    }
    let local = observe::path_end_after(&before, ip).unwrap_or(before);
    Ok(MtuReport {
        schema: MTU_SCHEMA,
        host: host.to_owned(),
        method: Method::Web,
        forward: way(&local, Some(&server(theirs)), forward, None, None),
        reverse: back_way(&local, reverse, smaller),
        local,
        remote: None,
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

/// The reverse path. If the whole page came in `smaller` segments, nothing on the path has stopped it.
fn back_way(local: &PathEnd, climb: Climb, smaller: bool) -> Way {
    let sender = PathEnd {
        // Unknown, and not none.
        gateway: local.gateway.or(local.address),
        ..server(local.device_mtu)
    };
    let short = climb.ceiling < local.device_mtu.min(CEILING);
    let mut reverse = way(&sender, Some(local), climb, None, None);
    if reverse.climb.passes == Some(reverse.climb.ceiling) && short {
        reverse.verdict.cause = MtuCause::NotTried;
    } else if smaller && reverse.verdict.cause == MtuCause::Somewhere {
        reverse.verdict.cause = MtuCause::SenderStops;
        reverse.verdict.doubts.clear();
    }
    reverse
}

/// Climbs with connections, each in a thread of its own; also says whether one that was to be larger carried
/// everything in smaller segments.
fn climb(
    ceiling: u32,
    attempt: impl Fn(u32, &AtomicBool) -> Result<WebOutcome> + Sync,
) -> (Climb, bool) {
    let mut ladder = ProbeLadder::new(Rule::CONNECTIONS, FLOOR.min(ceiling), ceiling);
    let mut smaller = false;
    while let Some(probes) = ladder.next_round() {
        let (over, (results, outcomes)) = (AtomicBool::new(false), mpsc::channel());
        let (over, attempt) = (&over, &attempt);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for probe in probes {
                    let results = results.clone();
                    scope.spawn(move || {
                        // One that cannot even begin has not passed.
                        let outcome = attempt(probe.size, over).unwrap_or(WebOutcome::Stuck);
                        results.send((probe, outcome))
                    });
                    // Not all at once: many servers let only a few wait to be accepted.
                    std::thread::sleep(BETWEEN);
                }
            });
            for (probe, outcome) in outcomes {
                smaller |= outcome == WebOutcome::Smaller;
                if outcome == WebOutcome::Passes {
                    ladder.arrived(probe);
                }
                over.store(ladder.climb().passes == Some(ceiling), Ordering::Relaxed);
            }
        });
    }
    (ladder.climb(), smaller)
}

/// What became of a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WebOutcome {
    /// Full segments arrived.
    Passes,
    /// Everything arrived, in smaller segments.
    Smaller,
    /// Nothing moved any more.
    Stuck,
}

/// Sends two full segments to the server.
fn push(at: SocketAddr, size: u32, page: &WebPage, over: &AtomicBool) -> Result<WebOutcome> {
    let mut connection = Try::connect(at, Some(size), over)?;
    let info = connection.info()?;
    if handshake_mss(&info) + tcp_header(at) < size {
        // The server, or what the kernel has learned meanwhile, allows no such segment.
        return Ok(WebOutcome::Smaller);
    }
    let mss = info.mss().unwrap_or(0);
    let mut request = format!("{}X-Path: ", page.request()).into_bytes();
    request.resize(2 * mss as usize, b'x');
    if connection.0.write(&request)? < request.len() {
        return Ok(WebOutcome::Stuck);
    }
    let since = Instant::now();
    while since.elapsed() < STUCK_AFTER && !over.load(Ordering::Relaxed) {
        let info = connection.info()?;
        if info.mss().is_some_and(|now| now < mss) {
            // A router has said that they are too big.
            return Ok(WebOutcome::Smaller);
        }
        if info.packets_out() == Some(0) && info.notsent_bytes().unwrap_or_default().0 == 0 {
            return Ok(match info.state() {
                Some(ESTABLISHED | CLOSE_WAIT) => WebOutcome::Passes,
                _ => WebOutcome::Stuck,
            });
        }
        std::thread::sleep(LOOK);
    }
    Ok(WebOutcome::Stuck)
}

/// Has a page come from the server.
fn pull(at: SocketAddr, size: u32, page: &WebPage, over: &AtomicBool) -> Result<WebOutcome> {
    let mut connection = Try::connect(at, Some(size), over)?;
    let mut passes = false;
    let got = connection.fetch(page, |got, info| {
        let segment = info.rcv_mss().unwrap_or(0) + options(info) + tcp_header(at);
        passes = segment >= size && got > 0;
        passes || over.load(Ordering::Relaxed)
    })?;
    Ok(match passes {
        true => WebOutcome::Passes,
        // As much as was there when the page was fetched in small segments.
        false if got as u32 + tcp_header(at) >= size => WebOutcome::Smaller,
        false => WebOutcome::Stuck,
    })
}

/// `TCP_ESTABLISHED` and the state after the server has closed its side (`net/tcp_states.h`).
const ESTABLISHED: u8 = 1;
const CLOSE_WAIT: u8 = 8;

/// A connection that is tried.
struct Try(TcpStream);

impl Try {
    /// Connects, with an MSS for packets of this size.
    fn connect(at: SocketAddr, size: Option<u32>, over: &AtomicBool) -> Result<Try> {
        let socket = sys::socket::tcp(&at).context("cannot open a TCP socket")?;
        if let Some(size) = size {
            let mss = size.saturating_sub(tcp_header(at));
            sys::socket::set(socket.as_fd(), sys::socket::MSS, mss.cast_signed())
                .context("cannot set the MSS")?;
        }
        let cannot = |why| Refusal::unreachable(format!("{at} cannot be reached: {why}"));
        sys::probe::begin_connect(socket.as_fd(), &at).map_err(cannot)?;
        let stream = TcpStream::from(socket);
        stream.set_nodelay(true)?;
        sys::socket::set_lost_after(stream.as_fd(), CONNECT)?;
        let (connection, since) = (Try(stream), Instant::now());
        loop {
            if let Some(error) = sys::probe::take_error(connection.0.as_fd())? {
                bail!(cannot(error));
            }
            if connection.info()?.state() == Some(ESTABLISHED) {
                return Ok(connection);
            }
            if since.elapsed() > CONNECT || over.load(Ordering::Relaxed) {
                bail!(Refusal::unreachable(format!(
                    "{at} did not answer: is a web server there?"
                )));
            }
            std::thread::sleep(LOOK);
        }
    }

    fn info(&self) -> Result<model::SocketState> {
        Ok(observe::tcp_info(self.0.as_fd())?)
    }

    /// Bytes of a page with its header, as far as they come before `enough`.
    fn fetch(
        &mut self,
        page: &WebPage,
        mut enough: impl FnMut(usize, &model::SocketState) -> bool,
    ) -> Result<usize> {
        let request = format!("{}\r\n", page.request());
        self.0.write_all(request.as_bytes())?;
        let mut room = vec![0; 64 * 1024];
        let (mut got, mut since, mut ended) = (0, Instant::now(), false);
        while !ended && got < MOST && since.elapsed() < STUCK_AFTER {
            match self.0.read(&mut room) {
                Ok(more @ 1..) => (got, since) = (got + more, Instant::now()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(LOOK),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => ended = true,
            }
            if enough(got, &self.info()?) {
                break;
            }
        }
        Ok(got)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_pages() {
        let page = |name: &str, port, path: &str| {
            Some(WebPage {
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
            assert_eq!(WebPage::of(text).unwrap(), expected, "{text}");
        }
        for bad in [
            "https://db2/",
            "http://",
            "http://:80/",
            "http://db2:x/",
            "http://db2/a b",
        ] {
            assert!(WebPage::of(bad).is_err(), "{bad}");
        }
    }

    fn end(device_mtu: u32) -> PathEnd {
        PathEnd {
            address: Some([192, 0, 2, 1].into()),
            ..server(device_mtu)
        }
    }

    fn climbed(ceiling: u32, passes: u32) -> Climb {
        Climb {
            ceiling,
            passes: Some(passes),
            confirmed: true,
            ..Climb::default()
        }
    }

    #[test]
    fn what_was_not_tried_is_not_clear_and_a_page_in_smaller_segments_is_the_senders() {
        let cause = |mtu, climb, smaller| back_way(&end(mtu), climb, smaller).verdict.cause;
        assert_eq!(cause(1500, climbed(1500, 1500), false), MtuCause::Clear);
        assert_eq!(cause(1500, climbed(1400, 1400), false), MtuCause::NotTried);
        assert_eq!(cause(1500, climbed(1500, 1400), false), MtuCause::Somewhere);
        assert_eq!(
            cause(1500, climbed(1500, 1400), true),
            MtuCause::SenderStops
        );
        let by_sender = back_way(&end(1500), climbed(1500, 1400), true);
        assert_eq!(by_sender.verdict.doubts, []);
        // No TCP has larger segments.
        let loopback = cause(65_536, climbed(CEILING, CEILING), false);
        assert_ne!(loopback, MtuCause::NotTried);
        assert_eq!(
            cause(65_536, climbed(CEILING - 1, CEILING - 1), false),
            MtuCause::NotTried
        );
    }

    #[test]
    fn a_climb_ends_at_the_largest_size_with_full_segments() {
        let of = |ceiling, passes: u32, beyond: Option<WebOutcome>| {
            let (climb, smaller) = climb(ceiling, |size, _| match (size <= passes, beyond) {
                (true, _) => Ok(WebOutcome::Passes),
                (false, Some(outcome)) => Ok(outcome),
                (false, None) => bail!("it cannot even begin"),
            });
            assert_eq!(climb.ceiling, ceiling);
            (climb.passes, smaller)
        };
        assert_eq!(of(1500, 1500, None), (Some(1500), false));
        assert_eq!(of(1500, 1400, Some(WebOutcome::Stuck)), (Some(1400), false));
        assert_eq!(
            of(1500, 1400, Some(WebOutcome::Smaller)),
            (Some(1400), true)
        );
        assert_eq!(of(1500, 0, None), (None, false));
        assert_eq!(of(200, 200, None).0, Some(200), "below the floor");
    }

    #[test]
    fn a_request_names_the_page_and_its_host() {
        let page = WebPage::of("http://db2:81/big?x").unwrap().unwrap();
        let request = page.request();
        let lines: Vec<&str> = request.split("\r\n").collect();
        assert_eq!(lines[..2], ["GET /big?x HTTP/1.1", "Host: db2:81"]);
        assert!(lines.contains(&"Connection: close"));
        let usual = WebPage::of("http://db2").unwrap().unwrap().request();
        assert!(usual.contains("\r\nHost: db2\r\n"), "{usual}");
    }

    /// A server that answers each request with so many bytes, and its port.
    fn served(bytes: usize) -> u16 {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                std::thread::spawn(move || {
                    let mut asked = Vec::new();
                    let mut room = [0; 4096];
                    while !asked.ends_with(b"\r\n\r\n") {
                        match stream.read(&mut room) {
                            Ok(count @ 1..) => asked.extend_from_slice(&room[..count]),
                            _ => return,
                        }
                    }
                    let _ = stream.write_all(&vec![b'x'; bytes]);
                });
            }
        });
        port
    }

    fn page(port: u16) -> WebPage {
        WebPage::of(&format!("http://127.0.0.1:{port}/"))
            .unwrap()
            .unwrap()
    }

    #[test]
    fn a_page_is_read_to_its_end_or_as_far_as_is_enough() {
        let port = served(50_000);
        let at = SocketAddr::from(([127, 0, 0, 1], port));
        let never = AtomicBool::new(false);
        let fetched = |enough: usize| {
            let mut connection = Try::connect(at, None, &never).unwrap();
            connection
                .fetch(&page(port), |got, _| got >= enough)
                .unwrap()
        };
        assert_eq!(fetched(usize::MAX), 50_000);
        assert!((1..=50_000).contains(&fetched(1)));
        let over = AtomicBool::new(true);
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let gone = closed.local_addr().unwrap();
        drop(closed);
        let why = Try::connect(gone, None, &over).err().unwrap().to_string();
        assert!(why.contains("cannot be reached"), "{why}");
    }

    #[test]
    fn a_page_on_this_host_comes_in_segments_of_any_size() {
        let port = served(100_000);
        let at = SocketAddr::from(([127, 0, 0, 1], port));
        let never = AtomicBool::new(false);
        for size in [FLOOR, 1500, 9000] {
            let pulled = pull(at, size, &page(port), &never).unwrap();
            assert_eq!(pulled, WebOutcome::Passes, "{size}");
        }
        // A short page fills no large segment, and did not come whole in small ones.
        let short = served(1000);
        let at = SocketAddr::from(([127, 0, 0, 1], short));
        let pulled = |size| pull(at, size, &page(short), &never).unwrap();
        assert_eq!(pulled(9000), WebOutcome::Stuck);
        assert_eq!(pulled(1040), WebOutcome::Passes);
        let pushed = |size| push(at, size, &page(short), &never).unwrap();
        assert_eq!([pushed(FLOOR), pushed(1500)], [WebOutcome::Passes; 2]);
    }

    #[test]
    fn a_server_that_sends_nothing_is_named() {
        let silent = served(0);
        let at = SocketAddr::from(([127, 0, 0, 1], silent));
        let why = probe_address("db2", &page(silent), at)
            .err()
            .unwrap()
            .to_string();
        assert!(
            why.starts_with("db2: the server takes connections and sends nothing"),
            "{why}"
        );
    }
}

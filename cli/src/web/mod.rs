//! The archive in a browser: one request a connection, of which none changes anything, bounded in every way that a
//! client could make large. What a request may be is decided in `wire::http`, what is answered in [`site`].

mod folder;
mod site;

pub use folder::write_all;
pub use site::{HTML, METRICS, Site, SiteAnswer};

use crate::prelude::*;
use engine::transport::acceptor::{Acceptor, AcceptorLimits, Arrival, Slots, WhenFull};
use std::io::{self, Read};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use wire::http::{self, Status};

/// For a whole request to come.
const REQUEST: Duration = Duration::from_secs(5);

/// For a whole capture to come.
const FILE: Duration = Duration::from_secs(300);

/// For a whole answer to go.
const ANSWER: Duration = Duration::from_secs(30);

/// For the client to close once it has the answer.
const CLOSING: Duration = Duration::from_secs(1);

/// Connections at once; a browser opens six. More wait until one of them ends, within seconds.
const MOST: usize = 16;

/// Between two looks at the wish to stop.
const LOOK: Duration = Duration::from_millis(200);

/// What answers requests.
pub trait Answers: Send + Sync + 'static {
    /// Whatever is asked, there is an answer.
    fn answer(&self, request: &http::HttpRequest) -> SiteAnswer;

    /// The answer to a file that a client puts, which `receive` writes.
    fn put(
        &self,
        _request: &http::HttpRequest,
        _receive: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> SiteAnswer {
        SiteAnswer::of(Status::NotFound)
    }
}

/// Listens there, and names who can read what is answered: all who can reach it.
pub fn listen(address: SocketAddr, option: &str, what: &str) -> Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address).map_err(|e| {
        Refusal::usage(format!(
            "cannot listen on {address}: {e}; name another address and port with {option}"
        ))
    })?;
    let address = listener
        .local_addr()
        .context("cannot read where it listens")?;
    if !address.ip().is_loopback() {
        out::note(&format!(
            "linerate: all who can reach {address} can read {what}: there is no password, and nothing is encrypted"
        ));
    }
    Ok((listener, address))
}

/// Answers until `stop`.
pub fn serve(listener: &TcpListener, site: impl Answers, stop: &AtomicBool) -> Result<()> {
    let failed = "cannot take connections from browsers";
    listener.set_nonblocking(true).context(failed)?;
    let site = Arc::new(site);
    // The request is read, under a deadline of its own, by the connection's thread.
    let limits = AcceptorLimits {
        prefix: 0,
        within: REQUEST,
        when_full: WhenFull::Wait,
        only: None,
    };
    let mut acceptor = Acceptor::new([listener], limits, Slots::new(MOST, MOST));
    while !stop.load(Ordering::Relaxed) {
        for arrival in acceptor.poll(LOOK).context(failed)? {
            let Arrival::Ready(mut conn) = arrival else {
                continue;
            };
            let site = Arc::clone(&site);
            // Without a thread the connection is closed, and the next one tries again.
            let _ = sys::spawn("web", move || {
                // A browser that goes away in the middle of an answer does not want it.
                let _ = talk(&mut conn.stream, &*site);
                drop(conn);
            });
        }
    }
    Ok(())
}

fn talk(stream: &mut TcpStream, site: &impl Answers) -> io::Result<()> {
    let (answer, head_only) = match request(stream)? {
        Ok((request, begun)) => match request.file {
            Some(length) => (
                site.put(&request, |file| receive(stream, &begun, length, file)),
                false,
            ),
            None => (site.answer(&request), request.head_only),
        },
        Err(status) => (SiteAnswer::of(status), false),
    };
    let until = Instant::now() + ANSWER;
    let bytes = answer.bytes(head_only);
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        stream.set_write_timeout(Some(left(until)?))?;
        let sent = stream.write(rest)?;
        rest = rest.get(sent..).unwrap_or_default();
    }
    // Closed with something unread, the connection would be reset, and the answer lost with it.
    stream.shutdown(Shutdown::Write)?;
    io::copy(&mut Timed::new(stream, CLOSING), &mut io::sink())?;
    Ok(())
}

/// Writes the file that comes, of which some has come.
fn receive(
    stream: &mut TcpStream,
    begun: &[u8],
    length: u64,
    file: &mut impl Write,
) -> io::Result<()> {
    let mut coming = begun.chain(Timed::new(stream, FILE)).take(length);
    match io::copy(&mut coming, file)? == length {
        true => Ok(()),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// The request that comes, with what came after its head, or what to answer instead.
fn request(stream: &mut TcpStream) -> io::Result<Result<(http::HttpRequest, Vec<u8>), Status>> {
    let mut coming = Timed::new(stream, REQUEST);
    let mut bytes = Vec::new();
    let mut more = [0; 2048];
    loop {
        match coming
            .read(&mut more)
            .map_err(|error| (error.kind(), error))
        {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => bytes.extend_from_slice(&more[..count]),
            Err((io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut, _)) => {
                return Ok(Err(Status::Timeout));
            }
            Err((_, error)) => return Err(error),
        }
        if let Some(found) = http::request(&bytes).transpose() {
            return Ok(found.map(|found| {
                let begun = bytes.split_off(found.head);
                (found, begun)
            }));
        }
    }
}

/// What comes until a moment, without a pause longer than a request may take.
struct Timed<'a> {
    stream: &'a mut TcpStream,
    until: Instant,
}

impl Timed<'_> {
    fn new(stream: &mut TcpStream, within: Duration) -> Timed<'_> {
        let until = Instant::now() + within;
        Timed { stream, until }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wait = left(self.until)?.min(REQUEST);
        self.stream.set_read_timeout(Some(wait))?;
        self.stream.read(buffer)
    }
}

/// The time until then; an error once there is none.
fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    match left.is_zero() {
        true => Err(io::ErrorKind::TimedOut.into()),
        false => Ok(left),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Hello;

    impl Answers for Hello {
        fn answer(&self, _: &http::HttpRequest) -> SiteAnswer {
            SiteAnswer::ok(HTML, "hello".to_owned())
        }
    }

    #[test]
    fn who_comes_while_all_connections_are_taken_waits_for_one() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| serve(&listener, Hello, &stop).unwrap());
            let open = || TcpStream::connect(address).unwrap();
            let mut silent: Vec<TcpStream> = (0..MOST).map(|_| open()).collect();
            let mut one = open();
            let request = format!("GET / HTTP/1.1\r\nHost: {address}\r\n\r\n");
            one.write_all(request.as_bytes()).unwrap();
            one.set_read_timeout(Some(LOOK)).unwrap();
            assert!(one.read(&mut [0]).is_err(), "no connection is free");
            silent.pop();
            let mut answer = String::new();
            one.set_read_timeout(Some(REQUEST)).unwrap();
            one.read_to_string(&mut answer).unwrap();
            assert!(answer.ends_with("hello"), "{answer}");
            drop(silent);
            stop.store(true, Ordering::Relaxed);
        });
    }
}

//! A protocol machine over a stream of bytes, for threads that block.

use anyhow::{Context, Result};
use model::Nanos;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TryRecvError, TrySendError};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use sys::poll::{PollFd, Waker, poll};
use wire::control::{self, Agent, Controller, Fault, MAX_EVENTS, Machine, Role};

/// The controller's end.
pub type ControllerChannel = Channel<Controller>;

/// The agent's end.
pub type AgentChannel = Channel<Agent>;

/// Messages that may wait for the driving thread; a further one makes its sender wait.
const INBOX: usize = 64;

/// No more messages are taken while so many bytes wait for the peer to read.
const ENOUGH_WAITING: usize = 256 << 10;

/// A peer that takes none of the bytes that wait for it for so long is lost, even if it still talks.
const STALL: Duration = Duration::from_secs(10);

/// For the last bytes once a session is over.
const PARTING: Duration = Duration::from_secs(1);

/// What a channel drives: bytes both ways that never block.
pub trait ByteStream: Send {
    /// The files to wait for: for reading, and for writing too if `write`.
    fn wait_for(&self, read: bool, write: bool) -> Vec<PollFd<'_>>;
    /// Bytes that came; zero at the end.
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize>;
    /// Takes some of the bytes.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;
    /// Sends what it took; `false` while some of it waits.
    fn flush(&mut self) -> io::Result<bool>;
    /// Tells the peer that no more comes.
    fn finish(&mut self);
    /// What the end or error of the stream means, as a whole sentence, where it knows better than
    /// "closed the connection" and better than the error's own words.
    fn explain(&mut self, error: Option<&io::Error>) -> Option<String>;
}

/// What happens on a channel.
#[derive(Clone, Debug, PartialEq)]
pub enum Event<M> {
    /// The peer said this.
    Message(M),
    /// The session is over. Every further [`Channel::recv`] says the same.
    Ended(Ended),
}

/// How a session ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Either end said good-bye; an agent may have said why.
    Closed {
        /// The peer, as its sentences begin.
        peer: String,
        /// The agent's sentence.
        why: Option<String>,
    },
    /// It broke: a whole sentence that names the peer.
    Lost(String),
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Ended::Closed {
                peer,
                why: Some(why),
            } => write!(f, "{peer} ended the session: {why}"),
            Ended::Closed { peer, why: None } => write!(f, "the session with {peer} was ended"),
            Ended::Lost(sentence) => f.write_str(sentence),
        }
    }
}

/// One end of a control connection. A thread of its own reads, writes and keeps it alive, so the
/// owner may block as long as it likes. Dropping it says good-bye.
pub struct Channel<R: Role> {
    sender: Sender<R>,
    events: Receiver<R::In>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    peer: String,
    version: String,
}

struct Shared {
    waker: Waker,
    closing: AtomicBool,
    farewell: OnceLock<String>,
    ended: OnceLock<Ended>,
}

/// Sends on a channel from any thread.
pub struct Sender<R: Role> {
    inbox: SyncSender<R::Out>,
    shared: Arc<Shared>,
}

impl<R: Role> Clone for Sender<R> {
    fn clone(&self) -> Sender<R> {
        Sender {
            inbox: self.inbox.clone(),
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<R: Role> Sender<R> {
    /// Sends as soon as the stream takes it. Waits while too much is waiting already.
    ///
    /// # Errors
    /// How the session ended, if it did.
    pub fn send(&self, message: R::Out) -> Result<(), Ended> {
        let sent = self.inbox.send(message);
        self.shared.waker.wake();
        sent.map_err(|_| self.shared.ended())
    }

    /// Ends the session from any thread; an agent says `why`.
    pub fn close(&self, why: &str) {
        let _ = self.shared.farewell.set(why.to_owned());
        self.shared.closing.store(true, Ordering::Release);
        self.shared.waker.wake();
    }
}

impl Shared {
    /// How it ended, asked once the driving thread has gone.
    fn ended(&self) -> Ended {
        let gone = || Ended::Lost("the thread of the control connection failed".to_owned());
        self.ended.get().cloned().unwrap_or_else(gone)
    }
}

impl<R: Role> Channel<R> {
    /// Greets over `stream` and waits for the greeting of the peer, at most `patience` and only
    /// until `stop`. `peer` begins the sentences about it.
    ///
    /// # Errors
    /// A sentence if the greeting does not come or is of another version.
    pub fn start(
        stream: Box<dyn ByteStream>,
        peer: &str,
        patience: Duration,
        stop: Option<&AtomicBool>,
    ) -> Result<Channel<R>> {
        let shared = Arc::new(Shared {
            waker: Waker::new().context("cannot start a control connection")?,
            closing: AtomicBool::new(false),
            farewell: OnceLock::new(),
            ended: OnceLock::new(),
        });
        let (inbox, messages) = mpsc::sync_channel(INBOX);
        let (tell, events) = mpsc::sync_channel(MAX_EVENTS);
        let (ready, greeted) = mpsc::sync_channel(1);
        let driver: Driver<R> = Driver {
            machine: Machine::new(Nanos(0), super::VERSION, Nanos::from(patience)),
            stream,
            start: Instant::now(),
            messages,
            tell,
            ready,
            shared: Arc::clone(&shared),
            peer: peer.to_owned(),
            unsent: Vec::new(),
            stalled: None,
        };
        let thread = std::thread::Builder::new()
            .name("control".to_owned())
            .spawn(move || driver.run())
            .context("cannot start the thread of a control connection")?;
        let mut channel = Channel {
            sender: Sender {
                inbox,
                shared: Arc::clone(&shared),
            },
            events,
            shared,
            thread: Some(thread),
            peer: peer.to_owned(),
            version: String::new(),
        };
        loop {
            match greeted.recv_timeout(Duration::from_millis(100)) {
                Ok(version) => {
                    channel.version = version;
                    return Ok(channel);
                }
                Err(RecvTimeoutError::Disconnected) => {
                    anyhow::bail!("{}", channel.shared.ended());
                }
                Err(RecvTimeoutError::Timeout) => {
                    if stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                        return Err(crate::exit::Refusal::interrupted(format!(
                            "stopped while waiting for {peer}"
                        ))
                        .into());
                    }
                }
            }
        }
    }

    /// The peer, as its sentences begin.
    pub fn peer(&self) -> &str {
        &self.peer
    }

    /// Version of linerate at the other end.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// A sender for other threads.
    pub fn sender(&self) -> Sender<R> {
        self.sender.clone()
    }

    /// The next event, waiting at most `timeout` for it; `None` after that time.
    pub fn recv(&self, timeout: Duration) -> Option<Event<R::In>> {
        match self.events.recv_timeout(timeout) {
            Ok(message) => Some(Event::Message(message)),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Event::Ended(self.shared.ended())),
        }
    }
}

impl<R: Role> Drop for Channel<R> {
    fn drop(&mut self) {
        self.sender.close("");
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The thread of a channel.
struct Driver<R: Role> {
    machine: Machine<R>,
    stream: Box<dyn ByteStream>,
    start: Instant,
    messages: Receiver<R::Out>,
    tell: SyncSender<R::In>,
    ready: SyncSender<String>,
    shared: Arc<Shared>,
    peer: String,
    unsent: Vec<u8>,
    /// Since when nothing of `unsent` was taken.
    stalled: Option<Instant>,
}

impl<R: Role> Driver<R> {
    fn run(mut self) {
        let ended = loop {
            match self.turn() {
                Ok(None) => {}
                Ok(Some(ended)) => break ended,
                Err(sentence) => break Ended::Lost(sentence),
            }
        };
        let _ = self.shared.ended.set(ended);
        // Whoever waits for an event or to send learns it now; the last bytes take their time.
        let Driver {
            mut machine,
            mut stream,
            mut unsent,
            ..
        } = self;
        if let Some(bytes) = machine.poll_output() {
            unsent.extend(bytes);
        }
        part(stream.as_mut(), &unsent);
    }

    /// Writes what waits, waits for something to happen, reads, and passes the time.
    fn turn(&mut self) -> Result<Option<Ended>, String> {
        self.take_messages()?;
        let wants_write = self.write()?;
        if let Some(ended) = self.events() {
            return Ok(Some(ended));
        }
        let until = self.machine.deadline().map(|at| at.since(self.now()));
        let mut fds = self.stream.wait_for(true, wants_write);
        fds.push(PollFd::new(
            std::os::fd::AsFd::as_fd(&self.shared.waker),
            true,
            false,
        ));
        let waited = poll(&mut fds, until.map(Duration::from));
        drop(fds);
        waited.map_err(|e| format!("{}: cannot wait for it: {e}", self.peer))?;
        self.shared.waker.clear();
        self.read()?;
        let now = self.now();
        self.machine.on_timeout(now);
        Ok(self.events())
    }

    fn now(&self) -> Nanos {
        Nanos::from(self.start.elapsed())
    }

    fn take_messages(&mut self) -> Result<(), String> {
        // Before the greeting there is nothing to say; messages wait.
        while self.unsent.len() < ENOUGH_WAITING {
            match self.messages.try_recv() {
                Ok(message) => {
                    let now = self.now();
                    let sent = self.machine.send(now, &message);
                    sent.map_err(|fault| format!("{}: this host {fault}", self.peer))?;
                    if let Some(bytes) = self.machine.poll_output() {
                        self.unsent.extend(bytes);
                    }
                }
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
            }
        }
        // What was sent before the close goes first.
        if self.shared.closing.load(Ordering::Acquire) && self.unsent.len() < ENOUGH_WAITING {
            self.machine
                .bye(self.shared.farewell.get().map_or("", String::as_str));
        }
        Ok(())
    }

    /// Whether something waits still.
    fn write(&mut self) -> Result<bool, String> {
        // What waits beyond that waits in the machine, which counts it.
        if self.unsent.len() < ENOUGH_WAITING
            && let Some(bytes) = self.machine.poll_output()
        {
            self.unsent.extend(bytes);
        }
        let before = self.unsent.len();
        let written = push(self.stream.as_mut(), &mut self.unsent);
        let waits = written.map_err(|e| self.sentence(Some(&e)))?;
        if self.unsent.is_empty() || self.unsent.len() < before {
            self.stalled = None;
        } else if self.stalled.get_or_insert_with(Instant::now).elapsed() > STALL {
            return Err(format!("{} does not read what it is sent", self.peer));
        }
        Ok(waits)
    }

    fn read(&mut self) -> Result<(), String> {
        let mut buffer = [0; 16 << 10];
        // A peer that never stops does not keep us from writing and from passing the time.
        for _ in 0..16 {
            match self.stream.read(&mut buffer) {
                Ok(0) => {
                    // Its last words may tell more than the end of the stream.
                    if !self.machine.is_over() {
                        return Err(self.sentence(None));
                    }
                    return Ok(());
                }
                Ok(n) => {
                    let now = self.now();
                    self.machine.input(now, &buffer[..n]);
                    if self.machine.is_over() {
                        return Ok(());
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(self.sentence(Some(&e))),
            }
        }
        self.shared.waker.wake();
        Ok(())
    }

    fn sentence(&mut self, error: Option<&io::Error>) -> String {
        let known = self.stream.explain(error);
        let peer = &self.peer;
        known.unwrap_or_else(|| match error {
            Some(error) => format!("{peer}: the control connection broke: {error}"),
            None => format!("{peer} {}", Fault::Gone),
        })
    }

    /// Hands out what the machine tells; the end, if that is among it.
    fn events(&mut self) -> Option<Ended> {
        while let Some(event) = self.machine.poll_event() {
            match event {
                control::Event::Ready { version } => {
                    let _ = self.ready.try_send(version);
                }
                control::Event::Message(message) => {
                    if let Err(TrySendError::Full(_)) = self.tell.try_send(message) {
                        let fault = Fault::Backlog("too many messages wait to be read");
                        return Some(Ended::Lost(format!("{} {fault}", self.peer)));
                    }
                }
                control::Event::Closed { why } => {
                    let why = why.filter(|why| !why.is_empty());
                    let peer = self.peer.clone();
                    return Some(Ended::Closed { peer, why });
                }
                control::Event::Lost(fault) => {
                    return Some(Ended::Lost(format!("{} {fault}", self.peer)));
                }
            }
        }
        None
    }
}

/// Writes as much as goes without waiting. Whether something waits still.
fn push(stream: &mut dyn ByteStream, unsent: &mut Vec<u8>) -> io::Result<bool> {
    let mut taken = 0;
    let result = loop {
        if taken == unsent.len() {
            break stream.flush().map(|all| !all);
        }
        match stream.write(&unsent[taken..]) {
            Ok(0) => break Err(ErrorKind::WriteZero.into()),
            Ok(n) => taken += n,
            Err(e) if e.kind() == ErrorKind::WouldBlock => break Ok(true),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => break Err(e),
        }
    };
    unsent.drain(..taken);
    result
}

/// Sends the last bytes, if the peer takes them within [`PARTING`].
fn part(stream: &mut dyn ByteStream, unsent: &[u8]) {
    let mut unsent = unsent.to_vec();
    let until = Instant::now() + PARTING;
    while let Ok(true) = push(stream, &mut unsent) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        let mut fds = stream.wait_for(false, true);
        if poll(&mut fds, Some(left)).is_err() {
            break;
        }
    }
    stream.finish();
}

#[cfg(test)]
mod tests {
    use super::super::child::Line;
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use wire::control::{PROTOCOL, ToAgent, encode_frame};

    const SOON: Duration = Duration::from_secs(30);

    fn greeting() -> Vec<u8> {
        let hello = ToAgent::Hello {
            protocol: PROTOCOL,
            version: "0.0.1".to_owned(),
        };
        encode_frame(&hello).unwrap()
    }

    /// An agent's channel, and the other end of its stream.
    fn agent(says: &[u8]) -> (Result<AgentChannel>, UnixStream) {
        let (near, mut far) = UnixStream::pair().unwrap();
        far.write_all(says).unwrap();
        let stream = Box::new(Line::over(near).unwrap());
        (Channel::start(stream, "the peer", SOON, None), far)
    }

    #[test]
    fn a_message_from_another_thread_goes_out_at_once_and_dropping_says_good_bye() {
        let (channel, mut far) = agent(&greeting());
        let channel = channel.unwrap();
        assert_eq!(channel.version(), "0.0.1");
        let mut read = || {
            let mut len = [0; 4];
            far.read_exact(&mut len).unwrap();
            let mut frame = vec![0; u32::from_be_bytes(len) as usize];
            far.read_exact(&mut frame).unwrap();
            String::from_utf8(frame).unwrap()
        };
        assert!(read().contains("hello"));
        let sender = channel.sender();
        let why = "enough";
        std::thread::spawn(move || sender.close(why))
            .join()
            .unwrap();
        assert!(read().contains("enough"));
        assert!(matches!(
            channel.recv(SOON),
            Some(Event::Ended(Ended::Closed { .. }))
        ));
        drop(channel);
        assert_eq!(far.read(&mut [0; 1]).unwrap(), 0);
    }

    #[test]
    fn whoever_talks_and_never_reads_is_lost() {
        let (channel, mut far) = agent(&greeting());
        let channel = channel.unwrap();
        let pings = encode_frame(&ToAgent::Ping { number: 1 })
            .unwrap()
            .repeat(1000);
        far.set_write_timeout(Some(SOON)).unwrap();
        // Until it is hung up upon.
        while far.write_all(&pings).is_ok() {}
        match channel.recv(SOON) {
            Some(Event::Ended(Ended::Lost(said))) => assert!(said.contains("read"), "{said}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_stream_that_ends_or_never_greets_is_named() {
        let (near, far) = UnixStream::pair().unwrap();
        drop(far);
        let stream = Box::new(Line::over(near).unwrap());
        let gone: Result<AgentChannel> = Channel::start(stream, "the peer", SOON, None);
        let said = gone.err().unwrap().to_string();
        assert!(said.starts_with("the peer"), "{said}");

        let (near, _far) = UnixStream::pair().unwrap();
        let stream = Box::new(Line::over(near).unwrap());
        let brief = Duration::from_millis(20);
        let mute: Result<AgentChannel> = Channel::start(stream, "the peer", brief, None);
        let said = mute.err().unwrap().to_string();
        assert!(said.contains("did not greet within 20.0 ms"), "{said}");
    }
}

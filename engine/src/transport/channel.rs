//! A control connection with a thread that drives it, for owners that block.

use super::driver::{Broken, ByteStream, Driver};
use crate::prelude::*;
use std::sync::OnceLock;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError};
use sys::poll::Waker;
use wire::Machine;
use wire::control::{self, AgentRole, ControlRole, ControllerRole, Endpoint, Fault, MAX_EVENTS};

/// The controller's end.
pub type ControllerChannel = Channel<ControllerRole>;

/// The agent's end.
pub type AgentChannel = Channel<AgentRole>;

/// Messages that may wait for the driving thread; a further one makes its sender wait.
const INBOX: usize = 64;

/// What happens on a channel.
#[derive(Clone, Debug, PartialEq)]
pub enum ChannelEvent<M> {
    /// The peer said this.
    Message(M),
    /// The session is over. Every further [`Channel::recv`] says the same.
    Ended(ChannelEnd),
}

/// How a session ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChannelEnd {
    /// Either end said good-bye; an agent may have said why.
    Closed {
        /// The peer, as its sentences begin.
        peer: String,
        /// The agent's sentence.
        why: Option<String>,
    },
    /// It broke: a whole sentence that names the peer.
    Lost(String),
    /// It never began: the peer, as its sentences begin, has too many sessions, and room again after this time.
    Busy(String, Nanos),
}

impl std::fmt::Display for ChannelEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ChannelEnd::Closed { peer, why } => match why {
                Some(why) => write!(f, "{peer} ended the session: {why}"),
                None => write!(f, "the session with {peer} was ended"),
            },
            ChannelEnd::Lost(sentence) => f.write_str(sentence),
            ChannelEnd::Busy(peer, again) => write!(f, "{peer} {}", Fault::Busy(*again)),
        }
    }
}

impl std::error::Error for ChannelEnd {}

/// One end of a control connection. A thread of its own reads, writes and keeps it alive, so the
/// owner may block as long as it likes. Dropping it says good-bye.
pub struct Channel<R: ControlRole> {
    sender: ChannelSender<R>,
    events: Receiver<R::In>,
    thread: Option<JoinHandle<()>>,
    peer: String,
    version: String,
}

struct ChannelShared {
    waker: Waker,
    closing: AtomicBool,
    farewell: OnceLock<String>,
    ended: OnceLock<ChannelEnd>,
}

/// Sends on a channel from any thread.
pub struct ChannelSender<R: ControlRole> {
    inbox: SyncSender<R::Out>,
    shared: Arc<ChannelShared>,
}

impl<R: ControlRole> Clone for ChannelSender<R> {
    fn clone(&self) -> ChannelSender<R> {
        let (inbox, shared) = (self.inbox.clone(), Arc::clone(&self.shared));
        ChannelSender { inbox, shared }
    }
}

impl<R: ControlRole> ChannelSender<R> {
    /// Sends as soon as the stream takes it. Waits while too much is waiting already.
    ///
    /// # Errors
    /// How the session ended, if it did.
    pub fn send(&self, message: R::Out) -> Result<(), ChannelEnd> {
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

impl ChannelShared {
    /// How it ended, asked once the driving thread has gone.
    fn ended(&self) -> ChannelEnd {
        let gone = || ChannelEnd::Lost("the thread of the control connection failed".to_owned());
        self.ended.get().cloned().unwrap_or_else(gone)
    }
}

impl<R: ControlRole> Channel<R> {
    /// Greets over `stream` and waits for the greeting of the peer, at most `patience` and only
    /// until `stop`. `peer` begins the sentences about it.
    pub fn start(
        stream: Box<dyn ByteStream>,
        peer: &str,
        patience: Duration,
        stop: Option<&AtomicBool>,
    ) -> Result<Channel<R>> {
        let shared = Arc::new(ChannelShared {
            waker: Waker::new().context("cannot start a control connection")?,
            closing: AtomicBool::new(false),
            farewell: OnceLock::new(),
            ended: OnceLock::new(),
        });
        let (inbox, messages) = mpsc::sync_channel(INBOX);
        let (inbound, events) = mpsc::sync_channel(MAX_EVENTS);
        let (ready, greeted) = mpsc::sync_channel(1);
        let machine = Endpoint::new(Nanos(0), super::VERSION, Nanos::from(patience));
        let driver: ChannelThread<R> = ChannelThread {
            driver: Driver::new(machine, stream),
            messages,
            inbound,
            ready,
            shared: Arc::clone(&shared),
            peer: peer.to_owned(),
        };
        let thread = sys::spawn("control", move || driver.run())
            .context("cannot start the thread of a control connection")?;
        let mut channel = Channel {
            sender: ChannelSender { inbox, shared },
            events,
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
                Err(RecvTimeoutError::Disconnected) => bail!(channel.sender.shared.ended()),
                Err(RecvTimeoutError::Timeout) => {
                    if stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                        let why = format!("stopped while waiting for {peer}");
                        bail!(Refusal::interrupted(why));
                    }
                }
            }
        }
    }

    /// The peer, as its sentences begin.
    pub fn peer(&self) -> &str {
        &self.peer
    }

    /// The peer's version of linerate.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// A sender for other threads.
    pub fn sender(&self) -> ChannelSender<R> {
        self.sender.clone()
    }

    /// The next event, waiting at most `timeout` for it; `None` after that time.
    pub fn recv(&self, timeout: Duration) -> Option<ChannelEvent<R::In>> {
        match self.events.recv_timeout(timeout) {
            Ok(message) => Some(ChannelEvent::Message(message)),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                Some(ChannelEvent::Ended(self.sender.shared.ended()))
            }
        }
    }
}

impl<R: ControlRole> Drop for Channel<R> {
    fn drop(&mut self) {
        self.sender.close("");
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The thread of a channel.
struct ChannelThread<R: ControlRole> {
    driver: Driver<Endpoint<R>>,
    messages: Receiver<R::Out>,
    inbound: SyncSender<R::In>,
    ready: SyncSender<String>,
    shared: Arc<ChannelShared>,
    peer: String,
}

impl<R: ControlRole> ChannelThread<R> {
    fn run(mut self) {
        let ended = loop {
            if let Some(ended) = self
                .turn()
                .unwrap_or_else(|why| Some(ChannelEnd::Lost(why)))
            {
                break ended;
            }
        };
        let _ = self.shared.ended.set(ended);
        // Whoever waits for an event or to send learns it now; the last bytes take their time.
        let mut driver = self.driver;
        drop((self.messages, self.inbound, self.ready));
        driver.send_all();
        driver.stream.finish();
    }

    fn turn(&mut self) -> Result<Option<ChannelEnd>, String> {
        self.take_messages()?;
        if let Some(ended) = self.events() {
            return Ok(Some(ended));
        }
        let turned = self.driver.turn(Some(&self.shared.waker), None);
        // Its last words may say more than the end of the stream.
        let ended = self.events();
        match turned {
            Err(broken) if ended.is_none() => Err(self.sentence(&broken)),
            _ => Ok(ended),
        }
    }

    fn take_messages(&mut self) -> Result<(), String> {
        // Before the greeting there is nothing to send; messages wait.
        while self.driver.has_room()
            && let Ok(message) = self.messages.try_recv()
        {
            let now = self.driver.now();
            let sent = self.driver.machine.send(now, &message);
            sent.map_err(|fault| format!("{}: this host {fault}", self.peer))?;
        }
        // What was sent before the close goes first.
        if self.shared.closing.load(Ordering::Acquire) && self.driver.has_room() {
            let why = self.shared.farewell.get().map_or("", String::as_str);
            self.driver.machine.bye(why);
        }
        Ok(())
    }

    fn sentence(&mut self, broken: &Broken) -> String {
        let peer = &self.peer;
        let error = match broken {
            Broken::Stalled => return format!("{peer} does not read what it is sent"),
            Broken::Error(error) => Some(error),
            Broken::End => None,
        };
        let known = self.driver.stream.explain(error);
        known.unwrap_or_else(|| match error {
            Some(error) => format!("{peer}: the control connection broke: {error}"),
            None => format!("{peer} {}", Fault::Gone),
        })
    }

    /// Passes the machine's events on; the end, if that is among them.
    fn events(&mut self) -> Option<ChannelEnd> {
        while let Some(event) = self.driver.machine.poll_event() {
            match event {
                control::MachineEvent::Ready { version } => {
                    let _ = self.ready.try_send(version);
                }
                control::MachineEvent::Message(message) => {
                    if let Err(TrySendError::Full(_)) = self.inbound.try_send(message) {
                        let fault = Fault::Backlog("too many messages wait to be read");
                        return Some(ChannelEnd::Lost(format!("{} {fault}", self.peer)));
                    }
                }
                control::MachineEvent::Closed { why } => {
                    let why = why.filter(|why| !why.is_empty());
                    let peer = self.peer.clone();
                    return Some(ChannelEnd::Closed { peer, why });
                }
                control::MachineEvent::Lost(Fault::Busy(again)) => {
                    return Some(ChannelEnd::Busy(self.peer.clone(), again));
                }
                control::MachineEvent::Lost(fault) => {
                    return Some(ChannelEnd::Lost(format!("{} {fault}", self.peer)));
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::byte_stream;
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

    /// An agent's channel, and the peer's side of its stream.
    fn agent(says: &[u8]) -> (Result<AgentChannel>, UnixStream) {
        let (local, mut remote) = UnixStream::pair().unwrap();
        remote.write_all(says).unwrap();
        let stream = byte_stream(local);
        (Channel::start(stream, "the peer", SOON, None), remote)
    }

    #[test]
    fn a_message_from_another_thread_goes_out_at_once_and_dropping_says_good_bye() {
        let (channel, mut remote) = agent(&greeting());
        let channel = channel.unwrap();
        assert_eq!(channel.version(), "0.0.1");
        let mut read = || {
            let mut len = [0; 4];
            remote.read_exact(&mut len).unwrap();
            let mut frame = vec![0; u32::from_be_bytes(len) as usize];
            remote.read_exact(&mut frame).unwrap();
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
            Some(ChannelEvent::Ended(ChannelEnd::Closed { .. }))
        ));
        drop(channel);
        assert_eq!(remote.read(&mut [0; 1]).unwrap(), 0);
    }

    #[test]
    fn whoever_talks_and_never_reads_is_lost() {
        let (channel, mut remote) = agent(&greeting());
        let channel = channel.unwrap();
        let pings = encode_frame(&ToAgent::Ping { number: 1 })
            .unwrap()
            .repeat(1000);
        remote.set_write_timeout(Some(SOON)).unwrap();
        // Until it is hung up upon.
        while remote.write_all(&pings).is_ok() {}
        match channel.recv(SOON) {
            Some(ChannelEvent::Ended(ChannelEnd::Lost(said))) => {
                assert!(said.contains("read"), "{said}")
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_stream_that_ends_or_never_greets_is_named() {
        let (local, remote) = UnixStream::pair().unwrap();
        drop(remote);
        let stream = byte_stream(local);
        let gone: Result<AgentChannel> = Channel::start(stream, "the peer", SOON, None);
        let said = gone.err().unwrap().to_string();
        assert!(said.starts_with("the peer"), "{said}");

        let (local, _remote) = UnixStream::pair().unwrap();
        let stream = byte_stream(local);
        let brief = Duration::from_millis(20);
        let mute: Result<AgentChannel> = Channel::start(stream, "the peer", brief, None);
        let said = mute.err().unwrap().to_string();
        assert!(said.contains("did not greet within 20.0 ms"), "{said}");
    }
}

//! Helps for tests.

use crate::controller::PeerLink;
use crate::prelude::*;
use crate::transport::driver::ByteStream;
use crate::transport::{
    AgentChannel, Channel, ChannelEvent, ChannelSender, ControllerChannel, Reached,
};
use model::{Bulk, LegLimit, Nanos, Placement, SocketSettings, Workload};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicU32;
use wire::control::direct::{DirectAnswer, DirectRequest};
use wire::control::{AgentRole, LegOrder, ToAgent};

/// A directory that goes away with its value.
pub(crate) struct TempDir(PathBuf);

impl TempDir {
    /// A new, empty one.
    pub(crate) fn new() -> TempDir {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("linerate-test-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        TempDir(path)
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// One end of a pair of sockets, as a channel drives it.
pub(crate) fn byte_stream(socket: UnixStream) -> Box<dyn ByteStream> {
    socket.set_nonblocking(true).unwrap();
    Box::new(TcpStream::from(OwnedFd::from(socket)))
}

/// Both ends of a control connection in this process.
pub(crate) fn channels(name: &str) -> (ControllerChannel, AgentChannel) {
    let (local, remote) = UnixStream::pair().unwrap();
    let soon = Duration::from_secs(30);
    std::thread::scope(|scope| {
        let agent = scope.spawn(|| Channel::start(byte_stream(remote), "a controller", soon, None));
        let controller = Channel::start(byte_stream(local), name, soon, None);
        (controller.unwrap(), agent.join().unwrap().unwrap())
    })
}

/// A link with an agent at loopback, which is served by this until the link ends.
pub(crate) fn linked(
    name: &str,
    mut serve: impl FnMut(&ChannelSender<AgentRole>, ToAgent) + Send + 'static,
) -> PeerLink {
    let (channel, agent) = channels(name);
    std::thread::spawn(move || {
        let sender = agent.sender();
        loop {
            match agent.recv(Duration::from_secs(1)) {
                Some(ChannelEvent::Message(message)) => serve(&sender, message),
                Some(ChannelEvent::Ended(_)) => return,
                None => {}
            }
        }
    });
    PeerLink::new(Reached {
        channel,
        addresses: vec![[127, 0, 0, 1].into()],
        keys: None,
    })
}

/// A link with an agent that answers what a coordinator requests; `None` is no answer.
pub(crate) fn directed(
    name: &str,
    mut answer: impl FnMut(DirectRequest) -> Option<Result<DirectAnswer, String>> + Send + 'static,
) -> PeerLink {
    linked(name, move |sender, message| {
        if let ToAgent::Direct { number, request } = message
            && let Some(answer) = answer(request)
        {
            let _ = sender.send(ToController::Directed { number, answer });
        }
    })
}

/// Of a leg to an agent, of one stream.
pub(crate) fn leg_order(limit: LegLimit) -> LegOrder {
    LegOrder {
        leg: 0,
        agent_sends: false,
        workload: Workload::Bulk(Bulk::default()),
        streams: 1,
        limit,
        interval: Nanos::from_secs(1),
        outage: Nanos(0),
        trace: false,
        socket: SocketSettings::default(),
        placement: Placement::default(),
    }
}

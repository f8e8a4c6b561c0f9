//! The agent's side of a session: grants data connections, plays its end of each leg, reports.

use crate::grant::Grant;
use crate::leg::{inspect, role, run_end};
use crate::trust::Peer;
use crate::transport::Channel;
use anyhow::{Context, Result, anyhow, bail};
use measure::{Job, Reconnect};
use model::{Direction, EndRecord, Fingerprint, Nanos, Sample, Side, SocketState, Warning};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use sys::poll::Waker;
use wire::control::{Agent, Event, Order, ToAgent, ToController};

/// Data connections have so long to come once granted.
const GRANT_FOR: Duration = Duration::from_secs(20);
/// The controller has so long to say go once all have come.
const START_WITHIN: Duration = Duration::from_secs(60);

/// Serves one authenticated controller until it leaves, is lost, or `stop` is set. Every leg is
/// over and every data socket closed when this returns.
pub fn serve(channel: Channel<Agent>, peer: Peer, stop: &AtomicBool) -> Result<()> {
    let (post, inbox) = mpsc::channel();
    let outbox = Outbox { post, waker: channel.waker() };
    let mut session = Session { channel, peer, outbox, inbox, legs: BTreeMap::new() };
    let outcome = session.run(stop);
    for leg in session.legs.values() {
        leg.stop.store(true, Ordering::Relaxed);
    }
    for (_, leg) in std::mem::take(&mut session.legs) {
        // A leg that panicked has nothing more to say, and its sockets are closed.
        let _ = leg.thread.join();
    }
    outcome
}

struct Session {
    channel: Channel<Agent>,
    peer: Peer,
    outbox: Outbox,
    inbox: mpsc::Receiver<ToController>,
    legs: BTreeMap<u32, Playing>,
}

/// A leg of this session, in a thread of its own.
struct Playing {
    stop: Arc<AtomicBool>,
    go: mpsc::Sender<()>,
    thread: JoinHandle<()>,
}

/// Where a leg's thread leaves what is to be sent.
#[derive(Clone)]
struct Outbox {
    post: mpsc::Sender<ToController>,
    waker: Arc<Waker>,
}

impl Outbox {
    fn say(&self, message: ToController) {
        // A session that is over reads no more, and needs nothing more.
        if self.post.send(message).is_ok() {
            self.waker.wake();
        }
    }
}

impl Session {
    fn run(&mut self, stop: &AtomicBool) -> Result<()> {
        loop {
            while let Ok(message) = self.inbox.try_recv() {
                self.forget_if_over(&message);
                self.channel.send(&message)?;
            }
            if stop.load(Ordering::Relaxed) {
                let why = "the agent is shutting down; measure again when it is back".to_owned();
                self.channel.send(&ToController::Bye { why })?;
                return Ok(());
            }
            match self.channel.recv(Duration::from_millis(200))? {
                Some(Event::Message(message)) => self.take(message)?,
                Some(Event::Ready { .. }) | None => {}
                Some(Event::Closed { .. }) => return Ok(()),
                Some(Event::Lost(fault)) => bail!("{} {fault}", self.peer.name),
            }
        }
    }

    fn take(&mut self, message: ToAgent) -> Result<()> {
        match message {
            ToAgent::Open { order } => {
                let answer = self.open(order);
                self.channel.send(&answer)?;
            }
            ToAgent::Start { leg } => {
                if let Some(playing) = self.legs.get(&leg) {
                    // A leg whose thread is over has said why already.
                    let _ = playing.go.send(());
                }
            }
            ToAgent::Stop { leg } => {
                if let Some(playing) = self.legs.get(&leg) {
                    playing.stop.store(true, Ordering::Relaxed);
                }
            }
            ToAgent::Hello { .. } | ToAgent::Ping { .. } | ToAgent::Bye => {}
        }
        Ok(())
    }

    fn open(&mut self, order: Order) -> ToController {
        todo!()
    }

    fn forget_if_over(&mut self, message: &ToController) {
        if let ToController::Finished { leg, .. } | ToController::Failed { leg, .. } = message
            && let Some(playing) = self.legs.remove(leg)
        {
            let _ = playing.thread.join();
        }
    }
}

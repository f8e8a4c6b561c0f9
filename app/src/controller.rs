//! The controller's side: drives an agent through the legs of a run and keeps what both ends saw.

use crate::exit::Refusal;
use crate::leg::{inspect, role, run_end};
use crate::progress::{Event as Progress, Watcher};
use crate::transport::{self, Channel};
use anyhow::{Context, Result, anyhow};
use measure::{Job, Reconnect};
use model::{
    Direction, Directions, EndRecord, Ended, Fingerprint, Leg, Nanos, Run, Sample, Side,
    SocketState, Spec, Warning,
};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use sys::poll::Waker;
use wire::control::{Controller, Event, Order, Preamble, ToAgent, ToController, Token};

/// A data connection stands by then, or never will.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// How long a busy agent is waited for.
const BUSY_FOR: Duration = Duration::from_secs(120);

/// Measures `spec` against the agent at the other end of `link`; fills the legs of `run` as they
/// come, so that what was seen before an error is in it.
pub fn measure(
    link: transport::Link,
    run: &mut Run,
    watcher: &mut dyn Watcher,
    stop: &AtomicBool,
) -> Result<()> {
    let started = Instant::now();
    let (post, inbox) = mpsc::channel();
    let outbox = Outbox { post, waker: link.channel.waker() };
    let mut drive = Drive { link, started, outbox, inbox, run, watcher, stop, told_hosts: false };
    let outcome = drive.all();
    // The agent notices anyway when the connection closes; this way it knows that all is well.
    let _ = drive.link.channel.send(&ToAgent::Bye);
    outcome
}

/// What a local leg's thread tells.
enum Near {
    Connected(Vec<SocketState>, Vec<Warning>),
    Sample(Sample),
    /// The record, and why it broke if it did.
    Ended(EndRecord, Option<String>),
    /// It never began.
    Failed(anyhow::Error),
}

#[derive(Clone)]
struct Outbox {
    post: mpsc::Sender<(usize, Near)>,
    waker: Arc<Waker>,
}

impl Outbox {
    fn say(&self, index: usize, what: Near) {
        if self.post.send((index, what)).is_ok() {
            self.waker.wake();
        }
    }
}

struct Drive<'a> {
    link: transport::Link,
    started: Instant,
    outbox: Outbox,
    inbox: mpsc::Receiver<(usize, Near)>,
    run: &'a mut Run,
    watcher: &'a mut dyn Watcher,
    stop: &'a AtomicBool,
    told_hosts: bool,
}

/// A leg under way.
struct Flying {
    leg: Leg,
    stop: Arc<AtomicBool>,
    go: Option<mpsc::Sender<()>>,
    near: Progressing,
    far: Progressing,
    ask_again: Option<Instant>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Progressing {
    Opening,
    Connected,
    Over,
}

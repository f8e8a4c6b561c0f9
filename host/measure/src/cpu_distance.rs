//! Where the threads of a load run, if nobody placed them.

use crate::stream::LoadStream;
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use sys::{sched, socket};

/// Keeps a thread off the processor on which the kernel works to feed it.
///
/// On loopback that is the peer's own: both then take turns instead of working side by side, and a
/// scheduler that sees them wake each other keeps them together. Only one end may move, or both
/// meet again: the end that receives or answers.
pub(crate) struct Distance<'a> {
    stream: &'a LoadStream<'a>,
    cpus: Vec<u32>,
}

impl<'a> Distance<'a> {
    pub(crate) fn new(stream: &'a LoadStream<'a>) -> Distance<'a> {
        let cpus = if stream.job.cpus.is_empty() {
            sched::allowed_cpus().unwrap_or_default()
        } else {
            Vec::new()
        };
        Distance { stream, cpus }
    }

    /// Moves away if the thread runs where it is fed, and there are processors enough: at most half
    /// as many busy threads in this process, and no more runnable ones on the whole host. On a
    /// crowded host the thread may run anywhere again, since waiting for a processor costs more.
    pub(crate) fn apply_if_room(&self) {
        if self.cpus.len() < 2 * Busy::threads() || self.cpus.len() < runnable() {
            let _ = sched::run_on(&self.cpus);
        } else {
            self.apply();
        }
    }

    /// Moves away if the thread runs where it is fed.
    pub(crate) fn apply(&self) {
        let fed_on = socket::get(self.stream.fd(), socket::INCOMING_CPU).ok();
        let fed_on = fed_on.and_then(|cpu| u32::try_from(cpu).ok());
        if fed_on.is_some() && fed_on == sched::current_cpu() {
            let others = self.cpus.iter().copied().filter(|c| Some(*c) != fed_on);
            // Without it the load is slower and as right. Fails where there is no other.
            let _ = sched::run_on(&others.collect::<Vec<_>>());
        }
    }
}

/// Threads of the whole host that run or could (proc(5), `/proc/loadavg`); a crowd if unreadable.
fn runnable() -> usize {
    let parse = |text: String| -> Option<usize> {
        let (running, _) = text.split_whitespace().nth(3)?.split_once('/')?;
        running.parse().ok()
    };
    fs::read_to_string("/proc/loadavg")
        .ok()
        .and_then(parse)
        .unwrap_or(usize::MAX)
}

/// Counts the threads of this process that move bulk data.
pub(crate) struct Busy(());

static BUSY: AtomicUsize = AtomicUsize::new(0);

impl Busy {
    pub(crate) fn count() -> Busy {
        BUSY.fetch_add(1, Ordering::Relaxed);
        Busy(())
    }

    fn threads() -> usize {
        BUSY.load(Ordering::Relaxed)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        BUSY.fetch_sub(1, Ordering::Relaxed);
    }
}

//! Where the threads of a load run, if the user placed them nowhere.

use crate::prelude::*;
use std::fs;
use std::sync::atomic::AtomicUsize;
use std::thread;
use sys::sched;

/// Places the thread that receives or answers beside the processor on which the kernel works to feed it, or on it.
///
/// On loopback that is the sender's own. With a processor for each, both take turns there instead of working side by
/// side, and a scheduler that sees them wake each other keeps them together: so the thread moves away. Only one end may
/// move, or both meet again. Where a load keeps all processors busy, what is read where it arrived is still in that
/// processor's cache: so the thread moves there.
pub(crate) struct CpuPlacement<'a> {
    stream: &'a LoadStream<'a>,
    cpus: Vec<u32>,
    gave_way: bool,
}

impl<'a> CpuPlacement<'a> {
    pub(crate) fn new(stream: &'a LoadStream<'a>) -> CpuPlacement<'a> {
        let cpus = if stream.job.cpus.is_empty() {
            sched::allowed_cpus().unwrap_or_default()
        } else {
            Vec::new()
        };
        CpuPlacement {
            stream,
            cpus,
            gave_way: false,
        }
    }

    /// Follows the load: away from what feeds the thread if there are processors enough, at most half as many busy threads
    /// in this process and no more runnable ones on the whole host; to it if this process keeps all of them busy; else,
    /// since waiting for a processor costs more, anywhere.
    pub(crate) fn follow(&self) {
        if self.is_full() {
            self.move_near();
        } else if self.cpus.len() < 2 * Busy::threads() || self.cpus.len() < runnable() {
            let _ = sched::run_on(&self.cpus);
        } else {
            self.move_away();
        }
    }

    /// Where this process has a busy thread for each processor, lets others run, so that a reader on the same processor
    /// takes what was written before it leaves the cache; and has the senders of a load with a stream for each keep to one
    /// each. Returns whether it is so.
    pub(crate) fn give_way(&mut self) -> bool {
        let full = self.is_full();
        if full != self.gave_way {
            self.gave_way = full;
            let own = self.cpus[self.stream.index % self.cpus.len()];
            let _ = match full && self.stream.sockets.len() >= self.cpus.len() {
                true => sched::run_on(&[own]),
                false => sched::run_on(&self.cpus),
            };
        }
        if full {
            thread::yield_now();
        }
        full
    }

    /// Whether this process has a busy thread for each processor.
    fn is_full(&self) -> bool {
        !self.cpus.is_empty() && Busy::threads() >= self.cpus.len()
    }

    /// Moves away if the thread runs where it is fed.
    pub(crate) fn move_away(&self) {
        let fed_on = self.fed_on(self.stream.fd());
        if fed_on.is_some() && fed_on == sched::current_cpu() {
            let others = self.cpus.iter().copied().filter(|c| Some(*c) != fed_on);
            // Without it the load is slower and as right. Fails where there is no other.
            let _ = sched::run_on(&others.collect::<Vec<_>>());
        }
    }

    /// Moves to where it is fed, unless that processor feeds more than its part of the streams: a card with one queue feeds
    /// all of them on one.
    fn move_near(&self) {
        let fed_on = self.fed_on(self.stream.fd());
        let part = self.stream.sockets.len().div_ceil(self.cpus.len());
        let others = self.stream.sockets.iter().map(|s| self.fed_on(s.as_fd()));
        let fits = others.filter(|cpu| *cpu == fed_on).count() <= part;
        let _ = match fed_on.filter(|cpu| fits && self.cpus.contains(cpu)) {
            Some(cpu) => sched::run_on(&[cpu]),
            None => sched::run_on(&self.cpus),
        };
    }

    fn fed_on(&self, socket: BorrowedFd<'_>) -> Option<u32> {
        let cpu = socket::get(socket, socket::INCOMING_CPU).ok()?;
        u32::try_from(cpu).ok()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Role;
    use crate::stream::tests::{bulk, idle, stream};
    use model::{Bytes, LegLimit};

    // No other test of this binary moves bulk data.
    #[test]
    fn a_thread_keeps_to_its_processor_while_all_are_busy() {
        let all = sched::allowed_cpus().unwrap();
        let (shared, _peers) = idle(bulk(Role::Send, LegLimit::Bytes(Bytes(1))), all.len() + 1);
        // The affinity is that of a thread.
        let kept = |index: usize, cpus: &[u32], busy: usize| {
            thread::scope(|scope| {
                let thread = scope.spawn(|| {
                    let own = stream(&shared, index);
                    let mut placement = CpuPlacement::new(&own);
                    placement.cpus = cpus.to_vec();
                    let guards: Vec<Busy> = (0..busy).map(|_| Busy::count()).collect();
                    assert_eq!(Busy::threads(), busy);
                    let full = placement.give_way();
                    let during = sched::allowed_cpus().unwrap();
                    drop(guards);
                    assert!(!placement.give_way());
                    assert_eq!(sched::allowed_cpus().unwrap(), all, "all of them again");
                    (full, during)
                });
                thread.join().unwrap()
            })
        };
        for index in [0, all.len()] {
            let own = vec![all[index % all.len()]];
            assert_eq!(kept(index, &all, all.len()), (true, own));
        }
        assert_eq!(kept(0, &all, all.len() - 1), (false, all.clone()));
        // Fewer streams than processors have no processor each.
        let many: Vec<u32> = all.iter().chain(&all).chain(&all).copied().collect();
        assert_eq!(kept(0, &many, many.len()), (true, all.clone()));
        let none: [u32; 0] = [];
        assert_eq!(kept(0, &none, 0), (false, all.clone()));
    }

    #[test]
    fn some_thread_runs_while_this_is_asked() {
        assert!((1..100_000).contains(&runnable()));
    }

    #[test]
    fn who_was_placed_by_the_user_is_placed_nowhere_else() {
        let mut job = bulk(Role::Send, LegLimit::Bytes(Bytes(1)));
        let (shared, _peers) = idle(job.clone(), 1);
        let cpus = sched::allowed_cpus().unwrap();
        assert_eq!(CpuPlacement::new(&stream(&shared, 0)).cpus, cpus);
        job.cpus = cpus;
        let (shared, _peers) = idle(job, 1);
        assert_eq!(CpuPlacement::new(&stream(&shared, 0)).cpus, [0; 0]);
    }
}

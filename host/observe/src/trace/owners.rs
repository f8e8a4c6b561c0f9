//! What the processes do that use traced sockets, read from `/proc/PID` from time to time: bounded in
//! processes and threads, so that a trace costs the same however large they are.

use model::{Bytes, Comm, Nanos, Owner};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// Between two looks.
pub(super) const PERIOD: Duration = Duration::from_millis(20);
/// Processes that are watched at once: those that used a traced socket last.
const MOST: usize = 16;
/// Threads of each; of more, the first.
const MOST_THREADS: usize = 64;
/// Looks between two at which threads are there.
const LIST_EVERY: u32 = 10;
/// A process whose sockets are silent for so long is not watched any more.
const SILENT: Nanos = Nanos::from_secs(10);

#[derive(Default)]
pub(super) struct Owners {
    known: BTreeMap<u32, Watched>,
    due: Nanos,
}

struct Watched {
    threads: BTreeMap<u32, Thread>,
    io: Option<File>,
    /// Storage that it had read and written before.
    io_before: Option<(u64, u64)>,
    /// What was told last.
    told: Owner,
    looks: u32,
    seen: Nanos,
}

struct Thread {
    stat: File,
    /// Absent where the kernel keeps no such account (CONFIG_SCHED_INFO).
    schedstat: Option<File>,
    times: Option<(u64, u64)>,
}

impl Owners {
    /// Takes note of the process that used an event's socket, by the thread of this name.
    pub(super) fn see(&mut self, pid: u32, comm: Comm, at: Nanos) {
        if let Some(known) = self.known.get_mut(&pid) {
            known.seen = at;
        } else if pid != 0 {
            if self.known.len() >= MOST {
                let oldest = self.known.iter().min_by_key(|(_, w)| w.seen);
                let oldest = oldest.map(|(pid, _)| *pid);
                oldest.and_then(|pid| self.known.remove(&pid));
            }
            self.known.insert(pid, Watched::new(pid, comm, at));
        }
    }

    /// Tells what each of them does, if it is time to look.
    pub(super) fn look(&mut self, now: Nanos, mut tell: impl FnMut(Owner)) {
        if now < self.due {
            return;
        }
        self.due = now + PERIOD.into();
        self.known.retain(|pid, process| {
            let there = process.look(*pid, now);
            if there {
                tell(process.told.clone());
            }
            there && now.since(process.seen) < SILENT
        });
    }
}

impl Watched {
    fn new(pid: u32, comm: Comm, seen: Nanos) -> Watched {
        Watched {
            threads: BTreeMap::new(),
            io: None,
            io_before: None,
            told: Owner {
                pid,
                comm,
                ..Owner::default()
            },
            looks: 0,
            seen,
        }
    }

    /// False once it is gone, or is not the process that the socket belongs to: a number means another
    /// one in another PID namespace.
    fn look(&mut self, pid: u32, now: Nanos) -> bool {
        if self.looks.is_multiple_of(LIST_EVERY) {
            self.list(pid);
            // The socket told the name of the thread that used it.
            let used = self.told.comm;
            if self.looks == 0 && !self.threads.keys().any(|tid| name(pid, *tid) == used) {
                return false;
            }
            self.told.comm = name(pid, pid);
        }
        self.looks = self.looks.wrapping_add(1);
        self.told.at = now;
        (self.told.running, self.told.blocked, self.told.asleep) = (0, 0, 0);
        let mut waits: Option<(bool, u32)> = None;
        let told = &mut self.told;
        self.threads.retain(|tid, thread| {
            let Some(state) = read(&thread.stat).as_deref().and_then(state) else {
                return false;
            };
            let blocked = state == 'D';
            match state {
                'R' => told.running += 1,
                'D' => told.blocked += 1,
                _ => told.asleep += 1,
            }
            if state != 'R' && waits.is_none_or(|(was, _)| blocked && !was) {
                waits = Some((blocked, *tid));
            }
            if let Some((ran, queued)) = thread.schedstat.as_ref().and_then(read).and_then(times) {
                let (ran_before, queued_before) = thread.times.unwrap_or((ran, queued));
                told.ran += Nanos(ran.saturating_sub(ran_before));
                told.queued += Nanos(queued.saturating_sub(queued_before));
                thread.times = Some((ran, queued));
            }
            true
        });
        self.told.waits_in = waits.map_or_else(String::new, |(_, tid)| waits_in(pid, tid));
        let moved = self.io.as_ref().and_then(read).as_deref().and_then(storage);
        let before = self.io_before.or(moved);
        self.io_before = before;
        (self.told.storage_read, self.told.storage_written) = match moved.zip(before) {
            Some((now, was)) => (
                Some(Bytes(now.0.saturating_sub(was.0))),
                Some(Bytes(now.1.saturating_sub(was.1))),
            ),
            None => (None, None),
        };
        !self.threads.is_empty()
    }

    fn list(&mut self, pid: u32) {
        if self.io.is_none() {
            self.io = File::open(format!("/proc/{pid}/io")).ok();
        }
        let Ok(there) = fs::read_dir(format!("/proc/{pid}/task")) else {
            return;
        };
        for entry in there.flatten().take(MOST_THREADS) {
            let Some(tid) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else {
                continue;
            };
            if self.threads.len() < MOST_THREADS
                && !self.threads.contains_key(&tid)
                && let Ok(stat) = File::open(entry.path().join("stat"))
            {
                let thread = Thread {
                    stat,
                    schedstat: File::open(entry.path().join("schedstat")).ok(),
                    times: None,
                };
                self.threads.insert(tid, thread);
            }
        }
    }
}

/// The file from its beginning: 512 bytes hold all that is looked at.
fn read(file: &File) -> Option<String> {
    let mut head = [0; 512];
    let n = file.read_at(&mut head, 0).ok().filter(|n| *n > 0)?;
    Some(String::from_utf8_lossy(&head[..n]).into_owned())
}

/// The letter after the name, which stands in parentheses and can hold any of them (proc_pid_stat(5)).
fn state(stat: &str) -> Option<char> {
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Nanoseconds on a processor, and ready for one (Documentation/scheduler/sched-stats.rst).
fn times(schedstat: String) -> Option<(u64, u64)> {
    let mut words = schedstat.split_whitespace().map(str::parse);
    Some((words.next()?.ok()?, words.next()?.ok()?))
}

/// Bytes read from and written to storage (proc_pid_io(5)).
fn storage(io: &str) -> Option<(u64, u64)> {
    let field = |name: &str| {
        let line = io.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|value| value.trim().parse().ok())
    };
    Some((field("read_bytes:")?, field("write_bytes:")?))
}

fn name(pid: u32, tid: u32) -> Comm {
    let name = fs::read(format!("/proc/{pid}/task/{tid}/comm")).unwrap_or_default();
    Comm::new(name.strip_suffix(b"\n").unwrap_or(&name))
}

/// Empty where that may not be read, or it waits no more.
fn waits_in(pid: u32, tid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/task/{tid}/wchan")).unwrap_or_default();
    let name = name.trim_end();
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
    match name != "0" && name.len() <= 64 && name.chars().all(is_name) {
        true => name.to_owned(),
        false => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};
    use std::time::Instant;

    #[test]
    fn files_of_proc() {
        assert_eq!(state("845 (a) D) S 1 845"), Some('S'));
        assert_eq!(state("845"), None);
        assert_eq!(
            times("983577 1606098 7\n".to_owned()),
            Some((983_577, 1_606_098))
        );
        let io = "rchar: 6976\nread_bytes: 512\nwrite_bytes: 7\ncancelled_write_bytes: 0\n";
        assert_eq!(storage(io), Some((512, 7)));
    }

    /// Looks at a process until it is seen to do something.
    fn until(comm: &str, script: &str, done: impl Fn(&Owner) -> bool) -> Owner {
        let mut child = Command::new("bash")
            .args([
                "-c",
                &format!("printf {comm} > /proc/$$/comm; read; {script}"),
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut owners = Owners::default();
        let pid = child.id();
        let comm = Comm::new(comm.as_bytes());
        let start = Instant::now();
        let named = format!("/proc/{}/comm", child.id());
        while Comm::new(fs::read_to_string(&named).unwrap().trim().as_bytes()) != comm {
            assert!(start.elapsed().as_secs() < 20);
        }
        owners.see(pid, comm, Nanos(0));
        std::io::Write::write_all(child.stdin.as_mut().unwrap(), b"\n").unwrap();
        let mut last = None;
        while !last.as_ref().is_some_and(&done) {
            assert!(start.elapsed().as_secs() < 20, "{last:?}");
            let now = Nanos::from(start.elapsed());
            owners.see(pid, comm, now);
            owners.look(now, |owner| last = Some(owner));
            std::thread::sleep(PERIOD);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // Once it is gone it is told no more.
        owners.look(Nanos::from_secs(100), |owner| panic!("{owner:?}"));
        last.unwrap()
    }

    #[test]
    fn a_process_that_computes_and_one_that_sleeps() {
        let busy = until("burner", "while :; do :; done", |o| o.ran.0 > 50_000_000);
        assert_eq!(busy.running + busy.blocked + busy.asleep, 1, "{busy:?}");
        let idle = until("sleeper", "read", |o| o.at.0 > 200_000_000 && o.asleep == 1);
        assert!(idle.ran.0 < 50_000_000, "{idle:?}");
        assert_eq!(idle.comm.to_string(), "sleeper");
    }

    #[test]
    fn a_number_that_means_another_process_is_left_alone() {
        let mut owners = Owners::default();
        owners.see(std::process::id(), Comm::new(b"someone else"), Nanos(0));
        owners.look(Nanos(0), |owner| panic!("{owner:?}"));
        assert!(owners.known.is_empty());
    }

    #[test]
    fn no_more_are_watched_than_there_is_room_for() {
        let mut owners = Owners::default();
        for pid in 1..1000 {
            owners.see(pid, Comm::default(), Nanos(u64::from(pid)));
        }
        assert_eq!(owners.known.len(), MOST);
        assert!(owners.known.contains_key(&999));
    }
}

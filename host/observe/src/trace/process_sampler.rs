//! What the processes do that use traced sockets, read from `/proc/PID` from time to time: bounded in
//! processes and threads, so that a trace costs the same however large they are.

use crate::proc;
use model::{Bytes, Comm, Nanos, Owner};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// Between two samples: the kernel counts what a process computes and waits for meanwhile, but not where it waits.
pub(super) const PERIOD: Duration = Duration::from_millis(50);
/// Processes that are watched at once: those that used a traced socket last.
const MOST: usize = 16;
/// Threads of each; of more, the first.
const MOST_THREADS: usize = 64;
/// A process whose sockets are silent for so long is not watched any more.
const SILENT: Nanos = Nanos::from_secs(10);

#[derive(Default)]
pub(super) struct ProcessSampler {
    known: BTreeMap<u32, Watched>,
    due: Nanos,
}

struct Watched {
    threads: BTreeMap<u32, SampledThread>,
    io: Option<File>,
    /// Storage that it had read and written before.
    io_before: Option<(u64, u64)>,
    /// As reported last.
    owner: Owner,
    /// Threads that it has.
    count: usize,
    is_known: bool,
    seen: Nanos,
}

struct SampledThread {
    stat: File,
    /// Absent where the kernel keeps no such account (CONFIG_SCHED_INFO).
    schedstat: Option<File>,
    wchan: Option<File>,
    times: Option<Times>,
    state: u8,
    /// Where it waits, if that was read since it ran.
    waits_in: Option<String>,
}

impl ProcessSampler {
    /// Takes note of the process that used an event's socket, by the thread of this name.
    pub(super) fn push(&mut self, pid: u32, comm: Comm, at: Nanos) {
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

    /// Reports what each of them does, if it is time for a sample.
    pub(super) fn sample(&mut self, now: Nanos, mut each: impl FnMut(Owner)) {
        if now < self.due {
            return;
        }
        self.due = now + PERIOD.into();
        self.known.retain(|pid, process| {
            let there = process.sample(*pid, now);
            if there {
                each(process.owner.clone());
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
            owner: Owner {
                pid,
                comm,
                ..Owner::default()
            },
            count: 1,
            is_known: false,
            seen,
        }
    }

    /// False once it is gone, or is not the process that the socket belongs to: a number means another
    /// one in another PID namespace.
    fn sample(&mut self, pid: u32, now: Nanos) -> bool {
        if self.threads.len() < self.count.min(MOST_THREADS) {
            self.list(pid);
        }
        // The event has the name of the thread that used the socket.
        let used = self.owner.comm;
        if !self.is_known && !self.threads.keys().any(|tid| name(pid, *tid) == used) {
            return false;
        }
        self.is_known = true;
        self.owner.at = now;
        (self.owner.running, self.owner.blocked, self.owner.asleep) = (0, 0, 0);
        let (owner, count) = (&mut self.owner, &mut self.count);
        let mut ran = false;
        let before = self.threads.len();
        self.threads.retain(|tid, thread| {
            let times = thread.schedstat.as_ref().and_then(times);
            // One that had no turn is where it was: nothing else needs to be read.
            if times.is_none() || times != thread.times {
                ran = true;
                thread.waits_in = None;
                let mut room = [0; ROOM];
                let Some(stat) = read(&thread.stat, &mut room).and_then(Stat::of) else {
                    return false;
                };
                (thread.state, *count) = (stat.state, stat.threads);
                if *tid == pid {
                    owner.comm = Comm::new(stat.name);
                }
            }
            match thread.state {
                b'R' => owner.running += 1,
                b'D' => owner.blocked += 1,
                _ => owner.asleep += 1,
            }
            if let Some((now, was)) = times.zip(thread.times) {
                owner.ran += now.ran.since(was.ran);
                owner.queued += now.queued.since(was.queued);
            }
            thread.times = times;
            true
        });
        ran |= self.threads.len() < before;
        let mut waiting = self.threads.values_mut().filter(|t| t.state != b'R');
        let first = waiting.next();
        let blocked = match &first {
            Some(thread) if thread.state != b'D' => waiting.find(|t| t.state == b'D'),
            _ => None,
        };
        self.owner.waits_in = match blocked.or(first) {
            Some(thread) => thread
                .waits_in
                .get_or_insert_with(|| thread.wchan.as_ref().map(waits_in).unwrap_or_default())
                .clone(),
            None => String::new(),
        };
        if ran {
            let mut room = [0; ROOM];
            let io = self.io.as_ref().and_then(|io| read(io, &mut room));
            let moved = io.and_then(storage);
            let before = self.io_before.or(moved);
            self.io_before = before;
            let grown = |now: u64, was: u64| Bytes(now.saturating_sub(was));
            let both = moved.zip(before);
            self.owner.storage_read = both.map(|(now, was)| grown(now.0, was.0));
            self.owner.storage_written = both.map(|(now, was)| grown(now.1, was.1));
        }
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
                let thread = SampledThread {
                    stat,
                    schedstat: File::open(entry.path().join("schedstat")).ok(),
                    wchan: File::open(entry.path().join("wchan")).ok(),
                    times: None,
                    state: 0,
                    waits_in: None,
                };
                self.threads.insert(tid, thread);
            }
        }
        self.count = self.threads.len();
    }
}

/// Room for all of a file that is read.
const ROOM: usize = 512;

/// The file from its beginning.
fn read<'a>(file: &File, room: &'a mut [u8; ROOM]) -> Option<&'a [u8]> {
    let n = file.read_at(room, 0).ok().filter(|n| *n > 0)?;
    Some(&room[..n])
}

/// What is taken of proc_pid_stat(5).
#[derive(Debug, PartialEq, Eq)]
struct Stat<'a> {
    name: &'a [u8],
    state: u8,
    /// Of the process.
    threads: usize,
}

impl Stat<'_> {
    /// The name stands in parentheses, and can hold any of them.
    fn of(text: &[u8]) -> Option<Stat<'_>> {
        let from = text.iter().position(|byte| *byte == b'(')?;
        let to = text.iter().rposition(|byte| *byte == b')')?;
        let mut fields = str::from_utf8(&text[to + 1..])
            .ok()?
            .split_ascii_whitespace();
        Some(Stat {
            name: text.get(from + 1..to)?,
            state: *fields.next()?.as_bytes().first()?,
            threads: fields.nth(16)?.parse().ok()?,
        })
    }
}

/// What the scheduler counts (Documentation/scheduler/sched-stats.rst).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Times {
    /// On a processor.
    ran: Nanos,
    /// Ready for one.
    queued: Nanos,
    turns: u64,
}

fn times(schedstat: &File) -> Option<Times> {
    let mut room = [0; ROOM];
    Times::of(read(schedstat, &mut room)?)
}

impl Times {
    fn of(text: &[u8]) -> Option<Times> {
        let words = str::from_utf8(text).ok()?.split_ascii_whitespace();
        let mut numbers = words.map_while(|word| word.parse().ok());
        Some(Times {
            ran: Nanos(numbers.next()?),
            queued: Nanos(numbers.next()?),
            turns: numbers.next()?,
        })
    }
}

/// Bytes read from and written to storage (proc_pid_io(5)).
fn storage(io: &[u8]) -> Option<(u64, u64)> {
    let io = str::from_utf8(io).ok()?;
    let bytes = |name| proc::field(io, name)?.parse().ok();
    Some((bytes("read_bytes:")?, bytes("write_bytes:")?))
}

fn name(pid: u32, tid: u32) -> Comm {
    let name = fs::read(format!("/proc/{pid}/task/{tid}/comm")).unwrap_or_default();
    Comm::new(name.strip_suffix(b"\n").unwrap_or(&name))
}

/// Empty where that may not be read, or it waits no more.
fn waits_in(wchan: &File) -> String {
    let mut room = [0; ROOM];
    let name = read(wchan, &mut room).and_then(|name| str::from_utf8(name).ok());
    let name = name.unwrap_or_default().trim_end();
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
        let stat = b"845 (a) D) S 1 845 845 0 -1 4194304 97 0 0 0 0 0 0 0 20 0 7 0 4836";
        let found = Stat {
            name: b"a) D",
            state: b'S',
            threads: 7,
        };
        assert_eq!(Stat::of(stat), Some(found));
        assert_eq!(Stat::of(b"845 (a"), None);
        assert_eq!(Stat::of(b")("), None);
        let times = Times {
            ran: Nanos(983_577),
            queued: Nanos(1_606_098),
            turns: 7,
        };
        assert_eq!(Times::of(b"983577 1606098 7\n"), Some(times));
        let io = b"rchar: 6976\nread_bytes: 512\nwrite_bytes: 7\ncancelled_write_bytes: 0\n";
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
        let mut owners = ProcessSampler::default();
        let pid = child.id();
        let comm = Comm::new(comm.as_bytes());
        let start = Instant::now();
        let named = format!("/proc/{}/comm", child.id());
        while Comm::new(fs::read_to_string(&named).unwrap().trim().as_bytes()) != comm {
            assert!(start.elapsed().as_secs() < 20);
        }
        owners.push(pid, comm, Nanos(0));
        std::io::Write::write_all(child.stdin.as_mut().unwrap(), b"\n").unwrap();
        let mut last = None;
        while !last.as_ref().is_some_and(&done) {
            assert!(start.elapsed().as_secs() < 20, "{last:?}");
            let now = Nanos::from(start.elapsed());
            owners.push(pid, comm, now);
            owners.sample(now, |owner| last = Some(owner));
            std::thread::sleep(PERIOD);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // Once it is gone it is not reported any more.
        owners.sample(Nanos::from_secs(100), |owner| panic!("{owner:?}"));
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
    fn a_waiting_process_has_its_wait_channel_and_its_new_threads_are_seen() {
        let link = fs::read_link("/proc/thread-self").unwrap();
        let own: u32 = link.file_name().unwrap().to_str().unwrap().parse().unwrap();
        let pid = std::process::id();
        let mut owners = ProcessSampler::default();
        owners.push(pid, name(pid, own), Nanos(0));
        owners.sample(Nanos(0), |owner| assert_eq!(owner.pid, pid));
        let (sender, receiver) = std::sync::mpsc::channel();
        let (end, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            sender
                .send(fs::read_link("/proc/thread-self").unwrap())
                .unwrap();
            wait.recv()
        });
        let link = receiver.recv().unwrap();
        let new = link.file_name().unwrap().to_str().unwrap().parse().unwrap();
        let start = Instant::now();
        let is_seen = |owners: &ProcessSampler| {
            let thread = owners.known[&pid].threads.get(&new);
            let wchan = thread.filter(|thread| thread.state == b'S');
            let wchan = wchan.and_then(|thread| thread.wchan.as_ref());
            wchan.is_some_and(|wchan| waits_in(wchan).contains("futex"))
        };
        let mut at = Nanos(0);
        while !is_seen(&owners) {
            assert!(start.elapsed().as_secs() < 20);
            at += PERIOD.into();
            owners.push(pid, Comm::default(), at);
            owners.sample(at, |_| {});
        }
        drop(end);
        assert!(thread.join().unwrap().is_err());
    }

    #[test]
    fn a_number_that_means_another_process_is_left_alone() {
        let mut owners = ProcessSampler::default();
        owners.push(std::process::id(), Comm::new(b"someone else"), Nanos(0));
        owners.sample(Nanos(0), |owner| panic!("{owner:?}"));
        assert!(owners.known.is_empty());
    }

    #[test]
    fn no_more_are_watched_than_there_is_room_for() {
        let mut owners = ProcessSampler::default();
        for pid in 1..1000 {
            owners.push(pid, Comm::default(), Nanos(u64::from(pid)));
        }
        assert_eq!(owners.known.len(), MOST);
        assert!(owners.known.contains_key(&999));
    }
}

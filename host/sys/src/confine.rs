//! A reader: a process that is left with its input and its answer.

use crate::privilege::{self, Rules};
use crate::socket::check;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    DumpableBehavior, Pid, Resource, Rlimit, Signal, WaitOptions, WaitStatus, getrlimit,
    kill_process, set_dumpable_behavior, set_parent_process_death_signal, setrlimit, waitpid,
};
use rustix::thread::{CapabilitySet, set_no_new_privs};
use seccompiler::{SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// What a reader may take.
#[derive(Clone, Copy, Debug)]
pub struct ReaderLimits {
    /// Address space.
    pub memory_bytes: u64,
    /// Processor time.
    pub cpu_s: u64,
    /// Time on the wall.
    pub within: Duration,
    /// Its answer.
    pub answer_bytes: u64,
}

/// Why a reader gave no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// It used up its processor time, or did not end in time.
    Time,
    /// It ran out of address space, or its answer is too long.
    Memory,
    /// It ended by this signal.
    Signal(i32),
}

/// The inputs of this process, if it is a reader: open, or with the error of opening them.
static INPUTS: OnceLock<Vec<(PathBuf, Result<File, i32>)>> = OnceLock::new();

/// Whether this process is a reader.
pub fn is_reader() -> bool {
    INPUTS.get().is_some()
}

/// Opens a file to read it from its beginning. In a reader, one of its inputs, which have one position: one at a time.
pub fn open(path: &Path) -> io::Result<File> {
    let Some(inputs) = INPUTS.get() else {
        return File::open(path);
    };
    let input = inputs.iter().find(|(name, _)| name == path);
    let (_, input) = input.ok_or(io::ErrorKind::PermissionDenied)?;
    let input = input
        .as_ref()
        .map_err(|code| io::Error::from_raw_os_error(*code))?;
    let mut file = input.try_clone()?;
    match file.rewind() {
        // A pipe is read once.
        Err(error) if error.raw_os_error() != Some(libc::ESPIPE) => Err(error),
        _ => Ok(file),
    }
}

/// Has a copy of this process do `work` as a reader: it can read `inputs` (and standard input, if `-` is among them)
/// by [`open`], compute, and give the answer that `work` returns. It can open, connect to, start and signal nothing.
/// `work` prints nothing, and takes no lock that another thread of this process may hold.
///
/// # Errors
/// If there can be no such process, or it cannot give its rights away.
pub fn read(
    inputs: &[&Path],
    limits: &ReaderLimits,
    work: impl FnOnce() -> Vec<u8>,
) -> io::Result<Result<Vec<u8>, Cut>> {
    let stdin = inputs.contains(&Path::new("-"));
    let opened = inputs.iter().map(|path| {
        let file = File::open(path).map_err(|error| error.raw_os_error().unwrap_or(libc::EIO));
        (path.to_path_buf(), file)
    });
    let opened = opened.collect();
    let (answer, mut to) = io::pipe()?;
    let pid = fork(|| {
        // The first byte: whether it is an answer.
        let answer = match confine(opened, stdin, &to, limits) {
            Ok(()) => [vec![1], work()].concat(),
            Err(error) => [vec![0], error.to_string().into_bytes()].concat(),
        };
        to.write_all(&answer).is_ok()
    })?;
    drop(to);
    let read = collect(&answer, limits);
    if !matches!(read, Ok(Ok(_))) {
        // It may have ended by itself.
        let _ = kill_process(pid, Signal::KILL);
    }
    let status = waited(pid)?;
    let bytes = match read? {
        Err(cut) => return Ok(Err(cut)),
        Ok(bytes) => bytes,
    };
    match (status.terminating_signal(), bytes.split_first()) {
        (None, Some((1, answer))) if status.exit_status() == Some(0) => Ok(Ok(answer.to_vec())),
        (None, Some((0, why))) => Err(io::Error::other(String::from_utf8_lossy(why).into_owned())),
        (Some(libc::SIGXCPU), _) => Ok(Err(Cut::Time)),
        // The allocator aborts; without room for its stack it is a fault.
        (Some(libc::SIGABRT), _) => Ok(Err(Cut::Memory)),
        (signal, _) => Ok(Err(Cut::Signal(signal.unwrap_or(0)))),
    }
}

/// Starts a copy of this process that does `work`, which says whether it was done, and ends. Of this process' threads it
/// has the one that calls. It can use the allocator; a lock that another thread holds is never opened in it.
pub(crate) fn fork(work: impl FnOnce() -> bool) -> io::Result<Pid> {
    // SAFETY: the child never returns from the block below. What it needs of the C library is usable after a fork also of a
    // process with threads: system calls, and the allocator (glibc, musl).
    let pid = unsafe { check(libc::fork())? };
    Pid::from_raw(pid).map_or_else(
        || {
            let done = catch_unwind(AssertUnwindSafe(work));
            // SAFETY: ends this process, and runs nothing that its parent has ordered for its own end.
            unsafe { libc::_exit(i32::from(!matches!(done, Ok(true)))) }
        },
        Ok,
    )
}

/// All that comes until the end.
fn collect(mut from: &io::PipeReader, limits: &ReaderLimits) -> io::Result<Result<Vec<u8>, Cut>> {
    let until = Instant::now() + limits.within;
    let mut all = Vec::new();
    let mut piece = vec![0; 1 << 16];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(from, PollFlags::IN)], Some(&left)) {
            Ok(0) => return Ok(Err(Cut::Time)),
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        match from.read(&mut piece)? {
            0 => return Ok(Ok(all)),
            count => all.extend_from_slice(&piece[..count]),
        }
        if all.len() as u64 > limits.answer_bytes {
            return Ok(Err(Cut::Memory));
        }
    }
}

fn waited(pid: Pid) -> io::Result<WaitStatus> {
    loop {
        match waitpid(Some(pid), WaitOptions::empty()) {
            Ok(Some((_, status))) => return Ok(status),
            Ok(None) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Closes all descriptors of a copy of this process but the standard ones and these.
pub(crate) fn close_others(own: &[RawFd]) -> io::Result<()> {
    let open = std::fs::read_dir("/proc/self/fd")?;
    let open: Vec<RawFd> = open
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    for fd in open {
        if fd > 2 && !own.contains(&fd) {
            // SAFETY: whatever owns it belongs to the parent's work, which the copy never goes on with. It may be the
            // directory above, which is closed already: that error does not matter.
            unsafe { libc::close(fd) };
        }
    }
    Ok(())
}

/// Gives away all but the inputs and the answer.
fn confine(
    inputs: Vec<(PathBuf, Result<File, i32>)>,
    stdin: bool,
    answer: &io::PipeWriter,
    limits: &ReaderLimits,
) -> io::Result<()> {
    let own: Vec<RawFd> = inputs
        .iter()
        .filter_map(|(_, file)| Some(file.as_ref().ok()?.as_raw_fd()))
        .chain([answer.as_raw_fd()])
        .collect();
    let null = File::options().read(true).write(true).open("/dev/null")?;
    for fd in if stdin { 1..=2 } else { 0..=2 } {
        // SAFETY: replaces a descriptor that std alone uses, which knows it by its number.
        unsafe { check(libc::dup2(null.as_raw_fd(), fd))? };
    }
    drop(null);
    close_others(&own)?;
    let _ = INPUTS.set(inputs);

    set_parent_process_death_signal(Some(Signal::KILL))?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    limit(Resource::Core, 0, 0)?;
    limit(Resource::As, limits.memory_bytes, 0)?;
    // The signal that says so comes before the one that ends at once.
    limit(Resource::Cpu, limits.cpu_s, 1)?;
    privilege::limit_to(CapabilitySet::empty())?;
    set_no_new_privs(true)?;
    privilege::deny_files_and_network()?;
    // A C library that finds no clone3 starts a thread by clone.
    privilege::filter(
        [(libc::SYS_clone3, Vec::new())].into(),
        SeccompAction::Allow,
        SeccompAction::Errno(libc::ENOSYS as u32),
    )?;
    privilege::filter(
        reader_calls()?,
        SeccompAction::Errno(libc::EPERM as u32),
        SeccompAction::Allow,
    )
}

/// At most this, and at most what it was; the hard limit is so much above it.
fn limit(resource: Resource, most: u64, above: u64) -> io::Result<()> {
    let before = getrlimit(resource);
    let maximum = before
        .maximum
        .map_or(most + above, |limit| limit.min(most + above));
    let current = before.current.map_or(most, |limit| limit.min(most));
    let new = Rlimit {
        current: Some(current.min(maximum.saturating_sub(above))),
        maximum: Some(maximum),
    };
    Ok(setrlimit(resource, new)?)
}

/// What a reader needs: its files, memory, time, threads.
fn reader_calls() -> io::Result<Rules> {
    let always = [
        libc::SYS_read,
        libc::SYS_readv,
        libc::SYS_pread64,
        libc::SYS_lseek,
        libc::SYS_write,
        libc::SYS_writev,
        libc::SYS_close,
        libc::SYS_fstat,
        // To rewind an input to its beginning.
        libc::SYS_fcntl,
        libc::SYS_mremap,
        libc::SYS_munmap,
        libc::SYS_brk,
        libc::SYS_madvise,
        libc::SYS_futex,
        libc::SYS_sched_yield,
        libc::SYS_getrandom,
        libc::SYS_clock_gettime,
        libc::SYS_rt_sigaction,
        libc::SYS_rt_sigprocmask,
        libc::SYS_rt_sigreturn,
        libc::SYS_sigaltstack,
        libc::SYS_restart_syscall,
        libc::SYS_getpid,
        libc::SYS_gettid,
        // What a new thread asks first; clone3 is denied by the filter before.
        libc::SYS_set_robust_list,
        libc::SYS_rseq,
        libc::SYS_sched_getaffinity,
        libc::SYS_clone3,
        libc::SYS_exit,
        libc::SYS_exit_group,
    ];
    let mut rules: Rules = always.map(|call| (call, Vec::new())).into();
    let when = |argument, operator, value| -> io::Result<Vec<SeccompRule>> {
        let of = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value);
        let rule = of.and_then(|condition| SeccompRule::new(vec![condition]));
        Ok(vec![rule.map_err(io::Error::other)?])
    };
    // No memory becomes code.
    let code = SeccompCmpOp::MaskedEq(libc::PROT_EXEC as u64);
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        rules.insert(call, when(2, code.clone(), 0)?);
    }
    // Threads, no processes: an argument of clone says which; that of clone3 is in memory, where no filter sees it.
    let thread = libc::CLONE_THREAD as u64;
    let thread = when(0, SeccompCmpOp::MaskedEq(thread), thread)?;
    rules.insert(libc::SYS_clone, thread);
    // An abort signals itself.
    let own = u64::from(std::process::id());
    rules.insert(libc::SYS_tgkill, when(0, SeccompCmpOp::Eq, own)?);
    Ok(rules)
}

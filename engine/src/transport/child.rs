//! An agent behind a pair of pipes: one that we started, or the one that we are.

use super::driver::ByteStream;
use crate::prelude::*;
use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::{Condvar, PoisonError};
use sys::poll::{PollFd, poll};
use wire::control::printable;

/// A pipe that can be written takes so much without waiting (`PIPE_BUF`, pipe(7)). So neither end
/// needs to be made non-blocking, which would last beyond this process if others share it.
const ATOMIC: usize = 4096;

/// For a child that was asked to end, before it is killed.
const LEAVE: Duration = Duration::from_secs(2);

/// The end of a child's words that is kept, in bytes.
const LAST_WORDS: usize = 4096;

/// Two pipes as one stream of bytes, and the agent behind them if this process started it. That ends when its input
/// does; dropping this makes sure of it.
pub struct Pipes {
    from: Option<File>,
    to: Option<File>,
    agent: Option<ChildAgent>,
}

impl Pipes {
    /// Standard input and output of this process.
    pub fn standard() -> Result<Pipes> {
        let own = |fd: BorrowedFd<'_>| fd.try_clone_to_owned().map(File::from);
        Ok(Pipes {
            from: Some(own(io::stdin().as_fd()).context("no standard input")?),
            to: Some(own(io::stdout().as_fd()).context("no standard output")?),
            agent: None,
        })
    }

    /// Those of a command that is started. Ctrl-C does not reach it: the session ends first, in good order.
    pub fn of_command(mut command: Command, meaning: Box<Meaning>) -> io::Result<Pipes> {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        sys::signal::deaf_to_interrupt(&mut command);
        let mut child = command.spawn()?;
        let words = Arc::new(ChildWords::default());
        if let Some(stderr) = child.stderr.take() {
            let words = Arc::clone(&words);
            // Not joined: an ssh that stays behind for others (ControlPersist) keeps it open.
            std::thread::spawn(move || words.listen(stderr));
        }
        Ok(Pipes {
            from: child.stdout.take().map(|fd| File::from(OwnedFd::from(fd))),
            to: child.stdin.take().map(|fd| File::from(OwnedFd::from(fd))),
            agent: Some(ChildAgent {
                child,
                words,
                meaning,
            }),
        })
    }
}

impl ByteStream for Pipes {
    fn wait_for(&self, read: bool, write: bool) -> Vec<PollFd<'_>> {
        let from = self.from.iter().filter(|_| read);
        let to = self.to.iter().filter(|_| write);
        from.map(|fd| PollFd::new(fd.as_fd(), true, false))
            .chain(to.map(|fd| PollFd::new(fd.as_fd(), false, true)))
            .collect()
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Some(from) = &mut self.from else {
            return Ok(0);
        };
        let mut fds = [PollFd::new(from.as_fd(), true, false)];
        if poll(&mut fds, Some(Duration::ZERO))? == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        from.read(into)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(to) = &mut self.to else {
            return Err(ErrorKind::BrokenPipe.into());
        };
        let mut fds = [PollFd::new(to.as_fd(), false, true)];
        if poll(&mut fds, Some(Duration::ZERO))? == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        to.write(&bytes[..bytes.len().min(ATOMIC)])
    }

    fn finish(&mut self) {
        self.to = None;
    }

    fn explain(&mut self, _: Option<&io::Error>) -> Option<String> {
        let agent = self.agent.as_mut()?;
        let status = agent.wait(LEAVE);
        (agent.meaning)(status, &agent.words.last(Duration::from_millis(200)))
    }
}

impl Drop for Pipes {
    fn drop(&mut self) {
        self.finish();
        if let Some(agent) = &mut self.agent
            && agent.wait(LEAVE).is_none()
        {
            let _ = agent.child.kill();
            let _ = agent.child.wait();
        }
    }
}

/// A started agent.
struct ChildAgent {
    child: Child,
    words: Arc<ChildWords>,
    meaning: Box<Meaning>,
}

/// What the end of a child means for the user, by its status and last words.
pub type Meaning = dyn Fn(Option<ExitStatus>, &str) -> Option<String> + Send;

/// What a child writes to its standard error.
#[derive(Default)]
struct ChildWords {
    state: Mutex<(Vec<u8>, bool)>,
    closed: Condvar,
}

impl ChildAgent {
    /// The status, if the child ends within `patience`.
    fn wait(&mut self, patience: Duration) -> Option<ExitStatus> {
        let until = Instant::now() + patience;
        loop {
            match self.child.try_wait() {
                Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(5)),
                Ok(status) => return status,
                Err(_) => return None,
            }
        }
    }
}

impl ChildWords {
    fn listen(&self, mut stderr: ChildStderr) {
        let mut piece = [0; 1024];
        while let Ok(n @ 1..) = stderr.read(&mut piece) {
            let mut state = sys::lock(&self.state);
            state.0.extend_from_slice(&piece[..n]);
            let excess = state.0.len().saturating_sub(LAST_WORDS);
            state.0.drain(..excess);
        }
        let mut state = sys::lock(&self.state);
        state.1 = true;
        self.closed.notify_all();
    }

    /// The last line with something in it, fit for a terminal; waits a little for its end.
    fn last(&self, patience: Duration) -> String {
        let state = sys::lock(&self.state);
        let (state, _) = self
            .closed
            .wait_timeout_while(state, patience, |(_, closed)| !*closed)
            .unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&state.0);
        let line = text.lines().map(str::trim).rfind(|line| !line.is_empty());
        printable(line.unwrap_or_default(), 300)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A shell with this script, whose end means its status and last words.
    fn shell(script: &str) -> Pipes {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        let meaning: Box<Meaning> = Box::new(|status, words| {
            let code = status.and_then(|status| status.code());
            Some(format!("{code:?} {words}"))
        });
        Pipes::of_command(command, meaning).unwrap()
    }

    /// What it says until its end.
    fn read(pipes: &mut Pipes) -> Vec<u8> {
        let (mut all, mut room) = (Vec::new(), [0; 64]);
        loop {
            match pipes.read(&mut room) {
                Ok(0) => return all,
                Ok(count) => all.extend_from_slice(&room[..count]),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    poll(&mut pipes.wait_for(true, false), None).unwrap();
                }
            }
        }
    }

    #[test]
    fn bytes_go_both_ways_and_its_input_ends_with_this_end() {
        let mut pipes = shell("cat");
        assert_eq!(pipes.wait_for(true, true).len(), 2);
        assert_eq!(pipes.wait_for(true, false).len(), 1);
        assert_eq!(pipes.wait_for(false, false).len(), 0);
        let nothing = pipes.read(&mut [0]).unwrap_err();
        assert_eq!(nothing.kind(), ErrorKind::WouldBlock);
        assert_eq!(pipes.write(b"hello").unwrap(), 5);
        pipes.finish();
        assert_eq!(read(&mut pipes), b"hello");
        let closed = pipes.write(b"x").unwrap_err();
        assert_eq!(closed.kind(), ErrorKind::BrokenPipe);
        assert_eq!(pipes.explain(None).unwrap(), "Some(0) ");
    }

    #[test]
    fn a_pipe_takes_what_goes_without_waiting() {
        let mut pipes = shell("read line");
        let large = vec![b'x'; 1 << 20];
        assert_eq!(pipes.write(&large).unwrap(), ATOMIC);
        let mut taken = ATOMIC;
        let full = loop {
            match pipes.write(&large) {
                Ok(more) => taken += more,
                Err(error) => break error,
            }
        };
        assert!(
            matches!(full.kind(), ErrorKind::WouldBlock),
            "{full} after {taken}"
        );
    }

    #[test]
    fn the_last_line_of_what_it_complains_of_is_kept() {
        let said = |script: &str| {
            let mut pipes = shell(script);
            pipes.finish();
            pipes.explain(None).unwrap()
        };
        assert_eq!(said("exit 3"), "Some(3) ");
        assert_eq!(
            said("echo one >&2; echo ' two ' >&2; echo >&2; exit 1"),
            "Some(1) two"
        );
        let long = "i=0; while [ $i -lt 200 ]; do echo 0123456789012345678901234567890123456789 >&2; i=$((i+1)); done; echo last >&2";
        assert_eq!(said(long), "Some(0) last");
        let words = ChildWords::default();
        assert_eq!(
            words.last(Duration::ZERO),
            "",
            "it has not ended, and nobody waits"
        );
    }

    #[test]
    fn a_child_that_does_not_end_is_killed_with_its_pipes() {
        let mut pipes = shell("trap '' TERM; exec sleep 3600");
        let child = pipes.agent.as_mut().unwrap();
        assert_eq!(child.wait(Duration::ZERO), None);
        let proc = format!("/proc/{}", child.child.id());
        drop(pipes);
        assert!(!Path::new(&proc).exists());
    }
}

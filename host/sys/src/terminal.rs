//! Single keys of a terminal (termios(3)).

use crate::poll::{PollFd, poll};
use rustix::termios::{
    LocalModes, OptionalActions, Termios, isatty, tcgetattr, tcgetpgrp, tcsetattr,
};
use std::io::{self, stdin};
use std::os::fd::AsFd;
use std::time::Duration;

/// Standard input as a terminal whose keys come at once and are not echoed, until this is dropped.
pub struct TerminalKeys(Termios);

impl TerminalKeys {
    /// `None` where standard input is no terminal, or that of another job in the foreground.
    pub fn open() -> Option<TerminalKeys> {
        let stdin = stdin();
        let ours = || tcgetpgrp(&stdin).ok() == Some(rustix::process::getpgrp());
        if !isatty(&stdin) || !ours() {
            return None;
        }
        let before = tcgetattr(&stdin).ok()?;
        let mut now = before.clone();
        now.local_modes
            .remove(LocalModes::ICANON | LocalModes::ECHO);
        tcsetattr(&stdin, OptionalActions::Now, &now).ok()?;
        Some(TerminalKeys(before))
    }

    /// The next key, or the first byte of one that sends several; `None` after the time, or when a signal comes.
    pub fn wait(&self, timeout: Duration) -> io::Result<Option<u8>> {
        let stdin = stdin();
        let mut fds = [PollFd::new(stdin.as_fd(), true, false)];
        if poll(&mut fds, Some(timeout))? == 0 {
            return Ok(None);
        }
        let mut bytes = [0; 64];
        match rustix::io::read(&stdin, &mut bytes)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(Some(bytes[0])),
        }
    }
}

impl Drop for TerminalKeys {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        let _ = tcsetattr(stdin(), OptionalActions::Now, &self.0);
    }
}

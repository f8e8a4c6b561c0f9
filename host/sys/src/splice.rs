//! Data that a socket sends from the caller's own pages, without a copy.

use rustix::mm::{Advice, madvise};
use rustix::pipe::{
    IoSliceRaw, PipeFlags, SpliceFlags, fcntl_getpipe_size, fcntl_setpipe_size, pipe_with, splice,
    vmsplice,
};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Bytes of a huge page.
const HUGE: usize = 2 << 20;

/// A pipe through which a socket gets pages that hold some data (vmsplice(2), splice(2)). The device reads them there, if
/// it can gather (`ethtool -k`: scatter-gather); without that the kernel copies.
pub struct PagePipe {
    from: OwnedFd,
    to: OwnedFd,
    room: usize,
    /// Bytes in the pipe.
    waiting: usize,
    memory: Vec<u8>,
    begin: usize,
}

impl PagePipe {
    /// Bytes of memory that so many bytes of data take: whole huge pages, from the half of one on.
    pub fn memory(bytes: usize) -> usize {
        match bytes >= HUGE / 2 {
            true => bytes.div_ceil(HUGE).saturating_mul(HUGE),
            false => bytes,
        }
    }

    /// One for these data, in huge pages where the kernel has some, so that it looks up few. It takes all of them at once
    /// if the user may have such a pipe (`fs.pipe-max-size`), else a part.
    pub fn new(data: &[u8]) -> io::Result<PagePipe> {
        let (from, to) = pipe_with(PipeFlags::CLOEXEC)?;
        let _ = fcntl_setpipe_size(&to, data.len());
        let room = fcntl_getpipe_size(&to)?;
        let whole = PagePipe::memory(data.len());
        let mut memory = vec![0; whole + HUGE];
        let begin = memory.as_ptr().align_offset(HUGE).min(HUGE);
        if whole.is_multiple_of(HUGE) {
            let pages = memory[begin..].as_mut_ptr().cast();
            // SAFETY: of memory that is ours alone; this advice changes no byte of it.
            let _ = unsafe { madvise(pages, whole, Advice::LinuxHugepage) };
        }
        memory[begin..][..data.len()].copy_from_slice(data);
        memory.truncate(begin + data.len());
        Ok(PagePipe {
            from,
            to,
            room,
            waiting: 0,
            memory,
            begin,
        })
    }

    /// Sends up to so many bytes of the data, from their begin, blocking as the socket does; returns how many. What the
    /// call before left in the pipe goes first.
    pub fn send(&mut self, socket: BorrowedFd<'_>, bytes: usize) -> io::Result<usize> {
        if self.waiting == 0 {
            let data = &self.memory[self.begin..];
            let part = IoSliceRaw::from_slice(&data[..bytes.min(data.len()).min(self.room)]);
            // SAFETY: the kernel only reads the pages, and keeps them when their mapping goes.
            self.waiting = unsafe { vmsplice(&self.to, &[part], SpliceFlags::empty()) }?;
        }
        let most = self.waiting.min(bytes);
        let sent = splice(&self.from, None, socket, None, most, SpliceFlags::empty())?;
        self.waiting -= sent;
        Ok(sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::thread;

    #[test]
    fn what_leaves_is_what_stands_in_the_pages() {
        let data: Vec<u8> = (0..700_000u32).map(|n| (n % 251) as u8).collect();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut receiver, _) = listener.accept().unwrap();
        let reader = thread::spawn(move || {
            let mut got = Vec::new();
            receiver.read_to_end(&mut got).unwrap();
            got
        });
        let mut pipe = PagePipe::new(&data).unwrap();
        let mut sent = 0;
        while sent < data.len() {
            sent += pipe.send(sender.as_fd(), data.len()).unwrap();
        }
        drop((sender, pipe));
        let got = reader.join().unwrap();
        assert!(got.len() >= data.len() && got.iter().zip(&data).all(|(a, b)| a == b));
    }

    #[test]
    fn no_more_is_sent_than_asked_and_an_error_is_no_loss() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut pipe = PagePipe::new(&[7; 100_000]).unwrap();
        assert_eq!(pipe.send(sender.as_fd(), 10).unwrap(), 10);
        sender.shutdown(std::net::Shutdown::Write).unwrap();
        for bytes in [10, 3] {
            let error = pipe.send(sender.as_fd(), bytes).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
            assert_eq!(pipe.waiting, 10);
        }
    }
}

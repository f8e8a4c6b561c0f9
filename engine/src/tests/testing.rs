//! Helps for tests.

use crate::prelude::*;
use crate::transport::driver::ByteStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicU32;

/// A directory that goes away with its value.
pub(crate) struct TempDir(PathBuf);

impl TempDir {
    /// A new, empty one.
    pub(crate) fn new() -> TempDir {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("linerate-test-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        TempDir(path)
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// One end of a pair of sockets, as a channel drives it.
pub(crate) fn byte_stream(socket: UnixStream) -> Box<dyn ByteStream> {
    socket.set_nonblocking(true).unwrap();
    Box::new(TcpStream::from(OwnedFd::from(socket)))
}

//! Reads and writes of blocks: of the peer, which has them in memory or a file, or of a server in another protocol.

mod client;
mod frame;
mod peer_client;
mod server;

use crate::prelude::*;
use crate::spin::is_pause;
use crate::storage::{Storage, Store};
use crate::workload::{alone, no_such_role};
use model::{BlockClients, Blocks, StoreRecord, WaitMode, Workload};
use std::io::{Read, Write};

/// How soon an end that waits for the other notices that it is to stop.
const LOOK: Duration = Duration::from_millis(100);

/// Readies both ends of a job for blocks of the peer, before its load starts: the time of a file that has to be made
/// is nobody's latency. Other jobs are ready. `false`: it was stopped meanwhile.
///
/// # Errors
/// A sentence: the storage failed, or the peer's did.
pub fn ready(job: &mut Job, sockets: &[TcpStream], stop: &AtomicBool) -> Result<bool, String> {
    let Workload::Blocks(order) = &job.workload else {
        return Ok(true);
    };
    match (&job.storage, job.role) {
        (Some(Storage::Store(store)), Role::Answer) => {
            store.prepare(stop)?;
            for mut socket in sockets {
                // A peer that is gone already is found out by the load.
                let _ = socket.write_all(&store.blocks().to_be_bytes());
            }
        }
        (None, Role::Ask) if order.store().is_some() => {
            let mut all = 1;
            for socket in sockets {
                match announced(socket, stop)? {
                    Some(blocks) => all = blocks,
                    None => return Ok(false),
                }
            }
            job.clients = Some(peer_client::clients(order, all, sockets.len() as u64));
        }
        _ => {}
    }
    Ok(!stop.load(Ordering::Relaxed))
}

/// How many blocks the peer has, once they are ready; `None`: stopped.
fn announced(mut socket: &TcpStream, stop: &AtomicBool) -> Result<Option<u64>, String> {
    let broke = |e: std::io::Error| {
        format!("the connection broke before the blocks were ready ({e}); see its output")
    };
    socket.set_read_timeout(Some(LOOK)).map_err(broke)?;
    let mut number = [0; 8];
    let mut got = 0;
    while got < number.len() {
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        match socket.read(&mut number[got..]) {
            Ok(0) => return Err(broke(ErrorKind::UnexpectedEof.into())),
            Ok(more) => got += more,
            Err(e) if is_pause(&e) => {}
            Err(e) => return Err(broke(e)),
        }
    }
    socket.set_read_timeout(None).map_err(broke)?;
    Ok(Some(u64::from_be_bytes(number)))
}

enum BlocksEnd {
    Client(Blocks, Arc<BlockClients>),
    Server(Blocks, Arc<dyn Store>),
}

/// This end of blocks.
pub(crate) fn end(job: &Job, order: &Blocks) -> Result<Box<dyn WorkloadEnd>, Error> {
    Ok(Box::new(match (job.role, &job.clients, &job.storage) {
        (Role::Ask, Some(clients), _) => BlocksEnd::Client(order.clone(), Arc::clone(clients)),
        (Role::Answer, _, Some(Storage::Store(store))) => {
            BlocksEnd::Server(order.clone(), Arc::clone(store))
        }
        (Role::Ask, None, _) => {
            return Err(Error::Job(
                "blocks need a client of their server's protocol".into(),
            ));
        }
        (Role::Answer, ..) => return Err(Error::Job("blocks need their storage".into())),
        (Role::Send | Role::Receive, ..) => return Err(no_such_role()),
    }))
}

impl WorkloadEnd for BlocksEnd {
    fn wait(&self) -> Option<WaitMode> {
        match self {
            BlocksEnd::Client(order, _) => Some(order.wait),
            BlocksEnd::Server(order, store) => {
                (server::workers(order, store.as_ref()) == 0).then_some(order.wait)
            }
        }
    }

    fn run(&self, streams: &[LoadStream<'_>], spin: Spin) {
        alone(streams, |stream| match self {
            BlocksEnd::Client(order, clients) => {
                let mut client = clients(stream.index);
                client::ask(stream, order, client.as_mut(), spin)
            }
            BlocksEnd::Server(order, store) => server::serve(stream, order, store.as_ref(), spin),
        });
    }

    fn settle(&self, failed: Option<String>) -> Option<StoreRecord> {
        match self {
            BlocksEnd::Client(..) => None,
            BlocksEnd::Server(_, store) => Some(server::settle(store.as_ref(), failed)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::net::TcpListener;
    use std::os::fd::AsFd;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (ours, listener.accept().unwrap().0)
    }

    #[test]
    fn the_number_of_blocks_is_whole_when_all_its_bytes_have_come() {
        let (ours, mut peer) = pair();
        let stop = AtomicBool::new(false);
        let all: u64 = 0x0102_0304_0506_0708;
        let announced = std::thread::scope(|scope| {
            let announced = scope.spawn(|| announced(&ours, &stop));
            for piece in all.to_be_bytes().chunks(3) {
                peer.write_all(piece).unwrap();
                while sys::socket::queued(ours.as_fd()).unwrap() > 0 {
                    std::thread::yield_now();
                }
            }
            announced.join().unwrap()
        });
        assert_eq!(announced, Ok(Some(all)));
        assert_eq!(ours.read_timeout().unwrap(), None);
        // What follows is not touched.
        peer.write_all(b"x").unwrap();
        let mut rest = [0; 1];
        (&ours).read_exact(&mut rest).unwrap();
        assert_eq!(&rest, b"x");
    }

    #[test]
    fn a_peer_that_goes_before_its_blocks_are_ready_is_an_error_and_a_stop_is_none() {
        let (ours, mut peer) = pair();
        let (stop, go_on) = (AtomicBool::new(true), AtomicBool::new(false));
        assert_eq!(announced(&ours, &stop), Ok(None));
        peer.write_all(&[0; 7]).unwrap();
        drop(peer);
        let why = announced(&ours, &go_on).unwrap_err();
        assert!(why.contains("broke before the blocks were ready"), "{why}");
    }
}

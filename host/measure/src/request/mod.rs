//! Small requests, each answered.
//!
//! A thread has many connections and a state for each: it waits for all of them at once (`epoll(7)`), and no call waits
//! for one. A thread with a single connection sleeps in the call that reads from it, which saves two system calls a message.

mod client;
mod connections;
mod server;

use crate::job::{Connector, DataAcceptor, Reconnect};
use crate::load::processors;
use crate::prelude::*;
use crate::workload::{alone, no_such_role};
use model::{Request, WaitMode};

/// Bytes of a reply (or request) that a thread holds at once.
const CHUNK: usize = 1 << 20;
/// What an end keeps of a connection besides the kernel's buffers: counters, state, descriptor and socket.
const CONNECTION: usize = 4096;

enum RequestEnd {
    Client(Request, Option<Arc<Connector>>),
    Server(Request, Option<Arc<dyn DataAcceptor>>),
}

/// Bytes that an end has in buffers and for its connections.
pub(crate) fn buffers(order: &Request, streams: usize) -> usize {
    let held = |size: Bytes| size.0.min(CHUNK as u64) as usize;
    let threads = threads(order, streams, processors());
    (held(order.request_size) + held(order.reply_size)).saturating_mul(threads)
        + streams.saturating_mul(CONNECTION)
}

/// A new connection for every request is waited for by a thread of its stream.
fn threads(order: &Request, streams: usize, processors: usize) -> usize {
    match order.reconnect {
        true => streams,
        false => streams.min(processors),
    }
}

/// This end of requests.
pub(crate) fn end(job: &Job, order: &Request) -> Result<Box<dyn WorkloadEnd>, Error> {
    job.workload.check(1).map_err(Error::Job)?;
    let order = order.clone();
    Ok(Box::new(
        match (job.role, &job.reconnect, order.reconnect) {
            (Role::Ask, None, false) => RequestEnd::Client(order, None),
            (Role::Ask, Some(Reconnect::Connect(connector)), true) => {
                RequestEnd::Client(order, Some(Arc::clone(connector)))
            }
            (Role::Answer, None, false) => RequestEnd::Server(order, None),
            (Role::Answer, Some(Reconnect::Accept(acceptor)), true) => {
                RequestEnd::Server(order, Some(Arc::clone(acceptor)))
            }
            (Role::Send | Role::Receive, ..) => return Err(no_such_role()),
            (Role::Ask | Role::Answer, ..) => {
                return Err(Error::Job(
                    "an order for new connections and their source must go together".into(),
                ));
            }
        },
    ))
}

impl RequestEnd {
    fn order(&self) -> &Request {
        match self {
            RequestEnd::Client(order, _) | RequestEnd::Server(order, _) => order,
        }
    }
}

impl WorkloadEnd for RequestEnd {
    fn wait(&self) -> Option<WaitMode> {
        Some(self.order().wait)
    }

    fn threads(&self, streams: usize, processors: usize) -> usize {
        threads(self.order(), streams, processors)
    }

    fn run(&self, streams: &[LoadStream<'_>], spin: Spin) {
        match self {
            RequestEnd::Client(order, source) => {
                client::ask(streams, order, source.as_deref(), spin)
            }
            RequestEnd::Server(order, None) => server::answer(streams, order, spin),
            RequestEnd::Server(order, Some(acceptor)) => {
                alone(streams, |stream| {
                    server::answer_new(stream, order, acceptor.as_ref(), spin)
                });
            }
        }
    }
}

/// Readies a new connection.
fn prepare(stream: &LoadStream<'_>, connection: &TcpStream) -> io::Result<()> {
    // The keeper cannot cut a connection that it does not know: so its thread looks.
    let look = Some(Duration::from_millis(100));
    stream.begin_connection();
    connection.set_nonblocking(false)?;
    connection.set_read_timeout(look)?;
    connection.set_write_timeout(look)?;
    stream.prepare(connection)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_share_connections_unless_each_request_has_a_new_one() {
        let order = |size, reconnect| Request {
            request_size: Bytes(64),
            reply_size: Bytes(size),
            pace_per_s: None,
            reconnect,
            wait: WaitMode::Block,
        };
        let of = |streams, reconnect| threads(&order(64, reconnect), streams, 4);
        assert_eq!([of(3, false), of(9, false), of(9, true)], [3, 4, 9]);
        // A message of each thread, at most a mebibyte of it, and a page for each connection.
        assert_eq!(buffers(&order(1000, false), 1), 1064 + 4096);
        assert_eq!(
            buffers(&order(5 << 20, true), 9),
            9 * (64 + (1 << 20)) + 9 * 4096
        );
    }
}

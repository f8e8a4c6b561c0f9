//! How a thread waits for data: spinning first, or asleep at once.

use crate::load::processors;
use crate::prelude::*;
use model::{WaitMode, Warning};

/// How long an end spins for data before it sleeps. A little more than a quick exchange in a data
/// centre takes; sleeping and waking costs about as much, so that spinning at most doubles the price.
const SPIN: Duration = Duration::from_micros(50);
/// A paced client wakes up this much before a request is due and spins, so that the lateness of
/// timers does not count as latency of the path.
const EARLY: Duration = Duration::from_micros(80);

/// How long threads may spin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spin {
    /// For data.
    data: Duration,
    /// For the moment that a request is due.
    pub(crate) due: Duration,
}

impl Spin {
    /// Spinning threads must not take each other's processors: with more threads than processors
    /// (both ends counted if the peer is on this host) all sleep, and a warning says so.
    pub(crate) fn allowed(
        wait: Option<WaitMode>,
        threads: usize,
        warnings: &mut Vec<Warning>,
    ) -> Spin {
        match wait {
            Some(wait) => Spin::within(wait, threads, processors(), warnings),
            None => Spin::NEVER,
        }
    }

    fn within(wait: WaitMode, threads: usize, cpus: usize, warnings: &mut Vec<Warning>) -> Spin {
        let crowded = threads > cpus;
        if crowded && wait == WaitMode::Hybrid {
            warnings.push(Warning {
                what: format!("{threads} threads on {cpus} processors cannot all spin; they sleep"),
                meaning: "latencies include waking up, as with waiting mode block".into(),
                remedy: "use fewer connections to measure what the network takes".into(),
            });
        }
        match (crowded, wait) {
            (true, _) => Spin::NEVER,
            (false, WaitMode::Hybrid) => Spin {
                data: SPIN,
                due: EARLY,
            },
            (false, WaitMode::Block) => Spin {
                data: Duration::ZERO,
                due: EARLY,
            },
        }
    }

    pub(crate) const NEVER: Spin = Spin {
        data: Duration::ZERO,
        due: Duration::ZERO,
    };

    /// Receives as the quota of the stream's peer allows, spinning before it sleeps; `in_vain` is called if spinning
    /// brought nothing.
    pub(crate) fn receive(
        &self,
        stream: &LoadStream<'_>,
        fd: BorrowedFd<'_>,
        buffer: &mut [u8],
        in_vain: impl FnOnce(),
    ) -> io::Result<usize> {
        if !stream.has_quota() {
            return self.sleeping(in_vain, |wait| match wait {
                true => socket::receive(fd, buffer),
                false => socket::receive_now(fd, buffer),
            });
        }
        stream.receive(
            fd,
            buffer.len(),
            || self.sleeping(in_vain, |wait| socket::arrived(fd, 1, wait)),
            |bytes| socket::receive(fd, &mut buffer[..bytes]),
        )
    }

    /// The same until something has come, or the load is cut; zero: the peer has ended its stream.
    pub(crate) fn some(
        &self,
        stream: &LoadStream<'_>,
        fd: BorrowedFd<'_>,
        buffer: &mut [u8],
        in_vain: impl Fn(),
    ) -> Result<usize, String> {
        loop {
            match self.receive(stream, fd, buffer, &in_vain) {
                Err(e) if is_pause(&e) && stream.phase() != LoadPhase::Cut => {}
                got => return got.map_err(|e| stream.broken(&e)),
            }
        }
    }

    /// Tries without sleeping while it may spin, and then sleeps.
    pub(crate) fn sleeping(
        &self,
        in_vain: impl FnOnce(),
        mut attempt: impl FnMut(bool) -> io::Result<usize>,
    ) -> io::Result<usize> {
        if !self.data.is_zero() {
            let got = self.until(|| match attempt(false) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => None,
                other => Some(other),
            });
            if let Some(got) = got {
                return got;
            }
            in_vain();
        }
        attempt(true)
    }

    /// Tries until it gives something or the time to spin is over.
    pub(crate) fn until<T>(&self, mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
        /// Attempts between looks at the clock, which would otherwise delay the answer.
        const UNWATCHED: usize = 16;
        let mut over = None;
        loop {
            for _ in 0..UNWATCHED {
                if let Some(result) = attempt() {
                    return Some(result);
                }
            }
            let now = Instant::now();
            if now >= *over.get_or_insert(now + self.data) {
                return None;
            }
        }
    }
}

/// Whether its peer is on this host.
pub(crate) fn is_local(socket: &TcpStream) -> bool {
    match (socket.local_addr(), socket.peer_addr()) {
        (Ok(local), Ok(peer)) => peer.ip().is_loopback() || local.ip() == peer.ip(),
        _ => false,
    }
}

/// Not an error: a signal, or a timeout that only serves to look at the phase.
pub(crate) fn is_pause(e: &io::Error) -> bool {
    matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_cannot_all_spin_sleep_and_who_asked_for_it_is_warned() {
        let mut warnings = Vec::new();
        let mut within = |wait, threads| Spin::within(wait, threads, 2, &mut warnings);
        assert_eq!(within(WaitMode::Block, 3), Spin::NEVER);
        assert_eq!(within(WaitMode::Hybrid, 2).data, SPIN);
        assert_eq!(within(WaitMode::Hybrid, 3), Spin::NEVER);
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].what.contains("3 threads on 2 processors"));
    }

    #[test]
    fn a_spinning_thread_tries_until_its_time_is_over_and_then_sleeps() {
        let spin = |data| Spin {
            data,
            due: Duration::ZERO,
        };
        let until = |data, at: usize| {
            let mut tries = 0;
            let found = spin(data).until(|| {
                tries += 1;
                (tries == at).then_some(tries)
            });
            (found, tries)
        };
        let hour = Duration::from_secs(3600);
        assert_eq!(until(hour, 1), (Some(1), 1));
        assert_eq!(until(hour, 1000), (Some(1000), 1000));
        // The clock is looked at after sixteen.
        assert_eq!(until(Duration::ZERO, 1000), (None, 16));
        let sleeps = |data, answer: fn(bool, usize) -> io::Result<usize>| {
            let (mut waits, mut vain) = (Vec::new(), false);
            let found = spin(data).sleeping(
                || vain = true,
                |wait| {
                    waits.push(wait);
                    answer(wait, waits.len())
                },
            );
            let spun = waits.iter().filter(|wait| !**wait).count();
            (found.map_err(|e| e.kind()), spun, waits.len() - spun, vain)
        };
        let at_third = |_, tries| match tries {
            3 => Ok(5),
            _ => Err(ErrorKind::WouldBlock.into()),
        };
        assert_eq!(sleeps(hour, at_third), (Ok(5), 3, 0, false));
        let broken = |_, _| Err(ErrorKind::BrokenPipe.into());
        assert_eq!(
            sleeps(hour, broken),
            (Err(ErrorKind::BrokenPipe), 1, 0, false)
        );
        let awake = |wait, _| {
            if wait {
                Ok(7)
            } else {
                Err(ErrorKind::WouldBlock.into())
            }
        };
        assert_eq!(sleeps(Duration::ZERO, awake), (Ok(7), 0, 1, false));
        let (found, spun, slept, vain) = sleeps(Duration::from_nanos(1), awake);
        assert_eq!((found, slept, vain), (Ok(7), 1, true));
        assert!(spun >= 16);
    }

    #[test]
    fn a_signal_or_a_look_is_a_pause_and_this_host_is_local() {
        let of = |kind: ErrorKind| is_pause(&kind.into());
        assert!(of(ErrorKind::Interrupted) && of(ErrorKind::WouldBlock));
        assert!(!of(ErrorKind::TimedOut) && !of(ErrorKind::BrokenPipe));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let own = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(is_local(&own));
        let unconnected = sys::socket::tcp(&"127.0.0.1:0".parse().unwrap()).unwrap();
        assert!(!is_local(&unconnected.into()));
    }
}

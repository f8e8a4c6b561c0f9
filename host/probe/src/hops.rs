//! The routers of a path, and those that packets of a size still reach.

use crate::datagrams::{DatagramProbe, unspecified};
use model::mtu::{Hop, TooBig};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};
use sys::poll::poll;
use sys::probe::Said;

/// Hops that are asked for; paths of the Internet are shorter.
const MOST: u8 = 30;

/// Between two calls of `meanwhile`.
const LOOK: Duration = Duration::from_millis(2);

/// What to ask.
pub struct Ask<'a> {
    /// Where the packets are going.
    pub to: SocketAddr,
    /// Payload of those that pass the whole way; the host there answers them.
    pub small: &'a [u8],
    /// Payload of those that do not.
    pub large: &'a [u8],
    /// For the answers to each.
    pub wait: Duration,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Hops that answered, or lie before one that did, nearest first, without the destination.
    pub hops: Vec<Hop>,
    /// Hops to the destination, itself included, if it answered.
    pub distance: Option<u8>,
    /// The router that reported the large ones as too big.
    pub too_big: Option<TooBig>,
}

/// Sends packets that run out of hops, first small ones, then large ones to where somebody is. A socket
/// for each number of hops: many routers quote too little to distinguish packets. `meanwhile` is called
/// every few milliseconds.
pub fn trace(ask: &Ask<'_>, meanwhile: &mut dyn FnMut()) -> io::Result<Found> {
    let local = SocketAddr::new(unspecified(ask.to.ip()), 0);
    let sockets = (1..=MOST)
        .map(|ttl| {
            let socket = DatagramProbe::open(local)?;
            socket.set_hop_limit(ttl)?;
            Ok(socket)
        })
        .collect::<io::Result<Vec<DatagramProbe>>>()?;
    let mut too_big = None;
    let mut round = |sockets: &[DatagramProbe], payload: &[u8]| {
        round(sockets, ask, payload, &mut too_big, meanwhile)
    };
    let small = round(&sockets, ask.small)?;
    let end = small.iter().position(|answer| *answer == HopAnswer::End);
    let farthest = || {
        small
            .iter()
            .rposition(|a| matches!(a, HopAnswer::Router(_)))
    };
    let last = end.or_else(|| farthest().map(|at| at + 1)).unwrap_or(0);
    let distance = end.map(|at| at as u8 + 1);
    let large = round(&sockets[..last], ask.large)?;
    let hops = (1..)
        .zip(small.iter().zip(&large))
        .map(|(ttl, (small, large))| Hop {
            ttl,
            address: small.address().or(large.address()),
            small: small.address().is_some(),
            large: large.address().is_some(),
            mss: None,
        })
        .collect();
    Ok(Found {
        hops,
        distance,
        too_big,
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HopAnswer {
    None,
    Router(IpAddr),
    End,
}

impl HopAnswer {
    fn address(self) -> Option<IpAddr> {
        match self {
            HopAnswer::Router(address) => Some(address),
            HopAnswer::None | HopAnswer::End => None,
        }
    }
}

fn round(
    sockets: &[DatagramProbe],
    ask: &Ask<'_>,
    payload: &[u8],
    too_big: &mut Option<TooBig>,
    meanwhile: &mut dyn FnMut(),
) -> io::Result<Vec<HopAnswer>> {
    let Ask { to, wait, .. } = *ask;
    let mut answers = vec![HopAnswer::None; sockets.len()];
    let mut room = [0; 64];
    // Unanswered probes are repeated: either direction may lose some.
    for _ in 0..3 {
        for (socket, answer) in sockets.iter().zip(&answers) {
            if *answer == HopAnswer::None {
                socket.send(payload, to)?;
            }
        }
        let until = Instant::now() + wait / 3;
        while Instant::now() < until {
            // Beyond the end nobody needs to answer.
            let end = answers.iter().position(|answer| *answer == HopAnswer::End);
            let wanted = &answers[..end.unwrap_or(answers.len())];
            if !wanted.contains(&HopAnswer::None) {
                return Ok(answers);
            }
            let mut fds: Vec<_> = sockets.iter().map(DatagramProbe::poll_fd).collect();
            poll(&mut fds, Some(LOOK))?;
            for (socket, answer) in sockets.iter().zip(&mut answers) {
                while let Some(message) = socket.message() {
                    *answer = match (message.what, message.from) {
                        (Said::HopLimit, Some(from)) => HopAnswer::Router(from),
                        // The kernel of the destination, which takes the probes of no other port.
                        (Said::Unreachable, Some(from)) if from == to.ip() => HopAnswer::End,
                        (Said::TooBig(mtu), Some(from)) => {
                            *too_big = Some(TooBig { from, mtu });
                            continue;
                        }
                        _ => continue,
                    };
                }
                if socket
                    .receive(&mut room)
                    .is_some_and(|(_, from)| from == to)
                {
                    *answer = HopAnswer::End;
                }
            }
            meanwhile();
        }
    }
    Ok(answers)
}

//! What size gets through: joins the ladder of sizes, which has no socket, with the sockets.
//!
//! Both hosts have an [`exchange::Exchange`]: it acknowledges the peer's probes and climbs with its
//! own. [`local`] is the host of the command, [`remote`] the agent; [`web`] does without one.

pub mod change;
mod exchange;
pub mod local;
pub mod remote;
mod tcp_transfer;
pub mod web;

use crate::log;
use crate::prelude::*;
use archive::{Archive, RunFilter};
use model::mtu::{Climb, MtuFound, MtuRecord};
use probe::Ask;

/// Keeps what was found in the archive. What cannot be kept is said: the answer is right all the same.
pub fn store(archive: Result<PathBuf, archive::Error>, found: MtuFound) -> MtuFound {
    let record = MtuRecord {
        id: archive::new_id(),
        ended: unix_time(),
        found,
    };
    let kept = archive.and_then(|path| Archive::open(&path)?.store_mtu(&record));
    if let Err(error) = kept {
        log::note(&format!("linerate: not kept: {error}"));
    }
    record.found
}

/// The largest packet that got through to or from this host when somebody looked last, by the archive at this
/// place; `None` if nobody did.
pub fn known(archive: &Path, host: &str, direction: Direction) -> Option<u32> {
    let of_host = RunFilter {
        host: Some(host.to_owned()),
        ..RunFilter::default()
    };
    // The latest first; of hosts whose names contain this one as well.
    let records = Archive::open(archive).ok()?.mtus(&of_host).ok()?;
    let last = records.iter().find(|record| record.found.host() == host)?;
    let look = last.found.report();
    let way = match direction {
        Direction::Up => &look.forward,
        Direction::Down => &look.reverse,
    };
    way.climb.passes
}

/// Bytes of a TCP segment's headers, without options.
fn tcp_header(to: SocketAddr) -> u32 {
    if to.is_ipv6() { 60 } else { 40 }
}

/// Bytes of the timestamps option, padded (RFC 7323 appendix A): the kernel's MSS leaves them out.
const TIMESTAMPS: u32 = 12;

/// The MSS of the peer's handshake, as far as it bounds the segments that a socket makes now.
fn handshake_mss(info: &model::SocketState) -> u32 {
    info.mss().unwrap_or(0) + options(info)
}

/// The MSS that this end announced.
fn announced_mss(info: &model::SocketState) -> u32 {
    info.advmss().unwrap_or(0) + options(info)
}

fn options(info: &model::SocketState) -> u32 {
    match info.timestamps() {
        Some(true) => TIMESTAMPS,
        _ => 0,
    }
}

/// Finds who is on the way, and whom larger packets reach; every hop is to quote a SYN to `tcp`, with the MSS that it
/// saw. What is not answered stays unknown.
fn trace_hops(
    climb: &mut Climb,
    ask: &Ask<'_>,
    tcp: SocketAddr,
    meanwhile: &mut dyn FnMut(),
) -> Result<()> {
    let found = probe::trace(ask, meanwhile).context("cannot trace the hops of the path")?;
    climb.hops = found.hops;
    climb.distance = found.distance;
    climb.too_big = climb.too_big.or(found.too_big);
    let count = u8::try_from(climb.hops.len()).unwrap_or(u8::MAX);
    let quoted = probe::quoted_syns(tcp, count, ask.wait, meanwhile).unwrap_or_default();
    for (hop, syn) in climb.hops.iter_mut().zip(quoted) {
        hop.mss = pmtud::mss_of_tcp(&syn);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::testing::TempDir;
    use model::mtu::{MTU_SCHEMA, Method, MtuReport, PathEnd, Way};

    #[test]
    fn headers_and_options_are_added_to_an_mss() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        assert_eq!(
            [tcp_header(at("10.0.0.1:1")), tcp_header(at("[::1]:1"))],
            [40, 60]
        );
        let info = |timestamps| {
            model::socket_state! {
                mss: Some(1448),
                advmss: Some(1400),
                timestamps: timestamps,
            }
        };
        let of = |timestamps| {
            let info = info(timestamps);
            [handshake_mss(&info), announced_mss(&info)]
        };
        assert_eq!(of(Some(true)), [1460, 1412]);
        assert_eq!([of(Some(false)), of(None)], [[1448, 1400]; 2]);
    }

    #[test]
    fn the_last_look_at_this_very_host_is_known_by_direction() {
        let dir = TempDir::new();
        let archive = dir.path().join("runs.db");
        let keep = |host: &str, forward: u32, reverse: u32| {
            let way = |passes| {
                let climb = Climb {
                    passes: Some(passes),
                    ..Climb::default()
                };
                local::way(&PathEnd::default(), None, climb, None, None)
            };
            let [forward, reverse]: [Way; 2] = [forward, reverse].map(way);
            let report = MtuReport {
                schema: MTU_SCHEMA,
                host: host.to_owned(),
                method: Method::Agent,
                forward,
                reverse,
                local: PathEnd::default(),
                remote: None,
                notes: Vec::new(),
            };
            store(Ok(archive.clone()), MtuFound::Look(Box::new(report)));
        };
        let known = |host: &str, direction| known(&archive, host, direction);
        assert_eq!(known("db2", Direction::Up), None);
        keep("db2", 1400, 1300);
        keep("db22", 9000, 8000);
        assert_eq!(known("db2", Direction::Up), Some(1400));
        assert_eq!(known("db2", Direction::Down), Some(1300));
        assert_eq!(known("db", Direction::Up), None);
    }
}

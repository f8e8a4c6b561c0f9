//! What on this host disturbs a leg: other measurements beside it, and a suspend of the machine.
//!
//! Each leg has an abstract Unix socket while it goes on, with a name that others in the network namespace can list: it is
//! gone with its process, needs no directory, and reveals only that a measurement goes on.

use crate::prelude::*;
use std::collections::{BTreeSet, VecDeque};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::MutexGuard;
use wire::hex;

const NAME: &str = "linerate/leg/";
/// Names of other measurements that are counted.
const MOST_OTHERS: usize = 1000;
/// Own legs that are remembered: both ends of a leg may be on this host, and one may end before the other looks.
const MOST_OWN: usize = 64;
/// A shorter suspend does no harm, and may be an error of reading two clocks.
const SHORTEST_SUSPEND: Duration = Duration::from_secs(1);

/// Watches this host during a leg.
pub struct LegWatch {
    _announced: Option<UnixDatagram>,
    suspended: Duration,
    others: BTreeSet<String>,
}

impl LegWatch {
    /// Begins. `tag` is alike at both ends of the leg, and not secret.
    pub fn begin(tag: &[u8]) -> LegWatch {
        let tag = hex(tag);
        let name = format!("{NAME}{tag}/{}", std::process::id());
        let mut own = own();
        own.push_back(tag);
        if own.len() > MOST_OWN {
            own.pop_front();
        }
        drop(own);
        let address = SocketAddr::from_abstract_name(name);
        LegWatch {
            _announced: address.and_then(|at| UnixDatagram::bind_addr(&at)).ok(),
            suspended: sys::clock::suspended(),
            others: names(),
        }
    }

    /// What happened since the beginning on the host that is called `whose`.
    pub fn end(mut self, whose: &str) -> Vec<Warning> {
        self.others.extend(names());
        let own = own();
        let others: BTreeSet<&str> = self
            .others
            .iter()
            .filter_map(|name| other(name, &own))
            .collect();
        let beside = (!others.is_empty()).then(|| Warning {
            what: match others.len() {
                1 => format!("{whose} took part in another measurement at the same time"),
                count => {
                    format!("{whose} took part in {count} other measurements at the same time")
                }
            },
            meaning:
                "they share its processors and links: the figures can be lower than the path's"
                    .to_owned(),
            remedy: "measure again when it is alone".to_owned(),
        });
        let slept = suspended_since(self.suspended).map(|time| Warning {
            what: format!("{whose} was suspended for {} during the leg", model::Nanos::from(time)),
            meaning: "nothing moved meanwhile, and its clock stood still: rates and times of this leg say nothing about the path".to_owned(),
            remedy: "measure again, and keep it awake".to_owned(),
        });
        beside.into_iter().chain(slept).collect()
    }
}

/// How long this host has been suspended since [`sys::clock::suspended`] was this, if it was.
pub fn suspended_since(before: Duration) -> Option<Duration> {
    let time = sys::clock::suspended().saturating_sub(before);
    (time >= SHORTEST_SUSPEND).then_some(time)
}

/// Another process' leg that this process has no part in.
fn other<'a>(name: &'a str, own: &VecDeque<String>) -> Option<&'a str> {
    let (tag, process) = name.split_once('/')?;
    let is_own = process == std::process::id().to_string() || own.iter().any(|own| own == tag);
    (!is_own).then_some(tag)
}

/// The legs of this network namespace.
fn names() -> BTreeSet<String> {
    let all = std::fs::read_to_string("/proc/thread-self/net/unix").unwrap_or_default();
    let names = all.lines().filter_map(|line| line.split_once(NAME));
    names
        .map(|(_, name)| name.to_owned())
        .take(MOST_OTHERS)
        .collect()
}

fn own() -> MutexGuard<'static, VecDeque<String>> {
    static OWN: Mutex<VecDeque<String>> = Mutex::new(VecDeque::new());
    sys::lock(&OWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn legs_of_other_processes_are_named_and_both_ends_of_an_own_one_are_not() {
        let watch = LegWatch::begin(b"mine");
        let bind = |name: &str| {
            let address = SocketAddr::from_abstract_name(format!("{NAME}{name}"));
            UnixDatagram::bind_addr(&address.unwrap()).unwrap()
        };
        // The remote side of this leg, in another process of this host; a leg of others, with both its sides here.
        let _remote = bind("6d696e65/1");
        let others = [bind("00ff/1"), bind("00ff/2")];
        let own = own().clone();
        let seen = names();
        let seen: BTreeSet<&str> = seen.iter().filter_map(|name| other(name, &own)).collect();
        assert!(
            seen.contains("00ff") && !seen.contains("6d696e65"),
            "{seen:?}"
        );
        let warnings = watch.end("this host");
        assert!(
            warnings[0].what.starts_with("this host took part in"),
            "{warnings:?}"
        );
        drop(others);
        assert!(!names().iter().any(|name| name.starts_with("00ff")));
    }

    #[test]
    fn a_suspend_is_what_the_clocks_differ_by_since() {
        let now = sys::clock::suspended();
        assert_eq!(suspended_since(now), None);
        assert_eq!(suspended_since(now + Duration::from_secs(5)), None);
        // Another thread of the test may be late, not early.
        if let Some(before) = now.checked_sub(Duration::from_secs(2)) {
            assert!(suspended_since(before) >= Some(Duration::from_secs(1)));
        }
    }
}

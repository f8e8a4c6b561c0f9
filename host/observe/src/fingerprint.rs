//! What this host is, as far as it bears on a transfer.

use crate::netlink::Rtnetlink;
use crate::unread::{Unreadable, why};
use crate::{device, route, sysctl, virtualisation};
use model::{Bytes, Congestion, Cpu, Fingerprint};
use std::fs;
use std::io;
use std::net::IpAddr;

/// Reads what this host is; with a `peer`, also the route to it and the device that it leaves by.
/// `version` is linerate's own.
///
/// Reads only, needs no privilege and never fails: what could not be read is in `unread`, with the
/// reason in words. Sees the network namespace of the calling thread.
pub fn fingerprint(version: &str, peer: Option<IpAddr>) -> Fingerprint {
    let mut unread = Unreadable::default();
    let mut host = Fingerprint {
        linerate: version.to_owned(),
        distribution: distribution(&mut unread),
        cpu: cpu(&mut unread),
        memory: memory(&mut unread),
        virtualisation: virtualisation::detect(),
        clock_source: unread.keep("clock source", read(CLOCK_SOURCE)),
        congestion: congestion(&mut unread),
        sysctls: sysctl::read(&mut unread),
        ..Fingerprint::default()
    };
    match sys::process::uname() {
        Ok(names) => {
            host.kernel = format!("{} {}", names.system, names.release);
            host.hostname = names.node;
            host.architecture = names.machine;
        }
        Err(error) => unread.push("names of host and kernel", why(&error)),
    }
    match peer {
        Some(peer) => read_path(&mut host, peer.to_canonical(), &mut unread),
        None => unread.push("route and leaving device", "no peer"),
    }
    host.unread = unread.into_list();
    host
}

const CLOCK_SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
const GOVERNOR: &str = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";
const ONLINE: &str = "/sys/devices/system/cpu/online";

fn read_path(host: &mut Fingerprint, peer: IpAddr, unread: &mut Unreadable) {
    let route_to = format!("route to {peer}");
    let mut netlink = match Rtnetlink::open() {
        Ok(netlink) => netlink,
        Err(error) => {
            return unread.push(
                format!("{route_to} and its device"),
                format!("no netlink socket: {}", why(&error)),
            );
        }
    };
    let resolved = match route::resolve(&mut netlink, peer) {
        Ok(resolved) => resolved,
        Err(error) => {
            return unread.push(
                format!("{route_to} and its device"),
                route::why_none(&error),
            );
        }
    };
    let mut route = resolved.route;
    match device::read(&mut netlink, resolved.device_index, unread) {
        Ok(device) => {
            route.device.clone_from(&device.name);
            host.device = Some(device);
        }
        Err(error) => unread.push(
            format!("device {} of the {route_to}", resolved.device_index),
            why(&error),
        ),
    }
    host.route = Some(route);
}

/// A small file of the kernel, white space at its ends cut.
fn read(path: &str) -> io::Result<String> {
    fs::read_to_string(path).map(|text| text.trim().to_owned())
}

fn missing(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// os-release(5): the pretty name, or the plain one.
fn distribution(unread: &mut Unreadable) -> Option<String> {
    let text = read("/etc/os-release").or_else(|_| read("/usr/lib/os-release"));
    let name = text.and_then(|text| {
        let value = |key| text.lines().find_map(|line| line.strip_prefix(key));
        value("PRETTY_NAME=")
            .or_else(|| value("NAME="))
            .map(|value| value.trim_matches(['"', '\'']).to_owned())
            .ok_or_else(|| missing("os-release names none"))
    });
    unread.keep("distribution", name)
}

fn cpu(unread: &mut Unreadable) -> Cpu {
    let cpuinfo = unread.keep("processors", read("/proc/cpuinfo"));
    let cpuinfo = cpuinfo.unwrap_or_default();
    let model = model_name(&cpuinfo)
        // Arm and others: the name of the board is in the device tree.
        .or_else(|| {
            read("/proc/device-tree/model")
                .ok()
                .map(|m| m.trim_matches('\0').to_owned())
        });
    let online = read(ONLINE).ok().and_then(|list| count_list(&list));
    let online = online.unwrap_or_else(|| {
        let processors = cpuinfo.lines().filter(|line| line.starts_with("processor"));
        u32::try_from(processors.count()).unwrap_or(u32::MAX)
    });
    let governor = match read(GOVERNOR) {
        Ok(governor) => Some(governor),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            unread.push(
                "frequency governor",
                "this kernel does not control the frequency, as usual in a virtual machine",
            );
            None
        }
        Err(error) => {
            unread.push("frequency governor", why(&error));
            None
        }
    };
    Cpu {
        model: unread
            .keep(
                "processor model",
                model.ok_or_else(|| missing("no name in /proc/cpuinfo")),
            )
            .unwrap_or_default(),
        online,
        governor,
    }
}

/// The first `model name` (x86), `Processor` or `cpu` line (Arm, POWER) of `/proc/cpuinfo`.
fn model_name(cpuinfo: &str) -> Option<String> {
    ["model name", "Processor", "cpu", "uarch"]
        .into_iter()
        .find_map(|wanted| {
            cpuinfo.lines().find_map(|line| {
                let (key, value) = line.split_once(':')?;
                (key.trim() == wanted).then(|| value.trim().to_owned())
            })
        })
}

/// How many numbers a list like `0-3,6` has (`Documentation/admin-guide/cputopology.rst`).
fn count_list(list: &str) -> Option<u32> {
    list.split(',').try_fold(0u32, |sum, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        sum.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

fn memory(unread: &mut Unreadable) -> Option<Bytes> {
    let total = read("/proc/meminfo").and_then(|text| {
        text.lines()
            .find_map(|line| line.strip_prefix("MemTotal:"))
            .and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok())
            .map(|kib| Bytes(kib.saturating_mul(1024)))
            .ok_or_else(|| missing("no MemTotal in /proc/meminfo"))
    });
    unread.keep("memory", total)
}

fn congestion(unread: &mut Unreadable) -> Option<Congestion> {
    let default = read("/proc/sys/net/ipv4/tcp_congestion_control");
    let available = read("/proc/sys/net/ipv4/tcp_available_congestion_control");
    let both = default.and_then(|default| Ok((default, available?)));
    let (default, available) = unread.keep("congestion control", both)?;
    Some(Congestion {
        default,
        available: available.split_whitespace().map(str::to_owned).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors() {
        assert_eq!(count_list("0"), Some(1));
        assert_eq!(count_list("0-3,6,8-9"), Some(7));
        for bad in ["", "a", "3-1", "0-4294967295"] {
            assert_eq!(count_list(bad), None, "{bad}");
        }
    }

    #[test]
    fn names_of_processors() {
        let x86 = "processor\t: 0\nmodel\t\t: 2\nmodel name\t: AMD EPYC\n";
        assert_eq!(model_name(x86).unwrap(), "AMD EPYC");
        let power = "processor\t: 0\ncpu\t\t: POWER9, altivec supported\n";
        assert_eq!(model_name(power).unwrap(), "POWER9, altivec supported");
        assert_eq!(model_name("processor\t: 0\n"), None);
    }
}

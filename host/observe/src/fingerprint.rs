//! What this host is, as far as it bears on a transfer.

use crate::proc::{field, read};
use crate::unread::{Unreadable, invalid, why};
use crate::{device, route, sysctl, virtualisation};
use model::{Bytes, Congestion, Cpu, Fingerprint};
use std::io;
use std::net::IpAddr;
use sys::netlink::{Conversation, Protocol};

/// Reads what this host is; with a `peer`, also the route to it and the device that it leaves by.
/// `version` is linerate's own.
///
/// Reads only, needs no privilege and never fails: what could not be read is in `unread`, with the
/// reason in words. Sees the network namespace of the calling thread.
pub fn fingerprint(version: &str, peer: Option<IpAddr>) -> Fingerprint {
    let mut unread = Unreadable::default();
    let mut host = Fingerprint {
        linerate: version.to_owned(),
        boot_id: unread.ok_or_note("boot id", sys::process::boot_id()),
        distribution: distribution(&mut unread),
        cpu: cpu(&mut unread),
        memory: memory(&mut unread),
        virtualisation: virtualisation::detect(),
        clock_source: unread.ok_or_note("clock source", read(CLOCK_SOURCE)),
        congestion: congestion(&mut unread),
        sysctls: sysctl::read(&mut unread),
        ..Fingerprint::default()
    };
    let [system, release];
    [system, host.hostname, release, host.architecture] = sys::process::uname();
    host.kernel = format!("{system} {release}");
    match peer {
        Some(peer) => read_path(&mut host, peer.to_canonical(), &mut unread),
        None => unread.push("route and leaving device", "no peer"),
    }
    host.unread = unread.into_list();
    host
}

const CLOCK_SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
const GOVERNOR: &str = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";

fn read_path(host: &mut Fingerprint, peer: IpAddr, unread: &mut Unreadable) {
    let what = format!("route to {peer} and its device");
    let netlink =
        Conversation::open(Protocol::Route).map_err(|e| format!("no netlink socket: {}", why(&e)));
    let resolved = netlink.and_then(|mut netlink| {
        let resolved = route::resolve(&mut netlink, peer).map_err(|e| route::why_none(&e))?;
        Ok((netlink, resolved))
    });
    let (mut netlink, resolved) = match resolved {
        Ok(resolved) => resolved,
        Err(why) => return unread.push(what, why),
    };
    let mut route = resolved.route;
    let index = resolved.device_index;
    let read = device::read(&mut netlink, index, unread);
    host.device = unread.ok_or_note(format!("device {index} of the route to {peer}"), read);
    if let Some(device) = &host.device {
        route.device.clone_from(&device.name);
    }
    host.route = Some(route);
}

/// os-release(5): the pretty name, or the plain one.
fn distribution(unread: &mut Unreadable) -> Option<String> {
    let text = read("/etc/os-release").or_else(|_| read("/usr/lib/os-release"));
    let name = text.and_then(|text| {
        field(&text, "PRETTY_NAME=")
            .or_else(|| field(&text, "NAME="))
            .map(|value| value.trim_matches(['"', '\'']).to_owned())
            .ok_or_else(|| invalid("os-release names none"))
    });
    unread.ok_or_note("distribution", name)
}

fn cpu(unread: &mut Unreadable) -> Cpu {
    let cpuinfo = unread.ok_or_note("processors", read("/proc/cpuinfo"));
    let cpuinfo = cpuinfo.unwrap_or_default();
    let model = model_name(&cpuinfo)
        // Arm and others: the name of the board is in the device tree.
        .or_else(|| {
            read("/proc/device-tree/model")
                .ok()
                .map(|m| m.trim_matches('\0').to_owned())
        });
    let online = aya::util::online_cpus().map(|processors| processors.len());
    let listed = || cpuinfo.lines().filter(|line| line.starts_with("processor"));
    let online = online.unwrap_or_else(|_| listed().count()) as u32;
    let governor = read(GOVERNOR).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            invalid("this kernel does not control the frequency, as usual in a virtual machine")
        }
        _ => error,
    });
    let model = model.ok_or_else(|| invalid("no name in /proc/cpuinfo"));
    Cpu {
        model: unread
            .ok_or_note("processor model", model)
            .unwrap_or_default(),
        online,
        governor: unread.ok_or_note("frequency governor", governor),
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

fn memory(unread: &mut Unreadable) -> Option<Bytes> {
    let total = read("/proc/meminfo").and_then(|text| {
        field(&text, "MemTotal:")
            .and_then(|size| size.strip_suffix("kB")?.trim().parse::<u64>().ok())
            .map(|kib| Bytes(kib.saturating_mul(1024)))
            .ok_or_else(|| invalid("no MemTotal in /proc/meminfo"))
    });
    unread.ok_or_note("memory", total)
}

fn congestion(unread: &mut Unreadable) -> Option<Congestion> {
    let default = read("/proc/sys/net/ipv4/tcp_congestion_control");
    let available = read("/proc/sys/net/ipv4/tcp_available_congestion_control");
    let both = default.and_then(|default| Ok((default, available?)));
    let (default, available) = unread.ok_or_note("congestion control", both)?;
    Some(Congestion {
        default,
        available: available.split_whitespace().map(str::to_owned).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_processors() {
        let x86 = "processor\t: 0\nmodel\t\t: 2\nmodel name\t: AMD EPYC\n";
        assert_eq!(model_name(x86).unwrap(), "AMD EPYC");
        let power = "processor\t: 0\ncpu\t\t: POWER9, altivec supported\n";
        assert_eq!(model_name(power).unwrap(), "POWER9, altivec supported");
        assert_eq!(model_name("processor\t: 0\n"), None);
    }
}

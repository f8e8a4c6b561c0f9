//! The probes in the kernel: loaded, attached, and gone with their owner.

use super::btf::BtfTypes;
use super::order::Snapshot;
use super::record::{DEVICE, HEADERS, PLACE, WORD, WORDS};
use super::{Error, Filter, TraceOptions};
use crate::proc;
use aya::maps::{Array, Map, MapError};
use aya::programs::cgroup_skb::CgroupSkbAttachType;
use aya::programs::{BtfTracePoint, CgroupAttachMode, CgroupSkb, FExit, Program, ProgramError};
use aya::{Btf, Ebpf, EbpfError, EbpfLoader};
use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use sys::bpf::SharedNumbers;

static OBJECT: &[u8] = aya::include_bytes_aligned!("../../../../bpf/linerate.bpf.o");

/// Steps of a socket that are reported where this kernel has the tracepoint.
const STEPS: [(&str, &str); 6] = [
    ("linerate_wrote", "sock_send_length"),
    ("linerate_read", "sock_recv_length"),
    ("linerate_state", "inet_sock_set_state"),
    ("linerate_congestion", "tcp_cong_state_set"),
    ("linerate_retransmitted", "tcp_retransmit_skb"),
    ("linerate_dropped", DROPS),
];

const DROPS: &str = "kfree_skb";

/// Before Linux 6.3: the tracepoint that is missing, and the function whose return is the same step, if the kernel lets functions
/// be traced.
const RETURNS: [(&str, &str, &str); 2] = [
    ("linerate_wrote_before", "sock_send_length", "tcp_sendmsg"),
    ("linerate_read_before", "sock_recv_length", RECEIVES),
];

const RECEIVES: &str = "tcp_recvmsg";

/// Numbers of `struct producer` (bpf/record.h).
const NUMBERS: usize = 16;
const TAKEN: usize = 0;
const LOST: usize = 1;
const GIVEN_BACK: usize = 8;

/// Events of a processor that lie in the same memory again and again while the reader is in time: few enough to stay in
/// the caches, some 400 KB.
const NEAR: usize = 1024;

/// Parts of the room for events that a processor has at least: where there are many, all have more.
const MOST_PARTS: usize = 8;

/// The attached probes. They are held by file descriptors alone, so they end with this process however it
/// ends.
pub(super) struct Probes {
    attached: Ebpf,
    /// Tracepoints that this kernel lacks, or does not let be traced.
    pub missing: Vec<&'static str>,
    /// The kernel's names of reasons to drop.
    pub drop_reasons: BTreeMap<u32, String>,
}

/// What the probes write: stays readable when they are detached.
pub(super) struct ProbeOutput {
    logs: SharedNumbers,
    /// Where they were asked for.
    headers: Option<SharedNumbers>,
    producers: SharedNumbers,
    pub processors: usize,
    /// In each log, beside the near ones.
    pub places: usize,
}

/// Loads the probes, attaches them, and lets them write from right after `starts`.
pub(super) fn attach(
    filter: &Filter,
    options: &TraceOptions,
    starts: impl FnOnce(),
) -> Result<(Probes, ProbeOutput), Error> {
    let btf = Btf::from_sys_fs()
        .map_err(|error| Error::refused("read the kernel's type information", error))?;
    let processors =
        aya::util::nr_cpus().map_err(|(_, error)| Error::refused("count the processors", error))?;
    // What it says of drops is wanted, and not needed.
    let types = fs::read("/sys/kernel/btf/vmlinux").unwrap_or_default();
    let types = BtfTypes::parse(&types);
    let drop_reasons = types
        .as_ref()
        .map(BtfTypes::drop_reasons)
        .unwrap_or_default();
    let drop_arguments = types.as_ref().map_or(0, |types| types.arguments(DROPS));
    // packet, place in the code, reason, and since Linux 6.11 who was to receive it
    let reports_drops = drop_arguments >= 3 && !drop_reasons.is_empty();
    let first_reason = drop_reasons.keys().next().copied().unwrap_or(0);
    let receives = types.map_or(0, |types| types.arguments_of_function(RECEIVES));
    let of_kernel = [
        ("first_reason", first_reason),
        ("drop_has_receiver", (drop_arguments >= 4).into()),
        ("recvmsg_arguments", receives as u32),
    ];
    let room = options.buffer_bytes as usize / (PLACE * size_of::<u64>());
    let places = (room / processors.min(MOST_PARTS)).max(2);
    let places = places.next_power_of_two() >> u32::from(!places.is_power_of_two());
    let mut ebpf = load(filter, options, of_kernel, &btf, (processors, places))?;
    let mut missing = check(&mut ebpf, reports_drops, &btf)?;
    // Not before: the programs are loaded with the maps' descriptors in them.
    let output = ProbeOutput::take(&mut ebpf, options, processors, places)?;
    connect(&mut ebpf, &mut missing)?;
    let refused = |error: MapError| Error::refused("start the probes", error);
    let running = ebpf
        .map_mut(".bss")
        .expect("the object has the variable, as its build shows");
    let mut running: Array<_, u32> = running.try_into().map_err(refused)?;
    starts();
    running.set(0, 1, 0).map_err(refused)?;
    let probes = Probes {
        attached: ebpf,
        missing,
        drop_reasons,
    };
    Ok((probes, output))
}

fn load(
    filter: &Filter,
    options: &TraceOptions,
    of_kernel: [(&str, u32); 3],
    btf: &Btf,
    (processors, places): (usize, usize),
) -> Result<Ebpf, Error> {
    let all = (processors * (NEAR.min(places) + places)) as u32;
    let host = filter.host.map(|host| match host.to_canonical() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    });
    let word = |at: usize| {
        host.and_then(|host| host[at..].first_chunk().copied())
            .map_or(0, u32::from_ne_bytes)
    };
    let numbers = [
        ("only_netns", filter.netns.unwrap_or(0)),
        ("only_pid", filter.pid.unwrap_or(0)),
        ("only_port", filter.port.unwrap_or(0).into()),
        ("only_host", host.is_some().into()),
        ("only_host_0", word(0)),
        ("only_host_1", word(4)),
        ("only_host_2", word(8)),
        ("only_host_3", word(12)),
        ("with_headers", options.headers.into()),
        ("every_call", options.calls.into()),
        ("test_delay", options.test_delay),
        ("near_places", NEAR.min(places) as u32),
        ("places", places as u32),
        ("ordered_stores", cfg!(target_arch = "x86_64").into()),
        ("test_clock_first", options.test_clock_first.into()),
    ];
    let cookie = filter.cookie.unwrap_or(0);
    let mut loader = EbpfLoader::new();
    loader
        .btf(Some(btf))
        .override_global("only_cookie", &cookie, true)
        .map_max_entries("producers", processors as u32)
        .map_max_entries("logs", all);
    if options.headers {
        loader.map_max_entries("headers", all);
    }
    for (name, value) in numbers.iter().chain(&of_kernel) {
        loader.override_global(name, value, true);
    }
    loader.load(OBJECT).map_err(|error| match &error {
        EbpfError::ProgramError(program) => refusal(program),
        _ => too_old().unwrap_or_else(|| Error::refused("load the probes", error)),
    })
}

/// Where probes cannot be loaded because of the kernel's age, that says more than what the kernel says.
fn too_old() -> Option<Error> {
    let [_, _, release, _] = sys::process::uname();
    is_too_old(&release).then(|| {
        let why = format!("they need Linux 5.12 or later, and this is {release}");
        Error::refused("load the probes", why)
    })
}

/// Linux 5.11 has the helper for the current task and the storage of sockets for tracing, 5.12 the cookie of a socket there and
/// compare-and-exchange.
fn is_too_old(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut number = || numbers.next().and_then(|digits| digits.parse::<u32>().ok());
    match (number(), number()) {
        (Some(major), Some(minor)) => (major, minor) < (5, 12),
        _ => false,
    }
}

const SEGMENTS: [(&str, CgroupSkbAttachType); 2] = [
    ("linerate_sent", CgroupSkbAttachType::Egress),
    ("linerate_received", CgroupSkbAttachType::Ingress),
];

/// Lets the kernel check every program; returns the tracepoints that it lacks, or does not let be traced.
fn check(ebpf: &mut Ebpf, reports_drops: bool, btf: &Btf) -> Result<Vec<&'static str>, Error> {
    for (name, _) in SEGMENTS {
        let program: &mut CgroupSkb = named(ebpf, name)?;
        program.load().map_err(|error| refusal(&error))?;
    }
    let mut missing = Vec::new();
    for (name, tracepoint) in STEPS {
        let program: &mut BtfTracePoint = named(ebpf, name)?;
        let useless = tracepoint == DROPS && !reports_drops;
        if useless || program.load(tracepoint, btf).is_err() {
            missing.push(tracepoint);
        }
    }
    for (name, tracepoint, function) in RETURNS {
        let program: &mut FExit = named(ebpf, name)?;
        if missing.contains(&tracepoint) {
            // One that is not loaded cannot be attached either.
            let _ = program.load(function, btf);
        }
    }
    Ok(missing)
}

/// What is traced instead is not missing.
fn connect(ebpf: &mut Ebpf, missing: &mut Vec<&str>) -> Result<(), Error> {
    let cgroup = sys::bpf::cgroup_root().map_err(|error| {
        Error::refused("find the root of the control groups (version 2)", error)
    })?;
    for (name, tracepoint) in STEPS {
        if !missing.contains(&tracepoint) {
            let program: &mut BtfTracePoint = named(ebpf, name)?;
            program.attach().map_err(|error| refusal(&error))?;
        }
    }
    for (name, tracepoint, _) in RETURNS {
        let program: &mut FExit = named(ebpf, name)?;
        if missing.contains(&tracepoint) && program.attach().is_ok() {
            missing.retain(|missing| *missing != tracepoint);
        }
    }
    for (name, direction) in SEGMENTS {
        let program: &mut CgroupSkb = named(ebpf, name)?;
        program
            .attach(&cgroup, direction, CgroupAttachMode::Single)
            .map_err(|error| refusal(&error))?;
    }
    Ok(())
}

fn named<'a, P>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut P, Error>
where
    &'a mut P: TryFrom<&'a mut Program, Error = ProgramError>,
{
    let program = ebpf
        .program_mut(name)
        .expect("the object has the program, as its build shows");
    program.try_into().map_err(|error| refusal(&error))
}

/// What the kernel said, without the verifier's thousands of lines.
fn refusal(error: &ProgramError) -> Error {
    if let Some(error) = too_old() {
        return error;
    }
    if let ProgramError::LoadError {
        io_error,
        verifier_log,
    } = error
    {
        let log = verifier_log.to_string();
        let figures = ["processed ", "verification time", "stack depth"];
        let reason = log.lines().rev().find(|line| {
            !line.is_empty() && !figures.iter().any(|figure| line.starts_with(figure))
        });
        let reason: String = reason.unwrap_or_default().chars().take(200).collect();
        return Error::refused("load a probe", format!("{io_error}: {reason}"));
    }
    Error::refused("attach the probes", error)
}

impl Probes {
    /// Events that the kernel left out because a probe interrupted itself: since the start.
    pub(super) fn skipped(&self) -> u64 {
        let of = |(_, program): (_, &Program)| -> Option<u64> {
            let fd = program.fd().ok()?.as_fd().as_raw_fd();
            let info = proc::read(format!("/proc/self/fdinfo/{fd}")).ok()?;
            proc::field(&info, "recursion_misses:")?.parse().ok()
        };
        self.attached.programs().filter_map(of).sum()
    }
}

impl ProbeOutput {
    fn take(
        ebpf: &mut Ebpf,
        options: &TraceOptions,
        processors: usize,
        places: usize,
    ) -> Result<ProbeOutput, Error> {
        let mut map = |name: &str, count: usize| {
            let Some(Map::Array(map)) = ebpf.take_map(name) else {
                unreachable!("the object has all maps, as its build shows");
            };
            SharedNumbers::map(map.fd().as_fd(), count)
                .map_err(|error| Error::refused("map what the probes write", error))
        };
        let all = processors * (NEAR.min(places) + places);
        Ok(ProbeOutput {
            logs: map("logs", all * PLACE)?,
            headers: match options.headers {
                true => Some(map("headers", all * HEADERS / size_of::<u64>())?),
                false => None,
            },
            producers: map("producers", processors * NUMBERS)?,
            processors,
            places,
        })
    }

    /// Reads what the order needs, in the order that it needs.
    pub(super) fn snapshot(&self) -> Snapshot {
        let clock_ns = super::monotonic().0;
        // Nothing below is read before the clock.
        std::sync::atomic::fence(Ordering::SeqCst);
        Snapshot {
            clock_ns,
            taken: self.each(TAKEN).collect(),
        }
    }

    /// Clock of an event (counted from 0 on each processor) and where it lies, near or not, once it is written.
    pub(super) fn find(&self, processor: u32, number: u64) -> Option<(u64, usize)> {
        let near = self.near();
        let log = processor as usize * (near + self.places);
        let places = [
            log + (number as usize & (near - 1)),
            log + near + (number as usize & (self.places - 1)),
        ];
        places.into_iter().find_map(|at| {
            let place = &self.logs.numbers()[at * PLACE..][..2];
            let is_there = place[0].load(Ordering::Acquire) == number + 1;
            is_there.then(|| (place[1].load(Ordering::Relaxed), at))
        })
    }

    /// Near places of each log.
    pub(super) fn near(&self) -> usize {
        NEAR.min(self.places)
    }

    /// An event that was found; the device of a drop behind it (`struct place`); its headers.
    pub(super) fn event(&self, at: usize) -> (&[AtomicU64; WORDS], &[AtomicU64], &[AtomicU64]) {
        const DEVICE_WORDS: usize = DEVICE / WORD;
        const HEADERS_WORDS: usize = HEADERS / WORD;
        let place = &self.logs.numbers()[at * PLACE..][..PLACE];
        let event = place[1..].split_first_chunk();
        let (event, behind) = event.expect("a place has room for an event");
        let headers = self.headers.as_ref();
        let headers = headers.map_or(&[][..], |all| {
            &all.numbers()[at * HEADERS_WORDS..][..HEADERS_WORDS]
        });
        (event, &behind[..DEVICE_WORDS], headers)
    }

    /// Of each processor, the places before this one can be overwritten.
    pub(super) fn give_back(&self, until: &[u64]) {
        for (producer, until) in self.producers.numbers().chunks(NUMBERS).zip(until) {
            producer[GIVEN_BACK].store(*until, Ordering::Release);
        }
    }

    /// Events for which there was no place, since the start.
    pub(super) fn lost(&self) -> u64 {
        self.each(LOST).sum()
    }

    fn each(&self, number: usize) -> impl Iterator<Item = u64> {
        let producers = self.producers.numbers().chunks(NUMBERS);
        producers.map(move |producer| producer[number].load(Ordering::Acquire))
    }
}

#[cfg(test)]
mod tests {
    use super::is_too_old;

    #[test]
    fn kernels_without_what_the_probes_need_are_known_by_their_release() {
        for old in ["5.10.0-32-amd64", "4.19.0", "5.11.22+"] {
            assert!(is_too_old(old), "{old}");
        }
        for new in ["5.12.0-rc1", "6.1.0-56-amd64", "10.0", "unknown"] {
            assert!(!is_too_old(new), "{new}");
        }
    }
}

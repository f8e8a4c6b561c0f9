//! What netem did, as far as the kernel counts it, and how late it was.
//!
//! A processor that is full runs netem's timers late, and nothing in the kernel counts by how much. So probes pass
//! through a link of the same make, from each processor in turn.

use crate::emulator_counters::{Emulator, LinkBackend, LinkCounters};
use crate::netns_holder::{IP, TC, run};
use crate::{Error, netem, plan};
use emulate::{Direction, Drops, EmulatorCounters, FrameTally, Link, QueueDepth, Shape};
use hdrhistogram::Histogram;
use libc::{RTM_GETQDISC, RTM_NEWQDISC, TCA_KIND, TCA_STATS2};
use model::{Latency, Nanos};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, SystemTime};
use sys::lock;
use sys::netlink::{Conversation, Protocol, attribute, attributes, text, u32_at, u64_at};
use sys::packet::{Inbox, PacketSocket, VNET_HEADER};
use sys::poll::{PollFd, poll};

/// Between two probes, while frames move; whether they do is seen after so many.
const EVERY: Duration = Duration::from_millis(10);
const PROBES: u32 = 20;

/// Between two looks whether frames move.
const IDLE: Duration = Duration::from_millis(50);

/// What netem is to hold a probe back.
const DELAY: Nanos = Nanos::from_millis(1);

/// A probe that is not there by then counts as late by so much.
const LATEST: Nanos = Nanos::from_millis(500);

/// A minimal frame of a type for experiments (IEEE 802, 0x88b5) behind its virtio-net header; the number of the probe is
/// behind the link layer.
const PROBE: usize = VNET_HEADER + 60;
const NUMBER: usize = VNET_HEADER + 14;

/// The links that netem makes.
pub(crate) struct Netem {
    links: Vec<(usize, Link)>,
    netlink: Mutex<Conversation>,
    /// How late probes were, in nanoseconds.
    lateness: Arc<Mutex<Histogram<u64>>>,
}

impl Netem {
    /// Watches these links, each with its number, from now on. To be called in the emulator's namespace.
    pub(crate) fn watch(links: Vec<(usize, Link)>) -> Result<Netem, Error> {
        // Two digits: a value is right within 1 %.
        let lateness = Histogram::new(2).expect("two digits are within what the histogram allows");
        let lateness = Arc::new(Mutex::new(lateness));
        // Numbers below those of the links.
        let devices = "link add name probe0 index 900000 type veth peer name probe1 index 900001\n\
                       link add name probe2 index 900002 type veth peer name probe3 index 900003\n\
                       link set probe0 up\nlink set probe1 up\nlink set probe2 up\nlink set probe3 up\n";
        run(&IP, devices, None, "probes of netem")?;
        let shape = Shape {
            delay: DELAY,
            ..Shape::default()
        };
        let delay = netem::commands(&shape, "probe2").expect("netem can express a delay");
        let commands = delay + &netem::pass("probe1", "probe2");
        run(&TC, &commands, None, "probes of netem")?;
        let open = |device| {
            let what = format!("open a packet socket on {device}");
            PacketSocket::open(device, 1 << 16).map_err(Error::system(what))
        };
        let sockets = [open("probe0")?, open("probe3")?];
        let converse =
            || Conversation::open(Protocol::Route).map_err(Error::system("open a netlink socket"));
        let (netlink, into) = (converse()?, Arc::clone(&lateness));
        sys::spawn("netem", move || send_probes(&sockets, netlink, &into))
            .map_err(Error::system("start the thread that watches netem"))?;
        let netlink = converse()?;
        Ok(Netem {
            links,
            netlink: Mutex::new(netlink),
            lateness,
        })
    }

    /// The account of each link; what cannot be read stays empty.
    pub(crate) fn counters(&self) -> Vec<LinkCounters> {
        let all = disciplines(&mut lock(&self.netlink));
        let late = lock(&self.lateness);
        let late = late.iter_recorded();
        let late = late.map(|v| (v.value_iterated_to(), v.count_at_value()));
        let late = Latency::from_counts(late);
        let account = |(number, link): &(usize, Link)| {
            let [forward, backward] = Direction::BOTH.map(|direction| {
                let end = direction as usize;
                let [from, to] = [end, 1 - end].map(|end| plan::emulator_index(*number, end));
                account(&all, from as u32, to as u32, link.shape(direction))
            });
            LinkCounters {
                link: link.name.clone(),
                backend: LinkBackend::Netem,
                forward,
                backward,
                too_long: [0; 2],
                emulator: Emulator {
                    lateness: late.clone(),
                    ..Emulator::default()
                },
            }
        };
        self.links.iter().map(account).collect()
    }
}

fn send_probes(
    sockets: &[PacketSocket; 2],
    mut netlink: Conversation,
    lateness: &Mutex<Histogram<u64>>,
) {
    // Where it is not allowed, it is as prompt as any other thread.
    let _ = sys::sched::wake_on_time();
    let _ = sys::sched::run_first().or_else(|_| sys::sched::run_in_short_turns());
    let mut cpus = sys::sched::allowed_cpus().unwrap_or_default();
    let mut inbox = Inbox::default();
    let (mut seen, mut number, mut awake) = (0, 0, None);
    loop {
        let links = disciplines(&mut netlink).into_iter();
        let links = links.filter(|one| one.device as usize >= plan::FIRST_INNER_INDEX);
        let entered = links.map(|one| one.sent.frames).sum::<u64>();
        if entered == seen {
            awake = None;
            thread::sleep(IDLE);
            continue;
        }
        seen = entered;
        // As the emulator: a sleeping processor runs timers late.
        awake = awake.or_else(|| sys::sched::keep_awake().ok());
        for _ in 0..PROBES {
            thread::sleep(EVERY);
            number += 1;
            // A timer of the kernel stays on the processor that has set it.
            if let Some(cpu) = cpus.first() {
                let _ = sys::sched::run_on(&[*cpu]);
                cpus.rotate_left(1);
            }
            if let Some(late) = probe(sockets, &mut inbox, number) {
                // It grows as needed, so no value is too large for it.
                let _ = lock(lateness).record(late.0);
            }
        }
    }
}

/// What the kernel counts of all queueing disciplines of the emulator's namespace; nothing where it cannot be read.
fn disciplines(netlink: &mut Conversation) -> Vec<Counted> {
    let all = netlink.dump(RTM_GETQDISC, &[0; 20]).unwrap_or_default();
    let all = all.iter().filter(|answer| answer.kind == RTM_NEWQDISC);
    all.filter_map(|answer| counted(&answer.body)).collect()
}

/// How late a probe was; `None` where that cannot be said.
fn probe(sockets: &[PacketSocket; 2], inbox: &mut Inbox, number: u64) -> Option<Nanos> {
    let mut frame = [0; PROBE];
    frame[VNET_HEADER..][..6].fill(0xff);
    frame[NUMBER - 2..][..2].copy_from_slice(&[0x88, 0xb5]);
    frame[NUMBER..][..8].copy_from_slice(&number.to_be_bytes());
    let before = SystemTime::now();
    sockets[0].send([frame.as_slice()].into_iter()).ok()?;
    let due = before.duration_since(SystemTime::UNIX_EPOCH).ok()? + DELAY.into();
    loop {
        let waited = Nanos::from(before.elapsed().ok()?);
        let mut fds = [PollFd::new(sockets[1].as_fd(), true, false)];
        let ready = poll(&mut fds, Some(LATEST.since(waited).into()));
        if waited >= LATEST || matches!(ready, Ok(0)) {
            return Some(LATEST);
        }
        inbox.receive(&sockets[1]).ok()?;
        let ours = |bytes: &[u8]| bytes.get(NUMBER..NUMBER + 8) == Some(&number.to_be_bytes());
        if let Some((_, stamp)) = inbox.frames().find(|(bytes, _)| ours(bytes)) {
            return Some(Nanos::from(stamp?.saturating_sub(due)));
        }
    }
}

/// Parent of the discipline at the root (`TC_H_ROOT`).
const ROOT: u32 = u32::MAX;

/// What the kernel counts of one queueing discipline.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Counted {
    device: u32,
    parent: u32,
    kind: String,
    /// What left it.
    sent: FrameTally,
    /// What is in it.
    inside: FrameTally,
    drops: u64,
}

/// From `struct tcmsg` and its attributes (`include/uapi/linux/gen_stats.h`).
fn counted(body: &[u8]) -> Option<Counted> {
    /// `TCA_STATS_*`.
    const BASIC: u16 = 1;
    const QUEUE: u16 = 3;
    const PACKETS_64: u16 = 8;
    let all = body.get(20..)?;
    let mut counted = Counted {
        device: u32_at(body, 4)?,
        parent: u32_at(body, 12)?,
        kind: attribute(all, TCA_KIND).map(text).unwrap_or_default(),
        ..Counted::default()
    };
    let word = |value: &[u8], at| u32_at(value, at).map_or(0, u64::from);
    for (kind, value) in attributes(attribute(all, TCA_STATS2)?) {
        match kind {
            BASIC => {
                counted.sent.wire_bytes = u64_at(value, 0)?;
                counted.sent.frames = counted.sent.frames.max(word(value, 8));
            }
            // Beside the one of 32 bits, where that is too small.
            PACKETS_64 => counted.sent.frames = u64_at(value, 0)?,
            QUEUE => {
                counted.inside = FrameTally {
                    frames: word(value, 0),
                    wire_bytes: word(value, 4),
                };
                counted.drops = word(value, 8);
            }
            _ => {}
        }
    }
    Some(counted)
}

/// The account of one direction: from the device where frames come in to the one that they leave by.
fn account(all: &[Counted], from: u32, to: u32, shape: &Shape) -> EmulatorCounters {
    let find = |device, kind: &str, is_root: bool| {
        let found = all.iter().find(|one| {
            one.device == device && one.kind == kind && (one.parent == ROOT) == is_root
        });
        found.cloned().unwrap_or_default()
    };
    let (delay, line) = (find(to, "netem", true), find(to, "netem", false));
    // What the line does not take is counted by the discipline above it, too.
    let frames = |frames| FrameTally {
        frames,
        wire_bytes: 0,
    };
    let dropped = Drops {
        loss: frames(delay.drops.saturating_sub(line.drops)),
        queue: frames(line.drops),
        ..Drops::default()
    };
    let out = delay.sent.frames + delay.drops + delay.inside.frames;
    // Counted at the entry, a moment before or after.
    let entered = find(from, "ingress", false).sent.frames;
    let copies = match shape.duplicate {
        Some(_) => out.saturating_sub(entered),
        None => 0,
    };
    // The first frame is on the line.
    let queued = line.inside.frames.saturating_sub(1);
    EmulatorCounters {
        offered: frames(out - copies),
        delivered: delay.sent,
        dropped,
        duplicated: frames(copies),
        waiting: delay.inside,
        queue: QueueDepth {
            packets: queued,
            bytes: 0,
        },
        rate: shape.rate,
        ..EmulatorCounters::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sys::netlink::{nest, push};

    fn one(device: u32, parent: u32, kind: &str, sent: u64, inside: u32, drops: u32) -> Counted {
        let mut body = vec![0; 20];
        body[4..8].copy_from_slice(&device.to_ne_bytes());
        body[12..16].copy_from_slice(&parent.to_ne_bytes());
        push(&mut body, TCA_KIND, format!("{kind}\0").as_bytes());
        let mut stats = Vec::new();
        let basic = [(sent * 1538).to_ne_bytes(), sent.to_ne_bytes()].concat();
        push(&mut stats, 1, &basic);
        let queue = [inside, inside * 1538, drops, 0, 0].map(u32::to_ne_bytes);
        push(&mut stats, 3, &queue.concat());
        nest(&mut body, TCA_STATS2, &stats);
        counted(&body).unwrap()
    }

    #[test]
    fn drops_of_the_line_are_its_queues_and_the_others_are_loss() {
        // The discipline above counts those of the line, too.
        let all = [
            one(1, 0xffff_fff1, "ingress", 100, 0, 0),
            one(2, ROOT, "netem", 80, 7, 13),
            one(2, 0x0001_0001, "netem", 80, 5, 10),
        ];
        let of = account(&all, 1, 2, &Shape::default());
        assert_eq!((of.offered.frames, of.delivered.frames), (100, 80));
        assert_eq!((of.dropped.queue.frames, of.dropped.loss.frames), (10, 3));
        assert_eq!((of.waiting.frames, of.queue.packets), (7, 4));
        assert_eq!(of.delivered.wire_bytes, 80 * 1538);
    }

    #[test]
    fn copies_are_what_left_and_did_not_come() {
        let all = [
            one(1, 0xffff_fff1, "ingress", 100, 0, 0),
            one(2, ROOT, "netem", 110, 2, 3),
        ];
        let shape = Shape {
            duplicate: Some(emulate::Duplicate { probability: 0.1 }),
            ..Shape::default()
        };
        let of = account(&all, 1, 2, &shape);
        assert_eq!((of.offered.frames, of.duplicated.frames), (100, 15));
    }
}

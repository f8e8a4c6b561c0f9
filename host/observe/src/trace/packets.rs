//! Where no probe may run: a packet socket for the segments, and the kernel's account of every socket from time to time.
//! One thread reads both, and brings them into the order of their clocks.

use super::batch::{Batch, Content};
use super::completeness::TraceCompleteness;
use super::flows::{Caught, Flows, SocketHolder};
use super::worker::{Orders, Worker};
use super::{
    Error, Filter, TraceOptions, filter, monotonic, netns_at, netns_files, own_netns, wall,
};
use crate::socket_diag::{DiagReport, DiagSockets, Pair};
use crate::socket_owners::SocketOwners;
use libc::{IFA_ADDRESS, IFA_LOCAL, RTM_GETADDR, RTM_NEWADDR};
use model::{Bytes, Lost, Nanos, Segment, TraceRecord, TraceSample, TraceSource, What};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::mpsc::{RecvError, SyncSender, sync_channel};
use std::time::Duration;
use sys::netlink::{Conversation, Protocol, address, attribute};
use sys::packet_ring::{PacketRing, RingPacket};

/// `LINKTYPE_RAW`: a packet begins with its header of IP.
const RAW: i32 = 101;

/// Pause between two reads of the ring.
const PAUSE: Duration = Duration::from_millis(2);

/// Packets come in the order of their places in the ring; their clocks were read shortly before.
const HOLD: Nanos = Nanos::from_millis(1);

/// Samples of the sockets take at most one part in this many of the time.
const SHARE: u64 = 10;

/// The same of looks at the processes that hold them.
const OWNERS_SHARE: u64 = 20;

/// The wall clock, by which packets are stamped, was set where it departs from the other by more.
const JUMP: u64 = 1_000_000;

/// Between two reads of the addresses of this host, where a packet has one that is not known.
const RARELY: Nanos = Nanos::from_millis(1_000);

/// What was found at the start of the thread.
pub(super) struct Started {
    pub source: TraceSource,
    /// What could not be had.
    pub missing: Option<String>,
    pub at: Nanos,
}

/// Begins to watch the network namespace of the filter; time 0 is now.
pub(super) fn start(filter: &Filter, options: &TraceOptions) -> Result<(Worker, Started), Error> {
    let (report, reported) = sync_channel(1);
    let (filter, options) = (*filter, *options);
    // A namespace is entered by a thread alone.
    let worker = Worker::start("packets", move |sender, _, orders| {
        match PacketWatch::open(filter, options) {
            Ok((watch, missing)) => {
                let source = match watch.ring {
                    Some(_) => TraceSource::Packets,
                    None => TraceSource::Samples,
                };
                let at = watch.start;
                // Whoever started this waits for it.
                let _ = report.send(Ok(Started {
                    source,
                    missing,
                    at,
                }));
                watch.run(sender, orders);
            }
            Err(error) => drop(report.send(Err(error))),
        }
    })?;
    let ended = |error: RecvError| Error::refused("begin in the thread that watches", error);
    Ok((worker, reported.recv().map_err(ended)??))
}

/// What waits to be handed on in its order.
enum Waiting {
    Packet(Box<Caught>, Box<[u8]>),
    Sample(Pair, Box<TraceSample>, u64),
}

/// The state of the thread.
struct PacketWatch {
    filter: Filter,
    options: TraceOptions,
    ring: Option<PacketRing>,
    sockets: Option<DiagSockets>,
    routes: Option<Conversation>,
    own: HashSet<IpAddr>,
    addresses_read: Option<Nanos>,
    processes: SocketOwners,
    /// As last asked.
    holders: HashMap<Pair, (u64, u32)>,
    flows: Flows,
    start: Nanos,
    /// What the wall clock is ahead of the other.
    wall: Nanos,
    asked: Nanos,
    next: Nanos,
    checked: Nanos,
    last: Nanos,
    waiting: Vec<(Nanos, Waiting)>,
    batch: Batch,
    completeness: TraceCompleteness,
}

impl PacketWatch {
    /// With what could not be had, in words.
    fn open(filter: Filter, options: TraceOptions) -> Result<(PacketWatch, Option<String>), Error> {
        enter(&filter)?;
        let ring = PacketRing::open(options.buffer_bytes as usize, &filter::program(&filter));
        let sockets = DiagSockets::open(&filter);
        let without = match (&ring, &sockets) {
            (Ok(_), Ok(_)) => None,
            (Err(error), Ok(_)) => Some(format!(
                "no packets either ({error}; they take the right CAP_NET_RAW): only samples of the sockets"
            )),
            (Ok(_), Err(error)) => Some(format!("no samples of the sockets ({error})")),
            (Err(ring), Err(sockets)) => {
                return Err(Error::impossible(format!(
                    "packets cannot be captured ({ring}; it takes the right CAP_NET_RAW), nor sockets asked ({sockets})"
                )));
            }
        };
        let start = monotonic();
        let watch = PacketWatch {
            ring: ring.ok(),
            sockets: sockets.ok(),
            routes: Conversation::open(Protocol::Route).ok(),
            own: HashSet::new(),
            addresses_read: None,
            processes: SocketOwners::within(OWNERS_SHARE),
            holders: HashMap::new(),
            flows: Flows::new(own_netns().unwrap_or(0)),
            start,
            wall: wall().since(start),
            asked: Nanos(0),
            next: Nanos(0),
            checked: Nanos(0),
            last: Nanos(0),
            waiting: Vec::new(),
            batch: Batch::default(),
            completeness: TraceCompleteness::default(),
            filter,
            options,
        };
        Ok((watch, without))
    }

    fn run(mut self, sender: &SyncSender<Batch>, orders: &Orders) {
        orders.run_first();
        loop {
            let last = orders.to_stop();
            self.round(last);
            if last {
                self.batch.completeness = Some(std::mem::take(&mut self.completeness));
            }
            let batch = std::mem::take(&mut self.batch);
            let is_empty = batch.content.len() == 0 && batch.lost.is_none();
            // Waits while the channel is full: the ring takes what comes meanwhile.
            let is_taken = is_empty && !last || sender.send(batch).is_ok();
            if last || !is_taken {
                return;
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn now(&self) -> Nanos {
        monotonic().since(self.start)
    }

    fn round(&mut self, last: bool) {
        self.drain();
        self.ended();
        let now = self.now();
        if now >= self.next || last {
            self.sample_sockets();
            self.asked = now;
            let took = self.now().since(now);
            self.next = now + self.options.every.max(Nanos(took.0 * SHARE));
        }
        // Whose a packet is must be known where that decides: once its socket had the time to be met.
        let picky = self.filter.pid.is_some() || self.filter.cookie.is_some();
        let until = match (last, picky) {
            (true, _) => Nanos(u64::MAX),
            (_, true) => self.asked.min(now.since(HOLD)),
            (_, false) => now.since(HOLD),
        };
        self.release(until, last);
    }

    /// Empties the ring, and counts what it had no room for.
    fn drain(&mut self) {
        let Some(mut ring) = self.ring.take() else {
            return;
        };
        let ahead = wall().since(monotonic());
        if ahead.0.abs_diff(self.wall.0) > JUMP {
            self.wall = ahead;
        }
        ring.take(&mut |packet| self.catch(&packet));
        let now = self.now();
        if let Some(events) = ring.take_drops().ok().filter(|drops| *drops > 0) {
            self.batch.loses(Lost {
                from: self.checked,
                to: now,
                events: events.into(),
            });
        }
        self.checked = now;
        self.ring = Some(ring);
    }

    fn catch(&mut self, packet: &RingPacket<'_>) {
        let at = Nanos::from(packet.at).since(self.wall).since(self.start);
        let Ok(mut decoded) = capture::packet(RAW, packet.ip, at) else {
            return;
        };
        let number = |high: u8, low: u8| usize::from(u16::from_be_bytes([high, low]));
        let (tos, ttl, said) = match *packet.ip {
            [first, tos, a, b, _, _, _, _, ttl, ..] if first >> 4 == 4 => (tos, ttl, number(a, b)),
            [first, second, _, _, 0, 0, _, ttl, ..] => (first << 4 | second >> 4, ttl, 0),
            [first, second, _, _, a, b, _, ttl, ..] => {
                (first << 4 | second >> 4, ttl, number(a, b) + 40)
            }
            _ => return,
        };
        // Longer than its header can say: then what was kept was taken for all of it.
        let length = match said {
            0 => packet.length,
            said => said,
        };
        if said == 0 {
            let beyond = packet.length.saturating_sub(packet.ip.len());
            decoded.payload = decoded.payload.saturating_add(beyond as u32);
        }
        let segments = match packet.segment_size {
            0 => 1,
            size => decoded.payload.div_ceil(size.into()).max(1),
        };
        let segment = Segment {
            at,
            what: if packet.outgoing {
                What::Sent
            } else {
                What::Received
            },
            seq: decoded.seq,
            ack: decoded.ack,
            flags: decoded.flags,
            window: decoded.window.into(),
            stamps: decoded.stamps,
            payload: Bytes(decoded.payload.into()),
            segments,
            segment_size: if segments == 1 {
                0
            } else {
                packet.segment_size.into()
            },
            tos,
            ttl,
            length: length as u32,
            ..Segment::default()
        };
        let caught = Caught {
            packet: decoded,
            device: packet.device,
            segment,
        };
        let (local, remote) = caught.pair();
        if !self.wants((local, remote)) || !self.is_own(local.ip()) {
            return;
        }
        let headers = length.saturating_sub(decoded.payload as usize);
        let headers = headers.min(packet.ip.len());
        let kept = match self.options.headers {
            true => packet.ip[..headers].into(),
            false => Box::default(),
        };
        self.waiting
            .push((at, Waiting::Packet(Box::new(caught), kept)));
    }

    /// Whether the filter matches this connection, as far as addresses show.
    fn wants(&self, (local, remote): Pair) -> bool {
        let port = |port| local.port() == port || remote.port() == port;
        let host = |host: IpAddr| {
            let host = host.to_canonical();
            local.ip() == host || remote.ip() == host
        };
        self.filter.port.is_none_or(port) && self.filter.host.is_none_or(host)
    }

    /// Whether an address is this host's: what it only forwards is of no socket here.
    fn is_own(&mut self, ip: IpAddr) -> bool {
        if ip.is_loopback() || self.own.contains(&ip) {
            return true;
        }
        let now = self.now();
        if self
            .addresses_read
            .is_none_or(|read| now.since(read) >= RARELY)
        {
            self.addresses_read = Some(now);
            self.read_addresses();
        }
        self.own.contains(&ip)
    }

    fn read_addresses(&mut self) {
        // `struct ifaddrmsg`, of 8 bytes.
        let routes = self.routes.as_mut();
        let answers = routes.and_then(|routes| routes.dump(RTM_GETADDR, &[0; 8]).ok());
        for answer in answers
            .into_iter()
            .flatten()
            .filter(|a| a.kind == RTM_NEWADDR)
        {
            let all = answer.body.get(8..).unwrap_or_default();
            // Where the two differ, the second is the peer's.
            let own = attribute(all, IFA_LOCAL).or_else(|| attribute(all, IFA_ADDRESS));
            self.own.extend(own.and_then(address));
        }
    }

    /// Samples every socket, and finds in `/proc` whose they are.
    fn sample_sockets(&mut self) {
        let Some(mut sockets) = self.sockets.take() else {
            return;
        };
        let mut met = Vec::new();
        // A dump that fails is one that is missing: the next comes soon.
        let _ = sockets
            .poll(&mut |pair, report| met.push((monotonic().since(self.start), pair, report)));
        self.sockets = Some(sockets);
        met.retain(|(_, pair, _)| self.wants(*pair));
        let new = |inode: u32| inode != 0 && self.processes.of(inode).is_none();
        if self.filter.pid.is_some() || met.iter().any(|(.., report)| new(report.inode)) {
            let clock = || monotonic().since(self.start);
            self.processes.sample(self.filter.pid, clock);
        }
        self.holders.clear();
        for (at, pair, report) in met {
            self.holders.insert(pair, (report.cookie, report.inode));
            self.sampled(at, pair, report, false);
        }
    }

    fn ended(&mut self) {
        let Some(mut sockets) = self.sockets.take() else {
            return;
        };
        sockets.ended(&mut |pair, mut report| {
            if self.wants(pair) {
                // At its end a socket has no inode any more.
                let (cookie, inode) = *self.holders.entry(pair).or_insert((report.cookie, 0));
                report.inode = if cookie == report.cookie { inode } else { 0 };
                // Not earlier: its last packets come before it, once the ring was read again.
                self.sampled(self.now(), pair, report, true);
            }
        });
        self.sockets = Some(sockets);
    }

    fn sampled(&mut self, at: Nanos, pair: Pair, report: DiagReport, gone: bool) {
        let (pid, comm) = self.processes.of(report.inode).unwrap_or_default();
        if !self.is_wanted(report.cookie, pid) {
            return;
        }
        let sample = TraceSample {
            at,
            pid,
            comm,
            gone,
            ..report.sample
        };
        let waiting = Waiting::Sample(pair, Box::new(sample), report.cookie);
        self.waiting.push((at, waiting));
    }

    /// Whether the filter matches this socket.
    fn is_wanted(&self, cookie: u64, pid: u32) -> bool {
        self.filter.cookie.is_none_or(|only| only == cookie)
            && self.filter.pid.is_none_or(|only| only == pid)
    }

    /// Hands on what is older than `until`, in its order.
    fn release(&mut self, until: Nanos, last: bool) {
        self.waiting.sort_by_key(|(at, _)| *at);
        let ready = self.waiting.partition_point(|(at, _)| *at < until);
        let mut records = Vec::new();
        for (at, waiting) in self.waiting.drain(..ready).collect::<Vec<_>>() {
            self.batch.unordered += u64::from(at < self.last);
            self.last = self.last.max(at);
            match waiting {
                Waiting::Packet(caught, mut headers) => {
                    let (cookie, inode) = self
                        .holders
                        .get(&caught.pair())
                        .copied()
                        .unwrap_or_default();
                    let (pid, comm) = self.processes.of(inode).unwrap_or_default();
                    if self.is_wanted(cookie, pid) {
                        let holder = SocketHolder { cookie, pid, comm };
                        self.flows.packet(&caught, holder, &mut |record| {
                            let headers = match record {
                                TraceRecord::Segment(_) => std::mem::take(&mut headers),
                                _ => Box::default(),
                            };
                            records.push((record, headers));
                        });
                    }
                }
                Waiting::Sample(pair, sample, cookie) => {
                    let each = &mut |record| records.push((record, Box::default()));
                    self.flows.sample((pair, *sample), cookie, last, each);
                }
            }
        }
        for (record, _) in &records {
            self.completeness.push(record);
            if let TraceRecord::Segment(segment) = record {
                self.batch.events += 1;
                let users = &mut self.batch.users;
                users.push(segment.pid, || segment.comm, segment.at);
            }
        }
        self.batch.content = Content::Records(records);
    }
}

/// Moves the calling thread into the namespace that the filter names.
pub(crate) fn enter(filter: &Filter) -> Result<(), Error> {
    let Some(wanted) = filter.netns else {
        return Err(Error::impossible(
            "packets are captured in one network namespace at a time; name it with --netns",
        ));
    };
    if own_netns() == Some(wanted) {
        return Ok(());
    }
    let is_it = |path: &PathBuf| netns_at(path) == Some(wanted);
    let path = netns_files().find(is_it).ok_or_else(|| {
        Error::impossible("the network namespace has no name and no process any more")
    })?;
    File::open(path)
        .and_then(|file| sys::namespace::enter_net(file.as_fd()))
        .map_err(|error| {
            Error::refused(
                "enter the network namespace (it takes CAP_SYS_ADMIN)",
                &error,
            )
        })
}

/// What such a trace lacks in comparison with one of probes, in a sentence.
pub(super) fn limits(source: TraceSource, every: Nanos) -> String {
    match source {
        TraceSource::Samples => format!(
            "this trace has samples of the sockets, {every} apart: no segments, and nothing of what happened between two samples but what their counters say"
        ),
        _ => format!(
            "this trace has packets as they pass the device, in the order of their timestamps, and samples of the sockets, {every} apart (shown behind a ~): a socket's state at a segment, the processor, calls of the application, and drops inside this host are not known"
        ),
    }
}

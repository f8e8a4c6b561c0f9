//! The options of a run; together they make its order.

use super::uses::Given;
use crate::global::{Version, by_name};
use crate::prelude::*;
use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Command, FromArgMatches};
use engine::chance;
use model::{
    BlockOperation, BlockServer, BlockStore, Blocks, Bulk, Cache, Directions, FileCopy, OptionUnit,
    Placement, Request, SOCKET_OPTIONS, SocketKnob, SocketOption, SocketSettings, Udp, WaitMode,
    Workload, WorkloadKind,
};

/// All options of a run.
#[derive(Args)]
#[command(group = ArgGroup::new("direction"))]
pub struct RunOptions {
    // The first: each field takes its own out of the matches.
    #[command(flatten)]
    given: Given,
    #[command(flatten)]
    what: WhatArgs,
    #[command(flatten)]
    load: LoadOptions,
    #[command(flatten)]
    datagrams: DatagramOptions,
    #[command(flatten)]
    copy: CopyOptions,
    #[command(flatten)]
    files: FileOptions,
    #[command(flatten)]
    blocks: BlockOptions,
}

/// The options of a run that experiments have too: their workload and direction come from the question.
#[derive(Args)]
#[command(group = ArgGroup::new("end"))]
pub struct LoadOptions {
    // The first, as in [`RunOptions`].
    #[command(flatten)]
    given: Given,
    #[command(flatten)]
    amount: Amount,
    #[command(flatten)]
    sockets: SocketArgs,
    #[command(flatten)]
    place: PlaceOption,
    #[command(flatten)]
    bulk: BulkOptions,
    #[command(flatten)]
    requests: RequestOptions,
}

#[derive(Args)]
#[command(next_help_heading = "What to measure")]
struct WhatArgs {
    /// Only from here to HOST
    #[arg(long, group = "direction")]
    up: bool,
    /// Only from HOST to here
    #[arg(long, short = 'R', visible_alias = "reverse", group = "direction")]
    down: bool,
    /// Both directions at once
    #[arg(long, group = "direction")]
    bidir: bool,
    /// Kind of load [default: bulk; at an NFS server: blocks]
    #[arg(long, value_name = "KIND", value_parser = workloads())]
    workload: Option<String>,
    /// Record every segment of the data connections with its socket's state, at both hosts
    #[arg(long)]
    trace: bool,
}

#[derive(Args)]
#[command(next_help_heading = "What to measure")]
struct Amount {
    /// Connections (of requests thousands)
    #[arg(short = 'P', long, visible_alias = "concurrency", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=65_535), value_name = "N")]
    streams: u32,
    /// Duration of each leg [default: 10s; of prove: 12s]
    #[arg(short = 't', long, group = "end", value_name = "TIME")]
    time: Option<Nanos>,
    /// End a leg after this much, all streams together
    #[arg(short = 'n', long, group = "end", value_name = "SIZE")]
    bytes: Option<Bytes>,
    /// End a leg after this many replies (request, blocks)
    #[arg(long, group = "end", value_name = "N")]
    requests: Option<u64>,
    /// Start of a leg that the steady figures omit [default: 2s or 20 RTTs]
    #[arg(short = 'O', long, visible_alias = "omit", value_name = "TIME")]
    ramp: Option<Nanos>,
    /// Time between samples of the sockets, from 10ms
    #[arg(short = 'i', long, default_value = "100ms", value_name = "TIME")]
    interval: Nanos,
}

/// Options of the data sockets: a flag for each row of [`SOCKET_OPTIONS`], and those that are no numbers.
#[derive(Args)]
#[command(next_help_heading = "Sockets")]
struct SocketArgs {
    /// Send and receive buffer, at both hosts
    #[arg(short = 'w', long, value_name = "SIZE", value_parser = buffer)]
    sockbuf: Option<Bytes>,
    #[command(flatten)]
    numbers: SocketNumbers,
    /// Congestion control of the sender
    #[arg(short = 'C', long, value_name = "NAME")]
    congestion: Option<String>,
    #[command(flatten)]
    version: Version,
}

/// The rows of [`SOCKET_OPTIONS`] as options.
#[derive(Default)]
struct SocketNumbers(SocketSettings);

impl Args for SocketNumbers {
    fn augment_args(command: Command) -> Command {
        command.args(SOCKET_OPTIONS.iter().map(|option| {
            let arg = Arg::new(option.name).long(option.name).help(option.help);
            let arg = arg.short(option.short);
            let name = match option.unit {
                OptionUnit::Switch => return arg.action(ArgAction::SetTrue),
                OptionUnit::Bytes => "SIZE",
                OptionUnit::BitRate => "RATE",
                OptionUnit::Count => "N",
            };
            arg.value_name(name)
                .value_parser(|text: &str| option.parse(text))
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        SocketNumbers::augment_args(command)
    }
}

impl FromArgMatches for SocketNumbers {
    fn from_arg_matches(matches: &ArgMatches) -> Result<SocketNumbers, clap::Error> {
        let mut numbers = SocketNumbers::default();
        numbers.update_from_arg_matches(matches)?;
        Ok(numbers)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for option in &SOCKET_OPTIONS {
            let value = match option.unit {
                OptionUnit::Switch => matches.get_flag(option.name).then_some(1),
                _ => matches.get_one(option.name).copied(),
            };
            if let Some(value) = value {
                (option.order)(&mut self.0, value);
            }
        }
        Ok(())
    }
}

#[derive(Args)]
#[command(next_help_heading = "Placement")]
struct PlaceOption {
    /// Local source address
    #[arg(short = 'B', long, value_name = "ADDRESS")]
    bind: Option<IpAddr>,
    /// Local network device
    #[arg(long, value_name = "DEVICE")]
    bind_device: Option<String>,
    /// Processors for the local stream threads, like 0,2
    #[arg(short = 'A', long, value_delimiter = ',', value_name = "LIST")]
    cpus: Vec<u32>,
    /// Processors for the stream threads at HOST
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    remote_cpus: Vec<u32>,
}

#[derive(Args)]
#[command(next_help_heading = "Bulk")]
struct BulkOptions {
    /// Bytes a write [default: adapts, up to 1M]
    #[arg(short = 'l', long, value_name = "SIZE")]
    write_size: Option<Bytes>,
    /// The receiver discards in the kernel: measures the path, not the reader
    #[arg(long)]
    discard: bool,
    /// The sender's pages leave without a copy (splice)
    #[arg(short = 'Z', long)]
    zerocopy: bool,
}

#[derive(Args)]
#[command(next_help_heading = "Requests")]
struct RequestOptions {
    /// Bytes of a request
    #[arg(long, default_value = "128", value_name = "SIZE")]
    request_size: Bytes,
    /// Bytes of a reply
    #[arg(long, default_value = "8K", value_name = "SIZE")]
    reply_size: Bytes,
    /// Requests a second, all connections together [default: closed loop]
    #[arg(long, value_name = "N")]
    pace: Option<f64>,
    /// A new connection for every request
    #[arg(long)]
    reconnect: bool,
    /// Wait for data spinning some microseconds first (what the network takes), or asleep
    #[arg(long, value_parser = by_name::<WaitMode>(["hybrid", "block"]), default_value = "hybrid")]
    wait: WaitMode,
}

#[derive(Args)]
#[command(next_help_heading = "Rate and datagrams")]
struct DatagramOptions {
    /// Rate of each stream, or unlimited: of bulk and copies the same as --pacing [default: of udp 1M, else unlimited]
    #[arg(short = 'b', long, value_name = "RATE", conflicts_with = "pacing", value_parser = stream_rate)]
    rate: Option<BitRate>,
    /// Payload of a datagram (--workload udp): 24 to 65507 bytes, at iperf3 servers from 16
    #[arg(long, default_value = "1448", value_name = "SIZE")]
    datagram_size: Bytes,
}

#[derive(Args)]
#[command(next_help_heading = "Copies")]
struct CopyOptions {
    /// Source at the sender
    #[arg(long, default_value = MEMORY, value_name = "memory|FILE")]
    from: String,
    /// Destination at the receiver: memory, or a new file
    #[arg(long, default_value = MEMORY, value_name = "memory|FILE")]
    to: String,
    /// Remove the copy once it is safe and verified
    #[arg(long)]
    no_keep: bool,
    /// Compare memory and file at either host, in a random order; keeps no copy
    #[arg(long)]
    corners: bool,
    /// Copies of each corner
    #[arg(long, default_value_t = 3, value_name = "N", requires = "corners")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
}

#[derive(Args)]
#[command(next_help_heading = "Files of copies and blocks")]
struct FileOptions {
    /// Page cache of the file before: emptied, filled, or untouched
    #[arg(long, value_parser = by_name::<Cache>(["cold", "hot", "as-is"]), default_value = "cold")]
    cache: Cache,
    /// Bypass the page cache (O_DIRECT)
    #[arg(long)]
    direct: bool,
}

#[derive(Args)]
#[command(next_help_heading = "Blocks")]
struct BlockOptions {
    /// Bytes of a read or write [default: 8K]
    #[arg(long, value_name = "SIZE")]
    block: Option<Bytes>,
    /// Requests outstanding on each connection; a list, like 1,8,32, measures each [default: 1]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1024))]
    depth: Vec<u32>,
    /// Operations in turn, like read=7,write=3: of read, write, write-stable, commit and, of NFS, getattr
    /// [default: read; of NFS: read,write,getattr,commit]
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = parse_mix)]
    mix: Vec<(BlockOperation, u32)>,
    /// Blocks in a random order, each once before any repeats
    #[arg(long)]
    random: bool,
    /// Seed of that order [default: random]
    #[arg(long, value_name = "N", requires = "random")]
    seed: Option<u32>,
    /// Backing store on the server: memory, DIR (unlinked temporary file) or FILE (read-only) [default: memory]
    #[arg(long, value_name = "STORE")]
    store: Option<String>,
    /// Bytes of the file [default: all of FILE, 1G of a new one; of NFS, on each connection: 16M]
    #[arg(long, value_name = "SIZE")]
    file_size: Option<Bytes>,
}

/// A size of buffers that a kernel takes.
fn buffer(text: &str) -> Result<Bytes, String> {
    let bytes: Bytes = text.parse()?;
    let option = SocketOption::of(SocketKnob::SendBuffer).ok_or("no buffers can be set")?;
    option.parse(text).map(|_| bytes)
}

/// A rate of a stream that a kernel paces; 0 is as fast as it goes.
fn stream_rate(text: &str) -> Result<BitRate, String> {
    if matches!(text, "0" | "unlimited") {
        return Ok(BitRate(0));
    }
    let option = SocketOption::of(SocketKnob::Pacing).ok_or("no rate can be set")?;
    option.parse(text).map(BitRate)
}

/// What stands for no file.
const MEMORY: &str = "memory";

/// The file, unless memory is meant.
fn file(name: &str) -> Option<String> {
    (name != MEMORY).then(|| name.to_owned())
}

fn workloads() -> PossibleValuesParser {
    let value = |kind: &WorkloadKind| PossibleValue::new(kind.name).help(kind.help);
    PossibleValuesParser::new(WorkloadKind::ALL.map(value))
}

impl RunOptions {
    /// The order for this peer.
    pub fn spec(&self, peer: &Host) -> Result<Spec> {
        let workload = self.workload(peer)?;
        let directions = match (self.what.up, self.what.down, self.what.bidir) {
            (true, ..) => Directions::Up,
            (_, true, _) => Directions::Down,
            (.., true) => Directions::Bidirectional,
            _ if workload.kind().one_leg => Directions::Up,
            _ => Directions::UpThenDown,
        };
        self.given.check(workload.kind().name, Some(peer))?;
        if self.what.trace && workload.reconnects() {
            refuse!(
                "--trace follows connections that last: leave out --reconnect, or watch with 'linerate trace'"
            );
        }
        if directions != Directions::Up && workload.reconnects() {
            refuse!("--reconnect opens connections from here: leave out --down and --bidir");
        }
        let rate = self.datagrams.rate;
        let rate = rate.filter(|rate| rate.0 > 0 && !workload.is_udp());
        let usual = workload.usual_limit();
        let mut spec = self.load.spec(workload, directions, usual)?;
        spec.trace = self.what.trace;
        spec.socket.pacing = spec.socket.pacing.or(rate);
        Ok(spec)
    }

    /// The rounds of `--corners`, if asked for.
    pub fn corners(&self) -> Option<u32> {
        self.copy.corners.then_some(self.copy.rounds)
    }

    /// The depths of blocks, if there are several.
    pub fn depths(&self) -> Option<&[u32]> {
        Some(self.blocks.depth.as_slice()).filter(|depths| depths.len() > 1)
    }

    fn workload(&self, peer: &Host) -> Result<Workload> {
        let name = self.what.workload.as_deref();
        if let Some(export) = peer.export() {
            if !matches!(name, None | Some("request" | "blocks")) {
                refuse!("an NFS server reads and writes: leave out --workload, or use blocks");
            }
            return self.nfs_blocks(export).map(Workload::Blocks);
        }
        let name = name.unwrap_or("bulk");
        Ok(match name {
            "request" => self.load.request(),
            "udp" => Workload::Udp(Udp {
                rate: self.datagrams.rate.unwrap_or(BitRate(1_000_000)),
                datagram_size: self.datagrams.datagram_size,
            }),
            "copy" => Workload::Copy(self.copy()?),
            "blocks" => Workload::Blocks(self.peer_blocks()?),
            "bulk" => self.load.bulk(),
            other => refuse!("--workload {other} has no options: this is a fault of linerate"),
        })
    }

    fn nfs_blocks(&self, export: &str) -> Result<Blocks> {
        if self.what.down || self.what.bidir {
            refuse!("an NFS server sends no requests: leave out --down and --bidir");
        }
        let usual = [
            BlockOperation::Read,
            BlockOperation::Write,
            BlockOperation::Getattr,
            BlockOperation::Commit,
        ];
        let file_size = self.blocks.file_size;
        let file_size = file_size.unwrap_or(Bytes(16 << 20).max(self.blocks.block()));
        let server = BlockServer::Nfs {
            export: export.to_owned(),
            file_size,
        };
        self.blocks(server, Bytes(1), file_size, &usual)
    }

    fn peer_blocks(&self) -> Result<Blocks> {
        let blocks = &self.blocks;
        if self.what.bidir {
            refuse!("blocks have one client: leave out --bidir; with --down HOST is the client");
        }
        let getattr = |(one, _): &(BlockOperation, u32)| *one == BlockOperation::Getattr;
        if blocks.mix.iter().any(getattr) {
            refuse!("--mix getattr is for NFS servers: use read, write, write-stable or commit");
        }
        let store = BlockStore {
            store: blocks.store.as_deref().and_then(file),
            file_size: blocks.file_size,
            cache: self.files.cache,
            direct: self.files.direct,
        };
        if store.store.is_none() && (self.given.has("cache") || store.direct) {
            refuse!("--cache and --direct are about files: add --store DIR or --store FILE");
        }
        let largest = blocks.file_size.unwrap_or(BlockStore::SIZE);
        let server = BlockServer::Peer(store);
        let order = self.blocks(server, Blocks::SMALLEST, largest, &[BlockOperation::Read])?;
        let deepest = blocks.depth.iter().max();
        if let Some(depth) = deepest.filter(|depth| **depth > Blocks::DEEPEST) {
            refuse!(
                "--depth {depth}: each request may take a thread at the server, so at most {}",
                Blocks::DEEPEST
            );
        }
        Ok(order)
    }

    fn blocks(
        &self,
        server: BlockServer,
        smallest: Bytes,
        file: Bytes,
        usual: &[BlockOperation],
    ) -> Result<Blocks> {
        let (blocks, requests) = (&self.blocks, &self.load.requests);
        let block = blocks.block();
        if block < smallest || block > Bytes(64 << 20) || file < block {
            refuse!(
                "--block {block}: from {smallest} to 64M, and no more than the file has (--file-size {file})"
            );
        }
        Ok(Blocks {
            server,
            block,
            depth: blocks.depth.first().copied().unwrap_or(1),
            mix: match blocks.mix.is_empty() {
                true => usual.to_vec(),
                false => in_turn(&blocks.mix),
            },
            random: blocks.random,
            seed: match blocks.seed {
                Some(seed) => seed.into(),
                None => u32::from_be_bytes(chance::bytes()?).into(),
            },
            wait: requests.wait,
        })
    }

    fn copy(&self) -> Result<FileCopy> {
        let options = &self.copy;
        if self.what.bidir {
            refuse!("a copy has one direction: leave out --bidir; --down copies from HOST to here");
        }
        if options.from.is_empty() || options.to.is_empty() {
            refuse!("--from and --to need the name of a file, or memory");
        }
        if options.corners && (options.from == MEMORY || options.to == MEMORY) {
            refuse!(
                "--corners compares memory with files: name a file with --from and a new one with --to"
            );
        }
        let given = &self.given;
        if given.has("cache") && options.from == MEMORY {
            refuse!("--cache is about the file that is read: add --from FILE");
        }
        if self.files.direct && options.from == MEMORY && options.to == MEMORY {
            refuse!("--direct is about files: add --from FILE or --to FILE");
        }
        if options.no_keep && options.to == MEMORY {
            refuse!("--no-keep removes the copy: add --to FILE");
        }
        Ok(FileCopy {
            from: file(&options.from),
            to: file(&options.to),
            cache: self.files.cache,
            direct: self.files.direct,
            keep: !options.no_keep,
        })
    }
}

impl LoadOptions {
    /// The order for this workload in these directions; `usual` ends a leg if no option does.
    ///
    /// # Errors
    /// Options out of bounds, or that do not fit together.
    pub fn spec(
        &self,
        workload: Workload,
        directions: Directions,
        usual: LegLimit,
    ) -> Result<Spec> {
        let amount = &self.amount;
        let limit = match (amount.time, amount.bytes, amount.requests) {
            (Some(time), ..) => LegLimit::Time(time),
            (_, Some(bytes), _) => LegLimit::Bytes(bytes),
            (.., Some(requests)) => LegLimit::Requests(requests),
            (None, None, None) => usual,
        };
        match limit {
            LegLimit::Time(Nanos(0)) => refuse!("--time must be greater than 0"),
            LegLimit::Bytes(Bytes(0)) => refuse!("--bytes must be greater than 0"),
            LegLimit::Requests(0) => refuse!("--requests must be greater than 0"),
            _ => {}
        }
        if amount.interval < Nanos::from_millis(10) {
            let interval = amount.interval;
            refuse!("--interval {interval}: the shortest between two samples is 10 ms");
        }
        let possible = workload.check_streams(amount.streams);
        possible.map_err(Refusal::usage)?;
        // What an NFS server takes it says itself.
        if !matches!(&workload, Workload::Blocks(order) if order.store().is_none()) {
            workload.check(amount.streams).map_err(Refusal::usage)?;
        }
        self.given.check(workload.kind().name, None)?;
        let (sockets, place) = (&self.sockets, &self.place);
        let settings = &sockets.numbers.0;
        Ok(Spec {
            directions,
            workload,
            streams: amount.streams,
            limit,
            ramp: amount.ramp,
            interval: amount.interval,
            trace: false,
            socket: SocketSettings {
                send_buffer: settings.send_buffer.or(sockets.sockbuf),
                receive_buffer: settings.receive_buffer.or(sockets.sockbuf),
                congestion: sockets.congestion.clone(),
                ip_version: sockets.version.chosen(),
                ..settings.clone()
            },
            local: Placement {
                bind_address: place.bind,
                bind_device: place.bind_device.clone(),
                cpus: place.cpus.clone(),
            },
            remote: Placement {
                cpus: place.remote_cpus.clone(),
                ..Placement::default()
            },
        })
    }

    pub fn bulk(&self) -> Workload {
        Workload::Bulk(Bulk {
            write_size: self.bulk.write_size,
            discard: self.bulk.discard,
            zerocopy: self.bulk.zerocopy,
        })
    }

    pub fn request(&self) -> Workload {
        let options = &self.requests;
        Workload::Request(Request {
            request_size: options.request_size,
            reply_size: options.reply_size,
            pace_per_s: options.pace,
            reconnect: options.reconnect,
            wait: options.wait,
        })
    }
}

impl BlockOptions {
    fn block(&self) -> Bytes {
        self.block.unwrap_or(Bytes(8 << 10))
    }
}

/// Largest share of an operation in a mix.
const PARTS: u32 = 100;

/// An operation and its share of the mix.
fn parse_mix(text: &str) -> Result<(BlockOperation, u32), String> {
    let (name, parts) = text.split_once('=').unwrap_or((text, "1"));
    let operation = crate::global::named(name)
        .ok_or("it is one of read, write, write-stable, getattr and commit")?;
    let parts = parts.parse().ok().filter(|n| (1..=PARTS).contains(n));
    let parts = parts.ok_or_else(|| format!("1 to {PARTS} parts are possible, like read=7"))?;
    Ok((operation, parts))
}

/// Operations in turn, spread as evenly as their parts allow: the one that is most behind its share comes next.
fn in_turn(mix: &[(BlockOperation, u32)]) -> Vec<BlockOperation> {
    fn divisor(a: u32, b: u32) -> u32 {
        if b == 0 { a } else { divisor(b, a % b) }
    }
    let common = mix.iter().fold(0, |all, (_, parts)| divisor(all, *parts));
    let parts: Vec<i64> = mix
        .iter()
        .map(|(_, n)| i64::from(n / common.max(1)))
        .collect();
    let all: i64 = parts.iter().sum();
    let mut behind = vec![0; mix.len()];
    (0..all)
        .filter_map(|_| {
            behind.iter_mut().zip(&parts).for_each(|(one, n)| *one += n);
            let most = *behind.iter().max()?;
            let next = behind.iter().position(|one| *one == most)?;
            behind[next] -= all;
            Some(mix[next].0)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_come_in_turn_by_their_parts() {
        let turns = |mix: &[&str]| {
            let mix: Vec<_> = mix.iter().map(|one| parse_mix(one).unwrap()).collect();
            in_turn(&mix)
        };
        use BlockOperation::{Commit, Read, Write};
        assert_eq!(turns(&["read", "write", "commit"]), [Read, Write, Commit]);
        let seventy = turns(&["read=70", "write=30"]);
        assert_eq!(seventy.len(), 10);
        let writes = |some: &[BlockOperation]| some.iter().filter(|one| **one == Write).count();
        assert_eq!((writes(&seventy), writes(&seventy[..5])), (3, 1));
        assert!(turns(&[]).is_empty());
        for bad in ["reads", "read=0", "read=101", "read=x", ""] {
            assert!(parse_mix(bad).is_err(), "{bad}");
        }
    }
}

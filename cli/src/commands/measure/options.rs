//! What to measure and how, as options; together they make the order for a run.

use crate::global::Version;
use anyhow::{Result, bail};
use clap::{ArgGroup, Args, ValueEnum};
use engine::chance;
use engine::peer::Peer;
use model::{
    BitRate, BlockOperation, BlockServer, BlockStore, Blocks, Bulk, Bytes, Cache, Directions,
    FileCopy, Limit, Nanos, Placement, Request, SocketSettings, Spec, Udp, Wait, Workload,
};
use std::net::IpAddr;

/// Everything that the order for a run is made of.
#[derive(Args)]
#[command(group = ArgGroup::new("direction"))]
pub struct Order {
    #[command(flatten)]
    way: Way,
    #[command(flatten)]
    load: Load,
    #[command(flatten)]
    datagrams: Datagrams,
    #[command(flatten)]
    copy: CopyOptions,
    #[command(flatten)]
    files: FileOptions,
    #[command(flatten)]
    blocks: BlockOptions,
}

/// The order for a run but for what moves, and which way.
#[derive(Args)]
#[command(group = ArgGroup::new("end"))]
pub struct Load {
    #[command(flatten)]
    what: What,
    #[command(flatten)]
    sockets: Sockets,
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    bulk: BulkOptions,
    #[command(flatten)]
    requests: Requests,
}

/// What moves, and which way.
#[derive(Args)]
#[command(next_help_heading = "What to measure")]
struct Way {
    /// Only from here to HOST
    #[arg(long, group = "direction")]
    up: bool,
    /// Only from HOST to here
    #[arg(long, short = 'R', visible_alias = "reverse", group = "direction")]
    down: bool,
    /// Both ways at once
    #[arg(long, group = "direction")]
    bidir: bool,
    /// What moves [default: bulk; at an NFS server: request]
    #[arg(long, value_enum)]
    workload: Option<Kind>,
    /// Record every segment of the data connections with its socket's state, at both ends
    #[arg(long)]
    trace: bool,
}

/// How much, how long.
#[derive(Args)]
#[command(next_help_heading = "What to measure")]
struct What {
    /// Connections, each with a thread of its own
    #[arg(short = 'P', long, visible_alias = "concurrency", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=128), value_name = "N")]
    streams: u32,
    /// How long each run sends, one way [default: 10s; of prove: 12s]
    #[arg(short = 't', long, group = "end", value_name = "TIME")]
    time: Option<Nanos>,
    /// Ends a leg after this much, all streams together
    #[arg(short = 'n', long, group = "end", value_name = "SIZE")]
    bytes: Option<Bytes>,
    /// Ends a leg after this many answers (request workload)
    #[arg(long, group = "end", value_name = "N")]
    requests: Option<u64>,
    /// Start of a leg that the steady figures leave out [default: 2s or 20 round trips]
    #[arg(short = 'O', long, visible_alias = "omit", value_name = "TIME")]
    ramp: Option<Nanos>,
    /// Time between samples, from 10ms
    #[arg(short = 'i', long, default_value = "1s", value_name = "TIME")]
    interval: Nanos,
}

/// Options of the data sockets.
#[derive(Args)]
#[command(next_help_heading = "Sockets")]
struct Sockets {
    /// Send and receive buffer of the data sockets, at both ends
    #[arg(short = 'w', long, value_name = "SIZE")]
    sockbuf: Option<Bytes>,
    /// Send buffer alone
    #[arg(long, value_name = "SIZE")]
    send_buffer: Option<Bytes>,
    /// Receive buffer alone
    #[arg(long, value_name = "SIZE")]
    receive_buffer: Option<Bytes>,
    /// Largest segment, in bytes
    #[arg(short = 'M', long, value_name = "BYTES")]
    #[arg(value_parser = clap::value_parser!(u32).range(88..=65495))]
    mss: Option<u32>,
    /// Congestion control of the sender
    #[arg(short = 'C', long, value_name = "NAME")]
    congestion: Option<String>,
    /// Send small segments at once (TCP_NODELAY); always on for requests
    #[arg(short = 'N', long)]
    nodelay: bool,
    /// Highest rate of each stream, paced by the kernel
    #[arg(long, value_name = "RATE")]
    pacing: Option<BitRate>,
    /// Unsent data beyond which the sender's kernel takes no more (TCP_NOTSENT_LOWAT)
    #[arg(long, value_name = "SIZE")]
    notsent_lowat: Option<Bytes>,
    /// Differentiated services code point: 0 to 63, or a name like EF, AF21, CS1
    #[arg(long, value_name = "DSCP", value_parser = parse_dscp)]
    dscp: Option<u8>,
    #[command(flatten)]
    version: Version,
}

/// Where the load runs.
#[derive(Args)]
#[command(next_help_heading = "Placement")]
struct Place {
    /// Source address here
    #[arg(short = 'B', long, value_name = "ADDRESS")]
    bind: Option<IpAddr>,
    /// Network device here
    #[arg(long, value_name = "DEVICE")]
    bind_device: Option<String>,
    /// Processors for the stream threads here, like 0,2
    #[arg(short = 'A', long, value_delimiter = ',', value_name = "LIST")]
    cpus: Vec<u32>,
    /// Processors for the stream threads at HOST
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    far_cpus: Vec<u32>,
}

/// Of bulk transfer.
#[derive(Args)]
#[command(next_help_heading = "Bulk")]
struct BulkOptions {
    /// Bytes a write [default: adapts, up to 1M]
    #[arg(short = 'l', long, value_name = "SIZE")]
    write_size: Option<Bytes>,
    /// The receiver discards in the kernel: measures the path, not the reader
    #[arg(long)]
    discard: bool,
    /// The sender asks for zero-copy
    #[arg(short = 'Z', long)]
    zerocopy: bool,
}

/// Of request and response.
#[derive(Args)]
#[command(next_help_heading = "Requests")]
struct Requests {
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
    /// How both ends wait for data
    #[arg(long, value_enum, default_value_t = WaitArg::Hybrid)]
    wait: WaitArg,
}

/// Of datagrams.
#[derive(Args)]
#[command(next_help_heading = "Datagrams")]
struct Datagrams {
    /// Rate of each stream of datagrams (workload udp, iperf3 only)
    #[arg(short = 'b', long, default_value = "1M", value_name = "RATE")]
    rate: BitRate,
    /// Payload of a datagram
    #[arg(long, default_value = "1448", value_name = "SIZE")]
    datagram_size: Bytes,
}

/// Of copies.
#[derive(Args)]
#[command(next_help_heading = "Copies")]
struct CopyOptions {
    /// What the sender copies: memory, or a file
    #[arg(long, default_value = "memory", value_name = "memory|FILE")]
    from: String,
    /// Where the receiver copies it to: memory, or a new file
    #[arg(long, default_value = "memory", value_name = "memory|FILE")]
    to: String,
    /// Remove the copy once it is safe and verified
    #[arg(long)]
    no_keep: bool,
    /// All four: memory and the file at either end, in a random order; no copy is kept
    #[arg(long)]
    corners: bool,
    /// How often each corner is copied
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
}

/// Of the files of copies and blocks.
#[derive(Args)]
#[command(next_help_heading = "Files of copies and blocks")]
struct FileOptions {
    /// What the page cache is to hold of the file that is read before
    #[arg(long, value_enum, default_value_t = CacheArg::Cold)]
    cache: CacheArg,
    /// Past the page cache (O_DIRECT)
    #[arg(long)]
    direct: bool,
}

/// Of blocks, here or at an NFS server.
#[derive(Args)]
#[command(next_help_heading = "Blocks")]
struct BlockOptions {
    /// Bytes of a read or write [default: 8K]
    #[arg(long, value_name = "SIZE")]
    block: Option<Bytes>,
    /// Requests that each connection has outstanding; several, like 1,8,32, are measured one after the other
    /// [default: 1]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1024))]
    depth: Vec<u32>,
    /// What each connection asks in turn, like read=7,write=3: of read, write (may stay in memory), write-stable,
    /// commit and, of NFS, getattr [default: read; of NFS: read,write,getattr,commit]
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = parse_mix)]
    mix: Vec<(BlockOperation, u32)>,
    /// Blocks by chance, each once before any comes again, not one after the other
    #[arg(long)]
    random: bool,
    /// Where that chance comes from, to have the same order again [default: by chance]
    #[arg(long, value_name = "N")]
    seed: Option<u32>,
    /// What has the blocks at the end that is asked: a directory, where a file is made that has no name, or a file,
    /// which is only read
    #[arg(long, default_value = "memory", value_name = "memory|DIR|FILE")]
    store: String,
    /// Bytes of the file [default: all of one that is there, 1G of one that is made; of NFS, on each connection: 16M]
    #[arg(long, value_name = "SIZE")]
    file_size: Option<Bytes>,
}

#[derive(Clone, Copy, ValueEnum)]
enum CacheArg {
    /// Nothing: it comes from the disk
    Cold,
    /// All of it
    Hot,
    /// What it happens to hold
    AsIs,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// As much as fits
    Bulk,
    /// Requests, each answered
    Request,
    /// Datagrams at a set rate
    Udp,
    /// From a file or memory at one end to a file or memory at the other
    Copy,
    /// Reads and writes of blocks at the other end
    Blocks,
}

#[derive(Clone, Copy, ValueEnum)]
enum WaitArg {
    /// Spin some tens of microseconds, then sleep: what the network takes
    Hybrid,
    /// Sleep at once: what a sleeping server takes
    Block,
}

impl Order {
    /// The order that the options describe for this host.
    pub fn spec(&self, peer: &dyn Peer) -> Result<Spec> {
        let workload = match (peer.export(), self.kind()) {
            (Some(export), _) => Workload::Blocks(self.nfs_blocks(export)?),
            (_, kind) if kind != Kind::Blocks && self.blocks.any() => {
                bail!(
                    "--block, --depth, --mix, --random, --seed, --store and --file-size belong to blocks: add --workload blocks, or ask an NFS server (nfs://HOST/EXPORT)"
                )
            }
            (_, kind) => match kind {
                Kind::Bulk => self.load.bulk(),
                Kind::Request => self.load.request()?,
                Kind::Udp => Workload::Udp(Udp {
                    rate: self.datagrams.rate,
                    datagram_size: self.datagrams.datagram_size,
                }),
                Kind::Copy => Workload::Copy(self.copy()?),
                Kind::Blocks => Workload::Blocks(self.peer_blocks()?),
            },
        };
        let memory = self.copy.from == "memory" && self.copy.to == "memory";
        if self.kind() != Kind::Copy && (!memory || self.copy.corners) {
            bail!("--from, --to and --corners belong to copies: add --workload copy");
        }
        if self.way.trace && workload.order().reconnects() {
            bail!(
                "--trace follows connections that last: leave out --reconnect, or watch with 'linerate trace'"
            );
        }
        if self.directions() != Directions::Up && workload.order().reconnects() {
            bail!("--reconnect opens connections from here: leave out --down and --bidir");
        }
        let usual = workload.order().usual_limit();
        let spec = self.load.spec(workload, self.directions(), usual)?;
        Ok(Spec {
            trace: self.way.trace,
            ..spec
        })
    }

    /// The rounds of `--corners`, if that is what is wanted.
    pub fn corners(&self) -> Option<u32> {
        self.copy.corners.then_some(self.copy.rounds)
    }

    /// The depths of blocks, if there are several.
    pub fn depths(&self) -> Option<&[u32]> {
        Some(self.blocks.depth.as_slice()).filter(|depths| depths.len() > 1)
    }

    fn kind(&self) -> Kind {
        self.way.workload.unwrap_or(Kind::Bulk)
    }

    fn nfs_blocks(&self, export: &str) -> Result<Blocks> {
        if !matches!(self.way.workload, None | Some(Kind::Request | Kind::Blocks)) {
            bail!("an NFS server is asked to read and write: leave out --workload, or say blocks");
        }
        if self.way.down || self.way.bidir {
            bail!("an NFS server asks nothing of its clients: leave out --down and --bidir");
        }
        if self.blocks.store != MEMORY || self.files.direct {
            bail!("an NFS server has a store of its own: leave out --store and --direct");
        }
        let usual = [
            BlockOperation::Read,
            BlockOperation::Write,
            BlockOperation::Getattr,
            BlockOperation::Commit,
        ];
        let block = self.blocks.block();
        let file_size = self.blocks.file_size.unwrap_or(Bytes(16 << 20).max(block));
        let server = BlockServer::Nfs {
            export: export.to_owned(),
            file_size,
        };
        self.blocks(server, Bytes(1), file_size, &usual)
    }

    fn peer_blocks(&self) -> Result<Blocks> {
        if self.way.bidir {
            bail!(
                "one end asks for the blocks of the other: leave out --bidir; --down has HOST ask for blocks that are here"
            );
        }
        let blocks = &self.blocks;
        if blocks
            .mix
            .iter()
            .any(|(one, _)| *one == BlockOperation::Getattr)
        {
            bail!(
                "--mix getattr is a question to NFS servers: ask for read, write, write-stable or commit"
            );
        }
        let deepest = blocks.depth.iter().max();
        if let Some(depth) = deepest.filter(|depth| **depth > Blocks::DEEPEST) {
            bail!(
                "--depth {depth}: each request may take a thread at the other end, so it goes up to {}",
                Blocks::DEEPEST
            );
        }
        let store = BlockStore {
            store: (blocks.store != MEMORY).then(|| blocks.store.clone()),
            file_size: blocks.file_size,
            cache: self.files.cache.cache(),
            direct: self.files.direct,
        };
        let largest = blocks.file_size.unwrap_or(BlockStore::SIZE);
        let server = BlockServer::Peer(store);
        self.blocks(server, Blocks::SMALLEST, largest, &[BlockOperation::Read])
    }

    fn blocks(
        &self,
        server: BlockServer,
        smallest: Bytes,
        file: Bytes,
        usual: &[BlockOperation],
    ) -> Result<Blocks> {
        if self.load.requests.pace.is_some() || self.load.requests.reconnect {
            bail!(
                "--pace and --reconnect belong to plain requests; --depth says how many are outstanding"
            );
        }
        let block = self.blocks.block();
        if block < smallest || block > Bytes(64 << 20) || file < block {
            bail!(
                "--block {block}: from {smallest} to 64M, and no more than the file has (--file-size {file})"
            );
        }
        let mix = in_turn(&self.blocks.mix);
        Ok(Blocks {
            server,
            block,
            depth: self.blocks.depth.first().copied().unwrap_or(1),
            mix: match mix.is_empty() {
                true => usual.to_vec(),
                false => mix,
            },
            random: self.blocks.random,
            seed: match self.blocks.seed {
                Some(seed) => seed.into(),
                None => u32::from_be_bytes(chance::bytes()?).into(),
            },
            wait: self.load.requests.wait(),
        })
    }

    fn copy(&self) -> Result<FileCopy> {
        let file = |place: &str| (place != "memory").then(|| place.to_owned());
        let copy = FileCopy {
            from: file(&self.copy.from),
            to: file(&self.copy.to),
            cache: self.files.cache.cache(),
            direct: self.files.direct,
            keep: !self.copy.no_keep,
        };
        if self.way.bidir {
            bail!("a copy goes one way: leave out --bidir; --down copies from HOST to here");
        }
        if self.load.what.streams != 1 {
            bail!("a copy goes over one connection: leave out --streams");
        }
        if [&copy.from, &copy.to]
            .into_iter()
            .flatten()
            .any(String::is_empty)
        {
            bail!("--from and --to name a file, or say memory");
        }
        if self.copy.corners && (copy.from.is_none() || copy.to.is_none()) {
            bail!(
                "--corners compares memory with files: name a file with --from and a new one with --to"
            );
        }
        Ok(copy)
    }

    fn directions(&self) -> Directions {
        match (self.way.up, self.way.down, self.way.bidir) {
            (true, _, _) => Directions::Up,
            (_, true, _) => Directions::Down,
            (_, _, true) => Directions::Bidirectional,
            // A request and its answer use both directions already.
            _ if matches!(self.kind(), Kind::Request | Kind::Copy | Kind::Blocks) => Directions::Up,
            _ => Directions::UpThenDown,
        }
    }
}

impl Load {
    /// The order for moving this in these directions; `usual` ends it if no option does.
    pub fn spec(&self, workload: Workload, directions: Directions, usual: Limit) -> Result<Spec> {
        let limit = match (self.what.time, self.what.bytes, self.what.requests) {
            (Some(time), ..) => Limit::Time(time),
            (_, Some(bytes), _) => Limit::Bytes(bytes),
            (_, _, Some(requests)) => Limit::Requests(requests),
            (None, None, None) => usual,
        };
        match (&workload, limit) {
            (workload, Limit::Requests(_)) if !workload.is_answered() => {
                bail!("--requests counts answers: add --workload request, or end with --bytes")
            }
            (workload, Limit::Bytes(_)) if workload.is_answered() => {
                bail!(
                    "--bytes ends a bulk transfer: end the request workload with --requests or --time"
                )
            }
            (_, Limit::Time(Nanos(0)) | Limit::Bytes(Bytes(0)) | Limit::Requests(0)) => {
                bail!("a leg of nothing measures nothing: give a time, size or count above 0")
            }
            _ => {}
        }
        if self.what.interval < Nanos::from_millis(10) {
            bail!(
                "--interval {}: samples can be taken every 10 ms at the most",
                self.what.interval
            );
        }
        Ok(Spec {
            directions,
            workload,
            streams: self.what.streams,
            limit,
            ramp: self.what.ramp,
            interval: self.what.interval,
            trace: false,
            socket: SocketSettings {
                send_buffer: self.sockets.send_buffer.or(self.sockets.sockbuf),
                receive_buffer: self.sockets.receive_buffer.or(self.sockets.sockbuf),
                mss: self.sockets.mss,
                congestion: self.sockets.congestion.clone(),
                nodelay: self.sockets.nodelay.then_some(true),
                pacing: self.sockets.pacing,
                dscp: self.sockets.dscp,
                notsent_lowat: self.sockets.notsent_lowat,
                ip_version: self.sockets.version.chosen(),
            },
            near: Placement {
                bind_address: self.place.bind,
                bind_device: self.place.bind_device.clone(),
                cpus: self.place.cpus.clone(),
            },
            far: Placement {
                cpus: self.place.far_cpus.clone(),
                ..Placement::default()
            },
        })
    }

    /// Bulk transfer as the options have it.
    pub fn bulk(&self) -> Workload {
        Workload::Bulk(Bulk {
            write_size: self.bulk.write_size,
            discard: self.bulk.discard,
            zerocopy: self.bulk.zerocopy,
        })
    }

    /// Requests as the options have them.
    pub fn request(&self) -> Result<Workload> {
        if self.requests.request_size < Request::MIN_SIZE {
            bail!(
                "--request-size {}: the smallest request has {}",
                self.requests.request_size,
                Request::MIN_SIZE
            );
        }
        let largest = Bytes(1 << 30);
        if self.requests.reply_size == Bytes(0)
            || self.requests.reply_size > largest
            || self.requests.request_size > largest
        {
            bail!("--request-size and --reply-size go from 1 byte to {largest}");
        }
        if self
            .requests
            .pace
            .is_some_and(|pace| !(pace > 0.0 && pace <= 1e7))
        {
            bail!("--pace is in requests a second, above 0 and up to 10 million");
        }
        Ok(Workload::Request(Request {
            request_size: self.requests.request_size,
            reply_size: self.requests.reply_size,
            pace_per_s: self.requests.pace,
            reconnect: self.requests.reconnect,
            wait: self.requests.wait(),
        }))
    }
}

impl Requests {
    fn wait(&self) -> Wait {
        match self.wait {
            WaitArg::Hybrid => Wait::Hybrid,
            WaitArg::Block => Wait::Block,
        }
    }
}

impl CacheArg {
    fn cache(self) -> Cache {
        match self {
            CacheArg::Cold => Cache::Cold,
            CacheArg::Hot => Cache::Hot,
            CacheArg::AsIs => Cache::AsIs,
        }
    }
}

/// No file.
const MEMORY: &str = "memory";

impl BlockOptions {
    fn block(&self) -> Bytes {
        self.block.unwrap_or(Bytes(8 << 10))
    }

    /// Anything was said of blocks.
    fn any(&self) -> bool {
        self.block.is_some()
            || !self.depth.is_empty()
            || !self.mix.is_empty()
            || self.random
            || self.seed.is_some()
            || self.store != MEMORY
            || self.file_size.is_some()
    }
}

/// Parts of a whole.
const PARTS: u32 = 100;

/// An operation, and how many parts of all it is.
fn parse_mix(text: &str) -> Result<(BlockOperation, u32), String> {
    let (name, parts) = text.split_once('=').unwrap_or((text, "1"));
    let operation = match name {
        "read" => BlockOperation::Read,
        "write" => BlockOperation::Write,
        "write-stable" => BlockOperation::WriteStable,
        "getattr" => BlockOperation::Getattr,
        "commit" => BlockOperation::Commit,
        _ => return Err("it is one of read, write, write-stable, getattr and commit".to_owned()),
    };
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

/// A code point as a number or by its name (RFC 2474 class selectors, RFC 2597 assured, RFC 3246
/// expedited forwarding, RFC 8622 lower effort).
fn parse_dscp(text: &str) -> Result<u8, String> {
    let upper = text.to_ascii_uppercase();
    let digit = |at: usize| upper.as_bytes().get(at).map(|d| d.wrapping_sub(b'0'));
    let named = match (upper.as_str(), upper.len()) {
        ("BE" | "DF", _) => Some(0),
        ("EF", _) => Some(46),
        ("LE", _) => Some(1),
        (name, 3) if name.starts_with("CS") => digit(2).filter(|c| *c <= 7).map(|c| c * 8),
        (name, 4) if name.starts_with("AF") => match (digit(2), digit(3)) {
            (Some(class @ 1..=4), Some(drop @ 1..=3)) => Some(class * 8 + drop * 2),
            _ => None,
        },
        _ => text.parse().ok().filter(|n| *n <= 63),
    };
    named.ok_or_else(|| "a code point is 0 to 63 or a name: CS0-CS7, AF11-AF43, EF, LE".to_owned())
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

    #[test]
    fn code_points_by_number_and_name() {
        for (text, code) in [
            ("0", 0),
            ("46", 46),
            ("ef", 46),
            ("AF21", 18),
            ("cs1", 8),
            ("LE", 1),
        ] {
            assert_eq!(parse_dscp(text), Ok(code), "{text}");
        }
        for bad in ["64", "-1", "AF51", "AF14", "CS8", "X", ""] {
            assert!(parse_dscp(bad).is_err(), "{bad}");
        }
    }
}

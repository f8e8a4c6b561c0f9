//! Copies whose slowest stage is known: storage that is slowed down by its own thread, and a network that is paced.
//! And files: whole and in their place, or gone. And blocks whose storage takes a known time.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use linerate_measure::storage::{
    CopySink, CopySource, Reach, Storage, Store, open_store as open, sink, source,
};
use linerate_measure::{
    Job, Load, LoadOutcome, Quota, Role, accept_options, connect, listen, ready,
};
use model::{
    BitRate, BlockOperation, BlockServer, BlockStore, BlockSummary, Blocks, Bytes, Cache,
    CopySummary, EndRecord, FileCopy, LegLimit, Nanos, Placement, SocketSettings, Stage, WaitMode,
    Workload, summarise_blocks, summarise_copy,
};
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// Takes as long as a disk of this many bytes a second would.
struct Slowly {
    per_s: f64,
    length: u64,
    due: Mutex<Option<Instant>>,
}

impl Slowly {
    fn new(mb_per_s: f64, mb: u64) -> Arc<Slowly> {
        Arc::new(Slowly {
            per_s: mb_per_s * 1e6,
            length: mb * 1_000_000,
            due: Mutex::default(),
        })
    }

    /// Waits until so many bytes may have passed; a wait that came late is made up for.
    fn pass(&self, bytes: usize) {
        let mut due = self.due.lock().unwrap();
        let next =
            due.unwrap_or_else(Instant::now) + Duration::from_secs_f64(bytes as f64 / self.per_s);
        // A disk that had nothing to do does not catch up.
        *due = Some(next.max(Instant::now()));
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
}

impl CopySource for Slowly {
    fn read(&self, at: u64, into: &mut [u8]) -> Result<usize, String> {
        let got = (self.length - at).min(into.len() as u64) as usize;
        self.pass(got);
        Ok(got)
    }
}

impl CopySink for Slowly {
    fn write(&self, _at: u64, data: &[u8]) -> Result<(), String> {
        self.pass(data.len());
        Ok(())
    }
}

/// Sockets whose sender the kernel paces.
fn sockets(pacing: Option<BitRate>) -> (TcpStream, TcpStream) {
    let (local, remote) = (
        SocketSettings {
            pacing,
            // What buffers hold is not the network's rate.
            send_buffer: Some(Bytes(512 << 10)),
            ..SocketSettings::default()
        },
        SocketSettings {
            receive_buffer: Some(Bytes(512 << 10)),
            ..SocketSettings::default()
        },
    );
    let placement = Placement::default();
    let listener = listen((Ipv4Addr::LOCALHOST, 0).into(), &remote, &placement).unwrap();
    let address = listener.local_addr().unwrap();
    let stream = connect(address, &local, &placement, PATIENCE).unwrap();
    let accepted = listener.accept().unwrap().0;
    accept_options(&accepted, &remote).unwrap();
    (stream, accepted)
}

fn run(from: Storage, to: Storage, limit: LegLimit, pacing: Option<BitRate>) -> [LoadOutcome; 2] {
    let (local, remote) = sockets(pacing);
    let job = |role, storage| Job {
        storage: Some(storage),
        ..Job::new(role, Workload::Copy(FileCopy::default()), limit)
    };
    let receiver = Load::start(job(Role::Receive, to), vec![remote]).unwrap();
    let sender = Load::start(job(Role::Send, from), vec![local]).unwrap();
    // A receiver that failed lets its sender go when it closes.
    let [received, sent] = [receiver, sender].map(|load| {
        assert!(load.wait(Instant::now() + PATIENCE), "the copy hangs");
        load.finish()
    });
    [sent, received]
}

fn judged([sent, received]: &[LoadOutcome; 2]) -> CopySummary {
    assert_eq!((&sent.errors, &received.errors), (&vec![], &vec![]));
    let end = |outcome: &LoadOutcome| EndRecord {
        bytes: outcome.bytes.iter().copied().sum(),
        copy: outcome.record.copy.clone(),
        ..EndRecord::default()
    };
    summarise_copy(&end(sent), &end(received)).unwrap()
}

/// A copy through stages of these rates in 10^6 bytes a second.
fn through(source: f64, network: f64, sink: f64, mb: u64) -> CopySummary {
    let copied = judged(&run(
        Storage::Source(Slowly::new(source, mb)),
        Storage::Sink(Slowly::new(sink, mb)),
        LegLimit::Whole,
        Some(BitRate((network * 8e6) as u64)),
    ));
    assert_eq!(copied.verified, Some(true));
    copied
}

/// Gives a block, and then fails.
struct Broken;

impl CopySource for Broken {
    fn read(&self, at: u64, into: &mut [u8]) -> Result<usize, String> {
        match at {
            0 => Ok(into.len()),
            _ => Err("the disk is broken".into()),
        }
    }
}

fn slowest(copied: &CopySummary) -> Stage {
    copied
        .bottleneck()
        .unwrap_or_else(|| panic!("undecided: {copied:#?}"))
        .stage
}

#[test]
fn the_slow_stage_is_named_with_its_share_and_the_next_limit() {
    let network = through(500.0, 50.0, 500.0, 60);
    assert_eq!(slowest(&network), Stage::Network, "{network:#?}");
    assert!(network.sender_ring_full_share > 0.5, "{network:#?}");
    assert!(network.receiver_ring_empty_share > 0.5, "{network:#?}");

    let source = through(20.0, 50.0, 500.0, 30);
    assert_eq!(slowest(&source), Stage::Source, "{source:#?}");
    assert!(source.stages[0].busy_share > 0.9, "{source:#?}");
    assert!(source.sender_ring_empty_share > 0.5, "{source:#?}");

    let sink = through(500.0, 50.0, 20.0, 30);
    assert_eq!(slowest(&sink), Stage::Sink, "{sink:#?}");
    assert!(sink.stages[0].busy_share > 0.9, "{sink:#?}");
    assert!(sink.receiver_ring_full_share > 0.2, "{sink:#?}");
    assert_eq!(sink.stages[1].stage, Stage::Network, "{sink:#?}");

    // Hardly slower than the network.
    let close = through(45.0, 50.0, 500.0, 90);
    assert_eq!(close.stages[0].stage, Stage::Source, "{close:#?}");
    assert_eq!(close.stages[1].stage, Stage::Network, "{close:#?}");
}

struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path =
            std::env::temp_dir().join(format!("linerate-copy-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Directory(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    /// What is in it, in order.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let name = |e: std::io::Result<fs::DirEntry>| e.unwrap().file_name().into_string().unwrap();
        let mut names: Vec<String> = entries.map(name).collect();
        names.sort();
        names
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn order(from: Option<String>, to: Option<String>) -> FileCopy {
    FileCopy {
        from,
        to,
        keep: true,
        ..FileCopy::default()
    }
}

fn copy(order: &FileCopy, limit: LegLimit) -> [LoadOutcome; 2] {
    let from = Storage::Source(source(order, &Reach::Anywhere).unwrap().into());
    let to = Storage::Sink(sink(order, &Reach::Anywhere).unwrap().into());
    run(from, to, limit, None)
}

#[test]
fn a_file_arrives_as_it_was_whatever_its_length() {
    let dir = Directory::new("whole");
    for (n, length) in [0usize, 1, 4096, 1 << 20, (9 << 20) + 4097]
        .into_iter()
        .enumerate()
    {
        let data: Vec<u8> = (0..length).map(|at| (at * 7 + at / 251) as u8).collect();
        fs::write(dir.path("from"), &data).unwrap();
        for cache in [Cache::Cold, Cache::Hot, Cache::AsIs] {
            let to = dir.path(&format!("to-{n}-{cache:?}"));
            let order = FileCopy {
                cache,
                ..order(Some(dir.path("from")), Some(to.clone()))
            };
            let [sent, received] = copy(&order, LegLimit::Whole);
            assert_eq!((&sent.errors, &received.errors), (&vec![], &vec![]));
            let (source, copied) = (sent.record.copy.unwrap(), received.record.copy.unwrap());
            assert_eq!((copied.verified, copied.kept), (Some(true), true));
            assert_eq!(source.hash, copied.hash);
            assert!(fs::read(&to).unwrap() == data, "{length} bytes differ");
            assert!(copied.fsync.is_some());
            if cache == Cache::Hot && length > 0 {
                assert_eq!(source.cached_before_share, Some(1.0));
            }
        }
    }
    assert!(dir.names().iter().all(|name| !name.starts_with('.')));
}

#[test]
fn the_first_bytes_of_a_file_and_the_time_of_memory_are_whole_copies() {
    let dir = Directory::new("part");
    fs::write(dir.path("from"), vec![5; 3 << 20]).unwrap();
    let part = order(Some(dir.path("from")), Some(dir.path("part")));
    let [_, received] = copy(&part, LegLimit::Bytes(Bytes(1_234_567)));
    assert!(received.record.copy.unwrap().kept);
    assert_eq!(fs::metadata(dir.path("part")).unwrap().len(), 1_234_567);

    let timed = order(None, Some(dir.path("timed")));
    let [sent, received] = copy(&timed, LegLimit::Time(Nanos::from_millis(200)));
    assert_eq!(sent.bytes, received.bytes);
    assert!(received.record.copy.unwrap().kept);
    assert_eq!(
        fs::metadata(dir.path("timed")).unwrap().len(),
        sent.bytes[0].0
    );

    let sized = order(None, Some(dir.path("sized")));
    copy(&sized, LegLimit::Bytes(Bytes(3_000_000)));
    assert_eq!(fs::metadata(dir.path("sized")).unwrap().len(), 3_000_000);
}

#[test]
fn a_file_that_the_time_cuts_short_is_not_kept() {
    let dir = Directory::new("cut");
    fs::write(dir.path("from"), vec![5; 32 << 20]).unwrap();
    let order = order(Some(dir.path("from")), Some(dir.path("to")));
    let from = Storage::Source(source(&order, &Reach::Anywhere).unwrap().into());
    let to = Storage::Sink(sink(&order, &Reach::Anywhere).unwrap().into());
    let limit = LegLimit::Time(Nanos::from_millis(300));
    let [sent, received] = run(from, to, limit, Some(BitRate(80_000_000)));
    assert!(sent.bytes[0].0 < 32 << 20);
    let copied = received.record.copy.unwrap();
    assert_eq!((copied.verified, copied.kept), (Some(true), false));
    assert_eq!(dir.names(), ["from"], "nothing is left");
}

#[test]
fn what_cannot_be_is_said_and_leaves_nothing() {
    let dir = Directory::new("refused");
    fs::write(dir.path("from"), "x").unwrap();
    fs::write(dir.path("taken"), "old").unwrap();
    symlink("/etc/hostname", dir.path("link")).unwrap();
    symlink("nowhere", dir.path("dangling")).unwrap();
    let beneath = Reach::Beneath(dir.0.canonicalize().unwrap());
    let from = |path: &str, reach: &Reach| {
        let opened = source(&order(Some(path.to_owned()), None), reach);
        opened.err().map(|e| e.to_string()).unwrap_or_default()
    };
    let to = |path: &str, reach: &Reach| {
        let opened = sink(&order(None, Some(path.to_owned())), reach);
        opened.err().map(|e| e.to_string()).unwrap_or_default()
    };
    let anywhere = Reach::Anywhere;
    assert!(from(&dir.path("missing"), &anywhere).contains("No such file"));
    assert!(from(&dir.path(""), &anywhere).contains("no regular file"));
    assert!(from("/dev/zero", &anywhere).contains("no regular file"));
    assert_eq!(from("from", &beneath), "");
    assert_eq!(
        from(&beneath_path(&beneath, "from"), &beneath),
        "",
        "by its whole path"
    );
    for out in ["link", "../x", "/etc/hostname"] {
        assert!(
            from(out, &beneath).contains("it is not below"),
            "{out}: {}",
            from(out, &beneath)
        );
    }
    for taken in ["taken", "link", "dangling"] {
        assert!(
            to(&dir.path(taken), &anywhere).contains("the name is taken"),
            "{taken}"
        );
        assert!(to(taken, &beneath).contains("the name is taken"), "{taken}");
    }
    assert!(to(&dir.path("no/file"), &anywhere).contains("No such file"));
    assert!(to(&dir.path("new/"), &anywhere).contains("names a directory"));
    for out in ["../x", "/tmp/x"] {
        assert!(
            to(out, &beneath).contains("it is not below"),
            "{out}: {}",
            to(out, &beneath)
        );
    }
    assert_eq!(to("new", &beneath), "");
    let direct = FileCopy {
        direct: true,
        ..order(Some("/proc/version".to_owned()), None)
    };
    let said = source(&direct, &anywhere).err().unwrap().to_string();
    assert!(said.contains("its file system has no O_DIRECT"), "{said}");
    assert_eq!(fs::read_to_string(dir.path("taken")).unwrap(), "old");
    assert_eq!(dir.names(), ["dangling", "from", "link", "taken"]);
}

fn beneath_path(reach: &Reach, name: &str) -> String {
    match reach {
        Reach::Beneath(directory) => directory.join(name).to_str().unwrap().to_owned(),
        Reach::Anywhere => Path::new(name).to_str().unwrap().to_owned(),
    }
}

/// A disk that fills up.
struct Full;

impl CopySink for Full {
    fn write(&self, at: u64, _data: &[u8]) -> Result<(), String> {
        match at {
            0 => Ok(()),
            _ => Err("no space left".to_owned()),
        }
    }
}

#[test]
fn storage_that_fails_ends_both_ends_and_says_why() {
    let from = Storage::Source(Slowly::new(1000.0, 100));
    let [sent, received] = run(from, Storage::Sink(Arc::new(Full)), LegLimit::Whole, None);
    assert_eq!(received.errors[0].what, "no space left");
    assert_eq!(
        received.record.copy.unwrap().failed.as_deref(),
        Some("no space left")
    );
    assert_eq!(sent.errors.len(), 1, "the sender does not go on");

    let to = Storage::Sink(Slowly::new(1000.0, 100));
    let [sent, received] = run(Storage::Source(Arc::new(Broken)), to, LegLimit::Whole, None);
    assert_eq!(sent.errors[0].what, "the disk is broken");
    assert_eq!(
        received.errors[0].what,
        "the sender ended before the end of the copy: it was removed"
    );
    for record in [sent.record.copy.unwrap(), received.record.copy.unwrap()] {
        assert!(
            record.span > Nanos(0) && record.span >= record.transfer,
            "{record:?}"
        );
    }
}

/// What cannot be made ready.
struct Unready;

impl CopySource for Unready {
    fn prepare(&self) -> Result<(), String> {
        Err("it is on fire".to_owned())
    }

    fn read(&self, _at: u64, _into: &mut [u8]) -> Result<usize, String> {
        Ok(0)
    }
}

#[test]
fn a_source_that_cannot_be_made_ready_begins_no_copy() {
    let (local, _remote) = sockets(None);
    let job = Job {
        storage: Some(Storage::Source(Arc::new(Unready))),
        ..Job::new(
            Role::Send,
            Workload::Copy(FileCopy::default()),
            LegLimit::Whole,
        )
    };
    let why = Load::start(job, vec![local]).err().unwrap().to_string();
    assert!(why.contains("it is on fire"), "{why}");
}

#[test]
fn a_copy_of_another_length_or_hash_is_not_kept() {
    let data = b"some data";
    let hash = twox_hash::XxHash3_128::oneshot(data).to_be_bytes();
    let verified = |length: u64, first: u8| {
        let (mut local, remote) = sockets(None);
        let job = Job {
            storage: Some(Storage::Sink(Slowly::new(1000.0, 1))),
            ..Job::new(
                Role::Receive,
                Workload::Copy(FileCopy::default()),
                LegLimit::Whole,
            )
        };
        let load = Load::start(job, vec![remote]).unwrap();
        let mut hash = hash;
        hash[0] ^= first;
        let bytes = [
            &(data.len() as u32).to_be_bytes()[..],
            data,
            &[0; 4],
            &[1],
            &length.to_be_bytes(),
            &hash,
        ];
        local.write_all(&bytes.concat()).unwrap();
        assert!(load.wait(Instant::now() + PATIENCE), "the copy hangs");
        let outcome = load.finish();
        let copy = outcome.record.copy.unwrap();
        assert_eq!(copy.verified, Some(outcome.errors.is_empty()));
        let known = u128::from_be_bytes(twox_hash::XxHash3_128::oneshot(data).to_be_bytes());
        assert_eq!(copy.hash, format!("{known:032x}"));
        copy.verified.unwrap()
    };
    assert!(verified(9, 0));
    assert!(!verified(8, 0) && !verified(9, 1));
}

#[test]
fn a_server_of_blocks_that_is_cut_has_not_failed() {
    let order = blocks(1, &[BlockOperation::Read], BlockStore::default());
    let (_local, remote) = sockets(None);
    let mut server = job(Role::Answer, &order, LegLimit::Requests(1));
    server.storage = Some(Storage::Store(Late::new(Duration::ZERO)));
    server.longest = Some((Duration::from_millis(50), "too long".to_owned()));
    let load = Load::start(server, vec![remote]).unwrap();
    assert!(load.wait(Instant::now() + PATIENCE), "the blocks hang");
    let outcome = load.finish();
    assert_eq!(outcome.errors, []);
    assert_eq!(outcome.limit.as_deref(), Some("too long"));
}

const WHY: &str = "nothing more may move";

/// Nothing is left of it.
struct Nothing;

impl Quota for Nothing {
    fn take(&self, _want: usize) -> Result<(usize, Instant), String> {
        Err(WHY.to_owned())
    }

    fn give_back(&self, _bytes: usize) {}

    fn spend(&self, _bytes: usize) -> Result<(), String> {
        Ok(())
    }

    fn pay_ahead(&self, _bytes: usize) {}
}

#[test]
fn a_copy_that_a_limit_cuts_says_which() {
    let memory = FileCopy::default();
    let from = Storage::Source(source(&memory, &Reach::Anywhere).unwrap().into());
    let to = Storage::Sink(sink(&memory, &Reach::Anywhere).unwrap().into());
    let quota = Some(Arc::new(Nothing) as Arc<dyn Quota>);
    let longest = Some((Duration::from_millis(50), WHY.to_owned()));
    for (role, storage, quota, longest) in [
        (Role::Send, from, quota.clone(), None),
        (Role::Receive, to.clone(), quota, None),
        (Role::Receive, to, None, longest),
    ] {
        let (local, mut peer) = sockets(None);
        // The head of a block that does not come.
        peer.write_all(&[0, 0, 0, 1]).unwrap();
        let job = Job {
            storage: Some(storage),
            quota,
            longest,
            ..Job::new(role, Workload::Copy(memory.clone()), LegLimit::Whole)
        };
        let load = Load::start(job, vec![local]).unwrap();
        assert!(load.wait(Instant::now() + PATIENCE), "the copy hangs");
        let outcome = load.finish();
        assert_eq!(outcome.limit.as_deref(), Some(WHY), "{role:?}");
        assert_eq!(outcome.errors[0].what, WHY, "{role:?}");
    }
}

#[test]
fn a_sender_that_resets_has_not_ended_its_copy() {
    let (mut local, peer) = sockets(None);
    // Closing with unread data resets the connection (RFC 2525, 2.17).
    local.write_all(&[0]).unwrap();
    let to = sink(&FileCopy::default(), &Reach::Anywhere).unwrap();
    let job = Job {
        storage: Some(Storage::Sink(to.into())),
        ..Job::new(
            Role::Receive,
            Workload::Copy(FileCopy::default()),
            LegLimit::Whole,
        )
    };
    let load = Load::start(job, vec![local]).unwrap();
    drop(peer);
    assert!(load.wait(Instant::now() + PATIENCE), "the copy hangs");
    let errors = load.finish().errors;
    assert!(
        errors[0]
            .what
            .contains("closed the connection before the end"),
        "{errors:?}"
    );
}

#[test]
fn the_cached_share_is_what_the_page_cache_holds() {
    let dir = Directory::new("cached");
    // The second half is a hole, which nobody has read.
    let half = |name: &str| {
        fs::write(dir.path(name), vec![5; 1 << 20]).unwrap();
        let file = fs::OpenOptions::new().write(true).open(dir.path(name));
        file.unwrap().set_len(2 << 20).unwrap();
        dir.path(name)
    };
    let prepared = |cache, store| {
        let store = BlockStore {
            cache,
            store,
            ..BlockStore::default()
        };
        let store = open(&blocks(1, &[BlockOperation::Read], store), &Reach::Anywhere).unwrap();
        store.prepare(&AtomicBool::new(false)).unwrap();
        store
    };
    let as_is = prepared(Cache::AsIs, Some(half("as-is")));
    assert_eq!(as_is.cached(), Some(0.5));
    // Not every file system caches a hole.
    fs::read(dir.path("as-is")).unwrap();
    let hot = prepared(Cache::Hot, Some(half("hot")));
    assert_eq!(
        (as_is.cached_before(), hot.cached_before()),
        (Some(0.5), as_is.cached())
    );
    let to = sink(&order(None, Some(dir.path("to"))), &Reach::Anywhere).unwrap();
    to.write(0, &vec![5; 1 << 20]).unwrap();
    assert_eq!((to.cached(2 << 20), to.cached(0)), (Some(0.5), None));

    let (memory, copied) = (prepared(Cache::AsIs, None), FileCopy::default());
    assert_eq!((memory.cached_before(), memory.cached()), (None, None));
    assert_eq!(source(&copied, &Reach::Anywhere).unwrap().cached(), None);
    let nowhere = sink(&copied, &Reach::Anywhere).unwrap();
    assert_eq!((nowhere.cached(1), nowhere.settle()), (None, Ok(false)));
}

/// Blocks that take so long each, and where the last of those that were written is.
struct Late(Duration, AtomicU64);

impl Late {
    fn new(takes: Duration) -> Arc<Late> {
        Arc::new(Late(takes, AtomicU64::new(0)))
    }
}

impl Store for Late {
    fn blocks(&self) -> u64 {
        1000
    }

    fn read(&self, at: u64, _into: &mut [u8]) -> Result<(), String> {
        std::thread::sleep(self.0);
        match at {
            0 => Err("cannot read block 0: it is broken".to_owned()),
            _ => Ok(()),
        }
    }

    fn write(&self, at: u64, _data: &[u8]) -> Result<(), String> {
        self.1.fetch_max(at, Ordering::Relaxed);
        std::thread::sleep(self.0);
        Ok(())
    }
}

fn blocks(depth: u32, mix: &[BlockOperation], store: BlockStore) -> Blocks {
    Blocks {
        server: BlockServer::Peer(store),
        block: Bytes(4096),
        depth,
        mix: mix.to_vec(),
        random: true,
        seed: 3,
        wait: WaitMode::Block,
    }
}

/// What the client and the end with the blocks came to.
fn job(role: Role, order: &Blocks, limit: LegLimit) -> Job {
    Job::new(role, Workload::Blocks(order.clone()), limit)
}

fn asked(order: &Blocks, store: Arc<dyn Store>, limit: LegLimit) -> [LoadOutcome; 2] {
    let (local, remote) = sockets(None);
    let (local, remote, stop) = (vec![local], vec![remote], AtomicBool::new(false));
    let mut server = job(Role::Answer, order, limit);
    server.storage = Some(Storage::Store(store));
    assert_eq!(ready(&mut server, &remote, &stop), Ok(true));
    let mut client = job(Role::Ask, order, limit);
    assert_eq!(ready(&mut client, &local, &stop), Ok(true));
    let server = Load::start(server, remote).unwrap();
    let client = Load::start(client, local).unwrap();
    [client, server].map(|load| {
        assert!(load.wait(Instant::now() + PATIENCE), "the blocks hang");
        load.finish()
    })
}

fn summaries_of([client, server]: &[LoadOutcome; 2]) -> Vec<BlockSummary> {
    assert_eq!((&client.errors, &server.errors), (&vec![], &vec![]));
    assert_eq!(client.bytes, server.bytes, "both ends count the same");
    summarise_blocks(&EndRecord {
        operations: client.record.operations.clone(),
        duration: client.record.duration,
        ..EndRecord::default()
    })
}

#[test]
fn storage_time_is_a_part_of_its_own_and_depth_fills_it() {
    const TAKES: Duration = Duration::from_millis(4);
    let mut rates = Vec::new();
    for depth in [1, 8] {
        let order = blocks(depth, &[BlockOperation::Write], BlockStore::default());
        let store = Late::new(TAKES);
        let outcome = asked(&order, store.clone(), LegLimit::Requests(120));
        let last = store.1.load(Ordering::Relaxed);
        assert!(
            last.is_multiple_of(4096) && (500..1000).contains(&(last / 4096)),
            "{last}"
        );
        let summaries = summaries_of(&outcome);
        let (figures, split) = (&summaries[0], summaries[0].split.as_ref().unwrap());
        assert_eq!(figures.latency.count, 120);
        assert_eq!(outcome[0].bytes, [Bytes(120 * 4096)]);
        assert!(split.storage >= Nanos::from(TAKES), "{split:?}");
        assert!(split.storage_latency.p50 >= Nanos(3_990_000), "{split:?}");
        assert!(split.total() >= split.storage);
        // Little's law: what is outstanding is the rate times the time (all but the last few).
        let outstanding = figures.latency.per_s * split.total().as_secs_f64();
        let wanted = f64::from(depth);
        assert!(
            (0.8 * wanted..=1.05 * wanted).contains(&outstanding),
            "{outstanding} of {depth} outstanding: {figures:?}"
        );
        rates.push(figures.latency.per_s);
    }
    assert!(
        rates[1] > 2.0 * rates[0],
        "depth fills the storage: {rates:?}"
    );

    // Memory takes nothing: what there is is the way.
    let mix = [BlockOperation::Read, BlockOperation::WriteStable];
    let order = blocks(4, &mix, BlockStore::default());
    let memory: Arc<dyn Store> = open(&order, &Reach::Anywhere).unwrap().into();
    let summaries = summaries_of(&asked(&order, memory, LegLimit::Requests(400)));
    assert_eq!(summaries.len(), 2);
    for one in &summaries {
        let split = one.split.as_ref().unwrap();
        assert_eq!(one.latency.count, 200);
        assert!(split.network > split.storage + split.queued, "{one:?}");
    }
}

#[test]
fn blocks_of_files_are_those_of_a_nameless_one_or_only_read() {
    let dir = Directory::new("blocks");
    let whose = |name: &str| BlockStore {
        store: Some(dir.path(name)),
        file_size: Some(Bytes(1 << 20)),
        ..BlockStore::default()
    };
    use BlockOperation::{Commit, Read, Write};
    let order = blocks(3, &[Read, Write, Write], whose(""));
    let store: Arc<dyn Store> = open(&order, &Reach::Anywhere).unwrap().into();
    assert!(dir.names().is_empty(), "it has no name");
    let outcome = asked(&order, Arc::clone(&store), LegLimit::Requests(300));
    let summaries = summaries_of(&outcome);
    assert_eq!(
        summaries.iter().map(|one| one.latency.count).sum::<u64>(),
        300,
        "{summaries:?}"
    );
    let record = outcome[1].record.store.as_ref().unwrap();
    assert_eq!((record.blocks, &record.failed), (256, &None));
    assert!(record.fsync.is_some(), "writes are made safe at the end");
    assert!(record.cached_before_share.is_some() && record.cached_after_share.is_some());
    assert!(dir.names().is_empty());

    let committed = blocks(1, &[Write, Commit], whose(""));
    let store: Arc<dyn Store> = open(&committed, &Reach::Anywhere).unwrap().into();
    let outcome = asked(&committed, store, LegLimit::Requests(10));
    assert_eq!(
        outcome[1].record.store.as_ref().unwrap().fsync,
        None,
        "safe already"
    );

    let data: Vec<u8> = (0..2 << 20).map(|at: u32| (at / 4096) as u8).collect();
    fs::write(dir.path("there"), &data).unwrap();
    let hot = BlockStore {
        cache: Cache::Hot,
        file_size: None,
        ..whose("there")
    };
    let order = blocks(2, &[Read], hot.clone());
    let store: Arc<dyn Store> = open(&order, &Reach::Anywhere).unwrap().into();
    let outcome = asked(&order, Arc::clone(&store), LegLimit::Requests(20));
    let record = outcome[1].record.store.as_ref().unwrap();
    assert_eq!(
        (record.blocks, record.cached_before_share),
        (512, Some(1.0))
    );
    assert_eq!(record.fsync, None);
    let mut block = vec![0; 4096];
    store.read(7 * 4096, &mut block).unwrap();
    assert_eq!(block, vec![7; 4096]);

    let refused = |order: &Blocks, reach: &Reach| match open(order, reach) {
        Ok(_) => String::new(),
        Err(error) => error.to_string(),
    };
    let beneath = Reach::Beneath(dir.0.canonicalize().unwrap());
    let too_small = BlockStore {
        file_size: Some(Bytes(3 << 20)),
        ..whose("there")
    };
    let direct = BlockStore {
        direct: true,
        ..whose("there")
    };
    let mut odd = blocks(1, &[Read], direct);
    odd.block = Bytes(1000);
    let mut large = blocks(1, &[Read], hot.clone());
    large.block = Bytes(4 << 20);
    let of = |store: &str| BlockStore {
        store: Some(store.to_owned()),
        ..BlockStore::default()
    };
    for (order, reach, why) in [
        (blocks(1, &[Write], hot), &Reach::Anywhere, "only read"),
        (
            blocks(1, &[Read], too_small),
            &Reach::Anywhere,
            "has 2.00 MiB, less than 3.00 MiB",
        ),
        (odd, &Reach::Anywhere, "a multiple of 4.00 KiB"),
        (large, &Reach::Anywhere, "choose a smaller --block"),
        (
            blocks(1, &[Read], whose("no")),
            &Reach::Anywhere,
            "No such file",
        ),
        (
            blocks(1, &[Read], of("/dev/zero")),
            &Reach::Anywhere,
            "neither a file nor a directory",
        ),
        (
            blocks(1, &[Read], of("/etc/hostname")),
            &beneath,
            "it is not below",
        ),
        (blocks(1, &[Write], of("..")), &beneath, "it is not below"),
        (blocks(1, &[Write], of(".")), &beneath, ""),
        (
            blocks(1, &[Write], of(beneath_path(&beneath, "").as_str())),
            &beneath,
            "",
        ),
    ] {
        let said = refused(&order, reach);
        assert!(
            said.contains(why) && said.is_empty() == why.is_empty(),
            "{said}: {why}"
        );
    }
    assert_eq!(dir.names(), ["there"]);
    assert!(fs::read(dir.path("there")).unwrap() == data);
}

#[test]
fn a_storage_that_fails_ends_both_ends_with_its_reason() {
    for depth in [1, 4] {
        let order = Blocks {
            random: false,
            ..blocks(depth, &[BlockOperation::Read], BlockStore::default())
        };
        let store = Late::new(Duration::from_millis(1));
        let [client, server] = asked(&order, store, LegLimit::Time(Nanos::from_secs(20)));
        let why = "cannot read block 0: it is broken";
        assert_eq!(server.record.store.unwrap().failed.as_deref(), Some(why));
        assert_eq!(server.errors[0].what, why);
        assert_eq!(client.errors.len(), 1);
    }
}

#[test]
fn blocks_that_were_asked_and_never_came_are_said() {
    let order = blocks(3, &[BlockOperation::Read], BlockStore::default());
    let (local, remote) = sockets(None);
    let (local, mut remote, stop) = (vec![local], vec![remote], AtomicBool::new(false));
    let limit = LegLimit::Time(Nanos::from_secs(3600));
    let mut server = job(Role::Answer, &order, limit);
    server.storage = Some(Storage::Store(Late::new(Duration::ZERO)));
    assert_eq!(ready(&mut server, &remote, &stop), Ok(true));
    let mut client = job(Role::Ask, &order, limit);
    assert_eq!(ready(&mut client, &local, &stop), Ok(true));
    client.drain = Duration::from_millis(50);
    let client = Load::start(client, local).unwrap();
    // All three leave together.
    remote[0].read_exact(&mut [0]).unwrap();
    client.stop();
    assert!(client.wait(Instant::now() + PATIENCE), "the blocks hang");
    let said = client.finish().record.warnings;
    assert!(
        said[0].what.contains("3 request(s) were never answered"),
        "{said:?}"
    );
}

#[test]
fn who_waits_for_blocks_that_never_come_says_so_or_stops() {
    let order = blocks(1, &[BlockOperation::Read], BlockStore::default());
    let (local, remote) = sockets(None);
    let (local, mut client) = (vec![local], job(Role::Ask, &order, LegLimit::Whole));
    let stopped = ready(&mut client, &local, &AtomicBool::new(true));
    assert_eq!(stopped, Ok(false));
    drop(remote);
    let lost = ready(&mut client, &local, &AtomicBool::new(false));
    assert!(lost.unwrap_err().contains("before the blocks were ready"));
}

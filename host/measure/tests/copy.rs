//! Copies whose slowest stage is known: storage that is slowed down by its own thread, and a network that is paced.
//! And files: whole and in their place, or gone.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use linerate_measure::copy::{Reach, Sink, Source, Storage, sink, source};
use linerate_measure::{Job, Load, Outcome, accept_options, connect, listen};
use model::{
    BitRate, Bytes, Cache, CopySummary, EndRecord, FileCopy, Limit, Nanos, Placement,
    SocketSettings, Stage, summarise_copy,
};
use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
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

impl Source for Slowly {
    fn read(&self, at: u64, into: &mut [u8]) -> Result<usize, String> {
        let got = (self.length - at).min(into.len() as u64) as usize;
        self.pass(got);
        Ok(got)
    }
}

impl Sink for Slowly {
    fn write(&self, _at: u64, data: &[u8]) -> Result<(), String> {
        self.pass(data.len());
        Ok(())
    }
}

/// Sockets whose sender the kernel paces.
fn sockets(pacing: Option<BitRate>) -> (TcpStream, TcpStream) {
    let (near, far) = (
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
    let listener = listen((Ipv4Addr::LOCALHOST, 0).into(), &far, &placement).unwrap();
    let address = listener.local_addr().unwrap();
    let stream = connect(address, &near, &placement, PATIENCE).unwrap();
    let accepted = listener.accept().unwrap().0;
    accept_options(&accepted, &far).unwrap();
    (stream, accepted)
}

fn run(from: Storage, to: Storage, limit: Limit, pacing: Option<BitRate>) -> [Outcome; 2] {
    let (near, far) = sockets(pacing);
    let receiver = Load::start(Job::copy(FileCopy::default(), limit, to), vec![far]).unwrap();
    let sender = Load::start(Job::copy(FileCopy::default(), limit, from), vec![near]).unwrap();
    [sender, receiver].map(|load| {
        assert!(load.wait(Instant::now() + PATIENCE), "the copy hangs");
        load.finish()
    })
}

fn judged([sent, received]: &[Outcome; 2]) -> CopySummary {
    assert_eq!((&sent.errors, &received.errors), (&vec![], &vec![]));
    let end = |outcome: &Outcome| EndRecord {
        bytes: outcome.bytes.iter().copied().sum(),
        copy: outcome.copy.clone(),
        ..EndRecord::default()
    };
    summarise_copy(&end(sent), &end(received)).unwrap()
}

/// A copy through stages of these rates in 10^6 bytes a second.
fn through(source: f64, network: f64, sink: f64, mb: u64) -> CopySummary {
    let copied = judged(&run(
        Storage::Source(Slowly::new(source, mb)),
        Storage::Sink(Slowly::new(sink, mb)),
        Limit::Whole,
        Some(BitRate((network * 8e6) as u64)),
    ));
    assert_eq!(copied.verified, Some(true));
    copied
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

fn copy(order: &FileCopy, limit: Limit) -> [Outcome; 2] {
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
            let [sent, received] = copy(&order, Limit::Whole);
            assert_eq!((&sent.errors, &received.errors), (&vec![], &vec![]));
            let (source, copied) = (sent.copy.unwrap(), received.copy.unwrap());
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
    let [_, received] = copy(&part, Limit::Bytes(Bytes(1_234_567)));
    assert!(received.copy.unwrap().kept);
    assert_eq!(fs::metadata(dir.path("part")).unwrap().len(), 1_234_567);

    let timed = order(None, Some(dir.path("timed")));
    let [sent, received] = copy(&timed, Limit::Time(Nanos::from_millis(200)));
    assert_eq!(sent.bytes, received.bytes);
    assert!(received.copy.unwrap().kept);
    assert_eq!(
        fs::metadata(dir.path("timed")).unwrap().len(),
        sent.bytes[0].0
    );
}

#[test]
fn a_file_that_the_time_cuts_short_is_not_kept() {
    let dir = Directory::new("cut");
    fs::write(dir.path("from"), vec![5; 32 << 20]).unwrap();
    let order = order(Some(dir.path("from")), Some(dir.path("to")));
    let from = Storage::Source(source(&order, &Reach::Anywhere).unwrap().into());
    let to = Storage::Sink(sink(&order, &Reach::Anywhere).unwrap().into());
    let limit = Limit::Time(Nanos::from_millis(300));
    let [sent, received] = run(from, to, limit, Some(BitRate(80_000_000)));
    assert!(sent.bytes[0].0 < 32 << 20);
    let copied = received.copy.unwrap();
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

impl Sink for Full {
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
    let [sent, received] = run(from, Storage::Sink(Arc::new(Full)), Limit::Whole, None);
    assert_eq!(received.errors[0].what, "no space left");
    assert_eq!(
        received.copy.unwrap().failed.as_deref(),
        Some("no space left")
    );
    assert_eq!(sent.errors.len(), 1, "the sender does not go on");
}

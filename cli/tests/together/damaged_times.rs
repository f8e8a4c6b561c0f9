//! Recordings whose times are damaged: every reader of them ends soon, in bounded memory, with an answer or one sentence.
//! Needs root, to trace.

use crate::common::{Home, Running, run, signal, stderr};
use crate::generated::{Case, Place, Random};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Seconds of processor time of a reader, far above what it needs (`RLIMIT_CPU`), and of waiting for it.
const CPU_S: u64 = 10;
const DEADLINE: Duration = Duration::from_secs(120);
/// Its address space (`RLIMIT_AS`), KiB.
const MEMORY: u64 = 1 << 20;

/// What reads a recording; `FILE` stands for it.
const READERS: [&[&str]; 7] = [
    &["explain", "FILE"],
    &["explain", "--json", "FILE"],
    &["explain", "FILE", "FILE"],
    &["explain", "--requests", "FILE"],
    &["diff", "FILE", "FILE"],
    &["report", "-f", "json", "-o", "-", "FILE"],
    &["report", "-o", "-", "FILE"],
];

/// Of which each damaged file meets so many.
const READERS_A_FILE: usize = 3;

/// How times are damaged.
const DAMAGES: [&str; 12] = [
    "equal",
    "zero",
    "largest",
    "reversed",
    "random",
    "some random",
    "some largest",
    "some zero",
    "one jump back",
    "one jump forward",
    "doubling",
    "near the sign",
];

/// New times for those of a recording.
fn damaged(times: &[u64], how: &str, random: &mut Random) -> Vec<u64> {
    let count = times.len();
    let at = random.between(1, count as u64 - 1) as usize;
    let jump = random.next() >> random.between(1, 40);
    let new = |(n, time): (usize, u64)| match how {
        "equal" => times[0],
        "zero" => 0,
        "largest" => u64::MAX,
        "reversed" => times[count - 1 - n],
        "random" => random.next() >> random.between(0, 40),
        "some random" if random.is(0.1) => random.next() >> random.between(0, 40),
        "some largest" if random.is(0.1) => u64::MAX,
        "some zero" if random.is(0.1) => 0,
        "one jump back" if n >= at => time.saturating_sub(jump),
        "one jump forward" if n >= at => time.saturating_add(jump),
        "doubling" => times[0].saturating_add(1_u64.checked_shl(n as u32).unwrap_or(u64::MAX)),
        "near the sign" => (i64::MAX as u64 - 1).wrapping_add(random.between(0, 3)),
        _ => time,
    };
    times.iter().copied().enumerate().map(new).collect()
}

/// A recording in pieces, of which some are times.
enum Piece {
    Bytes(Vec<u8>),
    /// Of a trace of linerate's own: nanoseconds, eight bytes.
    Word(u64),
    /// Nanoseconds as text.
    Digits(u64),
    /// A record of JSON in a trace of linerate's own, with its length before it.
    Record(Vec<Piece>),
    /// Of pcap: seconds and nanoseconds.
    Seconds(u64),
    /// Of pcapng: the upper and the lower half of the units.
    Halves(u64),
}

fn times(pieces: &mut [Piece], each: &mut dyn FnMut(&mut u64)) {
    for piece in pieces {
        match piece {
            Piece::Bytes(_) => {}
            Piece::Record(pieces) => times(pieces, each),
            Piece::Word(time)
            | Piece::Digits(time)
            | Piece::Seconds(time)
            | Piece::Halves(time) => {
                each(time);
            }
        }
    }
}

fn write(pieces: &[Piece], to: &mut Vec<u8>) {
    for piece in pieces {
        match piece {
            Piece::Bytes(bytes) => to.extend(bytes),
            Piece::Word(time) => to.extend(time.to_ne_bytes()),
            Piece::Digits(time) => to.extend(time.to_string().as_bytes()),
            Piece::Record(pieces) => {
                let mut text = Vec::new();
                write(pieces, &mut text);
                to.extend((text.len() as u32).to_le_bytes());
                to.extend(text);
            }
            // Seconds beyond 32 bits and nanoseconds beyond a second are damaged as well.
            Piece::Seconds(time) => {
                to.extend(((time / 1_000_000_000) as u32).to_le_bytes());
                let rest = match *time {
                    u64::MAX => u32::MAX,
                    time => (time % 1_000_000_000) as u32,
                };
                to.extend(rest.to_le_bytes());
            }
            Piece::Halves(time) => {
                to.extend(((time >> 32) as u32).to_le_bytes());
                to.extend((*time as u32).to_le_bytes());
            }
        }
    }
}

/// The times of records in JSON.
fn json_pieces(text: &[u8]) -> Vec<Piece> {
    const KEYS: [&[u8]; 3] = [b"at_ns\":", b"_unix_ns\":", b"duration_ns\":"];
    let mut pieces = Vec::new();
    let (mut from, mut at) = (0, 0);
    while at < text.len() {
        let Some(key) = KEYS.iter().find(|key| text[at..].starts_with(key)) else {
            at += 1;
            continue;
        };
        at += key.len();
        at += text[at..].iter().take_while(|b| **b == b' ').count();
        let digits = text[at..].iter().take_while(|b| b.is_ascii_digit()).count();
        if digits > 0 {
            let number = std::str::from_utf8(&text[at..at + digits]).unwrap();
            pieces.push(Piece::Bytes(text[from..at].to_vec()));
            pieces.push(Piece::Digits(number.parse().unwrap()));
            at += digits;
            from = at;
        }
    }
    pieces.push(Piece::Bytes(text[from..].to_vec()));
    pieces
}

/// Those of a trace of linerate's own (host/observe/src/trace/file.rs).
fn trace_pieces(file: &[u8]) -> Vec<Piece> {
    let lines = file.iter().enumerate().filter(|(_, b)| **b == b'\n');
    let (mut at, _) = lines.take(2).last().unwrap();
    at += 1;
    let mut pieces = vec![Piece::Bytes(file[..at].to_vec())];
    let word = |at: usize| u64::from_le_bytes(*file[at..].first_chunk().unwrap());
    while at < file.len() {
        let kind = file[at];
        if kind == b'j' {
            let length = u32::from_le_bytes(*file[at + 1..].first_chunk().unwrap()) as usize;
            pieces.push(Piece::Bytes(vec![kind]));
            pieces.push(Piece::Record(json_pieces(&file[at + 5..][..length])));
            at += 5 + length;
            continue;
        }
        let mask = word(at + 2);
        let behind = match kind {
            b'e' => 0,
            b'd' => 16,
            b'h' => 128,
            _ => panic!("a block of kind {kind}"),
        };
        pieces.push(Piece::Bytes(file[at..at + 10].to_vec()));
        at += 10;
        // The first word is the time.
        if mask & 1 == 1 {
            pieces.push(Piece::Word(word(at)));
            at += 8;
        }
        let rest = (mask >> 1).count_ones() as usize * 8 + behind;
        pieces.push(Piece::Bytes(file[at..at + rest].to_vec()));
        at += rest;
    }
    pieces
}

fn pcap_pieces(file: &[u8]) -> Vec<Piece> {
    let word = |at: usize| u32::from_le_bytes(*file[at..].first_chunk().unwrap());
    let mut pieces = vec![Piece::Bytes(file[..24].to_vec())];
    let mut at = 24;
    while at < file.len() {
        let time = u64::from(word(at)) * 1_000_000_000 + u64::from(word(at + 4));
        let length = 8 + word(at + 8) as usize;
        pieces.push(Piece::Seconds(time));
        pieces.push(Piece::Bytes(file[at + 8..][..length].to_vec()));
        at += 8 + length;
    }
    pieces
}

fn pcapng_pieces(file: &[u8]) -> Vec<Piece> {
    let word = |at: usize| u32::from_le_bytes(*file[at..].first_chunk().unwrap());
    let mut pieces = Vec::new();
    let mut at = 0;
    while at < file.len() {
        let end = at + word(at + 4) as usize;
        // An enhanced packet block.
        match word(at) {
            6 => {
                let time = u64::from(word(at + 12)) << 32 | u64::from(word(at + 16));
                pieces.push(Piece::Bytes(file[at..at + 12].to_vec()));
                pieces.push(Piece::Halves(time));
                pieces.push(Piece::Bytes(file[at + 20..end].to_vec()));
            }
            _ => pieces.push(Piece::Bytes(file[at..end].to_vec())),
        }
        at = end;
    }
    pieces
}

/// A transfer, as a trace, as JSON and as a capture, and what 'measure' kept of it.
fn recordings(home: &Home) -> Vec<(String, Vec<Piece>)> {
    let netns = format!("lrt-times-{}", std::process::id());
    let tool = |args: &[&str]| {
        let out = run(Command::new("ip").args(args));
        assert!(
            out.status.success(),
            "this test needs root: {}",
            stderr(&out)
        );
    };
    tool(&["netns", "add", &netns]);
    tool(&["-n", &netns, "link", "set", "lo", "up"]);
    let path = |name: &str| home.path().join(name).to_str().unwrap().to_owned();
    let names = ["all.trace", "all.jsonl", "all.pcapng"];
    let tracers: Vec<Child> = names
        .iter()
        .map(|name| {
            let file = path(name);
            let args = ["trace", "--port", "5201", "--calls", "-w", &file];
            let mut child = home
                .linerate_in(&netns, &args)
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let mut said = BufReader::new(child.stderr.take().unwrap());
            let mut line = String::new();
            while !line.ends_with("; Ctrl-C ends it\n") {
                assert!(said.read_line(&mut line).unwrap() > 0, "{line}");
            }
            // Its last words must find a reader.
            std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
            child
        })
        .collect();
    let transfer = "iperf3 -s -1 -D -p 5201; until ss -Hltn 'sport = :5201' | grep -q .; do :; done; \
        iperf3 -c 127.0.0.1 -t 1 -b 20M -l 8K";
    let out = run(Command::new("ip").args(["netns", "exec", &netns, "sh", "-c", transfer]));
    for tracer in &tracers {
        signal(tracer, "INT");
    }
    for tracer in tracers {
        let ended = Running(tracer).output(DEADLINE);
        assert!(ended.status.success());
    }
    tool(&["netns", "del", &netns]);
    assert!(out.status.success(), "{}", stderr(&out));
    let measured = run(&mut home.linerate(&["measure", "local", "-t", "1", "--json"]));
    assert!(measured.status.success(), "{}", stderr(&measured));

    let read = |name: &str| fs::read(path(name)).unwrap();
    let mut all = vec![
        (names[0].to_owned(), trace_pieces(&read(names[0]))),
        (names[1].to_owned(), json_pieces(&read(names[1]))),
        (names[2].to_owned(), pcapng_pieces(&read(names[2]))),
        ("run.json".to_owned(), json_pieces(&measured.stdout)),
    ];
    for seed in [3, 8] {
        let capture = Case::drawn(seed).play().pcap(Place::Client);
        all.push((format!("{seed}.pcap"), pcap_pieces(&capture)));
    }
    let nfs = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../pure/requests/tests/captures/nfs41.pcap"
    );
    all.push(("nfs.pcap".to_owned(), pcap_pieces(&fs::read(nfs).unwrap())));
    all
}

/// What is wrong about how a reader ends, if anything.
fn complaint(home: &Home, file: &str, reader: &[&str]) -> Option<String> {
    let mut command = Command::new("sh");
    let limits = format!("ulimit -t {CPU_S}; ulimit -v {MEMORY}; exec \"$@\"");
    command.args(["-c", &limits, "sh", env!("CARGO_BIN_EXE_linerate")]);
    command.args(reader.iter().map(|arg| match *arg {
        "FILE" => file,
        arg => arg,
    }));
    home.furnish(&mut command);
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let out = Running(child).output(DEADLINE);
    let said = stderr(&out);
    if let Some(signal) = out.status.signal() {
        return Some(format!("signal {signal}: {said}"));
    }
    let well = matches!(out.status.code(), Some(0..=4))
        && ["panicked", ": cut, because", "by signal"]
            .iter()
            .all(|bad| !said.contains(bad));
    (!well).then(|| format!("{}: {said}", out.status))
}

#[test]
fn readers_of_damaged_times_end_in_bounded_time_and_memory() {
    let home = Home::new();
    let mut cases = Vec::new();
    for (name, mut pieces) in recordings(&home) {
        let mut before = Vec::new();
        times(&mut pieces, &mut |time| before.push(*time));
        assert!(before.len() > 20, "{name}: {} times", before.len());
        for (n, how) in (0..).zip(DAMAGES) {
            let mut random = Random(before.len() as u64 + n);
            let mut after = damaged(&before, how, &mut random).into_iter();
            times(&mut pieces, &mut |time| *time = after.next().unwrap());
            let mut bytes = Vec::new();
            write(&pieces, &mut bytes);
            let file = home.path().join(format!("{how}-{name}"));
            fs::write(&file, bytes).unwrap();
            // Each reader meets each damage, in one recording or another.
            for turn in 0..READERS_A_FILE {
                let reader = READERS[(cases.len() + turn) % READERS.len()];
                // What was measured has no requests.
                if !(name == "run.json" && reader.contains(&"--requests")) {
                    cases.push((file.to_str().unwrap().to_owned(), reader));
                }
            }
        }
    }
    let next = AtomicUsize::new(0);
    let work = || {
        let mut wrong = Vec::new();
        while let Some((file, reader)) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Some(why) = complaint(&home, file, reader) {
                wrong.push(format!("{} of {file}: {why}", reader.join(" ")));
            }
        }
        wrong
    };
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let workers = [scope.spawn(work), scope.spawn(work)];
        let done = workers.into_iter().map(|worker| worker.join().unwrap());
        done.flatten().collect()
    });
    let count = wrong.len();
    let shown: Vec<String> = wrong.into_iter().take(40).collect();
    assert!(
        count == 0,
        "{count} of {} end badly:\n{}",
        cases.len(),
        shown.join("\n")
    );
}

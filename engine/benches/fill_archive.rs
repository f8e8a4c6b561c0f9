//! Fills an archive for bench/archive: `fill_archive day|runs RUN.json ARCHIVE [COUNT]`.
//!
//! `day` repeats the first leg of a run, with both ends, until it is 24 hours long, in commits of 200 ms as a measurement makes
//! them. `runs` keeps COUNT runs of 300 paths, each the run with another name, time, host and rate, and what views need of them.
#![expect(clippy::unwrap_used, reason = "a bench fails as a test does")]

use archive::Archive;
use linerate_engine::histories;
use model::{Bytes, EndRecord, Leg, Nanos, Run, Sample, Side};
use std::path::Path;

const DAY: Nanos = Nanos::from_secs(86_400);
/// As a measurement keeps samples.
const GROUP: Nanos = Nanos::from_millis(200);
const PATHS: u64 = 300;

fn main() {
    let arguments: Vec<String> = std::env::args().filter(|one| one != "--bench").collect();
    let [_, what, run, into, rest @ ..] = &arguments[..] else {
        panic!("fill_archive day|runs RUN.json ARCHIVE [COUNT]");
    };
    let run: Run = serde_json::from_slice(&std::fs::read(run).unwrap()).unwrap();
    let mut archive = Archive::open(Path::new(into)).unwrap();
    match what.as_str() {
        "day" => day(&mut archive, &run),
        _ => runs(&mut archive, &run, rest[0].parse().unwrap()),
    }
}

/// One that is `ago` later, in its turn.
fn later(sample: &Sample, turn: u64, span: Nanos, bytes: Bytes) -> Sample {
    let mut sample = sample.clone();
    sample.at = Nanos(sample.at.0 + turn * span.0);
    sample.bytes = Bytes(sample.bytes.0 + turn * bytes.0);
    for stream in &mut sample.streams {
        stream.bytes = Bytes(stream.bytes.0 + turn * bytes.0 / 4);
    }
    sample
}

fn day(archive: &mut Archive, run: &Run) {
    let leg = run.legs.first().unwrap();
    let whole = Run {
        id: archive::new_id(),
        legs: Vec::new(),
        ..run.clone()
    };
    archive.begin(&whole).unwrap();
    archive
        .start_leg(&whole.id, 0, leg.direction, leg.started)
        .unwrap();
    let ends = [(Side::Local, &leg.local), (Side::Remote, &leg.remote)];
    let span = leg.local.duration;
    let mut kept = ends.map(|(_, end)| EndRecord {
        samples: Vec::new(),
        ..end.clone()
    });
    let turns = DAY.0 / span.0;
    for turn in 0..turns {
        let mut group: Vec<(Side, Sample)> = Vec::new();
        let mut until = GROUP;
        for n in 0..leg.local.samples.len().min(leg.remote.samples.len()) {
            for ((side, end), kept) in ends.iter().zip(&mut kept) {
                let sample = later(&end.samples[n], turn, span, end.bytes);
                kept.push(sample.clone(), run.spec.streams);
                group.push((*side, sample));
            }
            if leg.local.samples[n].at >= until {
                until += GROUP;
                let samples = group.iter().map(|(side, sample)| (0, *side, sample));
                archive.samples(&whole.id, samples).unwrap();
                group.clear();
            }
        }
        let samples = group.iter().map(|(side, sample)| (0, *side, sample));
        archive.samples(&whole.id, samples).unwrap();
    }
    let [mut local, mut remote] = kept;
    for (end, of) in [(&mut local, &leg.local), (&mut remote, &leg.remote)] {
        end.duration = Nanos(turns * span.0);
        end.bytes = Bytes(turns * of.bytes.0);
    }
    let leg = Leg {
        local,
        remote,
        ..leg.clone()
    };
    archive.finish_leg(&whole.id, 0, &leg).unwrap();
    let whole = Run {
        legs: vec![leg],
        ..whole
    };
    archive.finish(&whole).unwrap();
    histories::refresh(archive, |path| path.is_of(&whole)).unwrap();
    println!("{}", whole.id);
}

fn runs(archive: &mut Archive, run: &Run, count: u64) {
    // Rates that vary by a tenth, by a generator whose period is long enough (Knuth's MMIX).
    let mut random = 1_u64;
    for n in 0..count {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let share = 0.9 + (random >> 40) as f64 / f64::from(1 << 24) / 5.0;
        let mut run = run.clone();
        (run.id, run.host) = (archive::new_id(), format!("host{:03}", n % PATHS));
        run.remote_id = None;
        run.started = Nanos(run.started.0 - (count - n) * 60_000_000_000);
        for leg in &mut run.legs {
            for end in [&mut leg.local, &mut leg.remote] {
                end.bytes = Bytes((end.bytes.0 as f64 * share) as u64);
                for sample in &mut end.samples {
                    sample.bytes = Bytes((sample.bytes.0 as f64 * share) as u64);
                }
            }
        }
        archive.import(&run).unwrap();
    }
    histories::refresh(archive, |_| true).unwrap();
}

//! Samples as a block of bytes: a column for each quantity, in it the differences from sample to sample, then zlib.
//!
//! A column begins with its name, so that a field which comes later moves none. A column of streams has a series for
//! each stream, in the order of the sample's list; one of latencies has all pairs of all samples in one. A series is:
//!
//! - a byte: [`ABSENT`] if no sample has a value, else how the values go on, and [`SOME`] if there are gaps, which a
//!   bitmap shows then, least bit first;
//! - the first value, and, unless it never changes, the greatest common divisor of all steps and the steps divided by
//!   it: LEB128, the steps with their sign in the lowest bit. A step is a difference, or the difference of two of them,
//!   whichever takes less.
//!
//! A field that is not known has no value; a stream without a socket's state has a gap in the column `tcp`.

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use model::socket::{FIELDS, FieldValue, SocketFieldInfo};
use model::{Bytes, CpuTimes, Datagrams, Latency, Nanos, Sample, SocketState, StreamSample};
use std::io::{Read, Write};

/// Samples of a block that is full.
pub(crate) const FULL: usize = 512;

/// Bytes of a block before zlib, at most: far beyond what [`FULL`] samples of the most streams take.
const LARGEST: u64 = 1 << 28;

/// Streams of a sample at most; more is damage, and so are more samples than [`FULL`].
const MOST_STREAMS: u64 = 1024;

/// Pairs of the latencies of a block at most.
const MOST_PAIRS: u64 = 1 << 24;

const CONSTANT: u8 = 0;
const STEPS: u8 = 1;
const STEPS_OF_STEPS: u8 = 2;
const SOME: u8 = 4;
const ABSENT: u8 = 255;

macro_rules! columns {
    ($($name:literal $get:expr, $set:expr;)*) => { [$(($name, $get, $set)),*] };
}

type Column<T, V> = (
    &'static str,
    fn(&T) -> Option<V>,
    fn(&mut T, V) -> Option<()>,
);

const CPU: [Column<CpuTimes, Nanos>; 7] = columns! {
    "process_user" |c| Some(c.process_user), |c, t| put(&mut c.process_user, t);
    "process_system" |c| Some(c.process_system), |c, t| put(&mut c.process_system, t);
    "host_busy" |c| Some(c.host_busy), |c, t| put(&mut c.host_busy, t);
    "busiest_processor" |c| c.busiest_processor, |c, t| put(&mut c.busiest_processor, Some(t));
    "host_softirq" |c| Some(c.host_softirq), |c, t| put(&mut c.host_softirq, t);
    "host_steal" |c| Some(c.host_steal), |c, t| put(&mut c.host_steal, t);
    "host_total" |c| Some(c.host_total), |c, t| put(&mut c.host_total, t);
};

type DatagramColumn = (&'static str, fn(&mut Datagrams) -> &mut u64);
const DATAGRAMS: [DatagramColumn; 4] = [
    ("packets", |d| &mut d.packets),
    ("lost", |d| &mut d.lost),
    ("out_of_order", |d| &mut d.out_of_order),
    ("jitter", |d| &mut d.jitter.0),
];

const STREAM: [Column<StreamSample, u64>; 5] = columns! {
    "stream" |s| Some(s.stream.into()), |s, n| put(&mut s.stream, n.try_into().ok()?);
    "stream_bytes" |s| Some(s.bytes.0), |s, n| put(&mut s.bytes.0, n);
    "send_buffer" |s| Some(s.send_buffer?.0), |s, n| put(&mut s.send_buffer, Some(Bytes(n)));
    "receive_buffer" |s| Some(s.receive_buffer?.0), |s, n| put(&mut s.receive_buffer, Some(Bytes(n)));
    "tcp" |s| s.tcp.as_ref().map(|_| 1), |s, _| put(&mut s.tcp, Some(SocketState::default()));
};

/// Packs samples. What is packed again soon need not be made as small as can be.
pub(crate) fn pack(samples: &[&Sample], for_good: bool) -> Vec<u8> {
    let mut out = ColumnPacker::default();
    number(&mut out.bytes, samples.len() as u64);
    out.column("at", samples.iter().map(|s| Some(s.at.0)));
    out.column("bytes", samples.iter().map(|s| Some(s.bytes.0)));
    for (name, get, _) in CPU {
        out.column(name, samples.iter().map(|s| Some(get(&s.cpu)?.0)));
    }
    for (name, get) in DATAGRAMS {
        out.column(name, samples.iter().map(|s| Some(*get(&mut s.datagrams?))));
    }
    let latencies = || {
        samples
            .iter()
            .map(|s| s.requests.as_ref().map(Latency::counts))
    };
    out.column("requests", latencies().map(|all| Some(all?.len() as u64)));
    let pairs = || latencies().flatten().flatten();
    out.column("latency", pairs().map(|(value, _)| Some(*value)));
    out.column("latency_count", pairs().map(|(_, count)| Some(*count)));
    out.column(
        "streams",
        samples.iter().map(|s| Some(s.streams.len() as u64)),
    );
    let most = samples.iter().map(|s| s.streams.len()).max().unwrap_or(0);
    for (name, get, _) in STREAM {
        out.name(name);
        for place in 0..most {
            out.series(
                samples
                    .iter()
                    .filter_map(|s| Some(get(s.streams.get(place)?))),
            );
        }
    }
    for field in FIELDS {
        let of = |place: usize| {
            let states = samples
                .iter()
                .filter_map(move |s| s.streams.get(place)?.tcp.as_ref());
            states.map(move |tcp| (field.get)(tcp).map(FieldValue::number))
        };
        if (0..most).any(|place| of(place).any(|value| value.is_some())) {
            out.name(field.name);
            (0..most).for_each(|place| out.series(of(place)));
        }
    }
    let level = match for_good {
        true => Compression::default(),
        false => Compression::fast(),
    };
    let mut zlib = ZlibEncoder::new(Vec::new(), level);
    let packed = zlib.write_all(&out.bytes).and_then(|()| zlib.finish());
    packed.expect("memory takes what is written")
}

/// The samples of a block; `None` if it is none.
pub(crate) fn unpack(block: &[u8]) -> Option<Vec<Sample>> {
    let mut bytes = Vec::new();
    let mut zlib = ZlibDecoder::new(block).take(LARGEST);
    zlib.read_to_end(&mut bytes).ok()?;
    let mut input = ColumnUnpacker {
        bytes: &bytes,
        values: Vec::new(),
    };
    let count = input.count()?;
    let mut samples = vec![Sample::default(); count];
    let mut counts: Vec<u64> = Vec::new();
    let mut most = 0;
    let mut pairs: Vec<(u64, u64)> = Vec::new();
    while !input.bytes.is_empty() {
        let name = input.name()?;
        let cpu = CPU.iter().find(|(of, ..)| *of == name);
        let datagrams = DATAGRAMS.iter().find(|(of, _)| *of == name);
        if let Some((_, _, set)) = cpu {
            input.each(&mut samples, |s, n| set(&mut s.cpu, Nanos(n)))?;
        } else if let Some((_, of)) = datagrams {
            let place = |s: &mut Sample, n| put(of(s.datagrams.get_or_insert_default()), n);
            input.each(&mut samples, place)?;
        } else if let Some((_, _, set)) = STREAM.iter().find(|(of, ..)| *of == name) {
            for place in 0..most {
                let streams = samples.iter_mut().filter_map(|s| s.streams.get_mut(place));
                input.fill(streams, set)?;
            }
        } else if let Some(SocketFieldInfo { field, .. }) = FIELDS.iter().find(|f| f.name == name) {
            for place in 0..most {
                let states = samples
                    .iter_mut()
                    .filter_map(|s| s.streams.get_mut(place)?.tcp.as_mut());
                input.fill(states, |tcp, n| tcp.set_number(*field, n))?;
            }
        } else {
            match name {
                "at" => input.each(&mut samples, |s, n| put(&mut s.at.0, n))?,
                "bytes" => input.each(&mut samples, |s, n| put(&mut s.bytes.0, n))?,
                "streams" => {
                    input.each(&mut samples, |s, n| {
                        let count = usize::try_from(n).ok().filter(|_| n <= MOST_STREAMS)?;
                        put(&mut s.streams, vec![StreamSample::default(); count])
                    })?;
                    most = samples.iter().map(|s| s.streams.len()).max().unwrap_or(0);
                }
                "requests" => {
                    input.each(&mut samples, |s, n| {
                        counts.push(n);
                        put(&mut s.requests, Some(Latency::default()))
                    })?;
                    let sum = counts
                        .iter()
                        .try_fold(0_u64, |sum, n| sum.checked_add(*n))?;
                    pairs = vec![(0, 0); usize::try_from(sum).ok().filter(|_| sum <= MOST_PAIRS)?];
                }
                "latency" => input.each(&mut pairs, |pair, n| put(&mut pair.0, n))?,
                "latency_count" => input.each(&mut pairs, |pair, n| put(&mut pair.1, n))?,
                _ => return None,
            }
        }
    }
    let mut rest = pairs.as_slice();
    let asked = samples.iter_mut().filter_map(|s| s.requests.as_mut());
    for (requests, count) in asked.zip(counts) {
        let (own, others) = rest.split_at_checked(count as usize)?;
        *requests = Latency::from_counts(own.iter().copied());
        rest = others;
    }
    Some(samples)
}

#[derive(Default)]
struct ColumnPacker {
    bytes: Vec<u8>,
    gaps: Vec<u8>,
    values: Vec<u64>,
}

impl ColumnPacker {
    fn name(&mut self, name: &str) {
        number(&mut self.bytes, name.len() as u64);
        self.bytes.extend_from_slice(name.as_bytes());
    }

    /// A column of one series, if there is a value in it.
    fn column(&mut self, name: &str, values: impl Iterator<Item = Option<u64>> + Clone) {
        if values.clone().any(|value| value.is_some()) {
            self.name(name);
            self.series(values);
        }
    }

    fn series(&mut self, values: impl Iterator<Item = Option<u64>>) {
        self.values.clear();
        self.gaps.clear();
        let mut count = 0;
        for value in values {
            if count % 8 == 0 {
                self.gaps.push(0);
            }
            if let (Some(value), Some(last)) = (value, self.gaps.last_mut()) {
                *last |= 1 << (count % 8);
                self.values.push(value);
            }
            count += 1;
        }
        let Some(&first) = self.values.first() else {
            self.bytes.push(ABSENT);
            return;
        };
        let gaps = if self.values.len() < count { SOME } else { 0 };
        // Counters wrap.
        let pairs = self.values.windows(2);
        let steps: Vec<i64> = pairs
            .map(|p| p[1].wrapping_sub(p[0]).cast_signed())
            .collect();
        let divisor = steps
            .iter()
            .fold(0, |all, step| divisor(all, step.unsigned_abs()));
        // Where one of them wraps the divisor is none of theirs.
        let seconds = steps.windows(2).map(|p| p[1].checked_sub(p[0])).collect();
        let seconds: Option<Vec<i64>> = seconds;
        let length = |of: &[i64]| of.iter().map(|step| length(*step, divisor)).sum::<usize>();
        let shorter = |seconds: &Vec<i64>| length(seconds) < length(&steps[1..]);
        let seconds = seconds.filter(|seconds| !seconds.is_empty() && shorter(seconds));
        let order = match (divisor, &seconds) {
            (0, _) => CONSTANT,
            (_, Some(_)) => STEPS_OF_STEPS,
            (_, None) => STEPS,
        };
        self.bytes.push(order | gaps);
        if gaps > 0 {
            self.bytes.extend_from_slice(&self.gaps);
        }
        number(&mut self.bytes, first);
        if order == CONSTANT {
            return;
        }
        number(&mut self.bytes, divisor);
        let coded = |step: &i64| signed(step / divisor.cast_signed());
        // The first step of the steps is the first of the values.
        let all = match &seconds {
            None => steps.iter().chain(&[]),
            Some(seconds) => steps[..1].iter().chain(seconds),
        };
        all.for_each(|step| number(&mut self.bytes, coded(step)));
    }
}

fn put<T>(place: &mut T, value: T) -> Option<()> {
    *place = value;
    Some(())
}

/// The greatest common divisor; of 0 and another that one. One that is no positive `i64` is left at 1.
fn divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    if i64::try_from(a).is_ok() { a } else { 1 }
}

/// Bytes that a step takes.
fn length(step: i64, divisor: u64) -> usize {
    let bits = 64 - signed(step / divisor.max(1).cast_signed()).leading_zeros() as usize;
    bits.div_ceil(7).max(1)
}

/// Small where the step is, up or down.
fn signed(step: i64) -> u64 {
    ((step << 1) ^ (step >> 63)).cast_unsigned()
}

/// A number as LEB128.
fn number(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

struct ColumnUnpacker<'a> {
    bytes: &'a [u8],
    values: Vec<Option<u64>>,
}

impl<'a> ColumnUnpacker<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(*first)
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(count)?;
        self.bytes = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn step(&mut self) -> Option<i64> {
        let coded = self.number()?;
        Some((coded >> 1).cast_signed() ^ -(coded & 1).cast_signed())
    }

    /// A number of samples or letters.
    fn count(&mut self) -> Option<usize> {
        let count = usize::try_from(self.number()?).ok();
        count.filter(|count| *count <= FULL)
    }

    fn name(&mut self) -> Option<&'a str> {
        let length = self.count()?;
        std::str::from_utf8(self.take(length)?).ok()
    }

    /// Sets a series in all of these.
    fn each<T>(&mut self, of: &mut [T], set: impl FnMut(&mut T, u64) -> Option<()>) -> Option<()> {
        self.fill(of.iter_mut(), set)
    }

    fn fill<'t, T: 't>(
        &mut self,
        of: impl Iterator<Item = &'t mut T>,
        mut set: impl FnMut(&mut T, u64) -> Option<()>,
    ) -> Option<()> {
        let mut of: Vec<&mut T> = of.collect();
        self.series(of.len())?;
        let values = of.iter_mut().zip(&self.values);
        for (one, value) in values {
            if let Some(value) = value {
                set(one, *value)?;
            }
        }
        Some(())
    }

    /// The next series, of so many places, into `values`.
    fn series(&mut self, places: usize) -> Option<()> {
        self.values.clear();
        self.values.resize(places, None);
        let form = self.byte()?;
        if form == ABSENT {
            return Some(());
        }
        let gaps = match form & SOME {
            0 => None,
            _ => Some(self.take(places.div_ceil(8))?),
        };
        let is_there = |place: usize| match gaps {
            Some(gaps) => gaps[place / 8] >> (place % 8) & 1 == 1,
            None => true,
        };
        let mut value = self.number()?.cast_signed();
        let order = form & !SOME;
        let divisor = match order {
            CONSTANT => 0,
            STEPS | STEPS_OF_STEPS => self.number()?.cast_signed(),
            _ => return None,
        };
        let (mut step, mut seen) = (0_i64, 0);
        for place in (0..places).filter(|place| is_there(*place)) {
            if seen > 0 && order != CONSTANT {
                let coded = self.step()?.wrapping_mul(divisor);
                step = match order {
                    STEPS_OF_STEPS => step.wrapping_add(coded),
                    _ => coded,
                };
                value = value.wrapping_add(step);
            }
            self.values[place] = Some(value.cast_unsigned());
            seen += 1;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Counters that rise evenly and wrap, values that jump, and gaps.
    fn any_series() -> impl Strategy<Value = Vec<Option<u64>>> {
        let even = (any::<u64>(), any::<u64>(), 0..40_u64).prop_map(|(first, step, count)| {
            let of = |n: u64| Some(first.wrapping_add(step.wrapping_mul(n)));
            (0..count).map(of).collect()
        });
        let any_value = prop_oneof![
            Just(None),
            any::<u64>().prop_map(Some),
            (0..9_u64).prop_map(Some)
        ];
        prop_oneof![even, prop::collection::vec(any_value, 0..40)]
    }

    proptest! {
        #[test]
        fn any_series_comes_back(values in any_series()) {
            let mut packed = ColumnPacker::default();
            packed.series(values.iter().copied());
            let mut back = ColumnUnpacker { bytes: &packed.bytes, values: Vec::new() };
            prop_assert_eq!(back.series(values.len()), Some(()));
            prop_assert_eq!((&back.values, back.bytes), (&values, &[][..]));
        }

        #[test]
        fn no_bytes_are_read_beyond_their_bounds(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut zlib = ZlibEncoder::new(Vec::new(), Compression::fast());
            zlib.write_all(&bytes).unwrap();
            // Whatever it gives, it ends.
            let _ = (unpack(&zlib.finish().unwrap()), unpack(&bytes));
        }
    }

    #[test]
    fn what_rises_evenly_takes_next_to_nothing() {
        let sample = |n: u64| Sample {
            at: Nanos(n * 10_000_000),
            bytes: Bytes(n * 1_448_000),
            ..Sample::default()
        };
        let all: Vec<Sample> = (0..FULL as u64).map(sample).collect();
        let packed = pack(&all.iter().collect::<Vec<_>>(), true);
        assert!(packed.len() < 200, "{}", packed.len());
        assert_eq!(unpack(&packed), Some(all));
    }
}

//! The samples of one end of a leg.

use crate::tcp_info;
use model::{Bytes, CpuTimes, Latency, MOST_SAMPLED, Nanos, Sample, StreamSample};
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use sys::socket::{self, IntOption};

/// Reads TCP_INFO of the streams (the first [`MOST_SAMPLED`]) and the processor time of process and host, from the start of a leg.
///
/// A sample costs three system calls a stream and two more (pread of `/proc/stat`, most of whose cost is the kernel's to print
/// it, and getrusage).
pub struct Sampler<S> {
    sockets: Vec<S>,
    /// `None` where `/proc` is not mounted: the times of the host then stay zero.
    stat: Option<File>,
    text: Vec<u8>,
    busiest: Busiest,
    start: CpuTimes,
    ns_per_tick: u64,
}

impl<S: AsFd> Sampler<S> {
    /// Begins a leg now: the processor times of all samples count from here. One socket a stream, in
    /// the order of the streams, of which those that are not read may be missing; none at all for UDP.
    pub fn start(sockets: Vec<S>) -> Sampler<S> {
        let mut sampler = Sampler {
            sockets,
            stat: File::open("/proc/stat").ok(),
            text: vec![0; STAT_BYTES],
            busiest: Busiest::default(),
            start: CpuTimes::default(),
            ns_per_tick: 1_000_000_000 / sys::process::clock_ticks_per_second(),
        };
        sampler.start = sampler.cpu_times(Nanos(0));
        sampler
    }

    /// Takes one sample at `at` since the start of the leg. `bytes` has one counter a stream; `requests`
    /// are those finished since the last sample.
    ///
    /// A socket that was closed or reset by the peer keeps its last account; one that cannot be read
    /// (UDP) has none. Nothing here fails: what cannot be read is left out.
    pub fn sample(&mut self, at: Nanos, bytes: &[Bytes], requests: Option<Latency>) -> Sample {
        let streams = (0..self.sockets.len().max(bytes.len()).min(MOST_SAMPLED))
            .map(|i| StreamSample {
                stream: u32::try_from(i).unwrap_or(u32::MAX),
                bytes: bytes.get(i).copied().unwrap_or_default(),
                tcp: self.sockets.get(i).and_then(|s| tcp_info(s.as_fd()).ok()),
                send_buffer: self.buffer(i, socket::SEND_BUFFER),
                receive_buffer: self.buffer(i, socket::RECEIVE_BUFFER),
            })
            .collect();
        let now = self.cpu_times(at);
        Sample {
            at,
            bytes: bytes.iter().copied().sum(),
            streams,
            cpu: since(now, self.start),
            requests,
            datagrams: None,
        }
    }

    fn buffer(&self, stream: usize, option: IntOption) -> Option<Bytes> {
        let held = socket::get(self.sockets.get(stream)?.as_fd(), option).ok()?;
        u64::try_from(held).ok().map(Bytes)
    }

    fn cpu_times(&mut self, at: Nanos) -> CpuTimes {
        let (user, system) = sys::process::cpu_time().unwrap_or_default();
        let stat = self.stat.as_ref();
        let n = stat.and_then(|stat| stat.read_at(&mut self.text, 0).ok());
        let mut processors = host_ticks(&self.text[..n.unwrap_or(0)]);
        let host = processors.next().unwrap_or_default();
        let busiest = self.busiest.read(at, processors.map(|one| one[BUSY]));
        let time = |ticks: u64| Nanos(ticks.saturating_mul(self.ns_per_tick));
        let [busy, softirq, steal, total] = host.map(time);
        CpuTimes {
            process_user: user.into(),
            process_system: system.into(),
            host_busy: busy,
            busiest_processor: busiest.map(time),
            host_softirq: softirq,
            host_steal: steal,
            host_total: total,
        }
    }
}

/// Of `/proc/stat`: room for the lines of 500 processors, which come first. Those beyond are not looked at.
const STAT_BYTES: usize = 64 * 1024;

/// The kernel counts in ticks of 10 ms: over a shorter window the busiest processor is mostly the one whose tick came first.
const WINDOW: Nanos = Nanos::from_millis(100);

/// Sums, window by window, what the busiest processor was busy for.
#[derive(Default)]
struct Busiest {
    since: Nanos,
    at_start: Vec<u64>,
    closed: u64,
}

impl Busiest {
    /// Takes the busy ticks of each processor since boot, and gives the sum since the first reading; `None` without processors.
    fn read(&mut self, at: Nanos, processors: impl Iterator<Item = u64>) -> Option<u64> {
        let now: Vec<u64> = processors.collect();
        // At the first reading, and where one was switched on or off.
        if now.len() != self.at_start.len() {
            (self.since, self.at_start) = (at, now);
            return (!self.at_start.is_empty()).then_some(self.closed);
        }
        let both = now.iter().zip(&self.at_start);
        let sum = self.closed + both.map(|(now, start)| now.saturating_sub(*start)).max()?;
        if at.since(self.since) >= WINDOW {
            (self.since, self.at_start, self.closed) = (at, now, sum);
        }
        Some(sum)
    }
}

const BUSY: usize = 0;

/// Busy, soft interrupt, stolen and total time since boot, in clock ticks: of all processors, then of each. The lines are `cpu
/// user nice system idle iowait irq softirq steal guest guest_nice` and `cpu0 ...` (proc_stat(5)); guest time is already in user
/// and nice. A column that an older kernel lacks counts as zero. Stolen time is neither busy nor idle: this host asked for it
/// and did not get it.
fn host_ticks(stat: &[u8]) -> impl Iterator<Item = [u64; 4]> {
    let lines = stat.split_inclusive(|b| *b == b'\n');
    // The last one may be cut.
    let whole = lines.take_while(|line| line.starts_with(b"cpu") && line.ends_with(b"\n"));
    whole.map(|line| {
        let mut columns = [0u64; 8];
        let words = line
            .split(u8::is_ascii_whitespace)
            .filter(|word| !word.is_empty());
        for (column, word) in columns.iter_mut().zip(words.skip(1)) {
            *column = str::from_utf8(word)
                .ok()
                .and_then(|word| word.parse().ok())
                .unwrap_or(0);
        }
        let [user, nice, system, idle, iowait, irq, softirq, steal] = columns;
        let busy = user + nice + system + irq + softirq;
        [busy, softirq, steal, busy + idle + iowait + steal]
    })
}

fn since(now: CpuTimes, start: CpuTimes) -> CpuTimes {
    CpuTimes {
        process_user: now.process_user.since(start.process_user),
        process_system: now.process_system.since(start.process_system),
        host_busy: now.host_busy.since(start.host_busy),
        busiest_processor: now.busiest_processor,
        host_softirq: now.host_softirq.since(start.host_softirq),
        host_steal: now.host_steal.since(start.host_steal),
        host_total: now.host_total.since(start.host_total),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_the_processors() {
        let stat = b"cpu  7520 10 3988 261219 809 3 54 14 100 5\ncpu0 20 0 10 5 0 0 0 0 0 0\ncpu1 1 x\nintr 7 8\ncpu2 1\n";
        let busy = 7520 + 10 + 3988 + 3 + 54;
        let all: Vec<_> = host_ticks(stat).collect();
        let first = [busy, 54, 14, busy + 261_219 + 809 + 14];
        assert_eq!(all, [first, [30, 0, 0, 35], [1, 0, 0, 1]]);
        assert_eq!(host_ticks(b"").count(), 0);
        assert_eq!(host_ticks(b"cpu 1 2 3 4").count(), 0, "cut");
    }

    #[test]
    fn the_busiest_processor_is_another_in_each_window() {
        let mut busiest = Busiest::default();
        let mut read =
            |at_ms, ticks: [u64; 2]| busiest.read(Nanos::from_millis(at_ms), ticks.into_iter());
        assert_eq!(read(0, [500, 700]), Some(0));
        assert_eq!(read(50, [505, 700]), Some(5));
        assert_eq!(read(100, [505, 709]), Some(9), "of the window so far");
        assert_eq!(read(200, [515, 709]), Some(19));
        assert_eq!(read(300, [517, 719]), Some(29));
        assert_eq!(Busiest::default().read(Nanos(0), [].into_iter()), None);
    }

    #[test]
    fn a_processor_that_is_switched_off_begins_a_new_window() {
        let mut busiest = Busiest::default();
        let at = Nanos::from_millis;
        busiest.read(at(0), [1, 2].into_iter());
        busiest.read(at(100), [11, 3].into_iter());
        assert_eq!(busiest.read(at(150), [12].into_iter()), Some(10));
        assert_eq!(busiest.read(at(200), [15].into_iter()), Some(13));
    }
}

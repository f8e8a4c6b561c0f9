//! The samples of one end of a leg.

use crate::tcp_info;
use model::{Bytes, CpuTimes, Latency, Nanos, Sample, StreamSample};
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use sys::socket::{self, IntOption};

/// Reads TCP_INFO of every stream and the processor time of process and host, from the start of a leg.
///
/// A sample costs three system calls a stream and three more (pread of `/proc/stat`, getrusage, and the
/// kernel's work to print `/proc/stat`).
pub struct Sampler<S> {
    sockets: Vec<S>,
    /// `None` where `/proc` is not mounted: the times of the host then stay zero.
    stat: Option<File>,
    start: CpuTimes,
    ns_per_tick: u64,
}

impl<S: AsFd> Sampler<S> {
    /// Begins a leg now: the processor times of all samples count from here. One socket a stream, in
    /// the order of the streams; none at all for UDP.
    pub fn start(sockets: Vec<S>) -> Sampler<S> {
        let mut sampler = Sampler {
            sockets,
            stat: File::open("/proc/stat").ok(),
            start: CpuTimes::default(),
            ns_per_tick: 1_000_000_000 / sys::process::clock_ticks_per_second(),
        };
        sampler.start = sampler.cpu_times();
        sampler
    }

    /// Takes one sample at `at` since the start of the leg. `bytes` has one counter a stream; `requests`
    /// are those finished since the last sample.
    ///
    /// A socket that was closed or reset by the peer keeps its last account; one that cannot be read
    /// (UDP) has none. Nothing here fails: what cannot be read is left out.
    pub fn sample(&mut self, at: Nanos, bytes: &[Bytes], requests: Option<Latency>) -> Sample {
        let streams = (0..self.sockets.len().max(bytes.len()))
            .map(|i| StreamSample {
                stream: u32::try_from(i).unwrap_or(u32::MAX),
                bytes: bytes.get(i).copied().unwrap_or_default(),
                tcp: self.sockets.get(i).and_then(|s| tcp_info(s.as_fd()).ok()),
                send_buffer: self.buffer(i, socket::SEND_BUFFER),
                receive_buffer: self.buffer(i, socket::RECEIVE_BUFFER),
            })
            .collect();
        let now = self.cpu_times();
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

    fn cpu_times(&self) -> CpuTimes {
        let (user, system) = sys::process::cpu_time().unwrap_or_default();
        let line = self.stat.as_ref().and_then(read_first_line);
        let host = host_ticks(&line.unwrap_or_default());
        let [busy, softirq, steal, total] =
            host.map(|ticks| Nanos(ticks.saturating_mul(self.ns_per_tick)));
        CpuTimes {
            process_user: user.into(),
            process_system: system.into(),
            host_busy: busy,
            host_softirq: softirq,
            host_steal: steal,
            host_total: total,
        }
    }
}

/// The first line of `/proc/stat` sums all processors, and fits 256 bytes: ten numbers of 20 digits.
fn read_first_line(stat: &File) -> Option<String> {
    let mut head = [0; 256];
    let n = stat.read_at(&mut head, 0).ok()?;
    let line = head[..n].split(|b| *b == b'\n').next()?;
    String::from_utf8(line.to_vec()).ok()
}

/// Busy, soft interrupt, stolen and total time since boot, in clock ticks, of `cpu user nice system idle iowait irq softirq
/// steal guest guest_nice` (proc_stat(5)); guest time is already in user and nice. A column that an older kernel lacks
/// counts as zero. Stolen time is neither busy nor idle: this host asked for it and did not get it.
fn host_ticks(line: &str) -> [u64; 4] {
    let mut columns = [0u64; 8];
    for (column, word) in columns.iter_mut().zip(line.split_whitespace().skip(1)) {
        *column = word.parse().unwrap_or(0);
    }
    let [user, nice, system, idle, iowait, irq, softirq, steal] = columns;
    let busy = user + nice + system + irq + softirq;
    [busy, softirq, steal, busy + idle + iowait + steal]
}

fn since(now: CpuTimes, start: CpuTimes) -> CpuTimes {
    CpuTimes {
        process_user: now.process_user.since(start.process_user),
        process_system: now.process_system.since(start.process_system),
        host_busy: now.host_busy.since(start.host_busy),
        host_softirq: now.host_softirq.since(start.host_softirq),
        host_steal: now.host_steal.since(start.host_steal),
        host_total: now.host_total.since(start.host_total),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_all_processors() {
        let ticks = host_ticks("cpu  7520 10 3988 261219 809 3 54 14 100 5");
        let busy = 7520 + 10 + 3988 + 3 + 54;
        assert_eq!(ticks, [busy, 54, 14, busy + 261_219 + 809 + 14]);
        assert_eq!(host_ticks(""), [0; 4]);
        assert_eq!(host_ticks("cpu x y"), [0; 4]);
    }
}

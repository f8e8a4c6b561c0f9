//! Nothing in TCP held the segments back: a processor, or who it is given to.
//!
//! Near miss: a busy host whose path is slower still. A busy processor alone proves nothing.

use super::{Candidate, Key};
use crate::facts::{CpuLoad, Facts, LONG_QUEUE, NOISE};
use model::finding::{Confidence, Evidence, Limit};

/// A process so busy has no time left on the one processor that a stream can use.
const PROCESS_FULL: f64 = 0.9;
/// A host so busy has no processor left.
const HOST_FULL: f64 = 0.95;
/// And the transfer itself is a good part of that.
const WORKS: f64 = 0.25;
/// Of one machine that has both ends, their processes use so many processors, and its kernel, which moves the data between them,
/// some more: a copy at each end is most of the work of a path that is memory.
const BOTH_WORK: f64 = 0.9;
/// With more loss than this there is something else to look at first.
const MUCH_LOSS: f64 = 0.01;
/// Goodput by the speed of the slowest device, from which the device is full: headers and acknowledgements have the rest.
const DEVICE_FULL: f64 = 0.85;

pub(crate) fn candidate(facts: &Facts) -> Candidate {
    Candidate::new(Confidence::Possible, evidence(facts)).advise(ADVICE)
}

const ADVICE: &str = "look at both hosts' processors: offloads (tso, gro), interrupts on one processor, other load, \
     larger segments";

const OTHERS: &str = "measure again while the hosts are idle: other work has their processors, and hides what the path carries";

/// An end is full of work, and no queue on the path shows that the network is.
pub(crate) fn fits(facts: &Facts) -> Option<Candidate> {
    if !loads(facts).any(is_full) || facts.loss_share() > MUCH_LOSS {
        return None;
    }
    Some(Candidate::new(Confidence::Possible, evidence(facts)).advise(ADVICE))
}

fn loads(facts: &Facts) -> impl Iterator<Item = CpuLoad> {
    let of_both = [facts.sender_load, facts.receiver_load];
    of_both.into_iter().flatten()
}

/// Limits that waiting for a processor looks like on a short path: segments, acknowledgements and the processes themselves wait
/// in its run queue, which lengthens RTTs, fills buffers and reorders.
pub(crate) fn looks_like(limit: Limit) -> bool {
    use Limit::*;
    matches!(
        limit,
        Application
            | SendBuffer
            | ReceiveWindow
            | ReadingApplication
            | SlowStart
            | CongestionWindow
            | LossRecovery
            | Pacing
            | DeviceQueue
            | BottleneckRate
            | Bufferbloat
            | Shaper
            | AckPath
            | Reordering
            | Cpu
    )
}

/// A host has no processor left, and the path is so short that waiting for one is most of a loaded RTT: what the sockets waited
/// for is not known to be anything else.
pub(crate) fn hides_the_path(facts: &Facts) -> Option<Candidate> {
    let loads = || loads(facts);
    let works = processes(facts);
    let host_full = loads().any(|load| is_host_full(load.host));
    let busiest_full = loads().any(|load| is_host_full(load.busiest));
    let own = loads().any(is_full) || host_full && works >= WORKS;
    let all_memory = facts.memory_path && (own || works >= BOTH_WORK);
    let own = own || all_memory;
    let short = facts.min_rtt.is_some_and(|rtt| rtt < NOISE);
    let inflated = |inflation| inflation >= LONG_QUEUE;
    let waits = all_memory || facts.inflation().is_some_and(inflated);
    // A device that is full, or a rate as steady as a link's, is the path's, however busy the hosts are.
    let device_full = facts
        .link
        .is_some_and(|link| (DEVICE_FULL..=1.0).contains(&(facts.rate() * 8.0 / link.0 as f64)));
    let of_path = device_full || facts.is_flat() && !all_memory && !loads().any(is_process_full);
    if !(own || host_full || busiest_full)
        || !short
        || !waits
        || of_path
        || facts.loss_share() > MUCH_LOSS
    {
        return None;
    }
    let confidence = if own {
        Confidence::Likely
    } else {
        Confidence::Possible
    };
    let advice = if own { ADVICE } else { OTHERS };
    Some(Candidate::new(confidence, evidence(facts)).advise(advice))
}

/// The reading of a full processor that speaks against what only looks like a limit of its own.
pub(crate) fn fullest(facts: &Facts) -> Option<Evidence> {
    hides_the_path(facts)?
        .evidence
        .into_iter()
        .find(|fact| fact.threshold.is_some())
}

fn is_full(load: CpuLoad) -> bool {
    is_process_full(load) || load.process >= WORKS && is_host_full(load.host)
}

fn is_process_full(load: CpuLoad) -> bool {
    load.process >= process_full(load)
}

/// Of all processors of a host, or of its busiest.
fn is_host_full(used: Option<f64>) -> bool {
    used.is_some_and(|used| used >= HOST_FULL)
}

/// Processors that both processes used.
fn processes(facts: &Facts) -> f64 {
    loads(facts).map(|load| load.process).sum()
}

/// A processor for each stream, nearly.
fn process_full(load: CpuLoad) -> f64 {
    PROCESS_FULL * f64::from(load.streams.max(1))
}

fn evidence(facts: &Facts) -> Vec<Evidence> {
    let of_both = facts.memory_path.then(|| {
        facts
            .evidence(Key::BothProcessesCpu, processes(facts))
            .if_at_least(BOTH_WORK)
    });
    [
        (
            Key::SenderProcessCpu,
            Key::SenderHostCpu,
            Key::SenderBusiestProcessor,
            facts.sender_load,
        ),
        (
            Key::ReceiverProcessCpu,
            Key::ReceiverHostCpu,
            Key::ReceiverBusiestProcessor,
            facts.receiver_load,
        ),
    ]
    .into_iter()
    .filter_map(|(process, host, busiest, load)| Some((process, host, busiest, load?)))
    .flat_map(|(process, host, busiest, load)| {
        let judged = |key, used: f64, full| facts.evidence(key, used).if_at_least(full);
        let of_host = load.host.map(|used| judged(host, used, HOST_FULL));
        let of_busiest = load.busiest.map(|used| judged(busiest, used, HOST_FULL));
        [judged(process, load.process, process_full(load))]
            .into_iter()
            .chain(of_host)
            .chain(of_busiest)
    })
    .chain(of_both)
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::SenderInterval;
    use model::Nanos;
    use model::finding::Source;

    /// Ten connections' worth of varying rate on a veth: 10 us of RTT, 300 us under load.
    fn veth(process: f64, host: f64) -> Facts {
        veth_at(process, host, 20_000_000)
    }

    fn veth_at(process: f64, host: f64, variation: u64) -> Facts {
        let load = Some(CpuLoad {
            process,
            host: Some(host),
            busiest: None,
            streams: 1,
        });
        let mut facts = Facts {
            sender_load: load,
            receiver_load: load,
            min_rtt: Some(Nanos::from_micros(10)),
            mss: 1448,
            segments: 1_500_000,
            span: Nanos::from_secs(3),
            ..Facts::new(Source::Samples)
        };
        for n in 0..30 {
            facts.read(SenderInterval {
                from: Nanos::from_millis(n * 100),
                to: Nanos::from_millis((n + 1) * 100),
                srtt: Nanos::from_micros(300),
                delivered: 50_000_000 + n % 3 * variation,
                passed: 50_000_000 + n % 3 * variation,
                ..SenderInterval::default()
            });
        }
        facts
    }

    #[test]
    fn full_processors_hide_a_short_path_and_no_other() {
        let confidence =
            |facts: &Facts| hides_the_path(facts).map(|candidate| candidate.confidence);
        assert_eq!(confidence(&veth(0.6, 1.0)), Some(Confidence::Likely));
        // Others have the processors.
        assert_eq!(confidence(&veth(0.05, 1.0)), Some(Confidence::Possible));
        assert_eq!(confidence(&veth(0.6, 0.9)), None);
        let long = Facts {
            min_rtt: Some(Nanos::from_millis(2)),
            ..veth(0.6, 1.0)
        };
        assert_eq!(confidence(&long), None);
        let usual = veth(0.6, 1.0).rate() * 8.0;
        assert!(usual > 1e9);
        let full_device = Facts {
            link: Some(model::BitRate((usual * 1.05) as u64)),
            ..veth(0.6, 1.0)
        };
        assert_eq!(confidence(&full_device), None);
        let lossy = Facts {
            retransmitted: 15_001,
            ..veth(0.6, 1.0)
        };
        assert_eq!(confidence(&lossy), None);
        assert!(fullest(&veth(0.6, 1.0)).is_some_and(|fact| fact.key == Key::SenderHostCpu));
    }

    #[test]
    fn two_ends_on_one_machine_have_no_path_but_its_processors() {
        let confidence =
            |facts: &Facts| hides_the_path(facts).map(|candidate| candidate.confidence);
        // At a steady rate, which elsewhere is a line's.
        let both = |process: f64| Facts {
            memory_path: true,
            ..veth_at(process, 0.7, 0)
        };
        assert_eq!(confidence(&both(0.45)), Some(Confidence::Likely));
        assert_eq!(confidence(&both(0.44)), None);
        let limited = Facts {
            memory_path: false,
            ..both(0.45)
        };
        assert_eq!(confidence(&limited), None);
        let fullest = fullest(&both(0.45)).map(|fact| fact.key);
        assert_eq!(fullest, Some(Key::BothProcessesCpu));
    }

    #[test]
    fn one_full_processor_of_many_is_no_more_than_possible() {
        let of = |busiest| {
            let mut facts = veth(0.3, 0.1);
            for load in [&mut facts.sender_load, &mut facts.receiver_load] {
                *load = load.map(|load| CpuLoad {
                    busiest: Some(busiest),
                    ..load
                });
            }
            hides_the_path(&facts).map(|candidate| candidate.confidence)
        };
        assert_eq!(of(HOST_FULL), Some(Confidence::Possible));
        assert_eq!(of(HOST_FULL - 0.01), None);
    }

    #[test]
    fn a_processor_is_full_at_its_bounds_and_not_below() {
        let blamed = |process, host, streams, retransmitted| {
            let facts = Facts {
                sender_load: Some(CpuLoad {
                    process,
                    host,
                    streams,
                    ..CpuLoad::default()
                }),
                segments: 1000,
                retransmitted,
                ..Facts::new(Source::Samples)
            };
            fits(&facts).is_some()
        };
        assert!(blamed(PROCESS_FULL, None, 1, 0));
        assert!(!blamed(PROCESS_FULL - 0.01, None, 1, 0));
        // A processor for each stream.
        assert!(!blamed(PROCESS_FULL, None, 2, 0));
        assert!(blamed(2.0 * PROCESS_FULL, None, 2, 0));
        assert!(blamed(WORKS, Some(HOST_FULL), 1, 0));
        assert!(!blamed(WORKS - 0.01, Some(HOST_FULL), 1, 0));
        assert!(!blamed(WORKS, Some(HOST_FULL - 0.01), 1, 0));
        // Loss up to one in a hundred, and one more.
        assert!(blamed(1.0, None, 1, 10));
        assert!(!blamed(1.0, None, 1, 11));
    }
}

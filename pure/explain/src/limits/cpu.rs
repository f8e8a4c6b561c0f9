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
    let works: f64 = loads().map(|load| load.process).sum();
    let host_full = loads().any(|load| load.host.is_some_and(|host| host >= HOST_FULL));
    let own = loads().any(is_full) || host_full && works >= WORKS;
    let short = facts.min_rtt.is_some_and(|rtt| rtt < NOISE);
    let waits = facts
        .inflation()
        .is_some_and(|inflation| inflation >= LONG_QUEUE);
    // A device that is full, or a rate as steady as a link's, is the path's, however busy the hosts are.
    let device_full = facts
        .link
        .is_some_and(|link| (DEVICE_FULL..=1.0).contains(&(facts.rate() * 8.0 / link.0 as f64)));
    let of_path =
        device_full || facts.is_flat() && !loads().any(|load| load.process >= process_full(load));
    if !(own || host_full) || !short || !waits || of_path || facts.loss_share() > MUCH_LOSS {
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
    load.process >= process_full(load)
        || (load.process >= WORKS && load.host.is_some_and(|host| host >= HOST_FULL))
}

/// A processor for each stream, nearly.
fn process_full(load: CpuLoad) -> f64 {
    PROCESS_FULL * f64::from(load.streams.max(1))
}

fn evidence(facts: &Facts) -> Vec<Evidence> {
    [
        (Key::SenderProcessCpu, Key::SenderHostCpu, facts.sender_load),
        (
            Key::ReceiverProcessCpu,
            Key::ReceiverHostCpu,
            facts.receiver_load,
        ),
    ]
    .into_iter()
    .filter_map(|(process, host, load)| Some((process, host, load?)))
    .flat_map(|(process, host, load)| {
        let judged = |key, used: f64, full| facts.evidence(key, used).if_at_least(full);
        let of_host = load.host.map(|used| judged(host, used, HOST_FULL));
        [judged(process, load.process, process_full(load))]
            .into_iter()
            .chain(of_host)
    })
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
        let load = Some(CpuLoad {
            process,
            host: Some(host),
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
                delivered: 50_000_000 + n % 3 * 20_000_000,
                passed: 50_000_000 + n % 3 * 20_000_000,
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
    fn a_processor_is_full_at_its_bounds_and_not_below() {
        let blamed = |process, host, streams, retransmitted| {
            let facts = Facts {
                sender_load: Some(CpuLoad {
                    process,
                    host,
                    streams,
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

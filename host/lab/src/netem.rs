//! The kernel's own emulation, where it has it: a link's shapes as queueing disciplines.
//!
//! A link is two pairs of devices, as the emulator's: what comes in at the inner device of one end leaves by that of the
//! other, whose root is netem for delay and chance, below it a second one for the rate and the queue. So the hosts' own
//! devices are as on a real host: a capture sees frames before the path, and their queueing disciplines can be tuned.
//! Delay comes first there and last on a real line, which for a constant delay is the same at the receiver; a frame that
//! is lost at random does not use the line.

use crate::netns_holder::{TC, run};
use crate::plan::{self, emulator_device};
use emulate::{Aqm, Direction, Distribution, Link, LossModel, Queue, QueueLimit, Scenario, Shape};
use model::Nanos;
use sys::namespace;

/// Loss of a line of a rate beyond which it matters that lost frames do not use the line.
const MOST_LOSS: f64 = 0.01;

/// Whether the kernel has netem and what passes frames to it: tried in a namespace of its own.
pub(crate) fn works() -> bool {
    let Ok(net) = namespace::new_net() else {
        return false;
    };
    let tries = commands(&Shape::default(), "lo").map(|netem| {
        format!(
            "{netem}qdisc add dev lo parent 1:1 handle 2: netem limit 10 rate 1mbit\n{}",
            pass("lo", "lo")
        )
    });
    tries.is_ok_and(|tries| run(&TC, &tries, Some(&net), "netem").is_ok())
}

/// Lines for `tc -batch` by which what comes in at one device leaves by another.
pub(crate) fn pass(from: &str, to: &str) -> String {
    format!(
        "qdisc add dev {from} ingress\n\
         filter add dev {from} parent ffff: matchall action mirred egress redirect dev {to}\n"
    )
}

/// Lines for `tc -batch` in the emulator's namespace that make the link with this number.
///
/// # Errors
/// What netem cannot express.
pub(crate) fn link(number: usize, link: &Link) -> Result<String, &'static str> {
    let mut lines = String::new();
    for direction in Direction::BOTH {
        let from = direction as usize;
        let (from, to) = (
            emulator_device(number, from),
            emulator_device(number, 1 - from),
        );
        lines += &commands(link.shape(direction), &to)?;
        lines += &pass(&from, &to);
    }
    Ok(lines)
}

/// Whether netem can do all that a link ever does; else what it cannot.
pub(crate) fn expresses(scenario: &Scenario, link: &Link) -> Result<(), &'static str> {
    if link.ends[0].mtu != link.ends[1].mtu {
        return Err("ends of different MTUs");
    }
    for direction in Direction::BOTH {
        let mut shapes = plan::shapes(scenario, link, direction);
        for shape in shapes.by_ref().take(1) {
            commands(shape, "")?;
        }
        if shapes.next().is_some() {
            return Err("changes by a script");
        }
    }
    Ok(())
}

/// Lines for `tc -batch` that give a device this shape; else what cannot be expressed.
pub(crate) fn commands(shape: &Shape, device: &str) -> Result<String, &'static str> {
    let Shape {
        rate,
        packet_time,
        delay,
        jitter,
        loss,
        bit_error_rate,
        reorder,
        duplicate,
        queue,
        policer,
        shaper,
        max_frame,
        ack_thinning,
        half_duplex,
        rate_variation,
        cross,
    } = shape;
    let cannot = [
        (*packet_time > Nanos(0), "work on each packet"),
        (*bit_error_rate > 0.0, "bit errors"),
        (reorder.is_some(), "frames held back"),
        (policer.is_some(), "a policer"),
        (shaper.is_some(), "a shaper behind its queue"),
        (max_frame.is_some(), "a largest frame"),
        (ack_thinning.is_some(), "ACK thinning"),
        (*half_duplex, "half duplex"),
        (rate_variation.is_some(), "a rate that varies"),
        (cross.is_some(), "cross traffic"),
    ];
    if let Some((_, what)) = cannot.iter().find(|(is, _)| *is) {
        return Err(what);
    }
    // Frames under way are not to count as queued.
    let mut netem = format!("delay {}", micros(*delay));
    if let Some(jitter) = jitter {
        if !jitter.reorders {
            return Err("jitter that keeps the order");
        }
        if jitter.distribution != Distribution::Uniform {
            // Its tables are files that may be missing, and unbounded.
            return Err("jitter that is not uniform");
        }
        // netem's is uniform about its mean.
        let half = Nanos(jitter.range.0 / 2);
        netem = format!("delay {} {}", micros(*delay + half), micros(half));
    }
    match loss {
        LossModel::Off => {}
        LossModel::Random(chance) => netem += &format!(" loss random {}", tc_percent(*chance)),
        LossModel::GilbertElliott {
            to_bad,
            to_good,
            lost_in_bad,
            lost_in_good,
        } => {
            // tc-netem(8): p, r, 1-h, 1-k.
            let chances = [to_bad, to_good, lost_in_bad, lost_in_good];
            let chances = chances.map(|chance| tc_percent(*chance)).join(" ");
            netem += &format!(" loss gemodel {chances}");
        }
        LossModel::Periodic(_) | LossModel::At(_) => return Err("loss of chosen frames"),
    }
    if rate.is_some() && mean_loss(loss) > MOST_LOSS {
        return Err("lost frames that use a line of a rate");
    }
    if rate.is_some() && jitter.is_some() {
        return Err("jitter behind a line of a rate");
    }
    if let Some(duplicate) = duplicate {
        netem += &format!(" duplicate {}", tc_percent(duplicate.probability));
    }
    // stab counts the bytes that a wire carries and a frame does not show, each alone: its table has steps of four
    // bytes without a size. netem's own queue is never full, because the queue is below.
    let mut lines = format!(
        "qdisc add dev {device} root handle 1: stab overhead {} mpu {} mtu 2047 tsize 2048 netem limit 1000000 {netem}\n",
        emulate::FRAME_OVERHEAD,
        emulate::wire_bytes_of_frame(0)
    );
    let Some(rate) = rate else {
        return match queue {
            Some(_) => Err("a queue without a rate"),
            None => Ok(lines),
        };
    };
    let Queue { limit, aqm, ecn } = queue.clone().unwrap_or_default();
    if aqm != Aqm::DropTail || ecn {
        return Err("active queue management");
    }
    if duplicate.is_some() {
        // Kernels of 2025 and later refuse two netems where one duplicates.
        return Err("duplicates on a line of a rate");
    }
    let QueueLimit::Packets(packets) = limit else {
        return Err("a queue counted in bytes");
    };
    // Not a token bucket: a processor that comes late loses tokens for good (a guest carried 3 Mbit/s over a line of
    // 1 Gbit/s, without a word), where netem has given each frame its time and catches up. Its limit counts the frame
    // on the line, too.
    lines += &format!(
        "qdisc add dev {device} parent 1:1 handle 2: netem limit {} rate {}bit\n",
        packets + 1,
        rate.0
    );
    Ok(lines)
}

/// The part of frames that a model loses in the long run.
fn mean_loss(loss: &LossModel) -> f64 {
    match loss {
        LossModel::Random(chance) => *chance,
        LossModel::GilbertElliott {
            to_bad,
            to_good,
            lost_in_bad,
            lost_in_good,
        } => (to_bad * lost_in_bad + to_good * lost_in_good) / (to_bad + to_good),
        LossModel::Off | LossModel::Periodic(_) | LossModel::At(_) => 0.0,
    }
}

/// tc takes parts of a microsecond, but not nanoseconds (iproute2 6.1).
fn micros(span: Nanos) -> String {
    format!("{}us", span.0 as f64 / 1e3)
}

/// As tc writes a probability.
fn tc_percent(chance: f64) -> String {
    format!("{}%", chance * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use emulate::{Bucket, Duplicate, Jitter};
    use model::{BitRate, Bytes};

    #[test]
    fn delay_and_chance_are_netems() {
        let shape = Shape {
            delay: Nanos::from_millis(10),
            jitter: Some(Jitter {
                range: Nanos::from_millis(2),
                distribution: Distribution::Uniform,
                reorders: true,
            }),
            loss: LossModel::Random(0.005),
            duplicate: Some(Duplicate { probability: 0.25 }),
            ..Shape::default()
        };
        assert_eq!(
            commands(&shape, "eth0").unwrap(),
            "qdisc add dev eth0 root handle 1: stab overhead 24 mpu 84 mtu 2047 tsize 2048 netem limit 1000000 \
             delay 11000us 1000us loss random 0.5% duplicate 25%\n"
        );
    }

    #[test]
    fn rate_and_queue_are_a_second_netems() {
        let shape = Shape {
            rate: Some(BitRate(1_000_000_000)),
            queue: Some(Queue {
                limit: QueueLimit::Packets(130),
                ..Queue::default()
            }),
            loss: LossModel::GilbertElliott {
                to_bad: 0.001,
                to_good: 0.25,
                lost_in_bad: 1.0,
                lost_in_good: 0.0,
            },
            ..Shape::default()
        };
        let lines = commands(&shape, "wan").unwrap();
        let lines: Vec<&str> = lines.lines().collect();
        assert!(lines[0].ends_with("netem limit 1000000 delay 0us loss gemodel 0.1% 25% 100% 0%"));
        assert_eq!(
            lines[1],
            "qdisc add dev wan parent 1:1 handle 2: netem limit 131 rate 1000000000bit"
        );
    }

    #[test]
    fn what_netem_cannot_is_named() {
        let bucket = Bucket {
            rate: BitRate(1_000_000),
            burst: Bytes(10_000),
        };
        let policed = Shape {
            policer: Some(bucket),
            ..Shape::default()
        };
        assert_eq!(commands(&policed, "eth0"), Err("a policer"));
        let bytes = Shape {
            rate: Some(BitRate(1_000_000)),
            queue: Some(Queue {
                limit: QueueLimit::Bytes(Bytes(10_000)),
                ..Queue::default()
            }),
            ..Shape::default()
        };
        assert_eq!(commands(&bytes, "eth0"), Err("a queue counted in bytes"));
        let nth = Shape {
            loss: LossModel::At(vec![7]),
            ..Shape::default()
        };
        assert_eq!(commands(&nth, "eth0"), Err("loss of chosen frames"));
        // On a real line a lost frame takes its time, and jitter comes behind the line.
        let mut line = Shape {
            rate: Some(BitRate(1_000_000)),
            loss: LossModel::Random(0.02),
            ..Shape::default()
        };
        let lost = "lost frames that use a line of a rate";
        assert_eq!(commands(&line, "eth0"), Err(lost));
        line.loss = LossModel::Random(0.001);
        assert!(commands(&line, "eth0").is_ok());
        line.jitter = Some(Jitter {
            range: Nanos::from_millis(2),
            distribution: Distribution::Uniform,
            reorders: true,
        });
        let jitter = "jitter behind a line of a rate";
        assert_eq!(commands(&line, "eth0"), Err(jitter));
    }
}

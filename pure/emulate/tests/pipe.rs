//! Pipes on a hand-moved clock.

use linerate_emulate::{
    AckThinning, Aqm, Bucket, CoDelRule, Cross, Delivery, Direction, Distribution, Duplex,
    Duplicate, Ecn, EmulatedPacket, EmulatorCounters, EmulatorEvent, EventKind, Jitter,
    KeptSegments, Link, LossModel, Pipe, Queue, QueueLimit, RateState, RateVariation, RedRule,
    Reorder, Scenario, Shape,
};
use model::{BitRate, Bytes, Nanos};
use proptest::prelude::*;

const GIGABIT: BitRate = BitRate(1_000_000_000);

fn frame(mtu: u64, number: u64) -> EmulatedPacket<u64> {
    EmulatedPacket::frame(mtu + 14, number)
}

/// A queue that takes all.
fn deep() -> Option<Queue> {
    Some(Queue {
        limit: QueueLimit::Bytes(Bytes(1 << 40)),
        ..Queue::default()
    })
}

fn line(rate: BitRate) -> Shape {
    Shape {
        rate: Some(rate),
        queue: deep(),
        ..Shape::default()
    }
}

/// Everything that comes out until the pipe is empty, at the moments that the pipe itself names.
fn drain<T: Clone>(pipe: &mut Pipe<T>) -> Vec<Delivery<T>> {
    let mut all = Vec::new();
    while let Some(due) = pipe.due() {
        while let Some(delivery) = pipe.take(due) {
            assert!(delivery.due <= due, "late by its own account");
            all.push(delivery);
        }
    }
    all
}

/// Offers a packet every `gap`, taking what is due in between.
fn feed(pipe: &mut Pipe<u64>, count: u64, gap: Nanos, mtu: u64) -> Vec<Delivery<u64>> {
    let mut all = Vec::new();
    for number in 0..count {
        let now = Nanos(number * gap.0);
        while let Some(delivery) = pipe.take(now) {
            all.push(delivery);
        }
        pipe.offer(now, frame(mtu, number));
    }
    all.extend(drain(pipe));
    all
}

fn balanced(counters: &EmulatorCounters) -> bool {
    let inn = counters.offered.frames + counters.duplicated.frames;
    let out = counters.delivered.frames + counters.dropped.total().frames + counters.waiting.frames;
    let inn_bytes = counters.offered.wire_bytes + counters.duplicated.wire_bytes;
    let out_bytes = counters.delivered.wire_bytes
        + counters.dropped.total().wire_bytes
        + counters.waiting.wire_bytes;
    inn == out && inn_bytes == out_bytes
}

#[test]
fn the_rate_counts_what_is_on_the_wire() {
    for (mtu, goodput_mbit) in [(1500, 941.5), (9000, 990.0)] {
        let mut pipe = Pipe::new(&line(GIGABIT), 1);
        let n = 10_000;
        for number in 0..n {
            pipe.offer(Nanos(0), frame(mtu, number));
        }
        let last = drain(&mut pipe).last().unwrap().due;
        // IPv4 and TCP headers with timestamps: 52 bytes.
        let goodput = (n * (mtu - 52) * 8) as f64 / last.as_secs_f64() / 1e6;
        assert!((goodput - goodput_mbit).abs() < 0.05, "{goodput}");
    }
}

#[test]
fn a_super_packet_takes_the_line_as_long_as_its_frames() {
    let mut whole = Pipe::new(&line(GIGABIT), 1);
    let packet = EmulatedPacket::segmented(66, 44 * 1448 + 100, 1448, 0u64);
    assert_eq!((packet.segments, packet.wire_bytes), (45, 44 * 1538 + 190));
    whole.offer(Nanos(0), packet);
    let all = drain(&mut whole);
    assert_eq!(all[0].due, Nanos((44 * 1538 + 190) * 8));
    assert_eq!(all[0].kept, KeptSegments::Whole);
    assert_eq!(whole.counters().delivered.frames, 45);
}

#[test]
fn fractions_of_nanoseconds_add_up() {
    // 1538 bytes at 10 Gbit/s are 1230.4 ns.
    let mut pipe = Pipe::new(&line(BitRate(10_000_000_000)), 1);
    for number in 0..10_000 {
        pipe.offer(Nanos(0), frame(1500, number));
    }
    assert_eq!(drain(&mut pipe).last().unwrap().due, Nanos(12_304_000));
}

#[test]
fn delay_is_added_behind_the_line_and_jitter_keeps_order_unless_it_may_reorder() {
    let mut shape = Shape {
        delay: Nanos::from_millis(10),
        ..line(GIGABIT)
    };
    let all = feed(&mut Pipe::new(&shape, 1), 3, Nanos::from_millis(1), 1500);
    assert_eq!(all[2].due, Nanos(2_000_000 + 12_304 + 10_000_000));
    for reorders in [false, true] {
        shape.jitter = Some(Jitter {
            range: Nanos::from_millis(2),
            distribution: Distribution::Uniform,
            reorders,
        });
        let mut pipe = Pipe::new(&shape, 1);
        let all = feed(&mut pipe, 10_000, Nanos(20_000), 1500);
        let sorted = all.is_sorted_by_key(|d| d.packet.body);
        assert_eq!(sorted, !reorders);
        assert_eq!(pipe.counters().reordered > 0, reorders);
        let late = all
            .iter()
            .map(|d| d.due.0 - d.packet.body * 20_000 - 10_012_304);
        let (least, most): (u64, u64) = (late.clone().min().unwrap(), late.max().unwrap());
        assert!((1_900_000..2_000_000).contains(&most), "{most}");
        assert_eq!(least < 1000, reorders, "{least}");
    }
}

#[test]
fn jitter_is_spread_as_asked() {
    use Distribution::{Exponential, Normal, Uniform};
    // Mean and deviation in parts of the range; a sixth of it is the mean of the exponential, less its cut tail.
    for (distribution, mean, deviation) in [
        (Uniform, 0.5, 0.289),
        (Normal, 0.5, 0.166),
        (Exponential, 0.166, 0.164),
    ] {
        let shape = Shape {
            jitter: Some(Jitter {
                range: Nanos::from_millis(6),
                distribution,
                reorders: true,
            }),
            ..Shape::default()
        };
        let n = 20_000;
        let all = feed(&mut Pipe::new(&shape, 1), n, Nanos(10_000), 1500);
        let extra = all
            .iter()
            .map(|d| (d.due.0 - d.packet.body * 10_000) as f64 / 6e6);
        let extra: Vec<f64> = extra.collect();
        assert!(extra.iter().all(|x| (0.0..=1.0).contains(x)));
        let found = extra.iter().sum::<f64>() / n as f64;
        let square = extra.iter().map(|x| (x - found).powi(2)).sum::<f64>() / n as f64;
        assert!((found - mean).abs() < 0.005, "{distribution:?} {found}");
        let found = square.sqrt();
        assert!(
            (found - deviation).abs() < 0.005,
            "{distribution:?} {found}"
        );
    }
}

#[test]
fn work_on_each_packet_bounds_packets_not_bytes() {
    for (mtu, gap_ns) in [(1500, 20_000), (9000, 9038 * 8)] {
        let shape = Shape {
            packet_time: Nanos::from_micros(20),
            ..line(GIGABIT)
        };
        let mut pipe = Pipe::new(&shape, 1);
        for number in 0..1000 {
            pipe.offer(Nanos(0), frame(mtu, number));
        }
        assert_eq!(drain(&mut pipe).last().unwrap().due, Nanos(1000 * gap_ns));
    }
    // Without a rate too, and then the queue is bounded.
    let shape = Shape {
        packet_time: Nanos::from_micros(20),
        queue: Some(Queue {
            limit: QueueLimit::Packets(10),
            ..Queue::default()
        }),
        ..Shape::default()
    };
    let mut pipe = Pipe::new(&shape, 1);
    for number in 0..100 {
        pipe.offer(Nanos(0), frame(1500, number));
    }
    let all = drain(&mut pipe);
    assert_eq!((all.len(), all[10].due), (11, Nanos(220_000)));
}

#[test]
fn a_super_packet_is_offered_whole_where_that_holds_nothing_up() {
    let fast = line(BitRate(10_000_000_000));
    assert!(fast.frames_at_once(1538) >= 45);
    assert_eq!(line(GIGABIT).frames_at_once(1538), 20);
    assert_eq!(line(BitRate(10_000_000)).frames_at_once(1538), 1);
    assert!(Shape::default().frames_at_once(1538) > 1000);
    let twice = Shape {
        duplicate: Some(Duplicate { probability: 0.1 }),
        ..fast
    };
    assert_eq!(twice.frames_at_once(1538), 1);
}

#[test]
fn gilbert_and_elliott_lose_at_the_rate_and_in_the_bursts_of_their_model() {
    let (to_bad, to_good) = (0.002, 0.25);
    let shape = Shape {
        loss: LossModel::GilbertElliott {
            to_bad,
            to_good,
            lost_in_bad: 1.0,
            lost_in_good: 0.0,
        },
        ..Shape::default()
    };
    let mut pipe = Pipe::new(&shape, 11);
    let n = 1_000_000;
    let kept: Vec<u64> = feed(&mut pipe, n, Nanos(1000), 1500)
        .iter()
        .map(|d| d.packet.body)
        .collect();
    let lost = pipe.counters().dropped.loss.frames as f64;
    let bursts = kept.windows(2).filter(|w| w[1] != w[0] + 1).count() as f64;
    let rate = lost / n as f64;
    let expected = to_bad / (to_bad + to_good);
    assert!((rate / expected - 1.0).abs() < 0.1, "{rate} {expected}");
    let length = lost / bursts;
    assert!((length * to_good - 1.0).abs() < 0.05, "{length}");
}

#[test]
fn random_loss_and_bit_errors_hit_at_their_rate() {
    let loss = Shape {
        loss: LossModel::Random(0.01),
        ..Shape::default()
    };
    let mut pipe = Pipe::new(&loss, 5);
    feed(&mut pipe, 300_000, Nanos(1000), 1500);
    let rate = pipe.counters().dropped.loss.frames as f64 / 300_000.0;
    assert!((rate - 0.01).abs() < 0.001, "{rate}");
    for mtu in [1500, 9000] {
        let shape = Shape {
            bit_error_rate: 1e-6,
            ..Shape::default()
        };
        let mut pipe = Pipe::new(&shape, 5);
        feed(&mut pipe, 300_000, Nanos(1000), mtu);
        let rate = pipe.counters().dropped.bit_error.frames as f64 / 300_000.0;
        let expected = 1.0 - (1.0f64 - 1e-6).powi(8 * (mtu as i32 + 18));
        assert!((rate / expected - 1.0).abs() < 0.05, "{rate} {expected}");
    }
}

#[test]
fn periodic_and_given_frames_are_lost_and_cut_out_of_super_packets() {
    let fates = |loss: LossModel| {
        let shape = Shape {
            loss,
            ..Shape::default()
        };
        let mut pipe = Pipe::new(&shape, 1);
        pipe.offer(
            Nanos(0),
            EmulatedPacket::segmented(66, 10 * 1448, 1448, 0u64),
        );
        pipe.offer(
            Nanos(0),
            EmulatedPacket::segmented(66, 10 * 1448, 1448, 1u64),
        );
        let all = drain(&mut pipe);
        assert!(balanced(pipe.counters()));
        all.into_iter().map(|d| d.kept).collect::<Vec<_>>()
    };
    let given = fates(LossModel::At(vec![1, 4, 5]));
    assert_eq!(
        given,
        [KeptSegments::Some(vec![1..3, 5..10]), KeptSegments::Whole]
    );
    let periodic = fates(LossModel::Periodic(7));
    let expected = [vec![0..6, 7..10], vec![0..3, 4..10]];
    assert_eq!(periodic, expected.map(KeptSegments::Some));
    assert_eq!(
        fates(LossModel::At((1..=10).collect())),
        [KeptSegments::Whole]
    );
}

#[test]
fn a_policer_passes_its_rate_in_the_long_run_and_its_burst_at_once() {
    let shape = Shape {
        policer: Some(Bucket {
            rate: BitRate(200_000_000),
            burst: Bytes(256 << 10),
        }),
        ..line(GIGABIT)
    };
    let mut pipe = Pipe::new(&shape, 1);
    let all = feed(&mut pipe, 400_000, Nanos(12_304), 1500);
    let seconds = 400_000.0 * 12_304e-9;
    let passed = (all.len() as f64 * 1500.0 - 262_144.0) * 8.0 / seconds;
    assert!((passed / 200e6 - 1.0).abs() < 0.001, "{passed}");
    // Tokens that come meanwhile carry the first burst further than the bucket alone.
    let first = all
        .windows(2)
        .position(|w| w[1].packet.body != w[0].packet.body + 1);
    assert!((215..225).contains(&first.unwrap()), "{first:?}");
    assert!(balanced(pipe.counters()));
}

#[test]
fn a_shaper_delays_what_a_policer_drops() {
    let shape = Shape {
        shaper: Some(Bucket {
            rate: BitRate(200_000_000),
            burst: Bytes(64 << 10),
        }),
        ..line(GIGABIT)
    };
    let mut pipe = Pipe::new(&shape, 1);
    let all = feed(&mut pipe, 20_000, Nanos(12_304), 1500);
    assert_eq!(all.len(), 20_000);
    let bits = (20_000.0 * 1500.0 - 65_536.0) * 8.0;
    let rate = bits / all.last().unwrap().due.as_secs_f64();
    assert!((rate / 200e6 - 1.0).abs() < 0.001, "{rate}");
}

#[test]
fn a_queue_holds_what_it_may_and_the_line_one_more() {
    for (limit, passes) in [
        (QueueLimit::Packets(130), 131),
        (QueueLimit::Bytes(Bytes(150_000)), 101),
    ] {
        let shape = Shape {
            queue: Some(Queue {
                limit,
                ..Queue::default()
            }),
            ..line(GIGABIT)
        };
        // A burst, as single frames and as super-packets: the same frames pass.
        let mut single = Pipe::new(&shape, 1);
        for number in 0..450 {
            single.offer(Nanos(0), frame(1500, number));
        }
        assert_eq!(drain(&mut single).len(), passes);
        let mut whole = Pipe::new(&shape, 1);
        for number in 0..10 {
            whole.offer(
                Nanos(0),
                EmulatedPacket::segmented(66, 45 * 1448, 1448, number),
            );
        }
        assert_eq!(whole.counters().deepest.packets, passes as u64 - 1);
        drain(&mut whole);
        assert_eq!(whole.counters().delivered, single.counters().delivered);
        assert_eq!(whole.counters().dropped, single.counters().dropped);
        assert_eq!(single.counters().queue.packets, 0);
    }
}

#[test]
fn codel_keeps_the_wait_near_its_target_and_marks_who_can_be_marked() {
    let shape = |ecn| Shape {
        queue: Some(Queue {
            limit: QueueLimit::Packets(10_000),
            aqm: Aqm::CoDel(CoDelRule {
                target: Nanos::from_millis(5),
                interval: Nanos::from_millis(100),
            }),
            ecn,
        }),
        ..line(BitRate(10_000_000))
    };
    // A tenth more than the line takes, from a source that does not yield.
    let gap = Nanos(1538 * 800 * 10 / 11);
    let mut dropping = Pipe::new(&shape(false), 1);
    feed(&mut dropping, 60_000, gap, 1500);
    let dropped = dropping.counters().dropped.aqm.frames as f64 / 60_000.0;
    assert!((0.07..0.12).contains(&dropped), "{dropped}");
    let mut none = Pipe::new(&shape(false), 1);
    feed(&mut none, 10_000, Nanos(1538 * 800 * 2), 1500);
    assert_eq!(none.counters().dropped.total().frames, 0);

    let mut marking = Pipe::new(&shape(true), 1);
    for number in 0..2_000 {
        let packet = EmulatedPacket {
            ecn: Ecn::Capable,
            ..frame(1500, number)
        };
        marking.offer(Nanos(number * gap.0), packet);
    }
    let marked = drain(&mut marking).iter().filter(|d| d.mark).count();
    assert!(marked > 5, "{marked}");
    assert_eq!(marking.counters().marked, marked as u64);
    assert_eq!(marking.counters().dropped.total().frames, 0);
}

#[test]
fn red_marks_by_step_or_by_ramp() {
    let shape = |min, max, weight| Shape {
        queue: Some(Queue {
            limit: QueueLimit::Packets(1000),
            aqm: Aqm::Red(RedRule {
                min,
                max,
                probability: 0.1,
                weight,
            }),
            ecn: true,
        }),
        ..line(GIGABIT)
    };
    let capable = |number| EmulatedPacket {
        ecn: Ecn::Capable,
        ..frame(1500, number)
    };
    let mut step = Pipe::new(&shape(65, 65, 1.0), 1);
    for number in 0..200 {
        step.offer(Nanos(0), capable(number));
    }
    let marks: Vec<bool> = drain(&mut step).iter().map(|d| d.mark).collect();
    // One is on the line, 65 wait unmarked.
    assert!(marks.iter().enumerate().all(|(n, mark)| *mark == (n >= 66)));

    // A queue that stands at 60, in the middle of the ramp: p = 0.05, spread evenly, is about 1 in 10.
    let mut ramp = Pipe::new(&shape(30, 90, 0.5), 1);
    let mut marked = 0;
    for number in 0..20_000u64 {
        let now = Nanos(number.saturating_sub(60) * 12_304);
        while let Some(delivery) = ramp.take(now) {
            marked += u64::from(delivery.mark);
        }
        ramp.offer(now, capable(number));
    }
    let rate = marked as f64 / 20_000.0;
    assert!((0.06..0.13).contains(&rate), "{rate}");
}

#[test]
#[allow(clippy::single_range_in_vec_init)]
fn frames_that_are_too_large_vanish_and_the_short_last_one_passes() {
    let shape = Shape {
        max_frame: Some(1500),
        ..Shape::default()
    };
    let mut pipe = Pipe::new(&shape, 1);
    pipe.offer(
        Nanos(0),
        EmulatedPacket::segmented(66, 2 * 8948 + 100, 8948, 0u64),
    );
    pipe.offer(Nanos(0), frame(1500, 1));
    pipe.offer(Nanos(0), frame(1501, 2));
    let all = drain(&mut pipe);
    assert_eq!(all[0].kept, KeptSegments::Some(vec![2..3]));
    assert_eq!(all[1].kept, KeptSegments::Whole);
    assert_eq!(all.len(), 2);
    assert_eq!(pipe.counters().dropped.max_frame.frames, 3);
}

#[test]
fn acknowledgements_are_joined_but_never_for_long() {
    let shape = Shape {
        ack_thinning: Some(AckThinning {
            of: 4,
            hold: Nanos::from_millis(1),
        }),
        ..Shape::default()
    };
    let ack = |number| EmulatedPacket {
        is_pure_ack: true,
        ..EmulatedPacket::frame(66, number)
    };
    let mut pipe = Pipe::new(&shape, 1);
    for number in 0..10 {
        pipe.offer(Nanos(number * 1000), ack(number));
    }
    let seen = |all: Vec<Delivery<u64>>| -> Vec<(u64, u64)> {
        all.iter().map(|d| (d.packet.body, d.due.0)).collect()
    };
    assert_eq!(
        seen(drain(&mut pipe)),
        [(3, 3000), (7, 7000), (9, 1_008_000)]
    );
    // Data of the same flow does not overtake what is held.
    pipe.offer(Nanos(2_000_000), ack(20));
    pipe.offer(Nanos(2_000_500), frame(1500, 21));
    assert_eq!(seen(drain(&mut pipe)), [(20, 2_000_500), (21, 2_000_500)]);
    assert!(balanced(pipe.counters()));
}

#[test]
fn reordered_and_doubled_frames_are_counted() {
    let shape = Shape {
        delay: Nanos::from_millis(5),
        reorder: Some(Reorder {
            probability: 0.02,
            late: Nanos::from_millis(1),
        }),
        duplicate: Some(Duplicate { probability: 0.05 }),
        ..Shape::default()
    };
    let mut pipe = Pipe::new(&shape, 3);
    let all = feed(&mut pipe, 50_000, Nanos(100_000), 1500);
    let counters = pipe.counters().clone();
    assert!(
        (0.018..0.024).contains(&(counters.reordered as f64 / 50_000.0)),
        "{counters:?}"
    );
    assert!((0.045..0.055).contains(&(counters.duplicated.frames as f64 / 50_000.0)));
    assert_eq!(all.len() as u64, 50_000 + counters.duplicated.frames);
    assert!(balanced(&counters) && counters.waiting.frames == 0);
}

fn link(shape: Shape) -> Link {
    let all = Scenario::shipped();
    let (name, text) = all
        .iter()
        .find(|(n, _)| *n == "clean-lan")
        .expect("shipped");
    let scenario = Scenario::parse(text, name).expect("shipped scenarios parse");
    let mut link = scenario.links[0].clone();
    (link.forward, link.backward) = (shape.clone(), shape);
    link
}

#[test]
fn a_half_duplex_line_carries_its_rate_once() {
    for half_duplex in [false, true] {
        let shape = Shape {
            half_duplex,
            ..line(BitRate(100_000_000))
        };
        let mut duplex = Duplex::new(&link(shape), 1);
        for number in 0..1000 {
            duplex.offer(Nanos(0), Direction::Forward, frame(1500, number));
            duplex.offer(Nanos(0), Direction::Backward, frame(1500, number));
        }
        let mut sent = Vec::new();
        while let Some(due) = duplex.due() {
            while let Some((direction, delivery)) = duplex.take(due) {
                sent.push((delivery.due, direction));
            }
        }
        let last = sent.last().unwrap().0.0;
        let once = 1000 * 1538 * 80;
        assert_eq!(
            (sent.len(), last),
            (2000, once * if half_duplex { 2 } else { 1 })
        );
        let turns = sent.windows(2).filter(|w| w[0].1 != w[1].1).count();
        assert!(turns > 900, "they take turns: {turns}");
    }
}

#[test]
fn cross_traffic_takes_its_share() {
    let shape = Shape {
        cross: Some(Cross {
            rate: BitRate(400_000_000),
            frame: 1500,
            on: Nanos(0),
            off: Nanos(0),
        }),
        queue: Some(Queue::default()),
        ..line(GIGABIT)
    };
    let mut pipe = Pipe::new(&shape, 1);
    // 700 and 400 Mbit/s on a line of 1000: together they fill it.
    let all = feed(&mut pipe, 100_000, Nanos(17_577), 1500);
    let counters = pipe.counters();
    let sent = (counters.delivered.wire_bytes + counters.cross.wire_bytes) as f64 * 8.0;
    let rate = sent / all.last().unwrap().due.as_secs_f64();
    assert!((rate / 1e9 - 1.0).abs() < 0.001, "{rate}");
    let dropped = counters.cross_dropped.frames + counters.dropped.queue.frames;
    assert!(dropped > 1000 && balanced(counters), "{counters:?}");

    let on_off = Shape {
        cross: Some(Cross {
            on: Nanos::from_millis(1),
            off: Nanos::from_millis(3),
            ..shape.cross.clone().unwrap()
        }),
        ..shape
    };
    let mut pipe = Pipe::new(&on_off, 1);
    feed(&mut pipe, 1000, Nanos::from_millis(1), 100);
    let rate = pipe.counters().cross.wire_bytes as f64 * 8.0 / 0.999;
    assert!((rate / 100e6 - 1.0).abs() < 0.05, "{rate}");
}

#[test]
fn a_varying_rate_stays_about_its_mean_and_visits_its_states() {
    let shape = Shape {
        rate_variation: Some(RateVariation {
            deviation: 0.05,
            time: Nanos::from_secs(1),
            states: Vec::new(),
        }),
        ..line(BitRate(100_000_000))
    };
    let rates = |shape: &Shape| -> Vec<f64> {
        let mut pipe: Pipe<()> = Pipe::new(shape, 9);
        let mut all = Vec::new();
        for second in 0..4000 {
            pipe.take(Nanos::from_millis(second * 500));
            all.push(pipe.counters().rate.unwrap().0 as f64 / 1e8);
            pipe.drain_log();
        }
        all
    };
    let all = rates(&shape);
    let mean = all.iter().sum::<f64>() / all.len() as f64;
    let spread = (all.iter().map(|r| (r - mean).powi(2)).sum::<f64>() / all.len() as f64).sqrt();
    assert!(
        (mean - 1.0).abs() < 0.01 && (spread / 0.05 - 1.0).abs() < 0.1,
        "{mean} {spread}"
    );

    let states = [(1.0, 8), (0.7, 2)].map(|(factor, s)| RateState {
        factor,
        stay: Nanos::from_secs(s),
    });
    let regimes = Shape {
        rate_variation: Some(RateVariation {
            deviation: 0.0,
            time: Nanos::from_secs(1),
            states: states.to_vec(),
        }),
        ..shape
    };
    let all = rates(&regimes);
    let low = all.iter().filter(|r| **r < 0.71).count() as f64 / all.len() as f64;
    assert!(all.iter().all(|r| *r == 1.0 || *r == 0.7), "two states");
    assert!((0.13..0.27).contains(&low), "{low}");
}

#[test]
fn a_change_acts_from_its_moment_on() {
    let mut pipe = Pipe::new(&line(GIGABIT), 1);
    for number in 0..100 {
        pipe.offer(Nanos(0), frame(1500, number));
    }
    // Fifty frames have gone or are on the line.
    let now = Nanos(49 * 12_304 + 1);
    pipe.change(now, &line(BitRate(100_000_000)));
    let all = drain(&mut pipe);
    assert_eq!(all[49].due, Nanos(50 * 12_304));
    assert_eq!(all[99].due, Nanos(50 * 12_304 + 50 * 123_040));
    let rates: Vec<EmulatorEvent> = pipe
        .drain_log()
        .into_iter()
        .filter(|e| matches!(e.kind, EventKind::Rate { .. }))
        .collect();
    assert_eq!(rates.last().unwrap().at, now);
}

#[test]
fn the_log_names_each_drop_and_is_bounded() {
    let shape = Shape {
        loss: LossModel::Random(1.0),
        ..Shape::default()
    };
    let mut pipe = Pipe::new(&shape, 1);
    feed(&mut pipe, 100_000, Nanos(1), 1500);
    let log = pipe.drain_log();
    assert_eq!(log.len() as u64 + pipe.counters().log_lost, 100_000);
    assert!(pipe.counters().log_lost > 0 && pipe.drain_log().is_empty());
    let json = serde_json::to_string(&log[2]).unwrap();
    assert_eq!(json, r#"{"at":2,"what":"dropped","frame":3,"why":"loss"}"#);
}

fn distribution() -> impl Strategy<Value = Distribution> {
    prop::sample::select(vec![
        Distribution::Uniform,
        Distribution::Normal,
        Distribution::Exponential,
    ])
}

fn probability() -> impl Strategy<Value = f64> {
    prop_oneof![Just(0.0), 0.0..0.3f64]
}

prop_compose! {
    fn aqm()(kind in 0..3, step in any::<bool>()) -> Aqm {
        match kind {
            0 => Aqm::DropTail,
            1 => Aqm::CoDel(CoDelRule { target: Nanos::from_micros(500), interval: Nanos::from_millis(5) }),
            _ => Aqm::Red(RedRule { min: 3, max: if step { 3 } else { 9 }, probability: 0.2, weight: 0.3 }),
        }
    }
}

prop_compose! {
    fn shapes()(
        (rate, packet_time) in (prop::option::of(1_000_000u64..2_000_000_000), prop_oneof![Just(0), 1u64..50_000]),
        delay in 0u64..20_000_000,
        jitter in prop::option::of((1u64..5_000_000, any::<bool>(), distribution())),
        loss in prop::option::of(probability()),
        bit_error_rate in prop_oneof![Just(0.0), Just(1e-5)],
        reorder in prop::option::of(probability()),
        duplicate in prop::option::of(probability()),
        (limit, aqm, ecn) in (1u64..50, aqm(), any::<bool>()),
        policer in prop::option::of(1_000_000u64..1_000_000_000),
        shaper in prop::option::of(1_000_000u64..1_000_000_000),
        max_frame in prop::option::of(600u32..9000),
        thin in prop::option::of(2u32..6),
        half_duplex in any::<bool>(),
        varies in any::<bool>(),
        cross in any::<bool>(),
    ) -> Shape {
        let bucket = |rate| Bucket { rate: BitRate(rate), burst: Bytes(20_000) };
        let limited = rate.is_some();
        Shape {
            rate: rate.map(BitRate),
            packet_time: Nanos(packet_time),
            delay: Nanos(delay),
            jitter: jitter.map(|(range, reorders, distribution)| Jitter { range: Nanos(range), distribution, reorders }),
            loss: loss.map_or(LossModel::Off, LossModel::Random),
            bit_error_rate,
            reorder: reorder.map(|probability| Reorder { probability, late: Nanos(700_000) }),
            duplicate: duplicate.map(|probability| Duplicate { probability }),
            queue: limited.then_some(Queue { limit: QueueLimit::Packets(limit), aqm, ecn }),
            policer: policer.map(bucket),
            shaper: shaper.map(bucket),
            max_frame,
            ack_thinning: thin.map(|of| AckThinning { of, hold: Nanos(300_000) }),
            half_duplex: half_duplex && limited,
            rate_variation: (varies && limited).then_some(RateVariation {
                deviation: 0.2,
                time: Nanos::from_millis(100),
                states: vec![RateState { factor: 0.5, stay: Nanos::from_millis(30) }],
            }),
            cross: (cross && limited).then_some(Cross {
                rate: BitRate(3_000_000),
                frame: 500,
                on: Nanos(2_000_000),
                off: Nanos(1_000_000),
            }),
        }
    }
}

/// (gap to the one before in ns, segments, payload of a segment, flags)
type Offer = (u64, u64, u64, u8);

fn packet(offer: Offer, number: u64) -> EmulatedPacket<u64> {
    let (_, segments, payload, flags) = offer;
    let ack = flags & 3 == 3;
    EmulatedPacket {
        ecn: if flags & 4 == 0 {
            Ecn::Capable
        } else {
            Ecn::NotCapable
        },
        is_pure_ack: ack,
        flow: u64::from(flags >> 3 & 3),
        ..match ack {
            true => EmulatedPacket::frame(66, number),
            false => EmulatedPacket::segmented(66, segments * payload - 17, payload, number),
        }
    }
}

type Fate = (Direction, Nanos, u64, KeptSegments, bool);

/// What becomes of the offers; `wakes` are moments at which the caller looks in without need.
fn fates(
    shape: &Shape,
    seed: u64,
    offers: &[Offer],
    wakes: u64,
) -> (Vec<Fate>, [EmulatorCounters; 2]) {
    let mut duplex = Duplex::new(&link(shape.clone()), seed);
    let mut all = Vec::new();
    let mut now = Nanos(1_000);
    duplex.offer(now, Direction::Forward, EmulatedPacket::frame(100, 1 << 40));
    let mut take = |duplex: &mut Duplex<u64>, now: Nanos| {
        while let Some((direction, d)) = duplex.take(now) {
            assert!(d.due <= now);
            all.push((direction, d.due, d.packet.body, d.kept, d.mark));
        }
        for d in Direction::BOTH {
            let counters = duplex.pipe(d).counters();
            assert!(balanced(counters), "{counters:?}");
            if let (
                Some(Queue {
                    limit: QueueLimit::Packets(most),
                    ..
                }),
                Some(_),
            ) = (&shape.queue, shape.rate)
            {
                assert!(counters.deepest.packets <= *most, "{counters:?}");
            }
        }
    };
    for (number, offer) in offers.iter().enumerate() {
        for wake in 1..wakes {
            take(&mut duplex, now + Nanos(offer.0 * wake / wakes));
        }
        now += Nanos(offer.0);
        let direction = Direction::BOTH[usize::from(offer.3 >> 5 & 1)];
        duplex.offer(now, direction, packet(*offer, number as u64));
    }
    let mut rounds = 0;
    while let Some(due) = duplex.due() {
        assert!(
            due > now || rounds == 0,
            "due again at {due}, nothing moved"
        );
        now = now.max(due);
        take(&mut duplex, now);
        rounds += 1;
        assert!(rounds < 1_000_000, "it never ends");
    }
    // Order among equals of different directions depends on when the caller looked.
    all.sort_by_key(|(direction, due, body, ..)| (*direction, *due, *body));
    let truths = Direction::BOTH.map(|d| duplex.pipe(d).counters().clone());
    (all, truths)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn nothing_is_lost_count_of_and_the_same_seed_is_the_same_fate(
        shape in shapes(),
        seed in any::<u64>(),
        offers in prop::collection::vec((0u64..2_000_000, 1u64..20, 100u64..9000, any::<u8>()), 1..80),
    ) {
        let (once, truths) = fates(&shape, seed, &offers, 1);
        for counters in &truths {
            prop_assert!(balanced(counters));
            prop_assert_eq!(counters.waiting.frames, 0);
        }
        let offered = truths[0].offered.frames + truths[1].offered.frames;
        let expected: u64 = 1 + offers.iter().enumerate()
            .map(|(n, o)| u64::from(packet(*o, n as u64).segments)).sum::<u64>();
        prop_assert_eq!(offered, expected);
        let (again, _) = fates(&shape, seed, &offers, 1);
        prop_assert_eq!(&once, &again);
        // Looking in at other moments changes nothing.
        let (watched, _) = fates(&shape, seed, &offers, 3);
        prop_assert_eq!(&once, &watched);
    }

    #[test]
    fn another_impairment_does_not_shift_the_loss(seed in any::<u64>(), delay in 0u64..1_000_000) {
        let lost = |shape: &Shape| {
            let mut pipe = Pipe::new(shape, seed);
            let all = feed(&mut pipe, 500, Nanos(1_000_000), 1500);
            let mut kept: Vec<u64> = all.iter().map(|d| d.packet.body).collect();
            kept.sort();
            kept.dedup();
            kept
        };
        let plain = Shape { loss: LossModel::Random(0.1), ..Shape::default() };
        let more = Shape {
            delay: Nanos(delay),
            jitter: Some(Jitter { range: Nanos(500), distribution: Distribution::Normal, reorders: true }),
            duplicate: Some(Duplicate { probability: 0.5 }),
            ..plain.clone()
        };
        prop_assert_eq!(lost(&plain), lost(&more));
    }
}

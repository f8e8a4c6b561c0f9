use super::*;

/// Two hundred round trips of 20 ms, three or four pairs of segments in each; from the given one on for so many
/// there is a standing queue.
fn pairs(from: usize, queued: usize) -> Facts {
    let mut facts = Facts::new(Source::CaptureAtSender);
    (facts.mss, facts.min_rtt) = (1448, Some(Nanos::from_millis(20)));
    facts.span = Nanos::from_secs(4);
    for n in 0..200 {
        let standing = (from..from + queued).contains(&n);
        facts.read(SenderInterval {
            from: Nanos::from_millis(n as u64 * 20),
            to: Nanos::from_millis(n as u64 * 20 + 20),
            srtt: Nanos::from_millis(if standing { 30 } else { 20 }),
            delivered: 3 * 2896,
            passed: (3 + u64::from(n % 3 == 0)) * 2896,
            ..SenderInterval::default()
        });
    }
    facts
}

#[test]
fn a_few_late_acknowledgements_of_a_steady_sender_are_no_full_line() {
    assert_eq!(pairs(100, 3).queued_goodput(), None);
    assert_eq!(pairs(100, 50).queued_goodput(), None, "a pair more or less");
    let asks_for_more = |queued| {
        let mut facts = pairs(100, queued);
        for reading in &mut facts.readings[100..110] {
            reading.passed *= 2;
        }
        facts.queued_goodput()
    };
    assert_eq!(asks_for_more(3), None);
    assert!(asks_for_more(50).is_some());
}

#[test]
fn the_queue_at_the_end_of_slow_start_is_that_of_one_event() {
    let mut facts = pairs(0, 0);
    let lost = |at, rtt| LostSegment {
        at: Nanos::from_millis(at),
        srtt: Nanos::from_millis(rtt),
        ..LostSegment::default()
    };
    facts.losses = vec![lost(300, 44); 197];
    facts
        .losses
        .extend([1970, 2480, 2930].map(|at| lost(at, 20)));
    assert_eq!(facts.inflation_at_loss(), Some(1.0));
    let mut two = facts.clone();
    two.losses.truncate(198);
    assert_eq!(two.inflation_at_loss(), Some(1.6), "one of two");
}

#[test]
fn a_long_connection_takes_no_more_room_and_keeps_its_sums() {
    let mut facts = Facts::new(Source::Trace);
    for n in 0..100_000u64 {
        facts.read(SenderInterval {
            from: Nanos(n * 1000),
            to: Nanos((n + 1) * 1000),
            delivered: 7,
            passed: 8,
            ..SenderInterval::default()
        });
    }
    assert!(facts.readings.len() < MOST_READINGS);
    assert_eq!(
        facts.readings.iter().map(|r| r.delivered).sum::<u64>(),
        700_000
    );
    assert_eq!(
        facts.readings.iter().map(|r| r.passed).sum::<u64>(),
        800_000
    );
    assert!(facts.readings.is_sorted_by_key(|r| r.from));
    assert!(facts.readings.windows(2).all(|w| w[0].to == w[1].from));
}

/// So many readings of 10 ms, each of a round trip of 10 ms in which ten segments of 1000 bytes pass: 1 MB/s.
pub(crate) fn steady(readings: u64) -> Facts {
    let mut facts = Facts::new(Source::CaptureAtSender);
    (facts.mss, facts.min_rtt) = (1000, Some(Nanos::from_millis(10)));
    (facts.segments, facts.bytes) = (readings * 10, Bytes(readings * 10_000));
    facts.span = Nanos::from_millis(readings * 10);
    for n in 0..readings {
        facts.read(SenderInterval {
            from: Nanos::from_millis(n * 10),
            to: Nanos::from_millis(n * 10 + 10),
            srtt: Nanos::from_millis(10),
            cwnd: 10_000,
            flight: 10_000,
            window: 20_000,
            delivered: 10_000,
            passed: 10_000,
            ..SenderInterval::default()
        });
    }
    facts
}

/// A second of it, of which each reading differs.
fn second(each: impl Fn(usize, &mut SenderInterval)) -> Facts {
    let mut facts = steady(100);
    let readings = facts.readings.iter_mut().enumerate();
    readings.for_each(|(n, reading)| each(n, reading));
    facts
}

pub(crate) fn ms(of: f64) -> Nanos {
    Nanos((of * 1e6) as u64)
}

pub(crate) fn is_about(value: Option<f64>, wanted: f64) -> bool {
    value.is_some_and(|value| (value / wanted - 1.0).abs() < 1e-9)
}

#[test]
fn the_steady_part_begins_after_twenty_round_trips_and_is_at_least_the_later_half() {
    for (readings, part) in [
        (0, 0),
        (1, 1),
        (8, 4),
        (30, 15),
        (40, 20),
        (50, 30),
        (100, 80),
    ] {
        assert_eq!(steady(readings).steady().len(), part, "of {readings}");
    }
}

#[test]
fn hosts_hold_a_sender_by_their_buffers_and_programs() {
    use Limit::{Application, CongestionWindow, Pacing, ReceiveWindow, SendBuffer, ZeroWindow};
    let held = [
        Application,
        ReceiveWindow,
        SendBuffer,
        ZeroWindow,
        CongestionWindow,
        Pacing,
    ];
    let facts = second(|n, reading| {
        // Ten each of 80, and none before the steady part.
        reading.limit = held
            .get(n.saturating_sub(20) / 10)
            .copied()
            .filter(|_| n >= 20);
    });
    assert_eq!(facts.held_by_hosts(), 0.5);
    assert_eq!(steady(0).held_by_hosts(), 0.0);
}

#[test]
fn delays_are_medians_of_the_steady_part_by_the_shortest_round_trip() {
    let mut facts = second(|n, reading| {
        reading.srtt = match n {
            0..20 => ms(90.0),
            20..45 => Nanos(0),
            _ => ms(15.0),
        }
    });
    assert_eq!(facts.inflation(), Some(1.5));
    assert_eq!(facts.standing(), Some(ms(5.0)));
    assert!(facts.has_long_queue() && facts.has_queue(1.5) && !facts.has_queue(1.51));
    facts.min_rtt = Some(Nanos(0));
    assert_eq!(facts.inflation(), None);
    facts.min_rtt = None;
    assert_eq!((facts.inflation(), facts.standing()), (None, None));
    assert_eq!(facts.rtt(), Nanos(0));
}

#[test]
fn bbr_starts_for_sixty_round_trips_as_long_as_the_queue_makes_them() {
    let outlasts = |srtt, span, congestion: &str| {
        let mut facts = second(|_, reading| reading.srtt = ms(srtt));
        (facts.span, facts.congestion) = (ms(span), Some(congestion.to_owned()));
        facts.outlasts_startup()
    };
    for (srtt, span, expected) in [
        (10.0, 600.0, false),
        (10.0, 600.1, true),
        (15.0, 900.0, false),
        (15.0, 900.1, true),
        // A smoothed round trip below the shortest is none.
        (5.0, 600.0, false),
    ] {
        assert_eq!(outlasts(srtt, span, "bbr"), expected, "{srtt} {span}");
    }
    assert!(outlasts(10.0, 601.0, "bbr3") && !outlasts(10.0, 601.0, "cubic"));
}

#[test]
fn rates_are_taken_over_ten_round_trips_and_thirty_segments_or_a_quarter_of_a_short_transfer() {
    let of = |readings, segments| {
        let mut facts = steady(readings);
        facts.segments = segments;
        facts.rates().len()
    };
    // 800 ms: of 100 ms each; of 150 ms, for 30 segments take so long, and a rest; of a quarter, though they take longer.
    assert_eq!(
        [of(100, 1000), of(100, 300), of(100, 200), of(100, 100)],
        [8, 8, 5, 4]
    );
    // 100 ms: three of 30 ms, for a quarter is 25 ms. 40 ms: two of two round trips.
    assert_eq!([of(20, 200), of(8, 80), of(1, 10), of(0, 0)], [3, 2, 0, 0]);
    let facts = second(|n, reading| reading.delivered *= (n as u64 / 10) + 1);
    assert_eq!(facts.rates(), [3e6, 4e6, 5e6, 6e6, 7e6, 8e6, 9e6, 10e6]);
    assert_eq!(facts.rate(), 6.5e6);
    // Ranks 2, 4 and 6 of 8.
    assert_eq!(facts.unsteadiness(), Some(2.0 / 6.0));
}

#[test]
fn without_stretches_the_rate_is_that_of_all_bytes() {
    let mut facts = Facts::new(Source::Trace);
    (facts.bytes, facts.span) = (Bytes(5_000_000), Nanos::from_secs(2));
    assert_eq!([facts.rate(), facts.mean()], [2.5e6; 2]);
    facts.bytes = Bytes(0);
    assert_eq!(facts.mean(), 0.0);
}

#[test]
fn a_rate_is_flat_where_half_its_middle_span_is_less_than_a_tenth() {
    // Eight stretches, three of them slow and three of them fast.
    let of = |spread: i64| {
        let facts = second(|n, reading| {
            let step = [-1, -1, -1, 0, 0, 1, 1, 1][n.saturating_sub(20) / 10];
            reading.delivered = (10_000 + step * spread) as u64;
        });
        (facts.is_flat(), facts.unsteadiness())
    };
    let (is_flat, spread) = of(990);
    assert!(is_flat && is_about(spread, 0.099), "{spread:?}");
    assert!(!of(1010).0);
    // Two stretches show nothing.
    assert_eq!(steady(8).unsteadiness(), None);
    assert!(steady(20).is_flat() && !steady(8).is_flat());
    assert_eq!(
        second(|_, reading| reading.delivered = 0).unsteadiness(),
        None
    );
}

#[test]
fn goodput_by_peak_is_the_mean_by_the_fastest_tenth_of_at_least_twenty_stretches() {
    // A stretch is three readings of ten segments.
    assert_eq!(steady(79).goodput_by_peak(), None);
    assert!(is_about(steady(80).goodput_by_peak(), 1.0));
    let mut facts = second(|n, reading| reading.passed *= if n % 2 == 0 { 1 } else { 2 });
    facts.mss = 333;
    assert!(is_about(facts.goodput_by_peak(), 0.75));
    // A segment more than a reading: two of them are a stretch.
    facts.mss = 667;
    assert!(is_about(facts.goodput_by_peak(), 1.0));
}

#[test]
fn a_mean_below_the_median_shows_a_sender_that_stood_still() {
    let mut facts = second(|n, reading| {
        if n >= 90 {
            reading.delivered = 0;
        }
    });
    assert!(is_about(Some(facts.mean_by_median()), 7.0 / 8.0));
    // An outage of 250 of the 800 ms is not counted.
    (facts.timeouts, facts.backoffs, facts.stalled) = (2, 2, ms(250.0));
    assert!(facts.has_outage());
    assert!(is_about(
        Some(facts.mean_by_median()),
        7.0 / 8.0 / (550.0 / 800.0)
    ));
}

#[test]
fn an_outage_is_one_run_of_timeouts_that_takes_a_tenth_of_the_time() {
    let of = |timeouts, backoffs, stalled| {
        let mut facts = steady(100);
        (facts.timeouts, facts.backoffs) = (timeouts, backoffs);
        facts.stalled = ms(stalled);
        [
            facts.has_outage(),
            facts.timed_out_once(),
            facts.stood_still(),
        ]
    };
    for (timeouts, backoffs, stalled, expected) in [
        (2, 2, 250.0, [true, true, false]),
        (4, 2, 250.0, [true, true, false]),
        (5, 2, 250.0, [false, false, false]),
        (2, 1, 250.0, [false, true, false]),
        (3, 1, 250.0, [false, false, false]),
        (2, 0, 250.0, [false, true, false]),
        (2, 2, 100.0, [true, true, false]),
        (2, 2, 99.0, [false, true, false]),
        (2, 2, 399.0, [true, true, false]),
        (2, 2, 400.0, [true, true, true]),
        (0, 2, 400.0, [true, true, false]),
    ] {
        let found = of(timeouts, backoffs, stalled);
        assert_eq!(found, expected, "{timeouts} {backoffs} {stalled}");
    }
    let hurts = |events: u64| {
        let losses: Vec<(f64, f64)> = (0..events).map(|n| (n as f64 * 100.0, 10.0)).collect();
        let mut facts = lossy(&losses);
        (facts.timeouts, facts.backoffs, facts.stalled) = (2, 2, ms(500.0));
        facts.retransmitted = 100;
        facts.loss_hurts()
    };
    assert!(!hurts(1 + FEWEST_LOST), "the outage lost all of them");
    assert!(hurts(2 + FEWEST_LOST));
    let mut facts = steady(100);
    (facts.timeouts, facts.backoffs, facts.stalled) = (2, 2, ms(500.0));
    facts.vanished = Some(Vanished {
        size: 1000,
        passed: 0,
        backoffs: 2,
        at: Nanos(0),
    });
    assert!(!facts.has_outage(), "that has a cause");
}

#[test]
fn what_readings_show_of_windows() {
    let mut facts = second(|n, reading| {
        (reading.cwnd, reading.flight) = (20_000, 8000);
        reading.window = if n < 40 { 0 } else { 10_000 };
    });
    // 20 kB a round trip of 10 ms are twice what was carried.
    assert!(is_about(facts.window_to_spare(), 2.0));
    assert!(is_about(facts.occupancy(), 0.8));
    facts.min_rtt = Some(Nanos(0));
    assert_eq!(facts.window_to_spare(), None);
    assert_eq!(second(|_, reading| reading.window = 0).occupancy(), None);
    let idle = second(|_, reading| reading.delivered = 0);
    assert_eq!(idle.window_to_spare(), None);
    assert!(!facts.unread_is_known());
    facts.readings[50].unread = Some(0.0);
    assert!(facts.unread_is_known());
}

#[test]
fn readings_are_coarse_beyond_one_and_a_half_round_trips() {
    let of = |rtt| {
        let mut facts = steady(10);
        facts.min_rtt = Some(Nanos::from_micros(rtt));
        facts.is_coarse()
    };
    assert_eq!([of(6600), of(6667), of(10_000)], [true, false, false]);
    assert!(steady(0).is_coarse());
}

/// One megabyte a second by what the slowest link carries, in so many bytes a second; five were lost.
fn over(capacity: f64) -> Facts {
    let mut facts = steady(100);
    (facts.capacity, facts.retransmitted) = (Some(capacity), FEWEST_LOST);
    facts
}

#[test]
fn a_link_is_full_from_87_per_cent_and_has_room_below_80() {
    for (capacity, full, shared) in [
        (1_149_000.0, true, false),
        (1_150_000.0, false, false),
        (1_249_000.0, false, false),
        (1_251_000.0, false, true),
        // A sixth more than it carries: the spacing is of another time.
        (869_600.0, true, false),
        (869_500.0, false, false),
    ] {
        let facts = over(capacity);
        assert_eq!(facts.fills_link().is_some(), full, "{capacity}");
        assert_eq!(facts.shares_link(), shared, "{capacity}");
        assert!(!facts.leaves_link_idle(), "more was offered");
    }
    let used = over(1e6 / 0.9).fills_link().unwrap();
    assert!(matches!(used.quantity, Quantity::Ratio(used) if is_about(Some(used), 0.9)));
    assert_eq!(
        Some(model::finding::Threshold::AtLeast(0.87)),
        used.threshold
    );
    // Fewer than four segments under way wait for each other.
    let of_size = |mss, srtt| {
        let mut facts = over(1.1e6);
        facts.mss = mss;
        facts.readings.iter_mut().for_each(|r| r.srtt = ms(srtt));
        facts.fills_link().is_some()
    };
    assert_eq!([of_size(2499, 10.0), of_size(2501, 10.0)], [true, false]);
    assert_eq!([of_size(3749, 15.0), of_size(3751, 15.0)], [true, false]);
    assert_eq!([of_size(2499, 5.0), of_size(2501, 5.0)], [true, false]);
}

#[test]
fn a_queue_of_acknowledgements_spaces_them_but_not_data_that_arrive() {
    let of = |source, back| {
        let mut facts = over(1.1e6);
        facts.source = source;
        facts.reverse_queueing = Some(ReverseQueueing::of(ms(back), ms(10.0)));
        facts.fills_link().is_some()
    };
    assert!(of(Source::CaptureAtSender, 4.9));
    assert!(!of(Source::CaptureAtSender, 5.0));
    assert!(of(Source::CaptureAtReceiver, 5.0));
}

#[test]
fn a_link_is_idle_where_no_more_was_offered() {
    let of = |change: fn(&mut Facts)| {
        let mut facts = over(2e6);
        facts.retransmitted = FEWEST_LOST - 1;
        change(&mut facts);
        facts.leaves_link_idle()
    };
    assert!(of(|_| {}));
    type Change = fn(&mut Facts);
    let offers: [(&str, Change); 5] = [
        ("losses", |f| f.retransmitted = FEWEST_LOST),
        ("marks", |f| f.marked = 1),
        ("a queue", |f| {
            f.readings.iter_mut().for_each(|r| r.srtt = ms(12.5))
        }),
        ("probes", |f| f.congestion = Some("bbr".to_owned())),
        ("a queue at the receiver", |f| {
            f.source = Source::CaptureAtReceiver;
            f.readings.iter_mut().for_each(|r| r.late = ms(1.0));
        }),
    ];
    for (what, change) in offers {
        assert!(!of(change), "{what}");
    }
    let paced: fn(&mut Facts) = |f| {
        f.congestion = Some("bbr".to_owned());
        f.pacing = Some(BitRate(8_000_000));
    };
    assert!(of(paced));
}

#[test]
fn the_fastest_packet_waits_in_a_queue_for_a_millisecond_and_two_segments() {
    let of = |source, mss, capacity, late| {
        let mut facts = second(|_, reading| reading.late = ms(late));
        (facts.source, facts.mss, facts.capacity) = (source, mss, capacity);
        facts.standing_queue()
    };
    let here = Source::CaptureAtReceiver;
    // Two segments of 1000 bytes at 1 MB/s take 2 ms, at 500 kB/s 4 ms; of 400 bytes, less than a millisecond.
    for (mss, capacity, least) in [
        (1000, Some(1e6), 2.0),
        (1000, None, 2.0),
        (1000, Some(5e5), 4.0),
        (400, Some(1e6), 1.0),
    ] {
        assert_eq!(of(here, mss, capacity, least), Some((ms(least), ms(least))));
        assert_eq!(
            of(here, mss, capacity, least - 0.001),
            None,
            "{mss} {least}"
        );
    }
    assert!(of(Source::TraceAtReceiver, 400, None, 1.0).is_some());
    assert_eq!(of(Source::CaptureAtSender, 400, None, 9.0), None);
}

#[test]
fn small_bursts_that_arrive_evenly_on_a_link_with_room() {
    let of = |spread, capacity| {
        let mut facts = over(capacity);
        facts.burst_spread = Some(spread);
        facts.arrives_evenly().is_some()
    };
    assert_eq!([of(0.1, 2e6), of(0.101, 2e6)], [true, false]);
    assert_eq!([of(0.1, 1_251_000.0), of(0.1, 1_249_000.0)], [true, false]);
}

#[test]
fn each_source_is_a_trace_samples_or_packets_alone() {
    use Source::*;
    let of = |source| {
        let facts = Facts::new(source);
        let kinds = [facts.is_traced(), facts.is_sampled(), facts.is_capture()];
        let kind = kinds.iter().position(|is| *is).unwrap();
        assert_eq!(kinds.iter().filter(|is| **is).count(), 1);
        (kind, facts.is_seen_from_afar(), facts.shows_no_writes())
    };
    for (source, expected) in [
        (Trace, (0, false, false)),
        (TraceOfBothEnds, (0, false, false)),
        (Samples, (1, false, false)),
        (PacketsAndSamples, (1, false, false)),
        (Listing, (2, false, false)),
        (CaptureAtSender, (2, false, true)),
        (CaptureSomewhere, (2, false, true)),
        (CaptureBetween, (2, true, true)),
        (CaptureAtReceiver, (2, true, true)),
        (TraceAtReceiver, (2, true, true)),
    ] {
        assert_eq!(of(source), expected, "{source:?}");
    }
    let mut exchange = Facts::new(CaptureAtSender);
    exchange.is_exchange = true;
    assert!(!exchange.shows_no_writes());
}

#[test]
fn a_queue_for_a_twentieth_of_the_time_that_carries_no_more_than_the_rest() {
    // The first of the readings with a queue follows one in which so many bytes left.
    let of = |readings: u64, queued: usize, srtt, burst, delivered| {
        let mut facts = steady(readings);
        facts.readings[0].passed = burst;
        for reading in &mut facts.readings[1..=queued] {
            (reading.srtt, reading.delivered) = (ms(srtt), delivered);
        }
        facts.queued_goodput()
    };
    assert!(is_about(of(100, 5, 13.0, 15_001, 10_000), 1.0));
    assert_eq!(of(100, 5, 13.0, 15_000, 10_000), None, "one burst more");
    assert_eq!(of(100, 4, 13.0, 15_001, 10_000), None, "40 ms of a second");
    assert!(is_about(of(100, 5, 12.5, 15_001, 10_900), 1.09));
    assert!(is_about(of(100, 5, 12.5, 15_001, 5000), 0.5));
    assert_eq!(of(100, 5, 12.4, 15_001, 10_000), None, "no queue");
    assert_eq!(of(100, 5, 12.5, 15_001, 11_100), None, "more is delivered");
    // In a short transfer for two round trips.
    assert!(of(20, 2, 13.0, 15_001, 10_000).is_some());
    assert_eq!(of(20, 1, 13.0, 15_001, 10_000), None);
}

#[test]
fn the_same_is_in_flight_all_the_time_without_loss_and_queue() {
    let of = |readings, spread: u64, srtt, retransmitted| {
        let mut facts = steady(readings);
        (facts.segments, facts.retransmitted) = (1000, retransmitted);
        for (n, reading) in facts.readings.iter_mut().enumerate() {
            reading.srtt = ms(srtt);
            reading.flight = 10_000 + [0, spread, 2 * spread, spread][n % 4];
        }
        facts.held_flight()
    };
    assert_eq!(of(20, 0, 10.0, 0), Some(0.0));
    assert_eq!(of(18, 0, 10.0, 0), None, "nine readings");
    assert_eq!(of(20, 0, 10.0, 1), Some(0.0));
    assert_eq!(of(20, 0, 10.0, 2), None, "0.2 % lost");
    assert_eq!(of(20, 0, 12.4, 0), Some(0.0));
    assert_eq!(of(20, 0, 12.5, 0), None, "a queue");
    // Quarters of the readings at 1, 1 + s, 1 + s and 1 + 2s: the middle half is from 1 to 1 + s, or half of that.
    assert!(is_about(of(100, 1000, 10.0, 0), 500.0 / 11_000.0));
    assert_eq!(of(100, 1200, 10.0, 0), None);
}

/// Losses at these times in ms with this round trip, 1000 bytes of flight more at each.
fn lossy(losses: &[(f64, f64)]) -> Facts {
    let mut facts = steady(100);
    facts.losses = losses
        .iter()
        .zip(1..)
        .map(|((at, srtt), n)| LostSegment {
            at: ms(*at),
            srtt: ms(*srtt),
            flight: n * 1000,
            ..LostSegment::default()
        })
        .collect();
    facts
}

#[test]
fn a_loss_event_ends_when_nothing_is_lost_for_a_round_trip_and_a_half() {
    let facts = lossy(&[(0.0, 10.0), (15.0, 10.0), (30.0, 10.0), (45.1, 10.0)]);
    assert_eq!(facts.loss_events(), [(3, 1000), (1, 4000)]);
    assert_eq!(steady(1).loss_events(), []);
}

#[test]
fn the_queue_at_losses_is_that_of_those_whose_round_trip_is_known() {
    let facts = lossy(&[
        (0.0, 0.0),
        (1.0, 13.0),
        (2.0, 15.0),
        (100.0, 0.0),
        (200.0, 15.0),
    ]);
    // Events of 1.4 and 1.5, and one that is not known.
    assert!(is_about(facts.inflation_at_loss(), 1.45));
    assert!(facts.queue_at_loss(1.44) && !facts.queue_at_loss(1.46));
    assert_eq!(facts.delay_at_loss(), Some(ms(5.0)));
    let mut unknown = facts.clone();
    unknown.min_rtt = Some(Nanos(0));
    assert_eq!(unknown.inflation_at_loss(), None);
    assert_eq!(steady(1).delay_at_loss(), None);
}

#[test]
fn a_short_round_trip_is_longer_by_noise() {
    let from = |rtt_us, factor| {
        let mut facts = steady(1);
        facts.min_rtt = Some(Nanos::from_micros(rtt_us));
        facts.queue_from(factor)
    };
    assert_eq!(from(10_000, 1.25), 1.25);
    assert_eq!(from(10_000, 1.1), 1.15);
    assert_eq!(from(3000, 1.25), 1.5);
    assert_eq!(from(1000, 1.25), 2.0);
    assert_eq!(from(0, 1.25), 2.0);
    assert_eq!(from(1000, 2.5), 2.5);
    let facts = steady(1);
    assert!(facts.is_queue(1.25, 1.25) && !facts.is_queue(1.2499, 1.25));
}

#[test]
fn needless_retransmissions_are_not_losses_unless_there_are_more_of_them() {
    let of = |retransmitted, needless| {
        let mut facts = steady(1);
        (facts.retransmitted, facts.needless) = (retransmitted, needless);
        (facts.known_needless(), facts.lost())
    };
    assert_eq!(of(10, 3), (3, 7));
    assert_eq!(of(10, 10), (10, 0));
    assert_eq!(of(10, 11), (0, 10));
}

#[test]
fn a_forward_queue_is_seen_by_delay_losses_or_marks() {
    assert!(!steady(100).has_forward_queue());
    let by_delay = |back| {
        let mut facts = steady(100);
        facts.reverse_queueing = Some(ReverseQueueing::of(ms(back), ms(10.0)));
        facts.has_forward_queue()
    };
    assert_eq!([by_delay(4.9), by_delay(5.0)], [true, false]);
    let by_loss = |srtt, retransmitted, needless| {
        let mut facts = lossy(&[(0.0, srtt)]);
        (facts.retransmitted, facts.needless) = (retransmitted, needless);
        facts.has_forward_queue()
    };
    assert!(by_loss(12.5, 5, 0));
    assert!(!by_loss(12.4, 5, 0) && !by_loss(12.5, 4, 0) && !by_loss(12.5, 5, 1));
    let mut marked = steady(100);
    marked.marked = 1;
    assert!(marked.has_forward_queue());
}

#[test]
fn losses_hurt_a_sender_from_the_fifth_on_and_bbr_beyond_fifteen_per_cent() {
    let of = |congestion: &str, retransmitted| {
        let mut facts = steady(10);
        (facts.congestion, facts.retransmitted) = (Some(congestion.to_owned()), retransmitted);
        facts.loss_hurts()
    };
    assert_eq!([of("cubic", 4), of("cubic", 5)], [false, true]);
    assert_eq!([of("bbr", 15), of("bbr", 16)], [false, true]);
    let reorders = |reordered, retransmitted| {
        let mut facts = steady(10);
        (facts.reordered, facts.retransmitted) = (reordered, retransmitted);
        facts.reorders()
    };
    assert_eq!(
        [reorders(20, 19), reorders(20, 20), reorders(19, 0)],
        [true, false, false]
    );
}

#[test]
fn the_rate_that_losses_allow_is_that_of_mathis() {
    let mut facts = steady(100);
    (facts.segments, facts.retransmitted) = (1000, 10);
    // 1000 B / 10 ms x 1.22 / sqrt(0.01)
    assert!(is_about(facts.mathis(), 1_220_000.0));
    assert!(is_about(facts.loss_limited_rate(40), 610_000.0));
    facts.readings.iter_mut().for_each(|r| r.srtt = ms(20.0));
    assert!(is_about(facts.loss_limited_rate(10), 610_000.0));
    facts.readings.iter_mut().for_each(|r| r.srtt = ms(5.0));
    assert!(is_about(facts.loss_limited_rate(10), 1_220_000.0));
    assert_eq!(facts.loss_limited_rate(0), None);
    facts.min_rtt = Some(Nanos(0));
    assert_eq!(facts.mathis(), None);
}

#[test]
fn from_afar_losses_allow_more_from_twice_the_rate_on() {
    let of = |source, retransmitted, timeouts| {
        let mut facts = steady(100);
        (facts.source, facts.segments) = (source, 100_000);
        (facts.retransmitted, facts.timeouts) = (retransmitted, timeouts);
        facts.loss_allows_more().is_some()
    };
    // 100 kB / 1 s x 1.22 / sqrt(p) = 2 MB/s at p = 0.00372.
    let afar = Source::CaptureAtReceiver;
    assert_eq!([of(afar, 372, 4), of(afar, 373, 4)], [true, false]);
    assert!(!of(afar, 372, 5) && !of(afar, 4, 0) && !of(Source::CaptureAtSender, 372, 0));
}

#[test]
fn two_readings_become_one_of_their_means_and_sums() {
    let one = |n: u64| SenderInterval {
        from: Nanos(n),
        to: Nanos(n + 10),
        srtt: Nanos(2 * n),
        cwnd: 4 * n,
        flight: 6 * n,
        window: 8 * n,
        delivered: n,
        passed: n + 1,
        retransmitted: n as u32 + 2,
        limit: (n == 20).then_some(Limit::Pacing),
        echo: Nanos(10 * n),
        late: Nanos(12 * n),
        unread: Some(n as f64),
    };
    let both = joined(&[one(10), one(20)]);
    assert_eq!(
        (both.from, both.to, both.limit),
        (Nanos(10), Nanos(30), Some(Limit::Pacing))
    );
    assert_eq!([both.srtt, both.echo, both.late], [30, 150, 180].map(Nanos));
    assert_eq!([both.cwnd, both.flight, both.window], [60, 90, 120]);
    assert_eq!(
        [both.delivered, both.passed, both.retransmitted.into()],
        [30, 32, 34]
    );
    assert_eq!(both.unread, Some(15.0));
    let unread = |a, b| {
        let of = |unread| SenderInterval { unread, ..one(1) };
        joined(&[of(a), of(b)]).unread
    };
    assert_eq!(
        [unread(Some(1.0), None), unread(None, Some(3.0))],
        [None, Some(3.0)]
    );
    assert_eq!(joined(&[one(10)]).to, Nanos(20));
    // From the bound on.
    assert_eq!(
        steady(MOST_READINGS as u64 - 1).readings.len(),
        MOST_READINGS - 1
    );
    assert_eq!(
        steady(MOST_READINGS as u64).readings.len(),
        MOST_READINGS / 2
    );
}

#[test]
fn a_bucket_is_seen_where_it_parts_most_events_and_holds_four_segments() {
    let fit = BucketFit {
        rate: 1e6,
        range: [1e6; 2],
        depth: 4000.0,
        parts: SEEN,
        events: 6,
        of_events: 11,
        segment: 1000,
        connections: 1,
    };
    assert!(fit.is_seen() && !fit.is_clear() && !fit.is_excluded());
    assert!(!BucketFit { parts: 0.59, ..fit }.is_seen());
    assert!(!BucketFit { events: 5, ..fit }.is_seen());
    assert!(
        !BucketFit {
            events: 5,
            of_events: 10,
            ..fit
        }
        .is_seen()
    );
    assert!(
        !BucketFit {
            depth: 3999.0,
            ..fit
        }
        .is_seen()
    );
    assert!(
        BucketFit {
            parts: CLEAR,
            ..fit
        }
        .is_clear()
    );
    assert!(BucketFit { parts: 0.39, ..fit }.is_excluded());
    assert!(
        !BucketFit {
            parts: EXCLUDED,
            ..fit
        }
        .is_excluded()
    );
    assert_eq!(fit.delay(), ms(4.0));
}

#[test]
fn shares_of_delays_pauses_and_bursts() {
    let reverse = |delay, all| ReverseQueueing::of(Nanos(delay), Nanos(all));
    assert_eq!(reverse(3, 4).share(), 0.75);
    assert_eq!(reverse(9, 4).share(), 1.0);
    assert_eq!(reverse(0, 0).share(), 0.0);
    assert!(reverse(2, 4).is_most() && !reverse(1, 4).is_most());
    let rhythm = |drained, paused| {
        let late = None;
        let rhythm = Rhythm {
            drained,
            paused,
            late,
        };
        (rhythm.is_idling(), rhythm.is_spread())
    };
    assert_eq!(rhythm(0.1, 0.1), (false, true));
    assert_eq!(rhythm(0.2, 0.0), (true, false));
    assert_eq!(rhythm(0.19, 0.0), (false, false));
    assert_eq!(rhythm(0.0, 0.11), (false, false));
    let clock = SendClock {
        by_ack: 3,
        by_itself: 4,
        ..SendClock::default()
    };
    assert_eq!(clock.bursts(), 7);
    let mut pauses = Pauses::default();
    pauses.passed(Nanos(30), true);
    pauses.passed(Nanos(10), false);
    assert_eq!(
        (pauses.count, pauses.time, pauses.after_short()),
        (2, Nanos(40), 0.25)
    );
    assert_eq!(Pauses::default().after_short(), 0.0);
    let mut waits = AckWaitCounts::default();
    [0, 5, 7]
        .into_iter()
        .for_each(|held| waits.waited(Nanos(held)));
    let AckWaitCounts {
        waits,
        delayed,
        delayed_time,
    } = waits;
    assert_eq!((waits, delayed, delayed_time), (3, 2, Nanos(12)));
}

#[test]
fn storage_holds_a_copy_up_where_it_has_a_file() {
    // A second of a copy, of which the source, the network and the sink were at work for so many milliseconds.
    let of = |[source, network, sink]: [u64; 3], files| {
        let end = |working, idle| model::EndRecord {
            bytes: Bytes(1 << 20),
            copy: Some(model::CopyRecord {
                span: Nanos::from_secs(1),
                transfer: Nanos::from_secs(1),
                working: Nanos::from_millis(working),
                ring_empty: Nanos::from_millis(idle),
                ..model::CopyRecord::default()
            }),
            ..model::EndRecord::default()
        };
        let mut facts = Facts::new(Source::Samples);
        facts.copy = model::summarise_copy(&end(source, 1000 - network), &end(sink, 0))
            .map(|summary| (summary, files));
        facts.storage().map(|slow| slow.stage)
    };
    let source = of([900, 100, 0], [true, false]);
    assert_eq!(source, Some(Stage::Source));
    assert_eq!(of([900, 100, 0], [false, true]), None);
    assert_eq!(of([0, 100, 900], [false, true]), Some(Stage::Sink));
    assert_eq!(of([0, 100, 900], [true, false]), None);
    assert_eq!(of([100, 900, 0], [true; 2]), None);
    assert_eq!(of([900, 860, 0], [true; 2]), None, "about as fast");
}

#[test]
fn a_round_trip_that_is_longer_by_a_segment_or_two_shows_no_queue_that_overflowed() {
    // 20,000 bytes in 10 ms, so that a segment takes 0.72 ms.
    let at_losses = |late_us: u64| {
        let mut facts = Facts::new(Source::Samples);
        (facts.mss, facts.min_rtt) = (1448, Some(Nanos::from_micros(500)));
        (facts.bytes, facts.span) = (Bytes(10_000_000), Nanos::from_secs(5));
        facts.retransmitted = 500;
        facts.losses = vec![LostSegment {
            srtt: Nanos::from_micros(500 + late_us),
            ..LostSegment::default()
        }];
        facts
    };
    let few = at_losses(1050);
    assert_eq!(few.inflation_at_loss(), Some(3.1));
    assert!(!few.queue_at_loss(QUEUE));
    let evidence = few.no_queue_at_loss(3.1, QUEUE);
    assert_eq!(evidence.key, EvidenceKey::SegmentsQueuedAtLosses);
    assert!(at_losses(1100).queue_at_loss(QUEUE), "1.52 segments");
    let packets = Facts {
        source: Source::Trace,
        ..few.clone()
    };
    assert!(packets.queue_at_loss(QUEUE));
    // A round trip that is not longer is the plainer evidence.
    let evidence = few.no_queue_at_loss(1.1, QUEUE);
    assert_eq!(evidence.key, EvidenceKey::RttOverMinRttAtLosses);
}

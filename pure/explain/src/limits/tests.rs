//! The bounds of the rules: a connection that a rule just fits, and what it lacks then.

use super::*;
use crate::facts::tests::{ms, steady};
use crate::facts::{
    AckWaitCounts, BucketFit, CpuLoad, LostSegment, Pauses, ReverseQueueing, Rhythm, SendClock,
    SenderInterval, Vanished,
};
use Confidence::{Certain, Likely, Possible};
use model::finding::Source;
use model::{BitRate, Bytes, LineErrors, Nanos};
use tcp::stream::Undelivered;

type Change = fn(&mut Facts);
type Row<'a> = (&'a str, Change, Option<(Confidence, u8)>);

/// Changes a connection by each row, and compares the confidence and rank of what it fits then.
fn check(fits: Fits, base: impl Fn() -> Facts, rows: &[Row]) {
    let wrong = rows.iter().filter_map(|(what, change, expected)| {
        let mut facts = base();
        change(&mut facts);
        let found = fits(&facts).map(|one| (one.confidence, one.rank));
        (found != *expected).then(|| format!("{what}: {found:?}, not {expected:?}"))
    });
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn each(facts: &mut Facts, change: impl Fn(usize, &mut SenderInterval)) {
    let readings = facts.readings.iter_mut().enumerate();
    readings.for_each(|(n, reading)| change(n, reading));
}

/// A second of [`steady`] of 1000 segments, whose round trips take so long.
fn of(source: Source, srtt: f64) -> Facts {
    let mut facts = steady(100);
    facts.source = source;
    each(&mut facts, |_, r| r.srtt = ms(srtt));
    facts
}

fn srtt(facts: &mut Facts, srtt: f64) {
    each(facts, |_, r| r.srtt = ms(srtt));
}

/// So many losses 100 ms apart, at this round trip.
fn lose(facts: &mut Facts, count: u64, srtt: f64) {
    facts.retransmitted = count;
    facts.losses = (0..count)
        .map(|n| LostSegment {
            at: Nanos::from_millis(n * 100),
            srtt: ms(srtt),
            flight: 10_000,
            bytes: 1000,
            ..LostSegment::default()
        })
        .collect();
}

fn bucket(rate: f64) -> Option<BucketFit> {
    Some(BucketFit {
        rate,
        range: [rate; 2],
        depth: 4000.0,
        parts: 0.7,
        events: 2,
        of_events: 3,
        segment: 1000,
        connections: 1,
    })
}

/// The rate of the ten stretches varies by more than a tenth.
fn vary(facts: &mut Facts) {
    each(facts, |n, r| {
        r.delivered = if n / 10 % 2 == 0 { 8000 } else { 12_000 }
    });
}

#[test]
fn reordering_is_most_retransmissions_needless_and_a_rate_that_losses_would_explain() {
    let base = || {
        let mut facts = of(Source::Samples, 10.0);
        (facts.retransmitted, facts.needless, facts.reordered) = (10, 5, 1);
        facts
    };
    check(
        reordering::fits,
        base,
        &[
            ("unchanged", |_| {}, Some((Certain, 1))),
            (
                "not seen to reorder",
                |f| f.reordered = 0,
                Some((Likely, 1)),
            ),
            ("four needless", |f| f.needless = 4, None),
            (
                "and much reordering",
                |f| (f.needless, f.reordered) = (4, 20),
                Some((Possible, 1)),
            ),
            ("or nearly", |f| (f.needless, f.reordered) = (4, 19), None),
            ("five of eleven", |f| f.retransmitted = 11, None),
            (
                "five of eleven, and much reordering",
                |f| (f.retransmitted, f.reordered) = (11, 20),
                Some((Possible, 1)),
            ),
            (
                "four of eight, and much reordering",
                |f| (f.retransmitted, f.needless, f.reordered) = (8, 4, 20),
                Some((Possible, 1)),
            ),
            ("a full line", |f| srtt(f, 12.5), None),
            ("a short queue", |f| srtt(f, 12.4), Some((Certain, 1))),
            (
                "a queue whose rate varies",
                |f| {
                    srtt(f, 12.5);
                    vary(f);
                },
                Some((Certain, 1)),
            ),
            (
                "a path that died",
                |f| (f.timeouts, f.stalled) = (1, ms(400.0)),
                None,
            ),
            // 1.22 MB/s by the root of a hundred times the share of losses: twice the rate at 0.372 %.
            ("losses that do no harm", |f| f.segments = 2700, None),
            ("hardly", |f| f.segments = 2680, Some((Certain, 1))),
            (
                "or in longer round trips",
                |f| {
                    f.segments = 2700;
                    srtt(f, 11.0);
                },
                Some((Certain, 1)),
            ),
        ],
    );
}

/// Four timeouts in a row, and in all so many loss events.
fn loses_in_a_row(facts: &mut Facts, events: u64) {
    facts.backoffs = 4;
    facts.losses = (0..events)
        .map(|n| LostSegment {
            at: ms(n as f64 * 100.0),
            ..LostSegment::default()
        })
        .collect();
}

#[test]
fn timeouts_stall_a_connection_or_are_one_outage() {
    let base = || {
        let mut facts = of(Source::Trace, 10.0);
        (facts.timeouts, facts.backoffs, facts.stalled) = (5, 2, ms(400.0));
        facts
    };
    check(
        rto_stall::fits,
        base,
        &[
            ("unchanged", |_| {}, Some((Possible, 1))),
            ("399 ms", |f| f.stalled = ms(399.0), None),
            (
                "four in a row",
                |f| (f.timeouts, f.backoffs) = (9, 4),
                Some((Certain, 1)),
            ),
            (
                "three in a row",
                |f| (f.timeouts, f.backoffs) = (9, 3),
                Some((Possible, 1)),
            ),
            ("an outage", |f| (f.timeouts, f.backoffs) = (8, 4), None),
            (
                "two of one",
                |f| (f.timeouts, f.backoffs) = (2, 1),
                Some((Likely, 1)),
            ),
            (
                "nothing came",
                |f| {
                    (f.timeouts, f.backoffs) = (9, 4);
                    f.undelivered = Some(Undelivered::default());
                },
                Some((Possible, 1)),
            ),
            (
                "a black hole",
                |f| {
                    f.vanished = Some(Vanished {
                        size: 1000,
                        passed: 999,
                        backoffs: 3,
                        at: Nanos(0),
                    });
                },
                None,
            ),
            (
                "not often enough for one",
                |f| {
                    f.vanished = Some(Vanished {
                        size: 1000,
                        passed: 999,
                        backoffs: 2,
                        at: Nanos(0),
                    });
                },
                Some((Possible, 1)),
            ),
        ],
    );
    check(
        rto_stall::fits_outage,
        || {
            let mut facts = base();
            (facts.timeouts, facts.stalled) = (4, ms(250.0));
            facts
        },
        &[
            ("unchanged", |_| {}, Some((Possible, 1))),
            (
                "most of the time",
                |f| f.stalled = ms(400.0),
                Some((Likely, 1)),
            ),
            ("four in a row", |f| f.backoffs = 4, Some((Certain, 1))),
            (
                "and four losses at other times",
                |f| loses_in_a_row(f, 8),
                Some((Certain, 1)),
            ),
            ("and five", |f| loses_in_a_row(f, 9), Some((Possible, 1))),
            ("99 ms", |f| f.stalled = ms(99.0), None),
            ("two runs", |f| f.timeouts = 5, None),
        ],
    );
    let shows = |backoffs| {
        let mut facts = base();
        facts.backoffs = backoffs;
        let evidence = rto_stall::candidate(&facts).evidence;
        let row = evidence.iter().find(|e| e.key == Key::ConsecutiveTimeouts);
        row.map(|row| row.threshold.is_some())
    };
    assert_eq!(
        [shows(0), shows(1), shows(4)],
        [None, Some(false), Some(true)]
    );
}

#[test]
fn a_window_of_less_than_a_segment_is_closed() {
    let shown = |window| {
        let mut facts = steady(100);
        each(&mut facts, |n, r| {
            r.window = if n == 50 { window } else { 20_000 }
        });
        let evidence = zero_window::candidate(&facts).evidence;
        evidence.first().map(|e| (e.at, e.quantity.clone()))
    };
    assert_eq!(shown(999), Some((Some(ms(500.0)), Bytes(999).into())));
    let mut facts = steady(100);
    facts.readings[0].window = 0;
    let threshold = zero_window::candidate(&facts).evidence[0].threshold;
    assert_eq!(threshold, Some(model::finding::Threshold::AtMost(999.0)));
    assert_eq!(shown(1000), None);
    let silent = |unsent, flight, window| {
        zero_window::owns_silence(&SenderState {
            unsent,
            flight,
            window,
            mss: 1000,
            ..SenderState::default()
        })
    };
    assert!(silent(1, 0, 999));
    assert!(!silent(0, 0, 999) && !silent(1, 1, 999) && !silent(1, 0, 1000));
    let owns = |window, room, unsent| {
        zero_window::owns(&SenderState {
            unsent,
            window,
            room,
            cwnd: 10,
            mss: 1000,
            burst: 1,
            ..SenderState::default()
        })
    };
    assert!(owns(999, 499, 500) && !owns(1000, 499, 500) && !owns(999, 900, 500));
}

#[test]
fn what_a_senders_state_leaves_free_decides_who_holds_it() {
    let state = |cwnd, flight, window, room| SenderState {
        unsent: 100_000,
        cwnd,
        flight,
        window,
        room,
        mss: 1000,
        burst: 4,
        ..SenderState::default()
    };
    let deferred = |state: SenderState| state.deferred_by();
    // Worth sending: a third of the window, or a burst of four segments.
    assert_eq!(
        deferred(state(9, 7, 90_000, 90_000)),
        Some(Limit::CongestionWindow)
    );
    assert_eq!(deferred(state(9, 6, 90_000, 90_000)), None);
    assert_eq!(
        deferred(state(90, 87, 90_000, 90_000)),
        Some(Limit::CongestionWindow)
    );
    assert_eq!(deferred(state(90, 86, 90_000, 90_000)), None);
    assert_eq!(
        deferred(state(90, 50, 90_000, 3999)),
        Some(Limit::ReceiveWindow)
    );
    assert_eq!(deferred(state(90, 50, 90_000, 4000)), None);
    assert_eq!(
        deferred(state(90, 87, 90_000, 3000)),
        Some(Limit::CongestionWindow),
        "both"
    );
    assert_eq!(
        deferred(state(90, 95, 90_000, 90_000)),
        Some(Limit::CongestionWindow)
    );
    assert_eq!(
        deferred(state(90, 50, 9000, 2999)),
        Some(Limit::ReceiveWindow)
    );
    assert_eq!(deferred(state(90, 50, 9000, 3000)), None);
    assert_eq!(state(9, 12, 0, 0).quota(), -3);
    assert!(slow_start::window_holds(&state(9, 9, 90_000, 90_000)));
    assert!(!slow_start::window_holds(&state(90, 50, 90_000, 90_000)));
    let starts = |ssthresh| {
        slow_start::owns(&SenderState {
            ssthresh,
            ..state(9, 9, 90_000, 90_000)
        })
    };
    assert!(starts(10) && !starts(9));
    // Less than a segment of room, or than what is left.
    let full = |room, unsent| {
        receive_window::owns(&SenderState {
            unsent,
            ..state(90, 50, 900, room)
        })
    };
    assert!(full(399, 400) && !full(400, 400));
    let paced = |window, room, paced| {
        receive_window::owns_pacing(&SenderState {
            paced,
            ..state(10, 1, window, room)
        })
    };
    assert!(paced(9999, 4999, true) && paced(9999, 5000, true));
    assert!(!paced(9999, 5001, true) && !paced(10_000, 5000, true) && !paced(9999, 0, false));
    let low = |paced, app_limited| {
        application::owns_pacing(&SenderState {
            paced,
            app_limited,
            ..state(10, 1, 0, 0)
        })
    };
    assert!(low(true, true) && !low(true, false) && !low(false, true));
    let writes = |written, no_space, paced| {
        send_buffer::owns_pacing(&SenderState {
            written,
            no_space,
            paced,
            ..state(10, 1, 0, 0)
        })
    };
    assert!(writes(9999, true, true) && !writes(10_000, true, true));
    assert!(!writes(9999, false, true) && !writes(9999, true, false));
}

#[test]
fn a_clock_of_its_own_lets_fifty_bursts_go_and_nine_of_ten() {
    let clocked = |by_ack, by_itself, lost, varies: bool| {
        let mut facts = steady(100);
        facts.send_clock = Some(SendClock {
            by_ack,
            by_itself,
            spread: None,
        });
        facts.retransmitted = lost;
        if varies {
            vary(&mut facts);
        }
        [pacing::self_clocked(&facts), pacing::even(&facts)].map(|e| e.is_some())
    };
    assert_eq!(clocked(5, 45, 0, false), [true, true]);
    assert_eq!(clocked(4, 45, 0, false), [false, false], "49 bursts");
    assert_eq!(clocked(6, 44, 0, false), [false, false], "88 %");
    assert_eq!(clocked(5, 45, 4, false), [true, true]);
    assert_eq!(clocked(5, 45, 5, false), [true, false], "five lost");
    assert_eq!(clocked(5, 45, 0, true), [true, false], "not at one rate");
    // Each behind an acknowledgement that did not let it go.
    let even = |spread| {
        let mut facts = steady(100);
        facts.send_clock = Some(SendClock {
            by_ack: 20,
            by_itself: 0,
            spread: Some(spread),
        });
        pacing::self_clocked(&facts).is_some()
    };
    assert_eq!([even(0.03), even(0.031)], [true, false]);
}

#[test]
fn pauses_without_ends_are_a_pacers() {
    let base = || {
        let mut facts = steady(100);
        facts.pauses = Some(Pauses {
            count: 50,
            time: Nanos(1000),
            after_short: Nanos(70),
        });
        facts
    };
    check(
        pacing::fits_clocked,
        base,
        &[
            ("unchanged", |_| {}, Some((Possible, 0))),
            (
                "49 pauses",
                |f| f.pauses = f.pauses.map(|p| Pauses { count: 49, ..p }),
                None,
            ),
            (
                "71 of 1000",
                |f| {
                    f.pauses = f.pauses.map(|p| Pauses {
                        after_short: Nanos(71),
                        ..p
                    })
                },
                None,
            ),
            ("an exchange", |f| f.is_exchange = true, None),
            (
                "they come evenly",
                |f| {
                    f.pauses = None;
                    (f.burst_spread, f.capacity) = (Some(0.1), Some(2e6));
                },
                Some((Possible, 0)),
            ),
        ],
    );
    let mut facts = base();
    assert!(!has_ends(&facts));
    facts.pauses = facts.pauses.map(|p| Pauses {
        after_short: Nanos(71),
        ..p
    });
    assert!(has_ends(&facts));
}

#[test]
fn sends_are_spread_out_where_no_round_trip_pauses() {
    let base = || {
        let mut facts = steady(100);
        facts.rhythm = Some(Rhythm {
            drained: 0.1,
            paused: 0.1,
            late: None,
        });
        facts
    };
    check(
        pacing::fits_spread,
        base,
        &[
            ("unchanged", |_| {}, Some((Possible, 0))),
            (
                "pauses",
                |f| f.rhythm = f.rhythm.map(|r| Rhythm { paused: 0.11, ..r }),
                None,
            ),
            ("not known", |f| f.rhythm = None, None),
            (
                "from afar, at one rate",
                |f| (f.rhythm, f.source) = (None, Source::CaptureBetween),
                Some((Possible, 0)),
            ),
            (
                "from afar, faster at times",
                |f| {
                    (f.rhythm, f.source, f.mss) = (None, Source::CaptureBetween, 333);
                    each(f, |n, r| {
                        r.passed = if n % 8 == 0 { 10_700 } else { 10_000 }
                    });
                },
                None,
            ),
            (
                "from afar, hardly faster at times",
                |f| {
                    (f.rhythm, f.source, f.mss) = (None, Source::CaptureBetween, 333);
                    each(f, |n, r| {
                        r.passed = if n % 8 == 0 { 10_500 } else { 10_000 }
                    });
                },
                Some((Possible, 0)),
            ),
            (
                "not the same in flight",
                |f| each(f, |n, r| r.flight += n as u64 * 100),
                None,
            ),
            (
                "a clock of its own",
                |f| {
                    f.rhythm = None;
                    f.send_clock = Some(SendClock {
                        by_ack: 5,
                        by_itself: 45,
                        ..SendClock::default()
                    });
                },
                Some((Possible, 0)),
            ),
        ],
    );
}

#[test]
fn a_pacing_rate_is_reached_at_85_per_cent_and_kept_at_93() {
    let base = || {
        let mut facts = of(Source::Samples, 10.0);
        facts.pacing = Some(BitRate(9_410_000));
        facts
    };
    check(
        pacing::fits,
        base,
        &[
            ("unchanged", |_| {}, Some((Certain, 1))),
            ("0.849", |f| f.pacing = Some(BitRate(9_420_000)), None),
            ("none", |f| f.pacing = None, None),
            (
                "a quarter of the time below",
                |f| each(f, |n, r| r.delivered = if n >= 80 { 5000 } else { 10_000 }),
                Some((Possible, 1)),
            ),
        ],
    );
    let kept = |rate, varies: bool| {
        let mut facts = base();
        facts.pacing = Some(BitRate(rate));
        if varies {
            vary(&mut facts);
        }
        pacing::is_kept(&facts)
    };
    assert!(kept(8_600_000, false) && !kept(8_610_000, false) && !kept(8_600_000, true));
}

#[test]
fn a_reader_is_behind_with_a_quarter_of_its_buffer_and_surely_with_a_half() {
    let base = || {
        let mut facts = of(Source::Samples, 10.0);
        each(&mut facts, |_, r| r.unread = Some(0.25));
        facts
    };
    check(
        reading_application::fits,
        base,
        &[
            ("unchanged", |_| {}, Some((Possible, 1))),
            ("less", |f| each(f, |_, r| r.unread = Some(0.249)), None),
            (
                "half",
                |f| each(f, |_, r| r.unread = Some(0.5)),
                Some((Certain, 1)),
            ),
            (
                "eight segments",
                |f| f.receive_buffer = Some(Bytes(32_000)),
                Some((Certain, 1)),
            ),
            (
                "hardly",
                |f| f.receive_buffer = Some(Bytes(31_999)),
                Some((Possible, 1)),
            ),
            (
                "while its window was the limit",
                |f| {
                    each(f, |n, r| {
                        let held = [Limit::ReceiveWindow, Limit::ZeroWindow].get(n);
                        (r.limit, r.unread) = (held.copied(), Some(if n < 2 { 0.5 } else { 0.0 }));
                    });
                },
                Some((Certain, 1)),
            ),
            (
                "for a long time more than for a short one",
                |f| {
                    each(f, |n, r| {
                        r.limit = (n < 2).then_some(Limit::ZeroWindow);
                        r.unread = Some(if n == 0 { 0.1 } else { 0.6 });
                        if n == 1 {
                            r.from = Nanos(r.to.0 - 3_000_000);
                        }
                    });
                },
                None,
            ),
            ("not known", |f| each(f, |_, r| r.unread = None), None),
        ],
    );
    // A window that is closed in some readings and full in all others.
    fn close(facts: &mut Facts, is_closed: fn(usize) -> bool) {
        each(facts, |n, r| {
            r.window = 20_000;
            r.limit = is_closed(n).then_some(Limit::ZeroWindow);
        });
    }
    let windows = || {
        let mut facts = of(Source::Samples, 10.0);
        // A quarter of the readings.
        each(&mut facts, |n, r| {
            r.window = if n % 4 == 0 { 10_000 } else { 20_000 }
        });
        facts
    };
    check(
        reading_application::fits,
        windows,
        &[
            ("half of the largest", |_| {}, Some((Likely, 1))),
            (
                "packets",
                |f| f.source = Source::CaptureAtSender,
                Some((Possible, 1)),
            ),
            (
                "more than half",
                |f| {
                    each(f, |n, r| {
                        r.window = if n % 4 == 0 { 10_001 } else { 20_000 }
                    })
                },
                None,
            ),
            (
                "closed for 50 ms at a time, and a quarter of it",
                |f| close(f, |n| n < 50 && n % 10 < 5),
                Some((Likely, 1)),
            ),
            (
                "for less in all",
                |f| close(f, |n| n < 44 && n % 10 < 5),
                None,
            ),
            ("40 ms at a time", |f| close(f, |n| n % 10 < 4), None),
            (
                "less than three round trips at a time",
                |f| {
                    f.min_rtt = Some(ms(17.0));
                    close(f, |n| n < 50 && n % 10 < 5);
                },
                None,
            ),
        ],
    );
}

#[test]
fn a_reader_holds_acknowledgements_for_a_quarter_of_the_time() {
    let base = || {
        let mut facts = of(Source::CaptureAtSender, 10.0);
        facts.held_acks = ms(250.0);
        facts
    };
    check(
        reading_application::holds_acks,
        base,
        &[
            ("unchanged", |_| {}, Some((Possible, 0))),
            ("249 ms", |f| f.held_acks = ms(249.0), None),
            (
                "a window a quarter below its largest",
                |f| {
                    f.held_acks = Nanos(0);
                    each(f, |n, r| r.window = if n < 50 { 20_000 } else { 9990 });
                },
                Some((Possible, 0)),
            ),
            (
                "hardly",
                |f| {
                    f.held_acks = Nanos(0);
                    each(f, |n, r| r.window = if n < 50 { 20_000 } else { 10_100 });
                },
                None,
            ),
            (
                "a window that grows",
                |f| {
                    f.held_acks = Nanos(0);
                    each(f, |n, r| r.window = if n < 50 { 10_000 } else { 20_000 });
                },
                None,
            ),
            (
                "a full link",
                |f| {
                    f.held_acks = Nanos(0);
                    (f.capacity, f.marked) = (Some(1e6), 1);
                    each(f, |n, r| r.window = if n < 50 { 20_000 } else { 10_000 });
                },
                None,
            ),
            (
                "what is unread is known",
                |f| {
                    (f.held_acks, f.source) = (Nanos(0), Source::Samples);
                    each(f, |n, r| r.window = if n < 50 { 20_000 } else { 10_000 });
                    f.readings[0].unread = Some(0.0);
                },
                None,
            ),
        ],
    );
    let mut none = Facts::new(Source::Trace);
    none.held_acks = Nanos(0);
    assert!(reading_application::holds_acks(&none).is_none());
}

#[test]
fn black_holes_swallow_full_segments_three_times() {
    fn vanish(facts: &mut Facts, passed: u32, backoffs: u32) {
        facts.vanished = Some(Vanished {
            size: 1000,
            passed,
            backoffs,
            at: Nanos(0),
        });
    }
    check(
        black_hole::fits,
        || of(Source::Trace, 10.0),
        &[
            ("unchanged", |f| vanish(f, 999, 3), Some((Certain, 1))),
            ("twice", |f| vanish(f, 999, 2), None),
            ("as large passed", |f| vanish(f, 1000, 3), None),
        ],
    );
    fn missing(facts: &mut Facts, ms: u64, acknowledgements: u32, bytes: u32, largest: u32) {
        facts.undelivered = Some(Undelivered {
            since: Nanos(7),
            until: Nanos(7 + ms * 1_000_000),
            acknowledgements,
            bytes,
            largest,
        });
    }
    check(
        black_hole::fits_undelivered,
        || of(Source::CaptureAtReceiver, 10.0),
        &[
            (
                "unchanged",
                |f| missing(f, 3000, 3, 2896, 36),
                Some((Likely, 1)),
            ),
            ("soon", |f| missing(f, 2999, 3, 2896, 36), None),
            ("one may be late", |f| missing(f, 3000, 3, 2895, 36), None),
            (
                "small ones passed alone",
                |f| missing(f, 3000, 2, 2896, 36),
                Some((Possible, 1)),
            ),
            (
                "full ones passed before",
                |f| missing(f, 3000, 2, 2896, 1200),
                None,
            ),
            (
                "full ones passed before, and often",
                |f| missing(f, 3000, 3, 2896, 1200),
                Some((Likely, 1)),
            ),
        ],
    );
}

#[test]
fn delayed_acknowledgements_are_a_fifth_of_nagles_waits_or_a_quarter_of_the_time() {
    fn held(facts: &mut Facts, delayed: u64, waits: u64) {
        facts.held = AckWaitCounts {
            waits,
            delayed,
            delayed_time: Nanos(1),
        };
    }
    check(
        delayed_ack::fits,
        || of(Source::Trace, 10.0),
        &[
            ("a fifth", |f| held(f, 2, 10), Some((Certain, 1))),
            ("less", |f| held(f, 2, 11), None),
            ("none", |f| held(f, 0, 0), None),
        ],
    );
    fn alone(facts: &mut Facts, delayed: u64, waits: u64, time: f64) {
        facts.alone = AckWaitCounts {
            waits,
            delayed,
            delayed_time: ms(time),
        };
    }
    check(
        delayed_ack::fits_alone,
        || Facts {
            segments: 56,
            ..of(Source::Trace, 10.0)
        },
        &[
            ("a quarter", |f| alone(f, 6, 7, 250.0), Some((Certain, 1))),
            ("less", |f| alone(f, 6, 7, 249.0), None),
            ("each", |f| alone(f, 7, 7, 250.0), Some((Likely, 1))),
            (
                "after timeouts alone",
                |f| {
                    alone(f, 7, 7, 250.0);
                    f.segments = 57;
                },
                None,
            ),
        ],
    );
    // A window of one segment, and ten milliseconds more than the path takes; 10 ms in one of them.
    let sampled = || {
        let mut facts = of(Source::Samples, 20.0);
        each(&mut facts, |n, r| {
            r.cwnd = 1000;
            if n == 50 {
                r.srtt = ms(11.0);
            }
        });
        facts
    };
    check(
        delayed_ack::fits_alone,
        sampled,
        &[
            ("unchanged", |_| {}, Some((Likely, 1))),
            (
                "none at once",
                |f| f.readings[50].srtt = ms(11.1),
                Some((Possible, 1)),
            ),
            (
                "none delivered then",
                |f| f.readings[50].delivered = 999,
                Some((Possible, 1)),
            ),
            ("a larger window", |f| each(f, |_, r| r.cwnd = 1001), None),
            ("9 ms", |f| srtt(f, 19.9), None),
            ("losses", |f| f.retransmitted = 5, None),
            ("hardly any", |f| f.retransmitted = 4, Some((Likely, 1))),
        ],
    );
}

#[test]
fn a_device_queue_holds_an_idle_sender_at_a_flat_rate_or_makes_packets_late() {
    fn load(facts: &mut Facts, process: f64) {
        facts.sender_load = Some(CpuLoad {
            process,
            ..CpuLoad::default()
        });
    }
    let base = || {
        let mut facts = of(Source::Samples, 10.0);
        load(&mut facts, 0.5);
        facts
    };
    check(
        device_queue::fits,
        base,
        &[
            ("unchanged", |_| {}, Some((Possible, 1))),
            ("busy", |f| load(f, 0.51), None),
            ("varies", vary, None),
            ("a trace", |f| f.source = Source::Trace, None),
            ("not known", |f| f.sender_load = None, None),
        ],
    );
    fn late(facts: &mut Facts, late: f64) {
        facts.rhythm = Some(Rhythm {
            late: Some(ms(late)),
            ..Rhythm::default()
        });
    }
    let base = || {
        let mut facts = of(Source::CaptureAtSender, 10.0);
        late(&mut facts, 1.0);
        facts
    };
    check(
        device_queue::fits_late,
        base,
        &[
            ("unchanged", |_| {}, Some((Likely, 1))),
            ("less", |f| late(f, 0.999), None),
            ("varies", vary, None),
            ("elsewhere", |f| f.source = Source::CaptureAtReceiver, None),
        ],
    );
}

#[test]
fn a_clamp_holds_a_full_window_of_one_size() {
    check(
        congestion_window::fits,
        || of(Source::Samples, 10.0),
        &[
            ("unchanged", |_| {}, Some((Likely, 1))),
            (
                "80 % in flight",
                |f| each(f, |_, r| r.flight = 8000),
                Some((Likely, 1)),
            ),
            ("less", |f| each(f, |_, r| r.flight = 7999), None),
            (
                "a window that varies",
                |f| each(f, |n, r| r.cwnd += n as u64 / 90),
                None,
            ),
            ("a loss", |f| f.retransmitted = 1, None),
            ("a mark", |f| f.marked = 1, None),
            ("a queue", |f| srtt(f, 12.5), None),
            ("a short queue", |f| srtt(f, 12.4), Some((Likely, 1))),
            ("packets", |f| f.source = Source::CaptureAtSender, None),
        ],
    );
    // From packets: a single segment of 1000 bytes, a moment longer.
    let single = || {
        let mut facts = of(Source::CaptureAtSender, 10.0);
        each(&mut facts, |_, r| r.flight = 1100);
        facts
    };
    check(
        congestion_window::fits_single,
        single,
        &[
            ("unchanged", |_| {}, Some((Possible, 0))),
            ("more once", |f| f.readings[60].flight = 1101, None),
            (
                "880",
                |f| each(f, |_, r| r.flight = 881),
                Some((Possible, 0)),
            ),
            ("less", |f| each(f, |_, r| r.flight = 879), None),
            ("an exchange", |f| f.is_exchange = true, None),
        ],
    );
}

#[test]
fn a_send_buffer_holds_the_same_in_flight_or_lets_the_path_run_dry() {
    let base = || of(Source::CaptureAtSender, 10.0);
    fn rhythm(facts: &mut Facts, drained: f64, paused: f64) {
        facts.rhythm = Some(Rhythm {
            drained,
            paused,
            late: None,
        });
    }
    check(
        send_buffer::fits,
        base,
        &[
            ("unchanged", |_| {}, Some((Possible, 1))),
            ("an exchange", |f| f.is_exchange = true, Some((Possible, 2))),
            ("spread out", |f| rhythm(f, 0.1, 0.1), Some((Possible, 2))),
            (
                "a clock of its own",
                |f| {
                    f.send_clock = Some(SendClock {
                        by_ack: 0,
                        by_itself: 50,
                        ..SendClock::default()
                    })
                },
                None,
            ),
            (
                "varies",
                |f| each(f, |n, r| r.flight += n as u64 * 100),
                None,
            ),
            (
                "varies, and runs dry",
                |f| {
                    each(f, |n, r| r.flight += n as u64 * 100);
                    rhythm(f, 0.2, 0.0);
                },
                Some((Possible, 1)),
            ),
            (
                "of which two were lost",
                |f| {
                    each(f, |n, r| r.flight += n as u64 * 100);
                    rhythm(f, 0.2, 0.0);
                    f.retransmitted = 2;
                },
                Some((Possible, 1)),
            ),
            (
                "or three",
                |f| {
                    each(f, |n, r| r.flight += n as u64 * 100);
                    rhythm(f, 0.2, 0.0);
                    f.retransmitted = 3;
                },
                None,
            ),
        ],
    );
    // Of a socket.
    let confidence = |congestion: &str, faster: u64| {
        let mut facts = of(Source::Samples, 10.0);
        (facts.congestion, facts.mss) = (Some(congestion.to_owned()), 333);
        each(&mut facts, |n, r| {
            r.passed = if n % 8 == 0 { faster } else { 10_000 }
        });
        send_buffer::candidate(&facts).confidence
    };
    assert_eq!(confidence("cubic", 10_000), Certain);
    assert_eq!(confidence("bbr", 10_000), Possible, "never faster");
    // (70 + 10 x 1.3) / 80 / 1.3 = 0.798
    assert_eq!(confidence("bbr", 12_900), Possible);
    assert_eq!(confidence("bbr", 13_000), Certain);
    let proposed = |buffer| {
        let mut facts = of(Source::Samples, 10.0);
        facts.send_buffer = buffer;
        send_buffer::candidate(&facts).remedies[0]
            .change
            .clone()
            .unwrap()
    };
    assert_eq!(proposed(None), "sndbuf=4194304");
    assert_eq!(proposed(Some(Bytes(100_000))), "sndbuf=400000");
    assert_eq!(proposed(Some(Bytes(1))), "sndbuf=262144");
    assert_eq!(proposed(Some(Bytes(1 << 30))), "sndbuf=67108864");
}

#[test]
fn a_receive_window_is_certain_where_its_reader_keeps_it_open() {
    let of_windows = |source, window: fn(usize) -> u64| {
        let mut facts = of(source, 10.0);
        each(&mut facts, |n, r| r.window = window(n));
        receive_window::candidate(&facts)
    };
    let packets = Source::CaptureAtSender;
    assert_eq!(of_windows(packets, |_| 20_000).confidence, Certain);
    // A quarter of them at nine tenths, and below.
    assert_eq!(
        of_windows(packets, |n| if n % 4 == 0 { 18_000 } else { 20_000 }).confidence,
        Certain
    );
    assert_eq!(
        of_windows(packets, |n| if n % 4 == 0 { 17_999 } else { 20_000 }).confidence,
        Possible
    );
    assert_eq!(
        of_windows(Source::Trace, |n| if n % 4 == 0 { 1 } else { 20_000 }).confidence,
        Certain
    );
    let found = of_windows(Source::Trace, |n| if n % 2 == 0 { 0 } else { 20_000 });
    let value = |key| {
        let row = found.evidence.iter().find(|e| e.key == key);
        row.map(|row| (row.quantity.clone(), row.threshold.is_some()))
    };
    assert_eq!(
        value(Key::ReceiveWindow),
        Some((Bytes(20_000).into(), false))
    );
    // 20 kB in 10 ms.
    assert_eq!(
        value(Key::ReceiveWindowRate),
        Some((BitRate(16_000_000).into(), false))
    );
    assert_eq!(
        value(Key::InFlightOverReceiveWindow),
        Some((0.5.into(), false))
    );
    assert_eq!(found.remedies[0].change.as_deref(), Some("rcvbuf=262144"));
    let larger = |window| {
        let mut facts = of(Source::Trace, 10.0);
        each(&mut facts, |_, r| r.window = window);
        receive_window::candidate(&facts).remedies[0]
            .change
            .clone()
            .unwrap()
    };
    assert_eq!(larger(100_000), "rcvbuf=400000");
    assert_eq!(larger(1 << 30), "rcvbuf=67108864");
    let full = of_windows(Source::Trace, |_| 11_764);
    let row = full
        .evidence
        .iter()
        .find(|e| e.key == Key::InFlightOverReceiveWindow);
    assert!(row.is_some_and(|row| row.threshold.is_some()), "85 %");
    check(
        receive_window::fits_unscaled,
        || {
            let mut facts = of(Source::CaptureAtSender, 10.0);
            each(&mut facts, |_, r| r.window = 0);
            facts
        },
        &[
            ("unchanged", |_| {}, Some((Possible, 2))),
            ("a window", |f| f.readings[99].window = 1, None),
            (
                "varies",
                |f| each(f, |n, r| r.flight += n as u64 * 100),
                None,
            ),
        ],
    );
}

#[test]
fn an_application_is_certain_where_its_writes_are_seen() {
    let of = |change: Change| {
        let mut facts = Facts::new(Source::Trace);
        change(&mut facts);
        application::candidate(&facts).confidence
    };
    assert_eq!(of(|_| {}), Certain);
    assert_eq!(of(|f| f.source = Source::CaptureAtSender), Possible);
    assert_eq!(
        of(|f| (f.source, f.is_exchange) = (Source::CaptureAtSender, true)),
        Certain
    );
    assert_eq!(of(|f| f.always_writes = true), Likely);
}

#[test]
fn marks_limit_who_yields_to_them() {
    let base = || {
        let mut facts = of(Source::Samples, 15.0);
        (facts.marked, facts.retransmitted) = (5, 5);
        facts.congestion = Some("cubic".to_owned());
        facts
    };
    check(
        ecn_marks::fits,
        base,
        &[
            ("unchanged", |_| {}, Some((Certain, 1))),
            ("four", |f| (f.marked, f.retransmitted) = (4, 0), None),
            ("more losses", |f| f.retransmitted = 6, None),
            ("bbr", |f| f.congestion = Some("bbr".to_owned()), None),
            (
                "not known which",
                |f| f.congestion = None,
                Some((Possible, 1)),
            ),
            (
                "three loss events",
                |f| {
                    lose(f, 3, 15.0);
                    f.retransmitted = 5;
                },
                Some((Possible, 1)),
            ),
            (
                "two",
                |f| {
                    lose(f, 2, 15.0);
                    f.retransmitted = 5;
                },
                Some((Certain, 1)),
            ),
            (
                "losses that do not hurt",
                |f| {
                    lose(f, 3, 15.0);
                    f.retransmitted = 4;
                },
                Some((Certain, 1)),
            ),
            (
                "a queue on the reverse path",
                |f| f.reverse_queueing = Some(ReverseQueueing::of(ms(4.0), ms(5.0))),
                Some((Possible, 2)),
            ),
        ],
    );
}

#[test]
fn a_queue_on_the_reverse_path_holds_most_of_the_delay() {
    fn way(facts: &mut Facts, delay: f64, all: f64) {
        facts.reverse_queueing = Some(ReverseQueueing::of(ms(delay), ms(all)));
    }
    let base = || {
        let mut facts = of(Source::CaptureAtSender, 15.0);
        way(&mut facts, 7.5, 10.0);
        facts
    };
    check(
        ack_path::fits,
        base,
        &[
            ("unchanged", |_| {}, Some((Likely, 1))),
            (
                "less than nearly all",
                |f| way(f, 7.4, 10.0),
                Some((Possible, 1)),
            ),
            ("half", |f| way(f, 5.0, 10.0), Some((Possible, 1))),
            ("less than half", |f| way(f, 4.9, 10.0), None),
            ("ticks of a clock", |f| way(f, 3.0, 4.0), None),
            ("no queue", |f| srtt(f, 12.4), None),
            ("marks", |f| f.marked = 1, Some((Possible, 1))),
            ("one lost", |f| f.retransmitted = 1, Some((Possible, 1))),
            (
                "at the receiver",
                |f| f.source = Source::CaptureAtReceiver,
                Some((Possible, 1)),
            ),
        ],
    );
    // Either direction, where nothing separates them and the path is full.
    let open = || {
        let mut facts = of(Source::Samples, 15.0);
        each(&mut facts, |_, r| r.cwnd = 20_000);
        facts
    };
    check(
        ack_path::fits,
        open,
        &[
            ("unchanged", |_| {}, Some((Possible, 2))),
            ("marks", |f| f.marked = 1, None),
            ("no queue", |f| srtt(f, 12.4), None),
            (
                "no rate of the path",
                |f| each(f, |_, r| r.cwnd = 10_000),
                None,
            ),
        ],
    );
}

#[test]
fn duplex_is_seen_by_late_collisions_and_suspected_by_damage() {
    fn line(facts: &mut Facts, late_collisions: u64, damaged: u64) {
        facts.line[1] = Some(LineErrors {
            device: "eth0".to_owned(),
            damaged,
            collisions: 9,
            late_collisions,
        });
    }
    let base = || {
        let mut facts = of(Source::Samples, 10.0);
        facts.retransmitted = 10;
        facts
    };
    check(
        duplex_loss::fits,
        base,
        &[
            ("nothing", |_| {}, None),
            ("a late collision", |f| line(f, 1, 0), Some((Certain, 2))),
            (
                "half of the lost were damaged",
                |f| line(f, 0, 5),
                Some((Possible, 2)),
            ),
            ("less", |f| line(f, 0, 4), None),
            (
                "half duplex",
                |f| f.half_duplex = Some("eth0 on a".to_owned()),
                Some((Certain, 2)),
            ),
            (
                "both hosts",
                |f| {
                    line(f, 0, 3);
                    f.line[0] = f.line[1].clone();
                },
                Some((Possible, 2)),
            ),
            (
                "few losses",
                |f| {
                    line(f, 1, 0);
                    f.retransmitted = 4;
                },
                None,
            ),
        ],
    );
    let mut facts = base();
    line(&mut facts, 2, 7);
    let evidence = duplex_loss::fits(&facts).unwrap().evidence;
    let keys: Vec<Key> = evidence.iter().map(|e| e.key).collect();
    assert_eq!(
        keys[1..],
        [Key::ReceiverLateCollisions, Key::ReceiverDamagedFrames]
    );
}

/// A line with a queue of half a round trip and a window twice as large as what it carries.
fn full_line() -> Facts {
    let mut facts = of(Source::Trace, 15.0);
    each(&mut facts, |_, r| r.cwnd = 20_000);
    facts.marked = 1;
    facts
}

#[test]
fn a_full_line_has_a_queue_a_flat_rate_and_a_window_to_spare() {
    check(
        bottleneck_rate::fits,
        full_line,
        &[
            ("unchanged", |_| {}, Some((Certain, 1))),
            (
                "a queue in either direction",
                |f| f.marked = 0,
                Some((Possible, 1)),
            ),
            ("a shorter queue", |f| srtt(f, 12.5), Some((Certain, 1))),
            ("no queue", |f| srtt(f, 12.4), None),
            (
                "a queue of two segments",
                |f| {
                    srtt(f, 12.5);
                    f.mss = 1250;
                },
                Some((Certain, 1)),
            ),
            (
                "and of less",
                |f| {
                    srtt(f, 12.5);
                    f.mss = 1251;
                },
                Some((Possible, 1)),
            ),
            (
                "a quarter to spare",
                |f| each(f, |_, r| r.cwnd = 12_501),
                Some((Certain, 1)),
            ),
            ("less", |f| each(f, |_, r| r.cwnd = 12_499), None),
            (
                "two segments out",
                |f| each(f, |_, r| r.flight = 2896),
                Some((Certain, 1)),
            ),
            ("fewer", |f| each(f, |_, r| r.flight = 2895), None),
            (
                "fewer, of larger ones",
                |f| {
                    f.mss = 2000;
                    each(f, |_, r| r.flight = 3999);
                },
                None,
            ),
            ("two timeouts", |f| f.timeouts = 2, Some((Certain, 1))),
            ("three", |f| f.timeouts = 3, Some((Possible, 1))),
            ("5 % lost", |f| f.retransmitted = 50, Some((Certain, 1))),
            ("more, without a queue", |f| f.retransmitted = 51, None),
            (
                "more, that overflowed",
                |f| {
                    lose(f, 10, 15.0);
                    f.retransmitted = 51;
                },
                Some((Possible, 1)),
            ),
            (
                "a fifth of the time in hosts",
                |f| {
                    srtt(f, 14.9);
                    each(f, |n, r| r.limit = (n >= 84).then_some(Limit::Application));
                },
                Some((Possible, 1)),
            ),
            (
                "less",
                |f| {
                    srtt(f, 14.9);
                    each(f, |n, r| r.limit = (n >= 85).then_some(Limit::Application));
                },
                Some((Certain, 1)),
            ),
            (
                "behind a long queue",
                |f| each(f, |n, r| r.limit = (n >= 84).then_some(Limit::Application)),
                Some((Certain, 1)),
            ),
            (
                "packets",
                |f| f.source = Source::CaptureAtSender,
                Some((Possible, 1)),
            ),
            (
                "packets, and more was asked for",
                |f| {
                    f.source = Source::CaptureAtSender;
                    f.readings[0].passed = 15_001;
                },
                Some((Certain, 1)),
            ),
            (
                "behind a short queue",
                |f| {
                    f.source = Source::CaptureAtSender;
                    f.readings[0].passed = 15_001;
                    srtt(f, 14.9);
                },
                Some((Possible, 1)),
            ),
            (
                "a link with room",
                |f| f.capacity = Some(2e6),
                Some((Possible, 1)),
            ),
            (
                "a link that is full",
                |f| f.capacity = Some(1.1e6),
                Some((Possible, 0)),
            ),
            (
                "idles",
                |f| {
                    f.rhythm = Some(Rhythm {
                        drained: 0.2,
                        ..Rhythm::default()
                    })
                },
                None,
            ),
            (
                "hardly idles",
                |f| {
                    f.rhythm = Some(Rhythm {
                        drained: 0.19,
                        ..Rhythm::default()
                    })
                },
                Some((Certain, 1)),
            ),
            ("a rate that varies", vary, Some((Possible, 1))),
            (
                "without a queue",
                |f| {
                    vary(f);
                    srtt(f, 12.4);
                },
                None,
            ),
            (
                "without room",
                |f| {
                    vary(f);
                    each(f, |_, r| r.cwnd = 12_499);
                },
                None,
            ),
            (
                "a pacing rate that is kept",
                |f| f.pacing = Some(BitRate(8_600_000)),
                None,
            ),
            (
                "and one that is not",
                |f| f.pacing = Some(BitRate(8_610_000)),
                Some((Certain, 1)),
            ),
            (
                "a queue on the reverse path",
                |f| f.reverse_queueing = Some(ReverseQueueing::of(ms(4.0), ms(5.0))),
                None,
            ),
        ],
    );
    check(
        bottleneck_rate::fits,
        || of(Source::Samples, 10.0),
        &[
            ("nothing", |_| {}, None),
            (
                "90 % of the device",
                |f| f.link = Some(BitRate(8_888_800)),
                Some((Certain, 1)),
            ),
            ("less", |f| f.link = Some(BitRate(8_889_000)), None),
        ],
    );
}

#[test]
fn bloat_is_a_queue_of_more_than_a_round_trip_and_50_ms() {
    check(
        bufferbloat::fits,
        full_line,
        &[
            ("half a round trip", |_| {}, None),
            ("50 ms", |f| srtt(f, 60.0), None),
            ("more", |f| srtt(f, 60.1), Some((Certain, 1))),
            (
                "which may be elsewhere",
                |f| {
                    srtt(f, 60.1);
                    f.marked = 0;
                },
                Some((Possible, 1)),
            ),
        ],
    );
}

#[test]
fn a_short_run_with_a_queue_may_fill_its_line() {
    let base = || {
        let mut facts = steady(8);
        facts.source = Source::Samples;
        each(&mut facts, |_, r| (r.srtt, r.cwnd) = (ms(12.5), 12_501));
        facts
    };
    check(
        bottleneck_rate::fits,
        base,
        &[
            ("unchanged", |_| {}, Some((Possible, 1))),
            ("a trace", |f| f.source = Source::Trace, None),
            ("no queue", |f| srtt(f, 12.4), None),
            ("no room", |f| each(f, |_, r| r.cwnd = 12_499), None),
            ("losses", |f| f.retransmitted = 5, None),
            ("few losses", |f| f.retransmitted = 4, Some((Possible, 1))),
        ],
    );
}

#[test]
fn bbr_that_got_no_more_when_it_probed_fills_its_line() {
    let base = || {
        let mut facts = of(Source::Samples, 10.0);
        each(&mut facts, |_, r| r.cwnd = 12_501);
        (facts.congestion, facts.marked) = (Some("bbr".to_owned()), 1);
        facts
    };
    check(
        bottleneck_rate::fits,
        base,
        &[
            ("unchanged", |_| {}, Some((Likely, 1))),
            ("no forward queue", |f| f.marked = 0, Some((Possible, 1))),
            ("no room", |f| each(f, |_, r| r.cwnd = 12_499), None),
            ("paced", |f| f.pacing = Some(BitRate(1 << 40)), None),
            (
                "a fifth of the time in hosts",
                |f| each(f, |n, r| r.limit = (n >= 84).then_some(Limit::SendBuffer)),
                Some((Possible, 1)),
            ),
            // Too little in flight for the rule before it.
            (
                "probed",
                |f| each(f, |_, r| r.flight = 0),
                Some((Possible, 2)),
            ),
            (
                "5 % lost",
                |f| {
                    each(f, |_, r| r.flight = 0);
                    f.retransmitted = 50;
                },
                Some((Possible, 0)),
            ),
            (
                "more lost",
                |f| {
                    each(f, |_, r| r.flight = 0);
                    f.retransmitted = 51;
                },
                None,
            ),
            (
                "a processor is full",
                |f| {
                    each(f, |_, r| r.flight = 0);
                    f.sender_load = Some(CpuLoad {
                        process: 1.0,
                        streams: 1,
                        ..CpuLoad::default()
                    });
                },
                None,
            ),
            (
                "still in its startup",
                |f| {
                    each(f, |_, r| r.flight = 0);
                    f.span = ms(600.0);
                },
                None,
            ),
        ],
    );
}

#[test]
fn from_packets_a_queue_for_a_while_that_carried_no_more_is_a_full_line() {
    let base = || {
        let mut facts = of(Source::CaptureAtSender, 15.0);
        facts.readings[0].passed = 15_001;
        facts.rhythm = Some(Rhythm {
            paused: 0.5,
            ..Rhythm::default()
        });
        facts.marked = 1;
        facts
    };
    check(
        bottleneck_rate::fits,
        base,
        &[
            ("unchanged", |_| {}, Some((Likely, 1))),
            (
                "its pauses are not seen",
                |f| f.rhythm = None,
                Some((Possible, 1)),
            ),
            ("no forward queue", |f| f.marked = 0, Some((Possible, 1))),
            ("a short queue", |f| srtt(f, 14.9), Some((Possible, 1))),
            (
                "a clock of its own",
                |f| {
                    f.retransmitted = 5;
                    f.send_clock = Some(SendClock {
                        by_ack: 0,
                        by_itself: 50,
                        ..SendClock::default()
                    });
                },
                Some((Possible, 1)),
            ),
            ("five lost", |f| f.retransmitted = 5, Some((Likely, 1))),
            (
                "much lost, that overflowed",
                |f| {
                    lose(f, 10, 15.0);
                    f.retransmitted = 51;
                },
                Some((Possible, 1)),
            ),
            (
                "no more was asked for",
                |f| f.readings[0].passed = 15_000,
                None,
            ),
        ],
    );
}

#[test]
fn a_rate_that_losses_never_slowed_is_the_paths() {
    let base = || {
        let mut facts = of(Source::CaptureAtReceiver, 10.0);
        (facts.retransmitted, facts.mss) = (5, 333);
        // (70 + 10 x 1.1) / 80 / 1.1 = 0.9205
        each(&mut facts, |n, r| {
            r.passed = if n % 8 == 0 { 11_000 } else { 10_000 }
        });
        facts
    };
    check(
        bottleneck_rate::fits,
        base,
        &[
            ("unchanged", |_| {}, Some((Possible, 0))),
            (
                "faster",
                |f| {
                    each(f, |n, r| {
                        r.passed = if n % 8 == 0 { 11_100 } else { 10_000 }
                    })
                },
                None,
            ),
            ("four lost", |f| f.retransmitted = 4, None),
            (
                "a fifth lost",
                |f| f.retransmitted = 200,
                Some((Possible, 0)),
            ),
            ("more", |f| f.retransmitted = 201, None),
            (
                "at the sender 5 %",
                |f| (f.source, f.retransmitted) = (Source::CaptureAtSender, 50),
                Some((Possible, 0)),
            ),
            (
                "and more",
                |f| (f.source, f.retransmitted) = (Source::CaptureAtSender, 51),
                None,
            ),
        ],
    );
}

#[test]
fn other_signs_of_a_full_line() {
    let base = || of(Source::CaptureAtReceiver, 10.0);
    check(
        bottleneck_rate::fits,
        base,
        &[
            ("none", |_| {}, None),
            (
                "a queue at the receiver",
                |f| each(f, |_, r| r.late = ms(2.0)),
                Some((Possible, 0)),
            ),
            (
                "losses that came with a queue",
                |f| {
                    lose(f, 5, 12.5);
                    vary(f);
                },
                Some((Possible, 1)),
            ),
            (
                "losses before a queue",
                |f| {
                    lose(f, 4, 12.5);
                    vary(f);
                },
                None,
            ),
            (
                "losses that allow twice as much",
                |f| {
                    (f.segments, f.retransmitted, f.mss) = (100_000, 372, 1000);
                    each(f, |n, r| {
                        r.passed = if n % 8 == 0 { 20_000 } else { 10_000 }
                    });
                },
                Some((Possible, 1)),
            ),
            (
                "hardly",
                |f| {
                    (f.segments, f.retransmitted, f.mss) = (100_000, 373, 1000);
                    each(f, |n, r| {
                        r.passed = if n % 8 == 0 { 20_000 } else { 10_000 }
                    });
                },
                None,
            ),
            (
                "90 % of a queue that lost",
                |f| f.bucket = bucket(1.11e6),
                Some((Possible, 0)),
            ),
            ("less", |f| f.bucket = bucket(1.112e6), None),
        ],
    );
    check(
        bottleneck_rate::fits_from_afar,
        base,
        &[
            ("unchanged", |_| {}, Some((Possible, 0))),
            (
                "at the sender",
                |f| f.source = Source::CaptureAtSender,
                None,
            ),
            (
                "a link with room",
                |f| f.capacity = Some(2e6),
                Some((Possible, 3)),
            ),
            (
                "that comes evenly, though more was offered",
                |f| (f.capacity, f.burst_spread, f.marked) = (Some(2e6), Some(0.1), 1),
                Some((Possible, 3)),
            ),
            (
                "faster",
                |f| each(f, |n, r| r.passed = if n % 8 < 2 { 20_000 } else { 10_000 }),
                None,
            ),
        ],
    );
}

/// Eight losses at these flights: a quarter of the lowest, of the middle and half of the highest.
fn at_flights(facts: &mut Facts, low: u64, middle: u64, high: u64) {
    lose(facts, 8, 10.0);
    let flights = [low, high, middle, high, low, high, middle, high];
    let losses = facts.losses.iter_mut().zip(flights);
    losses.for_each(|(loss, flight)| loss.flight = flight);
}

fn at_places(facts: &mut Facts, place: f64) {
    facts
        .losses
        .iter_mut()
        .for_each(|loss| loss.place = Some(place));
}

#[test]
fn losses_are_at_the_end_of_bursts_at_one_window_or_anywhere() {
    use burst_loss::LossPattern::{Anywhere, Bursts, SameWindow, Unknown};
    let pattern = |change: Change| {
        let mut facts = of(Source::Trace, 10.0);
        change(&mut facts);
        burst_loss::pattern(&facts)
    };
    let cases: &[(&str, Change, burst_loss::LossPattern)] = &[
        ("at one window", |f| lose(f, 8, 10.0), SameWindow),
        ("at seven", |f| lose(f, 7, 10.0), Unknown),
        (
            "11.99 %",
            |f| at_flights(f, 8801, 10_000, 11_199),
            SameWindow,
        ),
        ("12 %", |f| at_flights(f, 8800, 10_000, 11_200), Unknown),
        ("20 %", |f| at_flights(f, 8000, 10_000, 12_000), Unknown),
        ("20.01 %", |f| at_flights(f, 7999, 10_000, 12_001), Anywhere),
        (
            "four segments out",
            |f| at_flights(f, 4000, 4000, 4000),
            SameWindow,
        ),
        ("fewer", |f| at_flights(f, 3999, 3999, 3999), Unknown),
        (
            "at the end of bursts",
            |f| {
                lose(f, 8, 10.0);
                at_places(f, 0.75);
            },
            Bursts,
        ),
        (
            "not quite",
            |f| {
                lose(f, 8, 10.0);
                at_places(f, 0.74);
            },
            SameWindow,
        ),
        (
            "of seven places",
            |f| {
                lose(f, 8, 10.0);
                at_places(f, 0.9);
                f.losses[3].place = None;
            },
            SameWindow,
        ),
        (
            "coarse",
            |f| {
                lose(f, 8, 10.0);
                f.min_rtt = Some(ms(6.6));
            },
            Unknown,
        ),
        (
            "within the round trip of the one before",
            |f| {
                lose(f, 8, 10.0);
                f.losses[3].at = f.losses[2].at + ms(10.0);
            },
            Unknown,
        ),
        (
            "after it",
            |f| {
                lose(f, 8, 10.0);
                f.losses[3].at = f.losses[2].at + ms(10.1);
            },
            SameWindow,
        ),
        ("a queue that lost", |f| f.bucket = bucket(1e6), Bursts),
        (
            "none",
            |f| f.bucket = bucket(1e6).map(|b| BucketFit { parts: 0.39, ..b }),
            Anywhere,
        ),
        (
            "perhaps",
            |f| f.bucket = bucket(1e6).map(|b| BucketFit { parts: 0.4, ..b }),
            Unknown,
        ),
    ];
    for (what, change, expected) in cases {
        assert_eq!(pattern(*change), *expected, "{what}");
    }
}

#[test]
fn bursts_lose_without_a_queue_and_again() {
    let base = || {
        let mut facts = of(Source::Trace, 10.0);
        lose(&mut facts, 8, 10.0);
        facts
    };
    // A queue of 4 ms, which lost nearly without exception.
    fn clear(facts: &mut Facts, srtt: f64) {
        lose(facts, 8, srtt);
        facts.bucket = bucket(1e6).map(|b| BucketFit { parts: 0.86, ..b });
    }
    check(
        burst_loss::fits,
        base,
        &[
            ("unchanged", |_| {}, Some((Possible, 0))),
            (
                "at the end of bursts",
                |f| at_places(f, 0.75),
                Some((Likely, 0)),
            ),
            ("a queue", |f| lose(f, 8, 13.0), None),
            ("hardly a queue", |f| lose(f, 8, 12.9), Some((Possible, 0))),
            ("no pattern", |f| lose(f, 7, 10.0), Some((Possible, 1))),
            ("four losses", |f| f.retransmitted = 4, None),
            (
                "anywhere",
                |f| at_flights(f, 7000, 10_000, 13_000),
                Some((Possible, 2)),
            ),
            ("one by one", |f| lose(f, 9, 10.0), Some((Possible, 2))),
            (
                "anywhere, for certain",
                |f| f.bucket = bucket(1e6).map(|b| BucketFit { parts: 0.3, ..b }),
                None,
            ),
            ("a queue that lost", |f| clear(f, 10.0), Some((Likely, 0))),
            (
                "with exceptions",
                |f| {
                    clear(f, 10.0);
                    f.bucket = bucket(1e6);
                },
                Some((Possible, 0)),
            ),
            ("and stood", |f| clear(f, 12.0), Some((Possible, 0))),
            ("hardly", |f| clear(f, 11.9), Some((Likely, 0))),
            (
                "a policer's",
                |f| {
                    clear(f, 11.0);
                    f.bucket = f.bucket.map(|b| BucketFit { events: 3, ..b });
                },
                None,
            ),
            (
                "two events",
                |f| {
                    at_places(f, 0.75);
                    f.losses.iter_mut().enumerate().for_each(|(n, l)| {
                        l.at = ms(n as f64 / 4.0 + if n < 4 { 0.0 } else { 500.0 })
                    });
                },
                Some((Possible, 0)),
            ),
            (
                "from afar, where they allow more",
                |f| (f.source, f.segments, f.mss) = (Source::CaptureAtReceiver, 10_000, 2000),
                None,
            ),
        ],
    );
}

#[test]
fn random_loss_is_likely_where_a_dozen_in_eight_events_fit_no_queue() {
    let base = || {
        let mut facts = of(Source::Trace, 10.0);
        lose(&mut facts, 12, 10.0);
        facts.bucket = bucket(1e6).map(|b| BucketFit { parts: 0.39, ..b });
        facts
    };
    check(
        random_loss::fits,
        base,
        &[
            ("unchanged", |_| {}, Some((Likely, 1))),
            ("eleven", |f| lose(f, 11, 10.0), Some((Possible, 0))),
            ("a queue", |f| lose(f, 12, 13.0), None),
            ("hardly", |f| lose(f, 12, 12.9), Some((Likely, 1))),
            ("much reordering", |f| f.reordered = 20, Some((Possible, 2))),
            ("less", |f| f.reordered = 19, Some((Likely, 1))),
            ("a queue that lost", |f| f.bucket = bucket(1e6), None),
            (
                "in seven events",
                |f| {
                    lose(f, 14, 10.0);
                    f.losses
                        .iter_mut()
                        .enumerate()
                        .for_each(|(n, l)| l.at = ms((n / 2 * 100) as f64));
                },
                Some((Possible, 1)),
            ),
            (
                "in eight",
                |f| {
                    lose(f, 16, 10.0);
                    f.losses
                        .iter_mut()
                        .enumerate()
                        .for_each(|(n, l)| l.at = ms((n / 2 * 100) as f64));
                },
                Some((Likely, 1)),
            ),
            (
                "at one window",
                |f| {
                    lose(f, 8, 10.0);
                    f.bucket = None;
                },
                Some((Possible, 3)),
            ),
            (
                "in runs",
                |f| {
                    lose(f, 18, 10.0);
                    f.bucket = None;
                    f.losses.iter_mut().enumerate().for_each(|(n, l)| {
                        (l.at, l.flight) = (ms((n / 2 * 100) as f64), 9000 + n as u64 * 1000)
                    });
                },
                Some((Possible, 3)),
            ),
            ("four", |f| f.retransmitted = 4, None),
            (
                "5 % of bbr's",
                |f| {
                    f.retransmitted = 50;
                    f.congestion = Some("bbr".to_owned());
                },
                Some((Likely, 1)),
            ),
            (
                "less of bbr's",
                |f| {
                    f.retransmitted = 49;
                    f.congestion = Some("bbr".to_owned());
                },
                None,
            ),
            (
                "from afar, where they allow more",
                |f| {
                    (f.source, f.segments, f.mss) = (Source::CaptureAtReceiver, 10_000, 2000);
                    f.bucket = None;
                },
                None,
            ),
        ],
    );
    // 1000 B / 10 ms x 1.22 / sqrt(12 of 1000).
    let evidence = random_loss::fits(&base()).unwrap().evidence;
    let rate = |key| {
        let row = evidence.iter().find(|e| e.key == key).unwrap();
        match row.quantity {
            model::finding::Quantity::BitRate(rate) => rate.0,
            _ => 0,
        }
    };
    let reach = (1e5 * 1.22 / 0.012f64.sqrt() * 8.0) as u64;
    assert_eq!(rate(Key::LossLimitedRate), reach);
    assert_eq!(
        rate(Key::LossLimitedRateJumbo) / 1000,
        (reach as f64 * 8.948) as u64 / 1000
    );
    assert_eq!(rate(Key::LossLimitedRateHalfRtt) / 10, reach / 5);
}

#[test]
fn losses_come_one_by_one_or_together() {
    use loss_runs::LossRuns::{OneByOne, Together, Unknown};
    // The events of so many losses each, in a window of ten segments of which 1 % is lost, and a larger one.
    let pattern = |events: &[u64]| {
        let mut facts = of(Source::Trace, 10.0);
        let all = events.iter().chain(&[9]).zip(0u64..);
        let all = all.flat_map(|(many, at)| std::iter::repeat_n(at, *many as usize));
        lose(&mut facts, 10, 10.0);
        let loss = facts.losses[0];
        facts.losses = all
            .map(|at| LostSegment {
                at: ms((at * 50) as f64),
                ..loss
            })
            .collect();
        (loss_runs::pattern(&facts), facts)
    };
    // Chance would give 0.1 / (1 - exp(-0.1)) = 1.0508.
    for (events, expected) in [
        (&[1u64; 8][..], OneByOne),
        (&[1; 7], Unknown),
        (&[2, 2, 1, 1, 1, 1, 1, 1], OneByOne),
        (&[2, 2, 2, 1, 1, 1, 1, 1], Unknown),
        (&[2, 2, 2, 2, 1, 1, 1, 1], Unknown),
        (&[2, 2, 2, 2, 2, 1, 1, 1], Together),
        (&[4], Unknown),
        (&[5], Together),
        (&[], Unknown),
    ] {
        assert_eq!(pattern(events).0, expected, "{events:?}");
    }
    let (_, facts) = pattern(&[2; 8]);
    let ratio = 2.0 / (0.1 / (1.0 - (-0.1f64).exp()));
    let evidence = loss_runs::evidence(&facts);
    assert_eq!(evidence[0].quantity, ratio.into());
    assert_eq!(evidence[1].quantity, 8usize.into());
    assert!(loss_runs::clustered(&facts).is_some());
    let (_, mut facts) = pattern(&[1; 8]);
    assert!(loss_runs::clustered(&facts).is_none());
    facts.min_rtt = Some(ms(6.6));
    assert_eq!(loss_runs::evidence(&facts), [], "coarse");
}

#[test]
fn a_processor_is_full_alone_or_with_its_host() {
    fn load(facts: &mut Facts, process: f64, host: f64, busiest: f64) {
        facts.sender_load = Some(CpuLoad {
            process,
            host: Some(host),
            busiest: Some(busiest),
            streams: 1,
        });
    }
    check(
        cpu::fits,
        || of(Source::Samples, 10.0),
        &[
            ("a process", |f| load(f, 0.9, 0.0, 0.0), Some((Possible, 1))),
            ("hardly", |f| load(f, 0.899, 0.949, 1.0), None),
            ("a host", |f| load(f, 0.25, 0.95, 0.0), Some((Possible, 1))),
            ("of another process", |f| load(f, 0.249, 0.95, 0.0), None),
            (
                "of two streams",
                |f| {
                    load(f, 1.79, 0.0, 0.0);
                    f.sender_load = f.sender_load.map(|l| CpuLoad { streams: 2, ..l });
                },
                None,
            ),
            (
                "the receiver",
                |f| {
                    load(f, 0.9, 0.0, 0.0);
                    f.receiver_load = f.sender_load.take();
                },
                Some((Possible, 1)),
            ),
            (
                "1 % lost",
                |f| {
                    load(f, 0.9, 0.0, 0.0);
                    f.retransmitted = 10;
                },
                Some((Possible, 1)),
            ),
            (
                "more",
                |f| {
                    load(f, 0.9, 0.0, 0.0);
                    f.retransmitted = 11;
                },
                None,
            ),
        ],
    );
    let short = || {
        let mut facts = of(Source::Samples, 1.5);
        facts.min_rtt = Some(ms(1.0));
        vary(&mut facts);
        facts
    };
    check(
        cpu::hides_the_path,
        short,
        &[
            ("idle", |f| load(f, 0.1, 0.5, 0.5), None),
            ("a process", |f| load(f, 0.9, 0.0, 0.0), Some((Likely, 1))),
            ("a host", |f| load(f, 0.25, 0.95, 0.0), Some((Likely, 1))),
            (
                "of others",
                |f| load(f, 0.24, 0.95, 0.0),
                Some((Possible, 1)),
            ),
            (
                "its busiest processor",
                |f| load(f, 0.24, 0.0, 0.95),
                Some((Possible, 1)),
            ),
            ("hardly", |f| load(f, 0.24, 0.949, 0.949), None),
            (
                "a longer path",
                |f| {
                    load(f, 0.9, 0.0, 0.0);
                    f.min_rtt = Some(ms(1.5));
                    srtt(f, 3.0);
                },
                None,
            ),
            (
                "no wait",
                |f| {
                    load(f, 0.9, 0.0, 0.0);
                    srtt(f, 1.49);
                },
                None,
            ),
            (
                "1 % lost",
                |f| {
                    load(f, 0.9, 0.0, 0.0);
                    f.retransmitted = 10;
                },
                Some((Likely, 1)),
            ),
            (
                "more",
                |f| {
                    load(f, 0.9, 0.0, 0.0);
                    f.retransmitted = 11;
                },
                None,
            ),
            (
                "a full device",
                |f| {
                    load(f, 0.9, 0.0, 0.0);
                    f.link = Some(BitRate(9_400_000));
                },
                None,
            ),
            (
                "hardly full",
                |f| {
                    load(f, 0.9, 0.0, 0.0);
                    f.link = Some(BitRate(9_420_000));
                },
                Some((Likely, 1)),
            ),
            (
                "a device that is none",
                |f| {
                    load(f, 0.9, 0.0, 0.0);
                    f.link = Some(BitRate(7_900_000));
                },
                Some((Likely, 1)),
            ),
            (
                "a rate as steady as a link's",
                |f| {
                    load(f, 0.25, 0.95, 0.0);
                    each(f, |_, r| r.delivered = 10_000);
                },
                None,
            ),
            (
                "or as a full process's",
                |f| {
                    load(f, 0.9, 0.0, 0.0);
                    each(f, |_, r| r.delivered = 10_000);
                },
                Some((Likely, 1)),
            ),
            (
                "memory, and both ends work",
                |f| {
                    load(f, 0.45, 0.0, 0.0);
                    (f.receiver_load, f.memory_path) = (f.sender_load, true);
                    each(f, |_, r| (r.delivered, r.srtt) = (10_000, ms(1.0)));
                },
                Some((Likely, 1)),
            ),
            (
                "hardly",
                |f| {
                    load(f, 0.44, 0.0, 0.0);
                    (f.receiver_load, f.memory_path) = (f.sender_load, true);
                },
                None,
            ),
        ],
    );
    let mut facts = short();
    load(&mut facts, 0.9, 0.95, 0.949);
    let evidence = cpu::candidate(&facts).evidence;
    let judged = evidence.iter().map(|e| (e.key, e.threshold.is_some()));
    assert_eq!(
        judged.collect::<Vec<_>>(),
        [
            (Key::SenderProcessCpu, true),
            (Key::SenderHostCpu, true),
            (Key::SenderBusiestProcessor, false)
        ]
    );
    assert_eq!(
        full_processor(&facts).map(|e| e.key),
        Some(Key::SenderProcessCpu)
    );
}

#[test]
fn a_policer_is_a_bucket_that_does_not_delay() {
    // A bucket of 50 ms, and losses at which the round trip is so much longer.
    fn policed(facts: &mut Facts, delay: f64, events: usize) {
        lose(facts, 20, 10.0 + delay);
        facts.bucket = bucket(1e6).map(|b| BucketFit {
            depth: 50e3,
            events,
            of_events: events,
            ..b
        });
    }
    let is = |change: Change| {
        let mut facts = of(Source::Trace, 10.0);
        change(&mut facts);
        policer::is_policed(&facts)
    };
    assert!(is(|f| policed(f, 0.0, 3)));
    assert!(!is(|f| policed(f, 0.0, 2)));
    assert!(!is(|f| f.bucket = None));
    assert!(!is(|f| {
        policed(f, 0.0, 3);
        f.bucket = f.bucket.map(|b| BucketFit { parts: 0.59, ..b });
    }));
    // A quarter of what a queue would delay; and six segments of it, where a queue is seen.
    assert!(!is(|f| policed(f, 12.6, 3)));
    assert!(is(|f| policed(f, 5.9, 3)));
    assert!(!is(|f| policed(f, 6.1, 3)));
    assert!(is(|f| {
        policed(f, 12.5, 3);
        f.bucket = f.bucket.map(|b| BucketFit { segment: 2100, ..b });
    }));
    assert!(is(|f| {
        policed(f, 12.5, 3);
        f.min_rtt = Some(ms(21.0));
        each(f, |_, r| r.srtt = ms(21.0));
    }));
    check(
        policer::fits_bucket,
        || of(Source::Trace, 10.0),
        &[
            ("six events", |f| policed(f, 0.0, 6), Some((Certain, 1))),
            ("five", |f| policed(f, 0.0, 5), Some((Possible, 1))),
            (
                "two late ones of twenty",
                |f| {
                    policed(f, 0.0, 6);
                    f.reordered = 2;
                },
                Some((Certain, 1)),
            ),
            (
                "three",
                |f| {
                    policed(f, 0.0, 6);
                    f.reordered = 3;
                },
                Some((Possible, 1)),
            ),
            (
                "a fast one that fits would delay by 4 ms",
                |f| {
                    policed(f, 0.99, 6);
                    f.bucket = f.bucket.map(|b| BucketFit {
                        range: [1e6, 12.5e6],
                        ..b
                    });
                },
                Some((Certain, 1)),
            ),
            (
                "and less",
                |f| {
                    policed(f, 1.1, 6);
                    f.bucket = f.bucket.map(|b| BucketFit {
                        range: [1e6, 12.5e6],
                        ..b
                    });
                },
                Some((Possible, 1)),
            ),
        ],
    );
    check(
        policer::fits_pauses,
        || {
            let mut facts = of(Source::CaptureAtSender, 10.0);
            policed(&mut facts, 0.0, 6);
            facts.bucket = facts.bucket.map(|b| BucketFit { parts: 0.5, ..b });
            facts.retransmitted = 50;
            let losses = facts.losses.iter_mut().enumerate();
            losses.for_each(|(n, l)| l.at = ms((n / 2 * 100) as f64));
            facts
        },
        &[
            ("5 % lost", |_| {}, Some((Possible, 0))),
            ("less", |f| f.retransmitted = 49, None),
            ("an exchange", |f| f.is_exchange = true, None),
            ("a bucket", |f| policed(f, 0.0, 6), Some((Certain, 1))),
        ],
    );
}

#[test]
fn a_starved_sender_loses_a_tenth_and_waits_for_three_timers() {
    let base = || {
        let mut facts = of(Source::Samples, 10.0);
        lose(&mut facts, 100, 15.9);
        (facts.timeouts, facts.backoffs) = (3, 2);
        facts
    };
    check(
        policer::fits,
        base,
        &[
            ("unchanged", |_| {}, Some((Possible, 0))),
            ("two timers", |f| f.timeouts = 2, None),
            ("three in a row", |f| f.backoffs = 3, None),
            ("less lost", |f| f.retransmitted = 99, None),
            ("six segments waited", |f| lose(f, 100, 16.1), None),
        ],
    );
}

#[test]
fn pacing_stays_below_the_rate_that_overflows() {
    let paced = |change: Change, policed| {
        let mut facts = of(Source::Trace, 10.0);
        change(&mut facts);
        experiment::paced(&facts, policed).map(|rate| rate.0)
    };
    // 95 % of the lowest that fits, in steps of 0.1 Mbit/s.
    assert_eq!(paced(|f| f.bucket = bucket(1e6), true), Some(7_600_000));
    assert_eq!(
        paced(
            |f| f.bucket = bucket(1e6).map(|b| BucketFit {
                connections: 2,
                range: [0.9e6, 1e6],
                ..b
            }),
            true
        ),
        Some(3_400_000)
    );
    assert_eq!(paced(|f| f.bucket = bucket(1000.0), true), Some(7600));
    // 90 % of the highest in four round trips.
    assert_eq!(paced(|_| {}, false), Some(7_200_000));
    assert_eq!(
        paced(
            |f| each(f, |n, r| r.passed *=
                if (40..44).contains(&n) { 2 } else { 1 }),
            false
        ),
        Some(14_400_000)
    );
    assert_eq!(
        paced(
            |f| each(f, |n, r| r.passed *=
                if (40..43).contains(&n) { 2 } else { 1 }),
            false
        ),
        Some(12_600_000)
    );
    // Of ten round trips between two losses, without the readings of both.
    assert_eq!(paced(|f| lose(f, 1, 10.0), true), None);
    let between = |f: &mut Facts, to: f64| {
        lose(f, 2, 10.0);
        (f.losses[0].at, f.losses[1].at) = (ms(105.0), ms(to));
        each(f, |n, r| {
            if n == 10 || n == (to / 10.0) as usize {
                r.passed = 0
            }
        });
    };
    let of_two = |to| {
        let mut facts = of(Source::Trace, 10.0);
        between(&mut facts, to);
        experiment::paced(&facts, true).map(|rate| rate.0)
    };
    assert_eq!([of_two(215.0), of_two(205.0)], [Some(7_200_000), None]);
}

#[test]
fn losses_that_come_together_at_one_window_may_be_a_policers() {
    fn in_pairs(facts: &mut Facts, count: u64) {
        lose(facts, count, 10.0);
        let losses = facts.losses.iter_mut().enumerate();
        losses.for_each(|(n, loss)| loss.at = ms((n / 2 * 100) as f64));
    }
    check(
        policer::fits,
        || of(Source::Trace, 10.0),
        &[
            ("together", |f| in_pairs(f, 20), Some((Possible, 0))),
            ("one by one", |f| lose(f, 20, 10.0), None),
            ("fourteen", |f| in_pairs(f, 14), None),
            (
                "of a rate that swings",
                |f| {
                    in_pairs(f, 20);
                    each(f, |n, r| {
                        r.delivered = if n / 10 % 2 == 0 { 7000 } else { 13_000 }
                    });
                },
                Some((Possible, 2)),
            ),
            (
                "a queue",
                |f| {
                    in_pairs(f, 20);
                    f.losses.iter_mut().for_each(|l| l.srtt = ms(11.5));
                },
                None,
            ),
        ],
    );
}

#[test]
fn waiting_for_a_processor_looks_like_windows_buffers_and_queues() {
    let all = Limit::ALL.iter().filter(|limit| looks_like_cpu(**limit));
    assert_eq!(all.count(), 15);
    for limit in [
        Limit::Policer,
        Limit::RandomLoss,
        Limit::BlackHole,
        Limit::Handshake,
        Limit::RtoStall,
    ] {
        assert!(!looks_like_cpu(limit), "{limit:?}");
    }
}

#[test]
fn a_window_without_a_round_trip_has_no_rate() {
    let shows = |rtt, window| {
        let mut facts = of(Source::Trace, 10.0);
        facts.min_rtt = Some(ms(rtt));
        each(&mut facts, |_, r| r.window = window);
        let evidence = receive_window::candidate(&facts).evidence;
        evidence.iter().any(|e| e.key == Key::ReceiveWindowRate)
    };
    assert!(shows(10.0, 1) && !shows(0.0, 1) && !shows(10.0, 0));
}

use super::*;
use model::{Bulk, Datagrams, FileCopy, Placement, Request, Udp, WaitMode};

fn order(limit: LegLimit) -> LegOrder {
    LegOrder {
        leg: 0,
        agent_sends: false,
        workload: Workload::Bulk(Bulk::default()),
        streams: 4,
        limit,
        interval: Nanos::from_millis(100),
        outage: Nanos(0),
        trace: false,
        socket: SocketSettings::default(),
        placement: Placement::default(),
    }
}

fn udp() -> Workload {
    Workload::Udp(Udp {
        rate: BitRate(0),
        datagram_size: Bytes(1000),
    })
}

#[test]
fn a_grant_is_at_most_what_was_ordered() {
    let time = |ns| LegLimit::Time(Nanos(ns));
    let bytes = |count| LegLimit::Bytes(Bytes(count));
    let of = |ordered, granted| {
        let granted = LegOrder {
            limit: granted,
            ..order(ordered)
        };
        within(&order(ordered), &granted).map(|order| order.limit)
    };
    for (asked, most, less, more) in [
        (time(10), time(10), time(9), time(11)),
        (bytes(10), bytes(10), bytes(9), bytes(11)),
        (
            LegLimit::Requests(10),
            LegLimit::Requests(10),
            LegLimit::Requests(9),
            LegLimit::Requests(11),
        ),
    ] {
        assert_eq!([of(asked, most), of(asked, less)], [Ok(most), Ok(less)]);
        assert!(of(asked, more).is_err(), "{more:?}");
        assert!(of(asked, LegLimit::Whole).is_err());
    }
    assert_eq!(of(LegLimit::Whole, LegLimit::Whole), Ok(LegLimit::Whole));
    assert_eq!(of(LegLimit::Whole, time(1)), Err(Nanos(1).to_string()));
    assert_eq!(of(time(1), bytes(1)), Err(Bytes(1).to_string()));
    assert_eq!(
        of(time(1), LegLimit::Requests(2)),
        Err("2 requests".to_owned())
    );
    assert_eq!(
        of(time(1), LegLimit::Whole),
        Err("all of the source".to_owned())
    );
}

#[test]
fn a_grant_has_the_ordered_streams_and_no_more_than_the_ordered_pacing() {
    let ordered = |pacing: Option<u64>| LegOrder {
        socket: SocketSettings {
            pacing: pacing.map(BitRate),
            ..SocketSettings::default()
        },
        ..order(LegLimit::Whole)
    };
    let of = |asked, granted| within(&ordered(asked), &ordered(granted)).map(|o| o.socket.pacing);
    assert_eq!(of(None, None), Ok(None));
    assert_eq!(of(None, Some(5)), Ok(Some(BitRate(5))));
    assert_eq!(of(Some(5), Some(5)), Ok(Some(BitRate(5))));
    assert_eq!(of(Some(5), Some(4)), Ok(Some(BitRate(4))));
    assert!(of(Some(5), Some(6)).unwrap_err().starts_with("pacing at "));
    assert_eq!(of(Some(5), None), Err("no pacing".to_owned()));
    // All else is as this host ordered it.
    let mut other = ordered(None);
    (other.interval, other.socket.mss) = (Nanos(1), Some(600));
    assert_eq!(within(&ordered(None), &other), Ok(ordered(None)));
    for streams in [3, 5] {
        let granted = LegOrder {
            streams,
            ..ordered(None)
        };
        let why = within(&ordered(None), &granted);
        assert_eq!(why, Err(format!("{streams} streams")));
    }
}

#[test]
fn the_sockets_of_the_first_connections_are_reported() {
    let most = MOST_SAMPLED as u32;
    for (streams, reported) in [(1, 1), (most, MOST_SAMPLED), (most + 1, MOST_SAMPLED)] {
        let order = LegOrder {
            streams,
            ..order(LegLimit::Whole)
        };
        assert_eq!(sampled(&order), reported);
    }
}

fn leg(direction: Direction) -> Leg {
    Leg {
        direction,
        started: Nanos::from_secs(1),
        local: EndRecord::default(),
        remote: EndRecord::default(),
        ended: Ended::Complete,
    }
}

#[test]
fn samples_are_those_of_the_order_and_as_many_as_there_was_time_for() {
    let order = order(LegLimit::Whole);
    let of = |streams, at, taken: usize, now| {
        let mut leg = leg(Direction::Up);
        leg.remote.samples = vec![Sample::default(); taken];
        let sample = Sample {
            at,
            streams: vec![StreamSample::default(); streams],
            ..Sample::default()
        };
        bounded(&sample, &order, &leg, now).err()
    };
    let begun = Nanos::from_secs(1);
    assert_eq!(of(4, LATEST_SAMPLE, 64, begun), None);
    assert!(
        of(5, begun, 0, begun)
            .unwrap()
            .contains("5 streams where 4 are to be")
    );
    let later = Nanos(LATEST_SAMPLE.0 + 1);
    assert!(
        of(4, later, 0, begun)
            .unwrap()
            .contains("which no leg reaches")
    );
    let more = "sent more samples than there was time for";
    assert_eq!(of(4, begun, 65, begun).as_deref(), Some(more));
    // Ten intervals later.
    let second = Nanos::from_secs(2);
    assert_eq!(of(4, begun, 84, second), None);
    assert_eq!(of(4, begun, 85, second).as_deref(), Some(more));
    let faster = LegOrder {
        interval: Nanos(0),
        ..order.clone()
    };
    // At most one a millisecond.
    let mut many = leg(Direction::Up);
    many.remote.samples = vec![Sample::default(); 66];
    let at = |ms| bounded(&Sample::default(), &faster, &many, Nanos::from_millis(ms));
    assert!(at(1000).is_err() && at(1001).is_ok());
}

fn record(bytes: u64, ms: u64) -> EndRecord {
    EndRecord {
        bytes: Bytes(bytes),
        duration: Nanos::from_millis(ms),
        ..EndRecord::default()
    }
}

/// What is disputed of a leg up: what this end sent, and what the other one claims.
fn up(workload: Workload, local: EndRecord, remote: EndRecord) -> Option<String> {
    let spec = Spec {
        workload,
        ..Spec::default()
    };
    let leg = Leg {
        local,
        remote,
        ..leg(Direction::Up)
    };
    disputed(&spec, &leg, "db2")
}

fn bulk() -> Workload {
    Workload::Bulk(Bulk::default())
}

#[test]
fn a_receiver_has_no_more_than_was_sent_in_any_sample() {
    let of = |claimed| up(bulk(), record(1000, 50), record(claimed, 50));
    assert_eq!([of(1000), of(0)], [None, None]);
    let why = of(1001).unwrap();
    assert!(
        why.contains("claims 1001 B, this kernel sent 1000 B to db2"),
        "{why}"
    );
    let sampled = |bytes| EndRecord {
        samples: vec![Sample {
            bytes: Bytes(bytes),
            ..Sample::default()
        }],
        ..record(1000, 50)
    };
    assert_eq!(up(bulk(), record(1000, 50), sampled(1000)), None);
    assert!(up(bulk(), record(1000, 50), sampled(1001)).is_some());
    // An end of this host that broke before its count.
    assert_eq!(up(bulk(), record(0, 50), record(1001, 50)), None);
}

#[test]
fn a_receiver_takes_half_of_the_time_at_least_where_it_is_long_enough() {
    let of = |sent_ms, received_ms| {
        up(bulk(), record(1000, sent_ms), record(1000, received_ms)).is_some()
    };
    assert_eq!([of(1000, 500), of(1000, 499)], [false, true]);
    assert_eq!([of(100, 1), of(101, 1)], [false, true]);
    let nothing = up(bulk(), record(1000, 1000), record(0, 1));
    assert_eq!(nothing, None, "it moved nothing");
    // Storage at either host and the losses of a path take time of their own.
    let copy = Workload::Copy(FileCopy::default());
    assert_eq!(up(copy, record(1000, 1000), record(1000, 1)), None);
    assert_eq!(up(udp(), record(1000, 1000), record(1000, 1)), None);
}

#[test]
fn datagrams_are_no_more_than_were_sent() {
    let packets = |packets| EndRecord {
        datagrams: Some(Datagrams {
            packets,
            ..Datagrams::default()
        }),
        ..record(1000, 50)
    };
    assert_eq!(up(udp(), packets(10), packets(10)), None);
    let why = up(udp(), packets(10), packets(11)).unwrap();
    assert!(
        why.contains("claims 11 datagrams, this kernel sent 10 to db2"),
        "{why}"
    );
    assert_eq!(up(bulk(), packets(10), packets(11)), None);
}

#[test]
fn calls_and_what_comes_down_are_not_compared_like_that() {
    let requests = Workload::Request(Request {
        request_size: Bytes(1),
        reply_size: Bytes(1),
        pace_per_s: None,
        reconnect: false,
        wait: WaitMode::Block,
    });
    assert_eq!(up(requests, record(1000, 50), record(5000, 50)), None);
    let down = Leg {
        local: record(1000, 1000),
        remote: record(5000, 1),
        ..leg(Direction::Down)
    };
    assert_eq!(disputed(&Spec::default(), &down, "db2"), None);
}

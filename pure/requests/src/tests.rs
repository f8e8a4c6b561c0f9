//! Requests whose causes are known, packet by packet, captured at the client.

use super::*;
use model::Nanos;
use model::request::{Call, Cause, Causes, Viewpoint};
use model::segment::tcp_flag::{ACK, FIN, PSH, SYN};

const MSS: u32 = 1000;
/// From the client to the server and back.
const TRIP: Nanos = Nanos::from_millis(10);

/// Packets at one place of a connection of no known protocol.
struct Script {
    packets: Vec<Packet>,
    /// Bytes sent by either end.
    sent: [u32; 2],
}

impl Script {
    /// With a handshake, whose scale is 0.
    fn new(window: u16) -> Script {
        let mut script = Script {
            packets: Vec::new(),
            sent: [0, 0],
        };
        for (at, server, flags) in [
            (0, false, SYN),
            (TRIP.0, true, SYN | ACK),
            (TRIP.0 + 5000, false, ACK),
        ] {
            script.push(Nanos(at), server, 0, 0, window, flags);
        }
        script
    }

    fn push(&mut self, at: Nanos, server: bool, place: u32, bytes: u32, window: u16, flags: u8) {
        let ends = [([192, 0, 2, 1], 40000), ([192, 0, 2, 2], 9000)].map(SocketAddr::from);
        let [own, peer] = if server { [1, 0] } else { [0, 1] };
        // Close to the wrap of the sequence.
        let base = u32::MAX - 2000;
        let syn = flags & SYN != 0;
        self.packets.push(Packet {
            at,
            seq: base.wrapping_add(place).wrapping_sub(u32::from(syn)),
            ack: base.wrapping_add(self.sent[peer]),
            flags,
            window,
            payload: bytes,
            wscale: syn.then_some(0),
            mss: syn.then_some(MSS as u16),
            ..Packet::new(ends[own], ends[peer])
        });
    }

    /// All the data that an end has, times from the end of the handshake.
    fn data(&mut self, at: Nanos, server: bool, bytes: u32) {
        self.some(at, server, bytes, true);
    }

    /// New data of an end, and whether it is all that was written.
    fn some(&mut self, at: Nanos, server: bool, bytes: u32, push: bool) {
        let own = usize::from(server);
        let place = self.sent[own];
        self.sent[own] += bytes;
        let flags = ACK | if push { PSH } else { 0 };
        self.push(TRIP + ms(1) + at, server, place, bytes, 65000, flags);
    }

    /// An end acknowledges all but so many bytes.
    fn ack(&mut self, at: Nanos, server: bool, but: u32, window: u16) {
        let peer = usize::from(!server);
        self.sent[peer] -= but;
        let place = self.sent[1 - peer];
        self.push(
            TRIP + Nanos::from_millis(1) + at,
            server,
            place,
            0,
            window,
            ACK,
        );
        self.sent[peer] += but;
    }

    fn calls(&self) -> Vec<Call> {
        let mut observer = RequestObserver::default();
        self.packets
            .iter()
            .for_each(|packet| observer.push(packet, &[]));
        let calls = observer.finish().calls;
        for call in &calls {
            assert_eq!(call.parts.total(), call.causes.total());
        }
        calls
    }
}

const fn ms(of: u64) -> Nanos {
    Nanos::from_millis(of)
}

#[test]
fn the_time_behind_the_call_is_the_way_and_think_time() {
    let mut script = Script::new(65000);
    script.data(ms(0), false, 100);
    script.data(ms(17), true, 300);
    script.ack(ms(18), false, 0, 65000);
    let calls = script.calls();
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0].view, Viewpoint::Client);
    assert_eq!(
        (calls[0].parts.forward, calls[0].parts.reverse),
        (ms(5), ms(5))
    );
    assert_eq!(calls[0].parts.think, ms(7));
    assert_eq!(calls[0].parts.total(), ms(17));
}

#[test]
fn a_short_segment_that_waits_for_an_acknowledgement_is_nagles_and_what_was_held_is_not() {
    let mut script = Script::new(65000);
    script.data(ms(0), false, 100);
    // 40 ms held back by the server.
    script.ack(ms(50), true, 0, 65000);
    script.data(ms(50), false, 100);
    script.data(ms(60), true, 10);
    script.ack(ms(61), false, 0, 65000);
    let causes = script.calls()[0].causes;
    assert_eq!(causes.of(Cause::Nagle), ms(10));
    assert_eq!(causes.of(Cause::DelayedAck), ms(40));
}

#[test]
fn a_pause_that_ends_with_an_acknowledgement_is_the_applications_if_more_could_be_sent() {
    let mut script = Script::new(65000);
    // So much was outstanding before.
    for _ in 0..8 {
        script.data(ms(0), false, MSS);
    }
    script.ack(ms(10), true, 0, 65000);
    script.data(ms(20), false, MSS);
    script.ack(ms(30), true, 0, 65000);
    script.data(ms(30), false, MSS);
    script.data(ms(45), true, 10);
    script.ack(ms(46), false, 0, 65000);
    let causes = script.calls()[0].causes;
    assert_eq!(causes.of(Cause::Application), ms(30));
    assert_eq!(causes.of(Cause::CongestionWindow), Nanos(0));
}

#[test]
fn a_short_segment_behind_another_says_that_nagles_rule_does_not_hold() {
    let mut script = Script::new(65000);
    for at in [0, 1] {
        script.data(ms(at), false, 100);
    }
    script.ack(ms(11), true, 0, 65000);
    script.data(ms(11), false, 100);
    script.data(ms(60), true, 10);
    script.ack(ms(61), false, 0, 65000);
    let causes = script.calls()[0].causes;
    assert_eq!(causes.of(Cause::Nagle), Nanos(0));
    assert_eq!(causes.of(Cause::Application), ms(11));
}

#[test]
fn what_was_written_and_waits_is_not_a_pause_of_the_application() {
    let mut script = Script::new(65000);
    for n in 0..20 {
        script.some(Nanos::from_micros(1400 * n), false, MSS, false);
    }
    script.data(ms(60), true, 10);
    script.ack(ms(61), false, 0, 65000);
    let causes = script.calls()[0].causes;
    assert_eq!(causes.of(Cause::Rate), Nanos::from_micros(1400 * 19));
}

#[test]
fn rounds_of_a_growing_flight_are_the_congestion_windows() {
    let mut script = Script::new(65000);
    for (round, flight) in [2, 4, 8].into_iter().enumerate() {
        let at = ms(10 * round as u64);
        if round > 0 {
            script.ack(at, true, 0, 65000);
        }
        for _ in 0..flight {
            script.some(at, false, MSS, false);
        }
    }
    script.data(ms(31), true, 10);
    script.ack(ms(32), false, 0, 65000);
    assert_eq!(script.calls()[0].causes.of(Cause::CongestionWindow), ms(20));
}

#[test]
fn a_full_window_is_the_receivers() {
    let mut script = Script::new(4000);
    for _ in 0..4 {
        script.data(ms(0), false, MSS);
    }
    script.ack(ms(10), true, 0, 4000);
    for _ in 0..4 {
        script.data(ms(10), false, MSS);
    }
    script.data(ms(25), true, 10);
    script.ack(ms(26), false, 0, 65000);
    assert_eq!(script.calls()[0].causes.of(Cause::ReceiveWindow), ms(10));
}

#[test]
fn what_is_sent_again_makes_its_own_request_longer_and_no_other() {
    let mut script = Script::new(65000);
    script.data(ms(0), false, 100);
    script.data(ms(10), true, 10);
    script.ack(ms(11), false, 0, 65000);
    script.data(ms(20), false, 100);
    let again = TRIP + ms(1) + ms(240);
    script.push(again, false, 100, 100, 65000, ACK);
    script.data(ms(250), true, 10);
    script.ack(ms(251), false, 0, 65000);
    let calls = script.calls();
    assert_eq!(calls.len(), 2);
    assert_eq!(calls[0].parts.total(), ms(10));
    assert_eq!(calls[1].parts.total(), ms(230));
    assert_eq!(calls[1].causes.of(Cause::Retransmission), ms(220));
    assert_eq!(calls[1].parts.think, Nanos(0));
}

#[test]
fn a_capture_on_several_devices_has_everything_twice_and_nothing_was_sent_again() {
    let mut script = Script::new(65000);
    for n in 0..4 {
        script.some(Nanos::from_micros(n), false, MSS, n == 3);
    }
    script.ack(ms(10), true, 0, 65000);
    for n in 0..4 {
        script.some(ms(17) + Nanos::from_micros(n), true, MSS, n == 3);
    }
    script.ack(ms(18), false, 0, 65000);
    let calls = script.calls();
    assert_eq!(calls.len(), 1);
    let packets = std::mem::take(&mut script.packets);
    script.packets = packets
        .into_iter()
        .flat_map(|packet| {
            let at = packet.at + Nanos::from_micros(9);
            [packet, Packet { at, ..packet }]
        })
        .collect();
    script.packets.sort_by_key(|packet| packet.at);
    assert_eq!(script.calls(), calls);
}

#[test]
fn a_reply_out_of_order_is_whole_when_its_last_byte_came() {
    let mut script = Script::new(65000);
    script.data(ms(0), false, 100);
    script.push(TRIP + ms(1) + ms(10), true, 0, MSS, 65000, ACK);
    script.push(TRIP + ms(1) + ms(11), true, 2 * MSS, MSS, 65000, ACK);
    script.push(TRIP + ms(1) + ms(31), true, MSS, MSS, 65000, ACK);
    script.sent[1] = 3 * MSS;
    script.ack(ms(31), false, 0, 65000);
    script.push(TRIP + ms(1) + ms(40), false, 100, 0, 65000, ACK | FIN);
    let calls = script.calls();
    assert_eq!(calls[0].reply_bytes.0, 3000);
    assert_eq!(calls[0].parts.reply_send, ms(21));
    assert_eq!(calls[0].causes.of(Cause::Retransmission), ms(20) + ms(1));
}

#[test]
fn two_captures_give_each_part_its_own_clock() {
    let at_client = {
        let mut script = Script::new(65000);
        for n in 0..60 {
            let at = ms(100 * n);
            script.data(at, false, 100);
            script.data(at + ms(17), true, 300);
            script.ack(at + ms(18), false, 0, 65000);
        }
        script.packets
    };
    // 4 ms there, 6 back; a clock that is 250 ms ahead and 100 ppm fast. One call waits 3 ms on its way.
    let at_server: Vec<Packet> = at_client
        .iter()
        .enumerate()
        .map(|(n, packet)| {
            let from_server = packet.from.port() == 9000;
            let way = if from_server { -6_000_000 } else { 4_000_000 };
            let queue = if n == 30 { 3_000_000 } else { 0 };
            let at = packet.at.0 as i64 + way + queue;
            let at = at + 250_000_000 + at / 10_000;
            Packet {
                at: Nanos(at as u64),
                ..*packet
            }
        })
        .collect();
    for swapped in [false, true] {
        let (mut a, mut b) = (RequestObserver::of_two(), RequestObserver::of_two());
        let places = match swapped {
            false => [&at_client, &at_server],
            true => [&at_server, &at_client],
        };
        places[0].iter().for_each(|packet| a.push(packet, &[]));
        places[1].iter().for_each(|packet| b.push(packet, &[]));
        let found = joined(a, b);
        let clocks = found.clocks.unwrap();
        let drift = if swapped { -100.0 } else { 100.0 };
        assert!((clocks.drift_ppm - drift).abs() < 1.0, "{clocks:?}");
        // Half of the round trip, if all of it lay on one way.
        assert!(clocks.error.0.abs_diff(5_000_000) < 5_000, "{clocks:?}");
        assert_eq!(found.answered, 60);
        let mut queued = 0;
        for call in &found.calls {
            assert_eq!(call.view, Viewpoint::BothEnds);
            assert_eq!(call.parts.total(), call.causes.total());
            // The difference of the ways cannot be seen: 5 each, and the clock's own second is longer.
            assert!(
                call.parts.forward.0.abs_diff(5_000_000) < 3_100_000,
                "{call:#?}"
            );
            queued += u64::from(call.causes.of(Cause::Queue) > ms(2));
        }
        assert_eq!(queued, 1);
    }
}

#[test]
fn requests_over_time_are_in_equal_stretches_that_are_not_too_many() {
    let mut script = Script::new(65000);
    let all = 500;
    for n in 0..all {
        script.data(ms(20 * n), false, 100);
        script.data(ms(20 * n + 10), true, 10);
        script.ack(ms(20 * n + 11), false, 0, 65000);
    }
    let mut observer = RequestObserver::default();
    script
        .packets
        .iter()
        .for_each(|packet| observer.push(packet, &[]));
    let found = observer.finish();
    let moments = &found.moments;
    assert!((48..=96).contains(&moments.len()), "{}", moments.len());
    assert!(moments.is_sorted_by(|a, b| a.to <= b.from));
    let width = moments[0].to - moments[0].from;
    assert!(moments.iter().all(|m| m.to - m.from == width));
    let counted: u64 = moments.iter().map(|m| m.times.count()).sum();
    assert_eq!((counted, found.answered), (all, all));
    let mut causes = Causes::default();
    moments.iter().for_each(|m| causes.add(&m.causes));
    assert_eq!(causes, found.operations[0].causes);
    assert_eq!(found.operations[0].times.count(), all);
}

#[test]
fn a_protocol_that_was_seen_is_waited_for_however_much_is_missing() {
    // NULL of NFSv3, and its reply.
    let bytes = |words: &[u32]| {
        words
            .iter()
            .flat_map(|w| w.to_be_bytes())
            .collect::<Vec<_>>()
    };
    let call = bytes(&[0x8000_0028, 7, 0, 2, 100_003, 3, 0, 0, 0, 0, 0]);
    let reply = bytes(&[0x8000_0018, 7, 1, 0, 0, 0, 0]);
    let mut script = Script::new(65000);
    let ask = |script: &mut Script, at| {
        script.data(ms(at), false, call.len() as u32);
        script.data(ms(at + 12), true, reply.len() as u32);
    };
    ask(&mut script, 0);
    // A call of 200 kB, of whose first bytes the capture has nothing.
    for n in 0..200 {
        script.data(ms(20), false, MSS);
        if n == 0 {
            script.packets.pop();
        }
    }
    script.data(ms(40), true, reply.len() as u32);
    ask(&mut script, 50);
    let mut observer = RequestObserver::default();
    for packet in &script.packets {
        let payload = [&call, &reply]
            .into_iter()
            .find(|bytes| bytes.len() == packet.payload as usize);
        observer.push(
            packet,
            payload.map_or(&[0; MSS as usize][..packet.payload as usize], |b| b),
        );
    }
    let found = observer.finish();
    let names: Vec<_> = found.calls.iter().map(|call| &call.operation[..]).collect();
    assert_eq!(names, ["NFSv3 NULL", "NFSv3 NULL"], "{found:#?}");
}

/// A message of ONC RPC: a call of PORTMAP NULL, or its reply.
fn rpc(number: u8, is_call: bool) -> Vec<u8> {
    let words: &[u32] = match is_call {
        true => &[number.into(), 0, 2, 100_000, 2, 0, 0, 0, 0, 0],
        false => &[number.into(), 1, 0, 0, 0, 0],
    };
    let mark = 0x8000_0000 + 4 * words.len() as u32;
    let words = std::iter::once(&mark).chain(words);
    words.flat_map(|word| word.to_be_bytes()).collect()
}

#[test]
fn calls_in_one_packet_are_read_as_far_as_it_was_captured_and_the_others_are_counted() {
    let calls: Vec<u8> = (1..=3).flat_map(|n| rpc(n, true)).collect();
    let replies: Vec<u8> = (1..=4).flat_map(|n| rpc(n, false)).collect();
    let packet = |at, from_client: bool, seq, ack, bytes: &[u8]| {
        let mut ends = [([192, 0, 2, 1], 700), ([192, 0, 2, 2], 111)].map(SocketAddr::from);
        if !from_client {
            ends.reverse();
        }
        Packet {
            at: ms(at),
            seq,
            ack,
            flags: ACK | PSH,
            window: 65000,
            payload: bytes.len() as u32,
            ..Packet::new(ends[0], ends[1])
        }
    };
    for captured in 0..=calls.len() {
        let mut observer = RequestObserver::default();
        let mut syn = packet(0, true, u32::MAX, 0, &[]);
        syn.flags = SYN;
        observer.push(&syn, &[]);
        observer.push(&packet(0, true, 0, 0, &calls), &calls[..captured]);
        // The next one is whole.
        let (next, end) = (rpc(4, true), calls.len() as u32);
        observer.push(&packet(1, true, end, 0, &next), &next);
        observer.push(&packet(9, false, 0, end + 44, &replies), &replies);
        let found = observer.finish();
        // A call is reported if its mark and its number are captured, and the calls before it can be skipped.
        let known = (0..3).filter(|n| captured >= n * 44 + 8).count() as u64;
        assert_eq!((found.answered, found.unread), (known + 1, 3 - known));
        assert_eq!(found.unanswered, 0);
        let is_said = found
            .doubts
            .iter()
            .any(|doubt| doubt.contains("tcpdump -s 0"));
        assert_eq!(is_said, captured < 2 * 44 + 4, "{:?}", found.doubts);
        let named = |of: &str| found.operations.iter().any(|o| o.operation == of);
        assert!(named("PORTMAP NULL"));
        assert_eq!(
            named("RPC, cut off"),
            captured % 44 >= 8 && captured % 44 < 28
        );
    }
}

//! Captures whose cause is known, packet by packet.

use super::*;
use model::finding::{Conclusion, Confidence, Limit, Source};
use model::segment::tcp_flag::{ACK, FIN, RST, SYN};
use std::collections::VecDeque;
use std::net::SocketAddr;

/// A transfer of `window` bytes each round trip over a path of 20 ms, seen `to_client` from the client,
/// which sends. `drop` says what happens to a data packet: 0 passes, 1 is lost behind the capture, 2 is
/// lost before it, 3 passes but is not captured.
struct Path {
    to_client: Nanos,
    window: u32,
    rounds: u32,
    offered: u16,
    drop: fn(u32) -> u8,
}

const TRIP: Nanos = Nanos::from_millis(20);
const MSS: u32 = 1448;

impl Path {
    fn packets(&self) -> Vec<Packet> {
        let client: SocketAddr = ([192, 0, 2, 1], 40000).into();
        let server: SocketAddr = ([192, 0, 2, 2], 5210).into();
        let half = Nanos(self.to_client.0 / 2);
        let packet = |from_client: bool, at: Nanos, seq: u32, ack: u32, flags: u8| Packet {
            at,
            seq,
            ack,
            flags,
            window: self.offered,
            wscale: (flags & SYN != 0).then_some(0),
            ..match from_client {
                true => Packet::new(client, server),
                false => Packet::new(server, client),
            }
        };
        // Close to the wrap of the sequence.
        let base = u32::MAX - 100_000;
        let back = |sent: Nanos| sent + TRIP - half;
        let mut all = vec![
            packet(true, half, base.wrapping_sub(1), 0, SYN),
            packet(false, back(Nanos(0)), 7, base, SYN | ACK),
            packet(true, TRIP + half, base, 8, ACK),
        ];
        let mut seq = base;
        let mut number = 0;
        let mut sent = TRIP;
        for _ in 0..self.rounds {
            let mut again = Vec::new();
            let first = seq;
            for n in 0..self.window / MSS {
                let at = sent + Nanos(u64::from(n) * 1000);
                let data = Packet {
                    payload: MSS,
                    ..packet(true, at + half, seq, 8, ACK)
                };
                match (self.drop)(number) {
                    0 => all.push(data),
                    1 => {
                        all.push(data);
                        again.push(data);
                    }
                    2 => again.push(data),
                    _ => {}
                }
                number += 1;
                seq = seq.wrapping_add(MSS);
            }
            let end = sent + Nanos(u64::from(self.window / MSS) * 1000);
            if !again.is_empty() {
                all.push(packet(false, back(end), 8, again[0].seq, ACK));
                sent += TRIP;
                all.extend(again.iter().map(|data| Packet {
                    at: sent + Nanos(100_000) + half,
                    ..*data
                }));
            }
            let until = if first == seq { base } else { seq };
            all.push(packet(false, back(sent + Nanos(200_000)), 8, until, ACK));
            // The sender takes 10 us to answer.
            sent += TRIP + Nanos(210_000);
        }
        all.sort_by_key(|p| p.at);
        all
    }

    fn observe(&self) -> CaptureObserver {
        let mut observer = CaptureObserver::default();
        for packet in self.packets() {
            observer.push(&packet);
        }
        observer
    }
}

fn windowed(to_client: Nanos) -> Path {
    Path {
        to_client,
        window: 44 * MSS,
        rounds: 200,
        offered: 65_000,
        drop: |_| 0,
    }
}

#[test]
fn a_full_window_is_seen_from_anywhere_on_the_path() {
    for (to_client, source) in [
        (Nanos(0), Source::CaptureAtSender),
        (Nanos::from_millis(10), Source::CaptureBetween),
        (TRIP, Source::CaptureAtReceiver),
    ] {
        let path = windowed(to_client);
        let explanations = path.observe().explain().explanations;
        assert_eq!(explanations.len(), 1);
        assert_eq!(explanations[0].source, source);
        assert_eq!(
            explanations[0].cause(),
            Some(Limit::ReceiveWindow),
            "{source:?} {explanations:#?}"
        );
        let counted = path.observe().explain().streams;
        assert_eq!(explanations[0].bytes, Bytes(200 * 44 * u64::from(MSS)));
        assert_eq!(counted[0].segments, 200 * 44);
        assert_eq!(
            (counted[0].retransmissions, counted[0].unseen),
            (0, Bytes(0))
        );
    }
}

#[test]
fn half_of_the_window_is_not_full_and_two_causes_at_the_sender_fit() {
    let path = Path {
        window: 20 * MSS,
        ..windowed(Nanos(0))
    };
    let explanations = path.observe().explain().explanations;
    let by = vec![Limit::SendBuffer, Limit::Application];
    assert_eq!(
        explanations[0].conclusion,
        Conclusion::Limited { by },
        "{explanations:#?}"
    );
    assert!(!explanations[0].is_confident());
}

#[test]
fn losses_are_counted_wherever_they_happened_and_the_captures_own_are_not() {
    let lost = |n: u32| n % 88 == 20;
    let sometimes: [fn(u32) -> u8; 3] = [
        |n| u8::from(n % 88 == 20),
        |n| 2 * u8::from(n % 88 == 20),
        |n| 3 * u8::from(n % 88 == 20),
    ];
    let count = (0..200 * 44).filter(|n| lost(*n)).count() as u64;
    for (drop, again, unseen) in [
        (sometimes[0], count, 0),
        (sometimes[1], count, 0),
        (sometimes[2], 0, count * u64::from(MSS)),
    ] {
        let path = Path {
            drop,
            ..windowed(Nanos::from_millis(10))
        };
        let counted = &path.observe().explain().streams[0];
        assert_eq!(counted.retransmissions, again);
        assert_eq!(counted.unseen, Bytes(unseen));
        let explanations = path.observe().explain().explanations;
        let said = explanations[0]
            .doubts
            .iter()
            .any(|d| d.contains("not in the capture"));
        assert_eq!(said, unseen > 0);
    }
}

#[test]
fn a_policer_is_distinguished_from_random_loss() {
    let cause = |to_client: Nanos, drop: fn(u32) -> u8| {
        let path = Path {
            drop,
            window: 30 * MSS,
            ..windowed(to_client)
        };
        let explanation = path.observe().explain().explanations.swap_remove(0);
        (explanation.cause(), explanation.is_confident())
    };
    // The bucket holds 26 segments, and a round trip fills it; nothing that stands in a queue delays the others.
    let bucket = |n: u32| u8::from(n % 30 >= 26);
    assert_eq!(cause(Nanos(0), bucket), (Some(Limit::Policer), true));
    let chance = |n: u32| u8::from(n.wrapping_mul(2_654_435_761) >> 25 == 0);
    assert_eq!(cause(Nanos(0), chance), (Some(Limit::RandomLoss), true));
    // Behind the place of the loss the lost were not seen to leave.
    let before = |n: u32| 2 * u8::from(n % 30 >= 26);
    assert!(!cause(TRIP, before).1);
}

#[test]
fn a_connection_after_another_on_the_same_addresses_is_its_own() {
    let path = windowed(Nanos(0));
    let mut observer = CaptureObserver::default();
    let first = path.packets();
    let end = first.last().unwrap().at;
    for packet in &first {
        observer.push(packet);
    }
    let mut reset = first[first.len() - 1];
    reset.flags |= RST;
    observer.push(&reset);
    for packet in &first {
        observer.push(&Packet {
            at: packet.at + end,
            ..*packet
        });
    }
    assert_eq!(observer.explain().streams.len(), 2);
}

/// Follows these packets, and explains the first direction.
fn explained(packets: &[Packet]) -> Explained {
    let mut observer = CaptureObserver::default();
    for packet in packets.iter() {
        observer.push(packet);
    }
    observer.explain()
}

fn doubted(explained: &Explained, what: &str) -> bool {
    let all = explained.explanations.iter().flat_map(|e| &e.doubts);
    all.chain(&explained.doubts)
        .any(|doubt| doubt.contains(what))
}

#[test]
fn without_the_handshake_the_windows_decide_nothing() {
    let late = explained(&windowed(Nanos(0)).packets()[3..]);
    let by = vec![Limit::SendBuffer, Limit::Application, Limit::ReceiveWindow];
    assert_eq!(late.explanations[0].conclusion, Conclusion::Limited { by });
    assert!(doubted(&late, "the scale of the windows"));
    // Cut to 64 bytes a SYN has lost its scale, which is not the same as offering none.
    let mut cut = windowed(Nanos(0)).packets();
    for syn in &mut cut[..2] {
        (syn.wscale, syn.options_cut) = (None, true);
    }
    let cut = explained(&cut);
    assert_eq!(cut.explanations[0].source, Source::CaptureAtSender);
    assert!(!cut.explanations[0].is_confident());
    assert!(doubted(&cut, "the scale of the windows is not known"));
}

#[test]
fn without_the_handshake_timestamps_show_the_vantage() {
    for (to_client, source) in [
        (Nanos(0), Source::CaptureAtSender),
        (Nanos::from_millis(10), Source::CaptureBetween),
        (TRIP, Source::CaptureAtReceiver),
    ] {
        let path = windowed(to_client);
        let mut packets = path.packets().split_off(3);
        let base = packets[0].seq;
        for packet in &mut packets {
            let from_client = packet.payload > 0;
            let at = if from_client { packet.seq } else { packet.ack };
            let round = at.wrapping_sub(base) / (path.window / MSS * MSS);
            packet.stamps = Some(match from_client {
                true => (round + 100, round + 999),
                false => (round + 999, round + 99),
            });
        }
        let explained = explained(&packets);
        assert_eq!(explained.explanations[0].source, source);
    }
}

#[test]
fn a_window_that_is_contradicted_is_left_out() {
    let path = Path {
        offered: 700,
        ..windowed(Nanos(0))
    };
    let explained = explained(&path.packets());
    assert!(doubted(
        &explained,
        "their scale is not the one in the handshake"
    ));
    let cause = explained.explanations[0].cause();
    assert!(!matches!(
        cause,
        Some(Limit::ReceiveWindow | Limit::ZeroWindow)
    ));
}

#[test]
fn a_capture_of_one_direction_says_so() {
    let all = windowed(Nanos(0)).packets();
    let (client, server): (Vec<_>, Vec<_>) = all.iter().partition(|p| p.from == all[0].from);
    for (half, said) in [
        (client, "no acknowledgement of these data"),
        (
            server,
            "are not in the capture: it was taken in one direction only",
        ),
    ] {
        let explained = explained(&half);
        assert_eq!(explained.explanations.len(), 1);
        let one = &explained.explanations[0];
        assert_eq!(one.source, Source::CaptureSomewhere);
        assert_eq!(one.conclusion, Conclusion::Unexplained);
        let sent = 200 * 44 * u64::from(MSS);
        assert!((sent - 1..=sent).contains(&one.bytes.0), "{}", one.bytes);
        assert!(doubted(&explained, said), "{explained:#?}");
    }
}

#[test]
fn a_few_segments_of_one_direction_are_too_short() {
    let all = windowed(Nanos(0)).packets();
    for few in [&all[3..4], &all[3..20]] {
        let explained = explained(few);
        assert!(doubted(&explained, "no acknowledgement of these data"));
        assert_eq!(explained.explanations[0].conclusion, Conclusion::TooShort);
    }
}

#[test]
fn joined_segments_are_not_taken_for_the_segment_size() {
    let path = Path {
        offered: 60_000,
        ..windowed(Nanos(0))
    };
    let mut joined: Vec<Packet> = Vec::new();
    for packet in path.packets() {
        let syn = packet.has(SYN).then_some(1460);
        match joined.last_mut() {
            Some(last) if last.payload > 0 && packet.payload > 0 => last.payload += packet.payload,
            _ => joined.push(Packet { mss: syn, ..packet }),
        }
    }
    assert_eq!(joined[3].payload, 44 * MSS);
    let explained = explained(&joined);
    assert_eq!(
        explained.explanations[0].cause(),
        Some(Limit::ReceiveWindow)
    );
}

#[test]
fn a_packet_that_is_captured_twice_counts_once() {
    let all = windowed(Nanos::from_millis(10)).packets();
    let mut observer = CaptureObserver::default();
    for packet in &all {
        observer.push(packet);
        observer.push(&Packet {
            at: packet.at + Nanos(10),
            ..*packet
        });
    }
    let explained = observer.explain();
    let twice = &explained.streams[0];
    assert_eq!((twice.segments, twice.retransmissions), (200 * 44, 0));
    assert_eq!(twice.capture_duplicates, twice.segments);
    assert_eq!(explained.explanations[0].source, Source::CaptureBetween);
    assert!(doubted(&explained, "twice"));
}

#[test]
fn a_flood_of_attempts_makes_room_for_what_carries_data() {
    let real = windowed(Nanos(0)).packets();
    let attempt = |n: usize| Packet {
        from: ([10, 0, (n >> 8) as u8, n as u8], 9).into(),
        ..real[0]
    };
    let mut packets: Vec<Packet> = (0..MOST_CONNECTIONS + 300).map(attempt).collect();
    packets.extend(&real);
    packets.extend((0..2 * MOST_CONNECTIONS).map(attempt));
    let mut observer = CaptureObserver::default();
    for packet in packets.iter() {
        observer.push(packet);
    }
    let explained = observer.explain();
    assert_eq!(explained.explanations.len(), 1);
    assert_eq!(
        explained.explanations[0].cause(),
        Some(Limit::ReceiveWindow)
    );
    assert!(doubted(&explained, "connection attempts failed"));
}

/// A connection from this port: a request, an answer of so many bytes, and the end.
fn short(port: u16, answer: u32) -> Vec<Packet> {
    let client: SocketAddr = ([192, 0, 2, 1], port).into();
    let server: SocketAddr = ([192, 0, 2, 2], 80).into();
    let at = |n: u64| Nanos(u64::from(port) * 1_000_000 + n * 100_000);
    let all = [
        (true, 0, 0, SYN, 0),
        (false, 0, 1, SYN | ACK, 0),
        (true, 1, 1, ACK, 10),
        (false, 1, 11, ACK, answer),
        (true, 11, 1 + answer, ACK | FIN, 0),
        (false, 1 + answer, 12, ACK | FIN, 0),
        (true, 12, 2 + answer, ACK, 0),
    ];
    (0..)
        .zip(all)
        .map(|(n, (from_client, seq, ack, flags, payload))| Packet {
            at: at(n),
            seq,
            ack,
            flags,
            payload,
            window: 1000,
            wscale: (flags & SYN != 0).then_some(7),
            ..match from_client {
                true => Packet::new(client, server),
                false => Packet::new(server, client),
            }
        })
        .collect()
}

#[test]
fn connections_that_are_over_make_room() {
    let many = 3 * MOST_CONNECTIONS as u16;
    for most in [usize::MAX, 5] {
        let mut observer = CaptureObserver::of_most(most);
        for port in 1..=many {
            let packets = short(port, 1000 + u32::from(port % 7));
            for packet in packets.iter() {
                observer.push(packet);
            }
            // Late ones belong to it as well.
            observer.push(&packets[3]);
            observer.push(&packets[5]);
        }
        let kept = most.min(MOST_CONNECTIONS) as u16;
        let all = observer.explain();
        assert_eq!(all.explanations.len(), usize::from(kept));
        let ports: Vec<u16> = all
            .explanations
            .iter()
            .filter_map(|e| Some(e.receiver?.port()))
            .collect();
        assert!(ports.is_sorted());
        if most == 5 {
            assert_eq!(ports, [6, 13, 20, 27, 34]);
        }
        assert!(doubted(
            &all,
            &format!("{} more connections of", many - kept)
        ));
        assert_eq!(doubted(&all, "--json"), most == 5);
    }
}

#[test]
fn of_many_connections_those_with_the_most_bytes_are_reported() {
    let all = windowed(Nanos(0)).packets();
    let mut observer = CaptureObserver::of_most(3);
    for n in 0..10u16 {
        let port = |mut end: SocketAddr| {
            end.set_port(end.port() + n);
            end
        };
        for packet in &all[..10 + usize::from(n)] {
            let (from, to) = (port(packet.from), port(packet.to));
            observer.push(&Packet {
                from,
                to,
                ..*packet
            });
        }
    }
    let explained = observer.explain();
    let ports = explained
        .explanations
        .iter()
        .map(|e| e.sender.unwrap().port());
    assert_eq!(ports.collect::<Vec<_>>(), [40007, 40008, 40009]);
    assert!(doubted(&explained, "7 more connections of"));
}

/// Packets of a connection at its client, written one by one; times in microseconds.
struct Script {
    packets: Vec<Packet>,
    at: u64,
    /// Sequence numbers of the client and of the server.
    next: [u32; 2],
    seen: [u32; 2],
}

impl Script {
    fn new() -> Script {
        let packets = windowed(Nanos(0)).packets()[..3].to_vec();
        let next = [packets[1].ack, packets[2].ack];
        let mut script = Script {
            packets,
            at: TRIP.0 / 1000,
            next,
            seen: next,
        };
        for packet in &mut script.packets[..2] {
            packet.mss = Some(1460);
        }
        script
    }

    /// A packet of one side (0 is the client) after `after`; it acknowledges what arrived by then.
    fn packet(&mut self, after: u64, end: usize, payload: u32) -> &mut Packet {
        self.at += after;
        let of = self.packets[if end == 0 { 2 } else { 1 }];
        self.packets.push(Packet {
            at: Nanos(self.at * 1000),
            seq: self.next[end],
            ack: self.seen[1 - end],
            flags: ACK,
            payload,
            wscale: None,
            mss: None,
            ..of
        });
        self.next[end] = self.next[end].wrapping_add(payload);
        self.packets.last_mut().unwrap()
    }

    /// The peer has received all of it.
    fn arrived(&mut self, end: usize) {
        self.seen[end] = self.next[end];
    }

    fn conclusion(&self) -> Conclusion {
        let explained = explained(&self.packets);
        explained.explanations[0].conclusion.clone()
    }
}

fn by(limits: &[Limit]) -> Conclusion {
    Conclusion::Limited {
        by: limits.to_vec(),
    }
}

#[test]
fn a_short_segment_that_an_acknowledgement_lets_go_was_held() {
    // What lets the second part of each request go: a bare acknowledgement, at once or late; or an answer to the first.
    let talk = |ack_after: u64, answered: u32| {
        let mut script = Script::new();
        for _ in 0..60 {
            for (after, answer) in [(ack_after, answered), (20_000, 1)] {
                script.packet(50, 0, 100);
                script.arrived(0);
                script.packet(after, 1, answer);
                script.arrived(1);
            }
        }
        script.conclusion()
    };
    assert_eq!(talk(60_000, 0), by(&[Limit::Nagle, Limit::DelayedAck]));
    assert_eq!(talk(20_000, 0), by(&[Limit::Nagle]));
    assert_eq!(talk(60_000, 1), Conclusion::Innocent);
}

#[test]
fn a_window_of_one_segment_waits_for_the_peers_timer() {
    let ask = |first: u64, segments: u32, again: u64| {
        let mut script = Script::new();
        for n in 0..60 {
            for segment in 0..segments {
                script.packet(50, 0, MSS);
                script.arrived(0);
                // The last of a request is acknowledged by its answer.
                let answer = u32::from(segment + 1 == segments && segments > 1);
                script.packet(if n == 0 { first } else { again }, 1, answer);
                script.arrived(1);
            }
        }
        script.conclusion()
    };
    let late = by(&[Limit::DelayedAck]);
    assert_eq!(ask(20_000, 2, 60_000), late);
    assert_eq!(ask(20_000, 1, 62_000), late);
    assert_ne!(ask(20_000, 1, 20_000), late);
    // A path that was never faster.
    assert_ne!(ask(60_000, 1, 60_000), late);
}

/// Two segments every two milliseconds, acknowledged after the round trip; stamped so much earlier from the second
/// on, in milliseconds.
fn clocked(late: Option<u64>) -> Script {
    let mut script = Script::new();
    let mut coming = VecDeque::new();
    for n in 0..400u64 {
        let stamp = late.map(|late| ((n * 2 + 1000 - late.min(n)) as u32, 0));
        script.packet(2000, 0, 2 * MSS).stamps = stamp;
        coming.push_back(script.next[0]);
        if coming.len() > 9 {
            script.seen[0] = coming.pop_front().unwrap();
            script.packet(1000, 1, 0);
            script.at -= 1000;
        }
    }
    script
}

#[test]
fn sends_by_a_clock_are_paced_or_the_applications_and_late_ones_lay_in_a_queue() {
    let held = [Limit::Pacing, Limit::Application];
    assert_eq!(clocked(None).conclusion(), by(&held));
    assert_eq!(clocked(Some(0)).conclusion(), by(&held));
    assert_eq!(clocked(Some(5)).conclusion(), by(&[Limit::DeviceQueue]));
}

#[test]
fn a_line_that_falls_idle_is_not_full() {
    // A burst into a queue that takes 20 ms to empty, and 20 ms of silence: the round trip is inflated all the same.
    let mut script = Script::new();
    for _ in 0..50 {
        for _ in 0..20 {
            script.packet(10, 0, MSS);
        }
        script.at += 20_000;
        for _ in 0..20 {
            script.seen[0] = script.seen[0].wrapping_add(MSS);
            script.packet(1000, 1, 0);
        }
    }
    assert_eq!(
        script.conclusion(),
        by(&[Limit::Application, Limit::SendBuffer])
    );
}

#[test]
fn full_segments_that_never_arrive_are_a_black_hole() {
    let vanish = |passed: u32| {
        let mut script = Script::new();
        script.packet(100, 0, passed);
        script.arrived(0);
        script.packet(20_000, 1, 0);
        let first = script.next[0];
        for wait in [100, 220_000, 440_000, 880_000, 1_760_000, 3_520_000] {
            script.next[0] = first;
            script.packet(wait, 0, MSS);
        }
        script.conclusion()
    };
    assert_eq!(vanish(36), by(&[Limit::BlackHole]));
    assert_ne!(vanish(MSS), by(&[Limit::BlackHole]));
}

#[test]
fn a_silence_in_which_data_were_sent_that_never_came_is_the_senders_wait() {
    // At the receiver, which ends the connection after six seconds: the sender counts more than it had seen by then.
    let silence = |missing: u32| {
        let mut script = Script::new();
        for _ in 0..1000 {
            script.packet(1000, 1, MSS);
            script.arrived(1);
            script.packet(10, 0, 0);
        }
        script.packet(6_000_000, 0, 0).flags |= FIN;
        script.next[1] = script.next[1].wrapping_add(missing);
        script.packet(20_000, 1, 0);
        script.conclusion()
    };
    assert_eq!(silence(100 * MSS), by(&[Limit::RtoStall]));
    assert_ne!(silence(MSS), by(&[Limit::RtoStall]));
}

#[test]
fn what_fits_any_initial_window_is_not_laid_on_the_congestion_window() {
    // A server that says a byte now and then, captured at the client: the next comes a round trip after the last was
    // acknowledged.
    let mut script = Script::new();
    for _ in 0..15 {
        script.packet(TRIP.0 / 1000, 1, 1);
        script.arrived(1);
        script.packet(80_000, 0, 0);
    }
    let one = &explained(&script.packets).explanations[0];
    assert_eq!(one.source, Source::CaptureAtReceiver);
    assert_eq!(one.finding(Limit::CongestionWindow), None);
}

#[derive(Clone, Copy, PartialEq)]
enum Queue {
    OfData,
    OfAcknowledgements,
}

/// A full line at 1.2 ms a segment behind a queue, at the receiver: 30 segments are out, and every hundredth is lost.
/// With timestamps each segment echoes the acknowledgement that let it go, and the queue is before or behind the receiver.
fn queued(stamps: Option<Queue>) -> Explained {
    const LINE: u64 = 1_200_000;
    const OUT: u64 = 30;
    let path = windowed(TRIP);
    let opening = path.packets();
    let (data, reply) = (opening[2], opening[1]);
    let stamp = |value: u64, echo: u64| stamps.map(|_| (value as u32 + 1000, echo as u32 + 1000));
    let mut packets = opening[..3].to_vec();
    let arrival = |n: u64| Nanos(2 * TRIP.0 + n * LINE);
    let of = |n: u64| data.seq.wrapping_add(n as u32 * MSS);
    let mut missing = VecDeque::new();
    let mut next = 0;
    for n in 0..4000u64 {
        let again = missing.pop_front_if(|(_, at): &mut (u64, u64)| *at <= n);
        let number = again.map_or(next, |(lost, _)| lost);
        next += u64::from(again.is_none());
        if number % 100 == 50 && again.is_none() {
            missing.push_back((number, n + OUT));
            continue;
        }
        let now = arrival(n).0 / 1_000_000;
        let half = TRIP.0 / 2;
        let left = match n.checked_sub(OUT) {
            _ if stamps == Some(Queue::OfAcknowledgements) => arrival(n).0 - half,
            Some(acked) => arrival(acked).0 + half,
            None => arrival(0).0 - half,
        };
        packets.push(Packet {
            at: arrival(n),
            seq: of(number),
            payload: MSS,
            stamps: stamp(
                left / 1_000_000,
                arrival(n.saturating_sub(OUT)).0 / 1_000_000,
            ),
            ..data
        });
        packets.push(Packet {
            at: arrival(n) + Nanos(20_000),
            seq: reply.seq.wrapping_add(1),
            ack: missing.front().map_or(of(next), |(lost, _)| of(*lost)),
            flags: ACK,
            wscale: None,
            window: u16::MAX,
            stamps: stamp(now, 0),
            ..reply
        });
    }
    explained(&packets)
}

#[test]
fn at_the_receiver_the_echo_of_timestamps_shows_the_queue() {
    let one = &queued(Some(Queue::OfData)).explanations[0];
    assert_eq!(one.source, Source::CaptureAtReceiver);
    assert!(
        matches!(
            one.cause(),
            Some(Limit::BottleneckRate | Limit::Bufferbloat)
        ),
        "{one:#?}"
    );
    let blind = &queued(None).explanations[0];
    assert!(!blind.is_confident(), "{blind:#?}");
    // A sender that waits before it answers an acknowledgement looks the same there as a queue behind the receiver.
    let one = &queued(Some(Queue::OfAcknowledgements)).explanations[0];
    // What is lost without a queue before the receiver is lost for another reason; but the line is full.
    let all = [
        Limit::BottleneckRate,
        Limit::AckPath,
        Limit::RandomLoss,
        Limit::BurstLoss,
    ];
    assert_eq!(one.conclusion, by(&all));
    assert!(!one.is_confident(), "{one:#?}");
}

/// A segment a millisecond at the receiver, on a path of 5 ms whose queue others fill and empty, up to 20 ms: a segment is lost
/// whenever it is full, or whenever it is empty. The handshake took [`TRIP`].
fn lost_in_a_queue_of_others(full: bool) -> Explained {
    const HALF: u64 = 2_500;
    let opening = windowed(TRIP).packets();
    let (data, reply) = (opening[2], opening[1]);
    let begun = 2 * TRIP.0 / 1000;
    // Microseconds.
    let arrival = |n: u64| begun + n * 1000 + HALF + (n % 80).min(80 - n % 80) * 500;
    let stamp =
        |value: u64, echo: u64| Some((value as u32 / 1000 + 1000, echo as u32 / 1000 + 1000));
    let of = |number: u64| data.seq.wrapping_add(number as u32 * MSS);
    let mut packets = opening[..3].to_vec();
    packets[..2].iter_mut().for_each(|syn| syn.wscale = Some(7));
    let (mut next, mut missing) = (0, None);
    for n in 0..4000u64 {
        let again = missing.filter(|(_, at)| *at <= n).map(|(number, _)| number);
        let number = again.unwrap_or(next);
        next += u64::from(again.is_none());
        if again.is_some() {
            missing = None;
        } else if n % 80 == if full { 40 } else { 0 } && n > 80 {
            missing = Some((number, n + 30));
            continue;
        }
        let left = begun + n * 1000;
        let acked = (0..n).rev().map(arrival).find(|at| at + HALF <= left);
        packets.push(Packet {
            at: Nanos(arrival(n) * 1000),
            seq: of(number),
            payload: MSS,
            stamps: stamp(left, acked.unwrap_or(0)),
            ..data
        });
        packets.push(Packet {
            at: Nanos((arrival(n) + 20) * 1000),
            seq: reply.seq.wrapping_add(1),
            ack: of(missing.map_or(next, |(lost, _)| lost)),
            flags: ACK,
            wscale: None,
            window: u16::MAX,
            stamps: stamp(arrival(n), 0),
            ..reply
        });
    }
    explained(&packets)
}

#[test]
fn at_the_receiver_timestamps_show_a_queue_at_the_losses_that_the_handshake_met_as_well() {
    for full in [true, false] {
        let one = &lost_in_a_queue_of_others(full).explanations[0];
        assert_eq!(one.source, Source::CaptureAtReceiver);
        let no_queue = one.finding(Limit::RandomLoss).is_some();
        assert_eq!(no_queue, !full, "{:#?}", one.findings);
    }
}

#[test]
fn packets_do_not_show_why_nobody_writes() {
    // A segment every 50 ms on a path of 20 ms: an application, or a pacing rate; the former if it is not full.
    let every_50_ms = |size: u32| {
        let mut script = Script::new();
        script.packet(1000, 1, 38); // One request begins it.
        script.arrived(1);
        for _ in 0..100 {
            script.packet(30_000, 0, size);
            script.arrived(0);
            script.packet(20_000, 1, 0);
        }
        explained(&script.packets).explanations.remove(0)
    };
    let full = every_50_ms(MSS);
    assert_eq!(full.conclusion, by(&[Limit::Pacing, Limit::Application]));
    assert!(!full.is_confident(), "{full:#?}");
    let short = every_50_ms(1000);
    assert_eq!(short.conclusion, by(&[Limit::Application]));
    assert!(!short.is_confident(), "{short:#?}");
}

#[test]
fn the_window_of_a_reset_is_not_a_closed_window() {
    // After five seconds without packets the receiver aborts the connection.
    let mut script = Script::new();
    for _ in 0..30 {
        script.packet(100, 0, MSS);
        script.arrived(0);
        script.packet(20_000, 1, 0);
    }
    let reset = script.packet(5_000_000, 1, 0);
    (reset.window, reset.flags) = (0, RST | ACK);
    let one = &explained(&script.packets).explanations[0];
    assert_eq!(one.finding(Limit::ZeroWindow), None, "{one:#?}");
}

#[test]
fn probes_of_a_closed_window_are_no_timeouts() {
    // A window that closes for six seconds; the sender probes with one byte that it has not sent (Solaris, BSD), or
    // with none that it has (Linux).
    let probed = |payload: u32| {
        let mut script = Script::new();
        for _ in 0..30 {
            script.packet(100, 0, MSS);
            script.arrived(0);
            script.packet(20_000, 1, 0);
        }
        script.packet(100, 0, MSS);
        script.arrived(0);
        script.packet(20_000, 1, 0).window = 0;
        for wait in [400_000, 800_000, 1_600_000, 3_200_000] {
            let next = script.next[0];
            let probe = script.packet(wait, 0, payload);
            if payload == 0 {
                probe.seq = next.wrapping_sub(1);
            }
            script.next[0] = next;
            script.packet(20_000, 1, 0).window = 0;
        }
        script.packet(100_000, 1, 0);
        for _ in 0..30 {
            script.packet(100, 0, MSS);
            script.arrived(0);
            script.packet(20_000, 1, 0);
        }
        let explained = explained(&script.packets);
        let figures = &explained.streams[0];
        assert_eq!((figures.segments, figures.retransmissions), (61, 0));
        assert_eq!(figures.unseen, Bytes(0));
        let one = &explained.explanations[0];
        assert_eq!(one.finding(Limit::RtoStall), None, "{one:#?}");
        assert_eq!(one.cause(), Some(Limit::ReadingApplication), "{one:#?}");
    };
    probed(0);
    probed(1);
}

#[test]
fn what_is_smaller_than_a_full_segment_does_not_vanish_by_its_size() {
    // Joined segments pass, then a short one is lost five times.
    let lost = |overtaken: bool, captured: bool| {
        let mut script = Script::new();
        script.packet(100, 0, 36);
        script.arrived(0);
        script.packet(20_000, 1, 0);
        for _ in 0..40 {
            script.packet(100, 0, 600);
            script.arrived(0);
            script.packet(20_000, 1, 0);
        }
        for _ in 0..3 {
            script.packet(100, 0, 4 * 1460);
            if overtaken {
                // What leaves second passes first.
                script.packet(10, 0, 100);
                let end = script.packets.len();
                let [first, second] = [end - 2, end - 1].map(|n| script.packets[n].at);
                script.packets.swap(end - 2, end - 1);
                (script.packets[end - 2].at, script.packets[end - 1].at) = (first, second);
            } else if !captured {
                script.packets.pop();
            }
            script.arrived(0);
            script.packet(20_000, 1, 0);
        }
        let first = script.next[0];
        for wait in [100, 220_000, 440_000, 880_000, 1_760_000, 3_520_000] {
            script.next[0] = first;
            script.packet(wait, 0, 648);
        }
        let one = &explained(&script.packets).explanations[0];
        assert_eq!(one.finding(Limit::BlackHole), None, "{one:#?}");
    };
    lost(false, true);
    lost(true, true);
    lost(false, false);
}

#[test]
fn the_tick_of_timestamps_is_learned() {
    // Sends by a clock, whose stamps count so many milliseconds each.
    for tick in [1, 4, 10, 100] {
        let stamped = |late: u64| {
            let mut script = clocked(Some(0));
            for (n, packet) in (0u64..).zip(&mut script.packets) {
                let at = packet.at.0 / 1_000_000;
                packet.stamps = packet
                    .stamps
                    .map(|_| (((at + 10_000 - late.min(n)) / tick) as u32, 0));
            }
            script.conclusion()
        };
        assert_ne!(stamped(0), by(&[Limit::DeviceQueue]), "{tick}");
        if tick < 100 {
            assert_eq!(stamped(5 * tick), by(&[Limit::DeviceQueue]), "{tick}");
        }
    }
    // Stamps that are no clock.
    let mut script = clocked(Some(0));
    for (n, packet) in (0u32..).zip(&mut script.packets) {
        packet.stamps = packet.stamps.map(|_| (n.wrapping_mul(n), 0));
    }
    assert_ne!(script.conclusion(), by(&[Limit::DeviceQueue]));
}

#[test]
fn a_transfer_that_timeouts_stopped_is_not_too_short() {
    // Of twelve segments five are retransmissions, in nine seconds.
    let mut script = Script::new();
    for _ in 0..7 {
        script.packet(100, 0, MSS);
        script.arrived(0);
        script.packet(20_000, 1, 0);
    }
    let first = script.next[0];
    for wait in [100, 300_000, 600_000, 1_200_000, 2_400_000, 4_700_000] {
        script.next[0] = first;
        script.packet(wait, 0, 400);
    }
    script.arrived(0);
    script.packet(20_000, 1, 0);
    assert_eq!(script.conclusion(), by(&[Limit::RtoStall]));
}

#[test]
fn data_that_never_came_are_an_outage_at_the_receiver() {
    // A second of data, six seconds of nothing, and then a packet behind sixty segments that never came; or they did.
    for came in [false, true] {
        let mut script = Script::new();
        for _ in 0..50 {
            script.packet(100, 0, MSS);
            script.arrived(0);
            script.packet(20_000, 1, 0);
        }
        script.next[0] = script.next[0].wrapping_add(60 * MSS);
        script.packet(6_000_000, 0, 0);
        if came {
            script.arrived(0);
            script.packet(20_000, 1, 0);
        }
        let is_outage = script.conclusion() == by(&[Limit::RtoStall]);
        assert_eq!(is_outage, !came, "{:#?}", explained(&script.packets));
        let explained = explained(&script.packets);
        let stall = explained.explanations[0].finding(Limit::RtoStall);
        assert_eq!(
            stall.map(|f| f.confidence),
            (!came).then_some(Confidence::Possible)
        );
    }
}

#[test]
fn a_capture_of_both_directions_is_not_said_to_have_one() {
    // The peer answers the handshake, and none of the data.
    let mut script = Script::new();
    let first = script.next[0];
    for wait in [100, 300_000, 600_000, 1_200_000, 2_400_000, 4_700_000] {
        script.next[0] = first;
        script.packet(wait, 0, 400);
    }
    let dead = explained(&script.packets);
    assert!(!doubted(&dead, "one direction only"), "{dead:#?}");
    assert_eq!(dead.explanations[0].conclusion, by(&[Limit::RtoStall]));
    // The capture holds a few of the data, and an acknowledgement of a gigabyte more.
    let mut script = Script::new();
    for _ in 0..20 {
        script.packet(100, 0, MSS);
        script.arrived(0);
        script.packet(20_000, 1, 0);
    }
    script.seen[0] = script.seen[0].wrapping_add((1 << 30) - 1);
    script.packet(20_000, 1, 0);
    let leap = explained(&script.packets);
    assert!(!doubted(&leap, "one direction only"), "{leap:#?}");
    assert!(doubted(&leap, "not in the capture"), "{leap:#?}");
    assert_eq!(leap.explanations[0].bytes, Bytes(20 * u64::from(MSS)));
}

/// Four connections from one host to another, each with eight segments in flight: lost ones first, then new ones. What is
/// lost is said by round and place among the 32.
fn sharing(lost: impl Fn(u32, usize) -> bool) -> Vec<Packet> {
    const BASE: u32 = 1000;
    let server: SocketAddr = ([192, 0, 2, 2], 5210).into();
    let packet = |of: usize, from_client: bool, at: Nanos, seq: u32, ack: u32, flags: u8| {
        let client: SocketAddr = ([192, 0, 2, 1], 40_000 + of as u16).into();
        let (from, to) = match from_client {
            true => (client, server),
            false => (server, client),
        };
        Packet {
            at,
            seq,
            ack,
            flags,
            window: 65_000,
            wscale: (flags & SYN != 0).then_some(0),
            ..Packet::new(from, to)
        }
    };
    let mut all = Vec::new();
    for of in 0..4 {
        all.push(packet(of, true, Nanos(0), BASE - 1, 0, SYN));
        all.push(packet(of, false, TRIP, 7, BASE, SYN | ACK));
        all.push(packet(of, true, TRIP, BASE, 8, ACK));
    }
    let mut next = [BASE; 4];
    let mut missing: [Vec<u32>; 4] = Default::default();
    let mut loser = 0;
    for round in 1..200u32 {
        let at = Nanos(u64::from(round) * (TRIP.0 + 500_000));
        loser = (loser + 1 + (round.wrapping_mul(2_654_435_761) >> 16) as usize % 3) % 4;
        for place in 0..4 {
            let of = (loser + 1 + place) % 4;
            let mut out = std::mem::take(&mut missing[of]);
            while out.len() < 8 {
                out.push(next[of]);
                next[of] += MSS;
            }
            for (n, seq) in out.into_iter().enumerate() {
                let at = at + Nanos((8 * place + n) as u64 * 1000);
                all.push(Packet {
                    payload: MSS,
                    ..packet(of, true, at, seq, 8, ACK)
                });
                if lost(round, 8 * place + n) {
                    missing[of].push(seq);
                }
            }
            let acked = missing[of].first().copied().unwrap_or(next[of]);
            let at = at + TRIP + Nanos(40_000 + of as u64);
            all.push(packet(of, false, at, 8, acked, ACK));
        }
    }
    all.sort_by_key(|p| p.at);
    all
}

#[test]
fn a_bucket_that_connections_share_is_found_from_all_of_them() {
    // It holds 26 segments, is empty before the next round trip, and drops the last six of one connection or another.
    let packets = sharing(|_, place| place >= 26);
    let policed = |packets: &[Packet]| -> Vec<bool> {
        let explained = explained(packets).explanations;
        let causes = explained.iter().map(|e| e.cause() == Some(Limit::Policer));
        causes.collect()
    };
    let is_first = |p: &&Packet| [p.from.port(), p.to.port()].contains(&40_000);
    let alone: Vec<Packet> = packets.iter().filter(is_first).copied().collect();
    assert_eq!(policed(&alone), [false]);
    assert_eq!(policed(&packets), [true; 4]);
    let explained = explained(&packets).explanations;
    let evidence = |e: &Explanation, key| e.findings[0].evidence.iter().any(|e| e.key == key);
    let key = model::finding::EvidenceKey::BucketConnections;
    assert!(explained.iter().all(|e| evidence(e, key)));
}

#[test]
fn where_others_lose_too_the_losses_of_one_connection_exclude_no_bucket() {
    let packets = sharing(|round, place| {
        let number = u64::from(round) * 32 + place as u64;
        (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40).is_multiple_of(30)
    });
    let excluded = |packets: &[Packet]| -> Vec<bool> {
        let key = model::finding::EvidenceKey::LossSeparation;
        let explained = explained(packets).explanations;
        let evidence = |e: &Explanation| -> bool {
            let mut all = e.findings.iter().flat_map(|finding| &finding.evidence);
            all.any(|evidence| evidence.key == key)
        };
        explained.iter().map(evidence).collect()
    };
    let is_first = |p: &&Packet| [p.from.port(), p.to.port()].contains(&40_000);
    let alone: Vec<Packet> = packets.iter().filter(is_first).copied().collect();
    assert_eq!(excluded(&alone), [true]);
    assert_eq!(excluded(&packets), [false; 4]);
}

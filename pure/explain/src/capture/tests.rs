//! Captures whose cause is known, packet by packet.

use super::*;
use model::finding::Conclusion;
use model::finding::{Limit, Source};
use model::segment::tcp_flag::RST;

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
            from: if from_client { client } else { server },
            to: if from_client { server } else { client },
            seq,
            ack,
            flags,
            window: self.offered,
            payload: 0,
            wscale: (flags & SYN != 0).then_some(0),
            mss: None,
            sack: None,
            stamps: None,
            options_cut: false,
            fragment: false,
            marked: false,
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
            sent += TRIP + Nanos(300_000);
        }
        all.sort_by_key(|p| p.at);
        all
    }

    fn observe(&self) -> Observer {
        let mut observer = Observer::new();
        for packet in self.packets() {
            observer.see(&packet);
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
        let told = path.observe().explain(usize::MAX).explanations;
        assert_eq!(told.len(), 1);
        assert_eq!(told[0].source, source);
        assert_eq!(
            told[0].cause(),
            Some(Limit::ReceiveWindow),
            "{source:?} {told:#?}"
        );
        let counted = path.observe().counted();
        assert_eq!(counted[0].bytes, Bytes(200 * 44 * u64::from(MSS)));
        assert_eq!(counted[0].range, counted[0].bytes.0);
        assert_eq!((counted[0].retransmitted, counted[0].unseen), (0, Bytes(0)));
    }
}

#[test]
fn half_of_the_window_is_not_full_and_two_causes_at_the_sender_fit() {
    let path = Path {
        window: 20 * MSS,
        ..windowed(Nanos(0))
    };
    let told = path.observe().explain(usize::MAX).explanations;
    let by = vec![Limit::SendBuffer, Limit::Application];
    assert_eq!(told[0].conclusion, Conclusion::Limited { by }, "{told:#?}");
    assert!(!told[0].is_confident());
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
        let counted = &path.observe().counted()[0];
        assert_eq!(counted.retransmitted, again);
        assert_eq!(counted.unseen, Bytes(unseen));
        let told = path.observe().explain(usize::MAX).explanations;
        let said = told[0].doubts.iter().any(|d| d.contains("never seen"));
        assert_eq!(said, unseen > 0);
    }
}

#[test]
fn a_connection_after_another_on_the_same_addresses_is_its_own() {
    let path = windowed(Nanos(0));
    let mut observer = Observer::new();
    let first = path.packets();
    let end = first.last().unwrap().at;
    for packet in &first {
        observer.see(packet);
    }
    let mut reset = first[first.len() - 1];
    reset.flags |= RST;
    observer.see(&reset);
    for packet in &first {
        observer.see(&Packet {
            at: packet.at + end,
            ..*packet
        });
    }
    assert_eq!(observer.counted().len(), 2);
}

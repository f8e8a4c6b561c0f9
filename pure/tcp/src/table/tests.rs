use super::*;
use crate::waits::Wait;
use model::Nanos;
use model::segment::tcp_flag::{FIN, RST};

const BOUNDS: TableBounds = TableBounds {
    connections: 1 << 10,
    over: 8,
};

fn table() -> ConnectionTable<(), ()> {
    ConnectionTable::new(BOUNDS)
}

fn push(table: &mut ConnectionTable<(), ()>, packet: &Packet) {
    table.push(packet, &mut |gone| Some(gone.connection));
}

/// A SYN of the client with this address.
fn syn(client: u32) -> Packet {
    Packet {
        flags: SYN,
        ..Packet::new(
            (client.to_be_bytes(), 9).into(),
            ([192, 0, 2, 2], 80).into(),
        )
    }
}

/// A connection from this port: a request, an answer, and the end.
fn short(port: u16) -> Vec<Packet> {
    let client: SocketAddr = ([192, 0, 2, 1], port).into();
    let server: SocketAddr = ([192, 0, 2, 2], 80).into();
    let all = [
        (true, 0, 0, SYN, 0),
        (false, 0, 1, SYN | ACK, 0),
        (true, 1, 1, ACK, 10),
        (false, 1, 11, ACK, 3000),
        (true, 11, 3001, ACK | FIN, 0),
        (false, 3001, 12, ACK | FIN, 0),
        (true, 12, 3002, ACK, 0),
    ];
    let packet = |(n, (from_client, seq, ack, flags, payload))| Packet {
        at: Nanos(n),
        seq,
        ack,
        flags,
        payload,
        ..match from_client {
            true => Packet::new(client, server),
            false => Packet::new(server, client),
        }
    };
    (0..).zip(all).map(packet).collect()
}

#[test]
fn a_flood_of_attempts_makes_room_for_what_carries_data() {
    let mut table = table();
    let attempt = |n| syn(10 << 24 | n);
    (0..BOUNDS.connections as u32 + 300).for_each(|n| push(&mut table, &attempt(n)));
    short(7)[..4].iter().for_each(|p| push(&mut table, p));
    (0..2 * BOUNDS.connections as u32).for_each(|n| push(&mut table, &attempt(n)));
    assert_eq!(table.slots.len(), BOUNDS.connections);
    assert!(table.index.len() <= BOUNDS.connections);
    let mut bytes = 0;
    table.close(&mut |gone| {
        bytes += gone.connection.bytes();
        None
    });
    assert_eq!(bytes, 3010);
    assert!(table.attempts() > 0);
}

#[test]
fn ends_that_meet_in_one_row_of_the_index_are_kept_apart() {
    // As an attacker could choose them; and others, for which the index grows.
    let meet = |packet: &Packet| index::hash(&AddressPair::of(packet).0) >> 20 == 7;
    let mut asked: Vec<Packet> = (10 << 24..).map(syn).filter(meet).take(200).collect();
    asked.extend((11 << 24..).map(syn).take(200));
    let mut table = table();
    // The same packets again, and then others of the same ends, for connections after those.
    for (gone, later) in [(0, 0), (0, 7), (400, 0)] {
        asked.iter().for_each(|p| push(&mut table, p));
        assert_eq!(table.slots.len(), 400 + gone.min(BOUNDS.over));
        assert_eq!(table.index.len(), 400);
        asked.iter_mut().for_each(|p| p.seq += later);
    }
    table.close(&mut |_| None);
    assert_eq!(table.attempts(), 800);
}

#[test]
fn connections_that_are_over_make_room() {
    let mut table = table();
    for port in 1..=3 * BOUNDS.connections as u16 {
        let packets = short(port);
        packets.iter().for_each(|p| push(&mut table, p));
        // Late ones belong to it as well.
        push(&mut table, &packets[3]);
        push(&mut table, &packets[5]);
    }
    assert_eq!(table.slots.len(), BOUNDS.over + 1);
    assert_eq!(table.index.len(), BOUNDS.over);
}

#[test]
fn packets_beyond_the_bounds_are_counted_between_those_of_a_connection_that_is_followed() {
    let bounds = TableBounds {
        connections: 1,
        over: 1,
    };
    let mut table = ConnectionTable::new(bounds);
    let [known, other] = [7, 8].map(short);
    known[..3].iter().for_each(|p| push(&mut table, p));
    for (known, other) in known[3..].iter().zip(&other) {
        push(&mut table, other);
        push(&mut table, other);
        push(&mut table, known);
    }
    assert_eq!(table.unfollowed(), 8);
    let again = short(7).into_iter().map(|packet| Packet {
        seq: packet.seq + 9000,
        ..packet
    });
    again.for_each(|p| push(&mut table, &p));
    let mut bytes = Vec::new();
    table.close(&mut |gone| {
        bytes.push(gone.connection.bytes_of(1));
        None
    });
    assert_eq!((bytes.last(), table.unfollowed()), (Some(&3000), 8));
}

#[test]
fn a_connection_is_over_when_its_end_is_acknowledged_or_with_a_reset() {
    let packets = short(7);
    let mut reset = packets[..4].to_vec();
    reset.push(Packet {
        flags: RST,
        ..packets[4]
    });
    for (packets, last) in [(packets, 6), (reset, 4)] {
        let mut table = table();
        for (n, packet) in packets.iter().enumerate() {
            push(&mut table, packet);
            assert_eq!(table.over.len(), usize::from(n >= last), "{n}");
        }
    }
}

/// A capture at a receiver whose window holds six segments, over a round trip of 10 ms: data come in pairs, and the
/// acknowledgements of a round trip leave within a tenth of the next, so that which one released a pair is not seen.
#[test]
fn of_acknowledgements_that_come_together_the_one_that_opened_the_window_was_waited_for() {
    const PAIR: u32 = 2 * 1448;
    let client: SocketAddr = ([192, 0, 2, 1], 4000).into();
    let server: SocketAddr = ([192, 0, 2, 2], 80).into();
    let waits = |window: u16| {
        let mut table = table();
        let mut last = Vec::new();
        let mut pass = |us: u64, from: SocketAddr, seq, ack, payload, syn| {
            let to = if from == client { server } else { client };
            let packet = Packet {
                at: Nanos::from_micros(us),
                seq,
                ack,
                payload,
                window,
                flags: if syn { SYN } else { 0 } | if us > 0 { ACK } else { 0 },
                mss: syn.then_some(1460),
                wscale: syn.then_some(0),
                ..Packet::new(from, to)
            };
            let gone = &mut |gone: ForgottenConnection<(), ()>| Some(gone.connection);
            // An attempt is no connection yet.
            let Some((connection, passed)) = table.push(&packet, gone) else {
                return;
            };
            if passed.data.is_some() && from == server {
                let stream = &connection.stream(passed.side).unwrap().stream;
                last.push(stream.released.wait);
            }
        };
        pass(0, client, 0, 0, 0, true);
        pass(10_086, server, 0, 1, 0, true);
        pass(10_109, client, 1, 1, 0, false);
        pass(10_163, client, 1, 1, 16, false);
        let mut seq = 1;
        for trip in 2..8 {
            for pair in 0..3 {
                // A little less than the round trip of the handshake after what acknowledged the pair three before.
                let at = trip * 10_030 + pair * 60;
                pass(at, server, seq, 17, PAIR, false);
                seq += PAIR;
                pass(at + 10, client, 17, seq, 0, false);
            }
        }
        // The first pair of each round trip; the others follow it at once.
        last.into_iter().step_by(3).skip(2).collect::<Vec<_>>()
    };
    assert_eq!(waits(6 * 1448), [Wait::AdvertisedWindow; 4]);
    let held = waits(20 * 1448);
    assert!(!held.contains(&Wait::AdvertisedWindow), "{held:?}");
}

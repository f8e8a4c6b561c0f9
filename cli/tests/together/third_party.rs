//! Measurements between two agents that a third host orders, and coordinators and sources that do not obey. Loopback only.

use crate::common::{Home, Server, json, run, stderr, stdout};
use crate::dishonest::{Client, Raw};
use model::light::shortest_gap;
use model::mtu::Probe;
use model::{Bulk, Directions, FileCopy, LegLimit, Nanos, NodeId, Spec, Workload};
use serde_json::Value;
use std::net::UdpSocket;
use std::time::{Duration, Instant};
use wire::control::direct::{
    Destination, DirectRequest, LightPeer, LightPort, MAX_SLOTS, SlotRole,
};
use wire::control::probe::Datagram;
use wire::control::{ToAgent, Token};

const SECOND: Nanos = Nanos::from_secs(1);

/// Two agents and a coordinator, which may direct the first.
fn three() -> (Server, Server, Home) {
    let source = Server::start(&["--allow-direct"]);
    let destination = Server::start(&[]);
    let coordinator = source.guest(&["--direct"]);
    accept(&coordinator, &destination);
    (source, destination, coordinator)
}

fn accept(coordinator: &Home, server: &Server) {
    let out = run(&mut coordinator.linerate(&["trust", "accept", &server.invite(&[])]));
    assert!(out.status.success(), "{}", stderr(&out));
}

fn id(home: &Home) -> NodeId {
    let shown = stdout(&run(&mut home.linerate(&["trust", "show"])));
    shown.trim().parse().unwrap()
}

fn slot(number: u32) -> String {
    format!("{number:032x}")
}

fn port(server: &Server) -> u16 {
    server.at.rsplit(':').next().unwrap().parse().unwrap()
}

/// A coordinator of raw messages.
struct Coordinator {
    control: Raw,
    number: u64,
}

impl Coordinator {
    fn at(agent: &Server, key: &Home) -> Coordinator {
        Coordinator {
            control: Client::of(agent, key).control,
            number: 0,
        }
    }

    fn send(&mut self, request: DirectRequest) {
        self.number += 1;
        let number = self.number;
        self.control.send(&ToAgent::Direct { number, request });
    }

    /// What was done, or why not.
    fn ask(&mut self, request: DirectRequest) -> Result<Value, String> {
        self.send(request);
        let message = self.control.wait_for(&["directed", "bye"]);
        assert_eq!(message["number"], self.number, "{message}");
        match &message["answer"]["Err"] {
            Value::String(why) => Err(why.clone()),
            _ => Ok(message["answer"]["Ok"].clone()),
        }
    }

    fn refusal(&mut self, request: DirectRequest) -> String {
        match self.ask(request) {
            Err(why) => why,
            Ok(answer) => {
                assert_eq!(answer["done"], "hold_refused", "{answer}");
                assert!(answer["free_in_ns"].is_null(), "{answer}");
                answer["why"].as_str().unwrap().to_owned()
            }
        }
    }

    fn done(&mut self, request: DirectRequest) -> Value {
        self.ask(request).unwrap()
    }

    /// Holds and confirms a slot that begins now.
    fn book(&mut self, number: u32, span: Nanos, peer: NodeId, role: SlotRole) {
        let held = self.done(hold(number, Nanos(0), span, peer, role));
        assert_eq!(held["done"], "held", "{held}");
        let slot = slot(number);
        assert_eq!(
            self.done(DirectRequest::Confirm { slot })["done"],
            "confirmed"
        );
    }
}

fn hold(number: u32, after: Nanos, span: Nanos, peer: NodeId, role: SlotRole) -> DirectRequest {
    DirectRequest::Hold {
        slot: slot(number),
        after,
        span,
        ttl: Nanos::from_secs(60),
        peer: Some(peer),
        role,
        files: false,
    }
}

fn play(number: u32, spec: Spec, to: &Server, key: NodeId) -> DirectRequest {
    DirectRequest::Play {
        slot: slot(number),
        spec: Box::new(spec),
        to: Destination {
            name: "127.0.0.1".to_owned(),
            port: port(to),
            id: key,
        },
        outage: Nanos(0),
        title: None,
    }
}

fn bulk(time: Nanos) -> Spec {
    Spec {
        workload: Workload::Bulk(Bulk::default()),
        limit: LegLimit::Time(time),
        directions: Directions::Up,
        streams: 1,
        interval: Nanos::from_millis(100),
        ..Spec::default()
    }
}

/// Until the agent has nothing booked.
fn wait_free(agent: &Server) {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let booked = json(&mut agent.home.linerate(&["calendar", "list", "--json"]));
        if booked == Value::Array(Vec::new()) {
            return;
        }
        assert!(Instant::now() < until, "{booked}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_third_host_has_one_agent_measure_towards_another_and_both_keep_the_run() {
    let (source, destination, coordinator) = three();
    let (from, to) = (source.at.as_str(), destination.at.as_str());
    let measure = [
        "measure", from, to, "-t", "1s", "--title", "ordered", "--json",
    ];
    let measured = json(&mut coordinator.linerate(&measure));
    assert_eq!(
        measured["ended"]["how"], "complete",
        "{}",
        measured["ended"]
    );
    assert_eq!(measured["host"], to);
    assert_eq!(measured["title"], "ordered");
    assert_eq!(measured["local_id"], id(&source.home).to_string());
    assert_eq!(measured["remote_id"], id(&destination.home).to_string());
    let here = json(&mut coordinator.linerate(&["runs", "export", "last"]));
    let there = json(&mut source.home.linerate(&["runs", "export", "last"]));
    assert_eq!([&here["id"], &there["id"]], [&measured["id"]; 2]);
    assert_eq!(here["legs"], there["legs"]);
    for agent in [&source, &destination] {
        wait_free(agent);
    }
    // It is here already.
    let fetched = run(&mut coordinator.linerate(&["runs", "fetch", from]));
    assert!(stdout(&fetched).contains("has no run of this host that is not here"));

    let refused = |args: &[&str], status: i32, part: &str| {
        let out = run(&mut coordinator.linerate(args));
        let said = stderr(&out);
        assert_eq!(out.status.code(), Some(status), "{said}");
        assert!(
            said.contains(part) && said.trim().lines().count() == 1,
            "{said}"
        );
    };
    refused(
        &["measure", to, from],
        3,
        "run 'linerate serve --allow-direct' there",
    );
    refused(&["measure", from, from], 2, "are one host: name two");
    let alias = from.replace("127.0.0.1", "127.0.0.2");
    refused(
        &["measure", from, "local"],
        2,
        "is no agent that another host can measure",
    );
    refused(
        &["measure", from, "127.0.0.1:1"],
        3,
        "nothing listens there",
    );
    refused(&["measure", &alias, to], 3, "nothing listens there");
    refused(
        &["measure", from, to, "-t", "2h"],
        2,
        "use a shorter --time",
    );
    refused(&["measure", from, to, "--trace"], 2, "--trace records");
    refused(&["measure", from, to, "--json-stream"], 2, "use --json");
    // The source's key is nobody at the destination outside of a slot.
    let out = run(&mut source.home.linerate(&[
        "trust",
        "add",
        &id(&destination.home).to_string(),
        "--address",
        to,
        "--server",
    ]));
    assert!(out.status.success(), "{}", stderr(&out));
    let out = run(&mut source.home.linerate(&["measure", to, "-t", "1s"]));
    assert!(
        stderr(&out).contains("does not trust this host's key"),
        "{}",
        stderr(&out)
    );
}

#[test]
fn holds_out_of_bounds_are_refused_and_the_session_goes_on() {
    let (source, destination, coordinator) = three();
    let (own, peer) = (id(&source.home), id(&destination.home));
    let mut agent = Coordinator::at(&source, &coordinator);
    let hour = Nanos::from_secs(3600);
    let of = |after, span| hold(1, after, span, peer, SlotRole::Source);
    let with_ttl = |ttl| match of(Nanos(0), SECOND) {
        DirectRequest::Hold {
            slot,
            after,
            span,
            peer,
            role,
            ..
        } => DirectRequest::Hold {
            slot,
            after,
            span,
            ttl,
            peer,
            role,
            files: false,
        },
        other => other,
    };
    let named = |name: &str| match of(Nanos(0), SECOND) {
        DirectRequest::Hold {
            after,
            span,
            ttl,
            peer,
            role,
            ..
        } => {
            let slot = name.to_owned();
            DirectRequest::Hold {
                slot,
                after,
                span,
                ttl,
                peer,
                role,
                files: false,
            }
        }
        other => other,
    };
    for (request, why) in [
        (of(Nanos(24 * hour.0 + 1), SECOND), "ahead are possible"),
        (of(Nanos(0), Nanos(hour.0 * 2)), "it has up to 3600 s"),
        (of(Nanos(0), Nanos(0)), "it has up to 3600 s"),
        (with_ttl(Nanos(0)), "without a confirmation"),
        (with_ttl(Nanos::from_secs(61)), "without a confirmation"),
        (named("short"), "32 hexadecimal digits"),
        (named(&"G".repeat(32)), "32 hexadecimal digits"),
        (
            hold(1, Nanos(0), SECOND, own, SlotRole::Source),
            "this same host",
        ),
    ] {
        let said = agent.refusal(request);
        assert!(said.contains(why), "{said}");
    }
    // What is held is held, under its name and any other, by whomever.
    let minute = Nanos::from_secs(60);
    assert_eq!(agent.done(of(Nanos(0), minute))["done"], "held");
    assert!(
        agent
            .refusal(of(Nanos::from_secs(3000), SECOND))
            .contains("is held already")
    );
    let other = source.guest(&["--direct"]);
    let mut others = Coordinator::at(&source, &other);
    let overlapping = hold(2, Nanos::from_secs(30), minute, peer, SlotRole::Destination);
    let busy = others.done(overlapping);
    assert_eq!(busy["done"], "hold_refused", "{busy}");
    assert!(
        busy["free_in_ns"].as_u64().unwrap() > 50 * SECOND.0,
        "{busy}"
    );
    // A leg by hand waits for its end; it ends before it begins here.
    let booked = json(&mut source.home.linerate(&["calendar", "list", "--json"]));
    assert_eq!(
        (booked[0]["slot"].as_str(), &booked[0]["held"]),
        (Some(&*slot(1)), &Value::Bool(true))
    );
    // It is no other coordinator's to confirm, to release or to use.
    let name = || slot(1);
    assert!(
        others
            .refusal(DirectRequest::Confirm { slot: name() })
            .contains("is not held there")
    );
    others.done(DirectRequest::Release { slot: name() });
    assert!(
        others
            .refusal(play(1, bulk(SECOND), &destination, peer))
            .contains("is not held there")
    );
    assert_eq!(
        agent.done(DirectRequest::Confirm { slot: name() })["done"],
        "confirmed"
    );
    assert_eq!(
        agent.done(DirectRequest::Release { slot: name() })["done"],
        "released"
    );
    assert!(
        agent
            .refusal(DirectRequest::Confirm { slot: name() })
            .contains("is not held there")
    );
    // As many as a key may have, and one more.
    for number in 0..MAX_SLOTS as u32 {
        let after = Nanos::from_secs(100 + 2 * u64::from(number));
        let held = agent.done(hold(100 + number, after, SECOND, peer, SlotRole::Source));
        assert_eq!(held["done"], "held", "{held}");
    }
    let one_more = hold(999, Nanos::from_secs(1000), SECOND, peer, SlotRole::Source);
    assert!(
        agent
            .refusal(one_more.clone())
            .contains("release some first")
    );
    agent.done(DirectRequest::Release { slot: slot(100) });
    assert_eq!(agent.done(one_more)["done"], "held");
    // Without the right a host is measured, and measures nobody.
    let guest = source.guest(&[]);
    let mut guests = Coordinator::at(&source, &guest);
    let after = Nanos::from_secs(2000);
    let said = guests.refusal(hold(3, after, SECOND, peer, SlotRole::Source));
    assert!(said.contains("--direct' there"), "{said}");
    assert_eq!(
        guests.done(hold(3, after, SECOND, peer, SlotRole::Destination))["done"],
        "held"
    );
}

#[test]
fn a_run_is_played_once_in_its_slot_towards_its_peer_alone() {
    let (source, destination, coordinator) = three();
    let (own, peer) = (id(&source.home), id(&destination.home));
    let mut agent = Coordinator::at(&source, &coordinator);
    let ten = Nanos::from_secs(10);
    assert_eq!(
        agent.done(hold(1, Nanos(0), ten, peer, SlotRole::Source))["done"],
        "held"
    );
    let second = || play(1, bulk(SECOND), &destination, peer);
    assert!(agent.refusal(second()).contains("is not confirmed"));
    agent.done(DirectRequest::Confirm { slot: slot(1) });
    let other_key = play(1, bulk(SECOND), &destination, NodeId::new([7; 32]));
    assert!(agent.refusal(other_key).contains("is held with the host"));
    let to_itself = play(1, bulk(SECOND), &source, own);
    assert!(agent.refusal(to_itself).contains("is held with the host"));
    // A slot later on, one as a destination, and one that nobody holds.
    agent.done(hold(2, Nanos::from_secs(600), ten, peer, SlotRole::Source));
    agent.done(DirectRequest::Confirm { slot: slot(2) });
    assert!(
        agent
            .refusal(play(2, bulk(SECOND), &destination, peer))
            .contains("begins in")
    );
    agent.done(hold(
        3,
        Nanos::from_secs(700),
        ten,
        peer,
        SlotRole::Destination,
    ));
    agent.done(DirectRequest::Confirm { slot: slot(3) });
    assert!(
        agent
            .refusal(play(3, bulk(SECOND), &destination, peer))
            .contains("not its source")
    );
    assert!(
        agent
            .refusal(play(4, bulk(SECOND), &destination, peer))
            .contains("is not held there")
    );
    // Who answers at that port must be the peer: the destination did not expect anybody here.
    let said = agent.refusal(second());
    assert!(said.contains("does not trust this host's key"), "{said}");
    // That was the one run of the slot.
    assert!(agent.refusal(second()).contains("is over"));
    for (number, spec, why) in [
        (5, bulk(Nanos::from_secs(60)), "its slot ends in"),
        (
            6,
            Spec {
                workload: Workload::Copy(FileCopy {
                    from: Some("/etc/passwd".to_owned()),
                    ..FileCopy::default()
                }),
                ..bulk(SECOND)
            },
            "files are not to be used there",
        ),
        (
            7,
            Spec {
                trace: true,
                ..bulk(SECOND)
            },
            "leave out --trace",
        ),
    ] {
        agent.book(number, ten, peer, SlotRole::Source);
        let said = agent.refusal(play(number, spec, &destination, peer));
        assert!(said.contains(why), "{said}");
    }
    // Another host answers than the one that was held.
    let third = Server::start(&[]);
    agent.book(8, ten, peer, SlotRole::Source);
    let said = agent.refusal(play(8, bulk(SECOND), &third, peer));
    assert!(said.contains("another host answers"), "{said}");
    let kept = agent.done(DirectRequest::Kept { after: 0 });
    assert_eq!(kept["runs"], Value::Array(Vec::new()));
}

#[test]
fn a_source_is_let_in_once_in_its_slot_until_its_end() {
    let (source, destination, coordinator) = three();
    let key = id(&source.home);
    let mut agent = Coordinator::at(&destination, &coordinator);
    assert!(Client::try_of(&destination, &source.home).is_none());
    let three = Nanos::from_secs(3);
    agent.done(hold(1, Nanos(0), three, key, SlotRole::Destination));
    assert!(
        Client::try_of(&destination, &source.home).is_none(),
        "not confirmed"
    );
    agent.done(DirectRequest::Confirm { slot: slot(1) });
    let mut client = Client::of(&destination, &source.home);
    assert!(Client::try_of(&destination, &source.home).is_none(), "once");
    let long = client.order(true, 1, LegLimit::Time(Nanos::from_secs(60)));
    let refused = client.ask(&long);
    assert_eq!(refused["say"], "refused", "{refused}");
    assert!(
        refused["why"]
            .as_str()
            .unwrap()
            .contains("its slot ends in")
    );
    // It has no slots to give.
    let request = hold(2, SECOND, SECOND, key, SlotRole::Destination);
    client.control.send(&ToAgent::Direct { number: 1, request });
    let answer = client.control.wait_for(&["directed"]);
    assert!(
        answer["answer"]["Err"]
            .as_str()
            .unwrap()
            .contains("has no slots"),
        "{answer}"
    );
    let bye = client.control.wait_for(&["bye"]);
    assert_eq!(bye["why"], "its slot is over");
    wait_free(&destination);
    // One that is released ends its session at once.
    agent.book(3, Nanos::from_secs(600), key, SlotRole::Destination);
    let mut client = Client::of(&destination, &source.home);
    agent.done(DirectRequest::Release { slot: slot(3) });
    assert_eq!(client.control.wait_for(&["bye"])["why"], "its slot is over");
    // One that somebody releases on the host says so.
    agent.book(5, Nanos::from_secs(600), key, SlotRole::Destination);
    let mut client = Client::of(&destination, &source.home);
    let released = run(&mut destination.home.linerate(&["calendar", "release"]));
    assert!(released.status.success(), "{}", stderr(&released));
    let bye = client.control.wait_for(&["bye"]);
    assert_eq!(bye["why"], "its slot was released on that host");
    // One whose coordinator is trusted no longer ends it as well.
    agent.book(4, Nanos::from_secs(600), key, SlotRole::Destination);
    let mut client = Client::of(&destination, &source.home);
    let out =
        run(&mut destination
            .home
            .linerate(&["trust", "remove", &id(&coordinator).to_string()]));
    assert!(out.status.success(), "{}", stderr(&out));
    client.control.wait_for(&["bye"]);
    wait_free(&destination);
}

#[test]
fn a_run_whose_coordinator_is_gone_is_kept_for_it_alone() {
    let (source, destination, coordinator) = three();
    let (own, peer) = (id(&source.home), id(&destination.home));
    let mut at_source = Coordinator::at(&source, &coordinator);
    let mut at_destination = Coordinator::at(&destination, &coordinator);
    let minute = Nanos::from_secs(60);
    at_source.book(1, minute, peer, SlotRole::Source);
    at_destination.book(1, minute, own, SlotRole::Destination);
    at_source.send(play(1, bulk(Nanos::from_secs(2)), &destination, peer));
    at_source.control.wait_for(&["progress"]);
    // Without a good-bye.
    drop((at_source, at_destination));
    for agent in [&source, &destination] {
        wait_free(agent);
    }
    let fetch = || {
        stdout(&run(
            &mut coordinator.linerate(&["runs", "fetch", &source.at])
        ))
    };
    let fetched = fetch();
    assert!(fetched.contains("1 run is kept"), "{fetched}");
    assert!(fetch().contains("has no run of this host that is not here"));
    let kept = json(&mut coordinator.linerate(&["runs", "export", "last"]));
    assert_eq!(
        (&kept["id"], &kept["ended"]["how"]),
        (&slot(1).into(), &"complete".into())
    );
    let other = source.guest(&["--direct"]);
    let mut others = Coordinator::at(&source, &other);
    assert_eq!(
        others.done(DirectRequest::Kept { after: 0 })["runs"],
        Value::Array(Vec::new())
    );
    let document = DirectRequest::Document {
        run: slot(1),
        from: 0,
    };
    assert!(
        others
            .refusal(document)
            .contains("was ordered there by this host")
    );
    // A slot that nobody uses ends by itself.
    let mut agent = Coordinator::at(&destination, &coordinator);
    let unused = DirectRequest::Hold {
        slot: slot(2),
        after: Nanos(0),
        span: minute,
        ttl: SECOND,
        peer: Some(own),
        role: SlotRole::Destination,
        files: false,
    };
    agent.done(unused);
    agent.done(DirectRequest::Confirm { slot: slot(2) });
    wait_free(&destination);
}

fn light(number: u32, peers: Vec<LightPeer>, packets: u32, gap: Nanos) -> DirectRequest {
    DirectRequest::Light {
        slot: slot(number),
        peers,
        packets,
        gap,
        sizes: vec![1500, 1280],
        ip_version: None,
    }
}

fn hold_light(number: u32, span: Nanos) -> DirectRequest {
    DirectRequest::Hold {
        slot: slot(number),
        after: Nanos(0),
        span,
        ttl: Nanos::from_secs(60),
        peer: None,
        role: SlotRole::Light,
        files: false,
    }
}

/// Holds an agent for light probes: where it answers them.
fn held_for_light(agent: &mut Coordinator, number: u32) -> LightPeer {
    let held = agent.done(hold_light(number, Nanos::from_secs(60)));
    let at = LightPort {
        port: held["light"]["port"].as_u64().unwrap() as u16,
        token: held["light"]["token"].as_str().unwrap().to_owned(),
    };
    let confirmed = agent.done(DirectRequest::Confirm { slot: slot(number) });
    assert_eq!(confirmed["done"], "confirmed");
    let name = "127.0.0.1".to_owned();
    LightPeer { name, at }
}

#[test]
fn light_probes_of_a_coordinator_that_does_not_obey_are_refused() {
    let (source, destination, coordinator) = three();
    let mut agent = Coordinator::at(&source, &coordinator);
    let day = Nanos::from_secs(24 * 3600);
    for (request, why) in [
        (hold_light(1, Nanos(day.0 + 1)), "it has up to"),
        (
            hold(1, Nanos(0), SECOND, id(&destination.home), SlotRole::Light),
            "one for light probes none",
        ),
        (light(1, Vec::new(), 1, SECOND), "is not held there"),
    ] {
        let said = agent.refusal(request);
        assert!(said.contains(why), "{said}");
    }
    assert_eq!(agent.done(hold_light(2, day))["done"], "held");
    assert!(
        agent
            .refusal(light(2, Vec::new(), 1, SECOND))
            .contains("is not confirmed")
    );
    let own = held_for_light(&mut agent, 1);
    // It books nothing: the host is free, and the whole of it can be held.
    wait_free(&source);
    agent.book(3, SECOND, id(&destination.home), SlotRole::Source);
    assert!(
        agent
            .refusal(light(3, Vec::new(), 1, SECOND))
            .contains("is not held for light probes")
    );
    let fast = Nanos(shortest_gap(64).0 - 1);
    for (peers, packets, gap, why) in [
        (65, 1, SECOND, "65 hosts at a time: up to 64 are possible"),
        (
            1,
            101,
            Nanos::from_millis(10),
            "101 packets to each host: 1 to 100 are possible",
        ),
        (1, 0, SECOND, "1 to 100 are possible"),
        (64, 1, fast, "at least keep to 1.00 Mbit/s"),
        (1, 100, Nanos(0), "at least keep to 1.00 Mbit/s"),
        (1, 100, Nanos::from_millis(201), "up to 20.0 s are possible"),
    ] {
        let said = agent.refusal(light(1, vec![own.clone(); peers], packets, gap));
        assert!(said.contains(why), "{said}");
    }
    // Its own port is the only one that it has: the session goes on, and one host is one.
    let lighted = agent.done(light(1, vec![own.clone(), own], 2, SECOND));
    let results = lighted["peers"].as_array().unwrap();
    assert_eq!(results[1]["sent"], 0, "{lighted}");
    assert_eq!(
        results[1]["why"],
        "another host of this request has its address"
    );
    // The limits of the key count.
    let limited = source.guest(&["--direct", "--bytes-per-day", "16K", "--seconds", "2"]);
    let mut others = Coordinator::at(&source, &limited);
    let own = held_for_light(&mut others, 9);
    let said = others.refusal(light(9, vec![own.clone()], 3, SECOND));
    assert!(
        said.contains("light probes of 3.00 s: the remote host allows 2.00 s"),
        "{said}"
    );
    let said = others.refusal(light(9, vec![own], 100, Nanos::from_millis(10)));
    assert!(said.contains("16.0 KiB a day"), "{said}");
    assert!(
        others
            .refusal(hold_light(8, SECOND))
            .contains("a day that this host allows are used up")
    );
    // Who may only measure has nobody send, and answers.
    let mut agent = Coordinator::at(&destination, &coordinator);
    held_for_light(&mut agent, 1);
    let said = agent.refusal(light(1, Vec::new(), 1, SECOND));
    assert!(said.contains("'linerate serve --allow-direct'"), "{said}");
}

/// What arrives at a socket, by kind, until nothing comes for a second.
fn datagrams(
    socket: &UdpSocket,
    token: &Token,
    answer: impl Fn(&Datagram) -> Option<Datagram>,
) -> [usize; 4] {
    let mut counts = [0; 4];
    let mut room = [0; 2000];
    socket
        .set_read_timeout(Some(Duration::from_millis(1500)))
        .unwrap();
    while let Ok((length, from)) = socket.recv_from(&mut room) {
        let datagram = Datagram::decode(&room[..length], token).unwrap();
        counts[match datagram {
            Datagram::Hello => 0,
            Datagram::Challenge(_) => 1,
            Datagram::Echo(_) => 2,
            Datagram::Probe(_) | Datagram::Seen(_) => 3,
        }] += 1;
        if let Some(answer) = answer(&datagram) {
            socket.send_to(&answer.encode(token, 0), from).unwrap();
        }
    }
    counts
}

#[test]
fn light_probes_go_to_nobody_who_does_not_return_a_challenge() {
    let (source, _, coordinator) = three();
    let mut agent = Coordinator::at(&source, &coordinator);
    let own = held_for_light(&mut agent, 1);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let token = Token::new([7; 32]);
    let unheld = || {
        let port = socket.local_addr().unwrap().port();
        let name = "127.0.0.1".to_owned();
        LightPeer {
            name,
            at: LightPort {
                port,
                token: token.to_hex(),
            },
        }
    };
    let silent = |_: &Datagram| None;
    // Knows the token, as its coordinator does, and does not see what is sent to the address.
    let blind = |datagram: &Datagram| match datagram {
        Datagram::Hello => Some(Datagram::Challenge([1; 8])),
        _ => Some(Datagram::Echo([9; 8])),
    };
    let there = |datagram: &Datagram| match datagram {
        Datagram::Hello => Some(Datagram::Challenge([1; 8])),
        Datagram::Challenge(challenge) => Some(Datagram::Echo(*challenge)),
        _ => None,
    };
    let send =
        |agent: &mut Coordinator| agent.send(light(1, vec![unheld()], 3, Nanos::from_millis(10)));
    let done = |agent: &mut Coordinator| {
        agent.control.wait_for(&["directed", "bye"])["answer"]["Ok"]["peers"][0].clone()
    };
    send(&mut agent);
    assert_eq!(datagrams(&socket, &token, silent), [3, 0, 0, 0]);
    let result = done(&mut agent);
    assert_eq!(result["sent"], 0, "{result}");
    assert!(
        result["why"]
            .as_str()
            .unwrap()
            .contains("nobody who is held for light probes answers"),
        "{result}"
    );
    send(&mut agent);
    assert_eq!(datagrams(&socket, &token, blind), [3, 3, 3, 0]);
    assert_eq!(done(&mut agent)["sent"], 0);
    send(&mut agent);
    let [.., probes] = datagrams(&socket, &token, there);
    assert_eq!(probes, 3, "no answer came, so no size is tried");
    assert_eq!(done(&mut agent)["came"], 0);

    // The answering end: nothing larger than what came, and to a probe only once a challenge is returned.
    let (to, token) = (
        ("127.0.0.1", own.at.port),
        Token::from_hex(&own.at.token).unwrap(),
    );
    let probe = |copy| Probe {
        round: 0,
        size: 128,
        copy,
    };
    let ask = |datagram: Datagram| {
        let bytes = datagram.encode(&token, 100);
        socket.send_to(&bytes, to).unwrap();
        let mut room = [0; 2000];
        socket
            .set_read_timeout(Some(Duration::from_millis(300)))
            .unwrap();
        let (length, _) = socket.recv_from(&mut room).ok()?;
        assert!(length <= bytes.len() + 8);
        Datagram::decode(&room[..length], &token)
    };
    assert_eq!(ask(Datagram::Probe(probe(1))), None);
    assert_eq!(ask(Datagram::Challenge([3; 8])), None);
    let Some(Datagram::Challenge(challenge)) = ask(Datagram::Hello) else {
        panic!("no challenge");
    };
    assert_eq!(ask(Datagram::Echo([0; 8])), None);
    assert_eq!(ask(Datagram::Probe(probe(1))), None);
    assert_eq!(ask(Datagram::Echo(challenge)), None);
    assert_eq!(
        ask(Datagram::Challenge([3; 8])),
        Some(Datagram::Echo([3; 8]))
    );
    assert_eq!(
        ask(Datagram::Probe(probe(2))),
        Some(Datagram::Seen(vec![probe(2)]))
    );
    let seen: Vec<Probe> = (2..=15).map(probe).collect();
    for copy in 3..15 {
        ask(Datagram::Probe(probe(copy)));
    }
    assert_eq!(
        ask(Datagram::Probe(probe(15))),
        Some(Datagram::Seen(seen[4..].to_vec()))
    );
    agent.done(DirectRequest::Release { slot: slot(1) });
    let until = Instant::now() + Duration::from_secs(10);
    while ask(Datagram::Hello).is_some() {
        assert!(Instant::now() < until, "it answers after its slot");
    }
}

use super::*;
use crate::testing::TempDir;
use crate::trust::Peer;
use std::net::Ipv4Addr;

const COORDINATOR: NodeId = NodeId::new([1; 32]);
const ANOTHER: NodeId = NodeId::new([2; 32]);
const OTHER: NodeId = NodeId::new([3; 32]);
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const NOW: Nanos = Nanos(0);
const MINUTE: Nanos = Nanos::from_secs(60);

fn name(number: usize) -> String {
    format!("{number:032x}")
}

fn order(slot: &str, role: SlotRole) -> SlotOrder<'_> {
    SlotOrder {
        slot,
        after: NOW,
        span: MINUTE,
        ttl: Nanos::from_secs(30),
        peer: (role != SlotRole::Light).then_some(OTHER),
        role,
        files: false,
    }
}

/// The slots of a host with a calendar in a directory of its own.
fn book() -> (SlotBook, TempDir) {
    let directory = TempDir::new();
    let calendar = HostCalendar::in_directory(directory.path());
    (SlotBook::new(calendar, Some(HERE), None), directory)
}

fn hold(book: &SlotBook, by: NodeId, order: &SlotOrder<'_>) -> Result<Option<LightPort>, String> {
    let light = (order.role == SlotRole::Light).then(|| {
        let peer = Peer::at_a_pipe(HERE, None);
        peer.light_use(Nanos(0)).unwrap()
    });
    book.hold(by, "coordinator", order, light)
        .map_err(|no| no.why)
}

/// Why there is no slot.
fn why<T>(result: Result<T>) -> String {
    result
        .err()
        .map_or(String::new(), |error| error.to_string())
}

#[test]
fn slots_are_possible_at_their_bounds_and_not_beyond() {
    let slot = name(0xabc);
    let said = |change: &dyn Fn(&mut SlotOrder<'_>), role| {
        let mut order = order(&slot, role);
        change(&mut order);
        possible(&order).err().unwrap_or_default()
    };
    let more = |limit: Nanos| Nanos(limit.0 + 1);
    for (role, longest) in [
        (SlotRole::Source, MAX_SPAN),
        (SlotRole::Destination, MAX_SPAN),
        (SlotRole::Light, MAX_LIGHT_SPAN),
    ] {
        for fits in [
            said(&|_| (), role),
            said(&|o| o.after = MAX_AHEAD, role),
            said(&|o| o.span = Nanos(1), role),
            said(&|o| o.span = longest, role),
            said(&|o| o.ttl = Nanos(1), role),
            said(&|o| o.ttl = MAX_TTL, role),
        ] {
            assert_eq!(fits, "", "{role:?}");
        }
        assert!(said(&|o| o.after = more(MAX_AHEAD), role).contains("ahead"));
        assert!(said(&|o| o.span = Nanos(0), role).contains("it has up to"));
        assert!(said(&|o| o.span = more(longest), role).contains("it has up to"));
        assert!(said(&|o| o.ttl = Nanos(0), role).contains("without a confirmation"));
        assert!(said(&|o| o.ttl = more(MAX_TTL), role).contains("without a confirmation"));
        let other = |o: &mut SlotOrder<'_>| {
            o.peer = match o.peer {
                Some(_) => None,
                None => Some(OTHER),
            };
        };
        assert!(said(&other, role).contains("names the other one"));
    }
    for bad in [
        name(1)[1..].to_owned(),
        format!("0{}", name(1)),
        name(1).replace('1', "A"),
        name(1).replace('1', "g"),
        name(1).replace('1', "-"),
    ] {
        let refused = possible(&order(&bad, SlotRole::Source)).unwrap_err();
        assert!(refused.contains("32 hexadecimal digits"), "{bad}");
    }
}

#[test]
fn a_slot_ends_early_unconfirmed_or_unused() {
    let now = Instant::now();
    let after = |seconds| now + Duration::from_secs(seconds);
    let slot = |confirmed, used, starts: u64, ends: u64| DirectSlot {
        name: name(1),
        by: COORDINATOR,
        peer: None,
        role: SlotRole::Source,
        files: false,
        starts: after(starts),
        ends: after(ends),
        ttl: Duration::from_secs(30),
        confirmed: AtomicBool::new(confirmed),
        used: AtomicBool::new(used),
        over: AtomicBool::new(false),
        released: AtomicBool::new(false),
    };
    let until = |confirmed, used, starts, ends| slot(confirmed, used, starts, ends).until(after(7));
    assert_eq!(until(false, false, 10, 100), after(7));
    assert_eq!(until(true, false, 10, 100), after(40));
    assert_eq!(until(true, false, 10, 20), after(20));
    assert_eq!(until(true, true, 10, 100), after(100));
    assert!(slot(true, false, 0, 100).has_begun());
    assert!(!slot(true, false, 3600, 7200).has_begun());
    assert!(!slot(false, false, 0, 100).has_begun());
    let long = slot(true, true, 0, 7200);
    assert!(long.left() > Duration::from_secs(3600));
    long.over.store(true, Ordering::Relaxed);
    assert_eq!(long.left(), Duration::ZERO);
    let booked = |slot: DirectSlot, held: u64| BookedSlot {
        slot: Arc::new(slot),
        held_until: after(held),
        hold: None,
        light: None,
    };
    let unconfirmed = booked(slot(false, false, 0, 100), 7);
    assert!(!unconfirmed.is_over(after(7) - Duration::from_nanos(1)));
    assert!(unconfirmed.is_over(after(7)));
    assert!(booked(long, 7).is_over(now), "it was ended");
}

#[test]
fn a_coordinator_has_so_many_slots_and_a_host_so_many_in_all() {
    let (book, _directory) = book();
    let held = |by: NodeId, number: usize| {
        let slot = name(number);
        hold(&book, by, &order(&slot, SlotRole::Light)).map(drop)
    };
    for number in 0..MAX_SLOTS {
        held(COORDINATOR, number).unwrap();
    }
    let full = held(COORDINATOR, MAX_SLOTS).unwrap_err();
    assert!(full.starts_with("64 slots of this coordinator"), "{full}");
    let again = held(ANOTHER, 0).unwrap_err();
    assert!(again.contains("is held already"), "{again}");
    for number in MAX_SLOTS..MOST_SLOTS {
        held(NodeId::new([number as u8; 32]), number).unwrap();
    }
    let full = held(NodeId::new([0xff; 32]), MOST_SLOTS).unwrap_err();
    assert!(full.contains("and 256 in all"), "{full}");
    // One that is released makes room, and only its coordinator can.
    book.release(ANOTHER, &name(0));
    assert!(held(ANOTHER, MOST_SLOTS).is_err());
    book.release(COORDINATOR, &name(0));
    held(ANOTHER, MOST_SLOTS).unwrap();
}

#[test]
fn a_source_is_used_once_by_its_coordinator_with_its_peer() {
    let (book, _directory) = book();
    let slot = name(7);
    assert!(!book.has_any() && !book.is_busy());
    let source = order(&slot, SlotRole::Source);
    assert_eq!(hold(&book, COORDINATOR, &source), Ok(None));
    assert!(book.has_any() && book.is_busy());
    let second = name(8);
    let refused = book.hold(ANOTHER, "x", &order(&second, SlotRole::Source), None);
    assert!(refused.err().unwrap().free_in.unwrap() > Nanos(0));
    let of = |by, peer| why(book.source(by, &slot, peer));
    assert!(of(COORDINATOR, OTHER).contains("is not confirmed"));
    assert!(why(book.confirm(ANOTHER, &slot)).contains("not held there"));
    assert!(why(book.confirm(COORDINATOR, &second)).contains("not held there"));
    book.confirm(COORDINATOR, &slot).unwrap();
    book.confirm(COORDINATOR, &slot).unwrap();
    assert!(of(ANOTHER, OTHER).contains("is not held there"));
    assert!(of(COORDINATOR, ANOTHER).contains("is held with the host"));
    assert!(why(book.light(COORDINATOR, &slot)).contains("not held for light probes"));
    assert_eq!(book.enter(&OTHER).map(drop), None, "it is no destination");
    let begun = book.source(COORDINATOR, &slot, OTHER).unwrap();
    assert!(begun.has_begun() && begun.left() > Duration::ZERO);
    assert!(of(COORDINATOR, OTHER).contains("was used already"));
    book.release(COORDINATOR, &slot);
    assert!(begun.left().is_zero());
    assert!(!book.has_any() && !book.is_busy());
}

#[test]
fn a_destination_lets_its_peer_in_once() {
    let (book, _directory) = book();
    let slot = name(9);
    hold(&book, COORDINATOR, &order(&slot, SlotRole::Destination)).unwrap();
    assert!(!book.expects(&OTHER), "it is not confirmed");
    book.confirm(COORDINATOR, &slot).unwrap();
    assert!(book.expects(&OTHER) && !book.expects(&ANOTHER));
    let another = why(book.source(COORDINATOR, &slot, OTHER));
    assert!(another.contains("it is not its source"), "{another}");
    assert!(book.enter(&ANOTHER).is_none());
    assert!(book.enter(&OTHER).is_some());
    assert!(book.enter(&OTHER).is_none() && !book.expects(&OTHER));
    book.retain(|slot, role| slot.by == COORDINATOR && role == SlotRole::Destination);
    assert!(book.has_any());
    book.retain(|_, role| role != SlotRole::Destination);
    assert!(!book.has_any());
}

#[test]
fn a_slot_that_is_to_come_is_not_begun() {
    let (book, _directory) = book();
    let (first, second) = (name(1), name(2));
    let later = |slot, role| SlotOrder {
        after: Nanos::from_secs(3600),
        ..order(slot, role)
    };
    hold(&book, COORDINATOR, &later(&first, SlotRole::Source)).unwrap();
    book.confirm(COORDINATOR, &first).unwrap();
    assert!(!book.is_busy());
    let said = why(book.source(COORDINATOR, &first, OTHER));
    assert!(
        said.contains("begins in ") && said.contains(" only"),
        "{said}"
    );
    // Light probes are in no calendar, so they may be at the same time.
    let port = hold(&book, COORDINATOR, &later(&second, SlotRole::Light)).unwrap();
    assert!(port.unwrap().port > 0);
    book.confirm(COORDINATOR, &second).unwrap();
    assert!(why(book.light(COORDINATOR, &second)).contains("begins in "));
}

#[test]
fn light_probes_are_sent_again_and_again_in_their_slot() {
    let (book, _directory) = book();
    let slot = name(3);
    hold(&book, COORDINATOR, &order(&slot, SlotRole::Light)).unwrap();
    assert!(why(book.light(COORDINATOR, &slot)).contains("is not confirmed"));
    book.confirm(COORDINATOR, &slot).unwrap();
    book.confirm(COORDINATOR, &slot).unwrap();
    for _ in 0..2 {
        assert!(book.light(COORDINATOR, &slot).is_ok());
    }
    assert!(book.light(ANOTHER, &slot).is_err());
    assert!(!book.is_busy(), "they are in no calendar");
}

#[test]
fn a_slot_that_was_released_on_its_host_gives_way_to_the_next_one() {
    let directory = TempDir::new();
    let calendar = HostCalendar::in_directory(directory.path());
    let book = SlotBook::new(calendar.clone(), None, None);
    let (by, peer) = (NodeId::new([1; 32]), NodeId::new([2; 32]));
    let [first, second] = ["0", "f"].map(|digit| digit.repeat(32));
    let hold = |slot: &str| {
        let order = SlotOrder {
            slot,
            after: Nanos(0),
            span: Nanos::from_secs(60),
            ttl: Nanos::from_secs(30),
            peer: Some(peer),
            role: SlotRole::Destination,
            files: false,
        };
        let held = book.hold(by, "coordinator", &order, None);
        held.map_err(|refused| refused.why)
    };
    hold(&first).unwrap();
    book.confirm(by, &first).unwrap();
    assert!(hold(&second).is_err(), "the host is booked");
    let running = book.enter(&peer).unwrap();
    assert_eq!(running.name, first);
    calendar.release(None).unwrap();
    hold(&second).unwrap();
    book.confirm(by, &second).unwrap();
    assert_eq!(running.left(), Duration::ZERO);
    let why = "its slot was released on that host";
    assert_eq!(running.why_over(), Some(why));
    assert_eq!(book.enter(&peer).unwrap().name, second);
    calendar.release(None).unwrap();
    // Not used yet.
    hold(&first).unwrap();
    book.confirm(by, &first).unwrap();
    calendar.release(None).unwrap();
    hold(&second).unwrap();
    book.confirm(by, &second).unwrap();
    assert_eq!(book.enter(&peer).unwrap().name, second);
}

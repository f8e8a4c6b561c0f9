//! Both ends of a load over loopback sockets, and peers that misbehave.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use linerate_measure::{
    DataAcceptor, Job, Load, LoadOutcome, Quota, Reconnect, Role, accept_options, connect,
    connect_privileged, listen,
};
use model::{
    BitRate, Bulk, Bytes, Latency, LegLimit, Nanos, Placement, Request, SocketSettings, WaitMode,
    Workload,
};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Longer than anything here takes, shorter than a person's patience with a hanging test.
const PATIENCE: Duration = Duration::from_secs(30);

fn sockets(n: usize) -> (Vec<TcpStream>, Vec<TcpStream>) {
    sockets_with(n, &SocketSettings::default(), &SocketSettings::default())
}

fn sockets_with(
    n: usize,
    local: &SocketSettings,
    remote: &SocketSettings,
) -> (Vec<TcpStream>, Vec<TcpStream>) {
    let placement = Placement::default();
    let listener = listen((Ipv4Addr::LOCALHOST, 0).into(), remote, &placement).unwrap();
    let address = listener.local_addr().unwrap();
    (0..n)
        .map(|_| {
            let stream = connect(address, local, &placement, PATIENCE).unwrap();
            let accepted = listener.accept().unwrap().0;
            accept_options(&accepted, remote).unwrap();
            (stream, accepted)
        })
        .unzip()
}

fn bulk(role: Role, limit: LegLimit, order: &Bulk) -> Job {
    Job::new(role, Workload::Bulk(order.clone()), limit)
}

fn request(role: Role, limit: LegLimit, order: &Request) -> Job {
    Job::new(role, Workload::Request(order.clone()), limit)
}

fn small() -> Request {
    Request {
        request_size: Bytes(64),
        reply_size: Bytes(8192),
        pace_per_s: None,
        reconnect: false,
        wait: WaitMode::Hybrid,
    }
}

fn total(outcome: &LoadOutcome) -> u64 {
    outcome.bytes.iter().map(|b| b.0).sum()
}

fn done(load: Load) -> LoadOutcome {
    assert!(load.wait(Instant::now() + PATIENCE), "the load hangs");
    assert!(load.wait(Instant::now()));
    load.finish()
}

/// A bulk transfer over `n` streams; both ends must have ended well.
fn transfer(n: usize, limit: LegLimit, order: &Bulk) -> (LoadOutcome, LoadOutcome) {
    let (local, remote) = sockets(n);
    let receiver = Load::start(bulk(Role::Receive, limit, order), remote).unwrap();
    let sender = Load::start(bulk(Role::Send, limit, order), local).unwrap();
    let (sent, received) = (done(sender), done(receiver));
    assert_eq!(sent.errors, []);
    assert_eq!(received.errors, []);
    assert_eq!(received.record.warnings, []);
    assert_eq!(sent.bytes, received.bytes, "both ends count alike");
    assert_eq!(sent.bytes.len(), n);
    assert!(sent.record.store.is_none() && received.record.store.is_none());
    (sent, received)
}

#[test]
fn bytes_are_exact_over_all_streams_together() {
    for (n, bytes) in [(1, 1), (1, 10_000_000), (3, 7_654_321), (16, 100)] {
        let (sent, received) = transfer(n, LegLimit::Bytes(Bytes(bytes)), &Bulk::default());
        assert_eq!(total(&sent), bytes);
        // The sender alone, and of a size alone, waits for the acknowledgements.
        assert!(sent.record.acknowledged.is_some_and(|time| time > Nanos(0)));
        assert_eq!(received.record.acknowledged, None);
    }
}

#[test]
fn a_sender_waits_for_acknowledgements_until_the_time_to_drain_is_over() {
    let [large, small] = [200_000, 8192].map(|bytes| SocketSettings {
        send_buffer: Some(Bytes(bytes)),
        receive_buffer: Some(Bytes(bytes)),
        ..SocketSettings::default()
    });
    for (drain, reads) in [(Duration::from_millis(50), false), (PATIENCE, true)] {
        let (local, mut remote) = sockets_with(1, &large, &small);
        let limit = LegLimit::Bytes(Bytes(100_000));
        let mut job = bulk(Role::Send, limit, &Bulk::default());
        job.drain = drain;
        let sender = Load::start(job, local).unwrap();
        if reads {
            while sender.bytes() != [Bytes(100_000)] {
                assert!(!sender.wait(Instant::now() + Duration::from_millis(1)));
            }
            assert!(!sender.wait(Instant::now() + Duration::from_millis(50)));
            io::copy(&mut remote[0], &mut io::sink()).unwrap();
        }
        let sent = done(sender);
        assert_eq!(sent.errors, []);
        assert_eq!(sent.record.acknowledged.is_some(), reads);
    }
}

#[test]
fn time_ends_a_transfer_and_both_ends_count_alike() {
    let limit = LegLimit::Time(Nanos::from_millis(200));
    for discard in [false, true] {
        let order = Bulk {
            discard,
            ..Bulk::default()
        };
        let (sent, received) = transfer(2, limit, &order);
        assert!(sent.bytes.iter().all(|b| b.0 > 0), "{:?}", sent.bytes);
        assert!(received.record.duration.0 > 0);
        assert!(sent.record.duration > Nanos(0));
        assert_eq!(sent.record.acknowledged, None);
    }
}

#[test]
fn a_write_size_that_was_asked_is_used() {
    let order = Bulk {
        write_size: Some(Bytes(1000)),
        ..Bulk::default()
    };
    let (sent, _) = transfer(1, LegLimit::Bytes(Bytes(123_456)), &order);
    assert_eq!(total(&sent), 123_456);
}

#[test]
fn zero_copy_moves_as_many_bytes() {
    let (local, remote) = sockets(2);
    let limit = LegLimit::Bytes(Bytes(20_000_000));
    let order = Bulk {
        zerocopy: true,
        ..Bulk::default()
    };
    let receiver = Load::start(bulk(Role::Receive, limit, &order), remote).unwrap();
    let sent = done(Load::start(bulk(Role::Send, limit, &order), local).unwrap());
    assert_eq!((sent.errors.len(), sent.record.warnings.len()), (0, 0));
    assert_eq!(total(&sent), 20_000_000);
    assert_eq!(total(&done(receiver)), 20_000_000);
}

#[test]
fn stop_ends_a_transfer_early() {
    let (local, remote) = sockets(2);
    let limit = LegLimit::Time(Nanos::from_secs(3600));
    let order = Bulk::default();
    let receiver = Load::start(bulk(Role::Receive, limit, &order), remote).unwrap();
    let sender = Load::start(bulk(Role::Send, limit, &order), local).unwrap();
    while receiver.bytes().iter().any(|b| b.0 == 0) {
        assert!(!sender.wait(Instant::now() + Duration::from_millis(1)));
    }
    sender.stop();
    assert_eq!(done(sender).bytes, done(receiver).bytes);
}

#[test]
fn the_limit_ends_a_sender_that_is_stuck_in_a_write() {
    // Nobody reads: the writes fill the buffers and sleep, a small one before its first byte.
    for write_size in [None, Some(Bytes(1000))] {
        let (local, _remote) = sockets(2);
        let limit = LegLimit::Time(Nanos::from_millis(300));
        let order = Bulk {
            write_size,
            ..Bulk::default()
        };
        let mut job = bulk(Role::Send, limit, &order);
        (job.drain, job.lost_after) = (2 * PATIENCE, 2 * PATIENCE);
        let sent = done(Load::start(job, local).unwrap());
        assert_eq!(sent.errors, []);
        assert!(total(&sent) > 0);
    }
}

#[test]
fn without_half_close_the_connection_stays_open() {
    let (local, mut remote) = sockets(1);
    let mut job = bulk(Role::Send, LegLimit::Bytes(Bytes(5000)), &Bulk::default());
    job.half_close = false;
    let sender = Load::start(job, local).unwrap();
    assert!(sender.wait(Instant::now() + PATIENCE));
    let mut got = [0; 5000];
    remote[0].read_exact(&mut got).unwrap();
    remote[0].set_nonblocking(true).unwrap();
    let open = remote[0].read(&mut got).unwrap_err();
    assert_eq!(open.kind(), io::ErrorKind::WouldBlock);
    assert_eq!(total(&sender.finish()), 5000);

    // A stuck write ends as well; before that it looks at the phase again and again.
    let (local, _remote) = sockets(1);
    let mut job = bulk(
        Role::Send,
        LegLimit::Time(Nanos::from_secs(1)),
        &Bulk::default(),
    );
    job.half_close = false;
    assert_eq!(done(Load::start(job, local).unwrap()).errors, []);
}

#[test]
fn a_receiver_gives_up_when_the_time_to_drain_is_over() {
    let (_local, remote) = sockets(1);
    let limit = LegLimit::Time(Nanos::from_millis(50));
    let mut job = bulk(Role::Receive, limit, &Bulk::default());
    job.drain = Duration::from_millis(50);
    let received = done(Load::start(job, remote).unwrap());
    assert_eq!(received.errors, []);
    assert!(received.record.warnings[0].what.contains("drain"));

    let (_local, remote) = sockets(1);
    let mut job = bulk(Role::Receive, LegLimit::Bytes(Bytes(10)), &Bulk::default());
    job.drain = Duration::from_millis(50);
    let receiver = Load::start(job, remote).unwrap();
    receiver.stop();
    assert_eq!(done(receiver).errors, []);
}

#[test]
fn a_peer_that_resets_ends_its_stream_and_keeps_the_counts() {
    let (local, mut remote) = sockets(2);
    // Far more than fits into buffers: both streams sleep in a write until someone reads.
    let limit = LegLimit::Bytes(Bytes(200_000_000));
    let sender = Load::start(bulk(Role::Send, limit, &Bulk::default()), local).unwrap();
    let mut some = vec![0; 100_000];
    remote[0].read_exact(&mut some).unwrap();
    // Closing with unread data resets the connection (RFC 2525, 2.17).
    drop(remote.remove(0));
    let well = remote.remove(0);
    let reader = thread::spawn(move || io::copy(&mut &well, &mut io::sink()).unwrap());
    let sent = done(sender);
    assert_eq!(reader.join().unwrap(), sent.bytes[1].0);
    assert!(sent.bytes[0].0 >= 100_000);
    assert_eq!(sent.errors.len(), 1);
    assert_eq!(sent.errors[0].stream, 0);
    assert!(
        sent.errors[0].what.contains("closed the connection"),
        "{}",
        sent.errors[0].what
    );
}

#[test]
fn a_receiver_takes_no_more_than_was_ordered() {
    let (mut local, remote) = sockets(1);
    let limit = LegLimit::Bytes(Bytes(100_000));
    let receiver = Load::start(bulk(Role::Receive, limit, &Bulk::default()), remote).unwrap();
    let writer = thread::spawn(move || while local[0].write_all(&[0; 10_000]).is_ok() {});
    let received = done(receiver);
    writer.join().unwrap();
    let why = received.limit.unwrap();
    assert!(why.contains("more than was ordered"), "{why}");
}

/// So many bytes, in pieces of at most 1000.
struct Purse(Mutex<usize>);

impl Quota for Purse {
    fn take(&self, want: usize) -> Result<(usize, Instant), String> {
        let mut left = self.0.lock().unwrap();
        let bytes = want.min(1000).min(*left);
        *left -= bytes;
        match bytes {
            0 => Err("the purse is empty".to_owned()),
            _ => Ok((bytes, Instant::now())),
        }
    }

    fn give_back(&self, bytes: usize) {
        *self.0.lock().unwrap() += bytes;
    }

    fn spend(&self, bytes: usize) -> Result<(), String> {
        let mut left = self.0.lock().unwrap();
        *left = left.checked_sub(bytes).ok_or("the purse is empty")?;
        Ok(())
    }

    fn pay_ahead(&self, _bytes: usize) {}
}

struct BrokenPurse;

impl Quota for BrokenPurse {
    fn take(&self, _want: usize) -> Result<(usize, Instant), String> {
        panic!("as a fault would")
    }

    fn give_back(&self, _bytes: usize) {}

    fn spend(&self, _bytes: usize) -> Result<(), String> {
        panic!("as a fault would")
    }

    fn pay_ahead(&self, _bytes: usize) {}
}

#[test]
fn a_stream_whose_thread_panics_is_over_and_says_so() {
    let hour = LegLimit::Time(Nanos::from_secs(3600));
    for role in [Role::Send, Role::Receive] {
        let (local, mut remote) = sockets(1);
        let mut job = bulk(role, hour, &Bulk::default());
        job.quota = Some(Arc::new(BrokenPurse));
        let load = Load::start(job, local).unwrap();
        // So that a receiver has something to pay for.
        let _ = remote[0].write_all(&[0; 1000]);
        let why = &done(load).errors[0].what;
        assert!(why.starts_with("its thread panicked"), "{role:?}: {why}");
    }
}

#[test]
fn every_byte_of_a_load_is_taken_from_the_quota_and_its_end_has_a_name() {
    const ALL: usize = 1_000_000;
    let hour = LegLimit::Time(Nanos::from_secs(3600));
    let bulk = |role| bulk(role, hour, &Bulk::default());
    let request = |role| request(role, hour, &small());
    let pairs = [
        (bulk(Role::Send), bulk(Role::Receive)),
        (bulk(Role::Receive), bulk(Role::Send)),
        (request(Role::Ask), request(Role::Answer)),
        (request(Role::Answer), request(Role::Ask)),
    ];
    for (mut limited, free) in pairs {
        let role = limited.role;
        limited.quota = Some(Arc::new(Purse(Mutex::new(ALL))));
        let (local, remote) = sockets(2);
        let free = Load::start(free, remote).unwrap();
        let limited = done(Load::start(limited, local).unwrap());
        assert_eq!(
            limited.limit.as_deref(),
            Some("the purse is empty"),
            "{role:?}"
        );
        if matches!(role, Role::Send | Role::Receive) {
            assert_eq!(limited.record.warnings, [], "{role:?}");
        }
        drop(free);
        let moved = match role {
            Role::Send | Role::Receive => total(&limited)..=ALL as u64,
            // A request of 64 bytes has a reply of 8192.
            Role::Ask | Role::Answer => total(&limited) * (64 + 8192) / 64..=ALL as u64 + 2 * 8256,
        };
        assert!(!moved.is_empty(), "{role:?}: {moved:?}");
        assert!(*moved.start() > ALL as u64 * 9 / 10, "{role:?}: {moved:?}");
    }
}

/// One piece for the stream that asks first, which it gets after another was refused.
#[derive(Default)]
struct LastPiece {
    takes: AtomicU64,
    refused: Mutex<bool>,
    changed: Condvar,
    given_back: AtomicU64,
}

impl Quota for LastPiece {
    fn take(&self, want: usize) -> Result<(usize, Instant), String> {
        if self.takes.fetch_add(1, Ordering::Relaxed) > 0 {
            *self.refused.lock().unwrap() = true;
            self.changed.notify_all();
            return Err("nothing is left".to_owned());
        }
        let refused = self.refused.lock().unwrap();
        let refused = self.changed.wait_while(refused, |refused| !*refused);
        drop(refused.unwrap());
        // The refusal cuts the load meanwhile.
        thread::sleep(Duration::from_millis(200));
        Ok((want.min(1000), Instant::now()))
    }

    fn give_back(&self, bytes: usize) {
        self.given_back.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn spend(&self, _bytes: usize) -> Result<(), String> {
        Ok(())
    }

    fn pay_ahead(&self, _bytes: usize) {}
}

#[test]
fn the_last_bytes_of_a_quota_are_read_although_another_stream_was_refused_meanwhile() {
    let (mut local, remote) = sockets(2);
    let hour = LegLimit::Time(Nanos::from_secs(3600));
    let mut job = bulk(Role::Receive, hour, &Bulk::default());
    let quota = Arc::new(LastPiece::default());
    job.quota = Some(Arc::clone(&quota) as Arc<dyn Quota>);
    local
        .iter_mut()
        .for_each(|socket| socket.write_all(&[0; 10_000]).unwrap());
    let received = done(Load::start(job, remote).unwrap());
    assert_eq!(received.limit.as_deref(), Some("nothing is left"));
    assert_eq!(quota.given_back.load(Ordering::Relaxed), 0);
    assert_eq!(total(&received), 1000);
}

#[test]
fn a_load_is_cut_after_its_longest_time_whatever_its_peer_does() {
    for role in [Role::Send, Role::Receive] {
        let (local, _remote) = sockets(1);
        let mut job = bulk(role, LegLimit::Bytes(Bytes(1 << 50)), &Bulk::default());
        job.longest = Some((Duration::from_millis(50), "too long".to_owned()));
        let outcome = done(Load::start(job, local).unwrap());
        assert_eq!(outcome.limit.as_deref(), Some("too long"), "{role:?}");
    }
}

#[test]
fn dropping_a_load_ends_it() {
    let (local, remote) = sockets(2);
    let limit = LegLimit::Time(Nanos::from_secs(3600));
    drop(Load::start(bulk(Role::Receive, limit, &Bulk::default()), local).unwrap());
    for mut remote in remote {
        remote
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        assert_eq!(remote.read(&mut [0]).unwrap(), 0, "its sockets are closed");
    }
}

#[test]
fn a_hundred_streams() {
    let (sent, _) = transfer(100, LegLimit::Bytes(Bytes(30_000_000)), &Bulk::default());
    assert_eq!(total(&sent), 30_000_000);
    assert_eq!(sent.bytes.len(), 100);
}

/// Requests against an answering load; both ends must have ended well.
fn ask(n: usize, limit: LegLimit, order: &Request) -> (LoadOutcome, LoadOutcome) {
    let (local, remote) = sockets(n);
    let server = Load::start(request(Role::Answer, limit, order), remote).unwrap();
    let client = Load::start(request(Role::Ask, limit, order), local).unwrap();
    let (asked, answered) = (done(client), done(server));
    assert_eq!(asked.errors, []);
    assert_eq!(answered.errors, []);
    assert_eq!(asked.bytes, answered.bytes);
    (asked, answered)
}

fn count(outcome: &LoadOutcome) -> u64 {
    outcome.record.requests.as_ref().map_or(0, Latency::count)
}

#[test]
fn requests_are_counted_exactly() {
    for wait in [WaitMode::Hybrid, WaitMode::Block] {
        for n in [1, 3] {
            let order = Request { wait, ..small() };
            let (asked, answered) = ask(n, LegLimit::Requests(500), &order);
            assert_eq!(count(&asked), 500);
            assert_eq!(total(&asked), 500 * 64);
            assert_eq!(answered.record.requests, None);
        }
    }
}

#[test]
fn requests_end_by_time_and_by_bytes() {
    let (asked, _) = ask(1, LegLimit::Time(Nanos::from_millis(100)), &small());
    assert!(count(&asked) > 0);
    let (asked, _) = ask(1, LegLimit::Bytes(Bytes(6400)), &small());
    assert_eq!(count(&asked), 100);
}

#[test]
fn requests_and_replies_of_any_size() {
    for (request_size, reply_size) in [(4, 1), (4, 3_000_000), (3_000_000, 1), (70_000, 70_000)] {
        let order = Request {
            request_size: Bytes(request_size),
            reply_size: Bytes(reply_size),
            ..small()
        };
        let (asked, _) = ask(1, LegLimit::Requests(3), &order);
        assert_eq!(count(&asked), 3);
        assert_eq!(total(&asked), 3 * request_size);
    }
}

#[test]
fn taken_latencies_add_up_to_the_total() {
    let (local, remote) = sockets(2);
    let limit = LegLimit::Requests(2000);
    let server = Load::start(request(Role::Answer, limit, &small()), remote).unwrap();
    let client = Load::start(request(Role::Ask, limit, &small()), local).unwrap();
    assert_eq!(server.take_requests(), None);
    let mut taken = Latency::default();
    while !client.wait(Instant::now() + Duration::from_millis(1)) {
        taken = taken.merged(&client.take_requests().unwrap());
    }
    taken = taken.merged(&client.take_requests().unwrap());
    assert_eq!(taken.count(), 2000);
    assert_eq!(done(client).record.requests, Some(taken));
    done(server);
}

/// More connections than processors: threads have several.
fn several() -> usize {
    2 * thread::available_parallelism().unwrap().get() + 1
}

#[test]
fn several_connections_of_a_thread_are_counted_exactly() {
    for wait in [WaitMode::Hybrid, WaitMode::Block] {
        let order = Request { wait, ..small() };
        let (asked, answered) = ask(several(), LegLimit::Requests(500), &order);
        assert_eq!(count(&asked), 500);
        assert_eq!(total(&answered), 500 * 64);
    }
}

#[test]
fn messages_larger_than_all_buffers_pass_in_pieces() {
    let narrow = SocketSettings {
        send_buffer: Some(Bytes(8192)),
        receive_buffer: Some(Bytes(8192)),
        ..SocketSettings::default()
    };
    for (request_size, reply_size) in [(4, 1_500_000), (1_500_000, 1), (300_000, 300_000)] {
        let order = Request {
            request_size: Bytes(request_size),
            reply_size: Bytes(reply_size),
            ..small()
        };
        let n = several();
        let (local, remote) = sockets_with(n, &narrow, &narrow);
        let limit = LegLimit::Requests(2 * n as u64);
        let server = Load::start(request(Role::Answer, limit, &order), remote).unwrap();
        let asked = done(Load::start(request(Role::Ask, limit, &order), local).unwrap());
        let answered = done(server);
        assert_eq!((asked.errors, answered.errors), (vec![], vec![]));
        assert_eq!(
            answered.bytes.iter().map(|b| b.0).sum::<u64>(),
            2 * n as u64 * request_size
        );
        assert_eq!(asked.bytes, answered.bytes);
    }
}

#[test]
fn a_connection_that_never_answers_among_a_thousand_holds_up_no_other() {
    sys::process::raise_open_files();
    let (local, mut remote) = sockets(1000);
    let silent = remote.remove(417);
    let mut job = request(Role::Ask, LegLimit::Requests(5000), &small());
    job.drain = Duration::from_secs(1);
    let limit = job.limit;
    let server = Load::start(request(Role::Answer, limit, &small()), remote).unwrap();
    let client = Load::start(job, local).unwrap();
    // Of a number of requests none ends the load but the last.
    while client.bytes().iter().map(|b| b.0).sum::<u64>() < 5000 * 64 {
        assert!(!client.wait(Instant::now() + Duration::from_millis(5)));
    }
    client.stop();
    let asked = done(client);
    assert_eq!(asked.errors, []);
    assert_eq!(count(&asked), 4999);
    assert!(
        asked.record.warnings[0]
            .what
            .contains("1 request(s) were never answered")
    );
    assert_eq!(asked.bytes[417], Bytes(64));
    assert_eq!(done(server).errors, []);
    drop(silent);
}

/// Requests over several connections of which the last has this peer, until the client has ended that one.
fn beside(pace: Option<f64>, peer: impl FnOnce(&mut TcpStream)) -> LoadOutcome {
    let (local, mut remote) = sockets(several());
    let mut last = remote.pop().unwrap();
    last.set_read_timeout(Some(PATIENCE)).unwrap();
    let order = Request {
        pace_per_s: pace,
        ..small()
    };
    let limit = LegLimit::Time(Nanos::from_secs(3600));
    let server = Load::start(request(Role::Answer, limit, &order), remote).unwrap();
    let client = Load::start(request(Role::Ask, limit, &order), local).unwrap();
    peer(&mut last);
    let _ = io::copy(&mut last, &mut io::sink());
    client.stop();
    let asked = done(client);
    assert_eq!(done(server).errors, []);
    asked
}

#[test]
fn a_server_that_goes_away_or_sends_too_much_ends_its_connection_alone() {
    let last = several() as u32 - 1;
    let fails = |pace, sends: &[usize], closes: bool, why: &str| {
        let asked = beside(pace, |socket| {
            socket.read_exact(&mut [0; 64]).unwrap();
            for bytes in sends {
                socket.write_all(&vec![0; *bytes]).unwrap();
            }
            if closes {
                socket.shutdown(std::net::Shutdown::Write).unwrap();
            }
        });
        let broken: Vec<u32> = asked.errors.iter().map(|e| e.stream).collect();
        assert_eq!(broken, [last], "{:?}", asked.errors);
        assert!(asked.errors[0].what.contains(why), "{:?}", asked.errors);
        let others = &asked.bytes[..last as usize];
        assert!(others.iter().all(|bytes| bytes.0 >= 64), "{others:?}");
    };
    let (gone, too_much) = (
        "closed the connection before the end",
        "more than it was asked for",
    );
    fails(None, &[5000], true, gone);
    fails(None, &[8193], false, too_much);
    // Idle, between requests.
    let pace = Some(20.0 * f64::from(last + 1));
    fails(pace, &[8192, 1], false, too_much);
    fails(pace, &[8192], true, gone);
}

#[test]
fn requests_in_pieces_and_two_at_once_are_answered_whatever_the_others_do() {
    let n = several();
    let (local, remote) = sockets(n);
    let job = request(Role::Answer, LegLimit::Requests(1), &small());
    let server = Load::start(job, remote).unwrap();
    let mut one = [7; 64];
    one[..4].copy_from_slice(&3u32.to_be_bytes());
    let read = |mut socket: &TcpStream, bytes: usize| {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.read_exact(&mut vec![0; bytes]).unwrap();
    };
    // All are in the middle of a request at the same time, cut elsewhere.
    for (cut, mut socket) in (1..).zip(&local) {
        socket.write_all(&one[..cut]).unwrap();
    }
    for (cut, mut socket) in (1..).zip(&local) {
        socket.write_all(&one[cut..]).unwrap();
        socket.write_all(&[one, one].concat()).unwrap();
        read(socket, 9);
    }
    drop(local);
    let answered = done(server);
    assert_eq!(answered.errors, []);
    assert_eq!(answered.bytes, vec![Bytes(3 * 64); n]);
}

#[test]
fn several_connections_share_a_quota_and_a_pace() {
    let order = Request {
        pace_per_s: Some(1000.0),
        ..small()
    };
    let n = several();
    let (local, remote) = sockets(n);
    let limit = LegLimit::Requests(100);
    let mut job = request(Role::Answer, limit, &order);
    job.quota = Some(Arc::new(Purse(Mutex::new(100 * (64 + 8192)))));
    let server = Load::start(job, remote).unwrap();
    let began = Instant::now();
    let asked = done(Load::start(request(Role::Ask, limit, &order), local).unwrap());
    assert_eq!(asked.errors, []);
    assert_eq!(count(&asked), 100);
    assert!(
        began.elapsed() >= Duration::from_millis(99),
        "due at 0, 1, ... 99 ms"
    );
    assert!(asked.bytes.iter().all(|bytes| bytes.0 > 0), "in turn");
    let answered = done(server);
    assert_eq!((answered.errors, answered.limit), (vec![], None));
}

/// A server that answers one request at a time, on order.
struct Gate {
    open: Mutex<u64>,
    changed: Condvar,
    seen: AtomicU64,
}

impl Gate {
    fn pass(&self) {
        let mut open = self.open.lock().unwrap();
        while *open == 0 {
            open = self.changed.wait(open).unwrap();
        }
        *open -= 1;
    }

    fn let_through(&self, n: u64) {
        *self.open.lock().unwrap() = n;
        self.changed.notify_all();
    }

    fn serve(self: &Arc<Gate>, mut socket: TcpStream) -> thread::JoinHandle<()> {
        let gate = Arc::clone(self);
        thread::spawn(move || {
            let mut buffer = [0; 64];
            while socket.read_exact(&mut buffer).is_ok() {
                gate.seen.fetch_add(1, Ordering::SeqCst);
                gate.pass();
                let reply = [0; 100];
                if socket.write_all(&reply).is_err() {
                    break;
                }
            }
        })
    }
}

fn gate(open: u64) -> Arc<Gate> {
    Arc::new(Gate {
        open: Mutex::new(open),
        changed: Condvar::new(),
        seen: AtomicU64::new(0),
    })
}

#[test]
fn a_stall_is_charged_to_every_request_that_was_due_in_it() {
    let (local, mut remote) = sockets(1);
    let gate = gate(10);
    let server = gate.serve(remote.remove(0));
    let order = Request {
        reply_size: Bytes(100),
        pace_per_s: Some(1000.0),
        ..small()
    };
    let began = Instant::now();
    let client = Load::start(request(Role::Ask, LegLimit::Requests(500), &order), local).unwrap();
    while gate.seen.load(Ordering::SeqCst) < 11 {
        assert!(!client.wait(Instant::now() + Duration::from_millis(1)));
    }
    // The eleventh waits at the gate. Due one a millisecond from `began` on, those of the next
    // 400 ms and more cannot be sent; an uncorrected client would count this stall once.
    let stalled_until = began + Duration::from_millis(420);
    assert!(!client.wait(stalled_until));
    gate.let_through(u64::MAX);
    let asked = done(client);
    server.join().unwrap();
    let latency = asked.record.requests.unwrap();
    assert_eq!(latency.count(), 500);
    // Request k was due at k ms and was answered after 420 ms at the earliest: k = 11 waited 409
    // and so on down. At least 300 must have waited 100 ms or more.
    let late: u64 = latency
        .counts()
        .iter()
        .filter(|(ns, _)| *ns >= 100_000_000)
        .map(|(_, n)| n)
        .sum();
    assert!(late >= 300, "{late}");
    assert!(latency.max().unwrap() >= Nanos::from_millis(400));
}

#[test]
fn what_was_never_answered_or_sent_is_said() {
    let (local, mut remote) = sockets(1);
    let gate = gate(3);
    let server = gate.serve(remote.remove(0));
    let order = Request {
        reply_size: Bytes(100),
        pace_per_s: Some(1000.0),
        ..small()
    };
    let mut job = request(Role::Ask, LegLimit::Time(Nanos::from_millis(200)), &order);
    job.drain = Duration::from_millis(50);
    let asked = done(Load::start(job, local).unwrap());
    gate.let_through(u64::MAX);
    server.join().unwrap();
    assert_eq!(asked.errors, []);
    assert_eq!(asked.record.requests.unwrap().count(), 3);
    let said: Vec<&str> = asked
        .record
        .warnings
        .iter()
        .map(|w| w.what.as_str())
        .collect();
    assert!(
        said[0].contains("1 request(s) were never answered"),
        "{said:?}"
    );
    assert!(said[1].contains("due and never sent"), "{said:?}");
}

#[test]
fn a_client_that_asked_all_it_was_to_ask_left_none_unsent() {
    let order = Request {
        pace_per_s: Some(1e7),
        wait: WaitMode::Block,
        ..small()
    };
    let (asked, _) = ask(1, LegLimit::Requests(100), &order);
    assert_eq!((count(&asked), asked.record.warnings), (100, vec![]));
}

#[test]
fn both_ends_on_one_host_that_cannot_all_spin_are_warned() {
    let cpus = sys::sched::allowed_cpus().unwrap();
    let threads = cpus.len();
    let (local, remote) = sockets(threads);
    let job = |role| Job {
        cpus: cpus.clone(),
        ..request(role, LegLimit::Requests(1), &small())
    };
    let _server = Load::start(job(Role::Answer), remote).unwrap();
    let said = done(Load::start(job(Role::Ask), local).unwrap())
        .record
        .warnings;
    let what = format!("{} threads on ", 2 * threads);
    assert!(said[0].what.contains(&what), "{said:?}");
}

#[test]
fn a_paced_client_keeps_its_pace_and_no_more() {
    let order = Request {
        pace_per_s: Some(200.0),
        ..small()
    };
    let (asked, _) = ask(2, LegLimit::Time(Nanos::from_millis(250)), &order);
    // Due at 0, 5, 10, ... 245 ms: fifty over both connections, if the machine kept up.
    assert!((1..=50).contains(&count(&asked)), "{}", count(&asked));
}

#[test]
fn a_reply_beyond_the_order_is_refused() {
    let answer = |size: u32| {
        let (mut local, remote) = sockets(1);
        let job = request(Role::Answer, LegLimit::Requests(1), &small());
        let server = Load::start(job, remote).unwrap();
        let mut wild = [0; 64];
        wild[..4].copy_from_slice(&size.to_be_bytes());
        local[0].write_all(&wild).unwrap();
        local[0].shutdown(std::net::Shutdown::Write).unwrap();
        let errors = done(server).errors;
        (io::copy(&mut local[0], &mut io::sink()).unwrap(), errors)
    };
    for fits in [1, 8192] {
        assert_eq!(answer(fits), (u64::from(fits), Vec::new()));
    }
    for beyond in [0, 8193] {
        let (_, errors) = answer(beyond);
        let what = &errors[0].what;
        assert!(
            what.contains(&format!("a reply of {beyond} bytes")),
            "{what}"
        );
    }
}

#[test]
fn a_client_that_goes_away_within_a_request_is_an_error() {
    for (bytes, errors) in [(0, 0), (64, 0), (10, 1), (74, 1)] {
        let (mut local, remote) = sockets(1);
        let job = request(Role::Answer, LegLimit::Requests(2), &small());
        let server = Load::start(job, remote).unwrap();
        let mut some = [0; 74];
        some[3] = 1;
        local[0].write_all(&some[..bytes]).unwrap();
        local[0].shutdown(std::net::Shutdown::Write).unwrap();
        let answered = done(server);
        assert_eq!(
            answered.errors.len(),
            errors,
            "{bytes}: {:?}",
            answered.errors
        );
        assert_eq!(total(&answered), bytes as u64);
    }
}

#[test]
fn a_reply_larger_than_the_buffer_passes_a_quota_in_pieces() {
    let order = Request {
        reply_size: Bytes(2_500_000),
        ..small()
    };
    let (local, remote) = sockets(1);
    let mut job = request(Role::Answer, LegLimit::Requests(1), &order);
    job.quota = Some(Arc::new(Purse(Mutex::new(3_000_000))));
    let server = Load::start(job, remote).unwrap();
    let asked = request(Role::Ask, LegLimit::Requests(1), &order);
    let asked = done(Load::start(asked, local).unwrap());
    assert_eq!(asked.errors, []);
    assert_eq!(count(&asked), 1);
    assert_eq!(done(server).errors, []);
}

#[test]
fn a_server_that_goes_away_is_an_error_with_counts() {
    let (local, mut remote) = sockets(1);
    let gate = gate(5);
    let socket = remote.remove(0);
    let handle = socket.try_clone().unwrap();
    let server = gate.serve(socket);
    let order = Request {
        reply_size: Bytes(100),
        ..small()
    };
    let limit = LegLimit::Time(Nanos::from_secs(3600));
    let client = Load::start(request(Role::Ask, limit, &order), local).unwrap();
    while gate.seen.load(Ordering::SeqCst) < 6 {
        assert!(!client.wait(Instant::now() + Duration::from_millis(1)));
    }
    handle.shutdown(std::net::Shutdown::Both).unwrap();
    gate.let_through(u64::MAX);
    server.join().unwrap();
    let asked = done(client);
    assert_eq!(asked.record.requests.unwrap().count(), 5);
    assert!(asked.errors[0].what.contains("closed the connection"));
}

struct Door(TcpListener);

impl DataAcceptor for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn accept(&self) -> io::Result<Option<TcpStream>> {
        match self.0.accept() {
            Ok((stream, _)) => Ok(Some(stream)),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(e) => Err(e),
        }
    }
}

#[test]
fn a_new_connection_for_every_request() {
    let plain = SocketSettings::default();
    let here = Placement::default();
    let listener = listen((Ipv4Addr::LOCALHOST, 0).into(), &plain, &here).unwrap();
    let address = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    let opened = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&opened);
    let open = move |_stream: u32| {
        counter.fetch_add(1, Ordering::SeqCst);
        connect(address, &plain, &here, PATIENCE).map_err(io::Error::other)
    };
    for wait in [WaitMode::Hybrid, WaitMode::Block] {
        let (local, remote) = sockets(2);
        let order = Request {
            reconnect: true,
            wait,
            ..small()
        };
        let limit = LegLimit::Requests(200);
        let mut serve = request(Role::Answer, limit, &order);
        serve.reconnect = Some(Reconnect::Accept(Arc::new(Door(
            listener.try_clone().unwrap(),
        ))));
        let mut job = request(Role::Ask, limit, &order);
        job.reconnect = Some(Reconnect::Connect(Arc::new(open.clone())));
        let server = Load::start(serve, remote).unwrap();
        let asked = done(Load::start(job, local).unwrap());
        let answered = done(server);
        assert_eq!(asked.errors, []);
        assert_eq!(answered.errors, []);
        assert_eq!(count(&asked), 200);
        assert_eq!(total(&answered), 200 * 64);
    }
    assert_eq!(opened.load(Ordering::SeqCst), 400);
}

#[test]
fn a_reconnecting_client_gives_up_on_a_silent_server() {
    let plain = SocketSettings::default();
    let here = Placement::default();
    // The backlog completes the handshakes; nobody accepts.
    let listener = listen((Ipv4Addr::LOCALHOST, 0).into(), &plain, &here).unwrap();
    let address = listener.local_addr().unwrap();
    let (local, _remote) = sockets(1);
    let order = Request {
        reconnect: true,
        ..small()
    };
    let mut job = request(Role::Ask, LegLimit::Time(Nanos::from_millis(50)), &order);
    job.drain = Duration::from_millis(50);
    let open = move |_: u32| connect(address, &plain, &here, PATIENCE).map_err(io::Error::other);
    job.reconnect = Some(Reconnect::Connect(Arc::new(open)));
    let asked = done(Load::start(job, local).unwrap());
    assert_eq!(asked.errors, []);
    assert!(asked.record.warnings[0].what.contains("never answered"));
}

#[test]
fn threads_stay_on_the_processors_given() {
    let (local, remote) = sockets(2);
    let limit = LegLimit::Bytes(Bytes(1000));
    let mut job = bulk(Role::Send, limit, &Bulk::default());
    job.cpus = vec![first_cpu()];
    let receiver = Load::start(bulk(Role::Receive, limit, &Bulk::default()), remote).unwrap();
    assert_eq!(done(Load::start(job, local).unwrap()).errors, []);
    done(receiver);

    let (local, _remote) = sockets(1);
    let mut job = bulk(Role::Send, limit, &Bulk::default());
    job.cpus = vec![1_000_000];
    let refused = Load::start(job, local).err().unwrap().to_string();
    assert!(
        refused.starts_with("CPU 1000000 is out of range"),
        "{refused}"
    );
}

fn first_cpu() -> u32 {
    sys::sched::allowed_cpus().unwrap()[0]
}

#[test]
fn requests_do_not_wait_for_acknowledgements_unless_ordered() {
    let hour = LegLimit::Time(Nanos::from_secs(3600));
    let set = |mut job: Job, nodelay| {
        job.nodelay = nodelay;
        let (_local, remote) = sockets(1);
        Load::start(job, remote).unwrap().sockets()[0]
            .nodelay()
            .unwrap()
    };
    for role in [Role::Ask, Role::Answer] {
        let of = |nodelay| set(request(role, hour, &small()), nodelay);
        assert_eq!([None, Some(true), Some(false)].map(of), [true, true, false]);
    }
    // Where nobody answers, the option is the socket's own matter.
    assert!(!set(bulk(Role::Receive, hour, &Bulk::default()), None));
}

#[test]
fn buffers_are_counted_before_they_are_made() {
    const MIB: u64 = 1 << 20;
    const CONNECTION: u64 = 4096;
    let cpus = thread::available_parallelism().unwrap().get() as u64;
    let bulk = |write_size: Option<u64>, discard| {
        Workload::Bulk(Bulk {
            write_size: write_size.map(Bytes),
            discard,
            ..Bulk::default()
        })
    };
    let spliced = |size: Option<u64>| {
        Workload::Bulk(Bulk {
            write_size: size.map(Bytes),
            zerocopy: true,
            ..Bulk::default()
        })
    };
    let request = |request, reply| {
        Workload::Request(Request {
            request_size: Bytes(request),
            reply_size: Bytes(reply),
            ..small()
        })
    };
    let udp = Workload::Udp(model::Udp {
        rate: BitRate(1),
        datagram_size: Bytes(100),
    });
    for (workload, streams, role, bytes) in [
        // The largest datagram, or eight of them that arrived and what is known of earlier ones.
        (udp.clone(), 3, Role::Send, 3 * 65_507),
        (udp, 3, Role::Receive, 3 * (8 * 65_508 + (96 << 10))),
        // 16 MiB for all that receive, 64 to 256 KiB for each.
        (bulk(None, false), 1, Role::Receive, MIB / 4),
        (bulk(None, false), 64, Role::Receive, 16 * MIB),
        (bulk(None, false), 65, Role::Receive, 65 * (16 * MIB / 65)),
        (bulk(None, false), 257, Role::Receive, 257 * MIB / 16),
        (bulk(Some(64 * MIB), false), 32, Role::Receive, 8 * MIB),
        (bulk(None, true), 3, Role::Receive, 0),
        // A piece that is sent 4 to 16 times at once.
        (bulk(None, true), 3, Role::Send, 3 * MIB / 8),
        (bulk(Some(64 * MIB), false), 32, Role::Send, 128 * MIB),
        (bulk(Some(1000), false), 2, Role::Send, 2000),
        // Without a copy a whole write, from 1 MiB on in huge pages.
        (spliced(None), 16, Role::Send, 32 * MIB),
        (spliced(None), 17, Role::Send, 17 * (16 * MIB / 17)),
        (spliced(None), 257, Role::Send, 257 * MIB / 16),
        (spliced(Some(3 * MIB)), 2, Role::Send, 8 * MIB),
        (request(100, 1000), 1, Role::Ask, 1100 + CONNECTION),
        (request(5 * MIB, 1), 1, Role::Answer, MIB + 1 + CONNECTION),
        // A thread's are those of all its connections.
        (
            request(100, 1000),
            10_000,
            Role::Answer,
            1100 * cpus + 10_000 * CONNECTION,
        ),
    ] {
        let counted = linerate_measure::buffers(&workload, streams, role);
        assert_eq!(counted, Bytes(bytes), "{workload:?} {streams} {role:?}");
    }
}

#[test]
fn orders_that_do_not_fit_together_are_refused() {
    let udp = Workload::Udp(model::Udp {
        rate: BitRate(1),
        datagram_size: Bytes(1),
    });
    let limit = LegLimit::Bytes(Bytes(1));
    let huge = Bulk {
        write_size: Some(Bytes(u64::MAX)),
        ..Bulk::default()
    };
    let tiny = Request {
        request_size: Bytes(3),
        ..small()
    };
    let reconnecting = Request {
        reconnect: true,
        ..small()
    };
    let cases = [
        (Job::new(Role::Send, udp, limit), "do not fit together"),
        (request(Role::Send, limit, &small()), "do not fit together"),
        (bulk(Role::Send, limit, &huge), "writes of 16384 PiB"),
        (
            bulk(Role::Send, LegLimit::Requests(1), &Bulk::default()),
            "requests",
        ),
        (request(Role::Ask, limit, &tiny), "requests of 3 B"),
        (request(Role::Ask, limit, &reconnecting), "must go together"),
    ];
    for (job, words) in cases {
        let (local, _remote) = sockets(1);
        let refused = Load::start(job, local).err().unwrap().to_string();
        assert!(refused.contains(words), "{refused}");
    }
}

#[test]
fn over_ipv6() {
    let plain = SocketSettings::default();
    let here = Placement::default();
    let local = SocketAddr::from((Ipv6Addr::LOCALHOST, 0));
    let listener = listen(local, &plain, &here).unwrap();
    let address = listener.local_addr().unwrap();
    let local = connect(address, &plain, &here, PATIENCE).unwrap();
    let remote = listener.accept().unwrap().0;
    let limit = LegLimit::Bytes(Bytes(100_000));
    let receiver = Load::start(bulk(Role::Receive, limit, &Bulk::default()), vec![remote]).unwrap();
    done(Load::start(bulk(Role::Send, limit, &Bulk::default()), vec![local]).unwrap());
    assert_eq!(total(&done(receiver)), 100_000);
}

#[test]
fn a_connection_from_a_privileged_port_where_there_is_the_right() {
    let (settings, placement) = (SocketSettings::default(), Placement::default());
    let listener = listen((Ipv4Addr::LOCALHOST, 0).into(), &settings, &placement).unwrap();
    let address = listener.local_addr().unwrap();
    // The second finds the port of the first in use.
    let ports = [0, 1].map(|_| {
        let stream = connect_privileged(address, &settings, &placement, PATIENCE).unwrap();
        listener.accept().unwrap();
        let port = stream.local_addr().unwrap().port();
        (stream, port)
    });
    let elsewhere = Ipv4Addr::new(127, 9, 9, 9);
    let may = (600..1024).any(|port| TcpListener::bind((elsewhere, port)).is_ok());
    for (_, port) in &ports {
        assert_eq!((600..1024).contains(port), may, "{port}");
    }
    assert_ne!(ports[0].1, ports[1].1);
}

use super::*;
use crate::Quota;
use model::{BlockOperation, Bulk, Nanos, Request, WaitMode, Workload};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;

/// A load of so many streams that no thread moves, with the sockets of its peer.
pub(crate) fn idle(job: Job, streams: usize) -> (StreamShared, Vec<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let pair = |_| {
        let own = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (own, listener.accept().unwrap().0)
    };
    let (own, peers) = (0..streams).map(pair).unzip();
    (StreamShared::new(job, own, 1, Vec::new()).unwrap(), peers)
}

pub(crate) fn stream(shared: &StreamShared, index: usize) -> LoadStream<'_> {
    LoadStream {
        shared,
        index,
        thread: 0,
        // Nobody waits for it.
        over: AtomicBool::new(true),
    }
}

pub(crate) fn bulk(role: Role, limit: LegLimit) -> Job {
    Job::new(role, Workload::Bulk(Bulk::default()), limit)
}

const BYTES: LegLimit = LegLimit::Bytes(Bytes(1000));

/// Lets at most `part` bytes pass at a time, from a moment on; what it was asked.
pub(crate) struct RecordingQuota {
    pub(crate) part: usize,
    pub(crate) from: Instant,
    pub(crate) taken: Mutex<Vec<usize>>,
    pub(crate) back: Mutex<Vec<usize>>,
    pub(crate) ahead: Mutex<Vec<usize>>,
}

impl RecordingQuota {
    pub(crate) fn new(part: usize) -> Arc<RecordingQuota> {
        RecordingQuota::from(part, Instant::now())
    }

    fn from(part: usize, from: Instant) -> Arc<RecordingQuota> {
        let none = || Mutex::new(Vec::new());
        let [taken, back, ahead] = [none(), none(), none()];
        Arc::new(RecordingQuota {
            part,
            from,
            taken,
            back,
            ahead,
        })
    }
}

impl Quota for RecordingQuota {
    fn take(&self, want: usize) -> Result<(usize, Instant), String> {
        let bytes = want.min(self.part);
        lock(&self.taken).push(bytes);
        match bytes {
            0 => Err("nothing is left".to_owned()),
            _ => Ok((bytes, self.from)),
        }
    }

    fn give_back(&self, bytes: usize) {
        lock(&self.back).push(bytes);
    }

    fn spend(&self, bytes: usize) -> Result<(), String> {
        match bytes > self.part {
            true => Err("it was too much".to_owned()),
            false => Ok(()),
        }
    }

    fn pay_ahead(&self, bytes: usize) {
        lock(&self.ahead).push(bytes);
    }
}

fn limited(role: Role, quota: &Arc<RecordingQuota>) -> Job {
    let mut job = bulk(role, LegLimit::Time(Nanos::from_secs(1000)));
    job.quota = Some(Arc::<RecordingQuota>::clone(quota));
    job
}

#[test]
fn a_limit_is_claimed_once_and_what_is_not_used_comes_back() {
    let (shared, _peers) = idle(bulk(Role::Send, BYTES), 2);
    let (one, other) = (stream(&shared, 0), stream(&shared, 1));
    assert_eq!(
        [one.claim(300), other.claim(800), one.claim(5)],
        [300, 700, 0]
    );
    one.give_back(50);
    assert_eq!([other.claim(100), other.claim(1)], [50, 0]);
    let (free, _peers) = idle(bulk(Role::Send, LegLimit::Time(Nanos(1))), 1);
    assert_eq!(stream(&free, 0).claim(u64::MAX), u64::MAX);
    // A receiver takes no more than was ordered, unless the protocol has an end of its own; servers answer what comes.
    let claims = |job| stream(&idle(job, 1).0, 0).claim(5000);
    assert_eq!(claims(bulk(Role::Receive, BYTES)), 1000);
    let mut open = bulk(Role::Receive, BYTES);
    open.half_close = false;
    assert_eq!(claims(open), 5000);
    let order = Request {
        request_size: Bytes(64),
        reply_size: Bytes(64),
        pace_per_s: None,
        reconnect: false,
        wait: WaitMode::Block,
    };
    let requests = |role| {
        Job::new(
            role,
            Workload::Request(order.clone()),
            LegLimit::Requests(9),
        )
    };
    assert_eq!(
        [claims(requests(Role::Ask)), claims(requests(Role::Answer))],
        [9, 5000]
    );
}

#[test]
fn the_clock_ends_a_sender_in_time_and_a_receiver_after_it_has_drained() {
    let ends = |role, limit| {
        let (shared, _peers) = idle(bulk(role, limit), 1);
        shared.ends.map(|at| at - shared.begun)
    };
    let time = LegLimit::Time(Nanos::from_secs(7));
    assert_eq!(ends(Role::Send, time), Some(Duration::from_secs(7)));
    assert_eq!(ends(Role::Receive, time), Some(Duration::from_secs(10)));
    assert_eq!(ends(Role::Send, BYTES), None);
    let mut cut = bulk(Role::Send, BYTES);
    cut.longest = Some((Duration::from_secs(5), "why".to_owned()));
    let (shared, _peers) = idle(cut, 1);
    assert_eq!(
        shared.longest.map(|at| at - shared.begun),
        Some(Duration::from_secs(5))
    );
}

#[test]
fn a_load_lasts_from_the_first_byte_of_any_stream_to_the_last() {
    let (shared, _peers) = idle(bulk(Role::Send, BYTES), 1);
    let (own, at) = (stream(&shared, 0), |s| {
        shared.begun + Duration::from_secs(s)
    });
    own.moved(at(5), at(6));
    own.moved(at(3), at(4));
    own.moved(at(7), at(9));
    let state = shared.lock();
    assert_eq!((state.first, state.last), (Some(at(3)), Some(at(9))));
}

#[test]
fn the_first_limit_that_cuts_a_load_is_its_reason() {
    let (shared, _peers) = idle(bulk(Role::Receive, BYTES), 1);
    let own = stream(&shared, 0);
    let broke = |kind: io::ErrorKind| own.broken(&kind.into());
    let peer = shared.streams[0].peer.unwrap();
    let closed = format!("{peer} closed the connection before the end");
    for kind in [io::ErrorKind::ConnectionReset, io::ErrorKind::BrokenPipe] {
        assert!(broke(kind).starts_with(&closed), "{}", broke(kind));
    }
    let lost = broke(io::ErrorKind::TimedOut);
    assert!(lost.contains("acknowledged nothing for 8 s"), "{lost}");
    assert!(broke(io::ErrorKind::NotFound).starts_with("the connection with"));
    assert!(!own.is_limited() && own.phase() == LoadPhase::Running);
    assert_eq!(
        own.limit("first".to_owned()).kind(),
        io::ErrorKind::Interrupted
    );
    own.limit("second".to_owned());
    assert!(own.is_limited() && own.phase() == LoadPhase::Cut);
    assert_eq!(broke(io::ErrorKind::TimedOut), "first");
}

#[test]
fn a_quota_admits_a_part_and_gets_back_what_did_not_move() {
    let quota = RecordingQuota::new(400);
    let (shared, _peers) = idle(limited(Role::Send, &quota), 1);
    let own = stream(&shared, 0);
    assert_eq!(own.admit(1000, LoadPhase::Ending).unwrap(), 400);
    assert!(own.spend(400).is_ok());
    own.unmoved(400, &Ok(150));
    own.unmoved(400, &Ok(400));
    own.unmoved(400, &Err(io::ErrorKind::TimedOut.into()));
    assert_eq!(*lock(&quota.back), [250, 400]);
    assert!(own.spend(401).is_err());
    assert_eq!(
        own.broken(&io::ErrorKind::TimedOut.into()),
        "it was too much"
    );
    let (free, _peers) = idle(bulk(Role::Send, BYTES), 1);
    assert_eq!(
        stream(&free, 0).admit(1000, LoadPhase::Ending).unwrap(),
        1000
    );
    assert!(stream(&free, 0).spend(usize::MAX).is_ok());
}

#[test]
fn who_waits_for_a_quota_gives_up_when_the_load_has_come_to_the_phase() {
    let later = Instant::now() + Duration::from_secs(1000);
    for (phase, last, waits) in [
        (LoadPhase::Ending, LoadPhase::Ending, false),
        (LoadPhase::Cut, LoadPhase::Ending, false),
        (LoadPhase::Cut, LoadPhase::Cut, false),
        (LoadPhase::Ending, LoadPhase::Cut, true),
    ] {
        let quota = RecordingQuota::from(400, later);
        let (shared, _peers) = idle(limited(Role::Send, &quota), 1);
        shared.phase.store(phase as u8, Ordering::Relaxed);
        thread::scope(|scope| {
            let admitted =
                scope.spawn(|| stream(&shared, 0).admit(1000, last).map_err(|e| e.kind()));
            if waits {
                while lock(&quota.taken).is_empty() {
                    thread::yield_now();
                }
                assert!(lock(&quota.back).is_empty() && !admitted.is_finished());
                shared.phase.store(LoadPhase::Cut as u8, Ordering::Relaxed);
            }
            assert_eq!(admitted.join().unwrap(), Err(io::ErrorKind::Interrupted));
        });
        assert_eq!(*lock(&quota.back), [400]);
    }
}

#[test]
fn a_window_is_paid_for_once_however_often_it_is_read() {
    let quota = RecordingQuota::new(300);
    let (shared, mut peers) = idle(limited(Role::Receive, &quota), 1);
    let own = stream(&shared, 0);
    let read = |queued: usize, most: usize| {
        while socket::queued(own.fd()).unwrap() < queued {
            thread::yield_now();
        }
        let mut buffer = vec![0; most];
        let wait = || socket::arrived(own.fd(), 1, true);
        own.receive(own.fd(), most, wait, |bytes| {
            socket::receive(own.fd(), &mut buffer[..bytes])
        })
        .unwrap()
    };
    peers[0].write_all(&[7; 1000]).unwrap();
    assert_eq!([read(1000, 250), read(750, 5000)], [250, 300]);
    assert_eq!(*lock(&quota.taken), [250, 300]);
    assert_eq!(*lock(&quota.ahead), [1000], "it held no more since");
    peers[0].write_all(&[7; 800]).unwrap();
    assert_eq!(read(1250, 5000), 300);
    assert_eq!(*lock(&quota.ahead), [1000, 250]);
    own.begin_connection();
    assert_eq!(read(950, 100), 100);
    assert_eq!(*lock(&quota.ahead), [1000, 250, 950], "of a new connection");
    assert!(lock(&quota.back).is_empty());
    // The end takes nothing.
    while read(1, 5000) > 0 && socket::queued(own.fd()).unwrap() > 0 {}
    let taken = lock(&quota.taken).len();
    drop(peers);
    assert_eq!(read(0, 100), 0);
    assert_eq!(lock(&quota.taken).len(), taken);
}

#[test]
fn what_is_sent_again_and_again_goes_on_where_it_was() {
    let (shared, mut peers) = idle(bulk(Role::Send, BYTES), 1);
    let own = stream(&shared, 0);
    let mut received = |size, mut sent| {
        let before = sent;
        own.send_on(own.fd(), b"abc", size, &mut sent).unwrap();
        assert_eq!(sent, size);
        let mut found = vec![0; (size - before) as usize];
        peers[0].read_exact(&mut found).unwrap();
        String::from_utf8(found).unwrap()
    };
    assert_eq!(received(8, 0), "abcabcab");
    assert_eq!([received(8, 4), received(8, 8)], ["bcab", ""]);
}

#[test]
fn counts_of_an_operation_are_those_of_all_connections() {
    let (shared, _peers) = idle(bulk(Role::Send, BYTES), 1);
    let record = |operation, data| BlockRecord {
        operation,
        latency: Latency::default(),
        data: Bytes(data),
        call_send: Nanos(1),
        waited: Nanos(2),
        reply_send: Nanos(3),
        at_server: None,
    };
    let own = stream(&shared, 0);
    own.operated(
        [
            record(BlockOperation::Read, 5),
            record(BlockOperation::Write, 7),
        ]
        .into_iter(),
    );
    own.operated([record(BlockOperation::Write, 11)].into_iter());
    let state = shared.lock();
    let found = state
        .outcome
        .record
        .operations
        .iter()
        .map(|r| (r.operation, r.data.0, r.waited.0));
    let expected = [(BlockOperation::Read, 5, 2), (BlockOperation::Write, 18, 4)];
    assert_eq!(found.collect::<Vec<_>>(), expected);
}

#[test]
fn each_count_is_one_warning_with_its_number() {
    let of = |change: fn(&mut Tally)| {
        let mut tally = Tally::default();
        change(&mut tally);
        let warnings = tally.warnings();
        warnings.into_iter().map(|w| w.what).collect::<Vec<_>>()
    };
    assert_eq!(of(|_| {}), Vec::<String>::new());
    type Change = fn(&mut Tally);
    let changes: [(Change, &str); 5] = [
        (
            |t| t.fragmented = 3,
            "of 3 stream(s) are above the path MTU",
        ),
        (|t| t.segments_refused = 4, "for 4 stream(s)"),
        (
            |t| t.cut_receivers = 5,
            "5 stream(s) had not reached their end",
        ),
        (|t| t.unanswered = 6, "6 request(s) were never answered"),
        (|t| t.never_sent = 7, "7 request(s) were due and never sent"),
    ];
    for (change, words) in changes {
        let warnings = of(change);
        assert!(
            warnings.len() == 1 && warnings[0].contains(words),
            "{warnings:?}"
        );
    }
}

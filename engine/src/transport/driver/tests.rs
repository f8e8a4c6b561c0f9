use super::*;
use std::collections::VecDeque;

/// A machine that keeps what it gets.
struct Kept {
    input: Vec<u8>,
    output: Option<Vec<u8>>,
    ended: bool,
    timeouts: usize,
    longest_stall: Nanos,
    event: Option<u8>,
}

impl Machine for Kept {
    type Event = u8;

    fn input(&mut self, _: Nanos, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    fn input_end(&mut self) {
        self.ended = true;
        self.event = Some(0);
    }

    fn deadline(&self) -> Option<Nanos> {
        None
    }

    fn on_timeout(&mut self, _: Nanos) {
        self.timeouts += 1;
    }

    fn longest_stall(&self) -> Nanos {
        self.longest_stall
    }

    fn poll_event(&mut self) -> Option<u8> {
        self.event.take()
    }

    fn poll_output(&mut self) -> Option<Vec<u8>> {
        self.output.take()
    }
}

/// What a stream answers to reads, and how much it takes of each write.
#[derive(Default)]
struct Script {
    reads: VecDeque<io::Result<usize>>,
    writes: VecDeque<io::Result<usize>>,
    written: Vec<u8>,
    unflushed: bool,
}

struct Scripted(Arc<Mutex<Script>>);

impl ByteStream for Scripted {
    fn wait_for(&self, _: bool, _: bool) -> Vec<PollFd<'_>> {
        Vec::new()
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let next = sys::lock(&self.0).reads.pop_front();
        let count = next.unwrap_or_else(|| Err(ErrorKind::WouldBlock.into()))?;
        into[..count].fill(b'r');
        Ok(count)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut script = sys::lock(&self.0);
        let count = script.writes.pop_front().unwrap_or(Ok(bytes.len()))?;
        let count = count.min(bytes.len());
        script.written.extend_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<bool> {
        Ok(!std::mem::take(&mut sys::lock(&self.0).unflushed))
    }

    fn finish(&mut self) {}
}

type Ends = Vec<io::Result<usize>>;

fn driver(reads: Ends, writes: Ends, output: &[u8]) -> (Driver<Kept>, Arc<Mutex<Script>>) {
    let machine = Kept {
        input: Vec::new(),
        output: Some(output.to_vec()),
        ended: false,
        timeouts: 0,
        longest_stall: Nanos::from_secs(3600),
        event: None,
    };
    let script = Arc::new(Mutex::new(Script {
        reads: reads.into(),
        writes: writes.into(),
        ..Script::default()
    }));
    let stream = Box::new(Scripted(Arc::clone(&script)));
    (Driver::new(machine, stream), script)
}

fn fails<T>(kind: ErrorKind) -> io::Result<T> {
    Err(kind.into())
}

/// One turn that waits for nothing.
fn turn(driver: &mut Driver<Kept>) -> Result<bool, Broken> {
    driver.turn(None, Some(Instant::now()))
}

#[test]
fn a_turn_sends_reads_and_passes_the_time() {
    let interrupted = || fails(ErrorKind::Interrupted);
    let reads = vec![Ok(3), interrupted(), Ok(2)];
    let writes = vec![Ok(2), interrupted(), Ok(1)];
    let (mut driver, script) = driver(reads, writes, b"abcdef");
    assert!(!turn(&mut driver).unwrap());
    assert_eq!(driver.machine.input, b"rrrrr");
    assert_eq!(driver.machine.timeouts, 1);
    assert_eq!(sys::lock(&script).written, b"abcdef");
    assert!(!driver.more && driver.unsent.is_empty());
}

#[test]
fn a_peer_that_never_stops_is_read_so_often_a_turn() {
    let reads = (0..READS + 1).map(|_| Ok(1)).collect();
    let (mut driver, _) = driver(reads, Vec::new(), b"");
    turn(&mut driver).unwrap();
    assert_eq!((driver.machine.input.len(), driver.more), (READS, true));
    // Without a wait, however late it may be.
    let later = Instant::now() + Duration::from_secs(3600);
    driver.turn(None, Some(later)).unwrap();
    assert_eq!(
        (driver.machine.input.len(), driver.more),
        (READS + 1, false)
    );
}

#[test]
fn a_stream_breaks_once_and_is_left_alone_then() {
    let reset = || fails(ErrorKind::ConnectionReset);
    for (reads, writes) in [
        (vec![Ok(0)], Vec::new()),
        (vec![reset()], Vec::new()),
        (Vec::new(), vec![reset()]),
        (Vec::new(), vec![Ok(0)]),
    ] {
        let (mut driver, script) = driver(reads, writes, b"x");
        let first = turn(&mut driver).unwrap_err();
        let words = first.to_string();
        match first {
            Broken::End => assert!(words.contains("end of file"), "{words}"),
            Broken::Error(_) => assert!(!words.is_empty()),
            Broken::Stalled => panic!("it took something"),
        }
        driver.machine.output = Some(b"more".to_vec());
        let before = sys::lock(&script).written.len();
        sys::lock(&script).reads.push_back(Ok(1));
        assert!(!turn(&mut driver).unwrap());
        driver.send_all();
        assert_eq!(sys::lock(&script).written.len(), before);
        assert!(driver.machine.input.is_empty());
    }
    let stalled = Broken::Stalled.to_string();
    assert_eq!(stalled, "it does not read what it is sent");
}

#[test]
fn a_peer_that_takes_nothing_for_too_long_is_lost() {
    let blocked = || fails(ErrorKind::WouldBlock);
    let stalled = |writes: Ends, longest| {
        let (mut driver, _) = driver(Vec::new(), writes, b"abc");
        driver.machine.longest_stall = longest;
        (0..3).any(|_| matches!(turn(&mut driver), Err(Broken::Stalled)))
    };
    let long = Nanos::from_secs(3600);
    assert!(stalled(vec![blocked(), blocked(), blocked()], Nanos(0)));
    assert!(!stalled(vec![blocked(), blocked(), blocked()], long));
    let slow = || vec![Ok(1), blocked(), Ok(1), blocked(), Ok(1)];
    assert!(!stalled(slow(), Nanos(0)), "it takes some each time");
}

#[test]
fn no_more_is_taken_while_enough_waits() {
    let (mut driver, _) = driver(Vec::new(), Vec::new(), &[0; 10]);
    assert!(driver.has_room());
    assert_eq!(driver.unsent.len(), 10);
    driver.unsent.resize(ENOUGH_WAITING - 1, 0);
    driver.machine.output = Some(vec![0]);
    assert!(!driver.has_room());
    assert_eq!(driver.unsent.len(), ENOUGH_WAITING);
    driver.machine.output = Some(vec![0]);
    assert!(!driver.has_room());
    assert!(driver.machine.output.is_some(), "it waits in the machine");
}

#[test]
fn the_last_bytes_are_sent_as_far_as_they_are_taken() {
    let blocked = || fails(ErrorKind::WouldBlock);
    let (mut driver, script) = self::driver(Vec::new(), vec![Ok(2)], b"abcdef");
    sys::lock(&script).unflushed = true;
    driver.send_all();
    assert_eq!(sys::lock(&script).written, b"abcdef");
    let (mut driver, script) = self::driver(Vec::new(), vec![fails(ErrorKind::BrokenPipe)], b"a");
    driver.send_all();
    assert!(sys::lock(&script).written.is_empty());
    // A stream that has room only after a while.
    let (mut driver, script) = self::driver(Vec::new(), vec![Ok(1), blocked()], b"abc");
    driver.unsent = b"0".to_vec();
    assert!(driver.push().is_ok_and(|waits| !waits));
    driver.send_all();
    assert_eq!(sys::lock(&script).written[..1], *b"0");
}

#[test]
fn an_event_is_waited_for_until_its_time_or_the_end_of_the_stream() {
    let (mut driver, _) = self::driver(Vec::new(), Vec::new(), b"");
    assert_eq!(driver.event(None, Instant::now()), None);
    driver.machine.event = Some(7);
    assert_eq!(driver.event(None, Instant::now()), Some(7));
    let later = Instant::now() + Duration::from_secs(3600);
    let (mut driver, _) = self::driver(vec![Ok(0)], Vec::new(), b"");
    assert_eq!(driver.event(None, Instant::now()), Some(0));
    assert!(driver.machine.ended);
    let waker = Waker::new().unwrap();
    let (mut driver, _) = self::driver(Vec::new(), Vec::new(), b"");
    waker.wake();
    assert_eq!(driver.event(Some(&waker), later), None);
    assert!(
        !driver.turn(Some(&waker), Some(Instant::now())).unwrap(),
        "it is cleared"
    );
    waker.wake();
    assert!(driver.turn(Some(&waker), Some(later)).unwrap());
}

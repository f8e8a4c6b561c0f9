//! What a reader cannot do, tried by one.
#![allow(clippy::unwrap_used, reason = "a test says what failed by panicking")]

use linerate_sys as sys;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use sys::confine::{Cut, ReaderLimits, open, read};

const LIMITS: ReaderLimits = ReaderLimits {
    memory_bytes: 1 << 30,
    cpu_s: 1,
    within: Duration::from_secs(120),
    answer_bytes: 1 << 20,
};

fn reader(work: impl FnOnce() -> Vec<u8>) -> Result<Vec<u8>, Cut> {
    read(&[], &LIMITS, work).unwrap()
}

/// What a reader says of something that it tries: nothing, or the kind of the error.
fn refused<T>(tried: io::Result<T>) -> String {
    match tried {
        Ok(_) => "it could".to_owned(),
        Err(error) => format!("{:?}", error.kind()),
    }
}

/// A process that ends at once.
fn fork() -> io::Result<()> {
    // SAFETY: the child runs nothing of this process.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: runs nothing that this process has ordered for its own end.
        0 => unsafe { libc::_exit(0) },
        _ => Ok(()),
    }
}

#[test]
fn a_reader_can_have_threads() {
    let answer = reader(|| {
        let bytes = std::thread::scope(|scope| {
            let thread = scope.spawn(|| vec![7; 1 << 20]);
            thread.join().unwrap()
        });
        bytes[..3].to_vec()
    });
    assert_eq!(answer.unwrap(), [7, 7, 7]);
}

#[test]
fn a_reader_can_open_connect_start_and_signal_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let secret = std::env::temp_dir().join(format!("linerate-secret-{}", std::process::id()));
    fs::write(&secret, "secret").unwrap();
    let unrelated = File::open(&secret).unwrap();
    let parent = std::process::id();
    type Attempt<'a> = (&'a str, Box<dyn Fn() -> String + 'a>);
    let attempts: [Attempt; 13] = [
        ("open", Box::new(|| refused(File::open(&secret)))),
        ("open as an input", Box::new(|| refused(open(&secret)))),
        (
            "create",
            Box::new(|| refused(File::create(secret.with_extension("new")))),
        ),
        ("delete", Box::new(|| refused(fs::remove_file(&secret)))),
        ("look", Box::new(|| refused(fs::metadata(&secret)))),
        ("list", Box::new(|| refused(fs::read_dir("/")))),
        ("connect", Box::new(|| refused(TcpStream::connect(address)))),
        (
            "listen",
            Box::new(|| refused(TcpListener::bind("127.0.0.1:0"))),
        ),
        ("udp", Box::new(|| refused(UdpSocket::bind("127.0.0.1:0")))),
        (
            "exec",
            Box::new(|| refused(Command::new("/bin/true").status())),
        ),
        ("fork", Box::new(|| refused(fork()))),
        (
            "signal",
            Box::new(|| refused(sys::signal::end(parent, false))),
        ),
        // Of its parent, closed.
        (
            "read a file of its parent",
            Box::new(|| refused((&unrelated).read(&mut [0; 8]))),
        ),
    ];
    for (what, attempt) in &attempts {
        // It works here, but for what would end or change this process.
        let said = reader(|| attempt().into_bytes());
        let said = String::from_utf8(said.unwrap()).unwrap();
        let expected = match *what {
            // EBADF has no kind of its own.
            "read a file of its parent" => "Uncategorized",
            _ => "PermissionDenied",
        };
        assert_eq!(said, expected, "{what}");
        if [
            "open", "look", "list", "connect", "listen", "udp", "exec", "fork",
        ]
        .contains(what)
        {
            assert_eq!(attempt(), "it could", "{what}, without confinement");
        }
    }
    fs::remove_file(&secret).unwrap();
}

#[test]
fn a_reader_has_no_capabilities_and_a_filter() {
    let has_all = |status: &str| {
        let all = [
            "CapEff:\t0000000000000000",
            "CapPrm:\t0000000000000000",
            "NoNewPrivs:\t1",
            "Seccomp:\t2",
        ];
        all.iter().all(|line| status.contains(line))
    };
    let (sender, receiver) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        sender
            .send(rustix::thread::gettid().as_raw_nonzero())
            .unwrap();
        reader(|| {
            loop {
                std::hint::spin_loop();
            }
        })
    });
    let children = format!("/proc/self/task/{}/children", receiver.recv().unwrap());
    let mut seen = false;
    while !seen && !thread.is_finished() {
        let child = fs::read_to_string(&children).unwrap_or_default();
        let status = fs::read_to_string(format!("/proc/{}/status", child.trim()));
        seen = status.is_ok_and(|status| has_all(&status));
    }
    assert!(seen);
    assert_eq!(thread.join().unwrap(), Err(Cut::Time));
}

#[test]
fn inputs_are_read_as_often_as_wanted_and_those_that_are_not_there_say_so() {
    let file = std::env::temp_dir().join(format!("linerate-input-{}", std::process::id()));
    fs::write(&file, "what is in it").unwrap();
    let missing = Path::new("/nowhere/at/all");
    let said = read(&[&file, missing], &LIMITS, || {
        let mut all = String::new();
        for _ in 0..2 {
            open(&file).unwrap().read_to_string(&mut all).unwrap();
        }
        let kind = open(missing).unwrap_err().kind();
        assert_eq!(kind, ErrorKind::NotFound);
        all.into_bytes()
    });
    fs::remove_file(&file).unwrap();
    assert_eq!(said.unwrap().unwrap(), b"what is in itwhat is in it");
}

#[test]
fn a_reader_that_does_not_end_grows_or_breaks_is_cut() {
    let spins = || loop {
        std::hint::spin_loop();
    };
    assert_eq!(reader(spins), Err(Cut::Time));

    let waits = ReaderLimits {
        within: Duration::from_millis(200),
        ..LIMITS
    };
    let (held, _open) = io::pipe().unwrap();
    // What it waits for is the parent's answer alone: a lock that is never opened.
    let lock = std::sync::Mutex::new(held);
    let _locked = lock.lock().unwrap();
    let said = read(&[], &waits, || {
        drop(lock.lock());
        Vec::new()
    });
    assert_eq!(said.unwrap(), Err(Cut::Time));

    let grows = || {
        let mut all = Vec::new();
        loop {
            all.push(Vec::<u8>::with_capacity(64 << 20));
            std::hint::black_box(&all);
        }
    };
    assert_eq!(reader(grows), Err(Cut::Memory));
    assert_eq!(reader(|| vec![0; 2 << 20]), Err(Cut::Memory));
    // A panic that nobody caught.
    assert_eq!(reader(|| panic!()), Err(Cut::Signal(0)));
}

/// A thread has rights of its own.
#[test]
fn a_network_process_has_its_files_and_no_others_and_starts_and_connects_to_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let directory = std::env::temp_dir().join(format!("linerate-network-{}", std::process::id()));
    let (own, other) = (directory.join("own"), directory.join("other"));
    for place in [&own, &other] {
        fs::create_dir_all(place).unwrap();
        fs::write(place.join("a"), "text").unwrap();
    }
    let network = sys::privilege::Network {
        read: vec!["/proc".into(), other.join("a"), "/nowhere".into()],
        write: vec![own.clone()],
        low_ports: false,
        connects: false,
    };
    let thread = std::thread::spawn(move || {
        let not_denied = network.confine().unwrap();
        fs::write(own.join("b"), "text").unwrap();
        fs::rename(own.join("b"), own.join("a")).unwrap();
        assert!(fs::read("/proc/self/status").is_ok() && fs::read(other.join("a")).is_ok());
        drop(TcpListener::bind("127.0.0.1:0").unwrap());
        let denied = [
            refused(fs::write(other.join("a"), "")),
            refused(fs::read("/etc/passwd")),
            refused(fs::write("/proc/self/comm", "x")),
            refused(Command::new("/bin/true").status()),
            refused(TcpStream::connect(address)),
            refused(TcpListener::bind("127.0.0.1:1")),
        ];
        assert!(
            not_denied.is_some() || denied.iter().all(|said| said == "PermissionDenied"),
            "{denied:?}"
        );
        fs::read_to_string("/proc/thread-self/status").unwrap()
    });
    let status = thread.join().unwrap();
    for line in ["CapEff:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"] {
        assert!(status.contains(line), "{status}");
    }
    fs::remove_dir_all(&directory).unwrap();
}

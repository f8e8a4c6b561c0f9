//! What every test of the command needs: a home of its own, processes that end with the test.
#![allow(dead_code)] // Each test binary uses its part.

use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

/// A directory of its own, removed with it.
pub struct Home(PathBuf);

impl Home {
    pub fn new() -> Home {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let n = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("linerate-test-{}-{n}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("the temporary directory can be written");
        Home(dir)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The command with its key, trust and archive in this home.
    pub fn linerate(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_linerate"));
        command.args(args);
        self.furnish(&mut command);
        command
    }

    /// The same inside a network namespace.
    pub fn linerate_in(&self, netns: &str, args: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", netns, env!("CARGO_BIN_EXE_linerate")])
            .args(args);
        self.furnish(&mut command);
        command
    }

    pub fn furnish(&self, command: &mut Command) {
        command
            .env("LINERATE_CONFIG", self.0.join("config"))
            .env("LINERATE_ARCHIVE", self.0.join("runs.db"))
            .env("LINERATE_LABS", self.0.join("labs"))
            .env("LINERATE_STATE", self.0.join("tune"))
            .env("HOME", &self.0)
            .env_remove("NO_COLOR")
            .stdin(Stdio::null());
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs to the end, at most a minute.
pub fn run(command: &mut Command) -> Output {
    run_within(command, Duration::from_secs(60))
}

pub fn run_within(command: &mut Command, within: Duration) -> Output {
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    Running(child.expect("the command can be started")).output(within)
}

/// Runs a command that is to succeed and print one JSON document.
pub fn json(command: &mut Command) -> Value {
    let out = run(command);
    assert!(out.status.success(), "{}\n{}", out.status, stderr(&out));
    serde_json::from_slice(&out.stdout).expect("the output is one JSON document")
}

pub fn stdout(out: &Output) -> String {
    String::from_utf8(out.stdout.clone()).expect("the output is text")
}

pub fn stderr(out: &Output) -> String {
    String::from_utf8(out.stderr.clone()).expect("the output is text")
}

/// What was said, in one line: lines are broken where they fill up.
pub fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A process that is killed and reaped with the test.
pub struct Running(pub Child);

impl Running {
    /// Waits for the end; a process that hangs fails the test.
    pub fn output(mut self, within: Duration) -> Output {
        let drain = |pipe: Option<Box<dyn Read + Send>>| {
            std::thread::spawn(move || {
                let mut bytes = Vec::new();
                pipe.map(|mut pipe| pipe.read_to_end(&mut bytes));
                bytes
            })
        };
        let stdout = drain(
            self.0
                .stdout
                .take()
                .map(|p| Box::new(p) as Box<dyn Read + Send>),
        );
        let stderr = drain(
            self.0
                .stderr
                .take()
                .map(|p| Box::new(p) as Box<dyn Read + Send>),
        );
        let until = Instant::now() + within;
        let status = loop {
            if let Some(status) = self.0.try_wait().expect("the child can be waited for") {
                break status;
            }
            assert!(
                Instant::now() < until,
                "the command did not end within {within:?}"
            );
            std::thread::sleep(Duration::from_millis(10));
        };
        Output {
            status,
            stdout: stdout.join().expect("reading does not panic"),
            stderr: stderr.join().expect("reading does not panic"),
        }
    }

    /// Asks it to end as Ctrl-C does.
    pub fn interrupt(&self) {
        signal(&self.0, "INT");
    }
}

pub fn signal(child: &Child, name: &str) {
    let args = [format!("-{name}"), child.id().to_string()];
    let status = Command::new("kill").args(args).status();
    assert!(status.expect("kill exists").success());
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a server, and waits until it says that it listens.
pub fn listening(serve: &mut Command) -> (Running, Lines) {
    let mut child = serve.stderr(Stdio::piped()).spawn().expect("it starts");
    let log = Lines::of(child.stderr.take().expect("it is piped"));
    let running = Running(child);
    log.wait_for("listens on");
    (running, log)
}

/// A server on loopback, and its log.
pub struct Server {
    pub home: Home,
    pub at: String,
    pub running: Running,
    pub log: Lines,
}

impl Server {
    pub fn start(options: &[&str]) -> Server {
        let home = Home::new();
        let port = free_port().to_string();
        let mut command = home.linerate(&["serve", "--bind", "127.0.0.1", "--port", &port]);
        let (running, log) = listening(command.args(options));
        Server {
            home,
            at: format!("127.0.0.1:{port}"),
            running,
            log,
        }
    }

    /// A line for another host.
    pub fn invite(&self, options: &[&str]) -> String {
        let mut command = self
            .home
            .linerate(&["trust", "invite", "--address", &self.at]);
        let out = run(command.args(options));
        assert!(out.status.success(), "{}", stderr(&out));
        stdout(&out).trim().to_owned()
    }

    /// A host that the server trusts within these limits.
    pub fn guest(&self, limits: &[&str]) -> Home {
        let guest = Home::new();
        let out = run(&mut guest.linerate(&["trust", "accept", &self.invite(limits)]));
        assert!(out.status.success(), "{}", stderr(&out));
        guest
    }
}

/// A real server of ssh and a client that may log in to it as `far`; ended with the test.
pub struct Ssh {
    _server: Running,
    /// Where the client is that knows of it.
    pub path: String,
}

#[allow(clippy::unwrap_used, reason = "a test may panic")]
impl Ssh {
    /// Listens at this address where `place` starts its arguments.
    pub fn serve(home: &Home, address: &str, mut place: Command) -> Ssh {
        let bin = home.path().join("bin");
        fs::create_dir(&bin).unwrap();
        fs::create_dir(home.path().join("there")).unwrap();
        let (here, port) = (home.path().display(), free_port());
        for key in ["host", "user"] {
            let key = format!("{here}/{key}");
            let args = ["-q", "-t", "ed25519", "-N", "", "-f", &key];
            let made = Command::new("ssh-keygen").args(args).status();
            assert!(made.unwrap().success());
        }
        let server = format!(
            "Port {port}\nListenAddress {address}\nHostKey {here}/host\nAuthorizedKeysFile {here}/user.pub\n\
             PidFile none\nStrictModes no\nUsePAM no\nPermitRootLogin yes\n\
             SetEnv HOME={here}/there LINERATE_CONFIG={here}/far LINERATE_ARCHIVE={here}/far.db LINERATE_STATE={here}/tune\n"
        );
        let client = format!(
            "Host far\nHostName {address}\nPort {port}\nIdentityFile {here}/user\nUserKnownHostsFile {here}/known\n\
             StrictHostKeyChecking accept-new\nBatchMode yes\nLogLevel ERROR\n"
        );
        fs::write(home.path().join("sshd_config"), server).unwrap();
        fs::write(home.path().join("ssh_config"), client).unwrap();
        // The user's own configuration is that of the account, whatever HOME says.
        let ssh = bin.join("ssh");
        let script = format!("#!/bin/sh\nexec /usr/bin/ssh -F {here}/ssh_config \"$@\"\n");
        fs::write(&ssh, script).unwrap();
        fs::set_permissions(&ssh, PermissionsExt::from_mode(0o755)).unwrap();
        // It wants a folder in /run, and gets one of its own.
        let begin = format!(
            "mount -t tmpfs none /run && mkdir /run/sshd && exec /usr/sbin/sshd -D -e -f {here}/sshd_config"
        );
        let mut server = place
            .args(["unshare", "--mount", "sh", "-c", &begin])
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Lines::of(server.stderr.take().unwrap()).wait_for("Server listening");
        Ssh {
            _server: Running(server),
            path: format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()),
        }
    }
}

/// Runs a bench of this project with this command, at most for so long.
pub fn bench(name: &str, args: &[&str], within: Duration) -> Output {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../bench")
        .join(name);
    let mut command = Command::new(path);
    command.args(args).arg(env!("CARGO_BIN_EXE_linerate"));
    run_within(&mut command, within)
}

/// Lines of a pipe as they come.
pub struct Lines(mpsc::Receiver<String>);

impl Lines {
    pub fn of(pipe: impl Read + Send + 'static) -> Lines {
        let (post, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                if post.send(line).is_err() {
                    break;
                }
            }
        });
        Lines(lines)
    }

    /// Whether a line that contains `what` comes before the end.
    pub fn comes(&self, what: &str) -> bool {
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.0.recv_timeout(left) {
                Ok(line) if line.contains(what) => return true,
                Ok(_) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return false,
                Err(mpsc::RecvTimeoutError::Timeout) => panic!("neither '{what}' nor an end"),
            }
        }
    }

    /// The next so many lines.
    pub fn take(&self, count: usize) -> Vec<String> {
        (0..count).map(|_| self.wait_for("")).collect()
    }

    /// All lines that are left, up to the end.
    pub fn rest(self) -> Vec<String> {
        self.0.iter().collect()
    }

    /// The next line that contains `what`; others before it are skipped.
    pub fn wait_for(&self, what: &str) -> String {
        let until = Instant::now() + Duration::from_secs(120);
        let mut seen = Vec::new();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.0.recv_timeout(left) {
                Ok(line) if line.contains(what) => return line,
                Ok(line) => seen.push(line),
                Err(_) => panic!("'{what}' did not come; this came: {seen:#?}"),
            }
        }
    }
}

/// What a program records into a file until it is ended.
pub struct Recorder {
    running: Running,
    lines: Lines,
    file: PathBuf,
    /// What it prints when all is in the file.
    last: &'static str,
}

impl Recorder {
    /// Once it prints `first`, it records.
    pub fn start(mut command: Command, file: PathBuf, first: &str, last: &'static str) -> Recorder {
        let command = command.arg("-w").arg(&file).stdout(Stdio::null());
        let mut child = command.stderr(Stdio::piped()).spawn().expect("it starts");
        let lines = Lines::of(child.stderr.take().expect("it is piped"));
        lines.wait_for(first);
        Recorder {
            running: Running(child),
            lines,
            file,
            last,
        }
    }

    /// A capture of TCP by tcpdump, a command that may run it elsewhere.
    pub fn tcpdump(mut tcpdump: Command, snap: &str, file: PathBuf) -> Recorder {
        tcpdump.args(["--immediate-mode", "-U", "-Z", "root", "-B", "8192"]);
        tcpdump.args(["-s", snap, "tcp"]);
        Recorder::start(tcpdump, file, "listening on", "dropped by kernel")
    }

    pub fn end(self) -> PathBuf {
        self.running.interrupt();
        self.lines.wait_for(self.last);
        self.running.output(Duration::from_secs(20));
        self.file
    }
}

/// A port that is free for TCP and UDP and stays so: below the range that the kernel gives out by
/// itself (32768 and above), each given once in this process.
pub fn free_port() -> u16 {
    static NEXT: std::sync::atomic::AtomicU16 = std::sync::atomic::AtomicU16::new(0);
    let first = 20_000 + (std::process::id() % 100) as u16 * 100;
    loop {
        let port = first + NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % 2_000;
        let local = ("127.0.0.1", port);
        if std::net::TcpListener::bind(local).is_ok() && std::net::UdpSocket::bind(local).is_ok() {
            return port;
        }
    }
}

/// Two network namespaces joined by a veth pair, 10.99.0.1 and 10.99.0.2 (fd99::1, fd99::2), gone with
/// the test.
pub struct Pair {
    pub local: String,
    pub remote: String,
}

impl Pair {
    pub const NEAR: &str = "10.99.0.1";
    pub const FAR: &str = "10.99.0.2";

    pub fn new(name: &str) -> Pair {
        let id = std::process::id();
        let pair = Pair {
            local: format!("lr{id}{name}n"),
            remote: format!("lr{id}{name}f"),
        };
        for netns in [&pair.local, &pair.remote] {
            ip(&["netns", "add", netns]);
        }
        let (local, remote) = (pair.local.as_str(), pair.remote.as_str());
        ip(&[
            "-n", local, "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns",
            remote,
        ]);
        for (netns, v4, v6) in [
            (local, "10.99.0.1/24", "fd99::1/64"),
            (remote, "10.99.0.2/24", "fd99::2/64"),
        ] {
            ip(&["-n", netns, "address", "add", v4, "dev", "eth0"]);
            ip(&["-n", netns, "address", "add", v6, "dev", "eth0", "nodad"]);
            ip(&["-n", netns, "link", "set", "lo", "up"]);
            ip(&["-n", netns, "link", "set", "eth0", "up"]);
        }
        pair
    }

    /// Limits what leaves `netns` to `rate` (as tc writes it) by a token bucket.
    pub fn limit(netns: &str, rate: &str) {
        let args = [
            "-n", netns, "qdisc", "replace", "dev", "eth0", "root", "tbf",
        ];
        let rest = ["rate", rate, "burst", "256k", "latency", "50ms"];
        must(Command::new("tc").args(args).args(rest));
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for netns in [&self.local, &self.remote] {
            let _ = Command::new("ip").args(["netns", "delete", netns]).status();
        }
    }
}

fn ip(args: &[&str]) {
    must(Command::new("ip").args(args));
}

fn must(command: &mut Command) {
    let out = command
        .output()
        .expect("iproute2 is installed (make test installs it)");
    assert!(
        out.status.success(),
        "{command:?} failed; network namespaces need root: {}",
        String::from_utf8_lossy(&out.stderr)
    );
}

/// One load at a time: two would share the processors.
pub fn alone() -> MutexGuard<'static, ()> {
    static LOAD: Mutex<()> = Mutex::new(());
    LOAD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A lab under a name that no other test or user has, down with the test.
pub struct Lab<'a> {
    pub home: &'a Home,
    pub name: String,
}

impl<'a> Lab<'a> {
    /// Of a shipped scenario or a file.
    pub fn up(home: &'a Home, what: &str) -> Lab<'a> {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let n = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = format!("t{}-{n}", std::process::id());
        let out = run(&mut home.linerate(&["lab", "up", what, "--name", &name]));
        assert!(out.status.success(), "{what}: {}", stderr(&out));
        Lab { home, name }
    }

    /// Of a scenario of two hosts, `a` and `b`, and a link with these lines for each direction.
    pub fn of(home: &'a Home, mtu: u32, forward: &str, backward: &str) -> Lab<'a> {
        let file = home.path().join("scenario.toml");
        std::fs::write(&file, two_hosts(mtu, forward, backward)).expect("the home can be written");
        Lab::up(home, file.to_str().expect("the path is text"))
    }

    /// Runs a command in a host.
    pub fn exec(&self, host: &str, command: &[&str]) -> Output {
        let place = format!("{}/{host}", self.name);
        let mut args = vec!["lab", "exec", &place, "--"];
        args.extend(command);
        run(&mut self.home.linerate(&args))
    }

    /// Measures between hosts: `""` for the first two, or `/local-remote`.
    pub fn measure(&self, hosts: &str, options: &[&str]) -> Value {
        let host = format!("lab:{}{hosts}", self.name);
        let mut args = vec!["measure", &host, "--json", "-q"];
        args.extend(options);
        json(&mut self.home.linerate(&args))
    }

    pub fn truth(&self) -> Value {
        json(&mut self.home.linerate(&["lab", "truth", &self.name, "--json"]))
    }

    pub fn down(self) {
        let out = run(&mut self.home.linerate(&["lab", "down", &self.name]));
        assert!(out.status.success(), "{}", stderr(&out));
    }
}

impl Drop for Lab<'_> {
    fn drop(&mut self) {
        let _ = run(&mut self.home.linerate(&["lab", "down", &self.name]));
    }
}

/// A scenario of two hosts, `a` and `b`, and a link with these lines for each direction.
pub fn two_hosts(mtu: u32, forward: &str, backward: &str) -> String {
    format!(
        "name = \"two-hosts\"
why = \"a test\"
[[host]]
name = \"a\"
[[host]]
name = \"b\"
[[link]]
between = [\"a\", \"b\"]
mtu = {mtu}
[link.forward]
{forward}
[link.backward]
{backward}
"
    )
}

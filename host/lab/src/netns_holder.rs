//! The process that holds a lab: makes it, keeps its namespaces alive, moves the frames of its emulated
//! links, and answers questions. It has no children and leaves nothing: the kernel frees what only its
//! descriptors held.

use crate::emulator_counters::{CounterReport, LinkBackend};
use crate::lab_processes;
use crate::link::{Cable, LinkWorker};
use crate::netem_watch::Netem;
use crate::netns::in_net;
use crate::state_dir::{LabRecord, LinkRecord, NodeRecord, StatePlace};
use crate::traffic::{DISCARD, TrafficReader, TrafficSender};
use crate::{Backend, Error, netem, plan};
use emulate::{NodeKind, Scenario};
use model::Nanos;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime};
use sys::ethtool::{Ethtool, OFFLOADS};
use sys::namespace;
use sys::packet::PacketSocket;
use sys::poll::{PollFd, poll};

/// What [`hold_namespaces`] reads from its standard input.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    /// The directory of all labs.
    pub home: PathBuf,
    pub name: String,
    pub scenario: Scenario,
    pub backend: Backend,
    pub in_user_namespace: bool,
}

/// The line behind the order that lets the lab stay; where the input ends without it, who asked for the lab is gone,
/// and it goes too.
pub(crate) const STAY: &[u8] = b"stay\n";

/// What [`hold_namespaces`] writes, once, to its standard output.
pub(crate) type Answer = Result<(), Error>;

/// Holds one lab, as [`crate::up`] orders by standard input, until it is asked to end or who ordered it is gone. To be called by a
/// process that has a single thread and is nothing else; it answers by standard output.
///
/// # Errors
/// [`Error::Failed`] if there is no order or nobody to answer; why the lab cannot be made goes to
/// [`crate::up`].
pub fn hold_namespaces() -> Result<(), Error> {
    let mut line = String::new();
    let read = io::stdin().read_line(&mut line);
    let order = read.and_then(|_| Ok(serde_json::from_slice::<Order>(line.as_bytes())?));
    let order = order.map_err(Error::system(
        "read the order for a lab from standard input",
    ))?;
    let place = StatePlace::of(&order.home, &order.name)?;
    let lock = place.take(&order.name);
    let made = lock.and_then(|lock| Ok((lock, make(&order, &place)?)));
    let (made, answer): (_, Answer) = match made {
        Ok(made) => (Some(made), Ok(())),
        Err(error) => (None, Err(error)),
    };
    let mut line = serde_json::to_string(&answer).expect("an answer is plain data");
    line.push('\n');
    let answered = io::stdout()
        .write_all(line.as_bytes())
        .and_then(|()| io::stdout().flush())
        .map_err(Error::system("answer who ordered the lab"));
    let Some((lock, lab)) = made else {
        return answered;
    };
    // If who asked is gone, nobody knows of the lab, and it goes too.
    let ended = answered.and_then(|()| lab.serve(&place));
    ended.and(place.remove(Some(lock)))
}

/// For a bridge to see that its ports are connected; a second is usual where it is not at once.
const BRIDGE: Duration = Duration::from_secs(5);

/// Room for frames that wait to be fetched, in bytes: some milliseconds at 10 Gbit/s.
const SOCKET_BUFFER: u32 = 32 * 1024 * 1024;

struct HeldNamespace {
    nodes: Vec<LabNode>,
    workers: Vec<LinkWorker>,
    netem: Option<Netem>,
    readers: Vec<TrafficReader>,
    senders: Vec<TrafficSender>,
    control: UnixListener,
    start: Instant,
}

struct LabNode {
    net: OwnedFd,
    inode: u64,
}

fn make(order: &Order, place: &StatePlace) -> Result<HeldNamespace, Error> {
    let scenario = &order.scenario;
    let in_user_namespace = enter_own_namespaces(order.in_user_namespace)?;
    let links = choose(scenario, order.backend)?;
    // The emulator's devices are to send nothing of their own.
    write_sysctls(&[
        ("ipv6/conf/all/disable_ipv6", "1".to_owned()),
        ("ipv6/conf/default/disable_ipv6", "1".to_owned()),
    ])?;
    let nodes = scenario
        .nodes
        .iter()
        .map(|node| {
            let what = format!("make a network namespace for {}", node.name);
            let net = namespace::new_net().map_err(Error::system(what))?;
            let copy = net.try_clone().and_then(|net| File::from(net).metadata());
            let inode = copy
                .map_err(Error::system("look at a network namespace"))?
                .ino();
            in_net(&net, || write_sysctls(&plan::sysctls(scenario, node)))?;
            Ok(LabNode { net, inode })
        })
        .collect::<Result<Vec<LabNode>, Error>>()?;
    let pid = std::process::id();
    let netns = |index: usize| format!("/proc/{pid}/fd/{}", nodes[index].net.as_raw_fd());
    let number = |name: &str| {
        let found = scenario.nodes.iter().position(|n| n.name == name);
        found.expect("a scenario is checked: the ends of links are nodes")
    };

    let backends: Vec<LinkBackend> = links.iter().map(|l| l.backend).collect();
    let cables = plan::cables(scenario, &backends, |node| netns(number(node)));
    run(&IP, &cables, None, "the links")?;
    for (node, held) in scenario.nodes.iter().zip(&nodes) {
        let inside = plan::inside(scenario, node);
        run(&IP, &inside, Some(&held.net), &node.name)?;
        if let Some(rules) = plan::rules(scenario, node) {
            run(&["nft", "-f", "-"], &rules, Some(&held.net), &node.name)?;
        }
        if node.offload == Some(false) {
            for (_, end) in scenario.ends_at(&node.name) {
                single_frames(&held.net, &end.device)?;
            }
        }
    }
    let netem = start_netem(scenario, &backends)?;

    let start = Instant::now();
    let mut workers = Vec::new();
    for (index, link) in scenario.links.iter().enumerate() {
        if backends[index] != LinkBackend::Emulator {
            continue;
        }
        let socket = |end| {
            let device = plan::emulator_device(index, end);
            let what = format!("open a packet socket on {}", link.name);
            PacketSocket::open(&device, SOCKET_BUFFER).map_err(Error::system(what))
        };
        let cable = Cable::new(scenario, link, [socket(0)?, socket(1)?], start);
        let what = format!("start the thread of link {}", link.name);
        workers.push(LinkWorker::start(cable).map_err(Error::system(what))?);
    }

    for (node, held) in scenario.nodes.iter().zip(&nodes) {
        if node.kind == NodeKind::Switch {
            forwarding(&held.net, &node.name)?;
        }
    }

    let path = place.file("hosts");
    fs::write(&path, plan::hosts_file(scenario))
        .map_err(Error::system(format!("write {}", path.display())))?;
    let path = place.file("control");
    let _ = fs::remove_file(&path);
    let control = UnixListener::bind(&path)
        .map_err(Error::system(format!("listen at {}", path.display())))?;
    let node = |(index, node): (usize, &emulate::Node)| NodeRecord {
        name: node.name.clone(),
        kind: node.kind.name().to_owned(),
        addresses: plan::addresses(scenario, &node.name),
        netns: PathBuf::from(netns(index)),
        inode: nodes[index].inode,
    };
    let record = LabRecord {
        name: order.name.clone(),
        scenario: scenario.name.clone(),
        why: scenario.why.clone(),
        // The keys of RandomState come from the kernel's random numbers; this spares a dependency.
        id: format!("{:016x}", RandomState::new().hash_one(())),
        pid,
        started: SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |t| t.as_secs()),
        in_user_namespace,
        nodes: scenario.nodes.iter().enumerate().map(node).collect(),
        links,
    };
    place.write("scenario.json", scenario)?;
    let (readers, senders) = transfers(scenario, |name| &nodes[number(name)].net)?;
    place.write("lab.json", &record)?;
    Ok(HeldNamespace {
        nodes,
        workers,
        netem,
        readers,
        senders,
        control,
        start,
    })
}

/// Gives the links of netem their shapes, and watches how late it is.
fn start_netem(scenario: &Scenario, backends: &[LinkBackend]) -> Result<Option<Netem>, Error> {
    let links = scenario.links.iter().enumerate();
    let links = links.filter(|(number, _)| backends[*number] == LinkBackend::Netem);
    let mut watched = Vec::new();
    for (number, link) in links {
        let commands = netem::link(number, link);
        let commands = commands.expect("only what netem can express is given to it");
        run(&TC, &commands, None, &format!("link {}", link.name))?;
        watched.push((number, link.clone()));
    }
    match watched.is_empty() {
        true => Ok(None),
        false => Netem::watch(watched).map(Some),
    }
}

/// Starts what the lab itself sends and reads.
fn transfers<'a>(
    scenario: &Scenario,
    net: impl Fn(&str) -> &'a OwnedFd,
) -> Result<(Vec<TrafficReader>, Vec<TrafficSender>), Error> {
    let mut readers = Vec::new();
    for node in &scenario.nodes {
        if node.reads_at.is_some() || scenario.traffic.iter().any(|t| t.to == node.name) {
            readers.push(TrafficReader::start(
                &node.name,
                net(&node.name),
                node.reads_at,
            )?);
        }
    }
    let mut senders = Vec::new();
    for traffic in &scenario.traffic {
        // A host has a link, and the end of a link at a host has an address.
        if let Some(to) = plan::addresses(scenario, &traffic.to).first() {
            let to = SocketAddr::new(*to, DISCARD);
            senders.push(TrafficSender::start(traffic, net(&traffic.from), to)?);
        }
    }
    Ok((readers, senders))
}

impl HeldNamespace {
    /// Answers questions, and writes the account each second, until asked to end or let go.
    fn serve(self, place: &StatePlace) -> Result<(), Error> {
        const EVERY: Duration = Duration::from_secs(1);
        let stdin = io::stdin();
        let mut tied = true;
        let mut next = Instant::now() + EVERY;
        loop {
            let mut fds = vec![PollFd::new(self.control.as_fd(), true, false)];
            if tied {
                fds.push(PollFd::new(stdin.as_fd(), true, false));
            }
            let wait = next.saturating_duration_since(Instant::now());
            poll(&mut fds, Some(wait)).map_err(Error::system("wait for questions"))?;
            let asked = fds[0].readable();
            if fds.get(1).is_some_and(PollFd::readable) {
                let mut line = Vec::new();
                let _ = stdin.lock().read_until(b'\n', &mut line);
                tied = false;
                if line != STAY {
                    self.end();
                    return Ok(());
                }
            }
            if asked
                && let Ok((stream, _)) = self.control.accept()
                && self.answer(stream)
            {
                return Ok(());
            }
            if Instant::now() >= next {
                // A full disk must not end the lab; the next second tries again.
                let _ = place.write("counters.json", &self.counters());
                next = Instant::now() + EVERY;
            }
        }
    }

    /// Returns true when asked to end.
    fn answer(&self, stream: UnixStream) -> bool {
        // Whoever asks and then says nothing holds up others no longer than this.
        let _ = stream.set_read_timeout(Some(Duration::from_secs(1)));
        let _ = stream.set_write_timeout(Some(Duration::from_secs(1)));
        let mut question = String::new();
        let mut reader = BufReader::new((&stream).take(64));
        if reader.read_line(&mut question).is_err() {
            return false;
        }
        let answer = match question.trim() {
            "counters" => serde_json::to_vec(&self.counters()),
            "alive" => Ok(Vec::new()),
            "log" => {
                let log = self.workers.iter().flat_map(LinkWorker::log);
                serde_json::to_vec(&log.collect::<Vec<_>>())
            }
            "end" => {
                self.end();
                return true;
            }
            _ => return false,
        };
        // Who asked may be gone; that is not the lab's concern.
        let _ = answer.map(|answer| (&stream).write_all(&answer));
        false
    }

    fn end(&self) {
        let inodes: BTreeSet<u64> = self.nodes.iter().map(|n| n.inode).collect();
        lab_processes::end(lab_processes::Of::Namespaces(&inodes));
    }

    fn counters(&self) -> CounterReport {
        let emulated = self.workers.iter().map(LinkWorker::counters);
        let netem = self.netem.iter().flat_map(Netem::counters);
        CounterReport {
            at: Nanos::from(self.start.elapsed()),
            links: emulated.chain(netem).collect(),
            traffic: self.senders.iter().map(TrafficSender::counters).collect(),
            readers: self.readers.iter().map(TrafficReader::counters).collect(),
        }
    }
}

/// Moves this process into a network namespace of its own, the emulator's, and where it has not the right
/// to that, into a user namespace first. Returns whether it did.
fn enter_own_namespaces(by_user_namespace: bool) -> Result<bool, Error> {
    let forbidden = |source| {
        Error::Failed(format!(
            "cannot make a lab: {source}; it needs root (CAP_SYS_ADMIN and CAP_NET_ADMIN), or a kernel that lets \
             a user make user namespaces: see `sysctl user.max_user_namespaces kernel.unprivileged_userns_clone \
             kernel.apparmor_restrict_unprivileged_userns`"
        ))
    };
    if !by_user_namespace {
        match namespace::unshare_net() {
            Ok(()) => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            Err(error) => return Err(forbidden(error)),
        }
    }
    namespace::unshare_user_and_net().map_err(forbidden)?;
    Ok(true)
}

/// How each link is made, and why.
fn choose(scenario: &Scenario, asked: Backend) -> Result<Vec<LinkRecord>, Error> {
    // Found out once, and only if a link asks.
    let mut netem_works = None;
    scenario
        .links
        .iter()
        .map(|link| {
            use LinkBackend::{Cable, Emulator, Netem};
            let emulated = plan::why_emulated(scenario, link);
            let (made, and) = match emulated.map(|_| netem::expresses(scenario, link)) {
                None => (Cable, String::new()),
                _ if asked == Backend::Emulator => {
                    (Emulator, ", and the emulator was asked for".to_owned())
                }
                Some(Err(what)) => (Emulator, format!(", and netem cannot express {what}")),
                Some(Ok(())) if *netem_works.get_or_insert_with(netem::works) => {
                    (Netem, ", and netem can express it".to_owned())
                }
                Some(Ok(())) => (
                    Emulator,
                    ", and this kernel lacks netem, matchall or mirred".to_owned(),
                ),
            };
            let why = emulated
                .unwrap_or("nothing is done to the frames")
                .to_owned()
                + &and;
            let name = &link.name;
            if (asked, made) == (Backend::Netem, Emulator) {
                return Err(Error::Unfit(format!(
                    "netem cannot make the link {name}: {why}; leave out --backend"
                )));
            }
            Ok(LinkRecord {
                name: name.clone(),
                ends: [link.ends[0].node.clone(), link.ends[1].node.clone()],
                backend: made,
                why,
            })
        })
        .collect()
}

/// Writes into /proc/sys/net, which shows the namespace of the calling thread.
fn write_sysctls(all: &[(&str, String)]) -> Result<(), Error> {
    for (name, value) in all {
        match fs::write(format!("/proc/sys/net/{name}"), value) {
            // A kernel without IPv6 has nothing to switch off.
            Err(error) if error.kind() == io::ErrorKind::NotFound && name.starts_with("ipv6/") => {}
            other => {
                let name = name.replace('/', ".");
                let what = format!("set net.{name} to {value} in a namespace of the lab");
                other.map_err(Error::system(what))?;
            }
        }
    }
    Ok(())
}

/// Turns off what joins frames, so that a host and who reads its device sees them as a wire carries them.
fn single_frames(net: &OwnedFd, device: &str) -> Result<(), Error> {
    in_net(net, || {
        let driver = Ethtool::open(device).map_err(Error::system(format!("ask {device}")))?;
        for offload in &OFFLOADS {
            if matches!(offload.name, "tso" | "gso" | "gro" | "tx") {
                let what = format!("turn off {} of {device}", offload.name);
                let done = driver.set_offload(offload, false);
                done.map_err(Error::system(what))?;
            }
        }
        Ok(())
    })
}

/// Waits until a bridge passes frames between its ports: the kernel looks at their carriers in its own time.
fn forwarding(net: &OwnedFd, switch: &str) -> Result<(), Error> {
    let show = "ip -details -oneline link show type bridge_slave";
    let show: Vec<&str> = show.split(' ').collect();
    let start = Instant::now();
    loop {
        let ports = run(&show, "", Some(net), switch)?;
        if ports.lines().all(|port| port.contains("state forwarding")) {
            return Ok(());
        }
        if start.elapsed() > BRIDGE {
            let what = format!("wait until the switch {switch} passes frames");
            return Err(Error::system(what)(io::ErrorKind::TimedOut));
        }
        thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) const IP: [&str; 3] = ["ip", "-batch", "-"];
pub(crate) const TC: [&str; 3] = ["tc", "-batch", "-"];

/// Runs a program of set-up in a network namespace, feeds it, and returns what it prints.
pub(crate) fn run(
    command: &[&'static str],
    input: &str,
    net: Option<&OwnedFd>,
    subject: &str,
) -> Result<String, Error> {
    let [program, args @ ..] = command else {
        return Ok(String::new());
    };
    let package = match *program {
        "nft" => "nftables",
        _ => "iproute2",
    };
    let mut command = Command::new(program);
    command
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // A user's PATH may lack the directories of system programs.
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    if let Some(net) = net.map(OwnedFd::try_clone) {
        let net = net.map_err(Error::system("copy a descriptor"))?;
        namespace::start_in_net(&mut command, net);
    }
    let failed = |source| {
        Error::Failed(format!(
            "cannot run {program}: {source}; install the package {package}"
        ))
    };
    let mut child = command.spawn().map_err(failed)?;
    let mut stdin = child.stdin.take().expect("stdin was asked for");
    // If it stops reading, its output has the reason.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    let output = child.wait_with_output().map_err(failed)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.lines().map(str::trim).find(|line| !line.is_empty());
    let said = said.unwrap_or("nothing");
    Err(Error::Failed(format!(
        "cannot set up {subject}: {program} says: {said}"
    )))
}

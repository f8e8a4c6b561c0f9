//! `linerate watch`: what limits the TCP connections of this host now, by samples of their sockets.

mod history;
mod serve;
mod traces;

use crate::filter_args::{FilterArgs, parse_port};
use crate::live::LivePicture;
use crate::prelude::*;
use engine::clock::unix_time;
use explain::SocketWatcher;
use history::WatchHistory;
use model::finding::{Glance, SocketAccount};
use model::{Comm, Connection, SocketCounts};
use observe::SocketScanner;
use observe::trace::Filter;
use report::pages::WatchedHost;
use report::watch::{self, LISTED, SHOWN, TableFoot};
use report::{Style, explain as words};
use serve::WatchServer;
use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use sys::terminal::TerminalKeys;
use traces::{TriggerArgs, TriggeredTrace, TriggeredTraces};

/// Between two looks at all sockets at the least, and between two reads of those that ended.
const LOOK: Nanos = Nanos::from_millis(80);
/// Between two reads of the busiest sockets, where looks at all of them are rarer.
const BUSY: Nanos = Nanos::from_millis(250);
/// All that is done, but for finding who holds the sockets, takes at most one part in this many of one processor: looks are
/// rarer where there are many sockets.
const SHARE: u64 = 150;
/// Between two pictures or lines of JSON.
const SECOND: Nanos = Nanos::from_secs(1);
/// Between two sets of lines.
const LINES: Nanos = Nanos::from_secs(5);
/// Looks after which it is known how far the kernel's count of connections is ahead.
const FIRST_LOOKS: u64 = 3;
/// With fewer looks no cause is known.
const FEW_LOOKS: u64 = 8;
/// Processes whose units are known at once.
const MOST_UNITS: usize = 4096;

/// Watch all TCP connections of this host, and what limits each of them
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate watch                            a table; 1 to 9 open a connection
  linerate watch --port 873                 rsync
  linerate watch --peer 10.1.0.0/16 --min-rate 1M
  linerate watch --pid 845 --time 1m
  linerate watch | grep rsync               lines, five seconds apart
  linerate watch --json | jq '.connections[0]'
  linerate watch --serve 127.0.0.1:5230     the last hour in a browser
  linerate watch --process 'rsync*' --trigger stall,below=10M

Sockets are sampled, packets are not: it costs at most 1 % of one processor, and
needs no right. Root, or CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH, show whose the
sockets of other users are. With --serve, or where there is an archive already,
it keeps a record a day for 'linerate runs list'. docs/watch.md has the details.")]
pub struct WatchArgs {
    /// Only connections with this port at either end
    #[arg(long, value_name = "PORT", value_parser = parse_port)]
    port: Option<u16>,
    /// Only connections to this address or network (ADDRESS/BITS)
    #[arg(long, value_name = "ADDRESS")]
    peer: Option<PeerNetwork>,
    /// Only sockets that this process uses
    #[arg(long)]
    pid: Option<u32>,
    /// Only connections of processes of this name; '*' stands for any letters
    #[arg(long, value_name = "NAME")]
    process: Option<String>,
    /// Only show connections that move at least so much
    #[arg(long, value_name = "RATE")]
    min_rate: Option<BitRate>,
    /// Also those of other network namespaces, as containers have them (CAP_SYS_ADMIN)
    #[arg(long, conflicts_with = "pid")]
    all_namespaces: bool,
    /// End after this time
    #[arg(short, long, value_name = "TIME")]
    time: Option<Nanos>,
    /// A JSON object a line, every second
    #[arg(short = 'J', long)]
    json: bool,
    /// Serve a page of the last hour, and /metrics for Prometheus, instead
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with = "json")]
    serve: Option<SocketAddr>,
    #[command(flatten)]
    traces: TriggerArgs,
}

/// An address, or all that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PeerNetwork {
    address: IpAddr,
    bits: u32,
}

impl FromStr for PeerNetwork {
    type Err = String;

    fn from_str(text: &str) -> Result<PeerNetwork, String> {
        let wrong = || {
            format!(
                "'{text}' is no address and no network; write 10.1.2.3, 10.1.0.0/16 or fd00::/8"
            )
        };
        let (address, bits) = text
            .split_once('/')
            .map_or((text, None), |(a, b)| (a, Some(b)));
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let most = most_bits(address);
        let bits = bits.map_or(Ok(most), |bits| bits.parse().map_err(|_| wrong()))?;
        match bits <= most {
            true => Ok(PeerNetwork { address, bits }),
            false => Err(wrong()),
        }
    }
}

fn most_bits(of: IpAddr) -> u32 {
    if of.is_ipv4() { 32 } else { 128 }
}

impl fmt::Display for PeerNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl PeerNetwork {
    /// Its address, if it has no other.
    fn only(self) -> Option<IpAddr> {
        (self.bits == most_bits(self.address)).then_some(self.address)
    }

    fn has(self, ip: IpAddr) -> bool {
        let number = |ip: IpAddr| match ip {
            IpAddr::V4(v4) => (u128::from(v4.to_bits()) << 96, 4),
            IpAddr::V6(v6) => (v6.to_bits(), 6),
        };
        let ((own, version), (other, of)) = (number(self.address), number(ip));
        version == of && (own ^ other).checked_shr(128 - self.bits).unwrap_or(0) == 0
    }
}

impl WatchArgs {
    pub fn run(&self, global: &Global) -> Result<Exit> {
        let stop = sys::signal::stop_flag().context("cannot catch Ctrl-C")?;
        let which = FilterArgs {
            port: self.port,
            pid: self.pid,
            netns: self.all_namespaces.then(|| "all".to_owned()),
            ..FilterArgs::default()
        };
        let filter = which.filter()?;
        let scanner = SocketScanner::open(&filter)?;
        if let (_, refused @ 1..) = scanner.namespaces() {
            out::note(&format!(
                "linerate: {refused} network namespaces may not be entered (it takes CAP_SYS_ADMIN): their sockets are left out"
            ));
        }
        if sys::process::effective_user() != 0 {
            let others = if self.all_namespaces {
                ", and other network namespaces are not seen"
            } else {
                ""
            };
            out::note(&format!(
                "linerate: without root, only your own processes are named ('-' are the others){others}"
            ));
        }
        let mut watch = Watch {
            args: self,
            scanner,
            watcher: SocketWatcher::with_alarms(self.traces.trigger.clone()),
            units: HashMap::new(),
            look_at: Nanos(0),
            busy_at: Nanos(0),
            ahead: [None; 3],
            looks: 0,
        };
        let mut traces =
            TriggeredTraces::new(&self.traces, self.traced(filter), global, unix_time())?;
        let mut history = WatchHistory::begin(self.archive(global), self.filter(), unix_time())?;
        let mut screen = WatchScreen::new(self, stop)?;
        while !stop.load(Ordering::Relaxed)
            && self.time.is_none_or(|time| watch.scanner.now() < time)
        {
            let began = sys::clock::thread_cpu();
            watch.look();
            watch.trigger(&mut traces);
            let at = watch.scanner.now();
            history.update(at, unix_time(), || watch.counts());
            let reads = match traces.ended() {
                Some(kept) => screen.report(kept, watch.scanner.now())?,
                None => true,
            };
            if !reads || !screen.show(&mut watch, &history)? {
                return Ok(Exit::Done);
            }
            watch.rest(sys::clock::thread_cpu().saturating_sub(began));
            if !screen.wait(&mut watch, &history)? {
                break;
            }
        }
        history.finish(watch.scanner.now(), watch.counts());
        let explanations = watch.explain();
        if let Some(kept) = traces.stop() {
            screen.report(kept, watch.scanner.now())?;
        }
        drop(screen);
        if self.serve.is_some() {
            return Ok(Exit::Done);
        }
        out::print(&match self.json {
            true => words::json_line(&explanations),
            false => words::text(&explanations, None, stdout_style()),
        })?;
        if watch.looks < FEW_LOOKS {
            out::note(&format!(
                "linerate: few looks at the sockets ({}): a longer --time shows more",
                watch.looks
            ));
        }
        if let Some(missing) = watch.account().missing() {
            out::note(&format!("linerate: connections are missing: {missing}"));
        }
        Ok(Exit::Done)
    }
}

impl WatchArgs {
    /// Where a record of each day is kept: for a page, or where there is an archive already.
    fn archive(&self, global: &Global) -> Option<PathBuf> {
        let path = global.archive_path().map_err(|error| {
            if self.serve.is_some() {
                out::note(&format!("linerate: no record of the day is kept: {error}"));
            }
        });
        path.ok()
            .filter(|path| self.serve.is_some() || path.is_file())
    }

    /// Of these the connections that may be traced.
    fn traced(&self, filter: Filter) -> Filter {
        let host = self.peer.and_then(PeerNetwork::only);
        Filter { host, ..filter }
    }

    /// The options that choose which connections are counted.
    fn filter(&self) -> String {
        let option =
            |name: &str, value: Option<String>| value.map(|value| format!("--{name} {value}"));
        let given = [
            option("port", self.port.map(|port| port.to_string())),
            option("peer", self.peer.map(|peer| peer.to_string())),
            option("pid", self.pid.map(|pid| pid.to_string())),
            self.all_namespaces.then(|| "--all-namespaces".to_owned()),
        ];
        given.into_iter().flatten().collect::<Vec<_>>().join(" ")
    }

    /// Whether a process is one of those that are shown.
    fn is_of(&self, comm: Comm) -> bool {
        let pattern = self.process.as_ref();
        pattern.is_none_or(|pattern| comm.is_like(pattern))
    }
}

/// The sockets, and what is known of them.
struct Watch<'a> {
    args: &'a WatchArgs,
    scanner: SocketScanner,
    watcher: SocketWatcher,
    units: HashMap<u32, Option<String>>,
    look_at: Nanos,
    busy_at: Nanos,
    /// What the kernel's count of connections was ahead of the sockets that were met, at most in the first looks, and at the
    /// last two: a look and that count are not of one moment, and the news of a socket that ended takes its time.
    ahead: [Option<i64>; 3],
    looks: u64,
}

impl Watch<'_> {
    /// Reads the sockets that ended, and all of them if it is time, else the busiest.
    fn look(&mut self) {
        let now = self.scanner.now();
        let is_due = now >= self.look_at;
        let Watch { args, watcher, .. } = self;
        let push = |watcher: &mut SocketWatcher, connection: Connection, sample| {
            if args
                .peer
                .is_none_or(|peer| peer.has(connection.remote.ip()))
            {
                watcher.push(connection, &sample);
            }
        };
        self.scanner
            .ended(&mut |one, sample| push(watcher, one, sample));
        if !is_due {
            if now >= self.busy_at {
                self.busy_at = now + BUSY;
                let busy = watcher.busy();
                self.scanner
                    .poll_each(&busy, &mut |one, sample| push(watcher, one, sample));
            }
            return;
        }
        self.busy_at = now + BUSY;
        watcher.begin();
        self.scanner
            .poll(&mut |one, sample| push(watcher, one, sample));
        watcher.finish(self.scanner.now());
        let met = self.watcher.account().seen as i64;
        let ahead = self.scanner.opened().map(|opened| opened as i64 - met);
        let [first, _, last] = self.ahead;
        let first = if self.looks < FIRST_LOOKS {
            first.max(ahead)
        } else {
            first
        };
        self.ahead = [first, last, ahead];
        self.looks += 1;
        self.look_at = self.scanner.now();
    }

    /// What was just done took so much of the processor. The first look, for which the program itself is loaded, says nothing
    /// about the next.
    fn rest(&mut self, took: Duration) {
        let naming = self.scanner.naming();
        let took = match self.looks {
            0 | 1 => Duration::ZERO,
            _ => took.saturating_sub(naming),
        };
        let least = if self.look_at > self.scanner.now() {
            Nanos(0)
        } else {
            LOOK
        };
        self.look_at += least.max(Nanos(Nanos::from(took).0.saturating_mul(SHARE)));
    }

    /// Begins a trace of a socket that an alarm holds for, if one may begin.
    fn trigger(&mut self, traces: &mut TriggeredTraces<'_>) {
        let now = self.scanner.now();
        if self.args.traces.trigger.is_empty() || !traces.is_free(now, unix_time()) {
            return;
        }
        let wanted = self
            .watcher
            .alarmed()
            .filter(|socket| self.args.is_of(socket.comm));
        let mut wanted = wanted.filter(|socket| !traces.has(&socket.connection));
        if let Some(socket) = wanted.next() {
            traces.begin(&socket, unix_time(), now);
        }
    }

    fn glances(&mut self, most: usize) -> Vec<Glance> {
        let args = self.args;
        let least = args.min_rate.map_or(0.0, |rate| rate.0 as f64 / 8.0);
        let now = self.scanner.now();
        let wanted = |comm, rate| rate >= least && args.is_of(comm);
        let mut glances = self.watcher.glances(now, most, &wanted);
        if self.units.len() > MOST_UNITS {
            self.units.clear();
        }
        for glance in glances.iter_mut().filter(|glance| glance.pid != 0) {
            let unit = self.units.entry(glance.pid);
            glance.unit = unit.or_insert_with(|| observe::unit(glance.pid)).clone();
        }
        glances
    }

    /// The account with what the kernel counted and was not met.
    fn account(&self) -> SocketAccount {
        let mut account = self.watcher.account().clone();
        if let ([Some(first), Some(before), Some(last)], None) = (self.ahead, self.args.peer) {
            account.unseen = u64::try_from(before.min(last) - first).unwrap_or(0);
        }
        account
    }

    fn counts(&self) -> SocketCounts {
        SocketCounts {
            account: self.account(),
            groups: self.watcher.groups().to_vec(),
        }
    }

    /// All of it, for a page and for metrics.
    fn watched(&mut self, history: &WatchHistory) -> WatchedHost {
        let glances = self.glances(LISTED);
        let connections = glances.into_iter().enumerate().map(|(n, one)| {
            let explained = (n < SHOWN).then(|| self.watcher.explain(one.connection));
            (one, explained.flatten())
        });
        WatchedHost {
            connections: connections.collect(),
            host: engine::trust::host_name(),
            now: unix_time(),
            watched: self.scanner.now(),
            open: self.watcher.open() as u64,
            account: self.account(),
            groups: self.watcher.groups().to_vec(),
            minutes: history.minutes(),
        }
    }

    /// Those that a table shows and those that ended, if they moved enough.
    fn explain(&mut self) -> Vec<Explanation> {
        let shown = self.glances(SHOWN);
        let shown = shown
            .iter()
            .filter(|one| one.sent.0 + one.received.0 > 0 || one.limit.is_some());
        let mut all: Vec<Explanation> = shown
            .filter_map(|one| self.watcher.explain(one.connection))
            .collect();
        all.extend(self.watcher.take_ended());
        // Where both sockets are on this host, the sender's has it all.
        let ends = |one: &Explanation| (one.sender, one.receiver);
        let sent = all.iter().filter(|one| !one.phases.is_empty());
        let sent: Vec<_> = sent.map(ends).collect();
        all.retain(|one| !one.phases.is_empty() || !sent.contains(&ends(one)));
        all.truncate(SHOWN);
        all
    }
}

/// Where it is shown: a table in place, lines, JSON, or a page.
struct WatchScreen {
    published: Option<WatchServer>,
    view: Option<View<WatchTable>>,
    keys: Option<TerminalKeys>,
    json: bool,
    due: Nanos,
    /// A connection that fills the screen.
    opened: Option<u32>,
    shown: Vec<u32>,
}

impl WatchScreen {
    fn new(args: &WatchArgs, stop: &'static AtomicBool) -> Result<WatchScreen> {
        let json = args.json;
        let terminal = std::io::stdout().is_terminal() && std::io::stderr().is_terminal();
        let terminal = terminal && !json && args.serve.is_none();
        let published = args.serve.map(|address| WatchServer::begin(address, stop));
        Ok(WatchScreen {
            published: published.transpose()?,
            view: terminal.then(|| View::new(WatchTable::default(), false)),
            keys: terminal.then(TerminalKeys::open).flatten(),
            json,
            due: Nanos(0),
            opened: None,
            shown: Vec::new(),
        })
    }

    /// Reports a trace that ended; false once nobody reads.
    fn report(&mut self, kept: Result<TriggeredTrace>, at: Nanos) -> Result<bool> {
        let kept = match kept {
            Ok(kept) => kept,
            Err(error) => {
                out::note(&format!(
                    "linerate: no trace: {}",
                    engine::exit::sentence(&error)
                ));
                return Ok(true);
            }
        };
        if self.json {
            let file = kept.file.display().to_string();
            let line = watch::traced_json(at, &kept.record, &file, &kept.explanations);
            return out::print_part(&line);
        }
        match &mut self.view {
            Some(view) => view.report(&kept.line(at)),
            None => return out::print_part(&(kept.line(at) + "\n")),
        }
        Ok(true)
    }

    /// Shows what is due; false once nobody reads.
    fn show(&mut self, watch: &mut Watch<'_>, history: &WatchHistory) -> Result<bool> {
        let at = watch.scanner.now();
        if at < self.due {
            return Ok(true);
        }
        let open = watch.watcher.open() as u64;
        if let Some(published) = &mut self.published {
            self.due = at + LINES;
            published.update(watch.watched(history));
            return Ok(true);
        }
        if let Some(view) = &mut self.view {
            self.due = at + SECOND;
            let glances = watch.glances(SHOWN);
            self.shown = glances.iter().map(|one| one.connection).collect();
            let opened = self.opened.map(|number| watch.watcher.explain(number));
            let table = WatchTable {
                glances,
                account: watch.account(),
                opened,
                open,
                at,
                keys: self.keys.is_some(),
            };
            view.update(|picture| *picture = table);
            return Ok(true);
        }
        if self.json {
            self.due = at + SECOND;
            let glances = watch.glances(LISTED);
            return out::print_part(&watch::json(&glances, open, at, Some(&watch.account())));
        }
        // The first lines have some seconds behind them.
        let first = self.due.0 == 0;
        self.due = at + LINES;
        if first {
            return Ok(true);
        }
        let lines = watch::lines(&watch.glances(SHOWN), watch.looks, at);
        out::print_part(&(lines.join("\n") + "\n"))
    }

    /// Waits for the next round or a key; false if that ends the watch.
    fn wait(&mut self, watch: &mut Watch<'_>, history: &WatchHistory) -> Result<bool> {
        let least = Nanos::from_millis(1);
        let pause = watch.look_at.since(watch.scanner.now()).clamp(least, LOOK);
        let Some(keys) = &self.keys else {
            std::thread::sleep(pause.into());
            return Ok(true);
        };
        match keys.wait(pause.into()) {
            Ok(None) => return Ok(true),
            Ok(Some(b'q')) => return Ok(false),
            Ok(Some(key @ b'1'..=b'9')) if self.opened.is_none() => {
                self.opened = self.shown.get(usize::from(key - b'1')).copied();
            }
            Ok(Some(_)) => self.opened = None,
            // The terminal is gone: nobody looks.
            Err(_) => return Ok(false),
        }
        self.due = Nanos(1);
        self.show(watch, history)
    }
}

#[derive(Default)]
struct WatchTable {
    glances: Vec<Glance>,
    account: SocketAccount,
    /// Instead of the table; `None` while too little is known.
    opened: Option<Option<Explanation>>,
    open: u64,
    at: Nanos,
    keys: bool,
}

impl LivePicture for WatchTable {
    fn plain(&mut self) -> Vec<String> {
        Vec::new()
    }

    fn frame(&self, style: Style) -> Vec<String> {
        if let Some(opened) = &self.opened {
            let mut lines: Vec<String> = match opened {
                Some(explanation) => {
                    let text = words::text(std::slice::from_ref(explanation), None, style);
                    text.lines().map(str::to_owned).collect()
                }
                None => {
                    vec!["Nothing to explain: it has ended, or moved too little so far.".to_owned()]
                }
            };
            lines.push("Any key returns to the table; q ends.".to_owned());
            return lines;
        }
        let missing = self
            .account
            .missing()
            .map(|missing| format!("Missing: {missing}. "));
        let keys = if self.keys {
            "1 to 9 open one, q ends."
        } else {
            "Ctrl-C ends."
        };
        let foot = TableFoot {
            open: self.open,
            seen: self.account.seen,
            hint: &(missing.unwrap_or_default() + keys),
            numbered: self.keys,
        };
        watch::frame(&self.glances, &foot, self.at, style)
    }

    fn event(&mut self, _: &Event<'_>) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_by_address_and_network() {
        let of = |text: &str, ip: &str| {
            text.parse::<PeerNetwork>()
                .unwrap()
                .has(ip.parse().unwrap())
        };
        assert!(of("10.1.2.3", "10.1.2.3") && !of("10.1.2.3", "10.1.2.4"));
        assert!(of("10.1.0.0/16", "10.1.200.1") && !of("10.1.0.0/16", "10.2.0.1"));
        assert!(of("fd00::/8", "fd12::1") && !of("fd00::/8", "fe80::1"));
        assert!(of("0.0.0.0/0", "192.0.2.1") && !of("0.0.0.0/0", "::1"));
        let only = |text: &str| text.parse::<PeerNetwork>().unwrap().only().is_some();
        assert!(only("10.1.2.3") && only("fd00::1/128") && !only("10.1.2.0/24"));
        for wrong in ["", "x", "10.0.0.0/33", "10.0.0.0/", "fd00::/129"] {
            assert!(
                wrong
                    .parse::<PeerNetwork>()
                    .unwrap_err()
                    .contains("10.1.0.0/16"),
                "{wrong}"
            );
        }
    }
}

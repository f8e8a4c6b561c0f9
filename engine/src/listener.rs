//! `linerate serve`: takes control connections from the network.
//!
//! Of an unauthenticated peer nothing is parsed but TLS itself and, while an invitation is open, one
//! frame of a fixed size. Every connection has a thread of its own and a deadline in every state,
//! so that none keeps another waiting; how many there may be is bounded by source (`transport::admission`) and by key.

use crate::clock::unix_seconds;
use crate::host_calendar::HostCalendar;
use crate::log;
use crate::prelude::*;
use crate::slots::{DirectSlot, SlotBook};
use crate::transport::acceptor::{Acceptor, AcceptorLimits, Arrival, ReadyConn, Slots, WhenFull};
use crate::transport::admission::{self, Admission, Bounds, PendingConnection, Startups};
use crate::transport::{AgentChannel, Channel, ENROL, Handshake, SESSION, Tls, VERSION, Verdict};
use crate::transport::{ChannelSender, discard};
use crate::trust::{
    DirectMeans, Identity, Ledger, LedgerLimits, NodeId, Right, TrustEntry, TrustFile, TrustStore,
    host_name,
};
use measure::storage::Reach;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener};
use std::ops::RangeInclusive;
use std::sync::Condvar;
use std::sync::atomic::AtomicU64;
use std::time::SystemTime;
use wire::control::busy;
use wire::control::direct::SlotRole;
use wire::control::enrol::{EnrolAnswer, EnrolRequest, REQUEST_LEN};
use wire::control::{AgentRole, PROTOCOL, encode_frame};

/// From the connection to the end of its handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// For the one frame of a peer that shows an invitation.
const ENROLMENT: Duration = Duration::from_secs(5);

/// For the greeting of a client.
const GREETING: Duration = Duration::from_secs(5);

/// Between two looks at the list of trusted hosts and at the wish to stop.
const LOOK: Duration = Duration::from_millis(500);

/// For sessions to end once the server is stopped.
const STOPPING: Duration = Duration::from_secs(5);

/// Connections that the kernel keeps until they are accepted: a thousand clients at once are served or refused.
const BACKLOG: i32 = 1024;

/// Lines about connections that came to nothing, in a second: a flood does not fill the disk.
const MAX_LINES: u32 = 10;

/// What a session does with its channel.
pub type SessionHandler = dyn Fn(AgentChannel, Peer) -> Result<()> + Send + Sync;

/// How to serve.
pub struct ListenerConfig {
    /// Where the key, the list of trusted hosts and the usage are.
    pub directory: PathBuf,
    /// Where to listen once somebody is trusted; `None`: on all addresses.
    pub bind: Option<IpAddr>,
    /// TCP port of control connections; 0: any.
    pub port: u16,
    /// Ports of data listeners; `None`: any.
    pub data_ports: Option<RangeInclusive<u16>>,
    /// What all legs may use together.
    pub limits: LedgerLimits,
    /// Sessions at once: in all, and of one key.
    pub sessions: usize,
    /// Of one key.
    pub key_sessions: usize,
    /// Connections whose key is not known yet.
    pub startups: Startups,
    /// Whether clients with that right may change this host's settings.
    pub allow_tune: bool,
    /// Where copies of clients with that right may read and write files.
    pub allow_files: Option<Reach>,
    /// The archive of the runs that this host measures for clients with that right.
    pub allow_direct: Option<PathBuf>,
    /// What is booked on this host.
    pub calendar: HostCalendar,
}

/// A server that listens.
pub struct Listener {
    shared: Arc<ListenerShared>,
    sockets: Vec<TcpListener>,
    is_open: bool,
    stamp: Option<(SystemTime, u64)>,
    said: String,
}

struct ListenerShared {
    config: ListenerConfig,
    identity: Arc<Identity>,
    store: TrustStore,
    ledger: Arc<Ledger>,
    slots: Arc<SlotBook>,
    session: Box<SessionHandler>,
    /// Connections whose key is not known yet.
    unknown: Admission,
    sessions: Slots<NodeId>,
    tables: Mutex<Tables>,
    changed: Condvar,
    next_session: AtomicU64,
}

#[derive(Default)]
struct Tables {
    sessions: BTreeMap<u64, OpenSession>,
    lines: LineCount,
}

/// A session that goes on.
struct OpenSession {
    id: NodeId,
    /// The rights that it was opened with, each with the message to send when it is withdrawn.
    rights: Vec<(Right, &'static str)>,
    /// Once it has been greeted.
    sender: Option<ChannelSender<AgentRole>>,
}

impl Listener {
    /// Opens the sockets: on loopback only while nobody is trusted or invited.
    ///
    /// # Errors
    /// A key or list that cannot be read, a port that is taken.
    pub fn open(config: ListenerConfig, session: Box<SessionHandler>) -> Result<Listener> {
        let store = TrustStore::new(&config.directory);
        let trust = store.load()?;
        let directory = Some(config.directory.as_path());
        let ledger = Ledger::new(config.limits.clone(), directory);
        let bounds = Bounds::of(config.startups);
        let shared = Arc::new(ListenerShared {
            identity: Arc::new(Identity::open(&config.directory)?),
            ledger: Arc::new(ledger),
            slots: Arc::new(SlotBook::new(
                config.calendar.clone(),
                config.bind,
                config.data_ports.clone(),
            )),
            session,
            unknown: Admission::new(bounds, refuse),
            sessions: Slots::new(config.sessions, config.key_sessions),
            tables: Mutex::default(),
            changed: Condvar::new(),
            next_session: AtomicU64::new(1),
            store,
            config,
        });
        let mut listener = Listener {
            stamp: shared.store.stamp(),
            shared,
            sockets: Vec::new(),
            is_open: false,
            said: String::new(),
        };
        listener.listen(trust.expects_anybody(unix_seconds()))?;
        Ok(listener)
    }

    /// This host's id.
    pub fn id(&self) -> NodeId {
        self.shared.identity.id()
    }

    /// The slots of coordinators at it.
    pub fn slots(&self) -> Arc<SlotBook> {
        Arc::clone(&self.shared.slots)
    }

    /// Where it listens now.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let sockets = self.sockets.iter();
        sockets.filter_map(|s| s.local_addr().ok()).collect()
    }

    /// Serves until `stop`, then ends the sessions in good order.
    pub fn run(mut self, stop: &AtomicBool) -> Result<()> {
        while !stop.load(Ordering::Relaxed) {
            self.reload_trusted()?;
            // They need not send anything before their handshake, which has a thread and a deadline of its own.
            let limits = AcceptorLimits {
                prefix: 0,
                within: HANDSHAKE,
                when_full: WhenFull::Refuse,
                only: None,
            };
            let unknown = self.shared.unknown.clone();
            let arrivals = Acceptor::new(&self.sockets, limits, unknown).poll(LOOK);
            for arrival in arrivals.context("cannot wait for connections")? {
                self.serve(arrival);
            }
        }
        self.sockets.clear();
        self.shared.stop_sessions();
        Ok(())
    }

    /// Follows the list of trusted hosts: whoever is enrolled or invited while this runs can come.
    fn reload_trusted(&mut self) -> Result<()> {
        let stamp = self.shared.store.stamp();
        // Invitations expire without a change of the file.
        let trust = match self.shared.store.load() {
            Ok(trust) => trust,
            Err(error) => {
                // Nobody is accepted meanwhile; said once for each state of the file.
                let error = format!("{error:#}");
                if self.said != error {
                    log(&format!("nobody is accepted: {error}"));
                    self.said = error;
                }
                return Ok(());
            }
        };
        self.said.clear();
        if stamp != self.stamp {
            self.stamp = stamp;
            log("the list of trusted hosts changed");
        }
        self.shared.slots.retain(|slot, role| {
            let right = match role {
                SlotRole::Source => Right::Direct,
                SlotRole::Destination | SlotRole::Light => Right::Measure,
            };
            trust.allowed(&slot.by, right).is_some()
        });
        for session in sys::lock(&self.shared.tables).sessions.values() {
            let withdrawn = |right: &Right| trust.allowed(&session.id, *right).is_none();
            let why = session.rights.iter().find(|(right, _)| withdrawn(right));
            if let (Some(sender), Some((_, why))) = (&session.sender, why) {
                // With the session goes what it has changed.
                sender.close(why);
            }
        }
        let open = trust.expects_anybody(unix_seconds());
        match open == self.is_open {
            true => Ok(()),
            false => self.listen(open),
        }
    }

    fn listen(&mut self, open: bool) -> Result<()> {
        let (port, bind) = (self.shared.config.port, self.shared.config.bind);
        if bind.is_some_and(|address| address.is_loopback()) && !self.sockets.is_empty() {
            self.is_open = open;
            return Ok(());
        }
        // The kernel does not let a new socket take the port while an old one listens on it.
        self.sockets.clear();
        self.sockets = match (open, bind) {
            (true, None) => bind_all(&[Ipv6Addr::UNSPECIFIED.into()], port)
                .or_else(|_| bind_all(&[Ipv4Addr::UNSPECIFIED.into()], port))?,
            (open, Some(address)) if open || address.is_loopback() => bind_all(&[address], port)?,
            _ => {
                let loopback = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
                bind_all(&loopback, port)?
            }
        };
        self.is_open = open;
        let addresses: Vec<String> = self.addresses().iter().map(SocketAddr::to_string).collect();
        let why = match open {
            true => "",
            false => {
                " only, until somebody is trusted or invited: run 'linerate trust invite' or 'linerate trust add'"
            }
        };
        log(&format!("listens on {}{why}", addresses.join(" and ")));
        Ok(())
    }

    /// Starts a thread for a connection.
    fn serve(&self, arrival: Arrival<PendingConnection>) {
        let conn = match arrival {
            Arrival::Ready(conn) => conn,
            Arrival::Refused(_, address) => {
                return self.shared.note(&format!(
                    "{address}: refused: too many connections that are not authenticated yet"
                ));
            }
            Arrival::Failed(error) => {
                let what = format!("cannot take a connection: {error}");
                return self.shared.note(&what);
            }
        };
        let address = conn.peer;
        let shared = Arc::clone(&self.shared);
        let started = sys::spawn("client", move || shared.receive(conn));
        if let Err(error) = started {
            let what = format!("{address}: dropped: no thread for it: {error}");
            self.shared.note(&what);
        }
    }
}

/// Asks a client for which there is no room to come again.
fn refuse(mut stream: &TcpStream, again: Duration) {
    // A few bytes into an empty send buffer: it cannot block, and if it fails nobody is there. Closed with something
    // unread the connection is reset, and they may be lost.
    let _ = stream.write_all(&busy::encode(again.into()));
    let _ = sys::socket::receive_now(stream.as_fd(), &mut [0; 4096]);
}

/// Opens all that there are; not having one family is no failure.
fn bind_all(addresses: &[IpAddr], port: u16) -> Result<Vec<TcpListener>> {
    let mut sockets: Vec<TcpListener> = Vec::new();
    let mut port = port;
    let mut failure = None;
    for address in addresses {
        let opened = TcpListener::bind((*address, port)).and_then(|socket| {
            socket.set_nonblocking(true)?;
            sys::socket::listen(socket.as_fd(), BACKLOG)?;
            // Any port that was asked for is one for all addresses.
            port = socket.local_addr()?.port();
            Ok(socket)
        });
        match opened {
            Ok(socket) => sockets.push(socket),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                bail!(
                    "TCP port {port} of {address} is taken: another 'linerate serve' runs, or choose one with --port"
                );
            }
            Err(error) => failure = Some((address, error)),
        }
    }
    match failure {
        Some((address, error)) if sockets.is_empty() => {
            Err(error).with_context(|| format!("cannot listen on {address}, TCP port {port}"))
        }
        _ => Ok(sockets),
    }
}

impl ListenerShared {
    /// From the connection to the end of its session.
    fn receive(self: &Arc<ListenerShared>, conn: ReadyConn<PendingConnection>) {
        let ReadyConn {
            stream: socket,
            peer: address,
            pass: pending,
            ..
        } = conn;
        let trust = match self.store.load() {
            Ok(trust) => trust,
            Err(error) => return self.note(&format!("{address}: refused: {error:#}")),
        };
        let inviting = trust.is_inviting(unix_seconds());
        let list = trust.clone();
        let slots = Arc::clone(&self.slots);
        let accepts: Arc<Verdict> = Arc::new(move |id| {
            inviting || list.allowed(id, Right::Measure).is_some() || slots.expects(id)
        });
        let until = Instant::now() + HANDSHAKE;
        let name = address.to_string();
        let mut tls = match Tls::server(socket, &self.identity, accepts, &name, until) {
            Ok(tls) => tls,
            Err(Handshake::Key(key)) => {
                return self.note(&format!(
                    "{address}: refused: its key {key} is not trusted here to measure"
                ));
            }
            Err(_) if pending.is_dropped() => {
                let why = "silent while others came";
                return self.note(&format!("{address}: dropped: {why}"));
            }
            Err(Handshake::Broken(why)) => {
                if Instant::now() >= until {
                    pending.expire();
                }
                return self.note(&format!("{address}: refused: {why}"));
            }
            // Clients send no such notice.
            Err(Handshake::Busy(_)) => return,
        };
        let id = tls.peer();
        let is_session = tls.protocol() == Some(SESSION);
        let slot = is_session.then(|| self.slots.enter(&id)).flatten();
        let by = slot.as_ref().map_or(&id, |slot| &slot.by);
        match (tls.protocol(), trust.allowed(by, Right::Measure)) {
            (Some(ENROL), _) => self.enrol(tls, address, pending),
            (Some(SESSION), Some(entry)) => self.serve(tls, address, entry, slot, pending),
            (Some(SESSION), None) => {
                self.note(&format!(
                    "{address}: refused: its key {id} is not trusted here to measure"
                ));
                let why = format!(
                    "this host's key is not trusted there: on it run 'linerate trust add {id}' (with --direct if this host is to coordinate), or accept its invitation first"
                );
                dismiss(&mut tls, &why, None);
            }
            _ => self.note(&format!("{address}: refused: it names no protocol")),
        }
    }

    /// All that an unauthenticated peer may do.
    fn enrol(&self, mut tls: Tls, address: SocketAddr, pending: PendingConnection) {
        let until = Instant::now() + ENROLMENT;
        let id = tls.peer();
        let mut frame = [0; REQUEST_LEN];
        if let Err(error) = tls.read_exact(&mut frame, until) {
            return self.note(&format!("{address}: not enrolled: {error}"));
        }
        let enrolled = EnrolRequest::decode(&frame).map(|EnrolRequest { token, name }| {
            let enrol = |trust: &mut TrustFile| Ok(trust.enrol(unix_seconds(), &token, id, &name));
            self.store.update(enrol)
        });
        let refused = |shown| {
            self.note(&format!(
                "{address}: not enrolled: {} showed {shown}",
                id.short()
            ));
            EnrolAnswer::Unknown
        };
        let answer = match enrolled {
            None => refused("no invitation"),
            Some(Ok(None)) => refused("an invitation that is not open"),
            Some(Ok(Some(entry))) => {
                log(&format!(
                    "{address}: enrolled {} ({id}), limits: {}",
                    entry.name, entry.limits
                ));
                pending.authenticated();
                EnrolAnswer::Welcome { name: host_name() }
            }
            Some(Err(error)) => {
                log(&format!("{address}: not enrolled: {error:#}"));
                EnrolAnswer::Failed
            }
        };
        if tls.write_all(&answer.encode(), until).is_ok() {
            discard(&mut tls);
        }
    }

    fn serve(
        self: &Arc<ListenerShared>,
        mut tls: Tls,
        address: SocketAddr,
        entry: &TrustEntry,
        slot: Option<Arc<DirectSlot>>,
        pending: PendingConnection,
    ) {
        // What it does no longer counts against its neighbours.
        pending.authenticated();
        let name = match &slot {
            Some(slot) => {
                let peer = slot.peer.map_or(String::new(), |peer| peer.short());
                format!("{peer} for {}", entry.name)
            }
            None => entry.name.clone(),
        };
        let who = format!("{address} {name}");
        let in_slot = |may: Result<(), String>| match slot {
            Some(_) => Err("a slot is for measuring alone".to_owned()),
            None => may,
        };
        let may_tune = in_slot(self.may_tune(entry));
        let may_files = match &slot {
            Some(slot) if !slot.files => Err("its slot is without files".to_owned()),
            _ => self.may_files(entry),
        };
        let may_direct = in_slot(Ok(())).and_then(|()| self.may_direct(entry));
        let mut rights = vec![(Right::Measure, "this host is no longer trusted there")];
        if may_tune.is_ok() {
            rights.push((Right::Tune, "this host may no longer tune there"));
        }
        if may_files.is_ok() {
            rights.push((Right::Files, "this host may no longer use files there"));
        }
        if may_direct.is_ok() {
            let why = "this host may no longer have that one measure towards others";
            rights.push((Right::Direct, why));
        }
        let session = OpenSession {
            id: entry.id,
            rights,
            sender: None,
        };
        let Some(_counted) = self.sessions.take(entry.id) else {
            self.note(&format!("{who}: asked to come again: too many sessions"));
            let (all, own) = (self.config.sessions, self.config.key_sessions);
            let again = admission::again();
            let why = format!(
                "it has {own} sessions of this host (or {all} in all) already: try again in {}",
                model::Nanos::from(again)
            );
            return dismiss(&mut tls, &why, Some(again));
        };
        let place = SessionSlot::new(self, session);
        let listens = tls.local_address().ok();
        tls.rename(&who);
        let channel: AgentChannel = match Channel::start(Box::new(tls), &who, GREETING, None) {
            Ok(channel) => channel,
            Err(error) => return log(&format!("no session: {error:#}")),
        };
        place.set(channel.sender());
        log(&format!(
            "{who}: session {} opened (linerate {})",
            place.number,
            channel.version()
        ));
        let peer = Peer {
            name,
            id: Some(entry.id),
            own_key: Some(Arc::clone(&self.identity)),
            address: Some(address.ip()),
            limits: entry.limits.clone(),
            may_tune,
            may_files,
            may_direct,
            slots: Some(Arc::clone(&self.slots)),
            slot,
            port: listens.map_or(self.config.port, |address| address.port()),
            listen: listens.map_or(Ipv4Addr::UNSPECIFIED.into(), |address| address.ip()),
            data_ports: self.config.data_ports.clone(),
            ledger: Arc::clone(&self.ledger),
            session: place.number,
        };
        match (self.session)(channel, peer) {
            Ok(()) => log(&format!("{who}: session {} ended", place.number)),
            Err(error) => log(&format!("{who}: session {} broke: {error:#}", place.number)),
        }
    }

    /// Whether a client may change this host's settings, or who would have to allow it and how.
    fn may_tune(&self, entry: &TrustEntry) -> Result<(), String> {
        if !self.config.allow_tune {
            return Err(
                "remote tuning is off there: run 'linerate serve --allow-tune' there".into(),
            );
        }
        entry.may(Right::Tune, "tune", "--tune")
    }

    /// Whether this host measures towards others for a client, or who would have to allow it and how.
    fn may_direct(&self, entry: &TrustEntry) -> Result<DirectMeans, String> {
        let Some(archive) = &self.config.allow_direct else {
            return Err(
                "it measures towards no other host: run 'linerate serve --allow-direct' there"
                    .to_owned(),
            );
        };
        entry.may(Right::Direct, "have it measure towards others", "--direct")?;
        Ok(DirectMeans {
            archive: archive.clone(),
            directory: self.config.directory.clone(),
        })
    }

    /// Which files copies of a client may name, or who would have to allow it and how.
    fn may_files(&self, entry: &TrustEntry) -> Result<Reach, String> {
        let Some(reach) = &self.config.allow_files else {
            return Err(
                "files are not to be used there: run 'linerate serve --allow-files DIR' there, or copy from or to memory"
                    .to_owned(),
            );
        };
        entry.may(Right::Files, "use files", "--files")?;
        Ok(reach.clone())
    }

    /// Ends the sessions: they notify their clients, within a grace period.
    fn stop_sessions(&self) {
        self.slots.retain(|_, _| false);
        let tables = sys::lock(&self.tables);
        for sender in tables.sessions.values().filter_map(|s| s.sender.as_ref()) {
            sender.close("the server was stopped");
        }
        let count = tables.sessions.len();
        if count > 0 {
            log(&format!("stopping: ends {count} sessions"));
        }
        let any = |tables: &mut Tables| !tables.sessions.is_empty();
        drop(self.changed.wait_timeout_while(tables, STOPPING, any));
    }

    /// A line about something that anybody on the network can cause.
    fn note(&self, line: &str) {
        let (more, is_written) = sys::lock(&self.tables).lines.take(unix_seconds());
        if more > 0 {
            log(&format!("and {more} more such lines left out"));
        }
        if is_written {
            log(line);
        }
    }
}

/// Lines of the present second.
#[derive(Default)]
struct LineCount {
    second: u64,
    lines: u32,
}

impl LineCount {
    /// Counts a line: how many of an earlier second were left out, and whether this one is written.
    fn take(&mut self, now: u64) -> (u32, bool) {
        let mut more = 0;
        if self.second != now {
            more = self.lines.saturating_sub(MAX_LINES);
            (self.second, self.lines) = (now, 0);
        }
        self.lines += 1;
        (more, self.lines <= MAX_LINES)
    }
}

/// One line an event. Nothing in it that a terminal would obey.
pub fn log(line: &str) {
    let now = model::Nanos::from_secs(unix_seconds());
    let time = report::words::utc(now);
    log::note(&format!("{time} {}", wire::control::printable(line, 1000)));
}

/// Sends an authenticated peer, or one that is about to go, a greeting and a good-bye without
/// reading a word of what it says. It may come again after this time.
fn dismiss(tls: &mut Tls, why: &str, again: Option<Duration>) {
    let hello = ToController::Hello {
        protocol: PROTOCOL,
        version: VERSION.to_owned(),
        again: again.map(Into::into),
    };
    let why = why.to_owned();
    let bye = ToController::Bye { why };
    let until = Instant::now() + ENROLMENT;
    for message in [hello, bye] {
        let frame = encode_frame(&message).expect("a sentence fits a frame");
        if tls.write_all(&frame, until).is_err() {
            return;
        }
    }
    discard(tls);
}

/// A session's place in the table.
struct SessionSlot {
    shared: Arc<ListenerShared>,
    number: u64,
}

impl SessionSlot {
    fn new(shared: &Arc<ListenerShared>, session: OpenSession) -> SessionSlot {
        let number = shared.next_session.fetch_add(1, Ordering::Relaxed);
        sys::lock(&shared.tables).sessions.insert(number, session);
        let shared = Arc::clone(shared);
        SessionSlot { shared, number }
    }

    fn set(&self, sender: ChannelSender<AgentRole>) {
        if let Some(session) = sys::lock(&self.shared.tables)
            .sessions
            .get_mut(&self.number)
        {
            session.sender = Some(sender);
        }
    }
}

impl Drop for SessionSlot {
    fn drop(&mut self) {
        sys::lock(&self.shared.tables).sessions.remove(&self.number);
        self.shared.changed.notify_all();
    }
}

#[cfg(test)]
mod tests;

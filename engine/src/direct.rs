//! The agent's side of measurements that a coordinator orders: slots, runs towards other agents, and what is kept of them.

use crate::controller::PeerLink;
use crate::host::{DEFAULT_PORT, Host, authority};
use crate::leg::how_ended;
use crate::light::{self, LightOrder};
use crate::listener::log;
use crate::mtu::{local, remote};
use crate::prelude::*;
use crate::progress::Tee;
use crate::record::{RunArchiver, blank};
use crate::slot_listener::SlotListener;
use crate::slots::{DirectSlot, NoSlot, SlotBook, SlotOrder};
use crate::transport::{ChannelSender, How};
use crate::trust::{DirectMeans, NodeId, sha256};
use archive::{Archive, NamedDocument};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use model::IpVersion;
use model::mtu::{MtuFound, MtuRecord};
use wire::control::direct::{
    Destination, DirectAnswer, DirectRequest, DirectedRun, LightPort, LightResult, MAX_DOCUMENT,
    MAX_KEPT, PlayEvent, SlotRole,
};
use wire::control::{AgentRole, LONGEST_OUTAGE, MAX_PIECE};

/// Between two samples of one end that are reported; the document has all.
const REPORT_EVERY: Duration = Duration::from_millis(250);

/// Longest name of a destination (RFC 1035, 2.3.4).
const MAX_NAME: usize = 255;

/// Requests by their numbers, in turn.
type RequestQueue = mpsc::Sender<(u64, DirectRequest)>;

/// What a session does for a coordinator, in a thread of its own, one request after the other.
pub struct Directing {
    peer: Peer,
    sender: ChannelSender<AgentRole>,
    worker: Option<(RequestQueue, JoinHandle<()>)>,
    playing: Arc<Mutex<Option<Arc<DirectSlot>>>>,
    /// The coordinator has left, and wants no more of what it ordered.
    good_bye: Arc<AtomicBool>,
}

impl Directing {
    /// Of the session of this peer.
    pub fn new(peer: Peer, sender: ChannelSender<AgentRole>) -> Directing {
        Directing {
            peer,
            sender,
            worker: None,
            playing: Arc::default(),
            good_bye: Arc::default(),
        }
    }

    /// Takes a request; it is answered in turn.
    pub fn take(&mut self, number: u64, request: DirectRequest) {
        if let DirectRequest::Release { slot } = &request {
            // A run in it waits for no turn.
            self.stop(|playing| playing.name == *slot);
        }
        let (queue, _) = self.worker.get_or_insert_with(|| {
            let (queue, requests) = mpsc::channel::<(u64, DirectRequest)>();
            let mut service = Service {
                peer: self.peer.clone(),
                sender: self.sender.clone(),
                playing: Arc::clone(&self.playing),
                logged: false,
                document: None,
                listener: None,
            };
            let good_bye = Arc::clone(&self.good_bye);
            let worker = std::thread::spawn(move || {
                for (number, request) in requests {
                    let answer = service.answer(number, request);
                    let answer = answer.map_err(|error| sentence(&error));
                    let message = ToController::Directed { number, answer };
                    // A session that is over needs no answer.
                    let _ = service.sender.send(message);
                }
                if let Some(listener) = &service.listener {
                    listener.linger(&good_bye);
                }
            });
            (queue, worker)
        });
        // A worker that panicked answers nothing: the session's deadline ends it.
        let _ = queue.send((number, request));
    }

    /// Waits for the end of a run that is played; stops it first if it is not wanted any more.
    pub fn end(self, stop: bool) {
        if stop {
            self.good_bye.store(true, Ordering::Relaxed);
            self.stop(|_| true);
        }
        if let Some((queue, worker)) = self.worker {
            drop(queue);
            let _ = worker.join();
        }
    }

    fn stop(&self, which: impl Fn(&DirectSlot) -> bool) {
        if let Some(slot) = sys::lock(&self.playing).as_ref().filter(|slot| which(slot)) {
            slot.over.store(true, Ordering::Relaxed);
        }
    }
}

struct Service {
    peer: Peer,
    sender: ChannelSender<AgentRole>,
    playing: Arc<Mutex<Option<Arc<DirectSlot>>>>,
    /// A refused run is logged once a session.
    logged: bool,
    /// The document that is being fetched.
    document: Option<(String, Vec<u8>)>,
    /// Of an agent that ssh started.
    listener: Option<SlotListener>,
}

/// The orders of all coordinators that ssh let in, in the archive. Nobody can have this key at a listener.
const OVER_SSH: NodeId = NodeId::new([0; 32]);

impl Service {
    fn answer(&mut self, number: u64, request: DirectRequest) -> Result<DirectAnswer> {
        if let (None, Ok(means)) = (&self.peer.slots, &self.peer.may_direct) {
            let (listener, peer) = SlotListener::open(&self.peer, means.archive.clone())?;
            (self.listener, self.peer) = (Some(listener), peer);
        }
        let (Some(by), Some(slots), None) = (self.peer.id, &self.peer.slots, &self.peer.slot)
        else {
            bail!("a session of this kind has no slots");
        };
        let slots = Arc::clone(slots);
        Ok(match request {
            DirectRequest::Key => {
                let own_key = self.peer.own_key.as_ref();
                let id = own_key.map_or(by, |key| key.id());
                let port = self.peer.port;
                DirectAnswer::Key { id, port }
            }
            DirectRequest::Hold {
                slot,
                after,
                span,
                ttl,
                peer,
                role,
                files,
            } => {
                let order = SlotOrder {
                    slot: &slot,
                    after,
                    span,
                    ttl,
                    peer,
                    role,
                    files,
                };
                match self.hold(by, &slots, &order) {
                    Ok((id, light)) => DirectAnswer::Held {
                        id,
                        port: self.peer.port,
                        light,
                    },
                    Err(NoSlot { why, free_in }) => DirectAnswer::HoldRefused { why, free_in },
                }
            }
            DirectRequest::Confirm { slot } => {
                slots.confirm(by, &slot)?;
                DirectAnswer::Confirmed
            }
            DirectRequest::Release { slot } => {
                slots.release(by, &slot);
                DirectAnswer::Released
            }
            DirectRequest::Play {
                slot,
                spec,
                to,
                outage,
                title,
            } => {
                let outage = outage.min(LONGEST_OUTAGE);
                let digest = self.in_slot((by, &slots), &slot, &to, |service, means, slot| {
                    service.play(number, means, slot, (*spec, outage), &to, title)
                })?;
                DirectAnswer::Played { run: slot, digest }
            }
            DirectRequest::Mtu {
                slot,
                to,
                ip_version,
            } => {
                let digest = self.in_slot((by, &slots), &slot, &to, |service, means, slot| {
                    service.mtu(means, slot, &to, ip_version)
                })?;
                DirectAnswer::Played { run: slot, digest }
            }
            DirectRequest::Light {
                slot,
                peers,
                packets,
                gap,
                sizes,
                ip_version,
            } => {
                self.means()?;
                let order = LightOrder {
                    peers,
                    packets,
                    gap,
                    sizes,
                    ip_version,
                };
                let (busy, peers) = self.light(by, &slots, &slot, &order)?;
                DirectAnswer::Lighted { busy, peers }
            }
            DirectRequest::Kept { after } => {
                let orders = match existing(&self.means()?.archive)? {
                    Some(archive) => archive.orders(self.orderer(by), after, MAX_KEPT)?,
                    None => Vec::new(),
                };
                let runs = orders.into_iter().map(|order| DirectedRun {
                    number: order.number,
                    run: order.run,
                    digest: order.digest,
                });
                DirectAnswer::Kept {
                    runs: runs.collect(),
                }
            }
            DirectRequest::Document { run, from } => {
                let archive = self.means()?.archive;
                let data = BASE64.encode(self.piece(&archive, by, &run, from)?);
                DirectAnswer::Document { data }
            }
        })
    }

    /// Measures towards the destination in the slot of this name, which is over then.
    fn in_slot<T>(
        &mut self,
        (by, slots): (NodeId, &SlotBook),
        name: &str,
        to: &Destination,
        measure: impl FnOnce(&Service, &DirectMeans, &DirectSlot) -> Result<T>,
    ) -> Result<T> {
        let means = self.means()?;
        let found = slots.source(by, name, to.id);
        if let Err(error) = &found
            && !std::mem::replace(&mut self.logged, true)
        {
            log(&format!("{}: no run: {error:#}", self.peer.name));
        }
        let slot = found?;
        *sys::lock(&self.playing) = Some(Arc::clone(&slot));
        let measured = measure(self, &means, &slot);
        *sys::lock(&self.playing) = None;
        slots.release(by, name);
        measured
    }

    /// Whose orders the archive has as those of this coordinator.
    fn orderer(&self, by: NodeId) -> NodeId {
        if self.listener.is_some() {
            OVER_SSH
        } else {
            by
        }
    }

    fn means(&self) -> Result<DirectMeans> {
        self.peer.may_direct.clone().map_err(|why| anyhow!(why))
    }

    fn hold(
        &self,
        by: NodeId,
        slots: &SlotBook,
        order: &SlotOrder<'_>,
    ) -> Result<(NodeId, Option<LightPort>), NoSlot> {
        let refused = |why: String| NoSlot { why, free_in: None };
        let own = self.peer.own_key.as_ref().map(|key| key.id());
        let own = own.ok_or_else(|| refused("this host has no key".to_owned()))?;
        if order.role == SlotRole::Source {
            self.means().map_err(|error| refused(sentence(&error)))?;
        }
        if order.peer == Some(own) {
            return Err(refused(
                "source and destination are this same host".to_owned(),
            ));
        }
        let light_use = match order.role {
            SlotRole::Light => Some(self.peer.light_use(Nanos(0)).map_err(refused)?),
            SlotRole::Source | SlotRole::Destination => None,
        };
        let light = slots.hold(by, &self.peer.name, order, light_use)?;
        Ok((own, light))
    }

    /// Sends light probes: whether the host was busy meanwhile, and what came of them.
    fn light(
        &self,
        by: NodeId,
        slots: &SlotBook,
        slot: &str,
        order: &LightOrder,
    ) -> Result<(bool, Vec<LightResult>)> {
        order.check()?;
        let time = Nanos(order.gap.0 * u64::from(order.packets));
        let light_use = self.peer.light_use(time).map_err(|why| anyhow!(why))?;
        let slot = slots.light(by, slot)?;
        let before = slots.is_busy();
        if order.peers.is_empty() {
            return Ok((before, Vec::new()));
        }
        *sys::lock(&self.playing) = Some(Arc::clone(&slot));
        let sent = light::send(order, &slot, &light_use, &slots.pace);
        *sys::lock(&self.playing) = None;
        Ok((before || slots.is_busy(), sent?))
    }

    /// Measures towards the destination and keeps the run; the SHA-256 of its document.
    fn play(
        &self,
        number: u64,
        means: &DirectMeans,
        slot: &DirectSlot,
        (spec, outage): (Spec, Nanos),
        to: &Destination,
        title: Option<String>,
    ) -> Result<String> {
        self.fits(&spec, slot)?;
        if Archive::open(&means.archive)?.named(&slot.name).is_ok() {
            bail!("a run {} is kept there already", slot.name);
        }
        let stop: &AtomicBool = &slot.over;
        let how = How {
            ip_version: spec.socket.ip_version,
            placement: spec.local.clone(),
            outage,
            ..how(means, slot, to)
        };
        let link = PeerLink::new(destination(to)?.connect(&how)?);
        let mut link = link.surviving(outage).ordered_by(self.peer.clone());
        let mut run = Run {
            id: slot.name.clone(),
            title,
            ..blank(&authority(&to.name, to.port, DEFAULT_PORT), spec)
        };
        let mut record = RunArchiver::new(Ok(means.archive.clone()), &run);
        let mut report = Reporter {
            sender: self.sender.clone(),
            number,
            reported: BTreeMap::new(),
        };
        let outcome = {
            use crate::peer::PeerSession;
            let mut watchers = Tee(vec![&mut report, &mut record]);
            link.play(&mut run, &mut watchers, stop)
        };
        let is_late = Instant::now() >= slot.ends;
        run.ended = in_a_slot(how_ended(&outcome, &run.legs), slot.why_over(), is_late);
        if run.legs.is_empty() {
            record.discard();
            outcome?;
            let why = slot.why_over().unwrap_or("it was stopped");
            bail!("{why} before anything was measured");
        }
        if let Some(warning) = record.finish(&run) {
            bail!("{}", warning.what);
        }
        self.note_order(&mut Archive::open(&means.archive)?, &run.id)
    }

    /// Notes who ordered what is kept by this name; the SHA-256 of its document.
    fn note_order(&self, archive: &mut Archive, id: &str) -> Result<String> {
        let digest = sha256(&document(archive, id)?);
        if let Some(by) = self.peer.id {
            archive.note_order(self.orderer(by), id, &digest)?;
        }
        Ok(digest)
    }

    /// Finds the path MTU to and from the destination and keeps it; the SHA-256 of its document.
    fn mtu(
        &self,
        means: &DirectMeans,
        slot: &DirectSlot,
        to: &Destination,
        ip_version: Option<IpVersion>,
    ) -> Result<String> {
        let mut archive = Archive::open(&means.archive)?;
        if archive.named(&slot.name).is_ok() {
            bail!("a run {} is kept there already", slot.name);
        }
        let admitted = remote::admitted(&self.peer, "MTU probes").map_err(|why| anyhow!(why))?;
        let how = How {
            ip_version,
            ..how(means, slot, to)
        };
        let mut link = PeerLink::new(destination(to)?.connect(&how)?);
        let host = authority(&to.name, to.port, DEFAULT_PORT);
        let found = local::probe(&host, &mut link, Some(&admitted), &slot.over)?;
        archive.store_mtu(&MtuRecord {
            id: slot.name.clone(),
            ended: unix_time(),
            found: MtuFound::Look(Box::new(found)),
        })?;
        self.note_order(&mut archive, &slot.name)
    }

    /// Refuses what a coordinator may not order, and what would not end within the slot.
    fn fits(&self, spec: &Spec, slot: &DirectSlot) -> Result<()> {
        if spec.has_files() {
            self.peer
                .may_files
                .as_ref()
                .map_err(|why| anyhow!("{why}"))?;
        }
        if spec.trace {
            bail!("segments are not recorded between two other hosts: leave out --trace");
        }
        let left = Nanos::from(slot.left());
        if let LegLimit::Time(time) = spec.limit {
            let time = Nanos(time.0.saturating_mul(u64::from(spec.directions.rounds())));
            if time > left {
                bail!("a run of {time}: its slot ends in {left}");
            }
        }
        Ok(())
    }

    /// A piece of the document of a run that this coordinator ordered.
    fn piece(&mut self, archive: &Path, by: NodeId, run: &str, from: u64) -> Result<Vec<u8>> {
        if self.document.as_ref().is_none_or(|(of, _)| of != run) {
            let archive = existing(archive)?;
            let ordered = match &archive {
                Some(archive) if archive::is_id(run) => {
                    archive.is_ordered(self.orderer(by), run)?
                }
                _ => false,
            };
            let Some(archive) = archive.filter(|_| ordered) else {
                bail!("no run {run} was ordered there by this host");
            };
            let document = document(&archive, run)?;
            if document.len() > MAX_DOCUMENT {
                bail!(
                    "the document of the run {run} has {} bytes, {MAX_DOCUMENT} are sent: 'linerate runs export {run}' there writes it",
                    document.len()
                );
            }
            self.document = Some((run.to_owned(), document));
        }
        let (_, document) = self.document.as_ref().expect("it was read just now");
        let from = usize::try_from(from)
            .unwrap_or(usize::MAX)
            .min(document.len());
        let piece = document[from..].iter().take(MAX_PIECE);
        Ok(piece.copied().collect())
    }
}

/// How a run in a slot ended: one that was interrupted with the slot failed, for this reason.
fn in_a_slot(ended: Ended, why_over: Option<&str>, is_late: bool) -> Ended {
    let late = is_late.then_some("its slot ended before it did");
    match (&ended, why_over.or(late)) {
        (Ended::Interrupted, Some(why)) => Ended::Failed {
            why: why.to_owned(),
        },
        _ => ended,
    }
}

/// The archive, if there is one.
fn existing(path: &Path) -> Result<Option<Archive>> {
    match Archive::open_existing(path) {
        Ok(archive) => Ok(Some(archive)),
        Err(archive::Error::Missing(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The document of a run, or of what was found of an MTU, in the form that is sent.
fn document(archive: &Archive, id: &str) -> Result<Vec<u8>> {
    Ok(match archive.named(id)? {
        NamedDocument::Mtu(id) => serde_json::to_vec(&archive.mtu(&id)?)?,
        _ => serde_json::to_vec(&archive.get(id)?)?,
    })
}

/// How the destination is reached: with its key alone, as long as the slot lasts.
fn how<'s>(means: &DirectMeans, slot: &'s DirectSlot, to: &Destination) -> How<'s> {
    How {
        directory: means.directory.clone(),
        only: Some(to.id),
        stop: Some(&slot.over),
        ..How::default()
    }
}

/// Whether a host can have this name or address.
pub fn is_host_name(name: &str) -> bool {
    let is_usual = |c: char| c.is_ascii_alphanumeric() || ".-_:%".contains(c);
    (1..=MAX_NAME).contains(&name.len()) && name.chars().all(is_usual)
}

/// The destination as a host; nothing but a name and a port.
fn destination(to: &Destination) -> Result<Host> {
    if !is_host_name(&to.name) || to.port == 0 {
        bail!("the destination has no name that a host can have");
    }
    Ok(Host::Agent {
        name: to.name.clone(),
        port: to.port,
    })
}

/// Reports to the coordinator what happens.
struct Reporter {
    sender: ChannelSender<AgentRole>,
    number: u64,
    reported: BTreeMap<(usize, Side), Instant>,
}

impl Watcher for Reporter {
    fn event(&mut self, event: &Event<'_>) {
        let position = |index: &usize| u32::try_from(*index).unwrap_or(u32::MAX);
        let event = match event {
            Event::LegStarted { index, direction } => PlayEvent::LegStarted {
                leg: position(index),
                direction: *direction,
            },
            Event::Sample {
                index,
                side,
                sample,
            } => {
                let now = Instant::now();
                let last = self.reported.get(&(*index, *side));
                if last.is_some_and(|last| now < *last + REPORT_EVERY) {
                    return;
                }
                self.reported.insert((*index, *side), now);
                PlayEvent::Sample {
                    leg: position(index),
                    side: *side,
                    sample: Box::new((*sample).clone()),
                }
            }
            Event::Warning { warning } => PlayEvent::Warning {
                warning: (*warning).clone(),
            },
            Event::Waiting { what } => PlayEvent::Waiting {
                what: (*what).to_owned(),
            },
            Event::Hosts { .. } | Event::Traced { .. } | Event::LegEnded { .. } => return,
        };
        let number = self.number;
        // A coordinator that is gone fetches the run later.
        let _ = self.sender.send(ToController::Progress { number, event });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_is_a_name_and_a_port_and_nothing_else() {
        let longest = "a".repeat(MAX_NAME);
        for (name, port, is_one) in [
            ("db1.example", 5210, true),
            ("fe80::1%eth0", 1, true),
            (&longest, 5210, true),
            (&format!("{longest}a"), 5210, false),
            ("", 5210, false),
            ("db1.example", 0, false),
            ("ssh:db1", 5210, true),
            ("-oProxyCommand=x y", 5210, false),
            ("user@db1", 5210, false),
            ("db1/", 5210, false),
        ] {
            let to = Destination {
                name: name.to_owned(),
                port,
                id: NodeId::new([7; 32]),
            };
            let found = destination(&to).ok();
            let same = |host: &Host| matches!(host, Host::Agent { name: of, port: at } if of == name && *at == port);
            assert_eq!(found.as_ref().is_some_and(same), is_one, "{name} {port}");
        }
    }

    #[test]
    fn a_destination_is_reached_with_its_key_alone_until_the_slot_is_over() {
        use crate::host_calendar::HostCalendar;
        let directory = crate::testing::TempDir::new();
        let calendar = HostCalendar::in_directory(directory.path());
        let slots = SlotBook::new(calendar, None, None);
        let (by, id, name) = (NodeId::new([1; 32]), NodeId::new([7; 32]), "0".repeat(32));
        let order = SlotOrder {
            slot: &name,
            after: Nanos(0),
            span: Nanos::from_secs(60),
            ttl: Nanos::from_secs(30),
            peer: Some(id),
            role: SlotRole::Source,
            files: false,
        };
        slots.hold(by, "coordinator", &order, None).ok().unwrap();
        slots.confirm(by, &name).unwrap();
        let slot = slots.source(by, &name, id).unwrap();
        let means = DirectMeans {
            archive: "/archive".into(),
            directory: "/keys".into(),
        };
        let to = Destination {
            name: "db2".to_owned(),
            port: 5210,
            id,
        };
        let how = how(&means, &slot, &to);
        assert_eq!(
            (how.directory.as_path(), how.only),
            (Path::new("/keys"), Some(id))
        );
        let stopped = || how.stop.is_some_and(|stop| stop.load(Ordering::Relaxed));
        assert!(!stopped());
        slots.release(by, &name);
        assert!(stopped());
    }

    #[test]
    fn an_archive_that_is_not_there_is_none_and_one_that_is_damaged_an_error() {
        let directory = crate::testing::TempDir::new();
        let path = directory.path().join("runs.db");
        assert!(existing(&path).unwrap().is_none());
        drop(Archive::open(&path).unwrap());
        assert!(existing(&path).unwrap().is_some());
        std::fs::write(&path, "no archive").unwrap();
        assert!(existing(&path).is_err());
    }

    use crate::testing::{TempDir, channels};
    use crate::transport::{ChannelEvent, ControllerChannel};
    use model::{Direction, Directions, Sample, Warning};

    const BY: NodeId = NodeId::new([1; 32]);

    /// What a session does for a coordinator, whose end of the channel is given too.
    fn service(directory: &TempDir) -> (Service, ControllerChannel, AgentEnd) {
        let (controller, agent) = channels("db1");
        let calendar = crate::host_calendar::HostCalendar::in_directory(directory.path());
        let here = [127, 0, 0, 1].into();
        let key = crate::trust::Identity::open(&directory.path().join("key")).unwrap();
        let peer = Peer {
            id: Some(BY),
            own_key: Some(Arc::new(key)),
            may_direct: Ok(DirectMeans {
                archive: directory.path().join("runs.db"),
                directory: directory.path().join("key"),
            }),
            slots: Some(Arc::new(SlotBook::new(calendar, Some(here), None))),
            port: 77,
            ..Peer::at_a_pipe(here, None)
        };
        let service = Service {
            peer,
            sender: agent.sender(),
            playing: Arc::default(),
            logged: false,
            document: None,
            listener: None,
        };
        (service, controller, agent)
    }

    type AgentEnd = crate::transport::AgentChannel;

    /// Has the agent owe an answer to a request of this number.
    fn request(controller: &ControllerChannel, agent: &AgentEnd, number: u64) {
        let request = wire::control::ToAgent::Direct {
            number,
            request: DirectRequest::Key,
        };
        controller.sender().send(request.clone()).unwrap();
        let came = agent.recv(Duration::from_secs(30));
        assert_eq!(came, Some(ChannelEvent::Message(request)));
    }

    fn hold(slot: &str, role: SlotRole, peer: Option<NodeId>) -> DirectRequest {
        DirectRequest::Hold {
            slot: slot.to_owned(),
            after: Nanos(0),
            span: Nanos::from_secs(60),
            ttl: Nanos::from_secs(30),
            peer,
            role,
            files: false,
        }
    }

    fn refused(answer: Result<DirectAnswer>) -> String {
        match answer.unwrap() {
            DirectAnswer::HoldRefused { why, free_in: None } => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_host_is_held_as_what_it_may_be() {
        let directory = TempDir::new();
        let (mut service, _controller, _agent) = service(&directory);
        let own = service.peer.own_key.as_ref().unwrap().id();
        let slot = "a".repeat(32);
        let key = DirectAnswer::Key { id: own, port: 77 };
        assert_eq!(service.answer(1, DirectRequest::Key).unwrap(), key);
        let why = refused(service.answer(2, hold(&slot, SlotRole::Source, Some(own))));
        assert_eq!(why, "source and destination are this same host");
        let other = Some(NodeId::new([9; 32]));
        match service
            .answer(3, hold(&slot, SlotRole::Source, other))
            .unwrap()
        {
            DirectAnswer::Held { id, port, light } => {
                assert_eq!((id, port, light), (own, 77, None));
            }
            other => panic!("{other:?}"),
        }
        let confirm = DirectRequest::Confirm { slot: slot.clone() };
        assert_eq!(
            service.answer(4, confirm.clone()).unwrap(),
            DirectAnswer::Confirmed
        );
        let release = DirectRequest::Release { slot: slot.clone() };
        assert_eq!(service.answer(5, release).unwrap(), DirectAnswer::Released);
        assert!(service.answer(6, confirm).is_err());
        match service
            .answer(7, hold(&slot, SlotRole::Light, None))
            .unwrap()
        {
            DirectAnswer::Held { light, .. } => assert!(light.unwrap().port > 0),
            other => panic!("{other:?}"),
        }
        // Who may not have it measure may still measure towards it.
        service.peer.may_direct = Err("no right".to_owned());
        let second = "b".repeat(32);
        let why = refused(service.answer(8, hold(&second, SlotRole::Source, other)));
        assert_eq!(why, "no right");
        let held = service.answer(9, hold(&second, SlotRole::Destination, other));
        assert!(matches!(held.unwrap(), DirectAnswer::Held { .. }));
        let why = service.answer(10, DirectRequest::Kept { after: 0 });
        assert_eq!(why.unwrap_err().to_string(), "no right");
        service.peer.own_key = None;
        let third = "c".repeat(32);
        let why = refused(service.answer(11, hold(&third, SlotRole::Destination, other)));
        assert_eq!(why, "this host has no key");
        service.peer.id = None;
        let why = service
            .answer(12, DirectRequest::Key)
            .unwrap_err()
            .to_string();
        assert_eq!(why, "a session of this kind has no slots");
    }

    #[test]
    fn a_host_that_only_answers_light_probes_says_whether_it_is_busy() {
        let directory = TempDir::new();
        let (mut service, _controller, _agent) = service(&directory);
        let slot = "a".repeat(32);
        let light = |packets: u32| DirectRequest::Light {
            slot: "a".repeat(32),
            peers: Vec::new(),
            packets,
            gap: Nanos::from_millis(20),
            sizes: Vec::new(),
            ip_version: None,
        };
        assert!(service.answer(1, light(5)).is_err(), "nothing is held");
        service
            .answer(2, hold(&slot, SlotRole::Light, None))
            .unwrap();
        let confirm = DirectRequest::Confirm { slot };
        service.answer(3, confirm).unwrap();
        let lighted = |busy| DirectAnswer::Lighted {
            busy,
            peers: Vec::new(),
        };
        assert_eq!(service.answer(4, light(5)).unwrap(), lighted(false));
        assert!(service.answer(5, light(0)).is_err(), "it is no order");
        let second = "b".repeat(32);
        let other = Some(NodeId::new([9; 32]));
        service
            .answer(6, hold(&second, SlotRole::Destination, other))
            .unwrap();
        assert_eq!(service.answer(7, light(5)).unwrap(), lighted(true));
    }

    #[test]
    fn what_was_ordered_is_listed_and_sent_in_pieces_to_who_ordered_it() {
        let directory = TempDir::new();
        let (mut service, _controller, _agent) = service(&directory);
        let kept = |service: &mut Service, after| match service
            .answer(1, DirectRequest::Kept { after })
            .unwrap()
        {
            DirectAnswer::Kept { runs } => runs,
            other => panic!("{other:?}"),
        };
        let piece = |service: &mut Service, run: &str, from| {
            let run = run.to_owned();
            let answer = service.answer(2, DirectRequest::Document { run, from });
            answer.map(|answer| match answer {
                DirectAnswer::Document { data } => BASE64.decode(data).unwrap(),
                other => panic!("{other:?}"),
            })
        };
        assert_eq!(kept(&mut service, 0), [], "there is no archive yet");
        let path = directory.path().join("runs.db");
        let mut archive = Archive::open(&path).unwrap();
        let run = |id: &str| Run {
            id: id.repeat(32),
            title: Some("x".repeat(MAX_PIECE)),
            ..Run::default()
        };
        for id in ["a", "b"] {
            archive.import(&run(id)).unwrap();
        }
        let digest = service.note_order(&mut archive, &"a".repeat(32)).unwrap();
        let all = kept(&mut service, 0);
        assert_eq!((all.len(), all[0].number, &all[0].digest), (1, 1, &digest));
        assert_eq!(all[0].run, "a".repeat(32));
        assert_eq!(kept(&mut service, 1), []);
        let whole = document(&archive, &"a".repeat(32)).unwrap();
        assert_eq!(sha256(&whole), digest);
        let mut sent = Vec::new();
        loop {
            let more = piece(&mut service, &"a".repeat(32), sent.len() as u64).unwrap();
            if more.is_empty() {
                break;
            }
            assert!(more.len() <= MAX_PIECE);
            sent.extend(more);
        }
        assert!(sent == whole && whole.len() > MAX_PIECE);
        assert!(
            piece(&mut service, &"a".repeat(32), u64::MAX)
                .unwrap()
                .is_empty()
        );
        // Neither what nobody ordered, nor what another coordinator did.
        for run in ["b".repeat(32), "c".repeat(32), "a/../b".to_owned()] {
            let why = piece(&mut service, &run, 0).unwrap_err().to_string();
            assert_eq!(why, format!("no run {run} was ordered there by this host"));
        }
        service.peer.id = Some(NodeId::new([2; 32]));
        service.document = None;
        assert!(piece(&mut service, &"a".repeat(32), 0).is_err());
        assert_eq!(kept(&mut service, 0), []);
    }

    /// A slot that is confirmed, whose source this service is.
    fn source_slot(service: &mut Service, name: &str, id: NodeId) -> Arc<DirectSlot> {
        service
            .answer(1, hold(name, SlotRole::Source, Some(id)))
            .unwrap();
        let slots = service.peer.slots.as_ref().unwrap();
        slots.confirm(BY, name).unwrap();
        slots.source(BY, name, id).unwrap()
    }

    #[test]
    fn an_order_fits_its_slot_and_what_its_coordinator_may() {
        let directory = TempDir::new();
        let (mut service, _controller, _agent) = service(&directory);
        let (name, id) = ("0".repeat(32), NodeId::new([7; 32]));
        let slot = source_slot(&mut service, &name, id);
        let spec = |seconds, directions| Spec {
            limit: LegLimit::Time(Nanos::from_secs(seconds)),
            directions,
            ..Spec::default()
        };
        let fits = |service: &Service, spec: &Spec| {
            let fits = service.fits(spec, &slot);
            fits.err().map_or(String::new(), |why| why.to_string())
        };
        for (seconds, directions, is_so) in [
            (55, Directions::Up, true),
            (55, Directions::Bidirectional, true),
            (61, Directions::Up, false),
            (25, Directions::UpThenDown, true),
            (31, Directions::UpThenDown, false),
        ] {
            let why = fits(&service, &spec(seconds, directions));
            assert_eq!(why.is_empty(), is_so, "{seconds} s: {why}");
            assert!(is_so || why.contains("its slot ends in"), "{why}");
        }
        let amount = Spec {
            limit: LegLimit::Whole,
            ..Spec::default()
        };
        assert_eq!(fits(&service, &amount), "");
        let traced = Spec {
            trace: true,
            ..amount.clone()
        };
        assert!(fits(&service, &traced).contains("leave out --trace"));
        let copy = Spec {
            workload: model::Workload::Copy(model::FileCopy {
                from: Some("a".to_owned()),
                ..model::FileCopy::default()
            }),
            ..amount
        };
        assert_eq!(fits(&service, &copy), "");
        service.peer.may_files = Err("no files".to_owned());
        assert_eq!(fits(&service, &copy), "no files");
    }

    #[test]
    fn a_run_is_refused_where_there_is_no_slot_for_it_and_the_slot_is_over_after_it() {
        let directory = TempDir::new();
        let (mut service, _controller, _agent) = service(&directory);
        let (name, id) = ("0".repeat(32), NodeId::new([7; 32]));
        let play = |spec: Spec| DirectRequest::Play {
            slot: "0".repeat(32),
            spec: Box::new(spec),
            to: Destination {
                name: "127.0.0.1".to_owned(),
                port: 1,
                id,
            },
            outage: Nanos(0),
            title: None,
        };
        let why = |answer: Result<DirectAnswer>| answer.unwrap_err().to_string();
        let none = why(service.answer(1, play(Spec::default())));
        assert!(none.contains("is not held there"), "{none}");
        assert!(service.logged, "once a session");
        let held = |service: &mut Service| {
            service
                .answer(2, hold(&name, SlotRole::Source, Some(id)))
                .unwrap();
            let slot = name.clone();
            service.answer(3, DirectRequest::Confirm { slot }).unwrap();
        };
        held(&mut service);
        let traced = Spec {
            trace: true,
            ..Spec::default()
        };
        assert!(why(service.answer(4, play(traced))).contains("leave out --trace"));
        assert!(sys::lock(&service.playing).is_none());
        assert!(
            !service.peer.slots.as_ref().unwrap().has_any(),
            "it is over"
        );
        // Nobody listens there.
        held(&mut service);
        let nobody = why(service.answer(5, play(Spec::default())));
        assert!(nobody.contains("127.0.0.1:1"), "{nobody}");
        let archive = Archive::open(&directory.path().join("runs.db")).unwrap();
        assert!(archive.named(&name).is_err(), "nothing is kept of it");
    }

    #[test]
    fn samples_of_an_end_are_reported_each_quarter_of_a_second_and_all_else_at_once() {
        let (controller, agent) = channels("db1");
        request(&controller, &agent, 7);
        let mut reporter = Reporter {
            sender: agent.sender(),
            number: 7,
            reported: BTreeMap::new(),
        };
        let next = || match controller.recv(Duration::from_secs(30)) {
            Some(ChannelEvent::Message(ToController::Progress { number: 7, event })) => event,
            other => panic!("{other:?}"),
        };
        let sample = Sample::default();
        let warning = Warning {
            what: "slow".to_owned(),
            meaning: String::new(),
            remedy: String::new(),
        };
        let of = |index, side| Event::Sample {
            index,
            side,
            sample: &sample,
        };
        reporter.event(&of(1, Side::Local));
        reporter.event(&of(1, Side::Local));
        reporter.event(&of(1, Side::Remote));
        reporter.event(&of(2, Side::Local));
        let reported = |leg, side| PlayEvent::Sample {
            leg,
            side,
            sample: Box::default(),
        };
        assert_eq!(next(), reported(1, Side::Local));
        assert_eq!(next(), reported(1, Side::Remote), "the second was too soon");
        assert_eq!(next(), reported(2, Side::Local));
        let before = Instant::now().checked_sub(REPORT_EVERY).unwrap();
        reporter.reported.insert((1, Side::Local), before);
        reporter.event(&of(1, Side::Local));
        assert_eq!(next(), reported(1, Side::Local));
        let direction = Direction::Down;
        reporter.event(&Event::LegStarted {
            index: 3,
            direction,
        });
        assert_eq!(next(), PlayEvent::LegStarted { leg: 3, direction });
        reporter.event(&Event::Warning { warning: &warning });
        assert_eq!(next(), PlayEvent::Warning { warning });
        reporter.event(&Event::Waiting { what: "a disk" });
        let what = "a disk".to_owned();
        assert_eq!(next(), PlayEvent::Waiting { what });
    }

    #[test]
    fn a_release_stops_the_run_of_its_slot_at_once_and_an_end_every_one() {
        let directory = TempDir::new();
        let (mut service, controller, agent) = service(&directory);
        let (name, id) = ("0".repeat(32), NodeId::new([7; 32]));
        let slot = source_slot(&mut service, &name, id);
        let mut directing = Directing::new(service.peer.clone(), agent.sender());
        *sys::lock(&directing.playing) = Some(Arc::clone(&slot));
        let release = |slot: &str| DirectRequest::Release {
            slot: slot.to_owned(),
        };
        request(&controller, &agent, 2);
        request(&controller, &agent, 3);
        directing.take(2, release(&"f".repeat(32)));
        assert!(!slot.over.load(Ordering::Relaxed), "it is another");
        directing.take(3, release(&name));
        assert!(slot.over.load(Ordering::Relaxed));
        for number in [2, 3] {
            let answer = Ok(DirectAnswer::Released);
            let expected = ToController::Directed { number, answer };
            let next = controller.recv(Duration::from_secs(30));
            assert_eq!(next, Some(ChannelEvent::Message(expected)));
        }
        for stop in [false, true] {
            slot.over.store(false, Ordering::Relaxed);
            let directing = Directing::new(service.peer.clone(), agent.sender());
            *sys::lock(&directing.playing) = Some(Arc::clone(&slot));
            let good_bye = Arc::clone(&directing.good_bye);
            directing.end(stop);
            assert_eq!(slot.over.load(Ordering::Relaxed), stop);
            assert_eq!(good_bye.load(Ordering::Relaxed), stop);
        }
    }

    #[test]
    fn what_was_interrupted_with_its_slot_failed() {
        let why = |why: &str| Ended::Failed {
            why: why.to_owned(),
        };
        let late = "its slot ended before it did";
        let interrupted = |over, is_late| in_a_slot(Ended::Interrupted, over, is_late);
        assert_eq!(interrupted(None, false), Ended::Interrupted);
        assert_eq!(interrupted(None, true), why(late));
        assert_eq!(interrupted(Some("released"), true), why("released"));
        for ended in [Ended::Complete, why("it broke")] {
            assert_eq!(in_a_slot(ended.clone(), Some("released"), true), ended);
        }
    }
}

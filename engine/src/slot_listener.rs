//! Slots of an agent that ssh started: it listens for them alone, with a key that is made for it and deleted after it.

use crate::helper::Helpers;
use crate::host_calendar::HostCalendar;
use crate::listener::{Listener, ListenerConfig};
use crate::prelude::*;
use crate::session;
use crate::slots::SlotBook;
use crate::transport::admission::Startups;
use crate::trust::{DirectMeans, Identity, KeyLimits, LedgerLimits, Right, TrustEntry, TrustStore};
use measure::storage::Reach;
use sys::file::TemporaryDirectory;

/// How soon the end of the last slot is noticed.
const LOOK: Duration = Duration::from_millis(100);

/// Sessions at once: a slot has one.
const SESSIONS: usize = 2;

/// Lets in nobody but the other host of a slot. Dropping it ends its slots.
pub struct SlotListener {
    slots: Arc<SlotBook>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    _key: TemporaryDirectory,
}

impl SlotListener {
    /// Of the agent of this peer, whose user's archive keeps what it measures; and that peer with its slots.
    ///
    /// # Errors
    /// If there is no place for a key, or no port.
    pub fn open(peer: &Peer, archive: PathBuf) -> Result<(SlotListener, Peer)> {
        let key = format!("linerate-slot-{}", archive::new_id());
        let key = TemporaryDirectory::create(&key).context("no place for a key")?;
        let identity = Identity::open(key.path())?;
        // Nobody else has this key: it stands for the coordinator, whom ssh let in.
        let coordinator = TrustEntry {
            id: identity.id(),
            name: "ssh".to_owned(),
            address: None,
            rights: [Right::Measure, Right::Files, Right::Direct].into(),
            limits: KeyLimits::default(),
        };
        TrustStore::new(key.path()).update(|trust| trust.put(coordinator))?;
        let open = |port| {
            let config = ListenerConfig {
                directory: key.path().to_owned(),
                bind: None,
                port,
                data_ports: peer.data_ports.clone(),
                limits: LedgerLimits::at_a_pipe(),
                sessions: SESSIONS,
                key_sessions: SESSIONS,
                startups: Startups::default(),
                allow_tune: false,
                allow_files: Some(Reach::Anywhere),
                allow_direct: None,
                calendar: HostCalendar::of_this_host(),
            };
            let session = |channel, peer| {
                let goes_on = AtomicBool::new(false);
                session::serve(channel, peer, &Helpers::default(), None, &goes_on)
            };
            Listener::open(config, Box::new(session))
        };
        let listener = match &peer.data_ports {
            None => open(0)?,
            Some(ports) => {
                let opened = ports.clone().find_map(|port| open(port).ok());
                opened.ok_or_else(|| anyhow!("no port of --data-ports is free for a slot"))?
            }
        };
        let slots = listener.slots();
        let port = listener.addresses().first().map_or(0, |at| at.port());
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            // One that cannot listen any more lets nobody in; the source reports that.
            let _ = listener.run(&stopped);
        });
        let peer = Peer {
            id: Some(identity.id()),
            own_key: Some(Arc::new(identity)),
            may_direct: Ok(DirectMeans {
                archive,
                directory: key.path().to_owned(),
            }),
            slots: Some(Arc::clone(&slots)),
            port,
            ..peer.clone()
        };
        let listener = SlotListener {
            slots,
            stop,
            thread: Some(thread),
            _key: key,
        };
        Ok((listener, peer))
    }

    /// Waits until no slot is left: a run goes on without its coordinator, unless that said good-bye.
    pub fn linger(&self, good_bye: &AtomicBool) {
        while !good_bye.load(Ordering::Relaxed) && self.slots.has_any() {
            std::thread::sleep(LOOK);
        }
    }
}

impl Drop for SlotListener {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // One that panicked has closed its sockets.
            let _ = thread.join();
        }
    }
}

//! The settings of both hosts of a path in one hand: taken, applied, read back, undone, or kept.

use crate::controller::PeerLink;
use crate::peer::PeerSession;
use crate::prelude::*;
use crate::tuning;
use model::{Reading, Setting};
use tune::{TuningSession, Undone};
use wire::control::TuneRequest;

/// The settings applied on both hosts. Dropping it undoes the local host's; the remote host
/// undoes its own when the session ends.
pub struct HostSettings {
    direction: Direction,
    /// The settings of this host; of both, where they are one machine.
    here: Option<TuningSession>,
    /// The agent holds those of its host.
    there: bool,
}

impl HostSettings {
    /// Of a path whose data goes this way; nothing is held.
    pub fn open(direction: Direction) -> HostSettings {
        HostSettings {
            direction,
            here: None,
            there: false,
        }
    }

    /// Takes hold of the hosts that these settings change. `host` is the remote one's name.
    ///
    /// # Errors
    /// If one of them is held by another, or does not let itself be changed.
    pub fn take<'a>(
        &mut self,
        remote: &mut dyn PeerSession,
        settings: impl IntoIterator<Item = &'a Setting>,
        host: &str,
        title: &str,
        deadline: Duration,
    ) -> Result<()> {
        let settings = settings.into_iter().filter(|s| !s.knob.is_socket());
        let machine: Vec<&Side> = settings.flat_map(|s| s.on.sides(self.direction)).collect();
        let mut here = machine.contains(&&Side::Local);
        if machine.contains(&&Side::Remote) {
            let kind = remote.kind();
            let Some(link) = remote.agent() else {
                bail!(Refusal::usage(format!(
                    "{host} is {kind}, whose settings cannot be changed from here: run linerate there, or change this host alone (KNOB=VALUE@local)"
                )));
            };
            let request = TuneRequest::Begin {
                title: title.to_owned(),
                deadline: deadline.into(),
            };
            link.tune(request)?;
            self.there = !link.shares_machine();
            here |= link.shares_machine();
        }
        if here {
            self.here = Some(tuning::begin(title, deadline, Side::Local)?);
        }
        Ok(())
    }

    /// The local host's, to show that it is still wanted while something else has the remote one.
    pub fn here(&mut self) -> Option<&mut TuningSession> {
        self.here.as_mut()
    }

    /// Applies settings on both hosts; options of linerate's own connections are passed over. `peer` is
    /// the remote host's address.
    ///
    /// # Errors
    /// If one cannot be applied; then [`HostSettings::undo`] what was.
    pub fn apply(
        &mut self,
        remote: &mut dyn PeerSession,
        settings: &[Setting],
        peer: Option<IpAddr>,
    ) -> Result<()> {
        let of = |side: Side| -> Vec<Setting> {
            let machine = settings.iter().filter(|s| !s.knob.is_socket());
            let here = machine.filter(|s| s.on.sides(self.direction).contains(&side));
            here.cloned().collect()
        };
        let (mut here, there) = (of(Side::Local), of(Side::Remote));
        if let Some(link) = self.agent(remote) {
            link.tune(TuneRequest::Renew)?;
            if !there.is_empty() {
                let settings = there;
                link.tune(TuneRequest::Apply { settings })?;
            }
        } else {
            // The two ends are on one host.
            let new = there.into_iter().filter(|s| !here.contains(s));
            here.extend(new.collect::<Vec<_>>());
        }
        if let Some(hold) = &mut self.here {
            hold.renew();
            if !here.is_empty() {
                hold.apply(
                    &here,
                    peer.context("the remote host's address is not known")?,
                )?;
            }
        }
        Ok(())
    }

    /// Reads back what is applied.
    pub fn verify(&mut self, remote: &mut dyn PeerSession) -> Result<Vec<Reading>> {
        let mut readings = match &self.here {
            Some(hold) => hold.verify()?,
            None => Vec::new(),
        };
        if let Some(link) = self.agent(remote) {
            readings.extend(link.tune(TuneRequest::Verify)?);
        }
        Ok(readings)
    }

    /// Undoes what is applied. A remote host that was lost undoes it itself.
    pub fn undo(&mut self, remote: &mut dyn PeerSession) -> Result<Vec<Undone>> {
        let here = self.here.as_mut();
        let local = here.map_or(Ok(Vec::new()), TuningSession::undo);
        if let Some(link) = self.agent(remote) {
            link.tune(TuneRequest::Undo)?;
        }
        Ok(local?)
    }

    /// Lets what is applied stay, and lets go of both hosts.
    ///
    /// # Errors
    /// If a host has undone it meanwhile, or cannot keep it: what the other one kept stays.
    pub fn keep(&mut self, remote: &mut dyn PeerSession) -> Result<Vec<Reading>> {
        let mut kept = Vec::new();
        if let Some(link) = self.agent(remote) {
            kept = link.tune(TuneRequest::Keep)?;
            self.there = false;
        }
        if let Some(hold) = self.here.take() {
            kept.extend(hold.keep()?);
        }
        Ok(kept)
    }

    /// Undoes what is still applied, and lets go of both hosts.
    pub fn end(&mut self, remote: &mut dyn PeerSession) -> Result<()> {
        let local = self.here.take().map_or(Ok(Vec::new()), TuningSession::end);
        if let Some(link) = self.agent(remote) {
            link.tune(TuneRequest::End)?;
        }
        self.there = false;
        local?;
        Ok(())
    }

    /// The agent, if it holds settings of its own and is there.
    fn agent<'f>(&self, remote: &'f mut dyn PeerSession) -> Option<&'f mut PeerLink> {
        remote.agent().filter(|link| self.there && !link.is_lost())
    }
}

/// Clears both kernels' cached metrics (RTT, cwnd, ssthresh) of the path to each other. Returns the
/// reason of each host that could not.
pub fn forget(remote: &mut dyn PeerSession, peer: IpAddr) -> Vec<(&'static str, String)> {
    let local = tune::flush_metrics(peer).map_err(|error| ("this host", error.to_string()));
    let kind = remote.kind();
    let there = match remote.agent() {
        Some(link) => link
            .tune(TuneRequest::FlushMetrics)
            .map(drop)
            .map_err(|error| ("the remote host", sentence(&error))),
        None => Err(("the remote host", format!("it is {kind}"))),
    };
    [local, there].into_iter().filter_map(Result::err).collect()
}

/// Has the remote host write what it keeps under this title to its boot configuration.
pub fn persist(link: &mut PeerLink, title: &str) -> Result<Vec<Reading>> {
    let title = title.to_owned();
    link.tune(TuneRequest::Persist { title })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::{Exit, exit_of};
    use crate::testing::linked;
    use wire::control::{ToAgent, TuneOutcome};

    /// A server without an agent.
    struct Plain;

    impl PeerSession for Plain {
        fn play(&mut self, _: &mut Run, _: &mut dyn Watcher, _: &AtomicBool) -> Result<()> {
            bail!("nobody is there")
        }

        fn kind(&self) -> &'static str {
            "an iperf3 server"
        }
    }

    fn settings(all: &[&str]) -> Vec<Setting> {
        all.iter().map(|text| text.parse().unwrap()).collect()
    }

    const BACKLOG: &str = "sysctl:net.core.netdev_max_backlog=2000";
    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn a_server_without_an_agent_has_no_settings_that_could_be_held() {
        let take = |all: &[&str]| {
            let mut of = HostSettings::open(Direction::Up);
            let all = settings(all);
            of.take(&mut Plain, &all, "db2", "a test", MINUTE)
                .map(|()| of)
        };
        let error = take(&[&format!("{BACKLOG}@remote")]).err().unwrap();
        assert_eq!(exit_of(&error), Exit::Usage);
        assert!(
            error
                .to_string()
                .starts_with("db2 is an iperf3 server, whose settings"),
            "{error}"
        );
        // Options of its own connections and nothing at all hold nothing.
        for none in [&["congestion=reno"][..], &[]] {
            let mut of = take(none).unwrap();
            assert!(of.here().is_none() && !of.there);
            assert_eq!(of.verify(&mut Plain).unwrap(), []);
            assert!(of.undo(&mut Plain).unwrap().is_empty());
            assert!(of.keep(&mut Plain).unwrap().is_empty());
            of.apply(&mut Plain, &settings(&["congestion=reno"]), None)
                .unwrap();
            of.end(&mut Plain).unwrap();
        }
    }

    /// An agent that does what is requested, and notes what that was.
    fn agent(all: &Arc<Mutex<Vec<String>>>) -> PeerLink {
        let all = Arc::clone(all);
        linked("db2", move |sender, message| {
            let ToAgent::Tune {
                number, request, ..
            } = message
            else {
                return;
            };
            let json = serde_json::to_value(&request).unwrap();
            sys::lock(&all).push(json.to_string());
            let readings = match request {
                TuneRequest::Verify | TuneRequest::Keep => vec![Reading {
                    setting: BACKLOG.to_owned(),
                    side: Side::Local,
                    asked: "2000".to_owned(),
                    found: "2000".to_owned(),
                    in_force: true,
                }],
                _ => Vec::new(),
            };
            let outcome = TuneOutcome {
                done: Ok(readings),
                shared: false,
            };
            let _ = sender.send(ToController::Tuned { number, outcome });
        })
    }

    #[test]
    fn the_settings_of_the_remote_host_are_its_agents() {
        let all = Arc::new(Mutex::new(Vec::new()));
        let mut link = agent(&all);
        let requested = || std::mem::take(&mut *sys::lock(&all));
        let mut of = HostSettings::open(Direction::Up);
        let remote = settings(&[&format!("{BACKLOG}@remote"), "congestion=reno"]);
        of.take(&mut link, &remote, "db2", "a test", MINUTE)
            .unwrap();
        assert!(of.there && of.here().is_none());
        let begun = requested();
        assert!(begun.len() == 1 && begun[0].contains("a test"), "{begun:?}");
        of.apply(&mut link, &remote, None).unwrap();
        let applied = requested();
        assert_eq!(applied.len(), 2, "renewed and applied: {applied:?}");
        assert!(applied[1].contains("netdev_max_backlog") && !applied[1].contains("reno"));
        of.apply(&mut link, &settings(&["congestion=reno"]), None)
            .unwrap();
        assert_eq!(requested().len(), 1, "renewed alone");
        let readings = of.verify(&mut link).unwrap();
        assert_eq!((readings.len(), readings[0].side), (1, Side::Remote));
        of.undo(&mut link).unwrap();
        assert_eq!(of.keep(&mut link).unwrap().len(), 1);
        assert_eq!(requested().len(), 3);
        // It is kept: nothing is held any more.
        of.undo(&mut link).unwrap();
        of.end(&mut link).unwrap();
        assert!(requested().is_empty() && !of.there);
        of.take(&mut link, &remote, "db2", "a test", MINUTE)
            .unwrap();
        of.end(&mut link).unwrap();
        assert_eq!(requested().len(), 2);
        persist(&mut link, "kept").unwrap();
        assert!(requested()[0].contains("kept"));
    }

    #[test]
    fn hosts_that_keep_their_metrics_are_named() {
        let nowhere = IpAddr::from([192, 0, 2, 1]);
        let remote = |all: Vec<(&'static str, String)>| {
            let mut all = all.into_iter();
            all.find(|(host, _)| *host == "the remote host")
                .map(|(_, why)| why)
        };
        let plain = remote(forget(&mut Plain, nowhere));
        assert_eq!(plain.as_deref(), Some("it is an iperf3 server"));
        let mut link = agent(&Arc::default());
        assert_eq!(remote(forget(&mut link, nowhere)), None);
        let mut gone = linked("db2", |sender, _| sender.close("enough"));
        assert!(
            remote(forget(&mut gone, nowhere))
                .unwrap()
                .contains("enough")
        );
    }
}

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

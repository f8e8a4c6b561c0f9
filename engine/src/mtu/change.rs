//! Brings the devices of two hosts to another MTU while nobody who uses them notices, or puts everything
//! back: `pmtud::change` says what is set in which stage, and whether it worked.

use super::local::{SocketWatch, probe};
use crate::controller::PeerLink;
use crate::host::Host;
use crate::prelude::*;
use crate::transport::How;
use crate::tuning;
use anyhow::ensure;
use model::mtu::{
    CHANGE_SCHEMA, ChangeOutcome, ChangeReach, ChangeStage, MtuChange, Obstacle, Stopped,
};
use model::{Reading, Setting};
use pmtud::change::{Turn, obstacle, reach_of, stopped};
use tune::TuningSession;
use wire::control::TuneRequest;

/// Both hosts undo everything so long after the last word of this process.
const DEADLINE: Duration = Duration::from_secs(60);

/// For what is on its way in the larger size when nobody sends more of it: the queues of a slow path.
const DRAIN: Duration = Duration::from_millis(300);

/// How often the word that it stays is tried, each time over a new connection.
const COMMITS: u32 = 3;

/// What is asked for.
pub struct Wish {
    /// MTU of both devices.
    pub to: u32,
    /// For whom; `None`: by what is found on the segment.
    pub reach: Option<ChangeReach>,
    /// Devices that may lose their link are changed all the same.
    pub force: bool,
    /// Once it is kept it is to outlive a restart.
    pub persist: bool,
}

/// Checks, changes, verifies and commits, or restores both hosts. `progress` is called after each stage.
///
/// # Errors
/// If it does not begin: nothing is changed then. What goes wrong later is in the outcome.
pub fn change(
    host: &Host,
    how: &How<'_>,
    wish: &Wish,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(ChangeStage, &MtuChange),
) -> Result<MtuChange> {
    let name = host.to_string();
    let mut link = PeerLink::new(host.connect(how)?);
    let before = probe(&name, &mut link, None, stop)?;
    let reach = wish.reach.unwrap_or_else(|| reach_of(&before));
    let remote = before.remote.as_ref();
    let remote = remote.with_context(|| format!("{name} does not report its device"))?;
    let address = link.local_address().context("this host has no address")?;
    let turn = |side, end, peer| Turn::of(side, end, wish.to, reach, peer);
    let local = turn(Side::Local, &before.local, link.remote_address());
    let remote = turn(Side::Remote, remote, address);
    let idle = local == Turn::default() && remote == Turn::default();
    let against = obstacle(&before, wish.to);
    let mut story = MtuChange {
        schema: CHANGE_SCHEMA,
        host: name.clone(),
        to: wish.to,
        reach,
        before,
        pinned: None,
        after: None,
        silence: None,
        outcome: ChangeOutcome::Unneeded,
        persisted: Vec::new(),
        notes: Vec::new(),
    };
    if idle {
        return Ok(story);
    }
    if let Some(why) = against {
        let words = report::mtu_change::against(&why, &name);
        match why {
            Obstacle::DropsLink { .. } if wish.force => story.notes.push(words),
            _ => bail!(Refusal::usage(words)),
        }
    }
    // Named so that no other change can be meant.
    let title = format!(
        "MTU {} ({}) with {name}",
        wish.to,
        report::words::shown(&archive::new_id())
    );
    let mut both = Both::arm(link, local, remote, &title)?;
    progress(ChangeStage::Arm, &story);
    let mut stage = ChangeStage::Pin;
    let played = both.play(&mut stage, &mut story, stop, progress);
    let failed = match played {
        Ok(stopped) if stopped.is_empty() => match both.commit(host, how, &title) {
            Ok(()) => None,
            Err(error) => Some((Vec::new(), sentence(&error))),
        },
        Ok(stopped) => Some((stopped, String::new())),
        Err(error) => Some((Vec::new(), sentence(&error))),
    };
    story.outcome = match failed {
        None => {
            progress(ChangeStage::Commit, &story);
            both.finish(&title, wish.persist, &mut story);
            ChangeOutcome::Committed
        }
        Some((stopped, why)) => {
            both.roll_back(stage, &mut story.notes);
            ChangeOutcome::RolledBack {
                stage,
                stopped,
                why,
            }
        }
    };
    Ok(story)
}

/// Both hosts, armed: each undoes everything by itself if this process or its connection dies.
struct Both {
    here: TuningSession,
    link: PeerLink,
    local: Turn,
    remote: Turn,
}

impl Both {
    fn arm(mut link: PeerLink, local: Turn, remote: Turn, title: &str) -> Result<Both> {
        let begin = TuneRequest::Begin {
            title: title.to_owned(),
            deadline: DEADLINE.into(),
        };
        link.tune(begin)?;
        if link.shares_machine() {
            bail!(Refusal::usage(
                "both ends are on this machine, whose packets to itself no MTU of a cable bounds: name another host",
            ));
        }
        let here = tuning::begin(title, DEADLINE, Side::Local)?;
        Ok(Both {
            here,
            link,
            local,
            remote,
        })
    }

    /// Every stage up to the verification, after which both hosts have their final MTU; what does not get
    /// through ends it.
    fn play(
        &mut self,
        stage: &mut ChangeStage,
        story: &mut MtuChange,
        stop: &AtomicBool,
        progress: &mut dyn FnMut(ChangeStage, &MtuChange),
    ) -> Result<Vec<Stopped>> {
        let (name, to) = (story.host.clone(), story.to);
        self.apply(|turn| &turn.pin)?;
        progress(*stage, story);
        if self.local.narrower || self.remote.narrower {
            std::thread::sleep(DRAIN);
        }

        *stage = ChangeStage::Widen;
        let watch = SocketWatch::begin(&mut self.link, stop)?;
        let changed = self.apply(|turn| &turn.device);
        story.silence = watch.end().map(Into::into);
        changed?;
        tune::step("devices widened");
        progress(*stage, story);

        *stage = ChangeStage::Probe;
        self.renew()?;
        let report = probe(&name, &mut self.link, None, stop)?;
        let bad = stopped(&report, to, false);
        story.pinned = Some(report);
        if !bad.is_empty() {
            return Ok(bad);
        }
        progress(*stage, story);

        *stage = ChangeStage::Unpin;
        self.undo_only(|turn| &turn.unpin)?;
        self.apply(|turn| &turn.peer)?;
        tune::step("packets unpinned");
        progress(*stage, story);

        *stage = ChangeStage::Verify;
        self.renew()?;
        let report = probe(&name, &mut self.link, None, stop)?;
        let bad = stopped(&report, to, true);
        story.after = Some(report);
        if bad.is_empty() {
            progress(*stage, story);
            *stage = ChangeStage::Commit;
        }
        Ok(bad)
    }

    /// The remote host keeps it by a word over a new connection. This one comes second, since it is the one
    /// that can still restore its setting when that message is lost.
    fn commit(&self, host: &Host, how: &How<'_>, title: &str) -> Result<()> {
        let once = || {
            let mut link = PeerLink::new(host.connect(how)?);
            let title = title.to_owned();
            link.tune(TuneRequest::Commit { title })
        };
        let said = (1..COMMITS).fold(once(), |last, _| last.or_else(|_| once()));
        said.map(drop).with_context(|| {
            format!("no new connection could say that it stays; look on {host} with 'linerate tune status' whether one did")
        })
    }

    /// This host keeps it as well; with `persist`, both write it down.
    fn finish(mut self, title: &str, persist: bool, story: &mut MtuChange) {
        let peer = self.link.remote_address();
        if let Err(error) = self.here.keep() {
            story.notes.push(format!(
                "this host could not keep it ({error}) and is restored; the remote host keeps it: run 'linerate tune undo' there"
            ));
            return;
        }
        if !persist {
            return;
        }
        let local = tuning::persist(title, peer, Side::Local);
        let title = title.to_owned();
        let remote = self.link.tune(TuneRequest::Persist { title });
        for (host, lasting) in [("this host", local), (&*story.host, remote)] {
            match lasting {
                Ok(readings) => {
                    for reading in readings {
                        let (list, how) = match reading.in_force {
                            true => (&mut story.persisted, ""),
                            false => (&mut story.notes, "not written on "),
                        };
                        list.push(format!("{how}{host}: {}", reading.found));
                    }
                }
                Err(error) => {
                    let why = sentence(&error);
                    story.notes.push(format!("not written on {host}: {why}"));
                }
            }
        }
    }

    /// The same stages in reverse order, without interruption, as far as both hosts can be reached.
    fn roll_back(mut self, stage: ChangeStage, notes: &mut Vec<String>) {
        // What is refused or lost here is undone by the end of the hold.
        let _ = self.undo_only(|turn| &turn.peer);
        if stage >= ChangeStage::Unpin {
            let _ = self.apply(|turn| &turn.unpin);
        }
        let _ = self.undo_only(|turn| &turn.device);
        if let Err(error) = self.here.end() {
            notes.push(error.to_string());
        }
        if let Err(error) = self.link.tune(TuneRequest::End) {
            let why = sentence(&error);
            notes.push(format!(
                "the remote host restores its settings by itself: {why}"
            ));
        }
    }

    fn apply(&mut self, what: impl Fn(&Turn) -> &Vec<Setting>) -> Result<()> {
        let (local, settings) = (what(&self.local), what(&self.remote).clone());
        if !local.is_empty() {
            in_force(self.here.apply(local, self.link.remote_address())?)?;
        }
        if !settings.is_empty() {
            in_force(self.link.tune(TuneRequest::Apply { settings })?)?;
        }
        Ok(())
    }

    fn undo_only(&mut self, what: impl Fn(&Turn) -> &Vec<Setting>) -> Result<()> {
        let (local, settings) = (what(&self.local), what(&self.remote).clone());
        if !local.is_empty() {
            self.here.undo_only(local)?;
        }
        if !settings.is_empty() {
            self.link.tune(TuneRequest::UndoOnly { settings })?;
        }
        Ok(())
    }

    fn renew(&mut self) -> Result<()> {
        self.here.renew();
        self.link.tune(TuneRequest::Renew).map(drop)
    }
}

fn in_force(readings: Vec<Reading>) -> Result<()> {
    for reading in readings {
        let host = match reading.side {
            Side::Local => "this host",
            Side::Remote => "the remote host",
        };
        ensure!(
            reading.in_force,
            "on {host} {} is in force, not {}",
            reading.found,
            reading.setting
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_that_is_not_in_force_ends_a_stage_and_names_the_host() {
        let reading = |side, in_force| Reading {
            setting: "device.mtu=9000".to_owned(),
            side,
            asked: "9000".to_owned(),
            found: "1500".to_owned(),
            in_force,
        };
        assert!(
            in_force(vec![
                reading(Side::Local, true),
                reading(Side::Remote, true)
            ])
            .is_ok()
        );
        for (side, host) in [
            (Side::Local, "this host"),
            (Side::Remote, "the remote host"),
        ] {
            let why = in_force(vec![reading(Side::Local, true), reading(side, false)]);
            let why = why.unwrap_err().to_string();
            assert_eq!(
                why,
                format!("on {host} 1500 is in force, not device.mtu=9000")
            );
        }
    }
}

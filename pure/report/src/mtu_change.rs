//! A change of the MTU of two hosts, in words: stage by stage while it goes on, and what came of it.

use crate::mtu::{on_the_way, stops};
use crate::prelude::*;
use model::mtu::{
    ChangeOutcome, ChangeReach, ChangeStage, Going, MtuChange, Obstacle, PathEnd, Stopped,
};

/// What came of it, for people.
pub fn text(change: &MtuChange, style: Style) -> String {
    let mut lines: Vec<String> = Vec::new();
    if let ChangeOutcome::RolledBack { why, .. } = &change.outcome
        && !why.is_empty()
    {
        lines.push(escape_sentence(why));
    }
    let written = change.persisted.iter();
    lines.extend(written.map(|file| format!("written: {}", escape(file))));
    lines.extend(change.notes.iter().map(|note| escape_sentence(note)));
    if change.outcome == ChangeOutcome::Committed {
        let until = match change.persisted.is_empty() {
            true => {
                "both hosts keep it until they are rebooted (--persist writes it down), or until 'linerate tune undo' on each"
            }
            false => "'linerate tune undo' on each host puts it back, and what was written with it",
        };
        lines.push(until.to_owned());
    }
    let items = lines.iter().map(|line| style.item(line));
    style.bold(&sentence(change)) + &items.collect::<String>()
}

/// The answer in a sentence.
pub fn sentence(change: &MtuChange) -> String {
    let (host, to) = (escape(&change.host), change.to);
    match &change.outcome {
        ChangeOutcome::Unneeded => {
            format!("Nothing to do: the devices of this host and of {host} have an MTU of {to}.")
        }
        ChangeOutcome::Committed => {
            let for_whom = match change.reach {
                ChangeReach::Segment => "",
                ChangeReach::Peer => {
                    "; packets to all others stay unchanged, since they may not take more"
                }
            };
            format!("{to} bytes each way between this host and {host}: committed{for_whom}.")
        }
        ChangeOutcome::RolledBack { stage, stopped, .. } => {
            let what = match stopped.is_empty() {
                true => format!("it failed {}", during(*stage)),
                false => {
                    let each = stopped.iter().map(|s| stops_here(s, to, &host));
                    each.collect::<Vec<_>>().join("; ")
                }
            };
            format!("Not changed: {what}. All settings restored.")
        }
    }
}

fn stops_here(stopped: &Stopped, to: u32, host: &str) -> String {
    let way = on_the_way(stopped.way);
    match stopped.passes {
        Some(passes) if passes >= to => {
            format!("packets of {to} bytes get through {way}, but a transfer over TCP hangs")
        }
        Some(passes) => {
            let cause = match stops(&stopped.cause, stopped.way, host) {
                none if none.is_empty() => none,
                cause => format!(": {cause}"),
            };
            format!("{passes} bytes is the most that gets through {way}{cause}")
        }
        None => format!("nothing gets through {way}"),
    }
}

fn during(stage: ChangeStage) -> &'static str {
    match stage {
        ChangeStage::Arm => "before anything was changed",
        ChangeStage::Pin => "while routes were pinned",
        ChangeStage::Widen => "while the devices were changed",
        ChangeStage::Probe => "while probes were sent",
        ChangeStage::Unpin => "while routes were unpinned",
        ChangeStage::Verify => "while new connections were tried",
        ChangeStage::Commit => "at the end, when a new connection was to say that it stays",
    }
}

/// A stage that is done, in one line.
pub fn done(stage: ChangeStage, change: &MtuChange) -> String {
    let to = change.to;
    let devices = |what: &dyn Fn(&PathEnd) -> String| {
        let of = |going: Going| {
            let end = change.before.sender(going);
            let host = match going {
                Going::Forward => "on this host".to_owned(),
                Going::Reverse => format!("on {}", escape(&change.host)),
            };
            end.map(|end| format!("{} {host}{}", escape(&end.device), what(end)))
        };
        let both: Vec<String> = Going::ALL.into_iter().filter_map(of).collect();
        both.join(", ")
    };
    match stage {
        ChangeStage::Arm => format!(
            "armed: both hosts put everything back if this ends ({})",
            devices(&|end| format!(" has {}", end.device_mtu))
        ),
        ChangeStage::Pin => format!(
            "pinned: no ordinary packet is or becomes larger than that ({})",
            devices(&|end| format!(" at {}", end.device_mtu.min(to)))
        ),
        ChangeStage::Widen => format!(
            "changed: both devices have {to}{}",
            match change.silence {
                Some(silence) => format!("; {} without an answer at the longest", rough(silence)),
                None => "; the remote host does not answer since".to_owned(),
            }
        ),
        ChangeStage::Probe => format!("probed: {to} bytes get through in both directions"),
        ChangeStage::Unpin => match change.reach {
            ChangeReach::Segment => "unpinned: ordinary packets may have that size".to_owned(),
            ChangeReach::Peer => {
                "opened: packets between the two hosts may have that size, all others stay pinned"
                    .to_owned()
            }
        },
        ChangeStage::Verify => {
            let segments = |going: Going| {
                let tcp = change.after.as_ref()?.way(going).tcp?;
                Some(format!("{} {}", tcp.snd_mss, going.name()))
            };
            let both: Vec<String> = Going::ALL.into_iter().filter_map(segments).collect();
            format!(
                "verified: new connections carried 64 KiB each way, in segments of {} bytes",
                both.join(" and ")
            )
        }
        ChangeStage::Commit => "committed over a new connection".to_owned(),
    }
}

fn rough(time: Nanos) -> String {
    format!("{} ms", time.0.div_ceil(1_000_000))
}

/// Why it does not begin, and what to do.
pub fn against(obstacle: &Obstacle, host: &str) -> String {
    let host = escape(host);
    match obstacle {
        Obstacle::Broken(going) => format!(
            "even now TCP does not get through {}: see 'linerate mtu {host}', and fix that first",
            on_the_way(*going)
        ),
        Obstacle::Hole(going, passes) => format!(
            "even now no more than {passes} bytes get through {}, whatever the devices take, and TCP hangs: see 'linerate mtu {host}', and fix that first, or give both devices {passes}",
            on_the_way(*going)
        ),
        Obstacle::DropsLink {
            end,
            device,
            driver,
        } => {
            let at = match end {
                Going::Forward => "this host".to_owned(),
                Going::Reverse => host,
            };
            format!(
                "{} ({}) of {at} may take the link down for some seconds when its MTU changes, and connections with it, this one too: try it at a time when that may be, with --force",
                escape(device),
                escape(driver)
            )
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;

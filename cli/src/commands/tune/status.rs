//! `linerate tune status`: what is changed on this host.

use crate::prelude::*;
use engine::{namespaces, tuning};
use std::fmt::Write;
use tune::{Pending, PersistedFile, Where};

pub fn status() -> Result<()> {
    let state = tuning::state()?;
    out::print(&words(&tune::status(&state)?, &tune::written(&state)?))?;
    Ok(())
}

/// Another namespace by its name, and what undoes a change where it is.
pub fn place(namespace: Where) -> (Option<String>, String) {
    let here = "'linerate tune undo'".to_owned();
    match namespace {
        Where::Here | Where::Forgotten => (None, here),
        Where::Elsewhere(inode) => match namespaces::find(inode) {
            Some(place) => (Some(place.name.clone()), place.undo()),
            None => (
                Some(format!("the network namespace {inode}")),
                format!("{here} there"),
            ),
        },
    }
}

fn words(pending: &[Pending], written: &[PersistedFile]) -> String {
    if pending.is_empty() && written.is_empty() {
        return "nothing is changed on this host\n".to_owned();
    }
    let mut text = String::new();
    for one in pending {
        let (place, undo) = place(one.namespace);
        let state = match (one.namespace, one.alive, one.guarded) {
            (Where::Forgotten, ..) => "gone with its boot or network namespace".to_owned(),
            (_, true, _) => "goes on".to_owned(),
            (_, false, true) => "has died; its settings are being restored".to_owned(),
            (_, false, false) => format!("has died: {undo} restores what it changed"),
        };
        let place = place.map_or(String::new(), |place| format!(", in {place}"));
        let since = report::words::utc(Nanos::from_secs(one.started));
        let Pending { title, pid, .. } = one;
        let _ = match one.kept {
            true => {
                let until = match one.namespace {
                    Where::Forgotten => state,
                    Where::Here => format!("stays until {undo}, or until this machine restarts"),
                    Where::Elsewhere(_) => {
                        format!("stays until {undo}, or as long as that is there")
                    }
                };
                writeln!(text, "{title}: kept since {since}{place}; {until}")
            }
            false => writeln!(text, "{title}: process {pid} since {since}{place}, {state}"),
        };
        for change in &one.changes {
            let made = if change.made {
                ""
            } else {
                ", perhaps not made"
            };
            let _ = writeln!(text, "  {} (was {}{made})", change.setting, change.was);
        }
    }
    for PersistedFile { path, title } in written {
        let path = path.display();
        let _ = writeln!(
            text,
            "{title}: written to {path}, for every start until 'linerate tune undo'"
        );
    }
    text
}

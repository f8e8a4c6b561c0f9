//! `linerate tune status`: what is changed on this host.

use crate::prelude::*;
use engine::tuning;
use model::Nanos;
use std::fmt::Write;
use tune::{Pending, Where, Written};

pub fn status() -> Result<()> {
    let state = tuning::state()?;
    out::print(&words(&tune::status(&state)?, &tune::written(&state)?))?;
    Ok(())
}

fn words(pending: &[Pending], written: &[Written]) -> String {
    if pending.is_empty() && written.is_empty() {
        return "nothing is changed on this host\n".to_owned();
    }
    let mut text = String::new();
    for one in pending {
        let state = match (one.namespace, one.alive, one.guarded) {
            (Where::Forgotten, ..) => "gone with its boot or network namespace",
            (_, true, _) => "goes on",
            (_, false, true) => "has died, and is being put back",
            (_, false, false) => "has died: 'linerate tune undo' puts back what it left",
        };
        let place = match one.namespace {
            Where::Elsewhere(inode) => format!(", in the network namespace {inode}"),
            Where::Here | Where::Forgotten => String::new(),
        };
        let since = report::words::utc(Nanos::from_secs(one.started));
        let Pending { title, pid, .. } = one;
        let _ = match one.kept {
            true => {
                let until = match one.namespace {
                    Where::Forgotten => state,
                    _ => "stays until 'linerate tune undo', or until this machine restarts",
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
    for Written { path, title } in written {
        let path = path.display();
        let _ = writeln!(
            text,
            "{title}: written to {path}, for every start until 'linerate tune undo'"
        );
    }
    text
}

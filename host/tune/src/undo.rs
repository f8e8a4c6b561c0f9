//! Putting everything back, in reverse order. Whoever does it, however often, and wherever it was cut
//! short before, the end is the same.

use crate::journal::{Journal, JournalChange, JournalEntry};
use crate::knobs::{KnobFailure, NO_RIGHT};
use crate::prelude::*;

/// One setting that was undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undone {
    /// The setting, as text.
    pub setting: String,
    /// The value that it has again.
    pub back_to: String,
    /// What the reader must know: that somebody else had changed it meanwhile, or that it was gone.
    pub note: Option<String>,
}

/// Undoes the changes from this number on.
pub(crate) fn undo_from(
    journal: &mut Journal,
    kernel: &mut Kernel,
    first: u64,
) -> Result<Vec<Undone>, Error> {
    undo_those(journal, kernel, |change| change.number >= first)
}

/// Undoes some changes, the last first. What cannot be undone stays in the journal, and does not keep the
/// rest from being undone.
pub(crate) fn undo_those(
    journal: &mut Journal,
    kernel: &mut Kernel,
    which: impl Fn(&JournalChange) -> bool,
) -> Result<Vec<Undone>, Error> {
    let mut undone = Vec::new();
    let mut failed = Vec::new();
    let entries = journal.entries.iter().rev();
    let entries: Vec<JournalEntry> = entries.filter(|e| which(&e.change)).cloned().collect();
    for entry in entries {
        match undo(kernel, &entry) {
            Ok(note) => {
                journal.undone(entry.change.number);
                undone.push(Undone {
                    setting: entry.change.setting.to_string(),
                    back_to: entry.change.was,
                    note,
                });
            }
            Err(why) => failed.push(format!("{}: {why}", entry.change.setting)),
        }
    }
    journal.clear();
    match failed.is_empty() {
        true => Ok(undone),
        false => Err(Error::not_undone(&failed)),
    }
}

/// A note, if there is something to say.
fn undo(kernel: &mut Kernel, entry: &JournalEntry) -> Result<Option<String>, String> {
    let part = entry.change.target.part();
    let before = &entry.change.before;
    let gone = || {
        Ok(Some(
            "its device is gone, and the change with it".to_owned(),
        ))
    };
    let now = match part.read(kernel) {
        Ok(now) => now,
        Err(KnobFailure::Gone) => return gone(),
        Err(failure) => return Err(words(failure)),
    };
    if now == *before {
        return Ok(None);
    }
    // A value of somebody else is undone as well: the promise is the former state.
    let foreign = entry.after.as_ref().is_some_and(|after| *after != now);
    let found = foreign.then(|| {
        let value = part.found(kernel).ok()??;
        Some(entry.change.setting.knob.format_value(&value))
    });
    match part.restore(kernel, before) {
        Ok(()) => {}
        Err(KnobFailure::Gone) => return gone(),
        Err(failure) => return Err(words(failure)),
    }
    match part.read(kernel) {
        Ok(back) if back == *before => {}
        Ok(_) => return Err("the kernel did not give back what was there".to_owned()),
        Err(KnobFailure::Gone) => return gone(),
        Err(failure) => return Err(words(failure)),
    }
    step("change undone");
    Ok(found.map(|value| match value {
        Some(value) => format!("somebody else had changed it meanwhile, to {value}"),
        None => "somebody else had changed it meanwhile".to_owned(),
    }))
}

fn words(failure: KnobFailure) -> String {
    match failure {
        KnobFailure::Forbidden => NO_RIGHT.to_owned(),
        KnobFailure::Gone => "its device is gone".to_owned(),
        KnobFailure::Words(words) => words,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knobs::Image;

    #[test]
    fn a_failure_is_a_missing_right_a_device_that_is_gone_or_its_words() {
        assert_eq!(words(KnobFailure::Forbidden), NO_RIGHT);
        assert_eq!(words(KnobFailure::Gone), "its device is gone");
        assert_eq!(words(KnobFailure::Words("busy".to_owned())), "busy");
    }

    fn entry(
        target: serde_json::Value,
        before: serde_json::Value,
        after: Option<Image>,
    ) -> JournalEntry {
        let change = JournalChange {
            number: 1,
            setting: "sysctl:net.ipv4.tcp_sack=0".parse().unwrap(),
            was: "1".to_owned(),
            target: serde_json::from_value(target).unwrap(),
            before,
        };
        JournalEntry { change, after }
    }

    /// Undone in a network namespace of its own; `None` without the right to make one.
    fn undone(entry: JournalEntry) -> Option<Result<Option<String>, String>> {
        let apart = std::thread::spawn(move || {
            sys::namespace::unshare_net().ok()?;
            Some(undo(&mut crate::kernel::kernel().unwrap(), &entry))
        });
        apart.join().unwrap()
    }

    #[test]
    fn what_is_undone_is_read_back_and_what_somebody_else_set_is_said() {
        let sysctl = |key: &str| serde_json::json!({"part": "sysctl", "key": key});
        let sack = |text: &str| serde_json::json!({"net.ipv4.tcp_sack": text});
        let of = |before: &str, after: Option<&str>| {
            undone(entry(
                sysctl("net.ipv4.tcp_sack"),
                sack(before),
                after.map(sack),
            ))
        };
        let Some(as_before) = of("1\n", None) else {
            return;
        };
        assert_eq!(as_before, Ok(None), "a namespace begins with it");
        assert_eq!(of("0\n", None), Some(Ok(None)));
        assert_eq!(of("0\n", Some("1\n")), Some(Ok(None)));
        let note = of("0\n", Some("0\n")).unwrap().unwrap().unwrap();
        assert_eq!(note, "somebody else had changed it meanwhile, to 1");
        // The kernel writes tabs between numbers.
        let key = "net.ipv4.tcp_rmem";
        let before = serde_json::json!({key: "4096 65536 1048576\n"});
        let other = undone(entry(sysctl(key), before, None)).unwrap();
        assert_eq!(
            other.unwrap_err(),
            "the kernel did not give back what was there"
        );
    }

    #[test]
    fn a_device_that_is_gone_took_the_change_with_it() {
        let device = serde_json::json!({"index": 4_000_000, "name": "gone"});
        let target = serde_json::json!({"part": "mtu", "device": device});
        let gone = entry(target, serde_json::json!({}), None);
        let note = undo(&mut crate::kernel::kernel().unwrap(), &gone).unwrap();
        assert_eq!(
            note.as_deref(),
            Some("its device is gone, and the change with it")
        );
    }
}

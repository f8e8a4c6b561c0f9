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

    #[test]
    fn a_failure_is_a_missing_right_a_device_that_is_gone_or_its_words() {
        assert_eq!(words(KnobFailure::Forbidden), NO_RIGHT);
        assert_eq!(words(KnobFailure::Gone), "its device is gone");
        assert_eq!(words(KnobFailure::Words("busy".to_owned())), "busy");
    }
}

//! linerate's own JSON as input: the documents of `docs/json.md`, distinguished by their members.

use crate::prelude::*;
use model::mtu::{CHANGE_SCHEMA, MTU_SCHEMA, MtuChange, MtuFound, MtuReport};
use model::{EXPERIMENT_SCHEMA, Published, SCHEMA_VERSION, TUNING_SCHEMA, Tuning, WATCH_SCHEMA};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

/// A document of any kind that can be shown whole.
#[derive(Clone)]
pub enum Document {
    /// Of `measure`, or what iperf3 printed.
    Run(Box<Run>),
    /// Of `prove`.
    Experiment(Box<Experiment>),
    /// Of `prove --from`.
    Published(Box<Published>),
    /// Of `tune`, with its experiments.
    Tuning(Box<Tuning>, Vec<Experiment>),
    /// Of `mtu` and `tune mtu`.
    Mtu(Box<MtuFound>),
    /// What a watch kept: a day, or a trace.
    Watch(WatchRecord),
}

pub fn from_json(text: &str) -> Result<Document, String> {
    /// Members that one kind alone has.
    #[derive(Deserialize)]
    struct InputMembers {
        plan: Option<IgnoredAny>,
        rounds: Option<IgnoredAny>,
        method: Option<IgnoredAny>,
        reach: Option<IgnoredAny>,
        comparisons: Option<IgnoredAny>,
        hours: Option<IgnoredAny>,
        trigger: Option<IgnoredAny>,
    }
    /// Absent in what was printed before they were.
    #[derive(Deserialize)]
    struct Experiments {
        #[serde(default)]
        experiments: Vec<Experiment>,
    }
    let members: InputMembers = match serde_json::from_slice(text.as_bytes()) {
        Ok(members) => members,
        // One line an event: iperf3's, or nobody's.
        Err(_) => return run_from(text).map(|run| Document::Run(Box::new(run))),
    };
    Ok(if members.plan.is_some() {
        Document::Experiment(whole(text, EXPERIMENT_SCHEMA, "experiment")?)
    } else if members.rounds.is_some() {
        let story = whole(text, TUNING_SCHEMA, "tuning")?;
        let Experiments { experiments } = *parsed(text, "tuning")?;
        Document::Tuning(story, experiments)
    } else if members.reach.is_some() {
        let change: Box<MtuChange> = whole(text, CHANGE_SCHEMA, "change of an MTU")?;
        Document::Mtu(Box::new(MtuFound::Change(change)))
    } else if members.method.is_some() {
        let report: Box<MtuReport> = whole(text, MTU_SCHEMA, "report of an MTU")?;
        Document::Mtu(Box::new(MtuFound::Look(report)))
    } else if members.hours.is_some() {
        Document::Watch(WatchRecord::Day(whole(
            text,
            WATCH_SCHEMA,
            "day of a watch",
        )?))
    } else if members.trigger.is_some() {
        Document::Watch(WatchRecord::Trace(whole(
            text,
            WATCH_SCHEMA,
            "record of a trace",
        )?))
    } else if members.comparisons.is_some() {
        Document::Published(parsed(text, "comparison of published numbers")?)
    } else {
        Document::Run(Box::new(run_from(text)?))
    })
}

/// A run of linerate's, or one that iperf3 printed.
///
/// # Errors
/// Why it is none, for a sentence that names its file.
pub fn run_from(text: &str) -> Result<Run, String> {
    if serde_json::from_slice::<Versioned>(text.as_bytes()).is_err() {
        return report::iperf3::from_json(text)
            .map_err(|e| format!("it is not a run of linerate, nor one of iperf3: {e}"));
    }
    whole(text, SCHEMA_VERSION, "run").map(|run| *run)
}

/// The member that only our JSON has.
#[derive(Deserialize)]
struct Versioned {
    schema: u32,
}

/// A document of a form that is known up to this version.
fn whole<T: DeserializeOwned>(text: &str, known: u32, what: &str) -> Result<Box<T>, String> {
    if let Ok(Versioned { schema }) = serde_json::from_slice(text.as_bytes())
        && schema > known
    {
        return Err(format!(
            "it was written by a newer linerate (schema {schema}, known up to {known})"
        ));
    }
    parsed(text, what)
}

fn parsed<T: DeserializeOwned>(text: &str, what: &str) -> Result<Box<T>, String> {
    serde_json::from_slice(text.as_bytes())
        .map(Box::new)
        .map_err(|e| format!("it is not a whole {what}: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_json_it_is() {
        for (text, why) in [
            ("", "it is not a run of linerate, nor one of iperf3: "),
            ("{}", "it is not a run of linerate, nor one of iperf3: "),
            ("[1]", "it is not a whole run: "),
            (
                r#"{"schema": 99}"#,
                "it was written by a newer linerate (schema 99",
            ),
            (r#"{"schema": 1}"#, "it is not a whole run: missing field"),
            (
                r#"{"schema": 1, "plan": {}}"#,
                "it is not a whole experiment: ",
            ),
            (
                r#"{"schema": 9, "rounds": []}"#,
                "it was written by a newer linerate (schema 9",
            ),
            (
                r#"{"schema": 1, "method": "web"}"#,
                "it is not a whole report of an MTU: ",
            ),
            (
                r#"{"comparisons": []}"#,
                "it is not a whole comparison of published numbers: ",
            ),
        ] {
            let said = from_json(text).map(|_| ()).unwrap_err();
            assert!(said.starts_with(why), "{text}: {said}");
        }
    }
}

//! What every folder of cases shares: what is expected of an explanation, and the walk over the files.

use model::Setting;
use model::finding::{Conclusion, Explanation, Level, Limit};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::path::Path;

/// What is to be found of a case.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// `limited`, `innocent`, `too_short`, `unexplained`.
    is: String,
    /// All causes that are named, the first first.
    #[serde(default)]
    by: Vec<Limit>,
    /// Shares of the time, at least and at most.
    #[serde(default)]
    shares: BTreeMap<Limit, [f64; 2]>,
    /// Findings of the second level that are reported too.
    #[serde(default)]
    also: Vec<Limit>,
    /// A setting that decides between the causes.
    #[serde(default)]
    decided_by: Option<String>,
}

impl Expect {
    /// The one explanation that there is, or what is wrong.
    pub fn of<'a>(
        &self,
        name: &str,
        explanations: &'a [Explanation],
    ) -> Result<&'a Explanation, String> {
        let [explanation] = explanations else {
            return Err(format!("{name}: {} explanations", explanations.len()));
        };
        let (is, by) = match &explanation.conclusion {
            Conclusion::Limited { by } => ("limited", by.clone()),
            Conclusion::Innocent => ("innocent", Vec::new()),
            Conclusion::TooShort => ("too_short", Vec::new()),
            Conclusion::Unexplained => ("unexplained", Vec::new()),
        };
        let wrong = |what: String| Err(format!("{name}: {what}\n{explanation:#?}"));
        if is != self.is || by != self.by {
            return wrong(format!("found {is} {by:?}"));
        }
        // What is proposed can be given to `linerate prove` verbatim.
        for finding in &explanation.findings {
            let changes = finding.remedies.iter().filter_map(|r| r.change.as_ref());
            for change in changes.chain(finding.decider.as_ref().map(|d| &d.change)) {
                if let Err(error) = change.parse::<Setting>() {
                    return wrong(format!("proposes {change}: {error}"));
                }
            }
        }
        // A threshold that is not met would refute the finding.
        let mut evidence = explanation.findings.iter().flat_map(|f| &f.evidence);
        if let Some(refuting) = evidence.find(|e| !e.holds()) {
            return wrong(format!("{refuting:?} does not hold"));
        }
        for (limit, [least, most]) in &self.shares {
            let share = explanation
                .finding(*limit)
                .map_or(0.0, |f| f.share.time_share);
            if !(*least..=*most).contains(&share) {
                return wrong(format!("{limit} owns {share}"));
            }
        }
        let first = explanation
            .findings
            .iter()
            .filter(|f| f.level == Level::First);
        let total: f64 = first.map(|f| f.share.time_share).sum();
        if total > 1.001 {
            return wrong(format!("shares add up to {total}"));
        }
        if let Some(missing) = self
            .also
            .iter()
            .find(|l| explanation.finding(**l).is_none())
        {
            return wrong(format!("{missing} is not reported"));
        }
        let decider = explanation.findings.iter().find_map(|f| f.decider.as_ref());
        if let Some(change) = &self.decided_by
            && !decider.is_some_and(|d| d.change.starts_with(change.as_str()))
        {
            return wrong(format!("decided by {decider:?}"));
        }
        Ok(explanation)
    }
}

/// Checks every `.toml` of `tests/cases/FOLDER`, of which there are at least so many.
pub fn each_case<Case: DeserializeOwned>(
    folder: &str,
    at_least: usize,
    check: impl Fn(&str, &Case) -> Result<(), String>,
) {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut wrong = Vec::new();
    let mut seen = 0;
    for entry in std::fs::read_dir(cases.join(folder)).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|kind| kind != "toml") {
            continue;
        }
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        let case: Case = toml::from_str(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
        wrong.extend(check(&name, &case).err());
        seen += 1;
    }
    assert!(seen >= at_least, "{seen} cases");
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

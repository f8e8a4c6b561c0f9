//! Alert rules for Prometheus, of the same thresholds as the mesh file's.

use crate::{AlertWhen, Mesh};
use std::fmt::Write;

/// A rule file (<https://prometheus.io/docs/prometheus/latest/configuration/alerting_rules/>): a rule for each alert of
/// the mesh, and one for cells that have no new leg.
pub fn prometheus_rules(mesh: &Mesh) -> String {
    let mut text = format!("groups:\n- name: linerate-mesh-{}\n  rules:\n", mesh.name);
    let mut rule = |name: String, expr: String, summary: &str| {
        // A JSON string is a YAML string.
        let [expr, summary] =
            [expr.as_str(), summary].map(|text| serde_json::Value::from(text).to_string());
        write!(
            text,
            "  - alert: {name}\n    expr: {expr}\n    labels: {{mesh: {:?}}}\n    annotations: {{summary: {summary}}}\n",
            mesh.name
        )
        .expect("a string grows");
    };
    let labels =
        |test: &str, more: &str| format!("{{mesh=\"{}\",test=\"{test}\"{more}}}", mesh.name);
    for (number, alert) in mesh.alerts.iter().enumerate() {
        let (expr, what) = match alert.when {
            AlertWhen::Shifted => (
                format!("linerate_cell_shifted{} == 1", labels(&alert.test, "")),
                "the level of {{ $labels.src }} to {{ $labels.dst }} has changed".to_owned(),
            ),
            AlertWhen::Outcome(outcome) => {
                let more = format!(",outcome=\"{outcome}\"");
                let expr = format!(
                    "linerate_leg_outcome{} >= {}",
                    labels(&alert.test, &more),
                    alert.times
                );
                (
                    expr,
                    format!(
                        "{{{{ $labels.src }}}} to {{{{ $labels.dst }}}}: {{{{ $value }}}} times {outcome}"
                    ),
                )
            }
        };
        rule(format!("LinerateMesh{}", number + 1), expr, &what);
    }
    for (number, test) in mesh.tests.iter().enumerate() {
        let seconds = 2 * test.every.0 / 1_000_000_000;
        rule(
            format!("LinerateMeshStale{}", number + 1),
            format!(
                "time() - linerate_leg_timestamp_seconds{} > {seconds}",
                labels(&test.name, "")
            ),
            "{{ $labels.src }} to {{ $labels.dst }} has no new leg since two cycles: is 'linerate mesh run' up?",
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse_mesh;

    #[test]
    fn rules_of_the_alerts_and_of_old_cells() {
        let text = r#"
alert = [{ test = "bulk", when = "low", times = 2, exec = ["/bin/true"] }, { test = "bulk", when = "shifted", exec = ["/bin/true"] }]
[mesh]
name = "db"
[[host]]
name = "a"
agent = "a"
[[host]]
name = "b"
agent = "b"
[[test]]
name = "bulk"
hosts = ["*"]
every = "1h"
"#;
        let rules = prometheus_rules(&parse_mesh(text, "m.toml").unwrap());
        assert_eq!(
            rules,
            r#"groups:
- name: linerate-mesh-db
  rules:
  - alert: LinerateMesh1
    expr: "linerate_leg_outcome{mesh=\"db\",test=\"bulk\",outcome=\"low\"} >= 2"
    labels: {mesh: "db"}
    annotations: {summary: "{{ $labels.src }} to {{ $labels.dst }}: {{ $value }} times low"}
  - alert: LinerateMesh2
    expr: "linerate_cell_shifted{mesh=\"db\",test=\"bulk\"} == 1"
    labels: {mesh: "db"}
    annotations: {summary: "the level of {{ $labels.src }} to {{ $labels.dst }} has changed"}
  - alert: LinerateMeshStale1
    expr: "time() - linerate_leg_timestamp_seconds{mesh=\"db\",test=\"bulk\"} > 7200"
    labels: {mesh: "db"}
    annotations: {summary: "{{ $labels.src }} to {{ $labels.dst }} has no new leg since two cycles: is 'linerate mesh run' up?"}
"#
        );
    }
}

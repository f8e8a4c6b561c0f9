//! What an experiment is to find out, and how: the plan, as data that runs again exactly.

use crate::names::named;
use crate::{Direction, Nanos, Setting, Spec, apply_to_spec};
use serde::{Deserialize, Serialize};

/// Version of the JSON forms of [`Plan`] and [`crate::Experiment`]; raised when a field changes its
/// meaning or goes away.
pub const EXPERIMENT_SCHEMA: u32 = 1;

/// A whole experiment before it begins. Everything random in it comes from `seed`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Version of this form.
    pub schema: u32,
    /// A note of the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The remote host as the user named it.
    pub host: String,
    /// What is compared.
    pub metric: Metric,
    /// Equivalence margin as a share: 0.05 is 5 %.
    #[serde(rename = "margin_share")]
    pub margin: f64,
    /// The typical run, or all runs together.
    pub estimand: Estimand,
    /// The direction that is judged; `run.directions` has it as its only leg.
    pub direction: Direction,
    /// The order for every run, without the settings of the arms.
    pub run: Spec,
    /// What is compared; the first is the control.
    pub arms: Vec<Arm>,
    /// How runs are grouped, and how many there are.
    pub design: Design,
    /// Pause before every run, to let the path and the hosts cool down.
    #[serde(rename = "gap_ns")]
    pub gap: Nanos,
    /// Where the order of the runs comes from.
    pub seed: u64,
    /// Pairs of the pilot, in which both runs are the control; 0: no pilot.
    pub pilot_pairs: u32,
}

named! {
    /// What of a run is compared.
    #[derive(Default)]
    Metric, "metric" {
        /// Receiver's bytes after the ramp, by time. In bit/s.
        #[default]
        Goodput = "goodput",
        /// Time of a whole transfer of a fixed size, slow start included. In seconds.
        Completion = "completion",
        /// Median latency of the requests of a run. In seconds.
        LatencyP50 = "latency-p50",
        /// 99th percentile of the latencies of a run. In seconds.
        LatencyP99 = "latency-p99",
    }
}

named! {
    /// What the verdict is about: a typical run, or all runs together.
    #[derive(Default)]
    Estimand, "estimand" {
        /// A typical run (signed ranks of the pairs, Hodges-Lehmann).
        #[default]
        Typical = "typical",
        /// All runs together (sign flips of the totals): includes rare stalls that a typical run does not have.
        Total = "total",
    }
}

/// Settings that are tried together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Arm {
    /// Name in tables and sentences.
    pub name: String,
    /// What is set for its runs; empty: the baseline.
    pub settings: Vec<Setting>,
    /// The level of each factor, in the order of the factors; empty in other designs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub levels: Vec<u32>,
}

/// How runs are grouped, and how many there are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Design {
    /// Two arms in pairs; judged after each of these numbers of pairs, until one decides.
    Pairs {
        /// Pairs at each look; one number: fixed.
        looks: Vec<u32>,
    },
    /// Several arms, all of them in each block; each is compared with the first.
    Blocks {
        /// Blocks.
        blocks: u32,
    },
    /// Every combination of levels (or half of them) in each block.
    Factorial {
        /// What varies.
        factors: Vec<Factor>,
        /// Blocks.
        blocks: u32,
    },
    /// Rounds that halve the arms by their ranks, then fresh pairs of the last one and the control.
    Search {
        /// Blocks of each round: the control and all arms that are left.
        blocks: u32,
        /// Pairs at each look of the confirmation.
        confirm: Vec<u32>,
    },
}

/// One thing that varies in a factorial design.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Factor {
    /// Name in tables and sentences.
    pub name: String,
    /// At least two; the first is the one that others are compared with.
    pub levels: Vec<FactorLevel>,
}

/// One level of a factor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FactorLevel {
    /// Name in tables and sentences.
    pub name: String,
    /// What is set; empty: the baseline.
    pub settings: Vec<Setting>,
}

impl Plan {
    /// The order for a run of this arm: the plan's, with the socket options that the arm sets. What
    /// the arm sets on the machine is not in it.
    ///
    /// # Panics
    /// If the plan has no such arm.
    pub fn spec_of(&self, arm: u32) -> Spec {
        let mut spec = self.run.clone();
        apply_to_spec(&self.arms[arm as usize].settings, &mut spec.socket);
        spec
    }

    /// The name of an arm; empty if there is none.
    pub fn arm_name(&self, arm: u32) -> &str {
        self.arms.get(arm as usize).map_or("", |a| &a.name)
    }
}

impl Metric {
    /// True if the metric is a time, of which less is better.
    pub fn is_time(self) -> bool {
        self != Metric::Goodput
    }

    /// True if the metric is made from the latencies of requests.
    pub fn is_latency(self) -> bool {
        matches!(self, Metric::LatencyP50 | Metric::LatencyP99)
    }

    /// The equivalence margin if the user names none, as a share.
    pub fn usual_margin(self) -> f64 {
        if self.is_latency() { 0.10 } else { 0.05 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_written_as_they_are_read() {
        for metric in Metric::ALL {
            assert_eq!(metric.to_string().parse(), Ok(metric));
            let json = serde_json::to_string(&metric).unwrap();
            assert_eq!(json, format!("\"{metric}\""));
        }
        let error = "speed".parse::<Metric>().unwrap_err();
        assert!(error.starts_with("no such metric 'speed'; known: goodput,"));
        for estimand in Estimand::ALL {
            assert_eq!(estimand.to_string().parse(), Ok(estimand));
        }
    }
}

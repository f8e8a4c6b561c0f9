//! What a leg of a cell comes to, and when a cell is worth an alert.

use crate::{AlertWhen, GoodThreshold, MeshAlert, MeshTest};
use model::LegOutcome;

/// Legs of a cell that its median is of.
pub const WINDOW: usize = 20;

/// Fewer earlier legs have no median to compare with: then a leg is good.
pub const FEWEST_FOR_MEDIAN: usize = 5;

/// Whether a figure is good or low; `earlier` are those of the cell before, the newest first.
pub fn judge(test: &MeshTest, figure: f64, earlier: &[f64]) -> LegOutcome {
    let is_low = match test.good {
        None => false,
        Some(GoodThreshold::Goodput(least)) => figure < least.0 as f64,
        Some(GoodThreshold::Size(least)) => figure < least.0 as f64,
        Some(GoodThreshold::Latency(most)) => figure > most.as_secs_f64(),
        Some(GoodThreshold::OfMedian(share)) => {
            let mut window: Vec<f64> = earlier.iter().take(WINDOW).copied().collect();
            window.sort_by(f64::total_cmp);
            let median = window.get(window.len() / 2).copied();
            let median = median.filter(|_| window.len() >= FEWEST_FOR_MEDIAN);
            median.is_some_and(|median| match test.figure.is_latency() {
                true => figure > median / share,
                false => figure < median * share,
            })
        }
    };
    if is_low {
        LegOutcome::Low
    } else {
        LegOutcome::Good
    }
}

/// Whether an alert is due: once, when the newest outcomes of a cell (the newest first, skipped ones left out) are so for
/// the required number of times. `shifted`: the level of the cell changed with its newest leg.
pub fn fires(alert: &MeshAlert, outcomes: &[LegOutcome], shifted: bool) -> bool {
    match alert.when {
        AlertWhen::Shifted => shifted,
        AlertWhen::Outcome(outcome) => {
            let in_a_row = outcomes
                .iter()
                .take_while(|other| **other == outcome)
                .count();
            in_a_row == alert.times as usize
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse_mesh;
    use LegOutcome::{Failed, Good, Low};

    fn test(kind: &str, good: &str) -> MeshTest {
        let text = format!(
            "[mesh]\nname = \"m\"\n[[host]]\nname = \"a\"\nagent = \"a\"\n[[host]]\nname = \"b\"\nagent = \"b\"\n\
             [[test]]\nname = \"t\"\nkind = \"{kind}\"\nhosts = [\"*\"]\nevery = \"1h\"\n{good}"
        );
        parse_mesh(&text, "m.toml").unwrap().tests.remove(0)
    }

    #[test]
    fn good_and_low() {
        let fixed = test("bulk", "good = \"8G\"");
        assert_eq!(
            [8e9, 7.9e9].map(|rate| judge(&fixed, rate, &[])),
            [Good, Low]
        );
        let own = test("bulk", "good = \"80%\"");
        assert_eq!(judge(&own, 1e9, &[9e9; 4]), Good);
        assert_eq!(
            [7.3e9, 7.1e9].map(|rate| judge(&own, rate, &[9e9; 5])),
            [Good, Low]
        );
        // Legs before the last 20 do not count.
        let mut earlier = vec![9e9; 20];
        earlier.extend([1e9; 100]);
        assert_eq!(judge(&own, 7.1e9, &earlier), Low);
        let latency = test("request", "good = \"2ms\"");
        assert_eq!(
            [0.002, 0.0021].map(|time| judge(&latency, time, &[])),
            [Good, Low]
        );
        let latency = test("request", "good = \"50%\"");
        assert_eq!(
            [0.002, 0.0021].map(|time| judge(&latency, time, &[0.001; 5])),
            [Good, Low]
        );
        let mtu = test("mtu", "good = \"1500\"");
        assert_eq!(
            [1500.0, 1499.0].map(|size| judge(&mtu, size, &[])),
            [Good, Low]
        );
        assert_eq!(judge(&test("bulk", ""), 1.0, &[9e9; 20]), Good);
    }

    #[test]
    fn an_alert_is_due_once() {
        let alert = MeshAlert {
            test: "t".to_owned(),
            when: AlertWhen::Outcome(Low),
            times: 2,
            exec: vec!["/bin/true".to_owned()],
        };
        let due = |outcomes: &[LegOutcome]| fires(&alert, outcomes, true);
        assert!(
            !due(&[Low])
                && !due(&[Low, Good, Low])
                && !due(&[Low, Low, Low])
                && !due(&[Failed, Low])
        );
        assert!(due(&[Low, Low]) && due(&[Low, Low, Good, Low]));
        let shifted = MeshAlert {
            when: AlertWhen::Shifted,
            ..alert
        };
        assert!(fires(&shifted, &[Low; 9], true) && !fires(&shifted, &[Low; 2], false));
    }
}

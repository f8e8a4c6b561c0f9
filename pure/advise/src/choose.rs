//! From proposals to the arms of an experiment, and from its verdict to what stays.

use model::{Estimate, Outcome, Setting, Verdict};

/// The next step after a verdict on proposals. Proposals are named by their places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// None of them was proven.
    Nothing,
    /// These were proven unchanged.
    Keep(Vec<usize>),
    /// The first were proven, and others were as well: fresh runs show whether those add anything.
    Confirm {
        /// Proven alone, and the surest of them.
        base: Vec<usize>,
        /// What may add to it.
        more: Vec<usize>,
    },
}

/// The arms beside the present state: each proposal that can be tried alone, and all of them together where
/// there are several that do not contradict each other. Some help only together: a window is as large as the
/// smaller of two buffers.
pub fn arms(tried: &[Vec<Setting>]) -> Vec<Vec<usize>> {
    let able: Vec<usize> = (0..tried.len()).filter(|n| !tried[*n].is_empty()).collect();
    let mut arms: Vec<Vec<usize>> = able.iter().map(|n| vec![*n]).collect();
    if able.len() > 1 && together(tried, &able).is_some() {
        arms.push(able);
    }
    arms
}

/// The settings of several proposals, each once; `None` if two of them set the same to different values.
pub fn together(tried: &[Vec<Setting>], which: &[usize]) -> Option<Vec<Setting>> {
    let mut all: Vec<Setting> = Vec::new();
    for setting in which.iter().flat_map(|n| &tried[*n]) {
        let mut known = all.iter();
        match known.find(|s| s.knob == setting.knob && s.on == setting.on) {
            Some(same) if same.value == setting.value => {}
            Some(_) => return None,
            None => all.push(setting.clone()),
        }
    }
    Some(all)
}

/// The proposals that were proven without any other.
pub fn proven_alone(arms: &[Vec<usize>], verdict: &Verdict) -> Vec<usize> {
    let faster = verdict.comparisons.iter();
    let faster = faster.filter(|c| c.outcome == Outcome::Faster);
    let faster = faster.filter_map(|c| arms.get((c.arm as usize).checked_sub(1)?));
    let alone = faster.filter(|arm| arm.len() == 1);
    alone.flatten().copied().collect()
}

/// What to do after an experiment with these arms, the first of which is arm 1 of its plan.
pub fn choose(arms: &[Vec<usize>], verdict: &Verdict) -> Choice {
    if verdict.outcome == Outcome::NoVerdict {
        return Choice::Nothing;
    }
    let proven = verdict.comparisons.iter().filter_map(|c| {
        let arm = arms.get((c.arm as usize).checked_sub(1)?)?;
        let estimate = c.estimate.filter(|_| c.outcome == Outcome::Faster)?;
        Some((arm, estimate))
    });
    let (alone, joint): (Vec<_>, Vec<_>) = proven.partition(|(arm, _)| arm.len() == 1);
    let last_first = alone.iter().rev();
    let surest = last_first.max_by(|(_, a), (_, b)| a.low_share.total_cmp(&b.low_share));
    let Some((base, best)) = surest else {
        let keep = |(arm, _): &(&Vec<usize>, _)| Choice::Keep((*arm).clone());
        return joint.first().map_or(Choice::Nothing, keep);
    };
    let helped = alone.iter().flat_map(|(arm, _)| arm.iter());
    let beyond = joint
        .iter()
        .filter(|(_, all)| all.low_share > best.high_share);
    let mut more: Vec<usize> = helped
        .chain(beyond.flat_map(|(arm, _)| arm.iter()))
        .copied()
        .filter(|n| !base.contains(n))
        .collect();
    more.sort_unstable();
    more.dedup();
    let all: Vec<usize> = base.iter().chain(&more).copied().collect();
    // Where all of them were an arm and fell behind the base, nothing is left to confirm.
    let worse =
        joint_arm(arms, verdict, &all).is_some_and(|joint| joint.high_share < best.low_share);
    match more.is_empty() || worse {
        true => Choice::Keep((*base).clone()),
        false => Choice::Confirm {
            base: (*base).clone(),
            more,
        },
    }
}

/// What was seen of exactly these together, whatever the verdict on them.
fn joint_arm(arms: &[Vec<usize>], verdict: &Verdict, all: &[usize]) -> Option<Estimate> {
    let same = |arm: &Vec<usize>| arm.len() == all.len() && arm.iter().all(|n| all.contains(n));
    let place = arms.iter().position(same)? as u32 + 1;
    let mut all = verdict.comparisons.iter();
    all.find(|c| c.arm == place)?.estimate
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Comparison;

    fn settings(texts: &[&str]) -> Vec<Setting> {
        texts.iter().map(|t| t.parse().unwrap()).collect()
    }

    /// A verdict of arms whose effects lie in these intervals.
    fn verdict(intervals: &[(f64, f64)]) -> Verdict {
        let comparison = |(n, (low, high)): (usize, &(f64, f64))| Comparison {
            arm: n as u32 + 1,
            against: 0,
            outcome: match *low > 0.0 {
                true => Outcome::Faster,
                false => Outcome::NotEnoughData,
            },
            pairs: 8,
            pairs_so_far: 8,
            next_look: None,
            estimate: Some(Estimate {
                effect_share: (low + high) / 2.0,
                low_share: *low,
                high_share: *high,
                level: 0.95,
            }),
            running_share: None,
            noise: None,
            p: None,
            beyond_margin: false,
            totals_share: None,
            totals_outside: false,
            more_pairs: None,
            more_time: None,
        };
        Verdict {
            outcome: Outcome::Faster,
            settled: true,
            comparisons: intervals.iter().enumerate().map(comparison).collect(),
            effects: Vec::new(),
            search: None,
            gates: Vec::new(),
            arms: Vec::new(),
            pilot: None,
            position: None,
            change_points: Vec::new(),
            outliers: Vec::new(),
            half_blocks: 0,
            elapsed: model::Nanos(0),
        }
    }

    #[test]
    fn proposals_are_tried_alone_and_together_unless_they_contradict_each_other() {
        let tried = [
            settings(&["sockbuf=8M"]),
            Vec::new(),
            settings(&["congestion=bbr"]),
        ];
        assert_eq!(arms(&tried), [vec![0], vec![2], vec![0, 2]]);
        assert_eq!(arms(&tried[..2]), [vec![0]]);
        assert!(arms(&tried[1..2]).is_empty());
        let rivals = [settings(&["pacing=10M"]), settings(&["pacing=20M"])];
        assert_eq!(arms(&rivals), [vec![0], vec![1]]);
        let same = [
            settings(&["mss=1400", "sockbuf=1M"]),
            settings(&["mss=1400"]),
        ];
        assert_eq!(together(&same, &[0, 1]).unwrap().len(), 2);
    }

    #[test]
    fn what_was_proven_stays_and_what_may_add_to_it_is_confirmed() {
        let three = [vec![0], vec![1], vec![0, 1]];
        for (intervals, then) in [
            (&[(-0.1, 0.1), (-0.2, 0.1), (-0.1, 0.2)], Choice::Nothing),
            (
                &[(0.1, 0.3), (-0.2, 0.1), (0.2, 0.4)],
                Choice::Keep(vec![0]),
            ),
            // Neither alone: two buffers.
            (
                &[(-0.1, 0.1), (-0.1, 0.1), (2.0, 3.0)],
                Choice::Keep(vec![0, 1]),
            ),
            (
                &[(0.1, 0.3), (0.2, 0.3), (0.2, 0.4)],
                Choice::Confirm {
                    base: vec![1],
                    more: vec![0],
                },
            ),
            // Together they are worse than the best one.
            (&[(0.3, 0.5), (2.0, 3.0), (0.3, 0.5)], Choice::Keep(vec![1])),
            // The second does nothing alone, and much on top of the first.
            (
                &[(0.1, 0.3), (-0.1, 0.1), (0.9, 1.1)],
                Choice::Confirm {
                    base: vec![0],
                    more: vec![1],
                },
            ),
        ] {
            assert_eq!(choose(&three, &verdict(intervals)), then, "{intervals:?}");
        }
        let mixed = verdict(&[(0.1, 0.3), (-0.1, 0.1), (0.9, 1.1)]);
        assert_eq!(proven_alone(&three, &mixed), [0]);
        let failed = Verdict {
            outcome: Outcome::NoVerdict,
            ..verdict(&[(0.1, 0.3)])
        };
        assert_eq!(choose(&three[..1], &failed), Choice::Nothing);
        assert_eq!(
            choose(&three[..1], &verdict(&[(0.1, 0.3)])),
            Choice::Keep(vec![0])
        );
    }
}

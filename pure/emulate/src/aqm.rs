//! Active queue management: which packets a queue drops or marks before it is full.

use crate::seed::Purpose;
use crate::{CoDelRule, RedRule};
use model::Nanos;
use model::Random;

/// CoDel's memory (RFC 8289, section 5; the names are the RFC's).
#[derive(Clone, Debug, Default)]
pub(crate) struct CoDel {
    first_above: Option<Nanos>,
    dropping: bool,
    drop_next: Nanos,
    count: u32,
    last_count: u32,
}

impl CoDel {
    /// Asked for every packet that leaves the queue: true to drop or mark it. `sojourn` is how long it
    /// waited; `nearly_empty` says that no more than one packet's worth is left behind it.
    pub(crate) fn chooses(
        &mut self,
        now: Nanos,
        sojourn: Nanos,
        nearly_empty: bool,
        rule: CoDelRule,
    ) -> bool {
        let interval = rule.interval;
        if !self.stands(now, sojourn, nearly_empty, rule) {
            self.dropping = false;
            return false;
        }
        if self.dropping {
            if now < self.drop_next {
                return false;
            }
            self.count += 1;
            self.drop_next = control_law(self.drop_next, interval, self.count);
            return true;
        }
        self.dropping = true;
        // Soon after the last time: go on near the rate that helped then.
        let recently = now.since(self.drop_next).0 < 16 * interval.0;
        let delta = self.count.saturating_sub(self.last_count);
        self.count = if delta > 1 && recently { delta } else { 1 };
        self.last_count = self.count;
        self.drop_next = control_law(now, interval, self.count);
        true
    }

    /// True if the wait has been above the target for a whole interval.
    fn stands(&mut self, now: Nanos, sojourn: Nanos, nearly_empty: bool, rule: CoDelRule) -> bool {
        let CoDelRule { target, interval } = rule;
        if sojourn < target || nearly_empty {
            self.first_above = None;
            return false;
        }
        match self.first_above {
            None => {
                self.first_above = Some(now + interval);
                false
            }
            Some(first) => now >= first,
        }
    }
}

fn control_law(from: Nanos, interval: Nanos, count: u32) -> Nanos {
    from + Nanos((interval.0 as f64 / f64::from(count.max(1)).sqrt()) as u64)
}

/// RED's memory (Floyd and Jacobson 1993, figure 2; the names are the paper's).
#[derive(Clone, Debug)]
pub(crate) struct Red {
    chance: Random,
    average: f64,
    /// Packets since the last choice.
    count: u64,
    idle_since: Option<Nanos>,
}

impl Red {
    pub(crate) fn new(seed: u64) -> Red {
        Red {
            chance: Random::new(seed, Purpose::Aqm as u64),
            average: 0.0,
            count: 0,
            idle_since: None,
        }
    }

    /// The queue has run empty.
    pub(crate) fn idle(&mut self, now: Nanos) {
        self.idle_since.get_or_insert(now);
    }

    /// Asked for every packet that comes: true to drop or mark it. `depth` is what waits before it,
    /// `packet_time` how long one takes to send.
    pub(crate) fn chooses(
        &mut self,
        now: Nanos,
        depth: u64,
        packet_time: Nanos,
        limits: &RedRule,
    ) -> bool {
        if let Some(since) = self.idle_since.take_if(|_| depth == 0) {
            // As if so many small packets had come to an empty queue.
            let missed = now.since(since).0 as f64 / packet_time.0.max(1) as f64;
            self.average *= (1.0 - limits.weight).powf(missed);
        }
        self.average += limits.weight * (depth as f64 - self.average);
        let draw = self.chance.unit();
        if self.average < limits.min as f64 {
            self.count = 0;
            return false;
        }
        if self.average >= limits.max as f64 {
            self.count = 0;
            return true;
        }
        let width = (limits.max - limits.min) as f64;
        let base = limits.probability * (self.average - limits.min as f64) / width;
        // Spreads the choices evenly: the more passed since the last, the likelier.
        let spread = 1.0 - self.count as f64 * base;
        self.count += 1;
        let chosen = spread <= base || draw < base / spread;
        if chosen {
            self.count = 0;
        }
        chosen
    }
}

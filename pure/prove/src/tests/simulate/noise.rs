//! How a path's rate moves by itself.

use model::Random;
use std::f64::consts::TAU;

/// Seconds of a run that count.
pub const SECONDS: usize = 30;
/// Seconds before them (slow start) and behind them (the gap).
const RAMP_S: usize = 2;
const GAP_S: usize = 3;
/// From the start of a run to that of the next.
pub const SLOT_S: usize = RAMP_S + SECONDS + GAP_S;

/// What moves the logarithm of a path's rate, beside independent seconds with a deviation of 0.20.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noise {
    /// Nothing: no path is like this.
    Iid,
    /// Each run has a level of its own, deviation 0.08, and its seconds depend on each other: AR(1) with
    /// 0.7 and a deviation of 0.15 in place of the independent ones.
    Run,
    /// The level of a run, and an Ornstein-Uhlenbeck process with a deviation of 0.20 and 20 minutes.
    Drift,
    /// 30 % less each hour.
    Trend,
    /// The level of a run, and two states, the slow one 45 % below; they last 600 and 240 s on average.
    Regime,
    /// Each run is off by a t of 2 degrees of freedom times 0.05, and one in 20 stalls.
    Heavy,
}

impl Noise {
    /// All of them, the harmless one first.
    pub const ALL: [Noise; 6] = [
        Noise::Iid,
        Noise::Run,
        Noise::Drift,
        Noise::Trend,
        Noise::Regime,
        Noise::Heavy,
    ];

    /// As in the tables.
    pub fn name(self) -> &'static str {
        match self {
            Noise::Iid => "iid",
            Noise::Run => "run",
            Noise::Drift => "drift",
            Noise::Trend => "trend",
            Noise::Regime => "regime",
            Noise::Heavy => "heavy",
        }
    }
}

/// A path as time goes on.
#[derive(Clone, Debug)]
pub struct Path {
    noise: Noise,
    chance: Random,
    second: u32,
    /// The Ornstein-Uhlenbeck process.
    drift: f64,
    slow: bool,
    /// When the state ends.
    until_s: f64,
}

const FAST_S: f64 = 600.0;
const SLOW_S: f64 = 240.0;

impl Path {
    /// A path that has been so for long.
    pub fn new(noise: Noise, seed: u64) -> Path {
        let mut chance = Random::new(seed, 0);
        let drift = 0.20 * normal(&mut chance);
        let slow = chance.unit() < SLOW_S / (FAST_S + SLOW_S);
        let mut path = Path {
            noise,
            chance,
            second: 0,
            drift,
            slow,
            until_s: 0.0,
        };
        path.until_s = path.stay();
        path
    }

    /// The rates of the seconds of the next run; 1 is what the path gives without noise.
    pub fn run(&mut self) -> [f64; SECONDS] {
        let level = match self.noise {
            Noise::Run | Noise::Drift | Noise::Regime => 0.08 * normal(&mut self.chance),
            Noise::Heavy => 0.05 * self.t2(),
            _ => 0.0,
        };
        let stall = (self.noise == Noise::Heavy && self.chance.unit() < 0.05)
            .then(|| 0.1 + 0.8 * self.chance.unit());
        for _ in 0..RAMP_S {
            self.pass();
        }
        let mut within = 0.15 * normal(&mut self.chance);
        let rates = std::array::from_fn(|_| {
            self.pass();
            within = match self.noise {
                Noise::Run => {
                    0.7 * within + 0.15 * (1.0f64 - 0.49).sqrt() * normal(&mut self.chance)
                }
                _ => 0.20 * normal(&mut self.chance),
            };
            let noise = match self.noise {
                Noise::Drift => within + self.drift,
                Noise::Trend => within - 1.3f64.ln() * f64::from(self.second) / 3600.0,
                Noise::Regime if self.slow => within + 0.55f64.ln(),
                _ => within,
            };
            (level + noise).exp() * stall.unwrap_or(1.0)
        });
        for _ in 0..GAP_S {
            self.pass();
        }
        rates
    }

    /// One second goes by.
    fn pass(&mut self) {
        self.second += 1;
        if self.noise == Noise::Drift {
            let keep = (-1.0f64 / 1200.0).exp();
            self.drift =
                keep * self.drift + 0.20 * (1.0 - keep * keep).sqrt() * normal(&mut self.chance);
        }
        if f64::from(self.second) >= self.until_s {
            self.slow = !self.slow;
            self.until_s += self.stay();
        }
    }

    /// How long the state lasts, exponential.
    fn stay(&mut self) -> f64 {
        let mean = if self.slow { SLOW_S } else { FAST_S };
        -mean * (1.0 - self.chance.unit()).ln()
    }

    /// Student's t with 2 degrees of freedom, by its quantile.
    fn t2(&mut self) -> f64 {
        let u = self.chance.unit().clamp(1e-12, 1.0 - 1e-12);
        (2.0 * u - 1.0) / (2.0 * u * (1.0 - u)).sqrt()
    }
}

/// Mean 0, deviation 1 (Box and Muller 1958).
fn normal(chance: &mut Random) -> f64 {
    let (u, v) = (1.0 - chance.unit(), chance.unit());
    (-2.0 * u.ln()).sqrt() * (TAU * v).cos()
}

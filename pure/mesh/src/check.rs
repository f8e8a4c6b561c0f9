//! What a plan takes: time, and bytes of hosts and links.

use crate::light::lasts;
use crate::plan::{first_loud, period, planned, round_length};
use crate::{GoodThreshold, HostPair, Mesh, MeshTest, light_rounds, rounds};
use model::{BitRate, Bytes, Nanos, Workload};

const DAY: Nanos = Nanos::from_secs(86_400);

/// What a mesh takes, and what is wrong with it.
#[derive(Clone, Debug, PartialEq)]
pub struct MeshCheck {
    /// Each test, in the order of the file.
    pub tests: Vec<TestLoad>,
    /// Each host.
    pub hosts: Vec<HostLoad>,
    /// Each link.
    pub links: Vec<LinkLoad>,
    /// Duration of a period, in which the rounds follow each other.
    pub period: Nanos,
    /// What the rounds of a period take at the most.
    pub takes: Nanos,
    /// Why it cannot run, a sentence each.
    pub faults: Vec<String>,
}

/// A cycle of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestLoad {
    /// Ordered pairs that are measured once all were.
    pub cells: usize,
    /// Rounds of a cycle.
    pub rounds: usize,
    /// Duration of a round.
    pub length: Nanos,
    /// Duration of all rounds.
    pub takes: Nanos,
    /// Bytes of a leg, from its rate or, at the least, from what is good or light probes send; `None`: not known.
    pub bytes: Option<Bytes>,
    /// More may pass.
    pub at_least: bool,
}

/// What the tests of a day move through a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostLoad {
    /// Legs a day.
    pub legs: u64,
    /// Sent and received, of the tests whose bytes are known.
    pub bytes: Bytes,
    /// Some test's bytes are not known.
    pub more: bool,
}

/// The same of a link.
pub type LinkLoad = HostLoad;

/// What a mesh takes, by the first cycle of each test.
pub fn check(mesh: &Mesh) -> MeshCheck {
    let period = period(mesh);
    let none = HostLoad {
        legs: 0,
        bytes: Bytes(0),
        more: false,
    };
    let mut hosts = vec![none.clone(); mesh.hosts.len()];
    let mut links = vec![none; mesh.links.len()];
    let mut tests = Vec::new();
    let mut takes = Nanos(0);
    let mut fullest: Option<(u64, String)> = None;
    let mut faults = Vec::new();
    for test in &mesh.tests {
        let mut load = TestLoad {
            cells: test.cells().len(),
            rounds: 0,
            length: Nanos(0),
            takes: Nanos(0),
            bytes: test.bytes_of_leg(),
            at_least: test.light.is_some()
                || matches!(test.spec.workload, Workload::Bulk(_) | Workload::Copy(_))
                    && test.spec.socket.pacing.is_none(),
        };
        let (all, legs) = match &test.light {
            Some(light) => {
                let rounds = light_rounds(test);
                load.rounds = rounds.len();
                (load.length, load.takes) = lasts(light, &rounds);
                if load.takes > test.every {
                    faults.push(format!(
                        "the light probes '{}' take {}, and their 'every' is {}: lengthen 'every', send fewer 'packets', or leave hosts out",
                        test.name,
                        span(load.takes),
                        span(test.every)
                    ));
                }
                (vec![test.cells()], 1)
            }
            None => {
                let all = rounds(mesh, test, 0);
                load.rounds = all.len();
                load.length = round_length(test);
                load.takes = Nanos(load.length.0 * all.len() as u64);
                let periods = (test.every.0 / period.0).max(1);
                takes += Nanos(load.length.0 * (all.len() as u64).div_ceil(periods));
                (all, test.spec.directions.legs().len() as u64)
            }
        };
        let (host_tests, link_tests) = tests_of(mesh, &all);
        for (loads, tests) in [(&mut hosts, &host_tests), (&mut links, &link_tests)] {
            for (load, tests) in loads.iter_mut().zip(tests) {
                // In a day, rounded up: a cycle is not cut short.
                let of_day = (tests * legs * DAY.0).div_ceil(test.every.0);
                load.legs += of_day;
                load.more |= test.bytes_of_leg().is_none() && *tests > 0;
                load.bytes += Bytes(
                    test.bytes_of_leg()
                        .unwrap_or_default()
                        .0
                        .saturating_mul(of_day),
                );
            }
        }
        if test.light.is_some() {
            tests.push(load);
            continue;
        }
        let of_host = mesh.hosts.iter().zip(host_tests);
        let of_host = of_host.map(|(host, tests)| (tests, format!("host '{}'", host.name)));
        let of_link = mesh.links.iter().zip(link_tests);
        let of_link = of_link.map(|(link, tests)| {
            (
                tests.div_ceil(link.units.into()),
                format!("link '{}' (units = {})", link.name, link.units),
            )
        });
        let most = of_host.chain(of_link).max_by_key(|(tests, _)| *tests);
        if most.as_ref().map(|(tests, _)| tests) > fullest.as_ref().map(|(tests, _)| tests) {
            fullest = most;
        }
        tests.push(load);
    }
    if takes > period {
        let (tests, resource) = fullest.unwrap_or_default();
        faults.push(format!(
            "the rounds of a period take {}, and the shortest 'every' is {}: the fullest resource is {resource}, which needs {tests} rounds a cycle; \
             lengthen 'every', shorten 'time', or leave hosts out",
            span(takes),
            span(period)
        ));
    } else if period >= DAY {
        let week = (7 * DAY.0).div_ceil(period.0).max(1);
        let lost = |number: &u64| {
            planned(mesh, *number)
                .iter()
                .any(|round| round.starts.is_none())
        };
        // Some days are quieter than others.
        let lost = (0..week).filter(lost).count();
        if lost > 0 {
            faults.push(format!(
                "the quiet spans leave too little time in {lost} of {week} periods of {}: its rounds take {}; shorten 'quiet' or 'time', \
                 or leave hosts out",
                span(period),
                span(takes)
            ));
        }
    } else {
        let two_weeks = mesh.epoch + Nanos(14 * DAY.0);
        for (_, test) in mesh.booked() {
            let length = round_length(test);
            if first_loud(&mesh.quiet, mesh.epoch, length, two_weeks).is_none() {
                faults.push(format!(
                    "the quiet spans never leave time for a round of the test '{}', which takes {}: shorten 'quiet' or 'time'",
                    test.name,
                    span(length)
                ));
            }
        }
    }
    for (host, load) in mesh.hosts.iter().zip(&hosts) {
        if let Some(most) = host.bytes_a_day
            && load.bytes > most
        {
            faults.push(format!(
                "host '{}': its tests move at least {} a day, and bytes_a_day is {most}: lengthen 'every', shorten 'time', or \
                 limit 'rate'",
                host.name, load.bytes
            ));
        }
    }
    MeshCheck {
        tests,
        hosts,
        links,
        period,
        takes,
        faults,
    }
}

/// How many tests of a cycle each host and each link has.
fn tests_of(mesh: &Mesh, rounds: &[Vec<HostPair>]) -> (Vec<u64>, Vec<u64>) {
    let (mut hosts, mut links) = (vec![0; mesh.hosts.len()], vec![0; mesh.links.len()]);
    for pair in rounds.iter().flatten() {
        hosts[pair.0] += 1;
        hosts[pair.1] += 1;
        mesh.links_between(*pair).for_each(|link| links[link] += 1);
    }
    (hosts, links)
}

impl MeshTest {
    /// What a leg moves: as much as its rate allows, else at the least what is good; of light probes on a usual path.
    pub fn bytes_of_leg(&self) -> Option<Bytes> {
        if let Some(light) = &self.light {
            return Some(light.bytes());
        }
        let of_streams = |rate: BitRate| BitRate(rate.0.saturating_mul(self.spec.streams.into()));
        let rate = match (&self.spec.workload, self.good) {
            (Workload::Udp(udp), _) => Some(of_streams(udp.rate)),
            (Workload::Bulk(_) | Workload::Copy(_), good) => {
                match (self.spec.socket.pacing, good) {
                    (Some(rate), _) => Some(of_streams(rate)),
                    (None, Some(GoodThreshold::Goodput(least))) => Some(least),
                    _ => None,
                }
            }
            (Workload::Request(request), _) => request.pace_per_s.map(|pace| {
                let bytes = request.request_size.0 + request.reply_size.0;
                BitRate((pace * 8.0 * bytes as f64) as u64)
            }),
            _ => None,
        };
        Some(rate?.bytes_in(self.time()))
    }
}

/// A span of time in the largest units: `2 h 5 min`.
pub fn span(span: Nanos) -> String {
    let seconds = span.0.div_ceil(1_000_000_000);
    let parts = [
        (seconds / 86_400, "d"),
        (seconds / 3600 % 24, "h"),
        (seconds / 60 % 60, "min"),
        (seconds % 60, "s"),
    ];
    let parts = parts.iter().filter(|(n, _)| *n > 0).take(2);
    let parts: Vec<String> = parts.map(|(n, unit)| format!("{n} {unit}")).collect();
    match parts.is_empty() {
        true => "0 s".to_owned(),
        false => parts.join(" "),
    }
}

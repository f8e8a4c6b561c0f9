//! What a plan takes: time, and bytes of hosts and links.

use crate::light::lasts;
use crate::plan::{first_loud, next_round, period, planned, round_length};
use crate::{GoodThreshold, HostPair, Mesh, MeshTest, light_rounds, rounds};
use model::{BitRate, Bytes, Nanos, Workload};
use serde::Serialize;

/// Version of the form of [`MeshChecked`].
const SCHEMA: u32 = 1;

const DAY: Nanos = Nanos::from_secs(86_400);

/// What a plan takes, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MeshChecked {
    /// Version of this form, now 1.
    pub schema: u32,
    /// Name of the mesh.
    pub mesh: String,
    /// The shortest cycle, in which the rounds of all tests but light probes follow each other.
    #[serde(rename = "period_ns")]
    pub period: Nanos,
    /// What the rounds of a period take at most.
    #[serde(rename = "takes_ns")]
    pub takes: Nanos,
    /// When the next round begins, since 1970-01-01 UTC; null: for a week the quiet spans leave no time for one.
    #[serde(rename = "next_round_unix_ns")]
    pub next_round: Option<Nanos>,
    /// Each test, in the order of the file.
    pub tests: Vec<CheckedTest>,
    /// Each host.
    pub hosts: Vec<CheckedHost>,
    /// Each link.
    pub links: Vec<CheckedLink>,
    /// Why the plan cannot run, a sentence each; none: it fits.
    pub faults: Vec<String>,
}

/// A test of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckedTest {
    /// Name.
    pub name: String,
    /// Ordered pairs of hosts, all measured in a cycle.
    pub pairs: u64,
    /// Rounds of a cycle.
    pub rounds: u64,
    /// Duration of a round.
    #[serde(rename = "round_ns")]
    pub round: Nanos,
    /// Duration of all rounds.
    #[serde(rename = "rounds_ns")]
    pub all_rounds: Nanos,
    /// Duration of a cycle.
    #[serde(rename = "every_ns")]
    pub every: Nanos,
    /// Payload of a leg, where it is known; of light probes their packets and the answers.
    pub leg_bytes: Option<Bytes>,
    /// More may pass: it is that of a leg which is just good, or of light probes on a usual path.
    pub at_least: bool,
}

/// What the tests of a day move through a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckedHost {
    /// Name.
    pub name: String,
    /// Legs that it sends or receives.
    pub legs_a_day: u64,
    /// Their payload, of the tests for which that is known.
    pub bytes_a_day: Bytes,
    /// There are tests for which it is not known.
    pub more: bool,
    /// `bytes_a_day` of the mesh file, if it is there.
    pub limit: Option<Bytes>,
}

/// What the tests of a day move over a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckedLink {
    /// Name.
    pub name: String,
    /// Tests that it carries at the same time.
    pub units: u32,
    /// Legs that pass it.
    pub legs_a_day: u64,
    /// Their payload, of the tests for which that is known.
    pub bytes_a_day: Bytes,
    /// There are tests for which it is not known.
    pub more: bool,
}

/// What the tests of a day move through a host or a link.
#[derive(Clone, Copy, Default)]
struct DayLoad {
    legs: u64,
    bytes: Bytes,
    more: bool,
}

/// What a mesh takes, by the first cycle of each test, and when the next round from `now` on begins.
pub fn check(mesh: &Mesh, now: Nanos) -> MeshChecked {
    let period = period(mesh);
    let mut hosts = vec![DayLoad::default(); mesh.hosts.len()];
    let mut links = vec![DayLoad::default(); mesh.links.len()];
    let mut tests = Vec::new();
    let mut takes = Nanos(0);
    let mut fullest: Option<(u64, String)> = None;
    let mut faults = Vec::new();
    for test in &mesh.tests {
        let leg_bytes = test.bytes_of_leg();
        let is_unpaced = matches!(test.spec.workload, Workload::Bulk(_) | Workload::Copy(_))
            && test.spec.socket.pacing.is_none();
        let mut load = CheckedTest {
            name: test.name.clone(),
            pairs: test.cells().len() as u64,
            rounds: 0,
            round: Nanos(0),
            all_rounds: Nanos(0),
            every: test.every,
            leg_bytes,
            at_least: (test.light.is_some() || is_unpaced) && leg_bytes.is_some(),
        };
        let (all, legs) = match &test.light {
            Some(light) => {
                let rounds = light_rounds(test);
                load.rounds = rounds.len() as u64;
                (load.round, load.all_rounds) = lasts(light, &rounds);
                if load.all_rounds > test.every {
                    faults.push(format!(
                        "the light probes '{}' take {}, and their 'every' is {}: lengthen 'every', send fewer 'packets', or leave hosts out",
                        test.name,
                        span(load.all_rounds),
                        span(test.every)
                    ));
                }
                (vec![test.cells()], 1)
            }
            None => {
                let all = rounds(mesh, test, 0);
                load.rounds = all.len() as u64;
                load.round = round_length(test);
                load.all_rounds = Nanos(load.round.0 * load.rounds);
                let periods = (test.every.0 / period.0).max(1);
                takes += Nanos(load.round.0 * load.rounds.div_ceil(periods));
                (all, test.spec.directions.legs().len() as u64)
            }
        };
        let (host_tests, link_tests) = tests_of(mesh, &all);
        for (loads, tests) in [(&mut hosts, &host_tests), (&mut links, &link_tests)] {
            for (load, tests) in loads.iter_mut().zip(tests) {
                // In a day, rounded up: a cycle is not cut short.
                let of_day = (tests * legs * DAY.0).div_ceil(test.every.0);
                load.legs += of_day;
                load.more |= leg_bytes.is_none() && *tests > 0;
                load.bytes += Bytes(leg_bytes.unwrap_or_default().0.saturating_mul(of_day));
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
    let hosts = mesh.hosts.iter().zip(hosts);
    let hosts = hosts.map(|(host, load)| CheckedHost {
        name: host.name.clone(),
        legs_a_day: load.legs,
        bytes_a_day: load.bytes,
        more: load.more,
        limit: host.bytes_a_day,
    });
    let hosts: Vec<CheckedHost> = hosts.collect();
    for host in &hosts {
        if let Some(most) = host.limit
            && host.bytes_a_day > most
        {
            faults.push(format!(
                "host '{}': its tests move at least {} a day, and bytes_a_day is {most}: lengthen 'every', shorten 'time', or \
                 limit 'rate'",
                host.name, host.bytes_a_day
            ));
        }
    }
    let links = mesh.links.iter().zip(links);
    let links = links.map(|(link, load)| CheckedLink {
        name: link.name.clone(),
        units: link.units,
        legs_a_day: load.legs,
        bytes_a_day: load.bytes,
        more: load.more,
    });
    MeshChecked {
        schema: SCHEMA,
        mesh: mesh.name.clone(),
        period,
        takes,
        next_round: next_round(mesh, now).map(|(_, starts)| starts),
        tests,
        hosts,
        links: links.collect(),
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

//! The light probes of a mesh: each test in a thread of its own, beside the rounds of the booked tests.
//!
//! In every cycle all hosts are held for light probes, which books nothing, and send them to each other. A host that is
//! away or does not answer has rows with the reason, and no other host waits for it longer than [`HELD_WITHIN`].

use super::calendar::MeshCalendar;
use super::run::{LATE, LOOK, MeshRun};
use crate::controller::PeerLink;
use crate::prelude::*;
use crate::third_party;
use archive::{Archive, CellName};
use mesh::{HostPair, LightRound, LightTest, MeshTest, light_rounds, light_span};
use model::{LegOutcome, MeshLeg};
use std::collections::BTreeSet;
use wire::control::direct::{DirectAnswer, DirectRequest, LightPeer, LightPort, LightResult};

/// A host that is not held by then is away for this cycle.
const HELD_WITHIN: Duration = Duration::from_secs(4);

/// For the answer to a request, beyond what its packets take.
const ANSWERED_WITHIN: Duration = Duration::from_secs(20);

/// Of the good legs of these ages, from the oldest, one an hour is kept; older ones are thinned out already.
const THINNED: [Nanos; 2] = [Nanos::from_secs(31 * 86_400), Nanos::from_secs(86_400)];

/// Cells of which that is done in a transaction.
const THINNED_AT_ONCE: usize = 16;

/// How often.
const THIN_EVERY: Duration = Duration::from_secs(3600);

/// A host that is held for light probes.
struct HeldAgent {
    link: PeerLink,
    /// Where the others reach it.
    peer: LightPeer,
}

/// What became of a cycle.
#[derive(Default)]
struct LightCycle {
    results: BTreeMap<HostPair, LightResult>,
    /// Hosts that are away, refused, or did not answer.
    away: BTreeMap<usize, String>,
    /// Hosts with another measurement.
    busy: BTreeSet<usize>,
}

impl MeshRun<'_> {
    /// Has the hosts of a test send light probes in every cycle, until the user stops it.
    ///
    /// # Errors
    /// If the archive cannot be written.
    pub(super) fn light_cycles(
        &self,
        test: &MeshTest,
        light: &LightTest,
        calendar: &MeshCalendar<'_>,
    ) -> Result<()> {
        let mut archive = Archive::open(&self.archive)?;
        let rounds = light_rounds(test);
        let mut known = BTreeMap::new();
        let mut thinned: Option<Instant> = None;
        while self.goes_on() {
            let steps = self.clock.steps();
            let next = self.now().since(self.mesh.epoch).0 / test.every.0 + 1;
            let starts = self.mesh.epoch + Nanos(next * test.every.0);
            if !self.wait_until(starts, steps) || self.now() >= starts + LATE {
                continue;
            }
            let slot = archive::new_id();
            let cycle = self.light_cycle(test, light, &rounds, &slot);
            if !self.goes_on() {
                break;
            }
            for (host, why) in &cycle.away {
                if known.get(host) != Some(why) {
                    let host = &self.mesh.hosts[*host].name;
                    (self.log)(&format!("{}: {host}: {why}", test.name));
                }
            }
            // Nothing is kept that lies in the future.
            let starts = starts.min(self.now());
            let legs = self.light_legs(test, light, &cycle, &slot, starts);
            self.store(&mut archive, test, legs)?;
            known = cycle.away;
            if thinned.is_none_or(|at| at.elapsed() >= THIN_EVERY) {
                thinned = Some(Instant::now());
                let name = |host: usize| self.mesh.hosts[host].name.as_str();
                let cells = test.cells().into_iter();
                let cells: Vec<CellName<'_>> = cells
                    .map(|(from, to)| [self.mesh.name.as_str(), &test.name, name(from), name(to)])
                    .collect();
                // In parts: a round may have to write meanwhile.
                for cells in cells.chunks(THINNED_AT_ONCE) {
                    let times = THINNED.map(|age| self.now().since(age));
                    archive.thin_mesh_legs(cells, times)?;
                    calendar.thin(cells, times);
                }
            }
        }
        Ok(())
    }

    fn light_cycle(
        &self,
        test: &MeshTest,
        light: &LightTest,
        rounds: &[LightRound],
        slot: &str,
    ) -> LightCycle {
        let mut cycle = LightCycle::default();
        let hosts: BTreeSet<usize> = test.from.iter().chain(&test.to).copied().collect();
        let span = light_span(light, rounds);
        let late = &AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (done, held) = mpsc::channel();
            for host in hosts.iter().copied() {
                let done = done.clone();
                // Nobody waits any longer for one that is late.
                scope.spawn(move || {
                    drop(done.send((host, self.hold_light(host, slot, span, late))))
                });
            }
            drop(done);
            let mut agents = BTreeMap::new();
            for (host, result) in self.collect(&held, hosts.len(), HELD_WITHIN) {
                match result {
                    Ok(agent) => drop(agents.insert(host, agent)),
                    Err(error) => drop(cycle.away.insert(host, sentence(&error))),
                }
            }
            late.store(true, Ordering::Relaxed);
            for host in &hosts {
                if !agents.contains_key(host) {
                    cycle.away.entry(*host).or_insert_with(not_in_time);
                }
            }
            let peers: BTreeMap<usize, LightPeer> = agents
                .iter()
                .map(|(host, agent)| (*host, agent.peer.clone()))
                .collect();
            let none = Vec::new();
            for (at, round) in rounds.iter().enumerate() {
                let (done, lighted) = mpsc::channel();
                let mut asked: BTreeSet<usize> = BTreeSet::new();
                for host in &hosts {
                    let of_host = round.iter().find(|(from, _)| from == host);
                    let to: Vec<usize> = of_host
                        .map_or(&none, |(_, to)| to)
                        .iter()
                        .copied()
                        .filter(|to| peers.contains_key(to))
                        .collect();
                    // One that only answers reports once whether it is busy.
                    if to.is_empty() && at > 0 {
                        continue;
                    }
                    let Some(mut agent) = agents.remove(host) else {
                        continue;
                    };
                    let request = DirectRequest::Light {
                        slot: slot.to_owned(),
                        peers: to.iter().map(|to| peers[to].clone()).collect(),
                        packets: light.packets,
                        gap: light.gap(to.len()),
                        sizes: light.sizes.clone(),
                        ip_version: test.spec.socket.ip_version,
                    };
                    let (done, host) = (done.clone(), *host);
                    let within = Duration::from(light.round_length(to.len())) + ANSWERED_WITHIN;
                    asked.insert(host);
                    scope.spawn(move || {
                        let answer =
                            third_party::ask(&mut agent.link, request, within, &|| self.goes_on());
                        let results = match answer {
                            // A host that only answers need not allow more.
                            Err(_) if to.is_empty() => Ok((false, Vec::new())),
                            Err(error) => Err(error),
                            Ok(answer) => lighted_of(answer, &agent.link, light, to),
                        };
                        drop(done.send((host, agent, results)));
                    });
                }
                drop(done);
                let longest =
                    Duration::from(light.round_length(model::light::MAX_PEERS)) + ANSWERED_WITHIN;
                for (host, agent, results) in self.collect(&lighted, asked.len(), longest) {
                    match results {
                        Ok((is_busy, results)) => {
                            cycle.busy.extend(is_busy.then_some(host));
                            cycle.results.extend(
                                results.into_iter().map(|(to, result)| ((host, to), result)),
                            );
                        }
                        Err(error) => drop(cycle.away.insert(host, sentence(&error))),
                    }
                    asked.remove(&host);
                    agents.insert(host, agent);
                }
                for host in asked {
                    cycle.away.insert(host, not_in_time());
                }
            }
            for agent in agents.values_mut() {
                // What cannot be released ends by itself.
                let _ = agent.link.direct(DirectRequest::Release {
                    slot: slot.to_owned(),
                });
            }
        });
        cycle
    }

    /// What so many threads send, as far as it comes in time and is still wanted.
    fn collect<T>(&self, from: &mpsc::Receiver<T>, count: usize, within: Duration) -> Vec<T> {
        let until = Instant::now() + within;
        let mut all = Vec::new();
        while all.len() < count && self.goes_on() {
            let left = until.saturating_duration_since(Instant::now());
            match from.recv_timeout(left.min(LOOK)) {
                Ok(one) => all.push(one),
                Err(mpsc::RecvTimeoutError::Timeout) if !left.is_zero() => {}
                Err(_) => break,
            }
        }
        all
    }

    fn hold_light(
        &self,
        host: usize,
        slot: &str,
        span: Nanos,
        late: &AtomicBool,
    ) -> Result<HeldAgent> {
        let host = &self.mesh.hosts[host];
        let (mut link, (name, _)) = third_party::connect(&host.agent.parse()?, &self.how(late))?;
        let at: LightPort = third_party::hold_light(&mut link, slot, span, HELD_WITHIN)?;
        let name = host.data.clone().unwrap_or(name);
        Ok(HeldAgent {
            link,
            peer: LightPeer { name, at },
        })
    }

    /// A row for each cell, not judged yet.
    fn light_legs(
        &self,
        test: &MeshTest,
        light: &LightTest,
        cycle: &LightCycle,
        slot: &str,
        starts: Nanos,
    ) -> Vec<MeshLeg> {
        let name = |host: usize| self.mesh.hosts[host].name.as_str();
        let legs = test
            .cells()
            .into_iter()
            .enumerate()
            .map(|(at, (from, to))| {
                let cell = [&self.mesh.name, &test.name, name(from), name(to)];
                let bare =
                    MeshLeg::bare(slot.to_owned(), at as u32, cell, starts, LegOutcome::Missed);
                let bare = MeshLeg {
                    packets: Some(0),
                    ..bare
                };
                let away =
                    |host: usize| Some(format!("{}: {}", name(host), cycle.away.get(&host)?));
                match cycle.results.get(&(from, to)) {
                    Some(result) => MeshLeg {
                        busy: cycle.busy.contains(&from) || cycle.busy.contains(&to),
                        ..of_result(result, light.gap(1), bare)
                    },
                    None => MeshLeg {
                        why: away(from).or(away(to)),
                        ..bare
                    },
                }
            });
        legs.collect()
    }
}

fn not_in_time() -> String {
    "it did not answer in time".to_owned()
}

/// Whether the host was busy, and what came of the probes to these hosts.
fn lighted_of(
    answer: DirectAnswer,
    agent: &PeerLink,
    light: &LightTest,
    to: Vec<usize>,
) -> Result<(bool, Vec<(usize, LightResult)>)> {
    let possible = |result: &LightResult| {
        result.came <= result.sent && result.sent <= light.packets && result.largest <= Some(65_535)
    };
    match answer {
        DirectAnswer::Lighted { busy, peers }
            if peers.len() == to.len() && peers.iter().all(possible) =>
        {
            Ok((busy, to.into_iter().zip(peers).collect()))
        }
        _ => bail!(third_party::out_of_turn(agent)),
    }
}

fn of_result(result: &LightResult, gap: Nanos, bare: MeshLeg) -> MeshLeg {
    let LightResult { sent, came, .. } = *result;
    let lost = u64::from(sent - came) * 1_000_000;
    let (outcome, why) = match (&result.why, result.rtt_p50) {
        (Some(why), _) => (LegOutcome::Failed, Some(why.clone())),
        (None, Some(_)) => (LegOutcome::Good, None),
        (None, None) => {
            let why = format!("of {sent} packets {came} arrived, and no answer came back");
            (LegOutcome::Failed, Some(why))
        }
    };
    MeshLeg {
        span: Nanos(gap.0 * u64::from(sent)),
        packets: Some(sent.into()),
        loss_ppm: lost.checked_div(sent.into()),
        rtt_idle: result.rtt_min,
        rtt_p50: result.rtt_p50,
        rtt_p95: result.rtt_p95,
        mtu: result.largest.map(u64::from),
        outcome,
        why,
        ..bare
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_of_probes_is_a_leg() {
        let of = |came: u32, rtt_p50: Option<Nanos>, why: Option<&str>| {
            let result = LightResult {
                sent: 3,
                came,
                rtt_min: Some(Nanos(5)),
                rtt_p50,
                rtt_p95: Some(Nanos(9)),
                largest: Some(1500),
                why: why.map(str::to_owned),
            };
            let cell = ["m", "t", "a", "b"];
            let bare = MeshLeg::bare("slot".to_owned(), 0, cell, Nanos(7), LegOutcome::Missed);
            of_result(&result, Nanos(10), bare)
        };
        let good = of(2, Some(Nanos(6)), None);
        assert_eq!((good.outcome, good.why), (LegOutcome::Good, None));
        assert_eq!((good.span, good.packets), (Nanos(30), Some(3)));
        assert_eq!((good.loss_ppm, good.mtu), (Some(333_333), Some(1500)));
        assert_eq!(of(3, Some(Nanos(6)), None).loss_ppm, Some(0));
        let silent = of(1, None, None);
        assert_eq!(silent.outcome, LegOutcome::Failed);
        let why = "of 3 packets 1 arrived, and no answer came back";
        assert_eq!(silent.why.as_deref(), Some(why));
        // What the agent says comes first.
        let refused = of(0, Some(Nanos(6)), Some("no port"));
        assert_eq!(refused.outcome, LegOutcome::Failed);
        assert_eq!(refused.why.as_deref(), Some("no port"));
    }

    use crate::testing::directed;
    use mesh::{Mesh, parse_mesh};

    fn mesh_of() -> Mesh {
        let hosts = ["a", "b", "c"]
            .map(|name| format!("[[host]]\nname = \"{name}\"\nagent = \"{name}\"\n"));
        let test = "[[test]]\nname = \"l\"\nkind = \"light\"\nhosts = [\"*\"]\npackets = 5\n";
        let text = format!("[mesh]\nname = \"m\"\n{}{test}", hosts.concat());
        parse_mesh(&text, "m.toml").unwrap()
    }

    fn result(sent: u32, came: u32, largest: Option<u32>) -> LightResult {
        LightResult {
            sent,
            came,
            largest,
            rtt_p50: Some(Nanos(7)),
            ..LightResult::default()
        }
    }

    #[test]
    fn an_agent_answers_for_each_host_with_what_is_possible() {
        let mesh = mesh_of();
        let light = mesh.tests[0].light.as_ref().unwrap();
        let agent = directed("db1", |_| None);
        let of = |busy, peers: Vec<LightResult>, to: Vec<usize>| {
            let answer = DirectAnswer::Lighted { busy, peers };
            lighted_of(answer, &agent, light, to).map_err(|why| why.to_string())
        };
        let most = result(5, 5, Some(65_535));
        let (busy, found) = of(true, vec![most.clone(), result(0, 0, None)], vec![2, 1]).unwrap();
        assert!(busy);
        assert_eq!(found, [(2, most.clone()), (1, result(0, 0, None))]);
        assert!(!of(false, Vec::new(), Vec::new()).unwrap().0);
        for (peers, to) in [
            (vec![most.clone()], vec![1, 2]),
            (vec![most.clone(), most], vec![1]),
            (vec![result(6, 5, None)], vec![1]),
            (vec![result(4, 5, None)], vec![1]),
            (vec![result(5, 5, Some(65_536))], vec![1]),
        ] {
            let why = of(false, peers, to).unwrap_err();
            assert!(why.starts_with("db1 answered out of turn"), "{why}");
        }
        let other = lighted_of(DirectAnswer::Confirmed, &agent, light, Vec::new());
        assert!(other.is_err());
    }

    /// Has this done by a coordinator that may be stopped.
    fn coordinator<T>(mesh: &Mesh, act: impl FnOnce(&MeshRun<'_>, &AtomicBool) -> T) -> T {
        let dir = crate::testing::TempDir::new();
        let stop = AtomicBool::new(false);
        let run = MeshRun {
            mesh,
            archive: dir.path().join("runs.db"),
            directory: dir.path().to_owned(),
            stop: &stop,
            log: &|_| {},
            alerts: super::super::AlertQueue::default(),
            ended: false.into(),
            clock: super::super::MeshClock::default(),
        };
        act(&run, &stop)
    }

    #[test]
    fn each_cell_has_a_row_with_its_result_or_why_there_is_none() {
        let mesh = mesh_of();
        let test = &mesh.tests[0];
        let light = test.light.as_ref().unwrap();
        let mut cycle = LightCycle::default();
        cycle.results.insert((0, 1), result(5, 4, Some(1500)));
        cycle.results.insert((1, 0), result(5, 5, Some(1500)));
        cycle.busy.insert(1);
        cycle.away.insert(2, "it is off".to_owned());
        let (slot, starts) = ("0".repeat(32), Nanos::from_secs(60));
        let legs = coordinator(&mesh, |run, _| {
            run.light_legs(test, light, &cycle, &slot, starts)
        });
        assert_eq!(legs.len(), 6);
        let numbers: Vec<u32> = legs.iter().map(|leg| leg.leg).collect();
        assert_eq!(numbers, [0, 1, 2, 3, 4, 5]);
        for leg in &legs {
            assert_eq!((leg.run.as_str(), leg.starts), (slot.as_str(), starts));
            let of_c = leg.src == "c" || leg.dst == "c";
            let why = of_c.then_some("c: it is off");
            assert_eq!(leg.why.as_deref(), why, "{leg:?}");
            let (outcome, packets) = match of_c {
                true => (LegOutcome::Missed, Some(0)),
                false => (LegOutcome::Good, Some(5)),
            };
            assert_eq!((leg.outcome, leg.packets), (outcome, packets));
            assert_eq!(leg.busy, !of_c, "either of both is");
        }
        assert_eq!(legs[0].loss_ppm, Some(200_000));
        assert_eq!(legs[0].span, Nanos(5 * light.gap(1).0));
        let free = LightCycle {
            busy: BTreeSet::new(),
            ..cycle
        };
        let legs = coordinator(&mesh, |run, _| {
            run.light_legs(test, light, &free, &slot, starts)
        });
        assert!(legs.iter().all(|leg| !leg.busy));
    }

    #[test]
    fn threads_are_waited_for_until_all_have_sent_the_time_is_over_or_nobody_wants_it() {
        let mesh = mesh_of();
        coordinator(&mesh, |run, stop| {
            let (send, from) = mpsc::channel();
            let long = Duration::from_secs(3600);
            (0..3).for_each(|n| send.send(n).unwrap());
            assert_eq!(run.collect(&from, 2, long), [0, 1]);
            let begun = Instant::now();
            assert_eq!(run.collect(&from, 2, Duration::from_millis(20)), [2]);
            assert!(begun.elapsed() >= Duration::from_millis(20));
            assert_eq!(run.collect(&from, 0, long), [0; 0]);
            send.send(3).unwrap();
            stop.store(true, Ordering::Relaxed);
            assert_eq!(run.collect(&from, 1, long), [0; 0]);
            stop.store(false, Ordering::Relaxed);
            drop(send);
            assert_eq!(run.collect(&from, 2, long), [3], "nobody sends any more");
        });
    }
}

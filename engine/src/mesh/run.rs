//! The coordinator: has the agents of a mesh measure by its plan, one round after the other, and keeps what comes of it.
//!
//! It has no state but the archive: what runs at a moment follows from the mesh file and the clock, so it may be ended and
//! started at any point. A leg that was ordered has a row before the source begins; a coordinator that starts fetches
//! the runs of such rows.

use super::alerts::AlertQueue;
use super::calendar::{MeshCalendar, NoCalendar, PairBooked};
use super::clock::MeshClock;
use super::legs::{legs_of_mtu, legs_of_run, without_run};
use super::{OF_LEVEL, measured, next_round};
use crate::exit::{Exit, exit_of};
use crate::histories::shifts_of;
use crate::prelude::*;
use crate::progress::Tee;
use crate::third_party::{self, HostBusy, Pair, PairOrder, SlotResult};
use crate::transport::How;
use archive::Archive;
use mesh::{
    GoodThreshold, HostPair, Mesh, MeshTest, PlannedRound, first_loud, judge, light_bytes_a_day,
    period, planned, round_length, too_small,
};
use model::{CellFigure, LegOutcome, MeshLeg};
use std::collections::BTreeSet;
use std::sync::mpsc::{self, RecvTimeoutError};

/// How soon the wish to stop and the clock are noticed.
pub(super) const LOOK: Duration = Duration::from_millis(100);

/// A round that should have begun so long ago is not caught up.
pub(super) const LATE: Nanos = Nanos::from_secs(1);

/// A host that TCP does not reach so long is away: no other round waits for it.
const REACHED_WITHIN: Duration = Duration::from_secs(3);

/// A busy host is waited for as long as the slot has time for it.
const BUSY_FOR: Duration = Duration::from_secs(2);

/// From the end of the legs to the end of the round.
const BEFORE_THE_NEXT: Nanos = Nanos::from_secs(1);

const DAY: Nanos = Nanos::from_secs(86_400);

/// A change of level of light probes is looked for among so many legs, in each cell every so many cycles: there are many
/// cells in a minute, and one that changes takes a tenth of a second with 200.
const OF_LIGHT_LEVEL: u32 = 60;
const LIGHT_LEVEL_EVERY: u64 = 10;

/// Why a leg has no result yet.
pub(super) const PENDING: &str =
    "its result is not known: the coordinator ended, or lost the source";

/// What a coordinator needs.
pub struct MeshRun<'a> {
    /// The plan.
    pub mesh: &'a Mesh,
    /// Where legs and runs are kept.
    pub archive: PathBuf,
    /// The directory of this host's key.
    pub directory: PathBuf,
    /// Set by the user's wish to stop.
    pub stop: &'a AtomicBool,
    /// Takes a line for the log.
    pub log: &'a (dyn Fn(&str) + Sync),
    /// Alerts that are due; none at first.
    pub alerts: AlertQueue,
    /// Set once the rounds or the light probes cannot go on; false at first.
    pub ended: AtomicBool,
    /// The clock of the rounds.
    pub clock: MeshClock,
}

/// A pair that measures, and its slot.
struct SlotOfPair {
    /// The test, by index in [`Mesh::tests`].
    test: usize,
    pair: HostPair,
    slot: String,
}

/// A pair whose hosts or links are booked by others: it is tried again in the time that a period has left.
struct PutOff {
    of: SlotOfPair,
    why: String,
    /// When they should be free; `None`: not in this period.
    free: Option<Nanos>,
}

/// The connection to the source ended before the result was known.
#[derive(Debug, thiserror::Error)]
#[error("the connection to the source was lost, its run is fetched later")]
struct LostSource;

impl MeshRun<'_> {
    /// Measures round after round until the user stops it.
    ///
    /// # Errors
    /// If another coordinator of this mesh has this archive, or the archive cannot be written.
    pub fn run(&self) -> Result<()> {
        let mut archive = Archive::open(&self.archive)?;
        let name = &self.mesh.name;
        let Some(_lock) = archive.lock(&format!("mesh-{name}"))? else {
            bail!(Refusal::usage(format!(
                "another 'mesh run' of the mesh '{name}' keeps its results in {}: one of a mesh is possible",
                self.archive.display()
            )));
        };
        let calendar = &MeshCalendar::start(self.mesh, self.log, &|| self.goes_on())?;
        (self.log)(&next_round(self.mesh, self.now()));
        std::thread::scope(|scope| {
            let calendar_kept = scope.spawn(|| {
                let result = Archive::open(&self.archive)
                    .and_then(|mut archive| calendar.keep(&mut archive, &|| self.goes_on()));
                self.ended.store(true, Ordering::Relaxed);
                Ok(result?)
            });
            scope.spawn(|| self.alerts.work(&|| self.goes_on(), self.log));
            let lights = self.mesh.tests.iter();
            let lights = lights.filter_map(|test| Some((test, test.light.as_ref()?)));
            let lights: Vec<_> = lights
                .map(|(test, light)| {
                    scope.spawn(move || {
                        let result = self.light_cycles(test, light, calendar);
                        self.ended.store(true, Ordering::Relaxed);
                        result
                    })
                })
                .collect();
            let rounds = self.rounds(&mut archive, calendar);
            self.ended.store(true, Ordering::Relaxed);
            let lights = lights.into_iter();
            let others = lights.chain([calendar_kept]);
            let others = others.map(|one| one.join().expect("light probes do not panic"));
            let result = others.fold(rounds, Result::and);
            // What cannot be delivered any more waits for the next coordinator.
            let _ = calendar.deliver(&mut archive)?;
            result
        })
    }

    /// The rounds of the booked tests, planned again whenever the clock is set.
    pub(super) fn rounds(&self, archive: &mut Archive, calendar: &MeshCalendar<'_>) -> Result<()> {
        while self.goes_on() {
            self.rounds_until_set(archive, calendar)?;
            if self.goes_on() {
                calendar.release_all();
            }
        }
        Ok(())
    }

    fn rounds_until_set(&self, archive: &mut Archive, calendar: &MeshCalendar<'_>) -> Result<()> {
        let period = period(self.mesh);
        let steps = self.clock.steps();
        let begun = self.now();
        self.wait_until(self.mesh.epoch, steps);
        while self.goes_on_since(steps) {
            let mut asked = BTreeSet::new();
            let number = self.now().since(self.mesh.epoch).0 / period.0;
            let starts = Nanos(self.mesh.epoch.0 + number * period.0);
            let mut put_off = Vec::new();
            for round in planned(self.mesh, number) {
                let now = self.now();
                if !self.goes_on_since(steps) {
                    break;
                }
                match round.starts {
                    None if starts >= begun => {
                        let why = "the quiet spans leave no time for it";
                        self.leave_out(archive, &round, LegOutcome::Skipped, why)?;
                    }
                    None => {}
                    Some(at) if at + LATE < now && at < begun => {}
                    Some(at) if at + LATE < now => {
                        let why = "the coordinator was late for its round";
                        self.leave_out(archive, &round, LegOutcome::Missed, why)?;
                    }
                    Some(at) => {
                        self.fetch_pending(archive, &mut asked, at, steps)?;
                        if self.wait_until(at, steps) && self.now() < at + LATE {
                            let slots = self.slots(archive, &round)?;
                            let times = [at, starts + period];
                            put_off.extend(self.play(archive, calendar, slots, times, steps)?);
                        }
                    }
                }
            }
            self.play_put_off(archive, calendar, put_off, starts + period, steps)?;
            self.fetch_pending(archive, &mut asked, starts + period, steps)?;
            self.wait_until(starts + period, steps);
        }
        Ok(())
    }

    pub(super) fn how<'s>(&self, stop: &'s AtomicBool) -> How<'s> {
        How {
            directory: self.directory.clone(),
            stop: Some(stop),
            within: Some(REACHED_WITHIN),
            ..How::default()
        }
    }

    pub(super) fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed) && !self.ended.load(Ordering::Relaxed)
    }

    /// And the clock was not set since it had been so often.
    fn goes_on_since(&self, steps: u64) -> bool {
        self.goes_on() && self.clock.steps() == steps
    }

    /// Now. A clock that was set is in the log once.
    pub(super) fn now(&self) -> Nanos {
        let (now, step) = self.clock.read();
        if let Some(step) = step {
            let by = Nanos(step.unsigned_abs().try_into().unwrap_or(u64::MAX));
            (self.log)(&format!(
                "the clock of this host was set {} by {}: all slots are released and the rounds planned again; {}",
                if step > 0 { "forward" } else { "back" },
                mesh::span(by),
                next_round(self.mesh, now)
            ));
        }
        now
    }

    /// Whether that moment has come; not if the user stops it, or the clock is set since it had been so often.
    pub(super) fn wait_until(&self, moment: Nanos, steps: u64) -> bool {
        loop {
            let left = Duration::from(moment.since(self.now()));
            if !self.goes_on_since(steps) || left.is_zero() {
                return self.goes_on_since(steps);
            }
            self.clock.sleep(left.min(LOOK));
        }
    }

    fn leave_out(
        &self,
        archive: &mut Archive,
        round: &PlannedRound,
        outcome: LegOutcome,
        why: &str,
    ) -> Result<()> {
        let test = &self.mesh.tests[round.test];
        for pair in &round.pairs {
            let slot = archive::new_id();
            self.store_absent(archive, test, *pair, slot, outcome, why.to_owned())?;
        }
        Ok(())
    }

    /// The pairs of a round that may measure now.
    fn slots(&self, archive: &mut Archive, round: &PlannedRound) -> Result<Vec<SlotOfPair>> {
        let test = &self.mesh.tests[round.test];
        let mut slots = Vec::new();
        for pair in &round.pairs {
            let slot = archive::new_id();
            match self.above_budget(archive, test, *pair)? {
                Some(why) => {
                    self.store_absent(archive, test, *pair, slot, LegOutcome::Skipped, why)?;
                }
                None => slots.push(SlotOfPair {
                    test: round.test,
                    pair: *pair,
                    slot,
                }),
            }
        }
        Ok(slots)
    }

    /// Has these pairs measure at the same time, from then on; which of them are put off, until the end of the period at most.
    fn play(
        &self,
        archive: &mut Archive,
        calendar: &MeshCalendar<'_>,
        slots: Vec<SlotOfPair>,
        [starts, until]: [Nanos; 2],
        steps: u64,
    ) -> Result<Vec<PutOff>> {
        let mut ends = starts;
        for SlotOfPair { test, pair, slot } in &slots {
            let test = &self.mesh.tests[*test];
            ends = ends.max(starts + round_length(test) - BEFORE_THE_NEXT);
            let outcome = LegOutcome::Missed;
            let pending = without_run(self.mesh, test, *pair, slot, starts, outcome, PENDING);
            self.store_rows(archive, &pending)?;
        }
        let over = &AtomicBool::new(false);
        let measured = std::thread::scope(|scope| {
            let running: Vec<_> = slots
                .into_iter()
                .map(|of| {
                    scope.spawn(move || {
                        let result = self.measure(calendar, &of, until, over);
                        (of, result)
                    })
                })
                .collect();
            while running.iter().any(|one| !one.is_finished()) {
                if self.now() >= ends || !self.goes_on_since(steps) {
                    over.store(true, Ordering::Relaxed);
                }
                std::thread::sleep(LOOK);
            }
            let joined = running
                .into_iter()
                .map(|one| one.join().expect("a measurement does not panic"));
            joined.collect::<Vec<_>>()
        });
        // Nothing is kept that lies in the future.
        let starts = starts.min(self.now());
        let was_set = self.clock.steps() != steps;
        let mut put_off = Vec::new();
        for (of, result) in measured {
            let result = match result {
                Ok(SlotResult::Run(run)) if was_set && run.ended != Ended::Complete => {
                    let why = "the clock of the coordinator was set meanwhile";
                    Err(Refusal::unreachable(why.to_owned()).into())
                }
                result => result,
            };
            put_off.extend(self.keep(archive, of, result, starts)?);
        }
        Ok(put_off)
    }

    /// Has those that were put off measure as soon as they can, before the end of the period.
    fn play_put_off(
        &self,
        archive: &mut Archive,
        calendar: &MeshCalendar<'_>,
        mut waiting: Vec<PutOff>,
        ends: Nanos,
        steps: u64,
    ) -> Result<()> {
        while self.goes_on() {
            let mut first: Option<(Nanos, usize)> = None;
            let mut later = Vec::new();
            for one in waiting {
                let test = &self.mesh.tests[one.of.test];
                let free = one.free.map(|free| free.max(self.now()));
                let free = free.filter(|_| self.clock.steps() == steps);
                let length = round_length(test);
                match free.and_then(|free| first_loud(&self.mesh.quiet, free, length, ends)) {
                    Some(at) => {
                        first =
                            Some(first.map_or((at, one.of.test), |it| it.min((at, one.of.test))));
                        later.push((at, one));
                    }
                    None => {
                        let SlotOfPair { pair, slot, .. } = one.of;
                        self.log_missed(test, pair, &one.why);
                        let outcome = LegOutcome::Missed;
                        self.store_absent(archive, test, pair, slot, outcome, one.why)?;
                    }
                }
            }
            let Some((at, test)) = first else {
                return Ok(());
            };
            if !self.wait_until(at, steps) {
                waiting = later.into_iter().map(|(_, one)| one).collect();
                continue;
            }
            let is_due = |(free, one): &(Nanos, PutOff)| *free <= at && one.of.test == test;
            let (due, later): (Vec<_>, Vec<_>) = later.into_iter().partition(is_due);
            waiting = later.into_iter().map(|(_, one)| one).collect();
            let slots = due.into_iter().map(|(_, one)| one.of).collect();
            waiting.extend(self.play(archive, calendar, slots, [self.now(), ends], steps)?);
        }
        Ok(())
    }

    fn measure(
        &self,
        calendar: &MeshCalendar<'_>,
        SlotOfPair { test, pair, slot }: &SlotOfPair,
        until: Nanos,
        over: &AtomicBool,
    ) -> Result<SlotResult> {
        let test = &self.mesh.tests[*test];
        let span = third_party::span(&test.spec)?;
        let (booking, ends) = calendar.hold(test, *pair, slot, span, until)?;
        tune::step("slot booked");
        let confirmed = || {
            calendar.confirm(&booking)?;
            tune::step("slot confirmed");
            Ok(())
        };
        let ordered = || calendar.keep_to_its_end(slot);
        let result = self.measure_booked(test, *pair, slot, (ends, &confirmed, &ordered), over);
        // A source that is lost goes on.
        if !result.as_ref().is_err_and(|error| error.is::<LostSource>()) {
            calendar.release(slot);
        }
        result
    }

    fn measure_booked(
        &self,
        test: &MeshTest,
        (from, to): HostPair,
        slot: &str,
        (ends, confirmed, ordered): (Instant, &dyn Fn() -> Result<()>, &dyn Fn()),
        over: &AtomicBool,
    ) -> Result<SlotResult> {
        let [source, destination] = [from, to].map(|host| &self.mesh.hosts[host]);
        let how = self.how(over);
        let (mut from, _) = third_party::connect(&source.agent.parse()?, &how)?;
        let (mut towards, (name, port)) = third_party::connect(&destination.agent.parse()?, &how)?;
        let order = PairOrder {
            slot: slot.to_owned(),
            spec: test.spec.clone(),
            is_mtu: test.figure == CellFigure::Mtu,
            to: (destination.data.clone().unwrap_or(name), port),
            outage: Nanos(0),
            title: Some(format!(
                "mesh {} {}: {} to {}",
                self.mesh.name, test.name, source.name, destination.name
            )),
            patience: BUSY_FOR,
            ends: Some(ends),
            confirmed,
            ordered,
        };
        let mut pair = Pair {
            source: &mut from,
            destination: &mut towards,
        };
        let result = pair.measure(&order, &mut Tee(Vec::new()), over);
        // It goes on there, and is fetched later.
        match from.is_lost() {
            true => result.context(LostSource),
            false => result,
        }
    }

    /// Keeps what became of a pair, or puts it off.
    fn keep(
        &self,
        archive: &mut Archive,
        of: SlotOfPair,
        result: Result<SlotResult>,
        starts: Nanos,
    ) -> Result<Option<PutOff>> {
        let test = &self.mesh.tests[of.test];
        let error = match result {
            Ok(result) => {
                let kept = self.keep_result(archive, test, (of.pair, starts), &result);
                return kept.map(|()| None);
            }
            Err(error) => error,
        };
        let why = sentence(&error);
        if error.is::<LostSource>() {
            self.log_missed(test, of.pair, &why);
            return Ok(None);
        }
        let free = match (
            error.downcast_ref::<PairBooked>(),
            error.downcast_ref::<HostBusy>(),
        ) {
            (Some(booked), _) => Some(booked.free),
            (_, Some(busy)) => Some(Some(self.now() + busy.free_in)),
            _ => None,
        };
        let legs = |outcome, why: &str| {
            without_run(self.mesh, test, of.pair, &of.slot, starts, outcome, why)
        };
        if let Some(free) = free {
            // Without an alert as yet.
            let for_now = format!("{why}; it is tried again in this period");
            self.store_rows(archive, &legs(LegOutcome::Missed, &for_now))?;
            return Ok(Some(PutOff { of, why, free }));
        }
        let is_known = error.is::<NoCalendar>();
        if !is_known {
            self.log_missed(test, of.pair, &why);
        }
        let outcome = match exit_of(&error) {
            Exit::Failed if !is_known => LegOutcome::Failed,
            _ => LegOutcome::Missed,
        };
        self.store(archive, test, legs(outcome, &why))?;
        Ok(None)
    }

    fn log_missed(&self, test: &MeshTest, (from, to): HostPair, why: &str) {
        let [from, to] = [from, to].map(|host| &self.mesh.hosts[host].name);
        (self.log)(&format!("{}: {from} to {to}: {why}", test.name));
    }

    fn keep_result(
        &self,
        archive: &mut Archive,
        test: &MeshTest,
        (pair, starts): (HostPair, Nanos),
        result: &SlotResult,
    ) -> Result<()> {
        let legs = match result {
            SlotResult::Run(run) => {
                archive.import(run)?;
                legs_of_run(self.mesh, test, (pair, starts), run)
            }
            SlotResult::Mtu(record) => {
                archive.store_mtu(record)?;
                legs_of_mtu(self.mesh, test, pair, starts, record)
            }
        };
        self.store(archive, test, legs)
    }

    fn store_absent(
        &self,
        archive: &mut Archive,
        test: &MeshTest,
        pair: HostPair,
        slot: String,
        outcome: LegOutcome,
        why: String,
    ) -> Result<()> {
        let legs = without_run(self.mesh, test, pair, &slot, self.now(), outcome, &why);
        self.store(archive, test, legs)
    }

    /// Where coordinators share a PostgreSQL, [`MeshCalendar::deliver`] takes them there.
    fn store_rows(&self, archive: &mut Archive, legs: &[MeshLeg]) -> Result<()> {
        Ok(archive.store_mesh_legs(legs, self.mesh.calendar.is_some())?)
    }

    /// Judges legs of different cells, keeps them, and executes the alerts that are due.
    pub(super) fn store(
        &self,
        archive: &mut Archive,
        test: &MeshTest,
        mut legs: Vec<MeshLeg>,
    ) -> Result<()> {
        let mut due = Vec::new();
        for (at, leg) in legs.iter_mut().enumerate() {
            let cell = [&self.mesh.name, &test.name, &leg.src, &leg.dst].map(String::as_str);
            let (window, is_due) = match test.light {
                None => (OF_LEVEL, true),
                Some(_) => {
                    let turn = leg.starts.0 / test.every.0 + at as u64;
                    (OF_LIGHT_LEVEL, turn.is_multiple_of(LIGHT_LEVEL_EVERY))
                }
            };
            let mut earlier = archive.mesh_cell(cell, self.now(), window)?;
            earlier.retain(|other| other.run != leg.run);
            let mut runs = measured(test, &earlier);
            let before = earlier.first().and_then(|other| other.level_since);
            leg.level_since = before;
            if let Some(newest) = measured(test, std::slice::from_ref(leg)).pop() {
                let figures: Vec<f64> = runs.iter().map(|run| run.value).collect();
                leg.outcome = judge(test, newest.value, &figures);
                if leg.outcome == LegOutcome::Low && leg.why.is_none() {
                    leg.why = test.good.map(|good| match good {
                        GoodThreshold::Size(size) => too_small(size),
                        good => format!("worse than {good}"),
                    });
                }
                if let Some(why) = test.light.as_ref().and_then(|light| light.shortfall(leg)) {
                    leg.outcome = LegOutcome::Low;
                    leg.why = Some(why);
                }
                if is_due {
                    runs.insert(0, newest);
                    runs.reverse();
                    let last = shifts_of(&runs).pop();
                    leg.level_since = last.map(|shift| runs[shift.at].started);
                }
            }
            let shifted = leg.level_since.is_some() && leg.level_since != before;
            let mut outcomes = vec![leg.outcome];
            outcomes.extend(earlier.iter().map(|other| other.outcome));
            outcomes.retain(|outcome| *outcome != LegOutcome::Skipped);
            let alerts = self.mesh.alerts.iter();
            let alerts = alerts.filter(|alert| {
                alert.test == test.name
                    && leg.outcome != LegOutcome::Skipped
                    && mesh::fires(alert, &outcomes, shifted)
            });
            due.extend(alerts.map(|alert| (alert, at)));
        }
        self.store_rows(archive, &legs)?;
        for (alert, at) in due {
            self.alerts.push(alert, &legs[at], self.log);
        }
        Ok(())
    }

    /// Why a pair is not to measure now: a host has moved as much as it may in a day.
    fn above_budget(
        &self,
        archive: &Archive,
        test: &MeshTest,
        pair: HostPair,
    ) -> Result<Option<String>> {
        let legs = test.spec.directions.legs().len() as u64;
        let next = test
            .bytes_of_leg()
            .unwrap_or_default()
            .0
            .saturating_mul(legs);
        for at in [pair.0, pair.1] {
            let host = &self.mesh.hosts[at];
            let Some(most) = host.bytes_a_day else {
                continue;
            };
            let moved = archive.mesh_bytes(&self.mesh.name, &host.name, self.now().since(DAY))?;
            // Light probes are never skipped: their share is set aside.
            let moved = moved + light_bytes_a_day(self.mesh, at);
            if moved + Bytes(next) > most {
                return Ok(Some(format!(
                    "{} has moved {moved} of its {most} in the last day",
                    host.name
                )));
            }
        }
        Ok(None)
    }

    /// Fetches the runs of rounds that are over whose results are not known, until the next round begins at the latest. Each host
    /// and each run is asked for once a period, unless the time did not suffice.
    fn fetch_pending(
        &self,
        archive: &mut Archive,
        asked: &mut BTreeSet<String>,
        until: Nanos,
        steps: u64,
    ) -> Result<()> {
        let now = self.now();
        let mut pending = Vec::new();
        for one in archive.mesh_pending(&self.mesh.name, PENDING, now.since(Nanos(7 * DAY.0)))? {
            let host = |name: &str| self.mesh.hosts.iter().position(|host| host.name == name);
            let test = self.mesh.tests.iter().find(|test| test.name == one.test);
            if let (Some(from), Some(to), Some(test)) = (host(&one.src), host(&one.dst), test)
                && is_over(one.starts, test, now)
                && !asked.contains(&one.src)
                && !asked.contains(&one.run)
            {
                pending.push((one, test, (from, to)));
            }
        }
        let over = &AtomicBool::new(false);
        std::thread::scope(|scope| {
            // In here, so that who fetches does not wait for ever where a result could not be kept.
            let (results, fetched) = mpsc::sync_channel(0);
            scope.spawn(move || {
                let mut failed = BTreeSet::new();
                for (one, test, pair) in pending {
                    if Duration::from(until.since(self.now())) < REACHED_WITHIN {
                        return;
                    }
                    if failed.contains(&pair.0) {
                        continue;
                    }
                    let result = self.fetch(pair.0, &one.run, over);
                    if result.is_err() {
                        failed.insert(pair.0);
                    }
                    if results.send((one, test, pair, result)).is_err() {
                        return;
                    }
                }
            });
            loop {
                match fetched.recv_timeout(LOOK) {
                    Ok((one, test, pair, Ok(Some(result)))) => self
                        .keep_result(archive, test, (pair, one.starts.min(now)), &result)
                        .inspect_err(|_| over.store(true, Ordering::Relaxed))?,
                    Ok((one, _, _, Ok(None))) => drop(asked.insert(one.run)),
                    Ok((_, _, _, Err(_))) if over.load(Ordering::Relaxed) => {}
                    Ok((_, _, (from, _), Err(error))) => {
                        let host = &self.mesh.hosts[from].name;
                        (self.log)(&format!("{host}: {}", sentence(&error)));
                        asked.insert(host.clone());
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return Ok(()),
                }
                if self.now() >= until || !self.goes_on_since(steps) {
                    over.store(true, Ordering::Relaxed);
                }
            }
        })
    }

    fn fetch(&self, source: usize, id: &str, over: &AtomicBool) -> Result<Option<SlotResult>> {
        let agent = self.mesh.hosts[source].agent.parse()?;
        let (mut agent, _) = third_party::connect(&agent, &self.how(over))?;
        let mut after = 0;
        loop {
            let kept = third_party::kept(&mut agent, after)?;
            let Some(last) = kept.last().filter(|last| last.number > after) else {
                return Ok(None);
            };
            after = last.number;
            if let Some(one) = kept.iter().find(|one| one.run == id) {
                return third_party::fetch(&mut agent, &one.run, &one.digest).map(Some);
            }
        }
    }
}

/// Whether the round that began then is over. One that lies in the future is of another clock.
fn is_over(starts: Nanos, test: &MeshTest, now: Nanos) -> bool {
    starts > now || starts + round_length(test) <= now + BEFORE_THE_NEXT
}

#[cfg(test)]
mod tests;

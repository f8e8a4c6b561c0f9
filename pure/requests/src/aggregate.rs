//! From requests to figures: by operation, the longest ones, the first ones. Memory is bounded whatever comes.

use crate::message_timing::MessageTiming;
use crate::pairing::SeenRequest;
use model::request::{
    Call, Cause, Causes, Links, Moment, Operation, Parts, Requests, Step, Viewpoint,
};
use model::{Bytes, Clocks, Latency, Nanos};
use std::collections::{BTreeMap, BTreeSet};
use tcp::clock::{First, HostTime, Second};

/// Operations that have figures of their own.
const MOST_OPERATIONS: usize = 512;
/// Calls that are reported one by one.
const MOST_CALLS: usize = 1000;
/// The longest of each operation that are.
const MOST_WORST: usize = 3;
/// Binary digits that are kept of times: right within 0.05 %, and within a fifth.
const FINE: u32 = 11;
const COARSE: u32 = 3;
/// Times that are counted side by side.
const PAGE: usize = 64;
/// Spans of time that have figures of their own.
const MOST_MOMENTS: u64 = 96;
/// The shortest of them, in nanoseconds.
const SHORTEST_MOMENT: u64 = 1000;

/// The requests so far.
#[derive(Default)]
pub(crate) struct Aggregate {
    operations: BTreeMap<String, OperationTally>,
    answered: u64,
    calls: Vec<Call>,
    views: BTreeSet<Viewpoint>,
    moments: Moments,
}

#[derive(Default)]
struct OperationTally {
    operation: Operation,
    times: RequestTimes,
}

impl Aggregate {
    pub fn push(&mut self, seen: &SeenRequest, breakdown: &Breakdown) {
        self.answered += 1;
        self.views.insert(breakdown.view);
        self.moments.push(seen, breakdown);
        let name = &*seen.what.operation;
        let full = self.operations.len() >= MOST_OPERATIONS;
        let tally = match self.operations.get_mut(name) {
            Some(tally) => tally,
            None => {
                let name = if full { "others" } else { name };
                self.operations.entry(name.to_owned()).or_default()
            }
        };
        tally.push(seen, breakdown);
        if self.calls.len() < MOST_CALLS {
            self.calls.push(breakdown.call(seen));
        }
    }

    /// With the requests and the replies that had no other, and the links that the ideals are for.
    pub fn finish(mut self, unanswered: u64, unread: u64, links: Links) -> Requests {
        let mut operations: Vec<Operation> = self
            .operations
            .into_iter()
            .map(|(name, tally)| tally.finish(name))
            .collect();
        operations.sort_by_key(|o| std::cmp::Reverse(o.parts.total()));
        self.calls.sort_by_key(|call| call.at);
        let mut doubts = Vec::new();
        for view in self.views {
            doubts.extend(doubt(view).map(str::to_owned));
        }
        if unanswered > 0 {
            doubts.push(format!(
                "{unanswered} requests had no reply before their connection or the capture ended"
            ));
        }
        Requests {
            schema: model::request::REQUESTS_SCHEMA,
            answered: self.answered,
            unanswered,
            unread,
            clocks: None,
            links,
            streams: Vec::new(),
            operations,
            calls: self.calls,
            moments: self.moments.finish(),
            doubts,
        }
    }
}

/// What a place cannot show.
fn doubt(view: Viewpoint) -> Option<&'static str> {
    match view {
        Viewpoint::Client => Some(
            "seen at the client: think time has the queues of the path in it, and forward and reverse are each half of the shortest RTT",
        ),
        Viewpoint::Server => Some(
            "seen at the server: think time and the sending of replies are exact; forward and reverse are each half of the shortest RTT, and what the client waited beyond that is not in here",
        ),
        Viewpoint::Between => Some(
            "seen between the two ends: pauses of a sender show as far as the path lets them through, think time has the queues behind this place in it, and forward and reverse are those of the shortest RTT",
        ),
        Viewpoint::Unknown => {
            Some("no RTT was seen: the path's part of the think time is not known")
        }
        Viewpoint::BothEnds => None,
    }
}

impl OperationTally {
    fn push(&mut self, seen: &SeenRequest, breakdown: &Breakdown) {
        let total = breakdown.parts.total();
        let of = &mut self.operation;
        of.count += 1;
        of.max = of.max.max(total);
        of.call_bytes += Bytes(seen.call.bytes);
        of.reply_bytes += Bytes(seen.reply.bytes);
        of.ideal += breakdown.ideal;
        of.parts.add(&breakdown.parts);
        of.causes.add(&breakdown.causes);
        self.times.count(total);
        let place = of
            .worst
            .partition_point(|worst| worst.parts.total() >= total);
        if place < MOST_WORST {
            of.worst.truncate(MOST_WORST - 1);
            of.worst.insert(place, breakdown.call(seen));
        }
    }

    fn finish(self, name: String) -> Operation {
        let latency = self.times.latency();
        let max = self.operation.max;
        let percentile = |share| latency.percentile(share).unwrap_or(max);
        Operation {
            operation: name,
            p50: percentile(0.5),
            p99: percentile(0.99),
            times: latency,
            ..self.operation
        }
    }
}

/// Binary digits that do not matter of a time of which so many are kept.
fn dropped(time: u64, digits: u32) -> u32 {
    (u64::BITS - time.leading_zeros()).saturating_sub(digits)
}

/// How many requests took how long: a page counts [`PAGE`] neighbouring times of [`FINE`] digits, and its key is the
/// first of them, in nanoseconds.
#[derive(Default)]
struct RequestTimes(BTreeMap<u64, [u32; PAGE]>);

impl RequestTimes {
    fn count(&mut self, time: Nanos) {
        let shift = dropped(time.0, FINE);
        let kept = (time.0 >> shift) as usize;
        let first = (kept - kept % PAGE) as u64;
        let page = self.0.entry(first << shift).or_insert([0; PAGE]);
        page[kept % PAGE] = page[kept % PAGE].saturating_add(1);
    }

    fn latency(self) -> Latency {
        Latency::from_counts(self.0.into_iter().flat_map(|(first, counts)| {
            let shift = dropped(first, FINE);
            let counts = counts.into_iter().zip(0_u64..);
            counts.map(move |(count, n)| (first + (n << shift), count.into()))
        }))
    }
}

/// How many requests took how long, by the first [`COARSE`] digits of their nanoseconds.
type CoarseTimes = BTreeMap<u64, u64>;

/// Requests by when they began. All spans are equal; they double when there are too many.
#[derive(Default)]
struct Moments {
    /// Doublings of the shortest.
    doubled: u32,
    all: BTreeMap<u64, (CoarseTimes, Causes)>,
}

impl Moments {
    fn push(&mut self, seen: &SeenRequest, breakdown: &Breakdown) {
        let place = (seen.call.first.0 / SHORTEST_MOMENT) >> self.doubled;
        let (times, causes) = self.all.entry(place).or_default();
        let total = breakdown.parts.total().0;
        let shift = dropped(total, COARSE);
        *times.entry(total >> shift << shift).or_default() += 1;
        causes.add(&breakdown.causes);
        while let (Some((first, _)), Some((last, _))) =
            (self.all.first_key_value(), self.all.last_key_value())
            && last - first >= MOST_MOMENTS
        {
            self.double();
        }
    }

    #[cold]
    fn double(&mut self) {
        self.doubled += 1;
        for (place, (old, causes)) in std::mem::take(&mut self.all) {
            let (times, sum) = self.all.entry(place / 2).or_default();
            for (time, count) in old {
                *times.entry(time).or_default() += count;
            }
            sum.add(&causes);
        }
    }

    fn finish(self) -> Vec<Moment> {
        let width = SHORTEST_MOMENT << self.doubled;
        let moment = |(place, (times, causes)): (u64, (CoarseTimes, Causes))| Moment {
            from: Nanos(place * width),
            to: Nanos((place + 1).saturating_mul(width)),
            times: Latency::from_counts(times),
            causes,
        };
        self.all.into_iter().map(moment).collect()
    }
}

impl SeenRequest {
    /// When all of the call had passed.
    fn asked(&self) -> Nanos {
        self.call.last.min(self.reply.first)
    }

    /// How long all of it took.
    fn whole(&self) -> Nanos {
        self.reply.last.since(self.call.first)
    }

    /// How long it takes these links at the least.
    fn ideal(&self, links: &Links) -> Nanos {
        let sizes = [self.call.bytes, self.reply.bytes].map(Bytes);
        let messages = [(sizes[0], self.mtu[0]), (sizes[1], self.mtu[1])];
        let rtt = self.near.unwrap_or_default() + self.far.unwrap_or_default();
        links.ideal(messages, rtt)
    }
}

/// Where the time of a request went.
pub(crate) struct Breakdown {
    view: Viewpoint,
    /// What the links need at the least; no more than it took, which refutes links that are slower.
    ideal: Nanos,
    parts: Parts,
    causes: Causes,
}

/// A request as one place saw it.
pub(crate) fn from_one(seen: &SeenRequest, view: Viewpoint, links: &Links) -> Breakdown {
    let [a, d] = [seen.call.first, seen.reply.last];
    let c = seen.reply.first;
    let b = seen.asked();
    let middle = c.since(b);
    // Beyond the place, and on this side of it; half each way.
    let beyond = match view {
        Viewpoint::Server | Viewpoint::Unknown => Nanos(0),
        _ => seen.far.unwrap_or_default().min(middle),
    };
    let before = match view {
        Viewpoint::Client | Viewpoint::Unknown => Nanos(0),
        _ => seen.near.unwrap_or_default(),
    };
    let way = beyond + before;
    let parts = Parts {
        call_send: b.since(a),
        forward: Nanos(way.0 / 2),
        think: middle.since(beyond),
        reply_send: d.since(c),
        reverse: way.since(Nanos(way.0 / 2)),
    };
    let mut causes = sending(&seen.call, &seen.reply, &parts);
    causes.spend(Cause::Path, way);
    causes.spend(Cause::Think, parts.think);
    Breakdown {
        ideal: seen.ideal(links).min(parts.total()),
        view,
        parts,
        causes,
    }
}

/// Requests that two places saw, and those that one of them did.
pub(crate) fn of_both(
    a: Vec<(SeenRequest, Viewpoint)>,
    b: Vec<(SeenRequest, Viewpoint)>,
    clocks: Option<&Clocks>,
    links: &Links,
) -> Aggregate {
    // Whatever translates addresses leaves the numbers.
    let name = |seen: &SeenRequest| (seen.key, seen.call.seq, seen.reply.seq);
    let others = b.into_iter().map(|other| (name(&other.0), other));
    let mut others: BTreeMap<_, (SeenRequest, Viewpoint)> = others.collect();
    let alone = |(seen, view): (SeenRequest, Viewpoint)| {
        let breakdown = from_one(&seen, view, links);
        (seen, breakdown)
    };
    let (mut pairs, mut calls) = (Vec::new(), Vec::new());
    for (seen, view) in a {
        match others.remove(&name(&seen)) {
            Some((other, _)) => pairs.push(RequestPair::of(seen, other, clocks)),
            None => calls.push(alone((seen, view))),
        }
    }
    // The minimum RTT, of the same sizes.
    let mut shortest: BTreeMap<_, Nanos> = BTreeMap::new();
    for pair in &pairs {
        let way = shortest.entry(pair.sizes()).or_insert(pair.way());
        *way = pair.way().min(*way);
    }
    let paired = pairs.into_iter().map(|pair| {
        let path = shortest[&pair.sizes()];
        pair.breakdown(path, links)
    });
    calls.extend(paired);
    let others = others.into_values();
    calls.extend(others.map(alone));
    calls.sort_by_key(|(seen, _)| seen.call.first);
    let mut aggregate = Aggregate::default();
    calls
        .iter()
        .for_each(|(seen, breakdown)| aggregate.push(seen, breakdown));
    aggregate
}

/// A request as both ends saw it.
struct RequestPair {
    at_client: SeenRequest,
    at_server: SeenRequest,
    parts: Parts,
}

impl RequestPair {
    fn of(a: SeenRequest, b: SeenRequest, clocks: Option<&Clocks>) -> RequestPair {
        // Nearer to the client; or all of a request passes there.
        let first_is_client = match (a.near, b.near) {
            (Some(one), Some(other)) if one != other => one < other,
            _ => a.whole() >= b.whole(),
        };
        // From when the call passed the client to when it passed the server, by one clock.
        let apart = clocks.map(|clocks| {
            let first = HostTime::<First>::new(a.asked());
            let second = HostTime::<Second>::new(b.asked()).by_first(clocks);
            match first_is_client {
                true => second.since(first),
                false => first.since(second),
            }
        });
        let (at_client, mut at_server) = if first_is_client { (a, b) } else { (b, a) };
        if at_server.whole() > at_client.whole() {
            // The client had it all before the retransmission.
            at_server.reply.ignore_retransmissions();
        }
        // Neither of these needs the clocks joined; the rest is the path in both directions.
        let total = at_client.whole();
        let call_send = at_client.asked().since(at_client.call.first).min(total);
        let left = total.since(call_send);
        let reply_send = at_server.reply.last.since(at_server.reply.first).min(left);
        let left = left.since(reply_send);
        let think = at_server.reply.first.since(at_server.asked()).min(left);
        let way = left.since(think);
        let forward = match apart {
            Some(apart) => Nanos(u64::try_from(apart).unwrap_or(0)).min(way),
            None => Nanos(way.0 / 2),
        };
        RequestPair {
            at_client,
            at_server,
            parts: Parts {
                call_send,
                forward,
                think,
                reply_send,
                reverse: way.since(forward),
            },
        }
    }

    fn way(&self) -> Nanos {
        self.parts.forward + self.parts.reverse
    }

    /// Of the last segment each way, about.
    fn sizes(&self) -> (u64, u64) {
        let about = |timing: &MessageTiming| timing.bytes.min(1500) / 250;
        (about(&self.at_client.call), about(&self.at_client.reply))
    }

    fn breakdown(self, shortest: Nanos, links: &Links) -> (SeenRequest, Breakdown) {
        let mut causes = sending(&self.at_client.call, &self.at_server.reply, &self.parts);
        let way = self.way();
        causes.spend(Cause::Think, self.parts.think);
        causes.spend(Cause::Path, shortest);
        causes.spend(Cause::Queue, way.since(shortest));
        // Steps of the reply as they arrived, so that the ladder has one clock.
        let breakdown = Breakdown {
            ideal: self.at_client.ideal(links).min(self.parts.total()),
            view: Viewpoint::BothEnds,
            parts: self.parts,
            causes,
        };
        (self.at_client, breakdown)
    }
}

/// The causes of both sendings.
fn sending(call: &MessageTiming, reply: &MessageTiming, parts: &Parts) -> Causes {
    let mut causes = Causes::default();
    for (timing, part) in [(call, parts.call_send), (reply, parts.reply_send)] {
        let mut left = part;
        let all = timing.causes.total();
        if all <= part {
            causes.add(&timing.causes);
            left = part.since(all);
        } else {
            for (cause, time) in timing.causes.ranked() {
                let time = time.min(left);
                causes.spend(cause, time);
                left = left.since(time);
            }
        }
        // A reply that came before all of its call had left.
        causes.spend(Cause::Application, left);
    }
    causes
}

impl Breakdown {
    /// In words and steps, which only few need.
    fn call(&self, seen: &SeenRequest) -> Call {
        let begun = seen.call.first;
        let steps = seen.call.steps.iter().chain(&seen.reply.steps);
        Call {
            at: begun,
            client: seen.client,
            server: seen.server,
            operation: seen.what.operation.clone().into_owned(),
            purpose: seen.what.purpose,
            detail: seen.what.detail.to_string(),
            call_bytes: Bytes(seen.call.bytes),
            reply_bytes: Bytes(seen.reply.bytes),
            view: self.view,
            ideal: self.ideal,
            parts: self.parts,
            causes: self.causes,
            steps: steps
                .map(|step| Step {
                    at: step.at.since(begun),
                    ..step.clone()
                })
                .collect(),
        }
    }
}

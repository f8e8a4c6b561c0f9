//! From requests to figures: by operation, the longest ones, the first ones. Memory is bounded whatever comes.

use crate::clocks;
use crate::connection::Seen;
use crate::passage::Passage;
use model::request::{
    Call, Cause, Causes, Clocks, Links, Moment, Operation, Parts, Requests, Step, View,
};
use model::{Bytes, Latency, Nanos};
use std::collections::{BTreeMap, BTreeSet};

/// Operations that are told apart.
const MOST_OPERATIONS: usize = 512;
/// Calls that are told one by one.
const MOST_CALLS: usize = 1000;
/// The longest of each operation that are.
const MOST_WORST: usize = 3;
/// Stretches of time that are told apart.
const MOST_MOMENTS: u64 = 96;
/// The shortest of them, in nanoseconds.
const SHORTEST_MOMENT: u64 = 1000;
/// Time from a place to one end and back below which it is there: this part of the whole round trip, or what a
/// host takes for a handshake.
const HERE: u64 = 10;
const HOST: Nanos = Nanos::from_micros(20);

/// What was taken so far.
#[derive(Default)]
pub(crate) struct Digest {
    operations: BTreeMap<String, Tally>,
    answered: u64,
    calls: Vec<Call>,
    views: BTreeSet<View>,
    moments: Moments,
}

#[derive(Default)]
struct Tally {
    operation: Operation,
    times: BTreeMap<u64, u64>,
}

impl Digest {
    pub fn take(&mut self, call: Judged) {
        self.answered += 1;
        self.views.insert(call.view);
        self.moments.take(&call);
        let name = &*call.seen.what.operation;
        let name = match self.operations.contains_key(name) {
            false if self.operations.len() >= MOST_OPERATIONS => "others",
            _ => name,
        };
        let tally = match self.operations.get_mut(name) {
            Some(tally) => tally,
            None => self.operations.entry(name.to_owned()).or_default(),
        };
        tally.take(&call);
        if self.calls.len() < MOST_CALLS {
            self.calls.push(call.told());
        }
    }

    pub fn told(mut self, unanswered: u64) -> Requests {
        let mut operations: Vec<Operation> = self
            .operations
            .into_iter()
            .map(|(name, tally)| tally.told(name))
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
            clocks: None,
            links: Links::default(),
            operations,
            calls: self.calls,
            moments: self.moments.told(),
            doubts,
        }
    }
}

/// What a place cannot know.
fn doubt(view: View) -> Option<&'static str> {
    match view {
        View::Client => Some(
            "seen at the client: think time has the queues of the path in it, and the way there and back is the shortest round trip, half each way",
        ),
        View::Server => Some(
            "seen at the server: think time and the sending of replies are exact; the way there and back is the shortest round trip, half each way, and what the client waited beyond that is not in here",
        ),
        View::Between => Some(
            "seen between the two ends: pauses of a sender show as far as the path lets them through, think time has the queues behind this place in it, and the way there and back is the shortest round trip",
        ),
        View::Unknown => Some(
            "no round trip was seen: how much of the think time is the way there and back cannot be told",
        ),
        View::BothEnds => None,
    }
}

impl Tally {
    fn take(&mut self, call: &Judged) {
        let total = call.parts.total();
        let of = &mut self.operation;
        of.count += 1;
        of.max = of.max.max(total);
        of.call_bytes += Bytes(call.seen.call.bytes);
        of.reply_bytes += Bytes(call.seen.reply.bytes);
        of.ideal += call.ideal;
        of.parts.add(&call.parts);
        of.causes.add(&call.causes);
        *self.times.entry(rounded(total, 11)).or_default() += 1;
        let place = of
            .worst
            .partition_point(|worst| worst.parts.total() >= total);
        if place < MOST_WORST {
            of.worst.truncate(MOST_WORST - 1);
            of.worst.insert(place, call.told());
        }
    }

    fn told(self, name: String) -> Operation {
        let latency = Latency::from_counts(self.times);
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

/// A time of which only so many binary digits are kept: eleven are 0.05 % of it, three 20 %.
fn rounded(time: Nanos, digits: u32) -> u64 {
    let shift = (u64::BITS - time.0.leading_zeros()).saturating_sub(digits);
    time.0 >> shift << shift
}

/// Requests by when they began. All stretches are equal; they double when there are too many.
#[derive(Default)]
struct Moments {
    /// Doublings of the shortest.
    doubled: u32,
    all: BTreeMap<u64, (BTreeMap<u64, u64>, Causes)>,
}

impl Moments {
    fn take(&mut self, call: &Judged) {
        let place = (call.seen.call.first.0 / SHORTEST_MOMENT) >> self.doubled;
        let (times, causes) = self.all.entry(place).or_default();
        *times.entry(rounded(call.parts.total(), 3)).or_default() += 1;
        causes.add(&call.causes);
        while let (Some((first, _)), Some((last, _))) =
            (self.all.first_key_value(), self.all.last_key_value())
            && last - first >= MOST_MOMENTS
        {
            self.doubled += 1;
            for (place, (times, causes)) in std::mem::take(&mut self.all) {
                let (sum, of) = self.all.entry(place / 2).or_default();
                for (time, count) in times {
                    *sum.entry(time).or_default() += count;
                }
                of.add(&causes);
            }
        }
    }

    fn told(self) -> Vec<Moment> {
        let width = SHORTEST_MOMENT << self.doubled;
        let moment = |(place, (times, causes)): (u64, (BTreeMap<u64, u64>, Causes))| Moment {
            from: Nanos(place * width),
            to: Nanos((place + 1).saturating_mul(width)),
            times: Latency::from_counts(times),
            causes,
        };
        self.all.into_iter().map(moment).collect()
    }
}

impl Seen {
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

/// A request, and where its time went.
pub(crate) struct Judged {
    seen: Seen,
    view: View,
    ideal: Nanos,
    parts: Parts,
    causes: Causes,
}

/// A request as one place saw it.
pub(crate) fn from_one(seen: Seen, links: &Links) -> Judged {
    let [a, d] = [seen.call.first, seen.reply.last];
    let c = seen.reply.first;
    let b = seen.asked();
    let view = match (seen.near, seen.far) {
        (Some(near), Some(far)) if is_here(near, far) => View::Client,
        (Some(near), Some(far)) if is_here(far, near) => View::Server,
        (Some(_), Some(_)) => View::Between,
        _ => View::Unknown,
    };
    let middle = c.since(b);
    // Beyond the place, and on this side of it; half each way.
    let beyond = match view {
        View::Server | View::Unknown => Nanos(0),
        _ => seen.far.unwrap_or_default().min(middle),
    };
    let before = match view {
        View::Client | View::Unknown => Nanos(0),
        _ => seen.near.unwrap_or_default(),
    };
    let way = beyond + before;
    let parts = Parts {
        call_send: b.since(a),
        forward: Nanos(way.0 / 2),
        think: middle.since(beyond),
        reply_send: d.since(c),
        back: way.since(Nanos(way.0 / 2)),
    };
    let mut causes = sending(&seen.call, &seen.reply, &parts);
    causes.spend(Cause::Path, way);
    causes.spend(Cause::Think, parts.think);
    Judged {
        ideal: seen.ideal(links),
        seen,
        view,
        parts,
        causes,
    }
}

/// Requests that two places saw, and those that one of them did.
pub(crate) fn of_both(
    a: Vec<Seen>,
    b: Vec<Seen>,
    clocks: Option<&Clocks>,
    links: &Links,
) -> Digest {
    // Whatever translates addresses leaves the numbers.
    let name = |seen: &Seen| (seen.key, seen.call.seq, seen.reply.seq);
    let mut others: BTreeMap<_, Seen> = b.into_iter().map(|seen| (name(&seen), seen)).collect();
    let (mut pairs, mut calls) = (Vec::new(), Vec::new());
    for seen in a {
        match others.remove(&name(&seen)) {
            Some(other) => pairs.push(Pair::of(seen, other, clocks)),
            None => calls.push(from_one(seen, links)),
        }
    }
    // The shortest way there and back, of the same sizes.
    let mut shortest: BTreeMap<_, Nanos> = BTreeMap::new();
    for pair in &pairs {
        let way = shortest.entry(pair.sizes()).or_insert(pair.way());
        *way = pair.way().min(*way);
    }
    let paired = pairs.into_iter().map(|pair| {
        let path = shortest[&pair.sizes()];
        pair.judged(path, links)
    });
    calls.extend(paired);
    let others = others.into_values();
    calls.extend(others.map(|seen| from_one(seen, links)));
    calls.sort_by_key(|call: &Judged| call.seen.call.first);
    let mut digest = Digest::default();
    calls.into_iter().for_each(|call| digest.take(call));
    digest
}

/// A request as both ends saw it.
struct Pair {
    at_client: Seen,
    at_server: Seen,
    parts: Parts,
}

impl Pair {
    fn of(a: Seen, b: Seen, clocks: Option<&Clocks>) -> Pair {
        // Nearer to the client; or all of a request passes there.
        let first_is_client = match (a.near, b.near) {
            (Some(one), Some(other)) if one != other => one < other,
            _ => a.whole() >= b.whole(),
        };
        // From when the call passed the client to when it passed the server, by one clock.
        let apart = clocks.map(|clocks| {
            let (first, second) = (a.asked().0 as i64, clocks::by_first(clocks, b.asked()));
            match first_is_client {
                true => second - first,
                false => first - second,
            }
        });
        let (at_client, mut at_server) = if first_is_client { (a, b) } else { (b, a) };
        if at_server.whole() > at_client.whole() {
            // The client had it all before it was sent again.
            at_server.reply.not_again();
        }
        // Neither of these needs the clocks joined; what is left is the way, there and back.
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
        Pair {
            at_client,
            at_server,
            parts: Parts {
                call_send,
                forward,
                think,
                reply_send,
                back: way.since(forward),
            },
        }
    }

    fn way(&self) -> Nanos {
        self.parts.forward + self.parts.back
    }

    /// Of the last segment each way, about.
    fn sizes(&self) -> (u64, u64) {
        let about = |passage: &Passage| passage.bytes.min(1500) / 250;
        (about(&self.at_client.call), about(&self.at_client.reply))
    }

    fn judged(self, shortest: Nanos, links: &Links) -> Judged {
        let mut causes = sending(&self.at_client.call, &self.at_server.reply, &self.parts);
        let way = self.way();
        causes.spend(Cause::Think, self.parts.think);
        causes.spend(Cause::Path, shortest);
        causes.spend(Cause::Queue, way.since(shortest));
        // Steps of the reply as they arrived, so that the ladder has one clock.
        Judged {
            ideal: self.at_client.ideal(links),
            seen: self.at_client,
            view: View::BothEnds,
            parts: self.parts,
            causes,
        }
    }
}

/// Whether a place is at one end, by the round trips to it and to the other.
pub(crate) fn is_here(this: Nanos, other: Nanos) -> bool {
    this <= other && this <= HOST.max(Nanos((this + other).0 / HERE))
}

/// The causes of both sendings.
fn sending(call: &Passage, reply: &Passage, parts: &Parts) -> Causes {
    let mut causes = Causes::default();
    for (passage, part) in [(call, parts.call_send), (reply, parts.reply_send)] {
        let mut left = part;
        let all = passage.causes.total();
        if all <= part {
            causes.add(&passage.causes);
            left = part.since(all);
        } else {
            for (cause, time) in passage.causes.ranked() {
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

impl Judged {
    /// In words and steps, which only few need.
    fn told(&self) -> Call {
        let seen = &self.seen;
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

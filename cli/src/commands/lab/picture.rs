//! A lab as text: its tree of nodes, and what each direction of each link does to packets.

use emulate::{
    AckThinning, Aqm, Bucket, Cross, Direction, Distribution, Icmp, Link, LossModel, MssClamp,
    Node, NodeKind, Queue, QueueLimit, RateVariation, Scenario, Shape, Traffic,
};
use model::stats::percent;
use report::words::wrap;

/// The reasons of the scenario, in lines of `width`.
pub fn why(scenario: &Scenario, width: u16) -> String {
    wrap(&scenario.why, width, "", "").trim_end().to_owned()
}

/// The nodes as a tree, beginning at the first; `by` says of a link who shapes it and how well.
pub fn tree(scenario: &Scenario, by: &dyn Fn(&Link) -> Option<String>) -> String {
    let mut picture = LabPicture {
        scenario,
        by,
        seen: Vec::new(),
        text: String::new(),
    };
    for node in &scenario.nodes {
        if !picture.seen.contains(&node.name.as_str()) {
            picture.node(node, None, "", "");
        }
    }
    picture.text
}

/// What the script changes, a line a step; empty without one.
pub fn script(scenario: &Scenario) -> String {
    let mut text = String::new();
    for step in &scenario.script {
        let arrow = arrow(scenario, &step.link, step.direction);
        let shape = describe(&step.shape);
        text += &format!("after {}: {} {arrow}: {shape}\n", step.at, step.link);
    }
    text
}

/// What the lab itself sends, a line a kind; empty without any.
pub fn traffic(scenario: &Scenario) -> String {
    let mut text = String::new();
    for traffic in &scenario.traffic {
        let Traffic { name, from, to, .. } = traffic;
        text += &format!("\ntraffic {name}, {from} -> {to}: {} TCP", traffic.streams);
        if let Some(congestion) = &traffic.congestion {
            text += &format!(", {congestion}");
        }
        if let Some(rate) = traffic.rate {
            text += &format!(", written at {rate}");
        }
        if traffic.off > model::Nanos(0) {
            text += &format!(", {} on, {} off", traffic.on, traffic.off);
        }
        text.push('\n');
    }
    text
}

/// From which node to which a direction of a link goes.
pub fn arrow(scenario: &Scenario, link: &str, direction: Direction) -> String {
    let Some(link) = scenario.links.iter().find(|l| l.name == link) else {
        return String::new();
    };
    let [from, to] = match direction {
        Direction::Forward => [0, 1],
        Direction::Backward => [1, 0],
    };
    format!("{} -> {}", link.ends[from].node, link.ends[to].node)
}

struct LabPicture<'a> {
    scenario: &'a Scenario,
    by: &'a dyn Fn(&Link) -> Option<String>,
    seen: Vec<&'a str>,
    text: String,
}

impl<'a> LabPicture<'a> {
    /// A node, and behind each of its links but `from` the next. `first` begins its own line,
    /// `rest` all below it.
    fn node(&mut self, node: &'a Node, from: Option<&'a str>, first: &str, rest: &str) {
        self.seen.push(&node.name);
        self.line(first, &format!("{}  {}", node.name, kind(node)));
        let scenario = self.scenario;
        for (_, end) in scenario.ends_at(&node.name) {
            let addresses: Vec<String> = end.addresses.iter().map(ToString::to_string).collect();
            let mtu = format!("{} MTU {} {}", end.device, end.mtu, addresses.join(" "));
            if node.kind != NodeKind::Switch {
                self.line(rest, &format!("    {}", mtu.trim_end()));
            }
        }
        let mut links: Vec<&'a Link> = Vec::new();
        for (link, _) in scenario.ends_at(&node.name) {
            if Some(link.name.as_str()) != from && !links.iter().any(|l| l.name == link.name) {
                links.push(link);
            }
        }
        let last = links.len().saturating_sub(1);
        for (n, link) in links.into_iter().enumerate() {
            let away = usize::from(link.ends[0].node == node.name);
            let [out, back] = match away {
                1 => [&link.forward, &link.backward],
                _ => [&link.backward, &link.forward],
            };
            let below = format!("{rest}{}", if n == last { "   " } else { "|  " });
            let by = (self.by)(link).map_or_else(String::new, |by| format!("  [{by}]"));
            self.line(rest, "|");
            if scenario.is_plain(link) {
                self.line(rest, &format!("+- {}  a plain cable{by}", link.name));
            } else {
                self.line(rest, &format!("+- {}{by}", link.name));
                self.line(&below, &format!("|  -> {}", describe(out)));
                self.line(&below, &format!("|  <- {}", describe(back)));
            }
            let Some(next) = scenario.node(&link.ends[away].node) else {
                continue;
            };
            if self.seen.contains(&next.name.as_str()) {
                self.line(&below, &format!("{}  (above)", next.name));
            } else {
                self.node(next, Some(&link.name), &below, &below);
            }
        }
    }

    fn line(&mut self, margin: &str, text: &str) {
        self.text += margin;
        self.text += text;
        self.text.push('\n');
    }
}

/// What a node is, and what it does that others do not.
fn kind(node: &Node) -> String {
    let mut words = vec![node.kind.name().to_owned()];
    words.extend(node.congestion.clone());
    let buffer = |what: &str, size| format!("{what} buffer up to {size}");
    words.extend(node.receive_buffer.map(|size| buffer("receive", size)));
    words.extend(node.send_buffer.map(|size| buffer("send", size)));
    let reads = node.reads_at;
    words.extend(reads.map(|rate| format!("reads at {rate} (port 9)")));
    if node.offload == Some(false) {
        words.push("no offloads".to_owned());
    }
    words.extend(node.mss_clamp.map(|clamp| match clamp {
        MssClamp::PathMtu => "clamps the MSS to the path MTU".to_owned(),
        MssClamp::To(mss) => format!("clamps the MSS to {mss}"),
    }));
    if let Some(drop) = node.drop_icmp {
        let what = match drop {
            Icmp::All => "drops all ICMP",
            Icmp::FragNeeded => "drops ICMP 'fragmentation needed'",
        };
        words.push(match &node.drop_icmp_toward[..] {
            [] => what.to_owned(),
            toward => format!("{what} towards {}", toward.join(" and ")),
        });
    }
    words.extend(node.ttl.map(|ttl| format!("sets the TTL to {ttl}")));
    if let Some(nat) = &node.nat {
        let hairpin = if nat.hairpin { ", hairpin" } else { "" };
        words.push(format!("NAT towards {}{hairpin}", nat.outside));
        let ports = nat.forward.iter();
        words.extend(ports.map(|f| format!("port {} to {}", f.port, f.to)));
    }
    words.join(", ")
}

pub fn describe(shape: &Shape) -> String {
    let none = model::Nanos(0);
    let mut words = Vec::new();
    words.extend(shape.rate.map(|rate| rate.to_string()));
    if shape.packet_time > none {
        words.push(format!("{} of work on each packet", shape.packet_time));
    }
    if shape.delay > none {
        words.push(shape.delay.to_string());
    }
    if let Some(jitter) = &shape.jitter {
        let order = if jitter.reorders { ", reordering" } else { "" };
        let spread = match jitter.distribution {
            Distribution::Uniform => "",
            Distribution::Normal => " (normal)",
            Distribution::Exponential => " (exponential)",
        };
        words.push(format!("jitter 0 to {}{spread}{order}", jitter.range));
    }
    words.extend(shape.queue.as_ref().map(queue));
    words.extend(shape.policer.as_ref().map(|b| bucket("policed to", b)));
    words.extend(shape.shaper.as_ref().map(|b| bucket("shaped to", b)));
    words.extend(loss(&shape.loss));
    if shape.bit_error_rate > 0.0 {
        words.push(format!("bit error rate {:e}", shape.bit_error_rate));
    }
    if let Some(reorder) = &shape.reorder {
        let share = percent(reorder.probability);
        words.push(format!("{share} held back by {}", reorder.late));
    }
    if let Some(duplicate) = &shape.duplicate {
        words.push(format!("{} twice", percent(duplicate.probability)));
    }
    if let Some(max) = shape.max_frame {
        words.push(format!("drops packets over {max} bytes silently"));
    }
    if let Some(AckThinning { of, hold }) = &shape.ack_thinning {
        words.push(format!("up to {of} ACKs become one (held {hold})"));
    }
    if shape.half_duplex {
        words.push("half duplex".to_owned());
    }
    words.extend(shape.rate_variation.as_ref().map(rate_variation));
    words.extend(shape.cross.as_ref().map(cross));
    match words.is_empty() {
        true => "as a plain cable".to_owned(),
        false => words.join(", "),
    }
}

fn queue(queue: &Queue) -> String {
    let limit = match queue.limit {
        QueueLimit::Packets(n) => format!("queue of {n} packets"),
        QueueLimit::Bytes(bytes) => format!("queue of {bytes}"),
    };
    let aqm = match &queue.aqm {
        Aqm::DropTail => String::new(),
        Aqm::CoDel(rule) => format!(", CoDel {}/{}", rule.target, rule.interval),
        Aqm::Red(rule) => format!(", RED {} to {}", rule.min, rule.max),
    };
    let ecn = if queue.ecn { " with ECN" } else { "" };
    format!("{limit}{aqm}{ecn}")
}

fn bucket(what: &str, bucket: &Bucket) -> String {
    format!("{what} {} (burst {})", bucket.rate, bucket.burst)
}

fn loss(loss: &LossModel) -> Option<String> {
    Some(match loss {
        LossModel::Off => return None,
        LossModel::Random(p) => format!("{} lost", percent(*p)),
        LossModel::GilbertElliott {
            to_good,
            lost_in_bad,
            ..
        } if *lost_in_bad >= 1.0 => {
            format!("lost in bursts of {:.3} on average", 1.0 / to_good)
        }
        LossModel::GilbertElliott {
            to_bad, to_good, ..
        } => {
            format!("lost in bursts (Gilbert-Elliott {to_bad}, {to_good})")
        }
        LossModel::Periodic(every) => format!("one lost of {every}"),
        LossModel::At(frames) => match frames.as_slice() {
            [one] => format!("frame {one} lost"),
            many => format!("{} chosen frames lost", many.len()),
        },
    })
}

fn rate_variation(variation: &RateVariation) -> String {
    let mut text = format!(
        "rate varies by {} in {}",
        percent(variation.deviation),
        variation.time
    );
    for state in &variation.states {
        text += &format!(", x{} for {}", state.factor, state.stay);
    }
    text
}

fn cross(cross: &Cross) -> String {
    let mut text = format!("cross traffic {}", cross.rate);
    if cross.off > model::Nanos(0) {
        text += &format!(" ({} on, {} off)", cross.on, cross.off);
    }
    text
}

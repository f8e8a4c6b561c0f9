//! What size gets through, in words: the answer in a sentence, the evidence, what to do.

use crate::words::{Style, Table, counted, escape, escape_sentence, grouped, or};
use model::mtu::{
    Beside, Going, Method, MtuCause, MtuDoubt, MtuReport, MtuVerdict, PathEnd, TcpTruth,
};
use std::net::IpAddr;

/// The answer in a sentence.
pub fn sentence(report: &MtuReport) -> String {
    MtuWords::of(report).sentence()
}

/// For people.
pub fn text(report: &MtuReport, style: Style) -> String {
    let (figures, evidence, todo) = parts(report);
    let items = |lines: Vec<String>| {
        lines
            .iter()
            .map(|line| style.item(line))
            .collect::<String>()
    };
    let mut out = format!("{}\n{figures}", style.bold(&sentence(report)));
    for (heading, lines) in [("\n", evidence), ("\nWhat to do:\n", todo)] {
        if !lines.is_empty() {
            out += heading;
        }
        out += &items(lines);
    }
    out
}

/// The figures of both directions as a table, the evidence, and what to do: the parts of [`text`] behind the answer.
pub(crate) fn parts(report: &MtuReport) -> (Table, Vec<String>, Vec<String>) {
    let words = MtuWords::of(report);
    (words.figures(), words.evidence(), words.todo())
}

struct MtuWords<'a> {
    host: String,
    report: &'a MtuReport,
}

pub(crate) fn on_the_way(going: Going) -> String {
    format!("on the {} path", going.name())
}

impl MtuWords<'_> {
    fn of(report: &MtuReport) -> MtuWords<'_> {
        let host = escape(&report.host);
        MtuWords { host, report }
    }

    fn verdict(&self, going: Going) -> &MtuVerdict {
        &self.report.way(going).verdict
    }

    /// The end that sends.
    fn sender(&self, going: Going) -> String {
        ends(going, &self.host).0
    }

    fn sentence(&self) -> String {
        let [forward, reverse] = Going::ALL.map(|going| self.verdict(going));
        let size = |verdict: &MtuVerdict| match verdict.mtu {
            Some(mtu) if verdict.cause == MtuCause::NotTried => format!("at least {mtu}"),
            mtu => or(mtu, "nothing"),
        };
        let sizes = match forward.mtu == reverse.mtu {
            true => format!("{} bytes each way", size(forward)),
            false => format!(
                "{} bytes forward, {} in reverse",
                size(forward),
                size(reverse)
            ),
        };
        let mut parts: Vec<String> = Vec::new();
        if forward.cause == MtuCause::Clear && reverse.cause == MtuCause::Clear {
            let all = match self.report.method {
                Method::Agent => "all that the devices of both hosts take",
                Method::Web => "as much as could be tried",
            };
            parts.push(all.to_owned());
        }
        for going in Going::ALL {
            let cause = stops(&self.verdict(going).cause, going, &self.host);
            // The same device stops both ways, as a rule.
            if !cause.is_empty() && !parts.contains(&cause) {
                parts.push(cause);
            }
        }
        for going in Going::ALL {
            let from = self.sender(going);
            let beside = self.verdict(going).beside.iter();
            parts.extend(beside.filter_map(|beside| match beside {
                Beside::StaleCache { says, .. } => {
                    Some(format!("but {from} believes in {says} and sends no more"))
                }
                _ => None,
            }));
        }
        let hole = |going: &Going| self.verdict(*going).beside.contains(&Beside::BlackHole);
        let holes: Vec<&str> = Going::ALL
            .iter()
            .filter(|g| hole(g))
            .map(|g| g.name())
            .collect();
        if !holes.is_empty() {
            parts.push(format!("TCP transfers hang ({})", holes.join(" and ")));
        }
        format!("{sizes}: {}.", parts.join("; "))
    }

    fn figures(&self) -> Table {
        let rows = Going::ALL.map(|going| {
            let way = self.report.way(going);
            let mss = way.mss.map(|mss| {
                let least = if mss.at_least { " or more" } else { "" };
                format!("{}, {}{least}", mss.announced, mss.seen)
            });
            vec![
                going.name().to_owned(),
                or(way.verdict.mtu, "-"),
                format!("{}, {}", way.climb.sent, way.climb.arrived),
                or(mss, "-"),
                or(way.tcp.as_ref().map(fate), "-"),
            ]
        });
        let heads: Vec<&str> = "|path MTU|sent, arrived|MSS announced, seen|64 KiB over TCP"
            .split('|')
            .collect();
        Table::new(&heads, rows)
    }

    fn evidence(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for going in Going::ALL {
            let (way, word) = (self.report.way(going), going.name());
            let (from, to) = ends(going, &self.host);
            let device = self.report.sender(going).map(|end| device(end, &from, &to));
            lines.extend(device);
            lines.extend(way.climb.too_big.map(|router| {
                // Zero comes from routers older than RFC 1191, or of a kernel that does not want to know.
                let size = match router.mtu {
                    0 => "less".to_owned(),
                    mtu => format!("{mtu} bytes"),
                };
                format!("{word}: {} says that it takes {size}", router.from)
            }));
            let named = |large: bool| {
                let hops = way.climb.hops.iter();
                let some = hops.filter(|hop| hop.small && (!large || hop.large));
                let some = some.map(|hop| format!("{} {}", hop.ttl, or(hop.address, "?")));
                match some.collect::<Vec<_>>().join(", ") {
                    none if none.is_empty() => "none".to_owned(),
                    some => some,
                }
            };
            if let Some(mtu) = way.verdict.mtu.filter(|_| !way.climb.hops.is_empty()) {
                lines.push(format!(
                    "{word}: hops from {from} that answer: {}; to packets of {} bytes: {}",
                    named(false),
                    mtu + 1,
                    named(true)
                ));
            }
            let beside = way.verdict.beside.iter();
            lines.extend(beside.map(|one| format!("{word}: {}", beside_words(one, &from))));
            let doubts = way.verdict.doubts.iter();
            lines.extend(doubts.map(|doubt| format!("{word}: {}", doubt_words(*doubt))));
        }
        lines.extend(self.report.notes.iter().map(|note| escape_sentence(note)));
        lines
    }

    /// What to do, each piece of advice once.
    fn todo(&self) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        let mut add = |line: String| {
            if !lines.contains(&line) {
                lines.push(line);
            }
        };
        for going in Going::ALL {
            let (verdict, from) = (self.verdict(going), self.sender(going));
            let Some(mtu) = verdict.mtu else {
                continue;
            };
            let target = match going {
                Going::Forward => self.report.remote.as_ref().and_then(|end| end.address),
                Going::Reverse => self.report.local.address,
            };
            let target = target.zip(self.report.sender(going));
            let until = match target.map(|(target, end)| (target, end.gateway, &end.device)) {
                Some((target, Some(gateway), _)) => {
                    format!("'ip route replace {target} via {gateway} mtu {mtu}'")
                }
                Some((target, None, device)) => {
                    let device = escape(device);
                    format!("'ip route replace {target} dev {device} mtu {mtu}'")
                }
                None => format!("a route to the receiver with 'mtu {mtu}'"),
            };
            let until =
                format!("until the path is fixed, on {from}: {until}, or a device MTU of {mtu}");
            match &verdict.cause {
                MtuCause::Silent { .. } | MtuCause::Somewhere => {
                    add(until);
                    add("let the router send, and every firewall let through, ICMP 'fragmentation needed' (IPv6: 'packet too big')".to_owned());
                }
                MtuCause::Segment { .. } => {
                    add(until);
                    add(format!(
                        "give every port and host of that segment the same MTU: a switch or a port there takes {mtu} bytes"
                    ));
                }
                MtuCause::OwnDevice | MtuCause::PeerDevice => {
                    add("If both hosts are on one segment, give them the same MTU.".to_owned());
                }
                _ => {}
            }
            for beside in &verdict.beside {
                match beside {
                    Beside::StaleCache { expires_s, .. } => add(format!(
                        "on {from}: 'ip route flush cache' forgets it at once; by itself in {expires_s} s"
                    )),
                    Beside::RouteMtu { says } => add(format!(
                        "on {from}: look with 'ip route show' who set 'mtu {says}', and whether it is still needed"
                    )),
                    Beside::Fragmented { .. } => add(format!(
                        "on {from}: sysctl net.ipv4.ip_no_pmtu_disc=0, since a lost fragment loses the whole packet"
                    )),
                    _ => {}
                }
            }
        }
        lines
    }
}

/// What was found beside the size, at the end that sends.
fn beside_words(beside: &Beside, from: &str) -> String {
    match beside {
        Beside::StaleCache { says, expires_s } => format!(
            "the kernel of {from} has once learned {says} for this path, and forgets it in {expires_s} s"
        ),
        Beside::RouteMtu { says } => format!("the route of {from} is configured to {says}"),
        Beside::Clamp {
            announced,
            seen,
            hop,
            by,
        } => {
            let by = by.map(|by| format!(" ({by})")).unwrap_or_default();
            let place = match hop {
                Some(hop) => format!("the router {}{by} lowers it", hops(*hop, from)),
                None => "somebody on the way lowers it".to_owned(),
            };
            format!("an MSS of {announced} was announced and {seen} arrived: {place}")
        }
        Beside::Fragmented { arrived } => format!(
            "{from} sends TCP without DF (net.ipv4.ip_no_pmtu_disc), so routers cut its packets: {} arrived",
            counted(*arrived, "fragment")
        ),
        Beside::Encapsulation { like } => {
            format!("the size is that of 1500 bytes with {like} inside")
        }
        Beside::BlackHole => {
            "a black hole: the handshake is fine, small packets are fine, and a transfer hangs because its sender gets no message".to_owned()
        }
    }
}

/// What became of a transfer over TCP.
pub(crate) fn fate(tcp: &TcpTruth) -> String {
    let again = match tcp.retransmitted {
        0 => String::new(),
        n => format!(", {} retransmitted", grouped(n.into())),
    };
    match tcp.hangs {
        true => format!("hangs after {} bytes{again}", grouped(tcp.acked)),
        false => format!("arrived{again}"),
    }
}

/// What stops larger packets; empty where nothing does.
pub(crate) fn stops(cause: &MtuCause, going: Going, host: &str) -> String {
    let on_the_way = on_the_way(going);
    let (from, to) = ends(going, host);
    let named = |address: Option<IpAddr>| {
        let named = address.map(|address| format!(" ({address})"));
        named.unwrap_or_default()
    };
    let silently = format!("drops larger packets silently {on_the_way}");
    match cause {
        MtuCause::Clear => String::new(),
        MtuCause::OwnDevice => format!("the device of {from} takes no more"),
        MtuCause::PeerDevice => format!("the device of {to} takes no more"),
        MtuCause::RouterReports { hop, from: address } => {
            let place = hop.map(|hop| format!(" {}", hops(hop, &from)));
            let place = place.unwrap_or_default();
            format!("a router{place} ({address}) takes no more {on_the_way}, and says so")
        }
        MtuCause::Silent { hop, address, .. } => {
            let (hops, who) = (hops(*hop, &from), named(*address));
            format!("a router {hops}{who} {silently}")
        }
        MtuCause::Segment { peer: true, .. } => {
            format!("a switch between the two hosts {silently}")
        }
        MtuCause::Segment { to, peer: false } => {
            let to = named(*to);
            format!("larger packets vanish silently before the first router{to} {on_the_way}")
        }
        MtuCause::Somewhere => format!("something that does not show itself {silently}"),
        MtuCause::SenderStops => format!("{from} itself sends no larger packets"),
        MtuCause::NotTried => format!("larger packets could not be tried {on_the_way}"),
        MtuCause::Nothing => format!("not even small packets get through {on_the_way}"),
    }
}

/// Who sends and who receives.
pub(crate) fn ends(going: Going, host: &str) -> (String, String) {
    let here = "this host".to_owned();
    match going {
        Going::Forward => (here, host.to_owned()),
        Going::Reverse => (host.to_owned(), here),
    }
}

fn hops(hop: u8, from: &str) -> String {
    format!("{} from {from}", counted(hop.into(), "hop"))
}

fn device(end: &PathEnd, from: &str, to: &str) -> String {
    let learned = match (end.before.mtu, end.after.mtu) {
        (None, None) => "no path MTU is cached".to_owned(),
        (None, Some(after)) => format!("a path MTU of {after} was cached meanwhile"),
        (Some(before), None) => format!("a path MTU of {before} was cached before, and is no more"),
        (Some(before), Some(after)) if before == after => {
            format!("a path MTU of {after} is cached")
        }
        (Some(before), Some(after)) => {
            format!("a path MTU of {before} was cached before, and {after} is now")
        }
    };
    let by = match end.gateway {
        Some(gateway) => format!("by {gateway}"),
        None => "on the same segment".to_owned(),
    };
    let (device, mtu) = (escape(&end.device), end.device_mtu);
    let line = format!("{from} reaches {to} {by}, over {device} with an MTU of {mtu}; {learned}.");
    line.replacen("this host reaches", "This host reaches", 1)
}

fn doubt_words(doubt: MtuDoubt) -> &'static str {
    match doubt {
        MtuDoubt::RouterOrLink => "not separable: that router's own next link, or a switch on it",
        MtuDoubt::SwitchOrPort => "not separable: a switch on that segment, or the router's port",
        MtuDoubt::SilentOrFiltered => {
            "not separable: a router that sends no message, or a firewall (also the sender's own) that drops it"
        }
        MtuDoubt::Place => "where it stops is not known: nobody on the way answers",
        MtuDoubt::LastByte => "so many probes were lost that the last bytes are not certain",
        MtuDoubt::ClampPlace => {
            "who lowers the MSS is not known: too few on the way quote what they got"
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;

//! Both directions of a path, hop by hop, with the size that passes and the place where larger packets stop.

use super::{RIGHT, WIDTH, cut_name};
use crate::csv::cell;
use crate::mtu::{ends, fate, stops};
use crate::page::{Picture, Svg};
use crate::words::{or, wrap};
use model::mtu::{Going, Hop, MtuCause, MtuReport, PathEnd};

/// Places of the two hosts: this one is always at the left.
const NEAR: f64 = 70.0;
const FAR: f64 = RIGHT - 60.0;
/// Height of a direction.
const LANE: f64 = 186.0;
/// Width of a character of small text, about.
const LETTER: f64 = 6.4;
/// Characters of a line of text.
const LINE: u16 = 72;
/// Longest name of a host that is drawn over its place and in a sentence, in characters.
const OVER_PLACE: usize = 18;
const IN_SENTENCE: usize = 40;

/// What was found of a path. `id` names the picture, of which a page may have several.
pub fn picture(report: &MtuReport, id: &str, title: &str) -> Picture {
    let mut svg = Svg::new(WIDTH, 2.0 * LANE);
    let lanes = Going::ALL.map(|going| HopLane::of(report, going));
    for (lane, top) in lanes.iter().zip([0.0, LANE]) {
        lane.draw(&mut svg, top);
    }
    Picture::still(
        id,
        title,
        "Over the links the size that passes, in bytes. Thick: larger packets come so far, or all that the devices take. The cross: where they stop.",
        lanes.each_ref().map(HopLane::alternative).join(" "),
        svg,
        &["way", "hop", "address", "passes_bytes", "larger_passes"],
        lanes.iter().flat_map(HopLane::rows).collect(),
    )
}

/// One direction.
struct HopLane<'a> {
    report: &'a MtuReport,
    going: Going,
    /// Who sends and who receives.
    names: (String, String),
    /// Routers that are known.
    routers: u8,
}

impl HopLane<'_> {
    fn of(report: &MtuReport, going: Going) -> HopLane<'_> {
        let climb = &report.way(going).climb;
        let output = climb.hops.iter().map(|hop| hop.ttl).max().unwrap_or(0);
        HopLane {
            report,
            going,
            names: ends(going, &cut_name(&report.host, IN_SENTENCE)),
            routers: output.max(climb.distance.unwrap_or(1).saturating_sub(1)),
        }
    }

    fn hop(&self, ttl: u8) -> Option<&Hop> {
        let hops = &self.report.way(self.going).climb.hops;
        hops.iter().find(|hop| hop.ttl == ttl)
    }

    fn addresses(&self, unknown: &str) -> Vec<String> {
        let address = |ttl| or(self.hop(ttl).and_then(|hop| hop.address), unknown);
        (1..=self.routers).map(address).collect()
    }

    fn end(&self, receives: bool) -> Option<&PathEnd> {
        match receives == (self.going == Going::Forward) {
            true => self.report.remote.as_ref(),
            false => Some(&self.report.local),
        }
    }

    /// Where something stands that is so many hops from the sender.
    fn x(&self, hops: f64) -> f64 {
        let share = hops / (f64::from(self.routers) + 1.0);
        match self.going {
            Going::Forward => NEAR + share * (FAR - NEAR),
            Going::Reverse => FAR - share * (FAR - NEAR),
        }
    }

    /// How far from the sender packets come that are larger than what passes, or as large as the devices
    /// take, in hops; `None` if that is not known.
    fn reach(&self) -> Option<f64> {
        let last = f64::from(self.routers) + 1.0;
        match &self.report.way(self.going).verdict.cause {
            MtuCause::Clear | MtuCause::OwnDevice | MtuCause::PeerDevice => Some(last),
            MtuCause::SenderStops | MtuCause::Nothing => Some(0.0),
            MtuCause::RouterReports { hop, .. } => hop.map(f64::from),
            MtuCause::Silent { hop, .. } => Some(f64::from(*hop) + 0.5),
            MtuCause::Segment { .. } => Some(0.5),
            MtuCause::Somewhere | MtuCause::NotTried => None,
        }
    }

    /// Where the cross stands: beside a place that is drawn, or on the link.
    fn cross(&self) -> Option<f64> {
        let beside = 16.0 * self.ahead();
        let reach = self.reach()?;
        Some(match &self.report.way(self.going).verdict.cause {
            MtuCause::OwnDevice => self.x(0.0) + beside,
            MtuCause::PeerDevice => self.x(reach) - beside,
            _ if reach.fract() == 0.0 => self.x(reach) + beside,
            _ => self.x(reach),
        })
    }

    /// To the right or to the left.
    fn ahead(&self) -> f64 {
        match self.going {
            Going::Forward => 1.0,
            Going::Reverse => -1.0,
        }
    }

    fn draw(&self, svg: &mut Svg, top: f64) {
        let (from, to) = &self.names;
        let heading = format!("From {from} to {to}: {}", self.size());
        svg.text((0.0, top + 18.0), "ink strong", heading);
        let y = top + 82.0;
        let last = f64::from(self.routers) + 1.0;
        let (begin, end) = (self.x(0.0), self.x(last));
        match self.reach() {
            Some(reach) => {
                svg.line((begin, y), (self.x(reach), y), "s0 thick");
                svg.line((self.x(reach), y), (end, y), "s0 thin");
            }
            None => svg.line((begin, y), (end, y), "s0 thin dashed"),
        }
        // Which way it goes.
        let ahead = self.ahead();
        let tip = self.x(last - 0.25);
        let reverse = tip - 7.0 * ahead;
        let (above, below) = (y - 5.0, y + 5.0);
        svg.path(
            &format!("M{reverse} {above}L{tip} {y}L{reverse} {below}"),
            "ink",
        );
        self.draw_sizes(svg, y);
        for receives in [false, true] {
            let x = if receives { end } else { begin };
            let name = if receives { to } else { from };
            svg.rect((x - 8.0, y - 8.0), (16.0, 16.0), "s0");
            svg.text((x, y - 18.0), "ink middle", cut_name(name, OVER_PLACE));
            if let Some(end) = self.end(receives) {
                let address = cell(end.address);
                svg.text((x, y + 26.0), "faint small middle", address);
                let device = format!("device {}", end.device_mtu);
                svg.text((x, y + 42.0), "faint small middle", device);
            }
        }
        self.draw_routers(svg, y);
        let stops = self.stops();
        if !stops.is_empty() {
            if let Some(x) = self.cross() {
                svg.text((x, y + 6.0), "bad strong middle", "\u{d7}");
            }
            let lines = wrap(&format!("\u{d7} {stops}"), LINE, "", "");
            for (n, line) in lines.lines().enumerate() {
                svg.text((0.0, y + 64.0 + 17.0 * n as f64), "bad", line);
            }
        }
        if let Some(tcp) = self.report.way(self.going).tcp {
            let fate = format!("64 KiB over TCP: {}", fate(&tcp));
            svg.text((0.0, top + 35.0), "faint small", fate);
        }
    }

    /// The sizes that come so far, over the links where they differ.
    fn draw_sizes(&self, svg: &mut Svg, y: f64) {
        let Some(mtu) = self.report.way(self.going).verdict.mtu else {
            return;
        };
        let over = |hops: f64| (self.x(hops), y - 7.0);
        let last = f64::from(self.routers) + 0.5;
        // Where devices are the limit, larger packets were not even sent.
        let reach = self.reach();
        if reach.is_some_and(|reach| (1.0..last).contains(&reach)) {
            svg.text(over(0.5), "faint small middle", format!("over {mtu}"));
        }
        svg.text(over(last), "faint small middle", mtu);
    }

    fn draw_routers(&self, svg: &mut Svg, y: f64) {
        let room = (FAR - NEAR) / (f64::from(self.routers) + 1.0) - 8.0;
        let width = |text: &str| LETTER * text.chars().count() as f64;
        let names = self.addresses("no answer");
        let fit = names.iter().all(|name| width(name) < room);
        for (ttl, name) in (1..=self.routers).zip(&names) {
            let x = self.x(f64::from(ttl));
            let answers = self.hop(ttl).is_some_and(|hop| hop.small || hop.large);
            let class = if answers { "s0" } else { "faint" };
            svg.dot((x, y), 6.0, class, &format!("hop {ttl}: {name}"));
            svg.text((x, y - 18.0), "faint small middle", ttl);
            if fit {
                svg.text((x, y + 26.0), "faint small middle", name);
            }
        }
    }

    /// How much passes.
    fn size(&self) -> String {
        let verdict = &self.report.way(self.going).verdict;
        match verdict.mtu {
            Some(mtu) if verdict.cause == MtuCause::NotTried => format!("at least {mtu} bytes"),
            Some(mtu) => format!("{mtu} bytes"),
            None => "nothing passes".to_owned(),
        }
    }

    fn stops(&self) -> String {
        let cause = &self.report.way(self.going).verdict.cause;
        stops(cause, self.going, &cut_name(&self.report.host, IN_SENTENCE))
    }

    fn alternative(&self) -> String {
        let (from, to) = &self.names;
        let by = match &self.addresses("a router that does not answer")[..] {
            [] => "directly".to_owned(),
            routers => format!("by {}", routers.join(", ")),
        };
        let stops = match self.stops() {
            none if none.is_empty() => none,
            some => format!("; {some}"),
        };
        format!("From {from} to {to} {by}: {}{stops}.", self.size())
    }

    fn rows(&self) -> Vec<Vec<String>> {
        let verdict = &self.report.way(self.going).verdict;
        let remote = self.end(true).and_then(|end| end.address);
        let routers = (1..=self.routers).map(|ttl| {
            let hop = self.hop(ttl);
            (ttl, hop.and_then(|h| h.address), hop.map(|h| h.large))
        });
        let last = (
            self.routers + 1,
            remote,
            Some(verdict.cause == MtuCause::Clear),
        );
        let rows = routers.chain([last]).map(|(ttl, address, large)| {
            vec![
                self.going.name().to_owned(),
                ttl.to_string(),
                cell(address),
                cell(verdict.mtu),
                cell(large),
            ]
        });
        rows.collect()
    }
}

//! When a watched socket is worth a trace of every segment.

use crate::samples::count;
use crate::sender_state::OwnedInterval;
use model::finding::{Level, Limit};
use model::{BitRate, Bytes, Comm, Nanos, SocketState};
use std::str::FromStr;

/// The part of the last seconds from which a limit had most of them.
const MOST: f64 = 0.5;
/// Nothing is acknowledged for so long.
const STALLED: Nanos = Nanos::from_secs(1);
/// Fewer segments a second have no share of retransmissions.
const FEWEST_SEGMENTS: f64 = 20.0;
/// A rate stays below for so long; a connection that paused longer is idle.
const SLOW: Nanos = Nanos::from_secs(10);
const IDLE: Nanos = Nanos::from_secs(2);

/// A condition on one socket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SocketAlarm {
    /// This limit had most of the last seconds.
    Limit(Limit),
    /// Nothing is acknowledged for a second, though data wait for it.
    Stall,
    /// A retransmission timeout.
    Rto,
    /// So much of the segments of the last seconds was retransmitted, 0 to 1.
    Retransmissions(f64),
    /// Data move, and for ten seconds slower than this.
    Below(BitRate),
    /// Data move, and a process holds it whose name is like this.
    Process(Comm),
}

impl FromStr for SocketAlarm {
    type Err = String;

    fn from_str(text: &str) -> Result<SocketAlarm, String> {
        match text.split_once('=') {
            None if text == "stall" => Ok(SocketAlarm::Stall),
            None if text == "rto" => Ok(SocketAlarm::Rto),
            Some(("limit", name)) => {
                let first = Limit::ALL
                    .iter()
                    .filter(|limit| limit.level() == Level::First);
                let named: Vec<(String, Limit)> = first
                    .map(|limit| (limit.name().replace('_', "-"), *limit))
                    .collect();
                let found = named.iter().find(|(known, _)| known == name);
                found
                    .map(|(_, limit)| SocketAlarm::Limit(*limit))
                    .ok_or_else(|| {
                        let names: Vec<&str> =
                            named.iter().map(|(known, _)| known.as_str()).collect();
                        format!(
                            "samples show no limit '{name}'; they show {}",
                            names.join(", ")
                        )
                    })
            }
            Some(("retransmissions", share)) => {
                let percent = share.strip_suffix('%').and_then(|n| n.parse::<f64>().ok());
                let percent =
                    percent.filter(|percent| (0.0..=100.0).contains(percent) && *percent > 0.0);
                percent
                    .map(|percent| SocketAlarm::Retransmissions(percent / 100.0))
                    .ok_or_else(|| format!("'{share}' is no share; write retransmissions=1%"))
            }
            Some(("below", rate)) => rate
                .parse()
                .map(SocketAlarm::Below)
                .map_err(|e| format!("below: {e}")),
            Some(("process", name)) => match name.len() {
                1..=15 => Ok(SocketAlarm::Process(Comm::new(name.as_bytes()))),
                _ => Err(format!(
                    "'{name}' is no name of a process: it has 1 to 15 letters, '*' stands for any"
                )),
            },
            _ => Err(format!(
                "'{text}' is no trigger: write limit=NAME, stall, rto, retransmissions=1%, below=10M or process=NAME"
            )),
        }
    }
}

/// What the alarms remember of one socket.
#[derive(Clone, Debug, Default)]
pub(crate) struct AlarmState {
    /// The part of the last seconds that each limit of an alarm had.
    limits: Vec<f64>,
    segments: f64,
    retransmitted: f64,
    /// Data wait since then, and nothing was acknowledged.
    stuck: Option<Nanos>,
    moved: Nanos,
    slow: Option<Nanos>,
}

/// The time between two samples.
pub(crate) struct AlarmInterval<'a> {
    pub at: Nanos,
    pub span: Nanos,
    /// Name of the process that holds it; empty while not known.
    pub comm: Comm,
    pub was: &'a SocketState,
    pub now: &'a SocketState,
    pub pieces: &'a [OwnedInterval],
    /// Bytes that were acknowledged and came.
    pub bytes: u64,
    /// The mean of the last seconds, bytes a second.
    pub rate: f64,
    /// What that mean forgets meanwhile, 0 to 1.
    pub weight: f64,
}

/// Data are under way or not yet sent.
pub(crate) fn data_wait(tcp: &SocketState) -> bool {
    tcp.packets_out() > Some(0) || tcp.notsent_bytes() > Some(Bytes(0))
}

impl AlarmState {
    /// Takes the next interval; returns the first of the alarms that holds now.
    pub fn take(&mut self, alarms: &[SocketAlarm], of: &AlarmInterval<'_>) -> Option<usize> {
        self.limits.resize(alarms.len(), 0.0);
        let seconds = of.span.as_secs_f64().max(1e-9);
        let mean = |mean: &mut f64, now: f64| *mean += of.weight * (now - *mean);
        let sent = count(of.was.data_segs_out(), of.now.data_segs_out());
        let again = count(of.was.total_retrans(), of.now.total_retrans());
        mean(&mut self.segments, sent as f64 / seconds);
        mean(&mut self.retransmitted, again as f64 / seconds);
        let waits = data_wait(of.now);
        let delivered = count(of.was.delivered(), of.now.delivered()) > 0 || of.bytes > 0;
        self.stuck = (waits && !delivered).then(|| self.stuck.unwrap_or(of.at.since(of.span)));
        if of.bytes > 0 {
            self.moved = of.at;
        }
        let idle = of.at.since(self.moved) >= IDLE && !waits;
        let below = |rate: BitRate| of.rate < rate.0 as f64 / 8.0 && !idle;
        let slow = alarms
            .iter()
            .any(|alarm| matches!(alarm, SocketAlarm::Below(rate) if below(*rate)));
        self.slow = slow.then(|| self.slow.unwrap_or(of.at));
        let since = |moment: Option<Nanos>, least: Nanos| {
            moment.is_some_and(|from| of.at.since(from) >= least)
        };
        let rto = |tcp: &SocketState| tcp.total_rto().map(u32::from);
        let mut holds = None;
        for (n, alarm) in alarms.iter().enumerate() {
            let now = match alarm {
                SocketAlarm::Limit(limit) => {
                    let own = of.pieces.iter().filter(|piece| piece.limit == *limit);
                    let time: Nanos = own.map(|piece| piece.to.since(piece.from)).sum();
                    let part = time.0 as f64 / of.span.0.max(1) as f64;
                    self.limits[n] += of.weight * (part - self.limits[n]);
                    self.limits[n] >= MOST
                }
                SocketAlarm::Stall => since(self.stuck, STALLED),
                SocketAlarm::Rto => count(rto(of.was), rto(of.now)) > 0,
                SocketAlarm::Retransmissions(share) => {
                    self.segments >= FEWEST_SEGMENTS && self.retransmitted >= share * self.segments
                }
                SocketAlarm::Below(rate) => below(*rate) && since(self.slow, SLOW),
                SocketAlarm::Process(pattern) => {
                    of.bytes > 0
                        && of.comm != Comm::default()
                        && of.comm.is_like(&pattern.to_string())
                }
            };
            if now && holds.is_none() {
                holds = Some(n);
            }
        }
        holds
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::socket_state;

    const SPAN: Nanos = Nanos::from_millis(100);

    /// Intervals of 100 ms up to this time; each its part of the receive window's time, segments, retransmissions, timeouts and bytes.
    fn fires(
        alarm: &str,
        until_ms: u64,
        of: impl Fn(u64) -> (f64, u32, u32, u16, u64),
    ) -> Option<u64> {
        let alarms = [alarm.parse().unwrap()];
        let mut state = AlarmState::default();
        let tcp = |sent: u32, again: u32, timeouts: u16| {
            socket_state! {
                data_segs_out: Some(sent), delivered: Some(sent), total_retrans: Some(again),
                total_rto: Some(timeouts), packets_out: Some(5),
            }
        };
        let (mut sent, mut again, mut timeouts) = (0, 0, 0);
        (1..until_ms / 100).map(|n| n * 100).find(|ms| {
            let was = tcp(sent, again, timeouts);
            let (window, segments, more, fired, bytes) = of(*ms);
            (sent, again, timeouts) = (sent + segments, again + more, timeouts + fired);
            let at = Nanos::from_millis(*ms);
            let to = at.since(SPAN) + Nanos((SPAN.0 as f64 * window) as u64);
            let piece = OwnedInterval {
                from: at.since(SPAN),
                to,
                limit: Limit::ReceiveWindow,
                bytes: Bytes(0),
            };
            let interval = AlarmInterval {
                at,
                span: SPAN,
                comm: Comm::new(b"rsync"),
                was: &was,
                now: &tcp(sent, again, timeouts),
                pieces: &[piece],
                bytes,
                rate: bytes as f64 * 10.0,
                weight: 0.02,
            };
            state.take(&alarms, &interval).is_some()
        })
    }

    #[test]
    fn each_alarm_holds_once_its_condition_has_lasted() {
        let usual = |_| (0.0, 10, 0, 0, 10_000);
        for alarm in [
            "limit=receive-window",
            "stall",
            "rto",
            "retransmissions=1%",
            "below=500k",
            "process=nginx*",
        ] {
            assert_eq!(fires(alarm, 60_000, usual), None, "{alarm}");
        }
        // Half of the mean is forgotten in 35 intervals.
        assert_eq!(
            fires("limit=receive-window", 60_000, |_| (1.0, 10, 0, 0, 10_000)),
            Some(3_500)
        );
        assert_eq!(
            fires("limit=receive-window", 60_000, |_| (0.4, 10, 0, 0, 10_000)),
            None
        );
        assert_eq!(
            fires("stall", 60_000, |ms| (0.0, u32::from(ms < 5_000), 0, 0, 0)),
            Some(5_900)
        );
        assert_eq!(
            fires("rto", 60_000, |ms| (
                0.0,
                10,
                1,
                u16::from(ms == 7_000),
                10_000
            )),
            Some(7_000)
        );
        assert!(fires("retransmissions=1%", 60_000, |_| (0.0, 10, 1, 0, 10_000)).is_some());
        assert_eq!(fires("below=2M", 60_000, usual), Some(10_100));
        assert_eq!(fires("process=rs*", 60_000, usual), Some(100));
        assert_eq!(fires("process=rs*", 60_000, |_| (0.0, 0, 0, 0, 0)), None);
    }

    #[test]
    fn alarms_are_written_as_words() {
        assert_eq!(
            "limit=zero-window".parse(),
            Ok(SocketAlarm::Limit(Limit::ZeroWindow))
        );
        assert_eq!(
            "limit=rto-stall".parse(),
            Ok(SocketAlarm::Limit(Limit::RtoStall))
        );
        assert_eq!(
            "retransmissions=0.5%".parse(),
            Ok(SocketAlarm::Retransmissions(0.005))
        );
        for wrong in [
            "",
            "limit",
            "limit=x",
            "retransmissions=1",
            "below=x",
            "stall=1",
            "process=",
            "process=a-name-of-16-chr",
        ] {
            assert!(wrong.parse::<SocketAlarm>().is_err(), "{wrong}");
        }
    }
}

//! What one direction of a path needs.

use crate::host::number;
use crate::path_sample::PathSample;
use crate::propose::PathHosts;
use model::advice::{Needs, RateFrom};
use model::{BitRate, Bytes, Fingerprint};

/// Where buffers limited a transfer and the rate of the path is unknown, this multiple is tried.
const STEP: u64 = 4;
/// Over what the window needs: for the round trip that varies, and for segments that are not full.
const MARGIN: f64 = 1.25;
/// No window is larger (RFC 7323, 2.3), so no buffer need be larger than this.
const LARGEST: u64 = 2 << 30;

/// What a path needs in this direction. `held`: buffers were what limited the transfer, so that the path may
/// carry more than it did.
pub fn needs(way: &PathSample, hosts: PathHosts<'_>, held: bool) -> Needs {
    let (rate, rate_from) = rate(way, hosts, held);
    let bdp = Bytes(rate.bytes_in(way.rtt).0 / u64::from(way.connections.max(1)));
    let receiver = hosts.at(way.direction.sender().other());
    let share = way.window_share.unwrap_or_else(|| window_share(receiver));
    Needs {
        direction: way.direction,
        rate,
        rate_from,
        rtt: way.rtt,
        connections: way.connections,
        bdp,
        receive_buffer: buffer(bdp, share),
        // What it holds costs the same bookkeeping as at the receiver.
        send_buffer: buffer(bdp, LEARNED_SHARE),
    }
}

fn rate(way: &PathSample, hosts: PathHosts<'_>, held: bool) -> (BitRate, RateFrom) {
    if let Some(rate) = way.user_rate {
        return (rate, RateFrom::User);
    }
    if !held {
        return (way.goodput, RateFrom::Reached);
    }
    let speed = |host: Option<&Fingerprint>| host?.device.as_ref()?.speed;
    match (speed(Some(hosts.local)), speed(hosts.remote)) {
        // Either device may be the slower one, so both speeds must be known.
        (Some(local), Some(remote)) => (local.min(remote).max(way.goodput), RateFrom::Line),
        _ => (BitRate(way.goodput.0.saturating_mul(STEP)), RateFrom::Step),
    }
}

/// Share of a receive buffer that becomes window since Linux 6.6, which learns it from each connection:
/// measured with segments of 1448 bytes.
const LEARNED_SHARE: f64 = 0.62;

/// Share of the receive buffer that becomes window: `tcp_win_from_space` of `include/net/tcp.h`.
fn window_share(receiver: Option<&Fingerprint>) -> f64 {
    let version = receiver.and_then(Fingerprint::kernel_version);
    if version.is_none_or(|version| version >= (6, 6)) {
        return LEARNED_SHARE;
    }
    let scale = receiver.and_then(|host| host.sysctls.get("net.ipv4.tcp_adv_win_scale"));
    match scale.and_then(|text| text.parse::<i32>().ok()).unwrap_or(1) {
        scale @ 1..=31 => 1.0 - 0.5f64.powi(scale),
        scale => 0.5f64.powi(scale.clamp(-8, 0).abs()),
    }
}

/// A buffer for so much data, in whole mebibytes (or 64 KiB where it is small): nobody wants to read odd
/// bytes.
fn buffer(bdp: Bytes, share: f64) -> Bytes {
    let exact = bdp.0 as f64 * MARGIN / share.max(0.01);
    let exact = (exact as u64).min(LARGEST);
    let step = if exact >= 1 << 20 { 1 << 20 } else { 64 << 10 };
    Bytes(exact.div_ceil(step).max(1) * step)
}

/// Whether all connections together stay below where the kernel begins to hold TCP's memory back
/// (`net.ipv4.tcp_mem`, second number, in pages of at least 4 KiB); `None` where it is not reported.
pub(crate) fn fits_memory(host: &Fingerprint, buffer: Bytes, connections: u32) -> Option<bool> {
    let [_, pressure, _] = crate::host::three(host, "net.ipv4.tcp_mem")?;
    let all = buffer.0.saturating_mul(u64::from(connections));
    Some(all <= pressure.saturating_mul(4096))
}

/// The largest `SO_RCVBUF` or `SO_SNDBUF` that is granted; `None` where it is not reported.
pub(crate) fn largest_granted(host: Option<&Fingerprint>, key: &str) -> Option<Bytes> {
    number(host?, key).map(Bytes)
}

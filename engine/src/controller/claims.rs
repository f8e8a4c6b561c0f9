//! What a remote host may grant and report of a leg: no figure rests on its word where this host's kernel knows better.

use crate::datagrams;
use crate::prelude::*;
use model::{MOST_SAMPLED, StreamSample};

/// Samples of the remote host beyond twice those that were due.
const MORE_SAMPLES: u64 = 64;
/// A leg takes at most a day, unless a key allows more.
const LATEST_SAMPLE: Nanos = Nanos::from_secs(7 * 86_400);
/// Below this, the send time is not compared with the remote receive time: socket buffers absorb the data.
const SHORTEST_COMPARED: Nanos = Nanos::from_millis(100);
/// The receive buffer of a socket from which nothing was read yet (the default of `net.ipv4.tcp_rmem`): autotuning begins with
/// the first read (`tcp_rcv_space_adjust`, net/ipv4/tcp_input.c).
const FIRST_BUFFER: Bytes = Bytes(128 << 10);
/// A receive buffer that nobody ordered holds no more that is not read, whatever window its kernel offers.
const MOST_UNREAD: Bytes = Bytes(1 << 20);

/// The order as granted: that of this host, with the smaller limit and pacing of the remote host's rules.
///
/// # Errors
/// What of the grant is more than was ordered.
pub(super) fn within(ordered: &LegOrder, granted: &LegOrder) -> Result<LegOrder, String> {
    let limit = match (ordered.limit, granted.limit) {
        (LegLimit::Time(asked), LegLimit::Time(time)) if time <= asked => granted.limit,
        (LegLimit::Bytes(asked), LegLimit::Bytes(bytes)) if bytes <= asked => granted.limit,
        (LegLimit::Requests(asked), LegLimit::Requests(count)) if count <= asked => granted.limit,
        (LegLimit::Whole, LegLimit::Whole) => LegLimit::Whole,
        (_, LegLimit::Time(time)) => return Err(time.to_string()),
        (_, LegLimit::Bytes(bytes)) => return Err(bytes.to_string()),
        (_, LegLimit::Requests(count)) => return Err(format!("{count} requests")),
        (_, LegLimit::Whole) => return Err("all of the source".to_owned()),
    };
    if granted.streams != ordered.streams {
        return Err(format!("{} streams", granted.streams));
    }
    let pacing = match (ordered.socket.pacing, granted.socket.pacing) {
        (Some(_), None) => return Err("no pacing".to_owned()),
        (Some(asked), Some(pacing)) if pacing > asked => {
            return Err(format!("pacing at {pacing}"));
        }
        (_, pacing) => pacing,
    };
    Ok(LegOrder {
        limit,
        socket: SocketSettings {
            pacing,
            ..ordered.socket.clone()
        },
        ..ordered.clone()
    })
}

/// Connections of a leg whose sockets are reported.
pub(super) fn sampled(order: &LegOrder) -> usize {
    (order.streams as usize).min(MOST_SAMPLED)
}

/// Whether a sample of the remote host, taken in now, can be one of this leg.
///
/// # Errors
/// The rest of a sentence about that host.
pub(super) fn bounded(
    sample: &Sample,
    order: &LegOrder,
    leg: &Leg,
    now: Nanos,
) -> Result<(), String> {
    let (ordered, count) = (sampled(order), sample.streams.len());
    if count > ordered {
        return Err(format!(
            "sent a sample of {count} streams where {ordered} are to be"
        ));
    }
    // This host may have been suspended meanwhile.
    if sample.at > LATEST_SAMPLE {
        return Err(format!(
            "sent a sample of {}, which no leg reaches",
            sample.at
        ));
    }
    let interval = order.interval.max(Nanos::from_millis(1));
    let due = now.since(leg.started).0 / interval.0;
    if leg.remote.taken() > 2 * due + MORE_SAMPLES {
        return Err("sent more samples than there was time for".to_owned());
    }
    Ok(())
}

/// Why the remote host's counts of a transfer cannot be, if they cannot: it received more, or sooner, than this host's kernel
/// took to send, or sent less than arrived here.
pub(super) fn disputed(spec: &Spec, leg: &Leg, name: &str) -> Option<String> {
    if spec.workload.is_answered() {
        return None;
    }
    let (sent, received) = (leg.sender().bytes, leg.receiver().bytes);
    if leg.direction == Direction::Down && sent > Bytes(0) && received > sent {
        return Some(format!(
            "the remote host claims to have sent {sent}, this host received {received} from {name}: \
             the figures are those of this host alone"
        ));
    }
    let counts = leg.direction == Direction::Up;
    let samples = leg.remote.samples.iter().map(|sample| sample.bytes);
    let claimed = samples.chain([leg.remote.bytes]).max()?;
    let sent = leg.local.bytes;
    let took = leg.local.duration.since(unread_at_first(spec, &leg.local));
    // The sender of a copy also waits for storage at both hosts.
    // A path may have lost all datagrams for most of the time.
    let sooner = !matches!(spec.workload, Workload::Copy(_) | Workload::Udp(_))
        && leg.remote.bytes > Bytes(0)
        && took > SHORTEST_COMPARED
        && leg.remote.duration < Nanos(took.0 / 2);
    let of_this_kernel = "the figures are those of this host alone";
    let packets = leg.local.datagrams.map_or(0, |sent| sent.packets);
    if counts
        && spec.workload.is_udp()
        && let Some(claims) = datagrams::impossible(&leg.remote, packets)
    {
        return Some(format!(
            "the remote host claims {claims} to {name}: {of_this_kernel}"
        ));
    }
    match counts {
        true if sent > Bytes(0) && claimed > sent => Some(format!(
            "the remote host claims {claimed}, this kernel sent {sent} to {name}: {of_this_kernel}"
        )),
        true if sooner => Some(format!(
            "the remote host claims to have received for {}, this kernel sent for {took} what no receive buffer holds to {name}: \
             {of_this_kernel}",
            leg.remote.duration
        )),
        _ => None,
    }
}

/// How long after the beginning all that the remote kernel had acknowledged fitted its receive buffers: a program that began
/// late has read it at once.
fn unread_at_first(spec: &Spec, sender: &EndRecord) -> Nanos {
    let most = spec
        .socket
        .receive_buffer
        .unwrap_or(MOST_UNREAD)
        .max(MOST_UNREAD);
    // The largest window that each socket was offered so far: data that is not read closes it.
    let mut offered: Vec<Bytes> = Vec::new();
    // What opened the connections was acknowledged before.
    let mut unread = |sample: &Sample| -> Option<bool> {
        let mut firsts = sender.samples.first()?.streams.iter();
        let mut fits = true;
        offered.resize(sample.streams.len(), FIRST_BUFFER);
        for (stream, offered) in sample.streams.iter().zip(&mut offered) {
            let acked = |stream: &StreamSample| stream.tcp.as_ref()?.bytes_acked();
            let now = stream.tcp.as_ref()?.snd_wnd().unwrap_or_default();
            *offered = now.min(most).max(*offered);
            fits &= acked(stream)?.since(acked(firsts.next()?)?) <= *offered;
        }
        Some(fits)
    };
    let last = (sender.samples.iter())
        .take_while(|sample| unread(sample) == Some(true))
        .last();
    last.map_or(Nanos(0), |sample| sample.at)
}

#[cfg(test)]
mod tests;

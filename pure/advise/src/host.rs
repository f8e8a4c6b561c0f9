//! The settings of a host that its fingerprint reports.

#![deny(clippy::wildcard_enum_match_arm)]

use model::{CoalescingKnob, DeviceKnob, Fingerprint, Knob, RingKnob, RouteKnob, Value};

/// A sysctl that is one number.
pub(crate) fn number(host: &Fingerprint, key: &str) -> Option<u64> {
    host.sysctls.get(key)?.parse().ok()
}

/// A sysctl that is least, initial and greatest.
pub(crate) fn three(host: &Fingerprint, key: &str) -> Option<[u64; 3]> {
    let mut numbers = host.sysctls.get(key)?.split(' ').map(str::parse);
    let mut next = || numbers.next()?.ok();
    Some([next()?, next()?, next()?])
}

/// The value of a knob on a host, where its fingerprint has it.
pub(crate) fn now(host: &Fingerprint, knob: Knob) -> Option<Value> {
    match knob {
        Knob::Sysctl(key) => Some(key.value_in(host.sysctls.get(key.name())?)),
        Knob::Route(knob) => {
            let metrics = &host.route.as_ref()?.metrics;
            let text = metrics.get(knob.tool_name())?;
            let text = text.strip_prefix("lock ").unwrap_or(text);
            match knob {
                RouteKnob::Congctl => Some(Value::Word(text.to_owned())),
                RouteKnob::Quickack => Some(Value::Switch(text != "0")),
                RouteKnob::RtoMin => {
                    let number = text.strip_suffix("ms").unwrap_or(text);
                    Some(Value::Number(number.parse().ok()?))
                }
                RouteKnob::Mtu
                | RouteKnob::Advmss
                | RouteKnob::Initcwnd
                | RouteKnob::Initrwnd
                | RouteKnob::Window => Some(Value::Number(text.parse().ok()?)),
            }
        }
        Knob::Device(knob) => {
            let device = host.device.as_ref()?;
            let number = |n: u32| Some(Value::Number(u64::from(n)));
            match knob {
                DeviceKnob::Mtu => number(device.mtu),
                DeviceKnob::Txqueuelen => number(device.tx_queue_len?),
                DeviceKnob::Qdisc => device.qdisc.clone().map(Value::Word),
                DeviceKnob::Ring(RingKnob::Rx) => number(device.rx_ring?.0),
                DeviceKnob::Ring(RingKnob::Tx) => number(device.tx_ring?.0),
                DeviceKnob::Coalescing(CoalescingKnob::Rx) => number(device.rx_usecs?),
                DeviceKnob::Coalescing(CoalescingKnob::Tx) => number(device.tx_usecs?),
                DeviceKnob::Offload(offload) => {
                    let on = device.offloads.get(offload.tool_name());
                    on.copied().map(Value::Switch)
                }
                // Not in a fingerprint.
                DeviceKnob::Mtu6 | DeviceKnob::Pin => None,
            }
        }
        Knob::Socket(_) => None,
    }
}

//! What a fingerprint tells of a host's settings.

use model::{DeviceKnob, Fingerprint, Knob, RouteKnob, Shape, Value};

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

/// The value that a knob has on a host, where its fingerprint tells it.
pub(crate) fn now(host: &Fingerprint, knob: Knob) -> Option<Value> {
    match knob {
        Knob::Sysctl(key) => {
            let text = host.sysctls.get(key.name())?;
            let numbers: Option<Vec<u64>> = text.split(' ').map(|n| n.parse().ok()).collect();
            match (numbers.as_deref(), key.shape()) {
                (_, Shape::Name) | (None, _) => Some(Value::Word(text.clone())),
                (Some([one]), _) => Some(Value::Number(*one)),
                (Some(_), _) => numbers.map(Value::Numbers),
            }
        }
        Knob::Route(knob) => {
            let metrics = &host.route.as_ref()?.metrics;
            let text = metrics.get(metric(knob))?;
            let text = text.strip_prefix("lock ").unwrap_or(text);
            match knob {
                RouteKnob::Congctl => Some(Value::Word(text.to_owned())),
                RouteKnob::Quickack => Some(Value::Switch(text != "0")),
                _ => Some(Value::Number(text.trim_end_matches("ms").parse().ok()?)),
            }
        }
        Knob::Device(knob) => {
            let device = host.device.as_ref()?;
            let number = |n: u32| Some(Value::Number(u64::from(n)));
            let switch = |name| device.offloads.get(name).copied().map(Value::Switch);
            match knob {
                DeviceKnob::Mtu => number(device.mtu),
                DeviceKnob::Txqueuelen => number(device.tx_queue_len?),
                DeviceKnob::Qdisc => device.qdisc.clone().map(Value::Word),
                DeviceKnob::Rxring => number(device.rx_ring?.0),
                DeviceKnob::Txring => number(device.tx_ring?.0),
                DeviceKnob::Tso => switch("tso"),
                DeviceKnob::Gso => switch("gso"),
                DeviceKnob::Gro => switch("gro"),
                DeviceKnob::Lro => switch("lro"),
                DeviceKnob::Rx => switch("rx"),
                DeviceKnob::Tx => switch("tx"),
                DeviceKnob::Sg => switch("sg"),
                // Not in a fingerprint.
                DeviceKnob::Mtu6 | DeviceKnob::Pin => None,
            }
        }
        _ => None,
    }
}

/// The name of ip-route(8).
fn metric(knob: RouteKnob) -> &'static str {
    match knob {
        RouteKnob::Mtu => "mtu",
        RouteKnob::Advmss => "advmss",
        RouteKnob::Congctl => "congctl",
        RouteKnob::Initcwnd => "initcwnd",
        RouteKnob::Initrwnd => "initrwnd",
        RouteKnob::Quickack => "quickack",
        RouteKnob::RtoMin => "rto_min",
        RouteKnob::Window => "window",
    }
}

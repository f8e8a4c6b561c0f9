//! Values that well-known guides name, as they name them. They are judged, not followed.

use model::{Knob, Setting, SysctlKey, Value};

/// A guide, and the settings that it names.
pub(crate) struct Guide {
    pub name: &'static str,
    pub source: &'static str,
    values: &'static [(&'static str, &'static str)],
}

/// The figures of each guide that are sysctls of linerate's table.
#[rustfmt::skip]
pub(crate) const GUIDES: [Guide; 6] = [
    Guide {
        name: "tuned network-throughput",
        source: "profiles/network-throughput/tuned.conf of tuned (Red Hat Enterprise Linux, Fedora)",
        values: &[
            ("net.ipv4.tcp_rmem", "4096 131072 16777216"),
            ("net.ipv4.tcp_wmem", "4096 16384 16777216"),
        ],
    },
    Guide {
        name: "tuned network-latency",
        source: "profiles/network-latency/tuned.conf of tuned (Red Hat Enterprise Linux, Fedora)",
        values: &[("net.core.busy_read", "50"), ("net.core.busy_poll", "50")],
    },
    Guide {
        name: "ESnet, 10 Gbit/s up to 100 ms",
        source: "fasterdata.es.net/host-tuning/linux",
        values: &[
            ("net.core.rmem_max", "67108864"),
            ("net.core.wmem_max", "67108864"),
            ("net.ipv4.tcp_rmem", "4096 87380 33554432"),
            ("net.ipv4.tcp_wmem", "4096 65536 33554432"),
            ("net.ipv4.tcp_congestion_control", "htcp"),
            ("net.ipv4.tcp_mtu_probing", "1"),
            ("net.core.default_qdisc", "fq"),
        ],
    },
    Guide {
        name: "ESnet, 100 Gbit/s",
        source: "fasterdata.es.net/host-tuning/linux/100g-tuning",
        values: &[
            ("net.core.rmem_max", "2147483647"),
            ("net.core.wmem_max", "2147483647"),
            ("net.ipv4.tcp_rmem", "4096 131072 1073741824"),
            ("net.ipv4.tcp_wmem", "4096 16384 1073741824"),
            ("net.ipv4.tcp_mtu_probing", "1"),
            ("net.ipv4.tcp_no_metrics_save", "1"),
        ],
    },
    Guide {
        name: "Oracle on Red Hat",
        source: "Tuning and Optimizing Red Hat Enterprise Linux for Oracle 9i and 10g Databases, 10.2",
        values: &[
            ("net.core.rmem_max", "4194304"),
            ("net.core.wmem_max", "262144"),
            ("net.ipv4.tcp_rmem", "4096 262144 4194304"),
            ("net.ipv4.tcp_wmem", "4096 262144 262144"),
        ],
    },
    Guide {
        name: "NFS over long paths, IBM",
        source: "IBM Storage Scale 5.0.4: tuning on both the NFS client and the NFS server",
        values: &[
            ("net.ipv4.tcp_rmem", "12194304 12194304 12194304"),
            ("net.ipv4.tcp_wmem", "12194304 12194304 12194304"),
            ("net.ipv4.tcp_mem", "16777216 16777216 16777216"),
            ("net.core.rmem_max", "12194304"),
            ("net.core.wmem_max", "12194304"),
            ("net.core.netdev_max_backlog", "250000"),
            ("net.ipv4.tcp_no_metrics_save", "1"),
            ("net.ipv4.tcp_timestamps", "0"),
            ("net.ipv4.tcp_sack", "1"),
        ],
    },
];

impl Guide {
    /// What it says of a key.
    pub fn value(&self, key: SysctlKey) -> Option<Value> {
        let (name, text) = self.values.iter().find(|(name, _)| *name == key.name())?;
        let setting: Setting = format!("sysctl:{name}={text}").parse().ok()?;
        (setting.knob == Knob::Sysctl(key)).then_some(setting.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_is_a_setting() {
        for guide in &GUIDES {
            for (name, text) in guide.values {
                let key = name.parse().unwrap();
                let value = guide.value(key).unwrap();
                assert_eq!(
                    Knob::Sysctl(key)
                        .format_value(&value)
                        .parse::<model::Bytes>()
                        .map_or(text.to_string(), |n| n.0.to_string()),
                    *text,
                    "{}: {name}",
                    guide.name
                );
            }
        }
    }
}

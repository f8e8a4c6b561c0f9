use super::*;
use model::advice::{Advice, Change, Declined, Proposal, RateFrom};
use model::{BitRate, Bytes, Nanos};

/// One in which nothing is left out.
pub(crate) fn report() -> AuditReport {
    let setting = || "rcvbuf=8M".parse().unwrap();
    let setter = |path: &str, value: &str| Setter {
        path: path.to_owned(),
        line: 3,
        value: value.to_owned(),
    };
    AuditReport {
        host: "db2".to_owned(),
        run: "0badcafe".to_owned(),
        advice: vec![Advice {
            needs: Needs {
                direction: Direction::Down,
                rate: BitRate(1_000_000_000),
                rate_from: RateFrom::User,
                rtt: Nanos::from_millis(100),
                connections: 1,
                bdp: Bytes(12_500_000),
                receive_buffer: Bytes(25 << 20),
                send_buffer: Bytes(25 << 20),
            },
            proposals: vec![Proposal {
                title: "larger buffers".to_owned(),
                direction: Direction::Down,
                cause: model::finding::Limit::ReceiveWindow,
                changes: vec![Change {
                    now: Some("1".to_owned()),
                    default: Some("2".to_owned()),
                    ..Change::new(setting(), Side::Local, "w".to_owned(), "s")
                }],
                stand_in: vec![setting()],
            }],
            declined: vec![Declined {
                setting: setting(),
                why: "x".to_owned(),
            }],
            otherwise: vec!["find the link that loses".to_owned()],
        }],
        hosts: vec![HostAudit {
            side: Side::Local,
            hostname: "db\u{1b}1".to_owned(),
            kernel: "Linux 6.18.44".to_owned(),
            items: vec![Item {
                name: "net.ipv4.tcp_rmem".to_owned(),
                now: "4096 131072 16777216".to_owned(),
                default: Some("4096 131072 33554432".to_owned()),
                wanted: Some("4096 131072 26214400".to_owned()),
                worth: Worth::Harmful,
                lowers: true,
                why: "lowers the limit to 16.0 MiB, where this kernel has 32.0 MiB by itself"
                    .to_owned(),
                guides: vec![Guidance {
                    guide: "tuned network-throughput".to_owned(),
                    source: "tuned".to_owned(),
                    value: "4096 131072 16777216".to_owned(),
                    worth: Worth::Harmful,
                    lowers: true,
                    why: "it is so".to_owned(),
                }],
                set_by: vec![
                    setter("/usr/lib/sysctl.d/50-a.conf", "4096 131072 1"),
                    setter("/etc/sysctl.d/60-b.conf", "4096 131072 8"),
                ],
            }],
            others: vec!["tuned is active".to_owned()],
        }],
        doubts: vec!["the run was short".to_owned()],
    }
}

#[test]
fn harm_has_its_reason_and_who_set_it() {
    let text = text(&report(), Style::PLAIN);
    let expected = "\
1 setting does harm on this path. Nothing was changed.

down (to this host): 1.00 Gbit/s (as you say) x RTT 100 ms = 11.9 MiB in flight;
  this takes 25.0 MiB of buffer at the receiver and 25.0 MiB at the sender

This host: db\\u{1b}1, Linux 6.18.44
  harmful   net.ipv4.tcp_rmem = 4096 131072 16777216  ->  4096 131072 26214400
            lowers the limit to 16.0 MiB, where this kernel has 32.0 MiB by
            itself
            this kernel's default: 4096 131072 33554432
            set at the start by /etc/sysctl.d/60-b.conf:3, which wins over
            /usr/lib/sysctl.d/50-a.conf:3; it says 4096 131072 8, so something
            else has set it since
            tuned network-throughput: 4096 131072 16777216: harmful; it is so
  note: tuned is active

Beside the settings:
- find the link that loses
- the run was short
";
    assert_eq!(text, expected);
}

#[test]
fn a_host_without_fault_is_reported_so() {
    let mut report = report();
    report.hosts[0].items.clear();
    assert!(
        text(&report, Style::PLAIN)
            .starts_with("Every setting that was looked at is as it should be")
    );
}

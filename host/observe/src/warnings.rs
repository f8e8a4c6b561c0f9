//! Where the kernel gave something else than was asked for.

use model::{Bytes, SocketOptions, SocketSettings, Warning};

/// Says where the options in force on a live socket differ from those asked for, why that is so, what
/// it means for the figures and what to do.
///
/// `whose` names the end as the subject of a sentence, like `this host` or `the far end`. Streams with
/// the same deviation give equal warnings, so that a caller can show each once. Needs nothing but its
/// arguments: the state of a far socket can be judged here, because what the kernel gave tells the
/// limit that it applied.
pub fn setting_warnings(asked: &SocketSettings, got: &SocketOptions, whose: &str) -> Vec<Warning> {
    let mut warnings = Vec::new();
    warnings.extend(
        asked
            .send_buffer
            .and_then(|size| buffer(&SEND, size, got.send_buffer, whose)),
    );
    warnings.extend(
        asked
            .receive_buffer
            .and_then(|size| buffer(&RECEIVE, size, got.receive_buffer, whose)),
    );
    warnings.extend(asked.mss.and_then(|size| mss(size, got.mss, whose)));
    if let Some(name) = &asked.congestion
        && *name != got.congestion
    {
        warnings.push(Warning {
            what: format!(
                "{whose}: congestion control '{name}' asked, '{}' in force",
                got.congestion
            ),
            meaning: format!("the figures are those of '{}'", got.congestion),
            remedy: "see net.ipv4.tcp_available_congestion_control, and whether the route sets \
                     'congctl lock' (ip route get ADDRESS)"
                .to_owned(),
        });
    }
    if let Some(on) = asked.nodelay
        && on != got.nodelay
    {
        let word = |on| if on { "on" } else { "off" };
        warnings.push(Warning {
            what: format!(
                "{whose}: TCP_NODELAY {} asked, it is {}",
                word(on),
                word(got.nodelay)
            ),
            meaning:
                "small writes are delayed or sent otherwise than asked, which shows in request \
                      latencies"
                    .to_owned(),
            remedy: "run again without the option to see what the default gives".to_owned(),
        });
    }
    if let Some(rate) = asked.pacing
        // The kernel paces in whole bytes a second.
        && got.pacing.map(|r| r.0 / 8) != Some(rate.0 / 8)
    {
        let given = match got.pacing {
            Some(rate) => rate.to_string(),
            None => "no limit".to_owned(),
        };
        warnings.push(Warning {
            what: format!("{whose}: SO_MAX_PACING_RATE {rate} asked, {given} in force"),
            meaning: "the sender is not paced as asked".to_owned(),
            remedy: "kernels before 4.20 cannot hold more than 34 Gbit/s: ask for less".to_owned(),
        });
    }
    if let Some(dscp) = asked.dscp
        && dscp != got.dscp
    {
        warnings.push(Warning {
            what: format!("{whose}: DSCP {dscp} asked, {} in force", got.dscp),
            meaning: "the network queues these packets as another class than asked".to_owned(),
            remedy: "look for a cgroup or security policy that sets IP_TOS or IPV6_TCLASS"
                .to_owned(),
        });
    }
    if let Some(bytes) = asked.notsent_lowat
        && got.notsent_lowat != Some(bytes)
    {
        let default = || "the kernel's default".to_owned();
        warnings.push(Warning {
            what: format!(
                "{whose}: TCP_NOTSENT_LOWAT {} asked, {} in force",
                size(bytes),
                got.notsent_lowat.map_or_else(default, size)
            ),
            meaning: "the sender keeps another amount of unsent data than asked".to_owned(),
            remedy: "run again without the option to see what the default gives".to_owned(),
        });
    }
    warnings
}

/// What is known of one of the two buffer options.
struct BufferOption {
    name: &'static str,
    limit: &'static str,
    /// What the buffer bounds.
    bounds: &'static str,
}

const SEND: BufferOption = BufferOption {
    name: "SO_SNDBUF",
    limit: "net.core.wmem_max",
    bounds: "data in flight",
};

const RECEIVE: BufferOption = BufferOption {
    name: "SO_RCVBUF",
    limit: "net.core.rmem_max",
    bounds: "the receive window",
};

/// The kernel cuts the value to its limit, doubles it for its own bookkeeping, and raises the result
/// to a minimum of a few KiB (socket(7); `sk_setsockopt` in `net/core/sock.c`).
fn buffer(option: &BufferOption, asked: Bytes, held: Bytes, whose: &str) -> Option<Warning> {
    let given = Bytes(held.0 / 2);
    if given == asked {
        return None;
    }
    let BufferOption {
        name,
        limit,
        bounds,
    } = option;
    let what = format!(
        "{whose}: {name} {} asked, {} given",
        size(asked),
        size(given)
    );
    Some(if given < asked {
        Warning {
            what,
            meaning: format!(
                "{bounds} may be limited to less than was asked for: the figures are those of the \
                 smaller buffer"
            ),
            remedy: format!(
                "{limit} is {} there; raise it with `sysctl -w {limit}={}`, or leave the buffer to \
                 the kernel's autotuning",
                given.0, asked.0
            ),
        }
    } else {
        Warning {
            what,
            meaning:
                "this is the least that the kernel allows: the figures are those of the larger \
                      buffer"
                    .to_owned(),
            remedy: format!("ask for {} or more", size(given)),
        }
    })
}

/// Twelve bytes of every segment are the timestamps option (RFC 7323), and `TCP_MAXSEG` reads back
/// what is left for data.
const TIMESTAMPS: u32 = 12;

fn mss(asked: u32, given: u32, whose: &str) -> Option<Warning> {
    if (asked.saturating_sub(TIMESTAMPS)..=asked).contains(&given) {
        return None;
    }
    let what = format!("{whose}: MSS {asked} asked, {given} in force");
    Some(if given < asked {
        Warning {
            what,
            meaning: "segments carry less data than asked, so that a byte costs more packets"
                .to_owned(),
            remedy:
                "the path MTU, the peer's announced MSS or half of its receive window is smaller: \
                     see the MTU of the leaving device and of the route (ip route get ADDRESS)"
                    .to_owned(),
        }
    } else {
        Warning {
            what,
            meaning: "segments carry more data than asked".to_owned(),
            remedy: "net.ipv4.tcp_min_snd_mss is the least that a sender uses: ask for more"
                .to_owned(),
        }
    })
}

/// Whole multiples as people write them (`8 MiB`), others in three digits.
fn size(bytes: Bytes) -> String {
    for (unit, name) in [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
        if bytes.0 >= unit && bytes.0.is_multiple_of(unit) {
            return format!("{} {name}", bytes.0 / unit);
        }
    }
    bytes.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::BitRate;

    fn state() -> SocketOptions {
        SocketOptions {
            stream: 0,
            local: "127.0.0.1:1".parse().unwrap(),
            remote: "127.0.0.1:2".parse().unwrap(),
            send_buffer: Bytes(8 << 20),
            receive_buffer: Bytes(425_984),
            mss: 1448,
            congestion: "cubic".to_owned(),
            nodelay: false,
            pacing: None,
            dscp: 0,
            notsent_lowat: None,
            snd_wscale: Some(7),
            rcv_wscale: Some(7),
        }
    }

    #[test]
    fn nothing_asked_or_all_given_is_silent() {
        assert_eq!(
            setting_warnings(&SocketSettings::default(), &state(), "this host"),
            []
        );
        let asked = SocketSettings {
            send_buffer: Some(Bytes(4 << 20)),
            receive_buffer: Some(Bytes(212_992)),
            mss: Some(1460),
            congestion: Some("cubic".to_owned()),
            nodelay: Some(false),
            pacing: Some(BitRate(1_000_000_007)),
            dscp: Some(46),
            notsent_lowat: None,
            ip_version: None,
        };
        let got = SocketOptions {
            pacing: Some(BitRate(1_000_000_000)),
            dscp: 46,
            ..state()
        };
        assert_eq!(setting_warnings(&asked, &got, "this host"), []);
    }

    #[test]
    fn a_cut_buffer_names_the_limit_and_the_remedy() {
        let asked = SocketSettings {
            send_buffer: Some(Bytes(8 << 20)),
            ..SocketSettings::default()
        };
        let [warning] = &setting_warnings(&asked, &state(), "this host")[..] else {
            panic!("one warning");
        };
        assert_eq!(
            warning.what,
            "this host: SO_SNDBUF 8 MiB asked, 4 MiB given"
        );
        assert_eq!(
            warning.remedy,
            "net.core.wmem_max is 4194304 there; raise it with `sysctl -w net.core.wmem_max=8388608`, \
             or leave the buffer to the kernel's autotuning"
        );
    }

    #[test]
    fn a_raised_buffer_is_said() {
        let asked = SocketSettings {
            receive_buffer: Some(Bytes(100)),
            ..SocketSettings::default()
        };
        let got = SocketOptions {
            receive_buffer: Bytes(2304),
            ..state()
        };
        let [warning] = &setting_warnings(&asked, &got, "the far end")[..] else {
            panic!("one warning");
        };
        assert_eq!(
            warning.what,
            "the far end: SO_RCVBUF 100 B asked, 1.12 KiB given"
        );
        assert!(warning.meaning.contains("least"));
    }

    #[test]
    fn every_other_option_has_its_sentence() {
        let asked = SocketSettings {
            mss: Some(9000),
            congestion: Some("bbr".to_owned()),
            nodelay: Some(true),
            pacing: Some(BitRate(1_000_000)),
            dscp: Some(10),
            notsent_lowat: Some(Bytes(131_072)),
            ..SocketSettings::default()
        };
        let what: Vec<_> = setting_warnings(&asked, &state(), "this host")
            .into_iter()
            .map(|w| w.what)
            .collect();
        assert_eq!(
            what,
            [
                "this host: MSS 9000 asked, 1448 in force",
                "this host: congestion control 'bbr' asked, 'cubic' in force",
                "this host: TCP_NODELAY on asked, it is off",
                "this host: SO_MAX_PACING_RATE 1.00 Mbit/s asked, no limit in force",
                "this host: DSCP 10 asked, 0 in force",
                "this host: TCP_NOTSENT_LOWAT 128 KiB asked, the kernel's default in force",
            ]
        );
        let small = SocketSettings {
            mss: Some(1400),
            ..SocketSettings::default()
        };
        assert_eq!(setting_warnings(&small, &state(), "x").len(), 1);
    }
}

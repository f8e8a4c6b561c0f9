//! Where the kernel gave something else than was asked for.

use model::{
    Bytes, OptionCall, OptionUnit, SOCKET_OPTIONS, SocketKnob, SocketOption, SocketOptions,
    SocketSettings, Warning,
};
use tcp::thresholds::TIMESTAMPS;

/// Where the options in force on a live socket differ from those asked for, why, what it means for the figures and what
/// to do. `whose` names the end as the subject of a sentence, like `this host`. Streams with the same deviation give equal
/// warnings, so that a caller can show each once. A remote socket can be judged here: what its kernel gave shows the
/// limit that it applied.
pub fn setting_warnings(asked: &SocketSettings, got: &SocketOptions, whose: &str) -> Vec<Warning> {
    let options = SOCKET_OPTIONS.iter();
    let deviations =
        options.filter_map(|option| deviation(option, (option.asked)(asked)?, got, whose));
    let congestion = asked.congestion.as_ref();
    let congestion = congestion.filter(|name| **name != got.congestion).map(|name| {
        let given = &got.congestion;
        warning(
            format!("{whose}: congestion control '{name}' asked, '{given}' in force"),
            format!("the figures are those of '{given}'"),
            "see net.ipv4.tcp_available_congestion_control, and whether the route sets 'congctl lock' (ip route get ADDRESS)",
        )
    });
    deviations.chain(congestion).collect()
}

fn warning(what: String, meaning: impl Into<String>, remedy: impl Into<String>) -> Warning {
    Warning {
        what,
        meaning: meaning.into(),
        remedy: remedy.into(),
    }
}

fn deviation(
    option: &SocketOption,
    asked: u64,
    got: &SocketOptions,
    whose: &str,
) -> Option<Warning> {
    let found = option.in_force(got);
    match (option.call, option.knob, found) {
        (OptionCall::SendBuffer | OptionCall::ReceiveBuffer, _, Some(given)) => {
            return buffer(option, Bytes(asked), Bytes(given), whose);
        }
        (_, Some(SocketKnob::Mss), Some(given)) => return mss(asked as u32, given as u32, whose),
        (_, _, Some(found)) if (option.same)(asked, found) => return None,
        _ => {}
    }
    let shown = |value| match option.unit {
        OptionUnit::Bytes => size(Bytes(value)),
        unit => unit.format(value),
    };
    let found = found.map_or_else(
        || match option.call {
            OptionCall::PacingRate => "no limit".to_owned(),
            _ => "the kernel's default".to_owned(),
        },
        shown,
    );
    let [meaning, remedy] = option.otherwise;
    let what = format!(
        "{whose}: {} {} asked, {found} in force",
        option.kernel,
        shown(asked)
    );
    Some(warning(what, meaning, remedy))
}

/// The kernel cuts the value to its limit, doubles it for its own bookkeeping, and raises the result
/// to a minimum of a few KiB (socket(7); `sk_setsockopt` in `net/core/sock.c`).
fn buffer(option: &SocketOption, asked: Bytes, given: Bytes, whose: &str) -> Option<Warning> {
    if given == asked {
        return None;
    }
    let (name, [bounds, limit]) = (option.kernel, option.otherwise);
    let what = format!(
        "{whose}: {name} {} asked, {} given",
        size(asked),
        size(given)
    );
    Some(if given < asked {
        let meaning = format!(
            "{bounds} may be limited to less than was asked for: the figures are those of the smaller buffer"
        );
        let remedy = format!(
            "{limit} is {} there; raise it with `sysctl -w {limit}={}`, or leave the buffer to the kernel's autotuning",
            given.0, asked.0
        );
        warning(what, meaning, remedy)
    } else {
        warning(
            what,
            "this is the least that the kernel allows: the figures are those of the larger buffer",
            format!("request {} or more", size(given)),
        )
    })
}

/// `TCP_MAXSEG` reads back what the option for timestamps leaves for data.
fn mss(asked: u32, given: u32, whose: &str) -> Option<Warning> {
    if (asked.saturating_sub(TIMESTAMPS)..=asked).contains(&given) {
        return None;
    }
    let what = format!("{whose}: MSS {asked} asked, {given} in force");
    Some(if given < asked {
        warning(
            what,
            "segments carry less data than asked, so that a byte costs more packets",
            "the path MTU, the peer's announced MSS or half of its receive window is smaller: see the MTU of the leaving device and of the route (ip route get ADDRESS)",
        )
    } else {
        warning(
            what,
            "segments carry more data than asked",
            "net.ipv4.tcp_min_snd_mss is the least that a sender uses: request more",
        )
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
        let [warning] = &setting_warnings(&asked, &got, "the remote host")[..] else {
            panic!("one warning");
        };
        assert_eq!(
            warning.what,
            "the remote host: SO_RCVBUF 100 B asked, 1.12 KiB given"
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
                "this host: TCP_NODELAY on asked, off in force",
                "this host: SO_MAX_PACING_RATE 1.00 Mbit/s asked, no limit in force",
                "this host: TCP_NOTSENT_LOWAT 128 KiB asked, the kernel's default in force",
                "this host: DSCP 10 asked, 0 in force",
                "this host: congestion control 'bbr' asked, 'cubic' in force",
            ]
        );
        let small = SocketSettings {
            mss: Some(1400),
            ..SocketSettings::default()
        };
        assert_eq!(setting_warnings(&small, &state(), "x").len(), 1);
    }
}

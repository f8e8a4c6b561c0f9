//! Which workloads and peers use an option; what no one uses is refused, with what to do instead.

use crate::prelude::*;
use clap::parser::ValueSource;
use clap::{ArgMatches, Command, FromArgMatches};
use std::collections::BTreeSet;

/// Options that the user gave, by their long names.
#[derive(Default)]
pub struct Given(BTreeSet<String>);

impl Args for Given {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}

impl FromArgMatches for Given {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Given, clap::Error> {
        let is_typed =
            |id: &&clap::Id| matches.value_source(id.as_str()) == Some(ValueSource::CommandLine);
        let ids = matches.ids().filter(is_typed);
        Ok(Given(ids.map(|id| id.as_str().replace('_', "-")).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Given::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Options, who uses them, and what to do with others.
macro_rules! uses {
    ($($options:literal: $by:expr, $instead:literal;)*) => { &[$(($options, $by, $instead)),*] };
}

const BY_WORKLOAD: &[(&str, &str, &str)] = uses! {
    "rate": "bulk copy udp",
        "--pace N sets the requests a second, --pacing RATE the rate of the sockets";
    "datagram-size": "udp",
        "it is the payload of datagrams (--workload udp); the writes of bulk are --write-size, its segments --mss";
    "pace": "request",
        "it counts requests (--workload request); --rate RATE or --pacing RATE limit bytes, --depth blocks";
    "request-size reply-size reconnect": "request", "it belongs to requests: add --workload request";
    "wait": "request blocks", "it belongs to requests and blocks: add --workload request";
    "write-size discard zerocopy": "bulk", "it belongs to bulk transfers: leave out --workload";
    "from to no-keep corners rounds": "copy", "it belongs to copies: add --workload copy";
    "cache direct": "copy blocks",
        "it belongs to files: add --workload copy --from FILE, or --workload blocks --store FILE";
    "block depth mix random seed store file-size": "blocks",
        "it belongs to blocks: add --workload blocks, or name an NFS server (nfs://HOST/EXPORT)";
    "congestion mss nodelay notsent-lowat trace": "bulk request copy blocks", "it is an option of TCP";
    "requests": "request blocks", "it counts replies: add --workload request, or end with --bytes";
    "bytes": "bulk udp copy", "end requests with --requests or --time";
};

type ByPeer = (&'static str, fn(&Host) -> bool, &'static str);

const BY_PEER: &[ByPeer] = uses! {
    "username rsa-public-key use-pkcs1-padding busy-wait": |peer| matches!(peer, Host::Iperf3 { .. }),
        "it belongs to iperf3 servers (iperf3:HOST)";
    "remote-command": |peer| matches!(peer, Host::Ssh { .. }), "ssh starts that command: name ssh:HOST";
    "outage": |peer| !matches!(peer, Host::Iperf3 { .. } | Host::Nfs { .. }),
        "these servers end a test by rules of their own; it belongs to legs at agents";
    "remote-cpus": |peer| !matches!(peer, Host::Iperf3 { .. } | Host::Nfs { .. }),
        "the server chooses its processors itself: start it with taskset there";
    "store direct cache": |peer| !matches!(peer, Host::Nfs { .. }), "an NFS server has a store of its own";
};

impl Given {
    /// Refuses the first option that has no effect on this workload at this peer.
    pub fn check(&self, workload: &str, peer: Option<&Host>) -> Result<()> {
        let given = |options: &'static str| options.split(' ').find(|one| self.has(one));
        for (options, workloads, instead) in BY_WORKLOAD {
            if !workloads.split(' ').any(|one| one == workload)
                && let Some(option) = given(options)
            {
                refuse!("--{option} has no effect on {workload}: {instead}");
            }
        }
        let Some(peer) = peer else {
            return Ok(());
        };
        for (options, uses, instead) in BY_PEER {
            if !uses(peer)
                && let Some(option) = given(options)
            {
                refuse!("--{option} has no effect at {peer}: {instead}");
            }
        }
        Ok(())
    }

    pub fn has(&self, option: &str) -> bool {
        self.0.contains(option)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::{self, measure::Measure};

    /// A value for each option of 'measure' that takes one.
    fn value(option: &str) -> &'static str {
        match option {
            "bind" => "127.0.0.1",
            "bind-device" => "lo",
            "congestion" => "cubic",
            "cache" => "hot",
            "wait" => "block",
            "mix" => "read=1,write=1",
            "from" | "to" | "store" | "rsa-public-key" => "/tmp/a",
            "title" | "username" | "remote-command" | "archive" | "config" => "a",
            "time" | "ramp" | "interval" | "busy-wait" => "2s",
            "dscp" => "8",
            "mss" | "datagram-size" => "1000",
            "send-buffer" | "receive-buffer" | "sockbuf" => "64K",
            "rate" | "pacing" => "100M",
            "block" => "4K",
            "file-size" => "1M",
            _ => "4",
        }
    }

    /// What an option needs beside it.
    fn beside(option: &str, workload: &str) -> &'static [&'static str] {
        match (option, workload) {
            ("seed", _) => &["--random"],
            ("rounds", _) => &["--corners", "--from=/tmp/a", "--to=/tmp/b"],
            ("corners", _) => &["--from=/tmp/a", "--to=/tmp/b"],
            ("no-keep", _) => &["--to=/tmp/b"],
            ("username", _) => &["--rsa-public-key=/tmp/a"],
            ("rsa-public-key", _) => &["--username=a"],
            ("cache" | "direct", "copy") => &["--from=/tmp/a"],
            ("cache" | "direct", "blocks") => &["--store=/tmp/a"],
            _ => &[],
        }
    }

    const PEERS: [&str; 4] = ["db2", "ssh:db2", "iperf3:db2", "nfs://db2/x"];

    fn refused(peer: &str, workload: &str, option: &clap::Arg) -> Option<String> {
        let name = option.get_long()?;
        let mut line = vec!["measure".to_owned(), peer.to_owned()];
        if name != "workload" {
            line.push(format!("--workload={workload}"));
        }
        line.push(match option.get_action().takes_values() {
            true => format!("--{name}={}", value(name)),
            false => format!("--{name}"),
        });
        line.extend(beside(name, workload).iter().map(|one| (*one).to_owned()));
        let command = Measure::augment_args(Command::new("measure"));
        let matches = command.try_get_matches_from(&line);
        let matches = matches.unwrap_or_else(|why| panic!("{line:?}: {why}"));
        let measure = Measure::from_arg_matches(&matches).unwrap();
        measure.order().err().map(|why| why.to_string())
    }

    /// Every option with every workload and peer: `docs/options.md` has what is used and why the rest is refused.
    #[test]
    fn every_option_is_used_or_refused() {
        use std::fmt::Write;
        let command = commands::command();
        let command = command.find_subcommand("measure").unwrap();
        let workloads = model::WorkloadKind::ALL.map(|kind| kind.name);
        let mut text = "# Options of `measure` by workload and peer\n\nA `-` is refused with the reason below the table; no option is accepted and ignored. Written by a test (`UPDATE_DOCS=1`).\n\n".to_owned();
        let pairs: Vec<(&str, &str)> = PEERS
            .iter()
            .flat_map(|peer| workloads.map(|workload| (*peer, workload)))
            .filter(|(peer, workload)| {
                let plain = clap::Arg::new("quiet")
                    .long("quiet")
                    .action(clap::ArgAction::SetTrue);
                refused(peer, workload, &plain).is_none()
            })
            .collect();
        let heads: Vec<String> = pairs
            .iter()
            .map(|(peer, workload)| {
                let peer = match *peer {
                    "db2" => "agent",
                    peer => peer.split(':').next().unwrap(),
                };
                format!("{peer} {workload}")
            })
            .collect();
        writeln!(text, "| option | {} |", heads.join(" | ")).unwrap();
        writeln!(text, "|{}", "---|".repeat(heads.len() + 1)).unwrap();
        let mut reasons = BTreeSet::new();
        for option in command.get_arguments() {
            let Some(name) = option.get_long().filter(|name| *name != "help") else {
                continue;
            };
            if option.is_hide_set() || option.is_global_set() || name == "workload" {
                continue;
            }
            let cell = |(peer, workload): &(&str, &str)| match refused(peer, workload, option) {
                Some(why) => {
                    let (_, instead) = why.split_once(" has no effect ").unwrap_or(("", &why));
                    let (_, instead) = instead.split_once(": ").unwrap_or(("", &why));
                    reasons.insert(format!("- `--{name}`: {instead}"));
                    "-"
                }
                None => "used",
            };
            let cells: Vec<&str> = pairs.iter().map(cell).collect();
            writeln!(text, "| `--{name}` | {} |", cells.join(" | ")).unwrap();
        }
        text.push('\n');
        reasons
            .iter()
            .for_each(|why| writeln!(text, "{why}").unwrap());
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/options.md");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, &text).unwrap();
        }
        let kept = std::fs::read_to_string(path).unwrap_or_default();
        assert_eq!(text, kept, "UPDATE_DOCS=1 writes docs/options.md");
    }
}

//! Mistakes of the command line, answered before clap's guesses: habits of iperf3 and netperf, and commands that have
//! another name here.

use crate::commands::{self, Cli};
use crate::help;
use crate::prelude::*;
use clap::FromArgMatches;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Options of other tools, and below each line of them the same here.
const OPTIONS: &str = "\
-c --client -H
give HOST without an option: 'linerate measure HOST' where 'linerate serve' runs, 'linerate measure iperf3:HOST' for an iperf3 server
-s --server
the server is a command: 'linerate serve', or 'linerate serve --iperf3' for stock iperf3 clients
-u --udp
UDP is a workload: 'linerate measure HOST --workload udp -b 100M', also at iperf3 servers (iperf3:HOST)
-p --port
the port belongs to HOST: 'linerate measure HOST:5210' or 'linerate measure iperf3:HOST:5201'
--parallel
use -P N or --streams N
--window
use -w SIZE or --sockbuf SIZE
--bitrate --bandwidth
use -b RATE or --rate RATE
--fq-rate
use --pacing RATE
-S --tos
use --dscp N, a quarter of the TOS byte: --tos 184 is --dscp 46, or --dscp EF
-L --flowlabel
no option sets the flow label of IPv6; --dscp sets the code point
-V --verbose
the report has every figure; add --json for all samples, or 'linerate report last' for a page
-D --daemon
it stays in the foreground: start it from systemd, or with 'nohup linerate serve &'
-1 --one-off
it serves until it is stopped; for one measurement without a server use 'linerate measure ssh:HOST'
-k --blockcount
use -n SIZE: the number of writes times their size
-f --format
each figure has its unit; --json has bits per second
-F --file
a file is copied by 'linerate measure HOST --workload copy --from FILE'
--get-server-output
the report has the figures of both hosts; 'linerate runs show last' prints it again
--logfile
redirect standard output ('> FILE'); every run is kept as well: 'linerate runs list'
--forceflush --timestamps
use --json-stream
-d --dualtest
use --bidir
--length
use -l SIZE or --write-size SIZE
--set-mss
use -M BYTES or --mss BYTES
--no-delay
use -N or --nodelay
--affinity
use -A LIST or --cpus LIST
--version4
use -4 or --ipv4
--version6
use -6 or --ipv6
--dont-fragment
'linerate mtu HOST' finds the largest packet that gets through
";

/// The same for 'serve'.
const SERVE_OPTIONS: &str = "\
-p
use --port PORT
-B
use --bind ADDRESS
-s --server
'linerate serve' is the server; add --iperf3 for stock iperf3 clients
-V --verbose
each line of the log is on standard error
--logfile
redirect standard error ('2> FILE')
";

/// netperf's tests, wherever '-t' has one.
const NETPERF: &str = "\
TCP_STREAM
linerate measure HOST --up
TCP_SENDFILE
linerate measure HOST --up --zerocopy
TCP_MAERTS
linerate measure HOST --down
TCP_RR
linerate measure HOST --workload request
TCP_CRR
linerate measure HOST --workload request --reconnect
UDP_STREAM
linerate measure HOST --workload udp -b RATE
UDP_RR
linerate measure HOST --workload request (over TCP)
";

/// Commands that have another name.
const COMMANDS: &str = "\
iperf3 netperf client ping test run bench
linerate measure HOST
server listen
linerate serve
compare
linerate diff A B (two transfers: where the time differs), linerate prove --from A=RUN,RUN B=RUN,RUN (a verdict), linerate runs serve (pages that compare runs)
list history
linerate runs list
show
linerate runs show last
capture dump
linerate trace
why diagnose analyze analyse
linerate explain last
";

/// The sentence for a mistake that has one; otherwise clap's own, without its wrong tips.
pub fn answer(args: &[String], error: &mut clap::Error) -> Option<String> {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    let command = args.get(1).map_or("", String::as_str);
    let command = if command.starts_with('-') {
        ""
    } else {
        command
    };
    match error.kind() {
        ErrorKind::UnknownArgument => {
            let typed = context(ContextKind::InvalidArg)?;
            let found = option(command, args, &typed);
            let local = |name: &ContextValue| match name {
                // A slip of at most two letters.
                ContextValue::String(name) => strsim::levenshtein(&typed, name) <= 2,
                _ => false,
            };
            if !error.get(ContextKind::SuggestedArg).is_some_and(local) {
                error.remove(ContextKind::SuggestedArg);
            }
            // "To pass '-c' as a value, use '-- -c'": nobody wants that.
            error.remove(ContextKind::Suggested);
            found
        }
        ErrorKind::InvalidSubcommand => {
            let typed = context(ContextKind::InvalidSubcommand)?;
            if let Some(instead) = below(COMMANDS, &typed) {
                return Some(format!("there is no command '{typed}': use {instead}"));
            }
            let has_tip = error.get(ContextKind::SuggestedSubcommand).is_some();
            let is_host = command == typed && !has_tip && typed.parse::<Host>().is_ok();
            is_host.then(|| format!("there is no command '{typed}'; to measure the path to a host of that name: linerate measure {typed}"))
        }
        ErrorKind::ValueValidation => {
            let value = context(ContextKind::InvalidValue)?;
            netperf(&value)
        }
        _ => None,
    }
}

fn option(command: &str, args: &[String], typed: &str) -> Option<String> {
    let of = |table| {
        let instead = below(table, typed);
        instead.map(|instead| format!("there is no option {typed} here: {instead}"))
    };
    match command {
        "" => {
            let test = args.iter().find_map(|word| netperf(word));
            let seconds = || {
                let instead = "the duration is -t of 'measure': 'linerate measure HOST -t SECONDS'";
                (typed == "-l").then(|| format!("there is no option -l here: {instead}"))
            };
            let behind = || {
                format!(
                    "there is no option {typed} here: options follow a command, as in 'linerate measure HOST -t 10s'; see 'linerate --help'"
                )
            };
            test.or_else(|| of(OPTIONS))
                .or_else(seconds)
                .or_else(|| Some(behind()))
        }
        "serve" => of(SERVE_OPTIONS).or_else(|| of(OPTIONS)),
        "measure" | "prove" => of(OPTIONS),
        _ => None,
    }
}

fn netperf(word: &str) -> Option<String> {
    let instead = below(NETPERF, word);
    instead.map(|instead| format!("netperf's {word} is: {instead}"))
}

/// The line below the one that has this word.
fn below(table: &'static str, word: &str) -> Option<&'static str> {
    let lines: Vec<&str> = table.lines().collect();
    let mut pairs = lines.chunks_exact(2);
    let found = pairs.find(|pair| pair[0].split(' ').any(|known| known == word));
    found.map(|pair| pair[1])
}

/// The command line, or the code of a mistake or of a help that has been printed.
pub fn parse() -> Result<Cli, ExitCode> {
    let parsed = commands::command().try_get_matches();
    let parsed = parsed.and_then(|matches| Cli::from_arg_matches(&matches));
    parsed.map_err(|mut error| {
        let args: Vec<String> = std::env::args_os()
            .map(|arg| arg.to_string_lossy().into_owned())
            .collect();
        let words = &args[1..];
        let is_long = words.iter().any(|word| word == "--help")
            || words.first().is_some_and(|word| word == "help");
        if error.kind() == ErrorKind::DisplayHelp && is_long {
            let printed = out::print(&help::full(commands::command(), words));
            return if printed.is_ok() {
                Exit::Done
            } else {
                Exit::Failed
            }
            .into();
        }
        match answer(&args, &mut error) {
            Some(sentence) => {
                out::note(&format!(
                    "linerate: {}",
                    report::words::escape_sentence(&sentence)
                ));
                Exit::Usage.into()
            }
            None => error.exit(),
        }
    })
}

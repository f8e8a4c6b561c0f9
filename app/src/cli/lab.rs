//! `linerate lab`: networks in a box.

mod picture;

use crate::exit::{Exit, Refusal};
use crate::lab::{self as labs, Place, Standing};
use crate::out;
use anyhow::{Context, Result};
use clap::{Args, Subcommand, ValueEnum};
use emulate::Scenario;
use std::ffi::OsString;
use std::process::ExitCode;

/// Emulated paths on this machine: hosts, links and routers in a box
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate lab scenarios                             what is shipped, and why its numbers
  linerate measure lab:berkeley-chicago              up, measured both ways, down again
  linerate lab up berkeley-chicago                   stays up until 'lab down'
  linerate lab show berkeley-chicago                 who is where, and what each direction does
  linerate lab exec berkeley-chicago/chicago -- iperf3 -s -D
  linerate lab exec berkeley-chicago/berkeley -- iperf3 -c 10.0.0.2
  linerate lab truth berkeley-chicago                what was done to the packets, and why
  linerate lab down berkeley-chicago

  linerate lab run dsl -- ping -c 5 internet         up, run, down whatever happens
  linerate lab up my-path.toml                       a scenario of your own

A host is a network namespace. Nothing outside the namespaces that a lab makes is changed.")]
pub struct Lab {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    Up(Up),
    Down(Down),
    List(List),
    Show(Show),
    Exec(Exec),
    Run(Run),
    Truth(Truth),
    Scenarios(Scenarios),
}

/// Bring a lab up; it stays until 'lab down'
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate lab up berkeley-chicago
  linerate lab up my-path.toml --name mine
  linerate lab up dsl --backend emulator

auto takes the kernel's netem for what it can express and the built-in emulator for the rest; what
was chosen is printed for each link. What a killed lab has left behind is removed first.")]
struct Up {
    /// A shipped scenario ('lab scenarios' lists them), or a file (*.toml)
    #[arg(value_name = "NAME|FILE")]
    what: String,
    /// What to call the lab [default: the scenario's name]
    #[arg(long)]
    name: Option<String>,
    /// What shapes the links
    #[arg(long, value_enum, default_value_t = Backend::Auto)]
    backend: Backend,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Backend {
    /// netem where this kernel has it and it can express the link, else the emulator
    Auto,
    /// The built-in emulator for every shaped link
    Emulator,
    /// netem only; refused where it is missing or cannot express a link
    Netem,
}

/// Take a lab down, and everything that belongs to it
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate lab down berkeley-chicago
  linerate lab down --all            every lab, and what killed ones have left behind")]
struct Down {
    /// The lab
    #[arg(required_unless_present = "all")]
    name: Option<String>,
    /// All labs of this user, and what killed ones have left behind
    #[arg(long, conflicts_with = "name")]
    all: bool,
}

/// List the labs that are up
#[derive(Args)]
struct List {
    /// An array of JSON objects instead of a table
    #[arg(short = 'J', long)]
    json: bool,
}

/// Draw a lab: hosts, addresses, what each direction of each link does, and who does it
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate lab show berkeley-chicago       a lab that is up, or a shipped scenario
  linerate lab show my-path.toml           a file, before it comes up")]
struct Show {
    /// The lab, a shipped scenario, or a file
    #[arg(value_name = "NAME|FILE")]
    what: String,
}

/// Run a command in a host of a lab that is up
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate lab exec home-lan/server -- iperf3 -s -D
  linerate lab exec home-lan/laptop -- ss -ti
  linerate lab exec home-lan                    a shell in the first host

The exit code is that of the command.")]
struct Exec {
    /// The lab and the host in it [default: its first host]
    #[arg(value_name = "NAME/HOST")]
    place: Place,
    /// The command and its arguments [default: $SHELL]
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Bring a lab up, run a command in it, take it down whatever happens
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate lab run satellite -- ping -c 3 10.0.0.2
  linerate lab run home-lan/server -- sh -c 'ip route; ss -ltn'
  linerate lab run my-path.toml -- ./test.sh

The command runs in the lab's first host unless another is named. In its environment LINERATE_LAB is
the name of the lab and LINERATE_LAB_HOSTS lists 'host=address' of each host, so that a script can go
on with 'linerate lab exec $LINERATE_LAB/...'. The exit code is that of the command.")]
struct Run {
    /// A shipped scenario, with /HOST for another than the first host, or a file (*.toml)
    #[arg(value_name = "NAME[/HOST]|FILE")]
    what: String,
    /// What shapes the links
    #[arg(long, value_enum, default_value_t = Backend::Auto)]
    backend: Backend,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Say what was done to the packets: dropped and why, marked, delayed, queued
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate lab truth berkeley-chicago
  linerate lab truth berkeley-chicago --json | jq '.links[0].forward'

What was done by netem or a kernel qdisc is counted by the kernel: 'linerate lab exec NAME/HOST -- tc
-s qdisc'.")]
struct Truth {
    /// The lab
    name: String,
    /// Everything, with the log of the last events, as JSON
    #[arg(short = 'J', long)]
    json: bool,
}

/// List the shipped scenarios, and why their numbers are what they are
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate lab scenarios
  linerate lab scenarios --print dsl > mine.toml     to start a scenario of your own from")]
struct Scenarios {
    /// Print the file of this one
    #[arg(long, value_name = "NAME")]
    print: Option<String>,
}

//! The commands, one file each.

mod agent;
mod calendar;
mod completions;
mod demo;
mod diff;
mod explain;
mod gate;
mod install;
mod lab;
mod man;
mod measure;
mod mesh;
mod model;
mod mtu;
mod prove;
mod pscheduler;
mod report;
mod runs;
mod serve;
mod trace;
mod trust;
mod tune;
mod watch;

use crate::prelude::*;
use clap::{CommandFactory, Parser, Subcommand};

/// A laboratory for TCP transfer performance.
///
/// Why isn't this transfer running at line rate, and does this change really fix it?
#[derive(Parser)]
#[command(name = "linerate", version, max_term_width = 80)]
#[command(
    after_help = "Start with:  linerate demo               a demonstration on this machine, 3 minutes
             linerate measure local      this machine against itself
             linerate serve              on the remote host
             linerate measure HOST       from here"
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    global: Global,
}

#[derive(Subcommand)]
enum Command {
    Demo(demo::Demo),
    Measure(Box<measure::Measure>),
    Prove(Box<prove::Prove>),
    Serve(serve::ServeArgs),
    Watch(Box<watch::WatchArgs>),
    Trace(Box<trace::TraceArgs>),
    Trust(trust::Trust),
    Install(install::Install),
    Explain(explain::Explain),
    Diff(diff::Diff),
    Mtu(mtu::MtuArgs),
    Model(model::Model),
    Tune(tune::Tune),
    Report(report::ReportArgs),
    Gate(gate::GateArgs),
    Runs(runs::Runs),
    Lab(lab::LabArgs),
    Calendar(calendar::CalendarArgs),
    Mesh(mesh::MeshArgs),
    #[command(hide = true)]
    Pscheduler(pscheduler::PschedulerArgs),
    Man(man::Man),
    Completions(completions::Completions),
    #[command(hide = true)]
    Agent(agent::AgentArgs),
    /// Hold a lab and move its frames, as standard input orders
    #[command(hide = true)]
    LabEmulator,
}

pub fn command() -> clap::Command {
    crate::help::brief(Cli::command())
}

pub fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let exit = match cli.command {
        // Their exit code may be that of a command that they ran.
        Command::Demo(demo) => return demo.run(&cli.global),
        Command::Measure(measure) => return measure.run(&cli.global),
        Command::Prove(prove) => return prove.run(&cli.global),
        Command::Mtu(mtu) => return mtu.run(&cli.global),
        Command::Lab(lab) => return lab.run(),
        Command::Tune(tune) => return tune.run(&cli.global),
        Command::Install(install) => install.run(),
        Command::Gate(gate) => gate.run(&cli.global),
        Command::Explain(explain) => explain.run(&cli.global),
        Command::Diff(diff) => diff.run(&cli.global),
        Command::Report(report) => report.run(&cli.global),
        Command::Runs(runs) => runs.run(&cli.global),
        Command::Model(model) => model.run(),
        Command::Completions(completions) => completions.run(command()),
        Command::Man(man) => man.run(command()),
        Command::Serve(serve) => serve.run(&cli.global),
        Command::Watch(watch) => watch.run(&cli.global),
        Command::Trace(trace) => trace.run(),
        Command::Calendar(calendar) => calendar.run(),
        Command::Mesh(mesh) => mesh.run(&cli.global),
        Command::Pscheduler(pscheduler) => pscheduler.run(&cli.global),
        Command::Trust(trust) => trust.run(&cli.global),
        Command::Agent(agent) => agent.run(&cli.global),
        Command::LabEmulator => lab::hold_namespaces(),
    };
    exit.map(ExitCode::from)
}

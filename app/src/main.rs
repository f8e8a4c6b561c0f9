//! The linerate command.

mod chance;
mod cli;
mod clock;
mod closed_loop;
mod controller;
mod documents;
mod exit;
mod experiment;
mod files;
mod grant;
mod grip;
mod host;
mod iperf3;
mod lab;
mod leg;
mod listener;
mod listing;
mod mtu;
mod nfs;
mod out;
mod progress;
mod record;
mod session;
#[cfg(test)]
mod testing;
mod traces;
mod transport;
mod trust;
mod tuning;
mod web;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    // Started through /proc/self/exe it would be 'exe' in ps and in traces. Where it cannot be named, nothing is lost.
    let _ = std::fs::write("/proc/self/comm", "linerate");
    match cli::run(cli::Cli::parse()) {
        Ok(code) => code,
        Err(error) => {
            out::note(&format!("linerate: {}", exit::sentence(&error)));
            exit::exit_of(&error).into()
        }
    }
}

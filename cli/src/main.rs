//! The linerate command.

mod archive_list;
mod commands;
mod document;
mod files;
mod filter_args;
mod global;
mod inputs;
mod json_input;
mod live;
mod lookup;
mod out;
mod pages;
mod prelude;
mod web;

use clap::Parser;
use engine::exit;
use std::process::ExitCode;

fn main() -> ExitCode {
    // Started through /proc/self/exe it would be 'exe' in ps and in traces. Where it cannot be named, nothing is lost.
    let _ = std::fs::write("/proc/self/comm", "linerate");
    match commands::run(commands::Cli::parse()) {
        Ok(code) => code,
        Err(error) => {
            out::note(&format!("linerate: {}", exit::sentence(&error)));
            exit::exit_of(&error).into()
        }
    }
}

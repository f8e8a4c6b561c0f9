//! The linerate command.

mod archive_list;
mod commands;
mod document;
mod event_ring;
mod files;
mod filter_args;
mod global;
mod habits;
mod help;
mod inputs;
mod json_input;
mod live;
mod lookup;
mod out;
mod pages;
mod prelude;
mod web;

use engine::exit;
use std::process::ExitCode;

fn main() -> ExitCode {
    // Started through /proc/self/exe it would be 'exe' in ps and in traces. Where it cannot be named, nothing is lost.
    let _ = std::fs::write("/proc/self/comm", "linerate");
    let cli = match habits::parse() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    match commands::run(cli) {
        Ok(code) => code,
        Err(error) => {
            out::note(&format!("linerate: {}", exit::sentence(&error)));
            exit::exit_of(&error).into()
        }
    }
}

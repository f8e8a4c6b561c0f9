//! The linerate command.

mod cli;
mod exit;
mod progress;

use clap::Parser;

fn main() -> anyhow::Result<()> {
    cli::run(cli::Cli::parse())
}

//! The linerate command.

mod progress;

fn main() {}

//! Runs one target over files, or over standard input: for fuzzers that start a process an input.

use std::io::Read;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let Some(target) = words.next().as_deref().and_then(linerate_fuzz::target) else {
        eprintln!("usage: fuzz TARGET [FILES]; the targets are:");
        for (name, _) in linerate_fuzz::TARGETS {
            eprintln!("  {name}");
        }
        return ExitCode::from(2);
    };
    // Fuzzers look for a signal, which an unwound panic is not.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
    let files: Vec<String> = words.collect();
    if files.is_empty() {
        let mut input = Vec::new();
        if let Err(error) = std::io::stdin().read_to_end(&mut input) {
            eprintln!("fuzz: cannot read standard input: {error}");
            return ExitCode::FAILURE;
        }
        target(&input);
    }
    for file in files {
        match std::fs::read(&file) {
            Ok(input) => target(&input),
            Err(error) => {
                eprintln!("fuzz: cannot read {file}: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

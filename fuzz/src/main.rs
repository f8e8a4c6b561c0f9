//! Runs one target over files, or over standard input: for fuzzers that start a process an input. With
//! `--mutated SEED ROUNDS`, over mutations of its corpus, each announced by its number on standard output.

use linerate_fuzz::Target;
use linerate_fuzz::mutate::{Chance, mutate};
use std::io::{Read, Write};
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let name = words.next().unwrap_or_default();
    let Some(target) = linerate_fuzz::target(&name) else {
        eprintln!("usage: fuzz TARGET [FILES | --mutated SEED ROUNDS]; the targets are:");
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
    if let [option, seed, rounds] = &files[..]
        && option == "--mutated"
    {
        let (Ok(seed), Ok(rounds)) = (seed.parse(), rounds.parse()) else {
            eprintln!("fuzz: SEED and ROUNDS are numbers");
            return ExitCode::from(2);
        };
        return match mutated(&name, target, seed, rounds) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("fuzz: cannot read the corpus of {name}: {error}");
                ExitCode::FAILURE
            }
        };
    }
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

fn mutated(name: &str, target: Target, seed: u64, rounds: u32) -> std::io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(name);
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        paths.push(entry?.path());
    }
    // The order of a directory is chance.
    paths.sort();
    let inputs: Vec<Vec<u8>> = paths.iter().map(std::fs::read).collect::<Result<_, _>>()?;
    let mut out = std::io::stdout().lock();
    for input in &inputs {
        target(input);
    }
    let mut chance = Chance::new(seed);
    for round in 0..rounds {
        writeln!(out, "{round}")?;
        let input = &inputs[chance.below(inputs.len())];
        let other = &inputs[chance.below(inputs.len())];
        target(&mutate(input, other, &mut chance));
    }
    Ok(())
}

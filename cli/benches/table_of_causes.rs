//! The table of causes in full: every case of `bench/causes.toml` on its emulated path. Prints a page in Markdown
//! (docs/table-of-causes.md is one); progress goes to standard error. `bench/table-of-causes` starts it. Needs root.
#![allow(clippy::unwrap_used, reason = "a bench may panic")]

#[path = "../tests/common/causes.rs"]
mod causes;
#[path = "../tests/common/mod.rs"]
mod common;

use causes::{Case, SOURCES, Told, Truth};
use common::Home;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

const USAGE: &str =
    "bench/table-of-causes [--only PATTERN] [--quick] [--jobs N] [--into DIR [--again]]";

/// What is to be done.
struct Options {
    /// Cases whose name has this in it.
    only: String,
    /// The short form.
    quick: bool,
    /// Labs side by side.
    jobs: usize,
    /// Where runs, traces and captures stay. A case that is there is only judged again.
    into: Option<PathBuf>,
    /// Only judge what is there.
    again: bool,
}

fn options() -> Result<Options, String> {
    let mut options = Options {
        only: String::new(),
        quick: false,
        jobs: 1,
        into: None,
        again: false,
    };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} needs a value\n{USAGE}"));
        match arg.as_str() {
            "--only" => options.only = value()?,
            "--quick" => options.quick = true,
            "--jobs" => options.jobs = value()?.parse().map_err(|_| USAGE)?,
            "--into" => options.into = Some(value()?.into()),
            "--again" => options.again = true,
            // cargo bench adds it.
            "--bench" => {}
            _ => return Err(USAGE.to_owned()),
        }
    }
    Ok(options)
}

fn main() {
    let options = options().unwrap_or_else(|usage| {
        eprintln!("{usage}");
        std::process::exit(2);
    });
    let home = Home::new();
    let into = options.into.unwrap_or_else(|| home.path().join("causes"));
    let mut cases = causes::cases();
    cases.retain(|c| c.name().contains(&options.only) && (c.short || !options.quick));
    if options.again {
        cases.retain(|c| c.is_made(&into.join(c.name())));
    }
    let told = causes::each(&cases, options.jobs, |n| {
        eprintln!("{} of {}: {}", n + 1, cases.len(), cases[n].name());
        answers(&cases[n], &home, &into)
    });
    let numbered = told.into_iter().enumerate();
    let told = numbered.filter_map(|(n, told)| Some((n, told?))).collect();
    let page = Page {
        cases: &cases,
        told: &told,
    };
    page.print();
    for (source, _) in SOURCES {
        eprintln!("{}", page.summary(source));
    }
}

/// What is said of a case; `None` if it cannot be made three times.
fn answers(case: &Case, home: &Home, into: &Path) -> Option<Vec<Told>> {
    let own = into.join(case.name());
    (0..3).find_map(|_| {
        catch_unwind(AssertUnwindSafe(|| {
            if !case.is_made(&own) {
                case.play(home, &own);
            }
            case.judge(home, &own)
        }))
        .ok()
    })
}

struct Page<'a> {
    cases: &'a [Case],
    told: &'a BTreeMap<usize, Vec<Told>>,
}

impl Page<'_> {
    /// All answers of a source with their cases.
    fn of<'a>(&'a self, source: &'a str) -> impl Iterator<Item = (&'a Case, &'a Told)> {
        self.told.iter().flat_map(move |(n, told)| {
            let own = told.iter().filter(move |t| t.source == source);
            own.map(|t| (&self.cases[*n], t))
        })
    }

    fn count(&self, source: &str, truth: Truth) -> usize {
        self.of(source).filter(|(_, t)| t.truth == truth).count()
    }

    fn summary(&self, source: &str) -> String {
        let all = self.of(source).count();
        let first = self.count(source, Truth::First);
        format!(
            "{source}: {first} of {all} named first ({:.1} %), {} more among others, {} not named, {} confidently wrong",
            100.0 * first as f64 / all.max(1) as f64,
            self.count(source, Truth::Listed),
            self.count(source, Truth::Missed),
            self.count(source, Truth::Wrong),
        )
    }

    fn print(&self) {
        println!("# The table of causes\n");
        println!(
            "Made by `bench/table-of-causes`: paths and loads with one known cause (`bench/causes.toml`), on real kernels, \
             and what `linerate explain` named from a run sampled every 10 ms, from the same run as if sampled once a second, \
             from a trace and from a capture at the sender and, of some, from the traces of both ends, all of the same transfer.\n"
        );
        for (source, _) in SOURCES {
            println!("- {}", self.summary(source));
        }
        let failed = self.cases.len() - self.told.len();
        if failed > 0 {
            println!("- {failed} cases could not be made");
        }
        self.by_cause();
        self.wrong();
        self.rows();
    }

    /// True cause by source: how many were named first.
    fn by_cause(&self) {
        println!(
            "\n## By cause\n\nNamed first, of how many; what else was named first, with the number of times.\n"
        );
        println!("| cause | {} |", SOURCES.map(|(s, _)| s).join(" | "));
        println!("|---|{}", "---|".repeat(SOURCES.len()));
        let mut causes: Vec<&str> = self.cases.iter().map(|c| c.cause.as_str()).collect();
        causes.dedup();
        for cause in causes {
            let cells = SOURCES.map(|(source, _)| {
                let own: Vec<&Told> = self
                    .of(source)
                    .filter(|(c, _)| c.cause == cause)
                    .map(|(_, t)| t)
                    .collect();
                if own.is_empty() {
                    return "-".to_owned();
                }
                let first = own.iter().filter(|t| t.truth == Truth::First).count();
                let mut others: BTreeMap<&str, usize> = BTreeMap::new();
                for told in own.iter().filter(|t| t.named[0] != cause) {
                    *others.entry(&told.named[0]).or_default() += 1;
                }
                let others: Vec<String> = others.iter().map(|(l, n)| format!("{l} {n}")).collect();
                let others = match others.is_empty() {
                    true => String::new(),
                    false => format!("; {}", others.join(", ")),
                };
                format!("{first} of {}{others}", own.len())
            });
            println!("| {cause} | {} |", cells.join(" | "));
        }
    }

    /// What was not named first.
    fn wrong(&self) {
        println!("\n## Not named first\n");
        for (source, _) in SOURCES {
            for (case, told) in self.of(source).filter(|(_, t)| t.truth != Truth::First) {
                println!(
                    "- {source}: {}, {}, {}: {}{}",
                    case.cause,
                    case.strength,
                    case.congestion,
                    told.named.join(", "),
                    match told.truth {
                        Truth::Wrong => " (**confidently wrong**)",
                        _ => "",
                    }
                );
            }
        }
    }

    /// Every case.
    fn rows(&self) {
        println!("\n## All\n");
        let mut before = "";
        for (n, case) in self.cases.iter().enumerate() {
            if case.cause != before {
                println!("\n### {}\n\n{}", case.cause, case.about);
                for also in &case.also {
                    println!("Right as well: {also}.");
                }
                println!("\n| | | {} |", SOURCES.map(|(s, _)| s).join(" | "));
                println!("|---|---|{}", "---|".repeat(SOURCES.len()));
                before = &case.cause;
            }
            let told = self.told.get(&n).map_or(&[][..], Vec::as_slice);
            let cells = SOURCES.map(|(source, _)| {
                let own = told.iter().find(|t| t.source == source);
                own.map_or_else(|| "-".to_owned(), cell)
            });
            println!(
                "| {} | {} | {} |",
                case.strength,
                case.congestion,
                cells.join(" | ")
            );
        }
    }
}

fn cell(told: &Told) -> String {
    let names = told.named.join(", ");
    let share = match told.share > 0.0 {
        true => format!(" {:.0} %", told.share * 100.0),
        false => String::new(),
    };
    match told.truth {
        Truth::First => format!("{names}{share}"),
        Truth::Listed | Truth::Missed => format!("*{names}*{share}"),
        Truth::Wrong => format!("**{names}**{share}"),
    }
}

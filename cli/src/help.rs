//! What `-h` and `--help` print: a screen of the usual options, or a line for every option. The manual pages have the rest.

use clap::Command;

/// Options that `-h` shows of commands with more than a screen of them.
const USUAL: [(&str, &str); 4] = [
    (
        "measure",
        "up down bidir workload streams time bytes sockbuf congestion rate json quiet",
    ),
    (
        "prove",
        "change against arm metric direction margin time dry_run json",
    ),
    ("serve", "bind port clients allow_tune allow_files iperf3"),
    ("tune", "direction margin rate dry_run persist time json"),
];

/// The command with the help of `-h`.
pub fn brief(command: Command) -> Command {
    USUAL.into_iter().fold(command, |command, (name, usual)| {
        command.mut_subcommand(name, |sub| {
            let note =
                format!("All options: 'linerate {name} --help'; the manual: 'linerate man {name}'");
            let usual = usual.split(' ');
            sub.mut_args(|arg| {
                let is_usual = usual.clone().any(|name| name == arg.get_id().as_str());
                let hidden = !arg.is_positional() && !is_usual;
                arg.hide_short_help(hidden)
            })
            .after_help(note)
        })
    })
}

/// The whole help of the command that these words name, a line or two an option.
pub fn full(mut command: Command, words: &[String]) -> String {
    command.build();
    let mut named = &mut command;
    for word in words
        .iter()
        .filter(|word| !word.starts_with('-') && *word != "help")
    {
        match named.find_subcommand(word).is_some() {
            true => named = named.find_subcommand_mut(word).expect("it was found"),
            false => break,
        }
    }
    let named = named.clone().mut_args(|arg| arg.hide_short_help(false));
    let after = named.get_after_long_help().or(named.get_after_help());
    let after = after.cloned().unwrap_or_default();
    named.after_help(after).render_help().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Columns of a help page at most.
    const WIDTH: usize = 80;

    /// Every command with its words, at the width of a terminal.
    fn all() -> Vec<(Vec<String>, Command)> {
        let mut root = crate::commands::command().term_width(WIDTH);
        root.build();
        let mut found = Vec::new();
        let mut todo = vec![(Vec::new(), root)];
        while let Some((words, command)) = todo.pop() {
            for sub in command
                .get_subcommands()
                .filter(|sub| sub.get_name() != "help" && !sub.is_hide_set())
            {
                let words = [words.clone(), vec![sub.get_name().to_owned()]].concat();
                todo.push((words, sub.clone()));
            }
            found.push((words, command));
        }
        found
    }

    #[test]
    fn every_help_page_fits() {
        for (words, mut command) in all() {
            let root = crate::commands::command().term_width(WIDTH);
            for (page, most) in [
                (command.render_help().to_string(), 40),
                (full(root, &words), 150),
            ] {
                let widest = page.lines().map(|line| line.chars().count()).max();
                assert!(
                    widest <= Some(WIDTH),
                    "{words:?}: {widest:?} columns:\n{page}"
                );
                let lines = page.lines().count();
                assert!(lines <= most, "{words:?}: {lines} lines:\n{page}");
            }
        }
    }

    /// `scripts/words` finds the other ones.
    #[test]
    fn no_help_page_has_a_private_word() {
        const NOT: [&str; 3] = ["you said", " says", " say "];
        for (words, _) in all() {
            let page = full(crate::commands::command(), &words).to_lowercase();
            let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
            for word in NOT {
                assert!(!page.contains(word), "{words:?}: '{word}' in\n{page}");
            }
        }
    }

    #[test]
    fn the_whole_help_has_every_option() {
        let words = ["measure".to_owned()];
        let page = full(crate::commands::command(), &words);
        for option in crate::commands::command()
            .find_subcommand("measure")
            .unwrap()
            .get_arguments()
        {
            let Some(name) = option.get_long().filter(|_| !option.is_hide_set()) else {
                continue;
            };
            assert!(page.contains(&format!("--{name}")), "{name}");
        }
    }
}

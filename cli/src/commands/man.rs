//! `linerate man`: the manual pages, made from the command line's own description.

use crate::prelude::*;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};
use std::io::stdout;
use std::process::{Command, Stdio};

/// Print the manual page, or write a page for every command
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate man measure
  linerate man --dir ~/.local/share/man/man1")]
pub struct Man {
    /// The command whose page to print, like 'measure' or 'runs list' [default: linerate itself]
    #[arg(conflicts_with = "dir", value_name = "COMMAND")]
    command: Vec<String>,
    /// Directory to write all pages to; made if it is missing
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Files that the commands use: a term, and below it what it is.
const FILES: &str = "\
$XDG_DATA_HOME/linerate/runs.db
The archive of runs (SQLite); ~/.local/share if XDG_DATA_HOME is not set. --archive names another.
$XDG_CONFIG_HOME/linerate/
This host's key and the list of trusted hosts; ~/.config if XDG_CONFIG_HOME is not set. --config names another.
/etc/linerate/tune.toml
What keys may tune on this host, if it is there; root's. docs/safety.md describes it.
/run/linerate/labs/, $XDG_RUNTIME_DIR/linerate/labs/
Records of the labs that are up: root's, and a user's.
/var/lib/linerate/tune/, $XDG_STATE_HOME/linerate/tune/
Journals of changed settings, until they are restored: root's, and a user's.
";

/// Variables that the commands read, in the same form.
const ENVIRONMENT: &str = "\
LINERATE_ARCHIVE
The archive, where --archive does not name one.
LINERATE_CONFIG
The configuration, where --config does not name one.
LINERATE_LABS
The directory of the records of labs, instead of the usual one.
LINERATE_ROOT
The directory below which --persist writes, instead of /.
LINERATE_STATE
The directory of the journals of changed settings, instead of the usual one. The calendar is beside it.
NO_COLOR
If set and not empty, no colour is used even on a terminal.
TERM
If it is missing or 'dumb', the live view prints lines instead of drawing in place.
LC_ALL, LC_CTYPE, LANG
Bars and sparklines are drawn with block characters if the first that is set says UTF-8.
";

impl Man {
    pub fn run(&self, command: clap::Command) -> Result<Exit> {
        let pages = pages(command)?;
        match &self.dir {
            Some(dir) => {
                std::fs::create_dir_all(dir)
                    .with_context(|| format!("cannot make the directory {}", dir.display()))?;
                for (name, page) in &pages {
                    let path = dir.join(format!("{name}.1"));
                    std::fs::write(&path, page)
                        .with_context(|| format!("cannot write {}", path.display()))?;
                }
            }
            None => {
                let mut name = vec!["linerate".to_owned()];
                name.extend(self.command.iter().cloned());
                let name = name.join("-");
                let Some((_, page)) = pages.iter().find(|(page, _)| *page == name) else {
                    let name = self.command.join(" ");
                    refuse!("there is no command '{name}': see linerate --help");
                };
                show(page)?;
            }
        }
        Ok(Exit::Done)
    }
}

/// On a terminal in man(1), as far as there is one; otherwise the source.
fn show(page: &[u8]) -> Result<()> {
    let man = || {
        let mut child = Command::new("man")
            .args(["-l", "-"])
            .stdin(Stdio::piped())
            .spawn()
            .ok()?;
        // A reader that has seen enough closes the pipe.
        let _ = child.stdin.take()?.write_all(page);
        child.wait().ok()?.success().then_some(())
    };
    match stdout().is_terminal().then(man).flatten() {
        Some(()) => Ok(()),
        None => out::write(page),
    }
}

fn pages(command: clap::Command) -> Result<Vec<(String, Vec<u8>)>> {
    // Building passes names and global options down to the subcommands.
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    let mut todo = vec![("linerate".to_owned(), command)];
    while let Some((name, command)) = todo.pop() {
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            todo.push((format!("{name}-{}", sub.get_name()), sub.clone()));
        }
        let page = page(&name, command).with_context(|| format!("cannot make the page {name}"))?;
        pages.push((name, page));
    }
    pages.sort();
    Ok(pages)
}

fn page(name: &str, command: clap::Command) -> std::io::Result<Vec<u8>> {
    // What the help shows behind the options becomes sections here.
    let after = command.get_after_long_help().or(command.get_after_help());
    let after = after.map(ToString::to_string).unwrap_or_default();
    let see_also: Vec<String> = command
        .get_subcommands()
        .filter(|sub| !sub.is_hide_set())
        .map(|sub| format!("{name}-{}(1)", sub.get_name()))
        .chain((name != "linerate").then(|| "linerate(1)".to_owned()))
        .collect();
    let version = format!("linerate {}", env!("CARGO_PKG_VERSION"));
    let command = command
        .display_name(name.to_owned())
        .after_help("")
        .after_long_help("")
        .version(env!("CARGO_PKG_VERSION"));
    let has_subcommands = command.has_subcommands();
    let man_command = &command.clone();
    let man = clap_mangen::Man::new(command)
        .title(name)
        .manual("linerate")
        .source(version);

    let mut out = Vec::new();
    man.render_title(&mut out)?;
    man.render_name_section(&mut out)?;
    out.extend(synopsis(man_command).into_bytes());
    man.render_description_section(&mut out)?;
    man.render_options_section(&mut out)?;
    if has_subcommands {
        man.render_subcommands_section(&mut out)?;
    }
    let mut roff = Roff::default();
    examples(&mut roff, &after);
    let exits = Exit::ALL.map(|(exit, meaning)| ((exit as u8).to_string(), meaning));
    listed(
        &mut roff,
        "EXIT STATUS",
        exits.iter().map(|(n, m)| (n.as_str(), *m)),
    );
    for (title, text) in [("FILES", FILES), ("ENVIRONMENT", ENVIRONMENT)] {
        let lines: Vec<&str> = text.lines().collect();
        let pairs = lines.chunks_exact(2).map(|pair| (pair[0], pair[1]));
        listed(&mut roff, title, pairs);
    }
    if !see_also.is_empty() {
        roff.control("SH", ["SEE ALSO"]);
        roff.text([roman(see_also.join(", "))]);
    }
    out.extend(roff.to_roff().into_bytes());
    Ok(out)
}

/// How the command is written, each option with its value.
fn synopsis(command: &clap::Command) -> String {
    let mut roff = Roff::default();
    roff.control("SH", ["SYNOPSIS"]);
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let mut line = vec![bold(name)];
    let shown = command.get_arguments().filter(|arg| !arg.is_hide_set());
    let (places, options): (Vec<_>, Vec<_>) = shown.partition(|arg| arg.is_positional());
    for arg in options.into_iter().chain(places) {
        let names = [
            arg.get_short().map(|short| format!("-{short}")),
            arg.get_long().map(|long| format!("--{long}")),
        ];
        let names: Vec<String> = names.into_iter().flatten().collect();
        let values = arg.get_value_names().unwrap_or_default().iter();
        let values: Vec<String> = values.map(ToString::to_string).collect();
        let values = match arg.get_action().takes_values() || arg.is_positional() {
            true if values.is_empty() => vec![arg.get_id().as_str().to_uppercase()],
            true => values,
            false => Vec::new(),
        };
        let [open, close] = if arg.is_required_set() {
            ["", ""]
        } else {
            ["[", "]"]
        };
        let gap = if names.is_empty() || values.is_empty() {
            ""
        } else {
            " "
        };
        line.push(roman(format!(" {open}")));
        line.push(bold(names.join("|")));
        line.push(roman(gap));
        line.push(italic(values.join(" ")));
        line.push(roman(close));
    }
    if command.has_subcommands() {
        line.push(roman(" "));
        line.push(italic("COMMAND"));
    }
    roff.text(line);
    roff.to_roff()
}

/// The help's closing text: examples keep their lines, prose behind them becomes NOTES.
fn examples(roff: &mut Roff, after: &str) {
    let body = after.strip_prefix("EXAMPLES\n").unwrap_or(after);
    let (commands, notes) = body.split_once("\n\n").unwrap_or((body, ""));
    if !commands.trim().is_empty() {
        roff.control("SH", ["EXAMPLES"]);
        roff.control("nf", []);
        for line in commands.lines() {
            roff.text([roman(line)]);
        }
        roff.control("fi", []);
    }
    if !notes.trim().is_empty() {
        roff.control("SH", ["NOTES"]);
        for paragraph in notes.split("\n\n") {
            roff.control("PP", []);
            roff.text([roman(paragraph)]);
        }
    }
}

fn listed<'a>(roff: &mut Roff, title: &str, entries: impl IntoIterator<Item = (&'a str, &'a str)>) {
    roff.control("SH", [title]);
    for (term, meaning) in entries {
        let term: Inline = bold(term);
        roff.control("TP", []);
        roff.text([term]);
        roff.text([roman(meaning)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<(String, String)> {
        pages(super::super::command())
            .unwrap()
            .into_iter()
            .map(|(name, page)| (name, String::from_utf8(page).unwrap()))
            .collect()
    }

    #[test]
    fn every_command_has_a_page_with_every_section() {
        let pages = all();
        let names: Vec<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names[0], "linerate");
        for sub in super::super::command()
            .get_subcommands()
            .filter(|sub| !sub.is_hide_set())
        {
            let page = format!("linerate-{}", sub.get_name());
            assert!(names.contains(&page.as_str()), "{page}");
        }
        for (name, page) in &pages {
            for section in [
                "NAME",
                "SYNOPSIS",
                "\"EXIT STATUS\"",
                "FILES",
                "ENVIRONMENT",
            ] {
                assert!(
                    page.contains(&format!(".SH {section}")),
                    "{name}: {section}"
                );
            }
            for (exit, _) in Exit::ALL {
                assert!(
                    page.contains(&format!("\\fB{}\\fR", exit as u8)),
                    "{name}: {exit:?}"
                );
            }
        }
    }

    #[test]
    fn the_synopsis_has_the_values() {
        let pages = all();
        let (_, measure) = pages.iter().find(|(n, _)| n == "linerate-measure").unwrap();
        let at = measure.find(".SH SYNOPSIS").unwrap();
        let line = measure[at..].lines().nth(1).unwrap();
        assert!(line.contains("\\-\\-time\\fR \\fITIME\\fR]"), "{line}");
        assert!(
            line.ends_with("\\fIHOST\\fR [\\fB\\fR\\fITO\\fR]"),
            "{line}"
        );
    }

    #[test]
    fn examples_keep_their_lines() {
        let pages = all();
        let (_, measure) = pages.iter().find(|(n, _)| n == "linerate-measure").unwrap();
        let at = measure.find(".SH EXAMPLES\n.nf\n").unwrap();
        assert!(
            measure[at..].contains("linerate measure local"),
            "{measure}"
        );
        assert_eq!(measure.matches("EXAMPLES").count(), 1);
    }
}

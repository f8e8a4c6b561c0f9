//! `linerate completions`: what a shell needs to complete the command line.

use crate::prelude::*;
use clap_complete::Shell;

/// Print the completions for a shell
#[derive(Args)]
#[command(after_long_help = "EXAMPLES
  linerate completions bash > ~/.local/share/bash-completion/completions/linerate
  linerate completions zsh > ~/.zfunc/_linerate        (with ~/.zfunc in fpath)
  linerate completions fish > ~/.config/fish/completions/linerate.fish")]
pub struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub fn run(&self, mut command: clap::Command) -> Result<Exit> {
        // Written in one piece: clap_complete panics on a closed pipe.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command, "linerate", &mut script);
        out::write(&script)?;
        Ok(Exit::Done)
    }
}

#[cfg(test)]
mod tests {
    use clap_complete::Shell;

    #[test]
    fn every_shell_learns_every_command() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut script = Vec::new();
            let mut command = super::super::command();
            clap_complete::generate(shell, &mut command, "linerate", &mut script);
            let script = String::from_utf8(script).unwrap();
            for sub in command.get_subcommands() {
                assert!(
                    script.contains(sub.get_name()),
                    "{shell} {}",
                    sub.get_name()
                );
            }
        }
    }
}

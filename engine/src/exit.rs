//! How the command ends: exit codes, and errors that know theirs.

use std::process::ExitCode;

macro_rules! exits {
    ($($name:ident = $code:literal, $meaning:literal;)*) => {
        /// The exit codes, for people and scripts. They are part of the interface: the manual pages print
        /// [`Exit::ALL`], and a code never changes its meaning.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Exit { $(#[doc = $meaning] $name = $code,)* }

        impl Exit {
            /// All of them, in the order of their numbers, and what each means, for the manual.
            pub const ALL: [(Exit, &str); [$($code),*].len()] = [$((Exit::$name, $meaning)),*];
        }
    };
}

exits! {
    Done = 0, "Everything was done as asked; of prove: FASTER.";
    Failed = 1, "The measurement or the operation failed; the message has the reason.";
    // The same code as clap's.
    Usage = 2, "The command line or an input was wrong; nothing was started.";
    Unreachable = 3, "The remote host could not be reached, or refused.";
    Interrupted = 4,
        "Ended early by the user (Ctrl-C); what had been measured until then was printed and kept.";
    Slower = 10, "prove: SLOWER.";
    NoDifference = 11, "prove: EQUIVALENT, within the margin.";
    NotEnoughData = 12, "prove: NOT ENOUGH DATA.";
    NoVerdict = 13, "prove: NO VERDICT; the message has the reason.";
    GateFailed = 14, "gate: an expectation is not met, or a variant is proven slower.";
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// An error that knows its exit code. Put it anywhere in an anyhow chain: [`exit_of`] finds it.
#[derive(Debug, thiserror::Error)]
#[error("{sentence}")]
pub struct Refusal {
    /// How the command ends.
    pub code: Exit,
    /// What happened, to what, and what to do.
    pub sentence: String,
}

impl Refusal {
    fn new(code: Exit, sentence: impl Into<String>) -> Refusal {
        let sentence = sentence.into();
        Refusal { code, sentence }
    }

    /// Bad usage or bad input.
    pub fn usage(sentence: impl Into<String>) -> Refusal {
        Refusal::new(Exit::Usage, sentence)
    }

    /// A host that cannot be reached or refuses.
    pub fn unreachable(sentence: impl Into<String>) -> Refusal {
        Refusal::new(Exit::Unreachable, sentence)
    }

    /// The user stopped it.
    pub fn interrupted(sentence: impl Into<String>) -> Refusal {
        Refusal::new(Exit::Interrupted, sentence)
    }
}

/// Returns a [`Refusal::usage`] with this sentence, as `anyhow::bail!` returns an error.
#[macro_export]
macro_rules! refuse {
    ($($sentence:tt)*) => {
        return Err($crate::exit::Refusal::usage(format!($($sentence)*)).into())
    };
}

/// This error of a connection, which ends the command with [`Exit::Unreachable`].
pub fn unreachable(error: measure::Error) -> anyhow::Error {
    let said = Refusal::unreachable(error.to_string());
    anyhow::Error::new(error).context(said)
}

/// The exit code of an error: that of the outermost [`Refusal`] in its chain, else [`Exit::Failed`].
pub fn exit_of(error: &anyhow::Error) -> Exit {
    // A Refusal given as context is found by anyhow's own downcast, one at the bottom by the chain.
    error
        .downcast_ref::<Refusal>()
        .or_else(|| error.chain().find_map(|cause| cause.downcast_ref()))
        .map_or(Exit::Failed, |refusal| refusal.code)
}

/// The error as one line for the user: the whole chain, each part once, without the numbers of system errors, nothing
/// in it that a terminal would obey.
pub fn sentence(error: &anyhow::Error) -> String {
    let mut parts: Vec<String> = Vec::new();
    for cause in error.chain() {
        let part = without_numbers(&cause.to_string());
        // Many errors print their source themselves.
        if !parts.iter().any(|said| said.contains(&part)) {
            parts.push(part);
        }
    }
    report::words::escape_sentence(&parts.join(": "))
}

/// Without the " (os error 113)" that std adds to the text of a system error.
fn without_numbers(text: &str) -> String {
    const ADDED: &str = " (os error ";
    let mut parts = text.split(ADDED);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| match part.split_once(')') {
        Some((number, rest)) if number.bytes().all(|b| b.is_ascii_digit()) => all + rest,
        _ => all + ADDED + part,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::{Context, anyhow};

    #[test]
    fn numbers_of_system_errors_are_left_out() {
        for (text, expected) in [
            ("No route to host (os error 113)", "No route to host"),
            ("a (os error 2): b (os error 13); c", "a: b; c"),
            (
                "a (os error x) b (os error 2",
                "a (os error x) b (os error 2",
            ),
            ("", ""),
        ] {
            assert_eq!(without_numbers(text), expected);
        }
    }

    #[test]
    fn codes_are_found_anywhere_in_the_chain() {
        let refused = || Refusal::unreachable("db1 refused");
        let at_the_bottom: anyhow::Error = Err::<(), _>(refused())
            .context("cannot measure")
            .unwrap_err();
        assert_eq!(exit_of(&at_the_bottom), Exit::Unreachable);
        let as_context = anyhow!("ECONNREFUSED").context(refused());
        assert_eq!(exit_of(&as_context), Exit::Unreachable);
        let buried = as_context.context("cannot measure");
        assert_eq!(exit_of(&buried), Exit::Unreachable);
        assert_eq!(exit_of(&anyhow!("no space left")), Exit::Failed);
    }

    #[test]
    fn numbers_stay() {
        assert_eq!(
            Exit::ALL.map(|(e, _)| e as u8),
            [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]
        );
    }

    #[test]
    fn the_sentence_says_each_part_once_and_nothing_moves_the_cursor() {
        let error = anyhow!("refused\x1b[2J").context("cannot reach db1: refused\x1b[2J");
        assert_eq!(sentence(&error), "cannot reach db1: refused\\u{1b}[2J");
    }
}

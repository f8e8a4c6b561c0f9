//! What is wrong with a file that a user wrote, where, and what is possible.

/// A file that cannot be used. Prints as `file:line: what; remedy`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {what}; {remedy}")]
pub struct UserFileError {
    /// The file as the caller named it.
    pub file: String,
    /// Line of the fault, from 1.
    pub line: usize,
    /// What is wrong, naming the key or the value.
    pub what: String,
    /// What is possible.
    pub remedy: String,
}

/// The text of a file, to name lines in it.
#[derive(Clone, Copy, Debug)]
pub struct SourceText<'a> {
    /// All of it.
    pub text: &'a str,
    /// The file as the caller names it.
    pub file: &'a str,
}

impl SourceText<'_> {
    /// A fault in the line of this byte.
    pub fn error(
        &self,
        at: usize,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) -> UserFileError {
        UserFileError {
            file: self.file.to_owned(),
            line: line_at(self.text, at),
            what: what.into(),
            remedy: remedy.into(),
        }
    }
}

/// The line of this byte, from 1.
pub fn line_at(text: &str, at: usize) -> usize {
    let before = &text.as_bytes()[..at.min(text.len())];
    before.iter().filter(|&&b| b == b'\n').count() + 1
}

/// What the reader of TOML says, as what and remedy; the remedy is `usual` where it has none.
pub fn toml_fault(message: &str, usual: &str) -> (String, String) {
    let message = message.trim().replace('\n', ", ");
    let mut quoted = message.split('`').skip(1).step_by(2);
    match quoted.next() {
        Some(name) if message.starts_with("unknown field") => {
            let known: Vec<&str> = quoted.collect();
            (format!("unknown key '{name}'"), suggest(name, &known))
        }
        Some(name) if message.starts_with("missing field") => {
            (format!("'{name}' is missing"), format!("add {name} = ..."))
        }
        _ => match (message.rsplit_once("; "), message.split_once(", expected ")) {
            (Some((what, remedy)), _) => (what.to_owned(), remedy.to_owned()),
            (None, Some((what, expected))) => (what.to_owned(), format!("write {expected}")),
            (None, None) => (message, usual.to_owned()),
        },
    }
}

/// A remedy for a name that is none of `known`.
pub fn suggest(name: &str, known: &[&str]) -> String {
    const MOST: usize = 32;
    let distance = |k: &&str| strsim::levenshtein(name.get(..64).unwrap_or(name), k);
    match known.iter().min_by_key(|k| distance(k)) {
        Some(key) if distance(key) <= 1 + key.len() / 4 => format!("did you mean '{key}'?"),
        Some(_) => {
            let more = if known.len() > MOST { ", ..." } else { "" };
            let known: Vec<&str> = known.iter().take(MOST).copied().collect();
            format!("known here: {}{more}", known.join(", "))
        }
        None => "there is none yet".to_owned(),
    }
}

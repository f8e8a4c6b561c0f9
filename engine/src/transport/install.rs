//! This binary on a host that ssh reaches: copied into the user's cache there, found there by later sessions, removed.

use super::reach::{no_ssh, quoted, ssh};
use crate::prelude::*;
use crate::trust::sha256;
use std::process::Stdio;

/// Where the copy is, below the user's home there.
pub(super) const DIRECTORY: &str = ".cache/linerate/bin";

/// Status of the scripts below when they refuse; their standard error has the reason.
const REFUSED: i32 = 65;

/// Copies this binary; returns what it prints there as its version.
///
/// # Errors
/// ssh fails, or the host cannot run it; nothing is left there then.
pub fn install(destination: &str, port: Option<u16>) -> Result<String> {
    // The file that runs, even if a newer one has taken its place.
    let binary = std::fs::read("/proc/self/exe").context("cannot read this binary")?;
    let sum = sha256(&binary);
    let machine = std::env::consts::ARCH;
    // No single quote: the whole is one word for any shell that the user has there.
    let script = format!(
        r#"set -e
[ "$(uname -sm)" = "Linux {machine}" ] || {{ echo "it is $(uname -sm), and this binary is for Linux {machine}" >&2; exit {REFUSED}; }}
d="$HOME/{DIRECTORY}"; mkdir -p "$d"; t="$d/.linerate.$$"; trap "rm -f \"$t\"" EXIT
cat >"$t"
[ "$(sha256sum <"$t" | cut -c 1-64)" = {sum} ] || {{ echo "the copy differs from the original" >&2; exit {REFUSED}; }}
chmod 755 "$t"
"$t" --version || {{ echo "the copy does not run there; a static binary (make dist) does" >&2; exit {REFUSED}; }}
mv "$t" "$d/linerate""#
    );
    over_ssh(destination, port, &script, &binary)
}

/// Removes the copy, and the directories that it had made if nothing else is in them.
///
/// # Errors
/// ssh fails, or there is none.
pub fn remove(destination: &str, port: Option<u16>) -> Result<()> {
    let script = format!(
        r#"cd "$HOME" && [ -e {DIRECTORY}/linerate ] || {{ echo "there is no $HOME/{DIRECTORY}/linerate" >&2; exit {REFUSED}; }}
rm {DIRECTORY}/linerate && {{ rmdir -p {DIRECTORY} 2>/dev/null || :; }}"#
    );
    over_ssh(destination, port, &script, &[]).map(drop)
}

/// Runs a script of sh there with this standard input; its standard output.
fn over_ssh(destination: &str, port: Option<u16>, script: &str, input: &[u8]) -> Result<String> {
    let mut child = ssh(destination, port, None, &[])
        .arg(format!("sh -c '{script}'"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(no_ssh)?;
    let mut stdin = child.stdin.take().context("ssh has no standard input")?;
    std::thread::scope(|scope| {
        let writer = scope.spawn(move || stdin.write_all(input));
        let output = child.wait_with_output().context("cannot wait for ssh")?;
        let written = writer
            .join()
            .unwrap_or_else(|_| Err(ErrorKind::Other.into()));
        let said = String::from_utf8_lossy(&output.stderr);
        let said = wire::control::printable(said.lines().last().unwrap_or_default(), 300);
        if !output.status.success() {
            let sentence = match output.status.code() {
                Some(REFUSED) => format!("{destination}: {said}"),
                Some(255) => format!("ssh to {destination} failed{}", quoted(&said)),
                _ => format!("{destination} refuses the copy{}", quoted(&said)),
            };
            return Err(Refusal::unreachable(sentence).into());
        }
        written.with_context(|| format!("{destination} did not take the whole copy"))?;
        Ok(wire::control::printable(
            String::from_utf8_lossy(&output.stdout).trim(),
            100,
        ))
    })
}

//! Where the archive is, and how runs are named.

use crate::Error;
use model::RunId;
use std::ffi::OsStr;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};

/// The archive of a user: `linerate/runs.db` in `$XDG_DATA_HOME`, or in `~/.local/share` where that is
/// unset, empty or relative (XDG Base Directory Specification). The caller reads the environment.
///
/// # Errors
/// [`Error::NoHome`] if neither variable leads to a directory.
pub fn default_path(xdg_data_home: Option<&OsStr>, home: Option<&OsStr>) -> Result<PathBuf, Error> {
    let absolute = |value: Option<&OsStr>| {
        value
            .map(Path::new)
            .filter(|path| path.is_absolute())
            .map(Path::to_owned)
    };
    absolute(xdg_data_home)
        .or_else(|| Some(absolute(home)?.join(".local/share")))
        .map(|data| data.join("linerate/runs.db"))
        .ok_or(Error::NoHome)
}

/// Digits of a name that are shown at the least, and that were a whole name in older archives.
pub const SHORTEST: usize = 8;

/// Digits of a whole name: 128 bits.
const WHOLE: usize = 32;

/// A name for a new run: 32 random hexadecimal digits.
pub fn new_id() -> RunId {
    // The keys of RandomState come from the kernel's random numbers; this spares a dependency.
    let state = RandomState::new();
    format!("{:016x}{:016x}", state.hash_one(0), state.hash_one(1))
}

/// Whether a name has the form of [`new_id`], or the eight digits of older archives.
pub fn is_id(name: &str) -> bool {
    matches!(name.len(), SHORTEST | WHOLE) && is_hex(name)
}

/// Whether a name has the form of a shown one: the first digits of a whole one.
pub fn is_shown(name: &str) -> bool {
    (SHORTEST..=WHOLE).contains(&name.len()) && is_hex(name)
}

pub(crate) fn is_hex(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_directory_of_the_user() {
        let path = |xdg: Option<&str>, home: Option<&str>| {
            default_path(xdg.map(OsStr::new), home.map(OsStr::new))
        };
        let of = |text: &str| PathBuf::from(text);
        assert_eq!(
            path(Some("/data"), Some("/home/a")).unwrap(),
            of("/data/linerate/runs.db")
        );
        for unset in [None, Some(""), Some("relative")] {
            assert_eq!(
                path(unset, Some("/home/a")).unwrap(),
                of("/home/a/.local/share/linerate/runs.db")
            );
        }
        assert!(matches!(path(None, None), Err(Error::NoHome)));
        assert!(matches!(path(None, Some("")), Err(Error::NoHome)));
    }

    #[test]
    fn ids_have_their_form_and_differ() {
        let many: std::collections::BTreeSet<RunId> = (0..1000).map(|_| new_id()).collect();
        assert_eq!(many.len(), 1000);
        assert!(many.iter().all(|id| is_id(id) && id.len() == WHOLE));
        assert!(is_id("01234567"), "of an older archive");
        for no in ["", "last", "0123456", "012345678", "0123456G", "ABCDEF01"] {
            assert!(!is_id(no), "{no}");
        }
    }
}

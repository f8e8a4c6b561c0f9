//! Who may test: the text inside an authentication token, and the file of users. The token itself is
//! this text, encrypted by RSA, in base64; encryption lives with the keys, outside of this room.

use crate::hex;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// Seconds that the clocks of the two ends may differ, as in iperf3.
pub const DEFAULT_SKEW_S: u64 = 10;

/// What a client says of its user.
#[derive(Clone, PartialEq, Eq)]
pub struct UserCredentials {
    /// Name.
    pub user: String,
    /// Password in clear text.
    pub password: String,
    /// The client's clock, seconds since 1970.
    pub seconds: i64,
}

// Not derived: a password must not get into a log.
impl std::fmt::Debug for UserCredentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

/// Why a user was not let in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// The text has another form.
    #[error("the authentication token is not what iperf3 makes")]
    NotAToken,
    /// The clocks differ too much, or the token is an old one.
    #[error("the clock of the client is {by} s off; at most {allowed} s are allowed")]
    Skew {
        /// Difference in seconds; positive: the client's clock is behind.
        by: i64,
        /// Allowed.
        allowed: u64,
    },
    /// No such user, or not that password.
    #[error("user name or password is wrong")]
    Denied,
}

/// The text that a client encrypts.
pub fn token_text(credentials: &UserCredentials) -> String {
    let UserCredentials {
        user,
        password,
        seconds,
    } = credentials;
    format!("user: {user}\npwd:  {password}\nts:   {seconds}")
}

/// Reads the text of a token, as scanf would: six words.
pub fn read_token_text(text: &[u8]) -> Result<UserCredentials, AuthError> {
    let text = std::str::from_utf8(text).map_err(|_| AuthError::NotAToken)?;
    let words: Vec<&str> = text.split_ascii_whitespace().take(7).collect();
    match words[..] {
        ["user:", user, "pwd:", password, "ts:", seconds] => Ok(UserCredentials {
            user: user.to_owned(),
            password: password.to_owned(),
            seconds: seconds.parse().map_err(|_| AuthError::NotAToken)?,
        }),
        _ => Err(AuthError::NotAToken),
    }
}

/// The users of a server: lines `NAME,HASH`, where HASH is the SHA-256 of `{NAME}PASSWORD` in
/// hexadecimal. Empty lines and lines that start with `#` do not count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsersFile {
    hashes: BTreeMap<String, String>,
}

/// Why a file of users was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UsersFileError {
    /// A line has another form.
    #[error(
        "line {line} is not 'NAME,HASH' with the SHA-256 of {{NAME}}PASSWORD in 64 hexadecimal digits"
    )]
    Line {
        /// Number of the line, from 1.
        line: usize,
    },
    /// Nobody is in it.
    #[error("it names no user")]
    Empty,
}

impl UsersFile {
    /// Reads the file.
    pub fn parse(text: &str) -> Result<UsersFile, UsersFileError> {
        let mut hashes = BTreeMap::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (name, hash) = line
                .split_once(',')
                .map(|(name, hash)| (name.trim(), hash.trim()))
                .filter(|(name, hash)| {
                    !name.is_empty()
                        && hash.len() == 64
                        && hash.bytes().all(|b| b.is_ascii_hexdigit())
                })
                .ok_or(UsersFileError::Line { line: index + 1 })?;
            hashes.insert(name.to_owned(), hash.to_ascii_lowercase());
        }
        if hashes.is_empty() {
            return Err(UsersFileError::Empty);
        }
        Ok(UsersFile { hashes })
    }

    /// Lets a user in, or says why not. `now` is the server's clock, seconds since 1970.
    pub fn check(&self, who: &UserCredentials, now: i64, allowed_s: u64) -> Result<(), AuthError> {
        let by = now.saturating_sub(who.seconds);
        if by.unsigned_abs() > allowed_s {
            return Err(AuthError::Skew {
                by,
                allowed: allowed_s,
            });
        }
        let hash = hash(&who.user, &who.password);
        // An unknown user costs the same comparison as a known one.
        let none = "0".repeat(64);
        let expected = self.hashes.get(&who.user).unwrap_or(&none);
        let differing = expected
            .bytes()
            .zip(hash.bytes())
            .fold(0, |all, (a, b)| all | (a ^ b));
        if differing == 0 && self.hashes.contains_key(&who.user) {
            Ok(())
        } else {
            Err(AuthError::Denied)
        }
    }
}

fn hash(user: &str, password: &str) -> String {
    hex(&Sha256::digest(format!("{{{user}}}{password}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn mario(password: &str, seconds: i64) -> UserCredentials {
        UserCredentials {
            user: "mario".into(),
            password: password.into(),
            seconds,
        }
    }

    #[test]
    fn the_example_of_the_manual() {
        // From iperf3's manual: S_USER=mario S_PASSWD=rossi.
        let users = UsersFile::parse(
            "# users\n\nmario,bf7a49a846d44b454a5d11e7acfaf13d138bbe0b7483aa3e050879700572709b\n",
        )
        .unwrap();
        assert_eq!(users.check(&mario("rossi", 100), 105, 10), Ok(()));
        assert_eq!(
            users.check(&mario("bianchi", 100), 105, 10),
            Err(AuthError::Denied)
        );
        assert_eq!(
            users.check(&mario("rossi", 100), 111, 10),
            Err(AuthError::Skew {
                by: 11,
                allowed: 10
            })
        );
        assert_eq!(
            users.check(&mario("rossi", i64::MIN), i64::MAX, 10),
            Err(AuthError::Skew {
                by: i64::MAX,
                allowed: 10
            })
        );
    }

    #[test]
    fn files_that_are_none() {
        for (text, error) in [
            ("", UsersFileError::Empty),
            ("# nobody", UsersFileError::Empty),
            ("mario", UsersFileError::Line { line: 1 }),
            ("#\nmario,12", UsersFileError::Line { line: 2 }),
        ] {
            assert_eq!(UsersFile::parse(text), Err(error));
        }
    }

    proptest! {
        #[test]
        fn reading_what_was_written(user in "[a-z]{1,9}", password in "[!-~]{1,20}", seconds in any::<i64>()) {
            let who = UserCredentials { user, password, seconds };
            prop_assert_eq!(read_token_text(token_text(&who).as_bytes()), Ok(who));
        }

        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..100), text in ".{0,100}") {
            let _ = read_token_text(&bytes);
            let _ = UsersFile::parse(&text);
        }
    }
}

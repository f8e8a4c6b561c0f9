//! An invitation as one line that a person carries from one host to the other.

use crate::host::{DEFAULT_PORT, agent_address, authority};
use crate::prelude::*;
use std::fmt;
use std::str::FromStr;

/// `linerate-invitation/HOST[:PORT]/ID/TOKEN/EXPIRY`. Whoever has the line can use it, once.
#[derive(Clone, Debug)]
pub struct Invitation {
    /// Name or address of the server.
    pub name: String,
    /// Its port.
    pub port: u16,
    /// Its key's id: whoever else answers there is refused.
    pub server: NodeId,
    /// Lets one host enrol.
    pub token: Token,
    /// In seconds since 1970-01-01 UTC.
    pub expires_unix_s: u64,
}

const WORD: &str = "linerate-invitation";

impl fmt::Display for Invitation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = authority(&self.name, self.port, DEFAULT_PORT);
        let (server, token) = (self.server, self.token.to_hex());
        write!(f, "{WORD}/{at}/{server}/{token}/{}", self.expires_unix_s)
    }
}

impl FromStr for Invitation {
    type Err = Refusal;

    fn from_str(line: &str) -> Result<Invitation, Refusal> {
        let wrong = |what: &str| {
            Refusal::usage(format!(
                "this is no invitation ({what}): copy the whole line that 'linerate trust invite' printed"
            ))
        };
        let parts: Vec<&str> = line.trim().split('/').collect();
        let [WORD, at, server, token, expires] = parts[..] else {
            return Err(wrong("it has not its five parts"));
        };
        let Some((name, port)) = agent_address(at) else {
            return Err(wrong("its host cannot be read"));
        };
        let server = server.parse().ok();
        let expires = expires.parse().ok();
        Ok(Invitation {
            name,
            port,
            server: server.ok_or_else(|| wrong("its server's id cannot be read"))?,
            token: Token::from_hex(token).ok_or_else(|| wrong("its token cannot be read"))?,
            expires_unix_s: expires.ok_or_else(|| wrong("its expiry cannot be read"))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::identity::tests::fresh;
    use super::*;
    use wire::control::TOKEN_LEN;

    #[test]
    fn a_line_there_and_back_and_none_with_a_part_missing() {
        for (name, port) in [("db2", 5210), ("192.0.2.1", 99), ("2001:db8::1", 5210)] {
            let invitation = Invitation {
                name: name.to_owned(),
                port,
                server: fresh().id(),
                token: Token::new([9; TOKEN_LEN]),
                expires_unix_s: 1_800_000_000,
            };
            let line = invitation.to_string();
            let back: Invitation = format!(" {line}\n").parse().unwrap();
            assert_eq!((back.name.as_str(), back.port), (name, port));
            assert_eq!(back.server, invitation.server);
            assert!(back.token.matches(&invitation.token));
            for cut in (0..line.len() - 10).filter(|&cut| line.is_char_boundary(cut)) {
                assert!(line[..cut].parse::<Invitation>().is_err(), "{cut}");
            }
        }
    }
}

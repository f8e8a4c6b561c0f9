//! RSA around the text of an authentication token.

use crate::exit::Refusal;
use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rsa::pkcs1::DecodeRsaPrivateKey;
use rsa::pkcs8::{DecodePrivateKey, DecodePublicKey};
use rsa::rand_core::OsRng;
use rsa::{Oaep, Pkcs1v15Encrypt, RsaPrivateKey, RsaPublicKey};
use sha1::Sha1;
use std::fs;
use std::path::Path;
use wire::iperf3::{AuthError, Credentials, UsersFile, read_token_text, token_text};

/// A token for `credentials`, encrypted for the server's key.
pub fn token(credentials: &Credentials, key: &Path, pkcs1: bool) -> Result<String> {
    let pem = read(key, "public key")?;
    let key = RsaPublicKey::from_public_key_pem(&pem).map_err(|error| {
        Refusal::usage(format!(
            "{} is not an RSA public key in PEM form ({error}); take the file that \
             `openssl rsa -pubout` wrote",
            key.display()
        ))
    })?;
    let text = token_text(credentials);
    let encrypted = if pkcs1 {
        key.encrypt(&mut OsRng, Pkcs1v15Encrypt, text.as_bytes())
    } else {
        key.encrypt(&mut OsRng, Oaep::new::<Sha1>(), text.as_bytes())
    };
    let encrypted = encrypted.context("the user name and password do not fit the RSA key")?;
    Ok(STANDARD.encode(encrypted))
}

/// Whom a server lets in.
pub struct Authenticator {
    key: RsaPrivateKey,
    users: UsersFile,
    skew_s: u64,
    pkcs1: bool,
}

impl Authenticator {
    /// Reads the server's key and its users.
    pub fn open(key: &Path, users: &Path, skew_s: u64, pkcs1: bool) -> Result<Authenticator> {
        let pem = read(key, "private key")?;
        let parsed = RsaPrivateKey::from_pkcs8_pem(&pem);
        let key = parsed.or_else(|_| RsaPrivateKey::from_pkcs1_pem(&pem)).map_err(|error| {
            Refusal::usage(format!(
                "{} is not an RSA private key in PEM form without a password ({error}); make one \
                 with `openssl genrsa -out key.pem 2048`",
                key.display()
            ))
        })?;
        let text = read(users, "file of users")?;
        let users = UsersFile::parse(&text).map_err(|error| {
            Refusal::usage(format!("{} cannot be used: {error}", users.display()))
        })?;
        Ok(Authenticator {
            key,
            users,
            skew_s,
            pkcs1,
        })
    }

    /// Lets a client in, and says who it is. `now`: seconds since 1970.
    pub fn verify(&self, token: Option<&str>, now: i64) -> Result<String, AuthError> {
        let token = token.ok_or(AuthError::NotAToken)?;
        let encrypted = STANDARD
            .decode(token.trim_end())
            .map_err(|_| AuthError::NotAToken)?;
        // Blinded, and one answer for every failure: an unauthenticated peer learns nothing of the padding.
        let key = &self.key;
        let oaep = key.decrypt_blinded(&mut OsRng, Oaep::new::<Sha1>(), &encrypted);
        let text = oaep.or_else(|error| match self.pkcs1 {
            true => key.decrypt_blinded(&mut OsRng, Pkcs1v15Encrypt, &encrypted),
            false => Err(error),
        });
        let who = read_token_text(&text.map_err(|_| AuthError::NotAToken)?)?;
        self.users.check(&who, now, self.skew_s)?;
        Ok(who.user)
    }
}

fn read(path: &Path, what: &str) -> Result<String> {
    let name = path.display();
    let cannot = |error| Refusal::usage(format!("cannot read the {what} {name}: {error}"));
    Ok(fs::read_to_string(path).map_err(cannot)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rsa::pkcs8::{EncodePrivateKey, EncodePublicKey, LineEnding};

    #[test]
    fn what_a_client_seals_its_server_reads() {
        let folder = std::env::temp_dir().join(format!("linerate-auth-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (private, public, users) = (
            folder.join("private.pem"),
            folder.join("public.pem"),
            folder.join("users"),
        );
        let key = RsaPrivateKey::new(&mut OsRng, 2048).unwrap();
        fs::write(&private, key.to_pkcs8_pem(LineEnding::LF).unwrap()).unwrap();
        let pem = key.to_public_key().to_public_key_pem(LineEnding::LF);
        fs::write(&public, pem.unwrap()).unwrap();
        let hash = "bf7a49a846d44b454a5d11e7acfaf13d138bbe0b7483aa3e050879700572709b";
        fs::write(&users, format!("mario,{hash}\n")).unwrap();

        let who = |password: &str| Credentials {
            user: "mario".into(),
            password: password.into(),
            seconds: 1000,
        };
        let modern = Authenticator::open(&private, &users, 10, false).unwrap();
        let lenient = Authenticator::open(&private, &users, 10, true).unwrap();
        let oaep = token(&who("rossi"), &public, false).unwrap();
        let old = token(&who("rossi"), &public, true).unwrap();
        let wrong = token(&who("verdi"), &public, false).unwrap();
        assert_eq!(modern.verify(Some(&oaep), 1005), Ok("mario".into()));
        assert_eq!(modern.verify(Some(&old), 1005), Err(AuthError::NotAToken));
        assert_eq!(lenient.verify(Some(&old), 1005), Ok("mario".into()));
        assert_eq!(lenient.verify(Some(&oaep), 1005), Ok("mario".into()));
        assert_eq!(modern.verify(Some(&wrong), 1005), Err(AuthError::Denied));
        assert_eq!(
            modern.verify(Some(&oaep), 2000),
            Err(AuthError::Skew {
                by: 1000,
                allowed: 10
            })
        );
        assert_eq!(modern.verify(None, 1005), Err(AuthError::NotAToken));
        assert_eq!(modern.verify(Some("%%"), 1005), Err(AuthError::NotAToken));

        let error = Authenticator::open(&public, &users, 10, false)
            .err()
            .unwrap();
        assert!(error.to_string().contains("is not an RSA private key"));
        fs::remove_dir_all(&folder).unwrap();
    }
}

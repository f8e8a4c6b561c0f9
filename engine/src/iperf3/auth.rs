//! RSA around the text of an authentication token.

use crate::prelude::*;
use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::rsa::{
    KeyPair, OAEP_SHA1_MGF1SHA1, OaepPrivateDecryptingKey, OaepPublicEncryptingKey,
    Pkcs1PrivateDecryptingKey, Pkcs1PublicEncryptingKey, PrivateDecryptingKey, PublicEncryptingKey,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{PrivateKeyDer, SubjectPublicKeyInfoDer};
use std::fs;
use wire::iperf3::{AuthError, UserCredentials, UsersFile, read_token_text, token_text};

/// A token for `credentials`, encrypted for the server's key.
pub fn token(credentials: &UserCredentials, key: &Path, pkcs1: bool) -> Result<String> {
    let key = public_key(&read(key, "public key")?).ok_or_else(|| {
        Refusal::usage(format!(
            "{} is not an RSA public key of 2048 to 8192 bits in PEM form; take the file that \
             `openssl rsa -pubout` wrote",
            key.display()
        ))
    })?;
    let text = token_text(credentials);
    let mut room = vec![0; key.key_size_bytes()];
    let encrypted = if pkcs1 {
        Pkcs1PublicEncryptingKey::new(key)
            .and_then(|key| key.encrypt(text.as_bytes(), &mut room).map(|out| &*out))
    } else {
        OaepPublicEncryptingKey::new(key).and_then(|key| {
            let out = key.encrypt(&OAEP_SHA1_MGF1SHA1, text.as_bytes(), &mut room, None);
            out.map(|out| &*out)
        })
    };
    let encrypted = encrypted
        .ok()
        .context("the user name and password do not fit the RSA key")?;
    Ok(STANDARD.encode(encrypted))
}

/// Whom a server lets in.
pub struct Authenticator {
    oaep: OaepPrivateDecryptingKey,
    /// Where the older padding is accepted, too.
    pkcs1: Option<Pkcs1PrivateDecryptingKey>,
    users: UsersFile,
    skew_s: u64,
}

impl Authenticator {
    /// Reads the server's key and its users.
    pub fn open(key: &Path, users: &Path, skew_s: u64, pkcs1: bool) -> Result<Authenticator> {
        let (oaep, old) = private_keys(&read(key, "private key")?).ok_or_else(|| {
            Refusal::usage(format!(
                "{} is not an RSA private key of 2048 to 8192 bits in PEM form without a \
                 password; make one with `openssl genrsa -out key.pem 2048`",
                key.display()
            ))
        })?;
        let text = read(users, "file of users")?;
        let users = UsersFile::parse(&text).map_err(|error| {
            Refusal::usage(format!("{} cannot be used: {error}", users.display()))
        })?;
        Ok(Authenticator {
            oaep,
            pkcs1: pkcs1.then_some(old),
            users,
            skew_s,
        })
    }

    /// Lets a client in, and says who it is. `now`: seconds since 1970.
    pub fn verify(&self, token: Option<&str>, now: i64) -> Result<String, AuthError> {
        let token = token.ok_or(AuthError::NotAToken)?;
        let encrypted = STANDARD
            .decode(token.trim_end())
            .map_err(|_| AuthError::NotAToken)?;
        // Blinded, and one answer for every failure: an unauthenticated peer learns nothing of the padding.
        let mut room = vec![0; self.oaep.min_output_size()];
        let text = self
            .oaep
            .decrypt(&OAEP_SHA1_MGF1SHA1, &encrypted, &mut room, None);
        let who = match (text, &self.pkcs1) {
            (Ok(text), _) => read_token_text(text),
            (Err(_), Some(old)) => match old.decrypt(&encrypted, &mut room) {
                Ok(text) => read_token_text(text),
                Err(_) => Err(AuthError::NotAToken),
            },
            (Err(_), None) => Err(AuthError::NotAToken),
        }?;
        self.users.check(&who, now, self.skew_s)?;
        Ok(who.user)
    }
}

fn public_key(pem: &str) -> Option<PublicEncryptingKey> {
    let der = SubjectPublicKeyInfoDer::from_pem_slice(pem.as_bytes()).ok()?;
    PublicEncryptingKey::from_der(&der).ok()
}

/// The key of a PEM file in PKCS #8 or PKCS #1 form, for either padding.
fn private_keys(pem: &str) -> Option<(OaepPrivateDecryptingKey, Pkcs1PrivateDecryptingKey)> {
    let key = match PrivateKeyDer::from_pem_slice(pem.as_bytes()).ok()? {
        PrivateKeyDer::Pkcs8(der) => PrivateDecryptingKey::from_pkcs8(der.secret_pkcs8_der()),
        PrivateKeyDer::Pkcs1(der) => {
            let pair = KeyPair::from_der(der.secret_pkcs1_der()).ok()?;
            PrivateDecryptingKey::from_pkcs8(pair.as_der().ok()?.as_ref())
        }
        _ => return None,
    }
    .ok()?;
    let oaep = OaepPrivateDecryptingKey::new(key.clone()).ok()?;
    Some((oaep, Pkcs1PrivateDecryptingKey::new(key).ok()?))
}

fn read(path: &Path, what: &str) -> Result<String> {
    let name = path.display();
    let cannot = |error| Refusal::usage(format!("cannot read the {what} {name}: {error}"));
    Ok(fs::read_to_string(path).map_err(cannot)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_lc_rs::rsa::KeySize;

    #[test]
    fn what_a_client_seals_its_server_reads() {
        let folder = std::env::temp_dir().join(format!("linerate-auth-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (private, public, users) = (
            folder.join("private.pem"),
            folder.join("public.pem"),
            folder.join("users"),
        );
        let key = PrivateDecryptingKey::generate(KeySize::Rsa2048).unwrap();
        let pem = |kind: &str, der: &[u8]| {
            let text = STANDARD.encode(der);
            format!("-----BEGIN {kind} KEY-----\n{text}\n-----END {kind} KEY-----\n")
        };
        let der = key.as_der().unwrap();
        fs::write(&private, pem("PRIVATE", der.as_ref())).unwrap();
        let der = key.public_key().as_der().unwrap();
        fs::write(&public, pem("PUBLIC", der.as_ref())).unwrap();
        let hash = "bf7a49a846d44b454a5d11e7acfaf13d138bbe0b7483aa3e050879700572709b";
        fs::write(&users, format!("mario,{hash}\n")).unwrap();

        let who = |password: &str| UserCredentials {
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

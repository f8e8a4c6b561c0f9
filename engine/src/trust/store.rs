//! `trust.toml`: whom this host trusts with what, and the invitations that are open.
//!
//! Every change is made under a lock and replaces the file as a whole, so that several processes
//! may write and a reader sees one state or the other.

use super::files::{self, lock, replace};
use crate::prelude::*;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::time::SystemTime;

/// Trusted hosts and open invitations.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrustFile {
    /// The trusted hosts.
    #[serde(rename = "host")]
    pub hosts: Vec<TrustEntry>,
    /// The open invitations.
    #[serde(rename = "invitation")]
    pub invitations: Vec<PendingInvitation>,
}

/// A trusted host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrustEntry {
    /// Its key's id.
    pub id: NodeId,
    /// What people call it.
    pub name: String,
    /// Where it serves, `name[:port]`: whoever answers there must have this key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// What it may do here.
    #[serde(default)]
    pub rights: BTreeSet<Right>,
    /// How much of it.
    #[serde(default)]
    pub limits: KeyLimits,
}

impl TrustEntry {
    /// Whether the host may do this besides measuring, or how to allow it.
    pub fn may(&self, right: Right, what: &str, option: &str) -> Result<(), String> {
        match self.rights.contains(&right) {
            true => Ok(()),
            false => Err(format!(
                "this host may measure there, not {what}: run 'linerate trust add {} {option}' there",
                self.id
            )),
        }
    }
}

/// What another host may do here.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
pub enum Right {
    /// Measure towards and from this host
    Measure,
    /// Change this host's settings, if 'linerate serve --allow-tune' runs
    Tune,
    /// Have copies read and write files of this host, if 'linerate serve --allow-files DIR' runs
    Files,
    /// Have this host measure towards others, if 'linerate serve --allow-direct' runs
    Direct,
}

/// How much another host may measure here; `None` is unlimited (a leg lasts a day at most).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KeyLimits {
    /// Highest rate of all legs together, both directions in one.
    #[serde(rename = "rate_bit_s", skip_serializing_if = "Option::is_none")]
    pub rate: Option<BitRate>,
    /// Data connections of all legs at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<u32>,
    /// Longest leg in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
    /// Bytes in both directions from midnight to midnight, UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_day: Option<Bytes>,
}

impl KeyLimits {
    /// The longest leg.
    pub fn longest(&self) -> Option<Nanos> {
        self.seconds.map(Nanos::from_secs)
    }
}

impl fmt::Display for KeyLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = self.rate.map(|rate| rate.to_string());
        let seconds = self.seconds.map(|s| format!("{s} s a leg"));
        let bytes = self.bytes_per_day.map(|b| format!("{b} a day"));
        let connections = self.connections.map(|n| format!("{n} connections"));
        let all = [rate, seconds, bytes, connections];
        let all: Vec<String> = all.into_iter().flatten().collect();
        match all.is_empty() {
            true => f.pad("unlimited"),
            false => f.pad(&all.join(", ")),
        }
    }
}

/// An invitation that nobody has used yet. Only a digest of its token is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PendingInvitation {
    /// SHA-256 of the token, hexadecimal.
    pub token_sha256: String,
    /// Until when, in seconds since 1970-01-01 UTC.
    pub expires_unix_s: u64,
    /// What the enrolled host will be called; its own name if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What it may do here.
    pub rights: BTreeSet<Right>,
    /// How much of it.
    #[serde(default)]
    pub limits: KeyLimits,
}

impl PendingInvitation {
    /// The digest under which a token is kept. The token is random, so the digest gives nothing
    /// away, and comparing digests in variable time leaks nothing about a token.
    pub fn digest(token: &Token) -> String {
        files::sha256(token.as_bytes())
    }
}

impl TrustFile {
    /// The entry of a key.
    pub fn host(&self, id: &NodeId) -> Option<&TrustEntry> {
        self.hosts.iter().find(|entry| entry.id == *id)
    }

    /// The entry of a key, if it may do this here.
    pub fn allowed(&self, id: &NodeId, right: Right) -> Option<&TrustEntry> {
        self.host(id).filter(|entry| entry.rights.contains(&right))
    }

    /// The entry that the user means: by name, id or the beginning of the id.
    pub fn named(&self, text: &str) -> Result<&TrustEntry> {
        let fits = |entry: &&TrustEntry| {
            entry.name == text || text.len() >= 4 && entry.id.to_string().starts_with(text)
        };
        let mut found = self.hosts.iter().filter(fits);
        match (found.next(), found.next()) {
            (Some(entry), None) => Ok(entry),
            (None, _) => bail!("no trusted host is called '{text}': see 'linerate trust list'"),
            _ => bail!("'{text}' fits more than one trusted host: give more of the id"),
        }
    }

    /// Adds a host, or replaces the entry with the same key.
    pub fn put(&mut self, entry: TrustEntry) -> Result<()> {
        let other = |e: &&TrustEntry| e.name == entry.name && e.id != entry.id;
        if let Some(other) = self.hosts.iter().find(other) {
            bail!(
                "the name '{}' belongs to the trusted host {} already: give another with --name, or remove that one",
                entry.name,
                other.id.short()
            );
        }
        match self.hosts.iter_mut().find(|e| e.id == entry.id) {
            Some(old) => *old = entry,
            None => self.hosts.push(entry),
        }
        Ok(())
    }

    /// Uses up the invitation of this token and enrols the host that showed it. A host that had
    /// an entry keeps its name and address. `None` if there is no such invitation at `now`.
    pub fn enrol(
        &mut self,
        now_unix_s: u64,
        token: &Token,
        id: NodeId,
        calls_itself: &str,
    ) -> Option<TrustEntry> {
        self.invitations.retain(|i| i.expires_unix_s > now_unix_s);
        let digest = PendingInvitation::digest(token);
        let mut open = self.invitations.iter();
        let at = open.position(|i| i.token_sha256 == digest)?;
        let invitation = self.invitations.remove(at);
        let old = self.host(&id).cloned();
        let wanted = invitation.name.unwrap_or_else(|| calls_itself.to_owned());
        let name = match &old {
            Some(old) => old.name.clone(),
            None => self.free_name(&wanted, &id),
        };
        let entry = TrustEntry {
            id,
            name,
            address: old.and_then(|old| old.address),
            rights: invitation.rights,
            limits: invitation.limits,
        };
        self.put(entry.clone()).expect("the name is free");
        Some(entry)
    }

    /// The wanted name, or with a part of the id behind it where another host has it.
    pub fn free_name(&self, wanted: &str, id: &NodeId) -> String {
        match self.hosts.iter().any(|e| e.name == wanted && e.id != *id) {
            true => format!("{wanted}-{}", id.short()),
            false => wanted.to_owned(),
        }
    }

    /// Whether an unauthenticated peer may connect to be enrolled.
    pub fn is_inviting(&self, now_unix_s: u64) -> bool {
        let mut open = self.invitations.iter();
        open.any(|i| i.expires_unix_s > now_unix_s)
    }

    /// Whether anybody may measure here or is invited to.
    pub fn expects_anybody(&self, now_unix_s: u64) -> bool {
        let may_measure = |entry: &TrustEntry| entry.rights.contains(&Right::Measure);
        self.is_inviting(now_unix_s) || self.hosts.iter().any(may_measure)
    }
}

/// The file.
#[derive(Clone, Debug)]
pub struct TrustStore {
    directory: PathBuf,
}

impl TrustStore {
    /// The store in this directory, which need not exist yet.
    pub fn new(directory: &Path) -> TrustStore {
        let directory = directory.to_owned();
        TrustStore { directory }
    }

    /// Where the file is, or will be.
    pub fn path(&self) -> PathBuf {
        self.directory.join("trust.toml")
    }

    /// The present state; nobody is trusted if there is no file.
    ///
    /// # Errors
    /// A file that cannot be read or is not what it should be: then nobody is trusted by mistake.
    pub fn load(&self) -> Result<TrustFile> {
        let path = self.path();
        match fs::read_to_string(&path) {
            Ok(text) => toml::from_str(&text)
                .with_context(|| format!("{}: not a list of trusted hosts", path.display())),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(TrustFile::default()),
            Err(e) => Err(e).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    /// Changes the state under a lock; nothing is written if `change` fails or changes nothing.
    pub fn update<T>(&self, change: impl FnOnce(&mut TrustFile) -> Result<T>) -> Result<T> {
        let cannot = || format!("cannot write {}", self.path().display());
        let _lock = lock(&self.directory).with_context(cannot)?;
        let old = self.load()?;
        let mut new = old.clone();
        let result = change(&mut new)?;
        if new != old {
            let text = toml::to_string(&new)
                .context("the list of trusted hosts cannot be written as TOML")?;
            replace(&self.path(), text.as_bytes()).with_context(cannot)?;
        }
        Ok(result)
    }

    /// Something that changes with every change of the file.
    pub fn stamp(&self) -> Option<(SystemTime, u64)> {
        use std::os::unix::fs::MetadataExt;
        let file = fs::metadata(self.path()).ok()?;
        Some((file.modified().ok()?, file.ino()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::identity::tests::fresh;
    use super::*;
    use crate::testing::TempDir;
    use wire::control::TOKEN_LEN;

    fn entry(id: NodeId, name: &str) -> TrustEntry {
        TrustEntry {
            id,
            name: name.to_owned(),
            address: None,
            rights: BTreeSet::from([Right::Measure]),
            limits: KeyLimits {
                rate: Some(BitRate(1_000_000_000)),
                seconds: Some(60),
                connections: Some(10_000),
                ..KeyLimits::default()
            },
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let dir = TempDir::new();
        let store = TrustStore::new(&dir.path().join("made"));
        assert_eq!(store.load().unwrap(), TrustFile::default());
        let remote = entry(fresh().id(), "db2");
        store.update(|trust| trust.put(remote.clone())).unwrap();
        assert_eq!(store.load().unwrap().hosts.first(), Some(&remote));
        let trust = store.load().unwrap();
        assert_eq!(trust.named("db2").unwrap().id, remote.id);
        assert_eq!(trust.named(&remote.id.short()).unwrap().id, remote.id);
        assert!(trust.named("db").is_err());
        let text = fs::read_to_string(store.path()).unwrap();
        assert!(text.contains("rate_bit_s = 1000000000"), "{text}");
    }

    #[test]
    fn a_damaged_file_trusts_nobody_and_is_not_overwritten() {
        let dir = TempDir::new();
        let store = TrustStore::new(dir.path());
        for damage in [
            "[[host]]\nid = \"x\"",
            "hosts = 1",
            "[[host]]\nname = \"a\"",
        ] {
            fs::write(store.path(), damage).unwrap();
            assert!(store.load().is_err());
            assert!(
                store
                    .update(|trust| trust.put(entry(fresh().id(), "a")))
                    .is_err()
            );
            assert_eq!(fs::read_to_string(store.path()).unwrap(), damage);
        }
    }

    #[test]
    fn writers_at_once_lose_nothing() {
        let dir = TempDir::new();
        std::thread::scope(|scope| {
            for writer in 0..4 {
                // A store of its own each, as two processes have: the lock is the file's.
                let store = TrustStore::new(dir.path());
                scope.spawn(move || {
                    for n in 0..10 {
                        let name = format!("host-{writer}-{n}");
                        store
                            .update(|trust| trust.put(entry(fresh().id(), &name)))
                            .unwrap();
                    }
                });
            }
        });
        assert_eq!(TrustStore::new(dir.path()).load().unwrap().hosts.len(), 40);
    }

    #[test]
    fn an_invitation_is_used_once_in_its_time_and_by_its_token() {
        let token = Token::new([7; TOKEN_LEN]);
        let invitation = PendingInvitation {
            token_sha256: PendingInvitation::digest(&token),
            expires_unix_s: 100,
            name: None,
            rights: BTreeSet::from([Right::Measure]),
            limits: KeyLimits::default(),
        };
        let trust = TrustFile {
            hosts: vec![entry(fresh().id(), "laptop")],
            invitations: vec![invitation],
        };
        let newcomer = fresh().id();

        let mut late = trust.clone();
        assert!(trust.is_inviting(99) && !trust.is_inviting(100));
        assert_eq!(late.enrol(100, &token, newcomer, "laptop"), None);

        let mut wrong = trust.clone();
        let other = Token::new([8; TOKEN_LEN]);
        assert_eq!(wrong.enrol(99, &other, newcomer, "laptop"), None);
        assert_eq!(wrong.hosts.len(), 1);

        let mut right = trust;
        let enrolled = right.enrol(99, &token, newcomer, "laptop").unwrap();
        assert_eq!(enrolled.name, format!("laptop-{}", newcomer.short()));
        assert!(right.allowed(&newcomer, Right::Measure).is_some());
        assert!(right.allowed(&newcomer, Right::Tune).is_none());
        assert_eq!(right.enrol(99, &token, fresh().id(), "thief"), None);
    }
}

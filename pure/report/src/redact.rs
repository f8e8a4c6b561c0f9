//! Names and addresses taken out of a document, before it is passed on: the same original has the same replacement.
//!
//! Host names (`host-1`), user names (`user-1`) and files (`/path-1`) are learned from the members of the JSON document
//! that hold them, and replaced wherever they stand as a word. Addresses (RFC 5737, RFC 3849) and MAC addresses are known
//! by their form. Loopback and unspecified addresses, sizes, times, kernels and device names stay.

use crate::prelude::*;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Members that name a host.
const HOSTS: [&str; 2] = ["host", "hostname"];

/// Members that name a file.
const FILES: [&str; 4] = ["from", "to", "store", "file"];

/// Folders that are alike on all hosts.
const SYSTEM: [&str; 7] = [
    "/proc/", "/sys/", "/etc/", "/dev/", "/run/", "/usr/", "/lib/",
];

/// What replaces what, in all the texts of one document.
#[derive(Debug, Default)]
pub struct Redaction {
    /// By the original in lower case.
    names: BTreeMap<String, String>,
    /// How many replacements of each kind there are.
    counts: BTreeMap<&'static str, u32>,
    addresses: BTreeMap<IpAddr, IpAddr>,
    cards: BTreeMap<String, String>,
}

impl Redaction {
    /// Knows the names in a document that linerate wrote as JSON.
    pub fn of(document: &str) -> Redaction {
        let mut redaction = Redaction::default();
        if let Ok(value) = serde_json::from_str(document) {
            redaction.learn_value("", &value);
        }
        redaction
    }

    /// A document that linerate wrote as JSON, redacted. Keys stay.
    pub fn json(&mut self, document: &str) -> serde_json::Result<String> {
        let mut value = serde_json::from_str(document)?;
        self.replace_in(&mut value, false);
        Ok(crate::json::pretty(&value))
    }

    fn replace_in(&mut self, value: &mut Value, names_host: bool) {
        match value {
            // A word of its own may be one of a table of ours ("bulk", "cubic") that a host is called like.
            Value::String(text) if names_host || !text.bytes().all(|b| b.is_ascii_lowercase()) => {
                *text = self.text(text);
            }
            Value::Array(all) => all.iter_mut().for_each(|one| self.replace_in(one, false)),
            Value::Object(all) => {
                // They name a host by its key; a signature holds for the original record.
                for named in ["signed", "local_id", "remote_id"] {
                    all.remove(named);
                }
                for (key, value) in all {
                    let names = [&HOSTS[..], &FILES].concat();
                    self.replace_in(value, names.contains(&key.as_str()));
                }
            }
            _ => {}
        }
    }

    fn learn_value(&mut self, key: &str, value: &Value) {
        match value {
            Value::String(text) => self.learn(key, text),
            Value::Array(all) => all.iter().for_each(|one| self.learn_value(key, one)),
            Value::Object(all) => all.iter().for_each(|(key, one)| self.learn_value(key, one)),
            _ => {}
        }
    }

    /// Knows what a text of this name holds.
    pub fn learn(&mut self, key: &str, text: &str) {
        if HOSTS.contains(&key) {
            self.learn_host(text);
        } else if FILES.contains(&key) && text.contains(['/', '.']) {
            self.learn_file(text);
        }
        let ends = |c: char| c.is_whitespace() || "'\"(),;=<>".contains(c);
        for word in text.split(ends) {
            let path = word.trim_end_matches(['.', ':']);
            if path.starts_with('/') && path[1..].contains('/') && !path.starts_with("//") {
                self.learn_file(path);
            }
        }
    }

    /// A host as users name it: `ssh:user@name:port`, `nfs://name/export` and the like.
    fn learn_host(&mut self, text: &str) {
        let mut name = text;
        let is_plain = text.is_empty() || text.contains(char::is_whitespace);
        if is_plain || text.starts_with("lab:") || ["local", "localhost"].contains(&text) {
            return;
        }
        for scheme in ["ssh:", "iperf3:", "nfs://", "http://", "https://"] {
            name = name.strip_prefix(scheme).unwrap_or(name);
        }
        if let Some((host, path)) = name.split_once('/') {
            name = host;
            if !path.is_empty() {
                self.learn_file(&format!("/{path}"));
            }
        }
        if let Some((user, host)) = name.rsplit_once('@') {
            name = host;
            self.learn_as("user", user);
        }
        if let Some((host, port)) = name.rsplit_once(':')
            && port.bytes().all(|b| b.is_ascii_digit())
        {
            name = host;
        }
        if name.parse::<IpAddr>().is_err() && !name.contains(['[', ':']) {
            // A host calls itself by the first label of what others call it.
            let label = name.split('.').next().unwrap_or(name);
            let replacement = self.learn_as("host", label);
            self.names.insert(name.to_ascii_lowercase(), replacement);
        }
    }

    fn learn_file(&mut self, path: &str) {
        if SYSTEM.iter().any(|folder| path.starts_with(folder)) || path.parse::<IpAddr>().is_ok() {
            return;
        }
        let replacement = self.learn_as("/path", path);
        // A title has the last part alone.
        let last = path.rsplit('/').next().filter(|last| last.contains('.'));
        if let Some(last) = last.map(str::to_ascii_lowercase) {
            self.names.entry(last).or_insert(replacement);
        }
        let user = path
            .strip_prefix("/home/")
            .and_then(|p| p.split('/').next());
        if let Some(user) = user {
            self.learn_as("user", user);
        }
    }

    fn learn_as(&mut self, kind: &'static str, original: &str) -> String {
        let number = || {
            let count = self.counts.entry(kind).or_default();
            *count += 1;
            format!("{kind}-{count}")
        };
        let original = original.to_ascii_lowercase();
        self.names.entry(original).or_insert_with(number).clone()
    }

    /// A text with everything replaced.
    pub fn text(&mut self, text: &str) -> String {
        let text = self.addresses_in(text);
        let mut names: Vec<(&String, &String)> = self.names.iter().collect();
        names.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let (mut out, mut rest, mut before) = (String::with_capacity(text.len()), &*text, None);
        while let Some(first) = rest.chars().next() {
            let starts = !before.is_some_and(is_word) || !is_word(first);
            let found = names.iter().find(|(name, _)| {
                let here = rest.get(..name.len());
                starts
                    && here.is_some_and(|here| here.eq_ignore_ascii_case(name))
                    && !rest[name.len()..].chars().next().is_some_and(is_word)
            });
            let length = match found {
                Some((name, replacement)) => {
                    out.push_str(replacement);
                    name.len()
                }
                None => {
                    out.push(first);
                    first.len_utf8()
                }
            };
            before = rest[..length].chars().next_back();
            rest = &rest[length..];
        }
        out
    }

    fn addresses_in(&mut self, text: &str) -> String {
        let is_part = |c: char| c.is_ascii_hexdigit() || c == '.' || c == ':';
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let (mut out, mut rest) = (String::with_capacity(text.len()), text);
        while !rest.is_empty() {
            let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
            let is_inside = out.chars().next_back().is_some_and(is_word);
            // The scheme of a host ends with a colon.
            let end = match rest[..end].find(':') {
                Some(colon) if is_inside => colon + 1,
                _ => end,
            };
            let (run, behind) = rest.split_at(end);
            let is_bounded = !is_inside && !behind.chars().next().is_some_and(is_word);
            match is_bounded.then(|| self.address(run)).flatten() {
                Some(replaced) => out.push_str(&replaced),
                None => out.push_str(run),
            }
            let other = behind.find(is_part).unwrap_or(behind.len());
            out.push_str(&behind[..other]);
            rest = &behind[other..];
        }
        out
    }

    /// The replacement of an address with what may stand behind it: a port, the end of a sentence.
    fn address(&mut self, run: &str) -> Option<String> {
        let ends = [run.len()]
            .into_iter()
            .chain(run.rmatch_indices(['.', ':']).map(|(at, _)| at));
        for end in ends {
            let (address, behind) = run.split_at(end);
            let replaced = match address.parse() {
                Ok(ip) => Some(self.ip(ip).to_string()),
                Err(_) => self.card(address),
            };
            if let Some(replaced) = replaced {
                return Some(replaced + behind);
            }
        }
        None
    }

    pub(crate) fn ip(&mut self, ip: IpAddr) -> IpAddr {
        let plain = ip.to_canonical();
        if plain.is_loopback() || plain.is_unspecified() {
            return ip;
        }
        let kind = if plain.is_ipv4() { "v4" } else { "v6" };
        let counts = &mut self.counts;
        let new = *self.addresses.entry(plain).or_insert_with(|| {
            let count = counts.entry(kind).or_default();
            *count += 1;
            let [.., high, low] = count.to_be_bytes();
            match (plain, *count) {
                (IpAddr::V4(_), 1..255) => Ipv4Addr::new(192, 0, 2, low).into(),
                // The documentation has no more of them; these are for benchmarks (RFC 2544).
                (IpAddr::V4(_), _) => Ipv4Addr::new(198, 18, high, low).into(),
                (IpAddr::V6(_), n) => {
                    Ipv6Addr::from_bits((0x2001_0db8 << 96) | u128::from(n)).into()
                }
            }
        });
        match (ip, new) {
            (IpAddr::V6(_), IpAddr::V4(new)) => new.to_ipv6_mapped().into(),
            _ => new,
        }
    }

    fn card(&mut self, text: &str) -> Option<String> {
        let pair = |part: &str| part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit());
        if text.split(':').count() != 6 || !text.split(':').all(pair) {
            return None;
        }
        let number = self.cards.len() + 1;
        let new = format!(
            "02:00:00:00:{:02x}:{:02x}",
            number >> 8 & 0xff,
            number & 0xff
        );
        let replaced = self.cards.entry(text.to_ascii_lowercase()).or_insert(new);
        Some(replaced.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_original_has_the_same_replacement() {
        let document = r#"{"host": "ssh:alice@db2.example.net:5210", "remote": {"hostname": "db2"},
            "workload": {"from": "data/disk.img"}, "kind": "bulk",
            "why": "cannot open '/home/bob/x y': denied"}"#;
        let mut redaction = Redaction::of(document);
        for (text, redacted) in [
            ("db2, DB2.example.net and db20", "host-1, host-1 and db20"),
            ("ssh:alice@db2: alice's", "ssh:user-1@host-1: user-1's"),
            (
                "data/disk.img, /home/bob/x, bob",
                "/path-2, /path-1, user-2",
            ),
            (
                "to 10.1.2.3:5201 and 10.1.2.4.",
                "to 192.0.2.1:5201 and 192.0.2.2.",
            ),
            ("iperf3:10.1.2.3/24", "iperf3:192.0.2.1/24"),
            (
                "[fd00::7%2]:80, fd00::7: no",
                "[2001:db8::1%2]:80, 2001:db8::1: no",
            ),
            ("::ffff:10.1.2.4", "::ffff:192.0.2.2"),
            ("in disk.img", "in /path-2"),
            ("via 0A:1b:2c:3d:4e:5f", "via 02:00:00:00:00:01"),
            ("[0a:1b:2c:3d:4e:5f]", "[02:00:00:00:00:01]"),
            ("[::1]:1 of 127.0.0.1, ::", "[::1]:1 of 127.0.0.1, ::"),
            (
                "added at 12:30:05, v1.2.3.4x",
                "added at 12:30:05, v1.2.3.4x",
            ),
            ("/proc/sys/net, 3 /s", "/proc/sys/net, 3 /s"),
        ] {
            assert_eq!(redaction.text(text), redacted);
        }
        let mut many = Redaction::default();
        for n in 1..600_u32 {
            let text = many.text(&Ipv4Addr::from_bits(0x0a00_0000 + n).to_string());
            let is_new = text.starts_with("192.0.2.") == (n < 255);
            assert!(is_new && text.parse::<Ipv4Addr>().is_ok(), "{n}: {text}");
        }
        assert_eq!(many.text("10.0.0.1"), "192.0.2.1");
    }

    #[test]
    fn a_host_that_is_called_like_a_word_of_ours_breaks_no_document() {
        let document = r#"{"host":"bulk","kind":"bulk","title":"to bulk"}"#;
        let redacted = Redaction::of(document).json(document).unwrap();
        let value: Value = serde_json::from_str(&redacted).unwrap();
        assert_eq!(value["host"], "host-1");
        assert_eq!(value["kind"], "bulk");
        assert_eq!(value["title"], "to host-1");
    }
}

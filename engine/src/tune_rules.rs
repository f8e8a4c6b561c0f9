//! What of this host a key may tune: a file of root's.

use crate::prelude::*;
use anyhow::ensure;
use model::{Knob, Setting};
use serde::Deserialize;
use std::fs::File;
use std::os::unix::fs::MetadataExt;

/// Where the file is, unless an option names another.
pub const USUAL: &str = "/etc/linerate/tune.toml";

/// Longest file.
const LONGEST: u64 = 1 << 20;

/// The file, read again for each check.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Where it is.
    pub file: PathBuf,
    /// Without it nothing may be tuned; else everything.
    pub required: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListedRule {
    #[serde(default)]
    allow: Vec<Allowed>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Allowed {
    /// Of `linerate trust list`; every key that may tune, if left out.
    key: Option<String>,
    knobs: Vec<Pattern>,
    /// Of knobs of a device or a route; every one, if left out.
    interfaces: Option<Vec<String>>,
}

/// The name of a knob, or the beginning of names and a `*`.
#[derive(Deserialize)]
#[serde(try_from = "String")]
struct Pattern(String);

impl TryFrom<String> for Pattern {
    type Error = String;

    fn try_from(text: String) -> Result<Pattern, String> {
        match text.strip_suffix('*') {
            Some(begin) if begin.contains('*') => Err(format!("'{text}' has two '*'")),
            Some(_) => Ok(Pattern(text)),
            None => text.parse::<Knob>().map(|_| Pattern(text)),
        }
    }
}

impl Pattern {
    fn fits(&self, knob: &str) -> bool {
        match self.0.strip_suffix('*') {
            Some(begin) => knob.starts_with(begin),
            None => self.0 == knob,
        }
    }
}

impl Rules {
    /// Whether the file is fit to be used.
    pub fn check(&self) -> Result<()> {
        self.read().map(drop)
    }

    /// Whether the holder of `key` may apply `settings`, on the device that `interface` finds if they have one.
    ///
    /// # Errors
    /// Names the setting that it may not; or says why nothing may be applied.
    pub fn allow(
        &self,
        key: &str,
        settings: &[Setting],
        interface: impl Fn() -> Result<String>,
    ) -> Result<()> {
        let Some(listed) = self.read()? else {
            return Ok(());
        };
        let own = |one: &&Allowed| one.key.as_ref().is_none_or(|of| of == key);
        let own: Vec<&Allowed> = listed.allow.iter().filter(own).collect();
        for setting in settings {
            let knob = setting.knob.to_string();
            let names = |one: &&&Allowed| one.knobs.iter().any(|pattern| pattern.fits(&knob));
            let fit: Vec<&&Allowed> = own.iter().filter(names).collect();
            ensure!(
                !fit.is_empty(),
                "its rules do not let this host's key change {knob}: an entry in {} there allows it",
                self.file.display()
            );
            let is_of_device = matches!(setting.knob, Knob::Device(_) | Knob::Route(_));
            if !is_of_device || fit.iter().any(|one| one.interfaces.is_none()) {
                continue;
            }
            let interface = interface()?;
            let mut named = fit.iter().flat_map(|one| one.interfaces.iter().flatten());
            ensure!(
                named.any(|name| *name == interface),
                "its rules do not let this host's key change {knob} on the interface {interface}: an entry in {} there allows it",
                self.file.display()
            );
        }
        Ok(())
    }

    fn read(&self) -> Result<Option<ListedRule>> {
        let name = self.file.display();
        let file = match File::open(&self.file) {
            Err(error) if error.kind() == ErrorKind::NotFound && !self.required => return Ok(None),
            opened => opened.with_context(|| format!("cannot read the rules {name}"))?,
        };
        let found = file.metadata()?;
        if found.uid() != 0 || found.mode() & 0o022 != 0 || !found.is_file() {
            bail!(
                "the rules {name} can be written by others than root: nothing is tuned before 'chown root:root {name}; chmod 644 {name}'"
            );
        }
        let mut text = String::new();
        file.take(LONGEST).read_to_string(&mut text)?;
        let listed =
            toml::from_str(&text).with_context(|| format!("{name}: these are no rules"))?;
        Ok(Some(listed))
    }
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            file: Path::new(USUAL).to_owned(),
            required: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempDir;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, chown};

    fn rules(directory: &TempDir, text: &str) -> Rules {
        let file = directory.path().join("tune.toml");
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        Rules {
            file,
            required: true,
        }
    }

    fn refused(rules: &Rules, key: &str, settings: &[&str]) -> String {
        let settings: Vec<Setting> = settings.iter().map(|text| text.parse().unwrap()).collect();
        let allowed = rules.allow(key, &settings, || Ok("eth1".to_owned()));
        allowed
            .err()
            .map_or(String::new(), |error| format!("{error:#}"))
    }

    #[test]
    fn a_key_may_change_the_knobs_and_interfaces_of_its_entries() {
        let directory = TempDir::new();
        let rules = rules(
            &directory,
            r#"
            [[allow]]
            knobs = ["route.initcwnd", "sysctl:net.ipv4.tcp_notsent*"]
            interfaces = ["eth1"]
            [[allow]]
            key = "db2"
            knobs = ["device.*"]
            interfaces = ["eth0", "eth2"]
            "#,
        );
        for (key, settings, why) in [
            (
                "any",
                &[
                    "route.initcwnd=32",
                    "sysctl:net.ipv4.tcp_notsent_lowat=131072",
                ][..],
                "",
            ),
            (
                "any",
                &["route.initcwnd=32", "route.initrwnd=32"],
                "change route.initrwnd: ",
            ),
            ("any", &["device.mtu=1400"], "change device.mtu: "),
            (
                "db2",
                &["device.mtu=1400"],
                "change device.mtu on the interface eth1: ",
            ),
            ("db2", &["route.initcwnd=32"], ""),
        ] {
            let said = refused(&rules, key, settings);
            assert!(
                said.contains(why) && said.is_empty() == why.is_empty(),
                "{said}"
            );
        }
    }

    #[test]
    fn a_file_that_others_can_write_or_that_is_none_allows_nothing() {
        let directory = TempDir::new();
        let good = rules(&directory, "allow = []");
        assert!(refused(&good, "any", &["device.mtu=1400"]).contains("change device.mtu"));
        for mode in [0o664, 0o646] {
            fs::set_permissions(&good.file, fs::Permissions::from_mode(mode)).unwrap();
            assert!(refused(&good, "any", &[]).contains("others than root"));
        }
        fs::set_permissions(&good.file, fs::Permissions::from_mode(0o644)).unwrap();
        if chown(&good.file, Some(65534), None).is_ok() {
            assert!(refused(&good, "any", &[]).contains("others than root"));
            chown(&good.file, Some(0), None).unwrap();
        }
        for text in [
            "allow = [{}]",
            "[[allow]]\nknobs = [\"exec\"]",
            "[[allow]]\nknob = []",
            "x",
        ] {
            let bad = rules(&directory, text);
            assert!(refused(&bad, "any", &[]).contains("no rules"), "{text}");
        }
        fs::remove_file(&good.file).unwrap();
        assert!(refused(&good, "any", &[]).contains("cannot read the rules"));
        let usual = Rules {
            required: false,
            ..good
        };
        assert_eq!(refused(&usual, "any", &["device.mtu=1400"]), "");
    }
}

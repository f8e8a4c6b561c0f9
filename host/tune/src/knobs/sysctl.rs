//! A sysctl, saved and restored as the text that the kernel shows.

use super::{Image, KnobFailure, Part, from_image, refuse};
use crate::prelude::*;
use model::{Scope, SysctlKey};
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Sysctl {
    pub key: String,
}

impl Sysctl {
    pub fn of(key: SysctlKey) -> Sysctl {
        Sysctl {
            key: key.name().to_owned(),
        }
    }

    fn row(&self) -> Result<SysctlKey, KnobFailure> {
        self.key.parse().map_err(KnobFailure::Words)
    }

    /// The files that writing this one changes, itself first: making a congestion control the default
    /// allows it to every user as well (`tcp_set_default_congestion_control`).
    fn files(&self) -> Vec<&str> {
        let mut files = vec![self.key.as_str()];
        if self.key == "net.ipv4.tcp_congestion_control" {
            let other = "net.ipv4.tcp_allowed_congestion_control";
            // A child namespace only shows it, and cannot change it either.
            files.extend((!is_read_only(other)).then_some(other));
        }
        files
    }

    fn cannot(&self, error: &io::Error) -> KnobFailure {
        let elsewhere = self.row().is_ok_and(|key| key.scope() == Scope::Host);
        let words = match error.raw_os_error() {
            Some(libc::ENOENT) if elsewhere && !self.is_there() => {
                "this network namespace does not have it: it is of the whole machine, so set it outside"
            }
            Some(libc::ENOENT) if !self.is_there() => "this kernel has no such sysctl",
            Some(libc::ENOENT) => "this kernel does not know the name",
            Some(libc::EINVAL) => "this kernel does not take the value",
            Some(libc::EROFS) => "/proc/sys can only be read here, as in most containers",
            Some(libc::EACCES | libc::EPERM) if is_read_only(&self.key) => {
                "it can only be read in this network namespace: it is of the whole machine, so set it outside"
            }
            Some(libc::EPERM) if self.key.ends_with("congestion_control") => {
                "this network namespace allows only what net.ipv4.tcp_allowed_congestion_control names; \
                 route.congctl does not ask"
            }
            other => return io::Error::from_raw_os_error(other.unwrap_or(libc::EIO)).into(),
        };
        KnobFailure::Words(words.to_owned())
    }

    fn is_there(&self) -> bool {
        path(&self.key).exists()
    }
}

fn is_read_only(key: &str) -> bool {
    fs::metadata(path(key)).is_ok_and(|m| m.permissions().mode() & 0o222 == 0)
}

fn path(key: &str) -> PathBuf {
    PathBuf::from("/proc/sys").join(key.replace('.', "/"))
}

/// In one write: the kernel takes each as a whole value.
fn write(key: &str, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(path(key))?;
    file.write_all(text.as_bytes())
}

impl Part for Sysctl {
    fn read(&self, _: &mut Kernel) -> Result<Image, KnobFailure> {
        let mut texts = serde_json::Map::new();
        for key in self.files() {
            let text = fs::read_to_string(path(key)).map_err(|e| self.cannot(&e))?;
            texts.insert(key.to_owned(), text.into());
        }
        Ok(texts.into())
    }

    fn plan(&self, _: &mut Kernel, _: &Setting, _: &Image) -> Result<(), KnobFailure> {
        // Opened and not written: nothing changes.
        let opened = OpenOptions::new().write(true).open(path(&self.key));
        opened.map(drop).map_err(|e| self.cannot(&e))
    }

    fn apply(&self, _: &mut Kernel, setting: &Setting) -> Result<(), KnobFailure> {
        write(&self.key, &setting.value.plain()).map_err(|e| self.cannot(&e))
    }

    fn found(&self, _: &mut Kernel) -> Result<Option<Value>, KnobFailure> {
        let text = fs::read_to_string(path(&self.key)).map_err(|e| self.cannot(&e))?;
        Ok(Some(self.row()?.value_in(&text)))
    }

    fn restore(&self, _: &mut Kernel, before: &Image) -> Result<(), KnobFailure> {
        let before: BTreeMap<String, String> = from_image(before, "its former text")?;
        // Only what this table of files names is ever written, whatever the journal says.
        for key in self.files() {
            let Some(text) = before.get(key) else {
                return refuse(format!("the journal has no former value of {key}"));
            };
            if fs::read_to_string(path(key)).is_ok_and(|now| now == *text) {
                continue;
            }
            write(key, text).map_err(|e| self.cannot(&e))?;
            step("sysctl restored");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_refuses_has_its_reason() {
        let words = |key: &str, errno: i32| {
            let sysctl = Sysctl {
                key: key.to_owned(),
            };
            match sysctl.cannot(&io::Error::from_raw_os_error(errno)) {
                KnobFailure::Words(words) => words,
                KnobFailure::Forbidden | KnobFailure::Gone => "passed on".to_owned(),
            }
        };
        let cubic = "net.ipv4.tcp_congestion_control";
        for (key, errno, part) in [
            (
                "net.ipv4.tcp_none",
                libc::ENOENT,
                "this kernel has no such sysctl",
            ),
            (cubic, libc::ENOENT, "this kernel does not know the name"),
            (cubic, libc::EINVAL, "this kernel does not take the value"),
            (cubic, libc::EROFS, "/proc/sys can only be read here"),
            (
                cubic,
                libc::EPERM,
                "net.ipv4.tcp_allowed_congestion_control",
            ),
            (
                "kernel.osrelease",
                libc::EPERM,
                "it can only be read in this network namespace",
            ),
            (
                "kernel.osrelease",
                libc::EACCES,
                "it can only be read in this network namespace",
            ),
            ("net.ipv4.tcp_sack", libc::EPERM, "passed on"),
            (cubic, libc::EIO, "Input/output error"),
        ] {
            let words = words(key, errno);
            assert!(words.contains(part), "{key}, {errno}: {words}");
        }
    }

    fn sysctl(key: &str) -> Sysctl {
        Sysctl {
            key: key.to_owned(),
        }
    }

    #[test]
    fn what_can_only_be_read_is_refused_before_anything_is_written() {
        let mut kernel = crate::kernel::kernel().unwrap();
        let setting: Setting = "sysctl:net.ipv4.tcp_sack=1".parse().unwrap();
        let mut plan = |key: &str| match sysctl(key).plan(&mut kernel, &setting, &Image::Null) {
            Ok(()) => String::new(),
            Err(KnobFailure::Words(why)) => why,
            Err(KnobFailure::Forbidden | KnobFailure::Gone) => "forbidden".to_owned(),
        };
        assert!(plan("kernel.osrelease").starts_with("it can only be read"));
        assert_eq!(plan("net.ipv4.tcp_none"), "this kernel has no such sysctl");
        let may = OpenOptions::new()
            .write(true)
            .open(path("net.ipv4.tcp_sack"));
        assert_eq!(plan("net.ipv4.tcp_sack").is_empty(), may.is_ok());
    }

    #[test]
    fn a_default_congestion_control_is_restored_with_those_that_are_allowed() {
        let (key, other) = (
            "net.ipv4.tcp_congestion_control",
            "net.ipv4.tcp_allowed_congestion_control",
        );
        assert_eq!(sysctl("net.ipv4.tcp_sack").files(), ["net.ipv4.tcp_sack"]);
        let is_writable = fs::metadata(path(other)).unwrap().permissions().mode() & 0o222 != 0;
        let both: &[&str] = if is_writable { &[key, other] } else { &[key] };
        assert_eq!(sysctl(key).files(), both);
        assert!(is_read_only("kernel.osrelease") && !is_read_only("net.ipv4.tcp_sack"));
        assert!(!is_read_only("net.ipv4.tcp_none"));
    }

    #[test]
    fn a_former_value_that_the_journal_lacks_is_not_guessed() {
        let mut kernel = crate::kernel::kernel().unwrap();
        let of = sysctl("net.ipv4.tcp_sack");
        let before = of.read(&mut kernel).map_err(drop).unwrap();
        // What it is already is not written.
        assert!(of.restore(&mut kernel, &before).is_ok());
        for damaged in [
            serde_json::json!({}),
            serde_json::json!({"net.ipv4.tcp_dsack": "1"}),
        ] {
            assert!(of.restore(&mut kernel, &damaged).is_err());
        }
        assert!(of.restore(&mut kernel, &Image::Null).is_err());
    }
}

//! Who else sets what a host has: others than the files of `sysctl.d(5)`.

use crate::sysctl_precedence::{assignment, beaten_by};
use model::advice::{ConfigFile, Configured, Persistent};
use model::{Knob, Setting, SysctlKey};

/// What else may set settings of this host, a sentence each.
pub fn others(host: &Configured) -> Vec<String> {
    let mut all = Vec::new();
    if let Some(profile) = host.tuned.first() {
        let name = profile.path.rsplit('/').nth(1).unwrap_or("?");
        let sets = tuned(host).into_iter();
        let sets = sets.map(|(key, value, file)| format!("{key} = {value} ({file})"));
        let what = match sets.collect::<Vec<_>>() {
            none if none.is_empty() => "none of the settings here".to_owned(),
            sets => sets.join(", "),
        };
        all.push(format!(
            "tuned is active with the profile {name}, which sets {what}; afterwards it applies the sysctl files again, unless reapply_sysctl is 0 in /etc/tuned/tuned-main.conf"
        ));
    }
    if host.network_manager {
        let words = "NetworkManager sets MTU, routes and offloads of its connections whenever a device is activated: persistent settings belong there";
        all.push(words.to_owned());
    }
    if host.cloud_init {
        let words = "cloud-init may rewrite the network configuration when the host starts";
        all.push(words.to_owned());
    }
    all
}

/// What else sets a sysctl of this file of ours, and may win over it.
pub fn contested(host: &Configured, ours: &Persistent) -> Vec<(Setting, String)> {
    let tuned = tuned(host);
    let one = |setting: &Setting| {
        let Knob::Sysctl(key) = setting.knob else {
            return None;
        };
        let later = beaten_by(&host.files, &ours.path, key.name()).map(|by| {
            format!(
                "{}:{} sets it to {} where that is read later: change it there",
                by.path, by.line, by.value
            )
        });
        let by_tuned = tuned.iter().find(|(name, ..)| name == key.name());
        let by_tuned = by_tuned.map(|(_, value, file)| {
            format!(
                "tuned sets it to {value} ({file}), and {} only afterwards: see that reapply_sysctl is not 0 in /etc/tuned/tuned-main.conf",
                ours.path
            )
        });
        Some((setting.clone(), later.or(by_tuned)?))
    };
    ours.holds.iter().filter_map(one).collect()
}

/// The sysctls that the active profile of tuned sets, each with its value and the file that names it.
fn tuned(host: &Configured) -> Vec<(String, String, String)> {
    let mut sets: Vec<(String, String, String)> = Vec::new();
    for (key, value, file) in host.tuned.iter().flat_map(tuned_sysctls) {
        // What a profile sets itself goes before what it includes.
        if sets.iter().all(|(known, ..)| *known != key) {
            sets.push((key, value, file));
        }
    }
    sets
}

/// Bytes of text that a host sends of its files: a hundred times what hosts have.
const MOST_TEXT: usize = 256 << 10;

/// The same without what does not bear on transfers: only lines that set a sysctl of linerate's table are left,
/// each on its line. This is what a host sends to its peer.
pub fn relevant(host: Configured) -> Configured {
    let mut room = MOST_TEXT;
    let mut reduced = |files: Vec<ConfigFile>| {
        let files = files.into_iter().map(|file| {
            let lines = file.text.lines().map(|line| {
                let section = line.trim_start().starts_with('[');
                let sets = assignment(line).is_some_and(|(key, _)| is_known(&key));
                if section || sets { line } else { "" }
            });
            let text: Vec<&str> = lines.collect();
            let text = text.join("\n").trim_end().to_owned();
            let fits = text.len() <= room;
            room -= if fits { text.len() } else { 0 };
            ConfigFile {
                text: if fits { text } else { String::new() },
                path: file.path,
            }
        });
        files.collect()
    };
    Configured {
        files: reduced(host.files),
        tuned: reduced(host.tuned),
        ..host
    }
}

/// A key of the table, or a pattern that could mean one.
fn is_known(key: &str) -> bool {
    key.contains('*') || key.parse::<SysctlKey>().is_ok()
}

/// What the `[sysctl]` section of a profile sets (tuned-profiles(7)); values may stand in quotes.
fn tuned_sysctls(file: &ConfigFile) -> Vec<(String, String, String)> {
    let mut inside = false;
    let mut sets = Vec::new();
    for line in file.text.lines() {
        let line = line.trim();
        if line.starts_with('[') {
            inside = line == "[sysctl]";
            continue;
        }
        let Some((key, value)) = assignment(line).filter(|_| inside) else {
            continue;
        };
        if is_known(&key) {
            let value = value.trim_matches(['"', '\'']).to_owned();
            sets.push((key, value, file.path.clone()));
        }
    }
    sets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> ConfigFile {
        ConfigFile {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    fn host() -> Configured {
        Configured {
            files: vec![file(
                "/etc/sysctl.d/9.conf",
                "# my password is secret\nkernel.panic = 1\n  net.ipv4.tcp_sack = 1\nnet.ipv4.*=1\n\n",
            )],
            tuned: vec![
                file(
                    "/usr/lib/tuned/profiles/network-throughput/tuned.conf",
                    "[main]\ninclude=x\n[sysctl]\nnet.ipv4.tcp_rmem=\"4096 131072 16777216\"\n",
                ),
                file(
                    "/usr/lib/tuned/profiles/x/tuned.conf",
                    "[sysctl]\nnet.ipv4.tcp_rmem=1 1 1\nvm.swappiness=10\n[net]\nnet.ipv4.tcp_sack=0\n",
                ),
            ],
            network_manager: true,
            cloud_init: false,
        }
    }

    #[test]
    fn other_setters_are_reported() {
        let found = others(&host());
        assert_eq!(found.len(), 2);
        assert!(
            found[0].starts_with(
                "tuned is active with the profile network-throughput, which sets net.ipv4.tcp_rmem = 4096 131072 16777216 (/usr/lib/"
            ),
            "{}",
            found[0]
        );
        assert!(!found[0].contains("tcp_sack") && !found[0].contains("1 1 1"));
        assert_eq!(others(&Configured::default()), [""; 0]);
    }

    #[test]
    fn other_setters_of_our_settings_are_reported() {
        let mut host = host();
        let settings: Vec<Setting> = [
            "tcp_rmem=4096 131072 67108864",
            "tcp_wmem=4096 16384 8388608",
            "tcp_sack=1",
        ]
        .iter()
        .map(|s| format!("sysctl:net.ipv4.{s}").parse().unwrap())
        .collect();
        let ours = crate::sysctls(&settings, &host.files, "a note").unwrap();
        assert_eq!(ours.path, "/etc/sysctl.d/90-linerate.conf");
        let found = contested(&host, &ours);
        assert!(
            found.len() == 1
                && found[0].0 == settings[0]
                && found[0]
                    .1
                    .starts_with("tuned sets it to 4096 131072 16777216 (/usr/lib/"),
            "{found:?}"
        );
        host.files
            .push(file("/etc/sysctl.conf", "\nnet.ipv4.tcp_wmem = 1 2 3"));
        let found = contested(&host, &ours);
        assert_eq!(
            found[1].1,
            "/etc/sysctl.conf:2 sets it to 1 2 3 where that is read later: change it there"
        );
    }

    #[test]
    fn a_host_sends_nothing_else_of_its_files() {
        let sent = relevant(host());
        assert_eq!(
            sent.files[0].text,
            "\n\n  net.ipv4.tcp_sack = 1\nnet.ipv4.*=1"
        );
        assert_eq!(
            sent.tuned[1].text,
            "[sysctl]\nnet.ipv4.tcp_rmem=1 1 1\n\n[net]\nnet.ipv4.tcp_sack=0"
        );
        assert_eq!(others(&sent), others(&host()));
        assert_eq!(relevant(sent.clone()), sent);
    }
}

//! What sets this host up when it starts: files that are read, never written.

use model::advice::{ConfigFile, Configured};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

/// A directory has no more files than this, and none is longer; what is beyond is not read.
const MOST_FILES: usize = 512;
const LONGEST: u64 = 256 << 10;

/// Profiles of tuned include each other no deeper.
const DEEPEST: usize = 8;

/// Reads the sysctl files in `directories` and the file `last`, the active profile of tuned, and whether
/// others set up the network. `root` is `/`, or where the host's files are to be found instead. Needs no
/// privilege; what cannot be read counts as not there.
pub fn configured(root: &Path, directories: &[&str], last: &str) -> Configured {
    let at = |path: &str| root.join(path.trim_start_matches('/'));
    let mut seen: Vec<PathBuf> = Vec::new();
    let mut files = Vec::new();
    for directory in directories {
        // /lib is often a link to /usr/lib, with the same files.
        let Ok(real) = at(directory).canonicalize() else {
            continue;
        };
        if seen.contains(&real) {
            continue;
        }
        let entries = fs::read_dir(&real).into_iter().flatten().flatten();
        let names = entries.take(MOST_FILES).map(|e| e.file_name());
        let names = names.filter_map(|name| name.into_string().ok());
        files.extend(
            names
                .filter(|name| name.ends_with(".conf"))
                .filter_map(|name| read(root, &format!("{directory}/{name}"))),
        );
        seen.push(real);
    }
    files.extend(read(root, last));
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Configured {
        files,
        tuned: tuned(root),
        network_manager: at("/run/NetworkManager").is_dir(),
        cloud_init: at("/run/cloud-init").is_dir(),
    }
}

fn read(root: &Path, path: &str) -> Option<ConfigFile> {
    let file = root.join(path.trim_start_matches('/'));
    // A link to /dev/null hides the files of that name: it is there, and empty.
    let metadata = fs::metadata(&file).ok()?;
    let mut bytes = Vec::new();
    if metadata.is_file() {
        let mut taken = File::open(&file).ok()?.take(LONGEST);
        taken.read_to_end(&mut bytes).ok()?;
    }
    Some(ConfigFile {
        path: path.to_owned(),
        text: String::from_utf8_lossy(&bytes).into_owned(),
    })
}

/// The active profile and those that it includes, itself first.
fn tuned(root: &Path) -> Vec<ConfigFile> {
    const PLACES: [&str; 4] = [
        "/etc/tuned/profiles",
        "/etc/tuned",
        "/usr/lib/tuned/profiles",
        "/usr/lib/tuned",
    ];
    let active = read(root, "/etc/tuned/active_profile").map(|file| file.text);
    let mut names: Vec<String> = active
        .unwrap_or_default()
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    let mut found: Vec<ConfigFile> = Vec::new();
    while let (Some(name), true) = (names.pop(), found.len() < DEEPEST) {
        let file = PLACES
            .iter()
            // A profile is named, not pathed.
            .filter(|_| !name.contains('/'))
            .find_map(|place| read(root, &format!("{place}/{name}/tuned.conf")));
        let Some(file) = file.filter(|f| found.iter().all(|other| other.path != f.path)) else {
            continue;
        };
        let includes = file.text.lines().filter_map(|line| {
            let (key, value) = line.split_once('=')?;
            (key.trim() == "include").then(|| value.trim().to_owned())
        });
        for include in includes {
            names.extend(include.split([',', ' ']).map(str::to_owned));
        }
        found.push(file);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn files_are_found_once_and_links_to_nothing_are_empty() {
        let root = std::env::temp_dir().join(format!("linerate-configured-{}", std::process::id()));
        let put = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("usr/lib/sysctl.d/50-a.conf", "a=1");
        put("etc/sysctl.d/60-b.conf", "b=1");
        put("etc/sysctl.d/README", "no");
        put("etc/sysctl.conf", "c=1");
        put("etc/tuned/active_profile", "throughput\n");
        put(
            "usr/lib/tuned/profiles/throughput/tuned.conf",
            "[main]\ninclude = base\n",
        );
        put(
            "etc/tuned/base/tuned.conf",
            "[sysctl]\ninclude=throughput\n",
        );
        fs::create_dir_all(root.join("run/cloud-init")).unwrap();
        symlink("usr/lib", root.join("lib")).unwrap();
        symlink("/dev/null", root.join("etc/sysctl.d/50-a.conf")).unwrap();
        let directories = [
            "/etc/sysctl.d",
            "/run/sysctl.d",
            "/usr/lib/sysctl.d",
            "/lib/sysctl.d",
        ];
        let found = configured(&root, &directories, "/etc/sysctl.conf");
        fs::remove_dir_all(&root).unwrap();
        let files: Vec<(&str, &str)> = found
            .files
            .iter()
            .map(|f| (f.path.as_str(), f.text.as_str()))
            .collect();
        assert_eq!(
            files,
            [
                ("/etc/sysctl.conf", "c=1"),
                ("/etc/sysctl.d/50-a.conf", ""),
                ("/etc/sysctl.d/60-b.conf", "b=1"),
                ("/usr/lib/sysctl.d/50-a.conf", "a=1"),
            ]
        );
        let tuned: Vec<&str> = found.tuned.iter().map(|f| f.path.as_str()).collect();
        assert_eq!(
            tuned,
            [
                "/usr/lib/tuned/profiles/throughput/tuned.conf",
                "/etc/tuned/base/tuned.conf"
            ]
        );
        assert!(found.cloud_init && !found.network_manager);
    }
}

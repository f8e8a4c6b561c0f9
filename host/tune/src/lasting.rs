//! Files from which this host takes its settings when it starts: only written for what was kept, and only
//! when somebody asks for it. They name themselves, and are for their owner to remove.

use crate::Error;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The file below `/etc/systemd/network` or its like from which systemd-networkd sets a device up;
/// `None` if it does not. `root` is `/`, or where its files are to be found instead.
pub fn network_file(root: &Path, device: &str) -> Option<String> {
    let index = fs::read_to_string(format!("/sys/class/net/{device}/ifindex")).ok()?;
    // What networkd says of its links, one assignment a line (`sd_network_link_get_network_file`).
    let link = below(root, &format!("/run/systemd/netif/links/{}", index.trim()));
    let text = fs::read_to_string(link).ok()?;
    let file = text
        .lines()
        .find_map(|line| line.strip_prefix("NETWORK_FILE="))?;
    let name = Path::new(file).file_name()?.to_str()?;
    name.ends_with(".network").then(|| name.to_owned())
}

/// Writes a file of settings whole, with its directory if that is not there.
///
/// # Errors
/// [`Error::File`], with nothing written.
pub fn write(root: &Path, path: &str, text: &str) -> Result<(), Error> {
    let file = below(root, path);
    let failed = |source: io::Error| Error::File {
        path: file.clone(),
        source,
    };
    let directory = file.parent().unwrap_or(root);
    DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(directory)
        .map_err(failed)?;
    let part = file.with_extension(format!("{}.part", std::process::id()));
    let written = File::create_new(&part).and_then(|mut out| {
        out.write_all(text.as_bytes())?;
        out.sync_all()?;
        fs::rename(&part, &file)?;
        File::open(directory)?.sync_all()
    });
    if written.is_err() {
        // It may not even have been made; the first failure is the one to tell.
        let _ = fs::remove_file(&part);
    }
    written.map_err(failed)
}

fn below(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_file_is_written_whole_below_its_root_and_networkd_is_believed() {
        let root = std::env::temp_dir().join(format!("linerate-lasting-{}", std::process::id()));
        write(&root, "/etc/a/b.conf", "one\n").unwrap();
        write(&root, "/etc/a/b.conf", "two\n").unwrap();
        assert_eq!(
            fs::read_to_string(root.join("etc/a/b.conf")).unwrap(),
            "two\n"
        );
        assert_eq!(fs::read_dir(root.join("etc/a")).unwrap().count(), 1);
        assert!(write(&root, "/etc/a/b.conf/c", "").is_err());

        assert_eq!(network_file(&root, "lo"), None);
        let says = "ADMIN_STATE=configured\nNETWORK_FILE=/run/systemd/network/10-lan.network\n";
        let index = fs::read_to_string("/sys/class/net/lo/ifindex").unwrap();
        let link = format!("/run/systemd/netif/links/{}", index.trim());
        write(&root, &link, says).unwrap();
        assert_eq!(network_file(&root, "lo").as_deref(), Some("10-lan.network"));
        fs::remove_dir_all(&root).unwrap();
    }
}

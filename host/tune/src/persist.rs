//! Files from which this host takes its settings when it starts: only written for what was kept, and only
//! on request.
//!
//! Their journal outlives the boot as they do. What stood in a file is in it before the file is written, and comes
//! back with [`undo_kept`](crate::undo_kept), unless somebody else has changed the file since: then it is theirs.

use crate::Undone;
use crate::journal::{JournalPlace, Namespace, plain};
use crate::prelude::*;
use model::advice::{Manager, Persistent};
use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};

/// A larger file is none of ours.
const LARGEST: u64 = 1 << 20;

/// What sets a device up, the one that the others take their orders from first. `root` is `/`, or where its
/// files are to be found instead.
pub fn managers(root: &Path, device: &str) -> Vec<Manager> {
    let index = fs::read_to_string(format!("/sys/class/net/{device}/ifindex"));
    let index = index.unwrap_or_default();
    let said = |directory: &str| {
        let file = below(root, directory).join(index.trim());
        fs::read_to_string(file).unwrap_or_default()
    };
    // What networkd says of its links, one assignment a line (`sd_network_link_get_network_file`).
    let link = said("/run/systemd/netif/links");
    let file = link.lines().find_map(|l| l.strip_prefix("NETWORK_FILE="));
    let file = file.and_then(|file| Path::new(file).file_name()?.to_str());
    let networkd = file.filter(|name| name.ends_with(".network"));
    let networkd = networkd.map(|file| Manager::Networkd {
        file: file.to_owned(),
    });
    // What NetworkManager says of its devices; of one that it leaves alone it names no connection.
    let managed = said("/run/NetworkManager/devices");
    let managed = managed.lines().any(|l| l.starts_with("connection-uuid="));
    let network_manager = managed.then_some(Manager::NetworkManager);
    let all = [netplan(root, device), networkd, network_manager];
    all.into_iter().flatten().collect()
}

/// Where a file of netplan(5) defines the device by its name. Two levels of YAML as everybody writes it are all
/// that is looked at.
fn netplan(root: &Path, device: &str) -> Option<Manager> {
    let entries = ["/etc/netplan", "/run/netplan", "/lib/netplan"];
    let entries = entries.map(|directory| fs::read_dir(below(root, directory)));
    let files = entries.into_iter().flatten().flatten().flatten();
    let files = files.map(|entry| entry.path());
    let files = files.filter(|path| path.extension().is_some_and(|e| e == "yaml"));
    let texts = files.filter_map(|path| fs::read_to_string(path).ok());
    texts.filter_map(|text| kind_of(&text, device)).next()
}

fn kind_of(text: &str, device: &str) -> Option<Manager> {
    const KINDS: [&str; 5] = ["ethernets", "bonds", "bridges", "vlans", "wifis"];
    let keys = text
        .lines()
        .filter_map(|line| line.trim().strip_suffix(':'));
    let mut kind = None;
    for key in keys {
        if let Some(found) = KINDS.iter().find(|kind| **kind == key) {
            kind = Some(*found);
        } else if key.trim_matches(['"', '\'']) == device {
            let kind = kind?.to_owned();
            return Some(Manager::Netplan { kind });
        }
    }
    None
}

/// The former state of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Image {
    text: String,
    mode: u32,
}

/// A file that was written, as the journal keeps it.
#[derive(Debug, Serialize, Deserialize)]
struct PersistEntry {
    path: PathBuf,
    /// What the latest settings in it were kept under, and where.
    title: String,
    namespace: Namespace,
    /// What stood there before the first time; `None`: nothing.
    before: Option<Image>,
    /// All that was written, or was about to be.
    ours: Vec<Image>,
}

/// A file of settings that was written and stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PersistedFile {
    /// The file.
    pub path: PathBuf,
    /// What its settings were kept under.
    pub title: String,
}

/// Writes a file of settings whole, with its directory if that is not there. What stood in it before is kept
/// for [`undo_kept`](crate::undo_kept).
///
/// # Errors
/// [`Error::Failed`], with nothing written.
pub fn write(state: &Path, root: &Path, file: &Persistent, title: &str) -> Result<(), Error> {
    let place = JournalPlace::named(state, "files")?;
    let _alone = place.lock("change")?;
    let path = below(root, &file.path);
    let unwritten = |source| {
        let (path, end) = (
            path.display(),
            "what was kept lasts until this host reboots",
        );
        Error::Failed(format!("cannot write {path}: {source}; {end}"))
    };
    let found = image(&path).map_err(unwritten)?;
    let new = Image {
        text: file.text.clone(),
        mode: file.mode,
    };
    let mut all = load(&place)?;
    let known = all.iter().position(|entry| entry.path == path);
    // What somebody else has made of it since is theirs, and what comes back.
    let known = known.map(|at| all.remove(at));
    let known = known.filter(|entry| found.as_ref().is_none_or(|f| entry.ours.contains(f)));
    let (before, mut ours) = match known {
        Some(entry) => (entry.before, entry.ours),
        None => (found, Vec::new()),
    };
    ours.push(new.clone());
    all.push(PersistEntry {
        path: path.clone(),
        title: plain(title),
        namespace: Namespace::current()?,
        before,
        ours,
    });
    save(&place, &all)?;
    step("file written down");
    replace(&path, &new).map_err(unwritten)?;
    step("file written");
    Ok(())
}

/// The files that were written and stay.
pub fn written(state: &Path) -> Result<Vec<PersistedFile>, Error> {
    let all = load(&JournalPlace(state.join("files")))?;
    let written = |PersistEntry { path, title, .. }| PersistedFile { path, title };
    Ok(all.into_iter().map(written).collect())
}

/// Puts the files back that were written for this network namespace, the last first.
pub(crate) fn undo_written(state: &Path) -> Result<Vec<Undone>, Error> {
    if load(&JournalPlace(state.join("files")))?.is_empty() {
        return Ok(Vec::new());
    }
    let here = Namespace::current()?;
    let place = JournalPlace::named(state, "files")?;
    let _alone = place.lock("change")?;
    let mut all = load(&place)?;
    let mut undone = Vec::new();
    while let Some(at) = all.iter().rposition(|entry| entry.is_of(&here)) {
        let entry = all.remove(at);
        undone.push(restore(&entry).map_err(|source| {
            Error::not_undone(&[format!("{}: {source}", entry.path.display())])
        })?);
        step("file restored");
        save(&place, &all)?;
    }
    Ok(undone)
}

impl PersistEntry {
    /// Namespaces end with the boot: earlier entries are the machine's, whose first process knows its own.
    fn is_of(&self, here: &Namespace) -> bool {
        let first = || fs::metadata("/proc/1/ns/net").map(|ns| ns.ino());
        self.namespace == *here || (self.namespace.boot != here.boot && is_first(here, first()))
    }
}

/// Whether that is the network namespace of the first process. A process with fewer capabilities may not look there
/// (ptrace(2)); then the settings decide that only the machine's own namespace has (`net_core_table` in
/// `net/core/sysctl_net_core.c`).
fn is_first(here: &Namespace, first: io::Result<u64>) -> bool {
    match first {
        Ok(first) => first == here.inode,
        Err(_) => Path::new("/proc/sys/net/core/netdev_max_backlog").exists(),
    }
}

fn restore(entry: &PersistEntry) -> io::Result<Undone> {
    let found = image(&entry.path)?;
    let undone = |back_to: &str, note: Option<&str>| Undone {
        setting: entry.path.display().to_string(),
        back_to: back_to.to_owned(),
        note: note.map(str::to_owned),
    };
    let back_to = match entry.before {
        Some(_) => "what stood in it before",
        None => "nothing, as before",
    };
    match (&found, &entry.before) {
        (found, before) if found == before => {}
        (Some(found), _) if !entry.ours.contains(found) => {
            let why = "somebody else has changed it since";
            return Ok(undone("its current text", Some(why)));
        }
        (_, Some(before)) => replace(&entry.path, before)?,
        (_, None) => {
            fs::remove_file(&entry.path)?;
            sys::file::sync_directory(&entry.path)?;
        }
    }
    Ok(undone(back_to, None))
}

/// What stands in a file; `None` if there is none.
fn image(path: &Path) -> io::Result<Option<Image>> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    if !metadata.is_file() || metadata.len() > LARGEST {
        return Err(io::Error::other("it is no file of settings: move it away"));
    }
    Ok(Some(Image {
        text: fs::read_to_string(path)?,
        mode: metadata.permissions().mode() & 0o7777,
    }))
}

/// Puts a whole file in the place of whatever is there.
fn replace(path: &Path, image: &Image) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    let mut parents = DirBuilder::new();
    parents.recursive(true).mode(0o755).create(directory)?;
    // No directory of settings reads what begins with a dot.
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let part = directory.join(format!(".{name}.{}.part", std::process::id()));
    sys::file::replace(path, &part, image.mode, image.text.as_bytes())
}

fn load(place: &JournalPlace) -> Result<Vec<PersistEntry>, Error> {
    let path = list(place);
    match fs::read(&path) {
        Ok(text) => serde_json::from_slice(&text).map_err(|why| Error::damaged(&path, why)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(Error::journal("read", &path)(e)),
    }
}

fn save(place: &JournalPlace, all: &[PersistEntry]) -> Result<(), Error> {
    let path = list(place);
    let text = serde_json::to_string(all).expect("plain data with text keys becomes JSON");
    let image = Image { text, mode: 0o600 };
    replace(&path, &image).map_err(Error::journal("write", &path))
}

fn list(place: &JournalPlace) -> PathBuf {
    place.0.join("written")
}

fn below(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// A directory that goes with it.
    struct Root(PathBuf);

    impl Root {
        fn new(name: &str) -> Root {
            let name = format!("linerate-lasting-{name}-{}", std::process::id());
            let root = std::env::temp_dir().join(name);
            fs::create_dir(&root).unwrap();
            Root(root)
        }

        fn write(&self, path: &str, text: &str) {
            let file = Persistent {
                path: path.to_owned(),
                text: text.to_owned(),
                mode: 0o640,
                holds: Vec::new(),
            };
            write(&self.0.join("state"), &self.0, &file, text.trim()).unwrap();
        }

        fn put(&self, path: &str, text: &str) {
            let path = below(&self.0, path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn text(&self, path: &str) -> Option<String> {
            fs::read_to_string(below(&self.0, path)).ok()
        }

        fn undo(&self) -> Vec<Undone> {
            undo_written(&self.0.join("state")).unwrap()
        }
    }

    impl Drop for Root {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn what_was_written_goes_and_what_stood_there_comes_back_verbatim() {
        let root = Root::new("back");
        let (old, new) = ("/etc/a/old.conf", "/etc/b/new.conf");
        root.put(old, "as it\n was");
        let of_old = below(&root.0, old);
        fs::set_permissions(&of_old, fs::Permissions::from_mode(0o604)).unwrap();
        let before = image(&of_old).unwrap();
        for text in ["one\n", "two\n"] {
            root.write(old, text);
            root.write(new, text);
        }
        assert_eq!(root.text(old).as_deref(), Some("two\n"));
        assert_eq!(image(&of_old).unwrap().unwrap().mode, 0o640);
        assert_eq!(fs::read_dir(root.0.join("etc/b")).unwrap().count(), 1);
        let titles = written(&root.0.join("state")).unwrap();
        assert!(
            titles.len() == 2 && titles.iter().all(|w| w.title == "two"),
            "{titles:?}"
        );

        let undone = root.undo();
        assert_eq!(undone.len(), 2);
        assert_eq!(undone[0].back_to, "nothing, as before");
        assert_eq!(image(&of_old).unwrap(), before);
        assert_eq!(root.text(new), None);
        assert_eq!(
            (root.undo(), written(&root.0.join("state")).unwrap()),
            (vec![], vec![])
        );
    }

    #[test]
    fn what_somebody_else_made_of_a_file_is_theirs() {
        let root = Root::new("theirs");
        root.write("/a", "one\n");
        root.put("/a", "theirs\n");
        root.write("/b", "one\n");
        fs::remove_file(root.0.join("b")).unwrap();
        let undone = root.undo();
        assert_eq!(undone[0].note, None, "it was gone already");
        assert!(undone[1].note.as_ref().unwrap().contains("somebody else"));
        assert_eq!(root.text("/a").as_deref(), Some("theirs\n"));

        root.write("/a", "two\n");
        root.undo();
        assert_eq!(root.text("/a").as_deref(), Some("theirs\n"));
    }

    #[test]
    fn the_first_namespace_is_known_without_the_right_to_look() {
        let here = Namespace::current().unwrap();
        assert!(is_first(&here, Ok(here.inode)));
        assert!(!is_first(&here, Ok(here.inode + 1)));
        let forbidden = || Err(io::ErrorKind::PermissionDenied.into());
        if !is_first(&here, forbidden()) {
            // In a container.
            return;
        }
        let other = std::thread::spawn(move || {
            sys::namespace::unshare_net().map(|()| is_first(&here, forbidden()))
        });
        // Without the right to make one there is no other.
        assert!(!other.join().unwrap().unwrap_or(false));
    }

    #[test]
    fn what_is_no_file_of_settings_is_left_alone() {
        let root = Root::new("odd");
        root.put("/a/b", "");
        let file = |path: &str| Persistent {
            path: path.to_owned(),
            text: String::new(),
            mode: 0o644,
            holds: Vec::new(),
        };
        for path in ["/a", "/a/b/c"] {
            let error = write(&root.0.join("state"), &root.0, &file(path), "x");
            let error = error.unwrap_err().to_string();
            assert!(error.starts_with("cannot write "), "{path}: {error}");
        }
        assert_eq!(root.undo(), []);
    }

    #[test]
    fn whoever_sets_a_device_up_is_found() {
        let root = Root::new("managers");
        assert_eq!(managers(&root.0, "lo"), []);
        let index = fs::read_to_string("/sys/class/net/lo/ifindex").unwrap();
        let index = index.trim();
        let nm = format!("/run/NetworkManager/devices/{index}");
        root.put(&nm, "[device]\nmanaged=unmanaged\n");
        assert_eq!(managers(&root.0, "lo"), []);
        root.put(&nm, "[device]\nmanaged=managed\nconnection-uuid=1b0c\n");
        let link = format!("/run/systemd/netif/links/{index}");
        root.put(
            &link,
            "ADMIN_STATE=configured\nNETWORK_FILE=/run/systemd/network/10-lan.network\n",
        );
        root.put("/etc/netplan/01.yaml", "network:\n  version: 2\n  ethernets:\n    eth0: {}\n  bridges:\n    \"lo\":\n      mtu: 1\n");
        let kind = "bridges".to_owned();
        let file = "10-lan.network".to_owned();
        assert_eq!(
            managers(&root.0, "lo"),
            [
                Manager::Netplan { kind },
                Manager::Networkd { file },
                Manager::NetworkManager
            ]
        );
        assert!(managers(&root.0, "lo/../eth0").len() < 3);
    }

    #[test]
    fn a_file_of_settings_is_a_mebibyte_at_most() {
        let root = Root::new("large");
        let is_read = |size: usize| {
            root.put("/a", &"x".repeat(size));
            image(&root.0.join("a"))
                .map(|found| found.unwrap().text.len())
                .map_err(drop)
        };
        assert_eq!(
            [is_read(1 << 20), is_read((1 << 20) + 1)],
            [Ok(1 << 20), Err(())]
        );
        assert_eq!(image(&root.0.join("none")).unwrap(), None);
        assert!(image(&root.0).is_err(), "a directory");
    }

    #[test]
    fn netplan_names_the_kind_above_the_device() {
        let of = |text: &str| match kind_of(text, "eth0") {
            Some(Manager::Netplan { kind }) => Some(kind),
            _ => None,
        };
        assert_eq!(
            of("network:\n  ethernets:\n    eth1:\n    eth0:\n").as_deref(),
            Some("ethernets")
        );
        assert_eq!(
            of("network:\n  ethernets:\n    a:\n  bonds:\n    'eth0':\n").as_deref(),
            Some("bonds")
        );
        assert_eq!(
            of("network:\n  eth0:\n  ethernets:\n"),
            None,
            "above any kind"
        );
        assert_eq!(of("network:\n  ethernets:\n    eth01:\n"), None);
    }

    #[test]
    fn an_entry_is_of_its_namespace_or_after_a_reboot_of_the_machines() {
        let here = Namespace::current().unwrap();
        let of = |boot: &str, inode| {
            let namespace = Namespace {
                boot: boot.to_owned(),
                inode,
                ..here.clone()
            };
            let entry = PersistEntry {
                path: PathBuf::new(),
                title: String::new(),
                namespace,
                before: None,
                ours: Vec::new(),
            };
            entry.is_of(&here)
        };
        assert!(of(&here.boot, here.inode));
        assert!(!of(&here.boot, here.inode + 1));
        let first = fs::metadata("/proc/1/ns/net").map(|ns| ns.ino());
        let is_machines = is_first(&here, first);
        assert_eq!(of("another", here.inode), is_machines);
        assert_eq!(of("another", here.inode + 1), is_machines);
    }

    #[test]
    fn a_file_that_somebody_changed_comes_back_as_they_left_it() {
        let root = Root::new("again");
        root.put("/a", "before\n");
        root.write("/a", "one\n");
        root.put("/a", "theirs\n");
        // Written over again: theirs is what stood there before.
        root.write("/a", "two\n");
        assert_eq!(written(&root.0.join("state")).unwrap().len(), 1);
        let undone = root.undo();
        assert_eq!(undone[0].back_to, "what stood in it before");
        assert_eq!(root.text("/a").as_deref(), Some("theirs\n"));
        // Back already by somebody else's hand.
        root.write("/a", "three\n");
        root.put("/a", "theirs\n");
        assert_eq!(root.undo()[0].note, None);
    }
}

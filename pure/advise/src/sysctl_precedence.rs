//! Which of the files that set a sysctl at the start of a host wins.

use model::advice::{ConfigFile, Setter};
use model::segment::is_like;

/// Where `sysctl.d(5)` looks. A file hides those of the same name in later directories; what is left is
/// applied in the order of the names, whatever the directory, and the last to set a key wins.
pub const DIRECTORIES: [&str; 5] = [
    "/etc/sysctl.d",
    "/run/sysctl.d",
    "/usr/local/lib/sysctl.d",
    "/usr/lib/sysctl.d",
    "/lib/sysctl.d",
];

/// `sysctl --system` of procps reads it last; systemd only where a link in `/etc/sysctl.d` leads to it.
pub const LAST: &str = "/etc/sysctl.conf";

/// The lines that set this key, in the order in which they are applied: the last one wins.
pub fn setters(files: &[ConfigFile], key: &str) -> Vec<Setter> {
    let lines = in_order(files).into_iter().flat_map(|file| {
        let lines = file.text.lines().zip(1..);
        lines.filter_map(move |(text, line)| {
            let (set, value) = assignment(text)?;
            covers(&set, key).then(|| Setter {
                path: file.path.clone(),
                line,
                value,
            })
        })
    });
    lines.collect()
}

/// The line that would win over a line of `path` that sets this key; `None` if nothing does.
pub fn beaten_by(files: &[ConfigFile], path: &str, key: &str) -> Option<Setter> {
    let ours = ConfigFile {
        path: path.to_owned(),
        text: format!("{key} = ours\n"),
    };
    let others = files.iter().filter(|f| f.path != path).cloned();
    let all: Vec<ConfigFile> = others.chain([ours]).collect();
    setters(&all, key).pop().filter(|last| last.path != path)
}

/// A name for a file of ours in `/etc/sysctl.d`: behind every other that sets one of these keys.
pub fn fragment_path(files: &[ConfigFile], keys: &[&str]) -> String {
    const USUAL: &str = "/etc/sysctl.d/90-linerate.conf";
    let beaten = |path: &str| {
        let all = keys.iter();
        all.filter_map(|key| beaten_by(files, path, key))
            .any(|by| by.path != LAST)
    };
    match beaten(USUAL) {
        true => "/etc/sysctl.d/99-zz-linerate.conf".to_owned(),
        false => USUAL.to_owned(),
    }
}

fn in_order(files: &[ConfigFile]) -> Vec<&ConfigFile> {
    let place = |file: &ConfigFile| {
        let (directory, name) = file.path.rsplit_once('/')?;
        let rank = DIRECTORIES.iter().position(|d| *d == directory)?;
        Some((name.to_owned(), rank))
    };
    let all = files.iter().filter_map(|file| Some((place(file)?, file)));
    let all = all.filter(|((name, _), _)| name.ends_with(".conf"));
    let mut all: Vec<((String, usize), &ConfigFile)> = all.collect();
    all.sort_by(|(a, _), (b, _)| a.cmp(b));
    all.dedup_by(|(later, _), (first, _)| later.0 == first.0);
    let last = files.iter().filter(|file| file.path == LAST);
    all.into_iter().map(|(_, file)| file).chain(last).collect()
}

/// `key = value` of `sysctl.d(5)`: `#` and `;` begin comments, a `-` before the key says that failing is no
/// error, and slashes may stand for dots.
pub(crate) fn assignment(line: &str) -> Option<(String, String)> {
    let line = line.trim();
    if line.starts_with(['#', ';']) {
        return None;
    }
    let (key, value) = line.split_once('=')?;
    let key = key.trim();
    let key = key.strip_prefix('-').unwrap_or(key).trim_start();
    // The first of both is the separator: in net.ipv4.conf.eth0/1.x the slash is part of a name.
    let key = match key.find(['.', '/']).map(|at| &key[at..=at]) {
        Some("/") => key.replace('.', "\0").replace('/', ".").replace('\0', "/"),
        _ => key.to_owned(),
    };
    let words: Vec<&str> = value.split_whitespace().collect();
    Some((key, words.join(" ")))
}

/// Whether a key, or a pattern with `*` in the place of whole or partial names, means this one.
fn covers(set: &str, key: &str) -> bool {
    let (set, key) = (set.split('.'), key.split('.'));
    set.clone().count() == key.clone().count() && set.zip(key).all(|(p, name)| is_like(name, p))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "net.ipv4.tcp_rmem";

    fn file(path: &str, text: &str) -> ConfigFile {
        ConfigFile {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    fn order(files: &[ConfigFile]) -> Vec<String> {
        let all = setters(files, KEY).into_iter();
        all.map(|s| format!("{}:{} {}", s.path, s.line, s.value))
            .collect()
    }

    #[test]
    fn names_are_merged_over_the_directories_and_the_last_wins() {
        let files = [
            file("/usr/lib/sysctl.d/99-late.conf", "net.ipv4.tcp_rmem=1 2 3"),
            file(
                "/etc/sysctl.d/10-early.conf",
                "# x\n\n-net/ipv4/tcp_rmem =\t4  5\t6\n",
            ),
            file("/etc/sysctl.d/note.txt", "net.ipv4.tcp_rmem=7 7 7"),
            file(
                "/etc/sysctl.d/50-other.conf",
                "net.ipv4.tcp_wmem=7 7 7\n;net.ipv4.tcp_rmem=7 7 7\nnonsense\n",
            ),
        ];
        assert_eq!(
            order(&files),
            [
                "/etc/sysctl.d/10-early.conf:3 4 5 6",
                "/usr/lib/sysctl.d/99-late.conf:1 1 2 3"
            ]
        );
    }

    #[test]
    fn a_file_hides_those_of_its_name_further_down() {
        let files = [
            file("/usr/lib/sysctl.d/50-net.conf", "net.ipv4.tcp_rmem=1 1 1"),
            file("/run/sysctl.d/50-net.conf", "net.ipv4.tcp_rmem=2 2 2"),
            file("/etc/sysctl.d/50-net.conf", ""),
        ];
        assert_eq!(order(&files), [""; 0]);
        assert_eq!(order(&files[..2]), ["/run/sysctl.d/50-net.conf:1 2 2 2"]);
    }

    #[test]
    fn patterns_and_the_file_that_procps_reads_last() {
        let files = [
            file("/etc/sysctl.conf", "net.ipv4.tcp_*mem = 3 3 3"),
            file(
                "/etc/sysctl.d/99-z.conf",
                "net.ipv4.* = 2\nnet.*.tcp_rmem.x = 1\n",
            ),
        ];
        assert_eq!(
            order(&files),
            ["/etc/sysctl.d/99-z.conf:1 2", "/etc/sysctl.conf:1 3 3 3"]
        );
    }

    #[test]
    fn our_file_goes_behind_those_that_set_the_same_key() {
        let usual = "/etc/sysctl.d/90-linerate.conf";
        assert_eq!(fragment_path(&[], &[KEY]), usual);
        let late = [file(
            "/usr/lib/sysctl.d/99-sysctl.conf",
            "net.ipv4.tcp_rmem=1 2 3",
        )];
        assert_eq!(beaten_by(&late, usual, KEY).unwrap().line, 1);
        let path = fragment_path(&late, &[KEY]);
        assert_eq!(path, "/etc/sysctl.d/99-zz-linerate.conf");
        assert_eq!(beaten_by(&late, &path, KEY), None);
        assert_eq!(fragment_path(&late, &["net.ipv4.tcp_wmem"]), usual);
        // No file name sorts behind this one: it can only be reported.
        let last = [file("/etc/sysctl.conf", "net.ipv4.tcp_rmem=1 2 3")];
        assert_eq!(fragment_path(&last, &[KEY]), usual);
        assert_eq!(beaten_by(&last, usual, KEY).unwrap().path, LAST);
    }
}

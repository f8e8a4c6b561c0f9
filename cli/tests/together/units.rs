//! The units of `dist/systemd`: what systemd says of their exposure, and whether it understands them.

use crate::common::{Home, Running, free_port, run, stderr, stdout};
use std::ffi::OsString;
use std::fs;
use std::net::TcpStream;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Ten times the exposure that a unit may have at most.
const MOST: &str = "20";

fn units(extension: &str) -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dist/systemd");
    let all = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    all.filter(|path| path.extension().is_some_and(|e| e == extension))
        .collect()
}

fn analyze(args: &[&str], units: &[&Path]) -> Command {
    let mut command = Command::new("systemd-analyze");
    command.args(args).arg("--no-pager").args(units);
    command
}

#[test]
fn no_unit_is_exposed_above_two() {
    let services = units("service");
    assert!(services.len() >= 3, "{services:?}");
    for unit in &services {
        let threshold = format!("--threshold={MOST}");
        let args = ["security", "--offline=true", &threshold];
        let out = run(&mut analyze(&args, &[unit]));
        let said = stdout(&out) + &stderr(&out);
        assert!(said.contains("Overall exposure level"), "{said}");
        assert!(out.status.success(), "{said}");
        // A directive that it does not know would be left out.
        assert_eq!(stderr(&out), "", "{}", unit.display());
    }
    // The threshold is one that a unit can miss.
    let out = run(&mut analyze(
        &["security", "--offline=true", "--threshold=5"],
        &[&services[0]],
    ));
    assert!(!out.status.success());
}

#[test]
fn the_units_are_understood_and_start_the_command_as_it_is() {
    let home = Home::new();
    let program = env!("CARGO_BIN_EXE_linerate");
    let mut copies = Vec::new();
    for unit in units("service").iter().chain(&units("timer")) {
        let text = fs::read_to_string(unit).unwrap();
        let name = unit
            .file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .replace('@', "@db2");
        let copy = home.path().join(name);
        fs::write(&copy, text.replace("/usr/local/bin/linerate", program)).unwrap();
        copies.push(copy);
        // Its options are those of this version.
        for line in text
            .lines()
            .filter_map(|line| line.strip_prefix("ExecStart="))
        {
            let args = line.split(' ').skip(1).chain(["--help"]);
            let out = run(Command::new(program).args(args));
            assert!(out.status.success(), "{line}: {}", stderr(&out));
            let known = stdout(&out);
            for option in line.split(' ').filter(|arg| arg.starts_with("--")) {
                assert!(known.contains(option), "{line}: {option}");
            }
        }
    }
    let copies: Vec<&Path> = copies.iter().map(PathBuf::as_path).collect();
    let out = run(&mut analyze(&["verify", "--man=no"], &copies));
    assert_eq!((stderr(&out).as_str(), out.status.code()), ("", Some(0)));
}

/// A service manager waits until the server says that it is ready, and then connections are taken.
#[test]
fn a_manager_is_notified_when_the_port_is_bound() {
    let notifies = |args: &[&str], manager: Option<UnixDatagram>| {
        let home = Home::new();
        let port = free_port();
        let path = home.path().join("notify");
        let manager = manager.unwrap_or_else(|| UnixDatagram::bind(&path).unwrap());
        let timeout = Some(Duration::from_secs(30));
        manager.set_read_timeout(timeout).unwrap();
        let name = manager.local_addr().unwrap();
        let name = match (name.as_pathname(), name.as_abstract_name()) {
            (Some(path), _) => path.as_os_str().to_owned(),
            (_, name) => OsString::from_vec([b"@", name.unwrap()].concat()),
        };
        let mut server = home.linerate(&["serve", "--port", &port.to_string()]);
        let server = server.args(args).env("NOTIFY_SOCKET", name);
        let _server = Running(server.stderr(Stdio::null()).spawn().unwrap());
        let mut said = [0; 64];
        let length = manager.recv(&mut said).unwrap();
        assert_eq!(&said[..length], b"READY=1");
        TcpStream::connect(("127.0.0.1", port)).unwrap();
    };
    notifies(&[], None);
    let name = format!("linerate-test-{}", std::process::id());
    let name = SocketAddr::from_abstract_name(name).unwrap();
    notifies(&["--iperf3"], Some(UnixDatagram::bind_addr(&name).unwrap()));
    let home = Home::new();
    let mut server = home.linerate(&["serve", "--port", "0"]);
    let out = run(server.env("NOTIFY_SOCKET", home.path().join("nobody")));
    assert!(!out.status.success());
    assert!(stderr(&out).contains("NOTIFY_SOCKET"), "{}", stderr(&out));
}

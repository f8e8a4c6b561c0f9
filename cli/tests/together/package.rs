//! The packages, made of the command under test, installed and used; 'make dist' does the same with the static binary.

use crate::common::Home;
use std::process::Command;

#[test]
fn the_packages_are_installed_and_used() {
    let home = Home::new();
    let script = |name: &str, arguments: &[&std::ffi::OsStr]| {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
        let output = Command::new(format!("scripts/{name}"))
            .args(arguments)
            .current_dir(root)
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(output.status.success(), "{name}: {said}");
        said
    };
    let directory = home.path().as_os_str();
    script(
        "package",
        &[env!("CARGO_BIN_EXE_linerate").as_ref(), directory],
    );
    let said = script("check-package", &[directory]);
    for done in [
        "the Debian package is installed, used and removed",
        "the image runs, and names are found by the hosts file and by DNS",
    ] {
        assert!(said.contains(done), "{said}");
    }
}

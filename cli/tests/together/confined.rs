//! Files are read by a process that is cut where it takes too much, and that has no rights. What it cannot do is tested in
//! `host/sys/tests/confine.rs`.

use crate::common::{Home, run, stderr};
use std::fs;
use std::process::{Command, Output};

/// A command under limits of the shell, which hold for its reader too.
fn limited(home: &Home, limits: &str, args: &[&str]) -> Output {
    let mut command = Command::new("sh");
    let limits = format!("{limits}; exec \"$@\"");
    command.args(["-c", &limits, "sh", env!("CARGO_BIN_EXE_linerate")]);
    command.args(args);
    home.furnish(&mut command);
    run(&mut command)
}

#[test]
fn a_file_that_takes_too_much_is_cut_with_one_sentence() {
    let home = Home::new();
    // 10 million packets of no length, in 150 KB.
    let file = home.path().join("long.pcap.gz");
    let shell = format!(
        "{{ printf '\\324\\303\\262\\241\\002\\000\\004\\000\\000\\000\\000\\000\\000\\000\\000\\000\\377\\377\\000\\000\\001\\000\\000\\000'; \
        head -c 150M /dev/zero; }} | gzip -1 > {}",
        file.display()
    );
    assert!(
        run(Command::new("sh").args(["-c", &shell]))
            .status
            .success()
    );
    let name = file.to_str().unwrap();
    for args in [
        ["explain", name].as_slice(),
        &["explain", "--requests", name],
        &["diff", name, name],
        &["report", "-o", "-", name],
    ] {
        let out = limited(&home, "ulimit -t 1", args);
        let what = match args[0] {
            "diff" => format!("{name} and {name}"),
            _ => name.to_owned(),
        };
        let said = format!(
            "linerate: cannot read {what}: cut, because it took more time than a file of its size needs\n"
        );
        assert_eq!(
            (stderr(&out), out.status.code()),
            (said, Some(1)),
            "{args:?}"
        );
        assert!(out.stdout.is_empty());
    }

    let file = home.path().join("large.json");
    let run_json = format!(r#"{{"schema": 1, "host": "{}"}}"#, "x".repeat(40 << 20));
    fs::write(&file, run_json).unwrap();
    let name = file.to_str().unwrap();
    for args in [
        ["explain", name].as_slice(),
        &["report", name],
        &["runs", "import", name],
    ] {
        let out = limited(&home, "ulimit -v 150000", args);
        let said = format!(
            "linerate: cannot read {name}: cut, because it took more memory than a file of its size needs\n"
        );
        assert_eq!(
            (stderr(&out), out.status.code()),
            (said, Some(1)),
            "{args:?}"
        );
    }
}

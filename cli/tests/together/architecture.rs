//! The plan of the house, held by a test: which room may know which.

use serde_json::Value;
use std::process::Command;

const PURE: [&str; 12] = [
    "model", "tcp", "wire", "report", "emulate", "prove", "explain", "capture", "pmtud", "advise",
    "requests", "mesh",
];
const HOST: [&str; 8] = [
    "sys", "measure", "observe", "archive", "calendar", "lab", "tune", "probe",
];

/// The crates that each room depends on, read from cargo itself (test dependencies left out).
fn dependencies() -> Vec<(String, Vec<String>)> {
    let out = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version=1"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs this test, so it can be started");
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    let metadata: Value = serde_json::from_slice(&out.stdout).expect("cargo prints JSON");
    let room = |name: &Value| {
        let name = name.as_str().expect("a package has a name");
        name.strip_prefix("linerate-").unwrap_or(name).to_owned()
    };
    let shipped = |dependency: &&Value| dependency["kind"].is_null();
    let packages = metadata["packages"]
        .as_array()
        .expect("metadata lists packages");
    packages
        .iter()
        .map(|package| {
            let all = package["dependencies"]
                .as_array()
                .expect("a package lists dependencies");
            (
                room(&package["name"]),
                all.iter()
                    .filter(shipped)
                    .map(|d| {
                        d["name"]
                            .as_str()
                            .expect("a dependency has a name")
                            .to_owned()
                    })
                    .collect(),
            )
        })
        .collect()
}

/// The rooms that each room depends on.
fn rooms() -> Vec<(String, Vec<String>)> {
    let ours = |name: &String| Some(name.strip_prefix("linerate-")?.to_owned());
    let rooms = dependencies().into_iter();
    rooms
        .map(|(room, all)| (room, all.iter().filter_map(ours).collect()))
        .collect()
}

#[test]
fn two_rooms_have_sql() {
    let mut with_sql: Vec<String> = dependencies()
        .into_iter()
        .filter(|(_, all)| {
            let sql = ["rusqlite", "tokio-postgres"];
            all.iter().any(|name| sql.contains(&name.as_str()))
        })
        .map(|(room, _)| room)
        .collect();
    with_sql.sort();
    assert_eq!(with_sql, ["archive", "calendar"]);
}

#[test]
fn every_room_knows_only_whom_it_may() {
    let rooms = rooms();
    for room in PURE.iter().chain(&HOST) {
        assert!(
            rooms.iter().any(|(name, _)| name == room),
            "the room {room} is gone"
        );
    }
    for (room, known) in rooms {
        let allowed: &[&str] = match room.as_str() {
            "model" | "sys" => &[],
            // Views of one account of a connection.
            "explain" | "report" => &["model", "tcp"],
            // The formats of the messages that it reads are in wire.
            "requests" => &["model", "tcp", "wire"],
            pure if PURE.contains(&pure) => &["model"],
            "lab" => &["model", "sys", "emulate"],
            // What a packet socket sees is decoded where captures are.
            "observe" => &["model", "sys", "capture", "tcp"],
            // The legs of meshes are rows of both.
            "archive" => &["model", "sys", "calendar"],
            host if HOST.contains(&host) => &["model", "sys"],
            "engine" => &[
                "model", "wire", "capture", "explain", "report", "emulate", "sys", "measure",
                "observe", "prove", "archive", "calendar", "lab", "tune", "pmtud", "probe",
                "advise", "mesh",
            ],
            "linerate" => &[
                "engine", "model", "wire", "capture", "explain", "report", "emulate", "sys",
                "measure", "observe", "prove", "archive", "lab", "tune", "pmtud", "advise",
                "requests", "mesh",
            ],
            // Fuzzing drives the decoders of both floors.
            "fuzz" => &[
                "model", "wire", "capture", "explain", "report", "observe", "pmtud", "requests",
            ],
            other => panic!("the room {other} has no place in the plan: name it here"),
        };
        for other in known {
            assert!(
                allowed.contains(&other.as_str()),
                "{room} must not know {other}"
            );
        }
    }
}

/// Lines of a decision: context, decision, consequences. Measurements belong in bench/results.
const DECISION_LINES: usize = 40;

#[test]
fn a_decision_has_at_most_40_lines() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/decisions");
    let mut checked = 0;
    for entry in std::fs::read_dir(folder).expect("there are decisions") {
        let path = entry.expect("the folder can be listed").path();
        let text = std::fs::read_to_string(&path).expect("a decision can be read");
        let lines = text.lines().count();
        assert!(lines <= DECISION_LINES, "{}: {lines} lines", path.display());
        for part in ["## Context", "## Decision", "## Consequences"] {
            let has = text.lines().any(|line| line == part);
            assert!(has, "{}: '{part}' is missing", path.display());
        }
        checked += 1;
    }
    assert!(checked > 20, "{checked} decisions");
}

/// ARCHITECTURE.md names files by their whole path: each is there.
#[test]
fn the_map_names_files_that_exist() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let map =
        std::fs::read_to_string(root.join("ARCHITECTURE.md")).expect("the map is in the tree");
    let whole = ["pure/", "host/", "engine/", "cli/", "bpf/"];
    let named: Vec<&str> = map
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|name| whole.iter().any(|folder| name.starts_with(folder)))
        .filter(|name| !name.contains("NEW"))
        .collect();
    assert!(named.len() > 20, "{named:?}");
    for name in named {
        assert!(
            root.join(name).exists(),
            "ARCHITECTURE.md names {name}, which is not there"
        );
    }
}

//! docs/linerate.schema.json: it is what docs/json.md says, and what the commands print follows it.

use crate::common::Home;
use model::{BitRate, LegOutcome, MeshLeg, Nanos};
use std::process::Command;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

#[test]
fn the_schema_is_made_from_the_documentation() {
    let made = Command::new("scripts/json-schema")
        .current_dir(ROOT)
        .output()
        .unwrap();
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    let kept = std::fs::read(format!("{ROOT}/docs/linerate.schema.json")).unwrap();
    assert!(
        made.stdout == kept,
        "docs/linerate.schema.json is stale: run scripts/json-schema > docs/linerate.schema.json"
    );
}

#[test]
fn what_the_commands_print_follows_the_schema() {
    let home = Home::new();
    let print = |name: &str, arguments: &[&str]| {
        let output = home.linerate(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        // A verdict has an exit status of its own.
        let code = output.status.code();
        assert!(
            matches!(code, Some(0 | 10..=13)),
            "{arguments:?}: {code:?}: {said}"
        );
        std::fs::write(home.path().join(name), output.stdout).unwrap();
    };
    print(
        "run.json",
        &["measure", "local", "-t", "300ms", "-q", "--json"],
    );
    print(
        "run.requests.json",
        &[
            "measure",
            "local",
            "--workload",
            "request",
            "-t",
            "300ms",
            "-q",
            "--json",
        ],
    );
    print(
        "stream_line.jsonl",
        &["measure", "local", "-t", "300ms", "--json-stream"],
    );
    print(
        "depths.json",
        &[
            "measure",
            "local",
            "--workload",
            "blocks",
            "--depth",
            "1,4",
            "-t",
            "300ms",
            "-q",
            "--json",
        ],
    );
    print("list.json", &["runs", "list", "--json"]);
    print("explained.json", &["explain", "last", "--json"]);
    let run = home.path().join("run.json");
    print(
        "compared.json",
        &["diff", "last", run.to_str().unwrap(), "--json"],
    );
    let plan = plan_with_legs(&home);
    print("mesh_checked.json", &["mesh", "check", &plan, "--json"]);
    print("mesh_cells.json", &["mesh", "grid", &plan, "--json"]);
    print("mesh_suspects.json", &["mesh", "suspects", &plan, "--json"]);
    print(
        "physics.json",
        &[
            "model", "--block", "8k", "--rate", "1g", "--rtt", "0.2ms", "--json",
        ],
    );
    print("page.json", &["report", "last", "-f", "json", "-o", "-"]);
    print("audit_report.json", &["tune", "audit", "local", "--json"]);
    print("mtu_report.json", &["mtu", "local", "--json"]);
    let prove = [
        "prove",
        "local",
        "--change",
        "congestion=reno",
        "-t",
        "300ms",
        "--ramp",
        "0s",
        "--gap",
        "0s",
    ];
    print(
        "experiment.json",
        &[
            &prove[..],
            &["--pilot", "0", "--pairs", "6", "-q", "--json"],
        ]
        .concat(),
    );

    // Each file against the kind that its name begins with.
    let script = r##"
import glob, json, os, sys
from jsonschema import Draft202012Validator
schema = json.load(open(sys.argv[1]))
Draft202012Validator.check_schema(schema)
seen = 0
for path in sorted(glob.glob("*.json*")):
    kind = os.path.basename(path).split(".")[0]
    whole = open(path).read()
    documents = [json.loads(line) for line in whole.splitlines()] if path.endswith("l") else [json.loads(whole)]
    of_kind = Draft202012Validator({**schema, "anyOf": [{"$ref": "#/$defs/" + kind}]})
    for document in documents:
        for error in of_kind.iter_errors(document):
            sys.exit(f"{path}: {[(list(e.absolute_path), e.message[:200]) for e in error.context]}")
        if Draft202012Validator(schema).is_valid({**document, "schema": "x"} if kind == "run" else "x"):
            sys.exit(f"{path}: the schema holds nothing")
        seen += 1
print(seen)
"##;
    let schema = format!("{ROOT}/docs/linerate.schema.json");
    let check = Command::new("/usr/bin/python3")
        .args(["-c", script, &schema])
        .current_dir(home.path())
        .output()
        .unwrap();
    assert!(
        check.status.success(),
        "{}",
        String::from_utf8_lossy(&check.stderr)
    );
    let seen: usize = String::from_utf8(check.stdout)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    assert!(seen > 20, "{seen} documents");
}

/// A mesh file, and legs in the archive: what 'd' receives is low.
fn plan_with_legs(home: &Home) -> String {
    let hosts = ["a", "b", "c", "d"];
    let tables = hosts.map(|host| format!("[[host]]\nname = \"{host}\"\nagent = \"{host}\"\n"));
    let text = format!(
        "[mesh]\nname = \"m\"\n{}[[test]]\nname = \"bulk\"\nhosts = [\"*\"]\nevery = \"1d\"\ngood = \"1G\"\n",
        tables.concat()
    );
    let now = std::time::UNIX_EPOCH.elapsed().unwrap();
    let starts = Nanos(now.as_nanos() as u64);
    let pairs = hosts.iter().flat_map(|src| hosts.map(|dst| (*src, dst)));
    let pairs = pairs.filter(|(src, dst)| src != dst);
    let legs = pairs.enumerate().map(|(n, (src, dst))| {
        let outcome = match dst {
            "d" => LegOutcome::Low,
            _ => LegOutcome::Good,
        };
        let cell = ["m", "bulk", src, dst];
        MeshLeg {
            goodput: Some(BitRate(900_000_000)),
            ..MeshLeg::bare(format!("{n:032x}"), 0, cell, starts, outcome)
        }
    });
    let legs: Vec<MeshLeg> = legs.collect();
    let mut archive = archive::Archive::open(&home.path().join("runs.db")).unwrap();
    archive.store_mesh_legs(&legs, false).unwrap();
    let plan = home.path().join("mesh.toml");
    std::fs::write(&plan, text).unwrap();
    plan.to_str().unwrap().to_owned()
}

/// The JSON of a mesh has the figures of its text.
#[test]
fn a_mesh_as_json() {
    let home = Home::new();
    let plan = plan_with_legs(&home);
    let json = |arguments: &[&str]| -> serde_json::Value {
        let output = home
            .linerate(&[&["mesh"], arguments, &[&plan, "--json"]].concat())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let suspects = json(&["suspects"]);
    assert_eq!(
        (&suspects["good"], &suspects["low"]),
        (&9.into(), &3.into())
    );
    let expected = serde_json::json!([{
        "elements": [{ "kind": "receiving", "name": "d" }], "low": 3, "legs": 3
    }]);
    assert_eq!(suspects["suspects"], expected);
    let grid = json(&["grid"]);
    let cell = &grid["cells"][2];
    assert_eq!(
        (&cell["src"], &cell["dst"], &cell["leg"]["outcome"]),
        (&"a".into(), &"d".into(), &"low".into())
    );
    assert_eq!(cell["leg"]["goodput_bit_s"], 900_000_000);
    let checked = json(&["check"]);
    assert_eq!(checked["tests"][0]["pairs"], 12);
    assert_eq!(checked["hosts"][3]["name"], "d");
    assert_eq!(checked["faults"], serde_json::json!([]));
}

#[test]
fn the_recipes_of_the_documentation_run() {
    let home = Home::new();
    let save = |name: &str, arguments: &[&str]| {
        let output = home.linerate(arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        std::fs::write(home.path().join(name), output.stdout).unwrap();
    };
    save(
        "run.json",
        &["measure", "local", "-t", "300ms", "-q", "--json"],
    );
    save("list.json", &["runs", "list", "--json"]);
    save("explained.json", &["explain", "last", "--json"]);
    let plan = plan_with_legs(&home);
    save("suspects.json", &["mesh", "suspects", &plan, "--json"]);
    let document = include_str!("../../../docs/json.md");
    let recipes = document
        .lines()
        .filter_map(|line| line.strip_prefix("    jq "));
    let mut run = 0;
    for recipe in recipes {
        let output = Command::new("sh")
            .args(["-c", &format!("jq {recipe}")])
            .current_dir(home.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && !output.stdout.is_empty(),
            "jq {recipe}: {said}"
        );
        run += 1;
    }
    assert!(run >= 5, "{run} recipes");
}

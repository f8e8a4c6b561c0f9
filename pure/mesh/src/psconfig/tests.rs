use super::*;
use crate::parse_mesh;

const TEMPLATE: &str = r#"{
  "archives": { "central": { "archiver": "http", "data": { "_url": "https://archive.example/" } } },
  "addresses": {
    "a.example": { "address": "a.example", "_meta": { "display-name": "A" } },
    "b.example": { "address": "b.example", "labels": { "v6": { "address": "2001:db8::b" } } },
    "c1.example": { "address": "c1.example", "host": "c" },
    "c2.example": { "address": "c2.example", "host": "c", "lead-bind-address": "192.0.2.1" },
    "off.example": { "address": "off.example", "disabled": true }
  },
  "hosts": { "c": {} },
  "groups": {
    "all": { "type": "mesh", "addresses": [ { "name": "a.example" }, { "name": "b.example" }, { "name": "c1.example" },
             { "name": "c2.example" }, { "name": "off.example" } ] },
    "one-way": { "type": "disjoint", "unidirectional": true, "a-addresses": [ { "name": "a.example" } ],
             "b-addresses": [ { "name": "b.example", "label": "v6" }, { "name": "c1.example" } ],
             "excludes": [ { "local-address": { "name": "a.example" }, "target-addresses": [ { "name": "c1.example" } ] } ] },
    "classes": { "type": "mesh", "addresses": [ { "class": "fast" } ] },
    "alone": { "type": "list", "addresses": [ { "name": "a.example" } ] }
  },
  "tests": {
    "tcp": { "type": "throughput", "spec": { "source": "{% address[0] %}", "dest": "{% address[1] %}", "duration": "PT20S",
             "parallel": 4, "omit": "PT5S", "congestion": "bbr", "zero-copy": true } },
    "udp": { "type": "throughput", "spec": { "source": "{% address[0] %}", "dest": "{% address[1] %}", "udp": true, "bandwidth": 50000000 } },
    "drawn": { "type": "throughput", "spec": { "source": "{% address[0] %}", "duration": "{% jq .duration %}" } },
    "ping": { "type": "rtt", "spec": { "source": "{% address[0] %}", "dest": "{% address[1] %}", "count": 10, "interval": "PT0.1S" } },
    "owamp": { "type": "latency", "spec": { "source": "{% address[0] %}", "dest": "{% address[1] %}", "packet-count": 600, "ip-version": 6 } },
    "hops": { "type": "trace", "spec": {} }, "names": { "type": "dns", "spec": {} }
  },
  "schedules": { "5m": { "repeat": "PT5M" }, "4h": { "repeat": "PT4H", "slip": "PT4H", "sliprand": true }, "once": { "start": "PT1H", "repeat": "P1D" } },
  "tasks": {
    "bulk": { "group": "all", "test": "tcp", "schedule": "4h", "archives": [ "central" ], "tools": [ "iperf3" ] },
    "datagrams": { "group": "one-way", "test": "udp", "schedule": "once" },
    "ping": { "group": "all", "test": "ping", "schedule": "5m" },
    "owamp": { "group": "one-way", "test": "owamp" },
    "path": { "group": "one-way", "test": "hops", "schedule": "5m" },
    "resolve": { "group": "all", "test": "names" },
    "drawn": { "group": "all", "test": "drawn" },
    "off": { "disabled": true, "group": "all", "test": "tcp" }
  }
}"#;

#[test]
fn a_template_becomes_a_mesh_file() {
    let import = import_psconfig(TEMPLATE, "Test bed").unwrap();
    let mesh =
        parse_mesh(&import.toml, "made.toml").unwrap_or_else(|e| panic!("{e}\n{}", import.toml));
    assert_eq!(mesh.name, "test-bed");
    let host = |n: usize| (mesh.hosts[n].name.as_str(), mesh.hosts[n].agent.as_str());
    let hosts: Vec<(&str, &str)> = (0..mesh.hosts.len()).map(host).collect();
    assert_eq!(
        hosts,
        [
            ("a.example", "a.example"),
            ("b.example", "b.example"),
            ("b.example-v6", "2001:db8::b"),
            ("c1.example", "c1.example"),
            ("c2.example", "c2.example"),
        ]
    );
    let [bulk, datagrams, owamp, path, ping] = &mesh.tests[..] else {
        panic!("{}", import.toml);
    };
    // 4 addresses, of which two are of one host.
    assert_eq!(bulk.cells().len(), 4 * 3 - 2);
    assert_eq!(
        (bulk.every, bulk.time()),
        (Nanos::from_secs(4 * 3600), Nanos::from_secs(20))
    );
    assert_eq!(
        (bulk.spec.streams, bulk.spec.socket.congestion.as_deref()),
        (4, Some("bbr"))
    );
    assert_eq!(datagrams.cells(), [(0, 2)]);
    assert_eq!(datagrams.spec.workload.kind().name, "udp");
    assert_eq!(ping.cells().len(), 10);
    let light = |test: &crate::MeshTest| {
        let packets = test.light.as_ref().map(|light| light.packets);
        (packets, test.every, test.cells().len())
    };
    let five = Nanos::from_secs(300);
    let minute = Nanos::from_secs(60);
    let expected = [
        (Some(10), five, 10),
        (Some(20), minute, 1),
        (Some(20), five, 1),
    ];
    let version = owamp.spec.socket.ip_version;
    assert_eq!(version, Some(model::IpVersion::V6));
    assert_eq!([ping, owamp, path].map(light), expected);
    let groups = [("all", 5, 10), ("classes", 1, 0), ("one-way", 3, 1)];
    let groups = groups.map(|(name, addresses, pairs)| (name.to_owned(), addresses, pairs));
    assert_eq!(import.groups, groups);
    assert_eq!(import.disabled, ["off"]);
}

#[test]
fn what_is_left_out_is_named_by_its_pointer() {
    let import = import_psconfig(TEMPLATE, "m").unwrap();
    let mut pointers: Vec<&str> = import
        .left_out
        .iter()
        .map(|one| one.pointer.as_str())
        .collect();
    pointers.sort_unstable();
    assert_eq!(
        pointers,
        [
            "/addresses/c2.example/lead-bind-address",
            "/archives/central",
            "/groups/alone",
            "/groups/classes/addresses/0",
            "/schedules/once/start",
            "/tasks/bulk/archives",
            "/tasks/bulk/tools",
            "/tests/drawn/spec/duration",
            "/tests/hops/type",
            "/tests/names/type",
            "/tests/owamp/spec/packet-count",
            "/tests/ping/spec/interval",
            "/tests/tcp/spec/zero-copy",
        ]
    );
    let slash = import_psconfig(r#"{"archives": {"a/b~c": {}}}"#, "m").unwrap();
    assert_eq!(slash.left_out[0].pointer, "/archives/a~1b~0c");
    assert_eq!(slash.toml, "");
}

#[test]
fn what_is_no_template() {
    assert!(
        import_psconfig("{", "m")
            .unwrap_err()
            .starts_with("it is not JSON")
    );
    assert!(
        import_psconfig("[]", "m")
            .unwrap_err()
            .contains("no object")
    );
    // Whatever has another type than it should have is left out, and nothing fails.
    let odd = r#"{"addresses": 1, "groups": {"g": {"type": "mesh", "addresses": 3}}, "tests": {"t": {"type": "throughput", "spec": 1}},
                 "tasks": {"x": {"group": "g", "test": "t"}, "y": 3, "z": {}}}"#;
    let odd = import_psconfig(odd, "m").unwrap();
    assert_eq!(odd.toml, "");
    let pointers: Vec<&str> = odd
        .left_out
        .iter()
        .map(|one| one.pointer.as_str())
        .collect();
    assert_eq!(pointers, ["/addresses", "/groups/g", "/tasks/z"]);
}

#[test]
fn durations() {
    assert_eq!(super::seconds(Nanos::from_millis(2500)), "\"2500ms\"");
    assert_eq!(super::seconds(Nanos::from_secs(20)), "\"20s\"");
    assert_eq!(
        ["PT4H", "PT90M", "P2D", "PT61S"].map(|text| span_text(iso_duration(text).unwrap())),
        ["4h", "90m", "2d", "61s"]
    );
}

use super::*;

const WHOLE: &str = r#"
link = [{ name = "berkeley-uplink", site = "berkeley", units = 1 }]
alert = [{ test = "bulk", when = "low", times = 2, exec = ["/usr/local/bin/page"] }]
[mesh]
name = "db"
epoch = 2026-11-23T00:00:00Z
quiet = ["Mon-Fri 07:00-18:00"]
[[host]]
name = "db1"
agent = "db1.example:5210"
data = "10.1.0.1"
site = "berkeley"
bytes_a_day = "250GB"
[[host]]
name = "db2"
agent = "ssh:me@db2.example"
site = "chicago"
[[host]]
name = "db3"
agent = "db3.example"
site = "berkeley"
[[test]]
name = "bulk"
kind = "bulk"
hosts = ["*"]
time = "10s"
pairs = "all"
every = "1d"
good = "8G"
"#;

#[test]
fn the_file_of_the_manual() {
    let mesh = parse_mesh(WHOLE, "db.toml").unwrap();
    assert_eq!(mesh.name, "db");
    assert_eq!(mesh.hosts[0].bytes_a_day, Some(Bytes(250 << 30)));
    assert_eq!(mesh.hosts[1].agent, "ssh:me@db2.example");
    assert_eq!(mesh.links[0].units, 1);
    let test = &mesh.tests[0];
    assert_eq!((test.pairs, test.mutual), (PairChoice::All, true));
    assert_eq!(test.spec.directions, Directions::UpThenDown);
    assert_eq!(
        test.good,
        Some(GoodThreshold::Goodput(BitRate(8_000_000_000)))
    );
    assert_eq!(test.cells().len(), 6);
    let crossing = |pair| mesh.links_between(pair).count();
    assert_eq!(
        [crossing((0, 1)), crossing((0, 2)), crossing((1, 2))],
        [1, 0, 1]
    );
}

/// Each complaint names the file, the line, the table, the key and the value, and what is possible.
#[test]
fn complaints() {
    let host = "name = \"db2\"";
    for (old, new, expected) in [
        (
            "bytes_a_day = \"250GB\"",
            "bytes_per_day = \"250GB\"",
            "db.toml:13: [[host]]: unknown key 'bytes_per_day'; did you mean 'bytes_a_day'?",
        ),
        (
            "agent = \"db3.example\"\n",
            "",
            "db.toml:18: [[host]]: 'agent' is missing; add agent = ...",
        ),
        (
            host,
            "name = \"db1\"",
            "db.toml:15: [[host]] 'db1': name = \"db1\" is not possible; give each host its own name",
        ),
        (
            host,
            "name = \"DB 2\"",
            "db.toml:15: [[host]]: name = \"DB 2\" is not possible; write 1 to 64 of a-z 0-9 . _ -",
        ),
        (
            "ssh:me@db2.example",
            "db3.example",
            "db.toml:20: [[host]] 'db3': agent = \"db3.example\" is not possible; another host has it: one agent is one host",
        ),
        (
            "ssh:me@db2.example",
            "DB3.example:5210",
            "db.toml:20: [[host]] 'db3': agent = \"db3.example\" is not possible; another host has it: one agent is one host",
        ),
        (
            "\"250GB\"",
            "\"250 cows\"",
            "db.toml:13: [[host]] 'db1': bytes_a_day = \"250 cows\" is not possible; '250 cows' is not an amount of data (like 65536, 64K, 8M, 1.5G)",
        ),
        (
            "uplink\", site = \"berkeley\"",
            "uplink\", site = \"berkely\"",
            "db.toml:2: [[link]] 'berkeley-uplink': site = \"berkely\" is not possible; no host is there: did you mean 'berkeley'?",
        ),
        (
            "units = 1",
            "units = 0",
            "db.toml:2: [[link]] 'berkeley-uplink': units = \"0\" is not possible; 1 to 1000 are possible",
        ),
        (
            "test = \"bulk\"",
            "test = \"bulky\"",
            "db.toml:3: [[alert]]: test = \"bulky\" is not possible; did you mean 'bulk'?",
        ),
        (
            "when = \"low\"",
            "when = \"bad\"",
            "db.toml:3: [[alert]]: when = \"bad\" is not possible; write \"low\", \"failed\", \"missed\" or \"shifted\"",
        ),
        (
            "\"/usr/local/bin/page\"",
            "\"page\"",
            "db.toml:3: [[alert]]: exec has no program with its whole path; write [\"/usr/local/bin/page\", \"argument\"]; no shell is started",
        ),
        (
            "hosts = [\"*\"]",
            "hosts = [\"*\", \"db9\"]",
            "db.toml:25: [[test]] 'bulk': hosts = \"db9\" is not possible; names of hosts, \"site:NAME\" and \"*\" are possible; did you mean 'db1'?",
        ),
        (
            "hosts = [\"*\"]",
            "hosts = [\"site:oslo\"]",
            "db.toml:25: [[test]] 'bulk': hosts = \"site:oslo\" is not possible; names of hosts, \"site:NAME\" and \"*\" are possible; known here: berkeley, chicago",
        ),
        (
            "hosts = [\"*\"]",
            "from = [\"db1\"]",
            "db.toml:23: [[test]] 'bulk': which hosts is not clear; write hosts = [...], or from = [...] and to = [...]",
        ),
        (
            "hosts = [\"*\"]",
            "hosts = [\"db1\"]",
            "db.toml:23: [[test]] 'bulk': it has no pair of two hosts; name more hosts",
        ),
        (
            "kind = \"bulk\"",
            "kind = \"trace\"",
            "db.toml:24: [[test]] 'bulk': kind = \"trace\" is not possible; \"bulk\", \"request\", \"udp\", \"copy\", \"mtu\", \"light\" are possible",
        ),
        (
            "kind = \"bulk\"",
            "pace = 3.0",
            "db.toml:24: [[test]] 'bulk': 'pace' is no option of kind = \"bulk\"; leave it out; it is one of request",
        ),
        (
            "time = \"10s\"",
            "time = \"2h\"",
            "db.toml:26: [[test]] 'bulk': time = \"2h\" is not possible; 1.00 s to 1500 s are possible",
        ),
        (
            "pairs = \"all\"",
            "pairs = \"matchings:0\"",
            "db.toml:27: [[test]] 'bulk': pairs = \"matchings:0\" is not possible; write \"all\", \"sites\", or \"matchings:4\" (1 to 1000 rounds)",
        ),
        (
            "every = \"1d\"",
            "every = \"1s\"",
            "db.toml:28: [[test]] 'bulk': every = \"1s\" is not possible; 10s to 31d are possible",
        ),
        (
            "good = \"8G\"",
            "good = \"120%\"",
            "db.toml:29: [[test]] 'bulk': good = \"120%\" is not possible; 1% to 99% are possible",
        ),
        (
            "00:00:00Z",
            "00:00:00+01:00",
            "db.toml:6: [mesh]: epoch = \"2026-11-23T00:00:00+01:00\" is not possible; write a moment in UTC, from 1970: 2026-11-23T00:00:00Z",
        ),
        (
            "name = \"db\"\n",
            "name = \"db\"\ncalendar = \"postgres:hots=/run\"\n",
            "db.toml:6: [mesh]: calendar = \"postgres:hots=/run\" is not possible; write host=, port=, dbname=, user=,",
        ),
        (
            "name = \"db\"\n",
            "name = \"db\"\ncalendar = \"postgres:password=secret\"\n",
            "db.toml:6: [mesh]: calendar has a password; set the password in the environment, as PGPASSWORD",
        ),
        (
            "name = \"db\"\n",
            "name = \"db\"\ncalendar = \"mysql:\"\n",
            "is not possible; write \"sqlite\" or \"postgres:host=/run/postgresql dbname=linerate\"",
        ),
        (
            "07:00-18:00",
            "07:00-06:00",
            "db.toml:7: [mesh]: quiet = \"Mon-Fri 07:00-06:00\" is not possible; write days and times in UTC",
        ),
        (
            "[mesh]",
            "[mash]",
            "unknown key 'mash'; did you mean 'mesh'?",
        ),
        (
            "units = 1",
            "units = \"one\"",
            "db.toml:2: the file: invalid type: string \"one\"; write u32",
        ),
    ] {
        assert!(WHOLE.contains(old), "{old}");
        let error = parse_mesh(&WHOLE.replacen(old, new, 1), "db.toml")
            .expect_err(new)
            .to_string();
        assert!(error.contains(expected), "{error}\nexpected: {expected}");
    }
}

#[test]
fn cycles_are_multiples_of_the_shortest() {
    let more = "[[test]]\nname = \"r\"\nkind = \"request\"\nhosts = [\"*\"]\nevery = \"7h\"\n";
    let error = parse_mesh(&format!("{WHOLE}{more}"), "db.toml").unwrap_err();
    assert!(
        error
            .to_string()
            .contains("[[test]] 'bulk': every = \"1d\" is not possible; write a multiple of"),
        "{error}"
    );
}

#[test]
fn copies_and_the_path_mtu() {
    let in_file = |whole: &str, lines: &str| {
        let text =
            format!("{whole}[[test]]\nname = \"t\"\nhosts = [\"*\"]\nevery = \"1d\"\n{lines}\n");
        parse_mesh(&text, "db.toml").map_err(|error| error.to_string())
    };
    let with = |lines: &str| in_file(WHOLE, lines);
    let copy = "kind = \"copy\"\nfrom_file = \"in\"\nto_file = \"out\"\ncache = \"hot\"\ntime = \"20s\"\ngood = \"1G\"";
    let mesh = with(copy).unwrap();
    let test = &mesh.tests[1];
    let expected = FileCopy {
        from: Some("in".to_owned()),
        to: Some("out".to_owned()),
        cache: Cache::Hot,
        ..FileCopy::default()
    };
    assert_eq!(test.spec.workload, Workload::Copy(expected));
    assert_eq!(test.spec.directions, Directions::UpThenDown);
    assert_eq!(test.bytes_of_leg(), Some(Bytes(2_500_000_000)));
    for size in ["68", "65535"] {
        assert!(with(&format!("kind = \"mtu\"\ngood = \"{size}\"")).is_ok());
    }
    let mesh = with("kind = \"mtu\"\ngood = \"1500\"").unwrap();
    let test = &mesh.tests[1];
    assert_eq!(test.good, Some(GoodThreshold::Size(Bytes(1500))));
    assert_eq!((test.cells().len(), test.bytes_of_leg()), (6, None));
    let one_way = WHOLE.replace("hosts = [\"*\"]", "from = [\"db1\"]\nto = [\"db2\"]");
    let one_way = one_way
        .replace("kind = \"bulk\"", "kind = \"mtu\"")
        .replace("time = \"10s\"", "");
    let one_way = parse_mesh(&one_way.replace("good = \"8G\"", ""), "db.toml").unwrap();
    assert_eq!(one_way.tests[0].cells(), [(0, 1), (1, 0)]);
    let links = |count| {
        let link = |n| format!("{{ name = \"l{n}\", site = \"chicago\" }}, ");
        let links: String = (0..count).map(link).collect();
        in_file(
            &WHOLE.replace("link = [", &format!("link = [{links}")),
            copy,
        )
    };
    assert!(links(2).is_ok());
    let too_many = links(3).unwrap_err();
    assert!(
        too_many.contains("a site may have 2 links: 3, or 2 beside copies of files"),
        "{too_many}"
    );
    for (lines, expected) in [
        (
            "kind = \"copy\"\nfrom_file = \"\"",
            "from_file = \"\" is not possible; write the name of a file",
        ),
        (
            "kind = \"copy\"\ncache = \"warm\"",
            "unknown variant `warm`; write one of `cold`, `hot`, `as_is`",
        ),
        (
            "kind = \"copy\"\ndirections = \"bidir\"",
            "directions = \"bidir\" is not possible; \"up\" and \"both\" (up, then down) are possible",
        ),
        (
            "from_file = \"in\"",
            "'from_file' is no option of kind = \"bulk\"; leave it out; it is one of copy",
        ),
        (
            "kind = \"mtu\"\ntime = \"9s\"",
            "'time' is no option of kind = \"mtu\"",
        ),
        (
            "kind = \"mtu\"\ngood = \"67\"",
            "good = \"67\" is not possible; 68 to 65535 are possible",
        ),
        (
            "kind = \"mtu\"\ngood = \"64K\"",
            "good = \"64K\" is not possible; 68 to 65535 are possible",
        ),
        (
            "kind = \"mtu\"\ngood = \"8 cows\"",
            "good = \"8 cows\" is not possible",
        ),
    ] {
        let error = with(lines).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn light_probes() {
    let with = |lines: &str| {
        let table = format!("[[test]]\nname = \"l\"\nkind = \"light\"\nhosts = [\"*\"]\n{lines}\n");
        parse_mesh(&format!("{WHOLE}{table}"), "db.toml").map_err(|error| error.to_string())
    };
    let mesh = with("except = [[\"db2\", \"db1\"]]").unwrap();
    let test = &mesh.tests[1];
    assert_eq!(test.every, Nanos::from_secs(60));
    assert_eq!(test.light.as_ref().unwrap().packets, 20);
    assert_eq!(test.cells(), [(0, 1), (0, 2), (1, 2), (2, 0), (2, 1)]);
    // No multiple of the other cycle, nor it of this one.
    let test = with("every = \"7m\"\ngood = \"20ms\"\npackets = 100").unwrap();
    assert_eq!(
        test.tests[1].good,
        Some(GoodThreshold::Latency(Nanos::from_millis(20)))
    );
    for (lines, expected) in [
        (
            "packets = 0",
            "packets = \"0\" is not possible; 1 to 100 are possible",
        ),
        (
            "packets = 101",
            "packets = \"101\" is not possible; 1 to 100 are possible",
        ),
        (
            "loss = \"100%\"",
            "loss = \"100%\" is not possible; 0% to 99% are possible",
        ),
        (
            "mtu = 128",
            "mtu = \"128\" is not possible; 129 to 65535 are possible",
        ),
        ("good = \"8G\"", "good = \"8G\" is not possible"),
        (
            "time = \"1s\"",
            "'time' is no option of kind = \"light\"; leave it out; it is one of bulk, request, udp, copy",
        ),
    ] {
        let error = with(lines).expect_err(lines);
        assert!(error.contains(expected), "{error}");
    }
    let loss = WHOLE.replace("good = \"8G\"", "loss = \"1%\"");
    let error = parse_mesh(&loss, "db.toml").unwrap_err().to_string();
    assert!(
        error.contains("'loss' is no option of kind = \"bulk\""),
        "{error}"
    );
    for text in ["", "[[host]]\nname = \"db1\"\nagent = \"db1.example\"\n"] {
        let error = parse_mesh(text, "db.toml").unwrap_err().to_string();
        assert_eq!(
            error,
            "db.toml:1: the table [mesh] is missing; begin the file with [mesh] and name = ..."
        );
    }
    let error = parse_mesh(&WHOLE.replace("every = \"1d\"\n", ""), "db.toml").unwrap_err();
    assert!(
        error
            .to_string()
            .contains("'every' is missing; add every = ..."),
        "{error}"
    );
}

#[test]
fn pairs_left_out() {
    let with = |lines: &str| {
        let text = WHOLE.replace("hosts = [\"*\"]", lines);
        parse_mesh(&text, "db.toml")
            .unwrap()
            .tests
            .remove(0)
            .cells()
    };
    assert_eq!(
        with("hosts = [\"*\"]\nexcept = [[\"db2\", \"db1\"]]"),
        [(0, 2), (1, 2), (2, 0), (2, 1)]
    );
    assert_eq!(
        with("hosts = [\"*\"]\ndirections = \"up\"\nexcept = [[\"db2\", \"db1\"]]"),
        [(0, 1), (0, 2), (1, 2)]
    );
    assert_eq!(with("from = [\"db1\"]\nto = [\"*\"]"), [(0, 1), (0, 2)]);
    assert_eq!(
        with("from = [\"*\"]\nto = [\"*\"]\nexcept = [[\"db2\", \"db1\"]]"),
        [(0, 1), (0, 2), (1, 2), (2, 0), (2, 1)]
    );
    assert_eq!(
        with("from = [\"site:berkeley\"]\nto = [\"db2\"]\ndirections = \"both\""),
        [(0, 1), (1, 0), (1, 2), (2, 1)]
    );
}

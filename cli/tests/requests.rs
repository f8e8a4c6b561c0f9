//! `linerate explain --requests` on real kernels: causes that are known, and NFS by a server and a client of others,
//! with tshark's decoder as the oracle. Needs root.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{Home, Lab, Lines, Pair, Recorder, Running, alone, json, stdout};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// A trace by linerate itself, started by a command that may run it elsewhere.
fn trace(mut linerate: Command, file: PathBuf) -> Recorder {
    linerate.args([env!("CARGO_BIN_EXE_linerate"), "trace"]);
    Recorder::start(linerate, file, "tracing", " events in ")
}

fn requests(home: &Home, files: &[&Path]) -> Value {
    let mut args = vec!["explain", "--requests", "--json"];
    args.extend(files.iter().map(|file| file.to_str().unwrap()));
    let report = json(&mut home.linerate(&args));
    for call in report["calls"].as_array().unwrap() {
        let sum = |of: &str| -> u64 {
            let all = call[of].as_object().unwrap().values();
            all.map(|time| time.as_u64().unwrap()).sum()
        };
        assert_eq!(sum("parts"), sum("causes"), "{call:#}");
    }
    report
}

/// Milliseconds of a figure.
fn ms(of: &Value) -> f64 {
    of.as_u64().unwrap() as f64 / 1e6
}

/// The calls of each connection, in the order of their beginnings.
fn connections(report: &Value) -> Vec<Vec<&Value>> {
    let mut all: Vec<Vec<&Value>> = Vec::new();
    for call in report["calls"].as_array().unwrap() {
        match all
            .iter_mut()
            .find(|calls| calls[0]["client"] == call["client"])
        {
            Some(calls) => calls.push(call),
            None => all.push(vec![call]),
        }
    }
    all
}

/// When the first packet of a pcap file was captured, in microseconds.
fn first(file: &Path) -> i64 {
    let bytes = std::fs::read(file).unwrap();
    let word = |at: usize| i64::from(u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()));
    word(24) * 1_000_000 + word(28)
}

#[test]
fn causes_that_are_known_are_found_with_their_size() {
    let _alone = alone();
    // A stall of the machine in a pause of some milliseconds is a cause of its own, and no fault of the answer: what is
    // wrong with the answer is wrong each time.
    let found = (0..5).any(|_| std::panic::catch_unwind(known_causes).is_ok());
    assert!(found, "see above what was not found, five times");
}

fn known_causes() {
    let home = Home::new();
    let lab = Lab::of(&home, 1500, "delay = \"5ms\"", "delay = \"5ms\"");
    let script = home.path().join("peer.py");
    std::fs::write(&script, include_str!("common/peer.py")).unwrap();
    let script = script.to_str().unwrap();
    let in_server = |command: &str| {
        let words: Vec<&str> = command.split(' ').collect();
        let out = lab.exec("b", &words);
        assert!(out.status.success(), "{command}: {}", common::stderr(&out));
    };
    in_server("ip route change 10.77.0.0/24 dev eth0 src 10.77.0.2 initcwnd 2 congctl cubic");
    in_server("nft add table netdev t");
    in_server("nft add chain netdev t c { type filter hook ingress device eth0 priority 0; }");
    in_server("nft add rule netdev t c tcp dport 9001 ip length > 1000 numgen inc mod 3 == 1 drop");

    let place = |host: &str| format!("{}/{host}", lab.name);
    let python = |host: &str, argument: &str| {
        home.linerate(&[
            "lab",
            "exec",
            &place(host),
            "--",
            "/usr/bin/python3",
            script,
            argument,
        ])
    };
    let mut server = python("b", "serve").stdout(Stdio::piped()).spawn().unwrap();
    Lines::of(server.stdout.take().unwrap()).wait_for("ready");
    let _server = Running(server);
    let [a, b] = ["a", "b"].map(|host| {
        let tcpdump = home.linerate(&["lab", "exec", &place(host), "--", "tcpdump"]);
        Recorder::tcpdump(tcpdump, "128", home.path().join(format!("{host}.pcap")))
    });
    let exec = home.linerate(&["lab", "exec", &place("a"), "--"]);
    let trace = trace(exec, home.path().join("a.trace"));
    let out = common::run(&mut python("a", "10.77.0.2"));
    assert!(out.status.success(), "{}", common::stderr(&out));
    let [a, b, trace] = [a, b, trace].map(Recorder::end);

    let both = requests(&home, &[&a, &b]);
    // Both captures are by one clock, which they count from their first packets.
    let truth = (first(&a) - first(&b)) * 1000;
    let clocks = &both["clocks"];
    let wrong = clocks["offset_ns"].as_i64().unwrap() - truth;
    assert!(
        wrong.unsigned_abs() <= clocks["error_ns"].as_u64().unwrap(),
        "{clocks} {truth}"
    );
    let ahead = clocks["ahead_ns"].as_i64().unwrap();
    assert_eq!(ahead, wrong, "by the time of day they are one");
    assert!(
        wrong.abs() < 1_500_000,
        "the ways are equal: {clocks} {truth}"
    );
    assert!(
        clocks["drift_ppm"].as_f64().unwrap().abs() < 300.0,
        "{clocks}"
    );

    let of_trace = requests(&home, &[&trace]);
    let all = [
        ("client", requests(&home, &[&a])),
        ("trace", of_trace),
        ("both", both),
    ];
    for (who, report) in all {
        let all = connections(&report);
        let counts: Vec<usize> = all.iter().map(Vec::len).collect();
        assert_eq!(counts, [5, 6, 1, 3, 5, 5, 9], "{who}");
        // A busy machine wakes who sleeps too late, and never too early: the least is nearest to what was asked for.
        let least = |calls: &[&Value], of: &dyn Fn(&Value) -> f64| {
            calls
                .iter()
                .map(|call| of(call))
                .fold(f64::INFINITY, f64::min)
        };
        let cause = |name: &'static str| move |call: &Value| ms(&call["causes"][name]);
        // The greatest part of a sending.
        let share = |calls: &[&Value], name: &'static str| {
            let part = |call: &Value| {
                ms(&call["parts"]["call_send_ns"]) + ms(&call["parts"]["reply_send_ns"])
            };
            -least(calls, &|call| -cause(name)(call) / part(call))
        };

        let think = least(&all[0], &|call| ms(&call["parts"]["think_ns"]));
        assert!((10.0..14.0).contains(&think), "{who}: think {think} ms");

        // At first acknowledgements are not delayed.
        let nagle = &all[1][2..];
        match who {
            // Both writes are known: what came before the second was the application's, and no more than a round trip.
            "trace" => {
                let both = |call: &Value| cause("nagle_ns")(call) + cause("application_ns")(call);
                assert!((9.0..15.0).contains(&least(nagle, &both)), "{nagle:#?}");
                assert!(share(nagle, "nagle_ns") > 0.0, "{nagle:#?}");
            }
            _ => assert!(share(nagle, "nagle_ns") > 0.08, "{who} {nagle:#?}"),
        }
        // The kernel's timer, which no sleeper delays; not every acknowledgement is.
        let held = -least(nagle, &|call| -cause("delayed_ack_ns")(call));
        assert!((35.0..60.0).contains(&held), "{who}: held {held} ms");

        assert!(
            share(&all[2], "congestion_window_ns") > 0.6,
            "{who} {:#?}",
            all[2]
        );
        assert!(
            share(&all[3], "receive_window_ns") > 0.6,
            "{who} {:#?}",
            all[3]
        );

        for (n, call) in all[4].iter().enumerate() {
            let paused = cause("application_ns")(call);
            assert!(
                paused >= 9.9 + 2.0 * n as f64,
                "{who}: {paused} ms of {call:#}"
            );
            // The trace has the write itself, so nothing else can pass for the pause.
            let other = ["nagle_ns", "congestion_window_ns", "delayed_ack_ns"]
                .map(|name| cause(name)(call));
            assert!(who != "trace" || other == [0.0; 3], "{call:#}");
        }
        let paused = least(&all[5], &cause("application_ns"));
        assert!((14.0..20.0).contains(&paused), "{who}: {paused} ms");

        // What the filter dropped it dropped behind the capture there: to the client it was lost.
        if who != "both" {
            let late = all[6]
                .iter()
                .filter(|call| cause("retransmission_ns")(call) > 5.0);
            assert!((2..=5).contains(&late.count()), "{:#?}", all[6]);
        }
    }
    lab.down();
}

#[test]
fn what_tcp_d_printed_is_put_in_order_named_and_compared() {
    let home = Home::new();
    let listing = |name: &str| {
        format!(
            "{}/../fuzz/corpus/listing/{name}.txt",
            env!("CARGO_MANIFEST_DIR")
        )
    };
    // One read of 8 KiB at its server, printed processor by processor.
    let report =
        json(&mut home.linerate(&["explain", "--requests", "-J", &listing("nfs_8k_unsorted")]));
    let calls = report["calls"].as_array().unwrap().iter();
    let calls: Vec<_> = calls
        .map(|call| {
            let think = call["parts"]["think_ns"].as_u64().unwrap() / 1000;
            (call["operation"].as_str().unwrap(), think)
        })
        .collect();
    let read = [
        ("NFSv3 ACCESS", 281),
        ("NFSv3 LOOKUP", 56),
        ("NFSv3 LOOKUP", 84),
        ("NFSv3 ACCESS", 48),
        ("NFSv3 READ", 116),
    ];
    assert_eq!(calls, read);
    let explained = |name: &str| {
        let out = common::run(&mut home.linerate(&["explain", &listing(name)]));
        assert!(out.status.success(), "{}", common::stderr(&out));
        stdout(&out)
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    };
    // The rest of it waits for an acknowledgement that was delayed.
    let idle = explained("nfs_8k_unsorted");
    assert!(
        idle.contains("time before the last acknowledgement: 39.9 ms (>= 15.0 ms: delayed, nothing more to send)"),
        "{idle}"
    );
    assert!(idle.contains("were sorted by their timestamps"), "{idle}");
    for name in ["nfs_8k_cpu_order", "nfs_8k_write"] {
        let text = explained(name);
        assert!(text.contains("their order is unknown"), "{text}");
    }
    let loss = explained("nfs_slow_machine_unacked");
    assert!(
        loss.contains(
            "after the reduction: 74.9 KiB (<= 76.4 KiB: ssthresh and 3 segments: fast retransmit)"
        ),
        "{loss}"
    );
    let files = ["nfs_fast_machine", "nfs_slow_machine_unacked"].map(listing);
    let out = common::run(&mut home.linerate(&["diff", &files[0], &files[1]]));
    let diff = stdout(&out)
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    assert!(
        diff.contains("loss recovery") && diff.contains("a consequence"),
        "{diff}"
    );
}

/// nfs-ganesha in a namespace, with an export in memory and one on disk; ended with the test.
struct Nfs {
    _server: Running,
    folder: PathBuf,
}

impl Nfs {
    fn serve(home: &Home, netns: &str) -> Nfs {
        let folder = home.path().join("nfs");
        for name in ["export", "narrow", "full", "recovery"] {
            std::fs::create_dir_all(folder.join(name)).unwrap();
        }
        let here = folder.display();
        let config = format!(
            "NFS_CORE_PARAM {{ Protocols = 3,4; NFS_Port = 2049; MNT_Port = 20048; Enable_NLM = false; Enable_RQUOTA = false;
               Enable_UDP = false; mount_path_pseudo = false; fsid_device = true; }}
             NFSv4 {{ Graceless = true; Lease_Lifetime = 60; RecoveryBackend = fs; RecoveryRoot = {here}/recovery;
               IdmapConf = /dev/null; Only_Numeric_Owners = true; }}
             EXPORT_DEFAULTS {{ SecType = sys; Squash = No_Root_Squash; Access_Type = RW; Transports = TCP; Protocols = 3,4; }}
             EXPORT {{ Export_Id = 77; Path = {here}/export; Pseudo = /disk; FSAL {{ Name = VFS; }} }}
             EXPORT {{ Export_Id = 78; Path = /memory; Pseudo = /memory; FSAL {{ Name = MEM; }} }}
             EXPORT {{ Export_Id = 79; Path = {here}/narrow; Pseudo = /narrow; MaxRead = 65536; MaxWrite = 65536;
               FSAL {{ Name = VFS; }} }}
             EXPORT {{ Export_Id = 80; Path = {here}/full; Pseudo = /full; FSAL {{ Name = VFS; }} }}\n"
        );
        std::fs::write(folder.join("config"), config).unwrap();
        // rpcbind and the server keep their state in /run: they get one of their own, which goes with them.
        let begin = format!(
            "mount -t tmpfs -o size=1M none {here}/full && mount -t tmpfs none /run && \
             mkdir -p /run/rpcbind /run/ganesha /run/dbus && rpcbind -f & \
             wait_for() {{ for n in $(seq 200); do ss -Hltn \"sport = :$1\" | grep -q . && return; sleep 0.05; done; exit 1; }}; \
             wait_for 111; ganesha.nfsd -F -f {here}/config -L {here}/log -p {here}/pid -N NIV_EVENT & \
             wait_for 2049; echo ready; read end; kill %1 %2; wait"
        );
        let mut server = Command::new("ip")
            .args([
                "netns",
                "exec",
                netns,
                "unshare",
                "--mount",
                "--pid",
                "--fork",
                "--kill-child",
            ])
            .args(["sh", "-c", &begin])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Lines::of(server.stdout.take().unwrap()).wait_for("ready");
        Nfs {
            _server: Running(server),
            folder,
        }
    }
}

/// What tshark says of the RPC messages that the filter wants: a line each, with these fields.
fn tshark(file: &Path, filter: &str, fields: &[&str]) -> Vec<String> {
    let mut tshark = Command::new("tshark");
    tshark.args(["-r", file.to_str().unwrap(), "-Y", filter, "-T", "fields"]);
    // The client's port is a random privileged one, and may be that of another protocol; two processors may record
    // neighbours in the wrong order.
    tshark.args(["-o", "tcp.try_heuristic_first:TRUE"]);
    tshark.args(["-o", "tcp.reassemble_out_of_order:TRUE"]);
    tshark.args(fields.iter().flat_map(|field| ["-e", field]));
    let out = tshark.output();
    let out = out.expect("tshark is installed (make test installs it)");
    stdout(&out).lines().map(str::to_owned).collect()
}

/// What tshark makes of a capture: by program and procedure, the time from the last byte of each call to the last of
/// its reply in microseconds, in the order of the replies.
fn by_tshark(file: &Path) -> BTreeMap<String, Vec<f64>> {
    let fields = ["rpc.program", "rpc.procedure", "rpc.time"];
    let mut all: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for line in tshark(file, "rpc.msgtyp == 1", &fields) {
        let mut words = line.split('\t');
        let name = format!("{} {}", words.next().unwrap(), words.next().unwrap());
        let took: f64 = words.next().unwrap().parse().unwrap();
        all.entry(name).or_default().push(took * 1e6);
    }
    all
}

/// The same of ours, by names.
fn by_name(report: &Value) -> BTreeMap<String, Vec<f64>> {
    let mut all: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for call in report["calls"].as_array().unwrap() {
        let last = call["steps"].as_array().unwrap().last().unwrap();
        let ended = ms(&last["at_ns"]) + ms(&last["took_ns"]);
        let took = (ended - ms(&call["parts"]["call_send_ns"])) * 1e3;
        let name = call["operation"].as_str().unwrap().to_owned();
        all.entry(name).or_default().push(took);
    }
    all
}

#[test]
fn nfs_is_named_and_timed_as_tshark_does_and_from_the_first_byte() {
    let _alone = alone();
    let home = Home::new();
    let pair = Pair::new("nfs");
    let server = Nfs::serve(&home, &pair.remote);
    let [small, large] = [(8192, "small"), (1 << 20, "large")].map(|(bytes, name)| {
        let file = home.path().join(name);
        std::fs::write(&file, vec![7; bytes]).unwrap();
        file
    });
    for mtu in ["1500", "9000"] {
        for netns in [&pair.local, &pair.remote] {
            let args = ["-n", netns, "link", "set", "eth0", "mtu", mtu];
            assert!(Command::new("ip").args(args).status().unwrap().success());
        }
        let [whole, cut] = ["0", "256"].map(|snap| {
            let mut tcpdump = Command::new("ip");
            tcpdump.args(["netns", "exec", &pair.local, "tcpdump", "-i", "eth0"]);
            Recorder::tcpdump(
                tcpdump,
                snap,
                home.path().join(format!("{mtu}-{snap}.pcap")),
            )
        });
        let disk = server.folder.join("export").display().to_string();
        let copies = [(&small, "/memory"), (&large, "/memory"), (&small, &disk)];
        for (n, (file, export)) in copies.into_iter().enumerate() {
            let url = format!("nfs://{}{export}/{mtu}-{n}", Pair::FAR);
            let args = [
                "netns",
                "exec",
                &pair.local,
                "nfs-cp",
                file.to_str().unwrap(),
                &url,
            ];
            let out = common::run(Command::new("ip").args(args));
            assert!(out.status.success(), "{}", common::stderr(&out));
        }
        let [whole, cut] = [whole, cut].map(Recorder::end);

        let report = requests(&home, &[&whole]);
        let ours = by_name(&report);
        let mut theirs = by_tshark(&whole);
        for (name, number) in [
            ("PORTMAP NULL", "100000 0"),
            ("PORTMAP GETPORT", "100000 3"),
            ("MOUNT NULL", "100005 0"),
            ("MOUNT MNT", "100005 1"),
            ("MOUNT EXPORT", "100005 5"),
            ("NFSv3 NULL", "100003 0"),
            ("NFSv3 GETATTR", "100003 1"),
            ("NFSv3 SETATTR", "100003 2"),
            ("NFSv3 LOOKUP", "100003 3"),
            ("NFSv3 WRITE", "100003 7"),
            ("NFSv3 CREATE", "100003 8"),
            ("NFSv3 FSINFO", "100003 19"),
            ("NFSv3 COMMIT", "100003 21"),
        ] {
            let (ours, theirs) = (&ours[name], theirs.remove(number).unwrap());
            assert_eq!(ours.len(), theirs.len(), "{name} of MTU {mtu}");
            for (ours, theirs) in ours.iter().zip(&theirs) {
                assert!(
                    (ours - theirs).abs() < 1.5,
                    "{name}: {ours} and {theirs} us"
                );
            }
        }
        assert!(theirs.is_empty(), "{theirs:?}");

        // A cut capture shows the same calls; of the largest the time before its last byte is there, which tshark
        // leaves out.
        let called = |report: &Value| -> Vec<String> {
            let calls = report["calls"].as_array().unwrap().iter();
            let keys = ["operation", "detail", "call_bytes", "reply_bytes"];
            calls
                .map(|call| keys.map(|key| call[key].to_string()).join(" "))
                .collect()
        };
        assert_eq!(called(&requests(&home, &[&cut])), called(&report));
        let writes = report["calls"].as_array().unwrap().iter();
        let largest = writes
            .max_by_key(|call| call["call_bytes"].as_u64())
            .unwrap();
        assert_eq!(largest["operation"], "NFSv3 WRITE");
        assert_eq!(largest["detail"], "1048576 bytes at 0, may stay in memory");
        assert!(ms(&largest["parts"]["call_send_ns"]) > 0.1, "{largest:#}");
    }
}

/// Operations of NFSv4 by their numbers (RFC 7531, RFC 7863, RFC 8276), but for those that only serve others.
const NFS4: [(u32, &str); 35] = [
    (3, "ACCESS"),
    (4, "CLOSE"),
    (5, "COMMIT"),
    (6, "CREATE"),
    (9, "GETATTR"),
    (12, "LOCK"),
    (14, "LOCKU"),
    (15, "LOOKUP"),
    (18, "OPEN"),
    (20, "OPEN_CONFIRM"),
    (25, "READ"),
    (26, "READDIR"),
    (28, "REMOVE"),
    (29, "RENAME"),
    (30, "RENEW"),
    (34, "SETATTR"),
    (35, "SETCLIENTID"),
    (36, "SETCLIENTID_CONFIRM"),
    (38, "WRITE"),
    (42, "EXCHANGE_ID"),
    (43, "CREATE_SESSION"),
    (44, "DESTROY_SESSION"),
    (57, "DESTROY_CLIENTID"),
    (58, "RECLAIM_COMPLETE"),
    (59, "ALLOCATE"),
    (60, "COPY"),
    (62, "DEALLOCATE"),
    (68, "READ_PLUS"),
    (69, "SEEK"),
    (70, "WRITE_SAME"),
    (71, "CLONE"),
    (72, "GETXATTR"),
    (73, "SETXATTR"),
    (74, "LISTXATTRS"),
    (75, "REMOVEXATTR"),
];

/// What tshark makes of the calls of NFSv4: by their numbers the operations, and the bytes of call and reply.
fn version_4_by_tshark(file: &Path, minor: &str) -> Vec<String> {
    let fields = ["rpc.xid", "rpc.msgtyp", "rpc.fraglen", "nfs.opcode"];
    let mut calls: Vec<(String, String)> = Vec::new();
    for line in tshark(file, "rpc", &fields) {
        let words: Vec<&str> = line.split('\t').collect();
        let bytes = words[2].parse::<u64>().unwrap() + 4;
        if words[1] == "1" {
            let call = calls.iter_mut().find(|(xid, _)| xid == words[0]).unwrap();
            call.1 += &format!(" {bytes}");
            continue;
        }
        let known = |number: &str| {
            let number: u32 = number.parse().ok()?;
            NFS4.iter().find(|one| one.0 == number).map(|one| one.1)
        };
        let mut names: Vec<&str> = words[3].split(',').filter_map(known).collect();
        let looks = |name: &&str| matches!(*name, "GETATTR" | "ACCESS");
        if !names.iter().all(looks) {
            names.retain(|name| !looks(name));
        }
        let name = match names.is_empty() {
            true => "NFSv4 NULL".to_owned(),
            false => format!("NFSv4.{minor} {}", names.join("+")),
        };
        calls.push((words[0].to_owned(), format!("{name} {bytes}")));
    }
    calls.into_iter().map(|(_, call)| call).collect()
}

#[test]
fn nfs_version_4_is_named_and_sized_as_tshark_does() {
    let _alone = alone();
    let home = Home::new();
    let pair = Pair::new("nfs4");
    let _server = Nfs::serve(&home, &pair.remote);
    let script = home.path().join("nfs4.py");
    std::fs::write(&script, include_str!("common/nfs4.py")).unwrap();
    let in_local = |program: &str| {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &pair.local, program]);
        command
    };
    for (minor, least) in [("0", 23), ("1", 24), ("2", 38)] {
        let [whole, cut] = ["0", "256"].map(|snap| {
            let mut tcpdump = in_local("tcpdump");
            tcpdump.args(["-i", "eth0"]);
            let file = home.path().join(format!("4.{minor}-{snap}.pcap"));
            Recorder::tcpdump(tcpdump, snap, file)
        });
        let mut client = in_local("/usr/bin/python3");
        client.args([script.to_str().unwrap(), Pair::FAR, "disk", minor]);
        let out = common::run(&mut client);
        assert!(out.status.success(), "{}", common::stderr(&out));
        let [whole, cut] = [whole, cut].map(Recorder::end);

        let theirs = version_4_by_tshark(&whole, minor);
        assert!(theirs.len() >= least, "{theirs:#?}");
        for file in [&whole, &cut] {
            let report = requests(&home, &[file]);
            let calls = report["calls"].as_array().unwrap().iter();
            let ours: Vec<String> = calls
                .map(|call| {
                    let name = call["operation"].as_str().unwrap();
                    format!("{name} {} {}", call["call_bytes"], call["reply_bytes"])
                })
                .collect();
            assert_eq!(ours, theirs);
            let of = |name: &str| {
                let name = format!("NFSv4.{minor} {name}");
                let mut calls = report["calls"].as_array().unwrap().iter();
                calls.find(|call| call["operation"] == name).unwrap()["detail"].clone()
            };
            assert_eq!(of("WRITE"), "8192 bytes at 0, may stay in memory");
            assert_eq!(of("READ"), "8192 bytes at 4096");
            assert_eq!(of("CREATE"), "inside");
        }
    }
}

#[test]
fn an_nfs_server_is_measured_call_by_call_and_left_as_it_was() {
    let _alone = alone();
    let home = Home::new();
    let pair = Pair::new("blocks");
    let server = Nfs::serve(&home, &pair.remote);
    let disk = server.folder.join("export");
    let measure = |export: &str, more: &[&str]| {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &pair.local]);
        let linerate = home.linerate(&["measure", &format!("nfs://{}{export}", Pair::FAR)]);
        command
            .arg(linerate.get_program())
            .args(linerate.get_args());
        command.envs(
            linerate
                .get_envs()
                .filter_map(|(key, value)| Some((key, value?))),
        );
        command.args(more);
        command
    };

    for mtu in ["1500", "9000"] {
        for netns in [&pair.local, &pair.remote] {
            let args = ["-n", netns, "link", "set", "eth0", "mtu", mtu];
            assert!(Command::new("ip").args(args).status().unwrap().success());
        }
        let mut tcpdump = Command::new("ip");
        tcpdump.args(["netns", "exec", &pair.local, "tcpdump", "-i", "eth0"]);
        let capture = Recorder::tcpdump(tcpdump, "256", home.path().join(format!("{mtu}.pcap")));
        let order = [
            "--block",
            "64K",
            "--requests",
            "200",
            "--file-size",
            "1M",
            "--wait",
            "block",
        ];
        let run = json(measure("/memory", &order).arg("--json"));
        let seen = requests(&home, &[&capture.end()]);

        let summary = &run["summary"]["legs"][0];
        assert_eq!(summary["requests"]["count"], 200);
        for (operation, name, data) in [
            ("read", "NFSv3 READ", 50 << 16),
            ("write", "NFSv3 WRITE", 50 << 16),
            ("getattr", "NFSv3 GETATTR", 0),
            ("commit", "NFSv3 COMMIT", 0),
        ] {
            let of = |all: &Value, key: &str, name: &str| -> Value {
                let mut all = all.as_array().unwrap().iter();
                all.find(|one| one[key] == name).unwrap().clone()
            };
            let measured = of(&summary["operations"], "operation", operation);
            let record = of(
                &run["legs"][0]["local"]["operations"],
                "operation",
                operation,
            );
            assert_eq!(measured["latency"]["count"], 50, "{measured:#}");
            assert_eq!(record["data"], data, "{record:#}");
            // The path of a veth pair is one round trip of its kernel; it has no rate.
            let ideal = measured["latency"]["ideal_ns"].as_u64().unwrap();
            assert!(
                ideal > 0 && ideal <= measured["latency"]["mean_ns"].as_u64().unwrap(),
                "{measured:#}"
            );
            // The wire says the same, but for what the process takes to hand over and to wake up; and there is what
            // filled the file.
            let wire = of(&seen["operations"], "operation", name);
            let all = wire["count"].as_u64().unwrap();
            assert_eq!(
                all,
                if operation == "write" {
                    54
                } else if operation == "commit" {
                    51
                } else {
                    50
                }
            );
            let sum = |of: &Value| -> u64 {
                of.as_object()
                    .unwrap()
                    .values()
                    .map(|part| part.as_u64().unwrap())
                    .sum()
            };
            let (ours, theirs) = (
                measured["latency"]["p50_ns"].as_u64().unwrap(),
                wire["p50_ns"].as_u64().unwrap(),
            );
            assert!(ours * 5 / 4 > theirs, "{operation}: {ours} and {theirs} ns");
            assert!(
                sum(&measured["parts"]) > 0 && ours < theirs + 3_000_000,
                "{operation}: {ours} and {theirs} ns"
            );
        }
    }

    // On disk, at random, with several outstanding on two connections; the archived text has the same later.
    let order = [
        "--mix",
        "read,write-stable",
        "--random",
        "--depth",
        "4",
        "-P",
        "2",
        "-t",
        "500ms",
    ];
    let text = stdout(&common::run(&mut measure(
        &disk.display().to_string(),
        &order,
    )));
    assert!(
        text.contains("WRITE, stable") && text.contains("4 outstanding on each"),
        "{text}"
    );
    let shown = stdout(&common::run(&mut home.linerate(&["runs", "show", "last"])));
    assert!(
        shown.contains("WRITE, stable") && shown.contains("READ: ideal "),
        "{shown}"
    );
    let left: Vec<_> = std::fs::read_dir(&disk).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");

    // Ctrl-C while it reads: the measured part is reported, and the files are gone.
    let mut long = measure(&disk.display().to_string(), &["-t", "60s", "--json-stream"]);
    let mut child = long.stdout(Stdio::piped()).spawn().unwrap();
    let lines = Lines::of(child.stdout.take().unwrap());
    let child = Running(child);
    lines.wait_for("\"event\":\"sample\"");
    assert_eq!(std::fs::read_dir(&disk).unwrap().count(), 1);
    child.interrupt();
    let line = lines.wait_for("\"event\":\"end\"");
    assert!(line.contains("\"operations\""), "{line}");
    assert_eq!(child.output(Duration::from_secs(20)).status.code(), Some(4));
    assert_eq!(std::fs::read_dir(&disk).unwrap().count(), 0);

    // Killed outright: its record names what stays.
    let reading = |order: &[&str]| {
        let mut child = measure(&disk.display().to_string(), order);
        let mut child = child.stdout(Stdio::piped()).spawn().unwrap();
        let lines = Lines::of(child.stdout.take().unwrap());
        lines.wait_for("\"event\":\"sample\"");
        (Running(child), lines)
    };
    let long = ["-t", "60s", "-i", "100ms", "--json-stream"];
    drop(reading(&long));
    let left = std::fs::read_dir(&disk).unwrap().next().unwrap().unwrap();
    let name = left.file_name().into_string().unwrap();
    let shown = stdout(&common::run(&mut home.linerate(&["runs", "show", "last"])));
    let files = format!("its files {}*", name.trim_end_matches('0'));
    assert!(common::one_line(&shown).contains(&files), "{name}: {shown}");
    std::fs::remove_file(left.path()).unwrap();

    // What the server does not take, and what does not fit: the room is free again.
    let path = |name: &str| server.folder.join(name).display().to_string();
    let (narrow, full) = (path("narrow"), path("full"));
    for (export, more, said) in [
        (
            &*narrow,
            vec!["--block", "128K"],
            "reads and writes of up to 64.0 KiB",
        ),
        (
            &*full,
            vec!["--file-size", "4M"],
            "WRITE with \"no space left\"",
        ),
        ("/nowhere", vec![], "it exports "),
        ("/memory", vec!["--block", "65M"], "to 64M"),
        ("/memory", vec!["--down"], "leave out --down"),
        ("/memory", vec!["--trace"], "linerate trace --host"),
    ] {
        let out = measure(export, &more).arg("-q").output().unwrap();
        let why = common::stderr(&out);
        assert!(
            !out.status.success() && why.contains(said),
            "{export} {more:?}: {why}"
        );
        assert_eq!(why.trim_end().lines().count(), 1, "{why}");
    }

    // It fills up meanwhile; then there is room again.
    let fill = ["--mix", "write", "--file-size", "4M", "-t", "20s"];
    let out = common::run(&mut measure(&full, &fill));
    let text = common::one_line(&stdout(&out));
    assert_eq!(out.status.code(), Some(1), "{text}");
    assert!(text.contains("WRITE with \"no space left\""), "{text}");
    let fits = ["--mix", "write", "--file-size", "768K", "--requests", "96"];
    json(measure(&full, &fits).arg("--json"));

    // The server goes: the files that stay there are reported.
    let (child, lines) = reading(&long);
    drop(server);
    let line = lines.wait_for("\"event\":\"end\"");
    assert!(line.contains("files of this run stay in"), "{line}");
    assert_eq!(child.output(Duration::from_secs(20)).status.code(), Some(1));
}

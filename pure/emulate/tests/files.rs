//! Scenario files, good and bad.

use linerate_emulate::{Direction, LossModel, Scenario};
use model::{BitRate, Nanos};
use proptest::prelude::*;

#[test]
fn every_shipped_scenario_parses_and_says_why() {
    for (name, text) in Scenario::shipped() {
        let scenario = Scenario::parse(text, name).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(scenario.name, *name);
        assert!(
            scenario.why.len() > 80 && scenario.why.ends_with('.'),
            "{name}"
        );
        assert!(
            scenario.links.iter().any(|l| !scenario.is_plain(l)),
            "{name}"
        );
        let json = serde_json::to_string(&scenario).unwrap();
        assert_eq!(
            serde_json::from_str::<Scenario>(&json).unwrap(),
            scenario,
            "{name}"
        );
    }
}

/// Two hosts, a cable, and what is put in or appended.
fn file(hosts: &str, link: &str, rest: &str) -> String {
    format!(
        "name = \"t\"\nwhy = \"To test.\"\n\n[[host]]\nname = \"a\"\n{hosts}\n[[host]]\nname = \"b\"\n\n\
         [[link]]\nname = \"wan\"\nbetween = [\"a\", \"b\"]\n{link}\n{rest}"
    )
}

#[test]
fn a_bad_file_is_answered_with_line_and_remedy() {
    let cable = |link: &str| file("", link, "");
    let both = |shape: &str| cable(&format!("[link.both]\n{shape}"));
    let cases = [
        (String::from("name = "), "t.toml:1: not TOML: "),
        (
            String::from("name = \"t\"\nwhy = \"x\"\n"),
            "t.toml:1: the scenario has no host; add [[host]] with a name",
        ),
        (
            String::from("why = \"x\"\n"),
            "t.toml:1: 'name' is missing; add name = ...",
        ),
        (
            both("rat = \"1G\""),
            "t.toml:14: unknown key 'rat'; did you mean 'rate'?",
        ),
        (
            file("colour = \"red\"", "", ""),
            "t.toml:6: unknown key 'colour' in a host; known here: name, congestion, receive_buffer, send_buffer, offload, ecn, reads_at, drop_icmp, drop_icmp_toward",
        ),
        (
            both("rate = \"-5M\""),
            "t.toml:14: \"-5M\" is negative; write a rate above 0 in quotes, in bit/s (\"100M\", \"2.5G\")",
        ),
        (
            both("rate = 0"),
            "t.toml:14: 0 is not allowed here; write a rate above 0 in quotes, in bit/s (\"100M\", \"2.5G\")",
        ),
        (
            both("rate = \"0\""),
            "t.toml:14: \"0\" is not allowed here; write a rate above 0 in quotes, in bit/s (\"100M\", \"2.5G\"), or leave it out for no limit",
        ),
        (
            both("delay = \"25\""),
            "t.toml:14: \"25\" is not allowed here; write a time with its unit in quotes (\"25.5ms\", \"200us\", \"5s\")",
        ),
        (
            both("loss = { random = 1.5 }"),
            "t.toml:14: 1.5 is not allowed here; write a number from 0 to 1, or per cent in quotes (0.001 is \"0.1%\")",
        ),
        (
            both("loss = { random = 0.1, periodic = 20 }"),
            "t.toml:14: wanted exactly 1 element, more than 1 element; ",
        ),
        (
            both("loss = { at = [5, 3] }"),
            "t.toml:14: frame 3 is not after the one before it; write the frames in order, each once",
        ),
        (
            cable("mtu = 500"),
            "t.toml:13: an MTU of 500 is too small; write at least 576 (IPv6 needs 1280)",
        ),
        (
            both("queue = { packets = 10 }"),
            "t.toml:14: link 'wan': a queue without a rate never fills; add a rate, a shaper or a packet_time in this direction, or leave it out",
        ),
        (
            both("rate = \"1G\"\nqueue = { packets = 10, bytes = \"1M\" }"),
            "t.toml:15: the queue is limited in packets and in bytes; keep one of 'packets' and 'bytes'",
        ),
        (
            both("rate = \"1G\"\nqueue = { bytes = 1000 }"),
            "t.toml:15: a queue of 1000 B holds no frame of 1500 B; write at least 1500 bytes, or a limit in packets",
        ),
        (
            both("rate = \"1G\"\nqueue = { packets = 10, ecn = true }"),
            "t.toml:15: ecn in a drop-tail queue: nothing chooses what to mark; add codel = {} or red = {...}, or leave ecn out",
        ),
        (
            both("rate = \"1G\"\nqueue = { packets = 10, red = { min = 5, max = 20 } }"),
            "t.toml:15: red's thresholds 5 and 20 do not rise within the limit 10; write min <= max <= the queue's limit, in the same unit",
        ),
        (
            both("rate = \"1G\"\nshaper = { rate = \"2G\", burst = \"64K\" }"),
            "t.toml:15: link 'wan': a shaper as fast as the line delays nothing; write a shaper slower than the rate, or leave it out",
        ),
        (
            both("policer = { rate = \"1M\", burst = 1000 }"),
            "t.toml:14: a burst of 1000 B lets no packet of 1500 B pass; write at least the link's MTU, 1500",
        ),
        (
            cable("[link.forward]\nrate = \"1M\"\nhalf_duplex = true"),
            "t.toml:10: link 'wan' is half-duplex in one direction only; move half_duplex = true to [link.both]",
        ),
        (
            file("\n[[host]]\nname = \"a\"", "", ""),
            "t.toml:8: two nodes are named 'a'; give each its own name",
        ),
        (
            file("\n[[host]]\nname = \"alone\"", "", ""),
            "t.toml:8: host 'alone' has no link; add a [[link]] with it in 'between', or remove it",
        ),
        (
            file("", "", "[[link]]\nbetween = [\"a\", \"berkley\"]"),
            "t.toml:15: a link to the unknown node 'berkley'; known here: a, b",
        ),
        (
            file("", "", "[[link]]\nbetween = [\"b\", \"b\"]"),
            "t.toml:15: a link from 'b' to itself; name two different nodes",
        ),
        (
            file("", "", "[[link]]\nname = \"wan\"\nbetween = [\"a\", \"b\"]"),
            "t.toml:15: two links are named 'wan'; give each its own name",
        ),
        (
            file(
                "",
                "",
                "[[switch]]\nname = \"x\"\n[[switch]]\nname = \"y\"\n\
                 [[link]]\nbetween = [\"x\", \"y\"]\n[[link]]\nname = \"again\"\nbetween = [\"y\", \"x\"]",
            ),
            "t.toml:22: link 'again' closes a loop of switches; remove one of its links, or put a router in: frames would circle for ever",
        ),
        (
            cable("addresses = [\"10.0.0.1/24\", \"10.0.1.2/24\"]"),
            "t.toml:13: 10.0.1.2/24 is not in 10.0.0.0/24, the network of its neighbours; give all ends on one segment addresses of one network",
        ),
        (
            file(
                "",
                "",
                "[[change]]\nat = \"5s\"\nlink = \"wam\"\nrate = \"200M\"",
            ),
            "t.toml:16: a change of the unknown link 'wam'; did you mean 'wan'?",
        ),
        (
            file(
                "",
                "",
                "[[change]]\nat = \"5s\"\nlink = \"wan\"\nhalf_duplex = true",
            ),
            "t.toml:17: half_duplex cannot change while the lab runs; set it in [link.both]",
        ),
        (
            both("jitter = { range = \"2ms\", distribution = \"pareto\" }"),
            "t.toml:14: unknown variant `pareto`; write one of `uniform`, `normal`, `exponential`",
        ),
        (
            file("", "", "[[traffic]]\nfrom = \"a\"\nto = \"c\""),
            "t.toml:16: 'to' names the unknown host 'c'; did you mean 'a'?",
        ),
        (
            file("", "", "[[traffic]]\nfrom = \"a\"\nto = \"a\""),
            "t.toml:16: traffic from 'a' to itself; name two different hosts",
        ),
        (
            file("", "", "[[traffic]]\nfrom = \"a\"\nto = \"b\"\non = \"2s\""),
            "t.toml:14: traffic has one of 'on' and 'off'; give both, or neither for traffic that never ends",
        ),
        (
            file("drop_icmp = \"some\"", "", ""),
            "t.toml:6: unknown variant `some`; write `frag-needed` or `all`",
        ),
    ];
    let mut wrong = Vec::new();
    for (text, expected) in cases {
        match Scenario::parse(&text, "t.toml") {
            Ok(_) => wrong.push(format!("accepted, expected {expected}")),
            Err(e) if e.to_string().starts_with(expected) => {}
            Err(e) => wrong.push(format!("{e}\n   not {expected}")),
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn the_script_patches_what_is_in_force() {
    let text = file(
        "",
        "[link.both]\nrate = \"1G\"\ndelay = \"1ms\"",
        "[[change]]\nat = \"9s\"\nlink = \"wan\"\nloss = { random = \"1%\" }\n\
         [[change]]\nat = \"5s\"\nlink = \"wan\"\ndirection = \"forward\"\nrate = \"200M\"\n",
    );
    let scenario = Scenario::parse(&text, "t").unwrap();
    let steps: Vec<_> = scenario
        .script
        .iter()
        .map(|c| {
            (
                c.at,
                c.direction,
                c.shape.rate,
                c.shape.loss != LossModel::Off,
            )
        })
        .collect();
    let rate = |mbit: u64| Some(BitRate(mbit * 1_000_000));
    assert_eq!(
        steps,
        [
            (Nanos::from_secs(5), Direction::Forward, rate(200), false),
            (Nanos::from_secs(9), Direction::Forward, rate(200), true),
            (Nanos::from_secs(9), Direction::Backward, rate(1000), true),
        ]
    );
}

#[test]
fn off_takes_away_what_another_table_gave() {
    let text = file(
        "",
        "[link.both]\nrate = \"1G\"\nloss = { random = \"1%\" }\n[link.backward]\nloss = \"off\"",
        "[[change]]\nat = \"5s\"\nlink = \"wan\"\nrate = \"off\"\n",
    );
    let scenario = Scenario::parse(&text, "t").unwrap();
    let link = &scenario.links[0];
    assert_eq!(link.forward.loss, LossModel::Random(0.01));
    assert_eq!(link.backward.loss, LossModel::Off);
    assert!(scenario.script.iter().all(|c| c.shape.rate.is_none()));
    let unknown = text.replace("rate = \"off\"", "rat = \"off\"");
    let error = Scenario::parse(&unknown, "t").unwrap_err().to_string();
    assert!(error.starts_with("t:21: unknown key 'rat'"), "{error}");
}

#[test]
fn nodes_know_the_way_but_not_behind_a_translator() {
    let (name, text) = Scenario::shipped()
        .iter()
        .find(|(n, _)| *n == "home-lan-blackhole")
        .unwrap();
    let scenario = Scenario::parse(text, name).unwrap();
    let ways = |node: &str| -> Vec<String> {
        let routes = scenario.routes(node);
        routes
            .iter()
            .map(|r| format!("{} via {}", r.to, r.via))
            .collect()
    };
    // The server and the laptop share a segment with the gateway, through the switch.
    assert_eq!(
        ways("server"),
        ["10.77.1.0/24 via 10.77.0.3", "fd77:0:0:1::/64 via fd77::3"]
    );
    assert_eq!(ways("internet"), Vec::<String>::new());
    let (_, text) = Scenario::shipped()
        .iter()
        .find(|(n, _)| *n == "berkeley-chicago")
        .unwrap();
    let scenario = Scenario::parse(text, "x").unwrap();
    let chicago = scenario.routes("chicago");
    assert_eq!(chicago.len(), 4);
    assert!(chicago.iter().all(|r| !r.via.is_unspecified()));
    assert!(scenario.routes("bay").is_empty());
}

proptest! {
    #[test]
    fn reading_never_panics(text in "[a-z\\[\\]{}=\"0-9.,\n -]{0,200}", at in 0usize..2000, with in ".{0,3}") {
        let _ = Scenario::parse(&text, "t");
        // A shipped file with a wound.
        let (_, whole) = Scenario::shipped()[at % Scenario::shipped().len()];
        let at = whole.floor_char_boundary(at);
        let end = whole.floor_char_boundary(at + with.len());
        let _ = Scenario::parse(&format!("{}{with}{}", &whole[..at], &whole[end..]), "t");
    }
}

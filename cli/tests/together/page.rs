//! The pages in a real browser: they open from a disk, request nothing, complain of nothing, and show what they have to
//! whoever cannot run their scripts or see their pictures. Needs chromium (`make test` installs it). What they look like, at
//! the width of a desktop and of a phone, is below target/pages afterwards.

use crate::browser::{Browser, Tab};
use crate::common::{Home, Lines, Running, run, stderr, stdout};
use archive::Archive;
use report::pages::Demonstration;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

/// Pixels of a desktop and of a phone.
const DESKTOP: u32 = 1200;
const PHONE: u32 = 390;

/// What somebody could call a host, or write in a note.
const EVIL: &str =
    "</script><script>document.title='mine'</script><img src=x onerror=alert(1)>&quot;\u{202e}";

/// What a command prints, which is written as a user types it.
fn linerate(home: &Home, line: &str) -> String {
    let args: Vec<&str> = line.split_whitespace().collect();
    let out = run(home.linerate(&args).current_dir(home.path()));
    // Some verdicts of an experiment have a status of their own.
    let fine = matches!(out.status.code(), Some(0 | 10..=13));
    assert!(fine, "{line}: {}\n{}", out.status, stderr(&out));
    stdout(&out)
}

/// A page of each kind.
fn pages(home: &Home) -> Vec<PathBuf> {
    let short = "-t 400ms -O 100ms -i 50ms -q";
    for (name, line) in [
        ("bulk", format!("measure local {short}")),
        (
            "request",
            format!("measure local --workload request {short}"),
        ),
        (
            "copy",
            "measure local --workload copy --from memory --to memory -n 32M -q".to_owned(),
        ),
        ("tuning", format!("tune local --dry-run {short}")),
        (
            "experiment",
            "prove local --change sockbuf=64K --pairs 6 --gap 0s --pilot 0 -t 100ms -O 20ms -q"
                .to_owned(),
        ),
    ] {
        linerate(home, &line);
        linerate(home, &format!("report last -o {name}.html"));
    }
    let calls = "../pure/requests/tests/captures/nfs3.pcap";
    linerate(
        home,
        &format!(
            "report {} -o calls.html",
            Path::new(env!("CARGO_MANIFEST_DIR")).join(calls).display()
        ),
    );
    let mtu = linerate(home, "mtu local --json");
    std::fs::write(home.path().join("mtu.json"), mtu).unwrap();
    linerate(home, "report mtu.json -o mtu.html");
    std::fs::write(home.path().join("demo.html"), demo(home)).unwrap();
    // A second run: a path with a history.
    linerate(home, &format!("measure local {short}"));
    linerate(home, "report --all all");
    let names = [
        "bulk",
        "request",
        "copy",
        "tuning",
        "experiment",
        "calls",
        "mtu",
        "demo",
        "all/index",
        "all/history-1",
    ];
    names
        .map(|name| home.path().join(format!("{name}.html")))
        .into()
}

/// The page of the demonstration, of what the archive has.
fn demo(home: &Home) -> String {
    let archive = Archive::open(&home.path().join("runs.db")).unwrap();
    let tuning = archive.tuning("last").unwrap();
    let run = archive.get(&tuning.rounds[0].before.run).unwrap();
    let experiment = archive.experiment("last").unwrap();
    let verdict = prove::judge(&experiment);
    let why = explain::explain(&run);
    let shown = Demonstration {
        measured: report::pages::run(&run, &model::summarise(&run), &why),
        why,
        run,
        tuning,
        judged: Vec::new(),
        popular: (experiment, verdict),
        put_back: vec!["route.congctl=bbr, to cubic".to_owned()],
        warnings: Vec::new(),
    };
    report::page::html(&report::pages::demo(&shown))
}

/// Where a picture of a page goes: below the folder that cargo builds in.
fn shot(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("../pages")
        .join(format!("{name}.png"))
}

/// What holds of every page in every window.
fn is_sound(tab: &mut Tab<'_>, name: &str) {
    assert_eq!(tab.complaints(), Vec::<String>::new(), "{name}");
    assert_ne!(tab.eval("document.title"), "", "{name}");
    assert_eq!(tab.eval("document.documentElement.lang"), "en", "{name}");
    assert_eq!(
        tab.eval("document.querySelectorAll('h1').length"),
        1,
        "{name}"
    );
    let wide = tab.eval("document.documentElement.scrollWidth - innerWidth");
    assert!(
        wide.as_i64().unwrap() <= 0,
        "{name} is {wide} pixels too wide"
    );
    let silent = "[...document.querySelectorAll('figure')].filter(f => !f.querySelector('svg title')?.textContent \
                  || !f.querySelector('svg desc')?.textContent).map(f => f.id)";
    assert_eq!(
        tab.eval(silent),
        json!([]),
        "{name}: pictures without words"
    );
}

#[test]
fn every_page_opens_from_a_disk_and_is_whole_for_everybody() {
    let home = Home::new();
    let pages = pages(&home);
    let mut browser = Browser::start(home.path());
    for file in &pages {
        let name = file.file_stem().unwrap().to_str().unwrap();
        let size = file.metadata().unwrap().len();
        assert!(size < 1 << 20, "{name} has {size} bytes");
        let mut tab = browser.open(file);
        for (width, window) in [(DESKTOP, "desktop"), (PHONE, "phone")] {
            tab.resize(width);
            is_sound(&mut tab, name);
            tab.shoot(&shot(&format!("{name}-{window}")));
        }
        tab.reload_without_scripts();
        is_sound(&mut tab, name);
        let unseen = "[...document.querySelectorAll('section figure')]\
                      .filter(f => !f.querySelector('svg').getBoundingClientRect().height).map(f => f.id)";
        assert_eq!(
            tab.eval(unseen),
            json!([]),
            "{name}: pictures that need scripts"
        );
    }
}

#[test]
fn a_picture_shows_its_values_and_can_be_zoomed_by_mouse_and_keys() {
    let home = Home::new();
    linerate(&home, "measure local -t 1s -O 100ms -i 50ms --up -q");
    linerate(&home, "report last -o run.html");
    let mut browser = Browser::start(home.path());
    let mut tab = browser.open(&home.path().join("run.html"));
    tab.resize(DESKTOP);
    let place = "const at = document.querySelector('.zoom .u-over'); at.scrollIntoView({block: 'center'}); \
                 const box = at.getBoundingClientRect(); JSON.stringify([box.left, box.top, box.width, box.height])";
    let corners = tab.eval(place);
    let corners: Vec<f64> = serde_json::from_str(corners.as_str().unwrap()).unwrap();
    let [left, top, width, height] = corners[..] else {
        panic!("{corners:?}")
    };
    let at = |share: f64| (left + share * width, top + height / 2.0);

    let tip =
        "[...document.querySelectorAll('.tip')].filter(t => !t.hidden)[0]?.firstChild.textContent";
    let tip_at = |tab: &mut Tab<'_>| {
        tab.mouse("mouseMoved", at(0.11), &json!({}));
        tab.mouse("mouseMoved", at(0.1), &json!({}));
        assert!(
            tab.comes(&format!("!!({tip})")),
            "no values where the mouse is"
        );
        tab.eval(tip)
    };
    let before = tip_at(&mut tab);
    assert!(
        before.as_str().unwrap().ends_with('s'),
        "{before}: a time with its unit"
    );
    let held = json!({"button": "left", "buttons": 1, "clickCount": 1});
    tab.mouse("mousePressed", at(0.5), &held);
    tab.mouse("mouseMoved", at(0.7), &held);
    tab.mouse("mouseMoved", at(0.9), &held);
    tab.mouse("mouseReleased", at(0.9), &held);
    let zoomed = tip_at(&mut tab);
    assert_ne!(zoomed, before, "the same place shows another time");

    // For users without a mouse; a screen reader announces the selected values.
    tab.eval("document.querySelector('.zoom').focus()");
    tab.press("0");
    assert_eq!(tip_at(&mut tab), before, "all of it again");
    tab.press("ArrowRight");
    let said = "document.querySelector('.said').textContent";
    assert!(
        tab.comes(&format!("{said} !== ''")),
        "nothing is said of the place"
    );
    assert_eq!(tab.complaints(), Vec::<String>::new());
}

#[test]
fn foreign_names_stay_text() {
    let home = Home::new();
    linerate(&home, "measure local -t 200ms -O 50ms -i 50ms --up -q");
    let mut run: Value = serde_json::from_str(&linerate(&home, "runs export last")).unwrap();
    for key in ["host", "title"] {
        run[key] = json!(EVIL);
    }
    for end in ["local", "remote"] {
        for key in ["hostname", "kernel"] {
            run[end][key] = json!(EVIL);
        }
    }
    std::fs::write(home.path().join("evil.json"), run.to_string()).unwrap();
    linerate(&home, "report evil.json -o evil.html");
    let mut browser = Browser::start(home.path());
    let mut tab = browser.open(&home.path().join("evil.html"));
    tab.resize(DESKTOP);
    is_sound(&mut tab, "evil");
    assert_ne!(tab.eval("document.title"), "mine");
    assert_eq!(tab.eval("document.querySelectorAll('img').length"), 0);
    assert_eq!(
        tab.eval("document.body.innerText.includes('<img src=x onerror=alert(1)>')"),
        true
    );
}

/// As Ctrl-C does, in the middle of its first measurement.
#[test]
fn a_demo_that_is_interrupted_leaves_nothing() {
    let home = Home::new();
    let mut command = home.linerate(&["demo"]);
    command.current_dir(home.path()).stderr(Stdio::piped());
    let mut demo = command.spawn().unwrap();
    let lines = Lines::of(demo.stderr.take().unwrap());
    let demo = Running(demo);
    lines.wait_for("1 of 4");
    lines.wait_for("Mbit/s");
    demo.interrupt();
    let out = demo.output(Duration::from_secs(60));
    assert_eq!(out.status.code(), Some(4), "{:?}", lines.rest());
    assert!(!home.path().join("linerate-demo.html").exists());
    assert!(linerate(&home, "lab list").starts_with("no lab is up"));
}

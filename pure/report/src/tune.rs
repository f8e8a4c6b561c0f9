//! The story of a path that was tuned, in words and as one document.

use crate::explain::sentences;
use crate::prelude::*;
use crate::prove::in_short;
use model::advice::{Change, Foreign};
use model::{Attempt, Fate, Look, Round, Scope, Setting, Side, Tuning};

/// An experiment of the story, and what it says.
pub type Judged = (Experiment, Verdict);

/// The story as one document: the fields of [`Tuning`], its experiments, and under `verdicts` what each says.
pub fn json(story: &Tuning, judged: &[Judged]) -> String {
    let (experiments, verdicts): (Vec<_>, Vec<_>) = judged.iter().map(|(e, v)| (e, v)).unzip();
    pretty(&document!(
        #[serde(flatten)]
        story,
        experiments,
        verdicts
    ))
}

/// The lines for hosts with another system, a text a host, as a part of the story.
pub fn elsewhere(system: Foreign, texts: &[(Side, String)]) -> String {
    let (name, _) = Foreign::ALL[system as usize];
    if texts.is_empty() {
        return format!("\nNothing of it can be set on {name}.\n");
    }
    let of = |(side, text): &(Side, String)| {
        let host = match side {
            Side::Local => "this host",
            Side::Remote => "the remote host",
        };
        format!("\n# {name} in the place of {host}: /etc/sysctl.conf\n{text}")
    };
    texts.iter().map(of).collect()
}

/// What a measurement showed, in one line.
pub fn seen(look: &Look) -> String {
    let why = sentences(&look.explanations, Style::WIDE);
    let why: Vec<&str> = why.lines().map(str::trim).collect();
    let why = match why[..] {
        [] => "nothing is named that limits it.".to_owned(),
        _ => why.join(" "),
    };
    format!("{}: {why}", look.goodput)
}

/// The story in words. Lines of prose keep to `style.width`.
pub fn story(story: &Tuning, judged: &[Judged], style: Style) -> String {
    let mut out = Story {
        text: String::new(),
        style,
    };
    let (way, host) = (up_to(story.direction), escape(&story.host));
    let (at, id) = (utc(story.started), shown(&story.id));
    let title = format!("The way {way} {host}, {at} (tuning {id})");
    out.text += &(style.paint(Ink::Bold, &title) + "\n");
    for (n, round) in story.rounds.iter().enumerate() {
        let name = match n {
            0 => "Measured",
            _ => "Measured again, with what was kept",
        };
        out.lines(name, [goodput_words(&round.before)]);
        out.advice(round, story.dry_run);
        out.proof(round, judged);
    }
    out.end(story);
    out.text
}

pub(crate) fn up_to(direction: Direction) -> &'static str {
    match direction {
        Direction::Up => "up to",
        Direction::Down => "down from",
    }
}

/// The outcome in a sentence or a few: what was kept with its verdict, what the path carries now.
pub(crate) fn outcome(story: &Tuning, judged: &[Judged]) -> Vec<String> {
    let (kept, open) = (titles(story, Fate::Kept), titles(story, Fate::Recommended));
    let nothing_proposed = story.rounds.iter().all(|r| r.advice.proposals.is_empty());
    let first = story.rounds.first().map(|round| &round.before);
    let carried = first.zip(story.after.as_ref());
    let carried = carried.map(|(first, after)| {
        let (before, after) = (first.goodput, after.goodput);
        format!(": {before} before, {after} with it")
    });
    let first = match (&kept[..], &open[..]) {
        ("", "") if story.dry_run && nothing_proposed => {
            "A dry run, nothing was changed: no change recommended.".to_owned()
        }
        ("", "") if story.dry_run => {
            let proposed = titles(story, Fate::Untried);
            format!("A dry run, nothing was changed: proposed are {proposed}.")
        }
        ("", "") if nothing_proposed => "No change recommended; nothing was modified.".to_owned(),
        ("", "") => {
            "Nothing of what was proposed was proven to help; all settings restored.".to_owned()
        }
        ("", open) => format!("Proven, and for you to set: {open}."),
        (kept, _) => format!("Kept: {kept}{}.", carried.unwrap_or_default()),
    };
    let rounds = story.rounds.iter().flat_map(|round| {
        let id = round.experiments.first();
        let found = judged.iter().find(|(e, _)| Some(&e.id) == id);
        let proposals = round.advice.proposals.iter().zip(&round.attempts);
        proposals.filter_map(move |(proposal, attempt)| {
            let ((experiment, verdict), arm) = (found?, attempt.arm?);
            let title = escape(&proposal.title);
            Some(format!("{title}: {}", in_short(experiment, verdict, arm)))
        })
    });
    [first].into_iter().chain(rounds).collect()
}

/// The path with all that was kept, unless a further round began with it.
pub(crate) fn last(story: &Tuning) -> Option<&Look> {
    let fresh = |look: &&Look| story.rounds.iter().all(|r| r.before.run != look.run);
    story.after.as_ref().filter(fresh)
}

/// What the proposals of this fate do.
fn titles(story: &Tuning, fate: Fate) -> String {
    let of = |round: &'_ Round| {
        let pairs = round.advice.proposals.iter().zip(&round.attempts);
        let with = pairs.filter(|(_, a)| a.fate == fate);
        with.map(|(p, _)| escape(&p.title)).collect::<Vec<_>>()
    };
    let all: Vec<String> = story.rounds.iter().flat_map(of).collect();
    all.join("; ")
}

struct Story {
    text: String,
    style: Style,
}

impl Story {
    fn part(&mut self, name: &str) {
        self.text += &format!("\n{}\n", self.style.paint(Ink::Bold, name));
    }

    fn paragraph(&mut self, words: &str) {
        self.text += &self.style.hang("  ", 2, words);
    }

    fn note(&mut self, words: &str) {
        self.text += &self.style.hang("     ", 5, words);
    }

    /// A part of these lines, if there are any.
    fn lines(&mut self, name: &str, lines: impl IntoIterator<Item = String>) {
        let mut lines = lines.into_iter().peekable();
        if lines.peek().is_some() {
            self.part(name);
        }
        lines.for_each(|line| self.paragraph(&line));
    }

    fn advice(&mut self, round: &Round, dry_run: bool) {
        let advice = &round.advice;
        let needs = &advice.needs;
        let from = needs.rate_from.words();
        self.part("Needed");
        self.paragraph(&format!(
            "{} ({from}) with an RTT of {} have {} in flight on each connection: a receive buffer of {} and a send buffer of {}.",
            glue(needs.rate),
            glue(needs.rtt),
            glue(needs.bdp),
            glue(needs.receive_buffer),
            glue(needs.send_buffer),
        ));
        self.part("Proposed");
        if advice.proposals.is_empty() {
            self.paragraph("No change recommended.");
        }
        for (n, proposal) in advice.proposals.iter().enumerate() {
            let (title, cause) = (escape(&proposal.title), proposal.cause);
            let (first, line) = (
                format!("  {}. ", n + 1),
                format!("{title}, because of {cause}"),
            );
            self.text += &self.style.hang(&first, 5, &line);
            let mut before = None;
            for change in &proposal.changes {
                self.change(change, before.replace(&change.why) == Some(&change.why));
            }
            if let Some(attempt) = round.attempts.get(n) {
                self.instead(attempt, dry_run);
            }
        }
        for declined in &advice.declined {
            let (setting, why) = (&declined.setting, escape_sentence(&declined.why));
            self.paragraph(&format!("Not {setting}: {why}."));
        }
        for words in &advice.otherwise {
            self.paragraph(&format!("Beside that: {}.", escape_sentence(words)));
        }
    }

    fn change(&mut self, change: &Change, same_reason: bool) {
        let whose = match change.setting.knob.is_socket() {
            true => "on linerate's own connections",
            false => host(change.side),
        };
        let value = |what: &str, value: &Option<String>| {
            let value = value.as_ref();
            value.map(|value| format!("{what} {}", escape(value)))
        };
        let values = [
            value("now", &change.now),
            value("this kernel's default", &change.default),
        ];
        let values = match &values.into_iter().flatten().collect::<Vec<_>>()[..] {
            [] => String::new(),
            values => format!(" ({})", values.join(", ")),
        };
        let setting = glue(plain(&change.setting));
        self.note(&format!("{setting} {whose}{values}"));
        let [why, source] = [&change.why, &change.source].map(|text| escape_sentence(text));
        self.note(&match same_reason {
            true => "why: for the same reason".to_owned(),
            false => format!("why: {why} [{source}]"),
        });
        let scope = match change.scope {
            Scope::Socket => "changes nothing of the machine",
            Scope::Route => "changes all connections to this host",
            Scope::Namespace => "changes all connections of the host (of its network namespace)",
            Scope::Device => "changes all that goes through the device",
            Scope::Host => "changes the whole machine",
        };
        let when = match change.new_connections {
            true => "; only new connections have it",
            false => "",
        };
        let risk = match escape_sentence(&change.risk) {
            none if none.is_empty() => none,
            risk => format!("; risk: {risk}"),
        };
        self.note(&format!("{scope}{when}{risk}"));
    }

    /// What was tried for a proposal, where that is not what was proposed.
    fn instead(&mut self, attempt: &Attempt, dry_run: bool) {
        let Some(why) = &attempt.instead else {
            return;
        };
        let why = escape_sentence(why);
        self.note(&match attempt.settings[..] {
            [] => format!("It could not be tried: {why}."),
            _ => format!(
                "It could not be tried ({why}), so it was tried with {} on linerate's own connections.",
                list(&attempt.settings)
            ),
        });
        if attempt.settings.is_empty() && !dry_run {
            self.note("The owner of that host can set it by hand.");
        }
    }

    fn proof(&mut self, round: &Round, judged: &[Judged]) {
        let own = |id: &String| judged.iter().find(|(e, _)| e.id == *id);
        let own: Vec<&Judged> = round.experiments.iter().filter_map(own).collect();
        let Some(((first, verdict), more)) = own.split_first() else {
            return;
        };
        self.part("Proved");
        let style = self.style;
        let mut answer = |words: &str| self.text += &style.hang("  ", 5, words);
        for arm in 1..first.plan.arms.len() as u32 {
            let name = escape(first.plan.arm_name(arm));
            answer(&format!("{name}: {}", in_short(first, verdict, arm)));
        }
        for (experiment, verdict) in more {
            let proven = in_short(experiment, verdict, 1);
            answer(&format!(
                "Together against the best one alone, in fresh runs: {proven}"
            ));
        }
        let all: Vec<String> = round.experiments.iter().map(|id| shown(id)).collect();
        self.paragraph(&format!(
            "Valid for this path and this hour; 'linerate prove show {}' shows every run.",
            all.join("', 'linerate prove show ")
        ));
    }

    fn end(&mut self, story: &Tuning) {
        let mut kept: Vec<String> = Vec::new();
        for reading in &story.kept {
            let (setting, found) = (glue(escape(&reading.setting)), escape(&reading.found));
            let whose = host(reading.side);
            kept.push(match reading.in_force {
                true => format!("{setting} {whose}, in force"),
                false => format!("{setting} {whose}, but it is {found}"),
            });
        }
        if !kept.is_empty() {
            // In a lab both hosts are namespaces, which 'tune undo' without its name does not reach.
            let remote =
                story.kept.iter().any(|r| r.side == Side::Remote) || story.host.starts_with("lab:");
            let named = [&story.host[..], &story.reached_by].join(" ");
            let host = remote.then(|| format!(" {}", escape_sentence(named.trim_end())));
            let until = glue(format!("'linerate tune undo{}'", host.unwrap_or_default()));
            kept.push(match story.lasting[..] {
                [] => format!("Until {until} or until reboot: --persist keeps it."),
                _ => format!("Until {until}; what brings it back when the host starts is below."),
            });
        }
        let of = |fate, words: &str| {
            let all = titles(story, fate);
            (!all.is_empty()).then(|| format!("{all}: {words}"))
        };
        let open = of(
            Fate::Recommended,
            "it helps linerate's own connections. For others set what is proposed above, or the same option in the application.",
        );
        let undone = [
            of(Fate::Undone, "not proven."),
            of(
                Fate::Surpassed,
                "it helps, and adds nothing to what does more.",
            ),
        ];
        let lasting = story.lasting.iter().map(|reading| {
            let (setting, found) = (escape(&reading.setting), escape_sentence(&reading.found));
            let written = if reading.in_force { "written to " } else { "" };
            format!("{setting} {}: {written}{found}.", host(reading.side))
        });
        self.lines("Kept", kept);
        self.lines("Proven, and for you to set", open);
        self.lines("Undone", undone.into_iter().flatten());
        self.lines("Now", last(story).map(goodput_words));
        self.lines("For good", lasting);
        for w in &story.warnings {
            let (what, remedy) = (escape_sentence(&w.what), escape_sentence(&w.remedy));
            self.paragraph(&format!("! {what}: {remedy}."));
        }
        let last = match (&story.ended, story.kept.is_empty()) {
            (Ended::Complete, _) if story.dry_run => "Nothing was changed: a dry run.",
            (Ended::Complete, true) => "Nothing was changed for good: all settings restored.",
            (Ended::Complete, false) => "All other settings restored.",
            _ => "It broke off; what was not kept is undone.",
        };
        self.text += &format!("\n{}", self.style.prose(last));
    }
}

fn goodput_words(look: &Look) -> String {
    format!("{} (run {}).", seen(look), shown(&look.run))
}

fn host(side: Side) -> &'static str {
    match side {
        Side::Local => "on this host",
        Side::Remote => "on the remote host",
    }
}

/// Without the place, which stands beside it.
fn plain(setting: &Setting) -> String {
    format!(
        "{}={}",
        setting.knob,
        setting.knob.format_value(&setting.value)
    )
}

fn list(settings: &[Setting]) -> String {
    let all: Vec<String> = settings.iter().map(|s| glue(plain(s))).collect();
    all.join(", ")
}

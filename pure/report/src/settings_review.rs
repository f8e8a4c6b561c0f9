//! What the settings of the hosts of a path are worth, in words: what does harm first, each with its reason.

use crate::words::{Ink, Style, escape, escape_sentence};
use model::advice::{AuditReport, Guidance, HostAudit, Item, Needs, Setter, Worth};
use model::{Direction, Side};

/// For people.
pub fn text(report: &AuditReport, style: Style) -> String {
    let mut out = style.bold(&answer(report)) + "\n";
    let needs = report.advice.iter().map(|advice| needs(&advice.needs));
    out.extend(needs.map(|needs| style.hang("", 2, &needs)));
    let hosts = report.hosts.iter();
    out.extend(hosts.map(|host| format!("\n{}", of_host(host, style))));
    let mut beside: Vec<&String> = Vec::new();
    let otherwise = report.advice.iter().flat_map(|a| &a.otherwise);
    for sentence in otherwise.chain(&report.doubts) {
        if !beside.contains(&sentence) {
            beside.push(sentence);
        }
    }
    if !beside.is_empty() {
        out += "\nBeside the settings:\n";
    }
    let items = beside.into_iter();
    out.extend(items.map(|sentence| style.item(&escape_sentence(sentence))));
    out
}

fn answer(report: &AuditReport) -> String {
    let items = || report.hosts.iter().flat_map(|host| &host.items);
    let count = |worth| items().filter(|item| item.worth == worth).count();
    let counts = [
        (Worth::Harmful, "does harm", "do harm", " on this path"),
        (Worth::Raise, "is", "are", " worth raising"),
        (Worth::Pointless, "does", "do", " nothing for it"),
    ];
    let parts = counts.map(|(worth, one, many, what)| match count(worth) {
        0 => None,
        1 => Some(format!("1 setting {one}{what}")),
        n => Some(format!("{n} settings {many}{what}")),
    });
    let parts = parts.into_iter().flatten();
    match &parts.collect::<Vec<_>>()[..] {
        [] => "Every setting that was looked at is as it should be for this path.".to_owned(),
        parts => format!("{}. Nothing was changed.", parts.join(", ")),
    }
}

fn needs(needs: &Needs) -> String {
    let way = match needs.direction {
        Direction::Up => "up (from this host)",
        Direction::Down => "down (to this host)",
    };
    format!(
        "{way}: {}; this takes {} of buffer at the receiver and {} at the sender",
        needs.in_flight(),
        needs.receive_buffer,
        needs.send_buffer
    )
}

fn of_host(host: &HostAudit, style: Style) -> String {
    let which = match host.side {
        Side::Local => "This host",
        Side::Remote => "The remote host",
    };
    let (name, kernel) = (escape(&host.hostname), escape(&host.kernel));
    let title = style.paint(Ink::Bold, &format!("{which}: {name}, {kernel}"));
    let items = host.items.iter().map(|item| of_item(item, style));
    let notes = host.others.iter();
    let notes = notes.map(|other| style.hang("  note: ", INDENT.len(), &escape_sentence(other)));
    format!("{title}\n") + &items.chain(notes).collect::<String>()
}

const INDENT: &str = "            ";

fn of_item(item: &Item, style: Style) -> String {
    let wanted = item.wanted.as_ref();
    let wanted = wanted.map(|wanted| format!("  ->  {}", escape(wanted)));
    let worth = format!("{:<10}", item.worth);
    let worth = match item.worth {
        Worth::Harmful => style.paint(Ink::Red, &worth),
        Worth::Raise => style.paint(Ink::Yellow, &worth),
        Worth::Pointless => worth,
        Worth::Keep => style.paint(Ink::Faint, &worth),
    };
    let (name, now) = (escape(&item.name), escape(&item.now));
    let mut out = format!("  {worth}{name} = {now}{}\n", wanted.unwrap_or_default());
    let mut line = |text: &str| out += &style.hang(INDENT, INDENT.len(), text);
    if !item.why.is_empty() {
        line(&escape_sentence(&item.why));
    }
    let default = item.default.as_ref();
    if let Some(default) = default.filter(|default| **default != item.now) {
        line(&format!("this kernel's default: {}", escape(default)));
    }
    if let Some((won, beaten)) = item.set_by.split_last() {
        line(&set_by(won, beaten, &item.now));
    }
    // Of a setting that may stay only advice against it is worth a line; JSON has all.
    let worth_a_line =
        |g: &&Guidance| item.worth != Worth::Keep || g.worth == Worth::Harmful || g.lowers;
    for guide in item.guides.iter().filter(worth_a_line) {
        let (value, why) = (escape(&guide.value), escape_sentence(&guide.why));
        let (guide, worth) = (&guide.guide, guide.worth);
        line(&format!("{guide}: {value}: {worth}; {why}"));
    }
    out
}

fn set_by(won: &Setter, beaten: &[Setter], now: &str) -> String {
    let place = |setter: &Setter| format!("{}:{}", escape(&setter.path), setter.line);
    let mut text = format!("set at the start by {}", place(won));
    if !beaten.is_empty() {
        let all: Vec<String> = beaten.iter().map(place).collect();
        text += &format!(", which wins over {}", all.join(", "));
    }
    // Sizes may be written in another way than the kernel's.
    let number = |text: &str| text.parse::<model::Bytes>().ok();
    let same = won.value == now || number(&won.value).is_some_and(|n| Some(n) == number(now));
    if !same {
        let value = escape(&won.value);
        text += &format!("; it says {value}, so something else has set it since");
    }
    text
}

#[cfg(test)]
pub(crate) mod tests;

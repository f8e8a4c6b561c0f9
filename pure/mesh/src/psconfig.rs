//! A mesh file from a template of pSConfig (perfSONAR): <https://docs.perfsonar.net/psconfig_templates_intro.html>.
//!
//! Taken over are addresses with their labels, hosts, groups (mesh, disjoint), tests of throughput, and of latency,
//! latencybg, rtt and trace as light probes, schedules (`repeat`) and what is disabled. All else that has an effect is
//! named by its JSON pointer (RFC 6901).

use crate::iso_duration;
use model::Nanos;
use model::light::MAX_PACKETS;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

/// Cycle of a task without a schedule.
const USUAL_EVERY: Nanos = Nanos::from_secs(86_400);
/// That of one of light probes.
const LIGHT_EVERY: Nanos = Nanos::from_secs(60);
/// Duration of a throughput test without one (of pScheduler).
pub const THROUGHPUT_TIME: Nanos = Nanos::from_secs(10);

/// What became of a template.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PsconfigImport {
    /// The mesh file; empty if there was no test in it.
    pub toml: String,
    /// What has an effect there and none here.
    pub left_out: Vec<LeftOut>,
    /// Groups of two hosts: name, addresses, ordered pairs.
    pub groups: Vec<(String, usize, usize)>,
    /// Tasks that are disabled, by name.
    pub disabled: Vec<String>,
}

/// A part of a template that was not taken over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// JSON pointer.
    pub pointer: String,
    /// Why.
    pub why: String,
}

/// An address with a label, by their names.
type Member = (String, Option<String>);

/// Makes a mesh file of a template; `name` is that of the mesh.
///
/// # Errors
/// If the text is no JSON object.
pub fn import_psconfig(text: &str, name: &str) -> Result<PsconfigImport, String> {
    let template: Value = serde_json::from_str(text).map_err(|e| format!("it is not JSON: {e}"))?;
    let Value::Object(root) = template else {
        return Err("it is JSON, and no object as templates of pSConfig are".to_owned());
    };
    let mut import = Importer {
        root: &root,
        out: PsconfigImport::default(),
        names: BTreeMap::new(),
    };
    import.rest();
    let empty = Map::new();
    for (group, _) in import.table("groups").unwrap_or(&empty) {
        if let Some(pairs) = import.pairs(group) {
            let addresses = import.size(group);
            import
                .out
                .groups
                .push((group.clone(), addresses, pairs.len()));
        }
    }
    let mut tests = String::new();
    for (task, _) in import.table("tasks").unwrap_or(&empty) {
        tests += &import.task(task).unwrap_or_default();
    }
    if !tests.is_empty() {
        import.out.toml = format!(
            "[mesh]\nname = {}\n{}{tests}",
            quoted(&plain(name)),
            import.hosts()
        );
    }
    let mut known = BTreeSet::new();
    import
        .out
        .left_out
        .retain(|one| known.insert(one.pointer.clone()));
    Ok(import.out)
}

struct Importer<'a> {
    root: &'a Map<String, Value>,
    out: PsconfigImport,
    /// Names of hosts in the mesh file, of the members that tests use.
    names: BTreeMap<Member, String>,
}

impl<'a> Importer<'a> {
    fn table(&self, key: &str) -> Option<&'a Map<String, Value>> {
        object(self.root, key)
    }

    fn entry(&self, table: &str, key: &str) -> Option<&'a Map<String, Value>> {
        object(self.table(table)?, key)
    }

    fn leave_out(&mut self, pointer: &[&str], why: impl Into<String>) {
        let parts = pointer
            .iter()
            .map(|part| part.replace('~', "~0").replace('/', "~1"));
        let pointer = parts.map(|part| format!("/{part}")).collect();
        self.out.left_out.push(LeftOut {
            pointer,
            why: why.into(),
        });
    }

    /// Leaves out the keys of an object that are none of these; `_meta` has no effect.
    fn only(&mut self, pointer: &[&str], object: &Map<String, Value>, known: &[&str], why: &str) {
        for key in object.keys() {
            if !key.starts_with('_') && !known.contains(&key.as_str()) {
                self.leave_out(&[pointer, &[key]].concat(), why);
            }
        }
    }

    /// What is beside the tasks.
    fn rest(&mut self) {
        for (key, value) in self.root {
            let why = match key.as_str() {
                "addresses" | "groups" | "hosts" | "tests" | "schedules" | "tasks" => {
                    if !value.is_object() {
                        self.leave_out(&[key], "it is no object");
                    }
                    continue;
                }
                "archives" => "results are in linerate's own archive",
                "includes" => "no other file is fetched",
                "address-classes" => "a mesh file names its hosts",
                "contexts" => "tests run in the agent's own network namespace",
                "subtasks" => "a test has no parts",
                other if other.starts_with('_') => continue,
                _ => "it is not known",
            };
            let parts: Vec<&String> = value.as_object().into_iter().flat_map(Map::keys).collect();
            match parts.is_empty() {
                true => self.leave_out(&[key], why),
                false => parts
                    .iter()
                    .for_each(|part| self.leave_out(&[key, part], why)),
            }
        }
        for (name, host) in self.table("hosts").into_iter().flatten() {
            if let Some(host) = host.as_object() {
                self.only(
                    &["hosts", name],
                    host,
                    &["disabled", "tags"],
                    "it is not known, or of archives and agents",
                );
            }
        }
    }

    /// The members of a list of addresses of a group, without what is disabled.
    fn members(&mut self, group: &str, key: &str) -> Vec<Member> {
        let of_group = self.entry("groups", group);
        let label = of_group.and_then(|g| text(g, "default-address-label"));
        let list = of_group.and_then(|g| g.get(key)?.as_array());
        let mut members = Vec::new();
        for (at, selector) in list.into_iter().flatten().enumerate() {
            let at = at.to_string();
            let pointer = ["groups", group, key, &at];
            if selector.get("class").is_some() {
                self.leave_out(&pointer, "a mesh file names its hosts");
            } else if let Some(name) = selector.get("name").and_then(Value::as_str)
                && !is_disabled(selector.as_object())
                && let Some(member) = self.member(&pointer, name, selector.get("label"), label)
            {
                members.push(member);
            }
        }
        members
    }

    fn member(
        &mut self,
        pointer: &[&str],
        name: &str,
        label: Option<&Value>,
        usual: Option<&str>,
    ) -> Option<Member> {
        let Some(address) = self.entry("addresses", name) else {
            self.leave_out(pointer, format!("there is no address '{name}'"));
            return None;
        };
        let host = text(address, "host").and_then(|host| self.entry("hosts", host));
        if is_disabled(Some(address)) || is_disabled(host) {
            return None;
        }
        const KNOWN: [&str; 5] = ["address", "host", "labels", "disabled", "tags"];
        self.only(
            &["addresses", name],
            address,
            &KNOWN,
            "linerate's agents have one address each",
        );
        let labels = object(address, "labels");
        let has = |label: &&str| labels.is_some_and(|labels| labels.contains_key(*label));
        let label = match label.and_then(Value::as_str) {
            Some(label) if !has(&label) => {
                self.leave_out(
                    pointer,
                    format!("the address '{name}' has no label '{label}'"),
                );
                return None;
            }
            Some(label) => Some(label),
            None => usual.filter(has),
        };
        let labelled = label.and_then(|label| object(labels?, label));
        if is_disabled(labelled) {
            return None;
        }
        Some((name.to_owned(), label.map(str::to_owned)))
    }

    fn keys(&self, group: &str) -> Option<[&'static str; 2]> {
        match text(self.entry("groups", group)?, "type")? {
            "mesh" => Some(["addresses", "addresses"]),
            "disjoint" => Some(["a-addresses", "b-addresses"]),
            _ => None,
        }
    }

    /// How many addresses a group names.
    fn size(&self, group: &str) -> usize {
        let of_group = self.entry("groups", group);
        let mut keys: Vec<&str> = self.keys(group).into_iter().flatten().collect();
        keys.dedup();
        let list = |key: &&str| of_group?.get(*key)?.as_array().map(Vec::len);
        keys.iter().filter_map(list).sum()
    }

    /// The ordered pairs of a group; `None` for one whose tests have no destination.
    fn pairs(&mut self, group: &str) -> Option<BTreeSet<(Member, Member)>> {
        let of_group = self.entry("groups", group)?;
        let Some([a, b]) = self.keys(group) else {
            self.leave_out(
                &["groups", group],
                "only groups of type mesh and disjoint have pairs of hosts",
            );
            return None;
        };
        const KNOWN: [&str; 8] = [
            "type",
            "addresses",
            "a-addresses",
            "b-addresses",
            "unidirectional",
            "excludes",
            "excludes-self",
            "default-address-label",
        ];
        self.only(&["groups", group], of_group, &KNOWN, "it is not known");
        let scope = text(of_group, "excludes-self").unwrap_or("host");
        if scope == "disabled" {
            self.leave_out(
                &["groups", group, "excludes-self"],
                "a host does not measure towards itself",
            );
        }
        let (from, to) = (self.members(group, a), self.members(group, b));
        let host = |(name, _): &Member| {
            let host = text(self.entry("addresses", name)?, "host");
            host.map(str::to_owned)
        };
        let same = |a: &Member, b: &Member| {
            a == b || scope == "host" && host(a).is_some() && host(a) == host(b)
        };
        let mut pairs = BTreeSet::new();
        for (a, b) in from.iter().flat_map(|a| to.iter().map(move |b| (a, b))) {
            if !same(a, b) {
                pairs.insert((a.clone(), b.clone()));
            }
        }
        if of_group.get("unidirectional").and_then(Value::as_bool) != Some(true) {
            let turned: Vec<(Member, Member)> =
                pairs.iter().map(|(a, b)| (b.clone(), a.clone())).collect();
            pairs.extend(turned);
        }
        let excludes = of_group.get("excludes").and_then(Value::as_array);
        for (at, exclude) in excludes.into_iter().flatten().enumerate() {
            let selected = |selector: &Value, member: &Member| {
                let name = |key| selector.get(key).and_then(Value::as_str);
                name("name") == Some(&member.0)
                    && (name("label").is_none() || name("label") == member.1.as_deref())
            };
            let local = exclude.get("local-address");
            let targets = exclude.get("target-addresses").and_then(Value::as_array);
            let (Some(local), Some(targets)) = (local, targets) else {
                self.leave_out(
                    &["groups", group, "excludes", &at.to_string()],
                    "it names no addresses",
                );
                continue;
            };
            let by_class = [local]
                .into_iter()
                .chain(targets)
                .any(|one| one.get("class").is_some());
            if by_class {
                self.leave_out(
                    &["groups", group, "excludes", &at.to_string()],
                    "a mesh file names its hosts",
                );
            }
            pairs.retain(|(a, b)| {
                !(selected(local, a) && targets.iter().any(|target| selected(target, b)))
            });
        }
        Some(pairs)
    }

    /// The table of a task in a mesh file.
    fn task(&mut self, name: &str) -> Option<String> {
        let task = self.entry("tasks", name)?;
        if is_disabled(Some(task)) {
            self.out.disabled.push(name.to_owned());
            return None;
        }
        let why = "linerate chooses its own tools and keeps results itself";
        self.only(
            &["tasks", name],
            task,
            &["group", "test", "schedule", "disabled"],
            why,
        );
        let (Some(group), Some(test)) = (text(task, "group"), text(task, "test")) else {
            self.leave_out(&["tasks", name], "it names no group or no test");
            return None;
        };
        let Some(of_test) = self.entry("tests", test) else {
            self.leave_out(
                &["tasks", name, "test"],
                format!("there is no test '{test}'"),
            );
            return None;
        };
        let kind = text(of_test, "type").unwrap_or_default();
        let is_light = ["latency", "latencybg", "rtt", "trace"].contains(&kind);
        if kind != "throughput" && !is_light {
            let why = format!(
                "of the types of tests throughput, latency, latencybg, rtt and trace are taken over, not '{kind}'"
            );
            self.leave_out(&["tests", test, "type"], why);
            return None;
        }
        if kind == "trace" {
            let why = "light probes find RTT, loss and MTU, not the hops";
            self.leave_out(&["tests", test, "type"], why);
        }
        if self.entry("groups", group).is_none() {
            self.leave_out(
                &["tasks", name, "group"],
                format!("there is no group '{group}'"),
            );
        }
        let options = match is_light {
            true => self.light_options(test, of_test)?,
            false => self.options(test, of_test)?,
        };
        let every = match text(task, "schedule") {
            None if is_light => span_text(LIGHT_EVERY),
            schedule => self.every(name, schedule),
        };
        let pairs = self.pairs(group)?;
        if pairs.is_empty() {
            self.leave_out(&["groups", group], "it has no pair of two hosts");
            return None;
        }
        let of_test = format!("\n[[test]]\nname = {}\n", quoted(&plain(name)));
        let hosts = self.hosts_of(&pairs, is_light);
        let every = line("every", quoted(&every));
        Some([of_test, hosts, options, every].concat())
    }

    /// The options of a throughput test; `None` if one of those that matter cannot be read.
    fn options(&mut self, name: &str, test: &Map<String, Value>) -> Option<String> {
        let spec = object(test, "spec");
        let is_udp = spec.and_then(|spec| spec.get("udp")?.as_bool()) == Some(true);
        let mut lines = Vec::from_iter(is_udp.then(|| line("kind", quoted("udp"))));
        let mut time = THROUGHPUT_TIME;
        for (key, value) in spec.into_iter().flatten() {
            let pointer = ["tests", name, "spec", key.as_str()];
            let is_template = value.to_string().contains("{%");
            let number = value.as_u64();
            let duration = value.as_str().and_then(iso_duration).filter(is_any);
            let taken = match key.as_str() {
                "source" | "dest" | "schema" | "udp" => continue,
                other if other.starts_with('_') => continue,
                _ if is_template => {
                    self.leave_out(&pointer, "its value is a template");
                    return None;
                }
                "duration" if duration.is_some() => {
                    time = duration.unwrap_or(time);
                    continue;
                }
                "interval" => duration.map(|span| line("interval", seconds(span))),
                "omit" => duration.map(|span| line("ramp", seconds(span))),
                "parallel" => number.map(|n| line("streams", n)),
                "ip-version" => number.map(|n| line("ip_version", n)),
                "congestion" => value.as_str().map(|name| line("congestion", quoted(name))),
                "bandwidth" => number.map(|rate| line("rate", quoted(&rate.to_string()))),
                "window-size" if !is_udp => {
                    number.map(|size| line("sockbuf", quoted(&size.to_string())))
                }
                "buffer-length" if is_udp => {
                    number.map(|size| line("datagram_size", quoted(&size.to_string())))
                }
                // Both directions of each pair are measured anyway, where both are in the group.
                "reverse" if value.as_bool() == Some(false) => continue,
                _ => None,
            };
            if taken.is_none() {
                let why = "a mesh file has no such option, or not this value";
                self.leave_out(&pointer, why);
            }
            lines.extend(taken);
        }
        lines.push(line("time", seconds(time)));
        Some(lines.concat())
    }

    /// The options of a test that light probes replace; `None` if one of those that matter cannot be read.
    fn light_options(&mut self, name: &str, test: &Map<String, Value>) -> Option<String> {
        let mut lines = vec![line("kind", quoted("light"))];
        for (key, value) in object(test, "spec").into_iter().flatten() {
            let pointer = ["tests", name, "spec", key.as_str()];
            match key.as_str() {
                "source" | "dest" | "schema" => {}
                other if other.starts_with('_') => {}
                _ if value.to_string().contains("{%") => {
                    self.leave_out(&pointer, "its value is a template");
                    return None;
                }
                // Of latency and of rtt; each of a trace is sent to every hop.
                "packet-count" | "count" => match value.as_u64() {
                    Some(count) if (1..=u64::from(MAX_PACKETS)).contains(&count) => {
                        lines.push(line("packets", count));
                    }
                    _ => {
                        let why = format!("1 to {MAX_PACKETS} packets are possible");
                        self.leave_out(&pointer, why);
                    }
                },
                "ip-version" if value.is_u64() => lines.push(line("ip_version", value)),
                _ => self.leave_out(&pointer, "light probes have no such option"),
            }
        }
        Some(lines.concat())
    }

    /// The cycle of a task.
    fn every(&mut self, task: &str, schedule: Option<&str>) -> String {
        let Some(name) = schedule else {
            return span_text(USUAL_EVERY);
        };
        let Some(schedule) = self.entry("schedules", name) else {
            self.leave_out(
                &["tasks", task, "schedule"],
                format!("there is no schedule '{name}'"),
            );
            return span_text(USUAL_EVERY);
        };
        // A coordinator chooses the time within the cycle: that is what slip allows.
        let known = ["repeat", "slip", "sliprand"];
        self.only(
            &["schedules", name],
            schedule,
            &known,
            "rounds begin at the mesh's epoch, and repeat",
        );
        let repeat = text(schedule, "repeat");
        match repeat.and_then(iso_duration).filter(is_any) {
            Some(every) => span_text(every),
            None => {
                self.leave_out(
                    &["schedules", name, "repeat"],
                    "it is no duration like PT4H",
                );
                span_text(USUAL_EVERY)
            }
        }
    }

    /// Who measures whom.
    fn hosts_of(&mut self, pairs: &BTreeSet<(Member, Member)>, is_light: bool) -> String {
        let distinct =
            |members: BTreeSet<&Member>| members.into_iter().cloned().collect::<Vec<Member>>();
        let from = distinct(pairs.iter().map(|(a, _)| a).collect());
        let to = distinct(pairs.iter().map(|(_, b)| b).collect());
        let is_mutual = pairs
            .iter()
            .all(|(a, b)| pairs.contains(&(b.clone(), a.clone())));
        let mut left: Vec<(&Member, &Member)> = Vec::new();
        for (a, b) in from.iter().flat_map(|a| to.iter().map(move |b| (a, b))) {
            // The pairs of light probes are ordered.
            let once = !is_mutual || is_light || a < b;
            if a != b && once && !pairs.contains(&(a.clone(), b.clone())) {
                left.push((a, b));
            }
        }
        let mut name = |member: &Member| {
            let text = match &member.1 {
                None => member.0.clone(),
                Some(label) => format!("{}-{label}", member.0),
            };
            let name = plain(&text);
            self.names.insert(member.clone(), name.clone());
            quoted(&name)
        };
        let mut list = |members: &[Member]| {
            let names: Vec<String> = members.iter().map(&mut name).collect();
            format!("[{}]", names.join(", "))
        };
        let mut lines = match is_mutual {
            true => vec![line("hosts", list(&from))],
            false => vec![line("from", list(&from)), line("to", list(&to))],
        };
        if !left.is_empty() {
            let pair = |(a, b): &(&Member, &Member)| list(&[(*a).clone(), (*b).clone()]);
            let pairs: Vec<String> = left.iter().map(pair).collect();
            lines.push(line("except", format!("[{}]", pairs.join(", "))));
        }
        lines.concat()
    }

    /// The hosts that tests use.
    fn hosts(&self) -> String {
        let host = |((address, label), name): (&Member, &String)| {
            let of = self.entry("addresses", address);
            let of = match label {
                None => of,
                Some(label) => of.and_then(|of| object(object(of, "labels")?, label)),
            };
            let agent = of.and_then(|of| text(of, "address")).unwrap_or(address);
            let lines = line("name", quoted(name)) + &line("agent", quoted(agent));
            format!("\n[[host]]\n{lines}")
        };
        self.names.iter().map(host).collect()
    }
}

fn object<'v>(of: &'v Map<String, Value>, key: &str) -> Option<&'v Map<String, Value>> {
    of.get(key)?.as_object()
}

fn text<'v>(of: &'v Map<String, Value>, key: &str) -> Option<&'v str> {
    of.get(key)?.as_str()
}

/// A line of a mesh file.
fn line(key: &str, value: impl Display) -> String {
    format!("{key} = {value}\n")
}

fn is_any(span: &Nanos) -> bool {
    *span > Nanos(0)
}

fn is_disabled(object: Option<&Map<String, Value>>) -> bool {
    object.and_then(|object| object.get("disabled")?.as_bool()) == Some(true)
}

/// A span as a mesh file has it.
fn span_text(span: Nanos) -> String {
    let seconds = span.0.div_ceil(1_000_000_000);
    for (unit, length) in [("d", 86_400), ("h", 3600), ("m", 60)] {
        if seconds.is_multiple_of(length) {
            return format!("{}{unit}", seconds / length);
        }
    }
    format!("{seconds}s")
}

fn seconds(span: Nanos) -> String {
    quoted(&format!("{}ms", span.0 / 1_000_000).replace("000ms", "s"))
}

/// A name as mesh files have them.
fn plain(name: &str) -> String {
    let plain = |c: char| match c.to_ascii_lowercase() {
        c if c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c) => c,
        _ => '-',
    };
    let name: String = name.chars().take(64).map(plain).collect();
    if name.is_empty() {
        "mesh".to_owned()
    } else {
        name
    }
}

/// A string as TOML has it: a JSON string is one, but for DEL.
fn quoted(text: &str) -> String {
    Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

#[cfg(test)]
mod tests;

//! A mesh file from a template of pSConfig (perfSONAR): <https://docs.perfsonar.net/psconfig_templates_intro.html>.
//!
//! Taken over are addresses with their labels, hosts, groups (mesh, disjoint), tests of throughput, and of latency,
//! latencybg, rtt and trace as light probes, schedules (`repeat`) and what is disabled. All else that has an effect is
//! named by its JSON pointer (RFC 6901).

use crate::iso_duration;
use model::light::MAX_PACKETS;
use model::{BitRate, Bytes, Nanos};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

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
        self.root.get(key)?.as_object()
    }

    fn entry(&self, table: &str, key: &str) -> Option<&'a Map<String, Value>> {
        self.table(table)?.get(key)?.as_object()
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
        let label = of_group.and_then(|g| g.get("default-address-label")?.as_str());
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
        let host = address.get("host").and_then(Value::as_str);
        let host = host.and_then(|host| self.entry("hosts", host));
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
        let labels = address.get("labels").and_then(Value::as_object);
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
        let labelled = label.and_then(|label| labels?.get(label)?.as_object());
        if is_disabled(labelled) {
            return None;
        }
        Some((name.to_owned(), label.map(str::to_owned)))
    }

    fn keys(&self, group: &str) -> Option<[&'static str; 2]> {
        match self.entry("groups", group)?.get("type")?.as_str()? {
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
        let scope = of_group
            .get("excludes-self")
            .and_then(Value::as_str)
            .unwrap_or("host");
        if scope == "disabled" {
            self.leave_out(
                &["groups", group, "excludes-self"],
                "a host does not measure towards itself",
            );
        }
        let (from, to) = (self.members(group, a), self.members(group, b));
        let host = |(name, _): &Member| {
            let host = self
                .entry("addresses", name)
                .and_then(|address| address.get("host")?.as_str());
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
        let named = |key: &str| task.get(key).and_then(Value::as_str);
        let (Some(group), Some(test)) = (named("group"), named("test")) else {
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
        let kind = of_test
            .get("type")
            .and_then(Value::as_str)
            .unwrap_or_default();
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
        let every = match named("schedule") {
            None if is_light => span_text(LIGHT_EVERY),
            schedule => self.every(name, schedule),
        };
        let pairs = self.pairs(group)?;
        if pairs.is_empty() {
            self.leave_out(&["groups", group], "it has no pair of two hosts");
            return None;
        }
        let mut text = format!("\n[[test]]\nname = {}\n", quoted(&plain(name)));
        text += &self.hosts_of(&pairs, is_light);
        text += &options;
        writeln!(text, "every = {}", quoted(&every)).expect("a string grows");
        Some(text)
    }

    /// The options of a throughput test; `None` if one of those that matter cannot be read.
    fn options(&mut self, name: &str, test: &Map<String, Value>) -> Option<String> {
        let empty = Map::new();
        let spec = test
            .get("spec")
            .and_then(Value::as_object)
            .unwrap_or(&empty);
        let is_udp = spec.get("udp").and_then(Value::as_bool) == Some(true);
        let mut text = String::new();
        let mut line =
            |key: &str, value: String| writeln!(text, "{key} = {value}").expect("a string grows");
        if is_udp {
            line("kind", quoted("udp"));
        }
        let mut time = THROUGHPUT_TIME;
        for (key, value) in spec {
            let pointer = ["tests", name, "spec", key.as_str()];
            let is_template = value.to_string().contains("{%");
            let number = value.as_u64();
            let duration = value.as_str().and_then(iso_duration).filter(is_any);
            let done = match key.as_str() {
                "source" | "dest" | "schema" | "udp" => true,
                other if other.starts_with('_') => true,
                _ if is_template => {
                    self.leave_out(&pointer, "its value is a template");
                    return None;
                }
                "duration" => duration.map(|span| time = span).is_some(),
                "interval" => duration
                    .map(|span| line("interval", seconds(span)))
                    .is_some(),
                "omit" => duration.map(|span| line("ramp", seconds(span))).is_some(),
                "parallel" => number.map(|n| line("streams", n.to_string())).is_some(),
                "ip-version" => number.map(|n| line("ip_version", n.to_string())).is_some(),
                "congestion" => value
                    .as_str()
                    .map(|name| line("congestion", quoted(name)))
                    .is_some(),
                "bandwidth" => number
                    .map(|rate| line("rate", quoted(&BitRate(rate).0.to_string())))
                    .is_some(),
                "window-size" if !is_udp => number
                    .map(|size| line("sockbuf", quoted(&Bytes(size).0.to_string())))
                    .is_some(),
                "buffer-length" if is_udp => number
                    .map(|size| line("datagram_size", quoted(&size.to_string())))
                    .is_some(),
                // Both directions of each pair are measured anyway, where both are in the group.
                "reverse" => value.as_bool() == Some(false),
                _ => false,
            };
            if !done {
                self.leave_out(
                    &pointer,
                    "a mesh file has no such option, or not this value",
                );
            }
        }
        line("time", seconds(time));
        Some(text)
    }

    /// The options of a test that light probes replace; `None` if one of those that matter cannot be read.
    fn light_options(&mut self, name: &str, test: &Map<String, Value>) -> Option<String> {
        let mut text = "kind = \"light\"\n".to_owned();
        let spec = test.get("spec").and_then(Value::as_object);
        for (key, value) in spec.into_iter().flatten() {
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
                        writeln!(text, "packets = {count}").expect("a string grows");
                    }
                    _ => {
                        let why = format!("1 to {MAX_PACKETS} packets are possible");
                        self.leave_out(&pointer, why);
                    }
                },
                "ip-version" if value.is_u64() => {
                    writeln!(text, "ip_version = {value}").expect("a string grows");
                }
                _ => self.leave_out(&pointer, "light probes have no such option"),
            }
        }
        Some(text)
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
        let repeat = schedule.get("repeat").and_then(Value::as_str);
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
            members
                .iter()
                .map(&mut name)
                .collect::<Vec<String>>()
                .join(", ")
        };
        let mut text = match is_mutual {
            true => format!("hosts = [{}]\n", list(&from)),
            false => format!("from = [{}]\nto = [{}]\n", list(&from), list(&to)),
        };
        if !left.is_empty() {
            let pair =
                |(a, b): &(&Member, &Member)| format!("[{}]", list(&[(*a).clone(), (*b).clone()]));
            let pairs: Vec<String> = left.iter().map(pair).collect();
            writeln!(text, "except = [{}]", pairs.join(", ")).expect("a string grows");
        }
        text
    }

    /// The hosts that tests use.
    fn hosts(&self) -> String {
        let mut text = String::new();
        for ((address, label), name) in &self.names {
            let of = self.entry("addresses", address);
            let of = match label {
                None => of,
                Some(label) => of.and_then(|of| of.get("labels")?.get(label)?.as_object()),
            };
            let agent = of
                .and_then(|of| of.get("address")?.as_str())
                .unwrap_or(address);
            write!(
                text,
                "\n[[host]]\nname = {}\nagent = {}\n",
                quoted(name),
                quoted(agent)
            )
            .expect("a string grows");
        }
        text
    }
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

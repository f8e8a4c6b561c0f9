//! The JSON forms: a whole run, and one line an event while it runs. `docs/json.md` is their manual.

use crate::prelude::*;
use crate::words::is_unprintable;
use model::Event;
use std::fmt::Write as _;

/// These variables as the keys of a JSON object, in this order; with `#[serde(flatten)]` the keys of one.
macro_rules! document {
    ($($(#[$how:meta])* $key:ident),* $(,)?) => {{
        #[allow(non_camel_case_types)] // the type of a key is called as the key
        let document = {
            #[derive(serde::Serialize)]
            struct JsonDocument<$($key),*> {
                $($(#[$how])* $key: $key),*
            }
            JsonDocument { $($key),* }
        };
        document
    }};
}
pub(crate) use document;

/// A run as one document over several lines: the fields of [`Run`], and its [`Summary`] under `summary`.
pub fn run(run: &Run, summary: &Summary) -> String {
    pretty(&document!(
        #[serde(flatten)]
        run,
        summary
    ))
}

/// The same without samples: the text before those of each end, by leg, the local one first, and the text behind all.
/// What is between is [`sample`], and [`SAMPLES_END`] behind the last.
pub fn around_samples(run: &Run, summary: &Summary) -> Vec<String> {
    const NONE: &str = "\"samples\": []";
    let mut bare = run.clone();
    for leg in &mut bare.legs {
        leg.local.samples.clear();
        leg.remote.samples.clear();
    }
    // In a string its quotes would be escaped.
    let text = self::run(&bare, summary);
    let parts: Vec<&str> = text.split(NONE).collect();
    let (open, close) = NONE.split_at(NONE.len() - 1);
    let place = |(n, part): (usize, &&str)| {
        let before = if n > 0 { close } else { "" };
        let behind = if n + 1 < parts.len() { open } else { "" };
        format!("{before}{part}{behind}")
    };
    parts.iter().enumerate().map(place).collect()
}

/// A sample in the document of its run.
pub fn sample(sample: &Sample, is_first: bool) -> String {
    let comma = if is_first { "" } else { "," };
    let text = pretty(sample);
    let lines = text.lines().map(|line| format!("\n          {line}"));
    comma.to_owned() + &lines.collect::<String>()
}

/// Behind the last sample of an end.
pub const SAMPLES_END: &str = "\n        ";

/// Any document over several lines, the way that [`run`] prints; ends with a line feed.
pub fn pretty(document: &impl Serialize) -> String {
    let mut text = serde_json::to_string_pretty(document).expect(NEVER_FAILS);
    text.push('\n');
    inert(&text)
}

/// Any document on a line of its own.
pub(crate) fn compact(document: &impl Serialize) -> String {
    let mut text = serde_json::to_string(document).expect(NEVER_FAILS);
    text.push('\n');
    inert(&text)
}

/// The first line of `--json-stream`: the run before it starts.
pub fn start(run: &Run) -> String {
    let (event, schema, id, started_unix_ns) = ("start", run.schema, &run.id, run.started);
    let (host, spec) = (&run.host, &run.spec);
    match &run.title {
        Some(title) => compact(&document!(
            event,
            schema,
            id,
            started_unix_ns,
            host,
            title,
            spec
        )),
        None => compact(&document!(event, schema, id, started_unix_ns, host, spec)),
    }
}

/// The line of an event; `None` of a trace, which is too long for one.
pub fn event(happened: &Event<'_>) -> Option<String> {
    match *happened {
        Event::Traced { .. } => None,
        // The samples were lines of their own.
        Event::LegEnded {
            index: leg,
            leg: of,
        } => {
            let (event, record) = ("leg_ended", without_samples(of));
            Some(compact(&document!(event, leg, record)))
        }
        _ => Some(compact(happened)),
    }
}

/// The last line, from the finished run.
pub fn end(run: &Run, summary: &Summary) -> String {
    let (event, id, ended) = ("end", &run.id, &run.ended);
    compact(&document!(event, id, ended, summary))
}

/// A leg without the samples of its ends.
fn without_samples(leg: &Leg) -> Value {
    let mut record = serde_json::to_value(leg).expect(NEVER_FAILS);
    for side in ["local", "remote"] {
        if let Some(end) = record[side].as_object_mut() {
            end.remove("samples");
        }
    }
    record
}

const NEVER_FAILS: &str = "the nouns have string keys and no serialiser that fails";

/// JSON escapes C0 only; a terminal also obeys C1, and a person the invisible. Both can occur inside
/// strings alone, so writing them as `\uXXXX` keeps the document the same.
fn inert(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c != '\n' && is_unprintable(c) {
            let mut units = [0u16; 2];
            for unit in c.encode_utf16(&mut units) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod field_tests;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, LAN};
    use model::finding::{self, EvidenceKey};
    use model::*;
    use serde_json::{Value, json};
    use std::collections::{BTreeMap, BTreeSet};

    type Keys = BTreeSet<String>;

    const UPDATE: &str = "run UPDATE_DOCS=1 cargo test -p linerate-report documented_from, which writes the fields \
        of types; other keys are written by hand";

    /// The sections of docs/json.md with the keys of their tables.
    fn documented() -> BTreeMap<String, Keys> {
        let mut sections = BTreeMap::new();
        let mut section = String::new();
        for line in include_str!("../../../docs/json.md").lines() {
            if let Some(name) = line.strip_prefix("### `") {
                section = name.trim_end_matches('`').to_owned();
                let before = sections.insert(section.clone(), Keys::new());
                assert_eq!(before, None, "{section} is documented twice");
            } else if line.starts_with('#') {
                // Tables of names, written from their types.
                section.clear();
            } else if let Some((key, _)) = line.strip_prefix("| `").and_then(|l| l.split_once('`'))
                && let Some(keys) = sections.get_mut(&section)
            {
                assert!(
                    keys.insert(key.to_owned()),
                    "{section}.{key} is documented twice"
                );
            }
        }
        sections
    }

    fn keys(of: &Value) -> Keys {
        of.as_object().expect("an object").keys().cloned().collect()
    }

    fn strings() -> BTreeMap<String, String> {
        [("net.example".to_owned(), "1".to_owned())].into()
    }

    #[test]
    fn a_run_in_parts_is_the_run() {
        let run = full();
        let summary = summarise(&run);
        let mut parts = around_samples(&run, &summary).into_iter();
        let mut text = parts.next().unwrap();
        for end in run.legs.iter().flat_map(|leg| [&leg.local, &leg.remote]) {
            for (n, one) in end.samples.iter().enumerate() {
                text += &sample(one, n == 0);
            }
            text += if end.samples.is_empty() {
                ""
            } else {
                SAMPLES_END
            };
            text += &parts.next().unwrap();
        }
        assert_eq!(text, super::run(&run, &summary));
    }

    /// A run in which nothing is left out.
    fn full() -> Run {
        let mut leg = testing::request_leg(100);
        leg.ended = Ended::Failed {
            why: "it broke".to_owned(),
        };
        for end in [&mut leg.local, &mut leg.remote] {
            end.requests = Some(testing::latencies(10));
            end.datagrams = Some(Datagrams::default());
            end.arrivals = Some(Arrivals {
                delay_variation: testing::latencies(10),
                ..Arrivals::default()
            });
            end.operations = testing::reported_by_server();
            end.store = Some(StoreRecord::default());
            end.line = Some(model::LineErrors::default());
            end.trace = Some(model::Traced::default());
            end.copy = Some(CopyRecord {
                span: Nanos(1),
                ..CopyRecord::default()
            });
            end.retransmits = Some(1);
            end.acknowledged = Some(Nanos(1));
            end.thinned_from = Some(9);
            end.warnings = vec![testing::warning("a", "b", "c")];
            end.samples[1].requests = Some(testing::latencies(10));
            end.samples[1].datagrams = Some(Datagrams::default());
            let stream = &mut end.samples[1].streams[0];
            stream.send_buffer = Some(Bytes(1));
            stream.receive_buffer = Some(Bytes(1));
        }
        let mut run = testing::run(testing::spec(), vec![leg]);
        (run.local_id, run.remote_id) = (Some(NodeId::new([1; 32])), Some(NodeId::new([2; 32])));
        run.title = Some("all of it".to_owned());
        run.experiment = Some("0000beef".to_owned());
        run.warnings = vec![testing::warning("d", "e", "f")];
        run.local.unread = vec![Unread {
            what: "a".to_owned(),
            why: "b".to_owned(),
        }];
        run.local.sysctls = strings();
        run.local.route = Some(Route {
            metrics: strings(),
            ..Route::default()
        });
        run.local.device = Some(Device {
            offloads: [("tso".to_owned(), true)].into(),
            ..Device::default()
        });
        run
    }

    /// Which section describes the object under `key` of an object that `parent` describes.
    fn section(parent: &str, key: &str, value: &Value) -> Option<&'static str> {
        Some(match (parent, key) {
            ("run" | "start", "spec") => "spec",
            ("run" | "hosts", "local" | "remote") => "fingerprint",
            ("run", "legs") | ("leg_ended", "record") => "leg",
            ("run" | "end" | "summary", "warnings") | ("warned", "warning") => "warning",
            (_, "ended") => "ended",
            ("run" | "finished", "summary") => "summary",
            ("spec", "workload") => match value["kind"].as_str() {
                Some("bulk") => "bulk",
                Some("request") => "request",
                Some("udp") => "udp",
                Some("copy") => "copy",
                Some("blocks") if value.get("export").is_some() => "nfs_blocks",
                Some("blocks") => "blocks",
                _ => return None,
            },
            ("spec", "limit") => "limit",
            ("spec", "socket") => "socket_settings",
            ("spec", "local" | "remote") => "placement",
            ("fingerprint", "cpu") => "cpu",
            ("fingerprint", "route") => "route",
            ("fingerprint", "device") => "device",
            ("fingerprint", "congestion") => "congestion",
            ("fingerprint", "unread") => "unread",
            ("leg", "local" | "remote") => "end",
            ("end", "sockets") => "socket",
            ("end", "samples") | ("sample_taken", "sample") => "sample",
            ("end" | "sample", "requests") => "latency",
            ("end" | "sample" | "leg_summary", "datagrams") => "datagrams",
            ("end", "arrivals") => "arrivals",
            ("arrivals", "delay_variation") => "latency",
            ("leg_summary", "arrivals") => "arrival_summary",
            ("end", "copy") => "copy_record",
            ("depths", "depths") => "depth",
            ("depth", "requests") => "latency_summary",
            ("depth", "operations") => "block_summary",
            ("end", "line") => "line_errors",
            ("corners", "corners") => "corner",
            ("corner", "order") => "copy",
            ("corner", "copies") => "copy_summary",
            ("end", "operations") => "block_record",
            ("block_record" | "server_record", "latency" | "storage") => "latency",
            ("block_record", "at_server") => "server_record",
            ("block_summary", "split") => "block_split",
            ("block_split", "storage_latency") => "latency_summary",
            ("end", "store") => "store_record",
            ("leg_summary", "operations") => "block_summary",
            ("block_summary", "latency") => "latency_summary",
            ("leg_summary", "copy") => "copy_summary",
            ("copy_summary", "stages") => "stage",
            ("end", "trace") => "traced",
            ("end", "signed") => "signature",
            ("sample", "streams") => "stream",
            ("sample", "cpu") => "cpu_times",
            ("stream", "tcp") => "socket_state",
            ("summary", "legs") => "leg_summary",
            ("leg_summary", "sender_cpu" | "receiver_cpu") => "cpu_use",
            ("leg_summary", "requests") => "latency_summary",
            ("leg_summary", "settings") => "setting",
            ("mesh_checked", "tests") => "checked_test",
            ("mesh_checked", "hosts") => "checked_host",
            ("mesh_checked", "links") => "checked_link",
            ("mesh_cells", "hosts") => "cell_host",
            ("mesh_cells", "cells") => "mesh_cell",
            ("mesh_cell", "leg") => "mesh_leg",
            ("mesh_suspects", "suspects") => "mesh_suspect",
            ("mesh_suspect", "elements") => "suspect_element",
            ("physics", "ideals") => "ideal",
            ("ideal", "path") => "ideal_path",
            ("ideal", "new_connection") => "new_connection",
            ("mtu_report", "local" | "remote") => "path_end",
            ("mtu_report", "forward" | "reverse") => "way",
            ("path_end", "before" | "after") => "belief",
            ("way", "climb") => "climb",
            ("way", "mss") => "mss_seen",
            ("way", "tcp") => "tcp_truth",
            ("way", "verdict") => "mtu_verdict",
            ("mtu_change", "before" | "pinned" | "after") => "mtu_report",
            ("mtu_change", "outcome") => "change_outcome",
            ("change_outcome", "stopped") => "stopped",
            ("stopped", "cause") => "cause",
            ("climb", "too_big") => "too_big",
            ("climb", "hops") => "hop",
            ("mtu_verdict", "cause") => "cause",
            ("mtu_verdict", "beside") => "beside",
            ("audit_report", "advice") => "advice",
            ("audit_report", "hosts") => "host_audit",
            ("advice", "needs") => "needs",
            ("advice", "proposals") => "proposal",
            ("advice", "declined") => "declined",
            ("proposal", "changes") => "change",
            ("host_audit", "items") => "item",
            ("item", "guides") => "guidance",
            ("item", "set_by") => "setter",
            ("compared", "a" | "b") => "side",
            ("explained" | "side" | "watch_traced", "explanations") => "explanation",
            ("explain_now", "connections") => "glance",
            ("explain_now" | "watched_day", "account") => "socket_account",
            ("watched_day", "groups") => "socket_group",
            ("watched_day", "hours" | "minutes") => "watched_span",
            ("explanation", "conclusion") => "conclusion",
            ("explanation", "findings") => "finding",
            ("explanation", "ends") => "evidence",
            ("explanation", "phases") => "phase",
            ("finding", "share") => "share",
            ("finding", "evidence" | "against") => "evidence",
            ("evidence", "threshold") => "threshold",
            ("finding", "remedies") => "remedy",
            ("finding", "decider") => "decider",
            ("explained" | "requests", "clocks") => "clocks",
            ("explanation", "stream") | ("requests" | "page", "streams") => "stream_figures",
            ("stream_figures", "path") => "path_figures",
            ("requests", "links") => "links",
            ("requests", "operations") => "operation",
            ("requests", "calls") | ("operation", "worst") => "call",
            ("operation" | "call" | "block_summary", "parts") => "parts",
            ("operation" | "call", "causes") => "causes",
            ("call", "steps") => "step",
            ("published", "comparisons") => "published_comparison",
            ("published", "statistics") => "statistics",
            ("published", "doubts") => "doubt",
            ("published_comparison", "estimate") => "estimate",
            ("experiment", "plan") => "plan",
            ("experiment", "local" | "remote") => "fingerprint",
            ("experiment", "trials") => "trial",
            ("experiment", "warnings") => "warning",
            ("experiment", "verdict") => "verdict",
            ("plan", "run") => "spec",
            ("plan", "arms") => "arm",
            ("plan", "design") => "design",
            ("design", "factors") => "factor",
            ("factor", "levels") => "level",
            ("trial", "readings") => "reading",
            ("trial", "witness") => "witness",
            ("witness", "differences") => "difference",
            ("verdict", "comparisons") => "comparison",
            ("verdict", "effects") => "factor_effect",
            ("verdict", "search") => "search_story",
            ("verdict", "gates") => "gate",
            ("verdict", "arms") => "arm_table",
            ("verdict", "pilot") => "pilot",
            ("verdict", "position") | ("comparison" | "factor_effect", "estimate") => "estimate",
            ("verdict", "change_points") => "change_point",
            ("verdict", "outliers") => "outlier",
            ("page", "facts") => "page_fact",
            ("page", "figures") => "key_figure",
            ("page", "sections") => "page_section",
            ("page_section", "tables") => "page_table",
            ("page_section", "pictures") => "page_picture",
            _ => return None,
        })
    }

    /// Collects the keys of every object below `value` under the section that describes it. Objects
    /// whose keys are names of the host's (sysctls, metrics, offloads) hold no objects.
    fn collect(value: &Value, name: &str, into: &mut BTreeMap<String, Keys>) {
        into.entry(name.to_owned()).or_default().extend(keys(value));
        for (key, inner) in value.as_object().expect("an object") {
            let objects: Vec<&Value> = match inner {
                Value::Object(_) => vec![inner],
                Value::Array(all) => all.iter().filter(|v| v.is_object()).collect(),
                _ => continue,
            };
            let free = matches!(
                key.as_str(),
                "sysctls" | "metrics" | "offloads" | "limited_ns"
            );
            for object in objects {
                match section(name, key, object) {
                    Some(section) => collect(object, section, into),
                    None => assert!(free, "{name}.{key} has no section in docs/json.md"),
                }
            }
        }
    }

    /// From a structure itself, since a trace leaves out what is zero: the names of its fields.
    struct Fields(Keys);

    impl<'de> serde::Deserializer<'de> for &mut Fields {
        type Error = serde::de::value::Error;

        fn deserialize_any<V: serde::de::Visitor<'de>>(
            self,
            _: V,
        ) -> Result<V::Value, Self::Error> {
            Err(serde::de::Error::custom("only names are asked for"))
        }

        fn deserialize_struct<V: serde::de::Visitor<'de>>(
            self,
            _: &'static str,
            fields: &'static [&'static str],
            v: V,
        ) -> Result<V::Value, Self::Error> {
            self.0
                .extend(fields.iter().map(|field| (*field).to_owned()));
            self.deserialize_any(v)
        }

        serde::forward_to_deserialize_any! {
            bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit
            unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
        }
    }

    fn fields<T: serde::de::DeserializeOwned>() -> Keys {
        let mut fields = Fields(Keys::new());
        let _ = T::deserialize(&mut fields);
        fields.0
    }

    /// The sections of a trace: each record with its kind, and the socket of a segment.
    fn traced() -> BTreeMap<String, Keys> {
        let record = |name: &str, mut keys: Keys| {
            keys.insert("kind".to_owned());
            (format!("trace_{name}"), keys)
        };
        BTreeMap::from([
            record("begin", fields::<TraceBegin>()),
            record("connection", fields::<Connection>()),
            record("segment", fields::<Segment>()),
            record("sample", fields::<TraceSample>()),
            record("owner", fields::<Owner>()),
            record("lost", fields::<Lost>()),
            record("end", fields::<TraceEnd>()),
            ("socket_state".to_owned(), fields::<SocketState>()),
            ("trace_dropped".to_owned(), fields::<Dropped>()),
        ])
    }

    /// The sections of a tuning: others have sections of their own.
    fn tuned() -> BTreeMap<String, Keys> {
        let mut tuning = fields::<Tuning>();
        tuning.extend(["experiments", "verdicts"].map(str::to_owned));
        let section = |name: &str, keys| (name.to_owned(), keys);
        BTreeMap::from([
            section("tuning", tuning),
            section("round", fields::<Round>()),
            section("look", fields::<Look>()),
            section("attempt", fields::<Attempt>()),
        ])
    }

    use model::socket::{FIELDS, SocketFieldInfo, StateSource};

    /// The rows of `socket_state`, from the table of its fields.
    fn socket_rows() -> impl Iterator<Item = String> {
        let row = |field: &SocketFieldInfo| {
            let kind = if field.is_flag { "boolean" } else { "integer" };
            let unit = match field.unit {
                "" | "ns" | "bit/s" => String::new(),
                unit => format!(", {unit}"),
            };
            let by = |source: &StateSource| match source {
                StateSource::Probe => "probe",
                StateSource::TcpInfo => "TCP_INFO",
                StateSource::SockDiag => "sock_diag",
                StateSource::Packets => "packets",
            };
            let sources: Vec<_> = field.sources.iter().map(by).collect();
            let (name, doc, sources) = (field.name, field.doc, sources.join(", "));
            format!("| `{name}` | {kind}{unit} | {sources} | {doc} |")
        };
        FIELDS.iter().map(row)
    }

    #[test]
    fn the_documentation_has_every_key_and_no_other() {
        let full = full();
        let summary = summarise(&full);
        let mut found = BTreeMap::new();
        let mut see = |text: String, name: &str| {
            let value: Value = serde_json::from_str(&text).unwrap();
            collect(&value, name, &mut found);
        };
        let workloads = [
            Workload::Bulk(Bulk::default()),
            Workload::Request(testing::request()),
            Workload::Udp(Udp {
                rate: BitRate(1),
                datagram_size: Bytes(1),
            }),
            Workload::Copy(FileCopy::default()),
            Workload::Blocks(testing::blocks()),
            Workload::Blocks(testing::peer_blocks()),
        ];
        let limits = [
            LegLimit::Time(Nanos(1)),
            LegLimit::Bytes(Bytes(1)),
            LegLimit::Requests(1),
            LegLimit::Whole,
            LegLimit::Time(Nanos(1)),
            LegLimit::Time(Nanos(1)),
        ];
        for (workload, limit) in workloads.into_iter().zip(limits) {
            let mut run_ = full.clone();
            run_.spec.workload = workload;
            run_.spec.limit = limit;
            see(run(&run_, &summary), "run");
        }
        let leg = &full.legs[0];
        let events = [
            (
                "hosts",
                Event::Hosts {
                    local: &full.local,
                    remote: full.remote.as_ref(),
                },
            ),
            (
                "leg_started",
                Event::LegStarted {
                    index: 0,
                    direction: leg.direction,
                },
            ),
            (
                "sample_taken",
                Event::Sample {
                    index: 0,
                    side: Side::Remote,
                    sample: &leg.remote.samples[0],
                },
            ),
            ("leg_ended", Event::LegEnded { index: 0, leg }),
            (
                "warned",
                Event::Warning {
                    warning: &full.warnings[0],
                },
            ),
            ("waiting", Event::Waiting { what: "x" }),
        ];
        let lines = events.map(|(name, of)| (name, event(&of).unwrap()));
        let ends = [("start", start(&full)), ("finished", end(&full, &summary))];
        for (name, text) in lines.into_iter().chain(ends) {
            assert_eq!(text.matches('\n').count(), 1, "{text}");
            assert!(text.starts_with("{\"event\":"), "{text}");
            see(text, name);
        }
        let mut explained = testing::rivals();
        explained.ends = explained.findings[0].evidence.clone();
        explained.ends[0] = explained.ends[0].clone().about("eth0").at_least(1.0);
        explained.findings[0].against = explained.ends.first().cloned();
        explained.stream = testing::requests().streams.pop();
        let clocks = testing::requests().clocks;
        let side = ("a", &[explained.clone()][..]);
        see(crate::diff_json(side, side), "compared");
        see(
            crate::explain::json(&[explained], clocks.as_ref()),
            "explained",
        );
        see(
            crate::watch::json(&[testing::glance()], 1, Nanos(1), Some(&testing::account())),
            "explain_now",
        );
        let explained = [testing::rivals()];
        see(
            crate::watch::traced_json(Nanos(1), &testing::watch_trace(), "x.trace.gz", &explained),
            "watch_traced",
        );
        see(pretty(&testing::watched_day()), "watched_day");
        see(pretty(&testing::watch_trace()), "watch_trace");
        see(pretty(&testing::requests()), "requests");
        see(pretty(&testing::published()), "published");
        see(
            pretty(&crate::settings_review::tests::report()),
            "audit_report",
        );
        let ideals = crate::physics::tests::of_8_kib(2);
        see(crate::physics::json(&ideals), "physics");
        let plan = include_str!("../../../docs/mesh.md");
        let plan = plan
            .split("```")
            .find_map(|part| part.strip_prefix("toml\n"));
        let plan = mesh::parse_mesh(plan.expect("a mesh file"), "db.toml").expect("a mesh");
        see(pretty(&mesh::check(&plan, plan.epoch)), "mesh_checked");
        let grid = crate::pages::grid_of_tests(3);
        see(pretty(&crate::mesh::MeshCells::from(&grid)), "mesh_cells");
        let low = mesh::JudgedLeg {
            elements: mesh::elements(&plan, (0, 1)),
            good: false,
        };
        let suspects = mesh::MeshSuspects::of("m", "t", &[low], 1);
        see(pretty(&suspects), "mesh_suspects");
        for report in crate::mtu::tests::of_every_cause() {
            see(pretty(&report), "mtu_report");
        }
        let page = crate::page::Page {
            streams: testing::requests().streams,
            ..crate::pages::both_ways()
        };
        see(crate::page::json(&page), "page");
        let stopped = crate::mtu_change::tests::rolled_back();
        see(pretty(&stopped), "mtu_change");
        see(crate::copy::tests::corners_json_of_all(), "corners");
        let depths = crate::blocks::tests::some_depths();
        see(crate::blocks::depths_json(&depths), "depths");
        for experiment in crate::prove::tests::of_every_design() {
            see(experiment, "experiment");
        }
        found.extend(traced());
        found.extend(tuned());
        let documented = documented();
        let names = |of: &BTreeMap<String, Keys>| of.keys().cloned().collect::<Keys>();
        assert_eq!(names(&documented), names(&found));
        for (name, keys) in found {
            assert_eq!(
                documented[&name], keys,
                "section {name} of docs/json.md: {UPDATE}"
            );
        }
        assert_eq!(
            SCHEMA_VERSION, 1,
            "docs/json.md says which version it describes"
        );
    }

    /// A table of what the types say.
    fn table(head: &str, rows: impl Iterator<Item = String>) -> String {
        let columns = head.matches('|').count() - 1;
        let rule = "|---".repeat(columns) + "|";
        let rows: String = rows.map(|row| row + "\n").collect();
        format!("{head}\n{rule}\n{rows}")
    }

    /// `text` with what stands between a marker and its end replaced.
    fn generated(text: &str, marker: &str, by: &str) -> String {
        let (before, rest) = text.split_once(marker).expect(marker);
        let (_, after) = rest.split_once("<!-- end -->").expect("an end");
        format!("{before}{marker}\n{by}<!-- end -->{after}")
    }

    /// `UPDATE_DOCS=1` writes it again.
    #[test]
    #[allow(clippy::disallowed_methods, reason = "a test writes the documentation")]
    fn what_json_has_is_documented_from_its_types() {
        let name = |value: Value| format!("`{}`", value.as_str().expect("a name"));
        let limits = table(
            "| limit | level | in text | meaning |",
            finding::Limit::ALL.iter().map(|limit| {
                let (limit_name, level) = (json!(limit), json!(limit.level()));
                let (words, doc) = (limit.words(), limit.doc());
                format!(
                    "| {} | {} | {words} | {doc} |",
                    name(limit_name),
                    name(level)
                )
            }),
        );
        let keys = table(
            "| key | unit | meaning |",
            EvidenceKey::ALL.iter().map(|key| {
                let (unit, doc) = (key.unit().name(), key.doc());
                format!("| {} | `{unit}` | {doc} |", name(json!(key)))
            }),
        );
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/json.md");
        let text = std::fs::read_to_string(path).expect("docs/json.md");
        let new = generated(&text, "<!-- limits: generated -->", &limits);
        let new = generated(&new, "<!-- evidence keys: generated -->", &keys);
        let head = "| key | type | read by | meaning |";
        let probed = "| `probed` | boolean | probe | All that a probe reads is known: of that, what is left out is zero or \
            false, but for `min_rtt_ns` and `pacing_rate_bit_s`, which are not known then. |";
        let socket = [probed.to_owned()].into_iter().chain(socket_rows());
        let socket = table(head, socket);
        let new = generated(&new, "<!-- socket state: generated -->", &socket);
        let new = super::field_tests::with_fields(&new);
        if std::env::var("UPDATE_DOCS").is_ok() {
            std::fs::write(path, &new).expect("docs/json.md");
            return;
        }
        assert!(text == new, "docs/json.md is stale: {UPDATE}");
    }

    #[test]
    fn a_run_survives_its_json() {
        let full = full();
        let text = run(&full, &summarise(&full));
        let mut value: Value = serde_json::from_str(&text).unwrap();
        let summary: Summary = serde_json::from_value(value["summary"].take()).unwrap();
        assert_eq!(summary, summarise(&full));
        assert_eq!(serde_json::from_str::<Run>(&text).unwrap(), full);
    }

    #[test]
    fn a_leg_is_reported_without_its_samples() {
        let leg = testing::leg(Direction::Up, LAN);
        let line = event(&Event::LegEnded {
            index: 1,
            leg: &leg,
        });
        let line: Value = serde_json::from_str(&line.unwrap()).unwrap();
        assert_eq!(line["leg"], json!(1));
        assert_eq!(line["record"]["local"].get("samples"), None);
        assert_eq!(line["record"]["local"]["bytes"], json!(leg.local.bytes.0));
    }

    #[test]
    fn what_a_terminal_would_obey_is_written_out() {
        let mut run_ = testing::run(testing::spec(), Vec::new());
        let nasty = "\u{1b}[2J\u{9b}2J\u{7f}\u{202e}\u{e0041}é";
        run_.host = nasty.to_owned();
        let text = run(&run_, &summarise(&run_));
        assert!(
            text.contains("\\u001b[2J\\u009b2J\\u007f\\u202e\\udb40\\udc41é"),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<Run>(&text).unwrap().host, nasty);
    }
}

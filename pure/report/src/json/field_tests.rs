//! The tables of docs/json.md whose rows are the fields of a type: key, type and meaning come from its declaration
//! and its doc comments.

use std::collections::BTreeMap;
use std::path::Path;

/// Where the types of the documents are.
const SOURCES: [&str; 9] = [
    "/../mesh/src/check.rs",
    "/../mesh/src/suspects.rs",
    "/../model/src",
    "/src/page",
    "/src/blocks.rs",
    "/src/copy.rs",
    "/src/mesh/documents.rs",
    "/src/pages/grid.rs",
    "/src/words.rs",
];

/// Sections that are not called as their type, or whose type shares its name: file and type.
const NAMED: [(&str, &str, &str); 19] = [
    ("cell_host", "grid", "GridHost"),
    ("copy", "workload", "FileCopy"),
    ("doubt", "published", "PublishedDoubt"),
    ("end", "run", "EndRecord"),
    ("level", "plan", "FactorLevel"),
    ("page_picture", "mod", "Picture"),
    ("page_section", "mod", "Section"),
    ("page_table", "words", "Table"),
    ("setting", "summary", "SettingInForce"),
    ("socket", "socket_option", "SocketOptions"),
    ("stage", "copy", "StageUse"),
    ("stream", "sample", "StreamSample"),
    ("trace_connection", "segment", "Connection"),
    ("trace_dropped", "segment", "Dropped"),
    ("trace_lost", "segment", "Lost"),
    ("trace_owner", "segment", "Owner"),
    ("trace_sample", "segment", "TraceSample"),
    ("trace_segment", "segment", "Segment"),
    ("verdict", "verdict", "Verdict"),
];

/// Sections that are written by hand, since no type of that shape declares what is in them. Their keys are held, too.
const BY_HAND: [&str; 30] = [
    "blocks",
    "nfs_blocks",
    "limit",
    "socket_state",
    "ended",
    "start",
    "hosts",
    "leg_started",
    "sample_taken",
    "leg_ended",
    "warned",
    "waiting",
    "finished",
    "corners",
    "depths",
    "cause",
    "beside",
    "change_outcome",
    "explained",
    "compared",
    "side",
    "conclusion",
    "threshold",
    "explain_now",
    "watch_traced",
    "causes",
    "suspect_element",
    "design",
    "physics",
    "page_fact",
];

/// A structure, or an enumeration of names.
#[derive(Default)]
struct Type {
    is_enum: bool,
    /// What is not known of it is left out, as its section says.
    is_sparse: bool,
    rename_all: bool,
    members: Vec<Member>,
}

/// A field or a variant.
struct Member {
    key: String,
    kind: String,
    doc: String,
    attributes: String,
}

/// The types of the sources by file and name.
#[allow(clippy::disallowed_methods, reason = "a test reads the sources")]
fn read(path: &Path, types: &mut BTreeMap<(String, String), Type>) {
    if path.is_dir() {
        for entry in std::fs::read_dir(path).expect("a folder of sources") {
            read(&entry.expect("a source").path(), types);
        }
        return;
    }
    let text = std::fs::read_to_string(path).expect("a source");
    let file = path.file_stem().expect("a name").to_string_lossy();
    parse(&text, |name, of| {
        types.insert((file.clone().into_owned(), name), of);
    });
}

/// The types that a source declares, by themselves or in `named!` and `sparse!`.
fn parse(text: &str, mut found: impl FnMut(String, Type)) {
    let mut lines = text.lines();
    let mut last = "";
    while let Some(line) = lines.next() {
        let rename_all = std::mem::replace(&mut last, line).contains("rename_all");
        let inner = line.strip_prefix("    ");
        let (head, is_inner) = (inner.unwrap_or(line), inner.is_some());
        let head = head.strip_suffix(" {").unwrap_or_default();
        let (is_enum, name) = match head.strip_prefix("pub ").map(|h| h.split_once(' ')) {
            Some(Some(("struct", name))) => (false, name),
            Some(Some(("enum", name))) => (true, name),
            _ => match head.split_once(", \"") {
                Some((name, _)) if head.ends_with('"') => (true, name),
                _ => continue,
            },
        };
        let close = if is_inner { "    }" } else { "}" };
        let mut of = Type {
            is_enum,
            is_sparse: is_inner && !is_enum,
            rename_all,
            members: Vec::new(),
        };
        let (mut doc, mut attributes) = (String::new(), String::new());
        let indent = close.len() + 3;
        for line in lines.by_ref().take_while(|line| *line != close) {
            let text = line.trim();
            if let Some(more) = text.strip_prefix("///") {
                doc += more;
            } else if text.starts_with("#[") || line.len() - line.trim_start().len() > indent {
                attributes += text;
            } else if text.starts_with(|c: char| c.is_alphabetic()) {
                let text = text
                    .trim_start_matches("pub(crate) ")
                    .trim_start_matches("pub ");
                let (key, kind) = text.split_once([':', '=']).unwrap_or((text, ""));
                of.members.push(Member {
                    key: key.trim_end_matches([',', ' ']).to_owned(),
                    kind: kind.trim().trim_end_matches(',').to_owned(),
                    doc: std::mem::take(&mut doc).trim().to_owned(),
                    attributes: std::mem::take(&mut attributes),
                });
            }
        }
        found(name.split('<').next().unwrap_or(name).to_owned(), of);
    }
}

impl Member {
    fn is_absent(&self) -> bool {
        self.attributes.contains("skip_serializing_if")
    }

    fn rename(&self) -> Option<&str> {
        let (_, rest) = self.attributes.split_once("rename = \"")?;
        Some(rest.split('"').next().unwrap_or(rest))
    }
}

impl Type {
    /// The names of an enumeration whose variants hold nothing.
    fn names(&self) -> Option<Vec<String>> {
        let name = |member: &Member| {
            let text = member.kind.trim_matches('"');
            match member.rename() {
                _ if !member.key.chars().all(char::is_alphanumeric) => None,
                Some(name) => Some(name.to_owned()),
                None if !text.is_empty() => Some(text.to_owned()),
                None if self.rename_all => Some(snake_case(&member.key)),
                None => None,
            }
        };
        let members = self.is_enum.then_some(&self.members)?;
        members.iter().map(name).collect()
    }
}

fn snake_case(name: &str) -> String {
    let mut out = String::new();
    for c in name.chars() {
        if c.is_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.extend(c.to_lowercase());
    }
    out
}

/// The types, and the sections that they have.
struct Types {
    types: BTreeMap<(String, String), Type>,
    sections: BTreeMap<String, (String, String)>,
}

impl Types {
    fn of(document: &str) -> Types {
        let mut types = BTreeMap::new();
        for path in SOURCES {
            let path = env!("CARGO_MANIFEST_DIR").to_owned() + path;
            read(Path::new(&path), &mut types);
        }
        let sections = document.lines().filter_map(|line| {
            let section = line.strip_prefix("### `")?.trim_end_matches('`');
            if BY_HAND.contains(&section) {
                return None;
            }
            let named = NAMED.iter().find(|(name, ..)| *name == section);
            let is = |(file, name): &&(String, String)| match named {
                Some((_, of, called)) => file == of && name == called,
                None => {
                    snake_case(name) == section && !types[&(file.clone(), name.clone())].is_enum
                }
            };
            let of = types.keys().find(is);
            let of = of.unwrap_or_else(|| {
                panic!("section {section} of docs/json.md has no type: see NAMED, BY_HAND")
            });
            Some((section.to_owned(), of.clone()))
        });
        let sections = sections.collect();
        Types { types, sections }
    }

    /// The type of this name that a file means: its own, or the only one.
    fn meant(&self, file: &str, name: &str) -> Option<(&(String, String), &Type)> {
        let own = self
            .types
            .get_key_value(&(file.to_owned(), name.to_owned()));
        let mut others = self.types.iter().filter(|((_, other), _)| other == name);
        own.or_else(|| others.next().filter(|_| others.next().is_none()))
    }

    /// How JSON has a type; `None` where that is to be written by hand.
    fn kind(&self, file: &str, kind: &str) -> Option<String> {
        let inner = |of: &str| Some(kind.strip_prefix(of)?.strip_suffix('>')?.to_owned());
        if let Some(inner) = inner("Option<") {
            return Some(self.kind(file, &inner)? + " or null");
        }
        if let Some(inner) = inner("Box<") {
            return self.kind(file, &inner);
        }
        let plural = |kind: String| match kind.strip_prefix("list") {
            Some(rest) => format!("lists{rest}"),
            None if kind.starts_with('[') => kind,
            None => kind + "s",
        };
        if let Some(inner) = inner("Vec<") {
            return Some(format!("list of {}", plural(self.kind(file, &inner)?)));
        }
        if let Some((one, count)) = kind.strip_prefix('[').and_then(|k| k.split_once("; ")) {
            let (one, count) = (plural(self.kind(file, one)?), count.trim_end_matches(']'));
            return Some(format!("list of {count} {one}"));
        }
        if kind.starts_with("BTreeMap<") {
            return Some("object".to_owned());
        }
        let name = kind.rsplit("::").next().unwrap_or(kind);
        let text = match name {
            "Nanos" | "Bytes" | "BitRate" | "u8" | "u16" | "u32" | "u64" | "i64" | "usize" => {
                "integer"
            }
            "f64" => "number",
            "bool" => "boolean",
            "String" | "RunId" | "NodeId" | "IpAddr" | "SocketAddr" | "Setting" | "Comm" => {
                "string"
            }
            "SocketState" => return Some("[`socket_state`](#socket_state)".to_owned()),
            _ => {
                let (key, of) = self.meant(file, name)?;
                if of.names().is_some() {
                    return Some("string".to_owned());
                }
                let (section, _) = self.sections.iter().find(|(_, of)| *of == key)?;
                return Some(format!("[`{section}`](#{section})"));
            }
        };
        Some(text.to_owned())
    }

    /// The names that a field can have, unless its doc comment has them.
    fn names(&self, file: &str, field: &Member) -> Option<String> {
        let kind = field
            .kind
            .trim_start_matches("Option<")
            .trim_start_matches("Vec<");
        let kind = kind.trim_end_matches('>');
        let name = kind.rsplit("::").next().unwrap_or(kind);
        let names = self.meant(file, name)?.1.names()?;
        let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
        if names.iter().any(|name| field.doc.contains(name)) {
            return None;
        }
        let (last, others) = names.split_last()?;
        Some(format!(" {} or {last}.", others.join(", ")))
    }

    /// The row of a field; what its type does not say stands as in the row `before`.
    fn row(
        &self,
        (file, name): &(String, String),
        field: &Member,
        before: Option<&str>,
    ) -> (String, String) {
        let key = field.rename().unwrap_or(&field.key).to_owned();
        let (none, tail) = match self.types[&(file.clone(), name.clone())].is_sparse {
            true => ("left out", Some("")),
            false if field.is_absent() => ("absent", Some(", absent")),
            false => ("null", None),
        };
        let absent = |kind: String| match tail {
            Some(tail) => kind.trim_end_matches(" or null").to_owned() + tail,
            None => kind,
        };
        let kind = self.kind(file, &field.kind).map(absent);
        let by_hand = before.and_then(|row| row.split(" | ").nth(1));
        let kind = kind.as_deref().or(by_hand).unwrap_or("?");
        let meaning = field.doc.replace("`None`", none);
        let names = self.names(file, field).unwrap_or_default();
        let row = format!("| `{key}` | {kind} | {meaning}{names} |\n");
        assert!(
            !meaning.is_empty() && !meaning.contains("[`") && kind != "?",
            "give the field of {file}.rs a doc comment without links to code, and its row a type: {row}"
        );
        (key, row)
    }
}

/// `document` with the rows of the types in its tables; rows of no field, as `kind`, stay in their places.
pub(super) fn with_fields(document: &str) -> String {
    let all = Types::of(document);
    let mut out = String::new();
    let mut lines = document.lines().peekable();
    let mut of = None;
    while let Some(line) = lines.next() {
        if let Some(section) = line.strip_prefix("### `") {
            of = all.sections.get(section.trim_end_matches('`'));
        } else if line.starts_with('#') {
            of = None;
        }
        out += line;
        out.push('\n');
        let Some(key) = of.filter(|_| line.starts_with("|---")) else {
            continue;
        };
        let mut before = Vec::new();
        while let Some(row) = lines.next_if(|line| line.starts_with('|')) {
            let name = row.trim_start_matches("| `").split('`').next();
            before.push((name.unwrap_or_default(), row));
        }
        let is_skipped = |field: &&Member| {
            let how = &field.attributes;
            how.contains("serde(skip)") || how.contains("flatten") || how.contains("serialize_with")
        };
        let fields = all.types[key]
            .members
            .iter()
            .filter(|field| !is_skipped(field));
        let rows = fields.map(|field| {
            let name = field.rename().unwrap_or(&field.key);
            let before = before.iter().find(|(key, _)| *key == name);
            all.row(key, field, before.map(|(_, row)| *row))
        });
        let rows: Vec<(String, String)> = rows.collect();
        let is_field = |key: &str| rows.iter().any(|(name, _)| name == key);
        let first = before
            .iter()
            .position(|(key, _)| is_field(key))
            .unwrap_or(0);
        let by_hand = |(key, row): &(&str, &str)| match is_field(key) {
            true => String::new(),
            false => format!("{row}\n"),
        };
        out.extend(before[..first].iter().map(by_hand));
        out.extend(rows.iter().map(|(_, row)| row.as_str()));
        out.extend(before[first..].iter().map(by_hand));
    }
    out
}

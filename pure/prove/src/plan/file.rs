//! The plan file: TOML to a checked [`Plan`] and back, every fault with its line and its remedy.

use super::{
    PlanError, USUAL_BLOCKS, USUAL_GAP, USUAL_PILOT, USUAL_ROUND, arm, name_of, only, settings_of,
    usual_looks, usual_run, validate,
};
use model::{
    Arm, Bulk, Bytes, Design, Direction, EXPERIMENT_SCHEMA, Estimand, Factor, FactorLevel,
    IpVersion, Knob, LegLimit, Metric, Nanos, OptionUnit, Placement, Plan, Request, SOCKET_OPTIONS,
    Setting, SocketOption, SocketSettings, Spec, WaitMode, Workload, apply_to_spec, line_at,
    toml_fault,
};
use serde::de::{Error as _, Unexpected};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use toml::de::{DeTable, DeValue};

const LONGEST_FILE: usize = 1 << 20;
/// Most combinations of levels, before half of them are left out.
const MOST_CELLS: usize = 128;

/// Reads a plan; `file` names it in errors, `fresh_seed` is taken if it names no seed.
///
/// # Errors
/// With line and remedy, if the file holds no plan or one that cannot be carried out.
pub fn parse_plan(text: &str, file: &str, fresh_seed: u64) -> Result<Plan, PlanError> {
    let place = |line| Some((file.to_owned(), line));
    if text.len() > LONGEST_FILE {
        let what = format!("the file has more than {LONGEST_FILE} bytes");
        let error = PlanError::new("", what, "give a plan file");
        return Err(PlanError {
            line: place(1),
            ..error
        });
    }
    let read: PlanFile = toml::from_str(text).map_err(|e| {
        let at = e.span().map_or(0, |span| span.start);
        let usual = "'linerate prove --help' shows a whole plan";
        let (what, remedy) = toml_fault(e.message(), usual);
        PlanError {
            line: place(line_at(text, at)),
            ..PlanError::new("", what, remedy)
        }
    })?;
    read.plan(fresh_seed)
        .and_then(|plan| validate(&plan).map(|()| plan))
        .map_err(|error| PlanError {
            line: place(line_of_key(text, error.key)),
            ..error
        })
}

/// The plan as a file that [`parse_plan`] reads as the same plan.
pub fn to_toml(plan: &Plan) -> String {
    toml::to_string(&PlanFile::of(plan)).expect("keys are words, and values scalars and lists")
}

/// The file. Scalars come before tables, as TOML wants it.
#[derive(Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
struct PlanFile {
    title: Option<String>,
    host: String,
    metric: Metric,
    margin: Option<QuantityText<ShareText>>,
    estimand: Estimand,
    direction: Option<Direction>,
    seed: Option<QuantityText<u64>>,
    gap: Option<QuantityText<Nanos>>,
    pilot_pairs: Option<u32>,
    pairs: Option<u32>,
    looks: Option<Vec<u32>>,
    blocks: Option<u32>,
    #[serde(skip_serializing_if = "is_false")]
    half: bool,
    run: RunFile,
    search: Option<SearchFile>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    arm: Vec<ArmFile>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    factor: Vec<FactorFile>,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
struct RunFile {
    workload: WorkloadName,
    time: Option<QuantityText<Nanos>>,
    bytes: Option<QuantityText<Bytes>>,
    requests: Option<u64>,
    streams: Option<u32>,
    ramp: Option<QuantityText<Nanos>>,
    interval: Option<QuantityText<Nanos>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    settings: Vec<Setting>,
    dscp: Option<u8>,
    ip_version: Option<IpVersion>,
    bind: Option<IpAddr>,
    bind_device: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    cpus: Vec<u32>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    remote_cpus: Vec<u32>,
    write_size: Option<QuantityText<Bytes>>,
    #[serde(skip_serializing_if = "is_false")]
    discard: bool,
    #[serde(skip_serializing_if = "is_false")]
    zerocopy: bool,
    request_size: Option<QuantityText<Bytes>>,
    reply_size: Option<QuantityText<Bytes>>,
    pace: Option<f64>,
    #[serde(skip_serializing_if = "is_false")]
    reconnect: bool,
    wait: Option<WaitMode>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum WorkloadName {
    #[default]
    Bulk,
    Request,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct ArmFile {
    name: Option<String>,
    #[serde(default)]
    settings: Vec<Setting>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct FactorFile {
    name: String,
    /// Each `KNOB=VALUE,KNOB=VALUE`, or `baseline`.
    levels: Vec<String>,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
struct SearchFile {
    blocks: Option<u32>,
    confirm: Option<Vec<u32>>,
}

fn is_false(value: &bool) -> bool {
    !value
}

impl PlanFile {
    fn plan(self, fresh_seed: u64) -> Result<Plan, PlanError> {
        let direction = self.direction.unwrap_or(Direction::Up);
        let run = self.run.spec(direction)?;
        let arms = self.arm.into_iter();
        let arms: Vec<Arm> = arms.map(|a| arm(a.name, a.settings)).collect();
        let (arms, design) = if self.factor.is_empty() {
            let counts = (self.pairs, self.looks, self.blocks);
            let design = design(self.search, counts, arms.len())?;
            (arms, design)
        } else if arms.is_empty() && self.search.is_none() {
            let factors = factors(self.factor)?;
            let blocks = self.blocks.or(self.pairs).unwrap_or(USUAL_BLOCKS);
            let arms = cells(&factors, self.half)?;
            (arms, Design::Factorial { factors, blocks })
        } else {
            let what = "the plan has factors and something else besides";
            let remedy = "leave out [[arm]] and [search]: arms are made from the factors";
            return Err(PlanError::new("factor", what, remedy));
        };
        Ok(Plan {
            schema: EXPERIMENT_SCHEMA,
            title: self.title,
            host: self.host,
            metric: self.metric,
            margin: self.margin.map_or(self.metric.usual_margin(), |m| m.0.0),
            estimand: self.estimand,
            direction,
            run,
            arms,
            design,
            gap: self.gap.map_or(USUAL_GAP, |g| g.0),
            seed: self.seed.map_or(fresh_seed, |s| s.0),
            pilot_pairs: self.pilot_pairs.unwrap_or(USUAL_PILOT),
        })
    }

    fn of(plan: &Plan) -> PlanFile {
        let mut file = PlanFile {
            title: plan.title.clone(),
            host: plan.host.clone(),
            metric: plan.metric,
            margin: Some(QuantityText(ShareText(plan.margin))),
            estimand: plan.estimand,
            direction: Some(plan.direction),
            seed: Some(QuantityText(plan.seed)),
            gap: Some(QuantityText(plan.gap)),
            pilot_pairs: Some(plan.pilot_pairs),
            run: RunFile::of(&plan.run),
            ..PlanFile::default()
        };
        match &plan.design {
            Design::Pairs { looks } => file.looks = Some(looks.clone()),
            Design::Blocks { blocks } => file.blocks = Some(*blocks),
            Design::Search { blocks, confirm } => {
                file.search = Some(SearchFile {
                    blocks: Some(*blocks),
                    confirm: Some(confirm.clone()),
                });
            }
            Design::Factorial { factors, blocks } => {
                file.blocks = Some(*blocks);
                let cells: usize = factors.iter().map(|f| f.levels.len()).product();
                file.half = plan.arms.len() < cells;
                let factor = |f: &Factor| FactorFile {
                    name: f.name.clone(),
                    levels: f.levels.iter().map(|l| joined(&l.settings)).collect(),
                };
                file.factor = factors.iter().map(factor).collect();
                return file;
            }
        }
        let arms = plan.arms.iter().map(|a| ArmFile {
            name: Some(a.name.clone()),
            settings: a.settings.clone(),
        });
        file.arm = arms.collect();
        file
    }
}

/// The design of a plan with `arms` arms, from what the file says of numbers.
fn design(
    search: Option<SearchFile>,
    counts: (Option<u32>, Option<Vec<u32>>, Option<u32>),
    arms: usize,
) -> Result<Design, PlanError> {
    let clash = |key, what: &str, remedy: &str| Err(PlanError::new(key, what, remedy));
    match (search, counts) {
        (Some(search), (None, None, None)) => Ok(Design::Search {
            blocks: search.blocks.unwrap_or(USUAL_ROUND),
            confirm: search.confirm.unwrap_or_else(usual_looks),
        }),
        (Some(_), _) => clash(
            "search",
            "a search has its own numbers",
            "leave out pairs, looks and blocks, and write them under [search]",
        ),
        (None, (None, None, None)) if arms <= 2 => Ok(Design::Pairs {
            looks: usual_looks(),
        }),
        (None, (None, None, blocks)) if arms > 2 || blocks.is_some() => Ok(Design::Blocks {
            blocks: blocks.unwrap_or(USUAL_BLOCKS),
        }),
        (None, (Some(pairs), None, None)) if arms <= 2 => Ok(Design::Pairs { looks: vec![pairs] }),
        (None, (None, Some(looks), None)) if arms <= 2 => Ok(Design::Pairs { looks }),
        (None, (Some(blocks), None, None)) => Ok(Design::Blocks { blocks }),
        (None, (_, Some(_), _)) if arms > 2 => clash(
            "looks",
            "more than two arms are judged once, after a fixed number of blocks",
            "write blocks = 20 instead of looks",
        ),
        _ => clash(
            "pairs",
            "the plan says more than one of pairs, looks and blocks",
            "keep one: looks = [8, 12, 16, 20], or pairs = 20 for a fixed number",
        ),
    }
}

fn factors(files: Vec<FactorFile>) -> Result<Vec<Factor>, PlanError> {
    let level = |factor: &str, text: &str| {
        let settings = settings_of(text).map_err(|why| {
            let what = format!("factor '{factor}': {why}");
            let remedy = "write each level as \"KNOB=VALUE,KNOB=VALUE\", or \"baseline\"";
            PlanError::new("factor", what, remedy)
        })?;
        Ok(FactorLevel {
            name: name_of(&settings),
            settings,
        })
    };
    let factor = |file: FactorFile| {
        let levels = file.levels.iter().map(|text| level(&file.name, text));
        Ok(Factor {
            levels: levels.collect::<Result<_, _>>()?,
            name: file.name,
        })
    };
    files.into_iter().map(factor).collect()
}

/// The arms of all combinations of levels, the first levels together first. Half of them: those with
/// an even number of second levels, so that with five factors or more no main effect and no
/// interaction of two is confounded with another of these (resolution V).
fn cells(factors: &[Factor], half: bool) -> Result<Vec<Arm>, PlanError> {
    let sizes = factors.iter().map(|f| f.levels.len());
    let all = sizes.fold(1, usize::saturating_mul);
    if all > MOST_CELLS {
        let what = format!("the factors make {all} combinations, more than {MOST_CELLS}");
        let remedy = "leave factors or levels out, or search among a few arms";
        return Err(PlanError::new("factor", what, remedy));
    }
    if half && (factors.len() < 5 || factors.iter().any(|f| f.levels.len() != 2)) {
        let what =
            "half of the combinations separate the effects only from five factors of two levels on";
        return Err(PlanError::new("half", what, "leave 'half' out"));
    }
    let cells = (0..all).map(|mut cell| {
        let mut arm = Arm {
            name: super::BASELINE.to_owned(),
            settings: Vec::new(),
            levels: Vec::new(),
        };
        let mut names = Vec::new();
        for Factor { levels, .. } in factors {
            let level = &levels[cell % levels.len()];
            arm.levels.push((cell % levels.len()) as u32);
            arm.settings.extend(level.settings.iter().cloned());
            names.extend((!level.settings.is_empty()).then_some(level.name.as_str()));
            cell /= levels.len();
        }
        if !names.is_empty() {
            arm.name = names.join(" + ");
        }
        arm
    });
    let kept = |a: &Arm| !half || a.levels.iter().sum::<u32>().is_multiple_of(2);
    Ok(cells.filter(kept).collect())
}

impl RunFile {
    fn spec(self, direction: Direction) -> Result<Spec, PlanError> {
        let limit = match (self.time, self.bytes, self.requests) {
            (Some(time), None, None) => LegLimit::Time(time.0),
            (None, Some(bytes), None) => LegLimit::Bytes(bytes.0),
            (None, None, Some(requests)) => LegLimit::Requests(requests),
            (None, None, None) => usual_run().limit,
            _ => {
                let what = "a run has more than one of time, bytes and requests";
                return Err(PlanError::new("run.time", what, "keep one"));
            }
        };
        let bulk = self.write_size.is_some() || self.discard || self.zerocopy;
        let request = self.request_size.is_some()
            || self.reply_size.is_some()
            || self.pace.is_some()
            || self.reconnect
            || self.wait.is_some();
        let workload = match self.workload {
            WorkloadName::Bulk if request => {
                let what = "request_size, reply_size, pace, reconnect and wait are of requests";
                let remedy = "add workload = \"request\", or leave them out";
                return Err(PlanError::new("run", what, remedy));
            }
            WorkloadName::Request if bulk => {
                let what = "write_size, discard and zerocopy are of bulk transfer";
                let remedy = "leave them out, or write workload = \"bulk\"";
                return Err(PlanError::new("run", what, remedy));
            }
            WorkloadName::Bulk => Workload::Bulk(Bulk {
                write_size: self.write_size.map(|s| s.0),
                discard: self.discard,
                zerocopy: self.zerocopy,
            }),
            WorkloadName::Request => Workload::Request(Request {
                request_size: self.request_size.map_or(Bytes(128), |s| s.0),
                reply_size: self.reply_size.map_or(Bytes(8 << 10), |s| s.0),
                pace_per_s: self.pace,
                reconnect: self.reconnect,
                wait: self.wait.unwrap_or_default(),
            }),
        };
        let mut socket = SocketSettings {
            dscp: self.dscp,
            ip_version: self.ip_version,
            ..SocketSettings::default()
        };
        apply_to_spec(&self.settings, &mut socket);
        let usual = usual_run();
        Ok(Spec {
            workload,
            directions: only(direction),
            streams: self.streams.unwrap_or(usual.streams),
            limit,
            ramp: self.ramp.map(|r| r.0),
            interval: self.interval.map_or(usual.interval, |i| i.0),
            trace: false,
            socket,
            local: Placement {
                bind_address: self.bind,
                bind_device: self.bind_device,
                cpus: self.cpus,
            },
            remote: Placement {
                cpus: self.remote_cpus,
                ..Placement::default()
            },
        })
    }

    fn of(spec: &Spec) -> RunFile {
        let mut file = RunFile {
            streams: Some(spec.streams),
            ramp: spec.ramp.map(QuantityText),
            interval: Some(QuantityText(spec.interval)),
            settings: settings_in(&spec.socket),
            dscp: spec.socket.dscp,
            ip_version: spec.socket.ip_version,
            bind: spec.local.bind_address,
            bind_device: spec.local.bind_device.clone(),
            cpus: spec.local.cpus.clone(),
            remote_cpus: spec.remote.cpus.clone(),
            ..RunFile::default()
        };
        match spec.limit {
            LegLimit::Time(time) => file.time = Some(QuantityText(time)),
            LegLimit::Bytes(bytes) => file.bytes = Some(QuantityText(bytes)),
            LegLimit::Requests(requests) => file.requests = Some(requests),
            // No plan has one: it belongs to copies.
            LegLimit::Whole => {}
        }
        match &spec.workload {
            Workload::Bulk(bulk) => {
                file.write_size = bulk.write_size.map(QuantityText);
                file.discard = bulk.discard;
                file.zerocopy = bulk.zerocopy;
            }
            Workload::Request(request) => {
                file.workload = WorkloadName::Request;
                file.request_size = Some(QuantityText(request.request_size));
                file.reply_size = Some(QuantityText(request.reply_size));
                file.pace = request.pace_per_s;
                file.reconnect = request.reconnect;
                file.wait = Some(request.wait);
            }
            // No plan is judged by datagrams, copies or blocks: `validate` refuses them.
            Workload::Udp(_) | Workload::Copy(_) | Workload::Blocks(_) => {}
        }
        file
    }
}

/// The socket options of an order in the words of the knobs.
fn settings_in(socket: &SocketSettings) -> Vec<Setting> {
    let congestion = socket.congestion.as_ref();
    let of = |option: &SocketOption| {
        let (knob, value) = (option.knob?, (option.asked)(socket)?);
        let value = match option.unit {
            OptionUnit::Switch => option.unit.format(value),
            OptionUnit::Bytes | OptionUnit::BitRate | OptionUnit::Count => value.to_string(),
        };
        Some(format!("{}={value}", Knob::Socket(knob)))
    };
    congestion
        .map(|name| format!("congestion={name}"))
        .into_iter()
        .chain(SOCKET_OPTIONS.iter().filter_map(of))
        .filter_map(|text| text.parse().ok())
        .collect()
}

fn joined(settings: &[Setting]) -> String {
    if settings.is_empty() {
        return super::BASELINE.to_owned();
    }
    let all: Vec<String> = settings.iter().map(Setting::to_string).collect();
    all.join(",")
}

// ---- values as a person writes them ----

/// A quantity: text with its unit, or a bare number.
struct QuantityText<T>(T);

impl<'de, T: FromStr<Err: fmt::Display>> Deserialize<'de> for QuantityText<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<QuantityText<T>, D::Error> {
        let text = match toml::Value::deserialize(from)? {
            toml::Value::String(text) => text,
            toml::Value::Integer(number) => number.to_string(),
            toml::Value::Float(number) => number.to_string(),
            other => {
                let found = Unexpected::Other(other.type_str());
                return Err(D::Error::invalid_type(
                    found,
                    &"a number, or text with a unit",
                ));
            }
        };
        text.parse().map(QuantityText).map_err(D::Error::custom)
    }
}

impl Serialize for QuantityText<Bytes> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let units = [(1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K"), (1, "")];
        to.serialize_str(&exact(self.0.0, &units))
    }
}

impl Serialize for QuantityText<Nanos> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        const S: u64 = 1_000_000_000;
        let units = [(S, "s"), (S / 1000, "ms"), (1000, "us"), (1, "ns")];
        to.serialize_str(&exact(self.0.0, &units))
    }
}

impl Serialize for QuantityText<u64> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        // TOML's integers end at 2^63.
        match i64::try_from(self.0) {
            Ok(number) => to.serialize_i64(number),
            Err(_) => to.serialize_str(&self.0.to_string()),
        }
    }
}

/// The number in the largest unit that divides it.
fn exact(number: u64, units: &[(u64, &str)]) -> String {
    let mut fits = units.iter();
    let fits = fits.find(|(size, _)| number > 0 && number.is_multiple_of(*size));
    let (size, unit) = fits.or(units.first()).copied().unwrap_or((1, ""));
    format!("{}{unit}", number / size)
}

/// A share: 0.05, or `"5%"`.
struct ShareText(f64);

impl FromStr for ShareText {
    type Err = String;

    fn from_str(text: &str) -> Result<ShareText, String> {
        model::parse_share(text).map(ShareText)
    }
}

impl Serialize for QuantityText<ShareText> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(self.0.0)
    }
}

// ---- faults ----

/// The line of a key like `run.bytes`, or of the nearest thing above it; 1 if there is nothing.
fn line_of_key(text: &str, key: &str) -> usize {
    let Ok(root) = DeTable::parse(text) else {
        return 1;
    };
    let mut table = root.get_ref();
    let mut at = 0;
    for part in key.split('.') {
        let Some((name, value)) = table.get_key_value(part) else {
            break;
        };
        at = name.span().start;
        match value.get_ref() {
            DeValue::Table(inner) => table = inner,
            _ => break,
        }
    }
    line_at(text, at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantity_is_written_in_the_largest_unit_that_divides_it() {
        let bytes = |n| serde_json::to_string(&QuantityText(Bytes(n))).unwrap();
        for (n, text) in [
            (0, "0G"),
            (1, "1"),
            (1023, "1023"),
            (1024, "1K"),
            (3 << 20, "3M"),
            (5 << 30, "5G"),
        ] {
            assert_eq!(bytes(n), format!("\"{text}\""));
        }
        let time = |n| serde_json::to_string(&QuantityText(Nanos(n))).unwrap();
        for (n, text) in [
            (7, "7ns"),
            (7000, "7us"),
            (1_500_000, "1500us"),
            (20_000_000, "20ms"),
            (9_000_000_000, "9s"),
        ] {
            assert_eq!(time(n), format!("\"{text}\""));
        }
    }
}

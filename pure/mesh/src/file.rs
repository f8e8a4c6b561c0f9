//! The mesh file: TOML to a checked [`Mesh`].

use crate::iso8601::moment;
use crate::light::{USUAL_PACKETS, USUAL_SIZES};
use crate::rounds::MOST_HOSTS;
use crate::{LightTest, MeshError, QuietSpan};
use model::light::{MAX_PACKETS, PACKET};
use model::{
    BitRate, Bulk, Bytes, Cache, CellFigure, Directions, FileCopy, IpVersion, LegLimit, LegOutcome,
    Nanos, PostgresAddress, Request, SocketSettings, Spec, Udp, WaitMode, Workload, parse_share,
};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;
use toml::Spanned;
use toml::value::{Datetime, Offset};

/// The port of an agent that names none.
pub const AGENT_PORT: u16 = 5210;

/// Longest file, in bytes: 2,000 hosts take some 200 KB.
const LONGEST_FILE: usize = 4 << 20;
/// Most tests, links and alerts.
const MOST_ENTRIES: usize = 256;
/// A test books its two hosts, all links of their sites, and copies of files two disks: eight in all.
const LINKS_OF_SITE: usize = 3;
const LINKS_WITH_DISKS: usize = 2;
/// A round is booked whole, and a slot takes an hour at most.
const LONGEST_TIME: Nanos = Nanos::from_secs(25 * 60);
const SHORTEST_CYCLE: Nanos = Nanos::from_secs(10);
const LONGEST_CYCLE: Nanos = Nanos::from_secs(31 * 86_400);
/// What every link of IPv4 carries (RFC 791, 3.2).
const LEAST_MTU: u64 = 68;
/// Kinds of tests.
const KINDS: [&str; 6] = ["bulk", "request", "udp", "copy", "mtu", "light"];
/// A search for the MTU of both directions: 24 rounds of probes, each of two RTTs and 60 ms, and the hops, at an RTT of 300 ms.
const MTU_TIME: Nanos = Nanos::from_secs(20);
/// Cycle of light probes that name none.
const LIGHT_CYCLE: Nanos = Nanos::from_secs(60);

/// A plan to measure between many hosts. Checked: every name that it uses exists.
#[derive(Clone, Debug, PartialEq)]
pub struct Mesh {
    /// Name.
    pub name: String,
    /// Where hosts and links are booked; `None`: in SQLite, for the meshes of one machine.
    pub calendar: Option<PostgresAddress>,
    /// Cycles count from here, since 1970-01-01 UTC.
    pub epoch: Nanos,
    /// Spans in which no test runs but light probes.
    pub quiet: Vec<QuietSpan>,
    /// The hosts, in the order of the file.
    pub hosts: Vec<MeshHost>,
    /// Links with a limited number of tests at a time.
    pub links: Vec<MeshLink>,
    /// The tests.
    pub tests: Vec<MeshTest>,
    /// What is executed when a cell gets worse.
    pub alerts: Vec<MeshAlert>,
}

/// A host of a mesh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeshHost {
    /// Unique.
    pub name: String,
    /// Its agent, `name[:port]` or `ssh:[user@]name`.
    pub agent: String,
    /// Address by which the other hosts reach it; `None`: that of the agent.
    pub data: Option<String>,
    /// Where it is.
    pub site: Option<String>,
    /// Most bytes that it sends and receives in tests in a day.
    pub bytes_a_day: Option<Bytes>,
}

/// What joins a site to the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeshLink {
    /// Unique.
    pub name: String,
    /// Every test between a host of this site and one elsewhere takes a unit.
    pub site: String,
    /// Tests at the same time.
    pub units: u32,
}

/// Two hosts by their index in [`Mesh::hosts`]: the first measures towards the second.
pub type HostPair = (usize, usize);

/// A test between hosts.
#[derive(Clone, Debug, PartialEq)]
pub struct MeshTest {
    /// Unique.
    pub name: String,
    /// What is measured; [`Spec::directions`] from the first host of a pair. Light probes use its version of IP alone.
    pub spec: Spec,
    /// What light probes send, if it is a test of these: its pairs are ordered, and nothing is booked.
    pub light: Option<LightTest>,
    /// What its legs are compared by; [`CellFigure::Mtu`]: the path MTU of both directions is measured, not what [`Self::spec`] has
    /// as its workload.
    pub figure: CellFigure,
    /// Hosts that measure, by index in ascending order.
    pub from: Vec<usize>,
    /// Those that they measure towards, likewise.
    pub to: Vec<usize>,
    /// All of the hosts measure each other: `hosts` in the file, not `from` and `to`.
    pub mutual: bool,
    /// Ordered pairs that are left out; where both directions are measured, either order leaves out both.
    pub except: BTreeSet<HostPair>,
    /// How the pairs are chosen.
    pub pairs: PairChoice,
    /// Duration of a cycle.
    pub every: Nanos,
    /// A cell is low beyond it.
    pub good: Option<GoodThreshold>,
}

/// How the pairs of a test are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairChoice {
    /// Every pair once in a cycle.
    All,
    /// One pair of hosts a pair of sites, taking turns from cycle to cycle.
    Sites,
    /// So many rounds a cycle, in each of which every host has a random partner.
    Matchings(u32),
}

/// What separates good from low.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum GoodThreshold {
    /// Goodput at least.
    Goodput(BitRate),
    /// Median latency at most.
    Latency(Nanos),
    /// Packets of this size pass.
    Size(Bytes),
    /// This share of the cell's own median goodput (of latency: at most the median divided by it).
    OfMedian(f64),
}

/// When an alert is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlertWhen {
    /// Legs of a cell with this outcome.
    Outcome(LegOutcome),
    /// A change of level among the last legs of a cell.
    Shifted,
}

/// A program to execute when a cell gets worse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeshAlert {
    /// Name of the test.
    pub test: String,
    /// When.
    pub when: AlertWhen,
    /// So many times in a row.
    pub times: u32,
    /// Program and arguments; no shell.
    pub exec: Vec<String>,
}

impl Mesh {
    /// The links that a test between these hosts takes a unit of, by index.
    pub fn links_between(&self, (a, b): HostPair) -> impl Iterator<Item = usize> + '_ {
        let at =
            move |host: usize, link: &MeshLink| self.hosts[host].site.as_ref() == Some(&link.site);
        let crosses = move |link: &MeshLink| at(a, link) != at(b, link);
        let all = self.links.iter().enumerate();
        all.filter(move |(_, link)| crosses(link)).map(|(at, _)| at)
    }

    /// The tests whose hosts are booked: all but light probes; by index.
    pub fn booked(&self) -> impl Iterator<Item = (usize, &MeshTest)> {
        let all = self.tests.iter().enumerate();
        all.filter(|(_, test)| test.light.is_none())
    }

    /// The test of this name; the first one where none is named.
    ///
    /// # Errors
    /// In words, if there is none.
    pub fn test(&self, name: Option<&str>) -> Result<&MeshTest, String> {
        let found = self
            .tests
            .iter()
            .find(|test| name.is_none_or(|name| test.name == name));
        found.ok_or_else(|| {
            let names: Vec<&str> = self.tests.iter().map(|test| test.name.as_str()).collect();
            format!(
                "the mesh '{}' has no test '{}'; it has {}",
                self.name,
                name.unwrap_or_default().escape_debug(),
                names.join(", ")
            )
        })
    }
}

impl MeshTest {
    /// The pair in the order in which it is measured; `None` if it is not to be.
    pub(crate) fn ordered(&self, (a, b): HostPair) -> Option<HostPair> {
        let has = |hosts: &[usize], host| hosts.binary_search(&host).is_ok();
        let may = |(a, b)| a != b && has(&self.from, a) && has(&self.to, b);
        let is_left_out = |pair| self.except.contains(&pair);
        match (self.spec.directions, self.mutual) {
            _ if self.light.is_some() => Some((a, b)),
            // From the host that comes first in the file.
            (Directions::Up, true) => Some((a.min(b), a.max(b))),
            (Directions::Up, false) => Some((a, b)),
            _ if is_left_out((a, b)) || is_left_out((b, a)) => None,
            _ if may((a, b)) => Some((a, b)),
            _ => Some((b, a)),
        }
        .filter(|pair| may(*pair) && !is_left_out(*pair))
    }

    /// The ordered pairs of sources and destinations that have a leg once all pairs were measured.
    pub fn cells(&self) -> Vec<HostPair> {
        let mut cells = BTreeSet::new();
        for (&a, &b) in self
            .from
            .iter()
            .flat_map(|a| self.to.iter().map(move |b| (a, b)))
        {
            let Some((a, b)) = self.ordered((a, b)) else {
                continue;
            };
            cells.insert((a, b));
            if self.light.is_none() && self.spec.directions != Directions::Up {
                cells.insert((b, a));
            }
        }
        cells.into_iter().collect()
    }

    /// Duration of each leg.
    pub fn time(&self) -> Nanos {
        match self.spec.limit {
            LegLimit::Time(time) => time,
            _ => Nanos(0),
        }
    }
}

impl fmt::Display for PairChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PairChoice::All => f.write_str("all"),
            PairChoice::Sites => f.write_str("sites"),
            PairChoice::Matchings(n) => write!(f, "matchings:{n}"),
        }
    }
}

impl FromStr for PairChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<PairChoice, String> {
        let number = |n: &str| n.parse().ok().filter(|n| (1..=1000).contains(n));
        match text {
            "all" => Some(PairChoice::All),
            "sites" => Some(PairChoice::Sites),
            other => other
                .strip_prefix("matchings:")
                .and_then(number)
                .map(PairChoice::Matchings),
        }
        .ok_or_else(|| "write \"all\", \"sites\", or \"matchings:4\" (1 to 1000 rounds)".to_owned())
    }
}

impl fmt::Display for GoodThreshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GoodThreshold::Goodput(rate) => write!(f, "{rate}"),
            GoodThreshold::Latency(time) => write!(f, "{time}"),
            GoodThreshold::Size(size) => write!(f, "{} bytes", size.0),
            GoodThreshold::OfMedian(share) => write!(f, "{:.0} % of its median", share * 100.0),
        }
    }
}

impl fmt::Display for AlertWhen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AlertWhen::Outcome(outcome) => write!(f, "{outcome}"),
            AlertWhen::Shifted => f.write_str("shifted"),
        }
    }
}

impl FromStr for AlertWhen {
    type Err = String;

    fn from_str(text: &str) -> Result<AlertWhen, String> {
        match text {
            "low" => Ok(AlertWhen::Outcome(LegOutcome::Low)),
            "failed" => Ok(AlertWhen::Outcome(LegOutcome::Failed)),
            "missed" => Ok(AlertWhen::Outcome(LegOutcome::Missed)),
            "shifted" => Ok(AlertWhen::Shifted),
            _ => Err("write \"low\", \"failed\", \"missed\" or \"shifted\"".to_owned()),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MeshFile {
    mesh: Spanned<HeadTable>,
    #[serde(default)]
    host: Vec<Spanned<HostTable>>,
    #[serde(default)]
    link: Vec<Spanned<LinkTable>>,
    #[serde(default)]
    test: Vec<Spanned<TestTable>>,
    #[serde(default)]
    alert: Vec<Spanned<AlertTable>>,
}

type Text = Spanned<String>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HeadTable {
    name: Text,
    calendar: Option<Text>,
    epoch: Option<Spanned<Datetime>>,
    #[serde(default)]
    quiet: Vec<Text>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HostTable {
    name: Text,
    agent: Text,
    data: Option<Text>,
    site: Option<Text>,
    bytes_a_day: Option<Text>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkTable {
    name: Text,
    site: Text,
    units: Option<Spanned<u32>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TestTable {
    name: Text,
    kind: Option<Text>,
    hosts: Option<Spanned<Vec<Text>>>,
    from: Option<Spanned<Vec<Text>>>,
    to: Option<Spanned<Vec<Text>>>,
    #[serde(default)]
    except: Vec<Spanned<[String; 2]>>,
    time: Option<Text>,
    directions: Option<Text>,
    streams: Option<Spanned<u32>>,
    rate: Option<Text>,
    congestion: Option<Text>,
    sockbuf: Option<Text>,
    ramp: Option<Text>,
    interval: Option<Text>,
    ip_version: Option<Spanned<u8>>,
    request_size: Option<Text>,
    reply_size: Option<Text>,
    pace: Option<Spanned<f64>>,
    datagram_size: Option<Text>,
    from_file: Option<Text>,
    to_file: Option<Text>,
    cache: Option<Spanned<Cache>>,
    direct: Option<Spanned<bool>>,
    packets: Option<Spanned<u32>>,
    loss: Option<Text>,
    mtu: Option<Spanned<u32>>,
    pairs: Option<Text>,
    every: Option<Text>,
    good: Option<Text>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AlertTable {
    test: Text,
    when: Text,
    times: Option<Spanned<u32>>,
    exec: Spanned<Vec<String>>,
}

/// Reads a mesh; `file` names it in errors.
///
/// # Errors
/// With file, line, table, key and value, if it is none that can be carried out.
pub fn parse_mesh(text: &str, file: &str) -> Result<Mesh, MeshError> {
    let source = MeshText { text, file };
    if text.len() > LONGEST_FILE {
        let what = format!("the file has more than {LONGEST_FILE} bytes");
        return Err(source.error(0, what, "name a mesh file"));
    }
    let read: MeshFile = toml::from_str(text).map_err(|e| source.unread(&e))?;
    source.mesh(read)
}

/// The text of a file, to name lines and tables in it.
struct MeshText<'a> {
    text: &'a str,
    file: &'a str,
}

impl MeshText<'_> {
    fn error(&self, at: usize, what: impl Into<String>, remedy: impl Into<String>) -> MeshError {
        let before = &self.text.as_bytes()[..at.min(self.text.len())];
        MeshError {
            file: self.file.to_owned(),
            line: before.iter().filter(|&&b| b == b'\n').count() + 1,
            what: what.into(),
            remedy: remedy.into(),
        }
    }

    /// The value of a key of a table that cannot be.
    fn bad<V: fmt::Display>(
        &self,
        table: &str,
        key: &str,
        value: &Spanned<V>,
        remedy: impl Into<String>,
    ) -> MeshError {
        let shown = value.get_ref().to_string();
        let what = format!(
            "{table}: {key} = \"{}\" is not possible",
            shown.escape_debug()
        );
        self.error(value.span().start, what, remedy)
    }

    fn parsed<T: FromStr<Err = String>>(
        &self,
        table: &str,
        key: &str,
        value: &Text,
    ) -> Result<T, MeshError> {
        let parsed = value.get_ref().parse();
        parsed.map_err(|remedy| self.bad(table, key, value, remedy))
    }

    /// The header of the table that a place lies in.
    fn table_at(&self, at: usize) -> String {
        let before = self.text.get(..at).unwrap_or_default();
        let lines = before.lines().rev();
        let mut headers = lines.map(str::trim).filter(|line| line.starts_with('['));
        let header = headers.find(|line| line.contains(']') && !line.contains('='));
        header.map_or("the file".to_owned(), |line| {
            line.split('#').next().unwrap_or(line).trim().to_owned()
        })
    }

    /// What the reader of TOML found wrong.
    fn unread(&self, error: &toml::de::Error) -> MeshError {
        let at = error.span().map_or(0, |span| span.start);
        let table = self.table_at(at);
        let message = error.message().trim().replace('\n', ", ");
        let mut quoted = message.split('`').skip(1).step_by(2);
        let first = quoted.next();
        match first {
            Some(name) if message.starts_with("unknown field") => {
                let known: Vec<&str> = quoted.collect();
                let what = format!("{table}: unknown key '{name}'");
                self.error(at, what, suggest(name, &known))
            }
            Some("mesh") if message.starts_with("missing field") => self.error(
                at,
                "the table [mesh] is missing",
                "begin the file with [mesh] and name = ...",
            ),
            Some(name) if message.starts_with("missing field") => self.error(
                at,
                format!("{table}: '{name}' is missing"),
                format!("add {name} = ..."),
            ),
            _ => match message.split_once(", expected ") {
                Some((what, expected)) => {
                    self.error(at, format!("{table}: {what}"), format!("write {expected}"))
                }
                None => self.error(
                    at,
                    format!("{table}: {message}"),
                    "write key = value, with text in quotes",
                ),
            },
        }
    }

    fn mesh(&self, file: MeshFile) -> Result<Mesh, MeshError> {
        let head = file.mesh.get_ref();
        self.name("[mesh]", &head.name)?;
        let calendar = match &head.calendar {
            Some(text) => self.calendar(text)?,
            None => None,
        };
        let epoch = match &head.epoch {
            Some(epoch) => self.epoch(epoch)?,
            None => Nanos(0),
        };
        let quiet = head
            .quiet
            .iter()
            .map(|span| self.parsed("[mesh]", "quiet", span));
        let quiet = quiet.collect::<Result<_, _>>()?;
        for (count, most, what) in [
            (file.host.len(), MOST_HOSTS, "[[host]]"),
            (file.link.len(), MOST_ENTRIES, "[[link]]"),
            (file.test.len(), MOST_ENTRIES, "[[test]]"),
            (file.alert.len(), MOST_ENTRIES, "[[alert]]"),
        ] {
            if count > most {
                let what = format!("{what}: {count} of them");
                return Err(self.error(0, what, format!("at most {most} are possible")));
            }
        }
        let hosts = self.hosts(&file.host)?;
        let has_disks = |test: &Spanned<TestTable>| {
            test.get_ref().from_file.is_some() || test.get_ref().to_file.is_some()
        };
        let most = match file.test.iter().any(has_disks) {
            true => LINKS_WITH_DISKS,
            false => LINKS_OF_SITE,
        };
        let links = self.links(&file.link, &hosts, most)?;
        let mut tests: Vec<MeshTest> = Vec::new();
        for table in &file.test {
            let test = self.test(table.get_ref(), &hosts)?;
            if tests.iter().any(|other| other.name == test.name) {
                let name = &table.get_ref().name;
                return Err(self.bad("[[test]]", "name", name, "give each test its own name"));
            }
            tests.push(test);
        }
        if tests.is_empty() {
            return Err(self.error(0, "the file has no test", "add [[test]]"));
        }
        // A cycle is cut into the shortest one's length.
        let booked = tests.iter().zip(&file.test);
        let booked = booked.filter(|(test, _)| test.light.is_none());
        let shortest = booked.clone().map(|(test, _)| test.every).min();
        for (test, table) in booked {
            if let (Some(shortest), Some(every)) = (shortest, &table.get_ref().every)
                && !test.every.0.is_multiple_of(shortest.0)
            {
                let what = format!("[[test]] '{}'", test.name);
                let remedy =
                    format!("write a multiple of the shortest 'every' of the file, {shortest}");
                return Err(self.bad(&what, "every", every, remedy));
            }
        }
        let alerts = file.alert.iter();
        let alerts = alerts.map(|alert| self.alert(alert.get_ref(), &tests));
        Ok(Mesh {
            name: head.name.get_ref().clone(),
            calendar,
            epoch,
            quiet,
            links,
            alerts: alerts.collect::<Result<_, _>>()?,
            tests,
            hosts,
        })
    }

    fn name(&self, table: &str, name: &Text) -> Result<(), MeshError> {
        let text = name.get_ref();
        let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b);
        match (1..=64).contains(&text.len()) && text.bytes().all(fits) {
            true => Ok(()),
            false => Err(self.bad(table, "name", name, "write 1 to 64 of a-z 0-9 . _ -")),
        }
    }

    fn calendar(&self, text: &Text) -> Result<Option<PostgresAddress>, MeshError> {
        let read = match text.get_ref().split_once(':') {
            None if text.get_ref() == "sqlite" => return Ok(None),
            Some(("postgres", address)) => address.parse().map(Some),
            _ => Err(
                "write \"sqlite\" or \"postgres:host=/run/postgresql dbname=linerate\"".to_owned(),
            ),
        };
        // Errors do not show what may be a password.
        let remedy = |remedy: String| match text.get_ref().contains("password") {
            true => self.error(text.span().start, "[mesh]: calendar has a password", remedy),
            false => self.bad("[mesh]", "calendar", text, remedy),
        };
        read.map_err(remedy)
    }

    fn epoch(&self, epoch: &Spanned<Datetime>) -> Result<Nanos, MeshError> {
        let remedy = "write a moment in UTC, from 1970: 2026-11-23T00:00:00Z";
        let utc = Some(epoch.get_ref()).filter(|epoch| epoch.offset == Some(Offset::Z));
        utc.and_then(moment)
            .ok_or_else(|| self.bad("[mesh]", "epoch", epoch, remedy))
    }

    fn hosts(&self, tables: &[Spanned<HostTable>]) -> Result<Vec<MeshHost>, MeshError> {
        let (mut names, mut agents) = (BTreeSet::new(), BTreeSet::new());
        let mut hosts = Vec::new();
        for table in tables {
            let HostTable {
                name,
                agent,
                data,
                site,
                bytes_a_day,
            } = table.get_ref();
            self.name("[[host]]", name)?;
            let table = format!("[[host]] '{}'", name.get_ref());
            if !names.insert(name.get_ref()) {
                return Err(self.bad(&table, "name", name, "give each host its own name"));
            }
            if agent.get_ref().is_empty() {
                return Err(self.bad(
                    &table,
                    "agent",
                    agent,
                    "write name[:port] or ssh:[user@]name",
                ));
            }
            if !agents.insert(one_agent(agent.get_ref())) {
                return Err(self.bad(
                    &table,
                    "agent",
                    agent,
                    "another host has it: one agent is one host",
                ));
            }
            if let Some(site) = site {
                self.name(&format!("{table}: site"), site)?;
            }
            let bytes = bytes_a_day.as_ref();
            let bytes = bytes.map(|bytes| self.parsed(&table, "bytes_a_day", bytes));
            hosts.push(MeshHost {
                name: name.get_ref().clone(),
                agent: agent.get_ref().clone(),
                data: data.as_ref().map(|data| data.get_ref().clone()),
                site: site.as_ref().map(|site| site.get_ref().clone()),
                bytes_a_day: bytes.transpose()?,
            });
        }
        if hosts.len() < 2 {
            let what = format!("the file has {} hosts", hosts.len());
            return Err(self.error(0, what, "add [[host]] with name and agent: at least two"));
        }
        Ok(hosts)
    }

    fn links(
        &self,
        tables: &[Spanned<LinkTable>],
        hosts: &[MeshHost],
        most: usize,
    ) -> Result<Vec<MeshLink>, MeshError> {
        let sites = sites(hosts);
        let mut links: Vec<MeshLink> = Vec::new();
        for table in tables {
            let LinkTable { name, site, units } = table.get_ref();
            self.name("[[link]]", name)?;
            let table = format!("[[link]] '{}'", name.get_ref());
            if links.iter().any(|link| link.name == *name.get_ref()) {
                return Err(self.bad(&table, "name", name, "give each link its own name"));
            }
            if !sites.contains(&site.get_ref().as_str()) {
                let remedy = format!("no host is there: {}", suggest(site.get_ref(), &sites));
                return Err(self.bad(&table, "site", site, remedy));
            }
            let of_site = links.iter().filter(|link| link.site == *site.get_ref());
            if of_site.count() == most {
                let remedy = format!(
                    "a site may have {most} links: {LINKS_OF_SITE}, or {LINKS_WITH_DISKS} beside copies of files"
                );
                return Err(self.bad(&table, "site", site, remedy));
            }
            if let Some(units) = units.as_ref().filter(|u| !(1..=1000).contains(u.get_ref())) {
                return Err(self.bad(&table, "units", units, "1 to 1000 are possible"));
            }
            links.push(MeshLink {
                name: name.get_ref().clone(),
                site: site.get_ref().clone(),
                units: units.as_ref().map_or(1, |units| *units.get_ref()),
            });
        }
        Ok(links)
    }

    fn test(&self, file: &TestTable, hosts: &[MeshHost]) -> Result<MeshTest, MeshError> {
        self.name("[[test]]", &file.name)?;
        let table = format!("[[test]] '{}'", file.name.get_ref());
        let list = |key: &str, names: &Spanned<Vec<Text>>| self.members(&table, key, names, hosts);
        let (from, to) = match (&file.hosts, &file.from, &file.to) {
            (Some(all), None, None) => {
                let all = list("hosts", all)?;
                (all.clone(), all)
            }
            (None, Some(from), Some(to)) => (list("from", from)?, list("to", to)?),
            _ => {
                let what = format!("{table}: which hosts is not clear");
                let remedy = "write hosts = [...], or from = [...] and to = [...]";
                return Err(self.error(file.name.span().start, what, remedy));
            }
        };
        let is_mutual = file.hosts.is_some();
        let pairs = file
            .pairs
            .as_ref()
            .map(|pairs| self.parsed(&table, "pairs", pairs));
        let pairs = pairs.transpose()?.unwrap_or(PairChoice::All);
        if let (Some(value), false) = (&file.pairs, is_mutual || pairs == PairChoice::All) {
            return Err(self.bad(
                &table,
                "pairs",
                value,
                "with from and to \"all\" is possible",
            ));
        }
        if let (Some(value), PairChoice::Sites) = (&file.pairs, pairs) {
            let members: Vec<MeshHost> = from.iter().map(|host| hosts[*host].clone()).collect();
            if sites(&members).len() < 2 || members.iter().any(|host| host.site.is_none()) {
                let remedy = "give each of its hosts a site, two different ones at the least";
                return Err(self.bad(&table, "pairs", value, remedy));
            }
        }
        let mut except = BTreeSet::new();
        for pair in &file.except {
            let index = |name: &String| {
                let known: Vec<&str> = hosts.iter().map(|host| host.name.as_str()).collect();
                let found = hosts.iter().position(|host| host.name == *name);
                found.ok_or_else(|| {
                    let what = format!(
                        "{table}: except names '{}', which is no host",
                        name.escape_debug()
                    );
                    self.error(pair.span().start, what, suggest(name, &known))
                })
            };
            let [a, b] = pair.get_ref();
            except.insert((index(a)?, index(b)?));
        }
        let spec = self.spec(&table, file, is_mutual)?;
        let light = self.light(&table, file)?;
        let every = match &file.every {
            None if light.is_some() => LIGHT_CYCLE,
            None => {
                let what = format!("{table}: 'every' is missing");
                return Err(self.error(file.name.span().start, what, "add every = ..."));
            }
            Some(every) => match self.parsed(&table, "every", every)? {
                span if (SHORTEST_CYCLE..=LONGEST_CYCLE).contains(&span) => span,
                _ => return Err(self.bad(&table, "every", every, "10s to 31d are possible")),
            },
        };
        let kind = file.kind.as_ref().map(|kind| kind.get_ref().as_str());
        let figure = match (kind, &spec.workload) {
            (Some("mtu"), _) => CellFigure::Mtu,
            (Some("light"), _) => CellFigure::LightRtt,
            (_, Workload::Request(_)) => CellFigure::Latency,
            _ => CellFigure::Goodput,
        };
        let good = file.good.as_ref();
        let good = good.map(|good| self.good(&table, good, figure));
        let test = MeshTest {
            name: file.name.get_ref().clone(),
            good: good.transpose()?,
            light,
            figure,
            spec,
            from,
            to,
            mutual: is_mutual,
            except,
            pairs,
            every,
        };
        match test.cells().is_empty() {
            true => {
                let what = format!("{table}: it has no pair of two hosts");
                Err(self.error(file.name.span().start, what, "name more hosts"))
            }
            false => Ok(test),
        }
    }

    /// Hosts by name, `site:NAME` or `*`, in the order of the file, each once.
    fn members(
        &self,
        table: &str,
        key: &str,
        names: &Spanned<Vec<Text>>,
        hosts: &[MeshHost],
    ) -> Result<Vec<usize>, MeshError> {
        let mut members = BTreeSet::new();
        for name in names.get_ref() {
            let text = name.get_ref().as_str();
            let site = text.strip_prefix("site:");
            let matching = |host: &MeshHost| match site {
                Some(site) => host.site.as_deref() == Some(site),
                None => text == "*" || host.name == text,
            };
            let found = hosts.iter().enumerate().filter(|(_, host)| matching(host));
            let found: Vec<usize> = found.map(|(at, _)| at).collect();
            if found.is_empty() {
                let known = match site {
                    Some(_) => sites(hosts),
                    None => hosts.iter().map(|host| host.name.as_str()).collect(),
                };
                let remedy = suggest(site.unwrap_or(text), &known);
                let remedy =
                    format!("names of hosts, \"site:NAME\" and \"*\" are possible; {remedy}");
                return Err(self.bad(table, key, name, remedy));
            }
            members.extend(found);
        }
        Ok(members.into_iter().collect())
    }

    fn spec(&self, table: &str, file: &TestTable, is_mutual: bool) -> Result<Spec, MeshError> {
        let kind = file
            .kind
            .as_ref()
            .map_or("bulk", |kind| kind.get_ref().as_str());
        if let Some(kind) = file
            .kind
            .as_ref()
            .filter(|kind| !KINDS.contains(&kind.get_ref().as_str()))
        {
            let remedy = format!("\"{}\" are possible", KINDS.join("\", \""));
            return Err(self.bad(table, "kind", kind, remedy));
        }
        // Of which kinds an option is.
        let text = |value: &Option<Text>| value.as_ref().map(Spanned::span);
        let number = |value: &Option<Spanned<u32>>| value.as_ref().map(Spanned::span);
        const STREAMS: &str = "bulk request udp";
        const BOOKED: &str = "bulk request udp copy";
        for (key, kinds, at) in [
            ("request_size", "request", text(&file.request_size)),
            ("reply_size", "request", text(&file.reply_size)),
            ("pace", "request", file.pace.as_ref().map(Spanned::span)),
            ("datagram_size", "udp", text(&file.datagram_size)),
            ("rate", "bulk udp", text(&file.rate)),
            ("from_file", "copy", text(&file.from_file)),
            ("to_file", "copy", text(&file.to_file)),
            ("cache", "copy", file.cache.as_ref().map(Spanned::span)),
            ("direct", "copy", file.direct.as_ref().map(Spanned::span)),
            ("packets", "light", number(&file.packets)),
            ("loss", "light", text(&file.loss)),
            ("mtu", "light", number(&file.mtu)),
            ("time", BOOKED, text(&file.time)),
            ("directions", BOOKED, text(&file.directions)),
            ("pairs", "bulk request udp copy mtu", text(&file.pairs)),
            ("streams", STREAMS, number(&file.streams)),
            ("congestion", BOOKED, text(&file.congestion)),
            ("sockbuf", BOOKED, text(&file.sockbuf)),
            ("ramp", BOOKED, text(&file.ramp)),
            ("interval", BOOKED, text(&file.interval)),
        ] {
            if let Some(at) = at
                && !kinds.split(' ').any(|of| of == kind)
            {
                let what = format!("{table}: '{key}' is no option of kind = \"{kind}\"");
                let remedy = format!("leave it out; it is one of {}", kinds.replace(' ', ", "));
                return Err(self.error(at.start, what, remedy));
            }
        }
        let size = |key: &str, value: &Option<Text>, usual: u64, possible: [u64; 2]| match value {
            None => Ok(Bytes(usual)),
            Some(value) => match self.parsed::<Bytes>(table, key, value)? {
                size if (possible[0]..=possible[1]).contains(&size.0) => Ok(size),
                _ => {
                    let [least, most] = possible;
                    Err(self.bad(
                        table,
                        key,
                        value,
                        format!("{least} to {most} bytes are possible"),
                    ))
                }
            },
        };
        let rate = file
            .rate
            .as_ref()
            .map(|rate| self.parsed::<BitRate>(table, "rate", rate));
        let rate = rate.transpose()?.filter(|rate| rate.0 > 0);
        let workload = match kind {
            "udp" => Workload::Udp(Udp {
                rate: rate.unwrap_or(BitRate(1_000_000)),
                datagram_size: size("datagram_size", &file.datagram_size, 1448, [24, 65_507])?,
            }),
            "request" => {
                if let Some(pace) = file
                    .pace
                    .as_ref()
                    .filter(|pace| pace.get_ref().is_nan() || *pace.get_ref() <= 0.0)
                {
                    return Err(self.bad(table, "pace", pace, "a number above 0 is possible"));
                }
                Workload::Request(Request {
                    request_size: size("request_size", &file.request_size, 128, [4, 1 << 30])?,
                    reply_size: size("reply_size", &file.reply_size, 8 << 10, [1, 1 << 30])?,
                    pace_per_s: file.pace.as_ref().map(|pace| *pace.get_ref()),
                    reconnect: false,
                    wait: WaitMode::default(),
                })
            }
            "copy" => self.copy(table, file)?,
            _ => Workload::Bulk(Bulk::default()),
        };
        let usual = match is_mutual {
            // A search for the MTU finds that of both.
            _ if kind == "mtu" => Directions::Bidirectional,
            true => Directions::UpThenDown,
            false => Directions::Up,
        };
        let directions = match &file.directions {
            None => usual,
            Some(value) => match value.get_ref().as_str() {
                "up" => Directions::Up,
                "both" => Directions::UpThenDown,
                "bidir" if kind != "copy" => Directions::Bidirectional,
                _ => {
                    let remedy = match kind == "copy" {
                        true => "\"up\" and \"both\" (up, then down) are possible",
                        false => {
                            "\"up\", \"both\" (up, then down) and \"bidir\" (at once) are possible"
                        }
                    };
                    return Err(self.bad(table, "directions", value, remedy));
                }
            },
        };
        let span = |key: &str, value: &Option<Text>, [least, most]: [Nanos; 2]| match value {
            None => Ok(None),
            Some(value) => match self.parsed::<Nanos>(table, key, value)? {
                span if (least..=most).contains(&span) => Ok(Some(span)),
                _ => Err(self.bad(table, key, value, format!("{least} to {most} are possible"))),
            },
        };
        let time = span("time", &file.time, [Nanos::from_secs(1), LONGEST_TIME])?;
        let time = time.or((kind == "mtu").then_some(MTU_TIME));
        if let Some(streams) = file
            .streams
            .as_ref()
            .filter(|n| !(1..=128).contains(n.get_ref()))
        {
            return Err(self.bad(table, "streams", streams, "1 to 128 are possible"));
        }
        let sockbuf = size("sockbuf", &file.sockbuf, 0, [4 << 10, 1 << 30])?;
        let sockbuf = file.sockbuf.is_some().then_some(sockbuf);
        let ip_version = match &file.ip_version {
            None => None,
            Some(version) => Some(match version.get_ref() {
                4 => IpVersion::V4,
                6 => IpVersion::V6,
                _ => return Err(self.bad(table, "ip_version", version, "4 and 6 are possible")),
            }),
        };
        let usual = Spec::default();
        let is_bulk = matches!(workload, Workload::Bulk(_));
        Ok(Spec {
            directions,
            streams: file
                .streams
                .as_ref()
                .map_or(1, |streams| *streams.get_ref()),
            limit: time.map_or(usual.limit, LegLimit::Time),
            ramp: span("ramp", &file.ramp, [Nanos(0), LONGEST_TIME])?,
            interval: span(
                "interval",
                &file.interval,
                [Nanos::from_millis(10), LONGEST_TIME],
            )?
            .unwrap_or(usual.interval),
            socket: SocketSettings {
                congestion: file.congestion.as_ref().map(|name| name.get_ref().clone()),
                send_buffer: sockbuf,
                receive_buffer: sockbuf,
                pacing: rate.filter(|_| is_bulk),
                ip_version,
                ..SocketSettings::default()
            },
            workload,
            ..usual
        })
    }

    /// From a file or memory to a file, which does not stay, or memory.
    fn copy(&self, table: &str, file: &TestTable) -> Result<Workload, MeshError> {
        let name = |key, value: &Option<Text>| match value {
            Some(value) if value.get_ref().is_empty() => Err(self.bad(
                table,
                key,
                value,
                "write the name of a file; none is memory",
            )),
            value => Ok(value.as_ref().map(|value| value.get_ref().clone())),
        };
        Ok(Workload::Copy(FileCopy {
            from: name("from_file", &file.from_file)?,
            to: name("to_file", &file.to_file)?,
            cache: file
                .cache
                .as_ref()
                .map(|cache| *cache.get_ref())
                .unwrap_or_default(),
            direct: file.direct.as_ref().is_some_and(|direct| *direct.get_ref()),
            keep: false,
        }))
    }

    /// What light probes send, if the test is of these.
    fn light(&self, table: &str, file: &TestTable) -> Result<Option<LightTest>, MeshError> {
        if file
            .kind
            .as_ref()
            .is_none_or(|kind| kind.get_ref() != "light")
        {
            return Ok(None);
        }
        let within = |key: &str, value: &Option<Spanned<u32>>, [least, most]: [u32; 2]| match value
        {
            Some(value) if !(least..=most).contains(value.get_ref()) => {
                Err(self.bad(table, key, value, format!("{least} to {most} are possible")))
            }
            value => Ok(value.as_ref().map(|value| *value.get_ref())),
        };
        let packets = within("packets", &file.packets, [1, MAX_PACKETS])?;
        let mtu = within("mtu", &file.mtu, [PACKET + 1, 65_535])?;
        let loss = match &file.loss {
            None => None,
            Some(value) => match parse_share(value.get_ref()) {
                Ok(share) if (0.0..1.0).contains(&share) => Some(share),
                _ => return Err(self.bad(table, "loss", value, "0% to 99% are possible")),
            },
        };
        let mut sizes: Vec<u32> = USUAL_SIZES.into_iter().chain(mtu).collect();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        sizes.dedup();
        Ok(Some(LightTest {
            packets: packets.unwrap_or(USUAL_PACKETS),
            sizes,
            loss,
            mtu,
        }))
    }

    fn good(
        &self,
        table: &str,
        value: &Text,
        figure: CellFigure,
    ) -> Result<GoodThreshold, MeshError> {
        let text = value.get_ref();
        if text.trim().ends_with('%') {
            let share = parse_share(text)
                .ok()
                .filter(|share| *share > 0.0 && *share < 1.0);
            let good = share.map(GoodThreshold::OfMedian);
            return good.ok_or_else(|| self.bad(table, "good", value, "1% to 99% are possible"));
        }
        match figure {
            CellFigure::Mtu => match self.parsed(table, "good", value)? {
                size @ Bytes(LEAST_MTU..=65_535) => Ok(GoodThreshold::Size(size)),
                _ => Err(self.bad(table, "good", value, "68 to 65535 are possible")),
            },
            CellFigure::Latency | CellFigure::LightRtt => self
                .parsed(table, "good", value)
                .map(GoodThreshold::Latency),
            CellFigure::Goodput => self
                .parsed(table, "good", value)
                .map(GoodThreshold::Goodput),
        }
    }

    fn alert(&self, file: &AlertTable, tests: &[MeshTest]) -> Result<MeshAlert, MeshError> {
        let known: Vec<&str> = tests.iter().map(|test| test.name.as_str()).collect();
        if !known.contains(&file.test.get_ref().as_str()) {
            let remedy = suggest(file.test.get_ref(), &known);
            return Err(self.bad("[[alert]]", "test", &file.test, remedy));
        }
        if let Some(times) = file
            .times
            .as_ref()
            .filter(|times| !(1..=100).contains(times.get_ref()))
        {
            return Err(self.bad("[[alert]]", "times", times, "1 to 100 are possible"));
        }
        let exec = file.exec.get_ref();
        if exec.first().is_none_or(|program| !program.starts_with('/')) {
            let what = "[[alert]]: exec has no program with its whole path";
            let remedy = "write [\"/usr/local/bin/page\", \"argument\"]; no shell is started";
            return Err(self.error(file.exec.span().start, what, remedy));
        }
        Ok(MeshAlert {
            test: file.test.get_ref().clone(),
            when: self.parsed("[[alert]]", "when", &file.when)?,
            times: file.times.as_ref().map_or(1, |times| *times.get_ref()),
            exec: exec.clone(),
        })
    }
}

/// The sites of hosts, in the order of the file.
pub(crate) fn sites(hosts: &[MeshHost]) -> Vec<&str> {
    let mut sites: Vec<&str> = Vec::new();
    for site in hosts.iter().filter_map(|host| host.site.as_deref()) {
        if !sites.contains(&site) {
            sites.push(site);
        }
    }
    sites
}

/// What an agent is compared by: its port may be left out.
fn one_agent(agent: &str) -> String {
    if agent.starts_with("ssh:") || agent.parse::<Ipv6Addr>().is_ok() {
        return agent.to_owned();
    }
    let name = agent.strip_suffix(&format!(":{AGENT_PORT}"));
    let name = name.unwrap_or(agent).trim_matches(['[', ']']);
    name.to_ascii_lowercase()
}

/// A remedy for a name that is none of `known`.
fn suggest(name: &str, known: &[&str]) -> String {
    let distance = |k: &&str| strsim::levenshtein(name.get(..64).unwrap_or(name), k);
    match known.iter().min_by_key(|k| distance(k)) {
        Some(key) if distance(key) <= 1 + key.len() / 4 => format!("did you mean '{key}'?"),
        Some(_) => {
            let more = if known.len() > 12 { ", ..." } else { "" };
            let known: Vec<&str> = known.iter().take(12).copied().collect();
            format!("known here: {}{more}", known.join(", "))
        }
        None => "there is none yet".to_owned(),
    }
}

#[cfg(test)]
mod tests;

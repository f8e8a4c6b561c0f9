//! The mesh file: TOML to a checked [`Mesh`].

use crate::iso8601::moment;
use crate::light::{USUAL_PACKETS, USUAL_SIZES};
use crate::rounds::MOST_HOSTS;
use crate::{LightTest, QuietSpan};
use model::light::{MAX_PACKETS, PACKET};
use model::{
    BitRate, Bulk, Bytes, Cache, CellFigure, Directions, FileCopy, IpVersion, LegLimit, LegOutcome,
    Nanos, PostgresAddress, Request, SocketSettings, SourceText, Spec, Udp, UserFileError,
    WaitMode, Workload, parse_share, suggest, toml_fault,
};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::fmt;
use std::net::Ipv6Addr;
use std::ops::Range;
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
        use LegOutcome::{Failed, Low, Missed};
        match text.parse() {
            Ok(outcome @ (Low | Failed | Missed)) => Ok(AlertWhen::Outcome(outcome)),
            _ if text == "shifted" => Ok(AlertWhen::Shifted),
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
pub fn parse_mesh(text: &str, file: &str) -> Result<Mesh, UserFileError> {
    let source = MeshText(SourceText { text, file });
    if text.len() > LONGEST_FILE {
        let what = format!("the file has more than {LONGEST_FILE} bytes");
        return Err(source.0.error(0, what, "name a mesh file"));
    }
    let read: MeshFile = toml::from_str(text).map_err(|e| source.unread(&e))?;
    source.mesh(read)
}

/// The text of a file, to name lines and tables in it.
struct MeshText<'a>(SourceText<'a>);

impl MeshText<'_> {
    /// A table that errors call so.
    fn table(&self, name: impl Into<String>) -> MeshTable<'_> {
        MeshTable {
            source: self,
            name: name.into(),
        }
    }

    /// The header of the table that a place lies in.
    fn table_at(&self, at: usize) -> String {
        let before = self.0.text.get(..at).unwrap_or_default();
        let lines = before.lines().rev();
        let mut headers = lines.map(str::trim).filter(|line| line.starts_with('['));
        let header = headers.find(|line| line.contains(']') && !line.contains('='));
        header.map_or("the file".to_owned(), |line| {
            line.split('#').next().unwrap_or(line).trim().to_owned()
        })
    }

    /// What the reader of TOML found wrong.
    fn unread(&self, error: &toml::de::Error) -> UserFileError {
        let at = error.span().map_or(0, |span| span.start);
        let table = self.table_at(at);
        match toml_fault(error.message(), "write key = value, with text in quotes") {
            (what, _) if what == "'mesh' is missing" => {
                let remedy = "begin the file with [mesh] and name = ...";
                self.0.error(at, "the table [mesh] is missing", remedy)
            }
            (what, remedy) => self.0.error(at, format!("{table}: {what}"), remedy),
        }
    }

    fn mesh(&self, file: MeshFile) -> Result<Mesh, UserFileError> {
        let head = file.mesh.get_ref();
        let of_head = self.table("[mesh]");
        of_head.name("name", &head.name)?;
        let calendar = match &head.calendar {
            Some(text) => self.calendar(text)?,
            None => None,
        };
        let epoch = match &head.epoch {
            Some(epoch) => self.epoch(epoch)?,
            None => Nanos(0),
        };
        let quiet = head.quiet.iter().map(|span| of_head.parsed("quiet", span));
        let quiet = quiet.collect::<Result<_, _>>()?;
        for (count, most, what) in [
            (file.host.len(), MOST_HOSTS, "[[host]]"),
            (file.link.len(), MOST_ENTRIES, "[[link]]"),
            (file.test.len(), MOST_ENTRIES, "[[test]]"),
            (file.alert.len(), MOST_ENTRIES, "[[alert]]"),
        ] {
            if count > most {
                let what = format!("{what}: {count} of them");
                return Err(self
                    .0
                    .error(0, what, format!("at most {most} are possible")));
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
                let table = self.table("[[test]]");
                return Err(table.bad("name", name, "give each test its own name"));
            }
            tests.push(test);
        }
        if tests.is_empty() {
            return Err(self.0.error(0, "the file has no test", "add [[test]]"));
        }
        // A cycle is cut into the shortest one's length.
        let booked = tests.iter().zip(&file.test);
        let booked = booked.filter(|(test, _)| test.light.is_none());
        let shortest = booked.clone().map(|(test, _)| test.every).min();
        for (test, table) in booked {
            if let (Some(shortest), Some(every)) = (shortest, &table.get_ref().every)
                && !test.every.0.is_multiple_of(shortest.0)
            {
                let table = self.table(format!("[[test]] '{}'", test.name));
                let remedy =
                    format!("write a multiple of the shortest 'every' of the file, {shortest}");
                return Err(table.bad("every", every, remedy));
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

    fn calendar(&self, text: &Text) -> Result<Option<PostgresAddress>, UserFileError> {
        let read = match text.get_ref().split_once(':') {
            None if text.get_ref() == "sqlite" => return Ok(None),
            Some(("postgres", address)) => address.parse().map(Some),
            _ => Err(
                "write \"sqlite\" or \"postgres:host=/run/postgresql dbname=linerate\"".to_owned(),
            ),
        };
        // Errors do not show what may be a password.
        let remedy = |remedy: String| match text.get_ref().contains("password") {
            true => self
                .0
                .error(text.span().start, "[mesh]: calendar has a password", remedy),
            false => self.table("[mesh]").bad("calendar", text, remedy),
        };
        read.map_err(remedy)
    }

    fn epoch(&self, epoch: &Spanned<Datetime>) -> Result<Nanos, UserFileError> {
        let remedy = "write a moment in UTC, from 1970: 2026-11-23T00:00:00Z";
        let utc = Some(epoch.get_ref()).filter(|epoch| epoch.offset == Some(Offset::Z));
        utc.and_then(moment)
            .ok_or_else(|| self.table("[mesh]").bad("epoch", epoch, remedy))
    }

    fn hosts(&self, tables: &[Spanned<HostTable>]) -> Result<Vec<MeshHost>, UserFileError> {
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
            let table = self.named("[[host]]", name)?;
            if !names.insert(name.get_ref()) {
                return Err(table.bad("name", name, "give each host its own name"));
            }
            if agent.get_ref().is_empty() {
                return Err(table.bad("agent", agent, "write name[:port] or ssh:[user@]name"));
            }
            if !agents.insert(one_agent(agent.get_ref())) {
                let remedy = "another host has it: one agent is one host";
                return Err(table.bad("agent", agent, remedy));
            }
            if let Some(site) = site {
                table.name("site: name", site)?;
            }
            hosts.push(MeshHost {
                name: name.get_ref().clone(),
                agent: agent.get_ref().clone(),
                data: inner(data),
                site: inner(site),
                bytes_a_day: table.read("bytes_a_day", bytes_a_day)?,
            });
        }
        if hosts.len() < 2 {
            let what = format!("the file has {} hosts", hosts.len());
            return Err(self
                .0
                .error(0, what, "add [[host]] with name and agent: at least two"));
        }
        Ok(hosts)
    }

    fn links(
        &self,
        tables: &[Spanned<LinkTable>],
        hosts: &[MeshHost],
        most: usize,
    ) -> Result<Vec<MeshLink>, UserFileError> {
        let sites = sites(hosts);
        let mut links: Vec<MeshLink> = Vec::new();
        for table in tables {
            let LinkTable { name, site, units } = table.get_ref();
            let table = self.named("[[link]]", name)?;
            if links.iter().any(|link| link.name == *name.get_ref()) {
                return Err(table.bad("name", name, "give each link its own name"));
            }
            if !sites.contains(&site.get_ref().as_str()) {
                let remedy = format!("no host is there: {}", suggest(site.get_ref(), &sites));
                return Err(table.bad("site", site, remedy));
            }
            let of_site = links.iter().filter(|link| link.site == *site.get_ref());
            if of_site.count() == most {
                let remedy = format!(
                    "a site may have {most} links: {LINKS_OF_SITE}, or {LINKS_WITH_DISKS} beside copies of files"
                );
                return Err(table.bad("site", site, remedy));
            }
            links.push(MeshLink {
                name: name.get_ref().clone(),
                site: site.get_ref().clone(),
                units: table.within("units", units, [1, 1000])?.unwrap_or(1),
            });
        }
        Ok(links)
    }

    fn test(&self, file: &TestTable, hosts: &[MeshHost]) -> Result<MeshTest, UserFileError> {
        let table = self.named("[[test]]", &file.name)?;
        let list = |key: &str, names: &Spanned<Vec<Text>>| table.members(key, names, hosts);
        let (from, to) = match (&file.hosts, &file.from, &file.to) {
            (Some(all), None, None) => {
                let all = list("hosts", all)?;
                (all.clone(), all)
            }
            (None, Some(from), Some(to)) => (list("from", from)?, list("to", to)?),
            _ => {
                let remedy = "write hosts = [...], or from = [...] and to = [...]";
                return Err(table.error(&file.name, "which hosts is not clear", remedy));
            }
        };
        let is_mutual = file.hosts.is_some();
        let pairs = table.read("pairs", &file.pairs)?.unwrap_or(PairChoice::All);
        if let (Some(value), false) = (&file.pairs, is_mutual || pairs == PairChoice::All) {
            return Err(table.bad("pairs", value, "with from and to \"all\" is possible"));
        }
        if let (Some(value), PairChoice::Sites) = (&file.pairs, pairs) {
            let members: Vec<MeshHost> = from.iter().map(|host| hosts[*host].clone()).collect();
            if sites(&members).len() < 2 || members.iter().any(|host| host.site.is_none()) {
                let remedy = "give each of its hosts a site, two different ones at the least";
                return Err(table.bad("pairs", value, remedy));
            }
        }
        let mut except = BTreeSet::new();
        for pair in &file.except {
            let index = |name: &String| {
                let known: Vec<&str> = hosts.iter().map(|host| host.name.as_str()).collect();
                let found = hosts.iter().position(|host| host.name == *name);
                found.ok_or_else(|| {
                    let shown = name.escape_debug();
                    let what = format!("except names '{shown}', which is no host");
                    table.error(pair, what, suggest(name, &known))
                })
            };
            let [a, b] = pair.get_ref();
            except.insert((index(a)?, index(b)?));
        }
        let spec = table.spec(file, is_mutual)?;
        let light = table.light(file)?;
        let every = match &file.every {
            None if light.is_some() => LIGHT_CYCLE,
            None => return Err(table.error(&file.name, "'every' is missing", "add every = ...")),
            Some(every) => match table.parsed("every", every)? {
                span if (SHORTEST_CYCLE..=LONGEST_CYCLE).contains(&span) => span,
                _ => return Err(table.bad("every", every, "10s to 31d are possible")),
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
        let good = good.map(|good| table.good(good, figure));
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
                let what = "it has no pair of two hosts";
                Err(table.error(&file.name, what, "name more hosts"))
            }
            false => Ok(test),
        }
    }

    fn alert(&self, file: &AlertTable, tests: &[MeshTest]) -> Result<MeshAlert, UserFileError> {
        let table = self.table("[[alert]]");
        let known: Vec<&str> = tests.iter().map(|test| test.name.as_str()).collect();
        if !known.contains(&file.test.get_ref().as_str()) {
            let remedy = suggest(file.test.get_ref(), &known);
            return Err(table.bad("test", &file.test, remedy));
        }
        let times = table.within("times", &file.times, [1, 100])?;
        let exec = file.exec.get_ref();
        if exec.first().is_none_or(|program| !program.starts_with('/')) {
            let what = "exec has no program with its whole path";
            let remedy = "write [\"/usr/local/bin/page\", \"argument\"]; no shell is started";
            return Err(table.error(&file.exec, what, remedy));
        }
        Ok(MeshAlert {
            test: file.test.get_ref().clone(),
            when: table.parsed("when", &file.when)?,
            times: times.unwrap_or(1),
            exec: exec.clone(),
        })
    }

    /// The table of a thing, once its name is known to be one.
    fn named(&self, kind: &str, name: &Text) -> Result<MeshTable<'_>, UserFileError> {
        self.table(kind).name("name", name)?;
        Ok(self.table(format!("{kind} '{}'", name.get_ref())))
    }
}

/// A table of the file, to name it in errors.
struct MeshTable<'a> {
    source: &'a MeshText<'a>,
    name: String,
}

impl MeshTable<'_> {
    /// The fault of a table that shows in this value.
    fn error<V>(
        &self,
        value: &Spanned<V>,
        what: impl fmt::Display,
        remedy: impl Into<String>,
    ) -> UserFileError {
        let what = format!("{}: {what}", self.name);
        self.source.0.error(value.span().start, what, remedy)
    }

    /// The value of a key that cannot be.
    fn bad<V: fmt::Display>(
        &self,
        key: &str,
        value: &Spanned<V>,
        remedy: impl Into<String>,
    ) -> UserFileError {
        let shown = value.get_ref().to_string();
        let what = format!("{key} = \"{}\" is not possible", shown.escape_debug());
        self.error(value, what, remedy)
    }

    fn name(&self, key: &str, name: &Text) -> Result<(), UserFileError> {
        let text = name.get_ref();
        let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b);
        match (1..=64).contains(&text.len()) && text.bytes().all(fits) {
            true => Ok(()),
            false => Err(self.bad(key, name, "write 1 to 64 of a-z 0-9 . _ -")),
        }
    }

    fn parsed<T: FromStr<Err = String>>(
        &self,
        key: &str,
        value: &Text,
    ) -> Result<T, UserFileError> {
        let parsed = value.get_ref().parse();
        parsed.map_err(|remedy| self.bad(key, value, remedy))
    }

    fn read<T: FromStr<Err = String>>(
        &self,
        key: &str,
        value: &Option<Text>,
    ) -> Result<Option<T>, UserFileError> {
        let value = value.as_ref().map(|value| self.parsed(key, value));
        value.transpose()
    }

    /// A value between these two.
    fn within<T: Copy + PartialOrd + fmt::Display>(
        &self,
        key: &str,
        value: &Option<Spanned<T>>,
        [least, most]: [T; 2],
    ) -> Result<Option<T>, UserFileError> {
        match value {
            Some(value) if !(least..=most).contains(value.get_ref()) => {
                Err(self.bad(key, value, format!("{least} to {most} are possible")))
            }
            value => Ok(inner(value)),
        }
    }

    /// Hosts by name, `site:NAME` or `*`, in the order of the file, each once.
    fn members(
        &self,
        key: &str,
        names: &Spanned<Vec<Text>>,
        hosts: &[MeshHost],
    ) -> Result<Vec<usize>, UserFileError> {
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
                return Err(self.bad(key, name, remedy));
            }
            members.extend(found);
        }
        Ok(members.into_iter().collect())
    }

    fn spec(&self, file: &TestTable, is_mutual: bool) -> Result<Spec, UserFileError> {
        let named = file.kind.as_ref();
        let kind = named.map_or("bulk", |kind| kind.get_ref().as_str());
        if let Some(named) = named.filter(|_| !KINDS.contains(&kind)) {
            let remedy = format!("\"{}\" are possible", KINDS.join("\", \""));
            return Err(self.bad("kind", named, remedy));
        }
        // Of which kinds an option is.
        fn of<T>(value: &Option<Spanned<T>>) -> Option<Range<usize>> {
            value.as_ref().map(Spanned::span)
        }
        const STREAMS: &str = "bulk request udp";
        const BOOKED: &str = "bulk request udp copy";
        for (key, kinds, at) in [
            ("request_size", "request", of(&file.request_size)),
            ("reply_size", "request", of(&file.reply_size)),
            ("pace", "request", of(&file.pace)),
            ("datagram_size", "udp", of(&file.datagram_size)),
            ("rate", "bulk udp", of(&file.rate)),
            ("from_file", "copy", of(&file.from_file)),
            ("to_file", "copy", of(&file.to_file)),
            ("cache", "copy", of(&file.cache)),
            ("direct", "copy", of(&file.direct)),
            ("packets", "light", of(&file.packets)),
            ("loss", "light", of(&file.loss)),
            ("mtu", "light", of(&file.mtu)),
            ("time", BOOKED, of(&file.time)),
            ("directions", BOOKED, of(&file.directions)),
            ("pairs", "bulk request udp copy mtu", of(&file.pairs)),
            ("streams", STREAMS, of(&file.streams)),
            ("congestion", BOOKED, of(&file.congestion)),
            ("sockbuf", BOOKED, of(&file.sockbuf)),
            ("ramp", BOOKED, of(&file.ramp)),
            ("interval", BOOKED, of(&file.interval)),
        ] {
            if let Some(at) = at
                && !kinds.split(' ').any(|of| of == kind)
            {
                let what = format!("{}: '{key}' is no option of kind = \"{kind}\"", self.name);
                let remedy = format!("leave it out; it is one of {}", kinds.replace(' ', ", "));
                return Err(self.source.0.error(at.start, what, remedy));
            }
        }
        let size = |key: &str, value: &Option<Text>, [least, most]: [u64; 2]| match value {
            None => Ok(None),
            Some(value) => match self.parsed::<Bytes>(key, value)? {
                size if (least..=most).contains(&size.0) => Ok(Some(size)),
                _ => Err(self.bad(key, value, format!("{least} to {most} bytes are possible"))),
            },
        };
        let rate: Option<BitRate> = self.read("rate", &file.rate)?;
        let rate = rate.filter(|rate| rate.0 > 0);
        let workload = match kind {
            "udp" => Workload::Udp(Udp {
                rate: rate.unwrap_or(BitRate(1_000_000)),
                datagram_size: size("datagram_size", &file.datagram_size, [24, 65_507])?
                    .unwrap_or(Bytes(1448)),
            }),
            "request" => {
                let is_bad =
                    |pace: &&Spanned<f64>| pace.get_ref().is_nan() || *pace.get_ref() <= 0.0;
                if let Some(pace) = file.pace.as_ref().filter(is_bad) {
                    return Err(self.bad("pace", pace, "a number above 0 is possible"));
                }
                let request_size = size("request_size", &file.request_size, [4, 1 << 30])?;
                let reply_size = size("reply_size", &file.reply_size, [1, 1 << 30])?;
                Workload::Request(Request {
                    request_size: request_size.unwrap_or(Bytes(128)),
                    reply_size: reply_size.unwrap_or(Bytes(8 << 10)),
                    pace_per_s: inner(&file.pace),
                    reconnect: false,
                    wait: WaitMode::default(),
                })
            }
            "copy" => self.copy(file)?,
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
                    return Err(self.bad("directions", value, remedy));
                }
            },
        };
        let span = |key: &str, value: &Option<Text>, [least, most]: [Nanos; 2]| match value {
            None => Ok(None),
            Some(value) => match self.parsed::<Nanos>(key, value)? {
                span if (least..=most).contains(&span) => Ok(Some(span)),
                _ => Err(self.bad(key, value, format!("{least} to {most} are possible"))),
            },
        };
        let time = span("time", &file.time, [Nanos::from_secs(1), LONGEST_TIME])?;
        let time = time.or((kind == "mtu").then_some(MTU_TIME));
        let streams = self.within("streams", &file.streams, [1, 128])?;
        let sockbuf = size("sockbuf", &file.sockbuf, [4 << 10, 1 << 30])?;
        let ip_version = match &file.ip_version {
            None => None,
            Some(version) => Some(match version.get_ref() {
                4 => IpVersion::V4,
                6 => IpVersion::V6,
                _ => return Err(self.bad("ip_version", version, "4 and 6 are possible")),
            }),
        };
        let usual = Spec::default();
        let is_bulk = matches!(workload, Workload::Bulk(_));
        Ok(Spec {
            directions,
            streams: streams.unwrap_or(1),
            limit: time.map_or(usual.limit, LegLimit::Time),
            ramp: span("ramp", &file.ramp, [Nanos(0), LONGEST_TIME])?,
            interval: span(
                "interval",
                &file.interval,
                [Nanos::from_millis(10), LONGEST_TIME],
            )?
            .unwrap_or(usual.interval),
            socket: SocketSettings {
                congestion: inner(&file.congestion),
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
    fn copy(&self, file: &TestTable) -> Result<Workload, UserFileError> {
        let name = |key, value: &Option<Text>| match value {
            Some(value) if value.get_ref().is_empty() => {
                Err(self.bad(key, value, "write the name of a file; none is memory"))
            }
            value => Ok(inner(value)),
        };
        Ok(Workload::Copy(FileCopy {
            from: name("from_file", &file.from_file)?,
            to: name("to_file", &file.to_file)?,
            cache: inner(&file.cache).unwrap_or_default(),
            direct: inner(&file.direct).unwrap_or_default(),
            keep: false,
        }))
    }

    /// What light probes send, if the test is of these.
    fn light(&self, file: &TestTable) -> Result<Option<LightTest>, UserFileError> {
        if inner(&file.kind).is_none_or(|kind| kind != "light") {
            return Ok(None);
        }
        let packets = self.within("packets", &file.packets, [1, MAX_PACKETS])?;
        let mtu = self.within("mtu", &file.mtu, [PACKET + 1, 65_535])?;
        let loss = match &file.loss {
            None => None,
            Some(value) => match parse_share(value.get_ref()) {
                Ok(share) if (0.0..1.0).contains(&share) => Some(share),
                _ => return Err(self.bad("loss", value, "0% to 99% are possible")),
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

    fn good(&self, value: &Text, figure: CellFigure) -> Result<GoodThreshold, UserFileError> {
        let text = value.get_ref();
        if text.trim().ends_with('%') {
            let share = parse_share(text)
                .ok()
                .filter(|share| *share > 0.0 && *share < 1.0);
            let good = share.map(GoodThreshold::OfMedian);
            return good.ok_or_else(|| self.bad("good", value, "1% to 99% are possible"));
        }
        match figure {
            CellFigure::Mtu => match self.parsed("good", value)? {
                size @ Bytes(LEAST_MTU..=65_535) => Ok(GoodThreshold::Size(size)),
                _ => Err(self.bad("good", value, "68 to 65535 are possible")),
            },
            CellFigure::Latency | CellFigure::LightRtt => {
                self.parsed("good", value).map(GoodThreshold::Latency)
            }
            CellFigure::Goodput => self.parsed("good", value).map(GoodThreshold::Goodput),
        }
    }
}

/// A value without its place.
fn inner<T: Clone>(value: &Option<Spanned<T>>) -> Option<T> {
    value.as_ref().map(|value| value.get_ref().clone())
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

#[cfg(test)]
mod tests;

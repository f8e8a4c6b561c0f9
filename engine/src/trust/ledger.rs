//! Who may measure now and how much: the rules of the agent, asked before every leg and all along.

use super::files;
use super::identity::NodeId;
use super::store::Limits;
use anyhow::{Context, Result};
use measure::storage::Reach;
use model::{BitRate, Bytes, Limit, Nanos, Warning};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use wire::control::Order;

/// Connections that a leg may have.
const MAX_STREAMS: u32 = 128;

/// Shortest time between samples.
const MIN_INTERVAL: Nanos = Nanos::from_millis(10);

/// What is set aside for a leg's beginning and end when somebody asks how long to wait.
const AROUND_A_LEG: Duration = Duration::from_secs(3);

/// How long a leg that is limited by an amount may keep others waiting, as far as can be told.
const UNTOLD: Duration = Duration::from_secs(60);

/// The used bytes of a limited host are written down at least so often during a leg.
const WRITE_EVERY: Duration = Duration::from_secs(5);

/// The other end of a session, as the agent knows it.
#[derive(Clone)]
pub struct Peer {
    /// What this host calls it, fit for a terminal.
    pub name: String,
    /// Its key; `None` over a pipe, where the login was ssh's.
    pub id: Option<NodeId>,
    /// Where the control connection comes from; data connections must come from there too.
    /// `None` over a pipe: the token alone must do.
    pub address: Option<IpAddr>,
    /// How much it may do.
    pub limits: Limits,
    /// Whether it may change this host's settings, or a sentence that says how to allow it.
    pub may_tune: Result<(), String>,
    /// Which files of this host its copies may name, or a sentence that says how to allow it.
    pub may_files: Result<Reach, String>,
    /// Where data listeners are to listen.
    pub listen: IpAddr,
    /// Ports for them; `None`: any.
    pub data_ports: Option<RangeInclusive<u16>>,
    /// The agent's rules.
    pub ledger: Arc<Ledger>,
    /// Tells this session from others.
    pub session: u64,
}

impl Peer {
    /// The peer of an agent that ssh or the user started: only one, and unlimited.
    pub fn at_a_pipe(listen: IpAddr, data_ports: Option<RangeInclusive<u16>>) -> Peer {
        Peer {
            name: "the controller".to_owned(),
            id: None,
            address: None,
            limits: Limits::default(),
            // It has the rights of the user who started this process, and no others.
            may_tune: Ok(()),
            may_files: Ok(Reach::Anywhere),
            listen,
            data_ports,
            ledger: Arc::new(Ledger::new(1, None)),
            session: 0,
        }
    }

    /// Asks for one leg. The leg is under way until the answer is dropped.
    ///
    /// # Errors
    /// [`Denied`], with a sentence for the user at the other end.
    pub fn admit(&self, order: &Order) -> Result<Admitted, Denied> {
        self.admit_as(format!("leg {}", order.leg), order)
    }

    /// Asks for something else that moves as much as this leg would; `what` is its name in the log.
    ///
    /// # Errors
    /// [`Denied`], with a sentence for the user at the other end.
    pub fn admit_as(&self, what: String, order: &Order) -> Result<Admitted, Denied> {
        possible(order).map_err(Denied::Refused)?;
        let mut order = order.clone();
        let mut warnings = Vec::new();
        fit(&mut order, &self.limits, &mut warnings);
        let now = Instant::now();
        let mut accounts = self.ledger.accounts();
        accounts.take_in(&self.ledger, now);

        if let (Some(id), Some(a_day)) = (self.id, self.limits.bytes_per_day) {
            let left = a_day.since(accounts.used(&id));
            if left == Bytes(0) {
                return Err(Denied::Refused(format!(
                    "the {a_day} a day that this host allows are used up: measure again after midnight UTC"
                )));
            }
            if let Limit::Bytes(asked) = order.limit
                && asked > left
            {
                order.limit = Limit::Bytes(left);
                warnings.push(smaller(
                    format!("{asked} asked, {left} granted: the far host allows {a_day} a day"),
                    "the leg ends earlier than asked",
                ));
            }
        }
        let others = |leg: &&Live| leg.session != self.session;
        let sessions: std::collections::BTreeSet<u64> = accounts
            .live
            .values()
            .filter(others)
            .map(|leg| leg.session)
            .collect();
        if sessions.len() >= self.ledger.max_clients {
            let ends = accounts
                .live
                .values()
                .filter(others)
                .map(|leg| leg.ends)
                .min();
            let wait = ends.map_or(AROUND_A_LEG, |ends| ends.saturating_duration_since(now));
            let wait = wait.max(Duration::from_secs(1));
            return Err(Denied::Busy {
                wait: Nanos::from(wait),
                why: format!(
                    "as many measure there now as it takes at once ({}); one of them should end within {} s",
                    sessions.len(),
                    wait.as_secs_f64().ceil()
                ),
            });
        }
        if !sessions.is_empty() {
            let count = sessions.len();
            warnings.push(Warning {
                what: format!(
                    "{count} other {} on the far host at the same time",
                    if count == 1 { "client measures" } else { "clients measure" }
                ),
                meaning: "they share its processors and links: the figures can be lower than the path's".to_owned(),
                remedy: "measure again when it is alone, or have it take one at a time (linerate serve --clients 1)".to_owned(),
            });
        }
        let spans = match order.limit {
            Limit::Time(span) => Some(span),
            Limit::Bytes(_) | Limit::Requests(_) | Limit::Whole => self.limits.longest(),
        };
        let lasts = spans
            .map_or(UNTOLD, Duration::from)
            .min(Duration::from_secs(24 * 3600));
        let number = accounts.next;
        accounts.next += 1;
        accounts.live.insert(
            number,
            Live {
                session: self.session,
                ends: now + lasts + AROUND_A_LEG,
            },
        );
        drop(accounts);
        if self.id.is_some() {
            crate::listener::log(&format!(
                "{}: session {}, {what}: {}",
                self.name,
                self.session,
                in_words(&order)
            ));
        }
        Ok(Admitted {
            name: self.name.clone(),
            session: self.session,
            what,
            order,
            warnings,
            limits: self.limits.clone(),
            id: self.id,
            ledger: Arc::clone(&self.ledger),
            number,
            counted: AtomicU64::new(0),
        })
    }
}

/// Why a leg cannot be now, or ever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denied {
    /// Others measure.
    Busy {
        /// When one of them should have ended.
        wait: Nanos,
        /// A sentence for the user.
        why: String,
    },
    /// Not allowed or not possible.
    Refused(String),
}

/// A leg that may be. Dropping it makes room for the next.
pub struct Admitted {
    /// The leg as it is allowed: limit and pacing may be smaller than asked.
    pub order: Order,
    /// What was made smaller, and who else measures.
    pub warnings: Vec<Warning>,
    name: String,
    session: u64,
    /// Its name in the log.
    what: String,
    limits: Limits,
    id: Option<NodeId>,
    ledger: Arc<Ledger>,
    number: u64,
    counted: AtomicU64,
}

impl Admitted {
    /// Counts the `total` bytes that this leg has moved since its load began `elapsed` ago (more is
    /// counted, less is not taken back). Call it with every sample and with the final count.
    ///
    /// # Errors
    /// A sentence if the leg has to end here: the peer does not keep to its limits. Limits that the
    /// granted order itself keeps have some room, so that an honest end is never cut off.
    pub fn account(&self, elapsed: Nanos, total: Bytes) -> Result<(), String> {
        let before = self.counted.fetch_max(total.0, Ordering::Relaxed);
        let more = Bytes(total.0.saturating_sub(before));
        let mut accounts = self.ledger.accounts();
        if let Some(id) = self.id {
            let now = Instant::now();
            accounts.take_in(&self.ledger, now);
            let used = accounts.spend(id, more);
            if let Some(a_day) = self.limits.bytes_per_day {
                // Waiting for the disk would delay a sample: only where the count decides.
                if accounts.written.is_none_or(|at| now >= at + WRITE_EVERY) {
                    accounts.write_down(&self.ledger, now);
                }
                if used > a_day {
                    return Err(format!(
                        "the {a_day} a day that the far host allows are used up: the leg was ended"
                    ));
                }
            }
        }
        drop(accounts);
        if let Some(longest) = self.limits.longest()
            && elapsed > longest + Nanos::from_secs(2)
        {
            return Err(format!("the far host allows {longest} a leg: it was ended"));
        }
        if let Some(rate) = self.limits.rate {
            // Pacing is exact in the long run; buffers at the start are not paced.
            let fair = rate.bytes_in(elapsed + Nanos::from_secs(1));
            let allowed = Bytes(fair.0.saturating_add(fair.0 / 10)) + Bytes(8 << 20);
            if total > allowed {
                return Err(format!(
                    "more than the {rate} that the far host allows: the leg was ended"
                ));
            }
        }
        Ok(())
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut accounts = self.ledger.accounts();
        accounts.live.remove(&self.number);
        accounts.write_down(&self.ledger, Instant::now());
        drop(accounts);
        if self.id.is_some() {
            crate::listener::log(&format!(
                "{}: session {}, {} over: {}",
                self.name,
                self.session,
                self.what,
                Bytes(*self.counted.get_mut())
            ));
        }
    }
}

/// The agent's accounts: who measures now, and who moved how much today.
pub struct Ledger {
    max_clients: usize,
    file: Option<PathBuf>,
    accounts: Mutex<Accounts>,
}

struct Live {
    session: u64,
    ends: Instant,
}

#[derive(Default)]
struct Accounts {
    live: BTreeMap<u64, Live>,
    next: u64,
    day: u64,
    /// Used today, by all processes, as last read.
    used: BTreeMap<NodeId, Bytes>,
    /// Used by this process since it was last written down.
    unwritten: BTreeMap<NodeId, Bytes>,
    written: Option<Instant>,
    said: bool,
}

/// `usage.toml`.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Usage {
    /// Days since 1970-01-01 UTC.
    day: u64,
    /// Bytes in both directions.
    bytes: BTreeMap<String, Bytes>,
}

impl Ledger {
    /// For `max_clients` sessions under load at once. What is used is kept in `directory`.
    pub fn new(max_clients: usize, directory: Option<&Path>) -> Ledger {
        Ledger {
            max_clients,
            file: directory.map(|directory| directory.join("usage.toml")),
            accounts: Mutex::default(),
        }
    }

    fn accounts(&self) -> MutexGuard<'_, Accounts> {
        // Every change of the accounts is complete before the next step that could panic.
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Accounts {
    fn used(&self, id: &NodeId) -> Bytes {
        let of = |book: &BTreeMap<NodeId, Bytes>| book.get(id).copied().unwrap_or_default();
        of(&self.used) + of(&self.unwritten)
    }

    fn spend(&mut self, id: NodeId, more: Bytes) -> Bytes {
        *self.unwritten.entry(id).or_default() += more;
        self.used(&id)
    }

    /// Reads the file when the day begins (or the process does).
    fn take_in(&mut self, ledger: &Ledger, now: Instant) {
        let day = crate::clock::unix_seconds() / 86_400;
        if day != self.day {
            self.day = day;
            self.used.clear();
            self.unwritten.clear();
            self.write_down(ledger, now);
        }
    }

    /// Adds what this process used to the file. A failure is said once; the count in memory goes on.
    fn write_down(&mut self, ledger: &Ledger, now: Instant) {
        let Some(file) = &ledger.file else { return };
        self.written = Some(now);
        match add_usage(file, self.day, &self.unwritten) {
            Ok(used) => {
                self.used = used;
                self.unwritten.clear();
            }
            Err(error) if !self.said => {
                self.said = true;
                crate::log::note(&format!(
                    "linerate: cannot keep account of the bytes a day, which start at zero with the next start: {error:#}"
                ));
            }
            Err(_) => {}
        }
    }
}

/// Adds to the day's usage under the lock, and returns all of it.
fn add_usage(
    file: &Path,
    day: u64,
    more: &BTreeMap<NodeId, Bytes>,
) -> Result<BTreeMap<NodeId, Bytes>> {
    let directory = file.parent().context("the file has no directory")?;
    let _lock = files::lock(directory)?;
    let mut usage: Usage = match std::fs::read_to_string(file) {
        Ok(text) => toml::from_str(&text).with_context(|| file.display().to_string())?,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Usage::default(),
        Err(e) => return Err(e).with_context(|| file.display().to_string()),
    };
    if usage.day != day {
        usage = Usage {
            day,
            ..Usage::default()
        };
    }
    for (id, bytes) in more {
        let all = usage.bytes.entry(id.to_string()).or_default();
        // TOML has no integers above 2^63 - 1.
        *all = Bytes((*all + *bytes).0.min(i64::MAX as u64));
    }
    if !more.is_empty() {
        files::replace(file, toml::to_string(&usage)?.as_bytes())?;
    }
    let known = |(id, bytes): (String, Bytes)| Some((id.parse().ok()?, bytes));
    Ok(usage.bytes.into_iter().filter_map(known).collect())
}

/// An order for the log.
fn in_words(order: &Order) -> String {
    let [sends, receives] = order.workload.kind().agent_does;
    let what = if order.agent_sends { sends } else { receives };
    let limit = match order.limit {
        Limit::Time(span) => format!("for {span}"),
        Limit::Bytes(bytes) => format!("up to {bytes}"),
        Limit::Requests(count) => format!("up to {count} requests"),
        Limit::Whole => "to its end".to_owned(),
    };
    let connections = if order.streams == 1 {
        "connection"
    } else {
        "connections"
    };
    format!("{what} over {} {connections} {limit}", order.streams)
}

/// Whether an order makes sense at all, whoever sends it.
fn possible(order: &Order) -> Result<(), String> {
    if order.streams == 0 || order.streams > MAX_STREAMS {
        return Err(format!(
            "{} streams: 1 to {MAX_STREAMS} are possible",
            order.streams
        ));
    }
    if order.interval < MIN_INTERVAL {
        return Err(format!(
            "samples every {}: at least {MIN_INTERVAL} lie between them",
            order.interval
        ));
    }
    if matches!(
        order.limit,
        Limit::Time(Nanos(0)) | Limit::Bytes(Bytes(0)) | Limit::Requests(0)
    ) {
        return Err("a leg of nothing measures nothing".to_owned());
    }
    if let Some(why) = order.workload.kind().not_with_agent {
        return Err(why.to_owned());
    }
    order.workload.check(order.streams)
}

/// Makes an order fit the limits, and says where.
fn fit(order: &mut Order, limits: &Limits, warnings: &mut Vec<Warning>) {
    if let (Limit::Time(asked), Some(longest)) = (order.limit, limits.longest())
        && asked > longest
    {
        order.limit = Limit::Time(longest);
        warnings.push(smaller(
            format!("{asked} asked, {longest} granted: the far host allows no longer leg"),
            "the leg ends earlier than asked",
        ));
    }
    if let Some(rate) = limits.rate {
        let each = BitRate((rate.0 / u64::from(order.streams.max(1))).max(1));
        if order.socket.pacing.is_none_or(|asked| asked > each) {
            order.socket.pacing = Some(each);
            warnings.push(smaller(
                format!("paced to {rate}: the far host allows no more"),
                "the rate is the limit's, not the path's",
            ));
        }
    }
}

fn smaller(what: String, meaning: &str) -> Warning {
    Warning {
        what,
        meaning: meaning.to_owned(),
        remedy: "ask its owner to raise the limit there (linerate trust add)".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::identity::tests::fresh;
    use super::*;
    use crate::testing::TempDir;
    use model::{Bulk, Placement, SocketSettings, Workload};
    use std::net::Ipv4Addr;

    fn order(limit: Limit) -> Order {
        Order {
            leg: 1,
            agent_sends: true,
            workload: Workload::Bulk(Bulk::default()),
            streams: 2,
            limit,
            interval: Nanos::from_secs(1),
            trace: false,
            socket: SocketSettings::default(),
            placement: Placement::default(),
        }
    }

    fn peer(ledger: &Arc<Ledger>, session: u64, id: NodeId, limits: Limits) -> Peer {
        Peer {
            name: format!("client {session}"),
            id: Some(id),
            address: None,
            limits,
            may_tune: Ok(()),
            may_files: Ok(Reach::Anywhere),
            listen: Ipv4Addr::LOCALHOST.into(),
            data_ports: None,
            ledger: Arc::clone(ledger),
            session,
        }
    }

    fn refused(peer: &Peer, order: &Order) -> String {
        match peer.admit(order) {
            Err(Denied::Refused(why)) => why,
            Err(Denied::Busy { why, .. }) => panic!("busy: {why}"),
            Ok(_) => panic!("admitted"),
        }
    }

    #[test]
    fn a_leg_is_made_to_fit_and_the_client_is_told() {
        let ledger = Arc::new(Ledger::new(1, None));
        let limits = Limits {
            rate: Some(BitRate(100_000_000)),
            seconds: Some(5),
            bytes_per_day: None,
        };
        let peer = peer(&ledger, 1, fresh().id(), limits);
        let leg = peer
            .admit(&order(Limit::Time(Nanos::from_secs(10))))
            .ok()
            .unwrap();
        assert_eq!(leg.order.limit, Limit::Time(Nanos::from_secs(5)));
        assert_eq!(leg.order.socket.pacing, Some(BitRate(50_000_000)));
        assert_eq!(leg.warnings.len(), 2);
        // 100 Mbit/s are 12.5 MB a second.
        assert!(leg.account(Nanos::from_secs(4), Bytes(50_000_000)).is_ok());
        assert!(
            leg.account(Nanos::from_secs(4), Bytes(500_000_000))
                .unwrap_err()
                .contains("100 Mbit/s")
        );
        assert!(
            leg.account(Nanos::from_secs(9), Bytes(50_000_000))
                .unwrap_err()
                .contains("5.00 s")
        );
    }

    #[test]
    fn impossible_orders_are_refused_in_words() {
        let ledger = Arc::new(Ledger::new(1, None));
        let peer = peer(&ledger, 1, fresh().id(), Limits::default());
        let fine = order(Limit::Bytes(Bytes(1)));
        let bad = |change: &dyn Fn(&mut Order)| {
            let mut order = fine.clone();
            change(&mut order);
            refused(&peer, &order)
        };
        assert!(bad(&|o| o.streams = 0).contains("streams"));
        assert!(bad(&|o| o.streams = 129).contains("streams"));
        assert!(bad(&|o| o.interval = Nanos(1)).contains("samples"));
        assert!(bad(&|o| o.limit = Limit::Time(Nanos(0))).contains("nothing"));
        let writes = |size| {
            Workload::Bulk(Bulk {
                write_size: Some(Bytes(size)),
                ..Bulk::default()
            })
        };
        assert!(bad(&|o| o.workload = writes(0)).contains("writes"));
        assert!(bad(&|o| o.workload = writes(u64::MAX)).contains("writes"));
        assert!(peer.admit(&fine).is_ok());
    }

    #[test]
    fn a_small_number_at_once_and_the_next_is_told_how_long_to_wait() {
        let ledger = Arc::new(Ledger::new(2, None));
        let ten = order(Limit::Time(Nanos::from_secs(10)));
        let client = |n| peer(&ledger, n, fresh().id(), Limits::default());
        let first = client(1);
        let up = first.admit(&ten).ok().unwrap();
        let down = first.admit(&ten).ok().unwrap();
        assert!(up.warnings.is_empty() && down.warnings.is_empty());
        let second = client(2).admit(&ten).ok().unwrap();
        assert!(second.warnings[0].what.contains("1 other client measures"));
        match client(3).admit(&ten) {
            Err(Denied::Busy { wait, why }) => {
                assert!(
                    wait <= Nanos::from_secs(13) && wait > Nanos::from_secs(5),
                    "{wait}"
                );
                assert!(why.contains("as it takes at once (2)"), "{why}");
            }
            _ => panic!("one too many"),
        }
        drop(up);
        assert!(client(3).admit(&ten).is_err());
        drop(down);
        assert!(client(3).admit(&ten).is_ok());
    }

    #[test]
    fn the_bytes_of_a_day_outlive_the_process() {
        let dir = TempDir::new();
        let (id, other) = (fresh().id(), fresh().id());
        let limits = Limits {
            bytes_per_day: Some(Bytes(1000)),
            ..Limits::default()
        };
        let start = |id| {
            let ledger = Arc::new(Ledger::new(4, Some(dir.path())));
            peer(&ledger, 1, id, limits.clone())
        };
        let leg = start(id)
            .admit(&order(Limit::Bytes(Bytes(5000))))
            .ok()
            .unwrap();
        assert_eq!(leg.order.limit, Limit::Bytes(Bytes(1000)));
        assert!(leg.account(Nanos(1), Bytes(300)).is_ok());
        // The same count again is not counted again.
        assert!(leg.account(Nanos(2), Bytes(300)).is_ok());
        drop(leg);
        let leg = start(id)
            .admit(&order(Limit::Bytes(Bytes(5000))))
            .ok()
            .unwrap();
        assert_eq!(leg.order.limit, Limit::Bytes(Bytes(700)));
        assert!(
            leg.account(Nanos(1), Bytes(701))
                .unwrap_err()
                .contains("1000 B a day")
        );
        drop(leg);
        assert!(refused(&start(id), &order(Limit::Bytes(Bytes(1)))).contains("midnight"));
        assert!(start(other).admit(&order(Limit::Bytes(Bytes(1)))).is_ok());
    }
}

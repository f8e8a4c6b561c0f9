//! Who may measure now and how much: the rules of the agent, asked before every leg and all along.

use super::book::Book;
use super::identity::Identity;
use super::quota::{self, Account, LegQuota};
use super::store::KeyLimits;
use crate::leg::{direction, most_connections, role};
use crate::prelude::*;
use crate::slots::{DirectSlot, SlotBook};
use measure::storage::Reach;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::atomic::AtomicU64;

/// Shortest and longest time between samples.
const MIN_INTERVAL: Nanos = Nanos::from_millis(10);
const MAX_INTERVAL: Nanos = Nanos::from_secs(60);

/// The longest leg of a key without a limit of its own: no key keeps a place for ever.
const LONGEST: Nanos = Nanos::from_secs(24 * 3600);

/// What is under way at the end of the longest leg may still arrive for so long, or for two percent of its time.
const GRACE: Nanos = Nanos::from_millis(500);

/// What is set aside for a leg's beginning and end when somebody asks how long to wait.
const AROUND_A_LEG: Duration = Duration::from_secs(3);

/// How long a leg that is limited by an amount may keep others waiting, if its rate is unknown.
const UNKNOWN_DURATION: Nanos = Nanos::from_secs(60);

/// The moved bytes of a host are entered in the book at least so often during a leg.
const WRITE_EVERY: Duration = Duration::from_secs(5);

/// What an agent needs to measure towards others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectMeans {
    /// The archive that keeps the runs.
    pub archive: PathBuf,
    /// The directory of the key of this host.
    pub directory: PathBuf,
}

/// The peer of a session, as the agent knows it.
#[derive(Clone)]
pub struct Peer {
    /// What this host calls it, fit for a terminal.
    pub name: String,
    /// Its key; `None` over a pipe, where the login was ssh's.
    pub id: Option<NodeId>,
    /// The key of this host, which signs what it reports; `None` over a pipe.
    pub own_key: Option<Arc<Identity>>,
    /// Where the control connection comes from; data connections must come from there too.
    /// `None` over a pipe: the token alone must do.
    pub address: Option<IpAddr>,
    /// How much it may do.
    pub limits: KeyLimits,
    /// Whether it may change this host's settings, or a sentence that says how to allow it.
    pub may_tune: Result<(), String>,
    /// Whether it may have this host measure towards others, or a sentence that says how to allow it.
    pub may_direct: Result<DirectMeans, String>,
    /// The slots of coordinators at this host; `None` over a pipe.
    pub slots: Option<Arc<SlotBook>>,
    /// The slot in which it measures, if it is no client of its own right.
    pub slot: Option<Arc<DirectSlot>>,
    /// Which files of this host its copies may name, or a sentence that says how to allow it.
    pub may_files: Result<Reach, String>,
    /// Port of the control connections of this host; 0 over a pipe.
    pub port: u16,
    /// Where data listeners are to listen.
    pub listen: IpAddr,
    /// Ports for them; `None`: any.
    pub data_ports: Option<RangeInclusive<u16>>,
    /// The agent's rules.
    pub ledger: Arc<Ledger>,
    /// Distinguishes this session from others.
    pub session: u64,
}

impl Peer {
    /// The peer of an agent that ssh or the user started: only one, and unlimited.
    pub fn at_a_pipe(listen: IpAddr, data_ports: Option<RangeInclusive<u16>>) -> Peer {
        Peer {
            name: "the controller".to_owned(),
            id: None,
            own_key: None,
            address: None,
            limits: KeyLimits::default(),
            // It has the rights of the user who started this process, and no others.
            may_tune: Ok(()),
            may_direct: Err("an agent over a pipe measures towards no other host: run 'linerate serve --allow-direct' there".to_owned()),
            slots: None,
            slot: None,
            port: 0,
            may_files: Ok(Reach::Anywhere),
            listen,
            data_ports,
            ledger: Arc::new(Ledger::new(LedgerLimits::at_a_pipe(), None)),
            session: 0,
        }
    }

    /// Where a leg's end here looks for its file, if it has one.
    ///
    /// # Errors
    /// A sentence, if the peer may use no files here.
    pub fn reach(&self, file: Option<&str>) -> Result<Reach, String> {
        match file {
            Some(_) => self.may_files.clone(),
            // Memory is nobody's.
            None => Ok(Reach::Anywhere),
        }
    }

    /// Requests one leg. The leg is under way until the answer is dropped.
    pub fn admit(&self, order: &LegOrder) -> Result<Admitted, Denied> {
        self.admit_as(&format!("leg {}", order.leg), order)
    }

    /// Requests something else that moves as much as this leg would; `what` is its name in the log.
    pub fn admit_as(&self, what: &str, order: &LegOrder) -> Result<Admitted, Denied> {
        possible(order).map_err(Denied::Refused)?;
        let mut order = order.clone();
        let mut warnings = Vec::new();
        fit(&mut order, &self.limits, &mut warnings);
        let account = self.id.map(|id| self.ledger.account(id));
        if let (Some(account), Some(a_day)) = (&account, self.limits.bytes_per_day) {
            let left = account.left(a_day).map_err(Denied::Refused)?;
            if left == Bytes(0) {
                return Err(Denied::Refused(used_up(a_day, "measure again")));
            }
            if let LegLimit::Bytes(asked) = order.limit
                && asked > left
            {
                order.limit = LegLimit::Bytes(left);
                warnings.push(smaller(
                    format!("{asked} asked, {left} granted: the remote host allows {a_day} a day"),
                    "the leg ends earlier than asked",
                ));
            }
        }
        let now = Instant::now();
        let mut accounts = sys::lock(&self.ledger.accounts);
        let sessions = accounts.measuring(|leg| leg.session != self.session);
        let of_key = accounts.measuring(|leg| leg.session != self.session && leg.id == self.id);
        let limits = &self.ledger.limits;
        let most = limits.clients;
        // One key never has all the places, where there is more than one.
        let most_of_key = most.saturating_sub(1).max(1);
        let busy = |accounts: &Accounts, what: String| {
            let others = accounts.live.values();
            let others = others.filter(|leg| leg.session != self.session);
            let ends = others.map(|leg| leg.ends).min();
            let wait = ends.map_or(AROUND_A_LEG, |ends| ends.saturating_duration_since(now));
            let wait = wait.max(Duration::from_secs(1));
            let seconds = wait.as_secs_f64().ceil();
            Err(Denied::Busy {
                wait: wait.into(),
                why: format!("{what}; one of them should end within {seconds} s"),
            })
        };
        if sessions.len() >= most {
            let what = format!("as many measure there now as it takes at once ({most})");
            return busy(&accounts, what);
        }
        if of_key.len() >= most_of_key {
            return busy(
                &accounts,
                format!(
                    "this host measures there as often as one host may at once ({most_of_key} of {most})"
                ),
            );
        }
        let held = |which: &dyn Fn(&LiveUse) -> bool| -> u32 {
            let legs = accounts.live.values().filter(|leg| which(leg));
            legs.map(|leg| leg.streams).sum()
        };
        let of_all = (limits.connections, limits.more_connections.to_owned());
        let of_one = self.limits.connections.map(|most| {
            let id = self.id.map_or(String::new(), |id| format!(" {id}"));
            (most, format!("'linerate trust add{id} --connections N'"))
        });
        let bounds = [
            ("allowed", false, of_all),
            (
                "allowed this host",
                true,
                of_one.unwrap_or((u32::MAX, String::new())),
            ),
        ];
        // The other direction of the leg waits for this one.
        let with_it = order.streams + held(&|leg| leg.session == self.session);
        if let Some((allowed, _, (most, remedy))) =
            bounds.iter().find(|(.., bound)| with_it > bound.0)
        {
            return Err(Denied::Refused(format!(
                "{with_it} connections at once, {most} {allowed}: use fewer (--streams), or run {remedy} there"
            )));
        }
        for (allowed, own, (most, _)) in bounds {
            let held = held(&|leg| !own || leg.id == self.id);
            if held + order.streams > most {
                return busy(
                    &accounts,
                    format!(
                        "{held} of the {most} connections {allowed} are in use there, and this leg needs {}",
                        order.streams
                    ),
                );
            }
        }
        let role = role(&order.workload, direction(&order), Side::Remote);
        let buffers = measure::buffers(&order.workload, order.streams, role);
        let (held, allowed) = (accounts.buffers(), limits.buffers);
        if buffers > allowed {
            return Err(Denied::Refused(format!(
                "buffers of {buffers} for this leg, {allowed} allowed for all of them: use fewer streams or smaller writes, requests or blocks, or run 'linerate serve --buffers SIZE' there"
            )));
        }
        if held + buffers > allowed {
            return busy(
                &accounts,
                format!(
                    "the legs there hold {held} of the {allowed} allowed for buffers, and this one needs {buffers}"
                ),
            );
        }
        if !sessions.is_empty() {
            let count = sessions.len();
            warnings.push(Warning {
                what: format!(
                    "{count} other {} on the remote host at the same time",
                    if count == 1 { "client measures" } else { "clients measure" }
                ),
                meaning: "they share its processors and links: the figures can be lower than the path's".to_owned(),
                remedy: "measure again when it is alone, or have it take one at a time (linerate serve --clients 1)".to_owned(),
            });
        }
        let span = match order.limit {
            LegLimit::Time(span) => Some(span),
            LegLimit::Bytes(_) | LegLimit::Requests(_) | LegLimit::Whole => self.limits.longest(),
        };
        let lasts = Duration::from(span.unwrap_or(UNKNOWN_DURATION).min(LONGEST));
        let ahead = match self.limits.rate {
            Some(rate) if receives(&order) => {
                quota::window(rate, order.streams).0 * u64::from(order.streams)
            }
            _ => 0,
        };
        if let Some(account) = &account
            && ahead > 0
        {
            account.pay_ahead(&self.limits, Bytes(ahead));
        }
        let number = accounts.next;
        accounts.next += 1;
        let live = LiveUse {
            session: self.session,
            id: self.id,
            ends: now + lasts + AROUND_A_LEG,
            buffers,
            streams: order.streams,
        };
        accounts.live.insert(number, live);
        drop(accounts);
        let name = format!("{}: session {}, {what}", self.name, self.session);
        if self.id.is_some() {
            crate::listener::log(&format!("{name}: {}", in_words(&order)));
        }
        Ok(Admitted {
            name,
            order,
            warnings,
            quota: account.map(|account| LegQuota::new(account, &self.limits, ahead)),
            ledger: Arc::clone(&self.ledger),
            number,
            counted: AtomicU64::new(0),
        })
    }
}

/// What light probes of a coordinator move: it counts against the coordinator's limits, and takes no place of a leg.
pub struct LightUse {
    quota: Option<Arc<LegQuota>>,
    ledger: Arc<Ledger>,
}

impl Peer {
    /// Requests light probes that take so long.
    ///
    /// # Errors
    /// In a sentence, if its limits do not allow them.
    pub fn light_use(&self, time: Nanos) -> Result<LightUse, String> {
        if let Some(longest) = self.limits.longest().filter(|longest| time > *longest) {
            return Err(format!(
                "light probes of {time}: the remote host allows {longest}"
            ));
        }
        let account = self.id.map(|id| self.ledger.account(id));
        if let (Some(account), Some(a_day)) = (&account, self.limits.bytes_per_day)
            && account.left(a_day)? == Bytes(0)
        {
            return Err(used_up(a_day, "light probes go on"));
        }
        let quota = account.map(|account| LegQuota::new(account, &self.limits, 0));
        let ledger = Arc::clone(&self.ledger);
        Ok(LightUse { quota, ledger })
    }
}

impl LightUse {
    /// The rate that its limits allow, if they name one.
    pub fn rate(&self) -> Option<BitRate> {
        self.quota.as_ref()?.limits.rate
    }

    /// Counts bytes that have moved.
    ///
    /// # Errors
    /// A sentence if they were more than the limits allow.
    pub fn spend(&self, bytes: Bytes) -> Result<(), String> {
        let Some(quota) = self.quota.as_ref().filter(|_| bytes > Bytes(0)) else {
            return Ok(());
        };
        self.ledger.settle(&quota.account, WRITE_EVERY);
        measure::Quota::spend(quota.as_ref(), bytes.0 as usize)
    }
}

impl Drop for LightUse {
    fn drop(&mut self) {
        if let Some(quota) = &self.quota {
            self.ledger.settle(&quota.account, Duration::ZERO);
        }
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
    /// The leg as allowed: limit and pacing may be smaller than requested.
    pub order: LegOrder,
    /// What was made smaller, and who else measures.
    pub warnings: Vec<Warning>,
    /// Its name in the log.
    name: String,
    quota: Option<Arc<LegQuota>>,
    ledger: Arc<Ledger>,
    number: u64,
    counted: AtomicU64,
}

impl Admitted {
    /// Puts the limits into the load of the leg.
    pub fn limit(&self, job: &mut measure::Job) {
        job.quota = self.quota();
        job.longest = self.cut();
        job.drain = job.drain.min(self.drain().unwrap_or(job.drain));
    }

    /// The limits that every write and read of the leg asks first, if its peer has any.
    pub fn quota(&self) -> Option<Arc<dyn measure::Quota>> {
        let quota = self.limited()?;
        Some(Arc::clone(quota) as Arc<dyn measure::Quota>)
    }

    /// Whether so many bytes of samples may be sent now.
    pub fn may_sample(&self, bytes: impl Fn() -> usize) -> bool {
        self.limited().is_none_or(|quota| quota.may_sample(bytes()))
    }

    fn limited(&self) -> Option<&Arc<LegQuota>> {
        let quota = self.quota.as_ref()?;
        let KeyLimits {
            rate,
            bytes_per_day,
            ..
        } = &quota.limits;
        (rate.is_some() || bytes_per_day.is_some()).then_some(quota)
    }

    fn longest(&self) -> Option<Nanos> {
        self.quota.as_ref()?.limits.longest()
    }

    /// When the leg is cut if nothing else ends it, and the sentence that says why. A leg that is ordered to last a
    /// time is cut by that.
    pub fn cut(&self) -> Option<(Duration, String)> {
        self.quota.as_ref()?;
        let longest = self.longest().unwrap_or(LONGEST);
        let why = || format!("the remote host allows {longest} a leg: it was ended");
        match self.order.limit {
            LegLimit::Time(_) => None,
            _ => Some((Duration::from(longest) + grace(longest), why())),
        }
    }

    /// How long what is under way at the end of the leg is waited for, where the peer's time is limited.
    pub fn drain(&self) -> Option<Duration> {
        self.longest().map(grace)
    }

    /// Counts the `total` bytes that this leg has moved (more is counted, less is not taken back), unless its quota
    /// has counted them. Call it with every sample and with the final count.
    pub fn account(&self, total: Bytes) {
        let more = self.grown(total);
        let Some(quota) = &self.quota else { return };
        if self.limited().is_none() {
            quota.account.count(more);
        }
        self.ledger.settle(&quota.account, WRITE_EVERY);
    }

    /// Counts the `total` bytes that have moved and that nothing could hold back.
    ///
    /// # Errors
    /// A sentence if they were more than the limits allow.
    pub fn spend(&self, total: Bytes) -> Result<(), String> {
        let Some(quota) = self.limited() else {
            self.account(total);
            return Ok(());
        };
        let more = self.grown(total);
        self.ledger.settle(&quota.account, WRITE_EVERY);
        measure::Quota::spend(quota.as_ref(), more.0 as usize)
    }

    fn grown(&self, total: Bytes) -> Bytes {
        let before = self.counted.fetch_max(total.0, Ordering::Relaxed);
        total.since(Bytes(before))
    }
}

fn grace(longest: Nanos) -> Duration {
    Nanos(longest.0 / 50).max(GRACE).into()
}

impl Drop for Admitted {
    fn drop(&mut self) {
        sys::lock(&self.ledger.accounts).live.remove(&self.number);
        let Some(quota) = &self.quota else { return };
        self.ledger.settle(&quota.account, Duration::ZERO);
        let moved = match self.limited() {
            Some(quota) => quota.moved.load(Ordering::Relaxed),
            None => self.counted.load(Ordering::Relaxed),
        };
        crate::listener::log(&format!("{} over: {}", self.name, Bytes(moved)));
    }
}

/// The agent's accounts: who measures now, and who moved how much today.
pub struct Ledger {
    limits: LedgerLimits,
    book: Arc<Book>,
    accounts: Mutex<Accounts>,
}

/// What all legs of an agent may use together.
#[derive(Clone, Debug)]
pub struct LedgerLimits {
    /// Sessions under load at once.
    pub clients: usize,
    /// Memory for buffers.
    pub buffers: Bytes,
    /// Data connections.
    pub connections: u32,
    /// How to allow more of them.
    pub more_connections: &'static str,
}

impl LedgerLimits {
    /// Of an agent that has one client, with the rights of the user who started it.
    pub(crate) fn at_a_pipe() -> LedgerLimits {
        LedgerLimits {
            clients: 1,
            buffers: Bytes(u64::MAX),
            connections: most_connections(),
            more_connections: "'ulimit -Hn N' (open files) as root",
        }
    }
}

struct LiveUse {
    session: u64,
    id: Option<NodeId>,
    ends: Instant,
    buffers: Bytes,
    streams: u32,
}

#[derive(Default)]
struct Accounts {
    live: BTreeMap<u64, LiveUse>,
    next: u64,
    /// Those of the keys that have measured since the start.
    keys: BTreeMap<NodeId, Arc<Account>>,
    settled: Option<Instant>,
    said: bool,
}

impl Ledger {
    /// Within these limits. What is used is kept in `directory`.
    pub fn new(limits: LedgerLimits, directory: Option<&Path>) -> Ledger {
        let file = directory.map(|directory| directory.join("usage.toml"));
        Ledger {
            limits,
            book: Arc::new(Book { file }),
            accounts: Mutex::default(),
        }
    }

    fn account(&self, id: NodeId) -> Arc<Account> {
        let mut accounts = sys::lock(&self.accounts);
        let book = || Arc::new(Account::new(id, Arc::clone(&self.book)));
        Arc::clone(accounts.keys.entry(id).or_insert_with(book))
    }

    /// Makes the book agree with what a key has moved, unless that was done so short a time ago. A failure is said
    /// once: a key with a limit a day is refused anyway.
    fn settle(&self, account: &Account, every: Duration) {
        let now = Instant::now();
        let mut accounts = sys::lock(&self.accounts);
        if accounts.settled.is_some_and(|at| now < at + every) {
            return;
        }
        accounts.settled = Some(now);
        drop(accounts);
        if let Err(why) = account.settle()
            && !std::mem::replace(&mut sys::lock(&self.accounts).said, true)
        {
            crate::log::note(&format!("linerate: {why}"));
        }
    }
}

impl Accounts {
    /// The sessions of these legs.
    fn measuring(&self, which: impl Fn(&LiveUse) -> bool) -> BTreeSet<u64> {
        let legs = self.live.values().filter(|leg| which(leg));
        legs.map(|leg| leg.session).collect()
    }

    fn buffers(&self) -> Bytes {
        self.live.values().map(|leg| leg.buffers).sum()
    }
}

/// An order for the log.
fn in_words(order: &LegOrder) -> String {
    let [sends, receives] = order.workload.kind().agent_does;
    let what = if order.agent_sends { sends } else { receives };
    let limit = match order.limit {
        LegLimit::Time(span) => format!("for {span}"),
        LegLimit::Bytes(bytes) => format!("up to {bytes}"),
        LegLimit::Requests(count) => format!("up to {count} requests"),
        LegLimit::Whole => "to its end".to_owned(),
    };
    let s = if order.streams == 1 { "" } else { "s" };
    format!("{what} over {} connection{s} {limit}", order.streams)
}

/// Whether an order makes sense at all, whoever sends it.
fn possible(order: &LegOrder) -> Result<(), String> {
    if order.interval < MIN_INTERVAL {
        return Err(format!(
            "samples every {}: at least {MIN_INTERVAL} lie between them",
            order.interval
        ));
    }
    match order.limit {
        LegLimit::Time(Nanos(0)) | LegLimit::Bytes(Bytes(0)) | LegLimit::Requests(0) => {
            return Err("a leg of nothing measures nothing".to_owned());
        }
        LegLimit::Time(span) if span > LONGEST => {
            return Err(format!("a leg of {span}: at most {LONGEST} are possible"));
        }
        _ => {}
    }
    order.workload.check(order.streams)
}

/// Makes an order fit the limits, and says where.
fn fit(order: &mut LegOrder, limits: &KeyLimits, warnings: &mut Vec<Warning>) {
    if let (LegLimit::Time(asked), Some(longest)) = (order.limit, limits.longest())
        && asked > longest
    {
        order.limit = LegLimit::Time(longest);
        warnings.push(smaller(
            format!("{asked} asked, {longest} granted: the remote host allows no longer leg"),
            "the leg ends earlier than asked",
        ));
    }
    if order.interval > MAX_INTERVAL {
        warnings.push(Warning {
            what: format!(
                "samples every {} asked, {MAX_INTERVAL} granted",
                order.interval
            ),
            meaning: "the remote host samples more often than this one".to_owned(),
            remedy: format!("request at most {MAX_INTERVAL} (--interval)"),
        });
        order.interval = MAX_INTERVAL;
    }
    if let Some(rate) = limits.rate {
        let window = quota::window(rate, order.streams);
        let more = match order.socket.receive_buffer {
            Some(asked) => asked > window,
            None => !quota::is_usual(window),
        };
        if receives(order) && more {
            // What arrives before anything is read must not exceed the rate by more than that.
            order.socket.receive_buffer = Some(window);
            warnings.push(smaller(
                format!("receive buffers of {window} on the remote host: it allows {rate}"),
                "a small receive window can hold the transfer up on a long path",
            ));
        }
        let each = BitRate((rate.0 / u64::from(order.streams.max(1))).max(1));
        // Datagrams have a rate of their own; 0 is as fast as it goes.
        let rates = [order.socket.pacing, order.workload.rate()];
        let asked = rates.into_iter().flatten().filter(|rate| rate.0 > 0);
        if asked.min().is_none_or(|asked| asked > each) {
            order.socket.pacing = Some(each);
            warnings.push(smaller(
                format!(
                    "paced to {rate}: the remote host allows no more, all legs and both directions together"
                ),
                "the rate is the limit's, not the path's",
            ));
        }
    }
}

/// Whether receive windows of the agent let arrive what the peer chooses to send. Datagrams have none.
fn receives(order: &LegOrder) -> bool {
    let is_receiver = !order.agent_sends || order.workload.is_answered();
    is_receiver && !order.workload.is_udp()
}

fn used_up(a_day: Bytes, then: &str) -> String {
    format!("the {a_day} a day that this host allows are used up: {then} after midnight UTC")
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
    use model::{Bulk, Udp, Workload};
    use std::net::Ipv4Addr;

    fn limits_for(clients: usize) -> LedgerLimits {
        LedgerLimits {
            clients,
            buffers: Bytes(64 << 20),
            connections: 1000,
            more_connections: "'linerate serve --connections N'",
        }
    }

    fn ledger(clients: usize) -> Ledger {
        Ledger::new(limits_for(clients), None)
    }

    fn order(limit: LegLimit) -> LegOrder {
        LegOrder {
            leg: 1,
            agent_sends: true,
            streams: 2,
            ..crate::testing::leg_order(limit)
        }
    }

    fn peer(ledger: &Arc<Ledger>, session: u64, id: NodeId, limits: KeyLimits) -> Peer {
        Peer {
            name: format!("client {session}"),
            id: Some(id),
            own_key: None,
            address: None,
            limits,
            may_tune: Ok(()),
            may_files: Ok(Reach::Anywhere),
            listen: Ipv4Addr::LOCALHOST.into(),
            data_ports: None,
            ledger: Arc::clone(ledger),
            session,
            ..Peer::at_a_pipe(Ipv4Addr::LOCALHOST.into(), None)
        }
    }

    #[test]
    fn windows_hold_back_who_sends_bytes_to_the_agent() {
        let udp = Workload::Udp(Udp {
            rate: BitRate(0),
            datagram_size: Bytes(1400),
        });
        let bulk = Workload::Bulk(Bulk::default());
        for (agent_sends, workload, is_so) in [
            (true, &bulk, false),
            (false, &bulk, true),
            (true, &udp, false),
            (false, &udp, false),
        ] {
            let order = LegOrder {
                agent_sends,
                workload: workload.clone(),
                ..order(LegLimit::Whole)
            };
            assert_eq!(receives(&order), is_so, "{order:?}");
        }
    }

    fn refused(peer: &Peer, order: &LegOrder) -> String {
        match peer.admit(order) {
            Err(Denied::Refused(why)) => why,
            Err(Denied::Busy { why, .. }) => panic!("busy: {why}"),
            Ok(_) => panic!("admitted"),
        }
    }

    #[test]
    fn a_leg_is_limited_and_the_client_is_warned() {
        let ledger = Arc::new(ledger(1));
        let limits = KeyLimits {
            rate: Some(BitRate(100_000_000)),
            seconds: Some(5),
            ..KeyLimits::default()
        };
        let peer = peer(&ledger, 1, fresh().id(), limits);
        let leg = peer
            .admit(&order(LegLimit::Time(Nanos::from_secs(10))))
            .ok()
            .unwrap();
        assert_eq!(leg.order.limit, LegLimit::Time(Nanos::from_secs(5)));
        assert_eq!(leg.order.socket.pacing, Some(BitRate(50_000_000)));
        assert_eq!(leg.warnings.len(), 2);
        // It is ordered to last a time, which ends it; only what is under way then is waited for.
        assert_eq!(leg.cut(), None);
        assert_eq!(leg.drain(), Some(Duration::from_millis(500)));
        let bytes = peer.admit(&order(LegLimit::Bytes(Bytes(1)))).ok().unwrap();
        let (after, why) = bytes.cut().unwrap();
        assert_eq!(after, Duration::from_millis(5500));
        assert!(why.contains("5.00 s a leg"), "{why}");
    }

    #[test]
    fn samples_are_not_as_rare_as_the_client_likes() {
        let ledger = Arc::new(ledger(1));
        let peer = peer(&ledger, 1, fresh().id(), KeyLimits::default());
        let mut rare = order(LegLimit::Time(Nanos::from_secs(86_400)));
        rare.interval = Nanos::from_secs(86_400);
        let leg = peer.admit(&rare).ok().unwrap();
        assert_eq!(leg.order.interval, Nanos::from_secs(60));
        assert!(
            leg.warnings[0].what.contains("60.0 s granted"),
            "{:?}",
            leg.warnings
        );
        rare.limit = LegLimit::Time(Nanos::from_secs(86_401));
        assert!(refused(&peer, &rare).contains("at most"));
    }

    #[test]
    fn orders_are_taken_at_their_bounds_and_not_beyond() {
        let ledger = Arc::new(ledger(1));
        let limits = KeyLimits {
            seconds: Some(5),
            ..KeyLimits::default()
        };
        let free = peer(&ledger, 1, fresh().id(), KeyLimits::default());
        let limited = peer(&ledger, 1, fresh().id(), limits);
        let ten = || order(LegLimit::Time(Nanos::from_secs(10)));
        let of = |streams, interval| LegOrder {
            streams,
            interval,
            ..ten()
        };
        let second = Nanos::from_secs(1);
        for fits in [of(1, second), of(128, second), of(1, MIN_INTERVAL)] {
            assert_eq!(free.admit(&fits).ok().unwrap().warnings, []);
        }
        let sooner = Nanos(MIN_INTERVAL.0 - 1);
        for (beyond, why) in [
            (of(0, second), "0 connections: 1 to"),
            (of(129, second), "129 connections: 1 to 128"),
            (of(1, sooner), "samples every"),
        ] {
            let said = refused(&free, &beyond);
            assert!(said.contains(why), "{said}");
        }
        // What is granted as ordered has no warning.
        let warned = |peer: &Peer, limit, interval| {
            let order = LegOrder {
                interval,
                ..order(limit)
            };
            let leg = peer.admit(&order).ok().unwrap();
            (leg.order.limit, leg.warnings.len())
        };
        let time = |nanos| LegLimit::Time(Nanos(nanos));
        let five = 5_000_000_000;
        assert_eq!(warned(&limited, time(five), second), (time(five), 0));
        assert_eq!(warned(&limited, time(five + 1), second), (time(five), 1));
        assert_eq!(
            warned(&free, time(LONGEST.0), MAX_INTERVAL),
            (time(LONGEST.0), 0)
        );
        let rarer = Nanos(MAX_INTERVAL.0 + 1);
        assert_eq!(warned(&free, time(LONGEST.0), rarer), (time(LONGEST.0), 1));
        assert!(refused(&free, &order(time(LONGEST.0 + 1))).contains("at most"));
    }

    #[test]
    fn the_buffers_of_all_legs_have_a_bound() {
        let ledger = Arc::new(ledger(4));
        let client = |n| peer(&ledger, n, fresh().id(), KeyLimits::default());
        let writes = |size, streams| LegOrder {
            workload: Workload::Bulk(Bulk {
                write_size: Some(Bytes(size)),
                ..Bulk::default()
            }),
            streams,
            ..order(LegLimit::Bytes(Bytes(1)))
        };
        // Of a write a sixteenth is in memory.
        let too_much = refused(&client(1), &writes(64 << 20, 32));
        assert!(
            too_much.contains("128 MiB") && too_much.contains("64.0 MiB allowed"),
            "{too_much}"
        );
        let all = client(1).admit(&writes(64 << 20, 16)).ok().unwrap();
        match client(2).admit(&writes(1, 1)) {
            Err(Denied::Busy { why, .. }) => assert!(why.contains("allowed for buffers"), "{why}"),
            _ => panic!("one byte too many"),
        }
        drop(all);
        assert!(client(2).admit(&writes(1, 1)).is_ok());
        // What nobody bounded by hand fits, however many streams there are.
        let many = LegOrder {
            streams: 128,
            ..order(LegLimit::Bytes(Bytes(1)))
        };
        assert!(client(1).admit(&many).is_ok());
    }

    #[test]
    fn the_connections_of_all_legs_and_of_a_key_have_a_bound() {
        let ledger = Arc::new(ledger(4));
        let requests = |streams| LegOrder {
            workload: Workload::Request(model::Request {
                request_size: Bytes(64),
                reply_size: Bytes(64),
                pace_per_s: None,
                reconnect: false,
                wait: model::WaitMode::Block,
            }),
            streams,
            ..order(LegLimit::Time(Nanos::from_secs(10)))
        };
        let limits = KeyLimits {
            connections: Some(300),
            ..KeyLimits::default()
        };
        let (id, free) = (fresh().id(), KeyLimits::default());
        let limited = |session| peer(&ledger, session, id, limits.clone());
        let other = |session| peer(&ledger, session, fresh().id(), free.clone());
        let said = refused(&limited(1), &requests(301));
        assert!(said.contains("300 allowed this host"), "{said}");
        assert!(said.contains(&format!("trust add {id} --connections")));
        let said = refused(&other(1), &requests(1001));
        assert!(said.contains("1000 allowed") && said.contains("serve --connections"));

        let busy = |peer: &Peer, streams, what: &str| match peer.admit(&requests(streams)) {
            Err(Denied::Busy { why, .. }) => assert!(why.contains(what), "{why}"),
            _ => panic!("{streams} more are too many"),
        };
        let of_key = limited(1).admit(&requests(200)).ok().unwrap();
        busy(
            &limited(2),
            101,
            "200 of the 300 connections allowed this host",
        );
        let also = limited(2).admit(&requests(100)).ok().unwrap();
        busy(&other(3), 701, "300 of the 1000 connections allowed");
        let rest = other(3).admit(&requests(700)).ok().unwrap();
        // The other direction of a leg would wait for its own.
        let said = refused(&limited(1), &requests(101));
        assert!(said.contains("301 connections at once"), "{said}");
        drop((of_key, also));
        assert!(limited(1).admit(&requests(300)).is_ok());
        drop(rest);
        assert!(other(1).admit(&requests(1000)).is_ok());
    }

    #[test]
    fn one_key_leaves_room_for_another() {
        let ledger = Arc::new(ledger(3));
        let (id, ten) = (fresh().id(), order(LegLimit::Time(Nanos::from_secs(10))));
        let greedy = |n| peer(&ledger, n, id, KeyLimits::default()).admit(&ten);
        let held: Vec<Admitted> = (0..2).map(|n| greedy(n).ok().unwrap()).collect();
        match greedy(2) {
            Err(Denied::Busy { why, .. }) => assert!(why.contains("(2 of 3)"), "{why}"),
            _ => panic!("it has all the places"),
        }
        assert!(
            peer(&ledger, 3, fresh().id(), KeyLimits::default())
                .admit(&ten)
                .is_ok()
        );
        drop(held);
        assert!(greedy(2).is_ok());
    }

    #[test]
    fn impossible_orders_are_refused_in_words() {
        let ledger = Arc::new(ledger(1));
        let peer = peer(&ledger, 1, fresh().id(), KeyLimits::default());
        let fine = order(LegLimit::Bytes(Bytes(1)));
        let bad = |change: &dyn Fn(&mut LegOrder)| {
            let mut order = fine.clone();
            change(&mut order);
            refused(&peer, &order)
        };
        assert!(bad(&|o| o.streams = 0).contains("0 connections"));
        assert!(bad(&|o| o.streams = 129).contains("each with a thread"));
        assert!(bad(&|o| o.interval = Nanos(1)).contains("samples"));
        assert!(bad(&|o| o.limit = LegLimit::Time(Nanos(0))).contains("nothing"));
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
    fn a_small_number_at_once_and_the_next_gets_a_waiting_time() {
        let ledger = Arc::new(ledger(2));
        let ten = order(LegLimit::Time(Nanos::from_secs(10)));
        let client = |n| peer(&ledger, n, fresh().id(), KeyLimits::default());
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
        let limits = KeyLimits {
            bytes_per_day: Some(Bytes(1000)),
            ..KeyLimits::default()
        };
        let start = |id| {
            let ledger = Arc::new(Ledger::new(limits_for(4), Some(dir.path())));
            peer(&ledger, 1, id, limits.clone())
        };
        let leg = start(id)
            .admit(&order(LegLimit::Bytes(Bytes(5000))))
            .ok()
            .unwrap();
        assert_eq!(leg.order.limit, LegLimit::Bytes(Bytes(1000)));
        assert!(leg.spend(Bytes(300)).is_ok());
        // The same count again is not counted again.
        assert!(leg.spend(Bytes(300)).is_ok());
        drop(leg);
        let leg = start(id)
            .admit(&order(LegLimit::Bytes(Bytes(5000))))
            .ok()
            .unwrap();
        assert_eq!(leg.order.limit, LegLimit::Bytes(Bytes(700)));
        assert!(leg.spend(Bytes(701)).unwrap_err().contains("1000 B a day"));
        drop(leg);
        assert!(refused(&start(id), &order(LegLimit::Bytes(Bytes(1)))).contains("midnight"));
        assert!(
            start(other)
                .admit(&order(LegLimit::Bytes(Bytes(1))))
                .is_ok()
        );
    }

    #[test]
    fn an_order_in_the_log_says_what_this_host_does() {
        let of = |agent_sends, streams, limit| {
            in_words(&LegOrder {
                agent_sends,
                streams,
                ..order(limit)
            })
        };
        let [sends, receives] = Workload::Bulk(Bulk::default()).kind().agent_does;
        assert_ne!(sends, receives);
        assert_eq!(
            of(true, 1, LegLimit::Time(Nanos::from_secs(10))),
            format!("{sends} over 1 connection for 10.0 s")
        );
        assert_eq!(
            of(false, 2, LegLimit::Bytes(Bytes(1000))),
            format!("{receives} over 2 connections up to 1000 B")
        );
        assert!(of(true, 2, LegLimit::Requests(5)).ends_with("up to 5 requests"));
        assert!(of(true, 2, LegLimit::Whole).ends_with("to its end"));
    }

    #[test]
    fn what_is_under_way_has_half_a_second_or_two_percent() {
        let seconds = |n| grace(Nanos::from_secs(n));
        let half = Duration::from_millis(500);
        assert_eq!([seconds(0), seconds(25)], [half; 2]);
        assert_eq!(seconds(26), Duration::from_millis(520));
        assert_eq!(seconds(100), Duration::from_secs(2));
    }

    #[test]
    fn light_probes_are_within_the_limits_of_the_key() {
        let ledger = Arc::new(ledger(1));
        let limits = KeyLimits {
            rate: Some(BitRate(1_000_000)),
            seconds: Some(5),
            bytes_per_day: Some(Bytes(1000)),
            ..KeyLimits::default()
        };
        let limited = peer(&ledger, 1, fresh().id(), limits);
        let why = limited.light_use(Nanos(5_000_000_001)).err().unwrap();
        assert!(why.contains("the remote host allows 5.00 s"), "{why}");
        let light = limited.light_use(Nanos::from_secs(5)).unwrap();
        assert_eq!(light.rate(), Some(BitRate(1_000_000)));
        assert_eq!(light.spend(Bytes(0)), Ok(()));
        assert_eq!(light.spend(Bytes(1000)), Ok(()));
        assert_eq!(light.spend(Bytes(0)), Ok(()));
        assert!(light.spend(Bytes(1)).unwrap_err().contains("1000 B a day"));
        drop(light);
        let why = limited.light_use(Nanos(0)).err().unwrap();
        assert!(
            why.contains("light probes go on after midnight UTC"),
            "{why}"
        );
        // They take no place of a leg, and without a key there is no limit.
        let free = Peer::at_a_pipe(Ipv4Addr::LOCALHOST.into(), None);
        let light = free.light_use(Nanos(u64::MAX)).unwrap();
        assert_eq!((light.rate(), light.spend(Bytes(1 << 40))), (None, Ok(())));
        assert!(sys::lock(&ledger.accounts).live.is_empty());
    }

    #[test]
    fn a_key_without_limits_is_counted_and_never_held_back() {
        let ledger = Arc::new(ledger(1));
        let id = fresh().id();
        let leg = |limits| {
            let peer = peer(&ledger, 1, id, limits);
            peer.admit(&order(LegLimit::Bytes(Bytes(1)))).ok().unwrap()
        };
        let free = leg(KeyLimits::default());
        assert!(free.quota().is_none() && free.drain().is_none());
        assert!(free.may_sample(|| usize::MAX));
        // A key cannot keep a place for ever.
        let (after, why) = free.cut().unwrap();
        assert_eq!(
            after,
            Duration::from_secs(86_400) + Duration::from_secs(1728)
        );
        assert!(why.contains("it was ended"), "{why}");
        assert_eq!(free.spend(Bytes(1 << 40)), Ok(()));
        let moved = ledger.account(id).left(Bytes(1 << 41)).unwrap();
        assert_eq!(moved, Bytes(1 << 40));
        drop(free);
        let limited = leg(KeyLimits {
            bytes_per_day: Some(Bytes(1 << 42)),
            ..KeyLimits::default()
        });
        assert!(limited.quota().is_some());
        assert!(limited.may_sample(|| 1 << 30));
        assert!(!limited.may_sample(|| 1));
        // What its quota has counted is not counted twice.
        limited.account(Bytes(5));
        assert_eq!(
            ledger.account(id).left(Bytes(1 << 41)).unwrap(),
            Bytes(1 << 40)
        );
    }

    #[test]
    fn a_limit_is_put_into_the_load_and_a_pipe_has_none() {
        let ledger = Arc::new(ledger(1));
        let limits = KeyLimits {
            rate: Some(BitRate(1)),
            seconds: Some(100),
            ..KeyLimits::default()
        };
        let job = |drain| {
            let workload = Workload::Bulk(Bulk::default());
            let mut job = measure::Job::new(measure::Role::Send, workload, LegLimit::Whole);
            job.drain = Duration::from_secs(drain);
            job
        };
        let leg = peer(&ledger, 1, fresh().id(), limits).admit(&order(LegLimit::Whole));
        let leg = leg.ok().unwrap();
        let (mut long, mut short) = (job(10), job(1));
        leg.limit(&mut long);
        leg.limit(&mut short);
        assert_eq!(
            (long.drain, short.drain),
            (Duration::from_secs(2), Duration::from_secs(1))
        );
        assert!(long.quota.is_some());
        assert_eq!(long.longest.unwrap().0, Duration::from_secs(102));
        let pipe = Peer::at_a_pipe(Ipv4Addr::LOCALHOST.into(), None);
        let free = pipe.admit(&order(LegLimit::Whole)).ok().unwrap();
        let mut plain = job(10);
        free.limit(&mut plain);
        assert!(plain.quota.is_none() && plain.longest.is_none());
        assert_eq!(plain.drain, Duration::from_secs(10));
        assert!(free.may_sample(|| usize::MAX));
        assert_eq!(free.spend(Bytes(9)), Ok(()));
    }

    #[test]
    fn a_rate_is_divided_among_streams_and_bounds_windows() {
        let ledger = Arc::new(ledger(1));
        let rate = |rate| KeyLimits {
            rate: Some(BitRate(rate)),
            ..KeyLimits::default()
        };
        let admitted = |limit, change: &dyn Fn(&mut LegOrder)| {
            let mut order = order(LegLimit::Whole);
            change(&mut order);
            let leg = peer(&ledger, 1, fresh().id(), rate(limit)).admit(&order);
            let leg = leg.ok().unwrap();
            let socket = &leg.order.socket;
            (socket.pacing, socket.receive_buffer, leg.warnings.len())
        };
        let pacing = |of| Some(BitRate(of));
        let asks = |asked| move |o: &mut LegOrder| o.socket.pacing = Some(BitRate(asked));
        assert_eq!(admitted(1000, &|_| ()), (pacing(500), None, 1));
        assert_eq!(admitted(1, &|_| ()), (pacing(1), None, 1));
        assert_eq!(admitted(1000, &asks(500)), (pacing(500), None, 0));
        assert_eq!(admitted(1000, &asks(501)), (pacing(500), None, 1));
        assert_eq!(admitted(1000, &asks(400)), (pacing(400), None, 0));
        let datagrams = |rate| {
            move |o: &mut LegOrder| {
                o.workload = Workload::Udp(Udp {
                    rate: BitRate(rate),
                    datagram_size: Bytes(1000),
                });
            }
        };
        assert_eq!(admitted(1000, &datagrams(500)).0, None);
        assert_eq!(admitted(1000, &datagrams(501)).0, pacing(500));
        assert_eq!(admitted(1000, &datagrams(0)).0, pacing(500));
        // 8 Mbit/s: 250 KB in a quarter of a second, half of it for each of two, within what is usual.
        let receives = |buffer: Option<u64>| {
            move |o: &mut LegOrder| {
                o.agent_sends = false;
                o.socket.receive_buffer = buffer.map(Bytes);
            }
        };
        let window = Some(Bytes(125_000));
        assert_eq!(admitted(8_000_000, &receives(None)).1, window);
        assert_eq!(admitted(8_000_000, &receives(Some(125_000))).1, window);
        assert_eq!(admitted(8_000_000, &receives(Some(125_001))).1, window);
        assert_eq!(
            admitted(8_000_000, &receives(Some(9000))).1,
            Some(Bytes(9000))
        );
        assert_eq!(admitted(80_000_000, &receives(None)).1, None);
    }

    #[test]
    fn a_file_is_within_reach_where_its_peer_may_use_files() {
        let peer = Peer {
            may_files: Err("no files".to_owned()),
            ..Peer::at_a_pipe(Ipv4Addr::LOCALHOST.into(), None)
        };
        assert!(matches!(peer.reach(None), Ok(Reach::Anywhere)));
        assert_eq!(peer.reach(Some("a")).err().as_deref(), Some("no files"));
    }

    #[test]
    fn only_what_a_peer_sends_is_paid_for_ahead() {
        let ledger = Arc::new(ledger(1));
        let limits = KeyLimits {
            rate: Some(BitRate(8_000_000)),
            ..KeyLimits::default()
        };
        let ahead = |agent_sends| {
            let order = LegOrder {
                agent_sends,
                ..order(LegLimit::Whole)
            };
            let leg = peer(&ledger, 1, fresh().id(), limits.clone()).admit(&order);
            leg.ok()
                .unwrap()
                .quota
                .as_ref()
                .unwrap()
                .ahead
                .load(Ordering::Relaxed)
        };
        assert_eq!([ahead(true), ahead(false)], [0, 250_000]);
    }
}

//! The slots of coordinators at this host: when it measures towards another host, or is measured by it, and nothing else
//! does. Each is booked in the calendar of this host, which refuses overlap; those for light probes are not.

use crate::host_calendar::{HostCalendar, Renewal};
use crate::light::{self, LightPace, LightSocket};
use crate::prelude::*;
use crate::trust::{LightUse, NodeId};
use std::ops::RangeInclusive;
use wire::control::direct::{
    LightPort, MAX_AHEAD, MAX_LIGHT_SPAN, MAX_SLOTS, MAX_SPAN, MAX_TTL, SlotRole,
};

/// Slots of all coordinators together: each that is confirmed has a thread.
const MOST_SLOTS: usize = 256;

/// A slot as a coordinator wants it.
pub struct SlotOrder<'a> {
    /// Its name.
    pub slot: &'a str,
    /// Beginning, from now.
    pub after: Nanos,
    /// Length.
    pub span: Nanos,
    /// How long it is held without a confirmation.
    pub ttl: Nanos,
    /// Key of the other host; light probes have none.
    pub peer: Option<NodeId>,
    /// What this host does.
    pub role: SlotRole,
    /// What is measured may use files, where its coordinator may.
    pub files: bool,
}

/// Why a slot is not held.
pub struct NoSlot {
    /// Why, and what to do.
    pub why: String,
    /// When the host is free, if it ever is.
    pub free_in: Option<Nanos>,
}

/// A slot at this host.
pub struct DirectSlot {
    /// Its name.
    pub name: String,
    /// Key of the coordinator.
    pub by: NodeId,
    /// Key of the other host; light probes have none.
    pub peer: Option<NodeId>,
    role: SlotRole,
    /// What is measured may use files, where its coordinator may.
    pub files: bool,
    starts: Instant,
    /// Its end.
    pub ends: Instant,
    ttl: Duration,
    confirmed: AtomicBool,
    used: AtomicBool,
    /// Ends what runs in it.
    pub over: AtomicBool,
    /// Somebody released it on this host.
    released: AtomicBool,
}

impl DirectSlot {
    /// When it ends, as far as is known now: unconfirmed or unused it ends early.
    fn until(&self, held_until: Instant) -> Instant {
        match (
            self.confirmed.load(Ordering::Relaxed),
            self.used.load(Ordering::Relaxed),
        ) {
            (false, _) => held_until,
            (true, false) => self.ends.min(self.starts + self.ttl),
            (true, true) => self.ends,
        }
    }

    /// Whether it has begun.
    pub fn has_begun(&self) -> bool {
        self.confirmed.load(Ordering::Relaxed) && self.starts <= Instant::now()
    }

    /// Why it is over before its end, where that is known.
    pub fn why_over(&self) -> Option<&'static str> {
        let was_released = self.released.load(Ordering::Relaxed);
        was_released.then_some("its slot was released on that host")
    }

    /// How much of it is left.
    pub fn left(&self) -> Duration {
        match self.over.load(Ordering::Relaxed) {
            true => Duration::ZERO,
            false => self.ends.saturating_duration_since(Instant::now()),
        }
    }
}

/// A slot, and what keeps it in the calendar.
struct BookedSlot {
    slot: Arc<DirectSlot>,
    held_until: Instant,
    hold: Option<Renewal>,
    /// Answers light probes once it is confirmed.
    light: Option<(LightSocket, LightUse)>,
}

impl BookedSlot {
    fn is_over(&self, now: Instant) -> bool {
        self.slot.over.load(Ordering::Relaxed) || now >= self.slot.until(self.held_until)
    }
}

/// All slots at this host.
pub struct SlotBook {
    calendar: HostCalendar,
    bind: Option<IpAddr>,
    ports: Option<RangeInclusive<u16>>,
    entries: Mutex<BTreeMap<String, BookedSlot>>,
    /// Of the light probes of this host.
    pub pace: LightPace,
}

impl SlotBook {
    /// Of a host with this calendar, which answers light probes at this address (or all) and these ports (or any).
    pub fn new(
        calendar: HostCalendar,
        bind: Option<IpAddr>,
        ports: Option<RangeInclusive<u16>>,
    ) -> SlotBook {
        SlotBook {
            calendar,
            bind,
            ports,
            entries: Mutex::default(),
            pace: LightPace::default(),
        }
    }

    /// Whether something is booked on the host now.
    pub fn is_busy(&self) -> bool {
        let now = unix_time();
        let slots = self.calendar.slots().unwrap_or_default();
        slots
            .iter()
            .any(|slot| slot.starts <= now && now < slot.ends)
    }

    /// Holds the host for a slot of the coordinator with this key, `name` for people; what light probes move is accounted
    /// for in `light_use`.
    pub fn hold(
        &self,
        by: NodeId,
        name: &str,
        order: &SlotOrder<'_>,
        light_use: Option<LightUse>,
    ) -> Result<Option<LightPort>, NoSlot> {
        let refused = |why: String| NoSlot { why, free_in: None };
        possible(order).map_err(refused)?;
        let (slot, times) = (order.slot, [order.after, order.span, order.ttl]);
        let [after, span, ttl] = times;
        let mut entries = self.entries();
        if entries.contains_key(slot) {
            return Err(refused(format!(
                "the slot {slot} is held already: choose another name"
            )));
        }
        let of_key = entries.values().filter(|entry| entry.slot.by == by).count();
        if of_key >= MAX_SLOTS || entries.len() >= MOST_SLOTS {
            return Err(refused(format!(
                "{of_key} slots of this coordinator and {} in all are held there, {MAX_SLOTS} and {MOST_SLOTS} may be: release some first",
                entries.len()
            )));
        }
        let failed = |error: anyhow::Error| refused(format!("{error:#}"));
        let peer = order.peer.map_or(String::new(), |peer| peer.short());
        let what = match order.role {
            SlotRole::Source => Some(format!("measuring towards {peer}")),
            SlotRole::Destination => Some(format!("measured by {peer}")),
            SlotRole::Light => None,
        };
        if let Some(what) = what {
            let booked = self.calendar.book_slot(slot, times, name, &what);
            booked.map_err(failed)?.map_err(|(free_in, why)| NoSlot {
                why,
                free_in: Some(free_in),
            })?;
        }
        let light = light_use.map(|light_use| {
            let socket = LightSocket::open(self.bind, self.ports.as_ref())?;
            Ok((socket, light_use))
        });
        let light = light.transpose().map_err(failed)?;
        let port = light.as_ref().map(|(socket, _)| socket.port());
        let port = port.transpose().map_err(failed)?;
        let now = Instant::now();
        let starts = now + Duration::from(after);
        let ends = starts + Duration::from(span);
        if order.role != SlotRole::Light {
            // The calendar refuses overlap: somebody has released these on this host.
            let is_gone = |BookedSlot { slot: other, .. }: &BookedSlot| {
                other.role != SlotRole::Light && other.starts < ends && other.ends > starts
            };
            let gone = entries.values().filter(|entry| is_gone(entry));
            gone.for_each(|entry| entry.slot.released.store(true, Ordering::Relaxed));
            self.remove(&mut entries, is_gone);
        }
        let entry = BookedSlot {
            slot: Arc::new(DirectSlot {
                name: slot.to_owned(),
                by,
                peer: order.peer,
                role: order.role,
                files: order.files,
                starts,
                ends,
                ttl: ttl.into(),
                confirmed: AtomicBool::new(false),
                used: AtomicBool::new(false),
                over: AtomicBool::new(false),
                released: AtomicBool::new(false),
            }),
            held_until: now + Duration::from(ttl),
            hold: None,
            light,
        };
        entries.insert(slot.to_owned(), entry);
        Ok(port)
    }

    /// Confirms a slot of this coordinator.
    ///
    /// # Errors
    /// If it has none of this name, or none any more.
    pub fn confirm(&self, by: NodeId, name: &str) -> Result<()> {
        let mut entries = self.entries();
        let entry = entries.get_mut(name).filter(|entry| entry.slot.by == by);
        let Some(entry) = entry else {
            bail!("the slot {name} is not held there, or not any more: hold it again");
        };
        if entry.hold.is_some() {
            return Ok(());
        }
        let (slot, held_until) = (Arc::clone(&entry.slot), entry.held_until);
        slot.confirmed.store(true, Ordering::Relaxed);
        if slot.role == SlotRole::Light {
            slot.used.store(true, Ordering::Relaxed);
            if let Some((socket, light_use)) = entry.light.take() {
                light::answer(socket, slot, light_use)?;
            }
            return Ok(());
        }
        let lost = Arc::clone(&entry.slot);
        let keep = move || {
            let left = slot
                .until(held_until)
                .saturating_duration_since(Instant::now());
            if left.is_zero() || slot.over.load(Ordering::Relaxed) {
                slot.over.store(true, Ordering::Relaxed);
                return None;
            }
            Some(left)
        };
        let lost = move |was_released| {
            lost.released.store(was_released, Ordering::Relaxed);
            lost.over.store(true, Ordering::Relaxed);
        };
        match self.calendar.keep_slot(name, keep, lost) {
            Ok(Some(hold)) => {
                entry.hold = Some(hold);
                Ok(())
            }
            kept => {
                self.remove(&mut entries, |entry| entry.slot.name == name);
                kept?;
                bail!("the slot {name} is not held there any more: hold it again")
            }
        }
    }

    /// Ends a slot of this coordinator, if it has one of this name.
    pub fn release(&self, by: NodeId, name: &str) {
        let mut entries = self.entries();
        let is_it = |entry: &BookedSlot| entry.slot.name == name && entry.slot.by == by;
        self.remove(&mut entries, is_it);
    }

    /// The slot in which this host measures the one with this key, once.
    ///
    /// # Errors
    /// If there is none now: why.
    pub fn source(&self, by: NodeId, name: &str, peer: NodeId) -> Result<Arc<DirectSlot>> {
        let slot = self.begun(by, name, SlotRole::Source)?;
        if let Some(held) = slot.peer.filter(|held| *held != peer) {
            bail!("the slot {name} is held with the host {held}, not {peer}");
        }
        if slot.used.swap(true, Ordering::Relaxed) {
            bail!("the slot {name} was used already: a slot has one run");
        }
        Ok(slot)
    }

    /// The slot in which this host sends light probes.
    ///
    /// # Errors
    /// If there is none now: why.
    pub fn light(&self, by: NodeId, name: &str) -> Result<Arc<DirectSlot>> {
        self.begun(by, name, SlotRole::Light)
    }

    /// A slot of this coordinator that is confirmed and has begun.
    fn begun(&self, by: NodeId, name: &str, role: SlotRole) -> Result<Arc<DirectSlot>> {
        let entries = self.entries();
        let of_key = entries.get(name).filter(|entry| entry.slot.by == by);
        let Some(slot) = of_key.map(|entry| &entry.slot) else {
            bail!("the slot {name} is not held there, or is over");
        };
        if slot.role != role {
            match role {
                SlotRole::Light => bail!("the slot {name} is not held for light probes"),
                _ => bail!("that host has another part in the slot {name}: it is not its source"),
            }
        }
        if !slot.confirmed.load(Ordering::Relaxed) {
            bail!("the slot {name} is not confirmed");
        }
        let before = slot.starts.saturating_duration_since(Instant::now());
        if !before.is_zero() {
            bail!("the slot {name} begins in {} only", Nanos::from(before));
        }
        Ok(Arc::clone(slot))
    }

    /// Whether this host is measured by the one with this key now.
    pub fn expects(&self, peer: &NodeId) -> bool {
        self.destination(peer).is_some()
    }

    /// The slot in which this host is measured by the one with this key, once.
    pub fn enter(&self, peer: &NodeId) -> Option<Arc<DirectSlot>> {
        let slot = self.destination(peer)?;
        (!slot.used.swap(true, Ordering::Relaxed)).then_some(slot)
    }

    fn destination(&self, peer: &NodeId) -> Option<Arc<DirectSlot>> {
        let now = Instant::now();
        let is_it = |slot: &&Arc<DirectSlot>| {
            slot.role == SlotRole::Destination
                && slot.peer == Some(*peer)
                && slot.confirmed.load(Ordering::Relaxed)
                && !slot.used.load(Ordering::Relaxed)
                && slot.starts <= now
        };
        let entries = self.entries();
        let mut slots = entries.values().map(|entry| &entry.slot);
        slots.find(is_it).cloned()
    }

    /// Whether there is a slot that is not over.
    pub fn has_any(&self) -> bool {
        !self.entries().is_empty()
    }

    /// Ends the slots that are not to be kept.
    pub fn retain(&self, keep: impl Fn(&DirectSlot, SlotRole) -> bool) {
        let mut entries = self.entries();
        self.remove(&mut entries, |entry| !keep(&entry.slot, entry.slot.role));
    }

    fn remove(
        &self,
        entries: &mut BTreeMap<String, BookedSlot>,
        which: impl Fn(&BookedSlot) -> bool,
    ) {
        let (ended, kept) = std::mem::take(entries)
            .into_iter()
            .partition(|(_, entry)| which(entry));
        *entries = kept;
        let ended: BTreeMap<String, BookedSlot> = ended;
        ended.into_values().for_each(|entry| self.end(entry));
    }

    fn end(&self, entry: BookedSlot) {
        entry.slot.over.store(true, Ordering::Relaxed);
        match entry.hold {
            Some(hold) => drop(hold),
            None if entry.slot.role == SlotRole::Light => {}
            // One that cannot be released expires.
            None => drop(self.calendar.release_slot(&entry.slot.name)),
        }
    }

    /// Those that are not over.
    fn entries(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, BookedSlot>> {
        let mut entries = sys::lock(&self.entries);
        let now = Instant::now();
        self.remove(&mut entries, |entry| entry.is_over(now));
        entries
    }
}

/// Whether a slot can be, for any coordinator.
fn possible(order: &SlotOrder<'_>) -> Result<(), String> {
    let SlotOrder {
        slot,
        after,
        span,
        ttl,
        peer,
        role,
        files: _,
    } = *order;
    let longest = match role {
        SlotRole::Light => MAX_LIGHT_SPAN,
        SlotRole::Source | SlotRole::Destination => MAX_SPAN,
    };
    if peer.is_some() == (role == SlotRole::Light) {
        return Err(
            "a slot between two hosts names the other one, one for light probes none".into(),
        );
    }
    let digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if slot.len() != 32 || !slot.bytes().all(digit) {
        return Err("a slot is called by 32 hexadecimal digits".to_owned());
    }
    if after > MAX_AHEAD {
        return Err(format!(
            "a slot in {after}: at most {MAX_AHEAD} ahead are possible"
        ));
    }
    if span == Nanos(0) || span > longest {
        return Err(format!("a slot of {span}: it has up to {longest}"));
    }
    if ttl == Nanos(0) || ttl > MAX_TTL {
        return Err(format!(
            "a hold of {ttl} without a confirmation: it has up to {MAX_TTL}"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests;

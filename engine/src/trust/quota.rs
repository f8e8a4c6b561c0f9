//! What a key may still move, over all its legs and sessions and in both directions.

use super::book::Book;
use super::store::KeyLimits;
use crate::prelude::*;
use std::sync::MutexGuard;
use std::sync::atomic::AtomicU64;

/// What may be in excess of a rate at any time: so long at that rate, and never less than these bytes.
const EXCESS: Duration = Duration::from_millis(10);
const LEAST_EXCESS: u64 = 64 << 10;

/// What the kernel's usual receive buffer lets arrive before anything is read (128 KiB, tcp_rmem).
const WINDOW: Bytes = Bytes(128 << 10);
/// The windows of all streams of a leg are at most so much of the rate, but none is smaller than this.
const WINDOWS: Duration = Duration::from_millis(250);
const SMALLEST_WINDOW: Bytes = Bytes(4 << 10);

/// Bytes of one write or read under a limit.
const PIECE: usize = 256 << 10;
const SMALLEST_PIECE: usize = 4 << 10;
const TURN: Duration = Duration::from_millis(1);

/// Bytes that are entered in the book before they may move.
const AHEAD: Bytes = Bytes(64 << 20);

/// Samples of a key take this part of its rate, and at least so much; of a key that has bytes a day alone, as much of this rate.
const SAMPLES_PART: u64 = 8;
const SAMPLES_LEAST: BitRate = BitRate(128_000);
const NO_RATE: BitRate = BitRate(10_000_000);
/// They may use up so much time of theirs at once.
const SAMPLES_BURST: Duration = Duration::from_secs(1);

/// Datagrams cannot be held back; their sender has to stop when they are so far ahead of the rate.
const MOST_DEBT: Duration = Duration::from_secs(1);

fn used_up(limits: &KeyLimits) -> String {
    let a_day = limits.bytes_per_day.unwrap_or_default();
    format!("the {a_day} a day that the remote host allows are used up: the leg was ended")
}

/// The account of a key.
pub(super) struct Account {
    id: NodeId,
    book: Arc<Book>,
    state: Mutex<QuotaState>,
}

#[derive(Default)]
struct QuotaState {
    /// Days since 1970-01-01 UTC.
    day: u64,
    /// Moved today by this process.
    moved: Bytes,
    /// Entered in the book by this process.
    entered: Bytes,
    /// Entered in the book by others, or by this process before it was started.
    others: Bytes,
    /// The rate allows more bytes from then on.
    paid: Option<Instant>,
    /// The samples that were sent are paid for then.
    sampled: Option<Instant>,
}

impl QuotaState {
    /// When these bytes are paid for, after all before them, less what may be in excess.
    fn pay(&mut self, limits: &KeyLimits, bytes: Bytes) -> Instant {
        let now = Instant::now();
        let Some(rate) = limits.rate else { return now };
        let excess = EXCESS.max(time(rate, LEAST_EXCESS));
        let earliest = now.checked_sub(excess).unwrap_or(now);
        let before = self.paid.map_or(earliest, |paid| paid.max(earliest));
        let paid = before.checked_add(time(rate, bytes.0)).unwrap_or(before);
        self.paid = Some(paid);
        paid
    }
}

impl Account {
    pub(super) fn new(id: NodeId, book: Arc<Book>) -> Account {
        let state = Mutex::default();
        Account { id, book, state }
    }

    /// What is left of the bytes a day.
    ///
    /// # Errors
    /// A sentence if the book cannot be read or written: then nothing is left.
    pub(super) fn left(&self, a_day: Bytes) -> Result<Bytes, String> {
        let mut state = self.today();
        self.enter(&mut state, Bytes(0), Bytes(0))?;
        Ok(a_day.since(state.others + state.moved))
    }

    /// Counts bytes of a key without a limit a day.
    pub(super) fn count(&self, bytes: Bytes) {
        self.today().moved += bytes;
    }

    /// Makes the book agree with what has moved.
    pub(super) fn settle(&self) -> Result<(), String> {
        let mut state = self.today();
        let more = state.moved.since(state.entered);
        let less = state.entered.since(state.moved);
        self.enter(&mut state, more, less)
    }

    fn today(&self) -> MutexGuard<'_, QuotaState> {
        let mut state = sys::lock(&self.state);
        let day = crate::clock::unix_seconds() / 86_400;
        if state.day != day {
            *state = QuotaState {
                day,
                paid: state.paid,
                sampled: state.sampled,
                ..QuotaState::default()
            };
        }
        state
    }

    fn enter(&self, state: &mut QuotaState, more: Bytes, less: Bytes) -> Result<(), String> {
        let all = self.book.enter(state.day, &self.id, more, less)?;
        state.entered = (state.entered + more).since(less);
        state.others = all.since(state.entered);
        Ok(())
    }

    /// Takes up to `want` bytes: how many, and from when on they may be written.
    fn take(&self, limits: &KeyLimits, want: usize) -> Result<(usize, Instant), String> {
        let mut state = self.today();
        let want = Bytes(want.min(piece(limits.rate)) as u64);
        let bytes = want.min(self.enter_ahead(&mut state, limits, want)?);
        if bytes == Bytes(0) {
            return Err(used_up(limits));
        }
        state.moved += bytes;
        Ok((bytes.0 as usize, state.pay(limits, bytes)))
    }

    /// What is left of the bytes a day, of which the book has these before they move.
    fn enter_ahead(
        &self,
        state: &mut QuotaState,
        limits: &KeyLimits,
        bytes: Bytes,
    ) -> Result<Bytes, String> {
        let Some(a_day) = limits.bytes_per_day else {
            return Ok(Bytes(u64::MAX));
        };
        let left = |state: &QuotaState| a_day.since(state.others + state.moved);
        let entered = state.entered.since(state.moved);
        if bytes > entered {
            let more = AHEAD.max(bytes).min(left(state).since(entered));
            self.enter(state, more, Bytes(0))?;
        }
        Ok(left(state))
    }

    /// Has the rate pay for bytes that arrive before they are read.
    pub(super) fn pay_ahead(&self, limits: &KeyLimits, bytes: Bytes) {
        self.today().pay(limits, bytes);
    }

    /// Whether samples may be sent now, as far as those before are paid for; then these count.
    fn may_sample(&self, limits: &KeyLimits, bytes: usize) -> bool {
        let now = Instant::now();
        let rate = limits.rate.unwrap_or(NO_RATE).0 / SAMPLES_PART;
        let rate = BitRate(rate).max(SAMPLES_LEAST);
        let mut state = self.today();
        let earliest = now.checked_sub(SAMPLES_BURST).unwrap_or(now);
        let before = state.sampled.map_or(earliest, |at| at.max(earliest));
        if before > now {
            return false;
        }
        state.sampled = before.checked_add(time(rate, bytes as u64));
        true
    }

    fn give_back(&self, limits: &KeyLimits, bytes: usize) {
        let mut state = self.today();
        state.moved = state.moved.since(Bytes(bytes as u64));
        if let (Some(rate), Some(paid)) = (limits.rate, state.paid) {
            state.paid = paid.checked_sub(time(rate, bytes as u64));
        }
    }
}

/// How long so many bytes take at a rate.
fn time(rate: BitRate, bytes: u64) -> Duration {
    let ns = u128::from(bytes) * 8_000_000_000 / u128::from(rate.0.max(1));
    Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
}

/// Bytes that are taken at once: few, so that legs take turns, and so that the kernel does not widen the window of what
/// is read.
fn piece(rate: Option<BitRate>) -> usize {
    let piece = rate.map_or(PIECE, |rate| rate.bytes_in(TURN.into()).0 as usize);
    piece.clamp(SMALLEST_PIECE, PIECE)
}

/// What the receive window of each of so many streams may let arrive under a rate, before anything is read.
pub(super) fn window(rate: BitRate, streams: u32) -> Bytes {
    let each = rate.bytes_in(WINDOWS.into()).0 / u64::from(streams.max(1));
    Bytes(each).clamp(SMALLEST_WINDOW, WINDOW)
}

/// Whether a window is that of a socket with the kernel's own buffers.
pub(super) fn is_usual(window: Bytes) -> bool {
    window >= WINDOW
}

/// The limits of a key that apply to the loads of one leg.
pub struct LegQuota {
    pub(super) account: Arc<Account>,
    pub(super) limits: KeyLimits,
    pub(super) moved: AtomicU64,
    /// What the rate has paid for and has not arrived yet.
    pub(super) ahead: AtomicU64,
}

impl LegQuota {
    /// Of loads of which nothing has moved yet; so many bytes are paid for ahead.
    pub(super) fn new(account: Arc<Account>, limits: &KeyLimits, ahead: u64) -> Arc<LegQuota> {
        Arc::new(LegQuota {
            account,
            limits: limits.clone(),
            moved: AtomicU64::new(0),
            ahead: AtomicU64::new(ahead),
        })
    }

    /// Whether so many bytes of samples may be sent now: all legs and sessions of the key share what there is for them.
    pub(super) fn may_sample(&self, bytes: usize) -> bool {
        self.account.may_sample(&self.limits, bytes)
    }
}

impl measure::Quota for LegQuota {
    fn take(&self, want: usize) -> Result<(usize, Instant), String> {
        let taken = self.account.take(&self.limits, want)?;
        self.moved.fetch_add(taken.0 as u64, Ordering::Relaxed);
        Ok(taken)
    }

    fn give_back(&self, bytes: usize) {
        self.moved.fetch_sub(bytes as u64, Ordering::Relaxed);
        self.account.give_back(&self.limits, bytes);
    }

    fn spend(&self, mut bytes: usize) -> Result<(), String> {
        while bytes > 0 {
            let (taken, from) = measure::Quota::take(self, bytes)?;
            bytes -= taken;
            if from > Instant::now() + MOST_DEBT
                && let Some(rate) = self.limits.rate
            {
                let why = format!("more than the {rate} that the remote host allows: it was ended");
                return Err(why);
            }
        }
        Ok(())
    }

    fn pay_ahead(&self, bytes: usize) {
        let bytes = bytes as u64;
        let take = |ahead: u64| Some(ahead.saturating_sub(bytes));
        let order = Ordering::Relaxed;
        let ahead = self.ahead.fetch_update(order, order, take).unwrap_or(0);
        let rest = Bytes(bytes.saturating_sub(ahead));
        self.account.pay_ahead(&self.limits, rest);
    }
}

#[cfg(test)]
mod tests {
    use super::super::identity::tests::fresh;
    use super::*;
    use crate::testing::TempDir;
    use std::fs;

    fn limits(rate: Option<u64>, a_day: Option<u64>) -> KeyLimits {
        KeyLimits {
            rate: rate.map(BitRate),
            bytes_per_day: a_day.map(Bytes),
            ..KeyLimits::default()
        }
    }

    /// What the rate lets move within this time from the first byte on, asked as fast as can be.
    fn moved_within(account: &Account, limits: &KeyLimits, time: Duration) -> u64 {
        let end = Instant::now() + time;
        let mut moved = 0;
        loop {
            let (bytes, from) = account.take(limits, 1 << 20).unwrap();
            if from > end {
                return moved;
            }
            moved += bytes as u64;
        }
    }

    #[test]
    fn no_more_than_the_rate_and_its_excess() {
        for mbit in [1, 10, 100, 1000, 100_000] {
            let rate = limits(Some(mbit * 1_000_000), None);
            let account = Account::new(fresh().id(), Arc::new(Book { file: None }));
            let time = Duration::from_secs(2);
            let moved = moved_within(&account, &rate, time);
            let fair = mbit * 125_000 * 2;
            let excess = (mbit * 1250).max(LEAST_EXCESS);
            assert!(
                (fair..=fair + excess + fair / 1000).contains(&moved),
                "{mbit} Mbit/s: {moved} of {fair}"
            );
        }
    }

    #[test]
    fn what_did_not_move_is_not_paid_for_and_saves_nothing_up() {
        let rate = limits(Some(8_000_000), None);
        let account = Account::new(fresh().id(), Arc::new(Book { file: None }));
        let (bytes, _) = account.take(&rate, 1 << 20).unwrap();
        for _ in 0..1000 {
            let (taken, from) = account.take(&rate, 1 << 20).unwrap();
            assert!(from <= Instant::now() + time(BitRate(8_000_000), bytes as u64));
            account.give_back(&rate, taken);
        }
        // However much is given back, no more than the excess may move at once.
        account.give_back(&rate, 1 << 30);
        let moved = moved_within(&account, &rate, Duration::ZERO);
        assert!(moved <= LEAST_EXCESS, "{moved}");
    }

    #[test]
    fn a_day_is_entered_before_it_is_used_and_what_is_left_over_comes_back() {
        let dir = TempDir::new();
        let file = dir.path().join("usage.toml");
        let id = fresh().id();
        let a_day = limits(None, Some(300_000));
        let account = || {
            Account::new(
                id,
                Arc::new(Book {
                    file: Some(file.clone()),
                }),
            )
        };
        let first = account();
        assert_eq!(first.take(&a_day, 1000).unwrap().0, 1000);
        // Had this process been killed now, the day would be spent, not new.
        assert_eq!(account().left(Bytes(300_000)).unwrap(), Bytes(0));
        first.settle().unwrap();
        assert_eq!(account().left(Bytes(300_000)).unwrap(), Bytes(299_000));
        // Two processes share it, to the byte.
        let second = account();
        let mut moved = 1000;
        while let Ok((bytes, _)) = second.take(&a_day, 100_000) {
            moved += bytes;
        }
        assert_eq!(moved, 300_000);
        let used_up = first.take(&a_day, 1).unwrap_err();
        assert!(used_up.contains("used up"), "{used_up}");
    }

    #[test]
    fn a_book_that_is_damaged_allows_nothing() {
        let dir = TempDir::new();
        let file = dir.path().join("usage.toml");
        let id = fresh().id();
        let account = || {
            Account::new(
                id,
                Arc::new(Book {
                    file: Some(file.clone()),
                }),
            )
        };
        account().count(Bytes(7));
        let first = account();
        first.count(Bytes(700));
        first.settle().unwrap();
        let whole = fs::read_to_string(&file).unwrap();
        let less = whole.replace("700", "300");
        assert_ne!(less, whole);
        for damaged in [less.as_str(), "", "day = 1", "x"] {
            fs::write(&file, damaged).unwrap();
            let refused = account().left(Bytes(1 << 30)).unwrap_err();
            assert!(refused.contains("usage.toml"), "{refused}");
            assert!(account().take(&limits(None, Some(1 << 30)), 1).is_err());
            assert_eq!(fs::read_to_string(&file).unwrap(), damaged);
        }
        fs::write(&file, &whole).unwrap();
        assert_eq!(account().left(Bytes(1000)).unwrap(), Bytes(300));
    }

    fn account() -> Account {
        Account::new(fresh().id(), Arc::new(Book { file: None }))
    }

    #[test]
    fn pieces_and_windows_are_what_the_rate_makes_within_bounds() {
        let of = |mbit: u64| piece(Some(BitRate(mbit * 1_000_000)));
        // 32.768 Mbit/s are 4 KiB in a millisecond.
        assert_eq!(
            [piece(None), of(1), of(100), of(10_000)],
            [PIECE, 4096, 12_500, PIECE]
        );
        let window = |mbit: u64, streams| window(BitRate(mbit * 1_000_000), streams).0;
        assert_eq!(
            [window(1, 1), window(1, 2), window(1, 0)],
            [31_250, 15_625, 31_250]
        );
        assert_eq!([window(1, 100), window(100, 1)], [4096, 131_072]);
        assert!(is_usual(WINDOW) && !is_usual(Bytes(WINDOW.0 - 1)));
        assert_eq!(time(BitRate(8), 1), Duration::from_secs(1));
        assert_eq!(time(BitRate(0), 1), Duration::from_secs(8));
    }

    #[test]
    fn samples_take_an_eighth_of_the_rate_and_128_kbit_at_least() {
        // Sixteen kilobytes a second: those of a second may go at once, and whatever comes next is late.
        for (rate, bytes) in [
            (Some(8), 16_000),
            (Some(8_000_000), 125_000),
            (None, 156_250),
        ] {
            let (limits, account) = (limits(rate, None), account());
            assert!(account.may_sample(&limits, bytes));
            assert!(account.may_sample(&limits, 100 * bytes), "{rate:?}");
            assert!(!account.may_sample(&limits, 1), "{rate:?}");
            let other = self::account();
            assert!(other.may_sample(&limits, 2 * bytes));
            assert!(!other.may_sample(&limits, 1), "{rate:?}");
        }
    }

    #[test]
    fn what_arrives_before_it_is_read_is_paid_for_once() {
        let rate = limits(Some(8_000), None);
        let account = Arc::new(account());
        let quota = LegQuota::new(Arc::clone(&account), &rate, 1000);
        let paid = || account.today().paid;
        account.pay_ahead(&rate, Bytes(1000));
        let before = paid().unwrap();
        let pay = |bytes| measure::Quota::pay_ahead(quota.as_ref(), bytes);
        pay(400);
        assert_eq!(quota.ahead.load(Ordering::Relaxed), 600);
        assert_eq!(paid(), Some(before));
        pay(1600);
        assert_eq!(quota.ahead.load(Ordering::Relaxed), 0);
        assert_eq!(paid().unwrap() - before, Duration::from_secs(1));
        pay(0);
        assert_eq!(paid().unwrap() - before, Duration::from_secs(1));
    }

    #[test]
    fn what_is_given_back_has_not_moved() {
        let quota = LegQuota::new(Arc::new(account()), &limits(None, Some(10_000)), 0);
        let take = |want| measure::Quota::take(quota.as_ref(), want).map(|taken| taken.0);
        let moved = || quota.moved.load(Ordering::Relaxed);
        assert_eq!(take(6000), Ok(6000));
        measure::Quota::give_back(quota.as_ref(), 1000);
        assert_eq!(moved(), 5000);
        assert_eq!(take(6000), Ok(5000), "that is left of the day");
        assert!(take(1).unwrap_err().contains("used up"));
        assert_eq!(moved(), 10_000);
    }

    #[test]
    fn datagrams_end_a_leg_when_they_are_a_second_ahead_of_the_rate() {
        let spend = |rate, a_day, bytes| {
            let quota = LegQuota::new(Arc::new(account()), &limits(rate, a_day), 0);
            measure::Quota::spend(quota.as_ref(), bytes)
        };
        // A megabyte a second, and 64 KiB that may be in excess.
        assert_eq!(spend(Some(8_000_000), None, 1_000_000), Ok(()));
        let why = spend(Some(8_000_000), None, 2_000_000).unwrap_err();
        assert!(why.contains("8.00 Mbit/s"), "{why}");
        assert_eq!(spend(None, Some(5000), 5000), Ok(()));
        assert!(spend(None, Some(5000), 5001).is_err());
        assert_eq!(spend(None, None, 1 << 24), Ok(()));
    }

    #[test]
    fn a_new_day_begins_with_nothing_moved_and_the_same_debts() {
        let (rate, account) = (limits(Some(8_000), Some(10_000)), account());
        account.take(&rate, 4000).unwrap();
        let paid = account.today().paid;
        sys::lock(&account.state).day -= 1;
        assert_eq!(account.left(Bytes(10_000)), Ok(Bytes(10_000)));
        let today = account.today();
        let of_clock = crate::clock::unix_time().0 / 86_400_000_000_000;
        assert!((of_clock - 1..=of_clock).contains(&today.day));
        assert_eq!(
            (today.moved, today.entered, today.paid),
            (Bytes(0), Bytes(0), paid)
        );
    }
}

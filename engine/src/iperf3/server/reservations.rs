//! What the sessions await, and gets to them: TCP connections by their cookie, UDP streams by their address.

use crate::prelude::*;
use std::io;
use std::sync::mpsc::{self, Receiver, Sender};
use sys::poll::Waker;

/// What sessions await, by key.
pub struct Reservations<K, Item, Extra>(Mutex<BTreeMap<K, Awaiting<Item, Extra>>>);

struct Awaiting<Item, Extra> {
    left: usize,
    to: Sender<Item>,
    waker: Arc<Waker>,
    extra: Extra,
}

/// What one session awaits; no more is given to it once this is dropped.
pub struct Reservation<'a, K: Ord, Item, Extra> {
    all: &'a Reservations<K, Item, Extra>,
    key: K,
    /// What came.
    pub arrivals: Receiver<Item>,
    /// Woken for each.
    pub waker: Arc<Waker>,
}

impl<K: Ord + Copy, Item, Extra> Reservations<K, Item, Extra> {
    /// Nothing is awaited yet.
    pub fn new() -> Reservations<K, Item, Extra> {
        Reservations(Mutex::default())
    }

    /// Awaits `count` items; `None` while another session awaits some under this key.
    pub fn reserve(
        &self,
        key: K,
        count: usize,
        extra: Extra,
    ) -> io::Result<Option<Reservation<'_, K, Item, Extra>>> {
        let waker = Arc::new(Waker::new()?);
        let (to, arrivals) = mpsc::channel();
        let awaiting = Awaiting {
            left: count,
            to,
            waker: Arc::clone(&waker),
            extra,
        };
        let mut all = sys::lock(&self.0);
        if all.contains_key(&key) {
            return Ok(None);
        }
        all.insert(key, awaiting);
        Ok(Some(Reservation {
            all: self,
            key,
            arrivals,
            waker,
        }))
    }

    /// Gives what `make` makes to the session that awaits more under this key. Whether the key is known.
    pub fn give(&self, key: &K, make: impl FnOnce(&mut Extra) -> Option<Item>) -> bool {
        let mut all = sys::lock(&self.0);
        let Some(session) = all.get_mut(key) else {
            return false;
        };
        if session.left > 0
            && let Some(item) = make(&mut session.extra)
        {
            session.left -= 1;
            // A session that has just ended does not take it: then it closes, as it should.
            let _ = session.to.send(item);
            session.waker.wake();
        }
        true
    }
}

impl<K: Ord, Item, Extra> Drop for Reservation<'_, K, Item, Extra> {
    fn drop(&mut self) {
        sys::lock(&self.all.0).remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_gets_what_it_awaits_and_no_more() {
        let all: Reservations<u8, u32, u32> = Reservations::new();
        let session = all.reserve(7, 2, 10).unwrap().unwrap();
        assert!(all.reserve(7, 1, 0).unwrap().is_none(), "taken");
        assert!(!all.give(&8, |_| Some(0)), "nobody awaits it");
        let next = |extra: &mut u32| {
            *extra += 1;
            Some(*extra)
        };
        assert!(
            all.give(&7, |_| None),
            "nothing was made, and nothing counts"
        );
        for _ in 0..3 {
            assert!(all.give(&7, next));
        }
        assert_eq!(session.arrivals.try_iter().collect::<Vec<_>>(), [11, 12]);
        drop(session);
        assert!(!all.give(&7, next));
        assert!(all.reserve(7, 1, 0).unwrap().is_some());
    }
}

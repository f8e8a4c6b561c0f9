//! Vectors, expiry, and files that are something else.

use super::*;
use std::sync::atomic::{AtomicU32, Ordering};

struct Scratch(PathBuf, Calendar);

impl Scratch {
    fn with(resources: &[(&str, u32)]) -> Scratch {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("linerate-calendar-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let mut calendar = Calendar::open(&directory.join("calendar.db")).unwrap();
        for (name, units) in resources {
            calendar.set_units(0, name, *units).unwrap();
        }
        Scratch(directory, calendar)
    }

    fn rows(&self) -> usize {
        self.1.list(-1).unwrap().len()
    }

    fn first_fit(&mut self, from: i64, until: i64, length: i64, resources: &str) -> Option<i64> {
        self.1
            .first_fit(0, [from, until], length, &names(resources))
            .unwrap()
    }

    /// How many rows it made.
    fn take(&mut self, slot: &str, starts: i64, ends: i64, resources: &str) -> usize {
        let before = self.rows();
        let taken = self
            .1
            .take(0, &reservation(slot, starts, ends, resources))
            .unwrap();
        assert_eq!(taken, self.rows() > before, "{slot}");
        self.rows() - before
    }

    fn take_whole(&mut self, slot: &str, starts: i64, ends: i64) -> usize {
        let before = self.rows();
        self.1
            .take_whole(0, &reservation(slot, starts, ends, "h"))
            .unwrap();
        self.rows() - before
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn names(resources: &str) -> Vec<String> {
    resources.split(' ').map(str::to_owned).collect()
}

fn reservation(slot: &str, starts: i64, ends: i64, resources: &str) -> SlotRequest {
    SlotRequest {
        slot: slot.to_owned(),
        starts,
        ends,
        expires: None,
        who: "test".to_owned(),
        what: "test".to_owned(),
        resources: names(resources),
    }
}

#[test]
fn the_first_free_time_and_what_is_taken() {
    let mut calendar = Scratch::with(&[("a", 1), ("b", 1), ("c", 1), ("d", 1), ("l", 2)]);
    assert_eq!(calendar.first_fit(0, 100, 10, "a b"), Some(0));
    assert_eq!(calendar.take("s1", 0, 10, "a b"), 2);
    assert_eq!(calendar.first_fit(0, 100, 10, "a c"), Some(10));
    assert_eq!(calendar.take("s2", 10, 20, "a c"), 2);
    assert_eq!(calendar.take("s3", 9, 19, "b d"), 0, "b is taken until 10");
    assert_eq!(calendar.first_fit(0, 30, 10, "a b"), Some(20));
    assert_eq!(calendar.first_fit(0, 29, 10, "a b"), None);
    assert_eq!(calendar.take("t1", 0, 10, "c l"), 2);
    assert_eq!(calendar.take("t2", 0, 10, "d l"), 2);
    assert_eq!(calendar.first_fit(0, 100, 10, "l"), Some(10));
    assert_eq!(calendar.take("t3", 0, 10, "l"), 0);
    assert_eq!(calendar.take("t4", 5, 6, "nobody"), 0);
}

#[test]
fn the_whole_of_a_resource() {
    let mut calendar = Scratch::with(&[("h", 4)]);
    assert_eq!(calendar.take("h1", 0, 10, "h"), 1);
    assert_eq!(calendar.take("h2", 0, 10, "h"), 1);
    assert_eq!(calendar.take_whole("s", 5, 9), 0, "two units are taken");
    assert_eq!(calendar.take_whole("s", 10, 20), 4);
    assert_eq!(calendar.take("h3", 15, 16, "h"), 0);
    assert_eq!(calendar.take("h4", 9, 10, "h"), 1);
    assert_eq!(calendar.take("h5", 20, 21, "h"), 1);
    assert!(calendar.1.release(0, "s").unwrap());
    assert!(!calendar.1.release(0, "s").unwrap());
    assert_eq!(calendar.take("h3", 15, 16, "h"), 1);
}

#[test]
fn eight_resources_fit() {
    let all: Vec<String> = (0..8).map(|n| format!("r{n}")).collect();
    let with: Vec<(&str, u32)> = all.iter().map(|name| (name.as_str(), 1)).collect();
    let mut calendar = Scratch::with(&with);
    assert_eq!(calendar.take("s", 0, 10, &all.join(" ")), 8);
    assert_eq!(calendar.first_fit(0, 100, 1, &all.join(" ")), Some(10));
}

#[test]
fn an_unknown_resource_is_no_full_calendar() {
    let mut calendar = Scratch::with(&[("a", 1)]);
    let error = calendar
        .1
        .first_fit(0, [0, 10], 1, &names("a z"))
        .unwrap_err();
    assert!(
        error.to_string().ends_with("has no resource 'z'"),
        "{error}"
    );
}

#[test]
fn a_hold_ends_with_its_expiry_unless_it_is_confirmed_or_renewed() {
    let mut calendar = Scratch::with(&[("a", 1)]);
    let hold = |slot: &str, starts, ends, expires| SlotRequest {
        expires: Some(expires),
        ..reservation(slot, starts, ends, "a")
    };
    let db = &mut calendar.1;
    assert!(db.take(0, &hold("one", 0, 100, 5)).unwrap());
    assert!(!db.take(4, &reservation("two", 0, 100, "a")).unwrap());
    assert_eq!(db.list(4).unwrap().len(), 1);
    assert_eq!(db.list(5).unwrap(), [], "it has expired");
    assert!(db.take(5, &hold("two", 0, 100, 15)).unwrap());
    assert!(!db.confirm(6, "one").unwrap(), "it was over");
    assert!(db.confirm(14, "two").unwrap());
    assert_eq!(db.list(50).unwrap()[0].expires, None);
    assert!(db.release(50, "two").unwrap());

    assert!(db.take(0, &hold("leg", 0, 10, 10)).unwrap());
    assert!(db.renew(5, &hold("leg", 0, 15, 15)).unwrap());
    assert!(db.take(5, &reservation("next", 20, 30, "a")).unwrap());
    assert!(db.renew(14, &hold("leg", 0, 25, 24)).unwrap());
    let leg = &db.list(15 - 1).unwrap()[0];
    assert_eq!(
        (leg.ends, leg.expires),
        (15, Some(24)),
        "the next booking begins before 25"
    );
    assert!(
        !db.renew(24, &hold("leg", 0, 25, 34)).unwrap(),
        "it expired, and the unit is taken"
    );
}

#[test]
fn bookings_are_kept_for_an_hour_and_are_not_moved() {
    let mut calendar = Scratch::with(&[("a", 1)]);
    assert_eq!(calendar.take("s", 0, 10, "a"), 1);
    let count = "SELECT count(*) FROM booking";
    let count = |calendar: &Calendar| {
        calendar
            .db
            .query_row(count, [], |row| row.get::<_, i64>(0))
            .unwrap()
    };
    calendar.1.tidy(9 + KEPT).unwrap();
    assert_eq!(count(&calendar.1), 1);
    let moved = calendar.1.db.execute("UPDATE booking SET ends = 11", []);
    assert!(
        moved
            .unwrap_err()
            .to_string()
            .contains("a booking is not moved")
    );
    calendar.1.tidy(10 + KEPT).unwrap();
    assert_eq!(count(&calendar.1), 0);
}

#[test]
fn units_that_are_booked_stay() {
    let mut calendar = Scratch::with(&[("h", 4)]);
    for slot in ["1", "2", "3"] {
        assert_eq!(calendar.take(slot, 0, 10, "h"), 1);
    }
    calendar.1.set_units(5, "h", 2).unwrap();
    assert_eq!(calendar.1.units("h").unwrap(), 3);
    calendar.1.set_units(10, "h", 2).unwrap();
    assert_eq!(calendar.1.units("h").unwrap(), 2);
}

#[test]
fn other_files_are_refused_and_not_modified() {
    let scratch = Scratch::with(&[]);
    let other = scratch.0.join("other.db");
    let db = Connection::open(&other).unwrap();
    db.execute_batch("CREATE TABLE mine (a)").unwrap();
    drop(db);
    let text = scratch.0.join("text.db");
    std::fs::write(
        &text,
        "this is a text of more than a hundred bytes, ".repeat(9),
    )
    .unwrap();
    for path in [other, text] {
        let before = std::fs::read(&path).unwrap();
        assert!(
            matches!(Calendar::open(&path), Err(Error::NotACalendar(_))),
            "{}",
            path.display()
        );
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }
    let below = scratch.0.join("text.db/calendar.db");
    assert!(matches!(Calendar::open(&below), Err(Error::Directory(..))));
}

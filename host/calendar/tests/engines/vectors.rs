//! What is free and what is taken, the same for both engines.

use super::{Scratch, open};
use crate::server::PostgresServer;
use calendar::{Calendar, SlotRequest};

struct Vectors(Box<dyn Calendar>);

impl Vectors {
    fn units(&mut self, resources: &[(&str, u32)]) {
        for (name, units) in resources {
            self.0.set_units(0, name, *units).unwrap();
        }
    }

    fn rows(&mut self) -> usize {
        self.0.list(-1).unwrap().len()
    }

    fn first_fit(&mut self, from: i64, until: i64, length: i64, resources: &str) -> Option<i64> {
        let first = self
            .0
            .first_fit(0, [from, until], length, &names(resources));
        first.unwrap()
    }

    /// How many rows it made.
    fn take(&mut self, slot: &str, starts: i64, ends: i64, resources: &str) -> usize {
        let before = self.rows();
        let wanted = reservation(slot, starts, ends, resources);
        let taken = self.0.take(0, &wanted).unwrap();
        assert_eq!(taken, self.rows() > before, "{slot}");
        self.rows() - before
    }

    fn take_whole(&mut self, slot: &str, starts: i64, ends: i64) -> usize {
        let before = self.rows();
        let wanted = reservation(slot, starts, ends, "h");
        self.0.take_whole(0, &wanted).unwrap();
        self.rows() - before
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

const ALL: [fn(&mut Vectors); 7] = [
    the_first_free_time_and_what_is_taken,
    the_whole_of_a_resource,
    eight_resources_fit,
    an_unknown_resource_is_no_full_calendar,
    a_booking_ends_with_its_expiry_unless_it_is_renewed,
    units_that_are_booked_stay,
    bookings_are_kept_for_an_hour,
];

#[test]
fn sqlite() {
    for vectors in ALL {
        let scratch = Scratch::new();
        let file = scratch.0.join("calendar/calendar.db");
        vectors(&mut Vectors(open(file.to_str().unwrap())));
    }
}

#[test]
fn postgres() {
    let server = PostgresServer::start(&["fsync=off"]);
    for (n, vectors) in ALL.into_iter().enumerate() {
        let address = server.database(&format!("d{n}"));
        vectors(&mut Vectors(open(&format!("postgres:{address}"))));
    }
}

fn the_first_free_time_and_what_is_taken(calendar: &mut Vectors) {
    calendar.units(&[("a", 1), ("b", 1), ("c", 1), ("d", 1), ("l", 2)]);
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

fn the_whole_of_a_resource(calendar: &mut Vectors) {
    calendar.units(&[("h", 4)]);
    assert_eq!(calendar.take("h1", 0, 10, "h"), 1);
    assert_eq!(calendar.take("h2", 0, 10, "h"), 1);
    assert_eq!(calendar.take_whole("s", 5, 9), 0, "two units are taken");
    assert_eq!(calendar.take_whole("s", 10, 20), 4);
    assert_eq!(calendar.take("h3", 15, 16, "h"), 0);
    assert_eq!(calendar.take("h4", 9, 10, "h"), 1);
    assert_eq!(calendar.take("h5", 20, 21, "h"), 1);
    assert!(calendar.0.release(0, "s").unwrap());
    assert!(!calendar.0.release(0, "s").unwrap());
    assert_eq!(calendar.take("h3", 15, 16, "h"), 1);
}

fn eight_resources_fit(calendar: &mut Vectors) {
    let all: Vec<String> = (0..8).map(|n| format!("r{n}")).collect();
    let with: Vec<(&str, u32)> = all.iter().map(|name| (name.as_str(), 1)).collect();
    calendar.units(&with);
    assert_eq!(calendar.take("s", 0, 10, &all.join(" ")), 8);
    assert_eq!(calendar.first_fit(0, 100, 1, &all.join(" ")), Some(10));
}

fn an_unknown_resource_is_no_full_calendar(calendar: &mut Vectors) {
    calendar.units(&[("a", 1)]);
    let error = calendar.0.first_fit(0, [0, 10], 1, &names("a z"));
    let error = error.unwrap_err().to_string();
    assert!(error.ends_with("has no resource 'z'"), "{error}");
}

fn a_booking_ends_with_its_expiry_unless_it_is_renewed(calendar: &mut Vectors) {
    calendar.units(&[("a", 1)]);
    let hold = |slot: &str, starts, ends, expires| SlotRequest {
        expires: Some(expires),
        ..reservation(slot, starts, ends, "a")
    };
    let db = &mut calendar.0;
    assert!(db.take(0, &hold("one", 0, 100, 5)).unwrap());
    assert!(!db.take(4, &reservation("two", 0, 100, "a")).unwrap());
    assert_eq!(db.list(4).unwrap().len(), 1);
    assert_eq!(db.list(5).unwrap(), [], "it has expired");
    assert!(db.take(5, &hold("two", 0, 100, 15)).unwrap());
    assert!(!db.extend(6, "one", 90).unwrap(), "it was over");
    assert!(db.extend(14, "two", 60).unwrap());
    assert_eq!(db.list(50).unwrap()[0].expires, Some(60));
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

fn units_that_are_booked_stay(calendar: &mut Vectors) {
    calendar.units(&[("h", 4)]);
    for slot in ["1", "2", "3"] {
        assert_eq!(calendar.take(slot, 0, 10, "h"), 1);
    }
    calendar.0.set_units(5, "h", 2).unwrap();
    assert_eq!(calendar.0.units("h").unwrap(), 3);
    calendar.0.set_units(10, "h", 2).unwrap();
    assert_eq!(calendar.0.units("h").unwrap(), 2);
}

fn bookings_are_kept_for_an_hour(calendar: &mut Vectors) {
    calendar.units(&[("a", 1)]);
    assert_eq!(calendar.take("s", 0, 10, "a"), 1);
    calendar.0.tidy(9 + 3_600_000).unwrap();
    assert_eq!(calendar.rows(), 1);
    calendar.0.tidy(10 + 3_600_000).unwrap();
    assert_eq!(calendar.rows(), 0);
}

//! The statements, the same for SQLite and PostgreSQL, whose sign of a parameter they have.
//!
//! A list of resources has eight places, the last of them repeated.

/// The tables; what refuses overlap is in each engine's own words.
pub(crate) const TABLES: &str = "
CREATE TABLE resource (name TEXT NOT NULL, unit BIGINT NOT NULL, PRIMARY KEY (name, unit));
CREATE TABLE booking (
    slot TEXT NOT NULL, resource TEXT NOT NULL, unit BIGINT NOT NULL,
    starts BIGINT NOT NULL, ends BIGINT NOT NULL,
    expires BIGINT, -- NULL: with its end
    who TEXT NOT NULL, what TEXT NOT NULL,
    PRIMARY KEY (slot, resource, unit), CHECK (starts < ends)
);
CREATE INDEX booking_by_resource ON booking (resource, unit, starts);
CREATE INDEX booking_by_expiry ON booking (expires);
";

/// SQLite's rule against overlap: the second row is left out.
pub(crate) const APART_IN_SQLITE: &str = "
CREATE TRIGGER apart BEFORE INSERT ON booking WHEN EXISTS (
    SELECT 1 FROM booking b WHERE b.resource = NEW.resource AND b.unit = NEW.unit
    AND b.starts < NEW.ends AND b.ends > NEW.starts
) BEGIN SELECT RAISE(IGNORE); END;
CREATE TRIGGER still BEFORE UPDATE OF resource, unit, starts, ends ON booking
BEGIN SELECT RAISE(ABORT, 'a booking is not moved'); END;
";

/// PostgreSQL's, with the extension btree_gist.
pub(crate) const APART_IN_POSTGRES: &str = "
ALTER TABLE booking ADD CONSTRAINT apart EXCLUDE USING gist
    (resource WITH =, unit WITH =, int8range(starts, ends) WITH &&);
";

/// $1 from, $2 until, $3 length, $4 to $11 resources. Candidates are the beginning and each end of a booking that
/// leaves the length until the end of the window; NULL if there is no such time.
pub(crate) const FIRST_FIT: &str = "
SELECT min(c.s) FROM (
    SELECT CAST($1 AS BIGINT) AS s UNION
    SELECT b.ends FROM booking b WHERE b.resource IN ($4, $5, $6, $7, $8, $9, $10, $11)
    AND b.ends > CAST($1 AS BIGINT) AND b.ends <= CAST($2 AS BIGINT) - CAST($3 AS BIGINT)
) c
WHERE c.s <= CAST($2 AS BIGINT) - CAST($3 AS BIGINT) AND NOT EXISTS (
    SELECT 1 FROM (
        SELECT CAST($4 AS TEXT) AS name UNION SELECT CAST($5 AS TEXT) UNION SELECT CAST($6 AS TEXT)
        UNION SELECT CAST($7 AS TEXT) UNION SELECT CAST($8 AS TEXT) UNION SELECT CAST($9 AS TEXT)
        UNION SELECT CAST($10 AS TEXT) UNION SELECT CAST($11 AS TEXT)
    ) w WHERE NOT EXISTS (
        SELECT 1 FROM resource r WHERE r.name = w.name AND NOT EXISTS (
            SELECT 1 FROM booking b WHERE b.resource = r.name AND b.unit = r.unit
            AND b.starts < c.s + CAST($3 AS BIGINT) AND b.ends > c.s)))";

/// $1 slot, $2 start, $3 end, $4 expires, $5 who, $6 what, $7 to $14 resources: the first free unit of each. Rows come in
/// the order of the names: transactions that insert in different orders wait for each other in PostgreSQL.
pub(crate) const TAKE: &str = "
INSERT INTO booking (slot, resource, unit, starts, ends, expires, who, what)
SELECT CAST($1 AS TEXT), r.name, min(r.unit), CAST($2 AS BIGINT), CAST($3 AS BIGINT), CAST($4 AS BIGINT),
    CAST($5 AS TEXT), CAST($6 AS TEXT) FROM resource r
WHERE r.name IN ($7, $8, $9, $10, $11, $12, $13, $14) AND NOT EXISTS (
    SELECT 1 FROM booking b WHERE b.resource = r.name AND b.unit = r.unit AND b.starts < $3 AND b.ends > $2)
GROUP BY r.name ORDER BY r.name ON CONFLICT DO NOTHING";

/// The same of every unit.
pub(crate) const TAKE_WHOLE: &str = "
INSERT INTO booking (slot, resource, unit, starts, ends, expires, who, what)
SELECT CAST($1 AS TEXT), r.name, r.unit, CAST($2 AS BIGINT), CAST($3 AS BIGINT), CAST($4 AS BIGINT),
    CAST($5 AS TEXT), CAST($6 AS TEXT) FROM resource r
WHERE r.name IN ($7, $8, $9, $10, $11, $12, $13, $14)
ORDER BY r.name, r.unit ON CONFLICT DO NOTHING";

/// $1 slot, $2 expires: no row means that it is over.
pub(crate) const EXTEND: &str = "UPDATE booking SET expires = CAST($2 AS BIGINT) WHERE slot = $1";

/// $1 slot.
pub(crate) const RELEASE: &str = "DELETE FROM booking WHERE slot = $1";

/// $1 now, $2 an hour ago. First in every transaction that takes: no constraint knows the time.
pub(crate) const TIDY: &str = "DELETE FROM booking WHERE expires <= $1 OR ends <= $2";

/// $1 now.
pub(crate) const LIST: &str = "
SELECT slot, resource, unit, starts, ends, expires, who, what FROM booking
WHERE ends > $1 AND (expires IS NULL OR expires > $1) ORDER BY starts, slot, resource, unit";

/// $1 resource.
pub(crate) const UNITS: &str = "SELECT count(*) FROM resource WHERE name = $1";

/// $1 resource, $2 unit.
pub(crate) const ADD_UNIT: &str =
    "INSERT INTO resource (name, unit) VALUES ($1, CAST($2 AS BIGINT)) ON CONFLICT DO NOTHING";

/// $1 resource, $2 units that stay, $3 now: one that is booked stays as well.
pub(crate) const REMOVE_UNITS: &str = "
DELETE FROM resource WHERE name = $1 AND unit > CAST($2 AS BIGINT) AND NOT EXISTS (
    SELECT 1 FROM booking b WHERE b.resource = resource.name AND b.unit = resource.unit AND b.ends > $3)";

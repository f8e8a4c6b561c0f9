//! What cannot be a calendar, and the one coordinator of a mesh.

use super::{Scratch, open_postgres, wall_clock};
use crate::server::PostgresServer;
use calendar::{Calendar, Error, Lite};
use rusqlite::Connection;
use std::process::Command;

#[test]
fn other_files_are_refused_and_not_modified() {
    let scratch = Scratch::new();
    let other = scratch.0.join("other.db");
    let db = Connection::open(&other).unwrap();
    db.execute_batch("CREATE TABLE mine (a)").unwrap();
    drop(db);
    let text = scratch.0.join("text.db");
    let long = "this is a text of more than a hundred bytes, ";
    std::fs::write(&text, long.repeat(9)).unwrap();
    for path in [other, text] {
        let before = std::fs::read(&path).unwrap();
        let opened = Lite::open(&path);
        assert!(matches!(opened, Err(Error::NotACalendar(_))), "{opened:?}");
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }
    let below = scratch.0.join("text.db/calendar.db");
    assert!(matches!(Lite::open(&below), Err(Error::Directory(..))));
}

#[test]
fn a_booking_in_sqlite_is_not_moved() {
    let scratch = Scratch::new();
    let file = scratch.0.join("calendar.db");
    drop(Lite::open(&file).unwrap());
    let db = Connection::open(&file).unwrap();
    db.execute_batch("INSERT INTO booking VALUES ('s', 'a', 1, 0, 10, NULL, '', '')")
        .unwrap();
    let moved = db.execute("UPDATE booking SET ends = 11", []).unwrap_err();
    assert!(moved.to_string().contains("a booking is not moved"));
}

/// Each fault of a database has a sentence that says what to do, and its tables are not modified.
#[test]
fn databases_that_cannot_be_a_calendar() {
    let mut server = PostgresServer::start(&["fsync=off"]);
    let refused = |address: &str, ahead: i64, expected: &str| {
        let error = open_postgres(address, wall_clock() + ahead)
            .err()
            .unwrap()
            .to_string();
        assert!(error.contains(expected), "{error}");
    };
    let address = server.database("fresh");
    refused(&address, -5_000, " s ahead of this host's");
    refused(&address, 60_000, " s behind this host's");
    drop(open_postgres(&address, wall_clock()).unwrap());
    drop(open_postgres(&address, wall_clock()).unwrap());

    server.sql(
        "fresh",
        "ALTER TABLE linerate.booking DROP CONSTRAINT apart",
    );
    refused(&address, 0, "has lost the constraint 'apart'");
    server.sql(
        "fresh",
        "COMMENT ON SCHEMA linerate IS 'linerate calendar 3'",
    );
    refused(&address, 0, "is not a calendar of this version of linerate");
    server.sql(
        "fresh",
        "ALTER DATABASE fresh SET default_transaction_read_only = on",
    );
    refused(&address, 0, "it can only be read");

    let other = server.database("other");
    server.sql(
        "other",
        "CREATE SCHEMA linerate; CREATE TABLE linerate.booking (a int)",
    );
    refused(
        &other,
        0,
        "the schema linerate in the database other of PostgreSQL at /",
    );

    let restricted = server.database("restricted");
    server.sql("postgres", "ALTER DATABASE restricted OWNER TO admin");
    refused(
        &restricted,
        0,
        "permission denied for database restricted; an administrator has to run in it, once: CREATE SCHEMA linerate AUTHORIZATION",
    );
    server.sql(
        "restricted",
        "CREATE SCHEMA linerate AUTHORIZATION linerate",
    );
    refused(
        &restricted,
        0,
        "has to run in it, once: CREATE EXTENSION btree_gist",
    );
    server.sql("restricted", "CREATE EXTENSION btree_gist");
    drop(open_postgres(&restricted, wall_clock()).unwrap());

    refused(
        &address.replace("dbname=fresh", "dbname=none"),
        0,
        "database \"none\" does not exist: an administrator has to create it",
    );
    server.kill();
    refused(&address, 0, "cannot be used: error connecting to server: ");
}

#[test]
fn one_coordinator_of_a_mesh() {
    let server = PostgresServer::start(&["fsync=off"]);
    let address = server.database("d");
    let open = || open_postgres(&address, wall_clock()).unwrap();
    let (mut first, mut second) = (open(), open());
    assert_eq!(first.lock_mesh("m").unwrap(), Ok(()));
    assert_eq!(first.lock_mesh("m").unwrap(), Ok(()));
    let holder = second.lock_mesh("m").unwrap().unwrap_err();
    assert!(holder.starts_with("a test since 20"), "{holder}");
    assert_eq!(second.lock_mesh("other").unwrap(), Ok(()));
    drop(first);
    let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while second.lock_mesh("m").unwrap().is_err() {
        assert!(std::time::Instant::now() < until, "the lock stays");
    }

    let scratch = Scratch::new();
    let open = || Lite::open(&scratch.0.join("meshes.db")).unwrap();
    let (mut first, mut second) = (open(), open());
    assert_eq!(first.lock_mesh("m").unwrap(), Ok(()));
    let holder = second.lock_mesh("m").unwrap().unwrap_err();
    assert_eq!(holder, format!("process {}", std::process::id()));
    assert_eq!(second.lock_mesh("other").unwrap(), Ok(()));
    drop(first);
    assert_eq!(second.lock_mesh("m").unwrap(), Ok(()));
}

/// TLS with the certificate and the name verified, as libpq's `verify-full`.
#[test]
fn a_server_is_verified() {
    let mut server = PostgresServer::start(&["fsync=off"]);
    let _ = server.database("d");
    let [one, two] = std::process::id().to_be_bytes()[2..] else {
        unreachable!("two of four bytes");
    };
    let address = format!("127.77.{one}.{two}");
    let directory = server.directory().display().to_string();
    let openssl = |arguments: &str| {
        let mut openssl = Command::new("openssl");
        openssl.args(["req", "-x509", "-nodes", "-days", "2", "-newkey", "ec"]);
        openssl.args(["-pkeyopt", "ec_paramgen_curve:prime256v1"]);
        openssl.args(arguments.split(' ')).current_dir(&directory);
        let out = openssl.output().unwrap();
        assert!(out.status.success(), "{out:?}");
    };
    openssl("-subj /CN=ca -keyout ca.key -out ca.pem");
    openssl("-subj /CN=ca -keyout other.key -out other.pem");
    openssl(&format!(
        "-subj /CN=server -CA ca.pem -CAkey ca.key -keyout server.key -out server.pem -addext subjectAltName=IP:{address} -addext basicConstraints=critical,CA:FALSE"
    ));
    server.listen(&format!("{address},127.77.0.1"));
    let open = |host: &str, more: &str| {
        let address = format!("host={host} dbname=d user=linerate {more}");
        let opened = open_postgres(&address, wall_clock());
        opened.map_err(|error| error.to_string())
    };
    let ca = |name: &str| format!("sslrootcert={directory}/{name}.pem");
    let mut session = open(&address, &ca("ca")).unwrap();
    assert_eq!(session.units("a").unwrap(), 0);
    let tls = server.sql("d", "SELECT count(*) FROM pg_stat_ssl WHERE ssl");
    assert_eq!(tls, "1");
    for (host, more, why) in [
        (address.as_str(), ca("other"), "invalid peer certificate"),
        (
            "127.77.0.1",
            ca("ca"),
            "invalid peer certificate: certificate not valid for name",
        ),
        (&address, ca("none"), "cannot read certificates from "),
        (
            &address,
            "sslmode=disable".to_owned(),
            "no pg_hba.conf entry",
        ),
    ] {
        let error = open(host, &more).err().unwrap();
        assert!(error.contains(why), "{error}");
    }
}

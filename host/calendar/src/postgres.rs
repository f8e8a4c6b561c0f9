//! A calendar in a PostgreSQL database, for coordinators on several machines.

use crate::calendar::{Calendar, SqlValue, Statements, booking};
use crate::legs::leg_table;
use crate::statements::{APART_IN_POSTGRES, TABLES};
use crate::tls::PostgresTls;
use crate::{Booking, Error, Milliseconds};
use model::PostgresAddress;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::config::SslMode;
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Config, NoTls, Row, Socket, Statement};

/// For connecting and for each statement. The server gives up sooner.
const ANSWERED_WITHIN: Duration = Duration::from_secs(4);

/// A transaction that the server ended because of another one is tried so often.
const TRIES: u32 = 5;

/// What the comment of the schema says: changes with the tables.
const FORM: &str = "linerate calendar 2";

/// The clocks of the coordinators may differ by as much from the server's.
const CLOCKS_DIFFER: Milliseconds = 1_000;

/// Of a session. The server notices within some seconds that a coordinator's machine is gone, and frees its lock.
const SETTINGS: &str = "-c search_path=linerate -c statement_timeout=3s -c lock_timeout=3s \
    -c idle_in_transaction_session_timeout=5s -c client_min_messages=warning \
    -c tcp_keepalives_idle=4 -c tcp_keepalives_interval=2 -c tcp_keepalives_count=3";

/// The comment of the schema, and whether it has bookings and the rule that keeps them apart.
const READ_FORM: &str = "
SELECT obj_description(n.oid, 'pg_namespace'), t.oid IS NOT NULL,
    EXISTS (SELECT 1 FROM pg_constraint c WHERE c.conrelid = t.oid AND c.conname = 'apart' AND c.contype = 'x')
FROM pg_namespace n LEFT JOIN pg_class t ON t.relnamespace = n.oid AND t.relname = 'booking'
WHERE n.nspname = 'linerate'";

const IS_READ_ONLY: &str =
    "SELECT CAST(current_setting('transaction_read_only') = 'on' AS INTEGER)::BIGINT";

const READ_ONLY: &str =
    "it can only be read, as a standby or by its settings: name a server that can be written";

const LOCK: &str = "SELECT pg_try_advisory_lock(hashtextextended($1, 0))";

/// Who has it.
const HOLDER: &str = "
SELECT concat_ws(' ', nullif(a.application_name, ''), 'since',
    to_char(a.backend_start AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS'), 'UTC')
FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
AND (CAST(l.classid AS BIGINT) << 32 | CAST(l.objid AS BIGINT)) = hashtextextended($1, 0)";

/// A session with the database. Its locks end with it.
pub struct Postgres {
    client: Client,
    runtime: Runtime,
    statements: BTreeMap<&'static str, Statement>,
    place: String,
    /// The last statement failed because of another transaction.
    conflict: bool,
    /// A statement was not answered in time: no other one is waited for.
    lost: bool,
}

impl Postgres {
    /// Opens a session, called so in `pg_stat_activity`, and makes the tables if they are not there.
    ///
    /// # Errors
    /// What the server does not do, or lacks; clocks that differ by more than a second.
    pub fn open(
        address: &PostgresAddress,
        called: &str,
        now: Milliseconds,
    ) -> Result<Postgres, Error> {
        let asked = Instant::now();
        let mut calendar = Postgres::connect(address, called)?;
        calendar.compare_clocks(now, asked)?;
        calendar.make_tables()?;
        Ok(calendar)
    }

    /// Opens a session that reads what coordinators have made, of a standby too.
    ///
    /// # Errors
    /// What the server does not do, or lacks.
    pub fn open_to_read(address: &PostgresAddress, called: &str) -> Result<Postgres, Error> {
        let mut calendar = Postgres::connect(address, called)?;
        match calendar.has_tables()? {
            true => Ok(calendar),
            false => Err(calendar.failed("no coordinator has used it yet")),
        }
    }

    fn connect(address: &PostgresAddress, called: &str) -> Result<Postgres, Error> {
        let mut config = Config::new();
        config
            .host(&address.host)
            .port(address.port)
            .dbname(&address.dbname)
            .application_name(called)
            .options(SETTINGS)
            .connect_timeout(ANSWERED_WITHIN)
            .keepalives_idle(Duration::from_secs(4))
            .tcp_user_timeout(ANSWERED_WITHIN);
        if let Some(user) = &address.user {
            config.user(user);
        }
        if let Ok(password) = std::env::var("PGPASSWORD") {
            config.password(password);
        }
        let opened = match address.is_encrypted {
            true => PostgresTls::new(address.root_certificates.as_deref()).and_then(|tls| {
                config.ssl_mode(SslMode::Require);
                connect(&config, tls)
            }),
            false => {
                config.ssl_mode(SslMode::Disable);
                connect(&config, NoTls)
            }
        };
        let place = address.to_string();
        let (client, runtime) = opened.map_err(|why| Error::Server(place.clone(), why))?;
        Ok(Postgres {
            client,
            runtime,
            statements: BTreeMap::new(),
            place,
            conflict: false,
            lost: false,
        })
    }

    fn compare_clocks(&mut self, now: Milliseconds, asked: Instant) -> Result<(), Error> {
        let clock = "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)";
        let before = asked.elapsed();
        let server = self.number(clock, &[])?.unwrap_or(0);
        let after = asked.elapsed();
        let ms = |time: Duration| now + Milliseconds::try_from(time.as_millis()).unwrap_or(0);
        let differs = match server {
            _ if server < ms(before) => server - ms(before),
            _ => (server - ms(after)).max(0),
        };
        if differs.abs() <= CLOCKS_DIFFER {
            return Ok(());
        }
        Err(self.failed(format!(
            "the server's clock is {:.1} s {} this host's, so that bookings of several coordinators would overlap: synchronize both, as chrony does",
            differs.abs() as f64 / 1e3,
            if differs > 0 { "ahead of" } else { "behind" }
        )))
    }

    fn make_tables(&mut self) -> Result<(), Error> {
        self.batch("BEGIN ISOLATION LEVEL READ COMMITTED")?;
        if self.number(IS_READ_ONLY, &[])? == Some(1) {
            return Err(self.failed(READ_ONLY));
        }
        if !self.has_tables()? {
            self.batch("SELECT pg_advisory_xact_lock(hashtextextended('linerate calendar', 0))")?;
            // Another coordinator may have been faster.
            if !self.has_tables()? {
                self.create()?;
            }
        }
        self.batch("COMMIT")
    }

    /// `false` where there is nothing of ours; an error for what is something else.
    fn has_tables(&mut self) -> Result<bool, Error> {
        match self.form()? {
            Some((Some(comment), true, true)) if comment == FORM => Ok(true),
            Some((None, false, _)) | None => Ok(false),
            Some((Some(comment), true, false)) if comment == FORM => Err(self.failed(
                "its table linerate.booking has lost the constraint 'apart', without which bookings overlap: drop the schema linerate, it is made again",
            )),
            _ => {
                let schema = format!("the schema linerate in {}", self.place);
                Err(Error::NotACalendar(schema))
            }
        }
    }

    /// The schema's comment, whether it has the table, and whether that has its rule.
    fn form(&mut self) -> Result<Option<(Option<String>, bool, bool)>, Error> {
        let rows = self.query(READ_FORM, &[])?;
        let form = rows
            .first()
            .map(|row| Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?)));
        form.transpose().map_err(|error| self.sql_failed(&error))
    }

    fn create(&mut self) -> Result<(), Error> {
        let is_there = "SELECT count(*) FROM pg_namespace WHERE nspname = 'linerate'";
        if self.number(is_there, &[])? == Some(0) {
            self.batch("CREATE SCHEMA linerate").map_err(|error| {
                self.lacks(
                    &error,
                    "CREATE SCHEMA linerate AUTHORIZATION the role of the coordinator",
                )
            })?;
        }
        self.batch("CREATE EXTENSION IF NOT EXISTS btree_gist")
            .map_err(|error| {
                self.lacks(
                    &error,
                    "CREATE EXTENSION btree_gist (Debian has it in the package of the server)",
                )
            })?;
        self.batch(TABLES)?;
        self.batch(APART_IN_POSTGRES)?;
        self.batch(&leg_table("BIGINT", ""))?;
        self.batch(&format!("COMMENT ON SCHEMA linerate IS '{FORM}'"))
    }

    /// What its administrator is to do.
    fn lacks(&self, error: &Error, statement: &str) -> Error {
        let why = match error {
            Error::Server(_, why) => why.clone(),
            other => other.to_string(),
        };
        self.failed(format!(
            "{why}; an administrator has to run in it, once: {statement}"
        ))
    }

    fn failed(&self, why: impl Into<String>) -> Error {
        Error::Server(self.place.clone(), why.into())
    }

    fn sql_failed(&self, error: &tokio_postgres::Error) -> Error {
        self.failed(reason(error))
    }

    /// Waits for what the server answers; marks a statement that another transaction made fail.
    fn answer<T>(
        &mut self,
        answer: impl AsyncFnOnce(&Client) -> Result<T, tokio_postgres::Error>,
    ) -> Result<T, Error> {
        self.conflict = false;
        if self.lost {
            return Err(self.failed(not_in_time()));
        }
        let client = &self.client;
        let answered = self
            .runtime
            .block_on(async { tokio::time::timeout(ANSWERED_WITHIN, answer(client)).await });
        match answered {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => {
                let conflicts = [
                    SqlState::T_R_DEADLOCK_DETECTED,
                    SqlState::T_R_SERIALIZATION_FAILURE,
                ];
                self.conflict = error.code().is_some_and(|code| conflicts.contains(code));
                Err(self.sql_failed(&error))
            }
            Err(_) => {
                self.lost = true;
                Err(self.failed(not_in_time()))
            }
        }
    }

    fn batch(&mut self, sql: &str) -> Result<(), Error> {
        self.answer(async |client| client.batch_execute(sql).await)
    }

    /// Prepared at its first use.
    fn statement(&mut self, sql: &'static str) -> Result<Statement, Error> {
        if let Some(known) = self.statements.get(sql) {
            return Ok(known.clone());
        }
        let statement = self.answer(async |client| client.prepare(sql).await)?;
        self.statements.insert(sql, statement.clone());
        Ok(statement)
    }

    fn query(&mut self, sql: &'static str, values: &[SqlValue<'_>]) -> Result<Vec<Row>, Error> {
        let statement = self.statement(sql)?;
        let values = parameters(values);
        self.answer(async |client| client.query(&statement, &values).await)
    }

    pub(crate) fn read_rows<T>(
        &mut self,
        sql: &'static str,
        values: &[SqlValue<'_>],
        read: impl Fn(&Row) -> Result<T, tokio_postgres::Error>,
    ) -> Result<Vec<T>, Error> {
        let rows = self.query(sql, values)?;
        let read: Result<_, tokio_postgres::Error> = rows.iter().map(read).collect();
        read.map_err(|error| self.sql_failed(&error))
    }
}

impl Calendar for Postgres {
    fn place(&self) -> &str {
        &self.place
    }

    fn transaction(
        &mut self,
        _doing: &'static str,
        act: &mut dyn FnMut(&mut dyn Statements) -> Result<bool, Error>,
    ) -> Result<bool, Error> {
        let mut tries = 0;
        loop {
            tries += 1;
            let done = self
                .batch("BEGIN ISOLATION LEVEL READ COMMITTED")
                .and_then(|()| act(self))
                .and_then(|done| {
                    self.batch(if done { "COMMIT" } else { "ROLLBACK" })
                        .map(|()| done)
                });
            let Err(error) = done else {
                return done;
            };
            let again = self.conflict && tries < TRIES;
            // A session that is lost has no transaction.
            let ended = self.batch("ROLLBACK");
            if !again || ended.is_err() {
                return Err(error);
            }
        }
    }

    fn read(
        &mut self,
        _doing: &'static str,
        act: &mut dyn FnMut(&mut dyn Statements) -> Result<(), Error>,
    ) -> Result<(), Error> {
        act(self)
    }

    /// By an advisory lock of the session.
    fn lock_mesh(&mut self, mesh: &str) -> Result<Result<(), String>, Error> {
        let name = format!("linerate mesh {mesh}");
        let locked = self.query(LOCK, &[SqlValue::Text(Some(&name))])?;
        if locked.first().is_some_and(|row| row.get(0)) {
            return Ok(Ok(()));
        }
        let holder = self.query(HOLDER, &[SqlValue::Text(Some(&name))])?;
        let holder = holder.first().map(|row| row.get(0));
        Ok(Err(holder.unwrap_or_else(|| "another session".to_owned())))
    }
}

impl Statements for Postgres {
    fn execute(&mut self, sql: &'static str, values: &[SqlValue<'_>]) -> Result<usize, Error> {
        let statement = self.statement(sql)?;
        let values = parameters(values);
        let rows = self.answer(async |client| client.execute(&statement, &values).await)?;
        Ok(rows.try_into().unwrap_or(usize::MAX))
    }

    fn number(&mut self, sql: &'static str, values: &[SqlValue<'_>]) -> Result<Option<i64>, Error> {
        let rows = self.query(sql, values)?;
        Ok(rows.first().and_then(|row| row.get(0)))
    }

    fn bookings(
        &mut self,
        sql: &'static str,
        values: &[SqlValue<'_>],
    ) -> Result<Vec<Booking>, Error> {
        self.read_rows(sql, values, booking)
    }
}

fn parameters<'a>(values: &'a [SqlValue<'_>]) -> Vec<&'a (dyn ToSql + Sync)> {
    let value = |value: &'a SqlValue<'_>| -> &'a (dyn ToSql + Sync) {
        match value {
            SqlValue::Integer(number) => number,
            SqlValue::Text(text) => text,
            SqlValue::Integers(column) => column,
            SqlValue::Texts(column) => column,
        }
    };
    values.iter().map(value).collect()
}

/// A session, and what drives it while an answer is waited for.
fn connect<T>(config: &Config, tls: T) -> Result<(Client, Runtime), String>
where
    T: MakeTlsConnect<Socket>,
    T::Stream: Send + 'static,
{
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("no runtime for its connection: {error}"))?;
    let connected = runtime
        .block_on(async { tokio::time::timeout(ANSWERED_WITHIN, config.connect(tls)).await });
    let (client, connection) = connected
        .map_err(|_| not_in_time())?
        .map_err(|error| reason(&error))?;
    runtime.spawn(async {
        // Its end is seen by the next statement.
        let _ = connection.await;
    });
    Ok((client, runtime))
}

fn not_in_time() -> String {
    format!("it did not answer within {} s", ANSWERED_WITHIN.as_secs())
}

/// What an error means to the user.
fn reason(error: &tokio_postgres::Error) -> String {
    let Some(known) = error.as_db_error() else {
        let mut why = error.to_string();
        let mut source = std::error::Error::source(error);
        while let Some(cause) = source {
            let cause_text = cause.to_string();
            if !why.contains(&cause_text) {
                why = format!("{why}: {cause_text}");
            }
            source = cause.source();
        }
        return why;
    };
    let message = known.message();
    match known.code() {
        code if *code == SqlState::READ_ONLY_SQL_TRANSACTION => READ_ONLY.to_owned(),
        code if *code == SqlState::INVALID_CATALOG_NAME => {
            format!("{message}: an administrator has to create it")
        }
        _ => message.to_owned(),
    }
}

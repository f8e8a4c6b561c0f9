//! A PostgreSQL server of a test: its own data, a socket in a scratch directory, no TCP port unless one is wanted.
#![allow(dead_code)] // Each test program uses its part.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A server that ends with the test; role `linerate` owns its databases and is no administrator.
pub struct PostgresServer {
    directory: PathBuf,
    programs: PathBuf,
    running: Option<Child>,
    settings: Vec<String>,
}

impl PostgresServer {
    /// # Panics
    /// Where PostgreSQL is not installed.
    pub fn start(settings: &[&str]) -> PostgresServer {
        let mut installed: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
            .into_iter()
            .flatten()
            .map(|version| version.unwrap().path().join("bin"))
            .filter(|bin| bin.join("initdb").exists())
            .collect();
        installed.sort();
        let programs = installed.pop().expect(
            "PostgreSQL is not installed, so that the calendar is not tested with it: scripts/need postgresql",
        );
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("linerate-postgres-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir(&directory).unwrap();
        if is_root() {
            succeeds(Command::new("chown").arg("nobody:nogroup").arg(&directory));
        }
        let mut server = PostgresServer {
            directory,
            programs,
            running: None,
            settings: settings.iter().map(ToString::to_string).collect(),
        };
        let mut initdb = server.program("initdb");
        initdb.args([
            "-U",
            "admin",
            "--auth=trust",
            "--no-sync",
            "-E",
            "UTF8",
            "--locale=C",
            "-D",
        ]);
        succeeds(initdb.arg(server.data()));
        server.resume();
        server.sql("postgres", "CREATE ROLE linerate LOGIN");
        server
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Starts it again with TLS at this address, by a certificate of `server.pem` and `server.key` in its directory.
    pub fn listen(&mut self, address: &str) {
        self.kill();
        let key = self.directory.join("server.key");
        if is_root() {
            succeeds(Command::new("chown").arg("nobody").arg(&key));
        }
        let file = |name: &str| self.directory.join(name).display().to_string();
        let settings = [
            format!("listen_addresses={address}"),
            "ssl=on".to_owned(),
            format!("ssl_cert_file={}", file("server.pem")),
            format!("ssl_key_file={}", file("server.key")),
        ];
        self.settings.extend(settings);
        let allowed = "local all all trust\nhostssl all all 127.0.0.0/8 trust\n";
        std::fs::write(self.data().join("pg_hba.conf"), allowed).unwrap();
        self.resume();
    }

    /// A new database, and its address.
    pub fn database(&self, name: &str) -> String {
        self.sql(
            "postgres",
            &format!("CREATE DATABASE {name} OWNER linerate"),
        );
        format!(
            "host={} dbname={name} user=linerate",
            self.directory.display()
        )
    }

    /// What an administrator's statement prints.
    pub fn sql(&self, database: &str, sql: &str) -> String {
        let mut psql = Command::new(self.programs.join("psql"));
        psql.arg("-h")
            .arg(&self.directory)
            .args(["-U", "admin", "-v", "ON_ERROR_STOP=1"]);
        succeeds(psql.args(["-d", database, "-Atqc", sql]))
    }

    /// Ends it at once, as a crash would.
    pub fn kill(&mut self) {
        if let Some(mut running) = self.running.take() {
            // The server ends its processes itself then, without a checkpoint.
            succeeds(Command::new("kill").args(["-QUIT", &running.id().to_string()]));
            running.wait().unwrap();
        }
    }

    /// Starts it again, and waits until it answers.
    pub fn resume(&mut self) {
        let mut postgres = self.program("postgres");
        postgres
            .arg("-D")
            .arg(self.data())
            .arg("-k")
            .arg(&self.directory);
        for setting in ["listen_addresses=", "max_connections=120"] {
            postgres.args(["-c", setting]);
        }
        for setting in &self.settings {
            postgres.args(["-c", setting]);
        }
        let log = std::fs::File::create(self.directory.with_extension("log")).unwrap();
        postgres.stdout(Stdio::null()).stderr(log);
        self.running = Some(postgres.spawn().unwrap());
        let until = Instant::now() + Duration::from_secs(30);
        let mut ready = Command::new(self.programs.join("pg_isready"));
        ready.arg("-qh").arg(&self.directory);
        while !ready.status().unwrap().success() {
            assert!(Instant::now() < until, "{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.with_extension("log")).unwrap_or_default()
    }

    fn data(&self) -> PathBuf {
        self.directory.join("data")
    }

    /// Not as root, which it refuses; it ends with this thread.
    fn program(&self, name: &str) -> Command {
        let program = self.programs.join(name);
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "INT"]);
        if is_root() {
            command.args(["--reuid=nobody", "--regid=nogroup", "--clear-groups"]);
        }
        command.arg(program).current_dir("/");
        command
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        if let Some(running) = &mut self.running {
            let _ = Command::new("kill")
                .args(["-QUIT", &running.id().to_string()])
                .status();
            let _ = running.wait();
        }
        let _ = std::fs::remove_dir_all(&self.directory);
        let _ = std::fs::remove_file(self.directory.with_extension("log"));
    }
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").unwrap().uid() == 0
}

fn succeeds(command: &mut Command) -> String {
    let out = command.stdin(Stdio::null()).output().unwrap();
    let errors = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{command:?}: {errors}");
    String::from_utf8(out.stdout).unwrap().trim_end().to_owned()
}

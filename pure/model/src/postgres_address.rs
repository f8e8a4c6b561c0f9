//! Where a PostgreSQL database is.

use std::fmt;
use std::str::FromStr;

/// A database of a PostgreSQL server, as `host=/run/postgresql dbname=linerate`: the keys of libpq's connection strings,
/// without a password, which a file that others read must not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostgresAddress {
    /// The directory of its socket, or its name or address.
    pub host: String,
    /// Port; of a socket the end of its name.
    pub port: u16,
    /// Name of the database.
    pub dbname: String,
    /// The role; `None`: called as the user of the process.
    pub user: Option<String>,
    /// TLS with a verified certificate and name; never to a socket.
    pub is_encrypted: bool,
    /// A file of certificate authorities; `None`: those of this host.
    pub root_certificates: Option<String>,
}

/// What a text may be.
const POSSIBLE: &str = "write host=, port=, dbname=, user=, sslmode= (verify-full or disable) and sslrootcert=, separated by spaces: host=/run/postgresql dbname=linerate";

impl FromStr for PostgresAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<PostgresAddress, String> {
        let mut address = PostgresAddress {
            host: "/run/postgresql".to_owned(),
            port: 5432,
            dbname: "linerate".to_owned(),
            user: None,
            is_encrypted: true,
            root_certificates: None,
        };
        for pair in text.split_whitespace() {
            let (key, value) = pair.split_once('=').ok_or(POSSIBLE)?;
            if value.is_empty() || value.contains(['\'', '\\', '\0']) {
                return Err(POSSIBLE.to_owned());
            }
            match (key, value) {
                ("host", host) => host.clone_into(&mut address.host),
                ("port", port) => {
                    address.port = port.parse().map_err(|_| "a port is 1 to 65535")?
                }
                ("dbname", name) => name.clone_into(&mut address.dbname),
                ("user", user) => address.user = Some(user.to_owned()),
                ("sslmode", "verify-full") => address.is_encrypted = true,
                ("sslmode", "disable") => address.is_encrypted = false,
                ("sslrootcert", file) => address.root_certificates = Some(file.to_owned()),
                ("password", _) => {
                    return Err("set the password in the environment, as PGPASSWORD".to_owned());
                }
                _ => return Err(POSSIBLE.to_owned()),
            }
        }
        address.is_encrypted &= !address.is_socket();
        Ok(address)
    }
}

impl PostgresAddress {
    /// Whether it is a socket of this machine.
    pub fn is_socket(&self) -> bool {
        self.host.starts_with('/')
    }
}

impl fmt::Display for PostgresAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PostgresAddress {
            host, port, dbname, ..
        } = self;
        match port {
            5432 => write!(f, "the database {dbname} of PostgreSQL at {host}"),
            port => write!(
                f,
                "the database {dbname} of PostgreSQL at {host}, port {port}"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_libpq_without_a_password() {
        let socket: PostgresAddress = "".parse().unwrap();
        assert_eq!(
            socket.to_string(),
            "the database linerate of PostgreSQL at /run/postgresql"
        );
        assert!(!socket.is_encrypted);
        let remote: PostgresAddress =
            "host=db.example port=5433 dbname=m user=x sslrootcert=/etc/ca.pem"
                .parse()
                .unwrap();
        assert!(remote.is_encrypted);
        assert_eq!(
            remote.to_string(),
            "the database m of PostgreSQL at db.example, port 5433"
        );
        assert_eq!(remote.root_certificates.as_deref(), Some("/etc/ca.pem"));
        let plain: PostgresAddress = "host=10.0.0.1 sslmode=disable".parse().unwrap();
        assert!(!plain.is_encrypted);
        for (wrong, remedy) in [
            ("host", "write host="),
            ("host=", "write host="),
            ("hots=a", "write host="),
            ("sslmode=prefer", "verify-full or disable"),
            ("port=0x", "a port is 1 to 65535"),
            ("password=secret", "PGPASSWORD"),
        ] {
            let error = wrong.parse::<PostgresAddress>().unwrap_err();
            assert!(error.contains(remedy), "{wrong}: {error}");
        }
    }
}

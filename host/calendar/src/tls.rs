//! TLS to PostgreSQL: with the certificate and the name of the server verified, as libpq's `verify-full`.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::{Connect, TlsConnector, client};

/// The certificate authorities of the host: of Debian, of Red Hat, of SUSE.
const OF_THE_HOST: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
];

/// Makes the TLS side of a connection.
#[derive(Clone)]
pub(crate) struct PostgresTls(Arc<ClientConfig>);

impl PostgresTls {
    /// With the authorities of this file, or of the host.
    pub(crate) fn new(roots: Option<&str>) -> Result<PostgresTls, String> {
        let file = match roots {
            Some(file) => file,
            None => OF_THE_HOST
                .into_iter()
                .find(|file| std::path::Path::new(file).exists())
                .ok_or("this host has no certificate authorities: name a file of them with sslrootcert=")?,
        };
        let mut store = RootCertStore::empty();
        let unread = |error| format!("cannot read certificates from {file}: {error}");
        for certificate in CertificateDer::pem_file_iter(file).map_err(unread)? {
            // Some authorities of a host may be of a kind that is not supported.
            store.add_parsable_certificates([certificate.map_err(unread)?]);
        }
        if store.is_empty() {
            return Err(format!("{file} has no certificate authority"));
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(store)
            .with_no_client_auth();
        Ok(PostgresTls(Arc::new(config)))
    }
}

impl MakeTlsConnect<Socket> for PostgresTls {
    type Stream = PostgresStream;
    type TlsConnect = PostgresConnector;
    type Error = rustls::pki_types::InvalidDnsNameError;

    fn make_tls_connect(&mut self, domain: &str) -> Result<PostgresConnector, Self::Error> {
        let name = ServerName::try_from(domain)?.to_owned();
        Ok(PostgresConnector(Arc::clone(&self.0).into(), name))
    }
}

pub(crate) struct PostgresConnector(TlsConnector, ServerName<'static>);

impl TlsConnect<Socket> for PostgresConnector {
    type Stream = PostgresStream;
    type Error = io::Error;
    type Future = PostgresHandshake;

    fn connect(self, socket: Socket) -> PostgresHandshake {
        PostgresHandshake(self.0.connect(self.1, socket))
    }
}

pub(crate) struct PostgresHandshake(Connect<Socket>);

impl Future for PostgresHandshake {
    type Output = io::Result<PostgresStream>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map_ok(PostgresStream)
    }
}

pub(crate) struct PostgresStream(client::TlsStream<Socket>);

impl TlsStream for PostgresStream {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for PostgresStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, into)
    }
}

impl AsyncWrite for PostgresStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

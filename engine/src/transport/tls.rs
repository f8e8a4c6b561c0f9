//! TLS 1.3 over TCP with raw public keys (RFC 7250) of Ed25519 at both ends. No certificates, no
//! other version, no resumption: every connection proves both keys again.

use super::driver::ByteStream;
use crate::prelude::*;
use crate::trust::{Identity, NodeId, id_of_spki};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer,
    UnixTime,
};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use rustls::sign::CertifiedKey;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, Connection,
    DigitallySignedStruct, DistinguishedName, Error, ServerConfig, ServerConnection,
    SignatureScheme,
};
use std::io;
use std::net::Shutdown;
use sys::poll::{PollFd, poll};
use wire::control::{LONGEST_OUTAGE, busy, silence};

/// Application protocol (RFC 7301) of a session.
pub const SESSION: &[u8] = b"linerate-control/1";

/// Application protocol of the enrolment of an unauthenticated peer with an invitation.
pub const ENROL: &[u8] = b"linerate-enrol/1";

/// For a TCP connection, and for its handshake.
pub const CONNECT: Duration = Duration::from_secs(10);

/// For a peer to close its side once we have closed ours.
const LINGER: Duration = Duration::from_millis(500);

/// Between retransmissions of a control connection.
const LONGEST_RTO: Duration = Duration::from_secs(2);

/// Decides about a key, once its holder has proved to have it.
pub type Verdict = dyn Fn(&NodeId) -> bool + Send + Sync;

/// A TLS connection, first blocking through its handshake and then as a [`ByteStream`].
pub struct Tls {
    socket: TcpStream,
    tls: Connection,
    peer: NodeId,
    /// How sentences name the peer.
    name: String,
    us: NodeId,
    /// Something came from the peer after the handshake: it accepted our key.
    received: bool,
    /// The bytes that came last: a server without room sends a notice, at any time of the handshake.
    last: Vec<u8>,
}

/// Reads a socket, and keeps the last bytes.
struct Tail<'a> {
    socket: &'a TcpStream,
    last: &'a mut Vec<u8>,
}

impl Read for Tail<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.socket.read(into)?;
        self.last.extend_from_slice(&into[..count]);
        let surplus = self.last.len().saturating_sub(busy::BUSY_LEN);
        self.last.drain(..surplus);
        Ok(count)
    }
}

/// How a handshake ended that did not succeed.
pub enum Handshake {
    /// The peer showed a key that is not accepted here.
    Key(NodeId),
    /// It did not go through; a sentence without a name.
    Broken(String),
    /// The server has no room for connections that are not authenticated; it may have after this.
    Busy(Nanos),
}

impl Tls {
    /// Connects as a client: shows our key, and accepts the server that `accepts` names.
    pub fn client(
        socket: TcpStream,
        identity: &Identity,
        accepts: Arc<Verdict>,
        protocol: &[u8],
        name: &str,
        until: Instant,
    ) -> Result<Tls, Handshake> {
        let (keys, key) = Keys::new(identity, accepts)?;
        let mut config = ClientConfig::builder_with_provider(Arc::clone(&keys.provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(broken)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(&keys) as _)
            .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(key)));
        config.alpn_protocols = vec![protocol.to_vec()];
        config.resumption = Resumption::disabled();
        // Keys have no names: none is sent.
        config.enable_sni = false;
        let nameless = ServerName::try_from("linerate.invalid").expect("a valid DNS name");
        let tls = ClientConnection::new(Arc::new(config), nameless).map_err(broken)?;
        Tls::handshake(socket, tls.into(), identity.id(), &keys, name, until)
    }

    /// Answers as a server: shows our key, and accepts the clients that `accepts` names.
    pub fn server(
        socket: TcpStream,
        identity: &Identity,
        accepts: Arc<Verdict>,
        name: &str,
        until: Instant,
    ) -> Result<Tls, Handshake> {
        let (keys, key) = Keys::new(identity, accepts)?;
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&keys.provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(broken)?
            .with_client_cert_verifier(Arc::clone(&keys) as _)
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(key)));
        config.alpn_protocols = vec![SESSION.to_vec(), ENROL.to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        let tls = ServerConnection::new(Arc::new(config)).map_err(broken)?;
        Tls::handshake(socket, tls.into(), identity.id(), &keys, name, until)
    }

    fn handshake(
        socket: TcpStream,
        tls: Connection,
        us: NodeId,
        keys: &Keys,
        name: &str,
        until: Instant,
    ) -> Result<Tls, Handshake> {
        socket.set_nonblocking(true).map_err(broken)?;
        // Samples are small and wanted at once.
        socket.set_nodelay(true).map_err(broken)?;
        // After an outage of the path it goes on sooner than the data; older kernels do without.
        let outage = silence(LONGEST_OUTAGE).into();
        sys::socket::set_lost_after(socket.as_fd(), outage).map_err(broken)?;
        let _ = sys::socket::set_longest_rto(socket.as_fd(), LONGEST_RTO);
        let mut new = Tls {
            socket,
            tls,
            peer: us,
            name: name.to_owned(),
            us,
            received: false,
            last: Vec::new(),
        };
        while new.tls.is_handshaking() {
            if let Err(error) = new.step(until) {
                // What failed may be a write, with a notice before it.
                let _ = Tail {
                    socket: &new.socket,
                    last: &mut new.last,
                }
                .read(&mut [0; 4096]);
                // A server has more to say to who is late.
                if error.kind() != ErrorKind::TimedOut {
                    linger(&mut new.socket);
                }
                if let (Connection::Client(_), Some(again)) = (&new.tls, busy::decode(&new.last)) {
                    return Err(Handshake::Busy(again));
                }
                return Err(match (tls_error(&error), *sys::lock(&keys.refused)) {
                    (Some(Error::InvalidCertificate(_)), Some(key)) => Handshake::Key(key),
                    (Some(error), _) => Handshake::Broken(not_ours(error)),
                    (None, _) => Handshake::Broken(error.to_string()),
                });
            }
        }
        new.wait_flushed(until).map_err(broken)?;
        let key = new.tls.peer_certificates().and_then(|keys| keys.first());
        let peer = key.and_then(|key| id_of_spki(key));
        new.peer = peer.ok_or_else(|| broken("it showed no key"))?;
        Ok(new)
    }

    /// The peer's proven key.
    pub fn peer(&self) -> NodeId {
        self.peer
    }

    /// Names the peer in sentences from now on.
    pub fn rename(&mut self, name: &str) {
        name.clone_into(&mut self.name);
    }

    /// The application protocol that both speak.
    pub fn protocol(&self) -> Option<&[u8]> {
        self.tls.alpn_protocol()
    }

    /// Our address, as the peer reaches it.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        let mut address = self.socket.local_addr()?;
        address.set_ip(address.ip().to_canonical());
        Ok(address)
    }

    /// Reads exactly so many bytes, waiting until then.
    pub fn read_exact(&mut self, mut into: &mut [u8], until: Instant) -> io::Result<()> {
        while !into.is_empty() {
            match self.read(into) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(n) => into = &mut into[n..],
                Err(e) if e.kind() == ErrorKind::WouldBlock => self.wait(true, until)?,
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Writes all the bytes, waiting until then.
    pub fn write_all(&mut self, mut bytes: &[u8], until: Instant) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.write(bytes) {
                Ok(n) => bytes = &bytes[n..],
                Err(e) if e.kind() == ErrorKind::WouldBlock => self.wait(false, until)?,
                Err(e) => return Err(e),
            }
        }
        self.wait_flushed(until)
    }

    /// One exchange of a handshake.
    fn step(&mut self, until: Instant) -> io::Result<()> {
        if !self.flush()? {
            return self.wait(false, until);
        }
        match self.fill() {
            Err(e) if e.kind() == ErrorKind::WouldBlock => self.wait(true, until),
            filled => filled,
        }
    }

    /// Waits until the socket can be read, or written.
    fn wait(&self, read: bool, until: Instant) -> io::Result<()> {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let late = "it did not answer in time: it may be busy; try again in a minute";
            return Err(io::Error::new(ErrorKind::TimedOut, late));
        }
        let mut fds = [PollFd::new(self.socket.as_fd(), read, !read)];
        poll(&mut fds, Some(left)).map(drop)
    }

    fn wait_flushed(&mut self, until: Instant) -> io::Result<()> {
        while !self.flush()? {
            self.wait(false, until)?;
        }
        Ok(())
    }

    /// Takes one piece of what came and works on it.
    fn fill(&mut self) -> io::Result<()> {
        let mut tail = Tail {
            socket: &self.socket,
            last: &mut self.last,
        };
        if self.tls.read_tls(&mut tail)? == 0 {
            let closed = "it closed the connection";
            return Err(io::Error::new(ErrorKind::UnexpectedEof, closed));
        }
        if let Err(error) = self.tls.process_new_packets() {
            // The alert that says why.
            let _ = self.flush();
            return Err(io::Error::new(ErrorKind::InvalidData, error));
        }
        Ok(())
    }
}

impl ByteStream for Tls {
    fn wait_for(&self, read: bool, write: bool) -> Vec<PollFd<'_>> {
        let write = write || self.tls.wants_write();
        vec![PollFd::new(self.socket.as_fd(), read, write)]
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.tls.reader().read(into) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => self.fill()?,
                Ok(n) => {
                    self.received |= n > 0;
                    return Ok(n);
                }
                Err(e) => return Err(e),
            }
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = self.tls.writer().write(bytes)?;
        self.flush()?;
        match taken {
            // Its buffer is full until the socket takes some.
            0 => Err(ErrorKind::WouldBlock.into()),
            taken => Ok(taken),
        }
    }

    fn flush(&mut self) -> io::Result<bool> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.socket) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }

    fn finish(&mut self) {
        self.tls.send_close_notify();
        let _ = self.flush();
        let _ = self.socket.shutdown(Shutdown::Write);
    }

    fn explain(&mut self, error: Option<&io::Error>) -> Option<String> {
        let (name, us) = (&self.name, self.us);
        match error.and_then(tls_error) {
            // In TLS 1.3 a client has finished before the server looks at its key.
            Some(Error::AlertReceived(
                AlertDescription::AccessDenied
                | AlertDescription::BadCertificate
                | AlertDescription::CertificateUnknown
                | AlertDescription::CertificateRequired,
            )) if !self.received => Some(not_trusted(name, &us, false)),
            Some(Error::AlertReceived(alert)) => Some(format!(
                "{name} broke off the control connection (TLS alert {alert:?})"
            )),
            _ => None,
        }
    }
}

/// The sentence for a server that does not know our key, which `coordinates` or measures itself.
pub fn not_trusted(name: &str, us: &NodeId, coordinates: bool) -> String {
    let direct = if coordinates { " --direct" } else { "" };
    format!(
        "{name} does not trust this host's key: on {name} run 'linerate trust add {us}{direct}', or 'linerate trust invite{direct}' and here 'linerate trust accept' with the line that it prints"
    )
}

/// Ends a connection whose peer may still be writing: reads what comes, unseen, for a moment, for a
/// socket closed with unread bytes resets the connection, and the last words would be lost.
pub fn discard(tls: &mut Tls) {
    tls.finish();
    linger(&mut tls.socket);
}

fn linger(socket: &mut TcpStream) {
    let until = Instant::now() + LINGER;
    let _ = socket.shutdown(Shutdown::Write);
    let mut unseen = [0; 4096];
    loop {
        match Read::read(socket, &mut unseen) {
            Ok(1..) => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            _ => return,
        }
        let left = until.saturating_duration_since(Instant::now());
        let mut fds = [PollFd::new(socket.as_fd(), true, false)];
        if left.is_zero() || poll(&mut fds, Some(left)).is_err() {
            return;
        }
    }
}

/// What a TLS error means before anybody has said who he is.
fn not_ours(error: &Error) -> String {
    match error {
        Error::InvalidMessage(_) | Error::InappropriateMessage { .. } => {
            "what answers there does not speak TLS".to_owned()
        }
        Error::AlertReceived(alert) => format!("it refused the connection (TLS alert {alert:?})"),
        Error::PeerIncompatible(_) => {
            "what answers there is no linerate (it does not speak TLS 1.3 with raw public keys)"
                .to_owned()
        }
        Error::NoCertificatesPresented => "it showed no key".to_owned(),
        Error::InvalidCertificate(CertificateError::BadSignature) => {
            "it could not prove to have the key that it showed".to_owned()
        }
        error => format!("no TLS connection came about ({error})"),
    }
}

fn tls_error(error: &io::Error) -> Option<&Error> {
    error.get_ref().and_then(|inner| inner.downcast_ref())
}

fn broken(error: impl std::fmt::Display) -> Handshake {
    Handshake::Broken(error.to_string())
}

/// Accepts raw public keys of Ed25519 by their id alone.
struct Keys {
    accepts: Arc<Verdict>,
    /// The key that was refused last, for the sentence about it.
    refused: Mutex<Option<NodeId>>,
    provider: Arc<CryptoProvider>,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keys")
    }
}

impl Keys {
    /// With the key that this host shows.
    fn new(
        identity: &Identity,
        accepts: Arc<Verdict>,
    ) -> Result<(Arc<Keys>, Arc<CertifiedKey>), Handshake> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let pkcs8 = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(identity.pkcs8().to_vec()));
        let key = provider.key_provider.load_private_key(pkcs8);
        let key = key.map_err(|e| broken(format!("this host's key cannot be used: {e}")))?;
        let spki = CertificateDer::from(identity.spki().to_vec());
        let keys = Keys {
            accepts,
            refused: Mutex::default(),
            provider,
        };
        Ok((Arc::new(keys), Arc::new(CertifiedKey::new(vec![spki], key))))
    }

    fn judge(&self, spki: &CertificateDer<'_>) -> Result<(), Error> {
        let id = id_of_spki(spki).ok_or(CertificateError::BadEncoding)?;
        if (self.accepts)(&id) {
            return Ok(());
        }
        *sys::lock(&self.refused) = Some(id);
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    fn signed(
        &self,
        message: &[u8],
        spki: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = SubjectPublicKeyInfoDer::from(spki.as_ref());
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature_with_raw_key(message, &key, signature, algorithms)
    }
}

/// What both verifiers have in common.
macro_rules! tls13_with_raw_keys {
    () => {
        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(Error::General("only TLS 1.3 is spoken here".to_owned()))
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            key: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            self.signed(message, key, signature)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }

        fn requires_raw_public_keys(&self) -> bool {
            true
        }
    };
}

impl ServerCertVerifier for Keys {
    fn verify_server_cert(
        &self,
        key: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.judge(key).map(|()| ServerCertVerified::assertion())
    }

    tls13_with_raw_keys!();
}

impl ClientCertVerifier for Keys {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        key: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.judge(key).map(|()| ClientCertVerified::assertion())
    }

    tls13_with_raw_keys!();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trust::identity_tests::fresh;
    use std::net::{Ipv4Addr, TcpListener};

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(30)
    }

    fn sockets() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    fn accepting(is_so: bool) -> Arc<Verdict> {
        Arc::new(move |_| is_so)
    }

    type Ends = (Result<Tls, Handshake>, Result<Tls, Handshake>);

    /// The client's and the server's end of a handshake in which each accepts the other or not.
    fn shaken(client: &Identity, server: &Identity, accepts: [bool; 2], protocol: &[u8]) -> Ends {
        let (near, far) = sockets();
        let [by_client, by_server] = accepts.map(accepting);
        std::thread::scope(|scope| {
            let server = scope.spawn(|| Tls::server(far, server, by_server, "the client", soon()));
            let client = Tls::client(near, client, by_client, protocol, "the server", soon());
            (client, server.join().unwrap())
        })
    }

    /// Why there is no connection.
    fn why(shaken: Result<Tls, Handshake>) -> String {
        match shaken {
            Ok(_) => panic!("they are connected"),
            Err(Handshake::Key(id)) => format!("key {id}"),
            Err(Handshake::Broken(why)) => why,
            Err(Handshake::Busy(again)) => format!("busy {again}"),
        }
    }

    #[test]
    fn both_ends_know_each_others_key_and_carry_bytes_of_any_length() {
        let (one, other) = (fresh(), fresh());
        for protocol in [SESSION, ENROL] {
            let (client, server) = shaken(&one, &other, [true; 2], protocol);
            let (mut client, mut server) = (client.ok().unwrap(), server.ok().unwrap());
            assert_eq!((client.peer(), server.peer()), (other.id(), one.id()));
            assert_eq!([client.protocol(), server.protocol()], [Some(protocol); 2]);
            let port = client.socket.peer_addr().unwrap().port();
            let local = server.local_address().unwrap();
            assert_eq!(local, (Ipv4Addr::LOCALHOST, port).into());
            let sent: Vec<u8> = (0..1 << 20).map(|n: u32| (n % 251) as u8).collect();
            let mut came = vec![0; sent.len()];
            std::thread::scope(|scope| {
                scope.spawn(|| client.write_all(&sent, soon()).unwrap());
                server.read_exact(&mut came, soon()).unwrap();
            });
            assert!(came == sent);
            let late = server.read_exact(&mut [0], Instant::now()).unwrap_err();
            assert_eq!(late.kind(), ErrorKind::TimedOut);
            client.finish();
            let end = server.read_exact(&mut [0], soon()).unwrap_err();
            assert_eq!(end.kind(), ErrorKind::UnexpectedEof);
        }
        let (unknown, server) = shaken(&one, &other, [true; 2], b"other/1");
        assert!(unknown.is_err() && server.is_err());
    }

    #[test]
    fn a_key_that_is_not_accepted_is_named_by_who_refused_it() {
        let (one, other) = (fresh(), fresh());
        let (client, _) = shaken(&one, &other, [false, true], SESSION);
        assert_eq!(why(client), format!("key {}", other.id()));
        let (client, server) = shaken(&one, &other, [true, false], SESSION);
        assert_eq!(why(server), format!("key {}", one.id()));
        // In TLS 1.3 a client has finished before the server looks at its key.
        let mut client = client.ok().unwrap();
        let error = client.read_exact(&mut [0], soon()).unwrap_err();
        let said = client.explain(Some(&error)).unwrap();
        assert_eq!(said, not_trusted("the server", &one.id(), false));
        client.rename("db2");
        let said = client.explain(Some(&error)).unwrap();
        assert!(
            said.starts_with("db2 does not trust this host's key"),
            "{said}"
        );
        // Once something came it had accepted our key.
        client.received = true;
        let said = client.explain(Some(&error)).unwrap();
        assert!(
            said.starts_with("db2 broke off the control connection"),
            "{said}"
        );
        assert_eq!(client.explain(None), None);
        assert_eq!(client.explain(Some(&ErrorKind::BrokenPipe.into())), None);
        let coordinates = not_trusted("db2", &one.id(), true);
        assert!(coordinates.contains(" --direct', or 'linerate trust invite --direct'"));
    }

    /// A client's handshake with a server that says this and closes then, or not.
    fn answered(bytes: &[u8], closes: bool, until: Instant) -> String {
        let (near, mut far) = sockets();
        far.write_all(bytes).unwrap();
        if closes {
            far.shutdown(Shutdown::Write).unwrap();
        }
        let client = Tls::client(
            near,
            &fresh(),
            accepting(true),
            SESSION,
            "the server",
            until,
        );
        why(client)
    }

    #[test]
    fn what_answers_with_something_else_is_named() {
        let said = answered(b"HTTP/1.0 400 Bad Request\r\n\r\n", true, soon());
        assert_eq!(said, "what answers there does not speak TLS");
        assert_eq!(answered(b"", true, soon()), "it closed the connection");
        let late = answered(b"", false, Instant::now() + Duration::from_millis(50));
        assert!(late.starts_with("it did not answer in time"), "{late}");
        let again = Nanos::from_secs(5);
        let busy = answered(&busy::encode(again), true, soon());
        assert_eq!(busy, format!("busy {again}"));
        // A client that says so is no busy server.
        let (mut near, far) = sockets();
        near.write_all(&busy::encode(again)).unwrap();
        near.shutdown(Shutdown::Write).unwrap();
        let server = Tls::server(far, &fresh(), accepting(true), "the client", soon());
        assert!(!why(server).starts_with("busy"));
    }

    #[test]
    fn the_last_bytes_of_a_server_are_kept_for_its_notice() {
        let (near, mut far) = sockets();
        let notice = busy::encode(Nanos::from_secs(7));
        far.write_all(&[9; 100]).unwrap();
        far.write_all(&notice).unwrap();
        drop(far);
        let mut last = Vec::new();
        let mut tail = Tail {
            socket: &near,
            last: &mut last,
        };
        let mut all = Vec::new();
        tail.read_to_end(&mut all).unwrap();
        assert_eq!(all.len(), 100 + notice.len());
        assert_eq!(last, notice);
    }

    #[test]
    fn a_peer_that_writes_on_gets_the_last_words_before_the_end() {
        let (one, other) = (fresh(), fresh());
        let (client, server) = shaken(&one, &other, [true; 2], SESSION);
        let (mut client, mut server) = (client.ok().unwrap(), server.ok().unwrap());
        client.write_all(&[1; 10_000], soon()).unwrap();
        server.write_all(b"good-bye", soon()).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let begun = Instant::now();
                discard(&mut server);
                assert!(begun.elapsed() < Duration::from_secs(20));
            });
            let mut words = [0; 8];
            client.read_exact(&mut words, soon()).unwrap();
            assert_eq!(&words, b"good-bye");
            let end = client.read_exact(&mut [0], soon()).unwrap_err();
            assert_eq!(end.kind(), ErrorKind::UnexpectedEof);
        });
        // One that stays silent and open is not waited for.
        let (client, server) = shaken(&one, &other, [true; 2], SESSION);
        let begun = Instant::now();
        discard(&mut server.ok().unwrap());
        assert!(begun.elapsed() >= LINGER);
        drop(client);
    }
}

//! Trusted clients, unauthenticated peers, stolen keys and noise at a listener on loopback.

use super::*;
use crate::clock::unix_seconds;
use crate::host::Host;
use crate::testing::TempDir;
use crate::transport::{ChannelEnd, ChannelEvent, How, Reached, accept_invitation};
use crate::trust::{Invitation, KeyLimits, PendingInvitation};
use aws_lc_rs::signature::Ed25519KeyPair;
use model::{Bulk, LegLimit, Nanos, Placement, SocketSettings, Workload};
use rustls::client::AlwaysResolvesClientRawPublicKeys;
use rustls::crypto::aws_lc_rs as provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, ClientConnection, Stream};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use wire::control::{LegOrder, ToAgent, Token};

fn limits_for(clients: usize) -> LedgerLimits {
    LedgerLimits {
        clients,
        buffers: model::Bytes(64 << 20),
        connections: 1000,
        more_connections: "",
    }
}

/// A server whose sessions say of every order that it is refused.
struct TestServer {
    dir: TempDir,
    id: NodeId,
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<Result<()>>>,
}

impl TestServer {
    fn start() -> TestServer {
        let dir = TempDir::new();
        let config = ListenerConfig {
            directory: dir.path().to_owned(),
            bind: Some(Ipv4Addr::LOCALHOST.into()),
            port: 0,
            data_ports: None,
            limits: limits_for(4),
            sessions: 64,
            key_sessions: 8,
            startups: Startups::default(),
            allow_tune: false,
            allow_files: None,
            allow_direct: None,
            calendar: HostCalendar::in_directory(dir.path()),
        };
        let listener = Listener::open(config, Box::new(refuse_orders)).unwrap();
        let (id, address) = (listener.id(), listener.addresses()[0]);
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let thread = std::thread::spawn(move || listener.run(&seen));
        TestServer {
            dir,
            id,
            address,
            stop,
            thread: Some(thread),
        }
    }

    fn trust(&self, id: NodeId) {
        let store = TrustStore::new(self.dir.path());
        store
            .update(|trust| trust.put(entry(id, "client", None)))
            .unwrap();
    }

    fn invite(&self, seconds: u64) -> Invitation {
        let token = Token::new(crate::chance::bytes().unwrap());
        let pending = PendingInvitation {
            token_sha256: PendingInvitation::digest(&token),
            expires_unix_s: unix_seconds() + seconds,
            name: Some("guest".to_owned()),
            rights: BTreeSet::from([Right::Measure]),
            limits: KeyLimits::default(),
        };
        let store = TrustStore::new(self.dir.path());
        store
            .update(|trust| {
                trust.invitations.push(pending);
                Ok(())
            })
            .unwrap();
        Invitation {
            name: self.address.ip().to_string(),
            port: self.address.port(),
            server: self.id,
            token,
            expires_unix_s: unix_seconds() + seconds,
        }
    }

    fn socket(&self) -> TcpStream {
        let socket = TcpStream::connect(self.address).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        socket
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap().unwrap();
        }
    }
}

fn refuse_orders(channel: AgentChannel, _: Peer) -> Result<()> {
    loop {
        match channel.recv(Duration::from_secs(1)) {
            Some(ChannelEvent::Message(ToAgent::Open { order })) => {
                let why = "this is a test".to_owned();
                let _ = channel.sender().send(ToController::Refused {
                    leg: order.leg,
                    why,
                });
            }
            Some(ChannelEvent::Ended(_)) => return Ok(()),
            _ => {}
        }
    }
}

fn entry(id: NodeId, name: &str, address: Option<String>) -> TrustEntry {
    TrustEntry {
        id,
        name: name.to_owned(),
        address,
        rights: BTreeSet::from([Right::Measure]),
        limits: KeyLimits::default(),
    }
}

/// A client with a key of its own.
struct TestClient {
    dir: TempDir,
    id: NodeId,
}

impl TestClient {
    fn new() -> TestClient {
        let dir = TempDir::new();
        let id = Identity::open(dir.path()).unwrap().id();
        TestClient { dir, id }
    }

    /// One that takes whoever answers at the server's address for `id`.
    fn of(server: &TestServer, id: NodeId) -> TestClient {
        let client = TestClient::new();
        let at = Some(server.address.to_string());
        let store = TrustStore::new(client.dir.path());
        store
            .update(|trust| trust.put(entry(id, "server", at)))
            .unwrap();
        client
    }

    fn friend(server: &TestServer) -> TestClient {
        let client = TestClient::of(server, server.id);
        server.trust(client.id);
        client
    }

    fn with<T>(&self, act: impl FnOnce(&How<'_>) -> T) -> T {
        act(&How {
            directory: self.dir.path().to_owned(),
            ..How::default()
        })
    }

    fn connect(&self, server: &TestServer) -> Result<Reached> {
        let host: Host = server.address.to_string().parse().unwrap();
        self.with(|how| host.connect(how))
    }

    fn accept(&self, invitation: &Invitation) -> Result<TrustEntry> {
        self.with(|how| accept_invitation(invitation, how))
    }

    fn refusal(&self, server: &TestServer) -> String {
        self.connect(server)
            .err()
            .expect("it is not to be let in")
            .to_string()
    }
}

fn order() -> Box<LegOrder> {
    Box::new(LegOrder {
        leg: 1,
        agent_sends: true,
        workload: Workload::Bulk(Bulk::default()),
        streams: 1,
        limit: LegLimit::Time(Nanos::from_secs(1)),
        interval: Nanos::from_secs(1),
        outage: Nanos(0),
        trace: false,
        socket: SocketSettings::default(),
        placement: Placement::default(),
    })
}

/// Whether the session works: an order is answered.
fn assert_alive(reached: &Reached) {
    reached
        .channel
        .sender()
        .send(ToAgent::Open { order: order() })
        .unwrap();
    match reached.channel.recv(Duration::from_secs(30)) {
        Some(ChannelEvent::Message(ToController::Refused { why, .. })) => {
            assert_eq!(why, "this is a test")
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn trusted_clients_are_served_and_notified_when_the_server_stops() {
    let server = TestServer::start();
    let client = TestClient::friend(&server);
    let reached = client.connect(&server).unwrap();
    assert_eq!(reached.addresses, [server.address.ip()]);
    assert_eq!(reached.channel.version(), VERSION);
    assert_alive(&reached);
    drop(server);
    match reached.channel.recv(Duration::from_secs(30)) {
        Some(ChannelEvent::Ended(ChannelEnd::Closed { why: Some(why), .. })) => {
            assert!(why.contains("stopped"), "{why}")
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn whoever_is_trusted_no_longer_is_sent_away_at_once() {
    let server = TestServer::start();
    let client = TestClient::friend(&server);
    let reached = client.connect(&server).unwrap();
    assert_alive(&reached);
    let store = TrustStore::new(server.dir.path());
    store
        .update(|trust| {
            trust.hosts.clear();
            Ok(())
        })
        .unwrap();
    match reached.channel.recv(Duration::from_secs(30)) {
        Some(ChannelEvent::Ended(ChannelEnd::Closed { why: Some(why), .. })) => {
            assert!(why.contains("no longer trusted"), "{why}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn unauthenticated_peers_are_refused_with_the_remedy() {
    let server = TestServer::start();
    let unauthenticated = TestClient::of(&server, server.id);
    let said = unauthenticated.refusal(&server);
    assert!(said.contains("does not trust this host's key"), "{said}");
    assert!(
        said.contains(&format!("linerate trust add {}", unauthenticated.id)),
        "{said}"
    );
    // An open invitation lets them in for that alone.
    let _open = server.invite(60);
    let reached = unauthenticated.connect(&server);
    let said = match &reached {
        Err(error) => error.to_string(),
        Ok(reached) => match reached.channel.recv(Duration::from_secs(30)) {
            Some(ChannelEvent::Ended(ended)) => ended.to_string(),
            other => panic!("{other:?}"),
        },
    };
    assert!(said.contains("not trusted there"), "{said}");
    // A known host without rights counts as unauthenticated too.
    let store = TrustStore::new(server.dir.path());
    let powerless = TrustEntry {
        rights: BTreeSet::new(),
        ..entry(unauthenticated.id, "powerless", None)
    };
    store
        .update(|trust| {
            trust.invitations.clear();
            trust.put(powerless)
        })
        .unwrap();
    assert!(unauthenticated.refusal(&server).contains("does not trust"));
}

#[test]
fn an_impostor_at_the_servers_address_is_noticed() {
    let server = TestServer::start();
    let client = TestClient::of(&server, TestClient::new().id);
    server.trust(client.id);
    let said = client.refusal(&server);
    assert!(said.contains("another host answers"), "{said}");
    assert!(said.contains(&server.id.to_string()), "{said}");
    // Even if its key is trusted under another address.
    let store = TrustStore::new(client.dir.path());
    store
        .update(|trust| trust.put(entry(server.id, "other", Some("elsewhere".into()))))
        .unwrap();
    assert!(client.refusal(&server).contains("another host answers"));
    // And who trusts nobody opens no session.
    assert!(
        TestClient::new()
            .refusal(&server)
            .contains("is not trusted yet")
    );
}

/// A TLS client as an attacker would write it: any public key, any private key, or none.
fn attack(server: &TestServer, key: Option<(&Identity, &Identity)>) -> String {
    #[derive(Debug)]
    struct Anybody;
    impl rustls::client::danger::ServerCertVerifier for Anybody {
        fn verify_server_cert(
            &self,
            _: &CertificateDer<'_>,
            _: &[CertificateDer<'_>],
            _: &ServerName<'_>,
            _: &[u8],
            _: rustls::pki_types::UnixTime,
        ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
            Ok(rustls::client::danger::ServerCertVerified::assertion())
        }
        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &rustls::DigitallySignedStruct,
        ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
            unreachable!("only TLS 1.3 is offered")
        }
        fn verify_tls13_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &rustls::DigitallySignedStruct,
        ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
            Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
        }
        fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
            vec![rustls::SignatureScheme::ED25519]
        }
        fn requires_raw_public_keys(&self) -> bool {
            true
        }
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(provider::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody));
    let mut config = match key {
        None => builder.with_no_client_auth(),
        Some((shown, held)) => {
            let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(held.pkcs8().to_vec()));
            let signer = provider::sign::any_eddsa_type(match &private {
                PrivateKeyDer::Pkcs8(key) => key,
                _ => unreachable!("made above"),
            });
            let public = CertificateDer::from(shown.spki().to_vec());
            let pair = CertifiedKey::new(vec![public], signer.unwrap());
            builder.with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(
                Arc::new(pair),
            )))
        }
    };
    config.alpn_protocols = vec![SESSION.to_vec()];
    let name = ServerName::try_from("linerate.invalid").unwrap();
    let mut tls = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut socket = server.socket();
    let mut stream = Stream::new(&mut tls, &mut socket);
    match stream.read(&mut [0; 1]) {
        Ok(n) => format!("{n} bytes"),
        Err(error) => error.to_string(),
    }
}

fn identity() -> Identity {
    let pkcs8 = Ed25519KeyPair::generate_pkcs8(&aws_lc_rs::rand::SystemRandom::new()).unwrap();
    Identity::from_pkcs8(pkcs8.as_ref().to_vec()).unwrap()
}

#[test]
fn a_stolen_public_key_opens_nothing() {
    let server = TestServer::start();
    let (owner, thief) = (identity(), identity());
    server.trust(owner.id());
    // The attacker's own tools work: with the private key it is let in and greeted.
    assert_eq!(attack(&server, Some((&owner, &owner))), "1 bytes");
    let said = attack(&server, Some((&owner, &thief)));
    assert!(
        said.contains("DecryptError") || said.contains("BadCertificate"),
        "{said}"
    );
    let said = attack(&server, None);
    assert!(!said.ends_with(" bytes"), "{said}");
    // An open invitation does not let anybody in without a key either.
    let _open = server.invite(60);
    for key in [None, Some((&owner, &thief))] {
        let said = attack(&server, key);
        assert!(!said.ends_with(" bytes"), "{said}");
    }
}

#[test]
fn noise_and_silence_keep_nobody_waiting() {
    let server = TestServer::start();
    let client = TestClient::friend(&server);
    let silent = [(); 11].map(|()| server.socket());
    let before = Instant::now();
    assert_alive(&client.connect(&server).unwrap());
    assert!(
        before.elapsed() < HANDSHAKE,
        "the silent ones were waited for"
    );
    // They are thrown out in their time.
    for mut socket in silent {
        let mut notice = Vec::new();
        socket.read_to_end(&mut notice).unwrap();
        assert!(wire::control::busy::decode(&notice).is_some(), "{notice:?}");
    }
    for noise in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        &[0xff; 64 << 10],
        b"\x16\x03\x01\xff\xff",
        b"\x00\x00\x00\x02{}",
    ] {
        let mut socket = server.socket();
        let _ = socket.write_all(noise);
        let _ = socket.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer);
        // At the most a TLS alert (RFC 8446, 6).
        assert!(
            answer.len() <= 7 && answer.first().is_none_or(|kind| *kind == 21),
            "{answer:?}"
        );
    }
    assert_alive(&client.connect(&server).unwrap());
}

#[test]
fn beyond_the_places_of_an_address_clients_are_asked_to_come_again_and_known_ones_are_not() {
    let server = TestServer::start();
    let client = TestClient::friend(&server);
    // Each sends a byte, so that none is dropped for another before its time.
    let hold = |count| -> Vec<TcpStream> {
        let mut held: Vec<TcpStream> = (0..count).map(|_| server.socket()).collect();
        held.iter_mut()
            .for_each(|socket| socket.write_all(&[0x16]).unwrap());
        held
    };
    let held = hold(12);
    let mut refused = server.socket();
    let mut notice = Vec::new();
    refused.read_to_end(&mut notice).unwrap();
    let again = wire::control::busy::decode(&notice).expect("a notice");
    assert!(again <= Nanos::from_secs(6), "{again}");
    // A client waits and comes again until the others have been late.
    assert_alive(&client.connect(&server).unwrap());
    drop(held);
    let _held = hold(12);
    let _silent = [(); 9].map(|()| server.socket());
    let identity = Identity::open(client.dir.path()).unwrap();
    let until = Instant::now() + Duration::from_secs(30);
    let everybody: Arc<Verdict> = Arc::new(|_| true);
    let tls = Tls::client(
        server.socket(),
        &identity,
        everybody,
        SESSION,
        "server",
        until,
    );
    assert!(tls.is_ok(), "it was asked to wait");
}

#[test]
fn older_tls_is_refused() {
    // A ClientHello of TLS 1.2 (RFC 5246, 7.4.1.2): no supported_versions, one usual cipher suite.
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.extend([0, 0, 2, 0xc0, 0x2f, 1, 0]);
    // signature_algorithms (ed25519) and supported_groups (x25519), so that only the version is wrong.
    let extensions = [0, 13, 0, 4, 0, 2, 8, 7, 0, 10, 0, 4, 0, 2, 0, 29];
    body.extend([0, extensions.len() as u8]);
    body.extend(extensions);
    let mut hello = vec![22, 3, 1, 0, body.len() as u8 + 4, 1, 0, 0, body.len() as u8];
    hello.extend(&body);
    let server = TestServer::start();
    let mut socket = server.socket();
    socket.write_all(&hello).unwrap();
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    // A fatal alert: protocol_version (70).
    assert_eq!((answer[0], &answer[5..]), (21, &[2, 70][..]), "{answer:?}");
}

#[test]
fn an_invitation_enrols_one_host_once() {
    let server = TestServer::start();
    let invitation = server.invite(60);
    let (guest, second) = (TestClient::new(), TestClient::new());

    // Whoever answers with another key than the line's gets neither token nor trust.
    let wrong = Invitation {
        server: second.id,
        ..invitation.clone()
    };
    let said = guest.accept(&wrong).unwrap_err().to_string();
    assert!(said.contains("another host answers"), "{said}");
    assert!(
        TrustStore::new(guest.dir.path())
            .load()
            .unwrap()
            .hosts
            .is_empty()
    );

    // A guessed token is not enough.
    let guessed = Invitation {
        token: Token::new([0; 32]),
        ..invitation.clone()
    };
    let said = guest.accept(&guessed).unwrap_err().to_string();
    assert!(said.contains("does not know this invitation"), "{said}");

    let entry = guest.accept(&invitation).unwrap();
    assert_eq!((entry.id, entry.rights.len()), (server.id, 0));
    let known = TrustStore::new(server.dir.path()).load().unwrap();
    assert_eq!(known.host(&guest.id).unwrap().name, "guest");
    assert!(known.invitations.is_empty());
    assert_alive(&guest.connect(&server).unwrap());

    // Used, it is closed: the second does not even get to say its token.
    let said = second.accept(&invitation).unwrap_err().to_string();
    assert!(said.contains("used or withdrawn"), "{said}");
    // While another is open, it does, and in vain.
    let _other = server.invite(60);
    let said = second.accept(&invitation).unwrap_err().to_string();
    assert!(said.contains("does not know this invitation"), "{said}");
    assert!(
        TrustStore::new(second.dir.path())
            .load()
            .unwrap()
            .hosts
            .is_empty()
    );
}

#[test]
fn an_expired_invitation_is_refused_at_both_ends() {
    let server = TestServer::start();
    let guest = TestClient::new();
    let expired = server.invite(0);
    assert!(
        guest
            .accept(&expired)
            .unwrap_err()
            .to_string()
            .contains("has expired")
    );
    // With a clock that is wrong, the server's counts.
    let believed = Invitation {
        expires_unix_s: u64::MAX,
        ..expired
    };
    let said = guest.accept(&believed).unwrap_err().to_string();
    assert!(said.contains("used or withdrawn"), "{said}");
    assert!(
        TrustStore::new(server.dir.path())
            .load()
            .unwrap()
            .hosts
            .is_empty()
    );
}

#[test]
fn one_key_cannot_take_all_the_places() {
    let server = TestServer::start();
    let (greedy, other) = (TestClient::friend(&server), TestClient::new());
    let store = TrustStore::new(other.dir.path());
    let at = Some(server.address.to_string());
    store
        .update(|trust| trust.put(entry(server.id, "server", at)))
        .unwrap();
    let list = TrustStore::new(server.dir.path());
    list.update(|trust| trust.put(entry(other.id, "other", None)))
        .unwrap();

    let mut sessions: Vec<Reached> = (0..8).map(|_| greedy.connect(&server).unwrap()).collect();
    std::thread::scope(|scope| {
        let one_more = scope.spawn(|| greedy.connect(&server));
        assert_alive(&other.connect(&server).unwrap());
        for reached in &sessions {
            assert_alive(reached);
        }
        // It is asked to come again, and does, until there is room.
        assert!(!one_more.is_finished());
        sessions.pop();
        assert_alive(&one_more.join().unwrap().unwrap());
    });
}

#[test]
fn a_frame_that_is_too_large_ends_the_session() {
    let server = TestServer::start();
    let client = TestClient::friend(&server);
    let identity = Identity::open(client.dir.path()).unwrap();
    let id = server.id;
    let accepts: Arc<Verdict> = Arc::new(move |other| *other == id);
    let until = Instant::now() + Duration::from_secs(30);
    let tls = Tls::client(
        server.socket(),
        &identity,
        accepts,
        SESSION,
        "server",
        until,
    );
    let mut tls = tls.ok().expect("a friend is let in");
    let hello = ToAgent::Hello {
        protocol: PROTOCOL,
        version: VERSION.to_owned(),
    };
    tls.write_all(&encode_frame(&hello).unwrap(), until)
        .unwrap();
    tls.write_all(&u32::MAX.to_be_bytes(), until).unwrap();
    let end = loop {
        match tls.read_exact(&mut [0; 1], until) {
            Ok(()) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof, "{end}");
}

#[test]
fn it_shows_itself_beyond_loopback_only_when_somebody_is_expected() {
    let dir = TempDir::new();
    let config = ListenerConfig {
        directory: dir.path().to_owned(),
        bind: None,
        port: 0,
        data_ports: None,
        limits: limits_for(1),
        sessions: 64,
        key_sessions: 8,
        startups: Startups::default(),
        allow_tune: false,
        allow_files: None,
        allow_direct: None,
        calendar: HostCalendar::in_directory(dir.path()),
    };
    let mut listener = Listener::open(config, Box::new(refuse_orders)).unwrap();
    let is_loopback = |l: &Listener| l.addresses().iter().all(|a| a.ip().is_loopback());
    assert!(is_loopback(&listener));
    let store = TrustStore::new(dir.path());
    let client = identity().id();
    store
        .update(|trust| trust.put(entry(client, "client", None)))
        .unwrap();
    listener.reload_trusted().unwrap();
    assert!(listener.addresses().iter().any(|a| a.ip().is_unspecified()));
    store
        .update(|trust| {
            trust.hosts.clear();
            Ok(())
        })
        .unwrap();
    listener.reload_trusted().unwrap();
    assert!(is_loopback(&listener));
}

#[test]
fn so_many_lines_are_written_in_a_second_and_the_others_counted() {
    let mut count = LineCount::default();
    for _ in 0..MAX_LINES {
        assert_eq!(count.take(7), (0, true));
    }
    assert_eq!([count.take(7), count.take(7)], [(0, false); 2]);
    assert_eq!(count.take(8), (2, true), "two were left out");
    assert_eq!(count.take(9), (0, true));
}

//! Sockets of the running kernel, on loopback.
#![allow(clippy::unwrap_used, reason = "a test says what failed by panicking")]

use linerate_observe::{Sampler, setting_warnings, socket_options, tcp_info};
use model::{BitRate, Bytes, Nanos, SocketOptions, SocketSettings};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::process::Command;
use std::time::Duration;
use sys::socket as set;

/// A connected pair: (client, server).
fn pair(address: &str) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(address).unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    (client, server)
}

/// Moves `size` bytes from the client to the server and waits until each is acknowledged: the server
/// has read them all, and one byte has come back.
fn transfer(client: &mut TcpStream, server: &mut TcpStream, size: usize) {
    let mut writer = client.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || writer.write_all(&vec![7; size]).unwrap());
        let mut room = vec![0; size];
        server.read_exact(&mut room).unwrap();
    });
    server.write_all(&[1]).unwrap();
    client.read_exact(&mut [0]).unwrap();
}

#[test]
fn tcp_info_counts_what_was_moved() {
    const SIZE: usize = 3_000_000;
    let (mut client, mut server) = pair("127.0.0.1:0");
    transfer(&mut client, &mut server, SIZE);

    let sender = tcp_info(client.as_fd()).unwrap();
    assert_eq!(sender.state(), Some(1));
    // The kernel counts the SYN as one byte.
    assert_eq!(sender.bytes_acked(), Some(Bytes(SIZE as u64 + 1)));
    assert_eq!(
        sender.bytes_sent().unwrap() - sender.bytes_retrans().unwrap(),
        Bytes(SIZE as u64)
    );
    assert!(sender.srtt() > Some(Nanos(0)));
    let (srtt, rttvar) = (sender.srtt().unwrap(), sender.rttvar().unwrap());
    assert!(sender.min_rtt().unwrap() <= srtt + rttvar + rttvar);
    assert!(sender.busy().unwrap() >= sender.rwnd_limited().unwrap());
    assert!(sender.cwnd() > Some(0) && sender.mss() > Some(0));
    assert!(sender.delivery_rate().unwrap() > BitRate(0));
    assert!(sender.snd_wnd().unwrap() > Bytes(0));
    assert!(sender.segs_out().unwrap() >= sender.data_segs_out().unwrap());

    let receiver = tcp_info(server.as_fd()).unwrap();
    assert_eq!(receiver.bytes_received(), Some(Bytes(SIZE as u64)));
    assert_eq!(receiver.rcv_wscale(), sender.snd_wscale());
    assert_eq!(receiver.snd_wscale(), sender.rcv_wscale());
}

#[test]
fn tcp_info_agrees_with_ss() {
    let (mut client, mut server) = pair("127.0.0.1:0");
    transfer(&mut client, &mut server, 1_000_000);
    let info = tcp_info(client.as_fd()).unwrap();
    let state = socket_options(0, client.as_fd()).unwrap();
    let ss = ss(&client);

    let field = |name: &str| -> &str {
        ss.split_whitespace()
            .find_map(|word| word.strip_prefix(&format!("{name}:")))
            .unwrap_or_else(|| panic!("no {name} in: {ss}"))
    };
    let number = |name: &str| -> u64 { field(name).parse().unwrap() };
    assert_eq!(number("cwnd"), u64::from(info.cwnd().unwrap()));
    assert_eq!(number("mss"), u64::from(info.mss().unwrap()));
    assert_eq!(number("pmtu"), u64::from(info.pmtu().unwrap()));
    assert_eq!(number("advmss"), u64::from(info.advmss().unwrap()));
    assert_eq!(number("rcvmss"), u64::from(info.rcv_mss().unwrap()));
    assert_eq!(number("bytes_acked"), info.bytes_acked().unwrap().0);
    assert_eq!(number("bytes_received"), info.bytes_received().unwrap().0);
    assert_eq!(number("bytes_sent"), info.bytes_sent().unwrap().0);
    assert_eq!(
        number("data_segs_out"),
        info.data_segs_out().map(u64::from).unwrap()
    );
    assert_eq!(
        number("delivered"),
        info.delivered().map(u64::from).unwrap()
    );
    assert_eq!(number("rcv_space"), info.rcv_space().unwrap().0);
    assert_eq!(number("snd_wnd"), info.snd_wnd().unwrap().0);
    let scales = (info.snd_wscale().unwrap(), info.rcv_wscale().unwrap());
    assert_eq!(field("wscale"), format!("{},{}", scales.0, scales.1));
    let ms: f64 = field("minrtt").parse().unwrap();
    assert_eq!((ms * 1e6).round() as u64, info.min_rtt().unwrap().0);
    let (rtt, rttvar) = field("rtt").split_once('/').unwrap();
    let ns = |ms: &str| (ms.parse::<f64>().unwrap() * 1e6).round() as u64;
    assert_eq!(
        (ns(rtt), ns(rttvar)),
        (info.srtt().unwrap().0, info.rttvar().unwrap().0)
    );
    let has = |flag| ss.split_whitespace().any(|word| word == flag);
    assert_eq!(Some(has("ts")), info.timestamps());
    assert_eq!(Some(has("sack")), info.sack());
    assert!(has(&state.congestion), "{ss}");
    // Left out by ss while it is zero.
    let busy = ss.split_whitespace().find_map(|w| w.strip_prefix("busy:"));
    let busy: u64 = busy.map_or(0, |ms| ms.trim_end_matches("ms").parse().unwrap());
    assert_eq!(busy, info.busy().unwrap().0 / 1_000_000);
}

/// What `ss` says of one socket of ours.
fn ss(socket: &TcpStream) -> String {
    let port = |a: std::net::SocketAddr| a.port().to_string();
    let output = Command::new("ss")
        .args(["-tinoHO", "sport", "=", &port(socket.local_addr().unwrap())])
        .args(["and", "dport", "=", &port(socket.peer_addr().unwrap())])
        .output()
        .expect("ss (Debian package iproute2) must be installed for this test");
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_socket_is_read_back() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let (client, _server) = pair(address);
        client.set_nodelay(true).unwrap();
        let state = socket_options(3, client.as_fd()).unwrap();
        assert_eq!(state.stream, 3);
        assert_eq!(state.local, client.local_addr().unwrap());
        assert_eq!(state.remote, client.peer_addr().unwrap());
        assert!(state.nodelay);
        assert!(state.mss > 500 && state.send_buffer > Bytes(0) && state.receive_buffer > Bytes(0));
        let default = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").unwrap();
        assert_eq!(state.congestion, default.trim());
        assert_eq!((state.pacing, state.dscp), (None, 0));
    }
}

#[test]
fn ipv4_in_an_ipv6_socket_is_ipv4() {
    let listener = TcpListener::bind("[::]:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let _client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let (server, _) = listener.accept().unwrap();
    let state = socket_options(0, server.as_fd()).unwrap();
    assert!(state.local.is_ipv4() && state.remote.is_ipv4());
    assert_eq!(state.local.port(), port);
}

#[test]
fn datagrams_have_a_state_and_no_tcp_info() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let error = socket_options(0, socket.as_fd()).unwrap_err();
    assert!(error.to_string().contains("remote address"), "{error}");
    socket.connect(socket.local_addr().unwrap()).unwrap();
    let state = socket_options(0, socket.as_fd()).unwrap();
    assert_eq!((state.mss, state.congestion.as_str()), (0, ""));

    assert!(tcp_info(socket.as_fd()).is_err());
    let mut sampler = Sampler::start(vec![socket]);
    let sample = sampler.sample(Nanos(5), &[Bytes(9)], None);
    assert_eq!(sample.streams[0].tcp, None);
    assert_eq!(sample.streams[0].bytes, Bytes(9));
}

#[test]
fn a_socket_that_was_reset_keeps_its_counts() {
    let (mut client, mut server) = pair("127.0.0.1:0");
    transfer(&mut client, &mut server, 100_000);
    let mut sampler = Sampler::start(vec![client.try_clone().unwrap()]);
    // Closed with data unread, a socket answers with a reset (RFC 2525, 2.17).
    client.write_all(&[1; 1000]).unwrap();
    server.peek(&mut [0]).unwrap();
    drop(server);
    // The reset has arrived once a read sees it.
    let error = client.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);

    let sample = sampler.sample(Nanos(1), &[Bytes(101_000)], None);
    let tcp = sample.streams[0].tcp.as_ref().unwrap();
    assert_eq!(tcp.state(), Some(7));
    // A busy machine may be too late for an acknowledgement.
    let sent = tcp
        .bytes_sent()
        .unwrap()
        .since(tcp.bytes_retrans().unwrap());
    assert_eq!(sent, Bytes(101_000));
}

#[test]
fn samples_count_from_the_start_of_the_leg() {
    let pairs: Vec<_> = (0..16).map(|_| pair("127.0.0.1:0")).collect();
    let mut sampler = Sampler::start(pairs.iter().map(|(client, _)| client).collect());
    let bytes: Vec<_> = (0..16).map(Bytes).collect();
    let first = sampler.sample(Nanos(0), &bytes, None);
    assert_eq!(first.streams.len(), 16);
    assert_eq!(first.bytes, Bytes((0..16).sum()));
    assert_eq!(first.streams[5].stream, 5);
    assert!(first.streams.iter().all(|s| s.tcp.is_some()));

    // Until the kernel has counted two ticks of time: every count goes on, and none backwards.
    let mut before = first.cpu;
    loop {
        let now = sampler.sample(Nanos(1), &bytes, None).cpu;
        for (old, new) in [
            (before.process_user, now.process_user),
            (before.process_system, now.process_system),
            (before.host_busy, now.host_busy),
            (before.host_total, now.host_total),
        ] {
            assert!(new >= old);
        }
        assert!(now.host_softirq <= now.host_busy && now.host_busy <= now.host_total);
        before = now;
        let process = now.process_user + now.process_system;
        if process >= Nanos::from_millis(20) && now.host_busy >= Nanos::from_millis(20) {
            break;
        }
    }
    assert!(before.busiest_processor.is_some_and(|busy| busy > Nanos(0)));
    // Not the whole time since boot.
    assert!(before.host_total < Nanos::from_secs(3600));
}

#[test]
fn fewer_counters_than_sockets_and_more() {
    let (client, _server) = pair("127.0.0.1:0");
    let mut sampler = Sampler::start(vec![client]);
    assert_eq!(
        sampler.sample(Nanos(0), &[], None).streams[0].bytes,
        Bytes(0)
    );
    let more = sampler.sample(Nanos(0), &[Bytes(1), Bytes(2)], None);
    assert_eq!(more.streams.len(), 2);
    assert_eq!(more.streams[1].tcp, None);
}

#[test]
fn requested_options_are_in_force_or_reported() {
    let limit = |name| -> u64 {
        let text = std::fs::read_to_string(format!("/proc/sys/net/core/{name}"));
        text.unwrap().trim().parse().unwrap()
    };
    let (wmem_max, rmem_max) = (limit("wmem_max"), limit("rmem_max"));
    let asked = SocketSettings {
        send_buffer: Some(Bytes(wmem_max)),
        receive_buffer: Some(Bytes(rmem_max)),
        mss: Some(1400),
        congestion: Some("reno".to_owned()),
        nodelay: Some(true),
        pacing: Some(BitRate(2_500_000_000)),
        dscp: Some(46),
        notsent_lowat: Some(Bytes(131_072)),
        ip_version: None,
    };
    let state = configured(&asked);
    assert_eq!(state.send_buffer, Bytes(2 * wmem_max));
    assert_eq!(state.receive_buffer, Bytes(2 * rmem_max));
    assert_eq!(state.congestion, "reno");
    assert_eq!((state.pacing, state.dscp), (asked.pacing, 46));
    assert_eq!(state.notsent_lowat, asked.notsent_lowat);
    assert!(state.snd_wscale.is_some() && state.rcv_wscale.is_some());
    // Less the timestamps option, which every segment carries.
    assert_eq!(state.mss, 1388);
    assert_eq!(setting_warnings(&asked, &state, "this host"), []);

    let asked = SocketSettings {
        send_buffer: Some(Bytes(2 * wmem_max)),
        receive_buffer: Some(Bytes(1)),
        ..asked
    };
    let state = configured(&asked);
    let [send, receive] = &setting_warnings(&asked, &state, "this host")[..] else {
        panic!("one warning a buffer");
    };
    let limit = format!("net.core.wmem_max is {wmem_max} there");
    assert!(send.remedy.starts_with(&limit), "{send:?}");
    assert!(receive.meaning.contains("least"), "{receive:?}");
}

/// The state of a client's socket that was set up as asked before it connected.
fn configured(asked: &SocketSettings) -> SocketOptions {
    let bytes = |size: Option<Bytes>| i32::try_from(size.unwrap().0).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let socket = set::tcp(&address).unwrap();
    let fd = socket.as_fd();
    set::set(fd, set::SEND_BUFFER, bytes(asked.send_buffer)).unwrap();
    set::set(fd, set::RECEIVE_BUFFER, bytes(asked.receive_buffer)).unwrap();
    set::set(fd, set::MSS, asked.mss.unwrap().cast_signed()).unwrap();
    set::set_congestion(fd, asked.congestion.as_ref().unwrap()).unwrap();
    let nodelay = set::tcp_option(libc::TCP_NODELAY);
    set::set(fd, nodelay, asked.nodelay.unwrap().into()).unwrap();
    set::set(fd, set::NOTSENT_LOWAT, bytes(asked.notsent_lowat)).unwrap();
    set::set_pacing(fd, asked.pacing.unwrap().0 / 8).unwrap();
    set::set_tos(fd, false, asked.dscp.unwrap() << 2).unwrap();
    set::connect(fd, &address, Duration::from_secs(5)).unwrap();
    socket_options(0, fd).unwrap()
}

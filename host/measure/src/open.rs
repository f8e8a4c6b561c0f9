//! Sockets with their options set before the handshake, so that the SYN (and SYN-ACK) carry them.

use crate::prelude::*;
use model::{OptionCall, OptionUnit, Placement, SOCKET_OPTIONS, SocketSettings};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::path::Path;
use sys::probe::Said;

/// Connections that may wait to be accepted; the kernel cuts it to `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// Opens a data connection. Buffers, MSS, congestion control, pacing, DSCP, source address and
/// device are in force from the SYN on, which therefore announces the right window scale and MSS.
/// The stream is in blocking mode.
pub fn connect(
    remote: SocketAddr,
    settings: &SocketSettings,
    placement: &Placement,
    timeout: Duration,
) -> Result<TcpStream, Error> {
    connect_from(0, remote, settings, placement, timeout)
}

/// The same from a port below 1024, required by servers that take a client's word for who its user is
/// (RFC 2623); from any where this process may have none, or all are in use.
pub fn connect_privileged(
    remote: SocketAddr,
    settings: &SocketSettings,
    placement: &Placement,
    timeout: Duration,
) -> Result<TcpStream, Error> {
    // Below are those of known services.
    for port in (600..1024).rev() {
        let connected = connect_from(port, remote, settings, placement, timeout);
        match &connected {
            Err(Error::Option { source, .. }) if source.kind() == io::ErrorKind::AddrInUse => {}
            Err(Error::System { source, .. })
                if source.kind() == io::ErrorKind::AddrNotAvailable => {}
            Err(Error::Option { source, .. })
                if source.kind() == io::ErrorKind::PermissionDenied =>
            {
                break;
            }
            _ => return connected,
        }
    }
    connect(remote, settings, placement, timeout)
}

/// From this port; 0: the kernel's choice.
fn connect_from(
    port: u16,
    remote: SocketAddr,
    settings: &SocketSettings,
    placement: &Placement,
    timeout: Duration,
) -> Result<TcpStream, Error> {
    let socket = prepared(socket::tcp, &remote, settings, placement)?;
    let fd = socket.as_fd();
    let any = (port != 0).then(|| unspecified(remote));
    if let Some(address) = placement.bind_address.or(any) {
        same_version(address, remote)?;
        bind(fd, SocketAddr::new(address, port))?;
    }
    let ipv6 = remote.is_ipv6();
    // Who rejects it by ICMP is known from the error queue alone. Without it the connection is made all the same.
    let _ = sys::probe::receive_errors_of(fd, ipv6);
    socket::connect(fd, &remote, timeout).map_err(|error| {
        let message = sys::probe::take_message(fd).ok().flatten();
        let rejects = message.filter(|message| message.what == Said::Unreachable);
        // Without a neighbour this host's own kernel says so.
        let others = |from: &IpAddr| std::net::UdpSocket::bind((*from, 0)).is_err();
        match rejects.and_then(|message| message.from).filter(others) {
            Some(from) => Error::Rejected { remote, from },
            None => refused(remote, timeout, error),
        }
    })?;
    // From here on an ICMP message is no error that ends the connection.
    let _ = sys::probe::forget_messages(fd, ipv6);
    if let Some(name) = &settings.congestion {
        // A route's congctl replaced it at the handshake (tcp_ca_dst_init, net/ipv4/tcp_output.c). One
        // that is locked stays, and reading back shows it.
        let _ = socket::set_congestion(fd, name);
    }
    Ok(socket.into())
}

/// Any address of this host, in the version of IP of the remote one.
fn unspecified(remote: SocketAddr) -> IpAddr {
    match remote {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

fn same_version(source: IpAddr, remote: SocketAddr) -> Result<(), Error> {
    match source.is_ipv4() == remote.is_ipv4() {
        true => Ok(()),
        false => Err(Error::Job(format!(
            "source address {source} and destination {} are of different IP versions; \
             choose an address of the other version for one of them",
            remote.ip()
        ))),
    }
}

/// Opens a stream of datagrams: a UDP socket connected to this address. The settings of TCP do not apply.
pub fn connect_datagrams(
    remote: SocketAddr,
    settings: &SocketSettings,
    placement: &Placement,
) -> Result<UdpSocket, Error> {
    let local = placement.bind_address.unwrap_or(unspecified(remote));
    same_version(local, remote)?;
    let local = SocketAddr::new(local, 0);
    let socket = prepared(socket::udp, &local, settings, placement)?;
    bind(socket.as_fd(), local)?;
    let udp = UdpSocket::from(socket);
    let connected = udp.connect(remote);
    connected.map_err(|error| refused(remote, Duration::ZERO, error))?;
    Ok(udp)
}

/// Opens a port that nobody else has, for streams of datagrams. A bind address in `placement` takes the place of the
/// one in `local`.
pub fn listen_datagrams(
    local: SocketAddr,
    settings: &SocketSettings,
    placement: &Placement,
) -> Result<UdpSocket, Error> {
    let local = SocketAddr::new(placement.bind_address.unwrap_or(local.ip()), local.port());
    let socket = prepared(socket::udp, &local, settings, placement)?;
    bind(socket.as_fd(), local)?;
    share(socket.as_fd())?;
    Ok(socket.into())
}

/// A further socket at the port of [`listen_datagrams`], to be connected to the address of one stream.
pub fn bind_datagrams(
    local: SocketAddr,
    settings: &SocketSettings,
    placement: &Placement,
) -> Result<UdpSocket, Error> {
    let socket = prepared(socket::udp, &local, settings, placement)?;
    share(socket.as_fd())?;
    bind(socket.as_fd(), local)?;
    Ok(socket.into())
}

fn share(fd: BorrowedFd<'_>) -> Result<(), Error> {
    let shared = socket::set(fd, socket::REUSE_PORT, 1);
    shared.map_err(|e| Error::system("set SO_REUSEPORT", e))
}

/// Opens a data listener. Accepted sockets inherit the options, so the SYN-ACK carries them. A
/// bind address in `placement` takes the place of the one in `local`.
pub fn listen(
    local: SocketAddr,
    settings: &SocketSettings,
    placement: &Placement,
) -> Result<TcpListener, Error> {
    let local = SocketAddr::new(placement.bind_address.unwrap_or(local.ip()), local.port());
    let socket = prepared(socket::tcp, &local, settings, placement)?;
    let fd = socket.as_fd();
    socket::set(fd, socket::REUSE_ADDRESS, 1).map_err(|e| Error::system("set SO_REUSEADDR", e))?;
    bind(fd, local)?;
    socket::listen(fd, BACKLOG).map_err(|e| Error::system(format!("listen on {local}"), e))?;
    Ok(socket.into())
}

/// Sets the options on a stream whose listener did not have them. Window scale and announced MSS
/// stay what the handshake said.
pub fn accept_options(stream: &TcpStream, settings: &SocketSettings) -> Result<(), Error> {
    let local = stream
        .local_addr()
        .map_err(|e| Error::system("read the local address of a data connection", e))?;
    set_options(stream.as_fd(), local.is_ipv6(), settings)
}

/// A new socket with its options, for this local or remote address.
fn prepared(
    open: fn(&SocketAddr) -> io::Result<OwnedFd>,
    address: &SocketAddr,
    settings: &SocketSettings,
    placement: &Placement,
) -> Result<OwnedFd, Error> {
    let socket = open(address).map_err(|e| Error::system("open a socket", e))?;
    let fd = socket.as_fd();
    set_options(fd, address.is_ipv6(), settings)?;
    if address.is_ipv6() && address.ip().is_unspecified() {
        // One socket for both IP versions, whatever net.ipv6.bindv6only says.
        socket::set(fd, socket::V6_ONLY, 0).map_err(|e| Error::system("clear IPV6_V6ONLY", e))?;
    }
    if let Some(name) = &placement.bind_device {
        socket::set_device(fd, name).map_err(|e| no_device(name, e))?;
    }
    Ok(socket)
}

fn set_options(fd: BorrowedFd<'_>, ipv6: bool, settings: &SocketSettings) -> Result<(), Error> {
    for option in &SOCKET_OPTIONS {
        let Some(value) = (option.asked)(settings) else {
            continue;
        };
        let shown = || match option.unit {
            OptionUnit::Switch => (value == 1).to_string(),
            unit => unit.format(value),
        };
        let (least, most, range) = option.range;
        if !(least..=most).contains(&value) {
            return Err(Error::range(option.label, shown(), range));
        }
        set_option(fd, ipv6, option.call, value)
            .map_err(|e| Error::option(option.label, shown(), e, option.if_refused))?;
    }
    if let Some(name) = &settings.congestion {
        socket::set_congestion(fd, name).map_err(|e| no_congestion(name, e, &modules()))?;
    }
    Ok(())
}

/// Sets an option to a value within its range.
fn set_option(fd: BorrowedFd<'_>, ipv6: bool, call: OptionCall, value: u64) -> io::Result<()> {
    match call {
        OptionCall::Tcp(name) => socket::set(fd, socket::tcp_option(name), value as i32),
        OptionCall::SendBuffer => socket::set(fd, socket::SEND_BUFFER, value as i32),
        OptionCall::ReceiveBuffer => socket::set(fd, socket::RECEIVE_BUFFER, value as i32),
        OptionCall::PacingRate => socket::set_pacing(fd, value / 8),
        OptionCall::TrafficClass => socket::set_tos(fd, ipv6, (value as u8) << 2),
    }
}

fn bind(fd: BorrowedFd<'_>, local: SocketAddr) -> Result<(), Error> {
    socket::bind(fd, &local).map_err(|e| {
        let remedy = match e.raw_os_error() {
            Some(libc::EADDRNOTAVAIL) => {
                "no device of this host has it; `ip address` lists those there are"
            }
            Some(libc::EADDRINUSE) => {
                "another process listens there; choose another port or stop that process"
            }
            _ => "choose another address or port",
        };
        let value = if local.port() == 0 {
            local.ip().to_string()
        } else {
            local.to_string()
        };
        Error::option("bind address", value, e, remedy)
    })
}

fn no_device(name: &str, e: io::Error) -> Error {
    let remedy = if e.raw_os_error() == Some(libc::EPERM) {
        "this needs CAP_NET_RAW; bind to the device's address instead".to_owned()
    } else {
        let mut names: Vec<String> = fs::read_dir("/sys/class/net")
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        format!("this host has: {}", names.join(", "))
    };
    Error::option("bind device", name, e, remedy)
}

fn no_congestion(name: &str, e: io::Error, modules: &str) -> Error {
    let listed = |which: &str| {
        let list = fs::read_to_string(format!("/proc/sys/net/ipv4/tcp_{which}_congestion_control"));
        list.unwrap_or_default()
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(", ")
    };
    let available = listed("available");
    let remedy = match e.raw_os_error() {
        Some(libc::EPERM) => format!(
            "this kernel lets only root choose it; add it to \
             net.ipv4.tcp_allowed_congestion_control or take one of: {}",
            listed("allowed")
        ),
        Some(libc::ENOENT) if has_module(modules, name) => {
            format!("its module is not loaded: modprobe tcp_{name}; available: {available}")
        }
        Some(libc::ENOENT) => {
            format!("this kernel has no module of that name; available: {available}")
        }
        _ => format!("available: {available}"),
    };
    Error::option("congestion control", name, e, remedy)
}

/// The modules that the running kernel was installed with, a line each: "kernel/net/ipv4/tcp_bbr.ko.xz: dependencies".
fn modules() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let modules = Path::new("/lib/modules").join(release.trim());
    fs::read_to_string(modules.join("modules.dep")).unwrap_or_default()
}

/// Whether there is one for this congestion control.
fn has_module(modules: &str, name: &str) -> bool {
    let file = format!("/tcp_{name}.ko");
    modules.lines().any(|line| {
        line.split(':')
            .next()
            .is_some_and(|path| path.contains(&file))
    })
}

fn refused(remote: SocketAddr, after: Duration, e: io::Error) -> Error {
    match e.kind() {
        io::ErrorKind::ConnectionRefused => Error::Refused(remote),
        io::ErrorKind::TimedOut => Error::Timeout { remote, after },
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            Error::Unreachable { remote, source: e }
        }
        io::ErrorKind::AddrNotAvailable => Error::System {
            what: format!(
                "connect to {remote}: no free local port or address (see \
                 net.ipv4.ip_local_port_range)"
            ),
            source: e,
        },
        _ => Error::System {
            what: format!("connect to {remote}"),
            source: e,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{BitRate, Bytes};

    const SHORTLY: Duration = Duration::from_secs(5);

    fn listener(settings: &SocketSettings) -> TcpListener {
        let local = (Ipv4Addr::LOCALHOST, 0).into();
        listen(local, settings, &Placement::default()).unwrap()
    }

    fn refusal(settings: SocketSettings, placement: Placement) -> String {
        let listener = listener(&SocketSettings::default());
        let remote = listener.local_addr().unwrap();
        connect(remote, &settings, &placement, SHORTLY)
            .unwrap_err()
            .to_string()
    }

    fn option(socket: &TcpStream, level: i32, name: i32) -> i32 {
        sys::socket::get(socket.as_fd(), (level, name)).unwrap()
    }

    #[test]
    fn options_are_in_force_at_both_ends() {
        // asm-generic/socket.h, netinet/in.h, netinet/tcp.h.
        let settings = SocketSettings {
            send_buffer: Some(Bytes(50_000)),
            receive_buffer: Some(Bytes(60_000)),
            mss: Some(600),
            congestion: Some("reno".into()),
            nodelay: Some(true),
            pacing: Some(BitRate(8_000_000)),
            dscp: Some(46),
            notsent_lowat: Some(Bytes(131_072)),
            ip_version: None,
        };
        let listener = listener(&settings);
        let remote = listener.local_addr().unwrap();
        let local = connect(remote, &settings, &Placement::default(), SHORTLY).unwrap();
        let remote = listener.accept().unwrap().0;
        accept_options(&remote, &settings).unwrap();
        for stream in [&local, &remote] {
            assert_eq!(option(stream, 1, 7), 100_000, "SO_SNDBUF, doubled");
            assert_eq!(option(stream, 1, 8), 120_000, "SO_RCVBUF, doubled");
            assert_eq!(
                option(stream, 1, 47),
                1_000_000,
                "SO_MAX_PACING_RATE, bytes"
            );
            // Timestamps take twelve bytes of each segment (RFC 7323).
            let mss = option(stream, 6, 2);
            assert!((588..=600).contains(&mss), "TCP_MAXSEG {mss}");
            assert_eq!(option(stream, 6, 1), 1, "TCP_NODELAY");
            assert_eq!(option(stream, 0, 1), 46 << 2, "IP_TOS");
            assert_eq!(
                option(stream, 6, 13),
                i32::from_ne_bytes(*b"reno"),
                "TCP_CONGESTION"
            );
            assert_eq!(option(stream, 6, 25), 131_072, "TCP_NOTSENT_LOWAT");
        }
    }

    #[test]
    fn values_out_of_range_are_named() {
        let cases: [(SocketSettings, &str); 6] = [
            (
                SocketSettings {
                    mss: Some(40),
                    ..SocketSettings::default()
                },
                "MSS 40 is out of range; Linux takes 88 to 32767 bytes",
            ),
            (
                SocketSettings {
                    dscp: Some(64),
                    ..SocketSettings::default()
                },
                "DSCP 64 is out of range",
            ),
            (
                SocketSettings {
                    send_buffer: Some(Bytes(1 << 40)),
                    ..SocketSettings::default()
                },
                "send buffer 1.00 TiB is out of range",
            ),
            (
                SocketSettings {
                    receive_buffer: Some(Bytes(0)),
                    ..SocketSettings::default()
                },
                "receive buffer 0 B is out of range",
            ),
            (
                SocketSettings {
                    pacing: Some(BitRate(0)),
                    ..SocketSettings::default()
                },
                "pacing 0.00 bit/s is out of range",
            ),
            (
                SocketSettings {
                    congestion: Some("warp".into()),
                    ..SocketSettings::default()
                },
                "cannot set congestion control to warp",
            ),
        ];
        for (settings, words) in cases {
            let said = refusal(settings, Placement::default());
            assert!(said.starts_with(words), "{said}");
        }
        let unknown = SocketSettings {
            congestion: Some("warp".into()),
            ..SocketSettings::default()
        };
        let said = refusal(unknown, Placement::default());
        assert!(
            said.contains("available: ") && said.contains("reno"),
            "{said}"
        );
    }

    #[test]
    fn a_module_that_is_there_is_to_be_loaded() {
        let modules = "kernel/net/ipv4/tcp_bbr.ko.xz: kernel/lib/y.ko\nkernel/x.ko: kernel/net/ipv4/tcp_cdg.ko";
        for (name, says) in [
            ("bbr", "modprobe tcp_bbr"),
            ("cdg", "no module of that name"),
        ] {
            let missing = io::Error::from_raw_os_error(libc::ENOENT);
            let said = no_congestion(name, missing, modules).to_string();
            assert!(said.contains(says), "{said}");
        }
    }

    #[test]
    fn places_that_are_not_there_are_named() {
        let placed = |placement| refusal(SocketSettings::default(), placement);
        let said = placed(Placement {
            bind_device: Some("nosuch0".into()),
            ..Placement::default()
        });
        assert!(said.contains("bind device to nosuch0"), "{said}");
        assert!(said.contains("this host has: "), "{said}");
        let said = placed(Placement {
            // TEST-NET-1, RFC 5737: no host has it.
            bind_address: Some(Ipv4Addr::new(192, 0, 2, 1).into()),
            ..Placement::default()
        });
        assert!(said.contains("no device of this host has it"), "{said}");
        assert!(said.contains("bind address to 192.0.2.1: "), "{said}");
        let said = placed(Placement {
            bind_address: Some(std::net::Ipv6Addr::LOCALHOST.into()),
            ..Placement::default()
        });
        assert!(said.contains("different IP versions"), "{said}");
    }

    #[test]
    fn a_closed_port_refuses_and_a_full_backlog_times_out() {
        let closed = listener(&SocketSettings::default()).local_addr().unwrap();
        let plain = SocketSettings::default();
        let here = Placement::default();
        let refused = connect(closed, &plain, &here, SHORTLY).unwrap_err();
        assert!(
            matches!(refused, Error::Refused(a) if a == closed),
            "{refused}"
        );

        // A listener with a backlog of nothing drops further SYNs.
        let full = prepared(socket::tcp, &(Ipv4Addr::LOCALHOST, 0).into(), &plain, &here).unwrap();
        bind(full.as_fd(), (Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        socket::listen(full.as_fd(), 0).unwrap();
        let full: TcpListener = full.into();
        let remote = full.local_addr().unwrap();
        let mut waiting = Vec::new();
        let late = loop {
            match connect(remote, &plain, &here, Duration::from_millis(100)) {
                Ok(stream) => waiting.push(stream),
                Err(e) => break e,
            }
            assert!(waiting.len() < 10, "the backlog takes everything");
        };
        assert!(matches!(late, Error::Timeout { .. }), "{late}");
        assert!(late.to_string().contains("within 0.1 s"), "{late}");
    }

    #[test]
    fn each_error_of_a_connection_has_its_own_sentence() {
        let remote: SocketAddr = (Ipv4Addr::LOCALHOST, 5201).into();
        for (number, says) in [
            (libc::ECONNREFUSED, "127.0.0.1:5201 answered with a reset"),
            (
                libc::ETIMEDOUT,
                "no answer at all from 127.0.0.1:5201 within 5 s",
            ),
            (libc::EHOSTUNREACH, "127.0.0.1:5201 cannot be reached"),
            (libc::ENETUNREACH, "127.0.0.1:5201 cannot be reached"),
            (
                libc::EADDRNOTAVAIL,
                "cannot connect to 127.0.0.1:5201: no free local port",
            ),
            (libc::EPERM, "cannot connect to 127.0.0.1:5201: "),
        ] {
            let said = refused(remote, SHORTLY, io::Error::from_raw_os_error(number)).to_string();
            assert!(said.starts_with(says), "{said}");
            assert_eq!(
                said.contains("free local port"),
                number == libc::EADDRNOTAVAIL
            );
        }
    }

    #[test]
    fn a_port_in_use_is_said() {
        let taken = listener(&SocketSettings::default());
        let local = taken.local_addr().unwrap();
        let again = listen(local, &SocketSettings::default(), &Placement::default());
        let said = again.unwrap_err().to_string();
        assert!(said.contains("another process listens there"), "{said}");
        assert!(said.contains(&format!(" to {local}: ")), "{said}");
    }

    #[test]
    fn options_are_taken_at_their_bounds_and_not_beyond() {
        let taken = |change: &dyn Fn(&mut SocketSettings)| {
            let mut settings = SocketSettings::default();
            change(&mut settings);
            let address = (Ipv4Addr::LOCALHOST, 0).into();
            let socket = prepared(socket::tcp, &address, &settings, &Placement::default());
            socket.map(drop).map_err(|error| error.to_string())
        };
        for fits in [
            taken(&|s| s.mss = Some(88)),
            taken(&|s| s.mss = Some(32_767)),
            taken(&|s| s.dscp = Some(0)),
            taken(&|s| s.dscp = Some(63)),
            taken(&|s| s.send_buffer = Some(Bytes(1))),
            taken(&|s| s.receive_buffer = Some(Bytes((1 << 30) - 1))),
        ] {
            assert_eq!(fits, Ok(()));
        }
        for beyond in [
            taken(&|s| s.mss = Some(87)),
            taken(&|s| s.mss = Some(32_768)),
            taken(&|s| s.dscp = Some(64)),
            taken(&|s| s.send_buffer = Some(Bytes(0))),
            taken(&|s| s.receive_buffer = Some(Bytes(1 << 30))),
        ] {
            assert!(beyond.unwrap_err().contains("is out of range"));
        }
    }

    #[test]
    fn the_address_of_this_host_is_of_the_version_of_the_remote_one() {
        let v4: SocketAddr = (Ipv4Addr::LOCALHOST, 1).into();
        let v6: SocketAddr = (Ipv6Addr::LOCALHOST, 1).into();
        assert_eq!(unspecified(v4), IpAddr::from(Ipv4Addr::UNSPECIFIED));
        assert_eq!(unspecified(v6), IpAddr::from(Ipv6Addr::UNSPECIFIED));
        assert!(same_version(v4.ip(), v4).is_ok() && same_version(v6.ip(), v6).is_ok());
        assert!(same_version(v4.ip(), v6).is_err() && same_version(v6.ip(), v4).is_err());
        // One listener for both versions.
        let all = (Ipv6Addr::UNSPECIFIED, 0).into();
        let both = listen(all, &SocketSettings::default(), &Placement::default()).unwrap();
        let port = both.local_addr().unwrap().port();
        for at in [v4.ip(), v6.ip()] {
            TcpStream::connect((at, port)).unwrap();
        }
    }

    #[test]
    fn a_port_of_datagrams_is_shared_by_those_that_are_bound_to_it_later() {
        let (settings, here) = (SocketSettings::default(), Placement::default());
        let port = listen_datagrams((Ipv4Addr::LOCALHOST, 0).into(), &settings, &here).unwrap();
        let local = port.local_addr().unwrap();
        let stream = bind_datagrams(local, &settings, &here).unwrap();
        assert_eq!(stream.local_addr().unwrap(), local);
        let taken = listen_datagrams(local, &settings, &here)
            .unwrap_err()
            .to_string();
        assert!(taken.contains("another process listens there"), "{taken}");
        let elsewhere = Placement {
            bind_address: Some(Ipv4Addr::new(127, 0, 0, 2).into()),
            ..Placement::default()
        };
        let connected = connect_datagrams(local, &settings, &elsewhere).unwrap();
        assert_eq!(
            connected.local_addr().unwrap().ip(),
            Ipv4Addr::new(127, 0, 0, 2)
        );
        assert_eq!(connected.peer_addr().unwrap(), local);
        let other = listen(local, &settings, &elsewhere)
            .unwrap()
            .local_addr()
            .unwrap();
        assert_eq!(other.ip(), Ipv4Addr::new(127, 0, 0, 2));
    }

    #[test]
    fn what_a_congestion_control_lacks_is_said_by_the_error() {
        let said = |errno| {
            let error = io::Error::from_raw_os_error(errno);
            no_congestion("warp", error, "").to_string()
        };
        assert!(said(libc::EPERM).contains("this kernel lets only root choose it"));
        assert!(said(libc::ENOENT).contains("has no module of that name"));
        let other = said(libc::EINVAL);
        assert!(
            !other.contains("module") && other.contains("available: "),
            "{other}"
        );
        let device = |errno| no_device("eth9", io::Error::from_raw_os_error(errno)).to_string();
        assert!(device(libc::EPERM).contains("CAP_NET_RAW"));
        assert!(device(libc::ENODEV).contains("this host has: "));
    }
}

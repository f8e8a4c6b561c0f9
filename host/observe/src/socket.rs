//! The options of a live socket as the kernel holds them.

use crate::{Error, tcp_info};
use model::{BitRate, OptionCall, SOCKET_OPTIONS, SocketOptions};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::BorrowedFd;
use sys::read_option::{read_int_option, read_option};

/// Reads back the options of a connected socket, TCP or UDP. IPv4 in an IPv6 socket is reported as IPv4.
///
/// # Errors
/// [`Error`] if the socket is not connected, or not one of the internet protocols.
pub fn socket_options(stream: u32, fd: BorrowedFd<'_>) -> Result<SocketOptions, Error> {
    let int = |what, level, name| {
        read_int_option(fd, level, name).map_err(|source| Error { what, source })
    };
    let (local, remote) = addresses(fd)?;
    let buffer = |option, name| {
        let held = int(option, libc::SOL_SOCKET, name)?;
        Ok(u64::try_from(held).unwrap_or(0))
    };
    let is_tcp = int("SO_PROTOCOL", libc::SOL_SOCKET, libc::SO_PROTOCOL)? == libc::IPPROTO_TCP;
    let mut options = SocketOptions::new(stream, local, remote);
    for option in &SOCKET_OPTIONS {
        let value = match option.call {
            OptionCall::Tcp(_) if !is_tcp => continue,
            OptionCall::Tcp(name) => int(option.kernel, libc::IPPROTO_TCP, name)?
                .cast_unsigned()
                .into(),
            OptionCall::SendBuffer => buffer(option.kernel, libc::SO_SNDBUF)?,
            OptionCall::ReceiveBuffer => buffer(option.kernel, libc::SO_RCVBUF)?,
            OptionCall::PacingRate => match pacing(fd)? {
                Some(rate) => rate.0,
                None => continue,
            },
            // The upper six bits; the lower two are ECN (RFC 3168).
            OptionCall::TrafficClass => {
                let class = match remote {
                    SocketAddr::V4(_) => int("IP_TOS", libc::IPPROTO_IP, libc::IP_TOS)?,
                    SocketAddr::V6(_) => int("IPV6_TCLASS", libc::IPPROTO_IPV6, libc::IPV6_TCLASS)?,
                };
                u64::from((class.cast_unsigned() >> 2) & 0x3f)
            }
        };
        (option.keep)(&mut options, value);
    }
    if is_tcp {
        options.congestion = congestion(fd)?;
        // Not worth losing the rest for.
        let info = tcp_info(fd).ok();
        options.snd_wscale = info.as_ref().and_then(|info| info.snd_wscale());
        options.rcv_wscale = info.as_ref().and_then(|info| info.rcv_wscale());
    }
    Ok(options)
}

fn addresses(fd: BorrowedFd<'_>) -> Result<(SocketAddr, SocketAddr), Error> {
    let failed = |what| move |source| Error { what, source };
    // std reads the addresses of any internet socket through its TcpStream, which must own what it
    // reads: a duplicate, closed again at once.
    let socket = TcpStream::from(
        fd.try_clone_to_owned()
            .map_err(failed("the local address"))?,
    );
    let canonical = |a: SocketAddr| SocketAddr::new(a.ip().to_canonical(), a.port());
    Ok((
        canonical(socket.local_addr().map_err(failed("the local address"))?),
        canonical(socket.peer_addr().map_err(failed("the remote address"))?),
    ))
}

fn congestion(fd: BorrowedFd<'_>) -> Result<String, Error> {
    // TCP_CA_NAME_MAX is 16, the final NUL included.
    let mut name = [0; 16];
    let what = "TCP_CONGESTION";
    let filled = read_option(fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION, &mut name)
        .map_err(|source| Error { what, source })?;
    let name = name[..filled].split(|b| *b == 0).next().unwrap_or(&[]);
    Ok(String::from_utf8_lossy(name).into_owned())
}

/// Bytes a second in the kernel: 64 bits since 4.20 if there is room for them, else 32; all ones
/// mean no limit.
fn pacing(fd: BorrowedFd<'_>) -> Result<Option<BitRate>, Error> {
    let mut rate = [0; 8];
    let what = "SO_MAX_PACING_RATE";
    let filled = read_option(fd, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &mut rate)
        .map_err(|source| Error { what, source })?;
    let limit = if filled == 8 {
        Some(u64::from_ne_bytes(rate)).filter(|r| *r != u64::MAX)
    } else {
        let [a, b, c, d, ..] = rate;
        let short = u32::from_ne_bytes([a, b, c, d]);
        Some(u64::from(short)).filter(|r| *r != u64::from(u32::MAX))
    };
    Ok(limit.map(|bytes| BitRate(bytes.saturating_mul(8))))
}

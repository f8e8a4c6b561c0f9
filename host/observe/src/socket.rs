//! The options of a live socket as the kernel holds them.

use crate::{Error, tcp_info};
use model::{BitRate, OptionCall, SOCKET_OPTIONS, SocketOptions};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::BorrowedFd;
use sys::socket::{self, IntOption, read_option, tcp_option};

/// Reads back the options of a connected socket, TCP or UDP. IPv4 in an IPv6 socket is reported as IPv4.
///
/// # Errors
/// [`Error`] if the socket is not connected, or not one of the internet protocols.
pub fn socket_options(stream: u32, fd: BorrowedFd<'_>) -> Result<SocketOptions, Error> {
    let int = |what, option: IntOption| {
        let value = socket::get(fd, option).map_err(|source| Error { what, source })?;
        Ok(value.cast_unsigned())
    };
    let (local, remote) = addresses(fd)?;
    let is_tcp = int("SO_PROTOCOL", socket::PROTOCOL)? == libc::IPPROTO_TCP as u32;
    let mut options = SocketOptions::new(stream, local, remote);
    for option in &SOCKET_OPTIONS {
        let value = match option.call {
            OptionCall::Tcp(_) if !is_tcp => continue,
            OptionCall::Tcp(name) => int(option.kernel, tcp_option(name))?.into(),
            OptionCall::SendBuffer => int(option.kernel, socket::SEND_BUFFER)?.into(),
            OptionCall::ReceiveBuffer => int(option.kernel, socket::RECEIVE_BUFFER)?.into(),
            OptionCall::PacingRate => match pacing(fd)? {
                Some(rate) => rate.0,
                None => continue,
            },
            // The upper six bits; the lower two are ECN (RFC 3168).
            OptionCall::TrafficClass => {
                let class = match remote {
                    SocketAddr::V4(_) => int("IP_TOS", socket::TOS)?,
                    SocketAddr::V6(_) => int("IPV6_TCLASS", socket::TRAFFIC_CLASS)?,
                };
                ((class >> 2) & 0x3f).into()
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
    let filled = read_option(fd, tcp_option(libc::TCP_CONGESTION), &mut name)
        .map_err(|source| Error { what, source })?;
    let name = name[..filled].split(|b| *b == 0).next().unwrap_or(&[]);
    Ok(String::from_utf8_lossy(name).into_owned())
}

/// Bytes a second in the kernel: 64 bits since 4.20 if there is room for them, else 32; all ones
/// mean no limit.
fn pacing(fd: BorrowedFd<'_>) -> Result<Option<BitRate>, Error> {
    let mut rate = [0; 8];
    let what = "SO_MAX_PACING_RATE";
    let option = (libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE);
    let filled = read_option(fd, option, &mut rate).map_err(|source| Error { what, source })?;
    let limit = if filled == 8 {
        Some(u64::from_ne_bytes(rate)).filter(|r| *r != u64::MAX)
    } else {
        let [a, b, c, d, ..] = rate;
        let short = u32::from_ne_bytes([a, b, c, d]);
        Some(u64::from(short)).filter(|r| *r != u64::from(u32::MAX))
    };
    Ok(limit.map(|bytes| BitRate(bytes.saturating_mul(8))))
}

//! The TCP sockets of a network namespace, as the kernel reports them: sock_diag(7), `include/uapi/linux/inet_diag.h`.

use crate::decode_tcp_info;
use crate::trace::Filter;
use model::{Bytes, SocketState, TraceSample, socket_state};
use std::io;
use std::net::{IpAddr, SocketAddr};
use sys::netlink::{
    Conversation, Protocol, Socket, address, attributes, messages, octets, push, text, u16_at,
    u32_at,
};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// `SKNLGRP_INET_TCP_DESTROY` and `SKNLGRP_INET6_TCP_DESTROY`.
const DESTROYED: [i32; 2] = [1, 3];

/// Attributes of an answer, and the one of a question.
const INFO: u16 = 2;
const CONGESTION: u16 = 4;
const MEMORY: u16 = 7;
const BYTECODE: u16 = 1;

/// `struct nlmsghdr`, `struct inet_diag_msg`.
const HEADER: usize = 16;
const ANSWER: usize = 72;

/// States that are reported: all but listeners, TIME_WAIT and what has no socket yet (`TCPF_*`).
const STATES: u32 = 0xfff & !(1 << 6 | 1 << 7 | 1 << 10);

/// A datagram of a dump (`max_recvmsg_len` in `net/netlink/af_netlink.c`).
const ROOM: usize = 64 * 1024;

/// A socket at the moment of its answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DiagReport {
    pub cookie: u64,
    /// Zero once no process holds it.
    pub inode: u32,
    /// Without its time, connection and process.
    pub sample: TraceSample,
}

/// A socket's two addresses, its own first.
pub(crate) type Pair = (SocketAddr, SocketAddr);

/// Bytes of messages about ended sockets that may wait: some 3,000 of them.
const WAITING: i32 = 4 << 20;

/// Dumps all sockets, and receives those that end.
pub(crate) struct DiagSockets {
    dumps: Conversation,
    ended: Option<Socket>,
    /// Times that messages about ended sockets were lost: too many had waited.
    pub overruns: u64,
    bytecode: Vec<u8>,
    room: Vec<u8>,
}

impl DiagSockets {
    /// Of the calling thread's network namespace. Needs no privilege.
    pub(crate) fn open(filter: &Filter) -> io::Result<DiagSockets> {
        let ended = Socket::open(Protocol::Sockets).and_then(|socket| {
            socket.make_room(WAITING);
            DESTROYED.iter().try_for_each(|group| socket.join(*group))?;
            Ok(socket)
        });
        let mut sockets = DiagSockets {
            dumps: Conversation::open(Protocol::Sockets)?,
            ended: ended.ok(),
            overruns: 0,
            bytecode: bytecode(filter),
            room: vec![0; ROOM],
        };
        // A kernel that does not know the conditions gets none: what it reports is judged here as well.
        if sockets.poll(&mut |_, _| ()).is_err() && !sockets.bytecode.is_empty() {
            sockets.bytecode.clear();
        }
        sockets.poll(&mut |_, _| ())?;
        Ok(sockets)
    }

    /// Every socket that may be of interest, now.
    pub(crate) fn poll(&mut self, each: &mut dyn FnMut(Pair, DiagReport)) -> io::Result<()> {
        for family in [libc::AF_INET, libc::AF_INET6] {
            let question = question(family as u8, &self.bytecode);
            let each = &mut |_, body: &[u8]| {
                if let Some((pair, report)) = decode(body) {
                    each(pair, report);
                }
            };
            self.dumps.dump_each(SOCK_DIAG_BY_FAMILY, &question, each)?;
        }
        Ok(())
    }

    /// One socket by its addresses and cookie, now; `None` if it has ended.
    pub(crate) fn one(&mut self, (local, remote): Pair, cookie: u64) -> Option<(Pair, DiagReport)> {
        let question = question_of(local, remote, cookie);
        let answer = self.dumps.get(SOCK_DIAG_BY_FAMILY, &question).ok()?;
        decode(&answer.body)
    }

    /// The last state of every socket that ended since the last call, as far as there was room to keep them.
    pub(crate) fn ended(&mut self, each: &mut dyn FnMut(Pair, DiagReport)) {
        let Some(socket) = &self.ended else { return };
        // A message that was lost is an error once, and not the end.
        for _ in 0..ROOM {
            match socket.receive_now(&mut self.room) {
                Ok(0) => return,
                Ok(length) => {
                    let sockets = messages(&self.room[..length])
                        .filter(|message| u16_at(message, 4) == Some(SOCK_DIAG_BY_FAMILY));
                    let reports = sockets.filter_map(|message| decode(&message[HEADER..]));
                    reports.for_each(|(pair, report)| each(pair, report));
                }
                Err(_) => self.overruns += 1,
            }
        }
    }
}

/// `struct inet_diag_req_v2` up to its `struct inet_diag_sockid`.
fn question_head(family: u8) -> Vec<u8> {
    let extensions: u8 = [INFO, CONGESTION, MEMORY]
        .iter()
        .map(|n| 1 << (n - 1))
        .sum();
    let mut bytes = vec![family, libc::IPPROTO_TCP as u8, extensions, 0];
    bytes.extend(STATES.to_ne_bytes());
    bytes
}

/// About one socket.
fn question_of(local: SocketAddr, remote: SocketAddr, cookie: u64) -> Vec<u8> {
    let mut bytes = question_head(octets(local.ip()).0);
    for end in [local, remote] {
        bytes.extend(end.port().to_be_bytes());
    }
    for end in [local, remote] {
        let mut address = octets(end.ip()).1;
        address.resize(16, 0);
        bytes.extend(address);
    }
    // Any device.
    bytes.extend([0; 4]);
    for half in [cookie as u32, (cookie >> 32) as u32] {
        bytes.extend(half.to_ne_bytes());
    }
    bytes
}

/// About all, and the conditions.
fn question(family: u8, bytecode: &[u8]) -> Vec<u8> {
    let mut bytes = question_head(family);
    bytes.extend([0; 48]);
    if !bytecode.is_empty() {
        push(&mut bytes, BYTECODE, bytecode);
    }
    bytes
}

/// The conditions of a filter as the kernel's `inet_diag_bc_run()` reads them. An operation says how far to go
/// on where it holds and where it does not; four bytes behind the end means no.
fn bytecode(filter: &Filter) -> Vec<u8> {
    /// `INET_DIAG_BC_*`.
    const JUMP: u8 = 1;
    const LOCAL_ADDRESS: u8 = 7;
    const REMOTE_ADDRESS: u8 = 8;
    const LOCAL_PORT: u8 = 11;
    const REMOTE_PORT: u8 = 12;
    let operand = |port: u16| [vec![0, 0], port.to_ne_bytes().to_vec()].concat();
    let mut groups = Vec::new();
    if let Some(port) = filter.port {
        groups.push((LOCAL_PORT, REMOTE_PORT, operand(port)));
    }
    if let Some(host) = filter.host {
        let (family, bits, bytes) = match host.to_canonical() {
            IpAddr::V4(v4) => (libc::AF_INET, 32, v4.octets().to_vec()),
            IpAddr::V6(v6) => (libc::AF_INET6, 128, v6.octets().to_vec()),
        };
        // `struct inet_diag_hostcond`; any port.
        let mut condition = vec![family as u8, bits, 0, 0];
        condition.extend((-1i32).to_ne_bytes());
        condition.extend(bytes);
        groups.push((LOCAL_ADDRESS, REMOTE_ADDRESS, condition));
    }
    let each = |operand: &Vec<u8>| 2 * (4 + operand.len()) + 4;
    let mut left: usize = groups.iter().map(|(.., operand)| each(operand)).sum();
    let mut bytes = Vec::new();
    for (local, remote, operand) in groups {
        let one = 4 + operand.len();
        let mut operation = |code: u8, yes: usize, no: usize, operand: &[u8]| {
            bytes.extend([code, yes as u8]);
            bytes.extend((no as u16).to_ne_bytes());
            bytes.extend(operand);
        };
        operation(local, one, one + 4, &operand);
        operation(JUMP, 4, 4 + one, &[]);
        operation(remote, one, left - one, &operand);
        left -= each(&operand);
    }
    bytes
}

/// `struct inet_diag_msg` with its attributes.
fn decode(body: &[u8]) -> Option<(Pair, DiagReport)> {
    let rest = body.get(ANSWER..)?;
    let word = |at: usize| u32_at(body, at).unwrap_or(0);
    let octets = match i32::from(body[0]) {
        libc::AF_INET => 4,
        _ => 16,
    };
    let end = |ip: usize, port: usize| {
        let ip = address(body.get(ip..ip + octets)?)?.to_canonical();
        Some(SocketAddr::new(ip, u16::from_be(u16_at(body, port)?)))
    };
    let pair = (end(8, 4)?, end(24, 6)?);
    let mut report = DiagReport {
        cookie: u64::from(word(44)) | u64::from(word(48)) << 32,
        inode: word(68),
        ..DiagReport::default()
    };
    let (mut info, mut memory) = (SocketState::default(), [None; 5]);
    for (kind, value) in attributes(rest) {
        match kind {
            INFO => info = decode_tcp_info(value),
            CONGESTION => report.sample.congestion = text(value),
            // SK_MEMINFO_*.
            MEMORY => memory = [0, 1, 2, 3, 5].map(|n| Some(Bytes(u32_at(value, 4 * n)?.into()))),
            _ => {}
        }
    }
    let [rcvbuf_used, rcvbuf, wmem_alloc, sndbuf, sndbuf_used] = memory;
    report.sample.socket = socket_state! {
        from info;
        rqueue: Some(Bytes(word(56).into())),
        rcvbuf_used: rcvbuf_used,
        rcvbuf: rcvbuf,
        wmem_alloc: wmem_alloc,
        sndbuf: sndbuf,
        sndbuf_used: sndbuf_used,
    };
    Some((pair, report))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn the_kernel_reports_a_socket_of_ours_and_accepts_every_condition() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let stream = TcpStream::connect(at).unwrap();
        let ours = (stream.local_addr().unwrap(), at);
        let filters = [
            (Filter::default(), true),
            (
                Filter {
                    port: Some(at.port()),
                    ..Filter::default()
                },
                true,
            ),
            (
                Filter {
                    port: Some(ours.0.port()),
                    host: Some(at.ip()),
                    ..Filter::default()
                },
                true,
            ),
            (
                Filter {
                    port: Some(1),
                    host: Some(at.ip()),
                    ..Filter::default()
                },
                false,
            ),
            (
                Filter {
                    host: Some("::2".parse().unwrap()),
                    ..Filter::default()
                },
                false,
            ),
        ];
        for (filter, wanted) in filters {
            let mut sockets = DiagSockets::open(&filter).unwrap();
            assert_eq!(
                sockets.bytecode,
                bytecode(&filter),
                "the kernel refused {filter:?}"
            );
            let mut found = None;
            sockets
                .poll(&mut |pair, seen| {
                    if pair == ours {
                        found = Some(seen);
                    }
                })
                .unwrap();
            assert_eq!(found.is_some(), wanted, "{filter:?}");
            if let Some(seen) = found {
                assert!(
                    seen.cookie > 0
                        && seen.inode > 0
                        && seen.sample.socket.sndbuf() > Some(Bytes(0)),
                    "{seen:?}"
                );
                assert_eq!(seen.sample.socket.state(), Some(1));
                assert!(!seen.sample.congestion.is_empty());
                let (pair, one) = sockets.one(ours, seen.cookie).unwrap();
                assert_eq!((pair, one.inode), (ours, seen.inode));
                assert!(sockets.one(ours, seen.cookie + 1).is_none());
            }
        }
    }

    proptest! {
        #[test]
        fn any_answer_is_decoded_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            prop_assert_eq!(decode(&bytes).is_some(), bytes.len() >= ANSWER);
        }
    }
}

//! 64 KiB over TCP, which no probe can stand in for: what happens to a transfer.

use super::handshake_mss;
use crate::prelude::*;
use model::SocketState;
use model::mtu::{MssSeen, TcpTruth};

/// Enough that a sender must fill segments.
pub const ASKED: usize = 64 * 1024;

/// A transfer that gets nothing through for so long, and has had so many timeouts meanwhile, hangs: 200,
/// 400 and 800 ms on a near path (RFC 6298 as Linux has it).
const HANGS_AFTER: Duration = Duration::from_millis(1500);
const TIMEOUTS: u16 = 3;

/// It hangs, however few timeouts it had.
const HANGS_ANYWAY: Duration = Duration::from_secs(5);

/// Between two looks.
const LOOK: Duration = Duration::from_millis(2);

/// Stream of a preamble on which the controller sends.
pub const CONTROLLER_SENDS: u32 = 0;

/// Stream of a preamble on which the agent sends, behind a [`HandshakeMss`].
pub const AGENT_SENDS: u32 = 1;

/// What the agent knows of a connection's handshake, before its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandshakeMss {
    /// The MSS in the SYN as it arrived; zero if it could not be read.
    pub syn_mss: u32,
    /// The MSS that the agent announced.
    pub announced: u32,
}

impl HandshakeMss {
    /// Bytes of it.
    const LEN: usize = 8;

    /// Two numbers in big-endian order.
    pub fn encode(self) -> [u8; HandshakeMss::LEN] {
        let mut bytes = [0; HandshakeMss::LEN];
        bytes[..4].copy_from_slice(&self.syn_mss.to_be_bytes());
        bytes[4..].copy_from_slice(&self.announced.to_be_bytes());
        bytes
    }

    /// Reads it from a connection.
    pub fn read(stream: &mut TcpStream) -> Result<HandshakeMss> {
        let mut bytes = [0; HandshakeMss::LEN];
        stream.set_read_timeout(Some(HANGS_AFTER))?;
        let read = stream.read_exact(&mut bytes);
        read.context("a data connection sent nothing")?;
        let [a, b, c, d, e, f, g, h] = bytes;
        Ok(HandshakeMss {
            syn_mss: u32::from_be_bytes([a, b, c, d]),
            announced: u32::from_be_bytes([e, f, g, h]),
        })
    }
}

/// The MSS that the peer announced, as this host saw it in the handshake.
pub fn mss_seen(announced: u32, info: &SocketState, header: u32) -> MssSeen {
    let seen = handshake_mss(info);
    // No segment is larger than half of the largest window that the peer advertised (tcp_bound_to_half_wnd).
    let mss = u64::from(info.mss().unwrap_or(0));
    let by_window = info.snd_wnd().is_some_and(|window| mss >= window.0 / 2);
    MssSeen {
        announced,
        seen: seen.min(announced),
        // The kernel keeps the smaller of what was announced and what its own side bears.
        at_least: by_window || seen + header >= info.pmtu().unwrap_or(0),
    }
}

/// Sends [`ASKED`] bytes and watches what becomes of them.
pub fn send(stream: &mut TcpStream) -> Result<TcpTruth> {
    stream.set_nonblocking(true)?;
    let fd = stream.try_clone().context("cannot share a socket")?;
    let info = || observe::tcp_info(fd.as_fd());
    let before = info()?;
    let bytes = vec![0; ASKED];
    let (mut written, mut best) = (0, 0);
    let mut since = Instant::now();
    loop {
        match stream.write(&bytes[written..]) {
            Ok(more) => written += more,
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            // The peer is gone: only acknowledged bytes count.
            Err(_) => since = since.checked_sub(HANGS_ANYWAY).unwrap_or(since),
        }
        let now = info()?;
        let count = |info: &SocketState| info.bytes_acked().unwrap_or_default().0;
        let acked = count(&now).saturating_sub(count(&before));
        let unsent = now.notsent_bytes().unwrap_or_default().0;
        let whole = written == ASKED && now.packets_out() == Some(0) && unsent == 0;
        if acked > best {
            (best, since) = (acked, Instant::now());
        }
        let timeouts = now.total_rto().is_none_or(|count| count >= TIMEOUTS);
        let stuck = since.elapsed() >= HANGS_AFTER && timeouts || since.elapsed() >= HANGS_ANYWAY;
        if whole || stuck {
            return Ok(TcpTruth {
                asked: ASKED as u64,
                acked: if whole { ASKED as u64 } else { acked },
                hangs: !whole,
                snd_mss: now.mss().unwrap_or(0),
                pmtu: now.pmtu().unwrap_or(0),
                retransmitted: now.total_retrans().unwrap_or(0),
            });
        }
        std::thread::sleep(LOOK);
    }
}

/// Receives until all bytes arrived, the peer closes, or the connection stalls.
pub fn receive(stream: &mut TcpStream) {
    let mut room = vec![0; ASKED];
    let mut got = 0;
    let timed = stream.set_read_timeout(Some(Duration::from_millis(100)));
    let mut since = Instant::now();
    while timed.is_ok() && got < ASKED && since.elapsed() < HANGS_ANYWAY {
        match stream.read(&mut room) {
            Ok(0) => return,
            Ok(more) => (got, since) = (got + more, Instant::now()),
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {}
                _ => return,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Bytes;

    #[test]
    fn half_of_a_window_is_no_lowered_mss() {
        let info = |snd_mss, window| {
            model::socket_state! {
                mss: Some(snd_mss),
                timestamps: Some(true),
                pmtu: Some(65_535),
                snd_wnd: Some(Bytes(window)),
            }
        };
        let seen = |snd_mss, window| mss_seen(65_495, &info(snd_mss, window), 40);
        assert!(seen(32_768, 65_536).at_least);
        let lowered = seen(1348, 65_536);
        assert_eq!((lowered.seen, lowered.at_least), (1360, false));
    }

    #[test]
    fn an_mss_is_seen_whole_unless_something_lowers_it() {
        let info = |mss, pmtu, timestamps| {
            model::socket_state! {
                mss: Some(mss),
                timestamps: Some(timestamps),
                pmtu: Some(pmtu),
                snd_wnd: Some(Bytes(1 << 30)),
            }
        };
        let seen = |announced, info: &SocketState| {
            let seen = mss_seen(announced, info, 40);
            (seen.announced, seen.seen, seen.at_least)
        };
        // As much as its own side bears.
        assert_eq!(seen(8960, &info(1460, 1500, false)), (8960, 1460, true));
        assert_eq!(seen(8960, &info(1448, 1500, true)), (8960, 1460, true));
        assert_eq!(seen(1460, &info(1459, 1500, false)), (1460, 1459, false));
        assert_eq!(seen(1400, &info(1460, 9000, false)), (1400, 1400, false));
    }

    #[test]
    fn a_transfer_on_this_host_arrives_whole() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut theirs, _) = listener.accept().unwrap();
        let opening = HandshakeMss {
            syn_mss: 1460,
            announced: 65_495,
        };
        ours.write_all(&opening.encode()).unwrap();
        assert_eq!(HandshakeMss::read(&mut theirs).unwrap(), opening);
        let receiver = std::thread::spawn(move || {
            receive(&mut theirs);
            theirs
        });
        let truth = send(&mut ours).unwrap();
        assert_eq!((truth.asked, truth.acked), (ASKED as u64, ASKED as u64));
        assert!(!truth.hangs && truth.snd_mss > 0 && truth.pmtu > 0);
        let mut theirs = receiver.join().unwrap();
        theirs.set_nonblocking(true).unwrap();
        assert_eq!(
            theirs.read(&mut [0]).unwrap_err().kind(),
            ErrorKind::WouldBlock
        );
    }

    #[test]
    fn a_connection_that_ends_early_ends_its_receiver() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut theirs, _) = listener.accept().unwrap();
        ours.write_all(&[0; 100]).unwrap();
        drop(ours);
        receive(&mut theirs);
        assert!(HandshakeMss::read(&mut theirs).is_err());
    }
}

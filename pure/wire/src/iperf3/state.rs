//! The states of a test, its errors, its names.

use super::Malformed;
use model::Nanos;

/// Port of an iperf3 server unless said otherwise.
pub const DEFAULT_PORT: u16 = 5201;

/// Bytes of a cookie: 36 characters of `a-z2-7` (in 3.1: host name and time) and a NUL.
pub const COOKIE_LEN: usize = 37;

/// Names a test; every data connection of it starts with it.
pub type Cookie = [u8; COOKIE_LEN];

/// Says whether these bytes are a cookie as some iperf3 makes it: 36 visible characters and a NUL.
pub fn is_cookie(bytes: &[u8]) -> bool {
    bytes.len() == COOKIE_LEN
        && bytes[COOKIE_LEN - 1] == 0
        && bytes[..COOKIE_LEN - 1].iter().all(u8::is_ascii_graphic)
}

/// The number by which both ends name the stream at this position: 1, 3, 4, 5, ... (iperf3 skips 2).
pub fn stream_id(position: usize) -> u32 {
    let position = u32::try_from(position).unwrap_or(u32::MAX - 2);
    if position == 0 { 1 } else { position + 2 }
}

macro_rules! states {
    ($($(#[$doc:meta])* $name:ident = $value:literal,)*) => {
        /// A single byte on the control connection.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum State { $($(#[$doc])* $name = $value,)* }

        impl State {
            /// Every state that can be on the wire.
            pub const ALL: &[State] = &[$(State::$name,)*];

            /// From the byte; `None` if no version of iperf3 sends it.
            pub fn from_byte(byte: u8) -> Option<State> {
                match i8::from_ne_bytes([byte]) { $($value => Some(State::$name),)* _ => None }
            }

            /// The byte.
            pub fn byte(self) -> u8 {
                i8::to_ne_bytes(self as i8)[0]
            }
        }
    };
}

states! {
    /// The streams are there; the test is about to run.
    TestStart = 1,
    /// The test runs.
    TestRunning = 2,
    /// From the client: the test is over.
    TestEnd = 4,
    /// The client is to send its parameters.
    ParamExchange = 9,
    /// The client is to open its streams.
    CreateStreams = 10,
    /// From the server: it gives up.
    ServerTerminate = 11,
    /// From the client: it gives up.
    ClientTerminate = 12,
    /// The client is to send its results, then the server sends its own.
    ExchangeResults = 13,
    /// Both have all results.
    DisplayResults = 14,
    /// From the client: good bye.
    Done = 16,
    /// The server runs another test.
    AccessDenied = -1,
    /// Something is wrong at the server; two 32-bit big-endian integers follow.
    ServerError = -2,
}

/// Numbers of iperf3's own errors, as far as a server of ours sends them (iperf_api.h).
pub mod code {
    /// Duration too long.
    pub const DURATION: i32 = 5;
    /// Total rate above the server's limit.
    pub const TOTAL_RATE: i32 = 27;
    /// Unable to receive the cookie.
    pub const RECEIVE_COOKIE: i32 = 106;
    /// Unable to receive parameters.
    pub const RECEIVE_PARAMS: i32 = 114;
    /// Unable to receive results.
    pub const RECEIVE_RESULTS: i32 = 117;
    /// Not authorised.
    pub const AUTH: i32 = 142;
    /// Nothing was received for too long.
    pub const NO_MESSAGE: i32 = 144;
    /// A stream could not be set up.
    pub const STREAM_ACCEPT: i32 = 204;
    /// The test took longer than the server allows.
    pub const EXPIRED: i32 = 160;
}

/// What iperf3 means by the number of an error (iperf_api.h and iperf_error.c, 3.21). Numbers that
/// no version explains get a neutral phrase.
pub fn error_text(number: i32) -> &'static str {
    match number {
        5 => "the test is longer than it allows",
        6 => "it allows fewer parallel streams",
        7 => "the block size is too large or missing",
        8 => "the socket buffer is too large",
        10 => "the MSS is too large",
        11 => "its system cannot send without copying",
        15 => "the burst is too large",
        20 => "the UDP datagram size is not possible",
        21 => "the type of service is not possible",
        27 => "the total rate is above its limit",
        37 => "the test is longer than its limit",
        102 | 202 => "it could not listen for the streams",
        106 => "the start of the connection did not arrive",
        107 | 108 | 109 | 111 | 112 => "the control connection broke",
        110 => "it received a message that it does not know",
        114 => "it could not read the parameters",
        117 => "it could not read the results",
        119 => "the client has terminated",
        120 => "it was stopped",
        121 => "it is busy with another test",
        122 => "it could not set TCP_NODELAY",
        123 => "it could not set the MSS",
        124 | 130 => "it could not set the socket buffer",
        125 | 126 => "it could not set the type of service",
        134 => "it could not set the congestion control",
        142 => "user name, password or clock were not accepted",
        144 => "no data arrived for too long",
        160 => "the test took longer than it allows",
        200 | 201 => "it could not create a stream",
        203 | 204 => "a stream could not be opened",
        205..=207 => "a stream broke",
        _ => "it gives no reason that is known",
    }
}

/// Why a test ended before its end. The words are for the user; `peer` is the remote host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the sentence of each says what it is")]
pub enum Iperf3Failure {
    #[error("the iperf3 server is busy with another test")]
    Busy,
    #[error("the iperf3 server refused: {} (its error {number}, errno {errno})", error_text(*number))]
    ServerError {
        /// iperf3's own number.
        number: i32,
        /// The system's number at the server, 0 if none.
        errno: i32,
    },
    #[error("the iperf3 server was stopped during the test")]
    ServerTerminated,
    #[error("the iperf3 client was stopped during the test")]
    ClientTerminated,
    #[error("the iperf3 peer closed the control connection while {0}")]
    Closed(&'static str),
    #[error("the iperf3 peer was silent for {} while {during}", span)]
    Silent {
        /// What was waited for.
        during: &'static str,
        /// How long.
        span: Nanos,
    },
    #[error("the peer does not speak iperf3's protocol: byte {byte} came while {during}")]
    Unexpected {
        byte: u8,
        /// What was waited for.
        during: &'static str,
    },
    #[error("the iperf3 peer announced {size} bytes of {what}; at most {limit} are taken")]
    TooLarge {
        /// Of what.
        what: &'static str,
        size: u64,
        limit: u64,
    },
    #[error("the iperf3 peer sent {what} that cannot be used: {why}")]
    Malformed {
        /// Parameters or results.
        what: &'static str,
        why: Malformed,
    },
    #[error("the peer does not speak iperf3's protocol: its first 37 bytes are no cookie")]
    NotACookie,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_states_match() {
        for byte in 0..=255u8 {
            if let Some(state) = State::from_byte(byte) {
                assert_eq!(state.byte(), byte);
            }
        }
        assert_eq!(State::from_byte(0xff), Some(State::AccessDenied));
        assert_eq!(State::from_byte(0xfe), Some(State::ServerError));
        assert_eq!(State::from_byte(15), None);
        for &state in State::ALL {
            assert_eq!(State::from_byte(state.byte()), Some(state));
        }
    }

    #[test]
    fn ids_skip_two() {
        let ids: Vec<u32> = (0..4).map(stream_id).collect();
        assert_eq!(ids, [1, 3, 4, 5]);
        assert_eq!(stream_id(u32::MAX as usize - 2), u32::MAX);
        assert_eq!(stream_id(usize::MAX), u32::MAX);
    }

    #[test]
    fn cookies() {
        let mut cookie = *b"sluyyqsbvuv7awowz64yimjgdqqad5dnpykq\0";
        assert!(is_cookie(&cookie));
        assert!(is_cookie(b"host.1450000000.123456.0badcafe0badc\0"));
        cookie[3] = b' ';
        assert!(!is_cookie(&cookie));
        assert!(!is_cookie(b"short"));
    }

    #[test]
    fn every_number_of_iperf_api_h_has_its_phrase() {
        // The constants of that file, and a word of what each means.
        for (numbers, words) in [
            (&[5][..], "longer than it allows"),
            (&[6], "parallel streams"),
            (&[7], "block size"),
            (&[8], "socket buffer"),
            (&[10], "MSS"),
            (&[11], "without copying"),
            (&[15], "burst"),
            (&[20], "datagram size"),
            (&[21], "type of service"),
            (&[27], "total rate"),
            (&[37], "longer than its limit"),
            (&[102, 202], "listen"),
            (&[106], "start of the connection"),
            (&[107, 108, 109, 111, 112], "control connection broke"),
            (&[110], "does not know"),
            (&[114], "parameters"),
            (&[117], "results"),
            (&[119], "client has terminated"),
            (&[120], "stopped"),
            (&[121], "another test"),
            (&[122], "TCP_NODELAY"),
            (&[123], "set the MSS"),
            (&[124, 130], "set the socket buffer"),
            (&[125, 126], "set the type of service"),
            (&[134], "congestion control"),
            (&[142], "user name"),
            (&[144], "no data arrived"),
            (&[160], "took longer"),
            (&[200, 201], "create a stream"),
            (&[203, 204], "could not be opened"),
            (&[205, 206, 207], "a stream broke"),
        ] {
            for number in numbers {
                let text = error_text(*number);
                assert!(text.contains(words), "{number}: {text}");
            }
        }
        assert_eq!(error_text(208), error_text(-1));
        assert!(error_text(208).contains("no reason"));
    }
}

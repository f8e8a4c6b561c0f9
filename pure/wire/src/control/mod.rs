//! The protocol between a controller (the host of the command) and an agent (the remote host).
//!
//! Over an authenticated stream of bytes both send [frames](frame) of JSON: [`ToAgent`] one way,
//! [`ToController`] the other. [`ControllerMachine`] and [`AgentMachine`] are the two ends.
//! [`Preamble`] opens a data connection, a [`datagram::StreamGreeting`] a stream of datagrams; [`enrol`] is all that
//! an unauthenticated peer with an
//! invitation may send, and [`busy`] all that a server sends one for which it has no room.

pub mod busy;
pub mod datagram;
pub mod direct;
pub mod enrol;
mod frame;
mod legs;
mod machine;
mod messages;
mod preamble;
pub mod probe;

pub use frame::{FrameError, FrameReader, HEADER_LEN, MAX_FRAME, encode_frame};
pub use machine::{
    AgentMachine, AgentRole, ControlRole, ControllerMachine, ControllerRole, Endpoint, Fault, IDLE,
    LONGEST_OUTAGE, MAX_EVENTS, MAX_LIVE_LEGS, MAX_OPEN_FETCHES, MAX_OPEN_REQUESTS, MAX_QUEUED,
    MachineEvent, PING_EVERY, SILENCE, silence,
};
pub use messages::{LegOrder, MAX_PIECE, MAX_READINGS, MAX_SETTINGS, Origin, PROTOCOL, TOKEN_LEN};
pub use messages::{ProbeAnswer, ProbeRequest};
pub use messages::{ToAgent, ToController, TuneOutcome, TuneRequest};
pub use preamble::{PREAMBLE_LEN, Preamble, Token};

/// What a peer wrote, fit for a terminal and a log: control characters (and the marks that turn
/// the direction of text) become `?`, and at most `limit` characters are kept.
pub fn printable(text: &str, limit: usize) -> String {
    text.chars()
        .take(limit)
        .map(|c| match c {
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '?',
            '\u{2028}' | '\u{2029}' => '?',
            c if c.is_control() => '?',
            c => c,
        })
        .collect()
}

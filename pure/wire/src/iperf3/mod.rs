//! iperf3's protocol: the control connection of both roles as machines, and what rides beside it.
//!
//! A control connection carries single signed bytes that name a state, and JSON objects behind a
//! 32-bit big-endian length. The server drives; the client only ends the test. Facts checked against
//! iperf3 3.12 and 3.21.

mod auth;
mod client;
mod frame;
mod params;
mod results;
mod server;
mod state;
mod udp;

#[cfg(test)]
mod pair_tests;

pub use auth::{
    AuthError, DEFAULT_SKEW_S, UserCredentials, UsersFile, UsersFileError, read_token_text,
    token_text,
};
pub use client::{ClientEvent, Iperf3Client};
pub use params::{Params, TestProtocol};
pub use results::{StreamResult, TestResults};
pub use server::{Iperf3Server, ServerEvent};
pub use state::{
    COOKIE_LEN, Cookie, DEFAULT_PORT, Iperf3Failure, State, code, error_text, is_cookie, stream_id,
};
pub use udp::{CONNECT, UdpHeader, connect_reply, is_connect_reply};

/// Why a JSON object of the peer was not taken: it is none, or a key is missing, of another type or out of range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(String);

//! The protocol between a controller and an agent.

mod messages;

pub use messages::{Order, PROTOCOL, TOKEN_LEN, ToAgent, ToController};

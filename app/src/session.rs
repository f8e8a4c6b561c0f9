//! The agent's part of a session.

use crate::transport::{AgentChannel, Event};
use crate::trust::Peer;
use anyhow::Result;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use wire::control::{ToAgent, ToController};

/// Serves one controller until its session ends.
pub fn serve(channel: AgentChannel, _peer: Peer, _stop: &AtomicBool) -> Result<()> {
    loop {
        match channel.recv(Duration::from_secs(60)) {
            Some(Event::Message(ToAgent::Open { order })) => {
                let why = "nothing can be measured yet".to_owned();
                let _ = channel.send(ToController::Refused {
                    leg: order.leg,
                    why,
                });
            }
            Some(Event::Ended(_)) => return Ok(()),
            _ => {}
        }
    }
}

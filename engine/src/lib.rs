//! The engine: everything between the rooms and the command. Sessions with other hosts, the agent, measurements,
//! experiments, tuning. It returns values and emits events; the command prints them.

mod address_challenge;
pub mod captures;
pub mod chance;
pub mod clock;
pub mod closed_loop;
pub mod controller;
mod datagrams;
mod direct;
pub mod exit;
pub mod experiment;
mod grant;
pub mod helper;
pub mod histories;
pub mod host;
pub mod host_calendar;
mod host_settings;
pub mod iperf3;
pub mod lab;
pub mod leg;
mod leg_watch;
mod light;
pub mod listener;
pub mod log;
pub mod mesh;
pub mod mtu;
pub mod namespaces;
mod nfs;
mod outages;
pub mod pack;
pub mod peer;
mod prelude;
pub mod progress;
pub mod reader;
pub mod record;
pub mod session;
pub mod signature;
mod slot_listener;
pub mod slots;
#[cfg(test)]
mod tests;
pub mod third_party;
pub mod traces;
pub mod transport;
pub mod trust;
pub mod tune_rules;
pub mod tuning;

#[cfg(test)]
use tests::testing;

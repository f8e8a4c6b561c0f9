//! Tests that measure nothing by the clock: one program, so that what waits and what works run side by side.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../common/browser.rs"]
mod browser;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/generated.rs"]
mod generated;
#[path = "../../../host/calendar/tests/engines/server.rs"]
mod server;

mod architecture;
mod calendar;
mod confined;
mod damaged_times;
mod dependencies;
mod dishonest;
mod faults;
mod gate;
mod mesh;
mod mesh_calendar;
mod mistakes;
mod mtu;
mod one_answer;
mod options;
mod package;
mod page;
mod privileges;
mod prove_from;
mod pscheduler;
mod remote_tuning;
mod runs;
mod schema;
mod third_party;
mod tune_mtu;
mod undo;
mod units;

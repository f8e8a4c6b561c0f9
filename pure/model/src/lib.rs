//! The nouns of linerate, and the physics that joins them.
//!
//! Nothing here touches a clock, a file or a socket: every value can be saved, sent and read again.
//! Data flows one way: kernel bytes -> [`Sample`] -> [`Run`] -> [`Summary`] -> words and pages.

pub mod advice;
mod arrivals;
mod blocks;
mod clocks;
mod completeness;
mod copy;
mod event;
mod evidence;
mod experiment;
pub mod finding;
mod fingerprint;
mod latency;
pub mod light;
mod mesh_leg;
pub mod mtu;
mod names;
mod node_id;
mod overview;
pub mod packet;
pub mod physics;
mod plan;
mod postgres_address;
mod published;
mod random;
pub mod request;
mod run;
mod sample;
pub mod segment;
mod setting;
pub mod socket;
mod socket_option;
mod spec;
pub mod stats;
mod stream_figures;
mod summary;
mod tuning;
mod units;
mod user_file;
mod verdict;
mod watch;
mod workload;

pub use arrivals::ArrivalCounter;
pub use blocks::*;
pub use clocks::*;
pub use completeness::*;
pub use copy::*;
pub use event::*;
pub use experiment::*;
pub use fingerprint::*;
pub use latency::*;
pub use mesh_leg::*;
pub use node_id::NodeId;
pub use plan::*;
pub use postgres_address::PostgresAddress;
pub use published::*;
pub use random::*;
pub use run::*;
pub use sample::*;
pub use segment::{
    Comm, Connection, Dropped, Lost, Owner, Retransmission, Segment, TRACE_SCHEMA, Trace,
    TraceBegin, TraceEnd, TraceRecord, TraceSample, TraceSource, What,
};
pub use setting::*;
pub use socket::{SocketField, SocketState, SocketValues};
pub use socket_option::*;
pub use spec::*;
pub use stream_figures::*;
pub use summary::*;
pub use tuning::*;
pub use units::*;
pub use user_file::*;
pub use verdict::*;
pub use watch::*;
pub use workload::*;

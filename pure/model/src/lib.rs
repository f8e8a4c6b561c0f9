//! The nouns of linerate, and the physics that joins them.
//!
//! Nothing here touches a clock, a file or a socket: every value can be saved, sent and read again.
//! Data flows one way: kernel bytes -> [`Sample`] -> [`Run`] -> [`Summary`] -> words and pages.

pub mod advice;
mod audit;
mod blocks;
mod clocks;
mod copy;
mod event;
mod evidence;
mod experiment;
pub mod finding;
mod fingerprint;
mod latency;
pub mod mtu;
mod names;
pub mod packet;
pub mod physics;
mod plan;
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
mod verdict;
mod workload;

pub use audit::{Audit, Completeness, Gap, Tally};
pub use blocks::{
    Answer, Asked, AtServer, BlockOperation, BlockRecord, BlockServer, BlockSplit, BlockStore,
    BlockSummary, Blocks, Outstanding, Places, ServerRecord, StoreRecord, summarise_blocks,
};
pub use clocks::Clocks;
pub use copy::{CopySummary, Stage, StageUse, summarise_copy};
pub use event::Event;
pub use experiment::{Difference, Experiment, Phase, Trial, Witness};
pub use fingerprint::{Congestion, Cpu, Device, Fingerprint, Route, Unread};
pub use latency::Latency;
pub use plan::{Arm, Design, EXPERIMENT_SCHEMA, Estimand, Factor, Level, Metric, Plan};
pub use published::{About, Doubt, Published, PublishedComparison, Statistics};
pub use random::Random;
pub use run::{
    CopyRecord, Datagrams, EndRecord, Ended, Leg, LineErrors, Run, RunId, SCHEMA_VERSION, Traced,
    Warning,
};
pub use sample::{CpuTimes, Rows, Sample, StreamSample};
pub use segment::{
    Begin, Comm, Connection, Dropped, End, Lost, Owner, Retransmission, Segment, TRACE_SCHEMA,
    Trace, TraceRecord, TraceSample, TraceSource, What,
};
pub use setting::{
    DeviceKnob, Knob, OffloadKnob, On, Qdisc, QdiscKind, Reading, RingKnob, RouteKnob, Scope,
    Setting, SettingError, Shape, SocketKnob, SysctlKey, Value, apply_to_spec,
};
pub use socket::{SocketField, SocketState, SocketValues};
pub use socket_option::{
    OptionCall, OptionUnit, SOCKET_OPTIONS, SocketOption, SocketOptions, SocketSettings,
};
pub use spec::{Direction, Directions, IpVersion, Limit, Placement, Side, Spec};
pub use stream_figures::{PathFigures, StreamFigures, Vantage};
pub use summary::{
    CpuUse, LatencySummary, LegSummary, SettingInForce, Summary, ramp_for, shortest_trip,
    summarise, summarise_leg,
};
pub use tuning::{Attempt, Fate, Look, Round, TUNING_SCHEMA, Tuning};
pub use units::{BitRate, Bytes, Nanos, ParseUnitError};
pub use verdict::{
    ArmTable, ChangePoint, Check, Comparison, Estimate, FactorEffect, Forecast, Gate, GateState,
    Outcome, Outlier, Pilot, SearchStory, Verdict,
};
pub use workload::{Bulk, Cache, Exchange, FileCopy, Request, Udp, Wait, Workload, WorkloadKind};

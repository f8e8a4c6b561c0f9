//! What nearly every command uses.

pub(crate) use crate::global::Global;
pub(crate) use crate::json_input::Document;
pub(crate) use crate::live::View;
pub(crate) use crate::live::{stdout_style, stdout_width};
pub(crate) use crate::out;
pub(crate) use anyhow::{Context, Result};
pub(crate) use archive::{Archive, NamedDocument, RunFilter, Traces};
pub(crate) use clap::Args;
pub(crate) use engine::exit::sentence;
pub(crate) use engine::exit::{Exit, Refusal};
pub(crate) use engine::host::Host;
pub(crate) use engine::peer::PeerOperation;
pub(crate) use engine::progress::Event;
pub(crate) use engine::refuse;
pub(crate) use model::finding::Explanation;
pub(crate) use model::{
    BitRate, Bytes, Direction, Ended, Experiment, LegLimit, Nanos, Run, Side, Spec, TraceRecord,
    WatchRecord,
};
pub(crate) use std::fs::File;
pub(crate) use std::io::{IsTerminal, Write};
pub(crate) use std::net::IpAddr;
pub(crate) use std::path::{Path, PathBuf};
pub(crate) use std::process::ExitCode;
pub(crate) use std::sync::atomic::{AtomicBool, Ordering};
pub(crate) use std::time::{Duration, Instant};

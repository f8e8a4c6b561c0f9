//! What most of the engine uses.

pub(crate) use crate::clock::unix_time;
pub(crate) use crate::exit::{Refusal, sentence};
pub(crate) use crate::progress::{Event, Watcher};
pub(crate) use crate::trust::Peer;
pub(crate) use anyhow::{Context, Result, anyhow, bail};
pub(crate) use model::{
    BitRate, Bytes, Direction, EndRecord, Ended, Leg, LegLimit, Nanos, NodeId, Run, Sample, Side,
    SocketSettings, Spec, Warning, Workload,
};
pub(crate) use std::collections::BTreeMap;
pub(crate) use std::io::{ErrorKind, Read, Write};
pub(crate) use std::net::{IpAddr, SocketAddr, TcpStream};
pub(crate) use std::os::fd::AsFd;
pub(crate) use std::path::{Path, PathBuf};
pub(crate) use std::sync::atomic::{AtomicBool, Ordering};
pub(crate) use std::sync::{Arc, Mutex, mpsc};
pub(crate) use std::thread::JoinHandle;
pub(crate) use std::time::{Duration, Instant};
pub(crate) use wire::control::{LegOrder, ToController, Token};

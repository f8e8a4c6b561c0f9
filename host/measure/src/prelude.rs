//! What most workloads use.

pub(crate) use crate::Error;
pub(crate) use crate::job::{Job, Role};
pub(crate) use crate::spin::Spin;
pub(crate) use crate::stream::{LoadPhase, LoadStream};
pub(crate) use crate::workload::WorkloadEnd;
pub(crate) use model::{Bytes, Nanos};
pub(crate) use std::io;
pub(crate) use std::io::ErrorKind;
pub(crate) use std::net::{Shutdown, TcpStream};
pub(crate) use std::os::fd::{AsFd, BorrowedFd};
pub(crate) use std::sync::Arc;
pub(crate) use std::sync::atomic::{AtomicBool, Ordering};
pub(crate) use std::time::{Duration, Instant};
pub(crate) use sys::socket;

//! What most knobs use.

pub(crate) use crate::Error;
pub(crate) use crate::crash_points::step;
pub(crate) use crate::kernel::Kernel;
pub(crate) use model::{Setting, Value};
pub(crate) use serde::{Deserialize, Serialize};
pub(crate) use std::io;
pub(crate) use std::net::IpAddr;
pub(crate) use std::path::{Path, PathBuf};

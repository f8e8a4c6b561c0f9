//! What nearly every command uses.

pub(crate) use crate::global::Global;
pub(crate) use crate::live::stdout_style;
pub(crate) use crate::out;
pub(crate) use anyhow::{Context, Result};
pub(crate) use clap::Args;
pub(crate) use engine::exit::{Exit, Refusal};
pub(crate) use engine::refuse;
pub(crate) use std::process::ExitCode;

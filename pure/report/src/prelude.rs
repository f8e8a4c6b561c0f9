//! What most reports use.

pub(crate) use crate::json::{document, pretty};
pub(crate) use crate::page::{
    Axis, Band, Chart, KeyFigure, Page, Picture, Scale, Section, Series, Stroke, Svg,
};
pub(crate) use crate::words::{
    Ink, Style, Table, counted, escape, escape_sentence, glue, grouped, or, percent, shown,
    three_digits, utc,
};
pub(crate) use model::finding::{Explanation, Limit};
pub(crate) use model::{
    BitRate, Bytes, Direction, Ended, Experiment, Leg, LegSummary, Nanos, Outcome, Run, Sample,
    Summary, Verdict,
};
pub(crate) use serde::Serialize;
pub(crate) use serde_json::Value;
pub(crate) use std::collections::BTreeMap;

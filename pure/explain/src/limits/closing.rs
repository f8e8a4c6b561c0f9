//! The connection is being closed, and nothing is left to send.

use super::Telling;
use crate::facts::Facts;
use crate::moment::{Moment, Stage};
use model::finding::Confidence;

pub(crate) fn owns(moment: &Moment) -> bool {
    moment.stage == Stage::Closing
}

pub(crate) fn tell(_: &Facts) -> Telling {
    Telling::new(Confidence::Certain, Vec::new())
}
